/* staging.c - the order of a staged store: write, fence, barrier, store by one thread, wait before the next use. */
#include "cute/staging.h"

#include "cute/tma.h"

void staging_wait(const staged_store *s, int pending)
{
    ir_if(s->leader);
    tma_store_wait_read(pending);
    ir_end_if();
    ir_bar_sync(s->barrier, s->threads);
}

void staging_begin(const staged_store *s)
{
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(s->barrier, s->threads);
    ir_if(s->leader);
}

void staging_end(void)
{
    tma_store_commit();
    ir_end_if();
}

void staging_end_last(void)
{
    tma_store_commit();
    tma_store_wait_read(0);
    ir_end_if();
}
