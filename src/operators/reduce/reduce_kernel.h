/*
 * reduce_kernel.h - for authors of kernels: reductions of your own, given as functions on IR values, in reduce's
 * kernels.
 *
 * Most are a fold: one value, an associative and commutative combination, perhaps something done to each element before
 * and to the result after. Others (a variance, a position) carry several values and are a reducer. Either can be
 * described by any of the kernels below in place of a built-in operation: an implementation whose describe() calls
 * reduce_rows_with().
 */
#ifndef CKL_REDUCE_KERNEL_H
#define CKL_REDUCE_KERNEL_H

#include "cute/kernel.h"
#include "operators/reduce/reduce_config.h"
#include "operators/reduce/reduce_view.h"

/* Elements of one row that a thread takes at once. x[i] has index first + distance[i] in its row. */
typedef struct reduce_batch {
    const val *x; // of the reducer's input type
    int size;
    val first; // i64
    const int64_t *distance;
} reduce_batch;

/* A row as a whole. */
typedef struct reduce_row {
    val count;   // i64: its elements
    val divisor; // f32: max(count - correction, 0)
} reduce_row;

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
    bool pivot;                                         // take() is given the first element of the row
    void (*start)(const struct reducer *r, val *state); // constants: the state of no elements
    void (*take)(const struct reducer *r, const reduce_batch *batch, val pivot, val *state);
    reduce_combine *merge; // its user is the reducer
    val (*finish)(const struct reducer *r, const val *state, const reduce_row *row);
    reduce_fold fold; // of a reducer made from one
} reducer;

reducer reducer_of_fold(const reduce_fold *fold);

/* The built-in operation; compensated where it is a sum in f32. */
reducer reducer_of(int op, ckl_dtype dtype, ckl_dtype output, bool compensated);

/* reduce's kernels with a reducer in place of config->op. */
void reduce_naive_with(const reduce_ladder_config *config, const reducer *r);
void reduce_rows_with(const reduce_rows_config *config, const reducer *r, int part);
void reduce_columns_with(const reduce_columns_config *config, const reducer *r, int part);

/* What the kernels share */

/* The parameters of every kernel, in launch order; modes as in reduce_view. All integers are i64, addresses u64. */
typedef struct reduce_arguments {
    val x, y, counters, partials;
    val rows;
    reduce_row row;
    struct {
        val extent, stride;
    } kept[CKL_REDUCE_RANK_MAX], reduced[CKL_REDUCE_RANK_MAX];
    int kept_count, reduced_count;
} reduce_arguments;

reduce_arguments reduce_declare_arguments(int kept, int reduced);

/* Elements from x to the start of a row, and from there to its element number index. */
val reduce_row_offset(const reduce_arguments *a, val row);
val reduce_element_offset(const reduce_arguments *a, val index);

/* a plus a number of elements. */
val reduce_address(val a, val elements, ckl_dtype dtype);

/* Variables that hold the state of no elements. */
void reduce_begin(const reducer *r, val *state);
reduction reduce_reduction(const reducer *r);

/* Takes one element of memory. index is its place in the row. */
void reduce_take_one(const reducer *r, val address, ckl_dtype dtype, val index, val pivot, val *state);

/*
 * The first element of a row as a variable of the input type; 0 if the row is empty or the reducer has no use for it.
 */
val reduce_load_pivot(const reducer *r, const reduce_arguments *a, val address, ckl_dtype dtype);

/* Writes the result of a row. */
void reduce_store(const reducer *r, const reduce_arguments *a, ckl_dtype output, val row, const val *state);

/* Registers that vectors of `vec` elements are loaded into: halves stay packed in pairs until they are used. */
typedef struct reduce_words {
    ckl_dtype dtype;  // of the elements
    ckl_dtype memory; // of a register: I32 for two halves
    int count;        // registers of a vector
} reduce_words;

reduce_words reduce_words_of(ckl_dtype dtype, int vec);

/* The elements of one vector of registers as `vec` values of the reducer's input type. */
void reduce_expand(const reduce_words *w, ir_type input, const val *registers, val *elements);

/*
 * Counts this CTA as arrived at a counter in global memory, which the last of `ctas` sets back to 0. Whatever any CTA
 * of them wrote to global memory before is visible to the last one afterwards. Returns whether this is the last one, to
 * all threads.
 */
val reduce_last_to_arrive(val counter, int ctas);

#endif
