/*
 * conv_depthwise_rows.c - a filter for each channel, of NHWC whose channels are odd or few: forward, and the gradient
 * of data where strides are 1, which is the forward problem of dy with the filters turned round.
 *
 * A row of y is one line of elements, whatever channels they are of, and what a tap sees of x lies a fixed way off. So
 * a warp takes neighbours, its accesses are whole, and down the rows a thread keeps its channel, its filter and its
 * columns. It has some rows of y, and loads every row under them once, for each column of the filter.
 */
#include <math.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "skeletons/product_cost.h"

enum {
    THREADS = 128,
    VEC_MAX = 8,
    HIGH_MAX = 16,
    SPAN_MAX = 96, // places of x from the first to the last under a thread
    TAPS_MAX = 72, // of a thread's channels in all, in registers
    FILTERS_BYTES_MAX = 40 << 10
};

typedef conv_depthwise_rows_config rows_config;

/* Everything a thread knows. */
typedef struct depthwise_rows {
    const rows_config *cfg;
    conv_values p;
    val groups;                         // elements from column to column
    val there, n, row, column, channel; // has it elements of y? The first of them
    val offset[SPAN_MAX];               // elements from the start of a row of x to each column under the thread
    val inside[SPAN_MAX];               // is it inside of x?
    tensor sW, rW;                      // (CHANNEL,TAP), (VEC,TAP)
    val vector;                         // of the thread's channels in sW
    tensor rSum;                        // (VEC,COLS,HIGH)
} depthwise_rows;

/* Has a CTA the filters of all channels? Their number is known then. */
static bool has_all(const rows_config *c)
{
    return c->channels < THREADS * c->vec;
}

static int taps_of(const rows_config *c)
{
    return c->rows * c->columns;
}

/* Along a mode: places of y of a thread, taps of the filter, and how far apart in x each of both are. */
typedef struct reach {
    int places, taps, step, dilation;
} reach;

static reach down(const rows_config *c)
{
    return (reach){ c->high, c->rows, c->step_h, c->dilation_h };
}

static reach along(const rows_config *c)
{
    return (reach){ c->cols, c->columns, c->step_w, c->dilation_w };
}

/* Places of x from the first to the last under a thread. */
static int span_of(reach r)
{
    return (r.places - 1) * r.step + (r.taps - 1) * r.dilation + 1;
}

static int tap_of(reach r, int j, int q)
{
    return conv_tap_of(j, q, r.taps, r.step, r.dilation);
}

static bool is_seen(reach r, int j)
{
    bool seen = false;
    for (int q = 0; q < r.places; q++)
        seen |= tap_of(r, j, q) >= 0;
    return seen;
}

/* Those that some tap sees. */
static int seen_of(reach r)
{
    int seen = 0;
    for (int j = 0; j < span_of(r); j++)
        seen += is_seen(r, j);
    return seen;
}

/* Threads follow each other along the rows of y, then down blocks of rows, then over images. */
static void find_place(depthwise_rows *k)
{
    const rows_config *cfg = k->cfg;
    val rest = add(mul(cta_x(), imm(THREADS)), thread());
    val line = div(mul(div_up(conv_number(k->p.y_size[2]), cfg->cols), k->groups), imm(cfg->vec));
    val element = mul(conv_next_digit(&rest, line), imm(cfg->vec));
    k->column = mul(div(element, k->groups), imm(cfg->cols));
    k->channel = rem(element, k->groups);
    const int rows = cfg->high * cfg->turns;
    k->row = variable(U32, mul(conv_next_digit(&rest, div_up(conv_number(k->p.y_size[1]), rows)), imm(rows)));
    k->there = lt(rest, conv_number(k->p.n));
    k->n = min(rest, conv_number(sub(k->p.n, imm64(1))));
}

/* Place `first` of x along mode m, or the nearest there is. */
static val nearest(const depthwise_rows *k, int m, val first, val *inside)
{
    val last = sub(convert(I32, k->p.x_size[m]), imm(1));
    *inside = logical_and(ge(first, imm(0)), le(first, last));
    return max(imm(0), min(first, last));
}

/* The first place of x under place `at` of y. */
static val first_under(const depthwise_rows *k, int m, val at)
{
    return sub(mul(convert(I32, at), convert(I32, k->p.step[m])), convert(I32, k->p.pad[m]));
}

static void find_columns(depthwise_rows *k)
{
    val first = first_under(k, 2, k->column);
    UNROLL(j, span_of(along(k->cfg))) {
        val column = nearest(k, 2, add(first, imm(j)), &k->inside[j]);
        k->offset[j] = add(mul(conv_number(column), k->groups), k->channel);
    }
}

/* Is all that a thread sees inside of x? */
static val sees_inside(const depthwise_rows *k)
{
    val inside = yes();
    for (int m = 1; m < CONV_MODES; m++) {
        val first = first_under(k, m, m == 1 ? k->row : k->column), sees_first, sees_last;
        nearest(k, m, first, &sees_first);
        nearest(k, m, add(first, imm(span_of(m == 1 ? down(k->cfg) : along(k->cfg)) - 1)), &sees_last);
        inside = logical_and(inside, logical_and(sees_first, sees_last));
    }
    return inside;
}

/* Where row `row` of x begins, in the thread's image. */
static val row_address(const depthwise_rows *k, val row)
{
    val index = add(mul(convert(I64, k->n), k->p.x[0]), mul(convert(I64, row), k->p.x[2]));
    return gmem_address(k->p.from[CONV_X], k->cfg->form.dtype, index);
}

/* Adds what the thread sees of column j of row i of x. */
static void add_vector(depthwise_rows *k, tensor rX, int i, int j)
{
    const rows_config *cfg = k->cfg;
    for (int q = 0; q < cfg->high; q++)
        for (int p = 0; p < cfg->cols; p++) {
            const int row = tap_of(down(cfg), i, q), column = tap_of(along(cfg), j, p);
            for (int c = 0; c < cfg->vec && row >= 0 && column >= 0; c++)
                set(k->rSum, coord(c, p, q),
                    fma(at(rX, c), at(k->rW, c, row * cfg->columns + column), at(k->rSum, c, p, q)));
        }
}

/* Adds row i of x to all rows of y that see it. at_inside: its first element under the thread, where all is inside. */
static void add_row(depthwise_rows *k, int i, const val *at_inside)
{
    const rows_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    val inside = yes(), start = { 0 };
    if (!at_inside)
        start = row_address(k, nearest(k, 1, add(first_under(k, 1, k->row), imm(i)), &inside));
    UNROLL(j, span_of(along(cfg))) {
        if (!is_seen(along(cfg), j))
            continue;
        val address = at_inside ? gmem_address(*at_inside, dtype, mul(k->groups, imm(j)))
                                : gmem_address(start, dtype, k->offset[j]);
        packed x =
            load_packed(gmem_tensor(address, dtype, compact(leaf(cfg->vec))), cfg->vec * (int)ckl_dtype_bytes(dtype));
        add_vector(k, at_inside ? unpacked(x, F32) : unpacked(conv_or_zeros(x, logical_and(inside, k->inside[j])), F32),
                   i, j);
    }
}

/* From row to row addresses are added up: as products ptxas would keep them all in registers. */
static void add_rows(depthwise_rows *k, bool all_inside)
{
    val at_inside = { 0 };
    if (all_inside)
        at_inside = gmem_address(row_address(k, first_under(k, 1, k->row)), k->cfg->form.dtype, k->offset[0]);
    UNROLL(i, span_of(down(k->cfg))) {
        if (is_seen(down(k->cfg), i))
            add_row(k, i, all_inside ? &at_inside : NULL);
        if (all_inside)
            at_inside = gmem_address(at_inside, k->cfg->form.dtype, k->p.x[2]);
    }
}

/* The thread's filters of a tap; of the gradient from the last tap to the first. */
static void take_tap(depthwise_rows *k, int t)
{
    const rows_config *cfg = k->cfg;
    const int tap = cfg->form.direction == CKL_CONV_DATA ? taps_of(cfg) - 1 - t : t;
    copy(local_tile(k->sW, shape(cfg->vec, 1), coord(k->vector, tap)), slice(k->rW, _, t), 4 * cfg->vec);
}

/*
 * The filters of a CTA's channels: all there are, or those from its first element on, behind the last of which the
 * first follows. They lie in shared memory, channels fastest, where neighbours store to different banks.
 */
typedef struct shared_filters {
    tensor sW;          // (CHANNEL,TAP)
    int loads;          // of a thread
    val taps[TAPS_MAX]; // that it has loaded
} shared_filters;

static void load_filters(const depthwise_rows *k, shared_filters *to)
{
    const rows_config *cfg = k->cfg;
    const int count = cfg->channels * taps_of(cfg);
    val all = mul(k->groups, imm(taps_of(cfg)));
    val first = has_all(cfg) ? imm(0) : mul(rem(mul(cta_x(), imm(THREADS * cfg->vec)), k->groups), imm(taps_of(cfg)));
    to->sW = smem_tensor(
        "filters", F32,
        make_layout(shape(cfg->channels, taps_of(cfg)), stride(1, (int)round_up(cfg->channels, cfg->vec) + cfg->vec)),
        16);
    to->loads = (int)ceil_div(count, THREADS);
    UNROLL(i, to->loads) {
        val e = add(first, min(add(thread(), imm(i * THREADS)), imm(count - 1)));
        e = has_all(cfg) ? e : select(lt(e, all), e, sub(e, all));
        to->taps[i] = at_f32(
            gmem_tensor(gmem_address(k->p.from[CONV_W], cfg->form.dtype, e), cfg->form.dtype, compact(leaf(1))), 0);
    }
}

/* Shares them, and takes those of the thread. */
static void share_filters(depthwise_rows *k, const shared_filters *from)
{
    const rows_config *cfg = k->cfg;
    const int taps = taps_of(cfg);
    UNROLL(i, from->loads) {
        val e = add(thread(), imm(i * THREADS));
        IF(lt(e, imm(cfg->channels * taps)))
            set(from->sW, coord(div(e, imm(taps)), rem(e, imm(taps))), from->taps[i]);
    }
    cta_sync();
    k->vector = has_all(cfg) ? div(k->channel, imm(cfg->vec)) : thread();
    k->sW = from->sW;
    k->rW = fragment(F32, compact(shape(cfg->vec, taps)));
    UNROLL(t, taps)
        take_tap(k, t);
}

/* all_inside: and so are all rows of y. */
static void store_rows(const depthwise_rows *k, const conv_channels *channels, bool all_inside)
{
    const rows_config *cfg = k->cfg;
    val to = add(mul(convert(I64, k->n), k->p.y[0]), mul(convert(I64, k->row), k->p.y[2]));
    to = add(to, add(mul(convert(I64, k->column), k->p.y[3]), convert(I64, k->channel)));
    UNROLL(q, cfg->high) {
        val row_there = lt(add(k->row, imm(q)), conv_number(k->p.y_size[1])), at = to;
        UNROLL(p, cfg->cols) {
            const tensor rSum = slice(k->rSum, _, p, q);
            val column_there = lt(add(k->column, imm(p)), conv_number(k->p.y_size[2]));
            if (all_inside)
                conv_store_run(&cfg->form, &k->p, channels, k->p.from[CONV_Y], at, k->channel, rSum);
            else IF(logical_and(row_there, column_there))
                conv_store_run(&cfg->form, &k->p, channels, k->p.from[CONV_Y], at, k->channel, rSum);
            at = add(at, k->p.y[3]);
        }
        to = add(to, k->p.y[2]);
    }
}

/* Some rows of y, where all that the warp sees is inside of x, or not. */
static void compute_rows(depthwise_rows *k, const conv_channels *channels, bool all_inside)
{
    fill(k->rSum, immf(0));
    add_rows(k, all_inside);
    IF(k->there)
        store_rows(k, channels, all_inside);
}

static int loads_of(const rows_config *c)
{
    return seen_of(down(c)) * seen_of(along(c));
}

/*
 * Registers that the loads of a turn fill, and how many ptxas takes without spills: fewer in a loop, or where rows
 * share less.
 */
static int words_of(const rows_config *c)
{
    return loads_of(c) * (int)ceil_div(c->vec * (int64_t)ckl_dtype_bytes(c->form.dtype), 4);
}

static int words_max(const rows_config *c)
{
    enum { MOST = 98 };
    return c->turns > 1 || c->step_h > 1 || c->dilation_h > 1 ? MOST * 2 / 3 : MOST;
}

/* CTAs of an SM, whose number limits registers: ptxas would begin all loads at once, and leave room for two. */
static int ctas_of(const rows_config *c)
{
    enum { REGISTERS = 65536 / THREADS, REST = 34, TURNS = 18, APART = 30, COLUMN = 6, MOST = 8 };
    const int rest = REST + (c->turns > 1 ? TURNS : 0) + (c->step_h > 1 || c->dilation_h > 1 ? APART : 0);
    const int sums = c->vec * c->cols * c->high, columns = COLUMN * seen_of(along(c));
    return (int)max_i64(1, min_i64(MOST, REGISTERS / round_up(c->vec * taps_of(c) + sums + columns + rest, 8)));
}

/* Kernel 1 takes single elements, for pointers that are aligned to no more. */
static rows_config config_of(const void *config, int kernel)
{
    rows_config c = *(const rows_config *)config;
    if (kernel == 1) {
        c.channels = has_all(&c) ? (int)min_i64(c.channels, THREADS) : THREADS;
        c.vec = 1;
    }
    return c;
}

void conv_depthwise_rows(const void *config, int kernel)
{
    const rows_config of_kernel = config_of(config, kernel), *cfg = &of_kernel;
    launch_bounds(THREADS, ctas_of(cfg));
    depthwise_rows k = { .cfg = cfg, .p = params_of(conv) };
    k.rSum = fragment(F32, compact(shape(cfg->vec, cfg->cols, cfg->high)));
    grid_wait();
    launch_dependents();
    shared_filters filters;
    k.groups = has_all(cfg) ? imm_as(U32, cfg->channels) : conv_number(k.p.groups);
    load_filters(&k, &filters);
    find_place(&k);
    find_columns(&k);
    share_filters(&k, &filters);
    const conv_channels channels = conv_load_channels(&cfg->form, &k.p, k.channel, cfg->vec);
    LOOP(turn, imm(cfg->turns)) {
        IF(vote_all(sees_inside(&k)))
            compute_rows(&k, &channels, true);
        ELSE compute_rows(&k, &channels, false);
        assign(k.row, add(k.row, imm(cfg->high)));
    }
}

/* The host side */

/* The forward problem, which the gradient of data is one of dy. */
static ckl_status takes(const ckl_conv_desc *d)
{
    if (d->groups != d->c || d->groups != d->k || (d->layout != CKL_IMAGE_NHWC && d->k > 1))
        FAIL(CKL_UNSUPPORTED, "conv depthwise_rows: it takes a filter for each channel of NHWC");
    if (d->dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_rows: dtype=i8 is none of f32, f16, bf16");
    if (d->direction != CKL_CONV_FORWARD && !conv_turns(d))
        FAIL(CKL_UNSUPPORTED, "conv depthwise_rows: of gradients it computes that of data of stride 1");
    if (conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv depthwise_rows: volumes are convolved by other kernels");
    if (d->r > TAPS_MAX || d->s > TAPS_MAX || d->r * d->s > TAPS_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_rows: a filter of %" PRId64 "x%" PRId64 " is more than %d taps", d->r,
             d->s, TAPS_MAX);
    const conv_tensor x = conv_tensor_of(d, CONV_X), y = conv_tensor_of(d, CONV_Y);
    const int64_t most = INT32_MAX / 256;
    if (max_i64(x.stride[2], y.stride[2]) > most || max_i64(d->h, d->n) > INT32_MAX / 8 ||
        product_i64(d->k, d->r * d->s) > INT32_MAX / 8)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_rows: a size is beyond 32-bit numbers");
    return conv_check_dense("depthwise_rows", d);
}

static int64_t threads_of(const ckl_conv_desc *d, const rows_config *c)
{
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    return product_i64(product_i64(d->n, ceil_div(y.shape[2], (int64_t)c->high * c->turns)),
                       ceil_div(y.shape[3], c->cols) * (d->k / c->vec));
}

/*
 * Many rows of y a thread, and fewer; whole vectors of channels, and shorter ones. Columns side by side share loads,
 * too, but a warp's accesses lie apart then: where a pixel has whole lines of memory.
 */
static bool candidate_depthwise_rows(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { LINE = 128 };
    static const struct {
        int cols, high, turns;
    } sizes[] = { { 1, 16, 4 }, { 1, 8, 4 }, { 1, 16, 1 }, { 1, 8, 1 }, { 1, 4, 1 },
                  { 1, 2, 1 },  { 1, 1, 1 }, { 4, 8, 1 },  { 4, 4, 1 } };
    const ckl_conv_desc *d = desc;
    rows_config *c = config;
    const int bytes = (int)ckl_dtype_bytes(d->dtype), count = COUNT_OF(sizes) - (d->k * bytes < LINE ? 2 : 0);
    int vec = (int)min_i64(16 / bytes, power_of_two_in(d->k));
    (void)device;
    while (vec > 1 && vec * d->r > TAPS_MAX / 4)
        vec /= 2;
    vec >>= i / count;
    if (vec == 0)
        return false;
    *c = (rows_config){ .form = conv_form_of(d),
                        .vec = vec,
                        .cols = sizes[i % count].cols,
                        .high = sizes[i % count].high,
                        .turns = sizes[i % count].turns,
                        .channels = (int)min_i64(d->k, THREADS * vec),
                        .rows = conv_config_number(d->r),
                        .columns = conv_config_number(d->s),
                        CONV_STEPS_OF(d) };
    return true;
}

static ckl_status admit_depthwise_rows(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const rows_config *c = config;
    (void)device;
    TRY(takes(d));
    TRY(conv_check_form("depthwise_rows", d, &c->form));
    if (c->rows != d->r || c->columns != d->s || !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID, "conv depthwise_rows: the config's filter, stride or dilation are not the problem's");
    if (!is_power_of_two(c->vec) || c->vec > 16 / (int)ckl_dtype_bytes(d->dtype) || d->k % c->vec || c->high < 1 ||
        c->high > HIGH_MAX || c->turns < 1 || c->turns > HIGH_MAX || c->cols < 1 || c->cols > HIGH_MAX ||
        c->channels != min_i64(d->k, THREADS * c->vec))
        FAIL(CKL_INVALID,
             "conv depthwise_rows: vec=%d does not divide k=%" PRId64
             " or 16 bytes, cols=%d, high=%d or turns=%d are not in 1..%d, or channels=%d are not the CTA's",
             c->vec, d->k, c->cols, c->high, c->turns, HIGH_MAX, c->channels);
    if (c->vec * taps_of(c) > TAPS_MAX || c->vec * c->cols * c->high > TAPS_MAX || span_of(along(c)) > SPAN_MAX ||
        span_of(down(c)) > SPAN_MAX || words_of(c) > words_max(c) ||
        4 * (c->channels + 2 * c->vec) * taps_of(c) > FILTERS_BYTES_MAX)
        FAIL(CKL_UNSUPPORTED,
             "conv depthwise_rows: vec=%d channels of %d taps, cols=%d and high=%d rows are more than a thread's "
             "registers, or places far apart",
             c->vec, taps_of(c), c->cols, c->high);
    if (product_i64(threads_of(d, c), c->vec) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise_rows: %" PRId64 " threads are beyond 32-bit numbers", threads_of(d, c));
    return CKL_OK;
}

static ckl_status launch_depthwise_rows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc, forward = conv_turned(d);
    const rows_config *all = plan->config;
    const ckl_conv_args a = conv_turned_args(d, args);
    const int64_t in = all->vec * (int64_t)ckl_dtype_bytes(d->dtype), out = all->vec * (int64_t)ckl_dtype_bytes(d->out);
    const bool aligned = PLAN_ALIGNED(in, a.x) && PLAN_ALIGNED(min_i64(16, out), a.y, a.residual);
    const rows_config c = config_of(all, !aligned);
    const conv_params params = conv_params_of(&forward, &a);
    return plan_launch(plan, !aligned, (plan_grid){ .x = ceil_div(threads_of(d, &c), THREADS), .y = 1, .z = 1 },
                       &params, stream);
}

/* x from L2: its rows for each block of rows of y, and its columns, too, where neighbours are not in the same CTA. */
static double l2_bytes(const ckl_conv_desc *d, const rows_config *c)
{
    enum { LINE = 128 };
    const conv_tensor x = conv_tensor_of(d, conv_read(d));
    const double element = (double)ckl_dtype_bytes(d->dtype), sector = 32 * c->vec * element < LINE ? 1.5 : 1.25;
    const double rows = (double)seen_of(down(c)) / (c->high * c->step_h);
    const double columns = has_all(c) ? 1 : (double)seen_of(along(c)) / (c->cols * c->step_w);
    return (double)x.shape[0] * (double)x.stride[0] * element * sector * rows * columns;
}

/*
 * Instructions of a thread, each warp of which begins WARP a cycle, an SM no more than RATE; no turn is shorter than
 * the latencies of the filters and of x. 3 channels of 535x535 take 4.4 us by 16 rows, 4.0 by 8; 2789 of 4 images of
 * 32x32 37.5, by L2; 64 planes of 256x256 17.6 by single elements, 10.6 by vectors of depthwise.
 */
static plan_cost cost_depthwise_rows(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LOAD = 1.5, ADDRESS = 2, STORE = 5, FILTER = 12, START = 150, TURN = 40; // instructions
    const double RATE = 2.7, WARP = 0.14, WAIT = 2500, L2 = 1.1; // bytes of L2 take less than those of memory
    const double FEW = 4, ALONE = 1.3, PLANE = 1.5; // so many CTAs in turn hide the latencies of each other's turns
    const ckl_conv_desc *d = desc;
    const rows_config *c = config;
    const conv_tensor x = conv_tensor_of(d, CONV_X), y = conv_tensor_of(d, CONV_Y);
    const double filters = FILTER * c->channels * taps_of(c) / THREADS;
    const double load = LOAD + c->vec + (has_all(c) ? 0 : ADDRESS), row = STORE + c->vec * (2.0 + taps_of(c));
    const double turn = TURN + loads_of(c) * load + c->cols * c->high * row;
    const double tiles = (double)threads_of(d, c) / THREADS, warps = THREADS / 32,
                 element = (double)ckl_dtype_bytes(d->dtype);
    const double of_sm = tiles / device->sm_count, at_once = fmin(ctas_of(c), ceil(of_sm));
    const double waiting = of_sm < FEW * at_once ? ALONE * c->turns : (c->turns + 1) / 2.0;
    const double bytes = (double)d->n * (double)(x.stride[0] + y.stride[0]) * element;
    const double of_l2 = l2_bytes(d, c) + (double)d->n * (double)y.stride[0] * element;
    plan_cost cost = product_cost(&(product_work){ .tiles = tiles,
                                                   .ctas = ctas_of(c),
                                                   .steps = 1,
                                                   .multiply_adds = (START + filters + c->turns * turn) * warps,
                                                   .rate = fmin(RATE, WARP * warps * at_once),
                                                   .step_cycles = WAIT * (c->turns > 1 ? waiting : 1),
                                                   .bytes = fmax(bytes, of_l2 / L2),
                                                   .us = 0.6 },
                                  device);
    cost.us *= d->k == 1 && x.shape[3] % VEC_MAX == 0 ? PLANE : 1;
    return cost;
}

static const field depthwise_rows_fields[] = { CONV_FORM(FIELD_NESTED, (conv_depthwise_rows_config, form)) //
                                               CONV_DEPTHWISE_ROWS_CONFIG(FIELD_ROW, conv_depthwise_rows_config) };

const implementation conv_depthwise_rows_implementation = {
    CONV_RANKED(depthwise_rows, conv_depthwise_rows_config),
    .summary = "a filter a channel, odd or few channels of NHWC: a row is one line of elements",
    .describe = conv_depthwise_rows,
    .kernels = 2,
    .rivals = { &conv_depthwise_implementation },
    .params = &conv_param_list,
};
