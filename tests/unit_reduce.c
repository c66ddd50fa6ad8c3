/*
 * unit_reduce.c - folds of a user's own, the caller's workspace, runs on several streams at once, equal
 * bits in every run, and variances that simpler formulas get wrong.
 */
#include <math.h>

#include "unit.h"
#include "cutekernellib/operators/reduce.h"
#include "operators/operators.h"
#include "emulated_device.h"

enum { N_MAX = 20000 };

static float host[N_MAX], got[N_MAX];

/* Folds of a user's */

static ckl_val cube(ckl_val x, void *user)
{
    return ckl_val_mul(x, ckl_val_mul(x, x));
}

static ckl_val plus(ckl_val a, ckl_val b, void *user)
{
    return ckl_val_add(a, b);
}

static ckl_val scaled(ckl_val all, ckl_val n, void *user)
{
    return ckl_val_mul(all, ckl_val_f32(*(const float *)user));
}

static float half = 0.5f;
static const ckl_reduce_fold cubes = { .name = "cubes", .map = cube, .combine = plus, .finish = scaled, .user = &half };

/* The least x + 1, which shows an element that is not there, and the count. */
static ckl_val one_more(ckl_val x, void *user)
{
    return ckl_val_add(x, ckl_val_f32(1));
}

static ckl_val less(ckl_val a, ckl_val b, void *user)
{
    return ckl_val_min(a, b);
}

static ckl_val and_count(ckl_val all, ckl_val n, void *user)
{
    return ckl_val_fma(n, ckl_val_f32(16), all);
}

static const ckl_reduce_fold least = {
    .name = "least", .map = one_more, .combine = less, .finish = and_count, .identity = INFINITY
};

static void fill_host(int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        host[i] = (float)(i % 5 - 2);
}

static void *copied(const void *from, size_t bytes)
{
    void *memory = NULL;
    assert_ok(ckl_malloc(device, bytes, &memory));
    assert_ok(ckl_copy_in(device, memory, from, bytes, NULL));
    return memory;
}

static float cubes_of(const float *x, int64_t count, int64_t step)
{
    float all = 0;
    for (int64_t i = 0; i < count; i++)
        all += x[i * step] * x[i * step] * x[i * step];
    return all * half;
}

static float least_of(const float *x, int64_t count, int64_t step)
{
    float all = INFINITY;
    for (int64_t i = 0; i < count; i++)
        all = fminf(all, x[i * step] + 1);
    return all + 16 * (float)count;
}

/* Over rows or columns of a matrix, by one kernel. */
static void check_fold(const ckl_reduce_fold *fold, float (*expected)(const float *, int64_t, int64_t),
                       const char *force, int64_t rows, int64_t columns, int axis)
{
    ckl_reduce_desc desc = {
        .dtype = CKL_F32, .rank = 2, .shape = { rows, columns }, .axes = 1u << axis, .fold = fold->name
    };
    int64_t results = axis ? rows : columns, count = axis ? columns : rows;
    void *x = copied(host, (size_t)(rows * columns) * 4), *y = copied(host, (size_t)results * 4);
    ckl_plan *plan;
    assert_ok(plan_build(device, &reduce_operator, &desc, force, &plan));
    assert_ok(ckl_reduce_run(plan, &(ckl_reduce_args){ .x = x, .y = y }, NULL));
    assert_ok(ckl_copy_out(device, got, y, (size_t)results * 4, NULL));
    for (int64_t r = 0; r < results; r++) {
        float want = expected(host + (axis ? r * columns : r), count, axis ? 1 : columns);
        if (got[r] != want)
            fail_msg("%s by %s, %d: %g, not %g", fold->name, force, (int)r, (double)got[r], (double)want);
    }
    ckl_plan_free(plan);
    ckl_free(device, x);
    ckl_free(device, y);
}

/* Whole tiles and their ends, one CTA a row and several, every kernel. */
static void check_folds(const ckl_reduce_fold *fold, float (*expected)(const float *, int64_t, int64_t))
{
    const int64_t lengths[] = { 1, 31, 33, 1000, N_MAX };
    for (int i = 0; i < 5; i++)
        check_fold(fold, expected, "rows", 1, lengths[i], 1);
    check_fold(fold, expected, "rows", 3, 70, 1);
    check_fold(fold, expected, "rows split=3", 2, 9001, 1);
    check_fold(fold, expected, "columns", 40, 24, 0);
    check_fold(fold, expected, "columns split=2", 301, 59, 0);
    check_fold(fold, expected, "vectorized", 3, 1001, 1);
    check_fold(fold, expected, "shuffle", 3, 1001, 1);
    check_fold(fold, expected, "improved", 3, 1001, 1);
    check_fold(fold, expected, "naive", 5, 7, 1);
}

TEST(folds)
{
    assert_ok(ckl_reduce_fold_add(&cubes));
    assert_ok(ckl_reduce_fold_add(&least));
    fill_host(N_MAX);
    check_folds(&cubes, cubes_of);
    for (int i = 0; i < N_MAX; i++)
        host[i] += 5; // above 0, so that a 0 from nowhere is the least
    check_folds(&least, least_of);
}

static ckl_val mistaken(ckl_val a, ckl_val b, void *user)
{
    return ckl_val_add(a, ckl_val_to_i32(b));
}

/* What a fold wants, names that stand for one fold, and a mistake in a function, which is a sentence of the plan. */
TEST(refused_folds)
{
    ckl_reduce_fold fold = { .name = "wrong", .combine = mistaken };
    const ckl_reduce_desc desc = { .dtype = CKL_F32, .rank = 1, .shape = { 8 }, .fold = "wrong" };
    ckl_plan *plan = NULL;
    assert_ok(ckl_reduce_fold_add(&fold));
    assert_ok(ckl_reduce_fold_add(&fold));
    assert_fails(ckl_reduce_plan(device, &desc, &plan), CKL_INTERNAL, "f32");
    fold.combine = plus;
    assert_fails(ckl_reduce_fold_add(&fold), CKL_INVALID, "reduce_fold_add: there is another fold 'wrong'");
    fold.name = "rms";
    assert_fails(ckl_reduce_fold_add(&fold), CKL_INVALID, "reduce_fold_add: there is another fold 'rms'");
    fold.combine = NULL;
    assert_fails(ckl_reduce_fold_add(&fold), CKL_INVALID,
                 "reduce_fold_add: a fold wants a name and a function that combines");
}

/* Workspace */

static const ckl_reduce_desc whole = { .op = CKL_REDUCE_SUM, .dtype = CKL_F32, .rank = 1, .shape = { N_MAX } };

/* Two runs with the caller's memory: the first leaves it as the second wants it. */
TEST(workspace_of_the_caller)
{
    ckl_plan *plan;
    assert_ok(plan_build(device, &reduce_operator, &whole, "rows split=7", &plan));
    int64_t bytes = ckl_plan_workspace_bytes(plan);
    assert_true(bytes > 0);
    fill_host(N_MAX);
    void *zero = calloc(1, (size_t)bytes), *left = malloc((size_t)bytes), *workspace = copied(zero, (size_t)bytes);
    void *x = copied(host, sizeof host), *y = copied(host, 4);
    for (int i = 0; i < 2; i++) {
        ckl_reduce_args args = { .x = x, .y = y, .workspace = workspace };
        got[0] = -1;
        assert_ok(ckl_reduce_run(plan, &args, NULL));
        assert_ok(ckl_copy_out(device, got, y, 4, NULL));
        assert_true(got[0] == 0);
        assert_ok(ckl_copy_out(device, left, workspace, (size_t)bytes, NULL));
        assert_memory_equal(left, zero, (size_t)bytes);
    }
    ckl_reduce_args odd = { .x = x, .y = y, .workspace = (char *)workspace + 4 };
    assert_fails(ckl_reduce_run(plan, &odd, NULL), CKL_INVALID, "workspace");
    free(zero);
    free(left);
    ckl_free(device, workspace);
    ckl_free(device, x);
    ckl_free(device, y);
    ckl_plan_free(plan);
}

/* The one-call form on two streams: a cached plan for each, so that neither waits for the other's workspace. */
TEST(streams)
{
    ckl_stream streams[2];
    void *x = copied(host, sizeof host), *y[2];
    for (int s = 0; s < 2; s++) {
        assert_ok(ckl_stream_create(device, &streams[s]));
        y[s] = copied(host, 4);
    }
    for (int i = 0; i < 4; i++)
        assert_ok(ckl_reduce(device, &whole, &(ckl_reduce_args){ .x = x, .y = y[i % 2] }, streams[i % 2]));
    for (int s = 0; s < 2; s++) {
        assert_ok(ckl_copy_out(device, got, y[s], 4, streams[s]));
        assert_true(got[0] == 0);
        ckl_stream_destroy(device, streams[s]);
        ckl_free(device, y[s]);
    }
    ckl_free(device, x);
}

/* What is refused: descs and pointers that no problem line can give */

TEST(refused)
{
    ckl_plan *plan = NULL;
    ckl_reduce_desc desc = whole;
    desc.stride[0] = 1;
    desc.stride[1] = 4;
    assert_fails(ckl_reduce_plan(device, &desc, &plan), CKL_INVALID, "reduce: stride[1]=4 is beyond the rank");
    desc = whole;
    desc.shape[4] = 2;
    assert_fails(ckl_reduce_plan(device, &desc, &plan), CKL_INVALID, "reduce: shape[4]=2 is beyond the rank");
    desc = whole;
    desc.axes = 2;
    assert_fails(ckl_reduce_plan(device, &desc, &plan), CKL_INVALID, "reduce: axis 1 is out of range for rank 1");
    desc.rank = 0;
    assert_fails(ckl_reduce_plan(device, &desc, &plan), CKL_INVALID, "reduce: rank=0 is not in 1..5");
    desc.rank = CKL_REDUCE_RANK_MAX + 1;
    assert_fails(ckl_reduce_plan(device, &desc, &plan), CKL_INVALID, "reduce: rank=6 is not in 1..5");
    assert_ok(ckl_reduce_plan(device, &whole, &plan));
    char *x = copied(host, sizeof host), *y = copied(host, 4);
    assert_fails(ckl_reduce_run(plan, &(ckl_reduce_args){ .y = y }, NULL), CKL_INVALID, "reduce: x is NULL");
    assert_fails(ckl_reduce_run(plan, &(ckl_reduce_args){ .x = x }, NULL), CKL_INVALID, "reduce: y is NULL");
    assert_fails(ckl_reduce_run(plan, &(ckl_reduce_args){ .x = x + 2, .y = y }, NULL), CKL_INVALID,
                 "is not aligned to its 4-byte");
    assert_fails(ckl_reduce_run(plan, &(ckl_reduce_args){ .x = x, .y = x + 8 }, NULL), CKL_INVALID,
                 "reduce: y overlaps x");
    ckl_plan_free(plan);
    ckl_free(device, x);
    ckl_free(device, y);
}

/* Values that hide a wrong order, and bits that must not depend on it */

static float random_unit(uint32_t *seed)
{
    *seed = *seed * 1664525 + 1013904223;
    return (float)(*seed >> 8) * 0x1p-24f - 0.5f;
}

/* One reduction of `host` as a matrix; the results are left in `got`. */
static void reduce_host(ckl_device *on, ckl_reduce_op op, const char *force, int64_t rows, int64_t columns, int axis)
{
    ckl_reduce_desc desc = { .op = op, .dtype = CKL_F32, .rank = 2, .shape = { rows, columns }, .axes = 1u << axis };
    size_t bytes = (size_t)(rows * columns) * 4, results = (size_t)(axis ? rows : columns) * 4;
    ckl_plan *plan;
    void *x = NULL, *y = NULL;
    assert_ok(plan_build(on, &reduce_operator, &desc, force, &plan));
    assert_ok(ckl_malloc(on, bytes, &x));
    assert_ok(ckl_malloc(on, results, &y));
    assert_ok(ckl_copy_in(on, x, host, bytes, NULL));
    if (ckl_reduce_run(plan, &(ckl_reduce_args){ .x = x, .y = y }, NULL) != CKL_OK)
        fail_msg("%s: %s", force, ckl_error());
    assert_ok(ckl_copy_out(on, got, y, results, NULL));
    ckl_plan_free(plan);
    ckl_free(on, x);
    ckl_free(on, y);
}

/* Whichever CTA comes last, whichever warp goes first. */
TEST(bits_do_not_depend_on_the_schedule)
{
    static const struct {
        const char *force;
        int64_t rows, columns;
        int axis;
    } cases[] = { { "rows split=37 threads=128 row_threads=128 steps=1", 1, N_MAX, 1 },
                  { "rows split=300 threads=128 row_threads=128 steps=1", 1, N_MAX, 1 },
                  { "columns split=5", 2500, 8, 0 } };
    uint32_t seed = 1;
    for (int i = 0; i < N_MAX; i++)
        host[i] = random_unit(&seed);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        float first[8];
        for (int run = 0; run < 4; run++) {
            char settings[64];
            ckl_device *shuffled;
            snprintf(settings, sizeof settings, "seed=%d schedule=random threads=%d", run + 1, run % 2 + 1);
            setenv("CKL_EMULATOR", settings, 1);
            assert_ok(ckl_device_open("emulator:h200", &shuffled));
            unsetenv("CKL_EMULATOR");
            reduce_host(shuffled, CKL_REDUCE_SUM, cases[c].force, cases[c].rows, cases[c].columns, cases[c].axis);
            size_t bytes = cases[c].axis ? 4 : 32;
            if (run == 0)
                memcpy(first, got, bytes);
            assert_memory_equal(first, got, bytes);
            ckl_device_close(shuffled);
        }
    }
}

/* Elements that are not finite: one or two among powers of two */

static float result_of(ckl_reduce_op op, int64_t n)
{
    reduce_host(device, op, NULL, 1, n, 1);
    return got[0];
}

TEST(not_finite)
{
    const int64_t lengths[] = { 1, 31, 33, 1000 };
    for (int l = 0; l < 4; l++)
        for (int place = 0; place < 3; place++) {
            int64_t n = lengths[l], at = place * (n - 1) / 2;
            float others = n > 1 ? 1 : INFINITY;
            for (int64_t i = 0; i < n; i++)
                host[i] = 1;
            host[at] = INFINITY;
            assert_true(result_of(CKL_REDUCE_MAX, n) == INFINITY);
            assert_true(result_of(CKL_REDUCE_MIN, n) == others);
            assert_true(result_of(CKL_REDUCE_SUM, n) == INFINITY);
            assert_true(result_of(CKL_REDUCE_MEAN, n) == INFINITY);
            assert_true(result_of(CKL_REDUCE_PROD, n) == INFINITY);
            assert_true(isnan(result_of(CKL_REDUCE_VAR, n)));
            host[at] = -INFINITY;
            assert_true(result_of(CKL_REDUCE_MAX, n) == (n > 1 ? 1 : -INFINITY));
            assert_true(result_of(CKL_REDUCE_MIN, n) == -INFINITY);
            assert_true(result_of(CKL_REDUCE_SUM, n) == -INFINITY);
            if (n > 1) {
                host[(at + 1) % n] = INFINITY;
                assert_true(isnan(result_of(CKL_REDUCE_SUM, n)));
            }
            host[at] = NAN;
            for (int op = CKL_REDUCE_SUM; op <= CKL_REDUCE_VAR; op++)
                assert_true(isnan(result_of((ckl_reduce_op)op, n)));
        }
}

typedef float element(int64_t i, uint32_t *seed);

static float far_from_zero(int64_t i, uint32_t *seed)
{
    return 10000 + random_unit(seed);
}

static float outlier_first(int64_t i, uint32_t *seed)
{
    return i == 0 ? 1e6f : random_unit(seed);
}

static float outlier_late(int64_t i, uint32_t *seed)
{
    return i == 7777 ? -1e6f : random_unit(seed);
}

static float two_levels(int64_t i, uint32_t *seed)
{
    return (i < N_MAX / 2 ? -1000.0f : 3000.0f) + random_unit(seed);
}

static float ramp(int64_t i, uint32_t *seed)
{
    return (float)i;
}

/* Of every step-th element from the first on. */
static double variance_of_host(int first, int step)
{
    double mean = 0, total = 0, count = (double)N_MAX / step;
    for (int i = first; i < N_MAX; i += step)
        mean += (double)host[i] / count;
    for (int i = first; i < N_MAX; i += step)
        total += ((double)host[i] - mean) * ((double)host[i] - mean);
    return total / count;
}

static void check_variance(const char *fill, const char *force, double result, double expected)
{
    if (!(fabs(result - expected) <= 4e-6 * expected))
        fail_msg("%s by %s: %.9g instead of %.9g", fill, force, result, expected);
}

/* Mean of squares minus square of the mean is off by more than everything in most of these. */
TEST(variance)
{
    static const struct {
        const char *name;
        element *element;
    } fills[] = { { "far from zero", far_from_zero },
                  { "outlier first", outlier_first },
                  { "outlier late", outlier_late },
                  { "two levels", two_levels },
                  { "ramp", ramp } };
    static const char *const rows[] = { "rows split=1", "rows split=7", "rows row_threads=4 threads=128 split=1" };
    static const char *const columns[] = { "columns split=1", "columns split=3 steps=8" };
    for (size_t f = 0; f < sizeof fills / sizeof fills[0]; f++) {
        uint32_t seed = 3;
        for (int i = 0; i < N_MAX; i++)
            host[i] = fills[f].element(i, &seed);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            reduce_host(device, CKL_REDUCE_VAR, rows[i], 1, N_MAX, 1);
            check_variance(fills[f].name, rows[i], got[0], variance_of_host(0, 1));
        }
        for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
            reduce_host(device, CKL_REDUCE_VAR, columns[i], N_MAX / 8, 8, 0);
            for (int c = 0; c < 8; c++)
                check_variance(fills[f].name, columns[i], got[c], variance_of_host(c, 8));
        }
    }
}

RUN_TESTS(open_device, close_device)
