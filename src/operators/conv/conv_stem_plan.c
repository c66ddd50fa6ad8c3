/* conv_stem_plan.c - the host side of the Hopper kernel of first layers: which problems, what they cost, launches. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_stem.h"

enum {
    THREADS = CONV_STEM_THREADS,
    FILTERS_MAX = CONV_STEM_FILTERS_MAX,
    LOADS_MAX = 20,      // of a thread, in registers
    WIDE_LOADS_MAX = 32, // where more lines than that come one after the other
    UNIT = 8,            // channels of a row of ldmatrix
    CTAS_MAX = 4,        // of an SM
};

/* More channels than are gathered word by word? */
static bool is_wide(const conv_stem_config *c)
{
    return c->channels > UNIT;
}

conv_stem_shape conv_stem_shape_of(const conv_stem_config *c)
{
    const int out = (int)ckl_dtype_bytes(c->form.out), rows = CONV_SM90_ROWS * CONV_STEM_CONSUMERS;
    conv_stem_shape s = { .padded = c->channels > 4 ? (int)round_up(c->channels, UNIT) : 4,
                          .taps = c->rows * c->columns };
    s.pitch = s.padded > UNIT && s.padded / UNIT % 2 == 0 ? s.padded + UNIT : s.padded;
    s.steps = (int)ceil_div((int64_t)s.taps * s.padded, CONV_STEM_K);
    s.halo_h = (c->tile_h - 1) * c->step_h + (c->rows - 1) * c->dilation_h + 1;
    s.halo_w = (c->tile_w - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1;
    s.halo = (int)round_up((int64_t)s.halo_h * s.halo_w * s.pitch, 64); // whole 128 bytes
    s.y_cols = c->tile_n % 32 ? 16 : c->tile_n % 64 || out == 4 ? 32 : 64;
    s.y_rows = !c->direct || c->pairs ? 0 : c->nchw ? CONV_STEM_PLANES : CONV_STEM_W;
    s.y_parts = c->nchw ? 1 : THREADS / 32;
    s.y_pitch =
        c->nchw ? CONV_STEM_PIXELS + 16 / out : c->tile_n + UNIT; // lanes that write together are in different banks
    s.async = is_wide(c) && c->vec == UNIT;
    s.loads = (int)ceil_div(s.halo_w * (c->nchw ? 1 : c->channels / c->vec), 32);
    s.lines_at_once = (int)max_i64(1, (is_wide(c) ? WIDE_LOADS_MAX : LOADS_MAX) / max_i64(1, s.loads));
    s.smem_bytes = (int64_t)c->tile_n * CONV_STEM_K * s.steps * 2 + 2 * (int64_t)s.halo * 2 +
                   (c->direct ? (int64_t)s.y_rows * s.y_pitch * s.y_parts : (int64_t)rows * c->tile_n) * out + 2048;
    return s;
}

/* Vectors of x under a tile that a thread loads: lines of a warp by vectors of a lane. */
static int loads_of(const conv_stem_config *c)
{
    const conv_stem_shape s = conv_stem_shape_of(c);
    const int64_t lines = (int64_t)s.halo_h * (c->nchw ? c->channels : 1),
                  vectors = (int64_t)s.halo_w * (c->nchw ? 1 : c->channels / c->vec);
    return (int)(ceil_div(lines, THREADS / 32) * ceil_div(vectors, 32));
}

/* CTAs whose registers and shared memory an SM holds; 7x7 filters of 64 on 224x224: one 80.7 us, two 54.2, 3 44.1. */
static int ctas_of(const conv_stem_config *c, const ckl_device_info *device)
{
    const conv_stem_shape s = conv_stem_shape_of(c);
    const bool runs = c->direct && !c->pairs, pixels = runs && !c->nchw;
    const int beside = pixels ? 24 : c->tile_n / 4; // of a bias or scales: a constant where runs are stored, by ptxas
    const int vectors = (c->form.bias + c->form.scale) * beside;
    const int of_load = c->nchw ? 4 : (c->vec + 1) / 2;
    const int loads = s.async ? 0 : (int)min_i64(loads_of(c), is_wide(c) ? s.lines_at_once * s.loads : LOADS_MAX);
    const int more = c->several && !runs ? 56 : c->several || pixels ? 40 : 24;
    const int registers = c->tile_n / 2 + vectors + of_load * loads + (is_wide(c) ? 24 : 0) + more;
    int ctas =
        c->tile_n < 64 ? 4 : 3; // 64 filters in 64 registers serialise wgmma, as 96 in 80 do, which pay none the less
    while (ctas > 1 && (registers * THREADS * ctas > 65536 || s.smem_bytes * ctas > device->smem_per_sm_bytes))
        ctas--;
    return ctas;
}

/* TMA takes whole 16 bytes of channels side by side. */
static bool stores_directly(const ckl_conv_desc *d)
{
    return d->layout == CKL_IMAGE_NCHW || d->k * (int64_t)ckl_dtype_bytes(d->out) % 16 != 0;
}

/* Are the channels of a pixel a vector, as wide as its place in shared memory? */
static bool whole_pixels(const ckl_conv_desc *d)
{
    return d->layout == CKL_IMAGE_NHWC && (d->c == 4 || d->c == 8);
}

/* The longest vectors that pixels of more than 8 channels are made of. */
static int64_t vector_of(const ckl_conv_desc *d)
{
    return d->layout == CKL_IMAGE_NHWC ? min_i64(UNIT, power_of_two_in(d->c)) : 1;
}

static double tiles_of(const ckl_conv_desc *d, const conv_stem_config *c)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    return (double)d->n * (double)ceil_div(m[1].y, c->tile_h) * (double)ceil_div(m[2].y, c->tile_w);
}

static int64_t filter_tiles(const ckl_conv_desc *d, const conv_stem_config *c)
{
    return ceil_div(d->k, c->tile_n);
}

/*
 * Planes of an odd number of columns are stored in runs of pixels: whole rows, or parts of one. So are those whose rows
 * are no whole sectors, if L2 does not hold them all: pairs of columns leave pieces of sectors there, and 3 to 768 of
 * 128 planes of 56x56 take 966 us by these, 420 by runs; 3 to 32 of 16 of 300x300 30.7 and 56.6.
 */
static void take_tile(const ckl_conv_desc *d, const ckl_device_info *device, conv_stem_config *c)
{
    enum { SECTOR = 32 };
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    const int64_t row = m[2].y * (int64_t)ckl_dtype_bytes(d->out), bytes = d->n * d->k * m[1].y * row;
    c->pairs = c->nchw && m[2].y % 2 == 0 && (row % SECTOR == 0 || bytes <= (int64_t)device->l2_bytes);
    c->tile_w = CONV_STEM_W;
    c->tile_h = CONV_STEM_H;
    if (!conv_stem_is_flat(c))
        return;
    c->tile_w = (int)max_i64(1, min_i64(m[2].y, CONV_STEM_PIXELS));
    c->tile_h = (int)max_i64(1, min_i64(m[1].y, CONV_STEM_PIXELS / c->tile_w));
}

/*
 * CTAs of an SM that have a tile each, as fewer have more registers: 27 images of 37x37 to 96 4.97 us, 4.68 by two. Few
 * filters leave registers enough to three: 8 of 104x104 to 32 3.53 by four, 4.22 by two.
 */
static int ctas_with_tiles(const ckl_conv_desc *d, const conv_stem_config *c, const ckl_device_info *device)
{
    const double tiles = tiles_of(d, c) * (double)filter_tiles(d, c) / device->sm_count;
    return tiles <= 1 ? 1 : (int)fmin(CTAS_MAX, fmax(c->tile_n < 64 ? 3 : 2, ceil(tiles)));
}

/*
 * Filters of a CTA: all, up to 128, or as few CTAs as that takes; or more CTAs, which fill the SMs where pixels are
 * few. 128 of many where runs are stored, 96 where pixels are (1 to 256 of 3 planes of 709x709: 773 us, by 96 882).
 */
static bool candidate_stem(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_conv_desc inner = conv_turned(desc), *d = &inner;
    conv_stem_config *c = config;
    const int unit = d->c > UNIT ? 16 : 32;
    *c = (conv_stem_config){ .form = conv_form_of(desc),
                             .nchw = d->layout == CKL_IMAGE_NCHW,
                             .direct = stores_directly(d),
                             .channels = conv_config_number(d->c),
                             .vec = 1,
                             .rows = conv_config_number(d->r),
                             .columns = conv_config_number(d->s),
                             CONV_STEPS_OF(d) };
    take_tile(d, device, c);
    const int64_t most[] = { d->k > FILTERS_MAX && (!c->direct || c->pairs) ? 96 : FILTERS_MAX, 64, 32 };
    if (i >= COUNT_OF(most) || (i > 0 && d->k <= most[i]))
        return false;
    c->tile_n = (int)round_up(ceil_div(d->k, max_i64(1, ceil_div(d->k, most[i]))), unit);
    if (is_wide(c))
        c->vec = (int)vector_of(d);
    else if (whole_pixels(d) && loads_of(c) > LOADS_MAX)
        c->vec = (int)d->c;
    c->several = c->tile_n < d->k;
    c->ctas = (int)min_i64(ctas_of(c, device), ctas_with_tiles(d, c, device));
    return true;
}

static double bytes_of_y(const ckl_conv_desc *d)
{
    const conv_tensor y = conv_tensor_of(d, CONV_Y);
    return (double)y.shape[0] * (double)y.shape[2] * (double)y.shape[3] * (double)d->k *
           (double)ckl_dtype_bytes(d->out);
}

/*
 * Cycles of storing a tile. Filters of NHWC that are no whole 16 bytes go through shared memory: 5 to 31 of 128 of
 * 17x17 take 11.1 us, 3 to 1 of 96x96 63; where CTAs share them, or of more than 8 channels, 20 to 88 a filter. In NCHW
 * it was 41 to 85 for odd planes, but what others take there was not timed, so the choice is as if these cost nothing.
 */
static double store_cycles(const conv_stem_config *c, int64_t filters, double column)
{
    const double RUN = 500, ELEMENT = 8, SHARED = 45;
    if (!c->direct || c->nchw)
        return column * c->tile_n;
    return c->several || is_wide(c) ? SHARED * (double)min_i64(filters, c->tile_n) : RUN + ELEMENT * (double)filters;
}

/*
 * Cycles of a tile: gathering and products, the pixels below it, its epilogue. More than 4 channels cost more: 8 to 768
 * of 120x120 took 2200.
 */
static double cycles_of(const conv_stem_config *c, const conv_stem_shape *s, int64_t filters)
{
    const double TILE = 400, WIDE = 1100, STEP = 64, COLUMN = 2, LOAD = 40;
    return TILE + (c->channels > 4 ? WIDE : 0) + STEP * s->steps + store_cycles(c, filters, COLUMN) +
           LOAD * loads_of(c);
}

/*
 * What steps and loads of a tile take longer where CTAs share the filters of NHWC, for two on an SM hide less: 4 to
 * 1280 of 64 images of 25x25 take 38.2 us, 3 to 3072 of 11 of 112x112 by stride 2 127, 3 to 664 of 88 of 3x3 7.05. An
 * SM's first tile is not longer.
 */
static double shared_cycles(const conv_stem_config *c, const conv_stem_shape *s)
{
    const double SHARED = 105;
    return c->several && !c->nchw && !is_wide(c) ? SHARED * (s->steps + loads_of(c)) : 0;
}

/* Cycles of a tile of more than 8 channels, fitted to ten runs (bench/notes/conv.md). */
static double wide_cycles(const conv_stem_config *c, const conv_stem_shape *s, int64_t filters)
{
    const double STEP = 73, COLUMN = 7, LOAD = 140;
    return (STEP + c->tile_n) * s->steps + store_cycles(c, filters, COLUMN) + (s->async ? 0 : LOAD * loads_of(c));
}

/*
 * Filters that come one element after the other: of more than 8 channels, and those of data, in rounds of 32 elements
 * of K. 24 to 96 channels of data of 8 and 64 images of 80x80 take 18.4 and 50.5 us by 96 filters, 13.5 and 57.5 by 48.
 */
static double filter_cycles(const conv_stem_config *c, const conv_stem_shape *s)
{
    const double ROUND = 700, AT_ONCE = 16, LONG = 3;
    if (c->form.direction == CKL_CONV_DATA)
        return (c->tile_n > 64 ? LONG : 1) * ROUND * (double)ceil_div(CONV_STEM_K * s->steps, THREADS / CONV_STEM_NEAR);
    if (!is_wide(c))
        return 0;
    return s->async ? ROUND : ROUND * c->tile_n * CONV_STEM_K * s->steps / (THREADS * AT_ONCE);
}

/*
 * Tiles that an SM takes, as many as whole turns of its CTAs where more than 8 channels of data are read: 24 to 96 of 8
 * images of 80x80 take 18.4 us, 1.5 turns.
 */
static double turns_of(const ckl_conv_desc *d, const ckl_device_info *device, const conv_stem_config *c)
{
    const double tiles = tiles_of(d, c) * (double)filter_tiles(d, c), of_sm = tiles / device->sm_count;
    if (c->form.direction == CKL_CONV_DATA && is_wide(c))
        return ceil(of_sm / c->ctas) * fmin(c->ctas, ceil(of_sm));
    return fmax(1, of_sm);
}

static plan_cost cost_stem(const void *desc, const ckl_device_info *device, const void *config)
{
    // 8 channels of 8 images of 5x5, 256 filters: 3.0 us, 3.55 by sm90
    const double HERTZ = 1.7e9, START = 2.4, WIDE = 0.6, EIGHT = 0.8, MEMORY = 4.6e6; // bytes a us
    const conv_stem_config *c = config;
    const ckl_conv_desc inner = conv_turned(desc), *d = &inner;
    const conv_stem_shape s = conv_stem_shape_of(c);
    const bool wide = is_wide(c);
    const double cycles = (wide ? wide_cycles : cycles_of)(c, &s, d->k), once = filter_cycles(c, &s);
    const double turns = turns_of(d, device, c);
    const double us = (turns * cycles + (turns - 1) * shared_cycles(c, &s)) / HERTZ * 1e6,
                 of_x = (double)d->n * (double)d->h * (double)d->w * (double)d->c * (double)ckl_dtype_bytes(d->dtype),
                 bytes = (bytes_of_y(d) + (wide ? of_x : 0)) / MEMORY;
    return (plan_cost){ START + (wide ? WIDE : 0) - (c->channels == UNIT ? EIGHT : 0) + once / HERTZ * 1e6 +
                            fmax(us, bytes),
                        us > bytes ? "gathering" : "memory" };
}

static ckl_status check_problem(const ckl_conv_desc *d, const ckl_device_info *device)
{
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "conv stem: %s has no wgmma", device->id);
    if (d->direction == CKL_CONV_WEIGHT || (d->direction == CKL_CONV_DATA && (d->stride_h > 1 || d->stride_w > 1)))
        FAIL(CKL_UNSUPPORTED, "conv stem: it computes no gradient of weights, nor of data at strides above 1");
    TRY(conv_check_half("stem", d));
    if (d->residual || d->groups > 1 || conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv stem: it takes images without groups and residual");
    const ckl_conv_desc inner = conv_turned(d);
    if (inner.c < 1 || inner.c > CONV_STEM_CHANNELS_MAX || inner.k < 1 || inner.k > UINT16_MAX)
        FAIL(CKL_UNSUPPORTED,
             "conv stem: %" PRId64 " channels to read are not in 1..%d, or %" PRId64 " to write not in 1..2^16-1",
             inner.c, CONV_STEM_CHANNELS_MAX, inner.k);
    if (inner.c > UNIT && inner.c % UNIT == 0 && d->r * d->s == 1 && d->layout == CKL_IMAGE_NHWC)
        FAIL(CKL_UNSUPPORTED, "conv stem: filters of one pixel that are whole 16 bytes are a matrix product");
    if ((double)inner.c * (double)inner.h * (double)inner.w > INT32_MAX ||
        (double)inner.n * (double)inner.h * (double)inner.w > INT32_MAX / 2 || d->h > INT32_MAX / 4 ||
        d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv stem: an image of %" PRId64 "x%" PRId64 " is beyond 32-bit numbers", d->h, d->w);
    return CKL_OK;
}

/* Pixels of a flat tile follow each other in y. */
static ckl_status check_tile(const conv_stem_config *c, int64_t width)
{
    const bool flat = c->tile_w > 0 && c->tile_h > 0 && c->tile_w <= CONV_STEM_PIXELS &&
                      c->tile_h <= CONV_STEM_PIXELS / c->tile_w && (c->tile_w == width || c->tile_h == 1);
    if (conv_stem_is_flat(c) ? !flat : c->tile_w != CONV_STEM_W || c->tile_h != CONV_STEM_H)
        FAIL(CKL_INVALID,
             "conv stem: tile_w=%d and tile_h=%d are not 16 and 8, or of planes without pairs=1 up to 128 pixels that "
             "follow each other",
             c->tile_w, c->tile_h);
    return CKL_OK;
}

static ckl_status admit_stem(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_stem_config *c = config;
    TRY(check_problem(desc, device));
    TRY(conv_check_form("stem", desc, &c->form));
    TRY(conv_check_dense("stem", desc));
    const ckl_conv_desc inner = conv_turned(desc), *d = &inner;
    if (c->nchw != (d->layout == CKL_IMAGE_NCHW) || c->channels != d->c || c->rows != d->r || c->columns != d->s ||
        !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID,
             "conv stem: the config's layout, channels, filter, strides or dilations are not the problem's");
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    if (c->vec != 1 && (is_wide(c) ? c->vec != vector_of(d) : c->vec != d->c || !whole_pixels(d)))
        FAIL(CKL_INVALID, "conv stem: vec=%d is neither 1 nor the 4 or 8 channels of NHWC, or what divides more",
             c->vec);
    if (c->direct != stores_directly(d))
        FAIL(CKL_INVALID,
             "conv stem: direct=%d, but y is NCHW or its k=%" PRId64 " filters are no whole 16 bytes, or both not",
             c->direct, d->k);
    if (c->pairs && (!c->nchw || m[2].y % 2))
        FAIL(CKL_INVALID, "conv stem: pairs=1, but y has %" PRId64 " columns", m[2].y);
    TRY(check_tile(c, m[2].y));
    const int unit = is_wide(c) ? 16 : 32;
    if (c->tile_n < unit || c->tile_n % unit || c->tile_n > FILTERS_MAX || c->ctas < 1 || c->ctas > CTAS_MAX)
        FAIL(CKL_INVALID, "conv stem: tile_n=%d is no multiple of %d up to %d, or ctas=%d is not in 1..%d", c->tile_n,
             unit, FILTERS_MAX, c->ctas, CTAS_MAX);
    if (c->several != (c->tile_n < d->k))
        FAIL(CKL_INVALID, "conv stem: several=%d, but a CTA has %d of %" PRId64 " filters", c->several, c->tile_n,
             d->k);
    const conv_stem_shape s = conv_stem_shape_of(c);
    if (s.steps > (is_wide(c) ? CONV_STEM_STEPS_MAX : 16) ||
        (is_wide(c) ? s.loads > WIDE_LOADS_MAX : (c->nchw ? s.loads : loads_of(c)) > LOADS_MAX) ||
        s.smem_bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "conv stem: a filter of %dx%d, or the pixels under a tile, %dx%d, are too many", c->rows,
             c->columns, s.halo_h, s.halo_w);
    return CKL_OK;
}

static ckl_status launch_stem(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc inner = conv_turned(plan->desc), *d = &inner;
    const ckl_conv_args *a = args;
    const conv_stem_config *c = plan->config;
    const conv_tensor y = conv_tensor_of(d, CONV_Y);
    conv_params p = conv_turned_params(plan, plan->desc, a);
    if (!PLAN_ALIGNED(c->direct ? (c->pairs ? 2 : 1) * (int64_t)ckl_dtype_bytes(d->out) : 16, a->y, a->dx))
        FAIL(CKL_INVALID, "conv stem: y is not aligned to what is stored at once; impl=sm80 takes any");
    if (!PLAN_ALIGNED(c->vec * (int64_t)ckl_dtype_bytes(d->dtype), a->x, a->dy))
        FAIL(CKL_INVALID, "conv stem: x is not aligned to a pixel; config='vec=1' takes any");
    if (conv_stem_shape_of(c).async && c->form.direction == CKL_CONV_FORWARD && !PLAN_ALIGNED(16, a->w))
        FAIL(CKL_INVALID, "conv stem: w is not aligned to 16 bytes; impl=sm80 takes any");
    p.mY = conv_pixels(a->y ? a->y : a->dx, &y, 256);
    const int64_t tiles = (int64_t)tiles_of(d, c);
    if (tiles == 0)
        return CKL_OK;
    const int64_t filters = filter_tiles(d, c), ctas = max_i64(1, plan->kernels[0].clusters_resident / filters);
    return plan_launch(plan, 0, (plan_grid){ .x = min_i64(tiles, ctas), .y = filters }, &p, stream);
}

static const field stem_fields[] = CONV_FIELDS(conv_stem_config, CONV_STEM_CONFIG);

const implementation conv_stem_implementation = {
    CONV_RANKED(stem, conv_stem_config),
    .summary =
        "up to 64 channels, as first layers have: pixels gathered from shared memory, wgmma; both layouts, Hopper",
    .rivals = { &conv_pointwise_implementation, &conv_sliced_implementation, &conv_sm90_implementation,
                &conv_nchw_sm90_implementation, &conv_packed_implementation },
    .describe = conv_stem,
    .params = &conv_param_list,
    .target = IR_SM90A,
};
