/* unit_emulator_wgmma.c - the checker: faults of a warpgroup: operands and accumulators of wgmma, setmaxnreg. */
#include "unit_emulator_faults.h"

enum { WGMMA_N = 16, WGMMA_A_BYTES = 64 * 32, WGMMA_B_BYTES = WGMMA_N * 32 };

static void accumulators(val d[WGMMA_N / 2])
{
    for (int i = 0; i < WGMMA_N / 2; i++)
        ir_assign(d[i] = ir_reg(CKL_F32), ir_float(CKL_F32, 0));
}

static void issue_wgmma(val *d, val a, val b)
{
    ir_wgmma(CKL_F16, CKL_F16, WGMMA_N, d, descriptor(a), descriptor(b), ir_int(IR_PRED, 1), false, false);
}

static void finish_wgmma(void)
{
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

FAULT(wgmma_without_fence, 128, 1, "missing fence_proxy_async", "(wgmma)")
{
    val a = tile("a", WGMMA_A_BYTES), b = tile("b", 1024), d[WGMMA_N / 2];
    accumulators(d);
    fill_tile(a, WGMMA_A_BYTES, 128);
    IF(ir_compare(IR_LT, tid(), u32(32)))
        fill_tile(b, WGMMA_B_BYTES, 32);
    if (!planted)
        ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(u32(0), 128);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAMED(issue_wgmma(d, a, b));
    finish_wgmma();
}

/* Operands in place and visible to the async proxy, and accumulators. */
static void prepare_operands(val *a, val *b, val d[WGMMA_N / 2])
{
    *a = tile("a", WGMMA_A_BYTES);
    *b = tile("b", 1024);
    fill_tile(*a, WGMMA_A_BYTES, 128);
    IF(ir_compare(IR_LT, tid(), u32(32)))
        fill_tile(*b, WGMMA_B_BYTES, 32);
    ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    ir_bar_sync(u32(0), 128);
    accumulators(d);
}

FAULT(reserved_bits, 128, 1, "bad matrix descriptor", "reserved bits are set")
{
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b, d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    const val askew = ir_binary(IR_OR, descriptor(a), ir_int(IR_U64, planted ? 1 << 15 : 0));
    BLAMED(ir_wgmma(CKL_F16, CKL_F16, WGMMA_N, d, askew, descriptor(b), ir_int(IR_PRED, 1), false, false));
    finish_wgmma();
}

/* Planted, the product is under way when the warps leave: closed as a group, or not even that. */
static void leaves_wgmma(bool closed)
{
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b, d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    issue_wgmma(d, a, b);
    if (!planted || closed)
        ir_plain(IR_WGMMA_COMMIT, 0, 0);
    if (!planted)
        ir_plain(IR_WGMMA_WAIT, 0, 0);
}

FAULT_CALL(leaves_closed_wgmma, leaves_wgmma(true), 128, 1, "exit with work under way",
           "wgmma was issued and not waited for")
FAULT_CALL(leaves_open_wgmma, leaves_wgmma(false), 128, 1, "exit with work under way",
           "wgmma was issued and not waited for")

/* One warp writes the operands; the others of the warpgroup must know of it too. */
FAULT(operands_of_one_warp, 128, 1, "shared-memory race", "warp 0", "(wgmma)")
{
    val a = tile("a", WGMMA_A_BYTES), b = tile("b", 1024), d[WGMMA_N / 2];
    accumulators(d);
    IF(is_warp(0)) {
        fill_tile(a, WGMMA_A_BYTES, 32);
        fill_tile(b, WGMMA_B_BYTES, 32);
        ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0);
    }
    if (!planted)
        ir_bar_sync(u32(0), 128);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAMED(issue_wgmma(d, a, b));
    finish_wgmma();
}

/* Starts a product of prepared operands, its group committed; returns the address of A. */
static val start_wgmma(val d[WGMMA_N / 2])
{
    val a, b;
    prepare_operands(&a, &b, d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    issue_wgmma(d, a, b);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    return a;
}

FAULT(accumulator_before_wait, 128, 1, "register in use by wgmma", "read", "(add)")
{
    val d[WGMMA_N / 2];
    start_wgmma(d);
    if (!planted)
        ir_plain(IR_WGMMA_WAIT, 0, 0);
    BLAMED(add(d[3], d[3]));
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

FAULT(accumulator_written_before_wait, 128, 1, "register in use by wgmma", "written")
{
    val d[WGMMA_N / 2];
    start_wgmma(d);
    ir_plain(IR_WGMMA_WAIT, planted ? 1 : 0, 0);
    BLAMED(ir_assign(d[0], ir_float(CKL_F32, 1)));
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

/* A in registers is as much in use as the accumulators are. */
FAULT(operand_written_before_wait, 128, 1, "register in use by wgmma", "written")
{
    val a, b, d[WGMMA_N / 2], words[4];
    prepare_operands(&a, &b, d);
    for (int i = 0; i < 4; i++)
        ir_assign(words[i] = ir_reg(IR_U32), u32(0));
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    ir_wgmma_rs(CKL_F16, CKL_F16, WGMMA_N, d, words, descriptor(b), ir_int(IR_PRED, 1), false);
    ir_plain(IR_WGMMA_COMMIT, 0, 0);
    ir_plain(IR_WGMMA_WAIT, planted ? 1 : 0, 0);
    BLAMED(ir_assign(words[3], u32(1)));
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

/* Words of A, then accumulators; the one written behind the fence, or none. */
enum { A_WORDS = 4 };
static int late;

static void one_register_unfenced(parameters p)
{
    val a, b, r[A_WORDS + WGMMA_N / 2], *d = r + A_WORDS;
    prepare_operands(&a, &b, d);
    for (int i = 0; i < A_WORDS; i++)
        ir_assign(r[i] = ir_reg(IR_U32), u32(0));
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    if (late >= 0)
        ir_assign(r[late], late < A_WORDS ? u32(1) : ir_float(CKL_F32, 1));
    BLAMED(ir_wgmma_rs(CKL_F16, CKL_F16, WGMMA_N, d, r, descriptor(b), ir_int(IR_PRED, 1), false));
    finish_wgmma();
}

/* Each register counts alone. */
TEST(unfenced_registers)
{
    static const fault_case c = { one_register_unfenced, 128, 1, { "missing wgmma_fence" }, 1, 0 };
    for (late = -1; late < A_WORDS + WGMMA_N / 2; late++) {
        bench b = bench_open("");
        assert_int_equal(bench_run(&b, &c, true), late < 0 ? CKL_OK : CKL_DEVICE_FAULT);
        if (late >= 0)
            check_report(&c, "");
        b.gpu->ops->close(b.gpu);
    }
}

FAULT(missing_wgmma_fence, 128, 1, "missing wgmma_fence")
{
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b, d);
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    ir_assign(d[0], ir_float(CKL_F32, 1));
    if (!planted)
        ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAMED(issue_wgmma(d, a, b));
    finish_wgmma();
}

/* An operand is overwritten while wgmma may still read it. */
FAULT(operand_overwritten, 128, 1, "shared-memory race", "wgmma of warps 0 to 3", "no wgmma_wait")
{
    val d[WGMMA_N / 2], a = start_wgmma(d);
    ir_plain(IR_WGMMA_WAIT, planted ? 1 : 0, 0);
    ir_bar_sync(u32(0), 128);
    BLAMED(test_store_value(IR_SHARED, IR_U32, add(a, mul(tid(), 4)), 0, u32(0)));
    ir_plain(IR_WGMMA_WAIT, 0, 0);
}

FAULT(wgmma_diverges, 128, 1, "divergence at a converged instruction")
{
    val a, b, d[WGMMA_N / 2];
    prepare_operands(&a, &b, d);
    val at = planted ? add(a, mul(ir_sreg(IR_WARP), 256)) : a;
    ir_plain(IR_WGMMA_FENCE, 0, 0);
    BLAMED(issue_wgmma(d, at, b));
    finish_wgmma();
}

/* Planted, one warp of the warpgroup keeps its registers. */
FAULT(registers_of_some_warps, 128, 1, "misused setmaxnreg", "only some warps")
{
    if (planted)
        ir_if(ir_compare(IR_LT, ir_sreg(IR_WARP), u32(3)));
    BLAMED(ir_plain(IR_SETMAXNREG, 40, 0));
    if (planted)
        ir_end_if();
}

/* Planted, the last of them is one that setmaxnreg does not take, by the verifier or by what the warps have. */
static void set_registers(int first, int last, int takes)
{
    if (first) {
        ir_plain(IR_SETMAXNREG, first, 0);
        ir_bar_sync(u32(0), 128);
    }
    BLAMED(ir_plain(IR_SETMAXNREG, last, takes));
}

FAULT_CALL(no_such_registers, set_registers(0, planted ? 44 : 40, 0), 128, 1, "misused setmaxnreg",
           "44 registers are no multiple of 8 in 24 to 256")
FAULT_CALL(too_few_registers, set_registers(0, planted ? 16 : 24, 0), 128, 1, "misused setmaxnreg",
           "16 registers are no multiple of 8 in 24 to 256")
FAULT_CALL(takes_fewer_registers, set_registers(40, planted ? 32 : 48, 1), 128, 1, "misused setmaxnreg",
           "has 40 registers per thread, 32 are not more")
FAULT_CALL(gives_more_registers, set_registers(40, planted ? 48 : 32, 0), 128, 1, "misused setmaxnreg",
           "has 40 registers per thread, 48 are not fewer")

/* A thread has 255 at most, however few there are. */
FAULT_CALL(gives_more_than_there_are, set_registers(0, planted ? 256 : 248, 0), 128, 1, "misused setmaxnreg",
           "has 255 registers per thread, 256 are not")

RUN_TESTS(NULL, NULL)
