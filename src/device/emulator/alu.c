/* alu.c - arithmetic on 32 lanes: one small function per op and type, found through one table. */
#include "device/emulator/alu.h"

#include "device/emulator/lanes.h"

/* A function of up to three operands, T in and R out; `expr` sees x, y and z of one lane. */
#define FUNCTION(attributes, name, R, T, expr)                                                   \
    attributes static void name(void *out, const void *in_x, const void *in_y, const void *in_z) \
    {                                                                                            \
        const T *xs = in_x, *ys = in_y, *zs = in_z;                                              \
        R *ds = out;                                                                             \
        EACH_LANE(i) {                                                                           \
            T x = xs[i], y = ys[i], z = zs[i];                                                   \
            (void)x, (void)y, (void)z;                                                           \
            ds[i] = (R)(expr);                                                                   \
        }                                                                                        \
    }
#define LANEWISE(name, R, T, expr) FUNCTION(WIDE, name, R, T, expr)

/* Divisions and functions of the C library, which have no vector form: one version, for every instruction set. */
#define SCALAR(name, T, expr) FUNCTION(, name, T, T, expr)

/* Integers of W bits, with or without a sign: sums wrap. */
#define WORDS(t, U, W)                                              \
    LANEWISE(add_##t, U, U, x + y)                                  \
    LANEWISE(sub_##t, U, U, x - y)                                  \
    LANEWISE(mul_##t, U, U, (uint64_t)x *(uint64_t)y)               \
    LANEWISE(fma_##t, U, U, (uint64_t)x *(uint64_t)y + (uint64_t)z) \
    LANEWISE(neg_##t, U, U, 0 - x)                                  \
    LANEWISE(not_##t, U, U, ~x)                                     \
    LANEWISE(and_##t, U, U, x &y)                                   \
    LANEWISE(or_##t, U, U, x | y)                                   \
    LANEWISE(xor_##t, U, U, x ^ y)                                  \
    EQUALITIES(t, U)                                                \
    SHIFT(shl_##t, U, W, 0, (U)x << (n & (W - 1)))

/* And what depends on the sign; U is the unsigned type of T. */
#define INTEGERS(t, T, U, W, negative)                         \
    LANEWISE(smaller_##t, T, T, x < y ? x : y)                 \
    LANEWISE(larger_##t, T, T, x > y ? x : y)                  \
    LANEWISE(abs_##t, T, T, (negative) ? (U)(0 - (U)x) : (U)x) \
    SCALAR(div_##t, T, quotient_##t(x, y))                     \
    SCALAR(rem_##t, T, remainder_##t(x, y))                    \
    ORDERS(t, T)                                               \
    SHIFT(shr_##t, T, W, (negative) ? -1 : 0, x >> (n & (W - 1)))

/* The shift count n is a 32-bit operand beside a value of W bits; from W on the result is `beyond`. */
#define SHIFT(name, T, W, beyond, expr)                                                    \
    WIDE static void name(void *out, const void *in_x, const void *in_n, const void *in_z) \
    {                                                                                      \
        const T *xs = in_x;                                                                \
        const lane_u32 *counts = in_n;                                                     \
        T *d = out;                                                                        \
        (void)in_z;                                                                        \
        EACH_LANE(i) {                                                                     \
            T x = xs[i];                                                                   \
            uint32_t n = counts[i];                                                        \
            d[i] = (T)(n >= W ? (T)(beyond) : (T)(expr));                                  \
        }                                                                                  \
    }

/* Results are predicates. NE is true of NaNs, the others are false. */
#define EQUALITIES(t, T)                 \
    LANEWISE(eq_##t, lane_u8, T, x == y) \
    LANEWISE(ne_##t, lane_u8, T, x != y)
#define ORDERS(t, T)                     \
    LANEWISE(lt_##t, lane_u8, T, x < y)  \
    LANEWISE(le_##t, lane_u8, T, x <= y) \
    LANEWISE(gt_##t, lane_u8, T, x > y)  \
    LANEWISE(ge_##t, lane_u8, T, x >= y)
#define COMPARISONS(t, T) EQUALITIES(t, T) ORDERS(t, T)

/* A divisor of 0 is a fault in an active lane, found before; in the others it must merely do no harm. */
#define DIVISIONS(t, T, overflows)                        \
    static inline T quotient_##t(T x, T y)                \
    {                                                     \
        return (T)(y == 0 ? 0 : (overflows) ? x : x / y); \
    }                                                     \
    static inline T remainder_##t(T x, T y)               \
    {                                                     \
        return (T)(y == 0 || (overflows) ? 0 : x % y);    \
    }
DIVISIONS(i32, int32_t, x == INT32_MIN && y == -1)
DIVISIONS(u32, uint32_t, false)
DIVISIONS(i64, int64_t, x == INT64_MIN && y == -1)
DIVISIONS(u64, uint64_t, false)

WORDS(u32, lane_u32, 32)
WORDS(u64, lane_u64, 64)
INTEGERS(i32, lane_i32, uint32_t, 32, x < 0)
INTEGERS(u32, lane_u32, uint32_t, 32, false)
INTEGERS(i64, lane_i64, uint64_t, 64, x < 0)
INTEGERS(u64, lane_u64, uint64_t, 64, false)

__extension__ typedef __int128 wide_int;
__extension__ typedef unsigned __int128 wide_unsigned;
static inline uint32_t permute_bytes(uint32_t x, uint32_t y, uint32_t selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = selector >> 4 * i & 15, byte = (uint32_t)(bytes >> 8 * (s & 7)) & 0xff;
        out |= (s & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
    }
    return out;
}
LANEWISE(and_or_u32, lane_u32, lane_u32, (x & y) | z)
LANEWISE(prmt_u32, lane_u32, lane_u32, permute_bytes(x, y, z))

LANEWISE(mul_hi_i32, lane_i32, lane_i32, (int64_t)x *y >> 32)
LANEWISE(mul_hi_u32, lane_u32, lane_u32, (uint64_t)x *y >> 32)
LANEWISE(mul_hi_i64, lane_i64, lane_i64, (wide_int)x *y >> 64)
LANEWISE(mul_hi_u64, lane_u64, lane_u64, (wide_unsigned)x *y >> 64)

LANEWISE(not_pred, lane_u8, lane_u8, !x)
LANEWISE(and_pred, lane_u8, lane_u8, x &y)
LANEWISE(or_pred, lane_u8, lane_u8, x | y)
LANEWISE(xor_pred, lane_u8, lane_u8, x ^ y)

/* Floats. Arithmetic that makes a NaN makes the GPU's, whatever the host's would be: seen on an H200. */

static inline float canonical(float x)
{
    return x != x ? float_of_bits(0x7fffffff) : x;
}

LANEWISE(add_f32, lane_f32, lane_f32, canonical(x + y))
LANEWISE(sub_f32, lane_f32, lane_f32, canonical(x - y))
LANEWISE(mul_f32, lane_f32, lane_f32, canonical(x *y))
LANEWISE(fma_f32, lane_f32, lane_f32, canonical(fmaf(x, y, z)))
LANEWISE(div_f32, lane_f32, lane_f32, canonical(x / y))
LANEWISE(neg_f32, lane_u32, lane_u32, x ^ 0x80000000)
LANEWISE(abs_f32, lane_u32, lane_u32, x & 0x7fffffff)
LANEWISE(min_f32_number, lane_f32, lane_f32, canonical(min_f32(x, y, false)))
LANEWISE(max_f32_number, lane_f32, lane_f32, canonical(max_f32(x, y, false)))
LANEWISE(min_f32_nan, lane_f32, lane_f32, canonical(min_f32(x, y, true)))
LANEWISE(max_f32_nan, lane_f32, lane_f32, canonical(max_f32(x, y, true)))
COMPARISONS(f32, lane_f32)
LANEWISE(sqrt_f32, lane_f32, lane_f32, canonical(sqrtf(x)))
LANEWISE(rcp_f32, lane_f32, lane_f32, canonical(1 / x))

/* Subnormals to a zero of their sign. */
static inline float flush(float x)
{
    return fabsf(x) < 0x1p-126F ? copysignf(0, x) : x;
}

/* Through double and rounded once more: correctly rounded but for a few arguments in 2^29. */
LANEWISE(rsqrt_f32, lane_f32, lane_f32, canonical((float)(1 / sqrt((double)x))))
SCALAR(ex2_f32, lane_f32, canonical((float)(exp2((double)x))))
SCALAR(ex2_f32_ftz, lane_f32, canonical(flush((float)exp2((double)flush(x)))))
LANEWISE(rcp_f32_ftz, lane_f32, lane_f32, canonical(flush(1 / flush(x))))
SCALAR(lg2_f32, lane_f32, canonical((float)(log2((double)x))))
SCALAR(sin_f32, lane_f32, canonical((float)(sin((double)x))))
SCALAR(cos_f32, lane_f32, canonical((float)(cos((double)x))))

/*
 * Pairs of 16-bit floats. f32 holds enough bits that rounding a sum twice is harmless; products and fused sums go
 * through double, rounded to odd.
 */
#define HALVES(t)                                                                                                      \
    LANEWISE(add_##t, lane_u16, lane_u16, t##_narrow(t##_widen(x) + t##_widen(y)))                                     \
    LANEWISE(sub_##t, lane_u16, lane_u16, t##_narrow(t##_widen(x) - t##_widen(y)))                                     \
    LANEWISE(mul_##t, lane_u16, lane_u16, t##_narrow(narrow_to_odd((double)t##_widen(x) * (double)t##_widen(y))))      \
    LANEWISE(fma_##t, lane_u16, lane_u16,                                                                              \
             t##_narrow(narrow_to_odd(add_to_odd((double)t##_widen(x) * (double)t##_widen(y), (double)t##_widen(z))))) \
    PAIRS(add, t) PAIRS(sub, t) PAIRS(mul, t) PAIRS(fma, t)

/* Pairs are twice as many: the same function on either half of the lanes. */
#define PAIRS(op, t)                                                                                \
    static void op##_##t##x2(void *out, const void *x, const void *y, const void *z)                \
    {                                                                                               \
        op##_##t(out, x, y, z);                                                                     \
        op##_##t((lane_u16 *)out + LANES, (const lane_u16 *)x + LANES, (const lane_u16 *)y + LANES, \
                 (const lane_u16 *)z + LANES);                                                      \
    }
HALVES(f16)
HALVES(bf16)

/* Moves, by width */

#define MOVES(bytes, T)                                                                              \
    LANEWISE(move_##bytes, T, T, x)                                                                  \
    WIDE static void select_##bytes(void *out, const void *in_p, const void *in_x, const void *in_y) \
    {                                                                                                \
        const lane_u8 *p = in_p;                                                                     \
        const T *x = in_x, *y = in_y;                                                                \
        T *d = out;                                                                                  \
        EACH_LANE(i)                                                                                 \
            d[i] = p[i] ? x[i] : y[i];                                                               \
    }
MOVES(1, lane_u8)
MOVES(2, lane_u16)
MOVES(4, lane_u32)
MOVES(8, lane_u64)

#define BY_WIDTH(name)                                                       \
    {                                                                        \
        NULL, name##_1, name##_2, NULL, name##_4, NULL, NULL, NULL, name##_8 \
    }
static alu_function *const moves[9] = BY_WIDTH(move);
static alu_function *const selects[9] = BY_WIDTH(select);

/* The tables */

#define INTEGER_ROWS(T, t, u)                                                                                          \
    [IR_ADD][T] = add_##u, [IR_SUB][T] = sub_##u, [IR_MUL][T] = mul_##u, [IR_FMA][T] = fma_##u, [IR_DIV][T] = div_##t, \
    [IR_REM][T] = rem_##t, [IR_MIN][T] = smaller_##t, [IR_MAX][T] = larger_##t, [IR_NEG][T] = neg_##u,                 \
    [IR_ABS][T] = abs_##t, [IR_NOT][T] = not_##u, [IR_AND][T] = and_##u, [IR_OR][T] = or_##u, [IR_XOR][T] = xor_##u,   \
    [IR_SHL][T] = shl_##u, [IR_SHR][T] = shr_##t
#define SUM_ROWS(T, t) [IR_ADD][T] = add_##t, [IR_SUB][T] = sub_##t, [IR_MUL][T] = mul_##t, [IR_FMA][T] = fma_##t
#define F32_ROWS(T)                                                                                        \
    SUM_ROWS(T, f32), [IR_DIV][T] = div_f32, [IR_NEG][T] = neg_f32, [IR_ABS][T] = abs_f32,                 \
                      [IR_MIN][T] = min_f32_number, [IR_MAX][T] = max_f32_number, [IR_SQRT][T] = sqrt_f32, \
                      [IR_RCP_APPROX][T] = rcp_f32, [IR_RSQRT][T] = rsqrt_f32, [IR_EX2][T] = ex2_f32,      \
                      [IR_LG2][T] = lg2_f32, [IR_SIN][T] = sin_f32, [IR_COS][T] = cos_f32
#define PRED_ROWS(T) [IR_NOT][T] = not_pred, [IR_AND][T] = and_pred, [IR_OR][T] = or_pred, [IR_XOR][T] = xor_pred

static alu_function *const functions[IR_OP_COUNT][IR_TYPE_COUNT] = {
    INTEGER_ROWS(CKL_I32, i32, u32),
    INTEGER_ROWS(IR_U32, u32, u32),
    INTEGER_ROWS(CKL_I64, i64, u64),
    INTEGER_ROWS(IR_U64, u64, u64),
    F32_ROWS(CKL_F32),
    SUM_ROWS(IR_F16X2, f16x2),
    SUM_ROWS(IR_BF16X2, bf16x2),
    PRED_ROWS(IR_PRED),
    [IR_MUL_HI] = { [CKL_I32] = mul_hi_i32, [IR_U32] = mul_hi_u32, [CKL_I64] = mul_hi_i64, [IR_U64] = mul_hi_u64 },
    [IR_PRMT] = { [CKL_I32] = prmt_u32, [IR_U32] = prmt_u32 },
    [IR_AND_OR] = { [CKL_I32] = and_or_u32, [IR_U32] = and_or_u32 },
};

#define COMPARE_ROW(t, u)                                                                                          \
    {                                                                                                              \
        [IR_EQ] = eq_##u, [IR_NE] = ne_##u, [IR_LT] = lt_##t, [IR_LE] = le_##t, [IR_GT] = gt_##t, [IR_GE] = ge_##t \
    }
static alu_function *const comparisons[IR_TYPE_COUNT][6] = {
    [CKL_I32] = COMPARE_ROW(i32, u32), [IR_U32] = COMPARE_ROW(u32, u32),  [CKL_I64] = COMPARE_ROW(i64, u64),
    [IR_U64] = COMPARE_ROW(u64, u64),  [CKL_F32] = COMPARE_ROW(f32, f32),
};

/* With mode 1, which only f32 has. */
static alu_function *const f32_of_mode[IR_OP_COUNT] = {
    [IR_MIN] = min_f32_nan,
    [IR_MAX] = max_f32_nan,
    [IR_EX2] = ex2_f32_ftz,
    [IR_RCP_APPROX] = rcp_f32_ftz,
};

alu_function *alu_find(const ir_inst *inst, int out_bytes)
{
    if ((unsigned)inst->type >= IR_TYPE_COUNT)
        return NULL;
    switch (inst->op) {
    case IR_MOV:
    case IR_BITCAST:
        return moves[out_bytes];
    case IR_SELECT:
        return selects[out_bytes];
    case IR_COMPARE:
        return comparisons[inst->type][inst->mode];
    default:
        break;
    }
    return inst->mode == 1 && inst->type == CKL_F32 ? f32_of_mode[inst->op] : functions[inst->op][inst->type];
}

#define BLEND(T)                                \
    do {                                        \
        T *d = to;                              \
        const T *x = from;                      \
        EACH_LANE(i)                            \
            d[i] = mask >> i & 1 ? x[i] : d[i]; \
    } while (0)

WIDE void lanes_blend(void *to, const void *from, lane_mask mask, int bytes)
{
    if (bytes == 4)
        BLEND(lane_u32);
    else if (bytes == 8)
        BLEND(lane_u64);
    else if (bytes == 2)
        BLEND(lane_u16);
    else
        BLEND(lane_u8);
}
