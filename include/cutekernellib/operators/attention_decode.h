/*
 * attention_decode.h - attention of a few new tokens against a cache of keys and values, contiguous or in pages:
 * o[b,h,i] = sum over j of softmax_j(scale * q[b,h,i] . k[b,g,j]) * v[b,g,j], for the kv head g of head h
 *
 * Scores, maxima and sums are f32. The probabilities are rounded to the type of v before they meet it, O once, at the
 * end.
 */
#pragma once

#include "attention.h"

CKL_BEGIN_DECLS

/*
 * The cache is [batch, kv_heads, kv, d] or, in pages, [pages, kv_heads, page, d]: key j of sequence b is key j % page
 * of page table[b, j / page]. Token i of head h in batch (or page) b of a tensor starts b * ld_batch + h * ld_head + i
 * * ld elements after its pointer.
 *
 * Sequence b has lengths[b] keys, the new tokens' own ones included, which are the last of them: token i sees the keys
 * up to number lengths[b] - q + i. One that sees no key gives zeros, and as log-sum-exp the head's sink, or -inf
 * without sinks. More than kv keys count as kv, less than 0 as 0. Table entries of keys past the length are read but
 * not used; page numbers outside of the cache are the caller's fault (the emulator reports them).
 *
 * A cache of CKL_E4M3 has a scale for each of its heads: a key is scale_k[g] * k, a value scale_v[g] * v. Its NaNs
 * count as NaN or, in kernels that widen by integer arithmetic (all before sm_90, and naive), as 480.
 * Heads are multiples of 16 then, strides of k and v too, for the fast kernel.
 *
 * With `append` the new tokens' keys and values come as k_new and v_new, [batch, kv_heads, q, d] of dtype: the cache
 * need not have them, and they are stored where it will, at k_into and v_into, which have its strides and pages and
 * mostly are k and v. For a cache of CKL_E4M3 they are divided by the scales and rounded, and what is beyond its
 * largest number becomes that.
 *
 * A `latent` cache (multi-head latent attention) has no values of its own: a value is the first dv elements of its key,
 * and dv is at most d. New ones come as k_new alone; without append where the cache is CKL_E4M3.
 *
 * A sequence's result does not depend on the batch: keys are split at multiples of a length that follows from the
 * device and all fields but batch, pages and strides, and parts are added in their order.
 */
typedef struct ckl_attention_decode_desc {
    ckl_dtype dtype;             // of q, k, v and o: CKL_F16 or CKL_BF16
    int64_t batch;               // sequences; 0 is a problem without work
    int64_t heads;               // of q and o
    int64_t kv_heads;            // of the cache; divides heads: neighbouring heads share one. 0 means heads
    int64_t q;                   // new tokens of each sequence, 0 to 16
    int64_t kv;                  // the most keys of a sequence, at least 1
    int64_t d;                   // elements of a head of q and k, up to 1024
    int64_t dv;                  // of v and o; 0 means d
    int64_t page;                // keys of a page, up to 256; 0 means that the cache is contiguous
    int64_t pages;               // of the whole cache; 0 means batch * ceil(kv / page)
    int64_t left;                // a window: of the keys up to its own a token sees the last so many; 0 means all
    float softcap;               // scores become softcap * tanh(score / softcap); 0 means that they stay as they are
    bool sinks;                  // every head has a score more, for a key without a value
    bool lse;                    // there is a second output, ln(sum over j of exp(score))
    float scale;                 // of the scores, up to 2^20; 0 means 1 / sqrt(d)
    ckl_attention_layout layout; // of dense tensors; 0 means BHSD
    int64_t ldq, ldk, ldv, ldo;  // elements between tokens; 0: by the layout
    int64_t ldq_head, ldk_head, ldv_head, ldo_head;
    int64_t ldq_batch, ldk_batch, ldv_batch, ldo_batch; // of k and v in pages: between these
    ckl_dtype cache;                                    // of k and v: CKL_E4M3, or 0, which means dtype
    bool append;                                        // k_new and v_new are stored
    int64_t ldk_new, ldv_new;                           // of these as above
    int64_t ldk_new_head, ldv_new_head;
    int64_t ldk_new_batch, ldv_new_batch;
    bool latent; // values are the first dv elements of the keys
} ckl_attention_decode_desc;

/*
 * The memory of one call: device pointers. Outputs overlap nothing. Where d, dv and all strides are multiples of 8,
 * pointers are aligned to 16 bytes, else to the element.
 */
typedef struct ckl_attention_decode_args {
    const void *q, *k, *v;  // v: NULL where the cache is latent
    const int32_t *lengths; // [batch]
    const int32_t *table;   // [batch, ceil(kv / page)]; NULL where the cache is contiguous
    const float *sinks;     // [heads]; NULL where the desc has none
    void *o;
    float *lse;                     // [batch, heads, q], dense; NULL where the desc has none
    const float *scale_k, *scale_v; // [kv_heads], positive; NULL where the cache is of dtype
    const void *k_new, *v_new;      // NULL without append; v_new also where the cache is latent
    void *k_into, *v_into;          // likewise; may be k and v
    void *workspace;                // ckl_plan_workspace_bytes(), zeroed once; NULL: the plan's own
} ckl_attention_decode_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_attention_decode_plan(ckl_device *device, const ckl_attention_decode_desc *desc,
                                                          ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_attention_decode_run(const ckl_plan *plan, const ckl_attention_decode_args *args,
                                                         ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_attention_decode(ckl_device *device, const ckl_attention_decode_desc *desc,
                                                     const ckl_attention_decode_args *args, ckl_stream stream);

CKL_END_DECLS
