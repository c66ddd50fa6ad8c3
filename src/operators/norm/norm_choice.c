/* norm_choice.c - the configs that problems get and may have; bench/notes/norm.md has the measurements. */
#include "base/math.h"
#include "base/status.h"
#include "operators/norm/norm_config.h"
#include "skeletons/prefetch.h"
#include "skeletons/residency.h"

enum {
    FORWARD_REGISTERS = 32, // of a row in a thread: few threads with many loads beat many with few, bench/notes/norm.md
    LONG_COLS = 2048,       // longer rows of 16 bits take as many registers as f32 ones
    SINGLE_COLS = 4096,     // as do rows of f32 by single elements: 5915 columns by 512 threads 291 us, by 256 198
    SINGLE_COLS_RESIDUAL = 8192,
    REDUCTION_BYTES = 4 << 10,  // of shared memory: more than the reductions of a row in registers take
    RAGGED_VECTORS_MIN = 16,    // of a ragged row with gamma
    FORWARD_THREADS = 1024,     // of an SM, for f32 rows: 64 registers each
    FORWARD_THREADS_BETA = 512, // whose gamma and beta are cut: 128
    /* longer rows flow through shared memory */
    FORWARD_ROW_COLS_MAX = 16384,
    FORWARD_RESIDUAL_BYTES_MAX = 32 << 10,
    CUT_BYTES_MIN = 64 << 10, // of a row of f32 that is out of phase with y: 44 KB are as fast in registers
    CUT_BYTES_MIN_HALF = 24 << 10,
    /* of a row in the registers of a CTA; more of them spill */
    CTA_ELEMENTS_MAX = 32 << 10,
    CTA_ELEMENTS_RESIDUAL_MAX = 24 << 10
};
enum { CTAS_MAX = INT32_MAX, COLS_MAX = INT32_MAX, TILED_THREADS = 512, TILED_CTAS = 2, TILED_ELEMENTS = 16 };

/* Choice */

/* Does a config take the rows? Of rows that are cut only those that are written count. */
static bool accepts_rows(const norm_rows *d, const norm_config *c)
{
    const int vec = c->split.vec;
    return c->split.ragged ||
           (vec > 0 && row_vec(d->dtype, d->rows, d->cols, c->flow.cut ? d->ldy : d->ldx, d->ldy) % vec == 0);
}

int norm_widest_vector(const norm_rows *d)
{
    return row_vec(d->dtype, d->rows, d->cols, d->ldx, d->ldy);
}

bool norm_in_phase(const norm_rows *d)
{
    return row_in_phase(d->dtype, d->rows, d->ldx, d->ldy);
}

bool norm_is_whole(const norm_rows *d, int64_t ld)
{
    return row_vec(d->dtype, d->rows, d->cols, ld, ld) == row_vec_full(d->dtype);
}

bool norm_is_ragged(const norm_rows *d)
{
    return !norm_is_whole(d, d->ldx) || !norm_is_whole(d, d->ldy);
}

int64_t norm_phases(const norm_rows *d, const norm_config *c)
{
    return min_i64(c->split.ragged ? row_phase_period(d->dtype, d->ldy) : 1, d->rows);
}

/* Rows too long for registers: all threads of a CTA, and as many CTAs a row as keep the device busy. */
row_split norm_tiled_split(const norm_rows *d, const ckl_device_info *device, bool ragged)
{
    const int vec = ragged ? row_vec_full(d->dtype) : norm_widest_vector(d);
    row_split s = { .threads = TILED_THREADS,
                    .row_threads = TILED_THREADS,
                    .cluster = 1,
                    .vec = vec,
                    .steps = TILED_ELEMENTS / vec,
                    .ragged = ragged };
    const int cluster_max = device->has_tma ? row_pipeline_cluster_max(device) : 1;
    while (s.cluster < cluster_max && d->rows * s.cluster < device->sm_count)
        s.cluster *= 2;
    return s;
}

bool norm_is_prefetched(const norm_rows *d, const norm_config *c)
{
    enum { RING_SHARE = 4 };
    const int inputs = 1 + (d->direction == CKL_DIRECTION_BACKWARD) + d->residual;
    const int64_t elements = product_i64(d->rows, max_i64(d->ldx, d->cols));
    return elements <= PREFETCHED_BYTES / (c->flow.stages ? RING_SHARE : 1) / (inputs * dtype_bytes(d->dtype));
}

void norm_take_problem(const norm_rows *d, norm_config *c)
{
    c->dtype = d->dtype;
    c->centred = d->centred;
    c->affine = d->affine;
    c->residual = d->residual;
}

/* Bytes of a row in registers; longer ones flow if they can. */
static int64_t forward_bytes_max(const norm_rows *d)
{
    return d->residual ? FORWARD_RESIDUAL_BYTES_MAX : FORWARD_ROW_COLS_MAX * dtype_bytes(d->dtype);
}

/*
 * Are single elements of rows out of phase faster than cut vectors? In f32 those of a warp are whole lines: 31.7 us
 * instead of 35.0 (16384x768), 58.4 instead of 66.1 (2048x13312). A residual beside them wants clusters.
 */
static bool prefers_elements(const norm_rows *d)
{
    return d->dtype == CKL_F32 && d->cols <= (d->residual ? SINGLE_COLS_RESIDUAL : FORWARD_ROW_COLS_MAX) &&
           !norm_in_phase(d);
}

/*
 * Registers of a thread for a row. A residual takes as many again: by 64 elements of 16 bits of each one CTA fits an
 * SM, 45.4 us; by 32 two do, 40.9 (RMS norm 1240x14760).
 */
static int forward_registers(const norm_rows *d)
{
    if (d->dtype == CKL_F32)
        return prefers_elements(d) && d->cols <= (d->residual ? SINGLE_COLS_RESIDUAL : SINGLE_COLS)
                   ? FORWARD_REGISTERS / 2
                   : FORWARD_REGISTERS;
    if (d->residual && d->cols * dtype_bytes(d->dtype) > forward_bytes_max(d))
        return FORWARD_REGISTERS * 3 / 4;
    const bool many = d->cols > LONG_COLS && (!d->residual || norm_is_ragged(d));
    return many ? FORWARD_REGISTERS : FORWARD_REGISTERS / 2;
}

/* Are these long ragged rows of 16 bits with a residual? */
static bool keeps_residual(const norm_rows *d)
{
    return d->residual && d->dtype != CKL_F32 && norm_is_ragged(d) && d->cols > LONG_COLS;
}

/*
 * Threads for which an SM shall have registers; 0: no matter. Layer norm of 16 bits gets 80 registers, where ptxas
 * would take 120 for the loads of a row: 12288x7424 111.9 and 96.4 us. Rows that fill 128 threads do not gain, nor RMS
 * norm, which needs fewer, nor lanes of a warp with few vectors.
 */
static int forward_threads(const norm_rows *d, const row_split *s)
{
    enum { THREADS_CENTRED = 768, THREADS_RESIDUAL = 512, THREADS_FILLED = 128, WARP = 32, FEW_ELEMENTS = 32 };
    if (row_split_registers(s, d->dtype) > FORWARD_REGISTERS)
        return 0;
    if (d->dtype == CKL_F32)
        return d->residual ? 0 : s->ragged && d->centred ? FORWARD_THREADS_BETA : FORWARD_THREADS;
    if (keeps_residual(d))
        return THREADS_RESIDUAL;
    if (d->residual && s->row_threads == TILED_THREADS && row_split_registers(s, d->dtype) <= FORWARD_REGISTERS / 2)
        return FORWARD_THREADS; // else ptxas takes registers for one CTA an SM
    const bool gains =
        s->row_threads > WARP ? !s->exact || s->threads > THREADS_FILLED : s->steps * s->vec > FEW_ELEMENTS;
    return d->centred && gains && !d->residual && !s->ragged ? THREADS_CENTRED : 0;
}

/*
 * Gamma and beta of ragged rows are read from shared memory where CTAs take several rows; else each vector is cut out
 * of two. For long f32 rows the cuts cost nothing beside the memory's time (bench/notes/norm.md).
 */
static void choose_shared_weights(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    enum { THREADS = 128, TURNS = 2, FEW_STEPS = 4, MANY_ELEMENTS = 48 };
    enum { THREADS_FEW_STEPS = 768, THREADS_MANY_STEPS = 640, THREADS_MANY_ELEMENTS = 512 }; // of an SM
    row_split *s = &c->split;
    if (!d->affine || !s->ragged || c->tiled || s->cluster > 1 || (d->dtype == CKL_F32 && s->row_threads > 32) ||
        keeps_residual(d))
        return;
    const int threads = s->row_threads <= 32 ? THREADS : s->threads;
    const int resident = (s->steps <= FEW_STEPS                ? THREADS_FEW_STEPS
                          : s->steps * s->vec <= MANY_ELEMENTS ? THREADS_MANY_STEPS
                                                               : THREADS_MANY_ELEMENTS) /
                         threads;
    const int64_t rows = threads / s->row_threads, bytes = norm_weights_bytes(s, d->dtype, 1) + REDUCTION_BYTES;
    if (resident * bytes > (int64_t)device->smem_per_sm_bytes || d->rows < TURNS * rows * resident * device->sm_count)
        return;
    s->threads = threads;
    c->ctas_per_sm = resident;
    c->shared_weights = true;
}

/*
 * Ragged rows that go from a ring to registers at once. f32 has 12 elements a thread or, where those want clusters of
 * eight, 24 in clusters of four: 55.2 and 50.9 us (896x25953).
 */
typedef struct held_flow {
    int bytes; // of an element
    int64_t cols_min, cols_max;
    int threads_max, steps, chunks, stages, warps; // of an SM, by their registers
} held_flow;

static const held_flow *find_held_flow(const norm_rows *d)
{
    static const held_flow flows[] = { { 2, 3500, INT32_MAX, 256, 2, 4, 4, 20 },
                                       { 4, 10241, 18432, 288, 1, 3, 4, 30 },
                                       { 4, 18433, INT32_MAX, 288, 2, 3, 3, 20 } };
    for (int i = 0; i < COUNT_OF(flows); i++)
        if (flows[i].bytes == dtype_bytes(d->dtype) && d->cols >= flows[i].cols_min && d->cols <= flows[i].cols_max)
            return &flows[i];
    return NULL;
}

/*
 * The next row arrives while one is reduced and written: 80.8 us by the ring alone, 61.8 (layer norm 896x25953 f32);
 * RMS norm 10176x7689 bf16 92.9 us in registers, 81.7 so. False: other rows, or not two for each CTA, which are faster
 * in registers.
 */
static bool choose_held_flow(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    enum { WARP = 32, CHUNKS_MAX = 4, TURNS = 2 };
    const held_flow *f = find_held_flow(d);
    if (!device->has_tma || !f || !d->affine || d->residual || norm_is_whole(d, d->ldy) || prefers_elements(d))
        return false;
    const int vec = row_vec_full(d->dtype), chunks_max = d->dtype == CKL_F32 ? CHUNKS_MAX : f->chunks;
    int64_t room = (int64_t)f->threads_max * f->steps * f->chunks * vec; // of a CTA
    int cluster = 1, chunks = f->chunks;
    while (cluster < row_pipeline_cluster_max(device) && d->cols > room / f->chunks * chunks_max * cluster)
        cluster *= 2;
    while (chunks < chunks_max && d->cols > room / f->chunks * chunks * cluster)
        chunks++;
    const int64_t threads = round_up(ceil_div(d->cols, (int64_t)f->steps * chunks * vec * cluster), WARP);
    if (threads > f->threads_max)
        return false;
    row_pipeline_split s = { .chunk = { (int)threads, (int)threads, 1, vec, f->steps, .ragged = true },
                             .cluster = cluster,
                             .stages = f->stages,
                             .residence = ROW_IN_REGISTERS,
                             .cut = !norm_in_phase(d) };
    s.chunks = (int)row_pipeline_chunks(&s, d->cols);
    c->ctas_per_sm = f->warps / ((int)threads / WARP + 1);
    if (d->rows * cluster < TURNS * c->ctas_per_sm * device->sm_count)
        return false;
    row_pipeline_config(&s, &c->split, &c->flow);
    c->shared_weights = true;
    return true;
}

/*
 * Are rows long enough to flow? Those that are cut, of 16 bits, where a CTA's registers want 512 threads: 6784x16944
 * 222 us in registers, 151 in the ring.
 */
static bool are_long(const norm_rows *d)
{
    const bool cut = !norm_in_phase(d);
    const int64_t bytes_cut = d->dtype == CKL_F32 ? CUT_BYTES_MIN : CUT_BYTES_MIN_HALF;
    return d->cols * dtype_bytes(d->dtype) > (cut ? bytes_cut : forward_bytes_max(d));
}

/*
 * Half the lanes of a row, if fewer idle: layer norm of 17920x1183 bf16 31.4 us, 26.3; of 46875x640, where x is not
 * aligned, 37.8, 32.6, of 33482x896 37.2, 33.3.
 */
static void halve_lanes(const norm_rows *d, row_split *s)
{
    enum { LANES_MIN = 16, LANES_MAX = 64, LANE_STEPS_MAX = 7 };
    if (s->row_threads <= LANES_MAX)
        row_split_halve(d->cols, LANES_MIN, LANE_STEPS_MAX, s);
}

/*
 * Rows of 16 bits in the registers of a CTA, where y is aligned and x is not: vectors are those of y, gamma and beta;
 * each of x is cut out of two. False: other rows. Layer norm by two warps gets 80 registers: 32768x2480 f16 105.4 us by
 * 128 threads, 93.5 by 64, 90.4 with 80 registers; RMS norm does not gain.
 */
static bool choose_cut(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    enum { THREADS_MIN = 128, THREADS_MIN_CENTRED = 64, THREADS_PER_SM = 768 };
    const int vec = row_vec_full(d->dtype);
    if (d->dtype == CKL_F32 || norm_in_phase(d) || !norm_is_whole(d, d->ldy) || d->cols < RAGGED_VECTORS_MIN * vec ||
        !row_split_choose(d->cols, vec, d->dtype, FORWARD_REGISTERS / 2, 1, &c->split))
        return false;
    row_split_halve(d->cols, d->centred ? THREADS_MIN_CENTRED : THREADS_MIN, ROW_STEPS_HALVED, &c->split);
    halve_lanes(d, &c->split);
    if (device->has_tma && are_long(d))
        return false;
    if (d->centred && c->split.threads == THREADS_MIN_CENTRED)
        c->ctas_per_sm = THREADS_PER_SM / THREADS_MIN_CENTRED;
    c->flow.cut = true;
    return true;
}

/*
 * Rows that flow, as many CTAs an SM as have room; those out of phase with y are cut out of the ring. Cutting keeps
 * threads busy: where a ring of four chunks has two rows of 16 bits, three CTAs an SM are faster than two with six,
 * 54.5 us for 57.6 (layer norm 3072x13312). False: others.
 */
static bool choose_flow(const norm_rows *d, const ckl_device_info *device, norm_config *c)
{
    enum { CHUNKS = 2, STAGES = 4 };
    row_pipeline_split s;
    const int inputs = 1 + d->residual;
    if (!device->has_tma || !are_long(d) ||
        !row_pipeline_choose(d->rows, d->cols, !norm_is_whole(d, d->ldy), d->dtype, inputs, device, &s))
        return false;
    s.cut = !norm_in_phase(d);
    if (s.cut && d->centred && d->dtype != CKL_F32 && !d->residual && row_pipeline_chunks(&s, d->cols) <= CHUNKS)
        s.stages = STAGES;
    row_pipeline_config(&s, &c->split, &c->flow);
    c->ctas_per_sm = row_pipeline_ctas_per_sm(&s, d->dtype, inputs, NORM_FLOW_VALUES, device);
    return true;
}

/*
 * CTAs of an SM for rows with a residual, by no more threads than a row's vectors are for: those that are left have
 * their registers. In longer rows RMS norm's predicates take more than two CTAs have, and spill 120 bytes.
 */
static int residual_ctas(const norm_rows *d, row_split *s)
{
    enum { WARP = 32, PREDICATED_MOST = 14336 };
    s->threads = s->row_threads = (int)round_up(ceil_div(d->cols, s->vec * s->steps), WARP);
    s->exact = row_split_cols(s) == d->cols;
    return d->centred || s->exact || row_split_cols(s) <= PREDICATED_MOST ? FORWARD_THREADS / s->threads : 0;
}

/* Rows in registers or, too long for those, tile by tile. */
static void choose_forward_rows(const norm_rows *d, const ckl_device_info *device, bool ragged, norm_config *c)
{
    const int most = d->residual ? CTA_ELEMENTS_RESIDUAL_MAX : CTA_ELEMENTS_MAX;
    const int registers = forward_registers(d), cluster_max = residency_cluster_max(device);
    row_split *s = &c->split;
    const bool pays = !d->affine || d->cols >= RAGGED_VECTORS_MIN * row_vec_full(d->dtype); // beside their ends
    const bool held = (ragged && pays && row_split_choose_ragged(d->cols, d->dtype, registers, cluster_max, s)) ||
                      row_split_choose(d->cols, norm_widest_vector(d), d->dtype, registers, cluster_max, s);
    c->tiled = !held || row_split_cols(s) > most * (int64_t)s->cluster;
    if (c->tiled) {
        *s = norm_tiled_split(d, device, ragged);
        c->ctas_per_sm = TILED_CTAS; // 16x1048576 f32 82.4 us by clusters of eight, one CTA an SM, 68.2 of sixteen, two
    } else {
        const bool halves = d->centred || s->ragged; // RMS norm of aligned rows does not gain: 2000x640 2.6 us, 2.8
        if (halves && d->dtype != CKL_F32 && !d->residual)
            halve_lanes(d, s);
        row_split_finish(s, d->rows, d->cols, d->dtype, 2, device);
        const int threads = forward_threads(d, s);
        c->ctas_per_sm = d->residual && threads == FORWARD_THREADS ? residual_ctas(d, s) : threads / s->threads;
    }
    choose_shared_weights(d, device, c);
}

ckl_status norm_choose_forward(const void *desc, const ckl_device_info *device, void *config)
{
    const norm_rows *d = desc;
    norm_config *c = config;
    if (d->direction != CKL_DIRECTION_FORWARD)
        FAIL(CKL_UNSUPPORTED, "norm forward: direction is backward");
    norm_take_problem(d, c);
    const bool ragged = norm_is_ragged(d) && !prefers_elements(d);
    if (!choose_cut(d, device, c) && !choose_held_flow(d, device, c) && !choose_flow(d, device, c))
        choose_forward_rows(d, device, ragged, c);
    c->prefetch = norm_is_prefetched(d, c);
    return CKL_OK;
}

/* Rows in registers; those that flow or are tiled have no model. */
bool norm_candidate_forward(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const norm_rows *d = desc;
    norm_config *c = config;
    norm_take_problem(d, c);
    if (d->direction != CKL_DIRECTION_FORWARD ||
        !row_split_candidate(d->cols, d->dtype, norm_widest_vector(d), i, &c->split))
        return false;
    row_split_finish(&c->split, d->rows, d->cols, d->dtype, 2, device);
    c->prefetch = norm_is_prefetched(d, c);
    return true;
}

/* Admission */

static ckl_status admit_flow(const char *what, const norm_rows *d, const ckl_device_info *device, const norm_config *c)
{
    row_pipeline_split s = row_pipeline_split_of(&c->split, &c->flow);
    TRY(row_pipeline_device_admit(what, device));
    if (!accepts_rows(d, c) || d->cols > COLS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: rows that flow must start at multiples of vec=%d and have %d columns or less", what,
             c->split.vec, COLS_MAX);
    if (!norm_in_phase(d) && !c->flow.cut)
        FAIL(CKL_UNSUPPORTED,
             "%s: ldx=%" PRId64 " ldy=%" PRId64 ", rows that flow lie differently to 16-byte boundaries", what, d->ldx,
             d->ldy);
    if (c->tiled)
        FAIL(CKL_INVALID, "%s: tiled=1, but with stages=%d rows flow", what, c->flow.stages);
    const bool backward = d->direction == CKL_DIRECTION_BACKWARD;
    if (backward && !c->flow.chunks)
        FAIL(CKL_INVALID, "%s: chunks=0, but sums of columns are in registers, which have no index", what);
    const int inputs = 1 + backward + c->residual;
    int64_t bytes =
        row_pipeline_smem_bytes(&s, d->dtype, inputs, NORM_FLOW_VALUES) + (backward ? norm_sums_bytes(c) : 0);
    if (bytes > (int64_t)device->smem_per_cta_bytes)
        FAIL(CKL_INVALID, "%s: stages=%d and sums of dgamma take %" PRId64 " bytes of shared memory", what,
             c->flow.stages, bytes);
    TRY(row_pipeline_admit(what, &s, d->cols, d->dtype, inputs, NORM_FLOW_VALUES, device));
    return backward ? CKL_OK : row_pipeline_dynamic_admit(what, &s, d->cols);
}

/* What both directions require of a config. */
static ckl_status admit_split(const char *what, const norm_rows *d, const ckl_device_info *device, const norm_config *c)
{
    const row_split s = c->split;
    if (c->split.ragged && d->direction == CKL_DIRECTION_BACKWARD &&
        (!c->flow.stages || !(norm_in_phase(d) || c->flow.cut)))
        FAIL(CKL_UNSUPPORTED, "%s: ragged=1, but stages=%d, or ldx=%" PRId64 " and ldy=%" PRId64 " are out of phase",
             what, c->flow.stages, d->ldx, d->ldy);
    if (c->dtype != d->dtype || c->centred != d->centred || c->affine != d->affine || c->residual != d->residual)
        FAIL(CKL_INVALID, "%s: dtype, centred, affine and residual must be those of the problem", what);
    if (c->tiled && c->split.row_threads != c->split.threads)
        FAIL(CKL_INVALID, "%s: row_threads=%d of tiled rows must be threads=%d", what, c->split.row_threads,
             c->split.threads);
    const bool forward = d->direction == CKL_DIRECTION_FORWARD;
    const bool may_cut =
        forward && !c->tiled && !c->split.ragged && !c->shared_weights && c->split.vec == row_vec_full(d->dtype);
    if (norm_cuts_memory(c) && !may_cut)
        FAIL(CKL_INVALID, "%s: cut=1 is for rows in registers whose y is aligned, and for rows that flow", what);
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
    const norm_rows *d = desc;
    if (d->direction != CKL_DIRECTION_FORWARD)
        FAIL(CKL_UNSUPPORTED, "norm forward: direction is backward");
    const norm_config *c = config;
    TRY(admit_split("norm forward", d, device, c));
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
    const norm_rows *d = desc;
    const norm_config *c = config;
    if (c->column_lanes < 1 || c->column_lanes > 32 || !is_power_of_two(c->column_lanes))
        FAIL(CKL_INVALID, "norm backward: column_lanes=%d is no power of two up to 32", c->column_lanes);
    if (d->direction != CKL_DIRECTION_BACKWARD)
        FAIL(CKL_UNSUPPORTED, "norm backward: direction is forward");
    if (c->shared_weights)
        FAIL(CKL_INVALID, "norm backward: shared_weights=1 is for forward");
    if (c->alone && (!c->affine || c->tiled || norm_phases(d, c) != 1))
        FAIL(CKL_INVALID, "norm backward: alone=1 is for sums of columns of rows that lie alike to 16-byte boundaries");
    if (c->split.row_threads != c->split.threads && (c->split.ragged || c->flow.stages || c->tiled))
        FAIL(CKL_INVALID, "norm backward: row_threads=%d is not threads=%d, but rows are not whole in registers",
             c->split.row_threads, c->split.threads);
    return admit_split("norm backward", d, device, c);
}
