/* unit_dtype.c - every element type: its facts, rounding to it, and what lies beyond its largest number. */
#include <math.h>

#include "unit.h"
#include "base/dtype.h"
#include "base/math.h"

typedef struct dtype_facts {
    ckl_dtype dtype;
    const char *name;
    size_t bytes;
    bool is_float;
    double epsilon, tiny, largest, least; // of finite values
} dtype_facts;

static const dtype_facts facts[] = {
    { CKL_F64, "f64", 8, true, 0x1p-52, 0x1p-1074, 0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023 },
    { CKL_F32, "f32", 4, true, 0x1p-23, 0x1p-149, 0x1.fffffep127, -0x1.fffffep127 },
    { CKL_F16, "f16", 2, true, 0x1p-10, 0x1p-24, 65504, -65504 },
    { CKL_BF16, "bf16", 2, true, 0x1p-7, 0x1p-133, 0x1.fep127, -0x1.fep127 },
    { CKL_E4M3, "e4m3", 1, true, 0x1p-3, 0x1p-9, 448, -448 },
    { CKL_E5M2, "e5m2", 1, true, 0x1p-2, 0x1p-16, 57344, -57344 },
    { CKL_I64, "i64", 8, false, 0, 0, 0x1p63, -0x1p63 },
    { CKL_I32, "i32", 4, false, 0, 0, 2147483647, -2147483648.0 },
    { CKL_I16, "i16", 2, false, 0, 0, 32767, -32768 },
    { CKL_I8, "i8", 1, false, 0, 0, 127, -128 },
    { CKL_U8, "u8", 1, false, 0, 0, 255, 0 },
    { CKL_BOOL, "bool", 1, false, 0, 0, 1, 0 },
};

enum { FILLER = 0x3c };

/* What an element of the type keeps of a number; its neighbours must stay as they are. */
static double kept(ckl_dtype dtype, double value)
{
    double room[3];
    memset(room, FILLER, sizeof room);
    dtype_write(dtype, room, 1, value);
    size_t bytes = ckl_dtype_bytes(dtype);
    for (size_t i = 0; i < sizeof room; i++)
        assert_true((i >= bytes && i < 2 * bytes) || ((unsigned char *)room)[i] == FILLER);
    return dtype_read(dtype, room, 1);
}

TEST(types)
{
    for (int i = 0; i < COUNT_OF(facts); i++) {
        const dtype_facts *f = &facts[i];
        ckl_dtype found = CKL_DTYPE_DEFAULT;
        assert_string_equal(ckl_dtype_name(f->dtype), f->name);
        assert_int_equal(ckl_dtype_bytes(f->dtype), f->bytes);
        assert_int_equal(dtype_is_float(f->dtype), f->is_float);
        assert_true(dtype_find(f->name, &found) && found == f->dtype);
        assert_true(dtype_epsilon(f->dtype) == f->epsilon && dtype_tiny(f->dtype) == f->tiny);
        assert_true(kept(f->dtype, f->largest) == f->largest && kept(f->dtype, f->least) == f->least);
        assert_true(kept(f->dtype, 1) == 1 && kept(f->dtype, 0) == 0);
    }
    ckl_dtype found;
    assert_false(dtype_find("default", &found));
    assert_int_equal(ckl_dtype_bytes((ckl_dtype)-1), 0);
    assert_string_equal(ckl_dtype_name(CKL_DTYPE_COUNT), "default");
    assert_true(isnan(dtype_read(CKL_DTYPE_DEFAULT, facts, 0)));
}

/* Beyond the largest number floats are infinite, but e4m3, which has no infinity; integers stay at their ends. */
TEST(overflow)
{
    for (int i = 0; i < COUNT_OF(facts); i++) {
        const dtype_facts *f = &facts[i];
        double above = kept(f->dtype, INFINITY), below = kept(f->dtype, -INFINITY), none = kept(f->dtype, NAN);
        if (!f->is_float) {
            assert_true(above == f->largest && below == f->least && none == 0);
            continue;
        }
        assert_true(isnan(none));
        assert_true(f->dtype == CKL_E4M3 ? isnan(above) && isnan(below) : above == INFINITY && below == -INFINITY);
        if (f->dtype == CKL_F64)
            continue;
        double half = f->epsilon * exp2(floor(log2(f->largest))) / 2;
        double bound =
            f->dtype == CKL_E4M3 ? 464 : f->largest + half; // 448 is not the last of its exponent: 480 is NaN
        assert_true(kept(f->dtype, nextafter(bound, 0)) == f->largest);
        bool finite = isfinite(kept(f->dtype, f->dtype == CKL_E4M3 ? nextafter(bound, 500) : bound));
        assert_false(finite);
        assert_true(kept(f->dtype, -nextafter(bound, 0)) == f->least);
    }
}

/* Every number between two neighbours goes to the nearer one, also beside the middle, where rounding twice fails. */
TEST(rounding)
{
    static const ckl_dtype types[] = { CKL_F32, CKL_F16, CKL_BF16, CKL_E4M3, CKL_E5M2 };
    for (int t = 0; t < COUNT_OF(types); t++)
        for (int exponent = -20; exponent <= 6; exponent++)
            for (int step = 0; step < 8; step++) {
                double spacing = fmax(ldexp(dtype_epsilon(types[t]), exponent), dtype_tiny(types[t]));
                double low = floor(ldexp(1 + step / 8.0, exponent) / spacing) * spacing, high = low + spacing;
                double middle = (low + high) / 2;
                assert_true(kept(types[t], nextafter(middle, 0)) == low);
                assert_true(kept(types[t], nextafter(middle, INFINITY)) == high);
                assert_true(kept(types[t], -nextafter(middle, INFINITY)) == -high);
                assert_true(kept(types[t], middle) == (fmod(low / spacing, 2) == 0 ? low : high));
            }
    assert_true(kept(CKL_F16, 0x1p-25) == 0 && kept(CKL_F16, nextafter(0x1p-25, 1)) == 0x1p-24);
    assert_true(kept(CKL_I32, 2.5) == 2 && kept(CKL_I32, 3.5) == 4 && kept(CKL_U8, -0.6) == 0 &&
                kept(CKL_I8, -1.6) == -2);
    assert_true(signbit(kept(CKL_F16, -0.0)) && signbit(kept(CKL_BF16, -0.0)) && signbit(kept(CKL_E5M2, -0.0)));
}

/* A NaN keeps its sign, and is one in every type whichever of its bits are set; of f16 always the same. */
TEST(nan)
{
    static const uint32_t patterns[] = { 0x7f800001, 0x7fc00000, 0x7fffffff, 0xff800001, 0xffc12345 };
    for (int i = 0; i < COUNT_OF(patterns); i++) {
        float x;
        memcpy(&x, &patterns[i], sizeof x);
        assert_true(isnan((double)f32_from_f16(f16_from_f32(x))) && isnan((double)f32_from_bf16(bf16_from_f32(x))));
        assert_int_equal(f16_from_f32(x), (patterns[i] >> 31 << 15 | 0x7e00));
        assert_int_equal(bf16_from_f32(x) >> 15, patterns[i] >> 31);
    }
    assert_true(isinf((double)f32_from_f16(0x7c00)) && isnan((double)f32_from_f16(0x7c01)));
    assert_true(f32_from_f16(0x03ff) == 0x3ffp-24F && f32_from_f16(0x8400) == -0x1p-14F);
}

RUN_TESTS(NULL, NULL)
