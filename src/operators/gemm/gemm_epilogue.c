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

/*
 * GELU in its tanh form, as x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): 1 + tanh(u) would cancel for negative x, where
 * an approximate tanh leaves few correct digits; ex2 and rcp keep a relative error near 1e-6. Below -100 the sigmoid is 0;
 * the factor stops there so that -inf gives -0 and not -inf * 0.
 */
static val gelu(val x)
{
    const double scale = -2 * 0.7978845608028654 * 1.4426950408889634; // -2 sqrt(2/pi) log2(e)
    val square = mul(x, x);
    val exponent = mul(x, fma(square, immf(scale * 0.044715), immf(scale)));
    return mul(max(x, immf(-100)), rcp_ftz(add(exp2_ftz(exponent), immf(1))));
}

static val activate(choice activation, val x)
{
    switch ((ckl_activation)activation) {
    case CKL_RELU:
        return ir_max_nan(x, immf(0));
    case CKL_GELU:
        return gelu(x);
    case CKL_IDENTITY:
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
