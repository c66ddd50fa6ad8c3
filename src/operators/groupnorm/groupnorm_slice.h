/* groupnorm_slice.h - what group norm's kernels share: where a CTA's slice is, and passes over its vectors. */
#ifndef CKL_GROUPNORM_SLICE_H
#define CKL_GROUPNORM_SLICE_H

#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_config.h"

/* The slice of this CTA. */
typedef struct groupnorm_slice {
    const groupnorm_config *cfg;
    groupnorm_values a;
    int align;          // of vectors in memory, bytes
    val bundle;         // i64, of all images
    val image, channel; // i64, channel: the first of the bundle
    val rank;           // i32, which slice of the bundle
    val count;          // i32, units of it
    val base;           // i64, element of the tensor where the first unit of the first channel is
} groupnorm_slice;

/* The thread's place in a grid over the slice. */
typedef struct groupnorm_view {
    groupnorm_grid grid;
    val column, column_thread; // i32: the first of the thread; its number among those of the column
    val vectors;               // i32, of the thread in each of its columns
} groupnorm_view;

/* One column of a thread. */
typedef struct groupnorm_column {
    val number;  // i32, in the bundle
    val exists;  // predicate
    val vectors; // i32, of the thread in it
    val shared;  // u32, bytes from the start of a slice in shared memory to its first vector
    val global;  // i64, elements from the start of the tensor
} groupnorm_column;

/* One vector on its way through a pass. */
typedef struct groupnorm_vector {
    val shared; // u32, bytes as above
    val global; // i64, elements as above
    packed x, dy;
} groupnorm_vector;

/* Declares the parameters; sets threads and cluster; waits for the kernel before. backwards: last CTA first. */
groupnorm_slice groupnorm_slice_here(const groupnorm_config *cfg, bool vectors, bool split, bool backwards);

/* What is above it overlaps the end of the kernel before, and may not touch global memory. */
void groupnorm_wait(void);

groupnorm_view groupnorm_view_of(const groupnorm_slice *s, int vec);

bool groupnorm_is_nchw(const groupnorm_slice *s);

/* Has every thread one column at most? Then what belongs to the column is loaded once, before the passes. */
bool groupnorm_has_one_column(const groupnorm_view *w);

/* One pass over the columns of a thread; every thread of the CTA comes to each, even if it does not exist. */
typedef void groupnorm_column_pass(void *kernel, const groupnorm_column *c);
void groupnorm_over_columns(const groupnorm_slice *s, const groupnorm_view *w, groupnorm_column_pass *pass,
                            void *kernel);

/* One pass over the vectors of a column, a few at once: `load` of all of them, unless NULL, goes before `use` of one. */
typedef void groupnorm_vector_pass(void *kernel, groupnorm_vector *v);
void groupnorm_over_vectors(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_column *c,
                            groupnorm_vector_pass *load, groupnorm_vector_pass *use, void *kernel);

/* Vectors in memory and in shared memory. */
tensor groupnorm_global(const groupnorm_slice *s, val pointer, val element, int count); // (COUNT)
packed groupnorm_load(const groupnorm_slice *s, val pointer, val element);
packed groupnorm_load_shared(const groupnorm_slice *s, val address, int vec);

/* Starts the copy of a vector into shared memory, where the thread that asked for it finds it after groupnorm_staged(). */
void groupnorm_stage(const groupnorm_slice *s, val address, val pointer, val element);
void groupnorm_staged(void);

/* Of f32: element `index` of an array in global memory. */
val groupnorm_read(val pointer, val index);
void groupnorm_write(val pointer, val index, val x);

/* The entry of the warp's group and of slice `number` in the workspace: the index of its first word. */
val groupnorm_entry(const groupnorm_slice *s, val number);

/* gamma or beta of a column: (1) or (VEC). */
tensor groupnorm_weights(const groupnorm_slice *s, val pointer, val column);

/* The group in the bundle of element e of a column's vectors. */
val groupnorm_group(const groupnorm_slice *s, const groupnorm_view *w, val column, int e);

/* Are all elements of a vector of the same group? */
bool groupnorm_one_group(const groupnorm_slice *s, int vec);

/* The sum over the warp of each of `count` values. */
void groupnorm_warp_sum(int count, val *values);

/*
 * Shared memory of the CTAs of a cluster. Every warp that has a group sends `count` values of it, which lane 0 holds; after
 * cluster_sync() every CTA has those of all.
 */
tensor groupnorm_peers(const groupnorm_config *cfg, int count); // (COUNT,CLUSTER,BUNDLE)
void groupnorm_send_to_peers(const groupnorm_slice *s, tensor sPeers, int count, const val *values);

#endif
