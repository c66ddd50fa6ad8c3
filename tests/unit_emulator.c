/* unit_emulator.c - the emulated GPU: arithmetic, control flow, memory, barriers. */
#include "unit_emulator.h"

static ckl_device *gpu;

static int open_gpu(void **state)
{
    (void)state;
    gpu = test_open("");
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu->ops->close(gpu);
    return 0;
}

/* z[i] = x[i] + y[i] over a grid that is larger than n */
static void describe_add(void)
{
    val x = ir_scalar_param(IR_U64, "x"), y = ir_scalar_param(IR_U64, "y"), z = ir_scalar_param(IR_U64, "z");
    val n = ir_scalar_param(IR_U32, "n");
    val i = ir_fma(ir_sreg(IR_CTA_X), ir_int(IR_U32, ir_current()->threads), ir_sreg(IR_TID_X));
    ir_if(ir_compare(IR_LT, i, n));
    val sum = ir_binary(IR_ADD, test_load_value(IR_GLOBAL, CKL_F32, test_element(x, i, 4), 0),
                        test_load_value(IR_GLOBAL, CKL_F32, test_element(y, i, 4), 0));
    test_store_value(IR_GLOBAL, CKL_F32, test_element(z, i, 4), 0, sum);
    ir_end_if();
}

static void test_add(void **state)
{
    (void)state;
    uint32_t n = 1000003;
    float *host = malloc(n * sizeof *host);
    for (uint32_t i = 0; i < n; i++)
        host[i] = (float)i * 0.5F;
    void *x = test_upload(gpu, host, n * sizeof *host), *z = test_upload(gpu, NULL, n * sizeof *host);
    test_kernel k = { describe_add, IR_SM80, .threads = 256, .grid = (n + 255) / 256 };
    if (test_run(gpu, k, (void *[]){ &x, &x, &z, &n }) != CKL_OK)
        fail_msg("%s", ckl_error());
    assert_int_equal(gpu->ops->copy_out(gpu, host, z, n * sizeof *host, NULL), CKL_OK);
    for (uint32_t i = 0; i < n; i++)
        assert_true(host[i] == (float)i);
    gpu->ops->release(gpu, x);
    gpu->ops->release(gpu, z);
    free(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_add),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
