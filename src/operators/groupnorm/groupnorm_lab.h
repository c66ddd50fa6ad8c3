/* groupnorm_lab.h - group norm as problem lines know it, and the order of its operands. */
#ifndef CKL_GROUPNORM_LAB_H
#define CKL_GROUPNORM_LAB_H

#include "operators/operators.h"

#define GROUPNORM_PROBLEM(X)                                                                                \
    X(groupnorm_problem, choice, direction, "forward", "forward backward", "the norm or its gradients")     \
    X(groupnorm_problem, int64_t, n, "2", "", "images")                                                     \
    X(groupnorm_problem, int64_t, c, "32", "", "channels")                                                  \
    X(groupnorm_problem, int64_t, h, "8", "", "rows of an image")                                           \
    X(groupnorm_problem, int64_t, w, "8", "", "columns of an image")                                        \
    X(groupnorm_problem, int64_t, groups, "8", "", "of channels")                                           \
    X(groupnorm_problem, choice, layout, "nchw", "nchw nhwc", "order of the axes")                          \
    X(groupnorm_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics") \
    X(groupnorm_problem, bool, affine, "1", "0 1", "with gamma and beta")                                   \
    X(groupnorm_problem, bool, stats, "1", "0 1", "forward saves mean and rstd")                            \
    X(groupnorm_problem, float, eps, "0", "", "added to the variance; 0: 1e-5")                             \
    X(groupnorm_problem, float, offset, "0", "", "x is random in offset-1..offset+1")

typedef struct groupnorm_problem {
    GROUPNORM_PROBLEM(FIELD_MEMBER)
} groupnorm_problem;

/* Operands and outputs of both directions. */
enum { FORWARD_X, FORWARD_GAMMA, FORWARD_BETA, FORWARD_Y, FORWARD_MEAN, FORWARD_RSTD, FORWARD_OPERANDS };
enum { BACKWARD_X, BACKWARD_DY, BACKWARD_GAMMA, BACKWARD_MEAN, BACKWARD_RSTD, BACKWARD_DX };
enum { OUTPUT_Y, OUTPUT_MEAN, OUTPUT_RSTD };
enum { OUTPUT_DX, OUTPUT_DGAMMA, OUTPUT_DBETA, BACKWARD_OUTPUTS };

/* The element of an image tensor at element j of group `slice` (of image slice / groups). */
int64_t groupnorm_index(const groupnorm_problem *problem, int64_t slice, int64_t j);

void groupnorm_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
