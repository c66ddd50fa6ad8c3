/*
 * norm_lab.h - problems, their check, operands and the definition in double of layer norm, RMS norm and group norm.
 *
 * Group norm is the general case: a row of layer norm is an image of one pixel and one group.
 */
#pragma once

#include "cutekernellib/operators/groupnorm.h"
#include "cutekernellib/operators/norm.h"
#include "operators/operators.h"

/* The eps of a forward problem, 1e-5 if it is 0; gradients have none. */
static inline ckl_status norm_check_eps(const char *op, ckl_direction direction, float *eps)
{
    if (direction == CKL_DIRECTION_BACKWARD && *eps > 0)
        FAIL(CKL_INVALID, "%s: eps=%g is not part of a backward problem", op, (double)*eps);
    if (direction == CKL_DIRECTION_FORWARD && *eps == 0)
        *eps = 1e-5f;
    return CKL_OK;
}

/* A problem as the reference sees it. */
typedef struct norm_view {
    ckl_direction direction;
    ckl_dtype dtype;
    int64_t images, groups, channels, pixels;           // channels: of all groups
    int64_t image_stride, channel_stride, pixel_stride; // of x, elements
    bool affine, residual, centred;                     // centred: the mean is subtracted, and there is a beta
    float eps;
} norm_view;

typedef struct norm_problem {
    union {
        ckl_norm_desc rows;
        ckl_groupnorm_desc images;
    };
    bool stats;
    float offset;
    norm_view view; // the laboratory's: prepare() of the operator's test fills it
} norm_problem;

#define NORM_PROBLEM(X, owner)                                       \
    X(owner, bool, stats, "1", "0 1", "forward saves mean and rstd") \
    X(owner, float, offset, "0", "", "x is random in offset-1..offset+1: a large mean is cancellation")

/* Operands, in the order of ckl_norm_args. Outputs count from NORM_Y; a backward pass reads mean and rstd. */
enum { NORM_X, NORM_RESIDUAL, NORM_GAMMA, NORM_BETA, NORM_DY, NORM_DSUM, NORM_Y, NORM_SUM, NORM_DX, NORM_DGAMMA };
enum { NORM_DBETA = NORM_DGAMMA + 1, NORM_MEAN, NORM_RSTD, NORM_OPERANDS };

/* Ranges of x and of the statistics, which a forward problem may go without. */
void norm_operands(const norm_problem *p, operand *all, operand *x, operand *mean, operand *rstd);
double norm_flops(const void *problem);
double norm_terms(const void *problem);

/* The index of element j of a group in the input; groups of all images are counted. */
int64_t norm_index(const norm_view *v, int64_t group, int64_t j);

/* Slices are groups; of dgamma and dbeta they are channels. */
void norm_reference(const void *problem, void *const *host, reference_slice out);

/* rsqrt.approx: 2^-22.9. */
#define NORM_TEST(name, ...)                                                                                        \
    OPERATOR_TEST_WITH(name, .terms_of = norm_terms, .approximation = 0x1p-22, .flops = norm_flops, .cases = cases, \
                       .population = population, __VA_ARGS__)
