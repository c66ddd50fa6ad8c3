/*
 * softmax_column.c - rows that lie across memory, side by side: columns. A strip of them is read once and stays in the
 * registers of a CTA or a cluster.
 */
#include "operators/softmax/softmax_column.h"

#include "skeletons/prefetch.h"

/*
 * f32 scores are replaced by their exponentials. Packed scores take half the registers and stay, and a logarithm needs
 * them; their exponentials are computed again at the end.
 */
static void keep_exponentials(const columns *c, const tensor *rX)
{
    val pairs[VEC_MAX * ONLINE_VALUES], own[VEC_MAX], factors[VEC_MAX];
    const tensor rT = scores_of(c, rX[0]), rE = registers(c, F32); // (VEC,STEPS)
    for (int e = 0; e < c->split.vec; e++) {
        online_begin(pairs + e * ONLINE_VALUES);
        own[e] = online_add_keeping(pairs + e * ONLINE_VALUES, column_of(rT, e), column_of(rE, e));
    }
    column_reduce(&c->split, &c->place, &online_reduction, pairs);
    for (int e = 0; e < c->split.vec; e++)
        factors[e] = online_factor(pairs + e * ONLINE_VALUES, own[e]);
    store_outputs(c, &c->place, softmax_of_exponential, rE, pairs, factors);
}

static void keep_inputs(const columns *c, const tensor *rX)
{
    column_states found;
    begin_states(c, c->split.vec, found.of);
    sum_visit(c)(c, &c->place, rX, &found);
    column_reduce(&c->split, &c->place, softmax_reduction(c->form), found.of);
    find_factors(c, &found);
    write_visit(c)(c, &c->place, rX, &found);
}

/* Small inputs come to L2 while the launch before may still run; their lines follow each other. */
static void ask_early(const columns *c)
{
    val inputs[SOFTMAX_INPUTS_MAX];
    for (int i = 0; i < softmax_inputs(c->form); i++)
        inputs[i] = softmax_input(c->form, &c->p, i);
    prefetch_small_rows(inputs, softmax_inputs(c->form), mul(c->p.outer, c->p.n), c->p.inner, c->p.inner,
                        c->form->dtype);
}

void softmax_column(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    columns c = { .form = &cfg->form,
                  .split = kernel ? column_split_scalar(&cfg->split) : cfg->split,
                  .p = params_of(softmax) };
    const bool exponentials = softmax_is_forward(c.form) && !c.form->log && c.form->dtype == F32;
    tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    min_ctas_per_sm(cfg->form.ctas_per_sm);
    c.place = column_here(&c.split, c.p.n, c.p.inner, c.p.strips);
    ask_early(&c);
    if (cfg->early)
        launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    if (!cfg->early)
        launch_dependents();
    load_inputs(&c, &c.place, rX);
    cluster_meet(c.split.cluster);
    (exponentials ? keep_exponentials : keep_inputs)(&c, rX);
}
