/* conv_bands.h - a filter a channel in planes by tensor cores: its config, and what both sides derive from that. */
#pragma once

#include "base/math.h"
#include "operators/conv/conv_config.h"

#define CONV_BANDS_CONFIG(X, owner)                                                        \
    X(owner, int, warps, "4", "1 2 4 8", "of a CTA")                                       \
    X(owner, int, images, "1", "1 2 4 8 16", "of a CTA")                                   \
    X(owner, int, ctas, "4", "1 2 3 4 5 6 7 8", "that must fit an SM")                     \
    X(owner, int, wide, "56", "", "columns of y")                                          \
    X(owner, int, high, "56", "", "rows of y")                                             \
    X(owner, int, x_wide, "56", "", "columns of x")                                        \
    X(owner, int, x_high, "56", "", "rows of x")                                           \
    X(owner, int, unit, "8", "", "columns of x that are copied at once")                   \
    X(owner, int, run, "8", "", "columns of y that are stored at once")                    \
    X(owner, int, lead, "0", "", "columns that the first matrix has before y's")           \
    X(owner, int, shift, "0", "", "columns of x of a window before those that a tap sees") \
    X(owner, int, rows, "3", "", "of a filter")                                            \
    X(owner, int, columns, "3", "", "of a filter")

CONV_CONFIG(conv_bands_config, CONV_BANDS_CONFIG);

enum {
    BANDS_WINDOW = 16, // columns of x of a matrix
    BANDS_BLOCK = 8,   // columns of y that it makes
    BANDS_ROWS = 16,   // of y, a warp's
    BANDS_BAND = 24,   // a row of a filter with zeros on both sides, as far as it moves along a window
};

/* The most columns of a filter that every column of a block sees in its window. */
enum { BANDS_COLUMNS_MAX = BANDS_WINDOW - BANDS_BLOCK + 1 };

typedef struct conv_bands_shape {
    int threads, blocks;  // of a CTA; of a row of y
    int box_h, x_rows;    // rows of x with their padding, of an image and of all
    int x_pitch, y_pitch; // elements from row to row in shared memory, so that eight rows are in different banks
    int64_t smem_bytes;
} conv_bands_shape;

/* Columns before y's first in shared memory, so that this begins at whole 16 bytes. */
static inline int bands_edge(const conv_bands_config *c)
{
    return (int)round_up(c->lead, BANDS_BLOCK);
}

conv_bands_shape conv_bands_shape_of(const conv_bands_config *config);

void conv_bands(const void *config, int kernel);
