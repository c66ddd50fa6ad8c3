/* softmax_lab.h - softmax as problem lines know it: any axis of a shape. */
#ifndef CKL_SOFTMAX_LAB_H
#define CKL_SOFTMAX_LAB_H

#include "cutekernellib/operators/softmax.h"
#include "operators/operators.h"

#define SOFTMAX_PROBLEM(X)                                                                             \
    X(softmax_problem, quoted, shape, "256x1024", "", "sizes, outermost first")                        \
    X(softmax_problem, int64_t, axis, "-1", "", "along which sums run; negative: from the last")       \
    X(softmax_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the tensors")                 \
    X(softmax_problem, choice, direction, "forward", "forward backward", "y, or the gradient of x")    \
    X(softmax_problem, bool, log, "0", "0 1", "log-softmax")                                           \
    X(softmax_problem, float, scale, "1", "", "factor of the scores")                                  \
    X(softmax_problem, choice, mask, "none", "none bool add", "of the scores")                         \
    X(softmax_problem, int64_t, mask_rows, "0", "", "rows of the mask; 0: as many as the scores have") \
    X(softmax_problem, int64_t, mask_repeat, "0", "", "rows of scores for a row of the mask; 0: 1")    \
    X(softmax_problem, int64_t, ldx, "0", "", "elements between lines of x and dx; 0: dense")          \
    X(softmax_problem, int64_t, ldy, "0", "", "elements between lines of y and dy; 0: dense")

typedef struct softmax_problem {
    SOFTMAX_PROBLEM(FIELD_MEMBER)
    int64_t outer, n, inner; // what shape and axis mean
} softmax_problem;

/* Operands, in this order; those that a direction does not have are absent. */
enum { SOFTMAX_X, SOFTMAX_MASK, SOFTMAX_Y, SOFTMAX_DY, SOFTMAX_DX, SOFTMAX_OPERANDS };

/* Relative error of the exponential, per unit of 1 + |x - max|. */
#define SOFTMAX_ERROR 0x1p-20

void softmax_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

/* The index of element i of row `slice` in a tensor of that distance between lines. */
int64_t softmax_index(const softmax_problem *p, int64_t ld, int64_t slice, int64_t i);

#endif
