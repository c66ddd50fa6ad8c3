/* conv_packed.h - problems that the Hopper kernels take once their tensors are copied to NHWC rows of whole 16 bytes. */
#ifndef CKL_CONV_PACKED_H
#define CKL_CONV_PACKED_H

#include "operators/conv/conv_sm90.h"

#define CONV_PACKED_CONFIG(X, owner)                                              \
    X(owner, bool, nchw, "0", "0 1", "channels lie apart")                        \
    X(owner, bool, fold, "0", "0 1", "the columns of a filter count as channels") \
    X(owner, bool, padded, "0", "0 1", "columns that lie at whole 16 bytes are moved to whole 128")

typedef struct conv_packed_config {
    conv_sm90_config conv;
    CONV_PACKED_CONFIG(FIELD_MEMBER, )
} conv_packed_config;

typedef struct conv_packed_weight_config {
    conv_sm90_weight_config conv;
    CONV_PACKED_CONFIG(FIELD_MEMBER, )
} conv_packed_weight_config;

enum { CONV_PACK_THREADS = 256, CONV_PACK_QUAD = 4 }; // a vector each; f32 of a vector

/* Kernels of a plan; of the gradient of weights the third adds slices, and is the last. */
enum { CONV_PACKED_MAIN, CONV_PACKED_IN, CONV_PACKED_OUT, CONV_PACKED_RESIDUAL, CONV_PACKED_KERNELS };
enum { CONV_PACKED_ADD = CONV_PACKED_OUT, CONV_PACKED_WEIGHT_KERNELS };

/*
 * Describes the copy of a tensor of that type, or the copy back; across: neighbouring threads have neighbouring pixels of a plane;
 * fold: a vector may have channels of several columns.
 */
void conv_pack(ckl_dtype dtype, bool across, bool fold, bool back);

/* The same for NHWC whose channels are whole 16 bytes on both sides. */
void conv_pad(ckl_dtype dtype);

/* Describes the kernel that adds slices of f32 sums, places with packed_channels each, and writes the output as it lies. */
void conv_add_packed(const conv_form *form, int slices, bool nchw);

/* The same with parameters of another kernel, whose CTAs have CONV_PACK_THREADS. */
void conv_add_places(const conv_form *form, int slices, bool nchw, const conv_values *params);

void conv_packed(const void *config, int kernel);
void conv_packed_weight(const void *config, int kernel);

#endif
