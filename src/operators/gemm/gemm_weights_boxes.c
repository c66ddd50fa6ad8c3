/*
 * gemm_weights_boxes.c - weights, A and scales by TMA: one lane asks for a K tile of its warp, where cp.async takes
 * each lane an address for every 16 bytes. Rows of B lie whole, those of A in halves and swizzled.
 */
#include "operators/gemm/gemm_weights.h"

enum {
    HALF = 64,       // elements of a row of A in a box
    SPAN = 2 * HALF, // the same in bytes, the widest swizzle
    BARRIER = 8,
};

/* Bytes of the scales of one block, and of a stage. */
static int bytes_of_run(const gemm_weights_config *c)
{
    return c->rows * 2;
}

static int bytes_of_scales(const gemm_weights_config *c)
{
    return gemm_weights_blocks(c) * bytes_of_run(c);
}

int gemm_weights_boxes_bytes(const gemm_weights_config *c)
{
    return c->stages * c->warps * (BARRIER + bytes_of_scales(c));
}

static val box_of_A(const weights_kernel *k, val at, int half)
{
    return add(at, imm(gemm_weights_bytes_B(k->cfg) + half * k->cfg->columns * SPAN));
}

val gemm_weights_boxed_scales(const weights_kernel *k, val stage, int block)
{
    return add(k->boxes.scales, add(mul(stage, imm(bytes_of_scales(k->cfg))), imm(block * bytes_of_run(k->cfg))));
}

static val barrier_of(const weights_kernel *k, val stage)
{
    return add(k->boxes.full, mul(stage, imm(BARRIER)));
}

/* Scales that a row has in this K tile: fewer where K ends. */
static val blocks_of_tile(const weights_kernel *k, val tile)
{
    const int blocks = gemm_weights_blocks(k->cfg);
    return blocks ? min(sub(k->blocks, mul(tile, imm(blocks))), imm(blocks)) : imm(0);
}

/* The scales of a K tile, of those rows that exist. */
static void load_scales(const weights_kernel *k, val tile, val stage, val rows)
{
    const ckl_dtype type = k->cfg->epilogue.ab;
    const layout run = make_layout(dynamic(rows), leaf(1));
    for (int block = 0; block < gemm_weights_blocks(k->cfg); block++) {
        IF(lt(add(mul(tile, imm(gemm_weights_blocks(k->cfg))), imm(block)), k->blocks))
            bulk_load(gmem_tensor(gemm_weights_scales(k, tile, block), type, run),
                      smem_view(gemm_weights_boxed_scales(k, stage, block), type, run), barrier_of(k, stage));
    }
}

/* By one thread. */
static void load_boxes(const weights_kernel *k, val tile, val stage)
{
    const gemm_weights_config *c = k->cfg;
    const layout box_A = tma_tile_layout(c->epilogue.ab, c->box, HALF, SPAN),
                 box_B = tma_tile_layout(c->epilogue.b, c->rows, COPY * k->slots_B, 0);
    val at = gemm_weights_stage(k, stage), full = barrier_of(k, stage);
    val rows = convert(U32, min(sub(k->p.n, k->block_B), imm64(c->rows))); // of B, that exist
    const int bytes = (int)tma_bytes(&k->boxes.tmaB) + 2 * (int)tma_bytes(&k->boxes.tmaA);
    mbarrier_expect(full, add(mul(rows, mul(blocks_of_tile(k, tile), imm(2))), imm(bytes)));
    tma_load(&k->boxes.tmaB, smem_view(at, c->epilogue.b, box_B), k->block_B, mul(tile, imm(COPY * k->slots_B)), full,
             imm(0));
    for (int half = 0; half < 2; half++)
        tma_load(&k->boxes.tmaA, smem_view(box_of_A(k, at, half), c->epilogue.ab, box_A), k->block_A,
                 add(mul(tile, imm(GEMM_BLOCK)), imm(half * HALF)), full, imm(0));
    load_scales(k, tile, stage, rows);
}

void gemm_weights_load_boxes(const weights_kernel *k, val tile, val stage)
{
    IF(lt(tile, k->tiles))
        IF(elect()) // of another thread ptxas does not know that it is alone: a loop over lanes around every copy
            load_boxes(k, tile, stage);
}

void gemm_weights_wait_boxes(const weights_kernel *k, val stage, val parity)
{
    mbarrier_wait(barrier_of(k, stage), parity);
    fence_proxy_async(); // TMA overwrites the stage before, which was read
    warp_sync();
}

/* Where this lane's slots of A lie: in the half of a row that its slots of B take, swizzled. */
static void place_lane(weights_kernel *k)
{
    for (int s = 0; s < SLOTS_A; s++) {
        val vector = gemm_weights_vector_of_A(k, s), box = div(vector, imm(8));
        val place = add(mul(k->lane_line, imm(SPAN)), mul(bit_xor(bit_and(vector, imm(7)), k->lane_line), imm(SLOT)));
        k->lane_A[s] = add(place, add(mul(box, imm(k->cfg->columns * SPAN)), imm(gemm_weights_bytes_B(k->cfg))));
    }
}

/* All lanes of a warp: zeros in shared memory. */
static void clear_bytes(val from, int bytes)
{
    tensor rZeros = fragment(U32, compact(leaf(SLOT / 4)));
    fill(rZeros, imm_as(U32, 0));
    LOOP_FROM(at, mul(lane(), imm(SLOT)), imm(bytes), imm(LANES * SLOT))
        copy(rZeros, smem_view(add(from, at), U32, compact(leaf(SLOT / 4))), SLOT);
}

/* What no box brings and lanes read nevertheless is zeros: rows of A, and scales of rows of B, that do not exist. */
static void clear_boxes(const weights_kernel *k)
{
    const gemm_weights_config *c = k->cfg;
    const int rest = (c->columns - c->box) * SPAN, scales = c->stages * bytes_of_scales(c);
    for (int i = 0; rest && i < 2 * c->stages; i++)
        clear_bytes(add(box_of_A(k, gemm_weights_stage(k, imm(i / 2)), i % 2), imm(c->box * SPAN)), rest);
    if (scales)
        clear_bytes(k->boxes.scales, scales);
    fence_proxy_async(); // TMA writes scales there
}

void gemm_weights_prepare_boxes(weights_kernel *k)
{
    const gemm_weights_config *c = k->cfg;
    const int scales = c->stages * bytes_of_scales(c);
    k->boxes.tmaA = make_tma(k->p.A, c->epilogue.ab, 2, c->box, HALF, SPAN);
    k->boxes.tmaB = make_tma(k->p.B, c->epilogue.b, 2, c->rows, COPY * k->slots_B, 0);
    val barriers = smem_address(smem_alloc("full", (int64_t)c->warps * c->stages * BARRIER, BARRIER));
    k->boxes.full = add(barriers, mul(warp(), imm(BARRIER * c->stages)));
    if (scales)
        k->boxes.scales =
            add(smem_address(smem_alloc("scales", (int64_t)c->warps * scales, SLOT)), mul(warp(), imm(scales)));
    IF(eq(thread(), imm(0))) {
        tma_prefetch(&k->boxes.tmaA);
        tma_prefetch(&k->boxes.tmaB);
        for (int i = 0; i < c->warps * c->stages; i++)
            mbarrier_init(add(barriers, imm(BARRIER * i)), 1);
        fence_mbarrier_init();
    }
    clear_boxes(k);
    place_lane(k);
    cta_sync();
    grid_wait();
}
