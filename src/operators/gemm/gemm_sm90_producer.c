/*
 * gemm_sm90_producer.c - one thread of warpgroup 0 keeps the ring of (A,B) tiles full by TMA. CTAs of a cluster that share an
 * operand's tile load some rows each and multicast them.
 */
#include "operators/gemm/gemm_sm90.h"

/* A mask of the CTAs that share operands, moved on by so many, as one of the cluster. */
static val mask_from(const sm90_kernel *k, int mask, val ctas)
{
    val first = k->cfg->split == 1 ? ctas : add(ctas, mul(k->rank_k, imm(k->size.sharers)));
    return shift_left(variable(U32, imm(mask)), first);
}

/* The CTAs that share an operand with this one, as a multicast mask; 0 where it is alone. */
static val mask_A(const sm90_kernel *k)
{
    int cluster_m = k->cfg->cluster_m, mask = 0;
    for (int j = 0; j < k->cfg->cluster_n; j++)
        mask |= 1 << (cluster_m * j);
    return k->cfg->cluster_n == 1 ? imm(0) : mask_from(k, mask, k->rank_m);
}

static val mask_B(const sm90_kernel *k)
{
    int cluster_m = k->cfg->cluster_m, mask = (1 << cluster_m) - 1;
    return cluster_m == 1 ? imm(0) : mask_from(k, mask, mul(k->rank_n, imm(cluster_m)));
}

/* Fills one stage: this CTA's rows of A and of B go to all CTAs that use them, so that every CTA receives both tiles. */
static void load_stage(const sm90_kernel *k, const pipeline_state *at, const tile_place *tile, val depth, val a_mask,
                       val b_mask)
{
    tensor sA = slice(k->sA, _, _, at->stage), sB = slice(k->sB, _, _, at->stage);             // (BM,BK), (BN,BK)
    tensor sA_box = local_tile(sA, shape(k->size.box_a, k->size.tile_k), coord(k->rank_n, 0)); // (BOX_A,BK)
    tensor sB_box = local_tile(sB, shape(k->size.box_b, k->size.tile_k), coord(k->rank_m, 0)); // (BOX_B,BK)
    val full = pipeline_full_barrier(&k->ring, at);
    pipeline_wait_empty(&k->ring, at);
    pipeline_expect(&k->ring, at, imm((int)k->size.stage_bytes));
    int modes = k->cfg->batched == 1; // beyond rows and columns
    tma_load_of(&k->tmaA, sA_box, add(tile->row, mul(k->rank_n, imm(k->size.box_a))), depth, modes, &tile->batch, full,
                a_mask);
    tma_load_of(&k->tmaB, sB_box, add(tile->col, mul(k->rank_m, imm(k->size.box_b))), depth, modes, &tile->batch, full,
                b_mask);
}

static void load_tiles(const sm90_kernel *k)
{
    pipeline_state stage = producer_state(&k->ring);
    val a_mask = mask_A(k), b_mask = mask_B(k);
    LOOP_FROM(tile, k->first_tile, k->count, k->clusters) {
        tile_place at = gemm_sm90_tile(k, tile);
        LOOP(kt, k->k_tiles) {
            val k_tile = k->cfg->split == 1 ? kt : add(kt, k->k_first), depth = mul(k_tile, imm(k->size.tile_k));
            if (k->cfg->batched == GEMM_SLICES_OF_K)
                depth = add(depth, mul(at.batch, k->p.k));
            load_stage(k, &stage, &at, depth, a_mask, b_mask);
            pipeline_advance(&stage);
        }
    }
    for (int s = 0; s < k->ring.stages; s++) { // stay until every stage is released: peers still signal this CTA
        pipeline_wait_empty(&k->ring, &stage);
        pipeline_advance(&stage);
    }
}

void gemm_sm90_producer(const sm90_kernel *k)
{
    IF(eq(warp(), imm(0)))
        IF(elect())
            load_tiles(k);
}

/*
 * The rows of the first tile of A begin to come from memory to L2. It is no access, so what the kernel before still writes there
 * is not missed; with few rows A is nearly all that there is to read.
 */
void gemm_sm90_prefetch(const sm90_kernel *k)
{
    enum { BYTES = 2, UNIT = 16 / BYTES };
    if (k->cfg->prefetch == 0)
        return;
    val row = add(gemm_sm90_tile(k, k->first_tile).row, thread());
    val first = mul(k->k_first, imm(k->size.tile_k));
    val elements = min(sub(k->p.k, first), mul(min(k->k_tiles, imm(k->cfg->prefetch)), imm(k->size.tile_k)));
    val bytes = mul(div(elements, imm(UNIT)), imm(UNIT * BYTES)); // whole 16 bytes of a row
    IF(logical_and(logical_and(lt(thread(), imm(k->cfg->tile_m)), lt(row, k->p.m)), gt(bytes, imm(0)))) {
        val element = add(mul(convert(I64, row), k->p.lda), convert(I64, first));
        bulk_prefetch(add(k->p.a, convert(U64, mul(element, imm(BYTES)))), bytes);
    }
}
