/* unit_verify_flow.c - each rule of the verifier along the control flow: registers, wgmma's registers, convergence. */
#include "unit_verify.h"

#define IN_FLIGHT "belongs to the wgmma of line 7 until a wgmma_wait"
#define FENCED    "was used after the last wgmma_fence"
#define LANES     "wants a converged warp, but its lanes diverge at the if of line 7"
#define THREADS   "wants a converged warpgroup, but its threads diverge at the if of line 7"

/* Registers: what two paths agree on */

/* Written under p on one way and under q on the other: after it neither p nor q tells. */
RULE(guards_of_two_ways, "is read before it is written")
{
    val x = ir_reg(IR_U32), p = p_of(0), q = p_of(1);
    IF(p_of(2)) {
        IF(p)
            ir_assign(x, u32(1));
    }
    ELSE
    {
        IF(right ? p : q)
            ir_assign(x, u32(2));
    }
    IF(p)
        ir_binary(IR_ADD, x, x);
}

/* What the ELSE of p has written is not there in a later IF p. */
RULE(guard_of_else, "is read after it: it needs a value on every path")
{
    val x = ir_reg(IR_U32), p = p_of(0);
    ir_if(p);
    if (!right)
        ir_else();
    ir_assign(x, u32(1));
    ir_end_if();
    IF(p)
        ir_binary(IR_ADD, x, x);
}

/* The predicate changes at the end of a loop, and its beginning comes again. */
RULE(guard_in_loop, "is read after it: it needs a value on every path")
{
    val x = ir_reg(IR_U32), p = ir_reg(IR_PRED);
    ir_assign(p, p_of(0));
    IF(p)
        ir_assign(x, u32(1));
    FOREVER {
        IF(p)
            ir_binary(IR_ADD, x, x);
        if (!right)
            ir_assign(p, ir_unary(IR_NOT, p));
        ir_break(p_of(1));
    }
}

/* A way that ends does not count, the first or the second one. */
RULE(way_that_ends, "is read after it: it needs a value on every path")
{
    val x = ir_reg(IR_U32), y = ir_reg(IR_U32);
    IF(p_of(0)) {
        if (right)
            ir_plain(IR_EXIT, 0, 0);
    }
    ELSE ir_assign(x, u32(1));
    IF(p_of(0))
        ir_assign(y, u32(1));
    ELSE ir_plain(IR_EXIT, 0, 0);
    ir_binary(IR_ADD, x, y);
}

/* Nothing comes after a loop that has no break. */
RULE(loop_without_break, "is read before it is written")
{
    val x = ir_reg(IR_U32);
    FOREVER {
        IF(p_of(0))
            ir_plain(IR_EXIT, 0, 0);
        if (!right)
            ir_break(p_of(1));
    }
    ir_binary(IR_ADD, x, x);
}

/* Of two breaks the first one comes too early. */
RULE(two_breaks, "is read after it: it needs a value on every path")
{
    val x = ir_reg(IR_U32);
    FOREVER {
        if (right)
            ir_assign(x, u32(1));
        ir_break(p_of(0));
        ir_assign(x, u32(1));
        ir_break(p_of(1));
    }
    ir_binary(IR_ADD, x, x);
}

/* Registers of WGMMA */

static void fence(void)
{
    ir_plain(IR_WGMMA_FENCE, 0, 0);
}

/* Accumulators that a wgmma may take. */
static val *fenced(void)
{
    val *d = ir_alloc(N / 2, sizeof *d);
    accumulators(d);
    fence();
    return d;
}

static void multiply(val *d)
{
    ir_wgmma(CKL_F16, CKL_F16, N, d, u64(0), u64(0), ir_int(IR_PRED, 1), false, false);
}

static void commit(void)
{
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
}

static void wait_for(int groups)
{
    ir_plain(IR_WGMMA_WAIT, groups, 0);
}

static void use(val x)
{
    ir_binary(IR_ADD, x, x);
}

static void product(void)
{
    val *d = fenced();
    multiply(d);
}

SPOILED(wgmma_threads, product(), k->threads = 192, "wgmma: threads=192 of the kernel are not whole warpgroups")
SPOILED(wgmma_in_place, product(), i->out[1] = i->out[0], "wgmma: accumulator 1 is not updated in place")

/* What is described between these two is on the first or the second way of an if. */
static void begin_way(bool second)
{
    ir_if(p_of(0));
    if (second)
        ir_else();
}

static void end_way(bool second)
{
    if (!second)
        ir_else();
    ir_end_if();
}

/* On one way an accumulator was touched after the fence. */
static void touched_on(bool right, bool second)
{
    val *d = fenced();
    begin_way(second);
    ir_assign(d[2], ir_float(CKL_F32, 1));
    end_way(second);
    if (right)
        fence();
    multiply(d);
}

DESCRIBES(touched_on_first, touched_on(right, false), FENCED)
DESCRIBES(touched_on_second, touched_on(right, true), FENCED)

/* Reading counts as well. */
RULE(read_after_fence, FENCED)
{
    val d[N / 2];
    accumulators(d);
    if (!right)
        fence();
    use(d[3]);
    if (right)
        fence();
    multiply(d);
}

/* So does A in registers. */
RULE(a_after_fence, FENCED)
{
    val d[N / 2], a[4];
    accumulators(d);
    for (int i = 0; i < 4; i++)
        a[i] = ir_reg(IR_U32);
    if (!right)
        fence();
    for (int i = 0; i < 4; i++)
        ir_assign(a[i], u32(i));
    if (right)
        fence();
    ir_wgmma_rs(CKL_F16, CKL_F16, N, d, a, u64(0), ir_int(IR_PRED, 1), false);
}

/* At the end of a loop, before its beginning comes again. */
RULE(touched_in_loop, FENCED)
{
    val *d = fenced();
    FOREVER {
        if (right)
            fence();
        multiply(d);
        commit();
        wait_for(0);
        ir_assign(d[0], ir_float(CKL_F32, 1));
        ir_break(p_of(0));
    }
}

/* On one way a product is in flight. */
static void in_flight_on(bool right, bool second)
{
    val *d = fenced();
    begin_way(second);
    multiply(d);
    commit();
    end_way(second);
    if (right)
        wait_for(0);
    use(d[0]);
}

DESCRIBES(in_flight_on_first, in_flight_on(right, false), IN_FLIGHT)
DESCRIBES(in_flight_on_second, in_flight_on(right, true), IN_FLIGHT)

/* On one way another group follows, so that only there one group in flight may be it. */
static void younger_on(bool right, bool second)
{
    val *d = fenced();
    multiply(d);
    commit();
    begin_way(second);
    commit();
    end_way(second);
    wait_for(right ? 0 : 1);
    use(d[0]);
}

DESCRIBES(younger_on_first, younger_on(right, false), IN_FLIGHT)
DESCRIBES(younger_on_second, younger_on(right, true), IN_FLIGHT)

RULE(second_group, IN_FLIGHT)
{
    val d[N / 2], e[N / 2];
    accumulators(d);
    accumulators(e);
    fence();
    multiply(d);
    commit();
    multiply(e);
    commit();
    wait_for(1);
    use(right ? d[0] : e[0]);
}

/* A wait does not wait for the open group. */
RULE(open_group, IN_FLIGHT)
{
    val *d = fenced();
    multiply(d);
    if (right)
        commit();
    wait_for(0);
    use(d[0]);
}

RULE(accumulator_written, IN_FLIGHT)
{
    val *d = fenced();
    multiply(d);
    commit();
    if (right)
        wait_for(0);
    ir_assign(d[7], ir_float(CKL_F32, 1));
}

/* A product that does not add to them needs no accumulators before. */
RULE(unwritten_accumulators, "is read before it is written")
{
    val d[N / 2];
    for (int i = 0; i < N / 2; i++)
        d[i] = ir_reg(CKL_F32);
    fence();
    ir_wgmma(CKL_F16, CKL_F16, N, d, u64(0), u64(0), ir_int(IR_PRED, right ? 0 : 1), false, false);
}

/* Convergence */

static void shuffle(void)
{
    ir_shuffle(IR_SHFL_XOR, unknown(IR_U32), u32(1));
}

static void shuffle_where(val p)
{
    IF(p)
        shuffle();
}

static void warpgroup_where(val p)
{
    IF(p)
        fence();
}

static val tid(void)
{
    return ir_sreg(IR_TID_X);
}

/* A constant added keeps the steps of the threads if it is whole warpgroups; else nothing is sure. */
RULE(shifted, LANES)
{
    val x = ir_binary(IR_ADD, tid(), u32(128));
    shuffle_where(ir_compare(IR_LT, x, u32(right ? 192 : 200)));
    shuffle_where(ir_compare(IR_LT, ir_binary(IR_ADD, tid(), u32(8)), u32(40)));   // tid < 32
    shuffle_where(ir_compare(IR_LT, ir_binary(IR_SUB, u32(256), tid()), u32(33))); // tid >= 224
}

RULE(shifted_group, THREADS)
{
    warpgroup_where(ir_compare(IR_LT, ir_binary(IR_SUB, tid(), u32(128)), u32(right ? 128 : 64)));
    warpgroup_where(ir_compare(IR_LT, ir_binary(IR_ADD, tid(), u32(96)), u32(224))); // tid < 128
}

RULE(right_shifted, LANES)
{
    shuffle_where(ir_compare(IR_EQ, ir_binary(IR_SHR, tid(), u32(right ? 5 : 4)), u32(1)));
    shuffle_where(is_zero(ir_binary(IR_SHR, tid(), u32(32)))); // all of them
}

RULE(divided, THREADS)
{
    warpgroup_where(ir_compare(IR_EQ, ir_binary(IR_DIV, tid(), u32(right ? 64 : 32)), u32(2))); // unsure: it is not
    warpgroup_where(ir_compare(IR_LT, ir_binary(IR_DIV, tid(), u32(32)), u32(4)));
}

DESCRIBES(masked, shuffle_where(is_zero(ir_binary(IR_AND, tid(), u32(right ? 96 : 31)))), LANES)

RULE(constant_before, LANES)
{
    shuffle_where(ir_compare(IR_GT, u32(right ? 64 : 40), tid()));
    shuffle_where(ir_compare(IR_GE, u32(63), tid()));
}

DESCRIBES(constant_before_closed, shuffle_where(ir_compare(IR_LT, u32(right ? 63 : 64), tid())), LANES)
DESCRIBES(closed_comparison, shuffle_where(ir_compare(IR_LE, tid(), u32(right ? 63 : 64))), LANES)
DESCRIBES(equal_out_of_range, shuffle_where(ir_compare(IR_EQ, tid(), u32(right ? 256 : 255))), LANES)
DESCRIBES(below_out_of_range, shuffle_where(ir_compare(IR_LT, tid(), u32(right ? 300 : 250))), LANES)
DESCRIBES(both_predicates, shuffle_where(ir_binary(IR_AND, is_zero(ir_sreg(right ? IR_WARP : IR_LANE)), p_of(0))),
          LANES)
DESCRIBES(converted, shuffle_where(is_zero(ir_convert(CKL_I64, ir_sreg(right ? IR_WARP : IR_LANE)))), LANES)

/* Two writers of different kinds leave nothing sure, whichever comes last. */
RULE(two_writers, LANES)
{
    val x = ir_reg(IR_U32), y = ir_reg(IR_U32);
    IF(p_of(0)) {
        ir_assign(x, u32(0));
        ir_assign(y, ir_sreg(IR_LANE));
    }
    ELSE
    {
        ir_assign(x, ir_sreg(IR_LANE));
        ir_assign(y, right ? u32(0) : ir_sreg(IR_LANE));
    }
    shuffle_where(is_zero(x));
    shuffle_where(is_zero(y));
}

/* Two writers of one kind: a predicate between them that parts the threads leaves nothing sure either. */
RULE(written_under, LANES)
{
    val lane = ir_sreg(IR_LANE), x = ir_reg(IR_U32);
    val whole_groups = ir_compare(IR_EQ, ir_binary(IR_DIV, tid(), u32(128)), u32(1));
    ir_assign(x, lane);
    IF(right ? ir_vote(IR_VOTE_ANY, is_zero(tid())) : whole_groups)
        ir_assign(x, lane);
    shuffle_where(is_zero(x));
}

/* An inner IF does not make a warp whole again, its end does. */
RULE(after_if, LANES)
{
    IF(is_zero(ir_sreg(IR_LANE))) {
        IF(p_of(0)) {
            if (!right)
                shuffle();
        }
    }
    shuffle();
}

RULE(on_else, "wants a converged warp, but its lanes diverge")
{
    IF(is_zero(ir_sreg(right ? IR_WARP : IR_LANE))) {
    }
    ELSE shuffle();
}

/* The break stands behind, but the second turn is divergent. */
RULE(before_break, "wants a converged warp, but its lanes diverge at the loop of line 7")
{
    FOREVER {
        shuffle();
        ir_break(is_zero(ir_sreg(right ? IR_WARP : IR_LANE)));
    }
    shuffle();
}

RUN_TESTS(NULL, NULL)
