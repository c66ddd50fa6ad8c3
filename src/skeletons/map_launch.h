/* map_operator.h - what operators whose kernels skeletons/map.h describes have in common on the host: add and elementwise. */
#ifndef CKL_SKELETONS_MAP_LAUNCH_H
#define CKL_SKELETONS_MAP_LAUNCH_H

#include "skeletons/map.h"
#include "plan/plan.h"

/* Enqueues a plan's kernel over a simplified shape; pointers as map_params() takes them. */
ckl_status map_launch(const ckl_plan *plan, const map_kernel *k, const map_shape *s, const void *const *pointers,
                      ckl_stream stream);

/*
 * Defines `implementations`: the same kernel twice, because only sm_90 knows launches that overlap. The file has defined
 * config_fields, choose, admit and launch.
 */
#define MAP_IMPLEMENTATIONS(config_type, describe_kernel)                                                             \
    static const implementation sm90 = MAP_IMPLEMENTATION(                                                            \
        "sm90", "the same; its start overlaps the end of the kernel before", IR_SM90A, config_type, describe_kernel); \
    static const implementation vector = MAP_IMPLEMENTATION(                                                          \
        "vector", "one tile of vectors a CTA; single elements where they end, have gaps or a pointer is not aligned", \
        IR_SM80, config_type, describe_kernel);                                                                       \
    static const implementation *const implementations[] = { &sm90, &vector, NULL }

#define MAP_IMPLEMENTATION(called, says, lowest, config_type, describe_kernel)                                      \
    {                                                                                                               \
        .name = called, .summary = says, .config_bytes = sizeof(config_type), .config = FIELD_TABLE(config_fields), \
        .choose = choose, .admit = admit, .describe = describe_kernel, .kernels = 2, .target = lowest,              \
        .launch = launch                                                                                            \
    }

#endif
