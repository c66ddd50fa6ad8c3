/* softmax.c - softmax and its gradient: validation and the table of kernels. */
#include "cutekernellib/operators/softmax.h"

#include <math.h>

#include "operators/operators.h"
#include "operators/softmax/softmax_config.h"
#include "plan/check.h"

enum { VECTOR_BYTES = 16 };

/* Validation */

static ckl_status check_sizes(const ckl_softmax_desc *d)
{
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = { { "outer", d->outer },
                  { "n", d->n },
                  { "inner", d->inner },
                  { "mask_rows", d->mask_rows },
                  { "mask_repeat", d->mask_repeat } };
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].size < 0)
            FAIL(CKL_INVALID, "softmax: %s=%" PRId64 " is negative", sizes[i].name, sizes[i].size);
    return CKL_OK;
}

static ckl_status check_pitch(const char *name, int64_t *ld, int64_t line)
{
    if (*ld == 0)
        *ld = line;
    if (*ld < line)
        FAIL(CKL_INVALID, "softmax: %s=%" PRId64 " is smaller than a line of %" PRId64 " elements", name, *ld, line);
    return CKL_OK;
}

static ckl_status check_mask(ckl_softmax_desc *d)
{
    d->mask_rows = d->mask_rows ? d->mask_rows : max_i64(1, d->outer);
    d->mask_repeat = d->mask_repeat ? d->mask_repeat : 1;
    if ((unsigned)d->mask > CKL_SOFTMAX_MASK_ADD)
        FAIL(CKL_INVALID,
             "softmax: mask=%d is none of CKL_SOFTMAX_MASK_NONE, CKL_SOFTMAX_MASK_BOOL, CKL_SOFTMAX_MASK_ADD",
             (int)d->mask);
    if (d->mask != CKL_SOFTMAX_MASK_NONE && d->direction == CKL_DIRECTION_BACKWARD)
        FAIL(CKL_INVALID, "softmax: the backward direction takes no mask, it follows from y");
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_softmax_desc *d = desc;
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "softmax: dtype=%s is none of f32, f16, bf16", ckl_dtype_name(d->dtype));
    if (d->direction != CKL_DIRECTION_FORWARD && d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_INVALID, "softmax: direction=%d is neither CKL_DIRECTION_FORWARD nor CKL_DIRECTION_BACKWARD",
             (int)d->direction);
    TRY(check_sizes(d));
    d->inner = d->inner ? d->inner : 1;
    d->scale = d->scale != 0 ? d->scale : 1;
    if (!(d->scale > 0) || isinf(d->scale))
        FAIL(CKL_INVALID, "softmax: scale=%g is not a positive number", (double)d->scale);
    TRY(check_pitch("ldx", &d->ldx, softmax_line(d)));
    TRY(check_pitch("ldy", &d->ldy, softmax_line(d)));
    return check_mask(d);
}

static ckl_status check_pointer(const char *name, const void *pointer, ckl_dtype dtype)
{
    if (!pointer)
        FAIL(CKL_INVALID, "softmax: %s is NULL", name);
    if ((uintptr_t)pointer % ckl_dtype_bytes(dtype))
        FAIL(CKL_INVALID, "softmax: %s=%p is not aligned to its %zu-byte elements", name, pointer,
             ckl_dtype_bytes(dtype));
    return CKL_OK;
}

/* Bytes from the first to past the last element. */
static int64_t extent(const ckl_softmax_desc *d, int64_t ld)
{
    return ((softmax_lines(d) - 1) * ld + softmax_line(d)) * (int64_t)ckl_dtype_bytes(d->dtype);
}

/* The same tensor is fine, every thread reads its elements before it writes them; other overlaps are not. */
static ckl_status check_overlap(const ckl_softmax_desc *d, const char *out, const void *y, int64_t ldy, const char *in,
                                const void *x, int64_t ldx)
{
    if ((x != y || ldx != ldy) && plan_overlap(x, extent(d, ldx), y, extent(d, ldy)))
        FAIL(CKL_INVALID, "softmax: %s overlaps %s without being the same tensor", out, in);
    return CKL_OK;
}

static ckl_status check_forward(const ckl_softmax_desc *d, const ckl_softmax_args *a)
{
    TRY(check_pointer("x", a->x, d->dtype));
    TRY(check_pointer("y", a->y, d->dtype));
    TRY(check_overlap(d, "y", a->y, d->ldy, "x", a->x, d->ldx));
    if (d->mask == CKL_SOFTMAX_MASK_NONE)
        return CKL_OK;
    ckl_dtype dtype = d->mask == CKL_SOFTMAX_MASK_BOOL ? CKL_BOOL : d->dtype;
    TRY(check_pointer("mask", a->mask, dtype));
    if (plan_overlap(a->mask, d->mask_rows * d->n * (int64_t)ckl_dtype_bytes(dtype), a->y, extent(d, d->ldy)))
        FAIL(CKL_INVALID, "softmax: y overlaps mask");
    return CKL_OK;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_softmax_desc *d = desc;
    const ckl_softmax_args *a = args;
    TRY(plan_check_workspace("softmax", a->workspace));
    if (softmax_is_empty(d))
        return CKL_OK;
    if (d->direction == CKL_DIRECTION_FORWARD)
        return check_forward(d, a);
    TRY(check_pointer("y", a->y, d->dtype));
    TRY(check_pointer("dy", a->dy, d->dtype));
    TRY(check_pointer("dx", a->dx, d->dtype));
    TRY(check_overlap(d, "dx", a->dx, d->ldx, "y", a->y, d->ldy));
    return check_overlap(d, "dx", a->dx, d->ldx, "dy", a->dy, d->ldy);
}

int softmax_vec(const ckl_softmax_desc *d)
{
    int64_t vec = VECTOR_BYTES / (int64_t)ckl_dtype_bytes(d->dtype);
    while (softmax_line(d) % vec || (softmax_lines(d) > 1 && (d->ldx % vec || d->ldy % vec)))
        vec /= 2;
    return (int)vec;
}

bool softmax_aligned(const ckl_softmax_desc *d, const ckl_softmax_args *a, int vec)
{
    const bool forward = d->direction == CKL_DIRECTION_FORWARD;
    const void *pointers[] = { forward ? a->x : a->dy, a->y, forward ? a->y : a->dx };
    uintptr_t bytes = (uintptr_t)vec * ckl_dtype_bytes(d->dtype), any = 0;
    for (int i = 0; i < COUNT_OF(pointers); i++)
        any |= (uintptr_t)pointers[i];
    if (d->mask != CKL_SOFTMAX_MASK_NONE &&
        (uintptr_t)a->mask % (d->mask == CKL_SOFTMAX_MASK_BOOL ? (uintptr_t)vec : bytes))
        return false;
    return any % bytes == 0;
}

static const implementation *const implementations[] = {
    &softmax_row_impl,
    &softmax_pipeline_impl,
    &softmax_long_cluster_impl,
    &softmax_long_impl,
    &softmax_column_impl,
    &softmax_column_cluster_impl,
    &softmax_column_long_cluster_impl,
    &softmax_column_long_impl,
    NULL,
};

PLAN_CLEAR_PADDING(clear_padding, ckl_softmax_desc)

const operator_info softmax_operator = {
    .name = "softmax",
    .summary = "y = exp(x) / sum exp(x) along an axis, its logarithm, and their gradients",
    .desc_bytes = sizeof(ckl_softmax_desc),
    .clear_padding = clear_padding,
    .args_bytes = sizeof(ckl_softmax_args),
    .check = check,
    .check_args = check_args,
    .implementations = implementations,
};

ckl_status ckl_softmax_plan(ckl_device *device, const ckl_softmax_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &softmax_operator, desc, NULL, plan);
}

ckl_status ckl_softmax_run(const ckl_plan *plan, const ckl_softmax_args *args, ckl_stream stream)
{
    return plan_run(plan, &softmax_operator, args, stream);
}

ckl_status ckl_softmax(ckl_device *device, const ckl_softmax_desc *desc, const ckl_softmax_args *args,
                       ckl_stream stream)
{
    return plan_once(device, &softmax_operator, desc, args, stream);
}
