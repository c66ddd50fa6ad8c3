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

/* Defines `implementations`. The file has defined config_fields, choose, candidate, cost, admit and launch. */
#define MAP_IMPLEMENTATIONS(config_type, describe_kernel)                                                              \
    static const implementation vector = {                                                                             \
        .name = "vector",                                                                                              \
        .summary = "one tile of vectors a CTA; single elements where they end, have gaps or a pointer is not aligned", \
        .config_bytes = sizeof(config_type),                                                                           \
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
