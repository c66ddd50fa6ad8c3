/* permute.h - y[c[order[0]], c[order[1]], ...] = x[c[0], c[1], ...], bit for bit; order 0,1,.. copies any strides */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

enum { CKL_PERMUTE_RANK_MAX = 5 };

/*
 * Modes are listed outermost first. NCHW to NHWC is order 0,2,3,1. Elements are moved as they are, NaN payloads
 * included. A stride of 0 in x repeats it along that mode; no two elements of y may share memory. Entries from `rank`
 * on must be 0.
 */
typedef struct ckl_permute_desc {
    ckl_dtype dtype;                        // any: 1, 2, 4 or 8 bytes
    int rank;                               // 1..5
    int64_t shape[CKL_PERMUTE_RANK_MAX];    // of x; a 0 is a problem without work
    int order[CKL_PERMUTE_RANK_MAX];        // mode i of y is mode order[i] of x
    int64_t stride_x[CKL_PERMUTE_RANK_MAX]; // elements, by modes of x; all 0: without gaps, the last mode contiguous
    int64_t stride_y[CKL_PERMUTE_RANK_MAX]; // elements, by modes of y; all 0: the same for y
} ckl_permute_desc;

/* The memory of one call: device pointers, aligned to the element. y must not overlap x. */
typedef struct ckl_permute_args {
    const void *x;
    void *y;
} ckl_permute_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_permute_plan(ckl_device *device, const ckl_permute_desc *desc, ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_permute_run(const ckl_plan *plan, const ckl_permute_args *args, ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_permute(ckl_device *device, const ckl_permute_desc *desc,
                                            const ckl_permute_args *args, ckl_stream stream);

CKL_END_DECLS
