/* attention_decode_latent.h - what the kernels of latent caches share: where keys are, and their copies by TMA. */
#ifndef CKL_ATTENTION_DECODE_LATENT_H
#define CKL_ATTENTION_DECODE_LATENT_H

#include "operators/attention/attention_decode_place.h"

enum { LATENT_BOXES_MAX = ATTENTION_DECODE_LATENT_KEYS / ATTENTION_DECODE_LATENT_PAGE };

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

/* Begins a kernel whose blocks come by `tma` through `ring`, behind the end of the one before. */
void attention_decode_latent_initialise(const tma_copy *tma, const pipeline *ring);

/* Blocks of so many keys that this CTA has. Uniform, and ptxas sees that. */
val attention_decode_latent_blocks(const decode_place *place, int keys);

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

/* Puts those that are new in their place, once the others are there. The CTA of the first tile stores them in the cache. */
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
} latent_part;

/* The row of the tile that value r of a thread's rows is in. */
val attention_decode_latent_row(const latent_part *part, int r);

/* Copies of its columns, to or from the partial of a split. */
typedef struct latent_partial {
    tiled_copy each;
    int_tuple limits; // rows past the last one do not exist
    tensor cO, tOgO, states;
} latent_partial;

latent_partial attention_decode_latent_partial_of(const latent_part *part, const decode_sums *sums, val split);

/* Stores them as the partial of a split; as the result, where that is all. */
void attention_decode_latent_store_partial(const latent_part *part, const decode_sums *sums, val split);
void attention_decode_latent_store(const latent_part *part);

/* Two sums of a thread's two rows become one, of maxima and sums; the factors for their columns. Both orders give the same bits. */
typedef struct latent_shares {
    val own[2], other[2];
} latent_shares;

latent_shares attention_decode_latent_add_rows(const online_rows *rows, const val *top, const val *sum);

/*
 * Adds the parts of a cluster's CTAs, of a split each, as the leaves of a binary tree, and stores the result. Two consumers of
 * 128 threads have half of the columns each, and the use of 128 * dv + 2048 bytes of shared memory at `memory`. All other warps of the
 * CTA that have not ended wait beside them.
 */
void attention_decode_latent_add_cluster(const latent_part *part, val memory, int cluster);
void attention_decode_latent_wait_cluster(int cluster);

#endif
