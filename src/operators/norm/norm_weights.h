/*
 * norm_weights.h - gamma and beta of all columns in shared memory, a slot a column. Rows that start anywhere find theirs at any
 * column without cutting vectors, and without conflicts between banks: after each vector of slots one is left out, so that the
 * vectors of neighbouring threads begin an odd number of slots apart.
 */
#ifndef CKL_NORM_WEIGHTS_H
#define CKL_NORM_WEIGHTS_H

#include "operators/norm/norm_config.h"

typedef struct norm_weights {
    ckl_dtype dtype;   // of what a slot holds: gamma, or gamma and beta
    int count;         // of these
    int vec;           // slots without a gap
    int64_t cols;      // slots of a chunk
    val first, column; // u32: the shared address of the first, and its column, a multiple of vec
    val step;          // u32: columns from one chunk to the next one
} norm_weights;

/* What the pointers of a norm's kernel lead to; beta: the constant 0 if there is none. */
typedef struct norm_weight_sources {
    ckl_dtype dtype;
    val cols, gamma, beta;
} norm_weight_sources;

/*
 * Allocates slots for `chunks` stretches of the columns that a row of this split may have from column `first` on, `step` columns apart,
 * and fills them, by the split's threads, which may read them afterwards; past the last column: 0.
 */
norm_weights norm_weights_load(const row_split *s, const norm_weight_sources *from, int chunks, val first, val step);

/* Those of one chunk. */
norm_weights norm_weights_chunk(const norm_weights *w, int chunk);

/* The weights of vector number `step` of a span's thread; rBeta of gamma alone is not written. */
void norm_weights_read(const norm_weights *w, const row_span *at, int step, tensor rGamma, tensor rBeta); // (VEC) each

#endif
