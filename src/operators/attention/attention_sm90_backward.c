/*
 * attention_sm90_backward.c - attention's gradients for Hopper. Either as two kernels of one shape, each of which
 * computes all weights anew (seven products instead of five), so every sum has one owner and a fixed order, and dQ
 * needs no workspace; or as the first kernel alone, with dQ (attention_backward_queries.c):
 *
 *                   rows (64 a warpgroup)     blocks that go by     sums
 *   of keys         X1 = K, X2 = V            Y1 = Q, Y2 = dO       dK += dS * Q, dV += P * dO
 *   of queries      X1 = Q, X2 = dO           Y1 = K, Y2 = V        dQ += dS * K
 *
 * scores = X1 * Y1^T give the weights P = 2^(scores - lse), slopes = X2 * Y2^T the gradient dS = P * (slopes - delta).
 * Rounded to 16 bits, these accumulators are in registers what the sums' products take as A, and Y is B, so only Y
 * passes through shared memory. A warp loads blocks of Y by TMA. A second one loads the stats of queries by ordinary
 * loads and stores, because reading what a bulk copy wrote would need a proxy fence in every step. Where
 * registers do not hold dK and dV together, a kernel of values computes dV alone. A first kernel computes lse and delta
 * = dO * O of every query; a last one sums the gradients of sinks.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

enum {
    BARRIER_CONSUMER = 1, // named, + consumer: its 128 threads before they store
    STATS_EACH = 4,       // of a lane, for blocks of up to 128
    PRODUCER_REGISTERS = 24,
    CONSUMER_REGISTERS = 240, // and 24 for the producer: the 504 = 3 * 168 of 384 threads
};

int64_t attention_sm90_backward_smem(const attention_sm90_backward_config *c)
{
    const columns d = attention_columns_of(c->form.d), dv = attention_columns_of(c->form.dv);
    const bool keys_alone = attention_backward_sums_queries(c);
    const int block = keys_alone || c->block > c->keys ? c->block : c->keys; // of the largest kernel
    int64_t x = attention_columns_bytes(d, ROWS) + attention_columns_bytes(dv, ROWS);
    int64_t y = attention_columns_bytes(d, block) + attention_columns_bytes(dv, block) + 4 * STATS * block;
    return c->consumers * x + c->stages * y + 16 * (1 + c->stages) + attention_backward_sums_smem(c);
}

static void describe_memory(backward_kernel *k)
{
    static const char *const x[PAIRS] = { "X1", "X2" }, *const y[PAIRS] = { "Y1", "Y2" };
    const attention_sm90_backward_config *c = k->cfg;
    for (int i = 0; i < PAIRS; i++)
        k->sX[i] = attention_chunks(x[i], k->form.dtype, k->n[i], ROWS, c->consumers);
    for (int i = 0; i < PAIRS; i++)
        k->sY[i] = attention_chunks(y[i], k->form.dtype, k->n[i], k->block, c->stages);
    k->sStats = smem_tensor("stats", F32, compact(shape(k->block, STATS, c->stages)), 16);
    k->x = make_pipeline("X barriers", 1, 1, 1);
    k->ring = make_pipeline("ring", c->stages, k->of_keys ? 2 : 1,
                            c->consumers * WARPGROUP / 32); // each warp releases what it has read
    if (k->with_queries)
        attention_backward_describe_sums(k);
}

/* X of the second pair is for slopes, which dV does not want. */
static bool has_x(const backward_kernel *k, int i)
{
    return i == QK || k->with[QK];
}

static void describe_maps(backward_kernel *k)
{
    const attention_values *p = &k->p;
    const val of_keys[] = { p->K, p->V }, of_queries[] = { p->Q, p->DO },
              sums[] = { k->of_keys ? p->DK : p->DQ, p->DV }, *const x = k->of_keys ? of_keys : of_queries,
              *const y = k->of_keys ? of_queries : of_keys;
    for (int i = 0; i < PAIRS; i++) {
        if (has_x(k, i))
            k->tmaX[i] = attention_make_tma(x[i], &k->form, k->n[i], ROWS);
        k->tmaY[i] = attention_make_tma(y[i], &k->form, k->n[i], k->block);
        if (k->with[i])
            k->tmaD[i] = attention_make_tma(sums[i], &k->form, k->n[i], ROWS);
    }
}

/* Producer */

static void load_x(const backward_kernel *k)
{
    pipeline_state at = producer_state(&k->x);
    val barrier = pipeline_full_barrier(&k->x, &at);
    int64_t bytes =
        attention_columns_bytes(k->n[QK], ROWS) + (has_x(k, VO) ? attention_columns_bytes(k->n[VO], ROWS) : 0);
    pipeline_expect(&k->x, &at, imm(k->cfg->consumers * (int)bytes));
    for (int w = 0; w < k->cfg->consumers; w++) {
        const tile_box box = attention_backward_box_of_x(k, add(k->row, imm(w * ROWS)));
        for (int i = 0; i < PAIRS; i++)
            if (has_x(k, i))
                attention_load_chunks(&k->tmaX[i], slice(k->sX[i], _, _, _, w), &box, barrier);
    }
}

static void load_y(const backward_kernel *k, const backward_walk *w, pipeline_state *at)
{
    const tile_box box = attention_backward_box_of_y(k, w);
    int64_t bytes = attention_columns_bytes(k->n[QK], k->block) + attention_columns_bytes(k->n[VO], k->block);
    pipeline_wait_empty(&k->ring, at);
    IF(elect()) {
        pipeline_expect(&k->ring, at, imm((int)bytes));
        for (int i = 0; i < PAIRS; i++)
            attention_load_chunks(&k->tmaY[i], slice(k->sY[i], _, _, _, at->stage), &box,
                                  pipeline_full_barrier(&k->ring, at));
    }
    pipeline_advance(at);
}

/* Loads the stats of a block, for a warp. They are loaded before the stage is free. */
static void load_stats(const backward_kernel *k, const backward_walk *w, pipeline_state *at)
{
    const int each = (k->block + 31) / 32;
    tensor gStats = attention_backward_stats_of(k, attention_backward_head_of(k, w->head)); // (ROWS_OF_STATS,STATS)
    val row = mul(w->block, imm(k->block)), loaded[STATS][STATS_EACH];
    for (int i = 0; i < each; i++)
        for (int s = 0; s < STATS; s++)
            loaded[s][i] = at(gStats, add(row, min(add(lane(), imm(32 * i)), imm(k->block - 1))), s);
    pipeline_wait_empty(&k->ring, at);
    for (int i = 0; i < each; i++)
        IF(lt(add(lane(), imm(32 * i)), imm(k->block))) {
            for (int s = 0; s < STATS; s++)
                set(k->sStats, coord(add(lane(), imm(32 * i)), s, at->stage), loaded[s][i]);
        }
    warp_sync();
    IF(eq(lane(), imm(0)))
        pipeline_arrive(&k->ring, at);
    pipeline_advance(at);
}

/* load() for all steps of a warp. */
static void load_steps(const backward_kernel *k,
                       void (*load)(const backward_kernel *k, const backward_walk *w, pipeline_state *at))
{
    pipeline_state at = producer_state(&k->ring);
    backward_walk w = attention_backward_begin(k);
    FOREVER {
        BREAK_IF(attention_backward_is_over(k, &w));
        load(k, &w, &at);
        attention_backward_advance(k, &w);
    }
}

/* A warp brings blocks, another one the stats of queries, a thread of a third one adds to the sums of dQ. */
enum { WARP_OF_BLOCKS, WARP_OF_STATS, WARP_OF_SUMS };

static void producer(const backward_kernel *k)
{
    if (k->cfg->consumers > 1)
        warpgroup_reg_dealloc(PRODUCER_REGISTERS);
    IF(eq(warp(), imm(WARP_OF_BLOCKS))) {
        IF(elect())
            load_x(k);
        load_steps(k, load_y);
    }
    if (k->of_keys)
        IF(eq(warp(), imm(WARP_OF_STATS)))
            load_steps(k, load_stats);
    if (k->with_queries)
        IF(eq(warp(), imm(WARP_OF_SUMS))) {
            IF(elect())
                attention_backward_add_queries(k);
        }
}

/* Consumers */

static backward_consumer describe_consumer(const backward_kernel *k)
{
    const int block = k->block;
    ckl_dtype dtype = k->form.dtype;
    backward_consumer c = { .scores_mma = attention_warpgroup_mma(dtype, block, "SS") };
    c.index = sub(warpgroup(), imm(1));
    c.first_thread = eq(warpgroup_thread(), imm(0));
    c.scores = fragment_C(&c.scores_mma, ROWS, block);
    if (k->with[QK]) {
        c.slopes = fragment_C(&c.scores_mma, ROWS, block);
        c.bends = attention_backward_has_bends(k) ? fragment_C(&c.scores_mma, ROWS, block) : c.scores;
    }
    for (int i = 0; i < PAIRS; i++) {
        if (has_x(k, i))
            c.of[i] = attention_score_operands_of(&c.scores_mma, k->n[i], k->sX[i], c.index, k->sY[i]);
        if (!k->with[i])
            continue;
        c.sum_mma[i] = attention_warpgroup_mma(dtype, k->n[i].used, "RS");
        c.tCrYt[i] = descriptors_B(&c.sum_mma[i], attention_transposed_chunks(k->sY[i], k->n[i]));
        c.factors[i] = fragment_A_words(&c.sum_mma[i], ROWS, block);
        c.d[i] = fragment_C(&c.sum_mma[i], ROWS, k->n[i].used);
        fill(c.d[i], immf(0));
    }
    if (k->with_queries)
        attention_backward_describe_queries(k, &c);
    c.at = consumer_state(&k->ring);
    c.cS = partition_C(&c.scores_mma, identity_tensor(shape(ROWS, block)), warpgroup_thread()); // (MMA,1,1)
    return c;
}

/* dK += dS * Q or dQ += dS * K; dV += P * dO. Asynchronous. */
static void add_product(const backward_kernel *k, const backward_consumer *c, int i, val stage)
{
    accumulators_to_A(i == QK ? c->slopes : c->scores, k->form.dtype, c->factors[i]);
    mma_fence();
    gemm(&c->sum_mma[i], c->factors[i], slice(c->tCrYt[i], _, _, stage), c->d[i], yes());
    mma_commit();
}

static void release(const backward_kernel *k, val stage)
{
    warp_sync(); // all lanes are done with the stats
    IF(eq(lane(), imm(0)))
        pipeline_release(&k->ring, stage);
}

/*
 * One block. mma_wait(n) leaves n groups in flight: those are the sums of the block before, these scores and slopes,
 * the sum of weighted values. The keys' kernel does not leave the first in flight: larger blocks gain more, 7 % at d128
 * and d64.
 */
static void step(const backward_kernel *k, backward_consumer *c, const backward_walk *w, val before)
{
    pipeline_wait_full(&k->ring, &c->at);
    val stage = shuffle(c->at.stage, imm(0));
    mma_fence();
    attention_issue_scores(&c->scores_mma, &c->of[QK], stage, c->scores);
    if (k->with[QK])
        attention_issue_scores(&c->scores_mma, &c->of[VO], stage, c->slopes);
    const backward_stats offset = attention_backward_find_stats(k, c, stage, 0);
    if (!k->of_keys) {
        mma_wait(k->with[QK] ? 2 : 1);
        IF(ne(before, imm(k->cfg->stages)))
            release(k, before);
    }
    mma_wait(k->with[QK] ? 1 : 0);
    attention_backward_weigh(k, c, &offset, w);
    if (k->with[VO])
        add_product(k, c, VO, stage);
    if (k->with[QK]) {
        const backward_stats delta = attention_backward_find_stats(k, c, stage, 1);
        mma_wait(k->with[VO] ? 1 : 0);
        if (k->form.dmask && !k->of_keys)
            attention_backward_store_mask_gradient(k, c, w, &delta);
        attention_backward_differentiate(c, &delta);
        add_product(k, c, QK, stage);
    }
    if (!k->of_keys)
        assign(before, stage);
    else {
        mma_wait(0);
        release(k, stage);
    }
    pipeline_advance(&c->at);
}

/*
 * Issues the scores of the first or next block; where there is none, the same block's again, to keep wgmma out of
 * branches.
 */
static val begin_scores(const backward_kernel *k, backward_consumer *c, const backward_walk *w, val same)
{
    val over = attention_backward_is_over(k, w);
    IF(logical_not(over))
        pipeline_wait_full(&k->ring, &c->at);
    val stage = shuffle(select(over, same, c->at.stage), imm(0));
    mma_fence();
    attention_issue_scores(&c->scores_mma, &c->of[QK], stage, c->scores);
    return stage;
}

/*
 * One block with dQ; its scores are complete. The sum of dK runs while dS is stored to shared memory, and dQ is handed
 * on under the scores of the next block. NOTE: nothing is in flight at the end, as ptxas serialises wgmma whose results
 * are read in the next iteration of a loop. dV and dK are done before the scores begin, as registers do not hold the
 * operands of both.
 */
static void step_with_queries(const backward_kernel *k, backward_consumer *c, backward_walk *w, val stage)
{
    mma_fence();
    attention_issue_scores(&c->scores_mma, &c->of[VO], stage, c->slopes);
    const backward_stats offset = attention_backward_find_stats(k, c, stage, 0);
    attention_backward_weigh(k, c, &offset, w);
    add_product(k, c, VO, stage);
    const backward_stats delta = attention_backward_find_stats(k, c, stage, 1);
    mma_wait(1);
    attention_backward_differentiate(c, &delta);
    add_product(k, c, QK, stage);
    attention_backward_issue_queries(k, c);
    mma_wait(1); // dQ is in flight
    release(k, stage);
    pipeline_advance(&c->at);
    attention_backward_advance(k, w);
    val next = begin_scores(k, c, w, stage);
    mma_wait(1);
    attention_backward_share_queries(k, c);
    mma_wait(0);
    assign(stage, next);
}

static void steps_with_queries(const backward_kernel *k, backward_consumer *c, backward_walk *w)
{
    IF(logical_not(attention_backward_is_over(k, w))) {
        val stage = variable(U32, begin_scores(k, c, w, imm_as(U32, 0)));
        mma_wait(0);
        FOREVER {
            step_with_queries(k, c, w, stage);
            BREAK_IF(attention_backward_is_over(k, w));
        }
    }
}

/* Stores a gradient through the shared memory of its rows, all chunks by one group of TMA stores. */
static void store(const backward_kernel *k, const backward_consumer *c, int which)
{
    const columns n = k->n[which];
    tensor sX = slice(k->sX[which], _, _, _, c->index);
    staged_store staged = { add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP, c->first_thread };
    attention_store_chunks(c->d[which], 0, sX, n);
    STAGED_STORE(&staged) {
        const tile_box box = attention_backward_box_of_x(k, attention_backward_row_of(k, c));
        for (int i = 0; i < n.chunks; i++)
            tma_store_of(&k->tmaD[which], slice(sX, _, _, i), box.row, imm(i * n.chunk), box.count, box.outer);
    }
}

static void store_gradients(const backward_kernel *k, const backward_consumer *c)
{
    if (k->with_queries) // all are done with the rows' memory: each consumer reads every row
        named_sync(imm(BARRIER_CONSUMER), k->cfg->consumers * WARPGROUP);
    else
        named_sync(add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP);
    for (int i = 0; i < PAIRS; i++)
        if (k->with[i])
            store(k, c, i);
    IF(c->first_thread)
        tma_store_wait(0);
}

static void consumer(const backward_kernel *k)
{
    if (k->cfg->consumers > 1)
        warpgroup_reg_alloc(CONSUMER_REGISTERS);
    backward_consumer c = describe_consumer(k);
    backward_walk w = attention_backward_begin(k);
    val before = variable(U32, imm(k->cfg->stages)); // none
    pipeline_state x = consumer_state(&k->x);
    if (!k->of_keys)
        attention_backward_load_row_stats(k, &c);
    pipeline_wait_full(&k->x, &x);
    if (k->with_queries)
        steps_with_queries(k, &c, &w);
    else
        FOREVER {
            BREAK_IF(attention_backward_is_over(k, &w));
            step(k, &c, &w, before);
            attention_backward_advance(k, &w);
        }
    mma_wait(0);
    if (k->with[QK])
        attention_scale_rows(c.d[QK], (const val[]){ k->p.scale, k->p.scale });
    store_gradients(k, &c);
}

static void describe_gradients(const attention_sm90_backward_config *cfg, int kernel)
{
    const bool of_keys = kernel != BACKWARD_QUERIES;
    backward_kernel k = { .cfg = cfg,
                          .form = cfg->form,
                          .of_keys = of_keys,
                          .with = { kernel != BACKWARD_VALUES,
                                    kernel == (attention_backward_has_values(cfg) ? BACKWARD_VALUES : BACKWARD_KEYS) },
                          .with_queries = attention_backward_sums_queries(cfg),
                          .n = { attention_columns_of(cfg->form.d), attention_columns_of(cfg->form.dv) } };
    k.block = of_keys ? cfg->block : cfg->keys;
    launch_bounds(WARPGROUP * (1 + cfg->consumers), 1);
    k.p = params_of(attention);
    describe_maps(&k);
    describe_memory(&k);
    IF(eq(thread(), imm(0))) {
        pipeline_init(&k.x);
        pipeline_init(&k.ring);
        if (k.with_queries)
            pipeline_init(&k.sums);
        fence_mbarrier_init();
    }
    prefetch_early(32, k.p.early, k.p.early_bytes, ATTENTION_TENSORS);
    cta_sync();
    grid_wait();
    launch_dependents();
    attention_backward_find_place(&k);
    IF(lt(warp(), imm(WARPGROUP / 32))) {
        producer(&k);
    }
    ELSE
    {
        consumer(&k);
    }
}

void attention_sm90_backward(const void *config, int kernel)
{
    const attention_sm90_backward_config *cfg = config;
    if (kernel == BACKWARD_STATS)
        attention_backward_stats(cfg);
    else if (kernel == BACKWARD_SINKS)
        attention_backward_sinks();
    else if (kernel == BACKWARD_QUERIES && attention_backward_sums_queries(cfg))
        attention_backward_round_queries(cfg);
    else
        describe_gradients(cfg, kernel);
}
