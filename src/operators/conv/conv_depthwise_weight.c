/*
 * conv_depthwise_weight.c - the gradient of weights where each channel has a filter of its own.
 *
 * A CTA has some channels of dy, a row of their filters and a slice of dy; its threads have a vector of channels each,
 * or one of planes, and runs of columns of dy in turn, which they multiply with the columns of x under the taps. The
 * sums of threads meet in shared memory, those of slices in a second kernel, always in the same order. The gradient of
 * the bias is a further tap under which x is one.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_sm90.h"
#include "operators/conv/conv_wait.h"

enum {
    THREADS = CONV_ADD_THREADS,
    SUMS_MAX = 12 * 8,
    SLICES_MAX = 64,
    COLS_MAX = 8,
    SPAN_MAX = 256,
    SPAN_OF_REGISTERS = 24
};

#define CONV_DEPTHWISE_WEIGHT_CONFIG(X, owner)                                            \
    X(owner, int, vec, "8", "1 2 4 8", "channels of a thread")                            \
    X(owner, int, lanes, "8", "1 2 4 8", "threads side by side with vectors of channels") \
    X(owner, int, filter, "3", "", "columns of a filter")                                 \
    X(owner, int, cols, "8", "1 4 8", "columns of dy whose loads are under way together") \
    X(owner, int, step, "1", "", "columns from one to the next place of a filter")        \
    X(owner, int, dilation, "1", "", "columns between neighbours of a filter")            \
    X(owner, int, slices, "16", "1 2 4 8 16 32 64", "of the rows of dy, summed apart first")

CONV_CONFIG(conv_depthwise_weight_config, CONV_DEPTHWISE_WEIGHT_CONFIG);

/* What a thread knows. */
typedef struct weight_role {
    const conv_depthwise_weight_config *cfg;
    conv_values p;
    val channel;      // the first of its vector
    val tap_d, tap_h; // its row of the filter
    tensor rSum;      // (CHANNEL,TAP)
} weight_role;

static int taps_of(const conv_depthwise_weight_config *c)
{
    return c->filter + c->form.bias;
}

/* Of dy. */
static val channels_of(const conv_values *p)
{
    return mul(p->groups, p->k);
}

static val rows_of_filter(const conv_values *p)
{
    return mul(p->filter[0], p->filter[1]);
}

/* A row of vectors in x or dy. */
typedef struct vector_row {
    int vec;
    val start, pitch, columns; // an address, bytes from one to the next, how many: i32
    val inside;                // predicate: there is such a row; else start is of some other
} vector_row;

/*
 * Its vector at a column, zeros outside. Loaded from the nearest place, without a branch, so that loads are in flight
 * together.
 */
static packed load_vector(const weight_role *k, const vector_row *row, val column)
{
    const ckl_dtype dtype = k->cfg->form.dtype;
    const int vec = row->vec;
    val nearest = max(imm(0), min(column, sub(row->columns, imm(1))));
    val address = add(row->start, mul(convert(U64, nearest), row->pitch));
    packed x = load_packed(gmem_tensor(address, dtype, compact(leaf(vec))), vec * (int)ckl_dtype_bytes(dtype));
    return conv_or_zeros(x, logical_and(row->inside, logical_and(ge(column, imm(0)), lt(column, row->columns))));
}

/* Adds the products of column j of x to the taps; column 0 is below the first tap of the first column of dy. */
static void add_column(weight_role *k, const packed *dy, tensor rX, int j)
{
    const conv_depthwise_weight_config *cfg = k->cfg;
    for (int q = 0; q < cfg->cols; q++) {
        const int s = conv_tap_of(j, q, cfg->filter, cfg->step, cfg->dilation);
        if (s < 0)
            continue;
        tensor rY = unpacked(dy[q], F32);
        for (int c = 0; c < cfg->vec; c++)
            set(k->rSum, coord(c, s), fma(at(rX, c), at(rY, c), at(k->rSum, c, s)));
    }
}

static int span_of(const conv_depthwise_weight_config *c)
{
    return (c->cols - 1) * c->step + (c->filter - 1) * c->dilation + 1;
}

/* Is column j of x under a tap of some column of dy? */
static bool is_under_tap(const conv_depthwise_weight_config *c, int j)
{
    bool under = false;
    for (int q = 0; q < c->cols; q++)
        under |= conv_tap_of(j, q, c->filter, c->step, c->dilation) >= 0;
    return under;
}

/* The products of some columns of dy with x from column `first` on. */
static void add_products(weight_role *k, const packed *dy, const vector_row *x, val first)
{
    const conv_depthwise_weight_config *cfg = k->cfg;
    packed at_x[SPAN_MAX];
    UNROLL(j, span_of(cfg))
        if (is_under_tap(cfg, j))
            at_x[j] = load_vector(k, x, add(first, imm(j)));
    UNROLL(j, span_of(cfg))
        if (is_under_tap(cfg, j))
            add_column(k, dy, unpacked(at_x[j], F32), j);
}

/* Some columns of dy from w on, and the x below them. */
static void add_columns(weight_role *k, const vector_row *y, const vector_row *x, val w)
{
    const conv_depthwise_weight_config *cfg = k->cfg;
    packed dy[COLS_MAX];
    val first = sub(mul(w, imm(cfg->step)), conv_signed(k->p.pad[2]));
    for (int q = 0; q < cfg->cols; q++)
        dy[q] = load_vector(k, y, add(w, imm(q)));
    add_products(k, dy, x, first);
    for (int q = 0; q < cfg->cols && cfg->form.bias; q++) {
        tensor rY = unpacked(dy[q], F32);
        for (int c = 0; c < cfg->vec; c++)
            set(k->rSum, coord(c, cfg->filter), add(at(k->rSum, c, cfg->filter), at(rY, c)));
    }
}

/* The place below a tap along mode m; outside x the nearest one. */
static val under(const weight_role *k, int m, val at, val tap, val *inside)
{
    const conv_values *p = &k->p;
    val x = sub(add(mul(at, p->step[m]), mul(tap, p->dilation[m])), p->pad[m]);
    *inside = logical_and(*inside, logical_and(ge(x, imm64(0)), lt(x, p->x_size[m])));
    return max(imm64(0), min(x, sub(p->x_size[m], imm64(1))));
}

/* Runs of columns of a row of dy. */
static val runs_of_row(const weight_role *k)
{
    return div(add(k->p.y_size[2], imm64(k->cfg->cols - 1)), imm64(k->cfg->cols));
}

/* Run number `run` of dy. */
static void add_run(weight_role *k, val run)
{
    const conv_values *p = &k->p;
    const conv_depthwise_weight_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    val row = div(run, runs_of_row(k)), w = mul(sub(run, mul(row, runs_of_row(k))), imm64(cfg->cols));
    val h = rem(row, p->y_size[1]), rest = div(row, p->y_size[1]), d = rem(rest, p->y_size[0]),
        n = div(rest, p->y_size[0]);
    val in_y = add(mul(n, p->y[0]), add(mul(d, p->y[1]), mul(h, p->y[2])));
    val bytes = imm((int)ckl_dtype_bytes(dtype)), inside = yes(), x_d = under(k, 0, d, k->tap_d, &inside),
        x_h = under(k, 1, h, k->tap_h, &inside);
    val in_x = add(mul(n, p->x[0]), add(mul(x_d, p->x[1]), mul(x_h, p->x[2])));
    const vector_row x = { cfg->vec, gmem_address(p->from[CONV_X], dtype, add(in_x, mul(k->channel, p->x[4]))),
                           convert(U64, mul(p->x[3], bytes)), conv_signed(p->x_size[2]), inside };
    const vector_row y = { cfg->vec, gmem_address(p->from[CONV_Y], dtype, add(in_y, mul(k->channel, p->y[4]))),
                           convert(U64, mul(p->y[3], bytes)), conv_signed(p->y_size[2]), yes() };
    add_columns(k, &y, &x, conv_signed(w));
}

/* Stores a finished sum, tap `tap` of row z of a channel's filter, to dw or dbias. */
static void store_sum(const conv_depthwise_weight_config *cfg, const conv_values *p, val channel, val tap, val z,
                      val sum)
{
    val d = div(z, p->filter[1]), h = rem(z, p->filter[1]);
    val index = add(add(mul(channel, p->w[0]), mul(d, p->w[1])), add(mul(h, p->w[2]), mul(tap, p->w[3])));
    IF(lt(tap, imm64(cfg->filter)))
        set(conv_elements_from(p->from[CONV_W], cfg->form.out), index, sum);
    if (cfg->form.bias)
        IF(logical_and(eq(tap, imm64(cfg->filter)), eq(z, imm64(0))))
            set(conv_elements_from(p->bias, cfg->form.out), channel, sum);
}

/*
 * Adds the sums of the CTA's threads and stores them: to the slice's (CHANNEL,TAP,ROW) of all channels, or to dw if
 * there is one slice.
 */
static void store_sums(const weight_role *k)
{
    const conv_depthwise_weight_config *cfg = k->cfg;
    const int channels = cfg->lanes * cfg->vec, taps = taps_of(cfg), workers = THREADS / cfg->lanes;
    tensor sSum = smem_tensor("sums", F32, compact(shape(channels, taps, workers)), 16); // (CHANNEL,TAP,WORKER)
    val first = mul(thread_at(thread(), 0, cfg->lanes, THREADS / cfg->lanes), imm(cfg->vec)),
        worker = thread_at(thread(), 1, cfg->lanes, THREADS / cfg->lanes);
    for (int s = 0; s < taps; s++)
        for (int c = 0; c < cfg->vec; c++)
            set(sSum, coord(add(first, imm(c)), imm(s), worker), at(k->rSum, c, s));
    cta_sync();
    val row = add(mul(cta_x(), convert(U32, rows_of_filter(&k->p))), cta_z());
    LOOP_FROM(e, thread(), imm(channels * taps), imm(THREADS)) {
        val c = rem(e, imm(channels)), s = div(e, imm(channels)), sum = variable(F32, immf(0));
        val channel = convert(I64, add(mul(cta_y(), imm(channels)), c)), all = channels_of(&k->p);
        LOOP(i, imm(workers))
            assign(sum, add(sum, at(sSum, c, s, i)));
        val index = add(mul(convert(I64, add(mul(row, imm(taps)), s)), all), channel);
        IF(lt(channel, all)) {
            if (cfg->slices == 1)
                store_sum(cfg, &k->p, channel, convert(I64, s), convert(I64, cta_z()), sum);
            else
                set(conv_elements_from(k->p.sums, F32), index, sum);
        }
    }
}

static void multiply(const conv_depthwise_weight_config *cfg)
{
    launch_bounds(THREADS, 0);
    weight_role k = { .cfg = cfg, .p = params_of(conv) };
    val lane = thread_at(thread(), 0, cfg->lanes, THREADS / cfg->lanes),
        worker = thread_at(thread(), 1, cfg->lanes, THREADS / cfg->lanes);
    val runs = mul(mul(mul(k.p.n, k.p.y_size[0]), k.p.y_size[1]), runs_of_row(&k)), z = convert(I64, cta_z());
    k.channel = convert(I64, mul(add(mul(cta_y(), imm(cfg->lanes)), lane), imm(cfg->vec)));
    k.tap_d = div(z, k.p.filter[1]);
    k.tap_h = rem(z, k.p.filter[1]);
    k.rSum = fragment(F32, compact(shape(cfg->vec, taps_of(cfg))));
    fill(k.rSum, immf(0));
    conv_wait(&k.p);
    const int workers = THREADS / cfg->lanes;
    val first = add(mul(cta_x(), imm(workers)), worker);
    IF(lt(k.channel, channels_of(&k.p)))
        LOOP_FROM(run, first, convert(U32, runs), imm(workers * cfg->slices))
            add_run(&k, convert(I64, run));
    store_sums(&k);
}

/* Kernel 1: a sum a thread. */
static void add_all(const conv_depthwise_weight_config *cfg)
{
    const int taps = taps_of(cfg);
    launch_bounds(THREADS, 0);
    conv_values p = params_of(conv);
    val channels = channels_of(&p), count = mul(mul(rows_of_filter(&p), imm64(taps)), channels);
    val e = add(mul(convert(I64, cta_x()), imm64(THREADS)), convert(I64, thread()));
    grid_wait();
    launch_dependents();
    IF(lt(e, count)) {
        val rest = div(e, channels), sum = at(conv_add_slices(cfg->slices, gmem_address(p.sums, F32, e), count, 1), 0);
        store_sum(cfg, &p, rem(e, channels), rem(rest, imm64(taps)), div(rest, imm64(taps)), sum);
    }
}

void conv_add_depthwise(const conv_form *form, int columns, int slices)
{
    const conv_depthwise_weight_config all = { .form = *form, .filter = columns, .slices = slices };
    add_all(&all);
}

void conv_depthwise_weight(const void *config, int kernel)
{
    if (kernel == 0)
        multiply(config);
    else
        add_all(config);
}

/* The host side */

static int64_t runs_of(const ckl_conv_desc *d, const conv_depthwise_weight_config *c)
{
    const conv_tensor y = conv_tensor_of(d, CONV_Y);
    return product_i64(product_i64(y.shape[0], y.shape[1]), product_i64(y.shape[2], ceil_div(y.shape[3], c->cols)));
}

static int vector_of(const ckl_conv_desc *d)
{
    int vec =
        d->layout == CKL_IMAGE_NCHW ? 1 : (int)min_i64(16 / (int64_t)ckl_dtype_bytes(d->dtype), power_of_two_in(d->k));
    while (vec > 1 && vec * (d->s + 1) > SUMS_MAX)
        vec /= 2;
    return vec;
}

/*
 * A few CTAs for each SM, with a row of the filter each. All three rows of 3x3, which would read dy once, left an SM
 * too few threads (144 channels of 56x56: 87.6 us instead of 41.8; with registers for three CTAs 62.0).
 */
static ckl_status choose_depthwise_weight(const void *desc, const ckl_device_info *device, void *config)
{
    enum { CTAS_OF_SM = 4, RUNS_OF_ONE = 16 }; // runs that cost less than a second launch
    const ckl_conv_desc *d = desc;
    conv_depthwise_weight_config *c = config;
    if (d->direction != CKL_CONV_WEIGHT || d->groups != d->c || d->groups != d->k)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_weight: it computes the gradient of filters of a channel each");
    c->form = conv_form_of(d);
    c->filter = (int)min_i64(d->s, INT32_MAX);
    c->step = (int)d->stride_w;
    c->dilation = (int)d->dilation_w;
    c->cols = COLS_MAX;
    while (c->cols > 1 && (c->cols - 1) * d->stride_w + (d->s - 1) * d->dilation_w + 1 > SPAN_OF_REGISTERS)
        c->cols = c->cols == COLS_MAX ? COLS_MAX / 2 : 1;
    c->vec = vector_of(d);
    c->lanes = d->layout == CKL_IMAGE_NCHW ? 1 : 8;
    while (c->lanes > 1 && 8 * round_up(d->k, (int64_t)c->lanes * c->vec) > 9 * d->k)
        c->lanes /= 2;
    const int64_t ctas = ceil_div(d->k, (int64_t)c->lanes * c->vec) * d->t * d->r;
    const int64_t runs = ceil_div(runs_of(d, c), THREADS / c->lanes); // of a thread, were there one slice
    c->slices = runs <= RUNS_OF_ONE
                    ? 1
                    : (int)min_i64(SLICES_MAX, min_i64(ceil_div(CTAS_OF_SM * device->sm_count, ctas), runs));
    return CKL_OK;
}

static ckl_status admit_depthwise_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_depthwise_weight_config *c = config;
    conv_depthwise_weight_config own = { 0 };
    TRY(conv_check_form("depthwise_weight", d, &c->form));
    TRY(conv_check_dense("depthwise_weight", d));
    TRY(choose_depthwise_weight(d, device, &own));
    if (d->c == 0 || d->n == 0)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_weight: it takes some products");
    if (d->s + 1 > SUMS_MAX || d->t * d->r > UINT16_MAX || d->k > UINT16_MAX || d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_weight: filters, channels or rows are more than a launch has");
    if (c->filter != d->s || c->step != d->stride_w || c->dilation != d->dilation_w)
        FAIL(CKL_INVALID, "conv depthwise_weight: filter=%d is not s=%" PRId64 ", or its step or dilation are others",
             c->filter, d->s);
    if ((d->s - 1) * d->dilation_w + COLS_MAX * d->stride_w > SPAN_MAX || c->cols < 1 || c->cols > COLS_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_weight: s=%" PRId64 " columns, or cols=%d, reach too far", d->s, c->cols);
    if (c->vec < 1 || own.vec % c->vec || !is_power_of_two(c->lanes) || c->lanes > 8 || c->slices < 1 ||
        c->slices > SLICES_MAX)
        FAIL(CKL_INVALID, "conv depthwise_weight: vec=%d lanes=%d slices=%d are not possible", c->vec, c->lanes,
             c->slices);
    if (runs_of(d, c) > INT32_MAX / THREADS)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_weight: %" PRId64 " runs of columns are beyond 32-bit numbers",
             runs_of(d, c));
    return CKL_OK;
}

static int64_t sums_of_slice(const ckl_conv_desc *d, const conv_depthwise_weight_config *c)
{
    return d->t * d->r * taps_of(c) * d->k;
}

static int64_t workspace_depthwise_weight(const ckl_plan *plan)
{
    const conv_depthwise_weight_config *c = plan->config;
    return c->slices == 1 ? 0 : c->slices * sums_of_slice(plan->desc, c) * (int64_t)sizeof(float);
}

static ckl_status launch_depthwise_weight(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_depthwise_weight_config *c = plan->config;
    if (!PLAN_ALIGNED(c->vec * (int64_t)ckl_dtype_bytes(d->dtype), a->x, a->dy))
        FAIL(CKL_INVALID,
             "conv depthwise_weight: x=%p or dy=%p is not aligned to %d elements; config='vec=1' takes any", a->x,
             a->dy, c->vec);
    conv_params p = conv_params_of(plan, d, a);
    p.sums = plan_workspace(plan, a->workspace);
    const plan_grid grid = { c->slices, ceil_div(d->k, (int64_t)c->lanes * c->vec), d->t * d->r };
    TRY(plan_launch(plan, 0, grid, &p, stream));
    return c->slices == 1
               ? CKL_OK
               : plan_launch(plan, 1, (plan_grid){ .x = ceil_div(sums_of_slice(d, c), THREADS) }, &p, stream);
}

static const field depthwise_weight_fields[] = CONV_FIELDS(conv_depthwise_weight_config, CONV_DEPTHWISE_WEIGHT_CONFIG);

const implementation conv_depthwise_weight_implementation = {
    IMPLEMENTATION_PARTS(conv, depthwise_weight),
    .cost = conv_cost_depthwise_weight,
    .summary = "gradient of a filter a channel: runs of columns of dy in slices, added in order",
    .kernels = 2,
    .params = &conv_param_list,
    .workspace_bytes = workspace_depthwise_weight,
};
