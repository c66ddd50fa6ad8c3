/* cudnn_library.c - where libcudnn and its functions are found. */
#include "bench/peers/cudnn_library.h"

#include "base/math.h"
#include "bench/peers/peers.h"

dnn_library dnn;

static const peer_function functions[] = {
#define X(function, parameters) { #function, offsetof(dnn_library, function) },
    DNN_FUNCTIONS(X)
#undef X
        { "cudnnGetVersion", offsetof(dnn_library, cudnnGetVersion) },
};

static const peer_library library = {
    .name = "cuDNN 9",
    .needed = "version 9 or later",
    .variable = "CKL_CUDNN",
    .places = { "libcudnn.so.9" },
    .advice = "pip install nvidia-cudnn-cu13, then CKL_CUDNN=path/to/libcudnn.so.9 or its folder on LD_LIBRARY_PATH",
    .functions = functions,
    .count = COUNT_OF(functions),
};

ckl_status dnn_load(void)
{
    return peer_open(&library, &dnn);
}
