/* fill.h - random inputs: reproducible by seed, independent per operand, the same for any number of threads. */
#ifndef CKL_LAB_FILL_H
#define CKL_LAB_FILL_H

#include "lab/operands.h"

/*
 * Fills every element of an operand; padding is left alone. `number` is the operand's place in the problem, so that no two
 * operands are alike; `terms` is the length of the longest sum, which FILL_INTEGERS keeps exact in f32.
 */
void fill_operand(const operand_image *o, int number, operand_fill how, uint64_t seed, double terms);

#endif
