/*
 * softmax_column.c - rows that lie across memory, side by side. `column`: a strip of them is read once and stays in the registers
 * of a CTA or a cluster. `column_long`: strips of any length are read twice, piece by piece.
 */
#include "skeletons/column.h"
#include "cute/kernel.h"
#include "skeletons/online.h"
#include "operators/softmax/softmax_config.h"

/* The parameters, in the order of the launch, and what follows from them. */
typedef struct columns {
    const softmax_column_config *cfg;
    column_split split;
    val n, inner, strips, x, ldx, y, ldy, dy, dx, scale;
    column_place place; // of this thread in its strip
} columns;

column_split softmax_column_split(const softmax_column_config *c, int part)
{
    column_split split = { c->threads, c->lanes, c->cluster, c->vec, c->steps, c->exact };
    return part == 0 ? split : column_split_scalar(&split);
}

static columns begin(const softmax_column_config *cfg, int part)
{
    columns c = { .cfg = cfg, .split = softmax_column_split(cfg, part) };
    min_ctas_per_sm(cfg->ctas_per_sm);
    c.n = param(I64, "n");
    c.inner = param(I64, "inner");
    c.strips = param(U32, "strips");
    c.x = pointer("x");
    c.ldx = param(I64, "ldx");
    c.y = pointer("y");
    c.ldy = param(I64, "ldy");
    c.dy = pointer("dy");
    c.dx = pointer("dx");
    c.scale = param(F32, "scale");
    c.place = column_here(&c.split, c.n, c.inner, c.strips);
    return c;
}

/* A CTA may write to the shared memory of its peers once all have started. */
static void meet_peers(const columns *c)
{
    if (c->cfg->cluster > 1)
        cluster_sync();
}

static tensor registers(const columns *c, ckl_dtype dtype)
{
    return fragment(dtype, compact(shape(c->split.vec, c->split.steps)));
}

/* The elements of this thread in one of its columns: (STEPS). */
static tensor column_of(tensor rX, int e)
{
    return slice(rX, e, _);
}

/* t = scale * x; x itself in its own type where there is no scale. */
static tensor scores(const columns *c, const column_place *p)
{
    tensor rX = registers(c, c->cfg->dtype); // (VEC,STEPS)
    column_load(&c->split, p, c->x, c->cfg->dtype, c->ldx, c->n, rX, -INFINITY);
    if (!c->cfg->scaled)
        return rX;
    tensor rT = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rT.layout); i++)
        set(rT, i, mul(convert(F32, at(rX, i)), c->scale));
    return rT;
}

/* y of the elements t by log-softmax, of their exponentials by softmax; pairs are those of whole columns. */
static void store_outputs(const columns *c, const column_place *p, tensor rT, const val *pairs, const val *factors)
{
    tensor rY = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rY.layout); i++) {
        val t = convert(F32, at(rT, i)), factor = factors[i % c->split.vec];
        const val *pair = pairs + i % c->split.vec * ONLINE_VALUES;
        set(rY, i, c->cfg->log ? sub(sub(t, pair[ONLINE_MAX]), factor) : mul(t, factor));
    }
    column_store(&c->split, p, rY, c->y, c->cfg->dtype, c->ldy, c->n);
}

enum { VEC_MAX = 8 };

/* Logarithms want the maximum as it is. */
static online_unit unit_of(const columns *c)
{
    return c->cfg->log ? ONLINE_NATURAL : ONLINE_BINARY;
}

static void forward(const columns *c)
{
    val pairs[VEC_MAX * ONLINE_VALUES], own[VEC_MAX], factors[VEC_MAX];
    tensor rT = scores(c, &c->place); // (VEC,STEPS)
    tensor rE = registers(c, F32);    // (VEC,STEPS)
    meet_peers(c);
    for (int e = 0; e < c->split.vec; e++) {
        val *pair = pairs + e * ONLINE_VALUES;
        online_begin(pair);
        if (c->cfg->log)
            online_add(ONLINE_NATURAL, pair, column_of(rT, e));
        else
            own[e] = online_add_keeping(ONLINE_BINARY, pair, column_of(rT, e), column_of(rE, e));
    }
    column_reduce(&c->split, &online_reductions[unit_of(c)], pairs);
    for (int e = 0; e < c->split.vec; e++) {
        const val *pair = pairs + e * ONLINE_VALUES;
        factors[e] = c->cfg->log ? online_log_sum(pair) : online_factor(ONLINE_BINARY, pair, own[e]);
    }
    store_outputs(c, &c->place, c->cfg->log ? rT : rE, pairs, factors);
}

/* y and dy; zeros outside. */
static void load_gradients(const columns *c, const column_place *p, tensor *rY, tensor *rDy)
{
    *rY = registers(c, c->cfg->dtype);  // (VEC,STEPS)
    *rDy = registers(c, c->cfg->dtype); // (VEC,STEPS)
    column_load(&c->split, p, c->y, c->cfg->dtype, c->ldy, c->n, *rY, 0);
    column_load(&c->split, p, c->dy, c->cfg->dtype, c->ldy, c->n, *rDy, 0);
}

/* sums[e] += sum over this thread's elements of column e of y * dy, of dy for the logarithm; pairwise. */
static val dot(const columns *c, tensor rY, tensor rDy, int first, int count)
{
    if (count == 1) {
        val gradient = convert(F32, at(rDy, first));
        return c->cfg->log ? gradient : mul(convert(F32, at(rY, first)), gradient);
    }
    val left = dot(c, rY, rDy, first, count / 2), right = dot(c, rY, rDy, first + count / 2, count - count / 2);
    return add(left, right);
}

static void add_dots(const columns *c, tensor rY, tensor rDy, const val *sums)
{
    for (int e = 0; e < c->split.vec; e++)
        assign(sums[e], add(sums[e], dot(c, column_of(rY, e), column_of(rDy, e), 0, c->split.steps)));
}

static void store_gradients(const columns *c, const column_place *p, tensor rY, tensor rDy, const val *sums)
{
    tensor rDx = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rDx.layout); i++) {
        val y = convert(F32, at(rY, i)), dy = convert(F32, at(rDy, i)), sum = sums[i % c->split.vec];
        val d =
            c->cfg->log ? fma(online_exp(ONLINE_NATURAL, y, immf(0)), mul(sum, immf(-1)), dy) : mul(y, sub(dy, sum));
        set(rDx, i, c->cfg->scaled ? mul(d, c->scale) : d);
    }
    column_store(&c->split, p, rDx, c->dx, c->cfg->dtype, c->ldx, c->n);
}

static const reduction summation = { .count = 1, .combine = combine_sum };

static void zero_sums(const columns *c, val *sums)
{
    for (int e = 0; e < c->split.vec; e++)
        sums[e] = variable(F32, immf(0));
}

static void backward(const columns *c)
{
    val sums[VEC_MAX];
    tensor rY, rDy; // (VEC,STEPS)
    load_gradients(c, &c->place, &rY, &rDy);
    meet_peers(c);
    zero_sums(c, sums);
    add_dots(c, rY, rDy, sums);
    column_reduce(&c->split, &summation, sums);
    store_gradients(c, &c->place, rY, rDy, sums);
}

void softmax_column(const void *config, int part)
{
    columns c = begin(config, part);
    if (c.cfg->direction == CKL_DIRECTION_FORWARD)
        forward(&c);
    else
        backward(&c);
}

/* Lines of a piece, and of all of them. */
static val piece_of(const columns *c)
{
    return imm((int)column_split_lines(&c->split));
}

static val lines_of(const columns *c)
{
    return convert(U32, c->n);
}

static void forward_long(const columns *c)
{
    val pairs[VEC_MAX * ONLINE_VALUES], factors[VEC_MAX];
    meet_peers(c);
    for (int e = 0; e < c->split.vec; e++)
        online_begin(pairs + e * ONLINE_VALUES);
    LOOP_FROM(start, imm(0), lines_of(c), piece_of(c))
    {
        column_place p = column_from(&c->place, start);
        tensor rT = scores(c, &p); // (VEC,STEPS)
        for (int e = 0; e < c->split.vec; e++)
            online_add(unit_of(c), pairs + e * ONLINE_VALUES, column_of(rT, e));
    }
    column_reduce(&c->split, &online_reductions[unit_of(c)], pairs);
    for (int e = 0; e < c->split.vec; e++) {
        const val *pair = pairs + e * ONLINE_VALUES;
        factors[e] = c->cfg->log ? online_log_sum(pair) : online_scale(pair);
    }
    LOOP_FROM(again, imm(0), lines_of(c), piece_of(c))
    {
        column_place p = column_from(&c->place, again);
        tensor rT = scores(c, &p), rE = registers(c, F32); // (VEC,STEPS)
        for (int i = 0; i < static_size(rE.layout); i++)
            set(rE, i,
                online_exp(ONLINE_BINARY, convert(F32, at(rT, i)),
                           pairs[i % c->split.vec * ONLINE_VALUES + ONLINE_MAX]));
        store_outputs(c, &p, c->cfg->log ? rT : rE, pairs, factors);
    }
}

static void backward_long(const columns *c)
{
    val sums[VEC_MAX];
    tensor rY, rDy; // (VEC,STEPS)
    meet_peers(c);
    zero_sums(c, sums);
    LOOP_FROM(start, imm(0), lines_of(c), piece_of(c))
    {
        column_place p = column_from(&c->place, start);
        load_gradients(c, &p, &rY, &rDy);
        add_dots(c, rY, rDy, sums);
    }
    column_reduce(&c->split, &summation, sums);
    LOOP_FROM(again, imm(0), lines_of(c), piece_of(c))
    {
        column_place p = column_from(&c->place, again);
        load_gradients(c, &p, &rY, &rDy);
        store_gradients(c, &p, rY, rDy, sums);
    }
}

void softmax_column_long(const void *config, int part)
{
    columns c = begin(config, part);
    if (c.cfg->direction == CKL_DIRECTION_FORWARD)
        forward_long(&c);
    else
        backward_long(&c);
}
