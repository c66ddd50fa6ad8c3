/* pieces.c - checks of pointers. */
#include "plan/tensors.h"

#include "plan/plan.h"

ckl_status plan_check_tensors(const char *op, const plan_tensor *p, int count)
{
    for (int i = 0; i < count; i++) {
        if (p[i].bytes && !p[i].pointer)
            FAIL(CKL_INVALID, "%s: %s is NULL", op, p[i].name);
        if (p[i].bytes && (uintptr_t)p[i].pointer % (uintptr_t)p[i].align)
            FAIL(CKL_INVALID, "%s: %s=%p is not aligned to its %" PRId64 "-byte elements", op, p[i].name, p[i].pointer,
                 p[i].align);
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            bool in_place = p[j].layout && p[j].layout == p[i].layout && p[j].pointer == p[i].pointer && !p[j].output;
            if (i != j && p[i].output && !in_place && plan_overlap(p[i].pointer, p[i].bytes, p[j].pointer, p[j].bytes))
                FAIL(CKL_INVALID, "%s: %s overlaps %s without being the same tensor", op, p[i].name, p[j].name);
        }
    return CKL_OK;
}

bool plan_tensors_aligned(const plan_tensor *p, int count, int elements)
{
    for (int i = 0; i < count; i++)
        if (p[i].bytes && (uintptr_t)p[i].pointer % (uintptr_t)(elements * p[i].align))
            return false;
    return true;
}

ckl_status plan_check_workspace(const char *op, const void *workspace)
{
    if ((uintptr_t)workspace % PLAN_WORKSPACE_ALIGNMENT)
        FAIL(CKL_INVALID, "%s: workspace=%p is not aligned to %d bytes", op, workspace, PLAN_WORKSPACE_ALIGNMENT);
    return CKL_OK;
}
