/*
 * norm_weights.h - gamma and beta of all columns in shared memory, a slot a column. Rows that start anywhere find theirs at any
 * column without cutting vectors, and without conflicts between banks: after each vector of slots one is left out, so that the
 * vectors of neighbouring threads begin an odd number of slots apart.
 */
#ifndef CKL_NORM_WEIGHTS_H
#define CKL_NORM_WEIGHTS_H

#include "operators/norm/norm_config.h"

typedef struct norm_weights {
    ckl_dtype dtype; // of what a slot holds: gamma, or gamma and beta
    int count;       // of these
    int vec;         // slots without a gap
    int64_t cols;    // slots
    val first;       // u32, the shared address of the first
} norm_weights;

/* What the pointers of a norm's kernel lead to; beta: a u64 0 if there is none. */
typedef struct norm_weight_sources {
    ckl_dtype dtype;
    val cols, gamma, beta;
} norm_weight_sources;

/* Allocates the slots and fills them, by all threads of the CTA, which may read them afterwards; past the last column: 0. */
norm_weights norm_weights_load(const row_split *s, const norm_weight_sources *from);

/* The weights of vector number `step` of a span's thread; rBeta without registers: gamma alone. */
void norm_weights_read(const norm_weights *w, const row_span *at, int step, tensor rGamma, tensor rBeta); // (VEC) each

#endif
