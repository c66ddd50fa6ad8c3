/* conv_nchw.h - the Hopper kernel that writes planes of channels: its config, and what its host side shares. */
#pragma once

#include "operators/conv/conv_sm90.h"

#define CONV_NCHW_CONFIG(X, owner)                                                                             \
    X(owner, int, consumers, "2", "1 2", "warpgroups of 64 filters each")                                      \
    X(owner, int, tile_n, "128", "64 128 192 256", "pixels of a CTA")                                          \
    X(owner, int, tile_k, "64", "16 32 64", "channels of a stage")                                             \
    X(owner, int, stages, "4", "3 4 5 6 8", "chunks of channels in shared memory")                             \
    X(owner, bool, copied, "1", "0 1",                                                                         \
      "x is read from a copy in NHWC, by im2col mode: else planes as they lie, which only a tap alone allows") \
    X(owner, bool, pairs, "0", "0 1", "two places of a plane are copied at a time")

CONV_CONFIG(conv_nchw_config, CONV_NCHW_CONFIG);

enum {
    CONV_NCHW_SPANS_MAX = 4, // of a tile
    CONV_NCHW_CANDIDATES = 24,
    CONV_NCHW_COPY_CHANNELS = 32, // of a warp of the copy
    CONV_NCHW_FEW_PLACES = 16,    // of which blocks of 8 places would waste many threads
};

/* What the kernel and its host side derive alike from a config. */
typedef struct conv_nchw_shape {
    int tile_m, spans; // filters and spans of 64 pixels of a CTA
    int y_cols;        // of a staging buffer
    int64_t stage_bytes, smem_bytes;
} conv_nchw_shape;

conv_nchw_shape conv_nchw_shape_of(const conv_nchw_config *config);

/* A problem as the kernel sees it: planes that are read and written, and what is copied first. */
typedef struct conv_nchw_problem {
    int from; // the tensor that is read
    int64_t images;
    int64_t from_pixels, to_pixels, from_channels, to_channels; // of a plane
    int64_t taps;
    int64_t filter_copy, x_copy;                  // bytes, 0 where TMA takes them as they lie
    bool copies_x, follows;                       // may im2col mode follow its pixels?
    bool whole;                                   // do planes of y begin at whole 16 bytes?
    int64_t lower[CONV_MODES], upper[CONV_MODES]; // corners of im2col mode
} conv_nchw_problem;

conv_nchw_problem conv_nchw_of(const ckl_conv_desc *desc);

/* Kernels of a plan: the product, and copies of the filters and of x. */
enum { CONV_NCHW_MAIN, CONV_NCHW_COPY, CONV_NCHW_KERNELS };

void conv_nchw_sm90(const void *config, int kernel);

/* Matrices of channels by places, and their copies: a row of channels for each place, `pitch` elements apart. */
typedef struct conv_planes {
    const void *from, *to;
    int64_t outer, channels, places, pitch; // outer: 0 if there is nothing to copy
} conv_planes;

/* Makes two copies by kernel `kernel` of a plan, described by conv_nchw_copy(); pairs: of the first. */
ckl_status conv_nchw_copy_launch(const ckl_plan *plan, int kernel, const conv_planes copies[2], bool pairs,
                                 ckl_stream stream);

/* Describes the copies; pairs: x has an even number of places and begins at whole 4 bytes. */
void conv_nchw_copy(ckl_dtype dtype, bool pairs);
