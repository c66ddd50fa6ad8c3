/* shape.h - shapes as problem lines write them: "4096x4096", "32x64x56x56". */
#ifndef CKL_BASE_SHAPE_H
#define CKL_BASE_SHAPE_H

#include "base/status.h"

enum { SHAPE_RANK_MAX = 8 };

/* Sizes, outermost first. */
typedef struct sizes {
    int rank;
    int64_t of[SHAPE_RANK_MAX];
} sizes;

/*
 * Parses the sizes, strides ... that stand under a key, at most rank_max of them; between them x or a comma; each may be
 * 2^20 or 2^20+3. The sentence opens with `what`: "reduce: stride=8y is not up to 5 sizes like 4096x1024".
 */
ckl_status sizes_parse(const char *what, const char *key, const char *list, int rank_max, sizes *out);

/* The same of the shape of a desc. */
ckl_status extents_parse(const char *what, const char *shape, int rank_max, int *rank, int64_t *extents);

/* The same of a list of so many numbers, "4096,64,1"; one that is left out, "", leaves `out` as it is. */
ckl_status list_parse(const char *what, const char *key, const char *list, int count, int64_t *out);

/* The same of a shape. */
ckl_status shape_parse(const char *what, const char *text, sizes *out);

/* Turns an axis in -rank..rank-1 into one in 0..rank-1. */
ckl_status shape_axis(const char *what, const sizes *shape, int64_t axis, int *out);

/* The product of the sizes from mode `first` to before mode `end`; INT64_MAX if that is too large. */
int64_t shape_elements(const sizes *shape, int first, int end);

#endif
