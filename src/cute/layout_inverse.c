/* layout_inverse.c - inverses, the common vector of two layouts, and recasting to another element size. */
#include "cute/layout_core.h"

/* Inverses */

/* A mode of a layout with the linear coordinate distance of its steps. */
typedef struct placed_mode {
    int64_t shape, stride, distance;
} placed_mode;

/* The static modes before the first dynamic extent, in increasing order of stride. */
static int sort_placed(const flat_layout *f, placed_mode *sorted)
{
    int count = 0;
    val distance = ir_int(CKL_I64, 1);
    for (int i = 0; i < f->count && ir_is_constant(f->shape[i]); i++) {
        placed_mode mode = { f->shape[i].i, f->stride[i].i, distance.i };
        distance = int_mul(distance, f->shape[i]);
        if (mode.shape == 1 || !ir_is_constant(f->stride[i]))
            continue;
        int at = count++;
        for (; at > 0 && sorted[at - 1].stride > mode.stride; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = mode;
    }
    return count;
}

layout right_inverse(layout a)
{
    if (has_swizzle(a))
        return no_layout("right_inverse", "has a swizzle", 1, &a);
    flat_layout f = flat_of(a), inverse = { 0 };
    placed_mode sorted[LAYOUT_MODES_MAX];
    int count = sort_placed(&f, sorted);
    int64_t reached = 1;
    for (int i = 0; i < count && sorted[i].stride <= reached; i++) {
        if (sorted[i].stride < reached)
            continue;
        flat_add(&inverse, ir_int(CKL_I64, sorted[i].shape), ir_int(CKL_I64, sorted[i].distance));
        reached = int_mul(ir_int(CKL_I64, reached), ir_int(CKL_I64, sorted[i].shape)).i;
    }
    return coalesce(flat_unwrap(&inverse));
}

/* Gives the gaps that a leaves coordinates after a's own, so that the result has a right inverse everywhere. */
layout left_inverse(layout a)
{
    if (!layout_is_static(a) || has_swizzle(a))
        return no_layout("left_inverse", has_swizzle(a) ? "has a swizzle" : "is not static", 1, &a);
    layout completed = layouts_of(2, (layout[]){ a, complement(a, 1) });
    layout inverse = right_inverse(completed);
    if (static_size(inverse) != static_size(completed))
        return no_layout("left_inverse", "has none: it is not injective or its strides do not divide", 1, &a);
    return inverse;
}

/* Vectors */

/* The leading mode of stride 1 of what a makes of inverse; 0: there is none. */
static int64_t common_run(layout a, layout inverse)
{
    layout common;
    if (compose(a, inverse, &common) != NULL)
        return 0;
    flat_layout f = flat_coalesced(common);
    return ir_is_constant(f.shape[0]) && ir_is_int(f.stride[0], 1) ? f.shape[0].i : 0;
}

/* A swizzle keeps runs of 2^base indices together. */
static int64_t unbroken(layout a, int64_t run)
{
    return has_swizzle(a) ? min_i64(run, INT64_C(1) << a.sw.base) : run;
}

layout max_common_layout(layout a, layout b)
{
    layout inverse = right_inverse(without_swizzle(b)), vector;
    int64_t run = unbroken(b, unbroken(a, common_run(without_swizzle(a), inverse)));
    const int64_t most = layout_is_static(a) ? static_size(a) : INT64_MAX; // b may have more
    run = min_i64(run, most);
    if (run < 2 || compose(inverse, compact(leaf(run)), &vector) != NULL || cosize(vector) > most)
        return make_layout(leaf(1), leaf(0));
    return vector;
}

/* Recasting */

/* Elements n times as large: a mode of small steps shrinks, strides shorten. */
static const char *upcast_mode(val shape, val stride, int64_t n, flat_layout *out)
{
    val factor = ir_int(CKL_I64, n);
    if (ir_is_int(stride, 0) || !ir_is_constant(stride)) {
        flat_add(out, shape, ir_is_constant(stride) ? stride : int_div(stride, factor));
        return NULL;
    }
    int64_t step = stride.i < 0 ? -stride.i : stride.i;
    if (step % n != 0 && n % step != 0)
        return "has a stride that does not match the larger element";
    int64_t together = ceil_div(n, step);
    if (ir_is_constant(shape) && shape.i != 1 && shape.i % together != 0)
        return "has a mode that the larger element does not divide";
    flat_add(out, int_ceil_div(shape, ir_int(CKL_I64, together)), ir_int(CKL_I64, stride.i / step * ceil_div(step, n)));
    return NULL;
}

/* Elements 1/n as large: the contiguous modes grow, other strides lengthen. */
static const char *downcast_mode(val shape, val stride, int64_t n, flat_layout *out)
{
    val factor = ir_int(CKL_I64, n);
    bool contiguous = ir_is_int(stride, 1) || ir_is_int(stride, -1);
    flat_add(out, contiguous ? int_mul(shape, factor) : shape, contiguous ? stride : int_mul(stride, factor));
    return NULL;
}

typedef const char *recast_mode(val shape, val stride, int64_t n, flat_layout *out);

static layout recast_modes(layout a, recast_mode *recast, int64_t n, int base_change)
{
    flat_layout from = flat_of(a), to = { 0 };
    for (int i = 0; i < from.count; i++) {
        const char *why = recast(from.shape[i], from.stride[i], n, &to);
        if (why)
            return no_layout("recast_layout", why, 1, &a);
    }
    layout flat = flat_unwrap(&to), out = a;
    int_tuple shapes = is_leaf(flat.shape) ? tuple(flat.shape) : flat.shape;
    int_tuple strides = is_leaf(flat.stride) ? tuple(flat.stride) : flat.stride;
    out.shape = unflatten_tuple(shapes, a.shape);
    out.stride = unflatten_tuple(strides, a.stride);
    out.sw.base += base_change;
    if (has_swizzle(out) && (out.sw.base < 0 || !is_power_of_two(n)))
        return no_layout("recast_layout", "has a swizzle of smaller units than the element", 1, &a);
    return out;
}

static bool has_contiguous_mode(layout a)
{
    flat_layout f = flat_of(a);
    for (int i = 0; i < f.count; i++)
        if (ir_is_int(f.stride[i], 1) || ir_is_int(f.stride[i], -1))
            return true;
    return false;
}

layout recast_layout(layout a, int old_bits, int new_bits)
{
    if (old_bits < 1 || new_bits < 1 || (old_bits % new_bits != 0 && new_bits % old_bits != 0))
        return no_layout("recast_layout", "cannot be recast between sizes of which neither divides the other", 1, &a);
    if (new_bits >= old_bits)
        return recast_modes(a, upcast_mode, new_bits / old_bits, -log2_i64(new_bits / old_bits));
    if (!has_contiguous_mode(a))
        return no_layout("recast_layout", "has no contiguous mode to split elements of", 1, &a);
    return recast_modes(a, downcast_mode, old_bits / new_bits, log2_i64(old_bits / new_bits));
}
