/* gemm_line.c - the problem lines of gemm. */
#include "operators/gemm/gemm_config.h"
#include "operators/gemm/gemm_lab.h"

static const field fields[] = {
    GEMM_DESC(FIELD_NESTED, (gemm_problem, desc))                                  //
    FIELD_ROW(gemm_problem, bool, c, "0", "0 1", "there is a C even if beta is 0") //
    FIELD_ROW(gemm_problem, float, alpha, "1", "", "factor of the product")        //
    FIELD_ROW(gemm_problem, float, beta, "0", "", "factor of C")                   //
};

/* C is of D's type. */
static ckl_status prepare(void *problem)
{
    gemm_problem *p = problem;
    p->c |= p->beta != 0;
    if (p->c)
        p->desc.c = gemm_result_type(&p->desc);
    return CKL_OK;
}

OPERATOR_LINE(gemm, gemm_problem, prepare);
