/*
 * attention_decode_merge.c - the end of attention_decode's kernels: maxima, sums and values of a CTA's parts, then of the CTAs that
 * share a sequence and head, in the order of the keys: groups of splits, then these, so that no CTA has many to add up.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_place.h"

enum {
    QUAD = 4,    // columns of O that a thread takes at a time
    QUADS = 4,   // of these that it adds up at a time
    FLIGHT = 16, // of these that it loads at a time, of several splits
    GROUP = ATTENTION_DECODE_GROUP,
    PARTS_MAX = 16,
};

/* A maximum and a sum, with columns of O that count 2^maximum. */
typedef struct state {
    val top, sum, o[QUAD];
} state;

static state no_state(void)
{
    state s = { .top = variable(F32, immf(-INFINITY)), .sum = variable(F32, immf(0)) };
    for (int i = 0; i < QUAD; i++)
        s.o[i] = variable(F32, immf(0));
    return s;
}

/* What some keys have left of some columns of a row. */
typedef struct left {
    val top, sum;
    tensor rO;  // (QUAD)
    val exists; // a predicate
} left;

/* Adds `count` of them in their order, by their common maximum, so that no exponential waits for another one. */
static void add_states(state *s, int count, const left *all)
{
    val larger = s->top;
    for (int j = 0; j < count; j++)
        larger = max(larger, all[j].top);
    const val mine = exp2_ftz(sub(s->top, larger));
    assign(s->sum, mul(s->sum, mine));
    for (int i = 0; i < QUAD; i++)
        assign(s->o[i], mul(s->o[i], mine));
    for (int j = 0; j < count; j++) {
        const val factor = exp2_ftz(sub(all[j].top, larger)), none = immf(0); // an infinity times 0 would be none
        assign(s->sum, fma(select(all[j].exists, all[j].sum, none), factor, s->sum));
        for (int i = 0; i < QUAD; i++)
            assign(s->o[i], fma(select(all[j].exists, at(all[j].rO, i), none), factor, s->o[i]));
    }
    assign(s->top, larger);
}

static val tid(const decode_sums *m)
{
    return m->first ? sub(thread(), imm(m->first)) : thread();
}

/* Four columns of a row of this CTA's tile. */
typedef struct row_quad {
    val row;          // of the tile
    val in_group;     // of the group
    val quad, exists; // the columns' number
} row_quad;

static row_quad row_quad_of(const decode_sums *m, val item)
{
    int quads = m->place->form.dv / QUAD;
    row_quad x = { .row = div(item, imm(quads)), .quad = rem(item, imm(quads)) };
    x.in_group = add(x.row, mul(m->place->tile, imm(m->place->rows)));
    x.exists = lt(x.in_group, imm(m->place->rows_all));
    return x;
}

static state of_parts(const decode_sums *m, const row_quad *x)
{
    state s = no_state();
    left all[PARTS_MAX];
    for (int i = 0; i < m->parts; i++) {
        all[i] = (left){ at(m->sTop, x->row, i), at(m->sSum, x->row, i), fragment(F32, compact(leaf(QUAD))), yes() };
        copy(local_tile(slice(m->sO, x->row, _, i), leaf(QUAD), coord(x->quad)), all[i].rO, 16);
    }
    add_states(&s, m->parts, all);
    return s;
}

/* The number of this sequence, head and tile: of the rows that the CTAs of all splits share. */
static val shared_rows(const decode_sums *m)
{
    return add(mul(add(mul(m->place->batch, m->place->p.kv_heads), m->place->kv_head), imm(m->place->tiles)),
               m->place->tile);
}

static val groups_of(val splits)
{
    return div(add(splits, imm(GROUP - 1)), imm(GROUP));
}

/* What split `number` of these rows has left, `count` numbers for each of them. (COUNT,BM) */
static tensor left_by(const decode_sums *m, val pointer, int count, val number)
{
    const val slots = add(m->place->p.splits, groups_of(m->place->p.splits));
    val at = add(mul(convert(I64, shared_rows(m)), convert(I64, slots)), convert(I64, number));
    const int rows = m->place->rows;
    layout all = make_layout(shape(count, rows, slots), stride(1, count, count * rows));
    return slice(gmem_tensor(pointer, F32, all), _, _, at);
}

decode_part attention_decode_part_of(const decode_sums *m, val split)
{
    return (decode_part){ left_by(m, m->place->p.states, 2, split),
                          left_by(m, m->place->p.parts, m->place->form.dv, split) };
}

/* Parts of splits or groups that follow each other. */
typedef struct part_range {
    val first, count;
} part_range;

/* Number i of them, or the last one where there are fewer. */
static left load_left(const decode_sums *m, const row_quad *x, const part_range *range, val i)
{
    const decode_part part = attention_decode_part_of(m, add(range->first, min(i, sub(range->count, imm(1)))));
    left l = { at(part.states, 0, x->row), at(part.states, 1, x->row), fragment(F32, compact(leaf(QUAD))),
               lt(i, range->count) };
    copy(local_tile(slice(part.values, _, x->row), leaf(QUAD), coord(x->quad)), l.rO, 16);
    return l;
}

/* The sums of a range, in its order, of `count` quads; FLIGHT loads are on their way at a time. */
static void add_parts(const decode_sums *m, const part_range *range, const row_quad *x, int count, state *sums)
{
    const int together = FLIGHT / count;
    LOOP_FROM(i, imm_as(U32, 0), range->count, imm(together)) {
        left all[QUADS][FLIGHT];
        for (int j = 0; j < together; j++)
            for (int q = 0; q < count; q++)
                all[q][j] = load_left(m, &x[q], range, add(i, imm(j)));
        for (int q = 0; q < count; q++)
            add_states(&sums[q], together, all[q]);
    }
}

static void keep_part(const decode_sums *m, const row_quad *x, const state *s, val slot)
{
    const decode_part part = attention_decode_part_of(m, slot);
    tensor rO = fragment(F32, compact(leaf(QUAD)));
    for (int i = 0; i < QUAD; i++)
        set(rO, i, s->o[i]);
    copy(rO, local_tile(slice(part.values, _, x->row), leaf(QUAD), coord(x->quad)), 16);
    IF(eq(x->quad, imm(0))) {
        set(part.states, coord(0, x->row), s->top);
        set(part.states, coord(1, x->row), s->sum);
    }
}

/* The result: with the head's sink, which is a weight more. */
static void store(const decode_sums *m, const row_quad *x, state *s)
{
    val head = add(mul(m->place->kv_head, imm(m->place->form.group)), rem(x->in_group, imm(m->place->form.group)));
    val heads = mul(m->place->p.kv_heads, imm(m->place->form.group));
    if (m->place->form.sinks) {
        tensor gSinks = gmem_tensor(m->place->p.sinks, F32, make_layout(dynamic(heads), leaf(1))); // (HEADS)
        left sink = { mul(at(gSinks, head), immf(M_LOG2E)), immf(1), fragment(F32, compact(leaf(QUAD))), yes() };
        fill(sink.rO, immf(0));
        add_states(s, 1, &sink);
    }
    val inverse = select(eq(s->sum, immf(0)), immf(0), rcp(s->sum));
    if (m->place->form.cache == CKL_E4M3)
        inverse = mul(inverse, m->value_scale);
    tensor rO = fragment(m->place->form.dtype, compact(leaf(QUAD)));
    for (int i = 0; i < QUAD; i++)
        set(rO, i, convert(m->place->form.dtype, mul(s->o[i], inverse)));
    copy(rO, local_tile(attention_decode_row_of(m->place, ATTENTION_O, x->in_group), leaf(QUAD), coord(x->quad)), 8);
    if (m->place->form.lse) {
        tensor gLse = gmem_tensor(
            m->place->p.lse, F32,
            make_layout(shape(m->place->form.tokens, heads, m->place->p.batch),
                        stride(1, m->place->form.tokens, mul(convert(I64, heads), imm64(m->place->form.tokens)))));
        val logarithm = fma(s->top, immf(M_LN2), log_f32(s->sum));
        IF(eq(x->quad, imm(0)))
            set(gLse, coord(div(x->in_group, imm(m->place->form.group)), head, m->place->batch),
                select(eq(s->sum, immf(0)), immf(-INFINITY), logarithm));
    }
}

/* Does this CTA come last of `count` that share counter `number` of its rows? It leaves the counter at 0. */
static val is_last(const decode_sums *m, val number, val count)
{
    val index = add(mul(shared_rows(m), add(groups_of(m->place->p.splits), imm(1))), number);
    val counter = add(m->place->p.counters, mul(convert(U64, index), imm_as(U64, 4)));
    tensor sLast = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    named_sync(imm(m->barrier), m->threads);                      // all parts are stored
    IF(eq(tid(m), imm(0))) {
        val before = atomic_add_acq_rel(counter, imm(1));
        val last = eq(before, sub(convert(I32, count), imm(1)));
        IF(last)
            store_relaxed(I32, counter, imm(0));
        set(sLast, 0, select(last, imm(1), imm(0)));
    }
    named_sync(imm(m->barrier), m->threads); // the answer is there
    return ne(at(sLast, 0), imm(0));
}

/* Quads of all rows that there may be. */
static int quads_of(const decode_sums *m)
{
    const int all = m->place->rows_all, rows = all < m->place->rows ? all : m->place->rows;
    return rows * m->place->form.dv / QUAD;
}

/* Calls finish() for the quads of rows that are this thread's. */
static void for_row_quads(const decode_sums *m, void (*finish)(const decode_sums *m, const row_quad *x))
{
    LOOP_FROM(item, tid(m), imm(quads_of(m)), imm(m->threads)) {
        row_quad x = row_quad_of(m, item);
        IF(x.exists)
            finish(m, &x);
    }
}

static void finish_alone(const decode_sums *m, const row_quad *x)
{
    state s = of_parts(m, x);
    store(m, x, &s);
}

static void finish_part(const decode_sums *m, const row_quad *x)
{
    state s = of_parts(m, x);
    keep_part(m, x, &s, m->place->split);
}

/* How far sums have come: those of a group of splits, or of all. Variables, but for `group`. */
typedef struct step_up {
    val group;           // this CTA's
    part_range range;    // what is added
    val counter, is_all; // of those who share it; nonzero: the sum is the result
} step_up;

/* A thread takes several quads at a time, because each wants the parts in turn. */
static void add_range(const decode_sums *m, const step_up *up)
{
    const int quads = quads_of(m), all = (quads - 1) / m->threads + 1, count = all < QUADS ? all : QUADS; // q=0: 1
    val last_row =
        sub(min(sub(imm_as(U32, m->place->rows_all), mul(m->place->tile, imm(m->place->rows))), imm(m->place->rows)),
            imm(1));
    LOOP_FROM(item, tid(m), imm(quads), imm(m->threads * count)) {
        row_quad x[QUADS];
        state sums[QUADS];
        for (int q = 0; q < count; q++) {
            x[q] = row_quad_of(m, add(item, imm(q * m->threads)));
            x[q].exists = le(x[q].row, last_row);
            x[q].row = min(x[q].row, last_row); // what others would load is not there
            sums[q] = no_state();
        }
        add_parts(m, &up->range, x, count, sums);
        for (int q = 0; q < count; q++)
            IF(x[q].exists) {
                IF(ne(up->is_all, imm(0))) {
                    store(m, &x[q], &sums[q]);
                }
                ELSE
                {
                    keep_part(m, &x[q], &sums[q], add(m->place->p.splits, up->group));
                }
            }
    }
}

void attention_decode_add_up(const decode_sums *m)
{
    const val splits = m->place->splits, groups = groups_of(splits), is_one = eq(groups, imm(1)), zero = imm_as(U32, 0);
    step_up up = { .group = div(m->place->split, imm(GROUP)) };
    const val first = mul(up.group, imm(GROUP));
    up.counter = variable(U32, select(is_one, zero, add(up.group, imm(1))));
    up.is_all = variable(U32, select(is_one, imm_as(U32, 1), zero));
    up.range = (part_range){ variable(U32, first), variable(U32, min(sub(splits, first), imm(GROUP))) };
    FOREVER {
        BREAK_IF(logical_not(is_last(m, up.counter, up.range.count)));
        add_range(m, &up);
        BREAK_IF(ne(up.is_all, imm(0)));
        assign(up.counter, zero);
        assign(up.is_all, imm(1));
        assign(up.range.first, m->place->p.splits);
        assign(up.range.count, groups);
    }
}

static void release_parts(const decode_sums *m)
{
    if (m->read)
        named_arrive(imm(m->read), m->readers);
}

void attention_decode_finish(const decode_sums *m)
{
    IF(eq(m->place->splits, imm(1))) {
        for_row_quads(m, finish_alone);
        release_parts(m);
    }
    ELSE
    {
        for_row_quads(m, finish_part);
        release_parts(m);
        attention_decode_add_up(m);
    }
}
