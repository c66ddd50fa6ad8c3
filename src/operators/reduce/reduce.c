/* reduce.c - validation of reductions, their view through merged modes, the public functions, and problem lines. */
#include "cutekernellib/operators/reduce.h"

#include "base/shape.h"
#include "operators/operators.h"
#include "operators/reduce/reduce_config.h"
#include "operators/reduce/reduce_folds.h"

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

/* A fold becomes its own text, which stays. */
static ckl_status check_fold(ckl_reduce_desc *d)
{
    const ckl_reduce_fold *fold = reduce_fold_find(d->fold);
    if (!fold && d->fold && *d->fold && strcmp(d->fold, "none") != 0)
        FAIL(CKL_INVALID, "reduce: fold=%s is not known; ckl_reduce_fold_add() makes it so", d->fold);
    d->fold = fold ? fold->name : NULL;
    if (fold && d->op)
        FAIL(CKL_INVALID, "reduce: fold=%s goes in the place of op=%s", d->fold, op_names[d->op]);
    return CKL_OK;
}

static ckl_status check_types(ckl_reduce_desc *d)
{
    ckl_dtype first;
    uint32_t allowed = outputs_of(d->fold ? CKL_REDUCE_MEAN : (int)d->op, d->dtype, &first);
    if (d->output == CKL_DTYPE_DEFAULT)
        d->output = first;
    if (!is_in(allowed, (int)d->output))
        FAIL(CKL_INVALID, "reduce: output=%s does not take the %s of %s; %s does", ckl_dtype_name(d->output),
             d->fold ? d->fold : op_names[d->op], ckl_dtype_name(d->dtype), ckl_dtype_name(first));
    if (d->correction > 0 && !is_in(SPREADS, (int)d->op))
        FAIL(CKL_INVALID, "reduce: correction=%d is for var and std", d->correction);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_reduce_desc *d = desc;
    TRY(check_fold(d));
    TRY(check_types(d));
    if (d->rank < 1 || d->rank > CKL_REDUCE_RANK_MAX)
        FAIL(CKL_INVALID, "reduce: rank=%d is not in 1..%d", d->rank, CKL_REDUCE_RANK_MAX);
    TRY(plan_check_sizes("reduce", "shape", d->shape, d->rank, CKL_REDUCE_RANK_MAX));
    TRY(plan_check_sizes("reduce", "stride", d->stride, d->rank, CKL_REDUCE_RANK_MAX));
    plan_default_strides(d->shape, d->stride, d->rank);
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
    if (*count > 0 && last->stride == product_i64(mode.stride, mode.extent))
        *last = (reduce_mode){ product_i64(last->extent, mode.extent), mode.stride };
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
    reduce_view v = { .kind = { .op = (int)d->op, .dtype = d->dtype, .output = d->output, .fold = d->fold },
                      .rows = 1,
                      .count = 1,
                      .correction = d->correction };
    reduce_mode reduced[CKL_REDUCE_RANK_MAX];
    int reduced_axes = 0;
    for (int a = 0; a < d->rank; a++) {
        reduce_mode mode = { d->shape[a], d->stride[a] };
        if (d->axes >> a & 1) {
            reduced[reduced_axes++] = mode;
            v.count = product_i64(v.count, mode.extent);
        } else {
            append(mode, v.kept, &v.kind.kept);
            v.rows = product_i64(v.rows, mode.extent);
        }
    }
    if (!is_in(ARGS, (int)d->op))
        sort_by_stride(reduced, reduced_axes);
    for (int i = 0; i < reduced_axes; i++)
        append(reduced[i], v.reduced, &v.kind.reduced);
    if (v.kind.reduced == 0)
        v.reduced[v.kind.reduced++] = (reduce_mode){ 1, 1 };
    return v;
}

static ckl_status view(const void *desc, void *out)
{
    *(reduce_view *)out = reduce_view_of(desc);
    return CKL_OK;
}

/* y is a number for each row: each can be computed alone. */
static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_reduce_desc *d = desc;
    int64_t rows = 1;
    for (int a = 0; a < d->rank; a++)
        rows = product_i64(rows, d->axes >> a & 1 ? 1 : d->shape[a]);
    t[0] = plan_strided("x", d->dtype, d->rank, d->shape, d->stride);
    t[1] = plan_output(plan_column("y", d->output, rows));
    return 2;
}

static const field desc_fields[] = { REDUCE_OP(FIELD_ROW, ckl_reduce_desc) REDUCE_DESC(FIELD_ROW, ckl_reduce_desc) };
static const desc_member members[] = { DESC_MEMBER(ckl_reduce_desc, int, rank),
                                       DESC_MEMBER(ckl_reduce_desc, int64_t, shape),
                                       DESC_MEMBER(ckl_reduce_desc, int64_t, stride),
                                       DESC_MEMBER(ckl_reduce_desc, int, axes), // a bit each

                                       { 0 } };
static const implementation *const implementations[] = { &reduce_columns_plans,
                                                         &reduce_rows_plans,
                                                         &reduce_vectorized_plans,
                                                         &reduce_shuffle_plans,
                                                         &reduce_improved_plans,
                                                         &reduce_naive_plans,
                                                         NULL };

OPERATOR_OF_VIEW(reduce, reduce, reduce_view,
                 "sum, maximum, mean, variance, position of an extreme, a fold of your own ... over any axes",
                 .members = members, .workspace = offsetof(ckl_reduce_args, workspace));

/* Problem lines: sizes, axes and strides */

static const field fields[] = {
    REDUCE_OP(FIELD_NESTED, (reduce_problem, desc))                                                        //
    FIELD_ROW(reduce_problem, quoted, shape, "4096", "", "sizes of x, outermost axis first: 8192x32768")   //
    FIELD_ROW(reduce_problem, quoted, axes, "", "", "reduced axes: 1 or 0,2; all if not given")            //
    REDUCE_DESC(FIELD_NESTED, (reduce_problem, desc))                                                      //
    FIELD_ROW(reduce_problem, quoted, stride, "", "", "elements between neighbours of each axis: 40000x1") //
    FIELD_ROW(reduce_problem, float, offset, "0", "", "added to random x, to show cancellation")           //
};

static ckl_status prepare(void *problem)
{
    reduce_problem *p = problem;
    ckl_reduce_desc *d = &p->desc;
    sizes axes = { 0 };
    TRY(extents_parse("reduce", p->shape, CKL_REDUCE_RANK_MAX, &d->rank, d->shape));
    TRY(list_parse("reduce", "stride", p->stride, d->rank, d->stride));
    if (*p->axes)
        TRY(sizes_parse("reduce", "axes", p->axes, CKL_REDUCE_RANK_MAX, &axes));
    for (int i = 0; i < axes.rank; i++) {
        if (axes.of[i] < 0 || axes.of[i] >= d->rank)
            FAIL(CKL_INVALID, "reduce: axes=%s: axis %" PRId64 " is out of range for rank %d", p->axes, axes.of[i],
                 d->rank);
        d->axes |= 1u << axes.of[i];
    }
    return CKL_OK;
}

OPERATOR_LINE(reduce, reduce_problem, prepare);
