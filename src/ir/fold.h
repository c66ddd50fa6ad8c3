/* fold.h - arithmetic of constants while a kernel is described. */
#pragma once

#include "ir/ir.h"

/* x op y of two integer constants of one type; false: not an operation that folds. Division by zero calls ir_fail(). */
bool fold_int(ir_op op, val x, val y, int64_t *out);

/* A comparison of two integer constants of one type. */
bool fold_compare(ir_compare_kind how, val x, val y);
