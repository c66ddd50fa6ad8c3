/* permute_plan.h - problems of transpose and permute, their implementations, and what these share on the host. */
#pragma once

#include "operators/permute/permutation.h"
#include "plan/plan.h"

/* The fields of a problem; of permute there are modes beside them. */
#define TRANSPOSE_DESC(X, owner)                                                      \
    X(owner, int64_t, rows, "1024", "", "rows of x")                                  \
    X(owner, int64_t, cols, "1024", "", "columns of x")                               \
    X(owner, ckl_dtype, dtype, "f32", "", "type of x and y, any")                     \
    X(owner, int64_t, batch, "1", "?1..", "matrices")                                 \
    X(owner, int64_t, ldx, "0", "", "elements between rows of x; 0: dense")           \
    X(owner, int64_t, ldy, "0", "", "elements between rows of y; 0: dense")           \
    X(owner, int64_t, incx, "1", "?1..", "elements between neighbours in a row of x") \
    X(owner, int64_t, incy, "1", "?1..", "elements between neighbours in a row of y") \
    X(owner, int64_t, stride_x, "0", "", "elements between matrices of x; 0: dense")  \
    X(owner, int64_t, stride_y, "0", "", "elements between matrices of y; 0: dense")

#define PERMUTE_DESC(X, owner) X(owner, ckl_dtype, dtype, "f32", "", "type of x and y, any")

enum {
    PERMUTE_CHUNK_BYTES = 16, // of a copy of sm80, narrow and boxes to shared memory
    PERMUTE_THREADS = 256,    // of a CTA: 128 lost by up to a tenth wherever they were timed (bench/notes/permute.md)
};

/* Kernels that put elements together write words of 4 bytes, or single elements that are longer. */
static inline int permute_word_bytes(int bytes)
{
    return bytes < 4 ? 4 : bytes;
}

/*
 * Do so many CTAs fit the GPU at once? They ask L2 for x then, before they wait for the kernel before. Of more, some
 * come when it has ended: 1x32x235x112 f32, 2,0,3,1: 3.43 us, so 2.85; transpose of 4096x288 f32 3.86 and 3.48.
 */
static inline bool permute_pays_prefetch(int64_t ctas, const ckl_device_info *device)
{
    enum { RESIDENT_THREADS = 2048 };
    return PERMUTE_THREADS * ctas <= RESIDENT_THREADS * (int64_t)device->sm_count;
}

/* All implementations of both operators, in order of preference. */
extern const implementation transpose_sm90_implementation, transpose_narrow_implementation,
    transpose_sm80_implementation, permute_boxes_implementation, permute_gather_implementation;
#define PERMUTE_IMPLEMENTATIONS                                                                           \
    {                                                                                                     \
        &transpose_sm90_implementation, &transpose_narrow_implementation, &transpose_sm80_implementation, \
            &permute_boxes_implementation, &permute_gather_implementation, NULL                           \
    }

/* Of all kernels that are chosen by cost: a launch that waits for no sums. Alike, so that it does not decide. */
#define PERMUTE_KERNEL ((memory_kernel){ .us = -0.4 })
