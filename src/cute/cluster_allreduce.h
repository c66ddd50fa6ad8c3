/*
 * cluster_allreduce.h - all-reductions over the warps of a cluster without a cluster barrier, for loops that run many
 * of them.
 *
 * begin() sends a warp's values to every CTA by asynchronous stores. end() waits on the CTA's own mbarrier until those
 * of all warps have arrived, and combines them. The next reduction may begin before this one ends, so that nobody waits
 * for the slowest warp. The order of the combination is fixed: results are the same in every run.
 *
 * Reductions use four buffers in turn, number n the buffer n % 4. Reuse is safe: a warp that begins reduction n+4 has
 * ended n+2, and every warp had ended n before it began n+2.
 */
#pragma once

#include "cute/reduce.h"

typedef struct cluster_allreduce {
    int threads;               // of each CTA that take part, from thread 0 on: a multiple of 32
    int cluster;               // CTAs, a power of two
    int count;                 // values of the largest reduction, 32 bits each
    int64_t buffers, barriers; // offsets in shared memory
    val begun, ended;          // reductions so far, u32 variables
} cluster_allreduce;

/* Allocates buffers and barriers. */
cluster_allreduce make_cluster_allreduce(const char *name, int threads, int cluster, int count);
int64_t cluster_allreduce_bytes(int threads, int cluster, int count);

/* By one thread; fence_mbarrier_init() and a barrier of the cluster must follow. */
void cluster_allreduce_init(const cluster_allreduce *m);

/*
 * A reduction over all threads that take part; end() leaves the result in the values of each. values: variables;
 * between begin() and end() they hold no result. At most two reductions may have begun and not ended. A cluster barrier
 * must precede the end of the kernel.
 */
void cluster_allreduce_begin(const cluster_allreduce *m, const reduction *r, val *values);
void cluster_allreduce_end(const cluster_allreduce *m, const reduction *r, val *values);
