/* unit_fragments.c - where the tensor core's operands lie: elements in lanes' registers, tiles in shared memory. */
#include "unit.h"
#include "base/math.h"
#include "device/emulator/matrix.h"

/* --- Fragments --- */

typedef void fragment(int thread, int i, int *row, int *column);

static void check_bijection(fragment *where, int threads, int elements, int rows, int columns)
{
    char seen[64 * 256] = { 0 };
    assert_int_equal(threads * elements, rows * columns);
    for (int thread = 0; thread < threads; thread++) {
        for (int i = 0; i < elements; i++) {
            int row, column;
            where(thread, i, &row, &column);
            assert_in_range(row, 0, rows - 1);
            assert_in_range(column, 0, columns - 1);
            assert_int_equal(seen[row * columns + column]++, 0);
        }
    }
}

static void check_place(fragment *where, int thread, int i, int row, int column)
{
    int found_row, found_column;
    where(thread, i, &found_row, &found_column);
    assert_int_equal(found_row, row);
    assert_int_equal(found_column, column);
}

TEST(fragments)
{
    for (int n = 8; n <= 256; n += 8)
        check_bijection(matrix_wgmma_d, 128, n / 2, 64, n);
    check_bijection(matrix_wgmma_a, 128, 8, 64, 16);
    check_bijection(matrix_mma_a, 32, 8, 16, 16);
    check_bijection(matrix_mma_b, 32, 4, 8, 16);
    check_bijection(matrix_mma_d, 32, 4, 16, 8);
    check_place(matrix_wgmma_d, 33, 6, 24, 10); // read off the figures of the PTX ISA
    check_place(matrix_wgmma_a, 127, 7, 63, 15);
    check_place(matrix_wgmma_a, 5, 2, 9, 2);
    check_place(matrix_mma_a, 6, 5, 1, 13);
    check_place(matrix_mma_b, 31, 2, 7, 14);
    check_place(matrix_mma_d, 4, 3, 9, 1);
}

/* --- Operands in shared memory --- */

enum { BASE = 2048, WINDOW = 64 * 1024 };

typedef struct gather_case {
    const char *what;
    bool mn_major;
    int swizzle, rows, start, leading, stride;
    int (*place)(const struct gather_case *c, int row, int k); // byte in the tile, which begins at BASE + 1024
    int k_first;
} gather_case;

static int k_major_128(const gather_case *c, int row, int k)
{
    return row / 8 * 1024 + row % 8 * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2;
}

static int k_major_64(const gather_case *c, int row, int k)
{
    return row / 8 * 512 + row % 8 * 64 + ((k / 8) ^ (row % 8 / 2)) * 16 + k % 8 * 2;
}

static int k_major_32(const gather_case *c, int row, int k)
{
    return row / 8 * 256 + row % 8 * 32 + ((k / 8) ^ (row % 8 / 4)) * 16 + k % 8 * 2;
}

static int k_major_none(const gather_case *c, int row, int k)
{
    return row / 8 * c->stride + k / 8 * c->leading + row % 8 * 16 + k % 8 * 2;
}

static int mn_major_128(const gather_case *c, int row, int k)
{
    return row / 64 * c->leading + k / 8 * c->stride + k % 8 * 128 + (row % 64 / 8 ^ k % 8) * 16 + row % 8 * 2;
}

static int mn_major_64(const gather_case *c, int row, int k)
{
    return row / 32 * c->leading + k / 8 * c->stride + k % 8 * 64 + (row % 32 / 8 ^ k % 8 / 2) * 16 + row % 8 * 2;
}

static int mn_major_32(const gather_case *c, int row, int k)
{
    return row / 16 * c->leading + k / 8 * c->stride + k % 8 * 32 + (row % 16 / 8 ^ k % 8 / 4) * 16 + row % 8 * 2;
}

static int mn_major_none(const gather_case *c, int row, int k)
{
    return row / 8 * c->stride + k / 8 * c->leading + k % 8 * 16 + row % 8 * 2;
}

static const gather_case gather_cases[] = {
    { "K-major, 128", false, 1, 256, 0, 16, 1024, k_major_128, 0 },
    { "K-major, 128, second k16 of the atom", false, 1, 64, 32, 16, 1024, k_major_128, 16 },
    { "K-major, 128, last k16 of the atom", false, 1, 8, 96, 16, 1024, k_major_128, 48 },
    { "K-major, 64", false, 2, 128, 0, 16, 512, k_major_64, 0 },
    { "K-major, 64, second k16 of the atom", false, 2, 128, 32, 16, 512, k_major_64, 16 },
    { "K-major, 32", false, 3, 64, 0, 16, 256, k_major_32, 0 },
    { "K-major, none, k outside", false, 0, 64, 0, 1024, 128, k_major_none, 0 },
    { "K-major, none, k inside", false, 0, 64, 0, 128, 256, k_major_none, 0 },
    { "MN-major, 128, one atom wide", true, 1, 64, 0, 4096, 1024, mn_major_128, 0 },
    { "MN-major, 128, atoms along MN apart", true, 1, 256, 0, 2048, 1024, mn_major_128, 0 },
    { "MN-major, 128, atoms along k apart", true, 1, 128, 0, 1024, 4096, mn_major_128, 0 },
    { "MN-major, 64", true, 2, 96, 0, 2048, 512, mn_major_64, 0 },
    { "MN-major, 32", true, 3, 64, 0, 512, 256, mn_major_32, 0 },
    { "MN-major, none", true, 0, 64, 0, 1024, 128, mn_major_none, 0 },
};

static uint64_t descriptor_of(uint32_t start, int leading, int stride, int swizzle)
{
    return start / 16 | (uint64_t)(leading / 16) << 16 | (uint64_t)(stride / 16) << 32 | (uint64_t)swizzle << 62;
}

static void count_chunk(void *user, uint32_t address, uint32_t bytes)
{
    int *chunks = user;
    assert_int_equal(bytes, 16);
    assert_int_equal(address % 16, 0);
    assert_in_range(address, BASE, BASE + WINDOW - 16);
    ++*chunks;
}

static void check_gather(const gather_case *c)
{
    static unsigned char shared[WINDOW];
    static uint16_t out[256 * 16];
    char why[128] = "";
    int chunks = 0;
    memset(shared, 0xff, sizeof shared);
    for (int row = 0; row < c->rows; row++) {
        for (int k = 0; k < 16; k++) {
            uint16_t value = (uint16_t)(row * 16 + k);
            memcpy(shared + 1024 + c->place(c, row, c->k_first + k), &value, 2);
        }
    }
    uint64_t descriptor = descriptor_of((uint32_t)(BASE + 1024 + c->start), c->leading, c->stride, c->swizzle);
    const matrix_window window = { shared, BASE, WINDOW, count_chunk, &chunks };
    if (!matrix_gather(descriptor, c->mn_major, c->rows, &window, out, why))
        fail_msg("%s: %s", c->what, why);
    for (int i = 0; i < c->rows * 16; i++)
        if (out[i] != i)
            fail_msg("%s: row %d, k %d is element %d", c->what, i / 16, i % 16, out[i]);
    assert_int_equal(chunks, c->rows * 2);
}

TEST(gather)
{
    for (int i = 0; i < COUNT_OF(gather_cases); i++)
        check_gather(&gather_cases[i]);
}

static void check_gather_reject(uint64_t descriptor, int rows, const char *sentence)
{
    static unsigned char shared[8192];
    uint16_t out[64 * 16];
    char why[128] = "";
    assert_false(matrix_gather(descriptor, false, rows, &(matrix_window){ shared, 1024, 8192, NULL, NULL }, out, why));
    assert_string_equal(why, sentence);
}

TEST(gather_rejects)
{
    uint64_t descriptor = descriptor_of(1024, 16, 1024, 1);
    uint16_t out[64 * 16];
    char why[128];
    static unsigned char shared[8192];
    assert_true(matrix_gather(descriptor, false, 64, &(matrix_window){ shared, 1024, 8192, NULL, NULL }, out, why));
    check_gather_reject(descriptor | 1u << 15, 64, "wgmma descriptor 0x4000004000018040: reserved bits are set");
    check_gather_reject(descriptor | (uint64_t)1 << 49, 64,
                        "wgmma descriptor 0x4002004000010040: base offset 1 is not 0; others are not emulated");
    check_gather_reject(descriptor + 64, 64,
                        "wgmma descriptor 0x4000004000010080: reads address 9216 of shared memory 1024..9216");
    check_gather_reject(descriptor_of(1008, 16, 1024, 0), 8,
                        "wgmma descriptor 0x000000400001003f: reads address 1008 of shared memory 1024..9216");
}
RUN_TESTS(NULL, NULL)
