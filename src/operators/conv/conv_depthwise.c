/*
 * conv_depthwise.c - filters of one channel each, of any size, stride and layout: forward, and the gradient of data.
 *
 * A thread has some columns of one channel. For each row of the filter it loads the columns that its taps see, each of
 * them once, and adds them to all sums that see them; what rows share comes from the caches. Where channels lie side by
 * side neighbours have the next channels, else the next columns.
 *
 * One filter of several channels of NHWC is the same as a plane: a row of pixels is one of elements, and a step along
 * it is a pixel.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_wait.h"

enum {
    THREADS = 128,
    COLS = 16, // columns to consider
    COLS_LEAST = 4,
    COLS_MAX = 64,
    CTAS_OF_SM = 4,
    FILTER_MAX = 64,  // columns
    WINDOW_MAX = 128, // columns that taps see, of a thread
};

/* Everything a thread knows. */
typedef struct depthwise {
    const conv_depthwise_config *cfg;
    conv_values p;
    const val *from, *from_size, *to, *to_size; // strides and sizes of what is read and what is written
    val n, channel, at[CONV_MODES];             // its first output
    tensor rSum;                                // (COLUMN)
} depthwise;

static bool is_data(const conv_depthwise_config *c)
{
    return c->form.direction == CKL_CONV_DATA;
}

/* Does tap s see a column from output q? *column: which, counted from where that of output 0 and tap 0 is. */
static bool sees(const conv_depthwise_config *c, int q, int s, int *column)
{
    const int reach = is_data(c) ? q + c->pad - s * c->dilation_w : q * c->step_w + s * c->dilation_w;
    *column = is_data(c) ? reach / c->step_w : reach;
    return !is_data(c) || reach % c->step_w == 0;
}

/* The columns that a thread's taps see, in order; how many. */
static int window_of(const conv_depthwise_config *c, int columns[WINDOW_MAX])
{
    int count = 0, column;
    for (int q = 0; q < c->cols; q++)
        for (int s = 0; s < c->columns; s++) {
            int i = 0;
            if (!sees(c, q, s, &column))
                continue;
            while (i < count && columns[i] != column)
                i++;
            if (i == WINDOW_MAX)
                return WINDOW_MAX + 1;
            columns[i] = column;
            count += i == count;
        }
    return count;
}

/* Finds the outputs of thread `number`; are there any? */
static val find_place(depthwise *k, val number)
{
    const conv_depthwise_config *cfg = k->cfg;
    const val channels = conv_number(mul(k->p.groups, is_data(cfg) ? k->p.c : k->p.k));
    val rest = number;
    if (cfg->nhwc)
        k->channel = conv_next_digit(&rest, channels);
    k->at[2] = mul(conv_next_digit(&rest, div_up(conv_number(k->to_size[2]), cfg->cols)), imm(cfg->cols));
    for (int m = 1; m >= 0; m--)
        k->at[m] = conv_next_digit(&rest, conv_number(k->to_size[m]));
    if (!cfg->nhwc)
        k->channel = conv_next_digit(&rest, channels);
    k->n = rest;
    return lt(rest, conv_number(k->p.n));
}

/* The row that row `tap` of the filter sees along mode m; is there one? */
static val under(const depthwise *k, int m, val tap, val *inside)
{
    const conv_depthwise_config *cfg = k->cfg;
    const val at = convert(I32, k->at[m]), pad = convert(I32, k->p.pad[m]),
              step = m ? imm(cfg->step_h) : convert(I32, k->p.step[m]),
              far = mul(convert(I32, tap), m ? imm(cfg->dilation_h) : convert(I32, k->p.dilation[m]));
    val row = sub(add(mul(at, step), far), pad);
    if (is_data(cfg)) {
        const val reach = sub(add(at, pad), far);
        row = div(max(reach, imm(0)), step);
        *inside = logical_and(*inside, eq(mul(row, step), reach));
    }
    *inside = logical_and(*inside, lt(convert(U32, row), conv_number(k->from_size[m])));
    return row;
}

/* Adds the products of a row of the filter with what it sees; addresses of column 0 of the row and of the first tap. */
static void add_row(depthwise *k, val row, val column, val taps)
{
    const conv_depthwise_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    const int bytes = (int)ckl_dtype_bytes(dtype);
    int columns[WINDOW_MAX], seen;
    const int count = window_of(cfg, columns);
    tensor rX = fragment(F32, compact(leaf(count))), rW = fragment(F32, compact(leaf(cfg->columns)));
    vector_at at_x[WINDOW_MAX];
    UNROLL(i, count) {
        const val at = add(column, imm(columns[i])), far = mul(convert(I64, at), mul(k->from[3], imm64(bytes)));
        at_x[i] = (vector_at){ add(row, convert(U64, far)), 0, lt(convert(U32, at), conv_number(k->from_size[2])) };
    }
    vectors_load(at_x, count, 1, gmem_tensor(row, dtype, compact(leaf(1))), rX.regs, 0);
    copy(gmem_tensor(taps, dtype, compact(leaf(cfg->columns))), rW, bytes);
    UNROLL(i, count)
        for (int q = 0; q < cfg->cols; q++)
            for (int s = 0; s < cfg->columns; s++)
                if (sees(cfg, q, s, &seen) && seen == columns[i])
                    set(k->rSum, q, fma(at(rX, i), at(rW, s), at(k->rSum, q)));
}

static void add_rows(depthwise *k)
{
    const conv_depthwise_config *cfg = k->cfg;
    const conv_values *p = &k->p;
    const val pad = convert(I32, p->pad[2]), at = convert(I32, k->at[2]);
    const val column = is_data(cfg) ? div(add(at, pad), imm(cfg->step_w)) : sub(mul(at, imm(cfg->step_w)), pad);
    const val channel = convert(I64, is_data(cfg) ? k->channel : div(k->channel, conv_number(p->k)));
    const val start = add(mul(convert(I64, k->n), k->from[0]), mul(channel, k->from[4]));
    LOOP(t, cfg->volume ? p->filter[0] : imm64(1))
        LOOP(r, p->filter[1]) {
            val inside = yes(), h = under(k, 1, r, &inside), d = cfg->volume ? under(k, 0, t, &inside) : imm(0);
            IF(inside) {
                const val row = add(start, add(mul(convert(I64, d), k->from[1]), mul(convert(I64, h), k->from[2])));
                const val tap = add(mul(convert(I64, k->channel), p->w[0]), add(mul(t, p->w[1]), mul(r, p->w[2])));
                add_row(k, gmem_address(p->from[is_data(cfg) ? CONV_Y : CONV_X], cfg->form.dtype, row), column,
                        gmem_address(p->from[CONV_W], cfg->form.dtype, tap));
            }
        }
}

static void store_columns(const depthwise *k)
{
    const conv_depthwise_config *cfg = k->cfg;
    const val to = k->p.from[is_data(cfg) ? CONV_X : CONV_Y];
    val index = add(mul(convert(I64, k->n), k->to[0]), mul(convert(I64, k->channel), k->to[4]));
    for (int m = 0; m < CONV_MODES; m++)
        index = add(index, mul(convert(I64, k->at[m]), k->to[1 + m]));
    UNROLL(q, cfg->cols) {
        IF(lt(add(k->at[2], imm(q)), conv_number(k->to_size[2])))
            conv_store(&cfg->form, &k->p, to, add(index, mul(imm64(q), k->to[3])), k->channel, at(k->rSum, q));
    }
}

void conv_depthwise(const void *config, int kernel)
{
    const conv_depthwise_config *cfg = config;
    (void)kernel;
    launch_bounds(THREADS, 0);
    depthwise k = { .cfg = cfg, .p = params_of(conv) };
    k.from = is_data(cfg) ? k.p.y : k.p.x, k.from_size = is_data(cfg) ? k.p.y_size : k.p.x_size;
    k.to = is_data(cfg) ? k.p.x : k.p.y, k.to_size = is_data(cfg) ? k.p.x_size : k.p.y_size;
    k.rSum = fragment(F32, compact(leaf(cfg->cols)));
    fill(k.rSum, immf(0));
    conv_wait(&k.p);
    IF(find_place(&k, add(mul(cta_x(), imm(THREADS)), thread()))) {
        add_rows(&k);
        store_columns(&k);
    }
}

/* The host side */

ckl_conv_desc conv_depthwise_plane(const ckl_conv_desc *d)
{
    const bool one = d->layout == CKL_IMAGE_NHWC && d->direction == CKL_CONV_FORWARD && d->k == 1 && d->c > 1 &&
                     (d->s == 1 || d->dilation_w == 1);
    ckl_conv_desc plane = *d;
    if (!one || product_i64(d->w, d->c) > INT32_MAX || product_i64(d->s, d->c) > FILTER_MAX)
        return plane;
    plane.c = plane.dilation_w = 1;
    plane.w *= d->c;
    plane.s *= d->c;
    plane.stride_w = product_i64(d->stride_w, d->c);
    plane.pad_left = product_i64(d->pad_left, d->c);
    plane.pad_right = product_i64(d->pad_right, d->c);
    return plane;
}

static int64_t threads_of(const ckl_conv_desc *d, const conv_depthwise_config *c)
{
    const conv_tensor to = conv_tensor_of(d, conv_written(d));
    const int64_t rows = product_i64(to.shape[0], product_i64(to.shape[1], to.shape[2]));
    return product_i64(rows, product_i64(to.shape[4], ceil_div(to.shape[3], c->cols)));
}

/* Is it a problem of one channel for each filter, of sizes that the kernel's 32-bit numbers hold? */
static ckl_status takes(const ckl_conv_desc *d)
{
    const int64_t sides[] = { d->d, d->h, d->w }, most = INT32_MAX / 4;
    if (d->groups != d->c || (d->direction == CKL_CONV_DATA && d->groups != d->k))
        FAIL(CKL_UNSUPPORTED, "conv depthwise: groups=%" PRId64 " are not c=%" PRId64 ", or of a gradient k=%" PRId64,
             d->groups, d->c, d->k);
    if (d->dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: dtype=i8 is none of f32, f16, bf16");
    if (d->direction == CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: it does not compute the gradient of weights");
    if (d->s > FILTER_MAX || (d->direction == CKL_CONV_DATA && d->stride_w > COLS_MAX))
        FAIL(CKL_UNSUPPORTED, "conv depthwise: s=%" PRId64 ", or the stride_w=%" PRId64 " of a gradient, is above %d",
             d->s, d->stride_w, FILTER_MAX);
    for (int i = 0; i < CONV_MODES; i++)
        if (sides[i] > most || d->k > most)
            FAIL(CKL_UNSUPPORTED, "conv depthwise: a size of %" PRId64 " or k=%" PRId64 " is too large", sides[i],
                 d->k);
    return CKL_OK;
}

/*
 * As many columns as registers have room for and SMs work for: each shares the loads of filters. Those of a gradient
 * begin where a filter does.
 */
static ckl_status choose_depthwise(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const bool data = d->direction == CKL_CONV_DATA;
    conv_depthwise_config *c = config;
    TRY(takes(d));
    *c = (conv_depthwise_config){ .form = conv_form_of(d),
                                  .nhwc = d->layout == CKL_IMAGE_NHWC && d->k > 1, // a single channel lies as a plane
                                  .volume = conv_is_volume(d),
                                  .columns = (int)d->s,
                                  CONV_STEPS_OF(d),
                                  .pad = data ? (int)(d->pad_left % d->stride_w) : 0 };
    const int64_t columns = conv_tensor_of(d, conv_written(d)).shape[3];
    int window[WINDOW_MAX];
    for (int most = COLS; most > 0; most /= 2) {
        c->cols = data ? (int)round_up(most, c->step_w) : most;
        const bool idle = columns <= most / 2 || threads_of(d, c) < (int64_t)CTAS_OF_SM * THREADS * device->sm_count;
        if (window_of(c, window) <= WINDOW_MAX / 2 && (most <= COLS_LEAST || !idle))
            break;
    }
    return CKL_OK;
}

static ckl_status admit_depthwise(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const conv_depthwise_config *c = config;
    conv_depthwise_config own = { 0 };
    int window[WINDOW_MAX];
    TRY(conv_check_form("depthwise", desc, &c->form));
    TRY(choose_depthwise(d, device, &own));
    if (c->nhwc != own.nhwc || c->volume != own.volume || c->columns != d->s || c->pad != own.pad ||
        !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID,
             "conv depthwise: the config's layout, filter, strides, dilations or padding are not the problem's");
    if (c->cols < 1 || c->cols > COLS_MAX || (d->direction == CKL_CONV_DATA && c->cols % c->step_w))
        FAIL(CKL_INVALID, "conv depthwise: cols=%d are not in 1..%d, or of a gradient no multiple of its stride",
             c->cols, COLS_MAX);
    if (window_of(c, window) > WINDOW_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: taps of cols=%d see more than %d columns", c->cols, WINDOW_MAX);
    if (threads_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: %" PRId64 " threads are beyond 32-bit numbers", threads_of(d, c));
    return CKL_OK;
}

static ckl_status launch_depthwise(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc plane = conv_depthwise_plane(plan->desc);
    const conv_params params = conv_params_of(plan, &plane, args);
    const int64_t ctas = ceil_div(threads_of(&plane, plan->config), THREADS);
    return plan_launch(plan, 0, (plan_grid){ .x = ctas, .y = 1, .z = 1 }, &params, stream);
}

static const field depthwise_fields[] = CONV_FIELDS(conv_depthwise_config, CONV_DEPTHWISE_CONFIG);

const implementation conv_depthwise_implementation = {
    IMPLEMENTATION_PARTS(conv, depthwise),
    .cost = conv_cost_depthwise,
    .rivals = { &conv_skinny_implementation, &conv_stem_implementation, &conv_narrow_implementation,
                &conv_packed_implementation }, // of one channel
    .summary = "a filter a channel, of any size and stride: columns of a thread, a window that slides along a row",
    .kernels = 1,
    .params = &conv_param_list,
};
