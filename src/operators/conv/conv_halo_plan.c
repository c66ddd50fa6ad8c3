/* conv_halo_plan.c - the host side of the Hopper kernel of a filter a channel: its problems, their cost, launches. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

enum {
    COLUMNS_MAX = CONV_HALO_COLUMNS,
    VECTOR = CONV_HALO_VECTOR,
    TAPS_MAX = 64,
    IMAGES_MAX = 32,
    LANES = 8, // of a tile: 128 bytes
    LANES_MAX = 32,
    WIDE_MAX = 16,
    CTAS_MAX = 4, // of an SM
    BAND_CTAS_MAX = 3,
    BAND_ROWS = 2,     // of a block, to consider
    BAND_ROWS_MAX = 3, // of a block: four spill, by the epilogues that need most
};

conv_halo_shape conv_halo_shape_of(const conv_halo_config *c)
{
    enum { PADDING = 4 };
    conv_halo_shape s = { .channels = c->lanes * VECTOR, .workers = c->lanes * c->wide * c->high * c->images };
    s.threads = (int)round_up(s.workers, 32) + 32;
    if (c->bands)
        s.threads = s.workers = 32 * CONV_HALO_GROUPS; // one of which loads
    s.box_w = (c->cols * c->wide - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1;
    if (c->bands) // rows begin where a swizzle does
        s.box_w = (int)round_up((c->wide - 1) * c->cols * c->step_w + CONV_HALO_WINDOW, 8);
    else
        s.box_w += c->lanes < 8 && s.box_w % 2 == 0; // rows side by side in a warp meet other banks
    s.box_h = (c->high - 1) * c->step_h + (c->rows - 1) * c->dilation_h + 1;
    s.stage_bytes = round_up((int64_t)s.channels * s.box_w * s.box_h * c->images * 2, 128);
    s.smem_bytes = c->stages * (s.stage_bytes + 16) + 4 * (int64_t)(s.channels + PADDING) * c->rows * c->columns + 256;
    if (c->bands)
        s.smem_bytes +=
            (int64_t)s.channels * (2 * 2 * conv_halo_band(c) * c->rows +
                                   c->cols * c->wide * c->high * c->images * (int)ckl_dtype_bytes(c->form.out)) +
            1024;
    return s;
}

static const conv_halo_problem *problem_of(const void *desc)
{
    return &((const conv_prepared *)desc)->halo;
}

conv_halo_problem conv_halo_of(const ckl_conv_desc *d)
{
    const bool data = d->direction == CKL_CONV_DATA;
    conv_halo_problem h = { .tap_step = { 0, d->s, 1 } };
    conv_modes(d, h.m);
    for (int i = 1; i < CONV_MODES; i++) {
        conv_mode *m = &h.m[i];
        if (data)
            *m = (conv_mode){ m->y, m->x, m->filter, 1, m->dilation, m->dilation * (m->filter - 1) - m->pad };
        const int64_t filter = m->filter;
        int64_t first;
        m->filter = conv_seen_taps(m, &first);
        m->pad -= first * m->dilation;
        h.tap += (data ? filter - 1 - first : first) * h.tap_step[i];
        h.tap_step[i] *= data ? -1 : 1;
    }
    return h;
}

/* Columns of a thread: all threads of a row have the same. */
static int columns_of(int64_t width)
{
    return (int)ceil_div(width, ceil_div(width, COLUMNS_MAX));
}

/* Would tiles of 32 channels leave SMs without one? */
static bool is_small(const ckl_conv_desc *d, const conv_halo_problem *h, int sm_count)
{
    enum { CHANNELS = 4 * VECTOR, HIGH = 16 };
    return (double)d->n * (double)ceil_div(d->k, CHANNELS) * (double)ceil_div(h->m[1].y, HIGH) *
               (double)ceil_div(h->m[2].y, COLUMNS_MAX) <
           sm_count;
}

/* Are bands made for such filters? Words of x are pairs of columns, so windows begin at even ones. */
static bool may_be_bands(const ckl_conv_desc *d, const conv_halo_problem *h)
{
    enum { COLUMNS_MAX_OF_BAND = 9, STRIDE_MAX = 2 };
    return h->m[2].filter % 2 == 1 && h->m[2].filter <= COLUMNS_MAX_OF_BAND && h->m[1].stride <= STRIDE_MAX &&
           h->m[2].stride <= STRIDE_MAX && d->dilation_h == 1 && d->dilation_w == 1;
}

/* Sums of a thread for a row of a block: of pixels in the first half of a matrix alone, or in both. */
static int band_sums(const conv_halo_config *c)
{
    return (c->cols > CONV_HALO_WINDOW / 2 ? 4 : 2) * VECTOR;
}

/* As many stages as help, of as many CTAs an SM as registers and shared memory have room for, with two stages each. */
static void fill_sm(const ckl_device_info *device, int registers, int most, conv_halo_config *c)
{
    const conv_halo_shape s = conv_halo_shape_of(c);
    const int64_t more = s.stage_bytes + 16;
    for (c->ctas = most; c->ctas > 1; c->ctas--) // four or more stages an SM hide the latency of loads
        if (s.smem_bytes + more <= device->smem_per_sm_bytes / c->ctas - 1024 &&
            registers * s.threads * c->ctas <= 65536)
            break;
    c->stages = (int)min_i64(4, 1 + (device->smem_per_sm_bytes / c->ctas - 1024 - s.smem_bytes) / more);
}

/* One or two rows of y of a block, any number of windows side by side: three, in two CTAs an SM, take 3 to 5 % more. */
static void candidate_bands(const ckl_conv_desc *d, const ckl_device_info *device, int i, conv_halo_config *c)
{
    enum { ROWS = 16, REST = 66, EPILOGUE = 16 }; // registers: bands of a row in use, the rest, what else is held
    const conv_halo_problem *h = problem_of(d);
    const int rows = 1 + i % BAND_ROWS;
    c->bands = true;
    c->lanes = CONV_HALO_GROUPS;
    c->cols = conv_halo_band_columns(c);
    c->wide = 1 << i / BAND_ROWS;
    c->images = 1;
    while (c->images < CONV_HALO_LANES / c->wide && c->cols * c->wide >= h->m[2].y &&
           conv_halo_blocks(c) / 2 * rows >= h->m[1].y)
        c->images *= 2;
    c->high = rows * conv_halo_blocks(c);
    c->stages = 1;
    const bool more = d->residual || d->scale || d->epilogue;
    fill_sm(device, rows * (band_sums(c) + ROWS) + REST + (more ? EPILOGUE : 0), BAND_CTAS_MAX, c);
}

/* Several images, where one is less than a tile. */
static void take_images(const ckl_conv_desc *d, conv_halo_config *c)
{
    enum { WORKERS = 128 };
    const conv_halo_problem *h = problem_of(d);
    if (c->high == h->m[1].y && c->cols * c->wide >= h->m[2].y)
        c->images = (int)max_i64(1, min_i64(min_i64(d->n, IMAGES_MAX), WORKERS / conv_halo_shape_of(c).workers));
}

/*
 * Lanes of a tile: 4, or 8, or by strides, where y is the smaller part of the bytes, all of a pixel, whose rows lie
 * side by side in memory: 96 channels of 112x112 by stride 2 take 29.1 us, 33.3 in pieces of 32.
 */
static int lanes_of(const ckl_conv_desc *d, bool half)
{
    const int64_t all = d->k / VECTOR;
    return half ? LANES / 2 : d->stride_w > 1 && all > LANES && all <= LANES_MAX ? (int)all : LANES;
}

/*
 * Small problems have the same once more with a quarter of the lanes, and threads along a row share the columns of one.
 */
static bool candidate_halo(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { BANDS = 4 * BAND_ROWS, REST = 56 }; // REST: registers beside sums and taps of a row
    static const int heights[] = { 16, 14, 8, 7, 4 };
    const int count = 4 * COUNT_OF(heights);
    const ckl_conv_desc *d = desc;
    conv_halo_config *c = config;
    const conv_halo_problem *h = problem_of(d);
    const int bands = may_be_bands(d, h) ? BANDS : 0, first = i;
    const bool finer = i - bands >= count;
    if (i >= bands + (is_small(d, h, device->sm_count) ? 2 * count : count))
        return false;
    i = (i < bands ? 0 : i - bands) % count;
    const int few = d->k <= VECTOR ? 1 : d->k <= 2 * VECTOR ? 2 : 0; // lanes that all channels fill
    *c = (conv_halo_config){ .form = conv_form_of(d),
                             .lanes = few     ? few
                                      : finer ? LANES / (i % 2 ? 8 : 4)
                                              : lanes_of(d, i % 2),
                             .cols = columns_of(h->m[2].y),
                             .wide = (i / 2 % 2 + 1) << (few && i % 2),
                             .high = (int)min_i64(heights[i / 4], h->m[1].y),
                             .images = 1,
                             .rows = conv_config_number(h->m[1].filter),
                             .columns = conv_config_number(h->m[2].filter),
                             CONV_STEPS_OF(d),
                             .stages = 1 };
    if (first < bands) {
        candidate_bands(d, device, first, c);
        return true;
    }
    if (finer && c->wide > 1)
        c->cols = (int)ceil_div(c->cols, c->wide);
    if (!finer)
        take_images(d, c);
    fill_sm(device, c->cols * VECTOR + VECTOR * c->columns + REST, CTAS_MAX, c);
    return true;
}

static double tiles_of(const ckl_conv_desc *d, const conv_halo_config *c)
{
    const conv_halo_problem *h = problem_of(d);
    return (double)ceil_div(d->n, c->images) * (double)ceil_div(h->m[1].y, c->high) *
           (double)ceil_div(h->m[2].y, (int64_t)c->cols * c->wide);
}

static int64_t channel_tiles(const ckl_conv_desc *d, const conv_halo_config *c)
{
    return ceil_div(d->k, c->lanes * VECTOR);
}

/* Instructions of an element for an activation that is no step. */
static double smooth_of(const conv_halo_config *c)
{
    enum { SMOOTH = 4 };
    return c->form.activation > CKL_ACTIVATION_RELU ? SMOOTH : 0;
}

/*
 * Instructions of a warp for a tile: loads, permutes and bands of each row of x, products, sums that are looked at and
 * stored.
 */
static double band_instructions(const conv_halo_config *c)
{
    enum { ROW = 44, STORE = 3, TILE = 150 };
    const int rows = c->high / conv_halo_blocks(c);
    return TILE + ((rows - 1.0) * c->step_h + c->rows) * ROW +
           (double)rows * (c->rows * VECTOR + band_sums(c) * (STORE + smooth_of(c)));
}

/* The same by multiply-adds, which hide half of an activation. */
static double row_instructions(const conv_halo_config *c)
{
    enum { STORE = 20 };
    const int span = (c->cols - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1;
    const double row = span * (VECTOR + 2) + c->columns * (2 + c->cols * VECTOR);
    return c->rows * row + c->cols * (STORE + VECTOR * smooth_of(c) / 2);
}

/*
 * Cycles of a tile: the longer of its instructions, 0.3 a cycle for each warp at work (7x7: 62.8 us with four, 49.3
 * with six), of bands 0.25 and 1.8 of an SM, and of its box, each row of which takes some cycles, as do its bytes from
 * L2.
 */
static plan_cost cost_halo(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { SECTOR = 32, CUT = 3 }; // 120 channels of 8 images of 200x200: 106 us
    const double ROW = 2.7, BYTES = 42, WARP = 0.3, ISSUED = 3, BANDS_WARP = 0.25, BANDS = 1.8, TILE = 300, START = 3,
                 FILL = 0.1, FILTER = 0.087, HERTZ = 1.7e9, MEMORY = 4e6,
                 WHOLE = 4.4e6; // bytes a us, in pieces of a pixel and whole
    const ckl_conv_desc *d = desc;
    const conv_halo_config *c = config;
    const conv_halo_shape s = conv_halo_shape_of(c);
    const double warps = ceil(s.workers / 32.0), of_sm = warps * c->ctas; // instructions a cycle
    const double issue = warps * (c->bands ? band_instructions(c) / fmin(BANDS, BANDS_WARP * of_sm)
                                           : row_instructions(c) / fmin(ISSUED, WARP * of_sm));
    const double load = fmax(ROW * s.box_w * s.box_h * c->images, (double)s.stage_bytes / BYTES);
    const double turns = tiles_of(d, c) * (double)channel_tiles(d, c) / device->sm_count;
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    const double bytes = 2.0 * (double)d->n * (double)d->k * ((double)(d->h * d->w) + (double)(m[1].y * m[2].y));
    const conv_halo_problem *h = problem_of(d);
    const double filters =
        is_small(d, h, device->sm_count) ? FILTER * s.channels * c->rows * c->columns / s.threads : 0;
    const double us = fmax(1, turns) * (fmax(issue, load) + (c->bands ? 0 : TILE / c->ctas)) / HERTZ * 1e6;
    const bool cut = d->k % (SECTOR / 2) && s.channels < d->k; // pieces of a pixel that begin inside sectors
    const double memory = bytes / (c->lanes > LANES ? WHOLE : cut ? MEMORY / CUT : MEMORY);
    return (plan_cost){ START + (c->bands ? FILL : 0) + filters + fmax(us, memory) + fmin(us, memory) / 4,
                        issue > load ? "multiply-adds" : "loads" };
}

static ckl_status check_problem(const ckl_conv_desc *d)
{
    if (d->groups != d->c || d->groups != d->k)
        FAIL(CKL_UNSUPPORTED, "conv halo: groups=%" PRId64 " are not c=%" PRId64 " and k=%" PRId64 " channels",
             d->groups, d->c, d->k);
    if (d->direction == CKL_CONV_WEIGHT || (d->direction == CKL_CONV_DATA && (d->stride_h > 1 || d->stride_w > 1)))
        FAIL(CKL_UNSUPPORTED, "conv halo: of gradients it computes that of data of stride 1");
    if (d->layout != CKL_IMAGE_NHWC || ckl_dtype_bytes(d->dtype) != 2 || d->k % VECTOR)
        FAIL(CKL_UNSUPPORTED, "conv halo: it takes f16 and bf16 in NHWC, and channels that are whole 16 bytes");
    if (conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv halo: volumes are convolved by other kernels");
    if (d->n > INT32_MAX / 2 || d->h > INT32_MAX / 4 || d->w > INT32_MAX / 4 || d->k > INT32_MAX / 128)
        FAIL(CKL_UNSUPPORTED, "conv halo: a size is beyond 32-bit numbers");
    return CKL_OK;
}

static ckl_status check_bands(const ckl_conv_desc *d, const conv_halo_config *c)
{
    if (!may_be_bands(d, problem_of(d)))
        FAIL(CKL_UNSUPPORTED,
             "conv halo: bands=1 takes filters of up to 9 columns, an odd number, strides of up to 2 and no dilation");
    if (c->lanes != CONV_HALO_GROUPS || c->cols != conv_halo_band_columns(c) || c->ctas < 1 ||
        c->ctas > BAND_CTAS_MAX || !is_power_of_two(c->wide) || c->wide > CONV_HALO_LANES ||
        !is_power_of_two(c->images) || c->images > CONV_HALO_LANES || c->wide * c->images > CONV_HALO_LANES ||
        c->high < 1 || c->high % conv_halo_blocks(c) || c->high / conv_halo_blocks(c) > BAND_ROWS_MAX)
        FAIL(
            CKL_INVALID,
            "conv halo: bands=1, but lanes=%d, cols=%d, wide=%d, images=%d, high=%d are not 4, what fits 16 columns, 8 "
            "blocks and up to %d rows for each",
            c->lanes, c->cols, c->wide, c->images, c->high, BAND_ROWS_MAX);
    return CKL_OK;
}

static ckl_status admit_halo(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_halo_config *c = config;
    TRY(check_problem(d));
    TRY(conv_check_form("halo", d, &c->form));
    TRY(conv_check_vectors("halo", d));
    const conv_halo_problem *h = problem_of(d);
    if (c->rows != h->m[1].filter || c->columns != h->m[2].filter || !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID, "conv halo: the config's filter, strides or dilations are not the problem's");
    if (c->bands)
        TRY(check_bands(d, c));
    else if (c->lanes < 1 || c->lanes > LANES_MAX || c->cols < 1 || c->cols > COLUMNS_MAX || c->wide < 1 ||
             c->wide > WIDE_MAX || c->high < 1 || c->high > 16 || c->images < 1 || c->images > IMAGES_MAX ||
             c->ctas < 1 || c->ctas > CTAS_MAX)
        FAIL(CKL_INVALID,
             "conv halo: lanes=%d, cols=%d, wide=%d, high=%d, images=%d or ctas=%d is not in 1..32, 1..8, 1..16, "
             "1..16, "
             "1..32, 1..4",
             c->lanes, c->cols, c->wide, c->high, c->images, c->ctas);
    if (!c->bands && c->images > 1 && (c->high < h->m[1].y || c->cols * c->wide < h->m[2].y))
        FAIL(CKL_INVALID, "conv halo: images=%d, but a tile of %dx%d pixels has not all of theirs", c->images, c->high,
             c->cols * c->wide);
    const conv_halo_shape s = conv_halo_shape_of(c);
    if (c->rows * c->columns > TAPS_MAX || s.box_w > 256 || s.box_h > 256 || c->stages < 2 || s.threads > 512 ||
        s.smem_bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "conv halo: a filter of %dx%d, a box of %dx%d, or %d stages of it, are too large, or one",
             c->rows, c->columns, s.box_h, s.box_w, c->stages);
    if (tiles_of(d, c) > INT32_MAX / 2 || channel_tiles(d, c) > UINT16_MAX)
        FAIL(CKL_UNSUPPORTED, "conv halo: %g tiles are beyond 32-bit numbers", tiles_of(d, c));
    return CKL_OK;
}

static ckl_status launch_halo(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_halo_problem *h = problem_of(d);
    const ckl_conv_args a = conv_turned_args(d, args);
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    if (!PLAN_ALIGNED(16, a.x, a.y, a.residual))
        FAIL(CKL_INVALID, "conv halo: a pointer is not aligned to 16 bytes; impl=depthwise takes any");
    conv_params p = conv_params_of(d, &a);
    const int64_t row = 2 * conv_halo_shape_of(plan->config).channels,
                  row_bytes = row < 2 * d->k ? row : 256; // whole pixels lie side by side
    p.mX = conv_pixels(a.x, &x, row_bytes);
    p.mY = conv_pixels(a.y, &y, row_bytes);
    p.tap = (uint32_t)h->tap; // modulo 2^32, as are its steps
    for (int i = 0; i < CONV_MODES; i++) {
        p.tap_step[i] = (uint32_t)h->tap_step[i];
        p.y_size[i] = h->m[i].y;
        p.pad[i] = h->m[i].pad;
    }
    for (int i = 0; i < CONV_RANK; i++)
        p.y[i] = y.stride[i];
    const int64_t tiles = (int64_t)tiles_of(d, plan->config), channels = channel_tiles(d, plan->config);
    const int64_t ctas = max_i64(1, plan->kernels[0].clusters_resident / channels);
    return plan_launch(plan, 0, (plan_grid){ .x = min_i64(tiles, ctas), .y = channels, .z = 1 }, &p, stream);
}

static const field halo_fields[] = { CONV_FORM(FIELD_NESTED, (conv_halo_config, form)) //
                                     CONV_HALO_CONFIG(FIELD_ROW, conv_halo_config) };

const implementation conv_halo_implementation = {
    CONV_RANKED(halo, conv_halo_config),
    .summary = "a filter a channel: tiles of x with their halo in shared memory, by TMA; NHWC, from sm_90 on",
    .describe = conv_halo,
    .rivals = { &conv_sliding_implementation },
    .params = &conv_param_list,
    .target = IR_SM90,
};
