/*
 * attention_tile.h - which queries a CTA of attention takes, which keys they see, masks, and the row-wise ends of a
 * tile.
 */
#pragma once

#include "operators/attention/attention_chunks.h"
#include "operators/attention/attention_softmax.h"

/* The tokens of a batch, or of a sequence of a ragged problem. u32, but for first and last. */
typedef struct sequence {
    val q, kv;       // how many
    val first, last; // query i sees keys first + i .. last + i; i32
    val q_at, kv_at; // where they begin
} sequence;

/* All tiles of a problem. */
typedef struct tile_grid {
    const attention_form *form;
    const attention_values *p;
    int rows, keys; // of a tile; of a block
} tile_grid;

/* The queries of a CTA, and the blocks of keys that they see. */
typedef struct tile {
    val row;        // the first query
    val head;       // among those of all batches
    val first, end; // blocks: at least one; a tile without keys has a block without weights
    sequence s;
} tile;

/* The tokens of a batch. */
sequence attention_sequence_of(const attention_form *form, const attention_values *p, val batch);

/* Heads in sections whose K and V fit L2; within one the longest tiles of all heads come first. */
tile attention_tile_of(const tile_grid *g, val number);

/* Of Q and O of a head, among those of all batches; or of its K and V. */
tile_place attention_place_of(const tile_grid *g, val head, bool of_keys);

/* The sink of such a head, f32; NO_SINK where the problem has none. */
val attention_sink_of(const tile_grid *g, val head);

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

/* So do rows past the last one. */
void attention_mask_rows(const tile_rows *r, tensor scores);

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

/* The gradient of the mask in a head, among those of all batches. (Q,KV) */
tensor attention_mask_gradient_of(const attention_form *form, const attention_values *p, val head);

/* The mask of a problem at a head, among those of all batches. */
score_mask attention_score_mask_of(const tile_grid *g, val head);

/* The logarithms of all rows' sums, (Q,HEADS); storing those of some rows: one of the four lanes of a row writes. */
tensor attention_logarithms_of(const attention_form *form, const attention_values *p);
void attention_store_logarithms(const tile_rows *r, const online_rows *rows, val head);
