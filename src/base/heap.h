/*
 * heap.h - memory that is never NULL: where it runs out, the guard around the work fails instead.
 *
 * heap_guard() runs a function. If an allocation in it fails, the function does not go on: what it had allocated is
 * freed and heap_guard() returns CKL_NO_MEMORY. So arenas, texts and descriptions of kernels need no failures of their
 * own. The jump to the guard releases nothing else: no lock or driver handle may be held where memory is allocated.
 * Without a guard, as in the laboratory, running out ends the process.
 *
 * Blocks may be freed by any thread once their guard has ended.
 */
#pragma once

#include "base/status.h"

/* Zeroed, aligned to 64 bytes. */
void *heap_alloc(size_t count, size_t size);

/* Grows a block, of the same guard; new bytes are zero. memory may be NULL. */
void *heap_resize(void *memory, size_t count, size_t size);

/* A copy of a string. */
char *heap_text(const char *text);

/* NULL is allowed. */
void heap_free(void *memory);

/* Ends the guard as a failed allocation does: for memory that comes from elsewhere, to outlive the guard. */
_Noreturn void heap_run_out(size_t bytes);

/*
 * work(user) and its status; `what` opens the sentence where memory runs out. Blocks still allocated belong to the
 * caller.
 */
ckl_status heap_guard(const char *what, ckl_status (*work)(void *user), void *user);
