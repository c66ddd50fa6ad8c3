/*
 * softmax_column.c - rows that lie across memory, side by side: columns. A strip of them is read once and stays in the
 * registers of a CTA or a cluster.
 */
#include "operators/softmax/softmax_column.h"

void softmax_column(const void *config, int kernel)
{
    const softmax_column_config *cfg = config;
    columns c = { .form = &cfg->form,
                  .split = kernel ? column_split_scalar(&cfg->split) : cfg->split,
                  .p = params_of(softmax) };
    column_states found;
    tensor rX[SOFTMAX_INPUTS_MAX]; // (VEC,STEPS)
    min_ctas_per_sm(cfg->form.ctas_per_sm);
    c.place = column_here(&c.split, c.p.n, c.p.inner, c.p.strips);
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    load_inputs(&c, &c.place, rX);
    cluster_meet(c.split.cluster);
    begin_states(&c, c.split.vec, found.of);
    sum_visit (&c)(&c, &c.place, rX, &found);
    column_reduce(&c.split, &c.place, softmax_reduction(c.form), found.of);
    find_factors(&c, &found);
    write_visit (&c)(&c, &c.place, rX, &found);
}
