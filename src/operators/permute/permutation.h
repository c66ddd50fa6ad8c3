/* permutation.h - what transposes and permutations have in common: modes with a stride in x and one in y. */
#ifndef CKL_PERMUTE_PERMUTATION_H
#define CKL_PERMUTE_PERMUTATION_H

#include "base/status.h"
#include "cutekernellib/operators/permute.h"

enum { MODES_MAX = CKL_PERMUTE_RANK_MAX, OUTER_MAX = MODES_MAX - 2, SPLIT_MODES_MAX = MODES_MAX + 2 };

/* So many elements, so far apart in x and in y (elements). */
typedef struct mode {
    int64_t size, x, y;
} mode;

/* Transposes of matrices: element (r,c) is at r * ldx + c * incx in x and at c * ldy + r * incy in y, once per outer mode. */
typedef struct matrix_modes {
    int64_t rows, cols;
    int64_t ldx, incx, ldy, incy;
    int outer_count;
    mode outer[OUTER_MAX]; // nearest first
} matrix_modes;

/* The first member of every plan's desc: what the implementations look at. */
typedef struct permutation {
    const char *op; // the operator's name, for sentences
    int bytes;      // of an element
    int tile;       // asked for; 0: any
    bool empty;     // nothing to move
    int rank;
    mode modes
        [SPLIT_MODES_MAX]; // outermost of y first; none of size 1, and neighbours that are one mode in x and y joined
    bool has_matrix;       // the problem can be seen as this one:
    matrix_modes matrix;
} permutation;

/* x * y of numbers that are not negative; INT64_MAX where that is too much, for permutation_simplify() to refuse. */
static inline int64_t saturated_product(int64_t x, int64_t y)
{
    int64_t product;
    return __builtin_mul_overflow(x, y, &product) ? INT64_MAX : product;
}

/* Fills p->empty, rank and modes from modes in any order. CKL_INVALID where elements of y would share memory. */
ckl_status permutation_simplify(permutation *p, int rank, const mode *modes);

/* Finds the mode that is contiguous in x and the one that is in y, if these are two. Fills p->has_matrix and matrix. */
void permutation_find_matrix(permutation *p);

/* The same permutation in elements `factor` times as long; the innermost mode must be contiguous on both sides. */
permutation permutation_widened(const permutation *p, int factor);

/*
 * The same permutation with its modes that are contiguous in x and in y split, so that squares of `block` elements come
 * innermost: both sides of memory are met in runs of `block`. Returns false, and leaves p, where there are no two such modes.
 */
bool permutation_block(permutation *p, int block);

/* Elements in all; 0 if empty. */
int64_t permutation_elements(const permutation *p);

/* The pointers of a call of either operator. */
typedef ckl_permute_args permute_pointers;

/* Checks them: null, misaligned, overlapping. desc begins with a permutation, args are permute_pointers. */
ckl_status permutation_check_args(const void *desc, const void *args);

#endif
