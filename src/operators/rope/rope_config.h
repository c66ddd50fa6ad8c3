/* rope_config.h - the compile-time choices of rope's kernel, and its parameters. */
#ifndef CKL_ROPE_CONFIG_H
#define CKL_ROPE_CONFIG_H

#include "base/fields.h"
#include "ir/params.h"

#define ROPE_CONFIG(X, owner)                                                           \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of the elements")           \
    X(owner, ckl_dtype, positions, "i32", "i32 i64", "type of the positions")           \
    X(owner, choice, style, "half", "half interleaved", "which elements are a pair")    \
    X(owner, int, head_dim, "128", "", "elements of a head")                            \
    X(owner, int, rotary_dim, "128", "", "of them, those that rotate")                  \
    X(owner, int, vec, "8", "1 2 4 8", "pairs of a head that a thread takes")           \
    X(owner, int, heads, "4", "1 2 4 8", "heads that a thread holds at once: a group")  \
    X(owner, int, groups, "1", "1 2 4 5 8", "groups of a CTA: they share sine, cosine") \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA, or a few less")

typedef struct rope_config {
    ROPE_CONFIG(FIELD_MEMBER, )
} rope_config;

enum { ROPE_VEC_MAX = 8, ROPE_LANES_MAX = 1024, ROPE_LANE_BITS = 10 };

/* Arrays of two: q, then k. Frequencies are in turns per position, each as the sum of two f32. */
#define ROPE_PARAMS(X, owner)                                                    \
    X(owner, pointer, x, [2])                                                    \
    X(owner, pointer, y, [2])                                                    \
    X(owner, i64, ldx, [2])                                                      \
    X(owner, i64, ldy, [2])                                                      \
    X(owner, i64, ldx_head, [2])                                                 \
    X(owner, i64, ldy_head, [2])                                                 \
    X(owner, u32, heads, [2])                                                    \
    X(owner, i64, tokens)                                                        \
    X(owner, pointer, positions)                                                 \
    X(owner, f32, pair_hi, [ROPE_VEC_MAX]) /* pair j of lane 0 */                \
    X(owner, f32, pair_lo, [ROPE_VEC_MAX])                                       \
    X(owner, f32, lane_hi, [ROPE_LANE_BITS]) /* what 2^b lanes multiply it by */ \
    X(owner, f32, lane_lo, [ROPE_LANE_BITS])

KERNEL_PARAMS(rope, ROPE_PARAMS);

/* How a CTA covers tokens: each lane of a token takes `vec` pairs of every head. */
typedef struct rope_tile {
    int vec, lanes, tokens;
} rope_tile;

/* Of kernel 0, for pointers aligned to vectors, or 1, for pointers aligned to the element only. */
rope_tile rope_tile_of(const rope_config *config, int kernel);

void rope_describe(const void *config, int kernel);

#endif
