/* gemm_naive.c - one thread computes one element of D: the first rung of the ladder, for any size and alignment. */
#include "cute/kernel.h"
#include "operators/gemm/gemm_epilogue.h"

/* A row-major matrix of a kernel parameter. */
static tensor matrix(const char *name, const char *pitch, ckl_dtype dtype, val rows, val cols)
{
    return gmem_tensor(pointer(name), dtype, make_layout(shape(rows, cols), stride(param(I64, pitch), 1)));
}

void gemm_naive(const void *config, int part)
{
    const gemm_naive_config *cfg = config;
    gemm_epilogue e = gemm_epilogue_of(config);
    (void)part;
    ir_current()->threads = cfg->threads;
    val m = param(I64, "m"), n = param(I64, "n"), k = param(I64, "k");
    tensor gA = matrix("a", "lda", cfg->ab, m, k); // (M,K)
    tensor gB = matrix("b", "ldb", cfg->ab, n, k); // (N,K)
    tensor gC = matrix("c", "ldc", cfg->d, m, n);  // (M,N)
    tensor gD = matrix("d", "ldd", cfg->d, m, n);  // (M,N)
    gemm_scalars s = { param(F32, "alpha"), param(F32, "beta") };
    tensor gBias = gmem_tensor(pointer("bias"), cfg->d, make_layout(dynamic(n), leaf(1))); // (N)

    val element = add(mul(convert(I64, cta_x()), imm(cfg->threads)), convert(I64, thread()));
    IF (lt(element, mul(m, n))) {
        val i = div(element, n), j = rem(element, n);
        val sum = variable(F32, immf(0));
        LOOP (l, k) {
            assign(sum, fma(convert(F32, at(gA, i, l)), convert(F32, at(gB, j, l)), sum));
        }
        val c = variable(F32, immf(0)), bias = immf(0);
        if (cfg->c)
            IF (ne(s.beta, immf(0))) {
                assign(c, convert(F32, at(gC, i, j)));
            }
        if (cfg->bias)
            bias = convert(F32, at(gBias, j));
        tensor_set(gD, coord(i, j), gemm_finish(e, s, sum, c, bias));
    }
}
