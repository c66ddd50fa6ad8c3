/* softmax_config.h - the compile-time choices of softmax's kernels, their parameters, and the formula they share. */
#pragma once

#include "cutekernellib/operators/softmax.h"
#include "cute/kernel.h"
#include "ir/params.h"
#include "plan/plan.h"
#include "skeletons/column.h"
#include "skeletons/online.h"
#include "skeletons/row_pipeline.h"

/* A shape and an axis as the library has them: the sizes around the axis. */
#define SOFTMAX_SIZES(X, owner)                                      \
    X(owner, int64_t, outer, "1", "", "product of the sizes before") \
    X(owner, int64_t, n, "1024", "", "elements along the axis")      \
    X(owner, int64_t, inner, "1", "?1..", "product of the sizes behind")

#define SOFTMAX_DESC(X, owner)                                                               \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the tensors")                 \
    X(owner, choice, direction, "forward", "forward backward", "y, or the gradient of x")    \
    X(owner, bool, log, "0", "0 1", "log-softmax")                                           \
    X(owner, float, scale, "1", "?0..", "factor of the scores")                              \
    X(owner, choice, mask, "none", "none bool add", "of the scores")                         \
    X(owner, int64_t, mask_rows, "0", "", "rows of the mask; 0: as many as the scores have") \
    X(owner, int64_t, mask_repeat, "0", "", "rows of scores for a row of the mask; 0: 1")    \
    X(owner, int64_t, ldx, "0", "", "elements between lines of x and dx; 0: dense")          \
    X(owner, int64_t, ldy, "0", "", "elements between lines of y and dy; 0: dense")

/* What a kernel computes, and how many of its CTAs an SM is to hold. */
#define SOFTMAX_FORM(X, owner)                                                            \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")             \
    X(owner, choice, direction, "forward", "forward backward", "y, or the gradient of x") \
    X(owner, bool, log, "0", "0 1", "log-softmax")                                        \
    X(owner, bool, scaled, "0", "0 1", "scores are scaled")                               \
    X(owner, choice, mask, "none", "none bool add", "scores are masked")                  \
    X(owner, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "CTAs that shall fit an SM: bounds registers; 0: any")

typedef struct softmax_form {
    SOFTMAX_FORM(FIELD_MEMBER, )
} softmax_form;

/* Kernels whose rows lie along memory; only those of `pipeline` flow. */
typedef struct softmax_row_config {
    softmax_form form;
    row_split split;
    row_flow flow;
} softmax_row_config;

/* Fields of kernels that take strips in chunks: 0 in the configs of others. */
#define SOFTMAX_COLUMN_CHUNK(X, owner)                                                                 \
    X(owner, int, tiles, "1", "1 2 3 4 6 8", "tiles of a chunk, one after the other in shared memory") \
    X(owner, int, fold, "1", "1 2 4 8 16 32 64", "lines, one behind the other, that are taken as one")

/* And of column_held alone. */
#define SOFTMAX_COLUMN_HELD(X, owner)                              \
    X(owner, int, kept, "0", "0 2 4", "further ones in registers") \
    X(owner, int, loading, "132", "0 99 132", "CTAs that load at once; 0: a chunk is a strip, whose CTA meets nobody")

/* And of `column` alone. */
#define SOFTMAX_COLUMN_WAIT(X, owner) \
    X(owner, bool, early, "0", "0 1", "little work: several launches wait for each other at once")

enum { SOFTMAX_KEPT_MAX = 8, SOFTMAX_COPY_BYTES_MIN = 4 }; // of cp.async

/* Kernels whose rows lie across memory. */
typedef struct softmax_column_config {
    softmax_form form;
    column_split split;
    SOFTMAX_COLUMN_CHUNK(FIELD_MEMBER, )
    SOFTMAX_COLUMN_HELD(FIELD_MEMBER, )
    SOFTMAX_COLUMN_WAIT(FIELD_MEMBER, )
} softmax_column_config;

/* Lines of a chunk. */
static inline int64_t softmax_chunk_lines(const softmax_column_config *c)
{
    return (c->tiles + c->kept) * column_split_lines(&c->split);
}

/* Neighbouring lanes that merge states of neighbouring columns: as many as a strip of folded lines has of them. */
static inline int softmax_total_lanes(const column_split *s, int fold)
{
    enum { WARP = 32 };
    return (int)max_i64(1, min_i64(WARP, power_of_two_in(column_split_room(s) / fold)));
}

/* The problem whose lines are `fold` of d's lines, or of a row's elements, which follow each other. */
static inline ckl_softmax_desc softmax_folded(const ckl_softmax_desc *d, int fold)
{
    ckl_softmax_desc folded = *d;
    if (fold > 1) {
        folded.n /= fold;
        folded.inner *= fold;
        folded.ldx = folded.ldy = folded.inner;
    }
    return folded;
}

#define SOFTMAX_PARAMS(X, owner)                                               \
    X(owner, i64, outer)                                                       \
    X(owner, i64, n)                                                           \
    X(owner, i64, inner)                                                       \
    X(owner, u32, strips) /* of columns, side by side (column.h) */            \
    X(owner, pointer, x)                                                       \
    X(owner, i64, ldx)                                                         \
    X(owner, pointer, y)                                                       \
    X(owner, i64, ldy)                                                         \
    X(owner, pointer, dy)                                                      \
    X(owner, pointer, dx)                                                      \
    X(owner, f32, scale)                                                       \
    X(owner, pointer, mask)                                                    \
    X(owner, i64, mask_rows)                                                   \
    X(owner, i64, mask_repeat)                                                 \
    X(owner, pointer, counter) /* of rows or items taken, and of each strip */ \
    X(owner, pointer, states)  /* of chunks of columns */                      \
    X(owner, pointer, totals)  /* states of columns */                         \
    X(owner, u32, chunks)      /* of a strip */                                \
    X(owner, u32, tiles)       /* of a chunk that is read twice */

KERNEL_PARAMS(softmax, SOFTMAX_PARAMS);

/*
 * Of every implementation the kernels, 0 for lines aligned to whole vectors and 1 for lines aligned to the element
 * only, and its choose, cost and admit: plan/plan.h.
 */
#define SOFTMAX_IMPLEMENTATION(name)                                                                    \
    void softmax_##name(const void *config, int kernel);                                                \
    ckl_status softmax_choose_##name(const void *desc, const ckl_device_info *device, void *config);    \
    plan_cost softmax_cost_##name(const void *desc, const ckl_device_info *device, const void *config); \
    ckl_status softmax_admit_##name(const void *desc, const ckl_device_info *device, const void *config)

SOFTMAX_IMPLEMENTATION(row);
SOFTMAX_IMPLEMENTATION(pipeline);
SOFTMAX_IMPLEMENTATION(long);
SOFTMAX_IMPLEMENTATION(column);
SOFTMAX_IMPLEMENTATION(column_held);
SOFTMAX_IMPLEMENTATION(column_long);

/*
 * The kernels of column_long: states of chunks, those of strips, then outputs, by vectors and by single elements.
 * column_held has one of its own, and the latter three.
 */
enum { SOFTMAX_LONG_STATES, SOFTMAX_LONG_TOTALS, SOFTMAX_LONG_WRITES, SOFTMAX_LONG_SCALAR, SOFTMAX_LONG_KERNELS = 6 };
enum { SOFTMAX_LONG_STAGES = 4 }; // tiles of it on their way, a power of two

/* Other splits of rows: as its candidate and is_trusted. */
bool softmax_candidate_row(const void *desc, const ckl_device_info *device, int i, void *config);
bool softmax_is_trusted_row(const void *config);

/*
 * What choices of rows and columns share: the form of a problem, its widest vector, and the check of a config against
 * them.
 */
softmax_form softmax_form_of(const ckl_softmax_desc *d);
int softmax_vec_of(const ckl_softmax_desc *d);
ckl_status softmax_check_length(const char *what, const ckl_softmax_desc *d);

/* What reading the inputs again costs of reading them: what L2 still holds is not read again. */
double softmax_again(const ckl_softmax_desc *d, const ckl_device_info *device);
ckl_status softmax_admit_form(const char *what, const ckl_softmax_desc *d, const softmax_form *f, int vec, bool ragged);

/* Do ragged rows of all tensors lie in phase? */
bool softmax_in_phase(const ckl_softmax_desc *d);

enum { SOFTMAX_PIPELINE_VALUES = 2, SOFTMAX_INPUTS_MAX = 2 }; // 32-bit values of the largest reduction

/* What the kernels compute is the same along memory and across it. */

static inline bool softmax_is_forward(const softmax_form *f)
{
    return f->direction == CKL_DIRECTION_FORWARD;
}

/* What is read: x, or y and dy; its pitch; what stands outside. */
static inline int softmax_inputs(const softmax_form *f)
{
    return softmax_is_forward(f) ? 1 : 2;
}

static inline val softmax_input(const softmax_form *f, const softmax_values *p, int i)
{
    return softmax_is_forward(f) ? p->x : i ? p->dy : p->y;
}

static inline val softmax_input_pitch(const softmax_form *f, const softmax_values *p)
{
    return softmax_is_forward(f) ? p->ldx : p->ldy;
}

static inline double softmax_outside(const softmax_form *f)
{
    return softmax_is_forward(f) ? -INFINITY : 0;
}

/* The f32 values of a row's or column's state: a maximum and a sum (online.h); of the gradient a sum alone. */
static inline int softmax_state_values(const softmax_form *f)
{
    return softmax_is_forward(f) ? ONLINE_VALUES : 1;
}

/* The reduction that combines states, and the state of no elements in fresh variables. */
static inline const reduction *softmax_reduction(const softmax_form *f)
{
    static const reduction sum = { .count = 1, .combine = combine_sum };
    return softmax_is_forward(f) ? &online_reduction : &sum;
}

static inline void softmax_begin(const softmax_form *f, val *state)
{
    if (softmax_is_forward(f))
        online_begin(state);
    else
        state[0] = variable(F32, immf(0));
}

/*
 * y of scores t is t - max - factor for log-softmax, and factor times exp(t - max) for softmax; of 16 bits the factor
 * is an exponent of 2.
 */
static inline val softmax_factor(const softmax_form *f, const val pair[ONLINE_VALUES])
{
    if (f->log)
        return online_log_sum(pair);
    return f->dtype == F32 ? online_scale(pair) : online_scale_exponent(pair);
}

typedef val softmax_output(const softmax_form *f, val t_or_e, const val pair[ONLINE_VALUES], val factor);

static inline val softmax_of_score(const softmax_form *f, val t, const val pair[ONLINE_VALUES], val factor)
{
    const val x = convert(F32, t);
    if (f->log)
        return sub(sub(x, pair[ONLINE_MAX]), factor);
    return f->dtype == F32 ? mul(online_exp(x, pair[ONLINE_MAX]), factor)
                           : online_exp_times(x, pair[ONLINE_MAX], factor);
}

/* Of exponentials that were kept, whose factor is online_factor(). */
static inline val softmax_of_exponential(const softmax_form *f, val e, const val pair[ONLINE_VALUES], val factor)
{
    (void)f, (void)pair;
    return mul(e, factor);
}

/* What a thread's elements add to the sum of the gradient: y * dy, or dy for log-softmax. */
static inline val softmax_dot(const softmax_form *f, tensor rY, tensor rDy)
{
    return f->log ? fragment_sum(rDy) : fragment_dot(rY, rDy);
}

static inline val softmax_gradient(const softmax_form *f, val y, val dy, val sum, val scale)
{
    val y32 = convert(F32, y), dy32 = convert(F32, dy);
    val d = f->log ? fma(online_exp(y32, immf(0)), mul(sum, immf(-1)), dy32) : mul(y32, sub(dy32, sum));
    return f->scaled ? mul(d, scale) : d;
}
