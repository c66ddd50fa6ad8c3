/* permute_plans.c - the kernels of both operators, in order of preference. */
#include "operators/permute/permute_plans.h"

const implementation *const permute_implementations[] = {
    &transpose_sm90_plan, &transpose_narrow_plan, &transpose_ragged_plan, &transpose_sm80_plan,
    &permute_gather_plan, &transpose_tiled_plan,  &transpose_naive_plan,  NULL,
};
