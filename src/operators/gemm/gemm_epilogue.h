/* gemm_epilogue.h - what happens to one element of A*B on its way to D; the same in all kernels. */
#pragma once

#include "cute/mma.h"
#include "ir/build.h"
#include "operators/gemm/gemm_config.h"

enum { LANES = 32 }; // of a warp

/* The scalars of a call. */
typedef struct gemm_scalars {
    val alpha, beta; // alpha is also that of operands that have one scale each
    val scale_d;
    val amax; // variable of u32: the bits of this thread's largest |D| before scale_d
} gemm_scalars;

/* Where they come from: parameters. */
typedef struct gemm_scalar_sources {
    val alpha, beta, device_alpha, device_beta, scale_a, scale_b, scale_d;
} gemm_scalar_sources;

#define GEMM_SCALAR_SOURCES(p)                                                                               \
    (gemm_scalar_sources)                                                                                    \
    {                                                                                                        \
        (p)->alpha, (p)->beta, (p)->device_alpha, (p)->device_beta, (p)->scale_a, (p)->scale_b, (p)->scale_d \
    }

gemm_scalars gemm_load_scalars(gemm_epilogue e, gemm_scalar_sources from);

/* An element of A*B and what the epilogue applies to it, all f32; unset where the epilogue has none. */
typedef struct gemm_element {
    val product, c, bias, x;
    val scale_a, scale_b;      // of its row, of its column
    val up, bias_up, scale_up; // of gated products: the same of the last columns
    val weight;                // of its row
    val inside;                // predicate: it is in D, for amax
    val row, col;              // where it lies in D: for a custom epilogue
} gemm_element;

/* The results: X, and D before it is rounded. */
typedef struct gemm_finished {
    val x, d;
} gemm_finished;

gemm_finished gemm_finish(gemm_epilogue e, gemm_scalars s, gemm_element in);

/*
 * Merges this thread's largest into device memory, or its warp's, by one lane. Bits of non-negative floats order as the
 * floats do, so the result does not depend on the order of threads; NaN is above all.
 */
void gemm_leave_amax(gemm_epilogue e, gemm_scalars s, val address, bool by_warps);

/* An 8-bit float as f32, by integer arithmetic: sm_80 has no instruction for it. */
val gemm_f32_of_f8(ckl_dtype dtype, val byte);

/* The scale of row i of A, which has `extent`, or of column i of B, for a block of K; 1 without scales of blocks. */
val gemm_block_scale(gemm_epilogue e, char matrix, const gemm_values *p, val i, val extent, val block);

/* The parameters of one product of a batch, or of one group of K; `grouped` as in configs. */
gemm_values gemm_product_of(gemm_epilogue e, int grouped, const gemm_values *all, val product);

/* The same for one group of rows: its rows and its B. */
gemm_values gemm_group_of(gemm_epilogue e, const gemm_values *all, val group);
val gemm_first_row(const gemm_values *all, val group);

/*
 * gemm_groups.c, for all threads of a CTA: the group of a tile of rows_of_tile rows, and the tile's number in the
 * group. Beyond the tiles of all groups it is the number of groups.
 */
val gemm_find_group(const gemm_values *all, int threads, int rows_of_tile, val *tile);

/*
 * For all threads of a CTA: is it the last to come of `count`, whose sums it may then read? It leaves the counter at 0.
 */
val gemm_last_to_come(val counter, val count);

/* The row of A, and of D, that is row i of the product: i, or that of a list. */
val gemm_row_of_A(gemm_epilogue e, const gemm_values *p, val i);
val gemm_row_of_D(gemm_epilogue e, const gemm_values *p, val i);

/* gemm_finish() of element (i,j) of the product, with what bias, scales and weights have for it. */
gemm_finished gemm_finish_at(gemm_epilogue e, gemm_scalars s, const gemm_values *p, val i, val j, gemm_element in);

/*
 * Finishes element (i,j) and stores it, for kernels that address memory themselves. C is read where beta is not 0;
 * `up`: of gated products.
 */
void gemm_store(gemm_epilogue e, gemm_scalars s, const gemm_values *p, val i, val j, val product, val up);

/* The same of a thread's accumulators, with their places in D; of gated products as many of the last columns follow. */
void gemm_store_accumulators(gemm_epilogue e, const gemm_values *p, tensor acc, tensor tCcD);

/*
 * A block of D^T of which each warp of a CTA has sums over a slice of K: they are added in shared memory in the order
 * of the warps, and stored.
 */
typedef struct gemm_warp_sums {
    int rows, columns, warps; // columns and rows of D; warps of the CTA
    val partials;             // address of the first warp's sums
    int apart;                // elements to the next warp's
    val row, col;             // i64: where the block begins in D
} gemm_warp_sums;

/*
 * What this thread will need of C, f32, loaded before the products: one element at a time behind them, 768x89x7 took
 * 16.8 us. (ELEMENTS), of no use where the epilogue has no C.
 */
tensor gemm_load_block_C(gemm_epilogue e, const gemm_values *p, const gemm_warp_sums *sums);

void gemm_add_warps(gemm_epilogue e, const gemm_values *p, const tiled_mma *mma, tensor acc, tensor rC,
                    const gemm_warp_sums *sums);
