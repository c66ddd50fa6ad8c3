/* reduce_plans.c - what the implementations of reduce share on the host. */
#include "operators/reduce/reduce_plans.h"

#include "plan/check.h"

enum { STEPS_MAX = 16, BLOCKS_IN_TURN_MAX = 64 }; // blocks that a thread adds in turn before sums are compensated

reduce_problem_fields reduce_problem_of(const ckl_reduce_desc *d)
{
    reduce_view v = reduce_view_of(d);
    return (reduce_problem_fields){ (int)d->op, d->dtype, d->output, v.kept_count, v.reduced_count };
}

ckl_status reduce_check_problem(const char *who, const ckl_reduce_desc *d, reduce_problem_fields have)
{
    reduce_problem_fields want = reduce_problem_of(d);
    if (have.op != want.op || have.dtype != want.dtype || have.output != want.output || have.kept != want.kept ||
        have.reduced != want.reduced)
        FAIL(CKL_INVALID, "reduce %s: the config's operation, types or modes are not the problem's", who);
    return CKL_OK;
}

ckl_status reduce_check_threads(const char *who, int threads, const ckl_device_info *device)
{
    if (threads < REDUCE_WARP || !is_power_of_two(threads) || threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "reduce %s: threads=%d must be a power of two from 32 to %d", who, threads,
             device->threads_per_cta_max);
    return CKL_OK;
}

ckl_status reduce_check_vectors(const char *who, int vec, int steps, ckl_dtype dtype)
{
    if (!is_power_of_two(vec) || vec * reduce_bytes_of(dtype) > REDUCE_VECTOR_BYTES)
        FAIL(CKL_INVALID, "reduce %s: vec=%d must be a power of two of at most %d bytes", who, vec,
             REDUCE_VECTOR_BYTES);
    if (steps < 1 || steps > STEPS_MAX)
        FAIL(CKL_INVALID, "reduce %s: steps=%d is not in 1..%d", who, steps, STEPS_MAX);
    return CKL_OK;
}

static bool sums_floats(const ckl_reduce_desc *d)
{
    bool sums = d->op == CKL_REDUCE_SUM || d->op == CKL_REDUCE_MEAN || d->op == CKL_REDUCE_NORM1;
    return sums && (d->dtype == CKL_F32 || d->dtype == CKL_F16 || d->dtype == CKL_BF16);
}

bool reduce_compensates(const ckl_reduce_desc *d, int64_t blocks_in_turn)
{
    return sums_floats(d) && blocks_in_turn > BLOCKS_IN_TURN_MAX;
}

bool reduce_divides(const reduce_mode *modes, int count, int vec)
{
    for (int i = 0; i < count; i++)
        if (modes[i].stride % vec)
            return false;
    return true;
}

enum { PARAMS_MAX = 7 + 4 * CKL_REDUCE_RANK_MAX };

reduce_launch reduce_launch_of(const ckl_plan *plan, const ckl_reduce_args *args, int64_t units)
{
    const ckl_reduce_desc *d = plan->desc;
    reduce_launch l = { .x = args->x, .y = args->y, .v = reduce_view_of(d) };
    l.counters = args->workspace ? args->workspace : plan->workspace;
    l.partials = l.counters ? l.counters + round_up(4 * units, PLAN_WORKSPACE_ALIGNMENT) : NULL;
    l.divisor = (float)max_i64(l.v.count - d->correction, 0);
    return l;
}

ckl_status reduce_enqueue(const ckl_plan *plan, int part, int64_t ctas, reduce_launch *l, ckl_stream stream)
{
    void *params[PARAMS_MAX] = { &l->x, &l->y, &l->counters, &l->partials, &l->v.rows, &l->v.count, &l->divisor };
    int count = 7;
    for (int i = 0; i < l->v.kept_count; i++) {
        params[count++] = &l->v.kept[i].extent;
        params[count++] = &l->v.kept[i].stride;
    }
    for (int i = 0; i < l->v.reduced_count; i++) {
        params[count++] = &l->v.reduced[i].extent;
        params[count++] = &l->v.reduced[i].stride;
    }
    device_launch launch = { .grid = { ctas, 1, 1 }, .params = params };
    return plan->device->ops->launch(plan->device, plan->kernels[part].loaded, &launch, stream);
}

int64_t reduce_workspace(int64_t units, int64_t split, int64_t state_bytes)
{
    return split > 1 ? round_up(4 * units, PLAN_WORKSPACE_ALIGNMENT) + units * split * state_bytes : 0;
}
