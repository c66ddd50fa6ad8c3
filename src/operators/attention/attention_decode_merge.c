/*
 * attention_decode_merge.c - the end of attention_decode's kernels: adds the partials of a CTA's warps, then of the
 * CTAs that share a sequence and head, in the order of the keys: first groups of splits, then the groups' sums, so that
 * no CTA adds many.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_place.h"

enum {
    QUAD = 4,  // columns of O that a thread takes at a time
    QUADS = 4, // of these that it adds at a time
    FLIGHT_MAX = 32,
    GROUP = ATTENTION_DECODE_GROUP,
    PARTIALS_MAX = 16,
};

/* A maximum and a sum of a row, with columns of O that count 2^maximum: `count` quads of them. */
typedef struct state {
    int count;
    val top, sum, o[QUADS][QUAD];
} state;

static state no_state(int count)
{
    state s = { .count = count, .top = variable(F32, immf(-INFINITY)), .sum = variable(F32, immf(0)) };
    for (int q = 0; q < count; q++)
        for (int i = 0; i < QUAD; i++)
            s.o[q][i] = variable(F32, immf(0));
    return s;
}

/* The partial of some keys, in registers. */
typedef struct loaded_partial {
    val top, sum;
    tensor rO[QUADS]; // (QUAD)
    val exists;       // a predicate
} loaded_partial;

/* Adds `count` partials in their order, relative to their common maximum, so that no exponential waits for another. */
static void add_states(state *s, int count, const loaded_partial *all)
{
    const val none = immf(0); // an infinity times 0 would be NaN
    val larger = s->top, factor[FLIGHT_MAX];
    for (int j = 0; j < count; j++)
        larger = max(larger, all[j].top);
    const val mine = exp2_ftz(sub(s->top, larger));
    assign(s->sum, mul(s->sum, mine));
    for (int j = 0; j < count; j++) {
        factor[j] = exp2_ftz(sub(all[j].top, larger));
        assign(s->sum, fma(select(all[j].exists, all[j].sum, none), factor[j], s->sum));
    }
    for (int q = 0; q < s->count; q++)
        for (int i = 0; i < QUAD; i++) {
            assign(s->o[q][i], mul(s->o[q][i], mine));
            for (int j = 0; j < count; j++)
                assign(s->o[q][i], fma(select(all[j].exists, at(all[j].rO[q], i), none), factor[j], s->o[q][i]));
        }
    assign(s->top, larger);
}

/* Quads of a row of this CTA's tile: every `apart`-th from the first one on. */
typedef struct row_quads {
    val row;      // of the tile
    val in_group; // of the group
    val first, exists;
    int apart;
} row_quads;

/* The quads of thread `item`, where `threads` threads share a row. */
static row_quads row_quads_of(const decode_sums *m, val item, int threads)
{
    row_quads x = { .row = div(item, imm(threads)), .first = rem(item, imm(threads)), .apart = threads };
    x.in_group = add(x.row, mul(m->place->tile, imm(m->place->rows)));
    x.exists = lt(x.in_group, imm(m->place->rows_all));
    return x;
}

/* Quad number q of them. (QUAD) */
static tensor quad_of(const row_quads *x, tensor row, int q)
{
    return local_tile(row, leaf(QUAD), coord(add(x->first, imm(q * x->apart))));
}

static state sum_of_warps(const decode_sums *m, const row_quads *x)
{
    state s = no_state(1);
    loaded_partial all[PARTIALS_MAX];
    for (int i = 0; i < m->partials; i++) {
        all[i] = (loaded_partial){
            at(m->sTop, x->row, i), at(m->sSum, x->row, i), { fragment(F32, compact(leaf(QUAD))) }, yes()
        };
        copy(quad_of(x, slice(m->sO, x->row, _, i), 0), all[i].rO[0], 16);
    }
    add_states(&s, m->partials, all);
    return s;
}

/* The number of this sequence, head and tile, whose rows the CTAs of all splits share. */
static val shared_rows(const decode_sums *m)
{
    return add(mul(add(mul(m->place->batch, m->place->p.kv_heads), m->place->kv_head), imm(m->place->tiles)),
               m->place->tile);
}

static val groups_of(val splits)
{
    return div(add(splits, imm(GROUP - 1)), imm(GROUP));
}

/* The workspace of split `number` of these rows: `count` numbers for each. (COUNT,BM) */
static tensor partials_at(const decode_sums *m, val pointer, int count, val number)
{
    const val slots = add(m->place->p.splits, groups_of(m->place->p.splits));
    val at = add(mul(convert(I64, shared_rows(m)), convert(I64, slots)), convert(I64, number));
    const int rows = m->place->rows;
    layout all = make_layout(shape(count, rows, slots), stride(1, count, count * rows));
    return slice(gmem_tensor(pointer, F32, all), _, _, at);
}

decode_partial attention_decode_partial_of(const decode_sums *m, val split)
{
    return (decode_partial){ partials_at(m, m->place->p.states, 2, split),
                             partials_at(m, m->place->p.parts, m->place->form.dv, split) };
}

/* The partials of consecutive splits or groups. */
typedef struct partial_range {
    val first, count;
} partial_range;

/* Loads partial i of a range, or the last one where there are fewer. */
static loaded_partial load_partial(const decode_sums *m, const row_quads *x, int count, const partial_range *range,
                                   val i)
{
    const decode_partial partial = attention_decode_partial_of(m, add(range->first, min(i, sub(range->count, imm(1)))));
    loaded_partial l = { .top = at(partial.states, 0, x->row),
                         .sum = at(partial.states, 1, x->row),
                         .exists = lt(i, range->count) };
    for (int q = 0; q < count; q++) {
        l.rO[q] = fragment(F32, compact(leaf(QUAD)));
        copy(quad_of(x, slice(partial.values, _, x->row), q), l.rO[q], 16);
    }
    return l;
}

/* Adds the partials of a range in order; m->flight loads are in flight at a time. */
static void add_partials(const decode_sums *m, const partial_range *range, const row_quads *x, state *sums)
{
    const int together = m->flight / sums->count;
    LOOP_FROM(i, imm_as(U32, 0), range->count, imm(together)) {
        loaded_partial all[FLIGHT_MAX];
        for (int j = 0; j < together; j++)
            all[j] = load_partial(m, x, sums->count, range, add(i, imm(j)));
        add_states(sums, together, all);
    }
}

static void store_partial(const decode_sums *m, const row_quads *x, const state *s, val slot)
{
    const decode_partial partial = attention_decode_partial_of(m, slot);
    for (int q = 0; q < s->count; q++) {
        tensor rO = fragment(F32, compact(leaf(QUAD)));
        for (int i = 0; i < QUAD; i++)
            set(rO, i, s->o[q][i]);
        copy(rO, quad_of(x, slice(partial.values, _, x->row), q), 16);
    }
    IF(eq(x->first, imm(0))) {
        set(partial.states, coord(0, x->row), s->top);
        set(partial.states, coord(1, x->row), s->sum);
    }
}

/* Stores the result, with the head's sink, which is one more weight. */
static void store(const decode_sums *m, const row_quads *x, state *s)
{
    val head = add(mul(m->place->kv_head, imm(m->place->form.group)), rem(x->in_group, imm(m->place->form.group)));
    val heads = mul(m->place->p.kv_heads, imm(m->place->form.group));
    if (m->place->form.sinks) {
        tensor gSinks = gmem_tensor(m->place->p.sinks, F32, make_layout(dynamic(heads), leaf(1))); // (HEADS)
        loaded_partial sink = { .top = mul(at(gSinks, head), immf(M_LOG2E)), .sum = immf(1), .exists = yes() };
        for (int q = 0; q < s->count; q++) {
            sink.rO[q] = fragment(F32, compact(leaf(QUAD)));
            fill(sink.rO[q], immf(0));
        }
        add_states(s, 1, &sink);
    }
    val inverse = select(eq(s->sum, immf(0)), immf(0), rcp(s->sum));
    if (m->place->form.cache == CKL_E4M3)
        inverse = mul(inverse, m->value_scale);
    for (int q = 0; q < s->count; q++) {
        tensor rO = fragment(m->place->form.dtype, compact(leaf(QUAD)));
        for (int i = 0; i < QUAD; i++)
            set(rO, i, convert(m->place->form.dtype, mul(s->o[q][i], inverse)));
        copy(rO, quad_of(x, attention_decode_row_of(m->place, ATTENTION_O, x->in_group), q), 8);
    }
    if (m->place->form.lse) {
        tensor gLse = gmem_tensor(
            m->place->p.lse, F32,
            make_layout(shape(m->place->form.tokens, heads, m->place->p.batch),
                        stride(1, m->place->form.tokens, mul(convert(I64, heads), imm64(m->place->form.tokens)))));
        val logarithm = fma(s->top, immf(M_LN2), log_f32(s->sum));
        IF(eq(x->first, imm(0)))
            set(gLse, coord(div(x->in_group, imm(m->place->form.group)), head, m->place->batch),
                select(eq(s->sum, immf(0)), immf(-INFINITY), logarithm));
    }
}

/* Are these `own` the last of `count` partials that counter `number` of these rows counts? It is left at 0. */
static val is_last(const decode_sums *m, val number, val own, val count)
{
    val index = add(mul(shared_rows(m), add(groups_of(m->place->p.splits), imm(1))), number);
    val counter = add(m->place->p.counters, mul(convert(U64, index), imm_as(U64, 4)));
    tensor sLast = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    named_sync(imm(m->barrier), m->threads);                      // all partials are stored
    IF(eq(thread(), imm(0))) {
        val before = atomic_add_acq_rel(counter, convert(I32, own));
        val last = eq(before, convert(I32, sub(count, own)));
        IF(last)
            store_relaxed(I32, counter, imm(0));
        set(sLast, 0, select(last, imm(1), imm(0)));
    }
    named_sync(imm(m->barrier), m->threads); // the answer is there
    return ne(at(sLast, 0), imm(0));
}

/* The most rows that a tile may have; quads of each. */
static int rows_of(const decode_sums *m)
{
    return m->place->rows_all < m->place->rows ? m->place->rows_all : m->place->rows;
}

static int across(const decode_sums *m)
{
    return m->place->form.dv / QUAD;
}

/* Calls finish() for the quads of rows that are this thread's, one by one. */
static void for_row_quads(const decode_sums *m, void (*finish)(const decode_sums *m, const row_quads *x))
{
    LOOP_FROM(item, thread(), imm(rows_of(m) * across(m)), imm(m->threads)) {
        row_quads x = row_quads_of(m, item, across(m));
        IF(x.exists)
            finish(m, &x);
    }
}

static void finish_whole(const decode_sums *m, const row_quads *x)
{
    state s = sum_of_warps(m, x);
    store(m, x, &s);
}

static void finish_split(const decode_sums *m, const row_quads *x)
{
    state s = sum_of_warps(m, x);
    store_partial(m, x, &s, m->split);
}

/* What this CTA adds next: the splits of a group, or all groups. Variables, but for `group`. */
typedef struct step_up {
    val group;           // this CTA's
    partial_range range; // what is added
    val counter, own;    // shared by those who add; what this CTA has put there
    val is_all;          // nonzero: the sum is the result
} step_up;

/* A thread takes several quads of a row at a time, where there are enough for all threads. */
static void add_range(const decode_sums *m, const step_up *up)
{
    int count = QUADS;
    while (count > 1 && (across(m) % count || rows_of(m) * across(m) < m->threads * count))
        count /= 2;
    LOOP_FROM(item, thread(), imm(rows_of(m) * across(m) / count), imm(m->threads)) {
        row_quads x = row_quads_of(m, item, across(m) / count);
        IF(x.exists) {
            state sums = no_state(count);
            add_partials(m, &up->range, &x, &sums);
            IF(ne(up->is_all, imm(0))) {
                store(m, &x, &sums);
            }
            ELSE
            {
                store_partial(m, &x, &sums, add(m->place->p.splits, up->group));
            }
        }
    }
}

void attention_decode_add_up(const decode_sums *m)
{
    const val splits = m->place->splits, groups = groups_of(splits), is_one = eq(groups, imm(1)), zero = imm_as(U32, 0);
    step_up up = { .group = div(m->place->split, imm(GROUP)) };
    const val first = mul(up.group, imm(GROUP));
    up.own = variable(U32, m->place->run == 1 ? imm_as(U32, 1) : attention_decode_own_splits(m->place));
    up.counter = variable(U32, select(is_one, zero, add(up.group, imm(1))));
    up.is_all = variable(U32, select(is_one, imm_as(U32, 1), zero));
    up.range = (partial_range){ variable(U32, first), variable(U32, min(sub(splits, first), imm(GROUP))) };
    FOREVER {
        BREAK_IF(logical_not(is_last(m, up.counter, up.own, up.range.count)));
        add_range(m, &up);
        BREAK_IF(ne(up.is_all, imm(0)));
        assign(up.counter, zero);
        assign(up.own, imm(1));
        assign(up.is_all, imm(1));
        assign(up.range.first, m->place->p.splits);
        assign(up.range.count, groups);
    }
}

void attention_decode_finish_split(const decode_sums *m)
{
    IF(eq(m->place->splits, imm(1)))
        for_row_quads(m, finish_whole);
    ELSE for_row_quads(m, finish_split);
}
