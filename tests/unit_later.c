/* unit_later.c - kernels for sm_90, without what Hopper has alone, are taken by ptxas for it and for later GPUs. */
#include "unit.h"
#include "emulated_device.h"
#include "lab/assemble.h"
#include "lab/case.h"

/* The PTX of the kernel that is chosen for a problem there. */
static void print_kernel(const char *line, const char *implementation_name, text *ptx)
{
    test_case c;
    arena memory = { 0 };
    const implementation *impl;
    void *config;
    ir_kernel *kernel;
    const ckl_device_info *info = ckl_device_properties(device);
    assert_ok(case_parse(line, &c));
    assert_ok(plan_choose(info, c.test->op, c.problem, NULL, &memory, &impl, &config));
    assert_string_equal(impl->name, implementation_name);
    assert_ok(plan_describe(c.test->op, impl, config, 0, plan_target(info), &kernel));
    assert_ok(ir_print_ptx(kernel, ptx));
    ir_kernel_free(kernel);
    case_clear(&c);
    arena_clear(&memory);
}

/* A release that does not know an architecture says so: nothing to judge. */
static bool is_unknown(const assembled *result)
{
    return strstr(result->complaint, "is not defined for option 'gpu-name'") != NULL;
}

TEST(architectures)
{
    static const struct {
        const char *line, *implementation;
    } kernels[] = {
        { "gemm m=1024 n=1024 k=1024 a=bf16 bias=1 activation=gelu", "tma_mma" },
        { "gemm m=4096 n=4096 k=1024 a=i8", "tma_mma" },
        { "softmax shape=8x65536 dtype=f16", "long" },
    };
    static const char *const architectures[] = { "sm_90", "sm_100", "sm_120" };
    if (!assemble_tool())
        skip();
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        text ptx = { 0 };
        print_kernel(kernels[i].line, kernels[i].implementation, &ptx);
        assert_says(text_data(&ptx), ".target sm_90\n");
        for (int a = 0; a < COUNT_OF(architectures); a++) {
            assembled result;
            assert_ok(assemble_ptx(&ptx, architectures[a], &result));
            if ((result.registers == 0 || result.spill_bytes) && !is_unknown(&result))
                fail_msg("%s for %s: %s", kernels[i].line, architectures[a], result.complaint);
        }
        text_free(&ptx);
    }
}

int main(void)
{
    device_name = "emulator:b200"; // with TMA, without wgmma
    return run_enlisted(open_device, close_device);
}
