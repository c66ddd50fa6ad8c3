/*
 * math.h - elementary functions of f32 values, built from the hardware's approximate ex2, lg2 and rcp.
 *
 * Errors are relative, down to results of 2^-119; smaller ones may be 0. They count on the hardware's stated errors
 * (PTX ISA: ex2 within 2 and rcp within 1 unit in the last place). NaN gives NaN, and limits at infinity are what the
 * mathematics says. Polynomials are minimax approximations of our own (Remez' exchange), rounded to f32.
 */
#pragma once

#include "ir/build.h"

val exp_f32(val x);      // 2^-21.5: the product x * log2(e) is kept as a sum of two numbers
val log_f32(val x);      // 2^-23; subnormal x too; 0 gives -inf, negative numbers NaN
val log_half(val x);     // the same for results that are rounded to 16 bits, in half the instructions: 2^-16
val tanh_f32(val x);     // 2^-22
val sigmoid_f32(val x);  // 1 / (1 + exp(-x)), 2^-21
val sigmoid_half(val x); // the same for results that are rounded to 16 bits: (1 + |x|) * 2^-21
val erf_f32(val x);      // 2^-22

/* Of three numbers; of the others where one is NaN. No single number far from the others becomes it. */
val median_f32(val x, val y, val z);

/* The normal distribution function, (1 + erf(x / sqrt 2)) / 2, no cancellation for negative x: (1 + x^2) * 2^-21. */
val normal_cdf_f32(val x);

/*
 * x^y as C's pow() defines it, special cases included (y = 0 and x = 1 give 1, negative x want an integer y). The error
 * is that of exp2(y * log2 |x|): 2^-22 * (1 + |y * log2 |x||).
 */
val pow_f32(val x, val y);

/*
 * Sine and cosine of |x| <= 2^22 within 2^-22, relative, near their zeros too; NaN for what is larger or infinite.
 * Enough for rotary embeddings, where x is a position times a frequency of at most 1.
 */
void sincos_f32(val x, val *sine, val *cosine);

/* Activations; at -inf they are -0, the limit. Errors relative. */
val silu_f32(val x);      // x * sigmoid(x), 2^-20
val silu_half(val x);     // x * sigmoid_half(x), (1 + |x|) * 2^-20
val gelu_erf_f32(val x);  // x * normal_cdf(x), (1 + x^2) * 2^-20
val gelu_erf_half(val x); // the same for results that are rounded to 16 bits, in half the instructions: 2^-15
val gelu_tanh_f32(val x); // x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): the tanh form; (1 + |u|) * 2^-21
