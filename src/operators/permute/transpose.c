/* transpose.c - transposes of matrices of any strides: validation and the operator's table. */
#include "cutekernellib/operators/transpose.h"

#include "operators/operators.h"
#include "operators/permute/permute_config.h"
#include "plan/check.h"

static ckl_status check_sizes(const ckl_transpose_desc *d)
{
    const struct {
        const char *name;
        int64_t value;
    } sizes[] = { { "rows", d->rows }, { "cols", d->cols },         { "batch", d->batch },
                  { "ldx", d->ldx },   { "ldy", d->ldy },           { "incx", d->incx },
                  { "incy", d->incy }, { "stride_x", d->stride_x }, { "stride_y", d->stride_y } };
    for (int i = 0; i < COUNT_OF(sizes); i++)
        TRY(plan_check_size("transpose", sizes[i].name, sizes[i].value));
    if (d->tile != 0 && d->tile != 16 && d->tile != 32)
        FAIL(CKL_INVALID, "transpose: tile=%d is none of 0, 16, 32", d->tile);
    return CKL_OK;
}

static int64_t or_default(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

/* Rows of contiguous elements must not overlap; with other strides only y is looked at, by permutation_simplify(). */
static ckl_status check_pitch(const char *name, int64_t *ld, int64_t inc, const char *extent_name, int64_t extent)
{
    *ld = or_default(*ld, permutation_product(extent, inc));
    return inc == 1 ? plan_check_pitch("transpose", name, ld, extent_name, extent) : CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_transpose_desc *d = desc;
    TRY(permutation_check_dtype("transpose", d->dtype));
    TRY(check_sizes(d));
    d->batch = or_default(d->batch, 1);
    d->incx = or_default(d->incx, 1);
    d->incy = or_default(d->incy, 1);
    TRY(check_pitch("ldx", &d->ldx, d->incx, "cols", d->cols));
    TRY(check_pitch("ldy", &d->ldy, d->incy, "rows", d->rows));
    d->stride_x = or_default(d->stride_x, permutation_product(d->rows, d->ldx));
    d->stride_y = or_default(d->stride_y, permutation_product(d->cols, d->ldy));
    return CKL_OK;
}

static ckl_status view(const void *desc, void *out)
{
    const ckl_transpose_desc *d = desc;
    const permute_mode batch = { d->batch, d->stride_x, d->stride_y };
    const permute_mode modes[] = { batch, { d->rows, d->ldx, d->incy }, { d->cols, d->incx, d->ldy } };
    const permute_matrix matrix = { .rows = d->rows,
                                    .cols = d->cols,
                                    .ldx = d->ldx,
                                    .incx = d->incx,
                                    .ldy = d->ldy,
                                    .incy = d->incy,
                                    .outer_count = d->batch > 1,
                                    .outer = { batch } };
    permutation *p = out;
    *p = (permutation){ .op = "transpose",
                        .bytes = (int)ckl_dtype_bytes(d->dtype),
                        .tile = d->tile,
                        .has_matrix = true,
                        .matrix = matrix };
    return permutation_simplify(p, COUNT_OF(modes), modes);
}

_Static_assert(sizeof(ckl_transpose_args) == sizeof(permute_pointers), "the implementations take either");

static ckl_status check_args(const void *problem, const void *args)
{
    return permutation_check_args(problem, args);
}

static const implementation *const implementations[] = PERMUTE_IMPLEMENTATIONS;

OPERATOR_OF_VIEW(transpose, transpose, "y = transpose of x, in batches, of any strides", permutation);
