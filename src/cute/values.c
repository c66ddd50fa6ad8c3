/* values.c - the public functions on values (values.h): names of the builder's own. */
#include "cutekernellib/values.h"

#include "cute/math.h"
#include "cute/values.h"
#include "ir/build.h"

enum { KNOWN_MAX = 1024 };

/* A value that is another one plus a constant. */
typedef struct known_sum {
    int reg;
    val base;
    int c;
} known_sum;

static _Thread_local known_sum known[KNOWN_MAX];
static _Thread_local int known_count;

void values_know(val v, val base, int c)
{
    if (known_count < KNOWN_MAX && v.reg != IR_CONSTANT)
        known[known_count++] = (known_sum){ v.reg, base, c };
}

void values_forget(void)
{
    known_count = 0;
}

static const known_sum *find_sum(val v)
{
    for (int i = known_count - 1; i >= 0; i--)
        if (known[i].reg == v.reg)
            return &known[i];
    return NULL;
}

ckl_val ckl_val_f32(double x)
{
    return ir_float(CKL_F32, x);
}

ckl_val ckl_val_i32(int32_t x)
{
    return ir_int(CKL_I32, x);
}

#define UNARY(name, op)               \
    ckl_val ckl_val_##name(ckl_val x) \
    {                                 \
        return ir_unary(op, x);       \
    }
UNARY(neg, IR_NEG)
UNARY(abs, IR_ABS)
UNARY(exp2, IR_EX2)
UNARY(sqrt, IR_SQRT)
UNARY(not, IR_NOT)

#define BINARY(name, build, op)                  \
    ckl_val ckl_val_##name(ckl_val x, ckl_val y) \
    {                                            \
        return build(op, x, y);                  \
    }
BINARY(add, ir_binary, IR_ADD)
BINARY(mul, ir_binary, IR_MUL)
BINARY(div, ir_binary, IR_DIV)
BINARY(rem, ir_binary, IR_REM)
BINARY(min, ir_binary, IR_MIN)
BINARY(max, ir_binary, IR_MAX)
BINARY(and, ir_binary, IR_AND)
BINARY(or, ir_binary, IR_OR)
BINARY(eq, ir_compare, IR_EQ)
BINARY(ne, ir_compare, IR_NE)
BINARY(lt, ir_compare, IR_LT)
BINARY(le, ir_compare, IR_LE)

ckl_val ckl_val_sub(ckl_val x, ckl_val y)
{
    const known_sum *sum = find_sum(x);
    if (!sum)
        return ir_binary(IR_SUB, x, y);
    const int c = sum->c;
    val base = ir_binary(IR_SUB, sum->base, y), difference = ir_binary(IR_ADD, base, ir_int(CKL_I32, c));
    values_know(difference, base, c);
    return difference;
}

/*
 * x * (base + c) + p * q is two FMAs after x * base, which many values may share: one with the constant, and one that
 * makes the product.
 */
ckl_val ckl_val_fma(ckl_val x, ckl_val y, ckl_val z)
{
    const known_sum *sum = find_sum(y);
    const ir_inst *product = ir_maker(z);
    if (!sum || y.type != CKL_F32 || !product || product->op != IR_MUL)
        return ir_fma(x, y, z);
    const val p = product->in[0], q = product->in[1];
    const val shared = ir_binary(IR_MUL, x, sum->base), c = ir_float(CKL_F32, sum->c);
    return ir_fma(p, q, ir_fma(x, c, shared));
}

ckl_val ckl_val_exp(ckl_val x)
{
    return exp_f32(x);
}

ckl_val ckl_val_log(ckl_val x)
{
    return log_f32(x);
}

ckl_val ckl_val_tanh(ckl_val x)
{
    return tanh_f32(x);
}

ckl_val ckl_val_select(ckl_val p, ckl_val x, ckl_val y)
{
    return ir_select(p, x, y);
}

ckl_val ckl_val_to_f32(ckl_val x)
{
    const known_sum *sum = find_sum(x);
    if (!sum)
        return ir_convert(CKL_F32, x);
    const int c = sum->c;
    val base = ir_convert(CKL_F32, sum->base), v = ir_binary(IR_ADD, base, ir_float(CKL_F32, c));
    values_know(v, base, c);
    return v;
}

ckl_val ckl_val_to_i32(ckl_val x)
{
    return ir_convert(CKL_I32, x);
}
