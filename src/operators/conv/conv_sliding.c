/*
 * conv_sliding.c - filters of one channel each: forward, and the gradient of data where strides are 1, which is the
 * forward problem of dy with the filters turned round.
 *
 * A thread has a vector of channels of some columns of y and goes down their rows. It loads each row of x once, ahead
 * of the one it multiplies, and adds that to the sums of all rows of y that see it: a window of sums that slides.
 * Neighbours have the next channels, then the next columns, so that accesses are whole lines whatever the channels are;
 * of planes, as NCHW has them, the next columns.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_sliding.h"
#include "operators/conv/conv_wait.h"

/* Everything a thread knows. */
typedef struct sliding {
    const sliding_config *cfg;
    conv_values p;
    val n, row, column, channel;  // its first element of y
    val count, stored;            // rows of y; columns that are the thread's before it
    val y;                        // the number of the first element of the row to store next
    val h, last;                  // i32: the row of x to load next; the last one it needs
    val place;                    // among those that share copies: u32
    val at;                       // the address of the first unit that lies inside, in the row to load next
    val offset[SLIDING_SPAN_MAX]; // bytes from there to what a copy or load takes, or the nearest inside
    val inside[SLIDING_SPAN_MAX]; // is it?
    tensor rRow, rEdge;           // rows under way: (WORD,UNIT,ROW), and (COLUMN,ROW) of units that are seen in part
    tensor sX;                    // or in shared memory: (VEC,THREAD,UNIT,SLOT)
    val to, from;                 // bytes from the first slot to those of the row to load next and the one to multiply
    tensor rW;                    // (TAP,VEC)
    tensor rSum;                  // (VEC,COLS,WINDOW)
    conv_channels channels;
} sliding;

/* The first column of a unit, counted from the first that a tap sees; are all of its columns seen? */
static int first_of(const sliding_config *c, int unit)
{
    return unit * c->run - c->skipped;
}

static bool is_whole(const sliding_config *c, int unit)
{
    return first_of(c, unit) >= 0 && first_of(c, unit) + c->run <= sliding_span_w(c);
}

static bool may_be_outside(const sliding_config *c, int unit)
{
    return unit < c->left || unit >= sliding_units(c) - c->right;
}

/* May a unit that copy `copy` of some thread takes be outside, or is there none? */
static bool may_copy_outside(const sliding_config *c, int copy)
{
    const int first = copy * sliding_share(c), last = first + sliding_share(c) - 1;
    return may_be_outside(c, first) || may_be_outside(c, last);
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
    val rest = add(mul(cta_x(), imm(SLIDING_THREADS)), thread()), vector = { 0 };
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

static void find_x(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    val far = add(mul(sub(convert(I32, k->count), imm(1)), imm(cfg->step_h)), imm(sliding_span_h(cfg) - 1));
    k->h = variable(I32, first_under(k, 1, k->row));
    k->last = min(sub(convert(I32, k->p.x_size[1]), imm(1)), add(k->h, far));
    k->place = cfg->shared ? convert(I32, rem(thread(), imm(sliding_share(cfg)))) : imm(0);
    val first = sub(first_under(k, 2, k->column), imm(cfg->skipped)), own = mul(k->place, imm(cfg->run));
    val sure = add(add(first, imm(cfg->left * cfg->run)), own); // the column of its first unit that is inside
    val end = sub(convert(I32, k->p.x_size[2]), imm(cfg->run));
    UNROLL(i, sliding_copies(cfg)) {
        val at = add(add(first, imm(i * sliding_share(cfg) * cfg->run)), own), nearest = max(imm(0), min(at, end));
        k->inside[i] = logical_and(logical_and(ge(at, imm(0)), le(at, end)),
                                   lt(add(k->place, imm(i * sliding_share(cfg))), imm(sliding_units(cfg))));
        k->offset[i] = convert(
            U64, mul(convert(I64, sub(nearest, sure)), imm64((int64_t)sliding_pixel(cfg) * sliding_element(cfg))));
    }
    val channel = sub(k->channel, convert(U32, mul(k->place, imm(cfg->vec)))); // of the first that shares
    val index = add(mul(convert(I64, k->n), k->p.x[0]), mul(convert(I64, max(imm(0), k->h)), k->p.x[2]));
    index = add(index, mul(convert(I64, div(channel, imm(cfg->filters))), k->p.x[4]));
    index = add(index, mul(convert(I64, sure), imm64(sliding_pixel(cfg))));
    k->at = variable(U64, gmem_address(k->p.from[CONV_X], cfg->form.dtype, index));
}

static void describe_rows(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    const tensor rWords = packed_registers(cfg->form.dtype, cfg->vec * cfg->run).rWords;
    if (!cfg->async) {
        k->rRow =
            fragment(rWords.dtype, compact(shape((int)static_size(rWords.layout), sliding_units(cfg), cfg->ahead)));
        k->rEdge = fragment(cfg->form.dtype, compact(shape(sliding_span_w(cfg), cfg->ahead)));
        fill(k->rRow, convert(rWords.dtype, imm(0)));
        fill(k->rEdge, convert(cfg->form.dtype, immf(0)));
        return;
    }
    k->sX = smem_tensor("X", cfg->form.dtype,
                        compact(shape(cfg->vec, SLIDING_THREADS, sliding_room(cfg), sliding_slots(cfg))), 16);
    k->to = variable(U32, imm(0));
    k->from = variable(U32, imm(0));
}

static void next_slot(const sliding *k, val slot)
{
    const int bytes = sliding_unit_bytes(k->cfg) * SLIDING_THREADS * sliding_room(k->cfg),
              last = (sliding_slots(k->cfg) - 1) * bytes;
    assign(slot, select(eq(slot, imm(last)), imm_as(U32, 0), add(slot, imm(bytes))));
}

/* The address of the thread's unit in the slot that begins so many bytes after the first. */
static val slot_address(const sliding *k, val slot, int unit)
{
    return add(tensor_address(k->sX, coord(0, thread(), unit, 0)), slot);
}

/* Begins copy `copy` of a row: a unit of all that share it. */
static void copy_unit(sliding *k, int copy)
{
    const sliding_config *cfg = k->cfg;
    const int bytes = sliding_unit_bytes(cfg) * sliding_share(cfg), unit = copy * sliding_share(cfg);
    const bool outside = may_copy_outside(cfg, copy);
    val from = add(k->at, outside ? k->offset[copy] : imm_as(U64, sliding_far(cfg, unit)));
    val to =
        add(tensor_address(k->sX, coord(0, sub(thread(), convert(U32, k->place)), add(k->place, imm(unit)), 0)), k->to);
    cp_async(to, from, bytes,
             outside ? select(k->inside[copy], imm_as(U32, bytes), imm_as(U32, 0)) : imm_as(U32, bytes));
}

/* To registers of a row: of a unit that is seen in part the columns that are. */
static void load_unit(sliding *k, int unit, int row)
{
    const sliding_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    const int first = first_of(cfg, unit);
    val from = add(k->at, may_be_outside(cfg, unit) ? k->offset[unit] : imm_as(U64, sliding_far(cfg, unit)));
    if (is_whole(cfg, unit))
        copy(gmem_tensor(from, k->rRow.dtype, slice(k->rRow, _, unit, row).layout), slice(k->rRow, _, unit, row),
             sliding_unit_bytes(cfg));
    else
        for (int j = first < 0 ? 0 : first; j < first + cfg->run && j < sliding_span_w(cfg); j++)
            set(k->rEdge, coord(j, row), at(gmem_tensor(from, dtype, compact(leaf(cfg->run))), j - first));
}

/* Is row h of x one that the thread needs? Others add nothing. */
static val is_needed(const sliding *k, val h)
{
    return logical_and(ge(h, imm(0)), le(h, k->last));
}

/* Begins to load row i, counted from the first under the thread. */
static void load_row(sliding *k, int i)
{
    const sliding_config *cfg = k->cfg;
    IF(is_needed(k, k->h)) {
        UNROLL(c, cfg->async ? sliding_copies(cfg) : 0)
            copy_unit(k, c);
        UNROLL(u, cfg->async ? 0 : sliding_units(cfg))
            load_unit(k, u, i % cfg->ahead);
        val pitch = mul(convert(U64, k->p.x[2]), imm_as(U64, sliding_element(cfg)));
        assign(k->at, add(k->at, pitch)); // as products ptxas would keep all columns in registers
    }
    if (cfg->async) {
        cp_async_commit();
        next_slot(k, k->to);
    }
    assign(k->h, add(k->h, imm(1)));
}

/* A unit of a row that has been loaded: (VEC*RUN) of f32. */
static tensor take_unit(const sliding *k, int unit, int row)
{
    const sliding_config *cfg = k->cfg;
    if (cfg->async) {
        tensor sUnit = smem_view(slot_address(k, k->from, unit), cfg->form.dtype, compact(leaf(cfg->vec)));
        return unpacked(load_packed(sUnit, sliding_unit_bytes(cfg)), F32);
    }
    const packed all = { slice(k->rRow, _, unit, row), cfg->form.dtype, cfg->vec * cfg->run };
    return unpacked(may_be_outside(cfg, unit) ? conv_or_zeros(all, k->inside[unit]) : all, F32);
}

/* Column j of one that is seen in part: (1). */
static tensor take_edge(const sliding *k, int unit, int j, int row)
{
    tensor rX = fragment(F32, compact(leaf(1)));
    val x = at_f32(k->rEdge, j, row);
    set(rX, 0, may_be_outside(k->cfg, unit) ? select(k->inside[unit], x, immf(0)) : x);
    return rX;
}

/* The columns of a row under a thread, each (VEC) of f32. */
static void take_row(const sliding *k, int row, tensor rX[SLIDING_SPAN_MAX])
{
    const sliding_config *cfg = k->cfg;
    UNROLL(u, sliding_units(cfg)) {
        const int first = first_of(cfg, u);
        tensor rUnit = is_whole(cfg, u) ? take_unit(k, u, row) : (tensor){ 0 };
        for (int j = first < 0 ? 0 : first; j < first + cfg->run && j < sliding_span_w(cfg) && describing(); j++)
            rX[j] = is_whole(cfg, u) ? local_tile(rUnit, shape(cfg->vec), coord(j - first)) : take_edge(k, u, j, row);
    }
}

/* The number of a tap in memory; the gradient's filters are turned round. */
static int tap_at(const sliding_config *c, int row, int column)
{
    const int tap = row * c->columns + column;
    return c->form.direction == CKL_CONV_DATA ? sliding_taps(c) - 1 - tap : tap;
}

/* Adds what the thread sees of row i of x to the rows of y that see it; i: counted from the first under the thread. */
static void add_products(sliding *k, const tensor rX[SLIDING_SPAN_MAX], int i)
{
    const sliding_config *cfg = k->cfg;
    UNROLL(j, sliding_span_w(cfg)) {
        for (int q = 0; q * cfg->step_h <= i; q++)
            for (int p = 0; p < cfg->cols; p++) {
                const int row = conv_tap_of(i, q, cfg->rows, cfg->step_h, cfg->dilation_h),
                          along = conv_tap_of(j, p, cfg->columns, cfg->step_w, cfg->dilation_w);
                if (row < 0 || along < 0)
                    continue;
                const int tap = tap_at(cfg, row, along), window = q % sliding_window(cfg);
                for (int c = 0; c < cfg->vec; c++)
                    set(k->rSum, coord(c, p, window), fma(at(rX[j], c), at(k->rW, tap, c), at(k->rSum, c, p, window)));
            }
    }
}

/*
 * Row i of x, and a load of the row that follows those under way. Copies to shared memory are waited for in turn. Of
 * loads to registers ptxas waits for all at once, so several rows of these are loaded behind the products, and waited
 * for when the first comes round.
 */
static void add_row(sliding *k, int i)
{
    const sliding_config *cfg = k->cfg;
    const int row = i % cfg->ahead;
    const bool alone = !cfg->async && cfg->ahead == 1; // the next row takes its registers
    tensor rX[SLIDING_SPAN_MAX];
    val needed = is_needed(k, sub(k->h, imm(cfg->ahead)));
    if (cfg->async)
        cp_async_wait(cfg->ahead - 1);
    if (cfg->shared)
        warp_sync(); // all copies of this row are there, and the row before is read
    if (alone)
        take_row(k, row, rX);
    if (cfg->async || alone)
        load_row(k, i);
    if (i % cfg->step_h == 0) // the first row that row i / step of y sees
        fill(slice(k->rSum, _, _, i / cfg->step_h % sliding_window(cfg)), immf(0));
    IF(needed) {
        if (!alone)
            take_row(k, row, rX);
        add_products(k, rX, i);
    }
    if (cfg->async)
        next_slot(k, k->from);
    if (!cfg->async && !alone)
        load_row(k, i);
}

/* Stores a row of the thread's, in vectors at known distances from each other. */
static void store_row(sliding *k, int window)
{
    const sliding_config *cfg = k->cfg;
    const conv_form *form = &cfg->form;
    const int bytes = (int)ckl_dtype_bytes(form->out), count = cfg->vec * cfg->run;
    const int unit = count * bytes > 16 ? 16 / bytes : count;
    const tensor gY = gmem_tensor(gmem_address(k->p.from[CONV_Y], form->out, k->y), form->out, compact(leaf(unit)));
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

/*
 * The first rows of x, which complete no row of y; then rows of y, a window of them in turn. Threads that share copies
 * go through as many, since they wait for each other.
 */
static void slide(sliding *k)
{
    const sliding_config *cfg = k->cfg;
    const int window = sliding_window(cfg), first = (int)max_i64(0, sliding_span_h(cfg) - cfg->step_h);
    const val rows = cfg->shared ? imm_as(U32, cfg->high) : k->count;
    UNROLL(i, first)
        add_row(k, i);
    LOOP_FROM(q, imm_as(U32, 0), rows, imm(window))
        UNROLL(w, window) {
            val row = add(q, imm(w));
            BREAK_IF(ge(row, rows));
            UNROLL(i, cfg->step_h)
                add_row(k, first + w * cfg->step_h + i);
            if (cfg->shared)
                begin_if(lt(row, k->count));
            store_row(k, w);
            if (cfg->shared)
                end_if();
        }
}

/*
 * The filters of a CTA's channels, a vector of channels behind the other as they lie: all there are, or those from its
 * first channel on, behind the last of which the first follows. Loads of neighbours, and words of shared memory that a
 * thread's filters are read from, lie side by side.
 */
typedef struct shared_filters {
    tensor sW;                       // (TAP*VEC,VECTOR)
    packed rUnits[SLIDING_TAPS_MAX]; // of `vec` elements, that the thread has loaded
} shared_filters;

static void load_filters(const sliding *k, shared_filters *to)
{
    const sliding_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    const int vectors = sliding_vectors(cfg), taps = sliding_taps(cfg), bytes = cfg->vec * (int)ckl_dtype_bytes(dtype);
    to->sW = smem_tensor("filters", dtype, compact(shape(taps * cfg->vec, vectors)), 16);
    const int all = cfg->channels / cfg->vec;
    val first = all > vectors ? rem(mul(cta_x(), imm(SLIDING_THREADS)), imm(all)) : imm_as(U32, 0);
    UNROLL(i, ceil_div((int64_t)vectors * taps, SLIDING_THREADS)) {
        val e = add(mul(first, imm(taps)), min(add(thread(), imm(i * SLIDING_THREADS)), imm(vectors * taps - 1)));
        e = all > vectors ? select(lt(e, imm(all * taps)), e, sub(e, imm(all * taps))) : e;
        val address = gmem_address(k->p.from[CONV_W], dtype, mul(convert(I64, e), imm64(cfg->vec)));
        to->rUnits[i] = load_packed(gmem_tensor(address, dtype, compact(leaf(cfg->vec))), bytes);
    }
}

/* A thread's, from where they lie: (TAP*VEC). */
static void take_filters(sliding *k, tensor filters)
{
    const sliding_config *cfg = k->cfg;
    k->rW = fragment(F32, compact(shape(sliding_taps(cfg), cfg->vec)));
    copy(filters, tensor_with_layout(k->rW, filters.layout), cfg->vec * sliding_element(cfg));
}

static void share_filters(sliding *k, const shared_filters *from)
{
    const sliding_config *cfg = k->cfg;
    const ckl_dtype dtype = cfg->form.dtype;
    const int vectors = sliding_vectors(cfg), taps = sliding_taps(cfg), bytes = cfg->vec * (int)ckl_dtype_bytes(dtype);
    UNROLL(i, ceil_div((int64_t)vectors * taps, SLIDING_THREADS)) {
        val unit = add(thread(), imm(i * SLIDING_THREADS));
        val address = add(from->sW.address, mul(unit, imm(bytes)));
        IF(lt(unit, imm(vectors * taps)))
            copy(from->rUnits[i].rWords,
                 smem_view(address, from->rUnits[i].rWords.dtype, from->rUnits[i].rWords.layout), bytes);
    }
    cta_sync();
    val vector = cfg->channels / cfg->vec > vectors ? thread() : div(k->channel, imm(cfg->vec));
    take_filters(k, slice(from->sW, _, vector));
}

void conv_sliding(const void *config, int kernel)
{
    const sliding_config of_kernel = sliding_of_kernel(config, kernel), *cfg = &of_kernel;
    launch_bounds(SLIDING_THREADS, cfg->ctas);
    sliding k = { .cfg = cfg, .p = params_of(conv) };
    shared_filters filters;
    k.rSum = fragment(F32, compact(shape(cfg->vec, cfg->cols, sliding_window(cfg))));
    fill(k.rSum, immf(0));
    conv_wait(&k.p);
    find_place(&k);
    find_x(&k);
    if (cfg->planes) // many of a CTA's threads have the same
        take_filters(&k, conv_run_at(k.p.from[CONV_W], cfg->form.dtype,
                                     mul(convert(I64, k.channel), imm64(sliding_taps(cfg))), sliding_taps(cfg)));
    else
        load_filters(&k, &filters);
    describe_rows(&k);
    UNROLL(a, cfg->ahead)
        load_row(&k, a);
    if (!cfg->planes)
        share_filters(&k, &filters);
    k.channels = conv_load_channels(&cfg->form, &k.p, k.channel, cfg->vec);
    slide(&k);
}
