/*
 * column.h - columns of matrices split over threads: reductions across lines of memory.
 *
 * A tensor is [outer, n, inner] with lines of `inner` elements, ld apart; a column is what has the same outer and inner
 * index. `lanes` neighbouring threads take neighbouring vectors of a line, so that each line gives whole sectors;
 * groups of lanes, in one CTA or a cluster, take different lines. A thread holds the elements of `vec` columns in
 * `steps` lines: (VEC,STEPS).
 */
#pragma once

#include "base/dtype.h"
#include "base/fields.h"
#include "cute/reduce.h"
#include "cute/tensor.h"
#include "cutekernellib/device.h"

/*
 * How columns are split over threads. A kernel's config has column_split split, and COLUMN_SPLIT(FIELD_NESTED, (config,
 * split)) among its fields. threads: a power of two, 32 or more, with as many warps as the cluster has CTAs. lanes: a
 * power of two up to 32. exact: no access needs a predicate. ragged: lines of a thread are a multiple of `vec` apart,
 * so they begin alike; its vectors are those between boundaries of memory, and those at both ends of a strip are loaded
 * for their sums alone: neighbouring strips store them.
 */
#define COLUMN_SPLIT(X, owner)                                                     \
    X(owner, int, threads, "256", "128 256 512 1024", "threads of a CTA")          \
    X(owner, int, lanes, "8", "4 8 16 32", "neighbouring threads along a line")    \
    X(owner, int, cluster, "1", "1 2 4 8", "CTAs that share a column")             \
    X(owner, int, vec, "1", "1 2 4 8", "elements of one access, at most 16 bytes") \
    X(owner, int, steps, "1", "1 2 4 8 16", "lines of a thread")                   \
    X(owner, bool, exact, "0", "0 1", "tensors fill their threads: no predicates") \
    X(owner, bool, ragged, "0", "0 1", "lines begin anywhere: vectors lie between boundaries of memory")

typedef struct column_split {
    COLUMN_SPLIT(FIELD_MEMBER, )
} column_split;

/*
 * Columns of a strip, which one CTA or cluster takes, and for which it has room; strips side by side; lines that its
 * threads hold; CTAs for a tensor.
 */
int64_t column_split_columns(const column_split *s);
int64_t column_split_room(const column_split *s);
int64_t column_split_strips(const column_split *s, int64_t inner);
int64_t column_split_lines(const column_split *s);
int64_t column_split_ctas(const column_split *s, int64_t outer, int64_t inner);

/*
 * A split whose threads hold about `elements` elements of each tensor, at most twice as many. Lines have 128 bytes
 * where there are enough columns, 64 where registers run short. False: too long for cluster_max CTAs.
 */
bool column_split_choose(int64_t n, int64_t inner, int vec, ckl_dtype dtype, int elements, int cluster_max,
                         column_split *s);

/* May a kernel have this split? The sentence opens with `what`. Lines past column_split_lines() are not checked. */
ckl_status column_split_admit(const char *what, const column_split *s, ckl_dtype dtype, const ckl_device_info *device);

/*
 * The same lines by single elements, for pointers not aligned to a vector; of fewer columns where there are too few
 * lanes.
 */
column_split column_split_scalar(const column_split *s);

/* Where this thread is; strips: u32. Sets the kernel's threads and cluster. */
typedef struct column_place {
    val outer;  // i64
    val column; // i64, of the thread's first
    val line;   // u32, the first of the thread
    val lines;  // u32: n, or 0 if the column does not exist
    val shift;  // u32, ragged: columns from the thread's vector to where it would be without ragged lines
    val inner;  // i64, ragged: columns of the tensor
    tensor cX;  // coordinates in (COLUMNS,LINES) of this thread's elements: (VEC,1,STEPS)
} column_place;

column_place column_here(const column_split *s, val n, val inner, val strips);

/*
 * The same in another strip; strips are numbered (u32) side by side first, then by outer. ld: of any of the tensors,
 * whose vectors a ragged split takes if they begin at one; column_here() has none.
 */
column_place column_in_strip(const column_split *s, val n, val inner, val ld, val strips, val strip);

/*
 * The place of value e of this thread among the columns for which its strip has room: u32. Values past the strip fill
 * the rest.
 */
val column_number(const column_split *s, const column_place *p, int e);

/* The same thread in the tile of its columns that begins at line `start`. */
column_place column_from(const column_place *p, val start);

/* A tensor in memory: `outer` matrices of n lines each. */
typedef struct column_tensor {
    val pointer;
    ckl_dtype dtype;
    val ld, n;
} column_tensor;

/*
 * Between a tensor and registers (VEC,STEPS) of its type or f32; outside: `fill`, and nothing is stored. Ragged lines
 * are not loaded so, but staged.
 */
void column_load(const column_split *s, const column_place *p, const column_tensor *of, tensor to, double fill);
void column_store(const column_split *s, const column_place *p, tensor from, const column_tensor *of);

/*
 * A thread's slots in shared memory for one tile, from `address` of its CTA on: nobody else reads or writes them.
 * Staging is a cp.async of whole vectors, of 4 bytes at least, zeros outside; what has arrived is loaded into
 * registers, with `fill` outside.
 */
int64_t column_slots_bytes(const column_split *s, ckl_dtype dtype); // of a CTA: from a tile's slots to the next one's
void column_stage(const column_split *s, const column_place *p, const column_tensor *of, val address);
void column_load_staged(const column_split *s, const column_place *p, ckl_dtype dtype, val address, tensor to,
                        double fill);

/*
 * Reduces over the threads of each column; all of them get the results. values: r->count variables of f32 for each of
 * the thread's `vec` columns. A kernel may have one. All CTAs of the cluster must have started, and ended the reduction
 * before.
 */
int64_t column_reduce_bytes(const column_split *s, int count); // of shared memory
void column_reduce(const column_split *s, const column_place *p, const reduction *r, val *values);

/*
 * The same over a CTA, each result in one thread: store() of the column's number, and its values. scratch: shared
 * memory of column_reduce_each_bytes(), aligned to 16; a barrier must come before it is used again.
 */
int64_t column_reduce_each_bytes(const column_split *s, int count);
void column_reduce_each(const column_split *s, const column_place *p, const reduction *r, int64_t scratch, val *values,
                        void (*store)(void *user, val column, const val *values), void *user);

/*
 * Sums of columns over any number of lines (column_sums.c): `lanes` groups of neighbouring lanes of a warp take
 * neighbouring columns, or vectors of them. The warps of a CTA and the lanes of a group are workers: they take lines in
 * turn, and their sums are added in order. A lane has `count` sums in all.
 */
enum { COLUMN_SUMS_MAX = 8 };

typedef struct column_sums {
    int warps, lanes, per_warp; // per_warp: workers
    int count;
    val number; // u32, of this lane's columns, or its vector of them
    val sum[COLUMN_SUMS_MAX];
} column_sums;

column_sums column_sums_begin(int threads, int lanes, int count); // sets the kernel's threads
void column_sums_over(const column_sums *s, val lines, void (*add_line)(void *user, val line), void *user);
/* Calls store() for each total, in a thread of its own: i of lane `number`, both u32. The lane may have no columns. */
void column_sums_finish(column_sums *s, void (*store)(void *user, val number, val i, val total), void *user);
