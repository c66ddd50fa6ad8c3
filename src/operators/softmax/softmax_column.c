/*
 * softmax_column.c - rows that lie across memory, side by side: columns. `column`: a strip of them is read once and
 * stays in the registers of a CTA or a cluster. `column_long`: strips of any length are read twice by one CTA or cluster.
 */
#include "operators/softmax/softmax_column.h"

static columns begin(const softmax_column_config *cfg, int kernel)
{
    columns c = { .form = &cfg->form,
                  .split = kernel ? column_split_scalar(&cfg->split) : cfg->split,
                  .p = params_of(softmax) };
    min_ctas_per_sm(cfg->form.ctas_per_sm);
    c.place = shifted(&c, column_here(&c.split, c.p.n, c.p.inner, c.p.strips));
    return c;
}

static tensor load_scores(const columns *c, const column_place *place)
{
    tensor rX = registers(c, c->form->dtype); // (VEC,STEPS)
    column_load(&c->split, place, c->p.x, c->form->dtype, c->p.ldx, c->p.n, rX, -INFINITY);
    return scores_of(c, rX);
}

/* Columns in registers */

/*
 * Adds column e to its pair. f32 scores are replaced by their exponentials, relative to the maximum that is returned.
 * Packed scores take half the registers and stay; their exponentials are computed again at the end.
 */
static val add_column(tensor rT, tensor rE, int e, val *pair)
{
    online_begin(pair);
    if (rE.regs)
        return online_add_keeping(pair, column_of(rT, e), column_of(rE, e));
    online_add(pair, column_of(rT, e));
    return pair[ONLINE_MAX];
}

static void forward(const columns *c)
{
    val pairs[VEC_MAX * ONLINE_VALUES], own[VEC_MAX], factors[VEC_MAX];
    const bool keeps = !c->form->log && c->form->dtype == F32;
    tensor rT = load_scores(c, &c->place), rE = { 0 }; // (VEC,STEPS)
    if (keeps)
        rE = registers(c, F32);
    cluster_meet(c->split.cluster);
    for (int e = 0; e < c->split.vec; e++)
        own[e] = add_column(rT, rE, e, pairs + e * ONLINE_VALUES);
    column_reduce(&c->split, &c->place, &online_reduction, pairs);
    for (int e = 0; e < c->split.vec; e++) {
        const val *pair = pairs + e * ONLINE_VALUES;
        factors[e] = keeps ? online_factor(pair, own[e]) : softmax_factor(c->form, pair);
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
    cluster_meet(c->split.cluster);
    begin_states(c, c->split.vec, sums);
    add_dots(c, rY, rDy, sums);
    column_reduce(&c->split, &c->place, softmax_reduction(c->form), sums);
    store_gradients(c, &c->place, rY, rDy, sums);
}

void softmax_column(const void *config, int kernel)
{
    columns c = begin(config, kernel);
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    if (softmax_is_forward(c.form))
        forward(&c);
    else
        backward(&c);
}

/* Columns that are read twice */

static void copy_inputs(const columns *c, const tensor *from, const tensor *to)
{
    for (int i = 0; i < softmax_pipeline_inputs(c->form); i++)
        for (int j = 0; j < static_size(to[i].layout); j++)
            assign(to[i].regs[index_at(to[i].layout, j)], at(from[i], j));
}

/* Tile i of a pass over `tiles`; past the last one there are no lines. */
static column_place tile_of_pass(const columns *c, val tiles, val i, bool backwards)
{
    const val lines = convert(U32, c->p.n), tile = imm((int)column_split_lines(&c->split));
    const val number = backwards ? sub(sub(tiles, imm(1)), i) : i;
    return column_from(&c->place, select(lt(i, tiles), mul(number, tile), lines));
}

/* The next tile is loaded during this one. Backwards: what was read last may still be in L2. */
static void over_tiles(const columns *c, bool backwards, tile_visit *visit, void *user)
{
    const int lines = (int)column_split_lines(&c->split);
    const val tiles = div(add(convert(U32, c->p.n), imm(lines - 1)), imm(lines));
    tensor rX[INPUTS_MAX], rNext[INPUTS_MAX]; // (VEC,STEPS)
    column_place first = tile_of_pass(c, tiles, imm_as(U32, 0), backwards);
    load_inputs(c, &first, rX);
    LOOP(i, tiles) {
        column_place here = tile_of_pass(c, tiles, i, backwards);
        column_place next = tile_of_pass(c, tiles, add(i, imm(1)), backwards);
        load_inputs(c, &next, rNext);
        visit(c, &here, rX, user);
        copy_inputs(c, rNext, rX);
    }
}

static void read_twice(const columns *c)
{
    column_states found;
    grid_wait(); // no launch_dependents(): early CTAs of the next kernel would crowd some SMs
    cluster_meet(c->split.cluster);
    begin_states(c, c->split.vec, found.of);
    over_tiles(c, false, sum_visit(c), &found);
    column_reduce(&c->split, &c->place, softmax_reduction(c->form), found.of);
    find_factors(c, &found);
    over_tiles(c, true, write_visit(c), &found);
}

void softmax_column_long(const void *config, int kernel)
{
    columns c = begin(config, kernel);
    read_twice(&c);
}
