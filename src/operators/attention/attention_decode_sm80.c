/*
 * attention_decode_sm80.c - attention of a few rows against a cache, for every GPU from sm_80 on: bound by how fast keys and
 * values arrive.
 *
 * The rows of a CTA are the heads that share a head of the cache, times the new tokens: as many as an MMA has anyway. A CTA takes
 * `split` keys, its warps blocks of `keys` of them in turn. Each warp has a ring of blocks of its own, which its lanes fill by
 * cp.async, so that warps never wait for each other before their maxima, sums and values are put together at the end. The
 * CTAs of a sequence leave theirs in the workspace, and the last one adds them up in the order of the keys.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_config.h"
#include "operators/attention/attention_tile.h"

enum {
    VECTOR = 8, // elements of one cp.async of 16 bytes
    STEP = 16,  // of K of an atom
    LANES = 32,
    QUAD = 4,   // columns of O that a thread takes at a time
    FLIGHT = 4, // splits whose values a thread loads at a time
    PAD = 8,    // columns between rows of O in shared memory, against bank conflicts
};

/* Everything that the steps share. Letters: rows (BM), keys of a block (BN). */
typedef struct decode_kernel {
    const attention_decode_sm80_config *cfg;
    attention_decode_form form;
    attention_decode_values p;
    columns d, dv;
    int rows_all, tiles;             // of a group; tiles of BM of them
    val tile, kv_head, split, batch; // of this CTA; u32
    val length;                      // keys of the sequence, u32
    val begin;                       // the first key that a row sees
    val splits;                      // CTAs that share the rows
    val from, to;                    // keys of this CTA
    tensor sK, sV;                   // (BN,CHUNK,CHUNKS,SLOTS), stages of all warps
    tensor sVt;                      // (DV,BN,SLOTS)
    tensor sO;                       // (BM,DV,WARPS), f32, in the memory of the rings
    tensor sTop, sSum;               // (BM,WARPS)
    tiled_mma mma;                   // of a warp
    tensor rQ;                       // (PAIRS,MMA_M,MMA_K)
    tensor scores, out;              // (MMA,MMA_M,MMA_N)
    tensor weights;                  // (PAIRS,MMA_M,MMA_K)
    online_rows online;
} decode_kernel;

static int64_t ring_bytes(const attention_decode_sm80_config *c, int d)
{
    return c->warps * c->stages * columns_bytes(columns_of(d), c->keys);
}

static int64_t merge_bytes(const attention_decode_sm80_config *c)
{
    return (int64_t)c->warps * c->rows * (columns_of(c->form.dv).used + PAD) * 4;
}

static int64_t larger_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t attention_decode_sm80_smem(const attention_decode_sm80_config *c)
{
    int64_t states = 2 * c->warps * c->rows * 4, flag = 4;
    return larger_of(ring_bytes(c, c->form.d) + ring_bytes(c, c->form.dv), merge_bytes(c)) + states + flag;
}

/* Construction */

static tensor ring_at(const decode_kernel *k, int64_t offset, columns c)
{
    int64_t stage = columns_bytes(c, k->cfg->keys) / 2;
    int slots = k->cfg->warps * k->cfg->stages;
    return smem_view(smem_address(offset), k->form.dtype,
                     chunks_layout(k->form.dtype, c, k->cfg->keys, c.chunks, slots, stage));
}

static void describe_memory(decode_kernel *k)
{
    const attention_decode_sm80_config *c = k->cfg;
    int64_t k_bytes = ring_bytes(c, c->form.d), both = k_bytes + ring_bytes(c, c->form.dv);
    int64_t rings = smem_alloc("rings", larger_of(both, merge_bytes(c)), 1024);
    k->sK = ring_at(k, rings, k->d);
    k->sV = ring_at(k, rings + k_bytes, k->dv);
    k->sVt = turned_chunks(k->sV, k->dv, c->warps * c->stages, columns_bytes(k->dv, c->keys) / 2);
    int pitch = k->dv.used + PAD;
    k->sO = smem_view(smem_address(rings), F32,
                      make_layout(shape(c->rows, k->dv.used, c->warps), stride(pitch, 1, c->rows * pitch)));
    k->sTop = smem_tensor("maxima", F32, compact(shape(c->rows, c->warps)), 4);
    k->sSum = smem_tensor("sums", F32, compact(shape(c->rows, c->warps)), 4);
}

static void describe_registers(decode_kernel *k)
{
    const attention_decode_sm80_config *c = k->cfg;
    ckl_dtype dtype = k->form.dtype;
    k->mma = make_tiled_mma(dtype == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN", 1, 1);
    k->rQ = fragment_A_words(&k->mma, c->rows, k->d.used);
    k->scores = fragment_C(&k->mma, c->rows, c->keys);
    k->out = fragment_C(&k->mma, c->rows, k->dv.used);
    k->weights = fragment_A_words(&k->mma, c->rows, c->keys);
    k->online = online_rows_begin(online_row_count(k->scores), k->p.exponent);
    fill(k->out, immf(0));
}

/* Which rows and keys this CTA has. CTAs that share a stretch of keys are neighbours. */
static void find_place(decode_kernel *k)
{
    const attention_decode_sm80_config *c = k->cfg;
    val number = cta_x(), split = imm(c->split), one = imm_as(U32, 1);
    k->rows_all = k->form.tokens * k->form.group;
    k->tiles = (k->rows_all + c->rows - 1) / c->rows;
    k->tile = rem(number, imm(k->tiles));
    number = div(number, imm(k->tiles));
    k->kv_head = rem(number, k->p.kv_heads);
    number = div(number, k->p.kv_heads);
    k->split = rem(number, k->p.splits);
    k->batch = div(number, k->p.splits);
    tensor gLengths = gmem_tensor(k->p.lengths, I32, make_layout(dynamic(k->p.batch), leaf(1))); // (BATCH)
    val length = max(at(gLengths, k->batch), imm_as(I32, 0));
    k->length = min(convert(U32, length), k->p.kv);
    k->begin = imm_as(U32, 0);
    if (k->form.left) {
        val first = sub(sub(convert(I32, k->length), imm(k->form.tokens - 1)), k->p.left);
        k->begin = convert(U32, max(first, imm_as(I32, 0)));
    }
    val first = div(k->begin, split), end = div(add(k->length, imm(c->split - 1)), split);
    k->splits = max(sub(max(end, first), first), one);
    val start = mul(add(first, k->split), split);
    k->from = max(start, mul(div(k->begin, imm(c->keys)), imm(c->keys)));
    k->to = min(add(start, split), k->length);
}

/* Loads */

/* Row `row` of a head of Q or O: heads of the group first, then tokens. (D) */
static tensor row_of(const decode_kernel *k, int which, val row)
{
    val head = add(mul(k->kv_head, imm(k->form.group)), rem(row, imm(k->form.group)));
    val token = div(row, imm(k->form.group));
    int d = which == ATTENTION_Q ? k->form.d : k->form.dv;
    layout all = make_layout(shape(k->p.batch, k->p.kv_heads, k->form.tokens, d),
                             stride(k->p.ld_batch[which], k->p.ld_head[which], k->p.ld[which], 1));
    return slice(gmem_tensor(k->p.x[which], k->form.dtype, all), k->batch, head, token, _);
}

/* Q into the registers of every warp, pair by pair. Rows and columns past the last ones are 0. */
static void load_queries(const decode_kernel *k)
{
    int atoms = (int)static_size(layout_mode(k->rQ.layout, 1)), steps = (int)static_size(layout_mode(k->rQ.layout, 2));
    fill(k->rQ, imm_as(U32, 0));
    for (int m = 0; m < 2 * atoms; m++) { // rows of a thread
        val row = add(mul(k->tile, imm(k->cfg->rows)), add(div(lane(), imm(4)), imm(8 * m)));
        IF(lt(row, imm(k->rows_all))) {
            tensor gRow = row_of(k, ATTENTION_Q, row);
            val first = tensor_address(gRow, coord(mul(rem(lane(), imm(4)), imm(2))));
            tensor gPairs = gmem_tensor(first, I32, make_layout(leaf(k->form.d / 2), leaf(1)));
            for (int half = 0; half < 2 * steps && 8 * half < k->form.d; half++)
                set(k->rQ, coord(m % 2 + 2 * (half % 2), m / 2, half / 2), bitcast(U32, at(gPairs, 4 * half)));
        }
    }
}

/* Where the keys of a block are, one for each lane, in vectors from the first of the head; and how many there are. */
typedef struct block_rows {
    val at[ATTENTION_TENSORS];
    val count; // i32; none: 0 or less
} block_rows;

/* Of block `number` of this warp. */
static void find_rows(const decode_kernel *k, val number, block_rows *rows)
{
    const int bn = k->cfg->keys, page = k->form.page;
    val start = add(k->from, mul(add(warp(), mul(number, imm(k->cfg->warps))), imm(bn)));
    val last = sub(max(k->length, imm_as(U32, 1)), imm(1)), key = min(add(start, rem(lane(), imm(bn))), last), place;
    if (page) {
        tensor gTable = gmem_tensor(k->p.table, I32,
                                    make_layout(shape(k->p.table_pages, k->p.batch),
                                                stride(1, convert(I64, k->p.table_pages)))); // (PAGES,BATCH)
        place = convert(U32, at(gTable, div(key, imm(page)), k->batch));
    }
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++) {
        val within = mul(page ? rem(key, imm(page)) : key, k->p.key_vectors[which]);
        assign(rows->at[which], page ? add(within, mul(place, k->p.page_vectors[which])) : within);
    }
    assign(rows->count, sub(convert(I32, k->to), convert(I32, start)));
}

/* Starts the copies of a block of K or V into chunks (BN,CHUNK,CHUNKS). What does not exist is 0. */
static void load_rows(const decode_kernel *k, int which, const block_rows *rows, tensor sX, columns c, int d)
{
    const int across = c.chunk / VECTOR, down = LANES / across;
    tiled_copy each = make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<128>", k->form.dtype,
                                      compact_right(shape(down, across)), compact(shape(1, VECTOR)));
    val row = div(lane(), imm(across)), column = mul(rem(lane(), imm(across)), imm(VECTOR));
    layout heads = make_layout(shape(k->p.kv_heads, k->p.batch), stride(k->p.ld_head[which], k->p.ld_batch[which]));
    tensor gHead =
        slice(gmem_tensor(k->p.x[which], k->form.dtype, heads), k->kv_head, k->form.page ? imm_as(U32, 0) : k->batch);
    for (int i = 0; i < k->cfg->keys / down; i++) {
        val this = add(row, imm(i * down)), first = mul(convert(U64, shuffle(rows->at[which], this)), imm_as(U64, 16));
        val exists = lt(convert(I32, this), rows->count);
        for (int j = 0; j < c.chunks; j++) {
            tensor tXsX = partition_D(&each, slice(sX, _, _, j), lane()); // (VECTOR,BN/DOWN,1)
            val inside = (j + 1) * c.chunk <= d ? exists : logical_and(exists, lt(column, imm(d - j * c.chunk)));
            val from = add(add(gHead.address, first), convert(U64, mul(add(column, imm(j * c.chunk)), imm(2))));
            cp_async(tensor_address(tXsX, coord(0, i, 0)), from, 16, select(inside, imm_as(U32, 16), imm_as(U32, 0)));
        }
    }
}

static void load_block(const decode_kernel *k, const block_rows *rows, val slot)
{
    load_rows(k, ATTENTION_K, rows, slice(k->sK, _, _, _, slot), k->d, k->form.d);
    load_rows(k, ATTENTION_V, rows, slice(k->sV, _, _, _, slot), k->dv, k->form.dv);
    cp_async_commit();
}

/* Products */

/* scores = Q * K^T of a slot, 16 columns of them at a time. */
static void multiply_keys(const decode_kernel *k, val slot)
{
    const int bn = k->cfg->keys, atoms = (int)static_size(layout_mode(k->rQ.layout, 1));
    fill(k->scores, immf(0));
    for (int at = 0; at < k->d.used; at += STEP) {
        tensor sK = slice(k->sK, _, _, at / k->d.chunk, slot), rK = fragment_B(&k->mma, bn, STEP);
        ldmatrix_B(&k->mma, local_tile(sK, shape(bn, STEP), coord(0, at % k->d.chunk / STEP)), lane(), rK);
        gemm(&k->mma, local_tile(k->rQ, shape(4, atoms, 1), coord(0, 0, at / STEP)), rK, k->scores, yes());
    }
}

/* out += weights * V of a slot, 16 keys and a piece of the columns at a time. */
static void multiply_values(const decode_kernel *k, val slot)
{
    const int piece = k->dv.piece, atoms = (int)static_size(layout_mode(k->out.layout, 1));
    tiled_copy transposed = make_tiled_copy_B("SM75_U16x8_LDSM_T", k->form.dtype, &k->mma, piece, STEP);
    tensor sVt = slice(k->sVt, _, _, slot); // (DV,BN)
    for (int j = 0; j < k->cfg->keys / STEP; j++)
        for (int i = 0; i < k->dv.used / piece; i++) {
            tensor sPiece = local_tile(sVt, shape(piece, STEP), coord(i, j)), rV = fragment_B(&k->mma, piece, STEP);
            copy_tiled(&transposed, partition_S(&transposed, sPiece, lane()), rV);
            gemm(&k->mma, local_tile(k->weights, shape(4, atoms, 1), coord(0, 0, j)), rV,
                 local_tile(k->out, shape(4, atoms, piece / 8), coord(0, 0, i)), yes());
        }
}

/* Keys past the end of the CTA's, and those that a row does not see, get scores of -inf. */
static void mask_rows(const decode_kernel *k, val start)
{
    tensor cS = partition_C(&k->mma, identity_tensor(shape(k->cfg->rows, k->cfg->keys)), lane()); // (MMA,MMA_M,MMA_N)
    val begins[ONLINE_ROWS_MAX], ends[ONLINE_ROWS_MAX], first = convert(I32, add(start, coordinate(cS, 1, 0)));
    val last = sub(sub(convert(I32, k->to), imm(1)), first);
    for (int i = 0; i < online_row_count(k->scores); i++) {
        val row = add(mul(k->tile, imm(k->cfg->rows)), coordinate(cS, 0, online_row_value(k->scores, i)));
        val token = convert(I32, div(row, imm(k->form.group)));
        val own = sub(add(sub(convert(I32, k->length), imm(k->form.tokens)), token), first);
        ends[i] = min(last, own);
        begins[i] = k->form.left ? sub(add(own, imm(1)), k->p.left) : own;
    }
    mask_scores(k->scores, coordinate_distances(cS, 1), k->form.left ? begins : NULL, ends);
}

static void use_block(decode_kernel *k, val number, val slot)
{
    const int bn = k->cfg->keys;
    val start = add(k->from, mul(add(warp(), mul(number, imm(k->cfg->warps))), imm(bn)));
    multiply_keys(k, slot);
    if (k->form.softcap)
        cap_scores(k->scores, k->p.factor);
    val end = convert(I32, add(start, imm(bn))), seen = sub(convert(I32, k->length), imm(k->form.tokens - 1));
    val cut = logical_or(lt(seen, end), lt(convert(I32, k->to), end));
    if (k->form.left) // the last token sees the fewest of the first keys
        cut = logical_or(cut, lt(start, add(k->begin, imm(k->form.tokens - 1))));
    IF(cut)
        mask_rows(k, start);
    online_softmax(&k->online, k->scores);
    accumulators_to_A(k->scores, k->form.dtype, k->weights);
    scale_rows(k->out, k->online.factor);
    multiply_values(k, slot);
}

/*
 * The blocks of this warp. stages - 1 are on their way while one is used; where the one after those lies is asked for even
 * earlier. Each warp_sync says that the lanes' copies of this block are here, and that all lanes are done with the one before.
 */
static void attend(decode_kernel *k)
{
    const int stages = k->cfg->stages, bn = k->cfg->keys;
    val blocks = div(add(sub(max(k->to, k->from), k->from), imm(bn - 1)), imm(bn));
    val count = div(sub(add(blocks, imm(k->cfg->warps - 1)), warp()), imm(k->cfg->warps));
    block_rows rows = { .count = variable(I32, imm(0)) };
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++)
        rows.at[which] = variable(U32, imm(0));
    val first = mul(warp(), imm(stages));
    find_rows(k, imm_as(U32, 0), &rows);
    for (int s = 0; s < stages - 1; s++) {
        load_block(k, &rows, add(first, imm(s)));
        find_rows(k, imm_as(U32, s + 1), &rows);
    }
    val use = variable(U32, imm(0)), fill = variable(U32, imm(stages - 1));
    LOOP(i, count) {
        cp_async_wait(stages - 2);
        warp_sync();
        load_block(k, &rows, add(first, fill));
        find_rows(k, add(i, imm(stages)), &rows);
        use_block(k, i, add(first, use));
        assign(use, select(eq(use, imm(stages - 1)), imm(0), add(use, imm(1))));
        assign(fill, select(eq(fill, imm(stages - 1)), imm(0), add(fill, imm(1))));
    }
    cp_async_wait(0);
}

/* Putting together */

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

/* What the warps have, where all can read it: all are done with their rings then. */
static void share_states(decode_kernel *k)
{
    tensor cS = partition_C(&k->mma, identity_tensor(shape(k->cfg->rows, k->cfg->keys)), lane());
    tiled_copy each = make_tiled_copy_C("UniversalCopy<64>", F32, &k->mma, k->cfg->rows, k->dv.used);
    online_rows_finish(&k->online, NULL);
    cta_sync();
    copy_tiled(&each, k->out, partition_D(&each, slice(k->sO, _, _, warp()), lane()));
    for (int i = 0; i < k->online.count; i++) {
        val row = coordinate(cS, 0, online_row_value(k->scores, i));
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

/* Of split `number` of this sequence, head and tile: maximum and sum of each row (2,BM), and values (DV,BM). */
static tensor states_at(const decode_kernel *k, val number)
{
    val of_rows = add(mul(add(mul(k->batch, k->p.kv_heads), k->kv_head), imm(k->tiles)), k->tile);
    val at = add(mul(convert(I64, of_rows), convert(I64, k->p.splits)), convert(I64, number));
    int rows = k->cfg->rows;
    return slice(gmem_tensor(k->p.states, F32, make_layout(shape(2, rows, k->p.splits), stride(1, 2, 2 * rows))), _, _,
                 at);
}

static tensor values_at(const decode_kernel *k, val number)
{
    val of_rows = add(mul(add(mul(k->batch, k->p.kv_heads), k->kv_head), imm(k->tiles)), k->tile);
    val at = add(mul(convert(I64, of_rows), convert(I64, k->p.splits)), convert(I64, number));
    int rows = k->cfg->rows, dv = k->form.dv;
    return slice(gmem_tensor(k->p.parts, F32, make_layout(shape(dv, rows, k->p.splits), stride(1, dv, dv * rows))), _,
                 _, at);
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
    tensor rO = fragment(k->form.dtype, compact(leaf(QUAD)));
    for (int i = 0; i < QUAD; i++)
        set(rO, i, convert(k->form.dtype, mul(s->o[i], inverse)));
    copy(rO, local_tile(row_of(k, ATTENTION_O, x->in_group), leaf(QUAD), coord(x->quad)), 8);
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
    val of_rows = add(mul(add(mul(k->batch, k->p.kv_heads), k->kv_head), imm(k->tiles)), k->tile);
    val counter = add(k->p.counters, convert(U64, mul(of_rows, imm(4))));
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

void attention_decode_sm80(const void *config, int kernel)
{
    const attention_decode_sm80_config *cfg = config;
    decode_kernel k = { .cfg = cfg, .form = cfg->form, .d = columns_of(cfg->form.d), .dv = columns_of(cfg->form.dv) };
    (void)kernel;
    launch_bounds(LANES * cfg->warps, 0);
    k.p = params_of(attention_decode);
    grid_wait();
    launch_dependents();
    find_place(&k);
    IF(lt(k.split, k.splits)) {
        describe_memory(&k);
        describe_registers(&k);
        load_queries(&k);
        attend(&k);
        share_states(&k);
        IF(eq(k.splits, imm(1)))
            for_pieces(&k, finish_alone);
        ELSE
        {
            for_pieces(&k, finish_part);
            IF(is_last(&k))
                for_pieces(&k, finish_last);
        }
    }
}
