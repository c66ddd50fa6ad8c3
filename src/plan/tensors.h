/* pieces.h - the memory of one call as a list, and the checks that all operators make of it. */
#ifndef CKL_PLAN_TENSORS_H
#define CKL_PLAN_TENSORS_H

#include "base/status.h"

/* One tensor of a call. */
typedef struct plan_tensor {
    const char *name;
    const void *pointer;
    int64_t bytes; // from its first to past its last element; 0: not part of this problem
    int64_t align; // bytes of an element
    bool output;
    int64_t layout; // tensors of the same layout, not 0, may be the same memory: an output in place of an input
} plan_tensor;

/* Pointers are there and aligned, and outputs overlap nothing that they are not in place of. */
ckl_status plan_check_tensors(const char *op, const plan_tensor *pieces, int count);

/* A workspace of the caller's is aligned; NULL is allowed. */
enum { PLAN_WORKSPACE_ALIGNMENT = 256 };
ckl_status plan_check_workspace(const char *op, const void *workspace);

/* Is every tensor of the list aligned to so many elements? */
bool plan_tensors_aligned(const plan_tensor *pieces, int count, int elements);

#endif
