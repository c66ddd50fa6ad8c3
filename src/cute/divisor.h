/*
 * divisor.h - division of numbers below 2^31 by sizes that are known at the launch: a product and a shift instead of
 * some twenty instructions. n / d == (n * factor / 2^32 + n) >> shift; after Granlund and Montgomery, "Division by
 * invariant integers", 1994.
 */
#pragma once

#include "ir/build.h"

/* On the host: of a size from 1 to 2^31. */
typedef struct divisor {
    uint32_t factor, shift;
} divisor;

divisor divisor_of(int64_t size);

/* In the kernel, all u32: n / d, for the factor and the shift of d. And n mod d, after which *n is the quotient. */
val divisor_quotient(val n, val factor, val shift);
val divisor_coordinate(val *n, val d, val factor, val shift);
