/*
 * gemm_tiled.c - tiles in shared memory and mma.sync, for every GPU from sm_80 on: cp.async keeps a few K tiles on their way
 * while four warps multiply the oldest.
 */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

enum {
    CHUNK = 8,                           // elements of one cp.async of 16 bytes
    CHUNKS_K = GEMM_TILED_K / CHUNK,     // chunks of a row of a tile
    ROWS = GEMM_TILED_THREADS / CHUNKS_K // rows that all threads copy at once
};

/* An operand: A (M,K) or B (N,K), and this CTA's tiles of it. */
typedef struct operand_tiles {
    val address, pitch, rows, k; // global: bytes, elements
    val first_row;
    int tile_rows;
    tensor sTiles; // (ROWS,BK,STAGES)
} operand_tiles;

static tensor smem_ring(const gemm_tiled_config *cfg, const char *name, int rows)
{
    layout tile = tma_tile_layout(cfg->ab, rows, GEMM_TILED_K, 64); // no bank conflicts for ldmatrix
    int64_t elements = (int64_t)rows * GEMM_TILED_K;
    layout ring = make_layout(shape(rows, GEMM_TILED_K, cfg->stages), stride(GEMM_TILED_K, 1, elements));
    return smem_tensor(name, cfg->ab, with_swizzle(tile.sw, ring), 1024);
}

/* Starts the copies of one K tile; what lies outside the matrix becomes 0. */
static void load_tile(const operand_tiles *o, val k_tile, val stage)
{
    tensor sTile = slice(o->sTiles, _, _, stage); // (ROWS,BK)
    val column = mul(rem(thread(), imm(CHUNKS_K)), imm(CHUNK));
    val k = add(mul(convert(I64, k_tile), imm(GEMM_TILED_K)), convert(I64, column));
    val valid_k = mul(min(max(sub(o->k, k), imm(0)), imm(CHUNK)), imm(2)); // bytes
    for (int first = 0; first < o->tile_rows; first += ROWS) {
        val row = add(div(thread(), imm(CHUNKS_K)), imm(first));
        val global_row = add(o->first_row, convert(I64, row));
        val valid = convert(U32, select(lt(global_row, o->rows), valid_k, imm(0)));
        val from = add(o->address, convert(U64, mul(add(mul(global_row, o->pitch), k), imm(2))));
        cp_async(tensor_address(sTile, coord(row, column)), from, 16, valid);
    }
}

/* Multiplies one stage. */
static void multiply(const tiled_mma *mma, const operand_tiles *A, const operand_tiles *B, val stage, tensor acc)
{
    tensor rA = fragment_A(mma, A->tile_rows, GEMM_TILED_K); // (MMA,MMA_M,MMA_K)
    tensor rB = fragment_B(mma, B->tile_rows, GEMM_TILED_K); // (MMA,MMA_N,MMA_K)
    ldmatrix_A(mma, slice(A->sTiles, _, _, stage), thread(), rA);
    ldmatrix_B(mma, slice(B->sTiles, _, _, stage), thread(), rB);
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
        cp_async_commit();
    }
    val ready = variable(U32, imm(0)), free = variable(U32, imm(cfg->stages - 1)); // stages
    LOOP(kt, k_tiles) {
        cp_async_wait(cfg->stages - 2);
        cta_sync(); // all copies of `ready` are here, and all warps are done with the stage before it, which is `free`
        val ahead = add(kt, imm(cfg->stages - 1));
        load_tile(A, ahead, free);
        load_tile(B, ahead, free);
        cp_async_commit();
        multiply(mma, A, B, ready, acc);
        assign(free, ready);
        assign(ready, select(eq(ready, imm(cfg->stages - 1)), imm(0), add(ready, imm(1))));
    }
    cp_async_wait(0);
}

/* The D tile, element by element, from registers. */
static void store_tile(const gemm_tiled_config *cfg, const gemm_arguments *x, const tiled_mma *mma, tensor acc,
                       val first_row, val first_col)
{
    tensor gC = gmem_tensor(x->c, cfg->d, make_layout(shape(x->m, x->n), stride(x->ldc, 1))); // (M,N)
    tensor gD = gmem_tensor(x->d, cfg->d, make_layout(shape(x->m, x->n), stride(x->ldd, 1))); // (M,N)
    tensor gBias = gmem_tensor(x->bias, cfg->d, make_layout(dynamic(x->n), leaf(1)));         // (N)
    tensor cD = partition_C(mma, identity_tensor(shape(cfg->tile_m, cfg->tile_n)), thread()); // (MMA,MMA_M,MMA_N)
    layout rows = coordinate_distances(cD, 0), cols = coordinate_distances(cD, 1);
    val row0 = add(first_row, convert(I64, coordinate(cD, 0, 0))),
        col0 = add(first_col, convert(I64, coordinate(cD, 1, 0)));
    for (int i = 0; i < static_size(acc.layout) && !ir_failed(); i++) {
        val row = add(row0, imm((int)index_at(rows, i))), col = add(col0, imm((int)index_at(cols, i)));
        IF(logical_and(lt(row, x->m), lt(col, x->n))) {
            val c = variable(F32, immf(0)), bias = immf(0);
            if (cfg->c)
                IF(ne(x->scalars.beta, immf(0)))
                    assign(c, convert(F32, at(gC, row, col)));
            if (cfg->bias)
                bias = convert(F32, at(gBias, col));
            set(gD, coord(row, col), gemm_finish(gemm_epilogue_of(cfg), x->scalars, at(acc, i), c, bias));
        }
    }
}

void gemm_tiled(const void *config, int part)
{
    const gemm_tiled_config *cfg = config;
    (void)part;
    launch_bounds(GEMM_TILED_THREADS, 0);
    gemm_arguments x = gemm_declare_arguments();
    val first_row = mul(convert(I64, cta_y()), imm(cfg->tile_m)),
        first_col = mul(convert(I64, cta_x()), imm(cfg->tile_n));
    operand_tiles A = { x.a, x.lda, x.m, x.k, first_row, cfg->tile_m, smem_ring(cfg, "A", cfg->tile_m) };
    operand_tiles B = { x.b, x.ldb, x.n, x.k, first_col, cfg->tile_n, smem_ring(cfg, "B", cfg->tile_n) };
    tiled_mma mma =
        make_tiled_mma(cfg->ab == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN", 2, 2);
    tensor acc = fragment_C(&mma, cfg->tile_m, cfg->tile_n); // (MMA,MMA_M,MMA_N)
    fill(acc, immf(0));
    mainloop(cfg, &mma, &A, &B, x.k, acc);
    store_tile(cfg, &x, &mma, acc, first_row, first_col);
}
