/* stage_loop.c - the mainloop of kernels that copy tiles by cp.async into a ring of stages. */
#include "skeletons/stage_loop.h"

#include "cute/kernel.h"

void stage_loop(const stage_work *work, val tiles)
{
    const int ahead = work->stages - 1; // tiles whose copies are in flight
    for (int i = 0; i < ahead; i++) {
        work->load(work->of, imm(i), imm(i));
        if (work->store)
            work->store(work->of, imm(i));
        cp_async_commit();
    }
    val ready = variable(U32, imm(0)), free = variable(U32, imm(ahead)); // stages
    LOOP(tile, tiles) {
        cp_async_wait(ahead - 1);
        cta_sync(); // all copies of `ready` have arrived, and all warps are done with the stage before it, `free`
        work->load(work->of, add(tile, imm(ahead)), free);
        cp_async_commit();
        work->multiply(work->of, ready);
        if (work->store)
            work->store(work->of, free);
        assign(free, ready);
        assign(ready, select(eq(ready, imm(ahead)), imm(0), add(ready, imm(1))));
    }
    cp_async_wait(0);
}
