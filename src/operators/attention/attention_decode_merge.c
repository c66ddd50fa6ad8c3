/*
 * attention_decode_merge.c - the end of attention_decode's sm80: maxima, sums and values of warps, then of the CTAs that share a
 * sequence and head, in the order of the keys.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_sm80.h"

enum {
    LANES = 32,
    QUAD = 4,   // columns of O that a thread takes at a time
    FLIGHT = 4, // splits whose values a thread loads at a time
};

tensor attention_decode_row_of(const decode_kernel *k, int which, val row)
{
    val head = add(mul(k->kv_head, imm(k->form.group)), rem(row, imm(k->form.group)));
    val token = div(row, imm(k->form.group));
    int d = which == ATTENTION_Q ? k->form.d : k->form.dv;
    layout all = make_layout(shape(k->p.batch, k->p.kv_heads, k->form.tokens, d),
                             stride(k->p.ld_batch[which], k->p.ld_head[which], k->p.ld[which], 1));
    return slice(gmem_tensor(k->p.x[which], k->form.dtype, all), k->batch, head, token, _);
}

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

/* (BM,DV,WARPS), its columns as out has them: of narrow values the even ones of 16 columns come before the odd ones. */
static tensor in_order_of_atoms(const decode_kernel *k)
{
    if (k->packed == 1)
        return k->sO;
    const int width = attention_decode_width(k), pitch = width + DECODE_PAD;
    int_tuple sizes = shape(k->cfg->rows, shape(8, 2, width / 16), k->cfg->warps);
    return tensor_with_layout(k->sO, make_layout(sizes, stride(pitch, stride(2, 1, 16), k->cfg->rows * pitch)));
}

/* What the warps have, where all can read it: all are done with their rings then. */
static void share_states(decode_kernel *k)
{
    tensor cS = partition_C(&k->mma, identity_tensor(shape(k->cfg->rows, k->cfg->keys)), lane());
    tiled_copy each = make_tiled_copy_C(k->packed == 1 ? "UniversalCopy<64>" : "UniversalCopy<32>", F32, &k->mma,
                                        k->cfg->rows, attention_decode_width(k));
    attention_online_rows_finish(&k->online, NULL);
    cta_sync();
    copy_tiled(&each, k->out, partition_D(&each, slice(in_order_of_atoms(k), _, _, warp()), lane()));
    for (int i = 0; i < k->online.count; i++) {
        val row = coordinate(cS, 0, attention_online_row_value(k->scores, i));
        IF(eq(rem(lane(), imm(4)), imm(0))) {
            set(k->sTop, coord(row, warp()), k->online.max[i]);
            set(k->sSum, coord(row, warp()), k->online.sum[i]);
        }
    }
    cta_sync();
}

/* Four columns of a row of this CTA's tile. */
typedef struct piece {
    val row;          // of the tile
    val in_group;     // of the group
    val quad, exists; // the columns' number
} piece;

static piece piece_of(const decode_kernel *k, val item)
{
    int quads = k->form.dv / QUAD;
    piece x = { .row = div(item, imm(quads)), .quad = rem(item, imm(quads)) };
    x.in_group = add(x.row, mul(k->tile, imm(k->cfg->rows)));
    x.exists = lt(x.in_group, imm(k->rows_all));
    return x;
}

static state of_warps(const decode_kernel *k, const piece *x)
{
    state s = no_state();
    for (int w = 0; w < k->cfg->warps; w++) {
        tensor rO = fragment(F32, compact(leaf(QUAD)));
        copy(local_tile(slice(k->sO, x->row, _, w), leaf(QUAD), coord(x->quad)), rO, 16);
        add_state(&s, at(k->sTop, x->row, w), at(k->sSum, x->row, w), rO);
    }
    return s;
}

/* The number of this sequence, head and tile: of the rows that the CTAs of all splits share. */
static val shared_rows(const decode_kernel *k)
{
    return add(mul(add(mul(k->batch, k->p.kv_heads), k->kv_head), imm(k->tiles)), k->tile);
}

/* What split `number` of these rows has left, `count` numbers for each of them. (COUNT,BM) */
static tensor left_by(const decode_kernel *k, val pointer, int count, val number)
{
    val at = add(mul(convert(I64, shared_rows(k)), convert(I64, k->p.splits)), convert(I64, number));
    const int rows = k->cfg->rows;
    layout all = make_layout(shape(count, rows, k->p.splits), stride(1, count, count * rows));
    return slice(gmem_tensor(pointer, F32, all), _, _, at);
}

/* Maximum and sum of each row; its columns. (2,BM), (DV,BM) */
static tensor states_at(const decode_kernel *k, val number)
{
    return left_by(k, k->p.states, 2, number);
}

static tensor values_at(const decode_kernel *k, val number)
{
    return left_by(k, k->p.parts, k->form.dv, number);
}

/* The sum of all splits, in their order, FLIGHT of them on their way at a time. */
static state of_splits(const decode_kernel *k, const piece *x)
{
    state s = no_state();
    LOOP_FROM(i, imm_as(U32, 0), k->splits, imm(FLIGHT)) {
        val top[FLIGHT], sum[FLIGHT];
        tensor rO[FLIGHT];
        for (int j = 0; j < FLIGHT; j++) {
            val number = min(add(i, imm(j)), sub(k->splits, imm(1)));
            tensor gStates = states_at(k, number);
            top[j] = at(gStates, 0, x->row);
            sum[j] = at(gStates, 1, x->row);
            rO[j] = fragment(F32, compact(leaf(QUAD)));
            copy(local_tile(slice(values_at(k, number), _, x->row), leaf(QUAD), coord(x->quad)), rO[j], 16);
        }
        for (int j = 0; j < FLIGHT; j++)
            IF(lt(add(i, imm(j)), k->splits))
                add_state(&s, top[j], sum[j], rO[j]);
    }
    return s;
}

static void keep_part(const decode_kernel *k, const piece *x, const state *s)
{
    tensor gStates = states_at(k, k->split), rO = fragment(F32, compact(leaf(QUAD)));
    for (int i = 0; i < QUAD; i++)
        set(rO, i, s->o[i]);
    copy(rO, local_tile(slice(values_at(k, k->split), _, x->row), leaf(QUAD), coord(x->quad)), 16);
    IF(eq(x->quad, imm(0))) {
        set(gStates, coord(0, x->row), s->top);
        set(gStates, coord(1, x->row), s->sum);
    }
}

/* The result: with the head's sink, which is a weight more. */
static void store(const decode_kernel *k, const piece *x, state *s)
{
    val head = add(mul(k->kv_head, imm(k->form.group)), rem(x->in_group, imm(k->form.group)));
    val heads = mul(k->p.kv_heads, imm(k->form.group));
    if (k->form.sinks) {
        tensor gSinks = gmem_tensor(k->p.sinks, F32, make_layout(dynamic(heads), leaf(1))); // (HEADS)
        tensor rO = fragment(F32, compact(leaf(QUAD)));
        fill(rO, immf(0));
        add_state(s, mul(at(gSinks, head), immf(M_LOG2E)), immf(1), rO);
    }
    val inverse = select(eq(s->sum, immf(0)), immf(0), rcp(s->sum));
    inverse = k->packed == 1 ? inverse : mul(inverse, k->value_scale);
    tensor rO = fragment(k->form.dtype, compact(leaf(QUAD)));
    for (int i = 0; i < QUAD; i++)
        set(rO, i, convert(k->form.dtype, mul(s->o[i], inverse)));
    copy(rO, local_tile(attention_decode_row_of(k, ATTENTION_O, x->in_group), leaf(QUAD), coord(x->quad)), 8);
    if (k->form.lse) {
        tensor gLse =
            gmem_tensor(k->p.lse, F32,
                        make_layout(shape(k->form.tokens, heads, k->p.batch),
                                    stride(1, k->form.tokens, mul(convert(I64, heads), imm64(k->form.tokens)))));
        val logarithm = fma(s->top, immf(M_LN2), log_f32(s->sum));
        IF(eq(x->quad, imm(0)))
            set(gLse, coord(div(x->in_group, imm(k->form.group)), head, k->batch),
                select(eq(s->sum, immf(0)), immf(-INFINITY), logarithm));
    }
}

/* Does this CTA come last of those that share its rows? It leaves the counter at 0. */
static val is_last(const decode_kernel *k)
{
    val counter = add(k->p.counters, convert(U64, mul(shared_rows(k), imm(4))));
    tensor sLast = smem_tensor("last", I32, compact(leaf(1)), 4); // (1)
    cta_sync();                                                   // all parts are stored
    IF(eq(thread(), imm(0))) {
        val before = atomic_add_acq_rel(counter, imm(1));
        val last = eq(before, sub(convert(I32, k->splits), imm(1)));
        IF(last)
            store_relaxed(I32, counter, imm(0));
        set(sLast, 0, select(last, imm(1), imm(0)));
    }
    cta_sync(); // the answer is there
    return ne(at(sLast, 0), imm(0));
}

/* Calls finish() for each piece of this thread. */
static void for_pieces(const decode_kernel *k, void (*finish)(const decode_kernel *k, const piece *x))
{
    int rows = k->rows_all < k->cfg->rows ? k->rows_all : k->cfg->rows, pieces = rows * k->form.dv / QUAD;
    LOOP_FROM(item, thread(), imm(pieces), imm(LANES * k->cfg->warps)) {
        piece x = piece_of(k, item);
        IF(x.exists)
            finish(k, &x);
    }
}

static void finish_alone(const decode_kernel *k, const piece *x)
{
    state s = of_warps(k, x);
    store(k, x, &s);
}

static void finish_part(const decode_kernel *k, const piece *x)
{
    state s = of_warps(k, x);
    keep_part(k, x, &s);
}

static void finish_last(const decode_kernel *k, const piece *x)
{
    state s = of_splits(k, x);
    store(k, x, &s);
}

void attention_decode_finish(decode_kernel *k)
{
    share_states(k);
    IF(eq(k->splits, imm(1)))
        for_pieces(k, finish_alone);
    ELSE
    {
        for_pieces(k, finish_part);
        IF(is_last(k))
            for_pieces(k, finish_last);
    }
}
