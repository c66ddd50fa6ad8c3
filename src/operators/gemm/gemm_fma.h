/* gemm_fma.h - what the kernels of fma share: which block of a tile a thread has, and how it stores that. */
#pragma once

#include "operators/gemm/gemm_epilogue.h"

enum { QUAD = GEMM_FMA_QUAD, BYTES = 4 };

/* Threads of a group, a block of D each, and those of them along M. */
int gemm_fma_group_threads(const gemm_fma_config *cfg);
int gemm_fma_threads_m(const gemm_fma_config *cfg);

/* Columns of D of a tile. */
int gemm_fma_columns(const gemm_fma_config *cfg);

/* This thread's place among the lanes of its warp, and among the threads of its group. */
val gemm_fma_lane_m(const gemm_fma_config *cfg);
val gemm_fma_lane_n(const gemm_fma_config *cfg);
val gemm_fma_place_m(const gemm_fma_config *cfg);
val gemm_fma_place_n(const gemm_fma_config *cfg);

/* Do sums leave a thread few registers? */
bool gemm_fma_is_tight(const gemm_fma_config *cfg);

/* Finishes this thread's block of D, from its sums, and stores it; row, col: of D, where the tile begins. */
void gemm_fma_store_block(const gemm_fma_config *cfg, const gemm_values *p, val row, val col, tensor acc);

/* The same of row i alone of the block, whose sums these are, in a tile by its numbers. */
void gemm_fma_store_row(const gemm_fma_config *cfg, const gemm_values *p, val tile_row, val tile_col, val i,
                        tensor acc);
