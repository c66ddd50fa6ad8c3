/* conv_narrow.h - the kernel of few filters: its config, and what its host side shares. */
#pragma once

#include "operators/conv/conv_config.h"

#define CONV_NARROW_CONFIG(X, owner)                                                       \
    X(owner, int, tile_n, "8", "8 16 24 32", "channels of a CTA that are written")         \
    X(owner, int, chunk, "64", "", "channels of what is read, of a stage")                 \
    X(owner, int, channels, "64", "", "of what is read")                                   \
    X(owner, int, vec, "8", "2 4 8", "elements of a copy of pixels")                       \
    X(owner, int, ctas, "3", "1 2 3 4 5 6", "that must fit an SM, which limits registers") \
    X(owner, int, rows, "3", "", "of a filter")                                            \
    X(owner, int, columns, "3", "", "of a filter")                                         \
    CONV_STEPS_CONFIG(X, owner)                                                            \
    X(owner, bool, pairs, "0", "0 1", "two channels are stored together")                  \
    X(owner, bool, copied, "0", "0 1", "pixels are read from a copy, of whole 16 bytes with zeros")

CONV_CONFIG(conv_narrow_config, CONV_NARROW_CONFIG);

enum {
    CONV_NARROW_WARPS = 4,
    CONV_NARROW_W = 16,   // pixels of a tile: a row of a warp
    CONV_NARROW_M = 4,    // rows of a warp
    CONV_NARROW_ROWS = 3, // of a filter at once, in registers
    CONV_NARROW_H = CONV_NARROW_WARPS * CONV_NARROW_M,
    CONV_NARROW_UNIT = 8, // channels of a row of ldmatrix
};

/* Kernels of a plan. */
enum { CONV_NARROW_MAIN, CONV_NARROW_COPY, CONV_NARROW_KERNELS };

/* What the kernel and its host side derive alike from a config. */
typedef struct conv_narrow_shape {
    int units, steps;        // of a row of a filter and a chunk: of 8 channels, of mma
    int halo_h, halo_w;      // pixels under a tile
    int pitch, halo;         // elements of a pixel, of all of them
    int chunks;              // stages of a tile
    int real;                // channels of a stage that are copied: others are zeros for good
    int64_t filter, filters; // elements of a chunk, of all of them
    int64_t smem_bytes;
} conv_narrow_shape;

conv_narrow_shape conv_narrow_shape_of(const conv_narrow_config *config);

void conv_narrow(const void *config, int kernel);
