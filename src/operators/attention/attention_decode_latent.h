/* attention_decode_latent.h - what the kernels of latent caches share: where keys are, and their copies by TMA. */
#pragma once

#include "operators/attention/attention_decode_place.h"

enum {
    KEYS = ATTENTION_DECODE_LATENT_KEYS,
    CHUNK = ATTENTION_DECODE_LATENT_CHUNK,
    QUAD = 4, // numbers of a thread that lie together
    LATENT_BOXES_MAX = ATTENTION_DECODE_LATENT_KEYS / ATTENTION_DECODE_LATENT_PAGE
};

/* Where a box of keys comes from. Boxes past the last page of the sequence load that page again. */
typedef struct latent_box {
    val row, of; // in a page or sequence, and which one
} latent_box;

/* Those of a block: one for a page, or less than a page each. */
typedef struct latent_boxes {
    const decode_place *place;
    const tma_copy *tma;
    int count;
    latent_box at[LATENT_BOXES_MAX];
} latent_boxes;

static inline int64_t attention_decode_latent_block_bytes(const attention_decode_form *form)
{
    return attention_columns_bytes(attention_columns_of(form->d), ATTENTION_DECODE_LATENT_KEYS);
}

/* Begins a kernel whose blocks come by `tma` through `ring`, behind the end of the one before. */
void attention_decode_latent_initialise(const tma_copy *tma, const pipeline *ring);

/* Boxes of place->keys keys by chunks of columns; those of the block at key `start`. */
tma_copy attention_decode_latent_tma(const decode_place *place);
latent_boxes attention_decode_latent_boxes_at(const decode_place *place, const tma_copy *tma, val start);

/* For one thread: loads a chunk of a block. (BN,CHUNK) */
void attention_decode_latent_load(const latent_boxes *boxes, int chunk, tensor sChunk, val barrier);

/* Some keys of a block in shared memory, and the threads that they belong to. */
typedef struct latent_keys {
    tensor sK;            // (BN,CHUNK,CHUNKS,SLOTS)
    val start, row, slot; // the first one's number, and where it is
    int count;
    val tid;
    int threads;
} latent_keys;

/* Puts those that are new in place, once the others are there. The CTA of the first tile stores them in the cache. */
void attention_decode_latent_append(const decode_place *place, const latent_keys *keys);

/* Those that do not exist become 0 in the columns of values: the memory may hold NaN. */
void attention_decode_latent_clear(const decode_place *place, const latent_keys *keys);

/* Some columns of O, from `index` * width on, in the accumulators of an MMA of a tile of rows. */
typedef struct latent_part {
    const decode_place *place;
    const tiled_mma *mma;
    int rows, width;
    val index, tid;
    tensor out;                // (MMA,1,MMA_N)
    const online_rows *online; // maxima in bits, sums of all weights
    ir_cache cache;            // of partials
    tensor sHeld;              // (QUAD,THREADS,QUADS,LEVELS): sums that this CTA will add itself, of the lowest levels
    int levels;                // of the tree; those above are held in the workspace
} latent_part;

/* The row of the tile that value r of a thread's rows is in. */
val attention_decode_latent_row(const latent_part *part, int r);

/*
 * The end of a split, for all threads that have parts: up the binary tree whose leaves are the sequence's splits. Who
 * comes second to a node, which may be the same CTA, adds the other one's sum and goes on; who has added all stores the
 * result. So each CTA adds few sums, and none is far behind.
 */
void attention_decode_latent_climb(const latent_part *part, const decode_sums *sums);
