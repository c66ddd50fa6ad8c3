/* conv_sm90_kernel.h - the Hopper kernel of convolution: what its producer (conv_sm90_load.c) and consumers share. */
#pragma once

#include "operators/conv/conv_roles.h"
#include "operators/conv/conv_sm90.h"

/* Where a tile begins: its place, image and first filter; its slice, and the K tiles of the slice. */
typedef struct conv_sm90_place {
    val at[CONV_MODES], image, filter;
    val slice, first, k_tiles;
    val fresh; // predicate: it is the CTA's first, with which filters come that stay
} conv_sm90_place;

/* Everything the roles share. */
typedef struct conv_sm90_kernel {
    const conv_sm90_config *cfg;
    conv_sm90_shape size;
    conv_values p;
    tma_copy tmaX, tmaW, tmaY, tmaResidual;
    tensor sX, sW; // (BM,DEPTH,STAGES), (BN,DEPTH,SLOTS)
    tensor sBoxes,
        sSpans; // (BM,BK,STAGES), (BN,BK,SLOTS) or, of an N-major W, (BK,SPAN,SPANS,SLOTS): as TMA writes them
    tensor sY;  // (ROWS,COLS,BUFFERS,CONSUMERS)
    pipeline ring;
    int64_t residual_barriers;              // two per consumer: the residual of a tile has arrived
    val tiles[CONV_MODES], images, filters; // tiles along each
    val count;
    val chunks, k_tiles; // of channels; in all
} conv_sm90_kernel;

/* Filters fastest: CTAs side by side read the same pixels. */
conv_sm90_place conv_sm90_place_of(const conv_sm90_kernel *kernel, val tile);

/* Taps of a filter along a mode, of which a tall stage has all rows. */
val conv_sm90_taps_along(const conv_sm90_kernel *kernel, int mode);

/* Where the filters of tap r of a stage lie; where they stay, of a K tile in its place. */
val conv_sm90_slot_of_tap(const conv_sm90_kernel *kernel, val stage, int r);

/* The first row of a tall stage's box is that of the filter's first row, or of the last where they go backwards. */
int conv_sm90_row_of_tap(const conv_sm90_kernel *kernel, int r);

/* The producer, one thread: fills the stages of all tiles of the CTA. */
void conv_sm90_load_tiles(const void *kernel);
