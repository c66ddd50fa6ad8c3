/*
 * conv_depthwise.c - a filter for each channel: forward, and the gradient of data where strides are 1, which is the
 * forward problem of dy with the filters turned round.
 *
 *   NHWC    a thread has a vector of channels of some columns of a row of y. Neighbours have the next channels, so that
 *           all accesses are whole sectors. The filters of the CTA's channels lie in shared memory, channels fastest,
 *           as f32
 *   NCHW    a thread has some columns of one channel; the x below them is loaded in aligned vectors of a row
 *
 * One filter of several channels of NHWC is the same as a plane: a row of pixels is one of elements, and a step along
 * it is a pixel.
 *
 * Along a row of the filter every column of x is read once and added to all columns of y that see it; what rows share
 * comes from the caches. Small problems wait for memory alone: there x under all rows of the filter is under way at
 * once, and the filters with it.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_prepared.h"

enum {
    THREADS = 128,
    LANES_MIN = 2,
    LANES_MAX = 8,
    COLS = 8,
    TAPS_MAX = 64,
    PAD_MAX = 4096,
    PADDING = 4,
    WINDOW_MAX = 128, // vectors
    AHEAD_MAX = 64,   // registers of those that are under way at once
    FILTERS_BYTES_MAX = 40 << 10
};

/* Everything a thread knows. */
typedef struct depthwise {
    const conv_depthwise_config *cfg;
    conv_values p;
    int lanes;             // channels of a thread
    tensor sW;             // NHWC: (CHANNEL,TAP) of f32
    val lane, channel;     // NHWC: of the CTA's vectors of channels; the first channel
    val n, at[CONV_MODES]; // the first pixel of y
    tensor rSum;           // (CHANNEL,COLUMN)
} depthwise;

/* Columns of x under those of a thread, from the first one on. */
static int span_of(const conv_depthwise_config *c)
{
    return (c->cols - 1) * c->step + (c->filter - 1) * c->dilation + 1;
}

/* NHWC: the filters of the CTA's channels in shared memory, where channels that lie apart meet few of one bank. */
static void describe_filters(depthwise *k)
{
    const int channels = k->cfg->lanes * k->cfg->vec, row = channels + PADDING;
    k->sW = smem_tensor("filters", F32, make_layout(shape(channels, k->cfg->taps), stride(1, row)), 16);
}

/* As they lie, one behind the other: (CHANNEL*TAP). */
static tensor filters_of(const depthwise *k, val *count)
{
    const conv_depthwise_config *cfg = k->cfg;
    const int channels = cfg->lanes * cfg->vec;
    val first = mul(cta_y(), imm(channels));
    *count = mul(min(sub(conv_number(k->p.groups), first), imm(channels)), imm(cfg->taps));
    return gmem_tensor(gmem_address(k->p.from[CONV_W], cfg->form.dtype, mul(convert(I64, first), imm64(cfg->taps))),
                       cfg->form.dtype, make_layout(dynamic(convert(I64, *count)), leaf(1)));
}

static void share_filter(const depthwise *k, val e, val x)
{
    set(k->sW, coord(div(e, imm(k->cfg->taps)), rem(e, imm(k->cfg->taps))), x);
}

static void load_filters(depthwise *k)
{
    val count;
    tensor gW = filters_of(k, &count); // (CHANNEL*TAP)
    LOOP_FROM(e, thread(), count, imm(THREADS))
        share_filter(k, e, at_f32(gW, e));
    cta_sync();
}

/* The place of thread `thread_number`, among those with the same channels, or in NCHW among all. */
static val find_place(depthwise *k, val thread_number)
{
    const conv_depthwise_config *cfg = k->cfg;
    val rest = thread_number, segments = div(add(conv_number(k->p.y_size[2]), imm(cfg->cols - 1)), imm(cfg->cols));
    k->at[2] = mul(rem(rest, segments), imm(cfg->cols));
    rest = div(rest, segments);
    for (int m = 1; m >= 0; m--) {
        k->at[m] = rem(rest, conv_number(k->p.y_size[m]));
        rest = div(rest, conv_number(k->p.y_size[m]));
    }
    if (!cfg->nhwc) {
        k->channel = rem(rest, conv_number(k->p.groups));
        rest = div(rest, conv_number(k->p.groups));
    }
    k->n = rest;
    return logical_and(lt(rest, conv_number(k->p.n)), lt(k->channel, conv_number(k->p.groups)));
}

/* The row of x under row `tap` of the filter, along mode m; is it inside? */
static val under(const depthwise *k, int m, val tap, val *inside)
{
    val at = convert(I32, k->at[m]), pad = convert(I32, k->p.pad[m]), far = convert(I32, mul(tap, k->p.dilation[m]));
    val row = add(sub(mul(at, convert(I32, k->p.step[m])), pad), far);
    *inside = logical_and(*inside, logical_and(ge(row, imm(0)), lt(row, convert(I32, k->p.x_size[m]))));
    return row;
}

/*
 * A row of the filters of a thread's channels: (CHANNEL,TAP); row: the number of its first tap. Those of the gradient
 * are turned round.
 */
static tensor load_taps(const depthwise *k, val row)
{
    const conv_depthwise_config *cfg = k->cfg;
    const bool data = cfg->form.direction == CKL_CONV_DATA;
    tensor rW = fragment(F32, compact(shape(k->lanes, cfg->filter)));
    row = data ? sub(imm_as(U32, cfg->taps - cfg->filter), row) : row;
    tensor gW = gmem_tensor(gmem_address(k->p.from[CONV_W], cfg->form.dtype,
                                         add(mul(convert(I64, k->channel), imm64(cfg->taps)), convert(I64, row))),
                            cfg->form.dtype, compact(leaf(cfg->filter)));
    UNROLL(s, cfg->filter) {
        const int to = data ? cfg->filter - 1 - s : s;
        if (cfg->nhwc)
            copy(local_tile(k->sW, shape(cfg->vec, 1), coord(k->lane, add(row, imm(s)))), slice(rW, _, to),
                 4 * cfg->vec);
        else
            set(rW, coord(0, to), at_f32(gW, s));
    }
    return rW;
}

/* The vectors that a thread reads of every row: their offsets in bytes, and which of them lie inside. */
typedef struct row_window {
    int unit, before, skipped; // columns of a vector; from the first one to the thread's own; of it that no tap needs
    int count;
    val offset[WINDOW_MAX], inside[WINDOW_MAX]; // u32, predicates
    bool sure[WINDOW_MAX];
} row_window;

/*
 * Vectors outside are loaded from the nearest place inside and zeroed afterwards: without branches the loads of a row
 * are in flight together.
 */
static row_window find_window(const depthwise *k)
{
    const conv_depthwise_config *cfg = k->cfg;
    const int unit = cfg->nhwc ? 1 : cfg->vec, before = (int)ceil_div(cfg->pad, unit) * unit;
    row_window w = { .unit = unit, .before = before, .skipped = before - cfg->pad };
    val first = sub(convert(I32, mul(k->at[2], imm(cfg->step))), imm(before));
    val last = sub(convert(I32, k->p.x_size[2]), imm(cfg->nhwc ? 1 : cfg->vec));
    val pitch = mul(conv_number(k->p.x[3]), imm((int)ckl_dtype_bytes(cfg->form.dtype)));
    for (int j = 0; j < w.skipped + span_of(cfg) && describing(); j += unit, w.count++) {
        const bool sure = cfg->even && j >= before && j + unit - 1 <= before + (cfg->cols - 1) * cfg->step;
        val column = add(first, imm(j)), nearest = sure ? column : max(imm(0), min(column, last));
        w.offset[w.count] = mul(convert(U32, nearest), pitch);
        w.inside[w.count] = sure ? (val){ 0 } : logical_and(ge(column, imm(0)), le(column, last));
        w.sure[w.count] = sure;
    }
    return w;
}

/* Vector number i of a window, in the row that begins at an address. */
static packed load_vector(const depthwise *k, const row_window *w, int i, val row)
{
    const ckl_dtype dtype = k->cfg->form.dtype;
    val address = add(row, convert(U64, w->offset[i]));
    return load_packed(gmem_tensor(address, dtype, compact(leaf(k->cfg->vec))),
                       k->cfg->vec * (int)ckl_dtype_bytes(dtype));
}

/* What was loaded, or zeros where the vector is outside. there: NULL, or whether its row is inside. */
static tensor vector_or_zeros(const row_window *w, int i, packed x, const val *there)
{
    val inside = w->sure[i] ? yes() : w->inside[i];
    inside = there ? logical_and(*there, inside) : inside;
    return unpacked(there || !w->sure[i] ? conv_or_zeros(x, inside) : x, F32);
}

/* Adds the products of column j of the thread's window, which are the elements of rX from `first` on. */
static void add_column(depthwise *k, tensor rW, int j, tensor rX, int first)
{
    const conv_depthwise_config *cfg = k->cfg;
    for (int q = 0; q < cfg->cols; q++) {
        const int s = conv_tap_of(j, q, cfg->filter, cfg->step, cfg->dilation);
        for (int c = 0; c < k->lanes && s >= 0; c++)
            set(k->rSum, coord(c, q), fma(at(rX, first + c), at(rW, c, s), at(k->rSum, c, q)));
    }
}

/* The products of a row of the filter with the row of x that starts at an address. */
static void add_row(depthwise *k, const row_window *w, val row, tensor rW)
{
    UNROLL(v, w->count) {
        tensor rX = vector_or_zeros(w, v, load_vector(k, w, v, row), NULL);
        for (int i = 0; i < w->unit; i++)
            add_column(k, rW, v * w->unit + i - w->skipped, rX, i);
    }
}

static void add_rows(depthwise *k)
{
    const row_window w = find_window(k);
    val start = add(mul(convert(I64, k->n), k->p.x[0]), mul(convert(I64, k->channel), k->p.x[4]));
    LOOP(t, k->p.filter[0])
        LOOP(r, k->p.filter[1]) {
            val inside = yes(), d = under(k, 0, t, &inside), h = under(k, 1, r, &inside);
            IF(inside) {
                val row = add(start, add(mul(convert(I64, d), k->p.x[1]), mul(convert(I64, h), k->p.x[2])));
                val tap = mul(convert(U32, add(mul(t, k->p.filter[1]), r)), imm(k->cfg->filter));
                tensor rW = load_taps(k, tap);
                add_row(k, &w, gmem_address(k->p.from[CONV_X], k->cfg->form.dtype, row), rW);
            }
        }
}

/* x under all rows of a filter, of a thread's columns. */
typedef struct rows_ahead {
    row_window window;
    packed x[AHEAD_MAX];   // of a row after those of the one before
    val inside[AHEAD_MAX]; // is the row?
} rows_ahead;

/* Begins to load it, of the nearest rows where there are none. */
static void load_ahead(const depthwise *k, rows_ahead *ahead)
{
    ahead->window = find_window(k);
    const int count = ahead->window.count;
    val start = add(mul(convert(I64, k->n), k->p.x[0]), mul(convert(I64, k->channel), k->p.x[4]));
    val last = sub(convert(I32, k->p.x_size[1]), imm(1));
    UNROLL(r, k->cfg->ahead) {
        ahead->inside[r] = yes();
        val h = max(imm(0), min(under(k, 1, imm(r), &ahead->inside[r]), last));
        val row = gmem_address(k->p.from[CONV_X], k->cfg->form.dtype, add(start, mul(convert(I64, h), k->p.x[2])));
        for (int v = 0; v < count; v++)
            ahead->x[r * count + v] = load_vector(k, &ahead->window, v, row);
    }
}

static void add_ahead(depthwise *k, const rows_ahead *ahead)
{
    const row_window *w = &ahead->window;
    UNROLL(r, k->cfg->ahead) {
        tensor rW = load_taps(k, imm_as(U32, r * k->cfg->filter));
        for (int v = 0; v < w->count; v++) {
            tensor rX = vector_or_zeros(w, v, ahead->x[r * w->count + v], &ahead->inside[r]);
            for (int i = 0; i < w->unit; i++)
                add_column(k, rW, v * w->unit + i - w->skipped, rX, i);
        }
    }
}

/* Threads without a place take the nearest there is, and those without a channel the first of the CTA. */
static void stay_inside(depthwise *k)
{
    if (k->cfg->nhwc)
        k->lane = select(lt(k->channel, conv_number(k->p.groups)), k->lane, imm(0));
    k->channel = min(k->channel, conv_number(sub(k->p.groups, imm64(k->lanes))));
    k->n = min(k->n, conv_number(sub(k->p.n, imm64(1))));
}

/* The filters and x are under way together. */
static void add_at_once(depthwise *k)
{
    const conv_depthwise_config *cfg = k->cfg;
    const int loads = cfg->nhwc ? (int)ceil_div(cfg->lanes * cfg->vec * cfg->taps, THREADS) : 0;
    val count, taps[AHEAD_MAX];
    tensor gW = { 0 };
    rows_ahead ahead;
    if (cfg->nhwc)
        gW = filters_of(k, &count);
    for (int i = 0; i < loads; i++)
        taps[i] = at_f32(gW, min(add(thread(), imm(i * THREADS)), sub(count, imm(1))));
    load_ahead(k, &ahead);
    UNROLL(i, loads) {
        val e = add(thread(), imm(i * THREADS));
        IF(lt(e, count))
            share_filter(k, e, taps[i]);
    }
    if (cfg->nhwc)
        cta_sync();
    add_ahead(k, &ahead);
}

static void store_columns(const depthwise *k)
{
    const conv_depthwise_config *cfg = k->cfg;
    const conv_form *form = &cfg->form;
    const conv_channels channels = conv_load_channels(form, &k->p, k->channel, k->lanes);
    val start = add(mul(convert(I64, k->n), k->p.y[0]), mul(convert(I64, k->channel), k->p.y[4]));
    for (int m = 0; m < CONV_MODES; m++)
        start = add(start, mul(convert(I64, k->at[m]), k->p.y[1 + m]));
    const int step = cfg->nhwc ? 1 : cfg->run;
    for (int q = 0; q < cfg->cols && describing(); q += step) {
        const val to = add(start, mul(imm64(q), k->p.y[3]));
        const tensor rSum = local_tile(k->rSum, shape(k->lanes, step), coord(0, q / step));
        if (cfg->even)
            conv_store_run(form, &k->p, &channels, k->p.from[CONV_Y], to, k->channel, rSum);
        else IF(lt(add(k->at[2], imm(q)), conv_number(k->p.y_size[2])))
            conv_store_run(form, &k->p, &channels, k->p.from[CONV_Y], to, k->channel, rSum);
    }
}

/* Registers of x under all rows of a filter, and of the filters that a thread loads. */
static int64_t registers_ahead(const conv_depthwise_config *c)
{
    const int64_t unit = c->nhwc ? 1 : c->vec, vectors = ceil_div(span_of(c) + unit - 1, unit);
    const int64_t filters = c->nhwc ? ceil_div((int64_t)c->lanes * c->vec * c->taps, THREADS) : 0;
    return c->ahead * vectors * ceil_div(c->vec * (int64_t)ckl_dtype_bytes(c->form.dtype), 4) + filters;
}

/* Kernel 1 takes single elements, for pointers that are aligned to no more. */
static conv_depthwise_config config_of(const void *config, int kernel)
{
    conv_depthwise_config c = *(const conv_depthwise_config *)config;
    if (kernel == 1)
        c.vec = c.run = 1;
    if (registers_ahead(&c) > AHEAD_MAX)
        c.ahead = 0;
    return c;
}

void conv_depthwise(const void *config, int kernel)
{
    const conv_depthwise_config of_kernel = config_of(config, kernel), *cfg = &of_kernel;
    launch_bounds(THREADS, cfg->ctas);
    depthwise k = { .cfg = cfg, .p = params_of(conv), .lanes = cfg->nhwc ? cfg->vec : 1 };
    grid_wait();
    launch_dependents();
    val thread_number = add(mul(cta_x(), imm(THREADS)), thread());
    if (cfg->nhwc) {
        describe_filters(&k);
        if (!cfg->ahead)
            load_filters(&k);
        k.lane = thread_at(thread(), 0, cfg->lanes, THREADS / cfg->lanes);
        k.channel = mul(add(mul(cta_y(), imm(cfg->lanes)), k.lane), imm(cfg->vec));
        thread_number = div(thread_number, imm(cfg->lanes));
    }
    k.rSum = fragment(F32, compact(shape(k.lanes, cfg->cols)));
    fill(k.rSum, immf(0));
    const val there = find_place(&k, thread_number);
    if (cfg->ahead) {
        stay_inside(&k);
        add_at_once(&k);
    }
    IF(there) {
        if (!cfg->ahead)
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
    if (!one || product_i64(d->w, d->c) > INT32_MAX || product_i64(d->s, d->c) > TAPS_MAX)
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
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    int64_t count = product_i64(y.shape[0], ceil_div(y.shape[3], c->cols));
    count = product_i64(count, product_i64(y.shape[1], y.shape[2]));
    return product_i64(count, c->nhwc ? c->lanes : d->k);
}

/* Zeros before the first column of what is read: those of the gradient are before dy. */
static int64_t pad_of(const ckl_conv_desc *d)
{
    return conv_turned(d).pad_left;
}

/* Is it a problem of one filter for each channel, of sizes that the kernel's 32-bit numbers hold? */
static ckl_status takes(const ckl_conv_desc *d)
{
    const int64_t sides[] = { d->d, d->h, d->w }, most = INT32_MAX / 4;
    if (d->groups != d->c || d->groups != d->k)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: groups=%" PRId64 " are not c=%" PRId64 " and k=%" PRId64 " channels",
             d->groups, d->c, d->k);
    if (d->dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: dtype=i8 is none of f32, f16, bf16");
    if (d->direction == CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: it does not compute the gradient of weights");
    if (d->direction == CKL_CONV_DATA && !conv_turns(d))
        FAIL(CKL_UNSUPPORTED, "conv depthwise: the gradient of data of strides above 1 goes through other kernels");
    if (d->s > TAPS_MAX || d->stride_w > TAPS_MAX || d->dilation_w > TAPS_MAX || pad_of(d) < 0 || pad_of(d) > PAD_MAX ||
        4 * (LANES_MAX + PADDING) * d->t * d->r * d->s > FILTERS_BYTES_MAX)
        FAIL(CKL_UNSUPPORTED,
             "conv depthwise: a filter of %" PRId64 "x%" PRId64 "x%" PRId64
             ", its stride, dilation or padding is too large, or its padding larger than the filter",
             d->t, d->r, d->s);
    if ((double)d->w * (double)d->k * (double)ckl_dtype_bytes(d->dtype) * 2 > UINT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: a row of w=%" PRId64 " and k=%" PRId64 " is beyond 32-bit numbers", d->w,
             d->k);
    for (int i = 0; i < CONV_MODES; i++)
        if (sides[i] > most || d->k > (int64_t)LANES_MIN * UINT16_MAX)
            FAIL(CKL_UNSUPPORTED, "conv depthwise: a size of %" PRId64 " or k=%" PRId64 " is too large", sides[i],
                 d->k);
    return CKL_OK;
}

/*
 * Threads side by side that have vectors of channels: as many as leave at most an eighth of the last CTA's idle. Single
 * channels have up to 32 lanes: 64 contiguous bytes.
 */
static int lanes_of(int64_t channels, int vec, int taps)
{
    int lanes = vec > 2 ? LANES_MAX : 4 * LANES_MAX / vec;
    while (lanes > LANES_MIN && (8 * round_up(channels, (int64_t)lanes * vec) > 9 * channels ||
                                 4 * (lanes * vec + PADDING) * taps > FILTERS_BYTES_MAX))
        lanes /= 2;
    while (lanes < LANES_MAX &&
           round_up(channels, 2 * (int64_t)lanes * vec) == round_up(channels, (int64_t)lanes * vec) &&
           4 * (2 * lanes * vec + PADDING) * taps <= FILTERS_BYTES_MAX)
        lanes *= 2; // as many idle, wider accesses
    return lanes;
}

/* Have all threads all their columns of y, with x below them but for padding? */
static bool is_even(const ckl_conv_desc *d, const conv_depthwise_config *c)
{
    const conv_tensor from = conv_tensor_of(d, conv_read(d)), to = conv_tensor_of(d, conv_written(d));
    return to.shape[3] % c->cols == 0 && (to.shape[3] - 1) * d->stride_w < from.shape[3];
}

static ckl_status check_ahead(const ckl_conv_desc *d, const conv_depthwise_config *c)
{
    if (c->ahead && (c->ahead != d->r || d->t > 1 || registers_ahead(c) > AHEAD_MAX))
        FAIL(CKL_UNSUPPORTED, "conv depthwise: ahead=%d rows are not the filter's, or more than %d registers", c->ahead,
             AHEAD_MAX);
    return CKL_OK;
}

/* Where a wave of CTAs has all work, x under all rows of a filter is loaded at once, by half the columns a thread. */
static void choose_ahead(const ckl_conv_desc *d, const ckl_device_info *device, conv_depthwise_config *c)
{
    conv_depthwise_config ahead = *c;
    ahead.cols = COLS / 2;
    ahead.even = is_even(d, &ahead);
    ahead.run = (int)min_i64(ahead.cols, c->run);
    while (!c->nhwc && ahead.cols * c->step % ahead.vec)
        ahead.vec /= 2;
    ahead.ahead = (int)min_i64(d->r, AHEAD_MAX);
    if (check_ahead(d, &ahead) == CKL_OK && threads_of(d, &ahead) <= (int64_t)THREADS * 2 * device->sm_count)
        *c = ahead;
}

static ckl_status choose_depthwise(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    conv_depthwise_config *c = config;
    TRY(takes(d));
    const conv_tensor from = conv_tensor_of(d, conv_read(d)), to = conv_tensor_of(d, conv_written(d));
    const int64_t bytes = (int64_t)ckl_dtype_bytes(d->dtype);
    c->form = conv_form_of(d);
    c->nhwc = d->layout == CKL_IMAGE_NHWC && d->k > 1; // a single channel lies as a plane does
    c->filter = (int)d->s;
    c->taps = (int)(d->t * d->r * d->s);
    c->step = (int)d->stride_w;
    c->dilation = (int)d->dilation_w;
    c->pad = (int)pad_of(d);
    c->cols = COLS;
    if (to.shape[3] <= COLS / 2 || span_of(c) > WINDOW_MAX / 2)
        c->cols = COLS / 2;
    c->even = is_even(d, c);
    c->run = (int)min_i64(c->cols, power_of_two_in(to.shape[3]));
    c->vec = (int)min_i64(16 / bytes, power_of_two_in(c->nhwc ? d->k : from.shape[3]));
    while (c->nhwc && c->vec > 1 &&
           (c->vec * c->filter > TAPS_MAX || 4 * (LANES_MAX * c->vec + PADDING) * c->taps > FILTERS_BYTES_MAX))
        c->vec /= 2;
    c->lanes = lanes_of(d->k, c->vec, c->taps);
    c->ctas = c->nhwc && c->step == 1 ? 3 : 0; // 168 registers: 52 -> 47 us for 7x7 filters (bench/notes/conv.md)
    while (!c->nhwc && c->cols * c->step % c->vec)
        c->vec /= 2;
    choose_ahead(d, device, c);
    return CKL_OK;
}

static ckl_status admit_depthwise(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const conv_depthwise_config *c = config;
    conv_depthwise_config own = { 0 };
    TRY(conv_check_form("depthwise", desc, &c->form));
    TRY(conv_check_dense("depthwise", desc));
    TRY(choose_depthwise(d, device, &own));
    if (c->nhwc != own.nhwc || c->filter != own.filter || c->taps != own.taps || c->step != own.step ||
        c->dilation != own.dilation || c->pad != own.pad)
        FAIL(CKL_INVALID,
             "conv depthwise: the config's layout, filter, stride, dilation or padding are not the problem's");
    if (c->ctas < 0 || c->ctas > 8)
        FAIL(CKL_INVALID, "conv depthwise: ctas=%d is not in 0..8", c->ctas);
    if (span_of(c) + (c->nhwc ? 0 : 2 * c->vec) > WINDOW_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: a window of %d columns is more than %d", span_of(c), WINDOW_MAX);
    if (!is_power_of_two(c->lanes) || c->lanes < LANES_MIN || c->lanes > 4 * LANES_MAX)
        FAIL(CKL_INVALID, "conv depthwise: lanes=%d is no power of two in %d..%d", c->lanes, LANES_MIN, 4 * LANES_MAX);
    if (c->vec < 1 || own.vec % c->vec || (c->cols != COLS && c->cols != COLS / 2) || c->run < 1 || own.run % c->run ||
        c->cols % c->run || (!c->nhwc && c->cols * c->step % c->vec))
        FAIL(CKL_INVALID, "conv depthwise: vec=%d run=%d do not divide vec=%d run=%d, or cols=%d is not %d or %d",
             c->vec, c->run, own.vec, own.run, c->cols, COLS / 2, COLS);
    TRY(check_ahead(d, c));
    if (c->even && !is_even(d, c))
        FAIL(CKL_INVALID, "conv depthwise: even=1, but cols=%d do not divide the columns", c->cols);
    if (threads_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv depthwise: %" PRId64 " threads are beyond 32-bit numbers", threads_of(d, c));
    return CKL_OK;
}

static ckl_status launch_depthwise(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc plane = conv_depthwise_plane(plan->desc), *d = &plane, forward = conv_turned(d);
    const ckl_conv_args a = conv_turned_args(d, args);
    const conv_depthwise_config *all = plan->config;
    const int64_t out = (int64_t)ckl_dtype_bytes(d->out) * (all->nhwc ? all->vec : all->run);
    const bool aligned = PLAN_ALIGNED(all->vec * (int64_t)ckl_dtype_bytes(d->dtype), a.x) &&
                         PLAN_ALIGNED(min_i64(16, out), a.y, a.residual);
    const conv_depthwise_config c = config_of(all, !aligned);
    const conv_params params = conv_params_of(&forward, &a);
    const plan_grid grid = { .x = ceil_div(threads_of(d, &c), THREADS),
                             .y = c.nhwc ? ceil_div(d->k, (int64_t)c.lanes * c.vec) : 1,
                             .z = 1 };
    return plan_launch(plan, !aligned, grid, &params, stream);
}

static const field depthwise_fields[] = { CONV_FORM(FIELD_NESTED, (conv_depthwise_config, form)) //
                                          CONV_DEPTHWISE_CONFIG(FIELD_ROW, conv_depthwise_config) };

const implementation conv_depthwise_implementation = {
    IMPLEMENTATION_PARTS(conv, depthwise),
    .cost = conv_cost_depthwise,
    .rivals = { &conv_kn2row_implementation, &conv_narrow_implementation, &conv_stem_implementation }, // of one filter
    .summary = "a filter a channel: vectors of channels or columns, a window that slides along a row",
    .kernels = 2,
    .params = &conv_param_list,
};
