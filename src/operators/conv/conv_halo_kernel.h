/* conv_halo_kernel.h - what the files of the Hopper kernel of a filter a channel share. */
#pragma once

#include "cute/pipeline.h"
#include "cute/tma.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_halo.h"

/* Everything the roles share. */
typedef struct halo_kernel {
    const conv_halo_config *cfg;
    conv_halo_shape size;
    conv_values p;
    tma_copy tmaX, tmaY; // for bands, these store y, too
    tensor sX;           // (CHANNEL,COLUMN,ROW,IMAGE,STAGES); for bands (PIXEL,CHANNEL,STAGES)
    tensor sW;           // (CHANNEL,TAP) of f32
    tensor sBands;       // (ELEMENT,COPY,ROW,CHANNEL)
    tensor sY;           // (PIXEL,CHANNEL,1)
    pipeline ring;
    val channel; // the CTA's first
    val tiles_w, tiles_h, count;
} halo_kernel;

/* A tile of y: its first pixel and its first image. */
typedef struct tile_place {
    val w, h, n;
} tile_place;

tile_place conv_halo_place(const halo_kernel *k, val tile);

/* The next tile to load, and its stage. */
typedef struct tiles_ahead {
    pipeline_state stage;
    val tile;
} tiles_ahead;

/*
 * Loads the box of x below the next tile, if there is one, to a stage that all have left; and the thread that does: the
 * first of the last warp.
 */
void conv_halo_load_ahead(const halo_kernel *k, tiles_ahead *ahead);
val conv_halo_loads(const halo_kernel *k);

/* By bands: memory, zeros beside the filters, and, once these and the filters are there, the tiles. */
void conv_halo_describe_bands(halo_kernel *k);
void conv_halo_clear_bands(const halo_kernel *k);
void conv_halo_multiply(const halo_kernel *k, tiles_ahead *ahead);
