/* rope_desc.h - the fields of a problem, and the kernels that take it. */
#pragma once

#include "cutekernellib/operators/rope.h"
#include "plan/plan.h"

#define ROPE_DESC(X, owner)                                                          \
    X(owner, int64_t, tokens, "64", "", "tokens")                                    \
    X(owner, int64_t, heads, "4", "1..2^16", "heads of q")                           \
    X(owner, int64_t, k_heads, "0", "0..2^16", "heads of k; 0: there is no k")       \
    X(owner, int64_t, head_dim, "64", "2..2^20", "elements of a head")               \
    X(owner, int64_t, rotary_dim, "0", "", "of them, those that rotate; 0: all")     \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of q and k")             \
    X(owner, ckl_dtype, positions, "i32", "?i32 i64", "type of the positions")       \
    X(owner, choice, style, "half", "half interleaved", "which elements are a pair") \
    X(owner, bool, inverse, "0", "0 1", "rotates back: the gradient")                \
    X(owner, float, theta, "10000", "?1..2^60", "base of the frequencies")           \
    X(owner, float, scale, "1", "?2^-30..1", "factor of the positions")              \
    X(owner, int64_t, ldq, "0", "", "elements between tokens of q; 0: dense")        \
    X(owner, int64_t, ldk, "0", "", "the same of k")                                 \
    X(owner, int64_t, ldyq, "0", "", "of yq")                                        \
    X(owner, int64_t, ldyk, "0", "", "of yk")                                        \
    X(owner, int64_t, ldq_head, "0", "", "elements between heads of q; 0: head_dim") \
    X(owner, int64_t, ldk_head, "0", "", "the same of k")                            \
    X(owner, int64_t, ldyq_head, "0", "", "of yq")                                   \
    X(owner, int64_t, ldyk_head, "0", "", "of yk")

/* A problem line: the desc, the range of the positions, and whether the call is in place. */
typedef struct rope_problem {
    ckl_rope_desc desc;
    bool inplace;
    float position_min, position_max;
} rope_problem;

enum { ROPE_LANES_MAX = 1024 }; // pairs of a head

/* What the config of either kernel begins with. */
#define ROPE_HEAD(X, owner)                                                          \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")        \
    X(owner, ckl_dtype, positions, "i32", "i32 i64", "type of the positions")        \
    X(owner, choice, style, "half", "half interleaved", "which elements are a pair") \
    X(owner, int, head_dim, "128", "", "elements of a head")                         \
    X(owner, int, rotary_dim, "128", "", "of them, those that rotate")

FIELD_STRUCT(rope_head, ROPE_HEAD);

static inline rope_head rope_head_of(const ckl_rope_desc *d)
{
    return (rope_head){ d->dtype, d->positions, (choice)d->style, (int)d->head_dim, (int)d->rotary_dim };
}

extern const implementation rope_vector_implementation, rope_tiles_implementation;
