/*
 * attention_decode_sm90.c - attention of a few rows against a cache, for GPUs with TMA: sm80's products, whose keys and values never
 * stop coming.
 *
 *   warps 0 ..    consumers: blocks of `keys` keys of a split in turn. They wait for no memory but the ring: length and queries of the
 *                 next split are on their way since the start of this one
 *   one warp      producer: knows the pages of 32 boxes of keys, a lane each, and brings them by TMA
 *   three warps   finishers: put together what the consumers have of a split, under the next one
 *
 * Persistent: a CTA takes one split after the other, and the ring goes on from one to the next. A slot of the ring has one block of K
 * and V and one reader.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_sm80.h"

enum {
    LANES = 32,
    VECTOR = 8,    // 16-bit words of 16 bytes
    BOXES_MAX = 4, // of at least 8 keys, of a block of 32
    FINISHERS = 3, // warps
    PAD = 8,       // elements between rows of Q in shared memory, against bank conflicts
    // named barriers
    BARRIER_CONSUMERS = 1,
    BARRIER_FINISHERS = 2,
    BARRIER_FREE = 3, // the sums of the split before have been read: finishers arrive, consumers wait
    BARRIER_FULL = 4  // the sums of this one are there: consumers arrive, finishers wait
};

typedef struct sm90_kernel {
    decode_kernel decode;
    tma_copy tma[ATTENTION_TENSORS]; // of K and V
    int rows, boxes;                 // of a box; of a block
    pipeline ring;
    tensor sQ;             // (BM,D,2)
    val done;              // blocks of all splits before this one, a variable of each role
    val length, key_scale; // of the consumers' next split; variables
} sm90_kernel;

static int64_t rings_bytes(const attention_decode_sm90_config *c)
{
    return attention_decode_ring_bytes(c, c->form.d) + attention_decode_ring_bytes(c, c->form.dv);
}

static int64_t queries_bytes(const attention_decode_sm90_config *c)
{
    return 2 * (int64_t)c->rows * (c->form.d + PAD) * 2;
}

int64_t attention_decode_sm90_smem(const attention_decode_sm90_config *c)
{
    const int64_t states = 2 * c->warps * c->rows * 4, flag = 4, barriers = 16 * (int64_t)c->warps * c->stages;
    return rings_bytes(c) + attention_decode_merge_bytes(c) + queries_bytes(c) + states + barriers + flag;
}

static sm90_kernel describe_kernel(const attention_decode_sm90_config *cfg)
{
    sm90_kernel k = { .decode = attention_decode_kernel_of(cfg) };
    decode_kernel *d = &k.decode;
    const int64_t rings = smem_alloc("rings", rings_bytes(cfg), 1024),
                  sums = smem_alloc("sums of values", attention_decode_merge_bytes(cfg), 16);
    attention_decode_describe_memory(d, rings, sums);
    k.rows = cfg->form.page && cfg->form.page < cfg->keys ? cfg->form.page : cfg->keys;
    k.boxes = cfg->keys / k.rows;
    k.tma[ATTENTION_K] = make_tma(d->place.p.K, cfg->form.dtype, 4, k.rows, d->d.chunk, 2 * d->d.chunk);
    k.tma[ATTENTION_V] = make_tma(d->place.p.V, cfg->form.dtype, 4, k.rows, d->dv.chunk, 2 * d->dv.chunk);
    const int pitch = cfg->form.d + PAD;
    k.sQ = smem_tensor("Q", cfg->form.dtype,
                       make_layout(shape(cfg->rows, cfg->form.d, 2), stride(pitch, 1, cfg->rows * pitch)), 16);
    k.ring = make_pipeline("ring", cfg->warps * cfg->stages, 1, 1);
    return k;
}

static void initialise(const sm90_kernel *k)
{
    IF(eq(thread(), imm(0))) {
        tma_prefetch(&k->tma[ATTENTION_K]);
        tma_prefetch(&k->tma[ATTENTION_V]);
        pipeline_init(&k->ring);
        fence_mbarrier_init();
    }
    cta_sync();
    grid_wait();
    launch_dependents();
}

/* Blocks of the split. */
static val blocks_of(const sm90_kernel *k)
{
    const decode_place *at = &k->decode.place;
    return div(add(sub(max(at->to, at->from), at->from), imm(at->keys - 1)), imm(at->keys));
}

/* The slot of a block of the split, and the phase of its barriers: `empty` 1 for the one who fills it. */
static pipeline_state slot_of(const sm90_kernel *k, val block, int empty)
{
    const val number = add(k->done, block), slots = imm(k->ring.stages);
    return (pipeline_state){ rem(number, slots), bit_and(add(div(number, slots), imm(empty)), imm(1)), k->ring.stages };
}

/* Producer */

/* The page of a box of the split, or the sequence. The table is read up to kv, so that it need not wait for the length. */
static val origin_of(const sm90_kernel *k, val box)
{
    const decode_place *at = &k->decode.place;
    if (!at->form.page)
        return at->batch;
    tensor gTable =
        gmem_tensor(at->p.table, I32,
                    make_layout(shape(at->p.table_pages, at->p.batch), stride(1, convert(I64, at->p.table_pages))));
    const val key = min(add(at->from, mul(box, imm(k->rows))), sub(at->p.kv, imm(1)));
    return convert(U32, at(gTable, div(key, imm(at->form.page)), at->batch));
}

/* The chunks of box number `b` of a block of K or V. */
static void load_box(const sm90_kernel *k, int which, tensor sBlock, int b, val row, val origin, val barrier)
{
    const tma_copy *tma = &k->tma[which];
    for (int c = 0; c < static_size(layout_mode(sBlock.layout, 2)) && !ir_failed(); c++)
        tma_load_of(tma, local_tile(slice(sBlock, _, _, c), shape(k->rows, tma->cols), coord(b, 0)), row,
                    imm(c * tma->cols), 2, (const val[]){ k->decode.place.kv_head, origin }, barrier, imm(0));
}

static void load_block(const sm90_kernel *k, val block, const val *origin)
{
    const decode_kernel *d = &k->decode;
    const decode_place *at = &d->place;
    const pipeline_state slot = slot_of(k, block, 1);
    const int64_t bytes = attention_columns_bytes(d->d, at->keys) + attention_columns_bytes(d->dv, at->keys);
    val row = add(at->from, mul(block, imm(at->keys)));
    if (at->form.page)
        row = rem(row, imm(at->form.page));
    pipeline_wait_empty(&k->ring, &slot);
    pipeline_expect(&k->ring, &slot, imm((int)bytes));
    const val full = pipeline_full_barrier(&k->ring, &slot);
    for (int b = 0; b < k->boxes; b++) {
        load_box(k, ATTENTION_K, slice(d->sK, _, _, _, slot.stage), b, row, origin[b], full);
        load_box(k, ATTENTION_V, slice(d->sV, _, _, _, slot.stage), b, row, origin[b], full);
    }
}

/* The producer's warp: a block at a time by one of its lanes. */
static void load_split(void *of)
{
    sm90_kernel *k = of;
    const int together = LANES / k->boxes;
    const val origin = variable(U32, origin_of(k, lane())), blocks = blocks_of(k);
    LOOP_FROM(group, imm_as(U32, 0), blocks, imm(together)) {
        LOOP_FROM(block, group, min(add(group, imm(together)), blocks), imm(1)) {
            val boxes[BOXES_MAX];
            for (int b = 0; b < k->boxes; b++)
                boxes[b] = shuffle(origin, add(mul(sub(block, group), imm(k->boxes)), imm(b)));
            IF(elect())
                load_block(k, block, boxes);
        }
        assign(origin, origin_of(k, add(mul(add(group, imm(together)), imm(k->boxes)), lane())));
    }
    assign(k->done, add(k->done, blocks));
}

/* Consumers */

/* Values of keys that do not exist become 0: what lies there may be no number. */
static void clear_values(const sm90_kernel *k, val start, val slot)
{
    const decode_kernel *d = &k->decode;
    const int vectors = d->dv.used / VECTOR;
    tensor rZero = fragment(I32, compact(leaf(4)));
    fill(rZero, imm(0));
    LOOP_FROM(row, sub(max(d->place.to, start), start), imm(d->place.keys), imm(1))
        LOOP_FROM(vector, lane(), imm(vectors), imm(LANES)) {
            const val column = mul(vector, imm(VECTOR)), chunk = div(column, imm(d->dv.chunk));
            val to = tensor_address(d->sV, coord(row, rem(column, imm(d->dv.chunk)), chunk, slot));
            copy(rZero, smem_view(to, I32, compact(leaf(4))), 16);
        }
}

/* Where a block has keys that are not in the cache. */
static void complete_block(const sm90_kernel *k, val number, val start, val slot)
{
    const decode_kernel *d = &k->decode;
    const decode_place *at = &d->place;
    val stored = convert(I32, at->to);
    if (at->form.append)
        stored = min(stored, sub(convert(I32, at->length), imm(at->form.tokens)));
    IF(lt(stored, convert(I32, add(start, imm(at->keys))))) {
        clear_values(k, start, slot);
        if (at->form.append) {
            block_rows rows = attention_decode_no_rows(d);
            attention_decode_find_rows(d, number, &rows);
            attention_decode_append_block(d, &rows, slot);
        }
        warp_sync();
    }
}

/* The queries of a split into a buffer, by all consumers. Rows past the last one are zeros. */
static void fetch_queries(const sm90_kernel *k, const decode_place *at, val buffer)
{
    const int vectors = at->form.d / VECTOR, all = at->rows * vectors, threads = LANES * k->decode.cfg->warps;
    LOOP_FROM(item, thread(), imm(all), imm(threads)) {
        const val row = div(item, imm(vectors)), column = mul(rem(item, imm(vectors)), imm(VECTOR)),
                  in_group = add(row, mul(at->tile, imm(at->rows)));
        tensor gRow = attention_decode_row_of(at, ATTENTION_Q, min(in_group, imm(at->rows_all - 1)));
        cp_async(tensor_address(k->sQ, coord(row, column, buffer)), tensor_address(gRow, coord(column)), 16,
                 select(lt(in_group, imm(at->rows_all)), imm_as(U32, 16), imm_as(U32, 0)));
    }
}

/* What the consumers want of split `number`, if there is one. */
static void look_ahead(const sm90_kernel *k, val number, val buffer)
{
    decode_place next = k->decode.place;
    IF(lt(number, next.p.units)) {
        attention_decode_find_unit(&next, number);
        assign(k->length, attention_decode_length_of(&next));
        if (k->decode.packed > 1)
            assign(k->key_scale, attention_decode_scale_of(&next, ATTENTION_K));
        fetch_queries(k, &next, buffer);
    }
    cp_async_commit();
}

/* Threads of consumers and finishers. */
static int multiplying(const sm90_kernel *k)
{
    return LANES * k->decode.cfg->warps;
}

static int both(const sm90_kernel *k)
{
    return multiplying(k) + LANES * FINISHERS;
}

/* The blocks of this warp; then its sums. */
static void attend(sm90_kernel *k, val key_scale, val buffer)
{
    decode_kernel *d = &k->decode;
    const int warps = d->cfg->warps;
    const tensor sQ = slice(k->sQ, _, _, buffer);
    attention_decode_describe_registers(d, key_scale);
    named_sync(imm(BARRIER_CONSUMERS), multiplying(k)); // all have waited for their part of the queries
    attention_decode_load_queries(d, &sQ);
    const val blocks = blocks_of(k), count = div(sub(add(blocks, imm(warps - 1)), warp()), imm(warps));
    LOOP(number, count) {
        const val start = attention_decode_start_of(d, number);
        const pipeline_state slot = slot_of(k, add(warp(), mul(number, imm(warps))), 0);
        pipeline_wait_full(&k->ring, &slot);
        complete_block(k, number, start, slot.stage);
        attention_decode_use_block(d, start, slot.stage);
        fence_proxy_async(); // the slot was read, and TMA overwrites it,
        warp_sync();         // once one lane releases it for all
        IF(eq(lane(), imm(0)))
            pipeline_release(&k->ring, slot.stage);
    }
    attention_online_rows_finish(&d->online, NULL);
    named_sync(imm(BARRIER_FREE), both(k));
    attention_decode_put_sums(d);
    named_arrive(imm(BARRIER_FULL), both(k));
    assign(k->done, add(k->done, blocks));
}

static void consumers(sm90_kernel *k)
{
    decode_place *at = &k->decode.place;
    k->length = variable(I32, imm(0));
    k->key_scale = variable(F32, immf(1));
    const val buffer = variable(U32, imm(0));
    look_ahead(k, cta_x(), buffer);
    LOOP_FROM(number, cta_x(), at->p.units, grid_x()) {
        const val length = variable(I32, k->length), key_scale = variable(F32, k->key_scale),
                  mine = variable(U32, buffer);
        attention_decode_find_unit(at, number);
        attention_decode_find_keys(at, k->decode.cfg->split, length);
        assign(buffer, sub(imm_as(U32, 1), buffer));
        look_ahead(k, add(number, grid_x()), buffer);
        cp_async_wait(1);
        IF(lt(at->split, at->splits))
            attend(k, key_scale, mine);
    }
    cp_async_wait(0);
    named_sync(imm(BARRIER_FREE), both(k)); // the last time that finishers arrive
}

/* Finishers */

static void finish_split(void *of)
{
    sm90_kernel *k = of;
    decode_kernel *d = &k->decode;
    if (d->packed > 1)
        d->scale[ATTENTION_V] = attention_decode_scale_of(&d->place, ATTENTION_V);
    decode_sums sums = attention_decode_sums_of(d);
    sums.first = multiplying(k) + LANES;
    sums.threads = LANES * FINISHERS;
    sums.barrier = BARRIER_FINISHERS;
    sums.read = BARRIER_FREE;
    sums.readers = both(k);
    named_sync(imm(BARRIER_FULL), both(k));
    attention_decode_finish(&sums);
}

void attention_decode_sm90(const void *config, int kernel)
{
    const attention_decode_sm90_config *cfg = config;
    (void)kernel;
    launch_bounds(LANES * (cfg->warps + 1 + FINISHERS), cfg->ctas);
    sm90_kernel k = describe_kernel(cfg);
    initialise(&k);
    k.done = variable(U32, imm(0));
    IF(lt(warp(), imm(cfg->warps))) {
        consumers(&k);
    }
    ELSE
    {
        IF(eq(warp(), imm(cfg->warps))) {
            attention_decode_for_splits(&k.decode.place, cfg->split, load_split, &k);
        }
        ELSE
        {
            named_arrive(imm(BARRIER_FREE), both(&k)); // nothing is there to be read
            attention_decode_for_splits(&k.decode.place, cfg->split, finish_split, &k);
        }
    }
}
