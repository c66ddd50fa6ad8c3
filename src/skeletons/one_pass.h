/*
 * one_pass.h - tensors that one kernel reads once: a chunk stays where it is until the sums of its strip are known.
 *
 * A tensor is strips of chunks. Each chunk is a CTA, which keeps it in shared memory or registers. The CTAs of a strip
 * meet in global memory: each stores the sums of its chunk, and waits for those of all others. That is fast where all
 * CTAs of a strip run at once, which they do if they are few enough: the GPU starts CTAs in order. But nothing depends
 * on it. A CTA that has waited for long gives up, and the last one that arrives takes its chunk. A kernel reads like
 * this:
 *
 *     const one_pass t = one_pass_of_cta(...);
 *     ... load the chunk, store its sums ...
 *     one_pass_meet(&t, write, write_other, &kernel);
 */
#pragma once

#include "cute/tensor.h"

typedef struct one_pass {
    val counters; // address of a u32 for each strip, then of one for each chunk: 0 before the kernel, and after it
    val strips, chunks; // u32; chunks: of a strip
    val strip, chunk;   // u32, of this CTA
    val loads;          // u32, in thread 0: CTAs that had loaded before this one
    int patience;       // how long a CTA waits before it gives up: 1, some 15 us; more where others may take longer
} one_pass;

enum { ONE_PASS_CHUNKS_MAX = 1 << 14 }; // of a strip

/* Of the CTA whose number in the grid is that of its chunk, strip by strip. */
one_pass one_pass_of_cta(val counters, val strips, val chunks);

/*
 * CTAs load in turn, not all at once: before loads, until all but `ahead` CTAs before this one have loaded, or for a
 * while; and after them. So the first have their chunks early, and some load while others add up, meet and write. A
 * kernel calls both or neither, before it meets. Another u32 counts the loads, behind the counters.
 */
void one_pass_load_in_turn(const one_pass *t, val ahead);
void one_pass_loaded(one_pass *t);

/*
 * After all threads have stored their sums of the chunk. write: outputs of this CTA's chunk; the sums of all chunks can
 * be read. write_other, after write: loads another chunk of the strip; its outputs.
 */
void one_pass_meet(const one_pass *t, void (*write)(void *user), void (*write_other)(void *user, val chunk),
                   void *user);

/* On the host: bytes of all counters, of strips of so many chunks. */
static inline int64_t one_pass_counter_bytes(int64_t strips, int64_t chunks)
{
    return (strips * (1 + chunks) + 1) * (int64_t)sizeof(uint32_t);
}
