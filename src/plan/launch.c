/* launch.c - parameters of a launch, by name: bound when a kernel is loaded, gathered and encoded at each run. */
#include <string.h>

#include "plan/plan.h"

enum { TENSOR_MAPS_MAX = 8 }; // of one kernel

/* The row that declares a parameter, and its place in an array. */
static const param_row *find_row(const param_list *list, const char *wanted, int *index)
{
    for (int i = 0; list && i < list->count; i++)
        for (int j = 0; j < list->rows[i].count; j++) {
            char name[64];
            param_name(&list->rows[i], j, name, sizeof name);
            *index = j;
            if (strcmp(name, wanted) == 0)
                return &list->rows[i];
        }
    return NULL;
}

static ckl_status bind(const ir_kernel *kernel, const ir_param *param, const param_list *list, plan_param *bound)
{
    int index;
    const param_row *row = find_row(list, param->name, &index);
    if (!row)
        FAIL(CKL_INTERNAL, "%s: parameter %s is not in the list of its implementation", kernel->name, param->name);
    if (param->tensor_map != (row->kind == PARAM_tensor) || param->type != param_type(row->kind))
        FAIL(CKL_INTERNAL, "%s: parameter %s is %s in the kernel, which its list does not say", kernel->name,
             param->name, param->tensor_map ? "a tensor map" : ir_type_text(param->type));
    if (param->tensor_map && param->map.rank == 0)
        FAIL(CKL_INTERNAL, "%s: tensor map %s has no box: make_tma() says it", kernel->name, param->name);
    *bound = (plan_param){ row->offset + (size_t)index * param_bytes(row->kind), param->map };
    return CKL_OK;
}

ckl_status plan_bind_params(const ir_kernel *kernel, const param_list *list, plan_kernel *bound)
{
    int maps = 0;
    for (int i = 0; i < kernel->param_count; i++) {
        TRY(bind(kernel, &kernel->params[i], list, &bound->params[i]));
        maps += kernel->params[i].tensor_map;
    }
    if (maps > TENSOR_MAPS_MAX)
        FAIL(CKL_INTERNAL, "%s: %d tensor maps are more than %d", kernel->name, maps, TENSOR_MAPS_MAX);
    bound->param_count = kernel->param_count;
    return CKL_OK;
}

/* A tensor of the launch in the boxes of the kernel. */
static ckl_status encode(const ckl_plan *plan, const ir_tensor_map *wanted, const param_tensor *t, tensor_map *map)
{
    int64_t bytes = (int64_t)ckl_dtype_bytes(wanted->dtype);
    tensor_map_desc desc = { .dtype = wanted->dtype,
                             .rank = (int16_t)wanted->rank,
                             .address = (void *)(uintptr_t)t->pointer,
                             .swizzle = (tensor_map_swizzle)wanted->swizzle_bytes,
                             .l2_promotion = (int16_t)t->l2_promotion,
                             .im2col = wanted->im2col };
    if (t->stride[0] != 1)
        FAIL(CKL_INTERNAL, "%s: the elements of a row lie %d apart, TMA wants them side by side", plan->op->name,
             (int)t->stride[0]);
    for (int mode = 0; mode < wanted->rank; mode++) {
        desc.size[mode] = t->size[mode];
        desc.stride[mode] = t->stride[mode] * bytes;
        desc.box[mode] = (int16_t)wanted->box[mode];
        desc.step[mode] = (uint8_t)wanted->step[mode];
    }
    for (int i = 0; i < TENSOR_MAP_PIXEL_MODES; i++) {
        desc.lower[i] = t->lower[i];
        desc.upper[i] = t->upper[i];
    }
    return plan->device->ops->encode_tensor_map(plan->device, &desc, map);
}

ckl_status plan_launch(const ckl_plan *plan, int which, plan_grid grid, const void *params, ckl_stream stream)
{
    const plan_kernel *kernel = &plan->kernels[which];
    tensor_map maps[TENSOR_MAPS_MAX];
    void *list[IR_PARAMS_MAX];
    if (grid.x == 0)
        return CKL_OK;
    for (int i = 0, used = 0; i < kernel->param_count; i++) {
        const plan_param *param = &kernel->params[i];
        const char *value = (const char *)params + param->offset;
        list[i] = (void *)(uintptr_t)value;
        if (param->map.rank) {
            TRY(encode(plan, &param->map, (const param_tensor *)value, &maps[used]));
            list[i] = &maps[used++];
        }
    }
    const device_launch launch = { .grid = { grid.x, grid.y ? grid.y : 1, grid.z ? grid.z : 1 }, .params = list };
    return plan->device->ops->launch(plan->device, kernel->loaded, &launch, stream);
}
