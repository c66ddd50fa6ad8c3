/*
 * groupnorm.h - normalises groups of channels of images, and gradients.
 *
 * Channels fall into `groups` groups of c/groups neighbours. Forward, over all elements of a group of one image:
 *     mean = sum of x / count,  variance = sum of (x - mean)^2 / count,  rstd = 1 / sqrt(variance + eps)
 *     y = (x - mean) * rstd * gamma[channel] + beta[channel]
 * Backward, with n = (x - mean) * rstd and g = dy * gamma[channel]:
 *     dx = (g - n * (sum over the group of g*n / count) - (sum over the group of g / count)) * rstd
 *     dgamma[channel] = sum over its pixels in all images of dy * n,  dbeta[channel] = sum of dy
 * The sums of a group are taken channel by channel, gamma times a sum: gamma should be finite.
 *
 * The statistics of a group with an infinity or a NaN are NaN.
 *
 * groups=1 is layer norm of whole images, groups=c instance norm. Statistics and sums are f32. The variance is that of
 * differences from means, merged by Chan's rule, so that a large mean costs no digits (see norm.h). Sums have a fixed
 * order: every run on a device gives the same bits.
 */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

/* Dense images; 0 in any size is a problem without work, but for dgamma and dbeta: those of no elements are 0. */
typedef struct ckl_groupnorm_desc {
    ckl_direction direction;
    ckl_dtype dtype; // of all but mean and rstd, which are f32: CKL_F32, CKL_F16 or CKL_BF16
    ckl_image_layout layout;
    int64_t n, c, h, w; // images, channels, rows, columns
    int64_t groups;     // divides c
    float eps;          // forward; 0 means 1e-5. Backward must be 0: rstd has it
    bool affine;        // gamma and beta are there; else 1 and 0
} ckl_groupnorm_desc;

/*
 * The memory of one call: device pointers, aligned to the element. y may be x, and dx may be x or dy; no other overlap
 * is allowed. Pointers that the problem does not have must be NULL: those of the other direction, and gamma, beta and
 * their gradients without affine.
 */
typedef struct ckl_groupnorm_args {
    const void *x, *dy;       // images; dy: backward
    const void *gamma, *beta; // (c), beta: forward
    void *y;                  // images, forward
    void *dx;                 // images, backward
    void *dgamma, *dbeta;     // (c) backward
    float *mean, *rstd;       // (n,groups) forward: written unless NULL; backward: read
    void *workspace;          // ckl_plan_workspace_bytes(), the caller's; NULL: the plan's own, for one run at a time
} ckl_groupnorm_args;

/* Chooses and compiles kernels, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_groupnorm_plan(ckl_device *device, const ckl_groupnorm_desc *desc, ckl_plan **plan);

/*
 * Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. Runs of a plan that
 * may overlap on the device pass a workspace each if ckl_plan_workspace_bytes() is not 0.
 */
CKL_MUST_USE CKL_API ckl_status ckl_groupnorm_run(const ckl_plan *plan, const ckl_groupnorm_args *args,
                                                  ckl_stream stream);

/* Plans (once per desc, device and stream, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_groupnorm(ckl_device *device, const ckl_groupnorm_desc *desc,
                                              const ckl_groupnorm_args *args, ckl_stream stream);

CKL_END_DECLS
