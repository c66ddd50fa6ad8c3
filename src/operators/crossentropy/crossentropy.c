/* crossentropy.c - cross-entropy and its gradient: validation, choice of kernel, launch. */
#include "cutekernellib/operators/crossentropy.h"

#include <math.h>

#include "operators/crossentropy/crossentropy_config.h"
#include "operators/operators.h"
#include "skeletons/residency.h"

/* Validation */

/* Is there nothing to write? The mean of no rows is NaN. */
static bool is_empty(const ckl_crossentropy_desc *d)
{
    return d->rows == 0 && !(d->direction == CKL_DIRECTION_FORWARD && d->reduction == CKL_LOSS_MEAN);
}

static ckl_status check(void *desc)
{
    ckl_crossentropy_desc *d = desc;
    if (d->cols == 0 && d->rows > 0)
        FAIL(CKL_INVALID, "crossentropy: cols=0 is less than 1");
    TRY(plan_check_pitch("crossentropy", "ldx", &d->ldx, "cols", d->cols));
    if (d->direction == CKL_DIRECTION_BACKWARD)
        return plan_check_pitch("crossentropy", "lddx", &d->lddx, "cols", d->cols);
    return plan_check_unused("crossentropy", "lddx", d->lddx, "a forward problem");
}

/* A number for each row: written forward, read backward. */
static plan_tensor numbers(const ckl_crossentropy_desc *d, const char *name, int64_t rows)
{
    if (d->direction == CKL_DIRECTION_BACKWARD)
        return plan_vector(name, CKL_F32, rows);
    return plan_output(plan_column(name, CKL_F32, rows));
}

static int tensors(const void *desc, plan_tensor *t)
{
    const ckl_crossentropy_desc *d = desc;
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD, is_mean = d->reduction == CKL_LOSS_MEAN;
    const int64_t rows = d->rows, losses = is_empty(d) ? 0 : is_mean ? 1 : rows;
    const char *forward_only = is_forward ? NULL : "a backward problem";
    const char *backward_only = is_forward ? "a forward problem" : NULL;
    t[0] = plan_matrix("x", d->dtype, rows, d->cols, d->ldx);
    t[1] = plan_vector("target", d->target, rows);
    t[2] = plan_absent(numbers(d, "loss", losses), forward_only);
    t[3] = numbers(d, "lse", rows);
    t[4] = plan_absent(numbers(d, "count", losses), is_mean ? NULL : "losses without mean");
    t[5] = plan_absent(plan_vector("dloss", CKL_F32, losses), backward_only);
    t[6] = plan_absent(plan_output(plan_matrix("dx", d->dtype, rows, d->cols, d->lddx)), backward_only);
    t[7] = plan_absent(plan_vector("weight", d->dtype, d->cols), d->weighted ? NULL : "losses without weights");
    t[8] = plan_absent(numbers(d, "weight_sum", rows ? 1 : 0),
                       d->weighted && d->smoothing > 0 ? NULL : "losses without weights that are smoothed");
    return 9;
}

/* Choice */

enum {
    CTAS_MAX = INT32_MAX,
    TILES_MAX = 65535,  // of a row, backward: CTAs along y
    ELEMENTS = 32,      // of a thread in a tile
    ELEMENTS_HALF = 64, // forward, of rows of 16 bits that few threads share
    FEW_THREADS = 128,
    TILE_THREADS = 512,
    LONG_COLS = TILE_THREADS / 2 * ELEMENTS, // longer rows have a CTA each, or several
};

static int vec_of(const ckl_crossentropy_desc *d)
{
    return row_vec(d->dtype, d->rows, d->cols, d->ldx, d->lddx);
}

/* Do rows start or end off 16-byte boundaries? */
static bool is_ragged(const ckl_crossentropy_desc *d)
{
    return vec_of(d) != row_vec_full(d->dtype);
}

/* Backward, threads of long rows' tiles, that leave the fewest idle in the last one. */
static void fit_tiles(const ckl_crossentropy_desc *d, row_split *s)
{
    int64_t least = INT64_MAX;
    for (int threads = TILE_THREADS; threads >= TILE_THREADS / 4; threads /= 2) {
        const int64_t all = round_up(d->cols / s->vec, (int64_t)threads * s->steps);
        if (all < least)
            s->threads = s->row_threads = threads;
        least = min_i64(least, all);
    }
}

static bool is_long(const ckl_crossentropy_desc *d)
{
    return d->direction == CKL_DIRECTION_FORWARD && d->cols > LONG_COLS;
}

/* Bytes that an SM reads in a us where so many are on their way; all SMs together have less. */
static double sm_rate(double bytes)
{
    const double MOST = 43e3, HALF_AT = 14e3;
    return MOST * bytes / (bytes + HALF_AT);
}

/*
 * Forward, long rows: SMs take CTAs in turns of as many as fit, which begin and end together, and in the last turn what
 * is left: an SM with one row more than others decides. Clusters are dealt out to GPCs in turn, which have unequally
 * many SMs. Us on an H200, and as predicted: 577x30522 f32 by CTAs of 128 threads 19.2, 20.9; 8192x50257 bf16 192, 193;
 * 384x152064 bf16 by 256 threads 31.9, 31.4.
 */
static plan_cost cost_long(const ckl_crossentropy_desc *d, const ckl_device_info *device, const row_split *s)
{
    enum { THREADS_OF_SM = 1024 };
    const double START = 3.3, TURN = 0.7, CLUSTER = 0.75, UNEVEN = 1.25, START_ALL = 2.5, BYTES_ALL = 4.5e6; // us
    const int64_t sms = device->sm_count, fit = max_i64(1, THREADS_OF_SM / s->threads), ctas = d->rows * s->cluster;
    const int64_t turns = max_i64(1, ceil_div(ctas, fit * sms)), left = ctas - (turns - 1) * fit * sms;
    const double uneven = s->cluster > 1 ? UNEVEN : 1;
    const double of_sm = fmin((double)fit, ceil((double)left * uneven / (double)sms)); // in the last turn
    const double row = (double)(d->cols * dtype_bytes(d->dtype)), bytes = row / s->cluster;
    const double tile = fmin(bytes, (double)(s->threads * s->vec * s->steps * dtype_bytes(d->dtype)));
    const double full = bytes * (double)fit / sm_rate(tile * (double)fit), last = bytes * of_sm / sm_rate(tile * of_sm);
    const double us = START + (double)(turns - 1) * full + last + (double)turns * (TURN + CLUSTER * log2(s->cluster));
    return (plan_cost){ fmax(us, START_ALL + (double)d->rows * row / BYTES_ALL), "memory" };
}

/* Threads and CTAs of a row. */
static void choose_long(const ckl_crossentropy_desc *d, const ckl_device_info *device, row_split *s)
{
    row_split t = *s;
    double least = INFINITY;
    for (t.threads = TILE_THREADS; t.threads >= FEW_THREADS; t.threads /= 2)
        for (t.cluster = 1; t.cluster <= residency_cluster_max(device); t.cluster *= 2) {
            t.row_threads = t.threads;
            t.steps = ELEMENTS / t.vec;
            t.steps = (int)min_i64(t.steps, ceil_div(d->cols, row_split_cols(&t) / t.steps));
            const double us = cost_long(d, device, &t).us;
            if (us < least)
                *s = t;
            least = fmin(least, us);
        }
}

/*
 * Forward, a thread's fixed work for a row, mostly reductions, costs as much as 25 elements. So few threads take many
 * elements of 16 bits, where that leaves warps enough. On an H200: 49848x1408 60.4 us by 64 threads, 36.8 by 32;
 * 122368x416 35.3 by 16, 31.4 by 8 (bench/notes/norm.md). False: rows are longer, or few.
 */
static bool choose_few_threads(const ckl_crossentropy_desc *d, const ckl_device_info *device, row_split *s)
{
    enum { WARPS_OF_SM = 16 };
    const int registers = ELEMENTS_HALF / 2;
    if (d->direction == CKL_DIRECTION_BACKWARD || d->dtype == CKL_F32)
        return false;
    const bool found = is_ragged(d) ? row_split_choose_ragged(d->cols, d->dtype, registers, 1, s)
                                    : row_split_choose(d->cols, vec_of(d), d->dtype, registers, 1, s);
    return found && s->row_threads <= FEW_THREADS && s->vec * s->steps <= ELEMENTS_HALF &&
           d->rows * s->row_threads >= 32 * WARPS_OF_SM * (int64_t)device->sm_count;
}

/* Other rows: short ones in registers of some threads, long ones by tiles of a CTA. */
static void choose_tiles(const ckl_crossentropy_desc *d, const ckl_device_info *device, row_split *s)
{
    const int vec = row_vec_full(d->dtype), registers = ELEMENTS * dtype_bytes(d->dtype) / 4;
    const bool ragged = is_ragged(d);
    if (!(ragged && row_split_choose_ragged(d->cols, d->dtype, registers, 1, s)) &&
        !row_split_choose(d->cols, vec_of(d), d->dtype, registers, 1, s))
        *s = (row_split){ TILE_THREADS, TILE_THREADS, 1, vec, ELEMENTS / vec, .ragged = ragged };
    s->steps = (int)min_i64(s->steps, max_i64(1, ELEMENTS / s->vec)); // the rest in further tiles
    row_split_widen(s, d->rows, d->cols, d->dtype, 1 + (d->direction == CKL_DIRECTION_BACKWARD), device);
    if (is_long(d))
        choose_long(d, device, s);
    else if (d->direction == CKL_DIRECTION_BACKWARD && s->row_threads == TILE_THREADS)
        fit_tiles(d, s);
}

/* As many CTAs as have a row for each thread: a thread mostly waits for two dependent loads. */
static void choose_mean(const ckl_crossentropy_desc *d, const ckl_device_info *device, crossentropy_config *c)
{
    const int64_t rows = CROSSENTROPY_MEAN_THREADS * CROSSENTROPY_ROWS_AT_ONCE;
    while (d->reduction == CKL_LOSS_MEAN && c->mean_ctas < residency_cluster_max(device) &&
           d->rows > rows * c->mean_ctas)
        c->mean_ctas *= 2;
}

static void set_form(const ckl_crossentropy_desc *d, const ckl_device_info *device, crossentropy_config *c)
{
    c->dtype = d->dtype;
    c->target = d->target;
    c->direction = (choice)d->direction;
    c->reduction = (choice)d->reduction;
    c->weighted = d->weighted;
    c->smooth = d->smoothing > 0;
    choose_mean(d, device, c);
}

static ckl_status choose_row(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_crossentropy_desc *d = desc;
    crossentropy_config *c = config;
    if (!choose_few_threads(d, device, &c->split))
        choose_tiles(d, device, &c->split);
    c->split.exact = false;
    set_form(d, device, c);
    return CKL_OK;
}

static ckl_status admit_form(const char *what, const ckl_crossentropy_desc *d, const ckl_device_info *device,
                             const crossentropy_config *c)
{
    if (c->dtype != d->dtype || c->target != d->target || c->direction != (choice)d->direction ||
        c->reduction != (choice)d->reduction || c->weighted != d->weighted || c->smooth != (d->smoothing > 0))
        FAIL(CKL_INVALID, "%s: dtype, target, direction, reduction, weighted and smooth are those of the problem",
             what);
    if (!is_power_of_two(c->mean_ctas) || c->mean_ctas > residency_cluster_max(device))
        FAIL(CKL_INVALID, "%s: mean_ctas=%d is no power of two up to %d", what, c->mean_ctas,
             residency_cluster_max(device));
    if (!c->split.ragged && vec_of(d) % c->split.vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the rows or the distances between them", what, c->split.vec);
    return CKL_OK;
}

static ckl_status admit_row(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "crossentropy row";
    const ckl_crossentropy_desc *d = desc;
    const crossentropy_config *c = config;
    const row_split *split = &c->split, scalar = row_split_scalar(split);
    if (d->direction == CKL_DIRECTION_BACKWARD && split->cluster != 1)
        FAIL(CKL_INVALID, "%s: cluster=%d, backward has none", what, split->cluster);
    TRY(row_split_admit(what, split, min_i64(d->cols, row_split_cols(split)), c->dtype, device));
    TRY(admit_form(what, d, device, c));
    if (split->exact)
        FAIL(CKL_INVALID, "%s: exact=1, but rows are taken tile by tile", what);
    if (row_split_ctas(split, d->rows) > CTAS_MAX || d->cols > INT32_MAX ||
        d->cols / row_split_cols(&scalar) >= TILES_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more CTAs than a launch may have", what);
    return CKL_OK;
}

/* Its choice with another split: rows in one tile. */
static bool candidate_row(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_crossentropy_desc *d = desc;
    crossentropy_config *c = config;
    const bool listed =
        choose_row(desc, device, config) == CKL_OK && row_split_candidate(d->cols, d->dtype, vec_of(d), i, &c->split);
    c->split.exact = false;
    return listed;
}

/* Not clusters, of which the rules say what was measured: 1029x32768 f16 took 32.1 us by two CTAs a row. */
static bool is_trusted_row(const void *config)
{
    const crossentropy_config *c = config;
    return c->split.cluster == 1 && row_split_is_trusted(&c->split, c->dtype);
}

/* Tiles of a row that are CTAs, backward; the ends of a ragged row are none. */
static int64_t tiles_of(const ckl_crossentropy_desc *d, const row_split *s)
{
    const int64_t cols = s->ragged ? d->cols - d->cols % s->vec : d->cols;
    return d->direction == CKL_DIRECTION_FORWARD ? 1 : max_i64(1, ceil_div(cols, row_split_cols(s)));
}

static plan_cost cost_row(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_crossentropy_desc *d = desc;
    const crossentropy_config *c = config;
    if (is_long(d))
        return cost_long(d, device, &c->split);
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    const int64_t tiles = tiles_of(d, &c->split);
    const memory_kernel forward = { .us = 0.3, .wait_cycles = -700 },
                        backward = { .us = 0.5, .wait_cycles = -2000, .lines = 1.5 };
    const row_work work = { .of = is_forward ? forward : backward,
                            .rows = d->rows * tiles,
                            .cols = ceil_div(d->cols, tiles),
                            .dtype = d->dtype,
                            .inputs = 1,
                            .outputs = !is_forward,
                            .tile_cycles = 600 };
    return row_cost(&work, &c->split, device);
}

/* Rows that flow */

enum { FLOW_THREADS = 256, FLOW_STEPS = 4, FLOW_STAGES = 24, FLOW_BYTES = 2 << 20 };

/* Clusters of 1, 2, 4 ... CTAs, by chunks of 4, 3, 2 and 1 vectors a thread, of rows past 2^19 f32 twice as many. */
static bool candidate_pipeline(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_crossentropy_desc *d = desc;
    crossentropy_config *c = config;
    const bool spills = d->weighted && d->smoothing > 0;
    const int times = !spills && d->cols * dtype_bytes(d->dtype) > FLOW_BYTES ? 2 : 1;
    const int cluster = 1 << i / FLOW_STEPS, steps = times * (FLOW_STEPS - i % FLOW_STEPS);
    if (!is_long(d) || cluster > row_pipeline_cluster_max(device))
        return false;
    c->split =
        (row_split){ FLOW_THREADS, FLOW_THREADS, cluster, row_vec_full(d->dtype), steps, .ragged = is_ragged(d) };
    const int64_t chunks = max_i64(1, ceil_div(d->cols, row_split_cols(&c->split)));
    c->flow = (row_flow){ .stages = FLOW_STAGES / steps,
                          .residence = ROW_IN_REGISTERS,
                          .chunks = (int)min_i64(chunks, ROW_PIPELINE_CHUNKS_MAX + 1) };
    set_form(d, device, c);
    return true;
}

/*
 * Clusters take rows in turns. A row takes its CTAs the time of its bytes; or, once the ring is full, of the elements
 * of its chunks and of its reduction. Us on an H200, and as predicted: 197x108416 f32 23.0, 22.9; 577x128256 f16 by
 * pairs 38.4, 40; 197x130504 bf16 19.3, 19.4.
 */
static plan_cost cost_pipeline(const void *desc, const ckl_device_info *device, const void *config)
{
    const double START = 4, FILL = 2, BYTES = 17.2e3, COMPUTED = 11.8e3, REDUCE = 0.6, REDUCE_CLUSTER = 0.9,
                 ENDS = 0.3; // us
    const ckl_crossentropy_desc *d = desc;
    const crossentropy_config *c = config;
    const int cluster = c->split.cluster, element = dtype_bytes(d->dtype);
    const int64_t clusters = max_i64(1, CROSSENTROPY_FLOW_CTAS * (int64_t)device->sm_count / cluster);
    const double bytes = (double)(d->cols * element) / cluster, turns = (double)ceil_div(d->rows, clusters);
    const double elements = (double)(c->flow.chunks * row_split_cols(&c->split)) / cluster;
    const double ring = (double)(c->flow.stages * row_split_cols(&c->split) * element) / cluster;
    const double computed = elements / COMPUTED + (cluster > 1 ? REDUCE_CLUSTER : REDUCE);
    const double us = fmax(START + turns * bytes / BYTES, FILL + fmin(ring, turns * bytes) / BYTES + turns * computed);
    return (plan_cost){ us + (c->split.ragged ? turns * ENDS : 0), "memory" };
}

static ckl_status admit_pipeline(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "crossentropy pipeline";
    const ckl_crossentropy_desc *d = desc;
    const crossentropy_config *c = config;
    const row_pipeline_split split = row_pipeline_split_of(&c->split, &c->flow);
    if (d->direction == CKL_DIRECTION_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "%s: gradients have nothing to add up", what);
    if (c->split.ragged && d->cols < 2 * row_vec_full(d->dtype))
        FAIL(CKL_UNSUPPORTED, "%s: cols=%" PRId64 " may be less than a vector between 16-byte boundaries", what,
             d->cols);
    TRY(row_pipeline_admit(what, &split, d->cols, c->dtype, 1, CROSSENTROPY_FLOW_VALUES, device));
    TRY(row_pipeline_dynamic_admit(what, &split, d->cols));
    TRY(admit_form(what, d, device, c));
    if (d->rows > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: rows=%" PRId64 " are more than %d", what, d->rows, INT32_MAX);
    return CKL_OK;
}

/* Launch */

/* Are rows, or the vectors of ragged rows, where the kernel of vectors wants them? */
static bool is_aligned(const ckl_crossentropy_desc *d, const row_split *split, const ckl_crossentropy_args *a)
{
    if (!split->ragged)
        return PLAN_ALIGNED(split->vec * dtype_bytes(d->dtype), a->x, a->dx, d->smoothing > 0 ? a->weight : NULL);
    return d->direction == CKL_DIRECTION_FORWARD ||
           (row_starts_in_phase(a->x, a->dx) && row_in_phase(d->dtype, d->rows, d->ldx, d->lddx));
}

static bool is_mean(const ckl_crossentropy_desc *d)
{
    return d->direction == CKL_DIRECTION_FORWARD && d->reduction == CKL_LOSS_MEAN;
}

/* Of rows that flow; losses lie behind it. */
static int64_t counter_bytes(const crossentropy_config *c)
{
    return c->flow.stages ? 16 : 0;
}

/* The rows' losses and counts, from the kernel of rows to that of the mean; the counter of rows that flow. */
static int64_t workspace_bytes(const ckl_plan *plan)
{
    const ckl_crossentropy_desc *d = plan->desc;
    const crossentropy_config *c = plan->config;
    return counter_bytes(c) + (is_mean(d) ? 2 * d->rows * (int64_t)sizeof(float) : 0);
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const crossentropy_config *c = plan->config;
    const ckl_crossentropy_desc *d = plan->desc;
    const ckl_crossentropy_args *a = args;
    const bool aligned = is_aligned(d, &c->split, a);
    const bool flows = c->flow.stages && aligned; // as many CTAs as fit take the rows
    char *counter = plan_workspace(plan, a->workspace);
    float *losses = is_mean(d) ? (float *)(counter + counter_bytes(c)) : NULL;
    const crossentropy_params params = {
        .rows = d->rows,
        .cols = d->cols,
        .x = a->x,
        .ldx = d->ldx,
        .target = a->target,
        .loss = a->loss,
        .lse = a->lse,
        .count = a->count,
        .dloss = a->dloss,
        .dx = a->dx,
        .lddx = d->lddx,
        .ignore_index = d->ignore_index,
        .weight = a->weight,
        .weight_sum = a->weight_sum,
        .keep = 1 - d->smoothing,
        .spread = d->smoothing / (float)max_i64(d->cols, 1),
        .losses = losses ? losses : a->loss,
        .counts = losses ? losses + d->rows : NULL,
        .counter = counter,
    };
    const int64_t resident = min_i64(d->rows, plan->kernels[0].clusters_resident) * c->split.cluster;
    const int shared = c->flow.stages ? c->split.cluster : 1; // of flowing rows that are not aligned each has one CTA
    const int64_t ctas = row_split_ctas(&c->split, d->rows) / shared;
    const plan_grid grid = { .x = flows ? resident : ctas, .y = tiles_of(d, &c->split) };
    TRY(plan_launch(plan, aligned ? CROSSENTROPY_VECTORS : CROSSENTROPY_ELEMENTS, grid, &params, stream));
    if (!is_mean(d))
        return CKL_OK;
    return plan_launch(plan, CROSSENTROPY_MEAN, (plan_grid){ .x = c->mean_ctas }, &params, stream);
}

static const field desc_fields[] = { CROSSENTROPY_DESC(FIELD_ROW, ckl_crossentropy_desc) };
static const field fields[] = {
    CROSSENTROPY_DESC(FIELD_NESTED, (crossentropy_problem, desc))                                                //
    FIELD_ROW(crossentropy_problem, int64_t, target_low, "0", "", "the smallest target; it need not be a class") //
};
static const field row_fields[] = { CROSSENTROPY_CONFIG(FIELD_ROW, crossentropy_config) //
                                    ROW_SPLIT(FIELD_NESTED, (crossentropy_config, split)) };
static const field pipeline_fields[] = { CROSSENTROPY_CONFIG(FIELD_ROW, crossentropy_config)   //
                                         ROW_SPLIT(FIELD_NESTED, (crossentropy_config, split)) //
                                         ROW_FLOW(FIELD_NESTED, (crossentropy_config, flow)) };

#define IMPLEMENTATION(called, about, ...)                                                        \
    static const implementation called##_kernels = { .name = #called,                             \
                                                     .summary = about,                            \
                                                     .config_bytes = sizeof(crossentropy_config), \
                                                     .config = FIELD_TABLE(called##_fields),      \
                                                     .candidate = candidate_##called,             \
                                                     .cost = cost_##called,                       \
                                                     .admit = admit_##called,                     \
                                                     .describe = crossentropy_describe,           \
                                                     .kernels = CROSSENTROPY_KERNELS,             \
                                                     .params = &crossentropy_param_list,          \
                                                     .launch = launch,                            \
                                                     .workspace_bytes = workspace_bytes,          \
                                                     __VA_ARGS__ }

IMPLEMENTATION(row, "a row by some lanes, a warp, a CTA or a cluster, tile by tile; read once", .choose = choose_row,
               .is_trusted = is_trusted_row);
IMPLEMENTATION(pipeline, "rows flow through shared memory ahead of the threads; CTAs or clusters take them one by one",
               .target = IR_SM90A, .rivals = { &row_kernels });

static const implementation *const implementations[] = { &pipeline_kernels, &row_kernels, NULL };

OPERATOR(crossentropy, crossentropy, "cross-entropy of logits and class numbers, and its gradient",
         .workspace = offsetof(ckl_crossentropy_args, workspace));
OPERATOR_LINE(crossentropy, crossentropy_problem, NULL);
