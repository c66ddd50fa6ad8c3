/*
 * unit_refusals.c - what describing a kernel refuses, each beside the nearest that it takes: a row describes the same
 * thing twice, first with the number that is still right, then with the one that no longer is, which must give the
 * sentence.
 */
#include "unit.h"
#include "base/math.h"
#include "cute/kernel.h"
#include "cute/vectors.h"

static const char *const letters[] = { "a", "b", "c", "d", "e", "f", "g", "h" };

/* A kernel of a call that n decides. */
#define DESCRIBES(name, call) \
    static void name(int n)   \
    {                         \
        call;                 \
    }

/* Tuples and layouts */

static int_tuple ones(int count)
{
    int_tuple modes[INT_TUPLE_RANK_MAX + 1];
    for (int i = 0; i < count; i++)
        modes[i] = leaf(1);
    return tuple_of(count, modes);
}

DESCRIBES(tuple_modes, ones(n))
DESCRIBES(appended_mode, append_mode(ones(n), leaf(1)))
DESCRIBES(mode_of_tuple, tuple_mode(ints(4, 8), n))
DESCRIBES(static_integer, static_leaf(n == 1 ? leaf(4) : n == 2 ? ints(4, 8) : dynamic(thread())))
DESCRIBES(zero_divisor, int_div(ir_int(CKL_I64, 7), ir_int(CKL_I64, n)))
DESCRIBES(remainder_of, int_mod(ir_int(CKL_I64, 7), ir_int(CKL_I64, n)))
DESCRIBES(strides_of_shape, make_layout(ints(4, 8), n == 2 ? ints(1, 4) : n == 1 ? leaf(1) : ints(1, 4, 32)))

static void modes_of_layout(int n)
{
    layout each[LAYOUT_MODES_MAX + 1];
    for (int i = 0; i < n; i++)
        each[i] = compact(leaf(2));
    layouts_of(n, each);
}

static void flat_modes(int n) // in two modes, whose leaves are counted where the layout is flattened
{
    coalesce(make_layout(tuple(ones(n / 2), ones(n - n / 2)), tuple(ones(n / 2), ones(n - n / 2))));
    right_inverse(layouts_of(2, (layout[]){ compact(ones(n / 2)), compact(ones(n - n / 2)) }));
}

static void swizzled_twice(int n)
{
    layout a = with_swizzle((swizzle){ 2, 4, 3 }, compact(leaf(512)));
    with_swizzle((swizzle){ n, 4, 3 }, a);
}

DESCRIBES(swizzle_bits, with_swizzle((swizzle){ n, 4, -3 }, compact(leaf(512))))
DESCRIBES(swizzle_reach, with_swizzle((swizzle){ 3, n, 3 }, compact(leaf(512))))
DESCRIBES(grouped_from, group_modes(compact(ints(2, 3, 5)), n, 3))
DESCRIBES(grouped_to, group_modes(compact(ints(2, 3, 5)), 1, n))
DESCRIBES(static_index, static_crd2idx(n ? dynamic(thread()) : leaf(3), compact(ints(2, 3))))
DESCRIBES(slice_modes,
          slice_layout(n == 2 ? tuple(WILDCARD, leaf(1)) : tuple(WILDCARD, leaf(1), leaf(1)), compact(ints(4, 8))))

static void tiler_modes(int n)
{
    layout tiler[] = { compact(leaf(2)), compact(leaf(2)), compact(leaf(2)) };
    composition_by_mode(compact(ints(4, 8)), n, tiler);
}

static void divide_modes(int n)
{
    layout tiler[] = { compact(leaf(2)), compact(leaf(2)), compact(leaf(2)) };
    logical_divide_by_mode(compact(ints(4, 8)), n, tiler);
}

DESCRIBES(complement_stride, complement(make_layout(leaf(4), leaf(n)), 64))
DESCRIBES(divide_tile, logical_divide(compact(leaf(64)),
                                      n ? with_swizzle((swizzle){ n, 0, 2 }, compact(leaf(16))) : compact(leaf(16))))
DESCRIBES(product_of_static, logical_product(compact(leaf(4)), n ? with_swizzle((swizzle){ n, 0, 2 }, compact(leaf(16)))
                                                                 : compact(leaf(16))))
DESCRIBES(tiles_in_shape, tile_to_shape(compact(ints(4, 8)), ints(8, n)))
DESCRIBES(modes_of_block, tile_to_shape(n == 2 ? compact(ints(4, 8)) : compact(ints(4, 8, 2)), ints(8, 16)))
DESCRIBES(recast_swizzle, recast_layout(with_swizzle((swizzle){ 2, n, 3 }, compact(leaf(512))), 8, 16))
DESCRIBES(recast_from, recast_layout(compact(leaf(64)), n, 8))
DESCRIBES(recast_to, recast_layout(compact(leaf(64)), 8, n))

static void recast_apart(int n)
{
    recast_layout(make_layout(leaf(16), leaf(2)), 8, n); // has no elements that could be split
}

DESCRIBES(recast_stride, recast_layout(make_layout(ints(4, 8), ints(1, n)), 8, 32))
DESCRIBES(recast_shape, recast_layout(make_layout(ints(n, 8), ints(1, 64)), 8, 32))

/* Tensors */

static tensor global_matrix(void)
{
    return gmem_tensor(ir_scalar_param(U64, "x"), F32, compact(shape(8, 32)));
}

DESCRIBES(identity_modes, identity_tensor(ones(n)))
DESCRIBES(coordinate_of, coordinate(identity_tensor(shape(4, 8)), n, 0, 0))

static void register_index(int n)
{
    tensor rX = fragment(F32, compact(leaf(8)));
    fill(rX, immf(0));
    if (n < 0)
        at(rX, thread());
    else
        at(rX, n);
}

static void register_slice(int n)
{
    tensor rX = fragment(F32, compact(shape(4, 8)));
    if (n < 0)
        slice(rX, _, thread());
    else
        slice(rX, _, n);
}

DESCRIBES(shared_element, set(smem_tensor("x", F32, compact(shape(4, 8)), 16), n, immf(0)))

/* The only tile along a mode has the stride 0: no address would betray another one. */
DESCRIBES(shared_tile,
          set(local_tile(smem_tensor("x", F32, compact(shape(4, 8)), 16), shape(4, 2), coord(n, 3)), 0, immf(0)))
DESCRIBES(fragment_layout, fragment(F32, n ? compact(leaf(8)) : compact(dynamic(thread()))))
DESCRIBES(at_coordinates,
          tensor_at_coordinates(global_matrix(), identity_tensor(n == 2 ? shape(2, 2) : shape(2, 2, 2))))

static void copied(int n)
{
    tensor gX = global_matrix(), rX = fragment(F32, compact(shape(8, n)));
    copy(gX, rX, 4);
}

static void vector_memory(int n)
{
    val out[4];
    for (int i = 0; i < 4; i++)
        out[i] = ir_reg(CKL_F32);
    vector_at where = { ir_scalar_param(U64, "x"), 0, yes() };
    tensor gX = global_matrix();
    gX.memory = n ? GMEM : CMEM;
    vectors_load(&where, 1, 4, gX, out, 0);
}

static void atom_of_copy(int n)
{
    static const char *const names[] = { "SM90_TMA_LOAD", "UniversalCopy<128>", "UniversalCopy<24>" };
    make_tiled_copy(names[n], F32, compact(leaf(32)), compact(leaf(4)));
}

static void atom_layout(int n)
{
    copy_atom atom;
    copy_atom_find(n ? "UniversalCopy<128>" : "SM90_TMA_STORE", &atom);
    copy_atom_layout_source(&atom);
}

/* TMA */

static val map_param(void)
{
    return ir_tensor_map_param("map");
}

DESCRIBES(box_rows, make_tma(map_param(), F16, 2, n, 64, 128))
DESCRIBES(box_columns, make_tma(map_param(), F16, 2, 8, n, 0))
DESCRIBES(box_span, make_tma(map_param(), F16, 2, 8, n, 64))
DESCRIBES(box_swizzle, tma_tile_layout(F16, 8, 8, n))
DESCRIBES(box_rank, make_tma(map_param(), F16, n, 8, 64, 128))

static void box_coordinates(int n)
{
    tma_copy tma = make_tma(map_param(), F16, 4, 8, 64, 128);
    tensor sX = smem_tensor("tile", F16, tma_tile_layout(F16, 8, 64, 128), 1024);
    val outer[] = { imm(0), imm(0), imm(0) };
    tma_store_of(&tma, sX, imm(0), imm(0), n, outer);
}

DESCRIBES(im2col_rank, make_tma_im2col(map_param(), F16, n, 8, 64, (int[IR_TENSOR_MAP_RANK_MAX]){ 0 }, 128))

static void im2col_of(int n)
{
    const int steps[] = { 1, 1, 1 };
    const val place[] = { imm(0), imm(0) }, offset = imm_as(IR_U16, 0);
    const val bar = smem_address(smem_alloc("bar", 8, 8));
    tma_copy tma =
        n ? make_tma_im2col(map_param(), F16, 3, 8, 64, steps, 128) : make_tma(map_param(), F16, 3, 8, 64, 128);
    tensor sX = smem_tensor("tile", F16, tma_tile_layout(F16, 8, 64, 128), 1024);
    tma_load_im2col(&tma, sX, imm(0), place, &offset, bar, imm_as(U32, 0));
}

static void added_type(int n)
{
    const ckl_dtype dtype = n ? F32 : F16;
    const tma_copy tma = make_tma(map_param(), dtype, 2, 8, 32, 128);
    tma_add(&tma, smem_tensor("tile", dtype, tma_tile_layout(dtype, 8, 32, 128), 1024), imm(0), imm(0));
}

/* Reductions */

static void reduce_threads(int n)
{
    reduction sums = reduce_sums(1);
    val x = variable(F32, immf(0));
    cta_reduce(&sums, n, smem_alloc("scratch", 4096, 16), &x);
}

static void reduce_values(int n)
{
    reduction sums = reduce_sums(n);
    val x[REDUCE_VALUES_MAX + 1];
    for (int i = 0; i < n; i++)
        x[i] = variable(F32, immf(0));
    cta_reduce(&sums, 256, smem_alloc("scratch", 4096, 16), x);
}

static void allreduce_values(int n)
{
    cluster_size(2);
    cluster_allreduce all = make_cluster_allreduce("all", 256, 2, 2);
    reduction sums = reduce_sums(n);
    val x[3];
    for (int i = 0; i < n; i++)
        x[i] = variable(F32, immf(0));
    cluster_allreduce_begin(&all, &sums, x);
}

static void allreduce_bits(int n)
{
    cluster_size(2);
    cluster_allreduce all = make_cluster_allreduce("all", 256, 2, 2);
    reduction sums = reduce_sums(1);
    val x = n == 32 ? variable(F32, immf(0)) : variable(I64, imm64(0));
    cluster_allreduce_begin(&all, &sums, &x);
}

/* The builder */

DESCRIBES(value_made, assign(variable(U32, imm(0)), n ? thread() : (val){ 0 }))
DESCRIBES(bitcast_bits, bitcast(n == 32 ? F32 : U64, thread()))

static void nesting(int n)
{
    val p = lt(thread(), imm(1));
    for (int i = 0; i < n; i++)
        ir_if(p);
    for (int i = 0; i < n; i++)
        ir_end_if();
}

/* 0: right; 1 to 3: closed by another end, by none that began, an else of no if. */
static void ends_of(int n)
{
    if (n == 1)
        ir_loop();
    else if (n != 2)
        ir_if(ir_compare(IR_EQ, thread(), imm(0)));
    if (n == 3)
        ir_end_if();
    if (n == 3)
        ir_else();
    ir_end_if();
}

static void ends_loop(int n)
{
    if (n)
        ir_loop();
    ir_end_loop();
}

static void else_after(int n)
{
    ir_if(lt(thread(), imm(1)));
    ir_end_if();
    if (n)
        variable(I32, imm(0));
    ir_reopen_else();
    ir_end_if();
}

static void break_in(int n)
{
    if (n)
        ir_loop();
    else
        ir_if(lt(thread(), imm(2)));
    ir_break(lt(thread(), imm(1)));
    if (n)
        ir_end_loop();
    else
        ir_end_if();
}

static void parameters(int n)
{
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%s%s", letters[i / 64], letters[i / 8 % 8], letters[i % 8]);
        char *kept = ir_alloc(1, sizeof name);
        ir_scalar_param(I32, memcpy(kept, name, sizeof name));
    }
}

typedef struct refusal {
    void (*describe)(int n);
    int taken, refused;
    const char *sentence;
} refusal;

static const refusal refusals[] = {
    { tuple_modes, 64, 65, "a tuple of 65 modes: at most 64 are supported" },
    { appended_mode, 63, 64, "a tuple of 65 modes: at most 64 are supported" },
    { mode_of_tuple, 1, 2, "mode 2 of a tuple of 2" },
    { mode_of_tuple, 0, -1, "mode -1 of a tuple of 2" },
    { static_integer, 1, 2, "a static integer was expected, not a tuple" },
    { static_integer, 1, 3, "a static integer was expected, not a dynamic one" },
    { zero_divisor, 1, 0, "division by a mode of size 0" },
    { remainder_of, 1, 0, "division by a mode of size 0" },
    { strides_of_shape, 2, 1, "make_layout: (4,8):1 needs a stride for each integer of the shape" },
    { strides_of_shape, 2, 3, "make_layout: (4,8):(1,4,32) needs a stride for each integer of the shape" },
    { modes_of_layout, 64, 65, "a layout of 65 modes: at most 64 are supported" },
    { flat_modes, 64, 65, "a layout of more than 64 integers" },
    { swizzled_twice, 0, 1, "composition: Sw<2,4,3>o512:1 has a swizzle already" },
    { swizzle_bits, 3, 4, "Sw<4,4,-3>: needs 0 <= B <= |S|" },
    { swizzle_bits, 0, -1, "Sw<-1,4,-3>: needs 0 <= B <= |S|" },
    { swizzle_reach, 56, 57, "Sw<3,57,3>: needs 0 <= B <= |S|, 0 <= M and B+M+|S| <= 62" },
    { swizzle_reach, 0, -1, "Sw<3,-1,3>: needs 0 <= B <= |S|, 0 <= M" },
    { grouped_from, 2, 3, "group_modes: (2,3,5):(1,2,6) does not have the modes to group" },
    { grouped_from, 0, -1, "group_modes: (2,3,5):(1,2,6) does not have the modes to group" },
    { grouped_to, 3, 4, "group_modes: (2,3,5):(1,2,6) does not have the modes to group" },
    { grouped_to, 2, 1, "group_modes: (2,3,5):(1,2,6) does not have the modes to group" },
    { static_index, 0, 1, "crd2idx: (2,3):(1,2) or the coordinate is not static" },
    { slice_modes, 2, 3, "slice: (4,8):(1,4) has another number of modes than the coordinate" },
    { tiler_modes, 2, 3, "composition: (4,8):(1,4) has fewer modes than there are tiles" },
    { divide_modes, 2, 3, "logical_divide: (4,8):(1,4) has fewer modes than there are tiles" },
    { complement_stride, 1, -1, "complement: 4:-1 has a negative stride" },
    { divide_tile, 0, 2, "logical_divide: 64:1, Sw<2,0,2>o16:1 need a static tile without swizzle" },
    { product_of_static, 0, 2, "logical_product: 4:1, Sw<2,0,2>o16:1 need to be static, the second without swizzle" },
    { tiles_in_shape, 24, 20, "tile_to_shape: (4,8):(1,4) does not divide the shape" },
    { modes_of_block, 2, 3, "tile_to_shape: (4,8,2):(1,4,32) needs to be static, of no more modes than the shape" },
    { recast_swizzle, 1, 0, "recast_layout: Sw<2,0,3>o512:1 has a swizzle of smaller units than the element" },
    { recast_from, 1, 0, "recast_layout: 64:1 cannot be recast between sizes" },
    { recast_to, 1, 0, "recast_layout: 64:1 cannot be recast between sizes" },
    { recast_from, 2, 3, "recast_layout: 64:1 cannot be recast between sizes of which neither divides the other" },
    { recast_to, 16, 12, "recast_layout: 64:1 cannot be recast between sizes of which neither divides the other" },
    { recast_apart, 8, 4, "recast_layout: 16:2 has no contiguous mode to split elements of" },
    { recast_stride, 8, 6, "recast_layout: (4,8):(1,6) has a stride that does not match the larger element" },
    { recast_shape, 8, 6, "recast_layout: (6,8):(1,64) has a mode that the larger element does not divide" },

    { identity_modes, 5, 6, "identity tensor: 6 modes, more than 5" },
    { coordinate_of, 1, 2, "coordinate 2 is asked of a tensor that has 2" },
    { register_index, 7, 8, "register 8:1 has nothing at 8" },
    { register_index, 0, -1, "register tensor: the coordinate is not a constant inside the tensor" },
    { register_slice, 7, 8, "register (4,8):(1,4) has nothing at (_,8)" },
    { shared_element, 31, 32, "shared (4,8):(1,4) has nothing at 32" },
    { shared_element, 0, -1, "shared (4,8):(1,4) has nothing at -1" },
    { shared_tile, 0, 1, "shared ((4,2),(1,4)):((1,4),(0,8)) has nothing at ((_,_),(1,3))" },
    { register_slice, 0, -1, "registers cannot be indexed at run time" },
    { fragment_layout, 1, 0, "a fragment of ?:1: the layout of registers must be static" },
    { at_coordinates, 2, 3, "global (8,32):(1,8) has no elements at coordinates of 3 modes" },
    { copied, 32, 31, ": the layouts must be static and of equal size" },
    { vector_memory, 1, 0, "vectors are of global or shared memory, this tensor is in neither" },
    { atom_of_copy, 1, 0, "SM90_TMA_LOAD: one thread copies whole tiles, by tma_load()" },
    { atom_of_copy, 1, 2, "there is no copy atom UniversalCopy<24>" },
    { atom_layout, 1, 0, "SM90_TMA_STORE: its layout is that of the box or of the tile" },

    { box_rows, 256, 257, "TMA box: 257x64, more than 256 elements along a dimension" },
    { box_columns, 256, 264, "TMA box: 8x264, more than 256 elements along a dimension" },
    { box_span, 32, 40, "TMA box: rows of 80 bytes are longer than the 64-byte swizzle" },
    { box_swizzle, 128, 256, "TMA box: there is no swizzle of 256 bytes" },
    { box_swizzle, 64, 96, "TMA box: there is no swizzle of 96 bytes" },
    { box_swizzle, 16, 8, "TMA box: there is no swizzle of 8 bytes" },
    { box_rank, 5, 6, "TMA box: rank=6 is not in 2..5" },
    { box_rank, 2, 1, "TMA box: rank=1 is not in 2..5" },
    { box_coordinates, 2, 1, "TMA box: 3 coordinates in a tensor of rank 4" },
    { box_coordinates, 2, 3, "TMA box: 5 coordinates in a tensor of rank 4" },

    { im2col_rank, 5, 6, "TMA im2col: rank=6 is not in 3..5" },
    { im2col_rank, 3, 2, "TMA im2col: rank=2 is not in 3..5" },
    { im2col_of, 1, 0, "TMA im2col: the copy is one of boxes" },
    { added_type, 1, 0, "tma_add: the tile is of f16, only f32 is added" },

    { reduce_threads, 32, 16, "cta_reduce: 16 threads are not whole warps" },
    { reduce_threads, 96, 80, "cta_reduce: 80 threads are not whole warps" },
    { reduce_values, 8, 9, "or 9 values are too many" },
    { allreduce_values, 2, 3, "cluster_allreduce_begin: 3 values are more than 2, or not of 32 bits" },
    { allreduce_bits, 32, 64, "cluster_allreduce_begin: 1 values are more than 2, or not of 32 bits" },

    { value_made, 1, 0, "a value is used that was never made" },
    { bitcast_bits, 32, 64, "bitcast of u32 to u64 changes the width" },
    { nesting, 64, 65, "control flow is nested more than 64 deep" },
    { ends_of, 0, 1, "end_if without its if" },
    { ends_of, 0, 2, "end_if without its if" },
    { ends_of, 0, 3, "else without its if" },
    { ends_loop, 1, 0, "end_loop without its loop" },
    { else_after, 0, 1, "else does not follow an if" },
    { break_in, 1, 0, "break outside a loop" },
    { parameters, 96, 97, "is one more than the 96 a kernel may have" },
};

static ckl_status described(void (*describe)(int), int n)
{
    ir_describe_begin("refusals", IR_SM90A);
    ir_current()->threads = 256;
    describe(n);
    return ir_describe_end(NULL);
}

TEST(refusals)
{
    int wrong = 0;
    for (int i = 0; i < COUNT_OF(refusals); i++) {
        const refusal *r = &refusals[i];
        if (described(r->describe, r->taken) != CKL_OK) {
            print_error("row %d, which is right: %s\n", i, ckl_error());
            wrong++;
        }
        ckl_status status = described(r->describe, r->refused);
        if (status != CKL_INTERNAL || !strstr(ckl_error(), r->sentence)) {
            print_error("row %d: status %d, %s; not: %s\n", i, (int)status, status ? ckl_error() : "", r->sentence);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

RUN_TESTS(NULL, NULL)
