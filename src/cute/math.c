/* math.c - argument reduction, polynomials and special cases of the elementary functions. */
#include "cute/math.h"

#include <math.h>

/* log2(e) as a sum of two numbers, and its inverse. */
static const double LOG2E_HIGH = 0x1.715476p+0, LOG2E_LOW = 0x1.4ae0cp-26, LN2 = 0x1.62e42fefa39efp-1;

/* Below this exp(x) is 0, and so are the functions made of it; keeps -inf out of products with 0. */
static const double EXP_IS_ZERO = -120;

static val constant(double x)
{
    return ir_float(CKL_F32, x);
}

static val add(val x, val y)
{
    return ir_binary(IR_ADD, x, y);
}

static val mul(val x, val y)
{
    return ir_binary(IR_MUL, x, y);
}

static val scaled(val x, double factor)
{
    return mul(x, constant(factor));
}

static val negative(val x)
{
    return ir_unary(IR_NEG, x);
}

static val magnitude(val x)
{
    return ir_unary(IR_ABS, x);
}

static val is_less(val x, double limit)
{
    return ir_compare(IR_LT, x, constant(limit));
}

/* c[0] x^(count-1) + ... + c[count-1], by Horner's rule. */
static val polynomial(val x, int count, const double *c)
{
    val sum = constant(c[0]);
    for (int i = 1; i < count; i++)
        sum = ir_fma(sum, x, constant(c[i]));
    return sum;
}

/* ex2 of the rounded product, corrected by what rounding cut off: without that the error is 2^-18 at x = 88. */
val exp_f32(val x)
{
    x = ir_binary_nan(IR_MAX, x, constant(EXP_IS_ZERO));
    val high = scaled(x, LOG2E_HIGH);
    val low = ir_fma(x, constant(LOG2E_LOW), ir_fma(x, constant(LOG2E_HIGH), negative(high)));
    val power = ir_unary_ftz(IR_EX2, high);
    return ir_select(is_less(high, 128), ir_fma(power, scaled(low, LN2), power), power);
}

/*
 * x = 2^e * (1 + f) with 1 + f in [2/3, 4/3): log x = e ln 2 + f + f^2 P(f), no cancellation near 1, where lg2.approx
 * has an absolute error only. What is not positive and finite is left to lg2.
 */
val log_f32(val x)
{
    static const double p[] = { -1.294887215e-01, 1.400466263e-01,  -1.216717213e-01,
                                1.400118023e-01,  -1.668230444e-01, 2.001074702e-01,
                                -2.499971688e-01, 3.333320916e-01,  -0.5 };
    val subnormal = is_less(x, 0x1p-126);
    val normal = ir_select(subnormal, scaled(x, 0x1p23), x);
    val bits = ir_bitcast(CKL_I32, normal);
    val exponent = ir_binary(IR_AND, ir_binary(IR_SUB, bits, ir_int(CKL_I32, 0x3f2aaaab)), ir_int(CKL_I32, -0x800000));
    val f = add(ir_bitcast(CKL_F32, ir_binary(IR_SUB, bits, exponent)), constant(-1));
    val e = ir_fma(ir_convert(CKL_F32, exponent), constant(0x1p-23), ir_select(subnormal, constant(-23), constant(0)));
    val log = ir_fma(e, constant(LN2), ir_fma(polynomial(f, COUNT_OF(p), p), mul(f, f), f));
    val ordinary = ir_binary(IR_AND, ir_compare(IR_GT, x, constant(0)), is_less(x, INFINITY));
    return ir_select(ordinary, log, ir_unary(IR_LG2, x));
}

/* NOTE: lg2.approx is off by 2^-22 near 1 (PTX ISA), where the logarithm is smaller: four terms of its series there. */
val log_half(val x)
{
    static const double p[] = { -0.25, 1.0 / 3, -0.5, 1 };
    val f = add(x, constant(-1)), near = mul(f, polynomial(f, COUNT_OF(p), p));
    return ir_select(is_less(magnitude(f), 0x1p-4), near, scaled(ir_unary(IR_LG2, x), LN2));
}

/* x with the sign of y; x >= 0. */
static val with_sign_of(val x, val y)
{
    return ir_select(is_less(y, 0), negative(x), x);
}

/* 1 - 2 / (exp(2|x|) + 1) cancels for small x: there an odd polynomial. */
val tanh_f32(val x)
{
    static const double p[] = { -5.895157345e-03, 2.079597116e-02, -5.378383026e-02, 1.333192438e-01,
                                -3.333329856e-01 };
    val square = mul(x, x), a = magnitude(x);
    val small = ir_fma(polynomial(square, COUNT_OF(p), p), mul(square, x), x);
    val power = ir_unary_ftz(IR_EX2, scaled(a, 2 / LN2));
    val large = ir_fma(ir_unary_ftz(IR_RCP_APPROX, add(power, constant(1))), constant(-2), constant(1));
    return ir_select(is_less(a, 0.6), small, with_sign_of(large, x));
}

/* With exp(-|x|) nothing overflows, and small results keep their digits. */
val sigmoid_f32(val x)
{
    val power = exp_f32(negative(magnitude(x)));
    val large = ir_unary_ftz(IR_RCP_APPROX, add(power, constant(1)));
    return ir_select(is_less(x, 0), mul(power, large), large);
}

val sigmoid_half(val x)
{
    return ir_unary_ftz(IR_RCP_APPROX, add(ir_unary_ftz(IR_EX2, scaled(x, -1 / LN2)), constant(1)));
}

/* exp(-a^2) t Q(t), t = 1 / (1 + a/2): erfc(a) for a >= 0. */
static val erfc_of_positive(val a)
{
    static const double q[] = {
        1.169036236e-02,  -1.201024652e-01, 4.217062294e-01, -6.606796384e-01, 4.137760401e-01,
        -9.445799142e-02, 2.242716402e-01,  2.389017940e-01, 2.828281224e-01,  2.820658684e-01
    };
    val t = ir_unary_ftz(IR_RCP_APPROX, ir_fma(a, constant(0.5), constant(1)));
    val power = exp_f32(negative(mul(a, a)));
    return mul(mul(power, t), polynomial(t, COUNT_OF(q), q));
}

val erf_f32(val x)
{
    static const double p[] = { 7.853862189e-05, -8.010193123e-04, 5.188327283e-03, -2.685381100e-02,
                                1.128358543e-01, -3.761262596e-01, 1.283791661e-01 };
    val square = mul(x, x), a = magnitude(x);
    val small = ir_fma(polynomial(square, COUNT_OF(p), p), x, x);
    val large = ir_binary(IR_SUB, constant(1), erfc_of_positive(a));
    return ir_select(is_less(a, 1), small, with_sign_of(large, x));
}

val normal_cdf_f32(val x)
{
    val tail = scaled(erfc_of_positive(scaled(magnitude(x), 0x1.6a09e667f3bcdp-1)), 0.5);
    return ir_select(is_less(x, 0), tail, ir_binary(IR_SUB, constant(1), tail));
}

/* From 2^24 on every float is an even integer. */
val pow_f32(val x, val y)
{
    val a = magnitude(x), one = constant(1);
    val power = ir_unary_ftz(IR_EX2, mul(y, scaled(log_f32(a), 1 / LN2)));
    power = ir_select(ir_compare(IR_EQ, a, one), one, power); // also to the power of infinity

    val integer = ir_convert(CKL_I32, y), huge = ir_compare(IR_GE, magnitude(y), constant(0x1p24));
    val integral = ir_binary(IR_OR, huge, ir_compare(IR_EQ, ir_convert(CKL_F32, integer), y));
    val odd = ir_compare(IR_NE, ir_binary(IR_AND, integer, ir_int(CKL_I32, 1)), ir_int(CKL_I32, 0));
    odd = ir_binary(IR_AND, ir_binary(IR_AND, integral, odd), ir_unary(IR_NOT, huge));

    val minus = ir_compare(IR_LT, ir_bitcast(CKL_I32, x), ir_int(CKL_I32, 0)); // -0 too
    power = ir_select(ir_binary(IR_AND, minus, odd), negative(power), power);
    val undefined = ir_binary(IR_AND, is_less(x, 0), ir_compare(IR_GT, x, constant(-INFINITY)));
    undefined = ir_binary(IR_AND, undefined, ir_unary(IR_NOT, integral));
    power = ir_select(undefined, constant(NAN), power);
    val is_one = ir_binary(IR_OR, ir_compare(IR_EQ, x, one), ir_compare(IR_EQ, y, constant(0)));
    return ir_select(is_one, one, power);
}

/*
 * x = k pi/2 + r with pi/2 as a sum of three numbers (Cody and Waite): k times the first is exact, and so is the first
 * difference, a multiple of 2^-23 below 2. Adding 1.5 * 2^23 leaves k in the low bits. 2/pi is rounded, so |r| may be
 * 0.955, not pi/4.
 */
static val reduced_angle(val x, val *quadrant)
{
    static const double TO_QUADRANTS = 0x1.45f306p-1, ROUNDING = 0x1.8p23;
    static const double HALF_PI[] = { 0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50 };
    val shifted = ir_fma(x, constant(TO_QUADRANTS), constant(ROUNDING)), k = add(shifted, constant(-ROUNDING)), r = x;
    for (int i = 0; i < COUNT_OF(HALF_PI); i++)
        r = ir_fma(k, constant(-HALF_PI[i]), r);
    *quadrant = ir_bitcast(CKL_I32, shifted);
    return ir_select(ir_compare(IR_LE, magnitude(x), constant(0x1p22)), r, constant(NAN));
}

/* x, negated where bit 1 of the quadrant is set. */
static val negated_by(val quadrant, val x)
{
    val sign = ir_binary(IR_SHL, ir_binary(IR_AND, quadrant, ir_int(CKL_I32, 2)), ir_u32(30));
    return ir_bitcast(CKL_F32, ir_binary(IR_XOR, ir_bitcast(CKL_I32, x), sign));
}

void sincos_f32(val x, val *sine, val *cosine)
{
    static const double s[] = { 2.699577180e-06, -1.983689290e-04, 8.333319798e-03, -1.666666716e-01 };
    static const double c[] = { 2.424829654e-05, -1.388532575e-03, 4.166659340e-02, -0.5 };
    val quadrant, r = reduced_angle(x, &quadrant), square = mul(r, r);
    val odd = ir_fma(polynomial(square, COUNT_OF(s), s), mul(square, r), r);
    val even = ir_fma(polynomial(square, COUNT_OF(c), c), square, constant(1));
    val swaps = ir_compare(IR_NE, ir_binary(IR_AND, quadrant, ir_int(CKL_I32, 1)), ir_int(CKL_I32, 0));
    *sine = negated_by(quadrant, ir_select(swaps, even, odd));
    *cosine = negated_by(ir_binary(IR_ADD, quadrant, ir_int(CKL_I32, 1)), ir_select(swaps, odd, even));
}

/* x times a factor that is 0 long before x is -infinity. */
static val gated(val x, val factor)
{
    return mul(ir_binary_nan(IR_MAX, x, constant(EXP_IS_ZERO)), factor);
}

val median_f32(val x, val y, val z)
{
    val low = ir_binary(IR_MIN, x, y), high = ir_binary(IR_MAX, x, y);
    return ir_binary(IR_MAX, low, ir_binary(IR_MIN, high, z));
}

val silu_f32(val x)
{
    return gated(x, sigmoid_f32(x));
}

val silu_half(val x)
{
    return gated(x, sigmoid_half(x));
}

val gelu_erf_f32(val x)
{
    return gated(x, normal_cdf_f32(x));
}

/* exp(-a^2/2) t Q(t), t = 1 / (1 + a/3): the normal distribution function of -a. */
val gelu_erf_half(val x)
{
    static const double q[] = { -5.251540244e-02, 7.877353579e-02, 9.733748436e-02,
                                1.079867631e-01,  1.356500983e-01, 1.327587664e-01 };
    val t = ir_unary_ftz(IR_RCP_APPROX, ir_fma(magnitude(x), constant(1.0 / 3), constant(1)));
    val power = ir_unary_ftz(IR_EX2, scaled(mul(x, x), -0.5 / LN2));
    val tail = mul(mul(power, t), polynomial(t, COUNT_OF(q), q));
    return gated(x, ir_select(is_less(x, 0), tail, ir_binary(IR_SUB, constant(1), tail)));
}

/* 1 + tanh(u) would cancel for negative x; sigmoid(2u) does not. exp2 and rcp keep the error near 2^-21 * (1 + |u|). */
val gelu_tanh_f32(val x)
{
    const double scale = -2 * 0.7978845608028654 / LN2; // -2 sqrt(2/pi) log2(e)
    val exponent = mul(x, ir_fma(mul(x, x), constant(scale * 0.044715), constant(scale)));
    return gated(x, ir_unary_ftz(IR_RCP_APPROX, add(ir_unary_ftz(IR_EX2, exponent), constant(1))));
}
