/* crossentropy_lab.h - crossentropy as problem lines know it. */
#ifndef CKL_CROSSENTROPY_LAB_H
#define CKL_CROSSENTROPY_LAB_H

#include "cutekernellib/operators/crossentropy.h"
#include "operators/operators.h"

#define CROSSENTROPY_PROBLEM(X)                                                                                   \
    X(crossentropy_problem, int64_t, rows, "256", "", "rows of logits")                                           \
    X(crossentropy_problem, int64_t, cols, "1024", "", "classes")                                                 \
    X(crossentropy_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the logits")                        \
    X(crossentropy_problem, ckl_dtype, target, "i64", "i64 i32", "type of the targets")                           \
    X(crossentropy_problem, choice, direction, "forward", "forward backward", "loss, or the gradient of x")       \
    X(crossentropy_problem, choice, reduction, "none", "none mean", "of the losses")                              \
    X(crossentropy_problem, int64_t, ignore_index, "-100", "", "a target that does not count")                    \
    X(crossentropy_problem, int64_t, target_low, "0", "", "the smallest target; others than classes are allowed") \
    X(crossentropy_problem, int64_t, ldx, "0", "", "elements between rows of x; 0: cols")                         \
    X(crossentropy_problem, int64_t, lddx, "0", "", "elements between rows of dx; 0: cols")

typedef struct crossentropy_problem {
    CROSSENTROPY_PROBLEM(FIELD_MEMBER)
} crossentropy_problem;

/* Operands, in this order; those that a direction does not have are absent. */
enum {
    CROSSENTROPY_X,
    CROSSENTROPY_TARGET,
    CROSSENTROPY_LOSS,
    CROSSENTROPY_LSE,
    CROSSENTROPY_COUNT,
    CROSSENTROPY_DLOSS,
    CROSSENTROPY_DX,
    CROSSENTROPY_OPERANDS
};

/* Relative error of an exponential, per unit of 1 + |exponent|. */
#define CROSSENTROPY_ERROR 0x1p-20

void crossentropy_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
