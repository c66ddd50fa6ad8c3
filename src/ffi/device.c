/* device.c - devices that stay open: who calls through the FFI has no handle of them. */
#include "ffi/device.h"

#include <pthread.h>
#include <stdio.h>

#include "base/status.h"

enum { GPUS_MAX = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ckl_device *gpus[GPUS_MAX], *emulator;

static ckl_status open_once(const char *id, ckl_device **slot)
{
    ckl_device *opened = NULL;
    pthread_mutex_lock(&lock);
    ckl_status status = *slot ? CKL_OK : ckl_device_open(id, &opened);
    if (opened)
        __atomic_store_n(slot, opened, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return status;
}

ckl_status ffi_device(DLDevice place, ckl_device **device)
{
    bool host = place.device_type == kDLCPU;
    if (!host && place.device_type != kDLCUDA)
        FAIL(CKL_INVALID,
             "device: tensors of DLPack's device type %d are not taken, only those of GPUs (%d) and of the "
             "host (%d)",
             (int)place.device_type, kDLCUDA, kDLCPU);
    if (!host && (place.device_id < 0 || place.device_id >= GPUS_MAX))
        FAIL(CKL_INVALID, "device: GPU %d is not in 0..%d", (int)place.device_id, GPUS_MAX - 1);
    ckl_device **slot = host ? &emulator : &gpus[place.device_id];
    if (!__atomic_load_n(slot, __ATOMIC_ACQUIRE)) {
        char id[32] = "emulator";
        if (!host)
            snprintf(id, sizeof id, "cuda:%d", (int)place.device_id);
        TRY(open_once(id, slot));
    }
    *device = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    return CKL_OK;
}
