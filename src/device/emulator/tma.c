/* tma.c - tensor maps on the emulated device, and the walk of a box through global and shared memory. */
#include "device/emulator/tma.h"

#include <string.h>

_Static_assert(sizeof(tensor_map_desc) <= IR_TENSOR_MAP_BYTES, "a tensor map has room for its description");

/* In place of stride[0], which the element's size tells: a kernel that is given anything else is told so. */
static const int64_t MAP_MAGIC = 0x70616d20616d7420; // " tma map"

uint32_t swizzle_address(uint32_t address, int span)
{
    uint32_t chunks = span == 0 ? 1 : (uint32_t)span / 16;
    return address ^ ((address >> 7 & (chunks - 1)) << 4);
}

ckl_status tma_encode(const tensor_map_desc *desc, tensor_map *map)
{
    TRY(tensor_map_check(desc));
    tensor_map_desc encoded = *desc;
    encoded.stride[0] = MAP_MAGIC;
    memset(map, 0, sizeof *map);
    memcpy(map->bytes, &encoded, sizeof encoded);
    return CKL_OK;
}

bool tma_decode(const void *map128, tensor_map_desc *desc)
{
    memcpy(desc, map128, sizeof *desc);
    bool known = desc->stride[0] == MAP_MAGIC;
    desc->stride[0] = known ? (int64_t)ckl_dtype_bytes(desc->dtype) : 0;
    return known;
}

static int64_t box_rows(const tensor_map_desc *desc)
{
    int64_t rows = 1;
    for (int dim = 1; dim < desc->rank; dim++)
        rows *= desc->box[dim];
    return rows;
}

static int64_t row_bytes(const tensor_map_desc *desc)
{
    return desc->box[0] * (int64_t)ckl_dtype_bytes(desc->dtype);
}

/* Bytes between rows of the box in shared memory: a swizzled row takes its whole span (CUDA programming guide, TMA). */
static int64_t row_pitch(const tensor_map_desc *desc)
{
    return desc->swizzle ? (int64_t)desc->swizzle : row_bytes(desc);
}

int64_t tma_box_bytes(const tensor_map_desc *desc)
{
    return box_rows(desc) * row_bytes(desc);
}

/* Element 0 of the global row that row `row` of the box lies in, or NULL if that row is out of bounds. */
static unsigned char *global_row(const tensor_map_desc *desc, const int32_t *coordinates, int64_t row)
{
    uintptr_t global = (uintptr_t)desc->address; // wraps at 2^64, as on the device
    for (int dim = 1; dim < desc->rank; dim++) {
        int64_t at = coordinates[dim] + row % desc->box[dim] * tensor_map_step(desc, dim);
        if (at < 0 || at >= desc->size[dim])
            return NULL;
        global += (uint64_t)at * (uint64_t)desc->stride[dim];
        row /= desc->box[dim];
    }
    return (unsigned char *)global;
}

/* im2col: the first and the last place along a mode. */
static int64_t first_place(const tensor_map_desc *desc, int dim)
{
    return desc->lower[dim - 1];
}

static int64_t last_place(const tensor_map_desc *desc, int dim)
{
    return desc->size[dim] - 1 + desc->upper[dim - 1];
}

bool tma_is_place(const tensor_map_desc *desc, const int32_t *coordinates)
{
    bool is = true;
    for (int dim = 1; dim < desc->rank - 1; dim++) {
        const int64_t from_first = coordinates[dim] - first_place(desc, dim);
        is &= from_first >= 0 && coordinates[dim] <= last_place(desc, dim) &&
              from_first % tensor_map_step(desc, dim) == 0;
    }
    return is;
}

/* The place of the next pixel. */
static void next_place(const tensor_map_desc *desc, int64_t *place)
{
    for (int dim = 1; dim < desc->rank - 1; dim++) {
        place[dim] += tensor_map_step(desc, dim);
        if (place[dim] <= last_place(desc, dim))
            return;
        place[dim] = first_place(desc, dim);
    }
    place[desc->rank - 1]++;
}

static unsigned char *global_pixel(const tensor_map_desc *desc, const int64_t *place, const int32_t *offsets)
{
    unsigned char *global = desc->address;
    for (int dim = 1; dim < desc->rank; dim++) {
        const int64_t at = place[dim] + (dim < desc->rank - 1 ? offsets[dim - 1] : 0);
        if (at < 0 || at >= desc->size[dim])
            return NULL;
        global += at * desc->stride[dim];
    }
    return global;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return max_i64(low, min_i64(x, high));
}

void tma_walk(const tensor_map_desc *desc, const int32_t *coordinates, tma_run *run, void *user)
{
    int64_t element = (int64_t)ckl_dtype_bytes(desc->dtype), box = desc->box[0], first = coordinates[0];
    int64_t begin = clamp(-first, 0, box), end = clamp(desc->size[0] - first, begin, box); // in bounds
    int64_t place[TENSOR_MAP_RANK_MAX];
    for (int dim = 0; dim < desc->rank; dim++)
        place[dim] = coordinates[dim];
    for (int64_t row = 0; row < box_rows(desc); row++) {
        unsigned char *global =
            desc->im2col ? global_pixel(desc, place, coordinates + desc->rank) : global_row(desc, coordinates, row);
        if (desc->im2col)
            next_place(desc, place);
        int64_t edges[] = { 0, global ? begin : box, global ? end : box, box };
        for (int span = 0; span < 3; span++) {
            int64_t from = edges[span], bytes = (edges[span + 1] - from) * element;
            if (bytes == 0)
                continue;
            unsigned char *at = span == 1 ? global + (first + from) * element : NULL;
            run(user, (uint32_t)(row * row_pitch(desc) + from * element), at, (uint32_t)bytes);
        }
    }
}

tensor_map_desc tma_as_stored(const tensor_map_desc *desc)
{
    enum { CHUNK_BYTES = 16 };
    tensor_map_desc stored = *desc;
    int64_t element = (int64_t)ckl_dtype_bytes(desc->dtype);
    stored.size[0] = round_up(desc->size[0] * element, CHUNK_BYTES) / element;
    return stored;
}
