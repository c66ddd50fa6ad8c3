/* groupnorm.c - group norm of images and its gradients: validation, launch. */
#include "base/math.h"
#include "operators/groupnorm/groupnorm_config.h"
#include "operators/norm_lab.h"
#include "operators/operators.h"
#include "skeletons/prefetch.h"
#include "skeletons/two_pass.h"

/* Validation */

static ckl_status check(void *desc)
{
    ckl_groupnorm_desc *d = desc;
    if (d->c % d->groups)
        FAIL(CKL_INVALID, "groupnorm: groups=%" PRId64 " does not divide c=%" PRId64, d->groups, d->c);
    if (d->c == 1)
        d->layout = CKL_IMAGE_NCHW; // the same, where a plane may begin anywhere
    return norm_check_eps("groupnorm", d->direction, &d->eps);
}

static int64_t elements_of(const ckl_groupnorm_desc *d)
{
    return product_i64(product_i64(d->n, d->c), product_i64(d->h, d->w));
}

/* An image tensor: pixels of a channel side by side, or channels of a pixel. Channels are (GROUPS,CHANNELS each). */
static plan_tensor image(const ckl_groupnorm_desc *d, const char *name)
{
    const int64_t of_group = d->c / d->groups, pixels = product_i64(d->h, d->w), all = product_i64(d->c, pixels);
    const int64_t planes[] = { d->n, d->groups, of_group, pixels }, points[] = { d->n, pixels, d->groups, of_group };
    const int64_t plane_steps[] = { all, product_i64(of_group, pixels), pixels, 1 };
    const int64_t point_steps[] = { all, d->c, of_group, 1 };
    const bool nchw = d->layout == CKL_IMAGE_NCHW;
    plan_tensor t = plan_strided(name, d->dtype, 4, nchw ? planes : points, nchw ? plane_steps : point_steps);
    t.place = 1;
    return t;
}

/* Gamma or beta; what is written is their gradients. */
static plan_tensor weights(const ckl_groupnorm_desc *d, const char *name)
{
    return plan_vector(name, d->dtype, elements_of(d) ? d->c : 0);
}

static plan_tensor gradient(const ckl_groupnorm_desc *d, const char *name)
{
    return plan_output(plan_column(name, d->dtype, d->c));
}

/* mean or rstd: the gradients need it, forward it is written unless NULL. */
static plan_tensor statistic(const ckl_groupnorm_desc *d, const char *name)
{
    const int64_t groups = elements_of(d) ? product_i64(d->n, d->groups) : 0;
    if (d->direction == CKL_DIRECTION_BACKWARD)
        return plan_vector(name, CKL_F32, groups);
    return plan_optional(plan_output(plan_column(name, CKL_F32, groups)));
}

static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_groupnorm_desc *d = desc;
    const bool backward = d->direction == CKL_DIRECTION_BACKWARD;
    const char *forward_only = backward ? "a backward problem" : NULL;
    const char *backward_only = backward ? NULL : "a forward problem";
    const char *affine_only = d->affine ? NULL : "a problem without affine";
    t[0] = image(d, "x");
    t[1] = plan_absent(image(d, "dy"), backward_only);
    t[2] = plan_absent(weights(d, "gamma"), affine_only);
    t[3] = plan_absent(weights(d, "beta"), plan_first(forward_only, affine_only));
    t[4] = plan_absent(plan_output(image(d, "y")), forward_only);
    t[5] = plan_absent(plan_output(image(d, "dx")), backward_only);
    t[6] = plan_absent(gradient(d, "dgamma"), plan_first(backward_only, affine_only));
    t[7] = plan_absent(gradient(d, "dbeta"), plan_first(backward_only, affine_only));
    t[8] = statistic(d, "mean");
    t[9] = statistic(d, "rstd");
    return 10;
}

/* Launch */

/* Of the workspace: entries of split slices, what is merged of them, counters, and partial sums of gradients. */
typedef struct workspace_parts {
    int64_t early, merged, counters, arrived, partial, bytes; // offsets; entries come first
} workspace_parts;

static workspace_parts workspace_of(const ckl_plan *plan, groupnorm_slicing slicing)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const groupnorm_config *c = plan->config;
    const int64_t slices = groupnorm_slices(d, c, slicing), strips = groupnorm_bundles(d, c);
    const bool meets = slicing != GROUPNORM_CLUSTER; // in memory
    const int64_t ranges = groupnorm_ranges(d, plan->config, slicing);
    const bool sums = d->direction == CKL_DIRECTION_BACKWARD && d->affine && elements_of(d) > 0;
    const int64_t early = groupnorm_early_entries(c, slices);
    workspace_parts w = { 0 };
    w.early = meets ? 4 * strips * groupnorm_entry_words(c, slices) : 0;
    w.merged = w.early + (early ? 4 * strips * groupnorm_entry_words(c, early) : 0);
    w.counters = w.merged + (slicing == GROUPNORM_SPLIT ? 4 * GROUPNORM_ENTRY * d->n * d->groups : 0);
    w.arrived = w.counters + (slicing == GROUPNORM_SPLIT  ? two_pass_counter_bytes(strips)
                              : slicing == GROUPNORM_HELD ? one_pass_counter_bytes(strips, slices)
                                                          : 0);
    w.partial = round_up(w.arrived + 4 * strips * early, PLAN_WORKSPACE_ALIGNMENT);
    w.bytes = w.partial + (sums ? 4 * GROUPNORM_KINDS * d->n * d->c * ranges : 0);
    return w;
}

/* Of x and of dy, which L2 is asked for while the launch before may still run. */
static uint32_t image_bytes(const ckl_groupnorm_desc *d)
{
    const int64_t bytes = product_i64(elements_of(d), dtype_bytes(d->dtype));
    return d->direction == CKL_DIRECTION_BACKWARD ? early_bytes(bytes, PREFETCHED_BYTES / 2) : 0;
}

static groupnorm_params params_for(const ckl_plan *plan, const ckl_groupnorm_args *a, groupnorm_slicing slicing)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const groupnorm_config *c = plan->config;
    const int64_t units = groupnorm_units(d, c), ranges = groupnorm_ranges(d, c, slicing);
    const char *workspace = plan_workspace(plan, a->workspace);
    const workspace_parts w = workspace_of(plan, slicing);
    return (groupnorm_params){ .channels = d->c,
                               .pixels = d->h * d->w,
                               .bundles = (int32_t)ceil_div(d->groups, c->bundle),
                               .slices = (int32_t)groupnorm_slices(d, c, slicing),
                               .ranges = (int32_t)ranges,
                               .range = (int32_t)ceil_div(units, ranges),
                               .units = (int32_t)units,
                               .reciprocal = 1 / (float)(d->c / d->groups * d->h * d->w),
                               .eps = d->eps,
                               .x = a->x,
                               .dy = a->dy,
                               .image_bytes = { image_bytes(d), image_bytes(d) },
                               .gamma = a->gamma,
                               .beta = a->beta,
                               .y = d->direction == CKL_DIRECTION_FORWARD ? a->y : a->dx,
                               .mean = a->mean,
                               .rstd = a->rstd,
                               .entries = workspace,
                               .early = workspace ? workspace + w.early : NULL,
                               .merged = workspace ? workspace + w.merged : NULL,
                               .counters = workspace ? workspace + w.counters : NULL,
                               .arrived = workspace ? workspace + w.arrived : NULL,
                               .partial = workspace ? workspace + w.partial : NULL,
                               .strips = slicing == GROUPNORM_CLUSTER ? 0 : (uint32_t)groupnorm_bundles(d, c),
                               .lines = elements_of(d) ? d->n * ranges : 0,
                               .dgamma = a->dgamma,
                               .dbeta = a->dbeta };
}

static int kernel_for(const ckl_plan *plan, const ckl_groupnorm_args *a)
{
    const groupnorm_config *c = plan->config;
    const int64_t bytes = c->vec * dtype_bytes(c->dtype);
    return PLAN_ALIGNED(bytes, a->x, a->dy, a->gamma, a->beta, a->y, a->dx) ? GROUPNORM_VECTORS : GROUPNORM_ELEMENTS;
}

/* Of the CTAs of all slices; then dgamma and dbeta, of no lines where there are no elements: zero. */
static ckl_status launch(const ckl_plan *plan, groupnorm_slicing slicing, const ckl_groupnorm_args *args,
                         ckl_stream stream)
{
    const ckl_groupnorm_desc *d = plan->desc;
    const int kernel = kernel_for(plan, args);
    groupnorm_params p = params_for(plan, args, slicing);
    int64_t strips = groupnorm_bundles(d, plan->config), ctas = strips * p.slices;
    if (slicing == GROUPNORM_SPLIT) {
        const int64_t abreast = d->layout == CKL_IMAGE_NCHW ? 1 : p.bundles; // of nhwc they share lines of memory
        p.lag = two_pass_lag(strips, abreast, p.slices, plan->kernels[kernel].clusters_resident);
        ctas = two_pass_ctas(strips, p.slices);
    }
    if (elements_of(d) > 0)
        TRY(plan_launch(plan, kernel, (plan_grid){ .x = ctas }, &p, stream));
    if (d->direction == CKL_DIRECTION_FORWARD || !d->affine || d->c == 0)
        return CKL_OK;
    const plan_grid grid = { .x = ceil_div(GROUPNORM_KINDS * d->c, GROUPNORM_GRADIENT_COLUMNS) };
    return plan_launch(plan, p.lines <= GROUPNORM_LINES_FEW ? GROUPNORM_GRADIENTS_FEW : GROUPNORM_GRADIENTS, grid, &p,
                       stream);
}

/* Implementations */

static const field desc_fields[] = { GROUPNORM_DESC(FIELD_ROW, ckl_groupnorm_desc) };
static const field config_fields[] = { GROUPNORM_CONFIG(FIELD_ROW, groupnorm_config) };

#define IMPLEMENTATION(called, wanted, slicing, says)                                                     \
    static ckl_status choose_##called(const void *desc, const ckl_device_info *device, void *config)      \
    {                                                                                                     \
        TRY(check_direction("groupnorm " #called, desc, wanted));                                         \
        return groupnorm_choose("groupnorm " #called, desc, device, slicing, config);                     \
    }                                                                                                     \
    static ckl_status admit_##called(const void *desc, const ckl_device_info *device, const void *config) \
    {                                                                                                     \
        TRY(check_direction("groupnorm " #called, desc, wanted));                                         \
        return groupnorm_admit("groupnorm " #called, desc, device, slicing, config);                      \
    }                                                                                                     \
    static plan_cost cost_##called(const void *desc, const ckl_device_info *device, const void *config)   \
    {                                                                                                     \
        return groupnorm_cost(desc, device, slicing, config);                                             \
    }                                                                                                     \
    static void describe_##called(const void *config, int kernel)                                         \
    {                                                                                                     \
        describe(config, wanted, slicing, kernel);                                                        \
    }                                                                                                     \
    static int64_t workspace_##called(const ckl_plan *plan)                                               \
    {                                                                                                     \
        return workspace_of(plan, slicing).bytes;                                                         \
    }                                                                                                     \
    static ckl_status launch_##called(const ckl_plan *plan, const void *args, ckl_stream stream)          \
    {                                                                                                     \
        return launch(plan, slicing, args, stream);                                                       \
    }                                                                                                     \
    static const implementation called = {                                                                \
        .name = #called,                                                                                  \
        .summary = says,                                                                                  \
        .config_bytes = sizeof(groupnorm_config),                                                         \
        .config = FIELD_TABLE(config_fields),                                                             \
        .choose = choose_##called,                                                                        \
        .cost = cost_##called,                                                                            \
        .admit = admit_##called,                                                                          \
        .describe = describe_##called,                                                                    \
        .kernels = wanted == CKL_DIRECTION_FORWARD ? GROUPNORM_GRADIENTS : GROUPNORM_KERNELS,             \
        .params = &groupnorm_param_list,                                                                  \
        .workspace_bytes = workspace_##called,                                                            \
        .launch = launch_##called,                                                                        \
    };

static void describe(const groupnorm_config *c, ckl_direction wanted, groupnorm_slicing slicing, int kernel)
{
    const bool vectors = kernel == GROUPNORM_VECTORS;
    if (kernel >= GROUPNORM_GRADIENTS)
        groupnorm_gradients(c, kernel == GROUPNORM_GRADIENTS_FEW);
    else if (wanted == CKL_DIRECTION_FORWARD)
        groupnorm_forward(c, slicing, vectors);
    else
        groupnorm_backward(c, slicing, vectors);
}

static ckl_status check_direction(const char *what, const ckl_groupnorm_desc *d, ckl_direction wanted)
{
    if (d->direction != wanted)
        FAIL(CKL_UNSUPPORTED, "%s: direction is %s", what, wanted == CKL_DIRECTION_FORWARD ? "backward" : "forward");
    return CKL_OK;
}

IMPLEMENTATION(forward, CKL_DIRECTION_FORWARD, GROUPNORM_CLUSTER,
               "a group, or of nhwc neighbouring ones, in the shared memory of a CTA or cluster")
IMPLEMENTATION(forward_split, CKL_DIRECTION_FORWARD, GROUPNORM_SPLIT,
               "slices of groups store their moments; other CTAs read them again")
IMPLEMENTATION(forward_held, CKL_DIRECTION_FORWARD, GROUPNORM_HELD,
               "slices of groups in shared memory until their statistics are known")
IMPLEMENTATION(backward, CKL_DIRECTION_BACKWARD, GROUPNORM_CLUSTER,
               "x and dy of a group in shared memory; a second kernel adds up dgamma and dbeta")
IMPLEMENTATION(backward_split, CKL_DIRECTION_BACKWARD, GROUPNORM_SPLIT,
               "slices of groups store their sums; other CTAs read them again")
IMPLEMENTATION(backward_held, CKL_DIRECTION_BACKWARD, GROUPNORM_HELD,
               "slices of x and dy in shared memory until the sums of their groups are known")

static const implementation *const implementations[] = {
    &forward_held, &forward, &forward_split, &backward_held, &backward, &backward_split, NULL
};

OPERATOR(groupnorm, groupnorm,
         "y = (x - mean) / sqrt(variance + eps) * gamma + beta of groups of channels, and its gradients",
         .workspace = offsetof(ckl_groupnorm_args, workspace));

/* Problem lines */

static const field fields[] = { GROUPNORM_DESC(FIELD_NESTED, (norm_problem, images)) //
                                NORM_PROBLEM(FIELD_ROW, norm_problem) };

OPERATOR_LINE(groupnorm, norm_problem, NULL);
