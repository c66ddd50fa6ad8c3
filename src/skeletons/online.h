/*
 * online.h - the maximum of a row and the sum of its exponentials, found together in one pass and one reduction.
 *
 * After Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): a thread or a group keeps
 * (max, sum of exp(x - max)) of what it has seen, and two such pairs combine into one. -inf counts for nothing; the sum of a
 * row of nothing else is 0. NaN or +inf anywhere makes the sum NaN.
 */
#ifndef CKL_SKELETONS_ONLINE_H
#define CKL_SKELETONS_ONLINE_H

#include "cute/reduce.h"
#include "cute/tensor.h"

enum { ONLINE_MAX, ONLINE_SUM, ONLINE_VALUES };

/*
 * The unit of a pair's maximum: that of x, for logarithms, or times log2(e), which saves an instruction an element. How that
 * product was rounded does not matter to the quotients, as a row uses it throughout; |x| beyond FLT_MAX / log2(e) counts as infinite.
 */
typedef enum online_unit { ONLINE_NATURAL, ONLINE_BINARY } online_unit;

/* Combines pairs of a unit. */
extern const reduction online_reductions[];

/* Nothing seen yet: variables, a maximum that is finite and a sum of 0. */
void online_begin(val pair[ONLINE_VALUES]);
void online_clear(const val pair[ONLINE_VALUES]); // again

/* Takes in the elements of registers of any float type. */
void online_add(online_unit unit, val pair[ONLINE_VALUES], tensor rX);

/*
 * The same for a thread that holds its whole part of the row: the exponentials relative to the thread's own maximum go to rE
 * (f32, may not be rX). Once the pair is that of the row, online_factor() of the maximum returned makes them probabilities.
 */
val online_add_keeping(online_unit unit, val pair[ONLINE_VALUES], tensor rX, tensor rE);
val online_factor(online_unit unit, const val pair[ONLINE_VALUES], val own_max);

/* exp(x - max) of an f32: the relative error is 2^-22 + 2^-23 |x - max|, and results under 2^-126 are 0. */
val online_exp(online_unit unit, val x, val max);

/* What makes probabilities of exponentials, 1 / sum, and log-probabilities of differences, log(sum): 0 if the sum is 0. */
val online_scale(const val pair[ONLINE_VALUES]);
val online_log_sum(const val pair[ONLINE_VALUES]);

#endif
