/* conv_roles.c - the frame of the Hopper kernels of convolution: barriers, roles, mainloop. */
#include "operators/conv/conv_roles.h"

#include <stdio.h>

#include "cute/kernel.h"
#include "operators/conv/conv_sm90.h"

enum { BARRIER_CONSUMER = 1 }; // + consumer: its threads round the staging buffers

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
    prefetch_early(32, r->p->early, r->p->early_bytes, 2); // another thread than that of the barriers
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
    launch_bounds(CONV_WARPGROUP * (1 + r->consumers), 1);
    initialise(r);
    IF(lt(warp(), imm(CONV_WARPGROUP / 32))) {
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

tiled_mma conv_mma_of(ckl_dtype dtype, int n)
{
    static const char *const atoms[CKL_DTYPE_COUNT] = { [CKL_F32] = "x8_F32TF32TF32_SS_TN",
                                                        [CKL_F16] = "x16_F32F16F16_SS",
                                                        [CKL_BF16] = "x16_F32BF16BF16_SS",
                                                        [CKL_I8] = "x32_S32S8S8_SS_TN" };
    char atom[ATOM_NAME_MAX];
    snprintf(atom, sizeof atom, "SM90_64x%d%s", n, atoms[dtype]);
    return make_tiled_mma(atom, 1, 1);
}

tensor conv_spans(const char *name, ckl_dtype dtype, int rows, int spans, int stages, tensor *sSpans)
{
    enum { SPAN = CONV_SM90_SPAN };
    const int box = rows * SPAN;
    const swizzle sw = tma_tile_layout(dtype, rows, SPAN, 2 * SPAN).sw;
    layout boxes = make_layout(shape(rows, SPAN, spans, stages), stride(SPAN, 1, box, box * spans));
    layout read = make_layout(shape(shape(SPAN, spans), rows, stages), stride(stride(1, box), SPAN, box * spans));
    *sSpans = smem_tensor(name, dtype, with_swizzle(sw, boxes), 1024);
    return tensor_with_layout(*sSpans, with_swizzle(sw, read));
}

conv_consumer conv_consumer_of(tiled_mma mma)
{
    conv_consumer c = { .index = sub(warpgroup(), imm(1)), .tid = warpgroup_thread(), .mma = mma };
    c.staged = (staged_store){ add(c.index, imm(BARRIER_CONSUMER)), CONV_WARPGROUP, eq(c.tid, imm(0)) };
    return c;
}

void conv_begin_sums(conv_consumer *c, const tiled_mma *all, ckl_dtype type, tensor sY)
{
    c->acc = fragment_C(all, CONV_SM90_ROWS, all->atom.n);
    fill(c->acc, convert(type, imm(0))); // once; the first wgmma of a tile ignores the sums
    c->sY = slice(sY, _, _, _, c->index);
}

void conv_wait_staging(const conv_consumer *c, int number, int count)
{
    staging_wait(&c->staged, number == 0 && count % CONV_SM90_BUFFERS ? 0 : CONV_SM90_BUFFERS - 1);
}

void conv_write_staging(const tiled_mma *mma, tensor rY, tensor sY, val tid)
{
    if (ckl_dtype_bytes(sY.dtype) == 2)
        stmatrix_C(mma, rY, sY, tid);
    else
        copy(rY, partition_C(mma, sY, tid), 8);
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
