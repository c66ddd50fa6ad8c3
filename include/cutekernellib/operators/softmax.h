/*
 * softmax.h - softmax and log-softmax along an axis, of scaled and masked scores, and their gradients.
 *
 * Forward, for each row (all elements that differ only in their index i along the axis), with
 *     t[i] = scale * x[i] + mask[i]                       (a boolean mask: -inf where it is false)
 *     softmax      y[i] = exp(t[i] - max t) / sum over k of exp(t[k] - max t)
 *     log-softmax  y[i] = t[i] - max t - log(sum over k of exp(t[k] - max t))
 * Backward, from y:
 *     softmax      dx[i] = scale * y[i] * (dy[i] - sum over k of y[k] * dy[k])
 *     log-softmax  dx[i] = scale * (dy[i] - exp(y[i]) * sum over k of dy[k])
 *
 * A row whose t are all -inf gives zeros (log-softmax: -inf everywhere). NaN or +inf among the t of a row makes the
 * whole row NaN. |t| beyond FLT_MAX counts as infinite. Maximum and sum come from one pass
 * (Milakov, Gimelshein: Online normalizer calculation for softmax, 2018). Everything between memory and memory is f32;
 * results under 2^-126 may be 0. Sums have a fixed order: every run on a device gives the same bits.
 */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

typedef enum ckl_softmax_mask {
    CKL_SOFTMAX_MASK_NONE,
    CKL_SOFTMAX_MASK_BOOL, // bytes: an element takes part where the mask is not 0
    CKL_SOFTMAX_MASK_ADD,  // of dtype, added to the scaled x
} ckl_softmax_mask;

/*
 * Tensors are [outer, n, inner], the axis in the middle: any axis of a dense tensor is of this kind. Memory is a
 * sequence of lines, of n elements if inner is 1 and else of inner elements; ldx and ldy are the elements from a line
 * to the next.
 * A problem line of `ckl` has shape and axis instead: shape=8x21x32x32 axis=1 is outer=8, n=21, inner=1024.
 *
 * Masks (inner = 1 only) are dense [mask_rows, n]. Row r uses row (r / mask_repeat) % mask_rows: [S,S] for scores
 * [B,H,S,S] has mask_rows = S; [B,1,1,S] has mask_rows = B and mask_repeat = H*S.
 */
typedef struct ckl_softmax_desc {
    ckl_direction direction;
    ckl_dtype dtype;         // of all tensors: CKL_F32, CKL_F16 or CKL_BF16
    int64_t outer, n, inner; // inner = 0 means 1; if outer or n is 0 nothing is computed
    int64_t ldx, ldy;        // elements between lines of x and dx, of y and dy; 0 means dense
    bool log;                // log-softmax
    float scale;             // more than 0; 0 means 1
    ckl_softmax_mask mask;   // forward only: backward takes it from y
    int64_t mask_rows;       // 0 means outer; without a mask: must be 0
    int64_t mask_repeat;     // 0 means 1; without a mask: must be 0
} ckl_softmax_desc;

/*
 * The memory of one call: device pointers, aligned to the element. y may be x, and dx may be y or dy, if their ld are
 * equal; no other overlap of an output is allowed. What is not part of a problem must be NULL.
 */
typedef struct ckl_softmax_args {
    const void *x;    // forward
    const void *mask; // forward, if there is one
    void *y;          // written forward, read backward
    const void *dy;   // backward
    void *dx;         // backward
    void *workspace;  // ckl_plan_workspace_bytes(), the caller's; NULL: the plan's own, for one run at a time
} ckl_softmax_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_softmax_plan(ckl_device *device, const ckl_softmax_desc *desc, ckl_plan **plan);

/*
 * Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. Runs of a plan that
 * may overlap on the device pass a workspace each if ckl_plan_workspace_bytes() is not 0: that of long rows is not.
 */
CKL_MUST_USE CKL_API ckl_status ckl_softmax_run(const ckl_plan *plan, const ckl_softmax_args *args, ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_softmax(ckl_device *device, const ckl_softmax_desc *desc,
                                            const ckl_softmax_args *args, ckl_stream stream);

CKL_END_DECLS
