/* copy.h - copies by one thread: in the widest vectors, and in packed registers. */
#pragma once

#include "cute/tensor.h"

/*
 * Copies of tensors of equal size between registers and memory, element i to element i, converting the type on the way,
 * in the widest vectors (up to 16 bytes) that the memory's layout and the alignment allow. Elements may be visited in
 * another order for that, one that both layouts share (max_common_layout): registers ordered by columns take rows of
 * memory as vectors. align is what the caller promises for the memory's address in bytes; vectors never exceed it.
 */
void tensor_copy(tensor from, tensor to, int align);

/*
 * Bulk copies by one thread, of contiguous tensors whose bytes and addresses are multiples of 16; sizes may be dynamic.
 * A load completes on the mbarrier, a store belongs to the thread's bulk group: tma_store_commit(), tma_store_wait().
 */
void bulk_load(tensor gX, tensor sX, val barrier);
void bulk_store(tensor sX, tensor gX);

/*
 * Registers of a load: narrow elements stay packed in 32-bit words until they are used. A kernel that loads everything
 * before it computes needs half or a quarter of the registers of f32 fragments.
 */
typedef struct packed {
    tensor rWords; // (WORDS) of i32, or (VEC) of elements that are no narrower, or do not fill words
    ckl_dtype dtype;
    int count; // elements
} packed;

/*
 * Registers for `count` contiguous elements, not yet written; loads them, align as for tensor_copy(); both at once; the
 * same where they exist, else zeros.
 */
packed packed_registers(ckl_dtype dtype, int count);
void packed_load(tensor gX, int align, packed to);
packed load_packed(tensor gX, int align);
packed load_packed_if(val exists, tensor gX, int align);

/* The elements as registers of type f32, i32 or i64: (VEC). */
tensor unpacked(packed p, ckl_dtype type);
