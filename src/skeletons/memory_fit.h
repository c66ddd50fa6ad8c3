/*
 * memory_fit.h - coefficients of memory_cost(), fitted by scripts/fit_costs.py to bench/sweeps/rows-first.txt and
 * bench/results; cluster and the last four to rows in registers alone.
 */
#pragma once

typedef struct memory_fit {
    double launch_us, memory_bytes, latency, barrier, cluster, cta, warp, line, element, registers, row_wait,
        row_barrier, serial, spill;
} memory_fit;

static const memory_fit fit = {
    .launch_us = 1,              // before the first byte and behind the last
    .memory_bytes = 4.03792e+06, // a microsecond, of HBM
    .latency = 713.434,          // cycles from the first load of a CTA to its last store, without what follows
    .barrier = 1353.57,          // cycles of a reduction in a CTA
    .cluster = 1878.35,          // cycles of one in a cluster, for each CTA but one
    .cta = 72.4406,              // cycles between the starts of two CTAs of an SM
    .warp = 166.232,             // cycles of a CTA for each of its warps
    .line = 1.47922,             // cycles of an SM for a line of 128 bytes that an access touches
    .element = 1.32187,          // instructions of a warp for an element of each thread
    .registers = 19.1295,        // of a thread beside its elements
    .row_wait = 257.669,         // cycles, more or less than that latency, of rows in registers
    .row_barrier = 270.15,       // cycles of a reduction of theirs in a CTA
    .serial = 19.4603,           // cycles that a CTA takes for an element of each thread, whoever else is there
    .spill = 54.1065,            // cycles of a CTA for each register of a thread that it has not
};
