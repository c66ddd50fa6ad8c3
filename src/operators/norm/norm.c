/* norm.c - layer norm and RMS norm: validation, launch, the tables of kernels. */
#include "base/math.h"
#include "operators/norm/norm_config.h"
#include "operators/norm_lab.h"
#include "operators/operators.h"

/* Validation */

static ckl_status check(const char *op, ckl_norm_desc *d)
{
    TRY(plan_check_pitch(op, "ldx", &d->ldx, "cols", d->cols));
    TRY(plan_check_pitch(op, "ldy", &d->ldy, "cols", d->cols));
    return norm_check_eps(op, d->direction, &d->eps);
}

/* A row input or output. */
static plan_tensor input(const ckl_norm_desc *d, const char *name)
{
    return plan_matrix(name, d->dtype, d->rows, d->cols, d->ldx);
}

static plan_tensor output(const ckl_norm_desc *d, const char *name)
{
    return plan_output(plan_matrix(name, d->dtype, d->rows, d->cols, d->ldy));
}

/* Gamma or beta, or their gradients. */
static plan_tensor weights(const ckl_norm_desc *d, const char *name)
{
    return plan_vector(name, d->dtype, d->rows ? d->cols : 0);
}

static plan_tensor gradient(const ckl_norm_desc *d, const char *name)
{
    return plan_output(plan_column(name, d->dtype, d->cols));
}

/* mean or rstd: read backward, written forward unless NULL. */
static plan_tensor statistic(const ckl_norm_desc *d, const char *name)
{
    if (d->direction == CKL_DIRECTION_BACKWARD)
        return plan_vector(name, CKL_F32, d->cols ? d->rows : 0);
    return plan_optional(plan_output(plan_column(name, CKL_F32, d->rows)));
}

static int tensors(const ckl_norm_desc *d, bool centred, plan_tensor *t)
{
    const bool backward = d->direction == CKL_DIRECTION_BACKWARD;
    const char *forward_only = backward ? "a backward problem" : NULL;
    const char *backward_only = backward ? NULL : "a forward problem";
    const char *mean_only = centred ? NULL : "an RMS norm";
    const char *affine_only = d->affine ? NULL : "a problem without affine";
    const char *residual_only = d->residual ? NULL : "a problem without residual";
    t[0] = input(d, "x");
    t[1] = plan_absent(input(d, "residual"), plan_first(forward_only, residual_only));
    t[2] = plan_absent(weights(d, "gamma"), affine_only);
    t[3] = plan_absent(weights(d, "beta"), plan_first(forward_only, plan_first(mean_only, affine_only)));
    t[4] = plan_absent(input(d, "dy"), backward_only);
    t[5] = plan_absent(input(d, "dsum"), plan_first(backward_only, residual_only));
    t[6] = plan_absent(output(d, "y"), forward_only);
    t[7] = plan_absent(output(d, "sum"), plan_first(forward_only, residual_only));
    t[8] = plan_absent(output(d, "dx"), backward_only);
    t[9] = plan_absent(gradient(d, "dgamma"), plan_first(backward_only, affine_only));
    t[10] = plan_absent(gradient(d, "dbeta"), plan_first(backward_only, plan_first(mean_only, affine_only)));
    t[11] = plan_absent(statistic(d, "mean"), mean_only);
    t[12] = statistic(d, "rstd");
    return 13;
}

/* As choice and kernels see it. */
static ckl_status view(const ckl_norm_desc *d, bool centred, norm_rows *rows)
{
    *rows = (norm_rows){ .rows = d->rows,
                         .cols = d->cols,
                         .dtype = d->dtype,
                         .direction = (choice)d->direction,
                         .affine = d->affine,
                         .residual = d->residual,
                         .eps = d->eps,
                         .ldx = d->ldx,
                         .ldy = d->ldy,
                         .centred = centred };
    return CKL_OK;
}

/* Launch */

/* Do tensors lie alike to 16-byte boundaries? What a direction does not have is NULL. */
static bool in_phase(const void *first, const void *const others[3])
{
    for (int i = 0; i < 3; i++)
        if (others[i] && !row_starts_in_phase(others[i], first))
            return false;
    return true;
}

static int kernel_for(const norm_rows *d, const norm_config *c, const ckl_norm_args *a)
{
    const int bytes = c->split.vec * dtype_bytes(d->dtype);
    const bool alike = in_phase(a->x, (const void *[]){ a->residual, a->dy, a->dsum });
    if (c->split.ragged) {
        const void *const outputs[] = { a->y ? a->y : a->dx, a->sum, NULL };
        const bool together = row_starts_in_phase(outputs[0], a->x) && row_in_phase(d->dtype, d->rows, d->ldx, d->ldy);
        return alike && in_phase(outputs[0], outputs) && (c->flow.cut || together) ? NORM_VECTORS : NORM_ELEMENTS;
    }
    const bool written = PLAN_ALIGNED(bytes, a->gamma, a->beta, a->y, a->sum, a->dx, a->dgamma, a->dbeta),
               read = norm_cuts_memory(c) || PLAN_ALIGNED(bytes, a->x, a->residual, a->dy, a->dsum);
    return written && read && (alike || !c->flow.stages) ? NORM_VECTORS : NORM_ELEMENTS;
}

/*
 * Persistent CTAs or clusters, which take rows in turn. Forward, the ragged rows of one must lie alike to 16-byte
 * boundaries, so their distance is a multiple of the period of that.
 */
static int64_t workers_for(const norm_rows *d, const norm_config *c, int64_t workers)
{
    const int64_t rows = row_split_rows(&c->split), turns = ceil_div(d->rows, rows),
                  even = even_workers(turns, workers);
    const int64_t period = ceil_div(row_phase_period(d->dtype, d->ldy), rows);
    if (!c->split.ragged || even >= turns || d->direction == CKL_DIRECTION_BACKWARD)
        return even;
    return max_i64(1, even / period) * period;
}

/* CTAs of the kernel of the rows: a CTA or cluster for each row, or persistent ones that take several. */
static int64_t row_ctas(const ckl_plan *plan, int kernel)
{
    const norm_rows *d = plan->desc;
    const norm_config *c = plan->config;
    const row_split s = c->split;
    const bool flows = c->flow.stages && kernel == NORM_VECTORS, tiled = c->flow.stages && !flows;
    int64_t ctas = row_split_ctas(&s, d->rows), clusters = plan->kernels[NORM_VECTORS].clusters_resident;
    if (c->persistent_ctas > 0)
        clusters = (int64_t)plan->device->info.sm_count * c->persistent_ctas / s.cluster;
    if (c->alone)
        clusters = 1;
    if (d->direction == CKL_DIRECTION_FORWARD && (tiled || !c->shared_weights))
        return flows ? min_i64(ctas, max_i64(1, clusters) * s.cluster) : ctas;
    return workers_for(d, c, max_i64(1, clusters)) * s.cluster;
}

/* The counter from which rows that flow are drawn. */
static int64_t workspace_forward(const ckl_plan *plan)
{
    return ((const norm_config *)plan->config)->flow.stages ? (int64_t)sizeof(uint32_t) : 0;
}

static ckl_status launch_forward(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const norm_rows *d = plan->desc;
    const ckl_norm_args *a = args;
    const int kernel = kernel_for(d, plan->config, a);
    const norm_forward_params params = { .rows = d->rows,
                                         .cols = (uint32_t)d->cols,
                                         .ldx = d->ldx,
                                         .ldy = d->ldy,
                                         .reciprocal = 1 / (float)d->cols,
                                         .eps = d->eps,
                                         .x = a->x,
                                         .residual = a->residual,
                                         .gamma = a->gamma,
                                         .beta = a->beta,
                                         .y = a->y,
                                         .sum = a->sum,
                                         .mean = a->mean,
                                         .rstd = a->rstd,
                                         .counter = plan_workspace(plan, a->workspace) };
    return plan_launch(plan, kernel, (plan_grid){ .x = row_ctas(plan, kernel) }, &params, stream);
}

/*
 * Partial sums of every column: one of each CTA or cluster of the kernel of the rows, and of ragged rows one more for
 * each further phase (row_pipeline_each_phase()).
 */
static int64_t groups_of(const ckl_plan *plan)
{
    const norm_config *c = plan->config;
    return row_ctas(plan, NORM_VECTORS) / c->split.cluster + max_i64(1, norm_phases(plan->desc, c)) - 1;
}

static int64_t workspace_backward(const ckl_plan *plan)
{
    const norm_rows *d = plan->desc;
    const norm_config *c = plan->config;
    return d->affine && !c->tiled && !c->alone
               ? groups_of(plan) * 2 * norm_partial_pitch(d->cols) * (int64_t)sizeof(float)
               : 0;
}

/* Sums of columns that read x and dy come first, as dx may overwrite either. */
static ckl_status launch_backward(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const norm_rows *d = plan->desc;
    const norm_config *c = plan->config;
    const ckl_norm_args *a = args;
    const int kernel = kernel_for(d, c, a);
    const bool direct = c->tiled || (c->flow.stages && kernel == NORM_ELEMENTS); // from x and dy themselves
    const norm_backward_params params = { .rows = d->rows,
                                          .cols = (uint32_t)d->cols,
                                          .ldx = d->ldx,
                                          .ldy = d->ldy,
                                          .reciprocal = 1 / (float)d->cols,
                                          .x = a->x,
                                          .dy = a->dy,
                                          .dsum = a->dsum,
                                          .gamma = a->gamma,
                                          .mean = a->mean,
                                          .rstd = a->rstd,
                                          .dx = a->dx,
                                          .partial = direct ? NULL : plan_workspace(plan, a->workspace),
                                          .groups = groups_of(plan),
                                          .dgamma = a->dgamma,
                                          .dbeta = a->dbeta };
    const plan_grid rows = { .x = row_ctas(plan, NORM_VECTORS) };
    const plan_grid columns = { .x = ceil_div(d->cols, c->column_lanes * norm_column_vec(c)) };
    if (d->affine && direct)
        TRY(plan_launch(plan, NORM_COLUMNS, columns, &params, stream));
    TRY(plan_launch(plan, kernel, rows, &params, stream));
    return d->affine && !direct && !c->alone ? plan_launch(plan, NORM_COLUMNS, columns, &params, stream) : CKL_OK;
}

/* The operators */

static const field desc_fields[] = { NORM_DESC(FIELD_ROW, ckl_norm_desc) };
static const field config_fields[] = { NORM_CONFIG(FIELD_ROW, norm_config)           //
                                       ROW_SPLIT(FIELD_NESTED, (norm_config, split)) //
                                       ROW_FLOW(FIELD_NESTED, (norm_config, flow)) };

/*
 * Layer norm of longer rows than a warp has gains and loses: on an H200 128x20480 in bf16 takes 0.80 of the time of the
 * rules' choice, 80x35456 1.33. RMS norm does not have long rows of f32, which the rules let flow: 577x28672 41.3 us in
 * registers, 37.5; nor, with a residual, others that flow: 4096x20001 bf16 244.6, 181.5.
 */
static bool is_trusted(const void *config)
{
    enum { BYTES_MAX_F32 = 96 << 10, BYTES_MAX_RESIDUAL = 32 << 10, WARP = 32 };
    const norm_config *c = config;
    const int64_t bytes = row_split_cols(&c->split) * dtype_bytes(c->dtype);
    const bool of_rms =
        (c->dtype != CKL_F32 || bytes <= BYTES_MAX_F32) && (!c->residual || bytes <= BYTES_MAX_RESIDUAL);
    return (c->centred ? c->split.row_threads <= WARP : of_rms) && row_split_is_trusted(&c->split, c->dtype);
}

#define NORM_PARTS(way)                                                                                      \
    .name = #way, .config_bytes = sizeof(norm_config), .config = FIELD_TABLE(config_fields),                 \
    .choose = norm_choose_##way, .admit = norm_admit_##way, .cost = norm_cost_##way, .describe = norm_##way, \
    .params = &norm_##way##_param_list, .workspace_bytes = workspace_##way, .launch = launch_##way

static const implementation forward = {
    NORM_PARTS(forward),
    .summary = "a row in the registers of some lanes, a CTA or a cluster; longer rows flow or are tiled",
    .candidate = norm_candidate_forward,
    .is_trusted = is_trusted,
    .kernels = 2,
};
static const implementation backward = {
    NORM_PARTS(backward),
    .summary = "persistent CTAs or clusters keep sums of columns; another kernel adds these up",
    .kernels = 3,
};
static const implementation *const implementations[] = { &forward, &backward, NULL };

/* Both operators have the same tables but for names. */
#define NORM_OPERATOR(op, is_centred, formula)                                                         \
    static ckl_status op##_check(void *desc)                                                           \
    {                                                                                                  \
        return check(#op, desc);                                                                       \
    }                                                                                                  \
    static int op##_tensors(const void *desc, plan_tensor *t)                                          \
    {                                                                                                  \
        return tensors(desc, is_centred, t);                                                           \
    }                                                                                                  \
    static ckl_status op##_view(const void *desc, void *rows)                                          \
    {                                                                                                  \
        return view(desc, is_centred, rows);                                                           \
    }                                                                                                  \
    OPERATOR_WITH(op, norm, .summary = formula, .desc = FIELD_TABLE(desc_fields), .check = op##_check, \
                  .tensors = op##_tensors, .view = op##_view, .view_bytes = sizeof(norm_rows),         \
                  .workspace = offsetof(ckl_norm_args, workspace), .implementations = implementations)

NORM_OPERATOR(layernorm, true, "y = (x - mean) / sqrt(variance + eps) * gamma + beta of rows, and its gradients");
NORM_OPERATOR(rmsnorm, false, "y = x / sqrt(mean of squares + eps) * gamma of rows, and its gradients");

/* Problem lines */

static const field fields[] = { NORM_DESC(FIELD_NESTED, (norm_problem, rows)) NORM_PROBLEM(FIELD_ROW, norm_problem) };

OPERATOR_LINE(layernorm, norm_problem, NULL);
OPERATOR_LINE(rmsnorm, norm_problem, NULL);
