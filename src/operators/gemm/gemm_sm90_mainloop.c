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
 * Ping-pong: mainloops take turns. Else a consumer could wait for a stage's second fill before the first has arrived,
 * and the parity of a barrier cannot tell two fills apart.
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

/* The partials of K tiles on their way into the accumulators: the next one to add, and its stage. */
typedef struct promotion {
    const sm90_kernel *k;
    const consumer_role *c;
    const tile_place *at;
    bool scaled;
    block_scales scales[2]; // of the K tiles whose sums are c->partials
    val k_tile;             // whose products are issued next
    val stage;              // of the next partial to add
} promotion;

static promotion begin_promotion(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val stage)
{
    promotion p = { .k = k, .c = c, .at = at, .scaled = gemm_has_block_scales(k->epilogue.scale_a) };
    fill(c->acc, immf(0));
    for (int i = 0; p.scaled && i < gemm_sm90_parts(k->cfg); i++)
        p.scales[i] = gemm_sm90_begin_scales(k);
    p.k_tile = variable(U32, imm(0));
    p.stage = variable(U32, stage);
    return p;
}

/* Issues the products of one block of 64 rows of a consumer. */
static void begin_partial(const promotion *p, val stage, int block, int partial)
{
    const consumer_role *c = p->c;
    tensor A = slice(c->tCrA, _, _, stage), B = slice(c->tCrB, _, _, stage); // (MMA_M,MMA_K), (MMA_N,MMA_K)
    const int depth = (int)static_size(layout_mode(A.layout, 1));
    mma_fence();
    gemm(&c->mma, local_tile(A, shape(1, depth), coord(block, 0)), B, c->partials[partial], no());
    mma_commit();
}

/* Waits for a stage, issues the products of its first block and reads its scales meanwhile. */
static void begin_stage(const promotion *p, pipeline_state *stage, int partial)
{
    pipeline_wait_full(&p->k->ring, stage);
    begin_partial(p, stage->stage, 0, partial);
    if (p->scaled)
        gemm_sm90_take_scales(p->k, p->c, p->at, p->k_tile, stage->stage, &p->scales[partial]);
    assign(p->k_tile, add(p->k_tile, imm(1)));
}

/* The accumulators of a block += partial, scaled. */
static void add_partial(const promotion *p, int block, int partial)
{
    const consumer_role *c = p->c;
    tensor sums = slice(c->acc, _, block, _); // (MMA,MMA_N)
    if (p->scaled)
        gemm_sm90_add_scaled(p->k, c, c->partials[partial], block, &p->scales[partial]);
    for (int i = 0; !p->scaled && i < static_size(sums.layout); i++)
        set(sums, i, add(at(sums, i), at(c->partials[partial], i)));
}

static void finish_stage(const promotion *p)
{
    IF(p->c->releases)
        release(p->k, p->c, p->stage);
}

/* Issues the products of one K tile, then adds those of the tile before. */
static void turn_partials(const promotion *p, pipeline_state *stage, int next)
{
    begin_stage(p, stage, next);
    mma_wait(1);
    finish_stage(p);
    add_partial(p, 0, 1 - next);
    assign(p->stage, stage->stage);
    pipeline_advance(stage);
}

static void last_partial(const promotion *p, int partial)
{
    mma_wait(0);
    finish_stage(p);
    add_partial(p, 0, partial);
}

/* Tensor cores work on a K tile while the sums of the one before are added. */
static void mainloop_in_turn(const promotion *p, pipeline_state *stage)
{
    val others = sub(p->k->k_tiles, imm(1));
    begin_stage(p, stage, 0);
    pipeline_advance(stage);
    LOOP(pair, div(others, imm(2))) {
        turn_partials(p, stage, 1);
        turn_partials(p, stage, 0);
    }
    IF(eq(rem(others, imm(2)), imm(1))) {
        turn_partials(p, stage, 1);
        last_partial(p, 1);
    }
    ELSE last_partial(p, 0);
}

/* One K tile after the other, block by block: other consumers keep the tensor cores busy while sums are added. */
static void mainloop_one_by_one(const promotion *p, pipeline_state *stage)
{
    const int blocks = p->k->size.consumer_rows / gemm_sm90_partial_rows(p->k->cfg);
    LOOP(kt, p->k->k_tiles) {
        begin_stage(p, stage, 0);
        assign(p->stage, stage->stage);
        for (int block = 0; block < blocks; block++) {
            if (block > 0)
                begin_partial(p, stage->stage, block, 0);
            mma_wait(0);
            if (block == blocks - 1)
                finish_stage(p);
            add_partial(p, block, 0);
        }
        pipeline_advance(stage);
    }
}

/* The products of a stage are summed apart, then added in f32. */
static void mainloop_accurate(const sm90_kernel *k, const consumer_role *c, const tile_place *at, pipeline_state *stage)
{
    const promotion p = begin_promotion(k, c, at, stage->stage);
    order_wait(k, c);
    (gemm_sm90_parts(k->cfg) == 2 ? mainloop_in_turn : mainloop_one_by_one)(&p, stage);
    gemm_sm90_order_arrive(k, c);
}

/*
 * Three products of tf32: one stage has the numbers, the next their rests. Products with a rest come first, while the
 * sum is small. The partial of a K tile is added in f32, as tensor cores truncate sums instead of rounding them.
 */
static void mainloop_in_three(const sm90_kernel *k, const consumer_role *c, pipeline_state *stage)
{
    val first = variable(U32, stage->stage);
    fill(c->acc, immf(0));
    LOOP(pair, div(k->k_tiles, imm(2))) {
        assign(first, stage->stage);
        pipeline_wait_full(&k->ring, stage);
        pipeline_advance(stage);
        pipeline_wait_full(&k->ring, stage);
        tensor A = slice(c->tCrA, _, _, first), B = slice(c->tCrB, _, _, first);
        mma_fence();
        gemm(&c->mma, slice(c->tCrA, _, _, stage->stage), B, c->partials[0], no());
        gemm(&c->mma, A, slice(c->tCrB, _, _, stage->stage), c->partials[0], yes());
        gemm(&c->mma, A, B, c->partials[0], yes());
        mma_commit();
        mma_wait(0);
        IF(c->releases) {
            release(k, c, first);
            release(k, c, stage->stage);
        }
        for (int i = 0; i < static_size(c->acc.layout); i++)
            set(c->acc, i, add(at(c->acc, i), at(c->partials[0], i)));
        pipeline_advance(stage);
    }
}

/* A stage is released once the wgmmas of the next are issued. */
static void mainloop_fast(const sm90_kernel *k, const consumer_role *c, const tile_place *at, pipeline_state *stage)
{
    const bool in_groups = k->cfg->batched == GEMM_GROUPS_OF_K; // may have no K tile
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
