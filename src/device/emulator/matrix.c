/* matrix.c - the arithmetic of the emulated tensor core. */
#include "device/emulator/matrix.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/math.h"
#include "device/emulator/lanes.h"

#define INLINE inline __attribute__((always_inline)) // into what is compiled for each width

const tensor_core TENSOR_CORE_AMPERE = { .bytes = 16, .fraction_bits = 24, .fraction_bits_f8 = 13 };
const tensor_core TENSOR_CORE_HOPPER = { .bytes = 32, .fraction_bits = 25, .fraction_bits_f8 = 13 };

static const uint32_t CANONICAL_NAN = 0x7fffffff;

enum {
    NO_EXPONENT =
        -400, // below that of any product: of an accumulator that is zero, or an operand, whatever the other is
    COMMON_EXPONENT_MIN = -133, // that of the smallest subnormal of bf16
    TERM_LOST = -40,            // terms so far below the common exponent are zero after the cut
    MODERATE_EXPONENT = 31,     // of operands whose products are exact in f32, as they are and scaled
    F32_BIAS = 127,
    F32_FRACTION_BITS = 23,
    F64_BIAS = 1023,
    F64_FRACTION_BITS = 52,
    COLUMNS_MAX = 256, // of d, whose operands are decoded at once: those of the widest wgmma
    BLOCK = 16,        // columns of d worked on at once, the lanes of a vector
    MMA_COLUMNS = 8,   // of d of mma
    TERMS_MAX = 32,    // elements of a row of an operand
};

/* How a floating-point type is laid out; of tf32 after its low bits were cut. */
typedef struct float_form {
    int bytes, fraction_bits, bias;
    uint32_t field_max; // of the exponent
    bool infinite;      // field_max is that of infinities and NaN; else one NaN has all bits set
} float_form;

/* The operands of one sum in a row: significand * 2^exponent, |significand| < 2. Infinities and NaNs are zero here. */
typedef struct operand_row {
    const unsigned char *raw;
    float significand[TERMS_MAX], value[TERMS_MAX]; // value: of what is moderate
    int16_t exponent[TERMS_MAX];
    bool special;  // an infinity or NaN is among them
    bool moderate; // no exponent is beyond MODERATE_EXPONENT either way, but those of zeros
} operand_row;

/* The same of neighbouring columns of d; what a block has no columns for is zero. */
typedef struct operand_block {
    const unsigned char *raw; // of its first column
    float significand[TERMS_MAX][BLOCK], value[TERMS_MAX][BLOCK];
    int16_t exponent[TERMS_MAX][BLOCK];
    bool special[BLOCK], any_special, moderate;
} operand_block;

/* What all sums of a product have in common. */
typedef struct sum_form {
    int terms, fraction_bits; // of one sum
    int kept_bits;            // of the fraction of a sum
    ckl_dtype a, b;
    int64_t pitch; // bytes between rows of a and between columns of b
} sum_form;

static inline int32_t max_i32(int32_t x, int32_t y)
{
    return x > y ? x : y;
}

static inline int32_t min_i32(int32_t x, int32_t y)
{
    return x < y ? x : y;
}

/* 2^exponent, for exponents of normal numbers. */
static inline float power_f32(int32_t exponent)
{
    return float_of_bits((uint32_t)(exponent + F32_BIAS) << F32_FRACTION_BITS);
}

static inline double power_f64(int32_t exponent)
{
    uint64_t bits = (uint64_t)(exponent + F64_BIAS) << F64_FRACTION_BITS;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline int32_t exponent_of_f32(float x)
{
    return max_i32((int32_t)(bits_of_float(x) >> F32_FRACTION_BITS & 0xff), 1) - F32_BIAS;
}

/* Element i of a raw row as sign, exponent field and fraction, in the lowest bits; of tf32 the low bits are cut. */
static inline uint32_t bits_at(int bytes, const unsigned char *raw, int i)
{
    uint32_t word;
    uint16_t half;
    if (bytes == 1)
        return raw[i];
    if (bytes == 2)
        return memcpy(&half, raw + i * bytes, sizeof half), half;
    return memcpy(&word, raw + i * bytes, sizeof word), word >> 13;
}

/* The form is a constant of each caller's, so that a loop of its own is compiled for it. */
static INLINE void decode_as(const float_form form, const unsigned char *raw, int terms, operand_row *row)
{
    uint32_t implicit = 1u << form.fraction_bits, fraction_max = implicit - 1, special = 0, extreme = 0;
    float unit = power_f32(-form.fraction_bits);
    row->raw = raw;
    EACH_OF(k, terms) {
        uint32_t bits = bits_at(form.bytes, raw, k);
        uint32_t field = bits >> form.fraction_bits & form.field_max, fraction = bits & fraction_max;
        uint32_t finite = (field != form.field_max) | (!form.infinite & (fraction != fraction_max));
        uint32_t negative = bits >> form.fraction_bits > form.field_max;
        uint32_t digits = (fraction + (field != 0) * implicit) * finite;
        float magnitude = (float)(int32_t)digits * unit;
        row->significand[k] = float_of_bits(bits_of_float(magnitude) | negative << 31);
        int32_t exponent = max_i32((int32_t)field, 1) - form.bias;
        int32_t near = min_i32(max_i32(exponent, -MODERATE_EXPONENT), MODERATE_EXPONENT);
        row->exponent[k] = (int16_t)(digits ? exponent : NO_EXPONENT);
        row->value[k] = row->significand[k] * power_f32(near);
        special |= finite ^ 1;
        extreme |= (near != exponent) & (digits != 0);
    }
    row->special = special;
    row->moderate = !extreme;
}

WIDE static void decode_row(ckl_dtype type, const unsigned char *raw, int terms, operand_row *row)
{
    switch (type) {
    case CKL_F32:
        decode_as((float_form){ 4, 10, 127, 0xff, true }, raw, terms, row);
        break;
    case CKL_BF16:
        decode_as((float_form){ 2, 7, 127, 0xff, true }, raw, terms, row);
        break;
    case CKL_E5M2:
        decode_as((float_form){ 1, 2, 15, 0x1f, true }, raw, terms, row);
        break;
    case CKL_E4M3:
        decode_as((float_form){ 1, 3, 7, 0xf, false }, raw, terms, row);
        break;
    default:
        decode_as((float_form){ 2, 10, 15, 0x1f, true }, raw, terms, row);
        break;
    }
}

static void decode_block(const sum_form *form, const unsigned char *raw, int count, operand_block *block)
{
    if (count < BLOCK)
        memset(block, 0, sizeof *block);
    block->raw = raw;
    block->any_special = false;
    block->moderate = true;
    for (int n = 0; n < count; n++) {
        operand_row row;
        decode_row(form->b, raw + n * form->pitch, form->terms, &row);
        for (int k = 0; k < form->terms; k++) {
            block->significand[k][n] = row.significand[k];
            block->value[k][n] = row.value[k];
            block->exponent[k][n] = row.exponent[k];
        }
        block->moderate &= row.moderate;
        block->special[n] = row.special;
        block->any_special |= row.special;
    }
}

/*
 * Towards zero, but to infinity from 2^128 on, and never to -0. C rounds to nearest; one step back in magnitude mends
 * that. The conditions are joined by & because a branch would keep the caller's loop from being vectorised. `kept`
 * masks the bits of the fraction that stay.
 */
static inline float truncate_to_f32(double x, uint32_t kept)
{
    float nearest = (float)x;
    uint32_t beyond = (fabs((double)nearest) > fabs(x)) & (fabs(x) < 0x1p128);
    return float_of_bits((bits_of_float(nearest) - beyond) & kept) + 0.0f;
}

/* The largest exponent of the products and of d, where that is not zero. */
static INLINE void common_exponents(int terms, const operand_row *a, const operand_block *b, const float *d,
                                    int32_t *common)
{
    int16_t largest[BLOCK];
    EACH_OF(n, BLOCK)
        largest[n] = (int16_t)(d[n] == 0 ? COMMON_EXPONENT_MIN : exponent_of_f32(d[n]));
    for (int k = 0; k < terms; k++) {
        EACH_OF(n, BLOCK) {
            int16_t exponent = (int16_t)(a->exponent[k] + b->exponent[k][n]);
            largest[n] = exponent > largest[n] ? exponent : largest[n];
        }
    }
    EACH_OF(n, BLOCK)
        common[n] = largest[n];
}

/* Sums of terms that are values already: where none is above 2^-100 all of them are zero. */
static INLINE void add_moderate(const sum_form *form, const operand_row *a, const operand_block *b,
                                const int32_t *common, int32_t *sum)
{
    float unit[BLOCK];
    EACH_OF(n, BLOCK)
        unit[n] = power_f32(form->fraction_bits - max_i32(common[n], -100));
    for (int k = 0; k < form->terms; k++)
        EACH_OF(n, BLOCK)
            sum[n] += (int32_t)(a->value[k] * b->value[k][n] * unit[n]);
}

static INLINE void add_any(const sum_form *form, const operand_row *a, const operand_block *b, const int32_t *common,
                           int32_t *sum)
{
    for (int k = 0; k < form->terms; k++)
        EACH_OF(n, BLOCK) {
            int32_t below = max_i32(a->exponent[k] + b->exponent[k][n] - common[n], TERM_LOST);
            sum[n] += (int32_t)(a->significand[k] * b->significand[k][n] * power_f32(below + form->fraction_bits));
        }
}

/*
 * d[n] += sum over k of a[k] * b[k][n] for finite operands. Terms are multiples of 2^(common - fraction_bits): below
 * 2^27 each, and 16 products of two 11-bit significands still sum to less than 2^31, as 32 of 8-bit floats do, of which
 * fewer bits are kept. All float operations here are exact, or their result is below 1 and cut to zero.
 */
WIDE static void multiply_finite(const sum_form *form, const operand_row *a, const operand_block *b, float *d)
{
    const int fraction_bits = form->fraction_bits;
    const uint32_t kept = ~0u << (F32_FRACTION_BITS - form->kept_bits);
    int32_t common[BLOCK], sum[BLOCK] = { 0 };
    common_exponents(form->terms, a, b, d, common);
    if (a->moderate && b->moderate)
        add_moderate(form, a, b, common, sum);
    else
        add_any(form, a, b, common, sum);
    EACH_OF(n, BLOCK) {
        int32_t old = (int32_t)((double)d[n] * power_f64(fraction_bits - common[n]));
        d[n] = truncate_to_f32(((double)sum[n] + old) * power_f64(common[n] - fraction_bits), kept);
    }
}

static double value_at(ckl_dtype type, const unsigned char *raw, int i)
{
    return type == CKL_F32 ? (double)float_of_bits(bits_at(4, raw, i) << 13) : dtype_read(type, raw, i);
}

/* The infinity or NaN that the dot product comes to, or a finite number. f64 cannot overflow here. */
static double special_dot(const sum_form *form, const unsigned char *row, const unsigned char *column, float d)
{
    double sum = d;
    for (int k = 0; k < form->terms; k++)
        sum += value_at(form->a, row, k) * value_at(form->b, column, k);
    return sum;
}

/* multiply_finite() for a row that meets infinities or NaNs: they overrule what the finite operands came to. */
static void multiply_special(const sum_form *form, const operand_row *a, const operand_block *b, int count, float *d)
{
    float old[BLOCK];
    memcpy(old, d, sizeof old);
    for (int n = 0; n < BLOCK; n++)
        d[n] = isfinite(old[n]) ? old[n] : 0;
    multiply_finite(form, a, b, d);
    for (int n = 0; n < count; n++) {
        if (!a->special && !b->special[n] && isfinite(old[n]))
            continue;
        double dot = special_dot(form, a->raw, b->raw + n * form->pitch, old[n]);
        if (isnan(dot))
            d[n] = float_of_bits(CANONICAL_NAN);
        else if (isinf(dot))
            d[n] = (float)dot;
    }
}

static bool all_finite(const float *x)
{
    uint32_t largest = 0;
    for (int i = 0; i < BLOCK; i++) {
        uint32_t magnitude = bits_of_float(x[i]) & 0x7fffffff;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest < bits_of_float(INFINITY);
}

/* Of as many columns as there mostly are the compiler knows the size. */
static INLINE void copy_columns(float *to, const float *from, int count)
{
    if (count == BLOCK)
        memcpy(to, from, BLOCK * sizeof *to);
    else if (count == MMA_COLUMNS)
        memcpy(to, from, MMA_COLUMNS * sizeof *to);
    else
        memcpy(to, from, (size_t)count * sizeof *to);
}

/* One row of d, of a block's columns, so many of them. */
static void multiply_row(const sum_form *form, const operand_row *a, const operand_block *b, int count, float *d)
{
    float sum[BLOCK] = { 0 };
    copy_columns(sum, d, count);
    if (a->special || b->any_special || !all_finite(sum))
        multiply_special(form, a, b, count, sum);
    else
        multiply_finite(form, a, b, sum);
    copy_columns(d, sum, count);
}

int matrix_k(matrix_types types)
{
    return MATRIX_BYTES / (int)ckl_dtype_bytes(types.a);
}

/* The products of one step of k: of m rows, and of so many columns of the n that rows of d have. */
static void add_step(const sum_form *form, int m, int n, const unsigned char *a, const unsigned char *b, int columns,
                     float *d)
{
    operand_block blocks[COLUMNS_MAX / BLOCK]; // not cleared: they are large
    operand_row row;
    for (int column = 0; column < columns; column += BLOCK)
        decode_block(form, b + column * form->pitch, min_i32(columns - column, BLOCK), &blocks[column / BLOCK]);
    for (int i = 0; i < m; i++) {
        decode_row(form->a, a + i * form->pitch, form->terms, &row);
        for (int column = 0; column < columns; column += BLOCK)
            multiply_row(form, &row, &blocks[column / BLOCK], min_i32(columns - column, BLOCK), d + i * n + column);
    }
}

static void multiply_floats(const matrix_product *p, const unsigned char *a, const unsigned char *b, float *d)
{
    const int element = (int)ckl_dtype_bytes(p->types.a), bytes = p->core->bytes;
    const bool f8 = element == 1;
    const sum_form form = { .terms = bytes / element,
                            .fraction_bits = f8 ? p->core->fraction_bits_f8 : p->core->fraction_bits,
                            .kept_bits = f8 ? p->core->fraction_bits_f8 : F32_FRACTION_BITS,
                            .a = p->types.a,
                            .b = p->types.b,
                            .pitch = (int64_t)p->k * element };
    for (int column = 0; column < p->n; column += COLUMNS_MAX)
        for (int64_t at = 0; at < form.pitch; at += bytes)
            add_step(&form, p->m, p->n, a + at, b + column * form.pitch + at, min_i32(p->n - column, COLUMNS_MAX),
                     d + column);
}

/* Which operands have signs is a constant of each caller's, so that a loop of its own is compiled for it. */
static INLINE void multiply_bytes(bool a_signed, bool b_signed, const matrix_product *p, const unsigned char *a,
                                  const unsigned char *b, uint32_t *d)
{
    for (int row = 0; row < p->m; row++)
        for (int column = 0; column < p->n; column++) {
            const unsigned char *x = a + row * p->k, *y = b + column * p->k;
            int32_t sum = 0; // of at most k * 2^16
#pragma omp simd reduction(+ : sum)
            for (int i = 0; i < p->k; i++)
                sum += (a_signed ? (int8_t)x[i] : x[i]) * (b_signed ? (int8_t)y[i] : y[i]);
            d[row * p->n + column] += (uint32_t)sum;
        }
}

WIDE static void multiply_integers(const matrix_product *p, const unsigned char *a, const unsigned char *b, uint32_t *d)
{
    if (p->types.a == CKL_I8 && p->types.b == CKL_I8)
        multiply_bytes(true, true, p, a, b, d);
    else if (p->types.a == CKL_I8)
        multiply_bytes(true, false, p, a, b, d);
    else if (p->types.b == CKL_I8)
        multiply_bytes(false, true, p, a, b, d);
    else
        multiply_bytes(false, false, p, a, b, d);
}

void matrix_multiply(const matrix_product *p, const void *a, const void *b, void *d, bool accumulate)
{
    assert(p->k * (int)ckl_dtype_bytes(p->types.a) % MATRIX_BYTES == 0);
    if (!accumulate)
        memset(d, 0, (size_t)p->m * (size_t)p->n * sizeof(float));
    if (p->types.a == CKL_I8 || p->types.a == CKL_U8)
        multiply_integers(p, a, b, d);
    else
        multiply_floats(p, a, b, d);
}
