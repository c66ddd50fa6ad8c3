/*
 * attention_decode_latent_store.c - the end of a split of a latent cache: its sum, which is in registers, meets those
 * of other splits, and becomes the result.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_latent.h"

enum { QUAD_BYTES = 4 * QUAD, ROWS = 2 }; // rows of a thread

val attention_decode_latent_row(const latent_part *part, int r)
{
    const tensor cO =
        partition_C(part->mma, identity_tensor(shape(part->rows, part->width)), part->tid); // (MMA,1,MMA_N)
    return coordinate(cO, 0, attention_online_row_value(part->out, r));
}

/* Two columns of a row from atom `atom`, as they are stored. Zeros are positive. */
static val word_of(const latent_part *part, int atom, int r, val factor)
{
    const int64_t first = 4 * atom + attention_online_row_value(part->out, r);
    const val low = fma(at(part->out, first), factor, immf(0)), high = fma(at(part->out, first + 1), factor, immf(0));
    return bitcast(U32, pack(part->place->form.dtype == CKL_F16 ? IR_F16X2 : IR_BF16X2, low, high));
}

/* Four lanes have words of four atoms each; then each lane has an atom's, from all four. */
static void exchange(val *word)
{
    for (int apart = 1; apart < QUAD; apart *= 2) {
        const val is_upper = ne(bit_and(lane(), imm(apart)), imm(0));
        for (int i = 0; i < QUAD; i++) {
            if (i & apart)
                continue;
            const val other = shuffle_xor(select(is_upper, word[i], word[i + apart]), imm(apart));
            word[i] = select(is_upper, other, word[i]);
            word[i + apart] = select(is_upper, word[i + apart], other);
        }
    }
}

static void store(const latent_part *part)
{
    enum { COLUMNS = 8 }; // of an atom, 16 bytes
    const decode_place *place = part->place;
    const online_rows *rows = part->online;
    const int atoms = part->width / COLUMNS;
    const val of_row = thread_at(lane(), 0, QUAD, 8), is_first = eq(add(part->index, of_row), imm(0));
    for (int r = 0; r < ROWS; r++) {
        const val row = add(attention_decode_latent_row(part, r), mul(place->tile, imm(place->rows))),
                  exists = lt(row, imm(place->rows_all)), there = min(row, imm(place->rows_all - 1));
        const row_end e = attention_row_end(rows->max[r], rows->sum[r], attention_decode_sink_of(place, there));
        const val column = add(mul(part->index, imm(part->width)), mul(of_row, imm(COLUMNS))),
                  to = tensor_address(attention_decode_row_of(place, ATTENTION_O, there), coord(column));
        for (int first = 0; first < atoms; first += QUAD) {
            val word[QUAD];
            for (int i = 0; i < QUAD; i++)
                word[i] = first + i < atoms ? word_of(part, first + i, r, e.factor) : imm_as(U32, 0);
            exchange(word);
            IF(logical_and(exists, lt(of_row, imm(atoms - first))))
                store_at(IR_GLOBAL, IR_CACHE_DEFAULT, U32, QUAD, to, 2 * COLUMNS * first, word);
        }
        if (place->form.lse)
            IF(logical_and(exists, is_first))
                attention_decode_store_logarithm(place, row, e.top, e.sum);
    }
}

/* Some memory where each thread has quads of numbers, beside those of the others. */
typedef struct quads {
    ir_space space;
    ir_cache cache;
    val first; // this thread's
    int apart; // bytes
} quads;

static void store_quad(const quads *to, int64_t number, const val *x)
{
    store_at(to->space, to->cache, F32, QUAD, to->first, number * to->apart, x);
}

static void load_quad(const quads *from, int64_t number, val *x)
{
    for (int i = 0; i < QUAD; i++)
        x[i] = unwritten(F32);
    load_at(from->space, IR_CACHE_DEFAULT, F32, QUAD, from->first, number * from->apart, x);
}

/* Columns into quads from number `first` on. */
static void store_columns(const latent_part *part, const quads *to, int64_t first)
{
    for (int64_t i = 0; i < static_size(part->out.layout); i += QUAD) {
        val o[QUAD];
        for (int j = 0; j < QUAD; j++)
            o[j] = at(part->out, i + j);
        store_quad(to, first + i / QUAD, o);
    }
}

/*
 * Adds another sum of the rows. Both orders give the same bits. NOTE: what is added goes through a shuffle, as ptxas
 * else keeps it beside O until the sums are used, and spills 424 bytes.
 */
static void add_columns(const latent_part *part, const quads *from, int64_t first, const val *top, const val *sum)
{
    const online_rows *rows = part->online;
    val own[ROWS], other[ROWS], o[QUAD];
    for (int r = 0; r < ROWS; r++) {
        const val larger = max(rows->max[r], top[r]);
        own[r] = exp2_ftz(sub(rows->max[r], larger));
        other[r] = exp2_ftz(sub(top[r], larger));
        assign(rows->max[r], larger);
        assign(rows->sum[r], add(mul(rows->sum[r], own[r]), mul(sum[r], other[r])));
    }
    for (int64_t i = 0; i < static_size(part->out.layout); i++) {
        const val x = at(part->out, i);
        const int r = attention_online_row_of(part->out, i);
        if (i % QUAD == 0)
            load_quad(from, first + i / QUAD, o);
        assign(x, shuffle(add(mul(x, own[r]), mul(o[i % QUAD], other[r])), lane()));
    }
}

/* What a CTA has of neighbouring splits of a sequence: which ones. */
typedef struct climber {
    const latent_part *part;
    const decode_sums *sums;
    val first, width; // variables
    val is_own;       // of a node: has this CTA both halves?
    val other;        // the first split of the half whose sum is added
} climber;

/* The columns of a split's partial. */
static quads columns_of(const climber *x, const decode_partial *partial)
{
    const val first = tensor_address(partial->values, coord(0, 0));
    return (quads){ IR_GLOBAL, x->part->cache, add(first, convert(U64, mul(thread(), imm(QUAD_BYTES)))),
                    x->sums->threads * QUAD_BYTES };
}

static void leave_partial(const climber *x)
{
    const online_rows *rows = x->part->online;
    const decode_partial partial = attention_decode_partial_of(x->sums, x->first);
    const quads to = columns_of(x, &partial);
    store_columns(x->part, &to, 0);
    IF(eq(x->part->index, imm(0)))
        for (int r = 0; r < ROWS; r++) { // all four lanes of a row have it
            const val row = attention_decode_latent_row(x->part, r);
            set(partial.states, coord(0, row), rows->max[r]);
            set(partial.states, coord(1, row), rows->sum[r]);
        }
}

static void add_partial(const climber *x)
{
    const decode_partial partial = attention_decode_partial_of(x->sums, x->other);
    const quads from = columns_of(x, &partial);
    val top[ROWS], sum[ROWS];
    for (int r = 0; r < ROWS; r++) {
        const val row = attention_decode_latent_row(x->part, r);
        top[r] = at(partial.states, 0, row);
        sum[r] = at(partial.states, 1, row);
    }
    add_columns(x->part, &from, 0, top, sum);
}

/* This thread's quads of the level that x->width, 1 or 2, is of: maxima and sums, then columns. */
static quads held_quads(const climber *x)
{
    const val first = tensor_address(x->part->sHeld, coord(0, thread(), 0, div(x->width, imm(2))));
    return (quads){ IR_SHARED, IR_CACHE_DEFAULT, first, x->sums->threads * QUAD_BYTES };
}

static void hold(const climber *x)
{
    const online_rows *rows = x->part->online;
    const quads to = held_quads(x);
    store_quad(&to, 0, (const val[]){ rows->max[0], rows->max[1], rows->sum[0], rows->sum[1] });
    store_columns(x->part, &to, 1);
}

static void add_held(const climber *x)
{
    const quads from = held_quads(x);
    val states[QUAD];
    load_quad(&from, 0, states);
    add_columns(x->part, &from, 1, states, states + ROWS);
}

/* Has this CTA all splits of the node that begins at split `left`? */
static val is_own(const climber *x, val left)
{
    const decode_place *place = x->part->place;
    const val split = place->split, begin = sub(split, min(split, place->before)), end = add(split, place->after),
              next = add(left, add(x->width, x->width));
    return logical_and(le(begin, left), le(min(next, place->splits), end));
}

/* Calls either: by whether sums of this node's level are in shared memory. */
static void by_level(const climber *x, void (*in_smem)(const climber *x), void (*in_workspace)(const climber *x))
{
    if (!x->part->levels) {
        in_workspace(x);
        return;
    }
    IF(logical_and(x->is_own, lt(x->width, imm(1 << x->part->levels)))) {
        in_smem(x);
    }
    ELSE
    {
        in_workspace(x);
    }
}

static void sync_all(const climber *x)
{
    named_sync(imm(x->sums->barrier), x->sums->threads);
}

/*
 * Is this CTA the second one at the node whose right half begins at split `right`, and counts there? Else it leaves its
 * sum.
 */
static val is_second(const climber *x, val right)
{
    const val counter = attention_decode_counter(x->sums, add(x->part->place->p.splits, imm(1)), right);
    tensor sLast = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    sync_all(x);                                                  // all know the last answer
    IF(eq(thread(), imm(0)))
        set(sLast, 0, load_acquire(I32, counter));
    sync_all(x); // the answer is there
    val before = variable(I32, at(sLast, 0));
    IF(eq(before, imm(0))) {
        leave_partial(x);
        sync_all(x); // the partial is stored
        IF(eq(thread(), imm(0)))
            set(sLast, 0, atomic_add_acq_rel(counter, imm_as(I32, 1)));
        sync_all(x); // the answer is there
        assign(before, at(sLast, 0));
    }
    IF(logical_and(ne(before, imm(0)), eq(thread(), imm(0))))
        store_relaxed(I32, counter, imm(0));
    return before;
}

/*
 * At the node between splits `left` and `right`: who comes first leaves its sum, who comes second adds it. True for the
 * latter.
 */
static val meet(climber *x, val left, val right)
{
    const val comes_second = variable(I32, imm(1));
    x->is_own = is_own(x, left);
    x->other = select(eq(x->first, left), right, left);
    IF(x->is_own) {
        IF(eq(x->first, left)) {
            sync_all(x); // all know the maxima that may be there
            by_level(x, hold, leave_partial);
            assign(comes_second, imm(0));
        }
    }
    ELSE
    {
        assign(comes_second, is_second(x, right));
    }
    IF(ne(comes_second, imm(0)))
        by_level(x, add_held, add_partial);
    return comes_second;
}

void attention_decode_latent_climb(const latent_part *part, const decode_sums *sums)
{
    const val splits = part->place->splits, goes_on = variable(I32, imm(1));
    climber x = {
        .part = part, .sums = sums, .first = variable(U32, part->place->split), .width = variable(U32, imm(1))
    };
    FOREVER {
        BREAK_IF(logical_or(eq(goes_on, imm(0)), ge(x.width, splits)));
        const val left = sub(x.first, bit_and(x.first, x.width)), right = add(left, x.width);
        IF(lt(right, splits))
            assign(goes_on, meet(&x, left, right));
        assign(x.first, left);
        assign(x.width, add(x.width, x.width));
    }
    IF(ne(goes_on, imm(0)))
        store(part);
}
