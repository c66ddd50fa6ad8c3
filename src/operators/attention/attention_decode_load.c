/*
 * attention_decode_load.c - blocks of keys and values of attention_decode's sm80: copied from the cache, or appended.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_e4m3.h"
#include "operators/attention/attention_decode_sm80.h"

enum {
    VECTOR = 8, // words of one cp.async of 16 bytes
    LANES = 32,
};

/* The first of the new tokens' keys. */
static val first_new(const decode_kernel *k)
{
    return sub(max(k->place.length, imm(k->place.form.tokens)), imm(k->place.form.tokens));
}

/* The address of this CTA's head in a cache of K or V; with pages, in the first page. */
static val head_of(const decode_kernel *k, int which, val pointer)
{
    const attention_decode_values *p = &k->place.p;
    layout heads = make_layout(shape(p->kv_heads, p->batch), stride(p->ld_head[which], p->ld_batch[which]));
    return tensor_address(gmem_tensor(pointer, k->place.form.cache, heads),
                          coord(k->place.kv_head, k->place.form.page ? imm_as(U32, 0) : k->place.batch));
}

block_rows attention_decode_no_rows(const decode_kernel *k)
{
    block_rows rows = { .count = variable(I32, imm(0)) };
    if (k->place.form.append)
        rows.start = variable(U32, imm(0));
    rows.key = variable(U32, imm(0));
    if (k->place.form.page)
        rows.page = variable(U32, imm(0));
    return rows;
}

/* The table is read up to kv, so it need not wait for the length. */
void attention_decode_find_rows(const decode_kernel *k, val number, block_rows *rows)
{
    const attention_decode_form *form = &k->place.form;
    const attention_decode_values *p = &k->place.p;
    const int bn = k->cfg->keys, page = form->page;
    val start = add(k->place.from, mul(add(warp(), mul(number, imm(k->cfg->warps))), imm(bn)));
    val key = min(add(start, thread_at(lane(), 0, bn, LANES / bn)), sub(p->kv, imm(1)));
    if (page) {
        tensor gTable = attention_decode_table_of(&k->place.p); // (PAGES,BATCH)
        assign(rows->page, convert(U32, at(gTable, div(key, imm(page)), k->place.batch)));
    }
    assign(rows->key, key);
    if (form->append)
        assign(rows->start, start);
    assign(rows->count,
           sub(convert(I32, form->append ? min(k->place.to, first_new(k)) : k->place.to), convert(I32, start)));
}

/* Where this lane's key is in K or V, in vectors from the head's first. */
static val vectors_before(const decode_kernel *k, int which, const block_rows *rows)
{
    const attention_decode_values *p = &k->place.p;
    const int page = k->place.form.page;
    if (!page)
        return mul(rows->key, p->key_vectors[which]);
    return add(mul(rem(rows->key, imm(page)), p->key_vectors[which]), mul(rows->page, p->page_vectors[which]));
}

/* Starts the copies of a block of K or V, rows of d words, into chunks (BN,CHUNK,CHUNKS). What does not exist is 0. */
static void load_rows(const decode_kernel *k, int which, const block_rows *rows, tensor sX, columns c, int d)
{
    const int across = c.chunk / VECTOR, down = LANES / across;
    tiled_copy each = make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<128>", k->place.form.dtype,
                                      compact_right(shape(down, across)), compact(shape(1, VECTOR)));
    val row = thread_at(lane(), 1, across, down), column = mul(thread_at(lane(), 0, across, down), imm(VECTOR));
    val at = vectors_before(k, which, rows);
    val base = add(head_of(k, which, k->place.p.x[which]), convert(U64, mul(column, imm(2))));
    for (int i = 0; i < k->cfg->keys / down; i++) {
        val this = add(row, imm(i * down)), first = mul(convert(U64, shuffle(at, this)), imm_as(U64, 16));
        val exists = lt(convert(I32, this), rows->count);
        for (int j = 0; j < c.chunks; j++) {
            tensor tXsX = partition_D(&each, slice(sX, _, _, j), lane()); // (VECTOR,BN/DOWN,1)
            val inside = (j + 1) * c.chunk <= d ? exists : logical_and(exists, lt(column, imm(d - j * c.chunk)));
            val from = add(add(base, first), imm_as(U64, 2 * j * c.chunk));
            cp_async_alone(tensor_address(tXsX, coord(0, i, 0)), from, 16,
                           select(inside, imm_as(U32, 16), imm_as(U32, 0)));
        }
    }
}

/* Four numbers as e4m3, in a word. */
static val narrow_word(tensor rX, val scale)
{
    val word = imm_as(U32, 0);
    for (int i = 0; i < 4; i++)
        word = bit_or(word, shift_left(attention_e4m3_of_f32(div(at_f32(rX, i), scale)), imm(8 * i)));
    return word;
}

/* 32-bit words of the cache that a lane makes of a new row at a time: few where it rounds their elements. */
static int words_at_once(const decode_kernel *k)
{
    return k->packed == 1 ? 4 : 1;
}

/* Words of the new row of K or V of token `token`, as the cache stores it, from group `at` of them on. (WORDS) */
static tensor new_words(const decode_kernel *k, int which, val token, val at)
{
    const decode_place *place = &k->place;
    const int from = which == ATTENTION_K ? DECODE_K_NEW : DECODE_V_NEW, words = words_at_once(k);
    const int count = 2 * words * k->packed;
    tensor gAll = attention_decode_tensor_of(place, from, place->p.x[from]);
    tensor gRow = slice(gAll, place->batch, place->kv_head, token, _); // (D)
    tensor gX = local_tile(gRow, leaf(count), coord(at)), rW = fragment(I32, compact(leaf(words)));
    if (k->packed == 1) {
        copy(gmem_tensor(gX.address, I32, compact(leaf(words))), rW, 4 * words);
        return rW;
    }
    tensor rX = fragment(place->form.dtype, compact(leaf(count)));
    copy(gX, rX, 2 * count);
    set(rW, 0, bitcast(I32, narrow_word(rX, k->scale[which])));
    return rW;
}

/*
 * Puts new rows of a block of K or V, which the copies left out, into shared memory; the CTA of the first tile also
 * writes them to the cache.
 */
static void append_rows(const decode_kernel *k, int which, const block_rows *rows, tensor sX, columns c, int d)
{
    const int words = words_at_once(k), across = d / (2 * words), tokens = k->place.form.tokens;
    val into = head_of(k, which, k->place.p.into[which]), end = min(add(rows->start, imm(k->cfg->keys)), k->place.to);
    const val vectors = vectors_before(k, which, rows);
    LOOP_FROM(item, lane(), imm(round_up(tokens * across, LANES)), imm(LANES)) {
        val token = min(div(item, imm(across)), imm(tokens - 1)), group = rem(item, imm(across));
        val key = convert(U32, add(sub(convert(I32, k->place.length), imm(tokens)), convert(I32, token)));
        val row = min(sub(key, rows->start), imm(k->cfg->keys - 1));
        val within = mul(convert(U64, shuffle(vectors, row)), imm_as(U64, 16));
        // a key before the first one is a large number
        val is_here = logical_and(ge(key, rows->start), lt(key, end));
        IF(logical_and(is_here, lt(item, imm(tokens * across)))) {
            tensor rW = new_words(k, which, token, group);
            val at = mul(group, imm(2 * words)), chunk = div(at, imm(c.chunk)), column = rem(at, imm(c.chunk));
            val address = tensor_address(sX, coord(row, column, chunk));
            copy(rW, smem_view(address, I32, compact(leaf(words))), 4 * words);
            if (which == ATTENTION_K || !k->place.form.latent)
                IF(eq(k->place.tile, imm(0))) {
                    val to = add(add(into, within), convert(U64, mul(group, imm(4 * words))));
                    copy(rW, gmem_tensor(to, I32, compact(leaf(words))), 4 * words);
                }
        }
    }
}

/* Waits for all lanes' copies of the block first: they write zeros where new rows belong. */
static void append_block(const decode_kernel *k, const block_rows *rows, val slot)
{
    val end = min(add(rows->start, imm(k->cfg->keys)), k->place.to);
    IF(lt(max(rows->start, first_new(k)), end)) {
        cp_async_wait(0);
        warp_sync();
        append_rows(k, ATTENTION_K, rows, slice(k->sK, _, _, _, slot), k->d, k->place.form.d / k->packed);
        append_rows(k, ATTENTION_V, rows, slice(k->sV, _, _, _, slot), k->dv, k->place.form.dv / k->packed);
    }
}

void attention_decode_load_block(const decode_kernel *k, const block_rows *rows, val slot)
{
    load_rows(k, ATTENTION_K, rows, slice(k->sK, _, _, _, slot), k->d, k->place.form.d / k->packed);
    load_rows(k, ATTENTION_V, rows, slice(k->sV, _, _, _, slot), k->dv, k->place.form.dv / k->packed);
    cp_async_commit();
    if (k->place.form.append)
        append_block(k, rows, slot);
}
