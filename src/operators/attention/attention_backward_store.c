/*
 * attention_backward_store.c - stores gradients from accumulators: by TMA, or pair by pair where sequences are packed.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_backward.h"

enum { BARRIER_CONSUMER = 1 }; // named, + consumer: its 128 threads before they store

/* Stores a gradient through the shared memory of its rows, all chunks by one group of TMA stores. */
static void store(const backward_kernel *k, const backward_consumer *c, const tma_copy *tma, tensor acc, tensor sX,
                  columns n)
{
    tiled_mma mma = attention_warpgroup_mma(k->form.dtype, n.subtile, "SS");
    staged_store staged = { add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP, c->first_thread };
    for (int at = 0; at < n.used; at += n.subtile) {
        tensor some = slice(accumulator_columns(acc, at, n.subtile), _, 0, _), sChunk = slice(sX, _, _, at / n.chunk);
        stmatrix_C(&mma, some, local_tile(sChunk, shape(ROWS, n.subtile), coord(0, at % n.chunk / n.subtile)),
                   attention_backward_thread());
    }
    STAGED_STORE(&staged) {
        for (int i = 0; i < n.chunks; i++)
            tma_store_of(tma, slice(sX, _, _, i), add(k->row, mul(c->index, imm(ROWS))), imm(i * n.chunk), 2,
                         (const val[]){ k->head, k->batch });
    }
}

/* The same for a sequence, from registers, two elements at a time: a TMA box would reach into the next sequence. */
static void store_ragged(const backward_kernel *k, const backward_consumer *c, int which, tensor acc, columns n)
{
    tiled_mma mma = attention_warpgroup_mma(k->form.dtype, n.subtile, "SS");
    const int width = which == ATTENTION_V ? k->form.dv : k->form.d;
    layout all = make_layout(shape(k->of_keys ? k->p.kv : k->p.q, width, k->p.heads),
                             stride(k->p.ld[which], 1, k->p.ld_head[which]));
    tensor gAll = gmem_tensor(k->p.grad[which], k->form.dtype, all);
    gAll.address = tensor_address(gAll, coord(k->x_at, 0, 0));
    tensor gD = slice(gAll, _, _, k->head); // (TOKENS,D)
    int_tuple limits = gD.layout.shape, tiler = shape(ROWS, n.subtile);
    tiled_copy each = make_tiled_copy_C("UniversalCopy<32>", k->form.dtype, &mma, ROWS, n.subtile);
    val m = add(div(k->row, imm(ROWS)), c->index);
    for (int i = 0; i < n.used / n.subtile; i++) {
        tensor cD =
            partition_D(&each, local_tile(identity_tensor(limits), tiler, coord(m, i)), attention_backward_thread());
        tensor tDgD = partition_D(&each, local_tile(gD, tiler, coord(m, i)), attention_backward_thread());
        copy_if(&each, cD, limits, accumulator_columns(acc, i * n.subtile, n.subtile), tDgD, 0);
    }
}

void attention_backward_store_gradients(const backward_kernel *k, const backward_consumer *c)
{
    if (k->form.ragged) {
        if (k->with_d1)
            store_ragged(k, c, k->of_keys ? ATTENTION_K : ATTENTION_Q, c->d1, k->d);
        if (k->with_d2)
            store_ragged(k, c, ATTENTION_V, c->d2, k->dv);
        return;
    }
    if (k->with_queries) // all are done with the rows' memory: each consumer reads every row
        named_sync(imm(BARRIER_CONSUMER), k->cfg->consumers * WARPGROUP);
    else
        named_sync(add(c->index, imm(BARRIER_CONSUMER)), WARPGROUP);
    if (k->with_d1)
        store(k, c, &k->tmaD1, c->d1, slice(k->sX1, _, _, _, c->index), k->d);
    if (k->with_d2)
        store(k, c, &k->tmaD2, c->d2, slice(k->sX2, _, _, _, c->index), k->dv);
    IF(c->first_thread)
        tma_store_wait(0);
}
