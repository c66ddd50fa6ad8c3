/* transpose_tile.h - what the kernels that transpose matrices share: the tile of a CTA, addresses, words. */
#pragma once

#include "cute/kernel.h"
#include "operators/permute/permute_plan.h"

/* Of every kernel that transposes matrices. */
#define TRANSPOSE_FIELDS(X, owner)                              \
    X(owner, int, bytes, "4", "1 2 4 8", "bytes of an element") \
    X(owner, int, outer, "0", "0 1 2 3", "modes round a matrix")

/* Of those whose tiles are whole lines on both sides. */
#define TRANSPOSE_TILE_FIELDS(X, owner)                                                           \
    TRANSPOSE_FIELDS(X, owner)                                                                    \
    X(owner, int, tile_r, "64", "32 64 128 256", "rows of x of a CTA")                            \
    X(owner, int, tile_c, "64", "32 64 128 256", "columns of x of a CTA")                         \
    X(owner, bool, across, "0", "0 1", "neighbouring CTAs go along the rows of x, not down them") \
    X(owner, bool, prefetch, "0", "0 1", "prefetch x to L2 while the kernel before may still run")

/* Of the kernel for any alignment, which sm90 launches, too, where pointers are not aligned. */
#define TRANSPOSE_SM80_CONFIG(X, owner)                                              \
    TRANSPOSE_TILE_FIELDS(X, owner)                                                  \
    X(owner, int, align, "32", "4 16 32", "bytes: where windows of y begin and end") \
    X(owner, int, lanes, "32", "8 32", "of a warp along a row of y")

FIELD_STRUCT(transpose_sm80_config, TRANSPOSE_SM80_CONFIG);
void transpose_sm80(const void *config, int kernel);

/* Of every kernel that transposes matrices. Distances are bytes; of outer modes the fastest comes first. */
#define TRANSPOSE_PARAMS(X, owner)                \
    X(owner, tensor, tX)                          \
    X(owner, tensor, tY)                          \
    X(owner, u32, rows)                           \
    X(owner, u32, cols)                           \
    X(owner, u32, size, [PERMUTE_OUTER_MAX])      \
    X(owner, pointer, x)                          \
    X(owner, i64, ldx)                            \
    X(owner, pointer, y)                          \
    X(owner, i64, ldy)                            \
    X(owner, i64, stride_x, [PERMUTE_OUTER_MAX])  \
    X(owner, i64, stride_y, [PERMUTE_OUTER_MAX])  \
    X(owner, u32, factor) /* of the short side */ \
    X(owner, u32, shift)

KERNEL_PARAMS(transpose, TRANSPOSE_PARAMS);

/* The tile of this CTA in one of the matrices. */
typedef struct transpose_tile {
    val rows, cols;               // of the matrix, u32
    val row, col;                 // of the tile's first element, u32
    val outer[PERMUTE_OUTER_MAX]; // coordinates of the matrix, the fastest first, u32
    val x, y;                     // addresses of the matrix
    val ldx, ldy;                 // bytes, i64
} transpose_tile;

/*
 * Finds the tile by its coordinates. Neighbouring CTAs go down the rows of x, that is along the rows of y: what is in
 * flight is one run of y, which is 5 % faster than bands of tiles (bench/notes); or `across`, along the rows of x,
 * where these are short.
 */
transpose_tile transpose_tile_by_coordinates(const transpose_values *p, int outer, int tile_r, int tile_c, bool across);

/* The same with the addresses of the matrix. */
transpose_tile transpose_tile_by_address(const transpose_values *p, int outer, int tile_r, int tile_c, bool across);

/* Asks L2 for a tile of rows of x without gaps. No access: it may stand before grid_wait(). */
void transpose_prefetch(const transpose_tile *t, int tile_r, int tile_c, int bytes);

/* base + row * ld + col * inc: the address of an element; ld and inc are bytes. */
val transpose_address(val base, val row, val ld, val col, val inc);

/* One word of memory from its 1, 2 or 4 elements, the lowest first. */
val transpose_word(int count, const val *elements);

/* Turns a square of 4x4 bytes or 2x2 elements of 2 bytes in registers: words (u32) are its rows, then its columns. */
void transpose_square(int side, val *words);

/* The type as which elements of so many bytes are moved; nothing is converted. */
static inline ckl_dtype transpose_type(int bytes)
{
    return bytes == 1 ? CKL_U8 : bytes == 2 ? CKL_I16 : bytes == 4 ? CKL_I32 : CKL_I64;
}
