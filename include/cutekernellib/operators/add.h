/* add.h - y[r,i] = alpha * a[r,i] + beta * b[r,i] */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

/* Row r of a tensor starts r * ld elements after its pointer. The sum is formed in f32 and rounded once. */
typedef struct ckl_add_desc {
    ckl_dtype dtype;       // of a, b and y: CKL_F32, CKL_F16 or CKL_BF16
    int64_t n;             // elements of a row; 0 is a problem without work
    int64_t rows;          // 0 means 1
    int64_t lda, ldb, ldy; // elements between rows, at least n; 0 means n
} ckl_add_desc;

/* The memory of one call: device pointers, aligned to the element. y may be a or b if their ld are equal. */
typedef struct ckl_add_args {
    const void *a, *b;
    void *y;
    const float *alpha, *beta; // host, read during the call; NULL means 1
} ckl_add_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_add_plan(ckl_device *device, const ckl_add_desc *desc, ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_add_run(const ckl_plan *plan, const ckl_add_args *args, ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_add(ckl_device *device, const ckl_add_desc *desc, const ckl_add_args *args,
                                        ckl_stream stream);

CKL_END_DECLS
