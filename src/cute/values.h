/* values.h - facts about values that the public functions (values.c) make use of. */
#ifndef CKL_CUTE_VALUES_H
#define CKL_CUTE_VALUES_H

#include "ir/build.h"

/*
 * v is base + c, i32: differences with other numbers and conversions to f32 are then those of base, which many values may share,
 * plus a constant. As floats they are exact up to 2^24, else within 2^-23. Of this thread, until values_forget().
 */
void values_know(val v, val base, int c);

/* v is x * y, and the last such value: to add it to a product costs no more than the product. */
void values_know_product(val v, val x, val y);

/* What ckl_val_fma() made of a known product and a known number: x * unit + (shared + slope * c). Of this thread, the last one. */
typedef struct known_line {
    int reg; // of the whole
    val x, unit, shared, slope, c;
} known_line;

const known_line *values_line(val v); // NULL: it is no such
void values_forget(void);

#endif
