/* unit_emulator_order.c - the checker: faults of TMA, bulk copies, cp.async, and of barriers. */
#include "unit_emulator_faults.h"

FAULT(store_without_fence, 32, 1, "missing fence_proxy_async", "warp 0 wrote", "ordinary store")
{
    val x = tile("x", TILE_BYTES), origin[2] = { u32(0), u32(0) };
    fill_tile(x, TILE_BYTES, 32);
    if (!planted)
        ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_elect()) {
        origin[0] = origin[1] = ir_int(CKL_I32, 0);
        BLAMED(ir_tma_store(IR_TMA_WRITE, p.map, x, 0, 2, origin));
        ir_plain(IR_BULK_COMMIT, 0, 0);
        ir_plain(IR_BULK_WAIT, 0, 1);
    }
}

typedef struct loader {
    val memory, map, x, bar, origin[2];
} loader;

/* A tile and an mbarrier of one arrival, initialised and fenced. */
static loader prepare_load(parameters p)
{
    loader l = { .memory = p.memory, .map = p.map, .x = tile("x", TILE_BYTES), .bar = barrier("bar") };
    l.origin[0] = l.origin[1] = ir_int(CKL_I32, 0);
    IF(ir_elect())
        init_barrier(l.bar);
    ir_plain(IR_WARP_SYNC, 0, 0);
    return l;
}

static void issue_load(loader l, int64_t expected)
{
    IF(ir_elect()) {
        ir_mbarrier_expect(l.bar, 0, u32(expected));
        ir_tma_load(l.x, 0, l.map, l.bar, u32(0), 2, l.origin);
    }
}

FAULT(read_before_arrival, 32, 1, "has not arrived", "mbarrier")
{
    loader l = prepare_load(p);
    issue_load(l, TILE_BYTES);
    if (!planted)
        ir_mbarrier_wait(l.bar, 0, u32(0));
    BLAMED(test_load_value(IR_SHARED, IR_U32, add(l.x, mul(tid(), 4)), 0));
}

FAULT(too_many_bytes_expected, 32, 1, "deadlock", "1 bytes pending", "the mbarrier bar")
{
    loader l = prepare_load(p);
    issue_load(l, planted ? TILE_BYTES + 1 : TILE_BYTES);
    BLAMED(ir_mbarrier_wait(l.bar, 0, u32(0)));
}

FAULT(too_few_bytes_expected, 32, 1, "wrong transaction count", "16 bytes more")
{
    loader l = prepare_load(p);
    IF(ir_elect()) {
        ir_mbarrier_expect(l.bar, 0, u32(planted ? TILE_BYTES - 16 : TILE_BYTES));
        BLAMED(ir_tma_load(l.x, 0, l.map, l.bar, u32(0), 2, l.origin));
    }
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

/* Two loads, one of which was not reckoned with: its bytes come after the phase or in the next one. */
FAULT(one_load_of_two_expected, 32, 1, "on bar")
{
    loader l = prepare_load(p);
    val y = tile("y", TILE_BYTES);
    IF(ir_elect()) {
        ir_mbarrier_expect(l.bar, 0, u32(planted ? TILE_BYTES : 2 * TILE_BYTES));
        ir_tma_load(l.x, 0, l.map, l.bar, u32(0), 2, l.origin);
        ir_tma_load(y, 0, l.map, l.bar, u32(0), 2, l.origin);
    }
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

FAULT(over_arrival, 32, 1, "mbarrier over-arrival")
{
    loader l = prepare_load(p);
    IF(ir_elect()) {
        ir_mbarrier_expect(l.bar, 0, u32(TILE_BYTES));
        BLAME;
        if (planted)
            ir_mbarrier_arrive(IR_SHARED, l.bar, 0);
        HERE;
        ir_tma_load(l.x, 0, l.map, l.bar, u32(0), 2, l.origin);
    }
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

/* The copy of one thread, or planted of a whole warp. */
static void begin_one_thread(void)
{
    val one = ir_elect();
    ir_if(planted ? ir_int(IR_PRED, 1) : one);
}

FAULT(tma_store_by_all, 32, 1, "copy issued by several lanes", "lanes 0 and 1 issue the same tma_store")
{
    val x = tile("x", TILE_BYTES), origin[2] = { ir_int(CKL_I32, 0), ir_int(CKL_I32, 0) };
    fill_tile(x, TILE_BYTES, 32);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    begin_one_thread();
    BLAMED(ir_tma_store(IR_TMA_WRITE, p.map, x, 0, 2, origin));
    finish_bulk();
    ir_end_if();
}

FAULT(bulk_store_by_all, 32, 1, "copy issued by several lanes", "the same bulk_store")
{
    val x = tile("x", TILE_BYTES);
    fill_tile(x, TILE_BYTES, 32);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    begin_one_thread();
    BLAMED(ir_bulk_store(p.memory, x, 0, u32(TILE_BYTES)));
    finish_bulk();
    ir_end_if();
}

FAULT(tma_load_by_all, 32, 1, "copy issued by several lanes", "the same tma_load")
{
    loader l = prepare_load(p);
    IF(ir_elect())
        ir_mbarrier_expect(l.bar, 0, u32(TILE_BYTES));
    begin_one_thread();
    BLAMED(ir_tma_load(l.x, 0, l.map, l.bar, u32(0), 2, l.origin));
    ir_end_if();
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

/* Each lane its own row: many threads may, as long as no two do the same. */
FAULT(bulk_load_by_all, 32, 1, "copy issued by several lanes", "the same bulk_load")
{
    loader l = prepare_load(p);
    val row = planted ? u32(0) : mul(tid(), ROW_BYTES);
    IF(ir_elect())
        ir_mbarrier_expect(l.bar, 0, u32(32 * ROW_BYTES));
    BLAMED(ir_bulk_load(add(l.x, row), 0, add(l.memory, ir_convert(IR_U64, row)), u32(ROW_BYTES), l.bar));
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

FAULT(wrong_phase, 32, 1, "deadlock", "warp 0 waits at", "parity 1")
{
    loader l = prepare_load(p);
    issue_load(l, TILE_BYTES);
    ir_mbarrier_wait(l.bar, 0, u32(0));
    BLAMED(ir_mbarrier_wait(l.bar, 0, u32(planted ? 1 : 0)));
}

FAULT(barrier_before_init, 64, 1, "mbarrier used before its initialisation")
{
    val bar = barrier("bar");
    IF(is_warp(0)) {
        IF(ir_elect())
            ir_mbarrier_init(bar, 0, 64);
    }
    if (!planted)
        ir_bar_sync(u32(0), 64);
    BLAMED(ir_mbarrier_arrive(IR_SHARED, bar, 0));
    ir_mbarrier_wait(bar, 0, u32(0));
}

FAULT(barrier_not_fenced, 32, 1, "missing fence_mbarrier_init")
{
    loader l = { .x = tile("x", TILE_BYTES), .bar = barrier("bar") };
    l.origin[0] = l.origin[1] = ir_int(CKL_I32, 0);
    IF(ir_elect()) {
        ir_mbarrier_init(l.bar, 0, 1);
        if (!planted)
            ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
        ir_mbarrier_expect(l.bar, 0, u32(TILE_BYTES));
        BLAMED(ir_tma_load(l.x, 0, p.map, l.bar, u32(0), 2, l.origin));
    }
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

FAULT(barrier_overwritten, 32, 1, "access to an mbarrier")
{
    loader l = prepare_load(p);
    BLAMED(test_store_value(IR_SHARED, IR_U32, planted ? l.bar : l.x, 0, u32(7)));
}

FAULT(leaves_with_load, 32, 1, "exit with work under way", "copy into its shared memory")
{
    loader l = prepare_load(p);
    issue_load(l, TILE_BYTES);
    BLAME;
    if (planted)
        ir_plain(IR_WARP_SYNC, 0, 0);
    else
        ir_mbarrier_wait(l.bar, 0, u32(0));
}

FAULT(leaves_with_store, 32, 1, "exit with work under way", "bulk_wait")
{
    val x = tile("x", TILE_BYTES), origin[2] = { ir_int(CKL_I32, 0), ir_int(CKL_I32, 0) };
    fill_tile(x, TILE_BYTES, 32);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_elect()) {
        ir_tma_store(IR_TMA_WRITE, p.map, x, 0, 2, origin);
        ir_plain(IR_BULK_COMMIT, 0, 0);
        if (!planted)
            ir_plain(IR_BULK_WAIT, 0, 1);
        BLAME;
    }
}

/* Two buffers and three stores: the first buffer is free again when the third store has read it, not the second. */
FAULT(buffer_filled_again, 64, 1, "shared-memory race", "read by the bulk store of warp 0", "no bulk_wait")
{
    val x = tile("x", 2 * TILE_BYTES), origin[2] = { ir_int(CKL_I32, 0), ir_int(CKL_I32, 0) };
    fill_tile(x, 2 * TILE_BYTES, 64);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(u32(1), 64);
    IF(ir_compare(IR_EQ, tid(), u32(0))) {
        for (int i = 0; i < 3; i++) {
            ir_tma_store(IR_TMA_WRITE, p.map, x, i % 2 * TILE_BYTES, 2, origin);
            ir_plain(IR_BULK_COMMIT, 0, 0);
        }
        ir_plain(IR_BULK_WAIT, planted ? 1 : 0, 1);
    }
    ir_bar_sync(u32(1), 64);
    BLAMED(test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, u32(7)));
}

FAULT(cp_async_not_waited, 32, 1, "cp_async of warp 0", "no cp_async_wait")
{
    val x = add(tile("x", 512), mul(tid(), 16));
    ir_cp_async(x, 0, test_element(p.memory, tid(), 16), 16, u32(16));
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    if (!planted)
        ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
    BLAMED(test_load_value(IR_SHARED, IR_U32, x, 0));
    ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
}

/* Warp 0 fills what warp 1 has read before. */
FAULT(cp_async_too_early, 64, 1, "shared-memory race", "cp_async")
{
    val x = tile("x", 512), mine = add(x, mul(ir_binary(IR_AND, tid(), u32(31)), 16));
    IF(ir_compare(IR_LT, tid(), u32(32)))
        test_store_value(IR_SHARED, IR_U32, mine, 0, u32(7));
    ir_bar_sync(u32(1), 64);
    IF(ir_compare(IR_GE, tid(), u32(32)))
        test_load_value(IR_SHARED, IR_U32, mine, 0);
    if (!planted)
        ir_bar_sync(u32(1), 64);
    IF(ir_compare(IR_LT, tid(), u32(32))) {
        BLAMED(ir_cp_async(mine, 0, test_element(p.memory, tid(), 16), 16, u32(16)));
        finish_cp_async();
    }
}

/* A tile is read by ordinary loads, then filled again. */
FAULT(refill_without_fence, 32, 1, "missing fence_proxy_async", "overwrites", "ordinary load")
{
    val x = tile("x", TILE_BYTES), bar = barrier("bar"), zero = ir_int(CKL_I32, 0);
    IF(ir_elect()) {
        init_barrier(bar);
        for (int i = 0; i < 2; i++) {
            const val origin[] = { zero, zero };
            ir_mbarrier_expect(bar, 0, u32(TILE_BYTES));
            if (i == 1)
                BLAME;
            ir_tma_load(x, 0, p.map, bar, u32(0), 2, origin);
            HERE;
            ir_mbarrier_wait(bar, 0, u32(i));
            test_load_value(IR_SHARED, IR_U32, x, 0);
            if (!planted)
                ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
        }
    }
}

/* An mbarrier counts 2^20 - 1 bytes. */
FAULT(more_bytes_than_it_counts, 32, 1, "wrong transaction count", "it can count 1048575")
{
    loader l = prepare_load(p);
    IF(ir_elect()) {
        BLAMED(ir_mbarrier_expect(l.bar, 0, u32(planted ? 1 << 20 : TILE_BYTES)));
        ir_tma_load(l.x, 0, l.map, l.bar, u32(0), 2, l.origin);
    }
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

/* And as many arrivals. */
FAULT(more_arrivals_than_it_counts, 32, 1, "misused mbarrier_init", "1048576 arrivals (1 to 1048575) at bar")
{
    val bar = barrier("bar");
    IF(ir_elect())
        BLAMED(ir_mbarrier_init(bar, 0, planted ? 1 << 20 : (1 << 20) - 1));
}

/* Barriers that there are not: numbers are known at run time only. */
FAULT(barrier_beyond_the_last, 32, 1, "misused barrier", "barrier 16 of 32 threads; there are 16 barriers")
{
    const val zero = ir_sreg(IR_CTA_X);
    BLAMED(ir_bar_sync(add(zero, u32(planted ? 16 : 15)), 32));
}

FAULT(barrier_of_more_threads, 32, 1, "misused barrier", "barrier 1 of 64 threads")
{
    BLAMED(ir_bar_sync(u32(1), planted ? 64 : 32));
}

/* Multiples of 16 bytes from multiples of 16, both known at run time only. */
static void askew_bulk_load(parameters p, int bytes, int from)
{
    loader l = prepare_load(p);
    const val zero = ir_sreg(IR_CTA_X);

    IF(ir_elect()) {
        ir_mbarrier_expect(l.bar, 0, u32(32));
        BLAMED(ir_bulk_load(l.x, 0, test_element(l.memory, add(zero, u32(planted ? from : 16)), 1),
                            add(zero, u32(planted ? bytes : 32)), l.bar));
    }
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

FAULT_CALL(bulk_load_of_odd_bytes, askew_bulk_load(p, 24, 16), 32, 1, "misaligned bulk copy", "24 bytes from",
           "multiples of 16")
FAULT_CALL(bulk_load_from_between, askew_bulk_load(p, 32, 8), 32, 1, "misaligned bulk copy", "32 bytes from",
           "multiples of 16")

/* The same of what is stored or prefetched. */
static void askew_bulk_store(parameters p, int bytes, int to)
{
    const val zero = ir_sreg(IR_CTA_X), x = tile("x", TILE_BYTES);
    fill_tile(x, TILE_BYTES, 32);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_elect()) {
        BLAMED(ir_bulk_store(test_element(p.memory, add(zero, u32(planted ? to : 16)), 1), x, 0,
                             add(zero, u32(planted ? bytes : 32))));
        finish_bulk();
    }
}

FAULT_CALL(bulk_store_of_odd_bytes, askew_bulk_store(p, 24, 16), 32, 1, "misaligned bulk copy", "24 bytes to",
           "multiples of 16")
FAULT_CALL(bulk_store_to_between, askew_bulk_store(p, 32, 8), 32, 1, "misaligned bulk copy", "32 bytes to",
           "multiples of 16")

FAULT(prefetch_of_odd_bytes, 32, 1, "misaligned bulk copy", "24 bytes from", "multiples of 16")
{
    IF(ir_elect())
        BLAMED(ir_bulk_prefetch(p.memory, add(ir_sreg(IR_CTA_X), u32(planted ? 24 : 32))));
}

FAULT(prefetch_of_no_memory, 32, 1, "global access")
{
    BLAMED(ir_prefetch(add(p.memory, ir_int(IR_U64, planted ? (int64_t)1 << 40 : 3))));
}

FAULT(discard_between_lines, 32, 1, "misaligned global access", "of 128 bytes, is no multiple of 128")
{
    IF(ir_elect())
        BLAMED(ir_discard(add(p.memory, ir_int(IR_U64, planted ? 64 : 128))));
}

/* A box of three coordinates through a map of two, or for a CTA that the cluster has not. */
static void load_of_other_box(parameters p, int coordinates, int mask)
{
    loader l = prepare_load(p);
    const val zero = ir_int(CKL_I32, 0), origin[] = { zero, zero, zero };
    IF(ir_elect()) {
        ir_mbarrier_expect(l.bar, 0, u32(TILE_BYTES));
        BLAMED(ir_tma_load(l.x, 0, l.map, l.bar, add(ir_sreg(IR_CTA_X), u32(mask)), coordinates, origin));
    }
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

FAULT_CALL(load_of_other_rank, load_of_other_box(p, planted ? 3 : 2, 0), 32, 1, "wrong rank",
           "3 coordinates for a tensor map of rank 2")
FAULT_CALL(load_for_no_cta, load_of_other_box(p, 2, planted ? 4 : 1), 32, 1, "no such CTA",
           "multicast mask 0x4 in a cluster of 1 CTAs")

/* The second of two mbarriers, once more. */
FAULT(initialised_twice, 32, 1, "misused mbarrier_init", "at bars+8, which is an mbarrier already")
{
    val bars = ir_smem_address(ir_smem_alloc("bars", 16, 8));
    IF(ir_elect()) {
        ir_mbarrier_init(bars, 0, 1);
        ir_mbarrier_init(bars, 8, 1);
        if (planted)
            BLAMED(ir_mbarrier_init(bars, 8, 1));
    }
}

/* No arrivals to wait for, where there is no mbarrier yet. */
FAULT(initialised_for_none, 32, 1, "misused mbarrier_init", "0 arrivals", "at bars+8, which is free")
{
    val bars = ir_smem_address(ir_smem_alloc("bars", 16, 8));
    IF(ir_elect()) {
        ir_mbarrier_init(bars, 0, 1);
        BLAMED(ir_mbarrier_init(bars, 8, planted ? 0 : 1));
    }
}

/* Two warps wait here and two there: each place is said once, with its warps. */
FAULT(waits_at_two_places, 128, 1, "deadlock", "warps 0-1 wait at", "warps 2-3 wait at")
{
    IF(ir_compare(IR_LT, ir_sreg(IR_WARP), u32(2))) {
        BLAMED(ir_bar_sync(u32(1), planted ? 96 : 64));
    }
    ELSE ir_bar_sync(u32(2), planted ? 96 : 64);
}

enum { LISTED = 12, WAITING = 14 };

/* Warps that wait for nobody, each at a barrier of its own. */
static void each_waits_alone(parameters p)
{
    ir_bar_sync(add(ir_binary(IR_SHR, tid(), u32(5)), u32(1)), 64);
}

/* Bytes that come for a phase that is over, while somebody waits for the next one. */
static void waits_for_the_next_phase(parameters p)
{
    loader l = prepare_load(p);
    issue_load(l, TILE_BYTES);
    IF(ir_elect())
        ir_tma_load(tile("y", TILE_BYTES), 0, l.map, l.bar, u32(0), 2, l.origin);
    for (int phase = 0; phase < 2; phase++)
        ir_mbarrier_wait(l.bar, 0, u32(phase));
}

TEST(late_bytes)
{
    static const fault_case c = { waits_for_the_next_phase, 32, 1, { NULL }, 1, 0 };
    bench b = bench_open("completion=lazy");
    assert_fails(bench_run(&b, &c, true), CKL_DEVICE_FAULT,
                 "8192 bytes arrive at the mbarrier bar after phase 0 has completed");
    b.gpu->ops->close(b.gpu);
}

/* A report of many warps ends somewhere. */
TEST(warps_of_a_deadlock)
{
    static const fault_case c = { each_waits_alone, 32 * WAITING, 1, { NULL }, 1, 0 };
    bench b = bench_open("");
    assert_int_equal(bench_run(&b, &c, false), CKL_DEVICE_FAULT);
    int listed = 0;
    for (const char *at = ckl_error(); (at = strstr(at, "; CTA (")); at++)
        listed++;
    assert_int_equal(listed, LISTED);
    assert_says(ckl_error(), "0 of 14 warps have ended");
    assert_says(ckl_error(), "warp 11 waits at");
    b.gpu->ops->close(b.gpu);
}

/* CTAs that run one after another in the same memory. The last one reads its copy, or overwrites it, too early. */
enum { CTAS = 3 };

static void begin_unless_last(void)
{
    ir_if(ir_compare(IR_NE, ir_sreg(IR_CTA_X), u32(CTAS - 1)));
}

static void last_reads_too_early(parameters p)
{
    loader l = prepare_load(p);
    issue_load(l, TILE_BYTES);
    begin_unless_last();
    ir_mbarrier_wait(l.bar, 0, u32(0));
    ir_end_if();
    BLAMED(test_load_value(IR_SHARED, IR_U32, add(l.x, mul(tid(), 4)), 0));
    ir_mbarrier_wait(l.bar, 0, u32(0));
}

static void last_writes_too_early(parameters p)
{
    val x = tile("x", 512);
    fill_tile(x, 512, 32);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_elect()) {
        ir_bulk_store(test_element(p.memory, ir_sreg(IR_CTA_X), 512), x, 0, u32(512));
        ir_plain(IR_BULK_COMMIT, 0, 0);
        begin_unless_last();
        ir_plain(IR_BULK_WAIT, 0, 1);
    }
    BLAMED(test_store_value(IR_SHARED, IR_U32, x, 0, u32(8)));
    ir_plain(IR_BULK_WAIT, 0, 1);
    ir_end_if();
}

/* What a CTA has waited for says nothing of the next one's. */
TEST(later_cta)
{
    static const fault_case late[] = {
        { last_reads_too_early, 32, 1, { "read of a copy that has not arrived", "CTA (2,0,0)" }, CTAS, 0 },
        { last_writes_too_early, 32, 1, { "shared-memory race", "CTA (2,0,0)", "bulk store" }, CTAS, 0 },
    };
    for (int i = 0; i < COUNT_OF(late); i++) {
        bench b = bench_open("threads=1");
        assert_int_equal(bench_run(&b, &late[i], true), CKL_DEVICE_FAULT);
        check_report(&late[i], "threads=1");
        b.gpu->ops->close(b.gpu);
    }
}

RUN_TESTS(NULL, NULL)
