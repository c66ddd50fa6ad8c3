/* gemm_naive.c - one thread computes one element of D: the first rung of the ladder, for any size and alignment. */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

/* A row-major matrix. */
static tensor matrix(val address, val pitch, ckl_dtype dtype, val rows, val cols)
{
    return gmem_tensor(address, dtype, make_layout(shape(rows, cols), stride(pitch, 1)));
}

void gemm_naive(const void *config, int part)
{
    const gemm_naive_config *cfg = config;
    (void)part;
    launch_bounds(cfg->threads, 0);
    gemm_arguments x = gemm_declare_arguments();
    tensor gA = matrix(x.a, x.lda, cfg->ab, x.m, x.k);                              // (M,K)
    tensor gB = matrix(x.b, x.ldb, cfg->ab, x.n, x.k);                              // (N,K)
    tensor gC = matrix(x.c, x.ldc, cfg->d, x.m, x.n);                               // (M,N)
    tensor gD = matrix(x.d, x.ldd, cfg->d, x.m, x.n);                               // (M,N)
    tensor gBias = gmem_tensor(x.bias, cfg->d, make_layout(dynamic(x.n), leaf(1))); // (N)

    val element = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    IF(lt(element, mul(x.m, x.n))) {
        val i = div(element, x.n), j = rem(element, x.n);
        val sum = variable(F32, immf(0)), c = variable(F32, immf(0)), bias = immf(0);
        LOOP(l, x.k)
            assign(sum, fma(convert(F32, at(gA, i, l)), convert(F32, at(gB, j, l)), sum));
        if (cfg->c)
            IF(ne(x.scalars.beta, immf(0)))
                assign(c, convert(F32, at(gC, i, j)));
        if (cfg->bias)
            bias = convert(F32, at(gBias, j));
        set(gD, coord(i, j), gemm_finish(gemm_epilogue_of(cfg), x.scalars, sum, c, bias));
    }
}
