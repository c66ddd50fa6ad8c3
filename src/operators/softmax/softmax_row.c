/*
 * softmax_row.c - rows that lie along memory. `row`: a row is read once and stays in registers, from a few lanes of a warp to a
 * cluster of CTAs. `long`: a row of any length is read twice, piece by piece; the second time mostly from L2.
 */
#include "cute/kernel.h"
#include "cute/online.h"
#include "operators/softmax/softmax_config.h"

/* The parameters, in the order of the launch, and what follows from them. */
typedef struct rows {
    const softmax_row_config *cfg;
    row_split split;
    val cols; // u32
    val x, ldx, y, ldy, dy, dx, scale, mask, mask_rows, mask_repeat;
    row_place place; // of this thread in its row
} rows;

row_split softmax_split(const softmax_row_config *c, int part)
{
    row_split split = { .threads = c->threads,
                        .row_threads = c->row_threads,
                        .cluster = c->cluster,
                        .vec = c->vec,
                        .steps = c->steps,
                        .whole = c->whole };
    return part == 0 ? split : row_split_scalar(&split);
}

static rows begin(const softmax_row_config *cfg, int part)
{
    rows r = { .cfg = cfg, .split = softmax_split(cfg, part) };
    ir_current()->ctas_per_sm = cfg->ctas_per_sm;
    val count = param(I64, "rows");
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
    r.place = row_here(&r.split, count, r.cols);
    return r;
}

/* This thread's part of its row, or of a piece of it, of a tensor whose elements are of the problem's type: (VEC,STEPS). */
static tensor part_of(const rows *r, const row_place *p, val address, val ld)
{
    return row_part(&r->split, p, address, r->cfg->dtype, ld);
}

/* The mask's row for this thread's row. */
static val mask_row(const rows *r)
{
    return rem(div(r->place.row, r->mask_repeat), r->mask_rows);
}

/* t = scale * x + mask of a piece; x itself in its own type where there is nothing to compute. */
static tensor scores(const rows *r, const row_place *p)
{
    const softmax_row_config *cfg = r->cfg;
    tensor tXgX = part_of(r, p, r->x, r->ldx);   // (VEC,STEPS)
    tensor rX = fragment_like(tXgX, cfg->dtype); // (VEC,STEPS)
    row_load(&r->split, p, tXgX, rX, -INFINITY);
    if (!cfg->scaled && cfg->mask == CKL_MASK_NONE)
        return rX;
    tensor rT = fragment_like(tXgX, F32), rM = fragment_like(tXgX, F32); // (VEC,STEPS)
    if (cfg->mask != CKL_MASK_NONE) {
        row_place masked = *p;
        masked.row = mask_row(r);
        ckl_dtype dtype = cfg->mask == CKL_MASK_BOOL ? CKL_U8 : cfg->dtype;
        row_load(&r->split, p, row_part(&r->split, &masked, r->mask, dtype, r->cols), rM, 0);
    }
    for (int i = 0; i < static_size(rT.layout); i++) {
        val t = convert(F32, at(rX, i));
        t = cfg->scaled ? mul(t, r->scale) : t;
        t = cfg->mask == CKL_MASK_ADD ? add(t, at(rM, i)) : t;
        set(rT, i, cfg->mask == CKL_MASK_BOOL ? select(ne(at(rM, i), immf(0)), t, immf(-INFINITY)) : t);
    }
    return rT;
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
            val d = r->cfg->log ? fma(online_exp(y, immf(0)), mul(sum, immf(-1)), dy) : mul(y, sub(dy, sum));
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

static void forward(const rows *r)
{
    val pair[ONLINE_VALUES];
    tensor rT = scores(r, &r->place); // (VEC,STEPS)
    meet_peers(r);
    online_begin(pair);
    if (r->cfg->log) {
        online_add(pair, rT);
        row_reduce(&r->split, &online_reduction, pair);
        store_outputs(r, &r->place, rT, pair, online_log_sum(pair));
    } else {
        tensor rE = fragment_like(rT, F32); // (VEC,STEPS)
        val own = online_add_keeping(pair, rT, rE);
        row_reduce(&r->split, &online_reduction, pair);
        store_outputs(r, &r->place, rE, pair, online_factor(pair, own));
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
    if (r.cfg->direction == CKL_FORWARD)
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
        set(rE, i, online_exp(convert(F32, at(rT, i)), pair[ONLINE_MAX]));
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
        online_add(pair, rT);
    }
    row_reduce(&r->split, &online_reduction, pair);
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
    if (r.cfg->direction == CKL_FORWARD)
        forward_long(&r);
    else
        backward_long(&r);
}
