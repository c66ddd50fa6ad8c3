/*
 * softmax_column_chunk_choice.c - the configs of rows across memory whose strips come in chunks: held, or read twice;
 * bench/notes/memory-bound.md has the measurements.
 */
#include "operators/softmax/softmax_column_choice.h"
#include "skeletons/one_pass.h"

enum {
    TILES_MAX = 64,       // of a chunk in shared memory
    FLOW_MAX = 1 << 20,   // of one that is read twice
    THREADS_HELD = 256,   // of a CTA that takes a chunk
    HELD_CTAS = 3,        // of an SM
    SM_BYTES = 192 << 10, // that they hold
    FEWER_CTAS = 2,
    KEPT_FEW = 2, // tiles in registers that leave a CTA its threads
    WARP = 32,
};

/*
 * Lines that begin anywhere, by vectors between boundaries of memory: gradients of 56x768x399 f16 45.3 us, by single
 * elements 55.1; whole strips of 256x55441 bf16 25.2 and 41.6. Not of large tensors where they fill less than two of
 * the six vectors of the narrowest strips: 4000x5000x3 bf16 914.5, by single elements 152.3.
 */
static bool is_ragged(const ckl_softmax_desc *d)
{
    enum { LINES_MIN = 256, LINES_MIN_HALF_GRADIENTS = 512, VECTORS_MIN = 2, BYTES_MAX = 4 << 20 };
    const int vec = row_vec_full(d->dtype), strip_vec = is_half_forward(d) ? vec / 2 : vec;
    return softmax_vec_of(d) < strip_vec && (d->ldx - d->ldy) % vec == 0 &&
           (d->inner >= VECTORS_MIN * strip_vec || tensor_bytes(d) < BYTES_MAX) &&
           d->n >= (is_half(d) && !is_forward(d) ? LINES_MIN_HALF_GRADIENTS : LINES_MIN);
}

/*
 * Of strips in chunks. Forward, ragged columns of 16 bits are halves of whole vectors in twice the lines, as each CTA
 * reads the sums of all columns of all chunks: 2048x57603 bf16 189.6 us, by whole vectors 193.2.
 */
static int chunk_vec(const ckl_softmax_desc *d)
{
    return is_ragged(d) ? row_vec_full(d->dtype) / (is_half_forward(d) ? 2 : 1) : softmax_vec_of(d);
}

/* Of a ragged strip: those that leave the fewest idle. */
static int ragged_lanes(const ckl_softmax_desc *d, int vec)
{
    enum { LANES_MIN = 8 };
    column_split s = { .lanes = WARP, .vec = vec, .ragged = true };
    int best = WARP;
    int64_t fewest = INT64_MAX;
    for (; s.lanes >= LANES_MIN; s.lanes /= 2) {
        const int64_t room = column_split_strips(&s, d->inner) * column_split_room(&s);
        if (room < fewest)
            best = s.lanes;
        fewest = min_i64(fewest, room);
    }
    return best;
}

/* Do lines, or rows, follow each other? */
static bool is_dense(const ckl_softmax_desc *d)
{
    const int64_t line = d->inner == 1 ? d->n : d->inner;
    return d->ldx == line && d->ldy == line;
}

/*
 * Lines that follow each other and are taken as one: as many as make up whole vectors and, where columns are long,
 * whole lines of memory, if the columns are made up of so many. Of rows so many elements as make up vectors. The states
 * of as many columns are merged for each.
 */
static int fold_of(const ckl_softmax_desc *d)
{
    enum { ACCESS_BYTES = 16, LINES = 256 };
    const int64_t bytes = d->inner * dtype_bytes(d->dtype);
    const bool is_row = d->inner == 1;
    int fold = 1;
    while (is_dense(d) && d->n % (2 * fold) == 0 &&
           (fold * bytes % ACCESS_BYTES || (!is_row && fold * bytes % LINE_BYTES && d->n > LINES * fold)))
        fold *= 2;
    return fold;
}

bool softmax_has_long_vectors(const ckl_softmax_desc *d)
{
    const ckl_softmax_desc folded = softmax_folded(d, fold_of(d));
    return is_ragged(d) || softmax_vec_of(&folded) > 1;
}

/* Shared memory of a CTA with so many tiles: slots, sums, and words by which its threads tell each other. */
static int64_t smem_bytes(const softmax_column_config *c, int tiles)
{
    return tiles * column_slots_bytes(&c->split, c->form.dtype) * softmax_inputs(&c->form) +
           column_reduce_bytes(&c->split, SOFTMAX_PIPELINE_VALUES) + 4 * (int64_t)sizeof(uint32_t);
}

plan_cost softmax_cost_column_held(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_column_config *c = config;
    const ckl_softmax_desc folded = softmax_folded(desc, c->fold);
    const memory_work work = { .of = { .us = 1.2, .bytes = 1.2, .lines = 2.3 }, .smem_bytes = smem_bytes(c, c->tiles) };
    return softmax_columns_cost(&folded, device, c, work, 0);
}

plan_cost softmax_cost_column_long(const void *desc, const ckl_device_info *device, const void *config)
{
    const softmax_column_config *c = config;
    const ckl_softmax_desc folded = softmax_folded(desc, c->fold);
    const memory_work work = { .of = { .us = 5, .bytes = 1.1 }, .smem_bytes = smem_bytes(c, SOFTMAX_LONG_STAGES) };
    return softmax_columns_cost(&folded, device, c, work, softmax_again(desc, device));
}

/* Lanes that take so many lines of memory, or all columns. */
static int lanes_of(const ckl_softmax_desc *d, int lines)
{
    const int vec = softmax_vec_of(d);
    int lanes = (int)min_i64(WARP, lines * LINE_BYTES / (vec * dtype_bytes(d->dtype)));
    while (lanes > 1 && (int64_t)lanes * vec / 2 >= d->inner)
        lanes /= 2;
    return lanes;
}

/* Lines of a thread in a tile of a chunk. */
static int held_steps(const ckl_softmax_desc *d, const softmax_column_config *c)
{
    enum { TILE_BYTES = 64, STEPS_RAGGED = 4, STEPS_RAGGED_GRADIENTS = 2 };
    if (c->split.ragged)
        return is_forward(d) ? STEPS_RAGGED : STEPS_RAGGED_GRADIENTS;
    return TILE_BYTES / (c->split.vec * dtype_bytes(d->dtype) * softmax_inputs(&c->form));
}

/*
 * Chunks of the shared memory of so many CTAs an SM, by so many lanes a line; returns how many a strip has. Registers
 * keep what they can beside it, as time goes with what an SM holds: of gradients 40 KB, where few threads have many
 * (14336x7168 bf16 170.7 us, without 185.0), forward a tile of 16 KB (5x2393x7x640 bf16 66.3, without 70.0). Where a
 * strip is one chunk of few lines, CTAs are smaller and as many times more.
 */
static int64_t split_held(const ckl_softmax_desc *d, int ctas, int lanes, int vec, int kept, softmax_column_config *c)
{
    enum { THREADS_KEEPING = 128 };
    column_split *s = &c->split;
    const int threads = kept > KEPT_FEW ? THREADS_KEEPING : THREADS_HELD;
    *s = (column_split){ threads, lanes, .cluster = 1, .vec = vec, .ragged = is_ragged(d) };
    s->steps = held_steps(d, c);
    const int64_t tile_bytes = column_slots_bytes(s, d->dtype) * softmax_inputs(&c->form);
    const int64_t room = SM_BYTES / ctas / tile_bytes;
    while (!s->ragged && s->threads > WARP && room * column_split_lines(s) / 2 >= d->n)
        s->threads /= 2;
    c->form.ctas_per_sm = ctas * threads / s->threads;
    c->tiles = (int)room;
    c->kept = kept;
    const int64_t chunks = softmax_chunks_of(d, c), tiles = ceil_div(d->n, chunks * column_split_lines(s));
    c->tiles = (int)min_i64(tiles, room);
    c->kept = (int)tiles - c->tiles;
    return chunks;
}

/* The same; nothing is kept where all CTAs are little more than run at once: gradients of 16384x384 f32 25.0, 26.6. */
static int64_t choose_held(const ckl_softmax_desc *d, const ckl_device_info *device, int lanes,
                           softmax_column_config *c)
{
    enum { KEPT = 5 };
    const int kept = is_ragged(d) ? 0 : is_forward(d) ? 1 : KEPT; // ragged ends take registers
    const int64_t chunks = split_held(d, HELD_CTAS, lanes, chunk_vec(d), kept, c);
    const int64_t ctas = chunks * column_split_ctas(&c->split, d->outer, d->inner);
    return 2 * ctas < 3 * HELD_CTAS * (int64_t)device->sm_count ? split_held(d, HELD_CTAS, lanes, chunk_vec(d), 0, c)
                                                                : chunks;
}

/*
 * Lines that begin anywhere, forward of 16 bits, also by 8 lanes or two CTAs an SM: 88x320x2093 f16 79.8 us, in chunks
 * 98.5; 128x531x3x453 145.4, 156.2; but 128x700x921, of six tiles, 161.7, 141.0.
 */
static bool fits_whole_ragged(const ckl_softmax_desc *d, softmax_column_config *c)
{
    enum { LANES = 16, LANES_MIN = 8, TILES_FEW = 5 };
    const bool many = is_half_forward(d);
    const int vec = row_vec_full(d->dtype);
    for (int lanes = LANES; lanes >= (many ? LANES_MIN : LANES); lanes /= 2)
        for (int ctas = HELD_CTAS; ctas >= (many ? FEWER_CTAS : HELD_CTAS); ctas--)
            if (split_held(d, ctas, lanes, vec, 0, c) == 1 && c->tiles <= TILES_FEW)
                return true;
    return false;
}

/*
 * Do CTAs hold whole strips? By lines of 128 bytes: 24x600x299x64 bf16 281 us, in two chunks 428; gradients of
 * 48x300x2176 bf16 47.8, in two chunks 62.1. Gradients also by two CTAs an SM: 128x512x24x32 f16 75.8, 86.2. Forward of
 * 16 bits by lines of 64, too: 40x864x11x64 bf16 30.7, in chunks 35.2; others are slower, 112x1280x96 f32 37.0, 33.6,
 * or not faster: gradients of 16x640x4096 bf16 72.7, 77.6, but of 640x38912 46.7, 42.4.
 */
static bool fits_whole(const ckl_softmax_desc *d, int lanes, softmax_column_config *c)
{
    const int vec = softmax_vec_of(d);
    if (is_ragged(d))
        return fits_whole_ragged(d, c);
    return split_held(d, HELD_CTAS, lanes, vec, 1, c) == 1 ||
           (!is_forward(d) && split_held(d, FEWER_CTAS, lanes, vec, KEPT_FEW, c) == 1) ||
           (is_half_forward(d) && lanes > 1 && c->fold == 1 && split_held(d, HELD_CTAS, lanes / 2, vec, 1, c) == 1);
}

/*
 * Are columns more than a cluster's registers hold, or, where tensors are more than caches, of 16 bits, or more than a
 * CTA's registers hold by whole lines, or several lines as one, which registers take in smaller vectors?
 */
static bool wants_held(const ckl_softmax_desc *d, const ckl_device_info *device, bool is_folded)
{
    enum { BYTES_MIN_HALF = 16 << 20, BYTES_MIN = 45 << 20, BYTES_MIN_GRADIENTS = 20 << 20 };
    const int64_t bytes_min = is_half(d) ? BYTES_MIN_HALF : is_forward(d) ? BYTES_MIN : BYTES_MIN_GRADIENTS;
    column_split held;
    const int ctas = softmax_ctas_that_hold(d, device, &held);
    if (!device->has_tma || (!is_ragged(d) && softmax_vec_of(d) < row_vec_full(d->dtype) / (is_forward(d) ? 2 : 1)))
        return false;
    if (ctas && (tensor_bytes(d) < bytes_min || d->n <= SHORT_LINES))
        return false;
    return is_folded || is_ragged(d) || ctas != 1 || is_half(d) || !has_lines(&held, d->dtype);
}

/* Do lines begin within sectors of memory? */
static bool begins_in_sectors(const ckl_softmax_desc *d)
{
    enum { SECTOR = 32 };
    return d->ldx * dtype_bytes(d->dtype) % SECTOR || d->ldy * dtype_bytes(d->dtype) % SECTOR;
}

/*
 * Are lines of 256 bytes better? Of f32: 4096x12288 112.7 us, 119.7, gradients of 4857x1808 36.4, 38.1. Of a pitch that
 * is no whole number of sectors each line of 128 touches a fifth one, and two lines of memory: gradients of 3512x28856
 * bf16 184.9 us, 208.3. Not for long columns, as each CTA reads the sums of all columns of all chunks.
 */
static bool wants_wide_lines(const ckl_softmax_desc *d, const softmax_column_config *c)
{
    enum { STATES_MAX = 8 << 10 }; // bytes, of lines of 128
    const int64_t values = softmax_state_values(&c->form);
    return (!is_half(d) || (begins_in_sectors(d) && !is_forward(d))) && !is_ragged(d) &&
           softmax_chunks_of(d, c) * column_split_room(&c->split) * values * (int64_t)sizeof(float) <= STATES_MAX;
}

/*
 * By lines of 128 bytes. Forward, fewer chunks of 16 bits load at once than there are SMs: 8192x15360 bf16 153.7 us by
 * 99, 158.6 by 132, but gradients of 14336x7168 202.3 and 176.9. Columns are read twice where a strip's chunks are more
 * than half of all CTAs that run, which then wait for each other, forward more than a third: a CTA reads two sums of
 * each column and chunk. And where all chunks are fewer than SMs, forward than CTAs that run: 16384x512 bf16, 256 of
 * them, 18.3 us, read twice 16.7.
 */
static ckl_status choose_chunks(const ckl_softmax_desc *d, const ckl_device_info *device, softmax_column_config *c)
{
    enum { RAGGED_LINES_MAX = 8192 }; // of 16 bits: 12288x2893 71.5 us held, 62.1 read twice; 8192x11747 167.8, 160.5
    static const char what[] = "softmax column_held";
    TRY(softmax_check_other_axis(what, d));
    if (!wants_held(d, device, c->fold > 1))
        FAIL(CKL_UNSUPPORTED,
             "%s: chosen on Hopper, where it was measured: large tensors, long columns, lines of whole vectors", what);
    c->form = softmax_form_of(d);
    const int64_t turn = HELD_CTAS * (int64_t)device->sm_count, least = is_forward(d) ? turn : device->sm_count;
    const int lanes = is_ragged(d) ? ragged_lanes(d, chunk_vec(d)) : lanes_of(d, c->fold > 1 ? 2 : 1);
    const int at_once = is_half_forward(d) ? device->sm_count * 3 / 4 : device->sm_count;
    const int wide = lanes_of(d, 2);
    const bool is_whole = (begins_in_sectors(d) && fits_whole(d, wide, c)) || fits_whole(d, lanes, c);
    c->loading = is_whole ? 0 : at_once;
    if (!c->loading)
        return CKL_OK;
    if (is_ragged(d) && is_half_forward(d) && d->n >= RAGGED_LINES_MAX && fold_of(d) > 1)
        FAIL(CKL_UNSUPPORTED, "%s: n=%" PRId64 " lines that begin anywhere are faster read twice, several as one", what,
             d->n);
    const int64_t chunks = choose_held(d, device, lanes, c);
    if (chunks > turn / (is_forward(d) ? 3 : 2) ||
        (!is_ragged(d) && chunks * column_split_ctas(&c->split, d->outer, d->inner) < least))
        FAIL(CKL_UNSUPPORTED, "%s: %" PRId64 " chunks of columns of n=%" PRId64 " are faster read twice", what, chunks,
             d->n);
    if (wants_wide_lines(d, c))
        choose_held(d, device, wide, c);
    return CKL_OK;
}

/* Of few columns, or one, which is a row, as many lines are one as make up whole vectors, if a strip has all. */
static int held_fold_of(const ckl_softmax_desc *d)
{
    enum { ACCESS_BYTES = 16 };
    const int64_t bytes = d->inner * dtype_bytes(d->dtype);
    int fold = 1;
    while (fold * bytes % ACCESS_BYTES)
        fold *= 2;
    const bool fits = d->inner <= WARP && fold * bytes <= 2 * LINE_BYTES && d->n % fold == 0;
    return fits && is_dense(d) ? fold : 1;
}

ckl_status softmax_choose_column_held(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_softmax_desc *d = desc;
    softmax_column_config *c = config;
    softmax_row_config flowing;
    if (d->inner == 1 && softmax_choose_pipeline(d, device, &flowing) == CKL_OK)
        FAIL(CKL_UNSUPPORTED, "softmax column_held: rows of n=%" PRId64 " are faster if they flow", d->n);
    c->fold = held_fold_of(d);
    const ckl_softmax_desc folded = softmax_folded(d, c->fold);
    return choose_chunks(&folded, device, c);
}

/* Chunks are two whole turns of all CTAs, if columns have lines enough. */
ckl_status softmax_choose_column_long(const void *desc, const ckl_device_info *device, void *config)
{
    enum { TURNS = 2 };
    const int fold = fold_of(desc);
    const ckl_softmax_desc folded = softmax_folded(desc, fold), *d = &folded;
    softmax_column_config *c = config;
    column_split *s = &c->split;
    const int64_t turn = HELD_CTAS * (int64_t)device->sm_count;
    TRY(softmax_check_length("softmax column_long", desc));
    TRY(softmax_check_other_axis("softmax column_long", d));
    c->fold = fold;
    c->form = softmax_form_of(d);
    c->form.ctas_per_sm = HELD_CTAS;
    *s = (column_split){ .threads = THREADS_HELD, .cluster = 1, .ragged = is_ragged(d) };
    s->vec = s->ragged ? row_vec_full(d->dtype) : softmax_vec_of(d);
    s->lanes = s->ragged ? ragged_lanes(d, s->vec) : lanes_of(d, 2);
    s->steps = held_steps(d, c);
    const int64_t chunks = max_i64(1, TURNS * turn / max_i64(1, column_split_ctas(&c->split, d->outer, d->inner)));
    c->tiles = (int)max_i64(1, ceil_div(d->n, chunks * column_split_lines(s)));
    return CKL_OK;
}

/* slots: tiles in shared memory. */
static ckl_status admit_chunks(const char *what, const ckl_softmax_desc *d, const ckl_device_info *device,
                               const softmax_column_config *c, int tiles_max, int slots)
{
    if (c->tiles < 1 || c->tiles > tiles_max)
        FAIL(CKL_INVALID, "%s: tiles=%d is not in 1..%d", what, c->tiles, tiles_max);
    if (c->split.cluster != 1 || c->split.exact)
        FAIL(CKL_INVALID, "%s: cluster=%d exact=%d, a chunk is a CTA's, and asks where its strip ends", what,
             c->split.cluster, c->split.exact);
    TRY(softmax_admit_columns(what, d, device, c));
    if (softmax_chunks_of(d, c) > ONE_PASS_CHUNKS_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: %" PRId64 " chunks of a strip are more than %d", what, softmax_chunks_of(d, c),
             ONE_PASS_CHUNKS_MAX);
    if (smem_bytes(c, slots) > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "%s: tiles=%d take %" PRId64 " bytes of shared memory of %" PRId64, what, c->tiles,
             smem_bytes(c, slots), device->smem_per_cta_bytes);
    return CKL_OK;
}

/* The problem as it is taken: several lines as one. */
static ckl_status admit_fold(const char *what, const ckl_softmax_desc *d, const softmax_column_config *c,
                             ckl_softmax_desc *folded)
{
    if (c->fold < 1 || d->n % c->fold || (c->fold > 1 && !is_dense(d)))
        FAIL(CKL_INVALID, "%s: fold=%d is less than 1, or n=%" PRId64 " lines do not follow each other by as many",
             what, c->fold, d->n);
    *folded = softmax_folded(d, c->fold);
    if (folded->inner > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "%s: %d lines of inner=%" PRId64 " are more than %d columns", what, c->fold, d->inner,
             INT32_MAX);
    return CKL_OK;
}

ckl_status softmax_admit_column_held(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "softmax column_held";
    const softmax_column_config *c = config;
    ckl_softmax_desc d;
    TRY(admit_fold(what, desc, c, &d));
    if (c->fold > 1 && (d.inner > column_split_columns(&c->split) || d.inner / c->fold > c->split.threads))
        FAIL(CKL_INVALID, "%s: fold=%d wants all columns of lanes=%d, and a thread for each", what, c->fold,
             c->split.lanes);
    if (c->kept < 0 || c->kept > SOFTMAX_KEPT_MAX)
        FAIL(CKL_INVALID, "%s: kept=%d is not in 0..%d", what, c->kept, SOFTMAX_KEPT_MAX);
    TRY(admit_chunks(what, &d, device, c, TILES_MAX, c->tiles));
    if (!c->loading && d.n > softmax_chunk_lines(c))
        FAIL(CKL_INVALID, "%s: loading=0 wants chunks of all n=%" PRId64 " lines", what, d.n);
    if (c->split.vec * dtype_bytes(d.dtype) < SOFTMAX_COPY_BYTES_MIN)
        FAIL(CKL_UNSUPPORTED, "%s: vec=%d is less than %d bytes", what, c->split.vec, SOFTMAX_COPY_BYTES_MIN);
    return CKL_OK;
}

ckl_status softmax_admit_column_long(const void *desc, const ckl_device_info *device, const void *config)
{
    static const char what[] = "softmax column_long";
    const softmax_column_config *c = config;
    ckl_softmax_desc d;
    TRY(admit_fold(what, desc, c, &d));
    return admit_chunks(what, &d, device, c, FLOW_MAX, SOFTMAX_LONG_STAGES);
}
