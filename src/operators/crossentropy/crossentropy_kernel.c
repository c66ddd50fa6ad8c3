/*
 * crossentropy_kernel.c - forward: the logits of a row are read once, tile by tile, by some lanes, a CTA or several, of
 * which the last one merges what all have found. Backward: a CTA takes one tile of a row, or of several; nothing is
 * reduced. The mean: one CTA adds the losses in a fixed order. Rows that start anywhere are ragged (row.h): vectors are
 * those of x forward, of dx backward.
 */
#include "cute/kernel.h"
#include "operators/crossentropy/crossentropy_config.h"
#include "skeletons/first_thread.h"
#include "skeletons/online.h"
#include "skeletons/prefetch.h"

enum { MEAN_THREADS = CROSSENTROPY_MEAN_THREADS, ROWS_AT_ONCE = CROSSENTROPY_ROWS_AT_ONCE };

typedef struct problem {
    const crossentropy_config *cfg;
    row_split split; // of a tile of a row
    bool in_phase;   // backward: rows of x and dx
    crossentropy_values p;
} problem;

/* A number for each row. */
static tensor per_row(const problem *k, val pointer, ckl_dtype dtype)
{
    return gmem_tensor(pointer, dtype, compact(dynamic(k->p.rows))); // (ROWS)
}

/* A row's class. */
typedef struct label {
    val number;  // i64
    val ignored; // predicates
    val valid;   // in 0..cols-1
} label;

/* Are the weights of all classes needed, not of the target alone? */
static bool needs_weights(const problem *k)
{
    return k->cfg->weighted && k->cfg->smooth;
}

/* Loads a row's class number; 0 where the row does not exist. */
static val load_target(const problem *k, val row, val exists)
{
    val number = variable(k->cfg->target, imm(0));
    IF(exists)
        assign(number, at(per_row(k, k->p.target, k->cfg->target), row));
    return number;
}

static label label_of(const problem *k, val number, val exists)
{
    label t = { .number = select(exists, convert(I64, number), k->p.ignore_index) };
    t.ignored = eq(t.number, k->p.ignore_index);
    t.valid = logical_and(ge(t.number, imm(0)), lt(t.number, k->p.cols));
    return t;
}

/* Loads x[row,t] in its own type; 0 for a class that does not exist. */
static tensor load_logit(const problem *k, val row, label t)
{
    layout rows = make_layout(shape(k->p.rows, k->p.cols), stride(k->p.ldx, 1));
    tensor gX = gmem_tensor(k->p.x, k->cfg->dtype, rows);  // (ROWS,COLS)
    tensor rX = fragment(k->cfg->dtype, compact(leaf(1))); // (1)
    fill(rX, convert(k->cfg->dtype, imm(0)));
    IF(t.valid)
        set(rX, 0, at(gX, row, t.number));
    return rX;
}

/* The weight of the class; 0 for one that does not exist, 1 without weights. */
static val load_weight(const problem *k, label t)
{
    if (!k->cfg->weighted)
        return immf(1);
    val weight = variable(F32, immf(0));
    IF(t.valid)
        assign(weight, at_f32(gmem_vector(k->p.weight, k->cfg->dtype, k->p.cols), t.number));
    return weight;
}

/* Loads a tile. */
static tensor load_logits(const problem *k, const row_span *tile)
{
    tensor tXgX = row_of_matrix(&tile->split, &tile->place, k->p.x, k->cfg->dtype, k->p.ldx); // (VEC,STEPS)
    return row_fetch(&tile->split, &tile->place, tXgX, -INFINITY);
}

/*
 * What a row's loss is made of: a maximum and a sum of exponentials (online.h); smoothed, sums over classes of w * x
 * and, with weights, of w.
 */
enum { SMOOTH_X = ONLINE_VALUES, SMOOTH_W, ROW_SUMS };

typedef struct row_loss {
    const problem *k;
    val sums[ROW_SUMS]; // variables
    label t;            // of the row, and what is loaded by it
    tensor rLogit;      // (1)
    val weight;
} row_loss;

static int count_of_sums(const problem *k)
{
    return !k->cfg->smooth ? ONLINE_VALUES : needs_weights(k) ? ROW_SUMS : SMOOTH_W;
}

/* Variables, of a row of which nothing has been added up. */
static void begin_sums(const problem *k, val *sums)
{
    online_begin(sums);
    for (int i = SMOOTH_X; i < count_of_sums(k); i++)
        sums[i] = variable(F32, immf(0));
}

/* Adds w * x, and w, of a thread's elements of a tile; those past the end, which are -inf, are left out. */
static void add_smooth(const row_loss *l, const row_span *tile, tensor rX)
{
    const problem *k = l->k;
    const row_split *split = &tile->split;
    tensor rW = { 0 };
    if (needs_weights(k))
        rW = row_fetch_vector(split, &tile->place, k->p.weight, k->cfg->dtype); // (VEC,STEPS)
    for (int step = 0; step < split->steps; step++) {
        val inside = row_inside(split, &tile->place, step);
        for (int i = step * split->vec; i < (step + 1) * split->vec; i++) {
            val w = needs_weights(k) ? at_f32(rW, i) : immf(1);
            assign(l->sums[SMOOTH_X], fma(w, select(inside, at_f32(rX, i), immf(0)), l->sums[SMOOTH_X]));
            if (needs_weights(k))
                assign(l->sums[SMOOTH_W], add(l->sums[SMOOTH_W], w));
        }
    }
}

/* Adds a thread's elements of a tile to its sums. */
static void add_tile(row_loss *l, const row_span *tile, tensor rX)
{
    online_add(l->sums, rX);
    if (l->k->cfg->smooth)
        add_smooth(l, tile, rX);
}

/* Columns that the CTAs of a row take at a time: each a tile. */
static int64_t cols_at_once(const problem *k)
{
    return row_split_cols(&k->split) * k->cfg->parts;
}

/* The spans of a row: its ends are those of its first CTA. */
static row_spans spans_of(const problem *k, const row_place *place, val pointer, val ld)
{
    row_spans all = row_spans_of(&k->split, place, pointer, k->cfg->dtype, ld);
    if (all.count > 1)
        all.of[1].place.limit = select(eq(cta_y(), imm(0)), all.of[1].place.limit, imm(0));
    return all;
}

/* Adds a thread's elements of its row to its sums. */
static void add_row(row_loss *l, const row_place *place)
{
    const problem *k = l->k;
    const row_spans all = spans_of(k, place, k->p.x, k->p.ldx);
    tensor rEnds = { 0 };
    if (all.count > 1)
        rEnds = load_logits(k, &all.of[1]); // (1,1)
    const val first = mul(cta_y(), imm((int)row_split_cols(&k->split)));
    LOOP_FROM(start, first, convert(U32, k->p.cols), imm((int)cols_at_once(k))) {
        const row_span tile = { k->split, row_from(&all.of[0].place, start) };
        add_tile(l, &tile, load_logits(k, &tile));
    }
    if (all.count > 1)
        add_tile(l, &all.of[1], rEnds);
}

/* Loads the logit and the weight of the row's class. */
static void load_class(row_loss *l, const row_place *place, val target)
{
    l->t = label_of(l->k, target, place->exists);
    l->t.valid = logical_and(l->t.valid, place->exists);
    l->rLogit = load_logit(l->k, place->row, l->t);
    l->weight = load_weight(l->k, l->t);
}

/* What all classes add to a row's loss: spread * sum over c of w * (lse - x). */
static val smooth_of(const row_loss *l, val lse)
{
    const problem *k = l->k;
    val weights = needs_weights(k) ? l->sums[SMOOTH_W] : convert(F32, k->p.cols);
    val all = sub(mul(weights, lse), l->sums[SMOOTH_X]);
    return mul(k->p.spread, select(eq(lse, immf(-INFINITY)), immf(INFINITY), all));
}

/*
 * lse - x[t]; +inf where every logit is -inf, 0 for a class to ignore, and NaN for one that does not exist. With
 * weights and smoothing that times the share of the class, and what all classes add.
 */
static val loss_of(const row_loss *l, val lse)
{
    const problem *k = l->k;
    const val is_empty = logical_and(l->t.valid, eq(lse, immf(-INFINITY)));
    const val logit = select(l->t.valid, at_f32(l->rLogit, 0), immf(NAN));
    val loss = select(is_empty, immf(INFINITY), sub(lse, logit));
    if (k->cfg->weighted)
        loss = mul(loss, l->weight);
    if (k->cfg->smooth)
        loss = fma(loss, k->p.keep, smooth_of(l, lse));
    return select(l->t.ignored, immf(0), loss);
}

/* The sums are those of the row; its first thread stores. */
static void store_loss(const row_loss *l, const row_place *place)
{
    const problem *k = l->k;
    const val lse = add(l->sums[ONLINE_MAX], log_f32(l->sums[ONLINE_SUM]));
    IF(logical_and(eq(place->first, imm(0)), place->exists)) {
        set(per_row(k, k->p.lse, F32), place->row, lse);
        set(per_row(k, k->p.losses, F32), place->row, loss_of(l, lse));
        if (k->cfg->reduction == CKL_LOSS_MEAN)
            set(per_row(k, k->p.counts, F32), place->row, select(l->t.ignored, immf(0), l->weight));
        if (needs_weights(k))
            IF(eq(place->row, imm(0)))
                set(per_row(k, k->p.weight_sum, F32), 0, l->sums[SMOOTH_W]);
    }
}

/* Over the threads of a row. */
static void reduce_loss(row_loss *l)
{
    const problem *k = l->k;
    const reduction others = reduce_sums(count_of_sums(k) - SMOOTH_X);
    row_reduce(&k->split, &online_reduction, l->sums);
    if (k->cfg->smooth)
        row_reduce(&k->split, &others, l->sums + SMOOTH_X);
}

/* Rows of several CTAs: what each has found, in a workspace; the last one merges it. */
static void merge_parts(const row_loss *l, const row_place *place)
{
    const problem *k = l->k;
    const int parts = k->cfg->parts, count = count_of_sums(k);
    const tensor gParts = gmem_tensor(k->p.parts, F32, compact(shape(count, parts, k->p.rows))); // (SUMS,PARTS,ROWS)
    IF(is_first_thread())
        for (int i = 0; i < count; i++)
            set(gParts, coord(i, cta_y(), place->row), l->sums[i]);
    IF(is_last_cta(counter_at(k->p.counters, place->row), imm_as(U32, parts))) {
        row_loss all = *l;
        begin_sums(k, all.sums);
        IF(lt(thread(), imm(parts)))
            for (int i = 0; i < count; i++)
                assign(all.sums[i], at(gParts, coord(i, thread(), place->row)));
        reduce_loss(&all);
        store_loss(&all, place);
    }
}

static void forward(const problem *k)
{
    row_place place = row_here(&k->split, k->p.rows, k->p.cols);
    prefetch_small_rows(&k->p.x, 1, k->p.rows, k->p.cols, k->p.ldx, k->cfg->dtype);
    if (k->split.early) {
        row_wait(&k->split);
    } else {
        grid_wait();
        IF(le(k->p.cols, imm(cols_at_once(k)))) // beside long rows the next kernel's CTAs would crowd some SMs
            launch_dependents();
    }
    row_loss l = { .k = k };
    begin_sums(k, l.sums);
    val target = load_target(k, place.row, place.exists);
    add_row(&l, &place); // needs no class, whose two loads overlap this
    load_class(&l, &place, target);
    reduce_loss(&l);
    if (k->cfg->parts > 1)
        merge_parts(&l, &place);
    else
        store_loss(&l, &place);
}

/* Threads of the cluster. */
static int mean_threads(const problem *k)
{
    return MEAN_THREADS * k->cfg->mean_ctas;
}

/* Adds the losses of some rows, and their counts. All are loaded before the first is used. */
static void add_losses(const problem *k, val first, const val *sums)
{
    val loss[ROWS_AT_ONCE], count[ROWS_AT_ONCE];
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        val row = min(add(first, imm(i * mean_threads(k))), sub(k->p.rows, imm(1)));
        loss[i] = at(per_row(k, k->p.losses, F32), row);
        count[i] = at(per_row(k, k->p.counts, F32), row);
    }
    for (int i = 0; i < ROWS_AT_ONCE; i++) {
        val exists = lt(add(first, imm(i * mean_threads(k))), k->p.rows);
        assign(sums[0], add(sums[0], select(exists, loss[i], immf(0))));
        val counted = select(exists, count[i], immf(0));
        assign(sums[1], add(sums[1], k->cfg->weighted ? counted : convert(I32, counted)));
    }
}

static void mean(const problem *k)
{
    const reduction total = reduce_sums(2);
    const int ctas = k->cfg->mean_ctas;
    const int64_t bytes = cta_reduce_bytes(MEAN_THREADS);
    val sums[] = { variable(F32, immf(0)), // the losses, and their number, which f32 may not hold, or weights
                   k->cfg->weighted ? variable(F32, immf(0)) : variable(I32, imm(0)) };
    launch_bounds(MEAN_THREADS, 0);
    cluster_size(ctas);
    grid_wait(); // for the losses; the start of this kernel overlaps the end of the one that stores them
    val first = add(mul(convert(I64, cta_x()), imm(MEAN_THREADS)), convert(I64, thread()));
    LOOP_FROM(row, first, k->p.rows, imm(mean_threads(k) * ROWS_AT_ONCE)) {
        add_losses(k, row, sums);
    }
    cta_reduce(&total, MEAN_THREADS, smem_alloc("total", bytes, 16), sums);
    if (ctas > 1) {
        cluster_meet(ctas);
        cluster_reduce(&total, ctas, smem_alloc("totals", bytes, 16), sums);
    }
    IF(eq(first, imm(0))) {
        val count = convert(F32, sums[1]);
        set(per_row(k, k->p.loss, F32), 0, div(sums[0], count));
        set(per_row(k, k->p.count, F32), 0, count);
    }
}

/* The factor of a row's gradient; NaN for a class that does not exist. */
static val factor_of(const problem *k, const row_place *place, label t)
{
    const bool reduced = k->cfg->reduction == CKL_LOSS_MEAN;
    val factor = variable(F32, immf(NAN));
    IF(logical_and(place->exists, t.valid)) {
        val dloss = at(per_row(k, k->p.dloss, F32), reduced ? imm64(0) : place->row);
        assign(factor, reduced ? div(dloss, at(per_row(k, k->p.count, F32), 0)) : dloss);
    }
    return factor;
}

static val read_lse(const problem *k, const row_place *place)
{
    val lse = variable(F32, immf(0));
    IF(place->exists)
        assign(lse, at(per_row(k, k->p.lse, F32), place->row));
    return select(eq(lse, immf(-INFINITY)), immf(0), lse); // exp(-inf - 0) = 0
}

/* What the gradients of a row's elements are computed from. */
typedef struct row_factors {
    label t;
    val class, lse, factor;
    val all;   // with weights that are smoothed: of each probability
    val own;   // smoothed: what is taken off at the class
    val other; // smoothed: off each element, times its weight
} row_factors;

/* A thread's elements of a span's tile. */
typedef struct gradient_tile {
    row_split split;
    row_place place;
    tensor tXgX, tXgDx, rX, rDx, rW; // (VEC,STEPS)
} gradient_tile;

static gradient_tile make_tile(const problem *k, const row_span *span)
{
    const val start = mul(cta_y(), imm((int)row_split_cols(&k->split)));
    gradient_tile g = { .split = span->split, .place = row_from(&span->place, start) };
    g.tXgX = row_of_matrix(&g.split, &g.place, k->p.x, k->cfg->dtype, k->p.ldx);
    g.tXgDx = row_of_matrix(&g.split, &g.place, k->p.dx, k->cfg->dtype, k->p.lddx);
    g.rX = fragment_like(g.tXgX, k->cfg->dtype);
    g.rDx = fragment_like(g.tXgDx, F32);
    return g;
}

/* The gradient of an element but for its row's factor. */
static val difference_of(const problem *k, const gradient_tile *g, const row_factors *f, int i)
{
    val column = coordinate(g->place.cX, 1, i), e = online_exp(at_f32(g->rX, i), f->lse);
    if (!k->cfg->smooth)
        return select(eq(column, f->class), add(e, immf(-1)), e);
    val all = needs_weights(k) ? sub(mul(e, f->all), mul(f->other, at_f32(g->rW, i))) : sub(e, f->other);
    return select(eq(column, f->class), sub(all, f->own), all);
}

static void write_gradients(const problem *k, const gradient_tile *g, const row_factors *f)
{
    const row_split *split = &g->split;
    for (int step = 0; step < split->steps; step++) {
        for (int i = step * split->vec; i < (step + 1) * split->vec; i++) {
            val difference = difference_of(k, g, f, i);
            set(g->rDx, i, select(f->t.ignored, immf(0), mul(difference, f->factor)));
        }
        row_store_step(split, &g->place, g->rDx, g->tXgDx, step);
    }
}

/* The factors of a row whose class is known. */
static row_factors factors_of(const problem *k, const row_place *row, label t)
{
    row_factors f = { .t = t, .other = k->p.spread };
    f.lse = read_lse(k, row);
    f.factor = factor_of(k, row, t);
    f.class = convert(U32, t.number);
    const val weight = load_weight(k, t);
    if (k->cfg->smooth)
        f.own = mul(k->p.keep, weight);
    else if (k->cfg->weighted)
        f.factor = mul(f.factor, weight);
    if (needs_weights(k))
        f.all = fma(k->p.spread, at(per_row(k, k->p.weight_sum, F32), 0), f.own);
    return f;
}

/* CTA y has tile y of the row; CTA 0 also the ends of a ragged row. */
static void backward(const problem *k)
{
    row_place row = row_here(&k->split, k->p.rows, k->p.cols);
    const row_spans all = spans_of(k, &row, k->p.dx, k->p.lddx);
    gradient_tile tile[ROW_SPANS_MAX];
    for (int i = 0; i < all.count; i++)
        tile[i] = make_tile(k, &all.of[i]);
    prefetch_small_rows(&k->p.x, 1, k->p.rows, k->p.cols, k->p.ldx, k->cfg->dtype);
    row_wait(&k->split);
    val target = load_target(k, row.row, row.exists);
    for (int i = 0; i < all.count; i++) // these overlap the class's loads, of which one waits for the other
        (k->in_phase ? row_load : row_load_among)(&tile[i].split, &tile[i].place, tile[i].tXgX, tile[i].rX, 0);
    for (int i = 0; i < all.count && needs_weights(k); i++)
        tile[i].rW = row_fetch_vector(&tile[i].split, &tile[i].place, k->p.weight, k->cfg->dtype);
    const row_factors f = factors_of(k, &row, label_of(k, target, row.exists));
    for (int i = 0; i < all.count; i++)
        write_gradients(k, &tile[i], &f);
}

/*
 * Forward, tiles of 33 to 48 elements of 16 bits take 71 to 79 registers, and nothing spills if they have 64, which let
 * a third more CTAs into an SM: 17976x5504 f16 54.7 us, 50.7 so. Weights that are smoothed take more, and CTAs of 64
 * threads lose by it: 11136x1280 bf16 9.7 us, 8.8 without.
 */
static void bound_registers(const problem *k)
{
    enum { THREADS_OF_SM = 1024, SMALL_CTA = 64, ELEMENTS_MIN = 33, ELEMENTS_MAX = 48 };
    const int elements = k->split.vec * k->split.steps;
    if (k->cfg->direction == CKL_DIRECTION_FORWARD && k->cfg->dtype != CKL_F32 && elements >= ELEMENTS_MIN &&
        elements <= ELEMENTS_MAX && k->split.threads > SMALL_CTA && !needs_weights(k))
        min_ctas_per_sm(THREADS_OF_SM / k->split.threads);
}

void crossentropy_describe(const void *config, int kernel)
{
    const crossentropy_config *cfg = config;
    problem k = { .cfg = cfg, .split = cfg->split, .in_phase = true, .p = params_of(crossentropy) };
    if (kernel == CROSSENTROPY_VECTORS)
        bound_registers(&k);
    if (kernel == CROSSENTROPY_ELEMENTS) {
        k.split = row_split_anywhere(&cfg->split, cfg->dtype);
        k.in_phase = false;
    }
    if (kernel == CROSSENTROPY_MEAN)
        mean(&k);
    else if (cfg->direction == CKL_DIRECTION_FORWARD)
        forward(&k);
    else
        backward(&k);
}
