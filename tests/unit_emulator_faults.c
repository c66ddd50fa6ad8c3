/* unit_emulator_faults.c - the checker: faults of memory, of control flow and of a kernel's resources. */
#include "unit_emulator_faults.h"

/* Memory */

FAULT(out_of_bounds, 32, 1, "out-of-bounds global access", "lane 16, at",
      "4 bytes at memory+16384: 4 bytes past the end")
{
    val at = test_element(p.memory, tid(), 4);
    BLAMED(test_load_value(IR_GLOBAL, CKL_F32, at, planted ? MEMORY_BYTES - 64 : MEMORY_BYTES - 128));
}

FAULT(out_of_bounds_shared, 32, 1, "out-of-bounds shared access", "lane 31",
      "x+128, offset 128 of the kernel's 128 bytes")
{
    val at = add(tile("x", 128), mul(tid(), 4));
    BLAMED(test_store_value(IR_SHARED, IR_U32, at, planted ? 4 : 0, u32(1)));
}

FAULT(misaligned, 32, 1, "misaligned global access", "lane 0", "memory+4, address 0x")
{
    val at = test_element(p.memory, tid(), 16), x[4];
    for (int i = 0; i < 4; i++)
        x[i] = ir_reg(CKL_F32);
    BLAMED(ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_F32, 4, at, planted ? 4 : 0, x));
}

FAULT(uninitialised_global, 32, 1, "uninitialised global memory", "4 bytes at fresh+0, offset 0 of")
{
    val at = test_element(p.fresh, tid(), 4);
    if (!planted)
        test_store_value(IR_GLOBAL, IR_U32, at, 0, u32(1));
    BLAMED(test_load_value(IR_GLOBAL, IR_U32, at, 0));
}

/* Of each vector that cp_async takes one byte is written: the others are undefined in shared memory. */
FAULT(uninitialised_part, 32, 1, "read of uninitialised shared memory", "x+2 came by cp_async")
{
    val from = test_element(p.fresh, tid(), 16), x = add(tile("x", 512), mul(tid(), 16));
    test_store_value(IR_GLOBAL, CKL_U8, from, 3, ir_int(CKL_U8, 1));
    ir_cp_async(x, 0, from, 16, u32(16));
    finish_cp_async();
    BLAMED(test_load_value(IR_SHARED, CKL_U8, x, planted ? 2 : 3));
}

FAULT(uninitialised_vector, 32, 1, "read of uninitialised global memory", "16 bytes at fresh+0")
{
    val from = test_element(p.fresh, tid(), 16), x = add(tile("x", 512), mul(tid(), 16));
    if (!planted)
        test_store_value(IR_GLOBAL, CKL_U8, from, 15, ir_int(CKL_U8, 1));
    BLAMED(ir_cp_async(x, 0, from, 16, u32(16)));
    finish_cp_async();
}

FAULT(uninitialised_shared, 32, 1, "uninitialised shared memory", "x is read before it was written")
{
    val at = add(tile("x", 128), mul(tid(), 4));
    if (!planted)
        test_store_value(IR_SHARED, IR_U32, at, 0, u32(1));
    BLAMED(test_load_value(IR_SHARED, IR_U32, at, 0));
}

/* Half of a word each: uninitialised in its other half. */
FAULT(uninitialised_half, 32, 1, "uninitialised shared memory", "x+2 is read before")
{
    val at = add(tile("x", 128), mul(tid(), 4));
    test_store_value(IR_SHARED, IR_U16, at, 0, ir_int(IR_U16, 1));
    if (!planted)
        test_store_value(IR_SHARED, IR_U16, at, 2, ir_int(IR_U16, 1));
    BLAMED(test_load_value(IR_SHARED, IR_U32, at, 0));
}

FAULT(race, 64, 1, "shared-memory race", "no barrier orders them", "warp ")
{
    val x = tile("x", 256);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, tid());
    ir_bar_sync(u32(0), 64);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, u32(1));
    if (!planted)
        ir_bar_sync(u32(0), 64);
    BLAMED(test_load_value(IR_SHARED, IR_U32, ir_binary(IR_SUB, add(x, u32(63 * 4)), mul(tid(), 4)), 0));
}

/* Write after several warps' reads. */
FAULT(race_after_reads, 128, 1, "shared-memory race", "no barrier orders them")
{
    val x = tile("x", 4);
    IF(ir_compare(IR_EQ, tid(), u32(0)))
        test_store_value(IR_SHARED, IR_U32, x, 0, u32(1));
    ir_bar_sync(u32(0), 128);
    BLAMED(test_load_value(IR_SHARED, IR_U32, x, 0));
    if (!planted)
        ir_bar_sync(u32(0), 128);
    IF(ir_compare(IR_EQ, tid(), u32(0)))
        test_store_value(IR_SHARED, IR_U32, x, 0, u32(2));
}

/* Of two readers the writer has met only the later one. */
FAULT(race_after_two_readers, 96, 1, "shared-memory race", "warp 0", "warp 1")
{
    val x = tile("x", 4);
    IF(ir_compare(IR_EQ, tid(), u32(0)))
        test_store_value(IR_SHARED, IR_U32, x, 0, u32(1));
    ir_bar_sync(u32(0), 96);
    IF(ir_compare(IR_NE, ir_sreg(IR_WARP), u32(0)))
        test_load_value(IR_SHARED, IR_U32, x, 0);
    if (planted)
        ir_if(ir_compare(IR_NE, ir_sreg(IR_WARP), u32(1)));
    ir_bar_sync(u32(1), planted ? 64 : 96);
    if (planted)
        ir_end_if();
    IF(ir_compare(IR_EQ, tid(), u32(0)))
        BLAMED(test_store_value(IR_SHARED, IR_U32, x, 0, u32(2)));
}

/* Neighbouring halves of words by different warps are no race; the same half is. */
FAULT(race_of_halves, 64, 1, "shared-memory race", "meets the write")
{
    val x = tile("x", 256);
    val lane = mul(ir_sreg(IR_LANE), 4), warp = planted ? u32(0) : mul(ir_sreg(IR_WARP), 2);
    BLAMED(test_store_value(IR_SHARED, IR_U16, add(add(x, lane), warp), 0, ir_int(IR_U16, 1)));
}

/* Control */

FAULT(diverged_barrier, 64, 1, "divergence at a converged instruction", "lane 16", "bar_sync")
{
    IF(ir_compare(IR_LT, ir_sreg(IR_LANE), u32(planted ? 16 : 32)))
        BLAMED(ir_bar_sync(u32(0), 64));
}

FAULT(barrier_counts_differ, 96, 1, "misused barrier", "barrier 1", "96")
{
    IF(is_warp(0))
        ir_bar_sync(u32(1), planted ? 96 : 64);
    ELSE
    {
        IF(is_warp(1))
            ir_bar_arrive(u32(1), 64);
    }
}

/* Two bar_sync that count alike, each of one warp. */
FAULT(barrier_at_two_places, 64, 1, "misused barrier", "others wait by another instruction, at ")
{
    IF(is_warp(0))
        ir_bar_sync(u32(1), 64);
    ELSE
    {
        if (planted)
            ir_bar_sync(u32(1), 64);
        else
            ir_bar_arrive(u32(1), 64);
    }
}

static void over_the_limit(parameters p)
{
    HERE;
    test_store_value(IR_SHARED, IR_U32, tile("x", planted ? SMEM_LIMIT + 1024 : SMEM_LIMIT), 0, u32(0));
}

FAULT(endless_loop, 32, 1, "endless loop", "its budget; CKL_EMULATOR=\"budget=")
{
    val i = ir_reg(IR_U32);
    ir_assign(i, u32(0));
    FOREVER {
        BLAME;
        ir_assign(i, add(i, u32(1)));
        ir_break(ir_compare(planted ? IR_EQ : IR_NE, i, u32(0)));
    }
}

/* A loop that gives up its turn each time it asks for memory that nothing changed. */
FAULT(endless_polls, 32, 1, "endless loop")
{
    val at = test_element(p.memory, tid(), 4), i = ir_reg(IR_U32);
    ir_assign(i, u32(0));
    FOREVER {
        BLAME;
        ir_reduce(IR_SCOPE_GPU, IR_RED_ADD, at, 0, u32(0));
        ir_assign(i, add(i, u32(1)));
        test_store_value(IR_GLOBAL, IR_U32, at, 128, i);
        ir_break(ir_compare(planted ? IR_EQ : IR_NE, i, u32(0)));
    }
}

FAULT(division_by_zero, 32, 1, "division by zero", "lane 0")
{
    BLAMED(ir_binary(IR_DIV, u32(7), planted ? tid() : add(tid(), u32(1))));
}

FAULT(too_many_registers, 384, 1, "deadlock", "232 registers")
{
    IF(ir_compare(IR_LT, ir_sreg(IR_WARP), u32(4))) {
        BLAME;
        ir_plain(IR_SETMAXNREG, 232, 1); // the other 256 threads must give some of their 168
        HERE;
    }
    ELSE
    {
        if (!planted)
            ir_plain(IR_SETMAXNREG, 40, 0);
    }
}

/* 384 threads of 168 registers leave 1024 of an SM, and those do not count: 32 + 2 * 240 are more than 3 * 168. */
FAULT(rest_of_registers, 384, 1, "deadlock", "240 registers")
{
    IF(ir_compare(IR_LT, ir_sreg(IR_WARP), u32(4)))
        ir_plain(IR_SETMAXNREG, planted ? 32 : 24, 0);
    ELSE
    {
        BLAMED(ir_plain(IR_SETMAXNREG, 240, 1));
    }
}

TEST(over_the_limit)
{
    static const fault_case c = { over_the_limit, 32, 1, { "233472", "232448" }, 1, 0 };
    bench b = bench_open("");
    assert_int_equal(bench_run(&b, &c, true), CKL_UNSUPPORTED);
    check_report(&c, "");
    assert_ok(bench_run(&b, &c, false));
    b.gpu->ops->close(b.gpu);
}

/* The device works on after a fault. */
TEST(launch_after_fault)
{
    bench b = bench_open("");
    assert_int_equal(bench_run(&b, &out_of_bounds_case, true), CKL_DEVICE_FAULT);
    assert_ok(bench_run(&b, &out_of_bounds_case, false));
    b.gpu->ops->close(b.gpu);
}

/* Bank conflicts are counted, with the worst line. */
static void conflicting_stores(parameters p)
{
    val x = tile("x", 4 * 32 * 33);
    BLAMED(test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), planted ? 4 * 32 : 4 * 33)), 0, u32(0)));
}

/* Eight rows of 16 bytes at a time. */
static void conflicting_matrices(parameters p)
{
    const val x = tile("x", 32 * 128), zeros[] = { u32(0), u32(0), u32(0), u32(0) };
    BLAMED(ir_stmatrix(4, false, add(x, mul(tid(), planted ? 128 : 16)), 0, zeros));
}

TEST(bank_conflicts)
{
    static const fault_case all[] = { { conflicting_stores, 32, 1, { NULL }, 1, 0 },
                                      { conflicting_matrices, 32, 1, { NULL }, 1, 0 } };
    static const int conflicts[] = { 31, 4 * 7 };
    for (int i = 0; i < COUNT_OF(all); i++) {
        char where[96], line[64];
        bench b = bench_open("");
        assert_ok(bench_run(&b, &all[i], false));
        assert_int_equal(test_counter(b.gpu, "bank conflicts", where), 0);
        assert_string_equal(where, ""); // nowhere
        assert_ok(bench_run(&b, &all[i], true));
        assert_int_equal(test_counter(b.gpu, "bank conflicts", where), conflicts[i]);
        snprintf(line, sizeof line, "%s:%d", BLAMED_FILE, blamed);
        assert_says(where, line);
        b.gpu->ops->close(b.gpu);
    }
}

/* Reads of what another warp writes later: that is what the report says, not that nobody writes it. */

static int written_at; // line

static void read_before_store(parameters p)
{
    val x = tile("x", 128), at = add(x, mul(ir_sreg(IR_LANE), 4));
    IF(is_warp(0)) {
        BLAMED(test_load_value(IR_SHARED, IR_U32, at, 0));
    }
    ELSE
    {
        written_at = __LINE__ + 1;
        HERE, test_store_value(IR_SHARED, IR_U32, at, 0, u32(1));
    }
}

/* After some rounds in which every warp has its turn. */
static void read_long_before_store(parameters p)
{
    val x = tile("x", 128), at = add(x, mul(ir_sreg(IR_LANE), 4));
    IF(is_warp(0)) {
        BLAMED(test_load_value(IR_SHARED, IR_U32, at, 0));
    }
    ELSE
    {
        HERE;
        val turn = ir_reg(IR_U32);
        ir_assign(turn, u32(0));
        FOREVER {
            ir_break(ir_compare(IR_EQ, turn, u32(2000)));
            ir_assign(turn, add(turn, u32(1)));
        }
        written_at = __LINE__ + 1;
        HERE, test_store_value(IR_SHARED, IR_U32, at, 0, u32(1));
    }
}

static void begin_barrier(val bar)
{
    IF(ir_elect())
        init_barrier(bar);
}

static void read_before_copy(parameters p)
{
    val x = tile("x", 128), bar = barrier("bar");
    IF(is_warp(0)) {
        BLAMED(test_load_value(IR_SHARED, IR_U32, add(x, mul(ir_sreg(IR_LANE), 4)), 0));
    }
    ELSE
    {
        begin_barrier(bar);
        IF(ir_elect()) {
            ir_mbarrier_expect(bar, 0, u32(128));
            written_at = __LINE__ + 1;
            HERE, ir_bulk_load(x, 0, p.memory, u32(128), bar);
        }
        ir_mbarrier_wait(bar, 0, u32(0));
    }
}

static void wait_before_init(parameters p)
{
    val bar = barrier("bar");
    IF(is_warp(0)) {
        BLAMED(ir_mbarrier_wait(bar, 0, u32(0)));
    }
    ELSE
    {
        IF(ir_elect()) {
            written_at = __LINE__ + 1;
            HERE, ir_mbarrier_init(bar, 0, 1);
        }
    }
}

TEST(written_later)
{
    static const struct {
        void (*describe)(parameters p);
        const char *what, *writer, *missing;
    } all[] = {
        { read_before_store, "x is read before it was written; warp 1", "warp 1 writes it later", "a barrier between" },
        { read_long_before_store, "x is read before it was written; warp 1", "warp 1 writes it later", "a barrier" },
        { read_before_copy, "x is read before it was written; the async copy on bar", "writes it later",
          "the wait for" },
        { wait_before_init, "there is no mbarrier at bar; warp 1", "warp 1 writes it later", "a barrier between them" },
    };
    for (int i = 0; i < COUNT_OF(all); i++) {
        bench b = bench_open("budget=100000");
        const fault_case c = { all[i].describe, 64, 1, { all[i].what, all[i].writer, all[i].missing }, 1, 0 };
        char line[64];
        assert_int_equal(bench_run(&b, &c, true), CKL_DEVICE_FAULT);
        check_report(&c, "rounds");
        snprintf(line, sizeof line, "/%s:%d: ", BLAMED_FILE, written_at);
        assert_says(ckl_error(), line);
        b.gpu->ops->close(b.gpu);
    }
}

enum { CTAS = 64 }; // more than threads that run them: one comes after another in the same memory

static val is_last_cta(void)
{
    return ir_compare(IR_EQ, ir_sreg(IR_CTA_X), u32(CTAS - 1));
}

/* All CTAs but the last write what they read. */
static void unwritten_in_last(parameters p)
{
    val at = add(tile("x", 4096), mul(tid(), 128));
    IF(is_last_cta()) {
    }
    ELSE test_store_value(IR_SHARED, IR_U32, at, 0, u32(1));
    test_load_value(IR_SHARED, IR_U32, at, 0);
}

/* In the last one no barrier lies between the second write and a read. */
static void race_in_last(parameters p)
{
    val x = tile("x", 256);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, tid());
    ir_bar_sync(u32(0), 64);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, u32(1));
    IF(is_last_cta()) {
    }
    ELSE ir_bar_sync(u32(0), 64);
    test_load_value(IR_SHARED, IR_U32, ir_binary(IR_SUB, add(x, u32(63 * 4)), mul(tid(), 4)), 0);
}

/* A CTA finds nothing of the one before it: neither its shared memory nor what its warps knew of each other. */
TEST(later_cta)
{
    const fault_case last[] = {
        { unwritten_in_last, 32, 1, { "x is read before it was written" }, CTAS, 0 },
        { race_in_last, 64, 1, { "shared-memory race", "no barrier orders them" }, CTAS, 0 },
    };
    for (int i = 0; i < COUNT_OF(last); i++) {
        bench b = bench_open("");
        assert_int_equal(bench_run(&b, &last[i], true), CKL_DEVICE_FAULT);
        check_report(&last[i], "");
        b.gpu->ops->close(b.gpu);
    }
}

RUN_TESTS(NULL, NULL)
