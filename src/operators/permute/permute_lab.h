/* permute_lab.h - transpose and permute as problem lines know them. */
#ifndef CKL_PERMUTE_LAB_H
#define CKL_PERMUTE_LAB_H

#include "operators/permute/permute_plans.h"

#define TRANSPOSE_PROBLEM(X)                                                                            \
    X(transpose_problem, int64_t, rows, "1024", "", "rows of x")                                        \
    X(transpose_problem, int64_t, cols, "1024", "", "columns of x")                                     \
    X(transpose_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16 u8 f64", "type of x and y, any")        \
    X(transpose_problem, int, tile, "0", "0 16 32", "0: the fastest kernel; tiles of the kernel tiled") \
    X(transpose_problem, int64_t, batch, "1", "", "matrices")                                           \
    X(transpose_problem, int64_t, ldx, "0", "", "elements between rows of x; 0: dense")                 \
    X(transpose_problem, int64_t, ldy, "0", "", "elements between rows of y; 0: dense")                 \
    X(transpose_problem, int64_t, incx, "1", "", "elements between neighbours in a row of x")           \
    X(transpose_problem, int64_t, incy, "1", "", "elements between neighbours in a row of y")           \
    X(transpose_problem, int64_t, stride_x, "0", "", "elements between matrices of x; 0: dense")        \
    X(transpose_problem, int64_t, stride_y, "0", "", "elements between matrices of y; 0: dense")

typedef struct transpose_problem {
    TRANSPOSE_PROBLEM(FIELD_MEMBER)
} transpose_problem;

#define PERMUTE_PROBLEM(X)                                                                                      \
    X(permute_problem, quoted, shape, "64x64", "", "of x, outermost mode first: 32x64x56x56")                   \
    X(permute_problem, quoted, order, "", "", "modes of x in y's order: 0,2,3,1; not given: reversed")          \
    X(permute_problem, ckl_dtype, dtype, "f32", "f32 f16 bf16 u8 f64", "type of x and y, any")                  \
    X(permute_problem, quoted, stride_x, "", "", "elements, by modes of x: 4096,64,1; not given: without gaps") \
    X(permute_problem, quoted, stride_y, "", "", "elements, by modes of y; not given: without gaps")

/* The lists of a line, read by prepare(). */
typedef struct permute_lists {
    int rank;
    int64_t shape[MODES_MAX], order[MODES_MAX], shape_y[MODES_MAX];
    int64_t stride_x[MODES_MAX], stride_y[MODES_MAX];
} permute_lists;

typedef struct permute_problem {
    PERMUTE_PROBLEM(FIELD_MEMBER)
    permute_lists lists;
} permute_problem;

void transpose_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);
void permute_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out);

#endif
