/* reduce_choice.c - which kernel takes which reduction, with which config, and its launch. */
#include "operators/reduce/reduce_choice.h"

#include <string.h>

enum {
    VECTOR_BYTES = 16,
    CTAS_MAX = INT32_MAX,
    WARP = 32,
    SLOT_BYTES = 8,              // of a value in the workspace
    THREADS_WANTED = 1024,       // of an SM: with 4 vectors each in flight, 64 KB
    BLOCKS_IN_TURN_MAX = 64,     // of a thread, before sums are compensated
    COLUMN_VALUES_MAX = 16,      // that a thread carries along: more do not fit its registers
    CLUSTER_ROW_BYTES = 1 << 19, // longer rows want more CTAs than a cluster has
    NAIVE_COUNT_MAX = 1 << 24,   // of what one thread counts in f32
};

/* What launches share */

/* Values of the parameters of reduce_declare_arguments(). */
typedef struct launch_values {
    const void *x;
    void *y;
    unsigned char *counters, *partials;
    float divisor;
    reduce_view v;
} launch_values;

enum { PARAMS_MAX = 7 + 4 * CKL_REDUCE_RANK_MAX };

static launch_values values_of(const ckl_plan *plan, const ckl_reduce_args *args, int64_t units)
{
    const ckl_reduce_desc *d = plan->desc;
    launch_values l = { .x = args->x, .y = args->y, .v = reduce_view_of(d) };
    l.counters = args->workspace ? args->workspace : plan->workspace;
    l.partials = l.counters ? l.counters + round_up(4 * units, REDUCE_WORKSPACE_ALIGNMENT) : NULL;
    l.divisor = (float)max_i64(l.v.count - d->correction, 0);
    return l;
}

static ckl_status enqueue(const ckl_plan *plan, int part, int64_t ctas, launch_values *l, ckl_stream stream)
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

static int64_t workspace_of(int64_t units, int64_t split, int64_t values)
{
    return split > 1 ? round_up(4 * units, REDUCE_WORKSPACE_ALIGNMENT) + units * split * values * SLOT_BYTES : 0;
}

static int bytes_of(ckl_dtype dtype)
{
    return (int)ckl_dtype_bytes(dtype);
}

/* Every config begins with these. */
typedef struct problem_fields {
    int op;
    ckl_dtype dtype, output;
    int kept, reduced;
} problem_fields;

static problem_fields problem_of(const ckl_reduce_desc *d)
{
    reduce_view v = reduce_view_of(d);
    return (problem_fields){ (int)d->op, d->dtype, d->output, v.kept_count, v.reduced_count };
}

static ckl_status check_problem(const char *who, const ckl_reduce_desc *d, problem_fields have)
{
    problem_fields want = problem_of(d);
    if (have.op != want.op || have.dtype != want.dtype || have.output != want.output || have.kept != want.kept ||
        have.reduced != want.reduced)
        FAIL(CKL_INVALID, "reduce %s: the config's operation, types or modes are not the problem's", who);
    return CKL_OK;
}

static ckl_status check_threads(const char *who, int threads, const ckl_device_info *device)
{
    if (threads < WARP || !is_power_of_two(threads) || threads > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "reduce %s: threads=%d must be a power of two from 32 to %d", who, threads,
             device->threads_per_cta_max);
    return CKL_OK;
}

static ckl_status check_vectors(const char *who, int vec, int steps, ckl_dtype dtype)
{
    if (!is_power_of_two(vec) || vec * bytes_of(dtype) > VECTOR_BYTES)
        FAIL(CKL_INVALID, "reduce %s: vec=%d must be a power of two of at most %d bytes", who, vec, VECTOR_BYTES);
    if (steps < 1 || steps > 16)
        FAIL(CKL_INVALID, "reduce %s: steps=%d is not in 1..16", who, steps);
    return CKL_OK;
}

static bool sums_floats(const ckl_reduce_desc *d)
{
    bool sums = d->op == CKL_REDUCE_SUM || d->op == CKL_REDUCE_MEAN || d->op == CKL_REDUCE_NORM1;
    return sums && (d->dtype == CKL_F32 || d->dtype == CKL_F16 || d->dtype == CKL_BF16);
}

static int64_t power_of_two_from(int64_t x)
{
    int64_t power = 1;
    while (power < x)
        power *= 2;
    return power;
}

/* Do all modes but the one that vectors run along start at multiples of vec? */
static bool divides(const reduce_mode *modes, int count, int vec)
{
    for (int i = 0; i < count; i++)
        if (modes[i].stride % vec)
            return false;
    return true;
}

static bool is_aligned(const void *pointer, int64_t bytes)
{
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}

/* The ladder */

static ckl_status choose_ladder(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    reduce_ladder_config *c = config;
    problem_fields p = problem_of(desc);
    *c = (reduce_ladder_config){ p.op, p.dtype, p.output, p.kept, p.reduced, c->threads };
    return CKL_OK;
}

static ckl_status admit_ladder(const char *who, const void *desc, const ckl_device_info *device,
                               const reduce_ladder_config *c)
{
    TRY(check_problem(who, desc, (problem_fields){ c->op, c->dtype, c->output, c->kept, c->reduced }));
    return check_threads(who, c->threads, device);
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_ladder_config *c = config;
    reduce_view v = reduce_view_of(desc);
    TRY(admit_ladder("naive", desc, device, c));
    if (v.rows > (int64_t)CTAS_MAX * c->threads)
        FAIL(CKL_UNSUPPORTED, "reduce naive: %" PRId64 " rows are more than one launch has threads", v.rows);
    if (v.count > NAIVE_COUNT_MAX && (c->op == CKL_REDUCE_VAR || c->op == CKL_REDUCE_STD))
        FAIL(CKL_UNSUPPORTED, "reduce naive: one thread cannot count rows of %" PRId64 " elements in f32", v.count);
    return CKL_OK;
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_ladder_config *c = plan->config;
    launch_values l = values_of(plan, args, 0);
    return l.v.rows ? enqueue(plan, 0, ceil_div(l.v.rows, c->threads), &l, stream) : CKL_OK;
}

static ckl_status admit_cta_per_row(const char *who, const void *desc, const ckl_device_info *device,
                                    const void *config)
{
    reduce_view v = reduce_view_of(desc);
    TRY(admit_ladder(who, desc, device, config));
    if (v.rows > CTAS_MAX)
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
    launch_values l = values_of(plan, args, 0);
    int vec = VECTOR_BYTES / bytes_of(((const reduce_ladder_config *)plan->config)->dtype);
    bool vectors = is_aligned(l.x, VECTOR_BYTES) && divides(l.v.kept, l.v.kept_count, vec);
    return l.v.rows ? enqueue(plan, plan->impl->kernels > 1 && !vectors ? 1 : 0, l.v.rows, &l, stream) : CKL_OK;
}

/* rows and cluster */

/* Vectors need not divide rows, but rows of few vectors that start anywhere would be all edges. */
static int choose_row_vec(const reduce_view *v, ckl_dtype dtype)
{
    int vec = VECTOR_BYTES / bytes_of(dtype);
    reduce_mode inner = reduce_inner(v);
    bool even = inner.extent % vec == 0 && divides(v->kept, v->kept_count, vec) &&
                divides(v->reduced, v->reduced_count - 1, vec);
    if (inner.stride != 1 || (!even && inner.extent < 16 * vec))
        return 1;
    return vec;
}

/* Short rows get so many lanes that each has about 4 vectors; where there are few rows, or long ones, a CTA each. */
static void choose_row_threads(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    int64_t vectors = ceil_div(reduce_inner(v).extent, c->vec) * (v->count / max_i64(reduce_inner(v).extent, 1));
    bool is_short = vectors <= 8 * WARP && (v->rows >= device->sm_count || vectors <= WARP);
    c->threads = v->rows >= 4 * device->sm_count ? 256 : 512;
    c->lanes = c->threads;
    if (is_short) {
        c->threads = 256;
        c->lanes = (int)min_i64(WARP, power_of_two_from(ceil_div(max_i64(vectors, 1), 4)));
    }
}

static int64_t row_tiles(const reduce_view *v, const reduce_rows_config *c)
{
    int64_t inner = reduce_inner(v).extent, tile = (int64_t)c->lanes * c->vec * c->steps;
    return ceil_div(inner, tile) * (v->count / max_i64(inner, 1));
}

static int ctas_wanted(const ckl_device_info *device, int threads)
{
    return device->sm_count * (int)max_i64(1, THREADS_WANTED / threads);
}

/* As many CTAs a row as fill the device once, none without a tile; small problems trade vectors in flight for CTAs. */
static void choose_split(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    int64_t wanted = ctas_wanted(device, c->threads) / max_i64(v->rows, 1);
    while (c->steps > 1 && row_tiles(v, c) < min_i64(wanted, device->sm_count / max_i64(v->rows, 1)))
        c->steps /= 2;
    c->split = (int)max_i64(1, min_i64(wanted, row_tiles(v, c)));
}

static bool is_long(int64_t blocks_in_turn)
{
    return blocks_in_turn > BLOCKS_IN_TURN_MAX;
}

static void choose_rows_base(const ckl_reduce_desc *d, const reduce_view *v, const ckl_device_info *device,
                             reduce_rows_config *c)
{
    problem_fields p = problem_of(d);
    c->op = p.op;
    c->dtype = p.dtype;
    c->output = p.output;
    c->kept = p.kept;
    c->reduced = p.reduced;
    c->vec = choose_row_vec(v, d->dtype);
    c->strided = reduce_inner(v).stride != 1;
    choose_row_threads(v, device, c);
    while (c->steps > 1 && (int64_t)c->lanes * c->vec * (c->steps / 2) >= reduce_inner(v).extent)
        c->steps /= 2;
}

static ckl_status choose_rows(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_rows_config *c = config;
    reduce_view v = reduce_view_of(desc);
    choose_rows_base(desc, &v, device, c);
    if (c->lanes == c->threads)
        choose_split(&v, device, c);
    c->compensated = sums_floats(desc) && is_long(row_tiles(&v, c) / c->split);
    return CKL_OK;
}

static ckl_status choose_cluster(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_reduce_desc *d = desc;
    reduce_rows_config *c = config;
    reduce_view v = reduce_view_of(desc);
    int64_t row_bytes = v.count * bytes_of(d->dtype), ctas = device->sm_count / max_i64(v.rows, 1);
    choose_rows_base(desc, &v, device, c);
    if (row_bytes > CLUSTER_ROW_BYTES || c->lanes != c->threads)
        FAIL(CKL_UNSUPPORTED, "reduce cluster: rows of %" PRId64 " bytes do not suit one cluster", row_bytes);
    c->cluster = 8;
    while (c->cluster > 1 && (c->cluster > ctas || c->cluster > row_tiles(&v, c)))
        c->cluster /= 2;
    if (c->cluster == 1)
        FAIL(CKL_UNSUPPORTED, "reduce cluster: %" PRId64 " rows are enough for the device with a CTA each", v.rows);
    return CKL_OK;
}

static ckl_status admit_rows_of(const char *who, const void *desc, const ckl_device_info *device,
                                const reduce_rows_config *c)
{
    reduce_view v = reduce_view_of(desc);
    TRY(check_problem(who, desc, (problem_fields){ c->op, c->dtype, c->output, c->kept, c->reduced }));
    TRY(check_threads(who, c->threads, device));
    TRY(check_vectors(who, c->vec, c->steps, c->dtype));
    if (c->strided != (reduce_inner(&v).stride != 1) || (c->strided && c->vec > 1))
        FAIL(CKL_UNSUPPORTED, "reduce %s: strided=%d vec=%d does not fit elements %" PRId64 " apart", who, c->strided,
             c->vec, reduce_inner(&v).stride);
    if (c->lanes != c->threads && (!is_power_of_two(c->lanes) || c->lanes > WARP))
        FAIL(CKL_INVALID, "reduce %s: lanes=%d must be a power of two up to 32, or threads=%d", who, c->lanes,
             c->threads);
    if (c->split < 1 || c->cluster < 1 || (c->split > 1 && c->cluster > 1) ||
        (c->split * c->cluster > 1 && c->lanes != c->threads))
        FAIL(CKL_INVALID, "reduce %s: split=%d cluster=%d: one of them is 1, both where lanes < threads", who, c->split,
             c->cluster);
    int64_t ctas_per_row = (int64_t)c->split * c->cluster, rows_per_cta = c->threads / c->lanes;
    if (v.rows > CTAS_MAX / ctas_per_row * rows_per_cta)
        FAIL(CKL_UNSUPPORTED, "reduce %s: %" PRId64 " rows are more than one launch has CTAs for", who, v.rows);
    return CKL_OK;
}

static ckl_status admit_rows(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_rows_config *c = config;
    if (c->cluster != 1)
        FAIL(CKL_UNSUPPORTED, "reduce rows: cluster=%d is for impl=cluster", c->cluster);
    return admit_rows_of("rows", desc, device, c);
}

static ckl_status admit_cluster(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_rows_config *c = config;
    if (!is_power_of_two(c->cluster) || c->cluster > 8)
        FAIL(CKL_INVALID, "reduce cluster: cluster=%d is not a power of two up to 8", c->cluster);
    return admit_rows_of("cluster", desc, device, c);
}

static int64_t rows_workspace(const ckl_plan *plan)
{
    const reduce_rows_config *c = plan->config;
    int values = reduce_state_values(c->op, c->dtype, c->output, c->compensated);
    return workspace_of(reduce_view_of(plan->desc).rows, c->split, values);
}

static ckl_status launch_rows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_rows_config *c = plan->config;
    int64_t rows = reduce_view_of(plan->desc).rows, rows_per_cta = c->threads / c->lanes;
    launch_values l = values_of(plan, args, rows);
    bool even = is_aligned(l.x, c->vec * bytes_of(c->dtype)) && reduce_inner(&l.v).extent % c->vec == 0 &&
                divides(l.v.kept, l.v.kept_count, c->vec) && divides(l.v.reduced, l.v.reduced_count - 1, c->vec);
    if (rows == 0)
        return CKL_OK;
    return enqueue(plan, even ? 0 : 1, ceil_div(rows, rows_per_cta) * c->split * c->cluster, &l, stream);
}

/* columns */

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
    return columns_of(v) % vec == 0 && divides(v->kept, v->kept_count - 1, vec) &&
           divides(v->reduced, v->reduced_count, vec);
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
    problem_fields p = problem_of(desc);
    TRY(check_columns(&v));
    c->op = p.op;
    c->dtype = p.dtype;
    c->output = p.output;
    c->kept = p.kept;
    c->reduced = p.reduced;
    int values = reduce_state_values(p.op, p.dtype, p.output, false);
    c->vec = VECTOR_BYTES / bytes_of(p.dtype);
    while (!columns_divide(&v, c->vec) || c->vec * values > COLUMN_VALUES_MAX)
        c->vec /= 2;
    int64_t wanted = (int64_t)device->sm_count * THREADS_WANTED, across = v.rows / c->vec;
    c->lanes = (int)min_i64(across >= wanted ? c->threads : WARP, power_of_two_from(ceil_div(columns_of(&v), c->vec)));
    int64_t layers = c->threads / c->lanes, tiles = column_tiles(&v, c) * stretches_of(&v);
    while (c->steps > 1 && layers * (c->steps / 2) >= v.count)
        c->steps /= 2;
    int64_t ctas = wanted / c->threads, most = ceil_div(max_i64(v.count, 1), layers * c->steps);
    c->split = (int)max_i64(1, min_i64(ctas / max_i64(tiles, 1), most));
    c->compensated = sums_floats(desc) && is_long(v.count / (layers * c->steps * c->split));
    return CKL_OK;
}

static ckl_status admit_columns(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_columns_config *c = config;
    reduce_view v = reduce_view_of(desc);
    TRY(check_columns(&v));
    TRY(check_problem("columns", desc, (problem_fields){ c->op, c->dtype, c->output, c->kept, c->reduced }));
    TRY(check_threads("columns", c->threads, device));
    TRY(check_vectors("columns", c->vec, c->steps, c->dtype));
    if (!is_power_of_two(c->lanes) || c->lanes > c->threads)
        FAIL(CKL_INVALID, "reduce columns: lanes=%d must be a power of two up to threads=%d", c->lanes, c->threads);
    if (c->split < 1)
        FAIL(CKL_INVALID, "reduce columns: split=%d is not positive", c->split);
    if (stretches_of(&v) > CTAS_MAX / c->split / max_i64(column_tiles(&v, c), 1))
        FAIL(CKL_UNSUPPORTED, "reduce columns: %" PRId64 " results are more than one launch has CTAs for", v.rows);
    return CKL_OK;
}

static int64_t columns_workspace(const ckl_plan *plan)
{
    const reduce_columns_config *c = plan->config;
    reduce_view v = reduce_view_of(plan->desc);
    int values = reduce_state_values(c->op, c->dtype, c->output, c->compensated);
    return workspace_of(column_tiles(&v, c) * stretches_of(&v), c->split, (int64_t)values * c->lanes * c->vec);
}

static ckl_status launch_columns(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_columns_config *c = plan->config;
    reduce_view v = reduce_view_of(plan->desc);
    int64_t units = column_tiles(&v, c) * stretches_of(&v);
    launch_values l = values_of(plan, args, units);
    bool even = columns_divide(&v, c->vec) && is_aligned(l.x, c->vec * bytes_of(c->dtype)) &&
                is_aligned(l.y, min_i64(VECTOR_BYTES, c->vec * bytes_of(c->output)));
    return v.rows ? enqueue(plan, even ? 0 : 1, units * c->split, &l, stream) : CKL_OK;
}

/* The tables */

static const field ladder_fields[] = { REDUCE_LADDER_CONFIG(FIELD_ROW) };
static const field rows_fields[] = { REDUCE_ROWS_CONFIG(FIELD_ROW) };
static const field columns_fields[] = { REDUCE_COLUMNS_CONFIG(FIELD_ROW) };

static const implementation columns = {
    .name = "columns",
    .summary = "neighbouring threads take neighbouring results; layers of threads and CTAs share long columns",
    .config_bytes = sizeof(reduce_columns_config),
    .config = FIELD_TABLE(columns_fields),
    .choose = choose_columns,
    .admit = admit_columns,
    .describe = reduce_columns,
    .kernels = 2,
    .target = IR_SM80,
    .workspace_bytes = columns_workspace,
    .launch = launch_columns,
};

static const implementation cluster = {
    .name = "cluster",
    .summary = "a cluster of CTAs a row, merged through distributed shared memory; Hopper",
    .config_bytes = sizeof(reduce_rows_config),
    .config = FIELD_TABLE(rows_fields),
    .choose = choose_cluster,
    .admit = admit_cluster,
    .describe = reduce_rows,
    .kernels = 2,
    .target = IR_SM90A,
    .workspace_bytes = rows_workspace,
    .launch = launch_rows,
};

static const implementation rows = {
    .name = "rows",
    .summary = "a few lanes a row, a CTA, or several CTAs of which the last finishes the row",
    .config_bytes = sizeof(reduce_rows_config),
    .config = FIELD_TABLE(rows_fields),
    .choose = choose_rows,
    .admit = admit_rows,
    .describe = reduce_rows,
    .kernels = 2,
    .target = IR_SM80,
    .workspace_bytes = rows_workspace,
    .launch = launch_rows,
};

static const implementation vectorized = {
    .name = "vectorized",
    .summary = "a step of the ladder: one CTA a row, 16 bytes a load, warp shuffles",
    .config_bytes = sizeof(reduce_ladder_config),
    .config = FIELD_TABLE(ladder_fields),
    .choose = choose_ladder,
    .admit = admit_vectorized,
    .describe = reduce_vectorized,
    .kernels = 2,
    .target = IR_SM80,
    .launch = launch_cta_per_row,
};

static const implementation shuffle = {
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

static const implementation improved = {
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

static const implementation naive = {
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

const implementation *const reduce_implementations[] = { &columns, &cluster,  &rows,  &vectorized,
                                                         &shuffle, &improved, &naive, NULL };
