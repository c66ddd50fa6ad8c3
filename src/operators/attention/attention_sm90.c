/*
 * attention_sm90.c - attention forward for Hopper, after FlashAttention-3 (Shah et al., arXiv:2407.08608).
 *
 *   warpgroup 0       producer: one thread brings Q of a tile and its blocks of K and V by TMA, these through one ring
 *                     in the order in which they are used: K0 K1 V0 K2 V1 ...
 *   warpgroups 1..    consumers: 64 queries each. The scores of the next block and the product of this block's weights
 *                     with V are under way together; the softmax of the next block runs under the latter
 *
 * Persistent. Blocks of keys are taken from the last to the first, so that those with a mask come first. The consumers
 * take turns to issue products, so that one's softmax runs under the other's products.
 *
 * Rows may keep the maxima of their first blocks (config.old); the sums tell whether those still serve. Then every warp
 * releases the slots of the ring, as each may need the keys again.
 */
#include "operators/attention/attention_sm90.h"

#include <string.h>

enum {
    BARRIER_CONSUMER = 1, // named barriers, + consumer: its 128 threads round the staging buffers
    BARRIER_TURN = 4,     // + consumer: it may issue; it waits, the one before arrives
    SLACK = 8,            // in bits of weights: with lazy maxima they are 256 at most
    FETCHES = 4,          // slots of the scheduler; the producer is at most two tiles ahead
};

/* Of a thread, by consumers of a CTA and CTAs of an SM; the producer keeps 24 and 32. 0: as many as all have. */
static const int CONSUMER_REGISTERS[][4] = { [1] = { [2] = 232, [3] = 136 }, [2] = { [1] = 240 }, [3] = { [1] = 160 } };

/*
 * ptxas refuses an MMA whose operands exceed the registers of the launch, whatever setmaxnreg adds, and serialises all
 * of them where the scores of two blocks, one as weights, and O exceed a consumer's. By all sizes from 64 to 256 it
 * wants 26 to 30 beside these. Of caps, masks, custom scores and old maxima it spills where a quarter of the scores has
 * no room beside all that.
 */
bool attention_sm90_fits_registers(const attention_sm90_config *c, int registers_per_sm)
{
    enum { ALL = 255, UNIT = 8, REST = 26, MORE = 2, OF_WEIGHTS = 4 };
    const int share = registers_per_sm / (WARPGROUP * (1 + c->consumers) * c->ctas) / UNIT * UNIT,
              launched = share < ALL ? share : ALL, moved = CONSUMER_REGISTERS[c->consumers][c->ctas],
              own = moved ? moved : launched, block = c->tile_n / 2, scores = c->apart ? 2 * block : block,
              out = attention_columns_of(c->form.dv).used / 2;
    const bool is_plain = !c->form.softcap && !c->form.mask && !attention_score_find(c->form.score) && !c->old;
    return block + REST <= launched && out + OF_WEIGHTS + REST <= launched &&
           scores + block / 2 + (is_plain ? 0 : block / 4) + out + REST + MORE <= own;
}

static bool has_turns(const attention_sm90_config *c)
{
    return c->consumers > 1 && !c->single && !(c->probe & 4);
}

/* Is O rescaled only where a weight would exceed 2^SLACK? Of 256 columns 822 -> 776 us. */
static bool is_lazy(const attention_sm90_config *c)
{
    return c->form.dv > 128 && !c->single;
}

/* O as it is stored: two chunks at a time. */
static columns staged_columns(columns dv)
{
    dv.chunks = dv.chunks < 2 ? dv.chunks : 2;
    return dv;
}

/* Of a block of K or V, whichever is larger. */
static int64_t slot_bytes(const attention_sm90_config *c)
{
    return max_i64(attention_columns_bytes(attention_columns_of(c->form.d), c->tile_n),
                   attention_columns_bytes(attention_columns_of(c->form.dv), c->tile_n));
}

/* Of a consumer's tile of queries; through it its O leaves where there are two. */
static int64_t tile_bytes(const attention_sm90_config *c)
{
    return max_i64(attention_columns_bytes(attention_columns_of(c->form.d), ROWS),
                   attention_columns_bytes(attention_columns_of(c->form.dv), ROWS));
}

int64_t attention_sm90_smem(const attention_sm90_config *c)
{
    columns d = attention_columns_of(c->form.d), dv = attention_columns_of(c->form.dv);
    const int64_t q = attention_columns_bytes(d, ROWS), o = attention_columns_bytes(staged_columns(dv), ROWS),
                  of_consumer = c->queries == 2 ? 2 * tile_bytes(c) : q + o;
    return c->consumers * of_consumer + c->slots * slot_bytes(c) +
           16 * (int64_t)(c->slots + c->consumers * c->queries) + (c->draw ? scheduler_bytes(FETCHES) : 0);
}

/* A consumer's queries and O. */
static void describe_tiles(sm90_kernel *k)
{
    const attention_sm90_config *cfg = k->cfg;
    const ckl_dtype dtype = k->form->dtype;
    if (cfg->queries == 1) {
        k->sQ = attention_chunks("Q", dtype, k->d, ROWS, cfg->consumers);
        k->sO = attention_chunks("O", dtype, staged_columns(k->dv), ROWS, cfg->consumers);
        return;
    }
    const int64_t next = tile_bytes(cfg) / 2;
    const int count = cfg->queries * cfg->consumers;
    tensor sTiles = smem_tensor("Q and O", dtype, make_layout(shape(next, count), stride(1, next)), 1024);
    k->sQ = tensor_with_layout(sTiles, attention_chunks_apart(dtype, k->d, ROWS, count, next));
    k->sO = tensor_with_layout(sTiles, attention_chunks_apart(dtype, k->dv, ROWS, count, next));
}

static void describe_shared_memory(sm90_kernel *k)
{
    const attention_sm90_config *cfg = k->cfg;
    ckl_dtype dtype = k->form->dtype;
    int64_t slot = slot_bytes(cfg) / 2;
    describe_tiles(k);
    tensor sRing = smem_tensor("K and V", dtype, make_layout(shape(slot, cfg->slots), stride(1, slot)), 1024);
    k->sK = tensor_with_layout(sRing, attention_chunks_apart(dtype, k->d, cfg->tile_n, cfg->slots, slot));
    k->sV = tensor_with_layout(sRing, attention_chunks_apart(dtype, k->dv, cfg->tile_n, cfg->slots, slot));
    const int releases = cfg->old ? WARPGROUP / 32 : 1; // of a consumer: release()
    k->q = make_pipeline("Q barriers", cfg->consumers * cfg->queries, 1, cfg->queries == 1 ? releases : 1);
    k->ring = make_pipeline("ring", cfg->slots, 1, cfg->consumers * releases);
    if (cfg->draw)
        k->scheduler = make_dynamic_scheduler("tiles", k->p.counter, k->p.tiles, grid_x(), 1, FETCHES);
}

static sm90_kernel describe_kernel(const attention_sm90_config *cfg)
{
    sm90_kernel k = {
        .cfg = cfg, .form = &cfg->form, .d = attention_columns_of(cfg->form.d), .dv = attention_columns_of(cfg->form.dv)
    };
    k.p = params_of(attention);
    k.tmaQ = attention_make_tma(k.p.Q, k.form, k.d, ROWS);
    k.tmaK = attention_make_tma(k.p.K, k.form, k.d, cfg->tile_n);
    k.tmaV = attention_make_tma(k.p.V, k.form, k.dv, cfg->tile_n);
    k.tmaO = attention_make_tma(k.p.O, k.form, k.dv, ROWS);
    describe_shared_memory(&k);
    return k;
}

static void initialise(const sm90_kernel *k)
{
    IF(eq(thread(), imm(0))) {
        tma_prefetch(&k->tmaQ);
        tma_prefetch(&k->tmaK);
        tma_prefetch(&k->tmaV);
        tma_prefetch(&k->tmaO);
        pipeline_init(&k->q);
        pipeline_init(&k->ring);
        if (k->cfg->draw)
            scheduler_init(&k->scheduler);
        fence_mbarrier_init();
    }
    cta_sync();
    grid_wait(); // what is above overlaps the end of the kernel before
    launch_dependents();
}

/* Consumers */

/* One consumer's view: its threads, its operands, the state of its rows. */
typedef struct consumer_role {
    val index, first_thread;
    tiled_mma qk, pv;
    tensor tCrV;        // (1,MMA_K,SLOTS)
    tensor products;    // (MMA,1,1), of the same registers as scores unless these are apart
    tensor scores, out; // (MMA,1,1)
    val slot, next;     // of the keys of products, and of the scores
    tensor weights;     // (PAIRS,1,MMA_K)
    online_rows rows;
    val exact;    // not 0: a block is scored, and its maxima found, before there are weights; u32
    val lowered;  // with old maxima: not 0 where the rows' factors are not 1; u32
    val is_short; // with a cap beside: attention_cap_is_short(), u32
    val limit[ONLINE_ROWS_MAX];
    val tiles;           // that it takes part in: others than the first consumer in whole ones
    custom_score custom; // in the tile's head
    pipeline_state at, q;
    walk *walk;
    val own;    // the stage of the tile's queries
    val stored; // with two tiles of queries: the stage through which the last O left, or NOTHING; u32
} consumer_role;

enum { NOTHING = 255 };

/* Its queries of a tile. */
static tile_rows rows_of(const sm90_kernel *k, const consumer_role *c, const tile *t)
{
    return (tile_rows){ &k->grid, &t->s, &c->qk, add(t->row, mul(c->index, imm(ROWS))), warpgroup_thread(), ROWS };
}

static consumer_role describe_consumer(const sm90_kernel *k)
{
    const attention_sm90_config *cfg = k->cfg;
    ckl_dtype dtype = k->form->dtype;
    int bn = cfg->tile_n;
    consumer_role c = { .qk = attention_warpgroup_mma(dtype, bn, "SS"),
                        .pv = attention_warpgroup_mma(dtype, k->dv.used, "RS") };
    c.index = sub(warpgroup(), imm(1));
    c.first_thread = eq(warpgroup_thread(), imm(0));
    c.tCrV = descriptors_B(&c.pv, attention_transposed_chunks(k->sV, k->dv));
    c.scores = fragment_C(&c.qk, ROWS, bn);
    c.products = cfg->apart ? fragment_C(&c.qk, ROWS, bn) : c.scores;
    c.slot = variable(U32, imm(0));
    c.next = variable(U32, imm(0));
    c.out = fragment_C(&c.pv, ROWS, k->dv.used);
    c.weights = fragment_A_words(&c.pv, ROWS, bn);
    c.rows = attention_online_rows_begin(attention_online_row_count(c.scores), k->p.exponent);
    c.rows.slack = is_lazy(cfg) ? SLACK : 0;
    if (cfg->old || k->form->softcap)
        c.exact = variable(U32, imm(0));
    if (cfg->old)
        c.lowered = variable(U32, imm(0));
    if (cfg->old && k->form->softcap) {
        c.is_short = variable(U32, imm(0));
        for (int r = 0; r < c.rows.count; r++)
            c.limit[r] = variable(F32, immf(0));
    }
    c.rows.probe = cfg->probe;
    c.tiles = cfg->parts ? select(eq(c.index, imm(0)), k->tiles, k->whole) : k->tiles;
    c.at = consumer_state(&k->ring);
    c.q = (pipeline_state){ cfg->queries == 1 ? c.index : variable(U32, c.index), variable(U32, imm(0)), k->q.stages };
    c.own = variable(U32, c.index);
    c.stored = variable(U32, imm(cfg->queries == 1 ? 0 : NOTHING));
    return c;
}

static void begin_turn(const sm90_kernel *k, const consumer_role *c)
{
    if (has_turns(k->cfg))
        named_sync(add(c->index, imm(BARRIER_TURN)), 2 * WARPGROUP);
}

static void end_turn(const sm90_kernel *k, const consumer_role *c)
{
    if (!has_turns(k->cfg))
        return;
    val next = select(eq(c->index, imm(k->cfg->consumers - 1)), imm(0), add(c->index, imm(1)));
    named_arrive(add(next, imm(BARRIER_TURN)), 2 * WARPGROUP);
}

static void release(const sm90_kernel *k, const consumer_role *c, const pipeline *of, val slot)
{
    if (k->cfg->old)
        warp_sync(); // all lanes are done reading
    IF(k->cfg->old ? eq(lane(), imm(0)) : c->first_thread)
        pipeline_release(of, slot);
}

/* The queries of a tile are read; of two their place is free when O has left through it. */
static void release_queries(const sm90_kernel *k, consumer_role *c)
{
    if (k->cfg->queries == 1)
        release(k, c, &k->q, c->index);
}

/* The place through which the last O left. */
static void release_stored(const sm90_kernel *k, consumer_role *c)
{
    if (k->cfg->queries == 1)
        return;
    IF(logical_and(c->first_thread, ne(c->stored, imm(NOTHING)))) {
        tma_store_wait_read(0);
        pipeline_release(&k->q, c->stored);
    }
    assign(c->stored, imm(NOTHING));
}

/*
 * The next slot of the ring. NOTE: by a shuffle, so that ptxas sees it is uniform and keeps descriptors in uniform
 * registers.
 */
static val take_slot(consumer_role *c)
{
    val slot = shuffle(c->at.stage, imm(0));
    pipeline_advance(&c->at);
    return slot;
}

/* Products of its queries and the keys in a slot; asynchronous. */
static void issue_scores(const sm90_kernel *k, consumer_role *c, val slot)
{
    const val stage = k->cfg->queries == 1 ? c->index : shuffle(c->q.stage, imm(0));
    const score_operands of = attention_score_operands_of(&c->qk, k->d, k->sQ, stage, k->sK);
    attention_issue_scores(&c->qk, &of, slot, c->products);
}

/* out += weights * V; asynchronous. */
static void issue_product(consumer_role *c, val slot)
{
    gemm(&c->pv, c->weights, slice(c->tCrV, _, _, slot), c->out, yes());
    mma_commit();
}

static void make_scores(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w)
{
    tile_rows rows = rows_of(k, c, t);
    attention_make_scores(w, &rows, c->scores);
}

/*
 * Do products become scores only in the softmax? So they do where all blocks have a cap and nothing else, or with old
 * maxima a custom score.
 */
static bool scores_late(const sm90_kernel *k, const consumer_role *c)
{
    const ckl_attention_score *how = c->custom.how;
    return k->form->softcap ? !how && !k->form->mask : k->cfg->old && how && !how->block;
}

/*
 * Does it depend on the block how its scores become weights? Where products become scores late, or maxima are old, it
 * may have to be scored, and its maxima found, first: where a mask cuts it, or, with old maxima, rows are new.
 */
static bool may_be_exact(const sm90_kernel *k, const consumer_role *c)
{
    return k->cfg->old || scores_late(k, c);
}

/* What is known of the softmax of a block before there are products. */
static void look_ahead(const sm90_kernel *k, consumer_role *c, const tile *t, val block)
{
    const tile_rows rows = rows_of(k, c, t);
    val exact = k->cfg->old ? attention_online_rows_are_new(&c->rows) : no();
    if (k->form->right || k->form->left)
        exact = logical_or(exact, attention_block_is_cut(&rows, block));
    assign(c->exact, select(exact, imm_as(U32, 1), imm_as(U32, 0)));
    if (k->cfg->old && k->form->softcap) {
        val limit[ONLINE_ROWS_MAX];
        assign(c->is_short, select(attention_cap_is_short(&c->rows, limit), imm_as(U32, 1), imm_as(U32, 0)));
        for (int r = 0; r < c->rows.count; r++)
            assign(c->limit[r], limit[r]);
    }
}

static void mask_scores(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w)
{
    const tile_rows rows = rows_of(k, c, t);
    if (k->form->right || k->form->left)
        IF(attention_block_is_cut(&rows, w->block))
            attention_mask_block(&rows, w->block, c->scores);
}

/* Makes scores, masked where needed. */
static void shape_scores(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w)
{
    if (!scores_late(k, c))
        make_scores(k, c, t, w);
    if (may_be_exact(k, c)) {
        IF(ne(c->exact, imm(0))) {
            if (scores_late(k, c))
                make_scores(k, c, t, w);
            mask_scores(k, c, t, w);
        }
    } else {
        mask_scores(k, c, t, w);
    }
}

/*
 * Computes the products of a block again, element by element from shared memory: they were too large for the old
 * maxima.
 */
static void score_again(const sm90_kernel *k, consumer_role *c, val slot)
{
    tensor cS = partition_C(&c->qk, identity_tensor(shape(ROWS, k->cfg->tile_n)), warpgroup_thread()); // (MMA,1,1)
    layout distances = coordinate_distances(cS, 1);
    fill(c->scores, immf(0));
    for (int i = 0; i < k->d.chunks; i++) {
        const int left = k->d.used - i * k->d.chunk, width = left < k->d.chunk ? left : k->d.chunk;
        tensor sQ = slice(k->sQ, _, _, i, c->own), sK = slice(k->sK, _, _, i, slot); // (ROWS,CHUNK), (BN,CHUNK)
        LOOP(l, imm(width)) {
            val q[ONLINE_ROWS_MAX];
            for (int r = 0; r < c->rows.count; r++)
                q[r] = at_f32(sQ, coordinate(cS, 0, attention_online_row_value(cS, r)), l);
            UNROLL(e, static_size(c->scores.layout)) {
                val x = at(c->scores, e), key = add(coordinate(cS, 1, 0), imm(index_at(distances, e)));
                assign(x, fma(q[attention_online_row_of(c->scores, e)], at_f32(sK, key, l), x));
            }
        }
    }
    fence_proxy_async(); // before TMA overwrites the block
}

/* What is left to do with products before they become weights by old maxima. */
static raw_scores raw_of(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w, block_scores *custom)
{
    raw_scores raw = { .cap = NULL };
    if (!scores_late(k, c))
        return raw;
    if (k->form->softcap) {
        raw = (raw_scores){ .cap = k->p.cap, .is_short = ne(c->is_short, imm(0)) };
        memcpy(raw.limit, c->limit, sizeof raw.limit);
        return raw;
    }
    const tile_rows rows = rows_of(k, c, t);
    *custom = attention_block_scores_of(&c->custom, &rows, w->block, c->scores);
    return (raw_scores){ .score = attention_block_score, .of = custom };
}

/* The sums of a block of weights by old maxima; where these fail, scores are made again for new ones. */
static void add_sums(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w, val slot,
                     const raw_scores *raw, val fits, val *sum)
{
    assign(c->lowered, imm(0));
    IF(logical_not(fits)) {
        assign(c->lowered, imm(1));
        const val lost = attention_online_rows_lower(&c->rows, c->scores, raw, sum);
        if (k->cfg->probe & 32)
            accumulators_to_A(c->scores, k->form->dtype, c->weights);
        IF(lost) {
            assign(c->exact, imm(1));
            score_again(k, c, slot);
            make_scores(k, c, t, w);
        }
    }
    attention_online_rows_add(&c->rows, sum);
}

/* Weights by old maxima. */
static void weigh_by_old(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w, val slot)
{
    block_scores custom;
    const raw_scores raw = raw_of(k, c, t, w, &custom);
    val sum[ONLINE_ROWS_MAX], fits;
    if (k->cfg->apart) {
        fits = attention_online_weights_by_old(&c->rows, c->scores, &raw, sum);
    } else {
        if (raw.score)
            attention_custom_share_begin();
        fits = attention_online_softmax_by_old(&c->rows, c->scores, &raw, sum);
        if (raw.score)
            attention_custom_share_end();
    }
    if (k->cfg->probe & 32)
        accumulators_to_A(c->scores, k->form->dtype, c->weights);
    add_sums(k, c, t, w, slot, &raw, fits, sum);
}

/* Scores become weights: by their own maxima, or where it may be so by old ones, or with the cap in the exponents. */
static void soften(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w, val slot)
{
    if (!may_be_exact(k, c)) {
        attention_online_softmax(&c->rows, c->scores, NULL);
        return;
    }
    IF(eq(c->exact, imm(0))) {
        if (k->cfg->old)
            weigh_by_old(k, c, t, w, slot);
        else
            attention_online_softmax(&c->rows, c->scores, k->p.cap);
    }
    IF(ne(c->exact, imm(0))) {
        attention_online_softmax(&c->rows, c->scores, NULL);
        if (k->cfg->old)
            assign(c->lowered, imm(1));
        if (k->cfg->probe & 32)
            accumulators_to_A(c->scores, k->form->dtype, c->weights);
    }
}

/*
 * Issues the scores of the block behind this one, if there is one, else this one's again, for nobody: wgmma in a branch
 * would be serialised.
 */
static void issue_ahead(const sm90_kernel *k, consumer_role *c, const key_walk *w)
{
    val more = logical_not(attention_key_walk_is_last(w));
    if (attention_sm90_streams(k->cfg)) {
        IF(attention_key_walk_is_last(w)) {
            release_stored(k, c);
            attention_sm90_next_tile(k, c->walk, false);
            IF(lt(c->walk->number, k->tiles)) {
                attention_sm90_next_queries(k, &c->q);
                pipeline_wait_full(&k->q, &c->q);
            }
        }
        more = lt(c->walk->number, k->tiles);
    }
    IF(more)
        pipeline_wait_full(&k->ring, &c->at);
    assign(c->next, shuffle(select(more, c->at.stage, c->slot), imm(0)));
    IF(more)
        pipeline_advance(&c->at);
    mma_fence();
    issue_scores(k, c, shuffle(c->next, imm(0)));
}

/* Products leave their registers: as exponents by old maxima, or as scores. */
static void take_products(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w)
{
    IF(ne(c->exact, imm(0))) {
        attention_copy_scores(c->products, c->scores);
        make_scores(k, c, t, w);
        mask_scores(k, c, t, w);
    }
    ELSE
    {
        block_scores custom;
        const raw_scores raw = raw_of(k, c, t, w, &custom);
        if (raw.score)
            attention_custom_share_begin();
        attention_online_exponents(&c->rows, c->products, c->scores, &raw);
        if (raw.score)
            attention_custom_share_end();
    }
}

/*
 * The same with exponents apart: scores of the block behind this one, and the product of the one before, run under this
 * one's exponentials. On entry and on exit nothing is under way, and products are complete.
 */
static void step_apart(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w)
{
    take_products(k, c, t, w);
    begin_turn(k, c);
    if (!(k->cfg->probe & 16))
        issue_ahead(k, c, w);
    pipeline_wait_full(&k->ring, &c->at);
    const val values = take_slot(c);
    mma_fence();
    issue_product(c, values);
    if (k->cfg->probe & 16)
        issue_ahead(k, c, w);
    end_turn(k, c);
    soften(k, c, t, w, c->slot);
    look_ahead(k, c, t, sub(w->block, imm(1)));
    mma_wait(0);
    release(k, c, &k->ring, c->slot);
    release(k, c, &k->ring, values);
    assign(c->slot, c->next);
    accumulators_to_A(c->scores, k->form->dtype, c->weights);
    IF(ne(c->lowered, imm(0)))
        attention_scale_rows(c->out, c->rows.factor);
}

/*
 * The scores of a block, and the product of the block before, which overlaps the softmax. On entry the ring's next slot
 * has arrived; on exit that of the next step has.
 */
static void step(const sm90_kernel *k, consumer_role *c, const tile *t, const key_walk *w)
{
    val keys = take_slot(c);
    begin_turn(k, c);
    mma_fence();
    issue_scores(k, c, keys);
    pipeline_wait_full(&k->ring, &c->at);
    val values = take_slot(c);
    mma_fence();
    issue_product(c, values);
    end_turn(k, c);
    if (may_be_exact(k, c))
        look_ahead(k, c, t, w->block);
    mma_wait(k->cfg->probe & 32 ? 0 : 1);
    if (!k->cfg->old)
        release(k, c, &k->ring, keys);
    if (k->cfg->probe & 32)
        release(k, c, &k->ring, values);
    shape_scores(k, c, t, w);
    soften(k, c, t, w, keys);
    if (k->cfg->old)
        release(k, c, &k->ring, keys);
    if (!(k->cfg->probe & 32)) {
        mma_wait(0);
        release(k, c, &k->ring, values);
    }
    if (!(k->cfg->probe & 32) || !may_be_exact(k, c))
        accumulators_to_A(c->scores, k->form->dtype, c->weights);
    if (k->cfg->old)
        IF(ne(c->lowered, imm(0)))
            attention_scale_rows(c->out, c->rows.factor);
    if (is_lazy(k->cfg))
        attention_rescale_rows(c->out, c->rows.factor, c->rows.count);
    else if (!k->cfg->old)
        attention_scale_rows(c->out, c->rows.factor);
    pipeline_wait_full(&k->ring, &c->at);
}

/*
 * out = the sum of a tile's weighted values, except the last block's. The first scores are already issued. Where there
 * is one block the queries are released as soon as its scores are complete, so those of the next tile come under the
 * softmax.
 */
static void attend(const sm90_kernel *k, consumer_role *c, const tile *t, val keys)
{
    c->custom = attention_custom_score_of(k->form, &k->p, t->head);
    mma_wait(0);
    if (!k->cfg->apart)
        release(k, c, &k->ring, keys);
    key_walk w = attention_key_walk_begin(&c->custom, &k->grid, t, true);
    if (k->cfg->single)
        release_queries(k, c);
    fill(c->out, immf(0));
    attention_online_rows_reset(&c->rows);
    const tile_rows rows = rows_of(k, c, t);
    if (k->cfg->apart) {
        assign(c->slot, keys);
        attention_copy_scores(c->products, c->scores);
        issue_ahead(k, c, &w);
    }
    make_scores(k, c, t, &w);
    attention_mask_block(&rows, w.block, c->scores); // a tile's last block of keys may reach past the last key
    attention_online_softmax(&c->rows, c->scores, NULL);
    release_stored(k, c);
    accumulators_to_A(c->scores, k->form->dtype, c->weights);
    if (k->cfg->apart) {
        look_ahead(k, c, t, sub(w.block, imm(1)));
        mma_wait(0);
        release(k, c, &k->ring, keys);
        assign(c->slot, c->next);
    } else
        pipeline_wait_full(&k->ring, &c->at);
    if (!k->cfg->single) {
        FOREVER {
            attention_key_walk_look(&w);
            BREAK_IF(attention_key_walk_is_last(&w));
            attention_key_walk_advance(&w);
            if (k->cfg->apart)
                step_apart(k, c, t, &w);
            else
                step(k, c, t, &w);
        }
        release_queries(k, c);
    }
    if (k->cfg->apart)
        pipeline_wait_full(&k->ring, &c->at);
    assign(c->stored, c->own);
}

/* Stores O through the staging buffers by TMA, a chunk at a time. */
static void store(const sm90_kernel *k, consumer_role *c, const tile *t)
{
    int subtile = k->dv.subtile, buffers = k->cfg->queries == 1 ? staged_columns(k->dv).chunks : k->dv.chunks;
    tiled_mma mma = attention_warpgroup_mma(k->form->dtype, subtile, "SS");
    staged_store staged = { add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP, c->first_thread };
    for (int i = 0; i < k->dv.chunks; i++) {
        tensor sO = slice(k->sO, _, _, i % buffers, k->cfg->queries == 1 ? c->index : c->stored); // (ROWS,CHUNK)
        staging_wait(&staged, i == 0 && k->dv.chunks % buffers ? 0 : buffers - 1);
        for (int j = 0; j < k->dv.chunk && i * k->dv.chunk + j < k->dv.used; j += subtile) {
            tensor acc = slice(accumulator_columns(c->out, i * k->dv.chunk + j, subtile), _, 0, _);
            stmatrix_C(&mma, acc, local_tile(sO, shape(ROWS, subtile), coord(0, j / subtile)), warpgroup_thread());
        }
        STAGED_STORE(&staged) {
            const tile_place at = attention_place_of(&k->grid, t->head, false);
            const val row = add(t->row, mul(c->index, imm(ROWS)));
            const tile_box box = attention_box_of(k->form->ragged, t->s.q_at, t->s.q, row, &at);
            tma_store_of(&k->tmaO, sO, box.row, imm(i * k->dv.chunk), box.count, box.outer);
        }
    }
}

static void finish(const sm90_kernel *k, consumer_role *c, const tile *t)
{
    attention_online_rows_finish(&c->rows, attention_sink_of(&k->grid, t->head));
    attention_scale_rows(c->out, c->rows.factor);
    if (k->form->lse) {
        tile_rows rows = rows_of(k, c, t);
        attention_store_logarithms(&rows, &c->rows, t->head);
    }
    if (k->cfg->queries == 2)
        mma_wait(0); // the next scores, as there may be none: then they are of the queries in whose place O goes
    store(k, c, t);
}

/*
 * The first scores of the next tile are issued before this one's O is stored. After the last tile they are issued all
 * the same, on whatever shared memory holds: wgmma in a branch would be serialised.
 */
static void consume_tiles(const sm90_kernel *k, consumer_role *c, walk *w)
{
    pipeline_wait_full(&k->q, &c->q);
    pipeline_wait_full(&k->ring, &c->at);
    val keys = variable(U32, take_slot(c));
    mma_fence();
    issue_scores(k, c, keys);
    if (attention_sm90_streams(k->cfg)) {
        c->walk = w;
        FOREVER {
            const tile t = attention_sm90_tile_of(k, w->number);
            assign(c->own, c->q.stage);
            attend(k, c, &t, keys);
            val values = take_slot(c);
            mma_fence();
            issue_product(c, values);
            assign(keys, c->slot);
            mma_wait(0);
            release(k, c, &k->ring, values);
            finish(k, c, &t);
            BREAK_IF(ge(w->number, k->tiles));
        }
        release_stored(k, c);
        return;
    }
    FOREVER {
        const tile t = attention_sm90_tile_of(k, w->number);
        assign(c->own, c->q.stage);
        attend(k, c, &t, keys);
        val values = take_slot(c);
        mma_fence();
        issue_product(c, values);
        attention_sm90_next_tile(k, w, false);
        val is_next = lt(w->number, k->tiles), more = k->cfg->parts ? lt(w->number, c->tiles) : is_next;
        IF(is_next) {
            attention_sm90_next_queries(k, &c->q);
            pipeline_wait_full(&k->q, &c->q);
            pipeline_wait_full(&k->ring, &c->at);
        }
        assign(keys, shuffle(select(is_next, c->at.stage, keys), imm(0)));
        if (k->cfg->parts) {
            IF(more) // else let_pass() takes the slot
                pipeline_advance(&c->at);
        } else
            pipeline_advance(&c->at);
        mma_fence();
        issue_scores(k, c, keys);
        mma_wait(1);
        release(k, c, &k->ring, values);
        finish(k, c, &t);
        BREAK_IF(logical_not(more));
    }
    mma_wait(0);
    release_stored(k, c);
}

static void pass_slots(const sm90_kernel *k, consumer_role *c)
{
    for (int i = 0; i < 2; i++) { // of K and of V
        pipeline_wait_full(&k->ring, &c->at);
        release(k, c, &k->ring, take_slot(c));
    }
}

/* Parts are the first consumer's: the others release what has come for them, and pass the turn on. */
static void let_pass(const sm90_kernel *k, consumer_role *c, walk *w)
{
    FOREVER {
        BREAK_IF(ge(w->number, k->tiles));
        const tile t = attention_sm90_tile_of(k, w->number);
        pipeline_wait_full(&k->q, &c->q);
        assign(c->stored, c->q.stage);
        release_queries(k, c);
        release_stored(k, c);
        attention_sm90_next_queries(k, &c->q);
        pass_slots(k, c);
        LOOP_FROM(block, add(t.first, imm(1)), t.end, imm(1)) {
            begin_turn(k, c);
            pass_slots(k, c);
            end_turn(k, c);
        }
        attention_sm90_next_tile(k, w, false);
    }
}

static void consumer(const sm90_kernel *k)
{
    const int registers = CONSUMER_REGISTERS[k->cfg->consumers][k->cfg->ctas];
    if (registers)
        warpgroup_reg_alloc(registers);
    consumer_role c = describe_consumer(k);
    walk w = attention_sm90_walk();
    if (has_turns(k->cfg))
        IF(eq(c.index, imm(k->cfg->consumers - 1)))
            end_turn(k, &c); // consumer 0 begins
    attention_sm90_next_tile(k, &w, false);
    IF(lt(w.number, c.tiles))
        consume_tiles(k, &c, &w);
    if (k->cfg->parts)
        IF(ne(c.index, imm(0)))
            let_pass(k, &c, &w);
    IF(c.first_thread)
        tma_store_wait(0);
}

void attention_sm90(const void *config, int kernel)
{
    const attention_sm90_config *cfg = config;
    (void)kernel;
    launch_bounds(WARPGROUP * (1 + cfg->consumers), cfg->ctas); // also lets setmaxnreg move registers between the roles
    sm90_kernel k = describe_kernel(cfg);
    k.grid = (tile_grid){ &cfg->form, &k.p, cfg->consumers * ROWS, cfg->tile_n };
    k.tiles = k.p.tiles;
    if (cfg->parts) {
        k.whole = mul(div(k.p.tiles, grid_x()), grid_x());
        k.tiles = add(k.whole, mul(sub(k.p.tiles, k.whole), imm(cfg->consumers)));
    }
    initialise(&k);
    IF(lt(warp(), imm(WARPGROUP / 32))) {
        attention_sm90_produce(&k);
    }
    ELSE
    {
        consumer(&k);
    }
}
