/*
 * soak.h - random problems on several streams and threads for a while, their results checked, memory watched.
 *
 * Each stream belongs to one thread and has one problem at a time. A problem's first run is compared with the
 * reference, whole or by sample as `ckl run` does. Further rounds poison the outputs, write every operand again, and
 * enqueue the problem once or several times, plainly or as a graph, while the other streams do the same. Each round
 * must leave the bits of the first run, and inputs, padding and canaries unchanged. The number of rounds follows from
 * the seed and from the time of the first run.
 *
 * Time is cut into phases. After each, all threads have ended, plans, streams and memory are freed, and caches are
 * emptied. What the device and the process still use must not grow by more than SOAK_DEVICE_GROWTH_MAX and
 * SOAK_HOST_GROWTH_MAX over the most seen in the first third of the phases. The bounds allow for what drivers,
 * allocators and thread pools keep; other users of the same GPU disturb the first. What the process has beyond
 * heap_bytes are mappings: the driver's and its compiler's, stacks of threads, the emulator's tables of freed global
 * memory (at most 64 MiB).
 */
#pragma once

#include "lab/random_problem.h"

#define SOAK_DEVICE_GROWTH_MAX ((int64_t)64 << 20)
#define SOAK_HOST_GROWTH_MAX   ((int64_t)256 << 20)

enum { SOAK_STREAMS_MAX = 64, SOAK_LINE_BYTES = 512 };

/* What happened so far. */
typedef struct soak_sums {
    double seconds;
    int64_t problems, rounds, runs, graphs; // graphs: runs that were part of one
    int64_t wrong, refused; // refused: calls that the library does not take, say in place with other strides
    int64_t phases, device_bytes, host_bytes; // in use after the last phase
    int64_t heap_bytes;                       // of host_bytes, what malloc() has given out: to anyone, the driver too
    int64_t kernel_sets, image_bytes;         // loaded, and kept for further problems, until the last phase ended
    int64_t device_growth, host_growth;       // over the first third; 0 while there is none
    bool lost;                                // the device accepts no work any more
    bool stuck;                               // a thread was stuck: threads are left behind, the process must exit
    double run_seconds_max;                   // of the first run of each problem
    char slowest[SOAK_LINE_BYTES];            // the problem of that run
} soak_sums;

/* What a stream is doing when nothing ends. */
typedef struct soak_wait {
    int thread, stream;
    int64_t number;                  // of its problem
    const char *line, *plan, *stage; // plan: "" while there is none
    double seconds;                  // in that stage
    double run_seconds;              // that the problem's first run took; 0: it has not ended
    int64_t runs;                    // of this round
    bool by_graph;
    const char *work; // is the stream's work done? NULL: not asked yet, the answer may never come
} soak_wait;

typedef struct soak_options {
    uint64_t seed;           // problem i is drawn from (seed, i), whatever the threads do
    int64_t first, problems; // number of the first problem; how many, 0: as many as there is time for
    double seconds;
    int threads, streams;      // a multiple of threads, at most SOAK_STREAMS_MAX
    const operator_test *only; // NULL: every operator
    double progress_seconds;
    double stuck_seconds; // that a thread may take for one thing: planning, waiting for a round, a reference

    /* Called by one thread at a time. */
    void (*failed)(const char *line, int64_t number, const char *plan, const char *what);
    void (*beside)(const char *line, int64_t number); // where the device is lost: each other problem under way
    void (*progress)(const soak_sums *sums);
    void (*phase)(const soak_sums *sums);   // after each, when its memory is given back
    void (*waiting)(const soak_wait *wait); // where stuck: for each stream with a problem, then once more with its work
} soak_options;

/* Runs until time, problems or device end. CKL_OK also when something was wrong: the sums tell. */
ckl_status soak_run(ckl_device *device, const soak_options *options, soak_sums *sums);

/* Nothing wrong, lost, stuck or leaked. */
bool soak_passed(const soak_sums *sums);
