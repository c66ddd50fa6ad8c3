/* permute_plans.h - what the operators transpose and permute share: descs that begin with a permutation, implementations. */
#ifndef CKL_PERMUTE_PLANS_H
#define CKL_PERMUTE_PLANS_H

#include "cutekernellib/operators/transpose.h"
#include "operators/operators.h"
#include "operators/permute/permutation.h"

/* Descs of plans. The implementations look at the permutation alone, which check() derives from what was given. */
typedef struct permute_desc {
    permutation simplified;
    ckl_permute_desc given;
} permute_desc;

typedef struct transpose_desc {
    permutation simplified;
    ckl_transpose_desc given;
} transpose_desc;

/* Before check(); NULL gives an empty one. */
permute_desc permute_desc_of(const ckl_permute_desc *given);
transpose_desc transpose_desc_of(const ckl_transpose_desc *given);

/* The kernels, and all of them in order of preference. */
extern const implementation transpose_sm90_plan, transpose_narrow_plan, transpose_ragged_plan, transpose_sm80_plan,
    permute_gather_plan, transpose_tiled_plan, transpose_naive_plan;
extern const implementation *const permute_implementations[];

#endif
