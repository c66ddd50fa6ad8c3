/* fill.h - random inputs: reproducible by seed, independent per operand, the same for any number of threads. */
#pragma once

#include "lab/operands.h"

/*
 * Hard inputs go by lines, which sums run along (operand.along), through sixteen kinds in turn. Whole lines have a
 * large offset (cancellation), ties, zeros of both signs, or numbers near the smallest of f16 and f32. Others are
 * ordinary but for one element: NaN, an infinity, the largest number or a peak, at a place that moves through the line,
 * back from its end and by the golden ratio. So every lane, vector, step and tail has the only hard number of some
 * line, and at most four lines in sixteen are not finite. Elements that are alone take the kinds in turn, a prime
 * number with ordinary ones: every place meets each kind.
 *
 * A large operand that is not hard is made of windows: each run of up to 4096 elements of a row is a copy of as many
 * from a random place of a million random ones. So it has no period, and takes no longer to make than to copy.
 *
 * Fills every element of an operand; padding is left alone. `number` is the operand's place in the problem, so that no
 * two operands are alike; `terms` is the length of the longest sum, which FILL_INTEGERS keeps exact in f32.
 */
void fill_operand(const operand_image *o, int number, operand_fill how, uint64_t seed, double terms);
