/* gemm_epilogue.c - scale, C, bias and activation of one element. */
#include "operators/gemm/gemm_epilogue.h"

#include <string.h>

#include "cute/kernel.h"

gemm_arguments gemm_declare_arguments(void)
{
    gemm_arguments x;
    x.m = param(I64, "m");
    x.n = param(I64, "n");
    x.k = param(I64, "k");
    x.a = pointer("a");
    x.lda = param(I64, "lda");
    x.b = pointer("b");
    x.ldb = param(I64, "ldb");
    x.c = pointer("c");
    x.ldc = param(I64, "ldc");
    x.d = pointer("d");
    x.ldd = param(I64, "ldd");
    x.bias = pointer("bias");
    x.scalars.alpha = param(F32, "alpha");
    x.scalars.beta = param(F32, "beta");
    return x;
}

gemm_epilogue gemm_epilogue_of(const void *config)
{
    gemm_epilogue e;
    memcpy(&e, config, sizeof e);
    return e;
}

static val activate(choice activation, val x)
{
    switch ((ckl_activation)activation) {
    case CKL_ACTIVATION_RELU:
        return max_nan(x, immf(0));
    case CKL_ACTIVATION_GELU:
        return gelu_tanh_f32(x);
    case CKL_ACTIVATION_IDENTITY:
        break;
    }
    return x;
}

val gemm_finish(gemm_epilogue e, gemm_scalars s, val product, val c, val bias)
{
    val x = e.bias ? fma(product, s.alpha, bias) : mul(product, s.alpha);
    if (e.c)
        x = fma(s.beta, c, x);
    return activate(e.activation, x);
}
