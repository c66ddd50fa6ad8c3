/*
 * crossentropy.h - cross-entropy of logits and class numbers, and its gradient, without log-softmax in memory.
 *
 * Forward, for each row r with target t = target[r]:
 *     lse[r]  = log(sum over c of exp(x[r,c]))
 *     loss[r] = lse[r] - x[r,t]                        0 if t is ignore_index
 * Reduced: loss = sum over r of loss[r] / count, where count is the number of rows that are not ignored.
 * Backward, from x and lse:
 *     dx[r,c] = (exp(x[r,c] - lse[r]) - (c == t)) * dloss[r]      reduced: * dloss / count; 0 if t is ignore_index
 *
 * With weights w of the classes and smoothing s, for each row that is not ignored:
 *     loss[r] = (1-s) * w[t] * (lse[r] - x[r,t]) + s/cols * sum over c of w[c] * (lse[r] - x[r,c])
 * and count is the sum of w[t]. Without weights all of w are 1.
 *
 * A row of nothing but -inf has lse -inf, loss +inf and probabilities 0. NaN or +inf in a row makes its lse and loss
 * NaN, and so does a target that is neither ignore_index nor in 0..cols-1 with loss and gradient: nothing is read
 * outside. The mean of no rows is NaN. Sums have a fixed order: every run on a device gives the same bits.
 */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

typedef enum ckl_loss_reduction { CKL_LOSS_NONE, CKL_LOSS_MEAN } ckl_loss_reduction;

/* Row r starts r * ldx elements after x, and r * lddx elements after dx. */
typedef struct ckl_crossentropy_desc {
    ckl_direction direction;
    ckl_dtype dtype;    // of x and dx: CKL_F32, CKL_F16 or CKL_BF16; all else is f32
    ckl_dtype target;   // of the targets: CKL_I64 or CKL_I32; CKL_DTYPE_DEFAULT means CKL_I64
    int64_t rows, cols; // cols at least 1, except with no rows
    int64_t ldx, lddx;  // at least cols; 0 means cols. Forward, lddx must be 0
    ckl_loss_reduction reduction;
    int64_t ignore_index; // a target that does not count; any number
    bool weighted;        // classes have weights
    float smoothing;      // 0 to 1: the share of a row's loss that is of all classes
} ckl_crossentropy_desc;

/*
 * The memory of one call: device pointers, aligned to the element. dx may be x if ldx and lddx are equal; no other
 * overlap of an output is allowed. What is not part of a problem must be NULL.
 */
typedef struct ckl_crossentropy_args {
    const void *x;      // (rows,cols)
    const void *target; // (rows)
    float *loss;        // (rows), or one number if reduced; written forward
    float *lse;         // (rows), written forward, read backward
    float *count;       // one number if reduced; written forward, read backward
    const float *dloss; // like loss; backward
    void *dx;           // (rows,cols), written backward
    const void *weight; // (cols), of x's type, dense, if weighted
    float *weight_sum;  // one number if weighted with smoothing, the sum of weight; written forward, read backward
    void *workspace;    // ckl_plan_workspace_bytes(), the caller's; NULL: the plan's own, for one run at a time
} ckl_crossentropy_args;

/* Chooses and compiles kernels, once. Release the plan with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_crossentropy_plan(ckl_device *device, const ckl_crossentropy_desc *desc,
                                                      ckl_plan **plan);

/*
 * Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. Runs of one plan that
 * may overlap on the device pass a workspace each if ckl_plan_workspace_bytes() is not 0: that of a mean or of long
 * rows is not.
 */
CKL_MUST_USE CKL_API ckl_status ckl_crossentropy_run(const ckl_plan *plan, const ckl_crossentropy_args *args,
                                                     ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_crossentropy(ckl_device *device, const ckl_crossentropy_desc *desc,
                                                 const ckl_crossentropy_args *args, ckl_stream stream);

CKL_END_DECLS
