/* reduce_view.h - a reduction seen through as few modes as possible. */
#ifndef CKL_REDUCE_VIEW_H
#define CKL_REDUCE_VIEW_H

#include "cutekernellib/operators/reduce.h"

/* One mode of x: so many elements, so far apart. */
typedef struct reduce_mode {
    int64_t extent, stride;
} reduce_mode;

/*
 * Modes of size 1 are gone, neighbours that step evenly are one. Kept modes are in the order of y. Reduced modes go
 * from far to near, except for operations that return an index; there is at least one, perhaps 1:1.
 */
typedef struct reduce_view {
    int kept_count, reduced_count;
    reduce_mode kept[CKL_REDUCE_RANK_MAX], reduced[CKL_REDUCE_RANK_MAX];
    int64_t rows;  // elements of y
    int64_t count; // elements of a row
} reduce_view;

/* Of a checked desc. */
reduce_view reduce_view_of(const ckl_reduce_desc *desc);

static inline reduce_mode reduce_inner(const reduce_view *v)
{
    return v->reduced[v->reduced_count - 1];
}

static inline bool reduce_is_arg(int op)
{
    return op == CKL_REDUCE_ARGMAX || op == CKL_REDUCE_ARGMIN;
}

#endif
