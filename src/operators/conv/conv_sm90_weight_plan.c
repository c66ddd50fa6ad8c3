/* conv_sm90_weight_plan.c - the host side of the gradient of weights on Hopper: tiles, slices of pixels, launches. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

enum { SLICES_MAX = 128 };

conv_weight_shape conv_weight_shape_of(const conv_sm90_weight_config *c)
{
    const int rows = CONV_SM90_ROWS;
    conv_weight_shape s = { .tile_m = rows * c->consumers, .sum_dtype = c->slices > 1 ? CKL_F32 : c->form.out };
    s.x_rows = c->tall ? c->box_w * (c->box_h + CONV_SM90_TALL - 1) : CONV_WEIGHT_PIXELS * c->tile_n / CONV_SM90_SPAN;
    s.sum_cols = 128 / (int)ckl_dtype_bytes(s.sum_dtype);
    s.stage_bytes = ((int64_t)s.tile_m * CONV_WEIGHT_PIXELS + (int64_t)s.x_rows * CONV_SM90_SPAN) * 2;
    s.smem_bytes = c->stages * (s.stage_bytes + 16) + (int64_t)c->consumers * CONV_SM90_BUFFERS * rows * 128;
    s.smem_bytes += c->form.bias ? 1024 : 0; // a column of ones
    return s;
}

static conv_box box_of(const conv_sm90_weight_config *c)
{
    return (conv_box){ c->box_w, c->box_h, c->box_n };
}

static double boxes_of(const conv_sm90_problem *p, const conv_sm90_weight_config *c)
{
    return conv_boxes(p->y, p->desc.n, box_of(c));
}

static int64_t taps_of(const ckl_conv_desc *d)
{
    return d->t * d->r * d->s;
}

/* Tiles of filters and columns of a slice. */
static double tiles_of(const ckl_conv_desc *d, const conv_sm90_weight_config *c)
{
    const double spans = (double)taps_of(d) * (double)ceil_div(d->c, CONV_SM90_SPAN);
    return (double)ceil_div(d->k, (int64_t)CONV_SM90_ROWS * c->consumers) * ceil(spans / (c->tile_n / CONV_SM90_SPAN));
}

/* Elements from tap to tap of the sums in the workspace. */
static int64_t sum_pitch(const ckl_conv_desc *d)
{
    return round_up(d->c, CONV_WEIGHT_VECTOR);
}

static double sums_of_slice(const ckl_conv_desc *d)
{
    return (double)d->k * (double)taps_of(d) * (double)sum_pitch(d);
}

/* Bytes of a stage for channels and filters that do not exist, of an average span and tile. */
static double absent_bytes(const conv_sm90_problem *p, const conv_sm90_weight_config *c)
{
    const int64_t spans = ceil_div(p->in, CONV_SM90_SPAN), tile_m = (int64_t)CONV_SM90_ROWS * c->consumers;
    const double channels = CONV_SM90_SPAN - (double)p->in / (double)spans;
    const double filters = (double)tile_m - (double)p->out / (double)ceil_div(p->out, tile_m);
    return 2 * (channels * conv_weight_shape_of(c).x_rows + filters * CONV_WEIGHT_PIXELS);
}

/* What the number of slices leaves alone. */
typedef struct tile_cost {
    double stage, epilogue; // cycles
    double boxes, tiles;    // of all slices, of each
    double sums;            // elements of a slice
    double alone;           // of a stage: how much more it takes where there is one slice
    const char *bound;
} tile_cost;

/*
 * Cycles of a tile: the epilogue, and stages at the slowest of three rates: the tensor cores, 64 bytes a cycle from L2
 * to an SM, or 128 to 145 bytes a cycle of shared memory, which TMA writes and each consumer reads (least in tiles of
 * 64 columns; bench/notes/conv.md). Zeros that TMA writes for absent channels come on top, about 13 bytes a cycle: 7
 * filters over 384 channels of 4 images of 224x224 take 245 us, 1180 cycles a stage, of which 640 are the bytes.
 */
static tile_cost tile_cost_of(const conv_sm90_problem *p, const conv_sm90_weight_config *c)
{
    const double PRODUCTS = 2048, BYTES = 64, ZEROS = 13, EPILOGUE = 10, ALONE = 0.3;
    const conv_weight_shape s = conv_weight_shape_of(c);
    const double multiply = (double)s.tile_m * c->tile_n * CONV_WEIGHT_PIXELS / PRODUCTS, absent = absent_bytes(p, c),
                 load = ((double)s.stage_bytes - absent) / BYTES + absent / ZEROS;
    const double read = (double)c->consumers * (CONV_SM90_ROWS + c->tile_n) * CONV_WEIGHT_PIXELS * 2;
    const double shared = (read + (double)s.stage_bytes) / (c->tile_n == 64 ? 128 : 145);
    return (tile_cost){ .stage = fmax(fmax(multiply, load), shared),
                        .epilogue = EPILOGUE * c->tile_n / 2,
                        .boxes = boxes_of(p, c),
                        .tiles = tiles_of(&p->desc, c),
                        .sums = sums_of_slice(&p->desc),
                        .alone = c->tall ? ALONE : 0,
                        .bound = multiply > load ? "tensor cores" : "loads" };
}

/*
 * Sums of slices go to memory (mostly L2) and back, and are added by a launch of their own. CTAs of few slices load the
 * same boxes at the same time, by which tall ones lose: 128 to 768 channels of 88 images of 8x8 take 30.8 us in one,
 * 27.8 in three; 256 of 14x14 30.3 in two, 24.0 in five; 768 to 128 of 128 images of 32x32 125 in five, whole ones 105.
 */
static double us_of(const tile_cost *c, const ckl_device_info *device, int slices)
{
    const double SEVERAL = 8; // slices
    const double together = fmax(0, SEVERAL - slices) / (SEVERAL - 1);
    const double START = 2000, HERTZ = 1.7e9, SUM_BYTES = 3.5e6, SUM_US = 2;
    const double tile = ceil(c->boxes / slices) * c->stage * (1 + c->alone * together) + c->epilogue;
    const double waves = ceil(c->tiles * slices / device->sm_count);
    const double sums = slices > 1 ? SUM_US + 2 * 4 * slices * c->sums / SUM_BYTES : 0;
    return (waves * tile + START) / HERTZ * 1e6 + sums;
}

plan_cost conv_weight_cost(const conv_sm90_problem *p, const ckl_device_info *device, const conv_sm90_weight_config *c)
{
    const tile_cost tile = tile_cost_of(p, c);
    return (plan_cost){ us_of(&tile, device, c->slices), tile.bound };
}

/* As many slices as cost least, no fewer than `least`. */
static int slices_of(const conv_sm90_problem *p, const ckl_device_info *device, int least,
                     const conv_sm90_weight_config *c)
{
    const tile_cost tile = tile_cost_of(p, c);
    const int most = (int)fmin(SLICES_MAX, tile.boxes);
    int best = least;
    double least_us = INFINITY;
    for (int slices = least; slices <= most; slices++) {
        const double us = us_of(&tile, device, slices);
        best = us < least_us ? slices : best;
        least_us = fmin(us, least_us);
    }
    return best;
}

enum { WIDTHS = 4, TALL_N = CONV_SM90_TALL * CONV_SM90_SPAN }; // of tiles in spans

int conv_weight_candidates(const conv_sm90_problem *p)
{
    return 2 * (WIDTHS + p->may_be_tall);
}

enum { ADDERS_FEW = 32, ADDERS = 128 };

/*
 * Few sums are for all SMs, by CTAs of a warp; where these would be many, each has its price: 256 channels of 14x14
 * take 22.6 us by 4608 of them and took 17.9 by 1152 of 128 threads.
 */
static int adders_of(const ckl_conv_desc *d, const ckl_device_info *device)
{
    return sums_of_slice(d) / CONV_WEIGHT_VECTOR < 2.0 * ADDERS * device->sm_count ? ADDERS_FEW : ADDERS;
}

bool conv_weight_candidate(const conv_sm90_problem *p, const ckl_device_info *device, int i, int least,
                           conv_sm90_weight_config *c)
{
    if (i >= conv_weight_candidates(p))
        return false;
    c->tall = i / 2 == WIDTHS;
    const conv_box box = c->tall ? p->tall_box[0] : conv_fit_box(p->y, p->desc.n, CONV_WEIGHT_PIXELS);
    c->form = conv_form_of(&p->desc);
    c->tile_n = c->tall ? TALL_N : (1 + i / 2) * CONV_SM90_SPAN;
    c->consumers = 2 - i % 2;
    c->box_w = box.w;
    c->box_h = box.h;
    c->box_n = box.n;
    c->step_w = (int)p->desc.stride_w;
    c->step_h = (int)p->desc.stride_h;
    c->slices = slices_of(p, device, least, c);
    c->stages = 1;
    const conv_weight_shape s = conv_weight_shape_of(c);
    c->stages = conv_stages_of(device, s.smem_bytes, s.stage_bytes + 16);
    c->adders = c->slices > 1 ? adders_of(&p->desc, device) : ADDERS_FEW;
    return true;
}

/* dw is stored in whole 16 bytes, sums in any. */
static bool can_store(const ckl_conv_desc *d)
{
    return d->c * (int64_t)ckl_dtype_bytes(d->out) % 16 == 0;
}

ckl_conv_desc conv_in_one_row(const ckl_conv_desc *d)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    ckl_conv_desc row = *d;
    double pixels = (double)d->n;
    for (int i = 0; i < CONV_MODES; i++) {
        if (m[i].filter > 1 || m[i].stride > 1 || m[i].x != m[i].y)
            return row;
        pixels *= (double)m[i].x;
    }
    if (d->layout != CKL_IMAGE_NHWC || conv_is_view(d) || pixels < 1 || pixels > INT32_MAX / 8)
        return row;
    row.w = (int64_t)pixels;
    row.n = row.d = row.h = 1;
    return row;
}

static bool candidate_sm90_weight(const void *desc, const ckl_device_info *device, int i, void *config)
{
    return conv_weight_candidate(&conv_prepared_of(desc)->row, device, i, can_store(desc) ? 1 : 2, config);
}

/* One slice of one row is slower than modelled: 512 to 2048 channels of 7x7 take 9.59 us, not 7.20. */
static plan_cost cost_sm90_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const double ONE_ROW = 1.3;
    const conv_sm90_weight_config *c = config;
    const conv_sm90_problem *row = &conv_prepared_of(desc)->row;
    plan_cost cost = conv_weight_cost(row, device, c);
    cost.us *= c->slices == 1 && row->desc.w != ((const ckl_conv_desc *)desc)->w ? ONE_ROW : 1;
    return cost;
}

static ckl_status check_config(const conv_sm90_problem *p, const ckl_device_info *device,
                               const conv_sm90_weight_config *c)
{
    const ckl_conv_desc *d = &p->desc;
    if (c->step_w != d->stride_w || c->step_h != d->stride_h)
        FAIL(CKL_INVALID, "conv sm90_weight: step_w=%d step_h=%d are not the problem's strides", c->step_w, c->step_h);
    if (c->consumers < 1 || c->consumers > 2)
        FAIL(CKL_INVALID, "conv sm90_weight: consumers=%d is not in 1..2", c->consumers);
    if (c->tile_n < 64 || c->tile_n % 64 || c->tile_n > 256)
        FAIL(CKL_INVALID, "conv sm90_weight: tile_n=%d is not a multiple of 64 up to 256", c->tile_n);
    TRY(conv_check_box("sm90_weight", box_of(c), CONV_WEIGHT_PIXELS, c->step_w, c->step_h));
    if (c->tall && (!p->may_be_tall || c->tile_n != TALL_N || c->box_n > 1 || c->box_w % 8))
        FAIL(CKL_UNSUPPORTED,
             "conv sm90_weight: tall=1 takes filters of %d rows that all see something, of stride and dilation 1, by "
             "tile_n=%d and boxes of one image in whole rows of 8",
             CONV_SM90_TALL, TALL_N);
    TRY(conv_check_stages("sm90_weight", device, c->stages, conv_weight_shape_of(c).smem_bytes));
    if (c->slices < 1 || c->slices > SLICES_MAX || c->slices > fmax(2, boxes_of(p, c)))
        FAIL(CKL_INVALID, "conv sm90_weight: slices=%d is not in 1..%d, or more than boxes of pixels", c->slices,
             SLICES_MAX);
    if (c->adders < ADDERS_FEW || c->adders > device->threads_per_cta_max || c->adders % ADDERS_FEW)
        FAIL(CKL_INVALID, "conv sm90_weight: adders=%d are no whole warps of a CTA", c->adders);
    if (c->slices == 1 && !can_store(d))
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: slices=1 stores whole 16 bytes, c=%" PRId64 " are not", d->c);
    return CKL_OK;
}

ckl_status conv_weight_admit(const conv_sm90_problem *p, const ckl_device_info *device,
                             const conv_sm90_weight_config *c)
{
    const ckl_conv_desc *d = &p->desc;
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: %s has no wgmma", device->id);
    if (d->direction != CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: it computes the gradient of weights alone");
    TRY(conv_check_form("sm90_weight", d, &c->form));
    TRY(conv_check_vectors("sm90_weight", d));
    TRY(conv_check_half("sm90_weight", d));
    if (d->groups != 1)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: groups=%" PRId64 " are not one", d->groups);
    if (d->n == 0 || d->c == 0 || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: n=%" PRId64 " c=%" PRId64 " k=%" PRId64 " leave no products", d->n,
             d->c, d->k);
    if (d->stride_d > 1 || d->stride_h > 8 || d->stride_w > 8)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: TMA takes strides of up to 8, and of slices 1");
    TRY(check_config(p, device, c));
    if (boxes_of(p, c) * c->slices > INT32_MAX || tiles_of(d, c) * c->slices > INT32_MAX ||
        sums_of_slice(d) / CONV_WEIGHT_VECTOR + (double)d->k > INT32_MAX || d->h > INT32_MAX / 4 ||
        d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: %g boxes of pixels, %g tiles, or a size, are beyond 32-bit numbers",
             boxes_of(p, c), tiles_of(d, c));
    return CKL_OK;
}

static int64_t bytes_of_sums(const ckl_conv_desc *d)
{
    return d->k * taps_of(d) * sum_pitch(d) * (int64_t)sizeof(float);
}

static ckl_status admit_sm90_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    if (d->layout != CKL_IMAGE_NHWC)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: layout=nchw has its channels apart");
    if (d->c % 8 || d->k % 8)
        FAIL(CKL_UNSUPPORTED, "conv sm90_weight: c=%" PRId64 " or k=%" PRId64 " channels are not whole 16 bytes", d->c,
             d->k);
    return conv_weight_admit(&conv_prepared_of(desc)->row, device, config);
}

/* The sums of all slices, then those of the bias. */
int64_t conv_weight_workspace(const ckl_conv_desc *d, const conv_sm90_weight_config *c)
{
    const int64_t of_bias = d->bias ? d->k * (int64_t)sizeof(float) : 0;
    return c->slices == 1 ? 0 : c->slices * (bytes_of_sums(d) + of_bias);
}

static int64_t workspace_sm90_weight(const ckl_plan *plan)
{
    return conv_weight_workspace(plan->desc, plan->config);
}

/* The sums for TMA: channels, taps, filters, slices. */
static param_tensor sums_map(const ckl_conv_desc *d, const void *pointer, int64_t pitch, int slices)
{
    return (param_tensor){ .pointer = pointer,
                           .size = { d->c, taps_of(d), d->k, slices },
                           .stride = { 1, pitch, taps_of(d) * pitch, d->k * taps_of(d) * pitch } };
}

/* Kernel 1, which writes dw as the problem has it; taps of an inner problem of none are one run. */
static ckl_status launch_add(const ckl_plan *plan, const ckl_conv_desc *inner, int kernel, int adders, int64_t columns,
                             conv_params p, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_tensor w = conv_tensor_of(d, CONV_W);
    for (int i = 0; i < CONV_RANK; i++)
        p.w[i] = w.stride[i];
    for (int i = 0; i < CONV_MODES; i++)
        p.filter[i] = w.shape[1 + i];
    if (taps_of(inner) == 1) {
        p.filter[0] = p.filter[1] = 1;
        p.filter[2] = taps_of(d);
    }
    p.c = d->c;
    p.k = d->k;
    p.packed_channels = (uint32_t)columns;
    const int64_t threads = bytes_of_sums(inner) / (4 * CONV_WEIGHT_VECTOR) + (d->bias ? d->k : 0);
    return plan_launch(plan, kernel, (plan_grid){ .x = ceil_div(threads, adders) }, &p, stream);
}

ckl_status conv_weight_launch(const ckl_plan *plan, const conv_sm90_weight_config *c, const ckl_conv_desc *d,
                              const ckl_conv_args *a, const conv_tensor at[CONV_TENSORS], int add, int64_t columns,
                              ckl_stream stream)
{
    const bool direct = c->slices == 1;
    char *sums = a->workspace;
    if (!PLAN_ALIGNED(16, a->x, a->dy) || (direct && !PLAN_ALIGNED(16, a->dw)))
        FAIL(CKL_INVALID, "conv sm90_weight: a pointer is not aligned to 16 bytes; impl=naive takes any");
    conv_params p = conv_params_of(plan, d, a);
    p.mX = conv_pixels(a->x, &at[CONV_X], 256);
    p.mY = conv_pixels(a->dy, &at[CONV_Y], 256);
    p.mW = sums_map(d, direct ? a->dw : sums, direct ? d->c : sum_pitch(d), c->slices);
    p.sums = sums;
    p.bias_sums = direct ? NULL : sums + c->slices * bytes_of_sums(d);
    p.sum_pitch = sum_pitch(d);
    const int64_t tiles = (int64_t)tiles_of(d, c) * c->slices;
    TRY(conv_launch_tiles(plan, 0, tiles, &p, stream));
    return direct ? CKL_OK : launch_add(plan, d, add, c->adders, columns, p, stream);
}

static ckl_status launch_sm90_weight(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = &conv_prepared_of(plan->desc)->row.desc;
    ckl_conv_args a = *(const ckl_conv_args *)args;
    conv_tensor at[CONV_TENSORS];
    conv_tensors_of(d, at);
    a.workspace = plan_workspace(plan, a.workspace);
    return conv_weight_launch(plan, plan->config, d, &a, at, 1, d->c, stream);
}

static const field sm90_weight_fields[] = CONV_FIELDS(conv_sm90_weight_config, CONV_WEIGHT_CONFIG);

const implementation conv_sm90_weight_implementation = {
    CONV_RANKED(sm90_weight, conv_sm90_weight_config),
    .summary =
        "gradient of weights: TMA boxes of pixels as K, wgmma of M- and N-major tiles, slices added in order; Hopper",
    .rivals = { &conv_packed_weight_implementation },
    .describe = conv_sm90_weight,
    .kernels = 2,
    .params = &conv_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_sm90_weight,
};
