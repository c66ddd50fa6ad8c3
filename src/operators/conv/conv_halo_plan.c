/* conv_halo_plan.c - the host side of the Hopper kernel of a filter a channel: its problems, their cost, launches. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

enum {
    VECTOR = CONV_HALO_VECTOR,
    WARPS = 4,     // to consider, or fewer where channels are few
    WARPS_MAX = 8, // of 128 bytes of a pixel
    TAPS_MAX = 64,
    COLUMNS_MAX = 9, // of a filter
    STEP_MAX = 2,
    SUMS = 4 * VECTOR, // of a thread for a row of a block
    CTAS_MAX = 3,      // of an SM
    ROWS = 2,          // of a block, to consider: three, in two CTAs an SM, take 3 to 5 % more
    ROWS_MAX = 3,      // of a block: four spill, by the epilogues that need most
};

conv_halo_shape conv_halo_shape_of(const conv_halo_config *c)
{
    enum { PADDING = 4 };
    conv_halo_shape s = { .channels = c->warps * VECTOR, .threads = 32 * c->warps };
    s.cols = (int)min_i64(CONV_HALO_COLUMNS, (CONV_HALO_WINDOW - c->columns) / c->step_w + 1);
    s.box_w =
        (int)round_up((c->wide - 1) * s.cols * c->step_w + CONV_HALO_WINDOW, 8); // rows begin where a swizzle does
    s.box_h = (c->high - 1) * c->step_h + c->rows;
    s.stage_bytes = round_up((int64_t)s.channels * s.box_w * s.box_h * c->images * 2, 128);
    s.smem_bytes = c->stages * (s.stage_bytes + 16) + 4 * (int64_t)(s.channels + PADDING) * c->rows * c->columns + 256;
    s.smem_bytes += (int64_t)s.channels * (2 * 2 * conv_halo_band(c) * c->rows +
                                           s.cols * c->wide * c->high * c->images * (int)ckl_dtype_bytes(c->form.out)) +
                    1024;
    return s;
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

/* As many stages as help, of as many CTAs an SM as registers and shared memory have room for, with two stages each. */
static void fill_sm(const ckl_device_info *device, int registers, conv_halo_config *c)
{
    const conv_halo_shape s = conv_halo_shape_of(c);
    const int64_t more = s.stage_bytes + 16;
    for (c->ctas = CTAS_MAX; c->ctas > 1; c->ctas--) // four or more stages an SM hide the latency of loads
        if (s.smem_bytes + more <= device->smem_per_sm_bytes / c->ctas - 1024 &&
            registers * s.threads * c->ctas <= 65536)
            break;
    c->stages = (int)min_i64(4, 1 + (device->smem_per_sm_bytes / c->ctas - 1024 - s.smem_bytes) / more);
}

/*
 * One or two rows of y of a block, any number of windows side by side, several images where one is less than a tile;
 * the same of 64 channels where pieces of 32 would begin inside sectors.
 */
static bool candidate_halo(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { WIDTHS = 4, BANDS = 16, REST = 82, EPILOGUE = 16 }; // registers: bands in use, the rest, what else is held
    const ckl_conv_desc *d = desc;
    conv_halo_config *c = config;
    const conv_halo_problem *h = &conv_prepared_of(d)->halo;
    const int rows = 1 + i % ROWS, few = d->k <= 2 * VECTOR ? 2 : WARPS;
    const bool cut = d->k > WARPS * VECTOR && d->k % (2 * VECTOR) && ckl_dtype_bytes(d->out) == 2;
    if (i >= (cut ? 2 : 1) * WIDTHS * ROWS)
        return false;
    *c = (conv_halo_config){ .form = conv_form_of(d),
                             .warps = i < WIDTHS * ROWS ? few : WARPS_MAX,
                             .wide = 1 << i / ROWS % WIDTHS,
                             .images = 1,
                             .stages = 1,
                             .rows = conv_config_number(h->m[1].filter),
                             .columns = conv_config_number(h->m[2].filter),
                             CONV_STEPS_OF(d) };
    if (c->columns > COLUMNS_MAX)
        return true; // admission says so
    while (c->images < CONV_HALO_LANES / c->wide && conv_halo_shape_of(c).cols * c->wide >= h->m[2].y &&
           conv_halo_blocks(c) / 2 * rows >= h->m[1].y)
        c->images *= 2;
    c->high = rows * conv_halo_blocks(c);
    const bool more = d->residual || d->scale || d->epilogue;
    fill_sm(device, rows * (SUMS + BANDS) + REST + (more ? EPILOGUE : 0), c);
    return true;
}

static double tiles_of(const ckl_conv_desc *d, const conv_halo_config *c)
{
    const conv_halo_problem *h = &conv_prepared_of(d)->halo;
    return (double)ceil_div(d->n, c->images) * (double)ceil_div(h->m[1].y, c->high) *
           (double)ceil_div(h->m[2].y, (int64_t)conv_halo_shape_of(c).cols * c->wide);
}

static int64_t channel_tiles(const ckl_conv_desc *d, const conv_halo_config *c)
{
    return ceil_div(d->k, c->warps * VECTOR);
}

/*
 * Instructions of a warp for a tile: loads, permutes and bands of each row of x, products, sums that are looked at and
 * stored.
 */
static double instructions_of(const conv_halo_config *c)
{
    enum {
        ROW = 62,
        PRODUCTS = 18,
        STORE = 3,
        TILE = 90,
        SMOOTH = 5
    }; // PRODUCTS: of all channels with a row of a filter
    const int rows = c->high / conv_halo_blocks(c), smooth = c->form.activation > CKL_ACTIVATION_RELU ? SMOOTH : 0;
    return TILE + ((rows - 1.0) * c->step_h + c->rows) * ROW +
           (double)rows * (c->rows * PRODUCTS + SUMS * (STORE + smooth));
}

/*
 * Cycles of a tile: the longer of its instructions, 0.25 a cycle for each warp at work and 1.8 of an SM, and of its
 * box, each row of which takes some cycles, as do its bytes from L2. Pieces of lines keep L2 busy: 384 channels of 8
 * images of 256x256 take 257 us, 32 of 16 of 640x640 223, 96 of 32 of 112x112 by stride 2 28.8.
 * Small images are in L2 early. Strides of 2 under 5x5 take longer (144 of 56x56 19.2 us, 13.4 by `sliding`).
 * One window a row takes longer (96 of 56x56 under 7x7 22.3 us, 21.1 by two), and so do several images a tile (1152 of
 * 7x7 under 5x5 9.8, 8.2 by `sliding`) and filters of few columns (144 of 56x56 under 3x3 22.0).
 */
static plan_cost cost_halo(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { SECTOR = 32, CUT = 3 }; // 120 channels of 8 images of 200x200: 106 us
    const double ROW = 2.4, BYTES = 42, WARP = 0.25, ISSUED = 1.8, ALONE = 1.06, START = 2.9, EARLY = 0.6,
                 FILTER = 0.06, HERTZ = 1.7e9, READ = 4.2e6, WRITTEN = 3.4e6,
                 WHOLE = 1.15; // bytes a us; of whole pixels
    const double NARROW = 1.05, FEW = 1.03, STEPS = 1.15, SEVERAL = 0.1;
    const ckl_conv_desc *d = desc;
    const conv_halo_config *c = config;
    const conv_halo_shape s = conv_halo_shape_of(c);
    const double alone = c->ctas == 1 ? ALONE : 1; // nobody works while it stores
    const double issue = alone * c->warps * instructions_of(c) / fmin(ISSUED, WARP * c->warps * c->ctas);
    const double load = fmax(ROW * s.box_w * s.box_h * c->images, (double)s.stage_bytes / BYTES);
    const double of_sm = tiles_of(d, c) * (double)channel_tiles(d, c) / device->sm_count;
    const bool few =
        of_sm > c->ctas && of_sm < 4 * c->ctas; // 480 tiles by 396 CTAs take two turns: 6.7 us by 960 of 7x7
    const double turns = few ? ceil(of_sm / c->ctas) * c->ctas : of_sm;
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    const double us = fmax(1, turns) * fmax(issue, load) / HERTZ * 1e6, images = 2 * (double)d->n * (double)d->k;
    const double pixels_x = (double)(x.shape[2] * x.shape[3]), pixels_y = (double)(y.shape[2] * y.shape[3]);
    const bool cut = d->k % (SECTOR / 2) && d->k > s.channels && // pieces of a pixel that begin inside sectors
                     images * (pixels_x + pixels_y) > (double)device->l2_bytes;
    const double memory = images * (pixels_x / READ + pixels_y / WRITTEN) *
                          (cut                 ? CUT
                           : s.channels < d->k ? 1
                                               : 1 / WHOLE);
    const double filters = turns < 1 ? FILTER * c->rows * c->columns : 0; // which nothing hides
    const double narrow = c->step_w == 1 ? (c->wide == 1 && c->images == 1 ? NARROW : 1) * (c->columns <= 3 ? FEW : 1)
                                         : (c->columns > 3 ? STEPS : 1),
                 several = c->images > 1 ? SEVERAL : 0;
    return (plan_cost){ START - (conv_is_early(d) ? EARLY : 0) + filters + several + narrow * fmax(us, memory) +
                            fmin(us, memory) / 8,
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

/* Words of x are pairs of columns, so windows begin at even ones. */
static ckl_status check_filter(const ckl_conv_desc *d, const conv_halo_problem *h)
{
    if (h->m[2].filter % 2 == 0 || h->m[2].filter > COLUMNS_MAX || h->m[1].filter * h->m[2].filter > TAPS_MAX ||
        d->stride_h > STEP_MAX || d->stride_w > STEP_MAX || d->dilation_h > 1 || d->dilation_w > 1)
        FAIL(CKL_UNSUPPORTED,
             "conv halo: it takes filters of up to %d columns, an odd number, and %d taps, strides of up to %d and no "
             "dilation",
             COLUMNS_MAX, TAPS_MAX, STEP_MAX);
    return CKL_OK;
}

static ckl_status admit_halo(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_halo_config *c = config;
    TRY(check_problem(d));
    TRY(conv_check_form("halo", d, &c->form));
    TRY(conv_check_vectors("halo", d));
    const conv_halo_problem *h = &conv_prepared_of(d)->halo;
    TRY(check_filter(d, h));
    if (c->rows != h->m[1].filter || c->columns != h->m[2].filter || !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID, "conv halo: the config's filter, strides or dilations are not the problem's");
    if (!is_power_of_two(c->warps) || c->warps < 2 || c->warps > WARPS_MAX ||
        c->warps * VECTOR * (int64_t)ckl_dtype_bytes(d->out) > 128 || c->ctas < 1 || c->ctas > CTAS_MAX ||
        !is_power_of_two(c->wide) || c->wide > CONV_HALO_LANES || !is_power_of_two(c->images) ||
        c->images > CONV_HALO_LANES || c->wide * c->images > CONV_HALO_LANES || c->high < 1 ||
        c->high % conv_halo_blocks(c) || c->high / conv_halo_blocks(c) > ROWS_MAX)
        FAIL(CKL_INVALID,
             "conv halo: warps=%d, wide=%d, high=%d, images=%d or ctas=%d are not 2, 4 or 8 of up to 128 bytes of a "
             "pixel of y, 8 blocks of up to %d rows, or 1..%d",
             c->warps, c->wide, c->high, c->images, c->ctas, ROWS_MAX, CTAS_MAX);
    const conv_halo_shape s = conv_halo_shape_of(c);
    if (s.box_w > 256 || s.box_h > 256 || c->stages < 2 || s.smem_bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "conv halo: a box of %dx%d, or %d stages of it, are too large, or one", s.box_h, s.box_w,
             c->stages);
    if (tiles_of(d, c) > INT32_MAX / 2 || channel_tiles(d, c) > UINT16_MAX)
        FAIL(CKL_UNSUPPORTED, "conv halo: %g tiles are beyond 32-bit numbers", tiles_of(d, c));
    return CKL_OK;
}

static ckl_status launch_halo(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_halo_problem *h = &conv_prepared_of(d)->halo;
    const ckl_conv_args a = conv_turned_args(d, args);
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    if (!PLAN_ALIGNED(16, a.x, a.y, a.residual))
        FAIL(CKL_INVALID, "conv halo: a pointer is not aligned to 16 bytes; impl=depthwise takes any");
    conv_params p = conv_params_of(plan, d, &a);
    conv_read_early(&p, 0, a.x, conv_span_bytes(&x, d->dtype)); // of a gradient dy
    const int64_t channels_of_row = conv_halo_shape_of(plan->config).channels,
                  row_bytes = channels_of_row < d->k ? 2 * channels_of_row : 256; // whole pixels lie side by side
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

static const field halo_fields[] = CONV_FIELDS(conv_halo_config, CONV_HALO_CONFIG);

const implementation conv_halo_implementation = {
    CONV_RANKED(halo, conv_halo_config),
    .summary = "a filter a channel: tiles of x with their halo in shared memory, by TMA; NHWC, from sm_90 on",
    .describe = conv_halo,
    .rivals = { &conv_sliding_implementation },
    .params = &conv_param_list,
    .target = IR_SM90,
};
