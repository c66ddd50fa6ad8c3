/*
 * reduce_kernel.h - what is made of a row, as functions on IR values, and what reduce's kernels share.
 *
 * Most operations are a fold: one value, an associative and commutative combination, perhaps something done to each
 * element before and to the result after; those of users (reduce_fold.h) are, too. Others (a variance, a position)
 * carry several values and are a reducer.
 */
#pragma once

#include "cute/kernel.h"
#include "operators/reduce/reduce_config.h"

/* Elements of one row that a thread accumulates at once. x[i] has index first + distance[i] in its row. */
typedef struct reduce_batch {
    const val *x; // of the reducer's input type
    int size;
    val first; // i64
    const int64_t *distance;
    val before, share; // f32, for a reducer that counts: elements accumulated before, and 1 / (those and these)
} reduce_batch;

/* A reduction of one value. */
typedef struct reduce_fold {
    ir_type input;                                   // that elements are converted to: F32, I32 or I64
    ir_type total;                                   // of what is combined: 32 or 64 bits
    val (*map)(val x, void *user);                   // NULL: x as it is
    val (*combine)(val a, val b, void *user);        // associative and commutative
    val (*finish)(val total, val count, void *user); // NULL: the total
    double identity;                                 // combine(identity, a) == a; the result of an empty row
    void *user;
} reduce_fold;

/*
 * A reduction in general. `state` is `count` variables of a thread; several states are merged pairwise, in any order.
 */
typedef struct reducer {
    ir_type input;
    int count;
    ir_type types[REDUCE_VALUES_MAX];
    bool pivot;  // accumulate() is given the first element of the row
    bool counts; // state[0], f32, is the number of elements: see reduce_count()

    /* Constants: the state of no elements. */
    void (*identity)(const struct reducer *r, val *state);

    /* Adds a batch to the state. Those of a thread come in the order of the row. */
    void (*accumulate)(const struct reducer *r, const reduce_batch *batch, val pivot, val *state);

    reduce_combine *merge;                     // its user is the reducer
    reduce_lanes *over_lanes;                  // as of a reduction; its user is the reducer
    val (*rescale)(val sum, val from, val to); // of a sum in terms of the largest element so far: in terms of another
    reduce_combine *known;                     // one of cute/reduce.h that does the same, with user NULL; or NULL
    val (*finish)(const struct reducer *r, const val *state, const reduce_values *p);
    reduce_fold fold; // of a reducer made from one; of others its identity, or its user, is what they are told apart by
} reducer;

/* The operation, or the fold in its place; compensated where it is a sum in f32. */
reducer reducer_of(const reduce_kind *kind, bool compensated);

/* The built-in operations of several values (reduce_moments.c). */
reducer reduce_variance_of(ir_type input, bool near, bool root); // near: 16-bit floats, whose differences f32 holds
void reduce_add_squares(const reducer *r, const reduce_batch *batch, val pivot, val *state); // an accumulate()
extern const reducer reduce_norm, reduce_logsumexp;

/* What the kernels share */

/* Modes of which the last runs fastest, as a layout. */
layout reduce_modes(int count, const val *extent, const val *stride);

/* A row of x, through the read-only cache. */
tensor reduce_row(const reduce_kind *kind, const reduce_values *p, val row); // (REDUCED...)

/* Variables that hold the state of no elements. */
void reduce_begin(const reducer *r, val *state);
reduction reduce_reduction(const reducer *r);

/* Shared memory of states, a tensor for each value; the state at a place of it. */
void reduce_states(const reducer *r, const char *name, layout places, tensor *sS);
void reduce_set_state(const reducer *r, const tensor *sS, int_tuple place, const val *state);
void reduce_get_state(const reducer *r, const tensor *sS, int_tuple place, val *state);

/* Accumulates one element of memory; index is its place in the row. */
void reduce_accumulate_one(const reducer *r, val x, val index, val pivot, val *state);

/*
 * The first element of a row as a variable of the input type; 0 if the row is empty or the reducer has no use for it.
 */
val reduce_load_pivot(const reducer *r, const reduce_values *p, tensor gRow);

/* Writes the result of a row. */
void reduce_store(const reducer *r, const reduce_values *p, ckl_dtype output, val row, const val *state);

/*
 * Call before accumulating a batch: for a reducer that counts, `count` (its state[0]) grows by the batch, and the
 * batch's `before` and `share` are set. Threads that accumulate a batch of each of several rows count once.
 */
void reduce_count(const reducer *r, val count, reduce_batch *batch);

/* Counts and accumulates. */
void reduce_accumulate(const reducer *r, reduce_batch *batch, val pivot, val *state);

/* What is above overlaps the end of the kernel before, and the next one begins as its config's `overlap` says. */
void reduce_wait(int overlap);

/* The last CTA (reduce_merge.c) */

/*
 * Where the CTAs of a row send their states: a slot of 8 bytes for every 32 bits of a CTA's state, zero before and
 * after.
 */
typedef struct reduce_slots {
    const reducer *r;
    val address;
    int ctas;
} reduce_slots;

/* Those of one row of a workspace. */
reduce_slots reduce_slots_of(const reducer *r, val states, val row, int ctas);

enum { REDUCE_RECEIVE_MAX = 16 }; // states that a thread receives at once

/* Thread 0 counts the CTA as started at a counter in global memory, and gets how many started before. */
val reduce_arrive(val counter);

/* Is this the last CTA to have started? 1 in its thread 0, which sets the counter back; else 0. */
val reduce_is_last(val counter, val arrival, int ctas);

/* Broadcasts a predicate of thread 0 to the CTA. */
val reduce_broadcast(val known);

/* Sends the state of this thread as that of CTA number `rank`. */
void reduce_send(const reduce_slots *s, val rank, const val *state);

/*
 * In the last CTA to have started: waits for the states of `count` CTAs and clears their slots. A CTA that does not
 * exist gives the state of no elements.
 */
void reduce_receive(const reduce_slots *s, const val *ranks, int count, val states[][REDUCE_VALUES_MAX]);
