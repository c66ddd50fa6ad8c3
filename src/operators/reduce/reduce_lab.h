/* reduce_lab.h - reductions as problem lines know them. */
#ifndef CKL_REDUCE_LAB_H
#define CKL_REDUCE_LAB_H

#include "cutekernellib/operators/reduce.h"
#include "operators/operators.h"
#include "operators/reduce/reduce_config.h"

#define REDUCE_PROBLEM_LINE(X)                                                                              \
    X(reduce_problem, choice, op, "sum", REDUCE_OPS, "what is made of a row")                               \
    X(reduce_problem, quoted, shape, "4096", "", "sizes of x, outermost axis first: 8192x32768")            \
    X(reduce_problem, quoted, axes, "", "", "reduced axes: 1 or 0,2; all if not given")                     \
    X(reduce_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16 i32 i64", "type of x")                         \
    X(reduce_problem, ckl_dtype, output, "", "f32 f16 bf16 i32 i64 bool", "type of y; the operation's own") \
    X(reduce_problem, quoted, stride, "", "", "elements between neighbours of each axis: 40000x1; dense")   \
    X(reduce_problem, int, correction, "0", "0 1", "of var and std: 1 for a sample")                        \
    X(reduce_problem, float, offset, "0", "", "added to random x, to show cancellation")

typedef struct reduce_problem {
    REDUCE_PROBLEM_LINE(FIELD_MEMBER)
    ckl_reduce_desc desc; // what prepare() made of the text
    int64_t rows, count;
} reduce_problem;

void reduce_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
