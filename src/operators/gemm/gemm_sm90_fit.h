/* gemm_sm90_fit.h - coefficients and tiles, written by scripts/fit_gemm.py from bench/sweeps; never by hand. */
#pragma once

typedef struct gemm_fit {
    double launch_us;       // before the first tile and behind the last
    double cycles_per_us;   // the clock that cycles are counted in; not fitted
    double tensor_cores;    // of the rate that the instructions promise
    double idle;            // of that, what the clock gains where no SM has a CTA; not fitted
    double operands;        // how much reading operands from shared memory bounds narrow tiles; not fitted
    double three_consumers; // what three consumers lose
    double step;            // cycles of a K step that nothing overlaps
    double step_least;      // cycles of one where a stage's arrival, products and release follow each other; not fitted
    double sm_bytes;        // a cycle into an SM
    double spread;          // the power of SMs over CTAs by which that grows: L2 serves fewer; not fitted
    double crossing_row;    // cycles of a row that lies in two lines of memory; not fitted
    double absent_row;      // cycles of a row beyond the last one: TMA fills it with zeros, slower than it loads
    double short_row;       // of a row whose last box K ends inside, times the share of SMs at work; not fitted
    double sm_bytes_one;    // the same of CTAs with one consumer
    double latency;         // cycles from asking for a stage to its arrival, when memory is busy
    double latency_L2;      // and from L2 alone; not fitted
    double exchange;        // cycles of adding the partials of a split
    double exchange_bytes;  // a cycle of what a CTA that finishes gets for it
    double column_scale;    // cycles of a K step for each column that has a scale of its own; not fitted
    double partial;         // cycles of each sum of 64 rows that a consumer scales and adds in f32; not fitted
    double cluster;         // what each more CTA of a cluster adds to a step, unless rows are slow; not fitted
    double pair;            // times a step of a pair of 128x128 in batches, or with scales of blocks; not fitted
    double tile;            // cycles from a tile's last product to the next tile's first, beside its stores; not fitted
    double trip;            // cycles of a box of C or X from memory; not fitted
    double epilogue;        // cycles of storing an element, of one consumer; this and the three below are kept
    double boxes_of_32;     // times that, in boxes of 32 columns
    double boxes_of_16;     // and of 16
    double gelu;         // times the epilogue with GELU: 4096x4096x512 in f16 takes 39.5 instead of 33.3 us; not fitted
    double flops_per_us; // of an SM within the power limit; not fitted
    double slice;        // cycles of storing a sum of a slice of K, in every turn but one; not fitted
    double sum_us;       // a second kernel, which adds slices of K; by 60 sliced rows below 15 us; not fitted
    double sum_bytes_per_us;    // of the sums of all slices, to L2 and back; not fitted
    double memory_bytes_per_us; // of HBM, between copying and reading; not fitted
    double turn_us;             // what a turn of tiles costs where memory binds and K is short; not fitted
    double memory_bytes_of_sm;  // of it, that one SM can ask for, measured from 33 to 56; not fitted
} gemm_fit;

static const gemm_fit fit = {
    .launch_us = 1.08,
    .cycles_per_us = 1755,
    .tensor_cores = 1.19759,
    .idle = 0.36,
    .operands = 1.3,
    .three_consumers = 1.04866,
    .step = 0.215925,
    .step_least = 210,
    .sm_bytes = 66.5679,
    .spread = 0.4,
    .crossing_row = 1.85,
    .absent_row = 2.54842,
    .short_row = 4,
    .sm_bytes_one = 75,
    .latency = 2595.26,
    .latency_L2 = 1800,
    .exchange = 600,
    .exchange_bytes = 13,
    .column_scale = 1.5,
    .partial = 200,
    .cluster = 0.05,
    .pair = 0.97,
    .tile = 700,
    .trip = 3000,
    .epilogue = 0.1176,
    .boxes_of_32 = 1.27766,
    .boxes_of_16 = 2.013,
    .gelu = 3.5,
    .flops_per_us = 6e+06,
    .slice = 0.3,
    .sum_us = 1.2,
    .sum_bytes_per_us = 4.2e+06,
    .memory_bytes_per_us = 4.3e+06,
    .turn_us = 0.1,
    .memory_bytes_of_sm = 45000,
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
    { 256, 128, 2, 0, 1, 2, 1, 0 }, { 128, 224, 2, 0, 1, 1, 1, 0 }, { 128, 192, 2, 1, 1, 1, 1, 0 },
    { 128, 192, 2, 1, 2, 1, 1, 0 }, { 192, 128, 3, 0, 1, 2, 1, 0 }, { 128, 176, 2, 1, 1, 1, 1, 0 },
    { 128, 160, 2, 1, 1, 1, 1, 0 }, { 128, 160, 2, 0, 1, 1, 1, 0 }, { 128, 128, 2, 1, 1, 1, 1, 0 },
    { 128, 128, 2, 1, 1, 2, 1, 0 }, { 128, 128, 2, 0, 1, 2, 1, 0 }, { 64, 192, 2, 1, 1, 2, 1, 0 },
    { 64, 192, 1, 0, 1, 1, 1, 0 },  { 128, 96, 2, 0, 2, 1, 1, 0 },  { 64, 128, 2, 1, 1, 1, 1, 0 },
    { 64, 128, 2, 1, 2, 1, 1, 0 },  { 128, 128, 2, 1, 2, 1, 1, 0 }, { 64, 128, 1, 0, 1, 1, 1, 0 },
    { 64, 128, 1, 0, 2, 1, 1, 0 },  { 64, 96, 1, 0, 1, 1, 1, 0 },   { 64, 96, 1, 0, 2, 1, 1, 0 },
    { 64, 64, 2, 1, 1, 1, 1, 0 },   { 64, 64, 1, 0, 1, 2, 1, 0 },   { 64, 64, 1, 0, 1, 1, 1, 0 },
    { 128, 128, 2, 0, 1, 1, 2, 0 }, { 64, 32, 1, 0, 1, 1, 1, 0 },
};
