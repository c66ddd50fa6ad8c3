/* gemm_repitch.h - the kernel that copies or transposes A, B or both, of a whole batch, before a product. */
#pragma once

#include "operators/gemm/gemm_config.h"

enum {
    GEMM_REPITCH_THREADS = 256,
    GEMM_REPITCH_BYTES = 16,              // that a thread makes of a row
    GEMM_REPITCH_ROWS = 4,                // rows of a thread, whose loads are in flight together
    GEMM_TURN_TILE = 64,                  // rows and columns that a CTA transposes
    GEMM_PITCH_BYTES = 128,               // rows of a copy start at multiples of it
    GEMM_SPLIT_RUN = GEMM_TILE_BYTES / 4, // of math=f32x3: elements of K, rounded; then their rests; then the next ones
};

/*
 * Parameters of up to two copies; those of every implementation that makes some begin with them. CTAs from `second` on
 * make the second copy. from_bytes: of small sources, which L2 is asked for; else 0. Rows and their length are the
 * source's, or those that a list takes of the first matrix, which then has list_rows.
 */
#define GEMM_REPITCH_PARAMS(X, owner) \
    X(owner, pointer, from, [2])      \
    X(owner, u32, from_bytes, [2])    \
    X(owner, i64, from_ld, [2])       \
    X(owner, i64, from_stride, [2])   \
    X(owner, pointer, to, [2])        \
    X(owner, i64, to_ld, [2])         \
    X(owner, i64, copy_rows, [2])     \
    X(owner, i64, copy_length, [2])   \
    X(owner, u32, turned, [2])        \
    X(owner, u32, second)             \
    X(owner, pointer, row_list)       \
    X(owner, i64, list_rows)

KERNEL_PARAMS(gemm_repitch, GEMM_REPITCH_PARAMS);

void gemm_repitch(const gemm_epilogue *epilogue);
