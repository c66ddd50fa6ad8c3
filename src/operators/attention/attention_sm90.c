/*
 * attention_sm90.c - attention forward for Hopper, after FlashAttention-3 (Shah et al., arXiv:2407.08608).
 *
 *   warpgroup 0       producer: a warp brings Q of a tile and its blocks of K and V by TMA, these through one ring
 *                     in the order in which they are used: K0 K1 V0 K2 V1 ...
 *   warpgroups 1..    consumers: 64 queries each. The scores of the next block and the product of this block's weights
 *                     with V are under way together; the softmax of the next block runs under the latter
 *
 * Persistent. Blocks of keys are taken from the last to the first, so that those with a mask come first. The consumers
 * take turns to issue products, so that one's softmax runs under the other's products.
 *
 * Where maxima are old (attention_sm90_weights.c) every warp releases the slots of the ring, as each may need the keys
 * again.
 */
#include "operators/attention/attention_sm90.h"

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
              own = moved ? moved : launched, scores = c->tile_n / 2, out = attention_columns_of(c->form.dv).used / 2;
    const bool is_plain = !c->form.softcap && !c->form.mask && !attention_score_find(c->form.score) && !c->old;
    return scores + REST <= launched && out + OF_WEIGHTS + REST <= launched &&
           scores + scores / 2 + (is_plain ? 0 : scores / 4) + out + REST + MORE <= own;
}

static bool has_turns(const attention_sm90_config *c)
{
    return c->consumers > 1 && !c->single;
}

/* Is O rescaled only where a weight would exceed 2^SLACK? Of 256 columns 822 -> 776 us. */
static bool is_lazy(const attention_sm90_config *c)
{
    return c->form.dv > 128 && !c->single;
}

void attention_sm90_advance_queries(const sm90_kernel *k, pipeline_state *q)
{
    if (k->cfg->queries == 1)
        assign(q->parity, bit_xor(q->parity, imm(1)));
    else
        pipeline_advance_by(q, imm(k->cfg->consumers));
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

int64_t attention_sm90_smem(const attention_sm90_config *c)
{
    columns d = attention_columns_of(c->form.d), dv = attention_columns_of(c->form.dv);
    int64_t q = attention_columns_bytes(d, ROWS), o = attention_columns_bytes(staged_columns(dv), ROWS);
    const int64_t tiles = c->consumers * c->queries;
    return tiles * q + c->consumers * o + c->slots * slot_bytes(c) + 16 * (c->slots + tiles) +
           (c->draw ? scheduler_bytes(FETCHES) : 0);
}

static void describe_shared_memory(sm90_kernel *k)
{
    const attention_sm90_config *cfg = k->cfg;
    ckl_dtype dtype = k->form->dtype;
    int64_t slot = slot_bytes(cfg) / 2;
    const int queries = cfg->consumers * cfg->queries;
    k->sQ = attention_chunks("Q", dtype, k->d, ROWS, queries);
    tensor sRing = smem_tensor("K and V", dtype, make_layout(shape(slot, cfg->slots), stride(1, slot)), 1024);
    k->sK = tensor_with_layout(sRing, attention_chunks_apart(dtype, k->d, cfg->tile_n, cfg->slots, slot));
    k->sV = tensor_with_layout(sRing, attention_chunks_apart(dtype, k->dv, cfg->tile_n, cfg->slots, slot));
    k->sO = attention_chunks("O", dtype, staged_columns(k->dv), ROWS, cfg->consumers);
    const int releases = cfg->old ? WARPGROUP / 32 : 1; // of a consumer: release()
    k->q = make_pipeline("Q barriers", queries, 1, releases);
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
    prefetch_early(32, k->p.early, k->p.early_bytes, ATTENTION_O);
    cta_sync();
    grid_wait(); // what is above overlaps the end of the kernel before
    launch_dependents();
}

/* Consumers */

/* What its next scores are of: the tile of Q that it is at. */
static void find_queries(const sm90_kernel *k, consumer_role *c)
{
    const val at = k->cfg->queries == 1 ? c->index : shuffle(c->q.stage, imm(0));
    c->keys = attention_score_operands_of(&c->qk, k->d, k->sQ, at, k->sK);
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
    c.out = fragment_C(&c.pv, ROWS, k->dv.used);
    c.weights = fragment_A_words(&c.pv, ROWS, bn);
    c.sO = slice(k->sO, _, _, _, c.index);
    c.rows = attention_online_rows_begin(attention_online_row_count(c.scores), k->p.exponent);
    c.rows.slack = is_lazy(cfg) ? SLACK : 0;
    if (cfg->old || k->form->softcap)
        c.exact = variable(U32, imm(0));
    if (cfg->old)
        c.lowered = variable(U32, imm(0));
    if (cfg->old && k->form->softcap)
        for (int r = 0; r < c.rows.count; r++)
            c.limit[r] = variable(F32, immf(0));
    c.tiles = cfg->parts ? select(eq(c.index, imm(0)), k->tiles, k->whole) : k->tiles;
    c.at = consumer_state(&k->ring);
    c.q = (pipeline_state){ c.index, variable(U32, imm(0)), k->q.stages };
    if (cfg->queries > 1)
        c.q.stage = variable(U32, c.index);
    find_queries(k, &c);
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

/* out += weights * V; asynchronous. */
static void issue_product(consumer_role *c, val slot)
{
    gemm(&c->pv, c->weights, slice(c->tCrV, _, _, slot), c->out, yes());
    mma_commit();
}

/*
 * The scores of a block, and the product of the block before, which overlaps the softmax. On entry the ring's next slot
 * has arrived; on exit that of the next step has.
 */
static void step(const sm90_kernel *k, consumer_role *c, const key_walk *w)
{
    val keys = take_slot(c);
    begin_turn(k, c);
    mma_fence();
    attention_issue_scores(&c->qk, &c->keys, keys, c->scores);
    pipeline_wait_full(&k->ring, &c->at);
    val values = take_slot(c);
    mma_fence();
    issue_product(c, values);
    end_turn(k, c);
    attention_sm90_look_ahead(k, c, w);
    mma_wait(1);
    if (!k->cfg->old)
        release(k, c, &k->ring, keys);
    attention_sm90_weigh(k, c, w, keys);
    if (k->cfg->old)
        release(k, c, &k->ring, keys);
    mma_wait(0);
    release(k, c, &k->ring, values);
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
    release(k, c, &k->ring, keys);
    key_walk w = attention_key_walk_begin(&c->custom, &k->grid, t);
    if (k->cfg->single)
        release(k, c, &k->q, c->q.stage);
    fill(c->out, immf(0));
    attention_sm90_weigh_first(k, c, &w);
    accumulators_to_A(c->scores, k->form->dtype, c->weights);
    pipeline_wait_full(&k->ring, &c->at);
    if (!k->cfg->single) {
        FOREVER {
            attention_key_walk_look(&w);
            BREAK_IF(attention_key_walk_is_last(&w));
            attention_key_walk_advance(&w);
            step(k, c, &w);
        }
        release(k, c, &k->q, c->q.stage);
    }
}

/* Stores O through the staging buffers by TMA, a chunk at a time. */
static void store(const sm90_kernel *k, consumer_role *c, const tile *t)
{
    int buffers = staged_columns(k->dv).chunks;
    staged_store staged = { add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP, c->first_thread };
    for (int i = 0; i < k->dv.chunks; i++) {
        tensor sO = local_tile(c->sO, shape(ROWS, k->dv.chunk, 1), coord(0, 0, i % buffers)); // (ROWS,CHUNK,1)
        columns of_chunk = k->dv;
        of_chunk.used = (int)min_i64(k->dv.chunk, k->dv.used - i * k->dv.chunk);
        staging_wait(&staged, i == 0 && k->dv.chunks % buffers ? 0 : buffers - 1);
        attention_store_chunks(c->out, i * k->dv.chunk, sO, of_chunk);
        STAGED_STORE(&staged) {
            const tile_place at = attention_place_of(&k->grid, t->head, false);
            const val row = add(t->row, mul(c->index, imm(ROWS)));
            const tile_box box = attention_box_of(k->form->ragged, t->s.q_at, t->s.q, row, &at);
            tma_store_of(&k->tmaO, slice(sO, _, _, 0), box.row, imm(i * k->dv.chunk), box.count, box.outer);
        }
    }
}

static void finish(const sm90_kernel *k, consumer_role *c, const tile *t)
{
    attention_online_rows_finish(&c->rows, attention_sink_of(&k->grid, t->head));
    attention_scale_rows(c->out, c->rows.factor);
    if (k->form->lse) {
        const tile_rows rows = attention_sm90_rows_of(k, c, t);
        attention_store_logarithms(&rows, &c->rows, t->head);
    }
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
    attention_issue_scores(&c->qk, &c->keys, keys, c->scores);
    FOREVER {
        const tile t = attention_sm90_tile_of(k, w->number);
        if (k->cfg->queries > 1)
            find_queries(k, c);
        attend(k, c, &t, keys);
        val values = take_slot(c);
        mma_fence();
        issue_product(c, values);
        attention_sm90_next_tile(k, w, false);
        val is_next = lt(w->number, k->tiles), more = k->cfg->parts ? lt(w->number, c->tiles) : is_next;
        IF(is_next) {
            attention_sm90_advance_queries(k, &c->q);
            pipeline_wait_full(&k->q, &c->q);
            pipeline_wait_full(&k->ring, &c->at);
        }
        assign(keys, shuffle(select(is_next, c->at.stage, keys), imm(0)));
        if (k->cfg->parts) {
            IF(more) // else let_pass() takes the slot
                pipeline_advance(&c->at);
        } else
            pipeline_advance(&c->at);
        if (k->cfg->queries > 1)
            find_queries(k, c);
        mma_fence();
        attention_issue_scores(&c->qk, &c->keys, keys, c->scores);
        mma_wait(1);
        release(k, c, &k->ring, values);
        finish(k, c, &t);
        BREAK_IF(logical_not(more));
    }
    mma_wait(0);
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
        release(k, c, &k->q, c->q.stage);
        attention_sm90_advance_queries(k, &c->q);
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
