/* transpose.c - transposes of matrices of any strides: validation and the operator's table. */
#include "cutekernellib/operators/transpose.h"

#include "operators/operators.h"
#include "operators/permute/permute_plan.h"

/* Rows of contiguous elements must not overlap; with other strides only y is looked at, by permutation_simplify(). */
static ckl_status check_pitch(const char *name, int64_t *ld, int64_t inc, const char *extent_name, int64_t extent)
{
    *ld = *ld ? *ld : product_i64(extent, inc);
    return inc == 1 ? plan_check_pitch("transpose", name, ld, extent_name, extent) : CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_transpose_desc *d = desc;
    TRY(check_pitch("ldx", &d->ldx, d->incx, "cols", d->cols));
    TRY(check_pitch("ldy", &d->ldy, d->incy, "rows", d->rows));
    d->stride_x = d->stride_x ? d->stride_x : product_i64(d->rows, d->ldx);
    d->stride_y = d->stride_y ? d->stride_y : product_i64(d->cols, d->ldy);
    return CKL_OK;
}

static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_transpose_desc *d = desc;
    const int64_t x[] = { d->batch, d->rows, d->cols }, steps_x[] = { d->stride_x, d->ldx, d->incx };
    const int64_t y[] = { d->batch, d->cols, d->rows }, steps_y[] = { d->stride_y, d->ldy, d->incy };
    t[0] = plan_strided("x", d->dtype, 3, x, steps_x);
    t[1] = plan_output(plan_strided("y", d->dtype, 3, y, steps_y));
    return 2;
}

static ckl_status view(const void *desc, void *out)
{
    const ckl_transpose_desc *d = desc;
    const permute_mode batch = { d->batch, d->stride_x, d->stride_y };
    /* In any order. */
    const permute_mode modes[] = { batch, { d->rows, d->ldx, d->incy }, { d->cols, d->incx, d->ldy } };
    const permute_matrix matrix = {
        .rows = d->rows, .cols = d->cols, .ldx = d->ldx, .ldy = d->ldy, .outer_count = d->batch > 1, .outer = { batch }
    };
    permutation *p = out;
    *p = (permutation){
        .op = "transpose", .bytes = dtype_bytes(d->dtype), .has_matrix = d->incx == 1 && d->incy == 1, .matrix = matrix
    };
    return permutation_simplify(p, COUNT_OF(modes), modes);
}

_Static_assert(sizeof(ckl_transpose_args) == sizeof(permute_pointers), "the implementations take either");

static const field desc_fields[] = { TRANSPOSE_DESC(FIELD_ROW, ckl_transpose_desc) };
static const implementation *const implementations[] = PERMUTE_IMPLEMENTATIONS;

OPERATOR_OF_VIEW(transpose, transpose, permutation, "y = transpose of x, in batches, of any strides");
OPERATOR_LINE_WITH(transpose, ckl_transpose_desc, desc_fields, NULL);
