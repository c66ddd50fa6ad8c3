/* stage_loop.c - the mainloop of kernels that copy tiles by cp.async into a ring of stages. */
#include "skeletons/stage_loop.h"

#include "cute/kernel.h"

void stage_loop(const stage_work *work, val tiles)
{
    const int ahead = work->stages - 1; // tiles whose copies are on their way
    const int step = work->warps ? work->warps : 1;
    val first = work->warps ? warp() : imm(0);
    for (int i = 0; i < ahead; i++) {
        work->load(work->of, work->warps ? add(first, imm(i * step)) : imm(i), imm(i));
        if (work->store)
            work->store(work->of, imm(i));
        cp_async_commit();
    }
    val ready = variable(U32, imm(0)), free = variable(U32, imm(ahead)); // stages
    LOOP_FROM(tile, first, tiles, imm(step)) {
        cp_async_wait(ahead - 1);
        if (work->warps)
            warp_sync(); // as below, of this warp's ring
        else
            cta_sync(); // all copies of `ready` are here, and all warps are done with the stage before it, which is `free`
        work->load(work->of, add(tile, imm(ahead * step)), free);
        cp_async_commit();
        work->multiply(work->of, ready);
        if (work->store)
            work->store(work->of, free);
        assign(free, ready);
        assign(ready, select(eq(ready, imm(ahead)), imm(0), add(ready, imm(1))));
    }
    cp_async_wait(0);
}
