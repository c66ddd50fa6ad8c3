/* unit_emulator_names.c - the checker: what its reports call memory, and where they say that it happened. */
#include "unit_emulator_faults.h"

/* Shared memory */

FAULT(uninitialised, 32, 1, "uninitialised shared memory", "x+64 is read before it was written")
{
    val at = add(tile("x", 256), mul(tid(), 4));
    if (!planted)
        test_store_value(IR_SHARED, IR_U32, at, 64, u32(1));
    BLAMED(test_load_value(IR_SHARED, IR_U32, at, 64));
}

/* Behind all: the last one serves. */
FAULT(outside, 32, 1, "out-of-bounds shared access", "y+4096")
{
    tile("x", 128);
    val at = add(tile("y", 256), mul(tid(), 8));
    BLAMED(test_store_value(IR_SHARED, IR_U32, at, planted ? 4096 : 0, u32(1)));
}

/* Between two allocations: the one before serves. */
FAULT(uninitialised_gap, 32, 1, "uninitialised shared memory", "x+512 is read before it was written")
{
    val at = add(tile("x", 128), mul(tid(), 4));
    tile("y", 128);
    if (!planted)
        test_store_value(IR_SHARED, IR_U32, at, 512, u32(1));
    BLAMED(test_load_value(IR_SHARED, IR_U32, at, 512));
}

/* Global memory */

static void past_the_end(parameters p)
{
    BLAMED(test_load_value(IR_GLOBAL, CKL_F32, p.memory, MEMORY_BYTES));
}

/* The name of an address is that of what lies after it, and goes before the parameter's. */
TEST(named_memory)
{
    bench b = bench_open("");
    const fault_case c = { past_the_end, 32, 1, { "4 bytes at operand y+16352: 4 bytes past the end" }, 1, 0 };
    b.gpu->ops->name_memory(b.gpu, (char *)b.memory + 32, "operand y");
    assert_int_equal(bench_run(&b, &c, true), CKL_DEVICE_FAULT);
    check_report(&c, "");
    b.gpu->ops->close(b.gpu);
}

static void store_to_hidden(void)
{
    val memory = pointer("memory"), hidden = pointer("hidden"), zero = u32(0);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, memory, 0, &zero);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, ir_unary(IR_NOT, hidden), 1, &zero);
}

static void store_askew(void)
{
    val late = pointer("late"), early = pointer("early"), zero = u32(0);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, late, 0, &zero);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, early, 17, &zero);
}

/* Of two parameters that point into an allocation, the one before the address names it. */
TEST(memory_of_two_names)
{
    bench b = bench_open("");
    void *late = (char *)b.memory + 64;
    test_kernel k = { store_askew, IR_SM90A, .threads = 32 };
    assert_fails(test_run(b.gpu, k, (void *[]){ &late, &b.memory }), CKL_DEVICE_FAULT, " early+17");
    b.gpu->ops->close(b.gpu);
}

/* Memory that no parameter points into has no parameter's name. */
TEST(unnamed_memory)
{
    bench b = bench_open("");
    void *other = test_upload(b.gpu, NULL, 64);
    uint64_t hidden = ~(uint64_t)(uintptr_t)other;
    test_kernel k = { store_to_hidden, IR_SM90A, .threads = 32 };
    assert_fails(test_run(b.gpu, k, (void *[]){ &b.memory, &hidden }), CKL_DEVICE_FAULT, "misaligned global access");
    assert_omits(ckl_error(), "memory+");
    assert_omits(ckl_error(), "memory-");
    b.gpu->ops->release(b.gpu, other);
    b.gpu->ops->close(b.gpu);
}

static void store_nowhere(void)
{
    HERE;
    test_store_value(IR_GLOBAL, IR_U32, pointer("nowhere"), 0, u32(0));
}

/* A parameter that points to no memory names none. */
TEST(no_memory)
{
    ckl_device *gpu = test_open("");
    uint64_t nowhere = 0x1000;
    test_kernel k = { store_nowhere, IR_SM90A, .threads = 32 };
    assert_fails(test_run(gpu, k, (void *[]){ &nowhere }), CKL_DEVICE_FAULT, "4 bytes at 0x1000: ");
    gpu->ops->close(gpu);
}

/* Where: a CTA inside of the grid. */
static void fault_inside(void)
{
    declare();
    val one[] = { ir_compare(IR_EQ, ir_sreg(IR_CTA_X), u32(1)), ir_compare(IR_EQ, ir_sreg(IR_CTA_Y), u32(2)),
                  ir_compare(IR_EQ, ir_sreg(IR_CTA_Z), u32(3)) };
    IF(ir_binary(IR_AND, one[0], ir_binary(IR_AND, one[1], one[2])))
        test_load_value(IR_SHARED, IR_U32, tile("x", 128), 128);
}

TEST(place_in_grid)
{
    bench b = bench_open("");
    device_kernel *loaded = NULL;
    assert_ok(test_load(b.gpu, (test_kernel){ fault_inside, IR_SM90A, .threads = 32 }, &loaded));
    device_launch launch = { .grid = { 3, 4, 5 }, .params = (void *[]){ &b.memory, &b.fresh, &b.map } };
    assert_fails(b.gpu->ops->launch(b.gpu, loaded, &launch, NULL), CKL_DEVICE_FAULT,
                 "in test, CTA (1,2,3), warp 0, lane 0");
    b.gpu->ops->unload(b.gpu, loaded);
    b.gpu->ops->close(b.gpu);
}

RUN_TESTS(NULL, NULL)
