/*
 * check.h - the checks that all operators make of a desc and of the memory of a call. Sentences name operator, field, value
 * and limit: "gemm: lda=7 is smaller than k=8".
 */
#ifndef CKL_PLAN_CHECK_H
#define CKL_PLAN_CHECK_H

#include "base/status.h"
#include "cutekernellib/tensor.h"

/* Descs */

/* The type is one of those listed. */
#define PLAN_CHECK_DTYPE(op, name, dtype, ...) \
    plan_check_dtype(op, name, dtype, (const ckl_dtype[]){ __VA_ARGS__, CKL_DTYPE_DEFAULT })
ckl_status plan_check_dtype(const char *op, const char *name, ckl_dtype dtype, const ckl_dtype *allowed);

/* The size is not negative. */
ckl_status plan_check_size(const char *op, const char *name, int64_t size);

/* The distance between rows of `extent` elements: 0 becomes extent, less is refused. */
ckl_status plan_check_pitch(const char *op, const char *name, int64_t *ld, const char *extent_name, int64_t extent);

/* Memory of a call */

/* One tensor of a call. */
typedef struct plan_tensor {
    const char *name;
    const void *pointer;
    int64_t bytes; // from its first to past its last element; 0: nothing is read or written
    int64_t align; // bytes of an element
    bool output;
    int64_t layout;     // tensors of the same layout, not 0, may be the same memory: an output in place of an input
    const char *absent; // not NULL: this problem has no such tensor, as "a forward problem"; its pointer must be NULL
} plan_tensor;

/* A matrix of rows that start ld elements apart. */
plan_tensor plan_matrix(const char *name, const void *pointer, ckl_dtype dtype, int64_t rows, int64_t cols, int64_t ld);

/* The same as an output. */
plan_tensor plan_output(plan_tensor t);

/* The same, or absent where `of` is not NULL. */
plan_tensor plan_absent(plan_tensor t, const char *of);

/* The first of two reasons why a tensor is absent; NULL: there is none. */
static inline const char *plan_first(const char *reason, const char *other)
{
    return reason ? reason : other;
}

/* Pointers are there and aligned, and outputs overlap nothing that they are not in place of. */
ckl_status plan_check_tensors(const char *op, const plan_tensor *tensors, int count);

/* A workspace of the caller's is aligned; NULL is allowed. */
enum { PLAN_WORKSPACE_ALIGNMENT = 256 };
ckl_status plan_check_workspace(const char *op, const void *workspace);

/* Is every tensor of the list aligned to so many elements? */
bool plan_tensors_aligned(const plan_tensor *tensors, int count, int elements);

#endif
