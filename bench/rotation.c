/* rotation.c - how many sets, where they lie, and their contents. */
#include "bench/rotation.h"

#include "base/heap.h"
#include "base/math.h"

enum { ALIGNMENT = 256, SETS_MAX = 64 };

static const double MEMORY_SHARE = 0.6;

static size_t padded(size_t bytes)
{
    return (size_t)round_up((int64_t)bytes, ALIGNMENT);
}

static size_t set_bytes(const operand_images *images)
{
    size_t bytes = 0;
    for (int i = 0; i < images->count; i++)
        bytes += padded(images->each[i].bytes);
    return bytes;
}

/* Between two uses of a set all others are used: they must fill L2 twice. */
static int count_sets(const ckl_device_info *info, int64_t bytes)
{
    int64_t cold = 1 + ceil_div(2 * info->l2_bytes, max_i64(bytes, 1));
    int64_t room = (int64_t)(MEMORY_SHARE * (double)info->memory_bytes) / max_i64(bytes, 1);
    return (int)min_i64(min_i64(max_i64(cold, 2), SETS_MAX), max_i64(room, 1));
}

/* A set at memory, equal to set 0. */
static ckl_status copy_set(const check *k, unsigned char *memory, operand_set *set)
{
    for (int i = 0; i < k->images.count; i++) {
        const operand_image *o = &k->images.each[i];
        if (!k->set.allocation[i])
            continue;
        TRY(k->device->ops->copy(k->device, memory, k->set.allocation[i], o->bytes, k->stream));
        set->pointer[i] = memory + o->start;
        memory += padded(o->bytes);
    }
    for (int i = 0; i < k->images.count; i++)
        adapter_pointer(&k->images.each[i].info, i, set->pointer);
    return CKL_OK;
}

ckl_status rotation_create(const check *k, bool hot, rotation *r)
{
    const ckl_device_info *info = ckl_device_properties(k->device);
    size_t bytes = set_bytes(&k->images);
    *r = (rotation){ .device = k->device, .count = hot ? 1 : count_sets(info, (int64_t)bytes) };
    r->sets = heap_alloc((size_t)r->count, sizeof *r->sets);
    r->sets[0] = k->set;
    if (r->count > 1)
        TRY(ckl_malloc(k->device, bytes * (size_t)(r->count - 1), &r->pool));
    for (int i = 1; i < r->count; i++)
        TRY(copy_set(k, (unsigned char *)r->pool + bytes * (size_t)(i - 1), &r->sets[i]));
    r->scratch_bytes = 2 * (size_t)info->l2_bytes;
    TRY(ckl_malloc(k->device, r->scratch_bytes, &r->scratch));
    r->flush = !hot && bytes * (size_t)(r->count - 1) < r->scratch_bytes;
    return ckl_stream_synchronize(k->device, k->stream);
}

void rotation_free(rotation *r)
{
    if (!r->device)
        return;
    ckl_free(r->device, r->scratch);
    ckl_free(r->device, r->pool);
    heap_free(r->sets);
    *r = (rotation){ 0 };
}
