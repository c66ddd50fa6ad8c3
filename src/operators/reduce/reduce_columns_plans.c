/* reduce_columns_plans.c - columns: which reductions it takes, with which config, and its launch. */
#include "operators/reduce/reduce_plans.h"

enum {
    WORD_BYTES = 4,       // of a register
    STATE_MAX = 16,       // registers of all columns of a thread: more do not fit
    BYTES_IN_FLIGHT = 64, // of a thread
    STEPS_MAX = 8,
    NARROW_TILES = 16, // of a warp's width: with fewer, many CTAs share each, and their states are many to merge
    NARROW_LANES = 8,  // one line of memory
};

/* Results side by side; the others are stretches of them. */
static int64_t columns_of(const reduce_view *v)
{
    return v->kept_count ? v->kept[v->kept_count - 1].extent : 1;
}

static int64_t stretches_of(const reduce_view *v)
{
    return v->rows / max_i64(columns_of(v), 1);
}

static int64_t column_tiles(const reduce_view *v, const reduce_columns_config *c)
{
    return ceil_div(columns_of(v), (int64_t)c->lanes * c->vec);
}

static bool columns_divide(const reduce_view *v, int vec)
{
    return columns_of(v) % vec == 0 && reduce_divides(v->kept, v->kept_count - 1, vec) &&
           reduce_divides(v->reduced, v->reduced_count, vec);
}

static ckl_status check_columns(const reduce_view *v)
{
    if (v->kept_count == 0 || v->kept[v->kept_count - 1].stride != 1)
        FAIL(CKL_UNSUPPORTED, "reduce columns: neighbouring results are not made of neighbouring elements");
    return CKL_OK;
}

/* Layers of a CTA, then CTAs, share the elements of columns until the device is full. */
static ckl_status choose_columns(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_columns_config *c = config;
    reduce_view v = reduce_view_of(desc);
    reduce_problem_fields p = reduce_problem_of(desc);
    TRY(check_columns(&v));
    c->op = p.op;
    c->dtype = p.dtype;
    c->output = p.output;
    c->kept = p.kept;
    c->reduced = p.reduced;
    int words = reduce_state_size(p.op, p.dtype, p.output, false);
    c->vec = REDUCE_VECTOR_BYTES / reduce_bytes_of(p.dtype);
    while (!columns_divide(&v, c->vec) || c->vec * words > STATE_MAX)
        c->vec /= 2;
    int64_t wanted = (int64_t)device->sm_count * REDUCE_THREADS_WANTED, across = v.rows / c->vec;
    c->lanes =
        (int)min_i64(across >= wanted ? c->threads : REDUCE_WARP, reduce_power_from(ceil_div(columns_of(&v), c->vec)));
    c->steps = (int)(BYTES_IN_FLIGHT / (c->vec * (int64_t)reduce_bytes_of(p.dtype)));
    c->steps = (int)min_i64(c->steps, STEPS_MAX);
    c->ctas_per_sm = REDUCE_THREADS_WANTED / c->threads;
    if (column_tiles(&v, c) * stretches_of(&v) < NARROW_TILES && c->lanes > NARROW_LANES) {
        c->lanes = NARROW_LANES;
        c->steps = STEPS_MAX;
        c->ctas_per_sm = 3;
    }
    int64_t layers = c->threads / c->lanes, tiles = column_tiles(&v, c) * stretches_of(&v);
    while (c->steps > 1 && layers * (c->steps / 2) >= v.count)
        c->steps /= 2;
    int64_t ctas = wanted / c->threads, most = ceil_div(max_i64(v.count, 1), layers * c->steps);
    c->split = (int)max_i64(1, min_i64(ctas / max_i64(tiles, 1), most));
    c->compensated = reduce_compensates(desc, v.count / (layers * c->steps * c->split));
    return CKL_OK;
}

static ckl_status choose_columns_sm80(const void *desc, const ckl_device_info *device, void *config)
{
    if (device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "reduce columns_sm80: columns is made for this device");
    return choose_columns(desc, device, config);
}

static ckl_status admit_columns(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_columns_config *c = config;
    reduce_view v = reduce_view_of(desc);
    TRY(check_columns(&v));
    TRY(reduce_check_problem("columns", desc,
                             (reduce_problem_fields){ c->op, c->dtype, c->output, c->kept, c->reduced }));
    TRY(reduce_check_threads("columns", c->threads, device));
    TRY(reduce_check_vectors("columns", c->vec, c->steps, c->dtype));
    if (!is_power_of_two(c->lanes) || c->lanes > c->threads)
        FAIL(CKL_INVALID, "reduce columns: lanes=%d must be a power of two up to threads=%d", c->lanes, c->threads);
    if (c->split < 1)
        FAIL(CKL_INVALID, "reduce columns: split=%d is not positive", c->split);
    if (stretches_of(&v) > REDUCE_CTAS_MAX / c->split / max_i64(column_tiles(&v, c), 1))
        FAIL(CKL_UNSUPPORTED, "reduce columns: %" PRId64 " results are more than one launch has CTAs for", v.rows);
    return CKL_OK;
}

static int64_t columns_workspace(const ckl_plan *plan)
{
    const reduce_columns_config *c = plan->config;
    reduce_view v = reduce_view_of(plan->desc);
    int64_t bytes = WORD_BYTES * reduce_state_size(c->op, c->dtype, c->output, c->compensated);
    return reduce_workspace(column_tiles(&v, c) * stretches_of(&v), c->split, bytes * c->lanes * c->vec);
}

static ckl_status launch_columns(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_columns_config *c = plan->config;
    reduce_view v = reduce_view_of(plan->desc);
    int64_t units = column_tiles(&v, c) * stretches_of(&v);
    reduce_launch l = reduce_launch_of(plan, args, units);
    bool even = columns_divide(&v, c->vec) && reduce_is_aligned(l.x, c->vec * reduce_bytes_of(c->dtype)) &&
                reduce_is_aligned(l.y, min_i64(REDUCE_VECTOR_BYTES, c->vec * reduce_bytes_of(c->output)));
    return v.rows ? reduce_enqueue(plan, even ? 0 : 1, units * c->split, &l, stream) : CKL_OK;
}

static const field columns_fields[] = { REDUCE_COLUMNS_CONFIG(FIELD_ROW) };

#define COLUMNS(called, says, chosen, lowest)                                                                        \
    {                                                                                                                \
        .name = called, .summary = says, .config_bytes = sizeof(reduce_columns_config),                              \
        .config = FIELD_TABLE(columns_fields), .choose = chosen, .admit = admit_columns, .describe = reduce_columns, \
        .kernels = 2, .target = lowest, .workspace_bytes = columns_workspace, .launch = launch_columns,              \
    }

const implementation reduce_columns_plans =
    COLUMNS("columns", "neighbouring threads take neighbouring results; layers of threads and CTAs share long columns",
            choose_columns, IR_SM90A);
const implementation reduce_columns_sm80_plans =
    COLUMNS("columns_sm80", "the same where the start of a kernel cannot overlap the end of the one before",
            choose_columns_sm80, IR_SM80);
