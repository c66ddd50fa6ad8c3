/* add_problem.h - a problem line: the desc and the scalars of a call. */
#pragma once

#include "cutekernellib/operators/add.h"

typedef struct add_problem {
    ckl_add_desc desc;
    float alpha, beta;
} add_problem;
