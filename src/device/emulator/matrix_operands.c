/* matrix_operands.c - where the operands and results of a tensor core lie: in shared memory, and in registers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "device/emulator/matrix.h"
#include "device/emulator/tma.h"

enum { CHUNK_BYTES = 16, WHY_BYTES = 128 }; // what a swizzle moves as one; of a sentence

/* A shared-memory descriptor, decoded; bytes. */
typedef struct operand_view {
    uint32_t start, leading, stride;
    int span; // of the swizzle
    bool mn_major;
} operand_view;

static const uint64_t RESERVED_BITS = 0x3ff1c000c000c000; // 14-15, 30-31, 46-48, 52-61

static bool descriptor_is_valid(uint64_t descriptor, char *why)
{
    if (descriptor & RESERVED_BITS)
        snprintf(why, WHY_BYTES, "wgmma descriptor 0x%016" PRIx64 ": reserved bits are set", descriptor);
    else if (descriptor >> 49 & 7)
        snprintf(why, WHY_BYTES, "wgmma descriptor 0x%016" PRIx64 ": base offset %u is not 0; others are not emulated",
                 descriptor, (unsigned)(descriptor >> 49 & 7));
    else
        return true;
    return false;
}

static uint32_t offset_field(uint64_t descriptor, int bit)
{
    return (uint32_t)(descriptor >> bit & 0x3fff) * 16;
}

static operand_view decode_descriptor(uint64_t descriptor, bool mn_major)
{
    static const int spans[] = { 0, 128, 64, 32 };
    return (operand_view){
        .start = offset_field(descriptor, 0),
        .leading = offset_field(descriptor, 16),
        .stride = offset_field(descriptor, 32),
        .span = spans[descriptor >> 62],
        .mn_major = mn_major,
    };
}

/* Shared address of the 16-byte chunk that starts at (row, k): 8 of k if K-major, 8 rows if MN-major. */
static uint32_t chunk_address(const operand_view *v, uint32_t row, uint32_t k)
{
    uint32_t span = (uint32_t)v->span, span_rows = span / 2, offset;
    if (!v->mn_major)
        offset = row / 8 * v->stride + (span ? row % 8 * span + k * 2 : row % 8 * 16 + k / 8 * v->leading);
    else if (span == 0)
        offset = row / 8 * v->stride + k % 8 * 16 + k / 8 * v->leading;
    else
        offset = row % span_rows * 2 + row / span_rows * v->leading + k % 8 * span + k / 8 * v->stride;
    return swizzle_address(v->start + offset, v->span);
}

/* A chunk holds 8 of k of one row, or one k of 8 rows. */
static void place_chunk(const unsigned char *chunk, bool mn_major, uint16_t *out)
{
    for (int i = 0; i < 8; i++)
        memcpy(out + i * (mn_major ? MATRIX_HALVES : 1), chunk + i * 2, 2);
}

bool matrix_gather(uint64_t descriptor, bool mn_major, int rows, const matrix_window *w, uint16_t *out, char why[128])
{
    if (!descriptor_is_valid(descriptor, why))
        return false;
    operand_view view = decode_descriptor(descriptor, mn_major);
    int row_step = mn_major ? 8 : 1, k_step = mn_major ? 1 : 8;
    for (int row = 0; row < rows; row += row_step) {
        for (int k = 0; k < MATRIX_HALVES; k += k_step) {
            uint32_t address = chunk_address(&view, (uint32_t)row, (uint32_t)k);
            if (address < w->base || address - w->base + CHUNK_BYTES > w->bytes) {
                snprintf(why, WHY_BYTES, "wgmma descriptor 0x%016" PRIx64 ": reads address %u of shared memory %u..%u",
                         descriptor, address, w->base, w->base + w->bytes);
                return false;
            }
            place_chunk(w->shared + (address - w->base), mn_major, out + row * MATRIX_HALVES + k);
            if (w->touch)
                w->touch(w->user, address, CHUNK_BYTES);
        }
    }
    return true;
}

void matrix_mma_a(int lane, int i, int *row, int *column)
{
    *row = lane / 4 + i / 2 % 2 * 8;
    *column = lane % 4 * 2 + i % 2 + i / 4 * 8;
}

void matrix_mma_b(int lane, int i, int *row, int *column)
{
    *row = lane / 4;
    *column = lane % 4 * 2 + i % 2 + i / 2 * 8;
}

void matrix_mma_d(int lane, int i, int *row, int *column)
{
    *row = lane / 4 + i / 2 * 8;
    *column = lane % 4 * 2 + i % 2;
}

/* Each of the four warps holds 16 rows, its fragments those of mma; d repeats them every 8 columns. */
void matrix_wgmma_a(int thread, int i, int *row, int *column)
{
    matrix_mma_a(thread % 32, i, row, column);
    *row += thread / 32 * 16;
}

void matrix_wgmma_d(int thread, int i, int *row, int *column)
{
    matrix_mma_d(thread % 32, i % 4, row, column);
    *row += thread / 32 * 16;
    *column += i / 4 * 8;
}
