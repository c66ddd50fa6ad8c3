/*
 * unit_choice.c - what choosing costs on the host: the time of one choice, and how many kernels a process that meets
 * many shapes has to compile.
 */
#include <malloc.h>
#include <math.h>
#include <time.h>

#include "unit.h"
#include "base/math.h"
#include "emulated_device.h"
#include "lab/case.h"
#include "skeletons/row.h"
#include "skeletons/row_cost.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    defined(CKL_COVERED) // they take several times as long
enum { CHOICE_US_MAX = 4000 };
#else
enum { CHOICE_US_MAX = 400 }; // twice what the longest takes on a core of its own: others may share it
#endif
enum { TRIES = 9, MORE_TRIES = 200, SHAPES = 1000 };

/* 16 kernels are wanted: splits, slices, tiles of D^T, A that stays, copies by threads and, with C, the ring. */
enum { PORTFOLIO_MAX = 152 };

/* What a problem gets; both are in the arena. */
typedef struct choice_made {
    const implementation *impl;
    void *config;
} choice_made;

static ckl_status choose(const test_case *c, arena *memory, choice_made *made)
{
    return plan_choose(ckl_device_properties(device), c->test->op, c->problem, case_force(c, memory), memory,
                       &made->impl, &made->config);
}

/* Of this thread alone, so that a busy machine does not count. */
static double thread_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* The quickest of some tries. */
static double choice_us(const test_case *c)
{
    double best = INFINITY;
    for (int i = 0; i < TRIES || (best > CHOICE_US_MAX && i < MORE_TRIES); i++) { // others may have had the core
        arena memory = { 0 };
        choice_made made;
        double begin = thread_us();
        (void)choose(c, &memory, &made);
        best = fmin(best, thread_us() - begin);
        arena_clear(&memory);
    }
    return best;
}

static int candidates_of_rows(ckl_dtype dtype, int vec)
{
    row_split split;
    int count = 0;
    while (row_split_candidate(4099, dtype, vec, count, &split))
        count++;
    return count;
}

/* Rows that single elements reach alone have each candidate twice: also as a ragged row of full vectors. */
TEST(candidates_of_rows)
{
    assert_int_equal(candidates_of_rows(CKL_F32, 1), 2 * candidates_of_rows(CKL_F32, row_vec_full(CKL_F32)));
    assert_true(candidates_of_rows(CKL_F32, row_vec_full(CKL_F32)) > 0);
}

/* Of a megabyte of tensors and less several launches wait at once. */
TEST(rows_of_little_work)
{
    static const struct {
        int64_t rows, cols;
        int tensors;
        bool early;
    } of[] = {
        { 128, 1024, 2, true }, // 2^20 bytes of f32
        { 129, 1024, 2, false }, { 129, 1024, 1, true }, { 1024, 1000, 2, false }, { 1, 131072, 2, true },
    };
    for (int i = 0; i < COUNT_OF(of); i++) {
        row_split s = { 128, 32, 1, 4, 8, false, false, false };
        row_split_finish(&s, of[i].rows, of[i].cols, CKL_F32, of[i].tensors, ckl_device_properties(device));
        assert_int_equal(s.early, of[i].early);
    }
}

/* Half the threads of a row where fewer are idle then, and of 512 where as many are. */
TEST(halved_rows)
{
    static const struct {
        int64_t cols;
        int threads, row_threads, steps, least, halved;
    } rows[] = {
        { 4992, 256, 256, 3, 64, 128 },  // 2.4 steps, then 4.9
        { 6144, 256, 256, 3, 64, 256 },  // none is idle
        { 4096, 512, 512, 1, 64, 256 },  // of 512 all the same
        { 4096, 512, 512, 1, 512, 512 }, // there may be no fewer
        { 100, 256, 32, 1, 64, 256 },    // several rows a CTA
        { 28000, 512, 512, 7, 64, 512 }, // 14 vectors a thread are too many
        { 1176, 64, 64, 3, 16, 64 },     // rows of a warp, two a CTA
    };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        row_split s = { rows[i].threads, rows[i].row_threads, 1, 8, rows[i].steps, false, false, false };
        row_split_halve(rows[i].cols, rows[i].least, ROW_STEPS_HALVED, &s);
        assert_int_equal(s.threads, rows[i].halved);
        assert_true(row_split_cols(&s) >= rows[i].cols || s.row_threads < s.threads);
        assert_int_equal(s.exact, s.threads < rows[i].threads && row_split_cols(&s) == rows[i].cols);
    }
}

TEST(time)
{
    for (const operator_test *const *test = operator_tests; *test; test++) {
        double longest = 0;
        for (const char *const *line = (*test)->cases; *line; line++) {
            test_case c;
            text whole = { 0 };
            text_printf(&whole, "%s %s", (*test)->op->name, *line);
            assert_ok(case_parse(text_data(&whole), &c));
            double us = choice_us(&c);
            if (us > CHOICE_US_MAX)
                fail_msg("choosing takes %.0f us: %s", us, text_data(&whole));
            longest = fmax(longest, us);
            case_clear(&c);
            text_free(&whole);
        }
        print_message("%-14s at most %6.1f us\n", (*test)->op->name, longest);
    }
}

/* What each implementation says of its choice for a case that it takes. */
static void check_costs(const char *line)
{
    test_case c;
    assert_ok(case_parse(line, &c));
    const operator_info *op = c.test->op;
    const ckl_device_info *info = ckl_device_properties(device);
    for (const implementation *const *each = op->implementations; *each; each++) {
        arena memory = { 0 };
        choice_made made;
        const void *desc;
        if (plan_choose(info, op, c.problem, (*each)->name, &memory, &made.impl, &made.config) == CKL_OK &&
            made.impl == *each && plan_desc(op, c.problem, &memory, &desc) == CKL_OK) {
            const plan_cost cost = made.impl->cost(desc, info, made.config);
            if (!(cost.us > 0 && cost.bound)) // nor NaN
                fail_msg("%s says %g us: %s", made.impl->name, cost.us, line);
        }
        arena_clear(&memory);
    }
    case_clear(&c);
}

/* Every implementation says what its configs cost; infinity is for what it must not choose, or for no rows. */
TEST(costs)
{
    for (const operator_test *const *test = operator_tests; *test; test++) {
        for (const implementation *const *each = (*test)->op->implementations; *each; each++)
            if (!(*each)->cost)
                fail_msg("%s %s says no costs", (*test)->op->name, (*each)->name);
        for (const char *const *line = (*test)->cases; *line; line++) {
            text whole = { 0 };
            text_printf(&whole, "%s %s", (*test)->op->name, *line);
            check_costs(text_data(&whole));
            text_free(&whole);
        }
    }
}

/* Shapes that nobody listed */

static uint64_t random_state;

static double random_unit(void)
{
    random_state = random_state * 6364136223846793005 + 1442695040888963407;
    return (double)(random_state >> 11) * 0x1p-53;
}

/* Log-uniform, and a multiple of 1024, 128, 8 or of nothing. */
static int64_t random_size(double low, double high)
{
    static const int64_t steps[] = { 1024, 128, 8, 1 };
    int64_t step = steps[(int)(random_unit() * COUNT_OF(steps))];
    int64_t size = (int64_t)(low * pow(high / low, random_unit()));
    return (size + step - 1) / step * step;
}

/* Different kernels, each once. */
typedef struct kernel_list {
    char *text[SHAPES];
    int count;
} kernel_list;

static void add_kernel(kernel_list *list, const char *kernel)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->text[i], kernel) == 0)
            return;
    list->text[list->count++] = strdup(kernel);
}

/* Adds the kernel of a line where its implementation searches; ragged rows of D are layout, `alone` is a parameter. */
static void add_line(kernel_list *list, const char *line)
{
    arena memory = { 0 };
    test_case c;
    choice_made made;
    text kernel = { 0 };
    assert_ok(case_parse(line, &c));
    assert_ok(choose(&c, &memory, &made));
    if (fields_find(made.impl->config, "ragged")) {
        assert_ok(fields_set(made.impl->config, "gemm", "ragged", "0", made.config));
        assert_ok(fields_set(made.impl->config, "gemm", "alone", "0", made.config));
        fields_print(made.impl->config, made.config, false, &kernel);
        add_kernel(list, text_data(&kernel));
    }
    text_free(&kernel);
    case_clear(&c);
    arena_clear(&memory);
}

/* Kernels that a thousand random shapes get, of one types and epilogue. */
static int count_kernels(const char *rest)
{
    kernel_list all = { .count = 0 };
    random_state = 12;
    for (int i = 0; i < SHAPES; i++) {
        text line = { 0 };
        int64_t m = random_size(16, 16384), n = random_size(64, 32768), k = random_size(64, 16384);
        text_printf(&line, "gemm m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " %s", m, n, k, rest);
        add_line(&all, text_data(&line));
        text_free(&line);
    }
    for (int i = 0; i < all.count; i++)
        free(all.text[i]);
    return all.count;
}

TEST(kernels_of_many_shapes)
{
    static const char *const rests[] = { "a=f16", "a=bf16 bias=1 activation=gelu", "a=f16 d=f32 beta=1" };
    for (int i = 0; i < COUNT_OF(rests); i++) {
        int count = count_kernels(rests[i]);
        print_message("gemm %-32s %d kernels\n", rests[i], count);
        assert_in_range(count, PORTFOLIO_MAX / 3, PORTFOLIO_MAX);
    }
}

/* What the driver gets of kernel 0 of an implementation and config: the text behind the line for people. */
static void print_code(const implementation *impl, const operator_info *op, const void *config, text *out)
{
    ir_kernel *kernel;
    assert_ok(plan_describe(op, impl, config, 0, IR_SM90A, &kernel));
    assert_ok(ir_print_ptx(kernel, out));
    ir_kernel_free(kernel);
}

/* Behind copies of A and B runs the very kernel of aligned products: it is compiled once for both. */
TEST(copied_products_have_the_same_kernel)
{
    arena memory = { 0 };
    test_case c;
    choice_made made;
    text copied = { 0 }, aligned = { 0 };
    assert_ok(case_parse("gemm m=6619 n=1192 k=628", &c));
    assert_ok(choose(&c, &memory, &made));
    assert_string_equal(made.impl->name, "pitched");
    print_code(made.impl, c.test->op, made.config, &copied);
    print_code(plan_find_implementation(c.test->op, "sm90"), c.test->op, made.config, &aligned);
    assert_string_equal(strchr(text_data(&copied), '\n'), strchr(text_data(&aligned), '\n'));
    assert_string_not_equal(text_data(&copied), text_data(&aligned));
    text_free(&copied);
    text_free(&aligned);
    case_clear(&c);
    arena_clear(&memory);
}

int main(void)
{
    mallopt(M_TRIM_THRESHOLD, 1 << 24); // pages that malloc gives back and takes again are no part of a choice
    return run_enlisted(open_device, close_device);
}
