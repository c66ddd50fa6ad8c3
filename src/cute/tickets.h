/*
 * tickets.h - pieces of work that CTAs, or clusters of them, draw one after another from a counter in global memory.
 *
 * With a fixed share each, all wait for the slowest, and memory does not serve all SMs equally fast. Here who is done first
 * takes more. CTA 0 of a cluster draws for all of it, and sends the number to a slot of the turn in every CTA. Results must not
 * depend on who does what: a sum of the work of one CTA would differ from run to run.
 */
#ifndef CKL_CUTE_TICKETS_H
#define CKL_CUTE_TICKETS_H

#include "cute/tensor.h"

typedef struct tickets {
    val counter; // the address of a u32 in global memory that is 0 before the kernel, and after it
    val count;   // tickets that there are, u32
    val drawers; // clusters that draw, u32
    int cluster; // CTAs
    int slots;
    int64_t numbers, barriers;
} tickets;

/*
 * Allocates slots and barriers. slots: no turn may be drawn before all threads of the cluster have taken the one so many
 * turns before it.
 */
tickets make_tickets(const char *name, val counter, val count, val drawers, int cluster, int slots);
int64_t tickets_bytes(int slots);

/* By one thread; fence_mbarrier_init() and a barrier of the CTA or cluster must follow. */
void tickets_init(const tickets *t);

/* By one thread of each CTA, turn 0, 1, ... up to the first whose number is `count` or more. */
void tickets_draw(const tickets *t, val turn);

/* The number of a turn, u32, for any thread; waits for it. `count` or more: there are no more. */
val tickets_take(const tickets *t, val turn);

#endif
