/* gemm_fma.h - the parts of fma's kernels: a thread's block of a tile, how it copies A and B, and how it stores D. */
#pragma once

#include "operators/gemm/gemm_epilogue.h"

enum { QUAD = GEMM_FMA_QUAD, BYTES = 4 };

/* Threads of a group, a block of D each, and those of them along M. */
int gemm_fma_group_threads(const gemm_fma_config *cfg);
int gemm_fma_threads_m(const gemm_fma_config *cfg);

/* Bytes of so many elements, u64. */
val gemm_fma_bytes(val elements);

/* Columns of D of a tile. */
int gemm_fma_columns(const gemm_fma_config *cfg);

/* This thread's place among the lanes of its warp, and among the threads of its group. */
val gemm_fma_lane_m(const gemm_fma_config *cfg);
val gemm_fma_lane_n(const gemm_fma_config *cfg);
val gemm_fma_place_m(const gemm_fma_config *cfg);
val gemm_fma_place_n(const gemm_fma_config *cfg);

/* This thread's group of those that share out K, and its place there. */
val gemm_fma_group(const gemm_fma_config *cfg);
val gemm_fma_thread(const gemm_fma_config *cfg);

/*
 * The rows of a matrix that a tile has, of `count` in all; of a gated B the tile's upper half is of the last columns.
 */
typedef struct gemm_fma_rows {
    val first, count;         // i64
    int half;                 // 0: not gated
    const gemm_values *lists; // NULL, or the product whose rows of A a list takes
} gemm_fma_rows;

/* This thread's copies of an operand's tiles along K, and its partition to multiply. */
typedef struct gemm_fma_operand {
    tensor sX;                 // (ROWS,BK,STAGES)
    tensor tCsX;               // ((QUAD,QUADS),BK,STAGES)
    int vec;                   // elements of a copy
    int copies;                // of a stage
    int step;                  // between them: elements of K, where K is not contiguous, else rows
    val k;                     // i32: of the first copy, in its tile
    bool even;                 // are copies evenly apart? That spares a thread their addresses
    val from[GEMM_FMA_COPIES]; // u64: bytes from `at`, or, of even ones but for the first, from the one before
    val rows;                  // i32: of the matrix from the first on, for even ones
    val to, stage_bytes;       // in shared memory: the first copy of stage 0
    int to_step, k_pitch;      // bytes between copies there, and between elements of K
    val valid;                 // u32: bytes of a copy that lie in the matrix
    val at;                    // u64 variable: the K tile that is loaded next
    val advance;               // u64: bytes to the one after
    tensor rX;                 // (VEC,COPIES): of a K-major one, the tile before on its way to shared memory
    val mine;                  // predicate: this thread has some of it
    val behind;                // i32: of a phased one, elements from the aligned quads to those of a tile
    val length;                // i32: all of K
} gemm_fma_operand;

/* The K tile that is multiplied; those after it are on their way. */
typedef struct gemm_fma_tile {
    val left;        // i32 variable: elements of K from it on
    val ready, free; // u32 variables: its stage, and the one before
    bool inside;     // are the quads that are loaded meanwhile inside their rows?
} gemm_fma_tile;

/* The stage after one. */
val gemm_fma_stage_after(const gemm_fma_config *cfg, val stage);

/* An operand of a tile. */
gemm_fma_operand gemm_fma_operand_of(const gemm_fma_config *cfg, char name, const gemm_values *p, gemm_fma_rows t);

/*
 * Before the first step: copies of all stages but one are under way, and of a K-major operand the first tile is in
 * shared memory, the second on its way to registers. Both are loaded at once.
 */
void gemm_fma_begin_tiles(const gemm_fma_config *cfg, const gemm_fma_operand x[2], val left);

/* The same at element e of a tile. */
void gemm_fma_continue_tiles(const gemm_fma_config *cfg, const gemm_fma_operand x[2], const gemm_fma_tile *t, int e);

/* Finishes this thread's block of D, from its sums, and stores it; row, col: of D, where the tile begins. */
void gemm_fma_store_block(const gemm_fma_config *cfg, const gemm_values *p, val row, val col, tensor acc);

/* The same of row i alone of the block, whose sums these are, in a tile by its numbers. */
void gemm_fma_store_row(const gemm_fma_config *cfg, const gemm_values *p, val tile_row, val tile_col, val i,
                        tensor acc);
