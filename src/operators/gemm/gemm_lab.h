/* gemm_lab.h - gemm as problem lines know it: the desc and the scalars of a call. */
#ifndef CKL_GEMM_LAB_H
#define CKL_GEMM_LAB_H

#include "cutekernellib/operators/gemm.h"
#include "operators/operators.h"

enum { GEMM_LINE_GROUPS_MAX = 1024 };

typedef struct gemm_problem {
    ckl_gemm_desc desc;
    bool c; // there is a C even if beta is 0
    float alpha, beta;
    quoted sizes;
    int64_t offsets[GEMM_LINE_GROUPS_MAX + 1]; // by sizes
} gemm_problem;

#endif
