/* attention_backward.h - what the files of attention's gradients for Hopper share. */
#pragma once

#include "cute/pipeline.h"
#include "cute/tma.h"
#include "operators/attention/attention_score.h"

enum {
    ROWS = ATTENTION_ROWS,
    STATS = 2,
    COLUMNS_MAX = 64, // of a block, whose values a thread has in a row
    SLOPE_BUFFERS = 2,
};

/* X, Y and D come in pairs: of queries and keys, whose products are scores, and of values and dO, whose are slopes. */
enum { QK, VO, PAIRS };

/* Everything the roles share. Letters: rows (ROWS), tokens of a block (BN). */
typedef struct backward_kernel {
    const attention_sm90_backward_config *cfg;
    attention_form form;
    attention_values p;
    bool of_keys;
    bool with[PAIRS]; // dK or dQ; dV
    int block;        // BN
    columns n[PAIRS];
    tma_copy tmaX[PAIRS], tmaY[PAIRS], tmaD[PAIRS];
    tensor sX[PAIRS]; // (ROWS,CHUNK,CHUNKS,CONSUMERS)
    tensor sY[PAIRS]; // (BN,CHUNK,CHUNKS,STAGES)
    tensor sStats;    // (BN,STATS,STAGES)
    pipeline x, ring;
    val row;             // the CTA's first
    val head, batch;     // of the rows
    attention_form seen; // the form as rows see blocks: of keys, left and right have changed places
    sequence s;          // tokens of X in place of queries, and of Y in place of keys
    tile_grid grid;      // of these
    val first, end;      // blocks
    val heads;           // heads of Y for one of X

    // where dQ comes with dK and dV (attention_backward_queries.c)
    bool with_queries;
    columns dq_columns; // queries of a consumer's tile of dQ^T
    int halves;         // the tile has all queries of a block, or half: 1 or 2
    tensor sSlopes;     // dS^T: (ROWS,CHUNK,CHUNKS,BUFFERS*CONSUMERS*HALVES)
    tensor sSums;       // (CONSUMERS*QUERIES,64), f32
    tma_copy tmaSums;
    pipeline sums;
} backward_kernel;

/* The steps of a CTA: blocks, once for every head of Y. */
typedef struct backward_walk {
    val block, head;
    val kind; // of the block, i32, where a custom score has kinds
    val base; // of the window, u32
    block_window window;
} backward_walk;

/* One consumer's view: its operands, its sums, the state of its rows. */
typedef struct backward_consumer {
    val index, first_thread;
    tiled_mma scores_mma, sum_mma[PAIRS];
    score_operands of[PAIRS]; // scores and slopes: X and Y
    tensor tCrYt[PAIRS];      // (1,MMA_K,STAGES)
    tensor cS;                // coordinates of its scores
    tensor scores, slopes;    // (MMA,1,1): weights later; their gradients
    tensor bends;             // derivatives of the soft cap or custom score, times the weight
    tensor factors[PAIRS];    // (PAIRS,1,MMA_K): gradients of scores; weights
    tensor d[PAIRS];          // (MMA,1,1): dK or dQ; dV
    val offset[2], delta[2];  // of the rows of a thread, if they are queries
    pipeline_state at;
    tiled_mma dq_mma;
    tensor tCrKt, tCrSlopes; // (D/64,MMA_K,CONSUMERS), (1,MMA_K,TILES)
    tensor dq;               // (MMA,1,1), in the registers of slopes
    val turn;                // 1 and 0 in turn: the buffer of dS, the parity of the sums' barriers
} backward_consumer;

/* -lse or delta (which: 0, 1) of a thread's queries, which are its rows or, where rows are keys, its columns. */
typedef struct backward_stats {
    bool of_columns;
    val of[COLUMNS_MAX];
} backward_stats;

/* Sets the CTA's rows, head, batch and blocks; of a ragged problem also the sequence. The longest rows come first. */
void attention_backward_find_place(backward_kernel *k);

/* A consumer's first row; its rows among those that see blocks. */
val attention_backward_row_of(const backward_kernel *k, const backward_consumer *c);
tile_rows attention_backward_rows_of(const backward_kernel *k, const backward_consumer *c);

/* Head `i` among those of Y; the custom score in a step's head of Q. */
val attention_backward_head_of(const backward_kernel *k, val i);
custom_score attention_backward_custom_of(const backward_kernel *k, const backward_walk *w);

/* Rows of X from `row` on; the block of Y of a step. */
tile_box attention_backward_box_of_x(const backward_kernel *k, val row);
tile_box attention_backward_box_of_y(const backward_kernel *k, const backward_walk *w);

/* The first step, past blocks that a custom score skips: of a warp, whose lanes look together. */
backward_walk attention_backward_begin(const backward_kernel *k);
val attention_backward_is_over(const backward_kernel *k, const backward_walk *w);
void attention_backward_advance(const backward_kernel *k, backward_walk *w);

/*
 * The stats of a query: -lse in units of log2, -inf where it has no weights, and delta = dout * o. Of the stats_rows
 * rows, i64, those past the last query have no weights. Of all heads, (ROWS,STATS,HEADS), or of a head of Q,
 * (ROWS,STATS).
 */
tensor attention_backward_all_stats(const attention_values *p, val stats_rows);
tensor attention_backward_stats_of(const backward_kernel *k, val head);

/* The kernels that make them, and sum them for sinks. */
void attention_backward_stats(const attention_sm90_backward_config *config);
void attention_backward_sinks(void);

/* Is a score's derivative other than 1? */
bool attention_backward_has_bends(const backward_kernel *k);

/* Reads the stats of the thread's rows, where these are queries. */
void attention_backward_load_row_stats(const backward_kernel *k, backward_consumer *c);

/* The stats that a step needs. */
backward_stats attention_backward_find_stats(const backward_kernel *k, const backward_consumer *c, val stage,
                                             int which);

/* Products become weights, and bends are found on the way; slopes become gradients of the scores. */
void attention_backward_weigh(const backward_kernel *k, backward_consumer *c, const backward_stats *offset,
                              const backward_walk *w);
void attention_backward_differentiate(backward_consumer *c, const backward_stats *delta);

/* The gradients of an additive mask are those of the scores behind the soft cap, where it is added. */
void attention_backward_store_mask_gradient(const backward_kernel *k, const backward_consumer *c,
                                            const backward_walk *w, const backward_stats *delta);

/* A block of queries of a head. */
typedef struct backward_block {
    val batch, head; // in the batch
    val q_at, block; // where the sequence begins, if ragged; in it
} backward_block;

/* A block's number among the sums: a sequence takes room for its own tokens, not for the longest one's. */
val attention_backward_block_number(const attention_values *p, const attention_sm90_backward_config *config,
                                    const backward_block *block);

/* The address of its counter: how many CTAs have added to it. */
val attention_backward_turn_of(const attention_values *p, val block_number);

/* dQ in the kernel of keys: its shared memory, a consumer's operands. */
void attention_backward_describe_sums(backward_kernel *k);
void attention_backward_describe_queries(const backward_kernel *k, backward_consumer *c);

/*
 * The product of the scores' gradients and the keys, asynchronous; handing the result to the warp that adds it to the
 * sums.
 */
void attention_backward_issue_queries(const backward_kernel *k, backward_consumer *c);
void attention_backward_share_queries(const backward_kernel *k, backward_consumer *c);
void attention_backward_add_queries(const backward_kernel *k); // for one thread

/* The kernel that rounds the sums to dQ. */
void attention_backward_round_queries(const attention_sm90_backward_config *config);
