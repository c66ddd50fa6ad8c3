/* row_pipeline_split.c - how rows are cut into chunks for a ring: choice, limits, shared memory. */
#include "skeletons/residency.h"
#include "skeletons/row_pipeline.h"

enum { BARRIERS_OF_STAGE_BYTES = 16 };

row_pipeline_split row_pipeline_split_of(const row_split *split, const row_flow *flow)
{
    row_pipeline_split s = { *split,          split->cluster, flow->stages, flow->residence,
                             flow->lookahead, flow->chunks,   flow->cut };
    s.chunk.cluster = 1;
    return s;
}

void row_pipeline_config(const row_pipeline_split *s, row_split *split, row_flow *flow)
{
    *split = s->chunk;
    split->cluster = s->cluster;
    *flow = (row_flow){ s->stages, s->residence, s->lookahead, s->chunks, s->cut };
}

int64_t row_pipeline_chunk_cols(const row_pipeline_split *s)
{
    return row_split_cols(&s->chunk);
}

int64_t row_pipeline_chunk_bytes(const row_pipeline_split *s, ckl_dtype dtype)
{
    return row_pipeline_chunk_cols(s) * dtype_bytes(dtype);
}

int64_t row_pipeline_slot_bytes(const row_pipeline_split *s, ckl_dtype dtype)
{
    return row_pipeline_chunk_bytes(s, dtype) + (s->cut ? ROW_PIPELINE_BULK_BYTES : 0);
}

int row_pipeline_fetched_max(const row_pipeline_split *s)
{
    const bool left = s->residence == ROW_IN_REGISTERS && s->chunks == 1;
    return s->stages + 2 + left;
}

int64_t row_pipeline_smem_bytes(const row_pipeline_split *s, ckl_dtype dtype, int inputs, int values)
{
    int64_t ring = s->stages * (row_pipeline_slot_bytes(s, dtype) * inputs + BARRIERS_OF_STAGE_BYTES);
    int64_t messages =
        cluster_allreduce_bytes(s->chunk.threads, s->cluster, values) + scheduler_bytes(row_pipeline_fetched_max(s));
    return ring + messages + ROW_PIPELINE_STAGE_ALIGNMENT;
}

int row_pipeline_ctas_per_sm(const row_pipeline_split *s, ckl_dtype dtype, int inputs, int values,
                             const ckl_device_info *device)
{
    return residency_ctas_per_sm(device, s->chunk.threads + ROW_PIPELINE_PRODUCER_THREADS,
                                 row_pipeline_smem_bytes(s, dtype, inputs, values));
}

int64_t row_pipeline_chunks(const row_pipeline_split *s, int64_t cols)
{
    const int64_t most = s->chunk.ragged ? cols - cols % s->chunk.vec : cols; // of whole vectors
    return ceil_div(ceil_div(most, row_pipeline_chunk_cols(s)), s->cluster);
}

int row_pipeline_cluster_max(const ckl_device_info *device)
{
    enum { UNDIVIDED_SMS = 100, CLUSTER_LARGE = 16, CLUSTER_PORTABLE = 8 };
    return device->sm_count >= UNDIVIDED_SMS ? CLUSTER_LARGE : CLUSTER_PORTABLE;
}

enum { CHOSEN_THREADS = 256, CHUNK_BYTES = 16 << 10, CHUNKS = 4, RING_BYTES = 6 * CHUNK_BYTES, CLUSTER_SLOW = 4 };

/* The work of a row's slowest CTA times their number, in elements: chunks, each with its fixed cost. */
static int64_t work_of(const row_pipeline_split *s, int64_t cols)
{
    enum { CHUNK_COST = 2 * CHOSEN_THREADS };
    return row_pipeline_chunks(s, cols) * s->cluster * (row_pipeline_chunk_cols(s) + CHUNK_COST);
}

/* Does a ring hold a row, or two of them? */
static bool fits_ring(const row_pipeline_split *s, int64_t cols, ckl_dtype dtype, int inputs)
{
    const int64_t row = row_pipeline_chunks(s, cols) * row_pipeline_chunk_bytes(s, dtype) * inputs;
    return (s->lookahead ? 2 : 1) * row <= RING_BYTES;
}

/*
 * Are rows so few that nothing overlaps the loads and stores of a cluster's first and last one? An SM holds two CTAs.
 * Layer norm of 640x28672 in bf16, 2.4 rows of each of 264 CTAs, 27.7 us, 4.8 of pairs 23.8.
 */
static bool are_few(int64_t rows, int cluster, int inputs, const ckl_device_info *device)
{
    enum { ROWS = 2, ROWS_ALONE = 4, RESIDENT = 2 };
    return rows * cluster < (cluster == 1 && inputs == 1 ? ROWS_ALONE : ROWS) * RESIDENT * (int64_t)device->sm_count;
}

/* The size of chunks, and the number of CTAs or half of it, that leave the slowest CTA the least work. */
static row_pipeline_split balanced(row_pipeline_split s, int64_t cols, ckl_dtype dtype, int inputs, bool may_halve)
{
    row_pipeline_split best = s;
    const int steps_max = s.chunk.steps;
    for (int half = 0; half <= may_halve; half++, s.cluster /= 2)
        for (s.chunk.steps = steps_max; s.chunk.steps > 0; s.chunk.steps--)
            if (fits_ring(&s, cols, dtype, inputs) && work_of(&s, cols) < work_of(&best, cols))
                best = s;
    return best;
}

/*
 * Other threads, where that saves a tenth of the work: layer norm 197x41424 f32 25.6 us by 2.5 chunks of 256 threads a
 * CTA, 23.6 by three of 288. Chunks of one CTA do not become smaller. Each CTA must have one.
 */
static row_pipeline_split with_fitting_threads(row_pipeline_split s, int64_t cols, ckl_dtype dtype, int inputs)
{
    enum { THREADS_MIN = 224, THREADS_MAX = 320, WARP = 32 };
    const row_pipeline_split chosen = s;
    row_pipeline_split best = s;
    const int steps_min = s.cluster == 1 ? s.chunk.steps : 1, steps_max = s.chunk.steps;
    for (int threads = s.cluster == 1 ? CHOSEN_THREADS : THREADS_MIN; threads <= THREADS_MAX; threads += WARP)
        for (int steps = steps_min; steps <= steps_max; steps++) {
            s.chunk.threads = s.chunk.row_threads = threads;
            s.chunk.steps = steps;
            const int64_t ends = s.chunk.ragged ? 2 * s.chunk.vec : 0;
            const bool all = (s.cluster - 1) * row_pipeline_chunk_cols(&s) < cols - ends;
            if (all && fits_ring(&s, cols, dtype, inputs) && work_of(&s, cols) < work_of(&best, cols))
                best = s;
        }
    return 10 * work_of(&best, cols) < 9 * work_of(&chosen, cols) ? best : chosen;
}

bool row_pipeline_choose(int64_t rows, int64_t cols, bool ragged, ckl_dtype dtype, int inputs,
                         const ckl_device_info *device, row_pipeline_split *split)
{
    enum { STAGES_MAX = 13 };
    const int vec = ROW_PIPELINE_BULK_BYTES / dtype_bytes(dtype), cluster_max = row_pipeline_cluster_max(device),
              steps = (int)max_i64(1, CHUNK_BYTES / (ROW_PIPELINE_BULK_BYTES * CHOSEN_THREADS * inputs));
    row_pipeline_split s = { .chunk = { CHOSEN_THREADS, CHOSEN_THREADS, 1, vec, steps, .ragged = ragged },
                             .cluster = 1 };
    while (s.cluster < cluster_max && row_pipeline_chunks(&s, cols) > CHUNKS)
        s.cluster *= 2;
    s.lookahead = s.cluster >= CLUSTER_SLOW && s.cluster < cluster_max && row_pipeline_chunks(&s, cols) <= CHUNKS;
    if (s.lookahead && s.cluster == CLUSTER_SLOW)
        s.cluster *= 2;
    s.lookahead = s.lookahead && fits_ring(&s, cols, dtype, inputs);
    while (s.cluster < cluster_max && are_few(rows, s.cluster, inputs, device) &&
           row_pipeline_chunks(&s, cols) <= CHUNKS &&
           cols * dtype_bytes(dtype) * inputs >= 2 * s.cluster * CHUNK_BYTES) {
        s.cluster *= 2;
        s.lookahead = true;
    }
    if (s.cluster >= CLUSTER_SLOW && row_pipeline_chunks(&s, cols) <= CHUNKS)
        s = balanced(s, cols, dtype, inputs, s.lookahead && !are_few(rows, s.cluster / 2, inputs, device));
    s = with_fitting_threads(s, cols, dtype, inputs);
    const int64_t chunks = row_pipeline_chunks(&s, cols),
                  ring = RING_BYTES / (row_pipeline_chunk_bytes(&s, dtype) * inputs),
                  wanted = max_i64(ring, chunks + (chunks + 1) / 2);
    s.stages = (int)min_i64(wanted, INT32_MAX);
    s.chunk.exact = !ragged && cols > 0 && cols % row_pipeline_chunk_cols(&s) == 0;
    *split = s;
    return wanted <= max_i64(ring, STAGES_MAX);
}

ckl_status row_pipeline_device_admit(const char *what, const ckl_device_info *device)
{
    if (!device->has_tma)
        FAIL(CKL_UNSUPPORTED, "%s: the device has no bulk copies", what);
    return CKL_OK;
}

ckl_status row_pipeline_admit(const char *what, const row_pipeline_split *s, int64_t cols, ckl_dtype dtype, int inputs,
                              int values, const ckl_device_info *device)
{
    int64_t bytes = row_pipeline_smem_bytes(s, dtype, inputs, values);
    TRY(row_pipeline_device_admit(what, device));
    TRY(row_split_admit(what, &s->chunk, min_i64(cols, row_pipeline_chunk_cols(s)), dtype, device));
    if (s->chunk.row_threads != s->chunk.threads ||
        s->chunk.threads + ROW_PIPELINE_PRODUCER_THREADS > device->threads_per_cta_max)
        FAIL(CKL_INVALID, "%s: threads=%d must share a row and leave room for a warp", what, s->chunk.threads);
    if (s->chunk.vec * dtype_bytes(dtype) != ROW_PIPELINE_BULK_BYTES)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d is not %d bytes", what, s->chunk.vec, ROW_PIPELINE_BULK_BYTES);
    if (s->cluster < 1 || s->cluster > 16 || !is_power_of_two(s->cluster))
        FAIL(CKL_INVALID, "%s: cluster=%d is no power of two up to 16", what, s->cluster);
    if (s->stages < 2 || bytes > (int64_t)device->smem_per_cta_bytes)
        FAIL(CKL_INVALID, "%s: stages=%d is less than 2 or takes %" PRId64 " bytes of shared memory", what, s->stages,
             bytes);
    if (s->chunks < 0 || s->chunks > ROW_PIPELINE_CHUNKS_MAX ||
        (s->chunks && s->chunks != row_pipeline_chunks(s, cols)))
        FAIL(CKL_INVALID, "%s: chunks=%d, but a row has %" PRId64 " for each CTA, and %d at most are unrolled", what,
             s->chunks, row_pipeline_chunks(s, cols), ROW_PIPELINE_CHUNKS_MAX);
    if (s->chunk.exact &&
        cols % (s->chunks ? s->chunks * s->cluster * row_pipeline_chunk_cols(s) : row_pipeline_chunk_cols(s)))
        FAIL(CKL_INVALID, "%s: exact=1, but rows of %" PRId64 " elements are no whole chunks", what, cols);
    if (s->residence == ROW_IN_REGISTERS && s->chunks == 0)
        FAIL(CKL_INVALID, "%s: residence=registers needs chunks=", what);
    if (s->lookahead && s->residence != ROW_IN_RING)
        FAIL(CKL_INVALID, "%s: lookahead=1 needs residence=ring", what);
    if (s->residence == ROW_IN_RING && row_pipeline_chunks(s, cols) * (1 + s->lookahead) > s->stages)
        FAIL(CKL_INVALID, "%s: residence=ring lookahead=%d, but %d times %" PRId64 " chunks do not fit %d stages", what,
             s->lookahead, 1 + s->lookahead, row_pipeline_chunks(s, cols), s->stages);
    if (!s->chunk.ragged && !s->cut && cols * dtype_bytes(dtype) % ROW_PIPELINE_BULK_BYTES)
        FAIL(CKL_UNSUPPORTED, "%s: rows of %" PRId64 " elements are no multiple of %d bytes", what, cols,
             ROW_PIPELINE_BULK_BYTES);
    return CKL_OK;
}

ckl_status row_pipeline_dynamic_admit(const char *what, const row_pipeline_split *s, int64_t cols)
{
    const int64_t ends = s->chunk.ragged ? 2 * (s->chunk.vec - 1) : 0; // elements outside the chunks, at most
    const bool may_lack = s->cluster > 1 || s->chunk.ragged;
    if (may_lack && cols - ends <= (s->cluster - 1) * row_pipeline_chunk_cols(s))
        FAIL(CKL_INVALID, "%s: cluster=%d, but rows have only %" PRId64 " chunks", what, s->cluster,
             ceil_div(max_i64(0, cols - ends), row_pipeline_chunk_cols(s)));
    return CKL_OK;
}
