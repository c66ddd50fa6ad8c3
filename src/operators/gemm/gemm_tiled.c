/*
 * gemm_tiled.c - tiles in shared memory and mma.sync, for every GPU from sm_80 on: cp.async keeps a few K tiles on their way
 * while four warps multiply the oldest. Rows that start at odd elements are too narrow for cp.async: their tiles come through
 * registers, one on its way.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

/* The tiles of A or B along K that this CTA multiplies, and this thread's partitions of their copies. */
typedef struct operand_tiles {
    tiled_copy copy;
    tensor rX;         // (1,ROWS,1), of vec=1: a tile on its way
    int_tuple limits;  // of the matrix: what lies outside becomes 0
    tensor tXgX, tXcX; // (VECTORS,ROWS,1,K_TILES)
    tensor sX, tXsX;   // (ROWS,BK,STAGES), (VECTORS,ROWS,1,STAGES)
    int rows;          // of a tile
} operand_tiles;

static tensor smem_ring(const gemm_tiled_config *cfg, const char *name, int rows)
{
    layout tile = tma_tile_layout(cfg->epilogue.ab, rows, GEMM_TILED_K, 64); // no bank conflicts for ldmatrix
    int64_t elements = (int64_t)rows * GEMM_TILED_K;
    layout ring = make_layout(shape(rows, GEMM_TILED_K, cfg->stages), stride(GEMM_TILED_K, 1, elements));
    return smem_tensor(name, cfg->epilogue.ab, with_swizzle(tile.sw, ring), 1024);
}

/* What copies `vec` elements from global memory. */
static const char *atom_of(const gemm_tiled_config *cfg)
{
    switch (cfg->vec) {
    case 8:
        return "SM80_CP_ASYNC_CACHEGLOBAL<128>";
    case 4:
        return "SM80_CP_ASYNC_CACHEALWAYS<64>";
    case 2:
        return "SM80_CP_ASYNC_CACHEALWAYS<32>";
    default:
        return universal_copy(cfg->epilogue.ab, 1);
    }
}

/* Tile number `tile` of the rows of a matrix, all along K. */
static operand_tiles tiles_of(const gemm_tiled_config *cfg, const char *name, tensor gX, int rows, val tile)
{
    ckl_dtype dtype = cfg->epilogue.ab;
    operand_tiles x = { .limits = gX.layout.shape, .rows = rows, .sX = smem_ring(cfg, name, rows) };
    int_tuple tiler = shape(rows, GEMM_TILED_K);
    tensor gTiles = local_tile(gX, tiler, coord(tile, _));                        // (ROWS,BK,K_TILES)
    tensor cTiles = local_tile(identity_tensor(x.limits), tiler, coord(tile, _)); // (ROWS,BK,K_TILES)
    layout threads = compact_right(shape(GEMM_TILED_THREADS * cfg->vec / GEMM_TILED_K, GEMM_TILED_K / cfg->vec));
    x.copy = make_tiled_copy(atom_of(cfg), dtype, threads, compact(shape(1, cfg->vec)));
    x.tXgX = partition_S(&x.copy, gTiles, thread());
    x.tXcX = partition_S(&x.copy, cTiles, thread());
    x.tXsX = partition_D(&x.copy, x.sX, thread());
    if (cfg->vec == 1)
        x.rX = fragment_like(slice(x.tXsX, _, _, _, 0), dtype);
    return x;
}

/* Starts the copies of one K tile. */
static void load_tile(const operand_tiles *x, val k_tile, val stage)
{
    bool async = x->copy.atom.op == IR_CP_ASYNC;
    copy_if(&x->copy, slice(x->tXcX, _, _, _, k_tile), x->limits, slice(x->tXgX, _, _, _, k_tile),
            async ? slice(x->tXsX, _, _, _, stage) : x->rX, 0);
}

/* Ends them, where they went to registers. */
static void store_tile_of(const operand_tiles *x, val stage)
{
    if (x->copy.atom.op != IR_CP_ASYNC)
        copy_tiled(&x->copy, x->rX, slice(x->tXsX, _, _, _, stage));
}

/* Multiplies one stage. */
static void multiply(const tiled_mma *mma, const operand_tiles *A, const operand_tiles *B, val stage, tensor acc)
{
    tensor rA = fragment_A(mma, A->rows, GEMM_TILED_K); // (MMA,MMA_M,MMA_K)
    tensor rB = fragment_B(mma, B->rows, GEMM_TILED_K); // (MMA,MMA_N,MMA_K)
    ldmatrix_A(mma, slice(A->sX, _, _, stage), thread(), rA);
    ldmatrix_B(mma, slice(B->sX, _, _, stage), thread(), rB);
    gemm(mma, rA, rB, acc, yes());
}

/* acc = A tile * B tile over all of K. */
static void mainloop(const gemm_tiled_config *cfg, const tiled_mma *mma, const operand_tiles *A, const operand_tiles *B,
                     val k, tensor acc)
{
    val k_tiles = convert(U32, div(add(k, imm(GEMM_TILED_K - 1)), imm(GEMM_TILED_K)));
    for (int s = 0; s < cfg->stages - 1; s++) {
        load_tile(A, imm(s), imm(s));
        load_tile(B, imm(s), imm(s));
        store_tile_of(A, imm(s));
        store_tile_of(B, imm(s));
        cp_async_commit();
    }
    val ready = variable(U32, imm(0)), free = variable(U32, imm(cfg->stages - 1)); // stages
    LOOP(kt, k_tiles) {
        cp_async_wait(cfg->stages - 2);
        cta_sync(); // all copies of `ready` are here, and all warps are done with the stage before it, which is `free`
        val next = add(kt, imm(cfg->stages - 1));
        load_tile(A, next, free);
        load_tile(B, next, free);
        cp_async_commit();
        multiply(mma, A, B, ready, acc);
        store_tile_of(A, free);
        store_tile_of(B, free);
        assign(free, ready);
        assign(ready, select(eq(ready, imm(cfg->stages - 1)), imm(0), add(ready, imm(1))));
    }
    cp_async_wait(0);
}

/* The D tile, element by element, from registers. */
static void store_tile(const gemm_tiled_config *cfg, const gemm_values *p, const tiled_mma *mma, val row, val col,
                       tensor acc)
{
    tensor cD = local_tile(identity_tensor(shape(p->m, p->n)), shape(cfg->tile_m, cfg->tile_n), coord(row, col));
    tensor tCcD = partition_C(mma, cD, thread()); // (MMA,MMA_M,MMA_N)
    for (int i = 0; i < static_size(acc.layout) && !ir_failed(); i++) {
        val at_row = convert(I64, coordinate(tCcD, 0, i)), at_col = convert(I64, coordinate(tCcD, 1, i));
        IF(logical_and(lt(at_row, p->m), lt(at_col, p->n)))
            gemm_store(cfg->epilogue, p, at_row, at_col, at(acc, i));
    }
}

static val tiles_along(val extent, int tile)
{
    return convert(U32, div(add(extent, imm(tile - 1)), imm(tile)));
}

void gemm_tiled(const void *config, int kernel)
{
    const gemm_tiled_config *cfg = config;
    ckl_dtype dtype = cfg->epilogue.ab;
    (void)kernel;
    launch_bounds(GEMM_TILED_THREADS, 0);
    gemm_values all = params_of(gemm);
    val columns = tiles_along(all.n, cfg->tile_n), tiles = mul(columns, tiles_along(all.m, cfg->tile_m));
    gemm_values p = gemm_product_of(cfg->epilogue, &all, div(cta_x(), tiles));
    val row = div(rem(cta_x(), tiles), columns), col = rem(cta_x(), columns);
    tensor gA = gmem_tensor(p.a, dtype, make_layout(shape(p.m, p.k), stride(p.lda, 1))); // (M,K)
    tensor gB = gmem_tensor(p.b, dtype, make_layout(shape(p.n, p.k), stride(p.ldb, 1))); // (N,K)
    operand_tiles A = tiles_of(cfg, "A", gA, cfg->tile_m, row);
    operand_tiles B = tiles_of(cfg, "B", gB, cfg->tile_n, col);
    tiled_mma mma =
        make_tiled_mma(dtype == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN", 2, 2);
    tensor acc = fragment_C(&mma, cfg->tile_m, cfg->tile_n); // (MMA,MMA_M,MMA_N)
    fill(acc, immf(0));
    mainloop(cfg, &mma, &A, &B, p.k, acc);
    store_tile(cfg, &p, &mma, row, col, acc);
}
