/* cuda_module.c - PTX becomes a module: a cubin of the cache, or one that the driver links and the cache may keep. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/math.h"
#include "device/cuda_call.h"

enum { JIT_LOG_BYTES = 4096, MADE_BY_BYTES = CUDA_DRIVER_TEXT_BYTES + 32 };

/*
 * Compiles PTX; on failure the sentence carries the compiler's own words. NOTE: modules are compiled one at a time,
 * libraries by as many threads as ask: on an H200 of 16 cores (driver 580) 45 kernels of gemm took 6.3 s as modules,
 * 0.49 s as libraries.
 */
static ckl_status compile(ckl_device *d, const char *name, const char *ptx, cuda_code *code)
{
    char log[JIT_LOG_BYTES] = "";
    int options[] = { CU_JIT_ERROR_LOG, CU_JIT_ERROR_LOG_BYTES, CU_JIT_LINE_INFO };
    void *values[] = { log, (void *)(uintptr_t)sizeof log, (void *)(uintptr_t)1 };
    cuda_code made = { NULL, NULL };
    ckl_status status =
        PLAN_CALL(d, cuLibraryLoadData, &made.library, ptx, options, values, COUNT_OF(options), NULL, NULL, 0);
    if (status == CKL_OK)
        status = PLAN_CALL(d, cuLibraryGetModule, &made.module, made.library);
    if (status != CKL_OK) {
        status_fail(status, "kernel %s: %s %.700s", name, ckl_error(), log);
        cuda_module_unload(d, &made);
        return status;
    }
    *code = made;
    return CKL_OK;
}

/* What the cubin of a PTX depends on, beside the PTX. */
static cubin_key key_of(const ckl_device *d, const char *ptx)
{
    char made_by[MADE_BY_BYTES];
    snprintf(made_by, sizeof made_by, "%s sm_%d", cuda_driver_text(), d->info.compute_capability);
    return cubin_cache_key(made_by, ptx);
}

/* A module of the cubin that is kept; false: there is none that the driver takes. A refused one is linked anew. */
static bool load_kept(ckl_device *d, const char *name, const cubin_key *key, cuda_code *code)
{
    size_t bytes;
    void *cubin = cubin_cache_find(cuda_of(d)->cache, key, &bytes);
    bool loaded = cubin && PLAN_CALL(d, cuModuleLoadData, &code->module, cubin) == CKL_OK;
    if (cubin && !loaded)
        log_say("cache", "kernel %s, as it was kept, does not load: %s", name, ckl_error());
    free(cubin);
    return loaded;
}

/* Only the driver's linker gives a cubin away: it compiles, links and owns the result. */
static ckl_status link(ckl_device *d, const char *name, const char *ptx, const cubin_key *key, cuda_code *code)
{
    int options[] = { CU_JIT_LINE_INFO };
    void *values[] = { (void *)(uintptr_t)1 };
    cu_link linking;
    void *cubin = NULL;
    size_t bytes = 0;
    TRY(PLAN_CALL(d, cuLinkCreate_v2, COUNT_OF(options), options, values, &linking));
    ckl_status status = PLAN_CALL(d, cuLinkAddData_v2, linking, CU_JIT_INPUT_PTX, (void *)(uintptr_t)ptx,
                                  strlen(ptx) + 1, name, 0, NULL, NULL);
    if (status == CKL_OK)
        status = PLAN_CALL(d, cuLinkComplete, linking, &cubin, &bytes);
    if (status == CKL_OK)
        status = PLAN_CALL(d, cuModuleLoadData, &code->module, cubin);
    if (status == CKL_OK)
        cubin_cache_keep(cuda_of(d)->cache, key, cubin, bytes);
    RELEASE(d, cuLinkDestroy, linking);
    return status;
}

/*
 * NOTE: linked code loses setmaxnreg, because registers are counted before linking: on an H200 (driver 580) attention
 * ran at 336 TFLOP/s instead of 636, gemm 8192^3 20 times slower.
 */
static bool loses_by_linking(const char *ptx)
{
    return strstr(ptx, "setmaxnreg") != NULL;
}

ckl_status cuda_module_load(ckl_device *d, const char *name, const char *ptx, cuda_code *code)
{
    if (!cuda_of(d)->cache || loses_by_linking(ptx))
        return compile(d, name, ptx, code);
    cubin_key key = key_of(d, ptx);
    if (load_kept(d, name, &key, code) || link(d, name, ptx, &key, code) == CKL_OK)
        return CKL_OK;
    log_say("cache", "kernel %s is not kept: %s", name, ckl_error());
    return compile(d, name, ptx, code);
}

void cuda_module_unload(ckl_device *d, const cuda_code *code)
{
    if (code->library)
        RELEASE(d, cuLibraryUnload, code->library);
    else if (code->module)
        RELEASE(d, cuModuleUnload, code->module);
}
