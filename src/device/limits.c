/* limits.c - what the hardware takes: tensor maps, and the resources of a kernel on a device. */
#include "device/device.h"

#include <stdio.h>

enum {
    MAP_ALIGNMENT = 16, // of addresses, strides and rows of a box, bytes
    MAP_BOX_MAX = 256,
    MAP_STEP_MAX = 8,
    MAP_PIXELS_MAX = 1024, // im2col
    CLUSTER_MAX = 16,      // more than 8 only where they find room: clusters_resident()
    SMEM_NAMED = 3,
};

static const int64_t MAP_SIZE_MAX = INT64_C(1) << 32;
static const int64_t MAP_STRIDE_END = INT64_C(1) << 40;

/* How far corners of places may be from the tensor's: the driver API's cuTensorMapEncodeIm2col(). */
static int corner_reach(int rank)
{
    return 1 << (rank == 3 ? 15 : rank == 4 ? 7 : 4);
}

static ckl_status check_places(const tensor_map_desc *desc)
{
    const int reach = corner_reach(desc->rank);
    if (desc->rank < 3)
        FAIL(CKL_INVALID, "tensor map: rank=%d has no pixels between channels and images", desc->rank);
    for (int i = 0; i < desc->rank - 2; i++) {
        if (desc->lower[i] < -reach || desc->lower[i] >= reach || desc->upper[i] < -reach || desc->upper[i] >= reach)
            FAIL(CKL_INVALID, "tensor map: lower[%d]=%d or upper[%d]=%d is not in %d..%d", i, desc->lower[i], i,
                 desc->upper[i], -reach, reach - 1);
        if (desc->size[1 + i] - 1 + desc->upper[i] < desc->lower[i])
            FAIL(CKL_INVALID, "tensor map: lower[%d]=%d and upper[%d]=%d leave no place", i, desc->lower[i], i,
                 desc->upper[i]);
    }
    for (int dim = 2; dim < desc->rank; dim++)
        if (desc->box[dim] != 1)
            FAIL(CKL_INVALID, "tensor map: box[%d]=%d, but a column of pixels is one mode", dim, desc->box[dim]);
    return CKL_OK;
}

static ckl_status check_dimension(const tensor_map_desc *desc, int dim)
{
    int64_t size = desc->size[dim], stride = desc->stride[dim];
    if (size < 1 || size > MAP_SIZE_MAX)
        FAIL(CKL_INVALID, "tensor map: size[%d]=%" PRId64 " is not in 1..%" PRId64, dim, size, MAP_SIZE_MAX);
    const int most = desc->im2col && dim == 1 ? MAP_PIXELS_MAX : MAP_BOX_MAX;
    if (desc->box[dim] < 1 || desc->box[dim] > most)
        FAIL(CKL_INVALID, "tensor map: box[%d]=%d is not in 1..%d", dim, desc->box[dim], most);
    if (desc->step[dim] > MAP_STEP_MAX || (dim == 0 && desc->step[0] > 1))
        FAIL(CKL_INVALID, "tensor map: step[%d]=%d is not in 1..%d", dim, desc->step[dim], dim ? MAP_STEP_MAX : 1);
    if (!desc->im2col && (desc->box[dim] - 1) * tensor_map_step(desc, dim) >= MAP_BOX_MAX)
        FAIL(CKL_INVALID, "tensor map: box[%d]=%d with step %d spans more than %d elements", dim, desc->box[dim],
             desc->step[dim], MAP_BOX_MAX);
    if (dim == 0)
        return CKL_OK;
    if (stride % MAP_ALIGNMENT != 0)
        FAIL(CKL_INVALID, "tensor map: stride[%d]=%" PRId64 " bytes is not a multiple of %d", dim, stride,
             MAP_ALIGNMENT);
    if (stride < 0 || stride >= MAP_STRIDE_END)
        FAIL(CKL_INVALID, "tensor map: stride[%d]=%" PRId64 " bytes is not in 0..2^40-1", dim, stride);
    return CKL_OK;
}

static ckl_status check_box_row(const tensor_map_desc *desc)
{
    int bytes = desc->box[0] * (int)ckl_dtype_bytes(desc->dtype), span = (int)desc->swizzle;
    if (bytes % MAP_ALIGNMENT != 0)
        FAIL(CKL_INVALID, "tensor map: box[0]=%d %s are %d bytes, not a multiple of %d", desc->box[0],
             ckl_dtype_name(desc->dtype), bytes, MAP_ALIGNMENT);
    if (span != 0 && span != 32 && span != 64 && span != 128)
        FAIL(CKL_INVALID, "tensor map: swizzle=%d is none of 0, 32, 64, 128", span);
    if (desc->l2_promotion != 0 && desc->l2_promotion != 64 && desc->l2_promotion != 128 && desc->l2_promotion != 256)
        FAIL(CKL_INVALID, "tensor map: l2_promotion=%d is none of 0, 64, 128, 256", desc->l2_promotion);
    if (span != 0 && bytes > span)
        FAIL(CKL_INVALID, "tensor map: box[0]=%d %s are %d bytes, more than the swizzle's %d", desc->box[0],
             ckl_dtype_name(desc->dtype), bytes, span);
    return CKL_OK;
}

ckl_status tensor_map_check(const tensor_map_desc *desc)
{
    uintptr_t address = (uintptr_t)desc->address;
    if (ckl_dtype_bytes(desc->dtype) == 0)
        FAIL(CKL_INVALID, "tensor map: dtype=%s is not an element type", ckl_dtype_name(desc->dtype));
    if (desc->rank < 1 || desc->rank > TENSOR_MAP_RANK_MAX)
        FAIL(CKL_INVALID, "tensor map: rank=%d is not in 1..%d", desc->rank, TENSOR_MAP_RANK_MAX);
    if (address == 0 || address % MAP_ALIGNMENT != 0)
        FAIL(CKL_INVALID, "tensor map: address=0x%" PRIxPTR " is not a multiple of %d above 0", address, MAP_ALIGNMENT);
    for (int dim = 0; dim < desc->rank; dim++)
        TRY(check_dimension(desc, dim));
    if (desc->im2col)
        TRY(check_places(desc));
    return check_box_row(desc);
}

/* The largest allocation of shared memory after the one before (NULL: the largest of all), or NULL. */
static const ir_smem *next_smem(const ir_kernel *kernel, const ir_smem *before)
{
    const ir_smem *best = NULL;
    for (int i = 0; i < kernel->smem_count; i++) {
        const ir_smem *smem = &kernel->smem[i];
        bool after = !before || smem->bytes < before->bytes || (smem->bytes == before->bytes && smem > before);
        if (after && (!best || smem->bytes > best->bytes))
            best = smem;
    }
    return best;
}

static ckl_status fail_smem(const ckl_device_info *info, const ir_kernel *kernel)
{
    char largest[256] = "";
    size_t length = 0;
    const ir_smem *smem = next_smem(kernel, NULL);
    for (int i = 0; i < SMEM_NAMED && smem && length < sizeof largest; i++, smem = next_smem(kernel, smem))
        length += (size_t)snprintf(largest + length, sizeof largest - length, "%s %s=%" PRId64,
                                   i ? "," : "; the largest are", smem->name, smem->bytes);
    FAIL(CKL_UNSUPPORTED,
         "%s: needs %" PRId64 " bytes of shared memory, %s has %" PRId64 " per CTA: %" PRId64 " bytes too many%s",
         kernel->name, kernel->smem_bytes, info->id, info->smem_per_cta_bytes,
         kernel->smem_bytes - info->smem_per_cta_bytes, largest);
}

ckl_status device_check_limits(const ckl_device_info *info, const ir_kernel *kernel)
{
    int cluster_max = info->has_tma ? CLUSTER_MAX : 1;
    if (kernel->target == IR_SM90A && !info->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "%s: is made for sm_90a, %s is sm_%d and has no wgmma", kernel->name, info->id,
             info->compute_capability);
    if (kernel->target == IR_SM90 && !info->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: is made for sm_90, %s is sm_%d and has no TMA", kernel->name, info->id,
             info->compute_capability);
    if (kernel->threads > info->threads_per_cta_max)
        FAIL(CKL_UNSUPPORTED, "%s: needs %d threads per CTA, %s has %d", kernel->name, kernel->threads, info->id,
             info->threads_per_cta_max);
    if (kernel->cluster > cluster_max)
        FAIL(CKL_UNSUPPORTED, "%s: needs clusters of %d CTAs, %s takes %d", kernel->name, kernel->cluster, info->id,
             cluster_max);
    if (kernel->smem_bytes > info->smem_per_cta_bytes)
        return fail_smem(info, kernel);
    return CKL_OK;
}
