/* conv_narrow_plan.c - the host side of the kernel of few filters: which problems, what they cost, launches. */
#include <math.h>
#include <string.h>

#include "base/math.h"
#include "operators/conv/conv_narrow.h"
#include "operators/conv/conv_packed.h"

enum { TILE_N_MAX = 32, CHUNK_MAX = 64, UNIT = CONV_NARROW_UNIT };

conv_narrow_shape conv_narrow_shape_of(const conv_narrow_config *c)
{
    conv_narrow_shape s = { .units = c->columns * (c->chunk / UNIT) };
    s.steps = (int)ceil_div(s.units, 2);
    s.halo_h = (CONV_NARROW_H - 1) * c->step_h + (c->rows - 1) * c->dilation_h + 1;
    s.halo_w = (CONV_NARROW_W - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1;
    s.pitch = c->chunk / UNIT % 2 ? c->chunk : c->chunk + UNIT; // odd in units: 8 pixels are in different banks
    s.halo = (int)min_i64((int64_t)s.pitch * s.halo_w * s.halo_h, INT32_MAX); // which no CTA has room for
    s.filter = (int64_t)c->rows * s.steps * 2 * UNIT * c->tile_n;
    s.chunks = (int)ceil_div(c->channels, c->chunk);
    s.real = c->channels < c->chunk ? c->channels : c->chunk;
    s.filters = s.filter * s.chunks;
    s.smem_bytes = 2 * (s.filters + 2 * (int64_t)s.halo) + 64;
    return s;
}

/* Channels of a pixel's copy, zeros among them. */
static int64_t copied_channels(const ckl_conv_desc *d)
{
    return round_up(d->c, UNIT);
}

/* Odd channels of NHWC go one by one, which a copy of whole 16 bytes saves. */
static bool can_copy(const ckl_conv_desc *d)
{
    return !conv_is_view(d) && d->c > 0 && d->c % UNIT;
}

static int64_t rows_of_copy(const ckl_conv_desc *d)
{
    const conv_tensor t = conv_tensor_of(d, CONV_X);
    return product_i64(t.shape[0], t.shape[2]);
}

static int64_t row_of_copy(const ckl_conv_desc *d)
{
    return product_i64(conv_tensor_of(d, CONV_X).shape[3], copied_channels(d));
}

/* The longest vector at whose multiples all pixels begin; may two channels of every pixel be written together? */
static int64_t vector_of(const ckl_conv_desc *d)
{
    return min_i64(UNIT, conv_stride_divisor(d, CONV_X));
}

static bool can_pair(const ckl_conv_desc *d)
{
    return d->k % 2 == 0 && conv_stride_divisor(d, CONV_Y) > 1;
}

/* CTAs whose registers and shared memory an SM holds. */
static int ctas_of(const conv_narrow_config *c, const ckl_device_info *device)
{
    const int64_t bytes = conv_narrow_shape_of(c).smem_bytes + 1024;
    return (int)max_i64(1, min_i64(c->tile_n > 16 ? 3 : 4, device->smem_per_sm_bytes / bytes));
}

/* Channels of a stage: as few stages as possible, of equal size; then the same of a copy. */
static bool candidate_narrow(const void *desc, const ckl_device_info *device, int i, void *config)
{
    static const int most[] = { CHUNK_MAX, CHUNK_MAX / 2, CHUNK_MAX / 4 };
    const ckl_conv_desc inner = conv_turned(desc), *d = &inner;
    conv_narrow_config *c = config;
    const int64_t channels = max_i64(1, min_i64(d->c, 1 << 20));
    int sizes = 1;
    while (sizes < COUNT_OF(most) && channels > most[sizes - 1] / 2)
        sizes++;
    const bool copied = i >= sizes;
    i -= copied ? sizes : 0;
    if (i >= sizes || (copied && !can_copy(d)))
        return false;
    const int64_t chunks = ceil_div(channels, most[i]);
    *c = (conv_narrow_config){ .form = conv_form_of(desc),
                               .tile_n = conv_config_number(round_up(max_i64(1, d->k), 8)),
                               .chunk = (int)round_up(ceil_div(channels, chunks), UNIT),
                               .vec = copied ? UNIT : (int)min_i64(vector_of(d), power_of_two_in(channels)),
                               .channels = (int)(copied ? round_up(channels, UNIT) : channels),
                               .rows = conv_config_number(d->r),
                               .columns = conv_config_number(d->s),
                               CONV_STEPS_OF(d),
                               .pairs = can_pair(d),
                               .copied = copied };
    c->ctas = ctas_of(c, device);
    return true;
}

/* Tiles of pixels. */
static double tiles_of(const ckl_conv_desc *d)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    return (double)d->n * (double)ceil_div(m[1].y, CONV_NARROW_H) * (double)ceil_div(m[2].y, CONV_NARROW_W);
}

/* Bytes of sectors that a pixel's chunks touch, some of them twice: 80 channels by 40 are six sectors, by 32 five. */
static double bytes_of_pixel(const conv_narrow_config *c)
{
    enum { SECTOR = 32 };
    int64_t sectors = 0;
    for (int64_t from = 0; from < c->channels; from += c->chunk)
        sectors += ceil_div(2 * min_i64(from + c->chunk, c->channels), SECTOR) - 2 * from / SECTOR;
    return (double)(SECTOR * sectors);
}

/* Rows of pixels that a warp reads: rows of a filter that are multiplied at once share them. */
static double rows_read(const conv_narrow_config *c)
{
    const int all = CONV_NARROW_M * c->rows, times = (int)ceil_div(c->rows, CONV_NARROW_ROWS);
    return fmin(all, times * ((CONV_NARROW_M - 1) * c->step_h + 1 - c->dilation_h) + c->rows * c->dilation_h);
}

/*
 * Cycles of a stage: its copies and all warps' reads of shared memory, which the CTAs of an SM share; one alone waits
 * for its copies. 128 to 3 channels of 512x512 take 35.0 us, 640 to 8 of 32 images of 64x64 134. 32 to 32 of 16 of
 * 80x80 take 13.1, of which it says 9.5 without WIDE. 5 to 31 of 128 of 17x17 take 21.5, 10.8 without single stores.
 */
static plan_cost cost_narrow(const void *desc, const ckl_device_info *device, const void *config)
{
    const double COPY = 0.5, READ = 4, WAIT = 1500, FILTERS = 0.1, START = 2.5, PRODUCTS = 1200, HERTZ = 1.7e9,
                 BYTES = 4e6, LAUNCH = 3, COPIED = 1.25e6, WIDE = 1.5, SINGLE = 0.57;
    const conv_narrow_config *c = config;
    const ckl_conv_desc inner = conv_turned(desc), *d = &inner;
    const conv_narrow_shape s = conv_narrow_shape_of(c);
    const double copies = (double)s.halo_h * s.halo_w * (c->chunk / c->vec);
    const double steps = (double)CONV_NARROW_WARPS * s.steps;
    const double reads = steps * (rows_read(c) + c->rows * c->tile_n / 16.0) * READ,
                 products = steps * c->rows * CONV_NARROW_M * c->tile_n * 16 * 16 / PRODUCTS;
    const double turns = ceil(tiles_of(d) / device->sm_count); // of the SM that has most
    const double work = copies * COPY + fmax(reads, products), alone = c->ctas == 1 ? WAIT : 0;
    const double tile = s.chunks * fmax(work + alone, WAIT / c->ctas);
    const double single = c->pairs ? 0 : SINGLE * CONV_NARROW_W * CONV_NARROW_H * (double)d->k;
    const double once = WAIT * (s.chunks + 1) + FILTERS * (double)s.filters;
    const conv_tensor from = conv_tensor_of(d, CONV_X), to = conv_tensor_of(d, CONV_Y);
    const double fetched = c->chunk < c->channels ? bytes_of_pixel(c) / (2.0 * c->channels) : 1;
    const double bytes =
        2 * fetched * (double)from.shape[0] * (double)from.stride[0] + 2 * (double)to.shape[0] * (double)to.stride[0];
    const double slow = c->tile_n > 16 && c->rows * c->columns > 1 ? WIDE : 1;
    const double us = fmax(turns * (tile * slow + single) / HERTZ * 1e6, bytes / BYTES);
    const double copy = c->copied ? LAUNCH + 2 * (double)rows_of_copy(d) * (double)row_of_copy(d) / COPIED : 0;
    return (plan_cost){ START + once / HERTZ * 1e6 + us + copy, "shared memory" };
}

static ckl_status check_problem(const ckl_conv_desc *desc)
{
    const ckl_conv_desc inner = conv_turned(desc), *d = &inner;
    if (desc->direction == CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv narrow: it does not compute the gradient of weights");
    if (desc->direction == CKL_CONV_DATA && !conv_turns(desc))
        FAIL(CKL_UNSUPPORTED, "conv narrow: the gradient of data of strides above 1 is left to others");
    TRY(conv_check_half("narrow", d));
    if (d->groups > 1 || conv_is_volume(d) || d->layout != CKL_IMAGE_NHWC)
        FAIL(CKL_UNSUPPORTED, "conv narrow: it takes images in NHWC, without groups");
    if (d->c < 1 || d->k < 1 || d->k > TILE_N_MAX)
        FAIL(CKL_UNSUPPORTED, "conv narrow: %" PRId64 " channels to write are not in 1..%d, or there are none to read",
             d->k, TILE_N_MAX);
    if (tiles_of(d) > INT32_MAX / 2 || d->h > INT32_MAX / 4 || d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv narrow: an image of %" PRId64 "x%" PRId64 " is beyond 32-bit numbers", d->h, d->w);
    return CKL_OK;
}

static ckl_status admit_narrow(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { PRODUCTS_MAX = 1024 }; // of all rows of a filter: code
    const ckl_conv_desc inner = conv_turned(desc), *d = &inner;
    const conv_narrow_config *c = config;
    TRY(check_problem(desc));
    TRY(conv_check_form("narrow", desc, &c->form));
    if (c->rows != d->r || c->columns != d->s || !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID, "conv narrow: the config's filter, strides or dilations are not the problem's");
    if (c->tile_n < d->k || c->tile_n % 8 || c->tile_n > TILE_N_MAX || c->ctas < 1 || c->ctas > 6)
        FAIL(CKL_INVALID, "conv narrow: tile_n=%d is no multiple of 8 from %" PRId64 " to %d, or ctas=%d not in 1..6",
             c->tile_n, d->k, TILE_N_MAX, c->ctas);
    const int64_t channels = c->copied ? copied_channels(d) : d->c;
    if (c->chunk < UNIT || c->chunk % UNIT || c->chunk > CHUNK_MAX || c->channels != channels)
        FAIL(CKL_INVALID, "conv narrow: chunk=%d is no multiple of %d up to %d, or channels=%d are not %" PRId64,
             c->chunk, UNIT, CHUNK_MAX, c->channels, channels);
    if (c->copied && (!can_copy(d) || rows_of_copy(d) > INT32_MAX || row_of_copy(d) > INT32_MAX ||
                      rows_of_copy(d) * row_of_copy(d) / UNIT > INT32_MAX))
        FAIL(CKL_UNSUPPORTED, "conv narrow: copied=1 is of dense NHWC whose channels are not whole 16 bytes");
    if (!is_power_of_two(c->vec) || c->vec < 2 || c->vec > UNIT || channels % c->vec ||
        (!c->copied && vector_of(d) % c->vec) || (c->pairs && !can_pair(d)))
        FAIL(CKL_INVALID, "conv narrow: vec=%d or pairs=%d do not divide the channels, or are single ones", c->vec,
             c->pairs);
    const conv_narrow_shape s = conv_narrow_shape_of(c);
    if ((int64_t)s.steps * c->rows * c->tile_n / 8 > PRODUCTS_MAX || s.smem_bytes > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED,
             "conv narrow: filters of %dx%d with %" PRId64 " channels, or the pixels under a tile, are too many",
             c->rows, c->columns, d->c);
    return CKL_OK;
}

static int64_t workspace_narrow(const ckl_plan *plan)
{
    const ckl_conv_desc inner = conv_turned(plan->desc), *d = &inner;
    const conv_narrow_config *c = plan->config;
    return c->copied ? 2 * product_i64(rows_of_copy(d), row_of_copy(d)) : 0;
}

/* Copies what is read, and has `main` read the copy. */
static ckl_status launch_copy(const ckl_plan *plan, void *to, conv_params *main, ckl_stream stream)
{
    const ckl_conv_desc *of_plan = plan->desc, inner = conv_turned(of_plan), *d = &inner;
    const int read = conv_read(of_plan);
    const int64_t row = row_of_copy(d), pixel = copied_channels(d), image = conv_tensor_of(d, CONV_X).shape[2] * row;
    const int64_t stride[CONV_RANK] = { image, 0, row, pixel, 1 };
    const void *from = main->from[CONV_X];
    conv_packed_problem copy = { .inner.desc = *of_plan };
    copy.row[read] = row;
    copy.channels[read] = pixel;
    copy.bytes[read] = workspace_narrow(plan);
    memcpy(main->x, stride, sizeof stride);
    main->from[CONV_X] = to;
    return conv_packed_copy(plan, CONV_NARROW_COPY, &copy, read, from, to, stream);
}

static ckl_status launch_narrow(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc inner = conv_turned(plan->desc), *d = &inner;
    const ckl_conv_args *a = args;
    const conv_narrow_config *c = plan->config;
    const int64_t in = c->copied ? 2 : 2 * (int64_t)c->vec, out = (c->pairs ? 2 : 1) * (int64_t)ckl_dtype_bytes(d->out);
    if (!PLAN_ALIGNED(in, a->x, a->dy) || !PLAN_ALIGNED(c->vec == UNIT && !c->copied ? 16 : 2, a->w) ||
        !PLAN_ALIGNED(out, a->y, a->dx))
        FAIL(CKL_INVALID, "conv narrow: a pointer is not aligned to what is copied at once; impl=sm80 takes any");
    conv_params p = conv_turned_params(plan, plan->desc, a);
    const int64_t tiles = (int64_t)tiles_of(d);
    if (tiles == 0)
        return CKL_OK;
    if (c->copied)
        TRY(launch_copy(plan, plan_workspace(plan, a->workspace), &p, stream));
    return conv_launch_tiles(plan, CONV_NARROW_MAIN, tiles, &p, stream);
}

static const field narrow_fields[] = CONV_FIELDS(conv_narrow_config, CONV_NARROW_CONFIG);

const implementation conv_narrow_implementation = {
    CONV_RANKED(narrow, conv_narrow_config),
    .summary = "up to 32 filters, of any number of channels: pixels in shared memory for all taps, mma.sync; NHWC",
    .rivals = { &conv_stem_implementation, &conv_pointwise_implementation, &conv_sm90_implementation,
                &conv_packed_implementation },
    .describe = conv_narrow,
    .kernels = CONV_NARROW_KERNELS,
    .params = &conv_param_list,
    .target = IR_SM80,
    .workspace_bytes = workspace_narrow,
};
