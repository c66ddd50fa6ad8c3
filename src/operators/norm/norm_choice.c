/* norm_choice.c - the configs that problems get and may have; bench/notes/norm.md has the measurements. */
#include "base/math.h"
#include "base/status.h"
#include "operators/norm/norm_config.h"

enum {
    FORWARD_REGISTERS = 32, // of a row in a thread: few threads with many loads beat many with few, bench/notes/norm.md
    LONG_COLS = 2048,       // longer rows of 16 bits take as many registers as f32 ones
    LONG_COLS_RESIDUAL = 8192,
    REDUCTION_BYTES = 4 << 10,    // of shared memory: more than the reductions of a row in registers take
    RAGGED_VECTORS_MIN = 16,      // of a ragged row with gamma
    FORWARD_THREADS = 1024,       // of an SM, for f32 rows: 64 registers each
    FORWARD_THREADS_RAGGED = 512, // whose gamma and beta take more: 128
    BACKWARD_BYTES = 32,          // of a thread and tensor of rows: each element needs two sums in f32 beside
    BACKWARD_ELEMENTS_MAX = 16,
    BACKWARD_THREADS_MAX = 512,
    BACKWARD_THREADS_MIN = 128,    // where rows flow
    BACKWARD_THREADS_RAGGED = 512, // of an SM, where rows flow: their ends take registers
    BACKWARD_WARPS = 20,           // of an SM that has a row for each: 96 registers a thread
    BACKWARD_PREFETCH_MAX = 8,     // elements for which there are registers to load the next row
    /* longer rows flow through shared memory */
    FORWARD_ROW_COLS_MAX = 16384,
    FORWARD_RESIDUAL_BYTES_MAX = 32 << 10,
    SHIFTED_BYTES_MIN = 64 << 10, // of a row that is out of phase with y: 44 KB are as fast in registers
    BACKWARD_ROW_COLS_MAX = 512,
    BACKWARD_RING_BYTES = 216 << 10, // of an SM
    /* of a row in the registers of a CTA; more of them spill */
    CTA_ELEMENTS_MAX = 32 << 10,
    CTA_ELEMENTS_RESIDUAL_MAX = 24 << 10
};
enum {
    CTAS_MAX = INT32_MAX,
    COLS_MAX = INT32_MAX,
    CLUSTER_MAX = 8,
    TILED_THREADS = 512,
    TILED_ELEMENTS = 16,
    COLUMN_LANES_MIN = 8,
    VECTORS_MIN = 4 // of a ragged row
};

/* Choice */

static bool divides_rows(const ckl_norm_desc *d, int vec, int64_t ldx, int64_t ldy)
{
    return vec > 0 && d->cols % vec == 0 && (d->rows <= 1 || (ldx % vec == 0 && ldy % vec == 0));
}

/*
 * Does a config take the rows? Where stores are shifted, only the rows whose vectors are used count: y's, or the
 * inputs'.
 */
static bool accepts_rows(const ckl_norm_desc *d, const norm_config *c)
{
    const bool moved = norm_shifts_stores(c), cut = c->shifted && !moved;
    return c->split.ragged || divides_rows(d, c->split.vec, cut ? d->ldy : d->ldx, moved ? d->ldx : d->ldy);
}

static int widest_vector(const ckl_norm_desc *d)
{
    return row_vec(d->dtype, d->rows, d->cols, d->ldx, d->ldy);
}

static bool in_phase(const ckl_norm_desc *d)
{
    return row_in_phase(d->dtype, d->rows, d->ldx, d->ldy);
}

/* Do rows start or end off 16-byte boundaries? For gradients, rows that are read. */
static bool reads_ragged(const ckl_norm_desc *d)
{
    return row_vec(d->dtype, d->rows, d->cols, d->ldx, d->ldx) != row_vec_full(d->dtype);
}

/*
 * Do rows that are read start off 16-byte boundaries, and those that are written at them, in whole vectors? If they flow,
 * the former are cut out of the ring. Short gradients are faster by single elements: 640 columns of 16 bits by a half,
 * 1280 of f32 by a sixth.
 */
static bool is_cut(const ckl_norm_desc *d)
{
    enum { COLS_MIN = 1025, COLS_MIN_F32 = 4096 };
    return reads_ragged(d) && row_vec(d->dtype, d->rows, d->cols, d->ldy, d->ldy) == row_vec_full(d->dtype) &&
           d->cols >= (d->dtype == CKL_F32 ? COLS_MIN_F32 : COLS_MIN);
}

static bool is_ragged(const ckl_norm_desc *d)
{
    return d->direction == CKL_DIRECTION_FORWARD ? widest_vector(d) != row_vec_full(d->dtype) : reads_ragged(d);
}

/* Rows too long for registers: all threads of a CTA, and as many CTAs a row as keep the device busy. */
static row_split tiled_split(const ckl_norm_desc *d, const ckl_device_info *device, bool ragged)
{
    const int vec = ragged ? row_vec_full(d->dtype) : widest_vector(d);
    row_split s = { .threads = TILED_THREADS,
                    .row_threads = TILED_THREADS,
                    .cluster = 1,
                    .vec = vec,
                    .steps = TILED_ELEMENTS / vec,
                    .ragged = ragged };
    while (device->has_tma && s.cluster < CLUSTER_MAX && d->rows * s.cluster < device->sm_count)
        s.cluster *= 2;
    return s;
}

static void take_problem(const ckl_norm_desc *d, norm_config *c)
{
    c->dtype = d->dtype;
    c->affine = d->affine;
    c->residual = d->residual;
}

/*
 * May rows flow? They must be long and lie in phase. Gradients in 16 bits may shift their stores, where that is faster
 * than single elements (bench/notes/norm.md): shorter rows spend too much on their ends, longer ones have too few
 * warps.
 */
static bool may_flow(const ckl_norm_desc *d, const ckl_device_info *device, int64_t bytes_min)
{
    enum { SHIFTED_COLS_MIN = 1025, SHIFTED_COLS_MAX = 32768 };
    const bool shifts = d->direction == CKL_DIRECTION_BACKWARD && d->dtype != CKL_F32 && d->cols >= SHIFTED_COLS_MIN &&
                        d->cols <= SHIFTED_COLS_MAX;
    const bool fits = in_phase(d) || shifts || (d->direction == CKL_DIRECTION_BACKWARD && is_cut(d));
    return device->has_tma && fits && d->cols * (int64_t)ckl_dtype_bytes(d->dtype) > bytes_min;
}

/* The lanes of the kernel that sums columns: enough CTAs for all SMs. */
static void choose_column_lanes(const ckl_norm_desc *d, const ckl_device_info *device, norm_config *c)
{
    while (c->column_lanes > COLUMN_LANES_MIN && d->cols < device->sm_count * c->column_lanes * norm_column_vec(c))
        c->column_lanes /= 2;
}

/* Do ragged rows pay? Short ones have few vectors beside their ends: single elements cost less. */
static bool pays_ragged(const ckl_norm_desc *d)
{
    return !d->affine || d->cols >= RAGGED_VECTORS_MIN * row_vec_full(d->dtype);
}

/* Bytes of a row in registers; longer ones flow if they can. */
static int64_t forward_bytes_max(const ckl_norm_desc *d)
{
    return d->residual ? FORWARD_RESIDUAL_BYTES_MAX : FORWARD_ROW_COLS_MAX * (int64_t)ckl_dtype_bytes(d->dtype);
}

/*
 * Are single elements of rows out of phase faster than cut vectors? In f32 those of a warp are whole lines: 31.7 us
 * instead of 35.0 (16384x768), 9.5 instead of 11.9 (1024x2880).
 */
static bool prefers_elements(const ckl_norm_desc *d)
{
    enum { COLS_MAX_ALONE = 8192 }; // of a CTA: longer ones would take clusters
    return d->dtype == CKL_F32 && d->cols <= COLS_MAX_ALONE && !in_phase(d);
}

/*
 * Have they one CTA's threads with so many elements each? 5915 columns by 256 threads take 198 us, by 512 with half of
 * them 291 (16384 rows on an H200).
 */
enum { MANY_ELEMENTS = 24 };
static bool holds_many_elements(const ckl_norm_desc *d)
{
    enum { THREADS = 256 };
    return prefers_elements(d) && !d->residual && d->cols > THREADS * FORWARD_REGISTERS / 2 &&
           d->cols <= THREADS * MANY_ELEMENTS;
}

/* Registers of a thread for a row. A residual takes as many again, and 64 elements of 16 bits of each would spill. */
static int forward_registers(const ckl_norm_desc *d)
{
    if (d->dtype == CKL_F32)
        return !prefers_elements(d)     ? FORWARD_REGISTERS
               : holds_many_elements(d) ? MANY_ELEMENTS
                                        : FORWARD_REGISTERS / 2;
    if (d->residual && d->cols * (int64_t)ckl_dtype_bytes(d->dtype) > forward_bytes_max(d))
        return FORWARD_REGISTERS * 3 / 4;
    return d->cols > (d->residual ? LONG_COLS_RESIDUAL : LONG_COLS) ? FORWARD_REGISTERS : FORWARD_REGISTERS / 2;
}

/*
 * Gamma and beta of ragged rows are read from shared memory where CTAs take several rows; else each vector is cut out
 * of two. For long f32 rows the cuts cost nothing beside the memory's time (bench/notes/norm.md).
 */
static void choose_shared_weights(const ckl_norm_desc *d, const ckl_device_info *device, norm_config *c)
{
    enum { THREADS = 128, TURNS = 2, FEW_STEPS = 4, THREADS_FEW_STEPS = 768, THREADS_MANY_STEPS = 640 };
    row_split *s = &c->split;
    if (!d->affine || !s->ragged || c->tiled || s->cluster > 1 || (d->dtype == CKL_F32 && s->row_threads > 32))
        return;
    const int threads = s->row_threads <= 32 ? THREADS : s->threads;
    const int resident = (s->steps <= FEW_STEPS ? THREADS_FEW_STEPS : THREADS_MANY_STEPS) / threads;
    const int64_t rows = threads / s->row_threads, bytes = norm_weights_bytes(s, d->dtype, 1) + REDUCTION_BYTES;
    if (resident * bytes > (int64_t)device->smem_per_sm_bytes || d->rows < TURNS * rows * resident * device->sm_count)
        return;
    s->threads = threads;
    c->ctas_per_sm = resident;
    c->shared_weights = true;
}

/*
 * The same for 16-bit rows that flow: chunks of half the size, two for each CTA of a cluster, so that three CTAs fit an
 * SM. False: too long.
 */
static bool choose_shared_flow(const ckl_norm_desc *d, const ckl_device_info *device, norm_config *c)
{
    enum { THREADS = 256, STEPS = 2, CHUNKS = 2, STAGES = 4, RESIDENT = 3 };
    row_pipeline_split s = { .chunk = { THREADS, THREADS, 1, row_vec_full(d->dtype), STEPS, .ragged = true },
                             .cluster = 1,
                             .stages = STAGES,
                             .residence = ROW_IN_RING };
    if (!d->affine || d->residual || d->dtype == CKL_F32 || !is_ragged(d))
        return false;
    while (s.cluster < row_pipeline_cluster_max(device) && row_pipeline_chunks(&s, d->cols) > CHUNKS)
        s.cluster *= 2;
    s.chunks = (int)row_pipeline_chunks(&s, d->cols);
    if (s.chunks > CHUNKS || d->rows * s.cluster < RESIDENT * device->sm_count)
        return false;
    row_pipeline_config(&s, &c->split, &c->flow);
    c->ctas_per_sm = RESIDENT;
    c->shared_weights = true;
    return true;
}

/*
 * Half the threads, with more vectors each, where that leaves fewer idle in the last step: 4992 elements of 16 bits are
 * 2.4 steps of 256 threads and 4.9 of 128, 57.4 and 51.8 us (8576 rows on an H200). Likewise 512 threads, of which one
 * CTA fits an SM: 2048x12288 35.4 and 32.9.
 */
static void halve_idle_threads(int64_t cols, row_split *s)
{
    enum { THREADS_MIN = 128, STEPS_MAX = 6, THREADS_ALONE = 512 };
    row_split half = *s;
    half.threads = half.row_threads = s->threads / 2;
    half.steps = (int)ceil_div(ceil_div(cols, s->vec), half.threads);
    half.exact = row_split_cols(&half) == cols;
    const bool alone = s->threads == THREADS_ALONE, fewer = row_split_cols(&half) < row_split_cols(s);
    if (s->row_threads == s->threads && half.threads >= THREADS_MIN && half.steps <= STEPS_MAX && (fewer || alone))
        *s = half;
}

/*
 * Do rows that are cut flow? Of 16 bits they do where a CTA's registers want 512 threads: 6784x16944 222 us in registers,
 * 151 in the ring.
 */
static bool flows_cut(const ckl_norm_desc *d, const ckl_device_info *device)
{
    enum { COLS_MAX_HELD = 12288 };
    const int64_t bytes = d->cols * (int64_t)ckl_dtype_bytes(d->dtype);
    return device->has_tma && is_cut(d) && (d->dtype == CKL_F32 ? bytes > SHIFTED_BYTES_MIN : d->cols > COLS_MAX_HELD);
}

/*
 * Rows of 16 bits in the registers of a CTA, where y is aligned and x is not: vectors are those of y, gamma and beta;
 * each of x is cut out of two. False: other rows.
 */
static bool choose_cut(const ckl_norm_desc *d, const ckl_device_info *device, norm_config *c)
{
    const int vec = row_vec_full(d->dtype);
    take_problem(d, c);
    if (d->dtype == CKL_F32 || in_phase(d) || row_vec(d->dtype, d->rows, d->cols, d->ldy, d->ldy) != vec ||
        d->cols < RAGGED_VECTORS_MIN * vec ||
        !row_split_choose(d->cols, vec, d->dtype, FORWARD_REGISTERS / 2, 1, &c->split))
        return false;
    halve_idle_threads(d->cols, &c->split);
    if (flows_cut(d, device))
        return false;
    c->shifted = true;
    return true;
}

/*
 * Rows out of phase with y that flow, cut out of the ring where y is aligned, else with shifted stores. In registers, by
 * clusters of two, they reached 28 to 70 % of the limit.
 */
static bool choose_shifted_flow(const ckl_norm_desc *d, const ckl_device_info *device, norm_config *c)
{
    const bool cut = flows_cut(d, device);
    if (!device->has_tma || in_phase(d) || (!cut && d->cols * (int64_t)ckl_dtype_bytes(d->dtype) <= SHIFTED_BYTES_MIN))
        return false;
    row_pipeline_split s = row_pipeline_choose(d->cols, reads_ragged(d) && !cut, d->dtype, 1 + d->residual, device);
    s.cut = cut;
    take_problem(d, c);
    row_pipeline_config(&s, &c->split, &c->flow);
    c->ctas_per_sm = row_pipeline_ctas_per_sm(&s, d->dtype, 1 + d->residual, NORM_FLOW_VALUES, device);
    c->shifted = true;
    return true;
}

ckl_status norm_choose_forward(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_norm_desc *d = desc;
    if (d->direction != CKL_DIRECTION_FORWARD)
        FAIL(CKL_UNSUPPORTED, "norm forward: direction is backward");
    norm_config *c = config;
    row_split s;
    if (choose_cut(d, device, c) || choose_shifted_flow(d, device, c))
        return CKL_OK;
    const bool ragged = is_ragged(d) && !prefers_elements(d);
    int cluster_max = device->has_tma ? CLUSTER_MAX : 1;
    take_problem(d, c);
    row_pipeline_split flowing = row_pipeline_choose(d->cols, ragged, d->dtype, 1 + d->residual, device);
    const bool flows = may_flow(d, device, forward_bytes_max(d));
    if (flows && choose_shared_flow(d, device, c))
        return CKL_OK;
    if (flows) {
        row_pipeline_config(&flowing, &c->split, &c->flow);
        c->ctas_per_sm = row_pipeline_ctas_per_sm(&flowing, d->dtype, 1 + d->residual, NORM_FLOW_VALUES, device);
        return CKL_OK;
    }
    int most = d->residual ? CTA_ELEMENTS_RESIDUAL_MAX : CTA_ELEMENTS_MAX;
    bool held = (ragged && pays_ragged(d) &&
                 row_split_choose_ragged(d->cols, d->dtype, forward_registers(d), cluster_max, &s)) ||
                row_split_choose(d->cols, widest_vector(d), d->dtype, forward_registers(d), cluster_max, &s);
    c->tiled = !held || row_split_cols(&s) > most * (int64_t)s.cluster;
    if (c->tiled)
        s = tiled_split(d, device, ragged);
    if (!c->tiled)
        row_split_widen(&s, d->rows, d->cols, d->dtype, device);
    c->split = s;
    if (d->dtype == CKL_F32 && !d->residual && !c->tiled && row_split_registers(&s, d->dtype) <= FORWARD_REGISTERS)
        c->ctas_per_sm = (s.ragged                 ? FORWARD_THREADS_RAGGED
                          : holds_many_elements(d) ? FORWARD_THREADS * 3 / 4
                                                   : FORWARD_THREADS) /
                         s.threads;
    choose_shared_weights(d, device, c);
    return CKL_OK;
}

/* Rows in registers; those that flow or are tiled have no model. */
bool norm_candidate_forward(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_norm_desc *d = desc;
    norm_config *c = config;
    (void)device;
    take_problem(d, c);
    return d->direction == CKL_DIRECTION_FORWARD &&
           row_split_candidate(d->cols, d->dtype, widest_vector(d), i, &c->split);
}

/*
 * All threads of a CTA, even of one warp, share a row, so a thread's sums of columns are those of its CTA. False: too
 * long.
 */
static bool choose_backward_split(int64_t cols, int vec, int elements, int cluster_max, row_split *s)
{
    const int64_t vectors = max_i64(1, ceil_div(cols, vec)), steps = max_i64(1, elements / vec);
    *s = (row_split){ .threads = 32, .cluster = 1, .vec = vec };
    while (s->threads < BACKWARD_THREADS_MAX && s->threads * steps < vectors)
        s->threads *= 2;
    while (s->cluster < cluster_max && s->threads * s->cluster * steps < vectors)
        s->cluster *= 2;
    s->row_threads = s->threads;
    s->steps = (int)ceil_div(vectors, (int64_t)s->threads * s->cluster);
    s->exact = row_split_cols(s) == cols;
    return s->steps <= steps;
}

/* The same for the vectors of a ragged row, unless it is hardly longer than its ends. */
static bool choose_ragged_backward_split(const ckl_norm_desc *d, int elements, row_split *s)
{
    const int vec = row_vec_full(d->dtype);
    if (!is_ragged(d) || !in_phase(d) || d->cols < VECTORS_MIN * vec ||
        !choose_backward_split(d->cols - d->cols % vec, vec, elements, 1, s))
        return false;
    s->exact = false;
    s->ragged = true;
    return true;
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
    row_residence residence;
    bool lookahead; // if the ring has room
    bool hold_gamma, dgamma_in_smem;
} backward_flow;

static const backward_flow backward_flows[] = {
    { 2, 1024, 64, 16, 2, 4, ROW_IN_REGISTERS, false, true, false },
    { 2, 2048, 128, 16, 1, 3, ROW_IN_RING, false, true, false },
    { 2, 4096, 256, 16, 1, 3, ROW_IN_RING, true, true, false },
    { 2, 8192, 256, 16, 1, 3, ROW_IN_RING, true, true, false },
    { 2, 131072, 256, 32, 2, 1, ROW_IN_RING, true, true, false },
    { 2, 262144, 512, 32, 1, 1, ROW_IN_RING, true, false, true },
    { 4, 1024, 128, 8, 2, 4, ROW_IN_RING, false, true, false },
    { 4, 4096, 512, 8, 2, 1, ROW_IN_RING, false, true, false },
    { 4, 16384, 256, 8, 2, 2, ROW_IN_RING, true, true, false },
    { 4, 65536, 256, 16, 1, 1, ROW_IN_RING, true, true, false },
    { 4, 131072, 256, 32, 4, 1, ROW_IN_RING, false, true, false },
    { 4, 262144, 512, 32, 2, 1, ROW_IN_RING, false, false, true },
};

/* The first that is long enough; short rows take twice as many CTAs of half the threads. False: none is. */
static bool find_backward_flow(const ckl_norm_desc *d, const ckl_device_info *device, backward_flow *f)
{
    for (int i = 0; i < COUNT_OF(backward_flows); i++) {
        *f = backward_flows[i];
        if (f->bytes != (int)ckl_dtype_bytes(d->dtype) || d->cols > f->cols_max ||
            d->cols > (int64_t)f->threads * f->elements * row_pipeline_cluster_max(device))
            continue;
        for (; f->threads > BACKWARD_THREADS_MIN && f->threads / 2 * f->elements >= d->cols; f->ctas_per_sm *= 2)
            f->threads /= 2;
        if (!is_ragged(d))
            return true;
        const int most = BACKWARD_THREADS_RAGGED / f->threads;
        const bool four = f->bytes == 2 && f->threads == 128 && !is_cut(d); // 208.7 -> 171.0 us (52736x1333 f16)
        f->ctas_per_sm = four ? most : (int)min_i64(f->ctas_per_sm, most);
        f->lookahead |= f->bytes == 2 && f->residence == ROW_IN_RING; // hides the loads of the ends
        return true;
    }
    return false;
}

static row_pipeline_split split_of_flow(const backward_flow *f, const ckl_norm_desc *d)
{
    const int vec = row_vec_full(d->dtype), inputs = 2 + d->residual;
    const bool ragged = is_ragged(d) && !is_cut(d);
    row_pipeline_split s = { .chunk = { f->threads, f->threads, 1, vec, f->steps, .ragged = ragged },
                             .cluster = 1,
                             .residence = f->residence,
                             .cut = is_cut(d) };
    while ((int64_t)f->threads * f->elements * s.cluster < d->cols)
        s.cluster *= 2;
    s.chunks = (int)row_pipeline_chunks(&s, d->cols);
    s.chunk.exact = !ragged && row_split_cols(&s.chunk) * s.cluster * s.chunks == d->cols;
    int64_t sums = f->dgamma_in_smem ? 4LL * f->threads * f->elements : 0;
    s.stages = (int)((BACKWARD_RING_BYTES / f->ctas_per_sm - sums) /
                     ((row_split_cols(&s.chunk) + (s.cut ? vec : 0)) * inputs * f->bytes));
    s.lookahead = f->lookahead && s.stages >= 2 * s.chunks;
    return s;
}

/*
 * Three chunks a row, where a quarter of the elements that threads have room for would be idle. Ragged rows of f32, and
 * rows of more than four CTAs, were not measured.
 */
static void fit_backward_flow(const ckl_norm_desc *d, const ckl_device_info *device, backward_flow *f,
                              row_pipeline_split *s)
{
    enum { CHUNKS = 3 };
    static const struct {
        bool ragged, cut; // cut rows are ragged, too
        int threads, ctas_per_sm, cluster_max;
        bool lookahead;
    } shapes[] = { { false, false, 64, 4, 1, false },  { false, false, 128, 3, 1, false },
                   { false, false, 256, 2, 16, true }, { true, true, 64, 5, 1, false },
                   { true, false, 128, 3, 4, true },   { true, true, 128, 3, 4, true } };
    if (f->dgamma_in_smem || 4 * d->cols > 3 * (int64_t)f->threads * f->elements * s->cluster ||
        (is_ragged(d) && f->bytes == 4))
        return;
    for (int i = 0; i < COUNT_OF(shapes); i++) {
        backward_flow fit = { f->bytes,
                              0,
                              shapes[i].threads,
                              CHUNKS * row_vec_full(d->dtype),
                              1,
                              shapes[i].ctas_per_sm,
                              ROW_IN_RING,
                              shapes[i].lookahead,
                              true,
                              false };
        const row_pipeline_split split = split_of_flow(&fit, d);
        const bool spills = shapes[i].cut && shapes[i].ctas_per_sm > 3 && d->residual;
        if (shapes[i].ragged != is_ragged(d) || shapes[i].cut != is_cut(d) || spills || split.chunks != CHUNKS ||
            split.cluster > min_i64(shapes[i].cluster_max, row_pipeline_cluster_max(device)))
            continue;
        *f = fit;
        *s = split;
        return;
    }
}

/* False: no room for sums of columns, or for the row itself. */
static bool choose_sums(const ckl_norm_desc *d, const ckl_device_info *device, backward_flow *f, row_pipeline_split *s)
{
    if (!find_backward_flow(d, device, f))
        return false;
    *s = split_of_flow(f, d);
    fit_backward_flow(d, device, f, s);
    bool guards = f->dgamma_in_smem && f->bytes == 4 && !s->chunk.exact; // no registers are left for guards
    return s->stages >= s->chunks && !guards;
}

/* Without sums of columns rows still flow; kernel 2 then reads x and dy again. */
static void choose_backward_flow(const ckl_norm_desc *d, const ckl_device_info *device, norm_config *c)
{
    backward_flow f;
    row_pipeline_split s;
    const bool sums = choose_sums(d, device, &f, &s);
    if (!sums) {
        s = row_pipeline_choose(d->cols, is_ragged(d) && !is_cut(d), d->dtype, 2 + d->residual, device);
        s.cut = is_cut(d);
    }
    row_pipeline_config(&s, &c->split, &c->flow);
    c->hold_gamma = sums && f.hold_gamma;
    c->dgamma_in_smem = sums && f.dgamma_in_smem;
    c->shifted = !in_phase(d);
    c->ctas_per_sm = sums ? f.ctas_per_sm : 0;
    if (!sums || s.cluster > 1) // few partial sums
        c->column_threads = 256;
}

/*
 * Short rows have some lanes of a warp each, and CTAs several warps: 112 columns of 16 bits would leave 18 of 32 lanes
 * idle, and each CTA leaves partial sums of all columns.
 */
static void pack_rows(const ckl_norm_desc *d, const ckl_device_info *device, row_split *s, int *ctas_per_sm)
{
    enum { THREADS = 128, CTAS = 6, CTAS_LONG = 5, ELEMENTS = 8, SECTOR_BYTES = 32 };
    if (s->threads > 32 || s->ragged || s->cluster > 1)
        return;
    row_split packed = *s;
    const int64_t vectors = max_i64(1, ceil_div(d->cols, s->vec)), steps = max_i64(s->steps, ELEMENTS / s->vec);
    const int64_t sector = SECTOR_BYTES / (s->vec * (int64_t)ckl_dtype_bytes(d->dtype));
    while (packed.row_threads / 2 >= min_i64(vectors, max_i64(sector, ceil_div(vectors, steps))))
        packed.row_threads /= 2;
    packed.steps = (int)ceil_div(vectors, packed.row_threads);
    packed.exact = row_split_cols(&packed) == d->cols;
    while (packed.threads < THREADS && row_split_ctas(&packed, d->rows) >= 2 * (int64_t)device->sm_count)
        packed.threads *= 2;
    *ctas_per_sm = (packed.vec * packed.steps > ELEMENTS ? CTAS_LONG : CTAS) * (THREADS / packed.threads);
    *s = packed;
}

ckl_status norm_choose_backward(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_norm_desc *d = desc;
    norm_config *c = config;
    if (d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "norm backward: direction is forward");
    take_problem(d, c);
    if (may_flow(d, device, BACKWARD_ROW_COLS_MAX * (int64_t)ckl_dtype_bytes(d->dtype))) {
        choose_backward_flow(d, device, c);
        choose_column_lanes(d, device, c);
        return CKL_OK;
    }
    row_split s;
    int vec = widest_vector(d), cluster_max = device->has_tma ? CLUSTER_MAX : 1;
    int elements = BACKWARD_BYTES / (int)ckl_dtype_bytes(d->dtype);
    c->tiled = !choose_ragged_backward_split(d, elements, &s) &&
               !choose_backward_split(d->cols, vec, elements, cluster_max, &s) &&
               !choose_backward_split(d->cols, vec, BACKWARD_ELEMENTS_MAX, cluster_max, &s);
    if (c->tiled)
        s = tiled_split(d, device, false);
    c->prefetch = !c->tiled && s.vec * s.steps <= BACKWARD_PREFETCH_MAX;
    if (s.threads == 32 && !c->prefetch && !c->tiled)
        c->ctas_per_sm = BACKWARD_WARPS;
    if (!c->tiled)
        pack_rows(d, device, &s, &c->ctas_per_sm);
    c->split = s;
    choose_column_lanes(d, device, c);
    return CKL_OK;
}

/* Admission */

static ckl_status admit_flow(const char *what, const ckl_norm_desc *d, const ckl_device_info *device,
                             const norm_config *c)
{
    row_pipeline_split s = row_pipeline_split_of(&c->split, &c->flow);
    if (!accepts_rows(d, c) || d->cols > COLS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: rows that flow must start at multiples of vec=%d and have %d columns or less", what,
             c->split.vec, COLS_MAX);
    if (!in_phase(d) && !c->shifted)
        FAIL(CKL_UNSUPPORTED,
             "%s: ldx=%" PRId64 " ldy=%" PRId64 ", rows that flow lie differently to 16-byte boundaries", what, d->ldx,
             d->ldy);
    if (c->tiled)
        FAIL(CKL_INVALID, "%s: tiled=1, but with stages=%d rows flow", what, c->flow.stages);
    const bool backward = d->direction == CKL_DIRECTION_BACKWARD;
    if (!backward)
        TRY(row_pipeline_dynamic_admit(what, &s, d->cols));
    if ((c->hold_gamma || c->dgamma_in_smem) && !c->flow.chunks)
        FAIL(CKL_INVALID, "%s: hold_gamma=1 and dgamma_in_smem=1 need chunks=", what);
    const int inputs = 1 + backward + c->residual;
    int64_t bytes = row_pipeline_smem_bytes(&s, d->dtype, inputs, NORM_FLOW_VALUES) + norm_dgamma_bytes(c);
    if (bytes > (int64_t)device->smem_per_cta_bytes)
        FAIL(CKL_INVALID, "%s: stages=%d and sums of dgamma take %" PRId64 " bytes of shared memory", what,
             c->flow.stages, bytes);
    return row_pipeline_admit(what, &s, d->cols, d->dtype, inputs, NORM_FLOW_VALUES, device);
}

/* What both directions require of a config. */
static ckl_status admit_split(const char *what, const ckl_norm_desc *d, const ckl_device_info *device,
                              const norm_config *c)
{
    const row_split s = c->split;
    if (c->split.ragged && d->direction == CKL_DIRECTION_BACKWARD && (c->tiled || !(c->shifted || in_phase(d))))
        FAIL(CKL_UNSUPPORTED, "%s: ragged=1, but tiled=%d, or ldx=%" PRId64 " and ldy=%" PRId64 " are out of phase",
             what, c->tiled, d->ldx, d->ldy);
    if (c->dtype != d->dtype || c->affine != d->affine || c->residual != d->residual)
        FAIL(CKL_INVALID, "%s: dtype, affine and residual must be those of the problem", what);
    if (c->tiled && c->split.row_threads != c->split.threads)
        FAIL(CKL_INVALID, "%s: row_threads=%d of tiled rows must be threads=%d", what, c->split.row_threads,
             c->split.threads);
    const bool forward = d->direction == CKL_DIRECTION_FORWARD;
    const bool cut = !c->flow.stages && !c->tiled && !c->split.ragged && !c->shared_weights &&
                     c->split.vec == row_vec_full(d->dtype);
    if (c->shifted && !norm_shifts_stores(c) && !c->flow.cut && !(forward && cut))
        FAIL(CKL_INVALID, "%s: shifted=1 is for rows in registers whose y is aligned, and for rows that flow", what);
    if (c->persistent_ctas < 0)
        FAIL(CKL_INVALID, "%s: persistent_ctas=%d is negative", what, c->persistent_ctas);
    if (c->flow.stages)
        return admit_flow(what, d, device, c);
    TRY(row_split_admit(what, &s, c->tiled ? min_i64(d->cols, row_split_cols(&s)) : d->cols, d->dtype, device));
    if (c->tiled && c->split.exact)
        FAIL(CKL_INVALID, "%s: exact=1, but tiles of a row are not", what);
    if (!accepts_rows(d, c))
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d does not divide cols and the distances between rows", what, c->split.vec);
    if (d->cols > COLS_MAX || row_split_ctas(&s, d->rows) > CTAS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: more than %d columns or CTAs", what, CTAS_MAX);
    return CKL_OK;
}

ckl_status norm_admit_forward(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_norm_desc *d = desc;
    if (d->direction != CKL_DIRECTION_FORWARD)
        FAIL(CKL_UNSUPPORTED, "norm forward: direction is backward");
    const norm_config *c = config;
    TRY(admit_split("norm forward", d, device, c));
    if (c->prefetch)
        FAIL(CKL_INVALID, "norm forward: prefetch=1 is for backward");
    if (!c->shared_weights)
        return CKL_OK;
    if (!c->affine || c->tiled || (c->flow.stages ? c->flow.chunks == 0 : c->split.cluster > 1))
        FAIL(CKL_INVALID,
             "norm forward: shared_weights=1 is for affine rows in the registers of a CTA, or for unrolled chunks");
    const row_pipeline_split s = row_pipeline_split_of(&c->split, &c->flow);
    int64_t bytes = norm_weights_bytes(&s.chunk, c->dtype, c->flow.stages ? c->flow.chunks : 1);
    bytes +=
        c->flow.stages ? row_pipeline_smem_bytes(&s, c->dtype, 1 + c->residual, NORM_FLOW_VALUES) : REDUCTION_BYTES;
    if (bytes > (int64_t)device->smem_per_cta_bytes)
        FAIL(CKL_INVALID, "norm forward: shared_weights=1 takes %" PRId64 " bytes of shared memory", bytes);
    return CKL_OK;
}

ckl_status norm_admit_backward(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_norm_desc *d = desc;
    const norm_config *c = config;
    if (c->column_threads < 32 || c->column_threads > 1024 || c->column_threads % 32)
        FAIL(CKL_INVALID, "norm backward: column_threads=%d is no multiple of 32 up to 1024", c->column_threads);
    if (c->column_lanes < 1 || c->column_lanes > 32 || !is_power_of_two(c->column_lanes))
        FAIL(CKL_INVALID, "norm backward: column_lanes=%d is no power of two up to 32", c->column_lanes);
    if (d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "norm backward: direction is forward");
    if (c->shared_weights)
        FAIL(CKL_INVALID, "norm backward: shared_weights=1 is for forward");
    if (c->split.row_threads != c->split.threads && (c->split.ragged || c->flow.stages || c->tiled))
        FAIL(CKL_INVALID, "norm backward: row_threads=%d is not threads=%d, but rows are not whole in registers",
             c->split.row_threads, c->split.threads);
    return admit_split("norm backward", d, device, c);
}
