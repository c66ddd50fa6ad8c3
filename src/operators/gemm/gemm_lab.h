/* gemm_lab.h - gemm as problem lines know it: the desc and the scalars of a call; and its definition. */
#pragma once

#include "cutekernellib/operators/gemm.h"
#include "operators/operators.h"

enum { GEMM_LINE_GROUPS_MAX = 1024 };

typedef struct gemm_problem {
    ckl_gemm_desc desc;
    bool c; // has a C even if beta is 0
    float alpha, beta;
    quoted sizes;
    int64_t offsets[GEMM_LINE_GROUPS_MAX + 1];      // by sizes
    int32_t host_offsets[GEMM_LINE_GROUPS_MAX + 1]; // the same, or groups of about equal size
} gemm_problem;

/* The definition (gemm_ref.c), as operator_test wants it. */
int gemm_operands(const void *problem, operand *all);
void gemm_reference(const void *problem, void *const *host, reference_slice out);
double gemm_terms(const void *problem);
double gemm_approximation(const void *problem);
double gemm_flops(const void *problem);
double gemm_matrix_rate(const void *problem);

extern const test_reject gemm_rejects[];
