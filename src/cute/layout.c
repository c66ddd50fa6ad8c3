/* layout.c - layouts: construction, queries, evaluation and slicing. */
#include "cute/layout.h"

#include "cute/layout_core.h"

/* Construction */

layout make_layout(int_tuple shape, int_tuple stride)
{
    layout a = { .shape = shape, .stride = stride };
    if (!congruent(shape, stride))
        return no_layout("make_layout", "needs a stride for each integer of the shape", 1, &a);
    return a;
}

layout no_layout(const char *op, const char *why, int count, const layout *arguments)
{
    layout harmless = { .shape = leaf(1), .stride = leaf(0) };
    if (ir_failed())
        return harmless;
    text named = { 0 };
    for (int i = 0; i < count; i++) {
        text_printf(&named, i ? ", " : " ");
        layout_print(arguments[i], &named);
    }
    ir_fail("%s:%s %s", op, ir_text(&named), why);
    return harmless;
}

/* The strides of a shape whose first integer is `*next` apart; *next moves on to the stride of what follows. */
static int_tuple strides_left(int_tuple shape, val *next)
{
    if (is_leaf(shape)) {
        int_tuple stride = dynamic(*next);
        *next = int_mul(*next, shape->leaf);
        return stride;
    }
    int_tuple modes[INT_TUPLE_RANK_MAX];
    for (int i = 0; i < shape->rank; i++)
        modes[i] = strides_left(shape->modes[i], next);
    return tuple_of(shape->rank, modes);
}

static int_tuple strides_right(int_tuple shape, val *next)
{
    if (is_leaf(shape))
        return strides_left(shape, next);
    int_tuple modes[INT_TUPLE_RANK_MAX];
    for (int i = shape->rank - 1; i >= 0; i--)
        modes[i] = strides_right(shape->modes[i], next);
    return tuple_of(shape->rank, modes);
}

layout compact(int_tuple shape)
{
    val next = ir_int(CKL_I64, 1);
    return make_layout(shape, strides_left(shape, &next));
}

layout compact_right(int_tuple shape)
{
    val next = ir_int(CKL_I64, 1);
    return make_layout(shape, strides_right(shape, &next));
}

layout layouts_of(int count, const layout *modes)
{
    int_tuple shapes[LAYOUT_MODES_MAX], strides[LAYOUT_MODES_MAX];
    swizzle sw = { 0 };
    if (count > LAYOUT_MODES_MAX) {
        ir_fail("a layout of %d modes: at most %d are supported", count, LAYOUT_MODES_MAX);
        count = LAYOUT_MODES_MAX;
    }
    for (int i = 0; i < count; i++) {
        shapes[i] = modes[i].shape;
        strides[i] = modes[i].stride;
        if (has_swizzle(modes[i]))
            sw = modes[i].sw;
    }
    return (layout){ tuple_of(count, shapes), tuple_of(count, strides), sw };
}

layout layout_mode(layout a, int i)
{
    return (layout){ tuple_mode(a.shape, i), tuple_mode(a.stride, i), a.sw };
}

layout layout_modes(layout a, int begin, int end)
{
    return (layout){ take_modes(a.shape, begin, end), take_modes(a.stride, begin, end), a.sw };
}

layout with_swizzle(swizzle sw, layout a)
{
    int shift = sw.shift < 0 ? -sw.shift : sw.shift;
    if (sw.bits < 0 || sw.base < 0 || sw.bits > shift || sw.base + sw.bits + shift > 62)
        ir_fail("Sw<%d,%d,%d>: needs 0 <= B <= |S|, 0 <= M and B+M+|S| <= 62", sw.bits, sw.base, sw.shift);
    else if (has_swizzle(a) && sw.bits)
        return no_layout("composition", "has a swizzle already", 1, &a);
    else if (sw.bits)
        a.sw = sw;
    return a;
}

layout without_swizzle(layout a)
{
    a.sw = (swizzle){ 0 };
    return a;
}

static int_tuple group(int_tuple t, int begin, int end)
{
    int_tuple modes[INT_TUPLE_RANK_MAX];
    int count = 0;
    for (int i = 0; i < tuple_rank(t); i = i == begin ? end : i + 1)
        modes[count++] = i == begin ? take_modes(t, begin, end) : tuple_mode(t, i);
    return tuple_of(count, modes);
}

layout group_modes(layout a, int begin, int end)
{
    if (begin < 0 || begin >= end || end > rank(a))
        return no_layout("group_modes", "does not have the modes to group", 1, &a);
    return (layout){ group(a.shape, begin, end), group(a.stride, begin, end), a.sw };
}

layout flatten(layout a)
{
    if (is_leaf(a.shape))
        return a;
    return (layout){ flatten_tuple(a.shape), flatten_tuple(a.stride), a.sw };
}

/* Queries */

int rank(layout a)
{
    return tuple_rank(a.shape);
}

int depth(layout a)
{
    return tuple_depth(a.shape);
}

val size(layout a)
{
    return tuple_product(a.shape);
}

int64_t static_size(layout a)
{
    if (!is_static(a.shape)) {
        no_layout("size", "is not static", 1, &a);
        return 1;
    }
    return tuple_product(a.shape).i;
}

int64_t cosize(layout a)
{
    if (!layout_is_static(a)) {
        no_layout("cosize", "is not static", 1, &a);
        return 1;
    }
    flat_layout f = flat_of(a);
    val last = ir_int(CKL_I64, 0);
    for (int i = 0; i < f.count; i++)
        if (f.stride[i].i > 0)
            last = int_add(last, int_mul(int_add(f.shape[i], ir_int(CKL_I64, -1)), f.stride[i]));
    return int_add(last, ir_int(CKL_I64, 1)).i;
}

bool layout_is_static(layout a)
{
    return is_static(a.shape) && is_static(a.stride);
}

bool has_swizzle(layout a)
{
    return a.sw.bits != 0;
}

/* Evaluation */

/* The index of a linear coordinate. Past the end, the last mode goes on. */
static val linear_offset(val i, const flat_layout *f)
{
    val offset = ir_int(CKL_I64, 0);
    for (int mode = 0; mode < f->count; mode++) {
        bool last = mode == f->count - 1;
        val digit = last || ir_is_int(f->stride[mode], 0) ? i : int_mod(i, f->shape[mode]);
        offset = int_add(offset, int_mul(digit, f->stride[mode]));
        i = last ? i : int_div(i, f->shape[mode]);
    }
    return offset;
}

static val coordinate_offset(int_tuple coord, layout a)
{
    if (coord == WILDCARD)
        return ir_int(CKL_I64, 0);
    if (is_leaf(coord) && is_leaf(a.shape))
        return int_mul(coord->leaf, a.stride->leaf);
    if (is_leaf(coord)) {
        flat_layout f = flat_coalesced(a);
        return linear_offset(coord->leaf, &f);
    }
    val offset = ir_int(CKL_I64, 0);
    if (tuple_rank(coord) != rank(a)) {
        ir_fail("crd2idx: %s is no coordinate of %s", tuple_text(coord), layout_text(a));
        return offset;
    }
    for (int i = 0; i < coord->rank; i++)
        offset = int_add(offset, coordinate_offset(coord->modes[i], layout_mode(a, i)));
    return offset;
}

val crd2idx(int_tuple coord, layout a)
{
    return swizzle_apply(a.sw, coordinate_offset(coord, a));
}

int64_t static_crd2idx(int_tuple coord, layout a)
{
    if (!layout_is_static(a) || !is_static(coord)) {
        no_layout("crd2idx", "or the coordinate is not static", 1, &a);
        return 0;
    }
    return crd2idx(coord, a).i;
}

int64_t index_at(layout a, int64_t i)
{
    if (!layout_is_static(a)) {
        no_layout("index_at", "is not static", 1, &a);
        return 0;
    }
    flat_layout f = flat_of(a);
    return swizzle_apply(a.sw, linear_offset(ir_int(CKL_I64, i), &f)).i;
}

static int_tuple coordinate_of(val i, int_tuple shape)
{
    if (is_leaf(shape))
        return dynamic(i);
    int_tuple modes[INT_TUPLE_RANK_MAX];
    for (int mode = 0; mode < shape->rank; mode++) {
        bool last = mode == shape->rank - 1;
        val extent = last ? i : tuple_product(shape->modes[mode]);
        modes[mode] = coordinate_of(last ? i : int_mod(i, extent), shape->modes[mode]);
        i = last ? i : int_div(i, extent);
    }
    return tuple_of(shape->rank, modes);
}

int_tuple idx2crd(val i, layout a)
{
    return coordinate_of(i, a.shape);
}

static uint64_t static_swizzle(swizzle sw, uint64_t index)
{
    uint64_t mask = ((UINT64_C(1) << sw.bits) - 1) << sw.base;
    return sw.shift >= 0 ? index ^ ((index >> sw.shift) & mask) : index ^ ((index & mask) << -sw.shift);
}

int64_t swizzle_period(swizzle sw)
{
    return INT64_C(1) << (sw.base + sw.bits + (sw.shift < 0 ? -sw.shift : sw.shift));
}

val swizzle_apply(swizzle sw, val index)
{
    if (!sw.bits)
        return index;
    if (ir_is_constant(index))
        return ir_int(CKL_I64, (int64_t)static_swizzle(sw, (uint64_t)index.i));
    val mask = ir_int(CKL_I64, ((INT64_C(1) << sw.bits) - 1) << sw.base);
    val shift = ir_u32(sw.shift < 0 ? -sw.shift : sw.shift);
    val moved = sw.shift >= 0 ? ir_binary(IR_AND, ir_binary(IR_SHR, index, shift), mask)
                              : ir_binary(IR_SHL, ir_binary(IR_AND, index, mask), shift);
    return ir_binary(IR_XOR, index, moved);
}

/* Slicing */

static void collect_kept(int_tuple coord, layout a, int *count, layout *kept)
{
    if (coord == WILDCARD && *count < LAYOUT_MODES_MAX)
        kept[(*count)++] = a;
    if (is_leaf(coord))
        return;
    if (tuple_rank(coord) != rank(a)) {
        no_layout("slice", "has another number of modes than the coordinate", 1, &a);
        return;
    }
    for (int i = 0; i < coord->rank; i++)
        collect_kept(coord->modes[i], layout_mode(a, i), count, kept);
}

layout slice_layout(int_tuple coord, layout a)
{
    layout kept[LAYOUT_MODES_MAX];
    int count = 0;
    if (coord == WILDCARD)
        return a;
    collect_kept(coord, a, &count, kept);
    return count ? layouts_of(count, kept) : (layout){ leaf(1), leaf(0), a.sw };
}

val slice_offset(int_tuple coord, layout a)
{
    return coordinate_offset(coord, a);
}
