/* transpose.h - y[b,c,r] = x[b,r,c], bit for bit */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

/*
 * Matrices of any strides: element (r,c) of x lies r * ldx + c * incx elements after its start, element (c,r) of y lies
 * c * ldy + r * incy after its own. Elements are moved as they are, NaN payloads included.
 */
typedef struct ckl_transpose_desc {
    ckl_dtype dtype;            // any: 1, 2, 4 or 8 bytes
    int64_t rows, cols;         // of x; 0 is a problem without work
    int64_t batch;              // matrices; 0 means 1
    int64_t ldx, ldy;           // elements between rows; 0: rows follow each other without gaps
    int64_t incx, incy;         // elements between neighbours in a row; 0 means 1
    int64_t stride_x, stride_y; // elements between matrices; 0: matrices follow each other without gaps
} ckl_transpose_desc;

/* The memory of one call: device pointers, aligned to the element. y must not overlap x. */
typedef struct ckl_transpose_args {
    const void *x;
    void *y;
} ckl_transpose_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_transpose_plan(ckl_device *device, const ckl_transpose_desc *desc, ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_transpose_run(const ckl_plan *plan, const ckl_transpose_args *args,
                                                  ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_transpose(ckl_device *device, const ckl_transpose_desc *desc,
                                              const ckl_transpose_args *args, ckl_stream stream);

CKL_END_DECLS
