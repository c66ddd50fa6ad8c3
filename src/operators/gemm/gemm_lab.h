/* gemm_lab.h - gemm as problem lines know it: the desc and the scalars of a call. */
#ifndef CKL_GEMM_LAB_H
#define CKL_GEMM_LAB_H

#include "operators/operators.h"

#define GEMM_PROBLEM(X)                                                                            \
    X(gemm_problem, int64_t, m, "256", "", "rows of A and D")                                      \
    X(gemm_problem, int64_t, n, "256", "", "columns of D")                                         \
    X(gemm_problem, int64_t, k, "256", "", "length of the sums")                                   \
    X(gemm_problem, ckl_dtype, a, "f16", "f16 bf16", "type of A")                                  \
    X(gemm_problem, ckl_dtype, b, "", "f16 bf16", "type of B; default: that of A")                 \
    X(gemm_problem, ckl_dtype, d, "", "f16 bf16 f32", "type of C, D and bias; default: that of A") \
    X(gemm_problem, choice, layout, "nt", "nt", "A is [M,K] and B is [N,K]")                       \
    X(gemm_problem, int64_t, lda, "0", "", "elements between rows; 0: dense")                      \
    X(gemm_problem, int64_t, ldb, "0", "", "elements between rows; 0: dense")                      \
    X(gemm_problem, int64_t, ldc, "0", "", "elements between rows; 0: dense")                      \
    X(gemm_problem, int64_t, ldd, "0", "", "elements between rows; 0: dense")                      \
    X(gemm_problem, choice, activation, "identity", "identity relu gelu", "applied last")          \
    X(gemm_problem, bool, bias, "0", "0 1", "adds a bias to every column")                         \
    X(gemm_problem, bool, c, "0", "0 1", "there is a C even if beta is 0")                         \
    X(gemm_problem, float, alpha, "1", "", "factor of the product")                                \
    X(gemm_problem, float, beta, "0", "", "factor of C")

typedef struct gemm_problem {
    GEMM_PROBLEM(FIELD_MEMBER)
} gemm_problem;

void gemm_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
