/*
 * attention_decode_latent_few.c - attention of up to 16 rows against a latent cache, for Hopper: bound by loading keys,
 * which are the values, too.
 *
 *   warps 0-7    consumers: each scores 8 keys of a block of 64, and multiplies all 64 weights by an eighth of the
 *                columns of values, by mma.sync, which has 16 rows. Weights go round through shared memory
 *   warps 8-11   producer: one thread brings blocks by TMA into a ring that has all the memory left
 *
 * The rows keep a maximum as long as no weight exceeds 2^HIGH. So a block has one barrier, and each warp may be a block
 * ahead of the others. Persistent: a CTA takes splits that follow each other, and the ring goes on from one to the
 * next. They are the leaves of a binary tree: a CTA adds those of its own, and meets others at the nodes above. So
 * results do not depend on who takes what.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_latent.h"

enum {
    WARPS = 8, // consumers
    THREADS = WARPS * LANES,
    PRODUCERS = 128, // threads: registers move between warpgroups
    ROWS = ATTENTION_DECODE_FEW_ROWS,
    OWN_KEYS = KEYS / WARPS,
    BUFFERS = 2, // of weights
    HIGH = 8,
    ROW_HALVES = 2, // rows of a thread
    BARRIER = 1,    // of all consumers
    HELD = 2,       // levels of the tree
    SLOTS_MAX = 8,
    SMEM_MAX = 227 << 10, // bytes of a CTA, of Hopper and later
    PRODUCER_REGISTERS = 40,
    CONSUMER_REGISTERS = 232,
};

typedef struct consumer_role {
    tiled_mma mma; // of a warp
    tensor rQ;     // (PAIRS,1,MMA_K)
    tensor scores; // (MMA,1,1), of its own keys
    tensor out;    // (MMA,1,MMA_N), its columns
    online_rows rows;
} consumer_role;

/* Everything the roles share. Letters: Q (BM,D), K (BN,D), P (BM,BN), O (BM,DV). */
typedef struct few_kernel {
    const attention_decode_latent_config *cfg;
    decode_place place;
    columns d, dv;
    int slots; // blocks of the ring
    tma_copy tmaK;
    tensor sK;     // (BN,CHUNK,CHUNKS,SLOTS)
    tensor sVt;    // (DV,BN,SLOTS), the same memory
    tensor sP;     // (BM,BN,BUFFERS)
    tensor sHigh;  // (WARPS,BUFFERS): does a warp's block have weights beyond 2^HIGH?
    tensor sOfRow; // (BM,WARPS): maxima or sums of a warp's keys
    tensor sHeld;  // (QUAD,THREADS,QUADS,HELD): sums of this CTA's splits, each thread's own
    pipeline ring;
    consumer_role *consumer;
} few_kernel;

/* Columns of O of a warp; what a thread has of them and of its rows' maxima and sums. */
static int width_of(const attention_decode_form *form)
{
    return attention_columns_of(form->dv).used / WARPS;
}

static int values_of(const attention_decode_form *form)
{
    return ROWS * width_of(form) / LANES + 2 * ROW_HALVES;
}

/* With so many blocks in the ring. */
static int64_t smem_of(const attention_decode_form *form, int slots)
{
    const int64_t weights = BUFFERS * attention_columns_bytes(attention_columns_of(KEYS), ROWS);
    const int64_t words = WARPS * BUFFERS + ROWS * WARPS + 1 // and whether this CTA is the last of a sequence's
                          + HELD * values_of(form) * THREADS;
    return slots * (attention_decode_latent_block_bytes(form) + 16) + weights + 4 * words;
}

/* As many as fit. */
static int slots_of(const attention_decode_form *form)
{
    int slots = SLOTS_MAX;
    while (slots > 2 && smem_of(form, slots) > SMEM_MAX)
        slots--;
    return slots;
}

int64_t attention_decode_latent_few_smem(const attention_decode_form *form)
{
    return smem_of(form, slots_of(form));
}

static few_kernel describe_kernel(const attention_decode_latent_config *cfg)
{
    const attention_decode_form *form = &cfg->form;
    few_kernel k = { .cfg = cfg,
                     .place = { .form = *form, .rows = ROWS, .keys = KEYS, .run = 1 },
                     .d = attention_columns_of(form->d),
                     .dv = attention_columns_of(form->dv),
                     .slots = slots_of(form) };
    k.place.p = params_of(attention_decode);
    k.tmaK = attention_decode_latent_tma(&k.place);
    const int64_t blocks = smem_alloc("blocks", k.slots * attention_decode_latent_block_bytes(&cfg->form), 1024);
    k.sK = smem_view(smem_address(blocks), form->dtype, attention_chunks_layout(form->dtype, k.d, KEYS, k.slots));
    k.sVt = attention_transposed_chunks(k.sK, k.dv);
    k.sP = slice(attention_chunks("weights", form->dtype, attention_columns_of(KEYS), ROWS, BUFFERS), _, _, 0, _);
    k.sHigh = smem_tensor("high", I32, compact(shape(WARPS, BUFFERS)), 16);
    k.sOfRow = smem_tensor("maxima or sums", F32, compact_right(shape(ROWS, WARPS)), 16);
    k.sHeld = smem_tensor("sums held", F32, compact(shape(QUAD, THREADS, values_of(form) / QUAD, HELD)), 16);
    k.ring = make_pipeline("ring", k.slots, 1, WARPS);
    return k;
}

/* Where the ring is at block `number` of this split; `first` of the role: 0, of the producer 1. */
static pipeline_state state_at(const few_kernel *k, val number, int first)
{
    const int slots = k->slots;
    const val all = add(k->place.done, number);
    return (pipeline_state){ rem(all, imm(slots)), bit_and(add(div(all, imm(slots)), imm(first)), imm(1)), slots };
}

/* Producer */

static void load_block(const few_kernel *k, val number)
{
    const pipeline_state at = state_at(k, number, 1);
    const latent_boxes boxes =
        attention_decode_latent_boxes_at(&k->place, &k->tmaK, add(k->place.from, mul(number, imm(KEYS))));
    pipeline_wait_empty(&k->ring, &at);
    pipeline_expect(&k->ring, &at, imm(attention_decode_latent_block_bytes(&k->cfg->form)));
    for (int i = 0; i < k->d.chunks; i++)
        attention_decode_latent_load(&boxes, i, slice(k->sK, _, _, i, at.stage), pipeline_full_barrier(&k->ring, &at));
}

static void load_split(void *of)
{
    few_kernel *k = of;
    IF(elect())
        LOOP(number, k->place.steps)
            load_block(k, number);
}

static void producer(few_kernel *k)
{
    warpgroup_reg_dealloc(PRODUCER_REGISTERS);
    IF(eq(warp(), imm(WARPS)))
        attention_decode_for_share(&k->place, k->cfg->split, KEYS, load_split, k);
}

/* Consumers */

static void sync_all(void)
{
    named_sync(imm(BARRIER), THREADS);
}

/*
 * Q in the registers of every warp, through the memory of the weights, two chunks at a time: lanes would load words
 * that lie 16 bytes apart, eight rows at once. Rows past the last one and columns from d on are zeros.
 */
static void load_queries(const few_kernel *k, const consumer_role *c)
{
    enum { OF_ROW = CHUNK / VECTOR, ROUNDS_MAX = ATTENTION_DECODE_LATENT_MAX / CHUNK / BUFFERS + 1 };
    const int rounds = (k->d.chunks + BUFFERS - 1) / BUFFERS;
    const val row = rem(div(thread(), imm(OF_ROW)), imm(ROWS)), vector = rem(thread(), imm(OF_ROW)),
              buffer = div(thread(), imm(ROWS * OF_ROW)), in_group = add(row, mul(k->place.tile, imm(ROWS)));
    tensor gRow = attention_decode_row_of(&k->place, ATTENTION_Q, min(in_group, imm(k->place.rows_all - 1))); // (D)
    tensor rQ[ROUNDS_MAX];
    for (int i = 0; i < rounds; i++) {
        const val column = add(mul(add(buffer, imm(i * BUFFERS)), imm(CHUNK)), mul(vector, imm(VECTOR)));
        rQ[i] = fragment(I32, compact(leaf(4)));
        fill(rQ[i], imm(0));
        IF(logical_and(lt(in_group, imm(k->place.rows_all)), lt(column, imm(k->place.form.d))))
            copy(gmem_tensor(tensor_address(gRow, coord(column)), I32, compact(leaf(4))), rQ[i], 16);
    }
    for (int i = 0; i < rounds; i++) {
        const val to = tensor_address(k->sP, coord(row, mul(vector, imm(VECTOR)), buffer));
        copy(rQ[i], smem_view(to, I32, compact(leaf(4))), 16);
        sync_all(); // two chunks are there
        for (int j = 0; j < BUFFERS && i * BUFFERS + j < k->d.chunks; j++)
            ldmatrix_A(&c->mma, slice(k->sP, _, _, j), lane(),
                       local_tile(c->rQ, shape(4, 1, CHUNK / STEP), coord(0, 0, i * BUFFERS + j)));
        sync_all(); // all warps have read them
    }
}

/* scores = Q * K^T of its own keys, by sums that do not wait for each other. */
static void multiply_keys(const few_kernel *k, const consumer_role *c, val slot)
{
    enum { CHAINS = 2, COLUMNS = CHAINS * STEP };
    const tensor chain[CHAINS] = { c->scores, fragment_C(&c->mma, ROWS, OWN_KEYS) };
    for (int i = 0; i < CHAINS; i++)
        fill(chain[i], immf(0));
    for (int i = 0; i < k->d.chunks * CHUNK / COLUMNS; i++) {
        const tensor sChunk = slice(k->sK, _, _, i * COLUMNS / CHUNK, slot),
                     sK = local_tile(sChunk, shape(OWN_KEYS, COLUMNS), coord(warp(), i % (CHUNK / COLUMNS))),
                     rK = fragment_B_words(&c->mma, OWN_KEYS, COLUMNS);
        ldmatrix_B(&c->mma, sK, lane(), rK);
        for (int j = 0; j < CHAINS; j++)
            gemm(&c->mma, local_tile(c->rQ, shape(4, 1, 1), coord(0, 0, i * CHAINS + j)),
                 local_tile(rK, shape(2, 1, 1), coord(0, 0, j)), chain[j], yes());
    }
    UNROLL(i, static_size(c->scores.layout))
        assign(at(c->scores, i), add(at(chain[0], i), at(chain[1], i)));
}

/* What this warp has of O. Partials are to stay in L2: stores to memory cost reads far more than their bytes. */
static latent_part own_part(const few_kernel *k, const consumer_role *c)
{
    return (latent_part){ .place = &k->place,
                          .mma = &c->mma,
                          .rows = ROWS,
                          .width = width_of(&k->cfg->form),
                          .index = warp(),
                          .tid = lane(),
                          .out = c->out,
                          .online = &c->rows,
                          .cache = IR_CACHE_EVICT_LAST,
                          .sHeld = k->sHeld,
                          .levels = HELD };
}

/* Its own scores become weights by the rows' maxima, and go to the others. True where one is beyond 2^HIGH. */
static val weigh(const few_kernel *k, const consumer_role *c, tensor weights, val buffer)
{
    tensor sOwn = local_tile(slice(k->sP, _, _, buffer), shape(ROWS, OWN_KEYS), coord(0, warp())),
           cS = partition_C(&c->mma, identity_tensor(shape(ROWS, OWN_KEYS)), lane());
    val high = no();
    for (int r = 0; r < ROW_HALVES; r++) {
        const val offset = neg(mul(c->rows.max[r], c->rows.exponent));
        const int64_t first = attention_online_row_value(c->scores, r);
        tensor rPair = fragment(k->place.form.dtype, compact(leaf(2)));
        for (int i = 0; i < 2; i++) {
            const val bits = fma(at(c->scores, first + i), c->rows.exponent, offset), weight = exp2_ftz(bits);
            high = logical_or(high, lt(immf(HIGH), bits));
            set(weights, first + i, weight);
            set(rPair, i, convert(k->place.form.dtype, weight));
        }
        const val to = tensor_address(sOwn, coord(coordinate(cS, 0, first), coordinate(cS, 1, first)));
        copy(rPair, smem_view(to, k->place.form.dtype, compact(leaf(2))), 4);
    }
    return vote_any(high);
}

/* What all warps have left of a row. */
static void of_all_warps(const few_kernel *k, val row, val *of)
{
    tensor rAll = fragment(F32, compact(leaf(WARPS)));
    copy(slice(k->sOfRow, row, _), rAll, 16);
    for (int w = 0; w < WARPS; w++)
        of[w] = at(rAll, w);
}

/* Each row's maximum grows to that of this block. All warps do so together. */
static void raise(const few_kernel *k, consumer_role *c)
{
    const latent_part part = own_part(k, c);
    val largest[ROW_HALVES], of[WARPS];
    for (int r = 0; r < ROW_HALVES; r++) {
        const int64_t first = attention_online_row_value(c->scores, r);
        largest[r] = max(at(c->scores, first), at(c->scores, first + 1));
        for (int lanes = 1; lanes < 4; lanes *= 2)
            largest[r] = max(largest[r], shuffle_xor(largest[r], imm(lanes)));
        IF(eq(thread_at(lane(), 0, 4, 8), imm(0)))
            set(k->sOfRow, coord(attention_decode_latent_row(&part, r), warp()), largest[r]);
    }
    sync_all();
    for (int r = 0; r < ROW_HALVES; r++) {
        of_all_warps(k, attention_decode_latent_row(&part, r), of);
        largest[r] = c->rows.max[r];
        for (int w = 0; w < WARPS; w++)
            largest[r] = max(largest[r], of[w]);
        assign(c->rows.factor[r], exp2_ftz(mul(sub(c->rows.max[r], largest[r]), c->rows.exponent)));
    }
    attention_online_rows_raise(&c->rows, largest);
    attention_scale_rows(c->out, c->rows.factor);
}

/* Scores become weights of all warps' keys, and are summed. One barrier, unless a maximum must grow. */
static void share_weights(const few_kernel *k, consumer_role *c, val buffer)
{
    tensor weights = fragment_C(&c->mma, ROWS, OWN_KEYS), rHigh = fragment(I32, compact(leaf(WARPS)));
    const val high = weigh(k, c, weights, buffer);
    IF(eq(lane(), imm(0)))
        set(k->sHigh, coord(warp(), buffer), select(high, imm(1), imm(0)));
    UNROLL(i, static_size(weights.layout))
        set(weights, i, variable(F32, at(weights, i)));
    sync_all();
    copy(slice(k->sHigh, _, buffer), rHigh, 16);
    val any = at(rHigh, 0);
    for (int w = 1; w < WARPS; w++)
        any = bit_or(any, at(rHigh, w));
    IF(ne(any, imm(0))) {
        raise(k, c);
        tensor again = fragment_C(&c->mma, ROWS, OWN_KEYS);
        weigh(k, c, again, buffer);
        UNROLL(i, static_size(weights.layout))
            assign(at(weights, i), at(again, i));
        sync_all();
    }
    for (int r = 0; r < ROW_HALVES; r++) {
        const int64_t first = attention_online_row_value(weights, r);
        assign(c->rows.sum[r], add(c->rows.sum[r], add(at(weights, first), at(weights, first + 1))));
    }
}

/* O += weights of all keys * its own columns of values. */
static void multiply_values(const few_kernel *k, const consumer_role *c, val buffer, val slot)
{
    columns own = attention_columns_of(width_of(&k->cfg->form));
    own.subtile = own.subtile < 32 ? own.subtile : 32; // registers
    tensor rP = fragment_A_words(&c->mma, ROWS, KEYS);
    ldmatrix_A(&c->mma, slice(k->sP, _, _, buffer), lane(), rP);
    const tensor sOwn = local_tile(slice(k->sVt, _, _, slot), shape(own.used, KEYS), coord(warp(), imm(0)));
    attention_multiply_values(&c->mma, rP, sOwn, own, true, c->out);
}

static void use_block(const few_kernel *k, consumer_role *c, val number)
{
    const pipeline_state at = state_at(k, number, 0);
    const val start = add(add(k->place.from, mul(number, imm(KEYS))), mul(warp(), imm(OWN_KEYS))),
              buffer = bit_and(number, imm(1));
    decode_place own = k->place;
    own.keys = OWN_KEYS;
    const latent_keys keys = { k->sK, start, mul(warp(), imm(OWN_KEYS)), at.stage, OWN_KEYS, lane(), LANES };
    pipeline_wait_full(&k->ring, &at);
    if (k->place.form.append) {
        attention_decode_latent_append(&k->place, &keys);
        warp_sync();
    }
    multiply_keys(k, c, at.stage);
    if (k->place.form.softcap)
        attention_cap_scores(c->scores, k->place.p.factor);
    IF(attention_decode_is_cut(&own, start)) {
        const decode_rows rows = { mul(k->place.tile, imm(ROWS)), ROWS };
        attention_decode_mask(&own, start, rows, &c->mma, lane(), c->scores);
        warp_sync(); // all lanes are done with the keys
        attention_decode_latent_clear(&k->place, &keys);
    }
    share_weights(k, c, buffer);
    multiply_values(k, c, buffer, at.stage);
    fence_proxy_async(); // TMA overwrites what was read,
    warp_sync();         // once one lane releases it for all
    IF(eq(lane(), imm(0)))
        pipeline_release(&k->ring, at.stage);
}

/* Sums of all warps' weights of the rows, by each lane. */
static void sum_rows(const few_kernel *k, consumer_role *c)
{
    const latent_part part = own_part(k, c);
    attention_online_rows_finish(&c->rows, NO_SINK);
    for (int r = 0; r < ROW_HALVES; r++)
        IF(eq(thread_at(lane(), 0, 4, 8), imm(0)))
            set(k->sOfRow, coord(attention_decode_latent_row(&part, r), warp()), c->rows.sum[r]);
    sync_all();
    for (int r = 0; r < ROW_HALVES; r++) {
        val of[WARPS];
        of_all_warps(k, attention_decode_latent_row(&part, r), of);
        for (int w = 1; w < WARPS; w++)
            of[0] = add(of[0], of[w]);
        assign(c->rows.sum[r], of[0]);
    }
}

static consumer_role describe_consumer(const few_kernel *k)
{
    consumer_role c = { .mma = attention_warps_mma(k->place.form.dtype, 1) };
    c.rQ = fragment_A_words(&c.mma, ROWS, k->d.chunks * CHUNK);
    c.scores = fragment_C(&c.mma, ROWS, OWN_KEYS);
    c.out = fragment_C(&c.mma, ROWS, width_of(&k->cfg->form));
    c.rows = attention_online_rows_begin(ROW_HALVES, k->place.p.exponent);
    fill(c.rQ, imm_as(U32, 0));
    return c;
}

static void use_split(void *of)
{
    few_kernel *k = of;
    const decode_sums sums = { .place = &k->place, .threads = THREADS, .barrier = BARRIER };
    consumer_role *c = k->consumer;
    IF(logical_or(eq(k->place.before, imm(0)), eq(k->place.split, imm(0)))) // else the queries are there
        load_queries(k, c);
    fill(c->out, immf(0));
    attention_online_rows_reset(&c->rows);
    LOOP(number, k->place.steps)
        use_block(k, c, number);
    sum_rows(k, c);
    const latent_part part = own_part(k, c);
    attention_decode_latent_climb(&part, &sums);
}

static void consumers(few_kernel *k)
{
    warpgroup_reg_alloc(CONSUMER_REGISTERS);
    consumer_role c = describe_consumer(k);
    k->consumer = &c;
    attention_decode_for_share(&k->place, k->cfg->split, KEYS, use_split, k);
}

void attention_decode_latent_few(const void *config, int kernel)
{
    const attention_decode_latent_config *cfg = config;
    (void)kernel;
    launch_bounds(THREADS + PRODUCERS, 1);
    few_kernel k = describe_kernel(cfg);
    attention_decode_latent_initialise(&k.tmaK, &k.ring);
    IF(lt(warp(), imm(WARPS))) {
        consumers(&k);
    }
    ELSE
    {
        producer(&k);
    }
}
