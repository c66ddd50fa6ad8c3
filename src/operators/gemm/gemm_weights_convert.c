/*
 * gemm_weights_convert.c - weights of 8 and 4 bits as pairs of f16 or bf16, exactly, by integer instructions on whole
 * words.
 */
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
 * times as large. As bf16 they become quarters: of even pairs, in the low bits of 128, and of odd ones, which are small
 * numbers in units of 2^-129, subnormal or not.
 */
static val pair_of_nibbles(const weights_kernel *k, val word, int i)
{
    val half = i > 1 ? shift_right(word, imm(8)) : word;
    if (k->subnormal)
        return bit_and(half, imm_as(U32, i % 2 ? 0x00f000f0 : 0x000f000f));
    if (i % 2)
        return fma(pair_of(k, bit_and(half, imm_as(U32, 0x00f000f0))), both(k, 0, 0x7f00),
                   both(k, 0, 0xc000)); // 2^127, -2
    val raised = bit_and_or(half, imm_as(U32, 0x000f000f), imm_as(U32, 0x43004300));
    return fma(pair_of(k, raised), both(k, 0, 0x3e80), both(k, 0, 0xc208)); // 1/4, -34
}

/*
 * Pair i of two in a word of bytes, neighbours, raised by 128: in the low bits of 1024 as f16; as bf16 small numbers in
 * units of 2^-133, subnormal or not, which become 64ths.
 */
static val pair_of_bytes(const weights_kernel *k, val word, int i)
{
    val raised = bit_xor(word, imm_as(U32, 0x80808080));
    val above = imm_as(U32, k->cfg->epilogue.ab == F16 ? 0x64646464 : 0);
    val bytes = pair_of(k, permute_bytes(raised, above, imm_as(U32, i ? 0x5342 : 0x5140)));
    if (k->cfg->epilogue.ab == F16)
        return add(bytes, both(k, 0xe480, 0));                 // -1152
    return fma(bytes, both(k, 0, 0x7f00), both(k, 0, 0xc000)); // 2^127, -2
}

/*
 * Pair i of two in a word of e4m3, neighbours. Moved to the exponent and fraction of f16 or bf16 they are 2^8 or 2^120
 * times too small, subnormals too; as f16 they stay so. NaN gets all bits set.
 */
static val pair_of_e4m3(const weights_kernel *k, val word, int i)
{
    const bool f16 = k->cfg->epilogue.ab == F16;
    val high = permute_bytes(word, imm_as(U32, 0), imm_as(U32, i ? 0x3424 : 0x1404)); // the upper halves of 16 bits
    val magnitude = bit_and(high, imm_as(U32, 0x7f007f00));
    val beyond = add(magnitude, imm_as(U32, 0x01000100));                 // NaN reaches the sign
    val nan = permute_bytes(beyond, imm_as(U32, 0), imm_as(U32, 0xbb99)); // signs of bytes 1 and 3, in all bits
    val rest = bit_and_or(high, imm_as(U32, 0x80008000), nan);
    val small = pair_of(k, bit_or(shift_right(magnitude, imm(f16 ? 1 : 4)), rest));
    return f16 ? small : mul(small, both(k, 0, 0x7b80)); // 2^120
}

/* The same by instructions of sm_90, which all have that have TMA: as they are. */
static val pair_converted(const weights_kernel *k, val word, int i)
{
    val halves[2], values[2];
    unpack(word, IR_U16, &halves[0], &halves[1]);
    const val pair = f16x2_of(CKL_E4M3, halves[i]);
    if (k->cfg->epilogue.ab == F16)
        return pair;
    unpack(pair, F16, &values[0], &values[1]);
    for (int j = 0; j < 2; j++)
        values[j] = convert(BF16, convert(F32, values[j]));
    return pack(IR_BF16X2, values[0], values[1]);
}

float gemm_weights_unit(const weights_kernel *k)
{
    const bool f16 = k->cfg->epilogue.ab == F16;
    switch (k->cfg->epilogue.b) {
    case CKL_U8:
        return f16 ? 0x1p24F : 4;
    case CKL_E4M3:
        return f16 && !k->cfg->box ? 256 : 1;
    default:
        return f16 ? 1 : 64;
    }
}

val gemm_weights_pair(const weights_kernel *k, tensor rWords, int step, int i)
{
    if (k->nibbles)
        return bitcast(U32, pair_of_nibbles(k, bitcast(U32, at(rWords, step / 2)), step % 2 + 2 * i));
    val word = bitcast(U32, at(rWords, step));
    if (k->cfg->epilogue.b == CKL_E4M3)
        return bitcast(U32, (k->cfg->box ? pair_converted : pair_of_e4m3)(k, word, i));
    return bitcast(U32, pair_of_bytes(k, word, i));
}
