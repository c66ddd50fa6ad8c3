/* tma.h - copies of boxes between global tensors and shared tiles by the tensor memory accelerator. */
#pragma once

#include "cute/tensor.h"

/* A tensor map parameter and the box it moves: (ROWS,COLS), columns contiguous in global memory. */
typedef struct tma_copy {
    val map;
    ckl_dtype dtype;
    int rank; // modes of the global tensor: 2, and one for each outer coordinate
    int rows, cols;
    int swizzle_bytes; // 0, 32, 64, 128: cols * element size must not exceed it
    bool im2col;
} tma_copy;

/* The swizzled layout of a (ROWS,COLS) tile whose rows are a swizzle span apart, as TMA writes and wgmma reads it. */
layout tma_tile_layout(ckl_dtype dtype, int rows, int cols, int swizzle_bytes);

/*
 * Such tiles in shared memory, one after the other; rows of up to 128 bytes are a swizzle span, longer ones are not
 * swizzled. ring: (ROWS,COLS,STAGES). tiles: (ROWS,COLS,COUNT,COUNT_OUTER).
 */
tensor tma_ring(const char *name, ckl_dtype dtype, int rows, int cols, int stages);
tensor tma_tiles(const char *name, ckl_dtype dtype, int rows, int cols, int count, int count_outer);

/* map: of the kernel's list of parameters (ir/params.h), kind `tensor`. The launch gets box and swizzle from here. */
tma_copy make_tma(val map, ckl_dtype dtype, int rank, int rows, int cols, int swizzle_bytes);

/*
 * The same of boxes of more than two modes, innermost first; step: the tensor's stride between elements of the box
 * along each mode, NULL: 1. The tile's columns are the innermost mode, its rows all others, the second one fastest.
 */
tma_copy make_tma_box(val map, ckl_dtype dtype, int rank, const int *box, const int *step, int swizzle_bytes);

/*
 * In im2col mode, of a tensor of channels, columns, rows (, slices) and images: a tile is some pixels, its rows, by
 * some channels. The launch gives the corners of the places (param_tensor); step: from one place to the next along each
 * mode.
 */
tma_copy make_tma_im2col(val map, ckl_dtype dtype, int rank, int pixels, int channels, const int *step,
                         int swizzle_bytes);

/* place: the first pixel's column, row (, slice) and image; offsets: what a tap adds to all of them but the image. */
void tma_load_im2col(const tma_copy *tma, tensor sTile, val channel, const val *place, const val *offsets, val barrier,
                     val multicast_mask);

/* Issued by one thread. row and col are of elements of the global tensor; mask: 0, or the CTAs that get the box. */
void tma_load(const tma_copy *tma, tensor sTile, val row, val col, val barrier, val multicast_mask);
void tma_store(const tma_copy *tma, tensor sTile, val row, val col);
/* The same in one of the matrices of a global tensor of more modes, at `count` further coordinates, nearest first. */
void tma_load_of(const tma_copy *tma, tensor sTile, val row, val col, int count, const val *outer, val barrier,
                 val multicast_mask);
void tma_store_of(const tma_copy *tma, tensor sTile, val row, val col, int count, const val *outer);
/* The same where other CTAs may store these bits, too: they need no order. */
void tma_store_same(const tma_copy *tma, tensor sTile, val row, val col, int count, const val *outer);
/* A store that adds to memory, element by element, as the GPU's atomics do: several are added in any order. */
void tma_add(const tma_copy *tma, tensor sTile, val row, val col);
void tma_store_commit(void);
void tma_store_wait_read(int pending); // their sources may be overwritten
void tma_store_wait(int pending);      // they are complete
void tma_prefetch(const tma_copy *tma);
int64_t tma_bytes(const tma_copy *tma);
