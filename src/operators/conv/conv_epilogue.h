/* conv_epilogue.h - what happens to one sum on its way to the output; the same in all kernels. */
#ifndef CKL_CONV_EPILOGUE_H
#define CKL_CONV_EPILOGUE_H

#include "ir/build.h"
#include "operators/conv/conv_config.h"

/* An element of y: image, slice, row, column, channel. */
typedef struct conv_place {
    val image, at[CONV_MODES], channel;
} conv_place;

/*
 * What happens last to every element of y, by a function that is called while the kernel is described: it gets the value as f32 and
 * where it lies, u32, i32 or i64 as the kernel counts, and gives another. docs/operators.md has an example.
 */
typedef struct conv_custom {
    val (*apply)(val x, const conv_place *place, void *user);
    void *user;
} conv_custom;

/* One sum and what meets it, all f32: no value where the form does not have it. */
typedef struct conv_element {
    val sum, scale, bias, residual;
} conv_element;

/* place: of a form with a custom function. */
val conv_finish(const conv_form *form, conv_element in, const conv_place *place);

/* Where element `index` of y lies, which is one of this channel; both i64. */
conv_place conv_place_of(const conv_values *params, val index, val channel);

/* A sum of element `index` of what is written, `to`, with all that meets it. channel: of all groups. */
void conv_store(const conv_form *form, const conv_values *params, val to, val index, val channel, val sum);

/* A zero as a register of that type holds it; a byte has one of 16 bits. */
val conv_zero(ckl_dtype dtype);

#endif
