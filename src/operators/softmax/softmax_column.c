/*
 * softmax_column.c - rows that lie across memory, side by side: columns. `column`: a strip of them is read once and stays in the
 * registers of a CTA or a cluster. `column_long`: strips of any length are read twice, tile by tile.
 */
#include "operators/softmax/softmax_form.h"

enum { VEC_MAX = 8 };

typedef struct columns {
    const softmax_form *form;
    column_split split;
    softmax_values p;
    column_place place; // of this thread in its strip
} columns;

static columns begin(const softmax_column_config *cfg, int kernel)
{
    columns c = { .form = &cfg->form,
                  .split = kernel ? column_split_scalar(&cfg->split) : cfg->split,
                  .p = params_of(softmax) };
    min_ctas_per_sm(cfg->form.ctas_per_sm);
    c.place = column_here(&c.split, c.p.n, c.p.inner, c.p.strips);
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    return c;
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
static tensor load_scores(const columns *c, const column_place *place)
{
    tensor rX = registers(c, c->form->dtype); // (VEC,STEPS)
    column_load(&c->split, place, c->p.x, c->form->dtype, c->p.ldx, c->p.n, rX, -INFINITY);
    if (!c->form->scaled)
        return rX;
    tensor rT = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rT.layout); i++)
        set(rT, i, mul(at_f32(rX, i), c->p.scale));
    return rT;
}

/* y of scores by log-softmax, of their exponentials by softmax; pairs and factors are those of the columns. */
static void store_outputs(const columns *c, const column_place *place, tensor rT, const val *pairs, const val *factors)
{
    tensor rY = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rY.layout); i++) {
        const int e = i % c->split.vec;
        set(rY, i, softmax_output(c->form, at(rT, i), pairs + e * ONLINE_VALUES, factors[e]));
    }
    column_store(&c->split, place, rY, c->p.y, c->form->dtype, c->p.ldy, c->p.n);
}

/* y and dy; zeros outside. */
static void load_gradients(const columns *c, const column_place *place, tensor *rY, tensor *rDy)
{
    *rY = registers(c, c->form->dtype);  // (VEC,STEPS)
    *rDy = registers(c, c->form->dtype); // (VEC,STEPS)
    column_load(&c->split, place, c->p.y, c->form->dtype, c->p.ldy, c->p.n, *rY, 0);
    column_load(&c->split, place, c->p.dy, c->form->dtype, c->p.ldy, c->p.n, *rDy, 0);
}

static void add_dots(const columns *c, tensor rY, tensor rDy, const val *sums)
{
    for (int e = 0; e < c->split.vec; e++)
        assign(sums[e], add(sums[e], softmax_dot(c->form, column_of(rY, e), column_of(rDy, e))));
}

static void store_gradients(const columns *c, const column_place *place, tensor rY, tensor rDy, const val *sums)
{
    tensor rDx = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rDx.layout); i++)
        set(rDx, i, softmax_gradient(c->form, at(rY, i), at(rDy, i), sums[i % c->split.vec], c->p.scale));
    column_store(&c->split, place, rDx, c->p.dx, c->form->dtype, c->p.ldx, c->p.n);
}

static void zero_sums(const columns *c, val *sums)
{
    for (int e = 0; e < c->split.vec; e++)
        sums[e] = variable(F32, immf(0));
}

/* exp(t - max) of a tile. */
static tensor exponentials(const columns *c, tensor rT, const val *pairs)
{
    tensor rE = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rE.layout); i++) {
        const val *pair = pairs + i % c->split.vec * ONLINE_VALUES;
        set(rE, i, online_exp(ONLINE_BINARY, at_f32(rT, i), pair[ONLINE_MAX]));
    }
    return rE;
}

/* Columns in registers */

/*
 * Adds column e to its pair. f32 scores make room for their exponentials, relative to the maximum that is returned; packed ones
 * take half as many registers, so that exponentials are computed again in the end.
 */
static val add_column(const columns *c, tensor rT, tensor rE, int e, val *pair)
{
    online_begin(pair);
    if (rE.regs)
        return online_add_keeping(ONLINE_BINARY, pair, column_of(rT, e), column_of(rE, e));
    online_add(softmax_unit(c->form), pair, column_of(rT, e));
    return pair[ONLINE_MAX];
}

static void forward(const columns *c)
{
    val pairs[VEC_MAX * ONLINE_VALUES], own[VEC_MAX], factors[VEC_MAX];
    const bool keeps = !c->form->log && c->form->dtype == F32;
    tensor rT = load_scores(c, &c->place), rE = { 0 }; // (VEC,STEPS)
    if (keeps)
        rE = registers(c, F32);
    softmax_meet_peers(c->split.cluster);
    for (int e = 0; e < c->split.vec; e++)
        own[e] = add_column(c, rT, rE, e, pairs + e * ONLINE_VALUES);
    column_reduce(&c->split, softmax_reduction(c->form), pairs);
    for (int e = 0; e < c->split.vec; e++) {
        const val *pair = pairs + e * ONLINE_VALUES;
        factors[e] = keeps ? online_factor(ONLINE_BINARY, pair, own[e]) : softmax_factor(c->form, pair);
    }
    if (!keeps)
        rE = c->form->log ? rT : exponentials(c, rT, pairs);
    store_outputs(c, &c->place, rE, pairs, factors);
}

static void backward(const columns *c)
{
    val sums[VEC_MAX];
    tensor rY, rDy; // (VEC,STEPS)
    load_gradients(c, &c->place, &rY, &rDy);
    softmax_meet_peers(c->split.cluster);
    zero_sums(c, sums);
    add_dots(c, rY, rDy, sums);
    column_reduce(&c->split, &softmax_sum, sums);
    store_gradients(c, &c->place, rY, rDy, sums);
}

void softmax_column(const void *config, int kernel)
{
    columns c = begin(config, kernel);
    if (c.form->direction == CKL_DIRECTION_FORWARD)
        forward(&c);
    else
        backward(&c);
}

/* Columns that are read twice */

/* Lines of a tile, and of all of them. */
static val tile_of(const columns *c)
{
    return imm((int)column_split_lines(&c->split));
}

static val lines_of(const columns *c)
{
    return convert(U32, c->p.n);
}

static void forward_long(const columns *c)
{
    val pairs[VEC_MAX * ONLINE_VALUES], factors[VEC_MAX];
    softmax_meet_peers(c->split.cluster);
    for (int e = 0; e < c->split.vec; e++)
        online_begin(pairs + e * ONLINE_VALUES);
    LOOP_FROM(start, imm(0), lines_of(c), tile_of(c)) {
        column_place tile = column_from(&c->place, start);
        tensor rT = load_scores(c, &tile); // (VEC,STEPS)
        for (int e = 0; e < c->split.vec; e++)
            online_add(softmax_unit(c->form), pairs + e * ONLINE_VALUES, column_of(rT, e));
    }
    column_reduce(&c->split, softmax_reduction(c->form), pairs);
    for (int e = 0; e < c->split.vec; e++)
        factors[e] = softmax_factor(c->form, pairs + e * ONLINE_VALUES);
    LOOP_FROM(again, imm(0), lines_of(c), tile_of(c)) {
        column_place tile = column_from(&c->place, again);
        tensor rT = load_scores(c, &tile); // (VEC,STEPS)
        store_outputs(c, &tile, c->form->log ? rT : exponentials(c, rT, pairs), pairs, factors);
    }
}

static void backward_long(const columns *c)
{
    val sums[VEC_MAX];
    tensor rY, rDy; // (VEC,STEPS)
    softmax_meet_peers(c->split.cluster);
    zero_sums(c, sums);
    LOOP_FROM(start, imm(0), lines_of(c), tile_of(c)) {
        column_place tile = column_from(&c->place, start);
        load_gradients(c, &tile, &rY, &rDy);
        add_dots(c, rY, rDy, sums);
    }
    column_reduce(&c->split, &softmax_sum, sums);
    LOOP_FROM(again, imm(0), lines_of(c), tile_of(c)) {
        column_place tile = column_from(&c->place, again);
        load_gradients(c, &tile, &rY, &rDy);
        store_gradients(c, &tile, rY, rDy, sums);
    }
}

void softmax_column_long(const void *config, int kernel)
{
    columns c = begin(config, kernel);
    if (c.form->direction == CKL_DIRECTION_FORWARD)
        forward_long(&c);
    else
        backward_long(&c);
}
