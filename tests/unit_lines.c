/* unit_lines.c - what a call of a kernel file appends is of the call's line, whatever was recorded before. */
#include "unit_language.h"

static void expect_line(int before, int line, bool appends)
{
    const ir_kernel *k = ir_current();
    assert_true(!appends || k->inst_count > before);
    for (int i = before; i < k->inst_count; i++)
        if (k->insts[i].line != line)
            fail_msg("%s of line %d says %s:%d", ir_op_text(k->insts[i].op), line, k->insts[i].file, k->insts[i].line);
}

/* The call stands on a line of its own, after one that recorded another. */
#define AT_LINE(...)                                 \
    do {                                             \
        int before = ir_current()->inst_count;       \
        ir_at("elsewhere.c", 1);                     \
        __VA_ARGS__;                                 \
        expect_line(before, __LINE__, !ir_failed()); \
    } while (0)

static void lines_of_mma(void)
{
    tiled_mma mma = make_tiled_mma("SM90_64x64x16_F32F16F16_SS", 1, 1);
    tiled_mma sync = make_tiled_mma("SM80_16x8x16_F32F16F16F32_TN", 4, 1);
    tensor sA = tile_in_smem("A"), sC = tile_in_smem("C"), acc = fragment_C(&mma, TILE_M, TILE_N), a, b;
    fill(acc, immf(0));
    AT_LINE(partition_A(&mma, sA, thread()));
    AT_LINE(partition_B(&sync, sA, thread()));
    AT_LINE(partition_C(&mma, sC, thread()));
    AT_LINE(a = descriptors_A(&mma, sA));
    AT_LINE(b = descriptors_B(&mma, sA));
    tiled_mma from_registers = make_tiled_mma("SM90_64x64x16_F32F16F16_RS", 1, 1);
    tensor weights = fragment_A_words(&from_registers, TILE_M, TILE_N);
    AT_LINE(accumulators_to_A(acc, F16, weights));
    AT_LINE(mma_fence());
    AT_LINE(gemm(&from_registers, weights, b, acc, yes()));
    AT_LINE(gemm(&mma, a, b, acc, yes()));
    AT_LINE(mma_commit());
    AT_LINE(mma_wait(0));
    tensor rA = fragment_A(&sync, TILE_M, TILE_K), rB = fragment_B(&sync, 16, TILE_K);
    AT_LINE(ldmatrix_A(&sync, sA, thread(), rA));
    AT_LINE(stmatrix_C(&mma, acc, sC, thread()));
    (void)rB;
}

static void lines_of_copies(void)
{
    tiled_copy copies =
        make_tiled_copy("SM80_CP_ASYNC_CACHEGLOBAL<128>", F16, compact(leaf(THREADS)), compact(leaf(8)));
    tensor gX = gmem_tensor(pointer("x"), F16, compact(leaf(1024))),
           sX = smem_tensor("X", F16, compact(leaf(1024)), 16);
    tensor tXgX, tXsX;
    const staged_store store = { imm(1), THREADS, eq(thread(), imm(0)) };
    AT_LINE(tXgX = partition_S(&copies, gX, thread()));
    AT_LINE(tXsX = partition_D(&copies, sX, thread()));
    AT_LINE(copy_tiled(&copies, tXgX, tXsX));
    AT_LINE(staging_wait(&store, 0));
}

static void lines_of_pipelines(void)
{
    pipeline ring = make_pipeline("ring", STAGES, 1, 1);
    pipeline_state state;
    val peer;
    AT_LINE(pipeline_init(&ring));
    AT_LINE(state = producer_state(&ring));
    AT_LINE(state = consumer_state(&ring));
    AT_LINE(pipeline_wait_empty(&ring, &state));
    AT_LINE(pipeline_expect(&ring, &state, imm(16)));
    AT_LINE(pipeline_arrive(&ring, &state));
    AT_LINE(pipeline_full_barrier(&ring, &state));
    AT_LINE(pipeline_wait_full(&ring, &state));
    AT_LINE(pipeline_release(&ring, state.stage));
    AT_LINE(peer = pipeline_peer(&ring, imm(0)));
    AT_LINE(pipeline_release_at(&ring, state.stage, peer));
    AT_LINE(pipeline_advance(&state));
    AT_LINE(pipeline_advance_by(&state, imm(3)));
}

static void lines_of_tma(void)
{
    pipeline ring = make_pipeline("ring", STAGES, 1, 1);
    pipeline_state state = producer_state(&ring);
    tensor sA = tile_in_smem("A");
    tma_copy tma = make_tma(ir_tensor_map_param("a"), F16, 2, TILE_M, TILE_K, 128);
    tma_copy batched = make_tma(ir_tensor_map_param("b"), F16, 3, TILE_M, TILE_K, 128);
    val zero = variable(U32, imm(0)), full = pipeline_full_barrier(&ring, &state);
    AT_LINE(tma_prefetch(&tma));
    AT_LINE(tma_load(&tma, sA, zero, zero, full, imm(0)));
    AT_LINE(tma_load_of(&batched, sA, zero, zero, 1, &zero, full, imm(0)));
    AT_LINE(tma_store(&tma, sA, zero, zero));
    AT_LINE(tma_store_of(&batched, sA, zero, zero, 1, &zero));
    AT_LINE(tma_store_commit());
    AT_LINE(tma_store_wait_read(0));
    AT_LINE(tma_store_wait(0));
}

static void lines_of_reductions(void)
{
    const reduction sum = reduce_sums(1);
    val x = variable(F32, immf(1));
    int64_t scratch = smem_alloc("scratch", cta_reduce_bytes(THREADS), 16);
    cluster_allreduce all = make_cluster_allreduce("all", THREADS, 1, 1);
    AT_LINE(warp_reduce(&sum, 32, &x));
    AT_LINE(warp_reduce_across(&sum, 4, &x));
    AT_LINE(warp_scan(x));
    AT_LINE(cta_reduce(&sum, THREADS, scratch, &x));
    AT_LINE(cta_reduce_groups(&sum, THREADS / 2, 1, scratch, &x));
    AT_LINE(cluster_meet(2));
    AT_LINE(cluster_allreduce_init(&all));
    AT_LINE(cluster_allreduce_begin(&all, &sum, &x));
    AT_LINE(cluster_allreduce_end(&all, &sum, &x));
}

static void lines_of_schedules(void)
{
    val row, column, drawn = pointer("drawn"), turn = variable(U32, imm(0));
    tile_schedule tiles;
    AT_LINE(tiles = make_tile_schedule(param(U32, "n"), param(U32, "n"), 128, 128, 8));
    AT_LINE(tile_at(&tiles, cta_x(), &row, &column));
    dynamic_scheduler scheduler = make_dynamic_scheduler("scheduler", drawn, param(U32, "n"), grid_x(), 1, 2);
    AT_LINE(scheduler_init(&scheduler));
    AT_LINE(scheduler_fetch(&scheduler, turn));
    AT_LINE(scheduler_next(&scheduler, turn));
}

static void lines_of_functions(void)
{
    val x = param(F32, "x"), sine, cosine;
    AT_LINE(exp_f32(x));
    AT_LINE(log_f32(x));
    AT_LINE(pow_f32(x, x));
    AT_LINE(sincos_f32(x, &sine, &cosine));
    AT_LINE(gelu_erf_f32(x));
    AT_LINE(median_f32(x, x, x));
    AT_LINE(sin(x));
    AT_LINE(sqrt(neg(x)));
    AT_LINE(select(le(x, immf(1)), abs(x), cos(x)));
    AT_LINE(shuffle_xor(x, imm(1)));
    AT_LINE(atomic_add(pointer("y"), x));
    AT_LINE(cp_async_commit());
    AT_LINE(cp_async_wait(0));
    AT_LINE(warp_sync());
}

TEST(lines)
{
    void (*const families[])(void) = { lines_of_mma,        lines_of_copies,    lines_of_pipelines, lines_of_tma,
                                       lines_of_reductions, lines_of_schedules, lines_of_functions };
    for (int i = 0; i < COUNT_OF(families); i++)
        assert_ok(describe(families[i], NULL));
}

/* PTX names up to 64 files of C; the lines of further ones it leaves out. */

enum { FILES = 66, FILES_NAMED = 64 };
static char file_names[FILES][16];

static void many_files(void)
{
    for (int i = 0; i < FILES; i++) {
        snprintf(file_names[i], sizeof file_names[i], "file%d.c", i + 1);
        ir_at(file_names[i], 7);
        ir_fence(IR_SCOPE_CTA);
    }
}

TEST(files)
{
    ir_kernel *k;
    text ptx = { 0 };
    assert_ok(describe(many_files, &k));
    assert_ok(ir_print_ptx(k, &ptx));
    for (int i = 1; i <= FILES; i++) {
        char file[40], loc[40];
        snprintf(file, sizeof file, ".file %d \"file%d.c\"\n", i, i);
        snprintf(loc, sizeof loc, "\t.loc %d 7 0\n", i);
        assert_int_equal(strstr(text_data(&ptx), file) != NULL, i <= FILES_NAMED);
        assert_int_equal(strstr(text_data(&ptx), loc) != NULL, i <= FILES_NAMED);
    }
    text_free(&ptx);
    ir_kernel_free(k);
}

RUN_TESTS(NULL, NULL)
