/* math.h - small integer arithmetic on sizes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define COUNT_OF(array) ((int)(sizeof(array) / sizeof((array)[0])))

static inline int64_t min_i64(int64_t x, int64_t y)
{
    return x < y ? x : y;
}

static inline int64_t max_i64(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

/* x, y >= 0; INT64_MAX on overflow. */
static inline int64_t product_i64(int64_t x, int64_t y)
{
    int64_t product;
    return __builtin_mul_overflow(x, y, &product) ? INT64_MAX : product;
}

static inline int64_t sum_i64(int64_t x, int64_t y)
{
    int64_t sum;
    return __builtin_add_overflow(x, y, &sum) ? INT64_MAX : sum;
}

/* x >= 0, y > 0 */
static inline int64_t ceil_div(int64_t x, int64_t y)
{
    return x / y + (x % y != 0);
}

/* The fewest workers that need no more rounds than `most` workers: the last round is then nearly full. most > 0 */
static inline int64_t even_workers(int64_t items, int64_t most)
{
    return items ? ceil_div(items, ceil_div(items, most)) : 0;
}

static inline bool is_power_of_two(int64_t x)
{
    return x > 0 && (x & (x - 1)) == 0;
}

/* x >= 0. Most y are powers of two, and a division takes longer: choosing rounds thousands of times. */
static inline int64_t round_up(int64_t x, int64_t y)
{
    return is_power_of_two(y) ? (x + y - 1) & -y : ceil_div(x, y) * y;
}

/* The largest power of two that divides x; x != 0. */
static inline int64_t power_of_two_in(int64_t x)
{
    return x & -x;
}

/* The largest power of two up to x; x > 0. */
static inline int64_t power_of_two_floor(int64_t x)
{
    return (int64_t)1 << (63 - __builtin_clzll((unsigned long long)x));
}

/* The smallest power of two that is not below x. */
static inline int64_t power_of_two_ceil(int64_t x)
{
    return x > 1 ? 2 * power_of_two_floor(x - 1) : 1;
}

/* The exponent of a power of two. */
static inline int log2_i64(int64_t x)
{
    return 63 - __builtin_clzll((unsigned long long)x);
}
