/*
 * norm_backward.c - gradients of the norms.
 *
 * Kernels 0 and 1 are persistent: each CTA (or cluster) takes rows at equal distances, writes their dx, keeps the sums
 * of their columns, and stores those in the workspace. Kernel 2 adds them in order; of one CTA alone they are the
 * gradients, and there is no kernel 2. A row is in registers, a short one in those of some lanes or warps of a CTA, or
 * flows through shared memory. One that registers do not hold and bulk copies cannot read is read tile by tile in each
 * pass. Where registers do not hold sums of columns, kernel 2 reads x and dy once more.
 *
 * Vectors of ragged rows (row.h) are those of dx. A CTA takes rows together that lie alike to 16-byte boundaries: a
 * thread has the same columns in each, so it can keep their sums.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/norm/norm_config.h"
#include "skeletons/prefetch.h"

/* A span of a row of x and dy: n = (x - mean) * rstd, g = dy * gamma. The variables are the same for all spans. */
typedef struct row {
    const norm_config *cfg;
    row_split split;
    row_place place;
    norm_backward_values o;
    tensor rX, rDy, rGamma; // (VEC,STEPS) of the row, or of one tile or chunk of it
    tensor rDsum;           // the same, of a chunk
    tensor rDgamma, rDbeta; // (VEC,STEPS) sums over the rows of this thread
    val mean, rstd;         // of the row
    val sum[2];             // of g * n, of g; then the factors of dx: find_factors()
    row_pipeline *pipeline; // NULL: the row is in registers, or read tile by tile
    int64_t exchange;       // of sums: norm_exchange_alloc()
} row;

static int elements(const row *r)
{
    return r->split.vec * r->split.steps;
}

static tensor load_input(const row *r, const row_place *p, val pointer)
{
    return row_fetch(&r->split, p, row_of_matrix(&r->split, p, pointer, r->cfg->dtype, r->o.ldx), 0);
}

static tensor load_gamma(const row *r, const row_place *p)
{
    return row_fetch_vector(&r->split, p, r->o.gamma, r->cfg->dtype);
}

static val deviation(const row *r, int i)
{
    val x = at_f32(r->rX, i);
    return r->cfg->centred ? sub(x, r->mean) : x;
}

static val normalised(const row *r, int i)
{
    return mul(deviation(r, i), r->rstd);
}

static val scaled(const row *r, int i)
{
    return r->cfg->affine ? mul(at_f32(r->rDy, i), at_f32(r->rGamma, i)) : at_f32(r->rDy, i);
}

/* Past the end of a row dy is zero, which adds nothing. */
static void add_products(row *r)
{
    for (int i = 0; i < elements(r); i++) {
        val n = normalised(r, i), g = scaled(r, i);
        assign(r->sum[0], fma(g, n, r->sum[0]));
        if (r->cfg->centred)
            assign(r->sum[1], add(r->sum[1], g));
    }
}

static void add_columns(row *r)
{
    for (int i = 0; i < elements(r); i++) {
        val dy = at_f32(r->rDy, i);
        set(r->rDgamma, i, fma(dy, normalised(r, i), at(r->rDgamma, i)));
        if (r->cfg->centred)
            set(r->rDbeta, i, add(at(r->rDbeta, i), dy));
    }
}

/* The reduction of sum[0] and, of layernorm, sum[1]. */
static reduction sums_of(const row *r)
{
    return reduce_sums(1 + r->cfg->centred);
}

static void reduce_row(row *r)
{
    const reduction sums = sums_of(r);
    row_reduce(&r->split, &sums, r->sum);
}

/* dx = rstd (g - n mean(g n) - mean(g)) becomes g rstd + (x - mean) sum[0] + sum[1]. */
static void find_factors(row *r)
{
    val factor = neg(mul(r->rstd, r->o.reciprocal));
    for (int i = 0; i < 1 + r->cfg->centred; i++)
        assign(r->sum[i], mul(r->sum[i], factor));
    assign(r->sum[0], mul(r->sum[0], r->rstd));
}

static void write_dx(row *r, const row_place *p)
{
    tensor rDx = fragment_like(r->rX, F32), rDsum = r->rDsum; // (VEC,STEPS)
    if (r->cfg->residual && !r->pipeline)
        rDsum = load_input(r, p, r->o.dsum);
    for (int i = 0; i < elements(r); i++) {
        val constant = r->cfg->residual ? at_f32(rDsum, i) : immf(0);
        if (r->cfg->centred)
            constant = r->cfg->residual ? add(constant, r->sum[1]) : r->sum[1];
        set(rDx, i, fma(scaled(r, i), r->rstd, fma(deviation(r, i), r->sum[0], constant)));
    }
    tensor gDx = row_of_matrix(&r->split, p, r->o.dx, r->cfg->dtype, r->o.ldy); // (VEC,STEPS)
    row_store(&r->split, p, rDx, gDx);
}

/* One row in registers */

static void load_row(row *r, const row_place *p)
{
    r->rX = load_input(r, p, r->o.x);
    r->rDy = load_input(r, p, r->o.dy);
}

/* Loads the statistics of row `number`, if it exists. */
static void load_statistics(const row *r, val number, val mean, val rstd)
{
    IF(lt(number, r->o.rows)) {
        if (r->cfg->centred)
            assign(mean, at(gmem_vector(r->o.mean, F32, r->o.rows), number));
        assign(rstd, at(gmem_vector(r->o.rstd, F32, r->o.rows), number));
    }
}

static void clear_sums(const row *r)
{
    assign(r->sum[0], immf(0));
    assign(r->sum[1], immf(0));
}

static void backward_of_row(row *r)
{
    load_row(r, &r->place);
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
    clear_sums(r);
    LOOP_FROM(begin, imm(0), r->o.cols, imm(tile_cols)) {
        row_place p = row_from(&r->place, begin);
        load_tile(r, &p);
        add_products(r);
    }
    reduce_row(r);
    find_factors(r);
    LOOP_FROM(again, imm(0), r->o.cols, imm(tile_cols)) {
        row_place p = row_from(&r->place, again);
        load_tile(r, &p);
        write_dx(r, &p);
    }
}

/* All rows of this CTA or cluster */

/*
 * A CTA takes several rows at once where each has some of its threads: those from `first` on, then those `stride`
 * further.
 */
typedef struct turns {
    val first, stride, offset; // i64; offset: of this thread's row
} turns;

static bool takes_several(const row_split *s)
{
    return row_split_rows(s) > 1;
}

static turns turns_of(const row *r)
{
    const int rows = (int)row_split_rows(&r->split);
    val stride = mul(convert(I64, div(grid_x(), imm(r->split.cluster))), imm(rows));
    if (!takes_several(&r->split))
        return (turns){ r->place.row, stride, imm(0) };
    val first = mul(convert(I64, cta_x()), imm(rows));
    return (turns){ first, stride, sub(r->place.row, first) };
}

/* Goes to this thread's row of the turn from row `begin` on; of several it may not exist. */
static void take_row(row *r, const turns *t, val begin)
{
    if (takes_several(&r->split))
        r->place = row_place_at(&r->place, add(begin, t->offset));
    else
        r->place.row = begin;
}

static void each_row(row *r, const turns *t)
{
    LOOP_FROM(begin, t->first, r->o.rows, t->stride) {
        take_row(r, t, begin);
        load_statistics(r, r->place.row, r->mean, r->rstd);
        (r->cfg->tiled ? backward_of_tiles : backward_of_row)(r);
    }
}

/* Stores this thread's sums of columns as those of `group`. */
static void store_sums(const row *r, const row_place *p, val group)
{
    const norm_sums sums = { r->cfg, { r->rDgamma, r->rDbeta }, sums_of(r).count, r->exchange };
    if (takes_several(&r->split))
        norm_store_cta_sums(&r->split, &r->o, &sums);
    else
        norm_store_sums(&r->split, p, &r->o, &sums, group);
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

static void prefetch(const row *r)
{
    const norm_backward_values *o = &r->o;
    const ckl_dtype dtype = r->cfg->dtype;
    const val elements = add(mul(sub(o->rows, imm(1)), o->ldx), convert(I64, o->cols));
    if (!r->cfg->prefetch)
        return;
    IF(eq(thread(), imm(0))) {
        prefetch_share(o->x, elements, dtype);
        prefetch_share(o->dy, elements, dtype);
        if (r->cfg->residual)
            prefetch_share(o->dsum, elements, dtype);
        if (r->cfg->affine)
            prefetch_share(o->gamma, o->cols, dtype);
        if (r->cfg->centred)
            prefetch_share(o->mean, o->rows, F32);
        prefetch_share(o->rstd, o->rows, F32);
    }
}

static void backward_rows(const norm_config *cfg, bool vectors)
{
    row r = { .cfg = cfg,
              .split = vectors ? cfg->split : row_split_scalar(&cfg->split),
              .o = params_of(norm_backward) };
    r.place = row_here(&r.split, r.o.rows, r.o.cols);
    if (vectors || cfg->tiled) // single elements take more registers
        min_ctas_per_sm(cfg->ctas_per_sm);
    make_variables(&r);
    const bool sums = cfg->affine && !cfg->tiled;
    if (sums && !takes_several(&r.split))
        r.exchange = norm_exchange_alloc(&r.split);
    prefetch(&r);
    grid_wait(); // what is above overlaps the end of the kernel before
    if (sums) {
        r.rGamma = load_gamma(&r, &r.place);
        r.rDgamma = zeros(&r);
        r.rDbeta = zeros(&r);
    }
    cluster_meet(cfg->split.cluster);
    const turns t = turns_of(&r);
    each_row(&r, &t);
    launch_dependents(); // the kernel of the columns
    if (sums)
        store_sums(&r, &r.place, t.first);
}

enum { CHUNKS_AND_ENDS = ROW_PIPELINE_CHUNKS_MAX + 1 };

/* Rows that flow through shared memory, and what a thread keeps for each of its chunks. */
typedef struct flow {
    row reduced;              // the row of the first pass, with its own sums, mean and rstd
    row written;              // the row of the second pass
    val next_mean, next_rstd; // of the row after `reduced`: being loaded
    tensor rGamma[CHUNKS_AND_ENDS], rDgamma[CHUNKS_AND_ENDS], rDbeta[CHUNKS_AND_ENDS]; // (VEC,STEPS) each
    int64_t smem; // offset of the sums of dgamma, if they are there: (4,THREADS,VECTORS,CHUNKS)
} flow;

enum { SUM_VEC = 4, SUM_BYTES = 4 * SUM_VEC };

/*
 * This thread's sums of dgamma of a chunk in shared memory. NOTE: all are at offsets from one address. As slices of a
 * tensor, with an address for each chunk, they cost 6 % of the gradients of 262144 columns.
 */
static tensor smem_vectors(void)
{
    return smem_view(imm(0), F32, compact(leaf(SUM_VEC)));
}

static vector_at smem_sum(const flow *f, int chunk, int number)
{
    const row *r = &f->written;
    int64_t vectors = elements(r) / SUM_VEC, offset = (chunk * vectors + number) * r->cfg->split.threads * SUM_BYTES;
    return (vector_at){ add(smem_address(f->smem), mul(thread(), imm(SUM_BYTES))), offset, yes() };
}

/* The ends of a ragged row keep their sums in registers. */
static bool sums_in_smem(const flow *f, int chunk)
{
    const norm_config *cfg = f->written.cfg;
    return cfg->dgamma_in_smem && chunk < cfg->flow.chunks;
}

/* The sums of a chunk, from where they are kept. */
static void load_sums(const flow *f, int chunk, row *r)
{
    r->rDgamma = f->rDgamma[chunk];
    r->rDbeta = f->rDbeta[chunk];
    if (!sums_in_smem(f, chunk))
        return;
    vector_at at[elements(r) / SUM_VEC];
    for (int i = 0; i < COUNT_OF(at); i++)
        at[i] = smem_sum(f, chunk, i);
    r->rDgamma = zeros(r);
    vectors_load(at, COUNT_OF(at), SUM_VEC, smem_vectors(), r->rDgamma.regs, 0);
}

static void keep_sums(flow *f, int chunk, const row *r)
{
    f->rDgamma[chunk] = r->rDgamma;
    f->rDbeta[chunk] = r->rDbeta;
    for (int i = 0; i < elements(r) / SUM_VEC && sums_in_smem(f, chunk); i++) {
        vector_at at = smem_sum(f, chunk, i);
        vector_store(&at, SUM_VEC, r->rDgamma.regs + i * SUM_VEC, smem_vectors());
    }
}

static row chunk_of(const flow *f, const row *of, const row_span *at, int chunk, const tensor *rInputs)
{
    row r = *of;
    r.split = at->split;
    r.rX = rInputs[0];
    r.rDy = rInputs[1];
    r.rDsum = r.cfg->residual ? rInputs[2] : r.rDsum;
    if (r.cfg->affine)
        r.rGamma = r.cfg->dgamma_in_smem ? load_gamma(&r, &at->place) : f->rGamma[chunk];
    return r;
}

static void add_chunk(const row_span *at, int chunk, const tensor *rInputs, void *user)
{
    flow *f = user;
    row r = chunk_of(f, &f->reduced, at, chunk, rInputs);
    add_products(&r);
    if (r.cfg->affine) {
        load_sums(f, chunk, &r);
        add_columns(&r);
        keep_sums(f, chunk, &r);
    }
}

static void write_chunk(const row_span *at, int chunk, const tensor *rInputs, void *user)
{
    flow *f = user;
    row r = chunk_of(f, &f->written, at, chunk, rInputs);
    write_dx(&r, &at->place);
}

static void first_pass(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    row *r = &f->reduced;
    const reduction sums = sums_of(r);
    assign(r->mean, f->next_mean);
    assign(r->rstd, f->next_rstd);
    const bool releases = r->cfg->flow.residence == ROW_IN_REGISTERS; // stages, behind a fence that may wait for loads
    if (!releases)
        load_statistics(r, s->next, f->next_mean, f->next_rstd);
    clear_sums(r);
    row_pipeline_first_pass(s, number, add_chunk, f);
    if (releases)
        load_statistics(r, s->next, f->next_mean, f->next_rstd);
    row_pipeline_reduce_begin(s, &sums, r->sum);
}

static void carry(void *user)
{
    flow *f = user;
    assign(f->written.mean, f->reduced.mean);
    assign(f->written.rstd, f->reduced.rstd);
}

static void second_pass(row_pipeline *s, val number, void *user)
{
    flow *f = user;
    const reduction sums = sums_of(&f->written);
    row_pipeline_reduce_end(s, &sums, f->written.sum);
    find_factors(&f->written);
    row_pipeline_second_pass(s, number, write_chunk, f);
}

/* Chunks, and ends, for which a thread keeps sums. */
static int chunks_and_ends(const norm_config *cfg)
{
    return cfg->affine ? cfg->flow.chunks + cfg->split.ragged : 0;
}

static void flow_begin(flow *f)
{
    const norm_config *cfg = f->written.cfg;
    if (cfg->dgamma_in_smem)
        f->smem = smem_alloc("sums", norm_dgamma_bytes(cfg), SUM_BYTES);
    for (int chunk = 0; chunk < chunks_and_ends(cfg); chunk++) {
        row r = f->written;
        row_span at = row_pipeline_columns(r.pipeline, chunk);
        r.split = at.split;
        if (!cfg->dgamma_in_smem)
            f->rGamma[chunk] = load_gamma(&r, &at.place);
        r.rDgamma = zeros(&r);
        r.rDbeta = zeros(&r);
        keep_sums(f, chunk, &r);
    }
}

static void flow_end(const flow *f, val group)
{
    const norm_config *cfg = f->written.cfg;
    for (int chunk = 0; chunk < chunks_and_ends(cfg); chunk++) {
        row r = f->written;
        row_span at = row_pipeline_columns(r.pipeline, chunk);
        r.split = at.split;
        load_sums(f, chunk, &r);
        store_sums(&r, &at.place, group);
    }
}

static void backward_phase(row_pipeline *s, val group, void *user)
{
    flow *f = user;
    flow_begin(f);
    load_statistics(&f->written, s->first_row, f->next_mean, f->next_rstd);
    row_pipeline_run(s, &(row_passes){ first_pass, carry, second_pass }, f);
    flow_end(f, group);
}

static void backward_flow(const norm_config *cfg)
{
    row_pipeline_split split = row_pipeline_split_of(&cfg->split, &cfg->flow);
    row r = { .cfg = cfg, .split = split.chunk, .o = params_of(norm_backward) };
    const row_pipeline_matrices matrices = {
        .dtype = cfg->dtype,
        .rows = r.o.rows,
        .cols = r.o.cols,
        .input_count = 2 + cfg->residual,
        .inputs = { { r.o.x, r.o.ldx }, { r.o.dy, r.o.ldx }, { r.o.dsum, r.o.ldx } },
        .output = { r.o.dx, r.o.ldy }
    };
    min_ctas_per_sm(cfg->ctas_per_sm);
    prefetch(&r);
    row_pipeline s = row_pipeline_begin(&split, &matrices, NORM_FLOW_VALUES, imm(0));
    s.long_visits = true;
    r.pipeline = &s;
    if (cfg->affine)
        r.exchange = norm_exchange_alloc(&r.split);
    flow f = { .reduced = r, .written = r };
    make_variables(&f.written);
    make_variables(&f.reduced);
    f.next_mean = variable(F32, immf(0));
    f.next_rstd = variable(F32, immf(0));
    row_pipeline_each_phase(&s, backward_phase, &f);
    row_pipeline_end(&s);
}

void norm_backward(const void *config, int kernel)
{
    const norm_config *cfg = config, tiled = norm_tiled(cfg);
    if (kernel == NORM_COLUMNS)
        norm_backward_columns(cfg);
    else if (kernel == NORM_VECTORS && cfg->flow.stages)
        backward_flow(cfg);
    else
        backward_rows(cfg->flow.stages ? &tiled : cfg, kernel == NORM_VECTORS);
}
