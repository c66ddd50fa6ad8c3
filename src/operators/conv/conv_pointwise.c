/*
 * conv_pointwise.c - filters of one pixel: a matrix product of NHWC as it lies, by gemm's Hopper kernel with its choice
 * of tiles.
 *
 * y [pixels,K] = x [pixels,C] * w^T, where w [K,C] is K-major; dx [pixels,C] = dy [pixels,K] * w, where it is N-major;
 * dw [K,C] = dy^T * x, both of which lie across.
 */
#include <limits.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

ckl_gemm_desc conv_product_of(const ckl_conv_desc *d, const conv_product_rows *rows)
{
    const bool data = d->direction == CKL_CONV_DATA, weight = d->direction == CKL_CONV_WEIGHT;
    return (ckl_gemm_desc){ .m = weight ? d->k : rows->count,
                            .n = data || weight ? rows->channels : d->k,
                            .k = weight ? rows->count
                                 : data ? d->k
                                        : rows->channels,
                            .a = d->dtype,
                            .b = d->dtype,
                            .c = d->residual ? d->out : CKL_DTYPE_DEFAULT,
                            .d = d->out,
                            .math = d->math,
                            .layout = weight ? CKL_GEMM_TN
                                      : data ? CKL_GEMM_NN
                                             : CKL_GEMM_NT,
                            .lda = data || weight ? rows->of_y : rows->of_x,
                            .ldb = weight ? rows->of_x : rows->of_w,
                            .ldc = d->residual ? rows->of_y : 0,
                            .ldd = data     ? rows->of_x
                                   : weight ? rows->of_w
                                            : rows->of_y,
                            .activation = d->activation,
                            .bias = d->bias,
                            .scale_b = d->scale ? CKL_GEMM_SCALE_ROW : CKL_GEMM_SCALE_NONE,
                            .epilogue = d->epilogue,
                            .batch = 1 };
}

/* Is y one pixel, which sees all of x by all taps? */
static bool sees_all(const conv_mode m[CONV_MODES])
{
    for (int i = 0; i < CONV_MODES; i++)
        if (m[i].y != 1 || m[i].filter != m[i].x || m[i].pad || (m[i].dilation > 1 && m[i].filter > 1))
            return false;
    return true;
}

/* Are x and y one pixel? *tap: the number of the one that sees it. */
static bool sees_one(const conv_mode m[CONV_MODES], int64_t *tap)
{
    *tap = 0;
    for (int i = 0; i < CONV_MODES; i++) {
        if (m[i].x != 1 || m[i].y != 1 || m[i].pad % m[i].dilation || m[i].pad / m[i].dilation >= m[i].filter)
            return false;
        *tap = *tap * m[i].filter + m[i].pad / m[i].dilation;
    }
    return true;
}

/*
 * An image is a row where it has one pixel, or a filter of its size: of both layouts if all taps see something, or the
 * only channel.
 */
static bool rows_are_images(const ckl_conv_desc *d, conv_product_rows *rows, int64_t *tap)
{
    const int64_t taps = d->t * d->r * d->s;
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    const bool all = sees_all(m), nhwc = d->layout == CKL_IMAGE_NHWC;
    const bool one = !all && sees_one(m, tap) && (nhwc || d->c == 1) && d->direction != CKL_CONV_WEIGHT;
    if (conv_is_view(d) || (nhwc && taps == 1) || (!all && !one))
        return false;
    *tap = all ? 0 : *tap * d->c;
    *rows = (conv_product_rows){ d->n, all ? taps * d->c : d->c, all ? taps * d->c : d->c, d->k, taps * d->c };
    return true;
}

static bool strides_or_pads(const ckl_conv_desc *d)
{
    return d->stride_d > 1 || d->stride_h > 1 || d->stride_w > 1 || d->pad_front || d->pad_back || d->pad_top ||
           d->pad_bottom || d->pad_left || d->pad_right;
}

/* Are all pixels equally far apart? */
static bool in_one_run(const ckl_conv_desc *d, int which)
{
    const conv_tensor t = conv_tensor_of(d, which);
    int64_t step = t.stride[CONV_MODES], next = step;
    for (int mode = CONV_MODES; mode >= 0; mode--) {
        if (t.shape[mode] > 1 && t.stride[mode] != next)
            return false;
        next = product_i64(next, t.shape[mode]);
    }
    return true;
}

conv_pointwise_problem conv_pointwise_of(const ckl_conv_desc *d)
{
    conv_pointwise_problem p = { .in_runs = in_one_run(d, CONV_X) && in_one_run(d, CONV_Y) };
    conv_product_rows rows = { conv_pixel_count(d, CONV_X), d->c, conv_tensor_of(d, CONV_X).stride[CONV_MODES],
                               conv_tensor_of(d, CONV_Y).stride[CONV_MODES], d->c };
    p.of_images = rows_are_images(d, &rows, &p.skipped);
    p.product = conv_product_of(d, &rows);
    return p;
}

const ckl_gemm_desc *conv_pointwise_product(const void *desc)
{
    return &conv_prepared_of(desc)->pointwise.product;
}

ckl_status conv_pointwise_check_pixels(const void *desc)
{
    const ckl_conv_desc *d = desc;
    if (conv_prepared_of(desc)->pointwise.of_images)
        return CKL_OK;
    if (d->t > 1 || d->r > 1 || d->s > 1)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: a filter of %" PRId64 "x%" PRId64 "x%" PRId64 " is no pixel", d->t, d->r,
             d->s);
    if (strides_or_pads(d))
        FAIL(CKL_UNSUPPORTED, "conv pointwise: with strides or padding y has not the pixels of x");
    if (d->layout != CKL_IMAGE_NHWC)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: it takes NHWC without groups");
    if (!conv_prepared_of(desc)->pointwise.in_runs)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: the pixels of x or y are not equally far apart");
    return CKL_OK;
}

ckl_status conv_pointwise_check(const void *desc)
{
    const ckl_conv_desc *d = desc;
    if (d->direction == CKL_CONV_WEIGHT && d->bias)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: it does not compute the gradient of the bias");
    if (d->groups > 1)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: it takes NHWC without groups");
    TRY(conv_pointwise_check_pixels(desc));
    const int64_t unit = 16 / (int64_t)ckl_dtype_bytes(d->dtype);
    if (d->residual && (d->c % unit || d->k % unit))
        FAIL(CKL_UNSUPPORTED, "conv pointwise: residuals are for channels of whole 16 bytes");
    if (d->dtype == CKL_F32 && d->math == CKL_GEMM_F32)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: tensor cores multiply f32 with math=tf32 alone");
    return CKL_OK;
}

/* Tiles of so many rows, columns and consumers, whose loads of columns `shared` CTAs share. */
static void take_tiles(const ckl_gemm_desc *product, const ckl_device_info *device, int rows, int64_t columns,
                       int consumers, int shared, gemm_sm90_config *c)
{
    c->tile_m = rows;
    c->tile_n = (int)columns;
    c->consumers = consumers;
    c->pingpong = c->swap = false;
    c->cluster_m = shared;
    c->cluster_n = c->split = c->ctas = 1;
    c->persistent = true;
    gemm_sm90_fit_memory(c, ceil_div(product->k, gemm_tile_k(product->a)), device);
}

/*
 * For channels that do not fill a stage: tiles of all filters, or of equal shares of more than 192, whose loads two
 * CTAs share, and many pixels.
 */
static void few_channels(const ckl_gemm_desc *product, const ckl_device_info *device, gemm_sm90_config *c)
{
    enum { ROWS = 192, UNIT = 32 };
    const int64_t shares = max_i64(1, ceil_div(product->n, ROWS));
    take_tiles(product, device, ROWS, round_up(ceil_div(product->n, shares), UNIT), 3, 2, c);
}

enum { SPAN = 64 }; // columns of a box of a B that is not K-major

/* Is it a gradient of data to few channels? B is not K-major then, and many tiles read its columns at once. */
static bool shares_columns(const ckl_gemm_desc *product, const ckl_device_info *device)
{
    enum { ROWS = 64 };
    return product->layout == CKL_GEMM_NN && product->n <= SPAN && 2 * ceil_div(product->m, ROWS) > device->sm_count;
}

/* Are columns so few and rows so many that memory hides what tiles cost? */
static bool is_stream(const ckl_gemm_desc *product, const ckl_device_info *device)
{
    enum { COLUMNS = 16, ROWS = 256, TURNS = 8 };
    return product->layout == CKL_GEMM_NT && product->n <= COLUMNS && product->k > gemm_tile_k(product->a) &&
           ceil_div(product->m, ROWS) > (int64_t)TURNS * device->sm_count;
}

/*
 * Tiles of many pixels, for few filters or such gradients. 128 to 16 channels of 384x384 take 65.3 us by tiles of
 * 64x64, 12.7 of an image by 256x32, 12.6 by 128x16; 256 to 4 of 16 images of 56x56 9.5, 9.0 and 8.5. 96 to 16 of
 * 640x640 take 29.2 by 128x16, 25.7 by 256x16. The gradient of data of 335 to 16 of 3 images of 112x112 takes 29.6 in
 * 64x64, 24.9 in 128x64; of 96 to 16 of 167x167 5.7 in two turns of 128x64, 4.9 in one of 256x64. Rows of up to half a
 * tile go to y from registers: 96 to 8 of 384x384 take 13.4 by TMA, 11.9 so. Filters of one or two stages are shared by
 * two CTAs: 11.3; 80 to 8 of 56 of 256x256 176 by 256x16, 190 alone.
 */
static void few_columns(const ckl_gemm_desc *product, const ckl_device_info *device, gemm_sm90_config *c)
{
    enum { SHORT = 128, TALL = 256 };
    const bool across = product->layout == CKL_GEMM_NN;
    const bool one_turn =
        ceil_div(product->m, SHORT) > device->sm_count && ceil_div(product->m, TALL) <= device->sm_count;
    const bool tall = across ? one_turn : product->n > 16 || is_stream(product, device);
    const bool shared =
        !across && product->k <= 2 * gemm_tile_k(product->a) && product->m > (int64_t)2 * TALL * device->sm_count;
    take_tiles(product, device, tall ? TALL : SHORT, across ? 64 : product->n <= 16 ? 16 : 32, 2, shared ? 2 : 1, c);
    if (!across && 2 * product->n <= c->tile_n)
        c->ragged = GEMM_ALL_RAGGED;
}

/*
 * As D^T, where the filters of a gradient of data to few channels are A and stay in the stages: as B they come anew for
 * every tile, in spans of 64 columns of which few exist. 384 to 8 channels of 104 images of 32x32 take 49.5 us in
 * 128x64, 26.9 so in 64x128, 32.7 in 64x64.
 */
static void keep_filters(const ckl_gemm_desc *product, const ckl_device_info *device, gemm_sm90_config *c)
{
    enum { ROWS = 64, PIXELS = 128, FEW = SPAN / 2, TURNS = 4 };
    const int64_t steps = ceil_div(product->k, gemm_tile_k(product->a));
    gemm_sm90_config kept = *c;
    if (product->n > FEW || ceil_div(product->m, PIXELS) <= (int64_t)TURNS * device->sm_count)
        return;
    take_tiles(product, device, ROWS, PIXELS, 2, 1, &kept);
    kept.swap = kept.stays = kept.pingpong = true;
    gemm_sm90_fit_memory(&kept, INT64_MAX, device);
    kept.stages -= kept.stages % (int)min_i64(steps, INT32_MAX);
    if (kept.stages > 0)
        *c = kept;
}

/*
 * Of a deep K as D^T in tiles of 128 filters and so many pixels that all go in one turn, no wider than others: 1024 to
 * 256 of 32 images of 14x14 take 9.17 us in 98 tiles of 128x128, 8.39 in 132 of 128x96, but 1024 to 512 12.4 in 192x128
 * and 12.8 in 128x192.
 */
static void one_turn(const ckl_gemm_desc *product, const ckl_device_info *device, gemm_sm90_config *c)
{
    enum { FILTERS = 128, LEAST = 64, MOST = 128, UNIT = 16, DEEP = 8 };
    const int64_t steps = ceil_div(product->k, gemm_tile_k(product->a));
    const int64_t across = device->sm_count / max_i64(1, ceil_div(product->n, FILTERS));
    const int64_t pixels = across ? round_up(ceil_div(product->m, across), UNIT) : INT64_MAX;
    if (pixels < LEAST || pixels > MOST || steps < DEEP)
        return;
    take_tiles(product, device, FILTERS, pixels, 2, 1, c);
    c->swap = true;
    gemm_sm90_fit_memory(c, steps, device);
}

/* One for few channels or filters, one of D^T, then gemm's. */
static bool candidate_pointwise(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { FEW = 32, OWN = 2 };
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    const int count = conv_pointwise_check(desc) == CKL_OK ? INT_MAX : 1; // which says why not
    if (product->m == 0 || i >= count || !gemm_sm90_candidate(product, device, i < OWN ? 0 : i - OWN, config))
        return false;
    const bool forward = product->layout == CKL_GEMM_NT;
    if (i == 1 && product->k > 0 && product->layout != CKL_GEMM_TN)
        (shares_columns(product, device) ? keep_filters : one_turn)(product, device, config);
    if (i == 0 && product->k < gemm_tile_k(product->a) && ((const ckl_conv_desc *)desc)->direction != CKL_CONV_WEIGHT)
        few_channels(product, device, config);
    else if (i == 0 && (shares_columns(product, device) || (product->n <= FEW && forward)))
        few_columns(product, device, config);
    return true;
}

/*
 * The zeros that TMA writes for absent channels, about 11 bytes a cycle: gemm's model does not know of them, and where
 * channels are few most are zeros. 16 to 96 channels of 112x112: tiles of 64x96 82.9 us, of 128x96 52.7, of 192x96 in
 * clusters 35.0. Those of a gradient of data come in spans of 64.
 */
static double absent_us(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_sm90_config *c)
{
    const double ZEROS = 11, HERTZ = 1.7e9;
    const int64_t depth = gemm_tile_k(d->a), rows = c->tile_m / c->cluster_n + c->tile_n / c->cluster_m;
    const int64_t bytes = (round_up(d->k, depth) - d->k) * (int64_t)ckl_dtype_bytes(d->a);
    const int64_t length = c->swap ? d->n : d->m, width = c->swap ? d->m : d->n;
    const int64_t tiles = ceil_div(ceil_div(length, c->tile_m) * ceil_div(width, c->tile_n), device->sm_count);
    const int64_t beside = shares_columns(d, device) && !c->stays ? SPAN - d->n : 0;
    const int64_t zeros = rows * bytes + beside * round_up(d->k, depth) * (int64_t)ckl_dtype_bytes(d->b);
    return (double)tiles * (double)zeros / ZEROS / HERTZ * 1e6;
}

double conv_pointwise_short_tiles(const ckl_gemm_desc *product, const ckl_device_info *device,
                                  const gemm_sm90_config *c)
{
    const double FEW = 1.1, SHARED = 1.25;
    if (shares_columns(product, device) && !c->stays)
        return c->tile_m < 128 || c->tile_n > 64 ? SHARED : 1;
    return product->n <= 32 && c->tile_m < 128 && !c->stays ? FEW : 1;
}

/*
 * One step along K hides nothing of the other consumer's stores: 16 to 256 channels of 8 images of 384x384 take 245 us
 * in ping-pong, 221 by 192x128.
 */
static double pingpong_alone(const ckl_gemm_desc *product, const gemm_sm90_config *c)
{
    const double ALONE = 1.06;
    return c->pingpong && product->k < gemm_tile_k(product->a) ? ALONE : 1;
}

static plan_cost cost_pointwise(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    plan_cost cost = gemm_sm90_cost(product, device, config);
    if (product->layout != CKL_GEMM_TN && !is_stream(product, device)) // K of TN runs down the boxes
        cost.us += absent_us(product, device, config);
    cost.us *= conv_pointwise_short_tiles(product, device, config) * pingpong_alone(product, config);
    return cost;
}

static ckl_status admit_pointwise(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    TRY(conv_pointwise_check(desc));
    if (conv_prepared_of(desc)->pointwise.of_images && d->layout == CKL_IMAGE_NHWC &&
        d->c * (int64_t)ckl_dtype_bytes(d->dtype) % 16 == 0)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: sm90 and sliced take an image as a row by taps");
    if (conv_prepared_of(desc)->pointwise.skipped * (int64_t)ckl_dtype_bytes(d->dtype) % 16)
        FAIL(CKL_UNSUPPORTED, "conv pointwise: the pixel of the filter that is seen begins inside 16 bytes");
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    return gemm_sm90_admit(product, device, config);
}

ckl_gemm_args conv_pointwise_matrices(const ckl_conv_desc *d, const ckl_conv_args *a)
{
    const bool data = d->direction == CKL_CONV_DATA, weight = d->direction == CKL_CONV_WEIGHT;
    const char *w =
        a->w ? (const char *)a->w + conv_prepared_of(d)->pointwise.skipped * (int64_t)ckl_dtype_bytes(d->dtype) : NULL;
    return (ckl_gemm_args){ .a = data || weight ? a->dy : a->x,
                            .b = weight ? a->x : w,
                            .c = a->residual,
                            .bias = a->bias,
                            .scale_b = a->scale,
                            .d = data     ? a->dx
                                 : weight ? a->dw
                                          : a->y,
                            .workspace = a->workspace };
}

static ckl_status launch_pointwise(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_gemm_desc *product = conv_pointwise_product(d);
    const ckl_gemm_args x = conv_pointwise_matrices(d, args);
    if (!PLAN_ALIGNED(16, x.a, x.b, x.c, x.d))
        FAIL(CKL_INVALID, "conv pointwise: a pointer is not aligned to 16 bytes; impl=sm80 takes any");
    return gemm_sm90_launch(plan, plan->config, product, product->k, &x, stream);
}

static const field pointwise_fields[] = GEMM_FIELDS(gemm_sm90_config, GEMM_SM90_CONFIG);

const implementation conv_pointwise_implementation = {
    CONV_RANKED(pointwise, gemm_sm90_config),
    .summary = "a filter of one pixel as a matrix product, by the kernel of gemm sm90; NHWC, Hopper",
    .rivals = { &conv_sm90_weight_implementation },
    .describe = gemm_sm90,
    .params = &gemm_pitched_param_list,
    .target = IR_SM90A,
};
