/*
 * norm.h - layer norm and RMS norm of rows, with an optional residual sum, and their gradients.
 *
 * Forward, for each row r, with h = x, or h = x + residual rounded to dtype (written to sum if there is a residual):
 *     layernorm  mean = sum over c of h[r,c] / cols,  variance = sum over c of (h[r,c] - mean)^2 / cols
 *     rmsnorm    mean = 0,                            variance = sum over c of h[r,c]^2 / cols
 *     rstd = 1 / sqrt(variance + eps)
 *     y[r,c] = (h[r,c] - mean) * rstd * gamma[c] + beta[c]
 * Backward, with n = (x[r,c] - mean) * rstd, where x is the h of the forward pass, and g = dy[r,c] * gamma[c]:
 *     dx[r,c] = (g - n * (sum over c of g*n / cols) - (sum over c of g / cols)) * rstd + dsum[r,c]
 *     dgamma[c] = sum over r of dy[r,c] * n,  dbeta[c] = sum over r of dy[r,c]
 * rmsnorm has no mean and no beta: their terms are absent. dx is the gradient of x and of residual alike.
 *
 * A row with an infinity or a NaN has a mean and rstd of NaN, of rmsnorm an rstd of 0 or NaN: in every kernel, and as
 * group norm's groups do.
 *
 * Statistics and sums are f32. The variance is that of the differences from the mean, corrected for the mean's rounding
 * (the corrected two-pass algorithm; Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983), so that
 * a large mean costs no digits. Layer norm of rows of more than 16384 elements (32 KiB with a residual), which it reads
 * once, takes the mean p of a row's first 32 elements in place of the mean: the relative error of the variance then
 * grows with 1 + (p - mean)^2 / variance, at most 1 + cols / 32, which needs outliers among these 32. Where such rows
 * are no whole vectors of 16 bytes, each thread takes its own first element in place of the mean and moves its sums to
 * the mean afterwards: at most as many times the error as a thread has elements. Sums have a fixed order: every run on
 * a device gives the same bits.
 */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

/* Row r of a tensor starts r * ld elements after its pointer; gamma, beta, mean, rstd and their gradients are dense. */
typedef struct ckl_norm_desc {
    ckl_direction direction;
    ckl_dtype dtype;    // of all but mean and rstd, which are f32: CKL_F32, CKL_F16 or CKL_BF16
    int64_t rows, cols; // dgamma and dbeta of 0 rows are 0; mean and rstd of 0 columns are NaN
    int64_t ldx;        // elements between rows of x, residual, dy and dsum, at least cols; 0 means cols
    int64_t ldy;        // elements between rows of y, sum and dx, at least cols; 0 means cols
    float eps;          // forward; 0 means 1e-5. Backward must be 0: rstd has it
    bool affine;        // gamma (and beta of layernorm) are there; else 1 and 0
    bool residual;      // residual and sum are there; backward: dsum is there
} ckl_norm_desc;

/*
 * The memory of one call: device pointers, aligned to the element. Pointers that the problem does not have must be
 * NULL: those of the other direction, gamma, beta and their gradients without affine, residual, sum and dsum without
 * residual, and beta, dbeta and mean of rmsnorm. An output may be one of the row inputs if ldx is ldy; no other overlap
 * is allowed.
 */
typedef struct ckl_norm_args {
    const void *x;         // (rows,cols)
    const void *residual;  // (rows,cols) forward
    const void *gamma;     // (cols)
    const void *beta;      // (cols) forward
    const void *dy, *dsum; // (rows,cols) backward
    void *y, *sum;         // (rows,cols) forward
    void *dx;              // (rows,cols) backward
    void *dgamma, *dbeta;  // (cols) backward
    float *mean, *rstd;    // (rows) forward: written unless NULL; backward: read
    void *workspace;       // ckl_plan_workspace_bytes(), the caller's; NULL: the plan's own, for one run at a time
} ckl_norm_args;

/* Chooses and compiles kernels, once. Release the plan with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_layernorm_plan(ckl_device *device, const ckl_norm_desc *desc, ckl_plan **plan);
CKL_MUST_USE CKL_API ckl_status ckl_rmsnorm_plan(ckl_device *device, const ckl_norm_desc *desc, ckl_plan **plan);

/*
 * Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. Runs of a plan
 * that may overlap on the device pass a workspace each if ckl_plan_workspace_bytes() is not 0: that of gradients and of
 * long rows is not.
 */
CKL_MUST_USE CKL_API ckl_status ckl_layernorm_run(const ckl_plan *plan, const ckl_norm_args *args, ckl_stream stream);
CKL_MUST_USE CKL_API ckl_status ckl_rmsnorm_run(const ckl_plan *plan, const ckl_norm_args *args, ckl_stream stream);

/* Plans (once per desc, device and stream, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_layernorm(ckl_device *device, const ckl_norm_desc *desc, const ckl_norm_args *args,
                                              ckl_stream stream);
CKL_MUST_USE CKL_API ckl_status ckl_rmsnorm(ckl_device *device, const ckl_norm_desc *desc, const ckl_norm_args *args,
                                            ckl_stream stream);

CKL_END_DECLS
