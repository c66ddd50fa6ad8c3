/*
 * values.h - values of a kernel that is being described: what a custom score is written in.
 *
 * A function on values does not compute: it writes down, in the kernel, that each thread is to. So C's if and for run
 * while the kernel is described, once, and a choice between values is ckl_val_select(). Types are f32, i32 and
 * predicates; both operands have the same one, but for constants, which take the other's. Only functions that the
 * library calls while it describes a kernel use these. A mistake, such as a sum of f32 and i32, makes planning fail
 * with CKL_INTERNAL and a sentence.
 */
#pragma once

#include "tensor.h"

CKL_BEGIN_DECLS

/* A register of the kernel, or a constant. What is in it is the library's. */
typedef struct ckl_val {
    ckl_dtype type;
    int reg;
    union {
        int64_t i;
        double f;
    };
} ckl_val;

/* Constants */
CKL_API ckl_val ckl_val_f32(double x);
CKL_API ckl_val ckl_val_i32(int32_t x);

/* Arithmetic. Integers wrap, their division truncates; floats round to nearest, fma(x, y, z) = x*y + z once. */
CKL_API ckl_val ckl_val_add(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_sub(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_mul(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_div(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_rem(ckl_val x, ckl_val y); // i32
CKL_API ckl_val ckl_val_min(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_max(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_fma(ckl_val x, ckl_val y, ckl_val z);
CKL_API ckl_val ckl_val_neg(ckl_val x);
CKL_API ckl_val ckl_val_abs(ckl_val x);

/* Functions of f32, relative errors of at most 2^-21 */
CKL_API ckl_val ckl_val_exp(ckl_val x);
CKL_API ckl_val ckl_val_exp2(ckl_val x);
CKL_API ckl_val ckl_val_log(ckl_val x);
CKL_API ckl_val ckl_val_tanh(ckl_val x);
CKL_API ckl_val ckl_val_sqrt(ckl_val x);

/* Predicates, and what they choose */
CKL_API ckl_val ckl_val_eq(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_ne(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_lt(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_le(ckl_val x, ckl_val y);
CKL_API ckl_val ckl_val_and(ckl_val p, ckl_val q);
CKL_API ckl_val ckl_val_or(ckl_val p, ckl_val q);
CKL_API ckl_val ckl_val_not(ckl_val p);
CKL_API ckl_val ckl_val_select(ckl_val p, ckl_val x, ckl_val y); // p ? x : y

/* Conversions. To integers floats are truncated. */
CKL_API ckl_val ckl_val_to_f32(ckl_val x);
CKL_API ckl_val ckl_val_to_i32(ckl_val x);

CKL_END_DECLS
