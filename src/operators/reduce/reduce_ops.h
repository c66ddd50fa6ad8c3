/* reduce_ops.h - the built-in operations as reducers, and what their files share. */
#ifndef CKL_REDUCE_OPS_H
#define CKL_REDUCE_OPS_H

#include "operators/reduce/reduce_kernel.h"

/* The fold with the rounding errors of its sum carried along (reduce_folds.c); fold.combine adds. */
reducer reduce_compensated(const reduce_fold *fold);

/* One value: sums, products, extremes, any, all (reduce_folds.c). True if op is a fold. */
bool reduce_fold_of(int op, ir_type input, reduce_fold *fold);

/* reduce_moments.c */
reducer reduce_variance_of(ir_type input, bool root);
extern const reducer reduce_norm, reduce_logsumexp;

/* reduce_positions.c */
reducer reduce_position_of(ir_type input, bool of_largest);

/* The ends of a type's range; infinities of f32. */
val reduce_smallest(ir_type type);
val reduce_largest(ir_type type);

#endif
