/* gemm_weights.h - what the parts of the kernel for weights of 8 and 4 bits share. */
#pragma once

#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

enum {
    SLOT = 16,      // bytes of a copy
    ATOM_ROWS = 16, // of mma.sync
    STEPS = 8,      // of 16 elements in a K tile
    SLOTS_A = 4,    // of a lane: a quarter of a row of a K tile
    ROW_A = GEMM_BLOCK * 2,
    COPY = SLOT * 4, // bytes of a row of B that the four lanes of a line copy at once
};

/* Stages that TMA fills. */
typedef struct weights_boxes {
    tma_copy tmaA, tmaB;
    val full;   // the first mbarrier of this warp
    val scales; // its first stage's scales, which lie apart from A and B
} weights_boxes;

typedef struct weights_kernel {
    const gemm_weights_config *cfg;
    gemm_values p;
    bool nibbles, scaled;
    bool subnormal;       // weights are multiplied as subnormal numbers, q * 2^-24 or q * 2^-20
    int lines_B, lines_A; // of a lane, 8 apart
    int slots_B;          // of a line
    val lane_line, lane_quarter;
    val block_B, block_A; // the first rows of B and A of this CTA
    val tiles, blocks;    // along K; of scales
    val rings, ring;      // of all warps; this warp's first stage
    val from_B[8][2];     // where the rows of B begin that this lane copies, for each line and slot
    val to_B;             // and where to in a stage
    val from_A, to_A;     // what this lane copies of the first rows of A, and where to in a stage
    val listed_A[8];      // bytes to those rows and the next ones, where a list takes them
    val limits_A[8];      // 16-byte vectors of those rows, and of the next ones
    val lane_A[SLOTS_A];  // where a lane's slots of A lie in a stage
    weights_boxes boxes;
    tiled_mma mma;
} weights_kernel;

/* Bytes of B in a stage, and scales that rows have in a K tile. */
int gemm_weights_bytes_B(const gemm_weights_config *config);
int gemm_weights_blocks(const gemm_weights_config *config);

/* Where a stage of this warp begins. */
val gemm_weights_stage(const weights_kernel *k, val stage);

/* The vector of a row of A that a lane has in a slot. */
val gemm_weights_vector_of_A(const weights_kernel *k, int slot);

/* Where the scales of this CTA's rows for block `block` of a K tile begin in memory. */
val gemm_weights_scales(const weights_kernel *k, val tile, int block);

/* gemm_weights_convert.c: pair i of two of a lane in a step, of a row of B, as floats; words: as they lie. */
val gemm_weights_pair(const weights_kernel *k, tensor rWords, int step, int i);

/* What sums of products with them are to be multiplied by. */
float gemm_weights_unit(const weights_kernel *k);

/* gemm_weights_boxes.c: stages by TMA. Bytes that they take beside A and B. */
int gemm_weights_boxes_bytes(const gemm_weights_config *config);
void gemm_weights_prepare_boxes(weights_kernel *k);
void gemm_weights_load_boxes(const weights_kernel *k, val tile, val stage);
void gemm_weights_wait_boxes(const weights_kernel *k, val stage, val parity); // for all lanes
val gemm_weights_boxed_scales(const weights_kernel *k, val stage, int block);

/* gemm_weights_copies.c: stages by cp.async. Bytes of a stage's scales, which lie behind A and B. */
int gemm_weights_copied_bytes(const gemm_weights_config *config);
void gemm_weights_prepare_copies(weights_kernel *k);
void gemm_weights_load_copies(const weights_kernel *k, val tile, val stage);
val gemm_weights_copied_scales(const weights_kernel *k, val tile, val stage, int block);
