/* reduce.h - y[kept] = sum, maximum, mean, variance ... over the reduced axes of x */
#pragma once

#include "../plan.h"
#include "../tensor.h"
#include "reduce_fold.h"

CKL_BEGIN_DECLS

/*
 * What is made of the n elements of a row (all x that share a place in y). NaN: any operation but ANY and ALL gives NaN
 * if an element is NaN; ANY and ALL count it as true; ARGMAX and ARGMIN give the first NaN. An empty row (n = 0) gives
 * what is said.
 */
typedef enum ckl_reduce_op {
    CKL_REDUCE_SUM,      // empty: 0
    CKL_REDUCE_MAX,      // empty: -infinity, the smallest number of integers
    CKL_REDUCE_MIN,      // empty: infinity, the largest number of integers
    CKL_REDUCE_PROD,     // empty: 1
    CKL_REDUCE_MEAN,     // sum / n; empty: NaN
    CKL_REDUCE_VAR,      // sum of (x - mean)^2 / max(n - correction, 0); empty: NaN
    CKL_REDUCE_STD,      // sqrt(var)
    CKL_REDUCE_ARGMAX,   // row-major index among the reduced axes of the first largest element; empty: -1
    CKL_REDUCE_ARGMIN,   // of the first smallest element
    CKL_REDUCE_ANY,      // some x != 0; empty: false
    CKL_REDUCE_ALL,      // every x != 0; empty: true
    CKL_REDUCE_NORM1,    // sum of |x|; empty: 0
    CKL_REDUCE_NORM2,    // sqrt(sum of x^2), without overflow or underflow on the way; empty: 0
    CKL_REDUCE_LOGSUMEXP // log(sum of exp(x)), without overflow on the way; empty: -infinity
} ckl_reduce_op;

enum { CKL_REDUCE_RANK_MAX = 5 };

/*
 * Sums of floats are formed in f32, of integers in 64 bits (in the output's type where that is an integer; they wrap).
 *
 * Every order of additions is fixed, so that results are the same bit for bit in every run on the same device. A thread
 * adds its elements pairwise in blocks of b and the s blocks in turn (or, from 64 blocks on, compensated: then s counts
 * as 2); threads are added pairwise. So |error of a sum| <= (log2 b + s + log2(n / (b s)) + 1) * 2^-24 * sum of |x|, to
 * first order. Variance: Welford's update, a block of elements at a time, threads merged by Chan's formula (Chan,
 * Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979), all on x minus the
 * row's first element; relative error at most about (s + 2 log2 n + 4 b) * 2^-24, whatever the mean.
 */
typedef struct ckl_reduce_desc {
    ckl_reduce_op op; // 0 where there is a fold
    ckl_dtype dtype;  // of x: CKL_F32, CKL_F16, CKL_BF16, CKL_I32 or CKL_I64

    /*
     * Of y. ANY, ALL: CKL_BOOL. ARGMAX, ARGMIN: CKL_I64. Float x: the type of x, or CKL_F32. Integer x: MAX and MIN the
     * type of x; SUM and PROD CKL_I64, or the type of x; the others CKL_F32. Folds: of float x its type, or CKL_F32;
     * else CKL_F32. 0 is the first of those.
     */
    ckl_dtype output;

    int rank;                            // of x, 1 to CKL_REDUCE_RANK_MAX
    int64_t shape[CKL_REDUCE_RANK_MAX];  // outermost axis first; a size may be 0
    int64_t stride[CKL_REDUCE_RANK_MAX]; // of x in elements, not negative; all 0: dense, the last axis contiguous
    uint32_t axes;                       // bit a: axis a is reduced; 0 means all of them
    int correction;                      // of VAR and STD: 0 population, 1 sample (Bessel)

    /*
     * A fold by its name (reduce_fold.h) in the place of op; NULL or "none": there is none. The text stays as it is
     * while plans are made of it.
     */
    const char *fold;
} ckl_reduce_desc;

/* The memory of one call: device pointers aligned to their element. y is dense: the kept axes in their order. */
typedef struct ckl_reduce_args {
    const void *x;
    void *y;
    void *workspace; // the caller's ckl_plan_workspace_bytes(), zeroed once; NULL: the plan's, for one run at a time
} ckl_reduce_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_reduce_plan(ckl_device *device, const ckl_reduce_desc *desc, ckl_plan **plan);

/*
 * Enqueues it on stream: one kernel. Never allocates, compiles or waits. Any thread may run a plan; runs that may
 * overlap on the device pass a workspace each if ckl_plan_workspace_bytes() is not 0.
 */
CKL_MUST_USE CKL_API ckl_status ckl_reduce_run(const ckl_plan *plan, const ckl_reduce_args *args, ckl_stream stream);

/* Plans (once per desc, device and stream, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_reduce(ckl_device *device, const ckl_reduce_desc *desc, const ckl_reduce_args *args,
                                           ckl_stream stream);

CKL_END_DECLS
