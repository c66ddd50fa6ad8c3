/* reduce_plan.h - a reduction seen through as few modes as possible, and the implementations that compute it. */
#ifndef CKL_REDUCE_PLAN_H
#define CKL_REDUCE_PLAN_H

#include "operators/reduce/reduce_config.h"
#include "plan/plan.h"

/* One mode of x: so many elements, so far apart. */
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

#endif
