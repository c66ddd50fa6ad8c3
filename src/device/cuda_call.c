/* cuda_call.c - what is done around every call of the driver. */
#include "device/cuda_call.h"

#include "base/math.h"

/* Faults of a kernel: the context accepts no further work. */
static bool is_sticky(cu_result result)
{
    static const cu_result sticky[] = { 214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719 };
    for (int i = 0; i < COUNT_OF(sticky); i++)
        if (sticky[i] == result)
            return true;
    return false;
}

/* The GPU goes on where its compiler refused a kernel: that one alone is lost. */
static ckl_status status_of(cu_result result)
{
    return result == CU_OUT_OF_MEMORY ? CKL_NO_MEMORY : result == CU_INVALID_PTX ? CKL_INTERNAL : CKL_DEVICE_FAULT;
}

ckl_status cuda_explain(const ckl_device *d, cu_result result, const char *call)
{
    const char *name = "an unknown error", *meaning = "";
    cuda.cuGetErrorName(result, &name);
    cuda.cuGetErrorString(result, &meaning);
    FAIL(status_of(result), "%s: %s: %s (%s)%s", d->info.id, call, name, meaning,
         is_sticky(result) ? "; the context is lost, this process cannot use the GPU any more" : "");
}

/* The context that was current before ours; the caller gets it back. */
static _Thread_local cu_context context_before;

void cuda_enter(const ckl_device *d)
{
    if (cuda.cuCtxGetCurrent(&context_before))
        context_before = NULL;
    if (context_before != cuda_of(d)->context)
        cuda.cuCtxSetCurrent(cuda_of(d)->context);
}

ckl_status cuda_leave(const ckl_device *d, cu_result result, const char *call)
{
    if (context_before && context_before != cuda_of(d)->context)
        cuda.cuCtxSetCurrent(context_before);
    return result ? cuda_explain(d, result, call) : CKL_OK;
}

static _Thread_local int capture_mode_before;

void cuda_ignore_captures(void)
{
    capture_mode_before = CU_CAPTURE_RELAXED;
    cuda.cuThreadExchangeStreamCaptureMode(&capture_mode_before);
}

ckl_status cuda_heed_captures(ckl_status status)
{
    cuda.cuThreadExchangeStreamCaptureMode(&capture_mode_before);
    return status;
}
