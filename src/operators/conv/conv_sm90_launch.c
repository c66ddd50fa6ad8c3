/*
 * conv_sm90_launch.c - launches of the Hopper kernel: what a problem has of them, tensor maps, pixels and taps of each
 * of the gradient.
 */
#include "base/math.h"
#include "operators/conv/conv_sm90.h"

static int64_t launches_of(const ckl_conv_desc *d)
{
    return d->direction == CKL_CONV_DATA ? product_i64(d->stride_d, product_i64(d->stride_h, d->stride_w)) : 1;
}

/*
 * The first tap that pixels of dx see which lie r after a multiple of the stride: taps t with r + pad - t * dilation a
 * multiple of it. The others follow `apart` from each other. Beyond the filter: they see none.
 */
static int64_t first_tap(const conv_mode *m, int64_t r, int64_t apart)
{
    int64_t first = 0;
    while (first < apart && (r + m->pad - first * m->dilation) % m->stride)
        first++;
    return first == apart ? m->filter : first;
}

/* The stride over its greatest common divisor with the dilation. */
static int64_t apart_of(const conv_mode *m)
{
    int64_t common = m->stride;
    while (m->stride % common || m->dilation % common)
        common--;
    return m->stride / common;
}

/* A bit for each remainder of the stride that some tap sees. */
static int64_t seen_along(const conv_mode *m)
{
    if (m->stride == 1)
        return m->filter > 0;
    const int64_t apart = apart_of(m);
    int64_t seen = 0;
    for (int64_t r = 0; r < m->stride; r++)
        seen |= (int64_t)((uint64_t)(first_tap(m, r, apart) < m->filter) << r);
    return seen;
}

/* Are there pixels of dx that no tap sees, beside some that one does, in rows that 32 bits can number? */
static bool has_unseen(const ckl_conv_desc *d)
{
    conv_mode m[CONV_MODES];
    bool unseen = false, some = true;
    if (d->direction != CKL_CONV_DATA || launches_of(d) == 1 || launches_of(d) > CONV_SM90_LAUNCHES ||
        (double)d->n * (double)d->d * (double)d->h > INT32_MAX)
        return false;
    conv_modes(d, m);
    for (int i = 0; i < CONV_MODES; i++) {
        const int64_t seen = seen_along(&m[i]), all = (int64_t)(UINT64_MAX >> (64 - min_i64(m[i].stride, m[i].x)));
        unseen |= (all & ~seen) != 0;
        some &= (all & seen) != 0;
    }
    return unseen && some;
}

/* Launches with pixels that some tap sees. */
static int64_t seen_launches(const ckl_conv_desc *d)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    int64_t count = 1;
    for (int i = 0; i < CONV_MODES; i++)
        count *= __builtin_popcountll((uint64_t)seen_along(&m[i]));
    return count;
}

static bool may_be_tall(const ckl_conv_desc *d, const conv_mode *rows)
{
    int64_t first;
    return d->r == CONV_SM90_TALL && conv_seen_taps(rows, &first) == CONV_SM90_TALL && d->stride_h == 1 &&
           d->dilation_h == 1 && launches_of(d) == 1;
}

conv_sm90_problem conv_sm90_problem_of(const ckl_conv_desc *d)
{
    const bool data = d->direction == CKL_CONV_DATA;
    conv_sm90_problem p = { .desc = *d,
                            .in = conv_sm90_in(d),
                            .out = conv_sm90_out(d),
                            .taps = 1,
                            .launches = launches_of(d),
                            .has_unseen = has_unseen(d),
                            .image = conv_tensor_of(d, data ? CONV_X : CONV_Y).stride[0] };
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(d->dtype), out_unit = 16 / (int64_t)ckl_dtype_bytes(d->out);
    p.whole = p.in % unit == 0 && p.out % out_unit == 0 && (!data || p.out % unit == 0);
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    for (int i = 0; i < CONV_MODES; i++) {
        int64_t first;
        p.taps *= conv_seen_taps(&m[i], &first);
        p.y[i] = m[i].y;
        p.places[i] = data ? ceil_div(m[i].x, m[i].stride) : m[i].y;
    }
    p.seen_launches = p.has_unseen ? seen_launches(d) : p.launches;
    for (int i = 0; i < CONV_SM90_BOXES; i++)
        p.box[i] = conv_fit_box(p.places, d->n, (i + 1) * CONV_SM90_ROWS);
    p.may_be_tall = may_be_tall(d, &m[1]);
    for (int i = 0; i < CONV_SM90_CONSUMERS && p.may_be_tall; i++)
        p.tall_box[i] = conv_fit_tall_box(p.places, d->n, i + 1);
    return p;
}

bool conv_find_corners(const conv_mode *m, bool data, int64_t *lower, int64_t *upper)
{
    enum { REACH = 128, OFFSETS = 256 };
    const int64_t reach = (m->filter - 1) * m->dilation;
    *lower = data ? m->pad - reach : -m->pad;
    *upper = data ? *lower + m->x - m->y : *lower + (m->y - 1) * m->stride - (m->x - 1);
    return reach < OFFSETS && *lower >= -REACH && *lower < REACH && *upper >= -REACH && *upper < REACH;
}

/* The corners of a launch. */
static void corners_of(const conv_params *p, int mode, int64_t size, int64_t step, int64_t *lower, int64_t *upper)
{
    const int64_t last_tap = (p->filter[mode] - 1) * p->dilation[mode];
    *lower = min_i64(0, last_tap) - p->pad[mode];
    *upper = *lower + (p->y_size[mode] - 1) * step - (size - 1);
}

/* The filters: channels, filters of a group, taps, groups. */
static param_tensor filters(const void *pointer, const conv_tensor *t, int64_t groups)
{
    const int64_t of_group = t->shape[0] / groups;
    return (param_tensor){ .pointer = pointer,
                           .size = { t->shape[4], of_group, t->shape[1] * t->shape[2] * t->shape[3], groups },
                           .stride = { 1, t->stride[0], t->stride[3], of_group * t->stride[0] } };
}

/* The same pixels, with groups of channels in place of slices. */
static conv_tensor in_groups(const conv_tensor *t, int64_t groups)
{
    conv_tensor g = *t;
    if (groups == 1)
        return g;
    g.shape[4] = t->shape[4] / groups;
    g.shape[1] = groups;
    g.stride[1] = g.shape[4];
    return g;
}

int64_t conv_sm90_sum_images(const ckl_conv_desc *d, const conv_sm90_config *c)
{
    return round_up(d->n, c->box_n);
}

/*
 * All pixels as one row of places; x has no slices, and the corners of these places. step: from one place to the next.
 */
static void follow_pixels(conv_params *p, const int64_t size[CONV_MODES], const int64_t step[CONV_MODES])
{
    int64_t pixels = p->n;
    for (int i = 1; i < CONV_MODES; i++) {
        int64_t lower, upper;
        corners_of(p, i, size[i], step[i], &lower, &upper);
        p->mX.lower[CONV_MODES - 1 - i] = (int16_t)lower;
        p->mX.upper[CONV_MODES - 1 - i] = (int16_t)upper;
        p->corner[i] = (uint32_t)lower;
        p->places[i] = (uint32_t)p->y_size[i];
        pixels *= p->y_size[i];
        p->y_size[i] = 1;
    }
    p->mX.size[3] = p->mX.size[4];
    p->mX.stride[3] = p->mX.stride[4];
    p->y_size[2] = pixels;
    p->n = 1;
    for (param_tensor *t = &p->mY; t; t = t == &p->mY ? &p->mR : NULL) {
        t->size[1] = pixels;
        t->size[2] = t->size[3] = t->size[4] = 1;
    }
}

static ckl_status launch_tiles(const ckl_plan *plan, const conv_sm90_config *c, const conv_params *p, ckl_stream stream)
{
    const int64_t rows = ceil_div(p->y_size[1], c->box_h), columns = ceil_div(p->y_size[2], c->box_w);
    const int64_t boxes = p->y_size[0] * rows * columns * ceil_div(p->n, c->box_n) * c->slices;
    return conv_launch_tiles(plan, 0, boxes * ceil_div(p->k, c->tile_n), p, stream);
}

/*
 * Along one mode, the pixels r, r + stride, ... of x: pixel j of them sees tap u of theirs at place j + start - u *
 * step of dy.
 */
static void see_taps(conv_params *p, const conv_mode *m, int mode, int64_t r)
{
    const int64_t NOWHERE = 1 << 30; // before all places: TMA reads zeros
    const int64_t apart = apart_of(m), first = first_tap(m, r, apart);
    const bool none = first >= m->filter;
    p->filter[mode] = none ? 1 : ceil_div(m->filter - first, apart);
    p->dilation[mode] = none ? 0 : -(m->dilation * apart / m->stride);
    p->pad[mode] = none ? NOWHERE : -((r + m->pad - first * m->dilation) / m->stride);
    p->tap += none ? 0 : (uint32_t)first * p->tap_step[mode];
    p->tap_step[mode] *= (uint32_t)apart;
    p->c = none ? 1 : p->c; // one stage of zeros
}

/* Does the tap see one of `size` pixels from any of y_size places, `step` apart? */
static bool sees(const conv_params *p, int mode, int64_t tap, int64_t size, int64_t step)
{
    const int64_t first = tap * p->dilation[mode] - p->pad[mode];
    return first < size && first + (p->y_size[mode] - 1) * step >= 0;
}

/* Leaves out taps at the edges of a filter that see padding alone; at least one stays. */
static void drop_unseen(conv_params *p, int mode, int64_t size, int64_t step)
{
    while (p->filter[mode] > 1 && !sees(p, mode, p->filter[mode] - 1, size, step))
        p->filter[mode]--;
    while (p->filter[mode] > 1 && !sees(p, mode, 0, size, step)) {
        p->filter[mode]--;
        p->pad[mode] -= p->dilation[mode];
        p->tap += p->tap_step[mode];
    }
}

/* The taps that the pixels of launch number i see. */
static int64_t taps_of_launch(const conv_mode m[CONV_MODES], int64_t i)
{
    int64_t taps = 1;
    for (int mode = CONV_MODES - 1; mode >= 0; mode--) {
        const int64_t r = i % m[mode].stride, apart = apart_of(&m[mode]);
        i /= m[mode].stride;
        const int64_t first = r < m[mode].x ? first_tap(&m[mode], r, apart) : m[mode].filter;
        taps *= ceil_div(max_i64(0, m[mode].filter - first), apart);
    }
    return taps;
}

/* Launch number i of the gradient of data: pixels that are a stride apart. */
static ckl_status launch_data(const ckl_plan *plan, const conv_sm90_config *c, const ckl_conv_desc *d, int64_t i,
                              const conv_tensor *dx, conv_params p, ckl_stream stream)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    conv_tensor own = *dx;
    int64_t offset = 0;
    for (int mode = CONV_MODES - 1; mode >= 0; mode--) {
        const int64_t r = i % m[mode].stride;
        i /= m[mode].stride;
        see_taps(&p, &m[mode], mode, r);
        offset += r * dx->stride[1 + mode];
        own.stride[1 + mode] *= m[mode].stride;
        own.shape[1 + mode] = p.y_size[mode] = r < m[mode].x ? ceil_div(m[mode].x - r, m[mode].stride) : 0;
        drop_unseen(&p, mode, m[mode].y, 1);
    }
    if (d->groups > 1)
        own.shape[1] = p.y_size[0] = d->groups;
    p.mY = conv_pixels((const char *)p.from[CONV_X] + offset * (int64_t)ckl_dtype_bytes(d->out), &own, 256);
    if (c->im2col)
        follow_pixels(&p, (const int64_t[]){ m[0].y, m[1].y, m[2].y }, (const int64_t[]){ 1, 1, 1 });
    return launch_tiles(plan, c, &p, stream);
}

/*
 * All launches, from the end that has more taps: each begins on the SMs that the last tiles of the one before leave, as
 * none waits for another. The first has pixels, so that one waits for the kernel before. With zeros=1 it also writes
 * the pixels that no tap sees, whose launches are left out.
 */
static ckl_status launch_all_data(const ckl_plan *plan, const conv_sm90_config *c, const ckl_conv_desc *d,
                                  const conv_tensor *dx, conv_params p, ckl_stream stream)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    for (int i = 0; i < CONV_MODES; i++)
        p.seen[i] = seen_along(&m[i]);
    p.zero_rows = c->zeros ? (uint32_t)(d->n * d->d * d->h) : 0;
    const int64_t last = launches_of(d) - 1;
    const bool backwards = taps_of_launch(m, last) > taps_of_launch(m, 0);
    for (int64_t i = 0; i <= last; i++) {
        const int64_t number = backwards ? last - i : i;
        if (c->zeros && !taps_of_launch(m, number))
            continue;
        TRY(launch_data(plan, c, d, number, dx, p, stream));
        p.zero_rows = 0;
        p.beside = 1;
    }
    return CKL_OK;
}

static bool sees_all_taps(const ckl_conv_desc *d)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    int64_t first;
    bool all = true;
    for (int i = 0; i < CONV_MODES; i++)
        all &= conv_seen_taps(&m[i], &first) == m[i].filter;
    return all;
}

ckl_status conv_sm90_launch(const ckl_plan *plan, const conv_sm90_config *c, const ckl_conv_desc *desc,
                            const ckl_conv_args *a, const conv_tensor at[CONV_TENSORS], ckl_stream stream)
{
    ckl_conv_desc all = *desc, *d = &all;
    all.groups /= c->together;
    conv_params p = conv_params_of(plan, d, a);
    if (p.early_bytes[1]) // of all groups
        conv_read_early(&p, 1, a->w, sees_all_taps(d) ? conv_span_bytes(&at[CONV_W], d->dtype) : 0);
    const int64_t row_bytes = c->tile_k * (int64_t)ckl_dtype_bytes(d->dtype);
    const conv_tensor x = in_groups(&at[CONV_X], d->groups), y = in_groups(&at[CONV_Y], d->groups);
    p.mW = filters(a->w, &at[CONV_W], d->groups);
    p.tap_step[2] = 1;
    p.tap_step[1] = (uint32_t)d->s;
    p.tap_step[0] = (uint32_t)(d->s * d->r);
    p.c = conv_sm90_in(d);
    p.k = conv_sm90_out(d);
    p.sum_images = (uint32_t)conv_sm90_sum_images(d, c);
    for (int i = 0; i < CONV_RANK; i++)
        p.x[i] = at[CONV_X].stride[i];
    if (d->direction == CKL_CONV_DATA) {
        p.mX = conv_pixels(a->dy, &y, row_bytes);
        return launch_all_data(plan, c, d, &x, p, stream);
    }
    for (int i = 0; i < CONV_MODES; i++)
        drop_unseen(&p, i, p.x_size[i], p.step[i]);
    p.y_size[0] = y.shape[1];
    p.mX = conv_pixels(a->x, &x, row_bytes);
    p.mY = conv_pixels(a->y, &y, 256);
    p.mR = conv_pixels(a->residual, &y, 256);
    if (c->im2col)
        follow_pixels(&p, p.x_size, p.step);
    return launch_tiles(plan, c, &p, stream);
}
