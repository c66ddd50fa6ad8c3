/* unit_values.c - base at its limits: small integer arithmetic, fields of every kind, sizes, long texts, lines. */
#include <errno.h>
#include <math.h>

#include "unit.h"
#include "base/arena.h"
#include "base/dtype.h"
#include "base/fields.h"
#include "base/math.h"
#include "base/number.h"
#include "base/problem.h"
#include "base/shape.h"

/* Integers */

TEST(integers)
{
    for (int64_t x = 0; x < 70; x++)
        for (int64_t y = 1; y < 20; y++) {
            int64_t quotient = 0;
            while (quotient * y < x)
                quotient++;
            assert_int_equal(ceil_div(x, y), quotient);
            assert_int_equal(round_up(x, y), quotient * y);
            assert_int_equal(min_i64(x, y), x <= y ? x : y);
            assert_int_equal(max_i64(x, y), x <= y ? y : x);
        }
    assert_int_equal(ceil_div(INT64_MAX, 2), (int64_t)1 << 62);
    for (int bit = 0; bit < 63; bit++) {
        int64_t power = (int64_t)1 << bit;
        assert_true(is_power_of_two(power) && log2_i64(power) == bit);
        assert_int_equal(power_of_two_in(power), power);
        assert_int_equal(power_of_two_ceil(power), power);
        if (bit > 1) {
            assert_false(is_power_of_two(power - 1) || is_power_of_two(power + 1));
            assert_int_equal(power_of_two_in(power + power / 2), power / 2);
            assert_int_equal(power_of_two_ceil(power / 2 + 1), power);
        }
    }
    assert_false(is_power_of_two(0) || is_power_of_two(-4));
}

/* Numbers as lines write them, and where reading stops. */
TEST(numbers)
{
    static const struct {
        const char *text;
        int64_t value;
        const char *rest;
    } taken[] = {
        { "12", 12, "" },
        { "-7x", -7, "x" },
        { "2^10", 1024, "" },
        { "2^0", 1, "" },
        { "3^2+2^3-1", 16, "" },
        { "-2^3,", -8, "," },
        { "2^62", INT64_C(1) << 62, "" },
        { "1^62", 1, "" },
        { "9223372036854775807", INT64_MAX, "" },
        { "4 8", 4, " 8" },
        { "0^5", 0, "" },
    };
    for (int i = 0; i < COUNT_OF(taken); i++) {
        const char *at = taken[i].text;
        int64_t value = 77;
        errno = ERANGE; // of something before
        assert_true(number_integer(&at, &value) && value == taken[i].value);
        assert_string_equal(at, taken[i].rest);
    }
    static const char *const refused[] = { "",     "x",    " 4", "2^",   "2^x",       "2^-1",
                                           "1^63", "2^63", "4+", "4+ 3", "2^62+2^62", "9223372036854775808" };
    for (int i = 0; i < COUNT_OF(refused); i++) {
        const char *at = refused[i];
        int64_t value = 77;
        assert_false(number_integer(&at, &value));
        assert_true(at == refused[i] && value == 77);
    }
}

TEST(floats)
{
    static const struct {
        const char *text;
        float value;
        const char *rest;
    } taken[] = { { "0.5", 0.5F, "" },       { "2^-30", 0x1p-30F, "" }, { "-1e3;", -1000.0F, ";" },
                  { "2^127", 0x1p127F, "" }, { "1e-60", 0, "" },        { "inf", INFINITY, "" } };
    for (int i = 0; i < COUNT_OF(taken); i++) {
        const char *at = taken[i].text;
        float value = 77;
        errno = ERANGE; // of something before
        assert_true(number_float(&at, &value) && value == taken[i].value);
        assert_string_equal(at, taken[i].rest);
    }
    static const char *const refused[] = { "", "x", "1e400", "-1e400", "2^128", "2^", "2^x" };
    for (int i = 0; i < COUNT_OF(refused); i++) {
        const char *at = refused[i];
        float value = 77;
        assert_false(number_float(&at, &value));
        assert_true(at == refused[i] && value == 77);
    }
}

/* Fields */

#define EVERY_KIND(X)                               \
    X(every_kind, int, i, "3", "", "")              \
    X(every_kind, int64_t, wide, "0", "", "")       \
    X(every_kind, float, f, "0.5", "", "")          \
    X(every_kind, bool, b, "1", "", "")             \
    X(every_kind, ckl_dtype, d, "f16", "", "")      \
    X(every_kind, choice, c, "up", "up down x", "") \
    X(every_kind, quoted, q, "", "", "")

typedef struct every_kind {
    EVERY_KIND(FIELD_MEMBER)
} every_kind;

static const field every_field[] = { EVERY_KIND(FIELD_ROW) };
static const field_table every_table = FIELD_TABLE(every_field);

static void expect_printed(const char *name, const char *value, const char *wanted)
{
    every_kind e;
    text t = { 0 };
    fields_default(every_table, &e);
    assert_ok(fields_set(every_table, "op", name, value, &e));
    fields_print(every_table, &e, true, &t);
    assert_string_equal(text_data(&t), wanted);
    text_free(&t);
}

TEST(fields_taken)
{
    static const char *const taken[][3] = {
        { "i", "2147483647", "i=2147483647" },
        { "i", "-2147483648", "i=-2147483648" },
        { "i", "2^0", "i=1" },
        { "i", "7^3+2^2-1", "i=346" },
        { "i", "3", "" },
        { "wide", "2^62", "wide=4611686018427387904" },
        { "wide", "-2^3", "wide=-8" },
        { "wide", "9223372036854775807", "wide=9223372036854775807" },
        { "f", "-1e-3", "f=-0.00100000005" },
        { "b", "0", "b=0" },
        { "b", "no", "b=0" },
        { "b", "false", "b=0" },
        { "b", "yes", "" },
        { "b", "true", "" },
        { "d", "bf16", "d=bf16" },
        { "d", "default", "d=default" },
        { "c", "down", "c=down" },
        { "c", "x", "c=x" },
        { "c", "up", "" },
        { "q", "two words", "q='two words'" },
        { "q", "one", "q=one" },
    };
    for (int i = 0; i < COUNT_OF(taken); i++)
        expect_printed(taken[i][0], taken[i][1], taken[i][2]);
    every_kind e;
    text t = { 0 };
    fields_default(every_table, &e);
    fields_print(every_table, &e, false, &t);
    assert_string_equal(text_data(&t), "i=3 wide=0 f=0.5 b=1 d=f16 c=up q=");
    text_free(&t);
}

TEST(fields_refused)
{
    static const char *const refused[][2] = {
        { "i", "2147483648" }, { "i", "-2147483649" }, { "i", "2^-1" },    { "i", "2^" },
        { "i", "2^3x" },       { "i", "3+" },          { "wide", "2^63" }, { "wide", "2^62+2^62" },
        { "wide", "1^63" },    { "f", "1x" },          { "b", "2" },       { "b", "TRUE" },
        { "d", "f17" },        { "c", "do" },          { "c", "downx" },   { "c", "up down" },
    };
    for (int i = 0; i < COUNT_OF(refused); i++) {
        every_kind e;
        fields_default(every_table, &e);
        assert_int_equal(fields_set(every_table, "op", refused[i][0], refused[i][1], &e), CKL_INVALID);
    }
    text t = { 0 };
    field_choices(fields_find(every_table, "b"), &t);
    field_choices(fields_find(every_table, "c"), &t);
    assert_string_equal(text_data(&t), "0 1up down x");
    text_free(&t);
    assert_null(fields_find(every_table, "qq"));
}

/* Slips of a hand: one in a word of up to three letters, two in a longer one; never all of its letters. */
TEST(slips)
{
    static const char *const words[] = { "run", "verify", "layout" };
    static const char *const slips[][2] = {
        { "rnu", "run" },      { "ru", "run" },        { "runn", "run" },      { "rin", "run" },
        { "rxx", NULL },       { "r", NULL },          { "vreify", "verify" }, { "verifyab", "verify" },
        { "verifyabc", NULL }, { "veri", "verify" },   { "ver", NULL },        { "alyotu", "layout" },
        { "yalotu", NULL },    { "layout", "layout" },
    };
    for (int i = 0; i < COUNT_OF(slips); i++) {
        const char *near = nearest_word(slips[i][0], words, COUNT_OF(words));
        if (slips[i][1])
            assert_string_equal(near ? near : "nothing", slips[i][1]);
        else if (near)
            fail_msg("%s is near %s", slips[i][0], near);
    }
    char length_63[64], length_64[65], typed[64];
    memset(length_63, 'a', sizeof length_63);
    memset(length_64, 'a', sizeof length_64);
    length_63[63] = length_64[64] = '\0';
    memcpy(typed, length_63, sizeof typed);
    typed[5] = 'b';
    assert_string_equal(nearest_word(typed, (const char *const[]){ length_64, length_63 }, 2), length_63);
    assert_null(nearest_word(length_64, (const char *const[]){ length_63 }, 1));
}

/* Shapes */

TEST(sizes)
{
    sizes s;
    assert_ok(shape_parse("op", "4096", &s));
    assert_true(s.rank == 1 && s.of[0] == 4096);
    assert_ok(shape_parse("op", "2^20+3x10^0x7x1x2x3x4x5", &s));
    assert_true(s.rank == SHAPE_RANK_MAX && s.of[0] == (1 << 20) + 3 && s.of[1] == 1 && s.of[7] == 5);
    assert_true(shape_elements(&s, 2, 2) == 1 && shape_elements(&s, 2, 3) == 7 && shape_elements(&s, 4, 8) == 120);
    static const char *const refused[] = { "", "x", "4x", "4;4", "4x4y", "2^64", "1x1x1x1x1x1x1x1x1" };
    for (int i = 0; i < COUNT_OF(refused); i++)
        assert_int_equal(shape_parse("op", refused[i], &s), CKL_INVALID);
    assert_ok(sizes_parse("op", "stride", "1x2", 2, &s));
    assert_fails(sizes_parse("op", "stride", "1x2x3", 2, &s), CKL_INVALID,
                 "op: stride=1x2x3 is not up to 2 sizes like 4096x1024");
}

TEST(axes)
{
    const sizes s = { .rank = 3, .of = { 1, 2, 3 } };
    for (int axis = -5; axis < 6; axis++) {
        int found = 77;
        if (axis >= -3 && axis < 3)
            assert_true(shape_axis("op", &s, axis, &found) == CKL_OK && found == (axis + 3) % 3);
        else
            assert_true(shape_axis("op", &s, axis, &found) == CKL_INVALID && found == 77);
    }
    int found;
    assert_fails(shape_axis("op", &s, 3, &found), CKL_INVALID, "op: axis=3 is not in -3..2");
}

/* Texts, arenas, lines */

TEST(long_texts)
{
    for (int length = 0; length < 1100; length += length < 250 || length > 260 ? 50 : 1) { // over the first capacities
        text t = { 0 };
        for (int i = 0; i < length; i++)
            text_append(&t, &"abc"[i % 3], 1);
        assert_int_equal(t.length, length);
        assert_true(t.length < t.capacity || length == 0);
        assert_int_equal(strlen(text_data(&t)), length);
        text_printf(&t, "%s", "");
        text_printf(&t, "%d", 7);
        assert_true(t.length == (size_t)length + 1 && t.data[length] == '7');
        text_clear(&t);
        assert_string_equal(text_data(&t), "");
        text_append(&t, "new", 3);
        assert_string_equal(text_data(&t), "new");
        text_free(&t);
        assert_true(!t.data && !t.capacity);
    }
}

TEST(long_sentences)
{
    char words[10000];
    memset(words, 'w', sizeof words);
    words[sizeof words - 1] = '\0';
    assert_int_equal(status_fail(CKL_INVALID, "%s", words), CKL_INVALID);
    assert_int_equal(strlen(ckl_error()), 8191);
    static const char *const names[] = { "ok", "invalid", "unsupported", "no memory", "device", "internal", "unknown" };
    static const ckl_status statuses[] = { CKL_OK,
                                           CKL_INVALID,
                                           CKL_UNSUPPORTED,
                                           CKL_NO_MEMORY,
                                           CKL_DEVICE_FAULT,
                                           CKL_INTERNAL,
                                           (ckl_status)(CKL_INTERNAL + 1) };
    for (int i = 0; i < COUNT_OF(names); i++)
        assert_string_equal(ckl_status_name(statuses[i]), names[i]);
}

/* Memory of many blocks stays apart, aligned and zero. */
TEST(arena)
{
    arena a = { 0 };
    unsigned char *pieces[4000];
    for (int i = 0; i < COUNT_OF(pieces); i++) {
        size_t bytes = (size_t)(i * 37 % 100);
        pieces[i] = arena_alloc(&a, bytes, 1);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        for (size_t b = 0; b < bytes; b++)
            assert_int_equal(pieces[i][b], 0);
        memset(pieces[i], 1 + i % 255, bytes);
    }
    for (int i = 0; i < COUNT_OF(pieces); i++)
        for (size_t b = 0; b < (size_t)(i * 37 % 100); b++)
            assert_int_equal(pieces[i][b], 1 + i % 255);
    memset(arena_alloc(&a, 4096, 16), 1, 65536); // a block, exactly
    memset(arena_alloc(&a, 65537, 1), 1, 65537);
    arena_clear(&a);
    arena_clear(&a);
    assert_non_null(arena_alloc(&a, 0, 8));
    arena_clear(&a);
}

TEST(lines)
{
    arena memory = { 0 };
    problem_line line;
    assert_int_equal(problem_split(&memory, "op a=\"x # y\" b=(1 (2) # 3) c='d\"e' d='' e=' f=#", &line), CKL_INVALID);
    assert_ok(problem_split(&memory, "op\ta=\"x # y\" b=(1 (2) # 3) c='d\"e' d='' e=k=v#w", &line));
    static const char *const values[] = { "x # y", "(1 (2) # 3)", "d\"e", "", "k=v#w" };
    assert_int_equal(line.count, COUNT_OF(values));
    for (int i = 0; i < COUNT_OF(values); i++)
        assert_string_equal(line.pairs[i].value, values[i]);
    arena_clear(&memory);
}

RUN_TESTS(NULL, NULL)
