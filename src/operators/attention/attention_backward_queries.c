/*
 * attention_backward_queries.c - dQ in the kernel of keys: dS goes through shared memory, dQ^T = K^T * dS^T takes the
 * keys of both consumers, and each CTA adds its result to f32 sums in the workspace, which a last kernel rounds.
 *
 * Each consumer computes a tile of 64 rows of dQ^T: 64 of up to 128 elements for all queries of a block, or up to 64
 * elements for half of the queries. A warp has 16 rows; they lie in the workspace thread by thread, so all accesses are
 * contiguous, and only the last kernel needs to know the order. Warps whose rows are past the last element leave
 * nothing. A warp of the producer adds by TMA, in L2. The CTA of the earliest keys stores, the others add behind it:
 * where sums are ordered each waits for its turn, in the order of their keys, else for that store alone. That is the
 * order of the CTAs, so none waits for one that has not begun.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

enum {
    BARRIER_SLOPES = 4, // named: dS of all consumers is in shared memory
    QUAD = 4,           // f32 of 16 bytes
    SUMS_COLUMNS = 64,  // of the workspace, for TMA
    PAD = 8,            // elements between queries in shared memory, against bank conflicts
};

/* Queries of a consumer's tile. */
static columns dq_columns_of(const attention_sm90_backward_config *c)
{
    return attention_columns_of(c->form.d > ROWS ? c->block : c->block / c->consumers);
}

/* Rows of 64 numbers that the sums of a block fill. */
static int rows_of_sums(const attention_sm90_backward_config *c)
{
    return attention_columns_of(c->form.d).used * c->block / SUMS_COLUMNS;
}

int64_t attention_backward_sums_bytes(const attention_sm90_backward_config *c)
{
    return attention_backward_sums_queries(c) ? (int64_t)rows_of_sums(c) * SUMS_COLUMNS * 4 : 0;
}

int64_t attention_backward_sums_smem(const attention_sm90_backward_config *c)
{
    if (!attention_backward_sums_queries(c))
        return 0;
    const columns dq = dq_columns_of(c);
    const int halves = c->block / dq.used;
    return SLOPE_BUFFERS * c->consumers * halves * attention_columns_bytes(dq, ROWS) +
           attention_backward_sums_bytes(c) + 16;
}

/* Where the threads of the consumers have their vectors: (QUAD,LANES,VECTORS,WARPS,CONSUMERS). */
static layout layout_of_sums(const attention_sm90_backward_config *c)
{
    const int vectors = dq_columns_of(c).used / 8, of_warp = QUAD * 32 * vectors;
    const int rows = attention_columns_of(c->form.d).used, warps = rows < ROWS ? rows / 16 : ROWS / 16;
    return make_layout(shape(QUAD, 32, vectors, warps, c->consumers),
                       stride(1, QUAD, QUAD * 32, of_warp, warps * of_warp));
}

/* Has this thread's warp rows of dQ^T? */
static val has_rows(const attention_sm90_backward_config *c, val consumer, val warp_of_consumer)
{
    const int rows = attention_columns_of(c->form.d).used;
    if (rows % ROWS == 0)
        return yes();
    val number = rows > ROWS ? add(mul(consumer, imm(ROWS / 16)), warp_of_consumer) : warp_of_consumer;
    return lt(number, imm(rows / 16));
}

/* Blocks of the queries of a head, if not ragged. */
static val blocks_of(const attention_values *p, int block)
{
    return div(p->stats_rows, imm(block));
}

val attention_backward_block_number(const attention_values *p, const attention_sm90_backward_config *c,
                                    const backward_block *x)
{
    val block = imm(c->block), batches = div(p->all_heads, p->heads);
    if (!c->form.ragged)
        return add(mul(add(mul(x->batch, p->heads), x->head), blocks_of(p, c->block)), x->block);
    val before = add(div(x->q_at, block), x->batch); // each sequence has at most one block that is not full
    return add(mul(x->head, add(div(p->q_total, block), batches)), add(before, x->block));
}

val attention_backward_turn_of(const attention_values *p, val block_number)
{
    return add(p->turns, convert(U64, mul(block_number, imm(4))));
}

void attention_backward_describe_sums(backward_kernel *k)
{
    const attention_sm90_backward_config *c = k->cfg;
    k->dq_columns = dq_columns_of(c);
    k->halves = k->block / k->dq_columns.used;
    const int tiles = SLOPE_BUFFERS * c->consumers * k->halves, rows = rows_of_sums(c);
    k->tmaSums = make_tma(k->p.SUMS, F32, 2, rows, SUMS_COLUMNS, 0);
    k->sSlopes = attention_chunks("dS", k->form.dtype, k->dq_columns, ROWS, tiles);
    k->sSums = smem_tensor("dQ", F32, make_layout(shape(rows, SUMS_COLUMNS), stride(SUMS_COLUMNS, 1)), 128);
    k->sums = make_pipeline("dQ barriers", 1, c->consumers * WARPGROUP / 32, 1);
}

/* The tile of dS for a consumer's keys and a half of the queries. */
static val tile_of_slopes(const backward_kernel *k, val buffer, val consumer, int half)
{
    return add(mul(add(mul(buffer, imm(k->cfg->consumers)), consumer), imm(k->halves)), imm(half));
}

void attention_backward_describe_queries(const backward_kernel *k, backward_consumer *c)
{
    c->dq_mma = attention_warpgroup_mma(k->form.dtype, k->dq_columns.used, "SS");
    c->tCrKt = descriptors_A(&c->dq_mma, attention_transposed_chunks(k->sX[QK], k->n[QK]));
    c->tCrSlopes = descriptors_B(&c->dq_mma, attention_transposed_chunks(k->sSlopes, k->dq_columns));
    c->dq = k->halves == 1 ? c->slopes : fragment_C(&c->dq_mma, ROWS, k->dq_columns.used);
    c->turn = variable(U32, imm(SLOPE_BUFFERS - 1));
}

/* Stores dS^T, keys by queries, to this consumer's tiles. */
static void store_slopes(const backward_kernel *k, const backward_consumer *c)
{
    for (int half = 0; half < k->halves; half++) {
        tensor sTile = slice(k->sSlopes, _, _, _, tile_of_slopes(k, c->turn, c->index, half)); // (ROWS,CHUNK,CHUNKS)
        attention_store_chunks(c->slopes, half * k->dq_columns.used, sTile, k->dq_columns);
    }
}

/*
 * This consumer's tile of dQ^T; asynchronous. With two buffers of dS one barrier a step is enough: who arrives has
 * finished the products of the step before, so that step's buffer is free for the next one.
 */
void attention_backward_issue_queries(const backward_kernel *k, backward_consumer *c)
{
    const int consumers = k->cfg->consumers;
    store_slopes(k, c);
    fence_proxy_async();
    named_sync(imm(BARRIER_SLOPES), consumers * WARPGROUP);
    val index = shuffle(c->index, imm(0)), buffer = shuffle(c->turn, imm(0));
    mma_fence();
    for (int j = 0; j < consumers; j++) {
        tensor tCrKt = slice(c->tCrKt, _, _, j); // (D/64,MMA_K)
        const int steps = ROWS / 16;
        val number = tile_of_slopes(k, buffer, imm_as(U32, j), 0);
        number = k->halves > 1 ? add(number, index) : number;
        gemm(&c->dq_mma, local_tile(tCrKt, shape(1, steps), coord(k->halves > 1 ? imm_as(U32, 0) : index, 0)),
             slice(c->tCrSlopes, _, _, number), c->dq, imm_as(IR_PRED, j > 0));
    }
    mma_commit();
}

/* This consumer's sums to shared memory, each thread's vectors together. */
void attention_backward_share_queries(const backward_kernel *k, backward_consumer *c)
{
    const layout by_threads = layout_of_sums(k->cfg);
    val in_consumer = thread_at(warp(), 0, WARPGROUP / 32, k->cfg->consumers);
    tensor sVectors = slice(tensor_with_layout(k->sSums, by_threads), _, lane(), _, in_consumer, c->index);
    pipeline_state sums = { imm_as(U32, 0), c->turn, 1 };
    pipeline_wait_empty(&k->sums, &sums);
    IF(has_rows(k->cfg, c->index, in_consumer))
        for (int i = 0; i < k->dq_columns.used / 8; i++) {
            tensor some = fragment(F32, compact(leaf(QUAD)));
            for (int v = 0; v < QUAD; v++)
                set(some, v, at(c->dq, i * QUAD + v));
            copy(some, slice(sVectors, _, i), 16);
        }
    fence_proxy_async();
    warp_sync();
    IF(eq(lane(), imm(0)))
        pipeline_arrive(&k->sums, &sums);
    assign(c->turn, bit_xor(c->turn, imm(1)));
}

/* How many CTAs add to a block before this one: those with earlier keys that some query of the block sees. */
static val turn_of(const backward_kernel *k, val block)
{
    const int rows = k->cfg->consumers * ROWS;
    val own = div(k->row, imm(rows));
    if (!k->form.left)
        return own;
    val key = sub(convert(I32, mul(block, imm(k->block))), k->s.last); // the first that the block sees
    return sub(own, div(convert(U32, max(key, imm_as(I32, 0))), imm(rows)));
}

/* Adds to the sums of a block, to which the CTA of the earliest keys stores. */
static void add_block(const backward_kernel *k, val row, val own)
{
    IF(eq(own, imm(0)))
        tma_store(&k->tmaSums, k->sSums, row, imm(0));
    ELSE
    {
        tma_add(&k->tmaSums, k->sSums, row, imm(0));
    }
}

/* May this CTA add, after `turns` others have? In any order it waits for none but the first one's store. */
static val may_add(const backward_kernel *k, val turns, val own)
{
    return k->cfg->ordered ? eq(turns, own) : eq(min(turns, imm(1)), min(own, imm(1)));
}

static void pass_turn(val turn, val own)
{
    tma_store_wait(0);
    store_release(U32, turn, add(own, imm(1)));
}

void attention_backward_add_queries(const backward_kernel *k)
{
    pipeline_state at = consumer_state(&k->sums);
    backward_walk w = attention_backward_begin(k);
    FOREVER {
        BREAK_IF(attention_backward_is_over(k, &w));
        const backward_block block = { k->batch, attention_backward_head_of(k, w.head), k->s.kv_at, w.block };
        val number = attention_backward_block_number(&k->p, k->cfg, &block), own = turn_of(k, w.block);
        val turn = attention_backward_turn_of(&k->p, number);
        pipeline_wait_full(&k->sums, &at);
        FOREVER {
            BREAK_IF(may_add(k, load_acquire(U32, turn), own));
        }
        fence_proxy_async_gmem();
        add_block(k, mul(number, imm(rows_of_sums(k->cfg))), own);
        tma_store_commit();
        tma_store_wait_read(0);
        pipeline_release(&k->sums, at.stage);
        pipeline_advance(&at);
        if (k->cfg->ordered)
            pass_turn(turn, own);
        else IF(eq(own, imm(0)))
            pass_turn(turn, own);
        attention_backward_advance(k, &w);
    }
    tma_store_wait(0);
}

/* The kernel that rounds */

/* Where a CTA's tile of dQ begins, a query and an element; the number of its block, and whether the sequence has it. */
typedef struct dq_place {
    val index, head, batch, token, column;
    val number, exists;
    sequence s;
} dq_place;

static dq_place place_of_dq(const attention_values *p, const attention_sm90_backward_config *cfg)
{
    val number = div(cta_x(), imm(cfg->consumers)), blocks = blocks_of(p, cfg->block), block = rem(number, blocks);
    val heads = div(number, blocks), zero = imm_as(U32, 0);
    const int queries = dq_columns_of(cfg).used;
    dq_place x = { .index = rem(cta_x(), imm(cfg->consumers)), .head = rem(heads, p->heads), .column = zero };
    x.batch = div(heads, p->heads);
    x.s = attention_sequence_of(&cfg->form, p, x.batch);
    const backward_block of = { x.batch, x.head, x.s.q_at, block };
    x.token = mul(block, imm(cfg->block));
    x.exists = lt(x.token, x.s.q);
    x.number = select(x.exists, attention_backward_block_number(p, cfg, &of), zero); // else one that may be read
    if (queries < cfg->block)
        x.token = add(x.token, mul(x.index, imm(queries)));
    else
        x.column = mul(x.index, imm(ROWS));
    return x;
}

/* The sums of a consumer, each thread's vectors as it left them; of a block that no CTA has added to, zeros. */
static tensor take_sums(const attention_values *p, const attention_sm90_backward_config *cfg, const tiled_mma *mma,
                        const dq_place *x)
{
    val number = x->number, index = x->index;
    const int queries = dq_columns_of(cfg).used;
    tensor acc = fragment_C(mma, ROWS, queries);
    tensor gBlock = gmem_tensor(p->sums, F32, layout_of_sums(cfg));
    gBlock.address = add(gBlock.address, mul(convert(U64, number), imm_as(U64, attention_backward_sums_bytes(cfg))));
    tensor gVectors = slice(gBlock, _, lane(), _, warp(), index); // (QUAD,VECTORS)
    val turn = attention_backward_turn_of(p, number);
    val is_there = logical_and(has_rows(cfg, index, warp()), x->exists);
    fill(acc, immf(0));
    IF(logical_and(is_there, ne(load_relaxed(U32, turn), imm(0)))) {
        for (int i = 0; i < queries / 8; i++) {
            tensor some = fragment(F32, compact(leaf(QUAD)));
            copy(slice(gVectors, _, i), some, 16);
            for (int v = 0; v < QUAD; v++)
                set(acc, i * QUAD + v, mul(at(some, v), p->scale));
        }
    }
    return acc;
}

/* Stores dQ from shared memory, in vectors, but for what is past the last query or element. */
static void store_queries(const attention_values *p, const attention_sm90_backward_config *cfg, const dq_place *x,
                          tensor sDQ)
{
    const int lanes = ROWS / VECTOR, at_once = WARPGROUP / lanes, queries = dq_columns_of(cfg).used;
    const attention_form *form = &cfg->form;
    val batch = form->ragged ? imm_as(U32, 0) : x->batch;
    tensor gDQ = slice(attention_tensor_of(form, p, ATTENTION_Q, p->grad), batch, x->head, _, _); // (Q,D)
    val first = thread_at(thread(), 1, lanes, at_once), vector = thread_at(thread(), 0, lanes, at_once);
    val column = add(x->column, mul(vector, imm(VECTOR)));
    for (int i = 0; i < queries; i += at_once) {
        val query = add(first, imm(i)), token = add(x->token, query);
        val is_there = logical_and(lt(query, imm(queries)), lt(token, x->s.q));
        IF(logical_and(is_there, lt(column, imm(form->d)))) {
            tensor some = fragment(form->dtype, compact(leaf(VECTOR)));
            copy(local_tile(slice(sDQ, _, query), leaf(VECTOR), coord(vector)), some, 16);
            val row = form->ragged ? add(token, x->s.q_at) : token;
            copy(some, local_tile(slice(gDQ, row, _), leaf(VECTOR), coord(div(column, imm(VECTOR)))), 16);
        }
    }
}

/* Each CTA takes one consumer's sums of a block. */
void attention_backward_round_queries(const attention_sm90_backward_config *cfg)
{
    const columns dq = dq_columns_of(cfg);
    const int ctas = dq.used > 64 ? 8 : 12; // of an SM, which wait for their loads: as many as have registers for these
    launch_bounds(WARPGROUP, ctas);
    attention_values p = params_of(attention);
    tiled_mma mma = attention_warpgroup_mma(cfg->form.dtype, dq.used, "SS");
    tensor sDQ =
        smem_tensor("dQ", cfg->form.dtype, make_layout(shape(ROWS, dq.used), stride(1, ROWS + PAD)), 16); // (D,Q)
    grid_wait();
    launch_dependents();
    const dq_place x = place_of_dq(&p, cfg);
    tensor acc = take_sums(&p, cfg, &mma, &x);
    stmatrix_C(&mma, slice(acc, _, 0, _), sDQ, thread());
    cta_sync();
    store_queries(&p, cfg, &x, sDQ);
}
