/*
 * cluster_allreduce.h - reductions over the warps of a cluster without a barrier of the cluster, for loops that take many of them.
 *
 * Each warp sends its values to every CTA by asynchronous stores; a CTA waits for all of them on an mbarrier of its own. What
 * has been sent may be received later, after the next values have been sent: then nobody waits for the slowest. Four sets
 * of slots take turns: who sends for turn t+4 has received turn t+2, which its peers sent after they had received turn t.
 * The order of the combination is fixed, so results are the same in every run.
 */
#ifndef CKL_CUTE_CLUSTER_ALLREDUCE_H
#define CKL_CUTE_CLUSTER_ALLREDUCE_H

#include "cute/reduce.h"

typedef struct cluster_allreduce {
    int threads; // of each CTA that take part, from thread 0 on: a power of two of 32 or more
    int cluster; // CTAs, a power of two
    int count;   // values of a reduction, at most; 32 bits each
    int64_t slots, barriers;
    val sent, received; // turns, u32 variables
} cluster_allreduce;

/* Allocates slots and barriers. */
cluster_allreduce make_cluster_allreduce(const char *name, int threads, int cluster, int count);
int64_t cluster_allreduce_bytes(int threads, int cluster, int count);

/* By one thread; fence_mbarrier_init() and a barrier of the cluster must follow. */
void cluster_allreduce_init(const cluster_allreduce *m);

/*
 * A reduction over all threads that take part; all of them hold the result. values: variables; what send() leaves in them is no
 * result. At most two turns may be sent and not yet received. A barrier of the cluster must precede the end of the kernel.
 */
void cluster_allreduce_begin(const cluster_allreduce *m, const reduction *r, val *values);
void cluster_allreduce_end(const cluster_allreduce *m, const reduction *r, val *values);

#endif
