/* gemm.h - D = activation(alpha * A * B + beta * C + bias), matrix multiplication with a fused epilogue. */
#ifndef CUTEKERNELLIB_GEMM_H
#define CUTEKERNELLIB_GEMM_H

#include "../plan.h"
#include "../tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ckl_activation {
    CKL_ACTIVATION_IDENTITY,
    CKL_ACTIVATION_RELU,
    CKL_ACTIVATION_GELU, // x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))), Hendrycks and Gimpel, arXiv:1606.08415
} ckl_activation;

/* What the products of an f32 A and B are made of. */
typedef enum ckl_gemm_math {
    CKL_GEMM_F32,  // the operands as they are
    CKL_GEMM_TF32, // the operands without the low 13 bits of their fractions: tensor cores
} ckl_gemm_math;

/* Which dimension of A and B is contiguous. */
typedef enum ckl_gemm_layout {
    CKL_GEMM_NT, // both K-major: A is [M,K], B is [N,K] by rows
} ckl_gemm_layout;

/*
 * Rows of a matrix are ld elements apart. Sums are f32, of i8 i32; D is rounded once, at the end. Products of 8-bit floats are
 * summed as Hopper's tensor cores do: 32 at a time, each cut to 13 bits below the largest of them and of the sum so far.
 */
typedef struct ckl_gemm_desc {
    int64_t m, n, k;        // any of them may be 0
    ckl_dtype a, b;         // CKL_F16, BF16, F32, E4M3, E5M2 or I8; b: 0 means a, and must equal a
    ckl_dtype c;            // 0: there is no C and beta is not used; else the type of D
    ckl_dtype d;            // the type of a, or CKL_F32; of 8-bit types CKL_F16, BF16 or F32. 0 means a, BF16 of 8 bits
    ckl_gemm_math math;     // of an f32 A and B; 0 means f32
    ckl_gemm_layout layout; // 0 means nt
    int64_t lda, ldb, ldc, ldd; // 0 means dense: k, k, n, n; without C ldc is 0
    ckl_activation activation;  // 0 means none
    bool bias;                  // adds bias[j], of D's type, to every element of column j

    /* So many products, each of its own matrices, which lie `stride` elements apart; the bias is that of all. */
    int64_t batch;                                  // 0 means 1
    int64_t stride_a, stride_b, stride_c, stride_d; // 0 means one matrix after the other: m*lda, n*ldb, m*ldc, m*ldd
} ckl_gemm_desc;

/* The memory of one call: device pointers. d may be c if their pitches and strides are the same. */
typedef struct ckl_gemm_args {
    const void *a, *b, *c, *bias; // c and bias: NULL where the desc has none
    void *d;
    const float *alpha; // host, read during the call; NULL means 1
    const float *beta;  // host; NULL means 1 if the desc has C. At 0 the kernel does not read C
    void *workspace;    // ckl_plan_workspace_bytes(), the caller's; NULL: the plan's own, for one run at a time
} ckl_gemm_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_gemm_plan(ckl_device *device, const ckl_gemm_desc *desc, ckl_plan **plan);

/*
 * Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. Runs of one plan that may
 * overlap on the device pass a workspace each if ckl_plan_workspace_bytes() is not 0: that of large A and B in rows that are no
 * multiple of 16 bytes is not, nor that of few rows and columns and a large k.
 */
CKL_MUST_USE CKL_API ckl_status ckl_gemm_run(const ckl_plan *plan, const ckl_gemm_args *args, ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_gemm(ckl_device *device, const ckl_gemm_desc *desc, const ckl_gemm_args *args,
                                         ckl_stream stream);

#ifdef __cplusplus
}
#endif

#endif
