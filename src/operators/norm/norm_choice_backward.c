/* norm_choice_backward.c - the configs that gradients get; bench/notes/norm.md has the measurements. */
#include <math.h>

#include "base/math.h"
#include "base/status.h"
#include "operators/norm/norm_config.h"
#include "skeletons/residency.h"

enum {
    BACKWARD_BYTES = 32, // of a thread and tensor of rows: each element needs two sums in f32 beside
    BACKWARD_ELEMENTS_MAX = 16,
    BACKWARD_THREADS_MAX = 512,
    BACKWARD_RING_BYTES = 216 << 10, // of an SM
    WARP = 32,
    COLUMN_LANES_MIN = 8,
    ROWS_IN_RING = 3
};

/*
 * Do rows that are read start off 16-byte boundaries, and those that are written at them, in whole vectors? If they
 * flow, the former are cut out of the ring. Short gradients are faster by single elements: 640 columns of 16 bits by a
 * fifth, 1280 of f32 by a sixth.
 */
static bool is_cut(const norm_rows *d)
{
    enum { COLS_MIN = 1000, COLS_MIN_F32 = 4096 };
    return !norm_is_whole(d, d->ldx) && norm_is_whole(d, d->ldy) &&
           d->cols >= (d->dtype == CKL_F32 ? COLS_MIN_F32 : COLS_MIN);
}

/* The lanes of the kernel that sums columns: enough CTAs for all SMs. */
static void choose_column_lanes(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    while (c->column_lanes > COLUMN_LANES_MIN && d->cols < device->sm_count * c->column_lanes * norm_column_vec(c))
        c->column_lanes /= 2;
}

/* Threads of a row of so many vectors with `steps` for each: some lanes of a warp, or whole warps. */
static int lanes_for(int64_t vectors, int steps)
{
    const int64_t lanes = ceil_div(vectors, steps);
    return (int)(lanes > WARP ? round_up(lanes, WARP) : power_of_two_ceil(lanes));
}

/* Threads for which an SM has registers: two sums of each element, x, dy, gamma and the residual. */
static int packed_threads(const norm_rows *d, const row_split *s)
{
    // rows of f32 by single elements of several warps, where 92 registers left room for one CTA
    enum { WIDE_F32 = 768 };
    static const struct {
        int registers_max, threads;
    } shares[] = { { 32, 768 }, { 70, 640 }, { 90, 512 }, { INT32_MAX, 384 } };
    const int64_t registers = 2 * (int64_t)s->vec * s->steps + (3 + d->residual) * row_split_registers(s, d->dtype);
    int i = 0;
    while (registers > shares[i].registers_max)
        i++;
    const bool wide = d->dtype == CKL_F32 && s->vec < row_vec_full(CKL_F32) && s->row_threads > WARP;
    return wide ? WIDE_F32 : shares[i].threads;
}

/*
 * Short rows: some lanes of a warp for each, or some warps, and several rows a CTA, which adds up their sums of columns
 * before it stores them; of two rows alone that does not pay for its barriers. As many elements a thread as leave the
 * fewest lanes idle, 32 bytes if several do; narrower vectors than 16 bytes are few, so that accesses are long. Of f32
 * 12 single elements are a thread's, more leave room for one CTA; layer norm has registers for 11 that need predicates.
 * Ragged rows are faster by single elements, too: 32.2 us by vectors and 22.4 (79872x113 bf16), 106.2 and 88.8
 * (53520x841). False: too long.
 */
static bool choose_packed_split(const norm_rows *d, const ckl_device_info *device, row_split *s)
{
    enum { BYTES = 32, ELEMENTS_MAX = 16, ELEMENTS_MAX_VECTORS = 24, CTAS = 2, ROWS_MIN = 3 };
    enum { BY_WARPS = 14, WARPS = 2, BY_WARPS_F32 = 12, WARPS_F32 = 12 }; // elements of a thread, warps of a row
    const int vec = norm_widest_vector(d), bytes = vec * dtype_bytes(d->dtype);
    const bool full = vec == row_vec_full(d->dtype), f32 = d->dtype == CKL_F32;
    const int most = (full && !f32 ? ELEMENTS_MAX_VECTORS : ELEMENTS_MAX) / vec;
    const int by_warps = f32 ? BY_WARPS_F32 - (d->centred && d->cols % (BY_WARPS_F32 * WARP)) : BY_WARPS;
    const int64_t vectors = max_i64(1, ceil_div(d->cols, vec));
    const int lanes_max = full ? 2 * WARP : vectors <= WARP * most ? WARP : lanes_for(vectors, by_warps / vec);
    if (lanes_max > WARP * (f32 ? WARPS_F32 : WARPS) || vectors > lanes_max * most)
        return false;
    int best = full ? (int)min_i64(most, BYTES / bytes) : (int)ceil_div(vectors, lanes_max);
    for (int steps = 1; steps <= most && full; steps++) {
        const int lanes = lanes_for(vectors, steps), room = lanes_for(vectors, best) * best;
        if (lanes <= lanes_max && (lanes * steps < room || room > lanes_max * best))
            best = steps;
    }
    const int lanes = lanes_for(vectors, best), unit = lanes > WARP ? lanes : WARP; // the fewest threads of a CTA
    *s = (row_split){ .threads = unit, .row_threads = lanes, .cluster = 1, .vec = vec, .steps = best };
    const int64_t units = ceil_div(row_split_ctas(s, d->rows), device->sm_count);
    const int rows = packed_threads(d, s) / CTAS / unit;
    s->threads = unit * (rows < ROWS_MIN ? 1 : (int)max_i64(1, min_i64(units, rows)));
    s->exact = row_split_cols(s) == d->cols;
    return true;
}

/*
 * All threads of a CTA, even of one warp, share a row, so a thread's sums of columns are those of its CTA: as many
 * threads as have up to `elements` each. False: too long.
 */
static bool choose_backward_split(int64_t cols, int vec, int elements, int cluster_max, row_split *s)
{
    const int64_t vectors = max_i64(1, ceil_div(cols, vec)), steps = max_i64(1, elements / vec);
    *s = (row_split){ .cluster = 1, .vec = vec };
    while (s->cluster < cluster_max && BACKWARD_THREADS_MAX * s->cluster * steps < vectors)
        s->cluster *= 2;
    s->threads = (int)min_i64(BACKWARD_THREADS_MAX, round_up(ceil_div(vectors, s->cluster * steps), WARP));
    s->row_threads = s->threads;
    s->steps = (int)ceil_div(vectors, (int64_t)s->threads * s->cluster);
    s->exact = row_split_cols(s) == cols;
    return s->steps <= steps;
}

/*
 * How rows of gradients flow. A thread keeps sums of its columns, so their number bounds the warps of an SM, whose four
 * partitions have 512 registers a lane each. Threads and warps are what was measured to be fastest
 * (bench/notes/norm.md): more warps wait less, larger CTAs and clusters longer.
 */
typedef struct flow_shape {
    int rows, bytes;              // mask; of an element
    int chunks, steps;            // of a row and CTA; vectors of a thread and chunk
    int threads_min, threads_max; // of a CTA
    int cluster_min, cluster_max;
    int warps, warps_most; // of an SM, producers too, that do not spill; most: layer norm, or f32 and a residual
    enum { RING, AHEAD, HELD } stay; // between the passes; ahead: in the ring, and looks ahead if there is room
    double spread;                   // of the cost: what waits for registers; 0: none
    bool longest;                    // for rows that no other shape takes
    bool dgamma_in_smem;
} flow_shape;

enum { WHOLE = 1, CUT = 2, RAGGED = 4, ODD = CUT | RAGGED, ALL = WHOLE | ODD };
enum { CUT_ALONE = 8, RAGGED_ALONE = 16 }; // without a residual, and ragged rows in phase
static const flow_shape shapes[] = {
    // whole rows get the first one of the smallest cluster
    { WHOLE, 2, 1, 1, 96, 192, 1, 1, 28, 28, AHEAD, 0, false, false }, // with a residual: is_short()
    { WHOLE, 2, 2, 1, 128, 128, 1, 1, 15, 15, RING, 0, false, false },
    { WHOLE, 2, 2, 1, 96, 160, 1, 1, 24, 24, AHEAD, 0, false, false },
    { WHOLE, 2, 3, 1, 128, 128, 1, 1, 15, 15, RING, 0, false, false },
    { WHOLE, 2, 2, 1, 224, 224, 1, 16, 24, 20, AHEAD, 0, false, false },
    { WHOLE, 2, 2, 1, 256, 288, 1, 16, 27, 27, AHEAD, 0, false, false },
    { WHOLE, 2, 3, 1, 224, 256, 1, 16, 18, 18, AHEAD, 0, false, false },
    { WHOLE, 2, 2, 2, 224, 224, 4, 16, 0, 16, AHEAD, 0, false, false },
    { WHOLE, 2, 2, 1, 320, 416, 1, 16, 28, 28, AHEAD, 0, false, false },
    { WHOLE, 2, 2, 2, 224, 224, 2, 2, 0, 9, AHEAD, 0, false, false },
    { WHOLE, 2, 2, 2, 224, 224, 8, 16, 9, 9, AHEAD, 0, false, false },
    { WHOLE, 2, 2, 2, 256, 256, 2, 16, 9, 9, AHEAD, 0, false, false },
    { WHOLE, 4, 1, 2, 128, 256, 1, 1, 20, 20, RING, 0, false, false },
    { WHOLE, 4, 1, 4, 160, 160, 1, 1, 18, 12, AHEAD, 0, false, false },
    { WHOLE, 4, 1, 4, 192, 256, 1, 1, 18, 18, AHEAD, 0, false, false },
    { WHOLE, 4, 1, 2, 128, 256, 4, 16, 20, 20, AHEAD, 0, false, false },
    { WHOLE, 4, 3, 1, 128, 256, 2, 16, 18, 18, AHEAD, 0, false, false },
    { WHOLE, 4, 4, 1, 128, 256, 8, 16, 16, 16, AHEAD, 0, false, false },
    { CUT, 4, 4, 1, 64, 256, 1, 16, 20, 20, AHEAD, 0, false, false },
    // others the one whose instructions cost least
    { ODD, 2, 1, 2, 64, 288, 1, 16, 24, 20, HELD, 1, false, false },
    { CUT_ALONE, 2, 1, 2, 64, 288, 8, 16, 0, 24, HELD, 1.07, false, false },
    { RAGGED_ALONE, 2, 1, 2, 64, 288, 1, 16, 0, 24, HELD, 1.07, false, false },
    { ODD, 2, 1, 3, 64, 288, 1, 16, 15, 15, HELD, 1.1, false, false },
    { ODD, 2, 1, 1, 64, 288, 1, 16, 30, 30, HELD, 1, false, false },
    { RAGGED, 2, 4, 1, 64, 288, 1, 16, 16, 16, AHEAD, 1.1, false, false },
    { RAGGED, 4, 1, 3, 64, 288, 1, 16, 24, 0, HELD, 1, false, false },
    { RAGGED, 4, 1, 2, 64, 320, 1, 16, 24, 24, HELD, 1, false, false },
    { RAGGED, 4, 3, 1, 64, 352, 1, 16, 24, 0, AHEAD, 1, false, false },
    { RAGGED, 4, 4, 1, 64, 288, 1, 16, 20, 18, AHEAD, 2.1, false, false },
    // of the rest, too
    { ALL, 2, 2, 2, 64, 256, 8, 16, 9, 9, AHEAD, 1, true, false },
    { ALL, 4, 2, 4, 64, 256, 8, 16, 9, 9, RING, 1, true, false },
    { ALL, 2, 4, 1, 512, 512, 8, 16, 17, 17, AHEAD, 2, true, true },
    { ALL, 4, 4, 2, 512, 512, 8, 16, 17, 17, RING, 2, true, true },
};

/* A row by so many threads of each CTA of a cluster. */
typedef struct flow {
    const flow_shape *shape;
    int threads, cluster, ctas_per_sm;
} flow;

static int rows_of(const norm_rows *d)
{
    return !norm_is_ragged(d) ? WHOLE : is_cut(d) ? CUT : RAGGED;
}

static int elements_of(const flow_shape *shape)
{
    return shape->chunks * shape->steps * 16 / shape->bytes;
}

/*
 * Rings of three rows are as deep as pays: 1024x17792 f16 49.1 us by 13 stages, 47.4 by 8; 2048x11776 bf16, cut, 60.0
 * by 17, 57.0 by 9.
 */
static row_pipeline_split split_of_flow(const flow *f, const norm_rows *d)
{
    const flow_shape *shape = f->shape;
    const int vec = row_vec_full(d->dtype), inputs = 2 + d->residual;
    const bool ragged = norm_is_ragged(d) && !is_cut(d);
    row_pipeline_split s = { .chunk = { f->threads, f->threads, 1, vec, shape->steps, .ragged = ragged },
                             .cluster = f->cluster,
                             .residence = shape->stay == HELD ? ROW_IN_REGISTERS : ROW_IN_RING,
                             .cut = !norm_in_phase(d) };
    s.chunks = (int)row_pipeline_chunks(&s, d->cols);
    s.chunk.exact = !ragged && row_split_cols(&s.chunk) * s.cluster * s.chunks == d->cols;
    const int64_t sums =
        norm_exchange_bytes(&s.chunk) + (shape->dgamma_in_smem ? 4LL * f->threads * elements_of(shape) : 0);
    s.stages = (int)((BACKWARD_RING_BYTES / f->ctas_per_sm - sums) /
                     ((row_split_cols(&s.chunk) + (s.cut ? vec : 0)) * inputs * shape->bytes));
    if (shape->bytes == 2 || shape->stay == HELD)
        s.stages = (int)min_i64(s.stages, ROWS_IN_RING * (int64_t)s.chunks);
    s.lookahead = shape->stay == AHEAD && s.stages >= 2 * s.chunks;
    return s;
}

/*
 * What a row costs, if that counts. What bounds odd ones is instructions of few warps: the time is about that of a
 * row's instructions, by the root of the warps for which an SM has registers.
 */
static double cost_of(const norm_rows *d, const flow *f)
{
    static const double ROW_CUT = 120, ROW_RAGGED = 250, CLUSTER = 125, ELEMENT = 14; // instructions of a thread
    const double of_thread =
        (is_cut(d) ? ROW_CUT : ROW_RAGGED) + (f->cluster > 1 ? CLUSTER : 0) + ELEMENT * elements_of(f->shape);
    return f->shape->spread * of_thread * f->threads * f->cluster / sqrt(f->ctas_per_sm * f->threads);
}

/*
 * Does a row get the shape in such a cluster: by as many threads as it has work for, and as many CTAs an SM? Few rows
 * are for larger clusters than those of large CTAs, which leave twice the partial sums.
 */
static bool fit_shape(const norm_rows *d, const ckl_device_info *device, flow *f)
{
    enum { CTAS_MIN_ODD = 2, CLUSTER_CUT = 6, CLUSTER_AHEAD = 8, THREADS_LARGE = 288, ROWS_LARGE = 8 };
    const flow_shape *shape = f->shape;
    const int bytes = dtype_bytes(d->dtype), rows = rows_of(d);
    const bool most = d->centred || (bytes == 4 && d->residual), any = rows == WHOLE || shape->longest;
    const int spilling = rows != WHOLE && !norm_in_phase(d) && d->residual ? 4 : 0; // warps: 20 of layer norm spill
    const int64_t threads = round_up(ceil_div(d->cols, (int64_t)elements_of(shape) * f->cluster), WARP);
    const int alone = d->residual ? 0 : rows == CUT ? CUT_ALONE : rows == RAGGED && norm_in_phase(d) ? RAGGED_ALONE : 0;
    if (!(shape->rows & (rows | alone)) || shape->bytes != bytes || f->cluster < shape->cluster_min ||
        f->cluster > shape->cluster_max || threads > shape->threads_max ||
        (threads < shape->threads_min && rows == WHOLE && !shape->longest))
        return false;
    f->threads = (int)max_i64(shape->threads_min, threads);
    f->ctas_per_sm = ((most ? shape->warps_most : shape->warps) - spilling) / (f->threads / WARP + 1);
    if (any)
        return f->ctas_per_sm > 0 && (shape->longest || threads <= THREADS_LARGE ||
                                      d->rows * f->cluster >= ROWS_LARGE * f->ctas_per_sm * (int64_t)device->sm_count);
    const bool slower = bytes == 2 && (rows == CUT ? f->cluster > CLUSTER_CUT * f->ctas_per_sm
                                                   : shape->stay == AHEAD && d->centred && f->cluster < CLUSTER_AHEAD);
    return f->ctas_per_sm >= CTAS_MIN_ODD && !slower && split_of_flow(f, d).chunks == shape->chunks;
}

/* False: no shape has room. */
static bool choose_shape(const norm_rows *d, const ckl_device_info *device, flow *f)
{
    double best = INFINITY;
    for (int longest = 0; longest <= 1 && best == INFINITY; longest++)
        for (int cluster = 1; cluster <= row_pipeline_cluster_max(device); cluster *= 2)
            for (int i = 0; i < COUNT_OF(shapes); i++) {
                flow fit = { &shapes[i], .cluster = cluster };
                if (shapes[i].longest != longest || !fit_shape(d, device, &fit) || cost_of(d, &fit) >= best)
                    continue;
                best = cost_of(d, &fit);
                *f = fit;
            }
    return best < INFINITY;
}

/*
 * Do many rows of 16 bits with a residual fill most of the vectors of whole warps? Then they flow: layer norm of
 * 24000x1024 bf16 61.7 us in registers, 52.2, 27901x896 65.7, 58.0, RMS norm 62.8, 54.9; but 39062x640 60.4, 65.5, and
 * few rows, 2048x1024, 8.9, 11.2.
 */
static bool fills_warps(const norm_rows *d, const ckl_device_info *device)
{
    enum { COLS_MIN = 700, ROWS_OF_SM = 24 };
    const int64_t room = round_up(d->cols, (int64_t)WARP * row_vec_full(d->dtype));
    return d->residual && dtype_bytes(d->dtype) == 2 && d->cols >= COLS_MIN && 7 * d->cols >= 6 * room &&
           d->rows >= ROWS_OF_SM * (int64_t)device->sm_count;
}

/*
 * Are rows shorter than those that flow? Layer norm with a residual flows where rows fill 96 threads twice: 249.5 and
 * 192.5 us (65536x1536 f16).
 */
static bool is_short(const norm_rows *d, const ckl_device_info *device)
{
    enum { BYTES_MAX = 3072 }; // of whole vectors: 47.7 and 36.1 us (25600x768 bf16), 42.8 and 39.9 (15488x1280)
    enum { COLS_MAX = 512, COLS_MAX_SINGLE = 896, COLS_MAX_RESIDUAL = 1382 }; // nine tenths of 96 threads' 16 elements
    const bool halves = dtype_bytes(d->dtype) == 2;
    if (norm_is_ragged(d))
        return d->cols <= ((halves || !d->centred) && !is_cut(d) ? COLS_MAX_SINGLE : COLS_MAX);
    const bool flows = fills_warps(d, device) || (d->centred && d->residual && halves && d->cols > COLS_MAX_RESIDUAL);
    return d->cols <= COLS_MAX || (!flows && d->cols * dtype_bytes(d->dtype) <= BYTES_MAX);
}

/*
 * False: they do not flow. Odd rows of f32 in phase do where an SM would have two in registers alone, whose loads
 * nothing covers: layer norm 4096x4095 65.4 us by single elements, 60.2 by the ring.
 */
static bool choose_backward_flow(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    enum { ROWS_MIN = 3 };
    flow f;
    if (!device->has_tma || is_short(d, device) ||
        (rows_of(d) == RAGGED && d->dtype == CKL_F32 && choose_packed_split(d, device, &c->split) &&
         (!norm_in_phase(d) || ROWS_MIN * c->split.row_threads <= packed_threads(d, &c->split))) ||
        !choose_shape(d, device, &f))
        return false;
    const row_pipeline_split s = split_of_flow(&f, d);
    const bool guards = d->affine && f.shape->dgamma_in_smem && d->dtype == CKL_F32 && !s.chunk.exact;
    if (s.stages < s.chunks || guards) // no room for the row, or no registers for guards
        return false;
    row_pipeline_config(&s, &c->split, &c->flow);
    c->dgamma_in_smem = f.shape->dgamma_in_smem;
    c->ctas_per_sm = f.ctas_per_sm;
    return true;
}

/* Rows in registers, or tile by tile. */
static void choose_backward_rows(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    const int vec = norm_widest_vector(d), cluster_max = residency_cluster_max(device);
    const int elements = BACKWARD_BYTES / dtype_bytes(d->dtype);
    row_split *s = &c->split;
    if (choose_packed_split(d, device, s)) {
        c->ctas_per_sm = packed_threads(d, s) / s->threads;
        return;
    }
    c->tiled = !choose_backward_split(d->cols, vec, elements, cluster_max, s) &&
               !choose_backward_split(d->cols, vec, BACKWARD_ELEMENTS_MAX, cluster_max, s);
    if (c->tiled)
        *s = norm_tiled_split(d, device, false);
}

/* A turn: clusters that do not look ahead wait for each other's sums. */
static double turn_us(const norm_config *c)
{
    static const double TURN_US = 0.3, CLUSTER_US = 0.75;
    return c->split.cluster > 1 && !c->flow.lookahead ? CLUSTER_US : TURN_US;
}

/* What so many CTAs or clusters cost beside their rows' bytes: turns, and partial sums, which are written and read. */
static double workers_us(const norm_rows *d, const norm_config *c, int64_t workers)
{
    static const double BYTES_OF_US = 4e6;
    const double bytes = (double)even_workers(d->rows, workers) * (1 + d->centred) * 4 * (double)d->cols;
    return turn_us(c) * (double)ceil_div(d->rows, workers) + 2 * bytes / BYTES_OF_US;
}

/*
 * Rows that flow by as many CTAs of an SM as cost least or, if they lie alike, by one alone, which leaves no partial
 * sums to another launch: layer norm of bf16, 577x4096, 13.8 us by 289 CTAs, 12.3 by 116; RMS norm 1000x4096 14.3 by
 * 334, 13.9 by 125.
 */
static void choose_workers(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    enum { ROWS_FEW = 3 };                                // of a CTA or cluster: of more, bytes take longer than turns
    static const double LAUNCH_US = 0.95, ALONE_US = 0.5; // of a row that no other CTA overlaps
    const int64_t one = max_i64(1, device->sm_count / c->split.cluster);
    double least = workers_us(d, c, one * c->ctas_per_sm);
    if (d->rows >= ROWS_FEW * one * c->ctas_per_sm)
        return;
    for (int ctas = 1; ctas < c->ctas_per_sm; ctas++) {
        const double us = workers_us(d, c, one * ctas);
        c->persistent_ctas = us < least ? ctas : c->persistent_ctas;
        least = fmin(least, us);
    }
    c->alone = norm_phases(d, c) == 1 && fmax(ALONE_US, turn_us(c)) * (double)d->rows < LAUNCH_US + least;
    c->persistent_ctas = c->alone ? 0 : c->persistent_ctas;
}

/* Rows in registers by one CTA, if it has registers for all at once, by single elements too, which take more. */
static void choose_alone(const norm_rows *d, norm_config *c)
{
    row_split *s = &c->split;
    const int64_t unit = max_i64(WARP, s->row_threads), threads = round_up(d->rows * s->row_threads, unit);
    if (d->rows < 1 || s->cluster > 1 || threads > max_i64(unit, packed_threads(d, s) / 2))
        return;
    s->threads = (int)threads;
    c->ctas_per_sm = 1;
    c->alone = true;
}

ckl_status norm_choose_backward(const void *desc, const ckl_device_info *device, void *config)
{
    const norm_rows *d = desc;
    norm_config *c = config;
    if (d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "norm backward: direction is forward");
    norm_take_problem(d, c);
    if (!choose_backward_flow(d, device, c))
        choose_backward_rows(d, device, c);
    if (d->affine && c->flow.stages)
        choose_workers(d, device, c);
    else if (d->affine && !c->tiled)
        choose_alone(d, c);
    choose_column_lanes(d, device, c);
    c->prefetch = norm_is_prefetched(d, c);
    return CKL_OK;
}
