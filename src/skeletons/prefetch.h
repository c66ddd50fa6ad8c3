/* prefetch.h - the inputs of small problems come to L2 while the kernel before may still run. */
#pragma once

#include "base/dtype.h"
#include "ir/build.h"

/*
 * Of all inputs: what memory brings while a launch begins. Of more, most CTAs come when the kernel before has ended,
 * and ask for what they load at once: gelu(x)*y of 104x51072 f16, 20 MB, takes 10.0 us with and 8.8 without.
 */
enum { PREFETCHED_BYTES = 12 << 20 };

/*
 * Asks L2 for elements that follow each other, a share of them by each of the first CTAs along y: no access, so the
 * kernel before may still be writing them. For one thread of a CTA.
 */
void prefetch_share(val pointer, val elements, ckl_dtype dtype);

/*
 * The same of inputs of so many rows, if all are no more than PREFETCHED_BYTES: their number at run time decides.
 * For all threads of a CTA.
 */
void prefetch_small_rows(const val *pointers, int count, val rows, val cols, val ld, ckl_dtype dtype);

/*
 * Parameters of a launch whose kernel asks for what it reads: tensors from their first bytes on, and their bytes, 0 of
 * large ones and of what the launch before writes.
 */
#define EARLY_PARAMS(X, owner, count)   \
    X(owner, pointer, early, [(count)]) \
    X(owner, u32, early_bytes, [(count)])

/* The bytes that a launch gives: all, if there are some and no more than `most`; else 0. */
static inline uint32_t early_bytes(int64_t bytes, int64_t most)
{
    return bytes > 0 && bytes <= most ? (uint32_t)bytes : 0;
}

/* Asks for them, by one thread of each CTA: another than that of the barriers, where there are some. */
void prefetch_early(int by, const val *pointers, const val *bytes, int count);
