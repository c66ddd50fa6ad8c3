/* conv_packed.h - problems that the Hopper kernels take once their tensors are copied to NHWC in whole 16 bytes. */
#pragma once

#include "operators/conv/conv_sm90.h"

#define CONV_PACKED_CONFIG(X, owner)                       \
    X(owner, bool, nchw, "0", "0 1", "channels lie apart") \
    X(owner, bool, fold, "0", "0 1", "the columns of a filter count as channels")

typedef struct conv_packed_config {
    conv_sm90_config conv;
    CONV_PACKED_CONFIG(FIELD_MEMBER, )
} conv_packed_config;

#define CONV_PACKED_WEIGHT_CONFIG(X, owner) \
    CONV_PACKED_CONFIG(X, owner)            \
    X(owner, choice, patches, "none", "none x dy", "the operand that is written out for all taps")

typedef struct conv_packed_weight_config {
    conv_sm90_weight_config conv;
    CONV_PACKED_WEIGHT_CONFIG(FIELD_MEMBER, )
} conv_packed_weight_config;

enum { CONV_PACK_THREADS = 256, CONV_PACK_QUAD = 4 }; // a vector each; f32 of a vector

/* Kernels of a plan; of the gradient of weights the third adds slices, and the fourth writes patches. */
enum { CONV_PACKED_MAIN, CONV_PACKED_IN, CONV_PACKED_OUT, CONV_PACKED_RESIDUAL, CONV_PACKED_KERNELS };
enum { CONV_PACKED_ADD = CONV_PACKED_OUT, CONV_PACKED_PATCHES, CONV_PACKED_WEIGHT_KERNELS };

/*
 * Describes the copy of a tensor of that type, or the copy back; across: neighbouring threads have neighbouring pixels
 * of a plane; fold: a vector may have channels of several columns.
 */
void conv_pack(ckl_dtype dtype, bool across, bool fold, bool back);

/* Describes the kernel that adds slices of f32 sums, places of packed_channels each, and writes the output as it is. */
void conv_add_packed(const conv_form *form, int slices, bool nchw);

enum { CONV_FOLDED_MAX = 128 }; // channels whose filters' columns may be folded into them

/* How channels are taken: see the configs. Of weights patches are their choices from 1 on. */
typedef enum conv_packed_way { CONV_PLAIN, CONV_FOLDED, CONV_PATCHES_X, CONV_PATCHES_Y, CONV_WAYS } conv_packed_way;

/* The problem as the Hopper kernel gets it, and where its tensors lie. */
typedef struct conv_packed_problem {
    conv_sm90_problem inner;
    conv_tensor at[CONV_TENSORS];
    bool copied[CONV_TENSORS];
    int64_t row[CONV_TENSORS], channels[CONV_TENSORS]; // elements from row to row, from column to column
    int64_t bytes[CONV_TENSORS];                       // of the copy
    double image[CONV_TENSORS];                        // elements of an image of the copy
    double copies_us;                                  // predicted
} conv_packed_problem;

/*
 * The problem taken so, if it may be. back: a copy of what is written is copied back, else a kernel that adds slices
 * writes it.
 */
bool conv_can_pack(const ckl_conv_desc *desc, conv_packed_way way);
conv_packed_problem conv_packed_of(const ckl_conv_desc *desc, conv_packed_way way, bool back);

/* Bytes of the copies; what one launch cannot copy is refused. any: there is more to do than copies. */
int64_t conv_packed_bytes(const ckl_conv_desc *desc, const conv_packed_problem *problem);
ckl_status conv_packed_check(const ckl_conv_desc *desc, const conv_packed_problem *problem, bool any);

/*
 * Launches: of kernel number `kernel`, which moves a tensor into its copy, or back; of one that is read, which *operand
 * is then the copy of; of both that are read. *workspace moves on.
 */
ckl_status conv_packed_copy(const ckl_plan *plan, int kernel, const conv_packed_problem *problem, int which,
                            const void *plain, const void *copy, ckl_stream stream);
ckl_status conv_packed_copy_in(const ckl_plan *plan, const conv_packed_problem *problem, int kernel, int which,
                               const void **operand, char **workspace, ckl_stream stream);
ckl_status conv_packed_copy_both(const ckl_plan *plan, const conv_packed_problem *problem, const int which[2],
                                 const void **const operands[2], char **workspace, ckl_stream stream);

/*
 * The gradient of weights by patches (conv_weight_patches.c): may an operand be written out so? The problem that this
 * makes of a plain one. The kernel; its launch, behind which *operand is what it wrote, and *workspace has moved on.
 */
static inline bool conv_has_patches(conv_packed_way way)
{
    return way == CONV_PATCHES_X || way == CONV_PATCHES_Y;
}

bool conv_can_patch(const ckl_conv_desc *desc, conv_packed_way way);
conv_packed_problem conv_patched(const ckl_conv_desc *desc, conv_packed_way way, conv_packed_problem plain);
ckl_status conv_patches_launch(const ckl_plan *plan, conv_packed_way way, const conv_packed_problem *problem,
                               const void **operand, char **workspace, ckl_stream stream);

/*
 * Describes the kernel that writes patches of images `x` of `c` channels, a row of packed_row elements for each pixel
 * of y_size, to `y`: [TAPS,packed_channels], or of_dy [CHANNELS,TAPS], of what reaches the pixel by each tap at strides
 * of 1.
 */
void conv_write_patches(ckl_dtype dtype, bool of_dy);

/* Describes the copy of what is read of NCHW. */
void conv_packed_turning(ckl_dtype dtype, bool fold);

void conv_packed(const void *config, int kernel);
void conv_packed_weight(const void *config, int kernel);
