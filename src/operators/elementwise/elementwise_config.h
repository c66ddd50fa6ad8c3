/* elementwise_config.h - the compile-time choices of elementwise's kernels. */
#ifndef CKL_ELEMENTWISE_CONFIG_H
#define CKL_ELEMENTWISE_CONFIG_H

#include "base/fields.h"
#include "skeletons/map.h"

#define ELEMENTWISE_CONFIG(X)                                                                           \
    X(elementwise_config, quoted, expr, "", "", "the expression")                                       \
    X(elementwise_config, ckl_dtype, in0, "default", "", "types of the inputs; default: there is none") \
    X(elementwise_config, ckl_dtype, in1, "default", "", "")                                            \
    X(elementwise_config, ckl_dtype, in2, "default", "", "")                                            \
    X(elementwise_config, ckl_dtype, in3, "default", "", "")                                            \
    X(elementwise_config, ckl_dtype, out, "default", "", "type of the output")                          \
    X(elementwise_config, ckl_dtype, compute, "f32", "f32 i32", "type of values")                       \
    X(elementwise_config, int, scalars, "0", "", "mask of inputs that are numbers")

typedef struct elementwise_config {
    map_config map;
    ELEMENTWISE_CONFIG(FIELD_MEMBER)
} elementwise_config;

/* The element-wise kernel of a config. */
map_kernel elementwise_kernel(const void *config);

/* Describes kernel 0, for pointers aligned to vectors, or 1, for pointers aligned to the element only. */
void elementwise_vector(const void *config, int kernel);

#endif
