/*
 * unit_ragged.c - loads and stores of rows that start anywhere: every phase of source and destination, lengths from one
 * element on. Bytes between the rows of the source were never written, so that a load of one of them is a fault.
 */
#include "emulated_device.h"
#include "unit_emulator.h"

#undef HERE
#include "cute/kernel.h"
#include "skeletons/row.h"

enum { ROWS = 3, BYTES_MAX = 1 << 13, UNTOUCHED = 0xee };

/* How a row comes from x to y: boundaries are those of the one that is named first. */
typedef enum copy_way { IN_PHASE, LOAD_ANYWHERE, STORE_ANYWHERE } copy_way;

static struct {
    row_split split;
    ckl_dtype dtype;
    copy_way way;
} now; // what is being described

static void copy_span(const row_span *at, val x, val ldx, val y, val ldy)
{
    tensor tXgX = row_of_matrix(&at->split, &at->place, x, now.dtype, ldx); // (VEC,STEPS)
    tensor tYgY = row_of_matrix(&at->split, &at->place, y, now.dtype, ldy); // (VEC,STEPS)
    tensor rX = fragment_like(tXgX, now.dtype);                             // (VEC,STEPS)
    (now.way == LOAD_ANYWHERE ? row_load_anywhere : row_load)(&at->split, &at->place, tXgX, rX, 0);
    (now.way == STORE_ANYWHERE ? row_store_anywhere : row_store)(&at->split, &at->place, rX, tYgY);
}

static void describe(void)
{
    val x = ir_scalar_param(U64, "x"), y = ir_scalar_param(U64, "y"), cols = ir_scalar_param(I64, "cols");
    val ldx = ir_scalar_param(I64, "ldx"), ldy = ir_scalar_param(I64, "ldy");
    row_place place = row_here(&now.split, imm64(ROWS), cols);
    const row_spans all = now.way == LOAD_ANYWHERE ? row_spans_of(&now.split, &place, y, now.dtype, ldy)
                                                   : row_spans_of(&now.split, &place, x, now.dtype, ldx);
    assert_int_equal(all.count, 2);
    for (int i = 0; i < all.count; i++)
        copy_span(&all.of[i], x, ldx, y, ldy);
}

/* A matrix in memory of exactly its length; nothing between its rows is written, if it is a source. */
typedef struct matrix {
    unsigned char host[BYTES_MAX];
    unsigned char *memory;
    int64_t bytes, start, pitch; // in bytes
} matrix;

static void make(matrix *m, bool source, int64_t offset, int64_t cols, int64_t ld)
{
    const int64_t size = (int64_t)ckl_dtype_bytes(now.dtype);
    m->start = offset * size;
    m->pitch = ld * size;
    m->bytes = m->start + (ROWS - 1) * m->pitch + cols * size;
    assert_true(m->bytes <= BYTES_MAX);
    for (int64_t i = 0; i < m->bytes; i++)
        m->host[i] = (unsigned char)(source ? i * 37 + i / 256 * 11 : UNTOUCHED);
    m->memory = test_upload(device, source ? NULL : m->host, (size_t)m->bytes);
    for (int64_t r = 0; r < ROWS && source; r++) {
        const int64_t at = m->start + r * m->pitch;
        assert_ok(device->ops->copy_in(device, m->memory + at, m->host + at, (size_t)(cols * size), NULL));
    }
}

static void check_copy(device_kernel *kernel, int64_t cols, int64_t offset_x, int64_t offset_y, int64_t pitch_more)
{
    static matrix x, y;
    static unsigned char want[BYTES_MAX];
    int64_t ldx = cols + 3, ldy = ldx + pitch_more;
    make(&x, true, offset_x, cols, ldx);
    make(&y, false, offset_y, cols, ldy);
    void *from = x.memory + x.start, *to = y.memory + y.start;
    device_launch launch = { .grid = { row_split_ctas(&now.split, ROWS), 1, 1 },
                             .params = (void *[]){ &from, &to, &cols, &ldx, &ldy } };
    if (device->ops->launch(device, kernel, &launch, NULL) != CKL_OK)
        fail_msg("way %d, %s, cols %d, offsets %d %d: %s", now.way, ckl_dtype_name(now.dtype), (int)cols, (int)offset_x,
                 (int)offset_y, ckl_error());
    memcpy(want, y.host, (size_t)y.bytes);
    for (int64_t r = 0; r < ROWS; r++)
        memcpy(want + y.start + r * y.pitch, x.host + x.start + r * x.pitch,
               (size_t)(cols * (int64_t)ckl_dtype_bytes(now.dtype)));
    assert_ok(device->ops->copy_out(device, y.host, y.memory, (size_t)y.bytes, NULL));
    if (memcmp(want, y.host, (size_t)y.bytes) != 0)
        fail_msg("way %d, %s, cols %d, offsets %d %d: wrong bytes", now.way, ckl_dtype_name(now.dtype), (int)cols,
                 (int)offset_x, (int)offset_y);
}

static void check_way(copy_way way, ckl_dtype dtype, row_split split)
{
    device_kernel *kernel = NULL;
    const int vec = split.vec;
    const int64_t most = row_split_cols(&split) + vec - 1, lengths[] = { 1, vec - 1, vec, 2 * vec + 1, most - 2, most };
    now.way = way, now.dtype = dtype, now.split = split;
    assert_ok(test_load(device, (test_kernel){ describe, IR_SM90A, .threads = split.threads }, &kernel));
    for (int offset_x = 0; offset_x < vec; offset_x++)
        for (int more = 0; more < (way == IN_PHASE ? COUNT_OF(lengths) : vec); more++) {
            const int offset_y = way == IN_PHASE ? offset_x : (offset_x + more) % vec;
            check_copy(kernel, lengths[(offset_x + more) % COUNT_OF(lengths)], offset_x, offset_y,
                       way == IN_PHASE ? vec : 2);
        }
    device->ops->unload(device, kernel);
}

static void check_all(copy_way way)
{
    static const ckl_dtype dtypes[] = { CKL_F32, CKL_BF16 };
    for (int i = 0; i < COUNT_OF(dtypes); i++) {
        const int vec = row_vec_full(dtypes[i]);
        check_way(way, dtypes[i], (row_split){ 32, 2 * vec, 1, vec, 3, .ragged = true });
        check_way(way, dtypes[i], (row_split){ 64, 64, 1, vec, 1, .ragged = true });
    }
}

TEST(in_phase)
{
    check_all(IN_PHASE);
}

TEST(load_anywhere)
{
    check_all(LOAD_ANYWHERE);
}

TEST(store_anywhere)
{
    check_all(STORE_ANYWHERE);
}

/* The host's side: what is chosen, and which rows lie alike. */
TEST(splits)
{
    row_split s;
    assert_true(row_split_choose_ragged(77, CKL_F32, 32, 1, &s));
    assert_true(s.ragged && !s.exact && s.vec == 4 && s.row_threads >= 8 && row_split_cols(&s) >= 76);
    assert_false(row_split_choose_ragged(31, CKL_BF16, 32, 1, &s)); // three vectors and ends
    assert_true(row_split_choose_ragged(1001, CKL_BF16, 16, 1, &s));
    row_split scalar = row_split_scalar(&s);
    assert_true(scalar.vec == 1 && !scalar.ragged && row_split_cols(&scalar) >= 1001);
    row_split few = { 32, 4, 1, 8, 1, .exact = true }, aligned = { 32, 32, 1, 8, 1, .exact = true };
    assert_int_equal(row_split_anywhere(&few, CKL_BF16).vec, 1); // too few threads for the ends
    assert_true(row_split_anywhere(&aligned, CKL_BF16).ragged && !row_split_anywhere(&aligned, CKL_BF16).exact);

    assert_int_equal(row_phase_period(CKL_BF16, 1001), 8);
    assert_int_equal(row_phase_period(CKL_BF16, 1002), 4);
    assert_int_equal(row_phase_period(CKL_F32, 1004), 1);
    assert_true(row_in_phase(CKL_F32, 9, 77, 81) && row_in_phase(CKL_F32, 1, 77, 78));
    assert_false(row_in_phase(CKL_F32, 9, 77, 79));
    assert_true(row_starts_in_phase((char *)16 + 6, (char *)64 + 6));
    assert_false(row_starts_in_phase((char *)16 + 6, (char *)64 + 4));
}

RUN_TESTS(open_device, close_device)
