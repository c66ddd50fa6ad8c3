/* attention_backward_store.c - stores gradients from accumulators by TMA. */
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
        const tile_box box = attention_backward_box_of_x(k, add(k->row, mul(c->index, imm(ROWS))));
        for (int i = 0; i < n.chunks; i++)
            tma_store_of(tma, slice(sX, _, _, i), box.row, imm(i * n.chunk), box.count, box.outer);
    }
}

void attention_backward_store_gradients(const backward_kernel *k, const backward_consumer *c)
{
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
