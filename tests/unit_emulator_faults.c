/*
 * unit_emulator_faults.c - the checker: every kind of fault planted in a small kernel, and the same kernel without it.
 *
 * Each kernel runs under every schedule and completion. Planted, the report must name the fault and the line of C that is
 * to blame; corrected, the kernel must pass.
 */
#include "unit_emulator.h"

enum {
    MEMORY_BYTES = 16384, // of "memory", initialised, and of "fresh", never written
    ROWS = 64,            // of the tile that "map" describes: f16, in rows of 128 bytes
    ROW_BYTES = 128,
    TILE_BYTES = ROWS * ROW_BYTES,
    SMEM_LIMIT = 232448,
};

static bool planted;
static int blamed; // the line that the report must name

/* The instruction written on this line is to blame. */
#define BLAME (blamed = __LINE__, ir_at(__FILE__, __LINE__))

typedef struct parameters {
    val memory, fresh, map;
} parameters;

static parameters declare(void)
{
    HERE;
    parameters p;
    p.memory = ir_scalar_param(IR_U64, "memory");
    p.fresh = ir_scalar_param(IR_U64, "fresh");
    p.map = ir_tensor_map_param("map");
    return p;
}

static val tid(void)
{
    return ir_sreg(IR_TID_X);
}

static val u32(int64_t x)
{
    return ir_int(IR_U32, x);
}

static val add(val x, val y)
{
    return ir_binary(IR_ADD, x, y);
}

static val mul(val x, int64_t y)
{
    return ir_binary(IR_MUL, x, u32(y));
}

static val is_warp(int w)
{
    return ir_compare(IR_EQ, ir_sreg(IR_WARP), u32(w));
}

static val tile(const char *name, int64_t bytes)
{
    return ir_smem_address(ir_smem_alloc(name, bytes, 1024));
}

/* Memory */

static void out_of_bounds(void)
{
    parameters p = declare();
    val at = test_element(p.memory, tid(), 4);
    BLAME;
    test_load_value(IR_GLOBAL, CKL_F32, at, planted ? MEMORY_BYTES - 64 : MEMORY_BYTES - 128);
}

static void out_of_bounds_shared(void)
{
    declare();
    val at = add(tile("x", 128), mul(tid(), 4));
    BLAME;
    test_store_value(IR_SHARED, IR_U32, at, planted ? 4 : 0, u32(1));
}

static void misaligned(void)
{
    parameters p = declare();
    val at = test_element(p.memory, tid(), 16), x[4];
    for (int i = 0; i < 4; i++)
        x[i] = ir_reg(CKL_F32);
    BLAME;
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_F32, 4, at, planted ? 4 : 0, x);
}

static void uninitialised_global(void)
{
    parameters p = declare();
    val at = test_element(p.fresh, tid(), 4);
    if (!planted)
        test_store_value(IR_GLOBAL, IR_U32, at, 0, u32(1));
    BLAME;
    test_load_value(IR_GLOBAL, IR_U32, at, 0);
}

static void uninitialised_shared(void)
{
    declare();
    val at = add(tile("x", 128), mul(tid(), 4));
    if (!planted)
        test_store_value(IR_SHARED, IR_U32, at, 0, u32(1));
    BLAME;
    test_load_value(IR_SHARED, IR_U32, at, 0);
}

/* Half of a word each: uninitialised in its other half. */
static void uninitialised_half(void)
{
    declare();
    val at = add(tile("x", 128), mul(tid(), 4));
    test_store_value(IR_SHARED, IR_U16, at, 0, ir_int(IR_U16, 1));
    if (!planted)
        test_store_value(IR_SHARED, IR_U16, at, 2, ir_int(IR_U16, 1));
    BLAME;
    test_load_value(IR_SHARED, IR_U32, at, 0);
}

static void race(void)
{
    declare();
    val x = tile("x", 256);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, tid());
    ir_bar_sync(u32(0), 64);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, u32(1));
    if (!planted)
        ir_bar_sync(u32(0), 64);
    BLAME;
    test_load_value(IR_SHARED, IR_U32, ir_binary(IR_SUB, add(x, u32(63 * 4)), mul(tid(), 4)), 0);
}

/* Write after several warps' reads. */
static void race_after_reads(void)
{
    declare();
    val x = tile("x", 4);
    ir_if(ir_compare(IR_EQ, tid(), u32(0)));
    test_store_value(IR_SHARED, IR_U32, x, 0, u32(1));
    ir_end_if();
    ir_bar_sync(u32(0), 128);
    BLAME;
    test_load_value(IR_SHARED, IR_U32, x, 0);
    HERE;
    if (!planted)
        ir_bar_sync(u32(0), 128);
    ir_if(ir_compare(IR_EQ, tid(), u32(0)));
    test_store_value(IR_SHARED, IR_U32, x, 0, u32(2));
    ir_end_if();
}

/* Neighbouring halves of words by different warps are no race; the same half is. */
static void race_of_halves(void)
{
    declare();
    val x = tile("x", 256);
    val lane = mul(ir_sreg(IR_LANE), 4), warp = planted ? u32(0) : mul(ir_sreg(IR_WARP), 2);
    BLAME;
    test_store_value(IR_SHARED, IR_U16, add(add(x, lane), warp), 0, ir_int(IR_U16, 1));
}

/* Async proxy */

/* Every thread writes its part of a tile with ordinary stores. */
static void fill_tile(val address, int bytes, int threads)
{
    val zero[4] = { u32(0), u32(0), u32(0), u32(0) };
    for (int at = 0; at < bytes; at += threads * 16)
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, add(address, mul(tid(), 16)), at, zero);
}

static void store_without_fence(void)
{
    parameters p = declare();
    val x = tile("x", TILE_BYTES), origin[2] = { u32(0), u32(0) };
    fill_tile(x, TILE_BYTES, 32);
    if (!planted)
        ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_if(ir_elect());
    origin[0] = origin[1] = ir_int(CKL_I32, 0);
    BLAME;
    ir_tma_store(p.map, x, 0, 2, origin);
    HERE;
    ir_plain(IR_BULK_COMMIT, 0, 0);
    ir_plain(IR_BULK_WAIT, 0, 1);
    ir_end_if();
}

static val descriptor(val address)
{
    val units = ir_binary(IR_SHR, address, u32(4));
    uint64_t leading = 128 / 16, stride = 256 / 16; // K-major, no swizzle: 8x8 matrices beside and below each other
    return ir_binary(IR_OR, ir_convert(IR_U64, units), ir_int(IR_U64, (int64_t)(leading << 16 | stride << 32)));
}

enum { WGMMA_N = 16, WGMMA_A_BYTES = 64 * 32, WGMMA_B_BYTES = WGMMA_N * 32 };

static void accumulators(val d[WGMMA_N / 2])
{
    for (int i = 0; i < WGMMA_N / 2; i++) {
        d[i] = ir_reg(CKL_F32);
        ir_assign(d[i], ir_float(CKL_F32, 0));
    }
}

static void issue_wgmma(val *d, val a, val b)
{
    ir_wgmma(CKL_F16, WGMMA_N, d, descriptor(a), descriptor(b), ir_int(IR_PRED, 1), false, false);
}

static void wgmma_without_fence(void)
{
    declare();
    val a = tile("a", WGMMA_A_BYTES), b = tile("b", 1024), d[WGMMA_N / 2];
    accumulators(d);
    fill_tile(a, WGMMA_A_BYTES, 128);
    ir_if(ir_compare(IR_LT, tid(), u32(32)));
    fill_tile(b, WGMMA_B_BYTES, 32);
    ir_end_if();
    if (!planted)
        ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(u32(0), 128);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAME;
    issue_wgmma(d, a, b);
    HERE;
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

/* Operands in place and visible to the async proxy. */
static void prepare_operands(val *a, val *b)
{
    *a = tile("a", WGMMA_A_BYTES);
    *b = tile("b", 1024);
    fill_tile(*a, WGMMA_A_BYTES, 128);
    ir_if(ir_compare(IR_LT, tid(), u32(32)));
    fill_tile(*b, WGMMA_B_BYTES, 32);
    ir_end_if();
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(u32(0), 128);
}

static void accumulator_before_wait(void)
{
    declare();
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b);
    accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    issue_wgmma(d, a, b);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    if (!planted)
        ir_plain(IR_WGMMA_WAIT, 0, 0);
    BLAME;
    add(d[3], d[3]);
    HERE;
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

static void accumulator_written_before_wait(void)
{
    declare();
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b);
    accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    issue_wgmma(d, a, b);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, planted ? 1 : 0, 0);
    BLAME;
    ir_assign(d[0], ir_float(CKL_F32, 1));
    HERE;
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

static void missing_wgmma_fence(void)
{
    declare();
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    accumulators(d);
    if (!planted)
        ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAME;
    issue_wgmma(d, a, b);
    HERE;
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

/* An operand is overwritten while wgmma may still read it. */
static void operand_overwritten(void)
{
    declare();
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b);
    accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    issue_wgmma(d, a, b);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, planted ? 1 : 0, 0);
    ir_bar_sync(u32(0), 128);
    BLAME;
    test_store_value(IR_SHARED, IR_U32, add(a, mul(tid(), 4)), 0, u32(0));
    HERE;
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

static void wgmma_diverges(void)
{
    declare();
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b);
    accumulators(d);
    val at = planted ? add(a, mul(ir_sreg(IR_WARP), 256)) : a;
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAME;
    issue_wgmma(d, at, b);
    HERE;
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

/* TMA and mbarriers */

typedef struct loader {
    val x, bar, origin[2];
} loader;

/* A tile and an mbarrier of one arrival, initialised and fenced. */
static loader prepare_load(void)
{
    loader l = { .x = tile("x", TILE_BYTES), .bar = ir_smem_address(ir_smem_alloc("bar", 8, 8)) };
    l.origin[0] = l.origin[1] = ir_int(CKL_I32, 0);
    ir_if(ir_elect());
    ir_mbarrier_init(l.bar, 0, 1);
    ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    ir_end_if();
    ir_plain(IR_WARP_SYNC, 0, 0);
    return l;
}

static void issue_load(parameters p, loader l, int64_t expected)
{
    ir_if(ir_elect());
    ir_mbarrier_expect(l.bar, 0, u32(expected));
    ir_tma_load(l.x, 0, p.map, l.bar, u32(0), 2, l.origin);
    ir_end_if();
}

static void read_before_arrival(void)
{
    parameters p = declare();
    loader l = prepare_load();
    issue_load(p, l, TILE_BYTES);
    if (!planted)
        ir_mbarrier_wait(l.bar, 0, u32(0));
    BLAME;
    test_load_value(IR_SHARED, IR_U32, add(l.x, mul(tid(), 4)), 0);
}

static void too_many_bytes_expected(void)
{
    parameters p = declare();
    loader l = prepare_load();
    issue_load(p, l, planted ? TILE_BYTES + 16 : TILE_BYTES);
    BLAME;
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

static void too_few_bytes_expected(void)
{
    parameters p = declare();
    loader l = prepare_load();
    ir_if(ir_elect());
    ir_mbarrier_expect(l.bar, 0, u32(planted ? TILE_BYTES - 16 : TILE_BYTES));
    BLAME;
    ir_tma_load(l.x, 0, p.map, l.bar, u32(0), 2, l.origin);
    HERE;
    ir_end_if();
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

static void over_arrival(void)
{
    parameters p = declare();
    loader l = prepare_load();
    ir_if(ir_elect());
    ir_mbarrier_expect(l.bar, 0, u32(TILE_BYTES));
    BLAME;
    if (planted)
        ir_mbarrier_arrive(IR_SHARED, l.bar, 0);
    HERE;
    ir_tma_load(l.x, 0, p.map, l.bar, u32(0), 2, l.origin);
    ir_end_if();
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

static void wrong_phase(void)
{
    parameters p = declare();
    loader l = prepare_load();
    issue_load(p, l, TILE_BYTES);
    ir_mbarrier_wait(l.bar, 0, u32(0));
    BLAME;
    ir_mbarrier_wait(l.bar, 0, u32(planted ? 1 : 0));
}

static void barrier_before_init(void)
{
    declare();
    val bar = ir_smem_address(ir_smem_alloc("bar", 8, 8));
    ir_if(is_warp(0));
    ir_if(ir_elect());
    ir_mbarrier_init(bar, 0, 64);
    ir_end_if();
    ir_end_if();
    if (!planted)
        ir_bar_sync(u32(0), 64);
    BLAME;
    ir_mbarrier_arrive(IR_SHARED, bar, 0);
    HERE;
    ir_mbarrier_wait(bar, 0, u32(0));
}

static void barrier_not_fenced(void)
{
    parameters p = declare();
    loader l = { .x = tile("x", TILE_BYTES), .bar = ir_smem_address(ir_smem_alloc("bar", 8, 8)) };
    l.origin[0] = l.origin[1] = ir_int(CKL_I32, 0);
    ir_if(ir_elect());
    ir_mbarrier_init(l.bar, 0, 1);
    if (!planted)
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    ir_mbarrier_expect(l.bar, 0, u32(TILE_BYTES));
    BLAME;
    ir_tma_load(l.x, 0, p.map, l.bar, u32(0), 2, l.origin);
    HERE;
    ir_end_if();
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

static void barrier_overwritten(void)
{
    declare();
    loader l = prepare_load();
    BLAME;
    test_store_value(IR_SHARED, IR_U32, planted ? l.bar : l.x, 0, u32(7));
}

static void leaves_with_load(void)
{
    parameters p = declare();
    loader l = prepare_load();
    issue_load(p, l, TILE_BYTES);
    BLAME;
    if (planted)
        ir_plain(IR_WARP_SYNC, 0, 0);
    else
        ir_mbarrier_wait(l.bar, 0, u32(0));
}

static void leaves_with_store(void)
{
    parameters p = declare();
    val x = tile("x", TILE_BYTES), origin[2] = { ir_int(CKL_I32, 0), ir_int(CKL_I32, 0) };
    fill_tile(x, TILE_BYTES, 32);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_if(ir_elect());
    ir_tma_store(p.map, x, 0, 2, origin);
    ir_plain(IR_BULK_COMMIT, 0, 0);
    if (!planted)
        ir_plain(IR_BULK_WAIT, 0, 1);
    BLAME;
    ir_end_if();
}

static void cp_async_not_waited(void)
{
    parameters p = declare();
    val x = add(tile("x", 512), mul(tid(), 16));
    ir_cp_async(x, 0, test_element(p.memory, tid(), 16), 16, u32(16));
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    if (!planted)
        ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
    BLAME;
    test_load_value(IR_SHARED, IR_U32, x, 0);
    HERE;
    ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
}

/* Clusters */

static void cluster_sync(void)
{
    ir_plain(IR_CLUSTER_ARRIVE, 0, 0);
    ir_plain(IR_CLUSTER_WAIT, 0, 0);
}

static void leaves_before_signal(void)
{
    declare();
    val bar = ir_smem_address(ir_smem_alloc("bar", 8, 8)), rank = ir_sreg(IR_CLUSTER_RANK);
    ir_if(ir_elect());
    ir_mbarrier_init(bar, 0, 1);
    ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    ir_end_if();
    cluster_sync();
    ir_if(ir_compare(IR_EQ, rank, u32(1)));
    ir_if(ir_elect());
    BLAME;
    ir_mbarrier_arrive(IR_SHARED_CLUSTER, ir_mapa(bar, u32(0)), 0);
    HERE;
    ir_end_if();
    ir_else();
    if (!planted)
        ir_mbarrier_wait(bar, 0, u32(0));
    ir_end_if();
}

static void reads_exited_peer(void)
{
    declare();
    val x = tile("x", 128);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, tid());
    cluster_sync();
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_CLUSTER_RANK), u32(1)));
    BLAME;
    test_load_value(IR_SHARED_CLUSTER, IR_U32, add(ir_mapa(x, u32(0)), mul(tid(), 4)), 0);
    HERE;
    ir_end_if();
    if (!planted)
        cluster_sync();
}

static void reads_peer_too_early(void)
{
    declare();
    val x = tile("x", 128);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, tid());
    if (!planted)
        cluster_sync();
    BLAME;
    val peer = ir_mapa(x, ir_binary(IR_XOR, ir_sreg(IR_CLUSTER_RANK), u32(1)));
    test_load_value(IR_SHARED_CLUSTER, IR_U32, add(peer, mul(tid(), 4)), 0);
    HERE;
    cluster_sync();
}

/* Control */

static void diverged_barrier(void)
{
    declare();
    ir_if(ir_compare(IR_LT, ir_sreg(IR_LANE), u32(planted ? 16 : 32)));
    BLAME;
    ir_bar_sync(u32(0), 64);
    HERE;
    ir_end_if();
}

static void barrier_counts_differ(void)
{
    declare();
    ir_if(is_warp(0));
    ir_bar_sync(u32(1), planted ? 96 : 64);
    ir_else();
    ir_if(is_warp(1));
    ir_bar_sync(u32(1), 64);
    ir_end_if();
    ir_end_if();
}

static void over_the_limit(void)
{
    declare();
    HERE;
    test_store_value(IR_SHARED, IR_U32, tile("x", planted ? SMEM_LIMIT + 1024 : SMEM_LIMIT), 0, u32(0));
}

static void endless_loop(void)
{
    declare();
    val i = ir_reg(IR_U32);
    ir_assign(i, u32(0));
    ir_loop();
    BLAME;
    ir_assign(i, add(i, u32(1)));
    ir_break(ir_compare(planted ? IR_EQ : IR_NE, i, u32(0)));
    ir_end_loop();
}

static void division_by_zero(void)
{
    declare();
    BLAME;
    ir_binary(IR_DIV, u32(7), planted ? tid() : add(tid(), u32(1)));
}

static void trap(void)
{
    declare();
    ir_if(ir_compare(IR_GT, tid(), u32(planted ? 30 : 31)));
    BLAME;
    ir_plain(IR_TRAP, 0, 0);
    HERE;
    ir_end_if();
}

static void too_many_registers(void)
{
    declare();
    ir_if(ir_compare(IR_LT, ir_sreg(IR_WARP), u32(4)));
    BLAME;
    ir_plain(IR_SETMAXNREG, 232, 1); // the other 256 threads must give some of their 168
    HERE;
    ir_else();
    if (!planted)
        ir_plain(IR_SETMAXNREG, 40, 0);
    ir_end_if();
}

typedef struct fault_case {
    void (*describe)(void);
    int threads, cluster;
    const char *words[3]; // of the report
    ckl_status status;    // CKL_DEVICE unless stated
} fault_case;

static const fault_case cases[] = {
    { out_of_bounds, 32, 1, { "out-of-bounds global access", "lane 16", "past the end" }, 0 },
    { out_of_bounds_shared, 32, 1, { "out-of-bounds shared access", "lane 31", "128 bytes" }, 0 },
    { misaligned, 32, 1, { "misaligned global access", "lane 0", "no multiple of 16" }, 0 },
    { uninitialised_global, 32, 1, { "uninitialised global memory" }, 0 },
    { uninitialised_shared, 32, 1, { "uninitialised shared memory", "offset 0" }, 0 },
    { uninitialised_half, 32, 1, { "uninitialised shared memory", "offset 2" }, 0 },
    { race, 64, 1, { "shared-memory race", "no barrier orders them", "warp " }, 0 },
    { race_after_reads, 128, 1, { "shared-memory race", "no barrier orders them" }, 0 },
    { race_of_halves, 64, 1, { "shared-memory race", "meets the write" }, 0 },
    { store_without_fence, 32, 1, { "missing fence_proxy_async", "warp 0 wrote", "ordinary store" }, 0 },
    { wgmma_without_fence, 128, 1, { "missing fence_proxy_async", "(wgmma)" }, 0 },
    { accumulator_before_wait, 128, 1, { "register in use by wgmma", "read", "(add)" }, 0 },
    { accumulator_written_before_wait, 128, 1, { "register in use by wgmma", "written" }, 0 },
    { missing_wgmma_fence, 128, 1, { "missing wgmma_fence" }, 0 },
    { operand_overwritten, 128, 1, { "shared-memory race", "wgmma of warps 0 to 3", "no wgmma_wait" }, 0 },
    { wgmma_diverges, 128, 1, { "divergence at a converged instruction" }, 0 },
    { read_before_arrival, 32, 1, { "has not arrived", "mbarrier" }, 0 },
    { too_many_bytes_expected, 32, 1, { "deadlock", "16 bytes pending", "offset 8192" }, 0 },
    { too_few_bytes_expected, 32, 1, { "wrong transaction count", "16 bytes more" }, 0 },
    { over_arrival, 32, 1, { "mbarrier over-arrival" }, 0 },
    { wrong_phase, 32, 1, { "deadlock", "warp 0 waits at", "parity 1" }, 0 },
    { barrier_before_init, 64, 1, { "mbarrier used before its initialisation" }, 0 },
    { barrier_not_fenced, 32, 1, { "missing fence_mbarrier_init" }, 0 },
    { barrier_overwritten, 32, 1, { "access to an mbarrier" }, 0 },
    { leaves_with_load, 32, 1, { "exit with work under way", "copy into its shared memory" }, 0 },
    { leaves_with_store, 32, 1, { "exit with work under way", "bulk_wait" }, 0 },
    { cp_async_not_waited, 32, 1, { "cp_async of warp 0", "no cp_async_wait" }, 0 },
    { leaves_before_signal, 32, 2, { "access to an exited CTA", "CTA rank 0" }, 0 },
    { reads_exited_peer, 32, 2, { "access to an exited CTA", "CTA rank 0" }, 0 },
    { reads_peer_too_early, 32, 2, { "may not have started" }, 0 },
    { diverged_barrier, 64, 1, { "divergence at a converged instruction", "lane 16", "bar_sync" }, 0 },
    { barrier_counts_differ, 96, 1, { "misused barrier", "barrier 1", "96" }, 0 },
    { over_the_limit, 32, 1, { "233472", "232448" }, CKL_UNSUPPORTED },
    { endless_loop, 32, 1, { "endless loop", "budget" }, 0 },
    { division_by_zero, 32, 1, { "division by zero", "lane 0" }, 0 },
    { trap, 32, 1, { "trap", "lane 31" }, 0 },
    { too_many_registers, 384, 1, { "deadlock", "232 registers" }, 0 },
};

typedef struct bench {
    ckl_device *gpu;
    void *memory, *fresh;
    tensor_map map;
} bench;

static bench bench_open(const char *settings)
{
    static const unsigned char zeros[MEMORY_BYTES];
    bench b = { .gpu = test_open(settings) };
    b.memory = test_upload(b.gpu, zeros, MEMORY_BYTES);
    b.fresh = test_upload(b.gpu, NULL, MEMORY_BYTES);
    tensor_map_desc desc = { .dtype = CKL_F16,
                             .rank = 2,
                             .address = b.memory,
                             .size = { ROW_BYTES / 2, ROWS },
                             .stride = { 2, ROW_BYTES },
                             .box = { ROW_BYTES / 2, ROWS },
                             .swizzle = SWIZZLE_128 };
    assert_int_equal(b.gpu->ops->encode_tensor_map(b.gpu, &desc, &b.map), CKL_OK);
    return b;
}

static ckl_status bench_run(bench *b, const fault_case *c, bool plant)
{
    planted = plant;
    blamed = 0;
    test_kernel k = { c->describe, IR_SM90A, .threads = c->threads, .cluster = c->cluster, .grid = c->cluster };
    return test_run(b->gpu, k, (void *[]){ &b->memory, &b->fresh, &b->map });
}

static void check_report(const fault_case *c, const char *settings)
{
    char line[64];
    snprintf(line, sizeof line, "unit_emulator_faults.c:%d", blamed);
    for (int i = 0; i < 3 && c->words[i]; i++)
        if (!strstr(ckl_error(), c->words[i]))
            fail_msg("[%s] \"%s\" is not in: %s", settings, c->words[i], ckl_error());
    if (blamed && !strstr(ckl_error(), line))
        fail_msg("[%s] %s is not in: %s", settings, line, ckl_error());
}

static const char *const all_settings[] = {
    "budget=100000 completion=eager",
    "budget=100000 completion=lazy",
    "budget=100000 completion=random schedule=random seed=1",
    "budget=100000 completion=random schedule=random seed=2",
    "budget=100000 completion=eager schedule=random seed=3",
};

static void check_case(const fault_case *c)
{
    for (int i = 0; i < COUNT_OF(all_settings); i++) {
        bench b = bench_open(all_settings[i]);
        ckl_status expected = c->status ? c->status : CKL_DEVICE, status = bench_run(&b, c, true);
        if (status != expected)
            fail_msg("[%s] planted: status %s", all_settings[i], ckl_status_name(status));
        check_report(c, all_settings[i]);
        if (getenv("VERBOSE") && i == 0)
            print_message("%s\n", ckl_error());
        b.gpu->ops->close(b.gpu);
        b = bench_open(all_settings[i]); // a fault may leave half a tile stored
        if (bench_run(&b, c, false) != CKL_OK)
            fail_msg("[%s] corrected: %s", all_settings[i], ckl_error());
        b.gpu->ops->close(b.gpu);
    }
}

static void test_fault(void **state)
{
    check_case(*state);
}

/* The device works on after a fault. */
static void test_launch_after_fault(void **state)
{
    (void)state;
    bench b = bench_open("");
    assert_int_equal(bench_run(&b, &cases[0], true), CKL_DEVICE);
    assert_int_equal(bench_run(&b, &cases[0], false), CKL_OK);
    b.gpu->ops->close(b.gpu);
}

/* Bank conflicts are counted, with the worst line. */
static void conflicting_stores(void)
{
    declare();
    val x = tile("x", 4 * 32 * 33);
    BLAME;
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), planted ? 4 * 32 : 4 * 33)), 0, u32(0));
}

static void test_bank_conflicts(void **state)
{
    (void)state;
    static const fault_case c = { conflicting_stores, 32, 1, { NULL }, 0 };
    char where[96], line[64];
    bench b = bench_open("");
    assert_int_equal(bench_run(&b, &c, false), CKL_OK);
    assert_int_equal(test_counter(b.gpu, "bank conflicts", where), 0);
    assert_int_equal(bench_run(&b, &c, true), CKL_OK);
    assert_int_equal(test_counter(b.gpu, "bank conflicts", where), 31);
    snprintf(line, sizeof line, "unit_emulator_faults.c:%d", blamed);
    assert_non_null(strstr(where, line));
    b.gpu->ops->close(b.gpu);
}

int main(void)
{
    static char names[COUNT_OF(cases)][32];
    struct CMUnitTest tests[COUNT_OF(cases) + 2];
    for (int i = 0; i < COUNT_OF(cases); i++) {
        snprintf(names[i], sizeof names[i], "fault %d: %s", i, cases[i].words[0]);
        tests[i] = (struct CMUnitTest){ names[i], test_fault, NULL, NULL, (void *)(uintptr_t)&cases[i] };
    }
    tests[COUNT_OF(cases)] = (struct CMUnitTest)cmocka_unit_test(test_launch_after_fault);
    tests[COUNT_OF(cases) + 1] = (struct CMUnitTest)cmocka_unit_test(test_bank_conflicts);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
