/*
 * gemm_epilogue.h - epilogues of gemm and conv by a function of one's own, in C: an activation that the library lacks,
 * triangles, limits.
 *
 * Kernels are described while a plan is made, and there the library calls the function, with values of the kernel
 * (values.h): no compiler is asked, a plan takes milliseconds as any other. An epilogue has a name, by which descs,
 * problem lines and plans know it.
 *
 *     static ckl_val clipped(ckl_val x, ckl_val row, ckl_val col, void *user)
 *     {
 *         return ckl_val_min(x, ckl_val_f32(*(float *)user));
 *     }
 *     static float most = 6;
 *     ckl_gemm_epilogue epilogue = { .name = "clipped", .apply = clipped, .user = &most };
 *     ckl_gemm_epilogue_add(&epilogue);
 *     ckl_gemm_desc desc = { ..., .activation = CKL_ACTIVATION_RELU, .epilogue = "clipped" };
 *
 * The library has two by itself, written with this header alone in gemm_examples.c, and documented at its end.
 */
#pragma once

#include "../values.h"

CKL_BEGIN_DECLS

typedef struct ckl_gemm_epilogue {
    const char *name; // of letters, digits and _; not "none"

    /*
     * What D holds in place of x, f32: all that the desc asks for is in x, scales and weights too, and the result is
     * rounded to D's type. row and col, i32, are those of the product: of each of a batch, or of a group, they begin at
     * 0, and with lists of rows, row i is not the one that the list names; of conv they are a pixel and a channel
     * (conv.h). Called for elements past the last ones, too: what it gives there is not used.
     */
    ckl_val (*apply)(ckl_val x, ckl_val row, ckl_val col, void *user);
    void *user; // what the function gets
} ckl_gemm_epilogue;

/*
 * Makes an epilogue known to the process. What it points to must stay, and stay as it is, as long as plans are made:
 * kernels are kept by the name. The same again is CKL_OK; another one of a known name is CKL_INVALID. Any thread may
 * call it.
 */
CKL_MUST_USE CKL_API ckl_status ckl_gemm_epilogue_add(const ckl_gemm_epilogue *epilogue);

/*
 * The library's own:
 *     relu2  max(x, 0)^2: So et al., arXiv:2109.08668
 *     tril   x up to the diagonal, col <= row, and 0 to the right of it
 */

CKL_END_DECLS
