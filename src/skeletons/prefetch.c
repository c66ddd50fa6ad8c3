/* prefetch.c - whole 16 bytes by bulk copies. */
#include "skeletons/prefetch.h"

#include "cute/kernel.h"

void prefetch_share(val pointer, val elements, ckl_dtype dtype)
{
    enum { BULK_BYTES = 16 };
    const val mask = imm_as(U64, -BULK_BYTES), bytes = mul(convert(U64, elements), imm(dtype_bytes(dtype)));
    val first = bit_and(add(pointer, imm(BULK_BYTES - 1)), mask), end = bit_and(add(pointer, bytes), mask);
    val part = mul(convert(F32, convert(U32, bytes)), mul(rcp(convert(F32, grid_x())), immf(1 + 0x1p-10)));
    val share = bit_and(add(convert(U32, part), imm(BULK_BYTES)), imm(-BULK_BYTES)); // at least that of all, rounded
    val from = add(first, mul(convert(U64, cta_x()), convert(U64, share)));
    IF(logical_and(eq(cta_y(), imm(0)), lt(from, end)))
        bulk_prefetch(from, min(convert(U32, sub(end, from)), share));
}

void prefetch_small_rows(const val *pointers, int count, val rows, val cols, val ld, ckl_dtype dtype)
{
    const int64_t most = PREFETCHED_BYTES / (count * dtype_bytes(dtype)); // elements of an input
    const val elements = add(mul(sub(rows, imm64(1)), ld), cols);
    IF(logical_and(eq(thread(), imm(0)), le(elements, imm64(most))))
        for (int i = 0; i < count; i++)
            prefetch_share(pointers[i], elements, dtype);
}

void prefetch_early(int by, const val *pointers, const val *bytes, int count)
{
    IF(logical_and(eq(thread(), imm(by)), eq(cta_z(), imm(0))))
        for (int i = 0; i < count; i++)
            prefetch_share(pointers[i], bytes[i], CKL_U8);
}
