/* rope_angles.h - what rope's kernels share: parameters, sines and cosines, pairs that rotate. */
#pragma once

#include "ir/params.h"
#include "operators/rope/rope_desc.h"

#include "cute/kernel.h"

enum { ROPE_VEC_MAX = 8, ROPE_LANE_BITS = 10 }; // of 1024 lanes

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

/* Of a launch whose lanes take `vec` pairs each. */
rope_params rope_params_of(const ckl_rope_desc *d, const ckl_rope_args *args, int vec);

/* Asks L2 for q, k and the positions: each CTA along x for a share. */
void rope_prefetch(const rope_values *p, int head_dim, ckl_dtype dtype, ckl_dtype positions);

/* The pairs of a lane: `vec` of `lanes` * vec pairs of a head, of elements of this type. */
typedef struct rope_pairs {
    ckl_dtype dtype;
    bool half; // a pair lies across two vectors; else pairs are neighbours in them
    int vec, lanes;
} rope_pairs;

/* A token's position, of its own type, 0 where there is no such token; as f32, NaN where it is too far. */
val rope_position(const rope_values *p, ckl_dtype type, val token);
val rope_number(val position);

/* Assigns the sines and cosines of a lane's pairs, variables of f32, at a position. */
void rope_find_rotation(const rope_values *p, const rope_pairs *pairs, val lane, val number, const val *sine,
                        const val *cosine);

/* Rotates the pairs of some heads: rX[0] and rX[1] are (VEC,HEADS). */
void rope_rotate(const rope_pairs *pairs, int heads, const val *sine, const val *cosine, const tensor rX[2]);
