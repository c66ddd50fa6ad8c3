/*
 * attention_sm80.c - attention forward for every GPU from sm_80 on, after FlashAttention-2 (Dao, arXiv:2307.08691):
 * mma.sync on tiles loaded by cp.async. All warps share the blocks of K and V; each has rows of Q and O of its own.
 *
 * With two stages the next block is loaded while this one is used. With one, each is loaded, waited for and used: the
 * simplest kernel on tensor cores.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_score.h"

enum { SLACK = 8 }; // bits of a weight: far from what 16 bits hold

/* Everything that the steps share. Letters: Q (BM,D), K (BN,D), V (BN,DV), O (BM,DV). */
typedef struct sm80_kernel {
    const attention_sm80_config *cfg;
    attention_values p;
    columns d, dv;
    int rows, threads;
    tile_grid grid;
    tensor sQ;     // (BM,CHUNK,CHUNKS)
    tensor sK, sV; // (BN,CHUNK,CHUNKS,STAGES)
    tensor sVt;    // (DV,BN,STAGES)
    tiled_mma mma;
    tensor scores, out; // (MMA,MMA_M,MMA_N)
    tensor weights;     // (PAIRS,MMA_M,MMA_K)
    tile_place keys;    // of the tile's K and V: found once, as divisions take long
    online_rows online;
    custom_score custom;
} sm80_kernel;

int64_t attention_sm80_smem(const attention_sm80_config *c)
{
    columns d = attention_columns_of(c->form.d), dv = attention_columns_of(c->form.dv);
    return attention_columns_bytes(d, c->warps * c->warp_rows) +
           c->stages * (attention_columns_bytes(d, c->tile_n) + attention_columns_bytes(dv, c->tile_n));
}

int attention_sm80_rows_loaded(const attention_sm80_config *c)
{
    columns d = attention_columns_of(c->form.d), dv = attention_columns_of(c->form.dv);
    return c->warps * 32 / ((d.chunk < dv.chunk ? d.chunk : dv.chunk) / VECTOR);
}

static sm80_kernel describe_kernel(const attention_sm80_config *cfg)
{
    sm80_kernel k = { .cfg = cfg, .d = attention_columns_of(cfg->form.d), .dv = attention_columns_of(cfg->form.dv) };
    ckl_dtype dtype = cfg->form.dtype;
    k.rows = cfg->warps * cfg->warp_rows;
    k.threads = 32 * cfg->warps;
    k.p = params_of(attention);
    k.sQ = slice(attention_chunks("Q", dtype, k.d, k.rows, 1), _, _, _, 0);
    k.sK = attention_chunks("K", dtype, k.d, cfg->tile_n, cfg->stages);
    k.sV = attention_chunks("V", dtype, k.dv, cfg->tile_n, cfg->stages);
    k.sVt = attention_transposed_chunks(k.sV, k.dv);
    k.mma = attention_warps_mma(dtype, cfg->warps);
    k.scores = fragment_C(&k.mma, k.rows, cfg->tile_n);
    k.out = fragment_C(&k.mma, k.rows, k.dv.used);
    k.weights = fragment_A_words(&k.mma, k.rows, cfg->tile_n);
    k.online = attention_online_rows_begin(attention_online_row_count(k.scores), k.p.exponent);
    k.online.slack = cfg->stages == 2 ? SLACK : 0;
    return k;
}

/* Loads */

/* (TOKENS,D) of a head of one of the tensors. */
static tensor head_of(const sm80_kernel *k, int which, const tile *t)
{
    const bool of_keys = which == ATTENTION_K || which == ATTENTION_V;
    const tile_place at = of_keys ? k->keys : attention_place_of(&k->grid, t->head, false);
    int d = which == ATTENTION_Q || which == ATTENTION_K ? k->cfg->form.d : k->cfg->form.dv;
    layout heads = make_layout(shape(of_keys ? t->s.kv : t->s.q, d, k->p.all_heads, k->p.all_heads),
                               stride(k->p.ld[which], 1, k->p.ld_head[which], k->p.ld_batch[which]));
    tensor gX = gmem_tensor(k->p.x[which], k->cfg->form.dtype, heads);
    if (k->cfg->form.ragged)
        gX.address = tensor_address(gX, coord(of_keys ? t->s.kv_at : t->s.q_at, 0, 0, 0));
    return slice(gX, _, _, at.head, at.batch);
}

/* Starts the copies of rows of a head, from block * rows on, into chunks (ROWS,CHUNK,CHUNKS). Outside of it is 0. */
static void load_rows(const sm80_kernel *k, tensor gX, tensor sX, columns c, val block)
{
    int rows = (int)static_size(layout_mode(sX.layout, 0)), across = c.chunk / VECTOR;
    layout threads = compact_right(shape(k->threads / across, across));
    tiled_copy each =
        make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<128>", k->cfg->form.dtype, threads, compact(shape(1, VECTOR)));
    int_tuple limits = gX.layout.shape;
    for (int i = 0; i < c.chunks; i++) {
        tensor cX = local_tile(identity_tensor(limits), shape(rows, c.chunk), coord(block, i)); // (ROWS,CHUNK)
        tensor gTile = local_tile(gX, shape(rows, c.chunk), coord(block, i));                   // (ROWS,CHUNK)
        copy_if(&each, partition_S(&each, cX, thread()), limits, partition_S(&each, gTile, thread()),
                partition_D(&each, slice(sX, _, _, i), thread()), 0);
    }
}

static void load_block(const sm80_kernel *k, const tile *t, val block, val stage)
{
    load_rows(k, head_of(k, ATTENTION_K, t), slice(k->sK, _, _, _, stage), k->d, block);
    load_rows(k, head_of(k, ATTENTION_V, t), slice(k->sV, _, _, _, stage), k->dv, block);
}

/* Products */

/* scores = Q * K^T of a stage, 16 columns of them at a time. */
static void multiply_keys(const sm80_kernel *k, val stage)
{
    int bn = k->cfg->tile_n;
    fill(k->scores, immf(0));
    for (int at = 0; at < k->d.used; at += STEP) {
        int_tuple step = coord(0, at % k->d.chunk / STEP);
        tensor sQ = slice(k->sQ, _, _, at / k->d.chunk), sK = slice(k->sK, _, _, at / k->d.chunk, stage);
        tensor rQ = fragment_A(&k->mma, k->rows, STEP), rK = fragment_B(&k->mma, bn, STEP);
        ldmatrix_A(&k->mma, local_tile(sQ, shape(k->rows, STEP), step), thread(), rQ);
        ldmatrix_B(&k->mma, local_tile(sK, shape(bn, STEP), step), thread(), rK);
        gemm(&k->mma, rQ, rK, k->scores, yes());
    }
}

/* Steps */

static tile_rows rows_of(const sm80_kernel *k, const tile *t)
{
    return (tile_rows){ &k->grid, &t->s, &k->mma, t->row, thread(), k->rows };
}

static void use_block(sm80_kernel *k, const tile *t, const key_walk *w, val stage)
{
    val block = w->block;
    tile_rows rows = rows_of(k, t);
    multiply_keys(k, stage);
    attention_make_scores(w, &rows, k->scores);
    IF(attention_block_is_cut(&rows, block))
        attention_mask_block(&rows, block, k->scores);
    attention_online_softmax(&k->online, k->scores, NULL);
    accumulators_to_A(k->scores, k->cfg->form.dtype, k->weights);
    if (k->online.slack)
        attention_rescale_rows(k->out, k->online.factor, k->online.count);
    else
        attention_scale_rows(k->out, k->online.factor);
    attention_multiply_values(&k->mma, k->weights, slice(k->sVt, _, _, stage), k->dv, false, k->out);
}

/*
 * Goes through blocks from the last to the first. After each barrier this block has arrived, and all threads are done
 * with the one before.
 */
static void attend(sm80_kernel *k, const tile *t)
{
    k->custom = attention_custom_score_of(&k->cfg->form, &k->p, t->head);
    key_walk w = attention_key_walk_begin(&k->custom, &k->grid, t);
    val stage = variable(U32, imm(0));
    k->keys = attention_place_of(&k->grid, t->head, true);
    load_rows(k, head_of(k, ATTENTION_Q, t), k->sQ, k->d, div(t->row, imm(k->rows)));
    load_block(k, t, w.block, stage);
    cp_async_commit();
    FOREVER {
        cp_async_wait(0);
        cta_sync();
        attention_key_walk_look(&w);
        if (k->cfg->stages == 2) {
            IF(logical_not(attention_key_walk_is_last(&w)))
                load_block(k, t, attention_key_walk_next(&w), sub(imm(1), stage));
            cp_async_commit();
        }
        use_block(k, t, &w, stage);
        BREAK_IF(attention_key_walk_is_last(&w));
        attention_key_walk_advance(&w);
        if (k->cfg->stages == 2)
            assign(stage, sub(imm(1), stage));
        else {
            cta_sync(); // all are done with the block
            load_block(k, t, w.block, stage);
            cp_async_commit();
        }
    }
}

/* O from registers, two elements at a time: rows and columns past the last ones stay as they are. */
static void store(const sm80_kernel *k, const tile *t)
{
    int subtile = k->dv.subtile, atoms_m = (int)static_size(layout_mode(k->out.layout, 1));
    tensor gO = head_of(k, ATTENTION_O, t); // (Q,DV)
    int_tuple limits = gO.layout.shape, tiler = shape(k->rows, subtile);
    tiled_copy each = make_tiled_copy_C("UniversalCopy<32>", k->cfg->form.dtype, &k->mma, k->rows, subtile);
    val m = div(t->row, imm(k->rows));
    for (int i = 0; i < k->dv.used / subtile; i++) {
        tensor cO = partition_D(&each, local_tile(identity_tensor(limits), tiler, coord(m, i)), thread());
        tensor tOgO = partition_D(&each, local_tile(gO, tiler, coord(m, i)), thread());
        copy_if(&each, cO, limits, local_tile(k->out, shape(4, atoms_m, subtile / 8), coord(0, 0, i)), tOgO, 0);
    }
}

void attention_sm80(const void *config, int kernel)
{
    const attention_sm80_config *cfg = config;
    (void)kernel;
    launch_bounds(32 * cfg->warps, 0);
    sm80_kernel k = describe_kernel(cfg);
    k.grid = (tile_grid){ &cfg->form, &k.p, k.rows, cfg->tile_n };
    prefetch_early(0, k.p.early, k.p.early_bytes, ATTENTION_O);
    grid_wait();
    launch_dependents();
    tile t = attention_tile_of(&k.grid, cta_x());
    tile_rows rows = rows_of(&k, &t);
    attention_online_rows_reset(&k.online);
    fill(k.out, immf(0));
    attend(&k, &t);
    attention_online_rows_finish(&k.online, attention_sink_of(&k.grid, t.head));
    attention_scale_rows(k.out, k.online.factor);
    if (cfg->form.lse)
        attention_store_logarithms(&rows, &k.online, t.head);
    store(&k, &t);
}
