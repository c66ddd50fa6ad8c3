/* groupnorm_test.c - group norm's cases, rejects and costs. */
#include "cutekernellib/operators/groupnorm.h"

#include "operators/groupnorm/groupnorm_lab.h"

static ckl_status prepare(void *problem)
{
    groupnorm_problem *p = problem;
    if (p->eps == 0)
        p->eps = 1e-5f;
    return CKL_OK;
}

static void desc_of(const void *problem, void *desc)
{
    const groupnorm_problem *p = problem;
    *(ckl_groupnorm_desc *)desc = (ckl_groupnorm_desc){ .dtype = p->dtype,
                                                        .layout = (ckl_image_layout)p->layout,
                                                        .n = p->n,
                                                        .c = p->c,
                                                        .h = p->h,
                                                        .w = p->w,
                                                        .groups = p->groups,
                                                        .eps = p->eps,
                                                        .affine = p->affine };
}

static operand image(const groupnorm_problem *p, const char *name, operand_role role)
{
    if (p->layout == CKL_NCHW)
        return (operand){ name, role, p->dtype, 3, { p->n, p->c, p->h * p->w }, { p->c * p->h * p->w, p->h * p->w, 1 },
                          0,    0 };
    return (operand){ name, role, p->dtype, 3, { p->n, p->h * p->w, p->c }, { p->c * p->h * p->w, p->c, 1 }, 0, 0 };
}

static operand vector(const char *name, operand_role role, ckl_dtype dtype, int64_t size, bool present)
{
    return (operand){ name, role, present ? dtype : CKL_DTYPE_DEFAULT, 1, { size }, { 1 }, 0, 0 };
}

static int operands(const void *problem, operand *out)
{
    const groupnorm_problem *p = problem;
    const int64_t groups = p->c * p->h * p->w > 0 ? p->n * p->groups : 0;
    out[GROUPNORM_X] = image(p, "x", OPERAND_IN);
    out[GROUPNORM_GAMMA] = vector("gamma", OPERAND_IN, p->dtype, p->c, p->affine);
    out[GROUPNORM_BETA] = vector("beta", OPERAND_IN, p->dtype, p->c, p->affine);
    out[GROUPNORM_Y] = image(p, "y", OPERAND_OUT);
    out[GROUPNORM_MEAN] = vector("mean", OPERAND_OUT, CKL_F32, groups, p->stats);
    out[GROUPNORM_RSTD] = vector("rstd", OPERAND_OUT, CKL_F32, groups, p->stats);
    if (p->offset != 0) {
        out[GROUPNORM_X].low = p->offset - 1;
        out[GROUPNORM_X].high = p->offset + 1;
    }
    return GROUPNORM_OPERANDS;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *m, ckl_stream stream)
{
    (void)problem;
    ckl_groupnorm_args args = { .x = m[GROUPNORM_X],
                                .gamma = m[GROUPNORM_GAMMA],
                                .beta = m[GROUPNORM_BETA],
                                .y = m[GROUPNORM_Y],
                                .mean = m[GROUPNORM_MEAN],
                                .rstd = m[GROUPNORM_RSTD] };
    return ckl_groupnorm_run(plan, &args, stream);
}

/* Slices: groups of images. */
static int64_t slices(const void *problem, int output)
{
    const groupnorm_problem *p = problem;
    (void)output;
    return p->c * p->h * p->w > 0 ? p->n * p->groups : 0;
}

static int64_t slice_elements(const void *problem, int output)
{
    const groupnorm_problem *p = problem;
    return output == OUTPUT_Y ? p->c / p->groups * p->h * p->w : 1;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    return output == OUTPUT_Y ? groupnorm_index(problem, slice, j) : slice;
}

/* Sums are trees over threads: a thread's own chain is what counts. */
static double terms(const void *problem)
{
    (void)problem;
    return 64;
}

/* rsqrt.approx: 2^-22.9 */
static double approximation(const void *problem)
{
    (void)problem;
    return 0x1p-22;
}

static double elements(const groupnorm_problem *p)
{
    return (double)p->n * (double)p->c * (double)p->h * (double)p->w;
}

static double flops(const void *problem)
{
    return 8 * elements(problem);
}

static double bytes(const void *problem)
{
    const groupnorm_problem *p = problem;
    double weights = p->affine ? 2 * (double)p->c : 0, statistics = p->stats ? 2 * (double)(p->n * p->groups) : 0;
    return (2 * elements(p) + weights) * (double)ckl_dtype_bytes(p->dtype) + 4 * statistics;
}

static const field fields[] = { GROUPNORM_PROBLEM(FIELD_ROW) };

static const char *const cases[] = {
    "n=1 c=1 h=1 w=1 groups=1                              # one element",
    "n=3 c=24 h=5 w=7 groups=6                             # odd images: single elements",
    "n=3 c=24 h=5 w=7 groups=6 layout=nhwc                 # two groups a bundle",
    "n=2 c=64 h=8 w=8 groups=8 dtype=f16",
    "n=2 c=64 h=8 w=8 groups=8 dtype=f16 layout=nhwc       # four groups a bundle",
    "n=2 c=30 h=6 w=6 groups=10 dtype=bf16 layout=nhwc     # groups of three channels",
    "n=2 c=30 h=6 w=6 groups=10 dtype=bf16",
    "n=1 c=32 h=28 w=28 groups=2 offset=1000               # a mean of a thousand deviations",
    "n=1 c=32 h=28 w=28 groups=2 offset=1000 layout=nhwc affine=0",
    "n=2 c=16 h=9 w=9 groups=1 stats=0                     # layer norm of images",
    "n=2 c=16 h=9 w=9 groups=1 layout=nhwc dtype=bf16",
    "n=2 c=16 h=8 w=9 groups=16                            # instance norm",
    "n=2 c=16 h=8 w=9 groups=16 layout=nhwc dtype=f16",
    "n=2 c=64 h=8 w=8 groups=8 dtype=f16 misalign=1        # pointers aligned to the element only",
    "n=2 c=64 h=8 w=8 groups=8 dtype=bf16 layout=nhwc misalign=1",
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 fill=uniform   # a cluster",
    "n=1 c=64 h=32 w=64 groups=2 layout=nhwc fill=uniform",
    "n=2 c=32 h=16 w=16 groups=8 impl=bundle config='threads=128 row_threads=128 steps=1 tiled=1 whole=0' # tile by "
    "tile",
    "n=2 c=32 h=16 w=16 groups=8 layout=nhwc impl=bundle "
    "config='bundle=4 threads=128 row_threads=128 steps=1 tiled=1 whole=0'",
    "n=2 c=512 h=1 w=2 groups=1 layout=nhwc                # pixels wider than a warp",
    "n=1 c=16384 h=2 w=2 groups=1 layout=nhwc dtype=f16 fill=uniform # wider than a CTA of 512",
    "n=2 c=96 h=3 w=3 groups=2 layout=nhwc dtype=f16 misalign=1",
    "n=0 c=32 h=8 w=8                                      # nothing to do",
    "n=2 c=32 h=0 w=8",
    NULL,
};

static const test_reject rejects[] = {
    { "n=-1", CKL_INVALID, "groupnorm: n=-1 is negative" },
    { "h=-3", CKL_INVALID, "groupnorm: h=-3 is negative" },
    { "c=32 groups=5", CKL_INVALID, "groupnorm: groups=5 does not divide c=32" },
    { "groups=0", CKL_INVALID, "groupnorm: groups=0 does not divide" },
    { "dtype=i8", CKL_INVALID, "groupnorm: dtype=i8 is none of f32, f16, bf16" },
    { "eps=-1", CKL_INVALID, "groupnorm: eps=-1 is negative" },
    { "impl=bundle config='bundle=2'", CKL_INVALID, "groups of nchw lie apart" },
    { "layout=nhwc impl=bundle config='bundle=3'", CKL_INVALID, "bundle=3 is no power of two" },
    { "h=5 w=5 impl=bundle config='vec=4'", CKL_UNSUPPORTED, "groupnorm bundle: vec=4 does not divide h*w" },
    { NULL, CKL_OK, NULL },
};

const operator_test groupnorm_test = {
    .op = &groupnorm_operator,
    .problem_bytes = sizeof(groupnorm_problem),
    .problem = FIELD_TABLE(fields),
    .prepare = prepare,
    .desc = desc_of,
    .operands = operands,
    .run = run,
    .slices = slices,
    .slice_elements = slice_elements,
    .output_index = output_index,
    .reference = groupnorm_reference,
    .terms = terms,
    .approximation = approximation,
    .flops = flops,
    .bytes = bytes,
    .cases = cases,
    .rejects = rejects,
};
