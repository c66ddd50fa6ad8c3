/* reduce_lab.h - reduce as problem lines know it, and its reference. */
#ifndef CKL_REDUCE_LAB_H
#define CKL_REDUCE_LAB_H

#include "cutekernellib/operators/reduce.h"
#include "operators/operators.h"

typedef struct reduce_problem {
    ckl_reduce_desc desc;
    quoted shape, axes, stride;
    float offset;
} reduce_problem;

void reduce_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
