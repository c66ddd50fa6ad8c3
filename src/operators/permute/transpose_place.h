/* transpose_place.h - the parameters of the kernels that transpose matrices, and the tile on which a CTA works. */
#ifndef CKL_PERMUTE_TRANSPOSE_PLACE_H
#define CKL_PERMUTE_TRANSPOSE_PLACE_H

#include "cute/kernel.h"
#include "operators/permute/permute_config.h"
#include "operators/permute/permutation.h"

/* Where this CTA works: the first row and column of x of its tile, in one of the matrices. */
typedef struct place {
    val rows, cols;           // of a matrix, u32
    val row, col;             // first of the tile, u32
    val outer[OUTER_MAX];     // coordinates of the matrix, nearest first, u32
    val x, y;                 // addresses of the matrix in x and y
    val ldx, incx, ldy, incy; // bytes, i64
} place;

/* The parameter "stride_x0", "stride_x1", ... */
val numbered_param(ir_type type, const char *name, int number);

/*
 * Declares rows, cols and the `outer` modes round them, in launch order, and finds this CTA's tile. CTAs go down the rows of x
 * first, along the rows of y: what is in flight is then one piece of y, and 5 % faster than bands of tiles (bench/notes).
 */
place place_by_coordinates(int outer, int tile_r, int tile_c);

/* The same with pointers and strides. */
place place_by_address(int outer, int tile_r, int tile_c);

/* The type as which elements of so many bytes are moved; nothing is converted. */
static inline ckl_dtype raw_type(int bytes)
{
    return bytes == 1 ? CKL_U8 : bytes == 2 ? CKL_I16 : bytes == 4 ? CKL_I32 : CKL_I64;
}

/* One word of memory from its 1, 2 or 4 elements, the lowest first. */
val word_of_elements(int count, const val *elements);

/* base + row * pitch + col * bytes: the address of an element. */
val place_address(val base, val row, val pitch, val col, val distance);

#endif
