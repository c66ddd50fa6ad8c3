/* conv_stem.h - the Hopper kernel of first layers: its config, and what its host side shares. */
#pragma once

#include "operators/conv/conv_sm90.h"

#define CONV_STEM_CONFIG(X, owner)                                                     \
    X(owner, bool, nchw, "0", "0 1", "channels lie apart")                             \
    X(owner, int, channels, "3", "", "of x")                                           \
    X(owner, int, vec, "1", "1 4 8", "channels of a load")                             \
    X(owner, int, tile_n, "64", "16 32 48 64 80 96 112 128", "filters of a CTA")       \
    X(owner, bool, several, "0", "0 1", "CTAs share the filters")                      \
    X(owner, int, ctas, "2", "1 2 3 4", "that must fit an SM, which limits registers") \
    X(owner, int, rows, "3", "", "of a filter")                                        \
    X(owner, int, columns, "3", "", "of a filter")                                     \
    CONV_STEPS_CONFIG(X, owner)                                                        \
    X(owner, bool, direct, "0", "0 1", "y is stored element by element, in NHWC too")  \
    X(owner, bool, pairs, "0", "0 1", "NCHW: two columns of y are stored together")    \
    X(owner, int, tile_w, "16", "", "columns of y of a tile")                          \
    X(owner, int, tile_h, "8", "", "rows of them: up to 128 pixels")

CONV_CONFIG(conv_stem_config, CONV_STEM_CONFIG);

enum {
    CONV_STEM_CONSUMERS = 2, // warpgroups
    CONV_STEM_THREADS = 128 * CONV_STEM_CONSUMERS,
    CONV_STEM_W = 16, // pixels of a warp, and columns of a tile but in planes of an odd number of columns
    CONV_STEM_H = 4 * CONV_STEM_CONSUMERS,
    CONV_STEM_PIXELS = CONV_STEM_W * CONV_STEM_H, // of a tile, at most
    CONV_STEM_K = 16,                             // channels under taps of a step
    CONV_STEM_CHANNELS_MAX = 64,
    CONV_STEM_FILTERS_MAX = 128, // of a CTA
    CONV_STEM_STEPS_MAX = 64,
    CONV_STEM_STEPS_AT_ONCE = 4, // 4 registers each
    CONV_STEM_NEAR = 8,          // neighbouring filters of a warp's load, where they lie across
    CONV_STEM_PLANES = 32,       // channels of a warp's row that go through shared memory together
};

/* Are tiles whole rows of a plane, or parts of one, whose pixels follow each other in y? */
static inline bool conv_stem_is_flat(const conv_stem_config *c)
{
    return c->nchw && !c->pairs;
}

/* What the kernel and its host side derive alike from a config. */
typedef struct conv_stem_shape {
    int padded;               // channels in shared memory: 4 or whole 8
    int pitch;                // from pixel to pixel there: an odd number of 8, so that 8 pixels are in different banks
    int taps, steps;          // of a filter; steps of wgmma
    bool async;               // x comes by cp.async, 16 bytes at a time
    int loads, lines_at_once; // of a lane: vectors of a line; lines that are under way together
    int halo_h, halo_w, halo; // rows and columns of x under a tile, and elements of both
    int y_cols;               // of a staging buffer
    int y_rows, y_pitch;      // in shared memory before it: channels of pixels or, in NCHW, pixels of channels
    int y_parts;              // that have such rows: warps, or the CTA
    int64_t smem_bytes;
} conv_stem_shape;

conv_stem_shape conv_stem_shape_of(const conv_stem_config *config);

void conv_stem(const void *config, int kernel);
