/*
 * gemm_steps_plan.c - the host side of what runs before and after a product: offsets of the host, and the gradient of a
 * bias.
 */
#include "base/math.h"
#include "operators/gemm/gemm_plan.h"
#include "operators/gemm/gemm_steps.h"

/* Offsets */

static bool wants_offsets(const void *config)
{
    return ((const gemm_epilogue *)config)->host_offsets;
}

static int64_t workspace_of_offsets(const ckl_plan *plan)
{
    return (((const ckl_gemm_desc *)plan->desc)->groups + 1) * (int64_t)sizeof(int32_t);
}

static ckl_status launch_offsets(const ckl_plan *plan, int kernel, void *workspace, void *args, ckl_stream stream)
{
    ckl_gemm_args *x = args;
    const int64_t count = ((const ckl_gemm_desc *)plan->desc)->groups + 1;
    for (int64_t first = 0; first < count; first += GEMM_OFFSETS_AT_ONCE) {
        gemm_offsets_params p = { .to = workspace, .first = (uint32_t)first };
        p.count = (uint32_t)min_i64(GEMM_OFFSETS_AT_ONCE, count - first);
        for (uint32_t i = 0; i < p.count; i++)
            p.number[i] = x->offsets[first + i];
        TRY(plan_launch(plan, kernel, (plan_grid){ .x = 1 }, &p, stream));
    }
    x->offsets = workspace;
    return CKL_OK;
}

const plan_step gemm_offsets_step = { .name = "offsets",
                                      .wanted = wants_offsets,
                                      .describe = gemm_offsets,
                                      .params = &gemm_offsets_param_list,
                                      .workspace_bytes = workspace_of_offsets,
                                      .launch = launch_offsets };

/* The gradient of a bias */

char gemm_summed_matrix(choice sums)
{
    return sums == CKL_GEMM_SUMS_OF_A ? 'a' : sums == CKL_GEMM_SUMS_OF_B ? 'b' : 'd';
}

bool gemm_sums_columns(choice sums, choice layout)
{
    const char matrix = gemm_summed_matrix(sums);
    return matrix == 'd' ? sums == CKL_GEMM_SUMS_OF_COLUMNS : !gemm_k_major(layout, matrix);
}

/* The CTAs that sum columns; none where rows are summed. */
typedef struct column_sums_grid {
    int64_t blocks, slices, groups;
} column_sums_grid;

static gemm_matrix summed_matrix(const ckl_gemm_desc *d)
{
    return gemm_matrix_of(d, gemm_summed_matrix((choice)d->bias_gradient));
}

/* As many slices of the lines as give every SM some CTAs, and each warp some lines. */
static column_sums_grid grid_of(const ckl_gemm_desc *d, const ckl_device_info *device)
{
    enum { CTAS_OF_SM = 2, LINES_LEAST = 64 };
    const gemm_matrix x = summed_matrix(d);
    column_sums_grid g = { .blocks = max_i64(1, ceil_div(x.cols, gemm_summed_columns(x.type))),
                           .groups = max_i64(d->groups, 1) };
    const int64_t wanted = CTAS_OF_SM * device->sm_count / (g.blocks * g.groups);
    g.slices = max_i64(1, min_i64(wanted, x.rows * x.count / (g.groups * LINES_LEAST)));
    return g;
}

static bool wants_gradient(const void *config)
{
    return ((const gemm_epilogue *)config)->bias_gradient != CKL_GEMM_SUMS_NONE;
}

static bool has_columns(const ckl_gemm_desc *d)
{
    return gemm_sums_columns((choice)d->bias_gradient, (choice)d->layout);
}

/* Counters, which are 0 between runs, then the sums of all slices. */
static int64_t bytes_of_counters(const column_sums_grid *g)
{
    return round_up(g->blocks * g->groups * (int64_t)sizeof(int32_t), PLAN_WORKSPACE_ALIGNMENT);
}

static int64_t workspace_of_gradient(const ckl_plan *plan)
{
    const ckl_gemm_desc *d = plan->desc;
    const column_sums_grid g = grid_of(d, &plan->device->info);
    if (!has_columns(d) || g.slices == 1)
        return 0;
    return bytes_of_counters(&g) + g.slices * g.groups * summed_matrix(d).cols * (int64_t)sizeof(float);
}

static ckl_status launch_gradient(const ckl_plan *plan, int kernel, void *workspace, void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const ckl_gemm_args *x = args;
    const gemm_matrix from = summed_matrix(d);
    const char name = gemm_summed_matrix((choice)d->bias_gradient);
    const column_sums_grid g = grid_of(d, &plan->device->info);
    const gemm_sums_params p = { .from = name == 'a'   ? x->a
                                         : name == 'b' ? x->b
                                                       : x->d,
                                 .ld = from.ld,
                                 .stride = from.stride,
                                 .batch = (uint32_t)from.count,
                                 .lines = (uint32_t)from.rows,
                                 .length = from.cols,
                                 .offsets = x->offsets,
                                 .groups = (uint32_t)g.groups,
                                 .slices = (uint32_t)g.slices,
                                 .counters = workspace,
                                 .parts = g.slices == 1 ? NULL : (char *)workspace + bytes_of_counters(&g),
                                 .to = x->bias_gradient };
    const plan_grid columns = { g.blocks, g.slices, g.groups }, rows = { .x = from.rows };
    return plan_launch(plan, kernel, has_columns(d) ? columns : rows, &p, stream);
}

const plan_step gemm_bias_gradient_step = { .name = "bias_gradient",
                                            .wanted = wants_gradient,
                                            .describe = gemm_bias_gradient,
                                            .params = &gemm_sums_param_list,
                                            .workspace_bytes = workspace_of_gradient,
                                            .launch = launch_gradient };
