/*
 * attention_decode_narrow.c - products of attention_decode's sm80 with 8-bit keys and values, widened in registers.
 *
 * ldmatrix loads words of two elements, as if they were one of 16 bits. In a register of K all four bytes are
 * neighbours along the sum: elements 4t to 4t+3 of 16 stand where lane t's A has columns 2t, 2t+1, 2t+8, 2t+9, so Q is
 * loaded in that order. Words of V are transposed, so a register has the same word of two keys: its low bytes are of
 * one column, its high bytes of the next. They change places, and two atoms take the even and the odd ones of 16
 * columns.
 *
 * Products are in f16, to which e4m3 converts cheaply, for bf16 too: rows of Q are scaled by powers of 2 into the range
 * of f16, and scores by the inverse. That loses less than 2^-38 of a row's largest number.
 */
#include "cute/kernel.h"
#include "operators/attention/attention_decode_sm80.h"

/*
 * bf16 is f32 without its low 16 bits. A row's largest number is scaled to the exponent of 2^14; f16's largest is 2^15.
 */
enum { FRACTION_BITS = 7, F32_EXPONENT_AT = 23, BIAS = 127, EXPONENT_F16 = 14, EXPONENT_MIN = 15 };

/* Bytes of a word (0 .. 3) that become the high bytes of two 16-bit numbers; 4: zeros of the other operand. */
enum { BYTES_0_1 = 0x1404, BYTES_2_3 = 0x3424, BYTES_0_2_1_3 = 0x3120 };

/*
 * Two e4m3 as f16: exponent and fraction move to f16's places, which is right for subnormal numbers, too. The biases
 * differ, so the results are too small by 2^8, which the scales make up for.
 */
static val widen(val word, int bytes)
{
    val x = permute_bytes(word, imm_as(U32, 0), imm_as(U32, bytes));
    return bit_or(bit_and(shift_right(x, imm(1)), imm_as(U32, 0x3f803f80)), bit_and(x, imm_as(U32, 0x80008000)));
}

/* The four numbers of a word: bytes 0 and 1, 2 and 3. */
typedef struct widened {
    val pair[2];
} widened;

static widened widen_word(const decode_kernel *k, val word)
{
    if (!k->cfg->convert)
        return (widened){ { widen(word, BYTES_0_1), widen(word, BYTES_2_3) } };
    val low, high;
    unpack(word, IR_U16, &low, &high);
    return (widened){ { bitcast(U32, f16x2_of(CKL_E4M3, low)), bitcast(U32, f16x2_of(CKL_E4M3, high)) } };
}

/* One atom's B of two pairs of numbers. (WORDS,1,1) */
static tensor atom_of(const decode_kernel *k, val pair_0, val pair_1)
{
    tensor rB = fragment_B_words(&k->mma, 8, STEP);
    set(rB, 0, pair_0);
    set(rB, 1, pair_1);
    return rB;
}

void attention_decode_multiply_narrow_keys(const decode_kernel *k, val slot)
{
    const int bn = k->cfg->keys, atoms = (int)static_size(layout_mode(k->rQ.layout, 1));
    fill(k->scores, immf(0));
    for (int at = 0; at < k->d.used; at += STEP) {
        tensor sK = slice(k->sK, _, _, at / k->d.chunk, slot), rK = fragment_B_words(&k->mma, bn, STEP);
        ldmatrix_B(&k->mma, local_tile(sK, shape(bn, STEP), coord(0, at % k->d.chunk / STEP)), lane(), rK);
        for (int half = 0; half < 2; half++)
            for (int n = 0; n < bn / 8; n++) {
                const widened w = widen_word(k, at(rK, half, n, 0));
                tensor rB = atom_of(k, w.pair[0], w.pair[1]);
                gemm(&k->mma, local_tile(k->rQ, shape(4, atoms, 1), coord(0, 0, 2 * at / STEP + half)), rB,
                     local_tile(k->scores, shape(4, atoms, 1), coord(0, 0, n)), yes());
            }
    }
}

/* A word of two keys: those of one column, then of the next. */
static widened widen_columns(const decode_kernel *k, val word)
{
    return widen_word(k, permute_bytes(word, imm_as(U32, 0), imm_as(U32, BYTES_0_2_1_3)));
}

/* Subtile i of the columns by 16 keys, the j-th: of each word the even columns, then the odd ones. */
static void multiply_subtile(const decode_kernel *k, tensor rV, int i, int j)
{
    const int words = k->dv.subtile / 8, atoms = (int)static_size(layout_mode(k->out.layout, 1));
    for (int n = 0; n < words; n++) {
        const widened first = widen_columns(k, at(rV, 0, n, 0)), second = widen_columns(k, at(rV, 1, n, 0));
        for (int odd = 0; odd < 2; odd++) {
            tensor rB = atom_of(k, first.pair[odd], second.pair[odd]);
            gemm(&k->mma, local_tile(k->weights, shape(4, atoms, 1), coord(0, 0, j)), rB,
                 local_tile(k->out, shape(4, atoms, 1), coord(0, 0, (i * words + n) * 2 + odd)), yes());
        }
    }
}

void attention_decode_multiply_narrow_values(const decode_kernel *k, val slot)
{
    const int subtile = k->dv.subtile;
    tiled_copy transposed = make_tiled_copy_B("SM75_U16x8_LDSM_T", k->place.form.dtype, &k->mma, subtile, STEP);
    tensor sVt = slice(k->sVt, _, _, slot); // (WORDS,BN)
    for (int j = 0; j < k->cfg->keys / STEP; j++)
        for (int i = 0; i < k->dv.used / subtile; i++) {
            tensor sSubtile = local_tile(sVt, shape(subtile, STEP), coord(i, j)),
                   rV = fragment_B_words(&k->mma, subtile, STEP);
            copy_tiled(&transposed, partition_S(&transposed, sSubtile, lane()), rV);
            multiply_subtile(k, rV, i, j);
        }
}

/* Word number i of row m of Q: (PAIRS,MMA_M,MMA_K) has two rows and two columns of words of each atom. */
static int_tuple word_at(int m, int i)
{
    return coord(m % 2 + 2 * (i % 2), m / 2, i / 2);
}

/* The exponent of the largest number of a row, which four lanes share; i32, at least EXPONENT_MIN. */
static val row_exponent(const decode_kernel *k, int m, int words)
{
    val largest = imm_as(I32, EXPONENT_MIN << FRACTION_BITS);
    for (int i = 0; i < words; i++) {
        val word = at(k->rQ, word_at(m, i)), low = bit_and(word, imm_as(U32, 0x7fff)),
            high = bit_and(shift_right(word, imm(16)), imm_as(U32, 0x7fff));
        largest = max(largest, convert(I32, max(low, high)));
    }
    for (int lanes = 1; lanes < 4; lanes *= 2)
        largest = max(largest, shuffle_xor(largest, imm(lanes)));
    return shift_right(largest, imm(FRACTION_BITS));
}

void attention_decode_queries_to_f16(decode_kernel *k)
{
    const int words = 2 * (int)static_size(layout_mode(k->rQ.layout, 2));
    for (int m = 0; m < attention_online_row_count(k->scores); m++) {
        val exponent = row_exponent(k, m, words);
        val factor = bitcast(F32, shift_left(sub(imm(2 * BIAS + EXPONENT_F16), exponent), imm(F32_EXPONENT_AT)));
        k->row_unit[m] =
            variable(F32, bitcast(F32, shift_left(sub(exponent, imm(EXPONENT_F16)), imm(F32_EXPONENT_AT))));
        for (int i = 0; i < words; i++) {
            val word = at(k->rQ, word_at(m, i)), low = bitcast(F32, shift_left(word, imm(16))),
                high = bitcast(F32, bit_and(word, imm_as(U32, 0xffff0000)));
            val pair = pack(IR_F16X2, convert(F16, mul(low, factor)), convert(F16, mul(high, factor)));
            set(k->rQ, word_at(m, i), bitcast(U32, pair));
        }
    }
}

/* One number, for GPUs without such instructions */

enum { E4M3_FRACTION_AT = 20, E4M3_SIGN_AT = 24, E4M3_BIAS = 120, CODE_MAX = 0x7e, CODE_NAN = 0x7f };

/* Exponent and fraction move to f32's places; times 2^120, as f32's bias is larger by 120. */
val attention_f32_of_e4m3(val byte)
{
    val x = convert(U32, byte), sign = shift_left(bit_and(x, imm_as(U32, 0x80)), imm(E4M3_SIGN_AT));
    val rest = mul(bitcast(F32, shift_left(bit_and(x, imm_as(U32, 0x7f)), imm(E4M3_FRACTION_AT))), immf(0x1p120));
    return bitcast(F32, bit_or(bitcast(U32, rest), sign));
}

/* Subnormal codes count in units of 2^-9: adding 2^14 rounds to these. */
val attention_e4m3_of_f32(val x)
{
    val bits = bitcast(U32, x), size = bit_and(bits, imm_as(U32, 0x7fffffff)),
        sign = bit_and(bits, imm_as(U32, 1u << 31));
    val even = bit_and(shift_right(size, imm(E4M3_FRACTION_AT)), imm_as(U32, 1));
    val rounded = shift_right(add(add(size, imm((1 << (E4M3_FRACTION_AT - 1)) - 1)), even), imm(E4M3_FRACTION_AT));
    val tiny = bit_and(bitcast(U32, add(bitcast(F32, size), immf(0x1p14))), imm_as(U32, 0xff));
    val code = select(lt(bitcast(F32, size), immf(0x1p-6)), tiny, sub(rounded, imm(E4M3_BIAS << 3)));
    code = select(lt(bitcast(F32, size), immf(464)), min(code, imm_as(U32, CODE_MAX)), imm_as(U32, CODE_MAX));
    code = select(lt(imm_as(U32, 0x7f800000), size), imm_as(U32, CODE_NAN), code);
    return bit_or(code, shift_right(sign, imm(E4M3_SIGN_AT)));
}
