/* gemm_weights_convert.c - weights of 8 and 4 bits as pairs of f16 or bf16, exactly, by integer instructions on whole words. */
#include "operators/gemm/gemm_weights.h"

static val pair_of(const weights_kernel *k, val bits)
{
    return bitcast(k->cfg->epilogue.ab == F16 ? IR_F16X2 : IR_BF16X2, bits);
}

/* A constant in both halves of a pair. */
static val both(const weights_kernel *k, uint32_t f16, uint32_t bf16)
{
    uint32_t x = k->cfg->epilogue.ab == F16 ? f16 : bf16;
    return pair_of(k, imm_as(U32, (int64_t)(x << 16 | x)));
}

/*
 * Pair i of four in a word of 4-bit integers: those 16 bits apart. As f16 the bits are subnormal numbers, odd pairs 16
 * times as large. As bf16 they are added exactly in the low bits of 128.
 */
static val pair_of_nibbles(const weights_kernel *k, val word, int i)
{
    if (k->subnormal)
        return bit_and(i > 1 ? shift_right(word, imm(8)) : word, imm_as(U32, i % 2 ? 0x00f000f0 : 0x000f000f));
    val raised = bit_and_or(i ? shift_right(word, imm(4 * i)) : word, imm_as(U32, 0x000f000f), imm_as(U32, 0x43004300));
    return add(pair_of(k, raised), both(k, 0, 0xc308)); // -136
}

/* Pair i of two in a word of bytes, neighbours: in the low bits of 1024; bf16 has no room, so by halves of a byte. */
static val pair_of_bytes(const weights_kernel *k, val word, int i)
{
    val raised = bit_xor(word, imm_as(U32, 0x80808080)); // by 128
    if (k->cfg->epilogue.ab == F16)
        return add(pair_of(k, permute_bytes(raised, imm_as(U32, 0x64646464), imm_as(U32, i ? 0x5342 : 0x5140))),
                   both(k, 0xe480, 0)); // -1152
    val bytes = permute_bytes(raised, imm_as(U32, 0), imm_as(U32, i ? 0x4342 : 0x4140));
    val low = bit_and_or(bytes, imm_as(U32, 0x000f000f), imm_as(U32, 0x43004300));
    val high = bit_and_or(shift_right(bytes, imm(4)), imm_as(U32, 0x000f000f), imm_as(U32, 0x43004300));
    val upper = add(pair_of(k, high), both(k, 0, 0xc308));                           // -136
    return fma(upper, both(k, 0, 0x4180), add(pair_of(k, low), both(k, 0, 0xc300))); // 16, -128
}

/*
 * Pair i of two in a word of e4m3, neighbours. Moved to the exponent and fraction of f16 or bf16 they are 2^8 or 2^120
 * times too small, subnormals too; NaN gets the whole exponent set.
 */
static val pair_of_e4m3(const weights_kernel *k, val word, int i)
{
    const bool f16 = k->cfg->epilogue.ab == F16;
    val high =
        permute_bytes(word, imm_as(U32, 0), imm_as(U32, i ? 0x3424 : 0x1404)); // each in the upper half of 16 bits
    val magnitude = bit_and(high, imm_as(U32, 0x7f007f00)), sign = bit_and(high, imm_as(U32, 0x80008000));
    val nan = bit_and(add(magnitude, imm_as(U32, 0x01000100)), imm_as(U32, 0x80008000));
    val exponent = sub(nan, shift_right(nan, imm(f16 ? 1 : 4)));
    val small = bit_or(bit_or(shift_right(magnitude, imm(f16 ? 1 : 4)), exponent), sign);
    return mul(pair_of(k, small), both(k, 0x5c00, 0x7b80)); // 2^8, 2^120
}

val gemm_weights_pair(const weights_kernel *k, tensor rWords, int step, int i)
{
    if (k->nibbles)
        return bitcast(U32, pair_of_nibbles(k, bitcast(U32, at(rWords, step / 2)), step % 2 + 2 * i));
    val word = bitcast(U32, at(rWords, step));
    return bitcast(U32, (k->cfg->epilogue.b == CKL_E4M3 ? pair_of_e4m3 : pair_of_bytes)(k, word, i));
}
