/* attention_backward_stats.c - the stats of every query, and the gradients of sinks, which follow from them. */
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

enum {
    STATS_THREADS = 128,
    STATS_LANES = 16,                            // that share a query
    STATS_QUERIES = STATS_THREADS / STATS_LANES, // of a CTA
    VECTOR = 8,                                  // elements of 16 bytes
    SINK_THREADS = 512,
    SINK_FLIGHT = 4, // queries whose stats a thread loads at a time
};

/* A query, or a row past a head's last one, whose stats some lanes make. i64, but for the block. */
typedef struct stats_query {
    val head, token;            // the head among those of all batches, the row in it
    val heads;                  // of a batch
    val batch, at, head_of_lse; // where the tensors have it: a ragged problem is one batch
    val is_row, exists;         // has a head such a row; such a query?
    backward_block block;       // of queries that it is in, but for its number
} stats_query;

static stats_query query_of(const attention_form *form, const attention_values *p, val rows, val number)
{
    stats_query x = { .token = rem(number, rows) };
    x.head = div(number, rows);
    x.heads = convert(I64, p->heads);
    x.is_row = lt(x.head, convert(I64, p->all_heads));
    x.batch = div(x.head, x.heads);
    x.at = x.token;
    x.head_of_lse = x.head;
    x.block = (backward_block){ .batch = convert(U32, x.batch), .head = convert(U32, rem(x.head, x.heads)) };
    val queries = p->q;
    if (form->ragged) {
        tile_grid grid = attention_tile_grid_of(form, p, 0, 0);
        const val last = convert(I64, sub(div(p->all_heads, p->heads), imm(1)));
        const sequence s = attention_sequence_of(&grid, min(x.batch, last));
        queries = s.q;
        x.block.q_at = s.q_at;
        x.at = add(x.token, convert(I64, s.q_at));
        x.batch = imm64(0);
        x.head_of_lse = rem(x.head, x.heads);
    }
    x.exists = logical_and(x.is_row, lt(x.token, convert(I64, queries)));
    return x;
}

/* The sum over the lanes of a query of dO * O. */
static val delta_of(const attention_values *p, const attention_form *form, const stats_query *x, val head)
{
    val column_lane = thread_at(thread(), 0, STATS_LANES, STATS_QUERIES), sum = variable(F32, immf(0));
    layout all = make_layout(shape(form->dv, p->q, p->heads, p->all_heads),
                             stride(1, p->ld[ATTENTION_O], p->ld_head[ATTENTION_O], p->ld_batch[ATTENTION_O]));
    for (int first = 0; first < form->dv; first += VECTOR * STATS_LANES) {
        val vector = add(column_lane, imm(first / VECTOR));
        IF(logical_and(x->exists, lt(vector, imm(form->dv / VECTOR)))) {
            tensor rO = fragment(form->dtype, compact(leaf(VECTOR))),
                   rDout = fragment(form->dtype, compact(leaf(VECTOR)));
            tensor gO = slice(gmem_tensor(p->x[ATTENTION_O], form->dtype, all), _, x->at, head, x->batch);
            tensor gDout = slice(gmem_tensor(p->grad[ATTENTION_O], form->dtype, all), _, x->at, head, x->batch);
            copy(local_tile(gO, leaf(VECTOR), coord(vector)), rO, 16);
            copy(local_tile(gDout, leaf(VECTOR), coord(vector)), rDout, 16);
            for (int i = 0; i < VECTOR; i++)
                assign(sum, fma(at_f32(rO, i), at_f32(rDout, i), sum));
        }
    }
    for (int distance = 1; distance < STATS_LANES; distance *= 2)
        assign(sum, add(sum, shuffle_xor(sum, imm(distance))));
    return sum;
}

/* Zeros for all keys of a query: the kernel of queries skips those that it does not see. */
static void clear_mask_gradient(const attention_values *p, const attention_form *form, val head, val token)
{
    tensor gRow = slice(attention_mask_gradient_of(form, p, head), token, _); // (KV)
    LOOP_FROM(key, thread_at(thread(), 0, STATS_LANES, STATS_QUERIES), p->kv, imm(STATS_LANES))
        set(gRow, key, convert(form->dtype, immf(0)));
}

/* For the first query of a block: no CTA has added to its sums. */
static void clear_turn(const attention_values *p, const attention_sm90_backward_config *cfg, val token,
                       backward_block block)
{
    IF(eq(rem(token, imm(cfg->block)), imm(0))) {
        block.block = div(token, imm(cfg->block));
        val number = attention_backward_block_number(p, cfg, &block);
        store_global(U32, attention_backward_turn_of(p, number), 0, imm_as(U32, 0));
    }
}

/* -lse in units of log2; -inf of a query that does not exist. */
static val offset_of(const attention_values *p, const attention_form *form, const stats_query *x)
{
    val offset = variable(F32, immf(-INFINITY));
    IF(x->exists) {
        val rows = form->ragged ? p->q_total : p->q;
        layout all = make_layout(shape(rows, p->all_heads), stride(1, convert(I64, rows)));
        val lse = at(gmem_tensor(p->lse, F32, all), x->at, x->head_of_lse); // (Q,HEADS)
        assign(offset, select(eq(lse, immf(-INFINITY)), lse, mul(lse, immf(-M_LOG2E))));
    }
    return offset;
}

void attention_backward_stats(const attention_sm90_backward_config *cfg)
{
    const attention_form *form = &cfg->form;
    launch_bounds(STATS_THREADS, 0);
    attention_values p = params_of(attention);
    grid_wait();
    launch_dependents();
    val rows = convert(I64, p.stats_rows), of_cta = imm64(STATS_QUERIES);
    val number =
        add(mul(convert(I64, cta_x()), of_cta), convert(I64, thread_at(thread(), 1, STATS_LANES, STATS_QUERIES)));
    const stats_query x = query_of(form, &p, rows, number);
    if (form->dmask)
        IF(x.exists)
            clear_mask_gradient(&p, form, x.head, x.token);
    val delta = delta_of(&p, form, &x, rem(x.head, x.heads));
    IF(logical_and(x.is_row, eq(thread_at(thread(), 0, STATS_LANES, STATS_QUERIES), imm(0)))) {
        tensor gStats = slice(attention_backward_all_stats(&p, rows), x.token, _, x.head); // (STATS)
        set(gStats, 0, offset_of(&p, form, &x));
        set(gStats, 1, delta);
        if (attention_backward_sums_queries(cfg) && cfg->ordered)
            IF(x.exists)
                clear_turn(&p, cfg, convert(U32, x.token), x.block);
    }
}

/* A CTA has a head. */
void attention_backward_sinks(void)
{
    launch_bounds(SINK_THREADS, 0);
    attention_values p = params_of(attention);
    grid_wait();
    launch_dependents();
    val rows = convert(I64, p.stats_rows), head = cta_x(), sum = variable(F32, immf(0));
    layout all =
        make_layout(shape(rows, STATS, p.heads, p.all_heads),
                    stride(1, rows, mul(rows, imm64(STATS)), mul(mul(rows, imm64(STATS)), convert(I64, p.heads))));
    tensor gStats = slice(gmem_tensor(p.stats, F32, all), _, _, head, _); // (ROWS,STATS,BATCH)
    tensor gSinks = gmem_vector(p.sinks, F32, p.heads);
    val sink = mul(at(gSinks, head), immf(M_LOG2E)), batches = div(p.all_heads, p.heads);
    LOOP_FROM(batch, imm_as(U32, 0), batches, imm_as(U32, 1)) {
        LOOP_FROM(first, thread(), p.stats_rows, imm(SINK_THREADS * SINK_FLIGHT)) {
            val offset[SINK_FLIGHT], delta[SINK_FLIGHT];
            for (int i = 0; i < SINK_FLIGHT; i++) { // queries past the last one have no weight
                val row = add(first, imm(i * SINK_THREADS)), there = min(row, sub(p.stats_rows, imm(1)));
                offset[i] = select(lt(row, p.stats_rows), at(gStats, there, 0, batch), immf(-INFINITY));
                delta[i] = at(gStats, there, 1, batch);
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
