/* permute_boxes.h - config and parameters of the kernel that moves boxes. */
#pragma once

#include "operators/permute/permute_plan.h"

#define PERMUTE_BOXES_CONFIG(X, owner)                                                                        \
    X(owner, int, bytes, "4", "1 2 4 8", "bytes of an element")                                               \
    X(owner, int, rank, "2", "1 2 3 4 5", "modes: those of a run of y, others of the box, others")            \
    X(owner, int, run, "1", "1 2 3 4 5", "modes that a run of y goes along")                                  \
    X(owner, int, across, "1", "0 1 2 3 4", "other modes of a box, which runs of x go along")                 \
    X(owner, int, more, "0", "0 1", "modes of a box that no run goes along")                                  \
    X(owner, int, shared, "0", "0 1 2 3 4 5 6 7", "bits: modes of a run of y that runs of x go along, too")   \
    X(owner, int, run_x, "128", "64 128 256 512 1024", "bytes of a run of x, at most or in the fastest mode") \
    X(owner, int, run_y, "256", "64 128 256 512 1024", "bytes of a run of y, at most")                        \
    X(owner, int, lanes, "64", "1 2 4 8 16 32 64 128 256", "threads that share a run of y, one word each")    \
    X(owner, int, abreast, "1", "1 2 4 8 16 32", "runs of y that a warp stores words of at once")             \
    X(owner, int, smem_kb, "16", "", "shared memory of a CTA")                                                \
    X(owner, bool, prefetch, "0", "0 1", "prefetch x to L2 while the kernel before may still run")

FIELD_STRUCT(permute_boxes_config, PERMUTE_BOXES_CONFIG);

/* Neighbouring lanes of a warp that store words of one run. */
static inline int permute_boxes_along(const permute_boxes_config *c)
{
    return PERMUTE_WARP / c->abreast;
}

/*
 * Modes in the order of the config. Strides are bytes; factor and shift divide by a box's size, and by the chunks of a
 * run of x.
 */
#define PERMUTE_BOXES_PARAMS(X, owner)                                      \
    X(owner, pointer, x)                                                    \
    X(owner, pointer, y)                                                    \
    X(owner, u32, size, [PERMUTE_MODES_MAX])                                \
    X(owner, u32, box, [PERMUTE_MODES_MAX])   /* elements of it in a box */ \
    X(owner, u32, boxes, [PERMUTE_MODES_MAX]) /* that divide it */          \
    X(owner, u32, factor, [PERMUTE_MODES_MAX])                              \
    X(owner, u32, shift, [PERMUTE_MODES_MAX])                               \
    X(owner, u32, smem, [PERMUTE_MODES_MAX]) /* stride in shared memory */  \
    X(owner, i64, stride_x, [PERMUTE_MODES_MAX])                            \
    X(owner, i64, stride_y, [PERMUTE_MODES_MAX])                            \
    X(owner, u32, chunks)                                                   \
    X(owner, u32, chunks_factor)                                            \
    X(owner, u32, chunks_shift)

KERNEL_PARAMS(permute_boxes, PERMUTE_BOXES_PARAMS);

void permute_boxes(const void *config, int kernel); // 0: all runs of y begin with a word; 1: or anywhere
