/*
 * attention_chunks.h - heads as chunks of columns: in shared memory, as boxes of TMA, as operands and results of
 * products on tensor cores.
 */
#pragma once

#include "cute/mma.h"
#include "cute/tma.h"
#include "operators/attention/attention_config.h"

enum {
    LANES = 32,
    WARPGROUP = 128, // threads
    VECTOR = 8,      // elements of 16 bytes
    STEP = 16,       // of K of an MMA
};

/* A head of Q and K, or of V and O, in shared memory: chunks of columns, each a span of the swizzle. */
typedef struct columns {
    int chunk, chunks;
    int used;    // columns that are multiplied: a multiple of 16
    int subtile; // columns: divides `used` and a chunk
} columns;

columns attention_columns_of(int d);
int64_t attention_columns_bytes(columns c, int rows);

/*
 * COUNT tiles, one behind the other or `next` elements apart, each chunk as TMA writes and wgmma reads it:
 * (ROWS,CHUNK,CHUNKS,COUNT)
 */
layout attention_chunks_layout(ckl_dtype dtype, columns c, int rows, int count);
layout attention_chunks_apart(ckl_dtype dtype, columns c, int rows, int count, int64_t next);
tensor attention_chunks(const char *name, ckl_dtype dtype, columns c, int rows, int count); // in memory of their own

/* Such tiles as an operand that is summed over their rows, as V is: (DV,BN,COUNT) of the same memory. */
tensor attention_transposed_chunks(tensor sV, columns c);

/*
 * A TMA copy of boxes of `rows` tokens of one head. Of a ragged problem its map is (D,WINDOW,HEADS,TOKENS+1,WINDOW+1)
 * in place of (D,TOKENS,HEADS,BATCH). With coordinates (d, i, h, end, WINDOW) it is at token end + i - WINDOW, so that
 * a box ends where a sequence does: past it reads are zeros and nothing is stored. The last mode takes WINDOW rows off,
 * by a stride that makes addresses wrap, as Triton's ragged descriptors do (triton/tools/ragged_tma.py).
 */
tma_copy attention_make_tma(val map, const attention_form *form, columns c, int rows);

/* Head and batch of a tile. A ragged problem is one batch for TMA and strides. */
typedef struct tile_place {
    val head, batch;
} tile_place;

/* Where such a box begins: the coordinates after the column's, of which `count` come after the row's. */
typedef struct tile_box {
    val row, outer[3];
    int count;
} tile_box;

/* The box from row `row` of a batch, or of a ragged problem's sequence of `tokens` from `begin` on. */
tile_box attention_box_of(bool ragged, val begin, val tokens, val row, const tile_place *at);

/* For one thread: loads a tile (ROWS,CHUNK,CHUNKS) from there, chunk by chunk. */
void attention_load_chunks(const tma_copy *tma, tensor sTile, const tile_box *at, val barrier);

/* One warpgroup's wgmma over 64 x n; sources: SS, or RS for A in registers. And mma.sync of warps that share rows. */
tiled_mma attention_warpgroup_mma(ckl_dtype dtype, int n, const char *sources);
tiled_mma attention_warps_mma(ckl_dtype dtype, int warps);

/* Operands of scores = X * Y^T by wgmma, by chunks of columns. */
enum { CHUNKS_MAX = 4 };
typedef struct score_operands {
    columns n;
    tensor tCrX[CHUNKS_MAX]; // (1,MMA_K)
    tensor tCrY[CHUNKS_MAX]; // (1,MMA_K,STAGES)
} score_operands;

/* Of tile `index` of X, and all stages of Y: (ROWS,CHUNK,CHUNKS,COUNT), (BN,CHUNK,CHUNKS,STAGES). */
score_operands attention_score_operands_of(const tiled_mma *mma, columns n, tensor sX, val index, tensor sY);

/* scores = X * Y^T of a stage; asynchronous. Columns past the last used one are zeros and left out. */
void attention_issue_scores(const tiled_mma *mma, const score_operands *of, val stage, tensor scores);

/* For a warpgroup: rounds accumulators, from column `first` on, into a tile (ROWS,CHUNK,CHUNKS). */
void attention_store_chunks(tensor acc, int first, tensor sTile, columns n);

/* out += weights * V by mma.sync of a CTA or of each warp, 16 keys and a subtile of columns at a time. sVt: (DV,BN) */
void attention_multiply_values(const tiled_mma *mma, tensor weights, tensor sVt, columns dv, bool by_warp, tensor out);
