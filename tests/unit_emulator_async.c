/*
 * unit_emulator_async.c - asynchronous work on the emulated GPU: TMA, bulk copies, cp.async, mma and clusters, each
 * under every completion and schedule.
 */
#include "unit_emulator_async.h"

#include "cute/cluster_allreduce.h"
#include "cute/tensor.h"
#include "device/emulator/matrix.h"

/* TMA: a box that hangs over the corner of a matrix, loaded, read back with ordinary loads, stored elsewhere by TMA */

enum {
    COLUMNS = 72,
    ROWS = 40,
    BOX_COLUMNS = 64,
    BOX_ROWS = 32,
    BOX_BYTES = BOX_COLUMNS * BOX_ROWS * 2,
    AT_X = 16,
    AT_Y = 24
};

static void describe_boxes(int from_column, int to_column, int to_row)
{
    val from = ir_tensor_map_param("from"), to = ir_tensor_map_param("to"), raw = pointer("raw");
    val box = ir_smem_address(ir_smem_alloc("box", BOX_BYTES, 1024)), bar = barrier("bar");
    val origin[] = { ir_int(CKL_I32, from_column), ir_int(CKL_I32, AT_Y) },
        target[] = { ir_int(CKL_I32, to_column), ir_int(CKL_I32, to_row) };
    val tid = ir_sreg(IR_TID_X);
    IF(ir_elect()) {
        init_barrier(bar);
        ir_mbarrier_expect(bar, 0, u32(BOX_BYTES));
        ir_tma_load(box, 0, from, bar, u32(0), 2, origin);
    }
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_mbarrier_wait(bar, 0, u32(0));
    for (int at = 0; at < BOX_BYTES; at += 32 * 4)
        test_store_value(IR_GLOBAL, IR_U32, test_element(raw, tid, 4), at,
                         test_load_value(IR_SHARED, IR_U32, add(box, mul(tid, 4)), at));
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_elect()) {
        ir_tma_store(IR_TMA_WRITE, to, box, 0, 2, target);
        finish_bulk();
    }
}

static void describe_box(void)
{
    describe_boxes(AT_X, 0, 16); // the last rows of the box land outside
}

KERNEL(describe_box_before_its_tensor, describe_boxes(AT_X, 0, -8))
KERNEL(describe_load_inside_a_chunk, describe_boxes(AT_X + 1, 0, 16))
KERNEL(describe_store_inside_a_chunk, describe_boxes(AT_X, 4, 16))

static void check_box(int span)
{
    uint16_t host[ROWS][COLUMNS], raw[BOX_BYTES / 2], stored[ROWS][COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        host[i / COLUMNS][i % COLUMNS] = (uint16_t)(i + 1);
    void *from = test_upload(gpu, host, sizeof host), *out = test_upload(gpu, NULL, sizeof raw);
    memset(stored, 0xee, sizeof stored);
    void *to = test_upload(gpu, stored, sizeof stored);
    tensor_map from_map = map_2d(from, COLUMNS, ROWS, BOX_COLUMNS, BOX_ROWS, span);
    tensor_map to_map = map_2d(to, COLUMNS, ROWS, BOX_COLUMNS, BOX_ROWS, span);
    gpu->ops->counters_reset(gpu);
    run_or_fail((test_kernel){ describe_box, IR_SM90A, .threads = 32 }, (void *[]){ &from_map, &to_map, &out });
    assert_int_equal(test_counter(gpu, "tma bytes loaded", NULL), (COLUMNS - AT_X) * (ROWS - AT_Y) * 2);
    assert_int_equal(test_counter(gpu, "tma bytes stored", NULL), BOX_COLUMNS * (ROWS - 16) * 2);
    assert_int_equal(test_counter(gpu, "tma instructions", NULL), 2);
    assert_true(test_counter(gpu, "sync instructions", NULL) > 2);
    assert_ok(gpu->ops->copy_out(gpu, raw, out, sizeof raw, NULL));
    assert_ok(gpu->ops->copy_out(gpu, stored, to, sizeof stored, NULL));
    for (int y = 0; y < BOX_ROWS; y++)
        for (int x = 0; x < BOX_COLUMNS; x++) {
            bool inside = AT_Y + y < ROWS && AT_X + x < COLUMNS;
            uint32_t place = swizzle_address((uint32_t)(y * BOX_COLUMNS + x) * 2, span) / 2;
            assert_int_equal(raw[place], inside ? host[AT_Y + y][AT_X + x] : 0);
        }
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++) {
            bool covered = x < BOX_COLUMNS && y >= 16 && y - 16 < BOX_ROWS;
            bool inside = AT_Y + y - 16 < ROWS && AT_X + x < COLUMNS;
            assert_int_equal(stored[y][x], !covered ? 0xeeee : inside ? host[AT_Y + y - 16][AT_X + x] : 0);
        }
    static const struct {
        void (*describe)(void);
        const char *words;
    } refused[] = { { describe_box_before_its_tensor, "coordinate 1 of the box is -8" },
                    { describe_load_inside_a_chunk, "begins at element 17 of a row, 34 bytes in" },
                    { describe_store_inside_a_chunk, "begins at element 4 of a row, 8 bytes in" } };
    for (int i = 0; i < COUNT_OF(refused); i++) {
        assert_fails(test_run(gpu, (test_kernel){ refused[i].describe, IR_SM90A, .threads = 32 },
                              (void *[]){ &from_map, &to_map, &out }),
                     CKL_DEVICE_FAULT, refused[i].words);
    }
}

TEST_EVERYWHERE(boxes)
{
    check_box(0);
    check_box(128);
}

/* Bulk copies through shared memory, and cp.async with a cut-off tail */

static void describe_bulk(void)
{
    val from = pointer("from"), to = pointer("to");
    val x = ir_smem_address(ir_smem_alloc("x", 1024, 128)), bar = barrier("bar");
    IF(ir_elect()) {
        init_barrier(bar);
        ir_mbarrier_expect(bar, 0, u32(1024));
        ir_bulk_prefetch(from, u32(1024));
        ir_prefetch(add(from, ir_int(IR_U64, 1023)));
        ir_bulk_load(x, 0, from, u32(512), bar);
        ir_bulk_load(x, 512, add(from, ir_int(IR_U64, 512)), u32(512), bar);
        ir_mbarrier_wait(bar, 0, u32(0));
        ir_bulk_store(to, x, 0, u32(1024));
        finish_bulk();
    }
}

static void describe_cp_async(void)
{
    val from = pointer("from"), to = pointer("to"), tid = ir_sreg(IR_TID_X), v[4];
    val x = add(ir_smem_address(ir_smem_alloc("x", 1024, 128)), mul(tid, 16));
    val valid = ir_select(ir_compare(IR_LT, tid, u32(20)), u32(16), u32(4));
    for (int i = 0; i < 4; i++)
        v[i] = ir_reg(IR_U32);
    ir_cp_async(x, 0, test_element(from, tid, 16), 16, u32(16));
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    ir_cp_async(x, 512, test_element(from, tid, 16), 16, valid);
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    for (int half = 0; half < 2; half++) {
        ir_plain(IR_CP_ASYNC_WAIT, 1 - half, 0);
        ir_load(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 4, x, 512 * half, v);
        ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, test_element(to, tid, 16), 512 * half, v);
    }
}

TEST_EVERYWHERE(copies)
{
    uint32_t host[256], out[256];
    for (uint32_t i = 0; i < 256; i++)
        host[i] = i * 0x01010101 + 1;
    void *from = test_upload(gpu, host, sizeof host), *to = test_upload(gpu, NULL, sizeof out);
    run_or_fail((test_kernel){ describe_bulk, IR_SM90A, .threads = 32 }, (void *[]){ &from, &to });
    assert_ok(gpu->ops->copy_out(gpu, out, to, sizeof out, NULL));
    assert_memory_equal(out, host, sizeof out);
    run_or_fail((test_kernel){ describe_cp_async, IR_SM80, .threads = 32 }, (void *[]){ &from, &to });
    assert_ok(gpu->ops->copy_out(gpu, out, to, sizeof out, NULL));
    for (uint32_t i = 0; i < 256; i++)
        assert_int_equal(out[i], i < 128 || i < 128 + 80 || i % 4 == 0 ? host[i % 128] : 0);
}

/* Four lanes copy at once, each its own: four rows of a matrix as a box, and further down as bytes. */

enum { COPIERS = 4, OWN_ROWS = 4, ROW_BYTES = 128, OWN_BYTES = OWN_ROWS * ROW_BYTES, HALF_BYTES = COPIERS * OWN_BYTES };

static void describe_copies_of_lanes(void)
{
    HERE;
    val from_map = ir_tensor_map_param("from map"), to_map = ir_tensor_map_param("to map"), lane = ir_sreg(IR_LANE);
    val from = test_element(pointer("from"), lane, OWN_BYTES);
    val to = test_element(pointer("to"), lane, OWN_BYTES);
    val x = add(ir_smem_address(ir_smem_alloc("x", 2 * HALF_BYTES, 128)), mul(lane, OWN_BYTES));
    val bar = barrier("bar"), origin[] = { i32(u32(0)), i32(mul(lane, OWN_ROWS)) };
    IF(ir_elect()) {
        ir_mbarrier_init(bar, 0, COPIERS);
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    }
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_compare(IR_LT, lane, u32(COPIERS))) {
        ir_mbarrier_expect(bar, 0, u32(2 * OWN_BYTES));
        ir_tma_load(x, 0, from_map, bar, u32(0), 2, origin);
        ir_bulk_load(x, HALF_BYTES, add(from, ir_int(IR_U64, HALF_BYTES)), u32(OWN_BYTES), bar);
        ir_mbarrier_wait(bar, 0, u32(0));
        ir_tma_store(IR_TMA_WRITE, to_map, x, 0, 2, origin);
        ir_bulk_store(add(to, ir_int(IR_U64, HALF_BYTES)), x, HALF_BYTES, u32(OWN_BYTES));
        finish_bulk();
    }
}

TEST_EVERYWHERE(copies_of_lanes)
{
    uint16_t host[HALF_BYTES], out[HALF_BYTES]; // of two bytes each: both halves
    for (int i = 0; i < COUNT_OF(host); i++)
        host[i] = (uint16_t)(i + 1);
    void *from = test_upload(gpu, host, sizeof host), *to = test_upload(gpu, NULL, sizeof out);
    tensor_map maps[2];
    for (int i = 0; i < 2; i++)
        maps[i] = map_2d(i ? to : from, ROW_BYTES / 2, COPIERS * OWN_ROWS, ROW_BYTES / 2, OWN_ROWS, 0);
    run_or_fail((test_kernel){ describe_copies_of_lanes, IR_SM90A, .threads = 32 },
                (void *[]){ &maps[0], &maps[1], &from, &to });
    assert_ok(gpu->ops->copy_out(gpu, out, to, sizeof out, NULL));
    assert_memory_equal(out, host, sizeof out);
}

/* Distributed shared memory: every CTA writes a number into CTA 0 and reads its neighbour's */

static void describe_distributed(void)
{
    val out = pointer("out"), rank = ir_sreg(IR_CLUSTER_RANK), tid = ir_sreg(IR_TID_X);
    val x = ir_smem_address(ir_smem_alloc("x", 20, 8));
    IF(equals(tid, 0))
        test_store_value(IR_SHARED, IR_U32, x, 0, mul(rank, 100));
    cluster_sync();
    IF(equals(tid, 0))
        test_store_value(IR_SHARED_CLUSTER, IR_U32, add(ir_mapa(x, u32(0)), mul(rank, 4)), 4, add(rank, u32(1)));
    val next = ir_binary(IR_AND, add(rank, u32(1)), u32(3));
    val neighbour = test_load_value(IR_SHARED_CLUSTER, IR_U32, ir_mapa(x, next), 0);
    cluster_sync();
    val sum = ir_reg(IR_U32);
    ir_assign(sum, u32(0));
    IF(equals(rank, 0)) {
        for (int i = 1; i <= 4; i++)
            ir_assign(sum, add(sum, test_load_value(IR_SHARED, IR_U32, x, 4 * i)));
    }
    val place = ir_fma(ir_sreg(IR_CTA_X), u32(32), tid);
    test_store_value(IR_GLOBAL, IR_U32, test_element(out, place, 4), 0, add(sum, neighbour));
}

TEST_EVERYWHERE(distributed)
{
    uint32_t out[8 * 32];
    void *memory = test_upload(gpu, NULL, sizeof out);
    run_or_fail((test_kernel){ describe_distributed, IR_SM90A, .threads = 32, .cluster = 4, .grid = 8 },
                (void *[]){ &memory });
    assert_ok(gpu->ops->copy_out(gpu, out, memory, sizeof out, NULL));
    for (uint32_t i = 0; i < 8 * 32; i++)
        assert_int_equal(out[i], (i / 32 + 1) % 4 * 100 + (i / 32 % 4 == 0 ? 10 : 0));
}

/*
 * A cluster_allreduce: the threads of a cluster, or of a CTA, add up numbers in rounds; a round is received in the next
 * one.
 */

enum { SUM_THREADS = 64, SUM_ROUNDS = 9, SUM_VALUES = 2 };

static void describe_allreduce_of(int cluster)
{
    HERE;
    const reduction sums = reduce_sums(SUM_VALUES);
    val out = pointer("out");
    cluster_allreduce allreduce = make_cluster_allreduce("allreduce", SUM_THREADS, cluster, SUM_VALUES);
    val number =
        cluster == 1 ? ir_sreg(IR_TID_X) : ir_fma(ir_sreg(IR_CLUSTER_RANK), u32(SUM_THREADS), ir_sreg(IR_TID_X));
    IF(equals(ir_sreg(IR_TID_X), 0)) {
        cluster_allreduce_init(&allreduce);
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    }
    if (cluster == 1)
        ir_bar_sync(u32(0), SUM_THREADS);
    else
        cluster_sync();
    cute_loop rounds = cute_loop_begin(u32(0), u32(SUM_ROUNDS + 1), u32(1));
    val sent[] = { cute_variable(IR_U32, ir_binary(IR_MUL, number, rounds.index)), cute_variable(IR_U32, number) };
    IF(ir_compare(IR_LT, rounds.index, u32(SUM_ROUNDS)))
        cluster_allreduce_begin(&allreduce, &sums, sent);
    IF(ir_compare(IR_LT, u32(0), rounds.index)) {
        val all[] = { cute_variable(IR_U32, u32(0)), cute_variable(IR_U32, u32(0)) };
        cluster_allreduce_end(&allreduce, &sums, all);
        val before = ir_binary(IR_SUB, rounds.index, u32(1));
        val place = ir_fma(before, u32(SUM_THREADS * cluster), number);
        test_store_value(IR_GLOBAL, IR_U32, test_element(out, place, 4), 0, add(all[0], all[1]));
    }
    cute_loop_end(&rounds);
    if (cluster > 1)
        cluster_sync();
}

KERNEL(describe_allreduce, describe_allreduce_of(4))
KERNEL(describe_allreduce_of_cta, describe_allreduce_of(1))

static void expect_sums(int cluster, void (*describe)(void))
{
    const uint32_t count = (uint32_t)(SUM_THREADS * cluster);
    static uint32_t out[SUM_ROUNDS * SUM_THREADS * 4];
    void *memory = test_upload(gpu, NULL, sizeof out);
    test_kernel k = { describe, IR_SM90A, .threads = SUM_THREADS, .cluster = cluster, .grid = cluster };
    run_or_fail(k, (void *[]){ &memory });
    assert_ok(gpu->ops->copy_out(gpu, out, memory, sizeof out, NULL));
    for (uint32_t i = 0; i < SUM_ROUNDS * count; i++)
        assert_int_equal(out[i], (i / count + 1) * (count * (count - 1) / 2));
}

TEST_EVERYWHERE(allreduce)
{
    expect_sums(4, describe_allreduce);
    expect_sums(1, describe_allreduce_of_cta);
}

/* mma.sync: one 16 x 8 x 16 product of fragments that every lane makes up */

static void describe_mma(void)
{
    val out = pointer("out"), from = pointer("from"), lane = ir_sreg(IR_LANE);
    val r[6], d[4];
    for (int i = 0; i < 6; i++)
        r[i] = test_load_value(IR_GLOBAL, IR_U32, test_element(from, lane, 24), 4 * i);
    for (int i = 0; i < 4; i++) {
        d[i] = ir_reg(CKL_F32);
        ir_assign(d[i], ir_float(CKL_F32, 1));
    }
    ir_mma(CKL_F16, CKL_F16, d, r, r + 4);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_F32, 4, test_element(out, lane, 16), 0, d);
}

TEST_EVERYWHERE(mma)
{
    uint16_t host[32][12], a[16][16], b[8][16];
    float d[32][4];
    int row, column;
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 12; i++) {
            host[lane][i] = small_number((uint32_t)(lane * 12 + i));
            (i < 8 ? matrix_mma_a : matrix_mma_b)(lane, i < 8 ? i : i - 8, &row, &column);
            *(i < 8 ? &a[row][column] : &b[row][column]) = host[lane][i];
        }
    void *from = test_upload(gpu, host, sizeof host), *out = test_upload(gpu, NULL, sizeof d);
    gpu->ops->counters_reset(gpu);
    run_or_fail((test_kernel){ describe_mma, IR_SM80, .threads = 32 }, (void *[]){ &out, &from });
    assert_int_equal(test_counter(gpu, "tensor flops", NULL), 2 * 16 * 8 * 16);
    assert_ok(gpu->ops->copy_out(gpu, d, out, sizeof d, NULL));
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            matrix_mma_d(lane, i, &row, &column);
            float expected = 1;
            for (int k = 0; k < 16; k++)
                expected += value_of(a[row][k]) * value_of(b[column][k]);
            assert_true(d[lane][i] == expected);
        }
}

/* 16 products of 2^-25 and 1: Hopper keeps the products, Ampere and Ada do not. */
TEST_EVERYWHERE(tensor_cores)
{
    static const struct {
        const char *device;
        float sum;
    } devices[] = { { "h200", 1 + 0x1p-21F }, { "h100", 1 + 0x1p-21F }, { "a100", 1 }, { "a10", 1 }, { "l4", 1 } };
    uint16_t host[32][12];
    float d[32][4];
    ckl_device *before = gpu;
    for (int i = 0; i < 32 * 12; i++)
        host[i / 12][i % 12] = i % 12 < 8 ? 0x0c00 : 0x0800; // 2^-12 and 2^-13
    for (int i = 0; i < COUNT_OF(devices); i++) {
        emulator_options options = emulator_options_default();
        assert_ok(emulator_open_with(devices[i].device, &options, &gpu));
        void *from = test_upload(gpu, host, sizeof host), *out = test_upload(gpu, NULL, sizeof d);
        gpu->ops->counters_reset(gpu);
        run_or_fail((test_kernel){ describe_mma, IR_SM80, .threads = 32 }, (void *[]){ &out, &from });
        assert_int_equal(test_counter(gpu, "tensor flops", NULL), 2 * 16 * 8 * 16);
        assert_ok(gpu->ops->copy_out(gpu, d, out, sizeof d, NULL));
        for (int j = 0; j < 32 * 4; j++)
            assert_true(d[j / 4][j % 4] == devices[i].sum);
        gpu->ops->close(gpu);
    }
    gpu = before;
}

/* A map of all memory: rows of a matrix, then units of 16 bytes and of 4 GiB that say where it lies. */

static int first_row; // of the box

static void describe_box_anywhere(void)
{
    HERE;
    val map = ir_tensor_map_param("map"), near = ir_scalar_param(IR_U32, "near"), far = ir_scalar_param(IR_U32, "far");
    val box = ir_smem_address(ir_smem_alloc("box", 16 * 128, 1024)), bar = barrier("bar");
    const val origin[] = { ir_int(CKL_I32, 0), ir_int(CKL_I32, first_row), i32(near), i32(far) };
    IF(ir_elect()) {
        init_barrier(bar);
        ir_mbarrier_expect(bar, 0, u32(16 * 128));
        ir_tma_load(box, 0, map, bar, u32(0), 4, origin);
        ir_mbarrier_wait(bar, 0, u32(0));
    }
}

static ckl_status load_box_anywhere(void *matrix, int row)
{
    enum { UNIT = 16, NEAR_BITS = 28 };
    const uint64_t units = ((uintptr_t)matrix - UNIT) / UNIT;
    uint32_t near = (uint32_t)(units & ((1 << NEAR_BITS) - 1)), far = (uint32_t)(units >> NEAR_BITS);
    const tensor_map_desc desc = { .dtype = CKL_F16,
                                   .rank = 4,
                                   .address = (void *)(uintptr_t)UNIT, // NOLINT: below all memory
                                   .size = { 64, 40, 1 << NEAR_BITS, 1 << 17 },
                                   .stride = { 2, 128, UNIT, (int64_t)UNIT << NEAR_BITS },
                                   .box = { 64, 16, 1, 1 },
                                   .swizzle = SWIZZLE_128 };
    tensor_map map;
    assert_ok(gpu->ops->encode_tensor_map(gpu, &desc, &map));
    first_row = row;
    return test_run(gpu, (test_kernel){ describe_box_anywhere, IR_SM90A, .threads = 32 },
                    (void *[]){ &map, &near, &far });
}

TEST_EVERYWHERE(boxes_of_all_memory)
{
    static const uint16_t numbers[40 * 64];
    void *matrix = test_upload(gpu, numbers, sizeof numbers);
    if (load_box_anywhere(matrix, 32) != CKL_OK) // half of it is beyond the last row
        fail_msg("%s", ckl_error());
    assert_fails(load_box_anywhere(matrix, 40), CKL_DEVICE_FAULT, "box beyond its tensor");
}

/* What lanes that take no part hold is no address: 20 lanes copy 16 bytes each, every third of the others 4. */
static void describe_some_lanes(void)
{
    val from = pointer("from"), lane = ir_sreg(IR_LANE);
    val x = add(ir_smem_address(ir_smem_alloc("x", 1024, 128)), mul(lane, 16));
    IF(ir_compare(IR_GE, lane, u32(12)))
        ir_cp_async(x, 0, test_element(from, lane, 16), 16, u32(16));
    ELSE
    {
        IF(equals(ir_binary(IR_REM, lane, u32(3)), 0))
            ir_cp_async(x, 0, test_element(from, lane, 16), 4, u32(4));
    }
    finish_cp_async();
}

TEST_EVERYWHERE(counted_copies)
{
    static const unsigned char host[32 * 16];
    void *from = test_upload(gpu, host, sizeof host);
    gpu->ops->counters_reset(gpu);
    run_or_fail((test_kernel){ describe_some_lanes, IR_SM80, .threads = 32 }, (void *[]){ &from });
    assert_int_equal(test_counter(gpu, "global read requests", NULL), 2);
    assert_int_equal(test_counter(gpu, "global bytes read", NULL), 20 * 16 + 4 * 4);
    assert_int_equal(test_counter(gpu, "global read sectors", NULL), 20 * 16 / 32 + 4);
}

/* Two copies, one behind the other; whose number is lower has waited for the one that came first. */
static void describe_two_copies(void)
{
    val from = pointer("from"), out = pointer("out");
    val x = ir_smem_address(ir_smem_alloc("x", 32, 16)), bars = ir_smem_address(ir_smem_alloc("bars", 16, 8));
    val warp = ir_binary(IR_SHR, ir_sreg(IR_TID_X), u32(5));
    IF(equals(ir_sreg(IR_TID_X), 0)) {
        for (int i = 0; i < 2; i++)
            ir_mbarrier_init(bars, 8 * i, 1);
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
        for (int i = 0; i < 2; i++) {
            val bar = add(bars, u32(8 * i));
            ir_mbarrier_expect(bar, 0, u32(16));
            ir_bulk_load(x, 16 * i, from, u32(16), bar);
        }
    }
    ir_bar_sync(u32(0), 64);
    IF(ir_elect()) {
        ir_mbarrier_wait(add(bars, mul(warp, 8)), 0, u32(0));
        val number = ir_atomic(IR_ORDER_DEFAULT, IR_SCOPE_GPU, IR_RED_ADD, out, 8, u32(1));
        test_store_value(IR_GLOBAL, IR_U32, test_element(out, warp, 4), 0, number);
    }
}

/* What a kernel of two warps leaves in `out`, of three numbers that were 0. */
static void run_copies(void (*describe)(void), const char *completion, int seed, uint32_t numbers[3])
{
    enum { BYTES = 3 * sizeof *numbers };
    char settings[64];
    snprintf(settings, sizeof settings, "completion=%s seed=%d", completion, seed);
    gpu = test_open(settings);
    static const uint32_t zeros[8];
    void *from = test_upload(gpu, zeros, sizeof zeros), *out = test_upload(gpu, zeros, BYTES);
    run_or_fail((test_kernel){ describe, IR_SM90A, .threads = 64 }, (void *[]){ &from, &out });
    assert_ok(gpu->ops->copy_out(gpu, numbers, out, BYTES, NULL));
    gpu->ops->close(gpu);
}

enum { SEEDS = 16 };

/* Lazy copies arrive in their order, random ones in any. */
TEST(order_of_copies)
{
    static const char *const orders[] = { "lazy", "random" };
    int swapped[COUNT_OF(orders)] = { 0 };
    uint32_t numbers[3];
    for (int o = 0; o < COUNT_OF(orders); o++)
        for (int seed = 1; seed <= SEEDS; seed++) {
            run_copies(describe_two_copies, orders[o], seed, numbers);
            assert_int_equal(numbers[0] + numbers[1], 1);
            swapped[o] += numbers[0] > numbers[1];
        }
    assert_int_equal(swapped[0], 0);
    assert_in_range(swapped[1], 1, SEEDS - 1);
}

/* One of two lanes waits for its store, and looks at both destinations before the other one has waited. */
static void describe_own_store(void)
{
    val to = pointer("to"), waits = ir_scalar_param(IR_U32, "waits"), lane = ir_sreg(IR_TID_X), seen[2];
    val x = ir_smem_address(ir_smem_alloc("x", 16, 16));
    for (int i = 0; i < 4; i++)
        test_store_value(IR_SHARED, IR_U32, x, 4 * i, u32(1));
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_compare(IR_LT, lane, u32(2))) {
        ir_bulk_store(test_element(to, lane, 16), x, 0, u32(16));
        ir_plain(IR_BULK_COMMIT, 0, 0);
        IF(ir_compare(IR_EQ, lane, waits)) {
            ir_plain(IR_BULK_WAIT, 0, 0);
            for (int i = 0; i < 2; i++)
                seen[i] = test_load_value(IR_GLOBAL, IR_U32, to, 16 * i);
            for (int i = 0; i < 2; i++)
                test_store_value(IR_GLOBAL, IR_U32, to, 32 + 4 * i, seen[i]);
        }
        ELSE ir_plain(IR_BULK_WAIT, 0, 0);
    }
}

/* Stores that come as late as they may: who waits for his own has not waited for another lane's. */
TEST(stores_of_others)
{
    for (uint32_t waits = 0; waits < 2; waits++) {
        static const uint32_t zeros[12];
        uint32_t out[12];
        gpu = test_open("completion=lazy");
        void *to = test_upload(gpu, zeros, sizeof zeros);
        run_or_fail((test_kernel){ describe_own_store, IR_SM90A, .threads = 32 }, (void *[]){ &to, &waits });
        assert_ok(gpu->ops->copy_out(gpu, out, to, sizeof out, NULL));
        for (int i = 0; i < 8; i++)
            assert_int_equal(out[i], 1);
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(out[8 + i], i == waits);
        gpu->ops->close(gpu);
    }
}

RUN_TESTS(NULL, NULL)
