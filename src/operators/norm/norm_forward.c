/*
 * norm_forward.c - the threads of a row hold it in registers; longer rows flow through shared memory, or are read tile by
 * tile in each pass.
 */
#include "cute/kernel.h"
#include "operators/norm/norm_config.h"

enum { WRITE_STEPS = 4 }; // vectors for which gamma and beta are loaded at once

/* One row on its way through the passes. Its values h are x, or x + residual rounded as sum keeps them. */
typedef struct row {
    const norm_config *cfg;
    row_split split;
    row_place place;
    bool centred; // layernorm; else rmsnorm, which has neither mean nor beta
    norm_forward_values o;
    tensor rH;                // (VEC,STEPS) of a row in registers
    val sum[2];               // of a pass: differences and their squares, or values
    val mean, mean_low, rstd; // mean + mean_low is the mean to more digits than f32 has
    val shift;                // -mean_low * rstd
} row;

static int elements(const row *r)
{
    return r->split.vec * r->split.steps;
}

static tensor load_input(const row *r, const row_place *p, val pointer, val ld, ir_cache cache)
{
    return row_fetch(&r->split, p, with_cache(row_part(&r->split, p, pointer, r->cfg->dtype, ld), cache));
}

static tensor load_weights(const row *r, const row_place *p, val pointer)
{
    return row_fetch(&r->split, p, row_vector(&r->split, p, pointer, r->cfg->dtype));
}

/* h from x and residual, in place of x. */
static void add_residual(const row *r, tensor rX, tensor rResidual)
{
    for (int i = 0; i < elements(r); i++)
        set(rX, i, convert(r->cfg->dtype, add(at_f32(rX, i), at_f32(rResidual, i))));
}

static void store_sum(const row *r, const row_place *p, tensor rH)
{
    row_store(&r->split, p, rH, row_part(&r->split, p, r->o.sum, r->cfg->dtype, r->o.ldy));
}

/* h from the inputs; writes sum. */
static tensor load_inputs(const row *r, const row_place *p)
{
    if (!r->cfg->residual)
        return load_input(r, p, r->o.x, r->o.ldx, r->cfg->tiled ? IR_CACHE_EVICT_LAST : IR_CACHE_DEFAULT);
    tensor rH = load_input(r, p, r->o.x, r->o.ldx, IR_CACHE_DEFAULT);
    add_residual(r, rH, load_input(r, p, r->o.residual, r->o.ldx, IR_CACHE_DEFAULT));
    store_sum(r, p, rH);
    return rH;
}

/*
 * The same tile for the last pass.
 *
 * NOTE: evict_last in the first pass and evict_first in this one leave L2 to the results that wait to be written: 131.2 us
 * instead of 145.3 for 4096x16384 f32 on an H200 (bench/notes/norm.md).
 */
static tensor reload(const row *r, const row_place *p)
{
    return r->cfg->residual ? load_input(r, p, r->o.sum, r->o.ldy, IR_CACHE_EVICT_FIRST)
                            : load_input(r, p, r->o.x, r->o.ldx, IR_CACHE_EVICT_FIRST);
}

typedef void row_pass(row *r, tensor rH, const row_place *p);

static row_pass write_result;

/* One pass over the row: over its registers, or over its tiles in memory. */
static void over_row(row *r, row_pass *pass)
{
    if (!r->cfg->tiled) {
        pass(r, r->rH, &r->place);
        return;
    }
    LOOP_FROM(begin, imm(0), r->o.cols, imm((int)row_split_cols(&r->split))) {
        row_place p = row_from(&r->place, begin);
        pass(r, pass == write_result ? reload(r, &p) : load_inputs(r, &p), &p);
    }
}

/* Passes */

static void add_values(row *r, tensor rH, const row_place *p)
{
    (void)p;
    for (int i = 0; i < elements(r); i++)
        assign(r->sum[i % 2], add(r->sum[i % 2], at_f32(rH, i)));
}

/* Elements past the end of the row were loaded as zero: they count as equal to the mean. */
static void add_squares(row *r, tensor rH, const row_place *p)
{
    for (int i = 0; i < elements(r); i++) {
        val x = at_f32(rH, i);
        if (r->centred) {
            x = select(row_inside(&r->split, p, i / r->split.vec), sub(x, r->mean), immf(0));
            assign(r->sum[0], add(r->sum[0], x));
        }
        assign(r->sum[1], fma(x, x, r->sum[1]));
    }
}

/* The thread's vectors from number `begin` on: as many as gamma and beta have registers for. */
static void write_vectors(row *r, tensor rH, row_place p, int begin, int steps)
{
    const bool shifted = r->cfg->affine && r->centred;
    row some = *r;
    some.split.steps = steps;
    p = row_steps(&p, begin, steps);
    tensor rGamma = { 0 }, rBeta = { 0 }; // (VEC,STEPS)
    if (r->cfg->affine)
        rGamma = load_weights(&some, &p, r->o.gamma);
    if (shifted)
        rBeta = load_weights(&some, &p, r->o.beta);
    tensor rY = fragment(F32, compact(shape(some.split.vec, steps))); // (VEC,STEPS)
    for (int i = 0; i < elements(&some); i++) {
        val h = at_f32(rH, begin * some.split.vec + i);
        val y = r->centred ? fma(sub(h, r->mean), r->rstd, r->shift) : mul(h, r->rstd);
        if (r->cfg->affine)
            y = shifted ? fma(y, at_f32(rGamma, i), at_f32(rBeta, i)) : mul(y, at_f32(rGamma, i));
        set(rY, i, y);
    }
    tensor gY = row_part(&some.split, &p, r->o.y, r->cfg->dtype, r->o.ldy); // (VEC,STEPS)
    row_store(&some.split, &p, rY, gY);
}

static void write_result(row *r, tensor rH, const row_place *p)
{
    for (int begin = 0; begin < r->split.steps; begin += WRITE_STEPS)
        write_vectors(r, rH, *p, begin, (int)min_i64(WRITE_STEPS, r->split.steps - begin));
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

/* How many elements of the row are this thread's. */
static val own_elements(const row *r)
{
    val stride = imm((int)(row_split_cols(&r->split) / r->split.steps)), first = r->place.first, limit = r->place.limit;
    val vectors = add(div(sub(sub(limit, first), imm(1)), stride), imm(1));
    return convert(F32, mul(select(lt(first, limit), vectors, imm(0)), imm(r->split.vec)));
}

/*
 * Each thread has deviations from a value of its own, and gets those from the mean of the row. With d between the two,
 * sum(x - d) = sum(x) - n d and sum((x - d)^2) = sum(x^2) - d (sum(x) + sum(x - d)).
 */
static void take_common_mean(row *r)
{
    const reduction sum = reduce_sums(1);
    val count = own_elements(r), total = variable(F32, fma(count, r->mean, r->sum[0]));
    row_reduce(&r->split, &sum, &total);
    val mean = mul(total, r->o.reciprocal), d = sub(mean, r->mean), moved = sub(r->sum[0], mul(count, d));
    assign(r->sum[1], sub(r->sum[1], mul(d, add(r->sum[0], moved))));
    assign(r->sum[0], moved);
    assign(r->mean, mean);
}

/* A sum over the row divided by its length: exact where the quotient is, as for rows of one value. */
static val average(const row *r, val sum)
{
    val q = mul(sum, r->o.reciprocal), remainder = fma(neg(q), convert(F32, r->o.cols), sum);
    return fma(remainder, r->o.reciprocal, q);
}

/* rstd and, of layernorm, the corrected mean: from the sums of the row. */
static void find_deviation(row *r)
{
    val variance = mul(r->sum[1], r->o.reciprocal);
    if (r->centred) {
        val difference = average(r, r->sum[0]);
        variance = sub(variance, mul(difference, difference));
        correct_mean(r, difference);
    }
    assign(r->rstd, rsqrt(add(variance, r->o.eps)));
    assign(r->shift, neg(mul(r->mean_low, r->rstd)));
}

/*
 * One h, rounded as sum keeps it; 0 past the end of its row or the last row. Addresses of single elements are computed by hand,
 * here and in save(): as elements of tensors they took 16 instructions more, 3 % of a kernel of short rows.
 */
static val sample(const row *r, val number, val col)
{
    val h = variable(F32, immf(0)), index = add(mul(number, convert(I64, r->o.ldx)), convert(I64, col));
    val offset = mul(convert(U64, index), imm((int)ckl_dtype_bytes(r->cfg->dtype))); // shared by both tensors
    IF(logical_and(lt(col, r->o.cols), lt(number, r->o.rows))) {
        assign(h, at_f32(gmem_tensor(add(r->o.x, offset), r->cfg->dtype, compact(leaf(1))), 0));
        if (r->cfg->residual) {
            val other = at(gmem_tensor(add(r->o.residual, offset), r->cfg->dtype, compact(leaf(1))), 0);
            assign(h, convert(F32, convert(r->cfg->dtype, add(h, convert(F32, other)))));
        }
    }
    return h;
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
        if (r->centred)
            save(r, r->o.mean, r->mean);
        save(r, r->o.rstd, r->rstd);
    }
}

static void normalise(row *r)
{
    const reduction sums = reduce_sums(2);
    const bool own_mean = r->centred && r->cfg->tiled; // a thread's first element: one pass less
    if (own_mean)
        assign(r->mean, sample(r, r->place.row, r->place.first));
    else if (r->centred)
        find_mean(r);
    clear_sums(r);
    over_row(r, add_squares);
    if (own_mean)
        take_common_mean(r);
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
 * Rows that flow through shared memory. Deviations are from the mean p of a row's first 32 elements, so that mean and
 * variance take one pass and one reduction: (p - mean)^2 is at most variance * cols / 32, and in general far less, so
 * little cancels.
 */
typedef struct flow {
    row reduced; // the row of the first pass: sums and p, in mean, are its own
    row written; // the row of the second pass
    val next;    // one element a lane of the row after `reduced`: the load is under way
    val samples; // reciprocal of how many there are in a row
} flow;

/* h of a chunk, in place of x; a row that stays in registers has it from the first pass on. */
static tensor chunk_of(const row *r, const tensor *rInputs, bool second)
{
    if (r->cfg->residual && !(second && r->cfg->flow.residence == ROW_IN_REGISTERS))
        add_residual(r, rInputs[0], rInputs[1]);
    return rInputs[0];
}

static void add_chunk(const row_span *span, int chunk, const tensor *rInputs, void *user)
{
    flow *f = user;
    (void)chunk;
    add_squares(&f->reduced, chunk_of(&f->reduced, rInputs, false), &span->place);
}

/* `sum` may be in place of x or residual: it is written when all CTAs have read this row, and the samples of the next. */
static void write_chunk(const row_span *span, int chunk, const tensor *rInputs, void *user)
{
    flow *f = user;
    tensor rH = chunk_of(&f->written, rInputs, true); // (VEC,STEPS)
    (void)chunk;
    if (f->written.cfg->residual)
        store_sum(&f->written, &span->place, rH);
    write_result(&f->written, rH, &span->place);
}

static void first_pass(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    row *r = &f->reduced;
    const reduction sum = reduce_sums(1), sums = reduce_sums(2);
    if (r->centred) {
        assign(r->mean, f->next);
        assign(f->next, sample(r, s->next, lane()));
        warp_reduce(&sum, 32, &r->mean);
        assign(r->mean, mul(r->mean, f->samples));
    }
    clear_sums(r);
    row_pipeline_first_pass(s, number, add_chunk, f);
    row_pipeline_reduce_begin(s, &sums, r->sum);
}

static void carry(void *user)
{
    flow *f = user;
    if (f->written.centred)
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

static void forward_flow(const norm_config *cfg, bool centred)
{
    row_pipeline_split split = row_pipeline_split_of(&cfg->split, &cfg->flow);
    row r = { .cfg = cfg, .split = split.chunk, .centred = centred, .o = params_of(norm_forward) };
    const row_pipeline_input inputs[] = { { r.o.x, r.o.ldx }, { r.o.residual, r.o.ldx } };
    min_ctas_per_sm(cfg->ctas_per_sm);
    row_pipeline s = row_pipeline_begin(&split, cfg->dtype, inputs, 1 + cfg->residual, NORM_FLOW_VALUES, r.o.rows,
                                        r.o.cols, r.o.counter);
    flow f = { .reduced = r, .written = r };
    make_variables(&f.written);
    make_variables(&f.reduced);
    f.next = centred ? sample(&r, s.row, lane()) : immf(0);
    f.samples = div(immf(1), convert(F32, min(r.o.cols, imm(32))));
    row_pipeline_run(&s, &(row_passes){ first_pass, carry, second_pass }, &f);
    row_pipeline_end(&s);
}

static void forward(const norm_config *cfg, int kernel, bool centred)
{
    const norm_config tiled = norm_tiled(cfg);
    if (cfg->flow.stages && kernel == NORM_VECTORS) {
        forward_flow(cfg, centred);
        return;
    }
    cfg = cfg->flow.stages ? &tiled : cfg;
    row r = {
        .cfg = cfg, .split = norm_split(cfg, kernel == NORM_VECTORS), .centred = centred, .o = params_of(norm_forward)
    };
    r.place = row_here(&r.split, r.o.rows, r.o.cols);
    min_ctas_per_sm(cfg->ctas_per_sm);
    make_variables(&r);
    if (!cfg->tiled)
        r.rH = load_inputs(&r, &r.place);
    if (cfg->split.cluster > 1)
        cluster_sync(); // all CTAs of the cluster have started: their shared memory may be written
    normalise(&r);
}

void layernorm_forward(const void *config, int kernel)
{
    forward(config, kernel, true);
}

void rmsnorm_forward(const void *config, int kernel)
{
    forward(config, kernel, false);
}
