/* norm_config.h - the compile-time choices of the norms' kernels. */
#ifndef CKL_NORM_CONFIG_H
#define CKL_NORM_CONFIG_H

#include "base/fields.h"
#include "skeletons/row.h"
#include "skeletons/row_pipeline.h"

#define NORM_CONFIG(X)                                                                                               \
    X(norm_config, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics")                \
    X(norm_config, bool, affine, "1", "0 1", "gamma, and beta where there is one")                                   \
    X(norm_config, bool, residual, "0", "0 1", "a residual is added; backward: its gradient")                        \
    X(norm_config, int, threads, "256", "32 64 128 256 512 1024", "threads of a CTA")                                \
    X(norm_config, int, row_threads, "256", "4 8 16 32 64 128 256 512 1024", "threads of a CTA that share a row")    \
    X(norm_config, int, cluster, "1", "1 2 4 8 16", "CTAs that share a row")                                         \
    X(norm_config, int, vec, "4", "1 2 4 8", "elements of one memory access, at most 16 bytes")                      \
    X(norm_config, int, steps, "4", "1 2 3 4 5 6 7 8", "vectors of a thread and tensor")                             \
    X(norm_config, bool, exact, "0", "0 1", "rows are as long as what their threads hold: no guards")                \
    X(norm_config, bool, tiled, "0", "0 1", "rows are read tile by tile in every pass, not kept in registers")       \
    X(norm_config, int, stages, "0", "0 3 4 6 8 12 16", "of the ring through which rows flow; 0: there is none")     \
    X(norm_config, choice, residence, "reload", "reload ring registers", "where rows that flow stay between passes") \
    X(norm_config, bool, lookahead, "0", "0 1", "of rows that flow, the next is seen before one is written")         \
    X(norm_config, int, chunks, "0", "0 1 2 3 4", "of a row that flows and CTA, unrolled")                           \
    X(norm_config, bool, early, "0", "0 1",                                                                          \
      "backward: gamma stays in registers; of rows in registers, the next is loaded")                                \
    X(norm_config, choice, sums, "registers", "registers shared",                                                    \
      "backward, of rows that flow: memory of the sums of dgamma; those of dbeta are in registers")                  \
    X(norm_config, int, column_threads, "512", "128 256 512", "of a CTA that adds up columns of gradients")          \
    X(norm_config, int, column_lanes, "32", "8 16 32", "of a warp side by side; the others take other groups")       \
    X(norm_config, int, turns, "0", "0 1 2 3 4 6 8",                                                                 \
      "backward: CTAs of an SM that take rows in turn; 0: as many as fit")                                           \
    X(norm_config, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "CTAs for which an SM has registers; 0: no matter")

typedef struct norm_config {
    NORM_CONFIG(FIELD_MEMBER)
} norm_config;

/* How a kernel shares out its rows: vectors, or single elements for pointers that are not aligned to vectors. */
static inline row_split norm_split(const norm_config *c, bool vectors)
{
    row_split s = { c->threads, c->row_threads, c->cluster, c->vec, c->steps, c->exact };
    return vectors ? s : row_split_scalar(&s);
}

/* How rows that flow are shared out, and 32-bit values of the largest reduction. */
static inline row_pipeline_split norm_stream_split(const norm_config *c)
{
    row_split piece = norm_split(c, true);
    piece.cluster = 1;
    return (row_pipeline_split){ piece, c->cluster, c->stages, (row_residence)c->residence, c->lookahead, c->chunks };
}
enum { NORM_STREAM_VALUES = 2 };

/* Where a thread keeps sums of dgamma while rows flow; bytes of those in shared memory. */
enum { NORM_SUMS_IN_REGISTERS, NORM_SUMS_SHARED };
static inline int64_t norm_sums_bytes(const norm_config *c)
{
    return c->sums == NORM_SUMS_SHARED ? 4LL * c->threads * c->vec * c->steps * c->chunks : 0;
}

/* The same tile by tile, for rows that bulk copies cannot read. */
static inline norm_config norm_tiled(const norm_config *c)
{
    norm_config tiled = *c;
    tiled.tiled = true;
    tiled.exact = tiled.early = false;
    tiled.stages = 0;
    return tiled;
}

/* Does the kernel of the rows keep sums of columns? Else they come from x and dy themselves. */
static inline bool norm_keeps_sums(const norm_config *c)
{
    return !c->tiled && (c->chunks || !c->stages);
}

/* Columns of a lane in the kernel that adds them up: rows that flow are whole vectors. */
static inline int norm_column_vec(const norm_config *c)
{
    return c->stages ? 4 : 1;
}

/* Kernels. part 0: pointers are aligned to whole vectors; 1: to the element only; 2, backward: sums of columns. */
void layernorm_forward(const void *config, int part);
void rmsnorm_forward(const void *config, int part);
void layernorm_backward(const void *config, int part);
void rmsnorm_backward(const void *config, int part);

#endif
