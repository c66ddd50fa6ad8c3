/* permute_gather.h - config and parameters of the kernel that takes any strides. */
#pragma once

#include "operators/permute/permute_plan.h"

enum { PERMUTE_GATHER_BYTES = 16 }; // of an access at most

#define PERMUTE_GATHER_CONFIG(X, owner)                                                                         \
    X(owner, int, element, "4", "1 2 4 8", "bytes of an element, what pointers are aligned to")                 \
    X(owner, int, bytes, "4", "1 2 4 8 16", "bytes of one memory access; of x, if elements are turned")         \
    X(owner, int, turned, "0", "0 2 4", "elements of a word, of squares that are turned in registers; 0: none") \
    X(owner, int, block, "1", "1 4 8 16", "squares of a block along x and along y; 1: they go along y")         \
    X(owner, bool, cut, "0", "0 1", "runs start anywhere: aligned vectors of y are cut out of two of x")        \
    X(owner, int, rank, "1", "1 2 3 4 5 6 7", "modes")                                                          \
    X(owner, int, steps, "4", "1 2 4 8", "accesses of a thread in flight")

FIELD_STRUCT(permute_gather_config, PERMUTE_GATHER_CONFIG);

/* Strides are bytes. factor and shift divide by a mode's size (cute/divisor.h). */
#define PERMUTE_GATHER_PARAMS(X, owner)                     \
    X(owner, u32, count)                                    \
    X(owner, pointer, x)                                    \
    X(owner, u32, x_bytes) /* to its end, if few; else 0 */ \
    X(owner, pointer, y)                                    \
    X(owner, i64, turned_x) /* between words */             \
    X(owner, i64, turned_y)                                 \
    X(owner, u32, width) /* accesses along x, of blocks */  \
    X(owner, u32, height)                                   \
    X(owner, pointer, end) /* of x */                       \
    X(owner, u32, run)     /* bytes, of windows */          \
    X(owner, u32, size, [PERMUTE_SPLIT_MAX])                \
    X(owner, u32, factor, [PERMUTE_SPLIT_MAX])              \
    X(owner, u32, shift, [PERMUTE_SPLIT_MAX])               \
    X(owner, i64, stride_x, [PERMUTE_SPLIT_MAX])            \
    X(owner, i64, stride_y, [PERMUTE_SPLIT_MAX])

KERNEL_PARAMS(permute_gather, PERMUTE_GATHER_PARAMS);

/* 0: accesses as the config has them; 1: single elements, whose pointers are aligned to no more. */
void permute_gather(const void *config, int kernel);
