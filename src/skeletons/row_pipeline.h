/*
 * row_pipeline.h - rows that flow through shared memory: the skeleton of kernels whose rows are too long for registers.
 *
 * A CTA, or a cluster of CTAs, stays on its SM and takes rows one after another. One warp, the producer, copies chunks
 * of the rows into a ring of stages by bulk copies. It runs ahead until the ring is full, past the end of a row, so
 * that the memory is busy while the other threads, the consumers, reduce and store. The consumers pass over a row
 * twice, chunk by chunk: the first pass finds its sums, the second one computes its result. Between the passes the row
 * stays in the ring or in registers. docs/row-pipeline.md has a drawing. A kernel reads like this:
 *
 *     static void first(row_pipeline *s, val row, void *user) {
 *         row_pipeline_first_pass(s, row, add_up, user);       // calls add_up(&span, chunk, rX, user) for each chunk
 *         row_pipeline_reduce_begin(s, &reduction, sum);
 *     }
 *     static void second(row_pipeline *s, val row, void *user) {
 *         row_pipeline_reduce_end(s, &reduction, sum);
 *         row_pipeline_second_pass(s, row, store, user);
 *     }
 *     row_pipeline s = row_pipeline_begin(&split, &matrices, values, counter);
 *     row_pipeline_run(&s, &(row_passes){ first, carry, second }, &state);
 *     row_pipeline_end(&s);
 *
 * A ring with room for two rows allows `lookahead`: the first pass over the next row comes before the second pass over
 * this one. The reduction of a row then travels through the cluster while another row is at work, and no thread waits
 * for it.
 */
#pragma once

#include "cute/cluster_allreduce.h"
#include "cute/dynamic_scheduler.h"
#include "cute/pipeline.h"
#include "skeletons/row.h"

enum { ROW_PIPELINE_INPUTS_MAX = 4, ROW_PIPELINE_CHUNKS_MAX = 8, ROW_PIPELINE_PRODUCER_THREADS = 32 };

/* What bulk copies move and begin at multiples of; what stages begin at multiples of. */
enum { ROW_PIPELINE_BULK_BYTES = 16, ROW_PIPELINE_STAGE_ALIGNMENT = 128 };

/* Where a row stays between its passes. */
typedef enum row_residence {
    ROW_IN_RING,      // in the ring; the second pass releases its stages
    ROW_IN_REGISTERS, // in registers; the first pass releases its stages
} row_residence;

/*
 * What a config says of a row pipeline, beside the row_split of a chunk over all CTAs of a row: row_flow flow, and
 * ROW_FLOW(FIELD_NESTED, (config, flow)) among its fields.
 */
#define ROW_FLOW(X, owner)                                                                                           \
    X(owner, int, stages, "0", "0 4 8 12 16",                                                                        \
      "stages of the ring, each of one chunk of every input; 0: rows do not flow")                                   \
    X(owner, choice, residence, "ring", "ring registers", "where a row stays between its passes")                    \
    X(owner, bool, lookahead, "0", "0 1", "the first pass over the next row precedes the second pass over this one") \
    X(owner, int, chunks, "0", "0 1 2 4 8", "chunks of a row and CTA, for unrolled passes; 0: a loop")               \
    X(owner, bool, cut, "0", "0 1",                                                                                  \
      "rows that are read start anywhere: vectors of whole columns are cut out of what holds them")

typedef struct row_flow {
    ROW_FLOW(FIELD_MEMBER, )
} row_flow;

/*
 * How a row is split over CTAs, stages and threads. residence: of row_residence. lookahead needs ROW_IN_RING and room
 * for two rows. chunks: a kernel may keep registers for each. cut: a chunk comes from the 16-byte boundary before its
 * first column.
 */
typedef struct row_pipeline_split {
    row_split chunk; // over the consumers of one CTA: row_threads is threads, cluster is 1
    int cluster;     // CTAs of a row; CTA k % cluster takes chunk k
    ROW_FLOW(FIELD_MEMBER, )
} row_pipeline_split;

/* From and to a config. */
row_pipeline_split row_pipeline_split_of(const row_split *split, const row_flow *flow);
void row_pipeline_config(const row_pipeline_split *s, row_split *split, row_flow *flow);

/* A chunk of one input: elements, bytes, room in a stage. Vectors that are cut begin and end inside of others. */
int64_t row_pipeline_chunk_cols(const row_pipeline_split *s);
int64_t row_pipeline_chunk_bytes(const row_pipeline_split *s, ckl_dtype dtype);
int64_t row_pipeline_slot_bytes(const row_pipeline_split *s, ckl_dtype dtype);

/*
 * Slots of the scheduler: rows that are fetched and not yet done. Each row in the ring has a stage at least; the
 * producer holds one more, waiting for room, and has fetched the next. A row of one chunk that is in registers has left
 * the ring. While the oldest is at work, every CTA of the cluster has sent the sums of the row before it, and so has
 * read that row's slot.
 */
int row_pipeline_fetched_max(const row_pipeline_split *s);

/* Shared memory of a CTA in bytes; values: 32-bit values of the largest reduction. */
int64_t row_pipeline_smem_bytes(const row_pipeline_split *s, ckl_dtype dtype, int inputs, int values);

/* CTAs that an SM is to hold, by its shared memory and registers (residency.h). */
int row_pipeline_ctas_per_sm(const row_pipeline_split *s, ckl_dtype dtype, int inputs, int values,
                             const ckl_device_info *device);

/*
 * Chunks that one CTA takes of a row of `cols` elements, at most. A ragged row has a vector less between its boundaries
 * or not, so all but the last are whole.
 */
int64_t row_pipeline_chunks(const row_pipeline_split *s, int64_t cols);

/*
 * A split for `rows` rows of `cols` elements; ragged: they start anywhere. A chunk is 16 KiB of all inputs. The cluster
 * grows until a CTA has at most four chunks of a row; the ring holds half as many again. Sums of four CTAs or more
 * travel long: then rows look ahead if the ring holds two, as of twice four CTAs it does; or the cluster has half as
 * many, or smaller chunks, if that leaves the busiest CTA less; other threads, if much less. Few rows have larger
 * clusters that look ahead; sixteen CTAs leave SMs of a GPC without one (1024x200064 in bf16 253 us, 223 by eight that
 * do not look ahead). bench/notes/norm.md has the figures. False: rows fit no ring.
 */
bool row_pipeline_choose(int64_t rows, int64_t cols, bool ragged, ckl_dtype dtype, int inputs,
                         const ckl_device_info *device, row_pipeline_split *split);

/* The largest cluster to choose: 16 CTAs fit only an undivided GPU, whose GPCs have enough SMs; else 8. */
int row_pipeline_cluster_max(const ckl_device_info *device);

/* Has the device what every pipeline wants? A part of the next function, for who has limits of its own before it. */
ckl_status row_pipeline_device_admit(const char *what, const ckl_device_info *device);

/*
 * May a kernel have this split for rows of `cols` elements? Unless the split is ragged they must be multiples of 16
 * bytes long and, unless it is cut, start at them. The first row does.
 */
ckl_status row_pipeline_admit(const char *what, const row_pipeline_split *s, int64_t cols, ckl_dtype dtype, int inputs,
                              int values, const ckl_device_info *device);

/*
 * May its rows be scheduled dynamically? Every CTA of a cluster must have a chunk of each row: the ring keeps the
 * producers of a cluster together, and the scheduler's slots rely on that.
 */
ckl_status row_pipeline_dynamic_admit(const char *what, const row_pipeline_split *s, int64_t cols);

/* A matrix whose rows start ld elements apart. */
typedef struct row_pipeline_matrix {
    val pointer, ld;
} row_pipeline_matrix;

/*
 * What is read, and what is written. All inputs lie in phase (row.h), and all outputs. Boundaries of ragged rows are
 * those of the output, with which inputs lie in phase unless the split is cut.
 */
typedef struct row_pipeline_matrices {
    ckl_dtype dtype;
    val rows, cols; // of each
    int input_count;
    row_pipeline_matrix inputs[ROW_PIPELINE_INPUTS_MAX], output;
} row_pipeline_matrices;

/* Ragged rows in order of their phases: row p, and every count-th one behind it, for each p. All are u32. */
typedef struct row_phases {
    val count;        // of them: rows until one lies as the first does, or all rows
    val rows, longer; // of a phase; the first ones have one more
    val begin, end;   // of this cluster's rows in that order
    val first, last;  // phases that it has rows of, or a share of none
} row_phases;

typedef struct row_pipeline {
    row_pipeline_split split;
    row_pipeline_matrices of;    // rows: i64, cols: u32
    val first_row, row_step;     // row first_row of this cluster, then, by a static schedule, every row_step-th
    val end;                     // before this row
    bool dynamic;                // further rows come from the scheduler
    dynamic_scheduler scheduler; // if dynamic
    row_phases phases;           // static schedule of ragged rows
    row_spans columns;           // of these: those of all rows of a phase
    val fetched, row, next;      // variables of consumers: numbers fetched so far, this row, the next one
    int64_t stage_offset;        // of the ring in shared memory
    pipeline ring;
    pipeline_state first_state, second_state; // consumers' stages of the two passes; the second only if ROW_IN_RING
    tensor rHeld[ROW_PIPELINE_CHUNKS_MAX]
                [ROW_PIPELINE_INPUTS_MAX]; // unrolled passes: chunks in registers, [chunk][input]
    tensor rEnds[ROW_PIPELINE_INPUTS_MAX]; // (1,1) each: this thread's element of the ends of a ragged row
    cluster_allreduce allreduce;
    double fill;      // what consumers see past the end of a row; 0 unless set after row_pipeline_begin()
    bool long_visits; // set after row_pipeline_begin(): threads without an element of a chunk do not visit it
} row_pipeline;

/*
 * Describes set-up and producer. What follows, up to row_pipeline_end(), runs on the consumers. values: of the largest
 * reduction. counter: the address of the scheduler's counter (dynamic_scheduler.h), for at most 2^31 rows and no more
 * clusters than rows; the constant 0 for a static schedule, which gives a cluster the same rows in every run.
 */
row_pipeline row_pipeline_begin(const row_pipeline_split *split, const row_pipeline_matrices *of, int values,
                                val counter);
void row_pipeline_end(row_pipeline *s);

/*
 * Calls `body` for rows in which this thread has the same columns, of a static schedule: all of a cluster's or, of
 * ragged rows, those of each phase (row.h) that it has, maybe none. Clusters share rows evenly, in order of their
 * phases. group: from 0 to less than clusters + phases - 1, another one in each call.
 */
typedef void row_phase_body(row_pipeline *s, val group, void *user);
void row_pipeline_each_phase(row_pipeline *s, row_phase_body *body, void *user);

/* This thread's place at the start of a row. The thread whose `first` is 0 stores what a row has once. */
row_place row_pipeline_place(const row_pipeline *s, val row);

/*
 * This thread's columns in a chunk of any row, for unrolled passes. The chunk may not exist. Of ragged rows: of the
 * phase that row_pipeline_each_phase() is in; chunk split.chunks is the ends.
 */
row_span row_pipeline_columns(const row_pipeline *s, int chunk);

/*
 * What a kernel does with each row. first() ends with row_pipeline_reduce_begin(), second() begins with
 * row_pipeline_reduce_end(). With lookahead, first() of the next row runs before second() of this row, so that what
 * first() leaves for second() needs two places: carry() copies it from the one to the other, after second() of the row
 * before.
 */
typedef struct row_passes {
    void (*first)(row_pipeline *s, val row, void *user); // s->row is `row`, s->next the one after it
    void (*carry)(void *user);                           // NULL: nothing to copy
    void (*second)(row_pipeline *s, val row, void *user);
} row_passes;

/* Runs both passes over all rows of this CTA. */
void row_pipeline_run(row_pipeline *s, const row_passes *passes, void *user);

/*
 * One pass over the chunks that this CTA has of a row. rX[i], (VEC,STEPS) registers of the dtype, is this thread's
 * partition of the chunk of input i, with `fill` past the end of the row. span is this thread's, for row_of_matrix(),
 * row_load() and row_store(). chunk is its number if passes are unrolled, else 0. Unrolled passes visit chunks past the
 * end of a row too, unless split.chunk.exact says that there are none. The elements at the ends of a ragged row come
 * last, as chunk split.chunks; they are loaded from global memory, in each pass.
 */
typedef void row_visit(const row_span *span, int chunk, const tensor *rX, void *user);
void row_pipeline_first_pass(row_pipeline *s, val row, row_visit *visit, void *user);
void row_pipeline_second_pass(row_pipeline *s, val row, row_visit *visit, void *user);

/* A reduction over all consumers of a row in two halves: begin sends, end waits; every thread gets the result. */
void row_pipeline_reduce_begin(const row_pipeline *s, const reduction *r, val *values);
void row_pipeline_reduce_end(const row_pipeline *s, const reduction *r, val *values);
