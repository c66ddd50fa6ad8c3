/*
 * attention_cost.c - predicted times. Of the Hopper kernels: products and exponentials of the blocks that their tiles
 * see. Rates are those that long problems reached on an H200 (bench/notes/attention.md), so the waits within a block
 * are in them.
 */
#include <math.h>

#include "operators/attention/attention_config.h"
#include "skeletons/product_cost.h"

static const double PRODUCTS = 1600, // of tensor cores of an SM in a cycle
    WEIGHTS = 8,                     // scores that become weights in a cycle
    TILE = 1000, START = 3000,       // cycles of a tile, and of a launch
    CYCLES = 1.7e3, BYTES = 4.2e6;   // in a us

/* The problem with sequences of the mean length. */
static ckl_attention_desc even(const ckl_attention_desc *d)
{
    ckl_attention_desc e = *d;
    if (d->ragged && d->batch) {
        e.q = ceil_div(d->q_total, d->batch);
        e.kv = ceil_div(d->kv_total, d->batch);
    }
    return e;
}

/* The mean number of keys that a query sees, over a few queries at equal distances. */
static double keys_seen(const ckl_attention_desc *d)
{
    enum { QUERIES = 16 };
    double sum = 0;
    for (int i = 0; i < QUERIES; i++) {
        const double own = (i + 0.5) / QUERIES * (double)d->q + (double)(d->kv - d->q);
        const double first = d->left ? own + 1 - (double)d->left : 0;
        const double end = d->causal || d->right ? own + 1 + (double)d->right : (double)d->kv;
        sum += fmax(0, fmin((double)d->kv, end) - fmax(0, first));
    }
    return sum / QUERIES;
}

/* The cost of `tiles` tiles of rows, each of which sees `seen` columns, whose products have `depth` factors in all. */
static plan_cost of_tiles(const ckl_attention_desc *d, const ckl_device_info *device, double tiles, double rows,
                          double columns, double seen, double depth, bool drawn)
{
    const double edges = (d->causal || d->right ? 0.5 : 0) + (d->left ? 0.5 : 0);
    const double blocks = fmax(1, ceil(seen / columns - 1e-9) + edges),
                 each = drawn ? tiles / device->sm_count : ceil(tiles / device->sm_count);
    const double multiply = rows * columns * depth / PRODUCTS, weigh = rows * columns / WEIGHTS;
    const double us = (fmax(1, each) * (blocks * fmax(multiply, weigh) + TILE) + START) / CYCLES;
    const double memory = 2 * (double)(d->batch * d->heads) *
                          ((double)d->q + (double)d->kv * (double)d->kv_heads / (double)d->heads) *
                          (double)(d->d + d->dv) / BYTES;
    if (memory > us)
        return (plan_cost){ memory, "memory" };
    return (plan_cost){ us, multiply > weigh ? "tensor cores" : "exponentials" };
}

plan_cost attention_sm90_cost(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_desc of = even(desc), *d = &of;
    const attention_sm90_config *c = config;
    const double rows = (double)c->consumers * ATTENTION_ROWS;
    const double tiles = ceil((double)d->q / rows) * (double)(d->batch * d->heads);
    return of_tiles(d, device, tiles, rows, c->tile_n, keys_seen(d), (double)(d->d + d->dv), c->draw);
}

static const double GRADIENTS = 1.45; // times the forward's cycles: operands pass through shared memory

plan_cost attention_sm90_backward_cost(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_desc of = even(desc), *d = &of;
    const attention_sm90_backward_config *c = config;
    const double rows = (double)c->consumers * ATTENTION_ROWS, seen = keys_seen(d);
    const double group = (double)d->heads / (double)d->kv_heads, of_keys = fmax(1, (double)d->kv);
    const bool sums = attention_backward_sums_queries(c); // and dQ
    plan_cost keys =
        of_tiles(d, device, ceil(of_keys / rows) * (double)(d->batch * d->kv_heads), rows, c->block,
                 seen * (double)d->q * group / of_keys, (double)(2 * (d->d + d->dv) + (sums ? d->d : 0)), true);
    keys.us *= GRADIENTS;
    if (sums)
        return keys;
    const plan_cost queries = of_tiles(d, device, ceil((double)d->q / rows) * (double)(d->batch * d->heads), rows,
                                       c->keys, seen, (double)(2 * d->d + d->dv), true);
    return (plan_cost){ keys.us + GRADIENTS * queries.us, keys.bound };
}

/* The portable kernels: tiles of queries, and a thread for each row. */

plan_cost attention_sm80_cost(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_desc of = even(desc), *d = &of;
    const attention_sm80_config *c = config;
    const int rows = c->warps * c->warp_rows;
    const double tokens = (double)d->batch * ((double)(d->heads * d->q) + (double)(d->kv_heads * d->kv));
    return product_cost(&(product_work){ .tiles = ceil((double)d->q / rows) * (double)(d->batch * d->heads),
                                         .ctas = 8 / c->warps > 1 ? 8 / c->warps : 1,
                                         .steps = fmax(1, ceil(keys_seen(d) / c->tile_n)),
                                         .multiply_adds = (double)(rows * c->tile_n) * (double)(d->d + d->dv),
                                         .rate = 600,
                                         .step_cycles = 900,
                                         .tile_cycles = 1500,
                                         .bytes = 2 * (double)(d->d + d->dv) * tokens },
                        device);
}

plan_cost attention_rows_cost(const ckl_device_info *device, int threads, double rows, double keys, double products)
{
    return product_cost(&(product_work){ .tiles = rows / threads,
                                         .ctas = 2048 / threads,
                                         .steps = fmax(1, keys),
                                         .multiply_adds = threads * products,
                                         .rate = 1,
                                         .step_cycles = 30 * products },
                        device);
}

/* Rows of O; or of dQ, and of dK and dV. */
plan_cost attention_naive_cost(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_attention_desc of = even(desc), *d = &of;
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    return attention_rows_cost(device, ((const attention_naive_config *)config)->threads,
                               (double)((is_forward ? 1 : 2) * d->batch * d->heads * d->q), keys_seen(d),
                               (double)(is_forward ? 2 * d->d + d->dv : 3 * d->d + 2 * d->dv));
}
