/* unit_map.c - element-wise kernels as their authors write them: shapes made simpler, a function of one's own. */
#include "unit_emulator.h"

#include "skeletons/map_launch.h"

enum { ROWS = 37, COLUMNS = 60, PITCH = 64 };

static const map_shape padded_and_broadcast = { .rank = 3,
                                                .operands = 3,
                                                .size = { ROWS, 1, COLUMNS },
                                                .stride = { { PITCH, 7, 1 }, { 0, 0, 1 }, { COLUMNS, 60, 1 } } };

TEST(simplify)
{
    map_shape s = {
        .rank = 4, .operands = 2, .size = { 3, 4, 1, 5 }, .stride = { { 1, 3, 0, 12 }, { 1, 3, 9, 12 } }
    }; // dense, first dimension fastest
    map_simplify(&s);
    assert_int_equal(s.rank, 1);
    assert_int_equal(s.size[0], 60);
    assert_int_equal(s.stride[0][0], 1);

    s = padded_and_broadcast;
    map_simplify(&s);
    assert_int_equal(s.rank, 2);
    assert_int_equal(s.size[0], ROWS);
    assert_int_equal(s.stride[0][0], PITCH);
    assert_int_equal(s.stride[1][0], 0);
    assert_int_equal(s.count, ROWS * COLUMNS);
}

/* Of multiples up to 2^31, and of the numbers before and behind them, in 32 bits as in a kernel. */
TEST(divisor)
{
    static const int64_t sizes[] = { 1, 2, 3, 5, 7, 12, 641, 65535, 65536, 6700417, INT32_MAX - 1, INT32_MAX };
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        const int64_t size = sizes[i], last = INT32_MAX / size, step = 1 + last / 4099;
        const divisor by = divisor_of(size);
        for (int64_t times = last; times >= 0; times -= step)
            for (int64_t n = max_i64(times * size - 1, 0); n <= min_i64(times * size + 1, INT32_MAX); n++) {
                const uint32_t sum = (uint32_t)((uint64_t)n * by.factor >> 32) + (uint32_t)n;
                assert_int_equal(sum >> by.shift, n / size);
            }
    }
}

static const map_kernel *kernel; // what describe() describes

/* x where it is at least *limit, else y: an author's function with something of his own. */
static val bounded(const val *inputs, void *user)
{
    const float *limit = user;
    return ir_select(ir_compare(IR_GE, inputs[0], ir_float(CKL_F32, *limit)), inputs[0], inputs[1]);
}

static void describe(void)
{
    static float limit = 100;
    map_describe(*kernel, 0, bounded, &limit);
}

TEST(callback)
{
    static float x[ROWS * PITCH], y[COLUMNS], z[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * PITCH; i++)
        x[i] = (float)(i % 211);
    for (int i = 0; i < COLUMNS; i++)
        y[i] = (float)-i;
    ckl_device *gpu = test_open("");
    map_shape s = padded_and_broadcast;
    map_simplify(&s);
    const map_problem p = {
        "test", s, { .inputs = 2, .dtype = { CKL_F32, CKL_F32, CKL_F32 }, .compute = CKL_F32, .config.expr = "" }
    };
    map_config config = { .threads = 256, .vec = 4, .steps = 4 };
    assert_ok(map_choose_config(&p, &gpu->info, &config));
    assert_ok(map_admit_config(&p, &gpu->info, &config));
    const map_kernel k = map_kernel_by(&p, &config);
    assert_int_equal(k.config.vec, 4);

    const void *pointers[] = { test_upload(gpu, x, sizeof x), test_upload(gpu, y, sizeof y),
                               test_upload(gpu, NULL, sizeof z) };
    void *params[IR_PARAMS_MAX];
    assert_true(map_aligned(&k, pointers));
    const map_params given = map_params_of(&k, &s, pointers);
    test_params(&map_param_list, &given, params);
    kernel = &k;
    test_kernel launch = { describe, IR_SM80, .threads = k.config.threads, .grid = ceil_div(s.count, map_tile(&k)) };
    assert_ok(test_run(gpu, launch, params));
    assert_ok(gpu->ops->copy_out(gpu, z, pointers[2], sizeof z, NULL));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float at = x[i / COLUMNS * PITCH + i % COLUMNS];
        assert_true(z[i] == (at >= 100 ? at : y[i % COLUMNS]));
    }
    gpu->ops->close(gpu);
}

static bool are_aligned(const map_kernel *k, uintptr_t x, uintptr_t y, uintptr_t z)
{
    return map_aligned(k, (const void *[]){ (const void *)x, (const void *)y, (const void *)z });
}

/* Vectors want whole vectors' addresses, pairs of a crossed input pairs', its elements none. */
TEST(aligned)
{
    map_kernel k = { .inputs = 2, .dtype = { CKL_BF16, CKL_BF16, CKL_BF16 }, .compute = CKL_F32 };
    k.config = (map_config){ .threads = 128, .vec = 8, .steps = 1, .crossed = 1, .pairs = true };
    assert_true(are_aligned(&k, 4100, 4112, 4128));
    assert_false(are_aligned(&k, 4098, 4112, 4128));
    assert_false(are_aligned(&k, 4100, 4104, 4128));
    assert_false(are_aligned(&k, 4100, 4112, 4104));
    k.config.pairs = false;
    assert_true(are_aligned(&k, 4098, 4112, 4128));
    assert_false(are_aligned(&k, 4098, 4104, 4128));
}

/* Rows of ragged vectors: every input lies as the output does, or its mask says that it does not. */
TEST(in_phase)
{
    map_kernel k = { .inputs = 2, .dtype = { CKL_BF16, CKL_BF16, CKL_BF16 }, .compute = CKL_F32 };
    k.config = (map_config){ .threads = 128, .vec = 8, .steps = 1, .row_threads = 32 };
    assert_true(are_aligned(&k, 4098, 8194, 12290));
    assert_false(are_aligned(&k, 4100, 8194, 12290));
    assert_false(are_aligned(&k, 4098, 8196, 12290));
    k.config.cut = 1;
    assert_true(are_aligned(&k, 4100, 8194, 12290));
    assert_false(are_aligned(&k, 4098, 8196, 12290));
    k.config.cut = 2;
    assert_true(are_aligned(&k, 4098, 8196, 12290));
}

RUN_TESTS(NULL, NULL)
