/* reduce_config.h - parameters and compile-time choices of reduce's kernels; problems in as few modes as possible. */
#pragma once

#include "base/dtype.h"
#include "base/fields.h"
#include "cutekernellib/operators/reduce.h"
#include "ir/params.h"
#include "plan/plan.h"
#include "skeletons/memory_cost.h"

/* The parameters of every kernel; modes as in reduce_view. */
#define REDUCE_PARAMS(X, owner)                                                             \
    X(owner, pointer, x)                                                                    \
    X(owner, pointer, y)                                                                    \
    X(owner, pointer, counters) /* workspace, one for each group of CTAs that share rows */ \
    X(owner, pointer, states)   /* workspace, what those CTAs have found */                 \
    X(owner, i64, rows)                                                                     \
    X(owner, i64, count)   /* elements of a row */                                          \
    X(owner, f32, divisor) /* max(count - correction, 0) */                                 \
    X(owner, i64, kept_extent, [CKL_REDUCE_RANK_MAX])                                       \
    X(owner, i64, kept_stride, [CKL_REDUCE_RANK_MAX])                                       \
    X(owner, i64, reduced_extent, [CKL_REDUCE_RANK_MAX])                                    \
    X(owner, i64, reduced_stride, [CKL_REDUCE_RANK_MAX])

KERNEL_PARAMS(reduce, REDUCE_PARAMS);

#define REDUCE_OPS "sum max min prod mean var std argmax argmin any all norm1 norm2 logsumexp"

/* The fields of a problem beside its modes. A fold is that of reduce_folds.h by its own text, or NULL. */
#define REDUCE_OP(X, owner) X(owner, choice, op, "sum", REDUCE_OPS, "what is made of a row")
#define REDUCE_FOLD(X, owner)           \
    X(owner, quoted, fold, "none", "?", \
      "in the place of op, a custom one by its name: maxabs, rms, or one that was added")
#define REDUCE_DESC(X, owner)                                                                      \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16 i32 i64", "type of x")                         \
    X(owner, ckl_dtype, output, "", "f32 f16 bf16 i32 i64 bool", "type of y; the operation's own") \
    X(owner, int, correction, "0", "", "of var and std: 1 for a sample")                           \
    REDUCE_FOLD(X, owner)

/* What a problem line says. */
typedef struct reduce_problem {
    ckl_reduce_desc desc;
    quoted shape, axes, stride;
    float offset; // of random x
} reduce_problem;

/* What every kernel is made for. */
#define REDUCE_KIND(X, owner)                                                     \
    X(owner, choice, op, "sum", REDUCE_OPS, "what is made of a row")              \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16 i32 i64", "type of x")        \
    X(owner, ckl_dtype, output, "f32", "f32 f16 bf16 i32 i64 bool", "type of y")  \
    X(owner, int, kept, "1", "", "modes of x that are kept, after merging")       \
    X(owner, int, reduced, "1", "", "modes of x that are reduced, after merging") \
    REDUCE_FOLD(X, owner)

typedef struct reduce_kind {
    REDUCE_KIND(FIELD_MEMBER, )
} reduce_kind;

/* The kernels of the ladder: naive, improved, shuffle, vectorized. */
#define REDUCE_LADDER_CONFIG(X, owner) X(owner, int, threads, "256", "64 128 256 512", "threads of a CTA")

/* rows: rows whose elements lie side by side. */
#define REDUCE_ROWS_CONFIG(X, owner)                                                                                  \
    X(owner, int, threads, "256", "128 256 512 1024", "threads of a CTA, a power of two")                             \
    X(owner, int, row_threads, "256", "1 2 4 8 16 32 256 512", "threads of a CTA that share a row: up to 32, or all") \
    X(owner, int, segments, "1", "1 2 4 8", "stretches of a row that its threads take side by side")                  \
    X(owner, int, vec, "4", "1 2 4 8", "elements of one memory access, at most 16 bytes")                             \
    X(owner, int, steps, "4", "1 2 4 8", "vectors of a thread in flight")                                             \
    X(owner, bool, one_tile, "0", "0 1", "a row is one tile: of a CTA's, too, the last step alone is guarded")        \
    X(owner, int, split, "1", "1 2 4 8 16 32 128 264 528 1056", "CTAs of a row; the last to start finishes it")       \
    X(owner, bool, prefetch, "0", "0 1", "the first tile is prefetched to L2 while the kernel before runs")           \
    X(owner, int, overlap, "1", "0 1 2",                                                                              \
      "CTAs of the next kernel may come while these run: 1 at once, 2 when they may read")                            \
    X(owner, bool, strided, "0", "0 1", "the elements of a row are not side by side")                                 \
    X(owner, bool, compensated, "0", "0 1", "sums of many blocks carry their rounding errors along")                  \
    X(owner, int, ctas_per_sm, "0", "0 2 3 4 8", "CTAs that shall fit on an SM: bounds registers; 0: any")

/* columns: rows that lie across, so that neighbouring threads take neighbouring results. */
#define REDUCE_COLUMNS_CONFIG(X, owner)                                                                     \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA, a power of two")                        \
    X(owner, int, lanes, "32", "8 16 32 64 128 256", "neighbouring threads along a line")                   \
    X(owner, int, vec, "4", "1 2 4 8", "columns of a thread, one memory access of at most 16 bytes")        \
    X(owner, int, steps, "4", "1 2 4 8", "vectors of a thread in flight, below each other")                 \
    X(owner, int, split, "1", "1 2 4 8 16 264", "CTAs of a column; the last to finish merges their sums")   \
    X(owner, bool, prefetch, "0", "0 1", "the first tile is prefetched to L2 while the kernel before runs") \
    X(owner, int, overlap, "1", "0 1 2",                                                                    \
      "CTAs of the next kernel may come while these run: 1 at once, 2 when they may read")                  \
    X(owner, bool, compensated, "0", "0 1", "sums of many blocks carry their rounding errors along")

typedef struct reduce_ladder_config {
    reduce_kind kind;
    REDUCE_LADDER_CONFIG(FIELD_MEMBER, )
} reduce_ladder_config;

typedef struct reduce_rows_config {
    reduce_kind kind;
    REDUCE_ROWS_CONFIG(FIELD_MEMBER, )
} reduce_rows_config;

typedef struct reduce_columns_config {
    reduce_kind kind;
    REDUCE_COLUMNS_CONFIG(FIELD_MEMBER, )
} reduce_columns_config;

/*
 * The kernels with the built-in operations. Where an implementation has two, kernel 0 wants rows that begin and end
 * with a vector, kernel 1 takes any alignment.
 */
void reduce_naive(const void *config, int kernel);
void reduce_improved(const void *config, int kernel);
void reduce_shuffle(const void *config, int kernel);
void reduce_vectorized(const void *config, int kernel);
void reduce_rows(const void *config, int kernel);
void reduce_columns(const void *config, int kernel);

/*
 * Whether kernel 1 of `columns` loads whole vectors of columns that start anywhere, and not single elements: where it
 * knows that all vectors of a thread begin at the same place between two boundaries.
 */
bool reduce_columns_ragged(const reduce_columns_config *config);

/*
 * CTAs that an SM is to hold, which bounds registers: fewer for ragged columns of 16 bits or integers with states of
 * several words, whose guards take registers, too.
 */
int reduce_columns_ctas_per_sm(const reduce_columns_config *config, bool ragged);

/*
 * Do states of CTAs travel with marks, and not between fences? Where the last one receives them in one round, which
 * gains 0.2 to 0.6 us; three lose 1.4 (bench/notes/reduce.md).
 */
bool reduce_columns_marked(const reduce_columns_config *config);

/* Rounds of loads in which the last CTA merges the states of all. */
int reduce_columns_rounds(const reduce_columns_config *config);

/* Columns of a CTA. */
int reduce_columns_width(const reduce_columns_config *config, bool ragged);

/* 32-bit registers in which a thread carries a row. */
int reduce_state_words(const reduce_kind *kind, bool compensated);

/* The view of a problem, and the implementations that get it */

/* One mode of x: extent and stride. */
typedef struct reduce_mode {
    int64_t extent, stride;
} reduce_mode;

/*
 * Modes of size 1 are gone, neighbours that step evenly are one. Kept modes are in the order of y. Reduced modes go
 * from far to near, except for operations that return an index; there is at least one, perhaps 1:1.
 */
typedef struct reduce_view {
    reduce_kind kind;
    reduce_mode kept[CKL_REDUCE_RANK_MAX], reduced[CKL_REDUCE_RANK_MAX]; // as many as the kind says
    int64_t rows;                                                        // elements of y
    int64_t count;                                                       // elements of a row
    int correction;
} reduce_view;

/* Of a checked desc; the implementations get it in place of the desc. */
reduce_view reduce_view_of(const ckl_reduce_desc *desc);

extern const implementation reduce_columns_plans, reduce_rows_plans;
extern const implementation reduce_vectorized_plans, reduce_shuffle_plans, reduce_improved_plans, reduce_naive_plans;

/* What the implementations share when they choose, check and launch */

enum {
    REDUCE_ACCESS_BYTES = 16,
    REDUCE_CTAS_MAX = INT32_MAX,     // of a launch
    REDUCE_THREADS_WANTED = 1024,    // of an SM: with 4 vectors each in flight, 64 KB
    REDUCE_OVERLAP_BYTES = 32 << 20, // of an x: reading less takes less time than early CTAs cost, which crowd some SMs
};

/* The kinds of `overlap`, and which one of a problem whose next launch may come. */
enum { REDUCE_ALONE, REDUCE_OVERLAPS, REDUCE_OVERLAPS_LATER };
int reduce_overlap(const reduce_view *v);

/* The reduced mode whose elements lie nearest to each other. */
reduce_mode reduce_inner_of(const reduce_view *v);

/* Do all modes step by multiples of vec? */
bool reduce_strides_divide(const reduce_mode *modes, int count, int vec);

/* Checks of a config; `who` is the implementation. */
ckl_status reduce_check_kind(const char *who, const reduce_view *v, const reduce_kind *have);
ckl_status reduce_check_overlap(const char *who, int overlap);
ckl_status reduce_check_threads(const char *who, int threads, const ckl_device_info *device);
ckl_status reduce_check_vectors(const char *who, int vec, int steps, ckl_dtype dtype);

/* Should a sum be compensated where a thread adds `blocks_in_turn` blocks one after the other? */
bool reduce_compensates(const reduce_kind *k, int64_t blocks_in_turn);

/* Workspace: a counter for each group of CTAs, then `bytes` for each CTA of a group. */
int64_t reduce_workspace_for(int64_t groups, int64_t split, int64_t bytes);

/*
 * What a kernel costs, of which `work` says all but bytes, lines and elements: each thread loads so many vectors of
 * `vec` elements, a warp those of `lanes` neighbours side by side; merging states takes as long as `merging` elements.
 */
plan_cost reduce_cost(const reduce_view *v, const ckl_device_info *device, memory_work work, double loads, int vec,
                      int lanes, bool compensated, double merging);

reduce_params reduce_params_for(const ckl_plan *plan, const ckl_reduce_args *args, int64_t groups);
