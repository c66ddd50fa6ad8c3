/* device.c - the public functions of devices: what they do is in the device's table. */
#include "device/device.h"

#include <string.h>

#include "plan/plan.h"

typedef struct device_kind {
    const char *name;
    ckl_status (*open)(const char *which, ckl_device **device);
} device_kind;

static const device_kind kinds[] = { { "cuda", cuda_open }, { "emulator", emulator_open } };

/* A GPU if the driver finds one that we can use, and else the emulated one. */
static ckl_status open_best(ckl_device **device)
{
    if (cuda_open("", device) == CKL_OK)
        return CKL_OK;
    status_clear();
    return emulator_open("", device);
}

ckl_status ckl_device_open(const char *id, ckl_device **device)
{
    if (!device)
        FAIL(CKL_INVALID, "device: the place for the result is NULL");
    if (!id)
        return open_best(device);
    for (int i = 0; i < COUNT_OF(kinds); i++) {
        size_t length = strlen(kinds[i].name);
        if (strncmp(id, kinds[i].name, length) != 0)
            continue;
        if (id[length] == '\0')
            return kinds[i].open("", device);
        if (id[length] == ':')
            return kinds[i].open(id + length + 1, device);
    }
    FAIL(CKL_INVALID, "device: %s is none of cuda, cuda:NUMBER, emulator, emulator:NAME such as emulator:h200", id);
}

void ckl_device_close(ckl_device *device)
{
    if (!device)
        return;
    plan_forget_device(device);
    device->ops->close(device);
}

/* An argument that must not be NULL. */
static ckl_status check_argument(const char *function, const char *name, const void *argument)
{
    if (!argument)
        FAIL(CKL_INVALID, "%s: %s is NULL", function, name);
    return CKL_OK;
}

const ckl_device_info *ckl_device_properties(const ckl_device *device)
{
    return check_argument("device_properties", "device", device) == CKL_OK ? &device->info : NULL;
}

ckl_status ckl_malloc(ckl_device *device, size_t bytes, void **memory)
{
    TRY(check_argument("malloc", "device", device));
    TRY(check_argument("malloc", "memory", memory));
    if (bytes == 0) {
        *memory = NULL;
        return CKL_OK;
    }
    return device->ops->alloc(device, bytes, memory);
}

void ckl_free(ckl_device *device, void *memory)
{
    if (memory && check_argument("free", "device", device) == CKL_OK)
        device->ops->release(device, memory);
}

ckl_status ckl_copy_in(ckl_device *device, void *to_device, const void *from_host, size_t bytes, ckl_stream stream)
{
    TRY(check_argument("copy_in", "device", device));
    TRY(bytes ? check_argument("copy_in", "to_device", to_device) : CKL_OK);
    TRY(bytes ? check_argument("copy_in", "from_host", from_host) : CKL_OK);
    return bytes ? device->ops->copy_in(device, to_device, from_host, bytes, stream) : CKL_OK;
}

ckl_status ckl_copy_out(ckl_device *device, void *to_host, const void *from_device, size_t bytes, ckl_stream stream)
{
    TRY(check_argument("copy_out", "device", device));
    TRY(bytes ? check_argument("copy_out", "to_host", to_host) : CKL_OK);
    TRY(bytes ? check_argument("copy_out", "from_device", from_device) : CKL_OK);
    return bytes ? device->ops->copy_out(device, to_host, from_device, bytes, stream) : CKL_OK;
}

ckl_status ckl_stream_create(ckl_device *device, ckl_stream *stream)
{
    TRY(check_argument("stream_create", "device", device));
    TRY(check_argument("stream_create", "stream", stream));
    return device->ops->stream_create(device, stream);
}

void ckl_stream_destroy(ckl_device *device, ckl_stream stream)
{
    if (stream && check_argument("stream_destroy", "device", device) == CKL_OK)
        device->ops->stream_destroy(device, stream);
}

ckl_status ckl_stream_synchronize(ckl_device *device, ckl_stream stream)
{
    TRY(check_argument("stream_synchronize", "device", device));
    return device->ops->synchronize(device, stream);
}
