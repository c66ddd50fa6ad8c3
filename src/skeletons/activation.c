/* activation.c - the activations of epilogues. */
#include "skeletons/activation.h"

#include "cute/kernel.h"
#include "cutekernellib/operators/gemm.h"

val activation_of(choice activation, ckl_dtype out, val x)
{
    const bool half = ckl_dtype_bytes(out) <= 2;
    switch ((ckl_activation)activation) {
    case CKL_ACTIVATION_RELU:
        return max_nan(x, immf(0));
    case CKL_ACTIVATION_GELU:
        return gelu_tanh_f32(x);
    case CKL_ACTIVATION_GELU_ERF:
        return half ? gelu_erf_half(x) : gelu_erf_f32(x);
    case CKL_ACTIVATION_SILU:
        return half ? silu_half(x) : silu_f32(x);
    default:
        return x;
    }
}
