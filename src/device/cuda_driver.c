/* cuda_driver.c - finds the driver's functions in libcuda.so.1. */
#define _GNU_SOURCE // dladdr

#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/math.h"

cuda_driver cuda;

enum { SENTENCE_BYTES = 512 };

static struct {
    pthread_once_t once;
    ckl_status status;
    char sentence[SENTENCE_BYTES];
    char text[CUDA_DRIVER_TEXT_BYTES];
} loaded = { .once = PTHREAD_ONCE_INIT };

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define X(function, parameters) { #function, offsetof(cuda_driver, function) },
    CUDA_FUNCTIONS(X)
#undef X
};

static ckl_status find_functions(void *library, cuda_driver *found)
{
    for (int i = 0; i < COUNT_OF(functions); i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            FAIL(CKL_DEVICE_FAULT,
                 "the NVIDIA driver is too old: libcuda.so.1 has no %s; CUDA 12 (driver 525) or later is needed",
                 functions[i].name);
        memcpy((char *)found + functions[i].offset, &function, sizeof function);
    }
    return CKL_OK;
}

/*
 * The version is the API's. The name behind the symbolic link libcuda.so.1 has that of the driver, whose compiler may
 * be another one; where there is no such link, the date of the file tells drivers apart.
 */
static void name_driver(const cuda_driver *found, char text[CUDA_DRIVER_TEXT_BYTES])
{
    int version = 0;
    Dl_info info;
    struct stat s = { 0 };
    char path[PATH_MAX] = "";
    void *function;
    memcpy(&function, &found->cuInit, sizeof function);
    found->cuDriverGetVersion(&version);
    if (dladdr(function, &info) && info.dli_fname && realpath(info.dli_fname, path))
        stat(path, &s);
    const char *slash = strrchr(path, '/');
    snprintf(text, CUDA_DRIVER_TEXT_BYTES, "%d %.64s %" PRId64, version, slash ? slash + 1 : path,
             (int64_t)s.st_mtim.tv_sec);
}

/* The library stays loaded: the process may hold contexts of its own. */
static ckl_status load(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        FAIL(CKL_DEVICE_FAULT, "no NVIDIA driver (%s); emulator:h200, an emulated GPU, needs none", dlerror());
    cuda_driver found;
    TRY(find_functions(library, &found));
    cu_result result = found.cuInit(0);
    if (result) {
        const char *name = "an unknown error";
        found.cuGetErrorName(result, &name);
        FAIL(CKL_DEVICE_FAULT, "the NVIDIA driver finds no usable GPU: cuInit: %s", name);
    }
    name_driver(&found, loaded.text);
    cuda = found;
    return CKL_OK;
}

const char *cuda_driver_text(void)
{
    return loaded.text;
}

static void load_once(void)
{
    loaded.status = load();
    if (loaded.status != CKL_OK)
        strncpy(loaded.sentence, ckl_error(), SENTENCE_BYTES - 1);
}

ckl_status cuda_driver_load(void)
{
    pthread_once(&loaded.once, load_once);
    if (loaded.status != CKL_OK)
        FAIL(loaded.status, "%s", loaded.sentence);
    return CKL_OK;
}
