/*
 * dynamic_scheduler.h - work items that CTAs, or clusters of CTAs, take one by one from a counter in global memory.
 *
 * A static schedule gives every CTA the same share, and all wait for the slowest: memory does not serve all SMs equally
 * fast. Here a CTA that has finished takes another item. CTA 0 of a cluster increments the counter for all of it and
 * sends the item's number to a slot in every CTA. Results must not depend on which CTA takes an item: a sum over the
 * items of one CTA would differ from run to run.
 */
#pragma once

#include "cute/tensor.h"

typedef struct dynamic_scheduler {
    val counter;               // the address of a u32 in global memory that is 0 before the kernel, and after it
    val count;                 // items, u32
    val clusters;              // that take them, u32
    int cluster;               // CTAs of a cluster
    int slots;                 // a power of two
    int64_t numbers, barriers; // offsets of the slots in shared memory
} dynamic_scheduler;

/*
 * Allocates slots and barriers. `most`: before fetch number n, all threads of the cluster must have read what fetch
 * n - most brought.
 */
dynamic_scheduler make_dynamic_scheduler(const char *name, val counter, val count, val clusters, int cluster, int most);
int64_t scheduler_bytes(int most);

/* By one thread; fence_mbarrier_init() and a barrier of the CTA or cluster must follow. */
void scheduler_init(const dynamic_scheduler *t);

/* Fetches item number `fetch` of this cluster: 0, 1, ... to the first of `count` or more. By one thread of each CTA. */
void scheduler_fetch(const dynamic_scheduler *t, val fetch);

/* The item that a fetch brought, u32, for any thread; waits for it. `count` or more: there are no more items. */
val scheduler_next(const dynamic_scheduler *t, val fetch);
