/* add_config.h - the fields of a problem, and the compile-time choices of add's kernel. */
#ifndef CKL_ADD_CONFIG_H
#define CKL_ADD_CONFIG_H

#include "cutekernellib/operators/add.h"
#include "skeletons/map.h"

#define ADD_DESC(X, owner)                                                  \
    X(owner, int64_t, n, "4096", "", "elements of a row")                   \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of a, b and y") \
    X(owner, int64_t, rows, "1", "?1..", "rows")                            \
    X(owner, int64_t, lda, "0", "", "elements between rows of a; 0: n")     \
    X(owner, int64_t, ldb, "0", "", "elements between rows of b; 0: n")     \
    X(owner, int64_t, ldy, "0", "", "elements between rows of y; 0: n")

/* A problem line: the desc and the scalars of a call. */
typedef struct add_problem {
    ckl_add_desc desc;
    float alpha, beta;
} add_problem;

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
