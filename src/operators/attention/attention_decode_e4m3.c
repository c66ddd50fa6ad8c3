/* attention_decode_e4m3.c - e4m3 from and to f32 by integer arithmetic, for GPUs without such instructions. */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_config.h"

enum { FRACTION_BITS = 20, SIGN_AT = 24, BIAS = 120, CODE_MAX = 0x7e, CODE_NAN = 0x7f };

/* Exponent and fraction move to f32's places; times 2^120, as f32's bias is larger by 120. */
val attention_f32_of_e4m3(val byte)
{
    val x = convert(U32, byte), sign = shift_left(bit_and(x, imm_as(U32, 0x80)), imm(SIGN_AT));
    val rest = mul(bitcast(F32, shift_left(bit_and(x, imm_as(U32, 0x7f)), imm(FRACTION_BITS))), immf(0x1p120));
    return bitcast(F32, bit_or(bitcast(U32, rest), sign));
}

/* Subnormal codes count in units of 2^-9: adding 2^14 rounds to these. */
val attention_e4m3_of_f32(val x)
{
    val bits = bitcast(U32, x), size = bit_and(bits, imm_as(U32, 0x7fffffff)),
        sign = bit_and(bits, imm_as(U32, 1u << 31));
    val even = bit_and(shift_right(size, imm(FRACTION_BITS)), imm_as(U32, 1));
    val rounded = shift_right(add(add(size, imm((1 << (FRACTION_BITS - 1)) - 1)), even), imm(FRACTION_BITS));
    val tiny = bit_and(bitcast(U32, add(bitcast(F32, size), immf(0x1p14))), imm_as(U32, 0xff));
    val code = select(lt(bitcast(F32, size), immf(0x1p-6)), tiny, sub(rounded, imm(BIAS << 3)));
    code = select(lt(bitcast(F32, size), immf(464)), min(code, imm_as(U32, CODE_MAX)), imm_as(U32, CODE_MAX));
    code = select(lt(imm_as(U32, 0x7f800000), size), imm_as(U32, CODE_NAN), code);
    return bit_or(code, shift_right(sign, imm(SIGN_AT)));
}
