/*
 * norm_forward.c - the threads of a row hold it in registers; longer rows flow through shared memory, or are read tile by
 * tile twice.
 */
#include "cute/kernel.h"
#include "operators/norm/norm_config.h"

enum { WRITE_STEPS = 4 }; // vectors for which gamma and beta are loaded at once

/* The parameters, in the order of the launch. */
typedef struct operands {
    val rows, cols, ld_in, ld_out, reciprocal, eps; // reciprocal of cols
    val x, residual, gamma, beta, y, sum, mean, rstd;
    val counter; // of rows that flow
} operands;

static operands declare(void)
{
    operands o;
    o.rows = param(I64, "rows");
    o.cols = param(U32, "cols");
    o.ld_in = param(I64, "ld_in");
    o.ld_out = param(I64, "ld_out");
    o.reciprocal = param(F32, "reciprocal");
    o.eps = param(F32, "eps");
    o.x = pointer("x");
    o.residual = pointer("residual");
    o.gamma = pointer("gamma");
    o.beta = pointer("beta");
    o.y = pointer("y");
    o.sum = pointer("sum");
    o.mean = pointer("mean");
    o.rstd = pointer("rstd");
    o.counter = pointer("counter");
    return o;
}

/* One row on its way through the passes. Its values h are x, or x + residual rounded as sum keeps them. */
typedef struct row {
    const norm_config *cfg;
    row_split split;
    row_place place;
    bool centred; // layernorm; else rmsnorm, which has neither mean nor beta
    operands o;
    tensor rH;            // (VEC,STEPS), if it is kept
    val sum[2];           // of a pass: differences and their squares, or values
    val mean, rest, rstd; // the whole mean is mean + rest
    val shift;            // -rest * rstd
} row;

static val wide(tensor t, int i)
{
    return convert(F32, at(t, i));
}

static int elements(const row *r)
{
    return r->split.vec * r->split.steps;
}

static tensor load_part(const row *r, const row_place *p, val address, val ld, ir_cache cache)
{
    tensor gPart = with_cache(row_part(&r->split, p, address, r->cfg->dtype, ld), cache); // (VEC,STEPS)
    tensor rPart = fragment_like(gPart, r->cfg->dtype);                                   // (VEC,STEPS)
    row_load(&r->split, p, gPart, rPart, 0);
    return rPart;
}

static tensor load_vector(const row *r, const row_place *p, val address)
{
    tensor gPart = row_vector(&r->split, p, address, r->cfg->dtype); // (VEC,STEPS)
    tensor rPart = fragment_like(gPart, r->cfg->dtype);              // (VEC,STEPS)
    row_load(&r->split, p, gPart, rPart, 0);
    return rPart;
}

/* h from x and residual, in place of x. */
static void add_residual(const row *r, tensor rX, tensor rResidual)
{
    for (int i = 0; i < elements(r); i++)
        set(rX, i, convert(r->cfg->dtype, add(wide(rX, i), wide(rResidual, i))));
}

static void store_sum(const row *r, const row_place *p, tensor rH)
{
    row_store(&r->split, p, rH, row_part(&r->split, p, r->o.sum, r->cfg->dtype, r->o.ld_out));
}

/* h from the inputs; writes sum. */
static tensor load_inputs(const row *r, const row_place *p)
{
    if (!r->cfg->residual)
        return load_part(r, p, r->o.x, r->o.ld_in, r->cfg->tiled ? IR_CACHE_EVICT_LAST : IR_CACHE_DEFAULT);
    tensor rH = load_part(r, p, r->o.x, r->o.ld_in, IR_CACHE_DEFAULT);
    add_residual(r, rH, load_part(r, p, r->o.residual, r->o.ld_in, IR_CACHE_DEFAULT));
    store_sum(r, p, rH);
    return rH;
}

/*
 * h of a tile that load_inputs() has seen before.
 *
 * NOTE: kept by the first reading and given up by this one, x leaves L2 to the results that wait to be written: 131.2 us
 * instead of 145.3 for 4096x16384 f32 on an H200 (bench/notes/norm.md).
 */
static tensor load_again(const row *r, const row_place *p)
{
    return r->cfg->residual ? load_part(r, p, r->o.sum, r->o.ld_out, IR_CACHE_EVICT_FIRST)
                            : load_part(r, p, r->o.x, r->o.ld_in, IR_CACHE_EVICT_FIRST);
}

typedef void tile_pass(row *r, tensor rH, const row_place *p);

static tile_pass write_result;

/* One pass over the row: over its registers, or all tiles of memory. */
static void over_row(row *r, tile_pass *pass)
{
    if (!r->cfg->tiled) {
        pass(r, r->rH, &r->place);
        return;
    }
    LOOP_FROM(begin, imm(0), r->o.cols, imm((int)row_split_cols(&r->split)))
    {
        row_place p = row_from(&r->place, begin);
        pass(r, pass == write_result ? load_again(r, &p) : load_inputs(r, &p), &p);
    }
}

/* Passes */

static void add_values(row *r, tensor rH, const row_place *p)
{
    (void)p;
    for (int i = 0; i < elements(r); i++)
        assign(r->sum[i % 2], add(r->sum[i % 2], wide(rH, i)));
}

/* Elements past the end of the row were loaded as zero: they count as equal to the mean. */
static void add_squares(row *r, tensor rH, const row_place *p)
{
    for (int i = 0; i < elements(r); i++) {
        val x = wide(rH, i);
        if (r->centred) {
            x = select(row_inside(&r->split, p, i / r->split.vec), sub(x, r->mean), immf(0));
            assign(r->sum[0], add(r->sum[0], x));
        }
        assign(r->sum[1], fma(x, x, r->sum[1]));
    }
}

/* `steps` vectors of the thread, from number `begin` on: as many as gamma and beta have registers for. */
static void write_vectors(row *r, tensor rH, row_place p, int begin, int steps)
{
    const bool shifted = r->cfg->affine && r->centred;
    row part = *r;
    part.split.steps = steps;
    p = row_steps(&p, begin, steps);
    tensor rGamma = { 0 }, rBeta = { 0 }; // (VEC,STEPS)
    if (r->cfg->affine)
        rGamma = load_vector(&part, &p, r->o.gamma);
    if (shifted)
        rBeta = load_vector(&part, &p, r->o.beta);
    tensor rY = fragment(F32, compact(shape(part.split.vec, steps))); // (VEC,STEPS)
    for (int i = 0; i < elements(&part); i++) {
        val h = wide(rH, begin * part.split.vec + i);
        val y = r->centred ? fma(sub(h, r->mean), r->rstd, r->shift) : mul(h, r->rstd);
        if (r->cfg->affine)
            y = shifted ? fma(y, wide(rGamma, i), wide(rBeta, i)) : mul(y, wide(rGamma, i));
        set(rY, i, y);
    }
    tensor gY = row_part(&part.split, &p, r->o.y, r->cfg->dtype, r->o.ld_out); // (VEC,STEPS)
    row_store(&part.split, &p, rY, gY);
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

/* The mean of the differences moves the mean; rest: what rounding that leaves over, none in a row of one value. */
static void correct_mean(row *r, val difference)
{
    val mean = add(r->mean, difference);
    assign(r->rest, add(sub(r->mean, mean), difference));
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
 * From deviations of each thread from a mean of its own to those from the mean of the row: with d between the two,
 * sum(x - d) = sum(x) - n d and sum((x - d)^2) = sum(x^2) - d (sum(x) + sum(x - d)).
 */
static void agree_on_mean(row *r)
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
    val q = mul(sum, r->o.reciprocal), rest = fma(neg(q), convert(F32, r->o.cols), sum);
    return fma(rest, r->o.reciprocal, q);
}

/* sum: of the row. */
static void find_deviation(row *r)
{
    val variance = mul(r->sum[1], r->o.reciprocal);
    if (r->centred) {
        val difference = average(r, r->sum[0]);
        variance = sub(variance, mul(difference, difference));
        correct_mean(r, difference);
    }
    assign(r->rstd, rsqrt(add(variance, r->o.eps)));
    assign(r->shift, neg(mul(r->rest, r->rstd)));
}

/* One h, rounded as sum keeps it; 0 past the end of its row or the last row. */
static val sample(const row *r, val number, val col)
{
    int bytes = (int)ckl_dtype_bytes(r->cfg->dtype);
    val h = variable(F32, immf(0)), index = add(mul(number, convert(I64, r->o.ld_in)), convert(I64, col));
    val offset = mul(convert(U64, index), imm(bytes));
    IF(logical_and(lt(col, r->o.cols), lt(number, r->o.rows))) {
        assign(h, convert(F32, at(gmem_tensor(add(r->o.x, offset), r->cfg->dtype, compact(leaf(1))), 0)));
        if (r->cfg->residual) {
            val other = at(gmem_tensor(add(r->o.residual, offset), r->cfg->dtype, compact(leaf(1))), 0);
            assign(h, convert(F32, convert(r->cfg->dtype, add(h, convert(F32, other)))));
        }
    }
    return h;
}

static void save(const row *r, val address, val x)
{
    tensor gStatistic = gmem_tensor(add(address, mul(convert(U64, r->place.row), imm(4))), F32, compact(leaf(1)));
    IF(ne(address, imm(0)))
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
    const bool agree = r->centred && r->cfg->tiled;
    if (agree)
        assign(r->mean, sample(r, r->place.row, r->place.first));
    else if (r->centred)
        find_mean(r);
    clear_sums(r);
    over_row(r, add_squares);
    if (agree)
        agree_on_mean(r);
    row_reduce(&r->split, &sums, r->sum);
    find_deviation(r);
    save_statistics(r);
    over_row(r, write_result);
}

static void make_variables(row *r)
{
    val *const changing[] = { &r->sum[0], &r->sum[1], &r->mean, &r->rest, &r->rstd, &r->shift };
    for (int i = 0; i < COUNT_OF(changing); i++)
        *changing[i] = variable(F32, immf(0));
}

/*
 * Rows that flow through shared memory. Deviations are from the mean p of a row's first 32 elements, so that mean and
 * variance take one pass and one reduction: (p - mean)^2 is at most variance * cols / 32, and in general far less, so
 * little cancels.
 */
typedef struct flow {
    row r;       // that is written
    row seen;    // that is seen: sums and p, in mean, are its own
    val next;    // one element a lane of the row after it, on its way
    val samples; // reciprocal of how many there are in a row
} flow;

/* h of a piece, in place of x; a row that stays in registers has it from the first visit on. */
static tensor take_inputs(const row *r, const tensor *rInputs, bool again)
{
    if (r->cfg->residual && !(again && r->cfg->residence == ROW_IN_REGISTERS))
        add_residual(r, rInputs[0], rInputs[1]);
    return rInputs[0];
}

static void see_piece(const row_place *p, int piece, const tensor *rInputs, void *user)
{
    (void)piece;
    flow *f = user;
    add_squares(&f->seen, take_inputs(&f->seen, rInputs, false), p);
}

/* `sum` may take the place of x or the residual: it is written when everyone has seen this row and its sample. */
static void write_piece(const row_place *p, int piece, const tensor *rInputs, void *user)
{
    (void)piece;
    flow *f = user;
    tensor rH = take_inputs(&f->r, rInputs, true); // (VEC,STEPS)
    if (f->r.cfg->residual)
        store_sum(&f->r, p, rH);
    write_result(&f->r, rH, p);
}

static void see_row(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    row *r = &f->seen;
    const reduction sum = reduce_sums(1), sums = reduce_sums(2);
    if (r->centred) {
        assign(r->mean, f->next);
        /* under way while this row is seen and another written */
        assign(f->next, sample(r, s->next, lane()));
        warp_reduce(&sum, 32, &r->mean);
        assign(r->mean, mul(r->mean, f->samples));
    }
    clear_sums(r);
    row_pipeline_first_pass(s, number, see_piece, f);
    row_pipeline_reduce_begin(s, &sums, r->sum);
}

static void hand_over(void *user)
{
    flow *f = user;
    if (f->r.centred)
        assign(f->r.mean, f->seen.mean);
}

static void write_row(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    const reduction sums = reduce_sums(2);
    f->r.place = row_pipeline_place(s, number);
    row_pipeline_reduce_end(s, &sums, f->r.sum);
    find_deviation(&f->r);
    save_statistics(&f->r);
    row_pipeline_second_pass(s, number, write_piece, f);
}

static void forward_stream(const norm_config *cfg, bool centred)
{
    row_pipeline_split split = norm_stream_split(cfg);
    flow f = { .r = { .cfg = cfg, .split = split.chunk, .centred = centred, .o = declare() } };
    const operands *o = &f.r.o;
    const row_pipeline_input inputs[] = { { o->x, o->ld_in }, { o->residual, o->ld_in } };
    min_ctas_per_sm(cfg->ctas_per_sm);
    row_pipeline s = row_pipeline_begin(&split, cfg->dtype, inputs, 1 + cfg->residual, NORM_STREAM_VALUES, o->rows,
                                        o->cols, o->counter);
    f.seen = f.r;
    make_variables(&f.r);
    make_variables(&f.seen);
    f.next = centred ? sample(&f.r, s.row, lane()) : immf(0);
    f.samples = div(immf(1), convert(F32, min(o->cols, imm(32))));
    row_pipeline_run(&s, &(row_passes){ see_row, hand_over, write_row }, &f);
    row_pipeline_end(&s);
}

static void forward(const norm_config *cfg, int part, bool centred)
{
    const norm_config tiled = norm_tiled(cfg);
    if (cfg->stages && part == 0) {
        forward_stream(cfg, centred);
        return;
    }
    cfg = cfg->stages ? &tiled : cfg;
    row r = { .cfg = cfg, .split = norm_split(cfg, part == 0), .centred = centred, .o = declare() };
    r.place = row_here(&r.split, r.o.rows, r.o.cols);
    min_ctas_per_sm(cfg->ctas_per_sm);
    if (cfg->cluster > 1)
        ir_current()->target = IR_SM90A;
    make_variables(&r);
    if (!cfg->tiled)
        r.rH = load_inputs(&r, &r.place);
    if (cfg->cluster > 1)
        cluster_sync(); // all CTAs of the cluster have started: their shared memory may be written
    normalise(&r);
}

void layernorm_forward(const void *config, int part)
{
    forward(config, part, true);
}

void rmsnorm_forward(const void *config, int part)
{
    forward(config, part, false);
}
