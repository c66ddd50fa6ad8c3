/*
 * groupnorm.h - normalises groups of channels of images.
 *
 * Channels fall into `groups` groups of c/groups neighbours. Over all elements of a group of one image:
 *     mean = sum of x / count,  variance = sum of (x - mean)^2 / count,  rstd = 1 / sqrt(variance + eps)
 *     y = (x - mean) * rstd * gamma[channel] + beta[channel]
 * groups=1 is layer norm of whole images, groups=c instance norm. Statistics are f32, by the corrected two-pass
 * algorithm (see norm.h); every run on a device gives the same bits.
 */
#ifndef CUTEKERNELLIB_GROUPNORM_H
#define CUTEKERNELLIB_GROUPNORM_H

#include "../plan.h"
#include "../tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Dense images; 0 in any size is a problem without work. */
typedef struct ckl_groupnorm_desc {
    ckl_dtype dtype; // of x, y, gamma and beta: CKL_F32, CKL_F16 or CKL_BF16
    ckl_image_layout layout;
    int64_t n, c, h, w; // images, channels, rows, columns
    int64_t groups;     // divides c
    float eps;          // 0 means 1e-5
    bool affine;        // gamma and beta are there; else 1 and 0
} ckl_groupnorm_desc;

/* The memory of one call: device pointers, aligned to the element. y may be x; no other overlap is allowed. */
typedef struct ckl_groupnorm_args {
    const void *x;
    const void *gamma, *beta; // (c)
    void *y;
    float *mean, *rstd; // (n,groups), NULL: not saved
} ckl_groupnorm_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_API CKL_MUST_USE ckl_status ckl_groupnorm_plan(ckl_device *device, const ckl_groupnorm_desc *desc, ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_API CKL_MUST_USE ckl_status ckl_groupnorm_run(const ckl_plan *plan, const ckl_groupnorm_args *args,
                                                  ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_API CKL_MUST_USE ckl_status ckl_groupnorm(ckl_device *device, const ckl_groupnorm_desc *desc,
                                              const ckl_groupnorm_args *args, ckl_stream stream);

#ifdef __cplusplus
}
#endif

#endif
