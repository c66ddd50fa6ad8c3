/*
 * unit_language.c - the language of kernel files catches its own misuse: every mistake is a sentence with its line,
 * nothing crashes or hangs after it. unit_lines.c looks at the lines of right calls.
 */
#include "unit_language.h"

#include "cute/values.h"

static int blamed; // the line that the sentence must name

/* The statement on the next line is to blame. */
#define BLAME_NEXT (blamed = __LINE__ + 1)

static val unknown(void)
{
    return param(U32, "unknown");
}

typedef struct mistake {
    void (*describe)(void);
    const char *sentence; // a part of it
} mistake;

/* Whatever it is that was found, it is our bug and not the user's: one status. */
static void test_mistake(void **state)
{
    const mistake *m = *state;
    ir_kernel *kernel = NULL;
    char line[64];
    blamed = 0;
    ckl_status status = describe(m->describe, &kernel);
    if (status == CKL_OK)
        status = ir_verify(kernel);
    ir_kernel_free(kernel);
    snprintf(line, sizeof line, "unit_language.c:%d:", blamed);
    if (status != CKL_INTERNAL || !strstr(ckl_error(), m->sentence) || !strstr(ckl_error(), line))
        fail_msg("%s, line %d: %s", ckl_status_name(status), blamed, ckl_error());
}

/* A test of a mistake: MISTAKE(name, words) { ... } describes the kernel that makes it. */
#define MISTAKE(name, words)                                     \
    static void name(void);                                      \
    __attribute__((constructor)) static void enlist_##name(void) \
    {                                                            \
        static const mistake it = { name, words };               \
        enlist(#name, test_mistake, NULL, NULL, &it);            \
    }                                                            \
    static void name(void)

/* Misuse while describing. Each kernel goes on with what it got. */

/* All that takes a tiled MMA, an accumulator and tiles. */
static void use_all(const tiled_mma *mma, tensor acc)
{
    tensor sA = tile_in_smem("A"), sC = tile_in_smem("C");
    tensor rA = fragment_A(mma, TILE_M, TILE_K), rB = fragment_B(mma, TILE_N, TILE_K);
    fill(acc, immf(0));
    gemm(mma, descriptors_A(mma, sA), descriptors_B(mma, sA), acc, yes());
    gemm(mma, rA, rB, acc, yes());
    ldmatrix_A(mma, sA, thread(), rA);
    ldmatrix_B(mma, sA, thread(), rB);
    stmatrix_C(mma, acc, sC, thread());
    tensor tAsA = partition_A(mma, sA, thread()), tBsB = partition_B(mma, sA, thread());
    tensor tCsC = partition_C(mma, sC, thread());
    copy(tAsA, rA, 2);
    copy(tBsB, rB, 2);
    copy(acc, tCsC, 2);
    tensor cC = partition_C(mma, identity_tensor(shape(TILE_M, TILE_N)), thread());
    add(coordinate(cC, 0, 0), coordinate(cC, 0, 1));
    for (int first = 0; first < 256; first += 32)
        set(accumulator_columns(acc, first, 32), 5, at(acc, 1000));
    mma_fence();
    mma_commit();
    mma_wait(0);
}

MISTAKE(unknown_atom, "there is no MMA atom SM90_64x100x16_F32F16F16_SS; the nearest is SM90_64x96x16_F32F16F16_SS")
{
    BLAME_NEXT;
    tiled_mma mma = make_tiled_mma("SM90_64x100x16_F32F16F16_SS", 1, 1);
    use_all(&mma, fragment_C(&mma, TILE_M, TILE_N));
}

MISTAKE(unknown_name, "there is no MMA atom an atom of which")
{
    BLAME_NEXT;
    tiled_mma mma = make_tiled_mma("an atom of which nobody knows and whose name is longer than any other", 2, 2);
    use_all(&mma, fragment_C(&mma, TILE_M, TILE_N));
}

MISTAKE(columns_outside, "accumulator_columns: 32 columns from 64 on are no groups of 8 of one atom of 64 columns")
{
    tiled_mma mma = make_tiled_mma("SM90_64x64x16_F32F16F16_SS", 1, 1);
    tensor acc = fragment_C(&mma, TILE_M, TILE_N);
    fill(acc, immf(0));
    BLAME_NEXT;
    tensor part = accumulator_columns(acc, 64, 32);
    set(part, 0, immf(1));
    use_all(&mma, acc);
}

MISTAKE(columns_of_no_fragment, "accumulator_columns: 8 columns from 0 on")
{
    tensor acc = fragment(F32, compact(leaf(8)));
    BLAME_NEXT;
    accumulator_columns(acc, 0, 8);
}

MISTAKE(gemm_of_other_accumulators, "gemm with SM90_64x64x16_F32F16F16_SS: A is ")
{
    tiled_mma mma = make_tiled_mma("SM90_64x64x16_F32F16F16_SS", 1, 1);
    tiled_mma wide = make_tiled_mma("SM90_64x256x16_F32F16F16_SS", 1, 1);
    tensor acc = fragment_C(&wide, TILE_M, 256), sA = tile_in_smem("A");
    fill(acc, immf(0));
    tensor tCrA = descriptors_A(&mma, sA), tCrB = descriptors_B(&mma, sA);
    BLAME_NEXT;
    gemm(&mma, tCrA, tCrB, acc, yes());
}

MISTAKE(stmatrix_of_other_tile, "SM90_U32x4_STSM_N does not copy register ")
{
    tiled_mma mma = make_tiled_mma("SM90_64x64x16_F32F16F16_SS", 1, 1);
    tensor acc = fragment_C(&mma, TILE_M, TILE_N), sC = tile_in_smem("C");
    fill(acc, immf(0));
    tensor half = accumulator_columns(acc, 32, 32);
    BLAME_NEXT;
    stmatrix_C(&mma, half, sC, thread());
}

MISTAKE(unknown_copy_atom, "there is no copy atom SM80_CP_ASYNC_CACHEGLOBAL<64>")
{
    BLAME_NEXT;
    tiled_copy copy = make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<64>", F16, compact(leaf(THREADS)), compact(leaf(8)));
    tensor gX = gmem_tensor(pointer("x"), F16, compact(leaf(1024))),
           sX = smem_tensor("X", F16, compact(leaf(1024)), 16);
    tensor tXgX = partition_S(&copy, gX, thread()), tXsX = partition_D(&copy, sX, thread());
    copy_tiled(&copy, tXgX, tXsX);
    copy_if(&copy, partition_S(&copy, identity_tensor(leaf(1024)), thread()), leaf(1000), tXgX, tXsX, 0);
}

MISTAKE(break_in_staged_store, "leaves the if while")
{
    const staged_store store = { imm(1), THREADS, eq(thread(), imm(0)) };
    BLAME_NEXT;
    STAGED_STORE(&store) {
        break;
    }
}

MISTAKE(slice_outside, "register (4,4):(1,4) has nothing at (_,4)")
{
    tensor rX = fragment(F32, compact(coord(4, 4)));
    fill(rX, immf(0));
    BLAME_NEXT;
    tensor row = slice(rX, _, 4);
    set(row, 3, immf(1));
}

MISTAKE(dynamic_fragment, "a fragment of (4,?):(1,4): the layout of registers must be static")
{
    layout a = make_layout(coord(4, unknown()), coord(1, 4));
    BLAME_NEXT;
    tensor rX = fragment(F32, a);
    fill(rX, immf(0));
    set(rX, 1, immf(1));
}

MISTAKE(dynamic_fragment_like, "the layout of registers must be static")
{
    tensor gX = gmem_tensor(convert(U64, unknown()), F32, make_layout(coord(unknown()), coord(1)));
    BLAME_NEXT;
    tensor rX = fragment_like(gX, F32);
    copy(gX, rX, 4);
}

MISTAKE(break_in_loop, "C's break, return or goto leaves the loop while it is described")
{
    BLAME_NEXT;
    LOOP(i, unknown()) {
        add(i, i);
        break;
    }
}

MISTAKE(break_in_forever, "leaves the loop while it is described; BREAK_IF() leaves a loop")
{
    BLAME_NEXT;
    FOREVER {
        BREAK_IF(eq(unknown(), imm(0)));
        break;
    }
    add(unknown(), imm(1));
}

MISTAKE(break_in_if, "leaves the if while")
{
    for (int i = 0; i < 3; i++) {
        BLAME_NEXT;
        IF(eq(unknown(), imm(i))) {
            break;
        }
    }
}

MISTAKE(return_in_else, "leaves the else while")
{
    IF(eq(unknown(), imm(0)))
        add(unknown(), imm(1));
    BLAME_NEXT;
    ELSE
    {
        return;
    }
}

MISTAKE(goto_in_loop, "leaves the loop while")
{
    BLAME_NEXT;
    LOOP(i, imm(4)) {
        add(i, i);
        goto out;
    }
out:
    add(unknown(), imm(1));
}

MISTAKE(break_in_inner, "leaves the if while")
{
    LOOP(i, unknown()) {
        add(i, i);
        BLAME_NEXT;
        IF(eq(i, imm(1))) {
            break;
        }
    }
}

MISTAKE(large_imm, "imm(2147483648) does not fit 32 bits: imm64() does")
{
    BLAME_NEXT;
    add(param(I64, "x"), imm(0x80000000));
}

MISTAKE(large_constant, "the constant 4886718345 does not fit u32")
{
    BLAME_NEXT;
    add(unknown(), imm64(0x123456789));
}

MISTAKE(bad_composition, "composition")
{
    BLAME_NEXT;
    HERE;
    composition(compact(leaf(4)), make_layout(leaf(8), leaf(3)));
}

MISTAKE(division_by_zero, "division of the constant 7 by zero")
{
    BLAME_NEXT;
    div(imm(7), imm(0));
}

MISTAKE(value_of_if, "inside the if of line")
{
    val x = param(F32, "x"), y = x;
    IF(gt(x, immf(0)))
        y = add(x, immf(1));
    BLAME_NEXT;
    mul(y, x);
}

MISTAKE(value_of_loop, "is read after it: make it a variable()")
{
    val x = param(F32, "x"), sum = x;
    LOOP(i, unknown())
        sum = add(x, convert(F32, i));
    BLAME_NEXT;
    mul(sum, x);
}

static void nested_blocks(val p, int depth)
{
    for (int i = 0; i < depth; i++)
        ir_if(p);
    for (int i = 0; i < depth; i++)
        ir_end_if();
}

KERNEL(deepest_blocks, nested_blocks(eq(unknown(), imm(0)), 64))

MISTAKE(one_block_more, "control flow is nested more than 64 deep")
{
    val p = eq(unknown(), imm(0));
    BLAME_NEXT;
    IF(p)
        nested_blocks(p, 64);
}

/* The same calculations without a kernel are the user's: the layout calculator's. */
TEST(calculation)
{
    ir_describe_begin(NULL, IR_SM80);
    composition(compact(leaf(4)), make_layout(leaf(8), leaf(3)));
    assert_int_equal(ir_describe_end(NULL), CKL_INVALID);
}

static void right_constants(void)
{
    val x = param(I64, "x");
    add(x, imm64(0x123456789));
    bit_and(unknown(), imm(-1)); // a mask of all bits
    add(x, imm(INT32_MIN));
    convert(U32, imm64(0x123456789)); // cut on purpose
}

TEST(right_constants)
{
    ir_kernel *kernel = NULL;
    assert_ok(describe(right_constants, &kernel));
    assert_ok(ir_verify(kernel));
    assert_true(ir_is_int(kernel->insts[1].in[1], 0x123456789));
    ir_kernel_free(kernel);
}

TEST(depth)
{
    ir_kernel *kernel = NULL;
    assert_ok(describe(deepest_blocks, &kernel));
    assert_ok(ir_verify(kernel));
    ir_kernel_free(kernel);
}

/* A difference of a sum that is known is that of its base; what one kernel knew the next does not. */
static void difference_of_known_sum(void)
{
    val base = param(I32, "base"), y = param(I32, "y"), first = add(base, y), second = mul(base, y);
    values_know(first, base, 5);
    values_know(second, y, 7);
    ckl_val_sub(first, y);
    ckl_val_sub(second, base);
    values_forget();
    ckl_val_sub(first, y);
}

/* More sums than are kept: the others are values like any. */
static void many_known_sums(void)
{
    val base = param(I32, "base"), y = param(I32, "y");
    for (int i = 0; i < 2000; i++)
        values_know(add(base, imm(i + 1)), base, i + 1);
    ckl_val_sub(add(base, y), y);
}

TEST(known_sums)
{
    enum { BASE, Y, FIRST, SECOND, LESS_Y, PLUS_5, LESS_BASE, PLUS_7, LAST };
    ir_kernel *kernel = NULL;
    assert_ok(describe(difference_of_known_sum, &kernel));
    const ir_inst *insts = kernel->insts;
    assert_int_equal(insts[LESS_Y].in[0].reg, insts[BASE].out[0].reg);
    assert_true(ir_is_int(insts[PLUS_5].in[1], 5));
    assert_int_equal(insts[LESS_BASE].in[0].reg, insts[Y].out[0].reg);
    assert_true(ir_is_int(insts[PLUS_7].in[1], 7));
    assert_int_equal(insts[LAST].in[0].reg, insts[FIRST].out[0].reg);
    ir_kernel_free(kernel);
    assert_ok(describe(many_known_sums, &kernel));
    ir_kernel_free(kernel);
}

static void bounds(void)
{
    launch_bounds(256, 2);
    cluster_size(4);
}

TEST(launch_bounds)
{
    ir_kernel *kernel = NULL;
    assert_ok(describe(bounds, &kernel));
    assert_int_equal(kernel->threads, 256);
    assert_int_equal(kernel->ctas_per_sm, 2);
    assert_int_equal(kernel->cluster, 4);
    ir_kernel_free(kernel);
}

/* At run time: what the emulator says of pipelines that a kernel file misuses, with the kernel file's line */

static bool planted;

static void expect_report(void (*kernel)(void), const char *first, const char *second)
{
    ckl_device *gpu = test_open("budget=100000");
    char line[64];
    for (int right = 0; right < 2; right++) {
        planted = !right;
        ckl_status status = test_run(gpu, (test_kernel){ kernel, IR_SM90A, .threads = THREADS }, NULL);
        snprintf(line, sizeof line, "unit_language.c:%d", blamed);
        if (right && status != CKL_OK)
            fail_msg("corrected: %s", ckl_error());
        if (!right && (status != CKL_DEVICE_FAULT || !strstr(ckl_error(), first) || !strstr(ckl_error(), second) ||
                       !strstr(ckl_error(), line)))
            fail_msg("planted: %s, line %d: %s", ckl_status_name(status), blamed, ckl_error());
    }
    gpu->ops->close(gpu);
}

static pipeline begin_ring(void)
{
    pipeline ring = make_pipeline("ring", STAGES, 1, 1);
    IF(eq(thread(), imm(0)))
        pipeline_init(&ring);
    cta_sync();
    return ring;
}

/* Without a producer the consumer waits for ever, at its own line. */
static void nobody_fills(void)
{
    pipeline ring = begin_ring();
    pipeline_state state = consumer_state(&ring);
    IF(eq(thread(), imm(0))) {
        if (!planted)
            pipeline_expect(&ring, &state, imm(0));
        add(state.stage, imm(1));
        BLAME_NEXT;
        pipeline_wait_full(&ring, &state);
    }
}

/* Of two stages only the first is used, and released twice: the ring does not wrap. */
static void released_twice(void)
{
    pipeline ring = begin_ring();
    pipeline_state state = consumer_state(&ring);
    IF(eq(thread(), imm(0))) {
        pipeline_expect(&ring, &state, imm(0));
        pipeline_wait_full(&ring, &state);
        pipeline_release(&ring, state.stage);
        if (planted) {
            BLAME_NEXT;
            pipeline_release(&ring, state.stage);
        }
    }
}

TEST(rings)
{
    expect_report(nobody_fills, "deadlock", "for the mbarrier ring.full[0] to complete");
    expect_report(released_twice, "ring.empty[0] is released once more, but ring.full[0] has completed 1 phases",
                  "more releases than fillings");
}

RUN_TESTS(NULL, NULL)
