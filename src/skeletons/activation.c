/* activation.c - the activations of epilogues. */
#include "skeletons/activation.h"

#include "cute/kernel.h"
#include "cutekernellib/operators/gemm.h"

val activation_f32(choice activation, val x)
{
    switch ((ckl_activation)activation) {
    case CKL_ACTIVATION_RELU:
        return max_nan(x, immf(0));
    case CKL_ACTIVATION_GELU:
        return gelu_tanh_f32(x);
    case CKL_ACTIVATION_GELU_ERF:
        return gelu_erf_f32(x);
    case CKL_ACTIVATION_SILU:
        return silu_f32(x);
    default:
        return x;
    }
}
