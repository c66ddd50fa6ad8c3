/* conv_pointwise.h - a filter of one pixel as a matrix product. */
#ifndef CKL_CONV_POINTWISE_H
#define CKL_CONV_POINTWISE_H

#include "operators/conv/conv_config.h"
#include "operators/gemm/gemm_plan.h"

/* Is it one: NHWC without groups, strides, padding and residual, whose pixels are equally far apart? */
ckl_status conv_pointwise_check(const ckl_conv_desc *desc);

/* The product of such a problem, and its matrices. */
ckl_gemm_desc conv_pointwise_product(const ckl_conv_desc *desc);
ckl_gemm_args conv_pointwise_matrices(const ckl_conv_desc *desc, const ckl_conv_args *args);

#endif
