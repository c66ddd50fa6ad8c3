/* unit_tma.c - tensor maps: encoding, boxes against brute force; unit_limits.c has what is refused. */
#include "unit.h"
#include "device/emulator/tma.h"

enum { RANK_MAX = TENSOR_MAP_RANK_MAX, SHARED_MAX = 64 * 1024, MEMORY_MAX = 1 << 20, POISON = 0xa5 };

static _Alignas(16) unsigned char memory[MEMORY_MAX];

static const tensor_map_desc valid = {
    .dtype = CKL_BF16,
    .rank = 3,
    .address = memory,
    .size = { 60, 9, 5 },
    .stride = { 2, 128, 128 * 10 },
    .box = { 64, 8, 2 },
    .swizzle = SWIZZLE_128,
};

TEST(swizzle)
{
    assert_int_equal(swizzle_address(0x12f5, 0), 0x12f5);
    assert_int_equal(swizzle_address(0x13f5, 128), 0x1385); // chunk 7 of row 7
    assert_int_equal(swizzle_address(0x1235, 128), 0x1275); // chunk 3 of row 4
    assert_int_equal(swizzle_address(0x1195, 64), 0x11a5);
    assert_int_equal(swizzle_address(0x1195, 32), 0x1185);
    for (int span = 32; span <= 128; span *= 2) {
        for (uint32_t address = 0; address < 4096; address++) {
            assert_int_equal(swizzle_address(swizzle_address(address, span), span), address);
            assert_int_equal(swizzle_address(address, span) / (uint32_t)span, address / (uint32_t)span);
        }
    }
}

TEST(encoding)
{
    tensor_map map;
    tensor_map_desc found;
    unsigned char moved[IR_TENSOR_MAP_BYTES + 1];
    assert_ok(tma_encode(&valid, &map));
    memcpy(moved + 1, map.bytes, sizeof map.bytes);
    assert_true(tma_decode(moved + 1, &found));
    assert_int_equal(found.stride[0], ckl_dtype_bytes(valid.dtype));
    found.stride[0] = valid.stride[0];
    assert_memory_equal(&found, &valid, sizeof valid);
    assert_int_equal(tma_box_bytes(&found), 64 * 8 * 2 * 2);
    moved[1 + offsetof(tensor_map_desc, stride)] ^= 1;
    assert_false(tma_decode(moved + 1, &found));

    tensor_map_desc bad = valid;
    bad.rank = 6;
    assert_int_equal(tma_encode(&bad, &map), CKL_INVALID);
}

/* Boxes */

/* What a walk wrote: the element number of memory, or 0 for out of bounds; and how often each byte was written. */
typedef struct capture {
    unsigned char shared[SHARED_MAX], written[SHARED_MAX];
    uint32_t last;
} capture;

static void capture_run(void *user, uint32_t offset, unsigned char *global, uint32_t bytes)
{
    capture *c = user;
    assert_true(bytes > 0 && offset + bytes <= SHARED_MAX);
    assert_true(offset >= c->last);
    if (global) {
        assert_true(global >= memory && global + bytes <= memory + MEMORY_MAX);
        memcpy(c->shared + offset, global, bytes);
    } else
        memset(c->shared + offset, 0, bytes);
    for (uint32_t i = 0; i < bytes; i++)
        c->written[offset + i]++;
    c->last = offset + bytes;
}

/* Byte `byte` of the box element at index[], by the definition. */
static unsigned char expected_byte(const tensor_map_desc *d, const int32_t *coordinates, const int *index, int byte)
{
    int64_t at = (coordinates[0] + index[0]) * (int64_t)ckl_dtype_bytes(d->dtype) + byte;
    bool inside = true;
    for (int dim = 0; dim < d->rank; dim++) {
        int64_t x = (int64_t)coordinates[dim] + index[dim] * (d->step[dim] ? d->step[dim] : 1);
        inside = inside && x >= 0 && x < d->size[dim];
        at += dim ? x * d->stride[dim] : 0;
    }
    return inside ? memory[at] : 0;
}

static bool next_index(const tensor_map_desc *d, const int *count, int *index)
{
    for (int dim = 0; dim < d->rank; dim++) {
        if (++index[dim] < count[dim])
            return true;
        index[dim] = 0;
    }
    return false;
}

static void check_walk(const tensor_map_desc *d, const int32_t *coordinates)
{
    static capture c;
    memset(&c, 0, sizeof c);
    memset(c.shared, POISON, sizeof c.shared);
    tma_walk(d, coordinates, capture_run, &c);
    int index[RANK_MAX] = { 0 }, box[RANK_MAX], element = (int)ckl_dtype_bytes(d->dtype);
    int64_t pitch = d->swizzle ? (int64_t)d->swizzle : d->box[0] * element, bytes = 0;
    for (int dim = 0; dim < d->rank; dim++)
        box[dim] = d->box[dim];
    do {
        int64_t row = 0;
        for (int dim = d->rank - 1; dim > 0; dim--)
            row = row * d->box[dim] + index[dim];
        for (int byte = 0; byte < element; byte++) {
            int64_t offset = row * pitch + index[0] * element + byte;
            assert_int_equal(c.written[offset], 1);
            assert_int_equal(c.shared[offset], expected_byte(d, coordinates, index, byte));
        }
        bytes += element;
    } while (next_index(d, box, index));
    assert_int_equal(bytes, tma_box_bytes(d));
    for (int i = 0; i < SHARED_MAX; i++)
        bytes -= c.written[i];
    assert_int_equal(bytes, 0); // nothing beside the box
}

/* Every combination of a box before, across, inside, past and beyond the bounds of each dimension. */
static void check_corners(const tensor_map_desc *d)
{
    enum { PLACES = 7 };
    int count[RANK_MAX] = { PLACES, PLACES, PLACES, PLACES, PLACES }, place[RANK_MAX] = { 0 };
    do {
        int32_t coordinates[RANK_MAX];
        for (int dim = 0; dim < d->rank; dim++) {
            int size = (int)d->size[dim], box = d->box[dim];
            const int32_t places[PLACES] = { -box - 1, -box, -1, 0, size - box + 1, size - 1, size };
            coordinates[dim] = places[place[dim]];
        }
        check_walk(d, coordinates);
    } while (next_index(d, count, place));
}

static tensor_map_desc map_of(ckl_dtype dtype, int rank, const int64_t *size, const int64_t *stride, const int *box,
                              tensor_map_swizzle swizzle)
{
    tensor_map_desc d = { .dtype = dtype, .rank = (int16_t)rank, .address = memory, .swizzle = swizzle };
    for (int dim = 0; dim < rank; dim++) {
        d.size[dim] = size[dim];
        d.stride[dim] = stride[dim];
        d.box[dim] = (int16_t)box[dim];
    }
    return d;
}

TEST(walk)
{
    for (int i = 0; i < MEMORY_MAX; i++)
        memory[i] = (unsigned char)(i % 251 + 1);
    tensor_map_desc d = { .dtype = CKL_F32, .rank = 1, .address = memory, .size = { 13 }, .box = { 8 } };
    check_corners(&d);
    d = map_of(CKL_F64, 2, (int64_t[]){ 5, 4 }, (int64_t[]){ 0, 48 }, (int[]){ 4, 3 }, SWIZZLE_32);
    check_corners(&d);
    check_corners(&valid);
    d = map_of(CKL_U8, 4, (int64_t[]){ 33, 3, 1, 2 }, (int64_t[]){ 0, 48, 160, 320 }, (int[]){ 16, 2, 2, 1 },
               SWIZZLE_NONE);
    check_corners(&d);
    d = map_of(CKL_F16, 3, (int64_t[]){ 9, 3, 3 }, (int64_t[]){ 0, 32, 96 }, (int[]){ 16, 2, 2 },
               SWIZZLE_64); // narrow rows
    check_corners(&d);
    d = map_of(CKL_F16, 3, (int64_t[]){ 9, 5, 6 }, (int64_t[]){ 0, 32, 160 }, (int[]){ 8, 3, 2 }, SWIZZLE_32);
    d.step[1] = 2; // elements that lie apart
    d.step[2] = 3;
    check_corners(&d);
}

TEST(walk_rank_5)
{
    const tensor_map_desc d = map_of(CKL_F64, 5, (int64_t[]){ 3, 2, 2, 1, 2 }, (int64_t[]){ 0, 32, 64, 128, 128 },
                                     (int[]){ 2, 1, 2, 2, 1 }, SWIZZLE_NONE);
    const int32_t corners[][RANK_MAX] = { { 0, 0, 0, 0, 0 },         { 2, 1, 1, 0, 1 },        { -1, -1, -1, -1, -1 },
                                          { 3, 2, 2, 1, 2 },         { 2, 1, -1, -1, 1 },      { 0, 0, 1, 0, 2 },
                                          { INT32_MIN, 0, 0, 0, 0 }, { 0, INT32_MAX, 0, 0, 0 } };
    for (int i = 0; i < COUNT_OF(corners); i++)
        check_walk(&d, corners[i]);
}

RUN_TESTS(NULL, NULL)
