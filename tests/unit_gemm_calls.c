/*
 * unit_gemm_calls.c - calls of gemm: what is missing or wrong is a sentence and launches nothing; D by columns; offsets
 * of the host and the gradient of a bias beside workspaces of the caller's.
 */
#include <math.h>

#include "unit.h"
#include "base/math.h"
#include "cutekernellib/operators/gemm.h"
#include "emulated_device.h"

enum { M = 400, N = 33, K = 41, GROUPS = 3, ELEMENTS = 20000, UNTOUCHED = -77 };

/* Matrices of f32, of small integers by a seed, or all of one value. */
static float *filled(int64_t seed, float value)
{
    static float host[ELEMENTS];
    void *memory;
    for (int i = 0; i < ELEMENTS; i++)
        host[i] = seed ? (float)((i * seed * 7 + i / 5 * 3) % 7 - 3) : value;
    assert_ok(ckl_malloc(device, sizeof host, &memory));
    assert_ok(ckl_copy_in(device, memory, host, sizeof host, NULL));
    return memory;
}

static const float *read_back(const void *memory)
{
    static float host[ELEMENTS];
    assert_ok(ckl_copy_out(device, host, memory, sizeof host, NULL));
    assert_ok(ckl_stream_synchronize(device, NULL));
    return host;
}

/* A[i,l] and B[j,l] of the fills 1 and 2. */
static double product(int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t l = 0; l < K; l++) {
        const int64_t a = i * K + l, b = j * K + l;
        sum += (double)((a * 7 + a / 5 * 3) % 7 - 3) * (double)((b * 14 + b / 5 * 3) % 7 - 3);
    }
    return sum;
}

static ckl_gemm_args new_args(void)
{
    return (ckl_gemm_args){ .a = filled(1, 0), .b = filled(2, 0), .d = filled(0, UNTOUCHED) };
}

static void free_args(ckl_gemm_args *x)
{
    const void *all[] = { x->a, x->b, x->d, x->scale_a, x->scale_b, x->bias_gradient };
    for (int i = 0; i < COUNT_OF(all); i++)
        ckl_free(device, (void *)(uintptr_t)all[i]);
}

/* The call is refused with that sentence, and D stays as it is. */
static void refuse(const ckl_gemm_desc *desc, const ckl_gemm_args *args, const void *d, const char *sentence)
{
    assert_fails(ckl_gemm(device, desc, args, NULL), CKL_INVALID, sentence);
    assert_true(read_back(d)[0] == UNTOUCHED);
}

TEST(missing)
{
    ckl_gemm_args good = new_args(), x = good;
    ckl_gemm_desc d = { .m = M, .n = N, .k = K, .a = CKL_F32 };
    x.a = NULL;
    refuse(&d, &x, good.d, "gemm: a is NULL");
    x = good;
    x.b = NULL;
    refuse(&d, &x, good.d, "gemm: b is NULL");
    x = good;
    x.d = NULL;
    refuse(&d, &x, good.d, "gemm: d is NULL");
    d.bias_gradient = CKL_GEMM_SUMS_OF_COLUMNS;
    refuse(&d, &good, good.d, "gemm: bias_gradient is NULL");
    d.bias_gradient = CKL_GEMM_SUMS_NONE;
    d.device_scalars = true;
    refuse(&d, &good, good.d, "gemm: device_alpha is NULL");
    d.device_scalars = false;
    d.groups = GROUPS;
    refuse(&d, &good, good.d, "gemm: offsets is NULL");
    d = (ckl_gemm_desc){ .m = M,
                         .n = N,
                         .k = K,
                         .a = CKL_E4M3,
                         .d = CKL_F32,
                         .scale_a = CKL_GEMM_SCALE_TENSOR,
                         .scale_b = CKL_GEMM_SCALE_TENSOR };
    refuse(&d, &good, good.d, "gemm: scale_a is NULL");
    free_args(&good);
}

/* D by columns is D^T by rows: A and B change places, and so do M and N. */
TEST(by_columns)
{
    ckl_gemm_args x = new_args();
    const void *a = x.a;
    x.a = x.b;
    x.b = a;
    const ckl_gemm_desc d = { .m = N, .n = M, .k = K, .a = CKL_F32, .ldd = M + 3 };
    assert_ok(ckl_gemm(device, &d, &x, NULL));
    const float *host = read_back(x.d);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++)
            assert_true((double)host[j * (M + 3) + i] == product(i, j));
    free_args(&x);
}

/* All groups have the same B. */
static void check_groups(const float *host)
{
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++)
            assert_true((double)host[i * N + j] == product(i, j));
}

static const ckl_gemm_desc grouped = { .m = M, .n = N, .k = K, .a = CKL_F32, .groups = GROUPS, .host_offsets = true };

TEST(offsets_of_the_host)
{
    static const struct {
        int32_t offsets[GROUPS + 1];
        const char *sentence;
    } wrong[] = {
        { { 0, 20, 20, M - 1 }, "gemm: offsets from 0 to 399 do not deal out m=400" },
        { { 1, 20, 20, M }, "gemm: offsets from 1 to 400 do not deal out m=400" },
        { { 0, 20, 19, M }, "gemm: offsets[1]=20 is more than offsets[2]=19" },
    };
    ckl_gemm_args x = new_args();
    for (int i = 0; i < COUNT_OF(wrong); i++) {
        x.offsets = wrong[i].offsets;
        refuse(&grouped, &x, x.d, wrong[i].sentence);
    }
    free_args(&x);
}

/* A copy of B for each group. */
static float *repeated_B(void)
{
    static float host[ELEMENTS];
    float *b = filled(2, 0);
    const float *one = read_back(b);
    for (int g = 0; g < GROUPS; g++)
        memcpy(host + g * N * K, one, N * K * sizeof *host);
    assert_ok(ckl_copy_in(device, b, host, sizeof host, NULL));
    return b;
}

/*
 * Of a plan whose kernels have workspace, and steps before and behind them: copies, offsets and sums lie apart, in the
 * plan's own and in the caller's, twice in each.
 */
TEST(workspace)
{
    int32_t offsets[] = { 0, 20, 20, M };
    ckl_gemm_desc d = grouped;
    ckl_gemm_args x = new_args();
    ckl_plan *plan;
    void *workspace;
    ckl_free(device, (void *)(uintptr_t)x.b);
    x.b = repeated_B();
    x.bias_gradient = filled(0, UNTOUCHED);
    x.offsets = offsets;
    d.bias_gradient = CKL_GEMM_SUMS_OF_COLUMNS;
    d.math = CKL_GEMM_TF32;
    d.batch_invariant = true; // so that even these few odd rows are copied
    assert_ok(ckl_gemm_plan(device, &d, &plan));
    const size_t bytes = (size_t)ckl_plan_workspace_bytes(plan);
    assert_ok(ckl_malloc(device, bytes, &workspace));
    void *zeros = calloc(1, bytes);
    assert_ok(ckl_copy_in(device, workspace, zeros, bytes, NULL));
    for (int run = 0; run < 4; run++) {
        x.workspace = run % 2 ? workspace : NULL;
        assert_ok(ckl_gemm_run(plan, &x, NULL));
        check_groups(read_back(x.d));
        const float *sums = read_back(x.bias_gradient);
        for (int64_t g = 0; g < GROUPS; g++)
            for (int64_t j = 0; j < N; j++) {
                double sum = 0;
                for (int64_t i = offsets[g]; i < offsets[g + 1]; i++)
                    sum += product(i, j);
                assert_true((double)sums[g * N + j] == sum);
            }
    }
    free(zeros);
    ckl_free(device, workspace);
    ckl_plan_free(plan);
    free_args(&x);
}

/* Scales of blocks need not begin at 16 bytes, as boxes of TMA do. */
TEST(scales_anywhere)
{
    enum { ROWS = 12, COLUMNS = 160, LENGTH = 304, BLOCK = 128, BLOCKS = 3, BEHIND = 3, ONE = 0x38 };
    static unsigned char ones[COLUMNS * LENGTH];
    ckl_gemm_args x = { .d = filled(0, UNTOUCHED) };
    const float *scales_a = filled(1, 0), *scales_b = filled(2, 0);
    void *operand;
    memset(ones, ONE, sizeof ones); // of e4m3
    assert_ok(ckl_malloc(device, sizeof ones, &operand));
    assert_ok(ckl_copy_in(device, operand, ones, sizeof ones, NULL));
    x.a = x.b = operand;
    x.scale_a = scales_a + BEHIND;
    x.scale_b = scales_b + BEHIND;
    const ckl_gemm_desc d = { .m = ROWS,
                              .n = COLUMNS,
                              .k = LENGTH,
                              .a = CKL_E4M3,
                              .d = CKL_F32,
                              .scale_a = CKL_GEMM_SCALE_BLOCK,
                              .scale_b = CKL_GEMM_SCALE_SQUARE };
    assert_ok(ckl_gemm(device, &d, &x, NULL));
    static float a[ELEMENTS], b[ELEMENTS];
    memcpy(a, read_back(scales_a), sizeof a);
    memcpy(b, read_back(scales_b), sizeof b);
    const float *result = read_back(x.d);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        float want = 0;
        for (int block = 0; block < BLOCKS; block++)
            want += a[BEHIND + block * ROWS + i / COLUMNS] * b[BEHIND + i % COLUMNS / BLOCK * BLOCKS + block] *
                    (float)min_i64(LENGTH - block * BLOCK, BLOCK);
        assert_true(result[i] == want);
    }
    const void *all[] = { operand, x.d, scales_a, scales_b };
    for (int i = 0; i < COUNT_OF(all); i++)
        ckl_free(device, (void *)(uintptr_t)all[i]);
}

RUN_TESTS(open_device, close_device)
