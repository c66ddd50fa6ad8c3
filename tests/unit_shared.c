/* unit_shared.c - the shared memory that a host reckons with is what its kernels take. */
#include "unit.h"
#include "base/math.h"
#include "lab/case.h"
#include "operators/gemm/gemm_weights.h"
#include "operators/groupnorm/groupnorm_config.h"
#include "plan/plan.h"

static int64_t of_groupnorm(const ckl_plan *plan)
{
    const char *name = plan->impl->name;
    return groupnorm_shared_bytes(plan->desc,
                                  strstr(name, "split")  ? GROUPNORM_SPLIT
                                  : strstr(name, "held") ? GROUPNORM_HELD
                                                         : GROUPNORM_CLUSTER,
                                  plan->config);
}

static int64_t of_weights(const ckl_plan *plan)
{
    return gemm_weights_smem(plan->config);
}

static const struct {
    const char *line;
    int64_t (*reckoned)(const ckl_plan *plan);
    /* Bytes that the host reckons too many: of barriers, of rounding, and of gradients a third word for each group. */
    int64_t spare;
} problems[] = {
    { "groupnorm n=2 c=64 h=40 w=40 groups=4", of_groupnorm, 16 },
    { "groupnorm n=2 c=320 h=16 w=16 groups=32 layout=nhwc", of_groupnorm, 16 },
    { "groupnorm n=8 c=640 h=32 w=32 groups=32 layout=nhwc dtype=f32", of_groupnorm, 16 },
    { "groupnorm n=8 c=96 h=64 w=64 groups=32 layout=nhwc", of_groupnorm, 20 },
    { "groupnorm n=2 c=64 h=256 w=256 groups=8", of_groupnorm, 20 },
    { "groupnorm n=2 c=64 h=256 w=256 groups=8 layout=nhwc", of_groupnorm, 20 },
    { "groupnorm n=2 c=64 h=40 w=40 groups=4 direction=backward", of_groupnorm, 32 },
    { "groupnorm n=2 c=320 h=16 w=16 groups=32 layout=nhwc direction=backward", of_groupnorm, 48 },
    { "groupnorm n=16 c=64 h=256 w=256 groups=64 layout=nhwc direction=backward", of_groupnorm, 160 },
    { "groupnorm n=8 c=64 h=56 w=56 groups=64 layout=nhwc direction=backward impl=backward_held", of_groupnorm, 164 },
    { "gemm m=16 n=4096 k=4096 a=bf16 b=i8", of_weights, 0 },
    { "gemm m=20 n=72 k=1184 a=bf16 b=i8 impl=weights config='rows=32 columns=8 warps=4 stages=2 box=8'", of_weights,
      0 },
    { "gemm m=13 n=208 k=416 b=u8 scale_b=block impl=weights config='rows=128 columns=16 warps=2 stages=2 box=16'",
      of_weights, 0 },
    { "gemm m=64 n=512 k=512 groups=8 a=bf16 b=i8", of_weights, 0 },
    { "gemm m=40 n=72 k=288 a=bf16 b=i8 scale_b=row groups=300", of_weights, 0 },
    { "gemm m=40 n=72 k=288 a=bf16 b=i8 groups=1024", of_weights, 0 },
};

TEST(reckoned)
{
    ckl_device *gpu;
    assert_ok(ckl_device_open("emulator:h200", &gpu));
    for (int i = 0; i < COUNT_OF(problems); i++) {
        test_case c;
        ckl_plan *plan = NULL;
        if (case_parse(problems[i].line, &c) != CKL_OK || case_plan(&c, gpu, &plan) != CKL_OK)
            fail_msg("%s", ckl_error());
        int64_t reckoned = problems[i].reckoned(plan), taken = plan->kernels[0].smem_bytes;
        if (reckoned != taken + problems[i].spare)
            fail_msg("%s: reckoned %ld, taken %ld bytes", problems[i].line, (long)reckoned, (long)taken);
        ckl_plan_free(plan);
        case_clear(&c);
    }
    ckl_device_close(gpu);
}

RUN_TESTS(NULL, NULL)
