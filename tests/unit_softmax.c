/*
 * unit_softmax.c - softmax along rows, columns and batches of columns, forward and backward, against double precision:
 * values, sums of rows, invariance under a shift, sums of gradients, rows of nothing but -inf; and between two products
 * it is attention.
 */
#include <float.h>

#include "accuracy.h"
#include "cutekernellib/operators/attention.h"
#include "cutekernellib/operators/gemm.h"
#include "cutekernellib/operators/softmax.h"
#include "operators/operators.h"
#include "skeletons/one_pass.h"

/* Rows x columns; the axis is the columns (ROWS), the rows (COLUMNS), or the rows of each of two matrices (BATCHED). */
typedef enum form { ROWS, COLUMNS, BATCHED, FORM_COUNT } form;
static const int64_t shapes[][2] = { { 4, 8 },   { 2, 128 },    { 16, 128 },   { 32, 256 },
                                     { 15, 37 }, { 256, 2048 }, { 4096, 768 }, { 64, 131072 } };

enum { LARGE = 1 << 18 }; // elements; above them only rows of f32 and bf16 in a full run, and the bits of one run

static ckl_softmax_desc desc_of(int shape, form f, ckl_dtype dtype, bool log)
{
    int64_t m = shapes[shape][0], n = shapes[shape][1];
    ckl_softmax_desc d = { .dtype = dtype, .outer = m, .n = n, .inner = 1, .log = log };
    if (f != ROWS) {
        d.outer = f == BATCHED ? 2 : 1;
        d.n = m;
        d.inner = n;
    }
    return d;
}

static int64_t count_of(const ckl_softmax_desc *d)
{
    return d->outer * d->n * d->inner;
}

static double tolerance_of(const ckl_softmax_desc *d)
{
    if (d->dtype == CKL_F32)
        return 1e-4;
    return d->direction == CKL_DIRECTION_FORWARD ? 1e-3 : 1e-2;
}

/* The elements of a row are `inner` apart. */
static int64_t row_start(const ckl_softmax_desc *d, int64_t row)
{
    return row / d->inner * d->n * d->inner + row % d->inner;
}

static tensor_of_test forward(ckl_softmax_desc d, const tensor_of_test *x)
{
    tensor_of_test y = make_tensor(d.dtype, x->count);
    d.direction = CKL_DIRECTION_FORWARD;
    assert_ok(ckl_softmax(device, &d, &(ckl_softmax_args){ .x = x->memory, .y = y.memory }, stream));
    read_tensor(&y);
    return y;
}

static tensor_of_test backward(ckl_softmax_desc d, const tensor_of_test *y, const tensor_of_test *dy)
{
    tensor_of_test dx = make_tensor(d.dtype, y->count);
    d.direction = CKL_DIRECTION_BACKWARD;
    ckl_softmax_args args = { .y = y->memory, .dy = dy->memory, .dx = dx.memory };
    assert_ok(ckl_softmax(device, &d, &args, stream));
    read_tensor(&dx);
    return dx;
}

/* A second run, if there was one, gives the same bits. */
static void assert_same(const tensor_of_test *again, const tensor_of_test *first)
{
    assert_memory_equal(again->value, first->value, (size_t)again->count * sizeof *first->value);
}

/* Forward */

/* The results of 16-bit types are rounded, each by half a unit of its own: so much more may their sum be off. */
static void check_row(const ckl_softmax_desc *d, const double *x, const double *y)
{
    double highest = -INFINITY, sum = 0, total = 0, roundings = 0;
    for (int64_t i = 0; i < d->n; i++)
        highest = fmax(highest, x[i * d->inner]);
    for (int64_t i = 0; i < d->n; i++)
        sum += exp(x[i * d->inner] - highest);
    for (int64_t i = 0; i < d->n; i++) {
        double t = x[i * d->inner] - highest, got = y[i * d->inner];
        assert_near("y", d->dtype, got, d->log ? t - log(sum) : exp(t) / sum, tolerance_of(d));
        double probability = d->log ? exp(got) : got;
        total += probability;
        roundings += dtype_epsilon(d->dtype) / 2 * probability * (d->log && probability > 0 ? fabs(got) : 1);
    }
    assert_true(fabs(total - 1) <= 1e-3 + roundings);
}

static void check_forward(ckl_softmax_desc d, uint64_t seed)
{
    tensor_of_test x = make_random(d.dtype, count_of(&d), seed, 0, 2), y = forward(d, &x), again = { 0 };
    if (x.count <= LARGE)
        again = forward(d, &x);
    assert_same(&again, &y);
    for (int64_t row = 0; row < d.outer * d.inner; row++)
        check_row(&d, x.value + row_start(&d, row), y.value + row_start(&d, row));
    free_tensors();
}

/* softmax(x + 100) is softmax(x) */
static void check_shift(ckl_softmax_desc d, uint64_t seed)
{
    tensor_of_test x = make_random(d.dtype, count_of(&d), seed, 0, 2), y = forward(d, &x);
    for (int64_t i = 0; i < x.count; i++)
        x.value[i] += 100;
    write_tensor(&x);
    tensor_of_test shifted = forward(d, &x);
    for (int64_t i = 0; i < x.count; i++)
        assert_true(fabs(shifted.value[i] - y.value[i]) <= 1e-5 * fmax(1, fabs(y.value[i])));
    free_tensors();
}

/* Backward */

/* dx of a row adds up to zero; in 16-bit types y itself does not add up to one. */
static void check_gradient_row(const ckl_softmax_desc *d, const double *y, const double *dy, const double *dx)
{
    double dot = 0, sum = 0, total = 0;
    for (int64_t i = 0; i < d->n * d->inner; i += d->inner) {
        dot += y[i] * dy[i];
        sum += dy[i];
    }
    for (int64_t i = 0; i < d->n * d->inner; i += d->inner) {
        assert_near("dx", d->dtype, dx[i], d->log ? dy[i] - exp(y[i]) * sum : y[i] * (dy[i] - dot), tolerance_of(d));
        total += dx[i];
    }
    if (d->dtype == CKL_F32 && !d->log)
        assert_true(fabs(total) <= 1e-6);
}

static void check_backward(ckl_softmax_desc d, uint64_t seed)
{
    d.direction = CKL_DIRECTION_BACKWARD;
    tensor_of_test x = make_random(d.dtype, count_of(&d), seed, 0, 2), y = forward(d, &x);
    tensor_of_test dy = make_random(d.dtype, x.count, ~seed, 0, 1);
    tensor_of_test dx = backward(d, &y, &dy), again = { 0 };
    if (x.count <= LARGE)
        again = backward(d, &y, &dy);
    assert_same(&again, &dx);
    for (int64_t row = 0; row < d.outer * d.inner; row++) {
        int64_t start = row_start(&d, row);
        check_gradient_row(&d, y.value + start, dy.value + start, dx.value + start);
    }
    free_tensors();
}

/* Every shape, form and type */

static void for_all(void (*check)(ckl_softmax_desc d, uint64_t seed), bool log)
{
    for (int s = 0; s < COUNT_OF(shapes); s++)
        for (int f = 0; f < FORM_COUNT; f++)
            for (int t = 0; t < COUNT_OF(float_types); t++) {
                ckl_softmax_desc d = desc_of(s, (form)f, float_types[t], log);
                bool large = shapes[s][0] * shapes[s][1] > LARGE;
                if (large && (log || f != ROWS || float_types[t] == CKL_F16))
                    continue;
                if (large && only_in_full(1))
                    continue;
                for (int seed = 1; seed <= seeds_for(count_of(&d)); seed++)
                    check(d, (uint64_t)seed);
            }
}

TEST(forward)
{
    for_all(check_forward, false);
    for_all(check_forward, true);
}

TEST(backward)
{
    for_all(check_backward, false);
    for_all(check_backward, true);
}

TEST(shift)
{
    for (int s = 0; s < COUNT_OF(shapes); s++)
        for (int f = 0; f < FORM_COUNT; f++)
            if (shapes[s][0] * shapes[s][1] <= LARGE || (f == ROWS && !only_in_full(1)))
                check_shift(desc_of(s, (form)f, CKL_F32, false), 7);
}

/* Rows of nothing but -inf are zeros, of log-softmax -inf; -inf beside numbers weighs 0; NaN spoils its row. */
static void check_infinite(ckl_softmax_desc d)
{
    tensor_of_test x = make_random(d.dtype, count_of(&d), 11, 0, 2);
    for (int64_t row = 0; row < d.outer * d.inner; row++)
        for (int64_t i = 0; i < d.n; i++)
            if (row % 4 == 1 || (row % 4 == 2 && i % 2) || (row % 4 == 3 && i == d.n / 2))
                x.value[row_start(&d, row) + i * d.inner] = row % 4 == 3 ? NAN : -INFINITY;
    write_tensor(&x);
    tensor_of_test y = forward(d, &x);
    for (int64_t row = 0; row < d.outer * d.inner; row++) {
        const double *of_x = x.value + row_start(&d, row), *of_y = y.value + row_start(&d, row);
        if (row % 4 == 0 || row % 4 == 2)
            check_row(&d, of_x, of_y);
        for (int64_t i = 0; i < d.n && row % 4 == 1; i++)
            assert_true(of_y[i * d.inner] == (d.log ? -INFINITY : 0));
        for (int64_t i = 0; i < d.n && row % 4 == 3; i++)
            assert_true(isnan(of_y[i * d.inner]));
    }
    free_tensors();
}

TEST(infinite)
{
    for (int s = 0; s < COUNT_OF(shapes); s++)
        for (int f = 0; f < FORM_COUNT; f++)
            for (int t = 0; t < COUNT_OF(float_types); t++)
                for (int log = 0; log < 2 && shapes[s][0] * shapes[s][1] <= LARGE; log++)
                    check_infinite(desc_of(s, (form)f, float_types[t], log));
}

/* Finite scores of any size, by rows: low ones among others, one other among low ones, one high one. */
static void check_huge(ckl_softmax_desc d)
{
    tensor_of_test x = make_random(d.dtype, count_of(&d), 13, 0, 2);
    for (int64_t row = 0; row < d.outer; row++)
        for (int64_t i = 0; i < d.n; i++)
            if (row % 3 == 1 ? i != d.n / 2 : row % 3 == 0 ? i % 2 : i == d.n / 2)
                x.value[row * d.n + i] = row % 3 == 2 ? 3e38 : -3e38;
    write_tensor(&x);
    tensor_of_test y = forward(d, &x);
    for (int64_t row = 0; row < d.outer; row++)
        check_row(&d, x.value + row * d.n, y.value + row * d.n);
    free_tensors();
}

TEST(huge)
{
    static const int64_t lengths[] = { 8, 100, 4096, 20000 }; // lanes, warps, a CTA, a row pipeline
    for (int t = 0; t < COUNT_OF(float_types); t++)
        for (int i = 0; i < COUNT_OF(lengths) && float_types[t] != CKL_F16; i++)
            check_huge((ckl_softmax_desc){ .dtype = float_types[t], .outer = 6, .n = lengths[i], .inner = 1 });
}

/* The lowest number is a score like others: alone, beside -inf, in every element; sums begin with no term. */
static void check_lowest(ckl_softmax_desc d)
{
    tensor_of_test x = make_tensor(d.dtype, count_of(&d));
    for (int64_t row = 0; row < d.outer * d.inner; row++)
        for (int64_t i = 0; i < d.n; i++)
            x.value[row_start(&d, row) + i * d.inner] =
                row % 3 == 0 || i == (row % 3 == 1 ? d.n / 2 : d.n - 1) ? -FLT_MAX : -INFINITY;
    write_tensor(&x);
    tensor_of_test y = forward(d, &x);
    for (int64_t row = 0; row < d.outer * d.inner; row++)
        check_row(&d, x.value + row_start(&d, row), y.value + row_start(&d, row));
    free_tensors();
}

TEST(lowest)
{
    for (int s = 0; s < COUNT_OF(shapes); s++)
        for (int f = 0; f < FORM_COUNT; f++)
            for (int log = 0; log < 2 && shapes[s][0] * shapes[s][1] <= SMALL; log++)
                check_lowest(desc_of(s, (form)f, CKL_F32, log));
    check_lowest((ckl_softmax_desc){ .dtype = CKL_F32, .outer = 3, .n = 20000, .inner = 1 });
}

/* The row pipeline's dynamic scheduler counts in the workspace, here the caller's. Each run leaves it ready. */
TEST(workspace_of_the_caller)
{
    const ckl_softmax_desc d = { .dtype = CKL_F32, .outer = 40, .n = 40000, .inner = 1 };
    uint32_t counter = 0;
    ckl_plan *plan;
    void *workspace;
    assert_ok(ckl_softmax_plan(device, &d, &plan));
    assert_int_equal(ckl_plan_workspace_bytes(plan), sizeof counter);
    assert_ok(ckl_malloc(device, sizeof counter, &workspace));
    assert_ok(ckl_copy_in(device, workspace, &counter, sizeof counter, stream));
    tensor_of_test x = make_random(d.dtype, count_of(&d), 17, 0, 2), wanted = forward(d, &x);
    for (int run = 0; run < 3; run++) {
        tensor_of_test y = make_tensor(d.dtype, x.count);
        const ckl_softmax_args args = { .x = x.memory, .y = y.memory, .workspace = workspace };
        assert_ok(ckl_softmax_run(plan, &args, stream));
        read_tensor(&y);
        assert_same(&y, &wanted);
        assert_ok(ckl_copy_out(device, &counter, workspace, sizeof counter, stream));
        assert_ok(ckl_stream_synchronize(device, stream));
        assert_int_equal(counter, 0);
    }
    const ckl_softmax_args odd = { .x = x.memory, .y = wanted.memory, .workspace = (char *)workspace + 4 };
    assert_fails(ckl_softmax_run(plan, &odd, stream), CKL_INVALID, "workspace");
    free_tensors();
    ckl_free(device, workspace);
    ckl_plan_free(plan);
}

static void check_words(const char *setting)
{
    enum { STRIPS = 4, CHUNKS = 13, WORDS = STRIPS * (1 + CHUNKS) + 1 };
    const ckl_softmax_desc d = { .dtype = CKL_F32, .outer = 2, .n = 100, .inner = 40 };
    uint32_t words[WORDS];
    void *workspace;
    ckl_plan *plan;
    assert_ok(plan_build(device, &softmax_operator, &d, "column_held threads=64 lanes=8 vec=4 loading=2", &plan));
    const size_t bytes = (size_t)ckl_plan_workspace_bytes(plan);
    void *zeros = calloc(1, bytes);
    assert_int_equal(one_pass_counter_bytes(STRIPS, CHUNKS), sizeof words);
    assert_ok(ckl_malloc(device, bytes, &workspace));
    assert_ok(ckl_copy_in(device, workspace, zeros, bytes, stream));
    tensor_of_test x = make_random(d.dtype, count_of(&d), 17, 0, 2), wanted = forward(d, &x);
    for (int run = 0; run < 3; run++) {
        tensor_of_test y = make_tensor(d.dtype, x.count);
        const ckl_softmax_args args = { .x = x.memory, .y = y.memory, .workspace = workspace };
        assert_ok(ckl_softmax_run(plan, &args, stream));
        read_tensor(&y);
        for (int64_t i = 0; i < y.count; i++)
            assert_true(fabs(y.value[i] - wanted.value[i]) <= tolerance_of(&d));
        assert_ok(ckl_copy_out(device, words, workspace, sizeof words, stream));
        assert_ok(ckl_stream_synchronize(device, stream));
        for (int i = 0; i < WORDS; i++)
            if (words[i])
                fail_msg("[%s] run %d leaves %u in word %d", setting, run, words[i], i);
    }
    free_tensors();
    free(zeros);
    ckl_free(device, workspace);
    ckl_plan_free(plan);
}

/* The words by which CTAs meet are 0 after each run: where all run at once, and where most give up. */
TEST(words_of_held_chunks)
{
    static const char *const settings[] = { "resident=0", "resident=1", "resident=2", "resident=5 schedule=random" };
    for (int i = 0; i <= COUNT_OF(settings); i++) {
        close_device(state);
        assert_int_equal(i < COUNT_OF(settings) ? setenv("CKL_EMULATOR", settings[i], 1) : unsetenv("CKL_EMULATOR"), 0);
        assert_int_equal(open_device(state), 0);
        if (i < COUNT_OF(settings))
            check_words(settings[i]);
    }
}

/* A softmax between two products, each rounded to f16: what attention is made of. */
TEST(attention_is_products)
{
    enum { Q = 70, KEYS = 136, D = 64 };
    tensor_of_test q = make_random(CKL_F16, Q * D, 1, 0, 1), k = make_random(CKL_F16, KEYS * D, 2, 0, 1),
                   v = make_random(CKL_F16, KEYS * D, 3, 0, 1), s = make_tensor(CKL_F16, Q * KEYS),
                   o = make_tensor(CKL_F16, Q * D), wanted = make_tensor(CKL_F16, Q * D);
    const ckl_gemm_desc scores = { .m = Q, .n = KEYS, .k = D, .a = CKL_F16 };
    const ckl_gemm_desc sums = { .m = Q, .n = D, .k = KEYS, .a = CKL_F16, .layout = CKL_GEMM_NN };
    const ckl_softmax_desc weights = { .dtype = CKL_F16, .outer = Q, .n = KEYS, .scale = 0.125f };
    const ckl_attention_desc desc = {
        .dtype = CKL_F16, .batch = 1, .heads = 1, .kv_heads = 1, .q = Q, .kv = KEYS, .d = D
    };
    const ckl_gemm_args first = { .a = q.memory, .b = k.memory, .d = s.memory };
    const ckl_gemm_args second = { .a = s.memory, .b = v.memory, .d = wanted.memory };
    const ckl_softmax_args between = { .x = s.memory, .y = s.memory };
    const ckl_attention_args args = { .q = q.memory, .k = k.memory, .v = v.memory, .o = o.memory };
    assert_ok(ckl_gemm(device, &scores, &first, stream));
    assert_ok(ckl_softmax(device, &weights, &between, stream));
    assert_ok(ckl_gemm(device, &sums, &second, stream));
    assert_ok(ckl_attention(device, &desc, &args, stream));
    read_tensor(&o);
    read_tensor(&wanted);
    for (int i = 0; i < Q * D; i++)
        assert_near("o", CKL_F16, o.value[i], wanted.value[i], 2e-3);
    free_tensors();
}

RUN_TESTS(open_device, close_device)
