/* tensor.c - views of memory, registers and coordinates, element access, loops. */
#include "cute/tensor.h"

#include "cute/vectors.h"

ir_space tensor_space(tensor t)
{
    return t.memory == GMEM ? IR_GLOBAL : IR_SHARED;
}

/* A coordinate of one mode alone is that mode. */
static int_tuple unwrapped(int_tuple coordinate)
{
    return coordinate->rank == 1 ? coordinate->modes[0] : coordinate;
}

/* Construction */

tensor gmem_tensor(val address, ckl_dtype dtype, layout a)
{
    return (tensor){ .memory = GMEM, .dtype = dtype, .address = address, .layout = a };
}

tensor gmem_vector(val address, ckl_dtype dtype, val count)
{
    return gmem_tensor(address, dtype, make_layout(dynamic(count), leaf(1)));
}

val gmem_address(val address, ckl_dtype dtype, val elements)
{
    val bytes = ir_binary(IR_MUL, elements, cute_imm((int64_t)ckl_dtype_bytes(dtype)));
    return ir_binary(IR_ADD, address, ir_convert(IR_U64, bytes));
}

tensor smem_view(val address, ckl_dtype dtype, layout a)
{
    return (tensor){ .memory = SMEM, .dtype = dtype, .address = address, .layout = a };
}

tensor smem_tensor(const char *name, ckl_dtype dtype, layout a, int64_t align)
{
    int64_t bytes = cosize(a) * ir_memory_bytes(dtype);
    return smem_view(ir_smem_address(ir_smem_alloc(name, bytes, align)), dtype, a);
}

/* Registers have numbers, not addresses: their layout must be known while the kernel is described. */
static void check_static(layout a)
{
    if (layout_is_static(a))
        return;
    ir_fail("a fragment of %s: the layout of registers must be static", layout_text(a));
}

tensor fragment(ckl_dtype dtype, layout a)
{
    check_static(a);
    int64_t count = cosize(a);
    val *regs = ir_alloc((size_t)count, sizeof *regs);
    for (int64_t i = 0; i < count; i++)
        regs[i] = ir_reg(element_register(dtype));
    return (tensor){ .memory = RMEM, .dtype = dtype, .regs = regs, .layout = a };
}

tensor fragment_like(tensor t, ckl_dtype dtype)
{
    return fragment(dtype, compact(t.layout.shape));
}

tensor identity_tensor(int_tuple shape)
{
    int modes = tuple_rank(shape), bits = COORDINATE_BITS / modes;
    layout each[IDENTITY_MODES_MAX];
    val *first = ir_alloc(IDENTITY_MODES_MAX, sizeof *first);
    if (modes > IDENTITY_MODES_MAX) {
        ir_fail("identity tensor: %d modes, more than %d", modes, IDENTITY_MODES_MAX);
        modes = IDENTITY_MODES_MAX;
    }
    for (int i = 0; i < modes; i++) {
        first[i] = ir_u32(0);
        each[i] = make_layout(dynamic(tuple_product(tuple_mode(shape, i))), leaf(INT64_C(1) << bits * i));
    }
    return (tensor){ .memory = CMEM, .first = first, .modes = modes, .layout = layouts_of(modes, each) };
}

tensor with_cache(tensor gT, ir_cache cache)
{
    gT.cache = cache;
    return gT;
}

tensor tensor_with_layout(tensor t, layout a)
{
    t.layout = a;
    return t;
}

/* Views */

/* Are the strides of all modes that the coordinate fixes multiples of `unit`? */
static bool fixed_strides_divide(int_tuple coordinate, int_tuple strides, int64_t unit)
{
    if (coordinate == WILDCARD)
        return true;
    if (is_leaf(strides))
        return is_static(strides) && static_leaf(strides) % unit == 0;
    for (int i = 0; i < tuple_rank(strides); i++)
        if (!fixed_strides_divide(is_leaf(coordinate) ? coordinate : tuple_mode(coordinate, i), tuple_mode(strides, i),
                                  unit))
            return false;
    return true;
}

/* The bits of a coordinate in the strides of an identity tensor. */
static int64_t coordinate_bits(tensor cT, int mode, int64_t index)
{
    int bits = COORDINATE_BITS / cT.modes;
    return index >> bits * mode & ((INT64_C(1) << bits) - 1);
}

static int_tuple coordinate_strides(tensor cT, int mode, int_tuple strides)
{
    if (is_leaf(strides))
        return leaf(coordinate_bits(cT, mode, static_leaf(strides)));
    int_tuple modes[INT_TUPLE_RANK_MAX];
    for (int i = 0; i < tuple_rank(strides); i++)
        modes[i] = coordinate_strides(cT, mode, tuple_mode(strides, i));
    return tuple_of(tuple_rank(strides), modes);
}

layout coordinate_distances(tensor cT, int mode)
{
    return make_layout(cT.layout.shape, coordinate_strides(cT, mode, cT.layout.stride));
}

static tensor coordinates_moved(tensor cT, int_tuple coordinate)
{
    val *first = ir_alloc(IDENTITY_MODES_MAX, sizeof *first);
    for (int i = 0; i < cT.modes; i++)
        first[i] = int_add(cT.first[i], slice_offset(coordinate, coordinate_distances(cT, i)));
    cT.first = first;
    return cT;
}

tensor coordinates_from(tensor cT, int mode, val start)
{
    val *first = ir_alloc(IDENTITY_MODES_MAX, sizeof *first);
    for (int i = 0; i < cT.modes; i++)
        first[i] = i == mode ? int_add(cT.first[i], start) : cT.first[i];
    cT.first = first;
    return cT;
}

val tensor_coordinate(tensor cT, int_tuple coordinate, int mode)
{
    if (cT.memory != CMEM || mode >= cT.modes) {
        ir_fail("coordinate %d is asked of a tensor that has %d", mode, cT.modes);
        return ir_u32(0);
    }
    return int_add(cT.first[mode], crd2idx(unwrapped(coordinate), coordinate_distances(cT, mode)));
}

/* What one step of the index adds to a tensor's address: the bytes of an element; DMEM has its own unit. */
static int64_t address_unit(tensor t)
{
    return t.memory == DMEM ? 1 : ir_memory_bytes(t.dtype);
}

/* Moves element 0 by `index` elements. */
static tensor displaced(tensor t, val index)
{
    if (t.memory == RMEM) {
        if (!ir_is_constant(index))
            ir_fail("registers cannot be indexed at run time");
        else
            t.regs += index.i;
        return t;
    }
    ir_type type = t.memory == SMEM ? IR_U32 : IR_U64;
    t.address = ir_binary(IR_ADD, t.address, ir_binary(IR_MUL, ir_convert(type, index), ir_int(type, address_unit(t))));
    return t;
}

/* The same inside a swizzled tensor, where addresses follow only after the swizzle. */
static tensor displaced_origin(tensor t, val index)
{
    index = ir_convert(IR_U32, index);
    t.origin = t.origin.type == CKL_DTYPE_DEFAULT ? index : ir_binary(IR_ADD, t.origin, index);
    return t;
}

/* What is computed when the kernel runs may be any. */
static bool lies_within(int_tuple coordinate, int_tuple shape)
{
    if (coordinate == WILDCARD)
        return true;
    if (is_leaf(coordinate)) {
        const val at = coordinate->leaf;
        return !ir_is_constant(at) || !is_static(shape) || (at.i >= 0 && at.i < tuple_product(shape).i);
    }
    for (int i = 0; i < coordinate->rank && i < tuple_rank(shape); i++)
        if (!lies_within(coordinate->modes[i], tuple_mode(shape, i)))
            return false;
    return true;
}

static bool has_coordinate(tensor t, int_tuple coordinate)
{
    if (lies_within(coordinate, t.layout.shape))
        return true;
    ir_fail("%s has nothing at %s", tensor_text(t), tuple_text(coordinate));
    return false;
}

tensor tensor_slice(tensor t, int_tuple coordinate)
{
    if (!has_coordinate(t, coordinate))
        return t;
    if (t.memory == CMEM) {
        t = coordinates_moved(t, coordinate);
        return tensor_with_layout(t, slice_layout(coordinate, t.layout));
    }
    swizzle sw = t.layout.sw;
    int64_t atom = sw.bits ? (int64_t)1 << (sw.bits + sw.base + sw.shift) : 1; // elements that the swizzle permutes
    val offset = slice_offset(coordinate, t.layout);
    bool atoms_stay = !sw.bits || fixed_strides_divide(coordinate, t.layout.stride, atom);
    tensor sliced = atoms_stay ? displaced(t, offset) : displaced_origin(t, offset);
    sliced.layout = slice_layout(coordinate, t.layout);
    sliced.layout.sw = sw;
    return sliced;
}

/* The strides of what a tensor has at those coordinates. */
static int_tuple strides_at(tensor t, tensor cT, int_tuple strides)
{
    if (is_leaf(strides)) {
        val sum = ir_int(CKL_I64, 0);
        for (int i = 0; i < cT.modes; i++) {
            val steps = ir_int(CKL_I64, coordinate_bits(cT, i, static_leaf(strides)));
            sum = int_add(sum, int_mul(steps, tuple_mode(t.layout.stride, i)->leaf));
        }
        return dynamic(sum);
    }
    int_tuple modes[INT_TUPLE_RANK_MAX];
    for (int i = 0; i < tuple_rank(strides); i++)
        modes[i] = strides_at(t, cT, tuple_mode(strides, i));
    return tuple_of(tuple_rank(strides), modes);
}

tensor tensor_at_coordinates(tensor t, tensor cT)
{
    val index = ir_int(CKL_I64, 0);
    if (rank(t.layout) != cT.modes || has_swizzle(t.layout) || tuple_depth(t.layout.shape) > 1) {
        ir_fail("%s has no elements at coordinates of %d modes", tensor_text(t), cT.modes);
        return t;
    }
    for (int i = 0; i < cT.modes; i++)
        index = int_add(index, int_mul(cT.first[i], tuple_mode(t.layout.stride, i)->leaf));
    t = displaced(t, index);
    return tensor_with_layout(t, make_layout(cT.layout.shape, strides_at(t, cT, cT.layout.stride)));
}

tensor tensor_local_tile(tensor t, int_tuple tiler, int_tuple coordinate)
{
    int modes = tuple_rank(tiler);
    layout tiles[LAYOUT_MODES_MAX];
    for (int i = 0; i < modes; i++)
        tiles[i] = compact(tuple_mode(tiler, i));
    layout divided = zipped_divide_by_mode(t.layout, modes, tiles); // ((TILE...),(REST...))
    int_tuple all[LAYOUT_MODES_MAX];
    for (int i = 0; i < modes; i++)
        all[i] = WILDCARD;
    tensor tile = tensor_slice(tensor_with_layout(t, divided), tuple(tuple_of(modes, all), coordinate));
    if (rank(tile.layout) == 1) // CuTe's local_tile drops the grouping of the tile modes
        tile.layout = layout_mode(tile.layout, 0);
    return tile;
}

val tensor_thread_at(val i, int_tuple shape, int mode)
{
    int64_t before = 1;
    for (int m = 0; m < mode; m++)
        before *= static_leaf(tuple_mode(shape, m));
    if (mode > 0)
        i = ir_binary(IR_DIV, i, cute_imm(before));
    return mode == shape->rank - 1 ? i : ir_binary(IR_REM, i, cute_imm(static_leaf(tuple_mode(shape, mode))));
}

tensor tensor_local_partition(tensor t, layout threads, val tid)
{
    layout tiler[LAYOUT_MODES_MAX], grouped[2];
    int modes = rank(threads);
    for (int i = 0; i < modes; i++)
        tiler[i] = compact(leaf(static_size(layout_mode(threads, i))));
    layout divided = zipped_divide_by_mode(without_swizzle(t.layout), modes, tiler); // ((THREADS...),(REST...))
    grouped[0] = composition(layout_mode(divided, 0), right_inverse(threads));
    grouped[1] = layout_mode(divided, 1);
    divided = layouts_of(2, grouped); // (THREADS,(REST...))
    divided.sw = t.layout.sw;
    tensor mine = tensor_slice(tensor_with_layout(t, divided), coord(tid, WILDCARD));
    layout rest = layout_mode(mine.layout, 0);
    rest.sw = t.layout.sw;
    return tensor_with_layout(mine, rest);
}

/* Single elements */

/* Index before the swizzle. */
static val element_index(tensor t, int_tuple coordinate)
{
    int_tuple at = unwrapped(coordinate);
    return has_coordinate(t, at) ? crd2idx(at, without_swizzle(t.layout)) : ir_int(CKL_I64, 0);
}

/* The address of the element at an index before the swizzle; a static distance goes to *offset (bytes). */
static val address_at(tensor t, val index, int64_t *offset)
{
    *offset = 0;
    if (t.layout.sw.bits) {
        const int64_t far = ir_is_constant(index) ? index.i - index.i % swizzle_period(t.layout.sw) : 0;
        val origin = displaced_origin(t, int_add(index, ir_int(CKL_I64, -far))).origin;
        *offset = far * address_unit(t);
        return displaced(t, swizzle_apply(t.layout.sw, origin)).address;
    }
    if (!ir_is_constant(index))
        return displaced(t, index).address;
    *offset = index.i * address_unit(t);
    return t.address;
}

val tensor_address_near(tensor t, int64_t i, int64_t *offset)
{
    return address_at(t, ir_int(CKL_I64, index_at(without_swizzle(t.layout), i)), offset);
}

val tensor_address(tensor t, int_tuple coordinate)
{
    int64_t offset;
    val address = address_at(t, element_index(t, coordinate), &offset);
    return ir_binary(IR_ADD, address, ir_int(address.type, offset));
}

/* The register of an element. */
static val register_at(tensor rT, int_tuple coordinate)
{
    val index = element_index(rT, coordinate);
    if (ir_is_constant(index) && index.i >= 0 && index.i < cosize(rT.layout))
        return rT.regs[index.i];
    if (!ir_failed())
        ir_fail("register tensor: the coordinate is not a constant inside the tensor");
    return ir_int(element_register(rT.dtype), 0);
}

val tensor_at(tensor t, int_tuple coordinate)
{
    if (t.memory == RMEM)
        return register_at(t, coordinate);
    if (t.memory == CMEM)
        return tensor_coordinate(t, coordinate, 0);
    val out = ir_reg(element_register(t.dtype));
    ir_load(tensor_space(t), t.cache, t.dtype, 1, tensor_address(t, coordinate), 0, &out);
    return out;
}

void tensor_set(tensor t, int_tuple coordinate, val x)
{
    if (t.memory == RMEM) {
        val reg = register_at(t, coordinate);
        if (!ir_is_constant(reg))
            ir_assign(reg, x);
        return;
    }
    val value = element_value(t.dtype, x);
    ir_store(tensor_space(t), t.cache, t.dtype, 1, tensor_address(t, coordinate), 0, &value);
}

void tensor_fill(tensor rT, val x)
{
    int64_t count = static_size(rT.layout);
    for (int64_t i = 0; i < count; i++)
        ir_assign(rT.regs[index_at(rT.layout, i)], x);
}

const char *tensor_text(tensor t)
{
    static const char *const names[] = {
        [GMEM] = "global", [SMEM] = "shared", [RMEM] = "register", [CMEM] = "coordinate", [DMEM] = "descriptor"
    };
    text named = { 0 };
    text_printf(&named, "%s ", names[t.memory]);
    layout_print(t.layout, &named);
    return ir_text(&named);
}
