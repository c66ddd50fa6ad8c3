/* shape.c - parsing shapes. */
#include "base/shape.h"

#include <inttypes.h>
#include <stdlib.h>

/* One size, perhaps a power of two: "4096", "2^20". NULL if there is none. */
static const char *parse_size(const char *at, int64_t *size)
{
    char *end;
    if (*at < '0' || *at > '9')
        return NULL;
    *size = strtoll(at, &end, 10);
    if (*end != '^' || *size != 2)
        return end;
    long exponent = strtol(end + 1, &end, 10);
    *size = exponent >= 0 && exponent < 62 ? (int64_t)1 << exponent : -1;
    return *size < 0 ? NULL : end;
}

ckl_status shape_parse(const char *what, const char *text, sizes *out)
{
    sizes s = { 0 };
    const char *at = text;
    do {
        at = s.rank < SHAPE_RANK_MAX ? parse_size(at, &s.of[s.rank++]) : NULL;
    } while (at && *at++ == 'x');
    if (!at || at[-1] != '\0')
        FAIL(CKL_INVALID, "%s: shape=%s is not up to %d sizes like 4096x1024", what, text, SHAPE_RANK_MAX);
    *out = s;
    return CKL_OK;
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
        count *= shape->of[i];
    return count;
}
