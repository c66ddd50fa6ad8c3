/* add_config.h - the compile-time choices of add's kernels. */
#ifndef CKL_ADD_CONFIG_H
#define CKL_ADD_CONFIG_H

#include "base/fields.h"

#define ADD_CONFIG(X)                                                                          \
    X(add_config, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")             \
    X(add_config, int, threads, "256", "128 256 512 1024", "threads of a CTA")                 \
    X(add_config, int, vec, "4", "1 2 4 8", "elements of one memory access, at most 16 bytes") \
    X(add_config, int, steps, "4", "1 2 4 8", "vectors of a thread; a CTA takes one tile of them")

typedef struct add_config {
    ADD_CONFIG(FIELD_MEMBER)
} add_config;

/* Describes kernel `part`: 0 for rows aligned to whole vectors, 1 for rows aligned to the element only. */
void add_vector(const void *config, int part);

/* Elements of the tile of one CTA. */
static inline int64_t add_tile(const add_config *config)
{
    return (int64_t)config->threads * config->vec * config->steps;
}

#endif
