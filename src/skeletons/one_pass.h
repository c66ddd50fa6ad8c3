/*
 * one_pass.h - tensors that one kernel reads once: their chunks stay where they are until the sums of all are known.
 *
 * A tensor is strips of chunks, and each chunk is a CTA, which keeps it in shared memory or registers. The CTAs of a strip meet in
 * global memory: each stores the sums of its chunk, the last one merges them and tells the others, who wait for it. That is
 * fast where all CTAs of a strip run at once, as the GPU starts them in order. But nothing depends on it: a CTA that has waited for long
 * leaves its chunk to the one that merges, which loads it again. A kernel reads like this:
 *
 *     ... load the chunk, store its sums ...
 *     const val writes = variable(U32, imm(1)), last = one_pass_arrive(&t);
 *     IF(last) {
 *         ... merge the sums of the strip ...
 *         one_pass_publish(&t);
 *     }
 *     ELSE assign(writes, one_pass_wait(&t));
 *     IF(ne(writes, imm_as(U32, 0)))
 *         ... outputs from the sums of the strip ...
 *     IF(last)
 *         LOOP(chunk, t.chunks)
 *             IF(one_pass_was_left(&t, chunk))
 *                 ... load that chunk; outputs ...
 */
#ifndef CKL_SKELETONS_ONE_PASS_H
#define CKL_SKELETONS_ONE_PASS_H

#include "cute/tensor.h"

typedef struct one_pass {
    val counters;       // address of a u32 for each strip, then of one for each chunk: 0 before the kernel, and after it
    val strips, chunks; // u32; chunks: of a strip, at most as many as threads
    val strip, chunk;   // u32, of this CTA
    tensor sLeft;       // (THREADS), u32 in shared memory: chunks that others leave to this CTA
} one_pass;

tensor one_pass_smem(int threads);

/* After all threads have stored their sums of the chunk: is it the last of its strip? Then all others can be read. */
val one_pass_arrive(const one_pass *t);

/* After all threads have stored the merged sums. */
void one_pass_publish(const one_pass *t);

/* u32, 1: the merged sums can be read. 0: this CTA has waited for long, and its chunk is the other one's now. */
val one_pass_wait(const one_pass *t);

/* In the CTA that published: does it have to take a chunk of another one? */
val one_pass_was_left(const one_pass *t, val chunk);

/* On the host: bytes of the counters. */
static inline int64_t one_pass_counter_bytes(int64_t strips, int64_t chunks)
{
    return strips * (1 + chunks) * (int64_t)sizeof(uint32_t);
}

#endif
