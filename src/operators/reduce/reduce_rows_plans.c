/* reduce_rows_plans.c - rows and cluster: which reductions they take, with which config, and their launch. */
#include "operators/reduce/reduce_plans.h"

enum {
    SLOT_BYTES = 8,              // of 32 bits of a state
    SMALL_TILE = 128 * 8,        // vectors of a CTA of a small x
    PREFETCHED_BYTES = 96 << 20, // of an x that is asked for early
    CLUSTER_ROW_BYTES = 1 << 19, // longer rows want more CTAs than a cluster has
};

/* Vectors need not divide rows, but rows of few vectors that start anywhere would be all edges. */
static int choose_row_vec(const reduce_view *v, ckl_dtype dtype)
{
    int vec = REDUCE_VECTOR_BYTES / reduce_bytes_of(dtype);
    reduce_mode inner = reduce_inner(v);
    bool even = inner.extent % vec == 0 && reduce_divides(v->kept, v->kept_count, vec) &&
                reduce_divides(v->reduced, v->reduced_count - 1, vec);
    if (inner.stride != 1 || (!even && inner.extent < 16 * vec))
        return 1;
    return vec;
}

/* Vectors of a row, its segments not joined. */
static int64_t vectors_of(const reduce_view *v, const reduce_rows_config *c)
{
    int64_t inner = reduce_inner(v).extent;
    return ceil_div(inner, c->vec) * (v->count / max_i64(inner, 1));
}

static int64_t row_tiles(const reduce_view *v, const reduce_rows_config *c)
{
    int64_t inner = reduce_inner(v).extent, tile = (int64_t)c->lanes * c->vec * c->steps;
    return ceil_div(inner, tile) * (v->count / max_i64(inner, 1));
}

/* No more vectors than a stretch of the row has. */
static void shorten_steps(const reduce_view *v, reduce_rows_config *c)
{
    while (c->steps > 1 && (int64_t)c->lanes * c->vec * (c->steps / 2) >= reduce_inner(v).extent)
        c->steps /= 2;
}

/* So many lanes that each has about 4 vectors. */
static void choose_lanes(const reduce_view *v, reduce_rows_config *c)
{
    c->threads = 256;
    c->lanes = (int)min_i64(REDUCE_WARP, reduce_power_from(ceil_div(max_i64(vectors_of(v, c), 1), 4)));
    c->steps = 4;
    shorten_steps(v, c);
}

/*
 * Few rows, several CTAs each (bench/notes/reduce.md). Where all of x fits in one tile of two CTAs an SM, small CTAs with
 * many vectors in flight are first done; each thread of the last one receives one state, and 32 of them or less are merged
 * by a single warp. Large x gets full SMs, in larger CTAs if it is asked for early. States of several registers leave room
 * for fewer vectors in flight, and so do elements of 8 bytes.
 */
static void choose_shared(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    int64_t vectors = vectors_of(v, c) * max_i64(v->rows, 1), ctas = 2 * (int64_t)device->sm_count;
    bool light = reduce_state_size(c->op, c->dtype, c->output, false) == 1 && reduce_bytes_of(c->dtype) <= 4;
    bool small = vectors <= ctas * SMALL_TILE, many = vectors > 128 * SMALL_TILE;
    c->prefetch = vectors * c->vec * reduce_bytes_of(c->dtype) <= PREFETCHED_BYTES;
    c->threads = small ? (many ? 256 : 128) : light && !c->prefetch ? 256 : 512;
    c->lanes = c->threads;
    c->steps = light ? (small ? SMALL_TILE / c->threads : 8) : 4;
    while (small && c->steps > 1 && vectors < (int64_t)REDUCE_WARP * c->threads * c->steps)
        c->steps /= 2;
    shorten_steps(v, c);
    if (light && !small) {
        c->ctas_per_sm = REDUCE_THREADS_WANTED / c->threads;
        ctas = (int64_t)device->sm_count * c->ctas_per_sm;
    }
    int64_t tiles = max_i64(row_tiles(v, c), 1), most = max_i64(1, ctas / max_i64(v->rows, 1));
    most = min_i64(most, 2 * c->threads);                   // then a thread of the last CTA receives two states at most
    c->split = (int)ceil_div(tiles, ceil_div(tiles, most)); // all have the same number of tiles, or one less
}

/* Rows of a warp's length or less share CTAs; many long ones have a CTA each. */
static void choose_row_config(const ckl_reduce_desc *d, const reduce_view *v, const ckl_device_info *device,
                              reduce_rows_config *c)
{
    reduce_problem_fields p = reduce_problem_of(d);
    c->op = p.op;
    c->dtype = p.dtype;
    c->output = p.output;
    c->kept = p.kept;
    c->reduced = p.reduced;
    c->vec = choose_row_vec(v, d->dtype);
    c->strided = reduce_inner(v).stride != 1;
    int64_t vectors = vectors_of(v, c);
    if (vectors <= REDUCE_WARP || (vectors <= 8 * REDUCE_WARP && v->rows >= device->sm_count))
        choose_lanes(v, c);
    else if (v->rows < 4 * device->sm_count)
        choose_shared(v, device, c);
    else {
        c->threads = c->lanes = 256;
        shorten_steps(v, c);
    }
}

static ckl_status choose_rows(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_rows_config *c = config;
    reduce_view v = reduce_view_of(desc);
    choose_row_config(desc, &v, device, c);
    c->compensated = reduce_compensates(desc, row_tiles(&v, c) / c->split);
    return CKL_OK;
}

static ckl_status choose_rows_sm80(const void *desc, const ckl_device_info *device, void *config)
{
    if (device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "reduce rows_sm80: rows is made for this device");
    return choose_rows(desc, device, config);
}

static ckl_status choose_cluster(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_reduce_desc *d = desc;
    reduce_rows_config *c = config;
    reduce_view v = reduce_view_of(desc);
    int64_t row_bytes = v.count * reduce_bytes_of(d->dtype), ctas = device->sm_count / max_i64(v.rows, 1);
    choose_row_config(desc, &v, device, c);
    if (row_bytes > CLUSTER_ROW_BYTES || c->lanes != c->threads)
        FAIL(CKL_UNSUPPORTED, "reduce cluster: rows of %" PRId64 " bytes do not suit one cluster", row_bytes);
    c->split = 1;
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
    TRY(reduce_check_problem(who, desc, (reduce_problem_fields){ c->op, c->dtype, c->output, c->kept, c->reduced }));
    TRY(reduce_check_threads(who, c->threads, device));
    TRY(reduce_check_vectors(who, c->vec, c->steps, c->dtype));
    if (c->strided != (reduce_inner(&v).stride != 1) || (c->strided && c->vec > 1))
        FAIL(CKL_UNSUPPORTED, "reduce %s: strided=%d vec=%d does not fit elements %" PRId64 " apart", who, c->strided,
             c->vec, reduce_inner(&v).stride);
    if (c->lanes != c->threads && (!is_power_of_two(c->lanes) || c->lanes > REDUCE_WARP))
        FAIL(CKL_INVALID, "reduce %s: lanes=%d must be a power of two up to 32, or threads=%d", who, c->lanes,
             c->threads);
    if (c->split < 1 || c->cluster < 1 || (c->split > 1 && c->cluster > 1) ||
        (c->split * c->cluster > 1 && c->lanes != c->threads))
        FAIL(CKL_INVALID, "reduce %s: split=%d cluster=%d: one of them is 1, both where lanes < threads", who, c->split,
             c->cluster);
    int64_t ctas_per_row = (int64_t)c->split * c->cluster, rows_per_cta = c->threads / c->lanes;
    if (v.rows > REDUCE_CTAS_MAX / ctas_per_row * rows_per_cta)
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
    int64_t words = reduce_state_size(c->op, c->dtype, c->output, c->compensated);
    return reduce_workspace(reduce_view_of(plan->desc).rows, c->split, SLOT_BYTES * words);
}

static ckl_status launch_rows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_rows_config *c = plan->config;
    int64_t rows = reduce_view_of(plan->desc).rows, rows_per_cta = c->threads / c->lanes;
    reduce_launch l = reduce_launch_of(plan, args, rows);
    bool even = reduce_is_aligned(l.x, c->vec * reduce_bytes_of(c->dtype)) && reduce_inner(&l.v).extent % c->vec == 0 &&
                reduce_divides(l.v.kept, l.v.kept_count, c->vec) &&
                reduce_divides(l.v.reduced, l.v.reduced_count - 1, c->vec);
    if (rows == 0)
        return CKL_OK;
    int64_t ctas = ceil_div(rows, rows_per_cta);
    if (c->resident && c->lanes < c->threads)
        ctas = min_i64(ctas, (int64_t)c->resident * plan->device->info.sm_count);
    return reduce_enqueue(plan, even ? 0 : 1, ctas * c->split * c->cluster, &l, stream);
}

static const field rows_fields[] = { REDUCE_ROWS_CONFIG(FIELD_ROW) };

#define ROWS(called, says, chosen, admitted, lowest)                                                      \
    {                                                                                                     \
        .name = called, .summary = says, .config_bytes = sizeof(reduce_rows_config),                      \
        .config = FIELD_TABLE(rows_fields), .choose = chosen, .admit = admitted, .describe = reduce_rows, \
        .kernels = 2, .target = lowest, .workspace_bytes = rows_workspace, .launch = launch_rows,         \
    }

const implementation reduce_cluster_plans =
    ROWS("cluster", "a cluster of CTAs a row, merged through distributed shared memory; Hopper", choose_cluster,
         admit_cluster, IR_SM90A);
const implementation reduce_rows_plans =
    ROWS("rows", "a few lanes a row, a CTA, or several CTAs of which the last finishes the row", choose_rows,
         admit_rows, IR_SM90A);
const implementation reduce_rows_sm80_plans =
    ROWS("rows_sm80", "the same where the start of a kernel cannot overlap the end of the one before", choose_rows_sm80,
         admit_rows, IR_SM80);
