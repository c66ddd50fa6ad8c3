/* map_launch.h - the host's side of operators whose kernels skeletons/map.h describes. */
#pragma once

#include "plan/plan.h"
#include "skeletons/map.h"

/*
 * A problem as the skeleton sees it, the operator's view of its desc: the simplified shape; inputs, types, scalars and
 * expr of the kernel, whose other choices are open.
 */
typedef struct map_problem {
    const char *op; // the operator's name, for sentences
    map_shape shape;
    map_kernel kernel;
} map_problem;

/* Its kernel by that config. */
static inline map_kernel map_kernel_by(const map_problem *p, const map_config *config)
{
    map_kernel k = p->kernel;
    k.config = *config;
    return k;
}

/*
 * Members of an implementation of map_problems, its config being a map_config. What is chosen depends on its defaults;
 * small problems are spread over the SMs.
 */
ckl_status map_choose_config(const void *problem, const ckl_device_info *device, void *config);
bool map_candidate(const void *problem, const ckl_device_info *device, int i, void *config);
plan_cost map_cost(const void *problem, const ckl_device_info *device, const void *config);
ckl_status map_admit_config(const void *problem, const ckl_device_info *device, const void *config);

/* Pointers as map_params_of() takes them. */
ckl_status map_launch(const ckl_plan *plan, const void *const *pointers, ckl_stream stream);

/*
 * Defines `implementations` of an operator, whose kernels describe_kernel(config, kernel) describes. The file has
 * defined pointers_of(args, pointers), which lists those of the inputs, then the output.
 */
#define MAP_IMPLEMENTATIONS(describe_kernel)                                                                           \
    static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)                                \
    {                                                                                                                  \
        const void *pointers[MAP_OPERANDS_MAX];                                                                        \
        pointers_of(args, pointers);                                                                                   \
        return map_launch(plan, pointers, stream);                                                                     \
    }                                                                                                                  \
    static const field config_fields[] = { MAP_CONFIG(FIELD_ROW, map_config) };                                        \
    static const implementation vector = {                                                                             \
        .name = "vector",                                                                                              \
        .summary = "one tile of vectors a CTA; single elements where they end, have gaps or a pointer is not aligned", \
        .config_bytes = sizeof(map_config),                                                                            \
        .config = FIELD_TABLE(config_fields),                                                                          \
        .choose = map_choose_config,                                                                                   \
        .candidate = map_candidate,                                                                                    \
        .cost = map_cost,                                                                                              \
        .admit = map_admit_config,                                                                                     \
        .describe = describe_kernel,                                                                                   \
        .kernels = 2,                                                                                                  \
        .params = &map_param_list,                                                                                     \
        .launch = launch,                                                                                              \
    };                                                                                                                 \
    static const implementation *const implementations[] = { &vector, NULL }
