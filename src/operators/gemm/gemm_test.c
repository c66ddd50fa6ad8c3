/* gemm_test.c - gemm's cases, rejects and costs. */
#include "cutekernellib/operators/gemm.h"

#include "operators/gemm/gemm_lab.h"

static ckl_status prepare(void *problem)
{
    gemm_problem *p = problem;
    if (p->b == CKL_DTYPE_DEFAULT)
        p->b = p->a;
    if (p->d == CKL_DTYPE_DEFAULT)
        p->d = p->a;
    p->c = p->c || p->beta != 0;
    const struct {
        int64_t *ld, extent;
    } pitches[] = { { &p->lda, p->k }, { &p->ldb, p->k }, { &p->ldc, p->n }, { &p->ldd, p->n } };
    for (int i = 0; i < COUNT_OF(pitches); i++)
        if (*pitches[i].ld == 0)
            *pitches[i].ld = pitches[i].extent;
    return CKL_OK;
}

static void desc_of(const void *problem, void *desc)
{
    const gemm_problem *p = problem;
    *(ckl_gemm_desc *)desc = (ckl_gemm_desc){
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a = p->a,
        .b = p->b,
        .c = p->c ? p->d : CKL_DTYPE_DEFAULT,
        .d = p->d,
        .layout = (ckl_gemm_layout)p->layout,
        .lda = p->lda,
        .ldb = p->ldb,
        .ldc = p->ldc,
        .ldd = p->ldd,
        .activation = (ckl_activation)p->activation,
        .bias = p->bias,
    };
}

static int operands(const void *problem, operand *out)
{
    const gemm_problem *p = problem;
    ckl_dtype c = p->c ? p->d : CKL_DTYPE_DEFAULT, bias = p->bias ? p->d : CKL_DTYPE_DEFAULT;
    out[0] = (operand){ "a", OPERAND_IN, p->a, 2, { p->m, p->k }, { p->lda, 1 }, 0, 0 };
    out[1] = (operand){ "b", OPERAND_IN, p->b, 2, { p->n, p->k }, { p->ldb, 1 }, 0, 0 };
    out[2] = (operand){ "c", OPERAND_IN, c, 2, { p->m, p->n }, { p->ldc, 1 }, 0, 0 };
    out[3] = (operand){ "bias", OPERAND_IN, bias, 1, { p->n }, { 1 }, 0, 0 };
    out[4] = (operand){ "d", OPERAND_OUT, p->d, 2, { p->m, p->n }, { p->ldd, 1 }, 0, 0 };
    return 5;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    const gemm_problem *p = problem;
    ckl_gemm_args args = { .a = pointers[0],
                           .b = pointers[1],
                           .c = pointers[2],
                           .bias = pointers[3],
                           .d = pointers[4],
                           .alpha = &p->alpha,
                           .beta = p->c ? &p->beta : NULL };
    return ckl_gemm_run(plan, &args, stream);
}

static int64_t slices(const void *problem, int output)
{
    (void)output;
    return ((const gemm_problem *)problem)->m;
}

static int64_t slice_elements(const void *problem, int output)
{
    (void)output;
    return ((const gemm_problem *)problem)->n;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    (void)output;
    return slice * ((const gemm_problem *)problem)->ldd + j;
}

static double terms(const void *problem)
{
    return (double)((const gemm_problem *)problem)->k + 2;
}

/* ex2.approx and rcp.approx of the GELU: 2^-22 each, and the rounding of an exponent of up to 2^7. */
static double approximation(const void *problem)
{
    return ((const gemm_problem *)problem)->activation == CKL_ACTIVATION_GELU ? 0x1p-16 : 0;
}

static double flops(const void *problem)
{
    const gemm_problem *p = problem;
    return 2 * (double)p->m * (double)p->n * (double)p->k;
}

static double bytes(const void *problem)
{
    const gemm_problem *p = problem;
    double m = (double)p->m, n = (double)p->n, k = (double)p->k;
    double outputs = (p->beta != 0 ? 2 : 1) * m * n + (p->bias ? n : 0);
    return (m + n) * k * (double)ckl_dtype_bytes(p->a) + outputs * (double)ckl_dtype_bytes(p->d);
}

static const field fields[] = { GEMM_PROBLEM(FIELD_ROW) };

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
    "ctas=1' bias=1 # two turns a "
    "CTA",
    "m=2112 n=1024 k=72 impl=sm90 config='tile_m=64 tile_n=64 pingpong=1 stages=3 cluster_m=2 consumers=2 cluster_n=1 "
    "ctas=1'         # short K",
    "m=64 n=33 k=64 ldd=40                                     # odd rows in 16-byte pitches",
    "m=64 n=35 k=70 lda=72 ldb=72 ldd=44 d=f32 bias=1",
    NULL,
};

static const test_reject rejects[] = {
    { "m=-1", CKL_INVALID, "gemm: m=-1 is negative" },
    { "k=100 lda=99", CKL_INVALID, "gemm: lda=99 is smaller than k=100" },
    { "a=f16 b=bf16", CKL_INVALID, "gemm: b=bf16 differs from a=f16" },
    { "a=i8", CKL_INVALID, "gemm: a=i8 is neither f16 nor bf16" },
    { "a=f16 d=bf16", CKL_INVALID, "gemm: d=bf16 is neither f16 nor f32" },
    { "k=65 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: lda=65 elements of f16 are not a multiple of 16 bytes" },
    { "k=65 impl=tiled", CKL_UNSUPPORTED, "gemm tiled: lda=65 elements of f16 are not a multiple of 16 bytes" },
    { "k=0 impl=sm90", CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products" },
    { "impl=sm90 config='stages=40'", CKL_UNSUPPORTED, "gemm sm90: 40 stages of" },
    { "impl=sm90 config='tile_m=96 consumers=2'", CKL_INVALID, "gemm sm90: tile_m=96 does not give" },
    { "impl=sm90 config='tile_m=256 tile_n=256 consumers=2'", CKL_INVALID, "needs 256 accumulators" },
    { NULL, CKL_OK, NULL },
};

const operator_test gemm_test = {
    .op = &gemm_operator,
    .problem_bytes = sizeof(gemm_problem),
    .problem = FIELD_TABLE(fields),
    .prepare = prepare,
    .desc = desc_of,
    .operands = operands,
    .run = run,
    .slices = slices,
    .slice_elements = slice_elements,
    .output_index = output_index,
    .reference = gemm_reference,
    .terms_of = terms,
    .approximation_of = approximation,
    .flops = flops,
    .bytes = bytes,
    .cases = cases,
    .rejects = rejects,
};
