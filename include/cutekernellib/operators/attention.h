/*
 * attention.h - o[b,h,i] = sum over j of softmax_j(scale * q[b,h,i] . k[b,g,j]) * v[b,g,j], for the kv head g of head h
 *
 * Scores, maxima and sums are f32. The probabilities are rounded to the type of v before they meet it, O once, at the
 * end.
 *
 * Backward, with the scores s before the softmax, p[i,j] = exp(s[i,j] - lse[i]), and the gradient dout of o:
 *     ds[i,j] = p[i,j] * (dout[i] . v[j] - dout[i] . o[i])
 *     dq[i] = scale * sum over j of ds[i,j] * k[j]     dk[j] = scale * sum over i of ds[i,j] * q[i]
 *     dv[j] = sum over i of p[i,j] * dout[i]          dsinks = - sum over i of exp(sink - lse[i]) * dout[i] . o[i]
 * where a soft cap makes ds (1 - tanh^2) times as large, and sums over i are over the heads of a group, too. p and ds
 * are rounded to the type before they meet the others. The order of all sums is fixed: the same bits every time.
 */
#pragma once

#include "../plan.h"
#include "../tensor.h"
#include "attention_score.h"

CKL_BEGIN_DECLS

/* Which strides a tensor has where the desc leaves them at 0. */
typedef enum ckl_attention_layout {
    CKL_ATTENTION_BHSD, // dense [batch, heads, tokens, d]
    CKL_ATTENTION_BSHD, // dense [batch, tokens, heads, d]
} ckl_attention_layout;

typedef enum ckl_attention_mask {
    CKL_ATTENTION_MASK_NONE,
    CKL_ATTENTION_MASK_ADD,  // of the type of q, added to the scores: a bias
    CKL_ATTENTION_MASK_BOOL, // keys where it is false are not seen
} ckl_attention_mask;

/*
 * Token i of head h in batch b of a tensor starts b * ld_batch + h * ld_head + i * ld elements after its pointer. So
 * BHSD, BSHD and parts of a joint projection of q, k and v are a matter of strides.
 *
 * The own key of query i is i + kv - q: causal queries see the keys up to that one, so that the last query sees all. A
 * query that sees no key, or whose scores are all -inf, gives zeros, and as log-sum-exp the head's sink, or -inf
 * without sinks. A score of NaN or +inf makes its row NaN. Scores are f32: those beyond 2^100 count as infinite, and
 * where scale times the largest one is beyond 2^24, weights are no longer told apart. What v holds at keys without
 * weight should be finite: 0 times infinity is NaN, and which of these products a kernel computes is left open.
 *
 * Ragged: tensors are [heads, total, d] or [total, heads, d], and token i of sequence b is number starts[b] + i; the
 * sequence ends at starts[b + 1]. Starts do not fall, no sequence is longer than q and kv, and the last start is at
 * most the total: all three are the caller's duty. A sequence may be empty. Without mask. Gradients of tokens in no
 * sequence are not written.
 */
typedef struct ckl_attention_desc {
    ckl_direction direction; // backward: dq, dk and dv from the results of forward and dout
    ckl_dtype dtype;         // of q, k, v and o: CKL_F16 or CKL_BF16
    int64_t batch;           // 0 is a problem without work
    int64_t heads;           // of q and o
    int64_t kv_heads;        // of k and v; divides heads: neighbouring heads share one. 0 means heads
    int64_t q, kv;           // tokens of q and o, of k and v
    int64_t d;               // elements of a head of q and k, up to 1024
    int64_t dv;              // of v and o; 0 means d
    bool causal;             // queries see no later keys than their own
    int64_t left;            // a window: of the keys up to its own a query sees the last so many; 0 means all
    int64_t right;           // of the later ones it sees the first so many; 0 means all, or none where causal
    float softcap;           // scores become softcap * tanh(score / softcap); 0 means that they stay as they are
    ckl_attention_mask mask; // 0 means none; added after the soft cap
    const char *score; // a custom score by its name (attention_score.h), after the mask; NULL or "none": there is none
    bool sinks;        // every head has a score more, for a key without a value
    bool lse;          // there is a second output, ln(sum over j of exp(score)); backward always reads it
    bool ragged;       // sequences of any lengths lie one behind the other, q and kv are those of the longest
    int64_t q_total,
        kv_total; // tokens of all sequences, where ragged, of q at most batch * q; 0 means batch * q, batch * kv
    float scale;  // of the scores, up to 2^20; 0 means 1 / sqrt(d)
    ckl_attention_layout layout; // 0 means BHSD
    int64_t ldq, ldk, ldv, ldo;  // elements between tokens; 0: by the layout, as below
    int64_t ldmask, ldmask_head,
        ldmask_batch; // of the mask [batch, heads, q, kv]; 0: all queries, heads, batches share it
    int64_t ldq_head, ldk_head, ldv_head, ldo_head;
    int64_t ldq_batch, ldk_batch, ldv_batch, ldo_batch;
    bool dmask; // backward, added mask: its gradient for every batch, head, query and key, to be summed where shared
} ckl_attention_desc;

/*
 * The memory of one call: device pointers. Outputs overlap nothing. Where d, dv and all strides are multiples of 8,
 * pointers are aligned to 16 bytes, else to the element.
 */
typedef struct ckl_attention_args {
    const void *q, *k, *v;
    const void *mask;                    // NULL where the desc has none
    const float *sinks;                  // [heads]; NULL where the desc has none
    const int32_t *starts_q, *starts_kv; // [batch + 1]; NULL where the desc is not ragged
    void *o;                             // an output, or of a backward problem an input
    float *lse;         // [batch, heads, q], dense, ragged [heads, q_total]; the same; NULL where the desc has none
    const void *dout;   // strides of o; this and the next are NULL in a forward problem
    void *dq, *dk, *dv; // strides of q, k and v
    float *dsinks;      // [heads]; NULL where the desc has no sinks
    const void *inputs[CKL_ATTENTION_INPUTS]; // of a custom score; NULL where it has none
    void *dmask;                              // [batch, heads, q, kv], dense; NULL where the desc has none
    void *workspace;                          // ckl_plan_workspace_bytes(), zeroed once; NULL: the plan's own
} ckl_attention_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_attention_plan(ckl_device *device, const ckl_attention_desc *desc, ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_attention_run(const ckl_plan *plan, const ckl_attention_args *args,
                                                  ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_attention(ckl_device *device, const ckl_attention_desc *desc,
                                              const ckl_attention_args *args, ckl_stream stream);

CKL_END_DECLS
