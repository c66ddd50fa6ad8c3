/* conv_nchw_plan.c - the host side of the Hopper kernel of NCHW: its problems, their cost, copies and tensor maps. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

enum { UNIT = 8, SPAN = CONV_SM90_SPAN }; // elements of 16 bytes; pixels of a run

conv_nchw_shape conv_nchw_shape_of(const conv_nchw_config *c)
{
    const int rows = CONV_SM90_ROWS;
    conv_nchw_shape s = { .tile_m = rows * c->consumers,
                          .spans = c->tile_n / SPAN,
                          .y_cols = 128 / (int)ckl_dtype_bytes(c->form.out) };
    s.stage_bytes = (int64_t)(s.tile_m + s.spans * SPAN) * c->tile_k * 2;
    s.smem_bytes = c->stages * (s.stage_bytes + 16) + (int64_t)c->consumers * CONV_SM90_BUFFERS * rows * 128;
    return s;
}

/*
 * Channels of a row of a copy: whole 128 bytes where they fill more than half, as zeros by TMA cost more than zeros in
 * memory.
 */
static int64_t padded(int64_t channels)
{
    return round_up(channels, channels > CONV_SM90_K / 2 ? CONV_SM90_K : UNIT);
}

static int64_t pixels_of(int64_t slices, int64_t rows, int64_t columns)
{
    return product_i64(slices, product_i64(rows, columns));
}

conv_nchw_problem conv_nchw_of(const ckl_conv_desc *d)
{
    const bool data = d->direction == CKL_CONV_DATA;
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    const int64_t x = pixels_of(m[0].x, m[1].x, m[2].x), y = pixels_of(m[0].y, m[1].y, m[2].y);
    conv_nchw_problem p = { .from = conv_read(d),
                            .images = d->n,
                            .from_pixels = data ? y : x,
                            .to_pixels = data ? x : y,
                            .from_channels = data ? d->k : d->c,
                            .to_channels = data ? d->c : d->k,
                            .taps = d->r * d->s };
    p.whole = p.to_pixels % (16 / (int64_t)ckl_dtype_bytes(d->out)) == 0;
    p.copies_x = p.taps > 1 || d->pad_left || d->pad_right || p.from_pixels % UNIT;
    if (p.copies_x)
        p.x_copy = product_i64(d->n, product_i64(p.from_pixels, 2 * padded(p.from_channels)));
    if (p.taps > 1 || d->c % UNIT)
        p.filter_copy = round_up(min_i64(product_i64(d->k, product_i64(p.taps, 2 * padded(d->c))), INT64_MAX / 2), 256);
    bool fit = true;
    for (int i = 1; i < CONV_MODES; i++)
        fit &= conv_find_corners(&m[i], data, &p.lower[i], &p.upper[i]);
    p.follows = fit && p.copies_x && d->d == 1 && (double)d->n * (double)p.to_pixels < INT32_MAX / 4;
    return p;
}

/* Tiles of runs of pixels and filters. */
static double tiles_of(const conv_nchw_problem *p, const conv_nchw_config *c)
{
    const conv_nchw_shape shape = conv_nchw_shape_of(c);
    return ceil((double)p->images * (double)ceil_div(p->to_pixels, SPAN) / shape.spans) *
           (double)ceil_div(p->to_channels, shape.tile_m);
}

/* Channels of a stage, consumers, pixels. */
static bool candidate_nchw_sm90(const void *desc, const ckl_device_info *device, int i, void *config)
{
    static const int widths[] = { 64, 128, 192, 256 }, depths[] = { 64, 32, 16 };
    const conv_nchw_problem *p = &conv_prepared_of(desc)->nchw;
    conv_nchw_config *c = config;
    if (i >= CONV_NCHW_CANDIDATES)
        return false;
    c->form = conv_form_of(desc);
    c->tile_n = widths[i % COUNT_OF(widths)];
    i /= COUNT_OF(widths);
    c->consumers = 2 - i % 2;
    c->tile_k = depths[i / 2];
    c->copied = p->copies_x;
    c->pairs = c->copied && p->from_pixels % 2 == 0;
    c->stages = 1;
    const conv_nchw_shape s = conv_nchw_shape_of(c);
    c->stages = conv_stages_of(device, s.smem_bytes, s.stage_bytes + 16);
    return true;
}

/* As conv_sm90_cost_of(), and a launch for the copies. */
static plan_cost cost_nchw_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const double PRODUCTS = 2048, BYTES = 64, ALL_BYTES = 5600, ROW = 2.7, STAGE = 40, EPILOGUE = 10, START = 2000,
                 HERTZ = 1.7e9, LAUNCH = 1.5, COPIED = 1.25e6;
    const conv_nchw_problem *p = &conv_prepared_of(desc)->nchw;
    const conv_nchw_config *c = config;
    const conv_nchw_shape s = conv_nchw_shape_of(c);
    const double tiles = tiles_of(p, c), active = fmin(tiles, device->sm_count), pixels = s.spans * SPAN;
    const double multiply = s.tile_m * pixels * c->tile_k / PRODUCTS;
    const double rows = s.tile_m + s.spans * (c->copied ? SPAN : c->tile_k);
    const double load = fmax((double)s.stage_bytes / fmin(BYTES, ALL_BYTES / active), ROW * rows);
    const double stages = (double)p->taps * (double)ceil_div(p->from_channels, c->tile_k);
    const double tile = stages * (fmax(multiply, load) + STAGE) + EPILOGUE * c->tile_n / 2;
    const double waves = ceil(tiles / device->sm_count), traffic = tiles / device->sm_count / 64;
    const double filters = (double)p->filter_copy, x = (double)p->x_copy;
    const double copies = (filters + x > 0 ? LAUNCH : 0) + (filters + x) / COPIED;
    return (plan_cost){ ((waves + traffic) * tile + START) / HERTZ * 1e6 + copies,
                        multiply > load ? "tensor cores" : "loads" };
}

static ckl_status check_problem(const ckl_conv_desc *d, const conv_nchw_problem *p, const ckl_device_info *device)
{
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: %s has no wgmma", device->id);
    if (d->direction == CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: it does not compute the gradient of weights");
    TRY(conv_check_half("nchw_sm90", d));
    if (d->layout != CKL_IMAGE_NCHW)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: layout=nhwc has no planes");
    if (d->groups > 1)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: groups=%" PRId64 " are convolved by other kernels", d->groups);
    if (d->c == 0 || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: c=%" PRId64 " and k=%" PRId64 " leave no products", d->c, d->k);
    if (d->stride_d > 1 || d->stride_h > 1 || d->stride_w > 1)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: with strides above 1 pixels under a tap are no run");
    if (!p->whole)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: planes of %" PRId64 " pixels are not whole 16 bytes", p->to_pixels);
    if (p->copies_x && !p->follows)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: filters and padding of a copy reach less than 128 pixels of images");
    if (d->t > 1 || d->pad_front || d->pad_back || (d->d > 1 && (d->r > 1 || d->pad_top || d->pad_bottom)))
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: filters that reach over slices are for other kernels");
    const double most =
        fmax((double)p->from_channels, (double)p->to_channels) * fmax((double)p->from_pixels, (double)p->to_pixels);
    if (most > INT32_MAX / 4 || (double)d->n * (double)p->from_channels > INT32_MAX / 4 || p->taps > INT32_MAX / 4 ||
        (double)p->x_copy / 16 > INT32_MAX || (double)p->filter_copy / 16 > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: an image of %g elements, or a size, is beyond 32-bit numbers", most);
    return CKL_OK;
}

static ckl_status admit_nchw_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_nchw_problem *p = &conv_prepared_of(desc)->nchw;
    const conv_nchw_config *c = config;
    TRY(check_problem(d, p, device));
    TRY(conv_check_form("nchw_sm90", d, &c->form));
    TRY(conv_check_dense("nchw_sm90", d));
    if (c->copied != p->copies_x || (c->pairs && (!c->copied || p->from_pixels % 2)))
        FAIL(CKL_INVALID, "conv nchw_sm90: copied=%d or pairs=%d does not fit the problem", c->copied, c->pairs);
    if (c->consumers < 1 || c->consumers > 2)
        FAIL(CKL_INVALID, "conv nchw_sm90: consumers=%d is not in 1..2", c->consumers);
    if (c->tile_k != 16 && c->tile_k != 32 && c->tile_k != CONV_SM90_K)
        FAIL(CKL_INVALID, "conv nchw_sm90: tile_k=%d is none of 16, 32, 64", c->tile_k);
    const conv_nchw_shape s = conv_nchw_shape_of(c);
    if (c->tile_n < SPAN || c->tile_n % SPAN || s.spans > CONV_NCHW_SPANS_MAX)
        FAIL(CKL_INVALID, "conv nchw_sm90: tile_n=%d is no multiple of %d, or more than %d runs", c->tile_n, SPAN,
             CONV_NCHW_SPANS_MAX);
    TRY(conv_check_stages("nchw_sm90", device, c->stages, s.smem_bytes));
    if (tiles_of(p, c) > INT32_MAX / 8 || d->n > INT32_MAX / 2)
        FAIL(CKL_UNSUPPORTED, "conv nchw_sm90: %g tiles are beyond 32-bit numbers", tiles_of(p, c));
    return CKL_OK;
}

static int64_t workspace_nchw_sm90(const ckl_plan *plan)
{
    const conv_nchw_problem *p = &conv_prepared_of(plan->desc)->nchw;
    return p->filter_copy + p->x_copy;
}

static int64_t copy_ctas(const conv_planes *c, int each)
{
    enum { ALONG_PLANE = 8, WARPS = CONV_PACK_THREADS / 32 };
    if (each == 1 && c->places <= CONV_NCHW_FEW_PLACES)
        return ceil_div(c->outer * (c->pitch / UNIT) * c->places, CONV_PACK_THREADS);
    const int64_t blocks = ceil_div(c->pitch, CONV_NCHW_COPY_CHANNELS) * ceil_div(c->places, ALONG_PLANE * each);
    return ceil_div(c->outer * blocks, WARPS);
}

ckl_status conv_nchw_copy_launch(const ckl_plan *plan, int kernel, const conv_planes copies[2], bool pairs,
                                 ckl_stream stream)
{
    const conv_planes *x = &copies[0], *w = &copies[1];
    const int64_t first = copy_ctas(x, pairs ? 2 : 1), all = first + copy_ctas(w, 1);
    conv_params p = { .from = { [CONV_X] = x->from, [CONV_W] = w->from },
                      .copies = { x->to, w->to },
                      .x_size = { x->outer, x->channels, x->places },
                      .filter = { w->outer, w->channels, w->places },
                      .packed_row = (uint32_t)first,
                      .packed_channels = (uint32_t)x->pitch,
                      .packed_left = (uint32_t)w->pitch };
    for (int i = 0; i < 2; i++) {
        const conv_planes *c = &copies[i];
        conv_read_early(&p, i, c->from, product_i64(product_i64(c->outer, c->channels), product_i64(c->places, 2)));
    }
    return all == 0 ? CKL_OK : plan_launch(plan, kernel, (plan_grid){ .x = all }, &p, stream);
}

/* Rows of channels for each place, of x and of the filters: all that is in the workspace. */
static ckl_status copy_channels(const ckl_plan *plan, const void *x, const void *w, char *workspace, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_nchw_config *c = plan->config;
    const conv_nchw_problem *p = &conv_prepared_of(d)->nchw;
    const conv_planes copies[] = { { x, workspace + p->filter_copy, p->x_copy ? d->n : 0, p->from_channels,
                                     p->from_pixels, padded(p->from_channels) },
                                   { w, workspace, p->filter_copy ? d->k : 0, d->c, p->taps, padded(d->c) } };
    return conv_nchw_copy_launch(plan, CONV_NCHW_COPY, copies, c->pairs, stream);
}

static param_tensor planes(const void *pointer, int64_t pixels, int64_t channels, int64_t images)
{
    return (param_tensor){ .pointer = pointer,
                           .size = { pixels, channels, images },
                           .stride = { 1, pixels, channels * pixels } };
}

/* A copy of x in NHWC, with the corners of its places. */
static param_tensor images(const void *pointer, const ckl_conv_desc *d, const conv_nchw_problem *problem,
                           conv_params *p)
{
    const conv_tensor from = conv_tensor_of(d, problem->from);
    const int64_t pitch = padded(problem->from_channels), width = from.shape[3], height = from.shape[2];
    param_tensor t = { .pointer = pointer,
                       .size = { pitch, width, height, d->n },
                       .stride = { 1, pitch, width * pitch, height * width * pitch } };
    for (int i = 1; i < CONV_MODES; i++) {
        t.lower[CONV_MODES - 1 - i] = (int16_t)problem->lower[i];
        t.upper[CONV_MODES - 1 - i] = (int16_t)problem->upper[i];
        p->corner[i] = (uint32_t)problem->lower[i];
    }
    return t;
}

static ckl_status launch_product(const ckl_plan *plan, conv_params p, const void *from, const void *to, const void *w,
                                 ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_nchw_problem *s = &conv_prepared_of(d)->nchw;
    const int64_t channels = s->filter_copy ? padded(d->c) : d->c;
    const conv_nchw_config *c = plan->config;
    p.mX = c->copied ? images(from, d, s, &p) : planes(from, s->from_pixels, s->from_channels, d->n);
    p.mY = planes(to, s->to_pixels, s->to_channels, d->n);
    p.mW = (param_tensor){ .pointer = w,
                           .size = { s->from == CONV_X ? channels : d->c, d->k, s->taps },
                           .stride = { 1, s->taps * channels, channels } };
    p.c = s->from_channels;
    p.k = s->to_channels;
    for (int i = 0; i < CONV_MODES && d->direction == CKL_CONV_DATA; i++) { // taps backwards
        p.dilation[i] = -p.dilation[i];
        p.pad[i] = -p.pad[i];
    }
    return conv_launch_tiles(plan, CONV_NCHW_MAIN, (int64_t)tiles_of(s, c), &p, stream);
}

static ckl_status launch_nchw_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_nchw_config *c = plan->config;
    const conv_nchw_problem *p = &conv_prepared_of(d)->nchw;
    const bool data = d->direction == CKL_CONV_DATA;
    char *workspace = plan_workspace(plan, a->workspace);
    const void *from = data ? a->dy : a->x, *to = data ? a->dx : a->y, *w = a->w;
    if (c->pairs && !PLAN_ALIGNED(4, from))
        FAIL(CKL_INVALID, "conv nchw_sm90: x is not aligned to 4 bytes; impl=sm80 takes any");
    if (!PLAN_ALIGNED(16, p->x_copy ? NULL : from, p->filter_copy ? NULL : w, to))
        FAIL(CKL_INVALID, "conv nchw_sm90: a pointer is not aligned to 16 bytes; impl=sm80 takes any");
    if (d->n > 0)
        TRY(copy_channels(plan, from, w, workspace, stream));
    w = p->filter_copy ? workspace : w;
    from = p->x_copy ? workspace + p->filter_copy : from;
    conv_params params = conv_params_of(plan, d, a);
    params.early_bytes[0] = p->x_copy ? 0 : params.early_bytes[0];
    params.early_bytes[1] = p->filter_copy ? 0 : params.early_bytes[1];
    return launch_product(plan, params, from, to, w, stream);
}

static const field nchw_sm90_fields[] = CONV_FIELDS(conv_nchw_config, CONV_NCHW_CONFIG);

const implementation conv_nchw_sm90_implementation = {
    CONV_RANKED(nchw_sm90, conv_nchw_config),
    .summary = "persistent implicit GEMM that writes planes; with one tap it reads them, too; NCHW, strides 1, Hopper",
    .rivals = { &conv_packed_implementation },
    .describe = conv_nchw_sm90,
    .kernels = CONV_NCHW_KERNELS,
    .params = &conv_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_nchw_sm90,
};
