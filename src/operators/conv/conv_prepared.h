/*
 * conv_prepared.h - a checked desc as implementations get it, with what a choice would ask anew for each of a hundred
 * configs.
 */
#pragma once

#include "operators/conv/conv_halo.h"
#include "operators/conv/conv_nchw.h"
#include "operators/conv/conv_packed.h"
#include "operators/conv/conv_pointwise.h"

/* The product that kn2row makes of a forward problem: that of the desc, or of the gradient of data turned round. */
typedef struct conv_kn2row_problem {
    ckl_conv_desc forward;
    bool data;
    ckl_gemm_desc product;
    int64_t outputs; // elements of y
    int64_t filters; // elements of the copies of filters
} conv_kn2row_problem;

conv_kn2row_problem conv_kn2row_of(const ckl_conv_desc *desc);

/* It begins with the desc: a pointer to one is a pointer to the other. */
typedef struct conv_prepared {
    ckl_conv_desc desc;
    double written;                  // elements
    conv_sm90_problem plain, sliced; // as it lies; with f32 sums in the place of what is written
    conv_sm90_problem row;           // of weights, where filters of one pixel see one row
    conv_halo_problem halo;
    conv_pointwise_problem pointwise;
    conv_kn2row_problem kn2row;
    conv_nchw_problem nchw;
    bool can[CONV_WAYS];                   // may channels be taken so?
    conv_packed_problem packed[CONV_WAYS]; // on copies
    conv_packed_problem sums[CONV_WAYS];   // the same with f32 sums, in slices, in the place of what is written
} conv_prepared;

/* The desc that implementations and plans have. */
static inline const conv_prepared *conv_prepared_of(const void *desc)
{
    return desc;
}
