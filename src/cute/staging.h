/*
 * staging.h - results go from registers to global memory through buffers in shared memory, which one thread stores by
 * TMA or bulk copies.
 *
 *     staging_wait(&s, 1);                  // this buffer is free: at most the last store is still being read
 *     copy_tiled(&r2s, rD, tRsD);           // every thread writes its part
 *     STAGED_STORE(&s)                      // described once, executed by one thread when all have written
 *         tma_store(&tmaD, sD, row, col);
 */
#pragma once

#include "ir/build.h"

/* The threads that write a buffer together. */
typedef struct staged_store {
    val barrier; // the named barrier at which they meet
    int threads;
    val leader; // predicate: the one that stores, always the same
} staged_store;

/* Before writing: waits until at most `pending` stores still read their buffers. */
void staging_wait(const staged_store *s, int pending);

/* The body of STAGED_STORE: what all have written is visible to the async proxy. It closes a group, maybe empty. */
void staging_begin(const staged_store *s);
void staging_end(void);

/* The same for the last store of a CTA: its end also waits until the buffer is read, as a CTA's memory ends with it. */
void staging_end_last(void);
