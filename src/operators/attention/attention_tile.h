/*
 * attention_tile.h - what attention's kernels share: which queries a CTA takes and which keys they see, heads as chunks of
 * columns, the products of those on tensor cores, and the row-wise ends of a tile.
 */
#ifndef CKL_ATTENTION_TILE_H
#define CKL_ATTENTION_TILE_H

#include "cute/mma.h"
#include "cute/tma.h"
#include "operators/attention/attention_softmax.h"

/* A head of Q and K, or of V and O, in shared memory: chunks of columns, each a span of the swizzle. */
typedef struct columns {
    int chunk, chunks;
    int used;    // columns that are multiplied: a multiple of 16
    int subtile; // columns: divides `used` and a chunk
} columns;

columns attention_columns_of(int d);
int64_t attention_columns_bytes(columns c, int rows);

/* COUNT tiles, one behind the other or `next` elements apart, each chunk as TMA writes and wgmma reads it: (ROWS,CHUNK,CHUNKS,COUNT) */
layout attention_chunks_layout(ckl_dtype dtype, columns c, int rows, int count);
layout attention_chunks_apart(ckl_dtype dtype, columns c, int rows, int count, int64_t next);
tensor attention_chunks(const char *name, ckl_dtype dtype, columns c, int rows, int count); // in memory of their own

/* Such tiles as an operand that is summed over their rows, as V is: (DV,BN,COUNT) of the same memory. */
tensor attention_transposed_chunks(tensor sV, columns c);

/* The tokens of a batch, or of a sequence of a ragged problem. u32, but for first and last. */
typedef struct sequence {
    val q, kv;       // how many
    val first, last; // query i sees keys first + i .. last + i; i32
    val q_at, kv_at; // where they begin
} sequence;

/* All tiles of a problem. Values are u32. */
typedef struct tile_grid {
    bool right, left; // keys on this side are hidden
    bool ragged;
    int rows, keys;          // of a tile; of a block
    sequence longest;        // the longest possible; without q_at
    val starts_q, starts_kv; // pointers, where ragged
    val q_total;
    val heads, group; // of q in a batch; that share one of k and v
    val all_heads;    // of all batches
    val tiles_m;      // of a head
    val section;      // heads whose tiles run together
} tile_grid;

/* The queries of a CTA, and the blocks of keys that they see. */
typedef struct tile {
    val row;        // the first query
    val head;       // among those of all batches
    val first, end; // blocks: at least one; a tile without keys has a block without weights
    sequence s;
} tile;

/* p: the kernel's values; rows and keys are 0 where nobody asks for tiles and blocks. */
tile_grid attention_tile_grid_of(const attention_form *form, const attention_values *p, int rows, int keys);

/* The tokens of a batch. */
sequence attention_sequence_of(const tile_grid *g, val batch);

/* Heads in sections whose K and V fit L2; within one the longest tiles of all heads come first. */
tile attention_tile_of(const tile_grid *g, val number);

/* Head and batch of a tile's Q and O, or of its K and V. A ragged problem is one batch for TMA and strides. */
typedef struct tile_place {
    val head, batch;
} tile_place;

tile_place attention_place_of(const tile_grid *g, const tile *t, bool of_keys);

/*
 * A TMA copy of boxes of `rows` tokens of one head. Of a ragged problem its map is (D,WINDOW,HEADS,TOKENS+1,WINDOW+1) in
 * place of (D,TOKENS,HEADS,BATCH). With coordinates (d, i, h, end, WINDOW) it is at token end + i - WINDOW, so that a
 * box ends where a sequence does: past it reads are zeros and nothing is stored. The last mode takes WINDOW rows off, by
 * a stride that makes addresses wrap, as Triton's ragged descriptors do (triton/tools/ragged_tma.py).
 */
tma_copy attention_make_tma(val map, const attention_form *form, columns c, int rows);

/* Where such a box begins: the coordinates after the column's, of which `count` come after the row's. */
typedef struct tile_box {
    val row, outer[3];
    int count;
} tile_box;

/* The box from row `row` of a batch, or of a ragged problem's sequence of `tokens` from `begin` on. */
tile_box attention_box_of(bool ragged, val begin, val tokens, val row, const tile_place *at);

/* For one thread: loads a tile (ROWS,CHUNK,CHUNKS) from there, chunk by chunk. */
void attention_load_chunks(const tma_copy *tma, tensor sTile, const tile_box *at, val barrier);

/* One warpgroup's wgmma over 64 x n; sources: SS, or RS for A in registers. And mma.sync of warps that share the rows. */
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

/* out += weights * V by mma.sync of a CTA or of each warp, 16 keys and a subtile of the columns at a time. sVt: (DV,BN) */
void attention_multiply_values(const tiled_mma *mma, tensor weights, tensor sVt, columns dv, bool by_warp, tensor out);

/* The sink of a tile's head, f32; NO_SINK where the problem has none. */
val attention_sink_of(const tile_grid *g, const tile *t, const attention_form *form, const attention_values *p);

/* Some rows of a tile, from `row` on, whose scores with a block of keys an MMA tiles; tid is this thread's in it. */
typedef struct tile_rows {
    const tile_grid *grid;
    const sequence *s;
    const tiled_mma *mma;
    val row, tid;
    int rows;
} tile_rows;

/* Rows and columns of a thread's scores: (MMA,MMA_M,MMA_N). */
tensor attention_tile_coordinates(const tile_rows *r);

/* Has a block keys past the last one, or keys that one of the rows does not see? */
val attention_block_is_cut(const tile_rows *r, val block);

/* Keys past the last one, and those that a query does not see, get scores of -inf. */
void attention_mask_block(const tile_rows *r, val block, tensor scores);

/* One of the tensors, and the mask, in global memory: (BATCH,HEADS,TOKENS,D), (BATCH,HEADS,Q,KV). */
tensor attention_tensor_of(const attention_form *form, const attention_values *p, int which, const val *pointers);
tensor attention_mask_of(const attention_form *form, const attention_values *p);

/* A mask of single scores: (Q,KV) of a head, of dtype CKL_BOOL or to be added in units of the scores. */
typedef struct score_mask {
    tensor gM;
    val unit;
} score_mask;

/* A score with an element of the mask applied. */
val attention_masked_score(const score_mask *mask, val x, val by);

/* Applies the mask to scores; keys and queries past the last ones are left to attention_mask_block(). */
void attention_mask_scores_by(const tile_rows *r, const score_mask *mask, val block, tensor scores);

/* The gradient of the mask in a head, among those of all batches. (Q,KV) */
tensor attention_mask_gradient_of(const attention_form *form, const attention_values *p, val head);

/* The mask of a problem at a tile's head. */
score_mask attention_score_mask_of(const tile_grid *g, const tile *t, const attention_form *form,
                                   const attention_values *p);

/* The logarithms of the rows' sums; one of the four lanes of a row writes them. */
void attention_store_logarithms(const tile_rows *r, const online_rows *rows, val lse, val head);

#endif
