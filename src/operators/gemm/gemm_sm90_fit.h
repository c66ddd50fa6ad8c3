/*
 * gemm_sm90_fit.h - coefficients and tiles: by hand, or from where a fit to bench/sweeps left them. A change must leave
 * the choice closer to the fastest of all problems that were timed in several configs: scripts/judge_costs.py --picks
 * --across.
 */
#pragma once

typedef struct gemm_fit {
    double launch_us, cycles_per_us, tensor_cores, idle, operands, three_consumers, step, step_least, sm_bytes,
        sm_bytes_one, spread, crossing_row, absent_row, short_row, latency, latency_L2, exchange, exchange_bytes,
        column_scale, partial, cluster, pair, long_pair, tile, trip, epilogue, boxes_of_32, boxes_of_16, gelu,
        flops_per_us, slice, sum_us, sum_bytes_per_us, memory_bytes_per_us, turn_us, memory_bytes_of_sm;
} gemm_fit;

static const gemm_fit fit = {
    .launch_us = 1.08,           // before the first tile and behind the last
    .cycles_per_us = 1755,       // the clock that cycles are counted in
    .tensor_cores = 1.19759,     // of the rate that the instructions promise
    .idle = 0.36,                // of that, what the clock gains where no SM has a CTA
    .operands = 1.3,             // how much reading operands from shared memory bounds narrow tiles
    .three_consumers = 1.04866,  // what three consumers lose
    .step = 0.215925,            // cycles of a K step that nothing overlaps
    .step_least = 210,           // cycles of one where a stage's arrival, products and release follow each other
    .sm_bytes = 66.5679,         // a cycle into an SM
    .sm_bytes_one = 75,          // the same of CTAs with one consumer
    .spread = 0.4,               // the power of SMs over CTAs by which that grows: L2 serves fewer
    .crossing_row = 1.6,         // cycles of a row that lies in two lines of memory
    .absent_row = 2.54842,       // cycles of a row beyond the last one: TMA fills it with zeros, slower than it loads
    .short_row = 4,              // of a row whose last box K ends inside, times the share of SMs at work
    .latency = 2595.26,          // cycles from asking for a stage to its arrival, when memory is busy
    .latency_L2 = 1800,          // and from L2 alone
    .exchange = 600,             // cycles of adding the partials of a split
    .exchange_bytes = 13,        // a cycle of what a CTA that finishes gets for it
    .column_scale = 1.5,         // cycles of a K step for each column that has a scale of its own
    .partial = 200,              // cycles of each sum of 64 rows that a consumer scales and adds in f32
    .cluster = 0.05,             // what each more CTA of a cluster adds to a step, unless rows are slow
    .pair = 0.97,                // times a step of a pair of 128x128 in batches, or with scales of blocks
    .long_pair = 0.985,          // times one of 128x256 in long products, which save power
    .tile = 700,                 // cycles from a tile's last product to the next tile's first, beside its stores
    .trip = 3000,                // cycles of a box of C or X from memory
    .epilogue = 0.1176,          // cycles of storing an element, of one consumer
    .boxes_of_32 = 1.27766,      // times that, in boxes of 32 columns
    .boxes_of_16 = 2.013,        // and of 16
    .gelu = 3.5,                 // times the epilogue with GELU: 4096x4096x512 in f16 takes 39.5 instead of 33.3 us
    .flops_per_us = 6e+06,       // of an SM within the power limit
    .slice = 0.3,                // cycles of storing a sum of a slice of K, in every turn but one
    .sum_us = 1.2,               // a second kernel, which adds slices of K; by 60 sliced rows below 15 us
    .sum_bytes_per_us = 4.2e+06, // of the sums of all slices, to L2 and back
    .memory_bytes_per_us = 4.3e+06, // of HBM, between copying and reading
    .turn_us = 0.1,                 // what a turn of tiles costs where memory binds and K is short
    .memory_bytes_of_sm = 45000,    // of it, that one SM can ask for, measured from 33 to 56
};

typedef struct fitted_tile { // in any order; where none can compute, the last one says why
    int tile_m;
    int tile_n;
    int consumers;
    bool pingpong;
    int cluster_m;
    int cluster_n;
    int split;
    bool swap;
} fitted_tile;

static const fitted_tile fitted_tiles[] = {
    { 64, 0, 1, 0, 1, 1, 8, 1 },    { 64, 0, 1, 0, 1, 1, 4, 1 },    { 64, 0, 1, 0, 1, 1, 2, 1 },
    { 128, 0, 2, 0, 1, 1, 1, 1 },   { 64, 0, 1, 0, 1, 1, 1, 1 },    { 64, 16, 1, 0, 1, 1, 1, 0 },
    { 64, 96, 1, 0, 1, 1, 8, 0 },   { 64, 48, 1, 0, 1, 1, 8, 0 },   { 64, 64, 1, 0, 1, 2, 4, 0 },
    { 64, 128, 1, 0, 1, 1, 2, 0 },  { 64, 48, 1, 0, 1, 1, 4, 0 },   { 192, 192, 3, 0, 2, 1, 1, 0 },
    { 128, 256, 2, 0, 2, 1, 1, 0 }, { 128, 224, 2, 0, 1, 1, 1, 0 }, { 128, 192, 2, 1, 1, 1, 1, 0 },
    { 128, 192, 2, 1, 2, 1, 1, 0 }, { 128, 176, 2, 1, 1, 1, 1, 0 }, { 192, 128, 3, 0, 1, 2, 1, 0 },
    { 128, 160, 2, 0, 1, 1, 1, 0 }, { 128, 128, 2, 1, 1, 1, 1, 0 }, { 128, 128, 2, 1, 1, 2, 1, 0 },
    { 128, 128, 2, 0, 1, 2, 1, 0 }, { 64, 192, 1, 0, 1, 1, 1, 0 },  { 128, 96, 2, 0, 2, 1, 1, 0 },
    { 64, 128, 2, 1, 1, 1, 1, 0 },  { 64, 128, 2, 1, 2, 1, 1, 0 },  { 128, 128, 2, 1, 2, 1, 1, 0 },
    { 64, 128, 1, 0, 1, 1, 1, 0 },  { 64, 128, 1, 0, 2, 1, 1, 0 },  { 64, 96, 1, 0, 1, 1, 1, 0 },
    { 64, 96, 1, 0, 2, 1, 1, 0 },   { 64, 64, 2, 1, 1, 1, 1, 0 },   { 64, 64, 1, 0, 1, 2, 1, 0 },
    { 64, 64, 1, 0, 1, 1, 1, 0 },   { 64, 96, 1, 0, 2, 1, 2, 0 },   { 128, 64, 2, 0, 2, 1, 1, 0 },
    { 128, 128, 2, 0, 1, 1, 2, 0 }, { 64, 0, 2, 1, 1, 1, 1, 1 },    { 64, 16, 2, 1, 1, 1, 1, 0 },
    { 64, 32, 2, 1, 1, 1, 1, 0 },   { 64, 32, 1, 0, 1, 1, 1, 0 },
};
