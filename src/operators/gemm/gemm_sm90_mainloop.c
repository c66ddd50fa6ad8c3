/* gemm_sm90_mainloop.c - wgmma from shared memory into registers, one group kept in flight. */
#include <stdio.h>

#include "operators/gemm/gemm_sm90.h"

tiled_mma gemm_sm90_mma(const gemm_sm90_config *cfg, int n)
{
    static const char *const names[] = { [CKL_F16] = "F16",   [CKL_BF16] = "BF16", [CKL_F32] = "TF32",
                                         [CKL_E4M3] = "E4M3", [CKL_E5M2] = "E5M2", [CKL_I8] = "S8" };
    enum { ATOM_BYTES = 32 }; // of a row of A or B
    const ckl_dtype a = gemm_sm90_type(cfg, 'a'), b = gemm_sm90_type(cfg, 'b');
    const int bytes = (int)ckl_dtype_bytes(a);
    char atom[ATOM_NAME_MAX];
    snprintf(atom, sizeof atom, "SM90_64x%dx%d_%s%s%s_SS%s", n, ATOM_BYTES / bytes, a == CKL_I8 ? "S32" : "F32",
             names[a], names[b], bytes == 2 ? "" : "_TN");
    return make_tiled_mma(atom, 1, 1);
}

static void release(const sm90_kernel *k, const consumer_role *c, val stage)
{
    if (k->size.sharers == 1)
        pipeline_release(&k->ring, stage);
    else
        pipeline_release_at(&k->ring, stage, c->peer);
}

/*
 * Ping-pong: the mainloops follow each other. Without that a consumer could wait for a stage's second filling before the first one
 * has come, which the parity of a barrier cannot tell from the filling before.
 */
static void order_wait(const sm90_kernel *k, const consumer_role *c)
{
    if (k->cfg->pingpong)
        named_sync(add(c->index, imm(BARRIER_ORDER)), 2 * WARPGROUP);
}

void gemm_sm90_order_arrive(const sm90_kernel *k, const consumer_role *c)
{
    if (k->cfg->pingpong)
        named_arrive(sub(imm(BARRIER_ORDER + 1), c->index), 2 * WARPGROUP);
}

/* acc += part, scaled; the scales of the next K tile are on their way. */
static void add_part(const sm90_kernel *k, const consumer_role *c, const block_scales *scales)
{
    if (gemm_has_block_scales(k->epilogue.scale_a)) {
        gemm_sm90_add_scaled(k, c, scales);
        return;
    }
    for (int i = 0; i < static_size(c->acc.layout); i++)
        set(c->acc, i, add(at(c->acc, i), at(c->part, i)));
}

/* The products of a stage on their own, then added in f32; other consumers keep the tensor cores busy meanwhile. */
static void mainloop_accurate(const sm90_kernel *k, const consumer_role *c, const tile_place *at, pipeline_state *stage)
{
    const bool scaled = gemm_has_block_scales(k->epilogue.scale_a);
    block_scales now = { 0 }, next = { 0 };
    fill(c->acc, immf(0));
    if (scaled) {
        now = gemm_sm90_scale_registers(k);
        next = gemm_sm90_scale_registers(k);
        gemm_sm90_load_scales(k, c, at, imm(0), &next);
    }
    order_wait(k, c);
    LOOP(kt, k->k_tiles) {
        if (scaled) {
            copy(next.rRows, now.rRows, 4);
            copy(next.rCols, now.rCols, 4);
            gemm_sm90_load_scales(k, c, at, min(add(kt, imm(1)), sub(k->k_tiles, imm(1))), &next);
        }
        pipeline_wait_full(&k->ring, stage);
        mma_fence();
        gemm(&c->mma, slice(c->tCrA, _, _, stage->stage), slice(c->tCrB, _, _, stage->stage), c->part,
             imm_as(IR_PRED, 0));
        mma_commit();
        mma_wait(0);
        IF(c->releases)
            release(k, c, stage->stage);
        add_part(k, c, &now);
        pipeline_advance(stage);
    }
    gemm_sm90_order_arrive(k, c);
}

/*
 * Three products of tf32: numbers lie in one stage, their rests in the next. Those with a rest come first, while the sum is small; the
 * sum of a K tile is added in f32, for tensor cores cut sums instead of rounding them.
 */
static void mainloop_in_three(const sm90_kernel *k, const consumer_role *c, pipeline_state *stage)
{
    val first = variable(U32, stage->stage);
    fill(c->acc, immf(0));
    LOOP(pair, div(k->k_tiles, imm(2))) {
        (void)pair;
        assign(first, stage->stage);
        pipeline_wait_full(&k->ring, stage);
        pipeline_advance(stage);
        pipeline_wait_full(&k->ring, stage);
        tensor A = slice(c->tCrA, _, _, first), B = slice(c->tCrB, _, _, first);
        mma_fence();
        gemm(&c->mma, slice(c->tCrA, _, _, stage->stage), B, c->part, imm_as(IR_PRED, 0));
        gemm(&c->mma, A, slice(c->tCrB, _, _, stage->stage), c->part, yes());
        gemm(&c->mma, A, B, c->part, yes());
        mma_commit();
        mma_wait(0);
        IF(c->releases) {
            release(k, c, first);
            release(k, c, stage->stage);
        }
        for (int i = 0; i < static_size(c->acc.layout); i++)
            set(c->acc, i, add(at(c->acc, i), at(c->part, i)));
        pipeline_advance(stage);
    }
}

/* A stage is released when the wgmmas of the stage after it are under way. */
static void mainloop_fast(const sm90_kernel *k, const consumer_role *c, const tile_place *at, pipeline_state *stage)
{
    const bool in_groups = k->cfg->batched == GEMM_GROUPS_OF_K; // perhaps without any K tile
    const val k_tiles = gemm_sm90_k_tiles(k, at);
    val before = variable(U32, stage->stage), loaded = in_groups ? gt(k_tiles, imm(0)) : yes();
    order_wait(k, c);
    LOOP(kt, k_tiles) {
        val not_first = ne(kt, imm(0));
        pipeline_wait_full(&k->ring, stage);
        if (in_groups)
            gemm_sm90_clear_others(k, at, kt, stage->stage);
        mma_fence();
        gemm(&c->mma, slice(c->tCrA, _, _, stage->stage), slice(c->tCrB, _, _, stage->stage), c->acc, not_first);
        mma_commit();
        mma_wait(1);
        IF(logical_and(c->releases, not_first))
            release(k, c, before);
        assign(before, stage->stage);
        pipeline_advance(stage);
    }
    gemm_sm90_order_arrive(k, c);
    mma_wait(0);
    IF(in_groups ? logical_and(c->releases, loaded) : c->releases)
        release(k, c, before);
    if (in_groups)
        IF(logical_not(loaded))
            fill(c->acc, immf(0));
}

void gemm_sm90_mainloop(const sm90_kernel *k, const consumer_role *c, const tile_place *at, pipeline_state *stage)
{
    if (k->epilogue.math == CKL_GEMM_F32X3)
        mainloop_in_three(k, c, stage);
    else
        (k->epilogue.accumulation == CKL_GEMM_ACCURATE ? mainloop_accurate : mainloop_fast)(k, c, at, stage);
}
