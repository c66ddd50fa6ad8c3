/* unit_emulator_waiting.c - the checker: CTAs that wait for each other, and for nobody. */
#include "unit_emulator_global.h"

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

/* The last CTA gathers what all have written, by a counter that releases and acquires. */
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

enum { HANDOVERS = 8000 }; // more than two CTAs may poll to no avail

/* Two CTAs hand a counter to each other, by atomics alone. */
static void ping_pong(parameters p)
{
    val turn = ir_reg(IR_U32);
    IF(ir_elect()) {
        HERE;
        ir_assign(turn, cta());
        FOREVER {
            ir_break(ir_compare(IR_GE, turn, u32(HANDOVERS)));
            wait_for(IR_ORDER_ACQUIRE, at_offset(p.memory, COUNTER), turn);
            ir_atomic(IR_ORDER_RELEASE, IR_SCOPE_GPU, IR_RED_ADD, p.memory, COUNTER, u32(1));
            ir_assign(turn, add(turn, u32(2)));
        }
    }
}

TEST(ping_pong)
{
    static const fault_case c = { ping_pong, 32, 1, { NULL }, 2, 0 };
    bench b = runs("", &c);
    b.gpu->ops->close(b.gpu);
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
            assert_says(ckl_error(), "and 1 have not started: the device holds 1 at once");
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
        assert_says(ckl_error(), plant ? "CTA (2,0,0)" : "CTA (0,0,0)");
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

RUN_TESTS(NULL, NULL)
