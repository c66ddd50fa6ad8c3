/* rope.h - rotary position embedding: pairs of q and k rotate by position * scale * theta^(-2i/rotary_dim) */
#pragma once

#include "../plan.h"
#include "../tensor.h"

CKL_BEGIN_DECLS

/* Which elements of a head make pair i, of n = rotary_dim / 2 pairs. */
typedef enum ckl_rope_style {
    CKL_ROPE_HALF,        // i and n + i, as in GPT-NeoX and Llama
    CKL_ROPE_INTERLEAVED, // 2i and 2i + 1, as in GPT-J and the paper, Su et al., arXiv:2104.09864
} ckl_rope_style;

/*
 * For every token t and head, pair (a, b) number i becomes (a cos - b sin, b cos + a sin) of the angle
 *     position[t] * scale * theta^(-2i / rotary_dim)
 * and elements from rotary_dim on are copied. Values are f32, rounded once. The angle is computed in double-f32 and
 * reduced before it is rounded: sine and cosine are within 2^-20 of those of the exact angle. Positions must be less
 * than 2^24 away from 0; others make NaN of what they rotate.
 *
 * Head h of token t of a tensor starts t * ld + h * ld_head elements after its pointer.
 */
typedef struct ckl_rope_desc {
    ckl_dtype dtype;                                  // of q, k, yq and yk: CKL_F32, CKL_F16 or CKL_BF16
    ckl_dtype positions;                              // CKL_I32 or CKL_I64; 0 means i32
    int64_t tokens;                                   // 0 is a problem without work
    int64_t heads;                                    // of q
    int64_t k_heads;                                  // 0: there is no k
    int64_t head_dim;                                 // elements of a head
    int64_t rotary_dim;                               // even, at most head_dim and 2048; 0 means head_dim
    ckl_rope_style style;                             // 0 means half
    bool inverse;                                     // rotates back, by the negative angle: also the gradient
    float theta;                                      // 1 to 2^60; 0 means 10000
    float scale;                                      // of positions, 2^-30 to 1; 0 means 1
    int64_t ldq, ldk, ldyq, ldyk;                     // elements between tokens; 0 means dense
    int64_t ldq_head, ldk_head, ldyq_head, ldyk_head; // elements between heads, at least head_dim; 0 means head_dim
} ckl_rope_desc;

/*
 * The memory of one call: device pointers, aligned to the element. yq may be q and yk may be k if their distances are
 * equal. Tensors of one token distance may lie side by side within it, as q and k do in a joint projection.
 */
typedef struct ckl_rope_args {
    const void *q, *k;     // k and yk: NULL where the desc has no k
    const void *positions; // [tokens]
    void *yq, *yk;
} ckl_rope_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_rope_plan(ckl_device *device, const ckl_rope_desc *desc, ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_rope_run(const ckl_plan *plan, const ckl_rope_args *args, ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_rope(ckl_device *device, const ckl_rope_desc *desc, const ckl_rope_args *args,
                                         ckl_stream stream);

CKL_END_DECLS
