/*
 * attention_decode_load.c - blocks of keys and values of attention_decode's sm80: copied from the cache, or appended.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_sm80.h"

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
    rows.key = variable(U32, imm(0));
    if (k->place.form.page)
        rows.page = variable(U32, imm(0));
    return rows;
}

/* The number of a key's page; one that is old is a number of a page, too. */
static val page_of(const decode_kernel *k, val key)
{
    const decode_place *place = &k->place;
    tensor gTable = attention_decode_table_of(&place->p); // (PAGES,BATCH)
    int_tuple entry = coord(div(key, imm(place->form.page)), place->batch);
    const val page = convert(U32, attention_decode_number_at(place, gTable, entry));
    return place->hints ? min(page, sub(place->p.pages, imm(1))) : page;
}

/* The table is read up to kv, so it need not wait for the length. */
void attention_decode_find_rows(const decode_kernel *k, val number, block_rows *rows)
{
    const attention_decode_form *form = &k->place.form;
    const attention_decode_values *p = &k->place.p;
    const int bn = k->cfg->keys;
    val start = attention_decode_block_start(k, number);
    val key = min(add(start, thread_at(lane(), 0, bn, LANES / bn)), sub(p->kv, imm(1)));
    if (form->page)
        assign(rows->page, page_of(k, key));
    assign(rows->key, key);
    assign(rows->count,
           sub(convert(I32, form->append ? min(k->place.to, first_new(k)) : k->place.to), convert(I32, start)));
}

/* Where a key is in K or V, in vectors from the head's first. */
static val vectors_before(const decode_kernel *k, int which, val key, val number_of_page)
{
    const attention_decode_values *p = &k->place.p;
    const int page = k->place.form.page;
    if (!page)
        return mul(key, p->key_vectors[which]);
    return add(mul(rem(key, imm(page)), p->key_vectors[which]), mul(number_of_page, p->page_vectors[which]));
}

void attention_decode_prefetch(const decode_kernel *k)
{
    decode_kernel early = *k;
    decode_place *place = &early.place;
    const attention_decode_sm80_config *c = k->cfg;
    place->hints = true;
    attention_decode_find_keys(place, c->split);
    const val end = min(place->to, add(place->from, imm((c->stages - 1) * c->keys * c->warps / c->row_warps)));
    LOOP_FROM(key, add(place->from, thread()), end, imm(LANES * c->warps)) {
        const val page = place->form.page ? page_of(&early, key) : imm_as(U32, 0);
        for (int which = ATTENTION_K; which <= ATTENTION_V; which++) {
            const int bytes = 2 * (which == ATTENTION_K ? place->form.d : place->form.dv) / k->packed;
            const val row = mul(convert(U64, vectors_before(&early, which, key, page)), imm_as(U64, 16));
            bulk_prefetch(add(head_of(&early, which, place->p.x[which]), row), imm(bytes));
        }
    }
}

/* A block: where its keys are in the cache, or the first one of them; where it goes. */
typedef struct block_place {
    const block_rows *rows;
    val start, slot;
} block_place;

/* take() for K and for V of a block. Of two warps that share it the first one takes K, the other V. */
static void share_out(const decode_kernel *k, void (*take)(const decode_kernel *k, int which, const block_place *at),
                      const block_place *at)
{
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++) {
        if (k->cfg->row_warps == 1)
            take(k, which, at);
        else IF(eq(rem(warp(), imm(2)), imm(which - ATTENTION_K)))
            take(k, which, at);
    }
}

/* Starts the copies of a block of K or V, rows of d words, into chunks (BN,CHUNK,CHUNKS). What does not exist is 0. */
static void load_rows(const decode_kernel *k, int which, const block_place *to)
{
    const bool is_k = which == ATTENTION_K;
    const tensor sX = slice(is_k ? k->sK : k->sV, _, _, _, to->slot);
    const columns c = is_k ? k->d : k->dv;
    const int d = (is_k ? k->place.form.d : k->place.form.dv) / k->packed;
    const block_rows *rows = to->rows;
    const int across = c.chunk / VECTOR, down = LANES / across;
    tiled_copy each = make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<128>", k->place.form.dtype,
                                      compact_right(shape(down, across)), compact(shape(1, VECTOR)));
    val row = thread_at(lane(), 1, across, down), column = mul(thread_at(lane(), 0, across, down), imm(VECTOR));
    val at = vectors_before(k, which, rows->key, rows->page);
    val base = add(head_of(k, which, k->place.p.x[which]), convert(U64, mul(column, imm(2))));
    for (int i = 0; i < k->cfg->keys / down; i++) {
        val this = add(row, imm(i * down)), first = shift_left(convert(U64, shuffle(at, this)), imm(4));
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

/*
 * New rows: lanes take items of them, a few words of the cache each. Where each lane has one item of K and of V, it
 * loads them at the start and keeps them.
 */
typedef struct new_item {
    val token, group, key; // group: of words of the row; key: a large number where it would be before the first one
    val exists;
} new_item;

/* 32-bit words of the cache that an item has: few where a lane rounds their elements. */
static int words_of_item(const decode_kernel *k)
{
    return k->packed == 1 ? 4 : 1;
}

/* Items of a row of K or V. */
static int items_of_row(const decode_kernel *k, int which)
{
    const attention_decode_form *form = &k->place.form;
    return (which == ATTENTION_K ? form->d : form->dv) / k->packed / (2 * words_of_item(k));
}

static bool keeps_new(const decode_kernel *k)
{
    const int tokens = k->place.form.tokens;
    return tokens * items_of_row(k, ATTENTION_K) <= LANES && tokens * items_of_row(k, ATTENTION_V) <= LANES;
}

static new_item item_of(const decode_kernel *k, int which, val item)
{
    const int tokens = k->place.form.tokens, of_row = items_of_row(k, which);
    new_item x = { .group = rem(item, imm(of_row)) };
    x.exists = lt(item, imm(tokens * of_row));
    x.token = min(div(item, imm(of_row)), imm(tokens - 1));
    x.key = convert(U32, add(sub(convert(I32, k->place.length), imm(tokens)), convert(I32, x.token)));
    return x;
}

/* Loads an item, two elements a word. */
static tensor load_item(const decode_kernel *k, int which, const new_item *x)
{
    const decode_place *place = &k->place;
    const int from = which == ATTENTION_K ? DECODE_K_NEW : DECODE_V_NEW, words = words_of_item(k) * k->packed;
    tensor gAll = attention_decode_tensor_of(place, from, place->p.x[from]);
    tensor gRow = slice(gAll, place->batch, place->kv_head, x->token, _), rX = fragment(I32, compact(leaf(words)));
    copy(gmem_tensor(local_tile(gRow, leaf(2 * words), coord(x->group)).address, I32, compact(leaf(words))), rX,
         4 * words);
    return rX;
}

/* Words as the cache stores them: of e4m3 one of four numbers. */
static tensor words_of(const decode_kernel *k, int which, tensor rX)
{
    if (k->packed == 1)
        return rX;
    val x[4], word = imm_as(U32, 0);
    for (int i = 0; i < 2; i++)
        unpack(bitcast(U32, at(rX, i)), k->place.form.dtype, &x[2 * i], &x[2 * i + 1]);
    for (int i = 0; i < 4; i++) {
        const val code = attention_e4m3_of_f32(div(convert(F32, x[i]), k->scale[which]));
        word = bit_or(word, shift_left(code, imm(8 * i)));
    }
    tensor rW = fragment(I32, compact(leaf(1)));
    set(rW, 0, bitcast(I32, word));
    return rW;
}

/* Of a head of the cache the CTA of the first tile writes what is new. */
static void store_item(const decode_kernel *k, int which, const new_item *x, tensor rW)
{
    const int words = words_of_item(k);
    if (which == ATTENTION_V && k->place.form.latent)
        return;
    IF(eq(k->place.tile, imm(0))) {
        const val page = k->place.form.page ? page_of(k, x->key) : imm_as(U32, 0);
        const val row = mul(convert(U64, vectors_before(k, which, x->key, page)), imm_as(U64, 16));
        const val head = head_of(k, which, k->place.p.into[which]);
        const val to = add(add(head, row), convert(U64, mul(x->group, imm(4 * words))));
        copy(rW, gmem_tensor(to, I32, compact(leaf(words))), 4 * words);
    }
}

static void put_item(const decode_kernel *k, const new_item *x, val start, tensor sX, columns c, tensor rW)
{
    const int words = words_of_item(k);
    const val at = mul(x->group, imm(2 * words)), chunk = div(at, imm(c.chunk)), column = rem(at, imm(c.chunk));
    const val to = tensor_address(sX, coord(sub(x->key, start), column, chunk));
    copy(rW, smem_view(to, I32, compact(leaf(words))), 4 * words);
}

/* Puts new rows of a block of K or V into shared memory. */
static void append_rows(const decode_kernel *k, int which, const block_place *at)
{
    const val start = at->start, end = min(add(start, imm(k->cfg->keys)), k->place.to);
    const columns c = which == ATTENTION_K ? k->d : k->dv;
    const tensor sX = slice(which == ATTENTION_K ? k->sK : k->sV, _, _, _, at->slot);
    LOOP_FROM(item, lane(), imm(keeps_new(k) ? LANES : k->place.form.tokens * items_of_row(k, which)), imm(LANES)) {
        const new_item x = item_of(k, which, item);
        IF(logical_and(x.exists, logical_and(ge(x.key, start), lt(x.key, end)))) {
            const tensor rW = keeps_new(k) ? k->rKV[which] : words_of(k, which, load_item(k, which, &x));
            put_item(k, &x, start, sX, c, rW);
            if (!keeps_new(k))
                store_item(k, which, &x, rW);
        }
    }
}

/* What the copies of a block left out has arrived as zeros: all lanes have waited for it. */
void attention_decode_append(const decode_kernel *k, val start, val slot)
{
    val end = min(add(start, imm(k->cfg->keys)), k->place.to);
    IF(lt(max(start, first_new(k)), end)) {
        const block_place at = { .start = start, .slot = slot };
        share_out(k, append_rows, &at);
        attention_decode_block_sync(k);
    }
}

void attention_decode_load_new(decode_kernel *k)
{
    for (int which = ATTENTION_K; which <= ATTENTION_V && keeps_new(k); which++) {
        const new_item x = item_of(k, which, lane());
        k->rKV[which] = load_item(k, which, &x);
    }
}

void attention_decode_store_new(decode_kernel *k)
{
    if (!keeps_new(k))
        return;
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++) {
        const tensor rX = k->rKV[which];
        k->rKV[which] = fragment(I32, compact(leaf(words_of_item(k))));
        fill(k->rKV[which], imm_as(I32, 0));
        IF(lt(first_new(k), k->place.to)) {
            const new_item x = item_of(k, which, lane());
            const tensor rW = words_of(k, which, rX);
            for (int i = 0; i < words_of_item(k); i++)
                set(k->rKV[which], i, at(rW, i));
            const val is_here = logical_and(ge(x.key, k->place.from), lt(x.key, k->place.to));
            IF(logical_and(eq(warp(), imm(0)), logical_and(x.exists, is_here)))
                store_item(k, which, &x, rW);
        }
    }
}

void attention_decode_load_block(const decode_kernel *k, const block_rows *rows, val slot)
{
    const block_place to = { .rows = rows, .slot = slot };
    share_out(k, load_rows, &to);
    cp_async_commit();
}
