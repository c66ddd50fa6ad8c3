/*
 * conv_sliding.c - filters of one channel each: forward, and the gradient of data where strides are 1, which is the
 * forward problem of dy with the filters turned round.
 *
 * A thread has a vector of channels of some columns of y and goes down their rows. It loads each row of x once, ahead
 * of the one it multiplies, and adds that to the sums of all rows of y that see it: a window of sums that slides.
 * Neighbours have the next channels, then the next columns, so that accesses are whole lines whatever the channels are;
 * of planes, as NCHW has them, the next columns.
 */
#include <math.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/conv/conv_epilogue.h"
#include "skeletons/product_cost.h"

enum {
    THREADS = 128,
    COLS_MAX = 16,
    SPAN_MAX = 64, // columns of x under a thread
    TAPS_MAX = 72, // of a thread's channels in all, in registers
    AHEAD_MAX = 5, // rows
    COPY_MIN = 4,  // bytes of an asynchronous copy
    CTAS_MAX = 8,  // of an SM
    REGISTERS_MAX = 224,
    REGISTERS_SINGLE = 255 // of the kernel for any pointers
};

typedef conv_sliding_config sliding_config;

/* Everything a thread knows. */
typedef struct sliding {
    const sliding_config *cfg;
    conv_values p;
    val n, row, column, channel; // its first element of y
    val count, stored;           // rows of y; columns that are the thread's before it
    val y;                       // the number of the first element of the row to store next
    val h, last;                 // i32: the row of x to load next; the last one it needs
    val at;                      // the address of the first unit that lies inside, in the row to load next
    val offset[SPAN_MAX];        // bytes from there to each unit that may be outside, or the nearest inside
    val inside[SPAN_MAX];        // is it?
    tensor rRow, rEdge;          // the next row of x: (WORD,UNIT), and (COLUMN) of units that are seen in part
    tensor sX;                   // or those under way, each thread's own: (VEC,THREAD,UNIT,SLOT)
    val to, from;                // bytes from the first slot to those of the row to load next and the one to multiply
    tensor rW;                   // (TAP,VEC)
    tensor rSum;                 // (VEC,COLS,WINDOW)
    conv_channels channels;
} sliding;

/* The kernel */

static int span_w(const sliding_config *c)
{
    return (c->cols - 1) * c->step_w + (c->columns - 1) * c->dilation_w + 1;
}

/* Rows of x under one of y, and rows of y that see a row of x. */
static int span_h(const sliding_config *c)
{
    return (c->rows - 1) * c->dilation_h + 1;
}

static int window_of(const sliding_config *c)
{
    return (int)ceil_div(span_h(c), c->step_h);
}

static int taps_of(const sliding_config *c)
{
    return c->rows * c->columns;
}

/* Elements from column to column of x. */
static int pixel_of(const sliding_config *c)
{
    return c->planes ? 1 : c->channels / c->filters;
}

/* Vectors of channels of a CTA. */
static int vectors_of(const sliding_config *c)
{
    return (int)min_i64(THREADS, c->channels / c->vec);
}

/*
 * A row of x under a thread is loaded in units of `run` columns. Some of the first one's may be seen by no tap, so that
 * units of planes are whole vectors.
 */
static int units_of(const sliding_config *c)
{
    return (int)ceil_div(c->skipped + span_w(c), c->run);
}

/* The first column of a unit, counted from the first that a tap sees; are all of its columns seen? */
static int first_of(const sliding_config *c, int unit)
{
    return unit * c->run - c->skipped;
}

static bool is_whole(const sliding_config *c, int unit)
{
    return first_of(c, unit) >= 0 && first_of(c, unit) + c->run <= span_w(c);
}

static bool may_be_outside(const sliding_config *c, int unit)
{
    return unit < c->left || unit >= units_of(c) - c->right;
}

/*
 * Threads follow each other along the channels, then along a row of y, down strips of rows, over images; of planes
 * channels come behind the strips. The last columns of a row begin early enough to be whole, and those that have been
 * stored are left out.
 */
static void find_place(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    const val columns = conv_number(k->p.y_size[2]), rows = conv_number(k->p.y_size[1]);
    const val vectors = imm_as(U32, cfg->channels / cfg->vec);
    val rest = add(mul(cta_x(), imm(THREADS)), thread()), vector = { 0 };
    if (!cfg->planes)
        vector = conv_next_digit(&rest, vectors);
    val column = mul(conv_next_digit(&rest, div_up(columns, cfg->cols)), imm(cfg->cols));
    k->column = cfg->even ? column : min(column, sub(columns, imm(cfg->cols)));
    k->stored = sub(column, k->column);
    k->row = mul(conv_next_digit(&rest, div_up(rows, cfg->high)), imm(cfg->high));
    if (cfg->planes)
        vector = conv_next_digit(&rest, vectors);
    k->channel = mul(vector, imm(cfg->vec));
    k->n = min(rest, conv_number(sub(k->p.n, imm64(1))));
    k->count = select(lt(rest, conv_number(k->p.n)), min(imm_as(U32, cfg->high), sub(rows, k->row)), imm_as(U32, 0));
    val first = add(mul(convert(I64, k->n), k->p.y[0]), mul(convert(I64, k->row), k->p.y[2]));
    first = add(first, mul(convert(I64, k->column), k->p.y[3]));
    k->y = variable(I64, add(first, mul(convert(I64, k->channel), k->p.y[4])));
}

/* The first place of x under place `at` of y along mode m. */
static val first_under(const sliding *k, int m, val at)
{
    return sub(mul(convert(I32, at), convert(I32, k->p.step[m])), convert(I32, k->p.pad[m]));
}

/* The row to load next, or the nearest that the thread needs. */
static val nearest_row(const sliding *k)
{
    return max(imm(0), min(k->h, k->last));
}

static int element_of(const sliding_config *c)
{
    return (int)ckl_dtype_bytes(c->form.dtype);
}

static int unit_bytes(const sliding_config *c)
{
    return c->vec * c->run * element_of(c);
}

static void find_x(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    val far = add(mul(sub(convert(I32, k->count), imm(1)), imm(cfg->step_h)), imm(span_h(cfg) - 1));
    k->h = variable(I32, first_under(k, 1, k->row));
    k->last = max(imm(0), min(sub(convert(I32, k->p.x_size[1]), imm(1)), add(k->h, far)));
    const int sure = cfg->left * cfg->run; // columns from the first unit to the first inside
    val first = sub(first_under(k, 2, k->column), imm(cfg->skipped));
    val end = sub(convert(I32, k->p.x_size[2]), imm(cfg->run));
    UNROLL(u, units_of(cfg)) {
        val at = add(first, imm(u * cfg->run)), nearest = max(imm(0), min(at, end));
        k->inside[u] = logical_and(ge(at, imm(0)), le(at, end));
        k->offset[u] = convert(U64, mul(convert(I64, sub(nearest, add(first, imm(sure)))),
                                        imm64((int64_t)pixel_of(cfg) * element_of(cfg))));
    }
    val index = add(mul(convert(I64, k->n), k->p.x[0]), mul(convert(I64, nearest_row(k)), k->p.x[2]));
    index = add(index, mul(convert(I64, div(k->channel, imm(cfg->filters))), k->p.x[4]));
    index = add(index, mul(convert(I64, add(first, imm(sure))), imm64(pixel_of(cfg))));
    k->at = variable(U64, gmem_address(k->p.from[CONV_X], cfg->form.dtype, index));
}

/* Where rows of shared memory are under way: theirs, and the one that is multiplied. */
static int slots_of(const sliding_config *c)
{
    return c->ahead + 1;
}

static void describe_rows(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    const tensor rWords = packed_registers(cfg->form.dtype, cfg->vec * cfg->run).rWords;
    k->rRow = fragment(rWords.dtype, compact(shape((int)static_size(rWords.layout), units_of(cfg))));
    k->rEdge = fragment(cfg->form.dtype, compact(leaf(span_w(cfg))));
    if (!cfg->ahead)
        return;
    k->sX = smem_tensor("X", cfg->form.dtype, compact(shape(cfg->vec, THREADS, units_of(cfg), slots_of(cfg))), 16);
    k->to = variable(U32, imm(0));
    k->from = variable(U32, imm(0));
}

static void next_slot(const sliding *k, val slot)
{
    const int bytes = unit_bytes(k->cfg) * THREADS * units_of(k->cfg), last = (slots_of(k->cfg) - 1) * bytes;
    assign(slot, select(eq(slot, imm(last)), imm_as(U32, 0), add(slot, imm(bytes))));
}

/* The address of the thread's unit in the slot that begins so many bytes after the first. */
static val slot_address(const sliding *k, val slot, int unit)
{
    return add(tensor_address(k->sX, coord(0, thread(), unit, 0)), slot);
}

/* As a copy of its own, or to registers: of a unit that is seen in part the columns that are. */
static void load_unit(sliding *k, int unit)
{
    const sliding_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    const int bytes = unit_bytes(cfg), far = (unit - cfg->left) * cfg->run * pixel_of(cfg), first = first_of(cfg, unit);
    const bool outside = may_be_outside(cfg, unit);
    val from = add(k->at, outside ? k->offset[unit] : imm_as(U64, (int64_t)far * element_of(cfg)));
    if (cfg->ahead)
        cp_async(slot_address(k, k->to, unit), from, bytes,
                 outside ? select(k->inside[unit], imm_as(U32, bytes), imm_as(U32, 0)) : imm_as(U32, bytes));
    else if (is_whole(cfg, unit))
        copy(gmem_tensor(from, k->rRow.dtype, slice(k->rRow, _, unit).layout), slice(k->rRow, _, unit), bytes);
    else
        for (int j = first < 0 ? 0 : first; j < first + cfg->run && j < span_w(cfg); j++)
            set(k->rEdge, j, at(gmem_tensor(from, dtype, compact(leaf(cfg->run))), j - first));
}

/*
 * Begins to load the next row of x, or the nearest there is. By copies of shared memory, which are waited for in turn;
 * of loads to registers ptxas waits for all at once, so there is one row of these.
 */
static void load_row(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    UNROLL(u, units_of(cfg))
        load_unit(k, u);
    if (cfg->ahead) {
        cp_async_commit();
        next_slot(k, k->to);
    }
    val moves = logical_and(ge(k->h, imm(0)), lt(k->h, k->last));
    val pitch = mul(convert(U64, k->p.x[2]), imm_as(U64, element_of(cfg)));
    assign(k->at, select(moves, add(k->at, pitch), k->at)); // as products ptxas would keep all columns in registers
    assign(k->h, add(k->h, imm(1)));
}

/* A unit that has been loaded: (VEC*RUN) of f32. */
static tensor take_unit(const sliding *k, int unit)
{
    const sliding_config *cfg = k->cfg;
    if (cfg->ahead) {
        tensor sUnit = smem_view(slot_address(k, k->from, unit), cfg->form.dtype, compact(leaf(cfg->vec)));
        return unpacked(load_packed(sUnit, unit_bytes(cfg)), F32);
    }
    const packed all = { slice(k->rRow, _, unit), cfg->form.dtype, cfg->vec * cfg->run };
    return unpacked(may_be_outside(cfg, unit) ? conv_or_zeros(all, k->inside[unit]) : all, F32);
}

/* Column j of one that is seen in part: (1). */
static tensor take_edge(const sliding *k, int unit, int j)
{
    tensor rX = fragment(F32, compact(leaf(1)));
    val x = at_f32(k->rEdge, j);
    set(rX, 0, may_be_outside(k->cfg, unit) ? select(k->inside[unit], x, immf(0)) : x);
    return rX;
}

/* The columns under a thread, each (VEC) of f32. */
static void take_row(const sliding *k, tensor rX[SPAN_MAX])
{
    const sliding_config *cfg = k->cfg;
    UNROLL(u, units_of(cfg)) {
        const int first = first_of(cfg, u);
        tensor rUnit = is_whole(cfg, u) ? take_unit(k, u) : (tensor){ 0 };
        for (int j = first < 0 ? 0 : first; j < first + cfg->run && j < span_w(cfg) && describing(); j++)
            rX[j] = is_whole(cfg, u) ? local_tile(rUnit, shape(cfg->vec), coord(j - first)) : take_edge(k, u, j);
    }
}

/* The number of a tap in memory; the gradient's filters are turned round. */
static int tap_at(const sliding_config *c, int row, int column)
{
    const int tap = row * c->columns + column;
    return c->form.direction == CKL_CONV_DATA ? taps_of(c) - 1 - tap : tap;
}

/* Adds what the thread sees of row i of x to the rows of y that see it; i: counted from the first under the thread. */
static void add_products(sliding *k, const tensor rX[SPAN_MAX], int i)
{
    const sliding_config *cfg = k->cfg;
    UNROLL(j, span_w(cfg)) {
        for (int q = 0; q * cfg->step_h <= i; q++)
            for (int p = 0; p < cfg->cols; p++) {
                const int row = conv_tap_of(i, q, cfg->rows, cfg->step_h, cfg->dilation_h),
                          along = conv_tap_of(j, p, cfg->columns, cfg->step_w, cfg->dilation_w);
                if (row < 0 || along < 0)
                    continue;
                const int tap = tap_at(cfg, row, along), window = q % window_of(cfg);
                for (int c = 0; c < cfg->vec; c++)
                    set(k->rSum, coord(c, p, window), fma(at(rX[j], c), at(k->rW, tap, c), at(k->rSum, c, p, window)));
            }
    }
}

/* Row i of x, while the row that follows those under way begins to be loaded. Rows outside of x add nothing. */
static void add_row(sliding *k, int i)
{
    const sliding_config *cfg = k->cfg;
    tensor rX[SPAN_MAX];
    val h = convert(U32, sub(k->h, imm(cfg->ahead ? cfg->ahead : 1)));
    if (cfg->ahead)
        cp_async_wait(cfg->ahead - 1);
    take_row(k, rX);
    if (cfg->ahead)
        next_slot(k, k->from);
    load_row(k);
    if (i % cfg->step_h == 0) // the first row that row i / step of y sees
        fill(slice(k->rSum, _, _, i / cfg->step_h % window_of(cfg)), immf(0));
    IF(lt(h, conv_number(k->p.x_size[1])))
        add_products(k, rX, i);
}

/* Stores row q of the thread's, if it has so many, in vectors at known distances from each other. */
static void store_row(sliding *k, val q, int window)
{
    const sliding_config *cfg = k->cfg;
    const conv_form *form = &cfg->form;
    const int bytes = (int)ckl_dtype_bytes(form->out), count = cfg->vec * cfg->run;
    const int unit = count * bytes > 16 ? 16 / bytes : count;
    const tensor gY = gmem_tensor(gmem_address(k->p.from[CONV_Y], form->out, k->y), form->out, compact(leaf(unit)));
    IF(lt(q, k->count))
        for (int p = 0; p < cfg->cols && describing(); p += cfg->run) {
            const int64_t far = cfg->planes ? p : (int64_t)p * cfg->channels;
            tensor rSum = local_tile(k->rSum, shape(cfg->vec, cfg->run, 1), coord(0, p / cfg->run, window));
            tensor rY = conv_finish_run(form, &k->p, &k->channels, add(k->y, imm64(far)), k->channel, rSum);
            const val guard = cfg->even ? yes() : ge(imm_as(U32, p), k->stored);
            for (int i = 0; i < count; i += unit)
                vector_store(&(vector_at){ gY.address, (far + i) * bytes, guard }, unit, rY.regs + i, gY);
        }
    assign(k->y, add(k->y, k->p.y[2]));
}

/* The first rows of x, which complete no row of y; then as many rows of y at a time as the window has. */
static void slide(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    const int window = window_of(cfg), under = span_h(cfg), first = under > cfg->step_h ? under - cfg->step_h : 0;
    UNROLL(i, first)
        add_row(k, i);
    LOOP_FROM(q, imm_as(U32, 0), k->count, imm(window))
        UNROLL(u, window * cfg->step_h) {
            const int i = first + u, last = i - (under - 1);
            add_row(k, i);
            if (last >= 0 && last % cfg->step_h == 0)
                store_row(k, add(q, imm(last / cfg->step_h)), last / cfg->step_h);
        }
}

/*
 * The filters of a CTA's channels, a vector of channels behind the other as they lie: all there are, or those from its
 * first channel on, behind the last of which the first follows. Loads of neighbours, and words of shared memory that a
 * thread's filters are read from, lie side by side.
 */
typedef struct shared_filters {
    tensor sW;               // (TAP*VEC,VECTOR)
    packed rUnits[TAPS_MAX]; // of `vec` elements, that the thread has loaded
} shared_filters;

static void load_filters(const sliding *k, shared_filters *to)
{
    const sliding_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    const int vectors = vectors_of(cfg), taps = taps_of(cfg), bytes = cfg->vec * (int)ckl_dtype_bytes(dtype);
    to->sW = smem_tensor("filters", dtype, compact(shape(taps * cfg->vec, vectors)), 16);
    const int all = cfg->channels / cfg->vec;
    val first = all > vectors ? rem(mul(cta_x(), imm(THREADS)), imm(all)) : imm_as(U32, 0);
    UNROLL(i, ceil_div((int64_t)vectors * taps, THREADS)) {
        val e = add(mul(first, imm(taps)), min(add(thread(), imm(i * THREADS)), imm(vectors * taps - 1)));
        e = all > vectors ? select(lt(e, imm(all * taps)), e, sub(e, imm(all * taps))) : e;
        val address = gmem_address(k->p.from[CONV_W], dtype, mul(convert(I64, e), imm64(cfg->vec)));
        to->rUnits[i] = load_packed(gmem_tensor(address, dtype, compact(leaf(cfg->vec))), bytes);
    }
}

/* A thread's, from where they lie: (TAP*VEC). */
static void take_filters(sliding *k, tensor filters)
{
    const sliding_config *cfg = k->cfg;
    k->rW = fragment(F32, compact(shape(taps_of(cfg), cfg->vec)));
    copy(filters, tensor_with_layout(k->rW, filters.layout), cfg->vec * element_of(cfg));
}

static void share_filters(sliding *k, const shared_filters *from)
{
    const sliding_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    const int vectors = vectors_of(cfg), taps = taps_of(cfg), bytes = cfg->vec * (int)ckl_dtype_bytes(dtype);
    UNROLL(i, ceil_div((int64_t)vectors * taps, THREADS)) {
        val unit = add(thread(), imm(i * THREADS));
        val address = add(from->sW.address, mul(unit, imm(bytes)));
        IF(lt(unit, imm(vectors * taps)))
            copy(from->rUnits[i].rWords,
                 smem_view(address, from->rUnits[i].rWords.dtype, from->rUnits[i].rWords.layout), bytes);
    }
    cta_sync();
    val vector = cfg->channels / cfg->vec > vectors ? thread() : div(k->channel, imm(cfg->vec));
    take_filters(k, slice(from->sW, _, vector));
}

/* Registers of a thread: its filters, sums, a row of x, and what else ptxas wants to go without spills. */
static int registers_of(const sliding_config *c)
{
    enum { REST = 38, SINGLE = 4, OUTSIDE = 5, FEW = 2 };
    const int row = c->ahead ? 0 : units_of(c) * (int)ceil_div(unit_bytes(c), 4), outside = c->left + c->right - FEW;
    return c->vec * (taps_of(c) + c->cols * window_of(c) + span_w(c)) + row + REST + (c->vec == 1 ? SINGLE : 0) +
           (outside > 0 ? OUTSIDE * outside : 0);
}

/* CTAs of an SM that have so many. */
static int ctas_of(const sliding_config *c)
{
    return (int)max_i64(1, min_i64(CTAS_MAX, 65536 / THREADS / round_up(registers_of(c), 8)));
}

/* Filters, and rows under way. */
static int64_t smem_bytes(const sliding_config *c)
{
    const int64_t filters = c->planes ? 0 : (int64_t)vectors_of(c) * c->vec * taps_of(c) * element_of(c);
    return filters + (c->ahead ? (int64_t)slots_of(c) * units_of(c) * THREADS * unit_bytes(c) : 0);
}

/* Kernel 1 takes single elements, for pointers that are aligned to no more. */
static sliding_config config_of(const void *config, int kernel)
{
    sliding_config c = *(const sliding_config *)config;
    if (kernel == 1) {
        c.vec = c.run = c.ctas = 1;
        c.skipped = 0;
        c.left = c.right = units_of(&c); // any may be outside
        c.ahead = 0;
    }
    return c;
}

void conv_sliding(const void *config, int kernel)
{
    const sliding_config of_kernel = config_of(config, kernel), *cfg = &of_kernel;
    launch_bounds(THREADS, cfg->ctas);
    sliding k = { .cfg = cfg, .p = params_of(conv) };
    shared_filters filters;
    k.rSum = fragment(F32, compact(shape(cfg->vec, cfg->cols, window_of(cfg))));
    fill(k.rSum, immf(0));
    grid_wait();
    launch_dependents();
    find_place(&k);
    find_x(&k);
    if (cfg->planes) // many of a CTA's threads have the same
        take_filters(&k, conv_run_at(k.p.from[CONV_W], cfg->form.dtype,
                                     mul(convert(I64, k.channel), imm64(taps_of(cfg))), taps_of(cfg)));
    else
        load_filters(&k, &filters);
    describe_rows(&k);
    UNROLL(a, cfg->ahead ? cfg->ahead : 1)
        load_row(&k);
    if (!cfg->planes)
        share_filters(&k, &filters);
    k.channels = conv_load_channels(&cfg->form, &k.p, k.channel, cfg->vec);
    slide(&k);
}

/* The host side */

/* The forward problem, which the gradient of data is one of dy. */
static ckl_status takes(const ckl_conv_desc *d)
{
    if (d->groups != d->c || d->k % d->groups)
        FAIL(CKL_UNSUPPORTED, "conv sliding: it takes filters of one channel each");
    if (d->dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv sliding: dtype=i8 is none of f32, f16, bf16");
    if (d->direction != CKL_CONV_FORWARD && (!conv_turns(d) || d->groups != d->k))
        FAIL(CKL_UNSUPPORTED, "conv sliding: of gradients it computes that of data of stride 1, of a filter a channel");
    if (conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv sliding: volumes are convolved by other kernels");
    if (d->r > TAPS_MAX || d->s > TAPS_MAX || d->r * d->s > TAPS_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sliding: a filter of %" PRId64 "x%" PRId64 " is more than %d taps", d->r, d->s,
             TAPS_MAX);
    const conv_tensor x = conv_tensor_of(d, CONV_X), y = conv_tensor_of(d, CONV_Y);
    const int64_t most = INT32_MAX / 256;
    if (max_i64(x.stride[2], y.stride[2]) > most || max_i64(d->h, d->n) > INT32_MAX / 8 ||
        product_i64(d->k, d->r * d->s) > INT32_MAX / 8)
        FAIL(CKL_UNSUPPORTED, "conv sliding: a size is beyond 32-bit numbers");
    return CKL_OK;
}

static int64_t threads_of(const ckl_conv_desc *d, const sliding_config *c)
{
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    return product_i64(product_i64(d->n, ceil_div(y.shape[2], c->high)),
                       ceil_div(y.shape[3], c->cols) * (d->k / c->vec));
}

/* Are the columns of a row side by side? A single channel lies as a plane does. */
static bool is_planes(const ckl_conv_desc *d)
{
    return d->layout == CKL_IMAGE_NCHW || (d->k == 1 && d->c == 1);
}

/*
 * What follows from the problem and the config's other numbers. All columns where threads begin, and where rows do, are
 * at multiples of a unit.
 */
static void derive(const ckl_conv_desc *d, sliding_config *c)
{
    const ckl_conv_desc forward = conv_turned(d);
    const int64_t columns = conv_tensor_of(d, conv_written(d)).shape[3], pad = forward.pad_left;
    const int64_t multiples[] = { (int64_t)c->cols * c->step_w, (columns - c->cols) * c->step_w, c->cols, columns,
                                  forward.w };
    c->planes = is_planes(d);
    c->even = columns % c->cols == 0;
    c->run = c->planes ? 16 / element_of(c) : 1;
    for (int i = 0; i < COUNT_OF(multiples); i++)
        while (multiples[i] % c->run)
            c->run /= 2;
    c->skipped = conv_config_number(pad > 0 ? round_up(pad, c->run) - pad : -pad % c->run);
    const int64_t units = units_of(c), first = product_i64(columns - c->cols, c->step_w) - pad - c->skipped;
    c->left = (int)min_i64(units, ceil_div(max_i64(0, pad), c->run));
    c->right = (int)max_i64(0, min_i64(units, units - (forward.w - first) / c->run));
}

/* Vectors of 2 channels first, strips of all rows, of halves, ... of them; columns that divide a row's. */
static bool candidate_sliding(const void *desc, const ckl_device_info *device, int i, void *config)
{
    static const int vectors[] = { 4, 2, 1 }, columns[] = { 8, 4, 1 }, strips[] = { 1, 2, 3, 4, 6, 8, 16, 32, 64 };
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    sliding_config *c = config;
    (void)device;
    const bool single = is_planes(d) || d->groups < d->k;
    int rest = i / COUNT_OF(strips);
    const int most = columns[rest % COUNT_OF(columns)];
    rest /= COUNT_OF(columns);
    if (rest >= (single ? 1 : COUNT_OF(vectors)))
        return false;
    const int most_vec = (int)min_i64(16, power_of_two_in(d->k)), bytes = (int)ckl_dtype_bytes(d->dtype);
    int vec = single ? 1 : vectors[rest] * bytes < COPY_MIN && most_vec > 1 ? 2 : vectors[rest];
    while (vec > 1 && vec * d->r * d->s > TAPS_MAX)
        vec /= 2;
    const conv_tensor y = conv_tensor_of(d, conv_written(d));
    *c = (sliding_config){ .form = conv_form_of(d),
                           .vec = vec < most_vec ? vec : most_vec,
                           .cols = (int)(is_planes(d) ? min_i64(most, y.shape[3])
                                                      : ceil_div(y.shape[3], ceil_div(y.shape[3], most))),
                           .channels = (int)min_i64(d->k, INT32_MAX / 256),
                           .filters = (int)min_i64(d->k / max_i64(1, d->groups), INT32_MAX / 256),
                           .rows = conv_config_number(d->r),
                           .columns = conv_config_number(d->s),
                           CONV_STEPS_OF(d) };
    const int window = window_of(c);
    c->high = (int)min_i64(INT32_MAX / 8, round_up(ceil_div(y.shape[2], strips[i % COUNT_OF(strips)]), window));
    derive(d, c);
    c->ahead = c->planes || unit_bytes(c) < COPY_MIN ? 0 : 3;
    c->ctas = ctas_of(c);
    return true;
}

static ckl_status admit_sliding(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const sliding_config *c = config;
    const int64_t bytes = (int64_t)ckl_dtype_bytes(d->dtype);
    const int64_t cols_max = min_i64(COLS_MAX, conv_tensor_of(d, conv_written(d)).shape[3]);
    TRY(takes(d));
    TRY(conv_check_form("sliding", desc, &c->form));
    TRY(conv_check_dense("sliding", desc));
    if (c->rows != d->r || c->columns != d->s || c->channels != d->k || c->filters != d->k / d->groups ||
        !CONV_STEPS_FIT(c, d))
        FAIL(CKL_INVALID, "conv sliding: the config's filter, channels, stride or dilation are not the problem's");
    if (!is_power_of_two(c->vec) || c->vec > 16 / (int)max_i64(bytes, (int64_t)ckl_dtype_bytes(d->out)) ||
        d->k % c->vec || ((c->filters > 1 || c->planes) && c->vec > 1) || c->high < 1 || c->high > INT32_MAX / 8 ||
        c->cols < 1 || c->cols > cols_max || c->ahead < 0 || c->ahead > AHEAD_MAX || c->ctas < 1 || c->ctas > CTAS_MAX)
        FAIL(CKL_INVALID,
             "conv sliding: vec=%d does not divide k=%" PRId64
             " or 16 bytes, or cols=%d, high=%d, ahead=%d or ctas=%d are not in 1..%" PRId64 ", 1.., 0..%d, 1..%d",
             c->vec, d->k, c->cols, c->high, c->ahead, c->ctas, cols_max, AHEAD_MAX, CTAS_MAX);
    if (c->ahead && (c->planes || unit_bytes(c) < COPY_MIN))
        FAIL(CKL_UNSUPPORTED, "conv sliding: ahead=%d rows of planes, or by copies of %d bytes, not of 4, 8 or 16",
             c->ahead, unit_bytes(c));
    sliding_config own = *c;
    derive(d, &own);
    if (own.left != c->left || own.right != c->right || own.even != c->even || own.skipped != c->skipped ||
        own.planes != c->planes || own.run != c->run)
        FAIL(CKL_INVALID,
             "conv sliding: left=%d, right=%d, even=%d, planes=%d or run=%d are not those of the problem, %d, %d, %d, "
             "%d and %d",
             c->left, c->right, c->even, c->planes, c->run, own.left, own.right, own.even, own.planes, own.run);
    const sliding_config single = config_of(c, 1);
    if (c->vec * taps_of(c) > TAPS_MAX || c->skipped + span_w(c) > SPAN_MAX || registers_of(c) > REGISTERS_MAX ||
        registers_of(&single) > REGISTERS_SINGLE || smem_bytes(c) > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED,
             "conv sliding: vec=%d channels of %d taps and cols=%d are more than a thread's registers, or places far "
             "apart",
             c->vec, taps_of(c), c->cols);
    if (product_i64(threads_of(d, c), c->vec) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sliding: %" PRId64 " threads are beyond 32-bit numbers", threads_of(d, c));
    return CKL_OK;
}

static ckl_status launch_sliding(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc plane = conv_depthwise_plane(plan->desc), *d = &plane, forward = conv_turned(d);
    const sliding_config *all = plan->config;
    const ckl_conv_args a = conv_turned_args(d, args);
    const int64_t count = all->vec * all->run, in = count * (int64_t)ckl_dtype_bytes(d->dtype),
                  out = count * (int64_t)ckl_dtype_bytes(d->out);
    const bool aligned = PLAN_ALIGNED(in, a.x) && PLAN_ALIGNED(all->vec * (int64_t)ckl_dtype_bytes(d->dtype), a.w) &&
                         PLAN_ALIGNED(min_i64(16, out), a.y, a.residual);
    const sliding_config c = config_of(all, !aligned);
    const conv_params params = conv_params_of(&forward, &a);
    return plan_launch(plan, !aligned, (plan_grid){ .x = ceil_div(threads_of(d, &c), THREADS), .y = 1, .z = 1 },
                       &params, stream);
}

/*
 * Instructions of a thread, of which a warp begins WARP a cycle and an SM no more than RATE (5x5: 99 channels of 56x56
 * in 26.4 us, 7 of 897x897 in 47.2; planes of 56x56 under 7x7 in 42.7), or its copies (144 of 56x56 in 21.3 us, 96 of
 * 112x112 by stride 2 in 44.8).
 */
static plan_cost cost_sliding(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LOAD = 2, OUTSIDE = 3, STORE = 4, ROW = 30, START = 150, WARP = 0.22, RATE = 2.9, COPY = 6,
                 BYTES = 1.5, RING = 0.8, WAIT = 350;
    const double RINGS = 3.2e6, REGISTERS = 2.8e6; // bytes of memory a us
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const sliding_config *c = config;
    const conv_tensor x = conv_tensor_of(d, conv_read(d)), y = conv_tensor_of(d, conv_written(d));
    const double tiles = (double)threads_of(d, c) / THREADS, warps = THREADS / 32;
    const double smooth = c->form.activation > CKL_ACTIVATION_RELU ? 8 : 0;
    const double outputs = (double)c->cols * c->vec,
                 of_y = outputs * (taps_of(c) + 1 + smooth) + c->cols / c->run * STORE;
    const double of_x = ROW + units_of(c) * LOAD + span_w(c) * c->vec + (c->left + c->right) * OUTSIDE;
    const double rows = (double)round_up(min_i64(c->high, y.shape[2]), window_of(c));
    const double rows_x = rows * c->step_h + span_h(c);
    const double instructions =
        START + taps_of(c) * (c->vec + 4.0) + rows * of_y + rows_x * of_x + span_h(c) * of_y / 2;
    const double at_once = fmin(c->ctas, ceil(tiles / device->sm_count)), rate = fmin(RATE, WARP * warps * at_once);
    const double copies = c->ahead ? rows_x * units_of(c) * (COPY + BYTES * unit_bytes(c)) * rate : 0;
    return product_cost(&(product_work){ .tiles = tiles,
                                         .ctas = c->ctas,
                                         .steps = 1,
                                         .multiply_adds = fmax(instructions, copies) * warps,
                                         .rate = rate,
                                         .step_cycles = (rows_x / fmax(1, c->ahead) + 1) * WAIT,
                                         .bytes = (double)d->n * (double)(x.stride[0] + y.stride[0]) * element_of(c),
                                         .bytes_per_us = c->ahead ? RINGS : REGISTERS,
                                         .us = c->ahead ? RING : 0 },
                        device);
}

static const field sliding_fields[] = { CONV_FORM(FIELD_NESTED, (conv_sliding_config, form)) //
                                        CONV_SLIDING_CONFIG(FIELD_ROW, conv_sliding_config) };

const implementation conv_sliding_implementation = {
    CONV_RANKED(sliding, conv_sliding_config),
    .summary = "a filter a channel of NHWC: down the rows of x, a window of sums that slides",
    .rivals = { &conv_depthwise_implementation, &conv_skinny_implementation, &conv_stem_implementation,
                &conv_narrow_implementation, &conv_packed_implementation },
    .describe = conv_sliding,
    .kernels = 2,
    .params = &conv_param_list,
};
