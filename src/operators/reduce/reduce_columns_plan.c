/* reduce_columns_plan.c - choice, checks and launch for rows that lie across memory. */
#include "operators/reduce/reduce_config.h"

#include <math.h>

#include "base/math.h"
#include "plan/check.h"

enum { WARP = 32 };

enum {
    WORD_BYTES = 4,       // of a register
    STATE_MAX = 16,       // registers of all columns of a thread: more do not fit
    BYTES_IN_FLIGHT = 64, // of a thread
    STEPS_MAX = 8,
    ELEMENTS_IN_FLIGHT = 16, // of a thread, where they are single
    SECTOR_BYTES = 32,
    CROWDED_BYTES = 8 << 20, // of an x that is read for longer than early CTAs of the next kernel save
    NARROW_TILES = 16,       // of a warp's width; with fewer, each is shared by many CTAs, whose states must be merged
    LINE_BYTES = 128,        // of memory
    NARROW_LINES = 256,      // of a strip that has a CTA to itself
    STATES_OF_STRIP_MAX = 1 << 26,
};

static const double FULL_ENOUGH = 0.75; // a share of turns

/* Results side by side; the others are stretches of them. */
static int64_t columns_of(const reduce_view *v)
{
    return v->kind.kept ? v->kept[v->kind.kept - 1].extent : 1;
}

static int64_t stretches_of(const reduce_view *v)
{
    return v->rows / max_i64(columns_of(v), 1);
}

static int64_t bytes_of(const reduce_view *v)
{
    return v->rows * v->count * dtype_bytes(v->kind.dtype);
}

static bool columns_divide(const reduce_view *v, int vec)
{
    return columns_of(v) % vec == 0 && reduce_strides_divide(v->kept, v->kind.kept - 1, vec) &&
           reduce_strides_divide(v->reduced, v->kind.reduced, vec);
}

/* CTAs that cover all results, by ragged columns or not. */
static int64_t column_tiles(const reduce_view *v, const reduce_columns_config *c, bool ragged)
{
    return ceil_div(columns_of(v), reduce_columns_width(c, ragged)) * stretches_of(v);
}

/* Do columns start anywhere in vectors that a CTA can shift? */
static bool is_ragged(const reduce_view *v, const reduce_columns_config *c)
{
    return reduce_columns_ragged(c) && !columns_divide(v, c->vec);
}

static int64_t tiles_of(const reduce_view *v, const reduce_columns_config *c)
{
    return column_tiles(v, c, is_ragged(v, c));
}

/* CTAs that run at once. */
static int64_t resident_ctas(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *c)
{
    return (int64_t)device->sm_count * reduce_columns_ctas_per_sm(c, is_ragged(v, c));
}

/*
 * Short columns that start anywhere: shifting and merging them would cost more than loads of single elements, where
 * there are many; of states of several words, which take registers from loads in flight, where there are few lines.
 */
static bool suits_a_thread_each(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *c)
{
    enum { LINES_MAX = 256, LINES_FEW = 32 };
    enum { TILES_MIN = 4 }; // of a stretch, so that most threads of the last one have work
    return v->rows >= (int64_t)device->sm_count * REDUCE_THREADS_WANTED &&
           v->count <= (reduce_state_words(&c->kind, false) == 1 ? LINES_MAX : LINES_FEW) &&
           columns_of(v) >= (int64_t)TILES_MIN * c->threads;
}

/* Single elements, of which layers leave the fewest over in their last tile, to be loaded one by one. */
static void take_single(const reduce_view *v, int threads, int lanes, int most, reduce_columns_config *c)
{
    const int64_t lines = ceil_div(v->count, threads / lanes); // of a layer
    c->vec = 1;
    c->threads = threads;
    c->lanes = lanes;
    c->steps = (int)min_i64(most, max_i64(lines, 1));
    for (int steps = c->steps - 1; steps > c->steps / 2; steps--)
        if (v->count % ((int64_t)steps * (threads / lanes)) < v->count % ((int64_t)c->steps * (threads / lanes)))
            c->steps = steps;
}

/*
 * Single elements that are all on their way at once, by as many lanes as that leaves: no shifts, no CTAs that meet.
 * norm2 of 512x955 bf16 2.6 us, 8.5 by ragged vectors. Of more, but small ragged x, a warp of lanes: 8192x241 4.8 and
 * 12.4. How many CTAs may share a strip; 0: there are no such.
 */
static int take_few(const reduce_view *v, const ckl_device_info *device, reduce_columns_config *c)
{
    enum { LANES_MIN = 8, THREADS_MIN = 256, THREADS_MAX = 512, WORDS_FEW = 2 }; // more spill beside 16 elements
    const int most = ELEMENTS_IN_FLIGHT / (reduce_state_words(&c->kind, false) > WORDS_FEW ? 2 : 1);
    const bool ragged = is_ragged(v, c);
    reduce_columns_config t = *c;
    t.vec = 1;
    for (t.lanes = (int)min_i64(THREADS_MIN, power_of_two_ceil(columns_of(v))); t.lanes >= LANES_MIN; t.lanes /= 2)
        for (t.threads = THREADS_MIN; t.threads <= THREADS_MAX; t.threads *= 2) {
            if (v->count * t.lanes > (int64_t)most * t.threads ||
                tiles_of(v, &t) * t.threads > (int64_t)device->sm_count * REDUCE_THREADS_WANTED)
                continue;
            take_single(v, t.threads, t.lanes, most, c);
            return 1;
        }
    if (!ragged || bytes_of(v) > CROWDED_BYTES)
        return 0;
    take_single(v, THREADS_MAX, WARP, most, c);
    return INT32_MAX;
}

static void set_steps(reduce_columns_config *c)
{
    c->steps = (int)min_i64(STEPS_MAX, BYTES_IN_FLIGHT / (c->vec * dtype_bytes(c->kind.dtype)));
}

/* Of a ragged strip's line: lanes without columns, what the next strip reads again, a sector at its begin. */
static int64_t unused_bytes(const reduce_view *v, const reduce_columns_config *c)
{
    const int64_t beside = (c->lanes + 1) * c->vec * dtype_bytes(c->kind.dtype) + SECTOR_BYTES;
    return tiles_of(v, c) * beside - v->rows * dtype_bytes(c->kind.dtype);
}

/*
 * Ragged lines: a warp of lanes, or fewer, where a fifth of a line less is unused; of large x, whose bytes count, also
 * more, or half vectors. 125 columns of f32 are five strips of 8 lanes, or one of 64 half vectors.
 */
static void fit_ragged(const reduce_view *v, reduce_columns_config *c)
{
    enum { LANES_MIN = 4, WORTH = 5 };
    const bool large = bytes_of(v) > CROWDED_BYTES;
    const int64_t line = v->rows * dtype_bytes(c->kind.dtype);
    reduce_columns_config t = *c;
    c->lanes = WARP;
    for (int half = 0; half <= large; half++, t.vec /= 2)
        for (t.lanes = large ? t.threads : WARP; t.lanes >= LANES_MIN; t.lanes /= 2)
            if (reduce_columns_ragged(&t) && WORTH * unused_bytes(v, &t) < WORTH * unused_bytes(v, c) - line) {
                c->vec = t.vec;
                c->lanes = t.lanes;
            }
    set_steps(c);
}

/*
 * Single elements of 4 bytes or more fill lines as well as vectors do, and need no shifts: max of 127x256x805 f32 28.3
 * us, by ragged vectors 31.3. Not where a CTA has all columns: mean of 424960x111 f32 87.6, by vectors 51.6.
 */
static bool suits_elements(const reduce_view *v, const reduce_columns_config *c)
{
    const bool words = dtype_bytes(c->kind.dtype) >= WORD_BYTES && reduce_state_words(&c->kind, false) == 1;
    return words && columns_of(v) >= 4 * WARP;
}

static ckl_status check_columns(const reduce_view *v)
{
    if (v->kind.kept == 0 || v->kept[v->kind.kept - 1].stride != 1)
        FAIL(CKL_UNSUPPORTED, "reduce columns: neighbouring results are not made of neighbouring elements");
    return CKL_OK;
}

/* Lanes that load a line of memory together. */
static int narrow_lanes(const reduce_columns_config *c)
{
    return LINE_BYTES / (c->vec * dtype_bytes(c->kind.dtype));
}

/* The share of its turns in which the device is full. */
static double fullness(int64_t ctas, int64_t fit)
{
    return (double)ctas / (double)round_up(ctas, fit);
}

/*
 * Of lines that are fewer than layers may have in flight: wider strips, as long as all CTAs that run have one. mean of
 * 37x16x128x128 bf16 over 1 9.3 us by eight layers of two vectors each, 7.0 by four of four.
 */
static void widen_strips(const reduce_view *v, const ckl_device_info *device, reduce_columns_config *c)
{
    for (reduce_columns_config wide = *c; v->count < (int64_t)wide.threads / wide.lanes * wide.steps; *c = wide) {
        wide.lanes *= 2;
        if (wide.lanes > wide.threads || wide.lanes * wide.vec > columns_of(v) ||
            tiles_of(v, &wide) < resident_ctas(v, device, &wide))
            return;
    }
}

/* Strips of a CTA each: one line of memory wide, or more where that makes fewer turns and none less full. */
static int strip_lanes(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *c)
{
    const double NEARLY = 0.97;
    const int64_t fit = (int64_t)device->sm_count * REDUCE_COLUMNS_CTAS_OF_SM;
    reduce_columns_config wide = *c;
    wide.lanes = narrow_lanes(c);
    const double narrow = fullness(tiles_of(v, &wide), fit);
    int lanes = wide.lanes;
    while ((wide.lanes *= 2) <= WARP)
        if (fullness(tiles_of(v, &wide), fit) >= NEARLY * narrow)
            lanes = wide.lanes;
    return lanes;
}

/*
 * Do the CTAs of split columns leave no place to early ones of the next launch? Then these come one for one, and
 * prefetch: max of 6144x6144 bf16 21.0 us, 19.3. Words need eight vectors in flight, so that no fifth CTA fits.
 */
static bool leaves_no_place(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *c)
{
    enum { NEARLY = 32 }; // one of so many may be missing
    const int64_t ctas = tiles_of(v, c) * c->split, fit = resident_ctas(v, device, c);
    return !is_ragged(v, c) && c->split > 1 && ctas <= fit && NEARLY * ctas >= (NEARLY - 1) * fit;
}

/*
 * How many CTAs share a strip, so that the last turn of CTAs is full, too: `split`, or more where a quarter of all
 * turns would be idle. Where one turn holds all strips, three are enough.
 */
static int split_of_turns(const reduce_view *v, int64_t strips, int64_t fit, int split)
{
    enum { LINES_MIN = 512, TURNS_MAX = 8, TURNS_FEW = 3 };
    double fullest = fullness(split * strips, fit);
    const int turns = strips > fit ? TURNS_MAX : TURNS_FEW;
    const int64_t most = fullest < FULL_ENOUGH ? min_i64(turns * fit / strips, v->count / LINES_MIN) : split;
    int best = split;
    for (split++; split <= most; split++) {
        const double share = fullness(split * strips, fit);
        if (share > fullest) {
            fullest = share;
            best = split;
        }
    }
    return best;
}

static bool compensates(const reduce_view *v, const reduce_columns_config *c)
{
    return reduce_compensates(&v->kind, v->count / ((int64_t)(c->threads / c->lanes) * c->steps * c->split));
}

/*
 * Layers of a CTA, then up to `split_max` CTAs, share the elements of columns until the device is full. Where the last
 * turn would be nearly empty, CTAs have half the threads: 531 of 3x197x45160 bf16, where 528 fit, 17.8 us, 14.5. Where
 * they fit twice, twice: mean of 1616x15360 f16 over 0 by 240 15.0 us, 14.1.
 */
static void share_among(const reduce_view *v, const ckl_device_info *device, int64_t split_max,
                        reduce_columns_config *c)
{
    enum { THREADS = 256, MANY_TILES = 8 };
    const bool ragged = is_ragged(v, c);
    while (!ragged && c->threads > WARP && c->threads > c->lanes && c->threads / 2 >= v->count * c->lanes)
        c->threads /= 2; // layers without a line
    const int64_t layers = c->threads / c->lanes, tiles = tiles_of(v, c), ctas = resident_ctas(v, device, c);
    while (c->steps > 1 && layers * (c->steps / 2) >= v->count)
        c->steps /= 2;
    const int64_t most = ceil_div(max_i64(v->count, 1), layers * c->steps);
    c->split = (int)max_i64(1, min_i64(ctas / max_i64(tiles, 1), most));
    if ((c->split + 1) * tiles > ctas)
        c->split = split_of_turns(v, tiles, ctas, c->split);
    c->split = (int)min_i64(c->split, split_max);
    if (!ragged && c->split == 1 && tiles > ctas && fullness(tiles, ctas) < FULL_ENOUGH && c->threads == THREADS &&
        2 * c->lanes <= THREADS)
        c->threads /= 2;
    if (!ragged && c->split == 1 && 2 * tiles <= ctas && c->threads == THREADS && most >= MANY_TILES)
        c->threads *= 2;
    c->compensated = compensates(v, c);
}

static plan_cost cost_columns(const void *desc, const ckl_device_info *device, const void *config);

/*
 * Fewer CTAs where the last of a strip would merge their states in several rounds: larger ones, as long as an SM has as
 * many threads, then as few as cost least.
 */
static void save_rounds(const reduce_view *v, const ckl_device_info *device, int64_t split_max,
                        reduce_columns_config *c)
{
    enum { THREADS_MAX = 512, ROUNDS_FEW = 2 };
    reduce_columns_config t = *c;
    if (reduce_columns_rounds(c) <= ROUNDS_FEW)
        return;
    t.threads = THREADS_MAX;
    if (t.threads * resident_ctas(v, device, &t) >= c->threads * resident_ctas(v, device, c)) {
        share_among(v, device, split_max, &t);
        *c = t;
    }
    double least = cost_columns(v, device, c).us;
    for (t = *c; t.split > 1;) {
        t.split = (t.split + 1) / 2;
        t.compensated = compensates(v, &t);
        const double us = cost_columns(v, device, &t).us;
        if (us < least) {
            least = us;
            *c = t;
        }
    }
}

/*
 * The same where lanes and vectors are chosen; how CTAs send their states; whether those of the next kernel may come
 * early: where they gather, as there is room for more than all CTAs, only of small x.
 */
static void share_columns(const reduce_view *v, const ckl_device_info *device, int64_t split_max,
                          reduce_columns_config *c)
{
    share_among(v, device, split_max, c);
    if (reduce_columns_ctas_per_sm(c, is_ragged(v, c)) < REDUCE_COLUMNS_CTAS_OF_SM)
        share_among(v, device, split_max, c); // depends on whether sums are compensated
    save_rounds(v, device, split_max, c);
    const int64_t ctas = tiles_of(v, c) * c->split, fit = resident_ctas(v, device, c);
    const int64_t overlapping = c->split == 1 && ctas < fit ? CROWDED_BYTES : REDUCE_OVERLAP_BYTES;
    const bool full = leaves_no_place(v, device, c);
    if (full && bytes_of(v) > overlapping && dtype_bytes(c->kind.dtype) == WORD_BYTES &&
        reduce_state_words(&c->kind, c->compensated) == 1)
        c->steps = STEPS_MAX;
    c->overlap = bytes_of(v) <= overlapping || full;
    c->prefetch =
        c->overlap && !is_ragged(v, c) && ctas <= fit && c->vec * dtype_bytes(c->kind.dtype) == REDUCE_ACCESS_BYTES;
}

/*
 * The widest vectors whose columns' states fit registers, half of those rather than ragged ones, and so many of them
 * that a thread has enough in flight.
 */
static void choose_vectors(const reduce_view *v, reduce_columns_config *c)
{
    enum { HALF_BYTES = 8 };
    c->kind = v->kind;
    const int words = reduce_state_words(&c->kind, false), bytes = dtype_bytes(c->kind.dtype);
    const int64_t most = v->kind.reduced == 1 ? columns_of(v) / 2 : 1; // of ragged vectors, which are several
    c->vec = REDUCE_ACCESS_BYTES / bytes;
    while (c->vec * words > STATE_MAX || (c->vec > most && !columns_divide(v, c->vec)))
        c->vec /= 2;
    const int half = c->vec / 2;
    if (!columns_divide(v, c->vec) && half * bytes >= HALF_BYTES && columns_divide(v, half))
        c->vec = half;
    set_steps(c);
}

static ckl_status choose_columns(const void *desc, const ckl_device_info *device, void *config)
{
    reduce_columns_config *c = config;
    const reduce_view *v = desc;
    TRY(check_columns(v));
    choose_vectors(v, c);
    const bool ragged = !columns_divide(v, c->vec);
    const int64_t wanted = (int64_t)device->sm_count * REDUCE_THREADS_WANTED, across = v->rows / c->vec;
    c->lanes = (int)min_i64(across >= wanted ? c->threads : WARP, power_of_two_ceil(ceil_div(columns_of(v), c->vec)));
    const int narrow = narrow_lanes(c);
    const int64_t strips = ceil_div(columns_of(v), (int64_t)narrow * c->vec) * stretches_of(v);
    const bool alone = strips >= (int64_t)device->sm_count * REDUCE_COLUMNS_CTAS_OF_SM && v->count >= NARROW_LINES;
    if (ragged && suits_a_thread_each(v, device, c))
        take_single(v, c->threads, c->threads, ELEMENTS_IN_FLIGHT, c);
    else if (ragged && suits_elements(v, c)) {
        c->vec = 1;
        c->steps = ELEMENTS_IN_FLIGHT;
        c->lanes = columns_of(v) % (2 * WARP) > WARP ? 2 * WARP : WARP;
    } else if (ragged)
        fit_ragged(v, c);
    else if (c->lanes > narrow && c->lanes <= WARP && (alone || tiles_of(v, c) < NARROW_TILES))
        c->lanes = alone ? strip_lanes(v, device, c) : narrow;
    else if (c->lanes == WARP)
        widen_strips(v, device, c);
    share_columns(v, device, INT32_MAX, c);
    return CKL_OK;
}

/* May strips have a CTA each? They leave SMs idle if they are few, and too few bytes in flight for many turns. */
static bool may_be_alone(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *c)
{
    enum { TURNS_FEW = 4 };
    return tiles_of(v, c) >= device->sm_count || v->count * c->lanes <= (int64_t)TURNS_FEW * c->threads * c->steps;
}

/*
 * Single elements; strips from one line of memory to a warp wide, whose columns CTAs share or not. On Hopper, where
 * their cost was measured.
 */
static bool candidate_columns(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const reduce_view *v = desc;
    reduce_columns_config *c = config;
    if (!device->has_tma || check_columns(v) != CKL_OK)
        return false;
    choose_vectors(v, c);
    const int single = i == 0 ? take_few(v, device, c) : 0;
    if (single) {
        share_columns(v, device, single, c);
        return true;
    }
    const int number = i > 0 ? i - 1 : 0;
    const int64_t across = power_of_two_ceil(ceil_div(columns_of(v), c->vec)), lanes = narrow_lanes(c) << number / 2;
    if (!columns_divide(v, c->vec) || lanes > WARP)
        return false;
    c->lanes = (int)min_i64(lanes, across);
    share_columns(v, device, number % 2 && may_be_alone(v, device, c) ? 1 : INT32_MAX, c);
    return true;
}

static plan_cost cost_columns(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { TURN = 1200, SHIFTS = 1200, NO_SHIFTS = -3000, OF_MERGE = 50 };
    const double ROUND_US = 0.8;
    const reduce_columns_config *c = config;
    const reduce_view *v = desc;
    const bool ragged = is_ragged(v, c);
    const double turns = ceil((double)v->count * c->lanes / ((double)c->threads * c->steps * c->split));
    const int words = reduce_state_words(&c->kind, c->compensated);
    const memory_work work = { .of = { .us = c->split == 1              ? 0.7
                                             : reduce_columns_marked(c) ? 2.8
                                                                        : 2.4 + ROUND_US * reduce_columns_rounds(c),
                                       .wait_cycles = ragged ? SHIFTS : NO_SHIFTS,
                                       .bytes = 0.94,
                                       .lines = 2.5 },
                               .ctas = tiles_of(v, c) * c->split,
                               .threads = c->threads,
                               .registers = c->vec * (c->steps * dtype_bytes(c->kind.dtype) / WORD_BYTES + words),
                               .ctas_per_sm = reduce_columns_ctas_per_sm(c, ragged),
                               .wait_cycles = (turns - 1) * TURN,
                               .meets = true };
    // rounds in which the layers of a CTA merge, of states that are more than a number
    const double merges = words > 1 ? c->vec * log2((double)c->threads / c->lanes) * OF_MERGE : 0;
    return reduce_cost(v, device, work, turns * c->steps, c->vec, c->lanes, c->compensated, merges);
}

static ckl_status admit_columns(const void *desc, const ckl_device_info *device, const void *config)
{
    const reduce_columns_config *c = config;
    const reduce_view *v = desc;
    TRY(check_columns(v));
    TRY(reduce_check_kind("columns", v, &c->kind));
    TRY(reduce_check_threads("columns", c->threads, device));
    TRY(reduce_check_vectors("columns", c->vec, c->steps, c->kind.dtype));
    if (!is_power_of_two(c->lanes) || c->lanes > c->threads)
        FAIL(CKL_INVALID, "reduce columns: lanes=%d must be a power of two up to threads=%d", c->lanes, c->threads);
    if (c->split < 1)
        FAIL(CKL_INVALID, "reduce columns: split=%d is not positive", c->split);
    if (product_i64(c->split, (int64_t)c->lanes * c->vec) > STATES_OF_STRIP_MAX)
        FAIL(CKL_UNSUPPORTED, "reduce columns: split=%d: one strip's states are beyond 32-bit offsets", c->split);
    if (column_tiles(v, c, reduce_columns_ragged(c)) > REDUCE_CTAS_MAX / c->split)
        FAIL(CKL_UNSUPPORTED, "reduce columns: %" PRId64 " results are more than one launch has CTAs for", v->rows);
    return CKL_OK;
}

static int64_t columns_workspace(const ckl_plan *plan)
{
    const reduce_columns_config *c = plan->config;
    const reduce_view *v = plan->desc;
    const int64_t bytes =
        (reduce_columns_marked(c) ? 2 : 1) * (int64_t)WORD_BYTES * reduce_state_words(&c->kind, c->compensated);
    return reduce_workspace_for(column_tiles(v, c, reduce_columns_ragged(c)), c->split, bytes * c->lanes * c->vec);
}

static ckl_status launch_columns(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const reduce_columns_config *c = plan->config;
    const reduce_view *v = plan->desc;
    const bool may_be_ragged = reduce_columns_ragged(c);
    reduce_params p = reduce_params_for(plan, args, column_tiles(v, c, may_be_ragged));
    bool even = columns_divide(v, c->vec) && PLAN_ALIGNED(c->vec * dtype_bytes(c->kind.dtype), p.x) &&
                PLAN_ALIGNED(min_i64(REDUCE_ACCESS_BYTES, c->vec * dtype_bytes(c->kind.output)), p.y);
    int64_t ctas = column_tiles(v, c, !even && may_be_ragged) * c->split;
    return plan_launch(plan, even ? 0 : 1, (plan_grid){ .x = ctas }, &p, stream);
}

static const field columns_fields[] = { REDUCE_KIND(FIELD_NESTED, (reduce_columns_config, kind))
                                            REDUCE_COLUMNS_CONFIG(FIELD_ROW, reduce_columns_config) };

const implementation reduce_columns_plans = {
    IMPLEMENTATION_PARTS(reduce, columns),
    .summary = "neighbouring threads take neighbouring results; layers of threads and CTAs share long columns",
    .candidate = candidate_columns,
    .is_trusted = plan_trusts_all,
    .cost = cost_columns,
    .kernels = 2,
    .params = &reduce_param_list,
    .workspace_bytes = columns_workspace,
};
