/* fold.c - arithmetic of constants, as the GPU would do it. */
#include "ir/fold.h"

#include "ir/build.h"

static uint64_t bits_of(val v)
{
    return v.type == CKL_I32 ? (uint64_t)(uint32_t)v.i : (uint64_t)v.i;
}

static bool fold_division(ir_op op, val x, val y, int64_t *out)
{
    if (y.i == 0) {
        ir_fail("division of the constant %" PRId64 " by zero", x.i);
        *out = 0;
        return true;
    }
    if (ir_type_is_signed(x.type)) {
        if (y.i == -1)
            *out = op == IR_DIV ? (int64_t)(0 - (uint64_t)x.i) : 0;
        else
            *out = op == IR_DIV ? x.i / y.i : x.i % y.i;
    } else {
        *out = (int64_t)(op == IR_DIV ? bits_of(x) / bits_of(y) : bits_of(x) % bits_of(y));
    }
    return true;
}

static bool fold_shift(ir_op op, val x, uint64_t n, int64_t *out)
{
    unsigned width = (unsigned)ir_type_bytes(x.type) * 8;
    bool sign = ir_type_is_signed(x.type);
    if (op == IR_SHL)
        *out = n >= width ? 0 : (int64_t)((uint64_t)x.i << n);
    else if (sign)
        *out = x.i >> (n >= width ? width - 1 : n);
    else
        *out = n >= width ? 0 : (int64_t)(bits_of(x) >> n);
    return true;
}

bool fold_int(ir_op op, val x, val y, int64_t *out)
{
    bool less = ir_type_is_signed(x.type) ? x.i < y.i : bits_of(x) < bits_of(y);
    switch (op) {
    case IR_ADD:
        *out = (int64_t)((uint64_t)x.i + (uint64_t)y.i);
        return true;
    case IR_SUB:
        *out = (int64_t)((uint64_t)x.i - (uint64_t)y.i);
        return true;
    case IR_MUL:
        *out = (int64_t)((uint64_t)x.i * (uint64_t)y.i);
        return true;
    case IR_DIV:
    case IR_REM:
        return fold_division(op, x, y, out);
    case IR_MIN:
        *out = less ? x.i : y.i;
        return true;
    case IR_MAX:
        *out = less ? y.i : x.i;
        return true;
    case IR_AND:
        *out = x.i & y.i;
        return true;
    case IR_OR:
        *out = x.i | y.i;
        return true;
    case IR_XOR:
        *out = x.i ^ y.i;
        return true;
    case IR_SHL:
    case IR_SHR:
        return fold_shift(op, x, bits_of(y), out);
    default:
        return false;
    }
}

bool fold_compare(ir_compare_kind how, val x, val y)
{
    bool equal = x.i == y.i;
    bool less = ir_type_is_signed(x.type) ? x.i < y.i : bits_of(x) < bits_of(y);
    switch (how) {
    case IR_EQ:
        return equal;
    case IR_NE:
        return !equal;
    case IR_LT:
        return less;
    case IR_LE:
        return less || equal;
    case IR_GT:
        return !less && !equal;
    case IR_GE:
        return !less;
    }
    return false;
}
