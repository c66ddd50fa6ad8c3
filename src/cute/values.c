/* values.c - the public functions on values (values.h): names of the builder's own. */
#include "cutekernellib/values.h"

#include "cute/math.h"
#include "ir/build.h"

ckl_val ckl_val_f32(double x)
{
    return ir_float(CKL_F32, x);
}

ckl_val ckl_val_i32(int32_t x)
{
    return ir_int(CKL_I32, x);
}

#define UNARY(X)    \
    X(neg, IR_NEG)  \
    X(abs, IR_ABS)  \
    X(exp2, IR_EX2) \
    X(sqrt, IR_SQRT)
#define X(name, op)                   \
    ckl_val ckl_val_##name(ckl_val x) \
    {                                 \
        return ir_unary(op, x);       \
    }
UNARY(X)
#undef X

#define BINARY(X)  \
    X(add, IR_ADD) \
    X(sub, IR_SUB) \
    X(mul, IR_MUL) \
    X(div, IR_DIV) \
    X(rem, IR_REM) \
    X(min, IR_MIN) \
    X(max, IR_MAX) \
    X(and, IR_AND) \
    X(or, IR_OR)
#define X(name, op)                              \
    ckl_val ckl_val_##name(ckl_val x, ckl_val y) \
    {                                            \
        return ir_binary(op, x, y);              \
    }
BINARY(X)
#undef X

#define COMPARISONS(X) \
    X(eq, IR_EQ)       \
    X(ne, IR_NE)       \
    X(lt, IR_LT)       \
    X(le, IR_LE)
#define X(name, how)                             \
    ckl_val ckl_val_##name(ckl_val x, ckl_val y) \
    {                                            \
        return ir_compare(how, x, y);            \
    }
COMPARISONS(X)
#undef X

ckl_val ckl_val_fma(ckl_val x, ckl_val y, ckl_val z)
{
    return ir_fma(x, y, z);
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

ckl_val ckl_val_not(ckl_val p)
{
    return ir_unary(IR_NOT, p);
}

ckl_val ckl_val_select(ckl_val p, ckl_val x, ckl_val y)
{
    return ir_select(p, x, y);
}

ckl_val ckl_val_to_f32(ckl_val x)
{
    return ir_convert(CKL_F32, x);
}

ckl_val ckl_val_to_i32(ckl_val x)
{
    return ir_convert(CKL_I32, x);
}
