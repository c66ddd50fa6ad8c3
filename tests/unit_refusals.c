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

typedef struct refusal {
    void (*describe)(int n);
    int taken, refused;
    const char *sentence;
} refusal;

static ckl_status described(void (*describe)(int), int n)
{
    ir_describe_begin("refusals", IR_SM90A);
    ir_current()->threads = 256;
    describe(n);
    return ir_describe_end(NULL);
}

static void test_refusal(void **state)
{
    const refusal *r = *state;
    assert_ok(described(r->describe, r->taken));
    assert_fails(described(r->describe, r->refused), CKL_INTERNAL, r->sentence);
}

/* A test: REFUSES(name, taken, refused, words) { ... } describes a kernel that n decides. */
#define REFUSES(name, taken, refused, words) \
    static void name(int n);                 \
    REFUSES_TOO(name, taken, refused, words) \
    static void name(int n)
#define REFUSES_CALL(name, call, taken, refused, words) \
    REFUSES(name, taken, refused, words)                \
    {                                                   \
        call;                                           \
    }

/* One more of the same kernels. */
#define REFUSES_TOO(name, taken, refused, words) ENLIST(__COUNTER__, name, taken, refused, words)
#define ENLIST(...)                              ENLIST_(__VA_ARGS__)
#define ENLIST_(id, name, taken, refused, words)                  \
    __attribute__((constructor)) static void enlist_##id(void)    \
    {                                                             \
        static const refusal r = { name, taken, refused, words }; \
        enlist(#name, test_refusal, NULL, NULL, &r);              \
    }

/* Tuples and layouts */

static int_tuple ones(int count)
{
    int_tuple modes[INT_TUPLE_RANK_MAX + 1];
    for (int i = 0; i < count; i++)
        modes[i] = leaf(1);
    return tuple_of(count, modes);
}

REFUSES_CALL(tuple_modes, ones(n), 64, 65, "a tuple of 65 modes: at most 64 are supported")
REFUSES_CALL(appended_mode, append_mode(ones(n), leaf(1)), 63, 64, "a tuple of 65 modes: at most 64 are supported")
REFUSES_CALL(mode_of_tuple, tuple_mode(ints(4, 8), n), 1, 2, "mode 2 of a tuple of 2")
REFUSES_TOO(mode_of_tuple, 0, -1, "mode -1 of a tuple of 2")
REFUSES_CALL(static_integer,
             static_leaf(n == 1   ? leaf(4)
                         : n == 2 ? ints(4, 8)
                                  : dynamic(thread())),
             1, 2, "a static integer was expected, not a tuple")
REFUSES_TOO(static_integer, 1, 3, "a static integer was expected, not a dynamic one")
REFUSES_CALL(zero_divisor, int_div(ir_int(CKL_I64, 7), ir_int(CKL_I64, n)), 1, 0, "division by a mode of size 0")
REFUSES_CALL(remainder_of, int_mod(ir_int(CKL_I64, 7), ir_int(CKL_I64, n)), 1, 0, "division by a mode of size 0")
REFUSES_CALL(strides_of_shape,
             make_layout(ints(4, 8), n == 2   ? ints(1, 4)
                                     : n == 1 ? leaf(1)
                                              : ints(1, 4, 32)),
             2, 1, "make_layout: (4,8):1 needs a stride for each integer of the shape")
REFUSES_TOO(strides_of_shape, 2, 3, "make_layout: (4,8):(1,4,32) needs a stride for each integer of the shape")

REFUSES(modes_of_layout, 64, 65, "a layout of 65 modes: at most 64 are supported")
{
    layout each[LAYOUT_MODES_MAX + 1];
    for (int i = 0; i < n; i++)
        each[i] = compact(leaf(2));
    layouts_of(n, each);
}

/* In two modes, whose leaves are counted where the layout is flattened. */
REFUSES(flat_modes, 64, 65, "a layout of more than 64 integers")
{
    coalesce(make_layout(tuple(ones(n / 2), ones(n - n / 2)), tuple(ones(n / 2), ones(n - n / 2))));
    right_inverse(layouts_of(2, (layout[]){ compact(ones(n / 2)), compact(ones(n - n / 2)) }));
}

REFUSES(swizzled_twice, 0, 1, "composition: Sw<2,4,3>o512:1 has a swizzle already")
{
    layout a = with_swizzle((swizzle){ 2, 4, 3 }, compact(leaf(512)));
    with_swizzle((swizzle){ n, 4, 3 }, a);
}

REFUSES_CALL(swizzle_bits, with_swizzle((swizzle){ n, 4, -3 }, compact(leaf(512))), 3, 4,
             "Sw<4,4,-3>: needs 0 <= B <= |S|")
REFUSES_TOO(swizzle_bits, 0, -1, "Sw<-1,4,-3>: needs 0 <= B <= |S|")
REFUSES_CALL(swizzle_reach, with_swizzle((swizzle){ 3, n, 3 }, compact(leaf(512))), 56, 57,
             "Sw<3,57,3>: needs 0 <= B <= |S|, 0 <= M and B+M+|S| <= 62")
REFUSES_TOO(swizzle_reach, 0, -1, "Sw<3,-1,3>: needs 0 <= B <= |S|, 0 <= M")
REFUSES_CALL(grouped_from, group_modes(compact(ints(2, 3, 5)), n, 3), 2, 3,
             "group_modes: (2,3,5):(1,2,6) does not have the modes to group")
REFUSES_TOO(grouped_from, 0, -1, "group_modes: (2,3,5):(1,2,6) does not have the modes to group")
REFUSES_CALL(grouped_to, group_modes(compact(ints(2, 3, 5)), 1, n), 3, 4,
             "group_modes: (2,3,5):(1,2,6) does not have the modes to group")
REFUSES_TOO(grouped_to, 2, 1, "group_modes: (2,3,5):(1,2,6) does not have the modes to group")
REFUSES_CALL(static_index, static_crd2idx(n ? dynamic(thread()) : leaf(3), compact(ints(2, 3))), 0, 1,
             "crd2idx: (2,3):(1,2) or the coordinate is not static")
REFUSES_CALL(slice_modes,
             slice_layout(n == 2 ? tuple(WILDCARD, leaf(1)) : tuple(WILDCARD, leaf(1), leaf(1)), compact(ints(4, 8))),
             2, 3, "slice: (4,8):(1,4) has another number of modes than the coordinate")

REFUSES(tiler_modes, 2, 3, "composition: (4,8):(1,4) has fewer modes than there are tiles")
{
    layout tiler[] = { compact(leaf(2)), compact(leaf(2)), compact(leaf(2)) };
    composition_by_mode(compact(ints(4, 8)), n, tiler);
}

REFUSES(divide_modes, 2, 3, "logical_divide: (4,8):(1,4) has fewer modes than there are tiles")
{
    layout tiler[] = { compact(leaf(2)), compact(leaf(2)), compact(leaf(2)) };
    logical_divide_by_mode(compact(ints(4, 8)), n, tiler);
}

REFUSES_CALL(complement_stride, complement(make_layout(leaf(4), leaf(n)), 64), 1, -1,
             "complement: 4:-1 has a negative stride")
REFUSES_CALL(divide_tile,
             logical_divide(compact(leaf(64)),
                            n ? with_swizzle((swizzle){ n, 0, 2 }, compact(leaf(16))) : compact(leaf(16))),
             0, 2, "logical_divide: 64:1, Sw<2,0,2>o16:1 need a static tile without swizzle")
REFUSES_CALL(product_of_static,
             logical_product(compact(leaf(4)),
                             n ? with_swizzle((swizzle){ n, 0, 2 }, compact(leaf(16))) : compact(leaf(16))),
             0, 2, "logical_product: 4:1, Sw<2,0,2>o16:1 need to be static, the second without swizzle")
REFUSES_CALL(tiles_in_shape, tile_to_shape(compact(ints(4, 8)), ints(8, n)), 24, 20,
             "tile_to_shape: (4,8):(1,4) does not divide the shape")
REFUSES_CALL(modes_of_block, tile_to_shape(n == 2 ? compact(ints(4, 8)) : compact(ints(4, 8, 2)), ints(8, 16)), 2, 3,
             "tile_to_shape: (4,8,2):(1,4,32) needs to be static, of no more modes than the shape")
REFUSES_CALL(recast_swizzle, recast_layout(with_swizzle((swizzle){ 2, n, 3 }, compact(leaf(512))), 8, 16), 1, 0,
             "recast_layout: Sw<2,0,3>o512:1 has a swizzle of smaller units than the element")
REFUSES_CALL(recast_from, recast_layout(compact(leaf(64)), n, 8), 1, 0,
             "recast_layout: 64:1 cannot be recast between sizes")
REFUSES_TOO(recast_from, 2, 3, "recast_layout: 64:1 cannot be recast between sizes of which neither divides the other")
REFUSES_CALL(recast_to, recast_layout(compact(leaf(64)), 8, n), 1, 0,
             "recast_layout: 64:1 cannot be recast between sizes")
REFUSES_TOO(recast_to, 16, 12, "recast_layout: 64:1 cannot be recast between sizes of which neither divides the other")

REFUSES(recast_apart, 8, 4, "recast_layout: 16:2 has no contiguous mode to split elements of")
{
    recast_layout(make_layout(leaf(16), leaf(2)), 8, n); // has no elements that could be split
}

REFUSES_CALL(recast_stride, recast_layout(make_layout(ints(4, 8), ints(1, n)), 8, 32), 8, 6,
             "recast_layout: (4,8):(1,6) has a stride that does not match the larger element")
REFUSES_CALL(recast_shape, recast_layout(make_layout(ints(n, 8), ints(1, 64)), 8, 32), 8, 6,
             "recast_layout: (6,8):(1,64) has a mode that the larger element does not divide")

/* Tensors */

static tensor global_matrix(void)
{
    return gmem_tensor(ir_scalar_param(U64, "x"), F32, compact(shape(8, 32)));
}

REFUSES_CALL(identity_modes, identity_tensor(ones(n)), 5, 6, "identity tensor: 6 modes, more than 5")
REFUSES_CALL(coordinate_of, coordinate(identity_tensor(shape(4, 8)), n, 0, 0), 1, 2,
             "coordinate 2 is asked of a tensor that has 2")

REFUSES(register_index, 7, 8, "register 8:1 has nothing at 8")
{
    tensor rX = fragment(F32, compact(leaf(8)));
    fill(rX, immf(0));
    if (n < 0)
        at(rX, thread());
    else
        at(rX, n);
}
REFUSES_TOO(register_index, 0, -1, "register tensor: the coordinate is not a constant inside the tensor")

REFUSES(register_slice, 7, 8, "register (4,8):(1,4) has nothing at (_,8)")
{
    tensor rX = fragment(F32, compact(shape(4, 8)));
    if (n < 0)
        slice(rX, _, thread());
    else
        slice(rX, _, n);
}
REFUSES_TOO(register_slice, 0, -1, "registers cannot be indexed at run time")

REFUSES_CALL(shared_element, set(smem_tensor("x", F32, compact(shape(4, 8)), 16), n, immf(0)), 31, 32,
             "shared (4,8):(1,4) has nothing at 32")
REFUSES_TOO(shared_element, 0, -1, "shared (4,8):(1,4) has nothing at -1")

/* The only tile along a mode has the stride 0: no address would betray another one. */
REFUSES_CALL(shared_tile,
             set(local_tile(smem_tensor("x", F32, compact(shape(4, 8)), 16), shape(4, 2), coord(n, 3)), 0, immf(0)), 0,
             1, "shared ((4,2),(1,4)):((1,4),(0,8)) has nothing at ((_,_),(1,3))")
REFUSES_CALL(fragment_layout, fragment(F32, n ? compact(leaf(8)) : compact(dynamic(thread()))), 1, 0,
             "a fragment of ?:1: the layout of registers must be static")
REFUSES_CALL(at_coordinates,
             tensor_at_coordinates(global_matrix(), identity_tensor(n == 2 ? shape(2, 2) : shape(2, 2, 2))), 2, 3,
             "global (8,32):(1,8) has no elements at coordinates of 3 modes")

REFUSES(copied, 32, 31, ": the layouts must be static and of equal size")
{
    tensor gX = global_matrix(), rX = fragment(F32, compact(shape(8, n)));
    copy(gX, rX, 4);
}

REFUSES(vector_memory, 1, 0, "vectors are of global or shared memory, this tensor is in neither")
{
    val out[4];
    for (int i = 0; i < 4; i++)
        out[i] = ir_reg(CKL_F32);
    vector_at where = { ir_scalar_param(U64, "x"), 0, yes() };
    tensor gX = global_matrix();
    gX.memory = n ? GMEM : CMEM;
    vectors_load(&where, 1, 4, gX, out, 0);
}

REFUSES(atom_of_copy, 1, 0, "SM90_TMA_LOAD: one thread copies whole tiles, by tma_load()")
{
    static const char *const names[] = { "SM90_TMA_LOAD", "UniversalCopy<128>", "UniversalCopy<24>" };
    make_tiled_copy(names[n], F32, compact(leaf(32)), compact(leaf(4)));
}
REFUSES_TOO(atom_of_copy, 1, 2, "there is no copy atom UniversalCopy<24>")

REFUSES(atom_layout, 1, 0, "SM90_TMA_STORE: its layout is that of the box or of the tile")
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

REFUSES_CALL(box_rows, make_tma(map_param(), F16, 2, n, 64, 128), 256, 257,
             "TMA box: 257x64, more than 256 elements along a dimension")
REFUSES_CALL(box_columns, make_tma(map_param(), F16, 2, 8, n, 0), 256, 264,
             "TMA box: 8x264, more than 256 elements along a dimension")
REFUSES_CALL(box_span, make_tma(map_param(), F16, 2, 8, n, 64), 32, 40,
             "TMA box: rows of 80 bytes are longer than the 64-byte swizzle")
REFUSES_CALL(box_swizzle, tma_tile_layout(F16, 8, 8, n), 128, 256, "TMA box: there is no swizzle of 256 bytes")
REFUSES_TOO(box_swizzle, 64, 96, "TMA box: there is no swizzle of 96 bytes")
REFUSES_TOO(box_swizzle, 16, 8, "TMA box: there is no swizzle of 8 bytes")
REFUSES_CALL(box_rank, make_tma(map_param(), F16, n, 8, 64, 128), 5, 6, "TMA box: rank=6 is not in 2..5")
REFUSES_TOO(box_rank, 2, 1, "TMA box: rank=1 is not in 2..5")

REFUSES(box_coordinates, 2, 1, "TMA box: 3 coordinates in a tensor of rank 4")
{
    tma_copy tma = make_tma(map_param(), F16, 4, 8, 64, 128);
    tensor sX = smem_tensor("tile", F16, tma_tile_layout(F16, 8, 64, 128), 1024);
    val outer[] = { imm(0), imm(0), imm(0) };
    tma_store_of(&tma, sX, imm(0), imm(0), n, outer);
}
REFUSES_TOO(box_coordinates, 2, 3, "TMA box: 5 coordinates in a tensor of rank 4")

REFUSES_CALL(im2col_rank, make_tma_im2col(map_param(), F16, n, 8, 64, (int[IR_TENSOR_MAP_RANK_MAX]){ 0 }, 128), 5, 6,
             "TMA im2col: rank=6 is not in 3..5")
REFUSES_TOO(im2col_rank, 3, 2, "TMA im2col: rank=2 is not in 3..5")

REFUSES(im2col_of, 1, 0, "TMA im2col: the copy is one of boxes")
{
    const int steps[] = { 1, 1, 1 };
    const val place[] = { imm(0), imm(0) }, offset = imm_as(IR_U16, 0);
    const val bar = smem_address(smem_alloc("bar", 8, 8));
    tma_copy tma =
        n ? make_tma_im2col(map_param(), F16, 3, 8, 64, steps, 128) : make_tma(map_param(), F16, 3, 8, 64, 128);
    tensor sX = smem_tensor("tile", F16, tma_tile_layout(F16, 8, 64, 128), 1024);
    tma_load_im2col(&tma, sX, imm(0), place, &offset, bar, imm_as(U32, 0));
}

REFUSES(added_type, 1, 0, "tma_add: the tile is of f16, only f32 is added")
{
    const ckl_dtype dtype = n ? F32 : F16;
    const tma_copy tma = make_tma(map_param(), dtype, 2, 8, 32, 128);
    tma_add(&tma, smem_tensor("tile", dtype, tma_tile_layout(dtype, 8, 32, 128), 1024), imm(0), imm(0));
}

/* Reductions */

REFUSES(reduce_threads, 32, 16, "cta_reduce: 16 threads are not whole warps")
{
    reduction sums = reduce_sums(1);
    val x = variable(F32, immf(0));
    cta_reduce(&sums, n, smem_alloc("scratch", 4096, 16), &x);
}
REFUSES_TOO(reduce_threads, 96, 80, "cta_reduce: 80 threads are not whole warps")

REFUSES(reduce_values, 8, 9, "or 9 values are too many")
{
    reduction sums = reduce_sums(n);
    val x[REDUCE_VALUES_MAX + 1];
    for (int i = 0; i < n; i++)
        x[i] = variable(F32, immf(0));
    cta_reduce(&sums, 256, smem_alloc("scratch", 4096, 16), x);
}

REFUSES(allreduce_values, 2, 3, "cluster_allreduce_begin: 3 values are more than 2, or not of 32 bits")
{
    cluster_size(2);
    cluster_allreduce all = make_cluster_allreduce("all", 256, 2, 2);
    reduction sums = reduce_sums(n);
    val x[3];
    for (int i = 0; i < n; i++)
        x[i] = variable(F32, immf(0));
    cluster_allreduce_begin(&all, &sums, x);
}

REFUSES(allreduce_bits, 32, 64, "cluster_allreduce_begin: 1 values are more than 2, or not of 32 bits")
{
    cluster_size(2);
    cluster_allreduce all = make_cluster_allreduce("all", 256, 2, 2);
    reduction sums = reduce_sums(1);
    val x = n == 32 ? variable(F32, immf(0)) : variable(I64, imm64(0));
    cluster_allreduce_begin(&all, &sums, &x);
}

/* The builder */

REFUSES_CALL(value_made, assign(variable(U32, imm(0)), n ? thread() : (val){ 0 }), 1, 0,
             "a value is used that was never made")
REFUSES_CALL(bitcast_bits, bitcast(n == 32 ? F32 : U64, thread()), 32, 64, "bitcast of u32 to u64 changes the width")

REFUSES(nesting, 64, 65, "control flow is nested more than 64 deep")
{
    val p = lt(thread(), imm(1));
    for (int i = 0; i < n; i++)
        ir_if(p);
    for (int i = 0; i < n; i++)
        ir_end_if();
}

/* 0: right; 1 to 3: closed by another end, by none that began, an else of no if. */
REFUSES(ends_of, 0, 1, "end_if without its if")
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
REFUSES_TOO(ends_of, 0, 2, "end_if without its if")
REFUSES_TOO(ends_of, 0, 3, "else without its if")

REFUSES(ends_loop, 1, 0, "end_loop without its loop")
{
    if (n)
        ir_loop();
    ir_end_loop();
}

REFUSES(else_after, 0, 1, "else does not follow an if")
{
    ir_if(lt(thread(), imm(1)));
    ir_end_if();
    if (n)
        variable(I32, imm(0));
    ir_reopen_else();
    ir_end_if();
}

REFUSES(break_in, 1, 0, "break outside a loop")
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

REFUSES(parameters, 96, 97, "is one more than the 96 a kernel may have")
{
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s%s%s", letters[i / 64], letters[i / 8 % 8], letters[i % 8]);
        char *kept = ir_alloc(1, sizeof name);
        ir_scalar_param(I32, memcpy(kept, name, sizeof name));
    }
}

RUN_TESTS(NULL, NULL)
