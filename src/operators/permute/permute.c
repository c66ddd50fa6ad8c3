/* permute.c - permutations of modes, and copies of any strides: validation, the operator's table, and problem lines. */
#include "cutekernellib/operators/permute.h"

#include "base/math.h"
#include "base/shape.h"
#include "operators/operators.h"
#include "operators/permute/permute_plan.h"

static ckl_status check_order(const ckl_permute_desc *d)
{
    bool taken[CKL_PERMUTE_RANK_MAX] = { false };
    for (int i = 0; i < d->rank; i++) {
        if (d->order[i] < 0 || d->order[i] >= d->rank)
            FAIL(CKL_INVALID, "permute: order[%d]=%d is not in 0..%d", i, d->order[i], d->rank - 1);
        if (taken[d->order[i]])
            FAIL(CKL_INVALID, "permute: order[%d]=%d names a mode twice", i, d->order[i]);
        taken[d->order[i]] = true;
    }
    for (int i = d->rank; i < CKL_PERMUTE_RANK_MAX; i++)
        if (d->order[i])
            FAIL(CKL_INVALID, "permute: order[%d]=%d is beyond the rank", i, d->order[i]);
    return CKL_OK;
}

static void shape_of_y(const ckl_permute_desc *d, int64_t *shape)
{
    for (int i = 0; i < d->rank; i++)
        shape[i] = d->shape[d->order[i]];
}

static ckl_status check(void *desc)
{
    enum { RANK_MAX = CKL_PERMUTE_RANK_MAX };
    ckl_permute_desc *d = desc;
    int64_t shape_y[RANK_MAX];
    if (d->rank < 1 || d->rank > RANK_MAX)
        FAIL(CKL_INVALID, "permute: rank=%d is not in 1..%d", d->rank, RANK_MAX);
    TRY(plan_check_sizes("permute", "shape", d->shape, d->rank, RANK_MAX));
    TRY(plan_check_sizes("permute", "stride_x", d->stride_x, d->rank, RANK_MAX));
    TRY(plan_check_sizes("permute", "stride_y", d->stride_y, d->rank, RANK_MAX));
    TRY(check_order(d));
    shape_of_y(d, shape_y);
    plan_default_strides(d->shape, d->stride_x, d->rank);
    plan_default_strides(shape_y, d->stride_y, d->rank);
    return CKL_OK;
}

static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_permute_desc *d = desc;
    int64_t shape_y[CKL_PERMUTE_RANK_MAX];
    shape_of_y(d, shape_y);
    t[0] = plan_strided("x", d->dtype, d->rank, d->shape, d->stride_x);
    t[1] = plan_output(plan_strided("y", d->dtype, d->rank, shape_y, d->stride_y));
    return 2;
}

static ckl_status view(const void *desc, void *out)
{
    const ckl_permute_desc *d = desc;
    permutation *p = out;
    permute_mode modes[CKL_PERMUTE_RANK_MAX];
    for (int i = 0; i < d->rank; i++)
        modes[i] = (permute_mode){ d->shape[d->order[i]], d->stride_x[d->order[i]], d->stride_y[i] };
    *p = (permutation){ .op = "permute", .bytes = dtype_bytes(d->dtype) };
    TRY(permutation_simplify(p, d->rank, modes));
    permutation_find_matrix(p);
    return CKL_OK;
}

static const field desc_fields[] = { PERMUTE_DESC(FIELD_ROW, ckl_permute_desc) };
static const desc_member members[] = {
    DESC_MEMBER(ckl_permute_desc, int, rank),         DESC_MEMBER(ckl_permute_desc, int64_t, shape),
    DESC_MEMBER(ckl_permute_desc, int, order),        DESC_MEMBER(ckl_permute_desc, int64_t, stride_x),
    DESC_MEMBER(ckl_permute_desc, int64_t, stride_y), { 0 }
};
static const implementation *const implementations[] = PERMUTE_IMPLEMENTATIONS;

OPERATOR_OF_VIEW(permute, permute, permutation, "y = x with its modes in another order; copies of any strides",
                 .members = members);

/* Problem lines: sizes, order and strides */

/* The lists of a line, which prepare() reads into the desc. */
typedef struct permute_lists {
    quoted shape, order, stride_x, stride_y;
} permute_lists;

typedef struct permute_problem {
    ckl_permute_desc desc;
    permute_lists lists;
} permute_problem;

#define PERMUTE_LISTS(X, owner)                                                                       \
    X(owner, quoted, shape, "64x64", "", "of x, outermost mode first: 32x64x56x56")                   \
    X(owner, quoted, order, "", "", "modes of x in y's order: 0,2,3,1; not given: reversed")          \
    X(owner, quoted, stride_x, "", "", "elements, by modes of x: 4096,64,1; not given: without gaps") \
    X(owner, quoted, stride_y, "", "", "elements, by modes of y; not given: without gaps")

static const field fields[] = {
    PERMUTE_LISTS(FIELD_NESTED, (permute_problem, lists)) //
    PERMUTE_DESC(FIELD_NESTED, (permute_problem, desc))   //
};

static ckl_status prepare(void *problem)
{
    permute_problem *p = problem;
    ckl_permute_desc *d = &p->desc;
    int64_t order[CKL_PERMUTE_RANK_MAX];
    TRY(extents_parse("permute", p->lists.shape, CKL_PERMUTE_RANK_MAX, &d->rank, d->shape));
    for (int i = 0; i < d->rank; i++)
        order[i] = d->rank - 1 - i;
    TRY(list_parse("permute", "order", p->lists.order, d->rank, order));
    for (int i = 0; i < d->rank; i++)
        d->order[i] = (int)max_i64(-1, min_i64(order[i], CKL_PERMUTE_RANK_MAX));
    TRY(list_parse("permute", "stride_x", p->lists.stride_x, d->rank, d->stride_x));
    return list_parse("permute", "stride_y", p->lists.stride_y, d->rank, d->stride_y);
}

OPERATOR_LINE(permute, permute_problem, prepare);
