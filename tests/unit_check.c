/* unit_check.c - the test harness must find what it claims to: an operator with faults, on a device in host memory. */
#include <float.h>
#include <math.h>
#include <unistd.h>

#include "unit.h"
#include "base/dtype.h"
#include "lab/check.h"
#include "lab/compare.h"
#include "lab/cores.h"
#include "lab/host_memory.h"
#include "host_operator.h"
#include "virtual_device.h"

static char names[64]; // of operands, in the order in which they were said

static void note_name(ckl_device *d, const void *at, const char *name)
{
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
    LEAVES_COUNTER,
    OFF_BY_ONE_UNIT
} fault;

enum { WORKSPACE_BYTES = 100000, COUNTER = 70000 };

static fault fault_now;
static int runs;
static double magnitude_factor; // the reference's own fault is one that is no positive number

typedef struct sum_problem {
    int64_t rows, n, ld;
    ckl_dtype dtype;
} sum_problem;

static void commit_fault(const sum_problem *p, unsigned char *y, void *a, unsigned char *counter)
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
    case LEAVES_COUNTER:
        y[middle] ^= *counter > 1; // as right the second time as the first
        ++*counter;
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
    commit_fault(p, y, a, (unsigned char *)plan->workspace + COUNTER);
    return CKL_OK;
}

static int64_t workspace_bytes(const ckl_plan *plan)
{
    return WORKSPACE_BYTES;
}

static const implementation plain = { HOST_IMPLEMENTATION, .workspace_bytes = workspace_bytes };
static const implementation *const implementations[] = { &plain, NULL };
static const operator_info sum_info = HOST_OPERATOR("sum", sum_problem);

/* The same, not expected to give the same bits in every run. */
static const implementation loose = { HOST_IMPLEMENTATION, .workspace_bytes = workspace_bytes,
                                      .order_dependent = true };
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

static _Atomic int references; // slices that were asked for

static void sum_reference(const void *problem, void *const *memory, reference_slice out)
{
    const sum_problem *p = problem;
    references++;
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

static test_case case_of(const operator_test *test, const sum_problem *problem)
{
    test_case c = { .test = test, .problem = (void *)problem, .fields = "" };
    fields_default(line_key_table, &c.keys);
    return c;
}

static check opened(const test_case *c, fault which)
{
    check k;
    fault_now = which;
    runs = 0;
    references = 0;
    assert_ok(check_open(c, &device, NULL, &k));
    return k;
}

static check_result run_case_of(const operator_test *test, sum_problem problem, operand_fill fill, fault which)
{
    test_case c = case_of(test, &problem);
    c.keys.fill = (choice)fill;
    c.keys.misalign = 3;
    check_result result;
    check k = opened(&c, which);
    assert_ok(check_run(&k, &result));
    assert_ok(check_run_again(&k, &result));
    check_close(&k);
    return result;
}

static check_result run_case(sum_problem problem, operand_fill fill, fault which)
{
    return run_case_of(&sum_test, problem, fill, which);
}

static const sum_problem padded = { .rows = 5, .n = 7, .ld = 9, .dtype = CKL_F32 };

TEST(sound)
{
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
TEST(names)
{
    *names = 0;
    run_case(padded, FILL_UNIFORM, SOUND);
    assert_string_equal(names, "operand aoperand boperand y");
}

static void expect_fault_of(sum_problem problem, fault which, const char *words)
{
    check_result r = run_case(problem, FILL_UNIFORM, which);
    assert_false(r.passed);
    if (!strstr(r.fault, words))
        fail_msg("fault %d says: %s", which, r.fault);
}

static void expect_fault(fault which, const char *words)
{
    expect_fault_of(padded, which, words);
}

TEST(faults_are_found)
{
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
    expect_fault(LEAVES_COUNTER, "y is not written, or not the same in a second run, at element 11");
}

/* Other bits within the bound are right the second time, too; other elements are not. */
TEST(order_dependent)
{
    assert_true(run_case_of(&loose_test, padded, FILL_UNIFORM, NOT_REPEATABLE).passed);
    assert_false(run_case_of(&loose_test, padded, FILL_UNIFORM, WRONG_LATER).passed);
}

static double twice_b2(const void *problem, void *const *host)
{
    return 2 * dtype_read(((const sum_problem *)problem)->dtype, host[1], 2);
}

/* Operations may depend on what the inputs hold. */
TEST(flops_of_data)
{
    operator_test test = sum_test;
    const test_case c = case_of(&test, &padded);
    check k = opened(&c, SOUND);
    assert_true(check_flops(&k) == 35);
    test.flops_of_data = twice_b2;
    assert_true(check_flops(&k) == 2 * dtype_read(CKL_F32, k.images.host[1], 2));
    check_close(&k);
}

/* What has no gaps is poisoned by the device, and only its ends are looked at. */
TEST(faults_without_padding)
{
    const sum_problem dense = { padded.rows, padded.n, padded.n, padded.dtype };
    assert_true(run_case(dense, FILL_UNIFORM, SOUND).passed);
    expect_fault_of(dense, LEFT_OUT, "1 of 35 elements of y were not written");
    expect_fault_of(dense, WRITES_BEFORE, "y was written outside of its elements: 1 bytes before its start");
    expect_fault_of(dense, WRITES_PAST, "y was written outside of its elements: 1 bytes past its end");
    expect_fault_of(dense, NOT_REPEATABLE, "y is not written, or not the same in a second run");
}

/* Another plan is judged by the same inputs and by the references that are there already: what is wrong is found. */
TEST(replan)
{
    test_case c = case_of(&sum_test, &padded);
    check_result first, second;
    check k = opened(&c, SOUND);
    k.images.keep_references = true;
    assert_ok(check_run(&k, &first));
    assert_ok(check_replan(&k));
    fault_now = WRONG_ELEMENT;
    assert_ok(check_run(&k, &second));
    assert_true(first.passed && !second.passed && references == padded.rows);
    c.keys.impl = "none";
    assert_int_equal(check_replan(&k), CKL_INVALID);
    assert_null(k.plan);
    check_close(&k);
}

/* With little effort some slices of a large problem are compared, the first and the last among them. */
TEST(effort)
{
    const sum_problem problem = { 1000, 7, 7, CKL_F32 };
    const test_case c = case_of(&sum_test, &problem);
    check_result result;
    check k = opened(&c, SOUND);
    assert_ok(check_run(&k, &result));
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
TEST(untouched)
{
    const test_case c = case_of(&sum_test, &padded);
    check_result result;
    check k = opened(&c, SOUND);
    assert_ok(check_run(&k, &result));
    assert_ok(check_untouched(&k, &result));
    assert_true(result.passed);
    dtype_write(padded.dtype, k.set.pointer[1], 2, 99);
    assert_ok(check_untouched(&k, &result));
    assert_false(result.passed);
    assert_string_equal(result.fault, "b is an input but was written at element 2 of its memory");
    check_close(&k);
}

/* A last bit is within the bound of random inputs, and wrong where exactness is demanded. */
TEST(exactness)
{
    check_result r = run_case(padded, FILL_INTEGERS, OFF_BY_ONE_UNIT);
    assert_true(!r.passed && r.exact && r.elements_bad == 1);
    sum_problem p = padded;
    p.dtype = CKL_BF16;
    assert_false(run_case(p, FILL_INTEGERS, OFF_BY_ONE_UNIT).passed);
}

TEST(tolerance)
{
    const tolerance t = { .dtype = CKL_F16, .rounding = 0x1p-11, .relative = 0x1p-20, .subnormals = 0x1p-24 };
    double bound;
    assert_true(tolerance_admits(&t, 1, 1 + 0x1p-12, 1, &bound) && bound < 0x1p-10);
    assert_false(tolerance_admits(&t, 1, 1 + 0x1p-10, 1, &bound));
    assert_true(tolerance_admits(&t, (double)NAN, (double)NAN, 1, &bound));
    assert_false(tolerance_admits(&t, 1, (double)NAN, 1, &bound));
    assert_false(tolerance_admits(&t, (double)NAN, 1, 1, &bound));
    assert_true(tolerance_admits(&t, 1, (double)NAN, REFERENCE_OPEN, &bound));
    assert_false(tolerance_admits(&t, 1, 3, REFERENCE_OPEN, &bound));
    assert_false(tolerance_admits(&t, 1, (double)NAN, (double)INFINITY, &bound)); // infinities that meet are a NaN
    assert_false(tolerance_admits(&t, (double)INFINITY, (double)-INFINITY, 1, &bound));
    assert_true(tolerance_admits(&t, (double)INFINITY, 65530, 65530, &bound));
    assert_false(tolerance_admits(&t, (double)INFINITY, 65000, 65000, &bound));
    assert_false(tolerance_admits(&t, (double)-INFINITY, 70000, 70000, &bound));
}

/* What is equal passes whatever the bound; nothing else does where the bound is no number from 0 to infinity. */
TEST(bounds_of_the_reference)
{
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
TEST(truncated)
{
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

TEST(host_memory)
{
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

TEST(cores)
{
    assert_in_range(cores_available(), 1, sysconf(_SC_NPROCESSORS_ONLN));
}

int main(void)
{
    magnitude_factor = 1;
    device_ops ops = virtual_ops;
    ops.name_memory = note_name;
    device.ops = &ops;
    return run_enlisted(NULL, NULL);
}
