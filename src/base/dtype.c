/* dtype.c - the table of element types, and rounding to each of them. */
#include "base/dtype.h"

#include <math.h>
#include <string.h>

#include "base/wide.h"

typedef struct dtype_row {
    const char *name;
    size_t bytes;
    bool is_float;
    int mantissa_bits, exponent_min; // of normal numbers; floats only
    double max;
} dtype_row;

static const dtype_row rows[CKL_DTYPE_COUNT] = {
    [CKL_DTYPE_DEFAULT] = { "default", 0, false, 0, 0, 0 },
    [CKL_F64] = { "f64", 8, true, 52, -1022, 0x1.fffffffffffffp1023 },
    [CKL_F32] = { "f32", 4, true, 23, -126, 0x1.fffffep127 },
    [CKL_F16] = { "f16", 2, true, 10, -14, 65504 },
    [CKL_BF16] = { "bf16", 2, true, 7, -126, 0x1.fep127 },
    [CKL_E4M3] = { "e4m3", 1, true, 3, -6, 448 },
    [CKL_E5M2] = { "e5m2", 1, true, 2, -14, 57344 },
    [CKL_I64] = { "i64", 8, false, 0, 0, 0x1p63 },
    [CKL_I32] = { "i32", 4, false, 0, 0, INT32_MAX },
    [CKL_I16] = { "i16", 2, false, 0, 0, INT16_MAX },
    [CKL_I8] = { "i8", 1, false, 0, 0, INT8_MAX },
    [CKL_U8] = { "u8", 1, false, 0, 0, UINT8_MAX },
    [CKL_BOOL] = { "bool", 1, false, 0, 0, 1 },
};

static const dtype_row *row_of(ckl_dtype dtype)
{
    return &rows[(unsigned)dtype < CKL_DTYPE_COUNT ? dtype : CKL_DTYPE_DEFAULT];
}

const char *ckl_dtype_name(ckl_dtype dtype)
{
    return row_of(dtype)->name;
}

size_t ckl_dtype_bytes(ckl_dtype dtype)
{
    return row_of(dtype)->bytes;
}

bool dtype_is_float(ckl_dtype dtype)
{
    return row_of(dtype)->is_float;
}

bool dtype_find(const char *name, ckl_dtype *dtype)
{
    for (int i = 1; i < CKL_DTYPE_COUNT; i++)
        if (strcmp(rows[i].name, name) == 0) {
            *dtype = (ckl_dtype)i;
            return true;
        }
    return false;
}

/* Rounds |x| to a multiple of the format's spacing at x, ties to even; the result is exact in double. */
static double round_magnitude(const dtype_row *row, double magnitude)
{
    int exponent;
    frexp(magnitude, &exponent); // magnitude = f * 2^exponent, 0.5 <= f < 1
    exponent = exponent - 1 > row->exponent_min ? exponent - 1 : row->exponent_min;
    double spacing = ldexp(1, exponent - row->mantissa_bits);
    return nearbyint(magnitude / spacing) * spacing;
}

/* The bits of a finite value that the format holds exactly, without its sign. */
static unsigned encode_magnitude(const dtype_row *row, double magnitude)
{
    int exponent;
    frexp(magnitude, &exponent);
    exponent -= 1;
    if (magnitude == 0 || exponent < row->exponent_min) // subnormal
        return (unsigned)ldexp(magnitude, row->mantissa_bits - row->exponent_min);
    unsigned fraction = (unsigned)ldexp(magnitude, row->mantissa_bits - exponent); // with the leading 1
    unsigned biased = (unsigned)(exponent - row->exponent_min + 1);
    return (biased << row->mantissa_bits) + (fraction - (1U << row->mantissa_bits));
}

static uint8_t f8_from_double(ckl_dtype dtype, double x)
{
    const dtype_row *row = &rows[dtype];
    unsigned sign = signbit(x) ? 0x80 : 0, nan = 0x7f, infinity = dtype == CKL_E4M3 ? nan : 0x7c;
    if (isnan(x))
        return (uint8_t)(sign | nan);
    double magnitude = isinf(x) ? x : round_magnitude(row, fabs(x));
    return (uint8_t)(sign | (fabs(magnitude) > row->max ? infinity : encode_magnitude(row, magnitude)));
}

uint16_t bf16_from_f32(float x)
{
    const uint32_t bits = bits_of_float(x);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t f16_from_f32(float x)
{
    const uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) // rounds to 2^16 or more
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000) // subnormal in f16: adding 0.5 leaves the rounded multiple of 2^-24 in the low bits
        return (uint16_t)(sign | (bits_of_float(float_of_bits(magnitude) + 0.5F) - 0x3f000000));
    uint32_t rounded = magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1);
    return (uint16_t)(sign | rounded >> 13);
}

/* A loop for each type of long sums of products. */
#define READ_RUN(type, read)                                     \
    for (int64_t i = 0; i < count; i++)                          \
        out[i] = (double)read(((const type *)array)[first + i]); \
    break

WIDE void dtype_read_run(ckl_dtype dtype, const void *array, int64_t first, int64_t count, double *out)
{
    switch (dtype) {
    case CKL_F16:
        READ_RUN(uint16_t, f32_from_f16);
    case CKL_BF16:
        READ_RUN(uint16_t, f32_from_bf16);
    case CKL_E4M3:
        READ_RUN(uint8_t, f32_from_e4m3);
    case CKL_E5M2:
        READ_RUN(uint8_t, f32_from_e5m2);
    default:
        for (int64_t i = 0; i < count; i++)
            out[i] = dtype_read(dtype, array, first + i);
    }
}

/* The nearest integer of the type's range; NaN gives 0. */
static int64_t saturate(ckl_dtype dtype, double value)
{
    if (isnan(value))
        return 0;
    double max = rows[dtype].max, min = dtype == CKL_U8 || dtype == CKL_BOOL ? 0 : -max - 1;
    if (value >= max)
        return dtype == CKL_I64 ? INT64_MAX : (int64_t)max;
    if (value <= min)
        return dtype == CKL_I64 ? INT64_MIN : (int64_t)min;
    return (int64_t)nearbyint(value);
}

/* Rounds to f32, to odd: the last bit keeps what was cut off, so that rounding again to a shorter format is correct. */
static float narrow_to_odd(double value)
{
    float x = (float)value;
    if (isnan(value) || isinf(x) || (double)x == value || bits_of_float(x) & 1)
        return x;
    return nextafterf(x, (double)x < value ? INFINITY : -INFINITY);
}

void dtype_write(ckl_dtype dtype, void *array, int64_t index, double value)
{
    switch (dtype) {
    case CKL_F64:
        ((double *)array)[index] = value;
        break;
    case CKL_F32:
        ((float *)array)[index] = (float)value;
        break;
    case CKL_F16:
        ((uint16_t *)array)[index] = f16_from_f32(narrow_to_odd(value));
        break;
    case CKL_BF16:
        ((uint16_t *)array)[index] = bf16_from_f32(narrow_to_odd(value));
        break;
    case CKL_I64:
        ((int64_t *)array)[index] = saturate(dtype, value);
        break;
    case CKL_I32:
        ((int32_t *)array)[index] = (int32_t)saturate(dtype, value);
        break;
    case CKL_I16:
        ((int16_t *)array)[index] = (int16_t)saturate(dtype, value);
        break;
    case CKL_I8:
        ((int8_t *)array)[index] = (int8_t)saturate(dtype, value);
        break;
    case CKL_U8:
    case CKL_BOOL:
        ((uint8_t *)array)[index] = (uint8_t)saturate(dtype, value);
        break;
    case CKL_E4M3:
    case CKL_E5M2:
        ((uint8_t *)array)[index] = f8_from_double(dtype, value);
        break;
    default:
        break;
    }
}

double dtype_epsilon(ckl_dtype dtype)
{
    const dtype_row *row = row_of(dtype);
    return row->is_float ? ldexp(1, -row->mantissa_bits) : 0;
}

double dtype_tiny(ckl_dtype dtype)
{
    const dtype_row *row = row_of(dtype);
    return row->is_float ? ldexp(1, row->exponent_min - row->mantissa_bits) : 0;
}

double dtype_max(ckl_dtype dtype)
{
    return row_of(dtype)->max;
}
