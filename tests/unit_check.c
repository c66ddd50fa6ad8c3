/* unit_check.c - the test harness must find what it claims to find: an operator with faults, on a device in host memory. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/dtype.h"
#include "lab/check.h"
#include "lab/compare.h"
#include "lab/cores.h"
#include "lab/fill.h"
#include "lab/host_memory.h"
#include "host_operator.h"
#include "virtual_device.h"

static char names[64]; // of operands, in the order in which they were said

static void note_name(ckl_device *d, const void *at, const char *name)
{
    (void)d;
    (void)at;
    strncat(names, name, sizeof names - strlen(names) - 1);
}

/* y[r,i] = a[r,i] + b[i] over padded rows, with a fault to order. */
typedef enum fault {
    SOUND,
    WRONG_ELEMENT,
    LEFT_OUT,
    WRITES_PADDING,
    WRITES_BEFORE,
    WRITES_PAST,
    WRITES_INPUT,
    NOT_REPEATABLE,
    WRONG_LATER,
    OFF_BY_ONE_UNIT
} fault;

static fault fault_now;
static int runs;
static double magnitude_factor; // the reference's own fault is one that is no positive number

typedef struct sum_problem {
    int64_t rows, n, ld;
    ckl_dtype dtype;
} sum_problem;

static void commit_fault(const sum_problem *p, unsigned char *y, void *a)
{
    size_t element = ckl_dtype_bytes(p->dtype), middle = (size_t)(p->ld + 2) * element;
    switch (fault_now) {
    case WRONG_ELEMENT:
        dtype_write(p->dtype, y, p->ld + 2, 77);
        break;
    case LEFT_OUT:
        memset(y + middle, 0xff, element);
        break;
    case WRITES_PADDING:
        dtype_write(p->dtype, y, p->n, 1);
        break;
    case WRITES_BEFORE:
        y[-1] = 0;
        break;
    case WRITES_PAST:
        dtype_write(p->dtype, y, (p->rows - 1) * p->ld + p->n, 1);
        break;
    case WRITES_INPUT:
        dtype_write(p->dtype, a, 0, 99);
        break;
    case WRONG_LATER:
        if (runs % 2 == 0)
            dtype_write(p->dtype, y, p->ld + 2, 77);
        break;
    case NOT_REPEATABLE:
    case OFF_BY_ONE_UNIT:
        if (fault_now == OFF_BY_ONE_UNIT || runs % 2)
            y[middle] ^= 1;
        break;
    default:
        break;
    }
}

static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    assert_non_null(stream);
    void *const *pointers = args;
    const sum_problem *p = plan->desc;
    void *a = pointers[0], *b = pointers[1], *y = pointers[2];
    assert_null(pointers[3]);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t i = 0; i < p->n; i++)
            dtype_write(p->dtype, y, r * p->ld + i,
                        dtype_read(p->dtype, a, r * p->ld + i) + dtype_read(p->dtype, b, i));
    runs++;
    commit_fault(p, y, a);
    return CKL_OK;
}

static const implementation plain = { HOST_IMPLEMENTATION };
static const implementation *const implementations[] = { &plain, NULL };
static const operator_info sum_info = HOST_OPERATOR("sum", sum_problem);

/* The same, not expected to give the same bits in every run. */
static const implementation loose = { HOST_IMPLEMENTATION, .order_dependent = true };
static const implementation *const loose_implementations[] = { &loose, NULL };
static const operator_info loose_info = { .name = "sum",
                                          .desc_bytes = sizeof(sum_problem),
                                          .implementations = loose_implementations };

static int sum_operands(const void *problem, operand *out)
{
    const sum_problem *p = problem;
    out[0] = operand_matrix("a", OPERAND_IN, p->dtype, p->rows, p->n, p->ld);
    out[1] = operand_vector("b", OPERAND_IN, p->dtype, p->n);
    out[2] = operand_matrix("y", OPERAND_OUT, p->dtype, p->rows, p->n, p->ld);
    out[3] = (operand){ .name = "absent" };
    return 4;
}

static void sum_reference(const void *problem, void *const *memory, reference_slice out)
{
    const sum_problem *p = problem;
    for (int64_t j = 0; j < p->n; j++) {
        double a = dtype_read(p->dtype, memory[0], out.slice * p->ld + j), b = dtype_read(p->dtype, memory[1], j);
        out.value[j] = a + b;
        out.magnitude[j] = magnitude_factor * (fabs(a) + fabs(b));
    }
}

static const operator_line sum_line = { .op = &sum_info, .problem_bytes = sizeof(sum_problem) };
static const operator_test sum_test = {
    .op = &sum_info, .line = &sum_line, .operands = sum_operands, .reference = sum_reference, .terms = 2
};

static const operator_test loose_test = {
    .op = &loose_info, .line = &sum_line, .operands = sum_operands, .reference = sum_reference, .terms = 2
};

static check_result run_case_of(const operator_test *test, sum_problem problem, operand_fill fill, fault which)
{
    test_case c = { .test = test, .problem = &problem, .fields = "" };
    fields_default(line_key_table, &c.keys);
    c.keys.fill = (choice)fill;
    c.keys.misalign = 3;
    check k;
    check_result result;
    fault_now = which;
    runs = 0;
    assert_int_equal(check_open(&c, &device, NULL, &k), CKL_OK);
    assert_int_equal(check_run(&k, &result), CKL_OK);
    assert_int_equal(check_run_again(&k, &result), CKL_OK);
    check_close(&k);
    return result;
}

static check_result run_case(sum_problem problem, operand_fill fill, fault which)
{
    return run_case_of(&sum_test, problem, fill, which);
}

static const sum_problem padded = { .rows = 5, .n = 7, .ld = 9, .dtype = CKL_F32 };

static void test_sound(void **state)
{
    (void)state;
    static const ckl_dtype dtypes[] = { CKL_F32, CKL_F16, CKL_BF16, CKL_I32, CKL_U8 };
    for (int d = 0; d < COUNT_OF(dtypes); d++)
        for (int fill = FILL_INTEGERS; fill <= FILL_HARD; fill++) {
            sum_problem p = padded;
            p.dtype = dtypes[d];
            check_result r = run_case(p, (operand_fill)fill, SOUND);
            assert_string_equal(r.fault, "");
            assert_true(r.passed && r.elements == 35 && r.slices_compared == 5 && r.ratio_max <= 1);
        }
    check_result empty = run_case((sum_problem){ 0, 7, 9, CKL_F32 }, FILL_UNIFORM, SOUND);
    assert_true(empty.passed && empty.elements == 0);
}

/* An emulated device's reports speak of operands. */
static void test_names(void **state)
{
    (void)state;
    *names = 0;
    run_case(padded, FILL_UNIFORM, SOUND);
    assert_string_equal(names, "operand aoperand boperand y");
}

static void expect_fault(fault which, const char *words)
{
    check_result r = run_case(padded, FILL_UNIFORM, which);
    assert_false(r.passed);
    if (!strstr(r.fault, words))
        fail_msg("fault %d says: %s", which, r.fault);
}

static void test_faults_are_found(void **state)
{
    (void)state;
    expect_fault(WRONG_ELEMENT, "y[slice 1, j 2] is 77, expected");
    expect_fault(LEFT_OUT, "1 of 35 elements of y were not written");
    expect_fault(WRITES_PADDING, "y was written outside of its elements: element 7 of its memory");
    expect_fault(WRITES_BEFORE, "y was written outside of its elements: 1 bytes before its start");
    expect_fault(WRITES_PAST, "y was written outside of its elements: 1 bytes past its end");
    expect_fault(WRITES_INPUT, "a is an input but was written at element 0");
    magnitude_factor = -1e30;
    expect_fault(WRONG_ELEMENT, "which is the reference's own error; 1 of 35 elements compared are wrong");
    magnitude_factor = (double)NAN;
    expect_fault(OFF_BY_ONE_UNIT, "allowed difference nan, which is the reference's own error; 1 of 35 elements");
    magnitude_factor = 1;
    expect_fault(NOT_REPEATABLE, "y is not written, or not the same in a second run, at element 11");
}

/* Other bits within the bound are right the second time, too; other elements are not. */
static void test_order_dependent(void **state)
{
    (void)state;
    assert_true(run_case_of(&loose_test, padded, FILL_UNIFORM, NOT_REPEATABLE).passed);
    assert_false(run_case_of(&loose_test, padded, FILL_UNIFORM, WRONG_LATER).passed);
}

static double twice_b2(const void *problem, void *const *host)
{
    return 2 * dtype_read(((const sum_problem *)problem)->dtype, host[1], 2);
}

/* Operations may depend on what the inputs hold. */
static void test_flops_of_data(void **state)
{
    (void)state;
    operator_test test = sum_test;
    sum_problem problem = padded;
    test_case c = { .test = &test, .problem = &problem, .fields = "" };
    check k;
    fields_default(line_key_table, &c.keys);
    assert_int_equal(check_open(&c, &device, NULL, &k), CKL_OK);
    assert_true(check_flops(&k) == 35);
    test.flops_of_data = twice_b2;
    assert_true(check_flops(&k) == 2 * dtype_read(CKL_F32, k.images.host[1], 2));
    check_close(&k);
}

/* What has no gaps is poisoned by the device, and only its ends are looked at. */
static void test_faults_without_padding(void **state)
{
    (void)state;
    const sum_problem dense = { padded.rows, padded.n, padded.n, padded.dtype };
    assert_true(run_case(dense, FILL_UNIFORM, SOUND).passed);
    const struct {
        fault which;
        const char *says;
    } faults[] = { { LEFT_OUT, "1 of 35 elements of y were not written" },
                   { WRITES_BEFORE, "y was written outside of its elements: 1 bytes before its start" },
                   { WRITES_PAST, "y was written outside of its elements: 1 bytes past its end" },
                   { NOT_REPEATABLE, "y is not written, or not the same in a second run" } };
    for (int i = 0; i < COUNT_OF(faults); i++) {
        check_result r = run_case(dense, FILL_UNIFORM, faults[i].which);
        assert_false(r.passed);
        assert_non_null(strstr(r.fault, faults[i].says));
    }
}

/* With little effort some slices of a large problem are compared, the first and the last among them. */
static void test_effort(void **state)
{
    (void)state;
    sum_problem problem = { 1000, 7, 7, CKL_F32 };
    test_case c = { .test = &sum_test, .problem = &problem, .fields = "" };
    check k;
    check_result result;
    fields_default(line_key_table, &c.keys);
    fault_now = SOUND;
    assert_int_equal(check_open(&c, &device, NULL, &k), CKL_OK);
    assert_int_equal(check_run(&k, &result), CKL_OK);
    assert_true(result.passed && result.slices_compared == 1000);
    k.images.effort = 1e-9;
    check_compare_outputs(&k, &result);
    assert_true(result.passed && result.slices == 1000 && result.slices_compared == 8);
    float *y = (float *)(void *)(k.images.each[2].after + k.images.each[2].start);
    const int64_t ends[] = { 0, 999 };
    for (int i = 0; i < COUNT_OF(ends); i++) {
        y[ends[i] * 7] += 1;
        check_compare_outputs(&k, &result);
        assert_false(result.passed);
        y[ends[i] * 7] -= 1;
    }
    y[500 * 7 + 3] = (float)NAN; // as it would be if it were not written
    memset(&y[500 * 7 + 3], 0xff, sizeof *y);
    check_compare_outputs(&k, &result);
    assert_false(result.passed);
    check_close(&k);
}

/* Whoever writes an input later is found by looking again. */
static void test_untouched(void **state)
{
    (void)state;
    sum_problem problem = padded;
    test_case c = { .test = &sum_test, .problem = &problem, .fields = "" };
    check k;
    check_result result;
    fields_default(line_key_table, &c.keys);
    fault_now = SOUND;
    assert_int_equal(check_open(&c, &device, NULL, &k), CKL_OK);
    assert_int_equal(check_run(&k, &result), CKL_OK);
    assert_int_equal(check_untouched(&k, &result), CKL_OK);
    assert_true(result.passed);
    dtype_write(problem.dtype, k.set.pointer[1], 2, 99);
    assert_int_equal(check_untouched(&k, &result), CKL_OK);
    assert_false(result.passed);
    assert_string_equal(result.fault, "b is an input but was written at element 2 of its memory");
    check_close(&k);
}

/* A last bit is within the bound of random inputs, and wrong where exactness is demanded. */
static void test_exactness(void **state)
{
    (void)state;
    check_result r = run_case(padded, FILL_INTEGERS, OFF_BY_ONE_UNIT);
    assert_true(!r.passed && r.exact && r.elements_bad == 1);
    sum_problem p = padded;
    p.dtype = CKL_BF16;
    assert_false(run_case(p, FILL_INTEGERS, OFF_BY_ONE_UNIT).passed);
}

static void test_tolerance(void **state)
{
    (void)state;
    const tolerance t = { .dtype = CKL_F16, .rounding = 0x1p-11, .relative = 0x1p-20, .subnormals = 0x1p-24 };
    double bound;
    assert_true(tolerance_admits(&t, 1, 1 + 0x1p-12, 1, &bound) && bound < 0x1p-10);
    assert_false(tolerance_admits(&t, 1, 1 + 0x1p-10, 1, &bound));
    assert_true(tolerance_admits(&t, (double)NAN, (double)NAN, 1, &bound));
    assert_false(tolerance_admits(&t, 1, (double)NAN, 1, &bound));
    assert_false(tolerance_admits(&t, (double)NAN, 1, 1, &bound));
    assert_true(tolerance_admits(&t, 1, (double)NAN, REFERENCE_OPEN, &bound));
    assert_false(tolerance_admits(&t, 1, 3, REFERENCE_OPEN, &bound));
    assert_false(tolerance_admits(&t, (double)INFINITY, (double)-INFINITY, 1, &bound));
    assert_true(tolerance_admits(&t, (double)INFINITY, 65530, 65530, &bound));
    assert_false(tolerance_admits(&t, (double)INFINITY, 65000, 65000, &bound));
    assert_false(tolerance_admits(&t, (double)-INFINITY, 70000, 70000, &bound));
}

/* What is equal passes whatever the bound; nothing else does where the bound is no number from 0 to infinity. */
static void test_bounds_of_the_reference(void **state)
{
    (void)state;
    const tolerance t = { .dtype = CKL_F16, .rounding = 0x1p-11, .relative = 0x1p-20, .subnormals = 0x1p-24 };
    const double none[] = { (double)NAN, -1e9, (double)INFINITY };
    double bound;
    for (int i = 0; i < COUNT_OF(none); i++) {
        assert_true(tolerance_admits(&t, 0, 0, none[i], &bound));
        assert_true(tolerance_admits(&t, 1, 1 + 0x1p-12, none[i], &bound)); // rounds to it
        assert_true(tolerance_admits(&t, (double)NAN, (double)NAN, none[i], &bound));
        assert_false(tolerance_admits(&t, 1, 2, none[i], &bound));
        assert_false(bound >= 0 && bound < (double)INFINITY);
    }
}

/* A float becomes an integer by truncation; one near an integer may be either. */
static void test_truncated(void **state)
{
    (void)state;
    const tolerance t = { .dtype = CKL_I32, .relative = 0x1p-20 };
    const struct {
        double got, expected, magnitude;
        bool admitted;
    } rows[] = {
        { 0, 0.75, 1, true },
        { 1, 0.75, 1, false },
        { 1, 1 - 0x1p-21, 1, true },
        { 0, 1 - 0x1p-21, 1, true },
        { 0, 1, 1, true },
        { 1, 1 - 0x1p-21, 0, false },
        { -1, -1.5, 1, true },
        { -2, -1.5, 1, false },
        { 0, (double)NAN, 1, true },
        { 1, (double)NAN, 1, false },
        { INT32_MAX, 1e20, 1, true },
        { 7, 7.5, (double)NAN, true },
        { 8, 7.5, (double)NAN, false },
    };
    double bound;
    for (int i = 0; i < COUNT_OF(rows); i++)
        if (tolerance_admits(&t, rows[i].got, rows[i].expected, rows[i].magnitude, &bound) != rows[i].admitted)
            fail_msg("row %d", i);
    const tolerance exact = { .dtype = CKL_I32, .exact = true, .relative = 1 };
    assert_true(tolerance_admits(&exact, 3, 3.5, 1, &bound) && !tolerance_admits(&exact, 4, 3.5, 1, &bound));
    const tolerance truth = { .dtype = CKL_BOOL, .relative = 0x1p-20 };
    assert_true(tolerance_admits(&truth, 1, 0.25, 0, &bound) && tolerance_admits(&truth, 1, (double)NAN, 1, &bound));
    assert_true(tolerance_admits(&truth, 0, 0x1p-30, 1, &bound));
    assert_false(tolerance_admits(&truth, 0, 0.25, 1, &bound));
    assert_false(tolerance_admits(&truth, 1, 0, 0, &bound));
}

/* Different operands, seeds and elements get different numbers; the same ones get the same. */
static void test_fill_streams(void **state)
{
    (void)state;
    float memory[3][64];
    operand_image o = { .info = operand_vector("x", OPERAND_IN, CKL_F32, 64), .rows = 1, .columns = 64 };
    const struct {
        int number;
        uint64_t seed;
    } sources[] = { { 0, 1 }, { 1, 1 }, { 0, 2 } };
    for (int i = 0; i < 3; i++) {
        o.image = (unsigned char *)memory[i];
        fill_operand(&o, sources[i].number, FILL_UNIFORM, sources[i].seed, 1);
    }
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 64; j++)
            assert_true(memory[i][j] != memory[(i + 1) % 3][j] && fabsf(memory[i][j]) <= 1);
    float again[64];
    o.image = (unsigned char *)again;
    fill_operand(&o, 0, FILL_UNIFORM, 1, 1);
    assert_memory_equal(again, memory[0], sizeof again);
}

/* A large operand has no period and hardly two rows alike, and is the same every time. */
static void test_fill_windows(void **state)
{
    (void)state;
    enum { ROWS = 1100, COLS = 4099, LD = 4100 };
    operand_image o = { .info = operand_matrix("x", OPERAND_IN, CKL_F32, ROWS, COLS, LD),
                        .rows = ROWS,
                        .columns = COLS };
    float *memory[2];
    double sum = 0;
    int alike = 0;
    for (int i = 0; i < 2; i++) {
        memory[i] = calloc((size_t)ROWS * LD, sizeof *memory[i]);
        assert_non_null(memory[i]);
        o.image = (unsigned char *)memory[i];
        fill_operand(&o, 3, FILL_UNIFORM, 5, 1);
    }
    assert_memory_equal(memory[0], memory[1], (size_t)ROWS * LD * sizeof *memory[0]);
    for (int64_t r = 0; r < ROWS; r++) {
        const float *row = memory[0] + r * LD;
        assert_true(row[COLS] == 0);
        for (int64_t other = 0; other < r; other++)
            alike += memcmp(row, memory[0] + other * LD, 64 * sizeof *row) == 0;
        for (int64_t j = 0; j < COLS; j++)
            sum += (double)row[j];
        assert_true(row[4096] != 0 && fabsf(row[4098]) <= 1);
    }
    assert_true(fabs(sum) / (ROWS * COLS) < 0.01 && alike < 5);
    free(memory[0]);
    free(memory[1]);
}

static void test_host_memory(void **state)
{
    (void)state;
    const size_t bytes = 3 << 20, before = host_memory_kept();
    unsigned char *first = host_memory_take(bytes);
    assert_non_null(first);
    memset(first, 1, bytes);
    host_memory_give(first, bytes);
    assert_true(host_memory_kept() >= before + bytes);
    assert_ptr_equal(host_memory_take(bytes + 1), first); // of the same power of two
    assert_int_equal(host_memory_kept(), before);
    host_memory_give(first, bytes + 1);
    void *small = host_memory_take(0);
    assert_non_null(small);
    host_memory_give(small, 0);
}

static void test_cores(void **state)
{
    (void)state;
    assert_in_range(cores_available(), 1, sysconf(_SC_NPROCESSORS_ONLN));
}

/* Sums run along rows, and of a single row nobody knows. */
static void test_sums_run_along_rows(void **state)
{
    (void)state;
    const int64_t shape[] = { 2, 3, 4 }, stride[] = { 12, 4, 1 };
    assert_int_equal(operand_vector("x", OPERAND_IN, CKL_F32, 9).along, 0);
    operand matrix = operand_matrix("x", OPERAND_IN, CKL_F32, 2, 9, 10);
    assert_int_equal(matrix.along, 2);
    assert_true(matrix.shape[0] == 2 && matrix.shape[1] == 9 && matrix.stride[0] == 10 && matrix.stride[1] == 1);
    operand x = operand_tensor("x", OPERAND_IN, CKL_F32, 3, shape, stride);
    assert_int_equal(x.along, 4);
    assert_memory_equal(x.shape, shape, sizeof shape);
    assert_memory_equal(x.stride, stride, sizeof stride);
    assert_int_equal(operand_along(x, 3).along, 3);
}

/* Hard inputs */

enum { LINES = 1024, LENGTH = 77, LANES = 32, CLASSES = 7 };

/* The class of a number that a line has once; -1: it has none. */
static int class_of(float x)
{
    const float singles[CLASSES] = { NAN, INFINITY, -INFINITY, FLT_MAX, -FLT_MAX };
    for (int i = 0; i < 5; i++)
        if (isnan(x) ? isnan(singles[i]) : x == singles[i])
            return i;
    return fabsf(x) > 900 ? (x > 0 ? 5 : 6) : -1;
}

/* Element `at` of a line of a hard operand, which lies in its memory one after the other, or across. */
static float element_of(const float *memory, bool across, int line, int at)
{
    return across ? memory[at * LINES + line] : memory[line * LENGTH + at];
}

/*
 * Each class is alone on some lines, at every place modulo a warp, in every quarter, at the last place and at the first few; no
 * line has two numbers that are not finite, and most lines have none.
 */
static void check_lines(const float *memory, bool across)
{
    bool lane[CLASSES][LANES] = { 0 }, quarter[CLASSES][4] = { 0 }, last[CLASSES] = { 0 };
    int spoiled = 0, ties = 0, tiny = 0, minus_zeros = 0;
    for (int line = 0; line < LINES; line++) {
        int singles = 0, single = -1, place = 0, infinite = 0;
        for (int at = 0; at < LENGTH; at++) {
            float x = element_of(memory, across, line, at);
            int class = class_of(x);
            infinite += !isfinite(x);
            ties += at > 0 && x == 1 && element_of(memory, across, line, at - 1) == 1;
            tiny += x != 0 && fabsf(x) < FLT_MIN;
            minus_zeros += x == 0 && signbit(x);
            if (class >= 0) {
                singles++;
                single = class;
                place = at;
            }
        }
        assert_true(infinite <= 1);
        spoiled += infinite;
        if (singles == 1) {
            lane[single][place % LANES] = true;
            quarter[single][place * 4 / LENGTH] = true;
            last[single] |= place == LENGTH - 1;
        }
    }
    assert_in_range(spoiled, LINES / 8, LINES / 3);
    assert_true(ties > LINES && tiny > LINES && minus_zeros > LINES);
    for (int c = 0; c < CLASSES; c++) {
        assert_true(last[c]);
        for (int i = 0; i < LANES; i++)
            assert_true(lane[c][i]);
        for (int i = 0; i < 4; i++)
            assert_true(quarter[c][i]);
    }
}

static void fill_hard(operand info, float *memory)
{
    operand_image o = {
        .info = info, .image = (unsigned char *)memory, .columns = info.shape[info.rank - 1], .rows = 1
    };
    for (int d = 0; d + 1 < info.rank; d++)
        o.rows *= info.shape[d];
    fill_operand(&o, 0, FILL_HARD, 1, 1);
}

static void test_hard_lines(void **state)
{
    static float memory[LINES * LENGTH];
    (void)state;
    fill_hard(operand_matrix("x", OPERAND_IN, CKL_F32, LINES, LENGTH, LENGTH), memory);
    check_lines(memory, false);
    const int64_t shape[] = { 7, LENGTH / 7, LINES }, stride[] = { LENGTH / 7 * LINES, LINES, 1 };
    fill_hard(operand_along(operand_tensor("x", OPERAND_IN, CKL_F32, 3, shape, stride), 1u << 0 | 1u << 1), memory);
    check_lines(memory, true); // lines across memory, along two modes
}

/* Elements that are alone: each class at every place modulo vectors of all threads of a CTA. */
static void test_hard_elements(void **state)
{
    enum { COUNT = 1 << 15, PLACES = 512 };
    static float memory[COUNT];
    static bool seen[CLASSES][PLACES];
    (void)state;
    fill_hard(operand_vector("x", OPERAND_IN, CKL_F32, COUNT), memory);
    for (int i = 0; i < COUNT; i++)
        if (class_of(memory[i]) >= 0)
            seen[class_of(memory[i])][i % PLACES] = true;
    for (int c = 0; c < CLASSES; c++)
        for (int i = 0; i < PLACES; i++)
            assert_true(seen[c][i]);
}

/* Problems of a single line are of different kinds. */
static void test_hard_single_lines(void **state)
{
    static float memory[LENGTH];
    bool nan[LENGTH] = { 0 };
    int count = 0;
    (void)state;
    for (int length = 1; length < LENGTH; length++) {
        fill_hard(operand_matrix("x", OPERAND_IN, CKL_F32, 1, length, length), memory);
        for (int i = 0; i < length; i++)
            nan[length] |= isnan(memory[i]) != 0;
        count += nan[length];
    }
    assert_in_range(count, 1, LENGTH / 3);
}

/* A range is kept; integers have peaks; the largest number may be stated. */
static void test_hard_ranges(void **state)
{
    static float memory[LINES * LENGTH];
    static int32_t integers[LINES];
    (void)state;
    operand o = operand_matrix("x", OPERAND_IN, CKL_F32, LINES, LENGTH, LENGTH);
    fill_hard(operand_range(o, 0, 0), memory);
    for (int i = 0; i < LINES * LENGTH; i++)
        assert_true(memory[i] == 0);
    o.hard_max = 4;
    fill_hard(o, memory);
    for (int i = 0; i < LINES * LENGTH; i++)
        assert_true(!isfinite(memory[i]) || fabsf(memory[i]) <= 5);
    fill_hard(operand_vector("i", OPERAND_IN, CKL_I32, LINES), (float *)integers);
    int above = 0, below = 0;
    for (int i = 0; i < LINES; i++) {
        assert_in_range(integers[i] + 1000, 0, 2000);
        above += integers[i] > 900;
        below += integers[i] < -900;
    }
    assert_true(above > 0 && below > 0);
}

/* Indices that differ are a permutation of their range; positions that rise do so by no more than they may. */
static void test_orders(void **state)
{
    enum { COUNT = 48, STEP = 10 };
    static int32_t numbers[COUNT];
    bool seen[COUNT] = { false };
    (void)state;
    operand o = operand_range(operand_vector("i", OPERAND_IN, CKL_I32, COUNT), 0, COUNT - 1);
    o.distinct = true;
    fill_hard(o, (float *)numbers);
    for (int i = 0; i < COUNT; i++) {
        assert_in_range(numbers[i], 0, COUNT - 1);
        assert_false(seen[numbers[i]]);
        seen[numbers[i]] = true;
    }
    o = operand_range(operand_vector("i", OPERAND_IN, CKL_I32, COUNT), 0, STEP);
    o.rising = (COUNT - 1) * STEP / 2;
    fill_hard(o, (float *)numbers);
    int none = 0, whole = 0;
    for (int i = 1; i < COUNT; i++) {
        assert_in_range(numbers[i] - numbers[i - 1], 0, STEP);
        none += numbers[i] == numbers[i - 1];
        whole += numbers[i] == numbers[i - 1] + STEP;
    }
    assert_true(numbers[0] == 0 && numbers[COUNT - 1] == o.rising && none > 0 && whole > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_faults_are_found),
        cmocka_unit_test(test_order_dependent),
        cmocka_unit_test(test_flops_of_data),
        cmocka_unit_test(test_faults_without_padding),
        cmocka_unit_test(test_effort),
        cmocka_unit_test(test_untouched),
        cmocka_unit_test(test_exactness),
        cmocka_unit_test(test_tolerance),
        cmocka_unit_test(test_bounds_of_the_reference),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_fill_streams),
        cmocka_unit_test(test_fill_windows),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_cores),
        cmocka_unit_test(test_sums_run_along_rows),
        cmocka_unit_test(test_hard_lines),
        cmocka_unit_test(test_hard_elements),
        cmocka_unit_test(test_hard_single_lines),
        cmocka_unit_test(test_hard_ranges),
        cmocka_unit_test(test_orders),
    };
    magnitude_factor = 1;
    device_ops ops = virtual_ops;
    ops.name_memory = note_name;
    device.ops = &ops;
    return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
