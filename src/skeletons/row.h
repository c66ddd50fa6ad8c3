/*
 * row.h - rows of a matrix split over lanes, warps, CTAs and clusters: the skeleton of softmax, cross-entropy and the
 * norms.
 *
 * A row lives in the registers of the threads that share it: neighbouring threads take neighbouring vectors, and each
 * thread takes as many as its split says. Short rows get a few lanes (several rows a warp), longer ones a CTA, the
 * longest a cluster. The kernel then reads like this:
 *
 *     row_place p = row_here(&split, rows, cols);
 *     tensor tXgX = row_of_matrix(&split, &p, x, dtype, ldx), tYgY = ...;   // (VEC,STEPS)
 *     tensor rX = fragment_like(tXgX, dtype);                          // (VEC,STEPS)
 *     row_load(&split, &p, tXgX, rX, -INFINITY);
 *     ... values of the thread, then row_reduce(&split, &reduction, values) ...
 *     row_store(&split, &p, rY, tYgY);
 */
#pragma once

#include "base/dtype.h"
#include "base/fields.h"
#include "cute/reduce.h"
#include "cute/tensor.h"
#include "cutekernellib/device.h"

/*
 * How a row is split over threads. A kernel's config has row_split split, and ROW_SPLIT(FIELD_NESTED, (config, split))
 * among its fields. threads: a multiple of 32. row_threads: a power of two up to 32, or a multiple of 32 that divides
 * threads; only if it is all of them may a cluster share a row. exact: no access of an existing row needs a predicate.
 * ragged: see row_spans.
 */
#define ROW_SPLIT(X, owner)                                                                                      \
    X(owner, int, threads, "128", "128 256 512 1024", "threads of a CTA")                                        \
    X(owner, int, row_threads, "32", "4 8 16 32 128 256 512 1024", "threads of a CTA that share a row")          \
    X(owner, int, cluster, "1", "1 2 4 8", "CTAs that share a row")                                              \
    X(owner, int, vec, "1", "1 2 4 8", "elements of one access, at most 16 bytes")                               \
    X(owner, int, steps, "1", "1 2 4 8 16", "vectors of a thread")                                               \
    X(owner, bool, exact, "0", "0 1", "rows have exactly as many elements as their threads take: no predicates") \
    X(owner, bool, early, "0", "0 1", "little work: several launches wait for each other at once")               \
    X(owner, bool, ragged, "0", "0 1", "rows start anywhere: vectors between 16-byte boundaries, elements at the ends")

typedef struct row_split {
    ROW_SPLIT(FIELD_MEMBER, )
} row_split;

/* Elements of a row that its threads hold; rows of a CTA; CTAs for so many rows. */
int64_t row_split_cols(const row_split *s);
int64_t row_split_rows(const row_split *s);
int64_t row_split_ctas(const row_split *s, int64_t rows);

/* Registers of a thread for its fragment of one tensor. Two 16-bit elements share a register if vec is even. */
int64_t row_split_registers(const row_split *s, ckl_dtype dtype);

/* Elements of 16 bytes: the vector of a ragged row. */
int row_vec_full(ckl_dtype dtype);

/* The widest vector in elements, up to 16 bytes, that divides rows of `cols` elements and, if several, pitches. */
int row_vec(ckl_dtype dtype, int64_t rows, int64_t cols, int64_t ldx, int64_t ldy);

/*
 * A split for rows of `cols` elements in vectors of `vec`: the fewest threads whose fragments take `registers`
 * registers per tensor or less; if even cluster_max CTAs of 512 threads do not reach that, up to 2 * registers. Of f32
 * more, if none of them is idle, until an access is a line of memory: softmax of 117760x64 20.7 us by two lanes, 16.4
 * by four, 15.7 by eight. False: too long.
 */
bool row_split_choose(int64_t cols, int vec, ckl_dtype dtype, int registers, int cluster_max, row_split *s);

/*
 * What depends on the number of rows, of so many tensors. The same lanes in larger CTAs, where many short rows would
 * spend their time on starting CTAs: 1.2 ns each on an H200. Cross-entropy of 60032x520 f32, which only reads, 36.8 us
 * by 64 threads, 30.3 by 256; softmax of 28672x5 f32 2.5 and 1.5. And whether row_wait() lets the next launch come
 * early.
 */
void row_split_finish(row_split *s, int64_t rows, int64_t cols, ckl_dtype dtype, int tensors,
                      const ckl_device_info *device);

enum { ROW_STEPS_HALVED = 6 }; // of a thread, where a row has whole CTAs

/*
 * Half the threads of a row, down to threads_min, with more vectors each, up to steps_max, where that leaves fewer idle
 * in the last step: 4992 elements of 16 bits are 2.4 steps of 256 threads and 4.9 of 128, layer norm of 8576 rows takes
 * 57.4 and 51.8 us on an H200. Likewise of 512 threads, of which one or two CTAs fit an SM: layer norm of 2048x12288
 * 35.4 and 32.9, softmax of 4096x11008 50.3 and 44.3.
 */
void row_split_halve(int64_t cols, int threads_min, int steps_max, row_split *s);

/* May a kernel have this split for rows of `cols` elements? Sentences open with `what`: "softmax row: threads=33". */
ckl_status row_split_admit(const char *what, const row_split *s, int64_t cols, ckl_dtype dtype,
                           const ckl_device_info *device);

/*
 * A ragged split for rows of `cols` elements, chosen likewise. False: too long, or so short that most elements are at
 * the ends.
 */
bool row_split_choose_ragged(int64_t cols, ckl_dtype dtype, int registers, int cluster_max, row_split *s);

/* The same split by single elements: for pointers that are not aligned to a vector. */
row_split row_split_scalar(const row_split *s);

/*
 * The same threads for rows that start anywhere: ragged if the split has vectors of 16 bytes and threads enough, else
 * scalar.
 */
row_split row_split_anywhere(const row_split *s, ckl_dtype dtype);

/*
 * Are two addresses equally far from a 16-byte boundary, and all rows of the matrices that start there? One row has no
 * pitch.
 */
bool row_starts_in_phase(const void *address, const void *other);
int64_t row_phase_period(ckl_dtype dtype, int64_t ld); // rows until one lies to 16 bytes as the first does
bool row_in_phase(ckl_dtype dtype, int64_t rows, int64_t ld, int64_t other_ld);

/* Where this thread is: its row, and its first element in it. Sets the kernel's threads and cluster. */
typedef struct row_place {
    val row;        // i64
    val exists;     // predicate: the last CTA may have room for more rows than there are
    val first;      // u32
    val limit;      // u32, elements of the row; 0 if it does not exist
    val rows, cols; // i64, u32
    tensor cX;      // coordinates in (ROWS,COLS) of this thread's elements: (VEC,STEPS)
} row_place;

row_place row_here(const row_split *s, val rows, val cols);

/*
 * Waits for the kernel before; what is above overlaps its end. The next one's CTAs may come then, or, of little work,
 * sooner, so that several launches wait at once: softmax of 32x256 bf16 takes 1.00 us so, 1.09 else. Those of more work
 * would crowd some SMs: 1024x1000 f32 takes 2.8 us, 3.9 if they come sooner.
 */
void row_wait(const row_split *s);

/* The partition of a tile (COLS) of a row for thread tid of those that share it: (VEC,STEPS). */
tensor row_partition(const row_split *s, tensor row, val tid);

/* The place of one of the threads that share a row which exists. */
row_place row_place_of(const row_split *s, val rows, val cols, val row, val tid);

/* The same thread and columns in another row, which exists. */
row_place row_place_in(const row_place *p, val row);

/* The same thread in another row, which may not exist. */
row_place row_place_at(const row_place *p, val row);

/* The same thread in the tile of the row that begins at element `start`: longer rows than a split are tiled. */
row_place row_from(const row_place *p, val start);

/* The same thread with `steps` of its vectors, from number `begin` on; for a split of so many steps. */
row_place row_steps(const row_place *p, int begin, int steps);

/*
 * The spans of a row, each accessed by a split of its own. An aligned row is one span. A ragged row is two: the whole
 * vectors between its first and its last 16-byte boundary, and the single elements before and after, at most one a
 * thread. Nothing outside the row is touched. Boundaries are those of the matrix at `pointer`: row_load() and
 * row_store() of a span want tensors whose rows lie in phase with it; the forms for rows that start anywhere take all.
 */
typedef struct row_span {
    row_split split;
    row_place place;
} row_span;

enum { ROW_SPANS_MAX = 2 };

/* The columns of a row's first span. */
typedef struct row_bounds {
    val begin, end; // u32
} row_bounds;

typedef struct row_spans {
    row_span of[ROW_SPANS_MAX];
    int count;
    row_bounds bounds;
} row_spans;

/* The bounds of a row of `cols` elements, the same in all its threads. */
row_bounds row_bounds_of(const row_split *s, val row, val cols, val pointer, ckl_dtype dtype, val ld);

/* The spans of the thread's row; p: its start. */
row_spans row_spans_of(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype, val ld);

/* May this warp have elements of a ragged row's ends? Others skip the instructions. */
val row_may_have_ends(const row_split *s);

/* This thread's partition of row p->row of a matrix whose rows begin ld elements apart, or of a vector of all rows. */
tensor row_of_matrix(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype, val ld); // (VEC,STEPS)
tensor row_vector(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype);            // (VEC,STEPS)

/* Between memory and registers (of the memory's type or f32); past the row's end: `fill`, and nothing is stored. */
void row_load(const row_split *s, const row_place *p, tensor from, tensor to, double fill);
tensor row_fetch(const row_split *s, const row_place *p, tensor from, double fill); // into registers of the same type
void row_load_anywhere(const row_split *s, const row_place *p, tensor from, tensor to, double fill);

/*
 * The thread's part of a vector that all rows use, in registers of its type, filled with 0: ragged rows lie out of
 * phase with it.
 */
tensor row_fetch_vector(const row_split *s, const row_place *p, val pointer, ckl_dtype dtype); // (VEC,STEPS)

/*
 * The same for row p->row of a matrix, where a vector may be cut out of memory before or after the row. Only the first
 * and the last row are guarded; row_load_cut() is told which rows those are. Rows must be at least a vector long.
 */
void row_load_among(const row_split *s, const row_place *p, tensor from, tensor to, double fill);
void row_load_cut(const row_split *s, const row_place *p, val is_outer, tensor from, tensor to, double fill);
val row_is_outer(val row, val rows);

/* The same of a ragged split in two steps: loads of several tensors are issued before the first one is waited for. */
typedef struct row_cut row_cut;
row_cut *row_issue_cut(const row_split *s, const row_place *p, val is_outer, tensor from, double fill);
void row_finish_cut(const row_cut *r, tensor to);

/*
 * The same vectors of several rows in shared memory, from[i] the address of this thread's first one in row i less
 * `past` bytes, a multiple of 16. past is the same for all rows and threads.
 */
void row_load_cut_shared(const row_split *s, const row_place *p, const val *from, int count, val past, tensor *to,
                         double fill);

void row_store(const row_split *s, const row_place *p, tensor from, tensor to);
void row_store_anywhere(const row_split *s, const row_place *p, tensor from, tensor to);

void row_store_step(const row_split *s, const row_place *p, tensor from, tensor to, int step); // one vector of them

/* Is vector number `step` of this thread inside the row? The constant true where no predicate is needed. */
val row_inside(const row_split *s, const row_place *p, int step);

/* Reduces over the threads of the row; all of them get the result. For every thread of the CTA (cluster). */
void row_reduce(const row_split *s, const reduction *r, val *values);
