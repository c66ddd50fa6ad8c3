/* map_launch.h - the host's side of operators whose kernels skeletons/map.h describes. */
#pragma once

#include "plan/plan.h"
#include "skeletons/map.h"

/* A problem as the skeleton sees it: the simplified shape; inputs, types, scalars and expr of the kernel, whose other choices are open. */
typedef struct map_problem {
    map_shape shape;
    map_kernel kernel;
} map_problem;

/* What an implementation of a problem does, its config being a map_config. Pointers as map_params_of() takes them. */
ckl_status map_choose_problem(const map_problem *p, const ckl_device_info *device, map_config *config);
bool map_candidate(const map_problem *p, const ckl_device_info *device, int i, map_config *config);
plan_cost map_cost(const map_problem *p, const ckl_device_info *device, const map_config *config);
ckl_status map_admit_problem(const char *what, const map_problem *p, const ckl_device_info *device,
                             const map_config *config);
ckl_status map_launch(const ckl_plan *plan, const map_problem *p, const void *const *pointers, ckl_stream stream);

/*
 * Defines `implementations` of an operator, whose kernels describe_kernel(config, kernel) describes. The file has defined
 * problem_of(desc), and pointers_of(args, pointers), which lists those of the inputs, then the output.
 */
#define MAP_IMPLEMENTATIONS(op, describe_kernel)                                                                       \
    static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)                            \
    {                                                                                                                  \
        const map_problem p = problem_of(desc);                                                                        \
        return map_choose_problem(&p, device, config);                                                                 \
    }                                                                                                                  \
    static bool candidate(const void *desc, const ckl_device_info *device, int i, void *config)                        \
    {                                                                                                                  \
        const map_problem p = problem_of(desc);                                                                        \
        return map_candidate(&p, device, i, config);                                                                   \
    }                                                                                                                  \
    static plan_cost cost(const void *desc, const ckl_device_info *device, const void *config)                         \
    {                                                                                                                  \
        const map_problem p = problem_of(desc);                                                                        \
        return map_cost(&p, device, config);                                                                           \
    }                                                                                                                  \
    static ckl_status admit(const void *desc, const ckl_device_info *device, const void *config)                       \
    {                                                                                                                  \
        const map_problem p = problem_of(desc);                                                                        \
        return map_admit_problem(#op " vector", &p, device, config);                                                   \
    }                                                                                                                  \
    static ckl_status launch(const ckl_plan *plan, const void *args, ckl_stream stream)                                \
    {                                                                                                                  \
        const map_problem p = problem_of(plan->desc);                                                                  \
        const void *pointers[MAP_OPERANDS_MAX];                                                                        \
        pointers_of(args, pointers);                                                                                   \
        return map_launch(plan, &p, pointers, stream);                                                                 \
    }                                                                                                                  \
    static const field config_fields[] = { MAP_CONFIG(FIELD_ROW, map_config) };                                        \
    static const implementation vector = {                                                                             \
        .name = "vector",                                                                                              \
        .summary = "one tile of vectors a CTA; single elements where they end, have gaps or a pointer is not aligned", \
        .config_bytes = sizeof(map_config),                                                                            \
        .config = FIELD_TABLE(config_fields),                                                                          \
        .choose = choose,                                                                                              \
        .candidate = candidate,                                                                                        \
        .cost = cost,                                                                                                  \
        .admit = admit,                                                                                                \
        .describe = describe_kernel,                                                                                   \
        .kernels = 2,                                                                                                  \
        .params = &map_param_list,                                                                                     \
        .launch = launch,                                                                                              \
    };                                                                                                                 \
    static const implementation *const implementations[] = { &vector, NULL }
