/*
 * tensor.h - a tensor is memory seen through a layout: global, shared, registers, descriptors of shared memory,
 * coordinates.
 *
 * Names follow CuTe: gA, sA, rA by memory, tXgY for this thread's elements of Y under partition X; each definition ends
 * with its shape. Registers want static layouts; global and shared tensors may have dynamic shapes, strides and
 * coordinates.
 */
#pragma once

#include "cute/control.h"
#include "cute/coord.h"

typedef enum tensor_memory {
    GMEM,
    SMEM,
    RMEM,
    CMEM, // no memory: an element is its own coordinates in an identity tensor
    DMEM, // wgmma descriptors: `address` is the 64-bit descriptor of element 0, strides count 16-byte units
} tensor_memory;

/* The strides of an identity tensor are those of all its coordinates: COORDINATE_BITS / modes bits for each. */
enum { IDENTITY_MODES_MAX = 5, COORDINATE_BITS = 60 };

typedef struct tensor {
    tensor_memory memory;
    ckl_dtype dtype;
    val address;      // of element 0; bytes (u64 GMEM, u32 SMEM)
    val origin;       // swizzled SMEM: index of element 0 before the swizzle; none: 0
    val *regs;        // RMEM: one register per index of the layout
    ir_cache cache;   // hint of accesses to GMEM
    const val *first; // CMEM: the coordinates of element 0
    int modes;        // CMEM: how many coordinates an element has
    bool mn_major;    // DMEM: M or N is contiguous, not K
    layout layout;
} tensor;

/* Construction */
tensor gmem_tensor(val address, ckl_dtype dtype, layout a);
tensor gmem_vector(val address, ckl_dtype dtype, val count);                    // (COUNT), one element behind the other
val gmem_address(val address, ckl_dtype dtype, val elements);                   // so many elements further
tensor smem_tensor(const char *name, ckl_dtype dtype, layout a, int64_t align); // allocates cosize elements
tensor smem_view(val address, ckl_dtype dtype, layout a);
tensor fragment(ckl_dtype dtype, layout a);      // fresh registers of any IR type, not yet written
tensor fragment_like(tensor t, ckl_dtype dtype); // same shape, compact
tensor with_cache(tensor gT, ir_cache cache);

/*
 * The coordinates of a tensor of that shape, one for each top mode: CuTe's make_identity_tensor(). Slices, tiles and
 * partitions of it are coordinates too, so a thread's partition of it tells where its data lie. Sizes may be dynamic; a
 * tile or a partition must be static and below 2^(60/modes) along each mode.
 */
tensor identity_tensor(int_tuple shape);
val tensor_coordinate(tensor cT, int_tuple coordinate, int mode); // of an element, along a mode of the identity tensor
tensor coordinates_from(tensor cT, int mode, val start);          // all of them moved on along a mode
layout coordinate_distances(tensor cT, int mode);                 // the same from that of element 0, as a layout

/* Views */
tensor tensor_slice(tensor t, int_tuple coordinate); // WILDCARD modes stay
tensor tensor_local_tile(tensor t, int_tuple tiler,
                         int_tuple coordinate); // the tile at a coordinate; WILDCARD: (TILE...,REST)
/*
 * The elements of t at the coordinates of cT, which has as many modes. One partition of coordinates then serves all
 * tensors of a shape, and the element that a predicate tests is the one that is accessed.
 */
tensor tensor_at_coordinates(tensor t, tensor cT);

/*
 * Thread tid's elements of a tensor that is tiled by the layout of threads: (REST...). Mode i of threads runs along
 * mode i of t.
 */
tensor tensor_local_partition(tensor t, layout threads, val tid);
tensor tensor_with_layout(tensor t, layout a); // the same elements by another layout

/*
 * Where number i is in an arrangement of so many by so many (static): get<mode>(idx2crd(i, shape)) of CuTe. For
 * threads, lanes and warps that stand in rows; the last mode has what is left.
 */
val tensor_thread_at(val i, int_tuple shape, int mode);

/* Single elements; i is a coordinate. Reading memory emits a load. 16-bit floats are read as such: convert them. */
val tensor_at(tensor t, int_tuple coordinate);
void tensor_set(tensor t, int_tuple coordinate, val x);

void tensor_fill(tensor rT, val x);

/* The byte address of an element; of element i of a static tensor as an address that many share and a distance. */
val tensor_address(tensor t, int_tuple coordinate);
val tensor_address_near(tensor t, int64_t i, int64_t *offset);

/* GMEM or SMEM as instructions name it. */
ir_space tensor_space(tensor t);

/* "shared (8,4):(1,8)", for sentences; in the memory of the description. */
const char *tensor_text(tensor t);
