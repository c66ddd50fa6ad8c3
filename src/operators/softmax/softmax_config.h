/* softmax_config.h - the compile-time choices of softmax's kernels. */
#ifndef CKL_SOFTMAX_CONFIG_H
#define CKL_SOFTMAX_CONFIG_H

#include "base/fields.h"
#include "cutekernellib/operators/softmax.h"
#include "skeletons/column.h"
#include "skeletons/row.h"
#include "skeletons/row_pipeline.h"
#include "plan/plan.h"

/* What every kernel of softmax computes. */
#define SOFTMAX_FORM(X, owner)                                                            \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")             \
    X(owner, choice, direction, "forward", "forward backward", "y, or the gradient of x") \
    X(owner, bool, log, "0", "0 1", "log-softmax")                                        \
    X(owner, bool, scaled, "0", "0 1", "scores are scaled")                               \
    X(owner, choice, mask, "none", "none bool add", "scores are masked")

/* Kernels whose rows lie along memory: a row in registers, or in pieces of so many registers. */
#define SOFTMAX_ROW_CONFIG(X)                                                                                \
    SOFTMAX_FORM(X, softmax_row_config)                                                                      \
    X(softmax_row_config, int, threads, "128", "128 256 512 1024", "threads of a CTA")                       \
    X(softmax_row_config, int, row_threads, "32", "4 8 16 32 128 256 512 1024", "that share a row")          \
    X(softmax_row_config, int, cluster, "1", "1 2 4 8", "CTAs that share a row")                             \
    X(softmax_row_config, int, vec, "1", "1 2 4 8", "elements of one access, at most 16 bytes")              \
    X(softmax_row_config, int, steps, "1", "1 2 4 8 16", "vectors of a thread")                              \
    X(softmax_row_config, int, stages, "0", "0 4 8 12 16", "of a ring in shared memory")                     \
    X(softmax_row_config, choice, residence, "reload", "reload ring registers", "where rows that flow stay") \
    X(softmax_row_config, bool, lookahead, "0", "0 1", "the next row is seen before one is written")         \
    X(softmax_row_config, int, chunks, "0", "0 1 2 4 8", "of a row that flows and CTA, unrolled")            \
    X(softmax_row_config, bool, exact, "0", "0 1", "rows fill their threads: no guards")                     \
    X(softmax_row_config, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "that shall fit; bounds registers")

/* Kernels whose rows lie across memory: lanes along the lines, groups of them down the rows. */
#define SOFTMAX_COLUMN_CONFIG(X)                                                                   \
    SOFTMAX_FORM(X, softmax_column_config)                                                         \
    X(softmax_column_config, int, threads, "256", "128 256 512 1024", "threads of a CTA")          \
    X(softmax_column_config, int, lanes, "8", "4 8 16 32", "neighbouring threads along a line")    \
    X(softmax_column_config, int, cluster, "1", "1 2 4 8", "CTAs that share a row")                \
    X(softmax_column_config, int, vec, "1", "1 2 4 8", "elements of one access, at most 16 bytes") \
    X(softmax_column_config, int, steps, "1", "1 2 4 8 16", "vectors of a thread, down the rows")  \
    X(softmax_column_config, bool, exact, "0", "0 1", "tensors fill their threads: no guards")     \
    X(softmax_column_config, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "that shall fit; bounds registers")

typedef struct softmax_row_config {
    SOFTMAX_ROW_CONFIG(FIELD_MEMBER)
} softmax_row_config;

typedef struct softmax_column_config {
    SOFTMAX_COLUMN_CONFIG(FIELD_MEMBER)
} softmax_column_config;

/* Describe kernel `part`: 0 for lines aligned to whole vectors, 1 for lines aligned to the element only. */
void softmax_row(const void *config, int part);
void softmax_long(const void *config, int part);
void softmax_pipeline(const void *config, int part);
void softmax_column(const void *config, int part);
void softmax_column_long(const void *config, int part);

/* How a kernel of rows shares them out. */
row_split softmax_split(const softmax_row_config *config, int part);
row_pipeline_split softmax_pipeline_split(const softmax_row_config *config);

/* Tensors that flow in, and 32-bit values of the largest reduction. */
int softmax_pipeline_inputs(const softmax_row_config *config);
enum { SOFTMAX_PIPELINE_VALUES = 2 };

/* The same for columns. */
column_split softmax_column_split(const softmax_column_config *config, int part);

/* A line of memory: the elements side by side, and how many there are. */
static inline int64_t softmax_line(const ckl_softmax_desc *d)
{
    return d->inner == 1 ? d->n : d->inner;
}

static inline int64_t softmax_lines(const ckl_softmax_desc *d)
{
    return d->inner == 1 ? d->outer : d->outer * d->n;
}

static inline bool softmax_is_empty(const ckl_softmax_desc *d)
{
    return d->outer == 0 || d->n == 0;
}

/* The most elements of an access, up to 16 bytes, that divide lines and the distances between them. */
int softmax_vec(const ckl_softmax_desc *desc);

/* Are all pointers of a call aligned to so many elements? */
bool softmax_aligned(const ckl_softmax_desc *desc, const ckl_softmax_args *args, int vec);

/* The implementations, in order of preference. */
extern const implementation softmax_row_impl, softmax_pipeline_impl, softmax_long_impl;
extern const implementation softmax_long_cluster_impl;
extern const implementation softmax_column_impl, softmax_column_cluster_impl, softmax_column_long_impl,
    softmax_column_long_cluster_impl;

#endif
