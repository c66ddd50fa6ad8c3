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
    *(ckl_groupnorm_desc *)desc = (ckl_groupnorm_desc){ .direction = (ckl_direction)p->direction,
                                                        .dtype = p->dtype,
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
    if (p->layout == CKL_IMAGE_NCHW)
        return (operand){ name, role, p->dtype, 3, { p->n, p->c, p->h * p->w }, { p->c * p->h * p->w, p->h * p->w, 1 },
                          0,    0 };
    return (operand){ name, role, p->dtype, 3, { p->n, p->h * p->w, p->c }, { p->c * p->h * p->w, p->c, 1 }, 0, 0 };
}

static operand vector(const char *name, operand_role role, ckl_dtype dtype, int64_t size, bool present)
{
    return (operand){ name, role, present ? dtype : CKL_DTYPE_DEFAULT, 1, { size }, { 1 }, 0, 0 };
}

static int forward_operands(const groupnorm_problem *p, int64_t groups, operand *out)
{
    out[FORWARD_X] = image(p, "x", OPERAND_IN);
    out[FORWARD_GAMMA] = vector("gamma", OPERAND_IN, p->dtype, p->c, p->affine);
    out[FORWARD_BETA] = vector("beta", OPERAND_IN, p->dtype, p->c, p->affine);
    out[FORWARD_Y] = image(p, "y", OPERAND_OUT);
    out[FORWARD_MEAN] = vector("mean", OPERAND_OUT, CKL_F32, groups, p->stats);
    out[FORWARD_RSTD] = vector("rstd", OPERAND_OUT, CKL_F32, groups, p->stats);
    if (p->offset != 0) {
        out[FORWARD_X].low = p->offset - 1;
        out[FORWARD_X].high = p->offset + 1;
    }
    return FORWARD_OPERANDS;
}

static void set_range(operand *o, float low, float high)
{
    o->low = low;
    o->high = high;
}

/* The statistics are inputs like any other: gradients are a function of all of them. gamma is finite, as groupnorm.h asks. */
static int backward_operands(const groupnorm_problem *p, int64_t groups, operand *out)
{
    out[BACKWARD_X] = image(p, "x", OPERAND_IN);
    out[BACKWARD_DY] = image(p, "dy", OPERAND_IN);
    out[BACKWARD_GAMMA] = vector("gamma", OPERAND_IN, p->dtype, p->c, p->affine);
    out[BACKWARD_MEAN] = vector("mean", OPERAND_IN, CKL_F32, groups, true);
    out[BACKWARD_RSTD] = vector("rstd", OPERAND_IN, CKL_F32, groups, true);
    out[BACKWARD_DX] = image(p, "dx", OPERAND_OUT);
    out[BACKWARD_DX + OUTPUT_DGAMMA] = vector("dgamma", OPERAND_OUT, p->dtype, p->c, p->affine);
    out[BACKWARD_DX + OUTPUT_DBETA] = vector("dbeta", OPERAND_OUT, p->dtype, p->c, p->affine);
    set_range(&out[BACKWARD_GAMMA], -1, 1);
    set_range(&out[BACKWARD_MEAN], p->offset - 1, p->offset + 1);
    set_range(&out[BACKWARD_RSTD], 0.5F, 2);
    if (p->offset != 0)
        set_range(&out[BACKWARD_X], p->offset - 1, p->offset + 1);
    return BACKWARD_DX + BACKWARD_OUTPUTS;
}

static int operands(const void *problem, operand *out)
{
    const groupnorm_problem *p = problem;
    const int64_t groups = p->c * p->h * p->w > 0 ? p->n * p->groups : 0;
    return p->direction == CKL_DIRECTION_FORWARD ? forward_operands(p, groups, out) : backward_operands(p, groups, out);
}

static ckl_groupnorm_args args_of(const groupnorm_problem *p, void *const *m)
{
    if (p->direction == CKL_DIRECTION_FORWARD)
        return (ckl_groupnorm_args){ .x = m[FORWARD_X],
                                     .gamma = m[FORWARD_GAMMA],
                                     .beta = m[FORWARD_BETA],
                                     .y = m[FORWARD_Y],
                                     .mean = m[FORWARD_MEAN],
                                     .rstd = m[FORWARD_RSTD] };
    return (ckl_groupnorm_args){ .x = m[BACKWARD_X],
                                 .dy = m[BACKWARD_DY],
                                 .gamma = m[BACKWARD_GAMMA],
                                 .mean = m[BACKWARD_MEAN],
                                 .rstd = m[BACKWARD_RSTD],
                                 .dx = m[BACKWARD_DX],
                                 .dgamma = m[BACKWARD_DX + OUTPUT_DGAMMA],
                                 .dbeta = m[BACKWARD_DX + OUTPUT_DBETA] };
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    ckl_groupnorm_args args = args_of(problem, pointers);
    return ckl_groupnorm_run(plan, &args, stream);
}

/* Slices: groups of images; of dgamma and dbeta channels. */
static int64_t slices(const void *problem, int output)
{
    const groupnorm_problem *p = problem;
    if (p->direction == CKL_DIRECTION_BACKWARD && output != OUTPUT_DX)
        return p->c;
    return p->c * p->h * p->w > 0 ? p->n * p->groups : 0;
}

static int64_t slice_elements(const void *problem, int output)
{
    const groupnorm_problem *p = problem;
    return output == OUTPUT_Y ? p->c / p->groups * p->h * p->w : 1; // OUTPUT_DX is the same number
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
    const groupnorm_problem *p = problem;
    return (p->direction == CKL_DIRECTION_FORWARD ? 8 : 14) * elements(p);
}

/* Forward x, y, gamma and beta; backward x, dy, dx, gamma and its gradients; and the statistics. */
static double bytes(const void *problem)
{
    const groupnorm_problem *p = problem;
    bool forward = p->direction == CKL_DIRECTION_FORWARD;
    double weights = (p->affine ? (forward ? 2 : 3) : 0) * (double)p->c;
    double statistics = forward && !p->stats ? 0 : 2 * (double)(p->n * p->groups);
    return ((forward ? 2 : 3) * elements(p) + weights) * (double)ckl_dtype_bytes(p->dtype) + 4 * statistics;
}

static const field fields[] = { GROUPNORM_PROBLEM(FIELD_ROW) };

/* Of both directions: through the kernels of whole bundles and through the split ones. */
#define SHAPES(also)                                                                                    \
    "n=1 c=1 h=1 w=1 groups=1" also,                              /* one element */                     \
        "n=3 c=24 h=5 w=7 groups=6" also,                         /* odd images: single elements */     \
        "n=3 c=24 h=5 w=7 groups=6 layout=nhwc" also,             /* four groups a bundle */            \
        "n=2 c=64 h=8 w=8 groups=8 dtype=f16" also,               /* vectors */                         \
        "n=2 c=64 h=8 w=8 groups=8 dtype=f16 layout=nhwc" also,   /* vectors */                         \
        "n=2 c=30 h=6 w=6 groups=10 dtype=bf16 layout=nhwc" also, /* vectors of two groups */           \
        "n=2 c=40 h=5 w=5 groups=4 dtype=f16 layout=nhwc" also,   /* ten channels a group */            \
        "n=2 c=30 h=6 w=6 groups=10 dtype=bf16" also,             /* three channels a group */          \
        "n=1 c=32 h=28 w=28 groups=2 offset=1000" also,           /* a mean of a thousand deviations */ \
        "n=1 c=32 h=28 w=28 groups=2 offset=1000 layout=nhwc affine=0" also,                            \
        "n=2 c=16 h=9 w=9 groups=1 affine=0" also, /* layer norm of images */                           \
        "n=2 c=16 h=9 w=9 groups=1 layout=nhwc dtype=bf16" also,                                        \
        "n=2 c=16 h=8 w=9 groups=16" also, /* instance norm */                                          \
        "n=2 c=16 h=8 w=9 groups=16 layout=nhwc dtype=f16" also,                                        \
        "n=2 c=64 h=8 w=8 groups=8 dtype=f16 misalign=1" also, /* aligned to the element only */        \
        "n=2 c=64 h=8 w=8 groups=8 dtype=bf16 layout=nhwc misalign=1" also,                             \
        "n=2 c=96 h=3 w=3 groups=2 layout=nhwc misalign=1" also,                                        \
        "n=2 c=512 h=1 w=2 groups=1 layout=nhwc" also,               /* pixels wider than a warp */     \
        "n=1 c=4096 h=2 w=2 groups=1 layout=nhwc fill=uniform" also, /* wider than a CTA */             \
        "n=0 c=32 h=8 w=8" also,                                     /* nothing to do */                \
        "n=2 c=32 h=0 w=8" also

static const char *const cases[] = {
    SHAPES(""),
    SHAPES(" direction=backward"),
    "n=2 c=16 h=9 w=9 groups=1 stats=0",
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 fill=uniform impl=forward config='cluster=4 threads=256 steps=4 parts=16' "
    "# a cluster",
    "n=1 c=64 h=32 w=64 groups=2 layout=nhwc fill=uniform impl=forward config='cluster=8 threads=256 parts=32 steps=8'",
    "n=2 c=32 h=9 w=9 groups=8 layout=nhwc impl=forward config='bundle=4 cluster=4 threads=128 parts=32 "
    "steps=1' # an idle CTA",
    "n=2 c=32 h=16 w=16 groups=8 impl=forward_split config='threads=64 parts=16 steps=1 rounds=4' # slices",
    "n=2 c=32 h=16 w=16 groups=8 layout=nhwc impl=forward_split config='bundle=4 threads=128 parts=32 steps=1 "
    "rounds=3 turns=2'",
    "n=1 c=2 h=64 w=128 groups=1 impl=forward_split config='vec=1 threads=32 parts=16 steps=1' # hundreds of them",
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 direction=backward fill=uniform impl=backward "
    "config='cluster=4 threads=256 steps=4 parts=16'",
    "n=2 c=32 h=9 w=9 groups=8 direction=backward layout=nhwc impl=backward "
    "config='cluster=4 threads=128 parts=32 steps=1'",
    "n=2 c=32 h=16 w=16 groups=8 direction=backward impl=backward_split config='threads=64 parts=16 steps=1 rounds=4'",
    "n=2 c=32 h=16 w=16 groups=8 direction=backward layout=nhwc impl=backward_split "
    "config='threads=128 parts=32 steps=1 rounds=3 turns=2'",
    "n=1 c=2 h=64 w=128 groups=1 direction=backward impl=backward_split config='vec=1 threads=32 parts=16 steps=1'",
    NULL,
};

static const test_reject rejects[] = {
    { "n=-1", CKL_INVALID, "groupnorm: n=-1 is negative" },
    { "h=-3 direction=backward", CKL_INVALID, "groupnorm: h=-3 is negative" },
    { "c=32 groups=5", CKL_INVALID, "groupnorm: groups=5 does not divide c=32" },
    { "groups=0", CKL_INVALID, "groupnorm: groups=0 does not divide" },
    { "dtype=i8", CKL_INVALID, "groupnorm: dtype=i8 is none of f32, f16, bf16" },
    { "eps=-1", CKL_INVALID, "groupnorm: eps=-1 is negative" },
    { "impl=backward", CKL_UNSUPPORTED, "groupnorm backward: direction is forward" },
    { "impl=forward config='bundle=2'", CKL_INVALID, "nchw takes groups one by one" },
    { "layout=nhwc impl=forward config='bundle=3 parts=1'", CKL_INVALID, "bundle=3 does not divide groups=8" },
    { "layout=nhwc impl=forward config='parts=3'", CKL_INVALID, "the threads of a vector of channels" },
    { "h=5 w=5 impl=forward config='vec=4'", CKL_UNSUPPORTED, "groupnorm forward: vec=4 does not divide h*w" },
    { "impl=forward config='steps=1000'", CKL_UNSUPPORTED, "bytes of shared memory" },
    { "h=64 impl=backward direction=backward config='steps=1'", CKL_INVALID, "units of a channel" },
    { "impl=forward_split config='threads=100'", CKL_INVALID, "threads=100 is no multiple of 32" },
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
    .terms_of = terms,
    .approximation_of = approximation,
    .flops = flops,
    .bytes = bytes,
    .cases = cases,
    .rejects = rejects,
};
