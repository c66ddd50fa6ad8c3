/*
 * attention_decode_latent_load.c - how kernels of latent caches begin, where the keys are, their copies by TMA, and new
 * ones.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_latent.h"

void attention_decode_latent_initialise(const tma_copy *tma, const pipeline *ring)
{
    IF(eq(thread(), imm(0))) {
        tma_prefetch(tma);
        pipeline_init(ring);
        fence_mbarrier_init();
    }
    cta_sync();
    grid_wait();
    launch_dependents();
}

static latent_box box_at(const decode_place *at, val key)
{
    const int page = at->form.page;
    if (!page)
        return (latent_box){ key, at->batch };
    tensor gTable = attention_decode_table_of(&at->p); // (PAGES,BATCH)
    val last = div(sub(at->length, imm(1)), imm(page));
    return (latent_box){ rem(key, imm(page)), at(gTable, min(div(key, imm(page)), last), at->batch) };
}

tma_copy attention_decode_latent_tma(const decode_place *place)
{
    const int page = place->form.page, rows = page && page < place->keys ? page : place->keys;
    return make_tma(place->p.K, place->form.dtype, 4, rows, CHUNK, 2 * CHUNK);
}

latent_boxes attention_decode_latent_boxes_at(const decode_place *place, const tma_copy *tma, val start)
{
    latent_boxes boxes = { .place = place, .tma = tma, .count = place->keys / tma->rows };
    for (int b = 0; b < boxes.count; b++)
        boxes.at[b] = box_at(place, add(start, imm(b * tma->rows)));
    return boxes;
}

void attention_decode_latent_load(const latent_boxes *boxes, int chunk, tensor sChunk, val barrier)
{
    for (int b = 0; b < boxes->count; b++) {
        tensor sBox = local_tile(sChunk, shape(boxes->tma->rows, CHUNK), coord(b, 0));
        tma_load_of(boxes->tma, sBox, boxes->at[b].row, imm(chunk * CHUNK), 2,
                    (const val[]){ boxes->place->kv_head, boxes->at[b].of }, barrier, imm(0));
    }
}

/* A key of a cache, or of what is new: of sequence or page `of`. (D) */
static tensor key_at(const decode_place *place, val pointer, int strides, val of, val row)
{
    return slice(attention_decode_tensor_of(place, strides, pointer), of, place->kv_head, row, _);
}

/* 16 bytes of new key `key`, that of new token `token`. */
static tensor load_new(const decode_place *place, val token, val key, val column)
{
    tensor rKey = fragment(I32, compact(leaf(4))),
           gNew = key_at(place, place->p.x[DECODE_K_NEW], DECODE_K_NEW, place->batch, token);
    copy(gmem_tensor(tensor_address(gNew, coord(column)), I32, compact(leaf(4))), rKey, 16);
    IF(eq(place->tile, imm(0))) {
        const latent_box at = box_at(place, key);
        tensor gInto = key_at(place, place->p.into[ATTENTION_K], ATTENTION_K, at.of, at.row);
        copy(rKey, gmem_tensor(tensor_address(gInto, coord(column)), I32, compact(leaf(4))), 16);
    }
    return rKey;
}

/* 16 bytes of a row in shared memory. */
static tensor vector_at(const latent_keys *keys, val row, val vector)
{
    const val column = mul(vector, imm(VECTOR)), chunk = div(column, imm(CHUNK));
    const val at = tensor_address(keys->sK, coord(add(keys->row, row), rem(column, imm(CHUNK)), chunk, keys->slot));
    return smem_view(at, I32, compact(leaf(4)));
}

void attention_decode_latent_append(const decode_place *place, const latent_keys *keys)
{
    const int tokens = place->form.tokens, vectors = place->form.d / VECTOR;
    const val old = sub(convert(I32, place->length), imm(tokens)), first = convert(I32, keys->start);
    LOOP_FROM(item, keys->tid, imm(tokens * vectors), imm(keys->threads)) {
        const val token = div(item, imm(vectors)), vector = rem(item, imm(vectors)),
                  key = add(old, convert(I32, token)), row = convert(U32, sub(key, first));
        IF(logical_and(ge(key, max(first, imm(0))),
                       logical_and(lt(row, imm(keys->count)), lt(key, convert(I32, place->to))))) {
            const tensor rKey = load_new(place, token, convert(U32, key), mul(vector, imm(VECTOR)));
            copy(rKey, vector_at(keys, row, vector), 16);
        }
    }
}

void attention_decode_latent_clear(const decode_place *place, const latent_keys *keys)
{
    const int vectors = attention_columns_of(place->form.dv).used / VECTOR;
    tensor rZero = fragment(I32, compact(leaf(4)));
    fill(rZero, imm(0));
    LOOP_FROM(row, sub(max(place->to, keys->start), keys->start), imm(keys->count), imm(1))
        LOOP_FROM(vector, keys->tid, imm(vectors), imm(keys->threads)) {
            copy(rZero, vector_at(keys, row, vector), 16);
        }
}
