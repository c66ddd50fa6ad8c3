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
#include "operators/attention/attention_decode_sm80.h"

enum {
    VECTOR = 8, // elements of one cp.async of 16 bytes
    STEP = 16,  // of K of an atom
    LANES = 32,
    STAGES_MAX = ATTENTION_DECODE_STAGES_MAX,
    PAD = 8, // columns between rows of O in shared memory, against bank conflicts
};

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

/* Q into the registers of every warp, pair by pair. Rows and columns past the last ones are 0. */
static void load_queries(const decode_kernel *k)
{
    int atoms = (int)static_size(layout_mode(k->rQ.layout, 1)), steps = (int)static_size(layout_mode(k->rQ.layout, 2));
    fill(k->rQ, imm_as(U32, 0));
    for (int m = 0; m < 2 * atoms; m++) { // rows of a thread
        val row = add(mul(k->tile, imm(k->cfg->rows)), add(div(lane(), imm(4)), imm(8 * m)));
        IF(lt(row, imm(k->rows_all))) {
            tensor gRow = decode_row_of(k, ATTENTION_Q, row);
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

static block_rows no_rows(void)
{
    block_rows rows = { .count = variable(I32, imm(0)) };
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++)
        rows.at[which] = variable(U32, imm(0));
    return rows;
}

/* Of block `number` of this warp. The table is read up to kv, so that it need not wait for the length. */
static void find_rows(const decode_kernel *k, val number, block_rows *rows)
{
    const int bn = k->cfg->keys, page = k->form.page;
    val start = add(k->from, mul(add(warp(), mul(number, imm(k->cfg->warps))), imm(bn)));
    val key = min(add(start, rem(lane(), imm(bn))), sub(k->p.kv, imm(1))), place;
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
    block_rows rows[STAGES_MAX];
    val first = mul(warp(), imm(stages));
    for (int s = 0; s < stages; s++) { // all are asked for before the first is waited for
        rows[s] = no_rows();
        find_rows(k, imm_as(U32, s), &rows[s]);
    }
    for (int s = 0; s < stages - 1; s++)
        load_block(k, &rows[s], add(first, imm(s)));
    load_queries(k); // under the first copies
    block_rows *next = &rows[stages - 1];
    val use = variable(U32, imm(0)), fill = variable(U32, imm(stages - 1));
    LOOP(i, count) {
        cp_async_wait(stages - 2);
        warp_sync();
        load_block(k, next, add(first, fill));
        find_rows(k, add(i, imm(stages)), next);
        use_block(k, i, add(first, use));
        assign(use, select(eq(use, imm(stages - 1)), imm(0), add(use, imm(1))));
        assign(fill, select(eq(fill, imm(stages - 1)), imm(0), add(fill, imm(1))));
    }
    cp_async_wait(0);
}

void attention_decode_sm80(const void *config, int kernel)
{
    const attention_decode_sm80_config *cfg = config;
    decode_kernel k = { .cfg = cfg, .form = cfg->form, .d = columns_of(cfg->form.d), .dv = columns_of(cfg->form.dv) };
    (void)kernel;
    launch_bounds(LANES * cfg->warps, cfg->ctas);
    k.p = params_of(attention_decode);
    grid_wait();
    launch_dependents();
    find_place(&k);
    IF(lt(k.split, k.splits)) {
        describe_memory(&k);
        describe_registers(&k);
        attend(&k);
        decode_finish(&k);
    }
}
