/* unit_copy.c - identity tensors, every copy atom, predicated copies at odd edges, vectors in common orders. */
#include "emulated_device.h"
#include "unit_emulator.h"

#undef HERE
#include "cute/kernel.h"

/* Coordinates: an element of a tile or partition of an identity tensor is its place in that tensor. */

static void assert_at(tensor cX, int64_t i, int64_t row, int64_t col)
{
    assert_true(ir_is_int(tensor_coordinate(cX, leaf(i), 0), row));
    assert_true(ir_is_int(tensor_coordinate(cX, leaf(i), 1), col));
}

TEST(identity)
{
    ir_describe_begin(NULL, IR_SM80);
    tensor cX = identity_tensor(shape(13, 40));
    assert_at(cX, 13 * 7 + 5, 5, 7);
    assert_at(slice(cX, 3, _), 9, 3, 9);
    tensor cTile = local_tile(cX, shape(4, 16), coord(3, 2)); // reaches past row 13
    for (int i = 0; i < 64; i++)
        assert_at(cTile, i, 12 + i % 4, 32 + i / 4);
    tensor cRows = local_tile(cX, shape(4, 16), coord(_, 1)); // (4,16,REST)
    assert_at(slice(cRows, _, _, 2), 4 * 3 + 1, 9, 19);

    layout by_rows = make_layout(shape(2, 4), stride(4, 1)), by_columns = compact(shape(2, 4));
    tensor cTile2 = local_tile(cX, shape(4, 16), coord(1, 1));
    for (int t = 0; t < 8; t++)
        for (int i = 0; i < 8; i++) { // (2,4) of each thread
            assert_at(local_partition(cTile2, by_rows, imm(t)), i, 4 + t / 4 + i % 2 * 2, 16 + t % 4 + i / 2 * 4);
            assert_at(local_partition(cTile2, by_columns, imm(t)), i, 4 + t % 2 + i % 2 * 2, 16 + t / 2 + i / 2 * 4);
        }

    tiled_copy c = make_tiled_copy("UniversalCopy<64>", F16, by_rows, make_layout(shape(1, 4), stride(4, 1)));
    for (int t = 0; t < 8; t++)
        for (int i = 0; i < 8; i++) { // ((4,1),2,1) of each thread
            assert_at(partition_S(&c, cTile2, imm(t)), i, 4 + t / 4 + i / 4 * 2, 16 + t % 4 * 4 + i % 4);
            assert_at(partition_D(&c, cTile2, imm(t)), i, 4 + t / 4 + i / 4 * 2, 16 + t % 4 * 4 + i % 4);
        }
    assert_at(coordinates_from(cX, 1, imm(6)), 13 * 7 + 5, 5, 13);
    assert_true(ir_is_int(inside_limits(cTile, shape(13, _), 0), 1));
    assert_true(ir_is_int(inside_limits(cTile, shape(13, _), 1), 0));
    assert_ok(ir_describe_end(NULL));
}

/* Data: each kernel below moves x to y in its own way; y must then be what `expected` says. */

enum { BYTES_MAX = 1 << 14, FILL = 7 };

static struct {
    const char *atom, *back;
    ckl_dtype dtype;
    int rows, cols, row_limit, col_limit, count;
    bool dynamic; // distances between rows
    bool narrow;  // one tile of columns, not two
    bool shared;  // what is stored within limits is shared memory
} now;            // the case that is being described

static unsigned char x[BYTES_MAX], y[BYTES_MAX];

static void run_case(void (*describe)(void), int threads, int cluster, int64_t x_bytes, int64_t y_bytes)
{
    for (int i = 0; i < x_bytes; i++)
        x[i] = (unsigned char)(i * 37 + i / 256 * 11);
    memset(y, 0xee, sizeof y);
    void *from = test_upload(device, x, (size_t)x_bytes), *to = test_upload(device, y, (size_t)y_bytes);
    test_kernel k = { describe, IR_SM90A, .threads = threads, .cluster = cluster, .grid = cluster };
    if (test_run(device, k, (void *[]){ &from, &to }) != CKL_OK)
        fail_msg("%s: %s", now.atom, ckl_error());
    assert_ok(device->ops->copy_out(device, y, to, (size_t)y_bytes, NULL));
}

static tensor matrix(const char *name, int rows, int cols)
{
    val pitch = now.dynamic ? variable(I64, imm(cols)) : imm(cols);
    return gmem_tensor(pointer(name), now.dtype, make_layout(shape(rows, cols), stride(pitch, 1)));
}

static layout block(int rows, int cols)
{
    return make_layout(shape(rows, cols), stride(cols, 1));
}

/* Plain copies of a thread's vectors, with an odd number of rows and a row that ends inside the tile. */

static void describe_within(void)
{
    int vec = 16 / (int)ckl_dtype_bytes(now.dtype);
    tiled_copy c = make_tiled_copy("UniversalCopy<128>", now.dtype, block(8, 4), block(1, vec));
    tiled_copy single = make_tiled_copy(now.atom, now.dtype, block(8, 4), block(1, vec));
    tensor gX = matrix("x", now.row_limit, now.col_limit), gY = matrix("y", now.rows, now.cols);
    tensor cX = identity_tensor(shape(now.row_limit, now.col_limit));
    int_tuple tile = shape(now.rows, now.cols), origin = coord(0, 0);
    val limit = variable(I32, imm(now.col_limit));                              // one limit static, one dynamic
    tensor tXgX = partition_S(&single, local_tile(gX, tile, origin), thread()); // ((ATOM,REST),REST_M,REST_N)
    tensor tXcX = partition_S(&single, local_tile(cX, tile, origin), thread());
    tensor rX = fragment_like(tXgX, now.dtype);
    copy_if(&single, tXcX, shape(now.row_limit, limit), tXgX, rX, now.shared ? 0 : FILL);
    if (now.shared) { // full of FILL, then stored to within the limits
        tensor sY = smem_tensor("y", now.dtype, block(now.rows, now.cols), 16);
        tensor tXsY = partition_D(&single, sY, thread()), rFill = fragment_like(tXgX, now.dtype);
        for (int i = 0; i < static_size(rFill.layout); i++)
            set(rFill, i, immf(FILL));
        copy_tiled(&single, rFill, tXsY);
        copy_if(&single, tXcX, shape(now.row_limit, limit), rX, tXsY, 0);
        copy_tiled(&single, tXsY, rX);
    }
    copy_tiled(&c, rX, partition_D(&c, gY, thread()));
}

static void check_within(const char *atom, ckl_dtype dtype, int row_limit, int col_limit)
{
    int bytes = (int)ckl_dtype_bytes(dtype), rows = 24, cols = (now.narrow ? 1 : 2) * 4 * 16 / bytes;
    now.atom = atom, now.dtype = dtype, now.rows = rows, now.cols = cols;
    now.row_limit = row_limit, now.col_limit = col_limit;
    run_case(describe_within, 32, 1, (int64_t)row_limit * col_limit * bytes, (int64_t)rows * cols * bytes);
    unsigned char fill[8] = { FILL };
    float as_float = FILL;
    if (dtype == F32)
        memcpy(fill, &as_float, sizeof as_float);
    if (dtype == F16)
        memcpy(fill, &(uint16_t){ 0x4700 }, 2);
    for (int i = 0; i < rows * cols; i++) {
        bool inside = i / cols < row_limit && i % cols < col_limit;
        const unsigned char *want = inside ? x + (i / cols * col_limit + i % cols) * bytes : fill;
        if (memcmp(y + i * bytes, want, (size_t)bytes) != 0)
            fail_msg("%s of %s: element %d", atom, ckl_dtype_name(dtype), i);
    }
}

TEST(plain)
{
    check_within("UniversalCopy<8>", CKL_U8, 13, 77);
    check_within("UniversalCopy<16>", CKL_U8, 23, 78);
    check_within("UniversalCopy<32>", CKL_U8, 1, 120);
    check_within("UniversalCopy<128>", CKL_U8, 24, 112);
    check_within("UniversalCopy<16>", CKL_I16, 13, 33);
    check_within("UniversalCopy<64>", CKL_I16, 13, 36);
    check_within("UniversalCopy<16>", F16, 17, 63);
    check_within("UniversalCopy<32>", F16, 17, 62);
    check_within("UniversalCopy<128>", F16, 9, 40);
    check_within("UniversalCopy<32>", F32, 13, 31);
    check_within("UniversalCopy<64>", F32, 13, 6);
    check_within("UniversalCopy<128>", F32, 24, 32); // nothing is outside
    now.shared = true;
    check_within("UniversalCopy<32>", F32, 13, 31);
    check_within("UniversalCopy<128>", F32, 17, 28);
    now.shared = false;
    check_within("UniversalCopy<64>", I64, 5, 15);
}

TEST(dynamic_pitch)
{
    now.dynamic = true;
    check_within("UniversalCopy<16>", F16, 17, 63);
    check_within("UniversalCopy<128>", F16, 9, 40);
    check_within("UniversalCopy<128>", F32, 24, 32);
    now.narrow = true; // a thread's vectors are a pitch apart, or several follow each other in a row
    check_within("UniversalCopy<128>", F16, 17, 32);
    check_within("UniversalCopy<64>", F16, 17, 32);
    check_within("UniversalCopy<32>", F32, 19, 16);
    now.dynamic = now.narrow = false;
}

/* Stores stop at the edge, too: y has no room beyond it. */

static void describe_store_within(void)
{
    tiled_copy c = make_tiled_copy(now.atom, now.dtype, block(8, 4), block(1, 4));
    tensor gX = matrix("x", now.rows, now.cols), gY = matrix("y", now.row_limit, now.col_limit);
    tensor cY = identity_tensor(shape(now.row_limit, now.col_limit));
    int_tuple tile = shape(now.rows, now.cols), origin = coord(0, 0);
    tensor tXgX = partition_S(&c, gX, thread()), rX = fragment_like(tXgX, F32); // ((ATOM,REST),REST_M,REST_N)
    copy_tiled(&c, tXgX, rX);
    copy_if(&c, partition_D(&c, local_tile(cY, tile, origin), thread()), shape(now.row_limit, now.col_limit), rX,
            partition_D(&c, local_tile(gY, tile, origin), thread()), 0);
}

TEST(store_within)
{
    now.atom = "UniversalCopy<32>", now.dtype = F32;
    now.rows = 16, now.cols = 32, now.row_limit = 11, now.col_limit = 29;
    run_case(describe_store_within, 32, 1, 16 * 32 * 4, 11 * 29 * 4);
    for (int i = 0; i < 11; i++)
        assert_memory_equal(y + i * 29 * 4, x + i * 32 * 4, 29 * 4);
}

/* cp.async: what is outside becomes 0 */

static void describe_cp_async(void)
{
    tiled_copy c = make_tiled_copy(now.atom, F16, block(8, 4), block(1, 8));
    tiled_copy back = make_tiled_copy("UniversalCopy<128>", F16, block(8, 4), block(1, 8));
    int_tuple tile = shape(now.rows, now.cols), origin = coord(0, 0), limits = shape(now.row_limit, now.col_limit);
    tensor gX = local_tile(matrix("x", now.row_limit, 24), tile, origin); // rows of 48 bytes
    tensor sX = smem_tensor("x", F16, with_swizzle((swizzle){ 2, 3, 3 }, block(now.rows, now.cols)), 1024);
    tensor cX = local_tile(identity_tensor(limits), tile, origin);
    copy_if(&c, partition_S(&c, cX, thread()), limits, partition_S(&c, gX, thread()), partition_D(&c, sX, thread()), 0);
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
    cta_sync();
    tensor tXsX = partition_S(&back, sX, thread()), rX = fragment_like(tXsX, F16); // ((ATOM,REST),REST_M,REST_N)
    copy_tiled(&back, tXsX, rX);
    copy_tiled(&back, rX, partition_D(&back, matrix("y", now.rows, now.cols), thread()));
}

TEST(cp_async)
{
    static const char *const atoms[] = { "SM80_CP_ASYNC_CACHEALWAYS<32>", "SM80_CP_ASYNC_CACHEALWAYS<64>",
                                         "SM80_CP_ASYNC_CACHEALWAYS<128>", "SM80_CP_ASYNC_CACHEGLOBAL<128>" };
    static const uint16_t zero;
    for (int a = 0; a < 2 * COUNT_OF(atoms); a++) {
        now.atom = atoms[a % COUNT_OF(atoms)], now.dtype = F16;
        now.rows = 16, now.cols = 32, now.row_limit = 13, now.col_limit = a < COUNT_OF(atoms) ? 24 : 19;
        run_case(describe_cp_async, 32, 1, 13 * 24 * 2, 16 * 32 * 2);
        for (int i = 0; i < 16 * 32; i++) {
            bool inside = i / 32 < 13 && i % 32 < now.col_limit;
            assert_memory_equal(y + 2 * i, inside ? x + 2 * (i / 32 * 24 + i % 32) : (const void *)&zero, 2);
        }
    }
}

/*
 * ldmatrix and stmatrix: x to shared memory and its 8x8 matrices to registers, and the same back to y. Lanes hold
 * neighbours of a row, or of a column where the instruction transposes; a plain copy with the same threads and values
 * takes the other way.
 */

static tiled_copy matrices(const char *atom, int count, bool transpose)
{
    return transpose ? make_tiled_copy(atom, F16, compact(shape(4, 8)), compact(shape(2 * count, 1)))
                     : make_tiled_copy(atom, F16, block(8, 4), block(count, 2));
}

static void describe_matrices(void)
{
    bool transpose = strstr(now.atom, "_T") != NULL, load = strstr(now.atom, "LDSM") != NULL;
    tiled_copy c = matrices(now.atom, now.count, transpose),
               plain = matrices("UniversalCopy<16>", now.count, transpose);
    tensor sX = smem_tensor("x", F16, with_swizzle((swizzle){ 1, 3, 3 }, block(now.rows, now.cols)), 1024);
    tensor gX = matrix("x", now.rows, now.cols), gY = matrix("y", now.rows, now.cols);
    tensor rX = fragment_like(partition_D(&plain, gX, thread()), F16), rY = fragment_like(rX, F16);
    copy_tiled(&plain, partition_S(&plain, gX, thread()), rX);
    if (load)
        copy_tiled(&plain, rX, partition_D(&plain, sX, thread()));
    else
        copy_tiled(&c, rX, partition_D(&c, sX, thread()));
    cta_sync();
    if (load)
        copy_tiled(&c, partition_S(&c, sX, thread()), rY);
    else
        copy_tiled(&plain, partition_S(&plain, sX, thread()), rY);
    copy_tiled(&plain, rY, partition_D(&plain, gY, thread()));
}

TEST(matrices)
{
    static const struct {
        const char *atom;
        int count;
    } cases[] = {
        { "SM75_U32x1_LDSM_N", 1 }, { "SM75_U32x2_LDSM_N", 2 }, { "SM75_U32x4_LDSM_N", 4 }, { "SM75_U16x2_LDSM_T", 1 },
        { "SM75_U16x4_LDSM_T", 2 }, { "SM75_U16x8_LDSM_T", 4 }, { "SM90_U32x1_STSM_N", 1 }, { "SM90_U32x2_STSM_N", 2 },
        { "SM90_U32x4_STSM_N", 4 }, { "SM90_U16x2_STSM_T", 1 }, { "SM90_U16x4_STSM_T", 2 }, { "SM90_U16x8_STSM_T", 4 },
    };
    for (int i = 0; i < COUNT_OF(cases); i++) {
        now.atom = cases[i].atom, now.count = cases[i].count, now.dtype = F16;
        now.rows = 16 * now.count, now.cols = 24; // several tiles
        run_case(describe_matrices, 32, 1, now.rows * now.cols * 2, now.rows * now.cols * 2);
        assert_memory_equal(x, y, (size_t)(now.rows * now.cols * 2));
    }
}

/* The example of docs/copies.md: dynamic sizes and distances between rows; one tile is cut below, one also right. */

enum { EXAMPLE_ROWS = 50, EXAMPLE_COLS = 200, EXAMPLE_LDX = 208 };

#define EXAMPLE_PARAMS(X, owner) \
    X(owner, pointer, x)         \
    X(owner, pointer, y) X(owner, i64, m) X(owner, u32, n) X(owner, i64, ldx) X(owner, u32, ldy) X(owner, f32, alpha)
KERNEL_PARAMS(example, EXAMPLE_PARAMS);

static void describe_example(void)
{
    example_values p = params_of(example);
    tensor gX = gmem_tensor(p.x, F16, make_layout(shape(p.m, p.n), stride(p.ldx, 1))); // (M,N)
    tensor gY = gmem_tensor(p.y, F16, make_layout(shape(p.m, p.n), stride(p.ldy, 1))); // (M,N)
    tensor cX = identity_tensor(shape(p.m, p.n));                                      // (M,N) -> its own coordinates
    int_tuple tile = shape(64, 128), here = coord(cta_y(), cta_x());

    layout threads = compact_right(shape(16, 16)), values = compact_right(shape(1, 8));
    tiled_copy each = make_tiled_copy("UniversalCopy<128>", F16, threads, values);
    tensor tXcX = partition_S(&each, local_tile(cX, tile, here), thread());                // ((8,1),4,1)
    tensor tXgX = tensor_at_coordinates(gX, tXcX), tXgY = tensor_at_coordinates(gY, tXcX); // ((8,1),4,1)
    tensor rX = fragment_like(tXcX, F32);                                                  // ((8,1),4,1)

    copy_if(&each, tXcX, shape(p.m, p.n), tXgX, rX, 0); // outside: 0, not touched
    for (int i = 0; i < static_size(rX.layout); i++)
        set(rX, i, mul(at(rX, i), p.alpha));
    copy_if(&each, tXcX, shape(p.m, p.n), rX, tXgY, 0);
}

TEST(example)
{
    static uint16_t in[EXAMPLE_ROWS][EXAMPLE_LDX], out[EXAMPLE_ROWS][EXAMPLE_COLS];
    for (int i = 0; i < EXAMPLE_ROWS * EXAMPLE_LDX; i++)
        in[i / EXAMPLE_LDX][i % EXAMPLE_LDX] = (uint16_t)(i + 0x400); // f16, no NaN
    size_t in_bytes = sizeof in - (EXAMPLE_LDX - EXAMPLE_COLS) * sizeof in[0][0];
    void *from = test_upload(device, in, in_bytes), *to = test_upload(device, NULL, sizeof out);
    test_kernel k = { describe_example, IR_SM80, .threads = 256, .grid = 2 };
    example_params given = { from, to, EXAMPLE_ROWS, EXAMPLE_COLS, EXAMPLE_LDX, EXAMPLE_COLS, -1 };
    void *params[IR_PARAMS_MAX];
    test_params(&example_param_list, &given, params);
    assert_ok(test_run(device, k, params));
    assert_ok(device->ops->copy_out(device, out, to, sizeof out, NULL));
    for (int i = 0; i < EXAMPLE_ROWS * EXAMPLE_COLS; i++)
        assert_int_equal(out[i / EXAMPLE_COLS][i % EXAMPLE_COLS], in[i / EXAMPLE_COLS][i % EXAMPLE_COLS] | 0x8000);
}

/* Bulk copies and staged stores */

static void describe_bulk(void)
{
    tensor gX = gmem_tensor(pointer("x"), F32, compact(leaf(256))), gY = gmem_tensor(pointer("y"), F32, gX.layout);
    tensor sX = smem_tensor("x", F32, gX.layout, 128), sY = smem_tensor("y", F32, gX.layout, 128);
    pipeline arrival = make_pipeline("arrival", 1, 1, 1);
    pipeline_state filled = producer_state(&arrival), full = consumer_state(&arrival);
    IF(eq(thread(), imm(0))) {
        pipeline_init(&arrival);
        fence_mbarrier_init();
        pipeline_expect(&arrival, &filled, imm(1024));
        bulk_load(gX, sX, pipeline_full_barrier(&arrival, &filled));
    }
    cta_sync();
    pipeline_wait_full(&arrival, &full);
    layout threads = compact(leaf(64));
    copy(local_partition(sX, threads, thread()), local_partition(sY, threads, thread()), 4);
    staged_store out = { imm(0), 64, eq(thread(), imm(0)) };
    LAST_STAGED_STORE(&out)
        bulk_store(sY, gY);
}

TEST(bulk)
{
    now.atom = "SM90_BULK_COPY";
    run_case(describe_bulk, 64, 1, 1024, 1024);
    assert_memory_equal(x, y, 1024);
}

/* TMA: CTA 0 loads a box for both CTAs, each stores it in halves through one buffer. */

enum { BOX_ROWS = 16, BOX_COLS = 64, BOX_BYTES = BOX_ROWS * BOX_COLS * 2, HALF = BOX_ROWS / 2 };

static void describe_multicast(void)
{
    tma_copy tmaX = make_tma(ir_tensor_map_param("x"), F16, 2, BOX_ROWS, BOX_COLS, 128),
             tmaY = make_tma(ir_tensor_map_param("y"), F16, 2, HALF, BOX_COLS, 128);
    tensor sX = smem_tensor("x", F16, tma_tile_layout(F16, BOX_ROWS, BOX_COLS, 128), 1024);
    tensor sY = smem_tensor("y", F16, tma_tile_layout(F16, HALF, BOX_COLS, 128), 1024);
    pipeline arrival = make_pipeline("arrival", 1, 1, 1);
    pipeline_state filled = producer_state(&arrival), full = consumer_state(&arrival);
    val first = eq(thread(), imm(0));
    IF(first) {
        pipeline_init(&arrival);
        fence_mbarrier_init();
        pipeline_expect(&arrival, &filled, imm(BOX_BYTES));
    }
    cluster_sync();
    IF(logical_and(first, eq(cluster_rank(), imm(0))))
        tma_load(&tmaX, sX, imm(0), imm(0), pipeline_full_barrier(&arrival, &filled), imm(now.count == 2 ? 3 : 0));
    pipeline_wait_full(&arrival, &full);
    tiled_copy c = make_tiled_copy("UniversalCopy<128>", F16, block(4, 8), block(1, 8));
    staged_store out = { imm(1), 32, first };
    for (int half = 0; half < 2; half++) {
        tensor tXsX = partition_S(&c, local_tile(sX, shape(HALF, BOX_COLS), coord(half, 0)), thread());
        tensor rX = fragment_like(tXsX, F16); // ((ATOM,REST),REST_M,REST_N)
        copy_tiled(&c, tXsX, rX);
        staging_wait(&out, 0);
        copy_tiled(&c, rX, partition_D(&c, sY, thread()));
        val row = add(mul(cluster_rank(), imm(BOX_ROWS)), imm(half * HALF));
        if (half == 0)
            STAGED_STORE(&out)
                tma_store(&tmaY, sY, row, imm(0));
        else
            LAST_STAGED_STORE(&out)
                tma_store(&tmaY, sY, row, imm(0));
    }
    cluster_sync();
}

static tensor_map map_of(void *memory, int rows, int box_rows)
{
    tensor_map map;
    tensor_map_desc desc = { .dtype = CKL_F16,
                             .rank = 2,
                             .address = memory,
                             .size = { BOX_COLS, rows },
                             .stride = { 2, BOX_COLS * 2 },
                             .box = { BOX_COLS, (int16_t)box_rows },
                             .swizzle = SWIZZLE_128 };
    assert_ok(device->ops->encode_tensor_map(device, &desc, &map));
    return map;
}

static void check_tma(int ctas)
{
    for (int i = 0; i < BOX_BYTES; i++)
        x[i] = (unsigned char)(i * 29 + i / 128);
    void *from = test_upload(device, x, BOX_BYTES), *to = test_upload(device, NULL, (size_t)(ctas * BOX_BYTES));
    tensor_map map_x = map_of(from, BOX_ROWS, BOX_ROWS), map_y = map_of(to, ctas * BOX_ROWS, HALF);
    now.count = ctas;
    test_kernel k = { describe_multicast, IR_SM90A, .threads = 32, .cluster = ctas, .grid = ctas };
    assert_ok(test_run(device, k, (void *[]){ &map_x, &map_y }));
    assert_ok(device->ops->copy_out(device, y, to, (size_t)(ctas * BOX_BYTES), NULL));
    for (int i = 0; i < ctas; i++)
        assert_memory_equal(y + i * BOX_BYTES, x, BOX_BYTES);
}

TEST(tma)
{
    check_tma(1);
    check_tma(2);
}

/* Widths: how many loads and stores a copy takes. */

static int count_of(ir_op op)
{
    int count = 0;
    for (int i = 0; i < ir_current()->inst_count; i++)
        count += ir_current()->insts[i].op == op;
    return count;
}

/* One thread copies a tile whose memory has one layout through registers of another. */
static const char *memory_layout, *register_layout;
static int loads, stores;

static layout parsed(const char *literal)
{
    const char *end;
    layout a = { 0 };
    assert_true(layout_parse(literal, &end, &a));
    return a;
}

static void describe_order(void)
{
    tensor gX = gmem_tensor(pointer("x"), F16, parsed(memory_layout)), gY = gmem_tensor(pointer("y"), F16, gX.layout);
    tensor rX = fragment(F16, parsed(register_layout));
    copy(gX, rX, 16);
    loads = count_of(IR_LD);
    copy(rX, gY, 16);
    stores = count_of(IR_ST);
}

static void check_order(const char *memory, const char *registers, int elements, int accesses)
{
    memory_layout = now.atom = memory;
    register_layout = registers;
    run_case(describe_order, 32, 1, 2 * elements, 2 * elements);
    assert_memory_equal(x, y, (size_t)(2 * elements));
    assert_int_equal(loads, accesses);
    assert_int_equal(stores, accesses);
}

TEST(order)
{
    check_order("(8,16):(1,8)", "(8,16):(1,8)", 128, 16);
    check_order("(8,16):(16,1)", "(8,16):(16,1)", 128, 16);     // registers in the order of memory
    check_order("(8,16):(16,1)", "(8,16):(1,8)", 128, 16);      // and by columns
    check_order("(4,(2,8)):(2,(1,8))", "(4,16):(16,1)", 64, 8); // pairs, then the first mode
    check_order("(4,16):(1,4)", "(4,16):(1,4)", 64, 8);
    check_order("(2,3,4):(4,8,1)", "(2,3,4):(1,2,6)", 24, 3); // 3 does not hinder
    check_order("(2,3):(3,1)", "(2,3):(1,2)", 6, 6);          // no vectors: 2 does not divide the mode of 3
}

/* Memory with gaps: vectors neither reach into them nor begin inside of one. y is otherwise as it was. */
static void check_gaps(const char *memory, int elements, int accesses)
{
    unsigned char wanted[BYTES_MAX];
    memory_layout = register_layout = now.atom = memory;
    run_case(describe_order, 32, 1, 2 * elements, 2 * elements);
    memset(wanted, 0xee, sizeof wanted);
    ir_describe_begin(NULL, IR_SM80);
    const layout a = parsed(memory);
    for (int64_t i = 0; i < static_size(a); i++)
        memcpy(wanted + 2 * index_at(a, i), x + 2 * index_at(a, i), 2);
    assert_ok(ir_describe_end(NULL));
    assert_memory_equal(y, wanted, (size_t)(2 * elements));
    assert_int_equal(loads, accesses);
    assert_int_equal(stores, accesses);
}

TEST(gaps)
{
    check_gaps("(8,2):(1,8)", 16, 2);
    check_gaps("(16):(2)", 32, 16);             // aligned, and never side by side
    check_gaps("(8,4):(1,12)", 48, 8);          // side by side, but every other eight begins at a multiple of 4
    check_gaps("(4,4):(1,6)", 24, 8);           // of 2
    check_gaps("(4,4):(1,7)", 28, 16);          // of 1
    check_gaps("(8,(2,2)):(4,(1,32))", 64, 16); // pairs along the second mode
}

/* Types that only the IR has are elements, too: words through shared memory, two tensors of them in turn. */
static void describe_words(void)
{
    layout all = compact(leaf(32));
    tensor gX = gmem_tensor(pointer("x"), U32, all), gY = gmem_tensor(pointer("y"), U64, compact(leaf(16)));
    tensor sFirst = smem_tensor("first", U32, all, 16), sSecond = smem_tensor("second", U64, compact(leaf(16)), 16);
    assert_int_equal(ir_current()->smem_bytes, 2 * 32 * 4);
    tensor rX = fragment(U32, all), rY = fragment(U64, compact(leaf(16)));
    copy(gX, rX, 16);
    copy(rX, sFirst, 16);
    for (int i = 0; i < 16; i++)
        set(sSecond, i,
            bit_or(convert(U64, at(sFirst, 2 * i)),
                   mul(convert(U64, at(sFirst, 2 * i + 1)), imm_as(U64, INT64_C(1) << 32))));
    copy(sSecond, rY, 16);
    copy(rY, gY, 16);
}

TEST(words)
{
    now.atom = "words";
    run_case(describe_words, 32, 1, 128, 128);
    assert_memory_equal(x, y, 128);
}

RUN_TESTS(open_device, close_device)
