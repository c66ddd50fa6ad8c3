/* lanes.h - the 32 lanes of a warp as plain loops, and the scalar arithmetic that the host's C lacks. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/dtype.h"
#include "base/wide.h"

enum { LANES = 32, LANE_BYTES_MAX = 8, LANES_BYTES_MAX = LANES * LANE_BYTES_MAX };

typedef uint32_t lane_mask; // bit i is lane i
#define ALL_LANES UINT32_MAX

/* Functions made of these loops are WIDE (base/wide.h). Lanes are independent: outputs are inputs or overlap none. */
#define EACH_LANE(i) EACH_OF(i, LANES)

/* Registers are bytes that are read as any type. */
typedef uint8_t __attribute__((may_alias)) lane_u8;
typedef int16_t __attribute__((may_alias)) lane_i16;
typedef uint16_t __attribute__((may_alias)) lane_u16;
typedef int32_t __attribute__((may_alias)) lane_i32;
typedef uint32_t __attribute__((may_alias)) lane_u32;
typedef int64_t __attribute__((may_alias)) lane_i64;
typedef uint64_t __attribute__((may_alias)) lane_u64;
typedef float __attribute__((may_alias)) lane_f32;
typedef double __attribute__((may_alias)) lane_f64;

#define EACH_ACTIVE(lane, mask)                               \
    for (lane_mask rest_ = (mask); rest_; rest_ &= rest_ - 1) \
        for (int lane = __builtin_ctz(rest_), once_ = 1; once_; once_ = 0)

/* The predicate register (one byte a lane, 0 or 1; anything in lanes that never wrote it) as a mask. */
static inline lane_mask mask_of(const void *predicate)
{
    lane_mask mask = 0;
    for (int i = 0; i < LANES / 8; i++) {
        uint64_t eight;
        memcpy(&eight, (const char *)predicate + 8 * i, 8);
        mask |= (lane_mask)((eight & 0x0101010101010101) * 0x0102040810204080 >> 56) << 8 * i;
    }
    return mask;
}

/* 16-bit floats. Branch-free, so that loops over lanes vectorise. A NaN narrows to the GPU's canonical 0x7fff. */

static inline float f16_widen(uint16_t half)
{
    uint32_t magnitude = half & 0x7fffU, sign = (half & 0x8000U) << 16;
    float scaled = float_of_bits(magnitude << 13) * 0x1p112F; // exact, subnormals too
    uint32_t special = magnitude << 13 | 0x7f800000;
    return float_of_bits((magnitude >= 0x7c00 ? special : bits_of_float(scaled)) | sign);
}

static inline uint16_t f16_narrow(float x)
{
    uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t normal = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t subnormal = bits_of_float(float_of_bits(magnitude) + 0.5F) - 0x3f000000;
    uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result;
    result = magnitude > 0x7f800000 ? 0x7fff : result;
    return (uint16_t)(magnitude > 0x7f800000 ? result : result | sign);
}

static inline float bf16_widen(uint16_t half)
{
    return float_of_bits((uint32_t)half << 16);
}

static inline uint16_t bf16_narrow(float x)
{
    uint32_t bits = bits_of_float(x);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

/* double to float rounded to odd: what is cut off stays visible in the last bit, so a second rounding is right. */
static inline float narrow_to_odd(double x)
{
    float near = (float)x;
    uint32_t bits = bits_of_float(near);
    if ((double)near != x && !(bits & 1))
        bits += fabs((double)near) < fabs(x) ? 1 : UINT32_MAX;
    return float_of_bits(bits);
}

/* x + y in double, rounded to odd. */
static inline double add_to_odd(double x, double y)
{
    double sum = x + y, added = sum - x, error = (x - (sum - added)) + (y - added);
    int64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (fabs(sum) < 0x1p1000 && error != 0 && !(bits & 1))
        bits += (error > 0) == (sum > 0) ? 1 : -1;
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* The number if one is a NaN, -0 below +0: min and max of PTX; with `nan` a NaN wins. */

static inline float min_f32(float x, float y, bool nan)
{
    float ordered = x < y ? x : y < x ? y : float_of_bits(bits_of_float(x) | bits_of_float(y));
    float number = x != x ? y : x;
    return x == x && y == y ? ordered : nan ? float_of_bits(0x7fffffff) : number;
}

static inline float max_f32(float x, float y, bool nan)
{
    float ordered = x > y ? x : y > x ? y : float_of_bits(bits_of_float(x) & bits_of_float(y));
    float number = x != x ? y : x;
    return x == x && y == y ? ordered : nan ? float_of_bits(0x7fffffff) : number;
}
