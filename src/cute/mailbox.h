/*
 * mailbox.h - reductions over the warps of a cluster without a barrier of the cluster, for loops that take many of them.
 *
 * Each warp sends its values to every CTA by asynchronous stores; a CTA waits for all of them on an mbarrier of its own. Two
 * sets of slots take turns: who sends for turn t+2 has received everything of turn t+1, which its peers sent after they
 * had read turn t. The order of the combination is fixed, so results are the same in every run.
 */
#ifndef CKL_CUTE_MAILBOX_H
#define CKL_CUTE_MAILBOX_H

#include "cute/reduce.h"

typedef struct mailbox {
    int threads; // of each CTA that take part, from thread 0 on: a power of two of 32 or more
    int cluster; // CTAs, a power of two
    int count;   // values of a reduction, at most; 32 bits each
    int64_t slots, barriers;
    val turn; // u32 variable
} mailbox;

/* Allocates slots and barriers. */
mailbox make_mailbox(const char *name, int threads, int cluster, int count);
int64_t mailbox_bytes(int threads, int cluster, int count);

/* By one thread; fence_mbarrier_init() and a barrier of the cluster must follow. */
void mailbox_init(const mailbox *m);

/* Over all threads that take part; all of them hold the result. A barrier of the cluster must precede the end of the kernel. */
void mailbox_reduce(const mailbox *m, const reduction *r, val *values);

#endif
