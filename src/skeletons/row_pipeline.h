/*
 * row_pipeline.h - rows that flow through shared memory: the skeleton of kernels whose rows are too long for registers.
 *
 * CTAs, or clusters of them, take rows one after another. A warp of its own, the producer, brings chunks of the rows into a
 * ring of stages by bulk copies and runs ahead as far as the ring reaches, beyond the end of a row: the memory stays busy
 * while the other threads reduce and write. They visit a row twice, chunk by chunk. Between the two it stays in the ring or
 * in registers or, where both are too small, is brought anew. A kernel reads like this:
 *
 *     static void first_pass(row_pipeline *s, val row, void *user) {
 *         row_pipeline_first_pass(s, row, add_up, user); // calls add_up(&place, chunk, rX, user) for each chunk
 *         row_pipeline_reduce_begin(s, &reduction, sum);
 *     }
 *     static void write(row_pipeline *s, val row, void *user) {
 *         row_pipeline_reduce_end(s, &reduction, sum);
 *         row_pipeline_second_pass(s, row, write_piece, user);
 *     }
 *     row_pipeline s = row_pipeline_begin(&split, dtype, inputs, input_count, values, rows, cols, counter);
 *     row_pipeline_run(&s, &(row_passes){ see, hand_over, write }, &me);
 *     row_pipeline_end(&s);
 *
 * If the ring holds two rows, the next one can be read before this one is written (`lookahead`): then no thread waits for the
 * sums of the others.
 */
#ifndef CKL_SKELETONS_ROW_PIPELINE_H
#define CKL_SKELETONS_ROW_PIPELINE_H

#include "cute/cluster_allreduce.h"
#include "cute/pipeline.h"
#include "skeletons/row.h"
#include "cute/dynamic_scheduler.h"

enum { ROW_PIPELINE_INPUTS_MAX = 4, ROW_PIPELINE_CHUNKS_MAX = 8, ROW_PIPELINE_PRODUCER_THREADS = 32 };

/* Where a row stays between its passes. */
typedef enum row_residence {
    ROW_RELOADED,     // nowhere: every pass brings it again
    ROW_IN_RING,      // in the ring, until the last pass
    ROW_IN_REGISTERS, // in registers from the first pass on, which frees its place in the ring for the next row
} row_residence;

/*
 * What a config says of rows that flow, beside the row_split of a chunk over the CTAs of a row: row_flow flow, and
 * ROW_FLOW(FIELD_NESTED, (config, flow)) among its fields.
 */
#define ROW_FLOW(X, owner)                                                                                           \
    X(owner, int, stages, "0", "0 4 8 12 16", "chunks, one of each input, that the ring holds; 0: rows do not flow") \
    X(owner, choice, residence, "reload", "reload ring registers", "where a row stays between its passes")           \
    X(owner, bool, lookahead, "0", "0 1", "the next row is read before one is written")                              \
    X(owner, int, chunks, "0", "0 1 2 4 8", "of a row and CTA, for unrolled passes; 0: a loop")

typedef struct row_flow {
    ROW_FLOW(FIELD_MEMBER, )
} row_flow;

/* How a row is shared out. */
typedef struct row_pipeline_split {
    row_split chunk; // over the threads of one CTA: row_threads is threads, cluster is 1; without the producer
    int cluster;     // CTAs of a row: chunk k is that of CTA k % cluster
    int stages;      // chunks, one of each input, that the ring holds
    row_residence residence;
    bool lookahead; // of a ring: row n + 1 is read before row n is written
    int chunks;     // of a row and CTA, for kernels that keep something for each: passes are unrolled; 0: a loop
} row_pipeline_split;

/* From and to a config. */
row_pipeline_split row_pipeline_split_of(const row_split *split, const row_flow *flow);
void row_pipeline_config(const row_pipeline_split *s, row_split *split, row_flow *flow);

/* Bytes of shared memory of a CTA; values: 32-bit ones of a reduction. */
int64_t row_pipeline_smem_bytes(const row_pipeline_split *s, ckl_dtype dtype, int inputs, int values);

/* CTAs that an SM shall hold: as many as have room (residency.h). */
int row_pipeline_ctas_per_sm(const row_pipeline_split *s, ckl_dtype dtype, int inputs, int values,
                             const ckl_device_info *device);

/* Pieces of a row of `cols` elements that one CTA visits, at most. */
int64_t row_pipeline_chunks(const row_pipeline_split *s, int64_t cols);

/*
 * A split for rows of `cols` elements that start at multiples of 16 bytes: 16 KiB of all inputs a chunk; clusters, so that
 * a CTA has four chunks of a row and a ring half as large again as that; where this takes four CTAs or more, whose sums are
 * long on their way, twice as many that look ahead. Rows beyond such rings are brought anew for each pass.
 * bench/notes/norm.md has the figures.
 */
row_pipeline_split row_pipeline_choose(int64_t cols, ckl_dtype dtype, int inputs, const ckl_device_info *device);

/* CTAs of the largest cluster to choose: 16 need an undivided GPU, whose groups of SMs have room for them. */
int row_pipeline_cluster_max(const ckl_device_info *device);

/* May a kernel have this split for rows of `cols` elements? Rows must start at multiples of 16 bytes and be so long. */
ckl_status row_pipeline_admit(const char *what, const row_pipeline_split *s, int64_t cols, ckl_dtype dtype, int inputs,
                              int values, const ckl_device_info *device);

/* May its rows be scheduled dynamically? Every CTA must have a chunk of a row: it is what keeps the producers of a cluster together. */
ckl_status row_pipeline_dynamic_admit(const char *what, const row_pipeline_split *s, int64_t cols);

/* A matrix whose rows start ld elements apart. */
typedef struct row_pipeline_input {
    val pointer, ld;
} row_pipeline_input;

typedef struct row_pipeline {
    row_pipeline_split split;
    ckl_dtype dtype;
    int input_count;
    row_pipeline_input inputs[ROW_PIPELINE_INPUTS_MAX];
    val rows, cols;          // of the matrices: i64, u32
    val first_row, row_step; // of this CTA, if its rows are given
    bool dynamic;            // rows are scheduled dynamically
    dynamic_scheduler scheduler;
    val fetched, row, next; // variables of consumers: their row, and the one after it
    int64_t stage_offset;   // of the ring in shared memory
    pipeline ring;
    pipeline_state first_state,
        second_state; // consumers' places: of the first visit and, if the row stays in the ring, the second
    tensor rHeld[ROW_PIPELINE_CHUNKS_MAX][ROW_PIPELINE_INPUTS_MAX]; // a row in registers, [chunk][input]
    cluster_allreduce allreduce;
    double fill; // what is read past the end of a row; 0 unless set after row_pipeline_begin()
} row_pipeline;

/*
 * Describes the producer and all set-up; what follows, up to row_pipeline_end(), is done by the other threads. values: of the
 * largest reduction. counter: the address of one from which rows are drawn (dynamic_scheduler.h), for 2^31 rows at most; the constant 0
 * gives every CTA, or cluster, the same rows in every run.
 */
row_pipeline row_pipeline_begin(const row_pipeline_split *split, ckl_dtype dtype, const row_pipeline_input *inputs,
                                int input_count, int values, val rows, val cols, val counter);
void row_pipeline_end(row_pipeline *s);

/* This thread's place at the start of a row: the thread whose `first` is 0 writes what belongs to the row as a whole. */
row_place row_pipeline_place(const row_pipeline *s, val row);

/* Its place in a chunk of any row, for what belongs to columns. If passes are unrolled; the chunk may not exist. */
row_place row_pipeline_columns(const row_pipeline *s, int chunk);

/*
 * What a kernel does with each row: see(), when s->row is it and s->next the one after it, ends with row_pipeline_reduce_begin();
 * write() begins with row_pipeline_reduce_end(). Row n + 1 may be read before row n is written: what they both need to know of a
 * row must have two places, and carry(), between the see() and the write() of the same row, moves it from one to the
 * other.
 */
typedef struct row_passes {
    void (*first)(row_pipeline *s, val row, void *user);
    void (*carry)(void *user); // NULL: there is nothing
    void (*second)(row_pipeline *s, val row, void *user);
} row_passes;

/* Takes all rows of this CTA through their steps. */
void row_pipeline_run(row_pipeline *s, const row_passes *passes, void *user);

/*
 * The two visits to the chunks of this CTA. rX[i], (VEC,STEPS) registers of the dtype, is this thread's part of input i, and
 * `fill` past the end of the row; p is its place, for row_part(), row_load() and row_store() with split.chunk; chunk is
 * its number if passes are unrolled, else 0. Unrolled passes also visit chunks past the end, unless split.chunk.exact
 * says that rows fill all of them.
 */
typedef void row_visit(const row_place *p, int chunk, const tensor *rX, void *user);
void row_pipeline_first_pass(row_pipeline *s, val row, row_visit *visit, void *user);
void row_pipeline_second_pass(row_pipeline *s, val row, row_visit *visit, void *user);

/* A reduction over all threads of the row, in two halves; everyone receives the result. */
void row_pipeline_reduce_begin(const row_pipeline *s, const reduction *r, val *values);
void row_pipeline_reduce_end(const row_pipeline *s, const reduction *r, val *values);

#endif
