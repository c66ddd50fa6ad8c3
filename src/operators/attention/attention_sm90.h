/* attention_sm90.h - what the roles of the forward kernel for Hopper share. */
#pragma once

#include "cute/kernel.h"
#include "operators/attention/attention_score.h"

enum { ROWS = ATTENTION_ROWS };

/* Everything the roles share. Letters: Q (BM,D), K (BN,D), V (BN,DV), O (BM,DV). */
typedef struct sm90_kernel {
    const attention_sm90_config *cfg;
    const attention_form *form;
    attention_values p;
    columns d, dv;
    tma_copy tmaQ, tmaK, tmaV, tmaO;
    tensor sQ;     // (ROWS,CHUNK,CHUNKS,CONSUMERS*QUERIES)
    tensor sK, sV; // (BN,CHUNK,CHUNKS,SLOTS), in the same memory
    tensor sO;     // (ROWS,CHUNK,BUFFERS,CONSUMERS)
    pipeline q;    // a stage for each tile of Q
    pipeline ring;
    dynamic_scheduler scheduler;
    tile_grid grid;
    val whole, tiles; // tiles in whole turns of all CTAs; all, of which with parts the others are of one consumer
} sm90_kernel;

/* Tile `number`; with parts those behind the whole turns have rows of the first consumer alone. */
tile attention_sm90_tile_of(const sm90_kernel *k, val number);

/* One consumer's view: its threads, its operands, the state of its rows. */
typedef struct consumer_role {
    val index, first_thread;
    tiled_mma qk, pv;
    score_operands keys;
    tensor tCrV;        // (1,MMA_K,SLOTS)
    tensor scores, out; // (MMA,1,1)
    tensor weights;     // (PAIRS,1,MMA_K)
    tensor sO;          // (ROWS,CHUNK,BUFFERS)
    online_rows rows;
    val exact;                  // not 0: a block is scored, and its maxima found, before there are weights; u32
    val lowered;                // with old maxima: not 0 where the rows' factors are not 1; u32
    val limit[ONLINE_ROWS_MAX]; // with a cap beside: attention_cap_limits(); f32
    val tiles;                  // that it takes part in: others than the first consumer in whole ones
    custom_score custom;        // in the tile's head
    pipeline_state at, q;
} consumer_role;

/* Steps on to the next tile of Q, of the consumer or, for the producer, of the first one. */
void attention_sm90_advance_queries(const sm90_kernel *k, pipeline_state *q);

/* Its queries of a tile. */
tile_rows attention_sm90_rows_of(const sm90_kernel *k, const consumer_role *c, const tile *t);

/* What is known of a block's softmax before there are products. */
void attention_sm90_look_ahead(const sm90_kernel *k, consumer_role *c, const key_walk *w);

/*
 * The products of a tile's first block become weights, by their own maxima; those of the others, whose keys are in a
 * slot. What was summed before counts as many times as the rows' factors say.
 */
void attention_sm90_weigh_first(const sm90_kernel *k, consumer_role *c, const key_walk *w);
void attention_sm90_weigh(const sm90_kernel *k, consumer_role *c, const key_walk *w, val slot);

/* A CTA's way through the tiles: the numbers that it draws, or every grid_x-th. */
typedef struct walk {
    val turn, number;
} walk;

/* At its beginning; sets the number of the first or next tile. The producer fetches, the others follow. */
walk attention_sm90_walk(void);
void attention_sm90_next_tile(const sm90_kernel *k, walk *w, bool fetches);

/* What warpgroup 0 does. */
void attention_sm90_produce(const sm90_kernel *k);
