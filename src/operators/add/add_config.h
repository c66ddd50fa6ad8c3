/* add_config.h - the compile-time choices of add's kernels. */
#ifndef CKL_ADD_CONFIG_H
#define CKL_ADD_CONFIG_H

#include "base/fields.h"
#include "skeletons/map.h"

#define ADD_CONFIG(X)         \
    MAP_CONFIG(X, add_config) \
    X(add_config, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")

typedef struct add_config {
    ADD_CONFIG(FIELD_MEMBER)
} add_config;

/* The element-wise kernel of a config; inputs are a, b, alpha and beta. */
map_kernel add_kernel(const void *config);

/* Describes kernel `part`: 0 for rows aligned to whole vectors, 1 for rows aligned to the element only. */
void add_vector(const void *config, int part);

#endif
