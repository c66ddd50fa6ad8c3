/* map_launch.c - choice, limits and launch of an element-wise kernel, as a plan asks for them. */
#include "skeletons/map_launch.h"

#include <stdio.h>
#include <string.h>

#include "skeletons/map_rows.h"

/* The problem's kernel by that config. */
static map_kernel kernel_by(const map_problem *p, const map_config *config)
{
    map_kernel k = p->kernel;
    k.config = *config;
    return k;
}

ckl_status map_choose_config(const void *problem, const ckl_device_info *device, void *config)
{
    const map_problem *p = problem;
    map_config *c = config;
    *c = map_choose(kernel_by(p, c), p->shape, device);
    c->expr = p->kernel.config.expr;
    return CKL_OK;
}

/* Does the config have the problem's function and types? */
static bool is_of(const map_problem *p, const map_config *config)
{
    const map_kernel *a = &p->kernel, b = map_kernel_of(config);
    bool same = a->inputs == b.inputs && a->compute == b.compute && strcmp(a->config.expr, config->expr) == 0;
    for (int i = 0; i <= a->inputs && same; i++)
        same = a->dtype[i] == b.dtype[i] && (i == a->inputs || a->scalar[i] == b.scalar[i]);
    return same;
}

ckl_status map_admit_config(const void *problem, const ckl_device_info *device, const void *config)
{
    const map_problem *p = problem;
    char what[64];
    snprintf(what, sizeof what, "%s vector", p->op);
    if (!is_of(p, config))
        FAIL(CKL_INVALID, "%s: expr and types of the config are not those of the problem", what);
    return map_admit(what, kernel_by(p, config), p->shape, device);
}

ckl_status map_launch(const ckl_plan *plan, const void *const *pointers, ckl_stream stream)
{
    const map_problem *p = plan->desc;
    const map_kernel k = kernel_by(p, plan->config);
    const map_params params = map_params_of(&k, &p->shape, pointers);
    const int kernel = map_aligned(&k, pointers) ? 0 : 1;
    plan_grid grid = { .x = map_ctas(&k, &p->shape) };
    if (k.config.row_threads && kernel == 0)
        grid = (plan_grid){ .x = map_rows_ctas(&k, &p->shape), .y = map_rows_tiles(&k, &p->shape) };
    return plan_launch(plan, kernel, grid, &params, stream);
}
