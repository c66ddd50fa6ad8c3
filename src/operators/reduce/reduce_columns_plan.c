/* reduce_columns_plan.c - choice, checks and launch for rows that lie across memory. */
#include "operators/reduce/reduce_config.h"

#include <math.h>

#include "base/math.h"
#include "plan/check.h"

enum { WARP = 32 };

static const double NEARLY = 0.99, SURE = 0.9; // of a cost: as much as one that costs less promises

enum {
    WORD_BYTES = 4,       // of a register
    STATE_MAX = 16,       // registers of all columns of a thread: more do not fit
    BYTES_IN_FLIGHT = 64, // of a thread
    STEPS_MAX = 8,
    ELEMENTS_IN_FLIGHT = 16, // of a thread, where they are single
    SECTOR_BYTES = 32,
    CROWDED_BYTES = 8 << 20, // of an x that is read for longer than early CTAs of the next kernel save
    STATES_OF_STRIP_MAX = 1 << 26,
};

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
 * Vectors in flight. Of single elements as many as leave the fewest lines over, each of which is guarded: norm2 of
 * 197x128 f32 2.3 us by 12 and one over, 4.9 by 13.
 */
static void set_steps(const reduce_view *v, reduce_columns_config *c)
{
    enum { WORDS_FEW = 2 }; // of a state: more spill beside 16 elements
    const int64_t layers = c->threads / c->lanes, lines = max_i64(1, ceil_div(v->count, layers));
    if (c->vec > 1) {
        c->steps = (int)min_i64(STEPS_MAX, BYTES_IN_FLIGHT / (c->vec * dtype_bytes(c->kind.dtype)));
        return;
    }
    c->steps = (int)min_i64(ELEMENTS_IN_FLIGHT / (reduce_state_words(&c->kind, false) > WORDS_FEW ? 2 : 1), lines);
    for (int steps = c->steps - 1; steps > c->steps / 2; steps--)
        if (v->count % (steps * layers) < v->count % (c->steps * layers))
            c->steps = steps;
}

static ckl_status check_columns(const reduce_view *v)
{
    if (v->kind.kept == 0 || v->kept[v->kind.kept - 1].stride != 1)
        FAIL(CKL_UNSUPPORTED, "reduce columns: neighbouring results are not made of neighbouring elements");
    return CKL_OK;
}

/*
 * Do the CTAs leave no place to early ones of the next launch? Then these come one for one, and
 * prefetch: max of 6144x6144 bf16 21.0 us, 19.3. Words need eight vectors in flight, so that no fifth CTA fits.
 */
static bool leaves_no_place(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *c)
{
    enum { OF = 32 }; // one of so many may be missing
    const int64_t ctas = tiles_of(v, c) * c->split, fit = resident_ctas(v, device, c);
    return !is_ragged(v, c) && ctas <= fit && OF * ctas >= (OF - 1) * fit;
}

static bool compensates(const reduce_view *v, const reduce_columns_config *c)
{
    return reduce_compensates(&v->kind, v->count / ((int64_t)(c->threads / c->lanes) * c->steps * c->split));
}

/* Layers of a CTA, then up to `split_max` CTAs, share the elements of columns until the device is full. */
static void share_among(const reduce_view *v, const ckl_device_info *device, int64_t split_max,
                        reduce_columns_config *c)
{
    const bool ragged = is_ragged(v, c);
    while (!ragged && c->threads > WARP && c->threads > c->lanes && c->threads / 2 >= v->count * c->lanes)
        c->threads /= 2; // layers without a line
    const int64_t layers = c->threads / c->lanes, tiles = tiles_of(v, c), ctas = resident_ctas(v, device, c);
    while (c->steps > 1 && layers * (c->steps / 2) >= v->count)
        c->steps /= 2;
    const int64_t most = ceil_div(max_i64(v->count, 1), layers * c->steps);
    c->split = (int)min_i64(split_max, max_i64(1, min_i64(ctas / max_i64(tiles, 1), most)));
    c->compensated = compensates(v, c);
}

/*
 * Shares columns where lanes and vectors are chosen. Whether CTAs of the next kernel may come early: where they gather,
 * as there is room for more than all CTAs, only of small x.
 */
static void share_columns(const reduce_view *v, const ckl_device_info *device, int64_t split_max,
                          reduce_columns_config *c)
{
    share_among(v, device, split_max, c);
    const int64_t ctas = tiles_of(v, c) * c->split, fit = resident_ctas(v, device, c);
    const int64_t overlapping = c->split == 1 && ctas < fit ? CROWDED_BYTES : REDUCE_OVERLAP_BYTES;
    const bool full = leaves_no_place(v, device, c);
    if (full && bytes_of(v) > overlapping && dtype_bytes(c->kind.dtype) == WORD_BYTES &&
        reduce_state_words(&c->kind, c->compensated) == 1)
        c->steps = STEPS_MAX;
    c->overlap = bytes_of(v) <= overlapping || full ? reduce_overlap(v) : REDUCE_ALONE;
    c->prefetch =
        c->overlap && !is_ragged(v, c) && ctas <= fit && c->vec * dtype_bytes(c->kind.dtype) == REDUCE_ACCESS_BYTES;
}

/* The widest vectors whose columns' states fit registers; ragged ones are several. */
static int widest_vector(const reduce_view *v)
{
    const int words = reduce_state_words(&v->kind, false);
    const int64_t most = v->kind.reduced == 1 ? columns_of(v) / 2 : 1;
    int vec = REDUCE_ACCESS_BYTES / dtype_bytes(v->kind.dtype);
    while (vec * words > STATE_MAX || (vec > most && !columns_divide(v, vec)))
        vec /= 2;
    return vec;
}

static plan_cost cost_columns(const void *desc, const ckl_device_info *device, const void *config);

/*
 * Strips from as wide as a CTA to a few lanes, shared by as many CTAs as fit, half of them, a quarter, down to one;
 * what costs `sure` times less than other vectors is taken.
 */
static void consider(const reduce_view *v, const ckl_device_info *device, const reduce_columns_config *t, double sure,
                     reduce_columns_config *best)
{
    enum { LANES_MAX = 256, LANES_MIN = 8 };
    const int64_t across = power_of_two_ceil(ceil_div(columns_of(v), t->vec));
    for (int lanes = (int)min_i64(min_i64(LANES_MAX, across), t->threads); lanes >= min_i64(LANES_MIN, across);
         lanes /= 2) {
        reduce_columns_config strip = *t, c;
        strip.lanes = lanes;
        if (strip.vec > 1 && !columns_divide(v, strip.vec) && !reduce_columns_ragged(&strip))
            continue;
        set_steps(v, &strip);
        for (int64_t most = INT32_MAX; most > 0; most = c.split / 2) {
            c = strip;
            share_columns(v, device, most, &c);
            const double less = c.vec == best->vec ? NEARLY : c.vec == 1 && c.split > 1 ? SURE : sure;
            if (best->lanes == 0 || cost_columns(v, device, &c).us < less * cost_columns(v, device, best).us)
                *best = c;
        }
    }
}

/*
 * The widest vectors by 256 threads, or others; single elements of columns that begin anywhere, where no CTAs share
 * them. Where they promise a tenth less, half vectors, and other single elements.
 */
static ckl_status choose_columns(const void *desc, const ckl_device_info *device, void *config)
{
    static const int threads[] = { 256, 512, 128 };
    reduce_columns_config *c = config, t = *c;
    const reduce_view *v = desc;
    TRY(check_columns(v));
    t.kind = v->kind;
    const int widest = widest_vector(v);
    const bool ragged = !columns_divide(v, widest);
    const int vectors[] = { widest, ragged ? widest / 2 : 1, 1 };
    c->lanes = 0;
    for (int i = 0; i < COUNT_OF(threads) * COUNT_OF(vectors); i++) {
        t.threads = threads[i / COUNT_OF(vectors)];
        t.vec = vectors[i % COUNT_OF(vectors)];
        consider(v, device, &t, t.vec == widest || (ragged && t.vec == 1) ? NEARLY : SURE, c);
    }
    return CKL_OK;
}

static plan_cost cost_columns(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { TURN = 1200, SHIFTS = 2400, NO_SHIFTS = -3000, OF_MERGE = 50, MERGE_LINES = 16 };
    const double ROUND_US = 0.5, LATE_US = 1.1, OF_IDLE = 0.25, OF_AGAIN = 0.5, OF_NARROW = 1.15;
    const reduce_columns_config *c = config;
    const reduce_view *v = desc;
    const bool ragged = is_ragged(v, c);
    const double turns = ceil((double)v->count * c->lanes / ((double)c->threads * c->steps * c->split));
    const int words = reduce_state_words(&c->kind, c->compensated);
    const int64_t ctas = tiles_of(v, c) * c->split, fit = resident_ctas(v, device, c);
    // of SMs what is idle in the last turn of CTAs costs a part: 531 CTAs of 3x197x45160 bf16, where 528 fit, 17.8 us,
    // 14.5
    const int64_t at_once = ctas <= fit ? device->sm_count : fit;
    const double idle = (double)round_up(ctas, at_once) / (double)max_i64(ctas, 1) - 1;
    // of ragged strips what the next one reads again, and a sector: 16x32768x125 f32 by five strips 80 us, by one 68;
    // and what merging costs for each: 8x88x409x409 bf16 71 us, by single elements 64
    const int64_t bytes = dtype_bytes(c->kind.dtype), beside = c->vec * bytes + SECTOR_BYTES;
    const double again = ragged ? (double)(tiles_of(v, c) * beside) / (double)max_i64(v->rows * bytes, 1) +
                                      (double)MERGE_LINES * c->split / (double)max_i64(v->count, 1)
                                : 0;
    const bool narrow = c->vec * bytes < WORD_BYTES; // a thread has half a word in flight for each load
    const double meeting = c->split == 1              ? 0.3
                           : reduce_columns_marked(c) ? 1.7
                                                      : 1.6 + ROUND_US * reduce_columns_rounds(c);
    const memory_work work = { .of = { .us = meeting + (c->overlap ? 0 : LATE_US),
                                       .wait_cycles = ragged ? SHIFTS : NO_SHIFTS,
                                       .bytes =
                                           0.94 * (narrow ? OF_NARROW : 1) * (1 + OF_IDLE * idle + OF_AGAIN * again),
                                       .lines = 2.5 },
                               .ctas = ctas,
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
    TRY(reduce_check_overlap("columns", c->overlap));
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
    .cost = cost_columns,
    .kernels = 2,
    .params = &reduce_param_list,
    .workspace_bytes = columns_workspace,
};
