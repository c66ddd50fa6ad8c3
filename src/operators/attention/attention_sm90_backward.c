/*
 * attention_sm90_backward.c - attention's gradients for Hopper, as two kernels of one shape, each of which computes all weights
 * anew (seven products instead of five), so that every sum has one owner and a fixed order, without workspace for dQ:
 *
 *                   rows (64 a warpgroup)     blocks that go by     sums
 *   of keys         X1 = K, X2 = V            Y1 = Q, Y2 = dO       dK += dS * Q, dV += P * dO
 *   of queries      X1 = Q, X2 = dO           Y1 = K, Y2 = V        dQ += dS * K
 *
 * scores = X1 * Y1^T give the weights P = 2^(scores - lse), slopes = X2 * Y2^T the gradient dS = P * (slopes - delta). Rounded to
 * 16 bits these accumulators are the first operand of the sums' products as they stand in registers, and Y is the second, so
 * nothing but Y passes through shared memory. One thread brings blocks of Y by TMA, a second warp the stats of queries by ordinary
 * loads and stores, because reading what a bulk copy brought would want a proxy fence in every step. Where registers do not hold dK and dV together, a kernel of values has dV alone. Before all of them, a kernel gives lse and delta = dO * O of every query; a last one adds up the gradients of
 * sinks.
 */
#include <stdio.h>

#include "cute/kernel.h"
#include "operators/attention/attention_score.h"
#include "operators/attention/attention_scores.h"

enum {
    WARPGROUP = 128,
    ROWS = ATTENTION_ROWS,
    BARRIER_CONSUMER = 1, // named barriers, + consumer: its 128 threads before they store
    CHUNKS_MAX = 4,
    STATS = ATTENTION_STATS,
    STATS_EACH = 4,   // of a lane: blocks of up to 128
    COLUMNS_MAX = 64, // of a block, that a thread has values of in a row
};

/* The kernels. */
enum { OF_STATS, OF_KEYS, OF_QUERIES, OF_SINKS, OF_VALUES };

/* Everything the roles share. Letters: rows (ROWS), tokens of a block (BN). */
typedef struct backward_kernel {
    const attention_sm90_backward_config *cfg;
    attention_form form;
    attention_values p;
    bool of_keys;
    bool with_d1, with_d2; // dK or dQ; dV
    bool overlap;          // a block's sums run under the scores of the next one
    int block;             // BN
    columns d, dv;
    tma_copy tmaX1, tmaX2, tmaY1, tmaY2, tmaD1, tmaD2;
    tensor sX1, sX2; // (ROWS,CHUNK,CHUNKS,CONSUMERS)
    tensor sY1, sY2; // (BN,CHUNK,CHUNKS,STAGES)
    tensor sStats;   // (BN,STATS,STAGES)
    pipeline x, ring;
    val row;         // the CTA's first
    val head, batch; // of the rows
    val x_at, y_at;  // where the sequences of X and Y begin, if ragged
    val first, end;  // blocks
    val heads;       // heads of Y for one of X
} backward_kernel;

static int span_of(columns c)
{
    return 2 * c.chunk; // bytes
}

int64_t attention_sm90_backward_smem(const attention_sm90_backward_config *c)
{
    const columns d = columns_of(c->form.d), dv = columns_of(c->form.dv);
    const int block = c->block > c->keys ? c->block : c->keys;
    int64_t x = columns_bytes(d, ROWS) + columns_bytes(dv, ROWS);
    int64_t y = columns_bytes(d, block) + columns_bytes(dv, block) + 4 * STATS * block;
    return c->consumers * x + c->stages * y + 16 * (1 + c->stages);
}

static int64_t bytes_of_block(const backward_kernel *k)
{
    return columns_bytes(k->d, k->block) + columns_bytes(k->dv, k->block);
}

static tensor tiles(const char *name, ckl_dtype dtype, columns c, int rows, int count)
{
    return smem_tensor(name, dtype, chunks_layout(dtype, c, rows, c.chunks, count, columns_bytes(c, rows) / 2), 1024);
}

static void describe_memory(backward_kernel *k)
{
    const attention_sm90_backward_config *c = k->cfg;
    ckl_dtype dtype = k->form.dtype;
    k->sX1 = tiles("X1", dtype, k->d, ROWS, c->consumers);
    k->sX2 = tiles("X2", dtype, k->dv, ROWS, c->consumers);
    k->sY1 = tiles("Y1", dtype, k->d, k->block, c->stages);
    k->sY2 = tiles("Y2", dtype, k->dv, k->block, c->stages);
    k->sStats = smem_tensor("stats", F32, compact(shape(k->block, STATS, c->stages)), 16);
    k->x = make_pipeline("X barriers", 1, 1, 1);
    k->ring = make_pipeline("ring", c->stages, k->of_keys ? 2 : 1,
                            c->consumers * WARPGROUP / 32); // each warp releases what it has read
}

static void describe_maps(backward_kernel *k)
{
    const attention_values *p = &k->p;
    ckl_dtype dtype = k->form.dtype;
    const int block = k->block, d = k->d.chunk, dv = k->dv.chunk, d_span = span_of(k->d), dv_span = span_of(k->dv);
    k->tmaX1 = make_tma(k->of_keys ? p->K : p->Q, dtype, 4, ROWS, d, d_span);
    if (k->with_d1)
        k->tmaX2 = make_tma(k->of_keys ? p->V : p->DO, dtype, 4, ROWS, dv, dv_span);
    k->tmaY1 = make_tma(k->of_keys ? p->Q : p->K, dtype, 4, block, d, d_span);
    k->tmaY2 = make_tma(k->of_keys ? p->DO : p->V, dtype, 4, block, dv, dv_span);
    if (k->with_d1)
        k->tmaD1 = make_tma(k->of_keys ? p->DK : p->DQ, dtype, 4, ROWS, d, d_span);
    if (k->with_d2)
        k->tmaD2 = make_tma(p->DV, dtype, 4, ROWS, dv, dv_span);
}

/* Rows and blocks */

/* The first block of Y, and the one behind the last, that some of the CTA's rows see: none where they are equal. */
static void find_blocks(backward_kernel *k)
{
    const attention_values *p = &k->p;
    const int block = k->block, rows = k->cfg->consumers * ROWS;
    val row = convert(I32, k->row), last_row = add(row, imm(rows - 1)),
        tokens = convert(I32, k->of_keys ? p->q : p->kv);
    val begin = imm_as(I32, 0), end = tokens;
    if (k->form.right && k->of_keys)
        begin = max(sub(row, p->last), begin);
    if (k->form.left && k->of_keys)
        end = min(add(sub(last_row, p->first), imm(1)), end);
    if (k->form.left && !k->of_keys)
        begin = max(add(row, p->first), begin);
    if (k->form.right && !k->of_keys)
        end = min(add(add(last_row, p->last), imm(1)), end);
    k->first = div(convert(U32, begin), imm(block));
    if (k->form.ragged)
        end = select(lt(k->row, k->of_keys ? p->kv : p->q), end, imm_as(I32, 0));
    k->end = max(div(add(convert(U32, max(end, imm_as(I32, 0))), imm(block - 1)), imm(block)), k->first);
}

/* From here on the problem is the sequence: its lengths and its diagonal. Rows past its end have no blocks. */
static void enter_sequence(backward_kernel *k)
{
    attention_values *p = &k->p;
    tile_grid grid = { .ragged = true, TILE_GRID_VALUES(*p) };
    const sequence s = sequence_of(&grid, k->batch);
    p->q = s.q;
    p->kv = s.kv;
    p->first = s.first;
    p->last = s.last;
    k->x_at = k->of_keys ? s.kv_at : s.q_at;
    k->y_at = k->of_keys ? s.q_at : s.kv_at;
}

/* The longest rows first where they differ, in heads whose Y fits L2. */
static void find_place(backward_kernel *k)
{
    const attention_values *p = &k->p;
    const int rows = k->cfg->consumers * ROWS;
    val kv_heads = div(p->heads, p->group), all = k->of_keys ? div(p->all_heads, p->group) : p->all_heads;
    val section = k->of_keys ? max(div(p->section, p->group), imm_as(U32, 1)) : p->section, number = cta_x();
    val tiles = div(add(k->of_keys ? p->kv : p->q, imm(rows - 1)), imm(rows)), of_section = mul(tiles, section);
    val first = mul(div(number, of_section), section), r = rem(number, of_section);
    val heads = min(section, sub(all, first)), m = div(r, heads), head = add(first, rem(r, heads));
    if (k->form.right && !k->of_keys)
        m = sub(sub(tiles, imm(1)), m);
    k->row = mul(m, imm(rows));
    k->head = rem(head, k->of_keys ? kv_heads : p->heads);
    k->batch = div(head, k->of_keys ? kv_heads : p->heads);
    k->heads = k->of_keys ? p->group : imm_as(U32, 1);
    if (k->form.ragged)
        enter_sequence(k);
    find_blocks(k);
}

/* The batch of the tensors, for TMA. */
static val batch_of_maps(const backward_kernel *k)
{
    return k->form.ragged ? imm_as(U32, 0) : k->batch;
}

/* Head number `i` of those of Y. */
static val head_of(const backward_kernel *k, val i)
{
    return k->of_keys ? add(mul(k->head, k->p.group), i) : div(k->head, k->p.group);
}

/* The steps of a CTA: blocks, once for every head of Y. */
typedef struct walk {
    val block, head;
    val kind; // of the block, i32, where a custom score has kinds
} walk;

/* The custom score in the head of Q of a step. */
static custom_score custom_of(const backward_kernel *k, const walk *w)
{
    val head = k->of_keys ? head_of(k, w->head) : k->head;
    return custom_score_of(&k->form, &k->p, add(mul(k->batch, k->p.heads), head));
}

static val is_over(const backward_kernel *k, const walk *w)
{
    return ge(w->head, k->heads);
}

static void turn_over(const backward_kernel *k, walk *w)
{
    val next = add(w->block, imm(1)), turn = eq(next, k->end);
    assign(w->head, add(w->head, select(turn, imm_as(U32, 1), imm_as(U32, 0))));
    assign(w->block, select(turn, k->first, next));
}

/* On to the next block that is not skipped. With `together` all lanes walk, and ptxas sees the numbers to be the same. */
static void skip_blocks(const backward_kernel *k, walk *w, bool together)
{
    const int rows = k->cfg->consumers * ROWS;
    FOREVER {
        BREAK_IF(is_over(k, w));
        const token_range of_x = { k->row, k->of_keys ? k->p.kv : k->p.q, rows };
        const token_range of_y = { mul(w->block, imm(k->block)), k->of_keys ? k->p.q : k->p.kv, k->block };
        custom_score custom = custom_of(k, w);
        assign(w->kind, k->of_keys ? custom_block(&custom, &of_y, &of_x) : custom_block(&custom, &of_x, &of_y));
        BREAK_IF(ne(w->kind, imm(CKL_ATTENTION_SKIP)));
        turn_over(k, w);
    }
    val *const numbers[] = { &w->block, &w->head, &w->kind };
    for (int i = 0; i < COUNT_OF(numbers) && together; i++)
        assign(*numbers[i], shuffle(*numbers[i], imm(0)));
}

static walk begin_walk(const backward_kernel *k, bool together)
{
    val none = eq(k->first, k->end), head = select(none, k->heads, imm_as(U32, 0));
    walk w = { .block = variable(U32, k->first), .head = variable(U32, head) };
    if (custom_blocks(&k->form)) {
        w.kind = variable(I32, imm(CKL_ATTENTION_SKIP));
        skip_blocks(k, &w, together);
    }
    return w;
}

static void advance(const backward_kernel *k, walk *w, bool together)
{
    turn_over(k, w);
    if (custom_blocks(&k->form))
        skip_blocks(k, w, together);
}

/* Producer */

static void load_chunks(const tma_copy *tma, tensor sTile, val row, const val *outer, val barrier)
{
    for (int c = 0; c < static_size(layout_mode(sTile.layout, 2)) && !ir_failed(); c++)
        tma_load_of(tma, slice(sTile, _, _, c), row, imm(c * tma->cols), 2, outer, barrier, imm(0));
}

static void load_x(const backward_kernel *k)
{
    pipeline_state at = producer_state(&k->x);
    const val outer[] = { k->head, batch_of_maps(k) };
    int64_t bytes = columns_bytes(k->d, ROWS) + (k->with_d1 ? columns_bytes(k->dv, ROWS) : 0);
    pipeline_expect(&k->x, &at, imm(k->cfg->consumers * (int)bytes));
    for (int w = 0; w < k->cfg->consumers; w++) {
        val row = add(k->row, imm(w * ROWS)), barrier = pipeline_full_barrier(&k->x, &at);
        row = k->form.ragged ? add(row, k->x_at) : row;
        load_chunks(&k->tmaX1, slice(k->sX1, _, _, _, w), row, outer, barrier);
        if (k->with_d1)
            load_chunks(&k->tmaX2, slice(k->sX2, _, _, _, w), row, outer, barrier);
    }
}

/* (ROWS_OF_STATS,STATS) of a head of Q. */
static tensor stats_of(const backward_kernel *k, val head)
{
    val all = add(mul(k->batch, k->p.heads), head), rows = convert(I64, k->p.stats_rows);
    return slice(gmem_tensor(k->p.stats, F32,
                             make_layout(shape(rows, STATS, k->p.all_heads), stride(1, rows, mul(rows, imm64(STATS))))),
                 _, _, all);
}

static void load_y(const backward_kernel *k, const walk *w, pipeline_state *at)
{
    const int block = k->block;
    val head = head_of(k, w->head), row = mul(w->block, imm(block));
    const val outer[] = { head, batch_of_maps(k) };
    row = k->form.ragged ? add(row, k->y_at) : row;
    pipeline_wait_empty(&k->ring, at);
    pipeline_expect(&k->ring, at, imm((int)bytes_of_block(k)));
    val barrier = pipeline_full_barrier(&k->ring, at);
    load_chunks(&k->tmaY1, slice(k->sY1, _, _, _, at->stage), row, outer, barrier);
    load_chunks(&k->tmaY2, slice(k->sY2, _, _, _, at->stage), row, outer, barrier);
    pipeline_advance(at);
}

/* The stats of a block, by a warp. They are loaded before the stage is free. */
static void load_stats(const backward_kernel *k, const walk *w, pipeline_state *at)
{
    const int each = (k->block + 31) / 32;
    tensor gStats = stats_of(k, head_of(k, w->head)); // (ROWS_OF_STATS,STATS)
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

static void stats_producer(const backward_kernel *k)
{
    pipeline_state at = producer_state(&k->ring);
    walk w = begin_walk(k, true);
    FOREVER {
        BREAK_IF(is_over(k, &w));
        load_stats(k, &w, &at);
        advance(k, &w, true);
    }
}

/* One thread. */
static void producer(const backward_kernel *k)
{
    if (k->cfg->consumers > 1)
        warpgroup_reg_dealloc(k->of_keys ? 32 : 24);
    IF(eq(warp(), imm(0))) {
        IF(elect()) {
            pipeline_state at = producer_state(&k->ring);
            walk w = begin_walk(k, false);
            load_x(k);
            FOREVER {
                BREAK_IF(is_over(k, &w));
                load_y(k, &w, &at);
                advance(k, &w, false);
            }
        }
    }
    if (k->of_keys)
        IF(eq(warp(), imm(1)))
            stats_producer(k);
}

/* Consumers */

/* One consumer's view: its operands, its sums, what it knows of its rows. */
typedef struct consumer_role {
    val index, first_thread;
    tiled_mma scores_mma, d1_mma, d2_mma;
    tensor tCrX1[CHUNKS_MAX], tCrX2[CHUNKS_MAX]; // (1,MMA_K)
    tensor tCrY1[CHUNKS_MAX], tCrY2[CHUNKS_MAX]; // (1,MMA_K,STAGES)
    tensor tCrY1t, tCrY2t;                       // (1,MMA_K,STAGES)
    tensor scores, slopes;                       // (MMA,1,1): weights later; their gradients
    tensor bends;                                // what a soft cap or a custom score makes of a slope, times the weight
    tensor weights, gradients;                   // (PAIRS,1,MMA_K)
    tensor d1, d2;                               // (MMA,1,1)
    val offset[2], delta[2];                     // of the rows of a thread, if they are queries
    pipeline_state at;
} consumer_role;

/* One warpgroup's wgmma over 64 x n. */
static tiled_mma warpgroup_mma(ckl_dtype dtype, int n, const char *sources)
{
    char atom[ATOM_NAME_MAX];
    snprintf(atom, sizeof atom, "SM90_64x%dx16_F32%s_%s", n, dtype == F16 ? "F16F16" : "BF16BF16", sources);
    return make_tiled_mma(atom, 1, 1);
}

/* Among those of its consumer. */
static val consumer_thread(void)
{
    return rem(thread(), imm(WARPGROUP));
}

/* Is a score's derivative other than 1? */
static bool has_bends(const backward_kernel *k)
{
    return k->with_d1 && (k->form.softcap || attention_score_bends(k->form.score));
}

static consumer_role describe_consumer(const backward_kernel *k)
{
    const int block = k->block;
    ckl_dtype dtype = k->form.dtype;
    consumer_role c = { .scores_mma = warpgroup_mma(dtype, block, "SS"),
                        .d1_mma = warpgroup_mma(dtype, k->d.used, "RS"),
                        .d2_mma = warpgroup_mma(dtype, k->dv.used, "RS") };
    c.index = sub(div(warp(), imm(WARPGROUP / 32)), imm(1));
    c.first_thread = eq(consumer_thread(), imm(0));
    for (int i = 0; i < k->d.chunks; i++) {
        c.tCrX1[i] = descriptors_A(&c.scores_mma, slice(k->sX1, _, _, i, c.index));
        c.tCrY1[i] = descriptors_B(&c.scores_mma, slice(k->sY1, _, _, i, _));
    }
    for (int i = 0; i < k->dv.chunks && k->with_d1; i++) {
        c.tCrX2[i] = descriptors_A(&c.scores_mma, slice(k->sX2, _, _, i, c.index));
        c.tCrY2[i] = descriptors_B(&c.scores_mma, slice(k->sY2, _, _, i, _));
    }
    int stages = k->cfg->stages;
    c.scores = fragment_C(&c.scores_mma, ROWS, block);
    if (k->with_d1) {
        c.tCrY1t = descriptors_B(&c.d1_mma, turned_chunks(k->sY1, k->d, stages, columns_bytes(k->d, block) / 2));
        c.slopes = fragment_C(&c.scores_mma, ROWS, block);
        c.bends = has_bends(k) ? fragment_C(&c.scores_mma, ROWS, block) : c.scores;
        c.gradients = fragment_A_words(&c.d1_mma, ROWS, block);
        c.d1 = fragment_C(&c.d1_mma, ROWS, k->d.used);
        fill(c.d1, immf(0));
    }
    if (k->with_d2) {
        c.tCrY2t = descriptors_B(&c.d2_mma, turned_chunks(k->sY2, k->dv, stages, columns_bytes(k->dv, block) / 2));
        c.weights = fragment_A_words(&c.d2_mma, ROWS, block);
        c.d2 = fragment_C(&c.d2_mma, ROWS, k->dv.used);
        fill(c.d2, immf(0));
    }
    c.at = consumer_state(&k->ring);
    return c;
}

/* acc = X * Y^T of a stage; asynchronous. Columns past the last used one are zeros and left out. */
static void issue_scores(const consumer_role *c, const tensor *tCrX, const tensor *tCrY, columns n, tensor acc,
                         val stage)
{
    for (int i = 0; i < n.chunks; i++) {
        tensor tCrS = slice(tCrY[i], _, _, stage); // (1,MMA_K)
        int steps = (n.used - i * n.chunk) / 16;
        if (steps * 16 >= n.chunk)
            gemm(&c->scores_mma, tCrX[i], tCrS, acc, ir_int(IR_PRED, i > 0));
        else
            for (int s = 0; s < steps; s++)
                gemm(&c->scores_mma, local_tile(tCrX[i], shape(1, 1), coord(0, s)),
                     local_tile(tCrS, shape(1, 1), coord(0, s)), acc, ir_int(IR_PRED, i > 0 || s > 0));
    }
    mma_commit();
}

/* Masks */

static tile_rows rows_of(const backward_kernel *k, const consumer_role *c, const tile_grid *grid)
{
    return (tile_rows){ grid, &grid->longest, &c->scores_mma, add(k->row, mul(c->index, imm(ROWS))), consumer_thread(),
                        ROWS };
}

/* Keys past the last one, and those that a row does not see. */
static void hide_keys(const backward_kernel *k, consumer_role *c, val block)
{
    tile_grid grid = {
        .right = k->form.right, .left = k->form.left, .rows = ROWS, .keys = k->block, TILE_GRID_VALUES(k->p)
    };
    tile_rows rows = rows_of(k, c, &grid);
    IF(is_cut(&rows, block))
        mask_block(&rows, block, c->scores);
}

/* Queries that do not see a row's key. Those past the last one have no weights. */
static void hide_queries(const backward_kernel *k, consumer_role *c, val block)
{
    const attention_values *p = &k->p;
    val row = convert(I32, add(k->row, mul(c->index, imm(ROWS)))), end = add(row, imm(ROWS - 1));
    val first = convert(I32, mul(block, imm(k->block))), cut = ir_int(IR_PRED, 0);
    if (!k->form.right && !k->form.left)
        return;
    if (k->form.right) // the first query does not see the last key
        cut = lt(add(first, p->last), end);
    if (k->form.left) { // the last query does not see the first key
        val late = lt(row, add(add(first, imm(k->block - 1)), p->first));
        cut = k->form.right ? logical_or(cut, late) : late;
    }
    IF(cut) {
        tensor cS = partition_C(&c->scores_mma, identity_tensor(shape(ROWS, k->block)), consumer_thread());
        val begins[ONLINE_ROWS_MAX], ends[ONLINE_ROWS_MAX], from = add(first, convert(I32, coordinate(cS, 1, 0)));
        for (int i = 0; i < online_row_count(c->scores); i++) {
            val key = add(row, convert(I32, coordinate(cS, 0, online_row_value(c->scores, i))));
            begins[i] = k->form.right ? sub(sub(key, p->last), from) : imm_as(I32, 0);
            ends[i] = k->form.left ? sub(sub(key, p->first), from) : imm_as(I32, k->block);
        }
        mask_scores(c->scores, coordinate_distances(cS, 1), begins, ends);
    }
}

/* Weights */

/* -lse, or delta (which: 0, 1), of a thread's queries: by its rows, or where these are keys by its columns. */
typedef struct stats {
    bool of_columns;
    val of[COLUMNS_MAX];
} stats;

static stats find_stats(const backward_kernel *k, const consumer_role *c, tensor cS, val stage, int which)
{
    stats s = { .of_columns = k->of_keys };
    const val *of_row = which ? c->delta : c->offset;
    tensor sStats = slice(k->sStats, _, which, stage); // (BN)
    for (int i = 0; i < 2 && !k->of_keys; i++)
        s.of[i] = of_row[i];
    for (int64_t i = 0; i < static_size(c->scores.layout) && k->of_keys && !ir_failed(); i++)
        if (online_row_of(c->scores, i) == 0)
            s.of[i / 4 * 2 + i % 2] =
                at(sStats, add(coordinate(cS, 1, 0), imm(index_at(coordinate_distances(cS, 1), i))));
    return s;
}

/* Of value i. */
static val stat_of(const stats *s, const consumer_role *c, int64_t i)
{
    return s->of[s->of_columns ? i / 4 * 2 + i % 2 : online_row_of(c->scores, i)];
}

static void load_row_stats(const backward_kernel *k, consumer_role *c)
{
    tensor cS = partition_C(&c->scores_mma, identity_tensor(shape(ROWS, k->block)), consumer_thread());
    tensor gStats = stats_of(k, k->head); // (ROWS_OF_STATS,STATS)
    for (int i = 0; i < 2; i++) {
        val row = add(add(k->row, mul(c->index, imm(ROWS))), coordinate(cS, 0, online_row_value(c->scores, i)));
        row = min(row, sub(k->p.stats_rows, imm(1)));
        c->offset[i] = at(gStats, row, 0);
        c->delta[i] = at(gStats, row, 1);
    }
}

/* Scores become what a soft cap and a custom score make of them, and bends the derivatives. */
static void cap(const backward_kernel *k, consumer_role *c)
{
    cap_scores(c->scores, k->p.factor);
    for (int64_t i = 0; i < static_size(c->scores.layout) && has_bends(k) && !ir_failed(); i++) {
        val x = at(c->scores, i);
        set(c->bends, i, fma(neg(x), x, immf(1)));
    }
}

/* The query and the key of each of a thread's scores. */
typedef struct pairs {
    bool of_keys;
    tensor scores;
    layout distances;
    val column, rows[2]; // u32
} pairs;

static pairs pairs_of(const backward_kernel *k, const consumer_role *c, tensor cS, const walk *w)
{
    pairs p = { .of_keys = k->of_keys, .scores = c->scores, .distances = coordinate_distances(cS, 1) };
    p.column = add(mul(w->block, imm(k->block)), coordinate(cS, 1, 0));
    for (int i = 0; i < 2; i++)
        p.rows[i] = add(add(k->row, mul(c->index, imm(ROWS))), coordinate(cS, 0, online_row_value(c->scores, i)));
    return p;
}

static void pair_at(const pairs *p, int64_t i, val *query, val *key)
{
    val row = p->rows[online_row_of(p->scores, i)], column = add(p->column, imm(index_at(p->distances, i)));
    *query = p->of_keys ? column : row;
    *key = p->of_keys ? row : column;
}

/* A bias, or hidden keys. What it has for tokens past the last ones is of no matter: the last one's. */
static void mask_pairs(const backward_kernel *k, consumer_role *c, tensor cS, const walk *w)
{
    const attention_values *p = &k->p;
    const pairs all = pairs_of(k, c, cS, w);
    val head = k->of_keys ? head_of(k, w->head) : k->head, query, key;
    tile_grid grid = { TILE_GRID_VALUES(*p) };
    tile t = { .head = add(mul(k->batch, p->heads), head) };
    const score_mask mask = score_mask_of(&grid, &t, &k->form, p);
    for (int64_t i = 0; i < static_size(c->scores.layout) && !ir_failed(); i++) {
        pair_at(&all, i, &query, &key);
        val x = at(c->scores, i), by = at(mask.gM, min(query, sub(p->q, imm(1))), min(key, sub(p->kv, imm(1))));
        assign(x, masked_score(&mask, x, by));
    }
}

static void score_pairs(const backward_kernel *k, consumer_role *c, tensor cS, const walk *w)
{
    const custom_score custom = custom_of(k, w);
    const pairs all = pairs_of(k, c, cS, w);
    custom_share_begin();
    for (int64_t i = 0; i < static_size(c->scores.layout) && !ir_failed(); i++) {
        val x = at(c->scores, i), query, key;
        pair_at(&all, i, &query, &key);
        query = convert(I32, query);
        key = convert(I32, key);
        if (k->with_d1 && attention_score_bends(k->form.score)) {
            val bend = custom_slope(&custom, x, query, key);
            set(c->bends, i, k->form.softcap ? mul(bend, at(c->bends, i)) : bend);
        }
        assign(x, custom_value(&custom, x, query, key));
    }
    custom_share_end();
}

/* Where a custom score leaves a block as it is, its slope is 1. */
static void score_block(const backward_kernel *k, consumer_role *c, tensor cS, const walk *w)
{
    if (k->form.softcap)
        cap(k, c);
    else if (has_bends(k))
        fill(c->bends, immf(1));
    if (k->form.mask)
        mask_pairs(k, c, cS, w);
    if (custom_blocks(&k->form)) {
        const custom_score custom = custom_of(k, w);
        IF(eq(w->kind, imm(CKL_ATTENTION_PLAIN)))
            custom_leave(&custom, c->scores);
        IF(eq(w->kind, imm(CKL_ATTENTION_SCORE)))
            score_pairs(k, c, cS, w);
    }
    if (custom_of(k, w).how && !custom_blocks(&k->form))
        score_pairs(k, c, cS, w);
}

/* Scores become weights; bends are made on the way. */
static void weigh(const backward_kernel *k, consumer_role *c, tensor cS, const stats *offset, const walk *w)
{
    score_block(k, c, cS, w);
    if (k->of_keys)
        hide_queries(k, c, w->block);
    else
        hide_keys(k, c, w->block);
    for (int64_t i = 0; i < static_size(c->scores.layout) && !ir_failed(); i++) {
        val x = at(c->scores, i);
        assign(x, exp2_ftz(fma(x, k->p.exponent, stat_of(offset, c, i))));
        if (has_bends(k))
            set(c->bends, i, mul(at(c->bends, i), x));
    }
}

/* Slopes become gradients of the scores. */
static void differentiate(consumer_role *c, const stats *delta)
{
    for (int64_t i = 0; i < static_size(c->slopes.layout) && !ir_failed(); i++) {
        val x = at(c->slopes, i);
        assign(x, mul(at(c->bends, i), sub(x, stat_of(delta, c, i))));
    }
}

/* dV += P * dO, asynchronous. */
static void add_values(const backward_kernel *k, const consumer_role *c, val stage)
{
    accumulators_to_A(c->scores, k->form.dtype, c->weights);
    mma_fence();
    gemm(&c->d2_mma, c->weights, slice(c->tCrY2t, _, _, stage), c->d2, yes());
    mma_commit();
}

/* dK += dS * Q or dQ += dS * K, asynchronous. */
static void add_gradients(const backward_kernel *k, const consumer_role *c, val stage)
{
    accumulators_to_A(c->slopes, k->form.dtype, c->gradients);
    mma_fence();
    gemm(&c->d1_mma, c->gradients, slice(c->tCrY1t, _, _, stage), c->d1, yes());
    mma_commit();
}

static void release(const backward_kernel *k, val stage)
{
    warp_sync(); // all lanes are done with the stats
    IF(eq(lane(), imm(0)))
        pipeline_release(&k->ring, stage);
}

/*
 * One block. Waits are for all but so many of the groups under way: with overlap the sums of the block before, these scores and
 * slopes, the sum of weighted values.
 */
static void step(const backward_kernel *k, consumer_role *c, tensor cS, const walk *w, val before)
{
    pipeline_wait_full(&k->ring, &c->at);
    val stage = shuffle(c->at.stage, imm(0));
    mma_fence();
    issue_scores(c, c->tCrX1, c->tCrY1, k->d, c->scores, stage);
    if (k->with_d1)
        issue_scores(c, c->tCrX2, c->tCrY2, k->dv, c->slopes, stage);
    const stats offset = find_stats(k, c, cS, stage, 0);
    if (k->overlap) {
        mma_wait(k->with_d1 ? 2 : 1);
        IF(ne(before, imm(k->cfg->stages)))
            release(k, before);
    }
    mma_wait(k->with_d1 ? 1 : 0);
    weigh(k, c, cS, &offset, w);
    if (k->with_d2)
        add_values(k, c, stage);
    if (k->with_d1) {
        const stats delta = find_stats(k, c, cS, stage, 1);
        mma_wait(k->with_d2 ? 1 : 0);
        differentiate(c, &delta);
        add_gradients(k, c, stage);
    }
    if (k->overlap)
        assign(before, stage);
    else {
        mma_wait(0);
        release(k, stage);
    }
    pipeline_advance(&c->at);
}

/* A gradient through the memory of the rows that it is of, all chunks by one group of TMA stores. */
static void store(const backward_kernel *k, const consumer_role *c, const tma_copy *tma, tensor acc, tensor sX,
                  columns n)
{
    tiled_mma mma = warpgroup_mma(k->form.dtype, n.piece, "SS");
    staged_store staged = { add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP, c->first_thread };
    for (int at = 0; at < n.used; at += n.piece) {
        tensor part = slice(accumulator_columns(acc, at, n.piece), _, 0, _), sChunk = slice(sX, _, _, at / n.chunk);
        stmatrix_C(&mma, part, local_tile(sChunk, shape(ROWS, n.piece), coord(0, at % n.chunk / n.piece)),
                   consumer_thread());
    }
    STAGED_STORE(&staged) {
        for (int i = 0; i < n.chunks; i++)
            tma_store_of(tma, slice(sX, _, _, i), add(k->row, mul(c->index, imm(ROWS))), imm(i * n.chunk), 2,
                         (const val[]){ k->head, k->batch });
    }
}

/* The same of a sequence, from registers, two elements at a time: a box of TMA would reach into the next one. */
static void store_ragged(const backward_kernel *k, const consumer_role *c, int which, tensor acc, columns n)
{
    tiled_mma mma = warpgroup_mma(k->form.dtype, n.piece, "SS");
    const int width = which == ATTENTION_V ? k->form.dv : k->form.d;
    layout all = make_layout(shape(k->of_keys ? k->p.kv : k->p.q, width, k->p.heads),
                             stride(k->p.ld[which], 1, k->p.ld_head[which]));
    tensor gAll = gmem_tensor(k->p.grad[which], k->form.dtype, all);
    gAll.address = tensor_address(gAll, coord(k->x_at, 0, 0));
    tensor gD = slice(gAll, _, _, k->head); // (TOKENS,D)
    int_tuple limits = gD.layout.shape, tiler = shape(ROWS, n.piece);
    tiled_copy each = make_tiled_copy_C("UniversalCopy<32>", k->form.dtype, &mma, ROWS, n.piece);
    val m = add(div(k->row, imm(ROWS)), c->index);
    for (int i = 0; i < n.used / n.piece; i++) {
        tensor cD = partition_D(&each, local_tile(identity_tensor(limits), tiler, coord(m, i)), consumer_thread());
        tensor tDgD = partition_D(&each, local_tile(gD, tiler, coord(m, i)), consumer_thread());
        copy_if(&each, cD, limits, accumulator_columns(acc, i * n.piece, n.piece), tDgD, 0);
    }
}

static void store_gradients(const backward_kernel *k, const consumer_role *c)
{
    if (k->form.ragged) {
        if (k->with_d1)
            store_ragged(k, c, k->of_keys ? ATTENTION_K : ATTENTION_Q, c->d1, k->d);
        if (k->with_d2)
            store_ragged(k, c, ATTENTION_V, c->d2, k->dv);
        return;
    }
    named_sync(add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP); // all are done with the rows' memory
    if (k->with_d1)
        store(k, c, &k->tmaD1, c->d1, slice(k->sX1, _, _, _, c->index), k->d);
    if (k->with_d2)
        store(k, c, &k->tmaD2, c->d2, slice(k->sX2, _, _, _, c->index), k->dv);
    IF(c->first_thread)
        tma_store_wait(0);
}

static void scale_all(tensor acc, val factor)
{
    for (int64_t i = 0; i < static_size(acc.layout) && !ir_failed(); i++) {
        val x = at(acc, i);
        assign(x, mul(x, factor));
    }
}

static void consumer(const backward_kernel *k)
{
    if (k->cfg->consumers > 1)
        warpgroup_reg_alloc(240);
    consumer_role c = describe_consumer(k);
    tensor cS = partition_C(&c.scores_mma, identity_tensor(shape(ROWS, k->block)), consumer_thread()); // (MMA,1,1)
    walk w = begin_walk(k, true);
    val before = variable(U32, imm(k->cfg->stages)); // none
    pipeline_state x = consumer_state(&k->x);
    if (!k->of_keys)
        load_row_stats(k, &c);
    pipeline_wait_full(&k->x, &x);
    FOREVER {
        BREAK_IF(is_over(k, &w));
        step(k, &c, cS, &w, before);
        advance(k, &w, true);
    }
    mma_wait(0);
    if (k->with_d1)
        scale_all(c.d1, k->p.scale);
    store_gradients(k, &c);
}

static void describe_gradients(const attention_sm90_backward_config *cfg, int kernel)
{
    const bool of_keys = kernel != OF_QUERIES;
    backward_kernel k = { .cfg = cfg, .form = cfg->form, .of_keys = of_keys, .with_d1 = kernel != OF_VALUES };
    k.with_d2 = kernel == (cfg->apart ? OF_VALUES : OF_KEYS);
    k.overlap = cfg->overlap || !of_keys;
    k.d = columns_of(cfg->form.d);
    k.dv = columns_of(cfg->form.dv);
    k.block = of_keys ? cfg->block : cfg->keys;
    launch_bounds(WARPGROUP * (1 + cfg->consumers), 1);
    k.p = params_of(attention);
    describe_maps(&k);
    describe_memory(&k);
    IF(eq(thread(), imm(0))) {
        pipeline_init(&k.x);
        pipeline_init(&k.ring);
        fence_mbarrier_init();
    }
    cta_sync();
    grid_wait();
    launch_dependents();
    find_place(&k);
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
    if (kernel == OF_STATS)
        attention_backward_stats(&cfg->form);
    else if (kernel == OF_SINKS)
        attention_backward_sinks();
    else if (kernel == OF_VALUES && !cfg->apart)
        launch_bounds(32, 0); // a plan has as many kernels; this one does not run
    else
        describe_gradients(cfg, kernel);
}
