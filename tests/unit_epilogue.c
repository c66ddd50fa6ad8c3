/* unit_epilogue.c - a custom epilogue of gemm, that of docs/operators.md, in kernels of every kind; sums of e4m3. */
#include "emulated_device.h"
#include "unit_emulator.h"

#include <math.h>

#include "lab/case.h"
#include "operators/gemm/gemm_plan.h"
#include "operators/operators.h"
#include "plan/plan.h"

#undef HERE
#include "cute/kernel.h"
#include "operators/gemm/gemm_sm90.h"

/* Scores of attention: a soft cap, and nothing right of the diagonal. */
static ckl_val capped_and_causal(ckl_val x, ckl_val row, ckl_val col, void *user)
{
    ckl_val most = ckl_val_f32(*(const float *)user);
    ckl_val capped = ckl_val_mul(ckl_val_tanh(ckl_val_div(x, most)), most);
    return ckl_val_select(ckl_val_le(col, row), capped, ckl_val_f32(-INFINITY));
}

static float cap = 30;
static const ckl_gemm_epilogue causal = { .name = "capped_causal", .apply = capped_and_causal, .user = &cap };

enum { M = 70, N = 72, K = 40 };

/* D of a forced plan. */
static void run(const char *epilogue, const char *force, uint16_t *a, uint16_t *b, float *d)
{
    const ckl_gemm_desc desc = { .m = M, .n = N, .k = K, .a = CKL_F16, .d = CKL_F32, .epilogue = epilogue };
    void *in_a = test_upload(device, a, M * K * 2), *in_b = test_upload(device, b, N * K * 2),
         *out = test_upload(device, NULL, M * N * 4);
    ckl_plan *plan = NULL;
    ckl_status status = plan_build(device, &gemm_operator, &desc, force, &plan);
    if (status == CKL_OK)
        status = ckl_gemm_run(plan, &(ckl_gemm_args){ .a = in_a, .b = in_b, .d = out }, NULL);
    if (status == CKL_OK)
        status = device->ops->copy_out(device, d, out, M * N * 4, NULL);
    assert_ok(status);
    ckl_plan_free(plan);
}

TEST(custom_epilogue)
{
    static const char *const kernels[] = {
        "tiled", "sm90", "sm90 tile_m=64 tile_n=80 swap=1 consumers=1 pingpong=0 cluster_m=1 cluster_n=1 split=1"
    };
    static uint16_t a[M * K], b[N * K];
    static float plain[M * N], custom[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (uint16_t)(0x3c00 + i % 7 * 64 + (i % 3 ? 0x8000 : 0)); // f16 of 1 to 1.4
    for (int i = 0; i < N * K; i++)
        b[i] = (uint16_t)(0x3800 + i % 11 * 64 + (i % 2 ? 0x8000 : 0));
    assert_ok(ckl_gemm_epilogue_add(&causal));
    run(NULL, "naive", a, b, plain);
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        run("capped_causal", kernels[i], a, b, custom);
        for (int at = 0; at < M * N; at++) {
            double want = at % N > at / N ? -INFINITY : cap * (tanh)(plain[at] / cap);
            if (!(custom[at] == want || fabs(custom[at] - want) <= 1e-5 * cap))
                fail_msg("%s: D[%d,%d] is %g, not %g", kernels[i], at / N, at % N, (double)custom[at], want);
        }
    }
}

static ckl_val doubled(ckl_val x, ckl_val row, ckl_val col, void *user)
{
    return ckl_val_add(x, x);
}

static ckl_val mistaken(ckl_val x, ckl_val row, ckl_val col, void *user)
{
    return ckl_val_add(x, row);
}

/* Names are what kernels are kept by, so a name stands for one epilogue. */
TEST(names_of_epilogues)
{
    ckl_gemm_epilogue e = { .name = "doubled", .apply = doubled };
    assert_ok(ckl_gemm_epilogue_add(&e));
    assert_ok(ckl_gemm_epilogue_add(&e));
    e.user = &cap;
    assert_fails(ckl_gemm_epilogue_add(&e), CKL_INVALID, "gemm_epilogue_add: there is another epilogue 'doubled'");
    e.name = "tril";
    assert_fails(ckl_gemm_epilogue_add(&e), CKL_INVALID, "gemm_epilogue_add: there is another epilogue 'tril'");
    e.name = "a b";
    assert_fails(ckl_gemm_epilogue_add(&e), CKL_INVALID,
                 "gemm_epilogue_add: the name 'a b' is none, or not of letters, digits and _");
    e.name = "none";
    assert_fails(ckl_gemm_epilogue_add(&e), CKL_INVALID,
                 "gemm_epilogue_add: the name 'none' is none, or not of letters, digits and _");
    e.apply = NULL;
    assert_fails(ckl_gemm_epilogue_add(&e), CKL_INVALID, "gemm_epilogue_add: an epilogue wants a name and a function");
}

/* A mistake in the function is a sentence when a plan is made. */
TEST(mistake)
{
    const ckl_gemm_epilogue e = { .name = "mistaken", .apply = mistaken };
    const ckl_gemm_desc desc = { .m = 8, .n = 8, .k = 8, .a = CKL_F16, .epilogue = "mistaken" };
    ckl_plan *plan = NULL;
    assert_ok(ckl_gemm_epilogue_add(&e));
    assert_fails(ckl_gemm_plan(device, &desc, &plan), CKL_INTERNAL, "f32");
}

/* 448*448 + 1 + 1 ...: the ones are lost beside the first product, but not those of later parts of K, summed alone. */
static double sum_of_ones(ckl_gemm_accumulation accumulation)
{
    static const char one_cta[] =
        "sm90 tile_m=64 tile_n=16 stages=4 consumers=1 pingpong=0 cluster_m=1 cluster_n=1 split=1 swap=0";
    enum { DEPTH = 1024, E4M3_448 = 0x7e, E4M3_1 = 0x38 };
    static uint8_t row[DEPTH];
    const ckl_gemm_desc desc = {
        .m = 1, .n = 1, .k = DEPTH, .a = CKL_E4M3, .d = CKL_F32, .accumulation = accumulation
    };
    memset(row, E4M3_1, sizeof row);
    row[0] = E4M3_448;
    float sum = 0;
    void *a = test_upload(device, row, sizeof row), *b = test_upload(device, row, sizeof row),
         *d = test_upload(device, NULL, sizeof sum);
    ckl_plan *plan = NULL;
    assert_ok(plan_build(device, &gemm_operator, &desc, one_cta, &plan));
    assert_ok(plan_run(plan, &gemm_operator, &(ckl_gemm_args){ .a = a, .b = b, .d = d }, NULL));
    assert_ok(device->ops->copy_out(device, &sum, d, sizeof sum, NULL));
    ckl_plan_free(plan);
    return (double)sum;
}

TEST(accumulation)
{
    const double large = 448 * 448;
    assert_true(sum_of_ones(CKL_GEMM_FAST) == large);
    assert_true(sum_of_ones(CKL_GEMM_ACCURATE) == large + 1024 - 128);
}

/* What is judged before a kernel is described is what it has then. */
TEST(shared_memory)
{
    static const char *const lines[] = {
        "gemm impl=sm90",
        "gemm impl=sm90 c=1 beta=1",
        "gemm impl=sm90 activation=drelu",
        "gemm impl=sm90 activation=dgelu c=1 bias=1",
        "gemm impl=sm90 a=e4m3 scale_a=row scale_b=row",
        "gemm impl=sm90 gated=1 activation=silu",
        "gemm m=20 n=264 k=392 impl=sm90 config='tile_m=64 tile_n=32 stages=4 consumers=1 swap=1 split=2'",
        ("gemm m=70 n=99 k=128 d=f32 ldd=107 impl=sm90 config='tile_m=64 tile_n=64 stages=3 ragged=2 split=2 "
         "consumers=1'"),
    };
    for (int i = 0; i < COUNT_OF(lines); i++) {
        test_case c;
        arena memory = { 0 };
        const implementation *impl;
        void *config;
        ir_kernel *kernel;
        assert_ok(case_parse(lines[i], &c));
        assert_ok(plan_choose(ckl_device_properties(device), c.test->op, c.problem, case_force(&c, &memory), &memory,
                              &impl, &config));
        assert_ok(plan_describe(c.test->op, impl, config, 0, IR_SM90A, &kernel));
        if (gemm_sm90_shape_of(config).smem_bytes != kernel->smem_bytes)
            fail_msg("%s: %" PRId64 " bytes, not %" PRId64, lines[i], kernel->smem_bytes,
                     gemm_sm90_shape_of(config).smem_bytes);
        ir_kernel_free(kernel);
        case_clear(&c);
        arena_clear(&memory);
    }
}

RUN_TESTS(open_device, close_device)
