/* permute.c - permutations of modes, and copies of any strides: validation and the operator's table. */
#include "cutekernellib/operators/permute.h"

#include "operators/operators.h"
#include "operators/permute/permute_config.h"
#include "plan/check.h"

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
    return CKL_OK;
}

static ckl_status check_modes(const ckl_permute_desc *d)
{
    if (d->rank < 1 || d->rank > CKL_PERMUTE_RANK_MAX)
        FAIL(CKL_INVALID, "permute: rank=%d is not in 1..%d", d->rank, CKL_PERMUTE_RANK_MAX);
    for (int i = 0; i < d->rank; i++)
        if (d->shape[i] < 0)
            FAIL(CKL_INVALID, "permute: shape[%d]=%" PRId64 " is negative", i, d->shape[i]);
    for (int i = 0; i < d->rank; i++)
        if (d->stride_x[i] < 0 || d->stride_y[i] < 0)
            FAIL(CKL_INVALID, "permute: a stride of mode %d is negative", i);
    for (int i = d->rank; i < CKL_PERMUTE_RANK_MAX; i++)
        if (d->shape[i] || d->order[i] || d->stride_x[i] || d->stride_y[i])
            FAIL(CKL_INVALID, "permute: mode %d is set, rank=%d", i, d->rank);
    return check_order(d);
}

/* Strides without gaps where none are given. shape: by the modes of that tensor. */
static void default_strides(int rank, const int64_t *shape, int64_t *stride)
{
    int64_t next = 1;
    for (int i = 0; i < rank; i++)
        if (stride[i])
            return;
    for (int i = rank - 1; i >= 0; i--) {
        stride[i] = next;
        next = permutation_product(next, shape[i]);
    }
}

static ckl_status check(void *desc)
{
    ckl_permute_desc *d = desc;
    int64_t shape_y[CKL_PERMUTE_RANK_MAX];
    TRY(permutation_check_dtype("permute", d->dtype));
    TRY(check_modes(d));
    for (int i = 0; i < d->rank; i++)
        shape_y[i] = d->shape[d->order[i]];
    default_strides(d->rank, d->shape, d->stride_x);
    default_strides(d->rank, shape_y, d->stride_y);
    return CKL_OK;
}

static ckl_status view(const void *desc, void *out)
{
    const ckl_permute_desc *d = desc;
    permutation *p = out;
    permute_mode modes[CKL_PERMUTE_RANK_MAX];
    for (int i = 0; i < d->rank; i++)
        modes[i] = (permute_mode){ d->shape[d->order[i]], d->stride_x[d->order[i]], d->stride_y[i] };
    *p = (permutation){ .op = "permute", .bytes = (int)ckl_dtype_bytes(d->dtype) };
    TRY(permutation_simplify(p, d->rank, modes));
    permutation_find_matrix(p);
    return CKL_OK;
}

static ckl_status check_args(const void *problem, const void *args)
{
    return permutation_check_args(problem, args);
}

static const implementation *const implementations[] = PERMUTE_IMPLEMENTATIONS;

OPERATOR_OF_VIEW(permute, permute, "y = x with its modes in another order; copies of any strides", permutation);
