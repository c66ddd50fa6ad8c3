/* unit_emulator_counters.c - every counter of the emulated GPU, of a kernel that does a little of everything. */
#include <inttypes.h>

#include "unit_emulator_async.h"

#include "base/math.h"

enum { CTAS = 3, WARPS = 2, THREADS = 32 * WARPS, BYTES = 16 * THREADS, PART = 256, ALL_WARPS = CTAS * WARPS };

/* One product of zeros on the tensor cores. */
static void multiply(void)
{
    val r[6], d[4];
    for (int i = 0; i < COUNT_OF(r); i++)
        ir_assign(r[i] = ir_reg(IR_U32), u32(0));
    for (int i = 0; i < COUNT_OF(d); i++)
        ir_assign(d[i] = ir_reg(CKL_F32), ir_float(CKL_F32, 0));
    ir_mma(CKL_F16, CKL_F16, d, r, r + 4);
}

/* A bulk copy, what each thread then reads and writes, and a copy back of a part. */
static void describe(void)
{
    val from = pointer("from"), to = pointer("to"), tid = ir_sreg(IR_TID_X), v[4];
    val x = ir_smem_address(ir_smem_alloc("x", BYTES, 128)), bar = barrier("bar");
    val number = add(mul(ir_sreg(IR_CTA_X), THREADS), tid), first = equals(tid, 0);
    ir_if(first);
    init_barrier(bar);
    ir_mbarrier_expect(bar, 0, u32(BYTES));
    ir_bulk_load(x, 0, from, u32(BYTES), bar);
    ir_end_if();
    ir_bar_sync(u32(0), THREADS);
    ir_mbarrier_wait(bar, 0, u32(0));
    for (int i = 0; i < 4; i++)
        v[i] = ir_reg(IR_U32);
    ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, add(x, mul(tid, 16)), 0, v);
    ir_bar_sync(u32(0), THREADS);
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid, 8)), 0, v[0]); // two lanes a bank
    ir_unary(IR_EX2, ir_float(CKL_F32, 1));
    multiply();
    test_store_value(IR_GLOBAL, IR_U32, test_element(to, number, 4), 0, v[1]);
    test_load_value(IR_GLOBAL, IR_U32, test_element(from, tid, 32), 0); // a sector each
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(u32(0), THREADS);
    ir_if(first);
    ir_bulk_store(test_element(to, add(ir_sreg(IR_CTA_X), u32(CTAS)), PART), x, 0, u32(PART));
    finish_bulk();
    ir_end_if();
}

/* In the order in which they are told. */
static const struct {
    const char *name;
    int64_t value;
} expected[] = {
    { "launches", 1 },
    { "ctas", CTAS },
    { "warps", ALL_WARPS },
    { "warp instructions", 300 }, // the sum of the next seven
    { "alu instructions", 195 },
    { "sfu instructions", ALL_WARPS },
    { "memory instructions", 4 * ALL_WARPS },
    { "sync instructions", CTAS *(10 + 5) }, // of the first warp and the other
    { "tma instructions", CTAS * 2 },
    { "tensor instructions", ALL_WARPS },
    { "control instructions", CTAS *(4 + 2) },
    { "global bytes read", CTAS *THREADS * 4 },
    { "global bytes written", CTAS *THREADS * 4 },
    { "global read requests", ALL_WARPS },
    { "global read sectors", CTAS *THREADS },
    { "global write requests", ALL_WARPS },
    { "global write sectors", CTAS *THREADS * 4 / 32 },
    { "shared bytes read", CTAS *BYTES },
    { "shared bytes written", CTAS *THREADS * 4 },
    { "shared wavefronts", ALL_WARPS *(4 + 2) },
    { "bank conflicts", ALL_WARPS },
    { "tma bytes loaded", CTAS *BYTES },
    { "tma bytes stored", CTAS *PART },
    { "tensor flops", ALL_WARPS * 2 * 16 * 8 * 16 },
    { "barrier waits", CTAS *(3 + WARPS) }, // one warp of two waits at a barrier, and both for the copy
};

/* Twice, with a reset between; then without one: they add up. */
TEST(counters)
{
    static const uint32_t zeros[8 * THREADS];
    device_counter all[COUNT_OF(expected) + 1];
    gpu = test_open("");
    void *from = test_upload(gpu, zeros, sizeof zeros), *to = test_upload(gpu, zeros, sizeof zeros);
    for (int run = 0; run < 3; run++) {
        if (run < 2)
            gpu->ops->counters_reset(gpu);
        run_or_fail((test_kernel){ describe, IR_SM90A, .threads = THREADS, .grid = CTAS }, (void *[]){ &from, &to });
        assert_int_equal(gpu->ops->counters(gpu, all, COUNT_OF(all)), COUNT_OF(expected));
        for (int i = 0; i < COUNT_OF(expected); i++) {
            assert_string_equal(all[i].name, expected[i].name);
            if (all[i].value != expected[i].value * (run == 2 ? 2 : 1))
                fail_msg("%s: %" PRId64, all[i].name, all[i].value);
        }
    }
    gpu->ops->close(gpu);
}

RUN_TESTS(NULL, NULL)
