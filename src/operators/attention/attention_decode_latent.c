/*
 * attention_decode_latent.c - attention of a few rows against a latent cache, for Hopper: values are the first columns
 * of the keys, so one copy of a block in shared memory serves both products.
 *
 *   warps 0-3, 4-7   consumers: each has half of the columns of O, and scores every other block of keys. Weights of its
 *                    own block are in registers; the other one gets them through shared memory, in place of the keys'
 *                    last columns. So maxima go from block to block, back and forth, and each one's softmax runs under
 *                    the other's products
 *   warps 8-11       producer: one thread brings blocks of keys by TMA, in three sections: the columns of either half
 *                    of O, and the rest
 *
 * Shared memory holds a block of each consumer. The last reader of a section releases it. Persistent: a CTA takes
 * splits that follow each other, and adds its own (attention_decode_latent_store.c) while the blocks of the next
 * arrive.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_latent.h"

enum {
    CONSUMERS = 2,
    PAIR = CONSUMERS * KEYS, // an odd block has a partner without keys
    ROWS = ATTENTION_ROWS,
    KEY_CHUNKS_MAX = ATTENTION_DECODE_LATENT_MAX / CHUNK,
    REST = 2,         // the section after those of the halves
    SECTIONS = 3,     // of a block
    BARRIER_OWN = 1,  // + consumer: its 128 threads
    BARRIER_TOLD = 3, // + consumer: it has told the other about its block: it arrives, the other waits
    BARRIER_BOTH = 5, // all consumers
    PRODUCER_REGISTERS = 56,
    CONSUMER_REGISTERS = 224 // and 56 for the producer: the 504 = 3 * 168 of 384 threads
};

/* Everything the roles share. Letters: Q (BM,D), K (BN,D), P (BM,BN), O (BM,DV). */
typedef struct latent_kernel {
    const attention_decode_latent_config *cfg;
    decode_place place;
    columns d, half; // of a key; of the columns of O that a consumer has
    tma_copy tmaK;
    tensor sQ;            // (BM,CHUNK,CHUNKS)
    tensor sK;            // (BN,CHUNK,CHUNKS,CONSUMERS)
    tensor sP;            // (BM,BN,CONSUMERS), in the place of the first chunk of a block's rest
    tensor sV[CONSUMERS]; // (DV/2,BN,CONSUMERS), the same memory
    tensor sMax, sFactor; // (BM,CONSUMERS): of the rows after a consumer's block; the factor for O there
    tensor sSum;          // (BM,CONSUMERS)
    pipeline ring;        // of sections, SECTIONS for each block
} latent_kernel;

int64_t attention_decode_latent_smem(const attention_decode_form *form)
{
    int64_t q = attention_columns_bytes(attention_columns_of(form->d), ROWS), states = 3 * CONSUMERS * ROWS * 4;
    return q + CONSUMERS * (attention_decode_latent_block_bytes(form) + 16 * SECTIONS) + states + 4;
}

static void describe_shared_memory(latent_kernel *k)
{
    const attention_decode_form *form = &k->place.form;
    const ckl_dtype dtype = form->dtype;
    const int64_t chunk = KEYS * CHUNK, block = attention_decode_latent_block_bytes(&k->cfg->form);
    k->sQ = slice(attention_chunks("Q", dtype, k->d, ROWS, 1), _, _, _, 0);
    const int64_t blocks = smem_alloc("blocks", CONSUMERS * block, 1024);
    k->sK = smem_view(smem_address(blocks), dtype, attention_chunks_layout(dtype, k->d, KEYS, CONSUMERS));
    for (int w = 0; w < CONSUMERS; w++) {
        tensor sHalf = smem_view(smem_address(blocks + 2 * chunk * w * k->half.chunks), dtype, k->sK.layout);
        k->sV[w] = attention_transposed_chunks(sHalf, k->half);
    }
    const layout weights = attention_chunks_apart(dtype, attention_columns_of(KEYS), ROWS, CONSUMERS, block / 2);
    k->sP = slice(smem_view(smem_address(blocks + 2 * chunk * CONSUMERS * k->half.chunks), dtype, weights), _, _, 0, _);
    k->sMax = smem_tensor("maxima", F32, compact(shape(ROWS, CONSUMERS)), 4);
    k->sFactor = smem_tensor("factors", F32, compact(shape(ROWS, CONSUMERS)), 4);
    k->sSum = smem_tensor("sums", F32, compact(shape(ROWS, CONSUMERS)), 4);
    k->ring = make_pipeline("ring", CONSUMERS * SECTIONS, 1, 1);
}

static latent_kernel describe_kernel(const attention_decode_latent_config *cfg)
{
    const attention_decode_form *form = &cfg->form;
    latent_kernel k = { .cfg = cfg,
                        .place = { .form = *form, .rows = ROWS, .keys = KEYS, .run = 1 },
                        .d = attention_columns_of(form->d),
                        .half = attention_columns_of(form->dv / CONSUMERS) };
    k.place.p = params_of(attention_decode);
    k.tmaK = attention_decode_latent_tma(&k.place);
    describe_shared_memory(&k);
    return k;
}

/* A block of a consumer: its first key, and the phase of its barriers. */
typedef struct block_at {
    int consumer;
    val start, parity;
} block_at;

static block_at block_of(const latent_kernel *k, val pair, int consumer)
{
    const val before = add(mul(pair, imm(PAIR)), imm(consumer * KEYS));
    return (block_at){ consumer, add(k->place.from, before), bit_and(add(k->place.done, pair), imm(1)) };
}

/* The barriers of a section of it. */
static pipeline_state section_of(const latent_kernel *k, const block_at *at, int section)
{
    return (pipeline_state){ imm_as(U32, (uint32_t)(at->consumer * SECTIONS + section)), at->parity, k->ring.stages };
}

/* Producer */

static void load_block(const latent_kernel *k, const block_at *at)
{
    const int chunks[] = { k->half.chunks, k->half.chunks, k->d.chunks - CONSUMERS * k->half.chunks };
    const latent_boxes boxes = attention_decode_latent_boxes_at(&k->place, &k->tmaK, at->start);
    for (int s = 0, chunk = 0; s < SECTIONS; s++) {
        pipeline_state section = section_of(k, at, s);
        section.parity = bit_xor(section.parity, imm(1)); // released by the block before
        pipeline_wait_empty(&k->ring, &section);
        pipeline_expect(&k->ring, &section, imm(chunks[s] * KEYS * CHUNK * 2));
        for (int end = chunk + chunks[s]; chunk < end; chunk++)
            attention_decode_latent_load(&boxes, chunk, slice(k->sK, _, _, chunk, imm(at->consumer)),
                                         pipeline_full_barrier(&k->ring, &section));
    }
}

static void load_split(void *of)
{
    latent_kernel *k = of;
    IF(elect())
        LOOP(pair, k->place.steps)
            for (int consumer = 0; consumer < CONSUMERS; consumer++) {
                const block_at at = block_of(k, pair, consumer);
                load_block(k, &at);
            }
}

/* One thread of a warp that stays together. */
static void producer(latent_kernel *k)
{
    warpgroup_reg_dealloc(PRODUCER_REGISTERS);
    IF(eq(warp(), imm(CONSUMERS * WARPGROUP / LANES)))
        attention_decode_for_share(&k->place, k->cfg->split, PAIR, load_split, k);
}

/* Consumers */

/* One consumer's view. */
typedef struct consumer_role {
    int index;
    val tid;
    tiled_mma qk, own, told;          // Q*K^T; weights from registers, or from shared memory, times its columns of V
    tensor tCrQ[KEY_CHUNKS_MAX];      // (1,MMA_K)
    tensor tCrK[KEY_CHUNKS_MAX];      // (1,MMA_K,CONSUMERS)
    tensor tCrV, tCrP;                // (1,MMA_K,CONSUMERS)
    tensor scores, out;               // (MMA,1,1)
    tensor weights;                   // (PAIRS,1,MMA_K)
    online_rows rows;                 // after its own block
    val told_factor[ONLINE_ROWS_MAX]; // of the other's
} consumer_role;

/* What both have: the same registers, which are theirs after their roles, too. */
static consumer_role describe_consumers(const latent_kernel *k)
{
    const ckl_dtype dtype = k->place.form.dtype;
    const int width = k->half.used;
    consumer_role c = { .tid = warpgroup_thread(),
                        .qk = attention_warpgroup_mma(dtype, KEYS, "SS"),
                        .own = attention_warpgroup_mma(dtype, width, "RS"),
                        .told = attention_warpgroup_mma(dtype, width, "SS") };
    c.scores = fragment_C(&c.qk, ROWS, KEYS);
    c.out = fragment_C(&c.own, ROWS, width);
    c.weights = fragment_A_words(&c.own, ROWS, KEYS);
    c.rows = attention_online_rows_begin(attention_online_row_count(c.scores), k->place.p.exponent);
    for (int r = 0; r < c.rows.count; r++)
        c.told_factor[r] = variable(F32, immf(1));
    fill(c.out, immf(0));
    return c;
}

/* One of them, and what it multiplies. */
static consumer_role consumer_of(const latent_kernel *k, consumer_role c, int index)
{
    c.index = index;
    for (int i = 0; i < k->d.chunks; i++) {
        c.tCrQ[i] = descriptors_A(&c.qk, slice(k->sQ, _, _, i));
        c.tCrK[i] = descriptors_B(&c.qk, slice(k->sK, _, _, i, _));
    }
    c.tCrV = descriptors_B(&c.own, k->sV[index]);
    c.tCrP = descriptors_A(&c.told, k->sP);
    return c;
}

/* The row of the tile that value `r` of this thread's rows is in. */
static val row_number(const consumer_role *c, int r)
{
    tensor cS = partition_C(&c->qk, identity_tensor(shape(ROWS, KEYS)), c->tid);
    return coordinate(cS, 0, attention_online_row_value(c->scores, r));
}

/* Q into shared memory, by all consumers. Rows past the last one and columns from d on are zeros. */
static void load_queries(const latent_kernel *k)
{
    const int d = k->place.form.d, vectors = k->d.chunks * CHUNK / VECTOR;
    LOOP_FROM(item, thread(), imm(ROWS * vectors), imm(CONSUMERS * WARPGROUP)) {
        val row = div(item, imm(vectors)), column = mul(rem(item, imm(vectors)), imm(VECTOR));
        val in_group = add(row, mul(k->place.tile, imm(ROWS)));
        val exists = logical_and(lt(in_group, imm(k->place.rows_all)), lt(column, imm(d)));
        tensor gRow = attention_decode_row_of(&k->place, ATTENTION_Q, min(in_group, imm(k->place.rows_all - 1)));
        val to = tensor_address(k->sQ, coord(row, rem(column, imm(CHUNK)), div(column, imm(CHUNK))));
        cp_async(to, tensor_address(gRow, coord(min(column, imm(d - VECTOR)))), 16,
                 select(exists, imm_as(U32, 16), imm_as(U32, 0)));
    }
    cp_async_commit();
    cp_async_wait(0);
    fence_proxy_async();
    named_sync(imm(BARRIER_BOTH), CONSUMERS * WARPGROUP);
}

static void wait_section(const latent_kernel *k, const block_at *at, int section)
{
    pipeline_state state = section_of(k, at, section);
    pipeline_wait_full(&k->ring, &state);
}

static void release_section(const latent_kernel *k, const consumer_role *c, const block_at *at, int section)
{
    IF(eq(c->tid, imm(0)))
        pipeline_release(&k->ring, section_of(k, at, section).stage);
}

/* The keys of its own block, which all its threads look after. */
static latent_keys own_keys(const latent_kernel *k, const consumer_role *c, const block_at *at)
{
    return (latent_keys){ k->sK, at->start, imm_as(U32, 0), imm(at->consumer), KEYS, c->tid, WARPGROUP };
}

/* Own keys have changed; wgmma reads them. */
static void share_keys(const consumer_role *c)
{
    fence_proxy_async();
    named_sync(imm(BARRIER_OWN + c->index), WARPGROUP);
}

static void append_block(const latent_kernel *k, const consumer_role *c, const block_at *at)
{
    const val end = min(add(at->start, imm(KEYS)), k->place.to);
    IF(lt(sub(convert(I32, k->place.length), imm(k->place.form.tokens)), convert(I32, end))) {
        for (int s = 0; s < SECTIONS; s++)
            wait_section(k, at, s);
        const latent_keys keys = own_keys(k, c, at);
        attention_decode_latent_append(&k->place, &keys);
        share_keys(c);
    }
}

/* scores = Q * K^T of its own block, section by section as they arrive; asynchronous. */
static void issue_scores(const latent_kernel *k, const consumer_role *c, const block_at *at)
{
    if (k->place.form.append)
        append_block(k, c, at);
    const int ends[] = { k->half.chunks, CONSUMERS * k->half.chunks, k->d.chunks };
    for (int s = 0, chunk = 0; s < SECTIONS; s++) {
        wait_section(k, at, s);
        mma_fence();
        for (; chunk < ends[s]; chunk++)
            gemm(&c->qk, c->tCrQ[chunk], slice(c->tCrK[chunk], _, _, imm(at->consumer)), c->scores,
                 imm_as(IR_PRED, chunk > 0));
    }
    mma_commit();
}

/* Reads what the other consumer tells about its block: the rows' maxima after it, and the factor for O. */
static void hear(const latent_kernel *k, consumer_role *c)
{
    const int other = 1 - c->index;
    val max[ONLINE_ROWS_MAX];
    named_sync(imm(BARRIER_TOLD + other), CONSUMERS * WARPGROUP);
    for (int r = 0; r < c->rows.count; r++) {
        val row = row_number(c, r);
        max[r] = at(k->sMax, row, other);
        assign(c->told_factor[r], at(k->sFactor, row, other));
    }
    attention_online_rows_raise(&c->rows, max);
}

/*
 * O += the other's weights * V. This comes before a consumer waits for its own next keys: so the other's next ones are
 * on their way meanwhile.
 */
static void take_told(const latent_kernel *k, consumer_role *c, val pair)
{
    const block_at told = block_of(k, pair, 1 - c->index);
    hear(k, c);
    attention_rescale_rows(c->out, c->told_factor, c->rows.count);
    wait_section(k, &told, c->index);
    mma_fence();
    gemm(&c->told, slice(c->tCrP, _, _, imm(told.consumer)), slice(c->tCrV, _, _, imm(told.consumer)), c->out, yes());
    mma_commit();
    mma_wait(0);
    release_section(k, c, &told, c->index);
    release_section(k, c, &told, REST);
}

/* Scores of its own block become weights, and the other consumer is told. The scores of all its warps are complete. */
static void tell(const latent_kernel *k, consumer_role *c, const block_at *at)
{
    named_sync(imm(BARRIER_OWN + c->index), WARPGROUP); // all warps are done with the keys' last columns
    if (k->place.form.softcap)
        attention_cap_scores(c->scores, k->place.p.factor);
    IF(attention_decode_is_cut(&k->place, at->start)) {
        const decode_rows rows = { mul(k->place.tile, imm(ROWS)), ROWS };
        attention_decode_mask(&k->place, at->start, rows, &c->qk, c->tid, c->scores);
        const latent_keys keys = own_keys(k, c, at);
        attention_decode_latent_clear(&k->place, &keys);
        share_keys(c);
    }
    attention_online_softmax(&c->rows, c->scores, NULL);
    stmatrix_C(&c->qk, slice(c->scores, _, 0, _), slice(k->sP, _, _, imm(at->consumer)), c->tid);
    for (int r = 0; r < c->rows.count; r++) {
        val row = row_number(c, r);
        IF(eq(thread_at(lane(), 0, 4, 8), imm(0))) {
            set(k->sMax, coord(row, c->index), c->rows.max[r]);
            set(k->sFactor, coord(row, c->index), c->rows.factor[r]);
        }
    }
    fence_proxy_async(); // weights are read by wgmma
    named_arrive(imm(BARRIER_TOLD + c->index), CONSUMERS * WARPGROUP);
    accumulators_to_A(c->scores, k->place.form.dtype, c->weights);
}

/* Its own block, from scores to O. */
static void take_own(const latent_kernel *k, consumer_role *c, val pair)
{
    const block_at own = block_of(k, pair, c->index);
    issue_scores(k, c, &own);
    mma_wait(0);
    tell(k, c, &own);
    attention_rescale_rows(c->out, c->rows.factor, c->rows.count);
    mma_fence();
    gemm(&c->own, c->weights, slice(c->tCrV, _, _, imm(own.consumer)), c->out, yes());
    mma_commit();
    mma_wait(0);
    release_section(k, c, &own, c->index);
}

/* Consumer 0 has blocks 0, 2, 4 ..., the other one those between. */
static void take_pairs(const latent_kernel *k, const consumer_role *both, int index)
{
    consumer_role c = consumer_of(k, *both, index);
    LOOP(pair, k->place.steps) {
        if (index == 1)
            take_told(k, &c, pair);
        take_own(k, &c, pair);
        if (index == 0)
            take_told(k, &c, pair);
    }
}

/* Adds the sums of both, in the order of the consumers; their maxima are equal. */
static void share_sums(const latent_kernel *k, consumer_role *c, val index)
{
    attention_online_rows_finish(&c->rows, NO_SINK);
    for (int r = 0; r < c->rows.count; r++)
        set(k->sSum, coord(row_number(c, r), index), c->rows.sum[r]); // all four lanes of a row have it
    named_sync(imm(BARRIER_BOTH), CONSUMERS * WARPGROUP);
    for (int r = 0; r < c->rows.count; r++)
        c->rows.sum[r] = add(at(k->sSum, row_number(c, r), 0), at(k->sSum, row_number(c, r), 1));
}

/*
 * NOTE: bar_sync is aligned: all who wait at a barrier do so by one instruction, so what both wait for is outside of
 * their roles.
 */
static void use_split(void *of)
{
    latent_kernel *k = of;
    const decode_sums sums = { .place = &k->place, .threads = CONSUMERS * WARPGROUP, .barrier = BARRIER_BOTH };
    const val index = warpgroup();
    consumer_role both = describe_consumers(k);
    IF(logical_or(eq(k->place.before, imm(0)), eq(k->place.split, imm(0)))) // else the queries are there
        load_queries(k);
    IF(eq(index, imm(0))) {
        take_pairs(k, &both, 0);
    }
    ELSE
    {
        take_pairs(k, &both, 1);
    }
    share_sums(k, &both, index);
    const latent_part half = { .place = &k->place,
                               .mma = &both.own,
                               .rows = ROWS,
                               .width = k->half.used,
                               .index = index,
                               .tid = both.tid,
                               .out = both.out,
                               .online = &both.rows };
    attention_decode_latent_climb(&half, &sums);
}

static void consumers(latent_kernel *k)
{
    warpgroup_reg_alloc(CONSUMER_REGISTERS);
    attention_decode_for_share(&k->place, k->cfg->split, PAIR, use_split, k);
}

void attention_decode_latent(const void *config, int kernel)
{
    const attention_decode_latent_config *cfg = config;
    (void)kernel;
    launch_bounds((CONSUMERS + 1) * WARPGROUP, 1);
    latent_kernel k = describe_kernel(cfg);
    attention_decode_latent_initialise(&k.tmaK, &k.ring);
    IF(lt(warp(), imm(CONSUMERS * WARPGROUP / LANES))) {
        consumers(&k);
    }
    ELSE
    {
        producer(&k);
    }
}
