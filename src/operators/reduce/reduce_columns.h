/* reduce_columns.h - what the files of reduce's kernel for columns share. */
#pragma once

#include "operators/reduce/reduce_kernel.h"

enum { REDUCE_COLUMNS_OF_THREAD = 16 }; // at most

typedef struct columns_kernel {
    const reduce_columns_config *cfg;
    const reducer *r;
    int kernel;
    bool ragged;
    reduce_values p;
    val lane, layer;      // u32: this thread across and along
    val tile, rank;       // i64: which columns, and the number of this CTA among theirs
    val owned, limit;     // i64, in the stretch: the first column that this lane stores, the end of the CTA's
    val column, columns;  // i64: the first column that this thread accumulates in its stretch, and how long that is
    val first, end;       // i32: which of the thread's columns exist
    val stretch;          // i64
    val start;            // address of the first element of that column
    val begin;            // of a ragged CTA: the number of its first element, from a boundary of memory
    val next, step_bytes; // with one reduced mode: address of the thread's next vector, bytes to the one after
    val pivot[REDUCE_COLUMNS_OF_THREAD];
    val state[REDUCE_COLUMNS_OF_THREAD]
             [REDUCE_VALUES_MAX]; // of a reducer that counts, all share the count while they accumulate
} columns_kernel;

/* Threads of a CTA on top of each other. */
int reduce_columns_layers(const reduce_columns_config *cfg);

/* Warps, or more threads where these share a line. Threads of a group that have the same columns are of one warp. */
int reduce_columns_groups(const reduce_columns_config *cfg);

/* Of this thread, u32: mode 0, its place in its group; 1, the group's number. */
val reduce_columns_group(const reduce_columns_config *cfg, int mode);

/* Of a ragged CTA: how far the first column that a group accumulates lies before the CTA's first. */
val reduce_columns_shift(const columns_kernel *k, val group);

/*
 * Merges the states of all threads of the device that have the same columns. Where it returns true, this thread has
 * those of the columns from `owned` on.
 */
val reduce_columns_merge(columns_kernel *k);
