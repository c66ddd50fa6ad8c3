/* permutation.h - what transpose and permute have in common: modes with a stride in x and one in y. */
#pragma once

#include "base/dtype.h"
#include "base/status.h"
#include "cute/divisor.h"
#include "cutekernellib/device.h"
#include "cutekernellib/operators/permute.h"

enum {
    PERMUTE_MODES_MAX = CKL_PERMUTE_RANK_MAX,
    PERMUTE_OUTER_MAX = PERMUTE_MODES_MAX - 2, // modes round a matrix
    PERMUTE_SPLIT_MAX = PERMUTE_MODES_MAX + 2, // modes when two of them are split
};

/* A size, and strides in x and in y (elements). */
typedef struct permute_mode {
    int64_t size, x, y;
} permute_mode;

/*
 * Transposes of matrices: element (r,c) is at r * ldx + c in x and at c * ldy + r in y, once per outer mode.
 */
typedef struct permute_matrix {
    int64_t rows, cols;
    int64_t ldx, ldy;
    int outer_count;
    permute_mode outer[PERMUTE_OUTER_MAX]; // in the order of the CTAs, the fastest first
} permute_matrix;

/* The view of a problem of either operator that the implementations get. */
typedef struct permutation {
    const char *op; // the operator's name, for sentences
    int bytes;      // of an element
    bool empty;     // nothing to move
    int rank;
    permute_mode modes[PERMUTE_SPLIT_MAX]; // outermost of y first; no sizes of 1, no neighbours that could be one mode
    bool has_matrix;                       // the problem is this one, too:
    permute_matrix matrix;
} permutation;

/* Fills empty, rank and modes from modes in any order. CKL_INVALID where elements of y would share memory. */
ckl_status permutation_simplify(permutation *p, int rank, const permute_mode *modes);

/* The mode of more than one element with this stride in x, or in y; -1: there is none. */
int permutation_mode_at(const permutation *p, bool in_x, int64_t stride);

/*
 * Finds the mode that is contiguous in x and the one that is contiguous in y, if these are two. Fills has_matrix and
 * matrix, with those outer modes first that go on where rows end: what CTAs have in flight are long runs of memory.
 * Where rows go on in x and in y, the shorter ones decide.
 */
void permutation_find_matrix(permutation *p);

/*
 * Makes elements `factor` times as long, a power of two; false, and p is of no use, where the innermost mode is not
 * runs of these on both sides.
 */
bool permutation_widen(permutation *p, int factor);

/*
 * The same permutation in squares of side x side elements of the modes that are contiguous in x and in y: each is
 * `side` words of memory, on both sides. p becomes that of the squares, in words; words->x and words->y are the words
 * between two of a square. False, and p is of no use, where there are no two such modes, or where not all words are
 * whole.
 */
bool permutation_in_squares(permutation *p, int side, permute_mode *words);

/*
 * Splits the modes that are contiguous in x and in y, of *width and *height elements: innermost come squares of
 * `block` by `block` of them, first along x, round them the numbers of squares. The last squares may reach beyond the
 * modes. False: there are no such modes.
 */
bool permutation_block(permutation *p, int block, int64_t *width, int64_t *height);

/* Elements in all; 0 if empty. */
int64_t permutation_elements(const permutation *p);

/* The pointers of a call of either operator: the structs have the same members. */
typedef ckl_permute_args permute_pointers;

/* Accesses to shared memory that a warp needs for a word at each of these places (bytes), by their bank conflicts. */
enum { PERMUTE_WARP = 32 };
int permutation_bank_turns(const int64_t places[PERMUTE_WARP]);
