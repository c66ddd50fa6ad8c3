/*
 * attention_decode_wide.c - products of attention_decode's sm80 with 8-bit keys and values for many rows, for Hopper: the
 * warps of a ring are a warpgroup. Its threads widen a block once, from the ring to f16 in shared memory, where wgmma
 * reads it, while the others of row_warps widen every number for each 16 rows.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_sm80.h"

enum { ROWS = ATTENTION_ROWS, WORDS = 4 }; // of 16 bytes

/* Columns of K and V in elements. */
static columns columns_of(const attention_decode_sm80_config *c, int which)
{
    return attention_columns_of(attention_decode_elements(&c->form, which));
}

int64_t attention_decode_wide_bytes(const attention_decode_sm80_config *c)
{
    int64_t bytes = 0;
    for (int which = ATTENTION_K; which <= ATTENTION_V && attention_decode_is_wide(c); which++)
        bytes += attention_decode_rings(c) * (attention_columns_bytes(columns_of(c, which), c->keys) + 16 * c->stages);
    return bytes;
}

void attention_decode_describe_wide(decode_kernel *k)
{
    wide_products *w = &k->wide;
    for (int which = ATTENTION_K; which <= ATTENTION_V; which++) {
        w->n[which] = columns_of(k->cfg, which);
        w->sX[which] = attention_chunks(which == ATTENTION_K ? "keys in f16" : "values in f16", CKL_F16, w->n[which],
                                        k->cfg->keys, attention_decode_rings(k->cfg));
    }
    w->ring = make_pipeline("ring", attention_decode_rings(k->cfg) * k->cfg->stages, 2, 1);
}

void attention_decode_initialise_wide(const decode_kernel *k)
{
    IF(eq(thread(), imm(0))) {
        pipeline_init(&k->wide.ring);
        fence_mbarrier_init();
    }
    cta_sync();
}

void attention_decode_describe_wide_registers(decode_kernel *k, val ring)
{
    wide_products *w = &k->wide;
    const int bn = k->cfg->keys;
    const val own = shuffle(ring, imm(0));
    w->qk = attention_warpgroup_mma(CKL_F16, bn, "RS");
    w->pv = attention_warpgroup_mma(CKL_F16, w->n[ATTENTION_V].used, "RS");
    w->scores = fragment_C(&w->qk, ROWS, bn);
    w->out = fragment_C(&w->pv, ROWS, w->n[ATTENTION_V].used);
    w->weights = fragment_A_words(&w->pv, ROWS, bn);
    // a warp's rows lie as those of its own MMAs do
    k->scores = tensor_with_layout(w->scores, k->scores.layout);
    k->out = tensor_with_layout(w->out, k->out.layout);
    k->weights = tensor_with_layout(w->weights, k->weights.layout);
    for (int i = 0; i < w->n[ATTENTION_K].chunks; i++)
        w->tCrK[i] = slice(descriptors_B(&w->qk, slice(w->sX[ATTENTION_K], _, _, i, _)), _, _, own);
    w->tCrV =
        slice(descriptors_B(&w->pv, attention_transposed_chunks(w->sX[ATTENTION_V], w->n[ATTENTION_V])), _, _, own);
}

/* 16 bytes of a tile (BN,CHUNK,CHUNKS), as words. */
static tensor vector_at(tensor sTile, columns n, val row, val column)
{
    const val at = tensor_address(sTile, coord(row, rem(column, imm(n.chunk)), div(column, imm(n.chunk))));
    return smem_view(at, I32, compact(leaf(WORDS)));
}

/* 16 numbers of a row, from word `first` of it on, to f16. */
static void widen_vector(const decode_kernel *k, int which, tensor sFrom, tensor sTo, val row, val first)
{
    tensor rFrom = fragment(I32, compact(leaf(WORDS))), rTo = fragment(I32, compact(shape(WORDS, 2)));
    copy(vector_at(sFrom, k->n[which], row, first), rFrom, 16);
    for (int i = 0; i < WORDS; i++) {
        const widened w = attention_decode_widen(k, bitcast(U32, at(rFrom, i)));
        for (int j = 0; j < 2; j++)
            set(rTo, 2 * i + j, bitcast(I32, w.pair[j]));
    }
    for (int i = 0; i < 2; i++)
        copy(slice(rTo, _, i), vector_at(sTo, k->wide.n[which], row, add(mul(first, imm(2)), imm(i * VECTOR))), 16);
}

/* A slot of K or V to f16, a vector of the cache at a time. */
static void widen_rows(const decode_kernel *k, int which, val slot)
{
    const int of_row = k->wide.n[which].used / (2 * VECTOR), vectors = k->cfg->keys * of_row;
    const val ring = div(warp(), imm(k->cfg->row_warps));
    const tensor sFrom = slice(k->sX[which], _, _, _, slot),
                 sTo = slice(k->wide.sX[which], _, _, _, ring); // (BN,CHUNK,CHUNKS)
    for (int i = 0; i < vectors; i += WARPGROUP) {
        const val item = add(warpgroup_thread(), imm(i)), row = div(item, imm(of_row)),
                  first = mul(rem(item, imm(of_row)), imm(VECTOR));
        if (i + WARPGROUP <= vectors)
            widen_vector(k, which, sFrom, sTo, row, first);
        else IF(lt(item, imm(vectors)))
            widen_vector(k, which, sFrom, sTo, row, first);
    }
    fence_proxy_async(); // wgmma reads them
}

/* Values are widened under the product of the keys. The products of the block before are complete. */
void attention_decode_multiply_wide_keys(const decode_kernel *k, val slot)
{
    const wide_products *w = &k->wide;
    const columns n = w->n[ATTENTION_K];
    widen_rows(k, ATTENTION_K, slot);
    attention_decode_block_sync(k);
    mma_fence();
    for (int at = 0; at < n.used; at += STEP)
        gemm(&w->qk, local_tile(k->rQ, shape(4, 1, 1), coord(0, 0, at / STEP)),
             local_tile(w->tCrK[at / n.chunk], shape(1, 1), coord(0, at % n.chunk / STEP)), w->scores,
             imm_as(IR_PRED, at > 0));
    mma_commit();
    widen_rows(k, ATTENTION_V, slot);
    mma_wait(0);
}

void attention_decode_multiply_wide_values(const decode_kernel *k, val slot)
{
    const wide_products *w = &k->wide;
    (void)slot;
    attention_decode_block_sync(k);
    mma_fence();
    gemm(&w->pv, w->weights, w->tCrV, w->out, yes());
    mma_commit();
    mma_wait(0);
}
