/* unit_epilogue.c - a custom epilogue of gemm, the one of docs/operators.md, in kernels of every kind. */
#include "unit_emulator.h"

#include <math.h>

#include "operators/gemm/gemm_epilogue.h"
#include "operators/gemm/gemm_plan.h"
#include "operators/operators.h"
#include "plan/plan.h"

#undef HERE
#include "cute/kernel.h"

/* Scores of attention: a soft cap, and nothing right of the diagonal. */
static val capped_and_causal(val x, val row, val col, void *user)
{
    const float *cap = user;
    val capped = mul(tanh_f32(mul(x, immf(1 / *cap))), immf(*cap));
    return select(le(col, row), capped, immf(-INFINITY));
}

static float cap = 30;
static const gemm_custom causal = { capped_and_causal, &cap };

static void describe_tiled(const void *config, int kernel)
{
    gemm_tiled_config c = *(const gemm_tiled_config *)config;
    c.epilogue.custom = &causal;
    gemm_tiled(&c, kernel);
}

static void describe_sm90(const void *config, int kernel)
{
    gemm_sm90_config c = *(const gemm_sm90_config *)config;
    c.epilogue.custom = &causal;
    gemm_sm90(&c, kernel);
}

enum { M = 70, N = 72, K = 40 };

/* D of a plan that is forced, of an operator that has this implementation alone. */
static void run(ckl_device *gpu, const implementation *impl, const char *force, uint16_t *a, uint16_t *b, float *d)
{
    const implementation *const list[] = { impl, NULL };
    operator_info op = gemm_operator;
    op.implementations = list;
    const ckl_gemm_desc desc = { .m = M, .n = N, .k = K, .a = CKL_F16, .d = CKL_F32 };
    void *in_a = test_upload(gpu, a, M * K * 2), *in_b = test_upload(gpu, b, N * K * 2),
         *out = test_upload(gpu, NULL, M * N * 4);
    ckl_plan *plan = NULL;
    plan_forget_device(gpu); // a custom epilogue is no part of a config
    ckl_status status = plan_build(gpu, &op, &desc, force, &plan);
    if (status == CKL_OK)
        status = plan_run(plan, &op, &(ckl_gemm_args){ .a = in_a, .b = in_b, .d = out }, NULL);
    if (status == CKL_OK)
        status = gpu->ops->copy_out(gpu, d, out, M * N * 4, NULL);
    if (status != CKL_OK)
        fail_msg("%s", ckl_error());
    ckl_plan_free(plan);
    gpu->ops->release(gpu, in_a);
    gpu->ops->release(gpu, in_b);
    gpu->ops->release(gpu, out);
}

static void test_custom_epilogue(void **state)
{
    (void)state;
    static uint16_t a[M * K], b[N * K];
    static float plain[M * N], custom[M * N];
    ckl_device *gpu = NULL;
    gpu = test_open("");
    for (int i = 0; i < M * K; i++)
        a[i] = (uint16_t)(0x3c00 + i % 7 * 64 + (i % 3 ? 0x8000 : 0)); // f16 of 1 to 1.4
    for (int i = 0; i < N * K; i++)
        b[i] = (uint16_t)(0x3800 + i % 11 * 64 + (i % 2 ? 0x8000 : 0));
    implementation tiled = gemm_tiled_implementation, sm90 = gemm_sm90_implementation;
    tiled.describe = describe_tiled;
    sm90.describe = describe_sm90;
    const struct {
        const implementation *impl;
        const char *force;
    } kernels[] = { { &tiled, "tiled" },
                    { &sm90, "sm90" },
                    { &sm90,
                      "sm90 tile_m=64 tile_n=80 swap=1 consumers=1 pingpong=0 cluster_m=1 cluster_n=1 split=1" } };
    run(gpu, &gemm_naive_implementation, "naive", a, b, plain);
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        run(gpu, kernels[i].impl, kernels[i].force, a, b, custom);
        for (int at = 0; at < M * N; at++) {
            double want = at % N > at / N ? -INFINITY : cap * (tanh)(plain[at] / cap);
            if (!(custom[at] == want || fabs(custom[at] - want) <= 1e-5 * cap))
                fail_msg("%s: D[%d,%d] is %g, not %g", kernels[i].force, at / N, at % N, (double)custom[at], want);
        }
    }
    gpu->ops->close(gpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_custom_epilogue) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
