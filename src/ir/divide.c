/*
 * divide.c - integer division as cheaper instructions.
 *
 * ptxas turns a 64-bit division into a call of some 70 instructions, even where the divisor is a constant (nvcc
 * replaces those itself). Here powers of two become shifts, and operands that fit 32 bits are divided in 32 bits.
 */
#include "base/math.h"
#include "ir/build_core.h"

static int width(ir_type type)
{
    return 8 * (int)ir_type_bytes(type);
}

/* Division rounds toward zero and a shift rounds down: a negative x first gets 2^n - 1 added. */
static val moved(val x, int64_t power)
{
    if (!ir_type_is_signed(x.type))
        return x;
    val sign = ir_binary(IR_SHR, x, ir_u32(width(x.type) - 1)); // 0 or -1
    return ir_binary(IR_ADD, x, ir_binary(IR_AND, sign, ir_int(x.type, power - 1)));
}

static val by_power_of_two(ir_op op, val x, int64_t power)
{
    if (op == IR_REM && !ir_type_is_signed(x.type))
        return ir_binary(IR_AND, x, ir_int(x.type, power - 1));
    val from_zero = moved(x, power);
    if (op == IR_DIV)
        return ir_binary(IR_SHR, from_zero, ir_u32(log2_i64(power)));
    return ir_binary(IR_SUB, x, ir_binary(IR_AND, from_zero, ir_int(x.type, -power)));
}

/* In 32 bits if both operands fit, as addresses and counts nearly always do. */
static val by_narrow(ir_op op, val x, val y)
{
    val high = ir_binary(IR_SHR, ir_bitcast(IR_U64, ir_binary(IR_OR, x, y)), ir_u32(32));
    val result = ir_reg(x.type);
    ir_if(ir_compare(IR_EQ, high, ir_int(IR_U64, 0)));
    ir_assign(result, ir_convert(x.type, ir_binary(op, ir_convert(IR_U32, x), ir_convert(IR_U32, y))));
    ir_else();
    ir_assign(result, build_value((ir_inst){ .op = op, .type = x.type }, x.type, 2, (val[]){ x, y }));
    ir_end_if();
    return result;
}

bool build_division(ir_op op, val x, val y, val *out)
{
    if (op != IR_DIV && op != IR_REM)
        return false;
    if (ir_is_constant(y) && is_power_of_two(y.i))
        *out = by_power_of_two(op, x, y.i);
    else if (width(x.type) == 64)
        *out = by_narrow(op, x, y);
    else
        return false;
    return true;
}
