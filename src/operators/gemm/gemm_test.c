/* gemm_test.c - the definition of gemm in double, its problem line, cases and rejects. */
#include "operators/gemm/gemm_lab.h"

#include <math.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "operators/gemm/gemm_config.h"

static const field fields[] = {
    GEMM_DESC(FIELD_NESTED, (gemm_problem, desc))                                  //
    FIELD_ROW(gemm_problem, bool, c, "0", "0 1", "there is a C even if beta is 0") //
    FIELD_ROW(gemm_problem, float, alpha, "1", "", "factor of the product")        //
    FIELD_ROW(gemm_problem, float, beta, "0", "", "factor of C")                   //
};

/* C is of D's type. */
static ckl_status prepare(void *problem)
{
    gemm_problem *p = problem;
    p->c |= p->beta != 0;
    if (p->c)
        p->desc.c = p->desc.d ? p->desc.d : p->desc.a;
    return CKL_OK;
}

enum { A, B, C, BIAS, D, ALPHA, BETA, OPERANDS };

/* Sums of products stay in f32, before alpha and beta. */
static int operands(const void *problem, operand *all)
{
    const gemm_problem *p = problem;
    all[A].hard_max = all[B].hard_max = 0x1p50;
    all[C].hard_max = all[BIAS].hard_max = 0x1p120;
    all[ALPHA] = operand_number("alpha", &p->alpha);
    all[BETA] = operand_number("beta", &p->beta);
    return OPERANDS;
}

static double activate(choice activation, double x)
{
    if (activation == CKL_ACTIVATION_RELU)
        return isnan(x) ? x : fmax(x, 0);
    if (activation == CKL_ACTIVATION_GELU)
        return x == -INFINITY ? -0.0 : x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
}

/* How much an error of the sum can grow: GELU's slope is at most 1.13. */
static double slope(choice activation)
{
    return activation == CKL_ACTIVATION_GELU ? 1.13 : 1;
}

enum { LANES = 8 }; // partial sums side by side, which compilers make vectors of

/* NOTE: the tensor core aligns products by the exponents of their factors, and that of a subnormal is the smallest one. */
static double aligned(double x, double smallest)
{
    return x > 0 && x < smallest ? smallest : x;
}

/* Both arrays are padded with zeros to a multiple of LANES. */
static void products(const double *a, const double *b, int64_t k, double smallest, double *sum, double *magnitude)
{
    double s[LANES] = { 0 }, t[LANES] = { 0 };
    for (int64_t l = 0; l < k; l += LANES) {
        for (int i = 0; i < LANES; i++) {
            s[i] += a[l + i] * b[l + i];
            t[i] += aligned(fabs(a[l + i]), smallest) * aligned(fabs(b[l + i]), smallest);
        }
    }
    *sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    *magnitude = ((t[0] + t[4]) + (t[2] + t[6])) + ((t[1] + t[5]) + (t[3] + t[7]));
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    const gemm_problem *p = problem;
    const double smallest = dtype_tiny(p->desc.a) / dtype_epsilon(p->desc.a);
    double *a = calloc((size_t)(2 * (p->desc.k + LANES)), sizeof *a), *b = a + p->desc.k + LANES;
    if (!a)
        abort();
    dtype_read_run(p->desc.a, host[A], out.row * p->desc.lda, p->desc.k, a);
    for (int64_t j = 0; j < p->desc.n; j++) {
        double sum, magnitude;
        dtype_read_run(p->desc.b, host[B], j * p->desc.ldb, p->desc.k, b);
        products(a, b, p->desc.k, smallest, &sum, &magnitude);
        sum *= p->alpha;
        magnitude *= fabs((double)p->alpha);
        double added = p->c && p->beta != 0 ? p->beta * dtype_read(p->desc.d, host[C], out.row * p->desc.ldc + j) : 0;
        double bias = p->desc.bias ? dtype_read(p->desc.d, host[BIAS], j) : 0;
        out.value[j] = activate((choice)p->desc.activation, sum + added + bias);
        out.magnitude[j] = slope((choice)p->desc.activation) * (magnitude + fabs(added) + fabs(bias));
    }
    free(a);
}

/* ex2.approx and rcp.approx of the GELU: 2^-22 each, and the rounding of an exponent of up to 2^7. */
static double approximation(const void *problem)
{
    return ((const ckl_gemm_desc *)problem)->activation == CKL_ACTIVATION_GELU ? 0x1p-16 : 0;
}

static double flops(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return 2 * (double)d->m * (double)d->n * (double)d->k;
}

static const char *const cases[] = {
    "m=128 n=256 k=64                                          # one tile of the default config",
    "m=128 n=256 k=64 a=bf16",
    "m=1 n=8 k=8                                               # smaller than any tile",
    "m=256 n=256 k=512 a=bf16 d=f32",
    "m=333 n=200 k=520 a=bf16 d=f32 activation=relu bias=1 alpha=0.5 beta=1",
    "m=257 n=136 k=72 d=f16 bias=1 activation=gelu             # one row and eight columns past the tile",
    "m=130 n=264 k=200 a=bf16 beta=0.5 lda=208 ldb=256 ldc=272 ldd=280   # padded rows",
    "m=192 n=320 k=128 d=f32 beta=-1                           # f32 C",
    "m=100 n=104 k=96 c=1 beta=0 fill=hard                     # C holds NaN and must not be read",
    "m=512 n=512 k=64 activation=relu                          # several tiles a CTA on a small grid",
    "m=640 n=264 k=256 bias=1",
    "m=127 n=129 k=65                                          # odd everything",
    "m=1 n=1 k=1",
    "m=65 n=33 k=0 beta=1                                      # no products",
    "m=0 n=128 k=64                                            # nothing to do",
    "m=64 n=0 k=64",
    "m=256 n=512 k=192 impl=sm90 config='tile_m=256 tile_n=128 cluster_m=1 cluster_n=2 stages=4 consumers=2 pingpong=0 "
    "ctas=1'",
    "m=256 n=512 k=192 impl=sm90 config='tile_m=128 tile_n=128 pingpong=1 stages=4 consumers=2 cluster_m=1 cluster_n=1 "
    "ctas=1'",
    "m=384 n=320 k=448 impl=sm90 config='tile_m=64 tile_n=160 consumers=1 cluster_m=1 stages=5 pingpong=0 cluster_n=1 "
    "ctas=1'",
    "m=300 n=600 k=320 impl=sm90 config='tile_m=128 tile_n=128 cluster_m=2 cluster_n=2 stages=3 group=4 consumers=2 "
    "pingpong=0 ctas=1' bias=1",
    "m=448 n=224 k=640 impl=sm90 config='tile_m=192 tile_n=160 consumers=3 cluster_m=1 stages=3 pingpong=0 cluster_n=1 "
    "ctas=1'",
    "m=1088 n=1024 k=320 impl=sm90 config='tile_m=64 tile_n=64 pingpong=1 stages=4 cluster_m=1 consumers=2 cluster_n=1 "
    "ctas=1' bias=1 # two tiles a "
    "consumer",
    "m=2112 n=1024 k=72 impl=sm90 config='tile_m=64 tile_n=64 pingpong=1 stages=3 cluster_m=2 consumers=2 cluster_n=1 "
    "ctas=1'         # short K",
    "m=64 n=33 k=64 ldd=40                                     # odd rows in 16-byte pitches",
    "m=64 n=35 k=70 lda=72 ldb=72 ldd=44 d=f32 bias=1",
    "m=64 n=40 k=1001 lda=1008 ldb=1008                        # vectors in the pitch, none in the length",
    "m=5 n=1001 k=64 c=1 beta=1 ldc=1008 ldd=1008",
    "m=2 n=2 k=40 lda=72 ldb=56                                # two rows of padded pitch through TMA",
    "m=2 n=2 k=40 lda=72 ldb=56 ldd=8 impl=sm90",
    NULL,
};

static const char *const population[] = {
    "m={tokens} n={hidden} k={hidden} a={f16|bf16}",
    "m={tokens} n={hidden} k={hidden} a={f16|bf16} bias=1 activation={identity|gelu|relu}",
    "m={d:hidden} n={d} k={d} a={f16|bf16}",
    "m={tokens} n={vocabulary} k={hidden} a=bf16 d={bf16|f32}",
    "m={hidden} n={hidden} k={tokens} a={f16|bf16} d=f32 beta={0|1}",
    "m={sequence} n={sequence} k={head_dim} a={f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "m=-1", CKL_INVALID, "gemm: m=-1 is negative" },
    { "n=-2", CKL_INVALID, "gemm: n=-2 is negative" },
    { "k=-3", CKL_INVALID, "gemm: k=-3 is negative" },
    { "k=100 lda=99", CKL_INVALID, "gemm: lda=99 is smaller than k=100" },
    { "k=100 ldb=99", CKL_INVALID, "gemm: ldb=99 is smaller than k=100" },
    { "n=100 ldc=99 beta=1", CKL_INVALID, "gemm: ldc=99 is smaller than n=100" },
    { "n=100 ldd=99", CKL_INVALID, "gemm: ldd=99 is smaller than n=100" },
    { "n=100 ldc=100", CKL_INVALID, "gemm: ldc=100 is not part of a problem without C" },
    { "m=2^40 n=2^40 k=1", CKL_INVALID, "gemm: d of 1099511627776x1099511627776 elements" },
    { "a=f16 b=bf16", CKL_INVALID, "gemm: b=bf16 is none of f16" },
    { "a=i8", CKL_INVALID, "gemm: a=i8 is none of f16, bf16" },
    { "a=f16 d=bf16", CKL_INVALID, "gemm: d=bf16 is none of f16, f32" },
    { "k=65 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: lda=65 elements of f16 are not a multiple of 16 bytes" },
    { "k=65 impl=tiled", CKL_UNSUPPORTED, "gemm tiled: lda=65 elements of f16 are not a multiple of 16 bytes" },
    { "k=0 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products" },
    { "impl=sm90 config='stages=40'", CKL_UNSUPPORTED, "gemm sm90: 40 stages of" },
    { "impl=sm90 config='tile_m=96 consumers=2'", CKL_INVALID, "gemm sm90: tile_m=96 does not give" },
    { "impl=sm90 config='tile_m=256 tile_n=256 consumers=2'", CKL_INVALID, "needs 256 accumulators" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(gemm, .prepare = prepare, .operands = operands, .reference = reference, .terms = 2, .terms_along = true,
              .approximation_of = approximation, .flops = flops);
