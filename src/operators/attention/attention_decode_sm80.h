/* attention_decode_sm80.h - what attention_decode's sm80 knows of its CTA: keys (attention_decode_sm80.c), then sums (_merge.c). */
#ifndef CKL_ATTENTION_DECODE_SM80_H
#define CKL_ATTENTION_DECODE_SM80_H

#include "operators/attention/attention_decode_config.h"
#include "operators/attention/attention_tile.h"

/* Everything that the steps share. Letters: rows (BM), keys of a block (BN). */
typedef struct decode_kernel {
    const attention_decode_sm80_config *cfg;
    attention_decode_form form;
    attention_decode_values p;
    columns d, dv;
    int rows_all, tiles;             // of a group; tiles of BM of them
    val tile, kv_head, split, batch; // of this CTA; u32
    val length;                      // keys of the sequence, u32
    val begin;                       // the first key that a row sees
    val splits;                      // CTAs that share the rows
    val from, to;                    // keys of this CTA
    tensor sK, sV;                   // (BN,CHUNK,CHUNKS,SLOTS), stages of all warps
    tensor sVt;                      // (DV,BN,SLOTS)
    tensor sO;                       // (BM,DV,WARPS), f32, in the memory of the rings
    tensor sTop, sSum;               // (BM,WARPS)
    tiled_mma mma;                   // of a warp
    tensor rQ;                       // (PAIRS,MMA_M,MMA_K)
    tensor scores, out;              // (MMA,MMA_M,MMA_N)
    tensor weights;                  // (PAIRS,MMA_M,MMA_K)
    online_rows online;
} decode_kernel;

/* Row `row` of a head of Q or O: heads of the group first, then tokens. (D) */
tensor decode_row_of(const decode_kernel *k, int which, val row);

/* Puts together what warps have, then CTAs, and stores the result. */
void decode_finish(decode_kernel *k);

#endif
