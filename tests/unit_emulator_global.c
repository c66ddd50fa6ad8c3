/* unit_emulator_global.c - the checker: order in global memory, and CTAs that wait for each other. */
#include "unit_emulator_global.h"

/* Races that no order could mend */

GRID_FAULT(same_word, 32, 1, 2, 0, "global-memory race", "write of memory+0 meets the write by CTA")
{
    BLAMED(test_store_value(IR_GLOBAL, IR_U32, test_element(p.memory, planted ? u32(0) : cta(), 4), 0, cta()));
}

/* Each CTA writes half of a word; planted, the second writes all of it. */
GRID_FAULT(halves_of_a_word, 32, 1, 2, 0, "global-memory race", "no release and acquire")
{
    ir_type type = planted ? IR_U32 : IR_U16;
    only_thread(0);
    IF(is_cta(0))
        test_store_value(IR_GLOBAL, IR_U16, p.memory, 2, ir_int(IR_U16, 1));
    ELSE
    {
        BLAME; // or the other one's
        test_store_value(IR_GLOBAL, type, p.memory, 0, ir_int(type, 1));
    }
    blamed = 0;
    ir_end_if();
}

/* What one CTA has written of a word another one reads: that is the fault, and not that the rest was never written. */
GRID_FAULT(half_written_by_another, 32, 1, 2, 0, "global-memory race", "fresh+0")
{
    only_thread(0);
    IF(is_cta(0))
        test_store_value(IR_GLOBAL, IR_U16, p.fresh, 0, ir_int(IR_U16, 1));
    ELSE
    {
        BLAMED(test_load_value(IR_GLOBAL, IR_U32, planted ? p.fresh : p.memory, 0));
    }
    ir_end_if();
}

/* One CTA reads what another one writes. */
GRID_FAULT(read_of_other, 32, 1, CTAS, 0, "global-memory race", "memory+0", "no release and acquire")
{
    val x = test_load_value(IR_GLOBAL, IR_U32, p.memory, planted ? 0 : 1024);
    IF(is_cta(CTAS - 1))
        test_store_value(IR_GLOBAL, IR_U32, test_element(p.memory, tid(), 4), 0, x);
}

/* One reads, the other one writes. */
GRID_FAULT(read_of_one, 32, 1, 2, 0, "global-memory race", "memory+0", "CTA (0,0,0)")
{
    only_thread(0);
    IF(is_cta(0))
        test_load_value(IR_GLOBAL, IR_U32, p.memory, 0);
    ELSE test_store_value(IR_GLOBAL, IR_U32, p.memory, planted ? 0 : 4, cta());
    ir_end_if();
}

/* The tile that every CTA loads by TMA is written by one of them. */
GRID_FAULT(tma_load_of_written, 32, 1, 1, 1, "global-memory race", "memory+512", "by ")
{
    val x = tile("x", TILE_BYTES), bar = barrier("bar"), zero = ir_int(CKL_I32, 0);
    const val origin[] = { zero, zero };
    IF(ir_elect()) {
        init_barrier(bar);
        ir_mbarrier_expect(bar, 0, u32(TILE_BYTES));
        ir_tma_load(x, 0, p.map, bar, u32(0), 2, origin);
        ir_mbarrier_wait(bar, 0, u32(0));
        IF(is_cta(0))
            test_store_value(IR_GLOBAL, IR_U32, p.memory, planted ? 512 : FLAG, u32(1));
    }
}

/* The last CTA gathers */

typedef enum mistake {
    NO_FENCE_BEFORE,
    NO_FENCE_AFTER,
    NO_BARRIER,
    NARROW_FENCE,
    MISTAKE_COUNT,
} mistake;

/* Every warp of every CTA writes a value, a counter finds the last CTA, and that reads them all. */
static void gather(parameters p, mistake m)
{
    val warps = u32(2), total = u32(CTAS), last = ir_reg(IR_U32);
    int64_t told = ir_smem_alloc("told", 4, 4);
    val mine = ir_fma(cta(), warps, ir_sreg(IR_WARP));
    HERE;
    test_store_value(IR_GLOBAL, IR_U32, test_element(p.memory, mine, 4), 0, mine);
    if (!(planted && m == NO_BARRIER))
        ir_bar_sync(u32(0), 64);
    only_thread(0);
    if (!(planted && m == NO_FENCE_BEFORE))
        ir_fence(planted && m == NARROW_FENCE ? IR_SCOPE_CTA : IR_SCOPE_GPU);
    val before = ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, p.memory, COUNTER, u32(1));
    ir_assign(last, ir_select(ir_compare(IR_EQ, before, ir_binary(IR_SUB, total, u32(1))), u32(1), u32(0)));
    if (!(planted && m == NO_FENCE_AFTER))
        ir_fence(IR_SCOPE_GPU);
    test_store_value(IR_SHARED, IR_U32, ir_smem_address(told), 0, last);
    ir_end_if();
    ir_bar_sync(u32(0), 64);
    IF(ir_compare(IR_NE, test_load_value(IR_SHARED, IR_U32, ir_smem_address(told), 0), u32(0))) {
        IF(ir_compare(IR_LT, tid(), u32(2 * CTAS)))
            BLAMED(test_load_value(IR_GLOBAL, IR_U32, test_element(p.memory, tid(), 4), 0));
    }
}

GRID_FAULT_CALL(gather_no_fence_before, gather(p, NO_FENCE_BEFORE), 64, 1, CTAS, 0, "global-memory race",
                "fence or a release before the flag")
GRID_FAULT_CALL(gather_no_fence_after, gather(p, NO_FENCE_AFTER), 64, 1, CTAS, 0, "global-memory race",
                "read, but not acquired")
GRID_FAULT_CALL(gather_no_barrier, gather(p, NO_BARRIER), 64, 1, CTAS, 0, "global-memory race", "read of memory+",
                "warp 1 of CTA")
GRID_FAULT_CALL(gather_narrow_fence, gather(p, NARROW_FENCE), 64, 1, CTAS, 0, "global-memory race", "by warp")

/* The counter releases and acquires by itself. */
GRID_FAULT(gather_by_order, 32, 1, CTAS, 0, "global-memory race", "warp 0 of CTA")
{
    IF(ir_elect()) {
        test_store_value(IR_GLOBAL, IR_U32, test_element(p.memory, cta(), 4), 0, cta());
        ir_order order = planted ? IR_ORDER_ACQUIRE : IR_ORDER_ACQ_REL;
        val before = ir_atomic(order, IR_SCOPE_GPU, IR_RED_ADD, p.memory, COUNTER, u32(1));
        IF(ir_compare(IR_EQ, before, u32(CTAS - 1))) {
            BLAME;
            for (int i = 0; i < CTAS; i++)
                test_load_value(IR_GLOBAL, IR_U32, p.memory, 4 * i);
        }
    }
}

/* The async proxy */

static void fill(val x)
{
    val zero[4] = { u32(0), u32(0), u32(0), u32(0) };
    for (int at = 0; at < TILE_BYTES; at += 32 * 16)
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, add(x, mul(tid(), 16)), at, zero);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
}

/* Planted, only the source has been read when the flag is set. */
GRID_FAULT(store_not_complete, 32, 1, 2, 0, "global-memory race", "the bulk store of warp 0 of CTA (1", "bulk_wait")
{
    val x = tile("x", TILE_BYTES), flag = at_offset(p.memory, FLAG), zero = ir_int(CKL_I32, 0);
    const val origin[] = { zero, zero };
    fill(x);
    IF(ir_elect()) {
        IF(is_cta(0)) {
            wait_for(IR_ORDER_ACQUIRE, flag, u32(1));
            BLAMED(test_load_value(IR_GLOBAL, IR_U32, p.memory, 256));
        }
        ELSE
        {
            HERE;
            ir_tma_store(p.map, x, 0, 2, origin);
            ir_plain(IR_BULK_COMMIT, 0, 0);
            ir_plain(IR_BULK_WAIT, 0, planted ? 1 : 0);
            store_flag(IR_ORDER_RELEASE, flag, u32(1));
        }
    }
}

/* Two CTAs store the same bits, and say so; planted, one of them does not. */
GRID_FAULT(stores_of_the_same, 32, 1, 2, 0, "global-memory race", "write of memory+", "meets the write by CTA")
{
    val x = tile("x", TILE_BYTES), zero = ir_int(CKL_I32, 0);
    const val origin[] = { zero, zero };
    fill(x);
    IF(ir_elect()) {
        IF(is_cta(0))
            BLAMED(ir_tma_store_same(p.map, x, 0, 2, origin));
        ELSE
        {
            BLAME; // or the other one's
            if (planted)
                ir_tma_store(p.map, x, 0, 2, origin);
            else
                ir_tma_store_same(p.map, x, 0, 2, origin);
        }
        ir_plain(IR_BULK_COMMIT, 0, 0);
        ir_plain(IR_BULK_WAIT, 0, 0);
    }
    blamed = 0;
}

/* Planted, the bits are not the same. */
GRID_FAULT(stores_of_other_bits, 32, 1, 2, 0, "other bits", "the store to memory+", "another CTA's")
{
    val x = tile("x", TILE_BYTES), zero = ir_int(CKL_I32, 0);
    const val origin[] = { zero, zero };
    fill(x);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, planted ? cta() : u32(0));
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_elect()) {
        BLAMED(ir_tma_store_same(p.map, x, 0, 2, origin));
        ir_plain(IR_BULK_COMMIT, 0, 0);
        ir_plain(IR_BULK_WAIT, 0, 0);
    }
}

/* What ordinary stores of another CTA wrote is loaded by TMA. */
GRID_FAULT(load_without_proxy_fence, 32, 1, 2, 0, "missing fence_proxy_async", "memory+512", "_gmem")
{
    val x = tile("x", TILE_BYTES), bar = barrier("bar");
    val flag = at_offset(p.memory, FLAG), zero = ir_int(CKL_I32, 0);
    const val origin[] = { zero, zero };
    IF(ir_elect()) {
        IF(is_cta(0)) {
            init_barrier(bar);
            wait_for(IR_ORDER_ACQUIRE, flag, u32(1));
            if (!planted)
                ir_plain(IR_FENCE_PROXY_ASYNC, 0, 1);
            ir_mbarrier_expect(bar, 0, u32(TILE_BYTES));
            BLAMED(ir_tma_load(x, 0, p.map, bar, u32(0), 2, origin));
            ir_mbarrier_wait(bar, 0, u32(0));
        }
        ELSE
        {
            test_store_value(IR_GLOBAL, IR_U32, p.memory, 512, u32(7));
            store_flag(IR_ORDER_RELEASE, flag, u32(1));
        }
    }
}

/* CTAs that are not there */

/* All CTAs wait for each other; planted, there are more than the device holds. */
GRID_FAULT(grid_barrier, 32, 1, SMS, 1, "deadlock", "memory+8256 to change", "the device holds 6 at once")
{
    val count = at_offset(p.memory, COUNTER);
    ir_smem_alloc("much", SMEM_OF_ONE_PER_SM, 128);
    IF(ir_elect()) {
        ir_atomic(IR_ORDER_RELEASE, IR_SCOPE_GPU, IR_RED_ADD, count, 0, u32(1));
        BLAME;
        FOREVER {
            BLAMED(ir_break(ir_compare(IR_EQ, ir_load_strong(IR_ORDER_ACQUIRE, IR_SCOPE_GPU, IR_U32, count, 0),
                                       ir_sreg(IR_GRID_X))));
        }
    }
}

/* A lock by exchange; planted, whoever takes it keeps it. */
GRID_FAULT(lock, 32, 1, 2, 0, "deadlock", "memory+8256 to change", "1 of 2 CTAs have ended")
{
    val held = at_offset(p.memory, COUNTER);
    IF(ir_elect()) {
        FOREVER {
            HERE;
            val before = ir_atomic(IR_ORDER_ACQ_REL, IR_SCOPE_GPU, IR_RED_EXCH, held, 0, u32(1));
            BLAMED(ir_break(ir_compare(IR_EQ, before, u32(0))));
        }
        test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, cta());
        if (!planted)
            store_flag(IR_ORDER_RELEASE, held, u32(0));
    }
}

/* Every CTA waits for the one before it: fine in any order that the device may choose, for all have room. */
static void turnstile(parameters p)
{
    val flag = at_offset(p.memory, FLAG), sum = ir_reg(IR_U32);
    IF(ir_elect()) {
        HERE;
        wait_for(IR_ORDER_ACQUIRE, flag, cta());
        ir_assign(sum, add(test_load_value(IR_GLOBAL, IR_U32, p.memory, 0), cta()));
        test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, sum);
        store_flag(IR_ORDER_RELEASE, flag, add(cta(), u32(1)));
    }
}

/* The last CTA says so; planted, it leaves the counter as it is, and the next launch has no last one. */
static void counts_to_last(parameters p)
{
    IF(ir_elect()) {
        HERE;
        val before = ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, p.memory, COUNTER, u32(1));
        IF(ir_compare(IR_EQ, before, u32(CTAS - 1))) {
            if (!planted)
                store_flag(IR_ORDER_RELAXED, at_offset(p.memory, COUNTER), u32(0));
            test_store_value(IR_GLOBAL, IR_U32, p.fresh, 0, u32(1));
        }
    }
}

/* What the launch before this one has stored in fresh memory, and nothing else has. */
static void reads_fresh(parameters p)
{
    HERE;
    test_load_value(IR_GLOBAL, IR_U32, p.fresh, 0);
}

/* A poll that finds nothing new, and no other; then warps that pass one barrier after the other. */
static void barriers_after_a_poll(parameters p)
{
    val round = ir_reg(IR_U32);
    HERE;
    ir_assign(round, u32(0));
    FOREVER {
        ir_load_strong(IR_ORDER_RELAXED, IR_SCOPE_GPU, IR_U32, p.memory, FLAG);
        ir_break(ir_compare(IR_EQ, round, u32(1)));
        ir_assign(round, add(round, u32(1)));
    }
    for (int i = 0; i < 300; i++)
        ir_bar_sync(u32(i % 2), 64);
}

/* Two warps meet at a barrier where two others have met. A flag said that these had, and planted, nothing more. */
GRID_FAULT(barrier_of_others, 128, 1, 1, 0, "shared-memory race", "by warp 1", "no barrier orders them")
{
    val x = add(tile("x", 128), mul(ir_sreg(IR_LANE), 4)), flag = at_offset(p.memory, FLAG);
    IF(ir_compare(IR_LT, ir_sreg(IR_WARP), u32(2))) {
        IF(is_warp(1)) {
            HERE;
            test_store_value(IR_SHARED, IR_U32, x, 0, u32(1));
        }
        ir_bar_sync(u32(1), 64);
        only_thread(32);
        store_flag(planted ? IR_ORDER_RELAXED : IR_ORDER_RELEASE, flag, u32(1));
    }
    ir_else();
    wait_for(planted ? IR_ORDER_RELAXED : IR_ORDER_ACQUIRE, flag, u32(1));
    ir_bar_sync(u32(1), 64);
    BLAMED(test_load_value(IR_SHARED, IR_U32, x, 0));
    ir_end_if();
}

/* By its barrier a cluster also knows what TMA may load; planted, the writer did not say so. */
GRID_FAULT(cluster_loads_what_one_wrote, 32, 2, 2, 0, "missing fence_proxy_async", "memory+512", "_gmem")
{
    val x = tile("x", TILE_BYTES), bar = barrier("bar"), zero = ir_int(CKL_I32, 0);
    const val origin[] = { zero, zero };
    ir_load_strong(IR_ORDER_RELAXED, IR_SCOPE_GPU, IR_U32, p.memory, FLAG);
    IF(is_cta(0)) {
        test_store_value(IR_GLOBAL, IR_U32, test_element(p.memory, tid(), 4), 512, u32(7));
        if (!planted)
            ir_plain(IR_FENCE_PROXY_ASYNC, 0, 1);
    }
    cluster_sync();
    IF(is_cta(1)) {
        IF(ir_elect()) {
            init_barrier(bar);
            ir_mbarrier_expect(bar, 0, u32(TILE_BYTES));
            BLAMED(ir_tma_load(x, 0, p.map, bar, u32(0), 2, origin));
            ir_mbarrier_wait(bar, 0, u32(0));
        }
    }
    cluster_sync();
}

/*
 * So many CTAs read a word that what the next reader knows of them is not looked at to the end. It knows of all but,
 * planted, the first, and tells who writes.
 */
enum { READERS = 80 };

GRID_FAULT(read_by_many, 32, 1, READERS + 2, 0, "global-memory race",
           "write of memory+0 meets the read by warp 0 of CTA (0,0,0)")
{
    val count = at_offset(p.memory, COUNTER), flag = at_offset(p.memory, FLAG);
    IF(ir_elect()) {
        IF(ir_compare(IR_LT, cta(), u32(READERS))) {
            load_flag(IR_ORDER_DEFAULT, p.memory);
            IF(ir_compare(IR_GE, cta(), u32(planted)))
                ir_atomic(IR_ORDER_RELEASE, IR_SCOPE_GPU, IR_RED_ADD, count, 0, u32(1));
        }
        IF(is_cta(READERS)) {
            wait_for(IR_ORDER_ACQUIRE, count, u32(READERS - planted));
            load_flag(IR_ORDER_DEFAULT, p.memory);
            store_flag(IR_ORDER_RELEASE, flag, u32(1));
        }
        IF(is_cta(READERS + 1)) {
            wait_for(IR_ORDER_ACQUIRE, flag, u32(1));
            BLAMED(store_flag(IR_ORDER_DEFAULT, p.memory, u32(1)));
        }
    }
}

/* Nothing is planted, and nothing found. */
static bench runs(const char *settings, const fault_case *c)
{
    bench b = bench_open(settings);
    if (bench_run(&b, c, false) != CKL_OK)
        fail_msg("[%s] %s", settings, ckl_error());
    return b;
}

TEST(turnstile)
{
    static const fault_case c = { turnstile, 32, 1, { NULL }, 40, 0 };
    for (int i = 0; i < COUNT_OF(all_settings); i++) {
        bench b = runs(all_settings[i], &c);
        uint32_t sum = 0;
        assert_ok(b.gpu->ops->copy_out(b.gpu, &sum, b.memory, sizeof sum, NULL));
        assert_int_equal(sum, 40 * 39 / 2);
        b.gpu->ops->close(b.gpu);
    }
}

/* Of a word: written or read, as one or byte by byte. */
static void touch_word(val at, bool writes, bool by_bytes)
{
    const ir_type type = by_bytes ? CKL_U8 : IR_U32;
    for (int i = 0; i < (by_bytes ? 4 : 1); i++) {
        if (writes)
            test_store_value(IR_GLOBAL, type, at, i, ir_int(type, i));
        else
            test_load_value(IR_GLOBAL, type, at, i);
    }
}

static bool first_writes, first_by_bytes; // of touched_by_two
static int first_at;                      // line

/* One CTA touches a word and tells another one, which touches it in the other way. */
static void touched_by_two(parameters p)
{
    val flag = at_offset(p.memory, FLAG);
    only_thread(0);
    IF(is_cta(0)) {
        first_at = __LINE__ + 1;
        HERE, touch_word(p.memory, first_writes, first_by_bytes);
        HERE;
        store_flag(planted ? IR_ORDER_RELAXED : IR_ORDER_RELEASE, flag, u32(1));
    }
    ELSE
    {
        wait_for(IR_ORDER_ACQUIRE, flag, u32(1));
        BLAME;
        touch_word(p.memory, !first_writes, !first_by_bytes);
    }
    ir_end_if();
}

/* Whether words are remembered as one or in bytes, the report has both lines. */
TEST(words_and_bytes)
{
    for (int way = 0; way < 4; way++) {
        first_writes = way & 1, first_by_bytes = way & 2;
        const fault_case c = {
            touched_by_two, 32, 1, { "global-memory race", first_writes ? "the write by" : "the read by" }, 2, 0
        };
        test_fault(&(void *){ (void *)(uintptr_t)&c });
        bench b = bench_open("");
        char line[64];
        snprintf(line, sizeof line, "/%s:%d;", BLAMED_FILE, first_at);
        assert_fails(bench_run(&b, &c, true), CKL_DEVICE_FAULT, line);
        b.gpu->ops->close(b.gpu);
    }
}

/* CTA 0 waits for what CTA 1 raises. */
static void waits_for_the_next(parameters p)
{
    val flag = at_offset(p.memory, FLAG);
    IF(ir_elect()) {
        HERE;
        IF(is_cta(0))
            wait_for(IR_ORDER_ACQUIRE, flag, u32(1));
        ELSE store_flag(IR_ORDER_RELEASE, flag, u32(1));
    }
}

/* What waits for a CTA that begins later finds room on an empty device only. */
TEST(one_resident)
{
    static const char *const settings[] = { "resident=1", "resident=1 schedule=random seed=4",
                                            "resident=2 schedule=random" };
    static const fault_case backwards = { waits_for_the_next, 32, 1, { NULL }, 2, 0 };
    static const fault_case forwards = { turnstile, 32, 1, { NULL }, 40, 0 };
    static const fault_case gathered = { gather_by_order, 32, 1, { NULL }, CTAS, 0 };
    for (int i = 0; i < COUNT_OF(settings); i++) {
        bench b = runs(settings[i], &forwards);
        const bool alone = strstr(settings[i], "resident=1") != NULL;
        assert_ok(bench_run(&b, &gathered, false));
        b.gpu->ops->close(b.gpu);
        b = bench_open(settings[i]);
        assert_int_equal(bench_run(&b, &backwards, false), alone ? CKL_DEVICE_FAULT : CKL_OK);
        if (alone)
            assert_non_null(strstr(ckl_error(), "and 1 have not started: the device holds 1 at once"));
        b.gpu->ops->close(b.gpu);
    }
}

/* All but the first cluster wait for a flag that nobody raises. */
static void wait_for_nobody(parameters p)
{
    IF(ir_compare(IR_GE, cta(), u32(2)))
        wait_for(IR_ORDER_ACQUIRE, at_offset(p.memory, FLAG), u32(1));
}

/* Five clusters of two CTAs, two at a time. Those that wait are counted, too. */
TEST(residents_of_a_deadlock)
{
    static const fault_case c = { wait_for_nobody, 32, 2, { NULL }, 10, 0 };
    bench b = bench_open("resident=2");
    assert_fails(
        bench_run(&b, &c, false), CKL_DEVICE_FAULT,
        "; 2 of 10 CTAs have ended, 2 more wait like this one, and 4 have not started: the device holds 4 at once");
    device_counter counters[COUNTER_COUNT];
    b.gpu->ops->counters(b.gpu, counters, COUNTER_COUNT);
    assert_int_equal(counters[COUNT_CTAS].value, 6);
    b.gpu->ops->close(b.gpu);
}

/* An endless loop does not end the launch: of several the first is kept. Another fault does, and takes its place. */
static void endless_and_faulty(parameters p)
{
    val x = ir_reg(IR_U32);
    ir_assign(x, u32(0));
    IF(ir_compare(IR_LT, cta(), u32(2))) {
        FOREVER
            ir_break(ir_compare(IR_NE, x, u32(0)));
    }
    ir_load_strong(IR_ORDER_RELAXED, IR_SCOPE_GPU, IR_U32, at_offset(p.memory, FLAG), 0); // orders the launch
    if (planted) {
        IF(is_cta(2))
            test_load_value(IR_GLOBAL, IR_U32, p.fresh, 0);
    }
}

TEST(several_faults)
{
    static const fault_case c = { endless_and_faulty, 32, 1, { NULL }, 3, 0 };
    for (int plant = 0; plant < 2; plant++) {
        bench b = bench_open("budget=100000");
        assert_fails(bench_run(&b, &c, plant), CKL_DEVICE_FAULT, plant ? "read of uninitialised" : "endless loop");
        assert_non_null(strstr(ckl_error(), plant ? "CTA (2,0,0)" : "CTA (0,0,0)"));
        b.gpu->ops->close(b.gpu);
    }
}

TEST(barriers_after_a_poll)
{
    static const fault_case c = { barriers_after_a_poll, 64, 1, { NULL }, 1, 0 };
    for (int i = 0; i < COUNT_OF(all_settings); i++) {
        bench b = runs(all_settings[i], &c);
        b.gpu->ops->close(b.gpu);
    }
}

TEST(counter_not_reset)
{
    static const fault_case count = { counts_to_last, 32, 1, { NULL }, CTAS, 0 };
    static const fault_case read = { reads_fresh, 32, 1, { "read of uninitialised", "fresh+0" }, 1, 0 };
    for (int plant = 0; plant < 2; plant++) {
        bench b = bench_open("");
        assert_ok(bench_run(&b, &count, plant));
        b.gpu->ops->release(b.gpu, b.fresh);
        b.fresh = test_upload(b.gpu, NULL, MEMORY_BYTES);
        assert_ok(bench_run(&b, &count, plant));
        assert_int_equal(bench_run(&b, &read, plant), plant ? CKL_DEVICE_FAULT : CKL_OK);
        if (plant)
            check_report(&read, "");
        b.gpu->ops->close(b.gpu);
    }
}

/* Launches are told apart by numbers of 32 bits, which begin anew before a launch would use them up. */
TEST(last_numbers)
{
    enum { LEFT_MAX = 6 };
    static const unsigned char zeros[MEMORY_BYTES - FLAG];
    for (int i = 0; i < LEFT_MAX * (int)enlisted_count; i++) {
        const fault_case *c = enlisted[i / LEFT_MAX].initial_state;
        if (!c)
            continue;
        const uint32_t used = UINT32_MAX - 1 - (uint32_t)(i % LEFT_MAX);
        bench b = bench_open("");
        ((emulator *)b.gpu)->epochs = used;
        assert_int_equal(bench_run(&b, c, true), CKL_DEVICE_FAULT);
        check_report(c, "");
        b.gpu->ops->close(b.gpu);
        b = bench_open("");
        ((emulator *)b.gpu)->epochs = 1; // so its numbers will be those of other CTAs
        assert_ok(bench_run(&b, c, false));
        assert_ok(b.gpu->ops->copy_in(b.gpu, (char *)b.memory + FLAG, zeros, sizeof zeros, NULL));
        ((emulator *)b.gpu)->epochs = used;
        if (bench_run(&b, c, false) != CKL_OK)
            fail_msg("after number %u: %s", used, ckl_error());
        b.gpu->ops->close(b.gpu);
    }
}

RUN_TESTS(NULL, NULL)
