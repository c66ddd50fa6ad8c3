/*
 * gemm_steps.h - kernels that run before or after the product of any implementation: what they share with their host
 * side.
 */
#pragma once

#include "operators/gemm/gemm_config.h"

extern const plan_step gemm_offsets_step, gemm_bias_gradient_step;

/* Offsets that lie on the host: a launch writes some of them to device memory, `count` from number `first` on. */
enum { GEMM_OFFSETS_AT_ONCE = 64 };

#define GEMM_OFFSETS_PARAMS(X, owner) \
    X(owner, pointer, to)             \
    X(owner, u32, first)              \
    X(owner, u32, count)              \
    X(owner, i32, number, [GEMM_OFFSETS_AT_ONCE])

KERNEL_PARAMS(gemm_offsets, GEMM_OFFSETS_PARAMS);

void gemm_offsets(const void *config);

/*
 * Sums of a matrix [lines,length]: one for each line, or for each column of each group of lines. Each matrix of a batch
 * has `lines`, `stride` apart. `slices` CTAs divide the lines of a column; the last one adds their sums in order.
 * Without offsets all lines are one group.
 */
enum { GEMM_SUMS_THREADS = 256, GEMM_SUMS_VECTOR_BYTES = 16 };

#define GEMM_SUMS_PARAMS(X, owner) \
    X(owner, pointer, from)        \
    X(owner, i64, ld)              \
    X(owner, i64, stride)          \
    X(owner, u32, batch)           \
    X(owner, u32, lines)           \
    X(owner, i64, length)          \
    X(owner, pointer, offsets)     \
    X(owner, u32, groups)          \
    X(owner, u32, slices)          \
    X(owner, pointer, counters)    \
    X(owner, pointer, parts)       \
    X(owner, pointer, to)

KERNEL_PARAMS(gemm_sums, GEMM_SUMS_PARAMS);

/* What is summed: matrix 'a', 'b' or 'd'; does each column get a sum, or each row? */
char gemm_summed_matrix(choice sums);
bool gemm_sums_columns(choice sums, choice layout);

/* Columns of a CTA. */
int gemm_summed_columns(ckl_dtype type);

void gemm_bias_gradient(const void *config);
