/* gemm_epilogue.h - what happens to one element of A*B on its way to D; the same in all kernels. */
#ifndef CKL_GEMM_EPILOGUE_H
#define CKL_GEMM_EPILOGUE_H

#include "ir/build.h"
#include "operators/gemm/gemm_config.h"

/* The scalars of a call. */
typedef struct gemm_scalars {
    val alpha, beta;
} gemm_scalars;

/* activation(alpha * product + beta * c + bias), f32; c and bias are read only where the epilogue has them. */
val gemm_finish(gemm_epilogue e, gemm_scalars s, val product, val c, val bias);

/* The parameters of one product of a batch. */
gemm_values gemm_product_of(gemm_epilogue e, const gemm_values *all, val product);

/* The same for element (i,j) of D, by a kernel that addresses memory itself; C is read where beta is not 0. */
void gemm_store(gemm_epilogue e, const gemm_values *p, val i, val j, val product);

#endif
