/* gemm_test.c - the definition of gemm in double, its cases and rejects. */
#include "operators/gemm/gemm_lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "operators/gemm/gemm_config.h"

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

/* Of tf32 without the low bits of the fractions. */
static void read_factors(const ckl_gemm_desc *d, const void *array, int64_t first, double *out)
{
    dtype_read_run(d->a, array, first, d->k, out);
    for (int64_t l = 0; l < d->k && d->math == CKL_GEMM_TF32; l++) {
        float x = (float)out[l];
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        bits &= isnan(x) ? ~0u : 0xffffe000;
        memcpy(&x, &bits, sizeof bits);
        out[l] = x;
    }
}

static void reference(const void *problem, void *const *host, reference_slice out)
{
    const gemm_problem *p = problem;
    const double smallest = dtype_tiny(p->desc.a) / dtype_epsilon(p->desc.a);
    double *a = calloc((size_t)(2 * (p->desc.k + LANES)), sizeof *a), *b = a + p->desc.k + LANES;
    if (!a)
        abort();
    const int64_t product = out.row / p->desc.m, row = out.row % p->desc.m;
    read_factors(&p->desc, host[A], product * p->desc.stride_a + row * p->desc.lda, a);
    for (int64_t j = 0; j < p->desc.n; j++) {
        double sum, magnitude;
        read_factors(&p->desc, host[B], product * p->desc.stride_b + j * p->desc.ldb, b);
        products(a, b, p->desc.k, smallest, &sum, &magnitude);
        sum *= p->alpha;
        magnitude *= fabs((double)p->alpha);
        int64_t in_c = product * p->desc.stride_c + row * p->desc.ldc + j;
        double added = p->c && p->beta != 0 ? p->beta * dtype_read(p->desc.d, host[C], in_c) : 0;
        double bias = p->desc.bias ? dtype_read(p->desc.d, host[BIAS], j) : 0;
        out.value[j] = activate((choice)p->desc.activation, sum + added + bias);
        out.magnitude[j] = slope((choice)p->desc.activation) * (magnitude + fabs(added) + fabs(bias));
    }
    free(a);
}

static double terms(const void *problem)
{
    return (double)((const ckl_gemm_desc *)problem)->k + 2;
}

/*
 * ex2.approx and rcp.approx of the GELU: 2^-22 each, and the rounding of an exponent of up to 2^7. Of 8-bit floats 32 products,
 * the sum so far and the new sum are each cut to 13 bits below the largest, in every step of 32.
 */
static double approximation(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    double gelu = d->activation == CKL_ACTIVATION_GELU ? 0x1p-16 : 0;
    double cuts = d->a == CKL_E4M3 || d->a == CKL_E5M2 ? 34 * ceil((double)d->k / 32) * 0x1p-13 : 0;
    return gelu + cuts;
}

static double flops(const void *problem)
{
    const ckl_gemm_desc *d = problem;
    return 2 * (double)d->batch * (double)d->m * (double)d->n * (double)d->k;
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
    "m=128 n=256 k=64 a=f32 math=tf32                          # one tile",
    "m=256 n=200 k=100 a=f32 math=tf32 bias=1 activation=gelu",
    "m=130 n=96 k=72 a=f32 math=tf32 beta=0.5 alpha=-2 fill=hard",
    "m=16 n=512 k=1024 a=f32 math=tf32                         # few rows",
    "m=65 n=33 k=17 a=f32                                      # true f32",
    "m=256 n=256 k=256 a=e4m3                                  # one step of K in a stage is 128 elements",
    "m=200 n=144 k=208 a=e4m3 d=f16 bias=1 activation=relu",
    "m=96 n=272 k=160 a=e5m2 d=f32 beta=1 alpha=0.25",
    "m=64 n=48 k=48 a=e4m3 fill=hard",
    "m=256 n=256 k=384 a=i8 d=f32",
    "m=129 n=80 k=144 a=i8 d=f16 alpha=0.001 bias=1",
    "m=33 n=80 k=144 a=i8 impl=sm90",
    "m=130 n=144 k=520 bias=1 activation=gelu beta=0.5 impl=sm90 config='tile_m=64 tile_n=64 stages=4 split=8 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # more CTAs of a split than slices; a K tile each or two",
    "m=128 n=128 k=256 d=f32 a=bf16 impl=sm90 config='tile_m=128 tile_n=128 stages=3 split=4 consumers=2 pingpong=0 "
    "cluster_m=1 cluster_n=1 ctas=1' # a slice of 32 columns each",
    "m=192 n=200 k=136 d=f32 c=1 beta=1 bias=1 activation=relu impl=sm90 config='tile_m=64 tile_n=96 stages=4 split=2 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # slices of 48; two tiles a cluster",
    "m=320 n=384 k=200 ldd=392 impl=sm90 config='tile_m=64 tile_n=64 stages=3 split=3 consumers=2 pingpong=1 "
    "cluster_m=1 cluster_n=1 ctas=1' # ping-pong and a split; one finisher",
    "m=520 n=576 k=136 bias=1 impl=sm90 config='tile_m=64 tile_n=32 stages=12 split=2 consumers=1 pingpong=0 "
    "cluster_m=1 "
    "cluster_n=1 ctas=1' # several tiles a cluster: parts are sent when those before have been read",
    "m=130 n=67 k=192 ldd=72 impl=sm90 config='tile_m=64 tile_n=32 stages=3 split=2 ragged=1 consumers=1 pingpong=0 "
    "cluster_m=1 cluster_n=1 ctas=1' # a split tile with a ragged end",
    "m=300 n=200 k=520 bias=1 impl=sm90 config='tile_m=64 tile_n=64 stages=4 split=2 cluster_m=2 cluster_n=1 "
    "consumers=1 "
    "pingpong=0 ctas=1' # parts of pairs that share B",
    "m=270 n=260 k=400 impl=sm90 config='tile_m=128 tile_n=64 stages=3 split=2 cluster_m=2 cluster_n=2 consumers=2 "
    "pingpong=0 ctas=1'",
    "m=16 n=200 k=520 impl=sm90 config='tile_m=64 tile_n=16 stages=4 swap=1 consumers=1 pingpong=0 cluster_m=1 "
    "cluster_n=1 ctas=1' # few rows: tiles of D^T",
    "m=5 n=136 k=72 a=bf16 beta=-1 bias=1 activation=gelu impl=sm90 config='tile_m=64 tile_n=16 stages=3 swap=1 "
    "split=2 consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=20 n=152 k=148 lda=152 ldb=152 impl=sm90 config='tile_m=64 tile_n=32 stages=4 swap=1 split=2 prefetch=8 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=33 n=200 k=520 d=f32 beta=0.5 bias=1 impl=sm90 config='tile_m=64 tile_n=48 stages=4 swap=1 split=3 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=72 n=264 k=200 c=1 beta=1 ldc=272 bias=1 impl=sm90 config='tile_m=128 tile_n=80 stages=3 swap=1 buffers=1 "
    "consumers=2 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # boxes of 16 rows",
    "m=100 n=1100 k=130 lda=136 ldb=136 a=bf16 impl=sm90 config='tile_m=64 tile_n=112 stages=3 swap=1 consumers=2 "
    "pingpong=1 cluster_m=1 cluster_n=1 ctas=1' # ping-pong; several tiles a CTA",
    "m=20 n=99 k=64 ldd=104 bias=1 d=f32 impl=sm90 config='tile_m=64 tile_n=32 stages=3 swap=1 split=1 ragged=1 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=20 n=99 k=64 bias=1 c=1 beta=2 impl=sm90 config='tile_m=64 tile_n=32 stages=3 swap=1 ragged=2 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # rows of C and D anywhere",
    "m=70 n=99 k=64 bias=1 c=1 beta=2 ldd=101 impl=sm90 config='tile_m=64 tile_n=64 stages=3 ragged=2 split=1 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=70 n=99 k=128 d=f32 ldd=107 impl=sm90 config='tile_m=64 tile_n=64 stages=3 ragged=2 split=2 consumers=1 "
    "pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "m=272 n=200 k=136 impl=sm90 config='tile_m=64 tile_n=144 stages=3 swap=1 consumers=1 pingpong=0 cluster_m=1 "
    "cluster_n=1 ctas=1' # two tiles of D^T along the rows of D",
    "m=256 n=256 k=1024 impl=splitk                            # slices of K, and a kernel that adds them",
    "m=130 n=136 k=520 a=bf16 bias=1 activation=gelu beta=0.5 impl=splitk config='slices=5 tile_m=64 tile_n=128 "
    "stages=4 consumers=1 cluster_m=1' # the last slice is half of one",
    "m=70 n=99 k=144 d=f32 c=1 beta=0 fill=hard bias=1 impl=splitk config='slices=3' # rows of C and D anywhere",
    "m=70 n=99 k=144 ldd=104 c=1 beta=1 ldc=104 impl=splitk config='slices=2 stages=3' # ends of rows by elements",
    "m=192 n=264 k=392 impl=splitk config='slices=4 tile_m=64 tile_n=64 stages=3 consumers=2 pingpong=1 cluster_m=1'",
    "m=20 n=264 k=392 impl=splitk config='slices=3 tile_m=64 tile_n=32 stages=4 consumers=1 swap=1 cluster_m=1'",
    "m=65 n=33 k=65 impl=tiled                                 # rows that start anywhere: no cp.async",
    "m=130 n=140 k=66 a=bf16 bias=1 impl=tiled                 # 4 bytes at a time",
    "m=40 n=50 k=100 impl=tiled config='tile_m=64 tile_n=64 stages=2'    # 8 bytes at a time",
    "m=33 n=200 k=45 c=1 beta=1 ldc=203 ldd=201 impl=tiled config='tile_m=64 tile_n=64 stages=4'",
    "m=5 n=7 k=0 bias=1 activation=gelu impl=tiled",
    "m=221 n=223 k=225 bias=1                                  # copies of A and B in whole 16 bytes, then sm90",
    "m=200 n=220 k=300 lda=304 ldb=305 d=f32 a=bf16 c=1 beta=1 # of B alone",
    "m=16 n=1029 k=701 ldb=704 a=bf16 impl=pitched           # of A alone; D in odd rows",
    "batch=3 m=70 n=72 k=136",
    "batch=2 m=150 n=140 k=80 stride_a=12808 stride_b=12000 c=1 beta=1 bias=1 activation=relu # gaps between matrices",
    "batch=4 m=64 n=32 k=64 lda=256 stride_a=64 ldb=256 stride_b=64 ldd=128 stride_d=32 # side by side, as heads are",
    "batch=5 m=33 n=35 k=37 c=1 beta=0.5",
    "batch=3 m=20 n=99 k=64 bias=1 c=1 beta=2 impl=sm90 config='tile_m=64 tile_n=32 stages=3 swap=1 ragged=2 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1' # rows of C and D anywhere",
    "batch=3 m=100 n=90 k=200 ldd=96 impl=sm90 config='tile_m=64 tile_n=64 stages=3 split=2 ragged=1 "
    "consumers=1 pingpong=0 cluster_m=1 cluster_n=1 ctas=1'",
    "batch=2 m=140 n=130 k=300 lda=301 impl=pitched            # matrices that start anywhere",
    "batch=3 m=9 n=11 k=13 impl=naive",
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
    { "a=i16", CKL_INVALID, "gemm: a=i16 is none of f16, bf16, f32" },
    { "a=e4m3 d=i8", CKL_INVALID, "gemm: d=i8 is none of f16, bf16, f32" },
    { "math=tf32", CKL_INVALID, "gemm: math=tf32 is of a=f32, not of f16" },
    { "a=f32 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: tensor cores multiply f32 with math=tf32 alone" },
    { "a=i8 impl=naive", CKL_UNSUPPORTED, "gemm naive: a=i8 has 8 bits" },
    { "a=f32 math=tf32 impl=naive", CKL_UNSUPPORTED, "gemm naive: math=tf32 is of tensor cores" },
    { "a=i8 impl=tiled", CKL_UNSUPPORTED, "gemm tiled: a=i8 is none of f16, bf16" },
    { "a=e4m3 k=1001 lda=1001 impl=pitched", CKL_UNSUPPORTED, "gemm pitched: rows of e4m3 are not copied" },
    { "a=i8 impl=sm90 config='split=2'", CKL_UNSUPPORTED, "gemm sm90: split=2 exchanges f32, sums of i8 are i32" },
    { "a=f16 d=bf16", CKL_INVALID, "gemm: d=bf16 is none of f16, f32" },
    { "k=65 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: lda=65 elements of f16 are not a multiple of 16 bytes" },
    { "k=66 impl=tiled config='vec=4'", CKL_UNSUPPORTED,
      "gemm tiled: rows of A and B start at multiples of 2 elements, vec=4 wants more" },
    { "impl=tiled config='vec=3'", CKL_INVALID, "gemm tiled: vec=3 is none of 1 2 4 8" },
    { "impl=pitched", CKL_UNSUPPORTED, "gemm pitched: rows of A and B are whole 16 bytes apart already" },
    { "k=65 impl=pitched", CKL_UNSUPPORTED, "gemm pitched: copies cost more than they save" },
    { "batch=-1", CKL_INVALID, "gemm: batch=-1 is negative" },
    { "stride_a=64", CKL_INVALID, "gemm: stride_a=64 is not part of a problem of one product" },
    { "batch=2 stride_c=65536", CKL_INVALID, "gemm: stride_c=65536 is not part of a problem without C" },
    { "batch=2 m=8 n=16 ldd=24 stride_d=16", CKL_INVALID,
      "gemm: stride_d=16 lets the 8x16 results of a batch overlap" },
    { "batch=2 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: batch=2 products have tiles enough" },
    { "k=64 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: k=64 has fewer tiles of 64 than slices=" },
    { "k=1024 impl=splitk config='slices=1'", CKL_INVALID, "gemm splitk: slices=1 is not 0 or in 2..16" },
    { "k=1024 impl=splitk config='batched=1'", CKL_INVALID, "gemm splitk: batched=1, slices of K are 2" },
    { "k=1024 impl=splitk config='vec=4'", CKL_INVALID, "gemm splitk: vec=4 is not 1, or rows of C and D" },
    { "a=i8 impl=splitk", CKL_UNSUPPORTED, "gemm splitk: f32 is added, sums of i8 are i32" },
    { "impl=sm90 config='batched=1'", CKL_INVALID, "gemm sm90: batched=1 with batch=1" },
    { "batch=2 impl=sm90 config='prefetch=8'", CKL_INVALID, "gemm sm90: prefetch=8 is negative, or of a batch" },
    { "batch=2 m=2 n=2 k=8 stride_a=17 impl=sm90", CKL_UNSUPPORTED,
      "gemm sm90: lda=8 elements of f16 are not a multiple of 16 bytes, or the stride is not" },
    { "k=0 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products" },
    { "impl=sm90 config='stages=40'", CKL_UNSUPPORTED, "gemm sm90: 40 stages of" },
    { "impl=sm90 config='tile_m=96 consumers=2'", CKL_INVALID, "gemm sm90: tile_m=96 does not give" },
    { "impl=sm90 config='tile_m=256 tile_n=256 consumers=2'", CKL_INVALID, "needs 256 accumulators" },
    { "impl=sm90 config='split=9 cluster_m=1 cluster_n=1'", CKL_INVALID,
      "gemm sm90: a cluster of 1x1 CTAs with split=9 is not in 1..8" },
    { "impl=sm90 config='split=4 cluster_m=2 cluster_n=2'", CKL_INVALID,
      "gemm sm90: a cluster of 2x2 CTAs with split=4 is not in 1..8" },
    { "k=128 impl=sm90 config='split=4 cluster_m=1 cluster_n=1'", CKL_UNSUPPORTED,
      "gemm sm90: k=128 has fewer tiles of 64 than split=4" },
    { "impl=sm90 config='ragged=3'", CKL_INVALID, "gemm sm90: ragged=3 is not in 0..2" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(gemm, .operands = operands, .reference = reference, .terms_of = terms, .approximation_of = approximation,
              .flops = flops);
