/*
 * one_pass.h - tensors that one kernel reads once: a chunk stays where it is until the sums of its strip are known.
 *
 * A tensor is strips of chunks. Each chunk is a CTA, which keeps it in shared memory or registers. The CTAs of a strip meet in
 * global memory: each stores the sums of its chunk, and waits for those of all others. That is fast where all CTAs of a strip run at
 * once, which they do if they are few enough: the GPU starts CTAs in order. But nothing depends on it. A CTA that has waited for
 * long gives up, and the last one that arrives takes its chunk. A kernel reads like this:
 *
 *     const one_pass t = one_pass_of_cta(...);
 *     ... load the chunk, store its sums ...
 *     one_pass_meet(&t, write, write_other, &kernel);
 *
 * Sums may be marked: each 32 bits travel with a word that says that they are there, so nobody waits for a count of what is stored,
 * nor for the fences around it. CTAs are then counted when they start, while their chunks are on their way:
 *
 *     one_pass t = one_pass_of_cta(...);
 *     one_pass_start(&t, states, words, read);
 *     ... load the chunk, one_pass_look(&t), store its sums by one_pass_mark() ...
 *     one_pass_meet(&t, write, write_other, &kernel);
 */
#ifndef CKL_SKELETONS_ONE_PASS_H
#define CKL_SKELETONS_ONE_PASS_H

#include "cute/tensor.h"

typedef struct one_pass {
    val counters; // address of a u32 for each strip, then of one for each chunk: 0 before the kernel, and after it
    val strips, chunks; // u32; chunks: of a strip
    val strip, chunk;   // u32, of this CTA
    val states,
        words; // of marked sums: address of u64 for each word, and u32, words of a strip: 0 before the kernel, and after it
    val before,
        seen; // of these, u32, in thread 0: the counter of the strip when this CTA started; and when it last looked
    void (*read)(
        void *user,
        val last); // of these: reads the sums of the strip, all threads together; last: in one CTA of the strip
} one_pass;

enum {
    ONE_PASS_CHUNKS_MAX = 1 << 14, // of a strip
    ONE_PASS_MARKED_BYTES = 8      // of a marked word
};

/* Of the CTA whose number in the grid is that of its chunk, strip by strip. */
one_pass one_pass_of_cta(val counters, val strips, val chunks);

/*
 * CTAs load in turn, not all at once: before loads, until all but `ahead` CTAs before this one have loaded, or for a while; and after
 * them. So the first have their chunks early, and some load while others add up, meet and write. A kernel calls both or neither.
 * Another u32 counts the loads, behind the counters.
 */
void one_pass_load_in_turn(const one_pass *t, val ahead);
void one_pass_loaded(const one_pass *t);

/*
 * After all threads have stored their sums of the chunk. write: outputs of this CTA's chunk; the sums of all chunks can be read.
 * write_other, after write: loads another chunk of the strip; its outputs.
 */
void one_pass_meet(const one_pass *t, void (*write)(void *user), void (*write_other)(void *user, val chunk),
                   void *user);

/* Marked sums: counts this CTA as started. Looks whether all have, early enough that nobody waits for the answer. */
void one_pass_start(one_pass *t, val states, val words, void (*read)(void *user, val last));
void one_pass_look(const one_pass *t);

/* A marked word, at an address and an offset: bits (u32), and above them 1. Writes it; empties it; reads it, or 0 (u64). */
void one_pass_mark(val address, int64_t offset, val bits);
void one_pass_empty(val address, int64_t offset);
val one_pass_marked(val address, int64_t offset);

/*
 * CTAs of a strip that merge their sums early, so that all others have less to read: of `count` of them, after all threads have stored
 * their marked sums, is this the last one? Another u32 for each such part, behind all other counters.
 */
val one_pass_is_last(const one_pass *t, val part, val count);

/* On the host: bytes of all counters, of strips of so many chunks and parts. */
static inline int64_t one_pass_counter_bytes(int64_t strips, int64_t chunks, int64_t parts)
{
    return (strips * (1 + chunks + parts) + 1) * (int64_t)sizeof(uint32_t);
}

#endif
