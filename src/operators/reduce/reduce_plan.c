/* reduce_plan.c - the implementations of reduce: which reductions they take, with which config, and their launch. */
#include "operators/reduce/reduce_config.h"

#include "base/math.h"
#include "plan/check.h"

enum {
    WARP = 32,
    ACCESS_BYTES = 16,
    CTAS_MAX = INT32_MAX,    // of a launch
    THREADS_WANTED = 1024,   // of an SM: with 4 vectors each in flight, 64 KB
    BLOCKS_IN_TURN_MAX = 64, // that a thread adds up one after the other before its sums are compensated
    STEPS_LIMIT = 16,        // of a config
};

static int bytes_of(ckl_dtype dtype)
{
    return (int)ckl_dtype_bytes(dtype);
}

static reduce_mode inner_of(const reduce_view *v)
{
    return v->reduced[v->kind.reduced - 1];
}

/* The smallest power of two that is not below x. */
static int64_t power_of_two_from(int64_t x)
{
    int64_t power = 1;
    while (power < x)
        power *= 2;
    return power;
}

static bool is_aligned(const void *pointer, int64_t bytes)
{
    return (uintptr_t)pointer % (uintptr_t)bytes == 0;
}

/* Do all modes step by multiples of vec? */
static bool strides_divide(const reduce_mode *modes, int count, int vec)
{
    for (int i = 0; i < count; i++)
        if (modes[i].stride % vec)
            return false;
    return true;
}

static ckl_status check_kind(const char *who, const reduce_view *v, const reduce_kind *have)
{
    const reduce_kind *want = &v->kind;
    if (have->op != want->op || have->dtype != want->dtype || have->output != want->output ||
        have->kept != want->kept || have->reduced != want->reduced)
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
    if (!is_power_of_two(vec) || vec * bytes_of(dtype) > ACCESS_BYTES)
        FAIL(CKL_INVALID, "reduce %s: vec=%d must be a power of two of at most %d bytes", who, vec, ACCESS_BYTES);
    if (steps < 1 || steps > STEPS_LIMIT)
        FAIL(CKL_INVALID, "reduce %s: steps=%d is not in 1..%d", who, steps, STEPS_LIMIT);
    return CKL_OK;
}

/* Should a sum be compensated, if a thread adds so many blocks in turn? */
static bool compensates(const reduce_kind *k, int64_t blocks_in_turn)
{
    bool sums = k->op == CKL_REDUCE_SUM || k->op == CKL_REDUCE_MEAN || k->op == CKL_REDUCE_NORM1;
    bool floats = k->dtype == CKL_F32 || k->dtype == CKL_F16 || k->dtype == CKL_BF16;
    return sums && floats && blocks_in_turn > BLOCKS_IN_TURN_MAX;
}

/* Workspace: a counter for each group of CTAs, then `bytes` for each CTA of a group. */
static int64_t workspace_for(int64_t groups, int64_t split, int64_t bytes)
{
    return split > 1 ? round_up(4 * groups, PLAN_WORKSPACE_ALIGNMENT) + groups * split * bytes : 0;
}

static reduce_params params_for(const ckl_plan *plan, const ckl_reduce_args *args, int64_t groups)
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

/* Rows */

enum {
    SLOT_BYTES = 8,              // of 32 bits of a state
    SMALL_TILE = 128 * 8,        // vectors of a CTA of a small x
    PREFETCHED_BYTES = 96 << 20, // of an x whose first tiles are prefetched
    CLUSTER_MAX = 8,
    ROWS_OF_SM = 64,          // of a device that rows of a warp each keep busy
    NEARLY = 16,              // one of so many may be missing
    OVERLAP_BYTES = 32 << 20, // of an x that is read in less time than CTAs that come early cost: they crowd some SMs
};

/* Do rows, and their segments, begin and end with a vector, if x does? */
static bool vectors_divide_rows(const reduce_view *v, int vec)
{
    return inner_of(v).extent % vec == 0 && strides_divide(v->kept, v->kind.kept, vec) &&
           strides_divide(v->reduced, v->kind.reduced - 1, vec);
}

/* Vectors need not divide rows, but rows of few vectors that start anywhere would be all edges. */
static int choose_row_vec(const reduce_view *v, ckl_dtype dtype)
{
    int vec = ACCESS_BYTES / bytes_of(dtype);
    reduce_mode inner = inner_of(v);
    if (inner.stride != 1 || (!vectors_divide_rows(v, vec) && inner.extent < 16 * vec))
        return 1;
    return vec;
}

/* Vectors of a row, its segments not joined. */
static int64_t vectors_of(const reduce_view *v, const reduce_rows_config *c)
{
    int64_t inner = inner_of(v).extent;
    return ceil_div(inner, c->vec) * (v->count / max_i64(inner, 1));
}

static int64_t row_tiles(const reduce_view *v, const reduce_rows_config *c)
{
    int64_t inner = inner_of(v).extent, tile = (int64_t)c->row_threads / c->segments * c->vec * c->steps;
    return ceil_div(inner, tile) * ceil_div(v->count / max_i64(inner, 1), c->segments);
}

/* No more vectors than a stretch of the row has. */
static void shorten_steps(const reduce_view *v, reduce_rows_config *c)
{
    while (c->steps > 1 && (int64_t)c->row_threads * c->vec * (c->steps / 2) >= inner_of(v).extent)
        c->steps /= 2;
}

/* Of a segment's tiles: where vectors do not divide rows, the rest is loaded apart. */
static int64_t whole_vectors(const reduce_view *v, const reduce_rows_config *c)
{
    return max_i64(1, inner_of(v).extent / c->vec);
}

/* So many threads that each has about 4 vectors of a row, of longer rows 8, all of them in flight at once. */
static void choose_short(const reduce_view *v, reduce_rows_config *c)
{
    enum { THREADS = 128, STEPS = 4, STEPS_LONG = 8 };
    const int64_t vectors = max_i64(vectors_of(v, c), 1), segment = whole_vectors(v, c);
    int64_t lanes = power_of_two_from(ceil_div(vectors, STEPS));
    if (lanes > WARP / 2)
        lanes = max_i64(WARP / 2, power_of_two_from(ceil_div(vectors, STEPS_LONG)));
    c->threads = THREADS;
    c->row_threads = (int)min_i64(WARP, lanes);
    c->steps = (int)min_i64(STEPS_LONG, ceil_div(segment, c->row_threads));
}

/* Short segments: as many side by side as leave threads to each for its vectors. */
static void choose_segments(const reduce_view *v, reduce_rows_config *c)
{
    enum { STEPS = 4, LANES_MIN = 4 };
    const int64_t segment = whole_vectors(v, c),
                  lanes = max_i64(LANES_MIN, power_of_two_from(ceil_div(segment, STEPS)));
    if (v->kind.reduced == 1 || c->strided || c->split > 1 || 2 * lanes > c->row_threads)
        return;
    c->segments = (int)(c->row_threads / lanes);
    c->steps = (int)min_i64(STEPS, ceil_div(segment, lanes));
}

/* Do so few CTAs take a large x that those of the next launch, come early, would crowd some SMs? */
static bool crowds(const reduce_view *v, const ckl_device_info *device, const reduce_rows_config *c)
{
    enum { WAVES = 4, THREADS_OF_SM = 2048 }; // of later waves the hardware sees to the balance
    const int64_t fit = (int64_t)device->sm_count * (THREADS_OF_SM / c->threads);
    return v->rows * c->split < WAVES * fit && v->rows * v->count * bytes_of(c->kind.dtype) > OVERLAP_BYTES;
}

/* A CTA for each row: the threads, of rows of one tile the vectors of each, too, that leave the fewest of them without work. */
static void choose_cta(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    enum { THREADS = 256, THREADS_MIN = 128, STEPS = 4, STEPS_MIN = 2, TILES = 1, WORTH = 20 }; // a twentieth less
    const int64_t segment = whole_vectors(v, c);
    const int steps_min = segment > (int64_t)TILES * THREADS * STEPS ? STEPS : STEPS_MIN;
    int64_t least = INT64_MAX / WORTH;
    for (int threads = THREADS; threads >= THREADS_MIN; threads /= 2)
        for (int steps = STEPS; steps >= steps_min; steps--) {
            const int64_t all = round_up(segment, (int64_t)threads * steps);
            if (WORTH * all >= (WORTH - 1) * least)
                continue;
            least = all;
            c->threads = c->row_threads = threads;
            c->steps = steps;
        }
    c->overlap = !crowds(v, device, c);
}

/*
 * Few rows, several CTAs each (bench/notes/reduce.md). Where all of x fits in one tile of two CTAs an SM, small CTAs with
 * many vectors in flight are first done; each thread of the last one receives one state, and 32 of them or less are merged
 * by a single warp. Large x gets full SMs, in CTAs of which no third fits: else the next launch's gather where the first of this one
 * end. States of several registers leave room for fewer vectors in flight, and so do elements of 8 bytes.
 */
static void choose_shared(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    int64_t vectors = vectors_of(v, c) * max_i64(v->rows, 1), ctas = 2 * (int64_t)device->sm_count;
    bool light = reduce_state_words(&c->kind, false) == 1 && bytes_of(c->kind.dtype) <= 4;
    bool small = vectors <= ctas * SMALL_TILE, many = vectors > 128 * SMALL_TILE;
    c->prefetch = vectors * c->vec * bytes_of(c->kind.dtype) <= PREFETCHED_BYTES;
    c->threads = small ? (many ? 256 : 128) : 512;
    c->row_threads = c->threads;
    c->steps = light ? (small ? SMALL_TILE / c->threads : 8) : 4;
    while (small && c->steps > 1 && vectors < (int64_t)WARP * c->threads * c->steps)
        c->steps /= 2;
    shorten_steps(v, c);
    if (light && !small) {
        c->ctas_per_sm = THREADS_WANTED / c->threads;
        ctas = (int64_t)device->sm_count * c->ctas_per_sm;
    }
    const bool fills_sms = c->ctas_per_sm > 0;
    int64_t tiles = max_i64(row_tiles(v, c), 1), most = max_i64(1, ctas / max_i64(v->rows, 1));
    most = min_i64(most, 2 * c->threads); // then a thread of the last CTA receives two states at most
    const int64_t fewest = ceil_div(tiles, ceil_div(tiles, most));
    const bool nearly_all =
        NEARLY * fewest >= (NEARLY - 1) * most; // of the CTAs that fit: then all have as many tiles, or one less
    c->split = (int)(small || nearly_all ? fewest : min_i64(tiles, most));
    c->overlap = (fills_sms && c->split > 1) || !crowds(v, device, c);
}

/*
 * Rows of a warp's length or less share CTAs; many long ones have a CTA each, if states are not so dear to merge that warps should
 * rather read longer. Clusters are only taken by config.
 */
static ckl_status choose_rows(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_rows_config *c = config;
    const reduce_view *v = desc;
    c->kind = v->kind;
    c->vec = choose_row_vec(v, v->kind.dtype);
    c->strided = inner_of(v).stride != 1;
    const int64_t vectors = vectors_of(v, c);
    const bool dear = reduce_state_words(&c->kind, false) > 1 && v->rows >= ROWS_OF_SM * (int64_t)device->sm_count;
    if (vectors <= WARP || (vectors <= (dear ? 32 : 8) * WARP && v->rows >= device->sm_count))
        choose_short(v, c);
    else if (v->rows < 4 * device->sm_count)
        choose_shared(v, device, c);
    else
        choose_cta(v, device, c);
    choose_segments(v, c);
    c->compensated = compensates(&v->kind, row_tiles(v, c) / c->split);
    return CKL_OK;
}

static ckl_status admit_rows(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_rows_config *c = config;
    const reduce_view *v = desc;
    TRY(check_kind("rows", v, &c->kind));
    TRY(check_threads("rows", c->threads, device));
    TRY(check_vectors("rows", c->vec, c->steps, c->kind.dtype));
    if (c->strided != (inner_of(v).stride != 1) || (c->strided && c->vec > 1))
        FAIL(CKL_UNSUPPORTED, "reduce rows: strided=%d vec=%d does not fit elements %" PRId64 " apart", c->strided,
             c->vec, inner_of(v).stride);
    if (c->row_threads != c->threads && (!is_power_of_two(c->row_threads) || c->row_threads > WARP))
        FAIL(CKL_INVALID, "reduce rows: row_threads=%d must be a power of two up to 32, or threads=%d", c->row_threads,
             c->threads);
    if (!is_power_of_two(c->segments) || c->segments > c->row_threads || (c->segments > 1 && v->kind.reduced == 1))
        FAIL(CKL_INVALID, "reduce rows: segments=%d is no power of two up to row_threads=%d, or rows are one stretch",
             c->segments, c->row_threads);
    if (!is_power_of_two(c->cluster) || c->cluster > CLUSTER_MAX)
        FAIL(CKL_INVALID, "reduce rows: cluster=%d is not a power of two up to %d", c->cluster, CLUSTER_MAX);
    if (c->split < 1 || (c->split > 1 && c->cluster > 1) || (c->split * c->cluster > 1 && c->row_threads != c->threads))
        FAIL(CKL_INVALID, "reduce rows: split=%d cluster=%d: one of them is 1, both where row_threads < threads",
             c->split, c->cluster);
    if (c->cluster > 1 && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "reduce rows: cluster=%d on a device without clusters", c->cluster);
    int64_t ctas_per_row = (int64_t)c->split * c->cluster, rows_per_cta = c->threads / c->row_threads;
    if (v->rows > CTAS_MAX / ctas_per_row * rows_per_cta)
        FAIL(CKL_UNSUPPORTED, "reduce rows: %" PRId64 " rows are more than one launch has CTAs for", v->rows);
    return CKL_OK;
}

static int64_t rows_workspace(const ckl_plan *plan)
{
    const reduce_rows_config *c = plan->config;
    int words = reduce_state_words(&c->kind, c->compensated);
    return workspace_for(((const reduce_view *)plan->desc)->rows, c->split, (int64_t)SLOT_BYTES * words);
}

static ckl_status launch_rows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_rows_config *c = plan->config;
    const reduce_view *v = plan->desc;
    reduce_params p = params_for(plan, args, v->rows);
    bool even = vectors_divide_rows(v, c->vec) && is_aligned(p.x, c->vec * bytes_of(c->kind.dtype));
    int64_t ctas = ceil_div(v->rows, c->threads / c->row_threads);
    if (c->resident && c->row_threads < c->threads)
        ctas = min_i64(ctas, (int64_t)c->resident * plan->device->info.sm_count);
    ctas *= (int64_t)c->split * c->cluster;
    return ctas ? plan_launch(plan, even ? 0 : 1, (plan_grid){ .x = ctas }, &p, stream) : CKL_OK;
}

static const field rows_fields[] = { REDUCE_KIND(FIELD_NESTED, (reduce_rows_config, kind))
                                         REDUCE_ROWS_CONFIG(FIELD_ROW, reduce_rows_config) };

const implementation reduce_rows_plans = {
    .name = "rows",
    .summary = "a few threads a row, a CTA, several CTAs of which the last finishes the row, or a cluster",
    .config_bytes = sizeof(reduce_rows_config),
    .config = FIELD_TABLE(rows_fields),
    .choose = choose_rows,
    .admit = admit_rows,
    .describe = reduce_rows,
    .kernels = 2,
    .params = &reduce_param_list,
    .workspace_bytes = rows_workspace,
    .launch = launch_rows,
};

/* Columns */

enum {
    WORD_BYTES = 4,       // of a register
    STATE_MAX = 16,       // registers of all columns of a thread: more do not fit
    BYTES_IN_FLIGHT = 64, // of a thread
    STEPS_MAX = 8,
    NARROW_TILES = 16,  // of a warp's width: with fewer, many CTAs share each, and their states are many to merge
    NARROW_LANES = 8,   // one line of memory
    NARROW_LINES = 256, // of a strip that has a CTA to itself
};

/* Results side by side; the others are stretches of them. */
static int64_t columns_of(const reduce_view *v)
{
    return v->kind.kept ? v->kept[v->kind.kept - 1].extent : 1;
}

static int64_t stretches_of(const reduce_view *v)
{
    return v->rows / max_i64(columns_of(v), 1);
}

static bool columns_divide(const reduce_view *v, int vec)
{
    return columns_of(v) % vec == 0 && strides_divide(v->kept, v->kind.kept - 1, vec) &&
           strides_divide(v->reduced, v->kind.reduced, vec);
}

/* CTAs that divide all results among them; each takes ragged columns or not. */
static int64_t column_tiles(const reduce_view *v, const reduce_columns_config *c, bool ragged)
{
    return ceil_div(columns_of(v), reduce_columns_width(c, ragged)) * stretches_of(v);
}

/* Whether columns that start anywhere can be loaded by vectors, and have several of them. */
static bool columns_may_be_ragged(const reduce_view *v, int vec)
{
    return v->kind.reduced == 1 && columns_of(v) >= 2 * vec;
}

/* As many lanes as leave the fewest without columns; the more, the fewer lines of memory are shared with a neighbour. */
static int ragged_lanes(const reduce_view *v, const reduce_columns_config *c)
{
    enum { LANES_MIN = 4 };
    reduce_columns_config least = *c, half = *c;
    for (half.lanes = least.lanes = WARP; half.lanes > LANES_MIN;) {
        half.lanes /= 2;
        if (half.lanes * column_tiles(v, &half, true) < least.lanes * column_tiles(v, &least, true))
            least = half;
    }
    return least.lanes;
}

static ckl_status check_columns(const reduce_view *v)
{
    if (v->kind.kept == 0 || v->kept[v->kind.kept - 1].stride != 1)
        FAIL(CKL_UNSUPPORTED, "reduce columns: neighbouring results are not made of neighbouring elements");
    return CKL_OK;
}

/* Strips of a CTA each: one line of memory wide. Short ones are wider, where that makes fewer waves and none less full. */
static int strip_lanes(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *c)
{
    enum { SHORT = 4096, PERCENT_LESS = 3 };
    const int64_t fit = (int64_t)device->sm_count * c->ctas_per_sm;
    reduce_columns_config wide = *c;
    int lanes = NARROW_LANES;
    double narrow_share = 0;
    for (wide.lanes = NARROW_LANES; wide.lanes <= WARP && v->count < SHORT; wide.lanes *= 2) {
        const int64_t strips = column_tiles(v, &wide, false);
        const double share = (double)strips / (double)round_up(strips, fit);
        if (wide.lanes == NARROW_LANES)
            narrow_share = share;
        else if (100 * share >= (100 - PERCENT_LESS) * narrow_share)
            lanes = wide.lanes;
    }
    return lanes;
}

/* Layers of a CTA, then CTAs, share the elements of columns until the device is full. */
static void share_columns(const reduce_view *v, const ckl_device_info *device, bool ragged, reduce_columns_config *c)
{
    int64_t layers = c->threads / c->lanes, tiles = column_tiles(v, c, ragged);
    while (c->steps > 1 && layers * (c->steps / 2) >= v->count)
        c->steps /= 2;
    int64_t ctas = (int64_t)device->sm_count * c->ctas_per_sm, most = ceil_div(max_i64(v->count, 1), layers * c->steps);
    c->split = (int)max_i64(1, min_i64(ctas / max_i64(tiles, 1), most));
    c->compensated = compensates(&v->kind, v->count / (layers * c->steps * c->split));
}

static ckl_status choose_columns(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_columns_config *c = config;
    const reduce_view *v = desc;
    TRY(check_columns(v));
    c->kind = v->kind;
    int words = reduce_state_words(&c->kind, false), bytes = bytes_of(c->kind.dtype);
    c->vec = ACCESS_BYTES / bytes;
    while (c->vec * words > STATE_MAX || !(columns_divide(v, c->vec) || columns_may_be_ragged(v, c->vec)))
        c->vec /= 2;
    const bool ragged = !columns_divide(v, c->vec);
    int64_t wanted = (int64_t)device->sm_count * THREADS_WANTED, across = v->rows / c->vec;
    c->lanes = (int)min_i64(across >= wanted ? c->threads : WARP, power_of_two_from(ceil_div(columns_of(v), c->vec)));
    c->steps = (int)(BYTES_IN_FLIGHT / ((int64_t)c->vec * bytes));
    c->steps = (int)min_i64(c->steps, STEPS_MAX);
    c->ctas_per_sm = THREADS_WANTED / c->threads;
    const int64_t strips = ceil_div(columns_of(v), NARROW_LANES * (int64_t)c->vec) * stretches_of(v);
    const bool alone = strips >= (int64_t)device->sm_count * c->ctas_per_sm && v->count >= NARROW_LINES;
    if (ragged)
        c->lanes = ragged_lanes(v, c);
    else if (c->lanes > NARROW_LANES && c->lanes <= WARP && (alone || column_tiles(v, c, false) < NARROW_TILES))
        c->lanes = alone ? strip_lanes(v, device, c) : NARROW_LANES;
    share_columns(v, device, ragged, c);
    if (ragged && bytes < WORD_BYTES && reduce_state_words(&c->kind, c->compensated) > 1) {
        c->ctas_per_sm--; // what guards need beside two states a column does not fit the registers
        share_columns(v, device, ragged, c);
    }
    c->overlap = v->rows * v->count * bytes <= OVERLAP_BYTES;
    return CKL_OK;
}

static ckl_status admit_columns(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_columns_config *c = config;
    const reduce_view *v = desc;
    TRY(check_columns(v));
    TRY(check_kind("columns", v, &c->kind));
    TRY(check_threads("columns", c->threads, device));
    TRY(check_vectors("columns", c->vec, c->steps, c->kind.dtype));
    if (!is_power_of_two(c->lanes) || c->lanes > c->threads)
        FAIL(CKL_INVALID, "reduce columns: lanes=%d must be a power of two up to threads=%d", c->lanes, c->threads);
    if (c->split < 1)
        FAIL(CKL_INVALID, "reduce columns: split=%d is not positive", c->split);
    if (column_tiles(v, c, reduce_columns_ragged(c)) > CTAS_MAX / c->split)
        FAIL(CKL_UNSUPPORTED, "reduce columns: %" PRId64 " results are more than one launch has CTAs for", v->rows);
    return CKL_OK;
}

static int64_t columns_workspace(const ckl_plan *plan)
{
    const reduce_columns_config *c = plan->config;
    const reduce_view *v = plan->desc;
    int64_t bytes = (int64_t)WORD_BYTES * reduce_state_words(&c->kind, c->compensated);
    return workspace_for(column_tiles(v, c, reduce_columns_ragged(c)), c->split, bytes * c->lanes * c->vec);
}

static ckl_status launch_columns(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_columns_config *c = plan->config;
    const reduce_view *v = plan->desc;
    const bool may_be_ragged = reduce_columns_ragged(c);
    reduce_params p = params_for(plan, args, column_tiles(v, c, may_be_ragged));
    bool even = columns_divide(v, c->vec) && is_aligned(p.x, c->vec * bytes_of(c->kind.dtype)) &&
                is_aligned(p.y, min_i64(ACCESS_BYTES, c->vec * bytes_of(c->kind.output)));
    int64_t ctas = column_tiles(v, c, !even && may_be_ragged) * c->split;
    return v->rows ? plan_launch(plan, even ? 0 : 1, (plan_grid){ .x = ctas }, &p, stream) : CKL_OK;
}

static const field columns_fields[] = { REDUCE_KIND(FIELD_NESTED, (reduce_columns_config, kind))
                                            REDUCE_COLUMNS_CONFIG(FIELD_ROW, reduce_columns_config) };

const implementation reduce_columns_plans = {
    .name = "columns",
    .summary = "neighbouring threads take neighbouring results; layers of threads and CTAs share long columns",
    .config_bytes = sizeof(reduce_columns_config),
    .config = FIELD_TABLE(columns_fields),
    .choose = choose_columns,
    .admit = admit_columns,
    .describe = reduce_columns,
    .kernels = 2,
    .params = &reduce_param_list,
    .workspace_bytes = columns_workspace,
    .launch = launch_columns,
};

/* The ladder */

/* What one thread adds up one after the other: the error grows with the number of elements. */
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
    TRY(check_kind("naive", v, &c->kind));
    TRY(check_threads("naive", c->threads, device));
    if (v->rows > (int64_t)CTAS_MAX * c->threads)
        FAIL(CKL_UNSUPPORTED, "reduce naive: %" PRId64 " rows are more than one launch has threads", v->rows);
    bool variance = c->kind.op == CKL_REDUCE_VAR || c->kind.op == CKL_REDUCE_STD;
    if (v->count > (variance ? NAIVE_VARIANCE_COUNT_MAX : NAIVE_COUNT_MAX))
        FAIL(CKL_UNSUPPORTED, "reduce naive: rows of %" PRId64 " elements are too long for one thread in f32",
             v->count);
    return CKL_OK;
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_ladder_config *c = plan->config;
    const reduce_view *v = plan->desc;
    reduce_params p = params_for(plan, args, 0);
    return v->rows ? plan_launch(plan, 0, (plan_grid){ .x = ceil_div(v->rows, c->threads) }, &p, stream) : CKL_OK;
}

/* Of the steps that give a row a CTA. */
static ckl_status admit_ladder(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_ladder_config *c = config;
    const reduce_view *v = desc;
    TRY(check_kind("ladder", v, &c->kind));
    TRY(check_threads("ladder", c->threads, device));
    if (v->rows > CTAS_MAX)
        FAIL(CKL_UNSUPPORTED, "reduce ladder: %" PRId64 " rows are more than one launch has CTAs", v->rows);
    return CKL_OK;
}

static ckl_status launch_ladder(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_view *v = plan->desc;
    reduce_params p = params_for(plan, args, 0);
    return v->rows ? plan_launch(plan, 0, (plan_grid){ .x = v->rows }, &p, stream) : CKL_OK;
}

/* As many threads as a row has vectors, from two warps to the default: with the others a CTA only starts later. */
static ckl_status choose_vectorized(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_ladder_config *c = config;
    TRY(choose_ladder(desc, device, config));
    int64_t vectors = ((const reduce_view *)desc)->count * bytes_of(c->kind.dtype) / ACCESS_BYTES;
    while (c->threads > LADDER_THREADS_MIN && vectors <= c->threads / 2)
        c->threads /= 2;
    return CKL_OK;
}

static ckl_status admit_vectorized(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_view *v = desc;
    if (v->kind.reduced > 1 || inner_of(v).stride != 1)
        FAIL(CKL_UNSUPPORTED, "reduce vectorized: the elements of a row do not lie in one stretch");
    return admit_ladder(desc, device, config);
}

static ckl_status launch_vectorized(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_ladder_config *c = plan->config;
    const reduce_view *v = plan->desc;
    reduce_params p = params_for(plan, args, 0);
    bool even =
        is_aligned(p.x, ACCESS_BYTES) && strides_divide(v->kept, v->kind.kept, ACCESS_BYTES / bytes_of(c->kind.dtype));
    return v->rows ? plan_launch(plan, even ? 0 : 1, (plan_grid){ .x = v->rows }, &p, stream) : CKL_OK;
}

static const field ladder_fields[] = { REDUCE_KIND(FIELD_NESTED, (reduce_ladder_config, kind))
                                           REDUCE_LADDER_CONFIG(FIELD_ROW, reduce_ladder_config) };

#define LADDER_STEP(step, about, chosen, admitted, launched, kernel_count)                       \
    const implementation reduce_##step##_plans = { .name = #step,                                \
                                                   .summary = "a step of the ladder: " about,    \
                                                   .config_bytes = sizeof(reduce_ladder_config), \
                                                   .config = FIELD_TABLE(ladder_fields),         \
                                                   .choose = chosen,                             \
                                                   .admit = admitted,                            \
                                                   .describe = reduce_##step,                    \
                                                   .kernels = kernel_count,                      \
                                                   .params = &reduce_param_list,                 \
                                                   .launch = launched }

LADDER_STEP(vectorized, "one CTA a row, 16 bytes a load, warp shuffles", choose_vectorized, admit_vectorized,
            launch_vectorized, 2);
LADDER_STEP(shuffle, "one CTA a row, merged by warp shuffles", choose_ladder, admit_ladder, launch_ladder, 1);
LADDER_STEP(improved, "one CTA a row, merged by a tree in shared memory", choose_ladder, admit_ladder, launch_ladder,
            1);
LADDER_STEP(naive, "one thread a row", choose_ladder, admit_naive, launch_naive, 1);
