/* unit_emulator.c - the emulated GPU: devices, control flow, memory, exchange between lanes, barriers. */
#include "unit_emulator_short.h"
#include "emulated_device.h"

/* z[i] = x[i] + y[i] over a grid that is larger than n */
static void describe_add(void)
{
    val x = pointer("x"), y = pointer("y"), z = pointer("z");
    val n = ir_scalar_param(IR_U32, "n");
    val i = ir_fma(ir_sreg(IR_CTA_X), ir_u32(ir_current()->threads), ir_sreg(IR_TID_X));
    IF(ir_compare(IR_LT, i, n)) {
        val sum = add(test_load_value(IR_GLOBAL, CKL_F32, test_element(x, i, 4), 0),
                      test_load_value(IR_GLOBAL, CKL_F32, test_element(y, i, 4), 0));
        test_store_value(IR_GLOBAL, CKL_F32, test_element(z, i, 4), 0, sum);
    }
}

TEST(add)
{
    uint32_t n = 1000003;
    float *host = malloc(n * sizeof *host);
    for (uint32_t i = 0; i < n; i++)
        host[i] = (float)i * 0.5F;
    void *x = test_upload(device, host, n * sizeof *host), *z = test_upload(device, NULL, n * sizeof *host);
    test_kernel k = { describe_add, IR_SM80, .threads = 256, .grid = (n + 255) / 256 };
    assert_ok(test_run(device, k, (void *[]){ &x, &x, &z, &n }));
    assert_ok(device->ops->copy_out(device, host, z, n * sizeof *host, NULL));
    for (uint32_t i = 0; i < n; i++)
        assert_true(host[i] == (float)i);
    free(host);
}

/* Runs one describe function with one output array of `count` 32-bit words. */
static void run_into(void (*describe)(void), int threads, int64_t grid, uint32_t *out, size_t count)
{
    memset(out, 0xee, count * sizeof *out);
    void *memory = test_upload(device, out, count * sizeof *out);
    test_kernel k = { describe, IR_SM90A, .threads = threads, .grid = grid };
    assert_ok(test_run(device, k, (void *[]){ &memory }));
    assert_ok(device->ops->copy_out(device, out, memory, count * sizeof *out, NULL));
}

/* out[thread of the grid] = x */
static void put(val out, val x)
{
    val thread = ir_fma(ir_sreg(IR_CTA_X), ir_u32(ir_current()->threads), ir_sreg(IR_TID_X));
    test_store_value(IR_GLOBAL, IR_U32, test_element(out, thread, 4), 0, x);
}

/* Control flow */

/* Steps of the Collatz sequence of every thread's number: a loop that each lane leaves at another time. */
static void describe_collatz(void)
{
    val out = pointer("out"), x = ir_reg(IR_U32), steps = ir_reg(IR_U32);
    ir_assign(x, add(ir_sreg(IR_TID_X), u32(1)));
    ir_assign(steps, u32(0));
    FOREVER {
        ir_break(ir_compare(IR_EQ, x, u32(1)));
        IF(ir_compare(IR_EQ, ir_binary(IR_AND, x, u32(1)), u32(0)))
            ir_assign(x, ir_binary(IR_SHR, x, u32(1)));
        ELSE
        {
            ir_assign(x, ir_fma(x, u32(3), u32(1)));
            IF(ir_compare(IR_GT, steps, u32(20))) // a break inside two IFs
                ir_break(ir_compare(IR_GT, x, u32(200)));
        }
        ir_assign(steps, add(steps, u32(1)));
    }
    put(out, steps);
}

static uint32_t collatz(uint32_t x)
{
    uint32_t steps = 0;
    for (; x != 1; steps++) {
        if (x % 2 == 0) {
            x /= 2;
            continue;
        }
        x = 3 * x + 1;
        if (steps > 20 && x > 200)
            break;
    }
    return steps;
}

TEST(collatz)
{
    uint32_t out[128];
    run_into(describe_collatz, 128, 1, out, 128);
    for (uint32_t i = 0; i < 128; i++)
        assert_int_equal(out[i], collatz(i + 1));
}

/* Lanes that leave early are missed neither by a barrier nor by the lanes that stay. */
static void describe_exit(void)
{
    val out = pointer("out"), tid = ir_sreg(IR_TID_X), x = ir_reg(IR_U32);
    ir_assign(x, u32(5));
    IF(ir_compare(IR_LT, tid, u32(40))) {
        IF(ir_compare(IR_LT, ir_sreg(IR_LANE), u32(7)))
            ir_plain(IR_EXIT, 0, 0);
        ir_assign(x, u32(6));
    }
    ir_bar_sync(u32(0), 64);
    put(out, x);
}

TEST(exit)
{
    uint32_t out[64];
    run_into(describe_exit, 64, 1, out, 64);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(out[i], i < 40 ? (i % 32 < 7 ? 0xeeeeeeee : 6) : 5);
}

/* Lanes among themselves */

static void describe_exchange(void)
{
    val out = pointer("out"), lane = ir_sreg(IR_LANE);
    val odd = ir_compare(IR_EQ, ir_binary(IR_AND, lane, u32(1)), u32(1));
    val x = ir_shuffle(IR_SHFL_XOR, lane, u32(5));                       // lane ^ 5
    x = ir_fma(ir_shuffle(IR_SHFL_UP, lane, u32(3)), u32(100), x);       // the first three keep theirs
    x = ir_fma(ir_shuffle(IR_SHFL_DOWN, lane, u32(2)), u32(10000), x);   // the last two keep theirs
    x = ir_fma(ir_shuffle(IR_SHFL_IDX, lane, u32(9)), u32(1000000), x);  // lane 9
    x = add(x, ir_redux(IR_RED_ADD, lane));                              // 496
    x = add(x, ir_select(ir_vote(IR_VOTE_ALL, odd), u32(7777), u32(0))); // no
    x = add(x, ir_select(ir_vote(IR_VOTE_ANY, odd), u32(1), u32(0)));    // yes
    x = ir_binary(IR_XOR, x, ir_binary(IR_AND, ir_vote(IR_VOTE_BALLOT, odd), u32(0x80000000))); // lane 31 is odd
    x = add(x, ir_select(ir_elect(), u32(2), u32(0)));                                          // lane 0
    put(out, x);
}

TEST(exchange)
{
    uint32_t out[32];
    run_into(describe_exchange, 32, 1, out, 32);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t up = i < 3 ? i : i - 3, down = i + 2 > 31 ? i : i + 2;
        uint32_t x = (i ^ 5) + 100 * up + 10000 * down + 1000000 * 9 + 496 + 1;
        assert_int_equal(out[i], (x ^ 0x80000000) + (i == 0 ? 2 : 0));
    }
}

/* The same where some lanes have left: they keep what they had, and are in no sum, vote or election. */
static void describe_exchange_of_some(void)
{
    val out = pointer("out"), lane = ir_sreg(IR_LANE);
    val late = ir_compare(IR_GE, lane, u32(20)), early = ir_compare(IR_LT, lane, u32(12));
    IF(early)
        ir_plain(IR_EXIT, 0, 0);
    val x = ir_shuffle(IR_SHFL_IDX, lane, u32(30));                          // 30
    x = ir_fma(ir_redux(IR_RED_ADD, lane), u32(100), x);                     // 12 + ... + 31 = 430
    x = add(x, ir_select(ir_vote(IR_VOTE_ALL, late), u32(1000000), u32(0))); // no
    x = add(x, ir_select(ir_vote(IR_VOTE_ANY, late), u32(2000000), u32(0))); // yes
    x = add(x, ir_binary(IR_SHR, ir_vote(IR_VOTE_BALLOT, late), u32(20)));   // 0xfff
    x = add(x, ir_vote(IR_VOTE_BALLOT, early));                              // 0
    x = add(x, ir_select(ir_elect(), u32(4000000), u32(0)));                 // lane 12
    put(out, x);
}

TEST(exchange_of_some)
{
    uint32_t out[32];
    run_into(describe_exchange_of_some, 32, 1, out, 32);
    for (uint32_t i = 0; i < 32; i++)
        assert_int_equal(out[i], i < 12 ? 0xeeeeeeee : 30 + 43000 + 2000000 + 0xfff + (i == 12 ? 4000000 : 0));
}

/* Memory */

/* Vector loads, sign extension of bytes, a byte store, atomics with and without result. */
static void describe_memory(void)
{
    val out = pointer("out"), tid = ir_sreg(IR_TID_X), v[4], byte = ir_reg(CKL_I16);
    val first = u32(0x81828384), row = test_element(out, tid, 16);
    test_store_value(IR_GLOBAL, IR_U32, row, 0, first);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_I8, 1, row, 1, &byte); // 0x83
    test_store_value(IR_GLOBAL, CKL_I8, row, 7, byte);
    for (int i = 0; i < 4; i++)
        v[i] = ir_reg(IR_U32);
    ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, row, 0, v); // 81828384 83eeeeee eeeeeeee eeeeeeee
    v[2] = ir_bitcast(IR_U32, ir_convert(CKL_I32, byte));
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 2, row, 8, v + 2);
}

TEST(memory)
{
    uint32_t out[32 * 4];
    run_into(describe_memory, 32, 1, out, 32 * 4);
    for (int i = 0; i < 32; i++) {
        assert_int_equal(out[4 * i], 0x81828384);
        assert_int_equal(out[4 * i + 1], 0x83eeeeee);
        assert_int_equal(out[4 * i + 2], 0xffffff83);
        assert_int_equal(out[4 * i + 3], 0xeeeeeeee);
    }
}

/*
 * A counter that every thread draws from, and sums of every type, in words that the host prepared: 0 counter, 1 f32, 2
 * f16x2, 3 min, 4 flags.
 */
static void describe_atomics(void)
{
    val out = pointer("out"), tid = ir_sreg(IR_TID_X);
    val thread = ir_fma(ir_sreg(IR_CTA_X), u32(64), tid);
    val number = ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, out, 0, u32(1));
    ir_reduce(IR_SCOPE_GPU, IR_RED_ADD, out, 4, ir_float(CKL_F32, 0.5));
    ir_reduce(IR_SCOPE_GPU, IR_RED_MAX, out, 8, thread);
    ir_reduce(IR_SCOPE_GPU, IR_RED_MIN, out, 12, ir_binary(IR_SUB, u32(1000), thread));
    val was = ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_EXCH, out, 16, u32(1));
    IF(ir_compare(IR_EQ, was, u32(0))) // one winner in the grid
        ir_reduce(IR_SCOPE_GPU, IR_RED_ADD, out, 20, u32(1));
    test_store_value(IR_GLOBAL, IR_U32, test_element(out, number, 4), 32, u32(1)); // each number once
}

TEST(atomics)
{
    uint32_t out[8 + 512] = { 0, 0, 0, UINT32_MAX };
    void *memory = test_upload(device, out, sizeof out);
    test_kernel k = { describe_atomics, IR_SM80, .threads = 64, .grid = 8 };
    assert_ok(test_run(device, k, (void *[]){ &memory }));
    assert_ok(device->ops->copy_out(device, out, memory, sizeof out, NULL));
    float sum;
    memcpy(&sum, &out[1], sizeof sum);
    assert_int_equal(out[0], 512);
    assert_true(sum == 256);
    assert_int_equal(out[2], 511);
    assert_int_equal(out[3], 1000 - 511);
    assert_int_equal(out[5], 1);
    for (int i = 0; i < 512; i++)
        assert_int_equal(out[8 + i], 1);
}

/* CTAs write down as which they came: from word 1 on; word 0 counts. */
static void describe_arrivals(void)
{
    val out = pointer("out"), cta = ir_sreg(IR_CTA_X);
    IF(ir_elect()) {
        val number = ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, out, 0, u32(1));
        test_store_value(IR_GLOBAL, IR_U32, test_element(out, cta, 4), 4, number);
    }
}

enum { ARRIVALS = 24 };

/* All come; how many of them after the next one. */
static int swapped_ctas(const char *settings)
{
    ckl_device *own = test_open(settings);
    uint32_t out[1 + ARRIVALS] = { 0 }, came = 0;
    int swapped = 0;
    void *memory = test_upload(own, out, sizeof out);
    test_kernel k = { describe_arrivals, IR_SM90A, .grid = ARRIVALS };
    assert_ok(test_run(own, k, (void *[]){ &memory }));
    assert_ok(own->ops->copy_out(own, out, memory, sizeof out, NULL));
    for (uint32_t i = 0; i < ARRIVALS; i++) {
        came |= 1U << out[1 + i];
        swapped += i + 1 < ARRIVALS && out[1 + i] > out[2 + i];
    }
    assert_int_equal(came, (1U << ARRIVALS) - 1);
    own->ops->close(own);
    return swapped;
}

TEST(order_of_ctas)
{
    enum { SEEDS = 8 };
    int swapped = 0;
    assert_int_equal(swapped_ctas(""), 0);
    assert_int_equal(swapped_ctas("seed=5"), 0);
    for (int seed = 1; seed <= SEEDS; seed++) {
        char settings[64];
        snprintf(settings, sizeof settings, "schedule=random seed=%d", seed);
        swapped += swapped_ctas(settings);
        snprintf(settings, sizeof settings, "resident=1 schedule=random seed=%d", seed);
        assert_int_equal(swapped_ctas(settings), 0);
    }
    assert_true(swapped > 4 * SEEDS); // where they only begin with another one hardly one of a launch is
}

/* Barriers: producer warps hand over through named barriers, arrive on one side, sync on the other. */
static void describe_handover(void)
{
    val out = pointer("out"), tid = ir_sreg(IR_TID_X), lane4 = ir_binary(IR_MUL, ir_sreg(IR_LANE), u32(4));
    val cell = add(ir_smem_address(ir_smem_alloc("x", 128, 128)), lane4), i = ir_reg(IR_U32);
    val sum = ir_reg(IR_U32);
    ir_assign(i, u32(0));
    ir_assign(sum, u32(0));
    FOREVER {
        ir_break(ir_compare(IR_EQ, i, u32(10)));
        IF(ir_compare(IR_LT, tid, u32(32))) {
            test_store_value(IR_SHARED, IR_U32, cell, 0, ir_binary(IR_MUL, i, i));
            ir_bar_arrive(u32(1), 64); // full
            ir_bar_sync(u32(2), 64);   // empty
        }
        ELSE
        {
            ir_bar_sync(u32(1), 64);
            ir_assign(sum, add(sum, test_load_value(IR_SHARED, IR_U32, cell, 0)));
            ir_bar_arrive(u32(2), 64);
        }
        ir_assign(i, add(i, u32(1)));
    }
    put(out, sum);
}

TEST(handover)
{
    uint32_t out[64];
    run_into(describe_handover, 64, 1, out, 64);
    for (int i = 0; i < 64; i++)
        assert_int_equal(out[i], i < 32 ? 0 : 285);
}

/* ldmatrix gives what stmatrix took, transposed both ways. */
static void describe_matrices(void)
{
    val out = pointer("out"), lane = ir_sreg(IR_LANE), x[4], y[4];
    val row = add(ir_smem_address(ir_smem_alloc("x", 512, 128)), ir_binary(IR_MUL, lane, u32(16)));
    for (int i = 0; i < 4; i++) {
        x[i] = ir_fma(lane, u32(0x00080008), u32(0x00010000 + 0x01000100 * i));
        y[i] = ir_reg(IR_U32);
    }
    ir_stmatrix(4, false, row, 0, x);
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_ldmatrix(4, true, row, 0, y);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, test_element(out, lane, 16), 0, y);
}

TEST(matrices)
{
    uint32_t out[32 * 4];
    run_into(describe_matrices, 32, 1, out, 32 * 4);
    uint16_t stored[4][8][8];
    for (uint32_t m = 0; m < 4; m++)
        for (uint32_t lane = 0; lane < 32; lane++)
            for (uint32_t half = 0; half < 2; half++)
                stored[m][lane / 4][lane % 4 * 2 + half] = (uint16_t)(8 * lane + half + 0x100 * m);
    for (uint32_t m = 0; m < 4; m++)
        for (uint32_t lane = 0; lane < 32; lane++)
            for (uint32_t half = 0; half < 2; half++)
                assert_int_equal((uint16_t)(out[4 * lane + m] >> 16 * half), stored[m][lane % 4 * 2 + half][lane / 4]);
}

static int matrices;

static void describe_some_matrices(void)
{
    const val lane = ir_sreg(IR_LANE), zero = u32(0), x[4] = { zero, zero, zero, zero };
    pointer("out");
    ir_stmatrix(matrices, false, ir_fma(lane, u32(16), ir_smem_address(ir_smem_alloc("x", 512, 128))), 0, x);
}

/* Only the lanes that point to a row count. */
TEST(rows_of_matrices)
{
    uint32_t out[1];
    for (matrices = 1; matrices <= 4; matrices *= 2) {
        device->ops->counters_reset(device);
        run_into(describe_some_matrices, 32, 1, out, 1);
        assert_int_equal(test_counter(device, "shared bytes written", NULL), 128 * matrices);
        assert_int_equal(test_counter(device, "shared wavefronts", NULL), matrices);
    }
}

/* The device itself */

TEST(models)
{
    ckl_device *l4 = NULL;
    device_kernel *loaded = NULL;
    assert_ok(emulator_open("l4", &l4));
    assert_int_equal(l4->info.sm_count, 58);
    assert_false(l4->info.has_tma);
    assert_fails(test_load(l4, (test_kernel){ describe_add, IR_SM90A, .threads = 32 }, &loaded), CKL_UNSUPPORTED,
                 "wgmma");
    l4->ops->close(l4);
    assert_fails(emulator_open("h900", &l4), CKL_INVALID,
                 "emulator:h900 is not known; there are h200, h100, b200, a100, a10, l4");
    emulator_options options = emulator_options_default();
    assert_ok(emulator_options_parse("seed=7 completion=eager schedule=random budget=10 threads=2", &options));
    assert_true(options.seed == 7 && options.completion == COMPLETION_EAGER && options.schedule == SCHEDULE_RANDOM);
    assert_int_equal(emulator_options_parse("completion=later", &options), CKL_INVALID);
    assert_int_equal(emulator_options_parse("speed=11", &options), CKL_INVALID);
    char spaces[513] = { 0 };
    memset(spaces, ' ', 511);
    assert_ok(emulator_options_parse(spaces, &options));
    spaces[511] = ' ';
    assert_fails(emulator_options_parse(spaces, &options), CKL_INVALID, "CKL_EMULATOR is longer than 511 characters");
}

KERNEL(describe_clustered, ir_smem_alloc("x", 200 * 1024, 128))

TEST(residency)
{
    device_kernel *loaded = NULL;
    int count = 0;
    assert_ok(test_load(device, (test_kernel){ describe_clustered, IR_SM90A, .threads = 384, .cluster = 2 }, &loaded));
    assert_ok(device->ops->clusters_resident(device, loaded, &count));
    assert_int_equal(count, 66);
    device->ops->unload(device, loaded);
    assert_ok(test_load(device, (test_kernel){ describe_add, IR_SM80, .threads = 256 }, &loaded));
    assert_ok(device->ops->clusters_resident(device, loaded, &count));
    assert_int_equal(count, 132 * 8);
    device->ops->unload(device, loaded);
}

TEST(host_memory)
{
    unsigned char host[64] = { 0 };
    void *memory = test_upload(device, NULL, 64), *sparse = NULL;
    assert_fails(device->ops->copy_in(device, (char *)memory + 32, host, 33, NULL), CKL_INVALID,
                 "1 bytes past the end of the allocation of 64 bytes");
    assert_ok(device->ops->copy_out(device, host, memory, 64, NULL));
    assert_int_equal(host[63], 0xff); // fresh memory is poison
    assert_ok(device->ops->alloc(device, (size_t)100 << 30, &sparse));
    assert_ok(device->ops->fill(device, (char *)sparse + ((size_t)99 << 30), 1, 64, NULL));
    void *more = NULL;
    assert_int_equal(device->ops->alloc(device, (size_t)100 << 30, &more), CKL_NO_MEMORY);
    device->ops->release(device, sparse);
    assert_int_equal(device->ops->fill(device, sparse, 0, 1, NULL), CKL_INVALID);
}

TEST(counters)
{
    device->ops->counters_reset(device);
    float host[1024] = { 0 };
    uint32_t n = 1000;
    void *x = test_upload(device, host, sizeof host);
    test_kernel k = { describe_add, IR_SM80, .threads = 256, .grid = 4 };
    assert_ok(test_run(device, k, (void *[]){ &x, &x, &x, &n }));
    assert_int_equal(test_counter(device, "ctas", NULL), 4);
    assert_int_equal(test_counter(device, "warp instructions", NULL), 32 * 23); // every warp executes all
    const int64_t of_classes = test_counter(device, "alu instructions", NULL) +
                               test_counter(device, "memory instructions", NULL) +
                               test_counter(device, "control instructions", NULL);
    assert_int_equal(of_classes, 32 * 23);
    assert_int_equal(test_counter(device, "sfu instructions", NULL), 0);
    assert_int_equal(test_counter(device, "memory instructions", NULL), 32 * 3);
    assert_int_equal(test_counter(device, "global bytes read", NULL), 2 * 4 * 1000);
    assert_int_equal(test_counter(device, "global write sectors", NULL), 125);
    assert_int_equal(test_counter(device, "global write requests", NULL), 32);
}

RUN_TESTS(open_device, close_device)
