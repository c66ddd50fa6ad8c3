/* unit_emulator.c - the emulated GPU: devices, arithmetic, control flow, memory, exchange between lanes, barriers. */
#include "unit_emulator.h"

static ckl_device *gpu;

static int open_gpu(void **state)
{
    (void)state;
    gpu = test_open("");
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu->ops->close(gpu);
    return 0;
}

/* z[i] = x[i] + y[i] over a grid that is larger than n */
static void describe_add(void)
{
    val x = ir_scalar_param(IR_U64, "x"), y = ir_scalar_param(IR_U64, "y"), z = ir_scalar_param(IR_U64, "z");
    val n = ir_scalar_param(IR_U32, "n");
    val i = ir_fma(ir_sreg(IR_CTA_X), ir_int(IR_U32, ir_current()->threads), ir_sreg(IR_TID_X));
    ir_if(ir_compare(IR_LT, i, n));
    val sum = ir_binary(IR_ADD, test_load_value(IR_GLOBAL, CKL_F32, test_element(x, i, 4), 0),
                        test_load_value(IR_GLOBAL, CKL_F32, test_element(y, i, 4), 0));
    test_store_value(IR_GLOBAL, CKL_F32, test_element(z, i, 4), 0, sum);
    ir_end_if();
}

static void test_add(void **state)
{
    (void)state;
    uint32_t n = 1000003;
    float *host = malloc(n * sizeof *host);
    for (uint32_t i = 0; i < n; i++)
        host[i] = (float)i * 0.5F;
    void *x = test_upload(gpu, host, n * sizeof *host), *z = test_upload(gpu, NULL, n * sizeof *host);
    test_kernel k = { describe_add, IR_SM80, .threads = 256, .grid = (n + 255) / 256 };
    if (test_run(gpu, k, (void *[]){ &x, &x, &z, &n }) != CKL_OK)
        fail_msg("%s", ckl_error());
    assert_int_equal(gpu->ops->copy_out(gpu, host, z, n * sizeof *host, NULL), CKL_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_true(host[i] == (float)i);
    gpu->ops->release(gpu, x);
    gpu->ops->release(gpu, z);
    free(host);
}

/* Runs one describe function with one output array of `count` 32-bit words. */
static void run_into(void (*describe)(void), int threads, int64_t grid, uint32_t *out, size_t count)
{
    memset(out, 0xee, count * sizeof *out);
    void *memory = test_upload(gpu, out, count * sizeof *out);
    test_kernel k = { describe, IR_SM90A, .threads = threads, .grid = grid };
    if (test_run(gpu, k, (void *[]){ &memory }) != CKL_OK)
        fail_msg("%s", ckl_error());
    assert_int_equal(gpu->ops->copy_out(gpu, out, memory, count * sizeof *out, NULL), CKL_OK);
    gpu->ops->release(gpu, memory);
}

static val out_param(void)
{
    HERE;
    return ir_scalar_param(IR_U64, "out");
}

/* out[thread of the grid] = x */
static void put(val out, val x)
{
    val thread = ir_fma(ir_sreg(IR_CTA_X), ir_int(IR_U32, ir_current()->threads), ir_sreg(IR_TID_X));
    test_store_value(IR_GLOBAL, IR_U32, test_element(out, thread, 4), 0, x);
}

static val u32(int64_t x)
{
    return ir_int(IR_U32, x);
}

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
    { IR_MUL, IR_U16, 0, 0, 0xffff, 0xffff, 0, 1 },
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
    { IR_RCP, CKL_F32, 0, 0, 0x40400000, 0, 0, 0x3eaaaaab },
    { IR_RSQRT, CKL_F32, 0, 0, 0x40800000, 0, 0, 0x3f000000 },
    { IR_EX2, CKL_F32, 0, 0, 0xc2fe0000, 0, 0, 0x00400000 }, // 2^-127
    { IR_LG2, CKL_F32, 0, 0, 0x41000000, 0, 0, 0x40400000 },
    { IR_ADD, CKL_F64, 0, 0, 0x3ff0000000000000, 0x3ca0000000000000, 0, 0x3ff0000000000000 },
    { IR_ADD, CKL_F16, 0, 0, 0x3c00, 0x1001, 0, 0x3c01 },       // 1 + just over half an ulp
    { IR_MUL, CKL_F16, 0, 0, 0x0001, 0x3800, 0, 0x0000 },       // 2^-25: a tie, to even
    { IR_FMA, CKL_F16, 0, 0, 0x3c01, 0x3c01, 0xbc02, 0x0010 },  // 2^-20, lost without fusing
    { IR_ADD, CKL_F16, 0, 0, 0x7bff, 0x4c00, 0, 0x7c00 },       // overflow
    { IR_FMA, CKL_BF16, 0, 0, 0x3f81, 0x3f81, 0x0001, 0x3f82 }, // 1.00001111.. cut; the tiny addend cannot matter
    { IR_FMA, CKL_BF16, 0, 0, 0x3f81, 0x4040, 0x0001, 0x4042 }, // 3.0234375: a tie, which the tiny addend breaks
    { IR_ADD, IR_F16X2, 0, 0, 0x3c004000, 0x3c003c00, 0, 0x40004200 },
    { IR_MAX, IR_BF16X2, 0, 0, 0x3f80c000, 0x40003f80, 0, 0x40003f80 },
    { IR_NEG, IR_F16X2, 0, 0, 0x3c004000, 0, 0, 0xbc00c000 },
    { IR_CONVERT, CKL_I32, CKL_F32, 0, 0xbfe00000, 0, 0, 0xffffffff }, // -1.75 truncates
    { IR_CONVERT, CKL_I32, CKL_F32, 0, 0x4f800000, 0, 0, 0x7fffffff }, // 2^32 saturates
    { IR_CONVERT, IR_U32, CKL_F32, 0, 0xbf800000, 0, 0, 0 },
    { IR_CONVERT, CKL_I32, CKL_F32, 0, 0x7fc00000, 0, 0, 0 },
    { IR_CONVERT, CKL_F32, CKL_I32, 0, 0x01000001, 0, 0, 0x4b800000 }, // 2^24 + 1: a tie, to even
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
    { IR_CONVERT, CKL_F16, CKL_F64, 0, 0x3ff0020000000001, 0, 0, 0x3c01 }, // rounds once
    { IR_CONVERT, CKL_E4M3, CKL_F32, 0, 0x44000000, 0, 0, 0x7e },          // 512 becomes 448
    { IR_CONVERT, CKL_F32, CKL_E5M2, 0, 0x3c, 0, 0, 0x3f800000 },
    { IR_BITCAST, IR_U32, CKL_F32, 0, 0xbf800000, 0, 0, 0xbf800000 },
    { IR_PACK, IR_F16X2, CKL_F32, 0, 0x3f800000, 0x40000000, 0, 0x40003c00 },
    { IR_PACK, IR_U64, IR_U32, 0, 1, 2, 0, 0x200000001 },
    { IR_MIN, CKL_F64, 0, 0, 0, 0x8000000000000000, 0, 0x8000000000000000 }, // -0 is below +0
    { IR_MIN, CKL_F64, 0, 1, 0x8000000000000000, 0, 0, 0x8000000000000000 },
    { IR_MAX, CKL_F64, 0, 0, 0x8000000000000000, 0, 0, 0 },
    { IR_MAX, CKL_F64, 0, 1, 0, 0x8000000000000000, 0, 0 },
    { IR_MIN, CKL_F64, 0, 1, 0x7ff8000000000000, 0x3ff0000000000000, 0, 0x7ff8000000000000 },
    { IR_MIN, CKL_F64, 0, 1, 0x3ff0000000000000, 0x7ff8000000000000, 0, 0x7ff8000000000000 },
    { IR_MAX, CKL_F64, 0, 1, 0x7ff8000000000000, 0x3ff0000000000000, 0, 0x7ff8000000000000 },
    { IR_MAX, CKL_F64, 0, 1, 0x3ff0000000000000, 0x7ff8000000000000, 0, 0x7ff8000000000000 },
    { IR_MIN, CKL_F64, 0, 0, 0x7ff8000000000000, 0x3ff0000000000000, 0, 0x3ff0000000000000 },
    { IR_RCP, CKL_F64, 0, 0, 0x4008000000000000, 0, 0, 0x3fd5555555555555 },
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
    val out = ir_scalar_param(IR_U64, "out");
    val in[] = { ir_scalar_param(from, "x"), ir_scalar_param(shift ? IR_U32 : from, "y"), ir_scalar_param(from, "z") };
    val result = ir_reg(c->op == IR_COMPARE ? IR_PRED : type);
    ir_emit((ir_inst){ .op = c->op, .type = c->type, .from = c->from, .mode = c->mode }, 1, &result, 3, in);
    if (c->op == IR_COMPARE)
        result = ir_select(result, u32(1), u32(0));
    test_store_value(IR_GLOBAL, result.type, out, 0, result);
}

static void test_arithmetic(void **state)
{
    (void)state;
    void *out = test_upload(gpu, NULL, 8);
    for (int i = 0; i < COUNT_OF(arithmetic); i++) {
        uint64_t got = 0, x = arithmetic[i].x, y = arithmetic[i].y, z = arithmetic[i].z;
        current = &arithmetic[i];
        assert_int_equal(gpu->ops->fill(gpu, out, 0, 8, NULL), CKL_OK);
        if (test_run(gpu, (test_kernel){ describe_arithmetic, IR_SM90A, .threads = 32 },
                     (void *[]){ &out, &x, &y, &z }) != CKL_OK)
            fail_msg("%s", ckl_error());
        assert_int_equal(gpu->ops->copy_out(gpu, &got, out, 8, NULL), CKL_OK);
        if (got != current->expected)
            fail_msg("case %d, %s.%s: 0x%" PRIx64 " instead of 0x%" PRIx64, i, ir_op_text(current->op),
                     ir_type_text(current->type), got, current->expected);
    }
    gpu->ops->release(gpu, out);
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
    HERE;
    val out = ir_scalar_param(IR_U64, "out"), from = ir_scalar_param(IR_U64, "numbers");
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
    if (test_run(gpu, k, (void *[]){ &out, &from, &y }) != CKL_OK)
        fail_msg("%s", ckl_error());
    assert_int_equal(gpu->ops->copy_out(gpu, got, out, sizeof got, NULL), CKL_OK);
    for (int i = 0; i < COUNT_OF(numbers); i++) {
        divide(type, numbers[i], y, &quotient, &remainder);
        if (got[i][0] != quotient || got[i][2] != quotient || got[i][1] != remainder || got[i][3] != remainder)
            fail_msg("%" PRId64 " by %" PRId64 " in %s: %" PRId64 " and %" PRId64 ", by a parameter %" PRId64
                     " and %" PRId64,
                     numbers[i], y, ir_type_text(type), got[i][0], got[i][1], got[i][2], got[i][3]);
    }
}

static void test_division(void **state)
{
    (void)state;
    static const ir_type types[] = { CKL_I64, IR_U64, CKL_I32, IR_U32 };
    void *from = test_upload(gpu, numbers, sizeof numbers), *out = test_upload(gpu, NULL, 4 * sizeof numbers);
    for (int t = 0; t < COUNT_OF(types); t++)
        for (int i = 0; i < COUNT_OF(divisors); i++)
            if (ir_type_bytes(types[t]) == 8 || (int32_t)divisors[i] != 0)
                check_division(types[t], divisors[i], from, out);
    gpu->ops->release(gpu, from);
    gpu->ops->release(gpu, out);
}

/* Control flow */

/* Steps of the Collatz sequence of every thread's number: a loop that each lane leaves at another time. */
static void describe_collatz(void)
{
    val out = out_param(), x = ir_reg(IR_U32), steps = ir_reg(IR_U32);
    ir_assign(x, ir_binary(IR_ADD, ir_sreg(IR_TID_X), u32(1)));
    ir_assign(steps, u32(0));
    ir_loop();
    ir_break(ir_compare(IR_EQ, x, u32(1)));
    ir_if(ir_compare(IR_EQ, ir_binary(IR_AND, x, u32(1)), u32(0)));
    ir_assign(x, ir_binary(IR_SHR, x, u32(1)));
    ir_else();
    ir_assign(x, ir_fma(x, u32(3), u32(1)));
    ir_if(ir_compare(IR_GT, steps, u32(20))); // a break inside two IFs
    ir_break(ir_compare(IR_GT, x, u32(200)));
    ir_end_if();
    ir_end_if();
    ir_assign(steps, ir_binary(IR_ADD, steps, u32(1)));
    ir_end_loop();
    put(out, steps);
}

static uint32_t collatz(uint32_t x)
{
    uint32_t steps = 0;
    for (; x != 1; steps++) {
        if (x % 2 == 0) {
            x /= 2;
            continue;
        }
        x = 3 * x + 1;
        if (steps > 20 && x > 200)
            break;
    }
    return steps;
}

static void test_collatz(void **state)
{
    (void)state;
    uint32_t out[128];
    run_into(describe_collatz, 128, 1, out, 128);
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(out[i], collatz(i + 1));
}

/* Lanes that leave early are missed neither by a barrier nor by the lanes that stay. */
static void describe_exit(void)
{
    val out = out_param(), tid = ir_sreg(IR_TID_X), x = ir_reg(IR_U32);
    ir_assign(x, u32(5));
    ir_if(ir_compare(IR_LT, tid, u32(40)));
    ir_if(ir_compare(IR_LT, ir_sreg(IR_LANE), u32(7)));
    ir_plain(IR_EXIT, 0, 0);
    ir_end_if();
    ir_assign(x, u32(6));
    ir_end_if();
    ir_bar_sync(u32(0), 64);
    put(out, x);
}

static void test_exit(void **state)
{
    (void)state;
    uint32_t out[64];
    run_into(describe_exit, 64, 1, out, 64);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(out[i], i < 40 ? (i % 32 < 7 ? 0xeeeeeeee : 6) : 5);
}

/* Lanes among themselves */

static void describe_exchange(void)
{
    val out = out_param(), lane = ir_sreg(IR_LANE);
    val odd = ir_compare(IR_EQ, ir_binary(IR_AND, lane, u32(1)), u32(1));
    val x = ir_shuffle(IR_SHFL_XOR, lane, u32(5), 32);                                 // lane ^ 5
    x = ir_fma(ir_shuffle(IR_SHFL_UP, lane, u32(3), 16), u32(100), x);                 // within 16 lanes
    x = ir_fma(ir_shuffle(IR_SHFL_DOWN, lane, u32(2), 32), u32(10000), x);             // the last two keep theirs
    x = ir_fma(ir_shuffle(IR_SHFL_IDX, lane, u32(9), 8), u32(1000000), x);             // lane 1 of each 8
    x = ir_binary(IR_ADD, x, ir_redux(IR_RED_ADD, lane));                              // 496
    x = ir_binary(IR_ADD, x, ir_select(ir_vote(IR_VOTE_ALL, odd), u32(7777), u32(0))); // no
    x = ir_binary(IR_ADD, x, ir_select(ir_vote(IR_VOTE_ANY, odd), u32(1), u32(0)));    // yes
    x = ir_binary(IR_XOR, x, ir_binary(IR_AND, ir_vote(IR_VOTE_BALLOT, odd), u32(0x80000000))); // lane 31 is odd
    x = ir_binary(IR_ADD, x, ir_select(ir_elect(), u32(2), u32(0)));                            // lane 0
    put(out, x);
}

static void test_exchange(void **state)
{
    (void)state;
    uint32_t out[32];
    run_into(describe_exchange, 32, 1, out, 32);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t up = i % 16 < 3 ? i : i - 3, down = i + 2 > 31 ? i : i + 2;
        uint32_t x = (i ^ 5) + 100 * up + 10000 * down + 1000000 * (i / 8 * 8 + 1) + 496 + 1;
        assert_int_equal(out[i], (x ^ 0x80000000) + (i == 0 ? 2 : 0));
    }
}

/* Memory */

/* Vector loads, sign extension of bytes, a byte store, atomics with and without result. */
static void describe_memory(void)
{
    val out = out_param(), tid = ir_sreg(IR_TID_X), v[4], byte = ir_reg(CKL_I16);
    val first = u32(0x81828384), row = test_element(out, tid, 16);
    test_store_value(IR_GLOBAL, IR_U32, row, 0, first);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_I8, 1, row, 1, &byte); // 0x83
    test_store_value(IR_GLOBAL, CKL_I8, row, 7, byte);
    for (int i = 0; i < 4; i++)
        v[i] = ir_reg(IR_U32);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, row, 0, v); // 81828384 83eeeeee eeeeeeee eeeeeeee
    v[2] = ir_bitcast(IR_U32, ir_convert(CKL_I32, byte));
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 2, row, 8, v + 2);
}

static void test_memory(void **state)
{
    (void)state;
    uint32_t out[32 * 4];
    run_into(describe_memory, 32, 1, out, 32 * 4);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(out[4 * i], 0x81828384);
        assert_int_equal(out[4 * i + 1], 0x83eeeeee);
        assert_int_equal(out[4 * i + 2], 0xffffff83);
        assert_int_equal(out[4 * i + 3], 0xeeeeeeee);
    }
}

/*
 * A counter that every thread draws from, and sums of every type, in words that the host prepared: 0 counter, 1 f32, 2
 * f16x2, 3 min, 4 flags.
 */
static void describe_atomics(void)
{
    val out = out_param(), tid = ir_sreg(IR_TID_X);
    val thread = ir_fma(ir_sreg(IR_CTA_X), u32(64), tid);
    val number = ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, out, 0, u32(1), u32(0));
    ir_reduce(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, out, 4, ir_float(CKL_F32, 0.5));
    val pair = ir_bitcast(IR_F16X2, u32(0x00003c00));
    ir_reduce(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, out, 8, pair);
    ir_reduce(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_MIN, out, 12, ir_binary(IR_SUB, u32(1000), thread));
    val was = ir_atomic(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_CAS, out, 16, u32(0), ir_binary(IR_ADD, number, u32(1)));
    ir_if(ir_compare(IR_EQ, was, u32(0))); // one winner in the grid
    ir_reduce(IR_GLOBAL, IR_SCOPE_GPU, IR_RED_ADD, out, 20, u32(1));
    ir_end_if();
    test_store_value(IR_GLOBAL, IR_U32, test_element(out, number, 4), 32, u32(1)); // each number once
}

static void test_atomics(void **state)
{
    (void)state;
    uint32_t out[8 + 512] = { 0, 0, 0, UINT32_MAX };
    void *memory = test_upload(gpu, out, sizeof out);
    test_kernel k = { describe_atomics, IR_SM80, .threads = 64, .grid = 8 };
    if (test_run(gpu, k, (void *[]){ &memory }) != CKL_OK)
        fail_msg("%s", ckl_error());
    assert_int_equal(gpu->ops->copy_out(gpu, out, memory, sizeof out, NULL), CKL_OK);
    gpu->ops->release(gpu, memory);
    float sum;
    memcpy(&sum, &out[1], sizeof sum);
    assert_int_equal(out[0], 512);
    assert_true(sum == 256);
    assert_int_equal(out[2], 0x6000); // 512 in f16
    assert_int_equal(out[3], 1000 - 511);
    assert_int_equal(out[5], 1);
    for (int i = 0; i < 512; i++)
        assert_int_equal(out[8 + i], 1);
}

/* Barriers: producer warps hand over through named barriers, arrive on one side, sync on the other. */
static void describe_handover(void)
{
    val out = out_param(), tid = ir_sreg(IR_TID_X), lane4 = ir_binary(IR_MUL, ir_sreg(IR_LANE), u32(4));
    val cell = ir_binary(IR_ADD, ir_smem_address(ir_smem_alloc("x", 128, 128)), lane4), i = ir_reg(IR_U32);
    val sum = ir_reg(IR_U32);
    ir_assign(i, u32(0));
    ir_assign(sum, u32(0));
    ir_loop();
    ir_break(ir_compare(IR_EQ, i, u32(10)));
    ir_if(ir_compare(IR_LT, tid, u32(32)));
    test_store_value(IR_SHARED, IR_U32, cell, 0, ir_binary(IR_MUL, i, i));
    ir_bar_arrive(u32(1), 64); // full
    ir_bar_sync(u32(2), 64);   // empty
    ir_else();
    ir_bar_sync(u32(1), 64);
    ir_assign(sum, ir_binary(IR_ADD, sum, test_load_value(IR_SHARED, IR_U32, cell, 0)));
    ir_bar_arrive(u32(2), 64);
    ir_end_if();
    ir_assign(i, ir_binary(IR_ADD, i, u32(1)));
    ir_end_loop();
    put(out, sum);
}

static void test_handover(void **state)
{
    (void)state;
    uint32_t out[64];
    run_into(describe_handover, 64, 1, out, 64);
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], i < 32 ? 0 : 285);
}

/* ldmatrix gives what stmatrix took, transposed both ways. */
static void describe_matrices(void)
{
    val out = out_param(), lane = ir_sreg(IR_LANE), x[4], y[4];
    val row = ir_binary(IR_ADD, ir_smem_address(ir_smem_alloc("x", 512, 128)), ir_binary(IR_MUL, lane, u32(16)));
    for (int i = 0; i < 4; i++) {
        x[i] = ir_fma(lane, u32(0x00080008), u32(0x00010000 + 0x01000100 * i));
        y[i] = ir_reg(IR_U32);
    }
    ir_stmatrix(4, false, row, 0, x);
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_ldmatrix(4, true, row, 0, y);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, test_element(out, lane, 16), 0, y);
}

static void test_matrices(void **state)
{
    (void)state;
    uint32_t out[32 * 4];
    run_into(describe_matrices, 32, 1, out, 32 * 4);
    uint16_t stored[4][8][8];
    for (uint32_t m = 0; m < 4; m++)
        for (uint32_t lane = 0; lane < 32; lane++)
            for (uint32_t half = 0; half < 2; half++)
                stored[m][lane / 4][lane % 4 * 2 + half] = (uint16_t)(8 * lane + half + 0x100 * m);
    for (uint32_t m = 0; m < 4; m++)
        for (uint32_t lane = 0; lane < 32; lane++)
            for (uint32_t half = 0; half < 2; half++)
                assert_int_equal((uint16_t)(out[4 * lane + m] >> 16 * half), stored[m][lane % 4 * 2 + half][lane / 4]);
}

/* The device itself */

static void test_models(void **state)
{
    (void)state;
    ckl_device *l4 = NULL;
    device_kernel *loaded = NULL;
    assert_int_equal(emulator_open("l4", &l4), CKL_OK);
    assert_int_equal(l4->info.sm_count, 58);
    assert_false(l4->info.has_tma);
    assert_int_equal(test_load(l4, (test_kernel){ describe_add, IR_SM90A, .threads = 32 }, &loaded), CKL_UNSUPPORTED);
    assert_non_null(strstr(ckl_error(), "wgmma"));
    l4->ops->close(l4);
    assert_int_equal(emulator_open("h900", &l4), CKL_INVALID);
    assert_string_equal(ckl_error(), "emulator:h900 is not known; there are h200, h100, b200, a100, l4");
    emulator_options options = emulator_options_default();
    assert_int_equal(emulator_options_parse("seed=7 completion=eager schedule=random budget=10 threads=2", &options),
                     CKL_OK);
    assert_true(options.seed == 7 && options.completion == COMPLETION_EAGER && options.schedule == SCHEDULE_RANDOM);
    assert_int_equal(emulator_options_parse("completion=later", &options), CKL_INVALID);
    assert_int_equal(emulator_options_parse("speed=11", &options), CKL_INVALID);
}

static void describe_clustered(void)
{
    ir_smem_alloc("x", 200 * 1024, 128);
}

static void test_residency(void **state)
{
    (void)state;
    device_kernel *loaded = NULL;
    int count = 0;
    assert_int_equal(
        test_load(gpu, (test_kernel){ describe_clustered, IR_SM90A, .threads = 384, .cluster = 2 }, &loaded), CKL_OK);
    assert_int_equal(gpu->ops->clusters_resident(gpu, loaded, &count), CKL_OK);
    assert_int_equal(count, 66);
    gpu->ops->unload(gpu, loaded);
    assert_int_equal(test_load(gpu, (test_kernel){ describe_add, IR_SM80, .threads = 256 }, &loaded), CKL_OK);
    assert_int_equal(gpu->ops->clusters_resident(gpu, loaded, &count), CKL_OK);
    assert_int_equal(count, 132 * 8);
    gpu->ops->unload(gpu, loaded);
}

static void test_host_memory(void **state)
{
    (void)state;
    unsigned char host[64] = { 0 };
    void *memory = test_upload(gpu, NULL, 64), *sparse = NULL;
    assert_int_equal(gpu->ops->copy_in(gpu, (char *)memory + 32, host, 33, NULL), CKL_INVALID);
    assert_non_null(strstr(ckl_error(), "1 bytes past the end of the allocation of 64 bytes"));
    assert_int_equal(gpu->ops->copy_out(gpu, host, memory, 64, NULL), CKL_OK);
    assert_int_equal(host[63], 0xff); // fresh memory is poison
    assert_int_equal(gpu->ops->alloc(gpu, (size_t)100 << 30, &sparse), CKL_OK);
    assert_int_equal(gpu->ops->fill(gpu, (char *)sparse + ((size_t)99 << 30), 1, 64, NULL), CKL_OK);
    void *more = NULL;
    assert_int_equal(gpu->ops->alloc(gpu, (size_t)100 << 30, &more), CKL_NO_MEMORY);
    gpu->ops->release(gpu, sparse);
    assert_int_equal(gpu->ops->fill(gpu, sparse, 0, 1, NULL), CKL_INVALID);
    gpu->ops->release(gpu, memory);
}

static void test_counters(void **state)
{
    (void)state;
    gpu->ops->counters_reset(gpu);
    float host[1024] = { 0 };
    uint32_t n = 1000;
    void *x = test_upload(gpu, host, sizeof host);
    test_kernel k = { describe_add, IR_SM80, .threads = 256, .grid = 4 };
    assert_int_equal(test_run(gpu, k, (void *[]){ &x, &x, &x, &n }), CKL_OK);
    assert_int_equal(test_counter(gpu, "ctas", NULL), 4);
    assert_int_equal(test_counter(gpu, "warp instructions", NULL), 32 * 23); // every warp executes all
    const int64_t of_classes = test_counter(gpu, "alu instructions", NULL) +
                               test_counter(gpu, "memory instructions", NULL) +
                               test_counter(gpu, "control instructions", NULL);
    assert_int_equal(of_classes, 32 * 23);
    assert_int_equal(test_counter(gpu, "sfu instructions", NULL), 0);
    assert_int_equal(test_counter(gpu, "memory instructions", NULL), 32 * 3);
    assert_int_equal(test_counter(gpu, "global bytes read", NULL), 2 * 4 * 1000);
    assert_int_equal(test_counter(gpu, "global write sectors", NULL), 125);
    assert_int_equal(test_counter(gpu, "global write requests", NULL), 32);
    gpu->ops->release(gpu, x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),      cmocka_unit_test(test_arithmetic), cmocka_unit_test(test_collatz),
        cmocka_unit_test(test_exit),     cmocka_unit_test(test_exchange),   cmocka_unit_test(test_memory),
        cmocka_unit_test(test_atomics),  cmocka_unit_test(test_handover),   cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_models),   cmocka_unit_test(test_residency),  cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_counters), cmocka_unit_test(test_division),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
