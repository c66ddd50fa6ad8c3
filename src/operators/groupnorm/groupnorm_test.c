/* groupnorm_test.c - the problem line of group norm, its cases and rejects. */
#include "operators/norm_lab.h"

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

static const field fields[] = { GROUPNORM_DESC(FIELD_NESTED, (norm_problem, images)) //
                                NORM_PROBLEM(FIELD_ROW, norm_problem) };

static operand image(operand_role role, const ckl_groupnorm_desc *d)
{
    int64_t pixels = d->h * d->w, of_group = d->c / d->groups;
    const int64_t planes[] = { d->n, d->groups, of_group, pixels }, points[] = { d->n, pixels, d->groups, of_group };
    const int64_t plane_steps[] = { d->c * pixels, of_group * pixels, pixels, 1 };
    const int64_t point_steps[] = { d->c * pixels, d->c, of_group, 1 };
    return d->layout == CKL_IMAGE_NCHW
               ? operand_along(operand_tensor("", role, d->dtype, 4, planes, plane_steps), 1u << 2 | 1u << 3)
               : operand_along(operand_tensor("", role, d->dtype, 4, points, point_steps), 1u << 1 | 1u << 3);
}

static ckl_status prepare(void *problem)
{
    norm_problem *p = problem;
    const ckl_groupnorm_desc *d = &p->images;
    TRY(groupnorm_operator.check(problem));
    bool planes = d->layout == CKL_IMAGE_NCHW;
    int64_t pixels = d->h * d->w;
    p->view = (norm_view){ .direction = d->direction,
                           .dtype = d->dtype,
                           .input = image(OPERAND_IN, d),
                           .output = image(OPERAND_OUT, d),
                           .images = d->c * pixels > 0 ? d->n : 0,
                           .groups = d->groups,
                           .channels = d->c,
                           .pixels = pixels,
                           .channel_stride = planes ? pixels : 1,
                           .pixel_stride = planes ? 1 : d->c,
                           .affine = d->affine,
                           .centred = true,
                           .eps = d->eps };
    return CKL_OK;
}

/* In a backward pass gamma is finite, as groupnorm.h asks. */
static int operands(const void *problem, operand *out)
{
    int count = norm_operands(problem, out);
    if (((const norm_problem *)problem)->view.direction == CKL_DIRECTION_BACKWARD)
        out[NORM_GAMMA] = operand_range(out[NORM_GAMMA], -1, 1);
    return count;
}

static ckl_status run(const ckl_plan *plan, const void *problem, void *const *pointers, ckl_stream stream)
{
    ckl_norm_args a = norm_args(pointers);
    ckl_groupnorm_args args = { a.x, a.dy, a.gamma, a.beta, a.y, a.dx, a.dgamma, a.dbeta, a.mean, a.rstd, NULL };
    (void)problem;
    return ckl_groupnorm_run(plan, &args, stream);
}

static bool is_image(int output)
{
    return NORM_Y + output <= NORM_DX;
}

/* Slices are groups of images; of dgamma and dbeta they are channels. */
static int64_t slices(const void *problem, int output)
{
    const norm_view *v = &((const norm_problem *)problem)->view;
    return is_image(output) || NORM_Y + output >= NORM_MEAN ? v->images * v->groups : v->channels;
}

static int64_t slice_elements(const void *problem, int output)
{
    const norm_view *v = &((const norm_problem *)problem)->view;
    return is_image(output) ? v->channels / v->groups * v->pixels : 1;
}

static int64_t output_index(const void *problem, int output, int64_t slice, int64_t j)
{
    const norm_view *v = &((const norm_problem *)problem)->view;
    return is_image(output) ? norm_index(v, slice, j) : slice;
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

NORM_TEST(groupnorm, .prepare = prepare, .run = run, .operands = operands, .slices = slices,
          .slice_elements = slice_elements, .output_index = output_index, .rejects = rejects);
