/* groupnorm_test.c - the definition of group norm in double, its problem line, cases and rejects. */
#include "cutekernellib/operators/groupnorm.h"

#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"

typedef struct groupnorm_problem {
    ckl_groupnorm_desc desc;
    bool stats;
    float offset;
} groupnorm_problem;

#define GROUPNORM_DESC(X, owner)                                                                \
    X(owner, choice, direction, "forward", "forward backward", "the norm or its gradients")     \
    X(owner, int64_t, n, "2", "", "images")                                                     \
    X(owner, int64_t, c, "32", "", "channels")                                                  \
    X(owner, int64_t, h, "8", "", "rows of an image")                                           \
    X(owner, int64_t, w, "8", "", "columns of an image")                                        \
    X(owner, int64_t, groups, "8", "", "of channels")                                           \
    X(owner, choice, layout, "nchw", "nchw nhwc", "order of the axes")                          \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics") \
    X(owner, bool, affine, "1", "0 1", "with gamma and beta")                                   \
    X(owner, float, eps, "0", "", "forward: added to the variance; 0: 1e-5")

static const field fields[] = {
    GROUPNORM_DESC(FIELD_NESTED, (groupnorm_problem, desc))                                   //
    FIELD_ROW(groupnorm_problem, bool, stats, "1", "0 1", "forward saves mean and rstd")      //
    FIELD_ROW(groupnorm_problem, float, offset, "0", "", "x is random in offset-1..offset+1") //
};

/* Operands and outputs of both directions. */
enum { FORWARD_X, FORWARD_GAMMA, FORWARD_BETA, FORWARD_Y, FORWARD_MEAN, FORWARD_RSTD, FORWARD_OPERANDS };
enum { BACKWARD_X, BACKWARD_DY, BACKWARD_GAMMA, BACKWARD_MEAN, BACKWARD_RSTD, BACKWARD_DX };
enum { OUTPUT_Y, OUTPUT_MEAN, OUTPUT_RSTD };
enum { OUTPUT_DX, OUTPUT_DGAMMA, OUTPUT_DBETA, BACKWARD_OUTPUTS };

/* Element j of group `slice`, of image slice / groups, in an image tensor. */
static int64_t index_of(const groupnorm_problem *p, int64_t slice, int64_t j)
{
    int64_t pixels = p->desc.h * p->desc.w, image = slice / p->desc.groups;
    int64_t channel = slice % p->desc.groups * (p->desc.c / p->desc.groups) + j / pixels, pixel = j % pixels;
    if (p->desc.layout == CKL_IMAGE_NCHW)
        return (image * p->desc.c + channel) * pixels + pixel;
    return (image * pixels + pixel) * p->desc.c + channel;
}

static operand image(const groupnorm_problem *p, const char *name, operand_role role)
{
    if (p->desc.layout == CKL_IMAGE_NCHW)
        return (operand){ name,
                          role,
                          p->desc.dtype,
                          3,
                          { p->desc.n, p->desc.c, p->desc.h * p->desc.w },
                          { p->desc.c * p->desc.h * p->desc.w, p->desc.h * p->desc.w, 1 },
                          0,
                          0 };
    return (operand){ name,
                      role,
                      p->desc.dtype,
                      3,
                      { p->desc.n, p->desc.h * p->desc.w, p->desc.c },
                      { p->desc.c * p->desc.h * p->desc.w, p->desc.c, 1 },
                      0,
                      0 };
}

static operand vector(const char *name, operand_role role, ckl_dtype dtype, int64_t size, bool present)
{
    return operand_vector(name, role, present ? dtype : CKL_DTYPE_DEFAULT, size);
}

static int forward_operands(const groupnorm_problem *p, int64_t groups, operand *out)
{
    out[FORWARD_X] = image(p, "x", OPERAND_IN);
    out[FORWARD_GAMMA] = vector("gamma", OPERAND_IN, p->desc.dtype, p->desc.c, p->desc.affine);
    out[FORWARD_BETA] = vector("beta", OPERAND_IN, p->desc.dtype, p->desc.c, p->desc.affine);
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
    out[BACKWARD_GAMMA] = vector("gamma", OPERAND_IN, p->desc.dtype, p->desc.c, p->desc.affine);
    out[BACKWARD_MEAN] = vector("mean", OPERAND_IN, CKL_F32, groups, true);
    out[BACKWARD_RSTD] = vector("rstd", OPERAND_IN, CKL_F32, groups, true);
    out[BACKWARD_DX] = image(p, "dx", OPERAND_OUT);
    out[BACKWARD_DX + OUTPUT_DGAMMA] = vector("dgamma", OPERAND_OUT, p->desc.dtype, p->desc.c, p->desc.affine);
    out[BACKWARD_DX + OUTPUT_DBETA] = vector("dbeta", OPERAND_OUT, p->desc.dtype, p->desc.c, p->desc.affine);
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
    const int64_t groups = p->desc.c * p->desc.h * p->desc.w > 0 ? p->desc.n * p->desc.groups : 0;
    return p->desc.direction == CKL_DIRECTION_FORWARD ? forward_operands(p, groups, out)
                                                      : backward_operands(p, groups, out);
}

static ckl_groupnorm_args args_of(const groupnorm_problem *p, void *const *m)
{
    if (p->desc.direction == CKL_DIRECTION_FORWARD)
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
    if (p->desc.direction == CKL_DIRECTION_BACKWARD && output != OUTPUT_DX)
        return p->desc.c;
    return p->desc.c * p->desc.h * p->desc.w > 0 ? p->desc.n * p->desc.groups : 0;
}

static int64_t slice_elements(const void *problem, int output)
{
    const groupnorm_problem *p = problem;
    return output == OUTPUT_Y ? p->desc.c / p->desc.groups * p->desc.h * p->desc.w : 1; // OUTPUT_DX is the same number
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    return output == OUTPUT_Y ? index_of(problem, slice, j) : slice;
}

static void forward(const groupnorm_problem *p, void *const *host, int output, int64_t slice, reference_slice out)
{
    int64_t pixels = p->desc.h * p->desc.w, channels = p->desc.c / p->desc.groups, count = channels * pixels;
    double n = (double)count, mean = 0, squares = 0, differences = 0, deviation = 0;
    for (int64_t j = 0; j < count; j++)
        mean += dtype_read(p->desc.dtype, host[FORWARD_X], index_of(p, slice, j)) / n;
    for (int64_t j = 0; j < count; j++) {
        double x = dtype_read(p->desc.dtype, host[FORWARD_X], index_of(p, slice, j)) - mean;
        squares += x * x;
        differences += x;
        deviation += fabs(x) / n;
    }
    mean += differences / n; // of a group with an infinity: NaN
    double rstd = 1 / sqrt(squares / n + p->desc.eps);
    if (output != OUTPUT_Y) {
        out.value[0] = output == OUTPUT_MEAN ? mean : rstd;
        out.magnitude[0] = output == OUTPUT_MEAN ? fabs(mean) + deviation : rstd;
        return;
    }
    for (int64_t j = 0; j < count; j++) {
        int64_t channel = slice % p->desc.groups * channels + j / pixels;
        double gamma = p->desc.affine ? dtype_read(p->desc.dtype, host[FORWARD_GAMMA], channel) : 1;
        double beta = p->desc.affine ? dtype_read(p->desc.dtype, host[FORWARD_BETA], channel) : 0;
        double x = dtype_read(p->desc.dtype, host[FORWARD_X], index_of(p, slice, j)) - mean;
        out.value[j] = x * rstd * gamma + beta;
        out.magnitude[j] = (fabs(x) + deviation) * rstd * fabs(gamma) + fabs(beta);
    }
}

/* One element of the backward pass. */
typedef struct element {
    double dy, g;
    double n, n_magnitude; // the normalised x, and the sum of its terms
} element;

/* Element j of group `slice`. */
static element element_at(const groupnorm_problem *p, void *const *host, int64_t slice, int64_t j)
{
    int64_t channel = slice % p->desc.groups * (p->desc.c / p->desc.groups) + j / (p->desc.h * p->desc.w),
            i = index_of(p, slice, j);
    double mean = dtype_read(CKL_F32, host[BACKWARD_MEAN], slice),
           rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], slice);
    double x = dtype_read(p->desc.dtype, host[BACKWARD_X], i), dy = dtype_read(p->desc.dtype, host[BACKWARD_DY], i);
    double gamma = p->desc.affine ? dtype_read(p->desc.dtype, host[BACKWARD_GAMMA], channel) : 1;
    return (element){ dy, dy * gamma, (x - mean) * rstd, (fabs(x) + fabs(mean)) * fabs(rstd) };
}

static void backward_group(const groupnorm_problem *p, void *const *host, int64_t slice, reference_slice out)
{
    int64_t count = p->desc.c / p->desc.groups * p->desc.h * p->desc.w;
    double rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], slice);
    double gn = 0, g = 0, gn_magnitude = 0, g_magnitude = 0;
    for (int64_t j = 0; j < count; j++) {
        element e = element_at(p, host, slice, j);
        gn += e.g * e.n / (double)count;
        gn_magnitude += fabs(e.g) * e.n_magnitude / (double)count;
        g += e.g / (double)count;
        g_magnitude += fabs(e.g) / (double)count;
    }
    for (int64_t j = 0; j < count; j++) {
        element e = element_at(p, host, slice, j);
        out.value[j] = (e.g - e.n * gn - g) * rstd;
        out.magnitude[j] = (fabs(e.g) + e.n_magnitude * gn_magnitude + g_magnitude) * fabs(rstd);
    }
}

static void backward_channel(const groupnorm_problem *p, void *const *host, int output, int64_t channel,
                             reference_slice out)
{
    int64_t pixels = p->desc.h * p->desc.w, channels = p->desc.c / p->desc.groups;
    out.value[0] = out.magnitude[0] = 0;
    for (int64_t i = 0; i < p->desc.n * pixels; i++) {
        int64_t slice = i / pixels * p->desc.groups + channel / channels;
        element e = element_at(p, host, slice, channel % channels * pixels + i % pixels);
        out.value[0] += output == OUTPUT_DGAMMA ? e.dy * e.n : e.dy;
        out.magnitude[0] += fabs(e.dy) * (output == OUTPUT_DGAMMA ? e.n_magnitude : 1);
    }
}

static void reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const groupnorm_problem *p = problem;
    if (p->desc.direction == CKL_DIRECTION_FORWARD)
        forward(p, host, output, slice, out);
    else if (output == OUTPUT_DX)
        backward_group(p, host, slice, out);
    else
        backward_channel(p, host, output, slice, out);
}

/* 8 or 14 operations an element, which is what the reference costs too. */
static double flops(const void *problem)
{
    const ckl_groupnorm_desc *d = problem;
    return (d->direction == CKL_DIRECTION_FORWARD ? 8 : 14) * (double)(d->n * d->c) * (double)(d->h * d->w);
}

/* Of both directions: bundles in shared memory, and slices of bundles. */
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
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 fill=uniform impl=forward config='cluster=4 threads=256 steps=4 "
    "column_threads=16' "
    "# a cluster",
    "n=1 c=64 h=32 w=64 groups=2 layout=nhwc fill=uniform impl=forward config='cluster=8 threads=256 column_threads=32 "
    "steps=8'",
    "n=2 c=32 h=9 w=9 groups=8 layout=nhwc impl=forward config='bundle=4 cluster=4 threads=128 column_threads=32 "
    "steps=1' # an idle CTA",
    "n=2 c=32 h=16 w=16 groups=8 impl=forward_split config='threads=64 column_threads=16 steps=1 rounds=4' # slices",
    "n=2 c=32 h=16 w=16 groups=8 layout=nhwc impl=forward_split config='bundle=4 threads=128 column_threads=32 steps=1 "
    "rounds=3 slices_per_cta=2'",
    "n=1 c=2 h=64 w=128 groups=1 impl=forward_split config='vec=1 threads=32 column_threads=16 steps=1' # hundreds of "
    "them",
    "n=1 c=64 h=32 w=64 groups=2 dtype=bf16 direction=backward fill=uniform impl=backward "
    "config='cluster=4 threads=256 steps=4 column_threads=16'",
    "n=2 c=32 h=9 w=9 groups=8 direction=backward layout=nhwc impl=backward "
    "config='cluster=4 threads=128 column_threads=32 steps=1'",
    "n=2 c=32 h=16 w=16 groups=8 direction=backward impl=backward_split config='threads=64 column_threads=16 steps=1 "
    "rounds=4'",
    "n=2 c=32 h=16 w=16 groups=8 direction=backward layout=nhwc impl=backward_split "
    "config='threads=128 column_threads=32 steps=1 rounds=3 slices_per_cta=2'",
    "n=1 c=2 h=64 w=128 groups=1 direction=backward impl=backward_split config='vec=1 threads=32 column_threads=16 "
    "steps=1'",
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
    { "layout=nhwc impl=forward config='bundle=3 column_threads=1'", CKL_INVALID, "bundle=3 does not divide groups=8" },
    { "layout=nhwc impl=forward config='column_threads=3'", CKL_INVALID, "the threads of a vector of channels" },
    { "h=5 w=5 impl=forward config='vec=4'", CKL_UNSUPPORTED, "groupnorm forward: vec=4 does not divide h*w" },
    { "impl=forward config='steps=1000'", CKL_UNSUPPORTED, "bytes of shared memory" },
    { "h=64 impl=backward direction=backward config='steps=1'", CKL_INVALID, "units of a channel" },
    { "impl=forward_split config='threads=100'", CKL_INVALID, "threads=100 is no multiple of 32" },
    { "direction=backward eps=0.5", CKL_INVALID, "groupnorm: eps=0.5 is not part of a backward problem" },
    { NULL, CKL_OK, NULL },
};

/* Sums are trees over threads: a thread's own chain is what counts. rsqrt.approx: 2^-22.9. */
const operator_test groupnorm_test = {
    .op = &groupnorm_operator,
    .problem_bytes = sizeof(groupnorm_problem),
    .problem = FIELD_TABLE(fields),
    .operands = operands,
    .run = run,
    .slices = slices,
    .slice_elements = slice_elements,
    .output_index = output_index,
    .reference = reference,
    .terms = 64,
    .approximation = 0x1p-22,
    .flops = flops,
    .cases = cases,
    .rejects = rejects,
};
