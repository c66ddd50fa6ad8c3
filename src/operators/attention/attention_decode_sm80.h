/* attention_decode_sm80.h - what the files of attention_decode's sm80 share: rings of keys, products. */
#pragma once

#include "operators/attention/attention_decode_place.h"

enum { DECODE_PAD = 4 }; // columns between rows of O in shared memory, against bank conflicts

/* Everything that the steps share. Letters: rows (BM), keys of a block (BN). */
typedef struct decode_kernel {
    const attention_decode_sm80_config *cfg;
    decode_place place;
    columns d, dv;                 // of 16-bit words of the cache
    int packed;                    // elements of such a word
    tensor sK, sV;                 // (BN,CHUNK,CHUNKS,SLOTS), stages of all warps
    tensor sVt;                    // (DV,BN,SLOTS)
    tensor sO;                     // (BM,DV,WARPS), f32, in the memory of the rings
    tensor sTop, sSum;             // (BM,WARPS)
    ckl_dtype factors;             // what is multiplied: dtype, or f16 where the cache is of 8 bits
    tiled_mma mma;                 // of a warp
    tensor rQ;                     // (PAIRS,MMA_M,MMA_K)
    tensor gQ[ONLINE_ROWS_MAX];    // this lane's queries, where they do not stay in registers: (D/2), pairs
    tensor scores, out;            // (MMA,MMA_M,MMA_N)
    tensor used_scores, used_out;  // the same without rows that no tile has
    tensor weights;                // (PAIRS,MMA_M,MMA_K)
    tensor rKV[ATTENTION_TENSORS]; // of this lane: new words of K and V, where they are kept (WORDS)
    val scale[ATTENTION_TENSORS];  // of the head of K and V, where the cache has such
    val signs;                     // that of K's scale, of both halves of a word of Q
    val row_unit[ONLINE_ROWS_MAX]; // factor for scores, where queries of bf16 have become f16
    val value_scale;               // factor for weighted values
    val exponent, factor;          // the parameters', times the scale of stored keys
    online_rows online;
} decode_kernel;

/* Where the keys of a block are, one for each lane; how many of them are in the cache. */
typedef struct block_rows {
    val key, page; // the number of its page is multiplied when the block is loaded: until then it need not have come
    val count;     // i32; none: 0 or less
} block_rows;

/*
 * The first key of block `number` of this warp. All warps that share one: its copies have arrived, and it may be
 * overwritten.
 */
val attention_decode_block_start(const decode_kernel *k, val number);
void attention_decode_block_sync(const decode_kernel *k);

/* Fresh variables; then setting them for block `number` of this warp. */
block_rows attention_decode_no_rows(const decode_kernel *k);
void attention_decode_find_rows(const decode_kernel *k, val number, block_rows *rows);

/* Brings the first blocks to L2 while the kernel before may still run, whose lengths and pages are hints until then. */
void attention_decode_prefetch(const decode_kernel *k);

/* Starts the copies of a block into a slot, but for rows that are new. */
void attention_decode_load_block(const decode_kernel *k, const block_rows *rows, val slot);

/*
 * New rows: loads those that are kept in registers; writes these to the cache; puts those of the block that begins at
 * key `start` into its slot, once its copies are there.
 */
void attention_decode_load_new(decode_kernel *k);
void attention_decode_store_new(decode_kernel *k);
void attention_decode_append(const decode_kernel *k, val start, val slot);

/* scores = Q * K^T and out += weights * V of a slot, whose words hold two elements. */
void attention_decode_multiply_narrow_keys(const decode_kernel *k, val slot);
void attention_decode_multiply_narrow_values(const decode_kernel *k, val slot);

/* Queries of bf16 become f16; row_unit becomes the factor for their scores. */
void attention_decode_queries_to_f16(decode_kernel *k);
