/* elementwise_ref.c - the definition of every function in double, and how errors grow through a chain of them. */
#include <float.h>
#include <math.h>

#include "base/dtype.h"
#include "operators/elementwise/elementwise_lab.h"

/*
 * The value of a node, and a magnitude that bounds its error in f32, in units of the relative error of one operation.
 * Inputs have none.
 */
typedef struct estimate {
    double value, magnitude;
} estimate;

/* Results below 2^-119 may be 0 after an approximate function; relative errors are at least 2^-22. */
static const double FLUSHED = 0x1p-97;

static const double SQRT_2 = 1.4142135623730951, SQRT_2_PI = 2.5066282746310002;

/* Functions of one operand */

#define FORMULA(name, of_x)      \
    static double name(double x) \
    {                            \
        return of_x;             \
    }

FORMULA(identity, x)
FORMULA(negative, -x)
FORMULA(relu, isnan(x) ? x : fmax(x, 0))
FORMULA(sigmoid, 1 / (1 + exp(-x)))
FORMULA(silu, x == -INFINITY ? -0.0 : x * sigmoid(x))
FORMULA(tanh_argument, 2 / SQRT_2_PI * (x + 0.044715 * x * x * x))
FORMULA(gelu_tanh, x == -INFINITY ? -0.0 : x * sigmoid(2 * tanh_argument(x)))
FORMULA(gelu_erf, x == -INFINITY ? -0.0 : x * erfc(-x / SQRT_2) / 2)
FORMULA(rsqrt, 1 / sqrt(x))

/* Their slopes, or a bound */

static double one(double x)
{
    (void)x;
    return 1;
}

FORMULA(sigmoid_slope, sigmoid(x) * sigmoid(-x))
FORMULA(tanh_slope, 1 - tanh(x) * tanh(x))
FORMULA(erf_slope, 2 / SQRT_2_PI * SQRT_2 * exp(-x * x))
FORMULA(activation_slope, x < -40 ? 0 : 1.13) // of silu and gelu: at most 1.13
FORMULA(inverse, 1 / fabs(x))
FORMULA(sqrt_slope, 0.5 / sqrt(x))
FORMULA(rsqrt_slope, 0.5 / (x * sqrt(x)))

/* How the function's own error grows beside a constant relative one */

FORMULA(with_square, 1 + x * x)

typedef struct unary_definition {
    double (*value)(double x);
    double (*slope)(double x);
    double (*growth)(double x); // of the error; NULL: none
    double error;               // relative; 0: rounded correctly
} unary_definition;

static const unary_definition unary[EXPR_FUNCTION_COUNT] = {
    [EXPR_neg] = { negative, one, NULL, 0 },
    [EXPR_abs] = { fabs, one, NULL, 0 },
    [EXPR_relu] = { relu, one, NULL, 0 },
    [EXPR_cast] = { identity, one, NULL, 0 },
    [EXPR_sigmoid] = { sigmoid, sigmoid_slope, NULL, 0x1p-21 },
    [EXPR_silu] = { silu, activation_slope, NULL, 0x1p-20 },
    [EXPR_gelu] = { gelu_tanh, activation_slope, with_square, 0x1p-20 },
    [EXPR_gelu_tanh] = { gelu_tanh, activation_slope, with_square, 0x1p-20 },
    [EXPR_gelu_erf] = { gelu_erf, activation_slope, with_square, 0x1p-20 },
    [EXPR_tanh] = { tanh, tanh_slope, NULL, 0x1p-22 },
    [EXPR_erf] = { erf, erf_slope, NULL, 0x1p-22 },
    [EXPR_exp] = { exp, exp, NULL, 0x1p-21 },
    [EXPR_log] = { log, inverse, NULL, 0x1p-22 },
    [EXPR_sqrt] = { sqrt, sqrt_slope, NULL, 0 },
    [EXPR_rsqrt] = { rsqrt, rsqrt_slope, NULL, 0x1p-22 },
};

/* 0 * infinity is 0 here: a flat function passes no error on. */
static double passed_on(double slope, double magnitude)
{
    return slope == 0 || magnitude == 0 ? 0 : fabs(slope * magnitude);
}

/* f32 ends at FLT_MAX, in the middle of a chain too. */
static double within_f32(double x)
{
    return fabs(x) >= 0x1.ffffffp127 ? copysign(INFINITY, x) : x;
}

static estimate apply_unary(const unary_definition *f, estimate x)
{
    double value = within_f32(f->value(x.value)), own = fabs(value);
    if (f->growth)
        own = passed_on(f->growth(x.value), own);
    if (f->error > 0)
        own += FLUSHED;
    return (estimate){ value, own + passed_on(f->slope(x.value), x.magnitude) };
}

/* Functions of two operands */

static double larger(double x, double y)
{
    return isnan(x) || isnan(y) ? NAN : fmax(x, y);
}

static double smaller(double x, double y)
{
    return isnan(x) || isnan(y) ? NAN : fmin(x, y);
}

static estimate apply_power(estimate x, estimate y)
{
    double value = within_f32(pow(x.value, y.value)), log = fabs(log2(fabs(x.value)));
    double own = passed_on(1 + passed_on(log, y.value), value) + FLUSHED;
    double by_x = passed_on(y.value * pow(x.value, y.value - 1), x.magnitude);
    return (estimate){ value, own + by_x + passed_on(value * log, y.magnitude) };
}

/* Of the larger or smaller of two: an infinity that is not chosen is too far away for its error to count. */
static double passed_by_choice(double value, estimate x, estimate y)
{
    if (isinf(x.value) && value != x.value)
        return y.magnitude;
    return isinf(y.value) && value != y.value ? x.magnitude : x.magnitude + y.magnitude;
}

/* A result rounded once, beside the errors that its operands passed on. */
static estimate rounded(double value, double passed)
{
    value = within_f32(value);
    return (estimate){ value, fabs(value) + passed };
}

static estimate apply_binary(expr_kind kind, estimate x, estimate y)
{
    const double quotient = x.value / y.value, max = larger(x.value, y.value), min = smaller(x.value, y.value);
    switch ((int)kind) {
    case EXPR_add:
        return rounded(x.value + y.value, x.magnitude + y.magnitude);
    case EXPR_sub:
        return rounded(x.value - y.value, x.magnitude + y.magnitude);
    case EXPR_mul:
        return rounded(x.value * y.value, passed_on(y.value, x.magnitude) + passed_on(x.value, y.magnitude));
    case EXPR_div:
        return rounded(quotient, passed_on(1 / y.value, x.magnitude) + passed_on(quotient / y.value, y.magnitude));
    case EXPR_max:
        return rounded(max, passed_by_choice(max, x, y));
    case EXPR_min:
        return rounded(min, passed_by_choice(min, x, y));
    default: // EXPR_pow
        return apply_power(x, y);
    }
}

/* Expressions */

static estimate evaluate(const expr *e, const double *inputs)
{
    estimate at[EXPR_NODES_MAX];
    for (int i = 0; i < e->count; i++) {
        const expr_node *n = &e->nodes[i];
        if (n->kind == EXPR_INPUT)
            at[i] = (estimate){ inputs[n->input], 0 };
        else if (n->kind == EXPR_NUMBER)
            at[i] = (estimate){ (double)(float)n->number, 0 };
        else if (unary[n->kind].value)
            at[i] = apply_unary(&unary[n->kind], at[n->argument[0]]);
        else
            at[i] = apply_binary(n->kind, at[n->argument[0]], at[n->argument[1]]);
    }
    return at[e->count - 1];
}

/* Whether the expression is computed in integers: nothing is rounded then. */
static bool is_exact(const elementwise_problem *p)
{
    bool integers = !dtype_is_float(p->desc.out.dtype) && expr_suits_integers(&p->expression);
    for (int k = 0; k < p->expression.inputs; k++)
        integers &= !p->desc.in[k].scalar && !dtype_is_float(p->desc.in[k].dtype);
    return integers;
}

/* The index of element number i, in row-major order, of an operand. */
static int64_t index_of(const ckl_elementwise_desc *desc, const ckl_elementwise_operand *o, int64_t i)
{
    int64_t index = 0;
    for (int d = desc->rank - 1; d >= 0; d--) {
        index += i % desc->shape[d] * o->stride[d];
        i /= desc->shape[d];
    }
    return index;
}

void elementwise_reference(const void *problem, void *const *host, reference_slice out)
{
    const elementwise_problem *p = problem;
    const ckl_elementwise_desc *d = &p->desc;
    const bool exact = is_exact(p);
    int64_t first = out.row * (d->rank ? d->shape[d->rank - 1] : 1) + out.first;
    for (int64_t j = 0; j < out.count; j++) {
        double x[CKL_ELEMENTWISE_INPUTS_MAX];
        for (int k = 0; k < p->expression.inputs; k++)
            x[k] = d->in[k].scalar ? (double)p->scalar[k]
                                   : dtype_read(d->in[k].dtype, host[k], index_of(d, &d->in[k], first + j));
        estimate y = evaluate(&p->expression, x);
        out.value[j] = y.value;
        out.magnitude[j] = exact ? 0 : y.magnitude;
    }
}

static bool is_exact_number(double x)
{
    return fabs(x) <= 16 && rint(x * 16) == x * 16;
}

/* Powers that are products round as often as they multiply. */
static double error_of(const expr *e, const expr_node *n)
{
    if (n->kind == EXPR_NUMBER)
        return is_exact_number(n->number) ? 0 : 0x1p-24;
    if (n->kind == EXPR_pow) {
        const expr_node *y = &e->nodes[n->argument[1]];
        return y->kind == EXPR_NUMBER && y->number == rint(y->number) && y->number >= 1 && y->number <= 4 ? 0 : 0x1p-22;
    }
    return n->kind < EXPR_FUNCTION_COUNT ? unary[n->kind].error : 0;
}

/* Roots and quotients of integers are rounded, which what comes after them sees. */
static double rounding_of(const expr *e, int node)
{
    const expr_node *n = &e->nodes[node], *divisor = &e->nodes[n->argument[1]];
    int exponent;
    bool shifts = divisor->kind == EXPR_NUMBER && fabs(frexp(divisor->number, &exponent)) == 0.5;
    bool rounds = n->kind == EXPR_sqrt || (n->kind == EXPR_div && !shifts);
    return rounds && node < e->count - 1 ? 0x1p-24 : 0;
}

/* Some functions are cheaper where 16 bits are kept of the result, and they are it or a factor of it. */
static double error_of_half(const elementwise_problem *p)
{
    static const double errors[EXPR_FUNCTION_COUNT + 2] = {
        [EXPR_sigmoid] = 0x1p-14, [EXPR_silu] = 0x1p-14, [EXPR_gelu_erf] = 0x1p-15, [EXPR_log] = 0x1p-16
    };
    const expr *e = &p->expression;
    double error = 0;
    if (p->desc.out.dtype != CKL_F16 && p->desc.out.dtype != CKL_BF16)
        return 0;
    for (int i = 0; i < e->count; i++)
        error = expr_is_factor(e, i) ? fmax(error, errors[e->nodes[i].kind]) : error;
    return error;
}

double elementwise_approximation(const void *problem)
{
    const elementwise_problem *p = problem;
    double error = error_of_half(p);
    for (int i = 0; i < p->expression.count; i++)
        error = fmax(error, fmax(error_of(&p->expression, &p->expression.nodes[i]), rounding_of(&p->expression, i)));
    for (int k = 0; k < p->expression.inputs; k++)
        if (p->desc.in[k].scalar && !is_exact_number((double)p->scalar[k]))
            error = fmax(error, 0x1p-24);
    return error;
}
