/* divisor.c - factor and shift of a size, and what a kernel does with them. */
#include "cute/divisor.h"

divisor divisor_of(int64_t size)
{
    uint32_t shift = 0;
    while ((INT64_C(1) << shift) < size)
        shift++;
    return (divisor){ (uint32_t)(((INT64_C(1) << shift) - size) * (INT64_C(1) << 32) / size + 1), shift };
}

val divisor_quotient(val n, val factor, val shift)
{
    return ir_binary(IR_SHR, ir_binary(IR_ADD, ir_binary(IR_MUL_HI, n, factor), n), shift);
}

val divisor_coordinate(val *n, val d, val factor, val shift)
{
    const val number = *n;
    *n = divisor_quotient(number, factor, shift);
    return ir_binary(IR_SUB, number, ir_binary(IR_MUL, *n, d));
}
