/* convert.c - conversions between types, in two steps through the widest type of the source's kind. */
#include "base/dtype.h"
#include "device/emulator/alu.h"

#define STEP(name, R, T, expr)                                                                   \
    WIDE static void name(void *out, const void *in, const void *unused_y, const void *unused_z) \
    {                                                                                            \
        const T *xs = in;                                                                        \
        R *ds = out;                                                                             \
        (void)unused_y, (void)unused_z;                                                          \
        EACH_LANE(i) {                                                                           \
            T x = xs[i];                                                                         \
            ds[i] = (R)(expr);                                                                   \
        }                                                                                        \
    }

static inline double f8_widen(ckl_dtype dtype, uint16_t register_bits)
{
    uint8_t byte = (uint8_t)register_bits;
    return dtype_read(dtype, &byte, 0);
}

/* Two of them side by side, the first in the low byte. */
static inline uint32_t f16x2_of_f8(ckl_dtype dtype, uint16_t both)
{
    const uint16_t low = f16_narrow((float)f8_widen(dtype, both)), high = f16_narrow((float)f8_widen(dtype, both >> 8));
    return low | (uint32_t)high << 16;
}

/* satfinite: what is too large becomes the largest number, infinity too. */
static inline uint16_t f8_narrow(ckl_dtype dtype, double x, double max)
{
    uint8_t byte;
    dtype_write(dtype, &byte, 0, isnan(x) ? x : fmin(fmax(x, -max), max));
    return byte;
}

/* Truncates and saturates. A NaN becomes 0, or the top bit alone if either side has 64 bits. */
#define TRUNCATE(name, T, below, above, nan)                                                                          \
    static inline T name(double x)                                                                                    \
    {                                                                                                                 \
        return (T)(x != x ? (T)(nan) : x <= (double)(below) ? (T)(below) : x >= (double)(above) ? (T)(above) : (T)x); \
    }
TRUNCATE(to_i16, int16_t, INT16_MIN, INT16_MAX, 0)
TRUNCATE(to_u16, uint16_t, 0, UINT16_MAX, 0)
TRUNCATE(to_i32, int32_t, INT32_MIN, INT32_MAX, 0)
TRUNCATE(to_u32, uint32_t, 0, UINT32_MAX, 0)
TRUNCATE(to_i64, int64_t, INT64_MIN, INT64_MAX, INT64_MIN)
TRUNCATE(to_u64, uint64_t, 0, UINT64_MAX, 1ULL << 63)

/* As a double, which keeps 53 bits: of a longer number without the lowest 11, and odd if one of those was set. */
#define TO_ODD(name, T, fits)                                                     \
    static inline double name(T x)                                                \
    {                                                                             \
        return (double)((fits) || !(x & 0x7ff) ? x : (x & ~(T)0x7ff) | (T)0x800); \
    }
TO_ODD(i64_to_odd, int64_t, x >> 53 == 0 || x >> 53 == -1)
TO_ODD(u64_to_odd, uint64_t, x >> 53 == 0)

STEP(f64_of_f32, lane_f64, lane_f32, x)
STEP(f64_of_f16, lane_f64, lane_u16, f16_widen(x))
STEP(f64_of_bf16, lane_f64, lane_u16, bf16_widen(x))
STEP(f64_of_e4m3, lane_f64, lane_u16, f8_widen(CKL_E4M3, x))
STEP(f64_of_e5m2, lane_f64, lane_u16, f8_widen(CKL_E5M2, x))
STEP(i64_of_i16, lane_i64, lane_i16, x)
STEP(i64_of_u16, lane_i64, lane_u16, x)
STEP(i64_of_i32, lane_i64, lane_i32, x)
STEP(i64_of_u32, lane_i64, lane_u32, x)
STEP(i64_of_i64, lane_i64, lane_i64, x)
STEP(i64_of_pred, lane_i64, lane_u8, x)

STEP(f32_from_f64, lane_f32, lane_f64, x)
STEP(f16_from_f64, lane_u16, lane_f64, f16_narrow(narrow_to_odd(x)))
STEP(bf16_from_f64, lane_u16, lane_f64, bf16_narrow(narrow_to_odd(x)))
STEP(e4m3_from_f64, lane_u16, lane_f64, f8_narrow(CKL_E4M3, x, 448))
STEP(e5m2_from_f64, lane_u16, lane_f64, f8_narrow(CKL_E5M2, x, 57344))
STEP(i16_from_f64, lane_i16, lane_f64, to_i16(x))
STEP(u16_from_f64, lane_u16, lane_f64, to_u16(x))
STEP(i32_from_f64, lane_i32, lane_f64, to_i32(x))
STEP(u32_from_f64, lane_u32, lane_f64, to_u32(x))
STEP(i64_from_f64, lane_i64, lane_f64, to_i64(x))
STEP(u64_from_f64, lane_u64, lane_f64, to_u64(x))

STEP(n16_from_i64, lane_u16, lane_i64, x)
STEP(n32_from_i64, lane_u32, lane_i64, x)
STEP(f32_from_i64, lane_f32, lane_i64, x)
STEP(f32_from_u64, lane_f32, lane_u64, x)
STEP(f16_from_i64, lane_u16, lane_i64, f16_narrow(narrow_to_odd((double)x)))
STEP(f16_from_u64, lane_u16, lane_u64, f16_narrow(narrow_to_odd((double)x)))
STEP(bf16_from_i64, lane_u16, lane_i64, bf16_narrow(narrow_to_odd(i64_to_odd(x))))
STEP(bf16_from_u64, lane_u16, lane_u64, bf16_narrow(narrow_to_odd(u64_to_odd(x))))

STEP(f32_of_f16, lane_f32, lane_u16, f16_widen(x))
STEP(f32_of_bf16, lane_f32, lane_u16, bf16_widen(x))
STEP(f16_of_f32, lane_u16, lane_f32, f16_narrow(x))
STEP(bf16_of_f32, lane_u16, lane_f32, bf16_narrow(x))
STEP(f16x2_of_e4m3, lane_u32, lane_u16, f16x2_of_f8(CKL_E4M3, x))
STEP(f16x2_of_e5m2, lane_u32, lane_u16, f16x2_of_f8(CKL_E5M2, x))
STEP(f32_of_i32, lane_f32, lane_i32, x)
STEP(f32_of_u32, lane_f32, lane_u32, x)

static alu_function *const float_widen[IR_TYPE_COUNT] = {
    [CKL_F32] = f64_of_f32,   [CKL_F16] = f64_of_f16,   [CKL_BF16] = f64_of_bf16,
    [CKL_E4M3] = f64_of_e4m3, [CKL_E5M2] = f64_of_e5m2,
};
static alu_function *const int_widen[IR_TYPE_COUNT] = {
    [CKL_I16] = i64_of_i16, [IR_U16] = i64_of_u16, [CKL_I32] = i64_of_i32,  [IR_U32] = i64_of_u32,
    [CKL_I64] = i64_of_i64, [IR_U64] = i64_of_i64, [IR_PRED] = i64_of_pred,
};

static alu_function *const float_narrow[IR_TYPE_COUNT] = {
    [CKL_F32] = f32_from_f64,   [CKL_F16] = f16_from_f64, [CKL_BF16] = bf16_from_f64, [CKL_E4M3] = e4m3_from_f64,
    [CKL_E5M2] = e5m2_from_f64, [CKL_I16] = i16_from_f64, [IR_U16] = u16_from_f64,    [CKL_I32] = i32_from_f64,
    [IR_U32] = u32_from_f64,    [CKL_I64] = i64_from_f64, [IR_U64] = u64_from_f64,
};
static alu_function *const signed_narrow[IR_TYPE_COUNT] = {
    [CKL_F32] = f32_from_i64, [CKL_F16] = f16_from_i64, [CKL_BF16] = bf16_from_i64,
    [CKL_I16] = n16_from_i64, [IR_U16] = n16_from_i64,  [CKL_I32] = n32_from_i64,
    [IR_U32] = n32_from_i64,  [CKL_I64] = i64_of_i64,   [IR_U64] = i64_of_i64,
};

/* Differs from the signed table where the top bit of a u64 counts: in conversions to floats. */
static alu_function *const unsigned_narrow[IR_TYPE_COUNT] = {
    [CKL_F32] = f32_from_u64, [CKL_F16] = f16_from_u64, [CKL_BF16] = bf16_from_u64,
    [CKL_I16] = n16_from_i64, [IR_U16] = n16_from_i64,  [CKL_I32] = n32_from_i64,
    [IR_U32] = n32_from_i64,  [CKL_I64] = i64_of_i64,   [IR_U64] = i64_of_i64,
};

typedef struct direct_row {
    ir_type to, from;
    alu_function *run;
} direct_row;

/* In any order. */
static const direct_row direct_rows[] = {
    { CKL_F32, CKL_F16, f32_of_f16 },      { CKL_F32, CKL_BF16, f32_of_bf16 },    { CKL_F16, CKL_F32, f16_of_f32 },
    { CKL_BF16, CKL_F32, bf16_of_f32 },    { CKL_F32, CKL_I32, f32_of_i32 },      { CKL_F32, IR_U32, f32_of_u32 },
    { IR_F16X2, CKL_E4M3, f16x2_of_e4m3 }, { IR_F16X2, CKL_E5M2, f16x2_of_e5m2 },
};

bool conversion_find(ir_type to, ir_type from, conversion *c)
{
    *c = (conversion){ 0 };
    for (int i = 0; i < COUNT_OF(direct_rows); i++)
        if (direct_rows[i].to == to && direct_rows[i].from == from)
            c->direct = direct_rows[i].run;
    bool from_float = float_widen[from] != NULL;
    c->widen = from_float ? float_widen[from] : int_widen[from];
    c->narrow = (from_float ? float_narrow : from == IR_U64 ? unsigned_narrow : signed_narrow)[to];
    return c->direct || (c->widen && c->narrow);
}

void conversion_run(const conversion *c, void *d, const void *x)
{
    if (c->direct) {
        c->direct(d, x, x, x);
        return;
    }
    _Alignas(64) unsigned char wide[LANES_BYTES_MAX];
    c->widen(wide, x, x, x);
    c->narrow(d, wide, wide, wide);
}
