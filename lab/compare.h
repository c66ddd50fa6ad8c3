/* compare.h - the one place that bounds the error of a result. */
#pragma once

#include "lab/check.h"

/*
 * The bound of one element, for a sum of `terms` products accumulated in f32 (u = 2^-24) and rounded to the output
 * type:
 *
 *     |got - expected| <= u_out * |expected|                        the last rounding, half a unit of the output type
 *                       + 4 * sqrt(terms) * u * magnitude           the sum: probabilistic bound of Higham and Mary, "A
 *                                                                   new approach to probabilistic rounding error
 *                                                                   analysis", SIAM JSC 41(5), 2019, with lambda = 4
 *                       + approximation * magnitude                 approximate instructions, stated by the operator
 *                       + subnormals                                one unit each of the output and of every f32 term,
 *                                                                   times 2^10 if inputs are hard
 *
 * magnitude is the sum of the absolute values of the terms, from the reference. u is 2^-53 for f64 outputs. A float
 * that is stored as an integer is truncated, and may be either of two where the bound of the float reaches across one.
 * Where every intermediate result is exact (FILL_INTEGERS, no approximate instruction, scalars that are small multiples
 * of 1/16) the result must equal the reference rounded once to the output type.
 */
typedef struct tolerance {
    ckl_dtype dtype;
    bool exact;
    double rounding; // u_out
    double relative; // of magnitude
    double subnormals;
} tolerance;

tolerance tolerance_of(const test_case *c, ckl_dtype output);

/*
 * Whether got is right: equal to expected as the type holds it (NaN equals NaN, infinities equal by sign), or within
 * *bound of it. A bound that is NaN or negative is an error of the reference: it admits equal values alone.
 */
bool tolerance_admits(const tolerance *t, double got, double expected, double magnitude, double *bound);

/*
 * Adds one output's comparison to the result. `output` counts outputs only; o is its image. Where only a sample is
 * compared, no element may be left poisoned.
 */
void compare_output(const test_case *c, operand_images *images, const operand_image *o, int output,
                    check_result *result);

/*
 * Computes the references that comparisons of these images will keep (images->keep_references): those of the sample,
 * which depends on the effort and on this thread's number of threads. Needs no device.
 */
void compare_prepare(const test_case *c, operand_images *images);

/* Findings about whole images; each writes result->fault and returns false. */
bool compare_untouched(const operand_image *o, check_result *result); // an input is as it was, canaries included
bool compare_padding(const operand_image *o, check_result *result);   // an output's padding and canaries are
bool compare_repeated(const operand_image *o, const unsigned char *first, check_result *result); // equal to that image
