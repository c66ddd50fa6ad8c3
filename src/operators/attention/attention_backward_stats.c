/* attention_backward_stats.c - the stats of every query, and the gradients of sinks, which follow from them. */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

enum {
    STATS_THREADS = 128,
    ROUNDS_MAX = 4, // queries that a lane has
    SINK_THREADS = 512,
    SINK_FLIGHT = 4, // queries whose stats a thread loads at a time
};

/* Lanes that share a query, each with a vector of it, or with two where a warp has too few for all. */
static int lanes_of(const attention_form *form)
{
    return (int)min_i64(32, max_i64(STATS_THREADS / ATTENTION_STATS_QUERIES, power_of_two_ceil(form->dv / VECTOR)));
}

/* A row of a head whose stats some lanes make: a query, or a row past the last one. Values are u32. */
typedef struct stats_query {
    val head, token;            // the head among those of all batches, the row in it
    val batch, at, head_of_lse; // where the tensors have it: a ragged problem is one batch
    val exists;                 // has the head such a query?
    backward_block block;       // of queries that it is in, but for its number
} stats_query;

/* Row `row` of this CTA, all of whose rows are of one head: a head has a multiple of them. */
static stats_query query_of(const attention_form *form, const attention_values *p, val row)
{
    const val of_head = div(p->stats_rows, imm(ATTENTION_STATS_QUERIES)), head = div(cta_x(), of_head),
              first = mul(sub(cta_x(), mul(head, of_head)), imm(ATTENTION_STATS_QUERIES)), batch = div(head, p->heads);
    stats_query x = { .head = head, .head_of_lse = head, .batch = batch, .exists = lt(add(first, row), p->q) };
    x.block = (backward_block){ .batch = batch, .head = sub(head, mul(batch, p->heads)) };
    x.at = x.token = add(first, row);
    if (form->ragged) {
        const sequence s = attention_sequence_of(form, p, batch);
        x.exists = lt(x.token, s.q);
        x.block.q_at = s.q_at;
        x.at = add(x.token, s.q_at);
        x.batch = imm_as(U32, 0);
        x.head_of_lse = x.block.head;
    }
    return x;
}

/* This lane's part of a query in O or dO; 0 where there is none. (VECTOR,ACROSS) */
static tensor part_of(const attention_values *p, const attention_form *form, const stats_query *x, const val *pointers)
{
    const int lanes = lanes_of(form), vectors = form->dv / VECTOR;
    tensor gRow = slice(attention_tensor_of(form, p, ATTENTION_O, pointers), x->batch, x->block.head, x->at, _);
    tensor rX = fragment(form->dtype, compact(shape(VECTOR, (vectors + lanes - 1) / lanes)));
    fill(rX, imm(0));
    for (int i = 0; i * lanes < vectors; i++) {
        val vector = add(rem(thread(), imm(lanes)), imm(i * lanes));
        IF(logical_and(x->exists, lt(vector, imm(vectors))))
            copy(local_tile(gRow, leaf(VECTOR), coord(vector)), slice(rX, _, i), 16);
    }
    return rX;
}

/* The sum over the lanes of a query of dO * O. */
static val delta_of(tensor rO, tensor rDout, int lanes)
{
    val sum = immf(0);
    for (int i = 0; i < static_size(rO.layout); i++)
        sum = fma(at_f32(rO, i), at_f32(rDout, i), sum);
    for (int distance = 1; distance < lanes; distance *= 2)
        sum = add(sum, shuffle_xor(sum, imm(distance)));
    return sum;
}

/* Zeros for all keys of a query: the kernel of queries skips those that it does not see. */
static void clear_mask_gradient(const attention_values *p, const attention_form *form, const stats_query *x)
{
    tensor gRow = slice(attention_mask_gradient_of(form, p, x->head), x->token, _); // (KV)
    LOOP_FROM(key, rem(thread(), imm(lanes_of(form))), p->kv, imm(lanes_of(form)))
        set(gRow, key, convert(form->dtype, immf(0)));
}

/* For the first query of a block: no CTA has added to its sums. */
static void clear_turn(const attention_values *p, const attention_sm90_backward_config *cfg, const stats_query *x)
{
    IF(eq(rem(x->token, imm(cfg->block)), imm(0))) {
        backward_block block = x->block;
        block.block = div(x->token, imm(cfg->block));
        val number = attention_backward_block_number(p, cfg, &block);
        store_global(U32, attention_backward_turn_of(p, number), 0, imm_as(U32, 0));
    }
}

/* -lse in units of log2; -inf of a query that does not exist. */
static val offset_of(const attention_values *p, const attention_form *form, const stats_query *x)
{
    val offset = variable(F32, immf(-INFINITY));
    IF(x->exists) {
        val lse = at(attention_logarithms_of(form, p), x->at, x->head_of_lse);
        assign(offset, select(eq(lse, immf(-INFINITY)), lse, mul(lse, immf(-M_LOG2E))));
    }
    return offset;
}

static void store_stats(const attention_values *p, const attention_sm90_backward_config *cfg, const stats_query *x,
                        val offset, val delta)
{
    const attention_form *form = &cfg->form;
    if (form->dmask)
        IF(x->exists)
            clear_mask_gradient(p, form, x);
    IF(eq(rem(thread(), imm(lanes_of(form))), imm(0))) {
        tensor gStats = slice(attention_backward_all_stats(p, convert(I64, p->stats_rows)), x->token, _, x->head);
        set(gStats, 0, offset); // (STATS)
        set(gStats, 1, delta);
        if (attention_backward_sums_queries(cfg))
            IF(x->exists)
                clear_turn(p, cfg, x);
    }
}

/* All loads are under way before the first sum. */
void attention_backward_stats(const attention_sm90_backward_config *cfg)
{
    const attention_form *form = &cfg->form;
    const int lanes = lanes_of(form), at_once = STATS_THREADS / lanes, rounds = ATTENTION_STATS_QUERIES / at_once;
    launch_bounds(STATS_THREADS, 0);
    attention_values p = params_of(attention);
    grid_wait();
    launch_dependents();
    stats_query x[ROUNDS_MAX];
    val offset[ROUNDS_MAX];
    tensor rO[ROUNDS_MAX], rDout[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++) {
        x[i] = query_of(form, &p, add(div(thread(), imm(lanes)), imm(i * at_once)));
        rO[i] = part_of(&p, form, &x[i], p.x);
        rDout[i] = part_of(&p, form, &x[i], p.grad);
        offset[i] = offset_of(&p, form, &x[i]);
    }
    for (int i = 0; i < rounds; i++)
        store_stats(&p, cfg, &x[i], offset[i], delta_of(rO[i], rDout[i], lanes));
}

/* A CTA has a head. */
void attention_backward_sinks(void)
{
    launch_bounds(SINK_THREADS, 0);
    attention_values p = params_of(attention);
    grid_wait();
    launch_dependents();
    val head = cta_x(), sum = variable(F32, immf(0));
    tensor gAll = attention_backward_all_stats(&p, convert(I64, p.stats_rows)), // (ROWS,STATS,HEADS)
        gSinks = gmem_vector(p.sinks, F32, p.heads);
    val sink = mul(at(gSinks, head), immf(M_LOG2E)), batches = div(p.all_heads, p.heads);
    LOOP_FROM(batch, imm_as(U32, 0), batches, imm_as(U32, 1)) {
        tensor gStats = slice(gAll, _, _, add(mul(batch, p.heads), head)); // (ROWS,STATS)
        LOOP_FROM(first, thread(), p.stats_rows, imm(SINK_THREADS * SINK_FLIGHT)) {
            val offset[SINK_FLIGHT], delta[SINK_FLIGHT];
            for (int i = 0; i < SINK_FLIGHT; i++) { // queries past the last one have no weight
                val row = add(first, imm(i * SINK_THREADS)), there = min(row, sub(p.stats_rows, imm(1)));
                offset[i] = select(lt(row, p.stats_rows), at(gStats, there, 0), immf(-INFINITY));
                delta[i] = at(gStats, there, 1);
            }
            for (int i = 0; i < SINK_FLIGHT; i++)
                assign(sum, fma(neg(exp2_ftz(add(sink, offset[i]))), delta[i], sum));
        }
    }
    const reduction r = reduce_sums(1);
    cta_reduce(&r, SINK_THREADS, smem_alloc("sums", cta_reduce_bytes(SINK_THREADS), 16), &sum);
    tensor gDsinks = gmem_vector(p.dsinks, F32, p.heads);
    IF(eq(thread(), imm(0)))
        set(gDsinks, head, sum);
}
