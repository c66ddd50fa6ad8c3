/*
 * norm_forward.c - the threads of a row hold it in registers; longer rows flow through shared memory, or are read tile
 * by tile in each pass. Rows that start anywhere are ragged (row.h): vectors are those of y.
 */
#include "cute/kernel.h"
#include "operators/norm/norm_config.h"
#include "skeletons/prefetch.h"

/* Vectors whose gamma and beta are loaded at once; out of phase each takes registers for two vectors. */
enum { WRITE_STEPS = 4, WRITE_STEPS_RAGGED = 2 };

/* A row in the passes. Its values h are x, or x + residual rounded to the type of sum. */
typedef struct row {
    const norm_config *cfg;
    row_split split;
    bool in_phase; // rows of x, residual, y and sum
    row_place place;
    row_spans spans;
    norm_forward_values o;
    tensor rH[ROW_SPANS_MAX]; // (VEC,STEPS) of a row in registers
    norm_weights weights;     // of these columns, if they are in shared memory; else without slots
    val sum[2];               // of a pass: differences and their squares, or values
    val mean, mean_low, rstd; // mean + mean_low is the mean beyond f32's precision
    val shift;                // -mean_low * rstd
} row;

static int elements(tensor rX)
{
    return (int)static_size(rX.layout);
}

/*
 * Have rows in registers one pass less, by reading their first elements in all warps? Not where sum, which is stored at
 * once, may overwrite these. More elements, or gamma and beta in shared memory beside, spill.
 */
static bool takes_samples(const row *r)
{
    enum { ELEMENTS_MAX = 56, WARP = 32 };
    const norm_config *cfg = r->cfg;
    const bool fits = r->split.vec * r->split.steps <= ELEMENTS_MAX && !cfg->shared_weights;
    return r->cfg->centred && !cfg->tiled && !cfg->residual && fits && r->split.row_threads > WARP;
}

/* alone: where rows are out of phase, vectors are cut out of no neighbouring row's. */
static tensor load_input(const row *r, const row_span *at, val pointer, val ld, ir_cache cache, bool alone)
{
    tensor tXgX = with_cache(row_of_matrix(&at->split, &at->place, pointer, r->cfg->dtype, ld), cache); // (VEC,STEPS)
    tensor rX = fragment_like(tXgX, takes_samples(r) ? F32 : r->cfg->dtype);                            // (VEC,STEPS)
    row_split split = at->split;
    split.ragged |= r->in_phase && norm_cuts_memory(r->cfg); // vectors are those of y alone
    const bool in_phase = r->in_phase && !norm_cuts_memory(r->cfg);
    (in_phase ? row_load : alone ? row_load_anywhere : row_load_among)(&split, &at->place, tXgX, rX, 0);
    return rX;
}

/* h from x and residual, in place of x. */
static void add_residual(const row *r, tensor rX, tensor rResidual)
{
    for (int i = 0; i < elements(rX); i++)
        set(rX, i, convert(r->cfg->dtype, add(at_f32(rX, i), at_f32(rResidual, i))));
}

static void store_sum(const row *r, const row_span *at, tensor rH)
{
    tensor gSum = row_of_matrix(&at->split, &at->place, r->o.sum, r->cfg->dtype, r->o.ldy); // (VEC,STEPS)
    (r->in_phase ? row_store : row_store_anywhere)(&at->split, &at->place, rH, gSum);
}

/* h from the inputs; writes sum. */
static tensor load_inputs(const row *r, const row_span *at)
{
    if (!r->cfg->residual)
        return load_input(r, at, r->o.x, r->o.ldx, r->cfg->tiled ? IR_CACHE_EVICT_LAST : IR_CACHE_DEFAULT, false);
    tensor rH = load_input(r, at, r->o.x, r->o.ldx, IR_CACHE_DEFAULT, false);
    add_residual(r, rH, load_input(r, at, r->o.residual, r->o.ldx, IR_CACHE_DEFAULT, false));
    store_sum(r, at, rH);
    return rH;
}

/*
 * The same tile for the last pass. Loads from sum never reach into a neighbouring row, which another CTA may be
 * writing.
 *
 * NOTE: evict_last in the first pass and evict_first in this one leave L2 to results that wait to be written: 131.2 us
 * instead of 145.3 for 4096x16384 f32 on an H200 (bench/notes/norm.md).
 */
static tensor reload(const row *r, const row_span *at)
{
    const bool residual = r->cfg->residual;
    return load_input(r, at, residual ? r->o.sum : r->o.x, residual ? r->o.ldy : r->o.ldx, IR_CACHE_EVICT_FIRST,
                      residual);
}

typedef void row_pass(row *r, tensor rH, const row_span *at);

static row_pass write_result;

/* One pass over the row: over its registers, or over its tiles in memory and the ends of a ragged row. */
static void over_row(row *r, row_pass *pass)
{
    const row_spans *spans = &r->spans;
    if (!r->cfg->tiled) {
        pass(r, r->rH[0], &spans->of[0]);
        if (spans->count > 1)
            IF(row_may_have_ends(&r->split))
                pass(r, r->rH[1], &spans->of[1]);
        return;
    }
    LOOP_FROM(begin, imm(0), r->o.cols, imm((int)row_split_cols(&r->split))) {
        row_span tile = { r->split, row_from(&spans->of[0].place, begin) };
        pass(r, pass == write_result ? reload(r, &tile) : load_inputs(r, &tile), &tile);
    }
    for (int i = 1; i < spans->count; i++)
        pass(r, pass == write_result ? reload(r, &spans->of[i]) : load_inputs(r, &spans->of[i]), &spans->of[i]);
}

/* Passes */

static void add_values(row *r, tensor rH, const row_span *at)
{
    (void)at;
    for (int i = 0; i < elements(rH); i++)
        assign(r->sum[i % 2], add(r->sum[i % 2], at_f32(rH, i)));
}

/*
 * Does a branch skip vectors past the end? Else their differences are cleared: rows whose registers just suffice would
 * spill.
 */
static bool skips_vectors(const row *r)
{
    return takes_samples(r) || r->cfg->flow.residence == ROW_IN_REGISTERS;
}

static void add_squares_of(row *r, tensor rH, int begin, int count, val inside)
{
    for (int i = begin; i < begin + count; i++) {
        val x = at_f32(rH, i);
        if (r->cfg->centred) {
            x = select(inside, sub(x, r->mean), immf(0));
            assign(r->sum[0], add(r->sum[0], x));
        }
        assign(r->sum[1], fma(x, x, r->sum[1]));
    }
}

/* Elements past the end of the row were loaded as zero: they count as equal to the mean. */
static void add_squares(row *r, tensor rH, const row_span *at)
{
    const int vec = at->split.vec;
    for (int step = 0; step < at->split.steps; step++) {
        val inside = r->cfg->centred ? row_inside(&at->split, &at->place, step) : yes();
        if (is_imm(inside, 1) || !skips_vectors(r))
            add_squares_of(r, rH, step * vec, vec, inside);
        else IF(inside)
            add_squares_of(r, rH, step * vec, vec, yes());
    }
}

static bool has_beta(const row *r)
{
    return r->cfg->affine && r->cfg->centred;
}

/* Gamma and beta of some of the thread's vectors; without registers: none. */
typedef struct weights {
    tensor rGamma, rBeta; // (VEC,STEPS)
} weights;

static weights weights_of(const row *r, const row_span *at, int begin, const row_span *some)
{
    weights w = { 0 };
    if (r->weights.count) {
        w.rGamma = fragment(F32, compact(leaf(at->split.vec)));
        w.rBeta = fragment_like(w.rGamma, F32);
        norm_weights_read(&r->weights, at, begin, w.rGamma, w.rBeta);
        return w;
    }
    if (r->cfg->affine)
        w.rGamma = row_fetch_vector(&some->split, &some->place, r->o.gamma, r->cfg->dtype);
    if (has_beta(r))
        w.rBeta = row_fetch_vector(&some->split, &some->place, r->o.beta, r->cfg->dtype);
    return w;
}

static norm_weights share_weights(const row *r, int chunks)
{
    const norm_weight_sources from = { r->cfg->dtype, r->o.cols, r->o.gamma, has_beta(r) ? r->o.beta : imm(0) };
    return norm_weights_load(&r->split, &from, chunks, r->cfg->split.cluster);
}

/* The thread's vectors from number `begin` on: as many as gamma and beta have registers for. */
static void write_vectors(const row *r, tensor rH, const row_span *at, int begin, int steps)
{
    row_span some = { at->split, row_steps(&at->place, begin, steps) };
    some.split.steps = steps;
    const weights w = weights_of(r, at, begin, &some);
    tensor rY = fragment(F32, compact(shape(some.split.vec, steps))); // (VEC,STEPS)
    for (int i = 0; i < elements(rY); i++) {
        val h = at_f32(rH, begin * some.split.vec + i);
        val y = r->cfg->centred ? fma(sub(h, r->mean), r->rstd, r->shift) : mul(h, r->rstd);
        if (r->cfg->affine)
            y = has_beta(r) ? fma(y, at_f32(w.rGamma, i), at_f32(w.rBeta, i)) : mul(y, at_f32(w.rGamma, i));
        set(rY, i, y);
    }
    tensor gY = row_of_matrix(&some.split, &some.place, r->o.y, r->cfg->dtype, r->o.ldy); // (VEC,STEPS)
    row_store(&some.split, &some.place, rY, gY);
}

static void write_result(row *r, tensor rH, const row_span *at)
{
    const int at_once = r->weights.count ? 1 : at->split.ragged ? WRITE_STEPS_RAGGED : WRITE_STEPS;
    for (int begin = 0; begin < at->split.steps; begin += at_once)
        write_vectors(r, rH, at, begin, (int)min_i64(at_once, at->split.steps - begin));
}

/* Statistics */

static void clear_sums(const row *r)
{
    assign(r->sum[0], immf(0));
    assign(r->sum[1], immf(0));
}

/* mean: of the values, rounded to f32. */
static void find_mean(row *r)
{
    const reduction sum = reduce_sums(1);
    clear_sums(r);
    over_row(r, add_values);
    assign(r->sum[0], add(r->sum[0], r->sum[1]));
    row_reduce(&r->split, &sum, r->sum);
    assign(r->mean, mul(r->sum[0], r->o.reciprocal));
}

/* Adds the mean of the differences to the mean. mean_low gets the rounding error: 0 in a row of one value. */
static void correct_mean(row *r, val difference)
{
    val mean = add(r->mean, difference);
    assign(r->mean_low, add(sub(r->mean, mean), difference));
    assign(r->mean, mean);
}

/* A sum over the row divided by its length; exact where the quotient is, as for rows of one value. */
static val average(const row *r, val sum)
{
    val q = mul(sum, r->o.reciprocal), remainder = fma(neg(q), convert(F32, r->o.cols), sum);
    return fma(remainder, r->o.reciprocal, q);
}

/* rstd and, of layernorm, the corrected mean: from the sums of the row. */
static void find_deviation(row *r)
{
    val variance = mul(r->sum[1], r->o.reciprocal);
    if (r->cfg->centred) {
        val difference = average(r, r->sum[0]);
        variance = sub(variance, mul(difference, difference));
        correct_mean(r, difference);
    }
    assign(r->rstd, rsqrt(add(variance, r->o.eps)));
    assign(r->shift, neg(mul(r->mean_low, r->rstd)));
}

static void save(const row *r, val pointer, val x)
{
    tensor gStatistic =
        gmem_tensor(add(pointer, mul(convert(U64, r->place.row), imm(4))), F32, compact(leaf(1))); // (1)
    IF(ne(pointer, imm(0)))
        set(gStatistic, 0, x);
}

static void save_statistics(const row *r)
{
    IF(logical_and(eq(r->place.first, imm(0)), r->place.exists)) {
        if (r->cfg->centred)
            save(r, r->o.mean, r->mean);
        save(r, r->o.rstd, r->rstd);
    }
}

static void normalise(row *r)
{
    const reduction sums = reduce_sums(2);
    const bool tiled = r->cfg->centred && r->cfg->tiled;
    if (tiled || takes_samples(r))
        norm_find_near_mean(norm_sample(r->cfg, &r->o, r->place.row), r->mean);
    else if (r->cfg->centred)
        find_mean(r);
    if (tiled)
        cluster_sync(); // sum, which the first pass stores, may overwrite what other threads sample
    clear_sums(r);
    over_row(r, add_squares);
    row_reduce(&r->split, &sums, r->sum);
    find_deviation(r);
    save_statistics(r);
    over_row(r, write_result);
}

static void make_variables(row *r)
{
    val *const changing[] = { &r->sum[0], &r->sum[1], &r->mean, &r->mean_low, &r->rstd, &r->shift };
    for (int i = 0; i < COUNT_OF(changing); i++)
        *changing[i] = variable(F32, immf(0));
}

/*
 * Rows that flow through shared memory. Deviations are from a number near a row's first elements, so that mean and
 * variance take one pass and one reduction.
 */
typedef struct flow {
    row reduced;          // the row of the first pass: sums and mean, of the first elements, are its own
    row written;          // the row of the second pass
    norm_weights weights; // of all chunks, if they are in shared memory
    tensor rNext;         // (INPUTS) an element a lane of the row after `reduced`: being loaded
} flow;

/*
 * Loads samples of a row, if it exists. NOTE: they are converted by the next first pass. A conversion here, or a 0 for
 * rows that do not exist, waits for memory before this row's first pass (SASS).
 */
static void load_samples(const flow *f, val number)
{
    const row *r = &f->reduced;
    IF(lt(number, r->o.rows))
        norm_load_sample(r->cfg, &r->o, number, f->rNext);
}

/* h of a chunk, in place of x; a row that stays in registers has it from the first pass on. */
static tensor chunk_of(const row *r, const tensor *rInputs, bool second)
{
    if (r->cfg->residual && !(second && r->cfg->flow.residence == ROW_IN_REGISTERS))
        add_residual(r, rInputs[0], rInputs[1]);
    return rInputs[0];
}

static void add_chunk(const row_span *at, int chunk, const tensor *rInputs, void *user)
{
    flow *f = user;
    (void)chunk;
    add_squares(&f->reduced, chunk_of(&f->reduced, rInputs, false), at);
}

/* `sum` may overwrite x or residual: it is stored after all CTAs have read this row, and the samples of the next. */
static void write_chunk(const row_span *at, int chunk, const tensor *rInputs, void *user)
{
    flow *f = user;
    tensor rH = chunk_of(&f->written, rInputs, true);                            // (VEC,STEPS)
    const bool shared = f->weights.count && chunk < f->written.cfg->flow.chunks; // not for a row's ends
    f->written.weights = shared ? norm_weights_chunk(&f->weights, chunk) : (norm_weights){ 0 };
    if (f->written.cfg->residual)
        store_sum(&f->written, at, rH);
    write_result(&f->written, rH, at);
}

static void first_pass(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    row *r = &f->reduced;
    const reduction sums = reduce_sums(2);
    if (r->cfg->centred) {
        val own = variable(F32, norm_sample_value(r->cfg, f->rNext));
        load_samples(f, s->next);
        norm_find_near_mean(own, r->mean);
    }
    clear_sums(r);
    row_pipeline_first_pass(s, number, add_chunk, f);
    row_pipeline_reduce_begin(s, &sums, r->sum);
}

static void carry(void *user)
{
    flow *f = user;
    if (f->written.cfg->centred)
        assign(f->written.mean, f->reduced.mean);
}

static void second_pass(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    const reduction sums = reduce_sums(2);
    f->written.place = row_pipeline_place(s, number);
    row_pipeline_reduce_end(s, &sums, f->written.sum);
    find_deviation(&f->written);
    save_statistics(&f->written);
    row_pipeline_second_pass(s, number, write_chunk, f);
}

static void prefetch(const row *r)
{
    const norm_forward_values *o = &r->o;
    const ckl_dtype dtype = r->cfg->dtype;
    const val elements = add(mul(sub(o->rows, imm(1)), o->ldx), convert(I64, o->cols));
    if (!r->cfg->prefetch)
        return;
    IF(eq(thread(), imm(0))) {
        prefetch_share(o->x, elements, dtype);
        if (r->cfg->residual)
            prefetch_share(o->residual, elements, dtype);
        if (r->cfg->affine)
            prefetch_share(o->gamma, o->cols, dtype);
        if (has_beta(r))
            prefetch_share(o->beta, o->cols, dtype);
    }
}

static void forward_flow(const norm_config *cfg)
{
    row_pipeline_split split = row_pipeline_split_of(&cfg->split, &cfg->flow);
    row r = { .cfg = cfg, .split = split.chunk, .in_phase = true, .o = params_of(norm_forward) };
    const row_pipeline_matrices matrices = { .dtype = cfg->dtype,
                                             .rows = r.o.rows,
                                             .cols = r.o.cols,
                                             .input_count = 1 + cfg->residual,
                                             .inputs = { { r.o.x, r.o.ldx }, { r.o.residual, r.o.ldx } },
                                             .output = { r.o.y, r.o.ldy } };
    min_ctas_per_sm(cfg->ctas_per_sm);
    prefetch(&r);
    row_pipeline s = row_pipeline_begin(&split, &matrices, NORM_FLOW_VALUES, r.o.counter);
    s.long_visits = true;
    flow f = { .reduced = r, .written = r };
    if (cfg->shared_weights)
        f.weights = share_weights(&r, cfg->flow.chunks);
    make_variables(&f.written);
    make_variables(&f.reduced);
    if (cfg->centred) {
        f.rNext = norm_sample_registers(cfg);
        load_samples(&f, s.first_row);
    }
    row_pipeline_run(&s, &(row_passes){ first_pass, carry, second_pass }, &f);
    row_pipeline_end(&s);
}

static void load_row(row *r)
{
    for (int i = 0; i < r->spans.count; i++)
        r->rH[i] = load_inputs(r, &r->spans.of[i]);
}

/* The same columns in another row, which may not exist. */
static void move_to(row *r, const row_spans *first, val number)
{
    r->place = row_place_at(&r->place, number);
    for (int i = 0; i < first->count; i++) {
        row_place *p = &r->spans.of[i].place;
        *p = row_place_at(&first->of[i].place, number);
        p->limit = select(p->exists, first->of[i].place.limit, imm(0));
    }
}

/* Persistent CTAs; ragged rows of one lie alike to 16-byte boundaries. */
static void forward_persistent(row *r)
{
    const row_spans first = r->spans;
    val before = mul(convert(I64, cta_x()), imm((int)row_split_rows(&r->split))), own = sub(r->place.row, before);
    val stride = mul(convert(I64, grid_x()), imm((int)row_split_rows(&r->split)));
    r->weights = share_weights(r, 1);
    LOOP_FROM(start, before, r->o.rows, stride) {
        move_to(r, &first, add(start, own));
        load_row(r);
        normalise(r);
    }
}

void norm_forward(const void *config, int kernel)
{
    const norm_config *cfg = config, tiled = norm_tiled(cfg);
    if (cfg->flow.stages && kernel == NORM_VECTORS) {
        forward_flow(cfg);
        return;
    }
    cfg = cfg->flow.stages ? &tiled : cfg;
    row r = { .cfg = cfg, .split = cfg->split, .in_phase = kernel == NORM_VECTORS };
    r.o = params_of(norm_forward);
    if (kernel == NORM_ELEMENTS)
        r.split = row_split_anywhere(&cfg->split, cfg->dtype);
    r.place = row_here(&r.split, r.o.rows, r.o.cols);
    r.spans = row_spans_of(&r.split, &r.place, r.o.y, cfg->dtype, r.o.ldy);
    if (kernel == NORM_VECTORS)
        min_ctas_per_sm(cfg->ctas_per_sm); // rows that start anywhere take more registers
    make_variables(&r);
    prefetch(&r);
    if (cfg->shared_weights) {
        grid_wait(); // the next kernel's CTAs would crowd the SMs of the first of these to end
        forward_persistent(&r);
        return;
    }
    row_wait(&r.split);
    if (!cfg->tiled)
        load_row(&r);
    cluster_meet(cfg->split.cluster);
    normalise(&r);
}
