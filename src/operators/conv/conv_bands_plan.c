/* conv_bands_plan.c - the host side of a filter a channel in planes by tensor cores: problems, configs, cost, launch. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_bands.h"
#include "skeletons/product_cost.h"

enum {
    WIDE_MAX = 64, // columns of y of a tile, to consider
    ROWS_MAX = 9,  // of a filter: their bands stay in registers
    CTAS_MAX = 8,  // of an SM
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
    s.stage_bytes = 2 * (int64_t)s.x_pitch * s.x_rows;
    s.smem_bytes = c->stages * s.stage_bytes + 2 * BANDS_BAND * c->rows +
                   (int64_t)s.y_pitch * BANDS_ROWS * c->warps * (int)ckl_dtype_bytes(c->form.out) + 64;
    return s;
}

/*
 * Copies are of as many columns as divide a row of x and leave windows where every tap sees its columns, and the first
 * block begins before the tile by whole pairs.
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
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    const conv_bands_shape s = conv_bands_shape_of(c);
    const bool whole = c->wide == y.shape[3] && c->high == y.shape[2] && pad >= 0 && forward.pad_top >= 0 &&
                       forward.pad_top + x.shape[2] <= s.box_h &&
                       pad + c->lead + c->shift + x.shape[3] <= BANDS_BLOCK * (s.blocks + 1);
    c->x_high = whole ? (int)x.shape[2] : 0;
    c->x_wide = whole ? (int)x.shape[3] : 0;
    c->run = 16 / (int)ckl_dtype_bytes(c->form.out);
    while (y.shape[3] % c->run || c->wide % c->run)
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

/* Tiles of about 16, 32, ... rows: of several images where one has fewer. */
static bool candidate_bands(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { COUNTS = 5, STAGES = 2 };
    const ckl_conv_desc *d = desc;
    conv_bands_config *c = config;
    if (i >= COUNTS * STAGES)
        return false;
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    const int64_t rows = (int64_t)BANDS_ROWS << i % COUNTS, high = max_i64(1, y.shape[2]),
                  wide = max_i64(1, y.shape[3]);
    *c = (conv_bands_config){ .form = conv_form_of(d),
                              .wide = (int)wide,
                              .high = (int)min_i64(rows, high),
                              .images = 1,
                              .stages = 1 + i / COUNTS,
                              .rows = conv_config_number(d->r),
                              .columns = conv_config_number(d->s) };
    if (c->columns > BANDS_COLUMNS_MAX)
        return true; // admission says so
    if (wide > WIDE_MAX)
        c->wide = (int)round_up(ceil_div(wide, ceil_div(wide, WIDE_MAX)), BANDS_BLOCK);
    if (high > rows)
        c->high = (int)ceil_div(high, ceil_div(high, rows));
    else
        c->images = (int)max_i64(1, ceil_div(d->n, max_i64(1, ceil_div(d->n, rows / high))));
    c->warps = (int)min_i64(4, ceil_div((int64_t)c->images * c->high, BANDS_ROWS));
    derive(d, c);
    c->ctas = ctas_of(c, device);
    return true;
}

static int64_t tiles_of_plane(const ckl_conv_desc *d, const conv_bands_config *c)
{
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    return product_i64(ceil_div(y.shape[2], c->high), ceil_div(y.shape[3], c->wide));
}

static ckl_status check_problem(const ckl_conv_desc *d)
{
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
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
    if (max_i64(product_i64(x.shape[2], x.shape[3]), product_i64(y.shape[2], y.shape[3])) > INT32_MAX / 32)
        FAIL(CKL_UNSUPPORTED, "conv bands: a plane is beyond 32-bit numbers");
    return conv_check_dense("bands", d);
}

static ckl_status admit_bands(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_bands_config *c = config;
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    TRY(check_problem(d));
    TRY(conv_check_form("bands", d, &c->form));
    if (c->rows != d->r || c->columns != d->s)
        FAIL(CKL_INVALID, "conv bands: the config's filter is not the problem's");
    if (c->warps < 1 || c->stages < 1 || c->stages > 2 || c->warps > WARPS_MAX || c->ctas < 1 || c->ctas > CTAS_MAX ||
        c->wide < 1 || c->high < 1 || c->images < 1 || c->high > INT16_MAX || c->images > INT16_MAX ||
        c->wide > 2 * WIDE_MAX || (c->wide < y.shape[3] && c->wide % BANDS_BLOCK) ||
        (c->high < y.shape[2] && c->images > 1))
        FAIL(CKL_INVALID,
             "conv bands: warps=%d, stages=%d, ctas=%d, wide=%d, high=%d or images=%d are not in 1..%d, 1..2, 1..%d, "
             "up to %d in whole "
             "%d columns, or several images of all rows",
             c->warps, c->stages, c->ctas, c->wide, c->high, c->images, WARPS_MAX, CTAS_MAX, 2 * WIDE_MAX, BANDS_BLOCK);
    conv_bands_config own = *c;
    derive(d, &own);
    if (own.unit != c->unit || own.run != c->run || own.lead != c->lead || own.shift != c->shift ||
        own.x_high != c->x_high || own.x_wide != c->x_wide)
        FAIL(CKL_INVALID,
             "conv bands: unit=%d, run=%d, lead=%d, shift=%d, x_high=%d or x_wide=%d are not those of the problem, %d, "
             "%d, %d, %d, %d and %d",
             c->unit, c->run, c->lead, c->shift, c->x_high, c->x_wide, own.unit, own.run, own.lead, own.shift,
             own.x_high, own.x_wide);
    if (conv_bands_shape_of(c).smem_bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "conv bands: a tile of %d images of %dx%d is more than shared memory", c->images, c->high,
             c->wide);
    if (tiles_of_plane(d, c) > UINT16_MAX || product_i64(d->k, ceil_div(d->n, c->images)) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv bands: tiles=%" PRId64 " of a plane, or their planes, are too many for a grid",
             tiles_of_plane(d, c));
    return CKL_OK;
}

/* CTAs that share the images of a tile: as many as the device holds at once, with as many turns each. */
static int64_t ctas_along_images(const ckl_conv_desc *d, const conv_bands_config *c, int64_t resident)
{
    const int64_t turns = ceil_div(d->n, c->images), most = resident / product_i64(d->k, tiles_of_plane(d, c));
    return turns ? ceil_div(turns, ceil_div(turns, max_i64(1, min_i64(most, turns)))) : 0;
}

static ckl_status launch_bands(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args a = conv_turned_args(d, args);
    if (!PLAN_ALIGNED(16, a.x, a.y, a.residual))
        FAIL(CKL_INVALID, "conv bands: a pointer is not aligned to 16 bytes; impl=sliding takes any");
    const conv_bands_config *c = plan->config;
    const conv_params p = conv_turned_params(d, args);
    const int64_t places = tiles_of_plane(d, c);
    return plan_launch(
        plan, 0,
        (plan_grid){ .x = d->k * ctas_along_images(d, c, plan->kernels[0].clusters_resident), .y = places, .z = 1 }, &p,
        stream);
}

/* Instructions of a CTA for the images of a turn: copies, products of 16 rows, and what is finished and stored of them. */
static double instructions_of(const conv_bands_config *c)
{
    const double COPY = 22, PRODUCT = 3.6, PAIRS = 14, ROWS = 60, STORE = 30, SMOOTH = 5, PLACE = 30;
    const conv_bands_shape s = conv_bands_shape_of(c);
    const double units = c->x_high ? (double)c->images * c->x_high * c->x_wide / c->unit
                                   : (double)s.x_rows * BANDS_BLOCK * (s.blocks + 1) / c->unit,
                 tiles = (double)ceil_div((int64_t)c->images * c->high, BANDS_ROWS);
    const double smooth = c->form.activation > CKL_ACTIVATION_RELU ? 4 * SMOOTH : 0,
                 of_block = c->rows * PRODUCT + PAIRS + smooth + (c->form.residual ? PLACE : 0);
    return units / 32 * COPY + tiles * (ROWS + s.blocks * of_block + BANDS_ROWS * c->wide / 32.0 / c->run * STORE);
}

/* A CTA's turns, in which an SM's CTAs share its instructions, or the bytes. */
static plan_cost cost_bands(const void *desc, const ckl_device_info *device, const void *config)
{
    const double RATE = 2, WARP = 0.4, WAIT = 1200, START = 2500, BYTES = 3.6e6;
    const ckl_conv_desc *d = desc;
    const conv_bands_config *c = config;
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    const int64_t ctas = ctas_along_images(d, c, (int64_t)c->ctas * device->sm_count);
    const double instructions = instructions_of(c), again = (double)conv_bands_shape_of(c).box_h / c->high;
    return product_cost(
        &(product_work){ .tiles = (double)d->k * (double)(ctas * tiles_of_plane(d, c)),
                         .ctas = c->ctas,
                         .steps = (double)ceil_div(ceil_div(d->n, c->images), max_i64(1, ctas)),
                         .multiply_adds = instructions,
                         .rate = fmin(RATE, WARP * c->warps * c->ctas),
                         .step_cycles = instructions / c->warps / WARP + (c->stages == 1 ? WAIT : 0),
                         .tile_cycles = START,
                         .bytes = 2 * (double)d->n *
                                  ((c->high < y.shape[2] ? again : 1) * (double)x.stride[0] + (double)y.stride[0]),
                         .bytes_per_us = BYTES },
        device);
}

static const field bands_fields[] = CONV_FIELDS(conv_bands_config, CONV_BANDS_CONFIG);

const implementation conv_bands_implementation = {
    CONV_RANKED(bands, conv_bands_config),
    .summary = "a filter a channel of NCHW: rows of filters as bands of matrices, by mma.sync",
    .rivals = { &conv_sliding_implementation, &conv_depthwise_implementation },
    .describe = conv_bands,
    .params = &conv_param_list,
};
