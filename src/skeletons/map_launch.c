/* map_operator.c - the launch of an element-wise kernel. */
#include "skeletons/map_launch.h"

#include "base/math.h"

ckl_status map_launch(const ckl_plan *plan, const map_kernel *k, const map_shape *s, const void *const *pointers,
                      ckl_stream stream)
{
    void *params[MAP_PARAMS_MAX];
    if (s->count == 0)
        return CKL_OK;
    map_params(k, s, pointers, params);
    const device_launch l = { .grid = { ceil_div(s->count, map_tile(k)), 1, 1 }, .params = params };
    return plan->device->ops->launch(plan->device, plan->kernels[map_aligned(k, pointers) ? 0 : 1].loaded, &l, stream);
}
