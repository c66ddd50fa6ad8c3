/* unit_permute.c - every bit of every element arrives, whatever it means; more elements than one launch numbers. */
#include "unit.h"
#include "cutekernellib/cutekernellib.h"
#include "operators/operators.h"
#include "operators/permute/permutation.h"

enum { ROWS = 160, COLS = 96, BYTES_MAX = ROWS * COLS * 8 };

static unsigned char x[BYTES_MAX], y[BYTES_MAX];

/* Bits of every kind, NaN payloads among them. */
static void fill_with_bits(void)
{
    uint64_t state = 1;
    for (int i = 0; i < BYTES_MAX; i++) {
        state = state * 6364136223846793005 + 1442695040888963407;
        x[i] = (unsigned char)(state >> 56);
    }
}

static ckl_status run_transpose(ckl_device *gpu, const char *impl, ckl_dtype dtype)
{
    ckl_transpose_desc desc = { .dtype = dtype, .rows = ROWS, .cols = COLS };
    size_t bytes = ROWS * COLS * ckl_dtype_bytes(dtype);
    ckl_transpose_args args;
    void *memory[2];
    ckl_plan *plan;
    TRY(ckl_malloc(gpu, bytes, &memory[0]));
    TRY(ckl_malloc(gpu, bytes, &memory[1]));
    TRY(ckl_copy_in(gpu, memory[0], x, bytes, NULL));
    TRY(plan_build(gpu, &transpose_operator, &desc, impl, &plan));
    args = (ckl_transpose_args){ memory[0], memory[1] };
    TRY(ckl_transpose_run(plan, &args, NULL));
    TRY(ckl_stream_synchronize(gpu, NULL));
    TRY(ckl_copy_out(gpu, y, memory[1], bytes, NULL));
    ckl_plan_free(plan);
    ckl_free(gpu, memory[0]);
    ckl_free(gpu, memory[1]);
    return CKL_OK;
}

TEST(bits)
{
    static const char *const impls[] = { "sm90", "sm80", "boxes", "gather" };
    static const ckl_dtype dtypes[] = { CKL_E4M3, CKL_F16, CKL_F32, CKL_F64 };
    ckl_device *gpu;
    assert_ok(ckl_device_open("emulator:h200", &gpu));
    fill_with_bits();
    for (int i = 0; i < COUNT_OF(impls) * COUNT_OF(dtypes); i++) {
        const char *impl = impls[i / COUNT_OF(dtypes)];
        ckl_dtype dtype = dtypes[i % COUNT_OF(dtypes)];
        size_t bytes = ckl_dtype_bytes(dtype);
        assert_ok(run_transpose(gpu, impl, dtype));
        for (size_t r = 0; r < ROWS; r++)
            for (size_t c = 0; c < COLS; c++)
                if (memcmp(&x[(r * COLS + c) * bytes], &y[(c * ROWS + r) * bytes], bytes) != 0)
                    fail_msg("%s %s: element (%zu,%zu) changed", impl, ckl_dtype_name(dtype), r, c);
    }
    ckl_device_close(gpu);
}

/* A device that notes the elements and the first address of each launch of gather. */
static int64_t elements, launches, most;
static uintptr_t first, last;

static ckl_status note_load(ckl_device *d, const ir_kernel *kernel, device_kernel **loaded)
{
    *loaded = (device_kernel *)&launches;
    return CKL_OK;
}

static void note_unload(ckl_device *d, device_kernel *kernel)
{
}

static ckl_status note_launch(ckl_device *d, const device_kernel *kernel, const device_launch *launch, ckl_stream s)
{
    int64_t count = *(const uint32_t *)launch->params[0];
    uintptr_t from = *(const uintptr_t *)launch->params[1];
    elements += count;
    launches++;
    most = max_i64(most, count);
    first = first && first < from ? first : from;
    last = last > from ? last : from;
    return CKL_OK;
}

static ckl_status one_resident(ckl_device *d, const device_kernel *kernel, int *count)
{
    *count = 1;
    return CKL_OK;
}

/* 2^34 bytes in rows of odd pitches, so that each is an element: 16 launches. */
TEST(many_elements)
{
    static const device_ops ops = {
        .load = note_load, .unload = note_unload, .launch = note_launch, .clusters_resident = one_resident
    };
    ckl_device device = { &ops,
                          { .id = "notes",
                            .compute_capability = 80,
                            .sm_count = 1,
                            .threads_per_cta_max = 1024,
                            .registers_per_sm = 65536,
                            .smem_per_cta_bytes = 65536 } };
    const uintptr_t base = (uintptr_t)1 << 40;
    ckl_plan *plan;
    ckl_permute_desc desc = { .dtype = CKL_U8,
                              .rank = 2,
                              .shape = { 1 << 17, 1 << 17 },
                              .order = { 0, 1 },
                              .stride_x = { (1 << 17) + 1, 1 },
                              .stride_y = { (1 << 17) + 3, 1 } };
    assert_ok(ckl_permute_plan(&device, &desc, &plan));
    ckl_permute_args args = { (void *)base, (void *)(base << 4) };
    assert_ok(ckl_permute_run(plan, &args, NULL));
    ckl_plan_free(plan);
    assert_true(elements == (int64_t)1 << 34);
    assert_int_equal(launches, 16);
    assert_int_equal(most, 1 << 30);
    assert_true(first == base);
    assert_true(last == base + (((uintptr_t)1 << 17) + 1) * (3 << 15) + (3 << 15)); // both modes in quarters
}

/* x may begin anywhere in an allocation of which nothing else was written: what vectors hold beside it is not used. */
TEST(misaligned)
{
    static const struct {
        const char *impl;
        int64_t rows, cols;
    } problems[] = { { "sm80", ROWS, COLS }, { "narrow", 3, 2 * ROWS }, { "narrow", 2 * ROWS, 3 } };
    ckl_device *gpu;
    assert_ok(ckl_device_open("emulator:h200", &gpu));
    fill_with_bits();
    for (int i = 0; i < COUNT_OF(problems); i++) {
        const int64_t rows = problems[i].rows, cols = problems[i].cols;
        const ckl_transpose_desc desc = { .dtype = CKL_U8, .rows = rows, .cols = cols };
        const size_t bytes = (size_t)(rows * cols);
        unsigned char *from, *to;
        ckl_plan *plan;
        assert_ok(ckl_malloc(gpu, bytes + 32, (void **)&from));
        assert_ok(ckl_malloc(gpu, bytes + 32, (void **)&to));
        assert_ok(ckl_copy_in(gpu, from + 7, x, bytes, NULL));
        assert_ok(plan_build(gpu, &transpose_operator, &desc, problems[i].impl, &plan));
        if (ckl_transpose_run(plan, &(ckl_transpose_args){ from + 7, to + 5 }, NULL) != CKL_OK)
            fail_msg("%s: %s", problems[i].impl, ckl_error());
        assert_ok(ckl_copy_out(gpu, y, to + 5, bytes, NULL));
        for (int64_t e = 0; e < rows * cols; e++)
            assert_int_equal(y[e], x[e % rows * cols + e / rows]);
        ckl_plan_free(plan);
        ckl_free(gpu, from);
        ckl_free(gpu, to);
    }
    ckl_device_close(gpu);
}

static void expect_refused(ckl_permute_desc desc, const char *sentence)
{
    static const device_ops ops = { 0 };
    ckl_device device = { &ops, { .id = "none" } };
    ckl_plan *plan;
    assert_fails(ckl_permute_plan(&device, &desc, &plan), CKL_INVALID, sentence);
}

/* What a desc has beyond its rank is a mistake of the caller's, and so is a rank that there is not. */
TEST(modes_beyond_rank)
{
    const ckl_permute_desc desc = { .dtype = CKL_F32, .rank = 2, .shape = { 4, 4 }, .order = { 1, 0 } };
    ckl_permute_desc shape = desc, order = desc, stride_x = desc, stride_y = desc, many = desc;
    const ckl_permute_desc none = { .dtype = CKL_F32 };
    many.rank = CKL_PERMUTE_RANK_MAX + 1;
    expect_refused(none, "permute: rank=0 is not in 1..5");
    expect_refused(many, "permute: rank=6 is not in 1..5");
    shape.shape[2] = 4;
    order.order[3] = 2;
    stride_x.stride_x[4] = 1;
    stride_y.stride_y[2] = 1;
    expect_refused(shape, "permute: shape[2]=4 is beyond the rank");
    expect_refused(order, "permute: order[3]=2 is beyond the rank");
    expect_refused(stride_x, "permute: stride_x[4]=1 is beyond the rank");
    expect_refused(stride_y, "permute: stride_y[2]=1 is beyond the rank");
}

/* Whether so many elements share memory is not found out. */
TEST(strides_beyond_search)
{
    expect_refused(
        (ckl_permute_desc){ .dtype = CKL_U8,
                            .rank = 4,
                            .shape = { 512, 512, 512, 512 },
                            .order = { 0, 1, 2, 3 },
                            .stride_y = { 34359738421, 31415926535, 27182818284, 23606797749 } },
        "permute: y has strides that do not nest; whether elements share memory takes more than 16777216 steps");
}

/* Vectors want both pointers where they begin. */
TEST(alignment)
{
    static const struct {
        uintptr_t x, y;
        bool aligned;
    } rows[] = { { 32, 16, true }, { 24, 16, false }, { 16, 8, false }, { 8, 24, false } };
    for (int i = 0; i < COUNT_OF(rows); i++) {
        const permute_pointers args = { .x = (const void *)rows[i].x, .y = (void *)rows[i].y };
        assert_int_equal(PLAN_ALIGNED(16, args.x, args.y), rows[i].aligned);
    }
}

RUN_TESTS(NULL, NULL)
