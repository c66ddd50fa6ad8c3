/*
 * softmax_column.c - rows that lie across memory, side by side: columns. A strip of them is read once and stays in the
 * registers of a CTA or a cluster.
 */
#include "operators/softmax/softmax_column.h"

static columns begin(const softmax_column_config *cfg, int kernel)
{
    columns c = { .form = &cfg->form,
                  .split = kernel ? column_split_scalar(&cfg->split) : cfg->split,
                  .p = params_of(softmax) };
    min_ctas_per_sm(cfg->form.ctas_per_sm);
    c.place = column_here(&c.split, c.p.n, c.p.inner, c.p.strips);
    return c;
}

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
    tensor rX[SOFTMAX_INPUTS_MAX], rE = { 0 }; // (VEC,STEPS)
    load_inputs(c, &c->place, rX);
    const tensor rT = scores_of(c, rX[0]); // (VEC,STEPS)
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
    if (keeps)
        store_outputs(c, &c->place, softmax_of_exponential, rE, pairs, factors);
    else
        store_outputs(c, &c->place, softmax_of_score, rT, pairs, factors);
}

static void backward(const columns *c)
{
    column_states sums;
    tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    load_inputs(c, &c->place, rX);
    cluster_meet(c->split.cluster);
    begin_states(c, c->split.vec, sums.of);
    add_dots(c, &c->place, rX, &sums);
    column_reduce(&c->split, &c->place, softmax_reduction(c->form), sums.of);
    write_gradients(c, &c->place, rX, &sums);
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
