/* permute_gather.h - a number below 2^31 divided by a size through a product, as host and kernel agree on it. */
#ifndef CKL_PERMUTE_GATHER_H
#define CKL_PERMUTE_GATHER_H

#include <stdint.h>

/* n / d == (n * factor / 2^32 + n) >> shift; after Granlund and Montgomery, "Division by invariant integers", 1994. */
typedef struct divisor {
    uint32_t size, factor, shift;
} divisor;

static inline divisor make_divisor(uint32_t size)
{
    uint32_t shift = 0;
    while ((UINT64_C(1) << shift) < size)
        shift++;
    return (divisor){ size, (uint32_t)(((UINT64_C(1) << shift) - size) * (UINT64_C(1) << 32) / size + 1), shift };
}

#endif
