/*
 * reduce_fold.h - reductions by a function of one's own, in C: anything that takes two values to one, in any order.
 *
 * Kernels are described while a plan is made, and there the library calls the functions, with values of the kernel
 * (values.h): no compiler is asked, a plan takes milliseconds as any other. A fold has a name, by which descs, problem
 * lines and plans know it.
 *
 *     static ckl_val cube(ckl_val x, void *user)
 *     {
 *         return ckl_val_mul(x, ckl_val_mul(x, x));
 *     }
 *     static ckl_val plus(ckl_val a, ckl_val b, void *user)
 *     {
 *         return ckl_val_add(a, b);
 *     }
 *     ckl_reduce_fold cubes = { .name = "cubes", .map = cube, .combine = plus };
 *     ckl_reduce_fold_add(&cubes);
 *     ckl_reduce_desc desc = { ..., .fold = "cubes" };
 *
 * The library has two by itself, written with this header alone in reduce_examples.c, and documented at its end.
 */
#pragma once

#include "../values.h"

CKL_BEGIN_DECLS

/* All values are f32. Elements come as f32, integers rounded to it. */
typedef struct ckl_reduce_fold {
    const char *name;                                      // of letters, digits and _; not "none"
    ckl_val (*map)(ckl_val x, void *user);                 // done to each element first; NULL: nothing
    ckl_val (*combine)(ckl_val a, ckl_val b, void *user);  // associative and commutative, but for rounding
    ckl_val (*finish)(ckl_val all, ckl_val n, void *user); // of all n elements combined; NULL: as they are
    double identity;                                       // combine(identity, a) is a; what an empty row combines to
    void *user;                                            // what the functions get
} ckl_reduce_fold;

/*
 * Makes a fold known to the process. What it points to must stay, and stay as it is, as long as plans are made: kernels
 * are kept by the name. The same again is CKL_OK; another one of a known name is CKL_INVALID. Any thread may call it.
 */
CKL_MUST_USE CKL_API ckl_status ckl_reduce_fold_add(const ckl_reduce_fold *fold);

/*
 * The library's own:
 *     maxabs  the largest |x|, as scales of 8-bit floats want it; NaN if an element is, 0 of an empty row
 *     rms     the root of the mean of x^2, whose sum is f32; NaN of an empty row
 */

CKL_END_DECLS
