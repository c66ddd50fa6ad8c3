/* reduce_ladder_plans.c - the steps of the ladder: which reductions they take, and their launch. */
#include "operators/reduce/reduce_plans.h"

/* What one thread adds up one after the other: the error grows with the number of elements. */
enum { NAIVE_COUNT_MAX = 1 << 18, NAIVE_VARIANCE_COUNT_MAX = 1 << 13, LADDER_THREADS_MIN = 64 };

static ckl_status choose_ladder(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    reduce_ladder_config *c = config;
    reduce_problem_fields p = reduce_problem_of(desc);
    *c = (reduce_ladder_config){ p.op, p.dtype, p.output, p.kept, p.reduced, c->threads };
    return CKL_OK;
}

static ckl_status admit_ladder(const char *who, const void *desc, const ckl_device_info *device,
                               const reduce_ladder_config *c)
{
    TRY(reduce_check_problem(who, desc, (reduce_problem_fields){ c->op, c->dtype, c->output, c->kept, c->reduced }));
    return reduce_check_threads(who, c->threads, device);
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_ladder_config *c = config;
    reduce_view v = reduce_view_of(desc);
    TRY(admit_ladder("naive", desc, device, c));
    if (v.rows > (int64_t)REDUCE_CTAS_MAX * c->threads)
        FAIL(CKL_UNSUPPORTED, "reduce naive: %" PRId64 " rows are more than one launch has threads", v.rows);
    const bool variance = c->op == CKL_REDUCE_VAR || c->op == CKL_REDUCE_STD;
    if (v.count > (variance ? NAIVE_VARIANCE_COUNT_MAX : NAIVE_COUNT_MAX))
        FAIL(CKL_UNSUPPORTED, "reduce naive: rows of %" PRId64 " elements are too long for one thread in f32", v.count);
    return CKL_OK;
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_ladder_config *c = plan->config;
    reduce_launch l = reduce_launch_of(plan, args, 0);
    return l.v.rows ? reduce_enqueue(plan, 0, ceil_div(l.v.rows, c->threads), &l, stream) : CKL_OK;
}

static ckl_status admit_cta_per_row(const char *who, const void *desc, const ckl_device_info *device,
                                    const void *config)
{
    reduce_view v = reduce_view_of(desc);
    TRY(admit_ladder(who, desc, device, config));
    if (v.rows > REDUCE_CTAS_MAX)
        FAIL(CKL_UNSUPPORTED, "reduce %s: %" PRId64 " rows are more than one launch has CTAs", who, v.rows);
    return CKL_OK;
}

static ckl_status admit_improved(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_cta_per_row("improved", desc, device, config);
}

static ckl_status admit_shuffle(const void *desc, const ckl_device_info *device, const void *config)
{
    return admit_cta_per_row("shuffle", desc, device, config);
}

static ckl_status admit_vectorized(const void *desc, const ckl_device_info *device, const void *config)
{
    reduce_view v = reduce_view_of(desc);
    if (v.reduced_count > 1 || reduce_inner(&v).stride != 1)
        FAIL(CKL_UNSUPPORTED, "reduce vectorized: the elements of a row do not lie in one stretch");
    return admit_cta_per_row("vectorized", desc, device, config);
}

static ckl_status launch_cta_per_row(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    reduce_launch l = reduce_launch_of(plan, args, 0);
    int vec = REDUCE_VECTOR_BYTES / reduce_bytes_of(((const reduce_ladder_config *)plan->config)->dtype);
    bool vectors = reduce_is_aligned(l.x, REDUCE_VECTOR_BYTES) && reduce_divides(l.v.kept, l.v.kept_count, vec);
    return l.v.rows ? reduce_enqueue(plan, plan->impl->kernels > 1 && !vectors ? 1 : 0, l.v.rows, &l, stream) : CKL_OK;
}

/* As many threads as a row has vectors, from two warps to the default: with the others a CTA only starts later. */
static ckl_status choose_vectorized(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_ladder_config *c = config;
    TRY(choose_ladder(desc, device, config));
    int64_t vectors = reduce_view_of(desc).count * reduce_bytes_of(c->dtype) / REDUCE_VECTOR_BYTES;
    while (c->threads > LADDER_THREADS_MIN && vectors <= c->threads / 2)
        c->threads /= 2;
    return CKL_OK;
}

static const field ladder_fields[] = { REDUCE_LADDER_CONFIG(FIELD_ROW) };

const implementation reduce_vectorized_plans = {
    .name = "vectorized",
    .summary = "a step of the ladder: one CTA a row, 16 bytes a load, warp shuffles",
    .config_bytes = sizeof(reduce_ladder_config),
    .config = FIELD_TABLE(ladder_fields),
    .choose = choose_vectorized,
    .admit = admit_vectorized,
    .describe = reduce_vectorized,
    .kernels = 2,
    .target = IR_SM80,
    .launch = launch_cta_per_row,
};

const implementation reduce_shuffle_plans = {
    .name = "shuffle",
    .summary = "a step of the ladder: one CTA a row, merged by warp shuffles",
    .config_bytes = sizeof(reduce_ladder_config),
    .config = FIELD_TABLE(ladder_fields),
    .choose = choose_ladder,
    .admit = admit_shuffle,
    .describe = reduce_shuffle,
    .target = IR_SM80,
    .launch = launch_cta_per_row,
};

const implementation reduce_improved_plans = {
    .name = "improved",
    .summary = "a step of the ladder: one CTA a row, merged by a tree in shared memory",
    .config_bytes = sizeof(reduce_ladder_config),
    .config = FIELD_TABLE(ladder_fields),
    .choose = choose_ladder,
    .admit = admit_improved,
    .describe = reduce_improved,
    .target = IR_SM80,
    .launch = launch_cta_per_row,
};

const implementation reduce_naive_plans = {
    .name = "naive",
    .summary = "the first step of the ladder: one thread a row",
    .config_bytes = sizeof(reduce_ladder_config),
    .config = FIELD_TABLE(ladder_fields),
    .choose = choose_ladder,
    .admit = admit_naive,
    .describe = reduce_naive,
    .target = IR_SM80,
    .launch = launch_naive,
};
