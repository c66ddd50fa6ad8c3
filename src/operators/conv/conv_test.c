/* conv_test.c - what the laboratory knows of convolution: its operands and costs. */
#include <math.h>

#include "operators/conv/conv_lab.h"

/* Sums of products stay in f32. */
static int operands(const void *problem, operand *all)
{
    const ckl_conv_desc *d = problem;
    const bool nhwc = d->layout == CKL_IMAGE_NHWC;
    for (int i = X; i <= DY; i++) {
        all[i] = operand_along(all[i], d->direction == CKL_CONV_WEIGHT ? 1 : 1u << (nhwc ? CONV_RANK - 1 : 1));
        all[i].hard_max = 0x1p40;
    }
    all[BIAS].hard_max = all[RESIDUAL].hard_max = 0x1p100;
    all[SCALE].hard_max = 0x1p10;
    return 0;
}

/* Products of one sum. */
static double products(const ckl_conv_desc *d)
{
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    const double taps = (double)m[0].filter * (double)m[1].filter * (double)m[2].filter;
    const double places = (double)m[0].y * (double)m[1].y * (double)m[2].y;
    return d->direction == CKL_CONV_WEIGHT
               ? (double)d->n * places
               : taps * (double)(d->direction == CKL_CONV_DATA ? d->k : d->c) / (double)d->groups;
}

static double terms(const void *problem)
{
    return products(problem) + 2;
}

/*
 * ex2.approx and rcp.approx of the activations, and what tensor cores truncate of products and sums
 * (gemm_approximation()).
 */
static double approximation(const void *problem)
{
    const ckl_conv_desc *d = problem;
    const bool cut = d->dtype != CKL_F32 || d->math == CKL_GEMM_TF32;
    const double bytes = (double)ckl_dtype_bytes(d->dtype), n = products(problem);
    const bool exact = d->activation == CKL_ACTIVATION_IDENTITY || d->activation == CKL_ACTIVATION_RELU;
    const double cuts = cut ? n * 0x1p-25 + ceil(n * bytes / 16) * 0x1p-24 : 0;
    return (exact ? 0 : 0x1p-16) + cuts + (d->math == CKL_GEMM_TF32 ? 0x1p-9 : 0); // factors are cut to tf32
}

static double flops(const void *problem)
{
    const ckl_conv_desc *d = problem;
    const conv_tensor w = conv_tensor_of(d, CONV_W), y = conv_tensor_of(d, CONV_Y);
    double count = 2;
    for (int i = 0; i < CONV_RANK; i++)
        count *= (double)y.shape[i] * (i ? (double)w.shape[i] : 1);
    return count;
}

/* Each gradient of a weight goes through all pixels of x: meet_channels(). */
static double reference_flops(const void *problem)
{
    enum { PIXEL_FLOPS = 5, ELEMENT_FLOPS = 2 }; // what finding a pixel, and looking at an element of it, cost
    const ckl_conv_desc *d = problem;
    const double channels = (double)d->c / (double)d->groups,
                 in_run = d->layout == CKL_IMAGE_NHWC ? fmax(channels, 1) : 1;
    const conv_tensor w = conv_tensor_of(d, CONV_W), x = conv_tensor_of(d, CONV_X);
    double weights = 1, pixels = 1;
    for (int i = 0; i < CONV_RANK; i++) {
        weights *= (double)w.shape[i];
        pixels *= i < CONV_RANK - 1 ? (double)x.shape[i] : 1;
    }
    return flops(problem) +
           (d->direction == CKL_CONV_WEIGHT ? weights * pixels * (PIXEL_FLOPS / in_run + ELEMENT_FLOPS) : 0);
}

/* As gemm's. */
static double matrix_rate(const void *problem)
{
    const ckl_conv_desc *d = problem;
    return d->dtype == CKL_I8 ? 2 : d->dtype != CKL_F32 ? 1 : d->math == CKL_GEMM_TF32 ? 0.65 : 0.1;
}

static const char *const population[] = {
    "n={batch} c={channels} h={s:image} w={s} k={channels} r=3 s=3 pad=1 stride={1|1|1|2} dtype={f16|bf16}",
    "n={batch} c={channels} h={s:image} w={s} k={channels} r=1 s=1 dtype={f16|bf16}",
    "n={batch} c=3 h={s:image} w={s} k={32|64|96} {r=3 s=3|r=4 s=4|r=7 s=7} stride=2 pad=1 dtype={f16|bf16}",
    "n={batch} c={c:channels} h={s:image} w={s} k={c} groups={c} {r=3 s=3 pad=1|r=5 s=5 pad=2|r=7 s=7 pad=3} "
    "dtype={f16|bf16}",
    "n={batch} c={channels} h={s:image} w={s} k={channels} r=3 s=3 pad=1 dtype={f16|bf16} layout={nhwc|nchw}",
    "n={batch} c={channels} h={s:image} w={s} k={channels} {r=3 s=3 pad=1|r=1 s=1} direction={data|weight} "
    "dtype={f16|bf16}",
    NULL,
};

OPERATOR_TEST_WITH(conv, .cases = conv_cases, .rejects = conv_rejects, .population = population, .operands = operands,
                   .elements_alone = true, .reference = conv_reference, .terms_of = terms,
                   .approximation_of = approximation, .flops = flops, .reference_flops = reference_flops,
                   .matrix_rate = matrix_rate);
