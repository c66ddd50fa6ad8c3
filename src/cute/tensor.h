/*
 * tensor.h - a tensor is memory seen through a layout: global, shared, registers, or descriptors of shared memory.
 *
 * Names follow CuTe: gA, sA, rA by memory, tXgY for this thread's part of Y under partition X; each definition ends with its
 * shape. Registers want static layouts; global and shared tensors may have dynamic shapes, strides and coordinates.
 */
#ifndef CKL_CUTE_TENSOR_H
#define CKL_CUTE_TENSOR_H

#include "cute/control.h"
#include "cute/coord.h"

typedef enum tensor_memory {
    GMEM,
    SMEM,
    RMEM,
    DMEM, // wgmma descriptors: `address` is the 64-bit descriptor of element 0, strides count 16-byte units
} tensor_memory;

typedef struct tensor {
    tensor_memory memory;
    ckl_dtype dtype;
    val address;    // of element 0; bytes (u64 GMEM, u32 SMEM)
    val origin;     // swizzled SMEM: index of element 0 before the swizzle; none: 0
    val *regs;      // RMEM: one register per index of the layout
    ir_cache cache; // hint of accesses to GMEM
    layout layout;
} tensor;

/* Construction */
tensor gmem_tensor(val address, ckl_dtype dtype, layout a);
tensor smem_tensor(const char *name, ckl_dtype dtype, layout a, int64_t align); // allocates cosize elements
tensor smem_view(val address, ckl_dtype dtype, layout a);
tensor fragment(ckl_dtype dtype, layout a);      // fresh registers of any IR type, not yet written
tensor fragment_like(tensor t, ckl_dtype dtype); // same shape, compact
tensor with_cache(tensor gT, ir_cache cache);

/* Views */
tensor tensor_slice(tensor t, int_tuple coordinate); // WILDCARD modes stay
tensor tensor_local_tile(tensor t, int_tuple tiler,
                         int_tuple coordinate); // the tile at a coordinate; WILDCARD: (TILE...,REST)
tensor tensor_with_layout(tensor t, layout a);  // the same elements by another layout

/* Single elements; i is a coordinate. Reading memory emits a load. 16-bit floats are read as such: convert them. */
val tensor_at(tensor t, int_tuple coordinate);
void tensor_set(tensor t, int_tuple coordinate, val x);

/*
 * Copies of tensors of equal size between registers and memory, element i to element i, in the widest vectors (up to 16
 * bytes) that both layouts and the alignment allow, converting the type on the way. align is what the caller promises for
 * the memory's address in bytes; vectors never exceed it.
 */
void tensor_copy(tensor from, tensor to, int align);
void tensor_fill(tensor rT, val x);

/* The byte address of an element. */
val tensor_address(tensor t, int_tuple coordinate);

#endif
