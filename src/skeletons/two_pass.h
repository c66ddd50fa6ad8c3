/*
 * two_pass.h - tensors that one kernel reads twice: first for sums, then for outputs.
 *
 * A tensor is strips of chunks. A chunk is two items of work: its sums, which go to global memory, and its outputs,
 * which need the sums of the whole strip. All items have one order, in which outputs come `lag` items after the sums of
 * their chunk: late enough that nobody waits long. A CTA does one item. It draws the number when it starts, so what it
 * waits for was drawn before, by a CTA that runs. A kernel reads like this:
 *
 *     two_pass_item item = two_pass_draw(&t);
 *     ... load the chunk ...
 *     IF(item.writes) {
 *         two_pass_wait(&t, &item);
 *         ... outputs from the sums of the strip ...
 *         two_pass_end(&t, &item);
 *     }
 *     ELSE {
 *         ... store the sums of the chunk ...
 *         const val last = two_pass_leave(&t, &item);
 *         IF(last) {
 *             ... merge the sums of the strip ...
 *             two_pass_merged(&t, &item);
 *         }
 *     }
 */
#pragma once

#include "base/math.h"
#include "cute/tensor.h"

typedef struct two_pass {
    val counters; // address of a u32 for the items drawn and one for each strip: 0 before the kernel and after it
    val strips, chunks, lag; // u32; chunks: of a strip
    val abreast; // u32: strips that share lines of memory, whose chunks stand side by side in the order; divides strips
} two_pass;

typedef struct two_pass_item {
    val writes;       // predicate, the same in all threads: outputs, or sums
    val strip, chunk; // u32
    val left;         // u32, in thread 0 of a CTA that has waited: the counter of its strip then
} two_pass_item;

two_pass_item two_pass_draw(const two_pass *t);

/* After all threads have stored their sums of the chunk: is it the last of its strip? Then all others can be read. */
val two_pass_leave(const two_pass *t, const two_pass_item *item);
void two_pass_merged(const two_pass *t, const two_pass_item *item);

/*
 * Waits until the sums of the strip can be read. And the end of the outputs: the last CTA leaves the counter as it was.
 */
void two_pass_wait(const two_pass *t, two_pass_item *item);
void two_pass_end(const two_pass *t, const two_pass_item *item);

/* On the host: bytes of the counters; the lag for so many CTAs at work; CTAs of a launch. */
static inline int64_t two_pass_counter_bytes(int64_t strips)
{
    return (1 + strips) * (int64_t)sizeof(uint32_t);
}

static inline uint32_t two_pass_lag(int64_t strips, int64_t abreast, int64_t chunks, int64_t ctas)
{
    enum { TURNS = 2 }; // of CTAs: with half of one outputs wait for their sums (bench/notes/groupnorm.md)
    return (uint32_t)min_i64(strips * chunks, abreast * chunks + TURNS * ctas);
}

static inline int64_t two_pass_ctas(int64_t strips, int64_t chunks)
{
    return 2 * strips * chunks;
}
