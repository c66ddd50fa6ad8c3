/*
 * softmax_column.c - rows that lie across memory, side by side: columns. `column`: a strip of them is read once and stays in the
 * registers of a CTA or a cluster. `column_pipeline`: it stays in shared memory, tile by tile; the next strip arrives where this
 * one leaves. `column_long`: strips of any length are read twice.
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
static tensor scores_of(const columns *c, tensor rX)
{
    if (!c->form->scaled)
        return rX;
    tensor rT = registers(c, F32); // (VEC,STEPS)
    for (int i = 0; i < static_size(rT.layout); i++)
        set(rT, i, mul(at_f32(rX, i), c->p.scale));
    return rT;
}

static tensor load_scores(const columns *c, const column_place *place)
{
    tensor rX = registers(c, c->form->dtype); // (VEC,STEPS)
    column_load(&c->split, place, c->p.x, c->form->dtype, c->p.ldx, c->p.n, rX, -INFINITY);
    return scores_of(c, rX);
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
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    if (c.form->direction == CKL_DIRECTION_FORWARD)
        forward(&c);
    else
        backward(&c);
}

/* Columns in shared memory */

/*
 * A thread copies its part of a strip to slots of its own and reads it from there twice, so that no thread waits for another but to
 * reduce. The second pass hands each slot to the strip after this one: its loads run under the stores of this one.
 */
typedef struct column_flow {
    columns c;
    int tiles;
    val slots;                // the address of those of the first tile
    column_place place, next; // in the strip at work, and in the one after it
    val has_next;
} column_flow;

static int64_t tile_bytes(const column_flow *f)
{
    return column_slots_bytes(&f->c.split) * softmax_pipeline_inputs(f->c.form);
}

/* Where the slots of a tile and an input are. */
static val slots_at(const column_flow *f, val tile, int input)
{
    val first = add(f->slots, imm_as(U32, input * column_slots_bytes(&f->c.split)));
    return add(first, mul(tile, imm_as(U32, tile_bytes(f))));
}

static column_place tile_at_line(const column_flow *f, const column_place *strip, val tile)
{
    return column_from(strip, mul(tile, imm((int)column_split_lines(&f->c.split))));
}

/* Asks for a tile of a strip. A strip that does not exist gives an empty group. */
static void stage_tile(const column_flow *f, const column_place *strip, val exists, val tile)
{
    const columns *c = &f->c;
    const bool is_forward = c->form->direction == CKL_DIRECTION_FORWARD;
    IF(exists) {
        column_place at = tile_at_line(f, strip, tile);
        column_stage(&c->split, &at, is_forward ? c->p.x : c->p.y, c->form->dtype, is_forward ? c->p.ldx : c->p.ldy,
                     c->p.n, slots_at(f, tile, 0));
        if (!is_forward)
            column_stage(&c->split, &at, c->p.dy, c->form->dtype, c->p.ldy, c->p.n, slots_at(f, tile, 1));
    }
    cp_async_commit();
}

static tensor staged(const column_flow *f, const column_place *at, val tile, int input, double outside)
{
    tensor rX = registers(&f->c, f->c.form->dtype); // (VEC,STEPS)
    column_load_staged(&f->c.split, at, f->c.form->dtype, slots_at(f, tile, input), rX, outside);
    return rX;
}

/*
 * Calls visit() for each tile of the strip, the first pass once it has arrived, the second one before its slots are handed on. Either
 * way a tile leaves one group, so that `tiles` - 1 of them are younger than the tile that is waited for.
 */
typedef void tile_visit(const column_flow *f, const column_place *at, val tile, void *user);

static void first_pass(const column_flow *f, tile_visit *visit, void *user)
{
    LOOP(tile, imm(f->tiles)) {
        column_place at = tile_at_line(f, &f->place, tile);
        cp_async_wait(f->tiles - 1);
        visit(f, &at, tile, user);
        cp_async_commit();
    }
}

static void second_pass(const column_flow *f, tile_visit *visit, void *user)
{
    LOOP(tile, imm(f->tiles)) {
        column_place at = tile_at_line(f, &f->place, tile);
        visit(f, &at, tile, user);
        stage_tile(f, &f->next, f->has_next, tile);
    }
}

/* Over the cluster. Nobody writes to a CTA that has not yet read the results of the strip before. */
static void reduce_strip(const columns *c, const reduction *r, val *values)
{
    if (c->split.cluster > 1)
        cluster_wait();
    column_reduce(&c->split, r, values);
    if (c->split.cluster > 1)
        cluster_arrive();
}

typedef struct column_scores {
    val pairs[VEC_MAX * ONLINE_VALUES], factors[VEC_MAX];
} column_scores;

static void add_scores(const column_flow *f, const column_place *at, val tile, void *user)
{
    column_scores *found = user;
    tensor rT = scores_of(&f->c, staged(f, at, tile, 0, -INFINITY)); // (VEC,STEPS)
    for (int e = 0; e < f->c.split.vec; e++)
        online_add(softmax_unit(f->c.form), found->pairs + e * ONLINE_VALUES, column_of(rT, e));
}

static void write_outputs(const column_flow *f, const column_place *at, val tile, void *user)
{
    const column_scores *found = user;
    tensor rT = scores_of(&f->c, staged(f, at, tile, 0, -INFINITY)); // (VEC,STEPS)
    store_outputs(&f->c, at, f->c.form->log ? rT : exponentials(&f->c, rT, found->pairs), found->pairs, found->factors);
}

static void forward_strip(const column_flow *f)
{
    column_scores found;
    for (int e = 0; e < f->c.split.vec; e++)
        online_begin(found.pairs + e * ONLINE_VALUES);
    first_pass(f, add_scores, &found);
    reduce_strip(&f->c, softmax_reduction(f->c.form), found.pairs);
    for (int e = 0; e < f->c.split.vec; e++)
        found.factors[e] = softmax_factor(f->c.form, found.pairs + e * ONLINE_VALUES);
    second_pass(f, write_outputs, &found);
}

static void add_tile_dots(const column_flow *f, const column_place *at, val tile, void *user)
{
    add_dots(&f->c, staged(f, at, tile, 0, 0), staged(f, at, tile, 1, 0), user);
}

static void write_gradients(const column_flow *f, const column_place *at, val tile, void *user)
{
    store_gradients(&f->c, at, staged(f, at, tile, 0, 0), staged(f, at, tile, 1, 0), user);
}

static void backward_strip(const column_flow *f)
{
    val sums[VEC_MAX];
    zero_sums(&f->c, sums);
    first_pass(f, add_tile_dots, sums);
    reduce_strip(&f->c, &softmax_sum, sums);
    second_pass(f, write_gradients, sums);
}

/* CTAs stay and take every so many-th strip, so that neighbouring strips, which share lines of memory, are at work together. */
static void flow_columns(const softmax_column_config *cfg)
{
    column_flow f = { .c = { .form = &cfg->form, .split = cfg->split, .p = params_of(softmax) }, .tiles = cfg->tiles };
    const columns *c = &f.c;
    launch_bounds(cfg->split.threads, cfg->form.ctas_per_sm);
    cluster_size(cfg->split.cluster);
    f.slots = smem_address(smem_alloc("strip", cfg->tiles * tile_bytes(&f), 16));
    val all = mul(convert(U32, c->p.outer), c->p.strips);
    val cluster = imm(cfg->split.cluster), clusters = div(grid_x(), cluster), first = div(cta_x(), cluster);
    if (cfg->split.cluster > 1)
        cluster_arrive();
    grid_wait(); // no launch_dependents(): CTAs that stay would share their SMs with the next kernel's
    f.place = column_in_strip(&c->split, c->p.n, c->p.inner, c->p.strips, first);
    LOOP(tile, imm(f.tiles))
        stage_tile(&f, &f.place, yes(), tile);
    LOOP_FROM(strip, first, all, clusters) {
        val next = add(strip, clusters);
        f.place = column_in_strip(&c->split, c->p.n, c->p.inner, c->p.strips, strip);
        f.next = column_in_strip(&c->split, c->p.n, c->p.inner, c->p.strips, next);
        f.has_next = lt(next, all);
        if (cfg->form.direction == CKL_DIRECTION_FORWARD)
            forward_strip(&f);
        else
            backward_strip(&f);
    }
    if (cfg->split.cluster > 1)
        cluster_wait();
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

static void read_twice(const columns *c)
{
    grid_wait(); // no launch_dependents(): early CTAs of the next kernel would crowd some SMs
    if (c->form->direction == CKL_DIRECTION_FORWARD)
        forward_long(c);
    else
        backward_long(c);
}

void softmax_column_long(const void *config, int kernel)
{
    columns c = begin(config, kernel);
    read_twice(&c);
}

void softmax_column_pipeline(const void *config, int kernel)
{
    if (kernel == 0) {
        flow_columns(config);
        return;
    }
    columns c = begin(config, kernel);
    read_twice(&c);
}
