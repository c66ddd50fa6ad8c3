/* attention_lab.h - attention as problem lines know it, and its definition. */
#pragma once

#include "cutekernellib/operators/attention_decode.h"
#include "operators/operators.h"

typedef struct attention_problem {
    ckl_attention_desc desc;
    float q_factor;
} attention_problem;

typedef struct attention_decode_problem {
    ckl_attention_decode_desc desc;
    int64_t shortest;
} attention_decode_problem;

/* Relative error of a probability rounded to the type: the unit of `magnitude`. */
double attention_rounding(ckl_dtype dtype);

/* A query and a key. */
typedef struct attention_pair {
    int64_t batch, head, i, j;
} attention_pair;

/* One of the library's scores applied to s, by its definition. Adds the error of f32 to *error. */
double attention_score_reference(const ckl_attention_desc *d, void *const *host, const attention_pair *at, double s,
                                 double *error);

enum { ATTENTION_SCORE_INPUTS = 14, ATTENTION_OPERANDS = ATTENTION_SCORE_INPUTS + 2 };

/*
 * The sequence of a ragged problem that has a token of the packed tensors, as a problem of its own with
 * ATTENTION_OPERANDS operands, and the token's number in it. False: none has it.
 */
bool attention_sequence_at(const ckl_attention_desc *d, void *const *host, bool of_keys, int64_t token,
                           ckl_attention_desc *own, void **own_host, int64_t *number);

/* The reference where weights are multiplied as type `weights`, by default d->dtype: smaller ones underflow. */
void attention_reference_by(const ckl_attention_desc *d, ckl_dtype weights, void *const *host, reference_slice out);
void attention_reference(const void *problem, void *const *host, reference_slice out);
void attention_backward_reference(const void *problem, void *const *host, reference_slice out);
