/*
 * gemm_sm90_producer.c - one thread of warpgroup 0 keeps the ring of (A,B) tiles full by TMA. CTAs of a cluster that
 * share an operand's tile load some rows each and multicast them.
 */
#include "operators/gemm/gemm_sm90.h"

/* A mask of CTAs that share operands, shifted by `ctas`, as a mask of the cluster. */
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

/* What this CTA loads of an operand's stages: one of equal slices of its rows, for the CTAs of a mask. */
typedef struct operand_load {
    const tma_copy *tma;
    tensor sX; // (ROWS,BK,STAGES)
    bool k_major;
    int rows;
    val slice, mask;
    int modes; // of its map beyond rows and columns
    val array; // of pointers
    outer_coordinates outer;
} operand_load;

/* Stages of B of gated products have two halves. */
static tensor half_of_B(const sm90_kernel *k, int half)
{
    return local_tile(k->sB, shape(k->size.box_b, k->size.tile_k), coord(half, 0, _)); // (HALF,BK,STAGES)
}

static operand_load describe_load(const sm90_kernel *k, bool is_a)
{
    operand_load o = { .tma = &k->tmaA, .sX = k->sA, .k_major = k->a_k_major, .array = k->p.a };
    if (!is_a)
        o = (operand_load){ .tma = &k->tmaB,
                            .sX = k->epilogue.gated ? half_of_B(k, 0) : k->sB,
                            .k_major = k->b_k_major,
                            .array = k->array_of_B };
    o.rows = is_a ? k->size.box_a : k->size.box_b;
    o.slice = is_a ? k->rank_n : k->rank_m;
    o.mask = is_a ? mask_A(k) : mask_B(k);
    o.modes = gemm_sm90_modes(k->cfg, is_a ? 'a' : 'b');
    return o;
}

/* Fills one stage of an operand whose tile begins at row `row`; if not K-major, by boxes of a span of rows. */
static void load_operand(const sm90_kernel *k, const operand_load *o, const pipeline_state *at, val row, val depth)
{
    tensor sX = slice(o->sX, _, _, at->stage);                                          // (ROWS,BK)
    tensor sSlice = local_tile(sX, shape(o->rows, k->size.tile_k), coord(o->slice, 0)); // (ROWS,BK)
    val full = pipeline_full_barrier(&k->ring, at);
    row = add(row, mul(o->slice, imm(o->rows)));
    if (o->k_major) {
        tma_load_of(o->tma, sSlice, row, depth, o->outer.count, o->outer.at, full, o->mask);
        return;
    }
    for (int span = 0; span < o->rows / MN_SPAN; span++) {
        tensor sSpan = local_tile(sSlice, shape(MN_SPAN, k->size.tile_k), coord(span, 0)); // (SPAN,BK)
        tma_load_of(o->tma, gemm_sm90_transposed(sSpan), depth, add(row, imm(span * MN_SPAN)), o->outer.count,
                    o->outer.at, full, o->mask);
    }
}

/* Expects the bytes of a stage and loads the operand that stays from tiles before, unless it is there. */
static void load_absent(const sm90_kernel *k, const operand_load *o, const pipeline_state *at, val row, val depth,
                        val absent)
{
    const int bytes = (int)k->size.stage_bytes, rows = k->cfg->b_stays ? k->size.loaded_n : k->cfg->tile_m;
    IF(absent) {
        pipeline_expect(&k->ring, at, imm(bytes));
        load_operand(k, o, at, row, depth);
    }
    ELSE pipeline_expect(&k->ring, at, imm(bytes - rows * GEMM_TILE_BYTES));
}

/*
 * Is it in none of the stages? In all of them, once a CTA has filled the ring: A from a row of tiles, B, of which each
 * tile has all, from any.
 */
static val is_absent(const sm90_kernel *k, val tile, const tile_place *at)
{
    val in_row = div(add(at->col, imm(k->size.shear)), imm(k->size.tile_n * k->cfg->cluster_n)),
        before = sub(tile, k->first_tile);
    return lt(mul(k->cfg->b_stays ? before : min(before, in_row), k->k_tiles), imm(k->cfg->stages));
}

/* Fills one stage: this CTA's rows of A and B go to all CTAs that use them, so every CTA receives both tiles. */
static void load_stage(const sm90_kernel *k, const operand_load loads[2], const pipeline_state *at,
                       const tile_place *tile, val k_tile, val depth, val absent)
{
    const int scales = gemm_sm90_scale_bytes(k), first = k->cfg->b_stays; // 1: B
    const val places[] = { tile->row, tile->col };
    pipeline_wait_empty(&k->ring, at);
    if (k->cfg->stays || k->cfg->b_stays) {
        load_absent(k, &loads[first], at, places[first], depth, absent);
    } else {
        pipeline_expect(&k->ring, at, imm((int)k->size.stage_bytes + scales));
        if (scales)
            gemm_sm90_load_scales(k, at, tile, k_tile);
        load_operand(k, &loads[0], at, tile->row, depth);
    }
    load_operand(k, &loads[1 - first], at, places[1 - first], depth);
    if (k->epilogue.gated) { // the other half of the tile, of the last columns; there is no cluster along M
        operand_load up = loads[1];
        up.sX = half_of_B(k, 1);
        load_operand(k, &up, at, add(tile->col, k->p.n), depth);
    }
}

static void load_tiles(const sm90_kernel *k)
{
    pipeline_state stage = producer_state(&k->ring);
    operand_load loads[] = { describe_load(k, true), describe_load(k, false) };
    LOOP_FROM(tile, k->first_tile, k->count, k->clusters) {
        tile_place at = gemm_sm90_tile(k, tile);
        val absent = k->cfg->stays || k->cfg->b_stays ? is_absent(k, tile, &at) : imm(1);
        for (int i = 0; i < COUNT_OF(loads); i++)
            loads[i].outer = gemm_sm90_outer(k, loads[i].modes, loads[i].array, at.batch);
        LOOP(kt, gemm_sm90_k_tiles(k, &at)) {
            val k_tile = k->cfg->split == 1 ? kt : add(kt, k->k_first), depth = mul(k_tile, imm(k->size.tile_k));
            if (k->cfg->batched == GEMM_SLICES_OF_K)
                depth = add(depth, mul(at.batch, k->p.k));
            if (k->cfg->batched == GEMM_GROUPS_OF_K)
                depth = add(depth, at.k_first);
            load_stage(k, loads, &stage, &at, k_tile, depth, absent);
            pipeline_advance(&stage);
        }
    }
    for (int s = 0; s < k->ring.stages; s++) { // stays until every stage is released: peers still signal this CTA
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
