/* conv_pointwise.h - a filter of one pixel as a matrix product. */
#pragma once

#include "operators/conv/conv_config.h"
#include "operators/gemm/gemm_plan.h"

typedef struct conv_pointwise_problem {
    ckl_gemm_desc product;
    bool in_runs;    // are the pixels of x equally far apart, and those of y?
    bool of_images;  // is an image a row of the product, not a pixel?
    int64_t skipped; // elements of a filter before those that its one pixel sees
} conv_pointwise_problem;

/* Rows of x and y, as many as a product has of them: their elements, how far apart they are, and those of a filter. */
typedef struct conv_product_rows {
    int64_t count, channels, of_x, of_y, of_w;
} conv_product_rows;

/* The product of such rows with the epilogue of a problem. */
ckl_gemm_desc conv_product_of(const ckl_conv_desc *desc, const conv_product_rows *rows);

/* A plan of the product by an implementation of gemm, with the kernels of this one. */
static inline ckl_plan conv_plan_of(const ckl_plan *plan, const ckl_gemm_desc *product, const void *config)
{
    ckl_plan of = *plan;
    of.desc = product;
    of.config = config;
    return of;
}

conv_pointwise_problem conv_pointwise_of(const ckl_conv_desc *desc);

/*
 * Of a prepared desc without groups and residual: is it NHWC without strides and padding, whose pixels are equally far
 * apart; or is y one pixel that sees all of x, or x and y one?
 */
ckl_status conv_pointwise_check(const void *desc);

/*
 * Is a prepared desc's filter one pixel, and are pixels of NHWC, without strides and padding, equally far apart; or are
 * images rows?
 */
ckl_status conv_pointwise_check_pixels(const void *desc);

/* The product of such a problem, and its matrices. */
const ckl_gemm_desc *conv_pointwise_product(const void *desc);
ckl_gemm_args conv_pointwise_matrices(const ckl_conv_desc *desc, const ckl_conv_args *args);

/*
 * How much longer short tiles take than by gemm's model. Where all read the same columns L2 does not serve them as
 * fast: 1408 to 56 channels of 8 images of 24x24 take 10.1 us in 64x64, 8.4 in 128x64.
 */
double conv_pointwise_short_tiles(const ckl_gemm_desc *product, const ckl_device_info *device,
                                  const gemm_sm90_config *config);
