/* map_launch.h - what operators whose kernels skeletons/map.h describes have in common on the host: add and elementwise. */
#ifndef CKL_SKELETONS_MAP_LAUNCH_H
#define CKL_SKELETONS_MAP_LAUNCH_H

#include "skeletons/map.h"
#include "plan/plan.h"

/* Enqueues a plan's kernel over a simplified shape; pointers as map_params_of() takes them. */
ckl_status map_launch(const ckl_plan *plan, map_kernel k, map_shape s, const void *const *pointers, ckl_stream stream);

/* Config number i of those to consider for a simplified shape, from k's; false after the last. What k's config costs. */
bool map_candidate(map_kernel k, map_shape s, const ckl_device_info *device, int i, map_config *c);
plan_cost map_cost(map_kernel k, map_shape s, const ckl_device_info *device);

/*
 * Defines `implementations` of an operator, of which config and kernel are op_config and op_kernel(), described by `describe_kernel`.
 * The file has defined config_fields, describe_problem(desc, config), which sets all of a config but its map, shape_of(desc), admit
 * and launch.
 */
#define MAP_IMPLEMENTATIONS(op, describe_kernel)                                                                       \
    static ckl_status choose(const void *desc, const ckl_device_info *device, void *config)                            \
    {                                                                                                                  \
        TRY(describe_problem(desc, config));                                                                           \
        ((op##_config *)config)->map = map_choose(op##_kernel(config), shape_of(desc), device);                        \
        return CKL_OK;                                                                                                 \
    }                                                                                                                  \
    static bool candidate(const void *desc, const ckl_device_info *device, int i, void *config)                        \
    {                                                                                                                  \
        return describe_problem(desc, config) == CKL_OK &&                                                             \
               map_candidate(op##_kernel(config), shape_of(desc), device, i, &((op##_config *)config)->map);           \
    }                                                                                                                  \
    static plan_cost cost(const void *desc, const ckl_device_info *device, const void *config)                         \
    {                                                                                                                  \
        return map_cost(op##_kernel(config), shape_of(desc), device);                                                  \
    }                                                                                                                  \
    static const implementation vector = {                                                                             \
        .name = "vector",                                                                                              \
        .summary = "one tile of vectors a CTA; single elements where they end, have gaps or a pointer is not aligned", \
        .config_bytes = sizeof(op##_config),                                                                           \
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

#endif
