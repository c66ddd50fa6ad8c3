/* map_launch.c - the launch of an element-wise kernel. */
#include "skeletons/map_launch.h"

ckl_status map_launch(const ckl_plan *plan, map_kernel k, map_shape s, const void *const *pointers, ckl_stream stream)
{
    if (s.count == 0)
        return CKL_OK;
    const map_params params = map_params_of(&k, &s, pointers);
    const plan_grid grid = { .x = map_ctas(&k, &s) };
    return plan_launch(plan, map_aligned(&k, pointers) ? 0 : 1, grid, &params, stream);
}
