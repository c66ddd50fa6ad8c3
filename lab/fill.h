/* fill.h - random inputs: reproducible by seed, independent per operand, the same for any number of threads. */
#ifndef CKL_LAB_FILL_H
#define CKL_LAB_FILL_H

#include "lab/operands.h"

/*
 * Hard inputs: of one sixteenth of the lines that sums run along (operand.along) the next may have a large offset, ties, zeros
 * of both signs, numbers near the smallest, or one element that is NaN, infinite, the largest of its type, or a peak, at a place
 * that goes through the whole line from its end and by the golden ratio, the others being ordinary. Where elements are alone,
 * each is of the next kind; the number of kinds is prime, so that every place of a vector, warp and step gets each.
 *
 * Fills every element of an operand; padding is left alone. `number` is the operand's place in the problem, so that no two
 * operands are alike; `terms` is the length of the longest sum, which FILL_INTEGERS keeps exact in f32.
 */
void fill_operand(const operand_image *o, int number, operand_fill how, uint64_t seed, double terms);

#endif
