/* conv_narrow_kernel.h - what the files of the kernel of few filters share. */
#pragma once

#include "cute/mma.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_narrow.h"

enum { CONV_NARROW_TILES_N = 4, CONV_NARROW_THREADS = 32 * CONV_NARROW_WARPS };

typedef struct narrow_kernel {
    const conv_narrow_config *cfg;
    conv_narrow_shape size;
    conv_values p;
    val channels, outputs;
    tiled_mma mma;
    tensor sW, sHalo;         // (UNIT,FILTER,HALF,STEP,ROW,CHUNK); (CHANNEL,COLUMN,ROW,BUFFERS)
    tensor rA, rB, acc;       // (WORDS,1,1), (WORDS,1,1,MMA_N,ROW), (MMA,M,MMA_N)
    val pixel, upper, filter; // a lane's rows of ldmatrix; upper: all ones in lanes that have the second half of a step
    conv_tile_grid grid;
    val bias[2 * CONV_NARROW_TILES_N], scale[2 * CONV_NARROW_TILES_N]; // of the thread's channels
} narrow_kernel;

/*
 * For all threads: zeros where nothing is copied; all filters; some channels of the pixels below a tile, to a buffer by
 * cp.async.
 */
void conv_narrow_clear(const narrow_kernel *k);
void conv_narrow_load_filters(const narrow_kernel *k);
void conv_narrow_load(const narrow_kernel *k, val tile, val chunk, val buffer);
