/* reduce.c - validation of reductions, their view through merged modes, and the public functions. */
#include "cutekernellib/operators/reduce.h"

#include "operators/operators.h"
#include "operators/reduce/reduce_plan.h"
#include "plan/check.h"

/* A set of element types. */
#define SET(dtype) (1u << (dtype))

enum {
    FLOATS = SET(CKL_F32) | SET(CKL_F16) | SET(CKL_BF16),
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
    TRY(PLAN_CHECK_DTYPE("reduce", "dtype", d->dtype, CKL_F32, CKL_F16, CKL_BF16, CKL_I32, CKL_I64));
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
    for (int a = d->rank; a < CKL_REDUCE_RANK_MAX; a++)
        if (d->shape[a] || d->stride[a])
            FAIL(CKL_INVALID, "reduce: shape[%d]=%" PRId64 " stride[%d]=%" PRId64 " are beyond rank=%d", a, d->shape[a],
                 a, d->stride[a], d->rank);
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

/* The view */

/* Appends a mode, or merges it with the one before where both step evenly. */
static void append(reduce_mode mode, reduce_mode *modes, int *count)
{
    reduce_mode *last = modes + *count - 1;
    if (mode.extent == 1)
        return;
    if (*count > 0 && last->stride == mode.stride * mode.extent)
        *last = (reduce_mode){ last->extent * mode.extent, mode.stride };
    else
        modes[(*count)++] = mode;
}

/* Sums do not mind the order: from far to near finds more neighbours, and the contiguous mode comes last. */
static void sort_by_stride(reduce_mode *modes, int count)
{
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && modes[j - 1].stride < modes[j].stride; j--) {
            reduce_mode nearer = modes[j - 1];
            modes[j - 1] = modes[j];
            modes[j] = nearer;
        }
}

reduce_view reduce_view_of(const ckl_reduce_desc *d)
{
    reduce_view v = { .kind = { (int)d->op, d->dtype, d->output }, .rows = 1, .count = 1, .correction = d->correction };
    reduce_mode reduced[CKL_REDUCE_RANK_MAX];
    int64_t last = 0; // element of x
    int reduced_axes = 0;
    for (int a = 0; a < d->rank; a++) {
        reduce_mode mode = { d->shape[a], d->stride[a] };
        last += (mode.extent - 1) * mode.stride;
        if (d->axes >> a & 1) {
            reduced[reduced_axes++] = mode;
            v.count *= mode.extent;
        } else {
            append(mode, v.kept, &v.kind.kept);
            v.rows *= mode.extent;
        }
    }
    if (!is_in(ARGS, (int)d->op))
        sort_by_stride(reduced, reduced_axes);
    for (int i = 0; i < reduced_axes; i++)
        append(reduced[i], v.reduced, &v.kind.reduced);
    if (v.kind.reduced == 0)
        v.reduced[v.kind.reduced++] = (reduce_mode){ 1, 1 };
    v.x_bytes = v.rows && v.count ? (last + 1) * (int64_t)ckl_dtype_bytes(d->dtype) : 0;
    return v;
}

static ckl_status view(const void *desc, void *out)
{
    *(reduce_view *)out = reduce_view_of(desc);
    return CKL_OK;
}

static ckl_status check_args(const void *desc, const void *args)
{
    const reduce_view *v = desc;
    const ckl_reduce_args *a = args;
    int64_t of_x = (int64_t)ckl_dtype_bytes(v->kind.dtype), of_y = (int64_t)ckl_dtype_bytes(v->kind.output);
    const plan_tensor tensors[] = {
        { "x", a->x, .bytes = v->x_bytes, .align = of_x },
        plan_output((plan_tensor){ "y", a->y, .bytes = v->rows * of_y, .align = of_y }),
    };
    TRY(plan_check_workspace("reduce", a->workspace));
    return plan_check_tensors("reduce", tensors, COUNT_OF(tensors));
}

static const implementation *const implementations[] = { &reduce_columns_plans,
                                                         &reduce_rows_plans,
                                                         &reduce_vectorized_plans,
                                                         &reduce_shuffle_plans,
                                                         &reduce_improved_plans,
                                                         &reduce_naive_plans,
                                                         NULL };

OPERATOR_OF_VIEW(reduce, reduce, "sum, maximum, mean, variance, position of an extreme ... over any axes", reduce_view);
