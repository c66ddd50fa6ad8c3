/*
 * unit_emulator_gemm.c - a GEMM that uses all asynchronous work of the emulated GPU together, under every completion
 * and schedule.
 *
 * Persistent, warp-specialised, TMA with multicast, wgmma from a ring of stages, registers handed over. D[m][n] =
 * A[m][k] B[n][k]^T, f16 with f32 sums. Two CTAs of a cluster share a tile of B, of which each loads one half.
 */
#include "unit_emulator_async.h"

#include "device/emulator/matrix.h"

enum {
    BM = 128,
    BN = 256,
    BK = 64,
    STAGES = 4,
    WARPGROUP = 128,
    A_BYTES = BM * BK * 2,
    B_BYTES = BN * BK * 2,
    SPAN = 128
};

static int gemm_m, gemm_n, gemm_k;
static bool gemm_a_in_registers;

typedef struct gemm {
    val map_a, map_b, d;
    val a, b, full, empty; // shared memory: stages, mbarriers
    val rank, tiles_m;     // cluster tiles along m
} gemm;

typedef struct ring {
    val stage, parity;
} ring;

static ring ring_begin(int parity)
{
    ring r = { ir_reg(IR_U32), ir_reg(IR_U32) };
    ir_assign(r.stage, u32(0));
    ir_assign(r.parity, u32(parity));
    return r;
}

static void ring_next(ring r)
{
    ir_assign(r.stage, add(r.stage, u32(1)));
    IF(equals(r.stage, STAGES)) {
        ir_assign(r.stage, u32(0));
        ir_assign(r.parity, ir_binary(IR_XOR, r.parity, u32(1)));
    }
}

static val at_stage(val base, ring r, int bytes)
{
    return add(base, mul(r.stage, bytes));
}

static val variable(val from)
{
    val i = ir_reg(IR_U32);
    ir_assign(i, from);
    return i;
}

/* Loops over the cluster's tiles; ends with tile_end(). */
static val tile_begin(void)
{
    val tile = variable(ir_binary(IR_SHR, ir_sreg(IR_CTA_X), u32(1)));
    ir_loop();
    ir_break(ir_compare(IR_GE, tile, u32((int64_t)gemm_m / (2 * BM) * (gemm_n / BN))));
    return tile;
}

static void tile_end(val tile)
{
    ir_assign(tile, add(tile, ir_binary(IR_SHR, ir_sreg(IR_GRID_X), u32(1))));
    ir_end_loop();
}

static val tile_row(gemm g, val tile)
{
    return mul(add(mul(ir_binary(IR_REM, tile, g.tiles_m), 2), g.rank), BM);
}

static val tile_column(gemm g, val tile)
{
    return mul(ir_binary(IR_DIV, tile, g.tiles_m), BN);
}

static void produce(gemm g)
{
    ring r = ring_begin(1);
    val tile = tile_begin(), k = variable(u32(0));
    val row = i32(tile_row(g, tile)), column = i32(add(tile_column(g, tile), mul(g.rank, BN / 2)));
    FOREVER {
        ir_break(equals(k, gemm_k));
        val full = at_stage(g.full, r, 8);
        ir_mbarrier_wait(at_stage(g.empty, r, 8), 0, r.parity);
        ir_mbarrier_expect(full, 0, u32(A_BYTES + B_BYTES));
        ir_tma_load(at_stage(g.a, r, A_BYTES), 0, g.map_a, full, u32(0), 2, (val[]){ i32(k), row });
        val half = add(at_stage(g.b, r, B_BYTES), mul(g.rank, B_BYTES / 2));
        ir_tma_load(half, 0, g.map_b, full, u32(3), 2, (val[]){ i32(k), column });
        ring_next(r);
        ir_assign(k, add(k, u32(BK)));
    }
    tile_end(tile);
}

static val descriptor(val address)
{
    val units = ir_binary(IR_SHR, address, u32(4));
    uint64_t rest = 1ULL << 16 | (uint64_t)(8 * SPAN / 16) << 32 | 1ULL << 62; // K-major, 128-byte swizzle
    return ir_binary(IR_OR, ir_convert(IR_U64, units), ir_int(IR_U64, (int64_t)rest));
}

/* One thread of the warpgroup frees a stage in both CTAs. */
static void release(gemm g, val stage)
{
    IF(equals(ir_binary(IR_AND, ir_sreg(IR_TID_X), u32(WARPGROUP - 1)), 0)) {
        for (int r = 0; r < 2; r++)
            ir_mbarrier_arrive(IR_SHARED_CLUSTER, ir_mapa(add(g.empty, mul(stage, 8)), u32(r)), 0);
    }
}

/* A's fragment of k..k+15 by ldmatrix, through the swizzle. */
static void load_a(val a, val group, int k, val r[4])
{
    val lane = ir_sreg(IR_LANE), warp = ir_binary(IR_AND, ir_sreg(IR_WARP), u32(3));
    val row = add(add(mul(group, 64), mul(warp, 16)), ir_binary(IR_AND, lane, u32(15)));
    val chunk = add(ir_binary(IR_SHR, lane, u32(4)), u32(k / 8));
    val place = ir_binary(IR_XOR, chunk, ir_binary(IR_AND, row, u32(7)));
    for (int i = 0; i < 4; i++)
        r[i] = ir_reg(IR_U32);
    ir_ldmatrix(4, false, add(a, add(mul(row, SPAN), mul(place, 16))), 0, r);
}

static void multiply(gemm g, ring r, val group, val first, val *d)
{
    val a = at_stage(g.a, r, A_BYTES), b = at_stage(g.b, r, B_BYTES), fragments[BK / 16][4];
    for (int k = 0; gemm_a_in_registers && k < BK; k += 16)
        load_a(a, group, k, fragments[k / 16]);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    for (int k = 0; k < BK; k += 16) {
        val scale = k ? ir_int(IR_PRED, 1) : ir_unary(IR_NOT, first);
        val b_k = descriptor(add(b, u32(k * 2))), a_k = descriptor(add(a, add(mul(group, 64 * SPAN), u32(k * 2))));
        if (gemm_a_in_registers)
            ir_wgmma_rs(CKL_F16, CKL_F16, BN, d, fragments[k / 16], b_k, scale, false);
        else
            ir_wgmma(CKL_F16, CKL_F16, BN, d, a_k, b_k, scale, false, false);
    }
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
}

static void store_tile(gemm g, val tile, val group, const val *d)
{
    val lane = ir_sreg(IR_LANE), warp = ir_binary(IR_AND, ir_sreg(IR_WARP), u32(3));
    val row = add(add(tile_row(g, tile), mul(group, 64)), add(mul(warp, 16), ir_binary(IR_SHR, lane, u32(2))));
    val column = add(tile_column(g, tile), mul(ir_binary(IR_AND, lane, u32(3)), 2));
    val at = test_element(g.d, ir_fma(row, u32(gemm_n), column), 2);
    for (int i = 0; i < BN / 2; i += 2)
        test_store_value(IR_GLOBAL, IR_F16X2, at, (i / 4 * 8 + i % 4 / 2 * 8 * gemm_n) * 2,
                         ir_pack(IR_F16X2, d[i], d[i + 1]));
}

static void consume(gemm g)
{
    ring r = ring_begin(0);
    val group = ir_binary(IR_SUB, ir_binary(IR_SHR, ir_sreg(IR_WARP), u32(2)), u32(1)), d[BN / 2];
    for (int i = 0; i < BN / 2; i++)
        d[i] = ir_reg(CKL_F32);
    val tile = tile_begin(), k = variable(u32(0)), before = variable(u32(0));
    FOREVER {
        ir_break(equals(k, gemm_k));
        ir_mbarrier_wait(at_stage(g.full, r, 8), 0, r.parity);
        multiply(g, r, group, equals(k, 0), d);
        IF(ir_compare(IR_GT, k, u32(0))) {
            ir_plain(IR_WGMMA_WAIT, gemm_a_in_registers ? 0 : 1, 0);
            release(g, before);
        }
        if (gemm_a_in_registers)
            ir_plain(IR_WGMMA_WAIT, 0, 0);
        ir_assign(before, r.stage);
        ring_next(r);
        ir_assign(k, add(k, u32(BK)));
    }
    ir_plain(IR_WGMMA_WAIT, 0, 0);
    release(g, before);
    store_tile(g, tile, group, d);
    tile_end(tile);
}

static void describe_gemm(void)
{
    HERE;
    gemm g = { .map_a = ir_tensor_map_param("a"), .map_b = ir_tensor_map_param("b"), .d = pointer("d") };
    g.a = ir_smem_address(ir_smem_alloc("a", STAGES * A_BYTES, 1024));
    g.b = ir_smem_address(ir_smem_alloc("b", STAGES * B_BYTES, 1024));
    g.full = ir_smem_address(ir_smem_alloc("full", 8 * STAGES, 8));
    g.empty = ir_smem_address(ir_smem_alloc("empty", 8 * STAGES, 8));
    g.rank = ir_sreg(IR_CLUSTER_RANK);
    g.tiles_m = u32(gemm_m / (2 * BM));
    IF(equals(ir_sreg(IR_TID_X), 0)) {
        for (int i = 0; i < STAGES; i++) {
            ir_mbarrier_init(g.full, 8 * i, 1);
            ir_mbarrier_init(g.empty, 8 * i, 4); // two consumers of two CTAs
        }
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    }
    cluster_sync();
    IF(ir_compare(IR_LT, ir_sreg(IR_WARP), u32(4))) {
        ir_plain(IR_SETMAXNREG, 40, 0);
        IF(equals(ir_sreg(IR_TID_X), 0))
            produce(g);
    }
    ELSE
    {
        ir_plain(IR_SETMAXNREG, 232, 1);
        consume(g);
    }
    cluster_sync();
}

static uint16_t *random_matrix(size_t count, uint32_t seed)
{
    uint16_t *host = malloc(count * sizeof *host);
    for (size_t i = 0; i < count; i++)
        host[i] = small_number((uint32_t)i + seed);
    return host;
}

static float widen(uint16_t half)
{
    float sign = half & 0x8000 ? -1.0F : 1.0F;
    int exponent = half >> 10 & 31, fraction = half & 0x3ff;
    return exponent ? sign * (float)(1024 + fraction) / 1024.0F * (float)(1 << exponent) / 32768.0F
                    : sign * (float)fraction / 16777216.0F;
}

static void check_gemm(int m, int n, int k, int64_t grid)
{
    gemm_m = m, gemm_n = n, gemm_k = k;
    uint16_t *a = random_matrix((size_t)(m * k), 1), *b = random_matrix((size_t)(n * k), 77),
             *d = malloc((size_t)(m * n) * 2);
    void *A = test_upload(gpu, a, (size_t)(m * k) * 2), *B = test_upload(gpu, b, (size_t)(n * k) * 2);
    void *D = test_upload(gpu, NULL, (size_t)(m * n) * 2);
    tensor_map map_a = map_2d(A, k, m, BK, BM, SPAN), map_b = map_2d(B, k, n, BK, BN / 2, SPAN);
    test_kernel kernel = { describe_gemm, IR_SM90A, .threads = 3 * WARPGROUP, .cluster = 2, .grid = grid };
    run_or_fail(kernel, (void *[]){ &map_a, &map_b, &D });
    assert_ok(gpu->ops->copy_out(gpu, d, D, (size_t)(m * n) * 2, NULL));
    for (int i = 0; i < m; i += 7) // a prime step: every row and column class of the fragments is met
        for (int j = 0; j < n; j++) {
            float expected = 0;
            for (int l = 0; l < k; l++)
                expected += value_of(a[i * k + l]) * value_of(b[j * k + l]);
            if (widen(d[i * n + j]) != expected)
                fail_msg("row %d column %d: %g instead of %g", i, j, (double)widen(d[i * n + j]), (double)expected);
        }
    free(a);
    free(b);
    free(d);
}

TEST_EVERYWHERE(gemm)
{
    gemm_a_in_registers = false;
    check_gemm(256, 512, 320, 2); // two tiles on one cluster, 5 K tiles on 4 stages
    gemm_a_in_registers = true;
    check_gemm(256, 256, 192, 2);
}

/* With an argument "512" it is a benchmark: that GEMM, once, alone. */
int main(int argc, char **argv)
{
    if (argc == 2) {
        int size = atoi(argv[1]);
        gpu = test_open("");
        check_gemm(size, size, size, 132);
        gpu->ops->close(gpu);
        return 0;
    }
    return run_enlisted(NULL, NULL);
}
