/* cublaslt_library.c - where libcublasLt and its functions are found. */
#include "bench/peers/cublaslt_library.h"

#include "base/math.h"
#include "bench/peers/peers.h"

lt_library lt;

static const peer_function functions[] = {
#define X(function, parameters) { #function, offsetof(lt_library, function) },
    LT_FUNCTIONS(X)
#undef X
        { "cublasLtGetVersion", offsetof(lt_library, cublasLtGetVersion) },
};

static const peer_library library = {
    .name = "cuBLASLt",
    .needed = "version 12 or later",
    .variable = "CKL_CUBLASLT",
    .places = { "libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13",
                "/usr/local/cuda/lib64/libcublasLt.so.12" },
    .advice = "pip install nvidia-cublas, or install the CUDA toolkit, then CKL_CUBLASLT=path/to/libcublasLt.so.13 or "
              "its folder on LD_LIBRARY_PATH",
    .functions = functions,
    .count = COUNT_OF(functions),
};

ckl_status lt_load(void)
{
    return peer_open(&library, &lt);
}
