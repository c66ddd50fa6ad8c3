/*
 * unit_flow.c - what the verifier knows of registers along the control flow: after both sides of an IF, after loops and behind an
 * exit, and which of them belong to the tensor core. Wrong kernels with right twins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "ir/build.h"
#include "twins.h"

static val u32(int64_t i)
{
    return ir_int(IR_U32, i);
}

/* A predicate that nothing is known of, the same for all threads. */
static val unknown(const char *name)
{
    return ir_compare(IR_EQ, ir_scalar_param(IR_U32, name), u32(0));
}

static void read(val x)
{
    ir_binary(IR_ADD, x, ir_scalar_param(IR_U32, "n"));
}

/* Written before reads */

static void second_side_alone(bool right)
{
    val x = ir_reg(IR_U32);
    ir_if(unknown("p"));
    if (right)
        ir_assign(x, u32(1));
    ir_else();
    ir_assign(x, u32(2));
    ir_end_if();
    read(x);
}

/* The second side starts where the first one did. */
static void from_the_first_side(bool right)
{
    val x = ir_reg(IR_U32);
    if (right)
        ir_assign(x, u32(1));
    ir_if(unknown("p"));
    ir_assign(x, u32(1));
    ir_else();
    read(x);
    ir_end_if();
}

static void side_that_exits(bool right)
{
    val x = ir_reg(IR_U32);
    ir_if(unknown("p"));
    if (right)
        ir_plain(IR_EXIT, 0, 0);
    ir_else();
    ir_assign(x, u32(1));
    ir_end_if();
    read(x);
}

static void side_that_traps(bool right)
{
    val x = ir_reg(IR_U32);
    ir_if(unknown("p"));
    ir_assign(x, u32(1));
    ir_else();
    if (right)
        ir_plain(IR_TRAP, 0, 0);
    ir_end_if();
    read(x);
}

static void guard_of_another(bool right)
{
    val x = ir_reg(IR_U32), p = unknown("p"), q = unknown("q");
    ir_if(p);
    ir_assign(x, u32(1));
    ir_end_if();
    ir_if(right ? p : q);
    read(x);
    ir_end_if();
}

/* What p guards is known under p alone, not after it. */
static void guard_left(bool right)
{
    val x = ir_reg(IR_U32), p = unknown("p");
    for (int i = 0; i < 2; i++) {
        ir_if(p);
        if (i == 0)
            ir_assign(x, u32(1));
        if (i == 1 && right)
            read(x);
        ir_end_if();
    }
    if (!right)
        read(x);
}

/* The side of an ELSE is no guard. */
static void guard_by_else(bool right)
{
    val x = ir_reg(IR_U32), p = unknown("p");
    ir_if(p);
    if (right)
        ir_assign(x, u32(2));
    ir_else();
    ir_assign(x, u32(1));
    ir_end_if();
    ir_if(p);
    read(x);
    ir_end_if();
}

/* Both ways out of the loop count. */
static void two_breaks(bool right)
{
    val x = ir_reg(IR_U32), p = unknown("p"), q = unknown("q");
    if (right)
        ir_assign(x, u32(0));
    ir_loop();
    ir_break(p);
    ir_assign(x, u32(1));
    ir_break(q);
    ir_end_loop();
    read(x);
}

static void break_of_inner_loop(bool right)
{
    val x = ir_reg(IR_U32), p = unknown("p");
    ir_loop();
    ir_loop();
    if (right)
        ir_assign(x, u32(1));
    ir_break(p);
    ir_end_loop();
    ir_break(p);
    ir_end_loop();
    read(x);
}

/* Within an iteration nothing is known that only the one before has written. */
static void next_iteration(bool right)
{
    val x = ir_reg(IR_U32), p = unknown("p");
    if (right)
        ir_assign(x, u32(1));
    ir_loop();
    ir_break(p);
    read(x);
    ir_assign(x, u32(2));
    ir_end_loop();
}

/* Registers of the tensor core */

enum { N = 16, ACCUMULATORS = N / 2 };

static void clear_accumulators(val d[ACCUMULATORS])
{
    for (int i = 0; i < ACCUMULATORS; i++)
        ir_assign(d[i] = ir_reg(CKL_F32), ir_float(CKL_F32, 0));
}

static void multiply(val *d, bool adds)
{
    val desc = ir_int(IR_U64, 0);
    ir_wgmma(CKL_F16, N, d, desc, desc, ir_int(IR_PRED, adds), false, false);
}

/* One group: a fence, a wgmma and its commit. */
static void group(val *d)
{
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, true);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
}

static void wait(int groups)
{
    ir_plain(IR_WGMMA_WAIT, groups, 0);
}

static void use(const val *d)
{
    ir_binary(IR_ADD, d[ACCUMULATORS - 1], d[ACCUMULATORS - 1]);
}

/* A wait for all but one retires the older of two groups. */
static void older_group(bool right)
{
    val first[ACCUMULATORS], second[ACCUMULATORS];
    clear_accumulators(first);
    clear_accumulators(second);
    group(first);
    group(second);
    wait(1);
    use(right ? first : second);
}

static void third_group(bool right)
{
    val d[3][ACCUMULATORS];
    for (int i = 0; i < 3; i++)
        clear_accumulators(d[i]);
    for (int i = 0; i < 3; i++)
        group(d[i]);
    wait(2);
    use(d[right ? 0 : 1]);
}

/* A group that is not committed is not waited for. */
static void no_commit(bool right)
{
    val d[ACCUMULATORS];
    clear_accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, true);
    if (right)
        ir_plain(IR_WGMMA_COMMIT, 0, 0);
    wait(0);
    use(d);
}

/* In flight on one side is in flight after both. */
static void in_flight_on_one_side(bool right)
{
    val d[ACCUMULATORS];
    clear_accumulators(d);
    ir_if(unknown("p"));
    group(d);
    if (right)
        wait(0);
    ir_end_if();
    use(d);
}

/* The younger of two groups counts where two paths meet. */
static void younger_after_both(bool right)
{
    val d[ACCUMULATORS], other[ACCUMULATORS];
    clear_accumulators(d);
    clear_accumulators(other);
    group(d);
    ir_if(unknown("p"));
    group(other);
    ir_end_if();
    wait(right ? 0 : 1);
    use(d);
}

static void written_in_flight(bool right)
{
    val d[ACCUMULATORS];
    clear_accumulators(d);
    group(d);
    if (right)
        wait(0);
    ir_assign(d[0], ir_float(CKL_F32, 1));
}

/* Used on one side, so both need the fence. */
static void used_on_one_side(bool right)
{
    val d[ACCUMULATORS];
    clear_accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    ir_if(unknown("p"));
    use(d);
    ir_end_if();
    if (right)
        ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, true);
}

/* What the product replaces need not be there before. */
static void old_sums(bool right)
{
    val d[ACCUMULATORS];
    for (int i = 0; i < ACCUMULATORS; i++)
        d[i] = ir_reg(CKL_F32);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, !right);
}

/* The registers of A may be those of the next one, too, but not its accumulators. */
static void a_as_accumulator(bool right)
{
    val d[ACCUMULATORS], e[ACCUMULATORS], a[4], desc = ir_int(IR_U64, 0);
    clear_accumulators(d);
    clear_accumulators(e);
    for (int i = 0; i < 4; i++)
        ir_assign(a[i] = ir_reg(IR_U32), u32(i));
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    ir_wgmma_rs(CKL_F16, N, d, a, desc, ir_int(IR_PRED, 1), false);
    ir_wgmma_rs(CKL_F16, N, e, a, desc, ir_int(IR_PRED, 1), false);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    if (right)
        wait(0);
    ir_bitcast(CKL_F32, a[3]);
}

/* Fewer accumulators of the same registers are others. */
static void fewer_accumulators(bool right)
{
    val d[ACCUMULATORS], desc = ir_int(IR_U64, 0);
    clear_accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, true);
    ir_wgmma(CKL_F16, right ? N : N / 2, d, desc, desc, ir_int(IR_PRED, 1), false, false);
}

static const twin twins[] = {
    { "second_side_alone", second_side_alone, "inside the else of line 7, is read after it" },
    { "from_the_first_side", from_the_first_side, "inside the if of line 7, is read after it" },
    { "side_that_exits", side_that_exits, "inside the else of line 7, is read after it" },
    { "side_that_traps", side_that_traps, "inside the if of line 7, is read after it" },
    { "guard_of_another", guard_of_another, "inside the if of line 7, is read after it" },
    { "guard_left", guard_left, "inside the if of line 7, is read after it" },
    { "guard_by_else", guard_by_else, "inside the else of line 7, is read after it" },
    { "two_breaks", two_breaks, "inside the loop of line 7, is read after it" },
    { "break_of_inner_loop", break_of_inner_loop, "is read before it is written" },
    { "next_iteration", next_iteration, "register 0 of type u32 is read before it is written" },
    { "older_group", older_group, "belongs to the wgmma of line 7 until a wgmma_wait" },
    { "third_group", third_group, "belongs to the wgmma of line 7 until a wgmma_wait" },
    { "no_commit", no_commit, "belongs to the wgmma of line 7 until a wgmma_wait" },
    { "in_flight_on_one_side", in_flight_on_one_side, "belongs to the wgmma of line 7 until a wgmma_wait" },
    { "younger_after_both", younger_after_both, "belongs to the wgmma of line 7 until a wgmma_wait" },
    { "written_in_flight", written_in_flight, "belongs to the wgmma of line 7 until a wgmma_wait" },
    { "used_on_one_side", used_on_one_side, "was used after the last wgmma_fence" },
    { "old_sums", old_sums, "is read before it is written" },
    { "a_as_accumulator", a_as_accumulator, "belongs to the wgmma_rs of line 7 until a wgmma_wait" },
    { "fewer_accumulators", fewer_accumulators, "belongs to the wgmma of line 7 until a wgmma_wait" },
};

static void test_flow(void **state)
{
    (void)state;
    twins_check(twins, COUNT_OF(twins));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_flow) };
    return cmocka_run_group_tests_name("flow", tests, NULL, NULL);
}
