/* reduce_plan.c - what the implementations of reduce share on the host, and the steps of the ladder. */
#include "operators/reduce/reduce_config.h"

#include <math.h>

#include "base/math.h"
#include "plan/check.h"

enum {
    WARP = 32,
    BLOCKS_IN_TURN_MAX = 64, // that a thread adds one after the other; with more, its sums are compensated
    STEPS_LIMIT = 16,        // of a config
};

/*
 * Early CTAs of the next launch wait on the SMs that end first: max of 4x48x12288 bf16 over two axes takes 3.55 us with
 * them, 2.76 if they come later, std of 64x10664 2.49 and 1.98. Little work is over before these are there.
 */
int reduce_overlap(const reduce_view *v)
{
    enum { BYTES_MAX = 1 << 20 };
    const int64_t bytes = v->rows * v->count * dtype_bytes(v->kind.dtype);
    return bytes <= BYTES_MAX ? REDUCE_OVERLAPS : REDUCE_OVERLAPS_LATER;
}

reduce_mode reduce_inner_of(const reduce_view *v)
{
    return v->reduced[v->kind.reduced - 1];
}

bool reduce_strides_divide(const reduce_mode *modes, int count, int vec)
{
    for (int i = 0; i < count; i++)
        if (modes[i].extent > 1 && modes[i].stride % vec) // one element has no stride
            return false;
    return true;
}

ckl_status reduce_check_kind(const char *who, const reduce_view *v, const reduce_kind *have)
{
    static const field fields[] = { REDUCE_KIND(FIELD_ROW, reduce_kind) };
    if (fields_difference((field_table)FIELD_TABLE(fields), have, &v->kind))
        FAIL(CKL_INVALID, "reduce %s: the config's operation, types or modes are not the problem's", who);
    return CKL_OK;
}

ckl_status reduce_check_threads(const char *who, int threads, const ckl_device_info *device)
{
    if (threads < WARP || !is_power_of_two(threads) || threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "reduce %s: threads=%d must be a power of two from 32 to %d", who, threads,
             device->threads_per_cta_max);
    return CKL_OK;
}

ckl_status reduce_check_overlap(const char *who, int overlap)
{
    if (overlap < REDUCE_ALONE || overlap > REDUCE_OVERLAPS_LATER)
        FAIL(CKL_INVALID, "reduce %s: overlap=%d is not in %d..%d", who, overlap, REDUCE_ALONE, REDUCE_OVERLAPS_LATER);
    return CKL_OK;
}

ckl_status reduce_check_vectors(const char *who, int vec, int steps, ckl_dtype dtype)
{
    if (!is_power_of_two(vec) || vec * dtype_bytes(dtype) > REDUCE_ACCESS_BYTES)
        FAIL(CKL_INVALID, "reduce %s: vec=%d must be a power of two of at most %d bytes", who, vec,
             REDUCE_ACCESS_BYTES);
    if (steps < 1 || steps > STEPS_LIMIT)
        FAIL(CKL_INVALID, "reduce %s: steps=%d is not in 1..%d", who, steps, STEPS_LIMIT);
    return CKL_OK;
}

bool reduce_compensates(const reduce_kind *k, int64_t blocks_in_turn)
{
    bool sums = k->op == CKL_REDUCE_SUM || k->op == CKL_REDUCE_MEAN || k->op == CKL_REDUCE_NORM1;
    return sums && !k->fold && dtype_is_float(k->dtype) && blocks_in_turn > BLOCKS_IN_TURN_MAX;
}

int64_t reduce_workspace_for(int64_t groups, int64_t split, int64_t bytes)
{
    return split > 1 ? round_up(4 * groups, PLAN_WORKSPACE_ALIGNMENT) + groups * split * bytes : 0;
}

plan_cost reduce_cost(const reduce_view *v, const ckl_device_info *device, memory_work work, double loads, int vec,
                      int lanes, bool compensated, double merging)
{
    enum { SECTOR_BYTES = 32 };
    const int bytes = dtype_bytes(v->kind.dtype), run = lanes * vec * bytes;
    const double sectors = fmax(1, SECTOR_BYTES / (double)run); // read for one that is used
    work.bytes = (double)v->rows * ((double)v->count * bytes * sectors + dtype_bytes(v->kind.output));
    work.lines = loads * memory_lines(vec * bytes, run);
    work.elements = loads * vec * reduce_state_words(&v->kind, compensated) + merging;
    return memory_cost(&work, device);
}

reduce_params reduce_params_for(const ckl_plan *plan, const ckl_reduce_args *args, int64_t groups)
{
    const reduce_view *v = plan->desc;
    const char *workspace = plan_workspace(plan, args->workspace);
    reduce_params p = { .x = args->x, .y = args->y, .counters = workspace, .rows = v->rows, .count = v->count };
    p.states = workspace ? workspace + round_up(4 * groups, PLAN_WORKSPACE_ALIGNMENT) : NULL;
    p.divisor = (float)max_i64(v->count - v->correction, 0);
    for (int i = 0; i < v->kind.kept; i++) {
        p.kept_extent[i] = v->kept[i].extent;
        p.kept_stride[i] = v->kept[i].stride;
    }
    for (int i = 0; i < v->kind.reduced; i++) {
        p.reduced_extent[i] = v->reduced[i].extent;
        p.reduced_stride[i] = v->reduced[i].stride;
    }
    return p;
}

/* The ladder */

/* Elements that one thread adds one after the other: the error grows with their number. */
enum { NAIVE_COUNT_MAX = 1 << 18, NAIVE_VARIANCE_COUNT_MAX = 1 << 13, LADDER_THREADS_MIN = 64 };

static ckl_status choose_ladder(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_ladder_config *c = config;
    const reduce_view *v = desc;
    (void)device;
    c->kind = v->kind;
    return CKL_OK;
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_ladder_config *c = config;
    const reduce_view *v = desc;
    TRY(reduce_check_kind("naive", v, &c->kind));
    TRY(reduce_check_threads("naive", c->threads, device));
    if (v->rows > (int64_t)REDUCE_CTAS_MAX * c->threads)
        FAIL(CKL_UNSUPPORTED, "reduce naive: %" PRId64 " rows are more than one launch has threads", v->rows);
    bool variance = c->kind.op == CKL_REDUCE_VAR || c->kind.op == CKL_REDUCE_STD;
    if (v->count > (variance ? NAIVE_VARIANCE_COUNT_MAX : NAIVE_COUNT_MAX))
        FAIL(CKL_UNSUPPORTED, "reduce naive: rows of %" PRId64 " elements are too long for one thread in f32",
             v->count);
    return CKL_OK;
}

/* Of the steps that give a row a CTA. */
static ckl_status admit_ladder(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_ladder_config *c = config;
    const reduce_view *v = desc;
    TRY(reduce_check_kind("ladder", v, &c->kind));
    TRY(reduce_check_threads("ladder", c->threads, device));
    if (v->rows > REDUCE_CTAS_MAX)
        FAIL(CKL_UNSUPPORTED, "reduce ladder: %" PRId64 " rows are more than one launch has CTAs", v->rows);
    return CKL_OK;
}

/* The last of the step's kernels takes rows that start anywhere. */
static ckl_status launch_ladder(const ckl_plan *plan, const reduce_ladder_config *c, const void *args, int row_threads,
                                int kernels, ckl_stream stream)
{
    const reduce_view *v = plan->desc;
    reduce_params p = reduce_params_for(plan, args, 0);
    const bool even = PLAN_ALIGNED(REDUCE_ACCESS_BYTES, p.x) &&
                      reduce_strides_divide(v->kept, v->kind.kept, REDUCE_ACCESS_BYTES / dtype_bytes(c->kind.dtype));
    return plan_launch(plan, even ? 0 : kernels - 1, (plan_grid){ .x = ceil_div(v->rows, c->threads / row_threads) },
                       &p, stream);
}

/* Elements one by one, by all threads of a CTA or, of naive, by one. */
static plan_cost cost_rows_of(const reduce_view *v, const ckl_device_info *device, const reduce_ladder_config *c,
                              int row_threads, int vec)
{
    enum { IN_FLIGHT = 4, TURN = 800 };
    const double loads = ceil((double)v->count / row_threads / vec);
    static const memory_kernel thread = { .bytes = 0.25, .lines = 0.6 }, // L1 keeps most of a line for the next loads
        cta = { .wait_cycles = -1100 };
    const memory_work work = { .of = row_threads == 1 ? thread : cta,
                               .ctas = ceil_div(v->rows, c->threads / row_threads),
                               .threads = c->threads,
                               .wait_cycles = loads / IN_FLIGHT * TURN,
                               .meets = row_threads > 1 };
    return reduce_cost(v, device, work, loads, vec, row_threads, false, 0);
}

/* As many threads as a row has vectors, from two warps to the default: more would only delay the start of a CTA. */
static ckl_status choose_vectorized(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_ladder_config *c = config;
    TRY(choose_ladder(desc, device, config));
    int64_t vectors = ((const reduce_view *)desc)->count * dtype_bytes(c->kind.dtype) / REDUCE_ACCESS_BYTES;
    while (c->threads > LADDER_THREADS_MIN && vectors <= c->threads / 2)
        c->threads /= 2;
    return CKL_OK;
}

static ckl_status admit_vectorized(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_view *v = desc;
    if (v->kind.reduced > 1 || reduce_inner_of(v).stride != 1)
        FAIL(CKL_UNSUPPORTED, "reduce vectorized: the elements of a row do not lie in one stretch");
    return admit_ladder(desc, device, config);
}

static const field ladder_fields[] = { REDUCE_KIND(FIELD_NESTED, (reduce_ladder_config, kind))
                                           REDUCE_LADDER_CONFIG(FIELD_ROW, reduce_ladder_config) };

#define LADDER_STEP(step, about, chosen, row_threads, vec, admitted, kernel_count)                    \
    static plan_cost cost_##step(const void *desc, const ckl_device_info *device, const void *config) \
    {                                                                                                 \
        const reduce_ladder_config *c = config;                                                       \
        return cost_rows_of(desc, device, c, row_threads, vec);                                       \
    }                                                                                                 \
    static ckl_status launch_##step(const ckl_plan *plan, const void *args, ckl_stream stream)        \
    {                                                                                                 \
        const reduce_ladder_config *c = plan->config;                                                 \
        return launch_ladder(plan, c, args, row_threads, kernel_count, stream);                       \
    }                                                                                                 \
    const implementation reduce_##step##_plans = { .name = #step,                                     \
                                                   .summary = "a step of the ladder: " about,         \
                                                   .config_bytes = sizeof(reduce_ladder_config),      \
                                                   .config = FIELD_TABLE(ladder_fields),              \
                                                   .choose = chosen,                                  \
                                                   .cost = cost_##step,                               \
                                                   .admit = admitted,                                 \
                                                   .describe = reduce_##step,                         \
                                                   .kernels = kernel_count,                           \
                                                   .params = &reduce_param_list,                      \
                                                   .launch = launch_##step }

LADDER_STEP(vectorized, "one CTA a row, 16 bytes a load, warp shuffles", choose_vectorized, c->threads,
            REDUCE_ACCESS_BYTES / dtype_bytes(c->kind.dtype), admit_vectorized, 2);
LADDER_STEP(shuffle, "one CTA a row, merged by warp shuffles", choose_ladder, c->threads, 1, admit_ladder, 1);
LADDER_STEP(improved, "one CTA a row, merged by a tree in shared memory", choose_ladder, c->threads, 1, admit_ladder,
            1);
LADDER_STEP(naive, "one thread a row", choose_ladder, 1, 1, admit_naive, 1);
