/* shape.h - shapes as problem lines write them: "4096x4096", "32x64x56x56". */
#pragma once

#include "base/status.h"

enum { SHAPE_RANK_MAX = 8 };

/* Sizes, outermost first. */
typedef struct sizes {
    int rank;
    int64_t of[SHAPE_RANK_MAX];
} sizes;

/*
 * Parses the sizes, strides ... of a key, at most rank_max, separated by x or commas; each may be 2^20 or 2^20+3. The
 * sentence opens with `what`: "reduce: stride=8y is not up to 5 sizes like 4096x1024".
 */
ckl_status sizes_parse(const char *what, const char *key, const char *list, int rank_max, sizes *out);

/* The same for a desc's shape. */
ckl_status extents_parse(const char *what, const char *shape, int rank_max, int *rank, int64_t *extents);

/* The same for a list of exactly `count` numbers, "4096,64,1"; "" leaves `out` unchanged. */
ckl_status list_parse(const char *what, const char *key, const char *list, int count, int64_t *out);

/* The same for a shape. */
ckl_status shape_parse(const char *what, const char *text, sizes *out);

/* Turns an axis in -rank..rank-1 into one in 0..rank-1. */
ckl_status shape_axis(const char *what, const sizes *shape, int64_t axis, int *out);

/* The product of the sizes of modes first..end-1; INT64_MAX on overflow. */
int64_t shape_elements(const sizes *shape, int first, int end);
