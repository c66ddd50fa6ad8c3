/* dtype.h - element types on the host: names, sizes, and conversion of the 16-bit and 8-bit floats. */
#pragma once

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "cutekernellib/tensor.h"

/* False for integers and bool. */
bool dtype_is_float(ckl_dtype dtype);

/* The dtype of that name; false if there is none. */
bool dtype_find(const char *name, ckl_dtype *dtype);

/* Bytes of an element, for sizes that have a sign. */
static inline int dtype_bytes(ckl_dtype dtype)
{
    return (int)ckl_dtype_bytes(dtype);
}

/* Round to nearest even; overflow gives infinity, and a NaN stays one. */
uint16_t f16_from_f32(float x);
uint16_t bf16_from_f32(float x);

static inline uint32_t bits_of_float(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float f32_from_bf16(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

/* Without branches, so that loops become vectors. The product moves the exponent, makes subnormals normal: exact. */
static inline float f32_from_f16(uint16_t bits)
{
    const uint32_t magnitude = bits & 0x7fff, wide = bits_of_float(float_of_bits(magnitude << 13) * 0x1p112F);
    return float_of_bits(wide | (uint32_t)(bits & 0x8000) << 16 | (magnitude >= 0x7c00 ? 0x7f800000 : 0));
}

/* The same of 8 bits: E5M2 is the upper half of f16, and E4M3 has no infinity. */
static inline float f32_from_e5m2(uint8_t bits)
{
    return f32_from_f16((uint16_t)(bits << 8));
}

static inline float f32_from_e4m3(uint8_t bits)
{
    const uint32_t magnitude = bits & 0x7f, wide = bits_of_float(float_of_bits(magnitude << 20) * 0x1p120F);
    return float_of_bits(wide | (uint32_t)(bits & 0x80) << 24 | (magnitude == 0x7f ? 0x7fc00000 : 0));
}

/*
 * Reads or writes element index of an array of a dtype, or reads `count` from `first` on. Writing rounds once, to
 * nearest even, and integers saturate. Inline, so that in a loop the type is looked at once.
 */
static inline double dtype_read(ckl_dtype dtype, const void *array, int64_t index)
{
    switch (dtype) {
    case CKL_F64:
        return ((const double *)array)[index];
    case CKL_F32:
        return (double)((const float *)array)[index];
    case CKL_F16:
        return (double)f32_from_f16(((const uint16_t *)array)[index]);
    case CKL_BF16:
        return (double)f32_from_bf16(((const uint16_t *)array)[index]);
    case CKL_I64:
        return (double)((const int64_t *)array)[index];
    case CKL_I32:
        return ((const int32_t *)array)[index];
    case CKL_I16:
        return ((const int16_t *)array)[index];
    case CKL_I8:
        return ((const int8_t *)array)[index];
    case CKL_U8:
    case CKL_BOOL:
        return ((const uint8_t *)array)[index];
    case CKL_E4M3:
        return (double)f32_from_e4m3(((const uint8_t *)array)[index]);
    case CKL_E5M2:
        return (double)f32_from_e5m2(((const uint8_t *)array)[index]);
    default:
        return NAN;
    }
}

void dtype_read_run(ckl_dtype dtype, const void *array, int64_t first, int64_t count, double *out);
void dtype_write(ckl_dtype dtype, void *array, int64_t index, double value);

/* The distance between 1 and the next larger number; 0 for integers. */
double dtype_epsilon(ckl_dtype dtype);

/* The largest number of a type. */
double dtype_max(ckl_dtype dtype);

/* The smallest positive subnormal number; 0 for integers. */
double dtype_tiny(ckl_dtype dtype);
