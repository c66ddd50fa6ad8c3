/* cudnn_library.c - finds libcudnn and its functions. */
#include "bench/peers/cudnn_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/math.h"
#include "bench/peers/peers.h"

dnn_library dnn;

static const peer_function functions[] = {
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
    TRY(peer_bind(library, "cuDNN", "version 9", functions, COUNT_OF(functions), &found));
    dnn = found;
    return CKL_OK;
}
