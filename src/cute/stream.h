/*
 * stream.h - rows that flow through shared memory: the skeleton of kernels whose rows are too long for registers.
 *
 * CTAs, or clusters of them, take rows one after another. A warp of its own, the producer, brings pieces of the rows into a
 * ring of stages by bulk copies and runs ahead as far as the ring reaches, beyond the end of a row: the memory stays busy
 * while the other threads reduce and write. They visit a row twice, piece by piece. Between the two it stays in the ring or
 * in registers or, where both are too small, is brought anew. A kernel reads like this:
 *
 *     static void see(row_stream *s, val row, void *user) {
 *         row_stream_see(s, row, add_up, user); // calls add_up(&place, piece, rX, user) for each piece
 *         row_stream_send(s, &reduction, sum);
 *     }
 *     static void write(row_stream *s, val row, void *user) {
 *         row_stream_receive(s, &reduction, sum);
 *         row_stream_write(s, row, write_piece, user);
 *     }
 *     row_stream s = row_stream_begin(&split, dtype, inputs, input_count, values, rows, cols, counter);
 *     row_stream_walk(&s, &(row_steps){ see, hand_over, write }, &me);
 *     row_stream_end(&s);
 *
 * If the ring holds two rows, the next one can be seen before this one is written (`ahead`): then no thread waits for the
 * sums of the others.
 */
#ifndef CKL_CUTE_STREAM_H
#define CKL_CUTE_STREAM_H

#include "cute/mailbox.h"
#include "cute/pipeline.h"
#include "cute/row.h"
#include "cute/tickets.h"

enum { STREAM_INPUTS_MAX = 4, STREAM_PIECES_MAX = 8, STREAM_PRODUCER_THREADS = 32 };

/* Where a row stays between its passes. */
typedef enum stream_hold {
    STREAM_ANEW,      // nowhere: every pass brings it again
    STREAM_RING,      // in the ring, until the last pass
    STREAM_REGISTERS, // in registers from the first pass on, which frees its place in the ring for the next row
} stream_hold;

/* How a row is shared out. Part of a kernel's config. */
typedef struct stream_split {
    row_split piece; // over the threads of one CTA: row_threads is threads, cluster is 1; without the producer
    int cluster;     // CTAs of a row: piece k is that of CTA k % cluster
    int stages;      // pieces, one of each input, that the ring holds
    stream_hold hold;
    bool ahead; // of a ring: row n + 1 is seen before row n is written
    int pieces; // of a row and CTA, for kernels that keep something for each: passes are unrolled; 0: a loop
} stream_split;

/* Bytes of shared memory of a CTA; values: 32-bit ones of a reduction. */
int64_t stream_smem_bytes(const stream_split *s, ckl_dtype dtype, int inputs, int values);

/* CTAs that an SM shall hold: as many as have room (residency.h). */
int stream_ctas_per_sm(const stream_split *s, ckl_dtype dtype, int inputs, int values, const ckl_device_info *device);

/* Pieces of a row of `cols` elements that one CTA visits, at most. */
int64_t stream_pieces(const stream_split *s, int64_t cols);

/*
 * A split for rows of `cols` elements that start at multiples of 16 bytes: 16 KiB of all inputs a piece; clusters, so that
 * a CTA has four pieces of a row and a ring half as large again as that; where this takes four CTAs or more, whose sums are
 * long on their way, twice as many that see ahead. Rows beyond such rings are brought anew for each pass.
 * bench/notes/norm.md has the figures.
 */
stream_split stream_split_choose(int64_t cols, ckl_dtype dtype, int inputs, const ckl_device_info *device);

/* CTAs of the largest cluster to choose: 16 need an undivided GPU, whose groups of SMs have room for them. */
int stream_cluster_max(const ckl_device_info *device);

/* May a kernel have this split for rows of `cols` elements? Rows must start at multiples of 16 bytes and be so long. */
ckl_status stream_split_admit(const char *what, const stream_split *s, int64_t cols, ckl_dtype dtype, int inputs,
                              int values, const ckl_device_info *device);

/* May its rows be drawn? Every CTA must have a piece of a row: it is what keeps the producers of a cluster together. */
ckl_status stream_draw_admit(const char *what, const stream_split *s, int64_t cols);

/* A matrix whose rows start ld elements apart. */
typedef struct stream_input {
    val pointer, ld;
} stream_input;

typedef struct row_stream {
    stream_split split;
    ckl_dtype dtype;
    int input_count;
    stream_input inputs[STREAM_INPUTS_MAX];
    val rows, cols;          // of the matrices: i64, u32
    val first_row, row_step; // of this CTA, if its rows are given
    bool drawn;              // they are drawn
    tickets tickets;
    val turn, row, next;  // variables of consumers: their row, and the one after it
    int64_t stage_offset; // of the ring in shared memory
    pipeline ring;
    pipeline_state seen, written; // consumers' places: of the first visit and, if the row stays in the ring, the second
    tensor rHeld[STREAM_PIECES_MAX][STREAM_INPUTS_MAX]; // a row in registers, [piece][input]
    mailbox mail;
    double fill; // what is seen past the end of a row; 0 unless set after row_stream_begin()
} row_stream;

/*
 * Describes the producer and all set-up; what follows, up to row_stream_end(), is done by the other threads. values: of the
 * largest reduction. counter: the address of one from which rows are drawn (tickets.h), for 2^31 rows at most; the constant 0
 * gives every CTA, or cluster, the same rows in every run.
 */
row_stream row_stream_begin(const stream_split *split, ckl_dtype dtype, const stream_input *inputs, int input_count,
                            int values, val rows, val cols, val counter);
void row_stream_end(row_stream *s);

/* This thread's place at the start of a row: the thread whose `first` is 0 writes what belongs to the row as a whole. */
row_place row_stream_place(const row_stream *s, val row);

/* Its place in a piece of any row, for what belongs to columns. If passes are unrolled; the piece may not exist. */
row_place row_stream_columns(const row_stream *s, int piece);

/*
 * What a kernel does with each row: see(), when s->row is it and s->next the one after it, ends with row_stream_send();
 * write() begins with row_stream_receive(). Row n + 1 may be seen before row n is written: what they both need to know of a
 * row must have two places, and hand_over(), between the see() and the write() of the same row, moves it from one to the
 * other.
 */
typedef struct row_steps {
    void (*see)(row_stream *s, val row, void *user);
    void (*hand_over)(void *user); // NULL: there is nothing
    void (*write)(row_stream *s, val row, void *user);
} row_steps;

/* Takes all rows of this CTA through their steps. */
void row_stream_walk(row_stream *s, const row_steps *steps, void *user);

/*
 * The two visits to the pieces of this CTA. rX[i], (VEC,STEPS) registers of the dtype, is this thread's part of input i, and
 * `fill` past the end of the row; p is its place, for row_part(), row_load() and row_store() with split.piece; piece is
 * its number if passes are unrolled, else 0. Unrolled passes also visit pieces past the end, unless split.piece.whole
 * says that rows fill all of them.
 */
typedef void stream_visit(const row_place *p, int piece, const tensor *rX, void *user);
void row_stream_see(row_stream *s, val row, stream_visit *visit, void *user);
void row_stream_write(row_stream *s, val row, stream_visit *visit, void *user);

/* A reduction over all threads of the row, in two halves; everyone receives the result. */
void row_stream_send(const row_stream *s, const reduction *r, val *values);
void row_stream_receive(const row_stream *s, const reduction *r, val *values);

#endif
