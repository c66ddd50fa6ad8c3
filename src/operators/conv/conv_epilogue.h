/* conv_epilogue.h - what happens to one sum on its way to the output, and where it lies; the same in all kernels. */
#pragma once

#include "cute/copy.h"
#include "operators/conv/conv_config.h"

/* A sum and what the epilogue applies to it, all f32; unset where the form has none. */
typedef struct conv_element {
    val sum, scale, bias, residual;
    val pixel, channel; // of y; pixels are counted over all images. Where conv_is_custom() alone
} conv_element;

val conv_finish(const conv_form *form, conv_element in);

/* Has it an epilogue that wants to know the element's place? */
bool conv_is_custom(const conv_form *form);

/* The number of the pixel at a place of an image of y. */
val conv_pixel_at(const conv_values *params, val image, const val at[CONV_MODES]);

/* The elements from an address on, as many as there are. */
tensor conv_elements_from(val address, ckl_dtype dtype);

/* `count` neighbours, element `index` the first. */
tensor conv_run_at(val address, ckl_dtype dtype, val index, int count);

/* The tap of `taps` by which place q of y sees place j of x, counted from the first below place 0; -1: none. */
int conv_tap_of(int j, int q, int taps, int step, int dilation);

/* What was loaded, or zeros. */
packed conv_or_zeros(packed x, val inside);

/* Is a sum infinite or NaN? A zero of a band may have made it so. */
val conv_is_doubtful(tensor rSum);

/* Finishes a sum and stores it as element `index` of `to`. channel: among those of all groups. */
void conv_store(const conv_form *form, const conv_values *params, val to, val index, val channel, val sum);

/* Scale and bias of neighbouring channels, unset where the form has none. */
typedef struct conv_channels {
    tensor rScale, rBias; // (CHANNEL) of f32, of the output's type
} conv_channels;

conv_channels conv_load_channels(const conv_form *form, const conv_values *params, val channel, int count);

/*
 * Those of the channels along a mode of a thread's coordinates, each at its distance from the thread's first, from
 * `first` on. last: the last channel of y; channel: of coordinate 0.
 */
enum { CONV_VECTORS_MAX = 256 };

typedef struct conv_vectors {
    val scale[CONV_VECTORS_MAX], bias[CONV_VECTORS_MAX];
    bool held; // in variables that conv_hold_vectors() has made, which may be loaded under a predicate
} conv_vectors;

void conv_hold_vectors(const conv_form *form, tensor coordinates, int mode, int first, conv_vectors *vectors);

void conv_load_vectors(const conv_form *form, const conv_values *params, val last, tensor coordinates, int mode,
                       val channel, int first, conv_vectors *vectors);

/*
 * Finishes neighbours of y, number `index` the first, and stores them at once. Each is of the next channel, or all are
 * of the one that was loaded. rSum: (COUNT); channel: the first. Or only finishes them: (COUNT) of the output's type.
 */
tensor conv_finish_run(const conv_form *form, const conv_values *params, const conv_channels *channels, val index,
                       val channel, tensor rSum);
void conv_store_run(const conv_form *form, const conv_values *params, const conv_channels *channels, val to, val index,
                    val channel, tensor rSum);

/* A zero as a register of that type holds it; bytes are in registers of 16 bits. */
val conv_zero(ckl_dtype dtype);

/* A size as 32 bits, without and with a sign. */
val conv_number(val x);
val conv_signed(val x);

/* Tiles of y, so many columns by rows by images: u32, along both, and in all; where one of them begins. */
typedef struct conv_tile_grid {
    int wide, high, images;
    val columns, rows, count;
} conv_tile_grid;

typedef struct conv_tile_place {
    val w, h, n;
} conv_tile_place;

conv_tile_grid conv_tile_grid_of(const conv_values *params, int wide, int high, int images);
conv_tile_place conv_tile_at(const conv_tile_grid *grid, val tile);

/* How many of `size` cover a length. */
val conv_tiles_along(val length, int size);

/* Takes the innermost digit off a mixed-radix number. */
val conv_next_digit(val *rest, val size);
