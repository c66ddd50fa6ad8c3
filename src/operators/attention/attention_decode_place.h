/*
 * attention_decode_place.h - what attention_decode's kernels on tensor cores share: the rows and keys of a CTA, what
 * the rows see, and the sums of what warps and CTAs have of them (attention_decode_merge.c).
 */
#pragma once

#include "operators/attention/attention_decode_config.h"
#include "operators/attention/attention_tile.h"

/* Keys are split over CTAs at fixed lengths. Values are u32. */
typedef struct decode_place {
    attention_decode_form form;
    attention_decode_values p;
    int rows, keys, run;             // of a CTA; of a block; splits of a CTA
    int cluster;                     // CTAs of a cluster, which share the rows; 0 or 1: none
    bool whole;                      // no others share them
    bool hints;                      // the kernel before may still run: lengths and pages may be old
    int rows_all, tiles;             // of a group: heads first, then tokens; tiles of `rows` of them
    val tile, kv_head, split, batch; // of this CTA; its first split
    val length;                      // keys of the sequence
    val begin;                       // the first key that a row sees
    val splits;                      // CTAs that share the rows
    val from, to;                    // keys of this CTA; none if to <= from

    // of attention_decode_for_share(), whose CTAs take several splits
    val before, after; // that this CTA has had; that it will have, with this one
    val steps, done;   // of the keys of this split, uniform; of those before it, a variable
} decode_place;

/*
 * Sets what follows from form, p, rows and run for CTA `number`: the rows and the first split; a launch of fewer CTAs
 * takes several. CTAs that share a stretch of keys are neighbours. Then the keys, which the sequence's length decides.
 */
void attention_decode_find_cta(decode_place *place, val number);
void attention_decode_find_keys(decode_place *place, int split);

/*
 * Calls each() for every split that this CTA takes, in steps of so many keys, with `place` set: splits that follow each
 * other, of which those that exist are shared out evenly. CTAs of all tiles of some rows are neighbours, and take the
 * same.
 */
void attention_decode_for_share(decode_place *place, int split, int step, void (*each)(void *of), void *of);

/* A length, or the number of a page, which may be old where those are hints. */
val attention_decode_number_at(const decode_place *place, tensor gNumbers, int_tuple where);

/* The numbers of the pages of all sequences. (PAGES,BATCH) */
tensor attention_decode_table_of(const attention_decode_values *p);

/* One of the tensors of dtype at a pointer, with its own strides: (BATCH,HEADS,TOKENS,D). */
tensor attention_decode_tensor_of(const decode_place *place, int which, val pointer);

/* Row `row` of a head of Q or O: heads of the group first, then tokens. (D) */
tensor attention_decode_row_of(const decode_place *place, int which, val row);

/* The sink of the head of row `row` of the group, f32; NO_SINK where the problem has none. */
val attention_decode_sink_of(const decode_place *place, val row);

/* Are there keys in the block at `start` that a row of this CTA does not see, or that are past its last one? */
val attention_decode_is_cut(const decode_place *place, val start);

/* Rows of a group that an MMA has. */
typedef struct decode_rows {
    val first;
    int count;
} decode_rows;

/* Gives such keys scores of -inf; tid is this thread's in the MMA that tiles some rows and a block's keys. */
void attention_decode_mask(const decode_place *place, val start, decode_rows rows, const tiled_mma *mma, val tid,
                           tensor scores);

/*
 * The partials of warps, or of groups of warps: columns of O that count 2^top, and sums of weights. Those of split CTAs
 * meet in the workspace.
 */
typedef struct decode_sums {
    const decode_place *place;
    int partials, threads; // of the CTA, from thread 0 on
    int flight;            // 16-byte loads that a thread has in flight: 16 or 32, as registers allow
    int barrier;           // number of a named barrier of these threads
    tensor sO;             // (BM,DV,PARTIALS), f32
    tensor sTop, sSum;     // (BM,PARTIALS)
    tensor sState;         // (2,BM): of a CTA of a cluster, whose columns take the place of its first warp's
    val value_scale;       // factor for weighted values
} decode_sums;

/* What a split leaves in the workspace: maximum and sum of each row, and its columns. (2,BM), (DV,BM) */
typedef struct decode_partial {
    tensor states, values;
} decode_partial;

decode_partial attention_decode_partial_of(const decode_sums *sums, val split);

/*
 * Where this CTA's partials are the last to come: adds those of all splits, in the order of the keys, and stores the
 * result.
 */
void attention_decode_add_up(const decode_sums *sums);

/* The same by all CTAs of a cluster together, from their shared memory. */
void attention_decode_add_up_cluster(const decode_sums *sums);

/*
 * Counter `number` of those of a sequence, head and tile, of which each has `of_rows`: its address. All are 0 between
 * launches.
 */
val attention_decode_counter(const decode_sums *sums, val of_rows, val number);

/* The logarithm of the sum of a row's weights, row `row` of the group. */
void attention_decode_store_logarithm(const decode_place *place, val row, val top, val sum);

/* Adds the partials of warps, and stores their sum in the workspace; the result, where it is all. For all `threads`. */
void attention_decode_finish_split(const decode_sums *sums);

/* The same of all splits of a CTA: attend() leaves the partials of split `number` of them, and waits before it does. */
void attention_decode_sum_run(const decode_sums *sums, void (*attend)(void *of, val number), void *of);
