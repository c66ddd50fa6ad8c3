/*
 * attention_decode_sm80.c - attention of a few rows against a cache, for every GPU from sm_80 on; bound by loading keys
 * and values.
 *
 * The rows of a CTA are the heads that share a head of the cache, times the new tokens: no more than an MMA has anyway.
 * A CTA takes `split` keys, and its warps take blocks of `keys` of them in turn. Each warp has its own ring of blocks,
 * which its lanes fill by cp.async, so warps do not wait for each other until their partials are added at the end. More
 * rows than an MMA has are shared by two warps, which share a ring, too: one fills it with keys, the other with values.
 * The CTAs of a sequence leave theirs in the workspace, and the last one adds them in the order of the keys.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_sm80.h"

enum {
    ROWS = 16, // of an atom: those of a warp
    STAGES_MAX = ATTENTION_DECODE_STAGES_MAX,
};

/* Elements of a 16-bit word of the cache. */
static int packed_in(const attention_decode_form *form)
{
    return 2 / (int)ckl_dtype_bytes(form->cache);
}

static int64_t ring_bytes(const attention_decode_sm80_config *c, int d)
{
    return attention_decode_rings(c) * c->stages *
           attention_columns_bytes(attention_columns_of(d / packed_in(&c->form)), c->keys);
}

/* Rows of a warp's accumulators: of an atom the first eight, if there are no others. Then those of a CTA's partials. */
static int used_rows(const attention_decode_sm80_config *c)
{
    return c->row_warps > 1 || c->form.tokens * c->form.group > 8 ? ROWS : 8;
}

static int shared_rows(const attention_decode_sm80_config *c)
{
    return (int)min_i64(c->form.tokens * c->form.group, attention_decode_rows(c));
}

static int64_t merge_bytes(const attention_decode_sm80_config *c)
{
    return (int64_t)attention_decode_rings(c) * shared_rows(c) *
           (packed_in(&c->form) * attention_columns_of(c->form.dv / packed_in(&c->form)).used + DECODE_PAD) * 4;
}

/* Where a CTA has one split, the partials lie where the rings were; else beside these, which go on. */
static int64_t rings_and_partials_bytes(const attention_decode_sm80_config *c)
{
    const int64_t rings = ring_bytes(c, c->form.d) + ring_bytes(c, c->form.dv);
    return c->run == 1 ? max_i64(rings, merge_bytes(c)) : rings + merge_bytes(c);
}

int64_t attention_decode_sm80_smem(const attention_decode_sm80_config *c)
{
    int64_t states = 2 * attention_decode_rings(c) * shared_rows(c) * 4, of_cluster = 2 * shared_rows(c) * 4, flag = 4;
    return rings_and_partials_bytes(c) + states + (c->cluster > 1 ? of_cluster : flag);
}

/* Which warp does what */

/* This warp's ring. */
static val ring_of(const decode_kernel *k)
{
    return k->cfg->row_warps == 1 ? warp() : div(warp(), imm(k->cfg->row_warps));
}

/* A row of this warp as one of the tile; the first one as one of the group. */
static val row_in_tile(const decode_kernel *k, val row)
{
    const int row_warps = k->cfg->row_warps;
    return row_warps == 1 ? row : add(row, mul(rem(warp(), imm(row_warps)), imm(ROWS)));
}

static val first_row(const decode_kernel *k)
{
    return row_in_tile(k, mul(k->place.tile, imm(k->place.rows)));
}

val attention_decode_block_start(const decode_kernel *k, val number)
{
    const val block = add(ring_of(k), mul(number, imm(attention_decode_rings(k->cfg))));
    return add(k->place.from, mul(block, imm(k->cfg->keys)));
}

void attention_decode_block_sync(const decode_kernel *k)
{
    enum { BARRIER = 1 }; // + ring: all warps of it arrive and wait
    if (k->cfg->row_warps == 1)
        warp_sync();
    else
        named_sync(add(ring_of(k), imm(BARRIER)), LANES * k->cfg->row_warps);
}

/* Construction */

static tensor ring_at(const decode_kernel *k, int64_t offset, columns c)
{
    int slots = attention_decode_rings(k->cfg) * k->cfg->stages;
    return smem_view(smem_address(offset), k->place.form.dtype,
                     attention_chunks_layout(k->place.form.dtype, c, k->cfg->keys, slots));
}

/* Columns of O, up to a multiple of what atoms take. */
static int width_of(const decode_kernel *k)
{
    return k->dv.used * k->packed;
}

static void describe_memory(decode_kernel *k)
{
    const attention_decode_sm80_config *c = k->cfg;
    int64_t k_bytes = ring_bytes(c, c->form.d), both = k_bytes + ring_bytes(c, c->form.dv);
    int64_t first = smem_alloc("rings", rings_and_partials_bytes(c), 1024);
    k->sK = ring_at(k, first, k->d);
    k->sV = ring_at(k, first + k_bytes, k->dv);
    k->sVt = attention_transposed_chunks(k->sV, k->dv);
    const int width = width_of(k), pitch = width + DECODE_PAD, rows = shared_rows(c), rings = attention_decode_rings(c);
    k->sO = smem_view(smem_address(first + (c->run == 1 ? 0 : both)), F32,
                      make_layout(shape(rows, width, rings), stride(pitch, 1, rows * pitch)));
    k->sTop = smem_tensor("maxima", F32, compact(shape(rows, rings)), 4);
    k->sSum = smem_tensor("sums", F32, compact(shape(rows, rings)), 4);
}

/*
 * e4m3 widened to f16 without an instruction for it is too small by 2^8 (attention_decode_narrow.c). The sign of K's
 * scale goes to Q: maxima are those of unscaled products.
 */
static void describe_scales(decode_kernel *k)
{
    const attention_decode_values *p = &k->place.p;
    const double raised = k->cfg->convert ? 1 : 0x1p8;
    k->exponent = p->exponent;
    k->factor = p->factor;
    if (k->packed == 1)
        return;
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++)
        k->scale[which] = at(gmem_vector(p->scales[which], F32, p->kv_heads), k->place.kv_head);
    val *const of_products = k->place.form.softcap ? &k->factor : &k->exponent;
    *of_products = mul(*of_products, mul(abs(k->scale[ATTENTION_K]), immf(raised)));
    val sign = bit_and(bitcast(U32, k->scale[ATTENTION_K]), imm_as(U32, 0x80000000));
    k->signs = bit_or(sign, shift_right(sign, imm(16)));
    k->value_scale = mul(k->scale[ATTENTION_V], immf(raised));
}

/* Of the rows of an atom the first eight, where there are no others: (MMA,1,MMA_N). */
static tensor rows_in_use(const decode_kernel *k, tensor acc)
{
    if (used_rows(k->cfg) > 8)
        return acc;
    return local_tile(acc, shape(2, 1, static_size(layout_mode(acc.layout, 2))), coord(0, 0, 0));
}

/* How many of these a thread has. */
static int used_row_count(const decode_kernel *k)
{
    return used_rows(k->cfg) > 8 ? attention_online_row_count(k->scores) : 1;
}

static void describe_registers(decode_kernel *k)
{
    const attention_decode_sm80_config *c = k->cfg;
    k->factors = k->packed == 1 ? k->place.form.dtype : CKL_F16;
    k->mma = attention_warps_mma(k->factors, 1);
    k->rQ = fragment_A_words(&k->mma, ROWS, k->d.used * k->packed);
    k->scores = fragment_C(&k->mma, ROWS, c->keys);
    k->out = fragment_C(&k->mma, ROWS, width_of(k));
    k->weights = fragment_A_words(&k->mma, ROWS, c->keys);
    k->used_scores = rows_in_use(k, k->scores);
    k->used_out = rows_in_use(k, k->out);
    k->online = attention_online_rows_begin(used_row_count(k), k->exponent);
    fill(k->out, immf(0));
}

/* Loads */

/*
 * With sums of splits in registers, wide queries do not fit beside them. So every block loads them again, from L1.
 */
static bool keeps_queries(const decode_kernel *k)
{
    const int d = k->place.form.d;
    return k->cfg->run == 1 || d <= 128 || d % STEP || k->packed > 1;
}

/*
 * This lane's pairs of row 8m + its own of the warp, from its first one on; rows past the last one are as that. (D/2)
 */
static tensor query_of(const decode_kernel *k, int m)
{
    val row = add(first_row(k), add(thread_at(lane(), 1, 4, 8), imm(8 * m)));
    tensor gRow = attention_decode_row_of(&k->place, ATTENTION_Q, min(row, imm(k->place.rows_all - 1)));
    val first = tensor_address(gRow, coord(mul(thread_at(lane(), 0, 4, 8), imm(2 * k->packed))));
    return gmem_tensor(first, I32, make_layout(leaf(k->place.form.d / 2), leaf(1)));
}

/* A step of Q: (PAIRS,MMA_M,1) */
static tensor queries_of(const decode_kernel *k, int step)
{
    if (keeps_queries(k))
        return local_tile(k->rQ, shape(4, 1, 1), coord(0, 0, step));
    tensor rQ = fragment_A_words(&k->mma, ROWS, STEP);
    fill(rQ, imm_as(U32, 0));
    for (int m = 0; m < used_rows(k->cfg) / 8; m++)
        for (int half = 0; half < 2; half++)
            set(rQ, coord(m + 2 * half, 0, 0), bitcast(U32, at(k->gQ[m], 8 * step + 4 * half)));
    return rQ;
}

/* Loads Q into the registers of every warp, pair by pair. Columns past the last ones are 0. */
static void load_queries(const decode_kernel *k)
{
    const int steps = (int)static_size(layout_mode(k->rQ.layout, 2));
    fill(k->rQ, imm_as(U32, 0));
    for (int m = 0; m < used_rows(k->cfg) / 8; m++)
        for (int half = 0; half < 2 * steps && 8 * half < k->place.form.d; half++) {
            const int pair = k->packed == 1 ? 4 * half : half / 2 * 8 + half % 2; // in the order of the keys' words
            const val word = bitcast(U32, at(k->gQ[m], pair));
            set(k->rQ, coord(m + 2 * (half % 2), 0, half / 2), k->packed == 1 ? word : bit_xor(word, k->signs));
        }
}

/* Products */

/* scores = Q * K^T of a slot, 16 columns of them at a time. */
static void multiply_keys(const decode_kernel *k, val slot)
{
    const int bn = k->cfg->keys;
    fill(k->scores, immf(0));
    for (int at = 0; at < k->d.used; at += STEP) {
        tensor sK = slice(k->sK, _, _, at / k->d.chunk, slot), rK = fragment_B(&k->mma, bn, STEP);
        ldmatrix_B(&k->mma, local_tile(sK, shape(bn, STEP), coord(0, at % k->d.chunk / STEP)), lane(), rK);
        gemm(&k->mma, queries_of(k, at / STEP), rK, k->scores, yes());
    }
}

/* out += weights * V of a slot. */
static void multiply_values(const decode_kernel *k, val slot)
{
    attention_multiply_values(&k->mma, k->weights, slice(k->sVt, _, _, slot), k->dv, true, k->out);
}

static void use_block(decode_kernel *k, val number, val slot)
{
    val start = attention_decode_block_start(k, number);
    if (k->place.form.append)
        attention_decode_append(k, start, slot);
    (k->packed == 1 ? multiply_keys : attention_decode_multiply_narrow_keys)(k, slot);
    if (k->factors != k->place.form.dtype)
        attention_scale_rows(k->used_scores, k->row_unit);
    if (k->place.form.softcap)
        attention_cap_scores(k->used_scores, k->factor);
    IF(attention_decode_is_cut(&k->place, start)) {
        const decode_rows rows = { first_row(k), ROWS };
        attention_decode_mask(&k->place, start, rows, &k->mma, lane(), k->scores);
    }
    attention_online_softmax(&k->online, k->used_scores, NULL);
    accumulators_to_A(k->scores, k->factors, k->weights);
    if (k->cfg->row_warps > 1)
        attention_rescale_rows(k->used_out, k->online.factor, used_row_count(k));
    else
        attention_scale_rows(k->used_out, k->online.factor);
    (k->packed == 1 ? multiply_values : attention_decode_multiply_narrow_values)(k, slot);
}

/*
 * A warp's way through its ring: its blocks, the most that a warp has, the slots to use and to fill next, and where the
 * block for the latter is.
 */
typedef struct ring_place {
    val first, count, rounds, use, fill;
    block_rows next;
} ring_place;

/* Starts the copies of the first blocks; all are found before the first one is waited for. */
static ring_place begin_ring(decode_kernel *k)
{
    const int stages = k->cfg->stages, bn = k->cfg->keys, rings = attention_decode_rings(k->cfg);
    val blocks = div(add(sub(max(k->place.to, k->place.from), k->place.from), imm(bn - 1)), imm(bn));
    ring_place r = { .first = mul(ring_of(k), imm(stages)) };
    r.count = div(sub(add(blocks, imm(rings - 1)), ring_of(k)), imm(rings));
    r.rounds = div(add(blocks, imm(rings - 1)), imm(rings));
    block_rows rows[STAGES_MAX];
    for (int s = 0; s < stages; s++) {
        rows[s] = attention_decode_no_rows(k);
        attention_decode_find_rows(k, imm_as(U32, s), &rows[s]);
    }
    for (int s = 0; s < stages - 1; s++)
        attention_decode_load_block(k, &rows[s], add(r.first, imm(s)));
    if (k->place.form.append)
        attention_decode_load_new(k);
    for (int m = 0; m < used_rows(k->cfg) / 8; m++)
        k->gQ[m] = query_of(k, m);
    if (keeps_queries(k))
        load_queries(k); // overlaps the first copies
    if (k->factors != k->place.form.dtype)
        attention_decode_queries_to_f16(k);
    if (k->place.form.append)
        attention_decode_store_new(k);
    r.next = rows[stages - 1];
    r.use = variable(U32, imm(0));
    r.fill = variable(U32, imm(stages - 1));
    return r;
}

/*
 * Goes through blocks of this warp. stages - 1 are in flight while one is used; the address of the one after those
 * is loaded earlier still. After each sync all lanes' copies of this block have arrived, and all lanes are done
 * with the one before.
 */
static void attend(decode_kernel *k, ring_place *r, val from, val to)
{
    const int stages = k->cfg->stages;
    LOOP_FROM(i, from, to, imm(1)) {
        cp_async_wait(stages - 2);
        attention_decode_block_sync(k);
        attention_decode_load_block(k, &r->next, add(r->first, r->fill));
        attention_decode_find_rows(k, add(i, imm(stages)), &r->next);
        use_block(k, i, add(r->first, r->use));
        assign(r->use, select(eq(r->use, imm(stages - 1)), imm(0), add(r->use, imm(1))));
        assign(r->fill, select(eq(r->fill, imm(stages - 1)), imm(0), add(r->fill, imm(1))));
    }
}

/*
 * Warps that go on alone drift apart, and what they read with them: rows of the cache that lie side by side are read at
 * different times then. So they meet (bench/notes/attention.md).
 */
static void attend_together(decode_kernel *k, ring_place *r, val from, val to)
{
    enum { KEYS = 512 };
    const attention_decode_sm80_config *c = k->cfg;
    if (c->split <= KEYS) {
        attend(k, r, min(from, r->count), min(to, r->count));
        return;
    }
    const int blocks = KEYS / c->keys / attention_decode_rings(c);
    LOOP_FROM(at, from, to, imm(blocks)) {
        val end = min(add(at, imm(blocks)), to);
        attend(k, r, min(at, r->count), min(end, r->count));
        cta_sync();
    }
}

/* The end of a split */

/*
 * Stores this warp's columns of row m of a thread. Two of an atom lie side by side; of 8-bit values those of two atoms,
 * which have the even and the odd columns of 16.
 */
static void share_row(const decode_kernel *k, int m, val row)
{
    const int atoms = k->packed, count = 2 * atoms, width = 8 * atoms;
    val to = tensor_address(k->sO, coord(row, mul(thread_at(lane(), 0, 4, 8), imm(count)), ring_of(k)));
    for (int n = 0; n < width_of(k) / width; n++) {
        tensor rO = fragment(F32, compact(leaf(count)));
        for (int i = 0; i < count; i++)
            set(rO, i, at(k->out, coord(m * 2 + i / atoms, 0, n * atoms + i % atoms)));
        copy(rO, smem_view(add(to, imm(4 * width * n)), F32, compact(leaf(count))), 4 * count);
    }
}

/* Stores the warps' partials in shared memory, after all are done with what was there, but rows that no tile has. */
static void share_states(decode_kernel *k)
{
    tensor cS = partition_C(&k->mma, identity_tensor(shape(ROWS, k->cfg->keys)), lane());
    attention_online_rows_finish(&k->online, NO_SINK);
    cta_sync();
    for (int m = 0; m < used_rows(k->cfg) / 8; m++) { // rows of a thread
        val row = row_in_tile(k, coordinate(cS, 0, attention_online_row_value(k->scores, m)));
        IF(lt(row, imm(shared_rows(k->cfg)))) {
            share_row(k, m, row);
            IF(eq(thread_at(lane(), 0, 4, 8), imm(0))) {
                set(k->sTop, coord(row, ring_of(k)), k->online.max[m]);
                set(k->sSum, coord(row, ring_of(k)), k->online.sum[m]);
            }
        }
    }
    cta_sync();
}

/* A CTA of several splits: the ring goes on from one to the next. */
typedef struct split_run {
    decode_kernel *k;
    ring_place *ring;
} split_run;

static void attend_split(void *of, val number)
{
    const split_run *run = of;
    decode_kernel *k = run->k;
    const attention_decode_sm80_config *c = k->cfg;
    const val blocks = imm_as(U32, c->split / c->keys / attention_decode_rings(c)), from = mul(number, blocks);
    fill(k->out, immf(0));
    attention_online_rows_reset(&k->online);
    attend_together(k, run->ring, from, min(add(from, blocks), run->ring->rounds));
    share_states(k);
}

/* CTAs of the next launch take the room of this one's, and not of those that have yet to begin. */
static void end_keys(void)
{
    cp_async_wait(0);
    launch_dependents();
}

static void attend_splits(decode_kernel *k, const decode_sums *sums)
{
    ring_place r = begin_ring(k);
    split_run run = { k, &r };
    if (k->cfg->run == 1) {
        attend_together(k, &r, imm_as(U32, 0), r.rounds);
        end_keys();
        share_states(k);
        attention_decode_finish_split(sums);
        return;
    }
    attention_decode_sum_run(sums, attend_split, &run);
    end_keys();
}

static decode_sums sums_of(const decode_kernel *k)
{
    const attention_decode_sm80_config *c = k->cfg;
    tensor sState = { 0 };
    if (c->cluster > 1)
        sState = smem_tensor("this CTA's maxima and sums", F32, compact(shape(2, shared_rows(c))), 8);
    return (decode_sums){ .sState = sState,
                          .place = &k->place,
                          .partials = attention_decode_rings(k->cfg),
                          .flight = c->ctas > 2 || (!c->ctas && c->form.d <= 64 && c->form.dv <= 64) ? 16 : 32,
                          .threads = LANES * k->cfg->warps,
                          .sO = k->sO,
                          .sTop = k->sTop,
                          .sSum = k->sSum,
                          .value_scale = k->value_scale };
}

void attention_decode_sm80(const void *config, int kernel)
{
    const attention_decode_sm80_config *cfg = config;
    decode_kernel k = { .cfg = cfg, .packed = packed_in(&cfg->form) };
    k.place = (decode_place){ .form = cfg->form,
                              .rows = attention_decode_rows(cfg),
                              .keys = cfg->keys,
                              .run = cfg->run,
                              .cluster = cfg->cluster,
                              .whole = cfg->whole };
    k.d = attention_columns_of(cfg->form.d / k.packed);
    k.dv = attention_columns_of(cfg->form.dv / k.packed);
    (void)kernel;
    launch_bounds(LANES * cfg->warps, cfg->ctas);
    k.place.p = params_of(attention_decode);
    if (cfg->cluster > 1)
        cluster_size(cfg->cluster);
    attention_decode_find_cta(&k.place, cta_x());
    describe_memory(&k);
    if (cfg->ahead)
        attention_decode_prefetch(&k);
    grid_wait(); // what is above overlaps the end of the kernel before
    if (cfg->early)
        launch_dependents();
    attention_decode_find_keys(&k.place, cfg->split);
    describe_scales(&k);
    const decode_sums sums = sums_of(&k);
    IF(lt(k.place.split, k.place.splits)) {
        describe_registers(&k);
        attend_splits(&k, &sums);
        if (cfg->cluster == 1 && !cfg->whole)
            IF(gt(k.place.splits, imm(cfg->run)))
                attention_decode_add_up(&sums);
    }
    if (cfg->cluster > 1)
        attention_decode_add_up_cluster(&sums);
}
