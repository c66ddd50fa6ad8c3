/* conv_halo.h - the Hopper kernel of a filter a channel: its config, and what its host side shares. */
#pragma once

#include "operators/conv/conv_config.h"

#define CONV_HALO_CONFIG(X, owner)                                                       \
    X(owner, int, warps, "4", "2 4 8", "of 8 channels each")                             \
    X(owner, int, wide, "2", "1 2 4 8", "windows of 16 columns of x beside each other")  \
    X(owner, int, high, "16", "4 8 16", "rows of y")                                     \
    X(owner, int, images, "1", "1 2 4 8", "of a tile, where it has all of their pixels") \
    X(owner, int, stages, "2", "2 3 4", "tiles of x in shared memory")                   \
    X(owner, int, ctas, "2", "1 2 3", "that must fit an SM, which limits registers")     \
    X(owner, int, rows, "3", "", "of a filter that see more than padding")               \
    X(owner, int, columns, "3", "", "of a filter, likewise")                             \
    CONV_STEPS_CONFIG(X, owner)

CONV_CONFIG(conv_halo_config, CONV_HALO_CONFIG);

enum {
    CONV_HALO_VECTOR = 8,  // channels of a warp, and of a thread
    CONV_HALO_WINDOW = 16, // columns of x of a matrix
    CONV_HALO_COLUMNS = 8, // of y that it makes at most
    CONV_HALO_LANES = 16,  // its rows: of blocks side by side, below each other, and of images
};

/*
 * Zeros before a row of a filter: as far as its band moves along the 16 places; and its elements with zeros on both
 * sides.
 */
static inline int conv_halo_band_before(const conv_halo_config *c)
{
    return c->step_w == 1 ? 8 : 14;
}

static inline int conv_halo_band(const conv_halo_config *c)
{
    return conv_halo_band_before(c) + CONV_HALO_WINDOW;
}

/* Blocks of rows of a tile, from each of which a matrix has a row. */
static inline int conv_halo_blocks(const conv_halo_config *c)
{
    return CONV_HALO_LANES / (c->wide * c->images);
}

/* What the kernel and its host side derive alike from a config. */
typedef struct conv_halo_shape {
    int channels, threads; // of a CTA
    int cols;              // of y that 16 of x make
    int box_w, box_h;      // of x under a tile
    int64_t stage_bytes, smem_bytes;
} conv_halo_shape;

conv_halo_shape conv_halo_shape_of(const conv_halo_config *config);

/*
 * The problem as the kernel computes it. The gradient of data by stride 1 is a forward problem: dy with the filters
 * turned round. A pad may be negative.
 */
typedef struct conv_halo_problem {
    conv_mode m[CONV_MODES];           // of the taps that are seen
    int64_t tap, tap_step[CONV_MODES]; // in w: the first of these, and from one to the next
} conv_halo_problem;

conv_halo_problem conv_halo_of(const ckl_conv_desc *desc);

void conv_halo(const void *config, int kernel);
