/*
 * attention_decode_merge.c - the end of attention_decode's kernels: adds the partials of a CTA's warps, then of the
 * CTAs that share a sequence and head. Splits are added as the leaves of a binary tree, which a CTA of several begins
 * with; first groups of splits, then the groups' sums, so that no CTA adds many.
 */
#include <float.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "operators/attention/attention_decode_place.h"

enum {
    QUAD = 4,  // columns of O that a thread takes at a time
    QUADS = 4, // of these that it adds at a time
    GROUP = ATTENTION_DECODE_GROUP,
    PARTIALS_MAX = 16,
    LEVELS = 4, // of sums of 1, 2, 4 ... splits
};

/* A maximum and a sum of a row, with columns of O that count 2^maximum: `count` quads of them. */
typedef struct state {
    int count;
    val top, sum, o[QUADS][QUAD];
} state;

/* Of no keys. Variables. */
static state no_state(int count)
{
    state s = { .count = count, .top = variable(F32, immf(-INFINITY)), .sum = variable(F32, immf(0)) };
    for (int q = 0; q < count; q++)
        for (int i = 0; i < QUAD; i++)
            s.o[q][i] = variable(F32, immf(0));
    return s;
}

static void assign_state(state *to, const state *from)
{
    assign(to->top, from->top);
    assign(to->sum, from->sum);
    for (int q = 0; q < to->count; q++)
        for (int i = 0; i < QUAD; i++)
            assign(to->o[q][i], from->o[q][i]);
}

static state merged(const state *a, const state *b)
{
    state s = { .count = a->count, .top = max(a->top, b->top) };
    const val of_a = exp2_ftz(sub(a->top, s.top)), of_b = exp2_ftz(sub(b->top, s.top));
    s.sum = fma(b->sum, of_b, mul(a->sum, of_a));
    for (int q = 0; q < s.count; q++)
        for (int i = 0; i < QUAD; i++)
            s.o[q][i] = fma(b->o[q][i], of_b, mul(a->o[q][i], of_a));
    return s;
}

/* The sum of neighbours, then of neighbouring sums, and so on. */
static state sum_of(state *all, int count)
{
    for (int apart = 1; apart < count; apart *= 2)
        for (int i = 0; i + apart < count; i += 2 * apart)
            all[i] = merged(&all[i], &all[i + apart]);
    return all[0];
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

static state sum_of_warps(const decode_sums *m, const row_quads *x, int count)
{
    state all[PARTIALS_MAX];
    for (int i = 0; i < m->partials; i++) {
        all[i] = (state){ .count = count, .top = at(m->sTop, x->row, i), .sum = at(m->sSum, x->row, i) };
        for (int q = 0; q < count; q++) {
            tensor rO = fragment(F32, compact(leaf(QUAD)));
            copy(quad_of(x, slice(m->sO, x->row, _, i), q), rO, 16);
            for (int j = 0; j < QUAD; j++)
                all[i].o[q][j] = at(rO, j);
        }
    }
    return sum_of(all, m->partials);
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

/* The partials of runs of splits, or of groups: the numbers of the first and from one to the next. */
typedef struct partial_range {
    val first, count, apart;
} partial_range;

/* A row of a partial: its maximum and sum, and its columns. In a cluster CTAs leave theirs where their warps' were. */
typedef struct partial_row {
    val state;
    tensor columns; // (DV)
} partial_row;

static partial_row partial_row_of(const decode_sums *m, val row, val number)
{
    if (m->place->cluster > 1)
        return (partial_row){ tensor_address(m->sState, coord(0, row)), slice(m->sO, row, _, 0) };
    const decode_partial partial = attention_decode_partial_of(m, number);
    return (partial_row){ tensor_address(partial.states, coord(0, row)), slice(partial.values, _, row) };
}

/* From the workspace, or from CTA `rank` of a cluster. */
static void load_words(const decode_sums *m, val address, val rank, int count, val *words)
{
    const bool of_peer = m->place->cluster > 1;
    for (int i = 0; i < count; i++)
        words[i] = unwritten(F32);
    load_at(of_peer ? IR_SHARED_CLUSTER : IR_GLOBAL, IR_CACHE_DEFAULT, F32, count,
            of_peer ? mapa(address, rank) : address, 0, words);
}

/* Loads partial i of a range; of no keys where there are fewer, of which an infinity times 0 would be NaN. */
static state load_partial(const decode_sums *m, const row_quads *x, int count, const partial_range *range, val i)
{
    const val exists = lt(i, range->count), number = min(i, sub(range->count, imm(1))), none = immf(0);
    const partial_row from = partial_row_of(m, x->row, add(range->first, mul(number, range->apart)));
    val of_row[2];
    load_words(m, from.state, number, 2, of_row);
    state s = { .count = count,
                .top = select(exists, of_row[0], immf(-FLT_MAX)),
                .sum = select(exists, of_row[1], none) };
    for (int q = 0; q < count; q++) {
        load_words(m, tensor_address(quad_of(x, from.columns, q), coord(0)), number, QUAD, s.o[q]);
        for (int j = 0; j < QUAD; j++)
            s.o[q][j] = select(exists, s.o[q][j], none);
    }
    return s;
}

/* The sum of `leaves` partials from number `first` on, of which m->flight loads are in flight at a time. Variables. */
static state sum_of_leaves(const decode_sums *m, const row_quads *x, int count, const partial_range *range, val first,
                           int leaves)
{
    state sums = no_state(count), all[GROUP];
    if (leaves * count > m->flight) {
        const val half = add(first, imm(leaves / 2));
        sums = sum_of_leaves(m, x, count, range, first, leaves / 2);
        IF(lt(half, range->count)) {
            all[0] = sum_of_leaves(m, x, count, range, half, leaves / 2);
            all[0] = merged(&sums, &all[0]);
            assign_state(&sums, &all[0]);
        }
        return sums;
    }
    for (int j = 0; j < leaves; j++)
        all[j] = load_partial(m, x, count, range, add(first, imm(j)));
    const state whole = sum_of(all, leaves);
    assign_state(&sums, &whole);
    return sums;
}

/* Adds the partials of a range. */
static void add_partials(const decode_sums *m, const partial_range *range, const row_quads *x, state *sums)
{
    const int leaves = m->place->cluster > 1 ? m->place->cluster : GROUP;
    LOOP_FROM(i, imm_as(U32, 0), range->count, imm(leaves)) {
        state group = sum_of_leaves(m, x, sums->count, range, i, leaves);
        group = merged(sums, &group);
        assign_state(sums, &group);
    }
}

/* Leaves a partial; in a cluster only this thread needed the columns that were there. */
static void store_partial(const decode_sums *m, const row_quads *x, const state *s, val number)
{
    const partial_row to = partial_row_of(m, x->row, number);
    for (int q = 0; q < s->count; q++) {
        tensor rO = fragment(F32, compact(leaf(QUAD)));
        for (int i = 0; i < QUAD; i++)
            set(rO, i, s->o[q][i]);
        copy(rO, quad_of(x, to.columns, q), 16);
    }
    IF(eq(x->first, imm(0)))
        store_at(m->place->cluster > 1 ? IR_SHARED : IR_GLOBAL, IR_CACHE_DEFAULT, F32, 2, to.state, 0,
                 ((const val[]){ s->top, s->sum }));
}

void attention_decode_store_logarithm(const decode_place *place, val row, val top, val sum)
{
    const attention_decode_form *form = &place->form;
    const attention_decode_values *p = &place->p;
    const val group = imm(form->group), heads = mul(p->kv_heads, group);
    layout all = make_layout(shape(form->tokens, heads, p->batch),
                             stride(1, form->tokens, mul(convert(I64, heads), imm64(form->tokens))));
    tensor gLse = gmem_tensor(p->lse, F32, all); // (TOKENS,HEADS,BATCH)
    const val logarithm = attention_logarithm(top, sum);
    set(gLse, coord(div(row, group), add(mul(place->kv_head, group), rem(row, group)), place->batch), logarithm);
}

/*
 * Stores the result, with the head's sink, which is one more weight. Zeros are positive: which sign a sum of zeros has
 * depends on how many of no keys are among them.
 */
static void store(const decode_sums *m, const row_quads *x, const state *sum)
{
    const attention_decode_form *form = &m->place->form;
    row_end e = attention_row_end(sum->top, sum->sum, attention_decode_sink_of(m->place, x->in_group));
    if (form->cache == CKL_E4M3)
        e.factor = mul(e.factor, m->value_scale);
    for (int q = 0; q < sum->count; q++) {
        tensor rO = fragment(form->dtype, compact(leaf(QUAD)));
        for (int i = 0; i < QUAD; i++)
            set(rO, i, convert(form->dtype, fma(sum->o[q][i], e.factor, immf(0))));
        copy(rO, quad_of(x, attention_decode_row_of(m->place, ATTENTION_O, x->in_group), q), 8);
    }
    if (form->lse)
        IF(eq(x->first, imm(0)))
            attention_decode_store_logarithm(m->place, x->in_group, e.top, e.sum);
}

val attention_decode_counter(const decode_sums *m, val of_rows, val number)
{
    const val index = add(mul(shared_rows(m), of_rows), number);
    return add(m->place->p.counters, mul(convert(U64, index), imm_as(U64, 4)));
}

/* Is this the last of `count` partials that counter `number` of these rows counts? It is left at 0. */
static val is_last(const decode_sums *m, val number, val count)
{
    const val counter = attention_decode_counter(m, add(groups_of(m->place->p.splits), imm(1)), number);
    tensor sLast = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    named_sync(imm(m->barrier), m->threads);                      // all partials are stored
    IF(eq(thread(), imm(0))) {
        val before = atomic_add_acq_rel(counter, imm_as(I32, 1));
        val last = eq(before, convert(I32, sub(count, imm(1))));
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

/* Stores the result, if the sum is it, else partial `number`. */
static void store_either(const decode_sums *m, const row_quads *x, const state *s, val is_all, val number)
{
    IF(is_all) {
        store(m, x, s);
    }
    ELSE
    {
        store_partial(m, x, s, number);
    }
}

/* Stores what this CTA knows of a row: the result, where it has all splits. */
static void leave(const decode_sums *m, const row_quads *x, const state *s)
{
    if (m->place->whole)
        store(m, x, s);
    else
        store_either(m, x, s, le(m->place->splits, imm(m->place->run)), m->place->split);
}

/* What this CTA adds next: all splits, the splits of a group, or all groups. Variables, but for `group`. */
typedef struct step_up {
    val group;           // this CTA's
    partial_range range; // what is added
    val counter;         // shared by those who add
    val is_all;          // nonzero: the sum is the result
} step_up;

/* Quads of a row that a thread takes at a time, where there are enough for all threads. */
static int quads_at_a_time(const decode_sums *m, int threads)
{
    int count = QUADS;
    while (count > 1 && (across(m) % count || rows_of(m) * across(m) < threads * count))
        count /= 2;
    return count;
}

/* By threads `first`, first + threads, and so on; in a cluster all sums are results. */
static void add_range(const decode_sums *m, const step_up *up, val first, int threads)
{
    const int count = quads_at_a_time(m, threads);
    LOOP_FROM(item, first, imm(rows_of(m) * across(m) / count), imm(threads)) {
        row_quads x = row_quads_of(m, item, across(m) / count);
        IF(x.exists) {
            state sums = no_state(count);
            add_partials(m, &up->range, &x, &sums);
            if (m->place->cluster > 1)
                store(m, &x, &sums);
            else
                store_either(m, &x, &sums, ne(up->is_all, imm(0)), add(m->place->p.splits, up->group));
        }
    }
}

/*
 * Splits whose sums one CTA adds: those of 16 CTAs, or, where a thread has few columns, of 32, as another round of
 * loads ends sooner than another CTA.
 */
static val at_once(const decode_sums *m)
{
    const bool few = rows_of(m) * across(m) <= 2 * m->threads;
    return imm_as(U32, (uint32_t)(m->place->run * (few ? 2 * GROUP : GROUP)));
}

void attention_decode_add_up(const decode_sums *m)
{
    const val splits = m->place->splits, is_one = le(splits, at_once(m)), zero = imm_as(U32, 0);
    const val run = imm_as(U32, (uint32_t)m->place->run);
    step_up up = { .group = div(m->place->split, imm(GROUP)) };
    const val first = select(is_one, zero, mul(up.group, imm(GROUP))),
              here = select(is_one, splits, min(sub(splits, first), imm(GROUP)));
    up.counter = variable(U32, select(is_one, zero, add(up.group, imm(1))));
    up.is_all = variable(U32, select(is_one, imm_as(U32, 1), zero));
    up.range = (partial_range){ variable(U32, first), variable(U32, div(add(here, imm(m->place->run - 1)), run)),
                                variable(U32, run) };
    FOREVER {
        BREAK_IF(logical_not(is_last(m, up.counter, up.range.count)));
        add_range(m, &up, thread(), m->threads);
        BREAK_IF(ne(up.is_all, imm(0)));
        assign(up.counter, zero);
        assign(up.is_all, imm(1));
        assign(up.range.first, m->place->p.splits);
        assign(up.range.count, groups_of(splits));
        assign(up.range.apart, imm_as(U32, 1));
    }
}

void attention_decode_add_up_cluster(const decode_sums *m)
{
    const int run = m->place->run;
    const step_up up = { .range = { .first = imm_as(U32, 0),
                                    .count = div(add(m->place->splits, imm(run - 1)), imm(run)),
                                    .apart = imm_as(U32, 1) } };
    const val first = add(thread(), mul(cluster_rank(), imm(m->threads)));
    cluster_sync(); // all partials are there
    IF(gt(m->place->splits, imm(run)))
        add_range(m, &up, first, m->threads * m->place->cluster);
    cluster_sync(); // until then peers read them
}

void attention_decode_finish_split(const decode_sums *m)
{
    LOOP_FROM(item, thread(), imm(rows_of(m) * across(m)), imm(m->threads)) {
        row_quads x = row_quads_of(m, item, across(m));
        IF(x.exists) {
            state s = sum_of_warps(m, &x, 1);
            leave(m, &x, &s);
        }
    }
}

/*
 * Adds the sum of split `number` of a run: held[i] has the sum of 2^i splits that are neighbours, until the next 2^i
 * have been added, too. So it is part of the sum of all splits, whose bits do not depend on how many of them a CTA
 * adds. The sum of a whole run is the last one, and takes the first one's place.
 */
static void hold(state *held, int level, int levels, const state *sum, val number)
{
    if (level == levels) {
        assign_state(&held[0], sum);
        return;
    }
    IF(eq(bit_and(number, imm(1 << level)), imm(0))) {
        assign_state(&held[level], sum);
    }
    ELSE
    {
        const state both = merged(&held[level], sum);
        hold(held, level + 1, levels, &both, number);
    }
}

/* The sum of `number` splits. */
static state sum_of_held(state *held, int levels, val number)
{
    state all = no_state(held[0].count);
    for (int level = 0; level <= levels; level++)
        IF(ne(bit_and(number, imm(1 << level)), imm(0))) {
            const state both = merged(&held[level % levels], &all);
            assign_state(&all, &both);
        }
    return all;
}

int attention_decode_quads(const attention_decode_form *form, int rows, int threads)
{
    const int all = form->tokens * form->group, across = form->dv / QUAD;
    for (int quads = 1; quads <= QUADS; quads *= 2)
        if (across % quads == 0 && (all < rows ? all : rows) * across <= threads * quads)
            return quads;
    return 0;
}

void attention_decode_sum_run(const decode_sums *m, void (*attend)(void *of, val number), void *of)
{
    const int count = attention_decode_quads(&m->place->form, m->place->rows, m->threads);
    const int levels = log2_i64(m->place->run), items = rows_of(m) * across(m) / count;
    const val own = min(sub(m->place->splits, m->place->split), imm(m->place->run)); // `run`, or those that are left
    row_quads x = row_quads_of(m, min(thread(), imm(items - 1)), across(m) / count);
    state held[LEVELS];
    for (int i = 0; i < levels; i++)
        held[i] = no_state(count);
    LOOP(number, own) {
        attend(of, number);
        const state sum = sum_of_warps(m, &x, count);
        hold(held, 0, levels, &sum, number);
    }
    state all = sum_of_held(held, levels, own);
    if (m->place->cluster > 1)
        named_sync(imm(m->barrier), m->threads); // threads without columns of their own read those of the last one
    IF(logical_and(x.exists, lt(thread(), imm(items))))
        leave(m, &x, &all);
}
