/* groupnorm_config.h - the compile-time choices of group norm's kernel. */
#ifndef CKL_GROUPNORM_CONFIG_H
#define CKL_GROUPNORM_CONFIG_H

#include "base/fields.h"
#include "cute/row.h"

#define GROUPNORM_CONFIG(X)                                                                                            \
    X(groupnorm_config, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics")             \
    X(groupnorm_config, choice, layout, "nchw", "nchw nhwc", "order of the axes")                                      \
    X(groupnorm_config, bool, affine, "1", "0 1", "gamma and beta")                                                    \
    X(groupnorm_config, int, bundle, "1", "1 2 4", "neighbouring groups that share a CTA or cluster")                  \
    X(groupnorm_config, int, pixel, "1", "8 16 32 64", "nhwc: elements of a pixel in a bundle, rounded up to vec 2^k") \
    X(groupnorm_config, int, threads, "256", "128 256 512 1024", "threads of a CTA")                                   \
    X(groupnorm_config, int, row_threads, "256", "4 8 16 32 128 256 512 1024", "threads of a CTA that share a bundle") \
    X(groupnorm_config, int, cluster, "1", "1 2 4 8", "CTAs that share a bundle")                                      \
    X(groupnorm_config, int, vec, "1", "1 2 4 8", "elements of one memory access, at most 16 bytes")                   \
    X(groupnorm_config, int, steps, "4", "1 2 3 4 5 6 7 8", "vectors of a thread")                                     \
    X(groupnorm_config, bool, whole, "0", "0 1", "bundles are as long as what their threads hold: no guards")          \
    X(groupnorm_config, bool, tiled, "0", "0 1", "bundles are read tile by tile in every pass")                        \
    X(groupnorm_config, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "CTAs for which an SM has registers; 0: no matter")

typedef struct groupnorm_config {
    GROUPNORM_CONFIG(FIELD_MEMBER)
} groupnorm_config;

enum { GROUPNORM_BUNDLE_MAX = 4 };

/* How a kernel shares out the elements of a bundle. */
static inline row_split groupnorm_split(const groupnorm_config *c)
{
    return (row_split){ c->threads, c->row_threads, c->cluster, c->vec, c->steps, c->whole };
}

/* part 0: pointers are aligned to whole vectors; 1: to the element only. */
void groupnorm_bundle(const void *config, int part);

#endif
