/* unit_emulator_global.c - the checker: order in global memory. */
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
            ir_tma_store(IR_TMA_WRITE, p.map, x, 0, 2, origin);
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
            BLAMED(ir_tma_store(IR_TMA_WRITE_SAME, p.map, x, 0, 2, origin));
        ELSE
        {
            BLAME; // or the other one's
            if (planted)
                ir_tma_store(IR_TMA_WRITE, p.map, x, 0, 2, origin);
            else
                ir_tma_store(IR_TMA_WRITE_SAME, p.map, x, 0, 2, origin);
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
        BLAMED(ir_tma_store(IR_TMA_WRITE_SAME, p.map, x, 0, 2, origin));
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

/*
 * Words that CTA 0 and one other each have read. The last CTA writes them, from the last reader down, once it knows of
 * the two; planted, one says nothing. What is known of one pair of readers must not be taken for what is known of
 * another.
 */
enum { PAIRS = 100, SILENT = 7 };

GRID_FAULT(read_by_pairs, 32, 1, PAIRS + 1, 0, "global-memory race",
           "write of memory+28 meets the read by warp 0 of CTA (7,0,0)")
{
    val flag = at_offset(p.memory, FLAG), turn = at_offset(p.memory, COUNTER), done = at_offset(p.memory, COUNTER + 4);
    val is_reader = ir_compare(IR_LT, cta(), u32(PAIRS)), left = ir_reg(IR_U32);
    IF(ir_elect()) {
        IF(is_cta(0)) {
            for (int i = 1; i < PAIRS; i++)
                load_flag(IR_ORDER_DEFAULT, at_offset(p.memory, 4 * i));
            store_flag(IR_ORDER_RELEASE, flag, u32(1));
        }
        IF(ir_binary(IR_AND, is_reader, ir_compare(IR_NE, cta(), u32(0)))) {
            wait_for(IR_ORDER_RELAXED, flag, u32(1));
            load_flag(IR_ORDER_DEFAULT, test_element(p.memory, cta(), 4));
            wait_for(IR_ORDER_RELAXED, turn, cta());
            IF(ir_compare(IR_NE, cta(), u32(planted ? SILENT : 0)))
                ir_fence(IR_SCOPE_GPU);
            store_flag(IR_ORDER_RELAXED, done, cta());
        }
        IF(is_cta(PAIRS)) {
            wait_for(IR_ORDER_ACQUIRE, flag, u32(1));
            ir_assign(left, u32(PAIRS - 1));
            FOREVER {
                ir_break(ir_compare(IR_EQ, left, u32(0)));
                store_flag(IR_ORDER_RELAXED, turn, left);
                wait_for(IR_ORDER_ACQUIRE, done, left);
                BLAMED(store_flag(IR_ORDER_DEFAULT, test_element(p.memory, left, 4), u32(1)));
                ir_assign(left, ir_binary(IR_SUB, left, u32(1)));
            }
        }
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
