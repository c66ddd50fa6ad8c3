/* unit_im2col.c - TMA's im2col mode: small tensors against a plain enumeration, multicast, planted faults, limits. */
#include "unit_emulator_async.h"

enum { RANK_MAX = TENSOR_MAP_RANK_MAX, CHANNELS = 16, PIXELS = 5, MEMORY = 1 << 16 };

static _Alignas(16) uint16_t memory[MEMORY];

/* Channels, columns, rows, slices, images; the innermost of `rank` modes, images last. */
static tensor_map_desc map_of(int rank, const int *size, const int *lower, const int *upper, const int *step)
{
    tensor_map_desc d = { .dtype = CKL_F16,
                          .rank = (int16_t)rank,
                          .address = memory,
                          .size = { CHANNELS },
                          .box = { CHANNELS, PIXELS, 1, 1, 1 },
                          .swizzle = SWIZZLE_32,
                          .im2col = true };
    int64_t stride = 2 * CHANNELS;
    for (int dim = 1; dim < rank; dim++) {
        d.size[dim] = size[dim - 1];
        d.stride[dim] = stride;
        stride *= size[dim - 1];
        if (dim == rank - 1)
            continue;
        d.lower[dim - 1] = (int16_t)lower[dim - 1];
        d.upper[dim - 1] = (int16_t)upper[dim - 1];
        d.step[dim] = (uint8_t)step[dim - 1];
    }
    return d;
}

/* The walk against an enumeration */

typedef struct places {
    int32_t at[512][RANK_MAX];
    int count;
} places;

/* All places of all images and of one more, the innermost mode fastest. */
static void enumerate(const tensor_map_desc *d, int dim, int32_t *at, places *all)
{
    if (dim == 0) {
        memcpy(all->at[all->count++], at, sizeof all->at[0]);
        return;
    }
    const bool images = dim == d->rank - 1;
    const int first = images ? 0 : d->lower[dim - 1];
    const int last = (int)d->size[dim] - 1 + (images ? 1 : d->upper[dim - 1]);
    for (at[dim] = first; at[dim] <= last; at[dim] += images ? 1 : tensor_map_step(d, dim))
        enumerate(d, dim - 1, at, all);
}

static uint16_t expected(const tensor_map_desc *d, const int32_t *place, const int *offset, int channel)
{
    int64_t at = channel;
    for (int dim = 1; dim < d->rank; dim++) {
        const int64_t x = place[dim] + (dim < d->rank - 1 ? offset[dim - 1] : 0);
        if (x < 0 || x >= d->size[dim])
            return 0;
        at += x * d->stride[dim] / 2;
    }
    return memory[at];
}

static void copy_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    unsigned char *shared = user;
    if (global)
        memcpy(shared + offset, global, bytes);
    else
        memset(shared + offset, 0, bytes);
}

/* From every place on, of as many pixels as are listed. */
static int64_t check_walks(const tensor_map_desc *d, const int *offset)
{
    static places all;
    int32_t at[RANK_MAX] = { 0 };
    all.count = 0;
    enumerate(d, d->rank - 1, at, &all);
    for (int first = 0; first + PIXELS <= all.count; first++) {
        uint16_t shared[PIXELS][CHANNELS];
        int32_t coordinates[RANK_MAX + TENSOR_MAP_PIXEL_MODES];
        memset(shared, 0xff, sizeof shared);
        memcpy(coordinates, all.at[first], (size_t)d->rank * sizeof *coordinates);
        for (int i = 0; i < d->rank - 2; i++)
            coordinates[d->rank + i] = offset[i];
        assert_true(tma_is_place(d, coordinates));
        tma_walk(d, coordinates, copy_run, shared);
        for (int pixel = 0; pixel < PIXELS; pixel++)
            for (int channel = 0; channel < CHANNELS; channel++)
                assert_int_equal(shared[pixel][channel], expected(d, all.at[first + pixel], offset, channel));
    }
    return all.count;
}

/* Numbers that count through `count` digits of `base`, from `low` on. */
static void digits(int number, int base, int low, int count, int *out)
{
    for (int i = 0; i < count; i++, number /= base)
        out[i] = low + number % base;
}

static int power(int base, int exponent)
{
    return exponent ? base * power(base, exponent - 1) : 1;
}

/* Sizes of 1 to 3, corners of -2 to 1, steps of 1 and 2, offsets of 0 to 2: all of rank 3, of 4 and 5 one in many. */
TEST(walk)
{
    int64_t checked = 0;
    for (int i = 0; i < MEMORY; i++)
        memory[i] = (uint16_t)(i + 1);
    for (int rank = 3; rank <= RANK_MAX; rank++) {
        static const int every[] = { [3] = 1, [4] = 37, [5] = 24989 };
        const int modes = rank - 2, sizes = power(3, modes + 1), corners = power(4, modes), steps = power(2, modes),
                  offsets = power(3, modes);
        const int all = sizes * corners * corners * steps;
        for (int64_t i = 0; i < (int64_t)all * offsets; i += every[rank]) {
            int size[4], lower[3], upper[3], step[3], offset[3], rest = (int)(i / offsets);
            digits((int)(i % offsets), 3, 0, modes, offset);
            digits(rest % sizes, 3, 1, modes + 1, size);
            rest /= sizes;
            digits(rest % corners, 4, -2, modes, lower);
            rest /= corners;
            digits(rest % corners, 4, -2, modes, upper);
            digits(rest / corners, 2, 1, modes, step);
            const tensor_map_desc d = map_of(rank, size, lower, upper, step);
            if (tensor_map_check(&d) == CKL_OK)
                checked += check_walks(&d, offset);
        }
    }
    assert_true(checked > 100000);
}

/* Loads: 3x4 pixels of 2 images under a filter that is padded by 1, to both CTAs of a cluster */

enum { WIDTH = 4, HEIGHT = 3, IMAGES = 2, BYTES = PIXELS * CHANNELS * 2 };

static int column, row, offset_w, expected_bytes;
static bool boxes;

static void describe_load(void)
{
    val map = ir_tensor_map_param("map"), out = pointer("out");
    val box = ir_smem_address(ir_smem_alloc("box", 1024, 1024)), bar = ir_smem_address(ir_smem_alloc("bar", 8, 8));
    val place[] = { ir_int(CKL_I32, 0), ir_int(CKL_I32, column), ir_int(CKL_I32, row), ir_int(CKL_I32, 0) };
    val rank = ir_sreg(IR_CLUSTER_RANK), offsets[] = { u32(offset_w), u32(2) };
    IF(ir_elect()) {
        ir_mbarrier_init(bar, 0, 1);
        ir_plain(IR_FENCE_MBARRIER_INIT, 0, 0);
        ir_mbarrier_expect(bar, 0, u32(expected_bytes));
    }
    cluster_sync();
    IF(equals(rank, 0)) {
        IF(ir_elect()) {
            if (boxes)
                ir_tma_load(box, 0, map, bar, u32(3), 4, place);
            else
                ir_tma_load_im2col(box, 0, map, bar, u32(3), 4, place, offsets);
        }
    }
    ir_mbarrier_wait(bar, 0, u32(0));
    val lane = ir_sreg(IR_TID_X), to = ir_binary(IR_ADD, out, ir_convert(IR_U64, mul(rank, 1024)));
    to = ir_binary(IR_ADD, to, ir_convert(IR_U64, mul(lane, 4)));
    for (int at = 0; at + 128 <= BYTES; at += 128)
        test_store_value(IR_GLOBAL, IR_U32, to, at, test_load_value(IR_SHARED, IR_U32, add(box, mul(lane, 4)), at));
    cluster_sync();
}

static ckl_status run_load(uint16_t *out, tensor_map_desc *d)
{
    tensor_map map;
    void *from = test_upload(gpu, memory, WIDTH * HEIGHT * IMAGES * CHANNELS * 2), *to = test_upload(gpu, NULL, 2048);
    const int size[] = { WIDTH, HEIGHT, IMAGES }, lower[] = { -1, -1 }, upper[] = { -1, -1 }, step[] = { 1, 1 };
    *d = map_of(4, size, lower, upper, step);
    d->swizzle = SWIZZLE_NONE;
    d->address = from;
    assert_ok(gpu->ops->encode_tensor_map(gpu, d, &map));
    const ckl_status status = test_run(
        gpu, (test_kernel){ describe_load, IR_SM90A, .threads = 32, .cluster = 2, .grid = 2 }, (void *[]){ &map, &to });
    if (status == CKL_OK)
        assert_ok(gpu->ops->copy_out(gpu, out, to, 2048, NULL));
    return status;
}

static void set_load(int at_column, int at_row, int offset, int bytes, bool of_boxes)
{
    column = at_column;
    row = at_row;
    offset_w = offset;
    expected_bytes = bytes;
    boxes = of_boxes;
}

TEST_EVERYWHERE(multicast)
{
    uint16_t out[2][512];
    tensor_map_desc d;
    set_load(1, 1, 2, BYTES, false);
    assert_ok(run_load(out[0], &d));
    static const int32_t under[PIXELS][RANK_MAX] = { // four columns and three rows of places
                                                     { 0, 1, 1, 0 },
                                                     { 0, 2, 1, 0 },
                                                     { 0, -1, -1, 1 },
                                                     { 0, 0, -1, 1 },
                                                     { 0, 1, -1, 1 }
    };
    for (int cta = 0; cta < 2; cta++)
        for (int i = 0; i < BYTES / 128 * 64; i++) {
            d.address = memory;
            assert_int_equal(out[cta][i],
                             expected(&d, under[i / CHANNELS], (const int[]){ offset_w, 2 }, i % CHANNELS));
        }
}

/* Wrong corners, offsets, bytes and modes. */
TEST_EVERYWHERE(faults)
{
    static const struct {
        int column, row, offset, bytes;
        bool boxes;
        const char *words;
    } faults[] = {
        { -2, 1, 2, BYTES, false, "it begins at column -2, row 1: no place between the map's corners" },
        { 1, 2, 2, BYTES, false, "it begins at column 1, row 2: no place between the map's corners" },
        { 1, 1, 256, BYTES, false, "offset 0 is 256, 4 modes take less than 256" },
        { 1, 1, 2, BYTES - 32, false, "32 bytes more arrived at the mbarrier" },
        { 1, 1, 2, BYTES + 32, false, "deadlock" },
        { 1, 1, 2, BYTES, true, "a box through a map of im2col mode" },
    };
    uint16_t out[1024];
    tensor_map_desc d;
    for (int i = 0; i < COUNT_OF(faults); i++) {
        set_load(faults[i].column, faults[i].row, faults[i].offset, faults[i].bytes, faults[i].boxes);
        assert_fails(run_load(out, &d), CKL_DEVICE_FAULT, faults[i].words);
    }
}

/* Limits: one field of a right map changed */

#define REFUSE(words, ...)                                      \
    do {                                                        \
        tensor_map_desc d = right;                              \
        __VA_ARGS__;                                            \
        assert_fails(tensor_map_check(&d), CKL_INVALID, words); \
    } while (0)

TEST(limits)
{
    const int size[] = { 9, 8, 2 }, lower[] = { -1, -1 }, upper[] = { -1, 0 }, step[] = { 1, 2 };
    const tensor_map_desc right = map_of(4, size, lower, upper, step);
    assert_ok(tensor_map_check(&right));
    REFUSE("rank=2 has no pixels between", d.rank = 2);
    REFUSE("lower[0]=-129 or upper[0]=-1 is not in -128..127", d.lower[0] = -129);
    REFUSE("lower[1]=-1 or upper[1]=128 is not in -128..127", d.upper[1] = 128);
    REFUSE("lower[0]=-1 and upper[0]=-10 leave no place", d.upper[0] = -10);
    REFUSE("box[1]=1025 is not in 1..1024", d.box[1] = 1025);
    REFUSE("box[2]=2, but a column of pixels is one mode", d.box[2] = 2);
    REFUSE("step[2]=9 is not in 1..8", d.step[2] = 9);
}

RUN_TESTS(NULL, NULL)
