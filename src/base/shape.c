/* shape.c - parsing shapes. */
#include "base/shape.h"

#include <inttypes.h>
#include <stdlib.h>

/* "4096", "2^20", "10^6+3", and what a caller may refuse: "-1". *end is where it stopped, `at` if there is none. */
static int64_t parse_size(const char *at, char **end)
{
    int64_t base = strtoll(at, end, 10), size = base;
    if (*end == at)
        return 0;
    if (**end == '^') {
        long exponent = strtol(*end + 1, end, 10);
        for (size = 1; exponent > 0 && !__builtin_mul_overflow(size, base, &size); exponent--)
            continue;
        if (exponent != 0) // too large
            *end = (char *)at;
    }
    return **end == '+' ? size + strtoll(*end + 1, end, 10) : size;
}

ckl_status sizes_parse(const char *what, const char *key, const char *list, int rank_max, sizes *out)
{
    sizes s = { 0 };
    char *end;
    for (const char *at = list;; at = end + 1) {
        int64_t size = parse_size(at, &end);
        if (end == at || s.rank == rank_max || (*end && *end != 'x'))
            FAIL(CKL_INVALID, "%s: %s=%s is not up to %d sizes like 4096x1024", what, key, list, rank_max);
        s.of[s.rank++] = size;
        if (!*end)
            break;
    }
    *out = s;
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
        count *= shape->of[i];
    return count;
}
