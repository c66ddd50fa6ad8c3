/*
 * one_pass.h - tensors that one kernel reads once: a chunk stays where it is until the sums of its strip are known.
 *
 * A tensor is strips of chunks. Each chunk is a CTA, which keeps it in shared memory or registers. The CTAs of a strip meet in
 * global memory: each stores the sums of its chunk, the last one merges those of all and tells the others, who wait for it. That is
 * fast where all CTAs of a strip run at once, which they do if they are few enough: the GPU starts CTAs in order. But nothing depends
 * on it. A CTA that has waited for long gives up, and the one that merges takes its chunk. A kernel reads like this:
 *
 *     const one_pass t = { ... };
 *     ... load the chunk, store its sums ...
 *     one_pass_meet(&t, &(one_pass_kernel){ merge, write, write_other }, &kernel);
 */
#ifndef CKL_SKELETONS_ONE_PASS_H
#define CKL_SKELETONS_ONE_PASS_H

#include "cute/tensor.h"

typedef struct one_pass {
    val counters; // address of a u32 for each strip, then of one for each chunk: 0 before the kernel, and after it
    val strips, chunks; // u32; chunks: of a strip, at most as many as a CTA has threads
    val strip, chunk;   // u32, of this CTA
    tensor sLeft;       // (THREADS), u32 in shared memory: 1 for each chunk whose CTA has given up
} one_pass;

/* What a kernel does. All threads of a CTA call each; the shared memory that others may have read is free. */
typedef struct one_pass_kernel {
    void (*merge)(void *user);                  // the sums of all chunks; threads store the strip's
    void (*write)(void *user);                  // outputs of this CTA's chunk, from the strip's sums
    void (*write_other)(void *user, val chunk); // loads another chunk of the strip, after write(); its outputs
} one_pass_kernel;

/* Of the CTA whose number in the grid is that of its chunk, strip by strip. Takes shared memory. */
one_pass one_pass_of_cta(val counters, val strips, val chunks, int threads);

/* After all threads have stored their sums of the chunk. */
void one_pass_meet(const one_pass *t, const one_pass_kernel *kernel, void *user);

/* On the host: bytes of the counters, and of shared memory. */
static inline int64_t one_pass_counter_bytes(int64_t strips, int64_t chunks)
{
    return strips * (1 + chunks) * (int64_t)sizeof(uint32_t);
}

static inline int64_t one_pass_smem_bytes(int threads)
{
    return (threads + 2) * (int64_t)sizeof(uint32_t);
}

#endif
