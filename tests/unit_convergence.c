/*
 * unit_convergence.c - the verifier on numbers of threads and warps against the truth: the predicate of every thread is
 * computed, and what diverges must be refused, what agrees be taken.
 */
#include "unit.h"
#include "ir/build.h"

enum { THREADS = 384, WARP_LANES = 32, GROUP_LANES = 128 };

/* compare(number op operand, bound), or with the bound first. */
typedef struct predicate {
    ir_sreg_kind number;
    ir_op op; // MOV: none
    int operand;
    ir_compare_kind how;
    int bound;
    bool bound_first;
} predicate;

static const char *text_of(const predicate *p)
{
    static char words[128];
    snprintf(words, sizeof words, "register %d, %s %d, comparison %d with %d%s", p->number, ir_op_text(p->op),
             p->operand, p->how, p->bound, p->bound_first ? " first" : "");
    return words;
}

static uint32_t number_of(const predicate *p, int thread)
{
    uint32_t x = (uint32_t)(p->number == IR_TID_X ? thread : thread / WARP_LANES), c = (uint32_t)p->operand;
    switch (p->op) {
    case IR_SHR:
        return c < 32 ? x >> c : 0;
    case IR_DIV:
        return x / c;
    case IR_AND:
        return x & c;
    case IR_REM:
        return x % c;
    case IR_ADD:
        return x + c;
    case IR_SUB:
        return x - c;
    default:
        return x;
    }
}

static bool holds(const predicate *p, int thread)
{
    uint32_t x = number_of(p, thread), bound = (uint32_t)p->bound;
    uint32_t a = p->bound_first ? bound : x, b = p->bound_first ? x : bound;
    return (bool[]){ a == b, a != b, a<b, a <= b, a> b, a >= b }[p->how];
}

/* Whether threads of one group of that many disagree. */
static bool diverges(const predicate *p, int lanes)
{
    for (int thread = 0; thread < THREADS; thread++)
        if (holds(p, thread) != holds(p, thread / lanes * lanes))
            return true;
    return false;
}

static void begin(void)
{
    ir_describe_begin("diverging", IR_SM90A);
    ir_current()->threads = THREADS;
}

/* Ends the kernel with an instruction that whole warps or warpgroups must reach, in an IF. Is it refused? */
static bool is_refused_where(val holds_here, ir_op op)
{
    ir_kernel *kernel = NULL;
    ir_if(holds_here);
    ir_plain(op, 0, 0);
    ir_end_if();
    assert_ok(ir_describe_end(&kernel));
    ckl_status status = ir_verify(kernel);
    ir_kernel_free(kernel);
    return status != CKL_OK;
}

static bool is_refused(const predicate *p, bool whole_warpgroups)
{
    begin();
    val x = ir_sreg(p->number), bound = ir_u32(p->bound);
    if (p->op != IR_MOV)
        x = ir_binary(p->op, x, ir_u32(p->operand));
    return is_refused_where(p->bound_first ? ir_compare(p->how, bound, x) : ir_compare(p->how, x, bound),
                            whole_warpgroups ? IR_WGMMA_FENCE : IR_WARP_SYNC);
}

/* What is refused diverges; where the number is one that the verifier follows, what diverges is refused. */
static void check(const predicate *p, bool followed)
{
    for (int group = 0; group < 2; group++) {
        bool truth = diverges(p, group ? GROUP_LANES : WARP_LANES), refused = is_refused(p, group);
        if (refused && !truth)
            fail_msg("%s agrees in every %s, but is refused", text_of(p), group ? "warpgroup" : "warp");
        if (followed && truth && !refused)
            fail_msg("%s parts a %s, but is taken", text_of(p), group ? "warpgroup" : "warp");
    }
}

static void check_bounds(ir_sreg_kind number, ir_op op, int operand, bool followed)
{
    static const int bounds[] = { 0,  1,  2,  3,  4,   5,   7,   8,   11,  12,  13, 16,
                                  31, 32, 33, 64, 127, 128, 129, 256, 300, 384, 385 };
    for (int i = 0; i < COUNT_OF(bounds); i++)
        for (int how = IR_EQ; how <= IR_GE; how++)
            for (int first = 0; first < 2; first++)
                check(&(predicate){ number, op, operand, (ir_compare_kind)how, bounds[i], first }, followed);
}

TEST(numbers)
{
    check_bounds(IR_TID_X, IR_MOV, 0, true);
    check_bounds(IR_WARP, IR_MOV, 0, true);
}

TEST(quotients)
{
    for (int shift = 0; shift < 10; shift++)
        check_bounds(IR_TID_X, IR_SHR, shift, shift == 5 || shift == 7);
    check_bounds(IR_WARP, IR_SHR, 1, false);
    check_bounds(IR_WARP, IR_SHR, 2, true);
    for (int warps = 1; warps <= 8; warps++) {
        check_bounds(IR_TID_X, IR_DIV, WARP_LANES * warps, warps == 1 || warps % 4 == 0);
        check_bounds(IR_WARP, IR_DIV, warps, warps % 4 == 0);
    }
    check_bounds(IR_TID_X, IR_DIV, 48, false);
}

/* Bits of a number: within the mask they differ as the number does. */
TEST(bits)
{
    static const int masks[] = { 1, 3, 31, 63, 127 };
    for (int i = 0; i < COUNT_OF(masks); i++)
        for (int bound = 0; bound <= masks[i]; bound++)
            for (int how = IR_EQ; how <= IR_NE; how++) {
                check(&(predicate){ IR_TID_X, IR_AND, masks[i], (ir_compare_kind)how, bound, false }, true);
                check(&(predicate){ IR_TID_X, IR_REM, masks[i] + 1, (ir_compare_kind)how, bound, true }, true);
            }
    check_bounds(IR_TID_X, IR_AND, 32, false);
    check_bounds(IR_TID_X, IR_AND, 5, false);
    check_bounds(IR_TID_X, IR_REM, 3, false);
}

TEST(moved)
{
    check(&(predicate){ IR_TID_X, IR_ADD, 128, IR_LT, 256, false }, true);
    check(&(predicate){ IR_TID_X, IR_ADD, 128, IR_LT, 300, false }, true);
    check(&(predicate){ IR_WARP, IR_ADD, 4, IR_LT, 8, false }, true);
    check(&(predicate){ IR_WARP, IR_ADD, 4, IR_LT, 9, false }, true);
    check_bounds(IR_TID_X, IR_ADD, 32, false);
    check_bounds(IR_TID_X, IR_SUB, 1, false);
    check_bounds(IR_WARP, IR_ADD, 1, false);
}

/* A variable gets the number of its thread twice, the second time only where that number divided by `by` is 1. */
static bool variable_is_refused(int by)
{
    begin();
    val x = ir_sreg(IR_TID_X), variable = ir_reg(IR_U32);
    ir_assign(variable, x);
    ir_if(ir_compare(IR_EQ, ir_binary(IR_DIV, x, ir_u32(by)), ir_u32(1)));
    ir_assign(variable, x);
    ir_end_if();
    return is_refused_where(ir_compare(IR_LT, variable, ir_u32(WARP_LANES / 2)), IR_WARP_SYNC);
}

/* It keeps its meaning where whole warpgroups assign it, or none; else the verifier leaves it alone. */
TEST(assigned)
{
    assert_true(variable_is_refused(GROUP_LANES));
    assert_true(variable_is_refused(2 * GROUP_LANES));
    assert_false(variable_is_refused(3 * WARP_LANES));
    assert_false(variable_is_refused(WARP_LANES + 4));
}

enum { CHAIN = 24 };

/* A loop moves a value from variable to variable, one each time around; the first is that of an IF around a barrier. */
static bool chain_is_refused(bool of_threads)
{
    begin();
    val address = ir_scalar_param(IR_U64, "address"), x[CHAIN], last = ir_sreg(IR_LANE);
    for (int i = 0; i < CHAIN; i++) {
        x[i] = ir_reg(IR_U32);
        ir_assign(x[i], ir_sreg(IR_LANE));
    }
    ir_loop();
    for (int i = 0; i + 1 < CHAIN; i++)
        ir_assign(x[i], x[i + 1]);
    if (!of_threads) {
        last = ir_reg(IR_U32);
        ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, address, 0, &last);
    }
    ir_assign(x[CHAIN - 1], last);
    ir_break(ir_compare(IR_EQ, ir_sreg(IR_CTA_X), ir_u32(0)));
    ir_end_loop();
    return is_refused_where(ir_compare(IR_LT, x[0], ir_u32(5)), IR_WARP_SYNC);
}

/* However long it takes until what is known of one variable has come to another. */
TEST(chain)
{
    assert_true(chain_is_refused(true));
    assert_false(chain_is_refused(false));
}

RUN_TESTS(NULL, NULL)
