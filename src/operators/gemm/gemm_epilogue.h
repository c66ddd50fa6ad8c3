/* gemm_epilogue.h - what happens to one element of A*B on its way to D; the same in all kernels. */
#ifndef CKL_GEMM_EPILOGUE_H
#define CKL_GEMM_EPILOGUE_H

#include "ir/build.h"
#include "operators/gemm/gemm_config.h"

/* The scalars of a call, parameters of every GEMM kernel. */
typedef struct gemm_scalars {
    val alpha, beta;
} gemm_scalars;

/* The parameters of the kernels that address memory themselves, in this order: sizes and pitches i64, pointers u64. */
typedef struct gemm_arguments {
    val m, n, k;
    val a, lda, b, ldb, c, ldc, d, ldd, bias;
    gemm_scalars scalars;
} gemm_arguments;

gemm_arguments gemm_declare_arguments(void);

/* The epilogue's part of any GEMM config: all begin with the same fields. */
gemm_epilogue gemm_epilogue_of(const void *config);

/* activation(alpha * product + beta * c + bias), f32; c and bias are read only where the epilogue has them. */
val gemm_finish(gemm_epilogue e, gemm_scalars s, val product, val c, val bias);

#endif
