/*
 * dynamic_scheduler.h - pieces of work that CTAs, or clusters of them, draw one after another from a counter in global memory.
 *
 * With a fixed share each, all wait for the slowest, and memory does not serve all SMs equally fast. Here who is done first
 * takes more. CTA 0 of a cluster draws for all of it, and sends the number to a slot of the turn in every CTA. Results must not
 * depend on who does what: a sum of the work of one CTA would differ from run to run.
 */
#ifndef CKL_CUTE_DYNAMIC_SCHEDULER_H
#define CKL_CUTE_DYNAMIC_SCHEDULER_H

#include "cute/tensor.h"

typedef struct dynamic_scheduler {
    val counter; // the address of a u32 in global memory that is 0 before the kernel, and after it
    val count;   // tickets that there are, u32
    val drawers; // clusters that draw, u32
    int cluster; // CTAs
    int slots;
    int64_t numbers, barriers;
} dynamic_scheduler;

/*
 * Allocates slots and barriers. slots: no turn may be drawn before all threads of the cluster have taken the one so many
 * turns before it.
 */
dynamic_scheduler make_dynamic_scheduler(const char *name, val counter, val count, val drawers, int cluster, int slots);
int64_t scheduler_bytes(int slots);

/* By one thread; fence_mbarrier_init() and a barrier of the CTA or cluster must follow. */
void scheduler_init(const dynamic_scheduler *t);

/* By one thread of each CTA, turn 0, 1, ... up to the first whose number is `count` or more. */
void scheduler_fetch(const dynamic_scheduler *t, val turn);

/* The number of a turn, u32, for any thread; waits for it. `count` or more: there are no more. */
val scheduler_next(const dynamic_scheduler *t, val turn);

#endif
