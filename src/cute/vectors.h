/* vectors.h - guarded accesses of whole vectors of global or shared memory: packed, and all loads issued before the first use. */
#ifndef CKL_CUTE_VECTORS_H
#define CKL_CUTE_VECTORS_H

#include "cute/tensor.h"

/* Where a vector is, in bytes, and whether: the constant true needs no branch. */
typedef struct vector_at {
    val address;
    int64_t offset;
    val guard;
} vector_at;

/*
 * Loads `count` vectors of `vec` elements (up to 16 bytes) of the memory's dtype and cache into count * vec registers of
 * that type or f32. Vectors whose guard is false become `fill`. 16-bit floats travel in pairs, bytes in words of four.
 */
void vectors_load(const vector_at *at, int count, int vec, tensor memory, const val *out, double fill);

/* Stores one, of `vec` registers, where its guard is true. */
void vector_store(const vector_at *at, int vec, const val *elements, tensor memory);

#endif
