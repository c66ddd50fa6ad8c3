/* unit_ir.c - the verifier refuses each kind of wrong kernel, and takes its right twin; devices that are not there. */
#include "unit_verify.h"

#include "device/device.h"

/* Wrong kernels, each with a right twin */

RULE(types, "kernel types: kernel.c:7: add: operand of type f32 does not fit")
{
    val in[] = { unknown(IR_U32), right ? unknown(IR_U32) : unknown(CKL_F32) }, out = ir_reg(IR_U32);
    ir_emit((ir_inst){ .op = IR_ADD, .type = IR_U32 }, 1, &out, 2, in);
}

RULE(counts, "add: source operand 1 is missing")
{
    val in[] = { unknown(IR_U32), unknown(IR_U32) }, out = ir_reg(IR_U32);
    ir_emit((ir_inst){ .op = IR_ADD, .type = IR_U32 }, 1, &out, right ? 2 : 1, in);
}

RULE(uninitialised, "is read before it is written")
{
    val x = ir_reg(IR_U32);
    if (right)
        ir_assign(x, u32(1));
    ir_binary(IR_ADD, x, unknown(IR_U32));
}

RULE(one_side, "made at kernel.c:7, inside the if of line 7, is read after it: it needs a value on every path")
{
    val x = ir_reg(IR_U32);
    ir_if(ir_compare(IR_EQ, unknown(IR_U32), u32(0)));
    ir_assign(x, u32(1));
    if (right) {
        ir_else();
        ir_assign(x, u32(2));
    }
    ir_end_if();
    ir_binary(IR_ADD, x, x);
}

RULE(same_guard, "inside the if of line 7, is read after it: it needs a value on every path")
{
    val x = ir_reg(IR_U32), p = ir_reg(IR_PRED);
    ir_assign(p, ir_compare(IR_EQ, unknown(IR_U32), u32(0)));
    IF(p)
        ir_assign(x, u32(1));
    if (!right)
        ir_assign(p, ir_unary(IR_NOT, p));
    IF(p)
        ir_binary(IR_ADD, x, x);
}

/* C's variable names another value inside the IF, and that value is not there after it. */
RULE(value_of_block,
     "kernel.c:9: mul: the u32 made at kernel.c:8, inside the if of line 7, is read after it: make it a variable()")
{
    val x = unknown(IR_U32), y = ir_reg(IR_U32);
    val sum;
    ir_assign(y, x);
    IF(ir_compare(IR_EQ, x, u32(0))) {
        ir_at("kernel.c", 8);
        ir_assign(y, sum = ir_binary(IR_ADD, x, u32(3)));
    }
    ir_at("kernel.c", 9);
    ir_binary(IR_MUL, right ? y : sum, x);
}

RULE(loop_exit, "inside the loop of line 7, is read after it: it needs a value on every path")
{
    val x = ir_reg(IR_U32), p = ir_compare(IR_EQ, unknown(IR_U32), u32(0));
    FOREVER {
        if (!right)
            ir_break(p);
        ir_assign(x, u32(1));
        if (right)
            ir_break(p);
    }
    ir_binary(IR_ADD, x, x);
}

RULE(vector_alignment, "st: offset 8 is not a multiple of the 16 bytes accessed")
{
    val x[4] = { u32(1), u32(2), u32(3), u32(4) };
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 4, unknown(IR_U64), right ? 16 : 8, x);
}

RULE(offset_beyond_32_bits, "st: offset=4294967296 does not fit the 32 bits")
{
    const val x = u32(1);
    ir_store(IR_SHARED, IR_CACHE_DEFAULT, IR_U32, 1, unknown(IR_U32), right ? 16 : (int64_t)1 << 32, &x);
}

RULE(order_of_store, "st: order=2 does not exist for st")
{
    ir_order order = right ? IR_ORDER_RELEASE : IR_ORDER_ACQUIRE;
    ir_store_strong(order, IR_SCOPE_GPU, IR_U32, unknown(IR_U64), 0, u32(1));
}

RULE(order_of_vector, "ld: an access with an order is to one element of global memory")
{
    val out[2] = { ir_reg(IR_U32), ir_reg(IR_U32) }, address = unknown(IR_U64);
    ir_order order = right ? IR_ORDER_DEFAULT : IR_ORDER_RELAXED;
    ir_emit((ir_inst){ .op = IR_LD, .type = IR_U32, .n = 2, .order = order }, 2, out, 1, &address);
}

RULE(vector_length, "st: n=4 elements of i64 are not 1, 2 or 4 in at most 16 bytes")
{
    val x[4] = { unknown(CKL_I64), unknown(CKL_I64), unknown(CKL_I64), unknown(CKL_I64) };
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, CKL_I64, right ? 2 : 4, unknown(IR_U64), 0, x);
}

RULE(link, "end_if: the if of line 7 is linked to another instruction")
{
    IF(ir_compare(IR_EQ, unknown(IR_U32), u32(0))) {
    }
    if (!right)
        ir_current()->insts[ir_current()->inst_count - 2].match = 0;
}

RULE(loose_break, "break: stands outside a loop")
{
    val p = ir_compare(IR_EQ, unknown(IR_U32), u32(0));
    FOREVER
        ir_break(p);
    ir_inst *insts = ir_current()->insts;
    int count = ir_current()->inst_count;
    if (!right) { // the loop is gone
        insts[count - 3] = (ir_inst){ .op = IR_WARP_SYNC };
        insts[count - 1] = (ir_inst){ .op = IR_WARP_SYNC };
    }
}

RULE(target, "fence_proxy_async: needs sm_90, the kernel is for sm_80")
{
    ir_current()->target = right ? IR_SM90A : IR_SM80;
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
}

RULE(smem_overlap, "shared memory b at 48 overlaps a at 0")
{
    ir_smem_alloc("a", 64, 16);
    ir_smem_alloc("b", 64, 16);
    if (right) { // neighbours, the later one first
        ir_current()->smem[0].offset = 64;
        ir_current()->smem[1].offset = 0;
    } else
        ir_current()->smem[1].offset = 48;
}

RULE(smem_end, "shared memory a ends at 64, beyond the kernel's 32")
{
    ir_smem_alloc("a", 64, 16);
    if (!right)
        ir_current()->smem_bytes = 32;
}

RULE(threads, "threads=100 is not a multiple of 32 in 32..1024")
{
    ir_current()->threads = right ? 96 : 100;
}

RULE(barrier_id, "bar_sync: id=16 is not in 0..15")
{
    ir_bar_sync(u32(right ? 15 : 16), 32);
}

RULE(barrier_threads, "bar_sync: n=288 threads is not a multiple of 32 in 32..256")
{
    ir_bar_sync(u32(0), right ? 256 : 288);
}

RULE(register_count, "setmaxnreg: n=244 registers is not a multiple of 8 in 24..256")
{
    ir_plain(IR_SETMAXNREG, right ? 240 : 244, 1);
}

RULE(tma_rank, "tma_store: n=6 coordinates are not in 1..5")
{
    val zero = u32(0), c[5] = { u32(0), u32(0), u32(0), u32(0), u32(0) };
    ir_inst inst = { .op = IR_TMA_STORE, .n = right ? 5 : 6 };
    val in[8] = { ir_tensor_map_param("map"), zero, c[0], c[1], c[2], c[3], c[4], zero };
    ir_emit(inst, 0, NULL, right ? 7 : 8, in);
}

RULE(reduction, "red: mode=2 does not exist for f32")
{
    ir_reduce(IR_SCOPE_GPU, right ? IR_RED_ADD : IR_RED_MAX, unknown(IR_U64), 0, unknown(CKL_F32));
}

/* Convergence */

static void shuffle_where(val p)
{
    IF(p)
        ir_shuffle(IR_SHFL_XOR, unknown(IR_U32), u32(1));
}

RULE(lane_zero, "shuffle: wants a converged warp, but its lanes diverge at the if of line 7")
{
    shuffle_where(ir_compare(IR_EQ, right ? ir_sreg(IR_WARP) : ir_sreg(IR_LANE), u32(0)));
}

RULE(part_of_warp, "shuffle: wants a converged warp, but its lanes diverge at the if of line 7")
{
    shuffle_where(ir_compare(IR_LT, ir_sreg(IR_TID_X), u32(right ? 64 : 40)));
}

RULE(elected, "shuffle: wants a converged warp, but its lanes diverge at the if of line 7")
{
    val p = ir_elect();
    shuffle_where(right ? ir_vote(IR_VOTE_ANY, p) : p);
}

RULE(lane_loop, "warp_sync: wants a converged warp, but its lanes diverge at the loop of line 7")
{
    val i = ir_reg(IR_U32);
    ir_assign(i, right ? ir_sreg(IR_WARP) : ir_sreg(IR_TID_X));
    FOREVER {
        ir_break(ir_compare(IR_GE, i, u32(right ? 3 : 100)));
        ir_plain(IR_WARP_SYNC, 0, 0);
        ir_assign(i, ir_binary(IR_ADD, i, u32(128)));
    }
}

RULE(warpgroup, "setmaxnreg: wants a converged warpgroup, but its threads diverge at the if of line 7")
{
    val warp = ir_sreg(IR_WARP);
    IF(right ? ir_compare(IR_GE, warp, u32(4)) : ir_compare(IR_EQ, warp, u32(4)))
        ir_plain(IR_SETMAXNREG, 40, 0);
}

RULE(warpgroup_number, "setmaxnreg: wants a converged warpgroup, but its threads diverge at the if of line 7")
{
    val thread = ir_sreg(IR_TID_X), group = ir_binary(IR_DIV, thread, u32(right ? 128 : 32));
    IF(ir_compare(IR_EQ, group, u32(1)))
        ir_plain(IR_SETMAXNREG, 40, 0);
}

/* WGMMA */

static void multiply(val *d, int n)
{
    val desc = ir_int(IR_U64, 0);
    ir_wgmma(CKL_F16, CKL_F16, n, d, desc, desc, ir_int(IR_PRED, 1), false, false);
}

RULE(wgmma_n, "wgmma: n=12 is not a multiple of 8 in 8..256")
{
    val d[N / 2];
    accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, right ? 16 : 12);
}

RULE(wgmma_read, "belongs to the wgmma of line 7 until a wgmma_wait")
{
    val d[N / 2];
    accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, N);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, right ? 0 : 1, 0);
    ir_binary(IR_ADD, d[3], d[3]);
}

RULE(wgmma_order, "belongs to the wgmma of line 7 until a wgmma_wait")
{
    val d[N / 2];
    accumulators(d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, N);
    val first = d[0];
    d[0] = right ? d[0] : d[1];
    d[1] = right ? d[1] : first;
    multiply(d, N);
}

RULE(wgmma_fence, "wgmma: register 0 was used after the last wgmma_fence")
{
    val d[N / 2];
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    accumulators(d);
    if (right)
        ir_plain(IR_WGMMA_FENCE, 0, 0);
    multiply(d, N);
}

/* Two groups in flight are one too many for the second iteration of the loop. */
RULE(wgmma_loop, "belongs to the wgmma of line 7 until a wgmma_wait")
{
    val d[N / 2], copy = ir_reg(CKL_F32), p = ir_compare(IR_EQ, unknown(IR_U32), u32(0));
    accumulators(d);
    FOREVER {
        ir_assign(copy, d[0]);
        ir_plain(IR_WGMMA_FENCE, 0, 0);
        multiply(d, N);
        ir_plain(IR_WGMMA_COMMIT, 0, 0);
        ir_plain(IR_WGMMA_WAIT, right ? 0 : 1, 0);
        ir_break(p);
    }
}

RULE(wgmma_a, "belongs to the wgmma_rs of line 7 until a wgmma_wait")
{
    val d[N / 2], a[4], desc = ir_int(IR_U64, 0);
    accumulators(d);
    for (int i = 0; i < 4; i++)
        ir_assign(a[i] = ir_reg(IR_U32), u32(i));
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    for (int i = 0; i < 2; i++)
        ir_wgmma_rs(CKL_F16, CKL_F16, N, d, a, desc, ir_int(IR_PRED, 1), false);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    if (right)
        ir_plain(IR_WGMMA_WAIT, 0, 0);
    ir_assign(a[2], u32(7));
}

/* Parameters may be read before, global memory not. */
RULE(before_grid_wait, "kernel.c:7: st: comes before the grid_wait of line 9: the kernel before may")
{
    val x = ir_scalar_param(IR_U64, "x"), zero = u32(0);
    if (right)
        ir_plain(IR_GRID_WAIT, 0, 0);
    ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, IR_U32, 1, x, 0, &zero);
    ir_at("kernel.c", 9);
    ir_plain(IR_GRID_WAIT, 0, 0);
}

/* A machine without a driver says so, and devices that do not exist are refused. */
TEST(missing_devices)
{
    ckl_device *device = NULL;
    assert_fails_with(ckl_device_open("gpu", &device), CKL_INVALID,
                      "device: gpu is none of cuda, cuda:NUMBER, emulator, emulator:NAME such as emulator:h200");
    if (ckl_device_open("cuda", &device) == CKL_OK) {
        ckl_device_close(device);
        skip(); // a GPU is there
    }
    assert_null(device);
    assert_says(ckl_error(), "NVIDIA driver");
}

RUN_TESTS(NULL, NULL)
