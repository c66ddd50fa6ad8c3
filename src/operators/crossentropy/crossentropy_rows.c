/*
 * crossentropy_rows.c - forward: the logits of a row are read once, piece by piece, by some lanes, a CTA or a cluster. Backward:
 * a piece of a row a CTA; nothing is reduced. The mean: one CTA adds the losses in a fixed order.
 */
#include "cute/kernel.h"
#include "cute/math.h"
#include "skeletons/online.h"
#include "operators/crossentropy/crossentropy_config.h"

/* The parameters, in the order of the launch. */
typedef struct operands {
    val rows, cols, x, ldx, target, ignore, loss, lse, count, dloss, dx, lddx;
} operands;

row_split crossentropy_split(const crossentropy_config *c, int part)
{
    row_split split = {
        .threads = c->threads, .row_threads = c->row_threads, .cluster = c->cluster, .vec = c->vec, .steps = c->steps
    };
    return part == CROSSENTROPY_ELEMENTS ? row_split_scalar(&split) : split;
}

static operands declare(void)
{
    operands o;
    o.rows = param(I64, "rows");
    o.cols = param(I64, "cols");
    o.x = pointer("x");
    o.ldx = param(I64, "ldx");
    o.target = pointer("target");
    o.ignore = param(I64, "ignore_index");
    o.loss = pointer("loss");
    o.lse = pointer("lse");
    o.count = pointer("count");
    o.dloss = pointer("dloss");
    o.dx = pointer("dx");
    o.lddx = param(I64, "lddx");
    return o;
}

/* Element i of a dense vector: (1). */
static tensor element(val address, ckl_dtype dtype, val i)
{
    val bytes = mul(convert(U64, i), imm((int)ckl_dtype_bytes(dtype)));
    return gmem_tensor(add(address, bytes), dtype, compact(leaf(1)));
}

/* A row's class. */
typedef struct label {
    val number;  // i64
    val ignored; // predicates
    val valid;   // in 0..cols-1
} label;

static label read_label(const crossentropy_config *cfg, const operands *o, val row, val exists)
{
    label t = { .number = variable(I64, o->ignore) };
    IF(exists)
        assign(t.number, convert(I64, at(element(o->target, cfg->target, row), 0)));
    t.ignored = eq(t.number, o->ignore);
    t.valid = logical_and(ge(t.number, imm(0)), lt(t.number, o->cols));
    return t;
}

/* x[row,t]; NaN for a class that does not exist. */
static val read_logit(const crossentropy_config *cfg, const operands *o, val row, label t)
{
    val x = variable(F32, immf(NAN));
    IF(t.valid)
        assign(x, convert(F32, at(element(o->x, cfg->dtype, add(mul(row, o->ldx), t.number)), 0)));
    return x;
}

/* lse - x[t]; +inf where every logit is -inf, and 0 for a class to ignore. */
static val loss_of(val lse, val logit, label t)
{
    val loss = select(logical_and(t.valid, eq(lse, immf(-INFINITY))), immf(INFINITY), sub(lse, logit));
    return select(t.ignored, immf(0), loss);
}

static void forward(const crossentropy_config *cfg, const row_split *split, const operands *o)
{
    row_place p = row_here(split, o->rows, o->cols);
    label t = read_label(cfg, o, p.row, p.exists);
    t.valid = logical_and(t.valid, p.exists);
    val logit = read_logit(cfg, o, p.row, t), pair[ONLINE_VALUES];
    online_begin(pair);
    LOOP_FROM(start, imm(0), convert(U32, o->cols), imm((int)row_split_cols(split)))
    {
        row_place piece = row_from(&p, start);
        tensor tXgX = row_part(split, &piece, o->x, cfg->dtype, o->ldx); // (VEC,STEPS)
        tensor rX = fragment_like(tXgX, cfg->dtype);                     // (VEC,STEPS)
        row_load(split, &piece, tXgX, rX, -INFINITY);
        online_add(ONLINE_NATURAL, pair, rX);
    }
    if (split->cluster > 1)
        cluster_sync(); // all CTAs have started: their shared memory may be written
    row_reduce(split, &online_reductions[ONLINE_NATURAL], pair);
    val lse = add(pair[ONLINE_MAX], log_f32(pair[ONLINE_SUM]));
    IF(logical_and(eq(p.first, imm(0)), p.exists)) {
        set(element(o->lse, F32, p.row), 0, lse);
        if (cfg->reduction == CKL_LOSS_NONE)
            set(element(o->loss, F32, p.row), 0, loss_of(lse, logit, t));
    }
}

/* Sum and number of the losses. */
static void combine_both(val *into, const val *other, void *user)
{
    (void)user;
    assign(into[0], add(into[0], other[0]));
    assign(into[1], add(into[1], other[1]));
}

static void mean(const crossentropy_config *cfg, const operands *o)
{
    static const reduction total = { .count = 2, .combine = combine_both };
    int threads = CROSSENTROPY_MEAN_THREADS;
    launch_bounds(threads, 0);
    val sums[] = { variable(F32, immf(0)), variable(I32, imm(0)) };
    LOOP_FROM(row, convert(I64, thread()), o->rows, imm(threads))
    {
        label t = read_label(cfg, o, row, yes());
        val lse = at(element(o->lse, F32, row), 0), logit = read_logit(cfg, o, row, t);
        assign(sums[0], add(sums[0], loss_of(lse, logit, t)));
        assign(sums[1], add(sums[1], select(t.ignored, imm(0), imm(1))));
    }
    cta_reduce(&total, threads, smem_alloc("total", cta_reduce_bytes(threads), 16), sums);
    IF(eq(thread(), imm(0))) {
        val count = convert(F32, sums[1]);
        set(element(o->loss, F32, imm(0)), 0, div(sums[0], count));
        set(element(o->count, F32, imm(0)), 0, count);
    }
}

/* What the gradient of a row's loss is multiplied with: NaN for a class that does not exist. */
static val factor_of(const crossentropy_config *cfg, const operands *o, val row, val exists, label t)
{
    bool reduced = cfg->reduction == CKL_LOSS_MEAN;
    val factor = variable(F32, immf(NAN));
    IF(logical_and(exists, t.valid)) {
        val dloss = at(element(o->dloss, F32, reduced ? imm64(0) : row), 0);
        assign(factor, reduced ? div(dloss, at(element(o->count, F32, imm64(0)), 0)) : dloss);
    }
    return factor;
}

static val read_lse(const operands *o, val row, val exists)
{
    val lse = variable(F32, immf(0));
    IF(exists)
        assign(lse, at(element(o->lse, F32, row), 0));
    return select(eq(lse, immf(-INFINITY)), immf(0), lse); // exp(-inf - 0) = 0
}

static void backward(const crossentropy_config *cfg, const row_split *split, const operands *o)
{
    row_place here = row_here(split, o->rows, o->cols);
    row_place p = row_from(&here, mul(cta_y(), imm((int)row_split_cols(split))));
    tensor tXgX = row_part(split, &p, o->x, cfg->dtype, o->ldx),
           tXgDx = row_part(split, &p, o->dx, cfg->dtype, o->lddx);
    tensor rX = fragment_like(tXgX, cfg->dtype), rDx = fragment_like(tXgDx, F32); // (VEC,STEPS)
    label t = read_label(cfg, o, p.row, p.exists);
    val lse = read_lse(o, p.row, p.exists), factor = factor_of(cfg, o, p.row, p.exists, t);
    val class = convert(U32, t.number), stride = imm((int)row_split_cols(split) / split->steps);
    row_load(split, &p, tXgX, rX, 0);
    for (int step = 0; step < split->steps; step++) {
        for (int i = 0; i < split->vec; i++) {
            int at_i = step * split->vec + i;
            val column = add(add(p.first, mul(stride, imm(step))), imm(i));
            val probability = online_exp(ONLINE_NATURAL, convert(F32, at(rX, at_i)), lse);
            val difference = select(eq(column, class), add(probability, immf(-1)), probability);
            set(rDx, at_i, select(t.ignored, immf(0), mul(difference, factor)));
        }
        row_store_step(split, &p, rDx, tXgDx, step);
    }
}

void crossentropy_rows(const void *config, int part)
{
    const crossentropy_config *cfg = config;
    row_split split = crossentropy_split(cfg, part);
    operands o = declare();
    min_ctas_per_sm(part == CROSSENTROPY_MEAN ? 0 : cfg->ctas_per_sm);
    if (part == CROSSENTROPY_MEAN)
        mean(cfg, &o);
    else if (cfg->direction == CKL_DIRECTION_FORWARD)
        forward(cfg, &split, &o);
    else
        backward(cfg, &split, &o);
}
