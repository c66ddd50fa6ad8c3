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

/*
 * Stores columns of O where a CTA has all splits, or their sum. rows: maxima in bits, sums of all weights; cO: this thread's
 * rows of the tile and columns of O. has_lse: does it store the rows' logarithms?
 */
void attention_decode_latent_store(const decode_place *place, const online_rows *rows, tensor out, tensor cO,
                                   val has_lse);

/* 16 bytes of new key `key`, that of new token `token`. The CTA of the first tile stores them in the cache. */
tensor attention_decode_latent_new(const decode_place *place, val token, val key, val column);

#endif
