/* norm_config.h - the compile-time choices of the norms' kernels, and their parameters. */
#pragma once

#include "base/fields.h"
#include "base/math.h"
#include "cutekernellib/operators/norm.h"
#include "ir/params.h"
#include "skeletons/row.h"
#include "skeletons/row_cost.h"
#include "skeletons/row_pipeline.h"

#define NORM_DESC(X, owner)                                                                           \
    X(owner, int64_t, rows, "64", "", "rows")                                                         \
    X(owner, int64_t, cols, "1024", "", "elements of a row")                                          \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics")       \
    X(owner, choice, direction, "forward", "forward backward", "the norm or its gradients")           \
    X(owner, bool, affine, "1", "0 1", "with gamma, and beta where there is one")                     \
    X(owner, bool, residual, "0", "0 1", "forward adds a residual first, backward its gradient last") \
    X(owner, float, eps, "0", "0..", "forward: added to the variance; 0: 1e-5")                       \
    X(owner, int64_t, ldx, "0", "", "elements between rows of x, residual, dy and dsum; 0: cols")     \
    X(owner, int64_t, ldy, "0", "", "elements between rows of y, sum and dx; 0: cols")

/* A problem of either operator. */
typedef struct norm_rows {
    NORM_DESC(FIELD_MEMBER, )
    bool centred; // layer norm
} norm_rows;

#define NORM_CONFIG(X, owner)                                                                            \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics")          \
    X(owner, bool, centred, "0", "0 1", "layer norm; else RMS norm, which has neither mean nor beta")    \
    X(owner, bool, affine, "1", "0 1", "gamma, and beta where there is one")                             \
    X(owner, bool, residual, "0", "0 1", "a residual is added; backward: its gradient")                  \
    X(owner, bool, prefetch, "0", "0 1", "ask L2 for the inputs while the kernel before may still run")  \
    X(owner, bool, tiled, "0", "0 1", "rows are read tile by tile in every pass, not kept in registers") \
    X(owner, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "CTAs for which an SM has registers; 0: no matter") \
    X(owner, bool, shared_weights, "0", "0 1",                                                           \
      "forward, of rows in registers: persistent CTAs have gamma and beta in shared memory")             \
    X(owner, bool, dgamma_in_smem, "0", "0 1",                                                           \
      "backward, of rows that flow: sums of dgamma are in shared memory, else in registers")             \
    X(owner, int, persistent_ctas, "0", "0 1 2 3 4 6 8", "persistent CTAs of an SM; 0: as many as fit")  \
    X(owner, bool, alone, "0", "0 1",                                                                    \
      "backward: one CTA or cluster takes all rows, and stores the sums of columns at once")             \
    X(owner, int, column_lanes, "32", "8 16 32", "of a warp along a row, when columns are added up")

/* split: of a row over the threads that hold it or, where rows flow, of a chunk. */
typedef struct norm_config {
    row_split split;
    row_flow flow;
    NORM_CONFIG(FIELD_MEMBER, )
} norm_config;

#define NORM_FORWARD_PARAMS(X, owner) \
    X(owner, i64, rows)               \
    X(owner, u32, cols)               \
    X(owner, i64, ldx)                \
    X(owner, i64, ldy)                \
    X(owner, f32, reciprocal)         \
    X(owner, f32, eps)                \
    X(owner, pointer, x)              \
    X(owner, pointer, residual)       \
    X(owner, pointer, gamma)          \
    X(owner, pointer, beta)           \
    X(owner, pointer, y)              \
    X(owner, pointer, sum)            \
    X(owner, pointer, mean)           \
    X(owner, pointer, rstd)           \
    X(owner, pointer, counter)

/* reciprocal: of cols. counter: from which rows that flow are drawn. */
KERNEL_PARAMS(norm_forward, NORM_FORWARD_PARAMS);

#define NORM_BACKWARD_PARAMS(X, owner) \
    X(owner, i64, rows)                \
    X(owner, u32, cols)                \
    X(owner, i64, ldx)                 \
    X(owner, i64, ldy)                 \
    X(owner, f32, reciprocal)          \
    X(owner, pointer, x)               \
    X(owner, pointer, dy)              \
    X(owner, pointer, dsum)            \
    X(owner, pointer, gamma)           \
    X(owner, pointer, mean)            \
    X(owner, pointer, rstd)            \
    X(owner, pointer, dx)              \
    X(owner, pointer, partial)         \
    X(owner, i64, groups)              \
    X(owner, pointer, dgamma)          \
    X(owner, pointer, dbeta)

/*
 * partial: f32, sums of columns over the rows of a CTA or cluster, a group: lines of norm_partial_pitch() for dgamma,
 * then dbeta of each.
 */
KERNEL_PARAMS(norm_backward, NORM_BACKWARD_PARAMS);

/* 32-bit values of the largest reduction over a row that flows. */
enum { NORM_FLOW_VALUES = 2 };

/* Bytes of the sums of dgamma in shared memory. */
static inline int64_t norm_dgamma_bytes(const norm_config *c)
{
    return c->dgamma_in_smem ? 4LL * c->split.threads * c->split.vec * c->split.steps * c->flow.chunks : 0;
}

/* Sums of columns that a lane stores at once. */
static inline int norm_sums_at_once(const row_split *s)
{
    enum { ACCESS = 16 / 4 };
    return s->ragged ? 1 : (int)min_i64(s->vec, ACCESS);
}

/*
 * Lanes with more sums side by side exchange them within a warp, or its stores would be of parts of sectors: shared
 * memory of a CTA. After each lane's is a gap, which keeps neighbours' banks apart.
 */
static inline int64_t norm_exchange_bytes(const row_split *s)
{
    const int at_once = norm_sums_at_once(s);
    return at_once < s->vec ? 4LL * s->threads * (s->vec + at_once) : 0;
}

/* Shared memory of gradients of rows that flow, beside the ring. */
static inline int64_t norm_sums_bytes(const norm_config *c)
{
    return c->affine ? norm_dgamma_bytes(c) + norm_exchange_bytes(&c->split) : 0;
}

/* Floats from one line of partial sums to the next one: whole lines of memory. */
enum { NORM_PARTIAL_LINE = 128 / 4 };
static inline int64_t norm_partial_pitch(int64_t cols)
{
    return round_up(cols, NORM_PARTIAL_LINE);
}

/* Columns of a chunk that have slots of gamma and beta in shared memory; the most bytes of all: norm_weights.c. */
static inline int64_t norm_weights_cols(const row_split *s, ckl_dtype dtype)
{
    return round_up(row_split_cols(s), row_vec_full(dtype)) + row_vec_full(dtype);
}

static inline int64_t norm_weights_bytes(const row_split *s, ckl_dtype dtype, int chunks)
{
    const int64_t vec = row_vec_full(dtype), cols = norm_weights_cols(s, dtype);
    return chunks * (cols + cols / vec) * 2 * dtype_bytes(dtype);
}

/* Are rows of x in registers, where only y is aligned, and vectors of x are cut out of those of memory? */
static inline bool norm_cuts_memory(const norm_config *c)
{
    return c->flow.cut && !c->flow.stages;
}

/* The same config tile by tile, for rows that bulk copies cannot read. */
static inline norm_config norm_tiled(const norm_config *c)
{
    norm_config tiled = *c;
    tiled.tiled = true;
    tiled.split.exact = tiled.shared_weights = false;
    return tiled;
}

/* Columns of a lane in the kernel that sums them: rows that flow are whole vectors, if not ragged. */
static inline int norm_column_vec(const norm_config *c)
{
    return c->flow.stages && !c->split.ragged ? (int)min_i64(c->split.vec, 4) : 1;
}

/* Threads of a CTA that adds up columns; clusters leave few partial sums. */
static inline int norm_column_threads(const norm_config *c)
{
    return c->flow.stages && c->split.cluster > 1 ? 256 : 512;
}

/* What both directions ask when they choose, and begin with: norm_choice.c. */
int norm_widest_vector(const norm_rows *d);         // elements, that divides all rows
bool norm_in_phase(const norm_rows *d);             // do rows of ldx and ldy lie alike?
bool norm_is_whole(const norm_rows *d, int64_t ld); // are rows, ld apart, whole vectors of 16 bytes?
bool norm_is_ragged(const norm_rows *d);
int64_t norm_phases(const norm_rows *d, const norm_config *c); // of rows to 16-byte boundaries, where that matters
row_split norm_tiled_split(const norm_rows *d, const ckl_device_info *device, bool ragged);
void norm_take_problem(const norm_rows *d, norm_config *c);

/*
 * Do the inputs come to L2 while a launch begins? A ring asks for rows ahead by itself: gradients of 512x4096 bf16 take
 * 11.2 us with and 10.8 without.
 */
bool norm_is_prefetched(const norm_rows *d, const norm_config *c);

/* As an implementation's choose and admit: plan/plan.h. */
ckl_status norm_choose_forward(const void *desc, const ckl_device_info *device, void *config);
bool norm_candidate_forward(const void *desc, const ckl_device_info *device, int i, void *config);
plan_cost norm_cost_forward(const void *desc, const ckl_device_info *device, const void *config);
plan_cost norm_cost_backward(const void *desc, const ckl_device_info *device, const void *config);
ckl_status norm_choose_backward(const void *desc, const ckl_device_info *device, void *config);
ckl_status norm_admit_forward(const void *desc, const ckl_device_info *device, const void *config);
ckl_status norm_admit_backward(const void *desc, const ckl_device_info *device, const void *config);

/* Kernel 0: pointers are aligned to whole vectors; 1: to the element only; 2, backward: sums of columns. */
enum { NORM_VECTORS, NORM_ELEMENTS, NORM_COLUMNS };
void norm_forward(const void *config, int kernel);
void norm_backward(const void *config, int kernel);
void norm_backward_columns(const norm_config *cfg); // kernel 2

/* A thread's sums of columns: (VEC,STEPS) of dgamma and, of 2 kinds, dbeta. */
typedef struct norm_sums {
    const norm_config *cfg; // alone: these are the gradients; else partial sums
    tensor rSums[2];
    int kinds;
    int64_t exchange; // norm_exchange_alloc()
} norm_sums;

/* Stores the sums of a CTA with several rows at once. */
void norm_store_cta_sums(const row_split *s, const norm_backward_values *o, const norm_sums *sums);

/* Allocates that; its offset. */
int64_t norm_exchange_alloc(const row_split *s);

/* Stores the sums of the columns that a thread has at `p`; partial ones are those of `group`. Its warp is whole. */
void norm_store_sums(const row_split *s, const row_place *p, const norm_backward_values *o, const norm_sums *sums,
                     val group);

/*
 * A number near the mean of a row (norm_samples.c): of its first 32 elements a lane has one, each is replaced by the
 * median of itself and two others, and the number is their mean. So a single element that is far from all others is not
 * in it, whose share would cancel from every deviation. Elements of x and the residual are (INPUTS) in registers; their
 * value is rounded to the type of sum.
 */
tensor norm_sample_registers(const norm_config *cfg);
void norm_load_sample(const norm_config *cfg, const norm_forward_values *o, val row, tensor rInputs);
val norm_sample_value(const norm_config *cfg, tensor rInputs);
val norm_sample(const norm_config *cfg, const norm_forward_values *o, val row); // 0 past the last row
void norm_find_near_mean(val own, val mean);                                    // own: this lane's sample

/*
 * Gamma and beta of all columns in shared memory, a slot a column (norm_weights.c). Rows that start anywhere read
 * theirs from any column on without cutting vectors and without bank conflicts: one slot is left out after each vector
 * of them, so the vectors of neighbouring threads begin an odd number of slots apart.
 */
typedef struct norm_weights {
    ckl_dtype dtype;   // of what a slot holds: gamma, or gamma and beta
    int count;         // of these
    int vec;           // slots without a gap
    int64_t cols;      // slots of a chunk
    int64_t apart;     // from one chunk's first slot to the next one's: those of a CTA alone lie side by side
    val first, column; // u32: the shared address of the first, and its column, a multiple of vec
    int64_t step;      // columns from one chunk to the next one
} norm_weights;

/* Gamma and beta in global memory; beta: the constant 0 if there is none. */
typedef struct norm_weight_sources {
    ckl_dtype dtype;
    val cols, gamma, beta;
} norm_weight_sources;

/*
 * Allocates slots for the `chunks` that this CTA has of rows of `cluster` CTAs. The split's threads fill them, and may
 * read them afterwards; past the last column they are 0.
 */
norm_weights norm_weights_load(const row_split *s, const norm_weight_sources *from, int chunks, int cluster);

/* The slots of one chunk. */
norm_weights norm_weights_chunk(const norm_weights *w, int chunk);

/* Reads the weights of a thread's vector `step` in a span; without beta rBeta is not written. */
void norm_weights_read(const norm_weights *w, const row_span *at, int step, tensor rGamma, tensor rBeta); // (VEC) each
