/* transpose.c - transposes of matrices of any strides: validation and the operator's table. */
#include "cutekernellib/operators/transpose.h"

#include <string.h>

#include "operators/permute/permute_plans.h"

_Static_assert(sizeof(ckl_transpose_args) == sizeof(permute_pointers), "the implementations take either");

static ckl_status check_sizes(const ckl_transpose_desc *d)
{
    const struct {
        const char *name;
        int64_t value;
    } counts[] = { { "rows", d->rows }, { "cols", d->cols },         { "batch", d->batch },
                   { "ldx", d->ldx },   { "ldy", d->ldy },           { "incx", d->incx },
                   { "incy", d->incy }, { "stride_x", d->stride_x }, { "stride_y", d->stride_y } };
    for (int i = 0; i < COUNT_OF(counts); i++)
        if (counts[i].value < 0)
            FAIL(CKL_INVALID, "transpose: %s=%" PRId64 " is negative", counts[i].name, counts[i].value);
    if (ckl_dtype_bytes(d->dtype) == 0)
        FAIL(CKL_INVALID, "transpose: dtype=%s is not an element type", ckl_dtype_name(d->dtype));
    if (d->tile != 0 && d->tile != 16 && d->tile != 32)
        FAIL(CKL_INVALID, "transpose: tile=%d is none of 0, 16, 32", d->tile);
    return CKL_OK;
}

/* Rows of contiguous elements must not overlap; with other strides only y is looked at, later. */
static ckl_status check_pitch(const char *name, int64_t ld, int64_t inc, const char *extent_name, int64_t extent)
{
    if (inc == 1 && ld < extent)
        FAIL(CKL_INVALID, "transpose: %s=%" PRId64 " is smaller than %s=%" PRId64, name, ld, extent_name, extent);
    return CKL_OK;
}

static int64_t or_default(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

static void set_defaults(ckl_transpose_desc *d)
{
    d->batch = or_default(d->batch, 1);
    d->incx = or_default(d->incx, 1);
    d->incy = or_default(d->incy, 1);
    d->ldx = or_default(d->ldx, saturated_product(d->cols, d->incx));
    d->ldy = or_default(d->ldy, saturated_product(d->rows, d->incy));
    d->stride_x = or_default(d->stride_x, saturated_product(d->rows, d->ldx));
    d->stride_y = or_default(d->stride_y, saturated_product(d->cols, d->ldy));
}

static ckl_status check(void *desc)
{
    transpose_desc *plan = desc;
    ckl_transpose_desc *d = &plan->given;
    TRY(check_sizes(d));
    set_defaults(d);
    TRY(check_pitch("ldx", d->ldx, d->incx, "cols", d->cols));
    TRY(check_pitch("ldy", d->ldy, d->incy, "rows", d->rows));
    mode modes[] = { { d->batch, d->stride_x, d->stride_y },
                     { d->rows, d->ldx, d->incy },
                     { d->cols, d->incx, d->ldy } };
    plan->simplified = (permutation){
        .op = "transpose", .bytes = (int)ckl_dtype_bytes(d->dtype), .tile = d->tile, .has_matrix = true
    };
    plan->simplified.matrix = (matrix_modes){ .rows = d->rows,
                                              .cols = d->cols,
                                              .ldx = d->ldx,
                                              .incx = d->incx,
                                              .ldy = d->ldy,
                                              .incy = d->incy,
                                              .outer_count = d->batch > 1,
                                              .outer = { modes[0] } };
    return permutation_simplify(&plan->simplified, COUNT_OF(modes), modes);
}

PLAN_CLEAR_PADDING(clear_padding, transpose_desc)

const operator_info transpose_operator = {
    .name = "transpose",
    .summary = "y = transpose of x, in batches, of any strides",
    .desc_bytes = sizeof(transpose_desc),
    .clear_padding = clear_padding,
    .args_bytes = sizeof(ckl_transpose_args),
    .check = check,
    .check_args = permutation_check_args,
    .implementations = permute_implementations,
};

transpose_desc transpose_desc_of(const ckl_transpose_desc *given)
{
    transpose_desc plan;
    memset(&plan, 0, sizeof plan); // padding too: descs are compared by their bytes
    if (given)
        plan.given = *given;
    return plan;
}

ckl_status ckl_transpose_plan(ckl_device *device, const ckl_transpose_desc *desc, ckl_plan **plan)
{
    transpose_desc full = transpose_desc_of(desc);
    return plan_build(device, &transpose_operator, desc ? &full : NULL, NULL, plan);
}

ckl_status ckl_transpose_run(const ckl_plan *plan, const ckl_transpose_args *args, ckl_stream stream)
{
    return plan_run(plan, &transpose_operator, args, stream);
}

ckl_status ckl_transpose(ckl_device *device, const ckl_transpose_desc *desc, const ckl_transpose_args *args,
                         ckl_stream stream)
{
    transpose_desc full = transpose_desc_of(desc);
    return plan_once(device, &transpose_operator, desc ? &full : NULL, args, stream);
}
