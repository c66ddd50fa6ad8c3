/* unit_population.c - samples: every line is a problem that a kernel takes, the same by seed; shares are as stated. */
#include "unit.h"
#include "base/math.h"
#include "golden.h"
#include "lab/population.h"

enum { LINES = 1000, LINES_KEPT = 3 };

static const char path[] = TESTDATA "/sample.txt";
static const random_problem_limits limits = { .flops = 0x1p43, .bytes = 0x1p30 };

static text line_of(const operator_test *test, uint64_t seed, int64_t number)
{
    text line = { 0 };
    assert_ok(population_line(test, (population_sample){ seed, limits, NULL }, number, &line));
    return line;
}

/* As `ckl explain` has it: parsed, checked, and taken by an implementation. */
static void explain(const char *line, const ckl_device_info *device)
{
    test_case c;
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    ckl_status status = case_parse(line, &c);
    if (status == CKL_OK)
        status = plan_check_desc(c.test->op, c.problem);
    if (status == CKL_OK)
        status = case_choose(&c, device, &memory, &impl, &config);
    if (status != CKL_OK)
        fail_msg("%s: %s", line, ckl_error());
    assert_true(random_problem_fits(&c, limits));
    arena_clear(&memory);
    case_clear(&c);
}

TEST(lines_are_problems)
{
    ckl_device *device;
    const int lines = getenv("CKL_TEST_FULL") ? LINES : LINES / 4;
    assert_ok(ckl_device_open("emulator:h200", &device));
    for (const operator_test *const *test = operator_tests; *test; test++)
        for (int i = 0; i < lines; i++) {
            text line = line_of(*test, 7, i);
            explain(text_data(&line), ckl_device_properties(device));
            text_free(&line);
        }
    ckl_device_close(device);
}

static void append_lines(text *out)
{
    for (const operator_test *const *test = operator_tests; *test; test++)
        for (int i = 0; i < LINES_KEPT; i++) {
            text line = line_of(*test, 1, i);
            text_printf(out, "%s\n", text_data(&line));
            text_free(&line);
        }
}

TEST(lines_stay)
{
    golden_check(path, append_lines);
}

TEST(seeds_differ)
{
    int same = 0;
    for (int i = 0; i < 100; i++) {
        text one = line_of(operator_tests[0], 1, i), two = line_of(operator_tests[0], 2, i);
        same += strcmp(text_data(&one), text_data(&two)) == 0;
        text_free(&one);
        text_free(&two);
    }
    assert_true(same < 5);
}

/* A population of its own: patterns of one operator that exists. */
static ckl_status draw(const char *pattern, int64_t number, text *line)
{
    operator_test test = *operator_tests[0];
    const char *const patterns[] = { pattern, NULL };
    test.population = patterns;
    return population_line(&test, (population_sample){ 3, limits, NULL }, number, line);
}

static int64_t drawn_size(const char *pattern, int64_t number)
{
    text line = { 0 };
    assert_ok(draw(pattern, number, &line));
    const char *n = strstr(text_data(&line), "n=");
    int64_t size = n ? strtoll(n + 2, NULL, 10) : 4096; // the default is left out
    text_free(&line);
    return size;
}

/* 20 % and more of all sizes are multiples of 1024, 15 % and more odd; half are less than the root of the range. */
TEST(shares)
{
    int of_1024 = 0, odd = 0, small = 0;
    for (int i = 0; i < LINES; i++) {
        int64_t n = drawn_size("n={hidden}", i);
        of_1024 += n % 1024 == 0;
        odd += n % 2 != 0;
        small += n < 1 << 11;
        assert_true(n >= 64 && n <= 1 << 16);
    }
    assert_true(of_1024 > LINES * 25 / 100 && of_1024 < LINES * 60 / 100);
    assert_true(odd > LINES * 12 / 100 && odd < LINES * 25 / 100);
    assert_true(small > LINES * 15 / 100 && small < LINES * 70 / 100);
}

TEST(holes)
{
    text line = { 0 };
    int beta = 0;
    for (int i = 0; i < 100; i++) {
        assert_ok(draw("n={c:hidden} rows=2 lda={c}+8{| beta=2}", i, &line));
        const char *at = text_data(&line), *n = strstr(at, "n="), *lda = strstr(at, "lda=");
        assert_true(strtoll(lda + 4, NULL, 10) == (n && n < lda ? strtoll(n + 2, NULL, 10) : 4096) + 8);
        beta += strstr(at, "beta=2") != NULL;
        text_free(&line);
    }
    assert_true(beta > 30 && beta < 70);
    assert_fails(draw("n={hiden}", 0, &line), CKL_INTERNAL, "'{hiden}' is no kind of size");
    assert_fails(draw("n=-1", 0, &line), CKL_INVALID,
                 "none of 4000 draws of add is legal and within the limits; the last: add: n=-1");
    assert_int_equal(line.length, 0);
}

/* Keys that are given take the place of drawn ones, and lines of those that are legal are drawn. */
TEST(given)
{
    const operator_test *gemm;
    const population_sample sample = { 5, limits, "a=e4m3 layout=tn k=48" };
    assert_ok(case_operator("gemm", &gemm));
    for (int i = 0; i < 50; i++) {
        text line = { 0 };
        assert_ok(population_line(gemm, sample, i, &line));
        assert_says(text_data(&line), " k=48 a=e4m3");
        assert_says(text_data(&line), "layout=tn");
        text_free(&line);
    }
}

int main(int argc, char **argv)
{
    if (golden_update_wanted(argc, argv))
        return !golden_update(path, append_lines);
    return run_enlisted(NULL, NULL);
}
