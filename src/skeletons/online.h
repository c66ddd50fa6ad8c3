/*
 * online.h - the maximum of a row and the sum of its exponentials, found together in one pass and one reduction.
 *
 * After Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018): a thread or a group of threads
 * keeps the pair (max, sum of exp(x - max)) of its elements, and two pairs combine into one. -inf adds nothing; a row
 * of -inf alone has sum 0. NaN or +inf anywhere makes the sum NaN.
 */
#pragma once

#include "cute/reduce.h"
#include "cute/tensor.h"

enum { ONLINE_MAX, ONLINE_SUM, ONLINE_VALUES };

/* The reduction that combines pairs. */
extern const reduction online_reduction;

/* The pair of no elements, in fresh variables: a maximum that is finite, a sum of 0. */
void online_begin(val pair[ONLINE_VALUES]);
void online_clear(const val pair[ONLINE_VALUES]); // the same in the variables that there are

/* Adds the elements of a fragment of any float type. */
void online_add(val pair[ONLINE_VALUES], tensor rX);

/*
 * The same for a thread that holds all its elements of a row: it also stores their exponentials, relative to its own
 * maximum, in rE (f32, not rX) and returns that maximum. Once the pair is that of the row, online_factor() turns them
 * into probabilities.
 */
val online_add_keeping(val pair[ONLINE_VALUES], tensor rX, tensor rE);
val online_factor(const val pair[ONLINE_VALUES], val own_max);

/*
 * exp(x - max) of an f32: the relative error is 2^-22 + 2^-23 |x - max|, and results under 2^-126 are 0. The difference
 * comes before the product with log2(e): an FMA of x and a rounded max * log2(e) is far from 0 at the maximum of large
 * scores.
 */
val online_exp(val x, val max);

/*
 * 2^exponent * exp(x - max), by one FMA instead of two products: for results of 16 bits, as the exponent's rounding is
 * a relative error of some 2^-20.
 */
val online_exp_times(val x, val max, val exponent);

/* log2(1 / sum), of no elements 0. */
val online_scale_exponent(const val pair[ONLINE_VALUES]);

/* 1 / sum, which turns exponentials into probabilities, and log(sum), to subtract from x - max: both 0 if sum is 0. */
val online_scale(const val pair[ONLINE_VALUES]);
val online_log_sum(const val pair[ONLINE_VALUES]);
