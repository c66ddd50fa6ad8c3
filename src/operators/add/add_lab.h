/* add_lab.h - add as problem lines know it: the desc and the scalars of a call. */
#ifndef CKL_ADD_LAB_H
#define CKL_ADD_LAB_H

#include "operators/operators.h"

#define ADD_PROBLEM(X)                                                            \
    X(add_problem, int64_t, n, "4096", "", "elements of a row")                   \
    X(add_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of a, b and y") \
    X(add_problem, int64_t, rows, "1", "", "rows")                                \
    X(add_problem, int64_t, lda, "0", "", "elements between rows of a; 0: n")     \
    X(add_problem, int64_t, ldb, "0", "", "elements between rows of b; 0: n")     \
    X(add_problem, int64_t, ldy, "0", "", "elements between rows of y; 0: n")     \
    X(add_problem, float, alpha, "1", "", "factor of a")                          \
    X(add_problem, float, beta, "1", "", "factor of b")

typedef struct add_problem {
    ADD_PROBLEM(FIELD_MEMBER)
    int64_t slice; // elements of a row that are compared at a time
} add_problem;

/* The index of a slice's first element in a tensor. */
static inline int64_t add_slice_start(const add_problem *p, int64_t slice, int64_t ld)
{
    int64_t of_row = p->n / p->slice;
    return slice / of_row * ld + slice % of_row * p->slice;
}

void add_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
