/*
 * gemm_tma_mma.c - for GPUs that have TMA and no wgmma: four warps multiply a ring of (A,B) tiles by mma.sync, and one
 * of their threads keeps it full. A CTA has one tile; while it stores that, another one of the SM multiplies. NOTE:
 * with a fifth warp that loads, a scheduler has three of two CTAs, each with 168 registers, too few for ptxas to load
 * the operands of a product ahead.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

enum { WARPS_M = 2, WARPS_N = 2, WARPS = WARPS_M * WARPS_N };

typedef struct tma_mma_kernel {
    const gemm_tma_mma_config *cfg;
    gemm_values p;
    int depth, step; // elements of K of a stage, and of an atom
    tma_copy tmaA, tmaB;
    tensor sA, sB; // (BM,BK,STAGES), (BN,BK,STAGES)
    pipeline ring;
    val k_tiles;
    val row, col, product; // of the tile
} tma_mma_kernel;

static void describe_ring(tma_mma_kernel *k)
{
    const gemm_tma_mma_config *c = k->cfg;
    const int rank = c->batched ? 3 : 2;
    k->tmaA = make_tma(k->p.A, c->epilogue.ab, rank, c->tile_m, k->depth, GEMM_TILE_BYTES);
    k->tmaB = make_tma(k->p.B, c->epilogue.ab, rank, c->tile_n, k->depth, GEMM_TILE_BYTES);
    k->sA = tma_ring("A", c->epilogue.ab, c->tile_m, k->depth, c->stages); // which ldmatrix reads without conflicts
    k->sB = tma_ring("B", c->epilogue.ab, c->tile_n, k->depth, c->stages);
    k->ring = make_pipeline("ring", c->stages, 1, WARPS);
    k->k_tiles = convert(U32, div_up(k->p.k, k->depth));
}

/* One thread: a K tile on its way to the next stage, if there is one. Beyond the ends of A and B there are zeros. */
static void load_stage(const tma_mma_kernel *k, pipeline_state *at, val k_tile)
{
    const int modes = k->cfg->batched; // beyond rows and columns
    IF(logical_and(eq(thread(), imm(0)), lt(k_tile, k->k_tiles))) {
        val full = pipeline_full_barrier(&k->ring, at), first = mul(k_tile, imm(k->depth));
        pipeline_wait_empty(&k->ring, at);
        pipeline_expect(&k->ring, at, imm((int)(tma_bytes(&k->tmaA) + tma_bytes(&k->tmaB))));
        tma_load_of(&k->tmaA, slice(k->sA, _, _, at->stage), k->row, first, modes, &k->product, full, imm(0));
        tma_load_of(&k->tmaB, slice(k->sB, _, _, at->stage), k->col, first, modes, &k->product, full, imm(0));
    }
    pipeline_advance(at);
}

/* Operands of one step along K: words of mma.sync. */
typedef struct operands {
    tensor rA, rB; // (WORDS,MMA_M,1), (WORDS,MMA_N,1)
} operands;

static operands make_operands(const tma_mma_kernel *k, const tiled_mma *mma)
{
    return (operands){ fragment_A_words(mma, k->cfg->tile_m, k->step), fragment_B_words(mma, k->cfg->tile_n, k->step) };
}

static void load_operands(const tma_mma_kernel *k, const tiled_mma *mma, val stage, int step, operands to)
{
    const gemm_tma_mma_config *c = k->cfg;
    tensor sA = slice(k->sA, _, _, stage), sB = slice(k->sB, _, _, stage); // (BM,BK), (BN,BK)
    ldmatrix_A(mma, local_tile(sA, shape(c->tile_m, k->step), coord(0, step)), thread(), to.rA);
    ldmatrix_B(mma, local_tile(sB, shape(c->tile_n, k->step), coord(0, step)), thread(), to.rB);
}

/* This warp has read the stage. */
static void release_stage(const tma_mma_kernel *k, val stage)
{
    fence_proxy_async(); // TMA overwrites what was read,
    warp_sync();         // once one lane releases it for all
    IF(eq(lane(), imm(0)))
        pipeline_release(&k->ring, stage);
}

/* Stores the tile from registers. */
static void store_tile(const tma_mma_kernel *k, const tiled_mma *mma, tensor acc)
{
    const gemm_epilogue e = k->cfg->epilogue;
    tensor cD = identity_tensor(shape(k->cfg->tile_m, k->cfg->tile_n));
    tensor tCcD =
        partition_C(mma, coordinates_from(coordinates_from(cD, 0, k->row), 1, k->col), thread()); // (MMA,MMA_M,MMA_N)
    const gemm_values p = gemm_product_of(e, 0, &k->p, k->product);
    gemm_store_accumulators(e, &p, acc, tCcD);
}

/*
 * All K tiles. Operands of a step are loaded under the products of the step before, over the ends of stages too; a
 * stage is filled again as soon as its last operands are in registers.
 */
static void multiply(const tma_mma_kernel *k, const tiled_mma *mma, tensor acc)
{
    const int ahead = k->cfg->stages - 1, steps = k->depth / k->step;
    const operands r[] = { make_operands(k, mma), make_operands(k, mma) };
    pipeline_state at = consumer_state(&k->ring), next = producer_state(&k->ring);
    for (int s = 0; s < ahead; s++)
        load_stage(k, &next, imm(s));
    pipeline_wait_full(&k->ring, &at);
    load_operands(k, mma, at.stage, 0, r[0]);
    LOOP(kt, k->k_tiles) {
        for (int i = 0; i < steps - 1; i++) {
            load_operands(k, mma, at.stage, i + 1, r[(i + 1) % 2]);
            gemm(mma, r[i % 2].rA, r[i % 2].rB, acc, yes());
            if (i == 0)
                load_stage(k, &next, add(kt, imm(ahead)));
        }
        release_stage(k, at.stage);
        pipeline_advance(&at);
        IF(lt(add(kt, imm(1)), k->k_tiles)) {
            pipeline_wait_full(&k->ring, &at);
            load_operands(k, mma, at.stage, 0, r[steps % 2]);
        }
        gemm(mma, r[(steps - 1) % 2].rA, r[(steps - 1) % 2].rB, acc, yes());
    }
}

static void find_tile(tma_mma_kernel *k)
{
    enum { GROUP = 8 };
    const gemm_tma_mma_config *c = k->cfg;
    const tile_schedule tiles = make_tile_schedule(k->p.m, k->p.n, c->tile_m, c->tile_n, GROUP);
    val row, col;
    k->product = c->batched ? div(cta_x(), tiles.count) : imm(0);
    tile_at(&tiles, c->batched ? rem(cta_x(), tiles.count) : cta_x(), &row, &col);
    k->row = mul(row, imm(c->tile_m));
    k->col = mul(col, imm(c->tile_n));
}

void gemm_tma_mma(const void *config, int kernel)
{
    const gemm_tma_mma_config *cfg = config;
    (void)kernel;
    launch_bounds(LANES * WARPS, cfg->ctas);
    tma_mma_kernel k = { .cfg = cfg, .p = params_of(gemm) };
    k.depth = gemm_tile_k(cfg->epilogue.ab);
    k.step = 32 / (int)ckl_dtype_bytes(cfg->epilogue.ab); // of mma.sync
    describe_ring(&k);
    find_tile(&k);
    IF(eq(thread(), imm(0))) {
        pipeline_init(&k.ring);
        fence_mbarrier_init();
    }
    cta_sync();
    grid_wait();
    launch_dependents();
    const tiled_mma mma = make_tiled_mma(mma_sync_atom(cfg->epilogue.ab), WARPS_M, WARPS_N);
    tensor acc = fragment_C(&mma, cfg->tile_m, cfg->tile_n); // (MMA,MMA_M,MMA_N)
    fill(acc, convert(acc.dtype, imm(0)));
    multiply(&k, &mma, acc);
    store_tile(&k, &mma, acc);
}
