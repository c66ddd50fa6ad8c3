/* permute.c - permutations of modes, and copies of any strides: validation and the operator's table. */
#include "cutekernellib/operators/permute.h"

#include <string.h>

#include "operators/permute/permute_plans.h"

static ckl_status check_modes(const ckl_permute_desc *d)
{
    bool taken[CKL_PERMUTE_RANK_MAX] = { false };
    if (ckl_dtype_bytes(d->dtype) == 0)
        FAIL(CKL_INVALID, "permute: dtype=%s is not an element type", ckl_dtype_name(d->dtype));
    if (d->rank < 1 || d->rank > CKL_PERMUTE_RANK_MAX)
        FAIL(CKL_INVALID, "permute: rank=%d is not in 1..%d", d->rank, CKL_PERMUTE_RANK_MAX);
    for (int i = 0; i < d->rank; i++)
        if (d->shape[i] < 0)
            FAIL(CKL_INVALID, "permute: shape[%d]=%" PRId64 " is negative", i, d->shape[i]);
    for (int i = 0; i < d->rank; i++) {
        if (d->stride_x[i] < 0 || d->stride_y[i] < 0)
            FAIL(CKL_INVALID, "permute: a stride of mode %d is negative", i);
        if (d->order[i] < 0 || d->order[i] >= d->rank)
            FAIL(CKL_INVALID, "permute: order[%d]=%d is not in 0..%d", i, d->order[i], d->rank - 1);
        if (taken[d->order[i]])
            FAIL(CKL_INVALID, "permute: order[%d]=%d names a mode twice", i, d->order[i]);
        taken[d->order[i]] = true;
    }
    return CKL_OK;
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
        next = saturated_product(next, shape[i]);
    }
}

static ckl_status check(void *desc)
{
    permute_desc *plan = desc;
    ckl_permute_desc *d = &plan->given;
    TRY(check_modes(d));
    int64_t shape_y[CKL_PERMUTE_RANK_MAX];
    mode modes[CKL_PERMUTE_RANK_MAX];
    for (int i = 0; i < d->rank; i++)
        shape_y[i] = d->shape[d->order[i]];
    default_strides(d->rank, d->shape, d->stride_x);
    default_strides(d->rank, shape_y, d->stride_y);
    for (int i = 0; i < d->rank; i++)
        modes[i] = (mode){ shape_y[i], d->stride_x[d->order[i]], d->stride_y[i] };
    plan->simplified = (permutation){ .op = "permute", .bytes = (int)ckl_dtype_bytes(d->dtype) };
    TRY(permutation_simplify(&plan->simplified, d->rank, modes));
    permutation_find_matrix(&plan->simplified);
    return CKL_OK;
}

PLAN_CLEAR_PADDING(clear_padding, permute_desc)

const operator_info permute_operator = {
    .name = "permute",
    .summary = "y = x with its modes in another order; copies of any strides",
    .desc_bytes = sizeof(permute_desc),
    .clear_padding = clear_padding,
    .args_bytes = sizeof(ckl_permute_args),
    .check = check,
    .check_args = permutation_check_args,
    .implementations = permute_implementations,
};

permute_desc permute_desc_of(const ckl_permute_desc *given)
{
    permute_desc plan;
    memset(&plan, 0, sizeof plan); // padding too: descs are compared by their bytes
    if (given)
        plan.given = *given;
    return plan;
}

ckl_status ckl_permute_plan(ckl_device *device, const ckl_permute_desc *desc, ckl_plan **plan)
{
    permute_desc full = permute_desc_of(desc);
    return plan_build(device, &permute_operator, desc ? &full : NULL, NULL, plan);
}

ckl_status ckl_permute_run(const ckl_plan *plan, const ckl_permute_args *args, ckl_stream stream)
{
    return plan_run(plan, &permute_operator, args, stream);
}

ckl_status ckl_permute(ckl_device *device, const ckl_permute_desc *desc, const ckl_permute_args *args,
                       ckl_stream stream)
{
    permute_desc full = permute_desc_of(desc);
    return plan_once(device, &permute_operator, desc ? &full : NULL, args, stream);
}
