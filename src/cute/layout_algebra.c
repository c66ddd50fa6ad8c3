/* layout_algebra.c - coalesce, composition and complement: what the rest of the algebra is made of. */
#include "cute/layout_core.h"

static val one(void)
{
    return ir_int(CKL_I64, 1);
}

/* Flat layouts */

static void add_leaves(int_tuple shape, int_tuple stride, flat_layout *f)
{
    if (is_leaf(shape))
        flat_add(f, shape->leaf, stride->leaf);
    for (int i = 0; i < shape->rank; i++)
        add_leaves(shape->modes[i], stride->modes[i], f);
}

flat_layout flat_of(layout a)
{
    flat_layout f = { 0 };
    add_leaves(a.shape, a.stride, &f);
    return f;
}

void flat_add(flat_layout *f, val shape, val stride)
{
    if (f->count == LAYOUT_MODES_MAX) {
        ir_fail("a layout of more than %d integers", LAYOUT_MODES_MAX);
        return;
    }
    f->shape[f->count] = shape;
    f->stride[f->count++] = stride;
}

layout flat_unwrap(const flat_layout *f)
{
    if (!f->count)
        return make_layout(leaf(1), leaf(0));
    int_tuple shapes[LAYOUT_MODES_MAX], strides[LAYOUT_MODES_MAX];
    for (int i = 0; i < f->count; i++) {
        shapes[i] = dynamic(f->shape[i]);
        strides[i] = dynamic(f->stride[i]);
    }
    if (f->count == 1)
        return make_layout(shapes[0], strides[0]);
    return make_layout(tuple_of(f->count, shapes), tuple_of(f->count, strides));
}

/* Coalesce */

/* Whether a mode of this stride continues the last one of f, for certain and without computing anything at run time. */
static bool continues(const flat_layout *f, val stride)
{
    val last = f->shape[f->count - 1], step = f->stride[f->count - 1];
    if (ir_is_int(step, 1))
        return int_same(last, stride);
    return ir_is_constant(last) && ir_is_constant(step) && ir_is_constant(stride) && int_mul(last, step).i == stride.i;
}

flat_layout flat_coalesced(layout a)
{
    flat_layout from = flat_of(a), to = { 0 };
    for (int i = 0; i < from.count; i++) {
        if (ir_is_int(from.shape[i], 1))
            continue;
        if (to.count && continues(&to, from.stride[i]))
            to.shape[to.count - 1] = int_mul(to.shape[to.count - 1], from.shape[i]);
        else
            flat_add(&to, from.shape[i], from.stride[i]);
    }
    if (!to.count)
        flat_add(&to, one(), ir_int(CKL_I64, 0));
    return to;
}

layout coalesce(layout a)
{
    flat_layout f = flat_coalesced(a);
    layout simple = flat_unwrap(&f);
    simple.sw = a.sw;
    return simple;
}

/* Composition */

static const char STEP[] = "do not compose: a stride of the right one does not divide a mode of the left one";
static const char EXTENT[] = "do not compose: a mode of the right one does not fill modes of the left one evenly";
static const char CARRY[] = "do not compose: modes of the right one add up past a mode of the left one";
static const char NEGATIVE[] = "do not compose: the right one has a negative stride";
static const char DYNAMIC[] = "do not compose: it takes a mode that is not static";

/* The left layout, and how far all modes of the right one together reach in each of its modes. */
typedef struct left_layout {
    flat_layout modes;
    int64_t reached[LAYOUT_MODES_MAX];
} left_layout;

/* `shape` steps of `stride` within a mode of a. The sum over all modes of b must stay inside, or it would carry. */
static const char *add_steps(left_layout *a, int mode, val shape, val stride, flat_layout *out)
{
    flat_add(out, shape, int_mul(stride, a->modes.stride[mode]));
    if (mode == a->modes.count - 1 || ir_is_int(shape, 1)) // the last mode goes on past the end
        return NULL;
    int64_t room = a->modes.shape[mode].i - 1 - a->reached[mode], steps = shape.i - 1;
    if (stride.i > room / steps)
        return CARRY;
    a->reached[mode] += steps * stride.i;
    return NULL;
}

/*
 * One integer of b through the modes of a: each mode of a that b's steps reach gives a mode of the result, until b's
 * extent is used up. `stride` is b's step in units of the current mode of a.
 */
static const char *compose_mode(left_layout *a, val shape, val stride, flat_layout *out)
{
    const char *why = NULL;
    int mode = 0;
    for (; mode < a->modes.count - 1 && !ir_is_int(shape, 1) && !why; mode++) {
        val extent = a->modes.shape[mode];
        if (!ir_is_constant(shape) || !ir_is_constant(stride) || !ir_is_constant(extent))
            return DYNAMIC;
        if (stride.i % extent.i == 0) {
            stride.i /= extent.i;
            continue;
        }
        if (shape.i - 1 <= (extent.i - 1) / stride.i) // it ends within this mode
            break;
        int64_t taken = extent.i / stride.i;
        if (extent.i % stride.i != 0)
            return STEP;
        if (shape.i % taken != 0)
            return EXTENT;
        why = add_steps(a, mode, ir_int(CKL_I64, taken), stride, out);
        shape.i /= taken;
        stride.i = 1;
    }
    if (!why && (!out->count || !ir_is_int(shape, 1)))
        why = add_steps(a, mode, shape, stride, out);
    return why;
}

static const char *compose_leaf(left_layout *a, val shape, val stride, layout *out)
{
    const char *why = NULL;
    flat_layout modes = { 0 };
    if (ir_is_constant(stride) && stride.i < 0)
        why = NEGATIVE;
    else if (ir_is_int(stride, 0))
        flat_add(&modes, shape, stride);
    else
        why = compose_mode(a, shape, stride, &modes);
    *out = flat_unwrap(&modes);
    return why;
}

static const char *compose_shape(left_layout *a, int_tuple shape, int_tuple stride, layout *out)
{
    if (is_leaf(shape))
        return compose_leaf(a, shape->leaf, stride->leaf, out);
    layout modes[LAYOUT_MODES_MAX];
    for (int i = 0; i < shape->rank; i++) {
        const char *why = compose_shape(a, shape->modes[i], stride->modes[i], &modes[i]);
        if (why)
            return why;
    }
    *out = layouts_of(shape->rank, modes);
    return NULL;
}

const char *compose(layout a, layout b, layout *out)
{
    left_layout left = { .modes = is_leaf(a.shape) ? flat_of(a) : flat_coalesced(a) }; // b may step past a mode of 1
    for (int i = 0; i < left.modes.count; i++)
        if (ir_is_constant(left.modes.shape[i]) && left.modes.shape[i].i <= 0)
            return "do not compose: the left one is empty";
    if (has_swizzle(b))
        return "do not compose: the right one has a swizzle";
    const char *why = compose_shape(&left, b.shape, b.stride, out);
    if (!why)
        out->sw = a.sw;
    return why;
}

layout composition(layout a, layout b)
{
    layout result, both[] = { a, b };
    if (is_static(a.shape) && layout_is_static(b) && cosize(b) > static_size(a))
        return no_layout("composition", "do not compose: the right one reaches past the end of the left one", 2, both);
    const char *why = compose(a, b, &result);
    return why ? no_layout("composition", why, 2, both) : result;
}

layout composition_by_mode(layout a, int count, const layout *b)
{
    layout modes[LAYOUT_MODES_MAX];
    if (count > rank(a))
        return no_layout("composition", "has fewer modes than there are tiles", 1, &a);
    for (int i = 0; i < rank(a); i++)
        modes[i] = i < count ? composition(layout_mode(a, i), b[i]) : layout_mode(a, i);
    return layouts_of(rank(a), modes);
}

/* Complement */

/* Modes in increasing order of stride, then size; those of size 1 or stride 0 dropped. Static. */
static flat_layout sorted_modes(layout a)
{
    flat_layout f = flat_of(a), sorted = { 0 };
    for (int i = 0; i < f.count; i++) {
        val shape = f.shape[i], stride = f.stride[i];
        if (shape.i == 1 || stride.i == 0)
            continue;
        int at = sorted.count++;
        for (; at > 0 && sorted.stride[at - 1].i > stride.i; at--) {
            sorted.shape[at] = sorted.shape[at - 1];
            sorted.stride[at] = sorted.stride[at - 1];
        }
        sorted.shape[at] = shape;
        sorted.stride[at] = stride;
    }
    return sorted;
}

layout complement_within(layout a, val cosize_of_hi)
{
    if (!layout_is_static(a) || has_swizzle(a))
        return no_layout("complement", has_swizzle(a) ? "has a swizzle" : "is not static", 1, &a);
    flat_layout modes = sorted_modes(a), gaps = { 0 };
    val reached = one();
    for (int i = 0; i < modes.count; i++) {
        if (modes.stride[i].i < 0)
            return no_layout("complement", "has a negative stride", 1, &a);
        if (modes.stride[i].i < reached.i)
            return no_layout("complement", "is not injective: its modes overlap", 1, &a);
        flat_add(&gaps, int_div(modes.stride[i], reached), reached);
        reached = int_mul(modes.shape[i], modes.stride[i]);
        if (ir_failed())
            return no_layout("complement", "is too large", 1, &a);
    }
    flat_add(&gaps, int_ceil_div(cosize_of_hi, reached), reached);
    return coalesce(flat_unwrap(&gaps));
}

layout complement(layout a, int64_t cosize_of_hi)
{
    return complement_within(a, ir_int(CKL_I64, cosize_of_hi));
}
