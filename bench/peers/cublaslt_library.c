/* cublaslt_library.c - finds libcublasLt and its functions. */
#include "bench/peers/cublaslt_library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "base/math.h"
#include "bench/peers/peers.h"

lt_library lt;

static const char *const places[] = {
    "libcublasLt.so.13",
    "libcublasLt.so.12",
    "/usr/local/cuda/lib64/libcublasLt.so.13",
    "/usr/local/cuda/lib64/libcublasLt.so.12",
};

static const peer_function functions[] = {
#define X(function, parameters) { #function, offsetof(lt_library, function) },
    LT_FUNCTIONS(X)
#undef X
        { "cublasLtGetVersion", offsetof(lt_library, cublasLtGetVersion) },
};

static void *open_library(void)
{
    const char *given = getenv("CKL_CUBLASLT");
    if (given && *given)
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    void *library = NULL;
    for (int i = 0; i < COUNT_OF(places) && !library; i++)
        library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    return library;
}

/* The library stays loaded: it starts threads of its own. */
ckl_status lt_load(void)
{
    if (lt.cublasLtCreate)
        return CKL_OK;
    void *library = open_library();
    if (!library)
        FAIL(CKL_UNSUPPORTED, "no cuBLASLt: pip install nvidia-cublas, or install the CUDA toolkit, then CKL_CUBLASLT="
                              "path/to/libcublasLt.so.13 or its folder on LD_LIBRARY_PATH");
    lt_library found;
    TRY(peer_bind(library, "cuBLASLt", "version 12", functions, COUNT_OF(functions), &found));
    lt = found;
    return CKL_OK;
}
