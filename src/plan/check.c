/* check.c - checks of descs and pointers. */
#include "plan/check.h"

#include "base/text.h"
#include "plan/plan.h"

ckl_status plan_check_dtype(const char *op, const char *name, ckl_dtype dtype, const ckl_dtype *allowed)
{
    text names = { 0 };
    for (int i = 0; allowed[i] != CKL_DTYPE_DEFAULT; i++) {
        if (allowed[i] == dtype) {
            text_free(&names);
            return CKL_OK;
        }
        text_printf(&names, "%s%s", i ? ", " : "", ckl_dtype_name(allowed[i]));
    }
    status_fail(CKL_INVALID, "%s: %s=%s is none of %s", op, name, ckl_dtype_name(dtype), text_data(&names));
    text_free(&names);
    return CKL_INVALID;
}

ckl_status plan_check_size(const char *op, const char *name, int64_t size)
{
    if (size < 0)
        FAIL(CKL_INVALID, "%s: %s=%" PRId64 " is negative", op, name, size);
    return CKL_OK;
}

ckl_status plan_check_pitch(const char *op, const char *name, int64_t *ld, const char *extent_name, int64_t extent)
{
    if (*ld == 0)
        *ld = extent;
    if (*ld < extent)
        FAIL(CKL_INVALID, "%s: %s=%" PRId64 " is smaller than %s=%" PRId64, op, name, *ld, extent_name, extent);
    return CKL_OK;
}

plan_tensor plan_matrix(const char *name, const void *pointer, ckl_dtype dtype, int64_t rows, int64_t cols, int64_t ld)
{
    int64_t element = (int64_t)ckl_dtype_bytes(dtype), elements = rows && cols ? (rows - 1) * ld + cols : 0;
    return (plan_tensor){ name, pointer, .bytes = elements * element, .align = element, .layout = ld };
}

plan_tensor plan_output(plan_tensor t)
{
    t.output = true;
    return t;
}

plan_tensor plan_absent(plan_tensor t, const char *of)
{
    if (of)
        t.absent = of;
    return t;
}

static ckl_status check_tensor(const char *op, const plan_tensor *t)
{
    if (t->absent && t->pointer)
        FAIL(CKL_INVALID, "%s: %s=%p is not part of %s", op, t->name, t->pointer, t->absent);
    if (t->absent || t->bytes == 0)
        return CKL_OK;
    if (!t->pointer)
        FAIL(CKL_INVALID, "%s: %s is NULL", op, t->name);
    if ((uintptr_t)t->pointer % (uintptr_t)t->align)
        FAIL(CKL_INVALID, "%s: %s=%p is not aligned to its %" PRId64 "-byte elements", op, t->name, t->pointer,
             t->align);
    return CKL_OK;
}

ckl_status plan_check_tensors(const char *op, const plan_tensor *t, int count)
{
    for (int i = 0; i < count; i++)
        TRY(check_tensor(op, &t[i]));
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            bool in_place = t[j].layout && t[j].layout == t[i].layout && t[j].pointer == t[i].pointer && !t[j].output;
            if (i != j && t[i].output && !in_place && plan_overlap(t[i].pointer, t[i].bytes, t[j].pointer, t[j].bytes))
                FAIL(CKL_INVALID, "%s: %s overlaps %s without being the same tensor", op, t[i].name, t[j].name);
        }
    return CKL_OK;
}

bool plan_tensors_aligned(const plan_tensor *t, int count, int elements)
{
    for (int i = 0; i < count; i++)
        if (t[i].bytes && (uintptr_t)t[i].pointer % (uintptr_t)(elements * t[i].align))
            return false;
    return true;
}

ckl_status plan_check_workspace(const char *op, const void *workspace)
{
    if ((uintptr_t)workspace % PLAN_WORKSPACE_ALIGNMENT)
        FAIL(CKL_INVALID, "%s: workspace=%p is not aligned to %d bytes", op, workspace, PLAN_WORKSPACE_ALIGNMENT);
    return CKL_OK;
}
