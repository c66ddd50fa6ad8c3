/* unit_base.c - status sentences, texts, arenas, dtypes, fields, problem lines and digests. */
#define _GNU_SOURCE // nftw, for temporary_folder.h
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "unit.h"
#include "base/arena.h"
#include "base/dtype.h"
#include "base/fields.h"
#include "base/folder.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/math.h"
#include "base/problem.h"
#include "base/random.h"
#include "base/sha256.h"
#include "temporary_folder.h"

#define SAMPLE(X)                                                  \
    X(sample, int64_t, m, "1", "", "rows")                         \
    X(sample, int, stages, "4", "2 3 4", "stages of the pipeline") \
    X(sample, float, alpha, "1", "", "factor")                     \
    X(sample, bool, bias, "0", "", "adds a bias")                  \
    X(sample, ckl_dtype, a, "", "", "type of A")                   \
    X(sample, choice, layout, "nt", "nt nn tn", "which is contiguous")

typedef struct sample {
    SAMPLE(FIELD_MEMBER)
} sample;

static const field sample_fields[] = { SAMPLE(FIELD_ROW) };
static const field_table table = FIELD_TABLE(sample_fields);

static ckl_status refuse(const char *name)
{
    FAIL(CKL_INVALID, "%s: k=%d", name, 3);
}

TEST(status)
{
    assert_fails_with(refuse("gemm"), CKL_INVALID, "gemm: k=3");
    assert_fails_with(status_fail(CKL_DEVICE_FAULT, "outer: %s", ckl_error()), CKL_DEVICE_FAULT, "outer: gemm: k=3");
    status_clear();
    assert_string_equal(ckl_error(), "");
}

TEST(even_workers)
{
    assert_int_equal(even_workers(1024, 92), 86); // 12 rounds of 86 instead of 11 of 92 and one of 12
    assert_int_equal(even_workers(1024, 128), 128);
    assert_int_equal(even_workers(3, 92), 3);
    assert_int_equal(even_workers(0, 92), 0);
}

/* A string at the end of its page, with nothing behind it. */
TEST(text_is_copied_to_its_end)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    char *copy = heap_text(strcpy(pages + page - sizeof "tile", "tile"));
    assert_string_equal(copy, "tile");
    heap_free(copy);
    munmap(pages, 2 * page);
}

TEST(text_and_arena)
{
    text t = { 0 };
    assert_string_equal(text_data(&t), "");
    for (int i = 0; i < 1000; i++)
        text_printf(&t, "%d,", i % 10);
    assert_int_equal(t.length, 2000);
    assert_string_equal(t.data + 1996, "8,9,");
    text_free(&t);

    arena a = { 0 };
    char *first = arena_text(&a, "first");
    unsigned char *large = arena_alloc(&a, 1 << 20, 1);
    assert_int_equal((uintptr_t)large % 16, 0);
    for (int i = 0; i < 1 << 20; i++)
        assert_int_equal(large[i], 0);
    assert_string_equal(first, "first");
    arena_clear(&a);
    assert_null(a.last);

    char *begin = arena_alloc(&a, 16, 1); // the first block has 4000 bytes; what just fits it goes there
    const void *block = a.last;
    assert_ptr_equal(arena_alloc(&a, 3984, 1), begin + 16);
    assert_ptr_equal(a.last, block);
    arena_alloc(&a, 1, 1);
    assert_ptr_not_equal(a.last, block);
    int blocks = 2; // each of twice the size of the one before, up to 64 KiB
    for (int i = 0; i < 10000; i++) {
        block = a.last;
        arena_alloc(&a, 16, 1);
        blocks += a.last != block;
    }
    assert_int_equal(blocks, 6);
    arena_clear(&a);
}

/* What JSON gives a meaning, and control characters; bytes of UTF-8 stay. */
TEST(text_json)
{
    text t = { 0 };
    text_json(&t, "");
    text_json(&t, "a \"b\" in c:\\d\t\x1f ~\xc3\xa9");
    assert_string_equal(text_data(&t), "\"\"\"a \\\"b\\\" in c:\\\\d\\u0009\\u001f ~\xc3\xa9\"");
    text_free(&t);
}

/* Every value of the 8- and 16-bit formats survives a round trip, and the midpoints go to the even neighbour. */
TEST(dtype_round_trip)
{
    static const ckl_dtype dtypes[] = { CKL_F16, CKL_BF16, CKL_E4M3, CKL_E5M2 };
    for (int d = 0; d < COUNT_OF(dtypes); d++) {
        unsigned values = dtypes[d] == CKL_F16 || dtypes[d] == CKL_BF16 ? 1 << 16 : 1 << 8;
        for (unsigned i = 0; i + 1 < values; i++) {
            uint16_t bits = (uint16_t)i, next = (uint16_t)(i + 1), back = 0;
            double x = dtype_read(dtypes[d], &bits, 0), y = dtype_read(dtypes[d], &next, 0);
            dtype_write(dtypes[d], &back, 0, x);
            assert_true(isnan(x) ? isnan(dtype_read(dtypes[d], &back, 0)) : back == bits);
            if (isfinite(x) && isfinite(y)) {
                dtype_write(dtypes[d], &back, 0, (x + y) / 2);
                assert_int_equal(back & 1, 0);
            }
        }
    }
}

TEST(dtype_limits)
{
    assert_int_equal(f16_from_f32(65519.0F), 0x7bff);
    assert_int_equal(f16_from_f32(65520.0F), 0x7c00);
    assert_true(isnan((double)f32_from_bf16(bf16_from_f32(NAN))));
    assert_true(dtype_epsilon(CKL_F16) == 0x1p-10 && dtype_tiny(CKL_F16) == 0x1p-24);
    int8_t small;
    dtype_write(CKL_I8, &small, 0, -1000);
    assert_int_equal(small, -128);
    ckl_dtype found;
    assert_true(dtype_find("bf16", &found) && found == CKL_BF16);
    assert_false(dtype_find("f17", &found));
}

TEST(fields)
{
    sample s;
    fields_default(table, &s);
    assert_int_equal(s.m, 1);
    assert_int_equal(s.stages, 4);
    assert_int_equal(s.a, CKL_DTYPE_DEFAULT);
    assert_ok(fields_set(table, "gemm", "m", "2^20+3", &s));
    assert_int_equal(s.m, (1 << 20) + 3);
    assert_ok(fields_set(table, "gemm", "m", "2^5-1", &s));
    assert_int_equal(s.m, 31);
    assert_ok(fields_set(table, "gemm", "a", "bf16", &s));
    assert_ok(fields_set(table, "gemm", "layout", "tn", &s));
    assert_ok(fields_set(table, "gemm", "alpha", "0.5", &s));

    text t = { 0 };
    fields_print(table, &s, true, &t);
    assert_string_equal(text_data(&t), "m=31 alpha=0.5 a=bf16 layout=tn");
    text_free(&t);
    s.m = 0, s.a = CKL_DTYPE_DEFAULT;
    fields_print_brief(table, &s, &t); // m is 1 by default, so its 0 says something; a is off
    assert_string_equal(text_data(&t), "m=0 stages=4 alpha=0.5 layout=tn");
    text_free(&t);
}

/* A desc made in C has NULL where a text is not given. An optional one is left out of lines where it is the default. */
TEST(text_left_out)
{
    static const field rows[] = { { .name = "score", .kind = FIELD_quoted, .value = "none", .range = "" } },
                       optional[] = { { .name = "score", .kind = FIELD_quoted, .value = "none", .range = "?" } };
    const char *score = NULL, *const given = "tril";
    text all = { 0 }, changed = { 0 }, unsaid = { 0 };
    fields_print((field_table){ optional, 1 }, &score, false, &unsaid);
    assert_string_equal(text_data(&unsaid), "");
    fields_print((field_table){ optional, 1 }, &given, false, &unsaid);
    assert_string_equal(text_data(&unsaid), "score=tril");
    text_free(&unsaid);
    fields_print((field_table){ rows, 1 }, &score, false, &all);
    fields_print((field_table){ rows, 1 }, &score, true, &changed);
    assert_string_equal(text_data(&all), "score=none");
    assert_string_equal(text_data(&changed), "");
    text_free(&all);
    text_free(&changed);
}

/* Every field counts, what lies between them does not, nor where a text is. */
TEST(fields_difference)
{
    static const char *const changes[][2] = { { "m", "7" },    { "stages", "3" }, { "alpha", "2" },
                                              { "bias", "1" }, { "a", "f16" },    { "layout", "nn" } };
    static const field text_field[] = { { .name = "score", .kind = FIELD_quoted, .value = "none", .range = "" } };
    const char given[] = "none", *const texts[] = { NULL, given, "alibi" };
    sample a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 1, sizeof b);
    fields_default(table, &a);
    fields_default(table, &b);
    assert_null(fields_difference(table, &a, &b));
    for (int i = 0; i < (int)(sizeof changes / sizeof changes[0]); i++) {
        fields_default(table, &b);
        assert_ok(fields_set(table, "gemm", changes[i][0], changes[i][1], &b));
        assert_string_equal(fields_difference(table, &a, &b)->name, changes[i][0]);
    }
    assert_null(fields_difference((field_table){ text_field, 1 }, &texts[0], &texts[1]));
    assert_non_null(fields_difference((field_table){ text_field, 1 }, &texts[1], &texts[2]));
}

static void expect_refused(const char *name, const char *value, const char *sentence)
{
    sample s;
    fields_default(table, &s);
    sample before = s;
    assert_fails_with(fields_set(table, "gemm", name, value, &s), CKL_INVALID, sentence);
    assert_true(s.m == before.m && s.stages == before.stages && s.layout == before.layout && s.a == before.a);
}

TEST(fields_refuse)
{
    expect_refused("m", "abc", "gemm: m=abc is not an integer of 64 bits, such as 4096 or 2^12");
    expect_refused("m", "4x", "gemm: m=4x is not an integer of 64 bits, such as 4096 or 2^12");
    expect_refused("m", "2^63", "gemm: m=2^63 is not an integer of 64 bits, such as 4096 or 2^12");
    expect_refused("m", "9223372036854775808",
                   "gemm: m=9223372036854775808 is not an integer of 64 bits, such as 4096 or 2^12");
    expect_refused("stages", "2^40", "gemm: stages=2^40 is not an integer of 32 bits, such as 16 or 2^4");
    expect_refused("bias", "maybe", "gemm: bias=maybe is not 0 or 1");
    expect_refused("a", "fp16",
                   "gemm: a=fp16 is not one of f64 f32 f16 bf16 e4m3 e5m2 i64 i32 i16 i8 u8 bool, did you mean 'f16'?");
    expect_refused("a", "half", "gemm: a=half is not one of f64 f32 f16 bf16 e4m3 e5m2 i64 i32 i16 i8 u8 bool");
    expect_refused("layout", "n", "gemm: layout=n is not one of nt nn tn");
    expect_refused("layout", "tm", "gemm: layout=tm is not one of nt nn tn, did you mean 'tn'?");
    expect_refused("layuot", "nt",
                   "gemm: unknown key 'layuot', did you mean 'layout'? Known keys: m stages alpha bias a layout");
    expect_refused("zzzzzz", "1", "gemm: unknown key 'zzzzzz'. Known keys: m stages alpha bias a layout");
}

/* Values that a caller of C gave. */
TEST(fields_checked)
{
    sample s;
    fields_default(table, &s);
    for (s.stages = 2; s.stages <= 4; s.stages++)
        assert_ok(fields_check(table, "gemm", &s));
    assert_fails_with(fields_check(table, "gemm", &s), CKL_INVALID, "gemm: stages=5 is none of 2, 3, 4");
    s.stages = 2;
    s.layout = 3;
    assert_fails(fields_check(table, "gemm", &s), CKL_INVALID, "is none of nt, nn, tn");
    s.m = -1;
    assert_fails_with(fields_check(table, "gemm", &s), CKL_INVALID, "gemm: m=-1 is negative");
}

TEST(problem)
{
    arena memory = { 0 };
    problem_line line;
    assert_ok(problem_split(&memory, "  gemm m=3  config='a=1 b=2' shape=(4, (2,2)) e= # c=9", &line));
    assert_string_equal(line.op, "gemm");
    assert_int_equal(line.count, 4);
    assert_string_equal(line.pairs[1].key, "config");
    assert_string_equal(line.pairs[1].value, "a=1 b=2");
    assert_string_equal(line.pairs[2].value, "(4, (2,2))");
    assert_string_equal(line.pairs[3].value, "");
    assert_ok(problem_split(&memory, "gemm a='' b=' c=\"'", &line));
    assert_string_equal(line.pairs[0].value, "");
    assert_string_equal(line.pairs[1].value, " c=\"");
    assert_ok(problem_split(&memory, "   # nothing", &line));
    assert_null(line.op);
    arena_clear(&memory);
}

TEST(problem_of_many_keys)
{
    enum { MOST = 64 };
    arena memory = { 0 };
    text words = { 0 };
    problem_line line;
    text_printf(&words, "gemm");
    for (int i = 0; i < MOST; i++)
        text_printf(&words, " k%d=%d", i, i);
    assert_ok(problem_split(&memory, text_data(&words), &line));
    assert_int_equal(line.count, MOST);
    assert_string_equal(line.pairs[MOST - 1].value, "63");
    text_printf(&words, " more=1");
    assert_fails_with(problem_split(&memory, text_data(&words), &line), CKL_INVALID,
                      "gemm: more than 64 keys in one line");
    text_free(&words);
    arena_clear(&memory);
}

/* What is printed without quotes is read as one word again. */
TEST(words)
{
    static const char *const words[] = { "", "x", "(4, 2)", "a=1" };
    static const char *const others[] = { "a b", "(4", "4)", "it's", "a#b", " x" };
    for (int i = 0; i < COUNT_OF(words); i++)
        assert_true(problem_is_word(words[i]));
    for (int i = 0; i < COUNT_OF(others); i++)
        assert_false(problem_is_word(others[i]));
}

/* Topics are whole words. */
TEST(log_topics)
{
    static const char *const wanted[] = { "plan", "tuned,plan", "plan tuned", "all", "tuned, all" };
    static const char *const others[] = { "", "pla", "planned", "tuned", "al", "alla", "nothing" };
    const char *given = getenv("CKL_LOG");
    char *before = given ? strdup(given) : NULL;
    for (int i = 0; i < COUNT_OF(wanted); i++) {
        setenv("CKL_LOG", wanted[i], 1);
        assert_true(log_wants("plan"));
    }
    for (int i = 0; i < COUNT_OF(others); i++) {
        setenv("CKL_LOG", others[i], 1);
        assert_false(log_wants("plan"));
    }
    unsetenv("CKL_LOG");
    assert_false(log_wants("plan"));
    if (before)
        setenv("CKL_LOG", before, 1);
    free(before);
}

TEST(problem_refuses)
{
    static const char *const wrong[][2] = {
        { "m=3", "problem line: 'm=3' does not start with an operator" },
        { "gemm m", "gemm: 'm' is not key=value" },
        { "gemm =3", "gemm: '=3' is not key=value" },
        { "gemm m=3 m=4", "gemm: m is given twice" },
        { "gemm s='a b", "problem line: a quote or parenthesis is not closed in 's='a b'" },
        { "gemm s=(4,2", "problem line: a quote or parenthesis is not closed in 's=(4,2'" },
        { "gemm s=4)", "problem line: a quote or parenthesis is not closed in 's=4)'" },
    };
    arena memory = { 0 };
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        problem_line line;
        assert_fails_with(problem_split(&memory, wrong[i][0], &line), CKL_INVALID, wrong[i][1]);
    }
    arena_clear(&memory);
}

TEST(nearest_word)
{
    static const char *const words[] = { "verify", "run", "bench", "layout" };
    assert_string_equal(nearest_word("verfiy", words, 4), "verify");
    assert_string_equal(nearest_word("rnu", words, 4), "run");
    assert_string_equal(nearest_word("becnh", words, 4), "bench");
    assert_string_equal(nearest_word("runs", (const char *const[]){ "rounds" }, 1), "rounds"); // two slips
    assert_null(nearest_word("rns", (const char *const[]){ "rounds" }, 1));
    assert_null(nearest_word("run", (const char *const[]){ "round" }, 1)); // one in a short word
    assert_string_equal(nearest_word("bend", (const char *const[]){ "bent", "bond" }, 2),
                        "bent"); // the first of equals
    assert_null(nearest_word("xyz", words, 4));
    assert_null(nearest_word("", words, 4));
}

/* The published outputs of SplitMix64 for this seed. */
TEST(random)
{
    static const uint64_t known[] = { 6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                      4593380528125082431u, 16408922859458223821u };
    uint64_t sequence = 1234567, other = 1234567;
    for (int i = 0; i < COUNT_OF(known); i++) {
        assert_true(random_next(&sequence) == known[i]);
        assert_true(random_at(1234567, (uint64_t)i) == known[i]);
        assert_int_equal(random_below(&other, 10), known[i] / 2 % 10);
    }
}

/* Blocks of a guard that ends well are the caller's. */
static ckl_status take_two(void *user)
{
    char **kept = user;
    kept[0] = heap_text("first");
    kept[1] = heap_resize(heap_alloc(1, 3), 200, 1);
    return CKL_OK;
}

static ckl_status want_too_much(void *user)
{
    char **kept = user;
    kept[1] = heap_text("second");
    heap_alloc(SIZE_MAX / 2, 4);
    kept[0][0] = '!';
    return CKL_OK;
}

/* A guard inside of another one fails alone. */
static ckl_status fail_inside(void *user)
{
    char **kept = user;
    kept[0] = heap_text("first");
    ckl_status status = heap_guard("inner", want_too_much, user);
    return status == CKL_NO_MEMORY ? CKL_OK : CKL_INTERNAL;
}

TEST(heap)
{
    char *kept[2] = { NULL, NULL };
    assert_ok(heap_guard("outer", take_two, kept));
    assert_string_equal(kept[0], "first");
    for (int i = 0; i < 200; i++)
        assert_int_equal(kept[1][i], 0);
    assert_int_equal((uintptr_t)kept[1] % 64, 0);
    heap_free(kept[0]);
    heap_free(kept[1]);

    assert_ok(heap_guard("outer", fail_inside, kept));
    assert_string_equal(kept[0], "first");
    assert_string_equal(ckl_error(), "inner: no host memory for 18446744073709551615 bytes");
    heap_free(kept[0]);
}

/* Where standard input is closed a folder may have its number: on a path of one depth, or of the next. */
TEST(folder_of_any_number)
{
    temporary_folder folder;
    char paths[2][PATH_MAX + 8];
    assert_int_equal(temporary_folder_make(&folder), 0);
    snprintf(paths[0], sizeof paths[0], "%s/a", folder.path);
    snprintf(paths[1], sizeof paths[1], "%s/a/b", folder.path);
    const int kept = dup(STDIN_FILENO);
    int numbers[2] = { -1, -1 };
    ckl_status status[2];
    for (int i = 0; i < 2; i++) {
        close(STDIN_FILENO);
        status[i] = folder_open(paths[i], &numbers[i]);
        close(numbers[i]);
    }
    dup2(kept, STDIN_FILENO);
    close(kept);
    for (int i = 0; i < 2; i++)
        assert_ok(status[i]);
    assert_int_equal(min_i64(numbers[0], numbers[1]), STDIN_FILENO);
    assert_int_equal(temporary_folder_remove(&folder), 0);
}

TEST(sha256)
{
    static const char *const texts[] = { "", "abc", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq" };
    static const unsigned char starts[][4] = { { 0xe3, 0xb0, 0xc4, 0x42 },
                                               { 0xba, 0x78, 0x16, 0xbf },
                                               { 0x24, 0x8d, 0x6a, 0x61 } };
    unsigned char digest[SHA256_BYTES];
    sha256 hash;
    for (int i = 0; i < COUNT_OF(texts); i++) {
        sha256_begin(&hash);
        sha256_add(&hash, texts[i], strlen(texts[i]));
        sha256_end(&hash, digest);
        assert_memory_equal(digest, starts[i], 4);
    }
    sha256_begin(&hash); // FIPS 180-4: a million times "a", in pieces
    for (int i = 0; i < 1000; i++) {
        char a[1000];
        memset(a, 'a', sizeof a);
        sha256_add(&hash, a, sizeof a);
    }
    sha256_end(&hash, digest);
    assert_memory_equal(digest, ((unsigned char[]){ 0xcd, 0xc7, 0x6e, 0x5c, 0x99, 0x14, 0xfb, 0x92 }), 8);
}

RUN_TESTS(NULL, NULL)
