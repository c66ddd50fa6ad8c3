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
    ckl_dtype dtype;
    tensor sTiles; // (ROWS,BK,STAGES)
} operand_tiles;

static operand_tiles describe_operand(const gemm_tiled_config *cfg, const char *name, const char *pitch, val rows,
                                      val k, val first_row, int tile_rows)
{
    layout tile = tma_tile_layout(cfg->ab, tile_rows, GEMM_TILED_K, 64); // no bank conflicts for ldmatrix
    layout ring = make_layout(shape(tile_rows, GEMM_TILED_K, cfg->stages),
                              stride(GEMM_TILED_K, 1, (int64_t)tile_rows * GEMM_TILED_K));
    return (operand_tiles){
        .address = pointer(name),
        .pitch = param(I64, pitch),
        .rows = rows,
        .k = k,
        .first_row = first_row,
        .tile_rows = tile_rows,
        .dtype = cfg->ab,
        .sTiles = smem_tensor(name, cfg->ab, with_swizzle(tile.sw, ring), 1024),
    };
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
        ir_cp_async(tensor_address(sTile, coord(row, column)), 0, from, 16, valid);
    }
}

/* D tile element by element, from registers. */
static void store_tile(const gemm_tiled_config *cfg, const tiled_mma *mma, tensor acc, val first_row, val first_col,
                       val m, val n)
{
    gemm_epilogue e = gemm_epilogue_of(cfg);
    tensor gC = gmem_tensor(pointer("c"), cfg->d, make_layout(shape(m, n), stride(param(I64, "ldc"), 1))); // (M,N)
    tensor gD = gmem_tensor(pointer("d"), cfg->d, make_layout(shape(m, n), stride(param(I64, "ldd"), 1))); // (M,N)
    tensor gBias = gmem_tensor(pointer("bias"), cfg->d, make_layout(dynamic(n), leaf(1)));                 // (N)
    gemm_scalars s = { param(F32, "alpha"), param(F32, "beta") };
    coordinates rows = rows_C(mma, cfg->tile_m, cfg->tile_n, thread());
    coordinates cols = columns_C(mma, cfg->tile_m, cfg->tile_n, thread());
    val row0 = add(first_row, convert(I64, rows.first)), col0 = add(first_col, convert(I64, cols.first));
    for (int i = 0; i < static_size(acc.layout) && !ir_failed(); i++) {
        val row = add(row0, imm((int)index_at(rows.layout, i))), col = add(col0, imm((int)index_at(cols.layout, i)));
        IF (both(lt(row, m), lt(col, n))) {
            val c = variable(F32, immf(0)), bias = immf(0);
            if (cfg->c)
                IF (ne(s.beta, immf(0)))
                    assign(c, convert(F32, at(gC, row, col)));
            if (cfg->bias)
                bias = convert(F32, at(gBias, col));
            tensor_set(gD, coord(row, col), gemm_finish(e, s, at(acc, i), c, bias));
        }
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

void gemm_tiled(const void *config, int part)
{
    const gemm_tiled_config *cfg = config;
    (void)part;
    ir_current()->threads = GEMM_TILED_THREADS;
    val m = param(I64, "m"), n = param(I64, "n"), k = param(I64, "k");
    val first_row = mul(convert(I64, cta_y()), imm(cfg->tile_m)),
        first_col = mul(convert(I64, cta_x()), imm(cfg->tile_n));
    operand_tiles A = describe_operand(cfg, "a", "lda", m, k, first_row, cfg->tile_m);
    operand_tiles B = describe_operand(cfg, "b", "ldb", n, k, first_col, cfg->tile_n);
    tiled_mma mma =
        make_tiled_mma(cfg->ab == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN", 2, 2);
    tensor acc = fragment_C(&mma, cfg->tile_m, cfg->tile_n); // (MMA,MMA_M,MMA_N)
    fill(acc, immf(0));

    val k_tiles = convert(U32, div(add(k, imm(GEMM_TILED_K - 1)), imm(GEMM_TILED_K)));
    for (int s = 0; s < cfg->stages - 1; s++) {
        load_tile(&A, imm(s), imm(s));
        load_tile(&B, imm(s), imm(s));
        ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    }
    val ready = variable(U32, imm(0)), next = variable(U32, imm(cfg->stages - 1)); // stages
    LOOP (kt, k_tiles) {
        ir_plain(IR_CP_ASYNC_WAIT, cfg->stages - 2, 0);
        cta_sync(); // everyone's copies of `ready` are here, and everyone is done with the stage before it, which is `next`
        val ahead = add(kt, imm(cfg->stages - 1));
        load_tile(&A, ahead, next);
        load_tile(&B, ahead, next);
        ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
        multiply(&mma, &A, &B, ready, acc);
        assign(next, ready);
        assign(ready, select(eq(ready, imm(cfg->stages - 1)), imm(0), add(ready, imm(1))));
    }
    ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
    store_tile(cfg, &mma, acc, first_row, first_col, m, n);
}
