/*
 * tiled_copy.h - a copy atom repeated over threads and values: CuTe's TiledCopy, and predicated copies.
 *
 * A tiled copy says which thread moves which elements of a tile, and by which instruction. Partitions give a thread's
 * elements of source and destination, ((ATOM,REST),REST_M,REST_N...): the values of one instruction, then the
 * instructions of a tile, then the tiles. docs/copies.md has an example.
 */
#pragma once

#include "cute/mma.h"

typedef struct tiled_copy {
    copy_atom atom;
    ckl_dtype dtype; // of the elements that the atom's bits are
    layout tv;       // (THREADS,VALUES) -> linear coordinate in the tile
    int_tuple tile;  // the tile's sizes
} tiled_copy;

/*
 * Every thread of `threads`, a layout from coordinates to thread numbers, moves a block of `values`, a layout from
 * coordinates to value numbers. As in CuTe, the tile has the blocks side by side: threads (8,4):(4,1) and values
 * (1,8):(8,1) make 8 x 32. An unknown atom, or one that does not divide threads and values: ir_fail().
 */
tiled_copy make_tiled_copy(const char *atom, ckl_dtype dtype, layout threads, layout values);

/* "UniversalCopy<128>": the plain atom of so many elements, at most 16 bytes. */
const char *universal_copy(ckl_dtype dtype, int elements);

/* The operands of an MMA, m x k, n x k and m x n: values are in the order of its fragments, which need no retile(). */
tiled_copy make_tiled_copy_A(const char *atom, ckl_dtype dtype, const tiled_mma *mma, int m, int k);
tiled_copy make_tiled_copy_B(const char *atom, ckl_dtype dtype, const tiled_mma *mma, int n, int k);
tiled_copy make_tiled_copy_C(const char *atom, ckl_dtype dtype, const tiled_mma *mma, int m, int n);

/*
 * Thread tid's elements of the source or destination; of memory, or of its coordinates. Shared tensors must consist of
 * whole tiles.
 */
tensor partition_S(const tiled_copy *c, tensor t, val tid); // ((ATOM,REST),REST_M,REST_N...)
tensor partition_D(const tiled_copy *c, tensor t, val tid); // ((ATOM,REST),REST_M,REST_N...)

/*
 * Runs the atom on partitions of equal size: value i of the source to value i of the destination, converted where one
 * of them is in registers. Plain atoms go between registers and memory, in either direction, cp.async from global to
 * shared memory, ldmatrix and stmatrix between shared memory and registers; ldmatrix leaves elements packed in
 * registers of u32. Everything is loaded before anything is converted. Layouts are static; memory of plain atoms may
 * have one dynamic distance, between its vectors.
 */
void copy_tiled(const tiled_copy *c, tensor from, tensor to);

/*
 * The same for the vectors that begin inside `limits`, which has a size for each mode of the identity tensor that cX is
 * a partition of; WILDCARD: no limit. Other vectors are not accessed, and loaded as `fill` (cp.async: 0). A vector is
 * inside or outside as a whole, so the atom's elements must divide the distance to the edge along their mode; only
 * cp.async also copies a part of a vector there. Vectors known to be inside have no branch.
 */
void copy_tiled_if(const tiled_copy *c, tensor cX, int_tuple limits, tensor from, tensor to, double fill);

/* Is element i of cX inside? The constant true where there is nothing to compare. */
val inside_limits(tensor cX, int_tuple limits, int64_t i);
