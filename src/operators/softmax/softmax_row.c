/*
 * softmax_row.c - rows that lie along memory. `row`: a row is read once and stays in registers, from a few lanes of a warp to
 * a CTA. `stream`: longer rows flow through shared memory of CTAs or clusters. `long`: a row of any length and alignment is
 * read twice, piece by piece; the second time mostly from L2.
 */
#include "cute/kernel.h"
#include "skeletons/online.h"
#include "operators/softmax/softmax_config.h"

/* The parameters, in the order of the launch, and what follows from them. */
typedef struct rows {
    const softmax_row_config *cfg;
    row_split split;
    val count, cols; // u32
    val x, ldx, y, ldy, dy, dx, scale, mask, mask_rows, mask_repeat;
    val counter;     // of rows that flow
    row_place place; // of this thread in its row
} rows;

row_split softmax_split(const softmax_row_config *c, int part)
{
    row_split split = { .threads = c->threads,
                        .row_threads = c->row_threads,
                        .cluster = c->cluster,
                        .vec = c->vec,
                        .steps = c->steps,
                        .exact = c->exact };
    return part == 0 ? split : row_split_scalar(&split);
}

static rows declare(const softmax_row_config *cfg, row_split split)
{
    rows r = { .cfg = cfg, .split = split };
    min_ctas_per_sm(cfg->ctas_per_sm);
    r.count = param(I64, "rows");
    r.cols = convert(U32, param(I64, "cols"));
    r.x = pointer("x");
    r.ldx = param(I64, "ldx");
    r.y = pointer("y");
    r.ldy = param(I64, "ldy");
    r.dy = pointer("dy");
    r.dx = pointer("dx");
    r.scale = param(F32, "scale");
    r.mask = pointer("mask");
    r.mask_rows = param(I64, "mask_rows");
    r.mask_repeat = param(I64, "mask_repeat");
    r.counter = pointer("counter");
    return r;
}

static rows begin(const softmax_row_config *cfg, int part)
{
    rows r = declare(cfg, softmax_split(cfg, part));
    r.place = row_here(&r.split, r.count, r.cols);
    return r;
}

/* This thread's part of its row, or of a piece of it, of a tensor whose elements are of the problem's type: (VEC,STEPS). */
static tensor part_of(const rows *r, const row_place *p, val address, val ld)
{
    return row_part(&r->split, p, address, r->cfg->dtype, ld);
}

/* t = scale * x + mask of a piece of x, (VEC,STEPS); x itself in its own type where there is nothing to compute. */
static tensor scores_of(const rows *r, const row_place *p, tensor rX)
{
    const softmax_row_config *cfg = r->cfg;
    if (!cfg->scaled && cfg->mask == CKL_SOFTMAX_MASK_NONE)
        return rX;
    tensor rT = fragment_like(rX, F32), rM = fragment_like(rX, F32); // (VEC,STEPS)
    if (cfg->mask != CKL_SOFTMAX_MASK_NONE) {
        row_place masked = *p;
        masked.row = rem(div(p->row, r->mask_repeat), r->mask_rows);
        ckl_dtype dtype = cfg->mask == CKL_SOFTMAX_MASK_BOOL ? CKL_U8 : cfg->dtype;
        row_load(&r->split, p, row_part(&r->split, &masked, r->mask, dtype, r->cols), rM, 0);
    }
    for (int i = 0; i < static_size(rT.layout); i++) {
        val t = convert(F32, at(rX, i));
        t = cfg->scaled ? mul(t, r->scale) : t;
        t = cfg->mask == CKL_SOFTMAX_MASK_ADD ? add(t, at(rM, i)) : t;
        set(rT, i, cfg->mask == CKL_SOFTMAX_MASK_BOOL ? select(ne(at(rM, i), immf(0)), t, immf(-INFINITY)) : t);
    }
    return rT;
}

static tensor scores(const rows *r, const row_place *p)
{
    tensor tXgX = part_of(r, p, r->x, r->ldx);      // (VEC,STEPS)
    tensor rX = fragment_like(tXgX, r->cfg->dtype); // (VEC,STEPS)
    row_load(&r->split, p, tXgX, rX, -INFINITY);
    return scores_of(r, p, rX);
}

/* y of a piece of t by log-softmax, or of its exponentials by softmax, when the pair is that of the row. */
static void store_outputs(const rows *r, const row_place *p, tensor rT, const val *pair, val factor)
{
    tensor tYgY = part_of(r, p, r->y, r->ldy); // (VEC,STEPS)
    tensor rY = fragment_like(tYgY, F32);      // (VEC,STEPS)
    for (int step = 0; step < r->split.steps; step++) {
        for (int i = step * r->split.vec; i < (step + 1) * r->split.vec; i++) {
            val t = convert(F32, at(rT, i));
            set(rY, i, r->cfg->log ? sub(sub(t, pair[ONLINE_MAX]), factor) : mul(t, factor));
        }
        row_store_step(&r->split, p, rY, tYgY, step);
    }
}

/* y and dy of a piece; zeros past the end of the row. */
static void load_gradients(const rows *r, const row_place *p, tensor *rY, tensor *rDy)
{
    tensor tYgY = part_of(r, p, r->y, r->ldy), tDgDy = part_of(r, p, r->dy, r->ldy); // (VEC,STEPS)
    *rY = fragment_like(tYgY, r->cfg->dtype);                                        // (VEC,STEPS)
    *rDy = fragment_like(tDgDy, r->cfg->dtype);                                      // (VEC,STEPS)
    row_load(&r->split, p, tYgY, *rY, 0);
    row_load(&r->split, p, tDgDy, *rDy, 0);
}

/* Sum over `count` elements from `first` on of y * dy, of dy for the logarithm; pairwise. */
static val dot(const rows *r, tensor rY, tensor rDy, int first, int count)
{
    if (count == 1) {
        val gradient = convert(F32, at(rDy, first));
        return r->cfg->log ? gradient : mul(convert(F32, at(rY, first)), gradient);
    }
    val left = dot(r, rY, rDy, first, count / 2), right = dot(r, rY, rDy, first + count / 2, count - count / 2);
    return add(left, right);
}

static void store_gradients(const rows *r, const row_place *p, tensor rY, tensor rDy, val sum)
{
    tensor tXgDx = part_of(r, p, r->dx, r->ldx); // (VEC,STEPS)
    tensor rDx = fragment_like(tXgDx, F32);      // (VEC,STEPS)
    for (int step = 0; step < r->split.steps; step++) {
        for (int i = step * r->split.vec; i < (step + 1) * r->split.vec; i++) {
            val y = convert(F32, at(rY, i)), dy = convert(F32, at(rDy, i));
            val d = r->cfg->log ? fma(online_exp(ONLINE_NATURAL, y, immf(0)), mul(sum, immf(-1)), dy)
                                : mul(y, sub(dy, sum));
            set(rDx, i, r->cfg->scaled ? mul(d, r->scale) : d);
        }
        row_store_step(&r->split, p, rDx, tXgDx, step);
    }
}

/* A CTA may write to the shared memory of its peers once all have started. */
static void meet_peers(const rows *r)
{
    if (r->cfg->cluster > 1)
        cluster_sync();
}

static const reduction summation = { .count = 1, .combine = combine_sum };

/* Logarithms want the maximum as it is. */
static online_unit unit_of(const rows *r)
{
    return r->cfg->log ? ONLINE_NATURAL : ONLINE_BINARY;
}

static void forward(const rows *r)
{
    val pair[ONLINE_VALUES];
    tensor rT = scores(r, &r->place); // (VEC,STEPS)
    meet_peers(r);
    online_begin(pair);
    if (r->cfg->log) {
        online_add(ONLINE_NATURAL, pair, rT);
        row_reduce(&r->split, &online_reductions[unit_of(r)], pair);
        store_outputs(r, &r->place, rT, pair, online_log_sum(pair));
    } else {
        tensor rE = fragment_like(rT, F32); // (VEC,STEPS)
        val own = online_add_keeping(ONLINE_BINARY, pair, rT, rE);
        row_reduce(&r->split, &online_reductions[unit_of(r)], pair);
        store_outputs(r, &r->place, rE, pair, online_factor(ONLINE_BINARY, pair, own));
    }
}

static void backward(const rows *r)
{
    tensor rY, rDy;
    load_gradients(r, &r->place, &rY, &rDy);
    meet_peers(r);
    val sum = variable(F32, dot(r, rY, rDy, 0, (int)static_size(rY.layout)));
    row_reduce(&r->split, &summation, &sum);
    store_gradients(r, &r->place, rY, rDy, sum);
}

void softmax_row(const void *config, int part)
{
    rows r = begin(config, part);
    if (r.cfg->direction == CKL_DIRECTION_FORWARD)
        forward(&r);
    else
        backward(&r);
}

/* Elements of a piece. */
static val piece_of(const rows *r)
{
    return imm((int)row_split_cols(&r->split));
}

/* exp(t - max) of a piece. */
static tensor exponentials(tensor rT, const val *pair)
{
    tensor rE = fragment_like(rT, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rE.layout); i++)
        set(rE, i, online_exp(ONLINE_BINARY, convert(F32, at(rT, i)), pair[ONLINE_MAX]));
    return rE;
}

static void forward_long(const rows *r)
{
    val pair[ONLINE_VALUES];
    meet_peers(r);
    online_begin(pair);
    LOOP_FROM(start, imm(0), r->cols, piece_of(r))
    {
        row_place p = row_from(&r->place, start);
        tensor rT = scores(r, &p); // (VEC,STEPS)
        online_add(unit_of(r), pair, rT);
    }
    row_reduce(&r->split, &online_reductions[unit_of(r)], pair);
    val factor = r->cfg->log ? online_log_sum(pair) : online_scale(pair);
    LOOP_FROM(again, imm(0), r->cols, piece_of(r))
    {
        row_place p = row_from(&r->place, again);
        tensor rT = scores(r, &p); // (VEC,STEPS)
        store_outputs(r, &p, r->cfg->log ? rT : exponentials(rT, pair), pair, factor);
    }
}

static void backward_long(const rows *r)
{
    tensor rY, rDy;
    meet_peers(r);
    val sum = variable(F32, immf(0));
    LOOP_FROM(start, imm(0), r->cols, piece_of(r))
    {
        row_place p = row_from(&r->place, start);
        load_gradients(r, &p, &rY, &rDy);
        assign(sum, add(sum, dot(r, rY, rDy, 0, (int)static_size(rY.layout))));
    }
    row_reduce(&r->split, &summation, &sum);
    LOOP_FROM(again, imm(0), r->cols, piece_of(r))
    {
        row_place p = row_from(&r->place, again);
        load_gradients(r, &p, &rY, &rDy);
        store_gradients(r, &p, rY, rDy, sum);
    }
}

void softmax_long(const void *config, int part)
{
    rows r = begin(config, part);
    if (r.cfg->direction == CKL_DIRECTION_FORWARD)
        forward_long(&r);
    else
        backward_long(&r);
}

/* Rows that flow through shared memory */

static row_split stream_piece(const softmax_row_config *c)
{
    row_split piece = softmax_split(c, 0);
    piece.cluster = 1;
    return piece;
}

row_pipeline_split softmax_pipeline_split(const softmax_row_config *c)
{
    return (row_pipeline_split){ stream_piece(c), c->cluster, c->stages, (row_residence)c->residence,
                                 c->lookahead,    c->chunks };
}

int softmax_pipeline_inputs(const softmax_row_config *c)
{
    return c->direction == CKL_DIRECTION_FORWARD ? 1 : 2;
}

/* What the visits to a row find. */
typedef struct found {
    const rows *r;
    val pair[ONLINE_VALUES], factor; // forward
    val sum;                         // backward
} found;

static void see_scores(const row_place *p, int piece, const tensor *rX, void *user)
{
    (void)piece;
    found *f = user;
    online_add(unit_of(f->r), f->pair, scores_of(f->r, p, rX[0]));
}

static void write_outputs(const row_place *p, int piece, const tensor *rX, void *user)
{
    (void)piece;
    found *f = user;
    tensor rT = scores_of(f->r, p, rX[0]); // (VEC,STEPS)
    store_outputs(f->r, p, f->r->cfg->log ? rT : exponentials(rT, f->pair), f->pair, f->factor);
}

static void see_row(row_pipeline *s, val row, void *user)
{
    found *f = user;
    online_clear(f->pair);
    row_pipeline_first_pass(s, row, see_scores, f);
    row_pipeline_reduce_begin(s, &online_reductions[unit_of(f->r)], f->pair);
}

static void write_row(row_pipeline *s, val row, void *user)
{
    found *f = user;
    row_pipeline_reduce_end(s, &online_reductions[unit_of(f->r)], f->pair);
    f->factor = f->r->cfg->log ? online_log_sum(f->pair) : online_scale(f->pair);
    row_pipeline_second_pass(s, row, write_outputs, f);
}

static void see_gradients(const row_place *p, int piece, const tensor *rX, void *user)
{
    found *f = user;
    (void)p, (void)piece;
    assign(f->sum, add(f->sum, dot(f->r, rX[0], rX[1], 0, (int)static_size(rX[0].layout))));
}

static void write_gradients(const row_place *p, int piece, const tensor *rX, void *user)
{
    (void)piece;
    found *f = user;
    store_gradients(f->r, p, rX[0], rX[1], f->sum);
}

static void see_row_of_gradients(row_pipeline *s, val row, void *user)
{
    found *f = user;
    assign(f->sum, immf(0));
    row_pipeline_first_pass(s, row, see_gradients, f);
    row_pipeline_reduce_begin(s, &summation, &f->sum);
}

static void write_row_of_gradients(row_pipeline *s, val row, void *user)
{
    found *f = user;
    row_pipeline_reduce_end(s, &summation, &f->sum);
    row_pipeline_second_pass(s, row, write_gradients, f);
}

static const row_passes steps[] = {
    [CKL_DIRECTION_FORWARD] = { see_row, NULL, write_row },
    [CKL_DIRECTION_BACKWARD] = { see_row_of_gradients, NULL, write_row_of_gradients },
};

void softmax_pipeline(const void *config, int part)
{
    const softmax_row_config *cfg = config;
    if (part > 0) { // memory that bulk copies cannot read
        softmax_long(config, part);
        return;
    }
    row_pipeline_split split = softmax_pipeline_split(cfg);
    rows r = declare(cfg, split.chunk);
    const row_pipeline_input x = { r.x, r.ldx }, y = { r.y, r.ldy }, dy = { r.dy, r.ldy };
    const row_pipeline_input forward[] = { x }, backward[] = { y, dy };
    const bool is_forward = cfg->direction == CKL_DIRECTION_FORWARD;
    row_pipeline s =
        row_pipeline_begin(&split, cfg->dtype, is_forward ? forward : backward, softmax_pipeline_inputs(cfg),
                           SOFTMAX_PIPELINE_VALUES, r.count, r.cols, r.counter);
    s.fill = is_forward ? -INFINITY : 0;
    found f = { .r = &r, .sum = variable(F32, immf(0)) };
    online_begin(f.pair);
    row_pipeline_run(&s, &steps[cfg->direction], &f);
    row_pipeline_end(&s);
}
