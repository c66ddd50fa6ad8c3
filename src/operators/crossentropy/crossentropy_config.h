/* crossentropy_config.h - the compile-time choices of crossentropy's kernels, and their parameters. */
#pragma once

#include "cutekernellib/operators/crossentropy.h"
#include "ir/params.h"
#include "skeletons/row_cost.h"

#define CROSSENTROPY_DESC(X, owner)                                                          \
    X(owner, int64_t, rows, "256", "", "rows of logits")                                     \
    X(owner, int64_t, cols, "1024", "", "classes")                                           \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the logits")                  \
    X(owner, ckl_dtype, target, "i64", "?i64 i32", "type of the targets")                    \
    X(owner, choice, direction, "forward", "forward backward", "loss, or the gradient of x") \
    X(owner, choice, reduction, "none", "none mean", "of the losses")                        \
    X(owner, int64_t, ignore_index, "-100", "..", "a target that does not count")            \
    X(owner, int64_t, ldx, "0", "", "elements between rows of x; 0: cols")                   \
    X(owner, int64_t, lddx, "0", "", "elements between rows of dx, backward; 0: cols")       \
    X(owner, bool, weighted, "0", "0 1", "classes have weights")                             \
    X(owner, float, smoothing, "0", "0..1", "share of a row's loss that is of all classes")

/* A problem line: the desc, and the range of the targets. */
typedef struct crossentropy_problem {
    ckl_crossentropy_desc desc;
    int64_t target_low;
} crossentropy_problem;

#define CROSSENTROPY_CONFIG(X, owner)                                                        \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the logits")                  \
    X(owner, ckl_dtype, target, "i64", "i64 i32", "type of the targets")                     \
    X(owner, choice, direction, "forward", "forward backward", "loss, or the gradient of x") \
    X(owner, choice, reduction, "none", "none mean", "of the losses")                        \
    X(owner, bool, weighted, "0", "0 1", "classes have weights")                             \
    X(owner, bool, smooth, "0", "0 1", "a share of a row's loss is of all classes")          \
    X(owner, int, mean_ctas, "1", "1 2 4 8", "CTAs of the cluster that adds up the losses")  \
    X(owner, int, parts, "1", "1 2 3 4 8 16 32", "CTAs of a row, forward")

typedef struct crossentropy_config {
    CROSSENTROPY_CONFIG(FIELD_MEMBER, )
    row_split split; // of a tile of a row
} crossentropy_config;

#define CROSSENTROPY_PARAMS(X, owner) \
    X(owner, i64, rows)               \
    X(owner, i64, cols)               \
    X(owner, pointer, x)              \
    X(owner, i64, ldx)                \
    X(owner, pointer, target)         \
    X(owner, i64, ignore_index)       \
    X(owner, pointer, loss)           \
    X(owner, pointer, lse)            \
    X(owner, pointer, count)          \
    X(owner, pointer, dloss)          \
    X(owner, pointer, dx)             \
    X(owner, i64, lddx)               \
    X(owner, pointer, weight)         \
    X(owner, pointer, weight_sum)     \
    X(owner, f32, keep)               \
    X(owner, f32, spread)             \
    X(owner, pointer, losses)         \
    X(owner, pointer, counts)         \
    X(owner, pointer, counters)       \
    X(owner, pointer, parts)

/*
 * keep: the target's share of a row's loss; spread: that of one class. losses: of the rows, forward; counts: what each
 * adds to the count of a mean, its weight or 1, and 0 if it is ignored. Of rows of several CTAs, counters: of those
 * that have added up their part; parts: what they have found.
 */
KERNEL_PARAMS(crossentropy, CROSSENTROPY_PARAMS);

/* Kernels of a plan: of rows aligned to whole vectors, to the element only, and the mean of the losses. */
enum { CROSSENTROPY_MEAN_THREADS = 512, CROSSENTROPY_ROWS_AT_ONCE = 8 }; // of the mean: of a CTA, and of a thread
enum { CROSSENTROPY_VECTORS, CROSSENTROPY_ELEMENTS, CROSSENTROPY_MEAN, CROSSENTROPY_KERNELS };

enum { CROSSENTROPY_SUMS_MAX = 4 }; // of a part of a row

void crossentropy_describe(const void *config, int kernel);
