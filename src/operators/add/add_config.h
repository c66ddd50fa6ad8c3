/* add_config.h - the compile-time choices of add's kernel. */
#ifndef CKL_ADD_CONFIG_H
#define CKL_ADD_CONFIG_H

#include "skeletons/map.h"

#define ADD_CONFIG(X, owner) X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")

typedef struct add_config {
    map_config map;
    ADD_CONFIG(FIELD_MEMBER, )
} add_config;

/* The element-wise kernel of a config; inputs are a, b, alpha and beta. */
map_kernel add_kernel(const add_config *config);

/* Describes kernel 0, for rows aligned to whole vectors, or 1, for rows aligned to the element only. */
void add_describe(const void *config, int kernel);

#endif
