/*
 * heap.h - memory that is never NULL: where it runs out, the guard around the work fails instead.
 *
 * heap_guard() runs a function. If an allocation in it fails, the function does not go on: what it had allocated is freed and
 * heap_guard() returns CKL_NO_MEMORY. So arenas, texts and descriptions of kernels need no failures of their own. Between an
 * allocation and its guard nobody may hold what only he would give back: a lock, a handle of a driver. Without a guard, in the
 * laboratory, running out ends the process.
 *
 * Blocks may be freed by any thread once their guard has ended.
 */
#ifndef CKL_BASE_HEAP_H
#define CKL_BASE_HEAP_H

#include "base/status.h"

/* Zeroed, aligned to 64 bytes. */
void *heap_alloc(size_t count, size_t size);

/* Moved to a larger block, of the same guard; the bytes behind the old ones are zero. memory may be NULL. */
void *heap_resize(void *memory, size_t count, size_t size);

/* A copy of a string. */
char *heap_text(const char *text);

/* NULL is allowed. */
void heap_free(void *memory);

/* What was allocated under one guard, or under several with the same pool; {0} is empty. */
typedef struct heap_block heap_block;
typedef struct heap_pool {
    heap_block *blocks;
} heap_pool;

/*
 * work(user) and its status. "what" opens the sentence of running out; then every block of the pool is freed. With a pool of
 * NULL the blocks are the caller's from the end of the guard on, and none else is freed.
 */
ckl_status heap_guard(heap_pool *pool, const char *what, ckl_status (*work)(void *user), void *user);

#endif
