/*
 * unit_emulator_lanes.c - the checker: the arrival of a lane passes on what that lane did, and what the warp did before
 * it met.
 */
#include "unit_emulator_faults.h"

enum { WARPS = 2, THREADS = 32 * WARPS };

/* A word of shared memory for each lane, and mbarriers of so many arrivals. */
typedef struct shared_words {
    val words, first, second;
} shared_words;

static shared_words prepare(int arrivals)
{
    const shared_words s = { .words = tile("words", 128), .first = barrier("first"), .second = barrier("second") };
    IF(ir_compare(IR_EQ, tid(), u32(0))) {
        ir_mbarrier_init(s.first, 0, arrivals);
        ir_mbarrier_init(s.second, 0, 1);
    }
    IF(is_warp(0))
        ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, add(s.words, mul(ir_sreg(IR_LANE), 4)), 0, (val[]){ u32(0) });
    ir_bar_sync(u32(0), THREADS);
    return s;
}

static val own_word(const shared_words *s)
{
    return add(s->words, mul(ir_sreg(IR_LANE), 4));
}

static void only_lane(int i)
{
    ir_if(ir_compare(IR_EQ, ir_sreg(IR_LANE), u32(i)));
}

static void lane_arrives(int i, val barrier)
{
    only_lane(i);
    ir_mbarrier_arrive(IR_SHARED, barrier, 0);
    ir_end_if();
}

/* The other warp waits and uses the words. */
static void other_warp(const shared_words *s, val barrier, bool writes)
{
    ir_end_if();
    IF(is_warp(1)) {
        ir_mbarrier_wait(barrier, 0, u32(0));
        BLAME;
        if (writes)
            test_store_value(IR_SHARED, IR_U32, own_word(s), 0, u32(2));
        else
            test_load_value(IR_SHARED, IR_U32, own_word(s), 0);
        HERE;
    }
}

/* Ways for the lanes of a warp to meet. */
static void meet_by_warp_sync(void)
{
    ir_plain(IR_WARP_SYNC, 0, 0);
}

static void meet_by_barrier(void)
{
    ir_bar_sync(u32(1), 32);
}

static void all_write(void (*meet)(void))
{
    const shared_words s = prepare(1);
    ir_if(is_warp(0));
    test_store_value(IR_SHARED, IR_U32, own_word(&s), 0, u32(1));
    if (!planted)
        meet();
    lane_arrives(0, s.first);
    other_warp(&s, s.first, false);
}

FAULT_CALL(all_write_and_sync, all_write(meet_by_warp_sync), THREADS, 1, "shared-memory race",
           "write by lane 1 of warp 0", "a warp_sync")
FAULT_CALL(all_write_and_meet, all_write(meet_by_barrier), THREADS, 1, "shared-memory race",
           "write by lane 1 of warp 0", "a warp_sync")

FAULT(all_read, THREADS, 1, "shared-memory race", "write of words meets the read by lane 1", "a warp_sync")
{
    const shared_words s = prepare(1);
    ir_if(is_warp(0));
    test_load_value(IR_SHARED, IR_U32, own_word(&s), 0);
    if (!planted)
        meet_by_warp_sync();
    lane_arrives(0, s.first);
    other_warp(&s, s.first, true);
}

/* Of several warps that have read, each is looked at. */
FAULT(both_read, THREADS, 1, "shared-memory race", "the read by lane 1 of warp 0", "a warp_sync")
{
    const shared_words s = prepare(1);
    test_load_value(IR_SHARED, IR_U32, own_word(&s), 0);
    ir_if(is_warp(0));
    if (!planted)
        meet_by_warp_sync();
    lane_arrives(0, s.first);
    other_warp(&s, s.first, true);
}

/* What comes after the lanes have met is a lane's own again. */
FAULT(writes_after_meeting, THREADS, 1, "shared-memory race", "write by lane 1 of warp 0")
{
    const shared_words s = prepare(1);
    ir_if(is_warp(0));
    if (planted)
        meet_by_warp_sync();
    test_store_value(IR_SHARED, IR_U32, own_word(&s), 0, u32(1));
    if (!planted)
        meet_by_warp_sync();
    lane_arrives(0, s.first);
    other_warp(&s, s.first, false);
}

/* Each lane arrives for itself; planted, the last one does not. */
FAULT(each_arrives, THREADS, 1, "shared-memory race", "write by lane 31 of warp 0")
{
    const shared_words s = prepare(planted ? 31 : 32);
    ir_if(is_warp(0));
    test_store_value(IR_SHARED, IR_U32, own_word(&s), 0, u32(1));
    IF(ir_compare(IR_LT, ir_sreg(IR_LANE), u32(planted ? 31 : 32)))
        ir_mbarrier_arrive(IR_SHARED, s.first, 0);
    other_warp(&s, s.first, false);
}

/* A lane hears of another one's arrival and passes it on; planted, it does not wait. */
FAULT(heard_of_a_lane, THREADS, 1, "shared-memory race", "write by lane 5 of warp 0")
{
    const shared_words s = prepare(1);
    IF(is_warp(0)) {
        only_lane(5);
        test_store_value(IR_SHARED, IR_U32, own_word(&s), 0, u32(1));
    }
    lane_arrives(5, s.first);
    only_lane(0);
    if (!planted)
        ir_mbarrier_wait(s.first, 0, u32(0));
    ir_mbarrier_arrive(IR_SHARED, s.second, 0);
    ir_end_if();
    other_warp(&s, s.second, false);
}

/* What the warp has heard of a lane is of the past once its lanes have met; planted, they do not meet again. */
FAULT(heard_before_they_met, THREADS, 1, "shared-memory race", "write by lane 5 of warp 0")
{
    const shared_words s = prepare(1);
    IF(is_warp(0)) {
        lane_arrives(5, s.first);
        ir_mbarrier_wait(s.first, 0, u32(0));
        meet_by_warp_sync();
        only_lane(5);
        test_store_value(IR_SHARED, IR_U32, own_word(&s), 0, u32(1));
    }
    if (!planted)
        meet_by_warp_sync();
    lane_arrives(0, s.second);
    other_warp(&s, s.second, false);
}

/* Of words that were written side by side lane 3 hands over its own alone; planted, that of lane 0 is read. */
static void hands_over_one(bool after_one)
{
    const shared_words s = prepare(1);
    ir_if(is_warp(0));
    if (after_one) { // the words were known one by one
        only_lane(0);
        test_store_value(IR_SHARED, IR_U32, own_word(&s), 0, u32(1));
        ir_end_if();
    }
    test_store_value(IR_SHARED, IR_U32, own_word(&s), 0, u32(1));
    lane_arrives(3, s.first);
    ir_end_if();
    IF(is_warp(1)) {
        only_lane(0);
        ir_mbarrier_wait(s.first, 0, u32(0));
        BLAMED(test_load_value(IR_SHARED, IR_U32, s.words, planted ? 0 : 12));
    }
    ir_end_if();
}

FAULT_CALL(hands_over_one_of_many, hands_over_one(false), THREADS, 1, "shared-memory race",
           "read of words meets the write by lane 0 of warp 0")
FAULT_CALL(hands_over_one_of_a_joined_cell, hands_over_one(true), THREADS, 1, "shared-memory race",
           "read of words meets the write by lane 0 of warp 0")

enum { CTAS = 64 }; // more than threads that run them: one comes after another in the same memory

static void meet_but_in_last(void)
{
    IF(ir_compare(IR_NE, ir_sreg(IR_CTA_X), u32(CTAS - 1)))
        meet_by_warp_sync();
}

static void all_write_in_last(parameters p)
{
    all_write(meet_but_in_last);
}

/* A CTA's warps do not know of each other's lanes what those of the CTA before it knew. */
TEST(later_cta)
{
    static const fault_case c = {
        all_write_in_last, THREADS, 1, { "shared-memory race", "CTA (63,0,0)", "write by lane 1 of warp 0" }, CTAS, 0
    };
    bench b = bench_open("");
    assert_int_equal(bench_run(&b, &c, false), CKL_DEVICE_FAULT);
    check_report(&c, "");
    b.gpu->ops->close(b.gpu);
}

RUN_TESTS(NULL, NULL)
