/* crossentropy_config.h - the compile-time choices of crossentropy's kernels. */
#ifndef CKL_CROSSENTROPY_CONFIG_H
#define CKL_CROSSENTROPY_CONFIG_H

#include "base/fields.h"
#include "skeletons/row.h"
#include "cutekernellib/operators/crossentropy.h"

#define CROSSENTROPY_CONFIG(X)                                                                             \
    X(crossentropy_config, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the logits")                  \
    X(crossentropy_config, ckl_dtype, target, "i64", "i64 i32", "type of the targets")                     \
    X(crossentropy_config, choice, direction, "forward", "forward backward", "loss, or the gradient of x") \
    X(crossentropy_config, choice, reduction, "none", "none mean", "of the losses")                        \
    X(crossentropy_config, int, threads, "256", "128 256 512 1024", "threads of a CTA")                    \
    X(crossentropy_config, int, row_threads, "256", "8 16 32 128 256 512 1024", "that share a row")        \
    X(crossentropy_config, int, cluster, "1", "1 2 4 8", "CTAs that share a row; forward")                 \
    X(crossentropy_config, int, vec, "1", "1 2 4 8", "elements of one access, at most 16 bytes")           \
    X(crossentropy_config, int, steps, "4", "1 2 4 8", "vectors of a thread in a piece of a row")          \
    X(crossentropy_config, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "that shall fit; bounds registers")

typedef struct crossentropy_config {
    CROSSENTROPY_CONFIG(FIELD_MEMBER)
} crossentropy_config;

/* Kernels of a plan: of rows aligned to whole vectors, to the element only, and the mean of the losses. */
enum { CROSSENTROPY_VECTORS, CROSSENTROPY_ELEMENTS, CROSSENTROPY_MEAN, CROSSENTROPY_KERNELS };

enum { CROSSENTROPY_MEAN_THREADS = 1024 };

void crossentropy_rows(const void *config, int part);

/* How kernel `part` shares a piece of a row out. */
row_split crossentropy_split(const crossentropy_config *config, int part);

#endif
