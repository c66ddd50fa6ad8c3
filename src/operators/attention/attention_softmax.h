/*
 * attention_softmax.h - the online softmax of attention's tensor-core kernels, on accumulators: Milakov and Gimelshein,
 * arXiv:1805.02867. All atoms lay C out alike: a thread has parts of two rows of an atom, and four lanes share a row.
 */
#ifndef CKL_ATTENTION_SOFTMAX_H
#define CKL_ATTENTION_SOFTMAX_H

#include "cute/tensor.h"
#include "operators/attention/attention_config.h"

enum { ONLINE_ROWS_MAX = 4 };

/* The rows of a tile of accumulators (MMA,MMA_M,MMA_N) that a thread has parts of, and the number of a value of one of them. */
int attention_online_row_count(tensor acc);
int64_t attention_online_row_value(tensor acc, int row);
int attention_online_row_of(tensor acc, int64_t value);

/* What a thread knows of its rows. */
typedef struct online_rows {
    int count;
    val exponent;                // weights are 2^(exponent * (score - max))
    val max[ONLINE_ROWS_MAX];    // of the scores so far, at least ATTENTION_FLOOR; known to the four lanes of a row
    val sum[ONLINE_ROWS_MAX];    // of this lane's weights; after attention_online_rows_finish() of the whole row's
    val factor[ONLINE_ROWS_MAX]; // what O is to be multiplied by
} online_rows;

online_rows attention_online_rows_begin(int count, val exponent);
void attention_online_rows_reset(online_rows *rows);

/* The maxima become these, which are no less: those of other blocks that came between. */
void attention_online_rows_raise(online_rows *rows, const val *max);

/* Scores become weights. What was summed before counts `factor` times. */
void attention_online_softmax(online_rows *rows, tensor scores);

/* Has a row of the warp seen no key yet? The same in all lanes. */
val attention_online_rows_are_new(const online_rows *rows);

/* What scores have still to go through on their way to weights. */
typedef struct raw_scores {
    const val *cap;                                 // attention_cap_scores() by this factor, or NULL
    val (*score)(const void *of, val x, int64_t i); // what becomes of element i of the accumulators, or NULL
    const void *of;
} raw_scores;

/*
 * The same by the maxima of the blocks before, which saves finding these: the sums tell whether they were good enough. lost and
 * lowered are variables, u32, the same in all lanes: nonzero where some scores were so large that they are to be made anew for
 * attention_online_softmax(), the rows being as before; where `factor` is other than 1. What is left to do with raw scores
 * hides under the exponentials.
 */
void attention_online_softmax_by_old(online_rows *rows, tensor scores, const raw_scores *raw, val lost, val lowered);

/*
 * Sums of whole rows; factor becomes their inverse, 0 where there are no weights. A sink (NULL: there is none) is the natural
 * logarithm of a weight more. max and sum are then those with it, max times the exponent.
 */
void attention_online_rows_finish(online_rows *rows, const val *sink);

/* ln(sum of exp(score)) of a row, after attention_online_rows_finish(). */
val attention_online_logarithm(const online_rows *rows, int row);

/* Scores become tanh(factor * score): what a soft cap needs before it is the exponent. */
void attention_cap_scores(tensor scores, val factor);

/* Multiplies the rows of an accumulator. */
void attention_scale_rows(tensor acc, const val *factor);

/*
 * Scores whose column, by `columns` from the thread's first one, is more than the end of their row or less than its begin (NULL:
 * there is none) become -inf.
 */
void attention_mask_scores(tensor scores, layout columns, const val *begins, const val *ends);

#endif
