/*
 * check.h - the tensors of a problem, and the checks that all operators make of a desc and of the memory of a call.
 * Sentences name operator, field, value and limit: "gemm: lda=7 is smaller than k=8".
 */
#pragma once

#include "base/status.h"
#include "cutekernellib/device.h"
#include "cutekernellib/tensor.h"

/* Descs */

/* The distance between rows of `extent` elements: 0 becomes extent, less is refused. */
ckl_status plan_check_pitch(const char *op, const char *name, int64_t *ld, const char *extent_name, int64_t extent);

/* A field that a problem (`of`: "a forward problem") does not have must be 0. */
ckl_status plan_check_unused(const char *op, const char *name, int64_t value, const char *of);

/* Sizes or strides by mode: not negative, and 0 from rank on. */
ckl_status plan_check_sizes(const char *op, const char *name, const int64_t *sizes, int rank, int rank_max);

/* Strides without gaps, the last mode contiguous, where all are 0. */
void plan_default_strides(const int64_t *shape, int64_t *stride, int rank);

/* Tensors */

enum { PLAN_TENSORS_MAX = 32, PLAN_RANK_MAX = 5 };

/* One tensor of a problem; a call's args begin with the pointers of all, in order. */
typedef struct plan_tensor {
    const char *name;
    ckl_dtype dtype;
    int rank;
    int64_t shape[PLAN_RANK_MAX], stride[PLAN_RANK_MAX]; // outermost first; elements
    bool output;
    bool optional;      // its pointer may be NULL
    bool host;          // it lies on the host, and is read during the call
    int place;          // not 0: an output may be in place of an input of the same place, shape, strides and bytes
    const char *absent; // not NULL: this problem has no such tensor, as "a forward problem"; its pointer must be NULL
} plan_tensor;

/* A matrix of rows that start ld elements apart, in place 1; a number for each row; a vector; a tensor. */
plan_tensor plan_matrix(const char *name, ckl_dtype dtype, int64_t rows, int64_t cols, int64_t ld);
plan_tensor plan_column(const char *name, ckl_dtype dtype, int64_t rows);
plan_tensor plan_vector(const char *name, ckl_dtype dtype, int64_t elements);
plan_tensor plan_strided(const char *name, ckl_dtype dtype, int rank, const int64_t *shape, const int64_t *stride);

/* The same in another role: written; perhaps NULL; in no other's place; absent where `of` is not NULL. */
plan_tensor plan_output(plan_tensor t);
plan_tensor plan_optional(plan_tensor t);
plan_tensor plan_apart(plan_tensor t);
plan_tensor plan_absent(plan_tensor t, const char *of);

/* The first of two reasons why a tensor is absent; NULL: there is none. */
static inline const char *plan_first(const char *reason, const char *other)
{
    return reason ? reason : other;
}

/* Bytes from the first to past the last element; 0 if there is none, INT64_MAX where 64 bits do not suffice. */
int64_t plan_tensor_bytes(const plan_tensor *t);

/* Every tensor lies within PLAN_BYTES_MAX bytes: more than any memory, and sums of a few of them are safe. */
#define PLAN_BYTES_MAX (INT64_C(1) << 56)
ckl_status plan_check_extents(const char *op, const plan_tensor *tensors, int count);

/* Are there outputs, all without elements? Then there is nothing to do. */
bool plan_is_empty(const plan_tensor *tensors, int count);

/*
 * Pointers are not NULL, and aligned; outputs overlap nothing but what they are in place of. Tensors with the same
 * outermost stride may lie side by side within it.
 */
ckl_status plan_check_pointers(const char *op, const plan_tensor *tensors, int count, const void *const *pointers);

/* The caller's workspace must be aligned; NULL is allowed. */
enum { PLAN_WORKSPACE_ALIGNMENT = 256 };
ckl_status plan_check_workspace(const char *op, const void *workspace);

/* Of a config: are the threads of a CTA whole warps, and no more than the device has? what: "gemm naive". */
ckl_status plan_check_threads(const char *what, int threads, const ckl_device_info *device);

/* Are all pointers multiples of so many bytes? NULL is: PLAN_ALIGNED(16, args->x, args->y). */
#define PLAN_ALIGNED(bytes, ...)                              \
    plan_aligned(bytes, (const void *const[]){ __VA_ARGS__ }, \
                 (int)(sizeof((const void *const[]){ __VA_ARGS__ }) / sizeof(void *)))
bool plan_aligned(int64_t bytes, const void *const *pointers, int count);
