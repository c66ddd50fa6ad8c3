/* gemm_naive.c - one thread computes one element of D: the first rung of the ladder, for any size and alignment. */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

void gemm_naive(const void *config, int kernel)
{
    const gemm_naive_config *cfg = config;
    ckl_dtype dtype = cfg->epilogue.ab;
    (void)kernel;
    launch_bounds(cfg->threads, 0);
    gemm_values all = params_of(gemm);

    val element = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    val count = mul(all.m, all.n);
    IF(lt(element, mul(all.batch, count))) {
        gemm_values p = gemm_product_of(cfg->epilogue, &all, div(element, count));
        tensor gA = gmem_tensor(p.a, dtype, make_layout(shape(p.m, p.k), stride(p.lda, 1))); // (M,K)
        tensor gB = gmem_tensor(p.b, dtype, make_layout(shape(p.n, p.k), stride(p.ldb, 1))); // (N,K)
        val within = rem(element, count), i = div(within, p.n), j = rem(within, p.n);
        val sum = variable(F32, immf(0));
        LOOP(l, p.k)
            assign(sum, fma(at_f32(gA, i, l), at_f32(gB, j, l), sum));
        gemm_store(cfg->epilogue, &p, i, j, sum);
    }
}
