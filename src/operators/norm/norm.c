/* norm.c - layer norm and RMS norm: validation, launch, the tables of kernels. */
#include "cutekernellib/operators/norm.h"

#include "operators/norm/norm_choice.h"
#include "operators/operators.h"
#include "plan/check.h"

/* Validation */

static ckl_status check_desc(const char *op, ckl_norm_desc *d)
{
    if (d->direction != CKL_DIRECTION_FORWARD && d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_INVALID, "%s: direction=%d is neither forward nor backward", op, (int)d->direction);
    if (d->dtype != CKL_F32 && d->dtype != CKL_F16 && d->dtype != CKL_BF16)
        FAIL(CKL_INVALID, "%s: dtype=%s is none of f32, f16, bf16", op, ckl_dtype_name(d->dtype));
    if (d->rows < 0)
        FAIL(CKL_INVALID, "%s: rows=%" PRId64 " is negative", op, d->rows);
    if (d->cols < 0)
        FAIL(CKL_INVALID, "%s: cols=%" PRId64 " is negative", op, d->cols);
    if (!(d->eps >= 0))
        FAIL(CKL_INVALID, "%s: eps=%g is negative or no number", op, (double)d->eps);
    if (d->eps == 0)
        d->eps = 1e-5f;
    const struct {
        const char *name;
        int64_t *ld;
    } pitches[] = { { "ld_in", &d->ld_in }, { "ld_out", &d->ld_out } };
    for (int i = 0; i < COUNT_OF(pitches); i++) {
        if (*pitches[i].ld == 0)
            *pitches[i].ld = d->cols;
        if (*pitches[i].ld < d->cols)
            FAIL(CKL_INVALID, "%s: %s=%" PRId64 " is smaller than cols=%" PRId64, op, pitches[i].name, *pitches[i].ld,
                 d->cols);
    }
    return CKL_OK;
}

enum { PIECES_MAX = 9 };

static int list_pieces(const ckl_norm_desc *d, const ckl_norm_args *x, bool centred, plan_tensor *out)
{
    const int64_t element = (int64_t)ckl_dtype_bytes(d->dtype), statistics = d->rows * 4;
    const bool any = d->rows > 0 && d->cols > 0;
    const int64_t in = any ? ((d->rows - 1) * d->ld_in + d->cols) * element : 0;
    const int64_t to = any ? ((d->rows - 1) * d->ld_out + d->cols) * element : 0;
    const int64_t residual_in = d->residual ? in : 0, residual_out = d->residual ? to : 0;
    const int64_t gamma = d->affine ? d->cols * element : 0, beta = centred ? gamma : 0;
    const plan_tensor forward[] = {
        { "x", x->x, in, element, false, d->ld_in, NULL },
        { "residual", x->residual, residual_in, element, false, d->ld_in, NULL },
        { "gamma", x->gamma, any ? gamma : 0, element, false, 0, NULL },
        { "beta", x->beta, any ? beta : 0, element, false, 0, NULL },
        { "y", x->y, to, element, true, d->ld_out, NULL },
        { "sum", x->sum, residual_out, element, true, d->ld_out, NULL },
        { "mean", x->mean, centred && x->mean ? statistics : 0, 4, true, 0, NULL },
        { "rstd", x->rstd, x->rstd ? statistics : 0, 4, true, 0, NULL },
    };
    const plan_tensor backward[] = {
        { "x", x->x, in, element, false, d->ld_in, NULL },
        { "dy", x->dy, in, element, false, d->ld_in, NULL },
        { "dsum", x->dsum, residual_in, element, false, d->ld_in, NULL },
        { "gamma", x->gamma, any ? gamma : 0, element, false, 0, NULL },
        { "mean", x->mean, centred && any ? statistics : 0, 4, false, 0, NULL },
        { "rstd", x->rstd, any ? statistics : 0, 4, false, 0, NULL },
        { "dx", x->dx, to, element, true, d->ld_out, NULL },
        { "dgamma", x->dgamma, gamma, element, true, 0, NULL },
        { "dbeta", x->dbeta, beta, element, true, 0, NULL },
    };
    const plan_tensor *list = d->direction == CKL_DIRECTION_FORWARD ? forward : backward;
    const int count = d->direction == CKL_DIRECTION_FORWARD ? COUNT_OF(forward) : COUNT_OF(backward);
    for (int i = 0; i < count; i++)
        out[i] = list[i];
    return count;
}

static ckl_status check_pieces(const char *op, const ckl_norm_desc *d, const ckl_norm_args *args, bool centred)
{
    plan_tensor p[PIECES_MAX];
    TRY(plan_check_workspace(op, args->workspace));
    return plan_check_tensors(op, p, list_pieces(d, args, centred, p));
}

/* Launch */

/* Kernel 0 if all tensors but the statistics, which are read one by one, are aligned to vectors; else 1. */
static int part_for(const ckl_norm_desc *d, const norm_config *c, const ckl_norm_args *args)
{
    ckl_norm_args elements = *args;
    elements.mean = elements.rstd = NULL;
    plan_tensor p[PIECES_MAX];
    return plan_tensors_aligned(p, list_pieces(d, &elements, true, p), c->vec) ? 0 : 1;
}

/* CTAs of the kernel that walks over rows: a CTA or cluster for each row, or less that take rows in turn. */
static int64_t row_ctas(const ckl_plan *plan, int part)
{
    const ckl_norm_desc *d = plan->desc;
    const norm_config *c = plan->config;
    row_split s = norm_split(c, true);
    int64_t ctas = row_split_ctas(&s, d->rows), clusters = plan->kernels[0].clusters_resident;
    if (d->direction == CKL_DIRECTION_FORWARD)
        return c->stages && part == 0 ? min_i64(ctas, clusters * c->cluster) : ctas;
    if (c->turns > 0)
        clusters = (int64_t)plan->device->info.sm_count * c->turns / c->cluster;
    return even_workers(ctas / c->cluster, max_i64(1, clusters)) * c->cluster;
}

/* The counter from which rows that flow are drawn. */
static int64_t workspace_forward(const ckl_plan *plan)
{
    return ((const norm_config *)plan->config)->stages ? (int64_t)sizeof(uint32_t) : 0;
}

static ckl_status launch_forward(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_norm_desc *d = plan->desc;
    const ckl_norm_args *x = args;
    if (d->rows == 0)
        return CKL_OK;
    uint32_t cols = (uint32_t)d->cols;
    float reciprocal = 1 / (float)d->cols;
    const void *counter = x->workspace ? x->workspace : plan->workspace;
    /* in the order in which the kernel names them */
    const void *params[] = { &d->rows,  &cols,    &d->ld_in, &d->ld_out, &reciprocal, &d->eps,  &x->x,   &x->residual,
                             &x->gamma, &x->beta, &x->y,     &x->sum,    &x->mean,    &x->rstd, &counter };
    int part = part_for(d, plan->config, x);
    device_launch l = { .grid = { row_ctas(plan, part), 1, 1 }, .params = (void *const *)params };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &l, stream);
}

/* CTAs or clusters that walk over rows: as many partial sums of each column. */
static int64_t groups_of(const ckl_plan *plan)
{
    return row_ctas(plan, 0) / ((const norm_config *)plan->config)->cluster;
}

static int64_t workspace_backward(const ckl_plan *plan)
{
    const ckl_norm_desc *d = plan->desc;
    const norm_config *c = plan->config;
    return d->affine && norm_keeps_sums(c) ? groups_of(plan) * 2 * d->cols * (int64_t)sizeof(float) : 0;
}

/* Sums of columns that read x and dy go first, as dx may be in place of one of them. */
static ckl_status launch_backward(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const device_ops *ops = plan->device->ops;
    const ckl_norm_desc *d = plan->desc;
    const norm_config *c = plan->config;
    const ckl_norm_args *x = args;
    uint32_t cols = (uint32_t)d->cols;
    float reciprocal = 1 / (float)d->cols;
    int64_t groups = groups_of(plan);
    int part = part_for(d, c, x);
    const bool direct = !norm_keeps_sums(c) || (c->stages && part == 1); // sums of columns from x and dy themselves
    const void *partial = direct ? NULL : x->workspace ? x->workspace : plan->workspace;
    /* in the order in which the kernels name them */
    const void *params[] = { &d->rows,  &cols,    &d->ld_in, &d->ld_out, &reciprocal, &x->x,   &x->dy,     &x->dsum,
                             &x->gamma, &x->mean, &x->rstd,  &x->dx,     &partial,    &groups, &x->dgamma, &x->dbeta };
    device_launch rows = { .grid = { row_ctas(plan, 0), 1, 1 }, .params = (void *const *)params };
    device_launch columns = { .grid = { ceil_div(d->cols, c->column_lanes * norm_column_vec(c)), 1, 1 },
                              .params = (void *const *)params };
    const bool sums = d->affine && d->cols > 0, work = d->rows > 0 && d->cols > 0;
    if (sums && direct)
        TRY(ops->launch(plan->device, plan->kernels[2].loaded, &columns, stream));
    if (work)
        TRY(ops->launch(plan->device, plan->kernels[part].loaded, &rows, stream));
    if (sums && !direct)
        TRY(ops->launch(plan->device, plan->kernels[2].loaded, &columns, stream));
    return CKL_OK;
}

/* The operators */

static const field norm_fields[] = { NORM_CONFIG(FIELD_ROW) };

/* Both operators have the same tables but for kernels and names. */
#define NORM_OPERATOR(op, is_centred, formula)                                                                       \
    static ckl_status op##_check(void *desc)                                                                         \
    {                                                                                                                \
        return check_desc(#op, desc);                                                                                \
    }                                                                                                                \
    static ckl_status op##_check_args(const void *desc, const void *args)                                            \
    {                                                                                                                \
        return check_pieces(#op, desc, args, is_centred);                                                            \
    }                                                                                                                \
    static const implementation op##_forward_implementation = {                                                      \
        .name = "forward",                                                                                           \
        .summary = "a row in the registers of some lanes, a CTA or a cluster; longer ones tile by tile",             \
        .config_bytes = sizeof(norm_config),                                                                         \
        .config = FIELD_TABLE(norm_fields),                                                                          \
        .choose = norm_choose_forward,                                                                               \
        .admit = norm_admit_forward,                                                                                 \
        .describe = op##_forward,                                                                                    \
        .kernels = 2,                                                                                                \
        .target = IR_SM80,                                                                                           \
        .workspace_bytes = workspace_forward,                                                                        \
        .launch = launch_forward,                                                                                    \
    };                                                                                                               \
    static const implementation op##_backward_implementation = {                                                     \
        .name = "backward",                                                                                          \
        .summary = "CTAs or clusters take rows in turn and keep sums of columns; a second kernel adds these up",     \
        .config_bytes = sizeof(norm_config),                                                                         \
        .config = FIELD_TABLE(norm_fields),                                                                          \
        .choose = norm_choose_backward,                                                                              \
        .admit = norm_admit_backward,                                                                                \
        .describe = op##_backward,                                                                                   \
        .kernels = 3,                                                                                                \
        .target = IR_SM80,                                                                                           \
        .workspace_bytes = workspace_backward,                                                                       \
        .launch = launch_backward,                                                                                   \
    };                                                                                                               \
    static const implementation *const op##_implementations[] = { &op##_forward_implementation,                      \
                                                                  &op##_backward_implementation, NULL };             \
    PLAN_CLEAR_PADDING(op##_clear_padding, ckl_norm_desc)                                                            \
    const operator_info op##_operator = {                                                                            \
        .name = #op,                                                                                                 \
        .summary = formula,                                                                                          \
        .desc_bytes = sizeof(ckl_norm_desc),                                                                         \
        .clear_padding = op##_clear_padding,                                                                         \
        .args_bytes = sizeof(ckl_norm_args),                                                                         \
        .check = op##_check,                                                                                         \
        .check_args = op##_check_args,                                                                               \
        .implementations = op##_implementations,                                                                     \
    };                                                                                                               \
    ckl_status ckl_##op##_plan(ckl_device *device, const ckl_norm_desc *desc, ckl_plan **plan)                       \
    {                                                                                                                \
        return plan_build(device, &op##_operator, desc, NULL, plan);                                                 \
    }                                                                                                                \
    ckl_status ckl_##op##_run(const ckl_plan *plan, const ckl_norm_args *args, ckl_stream stream)                    \
    {                                                                                                                \
        return plan_run(plan, &op##_operator, args, stream);                                                         \
    }                                                                                                                \
    ckl_status ckl_##op(ckl_device *device, const ckl_norm_desc *desc, const ckl_norm_args *args, ckl_stream stream) \
    {                                                                                                                \
        return plan_once(device, &op##_operator, desc, args, stream);                                                \
    }

NORM_OPERATOR(layernorm, true, "y = (x - mean) / sqrt(variance + eps) * gamma + beta of rows, and its gradients")
NORM_OPERATOR(rmsnorm, false, "y = x / sqrt(mean of squares + eps) * gamma of rows, and its gradients")
