/* attention_sm90.h - what the roles of the forward kernel for Hopper share. */
#pragma once

#include "cute/kernel.h"
#include "operators/attention/attention_score.h"

enum {
    WARPGROUP = 128,
    ROWS = ATTENTION_ROWS,
};

/* Everything the roles share. Letters: Q (BM,D), K (BN,D), V (BN,DV), O (BM,DV). */
typedef struct sm90_kernel {
    const attention_sm90_config *cfg;
    const attention_form *form;
    attention_values p;
    columns d, dv;
    tma_copy tmaQ, tmaK, tmaV, tmaO;
    tensor sQ;     // (ROWS,CHUNK,CHUNKS,CONSUMERS)
    tensor sK, sV; // (BN,CHUNK,CHUNKS,SLOTS), in the same memory
    tensor sO;     // (ROWS,CHUNK,BUFFERS,CONSUMERS)
    pipeline q;    // a stage for each consumer, or two
    pipeline ring;
    dynamic_scheduler scheduler;
    tile_grid grid;
    val whole, tiles; // tiles in whole turns of all CTAs; all, of which with parts the others are of one consumer
} sm90_kernel;

/* Tile `number`; with parts those behind the whole turns have rows of the first consumer alone. */
tile attention_sm90_tile_of(const sm90_kernel *k, val number);

/* A CTA's way through the tiles: the numbers that it draws, or every grid_x-th. */
typedef struct walk {
    val turn, number;
} walk;

/* At its beginning; sets the number of the first or next tile. The producer fetches, the others follow. */
walk attention_sm90_walk(void);
void attention_sm90_next_tile(const sm90_kernel *k, walk *w, bool fetches);

/* Do scores go on from one tile to the next, a block ahead of their softmax? */
static inline bool attention_sm90_streams(const attention_sm90_config *c)
{
    return c->probe & 8;
}

/* On to the queries of the next tile: `stage` is of consumer 0, or of one. */
void attention_sm90_next_queries(const sm90_kernel *k, pipeline_state *of);

/* What warpgroup 0 does. */
void attention_sm90_produce(const sm90_kernel *k);
