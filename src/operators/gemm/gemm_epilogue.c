/* gemm_epilogue.c - scale, C, bias and activation of one element. */
#include "operators/gemm/gemm_epilogue.h"

#include "cute/kernel.h"

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

gemm_values gemm_product_of(gemm_epilogue e, const gemm_values *all, val product)
{
    gemm_values p = *all;
    const struct {
        val *address, stride;
        ckl_dtype type;
        bool used;
    } matrices[] = { { &p.a, p.a_batch, e.ab, true },
                     { &p.b, p.b_batch, e.ab, true },
                     { &p.c, p.c_batch, e.d, e.c },
                     { &p.d, p.d_batch, e.d, true } };
    for (int i = 0; i < COUNT_OF(matrices); i++)
        if (matrices[i].used) {
            val elements = mul(convert(I64, product), matrices[i].stride);
            val bytes = mul(elements, imm((int)ckl_dtype_bytes(matrices[i].type)));
            *matrices[i].address = add(*matrices[i].address, convert(U64, bytes));
        }
    return p;
}

void gemm_store(gemm_epilogue e, const gemm_values *p, val i, val j, val product)
{
    tensor gC = gmem_tensor(p->c, e.d, make_layout(shape(p->m, p->n), stride(p->ldc, 1))); // (M,N)
    tensor gD = gmem_tensor(p->d, e.d, make_layout(shape(p->m, p->n), stride(p->ldd, 1))); // (M,N)
    tensor gBias = gmem_tensor(p->bias, e.d, make_layout(dynamic(p->n), leaf(1)));         // (N)
    val c = variable(F32, immf(0)), bias = immf(0);
    if (e.d == CKL_I32) {
        set(gD, coord(i, j), product);
        return;
    }
    if (e.c)
        IF(ne(p->beta, immf(0)))
            assign(c, at_f32(gC, i, j));
    if (e.bias)
        bias = at_f32(gBias, j);
    set(gD, coord(i, j), gemm_finish(e, (gemm_scalars){ p->alpha, p->beta }, convert(F32, product), c, bias));
}
