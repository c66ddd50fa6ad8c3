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
    BACKWARD_THREADS_MIN = 128,      // where rows flow
    BACKWARD_THREADS_RAGGED = 512,   // of an SM, where rows flow: their ends take registers
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
static bool is_cut(const ckl_norm_desc *d)
{
    enum { COLS_MIN = 1000, COLS_MIN_F32 = 4096 };
    return !norm_is_whole(d, d->ldx) && norm_is_whole(d, d->ldy) &&
           d->cols >= (d->dtype == CKL_F32 ? COLS_MIN_F32 : COLS_MIN);
}

/* The lanes of the kernel that sums columns: enough CTAs for all SMs. */
static void choose_column_lanes(const ckl_norm_desc *d, const ckl_device_info *device, norm_config *c)
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
static int packed_threads(const ckl_norm_desc *d, const row_split *s)
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
 * Short rows: some lanes of a warp for each, or some warps, and several rows a CTA. A warp for each row of 112 columns
 * of 16 bits left 18 lanes idle: 35.7 and 23.0 us (99205 rows on an H200). Elements are 32 bytes of a thread, if no
 * other number leaves fewer lanes idle; narrower vectors than 16 bytes are few, so that accesses are long: 23.5 and
 * 21.0 us by 8 and 32 lanes (65536x128 f16, ldx=129). Vectors between the boundaries of ragged rows are slower: 32.2
 * and 22.4 us (79872x113 bf16), 106.2 and 88.8 (53520x841). Of f32 12 single elements are a thread's: by 512 threads
 * with 6 one CTA fits an SM, 28.1 and 21.9 us (1920x3072, ldx=3073); layer norm has registers for 11 that need
 * predicates. Each CTA leaves partial sums of all columns, so an SM has two large ones; of two rows alone it does not
 * pay for their barriers: 56.6 and 52.8 (8192x2048 f32, ldx=2049). Ragged rows of f32, too: 38.8 us by vectors, 35.5
 * (8192x1283). False: too long.
 */
static bool choose_packed_split(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, row_split *s)
{
    enum { BYTES = 32, ELEMENTS_MAX = 16, ELEMENTS_MAX_VECTORS = 24, CTAS = 2, ROWS_MIN = 3 };
    enum { BY_WARPS = 14, WARPS = 2, BY_WARPS_F32 = 12, WARPS_F32 = 12 }; // elements of a thread, warps of a row
    const int vec = norm_widest_vector(d), bytes = vec * dtype_bytes(d->dtype);
    const bool full = vec == row_vec_full(d->dtype), f32 = d->dtype == CKL_F32;
    const int most = (full && !f32 ? ELEMENTS_MAX_VECTORS : ELEMENTS_MAX) / vec;
    const int by_warps = f32 ? BY_WARPS_F32 - (centred && d->cols % (BY_WARPS_F32 * WARP)) : BY_WARPS;
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
    const int64_t units = row_split_ctas(s, d->rows) / (CTAS * (int64_t)device->sm_count);
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
 * Rows of gradients that flow in CTAs that keep sums of columns, as measured (bench/notes/norm.md). Each of an SM's
 * four partitions has 512 registers a lane: 3 CTAs of 4 warps and a producer get 128 registers a thread, 2 CTAs of 8
 * and a producer only 96.
 */
typedef struct backward_flow {
    int bytes; // of an element
    int64_t cols_max;
    int threads, elements, steps, ctas_per_sm; // elements of a thread and row
    choice residence;                          // of row_residence
    bool lookahead;                            // if the ring has room
    bool dgamma_in_smem;
} backward_flow;

static const backward_flow backward_flows[] = {
    { 2, 2048, 128, 16, 1, 3, ROW_IN_RING, false, false },  { 2, 8192, 256, 16, 1, 3, ROW_IN_RING, true, false },
    { 2, 131072, 256, 32, 2, 1, ROW_IN_RING, true, false }, { 2, 262144, 512, 32, 1, 1, ROW_IN_RING, true, true },
    { 4, 4096, 512, 8, 2, 1, ROW_IN_RING, false, false },   { 4, 16384, 256, 8, 2, 2, ROW_IN_RING, true, false },
    { 4, 65536, 256, 16, 1, 1, ROW_IN_RING, true, false },  { 4, 131072, 256, 32, 4, 1, ROW_IN_RING, false, false },
    { 4, 262144, 512, 32, 2, 1, ROW_IN_RING, false, true },
};

/* The first that is long enough; short rows take twice as many CTAs of half the threads. False: none is. */
static bool find_backward_flow(const ckl_norm_desc *d, const ckl_device_info *device, backward_flow *f)
{
    for (int i = 0; i < COUNT_OF(backward_flows); i++) {
        *f = backward_flows[i];
        if (f->bytes != dtype_bytes(d->dtype) || d->cols > f->cols_max ||
            d->cols > (int64_t)f->threads * f->elements * row_pipeline_cluster_max(device))
            continue;
        for (; f->threads > BACKWARD_THREADS_MIN && f->threads / 2 * f->elements >= d->cols; f->ctas_per_sm *= 2)
            f->threads /= 2;
        if (!norm_is_ragged(d))
            return true;
        f->ctas_per_sm = (int)min_i64(f->ctas_per_sm, BACKWARD_THREADS_RAGGED / f->threads);
        f->lookahead |= f->bytes == 2 && f->residence == ROW_IN_RING; // hides the loads of the ends
        return true;
    }
    return false;
}

static row_pipeline_split split_of_flow(const backward_flow *f, const ckl_norm_desc *d)
{
    // deeper rings are slower: 1024x17792 f16 49.1 us by 13 stages, 47.4 by 8; 2048x11776 bf16, cut, 60.0 by 17, 57.0
    // by 9
    const int vec = row_vec_full(d->dtype), inputs = 2 + d->residual;
    const bool ragged = norm_is_ragged(d) && !is_cut(d);
    row_pipeline_split s = { .chunk = { f->threads, f->threads, 1, vec, f->steps, .ragged = ragged },
                             .cluster = (int)power_of_two_ceil(ceil_div(d->cols, (int64_t)f->threads * f->elements)),
                             .residence = f->residence,
                             .cut = !norm_in_phase(d) };
    s.chunks = (int)row_pipeline_chunks(&s, d->cols);
    s.chunk.exact = !ragged && row_split_cols(&s.chunk) * s.cluster * s.chunks == d->cols;
    const int64_t sums = norm_exchange_bytes(&s.chunk) + (f->dgamma_in_smem ? 4LL * f->threads * f->elements : 0);
    s.stages = (int)((BACKWARD_RING_BYTES / f->ctas_per_sm - sums) /
                     ((row_split_cols(&s.chunk) + (s.cut ? vec : 0)) * inputs * f->bytes));
    if (f->bytes == 2 || (norm_is_ragged(d) && f->residence == ROW_IN_REGISTERS))
        s.stages = (int)min_i64(s.stages, ROWS_IN_RING * (int64_t)s.chunks);
    s.lookahead = f->lookahead && s.stages >= 2 * s.chunks;
    return s;
}

/* So many chunks of a row and CTA, of one vector a thread each, in the ring. */
static backward_flow chunks_in_ring(const ckl_norm_desc *d, int threads, int chunks, int ctas_per_sm, bool lookahead)
{
    return (backward_flow){ .bytes = dtype_bytes(d->dtype),
                            .threads = threads,
                            .elements = chunks * row_vec_full(d->dtype),
                            .steps = 1,
                            .ctas_per_sm = ctas_per_sm,
                            .residence = ROW_IN_RING,
                            .lookahead = lookahead };
}

/* CTAs of a row; elements for which these have threads. */
static int cluster_of(const ckl_norm_desc *d, const backward_flow *f)
{
    return split_of_flow(f, d).cluster;
}

static int64_t room_of(const ckl_norm_desc *d, const backward_flow *f)
{
    return (int64_t)f->threads * f->elements * cluster_of(d, f);
}

/*
 * Three chunks of a whole row, where a quarter of the elements that threads have room for would be idle.
 */
static void fit_backward_flow(const ckl_norm_desc *d, const ckl_device_info *device, backward_flow *f)
{
    enum { CHUNKS = 3 };
    static const struct {
        int threads, ctas_per_sm, cluster_max;
        bool lookahead;
    } shapes[] = { { 64, 4, 1, false }, { 128, 3, 1, false }, { 256, 2, 16, true } };
    if (f->dgamma_in_smem || 4 * d->cols > 3 * room_of(d, f) || norm_is_ragged(d))
        return;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        const backward_flow fit =
            chunks_in_ring(d, shapes[i].threads, CHUNKS, shapes[i].ctas_per_sm, shapes[i].lookahead);
        const row_pipeline_split split = split_of_flow(&fit, d);
        const bool narrow = !i && f->bytes == 2 && d->residual; // 96 threads: 221.6 -> 192.5 us
        if (narrow || split.chunks != CHUNKS ||
            split.cluster > min_i64(shapes[i].cluster_max, row_pipeline_cluster_max(device)))
            continue;
        *f = fit;
        return;
    }
}

/* Chunks of one vector a thread, and warps for which an SM has registers. */
typedef struct warps_shape {
    int bytes; // of an element
    bool cut;
    int chunks, threads_min, threads_max, warps, warps_centred;
} warps_shape;

/*
 * The first of them, in the smallest cluster, that has room for no more than so many elements. Rows of eight CTAs do
 * not get sixteen, which leave SMs of a GPC without one: 138.6 and 161.3 us (layer norm 1448x55296 bf16).
 */
static bool take_warps(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, const warps_shape *shapes,
                       int count, int64_t room_max, backward_flow *f)
{
    enum { CLUSTER_FEW = 8 };
    const int64_t cluster_max = min_i64(row_pipeline_cluster_max(device), max_i64(CLUSTER_FEW, cluster_of(d, f)));
    for (int cluster = 1; cluster <= cluster_max; cluster *= 2)
        for (int i = 0; i < count; i++) {
            const int elements = shapes[i].chunks * row_vec_full(d->dtype);
            const int64_t threads = round_up(ceil_div(d->cols, (int64_t)elements * cluster), WARP);
            if (shapes[i].bytes != f->bytes || shapes[i].cut != norm_is_ragged(d) || threads < shapes[i].threads_min ||
                threads > shapes[i].threads_max || threads * elements * cluster > room_max)
                continue;
            const int warps =
                centred && !d->residual ? shapes[i].warps_centred : shapes[i].warps; // others: not measured
            *f = chunks_in_ring(d, (int)threads, shapes[i].chunks, warps / ((int)threads / WARP + 1), true);
            return true;
        }
    return false;
}

/*
 * As many warps as a row has work for, where a tenth of them or more would be idle: gradients of 16 bits with whole
 * vectors, and those of f32 that are cut. 1024x17792 f16 46.7 us by 256 threads with 24 elements in clusters of 4, 42.2
 * by 288 with 16; 768x20480 f32, cut, 80.5 and 63.5. Layer norm by two CTAs of 224 threads instead of three: 74.8 and
 * 71.9 us (12288x3584 f16). Where one CTA had an SM, two that are a tenth smaller: 121.8 and 93.0 (577x51200 f32), 37.1
 * and 34.7 (RMS norm 640x25088 f16). In half the cluster, where that leaves no more idle and enough rows for its
 * partial sums: 58.3 and 52.1 (layer norm 2048x13312 bf16). Layer norm of rows that fill three chunks of one CTA by two
 * chunks of a pair, three CTAs an SM: 32.6 and 30.6 (2048x6144 bf16), 112.1 and 105.0 (8192x6144, residual); shorter
 * ones are slower in them, 47.1 and 49.7 (4096x5760).
 */
static void fit_warps(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, backward_flow *f)
{
    enum { ROWS_EACH = 8, COLS_THREE = 6144 }; // rows of a cluster; columns of three chunks of 256 threads
    // three chunks by 224 threads or more: of 160 three CTAs fit, by too few registers
    static const warps_shape full[] = { { 2, false, 2, 96, 192, 24, 24 },
                                        { 2, false, 2, 96, 288, 24, 20 },
                                        { 2, false, 3, 224, 256, 20, 20 },
                                        { 4, true, 4, 96, 256, 20, 20 } },
                             pairs[] = { { 2, false, 2, 96, 416, 28, 28 }, { 4, false, 4, 96, 224, 16, 16 } };
    const int64_t room = room_of(d, f);
    const bool alone = f->ctas_per_sm == 1 && cluster_of(d, f) > 1;
    if (norm_is_ragged(d) != is_cut(d) || f->dgamma_in_smem)
        return;
    if (10 * d->cols >= 9 * room) {
        if (centred && f->bytes == 2 && d->cols == COLS_THREE)
            take_warps(d, device, centred, full, 1, room, f);
        return;
    }
    if (!take_warps(d, device, centred, full, COUNT_OF(full), 10 * d->cols / 9, f) && alone)
        take_warps(d, device, centred, pairs, COUNT_OF(pairs), 9 * room / 10, f);
    backward_flow wide = *f;
    const int cluster = cluster_of(d, f);
    if (cluster > 1 && take_warps(d, device, centred, pairs, 1, room_of(d, f), &wide) &&
        cluster_of(d, &wide) < cluster &&
        d->rows * cluster_of(d, &wide) >= ROWS_EACH * (int64_t)wide.ctas_per_sm * device->sm_count)
        *f = wide;
}

/*
 * What an odd row costs. What bounds it is instructions of few warps: the time is about that of a row's instructions,
 * by the root of the warps for which an SM has registers.
 */
static double odd_row_cost(double of_row, int elements, int threads, int cluster, int ctas_per_sm)
{
    static const double CLUSTER = 125, ELEMENT = 14; // instructions of a thread
    const double of_thread = of_row + (cluster > 1 ? CLUSTER : 0) + ELEMENT * elements;
    return of_thread * threads * cluster / sqrt(ctas_per_sm * threads);
}

static int odd_row_threads(const ckl_norm_desc *d, int elements)
{
    enum { THREADS_MIN = 64 };
    return (int)max_i64(THREADS_MIN, round_up(ceil_div(d->cols, elements), WARP));
}

/*
 * Ragged rows, and cut ones of 16 bits, stay in registers between the passes, which halves the loads, cuts and bounds
 * of a row: 111.1 us by 128 threads with room for 2048 elements, 92.3 by 96 with 1536 (layer norm, 32768x1283 f16);
 * 112.7 by 18 warps with room for 16384, 76.2 by 21 with 9216 (RMS norm, 2560x8679 f32). Layer norm of long f32 rows
 * looks ahead in the ring: 121.6 and 74.5 (1024x20001); of 16 bits registers are faster even where rows fill their
 * threads anyway, 101.6 and 87.8 (13144x3885 bf16), 79.0 and 70.3 (16384x2048 bf16, ldy=2049). Rows for sixteen CTAs
 * have half of them, which look ahead: RMS norm 136.2 and 111.9 (1024x53781 bf16), layer norm of eight CTAs a twelfth
 * less (877x28961 f16). An SM has two CTAs or more: layer norm 4096x6453 f16 68.2 us by one with 24 elements a thread,
 * 65.6 by two in clusters of two; RMS norm 512x45128 f16, cut, 59.4 by one in clusters of eight, 50.1 by three in
 * clusters of sixteen.
 */
static void fit_odd_rows(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, backward_flow *f)
{
    enum { THREADS_MAX = 288, CTAS_MIN = 2, CLUSTER_CUT = 6, CLUSTER_AHEAD = 8 };
    static const double ROW_CUT = 120, ROW_RAGGED = 250;
    static const struct {
        int bytes, chunks;
        int warps, warps_most; // of an SM, producers too, that do not spill; most: layer norm or, of f32, a residual
        double spread;         // what waits for registers
        bool in_ring;
    } shapes[] = { { 2, 2, 24, 20, 1, false },  { 2, 3, 15, 15, 1.1, false }, { 2, 1, 30, 30, 1, false },
                   { 2, 4, 16, 16, 1.1, true }, { 4, 3, 24, 0, 1, false },    { 4, 2, 24, 24, 1, false },
                   { 4, 4, 20, 18, 2.1, true } };
    const int vec = row_vec_full(d->dtype);
    const bool cut = is_cut(d), most = centred || (f->bytes == 4 && d->residual);
    const int spilling = !norm_in_phase(d) && d->residual ? 4 : 0; // warps: 20 of layer norm spill 72 bytes
    const double row = cut ? ROW_CUT : ROW_RAGGED;
    double best = INFINITY;
    if (!norm_is_ragged(d) || (cut && f->bytes == 4)) // f32 that is cut: fit_warps()
        return;
    for (int cluster = 1; cluster <= row_pipeline_cluster_max(device); cluster *= 2)
        for (int i = 0; i < COUNT_OF(shapes); i++) {
            const int elements = shapes[i].chunks * vec;
            const int threads = odd_row_threads(d, elements * cluster);
            const int warps = (most ? shapes[i].warps_most : shapes[i].warps) - spilling;
            const int ctas_per_sm = warps / (threads / WARP + 1);
            if (shapes[i].bytes != f->bytes || threads > THREADS_MAX || ctas_per_sm < CTAS_MIN ||
                (cut && (shapes[i].in_ring || cluster > CLUSTER_CUT * ctas_per_sm)) ||
                (shapes[i].in_ring && f->bytes == 2 && centred && cluster < CLUSTER_AHEAD)) // slower, or not measured
                continue;
            const double cost = shapes[i].spread * odd_row_cost(row, elements, threads, cluster, ctas_per_sm);
            backward_flow fit = chunks_in_ring(d, threads, shapes[i].chunks, ctas_per_sm, shapes[i].in_ring);
            if (!shapes[i].in_ring) {
                fit.residence = ROW_IN_REGISTERS;
                fit.steps = shapes[i].chunks; // in one chunk
            }
            const row_pipeline_split split = split_of_flow(&fit, d);
            if (cost >= best || split.chunks * fit.steps != shapes[i].chunks || split.cluster != cluster)
                continue;
            best = cost;
            *f = fit;
        }
}

/*
 * Whole rows of f32 by two CTAs of an SM with 16 elements a thread, instead of one with 8: 31.0 and 29.9 us
 * (2048x4096), 34.5 and 33.4 (3072x3000). Longer whole rows, in chunks of several vectors, by as many threads as they
 * fill: 28.4 and 27.2 (RMS norm 1024x7168 f32).
 */
static void fit_long_threads(const ckl_norm_desc *d, backward_flow *f)
{
    enum { COLS_MIN = 2049, COLS_MAX = 4096, ELEMENTS = 16, STEPS = 4, CTAS = 2 };
    if (norm_is_ragged(d))
        return;
    if (d->cols > COLS_MAX && f->steps > 1 && !f->dgamma_in_smem)
        f->threads = (int)round_up(ceil_div(d->cols, (int64_t)f->elements * cluster_of(d, f)), WARP);
    if (f->bytes != 4 || d->residual || d->cols < COLS_MIN || d->cols > COLS_MAX)
        return;
    f->threads = (int)round_up(ceil_div(d->cols, ELEMENTS), WARP);
    f->elements = ELEMENTS;
    f->steps = STEPS;
    f->ctas_per_sm = CTAS;
}

/* False: no room for sums of columns, or for the row itself. */
static bool choose_sums(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, backward_flow *f,
                        row_pipeline_split *s)
{
    if (!find_backward_flow(d, device, f))
        return false;
    fit_backward_flow(d, device, f);
    fit_warps(d, device, centred, f);
    fit_odd_rows(d, device, centred, f);
    fit_long_threads(d, f);
    *s = split_of_flow(f, d);
    const bool guards = d->affine && f->dgamma_in_smem && f->bytes == 4 && !s->chunk.exact;
    return s->stages >= s->chunks && !guards; // for guards no registers are left
}

/*
 * Rows of f32 whose x and dx start anywhere, each differently: by single elements, or pairs, from a ring to registers,
 * so that threads have the same columns in each row. From memory RMS norm 2048x8335, ldx=8336, took 96.6 us, by 224
 * threads with 19 elements in clusters of two 62.0, by vectors of dx, with x and dy cut out of the ring, 76.4. Those of
 * 16 bits are cut: 74.6 and 62.5 (layer norm 16384x2048, ldy=2049), 224.5 and 194.5 (4096x20001, ldx=20002). False: no
 * room for two CTAs.
 */
static bool choose_elements(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, row_pipeline_split *s,
                            int *ctas_per_sm)
{
    enum { THREADS_MAX = 384, CTAS_MIN = 2, REGISTERS_MAX = 120, OF_LANE = 512, PARTITIONS = 4 };
    static const double ROW = 120;
    const int vec = norm_widest_vector(d), inputs = 2 + d->residual, others = centred ? 28 : 24;
    const int of_vector = vec * (1 + centred + 1 + inputs); // sums of columns, gamma, the row
    double best = INFINITY;
    for (int cluster = 1; cluster <= row_pipeline_cluster_max(device); cluster *= 2)
        for (int steps = 1; of_vector * steps + others <= REGISTERS_MAX; steps++) {
            const int threads = odd_row_threads(d, steps * vec * cluster),
                      warps = PARTITIONS * (OF_LANE / (int)round_up(of_vector * steps + others, 8));
            const int64_t bytes = (int64_t)threads * steps * vec * dtype_bytes(d->dtype) * inputs;
            const int ctas = (int)min_i64(warps / (threads / WARP + 1), BACKWARD_RING_BYTES / (ROWS_IN_RING * bytes));
            const double cost = odd_row_cost(ROW, steps * vec, threads, cluster, ctas);
            if (threads > THREADS_MAX || ctas < CTAS_MIN || cost >= best)
                continue;
            best = cost;
            *ctas_per_sm = ctas;
            *s = (row_pipeline_split){ .chunk = { threads, threads, 1, vec, steps },
                                       .cluster = cluster,
                                       .residence = ROW_IN_REGISTERS,
                                       .stages = ROWS_IN_RING,
                                       .chunks = 1,
                                       .cut = true };
        }
    return best < INFINITY;
}

/*
 * Are rows shorter than those that flow? Layer norm with a residual flows where rows fill 96 threads twice
 * (fit_warps()): 249.5 and 192.5 us (65536x1536 f16).
 */
static bool is_short(const ckl_norm_desc *d, bool centred)
{
    enum { BYTES_MAX = 3072 }; // of whole vectors: 47.7 and 36.1 us (25600x768 bf16), 42.8 and 39.9 (15488x1280)
    enum { COLS_MAX = 512, COLS_MAX_SINGLE = 896, COLS_MAX_RESIDUAL = 1382 }; // nine tenths of 96 threads' 16 elements
    const bool halves = dtype_bytes(d->dtype) == 2;
    if (norm_is_ragged(d))
        return d->cols <= ((halves || !centred) && !is_cut(d) ? COLS_MAX_SINGLE : COLS_MAX);
    const bool flows = centred && d->residual && halves && d->cols > COLS_MAX_RESIDUAL;
    return d->cols <= COLS_MAX || (!flows && d->cols * dtype_bytes(d->dtype) <= BYTES_MAX);
}

/*
 * False: they do not flow. Odd rows of f32 in phase do where an SM would have two in registers alone, whose loads
 * nothing covers: layer norm 4096x4095 65.4 us by single elements, 60.2 by the ring.
 */
static bool choose_backward_flow(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, norm_config *c)
{
    enum { ROWS_MIN = 3 };
    backward_flow f = { .ctas_per_sm = 0 };
    row_pipeline_split s;
    const bool odd = norm_is_ragged(d) && !is_cut(d) && d->dtype == CKL_F32, apart = odd && !norm_in_phase(d);
    if (!device->has_tma || is_short(d, centred) ||
        (odd && choose_packed_split(d, device, centred, &c->split) &&
         (apart || ROWS_MIN * c->split.row_threads <= packed_threads(d, &c->split))))
        return false;
    if (apart ? !choose_elements(d, device, centred, &s, &f.ctas_per_sm) : !choose_sums(d, device, centred, &f, &s))
        return false;
    row_pipeline_config(&s, &c->split, &c->flow);
    c->dgamma_in_smem = f.dgamma_in_smem;
    c->ctas_per_sm = f.ctas_per_sm;
    return true;
}

/* Rows in registers, or tile by tile. */
static void choose_backward_rows(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, norm_config *c)
{
    const int vec = norm_widest_vector(d), cluster_max = residency_cluster_max(device);
    const int elements = BACKWARD_BYTES / dtype_bytes(d->dtype);
    row_split *s = &c->split;
    if (choose_packed_split(d, device, centred, s)) {
        c->ctas_per_sm = packed_threads(d, s) / s->threads;
        return;
    }
    c->tiled = !choose_backward_split(d->cols, vec, elements, cluster_max, s) &&
               !choose_backward_split(d->cols, vec, BACKWARD_ELEMENTS_MAX, cluster_max, s);
    if (c->tiled)
        *s = norm_tiled_split(d, device, false);
}

/*
 * One CTA an SM for few rows, where what that saves of partial sums, written and read, takes longer than the further
 * turns: layer norm of bf16, 577x4096, 13.8 us by 289 CTAs, 12.3 by 116; 224x2560 7.3 by 224, 6.7 by 112;
 * 300x8192 15.5 by 150 clusters of two, 13.2 by 60; RMS norm 1000x4096 14.3 by 334, 13.9 by 125.
 */
static void choose_workers(const ckl_norm_desc *d, const ckl_device_info *device, bool centred, norm_config *c)
{
    enum { ROWS_FEW = 3 }; // of a CTA or cluster
    static const double TURN_US = 0.3, BYTES_OF_US = 4e6;
    const int64_t one = max_i64(1, device->sm_count / c->split.cluster), all = one * c->ctas_per_sm;
    if (!c->flow.stages || !d->affine || d->rows >= ROWS_FEW * all)
        return;
    const int64_t turns = ceil_div(d->rows, one) - ceil_div(d->rows, all),
                  saved = even_workers(d->rows, all) - even_workers(d->rows, one);
    const double bytes = (double)saved * (1 + centred) * 4 * (double)d->cols;
    if (2 * bytes / BYTES_OF_US > TURN_US * (double)turns)
        c->persistent_ctas = 1;
}

/*
 * One CTA or cluster for so few rows that another launch would take as long as they do in turn. Of rows in registers a
 * CTA takes as many at once as it has registers for.
 */
static void choose_alone(const ckl_norm_desc *d, norm_config *c)
{
    enum { TURNS_FLOW = 4, TURNS = 2 };
    row_split one = c->split;
    if (!d->affine || c->tiled || norm_phases(d, c) != 1)
        return;
    if (!c->flow.stages && one.cluster == 1) {
        const int64_t unit = max_i64(WARP, one.row_threads), wanted = ceil_div(d->rows * one.row_threads, unit);
        one.threads = (int)(unit * max_i64(1, min_i64(wanted, packed_threads(d, &one) / unit)));
    }
    if (ceil_div(d->rows, row_split_rows(&one)) > (c->flow.stages ? TURNS_FLOW : TURNS))
        return;
    c->ctas_per_sm = c->flow.stages ? c->ctas_per_sm : 1;
    c->split = one;
    c->alone = true;
}

ckl_status norm_choose_backward(const void *desc, const ckl_device_info *device, bool centred, void *config)
{
    const ckl_norm_desc *d = desc;
    norm_config *c = config;
    if (d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "norm backward: direction is forward");
    norm_take_problem(d, c);
    if (!choose_backward_flow(d, device, centred, c))
        choose_backward_rows(d, device, centred, c);
    choose_workers(d, device, centred, c);
    choose_alone(d, c);
    choose_column_lanes(d, device, c);
    return CKL_OK;
}
