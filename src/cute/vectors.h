/* vectors.h - guarded accesses of whole vectors of global or shared memory: packed, all loads before the first use. */
#pragma once

#include "cute/tensor.h"

/*
 * The registers of one access: n of `type`, each of `per` elements. 16-bit floats travel in pairs, smaller elements in
 * words of 32 bits, all others alone.
 */
typedef struct words {
    ir_type type;
    int n, per;
} words;

words words_of(ckl_dtype dtype, int count); // of `count` elements, at most 16 bytes; a power of two
ir_type element_register(ckl_dtype dtype);  // that holds one element: 8-bit elements sit in 16 bits
val element_value(ckl_dtype dtype, val x);  // x as it is stored: 8-bit floats are rounded and saturate
void words_unpack(words w, const val *loaded, ckl_dtype dtype, const val *out); // assigns n * per registers of any type
val words_filled(words w, ckl_dtype dtype, double value); // a word of elements that all have this value
void words_pack(words w, ckl_dtype dtype, const val *elements, val *stored); // elements of dtype, or f32 for floats

/*
 * A vector of up to four words that begins `bytes` (u32) after the start of twice as many, and before their middle:
 * selects shift by whole words, a permute of two neighbours by bytes. Elements of so many bytes begin at multiples of
 * their size.
 */
typedef struct words_cut {
    val shifted[8], selector;
    int element;
} words_cut;

words_cut words_cut_from(const val *pair, int count, val bytes, int element);
val words_cut_word(const words_cut *cut, int i);

/* The byte address of a vector, and the predicate that guards its access; the constant true needs no branch. */
typedef struct vector_at {
    val address;
    int64_t offset;
    val guard;
} vector_at;

/*
 * Loads `count` vectors of `vec` elements (up to 16 bytes) of the memory's dtype and cache into count * vec registers
 * of that type or another. Vectors whose guard is false become `fill`.
 */
void vectors_load(const vector_at *at, int count, int vec, tensor memory, const val *out, double fill);

/* Stores one, of `vec` registers, where its guard is true. */
void vector_store(const vector_at *at, int vec, const val *elements, tensor memory);
