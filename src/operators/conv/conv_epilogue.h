/* conv_epilogue.h - what happens to one sum on its way to the output, and where it lies; the same in all kernels. */
#ifndef CKL_CONV_EPILOGUE_H
#define CKL_CONV_EPILOGUE_H

#include "cute/tensor.h"
#include "operators/conv/conv_config.h"

/* An element of y: image, slice, row, column, channel. */
typedef struct conv_place {
    val image, at[CONV_MODES], channel;
} conv_place;

/*
 * The user's own epilogue: a function, called while the kernel is described, that gets an element of y as f32 and its
 * place (u32, i32 or i64, as the kernel counts), and gives the value to store. docs/operators.md has an example.
 */
typedef struct conv_custom {
    val (*apply)(val x, const conv_place *place, void *user);
    void *user;
} conv_custom;

/* A sum and what the epilogue applies to it, all f32; unset where the form has none. */
typedef struct conv_element {
    val sum, scale, bias, residual;
} conv_element;

/* place: read by a custom epilogue alone. */
val conv_finish(const conv_form *form, conv_element in, const conv_place *place);

/* The place of element `index` of y, which has this channel; both i64. */
conv_place conv_place_of(const conv_values *params, val index, val channel);

/* Finishes a sum and stores it as element `index` of `to`. channel: among those of all groups. */
void conv_store(const conv_form *form, const conv_values *params, val to, val index, val channel, val sum);

/* Scale and bias of neighbouring channels, unset where the form has none. */
typedef struct conv_channels {
    tensor rScale, rBias; // (CHANNEL) of f32, of the output's type
} conv_channels;

conv_channels conv_load_channels(const conv_form *form, const conv_values *params, val channel, int count);

/*
 * Finishes neighbours of y, number `index` the first, and stores them at once. Each is of the next channel, or all are of the
 * one that was loaded. rSum: (COUNT); channel: the first.
 */
void conv_store_run(const conv_form *form, const conv_values *params, const conv_channels *channels, val to, val index,
                    val channel, tensor rSum);

/* A zero as a register of that type holds it; bytes are in registers of 16 bits. */
val conv_zero(ckl_dtype dtype);

/* Takes the innermost digit off a mixed-radix number. */
val conv_next_digit(val *rest, val size);

#endif
