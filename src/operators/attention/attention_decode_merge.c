/*
 * attention_decode_merge.c - the end of attention_decode's kernels: maxima, sums and values of a CTA's parts, then of the CTAs that
 * share a sequence and head, in the order of the keys.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_place.h"

enum {
    QUAD = 4,   // columns of O that a thread takes at a time
    FLIGHT = 4, // splits whose values a thread loads at a time
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

static void add_state(state *s, val top, val sum, tensor rO)
{
    val larger = max(s->top, top), mine = exp2_ftz(sub(s->top, larger)), other = exp2_ftz(sub(top, larger));
    assign(s->sum, fma(sum, other, mul(s->sum, mine)));
    for (int i = 0; i < QUAD; i++)
        assign(s->o[i], fma(at(rO, i), other, mul(s->o[i], mine)));
    assign(s->top, larger);
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
    for (int i = 0; i < m->parts; i++) {
        tensor rO = fragment(F32, compact(leaf(QUAD)));
        copy(local_tile(slice(m->sO, x->row, _, i), leaf(QUAD), coord(x->quad)), rO, 16);
        add_state(&s, at(m->sTop, x->row, i), at(m->sSum, x->row, i), rO);
    }
    return s;
}

/* The number of this sequence, head and tile: of the rows that the CTAs of all splits share. */
static val shared_rows(const decode_sums *m)
{
    return add(mul(add(mul(m->place->batch, m->place->p.kv_heads), m->place->kv_head), imm(m->place->tiles)),
               m->place->tile);
}

/* What split `number` of these rows has left, `count` numbers for each of them. (COUNT,BM) */
static tensor left_by(const decode_sums *m, val pointer, int count, val number)
{
    val at = add(mul(convert(I64, shared_rows(m)), convert(I64, m->place->p.splits)), convert(I64, number));
    const int rows = m->place->rows;
    layout all = make_layout(shape(count, rows, m->place->p.splits), stride(1, count, count * rows));
    return slice(gmem_tensor(pointer, F32, all), _, _, at);
}

/* Maximum and sum of each row; its columns. (2,BM), (DV,BM) */
static tensor states_at(const decode_sums *m, val number)
{
    return left_by(m, m->place->p.states, 2, number);
}

static tensor values_at(const decode_sums *m, val number)
{
    return left_by(m, m->place->p.parts, m->place->form.dv, number);
}

/* The sum of all splits, in their order, FLIGHT of them on their way at a time. */
static state of_splits(const decode_sums *m, const row_quad *x)
{
    state s = no_state();
    LOOP_FROM(i, imm_as(U32, 0), m->place->splits, imm(FLIGHT)) {
        val top[FLIGHT], sum[FLIGHT];
        tensor rO[FLIGHT];
        for (int j = 0; j < FLIGHT; j++) {
            val number = min(add(i, imm(j)), sub(m->place->splits, imm(1)));
            tensor gStates = states_at(m, number);
            top[j] = at(gStates, 0, x->row);
            sum[j] = at(gStates, 1, x->row);
            rO[j] = fragment(F32, compact(leaf(QUAD)));
            copy(local_tile(slice(values_at(m, number), _, x->row), leaf(QUAD), coord(x->quad)), rO[j], 16);
        }
        for (int j = 0; j < FLIGHT; j++)
            IF(lt(add(i, imm(j)), m->place->splits))
                add_state(&s, top[j], sum[j], rO[j]);
    }
    return s;
}

static void keep_part(const decode_sums *m, const row_quad *x, const state *s)
{
    tensor gStates = states_at(m, m->place->split), rO = fragment(F32, compact(leaf(QUAD)));
    for (int i = 0; i < QUAD; i++)
        set(rO, i, s->o[i]);
    copy(rO, local_tile(slice(values_at(m, m->place->split), _, x->row), leaf(QUAD), coord(x->quad)), 16);
    IF(eq(x->quad, imm(0))) {
        set(gStates, coord(0, x->row), s->top);
        set(gStates, coord(1, x->row), s->sum);
    }
}

/* The result: with the head's sink, which is a weight more. */
static void store(const decode_sums *m, const row_quad *x, state *s)
{
    val head = add(mul(m->place->kv_head, imm(m->place->form.group)), rem(x->in_group, imm(m->place->form.group)));
    val heads = mul(m->place->p.kv_heads, imm(m->place->form.group));
    if (m->place->form.sinks) {
        tensor gSinks = gmem_tensor(m->place->p.sinks, F32, make_layout(dynamic(heads), leaf(1))); // (HEADS)
        tensor rO = fragment(F32, compact(leaf(QUAD)));
        fill(rO, immf(0));
        add_state(s, mul(at(gSinks, head), immf(M_LOG2E)), immf(1), rO);
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

/* Does this CTA come last of those that share its rows? It leaves the counter at 0. */
static val is_last(const decode_sums *m)
{
    val counter = add(m->place->p.counters, convert(U64, mul(shared_rows(m), imm(4))));
    tensor sLast = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    named_sync(imm(m->barrier), m->threads);                      // all parts are stored
    IF(eq(thread(), imm(0))) {
        val before = atomic_add_acq_rel(counter, imm(1));
        val last = eq(before, sub(convert(I32, m->place->splits), imm(1)));
        IF(last)
            store_relaxed(I32, counter, imm(0));
        set(sLast, 0, select(last, imm(1), imm(0)));
    }
    named_sync(imm(m->barrier), m->threads); // the answer is there
    return ne(at(sLast, 0), imm(0));
}

/* Calls finish() for the quads of rows that are this thread's. */
static void for_row_quads(const decode_sums *m, void (*finish)(const decode_sums *m, const row_quad *x))
{
    int rows = m->place->rows_all < m->place->rows ? m->place->rows_all : m->place->rows,
        row_quads = rows * m->place->form.dv / QUAD;
    LOOP_FROM(item, thread(), imm(row_quads), imm(m->threads)) {
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
    keep_part(m, x, &s);
}

static void finish_last(const decode_sums *m, const row_quad *x)
{
    state s = of_splits(m, x);
    store(m, x, &s);
}

void attention_decode_finish(const decode_sums *m)
{
    IF(eq(m->place->splits, imm(1)))
        for_row_quads(m, finish_alone);
    ELSE
    {
        for_row_quads(m, finish_part);
        IF(is_last(m))
            for_row_quads(m, finish_last);
    }
}
