/*
 * measure.h - times contestants against each other in one run: the same memory, the same clocks, interleaved A B B A.
 *
 * A sample is one launch between two events or, where a contestant's launches are shorter than MEASURE_GRAPH_BELOW_US,
 * a CUDA graph of many launches divided by their number; all contestants of a race are timed in the same way.
 *
 * NOTE: events around one launch take some 5 us more than the launch (H200): useless for short kernels. In a graph of
 * many, kernels that may start before the one before has ended do so; others are a chain of dependent operations.
 */
#pragma once

#include "bench/gpu_state.h"
#include "bench/rotation.h"
#include "bench/statistics.h"

enum { MEASURE_GRAPH_BELOW_US = 500 };

typedef struct contestant {
    ckl_status (*run)(const void *self, void *const *pointers, ckl_stream stream); // enqueues one run on a set's memory
    const void *self;
    bool chained;    // its launches always wait for the end of the one before
    summary time_us; // result

    /* Results of a race by graphs that looks twice: medians of a few samples; else 0. */
    double event_us; // one launch between two events
    double chain_us; // by graphs in which every launch waits for the end of the one before
} contestant;

typedef struct measure_limits {
    double warm_seconds_max; // until the SM clock is steady, at most so long
    double seconds_max;      // of sampling
    int rounds;              // exactly so many times A B B A; 0: until the medians are known to half a percent
    bool twice;              // looks a second time at a race by graphs: event_us and chain_us
    bool brief;              // shorter graphs: a rough order will do
} measure_limits;

typedef struct conditions {
    int launches; // of one sample of the first contestant
    bool graphs;  // else events around each launch
    gpu_state gpu;
    double prepare_s, warm_s, sample_s, again_s; // estimates and graphs, warming up, sampling, the second look
} conditions;

/* Fills in time_us of every contestant. The device must have events. */
ckl_status measure(const rotation *memory, ckl_stream stream, const measure_limits *limits, contestant *contestants,
                   int count, conditions *out);
