/* unit_emulator_rules.c - the checker's finer rules: which bytes are initialised, and what a fence covers. */
#include "unit_emulator_faults.h"

#define GLOBAL "read of uninitialised global memory"

/* Bytes of global memory: a read wants all of its bytes written, of every lane, and a write makes no others so. */

static void store_global(val at, int64_t offset, ir_type type)
{
    test_store_value(IR_GLOBAL, type, at, offset, ir_int(type, 1));
}

/* Every lane but the last one has its element. */
static void one_lane_unwritten(parameters p, ir_type type, int bytes)
{
    val at = test_element(p.fresh, tid(), bytes);
    IF(ir_compare(IR_LT, tid(), u32(planted ? 31 : 32)))
        store_global(at, 0, type);
    ir_plain(IR_WARP_SYNC, 0, 0);
    BLAMED(test_load_value(IR_GLOBAL, type, at, 0));
}

FAULT_CALL(unwritten_byte, one_lane_unwritten(p, CKL_U8, 1), 32, 1, GLOBAL, "1 bytes at fresh+31")
FAULT_CALL(unwritten_half, one_lane_unwritten(p, IR_U16, 2), 32, 1, GLOBAL, "2 bytes at fresh+62")
FAULT_CALL(unwritten_word, one_lane_unwritten(p, IR_U32, 4), 32, 1, GLOBAL, "4 bytes at fresh+124")
FAULT_CALL(unwritten_double, one_lane_unwritten(p, IR_U64, 8), 32, 1, GLOBAL, "8 bytes at fresh+248")

/* Of a vector of 16 bytes, one word. */
static void unwritten_part(parameters p, int part)
{
    val at = test_element(p.fresh, tid(), 16), x[4];
    for (int i = 0; i < 4; i++) {
        x[i] = ir_reg(IR_U32);
        if (i != part || !planted)
            store_global(at, 4 * i, IR_U32);
    }
    BLAMED(ir_load(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, at, 0, x));
}

FAULT_CALL(unwritten_first_word, unwritten_part(p, 0), 32, 1, GLOBAL, "16 bytes at fresh+0")
FAULT_CALL(unwritten_last_word, unwritten_part(p, 3), 32, 1, GLOBAL, "16 bytes at fresh+0")

/* A word of which a byte is missing. */
FAULT(unwritten_last_byte, 32, 1, GLOBAL, "4 bytes at fresh+0")
{
    val at = test_element(p.fresh, tid(), 4);
    store_global(at, 0, IR_U16);
    store_global(at, 2, CKL_U8);
    if (!planted)
        store_global(at, 3, CKL_U8);
    BLAMED(test_load_value(IR_GLOBAL, IR_U32, at, 0));
}

/* Lanes that write to two allocations, one by one therefore: each byte counts. */
FAULT(two_allocations, 32, 1, GLOBAL, "4 bytes at fresh+128")
{
    val is_first = ir_compare(IR_LT, tid(), u32(16));
    val base = ir_select(is_first, p.memory, p.fresh), at = test_element(base, tid(), 4);
    store_global(at, 0, IR_U32);
    if (planted)
        at = test_element(base, add(tid(), u32(16)), 4);
    BLAMED(test_load_value(IR_GLOBAL, IR_U32, at, 0));
}

/* A byte written apart leaves the others of its word as they were. */
FAULT(byte_of_word, 32, 1, "read of uninitialised shared memory", "x is read before")
{
    val at = add(tile("x", 128), mul(tid(), 4));
    if (!planted)
        test_store_value(IR_SHARED, IR_U32, at, 0, u32(1));
    test_store_value(IR_SHARED, CKL_U8, at, 1, ir_int(CKL_U8, 1));
    BLAMED(test_load_value(IR_SHARED, IR_U32, at, 0));
}

/* Of three warps that read, one does not meet the warp that writes. */
FAULT(third_reader, 128, 1, "shared-memory race", "warp 2")
{
    val at = add(tile("x", 128), mul(ir_sreg(IR_LANE), 4)), warp = ir_sreg(IR_WARP);
    IF(is_warp(3))
        test_store_value(IR_SHARED, IR_U32, at, 0, u32(1));
    ir_bar_sync(u32(0), 128);
    IF(ir_compare(IR_NE, warp, u32(3)))
        test_load_value(IR_SHARED, IR_U32, at, 0);
    if (planted)
        ir_if(ir_compare(IR_NE, warp, u32(2)));
    ir_bar_sync(u32(1), planted ? 96 : 128);
    if (planted)
        ir_end_if();
    IF(is_warp(3))
        test_store_value(IR_SHARED, IR_U32, at, 0, u32(2));
}

FAULT(misaligned_shared, 32, 1, "misaligned shared access", "x+2")
{
    val at = add(tile("x", 160), mul(tid(), 4));
    BLAMED(test_store_value(IR_SHARED, IR_U32, add(at, u32(planted ? 2 : 4)), 0, u32(1)));
}

/* Addresses of a cluster */

FAULT(rank_of_no_cta, 32, 2, "no such CTA", "mapa of rank 2 in a cluster of 2 CTAs")
{
    val at = tile("x", 128);
    BLAMED(ir_mapa(at, add(ir_sreg(IR_CLUSTER_RANK), u32(planted ? 1 : 0))));
}

/* An address that mapa has not made. */
FAULT(address_of_no_cta, 32, 2, "out-of-bounds shared access", "is no address of this cluster of 2 CTAs")
{
    enum { NEXT_CTA = 1 << 24 };
    val at = ir_mapa(tile("x", 128), ir_sreg(IR_CLUSTER_RANK));
    BLAMED(test_store_value(IR_SHARED_CLUSTER, IR_U32, add(at, u32(planted ? 2 * NEXT_CTA : 0)), 0, u32(1)));
}

/* Proxy fences */

static void fill_row(val at, int64_t bytes)
{
    for (int64_t b = 0; b < bytes; b += 4 * 32)
        test_store_value(IR_SHARED, IR_U32, add(at, mul(tid(), 4)), b, u32(0));
}

static void fence(void)
{
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
}

static void bulk_store(parameters p, val x, int64_t bytes)
{
    IF(ir_elect()) {
        BLAMED(ir_bulk_store(p.memory, x, 0, u32(bytes)));
        finish_bulk();
    }
}

/* What a bulk store has been waited for to read, a load may overwrite: no fence is needed between the two. */
FAULT(load_over_store, 32, 1, "shared-memory race", "bulk store")
{
    val x = tile("x", 512), bar = barrier("bar");
    fill_tile(x, 512, 32);
    fence();
    ir_plain(IR_WARP_SYNC, 0, 0);
    IF(ir_elect()) {
        init_barrier(bar);
        ir_bulk_store(p.memory, x, 0, u32(512));
        ir_plain(IR_BULK_COMMIT, 0, 0);
        ir_plain(IR_BULK_WAIT, planted ? 1 : 0, 1);
        ir_mbarrier_expect(bar, 0, u32(512));
        BLAMED(ir_bulk_load(x, 0, test_element(p.memory, u32(512), 1), u32(512), bar));
        ir_mbarrier_wait(bar, 0, u32(0));
        ir_plain(IR_BULK_WAIT, 0, 0);
    }
}

/* A fence covers what came before it, and no store that follows. */
FAULT(store_after_fence, 32, 1, "missing fence_proxy_async", "x+128")
{
    val x = tile("x", 512);
    fill_row(x, 512);
    fence();
    test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 128, u32(1));
    if (!planted)
        fence();
    ir_plain(IR_WARP_SYNC, 0, 0);
    bulk_store(p, x, 512);
}

/* What the async proxy has written it may read again without a fence; not what a store put there since. */
FAULT(store_after_copy, 32, 1, "missing fence_proxy_async", "reads x")
{
    val x = tile("x", 512), bar = barrier("bar");
    IF(ir_elect()) {
        init_barrier(bar);
        ir_mbarrier_expect(bar, 0, u32(512));
        ir_bulk_load(x, 0, p.memory, u32(512), bar);
    }
    ir_plain(IR_WARP_SYNC, 0, 0);
    ir_mbarrier_wait(bar, 0, u32(0));
    if (planted)
        test_store_value(IR_SHARED, IR_U32, add(x, mul(tid(), 4)), 0, u32(1));
    ir_plain(IR_WARP_SYNC, 0, 0);
    bulk_store(p, x, 512);
}

/* The fence of a warp that does not know of the initialisation makes it visible to nobody. */
FAULT(init_fenced_by_another, 64, 1, "missing fence_mbarrier_init")
{
    val x = tile("x", 512), bar = barrier("bar");
    IF(is_warp(0)) {
        IF(ir_elect())
            ir_mbarrier_init(bar, 0, 1);
    }
    if (!planted)
        ir_bar_sync(u32(0), 64);
    IF(is_warp(1))
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
    ir_bar_sync(u32(0), 64);
    IF(is_warp(0)) {
        IF(ir_elect()) {
            ir_mbarrier_expect(bar, 0, u32(512));
            BLAMED(ir_bulk_load(x, 0, p.memory, u32(512), bar));
        }
        ir_plain(IR_WARP_SYNC, 0, 0);
        ir_mbarrier_wait(bar, 0, u32(0));
    }
}

/* All four warps of a wgmma must have fenced its operands, not just the one that wrote them. */
FAULT(operands_fenced_by_one, 128, 1, "missing fence_proxy_async")
{
    enum { N = 16, A_BYTES = 64 * 16 * 2, B_BYTES = N * 16 * 2 };
    val a = tile("a", A_BYTES), b = tile("b", 1024), d[N / 2];
    for (int i = 0; i < N / 2; i++)
        ir_assign(d[i] = ir_reg(CKL_F32), ir_float(CKL_F32, 0));
    IF(is_warp(0)) {
        fill_row(a, A_BYTES);
        fill_row(b, B_BYTES);
    }
    ir_bar_sync(u32(0), 128);
    if (planted)
        ir_if(is_warp(0));
    fence();
    if (planted)
        ir_end_if();
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAMED(ir_wgmma(CKL_F16, CKL_F16, N, d, descriptor(a), descriptor(b), ir_int(IR_PRED, 0), false, false));
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

/* Copies of single threads: no more bytes than the vector has, from a multiple of its size. */
static void askew_cp_async(parameters p, int bytes, int from)
{
    const val zero = ir_sreg(IR_CTA_X), x = add(tile("x", 512), mul(tid(), 16));
    const val at = add(mul(tid(), 16), add(zero, u32(planted ? from : 0)));
    BLAMED(ir_cp_async(x, 0, test_element(p.memory, at, 1), 16, add(zero, u32(planted ? bytes : 16))));
    finish_cp_async();
}

FAULT_CALL(cp_async_of_more_bytes, askew_cp_async(p, 17, 0), 32, 1, "misused cp_async", "17 bytes of 16 are to be read")
FAULT_CALL(cp_async_from_between, askew_cp_async(p, 16, 8), 32, 1, "misaligned global access", "is no multiple of 16")

/* The emulator keeps clocks of so many mbarriers. */
FAULT(more_barriers_than_clocks, 32, 1, "emulator limit", "more than 129 mbarriers and asynchronous queues")
{
    enum { FEW = 129, MANY = 130 };
    const val bars = tile("bars", 8 * MANY);
    IF(ir_elect()) {
        BLAME;
        for (int i = 0; i < (planted ? MANY : FEW); i++)
            ir_mbarrier_init(bars, 8 * i, 1);
        HERE;
    }
}

/* Copies from the host initialise their bytes, no more. */
KERNEL(load_byte, test_load_value(IR_GLOBAL, CKL_U8, pointer("bytes"), 0))

TEST(host_copies)
{
    ckl_device *gpu = test_open("budget=100000");
    unsigned char host[5] = { 0 }, *memory = test_upload(gpu, NULL, 64);
    assert_ok(gpu->ops->copy_in(gpu, memory + 8, host, sizeof host, NULL));
    for (int i = 0; i < 64; i++) {
        void *at = memory + i;
        test_kernel k = { load_byte, IR_SM90A, .threads = 32 };
        bool written = i >= 8 && i < 8 + (int)sizeof host;
        if (test_run(gpu, k, (void *[]){ &at }) != (written ? CKL_OK : CKL_DEVICE_FAULT))
            fail_msg("byte %d", i);
    }
    gpu->ops->close(gpu);
}

RUN_TESTS(NULL, NULL)
