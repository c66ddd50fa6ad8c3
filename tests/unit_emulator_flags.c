/* unit_emulator_flags.c - the checker: flags in global memory by which one CTA tells another what it has written. */
#include "unit_emulator_global.h"

/* How CTA 1 says that it has written a value, and CTA 0 learns of it. */
typedef struct passing {
    ir_order store, load;
    bool fenced, late; // a fence before the flag; the value is written behind it
    ir_scope fence;
} passing;

/* CTA 0 waits, so that it always starts too early. */
static void pass_flag(parameters p, passing by)
{
    val flag = at_offset(p.memory, FLAG);
    IF(ir_elect()) {
        IF(is_cta(0)) {
            wait_for(by.load, flag, u32(1));
            BLAMED(test_load_value(IR_GLOBAL, IR_U32, p.memory, 0));
        }
        IF(is_cta(1)) {
            HERE;
            if (!by.late)
                test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, u32(7));
            if (by.fenced)
                ir_fence(by.fence);
            store_flag(by.store, flag, u32(1));
            if (by.late)
                test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, u32(7));
        }
    }
}

/* A release is of what came before it. Either access may be the later one. */
GRID_FAULT(written_after_release, 32, 1, 2, 0, "global-memory race", "of memory+0 meets the ")
{
    pass_flag(p, (passing){ .store = IR_ORDER_RELEASE, .load = IR_ORDER_ACQUIRE, .late = planted });
    blamed = 0;
}

/* A fence of the CTA alone publishes nothing to the other one. */
GRID_FAULT(fence_too_narrow, 32, 1, 2, 0, "global-memory race", "of memory+0 meets the write by warp 0 of CTA (1")
{
    pass_flag(p, (passing){ .store = IR_ORDER_RELAXED,
                            .load = IR_ORDER_ACQUIRE,
                            .fenced = true,
                            .fence = planted ? IR_SCOPE_CTA : IR_SCOPE_GPU });
}

GRID_FAULT(relaxed_flag, 32, 1, 2, 0, "global-memory race", "read of memory+0 meets the write by warp 0 of CTA (1")
{
    pass_flag(p, (passing){ .store = planted ? IR_ORDER_RELAXED : IR_ORDER_RELEASE, .load = IR_ORDER_ACQUIRE });
}

GRID_FAULT(polled_without_acquire, 32, 1, 2, 0, "global-memory race", "read, but not acquired")
{
    pass_flag(p, (passing){ .store = IR_ORDER_RELEASE, .load = planted ? IR_ORDER_RELAXED : IR_ORDER_ACQUIRE });
}

GRID_FAULT(ordinary_flag, 32, 1, 2, 0, "global-memory race", "memory+8192", "both must be strong")
{
    pass_flag(p, (passing){ .store = planted ? IR_ORDER_DEFAULT : IR_ORDER_RELEASE, .load = IR_ORDER_ACQUIRE });
    blamed = planted ? 0 : blamed; // the poll or the store, whichever comes later
}

GRID_FAULT(polled_by_ordinary_loads, 32, 1, 2, 0, "global-memory race", "memory+8192", "both must be strong")
{
    pass_flag(p, (passing){ .store = IR_ORDER_RELEASE, .load = planted ? IR_ORDER_DEFAULT : IR_ORDER_ACQUIRE });
    blamed = planted ? 0 : blamed;
}

/* For warps of one CTA a fence of the CTA does; planted, there is none. */
GRID_FAULT(flag_within_a_cta, 64, 1, 1, 0, "global-memory race", "of memory+0 meets the write by warp 0")
{
    val flag = at_offset(p.memory, FLAG);
    only_thread(0);
    test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, u32(7));
    if (!planted)
        ir_fence(IR_SCOPE_CTA);
    store_flag(IR_ORDER_RELAXED, flag, u32(1));
    ir_end_if();
    only_thread(32);
    wait_for(IR_ORDER_ACQUIRE, flag, u32(1));
    BLAMED(test_load_value(IR_GLOBAL, IR_U32, p.memory, 0));
    ir_end_if();
}

/* CTA 0 writes and sets the flag, CTA 1 polls, each in a scope of its own. */
static void pass_in_scopes(parameters p, ir_scope release, ir_scope acquire)
{
    val flag = at_offset(p.memory, FLAG);
    IF(ir_elect()) {
        IF(is_cta(0)) {
            test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, u32(7));
            ir_store_strong(IR_ORDER_RELEASE, release, IR_U32, flag, 0, u32(1));
        }
        ELSE
        {
            HERE;
            FOREVER {
                val seen = ir_load_strong(IR_ORDER_ACQUIRE, acquire, IR_U32, flag, 0);
                ir_break(ir_compare(IR_EQ, seen, u32(1)));
            }
            test_load_value(IR_GLOBAL, IR_U32, p.memory, 0);
        }
    }
}

/* An acquire of CTA scope does not include the other CTA. */
GRID_FAULT_CALL(polled_too_near, pass_in_scopes(p, IR_SCOPE_SYS, planted ? IR_SCOPE_CTA : IR_SCOPE_SYS), 32, 1, 2, 0,
                "global-memory race", "memory+8192", "by warp 0 of CTA")

/* A release of cluster scope orders the other CTA of the cluster, one of CTA scope does not. */
GRID_FAULT_CALL(flag_of_a_cluster, pass_in_scopes(p, planted ? IR_SCOPE_CTA : IR_SCOPE_CLUSTER, IR_SCOPE_CLUSTER), 32,
                2, 2, 0, "global-memory race", "by warp 0 of CTA")

/* The flag goes through a third CTA, which takes what it knows along. */
GRID_FAULT(passed_on, 32, 1, 3, 0, "global-memory race", "warp 0 of CTA (2,0,0)")
{
    val flag = at_offset(p.memory, FLAG), next = at_offset(p.memory, FLAG + 4);
    IF(ir_elect()) {
        IF(is_cta(0)) {
            wait_for(IR_ORDER_ACQUIRE, next, u32(1));
            BLAMED(test_load_value(IR_GLOBAL, IR_U32, p.memory, 0));
        }
        IF(is_cta(1)) {
            wait_for(planted ? IR_ORDER_RELAXED : IR_ORDER_ACQUIRE, flag, u32(1));
            store_flag(IR_ORDER_RELEASE, next, u32(1));
        }
        IF(is_cta(2)) {
            test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, u32(7));
            store_flag(IR_ORDER_RELEASE, flag, u32(1));
        }
    }
}

/* A third CTA overwrites the flag before it is read: an atomic passes on what was published there, a store does not. */
GRID_FAULT(overwritten, 32, 1, 3, 0, "global-memory race", "warp 0 of CTA (2,0,0)")
{
    val flag = at_offset(p.memory, FLAG), next = at_offset(p.memory, FLAG + 4);
    IF(ir_elect()) {
        IF(is_cta(0)) {
            wait_for(IR_ORDER_RELAXED, next, u32(1));
            load_flag(IR_ORDER_ACQUIRE, flag);
            BLAMED(test_load_value(IR_GLOBAL, IR_U32, p.memory, 0));
        }
        IF(is_cta(1)) {
            wait_for(IR_ORDER_RELAXED, flag, u32(1));
            if (planted)
                store_flag(IR_ORDER_RELAXED, flag, u32(2));
            else
                ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, flag, 0, u32(1));
            store_flag(IR_ORDER_RELAXED, next, u32(1));
        }
        IF(is_cta(2)) {
            test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, u32(7));
            store_flag(IR_ORDER_RELEASE, flag, u32(1));
        }
    }
}

/* A reduction tells nobody what it found: a fence behind it acquires nothing. */
GRID_FAULT(found_by_a_reduction, 32, 1, 2, 0, "global-memory race", "of memory+0 meets the write by warp 0 of CTA (1")
{
    val flag = at_offset(p.memory, FLAG), next = at_offset(p.memory, COUNTER);
    IF(ir_elect()) {
        IF(is_cta(0)) {
            wait_for(IR_ORDER_RELAXED, next, u32(1));
            if (planted)
                ir_reduce(IR_SCOPE_GPU, IR_RED_ADD, flag, 0, u32(1));
            else
                ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, flag, 0, u32(1));
            ir_fence(IR_SCOPE_GPU);
            BLAMED(test_load_value(IR_GLOBAL, IR_U32, p.memory, 0));
        }
        IF(is_cta(1)) {
            test_store_value(IR_GLOBAL, IR_U32, p.memory, 0, u32(7));
            store_flag(IR_ORDER_RELEASE, flag, u32(1));
            store_flag(IR_ORDER_RELAXED, next, u32(1));
        }
    }
}

RUN_TESTS(NULL, NULL)
