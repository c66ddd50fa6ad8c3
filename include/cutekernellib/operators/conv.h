/*
 * conv.h - convolution of images and volumes (as neural networks say it: cross-correlation), and its gradients.
 *
 * With groups of C = c/groups input and K = k/groups output channels, for filter q of group g:
 *     y[n,od,oh,ow,gK+q] = sum over t,r,s,i of x[n, od*stride_d + t*dilation_d - pad_front,
 *                                                   oh*stride_h + r*dilation_h - pad_top,
 *                                                   ow*stride_w + s*dilation_w - pad_left, gC+i] * w[gK+q,t,r,s,i]
 * and what lies outside of x is 0; an infinite factor of it may give NaN. Then y = activation(scale[channel] * y +
 * bias[channel] + residual). Backward, dx and dw are the sums of the same products by x and by w; with bias,
 * dbias[channel] is the sum of dy. Images have d = t = 1, signals also h = r = 1.
 */
#pragma once

#include "../plan.h"
#include "../tensor.h"
#include "gemm.h"

CKL_BEGIN_DECLS

typedef enum ckl_conv_direction {
    CKL_CONV_FORWARD, // y of x and w
    CKL_CONV_DATA,    // dx of dy and w: also the transposed convolution of dy, of which c, d, h and w say the size
    CKL_CONV_WEIGHT,  // dw of x and dy, and dbias
} ckl_conv_direction;

/*
 * Modes in this order, outermost first. NHWC: x [n,d,h,w,c], w [k,t,r,s,c/groups], y [n,od,oh,ow,k]; NCHW: x
 * [n,c,d,h,w], w [k,c/groups,t,r,s], y [n,k,od,oh,ow]. Where x has e elements along a mode, y has 1 + (e + pads -
 * (dilation*(filter-1) + 1)) / stride, rounded down. x and y may be views: the innermost mode is contiguous, the others
 * lie as far apart as x_n .. y_c say, which must leave room for what is inside of them. Sums are f32, of i8 i32, in a
 * fixed order; results are rounded once.
 */
typedef struct ckl_conv_desc {
    ckl_conv_direction direction;         // 0 means forward
    ckl_dtype dtype;                      // of all tensors but the output: CKL_F32, F16 or BF16; forward also CKL_I8
    ckl_dtype out;                        // of the output, bias and residual: dtype or CKL_F32; of CKL_I8 CKL_F32, F16,
                                          // BF16, or I32: sums as they are. 0 means dtype, of CKL_I8 CKL_I32
    ckl_gemm_math math;                   // of an f32 dtype, CKL_GEMM_F32 or TF32; 0 means f32
    ckl_image_layout layout;              // of x, y and, in the same order, the filters
    int64_t n, c, d, h, w;                // of x; n = 0 is a problem without work, c may be 0; d: 0 means 1
    int64_t k, t, r, s;                   // filters, and their depth, rows and columns; t: 0 means 1
    int64_t groups;                       // divides c and k; 0 means 1
    int64_t stride_d, stride_h, stride_w; // 0 means 1
    int64_t dilation_d, dilation_h, dilation_w; // 0 means 1
    int64_t pad_front, pad_back, pad_top, pad_bottom, pad_left, pad_right;
    int64_t x_n, x_d, x_h, x_w,
        x_c; // elements of x from one image, slice, row, column, channel to the next; 0 means dense
    int64_t y_n, y_d, y_h, y_w, y_c; // the same of y, dy and the residual
    bool bias;                       // forward: a summand for every channel of y; of weights: dbias is wanted
    bool scale;                      // forward: a factor for every channel of y, as of a folded normalisation
    bool residual;                   // forward: a summand of y's shape
    ckl_activation activation;       // forward: none of the derivatives

    /*
     * Forward: a custom epilogue by its name (gemm_epilogue.h), last of all; NULL or "none": there is none. Its row is
     * the number of a pixel of y, counted over all images in the order of NHWC, its col the channel: those of y as a
     * product [pixels,k]. Both are less than 2^31, and y is of floats.
     */
    const char *epilogue;
} ckl_conv_desc;

/*
 * The memory of one call: device pointers, aligned to the element, but to 16 bytes for the kernels of Hopper, which say
 * so; NULL where the problem has none. Outputs overlap nothing, but y may be residual.
 */
typedef struct ckl_conv_args {
    const void *x, *w, *dy, *bias, *residual;
    const float *scale; // device
    void *y, *dx, *dw, *dbias;
    void *workspace; // ckl_plan_workspace_bytes(); NULL: the plan's own, for one run at a time
} ckl_conv_args;

/* Chooses and compiles a kernel, once. Release it with ckl_plan_free(). */
CKL_MUST_USE CKL_API ckl_status ckl_conv_plan(ckl_device *device, const ckl_conv_desc *desc, ckl_plan **plan);

/* Enqueues it on stream. Never allocates, compiles or waits; plans may be shared between threads. */
CKL_MUST_USE CKL_API ckl_status ckl_conv_run(const ckl_plan *plan, const ckl_conv_args *args, ckl_stream stream);

/* Plans (once per desc and device, then from a cache) and runs. */
CKL_MUST_USE CKL_API ckl_status ckl_conv(ckl_device *device, const ckl_conv_desc *desc, const ckl_conv_args *args,
                                         ckl_stream stream);

CKL_END_DECLS
