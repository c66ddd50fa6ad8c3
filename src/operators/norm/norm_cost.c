/* norm_cost.c - what configs of the norms cost. */
#include "base/math.h"
#include "operators/norm/norm_config.h"

static const double NORM_US = 0.2, // of rows in registers, beside a launch: gamma, beta and the statistics
    COLUMN_US = 1.2e-4;            // of the sums of a column

/* Rows that flow, or are taken tile by tile: those in registers have one tile. */
static row_work work_of(const norm_rows *d, const ckl_device_info *device, const norm_config *c)
{
    const int resident = c->ctas_per_sm ? c->ctas_per_sm : 1;
    return (row_work){ .rows = d->rows,
                       .cols = d->cols,
                       .dtype = d->dtype,
                       .vectors = d->affine,
                       .ctas_per_sm = c->ctas_per_sm,
                       .smem_bytes = c->flow.stages ? device->smem_per_sm_bytes / resident : 0,
                       .again = c->tiled ? 0.6 : 0,
                       .tile_cycles = c->tiled ? 600 : 0 };
}

plan_cost norm_cost_forward(const void *desc, const ckl_device_info *device, const void *config)
{
    const norm_rows *d = desc;
    const norm_config *c = config;
    row_work work = work_of(d, device, c);
    work.inputs = work.outputs = 1 + d->residual;
    static const memory_kernel in_registers = { .us = NORM_US }, flowing = { .us = 1.8, .lines = 3 },
                               held_flow = { .us = 1, .lines = 2 }; // its gamma and beta are read once
    const bool held = c->flow.stages && c->shared_weights;
    work.vectors = d->affine && !held;
    work.of = held ? held_flow : c->flow.stages ? flowing : in_registers;
    return row_cost(&work, &c->split, device);
}

/* And the sums of columns by another kernel: of what each group of CTAs kept, or of x and dy themselves. */
plan_cost norm_cost_backward(const void *desc, const ckl_device_info *device, const void *config)
{
    const norm_rows *d = desc;
    const norm_config *c = config;
    const double sums = d->affine ? 2.5 + COLUMN_US * (double)d->cols : 0;
    const memory_kernel in_registers = { .us = sums, .wait_cycles = 800, .bytes = 1.4 },
                        flowing = { .us = sums, .wait_cycles = -2700, .bytes = 0.8, .lines = 4 };
    row_work work = work_of(d, device, c);
    work.inputs = 2 + d->residual;
    work.outputs = 1;
    work.of = c->flow.stages ? flowing : in_registers;
    return row_cost(&work, &c->split, device);
}
