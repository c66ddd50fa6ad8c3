/* unit_math.c - the elementary functions of kernels against the host's double precision, over all exponents. */
#include "unit_emulator.h"

#include <math.h>

#include "cute/math.h"

enum { COUNT = 1 << 18, THREADS = 256 };

/* What a function of x should be, and how its bound may grow. */
#define FUNCTION(name, y)        \
    static double name(double x) \
    {                            \
        return y;                \
    }

FUNCTION(sigmoid, 1 / (1 + exp(-x)))
FUNCTION(normal_cdf, erfc(-x / sqrt(2)) / 2)
FUNCTION(silu, x == -INFINITY ? -0.0 : x * sigmoid(x))
FUNCTION(gelu_erf, x == -INFINITY ? -0.0 : x * normal_cdf(x))
FUNCTION(tanh_form, sqrt(8 / acos(-1)) * (x + 0.044715 * x * x * x))
FUNCTION(gelu_tanh, x == -INFINITY ? -0.0 : x * sigmoid(tanh_form(x)))
FUNCTION(constant, 1)
FUNCTION(square, 1 + x * x)

/* What the exponent loses becomes visible far from 0 only. */
FUNCTION(square_half, 1 + x * x * 0x1p-6)
FUNCTION(distance, 1 + fabs(x))
FUNCTION(argument, 1 + fabs(tanh_form(x)))

typedef struct function {
    const char *name;
    val (*describe)(val x);
    double (*definition)(double x);
    double (*growth)(double x); // of the bound
    double bound;               // relative
} function;

static const function functions[] = {
    { "exp", exp_f32, exp, constant, 0x1p-22 },
    { "log", log_f32, log, constant, 0x1p-23 },
    { "log_half", log_half, log, constant, 0x1p-16 },
    { "tanh", tanh_f32, tanh, constant, 0x1p-22 },
    { "sigmoid", sigmoid_f32, sigmoid, constant, 0x1p-21 },
    { "sigmoid_half", sigmoid_half, sigmoid, distance, 0x1p-21 },
    { "erf", erf_f32, erf, constant, 0x1p-22 },
    { "normal_cdf", normal_cdf_f32, normal_cdf, square, 0x1p-21 },
    { "silu", silu_f32, silu, constant, 0x1p-20 },
    { "silu_half", silu_half, silu, distance, 0x1p-20 },
    { "gelu_erf", gelu_erf_f32, gelu_erf, square, 0x1p-20 },
    { "gelu_erf_half", gelu_erf_half, gelu_erf, square_half, 0x1p-15 },
    { "gelu_tanh", gelu_tanh_f32, gelu_tanh, argument, 0x1p-21 },
};

static const function *now; // what describe_function() describes

static val element_of(const char *name)
{
    val i = ir_fma(ir_sreg(IR_CTA_X), ir_u32(THREADS), ir_sreg(IR_TID_X));
    return test_element(ir_scalar_param(IR_U64, name), i, 4);
}

static void describe_function(void)
{
    HERE;
    val x = test_load_value(IR_GLOBAL, CKL_F32, element_of("x"), 0);
    test_store_value(IR_GLOBAL, CKL_F32, element_of("y"), 0, now->describe(x));
}

static void describe_pow(void)
{
    HERE;
    val x = test_load_value(IR_GLOBAL, CKL_F32, element_of("x"), 0);
    val y = test_load_value(IR_GLOBAL, CKL_F32, element_of("y"), 0);
    test_store_value(IR_GLOBAL, CKL_F32, element_of("y"), 0, pow_f32(x, y));
}

/* The sine of x in x's place, the cosine in y's. */
static void describe_sincos(void)
{
    HERE;
    val x = element_of("x"), y = element_of("y"), sine, cosine;
    sincos_f32(test_load_value(IR_GLOBAL, CKL_F32, x, 0), &sine, &cosine);
    test_store_value(IR_GLOBAL, CKL_F32, x, 0, sine);
    test_store_value(IR_GLOBAL, CKL_F32, y, 0, cosine);
}

/* Runs a kernel of x and y in place, and reads both back. */
static void run(void (*describe)(void), float *x, float *y)
{
    ckl_device *gpu = test_open("");
    void *device_x = test_upload(gpu, x, COUNT * sizeof *x), *device_y = test_upload(gpu, y, COUNT * sizeof *y);
    test_kernel k = { describe, IR_SM80, .threads = THREADS, .grid = COUNT / THREADS };
    assert_ok(test_run(gpu, k, (void *[]){ &device_x, &device_y }));
    assert_ok(gpu->ops->copy_out(gpu, x, device_x, COUNT * sizeof *x, NULL));
    assert_ok(gpu->ops->copy_out(gpu, y, device_y, COUNT * sizeof *y, NULL));
    gpu->ops->close(gpu);
}

static const float special[] = { 0,         -0.0F,     INFINITY,  -INFINITY, NAN, 1,  -1,
                                 0x1p-126F, 0x1p-149F, 88.72283F, 0.5F,      3,   -2, -2.5F };

static float spread_bits(uint32_t i)
{
    uint32_t bits = i * 0x9e3779b1U; // every exponent, both signs
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Half of the arguments from all bit patterns, half from -12..12. */
static float argument_number(uint32_t i)
{
    if (i < COUNT_OF(special))
        return special[i];
    return i % 2 ? spread_bits(i) : 12 * (2 * (float)(i * 0x9e3779b1U) * 0x1p-32F - 1);
}

static bool same(double got, double expected, double bound)
{
    if (isnan(expected) || isnan(got))
        return isnan(expected) && isnan(got);
    if ((float)expected == got)
        return true;
    return fabs(got - expected) <= bound * fabs(expected) + 0x1p-119; // smaller results may be 0
}

TEST(functions)
{
    float *x = malloc(COUNT * sizeof *x), *y = calloc(COUNT, sizeof *y);
    for (uint32_t i = 0; i < COUNT; i++)
        x[i] = argument_number(i);
    for (now = functions; now < functions + COUNT_OF(functions); now++) {
        run(describe_function, x, y);
        for (int i = 0; i < COUNT; i++) {
            double expected = now->definition(x[i]);
            if (!same(y[i], expected, now->bound * now->growth(x[i])))
                fail_msg("%s(%.9g) is %.9g instead of %.9g", now->name, x[i], y[i], expected);
        }
    }
    free(x);
    free(y);
}

TEST(pow)
{
    enum { ALL = COUNT_OF(special) };
    float *x = malloc(COUNT * sizeof *x), *y = malloc(COUNT * sizeof *y), *exponent = malloc(COUNT * sizeof *y);
    for (uint32_t i = 0; i < COUNT; i++) {
        x[i] = i < ALL * ALL ? special[i / ALL] : argument_number(i);
        y[i] = exponent[i] = i < ALL * ALL ? special[i % ALL] : argument_number(i * 7 + 3);
        if (i % 5 == 0 && i >= ALL * ALL)
            y[i] = exponent[i] = rintf(exponent[i]);
    }
    run(describe_pow, x, y);
    for (int i = 0; i < COUNT; i++) {
        double expected = pow(x[i], exponent[i]), growth = 1 + fabs(exponent[i] * log2(fabs(x[i])));
        if (!same(y[i], expected, 0x1p-22 * growth))
            fail_msg("pow(%.9g, %.9g) is %.9g instead of %.9g", x[i], exponent[i], y[i], expected);
    }
    free(x);
    free(y);
    free(exponent);
}

enum { SINCOS_RANGE = 1 << 22 };

/*
 * A third from all bit patterns, a third over the range, a third as a rotary embedding makes them: positions up to 2^20
 * times frequencies; and the floats nearest to multiples of pi/2, where relative errors are largest.
 */
static float angle_number(uint32_t i)
{
    if (i < COUNT_OF(special))
        return special[i];
    uint32_t hash = i * 0x9e3779b1U;
    switch (i % 4) {
    case 0:
        return spread_bits(i);
    case 1:
        return SINCOS_RANGE * (2 * (float)hash * 0x1p-32F - 1);
    case 2:
        return (float)(hash >> 12) * powf(10000, -(float)(hash % 64) / 64);
    default:
        return (float)((hash >> 10) % 2670176 * (acos(-1) / 2));
    }
}

TEST(sincos)
{
    float *x = malloc(COUNT * sizeof *x), *sine = malloc(COUNT * sizeof *x), *cosine = calloc(COUNT, sizeof *x);
    for (uint32_t i = 0; i < COUNT; i++)
        sine[i] = x[i] = angle_number(i);
    x[COUNT - 1] = sine[COUNT - 1] = nextafterf(SINCOS_RANGE, INFINITY);
    x[COUNT - 2] = sine[COUNT - 2] = SINCOS_RANGE;
    run(describe_sincos, sine, cosine);
    for (int i = 0; i < COUNT; i++) {
        bool inside = fabsf(x[i]) <= SINCOS_RANGE;
        double s = inside ? sin(x[i]) : NAN, c = inside ? cos(x[i]) : NAN;
        if (!same(sine[i], s, 0x1p-22) || !same(cosine[i], c, 0x1p-22))
            fail_msg("sincos(%.9g) is %.9g, %.9g instead of %.9g, %.9g", x[i], sine[i], cosine[i], s, c);
    }
    free(x);
    free(sine);
    free(cosine);
}

RUN_TESTS(NULL, NULL)
