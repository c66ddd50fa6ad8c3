/* reduce_config.h - the compile-time choices of reduce's kernels. */
#ifndef CKL_REDUCE_CONFIG_H
#define CKL_REDUCE_CONFIG_H

#include "base/fields.h"

#define REDUCE_OPS "sum max min prod mean var std argmax argmin any all norm1 norm2 logsumexp"

/* What every kernel is told of the problem. */
#define REDUCE_PROBLEM(X, owner)                                                 \
    X(owner, choice, op, "sum", REDUCE_OPS, "what is made of a row")             \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16 i32 i64", "type of x")       \
    X(owner, ckl_dtype, output, "f32", "f32 f16 bf16 i32 i64 bool", "type of y") \
    X(owner, int, kept, "1", "", "modes of x that are kept, after merging")      \
    X(owner, int, reduced, "1", "", "modes of x that are reduced, after merging")

/* The kernels of the ladder: naive, improved, shuffle, vectorized. */
#define REDUCE_LADDER_CONFIG(X)             \
    REDUCE_PROBLEM(X, reduce_ladder_config) \
    X(reduce_ladder_config, int, threads, "256", "64 128 256 512", "threads of a CTA")

/* rows and cluster: rows whose elements lie side by side. */
#define REDUCE_ROWS_CONFIG(X)                                                                                         \
    REDUCE_PROBLEM(X, reduce_rows_config)                                                                             \
    X(reduce_rows_config, int, threads, "256", "128 256 512 1024", "threads of a CTA, a power of two")                \
    X(reduce_rows_config, int, lanes, "256", "1 2 4 8 16 32 256 512", "threads of a row: up to 32, or the whole CTA") \
    X(reduce_rows_config, int, vec, "4", "1 2 4 8", "elements of one memory access, at most 16 bytes")                \
    X(reduce_rows_config, int, steps, "4", "1 2 4 8", "vectors of a thread in flight")                                \
    X(reduce_rows_config, int, resident, "0", "0 4 8 16",                                                             \
      "CTAs of an SM that take rows of few lanes in turn; 0: all rows at once")                                       \
    X(reduce_rows_config, int, split, "1", "1 2 4 8 16 32 128 264 528 1056",                                          \
      "CTAs of a row; the last to arrive finishes it")                                                                \
    X(reduce_rows_config, int, cluster, "1", "1 2 4 8", "CTAs of a row that are one cluster, instead of split")       \
    X(reduce_rows_config, int, prefetch, "0", "0 1 2 4",                                                              \
      "tiles of a CTA asked for while the kernel before still runs")                                                  \
    X(reduce_rows_config, bool, strided, "0", "0 1", "the elements of a row are not side by side")                    \
    X(reduce_rows_config, bool, compensated, "0", "0 1", "sums of many blocks carry their rounding errors along")     \
    X(reduce_rows_config, int, ctas_per_sm, "0", "0 2 3 4 8", "CTAs that shall fit on an SM: bounds registers; 0: any")

/* columns: rows that lie across, so that neighbouring threads take neighbouring results. */
#define REDUCE_COLUMNS_CONFIG(X)                                                                                     \
    REDUCE_PROBLEM(X, reduce_columns_config)                                                                         \
    X(reduce_columns_config, int, threads, "256", "128 256 512", "threads of a CTA, a power of two")                 \
    X(reduce_columns_config, int, lanes, "32", "8 16 32 64 128 256", "threads side by side; the others lie along x") \
    X(reduce_columns_config, int, vec, "4", "1 2 4 8", "columns of a thread, one memory access of at most 16 bytes") \
    X(reduce_columns_config, int, steps, "4", "1 2 4 8", "vectors of a thread in flight, below each other")          \
    X(reduce_columns_config, int, split, "1", "1 2 4 8 16 264", "CTAs of a column; the last to arrive finishes it")  \
    X(reduce_columns_config, bool, compensated, "0", "0 1", "sums of many blocks carry their rounding errors along") \
    X(reduce_columns_config, int, ctas_per_sm, "0", "0 2 3 4 8",                                                     \
      "CTAs that shall fit on an SM: bounds registers; 0: any")

typedef struct reduce_ladder_config {
    REDUCE_LADDER_CONFIG(FIELD_MEMBER)
} reduce_ladder_config;

typedef struct reduce_rows_config {
    REDUCE_ROWS_CONFIG(FIELD_MEMBER)
} reduce_rows_config;

typedef struct reduce_columns_config {
    REDUCE_COLUMNS_CONFIG(FIELD_MEMBER)
} reduce_columns_config;

/* The kernels with the built-in operations. part 0: vectors are aligned and rows end with one; 1: any alignment. */
void reduce_naive(const void *config, int part);
void reduce_improved(const void *config, int part);
void reduce_shuffle(const void *config, int part);
void reduce_vectorized(const void *config, int part);
void reduce_rows(const void *config, int part);
void reduce_columns(const void *config, int part);

/* 32-bit registers in which a thread carries a row. */
int reduce_state_size(int op, ckl_dtype dtype, ckl_dtype output, bool compensated);

#endif
