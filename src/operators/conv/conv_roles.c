/* conv_roles.c - the frame of the Hopper kernels of convolution: barriers, roles, mainloop. */
#include "operators/conv/conv_roles.h"

#include "cute/kernel.h"

enum { WARPGROUP = 128 };

/* One thread makes the barriers. */
static void initialise(const conv_roles *r)
{
    IF(eq(thread(), imm(0))) {
        for (int i = 0; i < COUNT_OF(r->maps) && r->maps[i]; i++)
            tma_prefetch(r->maps[i]);
        pipeline_init(r->ring);
        if (r->barriers)
            r->barriers(r->of);
        fence_mbarrier_init();
    }
    if (r->prepare)
        r->prepare(r->of);
    cluster_sync();
    if (r->beside)
        begin_if(logical_not(*r->beside));
    grid_wait(); // what is above overlaps the end of the kernel before
    if (r->beside)
        end_if();
    launch_dependents();
}

void conv_run_roles(const conv_roles *r)
{
    initialise(r);
    IF(lt(warp(), imm(WARPGROUP / 32))) {
        if (r->consumers > 1)
            warpgroup_reg_dealloc(r->consumers > 2 ? 32 : 40);
        IF(eq(warp(), imm(0)))
            IF(elect())
                r->load(r->of);
        if (r->assist)
            r->assist(r->of);
    }
    ELSE
    {
        if (r->consumers > 1)
            warpgroup_reg_alloc(r->consumers > 2 ? 160 : 232);
        r->consume(r->of);
    }
    if (r->beside)
        grid_wait(); // or the kernel that waits for this one would not wait for the one before
}

static void release(const conv_products *p, val stage, val when)
{
    IF(when)
        pipeline_release(p->ring, stage);
}

val conv_mainloop_begin(const conv_products *p, val k_tiles, pipeline_state *stage)
{
    val before = variable(U32, stage->stage);
    LOOP(kt, k_tiles) {
        val not_first = ne(kt, imm(0));
        pipeline_wait_full(p->ring, stage);
        mma_fence();
        p->multiply(p->kernel, p->role, stage->stage, not_first);
        mma_commit();
        mma_wait(1);
        release(p, before, logical_and(p->releases, not_first));
        assign(before, stage->stage);
        pipeline_advance(stage);
    }
    return before;
}

void conv_mainloop_end(const conv_products *p, val last)
{
    mma_wait(0);
    release(p, last, p->releases);
}
