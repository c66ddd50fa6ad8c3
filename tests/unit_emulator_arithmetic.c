/* unit_emulator_arithmetic.c - the emulated GPU: arithmetic bit for bit, and division as C has it. */
#include "device/emulator/machine.h"
#include "unit_emulator_short.h"
#include "emulated_device.h"

/* Arithmetic: one instruction on operands from parameters, compared bit for bit. */

typedef struct arithmetic_case {
    ir_op op;
    ir_type type, from;
    int mode;
    uint64_t x, y, z, expected;
} arithmetic_case;

#define NAN32 0x7fffffff
static const arithmetic_case arithmetic[] = {
    { IR_ADD, IR_U32, 0, 0, 0xffffffff, 2, 0, 1 },
    { IR_SUB, CKL_I64, 0, 0, 1, 2, 0, UINT64_MAX },
    { IR_MUL, IR_U32, 0, 0, 0xffffffff, 0xffffffff, 0, 1 },
    { IR_FMA, IR_U32, 0, 0, 3, 5, 0xffffffff, 14 },
    { IR_MUL_HI, CKL_I32, 0, 0, 0xffffffff, 2, 0, 0xffffffff },
    { IR_MUL_HI, IR_U64, 0, 0, UINT64_MAX, UINT64_MAX, 0, UINT64_MAX - 1 },
    { IR_DIV, CKL_I32, 0, 0, 0xfffffff9, 2, 0, 0xfffffffd },
    { IR_REM, CKL_I32, 0, 0, 0xfffffff9, 2, 0, 0xffffffff },
    { IR_DIV, CKL_I32, 0, 0, 0x80000000, 0xffffffff, 0, 0x80000000 },
    { IR_MIN, CKL_I32, 0, 0, 0xffffffff, 1, 0, 0xffffffff },
    { IR_MIN, IR_U32, 0, 0, 0xffffffff, 1, 0, 1 },
    { IR_ABS, CKL_I32, 0, 0, 0xfffffff0, 0, 0, 16 },
    { IR_NEG, CKL_I64, 0, 0, 5, 0, 0, (uint64_t)-5 },
    { IR_NOT, IR_U32, 0, 0, 0x0f0f0f0f, 0, 0, 0xf0f0f0f0 },
    { IR_XOR, IR_U64, 0, 0, 0xff00ff00ff00ff00, UINT64_MAX, 0, 0x00ff00ff00ff00ff },
    { IR_SHL, IR_U32, 0, 0, 1, 31, 0, 0x80000000 },
    { IR_SHL, IR_U32, 0, 0, 1, 32, 0, 0 },
    { IR_SHR, IR_U32, 0, 0, 0x80000000, 33, 0, 0 },
    { IR_SHR, CKL_I32, 0, 0, 0x80000000, 4, 0, 0xf8000000 },
    { IR_SHR, CKL_I32, 0, 0, 0x80000000, 99, 0, 0xffffffff },
    { IR_SHR, CKL_I64, 0, 0, 1ULL << 63, 63, 0, UINT64_MAX },
    { IR_AND_OR, IR_U32, 0, 0, 0xff00ff05, 0x0f0f0f0f, 0x30000010, 0x3f000f15 },
    { IR_PRMT, IR_U32, 0, 0, 0x33221100, 0x77665544, 0x0624, 0x00662244 },
    { IR_PRMT, IR_U32, 0, 0, 0x80000001, 0x7f00ff00, 0xdb83, 0xffff0080 },     // signs,
    { IR_ADD, CKL_F32, 0, 0, 0x3f800000, 0x33800000, 0, 0x3f800000 },          // 1 + 2^-24: a tie, to even
    { IR_MUL, CKL_F32, 0, 0, 0x00000003, 0x3f000000, 0, 0x00000002 },          // subnormals are kept, tie to even
    { IR_FMA, CKL_F32, 0, 0, 0x3f800001, 0x3f800001, 0xbf800002, 0x28800000 }, // 2^-46, lost without fusing
    { IR_DIV, CKL_F32, 0, 0, 0x3f800000, 0x40400000, 0, 0x3eaaaaab },
    { IR_MIN, CKL_F32, 0, 0, 0x7fc00000, 0x3f800000, 0, 0x3f800000 },
    { IR_MAX, CKL_F32, 0, 1, 0x3f800000, 0x7fc00000, 0, NAN32 },
    { IR_MIN, CKL_F32, 0, 0, 0x00000000, 0x80000000, 0, 0x80000000 },
    { IR_MAX, CKL_F32, 0, 0, 0x80000000, 0x00000000, 0, 0x00000000 },
    { IR_NEG, CKL_F32, 0, 0, 0x7f800000, 0, 0, 0xff800000 },
    { IR_SQRT, CKL_F32, 0, 0, 0x40000000, 0, 0, 0x3fb504f3 },
    { IR_RSQRT, CKL_F32, 0, 0, 0x40800000, 0, 0, 0x3f000000 },
    { IR_EX2, CKL_F32, 0, 0, 0xc2fe0000, 0, 0, 0x00400000 }, // 2^-127
    { IR_EX2, CKL_F32, 0, 1, 0xc2fe0000, 0, 0, 0 },          // with ftz subnormals are 0,
    { IR_EX2, CKL_F32, 0, 1, 0xc2fc0000, 0, 0, 0x00800000 }, // and 2^-126 is none
    { IR_RCP_APPROX, CKL_F32, 0, 1, 0x7e800000, 0, 0, 0x00800000 },
    { IR_RCP_APPROX, CKL_F32, 0, 1, 0xfe800001, 0, 0, 0x80000000 },
    { IR_RCP_APPROX, CKL_F32, 0, 1, 0x807fffff, 0, 0, 0xff800000 },
    { IR_RCP_APPROX, CKL_F32, 0, 1, 0x80800000, 0, 0, 0xfe800000 },
    { IR_LG2, CKL_F32, 0, 0, 0x41000000, 0, 0, 0x40400000 },
    { IR_ADD, IR_F16X2, 0, 0, 0x3c00, 0x1001, 0, 0x3c01 },       // 1 + just over half an ulp
    { IR_MUL, IR_F16X2, 0, 0, 0x0001, 0x3800, 0, 0x0000 },       // 2^-25: a tie, to even
    { IR_FMA, IR_F16X2, 0, 0, 0x3c01, 0x3c01, 0xbc02, 0x0010 },  // 2^-20, lost without fusing
    { IR_ADD, IR_F16X2, 0, 0, 0x7bff, 0x4c00, 0, 0x7c00 },       // overflow
    { IR_FMA, IR_BF16X2, 0, 0, 0x3f81, 0x3f81, 0x0001, 0x3f82 }, // 1.00001111.. cut; the tiny addend cannot matter
    { IR_FMA, IR_BF16X2, 0, 0, 0x3f81, 0x4040, 0x0001, 0x4042 }, // 3.0234375: a tie, which the tiny addend breaks
    { IR_ADD, IR_F16X2, 0, 0, 0x3c004000, 0x3c003c00, 0, 0x40004200 },
    { IR_CONVERT, CKL_I32, CKL_F32, 0, 0xbfe00000, 0, 0, 0xffffffff }, // -1.75 truncates
    { IR_CONVERT, CKL_I32, CKL_F32, 0, 0x4f800000, 0, 0, 0x7fffffff }, // 2^32 saturates
    { IR_CONVERT, IR_U32, CKL_F32, 0, 0xbf800000, 0, 0, 0 },
    { IR_CONVERT, CKL_I32, CKL_F32, 0, 0x7fc00000, 0, 0, 0 },
    { IR_CONVERT, IR_U32, CKL_F32, 0, 0x7fc00000, 0, 0, 0 },
    { IR_CONVERT, CKL_I64, CKL_F32, 0, 0x7fc00000, 0, 0, 0x8000000000000000 }, // of 64 bits a NaN gives the top one
    { IR_CONVERT, CKL_F32, CKL_I32, 0, 0x01000001, 0, 0, 0x4b800000 },         // 2^24 + 1: a tie, to even
    { IR_CONVERT, CKL_F32, IR_U64, 0, UINT64_MAX, 0, 0, 0x5f800000 },
    { IR_CONVERT, CKL_BF16, IR_U64, 0, 0x8080000000000000, 0, 0, 0x5f00 }, // a tie, to even
    { IR_CONVERT, CKL_BF16, IR_U64, 0, 0x8080000000000001, 0, 0, 0x5f01 }, // more than a tie: one rounding, of all bits
    { IR_CONVERT, CKL_BF16, CKL_I64, 0, 0xbf7fffffffffffff, 0, 0, 0xde81 },
    { IR_CONVERT, CKL_BF16, CKL_I64, 0, 0xbf80000000000000, 0, 0, 0xde81 },
    { IR_CONVERT, CKL_BF16, CKL_I64, 0, 0xbf80000000000001, 0, 0, 0xde81 },
    { IR_CONVERT, CKL_BF16, CKL_I64, 0, 0x40800000000007ff, 0, 0, 0x5e81 },
    { IR_CONVERT, CKL_BF16, CKL_I32, 0, 0x01010001, 0, 0, 0x4b81 }, // f32 in between would make a tie of it
    { IR_CONVERT, CKL_I64, CKL_I32, 0, 0xffffffff, 0, 0, UINT64_MAX },
    { IR_CONVERT, CKL_I64, IR_U32, 0, 0xffffffff, 0, 0, 0xffffffff },
    { IR_CONVERT, IR_U16, IR_U32, 0, 0x12345678, 0, 0, 0x5678 },
    { IR_CONVERT, CKL_F16, CKL_F32, 0, 0x477ff000, 0, 0, 0x7c00 },
    { IR_CONVERT, CKL_F16, CKL_F32, 0, 0x33000001, 0, 0, 0x0001 }, // just over half the smallest subnormal
    { IR_CONVERT, CKL_BF16, CKL_F32, 0, 0x3f808000, 0, 0, 0x3f80 },
    { IR_CONVERT, CKL_F32, CKL_F16, 0, 0x0001, 0, 0, 0x33800000 },
    { IR_CONVERT, CKL_E4M3, CKL_F32, 0, 0x44000000, 0, 0, 0x7e }, // 512 becomes 448
    { IR_CONVERT, CKL_F32, CKL_E5M2, 0, 0x3c, 0, 0, 0x3f800000 },
    { IR_CONVERT, IR_F16X2, CKL_E4M3, 0, 0x8138, 0, 0, 0x98003c00 }, // 1 and the smallest negative one, -2^-9
    { IR_CONVERT, IR_F16X2, CKL_E5M2, 0, 0xc03c, 0, 0, 0xc0003c00 },
    { IR_BITCAST, IR_U32, CKL_F32, 0, 0xbf800000, 0, 0, 0xbf800000 },
    { IR_PACK, IR_F16X2, CKL_F32, 0, 0x3f800000, 0x40000000, 0, 0x40003c00 },
    { IR_PACK, IR_U64, IR_U32, 0, 1, 2, 0, 0x200000001 },
    { IR_COMPARE, CKL_F32, 0, IR_NE, 0x7fc00000, 0x7fc00000, 0, 1 },
    { IR_COMPARE, CKL_F32, 0, IR_GE, 0x7fc00000, 0, 0, 0 },
    { IR_COMPARE, CKL_I32, 0, IR_LT, 0xffffffff, 0, 0, 1 },
    { IR_COMPARE, IR_U32, 0, IR_LT, 0xffffffff, 0, 0, 0 },
};

static const arithmetic_case *current;

/* 8-bit floats live in 16-bit registers. */
static ir_type register_type(ir_type type)
{
    return type == CKL_E4M3 || type == CKL_E5M2 ? IR_U16 : type;
}

static void describe_arithmetic(void)
{
    HERE;
    const arithmetic_case *c = current;
    ir_type from = register_type(c->from ? c->from : c->type), type = register_type(c->type);
    bool shift = c->op == IR_SHL || c->op == IR_SHR;
    val out = pointer("out");
    val in[] = { ir_scalar_param(from, "x"), ir_scalar_param(shift ? IR_U32 : from, "y"), ir_scalar_param(from, "z") };
    val computed = ir_reg(c->op == IR_COMPARE ? IR_PRED : type);
    ir_emit((ir_inst){ .op = c->op, .type = c->type, .from = c->from, .mode = c->mode }, 1, &computed, 3, in);
    if (c->op == IR_COMPARE)
        computed = ir_select(computed, u32(1), u32(0));
    test_store_value(IR_GLOBAL, computed.type, out, 0, computed);
}

static void check_arithmetic(void *out, int number, const arithmetic_case *c)
{
    uint64_t got = 0, x = c->x, y = c->y, z = c->z;
    current = c;
    assert_ok(device->ops->fill(device, out, 0, 8, NULL));
    assert_ok(test_run(device, (test_kernel){ describe_arithmetic, IR_SM90A, .threads = 32 },
                       (void *[]){ &out, &x, &y, &z }));
    assert_ok(device->ops->copy_out(device, &got, out, 8, NULL));
    if (got != c->expected)
        fail_msg("case %d, %s.%s.%s: 0x%" PRIx64 " instead of 0x%" PRIx64, number, ir_op_text(c->op),
                 ir_type_text(c->type), ir_type_text(c->from), got, c->expected);
}

TEST(arithmetic)
{
    void *out = test_upload(device, NULL, 8);
    for (int i = 0; i < COUNT_OF(arithmetic); i++)
        check_arithmetic(out, i, &arithmetic[i]);
}

/* What an atomic leaves in memory; it returns what was there. Beside the word nothing changes. */
static const struct {
    ir_type type;
    ir_reduction mode;
    uint64_t old, x, wanted;
} atomics[] = {
    { CKL_I32, IR_RED_ADD, 0x7fffffff, 1, 0x80000000 },
    { CKL_I32, IR_RED_MIN, 1, 0xffffffff, 0xffffffff },
    { CKL_I32, IR_RED_MAX, 1, 0xffffffff, 1 },
    { IR_U32, IR_RED_ADD, 0xffffffff, 2, 1 },
    { IR_U32, IR_RED_MIN, 1, 0xffffffff, 1 },
    { IR_U32, IR_RED_MAX, 1, 0xffffffff, 0xffffffff },
    { IR_U32, IR_RED_AND, 0x0f0f0f0f, 0x00ff00ff, 0x000f000f },
    { IR_U32, IR_RED_OR, 0x0f0f0f0f, 0x00ff00ff, 0x0fff0fff },
    { IR_U32, IR_RED_EXCH, 3, 7, 7 },
    { CKL_I64, IR_RED_ADD, INT64_MAX, 1, 1ULL << 63 },
    { CKL_I64, IR_RED_MIN, 1, UINT64_MAX, UINT64_MAX },
    { CKL_I64, IR_RED_MAX, 1, UINT64_MAX, 1 },
    { IR_U64, IR_RED_ADD, UINT64_MAX, 2, 1 },
    { IR_U64, IR_RED_MIN, 1, UINT64_MAX, 1 },
    { IR_U64, IR_RED_MAX, 1, UINT64_MAX, UINT64_MAX },
    { CKL_F32, IR_RED_ADD, 0x3f800000, 0x40000000, 0x40400000 },
};

TEST(atomics)
{
    for (int i = 0; i < COUNT_OF(atomics); i++) {
        const ir_inst inst = { .op = IR_ATOM, .type = atomics[i].type, .mode = (int)atomics[i].mode };
        uint64_t memory[2] = { atomics[i].old, UINT64_MAX };
        if (ir_type_bytes(inst.type) < 8) // the upper bytes are another's
            memory[0] |= UINT64_MAX << 8 * ir_type_bytes(inst.type);
        const uint64_t before = memory[0], high = before ^ atomics[i].old;
        if (move_atomic(&inst, memory, atomics[i].x) != atomics[i].old || memory[0] != (high | atomics[i].wanted) ||
            memory[1] != UINT64_MAX)
            fail_msg("row %d leaves 0x%" PRIx64, i, memory[0]);
    }
}

/* What no integer holds: infinities become its limits; NaN is 0, or the top bit of 64. */

typedef struct float_bits {
    ir_type type;
    uint64_t nan, infinity, minus_infinity;
} float_bits;

static const float_bits floats[] = {
    { CKL_F32, 0x7fc00000, 0x7f800000, 0xff800000 },
    { CKL_F16, 0x7e00, 0x7c00, 0xfc00 },
    { CKL_BF16, 0x7fc0, 0x7f80, 0xff80 },
};

typedef struct integer_limits {
    ir_type type;
    uint64_t least, most;
} integer_limits;

static const integer_limits integers[] = {
    { CKL_I16, 0x8000, 0x7fff }, { IR_U16, 0, UINT16_MAX },          { CKL_I32, 0x80000000, 0x7fffffff },
    { IR_U32, 0, UINT32_MAX },   { CKL_I64, 1ULL << 63, INT64_MAX }, { IR_U64, 0, UINT64_MAX },
};

static uint64_t of_nan(ir_type to)
{
    return ir_type_bytes(to) == 8 ? 1ULL << 63 : 0;
}

TEST(conversions_of_no_number)
{
    void *out = test_upload(device, NULL, 8);
    for (int f = 0; f < COUNT_OF(floats); f++)
        for (int i = 0; i < COUNT_OF(integers); i++) {
            const ir_type to = integers[i].type, from = floats[f].type;
            const arithmetic_case cases[] = {
                { IR_CONVERT, to, from, 0, floats[f].nan, 0, 0, of_nan(to) },
                { IR_CONVERT, to, from, 0, floats[f].infinity, 0, 0, integers[i].most },
                { IR_CONVERT, to, from, 0, floats[f].minus_infinity, 0, 0, integers[i].least },
            };
            for (int n = 0; n < COUNT_OF(cases); n++)
                check_arithmetic(out, n, &cases[n]);
        }
}

/* Division as ir_binary() describes it (divide.c): one thread a dividend, by a constant and by a parameter. */

// clang-format off
static const int64_t numbers[32] = { // as many as a warp has lanes
    0, 1, 2, 3, 7, 8, 65, 66, 67, 65535, 1048575, 1048576, 2147483647, 4294967295, 4294967296, 4294967301,
    -1, -2, -3, -7, -8, -9, -66, -65536, -2147483648, -2147483649, -4294967295, -4294967296, -4294967301,
    INT64_MAX, INT64_MIN, INT64_MIN + 1,
};
// clang-format on
static const int64_t divisors[] = { 1, 2, 8, 1 << 20, 3, 66, -2, 4294967296, 4294967299 };
static ir_type division_type;
static int64_t divisor;

static void describe_division(void)
{
    val out = pointer("out"), from = pointer("numbers");
    val known = ir_int(division_type, divisor), given = ir_convert(division_type, ir_scalar_param(CKL_I64, "divisor"));
    val x = ir_reg(CKL_I64), at = test_element(from, ir_sreg(IR_TID_X), 8);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_I64, 1, at, 0, &x);
    x = ir_convert(division_type, x);
    val results[] = { ir_binary(IR_DIV, x, known), ir_binary(IR_REM, x, known), ir_binary(IR_DIV, x, given),
                      ir_binary(IR_REM, x, given) };
    for (int i = 0; i < COUNT_OF(results); i++)
        test_store_value(IR_GLOBAL, CKL_I64, test_element(out, ir_sreg(IR_TID_X), 32), 8 * i,
                         ir_convert(CKL_I64, results[i]));
}

/* What C says of it; I32 and U32 as the kernel sees x and y. */
static void divide(ir_type type, int64_t x, int64_t y, int64_t *quotient, int64_t *remainder)
{
    if (type == IR_U64 || type == IR_U32) {
        uint64_t a = type == IR_U32 ? (uint32_t)x : (uint64_t)x, b = type == IR_U32 ? (uint32_t)y : (uint64_t)y;
        *quotient = (int64_t)(a / b);
        *remainder = (int64_t)(a % b);
    } else {
        int64_t a = type == CKL_I32 ? (int32_t)x : x, b = type == CKL_I32 ? (int32_t)y : y;
        *quotient = a / b;
        *remainder = a % b;
    }
}

static void check_division(ir_type type, int64_t y, void *from, void *out)
{
    int64_t got[COUNT_OF(numbers)][4], quotient, remainder;
    division_type = type;
    divisor = y;
    test_kernel k = { describe_division, IR_SM80, .threads = COUNT_OF(numbers) };
    assert_ok(test_run(device, k, (void *[]){ &out, &from, &y }));
    assert_ok(device->ops->copy_out(device, got, out, sizeof got, NULL));
    for (int i = 0; i < COUNT_OF(numbers); i++) {
        divide(type, numbers[i], y, &quotient, &remainder);
        if (got[i][0] != quotient || got[i][2] != quotient || got[i][1] != remainder || got[i][3] != remainder)
            fail_msg("%" PRId64 " by %" PRId64 " in %s: %" PRId64 " and %" PRId64 ", by a parameter %" PRId64
                     " and %" PRId64,
                     numbers[i], y, ir_type_text(type), got[i][0], got[i][1], got[i][2], got[i][3]);
    }
}

TEST(division)
{
    static const ir_type types[] = { CKL_I64, IR_U64, CKL_I32, IR_U32 };
    void *from = test_upload(device, numbers, sizeof numbers), *out = test_upload(device, NULL, 4 * sizeof numbers);
    for (int t = 0; t < COUNT_OF(types); t++)
        for (int i = 0; i < COUNT_OF(divisors); i++)
            if (ir_type_bytes(types[t]) == 8 || (int32_t)divisors[i] != 0)
                check_division(types[t], divisors[i], from, out);
}

RUN_TESTS(open_device, close_device)
