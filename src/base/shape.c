/* shape.c - parsing shapes. */
#include "base/shape.h"

#include <inttypes.h>
#include <string.h>

#include "base/math.h"
#include "base/number.h"

ckl_status sizes_parse(const char *what, const char *key, const char *list, int rank_max, sizes *out)
{
    sizes s = { 0 };
    for (const char *at = list;; at++) {
        if (s.rank == rank_max || !number_integer(&at, &s.of[s.rank++]) || !strchr("x,", *at))
            FAIL(CKL_INVALID, "%s: %s=%s is not up to %d sizes like 4096x1024", what, key, list, rank_max);
        if (!*at)
            break;
    }
    *out = s;
    return CKL_OK;
}

ckl_status extents_parse(const char *what, const char *shape, int rank_max, int *rank, int64_t *extents)
{
    sizes s;
    TRY(sizes_parse(what, "shape", shape, rank_max, &s));
    *rank = s.rank;
    memcpy(extents, s.of, (size_t)rank_max * sizeof *extents);
    return CKL_OK;
}

ckl_status list_parse(const char *what, const char *key, const char *list, int count, int64_t *out)
{
    sizes s;
    if (!*list)
        return CKL_OK;
    if (sizes_parse(what, key, list, SHAPE_RANK_MAX, &s) != CKL_OK || s.rank != count)
        FAIL(CKL_INVALID, "%s: %s=%s is not a list of %d integers", what, key, list, count);
    memcpy(out, s.of, (size_t)count * sizeof *out);
    return CKL_OK;
}

ckl_status shape_parse(const char *what, const char *text, sizes *out)
{
    return sizes_parse(what, "shape", text, SHAPE_RANK_MAX, out);
}

ckl_status shape_axis(const char *what, const sizes *shape, int64_t axis, int *out)
{
    if (axis < -shape->rank || axis >= shape->rank)
        FAIL(CKL_INVALID, "%s: axis=%" PRId64 " is not in %d..%d", what, axis, -shape->rank, shape->rank - 1);
    *out = (int)(axis < 0 ? axis + shape->rank : axis);
    return CKL_OK;
}

int64_t shape_elements(const sizes *shape, int first, int end)
{
    int64_t count = 1;
    for (int i = first; i < end; i++)
        count = product_i64(count, shape->of[i]);
    return count;
}
