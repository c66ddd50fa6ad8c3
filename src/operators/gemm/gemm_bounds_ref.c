/* gemm_bounds_ref.c - how far results may be from the definition of gemm: terms and approximations; and its work. */
#include <math.h>

#include "base/math.h"
#include "operators/gemm/gemm_config.h"
#include "operators/gemm/gemm_lab.h"

/* The terms of an element of D, and of sums beside it. */
double gemm_terms(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    const double lines = d->bias_gradient == CKL_GEMM_SUMS_OF_COLUMNS ? (double)d->m * (double)d->batch
                         : d->bias_gradient == CKL_GEMM_SUMS_OF_ROWS  ? (double)d->n * (double)d->batch
                                                                      : 0;
    return (double)d->k + 6 + lines;
}

static bool tensor_cores_cut(const ckl_gemm_desc *d)
{
    return d->a == CKL_F16 || d->a == CKL_BF16 || d->math == CKL_GEMM_TF32 || d->math == CKL_GEMM_F32X3;
}

/*
 * ex2.approx and rcp.approx of activations: 2^-22 each, and the rounding of an exponent of up to 2^7. Tensor cores
 * truncate: on average each product loses 2^-25 of the largest, and each sum of 16 bytes of them 2^-24, which add up
 * where all have one sign. For 8-bit floats 32 products, the sum so far and the new sum are each truncated to 13 bits
 * below the largest, in every step of 32; accurate sums do so within 128 of K alone. Factors of tf32 lose up to 2^-10
 * each: our kernels truncate them, others round. Three products leave out 2^-22 and lose 2^-22 of each rest.
 */
double gemm_approximation(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    bool exact = d->activation == CKL_ACTIVATION_IDENTITY || d->activation == CKL_ACTIVATION_RELU ||
                 d->activation == CKL_ACTIVATION_DRELU;
    double gelu = exact ? 0 : 0x1p-16;
    double bytes = (double)ckl_dtype_bytes(d->a);
    double steps = ceil((double)(d->accumulation ? min_i64(d->k, 128) : d->k) / 32);
    double cuts = gemm_is_f8(d->a)      ? 34 * steps * 0x1p-13
                  : tensor_cores_cut(d) ? (double)d->k * 0x1p-25 + ceil((double)d->k * bytes / 16) * 0x1p-24
                                        : 0;
    double rests = d->math == CKL_GEMM_TF32 ? 0x1p-9 : d->math == CKL_GEMM_F32X3 ? 0x1p-20 : 0;
    return gelu + cuts + rests;
}

double gemm_flops(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return (d->gated ? 4 : 2) * (double)d->batch * (double)d->m * (double)d->n * (double)d->k;
}

/*
 * tf32 has half the products a cycle of 16 bits, a little more within the same power. FMAs outside the tensor cores
 * have 1/15, and no power limit slows them (bench/notes/gemm.md).
 */
double gemm_matrix_rate(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return d->a != CKL_F32 ? 1 : d->math == CKL_GEMM_TF32 ? 0.65 : d->math == CKL_GEMM_F32X3 ? 0.22 : 0.1;
}
