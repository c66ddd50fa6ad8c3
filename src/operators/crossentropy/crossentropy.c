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
    TILES_MAX = 65535,   // of a row, backward: CTAs along y
    ELEMENTS = 32,       // of a thread in a tile
    ELEMENTS_WHOLE = 36, // of one that is a whole row: 128x18432 f32 5.21 us, in two tiles 5.74
    ELEMENTS_HALF = 64,  // forward, of rows of 16 bits that few threads share
    ELEMENTS_BOUNDED = 48,
    FEW_THREADS = 128,
    CTA_THREADS = 64, // of several rows
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

/* Rows in one tile, of so many registers a thread. */
static bool split_whole(const ckl_crossentropy_desc *d, int registers, row_split *s)
{
    return (is_ragged(d) && row_split_choose_ragged(d->cols, d->dtype, registers, 1, s)) ||
           row_split_choose(d->cols, vec_of(d), d->dtype, registers, 1, s);
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
 * is left: an SM with one CTA more than others decides. Us on an H200, and as predicted: 577x30522 f32 by CTAs of 128
 * threads 19.2, 20.6; 8192x50257 bf16 192, 188; 384x152064 bf16 by 256 threads 31.9, 31.3.
 */
static plan_cost cost_long(const ckl_crossentropy_desc *d, const ckl_device_info *device, const row_split *s, int parts)
{
    enum { THREADS_OF_SM = 1024 };
    const double START = 3.3, TURN = 0.7, MERGE = 1.6, START_ALL = 2.5, BYTES_ALL = 4.5e6; // us
    const int64_t ctas = max_i64(1, d->rows * parts), sms = device->sm_count;
    const int64_t fit = max_i64(1, THREADS_OF_SM / s->threads);
    const int64_t turns = ceil_div(ctas, fit * sms), left = ctas - (turns - 1) * fit * sms;
    const int64_t of_sm = ceil_div(left, sms), cols = row_split_cols(s); // in the last turn; of a tile
    const int element = dtype_bytes(d->dtype);
    const double bytes = (double)(min_i64(d->cols, ceil_div(ceil_div(d->cols, cols), parts) * cols) * element);
    const double tile = fmin(bytes, (double)(cols * element));
    const double full = bytes * (double)fit / sm_rate(tile * (double)fit);
    const double last = bytes * (double)of_sm / sm_rate(tile * (double)of_sm);
    const double us = START + (double)(turns - 1) * full + last + (double)turns * TURN + (parts > 1 ? MERGE : 0);
    const double all = START_ALL + (double)d->rows * (double)(d->cols * element) / BYTES_ALL;
    return (plan_cost){ fmax(us, all), "memory" };
}

/* The next number of parts that leaves each fewer tiles: those between cost more. */
static int64_t more_parts(int64_t tiles, int64_t parts)
{
    const int64_t of_each = ceil_div(tiles, parts);
    return of_each > 1 ? ceil_div(tiles, of_each - 1) : INT64_MAX;
}

/* Threads of a CTA and CTAs of a row. */
static void choose_long(const ckl_crossentropy_desc *d, const ckl_device_info *device, crossentropy_config *c)
{
    row_split s = c->split;
    double least = INFINITY;
    for (s.threads = TILE_THREADS; s.threads >= FEW_THREADS; s.threads /= 2) {
        s.row_threads = s.threads;
        const int64_t whole = ceil_div(d->cols, s.threads * s.vec);
        s.steps = (int)(whole * s.vec <= ELEMENTS_WHOLE ? whole : ELEMENTS / s.vec);
        const int64_t tiles = ceil_div(d->cols, row_split_cols(&s)), most = min_i64(FEW_THREADS, tiles);
        for (int64_t parts = 1; parts <= most; parts = more_parts(tiles, parts)) {
            const double us = cost_long(d, device, &s, (int)parts).us;
            if (us < least) {
                c->split = s;
                c->parts = (int)parts;
            }
            least = fmin(least, us);
        }
    }
}

/*
 * Forward, what a row of 16 bits costs in elements of a thread: its fixed work, mostly reductions, as much as 25, that
 * of a tile 6; tiles of more than ELEMENTS leave room for half the threads. On an H200: 122368x416 35.3 us by 16
 * threads, 31.4 by 8; 47104x1499 45.5 in one tile by 32, 38.8 in two, 36.6 in three by 16.
 */
static double work_of(int64_t cols, const row_split *s)
{
    const double ROW = 25, TILE = 6, HALF_THREADS = 1.1;
    const int64_t tiles = ceil_div(cols, row_split_cols(s));
    const int elements = s->vec * s->steps;
    return s->row_threads * (ROW + (double)tiles * (elements + TILE)) * (elements > ELEMENTS ? HALF_THREADS : 1);
}

/*
 * Several tiles, whose loads follow each other, if all threads run in many turns; not of whole vectors that bounded
 * registers hold in one: 17976x5504 f16 45.7 us, in three tiles 49.4. Less than a warp only of ragged rows: 43264x7040
 * bf16 by 32 threads 141.2, by 16 145.3.
 */
static void share_among_tiles(const ckl_crossentropy_desc *d, const ckl_device_info *device, row_split *s)
{
    enum { TURNS = 5, THREADS_OF_SM = 1024, THREADS_MIN = 32, STEPS_MIN = 2 };
    const int least = s->ragged ? THREADS_MIN / 2 : THREADS_MIN;
    row_split tiles = *s;
    if (!s->ragged && d->smoothing == 0 && s->vec * s->steps <= ELEMENTS_BOUNDED)
        return;
    for (int n = FEW_THREADS; n >= least && d->rows * n >= TURNS * THREADS_OF_SM * (int64_t)device->sm_count; n /= 2)
        for (tiles.steps = ELEMENTS / s->vec; tiles.steps >= STEPS_MIN; tiles.steps--) {
            tiles.row_threads = n;
            tiles.threads = (int)max_i64(n, CTA_THREADS);
            if (work_of(d->cols, &tiles) < work_of(d->cols, s))
                *s = tiles;
        }
}

/* Few threads take many elements of 16 bits, where that leaves warps enough. False: rows are longer, or few. */
static bool choose_few_threads(const ckl_crossentropy_desc *d, const ckl_device_info *device, row_split *s)
{
    enum { WARPS_OF_SM = 16 };
    const int registers = ELEMENTS_HALF / 2;
    if (d->direction == CKL_DIRECTION_BACKWARD || d->dtype == CKL_F32 || !split_whole(d, registers, s) ||
        s->ragged != is_ragged(d) || s->row_threads > FEW_THREADS || s->vec * s->steps > ELEMENTS_HALF ||
        d->rows * s->row_threads < 32 * WARPS_OF_SM * (int64_t)device->sm_count)
        return false;
    share_among_tiles(d, device, s);
    return true;
}

/* Other rows: short ones in registers of some threads, long ones by tiles of a CTA. */
static void choose_tiles(const ckl_crossentropy_desc *d, const ckl_device_info *device, crossentropy_config *c)
{
    const int vec = row_vec_full(d->dtype), registers = ELEMENTS * dtype_bytes(d->dtype) / 4;
    row_split *s = &c->split;
    if (!split_whole(d, registers, s))
        *s = (row_split){ TILE_THREADS, TILE_THREADS, 1, vec, ELEMENTS / vec, .ragged = is_ragged(d) };
    s->steps = (int)min_i64(s->steps, max_i64(1, ELEMENTS / s->vec)); // the rest in further tiles
    row_split_finish(s, d->rows, d->cols, d->dtype, 1 + (d->direction == CKL_DIRECTION_BACKWARD), device);
    if (is_long(d))
        choose_long(d, device, c);
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

static ckl_status choose_row(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_crossentropy_desc *d = desc;
    crossentropy_config *c = config;
    *c = (crossentropy_config){ .dtype = d->dtype,
                                .target = d->target,
                                .direction = (choice)d->direction,
                                .reduction = (choice)d->reduction,
                                .weighted = d->weighted,
                                .smooth = d->smoothing > 0,
                                .mean_ctas = 1,
                                .parts = 1 };
    choose_mean(d, device, c);
    if (!choose_few_threads(d, device, &c->split))
        choose_tiles(d, device, c);
    c->split.exact = false;
    return CKL_OK;
}

static ckl_status admit_row(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "crossentropy row";
    const ckl_crossentropy_desc *d = desc;
    const crossentropy_config *c = config;
    const row_split *split = &c->split, scalar = row_split_scalar(split);
    const bool may_share = d->direction == CKL_DIRECTION_FORWARD && split->row_threads == split->threads;
    if (split->cluster != 1 || c->parts < 1 || c->parts > (may_share ? split->threads : 1))
        FAIL(CKL_INVALID, "%s: cluster=%d parts=%d, but rows have one CTA, or forward as many as it has threads", what,
             split->cluster, c->parts);
    TRY(row_split_admit(what, split, min_i64(d->cols, row_split_cols(split)), c->dtype, device));
    if (c->dtype != d->dtype || c->target != d->target || c->direction != (choice)d->direction ||
        c->reduction != (choice)d->reduction || c->weighted != d->weighted || c->smooth != (d->smoothing > 0))
        FAIL(CKL_INVALID, "%s: dtype, target, direction, reduction, weighted and smooth are those of the problem",
             what);
    if (c->mean_ctas > 1 && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: mean_ctas=%d on a device without clusters", what, c->mean_ctas);
    if (!is_power_of_two(c->mean_ctas) || c->mean_ctas > residency_cluster_max(device))
        FAIL(CKL_INVALID, "%s: mean_ctas=%d is no power of two up to %d", what, c->mean_ctas,
             residency_cluster_max(device));
    if (!split->ragged && vec_of(d) % split->vec)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide the rows or the distances between them", what, split->vec);
    if (split->exact)
        FAIL(CKL_INVALID, "%s: exact=1, but rows are taken tile by tile", what);
    if (row_split_ctas(split, d->rows) > CTAS_MAX || d->cols > INT32_MAX ||
        (d->direction == CKL_DIRECTION_BACKWARD && d->cols / row_split_cols(&scalar) >= TILES_MAX))
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
    c->parts = 1;
    return listed;
}

static bool is_trusted_row(const void *config)
{
    const crossentropy_config *c = config;
    return row_split_is_trusted(&c->split, c->dtype);
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
        return cost_long(d, device, &c->split, c->parts);
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

/* Rows of several CTAs have a counter and what their parts have found; a mean has the rows' losses and counts. */
typedef struct workspace_view {
    int64_t parts, losses, bytes; // where they are
} workspace_view;

static workspace_view view_of(const ckl_plan *plan)
{
    const ckl_crossentropy_desc *d = plan->desc;
    const int parts = ((const crossentropy_config *)plan->config)->parts;
    const int64_t word = sizeof(float), shared = parts > 1 ? d->rows : 0;
    workspace_view v = { .parts = shared * word };
    v.losses = v.parts + shared * parts * CROSSENTROPY_SUMS_MAX * word;
    v.bytes = v.losses + (is_mean(d) ? 2 * d->rows * word : 0);
    return v;
}

static int64_t workspace_bytes(const ckl_plan *plan)
{
    return view_of(plan).bytes;
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const crossentropy_config *c = plan->config;
    const ckl_crossentropy_desc *d = plan->desc;
    const ckl_crossentropy_args *a = args;
    const bool aligned = is_aligned(d, &c->split, a);
    const workspace_view view = view_of(plan);
    char *workspace = plan_workspace(plan, a->workspace);
    float *losses = is_mean(d) ? (float *)(workspace + view.losses) : NULL;
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
        .counters = workspace,
        .parts = c->parts > 1 ? workspace + view.parts : NULL,
    };
    const int64_t shares = d->direction == CKL_DIRECTION_FORWARD ? c->parts : tiles_of(d, &c->split);
    const plan_grid grid = { .x = row_split_ctas(&c->split, d->rows), .y = shares };
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

static const implementation row_kernels = {
    .name = "row",
    .summary = "a row by some lanes, a warp, a CTA or several, tile by tile; read once",
    .config_bytes = sizeof(crossentropy_config),
    .config = FIELD_TABLE(row_fields),
    .choose = choose_row,
    .candidate = candidate_row,
    .is_trusted = is_trusted_row,
    .cost = cost_row,
    .admit = admit_row,
    .describe = crossentropy_describe,
    .kernels = CROSSENTROPY_KERNELS,
    .params = &crossentropy_param_list,
    .launch = launch,
    .workspace_bytes = workspace_bytes,
};

static const implementation *const implementations[] = { &row_kernels, NULL };

OPERATOR(crossentropy, crossentropy, "cross-entropy of logits and class numbers, and its gradient",
         .workspace = offsetof(ckl_crossentropy_args, workspace));
OPERATOR_LINE(crossentropy, crossentropy_problem, NULL);
