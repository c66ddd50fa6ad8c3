/* elementwise_vector.c - what each function of an expression means as instructions. */
#include "cute/kernel.h"
#include "operators/elementwise/elementwise_expr.h"
#include "skeletons/map.h"

enum { POWERS_MAX = 4 }; // x^2 to x^4 are products

/* Functions */

static val larger(val x, val y)
{
    return x.type == F32 ? max_nan(x, y) : max(x, y);
}

static val smaller(val x, val y)
{
    return x.type == F32 ? min_nan(x, y) : min(x, y);
}

/* Exponents that are small integers need no logarithm. */
static val power(val x, val y)
{
    if (!is_constant(y) || y.f != rint(y.f) || y.f < 1 || y.f > POWERS_MAX)
        return pow_f32(x, y);
    val result = x;
    for (int i = 1; i < (int)y.f; i++)
        result = mul(result, x);
    return result;
}

static val relu(val x)
{
    return larger(x, imm(0));
}

static val same(val x)
{
    return x;
}

/* What is one instruction; 0: it is not. */
static const ir_op unary_op[EXPR_FUNCTION_COUNT] = {
    [EXPR_neg] = IR_NEG, [EXPR_abs] = IR_ABS, [EXPR_sqrt] = IR_SQRT, [EXPR_rsqrt] = IR_RSQRT
};
static const ir_op binary_op[EXPR_FUNCTION_COUNT] = {
    [EXPR_add] = IR_ADD, [EXPR_sub] = IR_SUB, [EXPR_mul] = IR_MUL, [EXPR_div] = IR_DIV
};

static val (*const unary[EXPR_FUNCTION_COUNT])(val x) = {
    [EXPR_relu] = relu,
    [EXPR_cast] = same,
    [EXPR_sigmoid] = sigmoid_f32,
    [EXPR_silu] = silu_f32,
    [EXPR_gelu] = gelu_tanh_f32,
    [EXPR_gelu_tanh] = gelu_tanh_f32,
    [EXPR_gelu_erf] = gelu_erf_f32,
    [EXPR_tanh] = tanh_f32,
    [EXPR_erf] = erf_f32,
    [EXPR_exp] = exp_f32,
    [EXPR_log] = log_f32,
};

static val (*const binary[EXPR_FUNCTION_COUNT])(val x, val y) = {
    [EXPR_max] = larger,
    [EXPR_min] = smaller,
    [EXPR_pow] = power,
};

/* Where the result is rounded to 16 bits and the function comes last, or is a factor of what comes last. */
static val (*const unary_half[EXPR_FUNCTION_COUNT])(val x) = {
    [EXPR_sigmoid] = sigmoid_half,
    [EXPR_silu] = silu_half,
    [EXPR_gelu_erf] = gelu_erf_half,
    [EXPR_log] = log_half,
};

/* Expressions */

/* What map_describe() calls per element. */
typedef struct chain {
    expr expression;
    ckl_dtype type, out;
} chain;

static val evaluate(const chain *c, int node, const val *inputs);

/* x*y + z in one instruction, if n is such a sum. */
static bool fused(const chain *c, const expr_node *n, const val *inputs, val *result)
{
    for (int side = 0; n->kind == EXPR_add && side < 2; side++) {
        const expr_node *term = &c->expression.nodes[n->argument[side]];
        if (term->kind != EXPR_mul)
            continue;
        val x = evaluate(c, term->argument[0], inputs), y = evaluate(c, term->argument[1], inputs);
        val z = evaluate(c, n->argument[!side], inputs);
        *result = fma(x, y, z);
        return true;
    }
    return false;
}

static val evaluate(const chain *c, int node, const val *inputs)
{
    const expr_node *n = &c->expression.nodes[node];
    val result;
    if (n->kind == EXPR_INPUT)
        return inputs[n->input];
    if (n->kind == EXPR_NUMBER)
        return c->type == F32 ? immf(n->number) : imm_as(c->type, (int64_t)n->number);
    if (fused(c, n, inputs, &result))
        return result;
    val x = evaluate(c, n->argument[0], inputs);
    if (unary_half[n->kind] && (c->out == F16 || c->out == BF16) && expr_is_factor(&c->expression, node))
        return unary_half[n->kind](x);
    if (unary_op[n->kind] || unary[n->kind])
        return unary_op[n->kind] ? ir_unary(unary_op[n->kind], x) : unary[n->kind](x);
    val y = evaluate(c, n->argument[1], inputs);
    return binary_op[n->kind] ? ir_binary(binary_op[n->kind], x, y) : binary[n->kind](x, y);
}

static val value_of(const val *inputs, void *user)
{
    const chain *c = user;
    return coerce(c->type, evaluate(c, c->expression.count - 1, inputs));
}

void elementwise_vector(const void *config, int kernel)
{
    const map_config *cfg = config;
    chain c = { .type = cfg->compute, .out = cfg->out };
    if (expr_parse(cfg->expr, &c.expression) != CKL_OK)
        describe_fail("%s", ckl_error());
    else
        map_describe(map_kernel_of(cfg), kernel, value_of, &c);
}
