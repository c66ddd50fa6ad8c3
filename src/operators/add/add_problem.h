/* add_problem.h - a problem line: the desc and the scalars of a call. */
#ifndef CKL_ADD_PROBLEM_H
#define CKL_ADD_PROBLEM_H

#include "cutekernellib/operators/add.h"

typedef struct add_problem {
    ckl_add_desc desc;
    float alpha, beta;
} add_problem;

#endif
