/* norm_lab.h - layer norm and RMS norm as problem lines know them, and the order of their operands. */
#ifndef CKL_NORM_LAB_H
#define CKL_NORM_LAB_H

#include "operators/operators.h"

#define NORM_PROBLEM(X)                                                                                      \
    X(norm_problem, int64_t, rows, "64", "", "rows")                                                         \
    X(norm_problem, int64_t, cols, "1024", "", "elements of a row")                                          \
    X(norm_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics")       \
    X(norm_problem, choice, direction, "forward", "forward backward", "the norm or its gradients")           \
    X(norm_problem, bool, affine, "1", "0 1", "with gamma, and beta where there is one")                     \
    X(norm_problem, bool, residual, "0", "0 1", "forward adds a residual first, backward its gradient last") \
    X(norm_problem, bool, stats, "1", "0 1", "forward saves mean and rstd")                                  \
    X(norm_problem, float, eps, "0", "", "added to the variance; 0: 1e-5")                                   \
    X(norm_problem, int64_t, ld_in, "0", "", "elements between rows of the inputs; 0: cols")                 \
    X(norm_problem, int64_t, ld_out, "0", "", "elements between rows of the outputs; 0: cols")               \
    X(norm_problem, float, offset, "0", "", "x is random in offset-1..offset+1: a large mean is cancellation")

typedef struct norm_problem {
    NORM_PROBLEM(FIELD_MEMBER)
    bool centred; // layernorm: the mean is subtracted, and there is a beta
} norm_problem;

/* Operands and outputs of both directions. */
enum { FORWARD_X, FORWARD_RESIDUAL, FORWARD_GAMMA, FORWARD_BETA, FORWARD_Y, FORWARD_SUM, FORWARD_MEAN, FORWARD_RSTD };
enum { BACKWARD_X, BACKWARD_DY, BACKWARD_DSUM, BACKWARD_GAMMA, BACKWARD_MEAN, BACKWARD_RSTD, BACKWARD_DX };
enum { OUTPUT_Y, OUTPUT_SUM, OUTPUT_MEAN, OUTPUT_RSTD };
enum { OUTPUT_DX, OUTPUT_DGAMMA, OUTPUT_DBETA };

void norm_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
