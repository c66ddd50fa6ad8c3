/* attention_score.h - how kernels call the functions of a custom score. */
#pragma once

#include "cutekernellib/operators/attention_score.h"
#include "operators/attention/attention_tile.h"

/* The custom score of a form as a kernel calls it, in a head: batch and head are i32. Without one `how` is NULL. */
typedef struct custom_score {
    const ckl_attention_score *how;
    val batch, head;
    val unit; // factor from products, caps and masks to a score
} custom_score;

/* Head `head` of those of all batches. */
custom_score attention_custom_score_of(const attention_form *form, const attention_values *p, val head);

/* The score of a product after cap and mask, in natural units. And the derivative. */
val attention_custom_value(const custom_score *c, val x, val i, val j);
val attention_custom_slope(const custom_score *c, val x, val i, val j);

/* Between these two, calls share equal computations and reads. No control flow may come between them. */
void attention_custom_share_begin(void);
void attention_custom_share_end(void);

/* Some tokens of a sequence, u32; the last ones may lie past its end. */
typedef struct token_range {
    val first, tokens; // tokens: of the sequence
    int count;
} token_range;

/* Where there is a block function: the kind of a block of queries and keys, i32. */
val attention_custom_block(const custom_score *c, const token_range *queries, const token_range *keys);

/* The scores of a block that is left as it is. */
void attention_custom_leave(const custom_score *c, tensor scores);

/* A custom score applied to a block, element by element; between attention_custom_share_begin() and _end(). */
typedef struct block_scores {
    const custom_score *custom;
    tensor scores;                    // (MMA,MMA_M,MMA_N)
    bool of_keys;                     // are rows keys, and columns queries?
    layout distances;                 // of its elements' columns from that of element 0
    val first, rows[ONLINE_ROWS_MAX]; // the column of element 0; i32
} block_scores;

/* The query and the key of element i, i32. */
void attention_block_pair(const block_scores *s, int64_t i, val *query, val *key);

/* Applies a mask to the scores; of queries and keys past the last ones that of these. */
void attention_mask_block_scores(const block_scores *s, const score_mask *mask, val queries, val keys);

block_scores attention_block_scores_of(const custom_score *c, const tile_rows *r, val block, tensor scores);
val attention_block_score(const void *block_scores, val x, int64_t i); // raw_scores.score

/*
 * Some blocks that are looked at together. Variables: bit n of `seen`: block n is not skipped; of `scored`: it has
 * scores to compute.
 */
enum { BLOCK_WINDOW = 32 };
typedef struct block_window {
    val seen, scored;
} block_window;

block_window attention_block_window_begin(void); // empty

/* Looks at all blocks, of which each lane of the warp takes one: kind(of, number), i32, is that of one. */
void attention_block_window_look(const block_window *w, val (*kind)(const void *of, val number), const void *of);

/* Takes the first block that is left, i32, and its kind; CKL_ATTENTION_SKIP from an empty window. */
val attention_block_window_take(const block_window *w, val *kind);

/*
 * A warp's way through the blocks of keys of a tile, from the last to the first, past those that a custom score skips;
 * ptxas sees that its lanes have equal numbers. Where all are skipped the tile has one block, of kind
 * CKL_ATTENTION_SKIP, whose scores are -inf.
 */
typedef struct key_walk {
    const custom_score *custom;
    const tile_grid *grid;
    const tile *t;
    val block, kind;     // variables: u32; i32, where blocks have kinds
    val next, next_kind; // where they do: i32
    val base;            // variable, i32: block number n of the window is base - n
    block_window window;
} key_walk;

key_walk attention_key_walk_begin(const custom_score *c, const tile_grid *grid, const tile *t);

/* Finds the next block; is there none; its number; stepping on to it. */
void attention_key_walk_look(key_walk *w);
val attention_key_walk_is_last(const key_walk *w);
val attention_key_walk_next(const key_walk *w);
void attention_key_walk_advance(const key_walk *w);

/* Products of a tile's rows and the walk's block become scores: soft cap, mask, custom score. */
void attention_make_scores(const key_walk *w, const tile_rows *r, tensor scores);
