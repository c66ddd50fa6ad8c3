/* unit_examples.c - the kernels that README.md and docs show: each runs at odd sizes, and their mistakes are found. */
#include "unit_emulator.h"

#include <math.h>

#include "plan/check.h"
#include "plan/plan.h"
#include "skeletons/row.h"

#undef HERE
#include "cute/kernel.h"

static ckl_device *gpu;

/*
 * The mistake that a kernel makes for once, so that a test sees what is said of it. The names below do the same as in
 * kernel.h but for their mistake.
 */
enum {
    NONE,
    NO_SYNC,
    NO_SECOND_SYNC,
    NO_FENCE,
    NO_STORE_FENCE,
    NO_EXPECT,
    FEW_BYTES,
    NO_WAIT_FULL,
    NO_WAIT_EMPTY,
    NO_LAST_WAIT,
    NO_ELECT,
    PLAIN_LAYOUT,
    WIDE_BOX,
    MISALIGNED_TILE
};
static int mistake;
static int synced; // barriers of the CTA so far

static void begin_unfenced(const staged_store *s)
{
    ir_bar_sync(s->barrier, s->threads);
    ir_if(s->leader);
}

/* An allocation of shared memory in front of the next one. */
static int64_t alignment_after_gap(void)
{
    ir_smem_alloc("gap", 128, 128);
    return 128;
}

#undef cta_sync
#undef fence_proxy_async
#undef elect
#undef STAGED_STORE
#undef pipeline_expect
#undef pipeline_wait_full
#undef pipeline_wait_empty
#undef tma_store_wait_read
#undef make_tma
#undef smem_tensor
#define UNLESS(m, call)     (void)(HERE, mistake == (m) ? (void)0 : (call))
#define cta_sync()          UNLESS(NO_SYNC + synced++, ir_bar_sync(imm(0), ir_current()->threads))
#define fence_proxy_async() UNLESS(NO_FENCE, ir_plain(IR_FENCE_PROXY_ASYNC, 0, 0))
#define elect()             (HERE, mistake == NO_ELECT ? yes() : ir_elect())
#define pipeline_expect(p, s, bytes) \
    UNLESS(NO_EXPECT, pipeline_expect(p, s, mistake == FEW_BYTES ? imm(4096) : (bytes)))
#define pipeline_wait_full(p, s)     UNLESS(NO_WAIT_FULL, pipeline_wait_full(p, s))
#define pipeline_wait_empty(p, s)    UNLESS(NO_WAIT_EMPTY, pipeline_wait_empty(p, s))
#define tma_store_wait_read(pending) UNLESS(NO_LAST_WAIT, tma_store_wait_read(pending))
#define STAGED_STORE(s)                                                                                               \
    CUTE_ONCE(CUTE_PASTE(store_open_, __COUNTER__), mistake == NO_STORE_FENCE ? begin_unfenced(s) : staging_begin(s), \
              staging_end())
#define tma_tile_layout(t, rows, cols, s) \
    (mistake == PLAIN_LAYOUT ? compact_right(shape(rows, cols)) : tma_tile_layout(t, rows, cols, s))
#define make_tma(map, t, rank, rows, cols, s) \
    (HERE, make_tma(map, t, rank, rows, mistake == WIDE_BOX ? 128 : (cols), s))
#define smem_tensor(name, t, a, align) \
    (HERE, smem_tensor(name, t, a, mistake == MISALIGNED_TILE ? alignment_after_gap() : (align)))

/* --- A scaled copy, of a matrix of any size --- */

#define SCALE_PARAMS(X, owner) \
    X(owner, pointer, x) X(owner, pointer, y) X(owner, i64, m) X(owner, i64, n) X(owner, f32, alpha)
KERNEL_PARAMS(scale, SCALE_PARAMS);

/* y = alpha * x. A CTA of 256 threads takes a tile of 64 x 32. */
static void scale(void)
{
    scale_values p = params_of(scale);
    layout rows = compact_right(shape(p.m, p.n)), threads = compact_right(shape(8, 32));
    tensor gX = gmem_tensor(p.x, F32, rows), gY = gmem_tensor(p.y, F32, rows); // (M,N)
    tensor cX = identity_tensor(shape(p.m, p.n));                              // (M,N) -> (row,col)
    tensor cTile = local_tile(cX, shape(64, 32), coord(cta_y(), cta_x()));     // (64,32)

    tiled_copy each = make_tiled_copy("UniversalCopy<32>", F32, threads, compact(shape(1, 1)));
    tensor tXcX = partition_S(&each, cTile, thread());                                     // ((1,1),8,1)
    tensor tXgX = tensor_at_coordinates(gX, tXcX), tXgY = tensor_at_coordinates(gY, tXcX); // ((1,1),8,1)
    tensor rX = fragment_like(tXcX, F32);                                                  // ((1,1),8,1)

    copy_if(&each, tXcX, shape(p.m, p.n), tXgX, rX, 0);
    for (int i = 0; i < static_size(rX.layout); i++) // C runs this loop while the kernel is described
        set(rX, i, mul(at(rX, i), p.alpha));
    copy_if(&each, tXcX, shape(p.m, p.n), rX, tXgY, 0);
}

typedef struct example {
    const char *name;
    void (*describe)(void);
    const param_list *params;
} example;

/* Runs it with CTAs of 256 threads. */
static ckl_status run(example e, const void *params, int64_t grid_x, int64_t grid_y)
{
    ir_kernel *kernel = NULL;
    device_kernel *loaded = NULL;
    void *values[IR_PARAMS_MAX];
    synced = 0;
    ir_describe_begin(e.name, IR_SM80);
    launch_bounds(256, 0);
    e.describe();
    TRY(ir_describe_end(&kernel));
    test_params(e.params, params, values);
    ckl_status status = gpu->ops->load(gpu, kernel, &loaded);
    if (status == CKL_OK)
        status =
            gpu->ops->launch(gpu, loaded, &(device_launch){ .grid = { grid_x, grid_y, 1 }, .params = values }, NULL);
    gpu->ops->unload(gpu, loaded);
    ir_kernel_free(kernel);
    return status;
}

static bool said(const char *what)
{
    bool found = strstr(ckl_error(), what);
    if (!found)
        print_error("'%s' is not in '%s'\n", what, ckl_error());
    return found;
}

static void check_scale(int m, int n)
{
    float *x = calloc((size_t)(m * n), sizeof *x), *y = calloc((size_t)(m * n), sizeof *y);
    for (int i = 0; i < m * n; i++)
        x[i] = (float)(i % 1000);
    size_t bytes = (size_t)(m * n) * sizeof *x;
    void *from = test_upload(gpu, x, bytes), *to = test_upload(gpu, NULL, bytes);
    const scale_params params = { from, to, m, n, 0.5f };
    if (run((example){ "scale", scale, &scale_param_list }, &params, (n + 31) / 32, (m + 63) / 64) != CKL_OK)
        fail_msg("%d x %d: %s", m, n, ckl_error());
    assert_ok(gpu->ops->copy_out(gpu, y, to, bytes, NULL));
    for (int i = 0; i < m * n; i++)
        if (y[i] != 0.5f * x[i])
            fail_msg("%d x %d: element %d is %g", m, n, i, (double)y[i]);
    free(x);
    free(y);
}

TEST(scale)
{
    check_scale(1, 1);
    check_scale(64, 32);
    check_scale(65, 33);
    check_scale(129, 1);
    check_scale(3, 1027);
}

/* --- Tiles transposed through shared memory, with and without their barriers --- */

#define TRANSPOSE_PARAMS(X, owner) X(owner, pointer, x) X(owner, pointer, y) X(owner, i32, tiles)
KERNEL_PARAMS(transpose, TRANSPOSE_PARAMS);

/* Each 32 x 32 tile of y is the transpose of that of x. One CTA of 256 threads takes them one after the other. */
static void transpose(void)
{
    transpose_values p = params_of(transpose);
    layout by_rows = compact_right(shape(8, 32)), by_columns = compact(shape(32, 8));
    tensor gX = gmem_tensor(p.x, F32, make_layout(shape(32, 32, p.tiles), stride(32, 1, 1024))); // (M,N,TILES)
    tensor gY = gmem_tensor(p.y, F32, make_layout(shape(32, 32, p.tiles), stride(1, 32, 1024))); // (M,N,TILES)
    tensor sX = smem_tensor("tile", F32, make_layout(shape(32, 32), stride(33, 1)), 4);          // (M,N)
    LOOP(t, p.tiles) {
        tensor gXt = slice(gX, _, _, t), gYt = slice(gY, _, _, t); // (M,N)
        copy(local_partition(gXt, by_rows, thread()), local_partition(sX, by_rows, thread()), 4);
        cta_sync();
        copy(local_partition(sX, by_columns, thread()), local_partition(gYt, by_columns, thread()), 4);
        cta_sync();
    }
}

enum { TRANSPOSED_TILES = 3 };

static ckl_status run_transpose(int its_mistake)
{
    static float x[TRANSPOSED_TILES][32][32], y[TRANSPOSED_TILES][32][32];
    for (int i = 0; i < COUNT_OF(x) * 1024; i++)
        x[i / 1024][i / 32 % 32][i % 32] = (float)i;
    void *from = test_upload(gpu, x, sizeof x), *to = test_upload(gpu, NULL, sizeof y);
    transpose_params params = { from, to, TRANSPOSED_TILES };
    mistake = its_mistake;
    ckl_status status = run((example){ "transpose", transpose, &transpose_param_list }, &params, 1, 1);
    mistake = NONE;
    if (status == CKL_OK)
        status = gpu->ops->copy_out(gpu, y, to, sizeof y, NULL);
    for (int i = 0; i < COUNT_OF(x) * 1024 && status == CKL_OK; i++)
        assert_true(y[i / 1024][i % 32][i / 32 % 32] == x[i / 1024][i / 32 % 32][i % 32]);
    return status;
}

TEST(transpose)
{
    assert_ok(run_transpose(NONE));
    assert_int_equal(run_transpose(NO_SYNC), CKL_DEVICE_FAULT);
    assert_true(said("read of uninitialised shared memory in transpose, CTA (0,0,0), warp 0, lane 1, at "));
    assert_true(said(" (ld): tile+132 is read before it was written; warp 1 writes it later, at "));
    assert_true(said(": a barrier between them is missing"));
    assert_int_equal(run_transpose(NO_SECOND_SYNC), CKL_DEVICE_FAULT);
    assert_true(said("shared-memory race in transpose, CTA (0,0,0), warp 0, lane 7, at "));
    assert_true(said(" (ld): read of tile+924 meets the write by warp 7 at "));
    assert_true(said("; no barrier orders them"));
}

/* --- Rows of up to 128 elements on the skeleton of rows --- */

#define SHARES_PARAMS(X, owner) X(owner, pointer, x) X(owner, pointer, y) X(owner, i64, rows) X(owner, i64, cols)
KERNEL_PARAMS(shares, SHARES_PARAMS);

static const row_split warp_a_row = { .threads = 256, .row_threads = 32, .cluster = 1, .vec = 1, .steps = 4 };

/* y[r,c] = x[r,c] / (sum over c of x[r,c]) */
static void shares(void)
{
    shares_values p = params_of(shares);
    const row_split *split = &warp_a_row;
    const reduction sum = reduce_sums(1);
    row_place place = row_here(split, p.rows, p.cols);
    tensor tXgX = row_of_matrix(split, &place, p.x, F32, p.cols); // (VEC,STEPS)
    tensor tYgY = row_of_matrix(split, &place, p.y, F32, p.cols); // (VEC,STEPS)
    tensor rX = fragment_like(tXgX, F32);                         // (VEC,STEPS)

    row_load(split, &place, tXgX, rX, 0); // past the end of the row: 0
    val total[] = { variable(F32, fragment_sum(rX)) };
    row_reduce(split, &sum, total);
    for (int i = 0; i < static_size(rX.layout); i++)
        set(rX, i, div(at(rX, i), total[0]));
    row_store(split, &place, rX, tYgY);
}

static void check_shares(int rows, int cols)
{
    static float x[4096], y[4096];
    size_t bytes = (size_t)(rows * cols) * sizeof *x;
    assert_true(bytes <= sizeof x);
    for (int i = 0; i < rows * cols; i++)
        x[i] = (float)(1 + i % 7);
    void *from = test_upload(gpu, x, bytes), *to = test_upload(gpu, NULL, bytes);
    const shares_params params = { from, to, rows, cols };
    if (run((example){ "shares", shares, &shares_param_list }, &params, row_split_ctas(&warp_a_row, rows), 1) != CKL_OK)
        fail_msg("%d x %d: %s", rows, cols, ckl_error());
    assert_ok(gpu->ops->copy_out(gpu, y, to, bytes, NULL));
    for (int r = 0; r < rows; r++) {
        float sum = 0;
        for (int c = 0; c < cols; c++)
            sum += x[r * cols + c];
        for (int c = 0; c < cols; c++)
            assert_true(fabsf(y[r * cols + c] - x[r * cols + c] / sum) < 1e-6F);
    }
}

TEST(shares)
{
    check_shares(1, 1);
    check_shares(8, 128);
    check_shares(9, 33);
    check_shares(37, 100);
}

/* --- A TMA kernel and its host side: y = max(x, 0), rows at multiples of 16 bytes --- */

enum { BM = 64, BN = 64, SWIZZLE = 128, STAGES = 4, CONSUMERS = 128 };

#define RELU_PARAMS(X, owner) X(owner, tensor, tX) X(owner, tensor, tY) X(owner, u32, tiles_m) X(owner, u32, tiles_n)
KERNEL_PARAMS(relu, RELU_PARAMS);

typedef struct relu_kernel {
    relu_values p;
    tma_copy tmaX, tmaY;
    tensor sX, sY; // (BM,BN,STAGES), (BM,BN)
    pipeline ring;
    val tiles;
} relu_kernel;

/* One thread of the last warp fills the ring. */
static void produce(const relu_kernel *k)
{
    pipeline_state at = producer_state(&k->ring);
    IF(elect())
        LOOP_FROM(tile, cta_x(), k->tiles, grid_x()) {
            val row = mul(rem(tile, k->p.tiles_m), imm(BM)), col = mul(div(tile, k->p.tiles_m), imm(BN));
            tensor sX = slice(k->sX, _, _, at.stage); // (BM,BN)
            pipeline_wait_empty(&k->ring, &at);
            pipeline_expect(&k->ring, &at, imm(tma_bytes(&k->tmaX)));
            tma_load(&k->tmaX, sX, row, col, pipeline_full_barrier(&k->ring, &at), imm(0));
            pipeline_advance(&at);
        }
}

/* The other warps empty it. */
static void consume(const relu_kernel *k)
{
    layout threads = compact_right(shape(16, 8)), values = compact_right(shape(1, 8));
    tiled_copy each = make_tiled_copy("UniversalCopy<128>", F16, threads, values);
    tensor tYsY = partition_D(&each, k->sY, thread()); // ((8,1),4,1)
    staged_store out = { imm(1), CONSUMERS, eq(thread(), imm(0)) };
    pipeline_state at = consumer_state(&k->ring);
    LOOP_FROM(tile, cta_x(), k->tiles, grid_x()) {
        val row = mul(rem(tile, k->p.tiles_m), imm(BM)), col = mul(div(tile, k->p.tiles_m), imm(BN));
        tensor tXsX = partition_S(&each, slice(k->sX, _, _, at.stage), thread()); // ((8,1),4,1)
        tensor rX = fragment_like(tXsX, F32);                                     // ((8,1),4,1)
        pipeline_wait_full(&k->ring, &at);
        copy_tiled(&each, tXsX, rX);
        fence_proxy_async(); // TMA will overwrite what was read
        pipeline_release(&k->ring, at.stage);
        pipeline_advance(&at);

        for (int i = 0; i < static_size(rX.layout); i++)
            set(rX, i, max(at(rX, i), immf(0)));
        staging_wait(&out, 0); // sY has been read by the store before
        copy_tiled(&each, rX, tYsY);
        STAGED_STORE(&out) // fence, barrier; then one thread stores
            tma_store(&k->tmaY, k->sY, row, col);
    }
    IF(out.leader)
        tma_store_wait_read(0); // a CTA may not end before
}

static void relu_describe(const void *config, int which)
{
    (void)config, (void)which;
    launch_bounds(CONSUMERS + 32, 0);
    relu_kernel k = { .p = params_of(relu) };
    k.tmaX = make_tma(k.p.tX, F16, 2, BM, BN, SWIZZLE);
    k.tmaY = make_tma(k.p.tY, F16, 2, BM, BN, SWIZZLE);
    layout tile = tma_tile_layout(F16, BM, BN, SWIZZLE);                            // (BM,BN)
    k.sX = smem_tensor("X", F16, tile_to_shape(tile, shape(BM, BN, STAGES)), 1024); // (BM,BN,STAGES)
    k.sY = smem_tensor("Y", F16, tile, 1024);                                       // (BM,BN)
    k.ring = make_pipeline("ring", STAGES, 1, CONSUMERS);
    k.tiles = mul(k.p.tiles_m, k.p.tiles_n);

    IF(eq(thread(), imm(0))) {
        pipeline_init(&k.ring);
        fence_mbarrier_init();
    }
    cta_sync();
    IF(eq(warp(), imm(CONSUMERS / 32)))
        produce(&k);
    ELSE
    {
        consume(&k);
    }
}

/* The host side */

typedef struct relu_desc {
    int64_t rows, cols, ldx, ldy;
} relu_desc;

typedef struct relu_args {
    const void *x;
    void *y;
} relu_args;

static ckl_status relu_check(void *desc)
{
    relu_desc *d = desc;
    TRY(plan_check_pitch("relu", "ldx", &d->ldx, "cols", d->cols));
    return plan_check_pitch("relu", "ldy", &d->ldy, "cols", d->cols);
}

static int relu_tensors(const void *desc, plan_tensor *t)
{
    const relu_desc *d = desc;
    t[0] = plan_matrix("x", CKL_F16, d->rows, d->cols, d->ldx);
    t[1] = plan_output(plan_matrix("y", CKL_F16, d->rows, d->cols, d->ldy));
    return 2;
}

static ckl_status relu_choose(const void *desc, const ckl_device_info *device, void *config)
{
    const relu_desc *d = desc;
    (void)device, (void)config;
    if (d->ldx % 8)
        FAIL(CKL_UNSUPPORTED, "relu tma: ldx=%" PRId64 " elements of f16 are not a multiple of 16 bytes", d->ldx);
    if (d->ldy % 8 || d->cols % 8)
        FAIL(CKL_UNSUPPORTED, "relu tma: y does not consist of chunks of 16 bytes");
    return CKL_OK;
}

static ckl_status relu_launch(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const relu_desc *d = plan->desc;
    const relu_args *a = args;
    int64_t tiles_m = ceil_div(d->rows, BM), tiles_n = ceil_div(d->cols, BN);
    const relu_params params = { .tX = { a->x, { d->cols, d->rows }, { 1, d->ldx } }, // innermost first
                                 .tY = { a->y, { d->cols, d->rows }, { 1, d->ldy } },
                                 .tiles_m = (uint32_t)tiles_m,
                                 .tiles_n = (uint32_t)tiles_n };
    int64_t ctas = min_i64(tiles_m * tiles_n, plan->device->info.sm_count);
    return plan_launch(plan, 0, (plan_grid){ .x = ctas }, &params, stream);
}

static const implementation relu_tma = { .name = "tma",
                                         .choose = relu_choose,
                                         .describe = relu_describe,
                                         .params = &relu_param_list,
                                         .target = IR_SM90A,
                                         .launch = relu_launch };
static const implementation *const relu_implementations[] = { &relu_tma, NULL };
static const operator_info relu = { .name = "relu",
                                    .desc_bytes = sizeof(relu_desc),
                                    .check = relu_check,
                                    .tensors = relu_tensors,
                                    .implementations = relu_implementations };

/* x begins `shift` elements after its allocation. */
static ckl_status run_relu(relu_desc d, int shift, int its_mistake)
{
    size_t count = (size_t)(d.rows * (d.ldx > d.ldy ? d.ldx : d.ldy) + shift);
    uint16_t *x = malloc(2 * count), *y = malloc(2 * count);
    for (size_t i = 0; i < count; i++)
        x[i] = (uint16_t)(i % 1000 * 16 + (i % 3 ? 0x8000 : 0)); // f16, two of three negative
    uint16_t *from = test_upload(gpu, x, 2 * count), *to = test_upload(gpu, NULL, 2 * count);
    ckl_plan *plan = NULL;
    plan_forget_device(gpu); // its mistakes are no part of a config
    synced = 0;
    mistake = its_mistake;
    ckl_status status = plan_build(gpu, &relu, &d, NULL, &plan);
    mistake = NONE;
    if (status == CKL_OK)
        status = plan_run(plan, &relu, &(relu_args){ from + shift, to }, NULL);
    if (status == CKL_OK)
        status = gpu->ops->copy_out(gpu, y, to, 2 * count, NULL);
    for (int64_t i = 0; i < d.rows * d.cols && status == CKL_OK; i++) {
        uint16_t in = x[i / d.cols * d.ldx + i % d.cols + shift];
        assert_int_equal(y[i / d.cols * d.ldy + i % d.cols], in & 0x8000 ? 0 : in);
    }
    ckl_plan_free(plan);
    free(x);
    free(y);
    return status;
}

TEST(relu)
{
    static const relu_desc sizes[] = {
        { 1, 8, 8, 8 }, { 64, 64, 64, 64 }, { 200, 328, 336, 344 }, { 6001, 520, 520, 520 }
    };
    for (int i = 0; i < COUNT_OF(sizes); i++)
        assert_ok(run_relu(sizes[i], 0, NONE));
}

/* What docs/tma-kernel.md says of each mistake. */
TEST(relu_mistakes)
{
    static const relu_desc many = { 6001, 520, 520, 520 }; // tiles: the ring wraps
    static const struct {
        int mistake;
        const char *sentence;
    } cases[] = {
        { PLAIN_LAYOUT, "TMA box of 64x64: the shared tile is ((64,1),(64,1)):((64,4096),(1,4096)), the box needs "
                        "Sw<3,3,3>o(64,64):(64,1)" },
        { WIDE_BOX, "TMA box: rows of 256 bytes are longer than the 128-byte swizzle" },
        { MISALIGNED_TILE, "(tma_load): X, address 0x480, is no multiple of 1024" },
        { NO_SYNC, "no barrier lies between the mbarrier_init of ring.full[0] by warp 0 and this use" },
        { NO_ELECT, "(mbarrier_expect): all 1 arrivals of phase 0 of the mbarrier ring.full[0] have come" },
        { NO_EXPECT, "for the mbarrier ring.full[0] to complete a phase of parity 0 (it is in phase 0, 1 of 1 arrivals "
                     "missing, -8192 bytes pending)" },
        { FEW_BYTES, "4096 bytes more arrived at the mbarrier ring.full[0] than phase 0 expects" },
        { NO_WAIT_FULL, "read of X meets the write by the async copy on ring.full[0] at " },
        { NO_WAIT_EMPTY,
          "all 1 arrivals of phase 0 of the mbarrier ring.full[0] have come, it waits for 16384 bytes only" },
        { NO_FENCE, "the async proxy overwrites X, which warp 0 read at " },
        { NO_STORE_FENCE, "the async proxy reads Y, which warp 0 wrote at " },
        { NO_LAST_WAIT, "a bulk store may still read the CTA's shared memory; bulk_wait must come before the end" },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        assert_int_not_equal(run_relu(many, 0, cases[i].mistake), CKL_OK);
        assert_true(said(cases[i].sentence));
    }
    assert_int_equal(run_relu((relu_desc){ 200, 328, 330, 344 }, 0, NONE), CKL_UNSUPPORTED);
    assert_true(said("relu tma: ldx=330 elements of f16 are not a multiple of 16 bytes"));
    assert_int_equal(run_relu((relu_desc){ 200, 328, 328, 328 }, 1, NONE), CKL_INVALID);
    assert_true(said("tensor map: address=0x"));
    assert_true(said("2 is not a multiple of 16 above 0"));
}

int main(void)
{
    gpu = test_open("");
    int failed = run_enlisted(NULL, NULL);
    gpu->ops->close(gpu);
    return failed;
}
