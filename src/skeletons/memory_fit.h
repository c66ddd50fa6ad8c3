/* memory_fit.h - coefficients of memory_cost(), written by scripts/fit_rows.py from measurements; never by hand. */
#pragma once

typedef struct memory_fit {
    double launch_us;    // before the first byte and behind the last
    double memory_bytes; // a microsecond, of HBM
    double latency;      // cycles from the first load of a CTA to its last store, without what follows
    double barrier;      // cycles of a reduction in a CTA
    double cluster;      // cycles of one in a cluster, for each CTA but one
    double cta;          // cycles between the starts of two CTAs of an SM
    double warp;         // cycles of a CTA for each of its warps
    double line;         // cycles of an SM for a line of 128 bytes that an access touches
    double element;      // instructions of a warp for an element of each thread
    double registers;    // of a thread beside its elements
    double row_wait;     // cycles, more or less than that latency, of rows in registers
    double row_barrier;  // cycles of a reduction of theirs in a CTA
    double serial;       // cycles that a CTA takes for an element of each thread, whoever else is there
    double spill;        // cycles of a CTA for each register of a thread that it has not
} memory_fit;

static const memory_fit fit = {
    .launch_us = 1,
    .memory_bytes = 4.03792e+06,
    .latency = 713.434,
    .barrier = 1353.57,
    .cluster = 1878.35,
    .cta = 72.4406,
    .warp = 166.232,
    .line = 1.47922,
    .element = 1.32187,
    .registers = 19.1295,
    .row_wait = 257.669,
    .row_barrier = 270.15,
    .serial = 19.4603,
    .spill = 54.1065,
};
