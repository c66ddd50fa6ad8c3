/* conv_mma.h - products of tiles in shared memory, as kernels without wgmma have them, of 128 threads. */
#pragma once

#include "cute/kernel.h"
#include "operators/conv/conv_config.h"

/* The K-major tiles of an operand, `bytes` of K each, without bank conflicts for what reads them: (ROWS,BK,STAGES). */
tensor conv_operand_tiles(const conv_form *form, const char *name, int rows, int bytes, int stages);

/* mma.sync by 2 x 2 warps, or for f32 as it is 8 x 16 threads that multiply alone. */
tiled_mma conv_mma(const conv_form *form);

/* acc += A * B^T, of one stage. Rows are multiples of 32. */
void conv_multiply(const tiled_mma *mma, tensor sA, tensor sB, val stage, tensor acc);
