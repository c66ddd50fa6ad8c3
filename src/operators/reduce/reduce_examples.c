/* reduce_examples.c - two folds as a user writes them, with the public header alone: largest |x|, quadratic mean. */
#include "operators/reduce/reduce_folds.h"

static ckl_val magnitude(ckl_val x, void *user)
{
    (void)user;
    return ckl_val_abs(x);
}

static ckl_val larger(ckl_val a, ckl_val b, void *user)
{
    (void)user;
    return ckl_val_select(ckl_val_or(ckl_val_lt(a, b), ckl_val_ne(b, b)), b, a); // NaN stays
}

const ckl_reduce_fold reduce_maxabs = { .name = "maxabs", .map = magnitude, .combine = larger };

static ckl_val square(ckl_val x, void *user)
{
    (void)user;
    return ckl_val_mul(x, x);
}

static ckl_val sum(ckl_val a, ckl_val b, void *user)
{
    (void)user;
    return ckl_val_add(a, b);
}

static ckl_val root_of_mean(ckl_val all, ckl_val n, void *user)
{
    (void)user;
    return ckl_val_sqrt(ckl_val_div(all, n));
}

const ckl_reduce_fold reduce_rms = { .name = "rms", .map = square, .combine = sum, .finish = root_of_mean };
