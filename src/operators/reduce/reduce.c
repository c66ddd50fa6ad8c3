/* reduce.c - validation of reductions, and the public functions. */
#include "cutekernellib/operators/reduce.h"

#include "operators/operators.h"
#include "operators/reduce/reduce_choice.h"
#include "plan/check.h"

/* A set of element types. */
#define SET(dtype) (1u << (dtype))

enum {
    FLOATS = SET(CKL_F32) | SET(CKL_F16) | SET(CKL_BF16),
    INTEGERS = SET(CKL_I32) | SET(CKL_I64),
    INTEGER_SUMS = 1 << CKL_REDUCE_SUM | 1 << CKL_REDUCE_PROD,
    EXTREMES = 1 << CKL_REDUCE_MAX | 1 << CKL_REDUCE_MIN,
    ARGS = 1 << CKL_REDUCE_ARGMAX | 1 << CKL_REDUCE_ARGMIN,
    LOGICAL = 1 << CKL_REDUCE_ANY | 1 << CKL_REDUCE_ALL,
    SPREADS = 1 << CKL_REDUCE_VAR | 1 << CKL_REDUCE_STD,
};

static const char *const op_names[] = { "sum",    "max",    "min", "prod", "mean",  "var",   "std",
                                        "argmax", "argmin", "any", "all",  "norm1", "norm2", "logsumexp" };

static bool is_in(uint32_t set, int member)
{
    return set >> member & 1;
}

/* The output types of an operation on x; the first is the default. */
static uint32_t outputs_of(int op, ckl_dtype dtype, ckl_dtype *first)
{
    bool floats = is_in(FLOATS, (int)dtype);
    if (is_in(LOGICAL, op) || is_in(ARGS, op)) {
        *first = is_in(ARGS, op) ? CKL_I64 : CKL_BOOL;
        return SET(*first);
    }
    if (floats || is_in(EXTREMES, op)) {
        *first = dtype;
        return SET(dtype) | (floats ? SET(CKL_F32) : 0);
    }
    *first = is_in(INTEGER_SUMS, op) ? CKL_I64 : CKL_F32;
    return SET(*first) | (is_in(INTEGER_SUMS, op) ? SET(dtype) : 0);
}

static ckl_status check_types(ckl_reduce_desc *d)
{
    if ((unsigned)d->op >= COUNT_OF(op_names))
        FAIL(CKL_INVALID, "reduce: op=%d is not an operation", (int)d->op);
    if (!is_in(FLOATS | INTEGERS, (int)d->dtype))
        FAIL(CKL_INVALID, "reduce: dtype=%s is none of f32, f16, bf16, i32, i64", ckl_dtype_name(d->dtype));
    ckl_dtype first;
    uint32_t allowed = outputs_of((int)d->op, d->dtype, &first);
    if (d->output == CKL_DTYPE_DEFAULT)
        d->output = first;
    if (!is_in(allowed, (int)d->output))
        FAIL(CKL_INVALID, "reduce: output=%s does not take the %s of %s; %s does", ckl_dtype_name(d->output),
             op_names[d->op], ckl_dtype_name(d->dtype), ckl_dtype_name(first));
    if (d->correction < 0 || (d->correction > 0 && !is_in(SPREADS, (int)d->op)))
        FAIL(CKL_INVALID, "reduce: correction=%d %s", d->correction,
             d->correction < 0 ? "is negative" : "is for var and std");
    return CKL_OK;
}

static ckl_status check_shape(const ckl_reduce_desc *d)
{
    int64_t elements = 1;
    if (d->rank < 1 || d->rank > CKL_REDUCE_RANK_MAX)
        FAIL(CKL_INVALID, "reduce: rank=%d is not in 1..%d", d->rank, CKL_REDUCE_RANK_MAX);
    for (int a = 0; a < d->rank; a++) {
        if (d->shape[a] < 0)
            FAIL(CKL_INVALID, "reduce: shape[%d]=%" PRId64 " is negative", a, d->shape[a]);
        if (__builtin_mul_overflow(elements, d->shape[a], &elements) || elements > INT64_MAX / 8)
            FAIL(CKL_INVALID, "reduce: shape[%d]=%" PRId64 " makes x larger than 64 bits can address", a, d->shape[a]);
    }
    return CKL_OK;
}

/* All zero means dense. */
static ckl_status check_strides(ckl_reduce_desc *d)
{
    bool given = false;
    for (int a = 0; a < d->rank; a++) {
        if (d->stride[a] < 0)
            FAIL(CKL_INVALID, "reduce: stride[%d]=%" PRId64 " is negative", a, d->stride[a]);
        given |= d->stride[a] != 0;
    }
    int64_t dense = 1;
    for (int a = d->rank - 1; a >= 0 && !given; dense *= d->shape[a--])
        d->stride[a] = dense;
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_reduce_desc *d = desc;
    TRY(check_types(d));
    TRY(check_shape(d));
    TRY(check_strides(d));
    uint32_t all = (1u << d->rank) - 1;
    if (d->axes & ~all)
        FAIL(CKL_INVALID, "reduce: axis %d is out of range for rank %d", log2_i64(d->axes), d->rank);
    if (d->axes == 0)
        d->axes = all;
    return CKL_OK;
}

static ckl_status check_pointer(const char *name, const void *pointer, size_t alignment)
{
    if (!pointer)
        FAIL(CKL_INVALID, "reduce: %s is NULL", name);
    if ((uintptr_t)pointer % alignment)
        FAIL(CKL_INVALID, "reduce: %s=%p is not aligned to %zu bytes", name, pointer, alignment);
    return CKL_OK;
}

/* Bytes from the first to past the last element of x. */
static int64_t extent_of(const ckl_reduce_desc *d)
{
    int64_t last = 0;
    for (int a = 0; a < d->rank; a++)
        last += (d->shape[a] - 1) * d->stride[a];
    return (last + 1) * (int64_t)ckl_dtype_bytes(d->dtype);
}

static ckl_status check_args(const void *desc, const void *args)
{
    const ckl_reduce_desc *d = desc;
    const ckl_reduce_args *x = args;
    reduce_view v = reduce_view_of(d);
    if (v.rows == 0)
        return CKL_OK;
    TRY(check_pointer("y", x->y, ckl_dtype_bytes(d->output)));
    TRY(plan_check_workspace("reduce", x->workspace));
    if (v.count == 0)
        return CKL_OK;
    TRY(check_pointer("x", x->x, ckl_dtype_bytes(d->dtype)));
    if (plan_overlap(x->x, extent_of(d), x->y, v.rows * (int64_t)ckl_dtype_bytes(d->output)))
        FAIL(CKL_INVALID, "reduce: y overlaps x");
    return CKL_OK;
}

PLAN_CLEAR_PADDING(clear_padding, ckl_reduce_desc)

const operator_info reduce_operator = {
    .name = "reduce",
    .summary = "sum, maximum, mean, variance, position of an extreme ... over any axes",
    .desc_bytes = sizeof(ckl_reduce_desc),
    .clear_padding = clear_padding,
    .args_bytes = sizeof(ckl_reduce_args),
    .check = check,
    .check_args = check_args,
    .implementations = reduce_implementations,
};

ckl_status ckl_reduce_plan(ckl_device *device, const ckl_reduce_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &reduce_operator, desc, NULL, plan);
}

ckl_status ckl_reduce_run(const ckl_plan *plan, const ckl_reduce_args *args, ckl_stream stream)
{
    return plan_run(plan, &reduce_operator, args, stream);
}

ckl_status ckl_reduce(ckl_device *device, const ckl_reduce_desc *desc, const ckl_reduce_args *args, ckl_stream stream)
{
    return plan_once(device, &reduce_operator, desc, args, stream);
}
