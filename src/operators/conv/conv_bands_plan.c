/* conv_bands_plan.c - the host side of a filter a channel in planes by tensor cores: problems, costs, launches. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_bands.h"

enum {
    WIDE_MAX = 128,  // columns of y: sums stay in registers
    HIGH_MAX = 1000, // rows
    ROWS_MAX = 9,    // of a filter: their bands stay in registers
    CTAS_MAX = 8,    // of an SM
    WARPS_MAX = 8,
    EVEN = 2, // sums come in pairs
};

conv_bands_shape conv_bands_shape_of(const conv_bands_config *c)
{
    conv_bands_shape s = { .threads = 32 * c->warps, .blocks = (int)ceil_div(c->lead + c->wide, BANDS_BLOCK) };
    s.box_h = c->high - 1 + c->rows;
    s.x_rows = s.box_h * c->images;
    s.x_pitch = BANDS_BLOCK * ((s.blocks + 1) | 1);
    s.y_pitch = BANDS_BLOCK * ((int)ceil_div(bands_edge(c) - c->lead + BANDS_BLOCK * s.blocks, BANDS_BLOCK) | 1);
    s.smem_bytes = 2 * ((int64_t)s.x_pitch * s.x_rows + BANDS_BAND * c->rows) +
                   (int64_t)s.y_pitch * BANDS_ROWS * c->warps * (int)ckl_dtype_bytes(c->form.out) + 64;
    return s;
}

/*
 * Copies are of as many columns as divide a row of x and leave windows where every tap sees its columns, and the first
 * block begins before y by whole pairs.
 */
static void derive(const ckl_conv_desc *d, conv_bands_config *c)
{
    const ckl_conv_desc forward = conv_turned(d);
    const int64_t pad = forward.pad_left;
    const int room = BANDS_COLUMNS_MAX - c->columns;
    for (c->unit = 8; c->unit > 1; c->unit /= 2) {
        const int before = (int)((c->unit - pad % c->unit) % c->unit); // from where copies begin to the first tap's
        if (forward.w % c->unit)
            continue;
        for (c->shift = before < room ? before : room; c->shift > 0 && (before - c->shift) % EVEN; c->shift--)
            ;
        c->lead = before - c->shift;
        if (c->lead % EVEN == 0)
            break;
    }
    if (c->unit == 1)
        c->lead = c->shift = 0;
    c->run = 16 / (int)ckl_dtype_bytes(c->form.out);
    while (c->wide % c->run)
        c->run /= 2;
}

/* Registers of a thread: bands, sums, windows, and what else ptxas wants. */
static int registers_of(const conv_bands_config *c)
{
    const conv_bands_shape s = conv_bands_shape_of(c);
    return 2 * c->rows + 4 * s.blocks + 2 * (s.blocks + 1) + 32;
}

static int ctas_of(const conv_bands_config *c, const ckl_device_info *device)
{
    const conv_bands_shape s = conv_bands_shape_of(c);
    const int64_t by_smem = device->smem_per_sm_bytes / (s.smem_bytes + 1024),
                  by_registers = 65536 / ((int64_t)s.threads * round_up(registers_of(c), 8));
    return (int)max_i64(1, min_i64(CTAS_MAX, min_i64(by_smem, by_registers)));
}

/*
 * Images of ROWS rows, or fewer where planes are few: two of 56x56, four of 28x28, eight of 14x14 and 16 of 7x7 take
 * 19.2, 12.2, 10.6 and 8.9 us, twice as many 1.15 to 1.35 times that.
 */
static bool candidate_bands(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { COUNTS = 4, ROWS = 112, WARPS = 4 };
    const ckl_conv_desc *d = desc;
    conv_bands_config *c = config;
    if (i >= COUNTS)
        return false;
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    *c = (conv_bands_config){ .form = conv_form_of(d),
                              .wide = conv_config_number(y.shape[3]),
                              .high = conv_config_number(y.shape[2]),
                              .x_wide = conv_config_number(x.shape[3]),
                              .x_high = conv_config_number(x.shape[2]),
                              .rows = conv_config_number(d->r),
                              .columns = conv_config_number(d->s) };
    if (c->columns > BANDS_COLUMNS_MAX || c->wide < 1 || c->high < 1)
        return true; // admission says so
    const int64_t images = max_i64(1, (ROWS >> i) / c->high);
    c->images = (int)max_i64(1, ceil_div(d->n, max_i64(1, ceil_div(d->n, images))));
    c->warps = (int)min_i64(WARPS, ceil_div((int64_t)c->images * c->high, BANDS_ROWS));
    derive(d, c);
    c->ctas = ctas_of(c, device);
    return true;
}

static ckl_status check_problem(const ckl_conv_desc *d)
{
    const ckl_conv_desc forward = conv_turned(d);
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    if (d->groups != d->c || d->groups != d->k)
        FAIL(CKL_UNSUPPORTED, "conv bands: groups=%" PRId64 " are not c=%" PRId64 " and k=%" PRId64 " channels",
             d->groups, d->c, d->k);
    if (d->direction == CKL_CONV_WEIGHT || d->stride_h > 1 || d->stride_w > 1 || d->dilation_h > 1 || d->dilation_w > 1)
        FAIL(CKL_UNSUPPORTED, "conv bands: it takes the forward problem and the gradient of data, without strides and "
                              "dilation");
    if (d->layout != CKL_IMAGE_NCHW || ckl_dtype_bytes(d->dtype) != 2)
        FAIL(CKL_UNSUPPORTED, "conv bands: it takes f16 and bf16 in NCHW");
    if (conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv bands: volumes are convolved by other kernels");
    if (d->s > BANDS_COLUMNS_MAX || d->r > ROWS_MAX)
        FAIL(CKL_UNSUPPORTED, "conv bands: a filter of %" PRId64 "x%" PRId64 " is more than %d rows and %d columns",
             d->r, d->s, ROWS_MAX, BANDS_COLUMNS_MAX);
    if (y.shape[3] > WIDE_MAX || y.shape[2] > HIGH_MAX)
        FAIL(CKL_UNSUPPORTED, "conv bands: planes of %" PRId64 "x%" PRId64 " are more than %d rows of %d columns",
             y.shape[2], y.shape[3], HIGH_MAX, WIDE_MAX);
    if (forward.pad_top < 0 || forward.pad_bottom < 0 || forward.pad_left < 0 || forward.pad_right < 0)
        FAIL(CKL_UNSUPPORTED, "conv bands: dx has places of dy alone that a filter sees as a whole");
    return conv_check_dense("bands", d);
}

static ckl_status admit_bands(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_bands_config *c = config;
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    TRY(check_problem(d));
    TRY(conv_check_form("bands", d, &c->form));
    if (c->rows != d->r || c->columns != d->s || c->wide != y.shape[3] || c->high != y.shape[2] ||
        c->x_wide != x.shape[3] || c->x_high != x.shape[2])
        FAIL(CKL_INVALID, "conv bands: the config's filter, x or y are not the problem's");
    if (c->warps < 1 || c->warps > WARPS_MAX || c->ctas < 1 || c->ctas > CTAS_MAX || c->images < 1 ||
        c->images > INT16_MAX)
        FAIL(CKL_INVALID, "conv bands: warps=%d, ctas=%d or images=%d are not in 1..%d, 1..%d, 1..", c->warps, c->ctas,
             c->images, WARPS_MAX, CTAS_MAX);
    conv_bands_config own = *c;
    derive(d, &own);
    if (own.unit != c->unit || own.run != c->run || own.lead != c->lead || own.shift != c->shift)
        FAIL(CKL_INVALID,
             "conv bands: unit=%d, run=%d, lead=%d or shift=%d are not those of the problem, %d, %d, %d and %d",
             c->unit, c->run, c->lead, c->shift, own.unit, own.run, own.lead, own.shift);
    if (conv_bands_shape_of(c).smem_bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "conv bands: a tile of %d images of %dx%d is more than shared memory", c->images, c->high,
             c->wide);
    if (ceil_div(d->n, c->images) > UINT16_MAX)
        FAIL(CKL_UNSUPPORTED, "conv bands: n=%" PRId64 " images are too many for a grid", d->n);
    return CKL_OK;
}

static ckl_status launch_bands(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args a = conv_turned_args(d, args);
    if (!PLAN_ALIGNED(16, a.x, a.y, a.residual))
        FAIL(CKL_INVALID, "conv bands: a pointer is not aligned to 16 bytes; impl=sliding takes any");
    const conv_bands_config *c = plan->config;
    const conv_params p = conv_turned_params(plan, d, args);
    return plan_launch(plan, 0, (plan_grid){ .x = d->k, .y = ceil_div(d->n, c->images), .z = 1 }, &p, stream);
}

/* Instructions of a CTA: its start, copies, products of 16 rows, and what is finished and stored of them. */
static double instructions_of(const conv_bands_config *c)
{
    const double START = 250, COPY = 22, PRODUCT = 3.6, PAIRS = 14, ROWS = 60, STORE = 30, SMOOTH = 20, PLACE = 30;
    const conv_bands_shape s = conv_bands_shape_of(c);
    const double units = (double)c->images * c->x_high * c->x_wide / c->unit,
                 tiles = (double)ceil_div((int64_t)c->images * c->high, BANDS_ROWS);
    const double of_block = c->rows * PRODUCT + PAIRS + (c->form.activation > CKL_ACTIVATION_RELU ? SMOOTH : 0) +
                            (c->form.residual ? PLACE : 0);
    return START * c->warps + units / 32 * COPY +
           tiles * (ROWS + s.blocks * of_block + BANDS_ROWS * c->wide / 32.0 / c->run * STORE);
}

/*
 * An SM's instructions, or those of a CTA alone. Filters of few taps gain nothing: 144 of 56x56 under 3x3 take 20.1 to
 * 21.8 us, 20.2 by `sliding`. The cost of that one does not see planes that come in pieces (480 of 14x14 under 5x5
 * 14.2 us of 9.8, 768 of 7x7 under 7x7 24.8 of 7.1; here 10.6 and 8.9), so these cost less here, too.
 */
static plan_cost cost_bands(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { TAPS = 16, PIECE = 4 };
    const double RATE = 2, WARP = 0.4, START = 2500, HERTZ = 1.77e3, BYTES = 3.6e6, LAUNCH = 1.2, FEW = 1.4,
                 PIECES = 0.4;
    const ckl_conv_desc *d = desc;
    const conv_bands_config *c = config;
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    const double of_sm = (double)d->k * (double)ceil_div(d->n, c->images) / device->sm_count;
    const double instructions = instructions_of(c), alone = fmax(1, of_sm / c->ctas) * instructions / (WARP * c->warps);
    const double pieces = c->unit < PIECE ? PIECES : 1, few = c->rows * c->columns < TAPS ? FEW : 1;
    const double us = (START + pieces * fmax(of_sm * instructions / RATE, alone)) / HERTZ,
                 memory = 2 * (double)d->n * (double)(x.stride[0] + y.stride[0]) / BYTES;
    return (plan_cost){ few * (LAUNCH + fmax(us, memory)), us > memory ? "multiply-adds" : "memory" };
}

static const field bands_fields[] = CONV_FIELDS(conv_bands_config, CONV_BANDS_CONFIG);

const implementation conv_bands_implementation = {
    CONV_RANKED(bands, conv_bands_config),
    .summary = "a filter a channel of NCHW: rows of filters as bands of matrices, by mma.sync",
    .rivals = { &conv_sliding_implementation, &conv_depthwise_implementation },
    .describe = conv_bands,
    .params = &conv_param_list,
};
