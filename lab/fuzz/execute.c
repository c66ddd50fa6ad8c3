/* execute.c - runs the kernel of a batch on one device. */
#include <stdlib.h>
#include <string.h>

#include "base/math.h"
#include "lab/fuzz/program.h"

bool fuzz_takes(const ckl_device *device, ir_target target)
{
    return target < IR_SM90A || device->info.has_wgmma;
}

bool fuzz_is_lost(ckl_device *device)
{
    return device->ops->synchronize(device, NULL) != CKL_OK;
}

/* One of the two tensors: columns, rows, CTAs of a cluster, programs. */
static tensor_map_desc map_of(const fuzz_batch *batch, unsigned char *memory, bool copies)
{
    int64_t element = (int64_t)ckl_dtype_bytes(batch->map_type);
    return (tensor_map_desc){ .dtype = batch->map_type,
                              .rank = 4,
                              .address = memory + (copies ? FUZZ_BULK : 0),
                              .size = { FUZZ_ROW_BYTES / element, FUZZ_ROWS, 2, batch->count },
                              .stride = { element, FUZZ_ROW_BYTES, FUZZ_INPUT_BYTES / 2, batch->slice_bytes },
                              .box = { (int16_t)batch->map_box[0], (int16_t)batch->map_box[1], 1, 1 },
                              .swizzle = (tensor_map_swizzle)batch->map_span };
}

typedef struct arguments {
    uint64_t memory, slice;
    tensor_map maps[2];
    void *list[4]; // in the order of the kernel's parameters
} arguments;

static ckl_status gather(ckl_device *device, const fuzz_batch *batch, const ir_kernel *kernel, void *memory,
                         arguments *a)
{
    a->memory = (uint64_t)(uintptr_t)memory;
    a->slice = (uint64_t)batch->slice_bytes;
    for (int i = 0; i < kernel->param_count; i++) {
        const char *name = kernel->params[i].name;
        bool copies = strcmp(name, "copies") == 0;
        if (!kernel->params[i].tensor_map) {
            a->list[i] = strcmp(name, "memory") == 0 ? &a->memory : &a->slice;
            continue;
        }
        tensor_map_desc desc = map_of(batch, memory, copies);
        a->list[i] = &a->maps[copies];
        TRY(device->ops->encode_tensor_map(device, &desc, &a->maps[copies]));
    }
    return CKL_OK;
}

static ckl_status launch(ckl_device *device, const fuzz_batch *batch, const ir_kernel *kernel, device_kernel *loaded,
                         unsigned char *host, void *memory)
{
    arguments a;
    size_t bytes = (size_t)(batch->slice_bytes * batch->count);
    device_launch launch = { .grid = { (int64_t)batch->count * kernel->cluster, 1, 1 }, .params = a.list };
    TRY(gather(device, batch, kernel, memory, &a));
    TRY(device->ops->copy_in(device, memory, host, bytes, NULL));
    TRY(device->ops->launch(device, loaded, &launch, NULL));
    TRY(device->ops->synchronize(device, NULL));
    return device->ops->copy_out(device, host, memory, bytes, NULL);
}

ckl_status fuzz_execute(ckl_device *device, const fuzz_batch *batch, const ir_kernel *kernel, unsigned char *memory)
{
    device_kernel *loaded = NULL;
    void *copy = NULL;
    TRY(device->ops->load(device, kernel, &loaded));
    ckl_status status = device->ops->alloc(device, (size_t)(batch->slice_bytes * batch->count), &copy);
    if (status == CKL_OK)
        status = launch(device, batch, kernel, loaded, memory, copy);
    if (copy)
        device->ops->release(device, copy);
    device->ops->unload(device, loaded);
    return status;
}
