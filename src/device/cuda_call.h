/* cuda_call.h - calls of the driver in a device's context, as a ckl_status; and loading of kernels. */
#pragma once

#include "device/cubin_cache.h"
#include "device/cuda_driver.h"
#include "device/device.h"

typedef struct cuda_device {
    ckl_device base;
    cu_device ordinal;
    cu_context context;
    cubin_cache *cache; // NULL: there is none
    bool no_overlap;    // kernels start when the one before has ended, whatever they may do
} cuda_device;

static inline cuda_device *cuda_of(const ckl_device *d)
{
    return (cuda_device *)(uintptr_t)d;
}

/* A driver call in the device's context. */
#define CALL(d, function, ...) (cuda_enter(d), cuda_leave((d), cuda.function(__VA_ARGS__), #function))

/*
 * CALL() for what planning does: memory, modules, waiting for a stream that is not captured. They may happen while some
 * stream of the process is being captured, as they do not belong to its graph; the driver takes a thread's word for
 * that.
 */
#define PLAN_CALL(d, function, ...) (cuda_ignore_captures(), cuda_heed_captures(CALL(d, function, __VA_ARGS__)))

/* For calls that release: failures are ignored, as nobody could act on them. */
#define RELEASE(d, function, ...)           \
    (cuda_ignore_captures(), cuda_enter(d), \
     (void)cuda_heed_captures(cuda_leave((d), (cuda.function(__VA_ARGS__), 0), #function)))

/* The context of the device becomes current, and then again the one that was. */
void cuda_enter(const ckl_device *d);
ckl_status cuda_leave(const ckl_device *d, cu_result result, const char *call);

void cuda_ignore_captures(void);
ckl_status cuda_heed_captures(ckl_status status);

/* A failure of the driver in a sentence. */
ckl_status cuda_explain(const ckl_device *d, cu_result result, const char *call);

/* A module, alone or of a library, which goes with it. */
typedef struct cuda_code {
    cu_library library; // NULL: there is none
    cu_module module;
} cuda_code;

/* The code of PTX: from the cache, or compiled by the driver and kept there. `name` is for sentences. */
ckl_status cuda_module_load(ckl_device *d, const char *name, const char *ptx, cuda_code *code);
void cuda_module_unload(ckl_device *d, const cuda_code *code);
