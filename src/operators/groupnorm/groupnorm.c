/* groupnorm.c - group norm of images and its gradients: validation, launch. */
#include "cutekernellib/operators/groupnorm.h"

#include "operators/groupnorm/groupnorm_choice.h"
#include "operators/operators.h"
#include "plan/check.h"

/* Validation */

static ckl_status check(void *desc)
{
    ckl_groupnorm_desc *d = desc;
    const struct {
        const char *name;
        int64_t size;
    } sizes[] = { { "n", d->n }, { "c", d->c }, { "h", d->h }, { "w", d->w } };
    if (d->direction != CKL_DIRECTION_FORWARD && d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_INVALID, "groupnorm: direction=%d is neither forward nor backward", (int)d->direction);
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "groupnorm: dtype=%s is none of f32, f16, bf16", ckl_dtype_name(d->dtype));
    if (d->layout != CKL_IMAGE_NCHW && d->layout != CKL_IMAGE_NHWC)
        FAIL(CKL_INVALID, "groupnorm: layout=%d is neither nchw nor nhwc", (int)d->layout);
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (sizes[i].size < 0)
            FAIL(CKL_INVALID, "groupnorm: %s=%" PRId64 " is negative", sizes[i].name, sizes[i].size);
    if (d->groups < 1 || d->c % d->groups)
        FAIL(CKL_INVALID, "groupnorm: groups=%" PRId64 " does not divide c=%" PRId64, d->groups, d->c);
    if (!(d->eps >= 0))
        FAIL(CKL_INVALID, "groupnorm: eps=%g is negative or no number", (double)d->eps);
    if (d->eps == 0)
        d->eps = 1e-5f;
    return CKL_OK;
}

static int64_t elements_of(const ckl_groupnorm_desc *d)
{
    return d->n * d->c * d->h * d->w;
}

enum { PIECES_MAX = 8 };

/* Those that are read and written in vectors first; returns their number. */
static int list_pieces(const ckl_groupnorm_desc *d, const ckl_groupnorm_args *x, plan_tensor out[PIECES_MAX])
{
    const int64_t element = (int64_t)ckl_dtype_bytes(d->dtype), bytes = elements_of(d) * element;
    const int64_t gradients = d->affine ? d->c * element : 0, weights = bytes ? gradients : 0;
    const int64_t statistics = bytes ? d->n * d->groups * 4 : 0;
    const plan_tensor forward[PIECES_MAX] = {
        { "x", x->x, bytes, element, false, 1, NULL },
        { "gamma", x->gamma, weights, element, false, 0, NULL },
        { "beta", x->beta, weights, element, false, 0, NULL },
        { "y", x->y, bytes, element, true, 1, NULL },
        { "mean", x->mean, x->mean ? statistics : 0, 4, true, 0, NULL },
        { "rstd", x->rstd, x->rstd ? statistics : 0, 4, true, 0, NULL },
    };
    const plan_tensor backward[PIECES_MAX] = {
        { "x", x->x, bytes, element, false, 1, NULL },
        { "dy", x->dy, bytes, element, false, 1, NULL },
        { "gamma", x->gamma, weights, element, false, 0, NULL },
        { "dx", x->dx, bytes, element, true, 1, NULL },
        { "mean", x->mean, statistics, 4, false, 0, NULL },
        { "rstd", x->rstd, statistics, 4, false, 0, NULL },
        { "dgamma", x->dgamma, gradients, element, true, 0, NULL },
        { "dbeta", x->dbeta, gradients, element, true, 0, NULL },
    };
    for (int i = 0; i < PIECES_MAX; i++)
        out[i] = d->direction == CKL_DIRECTION_FORWARD ? forward[i] : backward[i];
    return 4;
}

static ckl_status check_args(const void *desc, const void *args)
{
    plan_tensor pieces[PIECES_MAX];
    (void)list_pieces(desc, args, pieces);
    TRY(plan_check_workspace("groupnorm", ((const ckl_groupnorm_args *)args)->workspace));
    return plan_check_tensors("groupnorm", pieces, PIECES_MAX);
}

/* Launch */

typedef struct parameters {
    int64_t bundles, first, lines;
    int32_t slices, range, units, entry_slices, entry_range;
    float reciprocal;
    const void *entries, *partial;
} parameters;

static int64_t entries_bytes(const ckl_plan *plan, bool split)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const int64_t words = GROUPNORM_ENTRY * d->n * d->groups * groupnorm_slices(d, plan->config, split);
    return split ? round_up(words * 4, PLAN_WORKSPACE_ALIGNMENT) : 0;
}

static int64_t partial_bytes(const ckl_plan *plan, bool split)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const bool sums = d->direction == CKL_DIRECTION_BACKWARD && d->affine && elements_of(d) > 0;
    return sums ? 4 * GROUPNORM_KINDS * d->n * d->c * groupnorm_slices(d, plan->config, split) : 0;
}

static parameters parameters_of(const ckl_plan *plan, const ckl_groupnorm_args *x, bool split)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const groupnorm_config *c = plan->config;
    const int64_t units = groupnorm_units(d, c), slices = groupnorm_slices(d, c, split);
    const char *workspace = x->workspace ? x->workspace : plan->workspace;
    return (parameters){ .bundles = d->groups / c->bundle,
                         .lines = elements_of(d) ? d->n * slices : 0,
                         .slices = (int32_t)slices,
                         .range = (int32_t)ceil_div(units, slices),
                         .units = (int32_t)units,
                         .entry_slices = (int32_t)slices,
                         .entry_range = (int32_t)ceil_div(units, slices),
                         .reciprocal = 1 / (float)(d->c / d->groups * d->h * d->w),
                         .entries = workspace,
                         .partial = workspace ? workspace + entries_bytes(plan, split) : NULL };
}

static ckl_status launch_kernel(const ckl_plan *plan, int part, int64_t ctas, const parameters *p,
                                const ckl_groupnorm_args *x, ckl_stream stream)
{
    const ckl_groupnorm_desc *d = plan->desc;
    int64_t pixels = d->h * d->w;
    const void *const *out =
        d->direction == CKL_DIRECTION_FORWARD ? (const void *const *)&x->y : (const void *const *)&x->dx;
    /* in the order in which the kernels name them */
    const void *params[] = { &d->c,     &pixels,    &p->bundles,      &p->first,       &p->slices,
                             &p->range, &p->units,  &p->entry_slices, &p->entry_range, &p->reciprocal,
                             &d->eps,   &x->x,      &x->dy,           &x->gamma,       &x->beta,
                             out,       &x->mean,   &x->rstd,         &p->entries,     &p->partial,
                             &p->lines, &x->dgamma, &x->dbeta };
    device_launch l = { .grid = { ctas, 1, 1 }, .params = (void *const *)params };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

static int unaligned(const ckl_plan *plan, const ckl_groupnorm_args *x)
{
    plan_tensor pieces[PIECES_MAX];
    int count = list_pieces(plan->desc, x, pieces);
    return plan_tensors_aligned(pieces, count, ((const groupnorm_config *)plan->config)->vec) ? 0 : 1;
}

/* dgamma and dbeta, of no lines where there are no elements: zero. */
static ckl_status launch_gradients(const ckl_plan *plan, int part, const parameters *p, const ckl_groupnorm_args *x,
                                   ckl_stream stream)
{
    const ckl_groupnorm_desc *d = plan->desc;
    if (d->direction == CKL_DIRECTION_FORWARD || !d->affine || d->c == 0)
        return CKL_OK;
    return launch_kernel(plan, part, ceil_div(GROUPNORM_KINDS * d->c, GROUPNORM_GRADIENT_COLUMNS), p, x, stream);
}

static ckl_status launch_whole(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_groupnorm_desc *d = plan->desc;
    parameters p = parameters_of(plan, args, false);
    if (elements_of(d) > 0)
        TRY(launch_kernel(plan, unaligned(plan, args), groupnorm_bundles(d, plan->config) * p.slices, &p, args,
                          stream));
    return launch_gradients(plan, GROUPNORM_GRADIENTS, &p, args, stream);
}

/* In rounds: what the first kernel has read is still in L2 when the second reads it. */
static ckl_status launch_split(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const groupnorm_config *c = plan->config;
    const int64_t bundles = elements_of(d) ? groupnorm_bundles(d, c) : 0,
                  round = max_i64(1, ceil_div(bundles, c->rounds));
    const int odd = unaligned(plan, args);
    parameters p = parameters_of(plan, args, true);
    for (; p.first < bundles; p.first += round) {
        int64_t here = min_i64(round, bundles - p.first);
        parameters second = p; // its CTAs take several slices: each has to merge all entries first
        second.slices = (int32_t)ceil_div(p.slices, c->turns);
        second.range = (int32_t)ceil_div(p.units, second.slices);
        TRY(launch_kernel(plan, odd, here * p.slices, &p, args, stream));
        TRY(launch_kernel(plan, 2 + odd, here * second.slices, &second, args, stream));
    }
    return launch_gradients(plan, GROUPNORM_SPLIT_GRADIENTS, &p, args, stream);
}

/* Implementations */

static const field groupnorm_fields[] = { GROUPNORM_CONFIG(FIELD_ROW) };

#define IMPLEMENTATION(called, wanted, is_split, says, count, launches)                                   \
    static ckl_status choose_##called(const void *desc, const ckl_device_info *device, void *config)      \
    {                                                                                                     \
        TRY(check_direction("groupnorm " #called, desc, wanted));                                         \
        return groupnorm_choose("groupnorm " #called, desc, device, is_split, config);                    \
    }                                                                                                     \
    static ckl_status admit_##called(const void *desc, const ckl_device_info *device, const void *config) \
    {                                                                                                     \
        TRY(check_direction("groupnorm " #called, desc, wanted));                                         \
        return groupnorm_admit("groupnorm " #called, desc, device, is_split, config);                     \
    }                                                                                                     \
    static int64_t workspace_##called(const ckl_plan *plan)                                               \
    {                                                                                                     \
        return entries_bytes(plan, is_split) + partial_bytes(plan, is_split);                             \
    }                                                                                                     \
    static const implementation called = {                                                                \
        .name = #called,                                                                                  \
        .summary = says,                                                                                  \
        .config_bytes = sizeof(groupnorm_config),                                                         \
        .config = FIELD_TABLE(groupnorm_fields),                                                          \
        .choose = choose_##called,                                                                        \
        .admit = admit_##called,                                                                          \
        .describe = groupnorm_##called,                                                                   \
        .kernels = count,                                                                                 \
        .target = IR_SM80,                                                                                \
        .workspace_bytes = workspace_##called,                                                            \
        .launch = launches,                                                                               \
    };

static ckl_status check_direction(const char *what, const ckl_groupnorm_desc *d, ckl_direction wanted)
{
    if (d->direction != wanted)
        FAIL(CKL_UNSUPPORTED, "%s: direction is %s", what, wanted == CKL_DIRECTION_FORWARD ? "backward" : "forward");
    return CKL_OK;
}

IMPLEMENTATION(forward, CKL_DIRECTION_FORWARD, false,
               "a group, or of nhwc neighbouring ones, in the shared memory of a CTA or cluster", 2, launch_whole)
IMPLEMENTATION(forward_split, CKL_DIRECTION_FORWARD, true,
               "slices of groups leave their moments; a second kernel reads x again", 4, launch_split)
IMPLEMENTATION(backward, CKL_DIRECTION_BACKWARD, false,
               "x and dy of a group in shared memory; a second kernel adds up dgamma and dbeta",
               GROUPNORM_GRADIENTS + 1, launch_whole)
IMPLEMENTATION(backward_split, CKL_DIRECTION_BACKWARD, true,
               "slices of groups leave their sums; a second kernel reads x and dy again", GROUPNORM_SPLIT_GRADIENTS + 1,
               launch_split)

static const implementation *const implementations[] = { &forward, &forward_split, &backward, &backward_split, NULL };

PLAN_CLEAR_PADDING(clear_padding, ckl_groupnorm_desc)

const operator_info groupnorm_operator = {
    .name = "groupnorm",
    .summary = "y = (x - mean) / sqrt(variance + eps) * gamma + beta of groups of channels, and its gradients",
    .desc_bytes = sizeof(ckl_groupnorm_desc),
    .clear_padding = clear_padding,
    .args_bytes = sizeof(ckl_groupnorm_args),
    .check = check,
    .check_args = check_args,
    .implementations = implementations,
};

ckl_status ckl_groupnorm_plan(ckl_device *device, const ckl_groupnorm_desc *desc, ckl_plan **plan)
{
    return plan_build(device, &groupnorm_operator, desc, NULL, plan);
}

ckl_status ckl_groupnorm_run(const ckl_plan *plan, const ckl_groupnorm_args *args, ckl_stream stream)
{
    return plan_run(plan, &groupnorm_operator, args, stream);
}

ckl_status ckl_groupnorm(ckl_device *device, const ckl_groupnorm_desc *desc, const ckl_groupnorm_args *args,
                         ckl_stream stream)
{
    return plan_once(device, &groupnorm_operator, desc, args, stream);
}
