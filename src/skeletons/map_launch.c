/* map_launch.c - the launch of an element-wise kernel. */
#include "skeletons/map_launch.h"

#include "skeletons/map_rows.h"

ckl_status map_launch(const ckl_plan *plan, map_kernel k, map_shape s, const void *const *pointers, ckl_stream stream)
{
    const map_params params = map_params_of(&k, &s, pointers);
    const int kernel = map_aligned(&k, pointers) ? 0 : 1;
    plan_grid grid = { .x = map_ctas(&k, &s) };
    if (k.config.row_threads && kernel == 0)
        grid = (plan_grid){ .x = map_rows_ctas(&k, &s), .y = map_rows_tiles(&k, &s) };
    return plan_launch(plan, kernel, grid, &params, stream);
}
