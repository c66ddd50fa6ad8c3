/* permute_ref.c - the definitions of transpose and permute: which element of x each element of y is. */
#include <math.h>

#include "base/dtype.h"
#include "operators/permute/permute_lab.h"

static void take(ckl_dtype dtype, const void *x, int64_t index, int64_t j, reference_slice out)
{
    out.value[j] = dtype_read(dtype, x, index);
    out.magnitude[j] = fabs(out.value[j]);
}

/* Slice: row c of the y of one matrix. */
void transpose_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const transpose_problem *p = problem;
    int64_t b = slice / p->cols, c = slice % p->cols;
    (void)output;
    for (int64_t r = 0; r < p->rows; r++)
        take(p->dtype, host[0], b * p->stride_x + r * p->ldx + c * p->incx, r, out);
}

/* Slice: all modes of y but the last, the outermost changing slowest. */
void permute_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const permute_problem *p = problem;
    const permute_lists *l = &p->lists;
    int64_t start = 0;
    (void)output;
    for (int i = l->rank - 2; i >= 0; i--) {
        start += slice % l->shape_y[i] * l->stride_x[l->order[i]];
        slice /= l->shape_y[i];
    }
    for (int64_t j = 0; j < l->shape_y[l->rank - 1]; j++)
        take(p->dtype, host[0], start + j * l->stride_x[l->order[l->rank - 1]], j, out);
}
