/*
 * groupnorm_slice.h - what the kernels of group norm share: a slice and the passes of its threads over it
 * (groupnorm_slice.c), what channels and lanes tell each other of their groups (groupnorm_groups.c). How slices meet is
 * in groupnorm_kernels.c.
 */
#pragma once

#include "cute/copy.h"
#include "operators/groupnorm/groupnorm_config.h"

/* The slice of this CTA. */
typedef struct groupnorm_slice {
    const groupnorm_config *cfg;
    groupnorm_values a;
    int align;          // of vectors in memory, bytes
    ir_cache reads;     // of vectors that are read again, and
    ir_cache writes;    // of outputs beside them: hints
    val bundle;         // i64, of all images
    val image, channel; // i64, channel: the first of the bundle
    val group;          // i64, of all images: the first of the bundle
    val channels;       // i32, of the bundle
    val rank;           // i32, which slice of the bundle
    val range;          // i32, which of those of a channel
    bool halves;        // are added up one after the other: where all of the slice is in shared memory
    val count;          // i32, units of it; of a ragged one elements of a channel in it
    val base;           // i64, element of the tensor where the first unit of the first channel is
} groupnorm_slice;

/* One vector on its way through a pass. */
typedef struct groupnorm_vector {
    int vec;    // elements: 1 at the ends of a ragged column
    val shared; // u32, bytes as those of a column, below
    val global; // i64, elements as well
    packed x, dy;
    bool again; // it is read from memory in each pass
} groupnorm_vector;

enum { GROUPNORM_UNROLLED = 4 }; // vectors of a thread whose loads are in flight together

/* The thread's place in a grid over the slice. */
typedef struct groupnorm_view {
    groupnorm_grid grid;
    void (*between)(void *kernel); // if not NULL: what a pass does between the halves of a slice
    int at_once;                   // vectors whose loads are in flight together: fewer where registers are few
    val column, column_thread;     // i32: the first of the thread; its number among those of the column
    val count;                     // i32, units of a column, or elements
    val vectors;                   // i32, of the thread in each of its columns, but for ragged ones
    val first;                     // i32, those in the first half of the slice
    groupnorm_vector kept[GROUPNORM_KEPT_MAX]; // loaded by groupnorm_stage(): of the last steps
} groupnorm_view;

/* One column of a thread. */
typedef struct groupnorm_column {
    val number;           // i32, in the bundle
    val exists;           // predicate
    val vectors;          // i32, of the thread in it
    val start;            // i64, of a ragged one: its first element
    val head, body, ends; // i32: elements before its vectors, in them, and not in them
    val shared;           // u32, bytes from the start of a slice in shared memory to its first vector
    val global;           // i64, elements from the start of the tensor
} groupnorm_column;

/* Declares the parameters, sets threads and cluster; then what is in slice `rank` of a bundle. */
groupnorm_slice groupnorm_slice_begin(const groupnorm_config *cfg, bool vectors);
void groupnorm_slice_at(groupnorm_slice *s, val bundle, val rank);

/* Which slice of a channel slice `rank` of the bundle is. */
val groupnorm_range_of(const groupnorm_slice *s, val rank);

/* What is above it overlaps the end of the kernel before, and may not touch global memory. */
void groupnorm_wait(void);

groupnorm_view groupnorm_view_of(const groupnorm_slice *s);

bool groupnorm_is_nchw(const groupnorm_slice *s);

/* Are pointers aligned to the element only? */
bool groupnorm_by_elements(const groupnorm_slice *s);

/* One pass over the columns of a thread; every thread of the CTA comes to each, even if it does not exist. */
typedef void groupnorm_column_pass(void *kernel, const groupnorm_column *c);
void groupnorm_over_columns(const groupnorm_slice *s, const groupnorm_view *w, groupnorm_column_pass *pass,
                            void *kernel);

/* Elements of a ragged channel in the slice that begins at a unit. */
val groupnorm_elements_from(const groupnorm_slice *s, val unit);

/* Column number `slot` of a thread. */
groupnorm_column groupnorm_column_at(const groupnorm_slice *s, const groupnorm_view *w, val slot);

/* One of the ends of a ragged column that a thread takes, and whether it is there. */
groupnorm_vector groupnorm_end(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_column *c, int number,
                               val *exists);

/*
 * One pass over the vectors of a column, a few at once, then over its ends: `load` of all of them, unless NULL, goes
 * before `use` of one.
 */
typedef void groupnorm_vector_pass(void *kernel, groupnorm_vector *v);
void groupnorm_over_vectors(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_column *c,
                            groupnorm_vector_pass *load, groupnorm_vector_pass *use, void *kernel);

/* Of a column that may not exist: the last one that does. */
val groupnorm_existing(const groupnorm_slice *s, const groupnorm_view *w, val column);

/* Groups of the bundle: i32. */
val groupnorm_groups(const groupnorm_slice *s);

/* Vectors in memory and in shared memory. */
tensor groupnorm_global(const groupnorm_slice *s, val pointer, val element, int count); // (COUNT)
packed groupnorm_load(const groupnorm_slice *s, val pointer, val element, int vec);
packed groupnorm_load_shared(const groupnorm_slice *s, val address, int vec);

/*
 * Starts the copies of the slice of one or two tensors, x and dy, to shared memory, where each thread finds its vectors
 * after groupnorm_staged(); those of the last steps go to registers, cfg->kept of them.
 */
typedef struct groupnorm_staging {
    int count;
    val from[2], to[2]; // pointers, and u32 addresses
} groupnorm_staging;

/* Asks L2 for what will be staged, and for gamma and beta: a thread for each line. */
void groupnorm_prefetch(const groupnorm_slice *s, const groupnorm_view *w, const groupnorm_staging *staging);

void groupnorm_stage(const groupnorm_slice *s, groupnorm_view *w, const groupnorm_staging *staging);
void groupnorm_staged(int halves_pending);

/* Stores a vector of outputs. */
void groupnorm_store(const groupnorm_slice *s, const groupnorm_vector *v, tensor rY);

/* Groups */

/* Of f32: element `index` of an array in global memory. */
val groupnorm_read(val pointer, val index);
void groupnorm_write(val pointer, val index, val x);

/* The number in the bundle of the lane's group, and of the lane in it: i32. Groups from cfg->bundle on do not exist. */
val groupnorm_group_of_lane(const groupnorm_slice *s);
val groupnorm_lane_of_group(const groupnorm_slice *s);

/* Has this warp a group? The others have nothing to merge. */
val groupnorm_merges(const groupnorm_slice *s);

/* The first lane of a group that exists. */
val groupnorm_speaks(const groupnorm_slice *s);

/* What some values of a group are known by, f32: their number, where that is needed, and the words of an entry. */
typedef struct groupnorm_state {
    val count, of[GROUPNORM_ENTRY];
} groupnorm_state;

/* Reading from shared memory, (GROUPNORM_ENTRY,PLACES), where `inside`; else of no values. */
groupnorm_state groupnorm_state_at(val inside, val count, int words, tensor sStates, val place);

/* gamma or beta of a channel of the slice, f32; of a column: (1) or (VEC). */
val groupnorm_weight(const groupnorm_slice *s, val pointer, val channel);
tensor groupnorm_weights(const groupnorm_slice *s, const groupnorm_view *w, val pointer, val column);

/* The channel in the bundle of element e of a column's vectors (nhwc); its group. */
val groupnorm_channel(const groupnorm_slice *s, const groupnorm_view *w, val column, int e);

/* One of the words that are known of each channel, sWords (WORDS,CHANNELS): of a column's, (1) or (VEC). */
tensor groupnorm_of_channels(const groupnorm_slice *s, const groupnorm_view *w, tensor sWords, int word, val column);
val groupnorm_group(const groupnorm_slice *s, const groupnorm_view *w, val column, int e);

/*
 * Adds up what the threads of a column have of its elements, two sums of each (VEC), line by line: sLines is
 * (ELEMENTS of a pixel and its fold,LINES,KINDS). All threads come to it. The last lines are there after another
 * cta_sync().
 */
void groupnorm_add_lines(const groupnorm_slice *s, const groupnorm_view *w, val column, const tensor *rSums,
                         tensor sLines);

/*
 * The totals of the rows of each of `channels` channels (i32), sRows (CHANNELS,ROWS,KINDS): use() in one thread for
 * each channel. All threads come to it, after they have stored.
 */
void groupnorm_add_rows(const groupnorm_slice *s, val channels, tensor sRows,
                        void (*use)(void *kernel, val channel, const val *total), void *kernel);

/* The sum over the lanes of a group of each of `count` values. */
void groupnorm_sum_of_lanes(const groupnorm_slice *s, int count, val *values);
