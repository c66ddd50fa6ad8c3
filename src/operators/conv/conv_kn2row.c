/*
 * conv_kn2row.c - few filters of many channels as a filter of one pixel for each tap: every pixel of x times the
 * filters of all taps, by GEMM's Hopper kernel, then sums of what a filter's taps gave at the pixels under them. In
 * NHWC the product is [pixels, K * taps], of filters as they lie. In NCHW it is [K * taps, pixels] of each image, of
 * planes as they lie and of a copy of the filters for each image: [K * taps, C]. Pixels or planes that begin anywhere
 * are copied first, as gemm does. The gradient of data at strides of 1, of NHWC, is the same of dy with filters turned
 * round, which lie as [K,taps * C].
 *
 * x is read once, where implicit products read it for each tap. The workspace has K * taps f32 for each pixel of x:
 * little beside C channels (Vasudevan, Anderson, Gregg: Parallel multi channel convolution using general matrix
 * multiplication, 2017).
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_prepared.h"
#include "operators/conv/conv_wait.h"
#include "operators/gemm/gemm_plan.h"

enum { THREADS = 256, FILTERS_MAX = 32, TAPS_MAX = 64, SUMS_MAX = 256, QUAD = 4, OCTET = 8 };

/*
 * Of a plan, the first two as in gemm's `pitched`: COPIES runs where pixels do not begin at whole 16 bytes, FILTERS in
 * NCHW and for such rows of data.
 */
enum { PRODUCT, COPIES, SUMS, FILTERS, KERNELS };

/* The product's config is of the whole problem's epilogue, which the sums have. */
#define CONV_KN2ROW_CONFIG(X, owner)               \
    X(owner, int, rows, "3", "", "of a filter")    \
    X(owner, int, columns, "3", "", "of a filter") \
    X(owner, bool, data, "0", "0 1", "the gradient of data")

typedef struct conv_kn2row_config {
    gemm_sm90_config product;
    CONV_KN2ROW_CONFIG(FIELD_MEMBER, )
} conv_kn2row_config;

/* Is the product of planes of channels? */
static bool of_planes(const conv_kn2row_config *c)
{
    return c->product.epilogue.layout == CKL_GEMM_NN && !c->data;
}

/* The sums */

static conv_form form_of(const conv_kn2row_config *c)
{
    const gemm_epilogue *e = &c->product.epilogue;
    return (conv_form){ .direction = c->data ? CKL_CONV_DATA : CKL_CONV_FORWARD,
                        .dtype = e->ab,
                        .out = e->d,
                        .bias = e->bias,
                        .scale = e->scale_b == CKL_GEMM_SCALE_ROW,
                        .residual = e->c,
                        .activation = e->activation };
}

/* The place in x under a tap, along a mode; is it inside? */
static val under(const conv_values *p, int mode, val at, int tap, val *inside)
{
    val far = sub(mul(imm(tap), conv_number(p->dilation[mode])), conv_number(p->pad[mode]));
    val x = convert(I32, add(mul(at, conv_number(p->step[mode])), far)), size = convert(I32, p->x_size[mode]);
    *inside = logical_and(*inside, logical_and(ge(x, imm(0)), lt(x, size)));
    return convert(U32, max(imm(0), min(x, sub(size, imm(1)))));
}

/* An element of y. */
typedef struct y_place {
    val image, filter, h, w;
} y_place;

static y_place place_of(const conv_values *p, bool planes, val e)
{
    y_place y;
    if (!planes)
        y.filter = conv_next_digit(&e, conv_number(p->k));
    y.w = conv_next_digit(&e, conv_number(p->y_size[2]));
    y.h = conv_next_digit(&e, conv_number(p->y_size[1]));
    if (planes)
        y.filter = conv_next_digit(&e, conv_number(p->k));
    y.image = e;
    return y;
}

/* What a tap of y's filter gave at a pixel of its image, of so many rows of products. */
static val product_at(const conv_values *p, bool planes, const y_place *y, val rows, val tap, val pixel)
{
    val row = add(mul(y->image, rows), planes ? tap : pixel);
    val at = add(mul(convert(I64, row), convert(I64, p->packed_row)), convert(I64, planes ? pixel : tap));
    return at(conv_run_at(p->sums, F32, at, 1), 0);
}

/* An element of y a thread: all loads are under way together, of the nearest pixel where there is none. */
static void add_taps(const conv_kn2row_config *c)
{
    const conv_form form = form_of(c);
    const int taps = c->rows * c->columns;
    const bool planes = of_planes(c);
    launch_bounds(THREADS, 0);
    conv_values p = params_of(conv);
    val e = add(mul(cta_x(), imm(THREADS)), thread()), filters = conv_number(p.k), width = conv_number(p.x_size[2]);
    val rows = planes ? mul(filters, imm(taps)) : mul(conv_number(p.x_size[1]), width);
    const y_place y = place_of(&p, planes, e);
    grid_wait();
    launch_dependents();
    IF(lt(y.image, conv_number(p.n))) {
        val product[TAPS_MAX], sum = immf(0);
        UNROLL(i, taps) {
            val inside = yes(), x_h = under(&p, 1, y.h, i / c->columns, &inside),
                x_w = under(&p, 2, y.w, i % c->columns, &inside);
            val tap = c->data ? add(mul(imm(taps - 1 - i), filters), y.filter) : add(mul(y.filter, imm(taps)), imm(i));
            val x = product_at(&p, planes, &y, rows, tap, add(mul(x_h, width), x_w));
            product[i] = select(inside, x, immf(0));
        }
        for (int i = 0; i < taps; i++)
            sum = add(sum, product[i]);
        conv_store(&form, &p, p.from[CONV_Y], convert(I64, e), convert(I64, y.filter), sum);
    }
}

/* The filters' copies */

/* [K,C,TAPS] as [IMAGE,K,TAPS,C], or rows [K,TAPS * C] at whole 16 bytes; an element a thread. */
static void copy_filters(const conv_kn2row_config *c)
{
    const ckl_dtype dtype = c->product.epilogue.ab;
    const int taps = c->data ? 1 : c->rows * c->columns;
    launch_bounds(THREADS, 0);
    conv_values p = params_of(conv);
    val channels = c->data ? mul(conv_number(p.k), imm(c->rows * c->columns)) : conv_number(p.c);
    val e = add(mul(cta_x(), imm(THREADS)), thread()), rest = e;
    val channel = conv_next_digit(&rest, p.packed_channels), tap = conv_next_digit(&rest, imm_as(U32, taps)),
        filter = c->data ? rest : conv_next_digit(&rest, conv_number(p.k));
    val there = lt(rest, conv_number(c->data ? p.c : p.n)); // the filter of data, else the image
    val row = add(mul(filter, channels), min(channel, sub(channels, imm_as(U32, 1))));
    val from = add(mul(convert(I64, row), imm64(taps)), convert(I64, tap));
    conv_wait(&p);
    IF(there)
        set(conv_run_at(p.copies[1], dtype, convert(I64, e), 1), 0, at(conv_run_at(p.from[CONV_W], dtype, from, 1), 0));
}

/* The product's config: f32 as they are summed. */
static gemm_sm90_config product_config(const conv_kn2row_config *c)
{
    gemm_sm90_config product = c->product;
    product.epilogue.d = F32;
    product.epilogue.c = product.epilogue.bias = false;
    product.epilogue.scale_b = CKL_GEMM_SCALE_NONE;
    product.epilogue.activation = CKL_ACTIVATION_IDENTITY;
    return product;
}

static void describe_kn2row(const void *config, int kernel)
{
    const gemm_sm90_config product = product_config(config);
    if (kernel == PRODUCT)
        gemm_sm90(&product, 0);
    else if (kernel == COPIES)
        gemm_repitch(&product.epilogue);
    else if (kernel == SUMS)
        add_taps(config);
    else
        copy_filters(config);
}

/* The host side */

static bool has_planes(const ckl_conv_desc *d)
{
    return d->layout == CKL_IMAGE_NCHW;
}

static int64_t pixels_of(const ckl_conv_desc *d)
{
    return product_i64(d->h, d->w);
}

/* Products by each pixel; half of all numbers at most, so that they may be rounded up. */
static int64_t columns_of(const ckl_conv_desc *d)
{
    return min_i64(product_i64(d->k, product_i64(d->r, d->s)), INT64_MAX / 2);
}

/* Rows of products, and their elements. */
static int64_t rows_of(const ckl_conv_desc *d)
{
    return product_i64(d->n, has_planes(d) ? columns_of(d) : pixels_of(d));
}

static int64_t row_of(const ckl_conv_desc *d)
{
    return round_up(has_planes(d) ? pixels_of(d) : columns_of(d), QUAD);
}

/* Elements of a row of the filters' copies. */
static int64_t copied_row(const ckl_conv_desc *d, bool data)
{
    return round_up(data ? columns_of(d) : d->c, OCTET);
}

/* Elements of a copy for each image; of data in NHWC of one where rows are no whole 16 bytes, forward of none. */
static int64_t copied_filters(const ckl_conv_desc *d, bool data)
{
    const int64_t row = copied_row(d, data);
    if (data)
        return row == columns_of(d) ? 0 : product_i64(d->c, row);
    return has_planes(d) ? product_i64(d->n, product_i64(columns_of(d), row)) : 0;
}

static ckl_gemm_desc product_of(const ckl_conv_desc *d, bool data)
{
    ckl_gemm_desc product = { .m = product_i64(d->n, pixels_of(d)),
                              .n = columns_of(d),
                              .k = d->c,
                              .a = d->dtype,
                              .b = d->dtype,
                              .d = CKL_F32,
                              .math = d->math,
                              .layout = CKL_GEMM_NT,
                              .lda = d->c,
                              .ldb = d->c,
                              .ldd = row_of(d),
                              .batch = 1 };
    if (data) {
        product.layout = CKL_GEMM_NN;
        product.ldb = copied_row(d, true);
    }
    if (has_planes(d)) {
        product.m = columns_of(d);
        product.n = pixels_of(d);
        product.layout = CKL_GEMM_NN;
        product.lda = copied_row(d, false);
        product.ldb = pixels_of(d);
        product.batch = d->n;
        product.stride_a = product_i64(product.m, product.lda);
        product.stride_b = product_i64(product.k, product.ldb);
        product.stride_d = product_i64(product.m, product.ldd);
    }
    return product;
}

static int64_t outputs_of(const ckl_conv_desc *d)
{
    const conv_tensor y = conv_tensor_of(d, CONV_Y);
    return product_i64(product_i64(y.shape[0], y.shape[2]), product_i64(y.shape[3], d->k));
}

conv_kn2row_problem conv_kn2row_of(const ckl_conv_desc *desc)
{
    const ckl_conv_desc d = conv_turned(desc);
    const bool data = desc->direction == CKL_CONV_DATA;
    return (conv_kn2row_problem){ .forward = d,
                                  .data = data,
                                  .product = product_of(&d, data),
                                  .outputs = outputs_of(&d),
                                  .filters = copied_filters(&d, data) };
}

/* Has the product rows that begin anywhere? */
static bool is_copied(const ckl_gemm_desc *product)
{
    return product->lda % OCTET || product->ldb % OCTET;
}

static ckl_status check_problem(const void *desc)
{
    const ckl_conv_desc *of_plan = desc;
    const conv_kn2row_problem *p = &conv_prepared_of(desc)->kn2row;
    const ckl_conv_desc *d = &p->forward;
    TRY(conv_check_dense("kn2row", of_plan));
    TRY(conv_check_half("kn2row", of_plan));
    if (of_plan->direction != CKL_CONV_FORWARD && (!conv_turns(of_plan) || has_planes(of_plan)))
        FAIL(CKL_UNSUPPORTED,
             "conv kn2row: it computes no gradient of weights, nor of data at strides above 1 or of planes");
    if (of_plan->epilogue)
        FAIL(CKL_UNSUPPORTED, "conv kn2row: epilogue=%s, but its sums do not know their pixels", of_plan->epilogue);
    if (of_plan->groups > 1)
        FAIL(CKL_UNSUPPORTED, "conv kn2row: it takes no groups");
    if (conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv kn2row: volumes are convolved by other kernels");
    if (d->k < 1 || d->k > FILTERS_MAX || d->r > TAPS_MAX || d->s > TAPS_MAX || d->r * d->s < 2 ||
        d->r * d->s > TAPS_MAX || d->k * d->r * d->s > SUMS_MAX)
        FAIL(CKL_UNSUPPORTED,
             "conv kn2row: k=%" PRId64 " filters of %" PRId64 "x%" PRId64
             " are none, of one pixel or more than %d sums",
             d->k, d->r, d->s, SUMS_MAX);
    if (rows_of(d) == 0 || rows_of(d) > INT32_MAX || pixels_of(d) > INT32_MAX || p->filters > INT32_MAX ||
        p->outputs > INT32_MAX || d->h > INT32_MAX / 4 || d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv kn2row: there are no pixels, or they are beyond 32-bit numbers");
    return CKL_OK;
}

static bool candidate_kn2row(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const conv_kn2row_problem *p = &conv_prepared_of(desc)->kn2row;
    const ckl_conv_desc *d = &p->forward;
    conv_kn2row_config *c = config;
    if (i > 0 && check_problem(desc) != CKL_OK)
        return false; // the first one is there to be refused with a sentence
    if (p->product.m == 0 ||
        !(is_copied(&p->product) ? gemm_pitched_implementation.candidate(&p->product, device, i, &c->product)
                                 : gemm_sm90_candidate(&p->product, device, i, &c->product)))
        return false;
    c->product.epilogue.d = d->out;
    c->product.epilogue.c = d->residual;
    c->product.epilogue.bias = d->bias;
    c->product.epilogue.scale_b = d->scale ? CKL_GEMM_SCALE_ROW : CKL_GEMM_SCALE_NONE;
    c->product.epilogue.activation = (choice)d->activation;
    c->rows = (int)min_i64(d->r, TAPS_MAX);
    c->columns = (int)min_i64(d->s, TAPS_MAX);
    c->data = p->data;
    return true;
}

/*
 * Products of planes are added as they lie: 256 to 16 channels of 2 planes of 512x512 take 245 us. Of many products
 * nine problems took 1.03 to 1.28 of what their parts add up to, and of those that took most rivals were faster; two
 * images of 64x64 take 5.3 us as reckoned.
 */
static plan_cost cost_kn2row(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH = 2, SUMS_LAUNCH = 1.2, ADDED = 2e6, PLANES_ADDED = 4e6, WRITTEN = 1e7,
                 COPIED = 1e6; // us; bytes a us
    const double MANY_BYTES = 16e6, PARTS_APART = 1.23;
    const conv_kn2row_problem *p = &conv_prepared_of(desc)->kn2row;
    const ckl_conv_desc *d = &p->forward;
    const gemm_sm90_config c = product_config(config);
    const double products = 4 * (double)rows_of(d) * (double)row_of(d); // bytes
    plan_cost cost = is_copied(&p->product) ? gemm_pitched_implementation.cost(&p->product, device, &c)
                                            : gemm_sm90_cost(&p->product, device, &c);
    cost.us += SUMS_LAUNCH + 4 * (double)p->outputs * (double)(d->r * d->s) / (has_planes(d) ? PLANES_ADDED : ADDED) +
               products / WRITTEN;
    cost.us += p->filters ? LAUNCH + 2 * (double)p->filters / COPIED : 0;
    cost.us *= products > MANY_BYTES ? PARTS_APART : 1;
    return cost;
}

static ckl_status admit_kn2row(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_kn2row_config *c = config;
    TRY(check_problem(desc));
    conv_form of_config = form_of(c);
    of_config.math = c->product.epilogue.math;
    TRY(conv_check_form("kn2row", d, &of_config));
    if (c->rows != d->r || c->columns != d->s)
        FAIL(CKL_INVALID, "conv kn2row: the config's filter is not the problem's");
    const ckl_gemm_desc *product = &conv_prepared_of(desc)->kn2row.product;
    const gemm_sm90_config of_product = product_config(c);
    return (is_copied(product) ? gemm_pitched_implementation.admit : gemm_sm90_admit)(product, device, &of_product);
}

/* Of products, before the filters' copies. */
static int64_t products_bytes(const ckl_conv_desc *d)
{
    return round_up(product_i64(rows_of(d), row_of(d)) * (int64_t)sizeof(float), 128);
}

/* Before the copies that gemm makes. */
static int64_t own_bytes(const conv_kn2row_problem *p)
{
    return round_up(products_bytes(&p->forward) + 2 * p->filters, PLAN_WORKSPACE_ALIGNMENT);
}

static int64_t workspace_kn2row(const ckl_plan *plan)
{
    const conv_kn2row_problem *p = &conv_prepared_of(plan->desc)->kn2row;
    const ckl_plan of = conv_plan_of(plan, &p->product, NULL);
    return own_bytes(p) + (is_copied(&p->product) ? gemm_pitched_implementation.workspace_bytes(&of) : 0);
}

static ckl_status launch_kn2row(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const conv_kn2row_problem *problem = &conv_prepared_of(plan->desc)->kn2row;
    const ckl_conv_args a = conv_turned_args(plan->desc, args);
    const ckl_conv_desc *d = &problem->forward;
    const ckl_gemm_desc *product = &problem->product;
    const int64_t copied = problem->filters;
    const gemm_sm90_config c = product_config(plan->config);
    char *products = plan_workspace(plan, ((const ckl_conv_args *)args)->workspace);
    conv_params p = conv_params_of(plan, d, &a);
    p.sums = products;
    p.packed_row = (uint32_t)row_of(d);
    p.copies[1] = products + products_bytes(d);
    p.packed_channels = (uint32_t)copied_row(d, problem->data);
    if ((!is_copied(product) && !PLAN_ALIGNED(16, a.x)) || (!copied && !PLAN_ALIGNED(16, a.w)))
        FAIL(CKL_INVALID, "conv kn2row: x or w is not aligned to 16 bytes; impl=sm80 takes any");
    p.early_bytes[0] = 0; // x is the product's
    if (copied)
        TRY(plan_launch(plan, FILTERS, (plan_grid){ .x = ceil_div(copied, THREADS) }, &p, stream));
    const void *filters = copied ? p.copies[1] : a.w;
    const ckl_gemm_args x = { .a = has_planes(d) ? filters : a.x,
                              .b = has_planes(d) ? a.x : filters,
                              .d = products,
                              .workspace = products + own_bytes(problem) };
    const ckl_plan of = conv_plan_of(plan, product, &c);
    if (is_copied(product))
        TRY(gemm_pitched_implementation.launch(&of, &x, stream));
    else
        TRY(gemm_sm90_launch(plan, &c, product, product->k, &x, stream));
    return plan_launch(plan, SUMS, (plan_grid){ .x = ceil_div(problem->outputs, THREADS) }, &p, stream);
}

static const field kn2row_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (conv_kn2row_config, product.epilogue)) //
                                       GEMM_SM90_CONFIG(FIELD_NESTED, (conv_kn2row_config, product))       //
                                       CONV_KN2ROW_CONFIG(FIELD_ROW, conv_kn2row_config) };

const implementation conv_kn2row_implementation = {
    CONV_RANKED(kn2row, conv_kn2row_config),
    .summary = "few filters of many channels: a product of all pixels and taps by gemm sm90, then sums; Hopper",
    .rivals = { &conv_narrow_implementation, &conv_sliced_implementation, &conv_sm90_implementation,
                &conv_packed_implementation, &conv_nchw_sm90_implementation, &conv_stem_implementation },
    .describe = describe_kn2row,
    .kernels = KERNELS,
    .params = &gemm_pitched_param_list,
    .own_params = &conv_param_list,
    .own_from = SUMS,
    .target = IR_SM90A,
    .workspace_bytes = workspace_kn2row,
};
