/* reduce_rows_plan.c - choice, checks and launch for rows whose elements are contiguous. */
#include "operators/reduce/reduce_config.h"

#include <math.h>

#include "base/math.h"
#include "plan/check.h"

enum { WARP = 32 };

enum {
    SLOT_BYTES = 8,              // of 32 bits of a state
    SMALL_TILE = 128 * 8,        // vectors of a CTA of a small x
    PREFETCHED_BYTES = 96 << 20, // of an x whose first tiles are prefetched
    LONG_SEGMENT = 1024,         // vectors, with which a CTA of fewer threads is as busy
    BYTES_IN_FLIGHT = 48 << 10,  // of an SM
    ROWS_OF_SM = 64,             // of a device that rows of a warp each keep busy
};

/* Do rows, and their segments, begin and end with a vector, if x does? */
static bool vectors_divide_rows(const reduce_view *v, int vec)
{
    return reduce_inner_of(v).extent % vec == 0 && reduce_strides_divide(v->kept, v->kind.kept, vec) &&
           reduce_strides_divide(v->reduced, v->kind.reduced - 1, vec);
}

/* Vectors need not divide rows, but rows of few vectors that start anywhere would be all edges. */
static int choose_row_vec(const reduce_view *v, ckl_dtype dtype)
{
    int vec = REDUCE_ACCESS_BYTES / dtype_bytes(dtype);
    reduce_mode inner = reduce_inner_of(v);
    if (inner.stride != 1 || (!vectors_divide_rows(v, vec) && inner.extent < 16 * vec))
        return 1;
    return vec;
}

/* Vectors of a row, its segments not joined. */
static int64_t vectors_of(const reduce_view *v, const reduce_rows_config *c)
{
    int64_t inner = reduce_inner_of(v).extent;
    return ceil_div(inner, c->vec) * (v->count / max_i64(inner, 1));
}

static int64_t row_tiles(const reduce_view *v, const reduce_rows_config *c)
{
    int64_t inner = reduce_inner_of(v).extent, tile = (int64_t)c->row_threads / c->segments * c->vec * c->steps;
    return ceil_div(inner, tile) * ceil_div(v->count / max_i64(inner, 1), c->segments);
}

/* Vectors of a segment's tiles: where vectors do not divide rows, the ends are loaded apart. */
static int64_t whole_vectors(const reduce_view *v, const reduce_rows_config *c)
{
    return max_i64(1, reduce_inner_of(v).extent / c->vec);
}

/*
 * No more vectors a thread than a segment has, fewer where that leaves a tenth fewer of them idle at its end: variance
 * of 64 segments of 1296 vectors by 512 threads 113.9 us with four, 85.8 with three.
 */
static int steps_of_segment(const reduce_view *v, const reduce_rows_config *c, int threads, int most)
{
    const int64_t segment = whole_vectors(v, c);
    int best = (int)min_i64(most, ceil_div(segment, threads));
    for (int steps = best - 1; steps > 1 && v->kind.reduced > 1; steps--)
        if (10 * round_up(segment, (int64_t)threads * steps) <= 9 * round_up(segment, (int64_t)threads * best))
            best = steps;
    return best;
}

/* Threads such that each has about 4 vectors of a row, 8 of longer rows, 9 if those are all, in flight at once. */
static void choose_short(const reduce_view *v, reduce_rows_config *c)
{
    enum { THREADS = 128, STEPS = 4, STEPS_LONG = 8, STEPS_ALL = 9 };
    const int64_t vectors = max_i64(vectors_of(v, c), 1), segment = whole_vectors(v, c);
    int64_t lanes = power_of_two_ceil(ceil_div(vectors, STEPS));
    if (lanes > WARP / 2)
        lanes = max_i64(WARP / 2, power_of_two_ceil(ceil_div(vectors, STEPS_ALL)));
    c->threads = THREADS;
    c->row_threads = (int)min_i64(WARP, lanes);
    c->steps = (int)min_i64(c->row_threads < WARP ? STEPS_ALL : STEPS_LONG, ceil_div(segment, c->row_threads));
}

/*
 * Short segments: as many side by side as leave each a thread for its vectors; more of those whose start is expensive,
 * and where a twentieth fewer threads are idle: 144 vectors are 16 lanes with nine, or 64 with three, a fourth of which
 * is for nothing.
 */
static void choose_segments(const reduce_view *v, reduce_rows_config *c)
{
    enum { STEPS = 4, STEPS_MAX = 9, LANES_MIN = 4, WORTH = 20 };
    const bool even = vectors_divide_rows(v, c->vec);
    const int64_t segment = whole_vectors(v, c);
    int64_t lanes = max_i64(LANES_MIN, power_of_two_ceil(ceil_div(segment, even ? STEPS : STEPS_MAX)));
    for (int64_t fewer = lanes / 2; fewer >= LANES_MIN && ceil_div(segment, fewer) <= STEPS_MAX; fewer /= 2)
        if (WORTH * round_up(segment, fewer) < (WORTH - 1) * round_up(segment, lanes))
            lanes = fewer;
    if (v->kind.reduced == 1 || c->strided || 2 * lanes > c->row_threads)
        return;
    c->segments = (int)(c->row_threads / lanes);
    c->steps = (int)ceil_div(segment, lanes);
}

/*
 * Do so few CTAs take a large x that early CTAs of the next launch would crowd some SMs? Of an x of some size, where
 * all run at once, but leave no room for as many: max of 197x58897 bf16 10.9 us, 7.6 without early CTAs. Those of 128
 * threads spread: min of 1024x8192 bf16 5.0 us, 5.3 without.
 */
static bool crowds(const reduce_view *v, const ckl_device_info *device, const reduce_rows_config *c)
{
    enum { WAVES = 4, THREADS_OF_SM = 2048, THREADS_SPREAD = 128, SOME_BYTES = 8 << 20 };
    const int64_t fit = (int64_t)device->sm_count * (THREADS_OF_SM / c->threads), wanted = fit / 2;
    const int64_t ctas = v->rows * c->split, bytes = v->rows * v->count * dtype_bytes(v->kind.dtype);
    if (bytes > REDUCE_OVERLAP_BYTES)
        return ctas < WAVES * fit; // later waves are balanced by the hardware
    return bytes > SOME_BYTES && c->threads > THREADS_SPREAD && ctas < wanted && 2 * ctas > wanted;
}

/* How much longer all CTAs take, of which so many fit at once, than if every SM had the same number. */
static double unevenness(int64_t ctas, const ckl_device_info *device, int64_t fit)
{
    return (double)round_up(ctas, ctas <= fit ? device->sm_count : fit) / (double)max_i64(1, ctas);
}

/*
 * A CTA for each row: the number of threads that leaves the fewest idle, for rows of one tile the vectors of each, too;
 * not so few that an SM has too little in flight. States that are expensive to merge are few: logsumexp of 8192x6104
 * f16 29.9 us by 256 threads, 26.6 by 128. For few long rows of 16 bits with such states, 512: argmax of 640x200064 f16
 * 75.5, 64.2.
 */
static void choose_cta(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    enum { THREADS = 256, THREADS_MIN = 128, STEPS = 4, CHOICES = 3, WORTH = 20 }; // a twentieth less
    enum { THREADS_OF_SM = 1536 };                                                 // that registers leave room for
    enum { THREADS_FEW = 512, FEW_OF_SM = 6, LONG_TILES = 8, STEPS_DEAR = 8, STEPS_OF_POWERS = 2 };
    const int64_t segment = whole_vectors(v, c), rows_of_sm = ceil_div(v->rows, device->sm_count);
    const bool is_long = segment > THREADS * STEPS;
    const int bytes = c->vec * dtype_bytes(c->kind.dtype);
    double least = INFINITY;
    for (int threads = THREADS; threads >= THREADS_MIN; threads /= 2) {
        const int64_t fit = THREADS_OF_SM / threads * (int64_t)device->sm_count;
        const double most = unevenness(v->rows, device, fit), uneven = v->rows <= fit ? most : (most + 1) / 2;
        for (int i = 0; i < (is_long && v->kind.reduced == 1 ? 1 : CHOICES); i++) {
            const int steps = is_long ? STEPS + i : STEPS - i;
            const double all = (double)round_up(segment, (int64_t)threads * steps) * uneven;
            const bool idle = bytes == REDUCE_ACCESS_BYTES && rows_of_sm * threads * steps * bytes < BYTES_IN_FLIGHT;
            if (WORTH * all >= (WORTH - 1) * least || (is_long && threads < THREADS && idle))
                continue;
            least = all;
            c->threads = c->row_threads = threads;
            c->steps = steps;
        }
    }
    const bool dear = reduce_state_words(&c->kind, false) > 1;
    if (dear && v->kind.reduced == 1 && segment <= (int64_t)THREADS_MIN * STEPS_DEAR) {
        c->threads = c->row_threads = THREADS_MIN;
        c->steps = (int)ceil_div(segment, THREADS_MIN);
    }
    const int fit = reduce_state_words(&c->kind, false) > 2 ? 1024 : 1280; // threads of an SM, by registers
    const bool even = unevenness(v->rows, device, fit / THREADS_FEW * (int64_t)device->sm_count) <=
                      unevenness(v->rows, device, fit / THREADS * (int64_t)device->sm_count);
    if (dear && even && v->rows < FEW_OF_SM * (int64_t)device->sm_count &&
        segment >= LONG_TILES * THREADS_FEW * STEPS && dtype_bytes(c->kind.dtype) == 2) {
        c->threads = c->row_threads = THREADS_FEW;
        c->steps = STEPS;
    }
    // powers are what these wait for, and fewer registers let more CTAs in: 4096x9760 bf16 22.7 us by four, 21.4
    if (c->kind.op == CKL_REDUCE_LOGSUMEXP && is_long)
        c->steps = (int)min_i64(c->steps, STEPS_OF_POWERS);
    c->overlap = !crowds(v, device, c);
    c->prefetch = c->overlap && v->rows <= THREADS_OF_SM / c->threads * (int64_t)device->sm_count;
}

/* As many CTAs for each row as fit at once; slightly fewer where that gives all the same number of tiles. */
static int64_t most_ctas(int64_t tiles, int64_t most)
{
    enum { NEARLY = 16 }; // one of so many may be missing
    const int64_t even = ceil_div(tiles, ceil_div(tiles, most));
    return NEARLY * even >= (NEARLY - 1) * most ? even : min_i64(tiles, most);
}

/*
 * CTAs of 512 threads, as many for each row as fit at once: no third fits an SM, so the next launch's do not gather
 * where the first of this one end. Fewer, or smaller ones, where that balances SMs and CTAs much better and keeps
 * enough bytes in flight; and for short segments, with registers not bounded: 1800 vectors of bf16 141.7 us, 108.8.
 */
static void share_large(const reduce_view *v, const ckl_device_info *device, bool bounded, reduce_rows_config *c)
{
    enum { THREADS = 512, THREADS_MIN = 128 };
    // of 16 bits registers leave room for a third CTA an SM: 40x120x128x128 bf16 over 0,2,3 53.4 us by two, 38.2
    enum { ELEMENTS_OF_THIRD = 32, THREADS_OF_THIRD = 1536 };
    static const double worth = 1.15;
    const int64_t rows = max_i64(v->rows, 1);
    const reduce_rows_config given = *c;
    const int steps = steps_of_segment(v, c, THREADS, c->steps);
    const bool never_full = v->kind.reduced > 1 && whole_vectors(v, c) < (int64_t)THREADS * steps;
    double most = 0;
    for (int threads = THREADS; threads >= THREADS_MIN; threads /= 2) {
        reduce_rows_config t = given;
        t.threads = t.row_threads = threads;
        t.steps = steps_of_segment(v, &t, threads, given.steps);
        choose_segments(v, &t);
        const bool several = never_full || t.segments > 1;
        if (several && threads == THREADS)
            continue;
        t.ctas_per_sm = bounded && !several ? REDUCE_THREADS_WANTED / threads : 0;
        const bool third = bounded && v->kind.reduced > 1 && !several && dtype_bytes(t.kind.dtype) == 2 &&
                           t.vec * t.steps <= ELEMENTS_OF_THIRD;
        const int64_t fit = (third ? THREADS_OF_THIRD : REDUCE_THREADS_WANTED) / threads * device->sm_count;
        const int64_t first =
            min_i64(max_i64(1, fit / rows), 2 * threads); // a thread of the last CTA receives two states
        const int64_t tiles = max_i64(row_tiles(v, &t), 1);
        const int64_t bytes = (int64_t)threads * t.steps * t.vec * dtype_bytes(t.kind.dtype);
        for (int64_t split = most_ctas(tiles, first); split > 0; split--) {
            const double even = (double)tiles / (double)round_up(tiles, split) / unevenness(rows * split, device, fit);
            const bool busy = ceil_div(rows * split, device->sm_count) * bytes >= BYTES_IN_FLIGHT;
            if (most > 0 && (!busy || even <= worth * most))
                continue;
            most = even;
            *c = t;
            c->split = (int)split;
        }
    }
    c->overlap = c->threads == THREADS || !crowds(v, device, c);
}

/*
 * Few rows, several CTAs each (bench/notes/reduce.md). Where x fits in one tile of two CTAs an SM, small CTAs with many
 * vectors in flight finish first. States of several registers leave room for fewer vectors in flight, and so do
 * elements of 8 bytes.
 */
static void choose_shared(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    const int64_t vectors = vectors_of(v, c) * max_i64(v->rows, 1), ctas = 2 * (int64_t)device->sm_count;
    const bool light = reduce_state_words(&c->kind, false) == 1 && dtype_bytes(c->kind.dtype) <= 4;
    const bool small = vectors <= ctas * SMALL_TILE, many = vectors > 128 * SMALL_TILE;
    const bool deep = !small && dtype_bytes(c->kind.dtype) == 4; // eight vectors and a state fit 64 registers
    c->prefetch = vectors * c->vec * dtype_bytes(c->kind.dtype) <= PREFETCHED_BYTES;
    c->threads = c->row_threads = small ? (many ? 256 : 128) : 512;
    c->steps = deep ? 8 : !light ? 4 : small ? SMALL_TILE / c->threads : 8;
    if (!small) {
        share_large(v, device, light || deep, c);
        return;
    }
    while (c->steps > 1 && vectors < (int64_t)WARP * c->threads * c->steps)
        c->steps /= 2;
    c->steps = steps_of_segment(v, c, c->threads, c->steps);
    choose_segments(v, c);
    const int64_t tiles = max_i64(row_tiles(v, c), 1), most = max_i64(1, ctas / max_i64(v->rows, 1));
    c->split = (int)ceil_div(tiles, ceil_div(tiles, min_i64(most, 2 * c->threads)));
}

/* A CTA for each of few rows whose vectors are all on their way at once, as small x has room for. */
static bool choose_at_once(const reduce_view *v, const ckl_device_info *device, reduce_rows_config *c)
{
    enum { THREADS_MIN = 128, THREADS_MAX = 512, STEPS = 4 };
    const int64_t segment = whole_vectors(v, c), all = vectors_of(v, c) * v->rows;
    const bool fits = segment <= THREADS_MAX * STEPS && all <= 2 * (int64_t)device->sm_count * SMALL_TILE;
    if (v->kind.reduced > 1 || c->strided || !fits)
        return false;
    c->threads = c->row_threads = (int)max_i64(THREADS_MIN, power_of_two_ceil(ceil_div(segment, STEPS)));
    c->steps = (int)ceil_div(segment, c->threads);
    c->prefetch = 1;
    return true;
}

/*
 * Rows of a warp's length or less share CTAs; many long ones have a CTA each, unless merging states is so expensive
 * that warps should read longer. Few rows have one where no CTAs need to meet: 56x9344 f16 1.6 us, 2.7 by two of each;
 * logsumexp of 27x3823 f32 1.8 and 3.5.
 */
static ckl_status choose_rows(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_rows_config *c = config;
    const reduce_view *v = desc;
    c->kind = v->kind;
    c->vec = choose_row_vec(v, v->kind.dtype);
    c->strided = reduce_inner_of(v).stride != 1;
    const int64_t vectors = vectors_of(v, c);
    const bool dear = reduce_state_words(&c->kind, false) > 1 && v->rows >= ROWS_OF_SM * (int64_t)device->sm_count;
    if (vectors <= WARP || (vectors <= (dear ? 64 : 8) * WARP && v->rows >= device->sm_count))
        choose_short(v, c);
    else if (v->rows >= (whole_vectors(v, c) >= LONG_SEGMENT ? 3 : 4) * (int64_t)device->sm_count)
        choose_cta(v, device, c);
    else if (!choose_at_once(v, device, c))
        choose_shared(v, device, c);
    if (c->split == 1 && c->segments == 1)
        choose_segments(v, c);
    c->overlap = c->overlap ? reduce_overlap(v) : REDUCE_ALONE;
    const bool exponentials = c->kind.op == CKL_REDUCE_LOGSUMEXP; // 8192x6104 f16: 29.3 us, 26.6 without
    c->one_tile = c->row_threads > WARP && v->kind.reduced == 1 && row_tiles(v, c) == 1 && !exponentials;
    c->compensated = reduce_compensates(&v->kind, row_tiles(v, c) / c->split);
    return CKL_OK;
}

static plan_cost cost_rows(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { TURN = 600 };
    const reduce_rows_config *c = config;
    const reduce_view *v = desc;
    const double turns = fmax(1, ceil((double)row_tiles(v, c) / c->split));
    const memory_kernel lanes = { .us = 0.5, .wait_cycles = -900, .bytes = 0.88, .elements = 2.5, .lines = 2.7 },
                        cta = { .us = 0.9, .wait_cycles = -1800, .bytes = 0.9, .elements = 2.9 },
                        several = { .us = 0.1 + 0.8 * reduce_state_words(&c->kind, false),
                                    .wait_cycles = -2700,
                                    .bytes = 0.91 };
    const memory_work work = { .of = c->split > 1            ? several
                                     : c->row_threads > WARP ? cta
                                                             : lanes,
                               .ctas = ceil_div(v->rows, c->threads / c->row_threads) * c->split,
                               .threads = c->threads,
                               .registers = c->vec * c->steps * dtype_bytes(c->kind.dtype) / 4,
                               .ctas_per_sm = c->ctas_per_sm,
                               .wait_cycles = (turns - 1) * TURN,
                               .meets = c->row_threads > WARP };
    return reduce_cost(v, device, work, turns * c->steps, c->vec, c->strided ? 1 : c->row_threads / c->segments,
                       c->compensated, 0);
}

static ckl_status admit_rows(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_rows_config *c = config;
    const reduce_view *v = desc;
    TRY(reduce_check_kind("rows", v, &c->kind));
    TRY(reduce_check_threads("rows", c->threads, device));
    TRY(reduce_check_overlap("rows", c->overlap));
    TRY(reduce_check_vectors("rows", c->vec, c->steps, c->kind.dtype));
    if (c->strided != (reduce_inner_of(v).stride != 1) || (c->strided && c->vec > 1))
        FAIL(CKL_UNSUPPORTED, "reduce rows: strided=%d vec=%d does not fit elements %" PRId64 " apart", c->strided,
             c->vec, reduce_inner_of(v).stride);
    if (c->row_threads != c->threads && (!is_power_of_two(c->row_threads) || c->row_threads > WARP))
        FAIL(CKL_INVALID, "reduce rows: row_threads=%d must be a power of two up to 32, or threads=%d", c->row_threads,
             c->threads);
    if (!is_power_of_two(c->segments) || c->segments > c->row_threads || (c->segments > 1 && v->kind.reduced == 1))
        FAIL(CKL_INVALID, "reduce rows: segments=%d is no power of two up to row_threads=%d, or rows are one stretch",
             c->segments, c->row_threads);
    if (c->split < 1 || (c->split > 1 && c->row_threads != c->threads))
        FAIL(CKL_INVALID, "reduce rows: split=%d is not positive, or not 1 where row_threads < threads", c->split);
    int64_t rows_per_cta = c->threads / c->row_threads;
    if (v->rows > REDUCE_CTAS_MAX / c->split * rows_per_cta)
        FAIL(CKL_UNSUPPORTED, "reduce rows: %" PRId64 " rows are more than one launch has CTAs for", v->rows);
    return CKL_OK;
}

static int64_t rows_workspace(const ckl_plan *plan)
{
    const reduce_rows_config *c = plan->config;
    int words = reduce_state_words(&c->kind, c->compensated);
    return reduce_workspace_for(((const reduce_view *)plan->desc)->rows, c->split, (int64_t)SLOT_BYTES * words);
}

static ckl_status launch_rows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_rows_config *c = plan->config;
    const reduce_view *v = plan->desc;
    reduce_params p = reduce_params_for(plan, args, v->rows);
    bool even = vectors_divide_rows(v, c->vec) && PLAN_ALIGNED(c->vec * dtype_bytes(c->kind.dtype), p.x);
    const int64_t ctas = ceil_div(v->rows, c->threads / c->row_threads) * c->split;
    return plan_launch(plan, even ? 0 : 1, (plan_grid){ .x = ctas }, &p, stream);
}

static const field rows_fields[] = { REDUCE_KIND(FIELD_NESTED, (reduce_rows_config, kind))
                                         REDUCE_ROWS_CONFIG(FIELD_ROW, reduce_rows_config) };

const implementation reduce_rows_plans = {
    IMPLEMENTATION_PARTS(reduce, rows),
    .summary = "a few threads a row, a CTA, or several CTAs of which the last finishes the row",
    .cost = cost_rows,
    .kernels = 2,
    .params = &reduce_param_list,
    .workspace_bytes = rows_workspace,
};
