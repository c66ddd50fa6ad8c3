/* tensor_map.c - the rules of the hardware for TMA tensor maps. */
#include "device/device.h"

enum { ALIGNMENT = 16, BOX_MAX = 256 };

static const int64_t SIZE_MAX_ELEMENTS = (int64_t)1 << 32;
static const int64_t STRIDE_MAX_BYTES = ((int64_t)1 << 40) - 1;

static ckl_status check_dimension(const tensor_map_desc *desc, int i)
{
    if (desc->size[i] < 1 || desc->size[i] > SIZE_MAX_ELEMENTS)
        FAIL(CKL_INVALID, "tensor map: size[%d]=%" PRId64 " is not in 1..2^32", i, desc->size[i]);
    if (desc->box[i] < 1 || desc->box[i] > BOX_MAX)
        FAIL(CKL_INVALID, "tensor map: box[%d]=%d is not in 1..%d", i, desc->box[i], BOX_MAX);
    if (i > 0 && (desc->stride[i] < 0 || desc->stride[i] > STRIDE_MAX_BYTES || desc->stride[i] % ALIGNMENT))
        FAIL(CKL_INVALID, "tensor map: stride[%d]=%" PRId64 " bytes is not a multiple of %d below 2^40", i,
             desc->stride[i], ALIGNMENT);
    return CKL_OK;
}

static ckl_status check_swizzle(const tensor_map_desc *desc, int64_t row_bytes)
{
    int span = (int)desc->swizzle;
    if (span != 0 && span != 32 && span != 64 && span != 128)
        FAIL(CKL_INVALID, "tensor map: swizzle=%d is none of 0, 32, 64, 128", span);
    if (span && row_bytes > span)
        FAIL(CKL_INVALID, "tensor map: box[0]=%d is %" PRId64 " bytes, more than the swizzle span of %d", desc->box[0],
             row_bytes, span);
    return CKL_OK;
}

ckl_status tensor_map_check(const tensor_map_desc *desc)
{
    int64_t element_bytes = (int64_t)ckl_dtype_bytes(desc->dtype), row_bytes = desc->box[0] * element_bytes;
    if (element_bytes == 0)
        FAIL(CKL_INVALID, "tensor map: dtype=%s is no element type", ckl_dtype_name(desc->dtype));
    if (desc->rank < 1 || desc->rank > TENSOR_MAP_RANK_MAX)
        FAIL(CKL_INVALID, "tensor map: rank=%d is not in 1..%d", desc->rank, TENSOR_MAP_RANK_MAX);
    if ((uintptr_t)desc->address % ALIGNMENT || !desc->address)
        FAIL(CKL_INVALID, "tensor map: address=%p is not a multiple of %d", desc->address, ALIGNMENT);
    for (int i = 0; i < desc->rank; i++)
        TRY(check_dimension(desc, i));
    if (row_bytes % ALIGNMENT)
        FAIL(CKL_INVALID, "tensor map: box[0]=%d is %" PRId64 " bytes, not a multiple of %d", desc->box[0], row_bytes,
             ALIGNMENT);
    return check_swizzle(desc, row_bytes);
}
