/* check.c - checks of descs, tensors and pointers. */
#include "plan/check.h"

#include "base/math.h"
#include "base/text.h"
#include "plan/plan.h"

ckl_status plan_check_pitch(const char *op, const char *name, int64_t *ld, const char *extent_name, int64_t extent)
{
    if (*ld == 0)
        *ld = extent;
    if (*ld < extent)
        FAIL(CKL_INVALID, "%s: %s=%" PRId64 " is smaller than %s=%" PRId64, op, name, *ld, extent_name, extent);
    return CKL_OK;
}

ckl_status plan_check_unused(const char *op, const char *name, int64_t value, const char *of)
{
    if (value)
        FAIL(CKL_INVALID, "%s: %s=%" PRId64 " is not part of %s", op, name, value, of);
    return CKL_OK;
}

ckl_status plan_check_sizes(const char *op, const char *name, const int64_t *sizes, int rank, int rank_max)
{
    for (int i = 0; i < rank_max; i++)
        if (sizes[i] < 0 || (sizes[i] && i >= rank))
            FAIL(CKL_INVALID, "%s: %s[%d]=%" PRId64 " is %s", op, name, i, sizes[i],
                 i < rank ? "negative" : "beyond the rank");
    return CKL_OK;
}

void plan_default_strides(const int64_t *shape, int64_t *stride, int rank)
{
    for (int i = 0; i < rank; i++)
        if (stride[i])
            return;
    for (int64_t i = rank - 1, dense = 1; i >= 0; dense = product_i64(dense, shape[i--]))
        stride[i] = dense;
}

/* Tensors */

plan_tensor plan_strided(const char *name, ckl_dtype dtype, int rank, const int64_t *shape, const int64_t *stride)
{
    plan_tensor t = { .name = name, .dtype = dtype, .rank = rank };
    for (int i = 0; i < rank; i++) {
        t.shape[i] = shape[i];
        t.stride[i] = stride[i];
    }
    return t;
}

plan_tensor plan_matrix(const char *name, ckl_dtype dtype, int64_t rows, int64_t cols, int64_t ld)
{
    return (plan_tensor){ name, dtype, 2, { rows, cols }, { ld, 1 }, .place = 1 };
}

plan_tensor plan_column(const char *name, ckl_dtype dtype, int64_t rows)
{
    return plan_apart(plan_matrix(name, dtype, rows, 1, 1));
}

plan_tensor plan_vector(const char *name, ckl_dtype dtype, int64_t elements)
{
    return plan_strided(name, dtype, 1, &elements, &(int64_t){ 1 });
}

plan_tensor plan_output(plan_tensor t)
{
    t.output = true;
    return t;
}

plan_tensor plan_optional(plan_tensor t)
{
    t.optional = true;
    return t;
}

plan_tensor plan_apart(plan_tensor t)
{
    t.place = 0;
    return t;
}

plan_tensor plan_absent(plan_tensor t, const char *of)
{
    if (of)
        t.absent = of;
    return t;
}

static bool has_elements(const plan_tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->shape[i] == 0)
            return false;
    return !t->absent;
}

/* Bytes from the first to past the last element. */
static int64_t span(const plan_tensor *t)
{
    int64_t elements = 1;
    for (int i = 0; i < t->rank; i++)
        elements = sum_i64(elements, product_i64(t->shape[i] - 1, t->stride[i]));
    return product_i64(elements, (int64_t)ckl_dtype_bytes(t->dtype));
}

int64_t plan_tensor_bytes(const plan_tensor *t)
{
    return has_elements(t) ? span(t) : 0;
}

/* "4x8" */
static void print_sizes(const int64_t *sizes, int rank, text *out)
{
    for (int i = 0; i < rank; i++)
        text_printf(out, i ? "x%" PRId64 : "%" PRId64, sizes[i]);
}

static ckl_status refuse_extent(const char *op, const plan_tensor *t)
{
    text shape = { 0 }, stride = { 0 };
    print_sizes(t->shape, t->rank, &shape);
    print_sizes(t->stride, t->rank, &stride);
    status_fail(CKL_INVALID, "%s: %s of %s elements, strides %s, spans more than 2^56 bytes", op, t->name,
                text_data(&shape), text_data(&stride));
    text_free(&shape);
    text_free(&stride);
    return CKL_INVALID;
}

/* Broadcast modes span nothing, but kernels number the elements. */
static int64_t elements_of(const plan_tensor *t)
{
    int64_t elements = 1;
    for (int i = 0; i < t->rank; i++)
        elements = product_i64(elements, t->shape[i]);
    return elements;
}

ckl_status plan_check_extents(const char *op, const plan_tensor *t, int count)
{
    for (int i = 0; i < count; i++)
        if (has_elements(&t[i]) && (span(&t[i]) > PLAN_BYTES_MAX || elements_of(&t[i]) > PLAN_BYTES_MAX))
            return refuse_extent(op, &t[i]);
    return CKL_OK;
}

bool plan_is_empty(const plan_tensor *t, int count)
{
    int outputs = 0;
    for (int i = 0; i < count; i++) {
        outputs += t[i].output;
        if (t[i].output && has_elements(&t[i]))
            return false;
    }
    return outputs > 0;
}

/* Pointers */

static ckl_status check_pointer(const char *op, const plan_tensor *t, const void *pointer)
{
    const int64_t align = (int64_t)ckl_dtype_bytes(t->dtype);
    if (t->absent && pointer)
        FAIL(CKL_INVALID, "%s: %s=%p is not part of %s", op, t->name, pointer, t->absent);
    if (!has_elements(t) || (t->optional && !pointer))
        return CKL_OK;
    if (!pointer)
        FAIL(CKL_INVALID, "%s: %s is NULL", op, t->name);
    if ((uintptr_t)pointer % (uintptr_t)align)
        FAIL(CKL_INVALID, "%s: %s=%p is not aligned to its %" PRId64 "-byte elements", op, t->name, pointer, align);
    return CKL_OK;
}

/* Bytes from the first to the last element of the modes whose strides are no multiples of step. */
static int64_t span_within(const plan_tensor *t, int64_t step)
{
    const int64_t bytes = (int64_t)ckl_dtype_bytes(t->dtype);
    int64_t elements = 1;
    for (int i = 0; i < t->rank; i++)
        if (t->stride[i] * bytes % step)
            elements = sum_i64(elements, product_i64(t->shape[i] - 1, t->stride[i]));
    return product_i64(elements, bytes);
}

/*
 * Do two tensors lie side by side, as columns of one matrix, modulo a stride of a? q, k and v of a joint projection do,
 * by tokens.
 */
static bool side_by_side(const plan_tensor *a, const void *at_a, const plan_tensor *b, const void *at_b)
{
    for (int i = 0; i < a->rank; i++) {
        const int64_t step = a->stride[i] * (int64_t)ckl_dtype_bytes(a->dtype);
        if (step == 0)
            continue;
        int64_t apart = (int64_t)((uintptr_t)at_b - (uintptr_t)at_a) % step;
        apart += apart < 0 ? step : 0;
        if (span_within(a, step) <= apart && span_within(b, step) <= step - apart)
            return true;
    }
    return false;
}

static bool overlap(const plan_tensor *a, const void *at_a, const plan_tensor *b, const void *at_b)
{
    return plan_overlap(at_a, plan_tensor_bytes(a), at_b, plan_tensor_bytes(b)) && !side_by_side(a, at_a, b, at_b);
}

/* May an output be in place of an input? */
static bool is_same_place(const plan_tensor *a, const plan_tensor *b)
{
    if (!a->place || a->place != b->place || a->rank != b->rank || b->output ||
        ckl_dtype_bytes(a->dtype) != ckl_dtype_bytes(b->dtype))
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->shape[i] != b->shape[i] || (a->shape[i] > 1 && a->stride[i] != b->stride[i]))
            return false;
    return true;
}

ckl_status plan_check_pointers(const char *op, const plan_tensor *t, int count, const void *const *pointers)
{
    for (int i = 0; i < count; i++)
        TRY(check_pointer(op, &t[i], pointers[i]));
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            bool in_place = pointers[i] == pointers[j] && is_same_place(&t[i], &t[j]);
            if (i != j && t[i].output && !in_place && overlap(&t[i], pointers[i], &t[j], pointers[j]))
                FAIL(CKL_INVALID, "%s: %s overlaps %s without being the same tensor", op, t[i].name, t[j].name);
        }
    return CKL_OK;
}

ckl_status plan_check_workspace(const char *op, const void *workspace)
{
    if ((uintptr_t)workspace % PLAN_WORKSPACE_ALIGNMENT)
        FAIL(CKL_INVALID, "%s: workspace=%p is not aligned to %d bytes", op, workspace, PLAN_WORKSPACE_ALIGNMENT);
    return CKL_OK;
}

ckl_status plan_check_threads(const char *what, int threads, const ckl_device_info *device)
{
    if (threads < 32 || threads % 32 || threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "%s: threads=%d is no multiple of 32 up to %d", what, threads, device->threads_per_cta_max);
    return CKL_OK;
}

bool plan_aligned(int64_t bytes, const void *const *pointers, int count)
{
    uintptr_t all = 0;
    for (int i = 0; i < count; i++)
        all |= (uintptr_t)pointers[i];
    return all % (uintptr_t)bytes == 0;
}
