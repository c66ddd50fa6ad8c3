/* unit_matrix.c - the emulated tensor core against exact integers, hand-computed sums and a slow model in 128 bits. */
#include <float.h>
#include <math.h>

#include "unit.h"
#include "base/dtype.h"
#include "base/math.h"
#include "base/random.h"
#include "device/emulator/matrix.h"

static uint16_t narrow(ckl_dtype from, float x)
{
    return from == CKL_F16 ? f16_from_f32(x) : bf16_from_f32(x);
}

static uint32_t random_bits(void)
{
    static uint64_t state = 42;
    return (uint32_t)(random_next(&state) >> 32);
}

/* A small whole number, exact in either type. */
static float random_integer(void)
{
    return (float)((int)(random_bits() % 17) - 8);
}

/* --- The slow model: each term as a fixed-point number of 128 bits --- */

__extension__ typedef __int128 wide;

typedef struct term {
    wide significand; // value = significand * 2^(exponent - fraction_bits)
    int exponent, fraction_bits;
} term;

static term term_of(uint32_t bits, int exponent_bits, int fraction_bits)
{
    int field = (int)(bits >> fraction_bits & ((1u << exponent_bits) - 1)), bias = (1 << (exponent_bits - 1)) - 1;
    wide fraction = bits & ((1u << fraction_bits) - 1);
    if (field)
        fraction += 1u << fraction_bits;
    bool negative = bits >> (exponent_bits + fraction_bits) & 1;
    int exponent = fraction == 0 ? -1000 : (field ? field : 1) - bias; // a zero has none
    return (term){ negative ? -fraction : fraction, exponent, fraction_bits };
}

/* Element k of a raw row. */
static term operand(ckl_dtype from, const unsigned char *raw, int k)
{
    uint32_t bits = 0;
    memcpy(&bits, raw + k * (int)ckl_dtype_bytes(from), ckl_dtype_bytes(from));
    switch (from) {
    case CKL_F16:
        return term_of(bits, 5, 10);
    case CKL_BF16:
        return term_of(bits, 8, 7);
    case CKL_F32:
        return term_of(bits >> 13, 8, 10);
    case CKL_E4M3:
        return term_of(bits, 4, 3);
    default:
        return term_of(bits, 5, 2);
    }
}

static wide shifted(wide x, int left)
{
    bool negative = x < 0;
    wide magnitude = negative ? -x : x;
    magnitude = left >= 0 ? magnitude << left : left > -127 ? magnitude >> -left : 0;
    return negative ? -magnitude : magnitude;
}

/* sum * 2^scale with some bits of fraction, towards zero. */
static float round_down(wide sum, int scale, int fraction_bits)
{
    wide magnitude = sum < 0 ? -sum : sum;
    int top = -1;
    while (magnitude >> (top + 1))
        top++;
    if (sum == 0)
        return 0;
    if (top + scale >= 128)
        return sum < 0 ? -INFINITY : INFINITY;
    int lowest = -126 - fraction_bits, unit = top + scale - fraction_bits;
    unit = unit > lowest ? unit : lowest;
    return ldexpf((float)(int32_t)shifted(sum, scale - unit), unit) + 0.0f;
}

static bool is_f8(ckl_dtype type)
{
    return ckl_dtype_bytes(type) == 1;
}

static float slow_step(const tensor_core *core, matrix_types types, const unsigned char *a, const unsigned char *b,
                       float d)
{
    term terms[33] = { term_of(bits_of_float(d), 8, 23) };
    int common = terms[0].exponent < -133 ? -133 : terms[0].exponent,
        count = core->bytes / (int)ckl_dtype_bytes(types.a);
    int kept = is_f8(types.a) ? core->fraction_bits_f8 : core->fraction_bits;
    for (int k = 0; k < count; k++) {
        term x = operand(types.a, a, k), y = operand(types.b, b, k);
        terms[k + 1] =
            (term){ x.significand * y.significand, x.exponent + y.exponent, x.fraction_bits + y.fraction_bits };
        common = terms[k + 1].exponent > common ? terms[k + 1].exponent : common;
    }
    wide sum = 0;
    for (int i = 0; i < count + 1; i++)
        sum += shifted(terms[i].significand, kept - terms[i].fraction_bits + terms[i].exponent - common);
    return round_down(sum, common - kept, is_f8(types.a) ? kept : 23);
}

/* 0.5 with random signs, fractions and some bits of the exponent, and zeros; of tf32 the bits below do not count. */
static void fill_operand(ckl_dtype type, unsigned char *raw, int count, uint32_t exponent_mask)
{
    static const uint32_t halves[] = {
        [CKL_F16] = 0x3800, [CKL_BF16] = 0x3f00, [CKL_F32] = 0x3f000000, [CKL_E4M3] = 0x30, [CKL_E5M2] = 0x38,
    };
    static const uint32_t fractions[] = {
        [CKL_F16] = 0x3ff, [CKL_BF16] = 0x7f, [CKL_F32] = 0x7fffff, [CKL_E4M3] = 7, [CKL_E5M2] = 3,
    };
    int bytes = (int)ckl_dtype_bytes(type);
    uint32_t keep = 1u << (8 * bytes - 1) | exponent_mask | fractions[type];
    for (int i = 0; i < count; i++) {
        uint32_t bits = random_bits() % 8 ? (random_bits() & keep) ^ halves[type] : 0;
        memcpy(raw + i * bytes, &bits, (size_t)bytes);
    }
}

static void check_core(const tensor_core *core, matrix_types types, int m, int n, int k, uint32_t exponent_mask)
{
    int bytes = (int)ckl_dtype_bytes(types.a);
    unsigned char *a = malloc((size_t)(m * k * bytes)), *b = malloc((size_t)(n * k * bytes));
    float *d = malloc((size_t)(m * n) * 4), *expected = malloc((size_t)(m * n) * 4);
    fill_operand(types.a, a, m * k, exponent_mask);
    fill_operand(types.b, b, n * k, exponent_mask);
    for (int i = 0; i < m * n; i++) {
        d[i] = expected[i] = random_bits() % 4 ? ldexpf((float)(int)random_bits(), -33) : 0;
        for (int at = 0; at < k * bytes; at += core->bytes)
            expected[i] = slow_step(core, types, a + i / n * k * bytes + at, b + i % n * k * bytes + at, expected[i]);
    }
    matrix_multiply(&(matrix_product){ core, types, m, n, k }, a, b, d, true);
    assert_memory_equal(d, expected, (size_t)(m * n) * 4);
    free(a), free(b), free(d), free(expected);
}

static void check_pair(matrix_types types, int m, int n, int k, uint32_t exponent_mask)
{
    check_core(&TENSOR_CORE_HOPPER, types, m, n, k, exponent_mask);
    check_core(&TENSOR_CORE_AMPERE, types, m, n, k, exponent_mask);
}

static void check_against_slow(ckl_dtype from, int m, int n, int k, uint32_t exponent_mask)
{
    check_pair((matrix_types){ from, from }, m, n, k, exponent_mask);
}

/* Masks of the exponent's bits that are drawn at random round 0.5; infinities and NaNs stay out of reach. */
TEST(random)
{
    static const uint32_t f16_masks[] = { 0, 0x0400, 0x0c00, 0x1c00, 0x3c00 };
    static const uint32_t bf16_masks[] = { 0, 0x0080, 0x0380, 0x0780, 0x1f80, 0x3f80 };
    for (int i = 0; i < COUNT_OF(f16_masks); i++)
        check_against_slow(CKL_F16, 64, 72, 64, f16_masks[i]);
    for (int i = 0; i < COUNT_OF(bf16_masks); i++)
        check_against_slow(CKL_BF16, 64, 72, 64, bf16_masks[i]);
    check_against_slow(CKL_F16, 3, 256, 16, 0x1c00);
    check_against_slow(CKL_BF16, 1, 519, 32, 0x0f80); // more columns than are worked on at once
    check_against_slow(CKL_F16, 5, 1, 16, 0x0c00);
}

TEST(random_widths)
{
    static const uint32_t tf32_masks[] = { 0, 0x00800000, 0x07800000, 0x1f800000, 0x3f800000 };
    static const uint32_t f8_masks[] = { 0, 0x08, 0x18, 0x3c };
    static const ckl_dtype f8[] = { CKL_E4M3, CKL_E5M2 };
    for (int i = 0; i < COUNT_OF(tf32_masks); i++)
        check_against_slow(CKL_F32, 16, 72, 32, tf32_masks[i]);
    for (int i = 0; i < COUNT_OF(f8_masks); i++)
        for (int pair = 0; pair < 4; pair++)
            check_pair((matrix_types){ f8[pair / 2], f8[pair % 2] }, 16, 72, 96, f8_masks[i]);
}

/* Sums of bytes, signed and not, that leave 32 bits. */
static void check_bytes(matrix_types types)
{
    enum { M = 5, N = 9, K = 64 };
    unsigned char a[M * K], b[N * K];
    uint32_t d[M * N], expected[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (unsigned char)random_bits();
    for (int i = 0; i < N * K; i++)
        b[i] = (unsigned char)random_bits();
    for (int i = 0; i < M * N; i++) {
        d[i] = expected[i] = 0x7fffff00;
        for (int k = 0; k < K; k++) {
            int x = types.a == CKL_I8 ? (int8_t)a[i / N * K + k] : a[i / N * K + k];
            int y = types.b == CKL_I8 ? (int8_t)b[i % N * K + k] : b[i % N * K + k];
            expected[i] += (uint32_t)(x * y);
        }
    }
    matrix_multiply(&(matrix_product){ &TENSOR_CORE_HOPPER, types, M, N, K }, a, b, d, true);
    assert_memory_equal(d, expected, sizeof d);
}

TEST(bytes)
{
    static const ckl_dtype bytes[] = { CKL_I8, CKL_U8 };
    for (int pair = 0; pair < 4; pair++)
        check_bytes((matrix_types){ bytes[pair / 2], bytes[pair % 2] });
}

/* NaN of either 8-bit type, and the infinity that e5m2 alone has; the largest e4m3 is a number. */
TEST(special_bytes)
{
    static const struct {
        ckl_dtype type;
        unsigned char bits;
        uint32_t expected;
    } cases[] = { { CKL_E4M3, 0x7f, 0x7fffffff }, { CKL_E4M3, 0xff, 0x7fffffff }, { CKL_E4M3, 0x7e, 0x43e00000 },
                  { CKL_E5M2, 0x7c, 0x7f800000 }, { CKL_E5M2, 0xfc, 0xff800000 }, { CKL_E5M2, 0x7d, 0x7fffffff } };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        unsigned char a[32] = { [17] = cases[i].bits }, b[32] = { [17] = 0x38 }; // 1 in e4m3
        float d = 0;
        matrix_multiply(&(matrix_product){ &TENSOR_CORE_HOPPER, { cases[i].type, CKL_E4M3 }, 1, 1, 32 }, a, b, &d,
                        true);
        assert_int_equal(bits_of_float(d), cases[i].expected);
    }
}

/* --- Exact integers --- */

static void check_integers(ckl_dtype from, bool accumulate)
{
    enum { M = 48, N = 40, K = 160 };
    static uint16_t a[M * K], b[N * K];
    static float d[M * N];
    static int64_t a_whole[M * K], b_whole[N * K], expected[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = narrow(from, (float)(a_whole[i] = (int64_t)random_integer()));
    for (int i = 0; i < N * K; i++)
        b[i] = narrow(from, (float)(b_whole[i] = (int64_t)random_integer()));
    for (int i = 0; i < M * N; i++) {
        expected[i] = accumulate ? (int64_t)random_integer() * 1000 : 0;
        d[i] = accumulate ? (float)expected[i] : NAN;
        for (int k = 0; k < K; k++)
            expected[i] += a_whole[i / N * K + k] * b_whole[i % N * K + k];
    }
    matrix_multiply(&(matrix_product){ &TENSOR_CORE_HOPPER, { from, from }, M, N, K }, a, b, d, accumulate);
    for (int i = 0; i < M * N; i++)
        assert_true(d[i] == (float)expected[i]);
}

TEST(integers)
{
    check_integers(CKL_F16, false);
    check_integers(CKL_F16, true);
    check_integers(CKL_BF16, false);
    check_integers(CKL_BF16, true);
}

/* --- Sums computed by hand --- */

typedef struct hand_case {
    const char *what;
    ckl_dtype from;
    float a[16], b[16], d;
    uint32_t expected; // bits
} hand_case;

#define REPEAT_15(x) x, x, x, x, x, x, x, x, x, x, x, x, x, x, x
#define NOT_A_NUMBER 0x7fffffffu
#define INFINITE     0x7f800000u

static const hand_case hand_cases[] = {
    { "15 terms of 2^-26 are each cut beside 1",
      CKL_F16,
      { 1, REPEAT_15(0x1p-13f) },
      { 1, REPEAT_15(0x1p-13f) },
      0,
      0x3f800000 },
    { "a negative term is cut towards zero", CKL_F16, { 1, -0x1p-13f }, { 1, 0x1p-13f }, 0, 0x3f800000 },
    { "the old d is cut as the products are", CKL_F16, { 1, -1 }, { 1024, 1023 }, 0x1p-16f, 0x3f800000 },
    { "subnormal f16 are kept", CKL_F16, { 0x1p-24f, 0x1p-24f }, { 0x1p-24f, 0x1p-23f }, 0, 0x28400000 },
    { "subnormal results are kept and cut", CKL_BF16, { 0x1p-100f, 0x1p-100f }, { 0x1p-48f, 0x1p-50f }, 0, 2 },
    { "a zero old d cuts nothing: 8 terms of 2^-152 make 2^-149",
      CKL_BF16,
      { 0x1p-100f, 0x1p-100f, 0x1p-100f, 0x1p-100f, 0x1p-100f, 0x1p-100f, 0x1p-100f, 0x1p-100f },
      { 0x1p-52f, 0x1p-52f, 0x1p-52f, 0x1p-52f, 0x1p-52f, 0x1p-52f, 0x1p-52f, 0x1p-52f },
      0,
      1 },
    { "a zero times 2^127 cuts no old d", CKL_BF16, { 0 }, { 0x1p127f }, 0x1p-25f, 0x33000000 },
    { "nor a product", CKL_BF16, { 0, 0x1p-100f }, { 0x1p127f, 0x1p-32f }, 0, 0x00020000 },
    { "no negative zero", CKL_F16, { -1 }, { 0 }, -0.0f, 0 },
    { "nor from below the smallest subnormal", CKL_BF16, { -0x1p-100f }, { 0x1p-51f }, 0, 0 },
    { "overflow is infinite", CKL_BF16, { 0x1p127f }, { 1 }, 0x1p127f, INFINITE },
    { "the largest f32 stays", CKL_BF16, { 1 }, { 1 }, FLT_MAX, 0x7f7fffff },
    { "just short of overflow is cut", CKL_BF16, { 0x1p103f }, { 0.5f }, FLT_MAX, 0x7f7fffff },
    { "infinite operand", CKL_F16, { -INFINITY, 1 }, { 2, 1 }, 0, 0xff800000 },
    { "infinite old d", CKL_F16, { 1 }, { 1 }, INFINITY, INFINITE },
    { "infinity less infinity", CKL_F16, { INFINITY, -INFINITY }, { 1, 1 }, 0, NOT_A_NUMBER },
    { "infinity times zero", CKL_BF16, { INFINITY }, { 0 }, 1, NOT_A_NUMBER },
    { "NaN operand", CKL_F16, { NAN }, { 1 }, 0, NOT_A_NUMBER },
    { "NaN old d", CKL_BF16, { 1 }, { 1 }, -NAN, NOT_A_NUMBER },
};

/* Of Hopper alone: one sum of 16 products, 25 fractional bits. */
static const hand_case hopper_cases[] = {
    { "the smallest sum",
      CKL_F16,
      { -2047, REPEAT_15(-2047) },
      { 2047, REPEAT_15(2047) },
      -0x1.fffffep20f,
      0xcc83e001 },
    { "the largest sum, 2^31 of its units",
      CKL_F16,
      { 2047, REPEAT_15(2047) },
      { 2047, REPEAT_15(2047) },
      0x1.fffffep20f,
      0x4c83e001 },
    { "the old d is kept down to 25 bits", CKL_F16, { 1, -1 }, { 1024, 1023 }, 0x1p-15f, 0x3f800100 },
    { "1.5 * 1.5 has exponent 0: 8 terms of 2^-25 make 2^-22",
      CKL_F16,
      { 1.5f, 0x1p-13f, 0x1p-13f, 0x1p-13f, 0x1p-13f, 0x1p-13f, 0x1p-13f, 0x1p-13f, 0x1p-13f },
      { 1.5f, 0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f, 0x1p-12f },
      0,
      0x40100001 },
    { "15 terms of 2^-25 are kept: 1 + 15 * 2^-25, cut to 24 bits",
      CKL_F16,
      { 1, REPEAT_15(0x1p-13f) },
      { 1, REPEAT_15(0x1p-12f) },
      0,
      0x3f800003 },
    { "1 - 2^-25 is cut to 1 - 2^-24", CKL_F16, { 1, -0x1p-13f }, { 1, 0x1p-12f }, 0, 0x3f7fffff },
    { "-1 + 2^-25 is cut to -1 + 2^-24", CKL_F16, { -1, 0x1p-13f }, { 1, 0x1p-12f }, 0, 0xbf7fffff },
};

/* Of Ampere alone: two sums of 8 products, 24 fractional bits. */
static const hand_case ampere_cases[] = {
    { "terms of 2^-25 are each cut beside 1",
      CKL_F16,
      { 1, REPEAT_15(0x1p-13f) },
      { 1, REPEAT_15(0x1p-12f) },
      0,
      0x3f800000 },
    { "7 terms of 2^-24 are kept beside 1, then cut to 3 * 2^-23; 8 of them, 2^-21, follow",
      CKL_F16,
      { 1, REPEAT_15(0x1p-12f) },
      { 1, REPEAT_15(0x1p-12f) },
      0,
      0x3f800007 },
    { "1 - 2^-25 stays 1", CKL_F16, { 1, -0x1p-13f }, { 1, 0x1p-12f }, 0, 0x3f800000 },
    { "1 - 2^-24 is exact", CKL_F16, { 1, -0x1p-12f }, { 1, 0x1p-12f }, 0, 0x3f7fffff },
    { "the first half overflows before the second could take it back",
      CKL_BF16,
      { 0x1p127f, 0, 0, 0, 0, 0, 0, 0, -0x1p127f },
      { 1, 0, 0, 0, 0, 0, 0, 0, 1 },
      0x1p127f,
      INFINITE },
};

static void check_by_hand(const tensor_core *core, const hand_case *cases, int count)
{
    for (const hand_case *c = cases; c < cases + count; c++) {
        uint16_t a[16], b[16];
        float d = c->d;
        for (int k = 0; k < 16; k++) {
            a[k] = narrow(c->from, c->a[k]);
            b[k] = narrow(c->from, c->b[k]);
        }
        matrix_multiply(&(matrix_product){ core, { c->from, c->from }, 1, 1, 16 }, a, b, &d, true);
        if (bits_of_float(d) != c->expected)
            fail_msg("%s: 0x%08x, expected 0x%08x", c->what, bits_of_float(d), c->expected);
    }
}

TEST(hand_cases)
{
    check_by_hand(&TENSOR_CORE_HOPPER, hand_cases, COUNT_OF(hand_cases));
    check_by_hand(&TENSOR_CORE_HOPPER, hopper_cases, COUNT_OF(hopper_cases));
    check_by_hand(&TENSOR_CORE_AMPERE, hand_cases, COUNT_OF(hand_cases));
    check_by_hand(&TENSOR_CORE_AMPERE, ampere_cases, COUNT_OF(ampere_cases));
}

/* A zero times any finite number leaves a sum as it is without that product: next to small, middle and large others. */
TEST(zero_products)
{
    enum { K = 16, OTHERS = 6, FINITE = 0x7f80 }; // bf16 from 0 on
    static const float others[OTHERS] = { 0x1p-99f, 0x1p-68f, 0x1p-52f, 1, 0x1.7p40f, 0x1p120f };
    static uint16_t a[OTHERS * K], b[FINITE * K];
    static float d[OTHERS * FINITE];
    for (int i = 0; i < OTHERS; i++) {
        a[i * K] = narrow(CKL_BF16, others[i]);
        a[i * K + 1] = (uint16_t)(i % 2 << 15); // -0 or 0
    }
    for (int i = 0; i < FINITE; i++) {
        b[i * K] = narrow(CKL_BF16, 0x1.8p-49f);
        b[i * K + 1] = (uint16_t)i;
    }
    matrix_multiply(&(matrix_product){ &TENSOR_CORE_HOPPER, { CKL_BF16, CKL_BF16 }, OTHERS, FINITE, K }, a, b, d,
                    false);
    for (int i = 0; i < OTHERS * FINITE; i++)
        assert_int_equal(bits_of_float(d[i]), bits_of_float(d[i / FINITE * FINITE])); // of zero times zero
    for (int i = 0; i < OTHERS; i++)
        assert_true(d[i * FINITE] == others[i] * 0x1.8p-49f);
}

/* Sums of bf16 that end subnormal, as on an H200: terms are cut 25 bits below 2^-133, not below the largest. */
static const struct {
    uint16_t a[16], b[16];
    uint32_t expected;
} tiny_sums[] = {
    { { 0xbd9f, 0x8435, 0x8104, 0x1be1, 0x8436, 0x9945, 0xbaae, 0xbb0e, 0x8000, 0x2f23, 0x2444, 0xad90, 0x0760, 0x0000,
        0xb7a9, 0x8000 },
      { 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0005, 0x0000, 0x00cf, 0x00b5, 0x0000, 0x0000, 0x001c, 0x0000,
        0x0000, 0x0000 },
      0x800001b3 },
    { { 0x0094, 0x0000, 0x0060, 0x00d4, 0x0000, 0x0004, 0x00fa, 0x0000, 0x0000, 0x007e, 0x0000, 0x0000, 0x0047, 0x0000,
        0x0000, 0x0000 },
      { 0x8000, 0x983f, 0x25e3, 0xbaa3, 0xba1c, 0x9b0c, 0x8000, 0x884c, 0x898d, 0x2ee7, 0x8bc5, 0x2989, 0x112a, 0xa4c7,
        0xb2ea, 0xb119 },
      0x8000437e },
    { { 0x00c9, 0x0000, 0x0000, 0x0006, 0x00a9, 0x0085, 0x0000, 0x0000, 0x00a2, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000,
        0x0000, 0x003e },
      { 0x1eb3, 0x15cb, 0x22d3, 0x39cc, 0x80ef, 0x9b59, 0x8000, 0x924a, 0xad10, 0x0000, 0x2a29, 0x8000, 0x1107, 0x8000,
        0x0000, 0xa2e4 },
      0x00000099 },
    { { 0x3722, 0x3698, 0x0000, 0x0000, 0x92a5, 0xa61c, 0xadac, 0x0e96, 0x1fa8, 0x1c78, 0x81e8, 0x919a, 0x359e, 0x01ea,
        0x8000, 0x283c },
      { 0x8000, 0x8072, 0x804c, 0x81fd, 0x8092, 0x802e, 0x800e, 0x810b, 0x01ce, 0x0130, 0x0101, 0x0144, 0x8130, 0x0070,
        0x8045, 0x812e },
      0x8000003d },
    { { 0xb7c6, 0x2a49, 0xaf8d, 0x0f49, 0x0000, 0x2909, 0x25fe, 0x2b74, 0x3bb2, 0x24d1, 0x0ceb, 0x1b54, 0x0000, 0x96bd,
        0x1c38, 0x92d9 },
      { 0x8000, 0x8000, 0x005a, 0x8000, 0x0000, 0x81f6, 0x015b, 0x81e0, 0x0054, 0x0103, 0x00fe, 0x0026, 0x80ea, 0x80c2,
        0x814e, 0x0000 },
      0x000074d0 },
    { { 0xc46a, 0x2339, 0x5397, 0x5638, 0x4e6d, 0xaf46, 0xb965, 0x680f, 0x7f6e, 0x3bc2, 0x8ace, 0xf6d5, 0x3bb0, 0x0000,
        0x0000, 0x8000 },
      { 0x0000, 0x00ef, 0x0000, 0x0000, 0x0000, 0x0079, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0000, 0x0051, 0x0000,
        0x0000, 0x0000 },
      0x00006f60 },
    { { 0x3a6c, 0x8217, 0x8000, 0x1dd6, 0x842a, 0x828c, 0x8000, 0x310c, 0x0e87, 0x014b, 0x8a34, 0xa6e2, 0xa6c0, 0xb089,
        0x8000, 0x0000 },
      { 0x0042, 0x00e5, 0x801c, 0x0125, 0x007d, 0x008e, 0x0000, 0x80df, 0x80d8, 0x80ef, 0x008b, 0x003f, 0x01c1, 0x8155,
        0x8120, 0x8000 },
      0x00000f35 }, // a floor of 2^-132 would give 0xf36
};

TEST(tiny_sums)
{
    for (int i = 0; i < COUNT_OF(tiny_sums); i++) {
        float d = 0;
        matrix_multiply(&(matrix_product){ &TENSOR_CORE_HOPPER, { CKL_BF16, CKL_BF16 }, 1, 1, 16 }, tiny_sums[i].a,
                        tiny_sums[i].b, &d, true);
        assert_int_equal(bits_of_float(d), tiny_sums[i].expected);
    }
}

/* Infinities in one row or column leave the others as they were. */
TEST(special_neighbours)
{
    enum { M = 4, N = 24, K = 32 };
    const matrix_types types = { CKL_F16, CKL_F16 };
    uint16_t a[M * K], b[N * K];
    float clean[M * N], d[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = f16_from_f32(random_integer() + 9);
    for (int i = 0; i < N * K; i++)
        b[i] = f16_from_f32(random_integer() + 9);
    matrix_multiply(&(matrix_product){ &TENSOR_CORE_HOPPER, types, M, N, K }, a, b, clean, false);
    a[1 * K + 5] = 0x7c00;
    b[7 * K + 20] = 0x7e00;
    matrix_multiply(&(matrix_product){ &TENSOR_CORE_HOPPER, types, M, N, K }, a, b, d, false);
    for (int i = 0; i < M * N; i++) {
        float expected = i % N == 7 ? float_of_bits(NOT_A_NUMBER) : i / N == 1 ? INFINITY : clean[i];
        assert_int_equal(bits_of_float(d[i]), bits_of_float(expected));
    }
}

RUN_TESTS(NULL, NULL)
