/*
 * attention_softmax.h - the online softmax of attention's tensor-core kernels, on accumulators: Milakov and Gimelshein,
 * arXiv:1805.02867. A thread has parts of two rows of a 16-row block, as all its atoms lay out C; four lanes share a row.
 */
#ifndef CKL_ATTENTION_SOFTMAX_H
#define CKL_ATTENTION_SOFTMAX_H

#include "cute/tensor.h"
#include "operators/attention/attention_config.h"

/* What a thread knows of its two rows. */
typedef struct online_rows {
    val exponent;  // weights are 2^(exponent * (score - max))
    val max[2];    // of the scores so far, at least ATTENTION_FLOOR; known to the four lanes of a row
    val sum[2];    // of this lane's weights; after online_rows_finish() of the whole row's
    val factor[2]; // what O is to be multiplied by
} online_rows;

online_rows online_rows_begin(val exponent);
void online_rows_reset(online_rows *rows);

/* scores (MMA,1,1) become weights. What was summed before counts `factor` times. */
void online_softmax(online_rows *rows, tensor scores);

/* Sums of whole rows; factor becomes their inverse, 0 where there are no weights. */
void online_rows_finish(online_rows *rows);

/* ln(sum of exp(scale * score)) of row 0 or 1, after online_rows_finish(). */
val online_logarithm(const online_rows *rows, int row);

/* Multiplies the rows of an accumulator. */
void scale_rows(tensor acc, const val factor[2]);

/* Scores whose column, by `columns` from the thread's first one, is more than the end of their row become -inf. */
void mask_scores(tensor scores, layout columns, const val ends[2]);

#endif
