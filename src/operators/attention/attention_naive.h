/* attention_naive.h - what the kernels of a thread a row share: whole tensors, and a query's score with a key. */
#pragma once

#include "operators/attention/attention_score.h"

/* Everything that a thread knows. Tensors: (BATCH,HEADS,TOKENS,D), in the order of attention's; u32 become i64. */
typedef struct naive_problem {
    const attention_form *form;
    attention_values p;
    val q, kv, heads;
    tensor gX[ATTENTION_TENSORS], gGradient[ATTENTION_TENSORS];
    score_mask mask; // (BATCH,HEADS,Q,KV)
    tensor gLse;     // (BATCH,HEADS,Q)
    val row;         // this thread's, of those of all heads
    val sequence;    // its number, if ragged: the tensors are those of it, of one batch
} naive_problem;

/* The beginning of a kernel. */
naive_problem attention_naive_begin(const attention_naive_config *config);

/* Calls of_token() for this thread's row of all heads of queries or keys, unless it is past the end of its sequence. */
typedef void naive_of_token(const naive_problem *g, val batch, val head, val token);
void attention_naive_at(const naive_problem *all, bool is_key, naive_of_token *of_token);

/* The keys that a query sees. */
typedef struct naive_keys {
    val first, end;
} naive_keys;

naive_keys attention_naive_keys_of(const naive_problem *g, val query);

/* A head of queries, and what it shares of keys: found once, as divisions take long. */
typedef struct naive_head {
    val batch, head, kv_head;
    custom_score custom;
} naive_head;

naive_head attention_naive_head_of(const naive_problem *g, val batch, val head);

/* The score of a query and a key: under the soft cap, with the mask, by the custom score. */
typedef struct naive_score {
    val capped, masked, score;
} naive_score;

naive_score attention_naive_score(const naive_problem *g, const naive_head *h, val i, val j);

/* The sum of the products of two vectors. */
val attention_naive_dot(tensor gX, tensor gY, int count);
