/* cudnn_library.c - finds libcudnn and its functions. */
#include "bench/peers/cudnn_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/math.h"

dnn_library dnn;

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define X(function, parameters) { #function, offsetof(dnn_library, function) },
    DNN_FUNCTIONS(X)
#undef X
        { "cudnnGetVersion", offsetof(dnn_library, cudnnGetVersion) },
};

/* The library stays loaded: it starts threads of its own. */
ckl_status dnn_load(void)
{
    if (dnn.cudnnCreate)
        return CKL_OK;
    const char *given = getenv("CKL_CUDNN");
    void *library = dlopen(given && *given ? given : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        FAIL(CKL_UNSUPPORTED,
             "no cuDNN 9: pip install nvidia-cudnn-cu13, then CKL_CUDNN=path/to/libcudnn.so.9 or its folder on "
             "LD_LIBRARY_PATH");
    dnn_library found;
    for (int i = 0; i < COUNT_OF(functions); i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function)
            FAIL(CKL_UNSUPPORTED, "cuDNN is too old: it has no %s; version 9 or later is needed", functions[i].name);
        memcpy((char *)&found + functions[i].offset, &function, sizeof function);
    }
    dnn = found;
    return CKL_OK;
}
