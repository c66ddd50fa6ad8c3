/* copy.h - how the elements of a tile are split over the threads of a CTA, and copies that stop at the end of a row. */
#ifndef CKL_CUTE_COPY_H
#define CKL_CUTE_COPY_H

#include "cute/tensor.h"

/*
 * This thread's part of a tile of threads * vec * steps elements: neighbouring threads take neighbouring vectors, and each
 * thread takes every threads-th: (VEC,STEPS).
 */
tensor thread_vectors(tensor tile, int vec, int threads, int steps, val tid);

/* The number of the thread's first element in that tile. */
val thread_vectors_first(int vec, val tid);

/*
 * Copies between memory and registers the elements whose place in the row is below limit; `first` is the place of element 0,
 * and the memory's layout gives the distances. Registers of the others become 0 when loading.
 */
void copy_within(tensor from, tensor to, val first, val limit);

/*
 * What a load left in registers: narrow elements stay packed in 32-bit words until they are used. A kernel that loads
 * everything before it computes holds half or a quarter of the registers that f32 fragments would take.
 */
typedef struct packed {
    tensor rWords; // (WORDS) of i32, or (VEC) of elements that are no narrower, or do not fill words
    ckl_dtype dtype;
    int count; // elements
} packed;

/* Registers for `count` contiguous elements, not yet written; loads them, align as for tensor_copy(); both at once. */
packed packed_registers(ckl_dtype dtype, int count);
void packed_load(tensor gX, int align, packed to);
packed load_packed(tensor gX, int align);

/* The elements as registers of type f32, i32 or i64: (VEC). */
tensor unpacked(packed p, ckl_dtype type);

#endif
