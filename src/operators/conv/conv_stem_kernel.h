/* conv_stem_kernel.h - what the files of the kernel of first layers share. */
#pragma once

#include "cute/mma.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_stem.h"

typedef struct stem_kernel {
    const conv_stem_config *cfg;
    conv_stem_shape size;
    conv_values p;
    tma_copy tmaY;
    tiled_mma mma;
    tensor sW;    // (BN,16,STEPS)
    tensor sHalo; // (HALO,BUFFERS)
    tensor sY;    // (ROWS,COLS,BUFFERS,WARPGROUPS)
    tensor sRows; // (PITCH,ROWS,PARTS)
    tensor tCrW;  // (MMA_N,MMA_K,STEPS)
    tensor acc, rA;
    val first;                      // of the CTA's filters
    val group, tid, warp_row, lane; // warpgroup, thread of it, the warp's 16 pixels of a tile
    conv_tile_grid grid;
    conv_vectors vectors; // of the thread's columns
} stem_kernel;

/*
 * For all threads: zeros where x has no channels; the CTA's filters, and beside them the pixels below its first tile;
 * those below a tile, if there is one, to a buffer.
 */
void conv_stem_clear(const stem_kernel *k);
void conv_stem_load_first(const stem_kernel *k);
void conv_stem_load_tile(const stem_kernel *k, val tile, val buffer);
