/*
 * norm_backward.c - gradients of the norms.
 *
 * Part 0 and 1 walk over rows: each CTA (or cluster) takes every so many-th row, writes its dx and keeps the sums of
 * its columns, which it leaves in the workspace. Part 2 (norm_columns.c) adds those up, in order. A row is in registers or
 * flows through shared memory; one that bulk copies cannot read and no registers hold is read tile by tile, twice. Where
 * there are no registers for sums of columns, part 2 reads x and dy once more.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/norm/norm_backward.h"

/* A row of x and dy: n = (x - mean) * rstd, g = dy * gamma. */
typedef struct row {
    const norm_config *cfg;
    row_split split;
    row_place place;
    bool centred; // layernorm; else rmsnorm, which has neither mean nor beta
    norm_operands o;
    tensor rX, rDy, rGamma; // (VEC,STEPS) of the row, or of one tile or piece of it
    tensor rDsum;           // the same, of a piece
    tensor rDgamma, rDbeta; // (VEC,STEPS) sums over the rows of this thread
    val mean, rstd;         // of the row
    val sum[2];             // of g * n, of g; then what dx takes of x - mean, and in any case
    row_pipeline *stream;   // NULL: the row is in registers, or read tile by tile
} row;

static val wide(tensor t, int i)
{
    return convert(F32, at(t, i));
}

static int elements(const row *r)
{
    return r->split.vec * r->split.steps;
}

static tensor load_part(const row *r, const row_place *p, val address)
{
    tensor gPart = row_part(&r->split, p, address, r->cfg->dtype, r->o.ld_in); // (VEC,STEPS)
    tensor rPart = fragment_like(gPart, r->cfg->dtype);                        // (VEC,STEPS)
    row_load(&r->split, p, gPart, rPart, 0);
    return rPart;
}

static tensor load_gamma(const row *r, const row_place *p)
{
    tensor gPart = row_vector(&r->split, p, r->o.gamma, r->cfg->dtype); // (VEC,STEPS)
    tensor rPart = fragment_like(gPart, r->cfg->dtype);                 // (VEC,STEPS)
    row_load(&r->split, p, gPart, rPart, 0);
    return rPart;
}

static val deviation(const row *r, int i)
{
    val x = wide(r->rX, i);
    return r->centred ? sub(x, r->mean) : x;
}

static val normalised(const row *r, int i)
{
    return mul(deviation(r, i), r->rstd);
}

static val scaled(const row *r, int i)
{
    return r->cfg->affine ? mul(wide(r->rDy, i), wide(r->rGamma, i)) : wide(r->rDy, i);
}

/* Past the end of a row dy is zero, which adds nothing. */
static void add_products(row *r)
{
    for (int i = 0; i < elements(r); i++) {
        val n = normalised(r, i), g = scaled(r, i);
        assign(r->sum[0], fma(g, n, r->sum[0]));
        if (r->centred)
            assign(r->sum[1], add(r->sum[1], g));
    }
}

static void add_columns(row *r)
{
    for (int i = 0; i < elements(r); i++) {
        val dy = wide(r->rDy, i);
        set(r->rDgamma, i, fma(dy, normalised(r, i), at(r->rDgamma, i)));
        if (r->centred)
            set(r->rDbeta, i, add(at(r->rDbeta, i), dy));
    }
}

/* Of sum[0] and, of layernorm, sum[1]. */
static reduction sums_of(const row *r)
{
    return reduce_sums(1 + r->centred);
}

static void reduce_row(row *r)
{
    const reduction sums = sums_of(r);
    row_reduce(&r->split, &sums, r->sum);
}

/* dx = rstd (g - n mean(g n) - mean(g)), which is g rstd + (x - mean) sum[0] + sum[1] with what this leaves in sum. */
static void find_factors(row *r)
{
    val factor = neg(mul(r->rstd, r->o.reciprocal));
    for (int i = 0; i < 1 + r->centred; i++)
        assign(r->sum[i], mul(r->sum[i], factor));
    assign(r->sum[0], mul(r->sum[0], r->rstd));
}

static void write_dx(row *r, const row_place *p)
{
    tensor rDx = fragment_like(r->rX, F32), rDsum = r->rDsum; // (VEC,STEPS)
    if (r->cfg->residual && !r->stream)
        rDsum = load_part(r, p, r->o.dsum);
    for (int i = 0; i < elements(r); i++) {
        val more = r->cfg->residual ? wide(rDsum, i) : immf(0);
        if (r->centred)
            more = r->cfg->residual ? add(more, r->sum[1]) : r->sum[1];
        set(rDx, i, fma(scaled(r, i), r->rstd, fma(deviation(r, i), r->sum[0], more)));
    }
    tensor gDx = row_part(&r->split, p, r->o.dx, r->cfg->dtype, r->o.ld_out); // (VEC,STEPS)
    row_store(&r->split, p, rDx, gDx);
}

/* One row in registers */

static void load_row(row *r, const row_place *p)
{
    r->rX = load_part(r, p, r->o.x);
    r->rDy = load_part(r, p, r->o.dy);
}

/* Of row `number`, if there is one. */
static void load_statistics(const row *r, val number, val mean, val rstd)
{
    IF(lt(number, r->o.rows)) {
        if (r->centred)
            assign(mean, norm_statistic(r->o.mean, number));
        assign(rstd, norm_statistic(r->o.rstd, number));
    }
}

static void clear_sums(const row *r)
{
    assign(r->sum[0], immf(0));
    assign(r->sum[1], immf(0));
}

static void backward_of_row(row *r)
{
    load_statistics(r, r->place.row, r->mean, r->rstd);
    clear_sums(r);
    add_products(r);
    if (r->cfg->affine)
        add_columns(r);
    reduce_row(r);
    find_factors(r);
    write_dx(r, &r->place);
}

/* One row tile by tile */

static void load_tile(row *r, const row_place *p)
{
    load_row(r, p);
    if (r->cfg->affine)
        r->rGamma = load_gamma(r, p);
}

static void backward_of_tiles(row *r)
{
    int tile_cols = (int)row_split_cols(&r->split);
    load_statistics(r, r->place.row, r->mean, r->rstd);
    clear_sums(r);
    LOOP_FROM(begin, imm(0), r->o.cols, imm(tile_cols))
    {
        row_place p = row_from(&r->place, begin);
        load_tile(r, &p);
        add_products(r);
    }
    reduce_row(r);
    find_factors(r);
    LOOP_FROM(again, imm(0), r->o.cols, imm(tile_cols))
    {
        row_place p = row_from(&r->place, again);
        load_tile(r, &p);
        write_dx(r, &p);
    }
}

/* All rows of this CTA or cluster */

static void walk(row *r, val stride)
{
    if (r->cfg->tiled || !r->cfg->early) {
        LOOP_FROM(number, r->place.row, r->o.rows, stride)
        {
            r->place.row = number;
            if (r->cfg->tiled) {
                backward_of_tiles(r);
            } else {
                load_row(r, &r->place);
                backward_of_row(r);
            }
        }
        return;
    }
    row_place next =
        row_place_at(&r->place, r->place.row); // its loads are under way while a row is reduced and written
    load_row(r, &next);
    tensor rX = r->rX, rDy = r->rDy; // (VEC,STEPS)
    LOOP_FROM(number, r->place.row, r->o.rows, stride)
    {
        r->place.row = number;
        next = row_place_at(&next, add(number, stride));
        load_row(r, &next);
        tensor rNextX = r->rX, rNextDy = r->rDy; // (VEC,STEPS)
        r->rX = rX;
        r->rDy = rDy;
        backward_of_row(r);
        copy(rNextX, rX, 0);
        copy(rNextDy, rDy, 0);
    }
}

/* Leaves this thread's sums of columns in the partial sums of a group, 16 bytes at a time. */
static void store_sums(const row *r, const row_place *p, val group)
{
    const tensor rSums[] = { r->rDgamma, r->rDbeta };
    const int kinds = r->centred ? 2 : 1;
    row_place here = *p;
    for (int kind = 0; kind < kinds; kind++) {
        here.row = add(mul(group, imm(kinds)), imm(kind));
        tensor gSum = row_part(&r->split, &here, r->o.partial, F32, convert(I64, r->o.cols)); // (VEC,STEPS)
        for (int step = 0; step < r->split.steps; step++)
            IF(row_inside(&r->split, &here, step))
                copy(slice(rSums[kind], _, step), slice(gSum, _, step), 4 * r->split.vec);
    }
}

static void make_variables(row *r)
{
    val *const changing[] = { &r->sum[0], &r->sum[1], &r->mean, &r->rstd };
    for (int i = 0; i < COUNT_OF(changing); i++)
        *changing[i] = variable(F32, immf(0));
}

static tensor zeros(const row *r)
{
    tensor rSum = fragment(F32, compact(shape(r->split.vec, r->split.steps))); // (VEC,STEPS)
    fill(rSum, immf(0));
    return rSum;
}

static void rows_of_gradients(const norm_config *cfg, bool vectors, bool centred)
{
    row r = { .cfg = cfg, .split = norm_split(cfg, vectors), .centred = centred, .o = norm_declare() };
    r.place = row_here(&r.split, r.o.rows, r.o.cols);
    min_ctas_per_sm(cfg->ctas_per_sm);
    if (cfg->cluster > 1)
        ir_current()->target = IR_SM90A;
    make_variables(&r);
    const bool sums = cfg->affine && !cfg->tiled;
    if (sums) {
        r.rGamma = load_gamma(&r, &r.place);
        r.rDgamma = zeros(&r);
        r.rDbeta = zeros(&r);
    }
    if (cfg->cluster > 1)
        cluster_sync(); // all CTAs of the cluster have started: their shared memory may be written
    val group = r.place.row;
    walk(&r, convert(I64, div(grid_x(), imm(cfg->cluster))));
    if (sums)
        store_sums(&r, &r.place, group);
}

/* Rows that flow through shared memory: what a thread keeps for each of its pieces. */
typedef struct flow {
    row r;                    // that is written
    row seen;                 // that is seen: it has sums, mean and rstd of its own
    val next_mean, next_rstd; // of the row after it, on their way
    tensor rGamma[ROW_PIPELINE_CHUNKS_MAX], rDgamma[ROW_PIPELINE_CHUNKS_MAX],
        rDbeta[ROW_PIPELINE_CHUNKS_MAX]; // (VEC,STEPS) each
    int64_t shared; // or where the sums of dgamma are: (4,THREADS,VECTORS,PIECES), vectors of threads side by side
} flow;

enum { SUM_VEC = 4, SUM_BYTES = 4 * SUM_VEC };

/* Says what the vectors are; each has an address of its own. */
static tensor shared_vectors(void)
{
    return smem_view(imm(0), F32, compact(leaf(SUM_VEC)));
}

static vector_at shared_sum(const flow *f, int piece, int number)
{
    int64_t vectors = elements(&f->r) / SUM_VEC, offset = (piece * vectors + number) * f->r.cfg->threads * SUM_BYTES;
    return (vector_at){ add(smem_address(f->shared), mul(thread(), imm(SUM_BYTES))), offset, yes() };
}

/* The sums of a piece, from where they are kept. */
static void take_sums(const flow *f, int piece, row *r)
{
    r->rDgamma = f->rDgamma[piece];
    r->rDbeta = f->rDbeta[piece];
    if (r->cfg->sums != NORM_SUMS_SHARED)
        return;
    vector_at at[elements(r) / SUM_VEC];
    for (int i = 0; i < COUNT_OF(at); i++)
        at[i] = shared_sum(f, piece, i);
    r->rDgamma = zeros(r);
    vectors_load(at, COUNT_OF(at), SUM_VEC, shared_vectors(), r->rDgamma.regs, 0);
}

static void leave_sums(flow *f, int piece, const row *r)
{
    f->rDgamma[piece] = r->rDgamma;
    f->rDbeta[piece] = r->rDbeta;
    for (int i = 0; i < elements(r) / SUM_VEC && r->cfg->sums == NORM_SUMS_SHARED; i++) {
        vector_at at = shared_sum(f, piece, i);
        vector_store(&at, SUM_VEC, r->rDgamma.regs + i * SUM_VEC, shared_vectors());
    }
}

static row row_at(const flow *f, const row *of, const row_place *p, int piece, const tensor *rInputs)
{
    row r = *of;
    r.rX = rInputs[0];
    r.rDy = rInputs[1];
    r.rDsum = r.cfg->residual ? rInputs[2] : r.rDsum;
    if (r.cfg->affine)
        r.rGamma = r.cfg->early ? f->rGamma[piece] : load_gamma(&r, p);
    return r;
}

static void see_piece(const row_place *p, int piece, const tensor *rInputs, void *user)
{
    flow *f = user;
    row r = row_at(f, &f->seen, p, piece, rInputs);
    add_products(&r);
    if (r.cfg->affine && r.cfg->chunks) {
        take_sums(f, piece, &r);
        add_columns(&r);
        leave_sums(f, piece, &r);
    }
}

static void write_piece(const row_place *p, int piece, const tensor *rInputs, void *user)
{
    flow *f = user;
    row r = row_at(f, &f->r, p, piece, rInputs);
    write_dx(&r, p);
}

static void see_row(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    row *r = &f->seen;
    const reduction sums = sums_of(r);
    assign(r->mean, f->next_mean);
    assign(r->rstd, f->next_rstd);
    load_statistics(r, s->next, f->next_mean, f->next_rstd);
    clear_sums(r);
    row_pipeline_first_pass(s, number, see_piece, f);
    row_pipeline_reduce_begin(s, &sums, r->sum);
}

static void hand_over(void *user)
{
    flow *f = user;
    assign(f->r.mean, f->seen.mean);
    assign(f->r.rstd, f->seen.rstd);
}

static void write_row(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    const reduction sums = sums_of(&f->r);
    row_pipeline_reduce_end(s, &sums, f->r.sum);
    find_factors(&f->r);
    row_pipeline_second_pass(s, number, write_piece, f);
}

static void flow_begin(flow *f)
{
    if (f->r.cfg->sums == NORM_SUMS_SHARED)
        f->shared = smem_alloc("sums", norm_sums_bytes(f->r.cfg), SUM_BYTES);
    for (int piece = 0; piece < f->r.cfg->chunks && f->r.cfg->affine; piece++) {
        row_place p = row_pipeline_columns(f->r.stream, piece);
        row r = f->r;
        if (r.cfg->early)
            f->rGamma[piece] = load_gamma(&r, &p);
        r.rDgamma = zeros(&r);
        r.rDbeta = zeros(&r);
        leave_sums(f, piece, &r);
    }
}

static void flow_end(const flow *f)
{
    for (int piece = 0; piece < f->r.cfg->chunks && f->r.cfg->affine; piece++) {
        row_place p = row_pipeline_columns(f->r.stream, piece);
        row r = f->r;
        take_sums(f, piece, &r);
        store_sums(&r, &p, r.stream->first_row);
    }
}

static void stream_of_gradients(const norm_config *cfg, bool centred)
{
    row_pipeline_split split = norm_stream_split(cfg);
    flow f = { .r = { .cfg = cfg, .split = split.chunk, .centred = centred, .o = norm_declare() } };
    row *r = &f.r;
    const row_pipeline_input inputs[] = { { r->o.x, r->o.ld_in }, { r->o.dy, r->o.ld_in }, { r->o.dsum, r->o.ld_in } };
    min_ctas_per_sm(cfg->ctas_per_sm);
    row_pipeline s = row_pipeline_begin(&split, cfg->dtype, inputs, 2 + cfg->residual, NORM_STREAM_VALUES, r->o.rows,
                                        r->o.cols, imm(0));
    r->stream = &s;
    f.seen = f.r;
    make_variables(&f.r);
    make_variables(&f.seen);
    flow_begin(&f);
    f.next_mean = variable(F32, immf(0));
    f.next_rstd = variable(F32, immf(0));
    load_statistics(r, s.row, f.next_mean, f.next_rstd);
    row_pipeline_run(&s, &(row_passes){ see_row, hand_over, write_row }, &f);
    flow_end(&f);
    row_pipeline_end(&s);
}

static void backward(const norm_config *cfg, int part, bool centred)
{
    const norm_config tiled = norm_tiled(cfg);
    if (part == 2)
        norm_columns(cfg, centred);
    else if (part == 0 && cfg->stages)
        stream_of_gradients(cfg, centred);
    else
        rows_of_gradients(cfg->stages ? &tiled : cfg, part == 0, centred);
}

void layernorm_backward(const void *config, int part)
{
    backward(config, part, true);
}

void rmsnorm_backward(const void *config, int part)
{
    backward(config, part, false);
}
