/*
 * unit_fold.c - integer arithmetic is the same however it is computed: by C, folded from two constants, by the
 * emulator's instruction on two registers, and with a constant on either side, which becomes other instructions.
 */
#include "unit_emulator.h"
#include "emulated_device.h"

static const int64_t samples[] = { 0,
                                   1,
                                   2,
                                   3,
                                   5,
                                   7,
                                   8,
                                   31,
                                   32,
                                   63,
                                   64,
                                   100,
                                   -1,
                                   -2,
                                   -3,
                                   -8,
                                   -100,
                                   0x7fffffff,
                                   -0x80000000LL,
                                   0x80000001,
                                   0xffffffff,
                                   0x100000000,
                                   0x123456789a,
                                   INT64_MAX,
                                   INT64_MIN,
                                   -0x123456789aLL };
enum { COUNT = COUNT_OF(samples) };

static const ir_op ops[] = { IR_ADD, IR_SUB, IR_MUL, IR_DIV, IR_REM, IR_MIN,
                             IR_MAX, IR_AND, IR_OR,  IR_XOR, IR_SHL, IR_SHR };
static const ir_compare_kind comparisons[] = { IR_EQ, IR_NE, IR_LT, IR_LE, IR_GT, IR_GE };

/* The computation at hand: an op, or a comparison with op COMPARE. */
static ir_op op;
static ir_compare_kind how;
static ir_type type;

static bool is_shift(void)
{
    return op == IR_SHL || op == IR_SHR;
}

/* A sample as the type has it; shifts take small numbers second. */
static int64_t first(int i)
{
    return ir_int(type, samples[i]).i;
}

static int64_t second(int i)
{
    return is_shift() ? samples[i] & 127 : first(i);
}

/* By C, in numbers that cannot overflow */

__extension__ typedef __int128 wide_int;
__extension__ typedef unsigned __int128 wide_unsigned;

static wide_int wide(int64_t i)
{
    return ir_type_is_signed(type)    ? (wide_int)i
           : ir_type_bytes(type) == 4 ? (wide_int)(uint32_t)i
                                      : (wide_int)(uint64_t)i;
}

static wide_int shifted(wide_int x, int64_t n)
{
    int width = 8 * ir_type_bytes(type);
    if (op == IR_SHL)
        return n >= width ? 0 : x * ((wide_int)1 << n);
    return n >= width ? (x < 0 ? -1 : 0) : x >> n;
}

static int64_t by_c(int64_t a, int64_t b)
{
    wide_int x = wide(a), y = wide(b);
    switch (op) {
    case IR_ADD:
        return (int64_t)(x + y);
    case IR_SUB:
        return (int64_t)(x - y);
    case IR_MUL:
        return (int64_t)((wide_unsigned)x * (wide_unsigned)y);
    case IR_DIV:
        return (int64_t)(x / y);
    case IR_REM:
        return (int64_t)(x % y);
    case IR_MIN:
        return (int64_t)(x < y ? x : y);
    case IR_MAX:
        return (int64_t)(x > y ? x : y);
    case IR_AND:
        return (int64_t)(x & y);
    case IR_OR:
        return (int64_t)(x | y);
    case IR_XOR:
        return (int64_t)(x ^ y);
    case IR_COMPARE:
        return (bool[]){ x == y, x != y, x<y, x <= y, x> y, x >= y }[how];
    default:
        return (int64_t)shifted(x, b);
    }
}

/* By the builder and the emulator */

static val compute(val x, val y)
{
    return op == IR_COMPARE ? ir_compare(how, x, y) : ir_binary(op, x, y);
}

static void store_result(val to, int64_t offset, val x)
{
    if (op == IR_COMPARE)
        x = ir_select(x, ir_int(type, 1), ir_int(type, 0));
    test_store_value(IR_GLOBAL, type, to, offset, ir_is_constant(x) ? ir_int(type, x.i) : x);
}

/* Thread t has sample t first; for each second: both in registers, the second constant, and the first one constant. */
static void describe(void)
{
    int bytes = ir_type_bytes(type);
    val from = pointer("from"), seconds = pointer("seconds"), to = pointer("to"), thread = ir_sreg(IR_TID_X);
    ir_if(ir_compare(IR_LT, thread, ir_u32(COUNT)));
    val x = test_load_value(IR_GLOBAL, type, test_element(from, thread, bytes), 0);
    val row = test_element(to, thread, 3 * COUNT * bytes);
    for (int i = 0; i < COUNT; i++) {
        ir_type shift_type = is_shift() ? IR_U32 : type;
        val y = test_load_value(IR_GLOBAL, shift_type, seconds, (int64_t)i * ir_type_bytes(shift_type));
        val constant = ir_int(shift_type, second(i));
        bool by_zero = (op == IR_DIV || op == IR_REM) && second(i) == 0;
        store_result(row, (int64_t)(3 * i) * bytes, by_zero ? ir_int(type, 0) : compute(x, y));
        store_result(row, (int64_t)(3 * i + 1) * bytes, by_zero ? ir_int(type, 0) : compute(x, constant));
        bool plain = !is_shift() && op != IR_DIV && op != IR_REM; // x may be zero
        store_result(row, (int64_t)(3 * i + 2) * bytes, plain ? compute(constant, x) : ir_int(type, 0));
    }
    ir_end_if();
}

static int64_t result_at(const void *results, int i)
{
    if (ir_type_bytes(type) == 8)
        return ((const int64_t *)results)[i];
    return type == IR_U32 ? (int64_t)((const uint32_t *)results)[i] : (int64_t)((const int32_t *)results)[i];
}

static int64_t folded(int64_t a, int64_t b)
{
    ir_describe_begin(NULL, IR_SM80);
    val x = compute(ir_int(type, a), ir_int(is_shift() ? IR_U32 : type, b));
    assert_true(ir_is_constant(x));
    assert_ok(ir_describe_end(NULL));
    return x.i;
}

static void expect(int64_t a, int64_t b, int64_t is, const char *by)
{
    int64_t wanted = ir_int(type, by_c(a, b)).i;
    if (is != wanted)
        fail_msg("%s %d of %s, %lld and %lld: %lld %s is wrong, %lld is right", ir_op_text(op), how, ir_type_text(type),
                 (long long)a, (long long)b, (long long)is, by, (long long)wanted);
}

static void check_results(const void *results)
{
    bool divides = op == IR_DIV || op == IR_REM;
    for (int a = 0; a < COUNT; a++)
        for (int b = 0; b < COUNT; b++) {
            if (divides && second(b) == 0)
                continue;
            int at = 3 * (a * COUNT + b);
            expect(first(a), second(b), folded(first(a), second(b)), "folded");
            expect(first(a), second(b), result_at(results, at), "of registers");
            expect(first(a), second(b), result_at(results, at + 1), "of a register and a constant");
            if (!divides && !is_shift())
                expect(second(b), first(a), result_at(results, at + 2), "of a constant and a register");
        }
}

static void check(void)
{
    int64_t firsts[COUNT], seconds[COUNT], results[3 * COUNT * COUNT];
    for (int i = 0; i < COUNT; i++) {
        int64_t x = first(i), y = second(i);
        int bytes = ir_type_bytes(type);
        memcpy((char *)firsts + (size_t)(i * bytes), &x, (size_t)bytes);
        bytes = is_shift() ? 4 : bytes;
        memcpy((char *)seconds + (size_t)(i * bytes), &y, (size_t)bytes);
    }
    void *from = test_upload(device, firsts, sizeof firsts),
         *second_ones = test_upload(device, seconds, sizeof seconds);
    void *to = test_upload(device, results, sizeof results);
    if (test_run(device, (test_kernel){ describe, IR_SM80, .threads = 32 }, (void *[]){ &from, &second_ones, &to }) !=
        CKL_OK)
        fail_msg("%s", ckl_error());
    assert_ok(device->ops->copy_out(device, results, to, sizeof results, NULL));
    check_results(results);
}

TEST(operations)
{
    static const ir_type types[] = { CKL_I32, IR_U32, CKL_I64, IR_U64 };
    for (int t = 0; t < COUNT_OF(types); t++) {
        type = types[t];
        for (int i = 0; i < COUNT_OF(ops); i++) {
            op = ops[i];
            check();
        }
        op = IR_COMPARE;
        for (int i = 0; i < COUNT_OF(comparisons); i++) {
            how = comparisons[i];
            check();
        }
        how = 0;
    }
}

/* What else folds: one operand, conversions, a choice between two. Numbers wrap as C's do. */
TEST(other_constants)
{
    static const ir_type types[] = { CKL_I16, IR_U16, CKL_I32, IR_U32, CKL_I64, IR_U64 };
    ir_describe_begin("constants", IR_SM80);
    for (int i = 0; i < COUNT; i++)
        for (int t = 0; t < COUNT_OF(types); t++) {
            val x = ir_int(types[t], samples[i]);
            uint64_t bits = (uint64_t)x.i;
            assert_true(ir_is_int(ir_unary(IR_NEG, x), ir_int(types[t], (int64_t)(0 - bits)).i));
            assert_true(ir_is_int(ir_unary(IR_NOT, x), ir_int(types[t], (int64_t)~bits).i));
            assert_true(ir_is_int(ir_fma(x, ir_int(types[t], 3), ir_int(types[t], 5)),
                                  ir_int(types[t], (int64_t)(3 * bits + 5)).i));
            for (int u = 0; u < COUNT_OF(types); u++) {
                val converted = ir_convert(types[u], x);
                assert_true(converted.type == types[u] && ir_is_int(converted, ir_int(types[u], x.i).i));
            }
            val real = ir_convert(CKL_F32, x);
            assert_true(real.type == CKL_F32 && ir_is_constant(real) && real.f == (double)(float)x.i);
        }
    assert_true(ir_unary(IR_NEG, ir_float(CKL_F32, 1.5)).f == -1.5);
    assert_true(ir_is_int(ir_unary(IR_NOT, ir_int(IR_PRED, 1)), 0) &&
                ir_is_int(ir_unary(IR_NOT, ir_int(IR_PRED, 0)), 1));
    assert_true(ir_is_int(ir_select(ir_int(IR_PRED, 1), ir_int(CKL_I32, 7), ir_int(CKL_I32, 8)), 7));
    assert_true(ir_is_int(ir_select(ir_int(IR_PRED, 0), ir_int(CKL_I32, 7), ir_int(CKL_I32, 8)), 8));
    assert_int_equal(ir_current()->inst_count, 0);
    assert_false(ir_is_constant(ir_convert(CKL_F16, ir_int(CKL_I32, 7)))); // rounds when it runs
    assert_false(ir_is_constant(ir_convert(CKL_I32, ir_float(CKL_F32, 7.5))));
    assert_ok(ir_describe_end(NULL));
}

TEST(refused)
{
    static const ir_op divisions[] = { IR_DIV, IR_REM };
    for (int i = 0; i < COUNT_OF(divisions); i++) {
        ir_describe_begin(NULL, IR_SM80);
        ir_binary(divisions[i], ir_int(CKL_I32, 5), ir_int(CKL_I32, 0));
        assert_fails(ir_describe_end(NULL), CKL_INVALID, "division of the constant 5 by zero");
    }
}

/* The bounds of what a constant beside a register may be: either sign's. */
TEST(constants_fit)
{
    static const struct {
        ir_type type;
        int64_t least, largest;
    } ranges[] = { { CKL_I32, -0x80000000LL, 0xffffffff },
                   { IR_U32, -0x80000000LL, 0xffffffff },
                   { IR_U16, -0x8000, 0xffff } };
    for (int i = 0; i < COUNT_OF(ranges); i++)
        for (int beyond = 0; beyond < 3; beyond++) {
            int64_t constant = beyond == 0   ? ranges[i].largest
                               : beyond == 1 ? ranges[i].largest + 1
                                             : ranges[i].least - 1;
            ir_describe_begin("constants", IR_SM80);
            ir_binary(IR_ADD, ir_reg(ranges[i].type), ir_int(CKL_I64, constant));
            ir_binary(IR_ADD, ir_reg(ranges[i].type), ir_int(CKL_I64, ranges[i].least));
            assert_int_equal(ir_describe_end(NULL), beyond ? CKL_INTERNAL : CKL_OK);
        }
}

RUN_TESTS(open_device, close_device)
