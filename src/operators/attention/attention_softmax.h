/*
 * attention_softmax.h - the online softmax of attention's tensor-core kernels, on accumulators: Milakov and Gimelshein,
 * arXiv:1805.02867. All atoms lay C out alike: a thread has elements of two rows of an atom, and four lanes share a
 * row.
 */
#pragma once

#include "cute/tensor.h"
#include "operators/attention/attention_config.h"

enum { ONLINE_ROWS_MAX = 4 };

/* How many rows of a tile of accumulators (MMA,MMA_M,MMA_N) a thread has elements of; the row of value i. */
int attention_online_row_count(tensor acc);
int64_t attention_online_row_value(tensor acc, int row);
int attention_online_row_of(tensor acc, int64_t value);

/* The state of a thread's rows. */
typedef struct online_rows {
    int count;
    val exponent;                // weights are 2^(exponent * (score - max))
    int slack;                   // a maximum stays while weights are at most 2^slack: mostly `factor` is 1
    val max[ONLINE_ROWS_MAX];    // of the scores so far, at least ATTENTION_FLOOR; known to the four lanes of a row
    val sum[ONLINE_ROWS_MAX];    // of this lane's weights; after attention_online_rows_finish() of the whole row's
    val factor[ONLINE_ROWS_MAX]; // factor for O
} online_rows;

online_rows attention_online_rows_begin(int count, val exponent);
void attention_online_rows_reset(online_rows *rows);

/* Raises the maxima to these, found in other blocks in between. */
void attention_online_rows_raise(online_rows *rows, const val *max);

/* On the host: the numbers of a soft cap by which scores are tanh(factor * score), and weights 2^(exponent * that). */
void attention_cap_numbers(double factor, double exponent, float *cap);

/*
 * Scores become weights. What was summed before counts `factor` times. cap: NULL, or its numbers, the factor first:
 * attention_cap_scores() comes first, and no score is hidden.
 */
void attention_online_softmax(online_rows *rows, tensor scores, const val *cap);

/* Has a row of the warp seen no key yet? The same in all lanes. */
val attention_online_rows_are_new(const online_rows *rows);

/* What is still to be applied to scores before they become weights by old maxima; it hides under the exponentials. */
typedef struct raw_scores {
    const val *cap, *limit;                         // attention_cap_numbers() and attention_cap_limits(), or NULL
    val (*score)(const void *of, val x, int64_t i); // applied to element i of the accumulators, or NULL
    const void *of;
} raw_scores;

/*
 * Do the rows' maxima let a cap be part of the exponents of the next block? The same in all lanes. Then, into
 * variables, the rows' largest sums without a score beyond that.
 */
val attention_cap_is_short(const online_rows *rows);
void attention_cap_limits(const online_rows *rows, const val *limit);

/*
 * The same by the maxima of the blocks before, which saves finding new ones; the sums tell whether the old ones served,
 * the same in all lanes.
 */
val attention_online_softmax_by_old(const online_rows *rows, tensor scores, const raw_scores *raw, val *sum);

/*
 * Where they did not: lowers weights and rows, what was summed before counts `factor` times. Or true, in all lanes, and
 * rows are as they were, but their sums are 0: scores were too large, and must be computed again for new maxima.
 */
val attention_online_rows_lower(online_rows *rows, tensor weights, const raw_scores *raw, val *sum);

/*
 * The end of a row: its maximum in bits and the sum of its weights, the factor for O, which is 0 where there are none.
 */
typedef struct row_end {
    val top, sum, factor;
} row_end;

/* A sink, unless it is NO_SINK, is the natural logarithm of one more weight; top and sum then include it. */
#define NO_SINK ((val){ 0 })
row_end attention_row_end(val top, val sum, val sink);

/* The same of all rows, from sums of lanes. max is multiplied by the exponent. */
void attention_online_rows_finish(online_rows *rows, val sink);

/* ln(sum of exp(score)) of a row, of its maximum in bits and the sum of its weights; -inf where there are none. */
val attention_logarithm(val top, val sum);

/* Scores become tanh(factor * score), as a soft cap needs. */
void attention_cap_scores(tensor scores, val factor);

/* Multiplies the rows of an accumulator; then, nothing where all `count` factors of the warp's lanes are 1. */
void attention_scale_rows(tensor acc, const val *factor);
void attention_rescale_rows(tensor acc, const val *factor, int count);

/*
 * Scores become -inf where their column, counted by `columns` from the thread's first, is beyond the row's end or
 * before its begin (NULL: no begin).
 */
void attention_mask_scores(tensor scores, layout columns, const val *begins, const val *ends);
