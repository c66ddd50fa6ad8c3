/* conv_config.h - the fields of a problem, the compile-time choices of convolution's kernels, and their parameters. */
#pragma once

#include "base/fields.h"
#include "cutekernellib/operators/conv.h"
#include "plan/plan.h"
#include "skeletons/prefetch.h"

#define CONV_CUSTOM(X, owner) \
    X(owner, quoted, epilogue, "none", "?", "a custom epilogue by its name: relu2, tril, or one that was added")

#define CONV_DESC(X, owner)                                                                        \
    X(owner, choice, direction, "forward", "forward data weight", "what is computed: y, dx or dw") \
    X(owner, ckl_dtype, dtype, "f16", "f32 f16 bf16 i8", "type of what is read")                   \
    X(owner, ckl_dtype, out, "", "f32 f16 bf16 i32", "type of what is written, bias and residual") \
    X(owner, choice, math, "f32", "f32 tf32", "what the products of f32 are made of")              \
    X(owner, choice, layout, "nhwc", "nchw nhwc", "the order of x, y and the filters")             \
    X(owner, int64_t, n, "1", "0..2^31-1", "images")                                               \
    X(owner, int64_t, c, "64", "0..2^31-1", "channels of x")                                       \
    X(owner, int64_t, d, "1", "?1..2^31-1", "slices of x")                                         \
    X(owner, int64_t, h, "16", "1..2^31-1", "rows of x")                                           \
    X(owner, int64_t, w, "16", "1..2^31-1", "columns of x")                                        \
    X(owner, int64_t, k, "64", "0..2^31-1", "filters, channels of y")                              \
    X(owner, int64_t, t, "1", "?1..2^16", "slices of a filter")                                    \
    X(owner, int64_t, r, "3", "1..2^16", "rows of a filter")                                       \
    X(owner, int64_t, s, "3", "1..2^16", "columns of a filter")                                    \
    X(owner, int64_t, groups, "1", "?1..2^31-1", "of channels, convolved apart")                   \
    X(owner, int64_t, stride_d, "1", "?1..2^16", "slices from one to the next place of a filter")  \
    X(owner, int64_t, stride_h, "1", "?1..2^16", "rows")                                           \
    X(owner, int64_t, stride_w, "1", "?1..2^16", "columns")                                        \
    X(owner, int64_t, dilation_d, "1", "?1..2^16", "slices between neighbours of a filter")        \
    X(owner, int64_t, dilation_h, "1", "?1..2^16", "rows")                                         \
    X(owner, int64_t, dilation_w, "1", "?1..2^16", "columns")                                      \
    X(owner, int64_t, pad_front, "0", "0..2^16", "slices of zeros before x")                       \
    X(owner, int64_t, pad_back, "0", "0..2^16", "behind it")                                       \
    X(owner, int64_t, pad_top, "0", "0..2^16", "rows above x")                                     \
    X(owner, int64_t, pad_bottom, "0", "0..2^16", "below it")                                      \
    X(owner, int64_t, pad_left, "0", "0..2^16", "columns left of x")                               \
    X(owner, int64_t, pad_right, "0", "0..2^16", "right of it")                                    \
    X(owner, int64_t, x_n, "0", "0..2^48", "elements of x from image to image; 0: dense")          \
    X(owner, int64_t, x_d, "0", "0..2^48", "from slice to slice")                                  \
    X(owner, int64_t, x_h, "0", "0..2^48", "from row to row")                                      \
    X(owner, int64_t, x_w, "0", "0..2^48", "from column to column")                                \
    X(owner, int64_t, x_c, "0", "0..2^48", "from channel to channel")                              \
    X(owner, int64_t, y_n, "0", "0..2^48", "the same of y and the residual")                       \
    X(owner, int64_t, y_d, "0", "0..2^48", "slices")                                               \
    X(owner, int64_t, y_h, "0", "0..2^48", "rows")                                                 \
    X(owner, int64_t, y_w, "0", "0..2^48", "columns")                                              \
    X(owner, int64_t, y_c, "0", "0..2^48", "channels")                                             \
    X(owner, bool, bias, "0", "0 1", "a summand for each channel of y; of weights: dbias")         \
    X(owner, bool, scale, "0", "0 1", "a factor for each channel of y")                            \
    X(owner, bool, residual, "0", "0 1", "a summand of y's shape")                                 \
    X(owner, choice, activation, "identity", "identity relu gelu gelu_erf silu", "applied last")   \
    CONV_CUSTOM(X, owner)

/* The modes of a pixel's place, outermost first. */
enum { CONV_MODES = 3 };

typedef struct conv_mode {
    int64_t x, y, filter, stride, dilation, pad; // elements; pad: before x
} conv_mode;

void conv_modes(const ckl_conv_desc *desc, conv_mode modes[CONV_MODES]);

/*
 * The gradient of data at strides of 1 is the forward convolution of dy, by filters turned round: those of the desc
 * from the last tap to the first, and with channels and filters exchanged. Other problems are returned as they are.
 */
bool conv_turns(const ckl_conv_desc *desc);
ckl_conv_desc conv_turned(const ckl_conv_desc *desc);
ckl_conv_args conv_turned_args(const ckl_conv_desc *desc, const ckl_conv_args *args);

/* Taps of a mode without those at its ends that see padding alone; one at least. *first: the first of them. */
int64_t conv_seen_taps(const conv_mode *mode, int64_t *first);

/* The tensors with pixels: strides of (OUTER,D,H,W,CHANNEL), where filters have (K,T,R,S,C). */
enum { CONV_X, CONV_W, CONV_Y, CONV_TENSORS };
enum { CONV_RANK = CONV_MODES + 2 };

typedef struct conv_tensor {
    int64_t shape[CONV_RANK], stride[CONV_RANK];
} conv_tensor;

/* The tensor with pixels that is read, and the one that is written; of weights dy is read, too. */
int conv_read(const ckl_conv_desc *desc);
int conv_written(const ckl_conv_desc *desc);

conv_tensor conv_tensor_of(const ckl_conv_desc *desc, int which);
void conv_tensors_of(const ckl_conv_desc *desc, conv_tensor tensors[CONV_TENSORS]);
int64_t conv_pixel_count(const ckl_conv_desc *desc, int which); // of all images

/* Has it slices, or filters that reach over them? Many kernels are for images alone. */
bool conv_is_volume(const ckl_conv_desc *desc);

/*
 * Has a view's strides? Kernels for dense tensors refuse these, and so do kernels whose 16 bytes or vectors the strides
 * break.
 */
bool conv_is_view(const ckl_conv_desc *desc);
ckl_status conv_check_dense(const char *who, const ckl_conv_desc *desc);
ckl_status conv_check_vectors(const char *who, const ckl_conv_desc *desc);
int64_t conv_stride_divisor(const ckl_conv_desc *desc, int which); // a power of two, 128 at most; dense channels aside

/* What every kernel computes. */
#define CONV_FORM(X, owner)                                                                      \
    X(owner, choice, direction, "forward", "forward data weight", "what is computed")            \
    X(owner, ckl_dtype, dtype, "f16", "f32 f16 bf16 i8", "type of what is read")                 \
    X(owner, ckl_dtype, out, "f16", "f32 f16 bf16 i32", "type of what is written")               \
    X(owner, choice, math, "f32", "f32 tf32", "what the products of f32 are made of")            \
    X(owner, bool, bias, "0", "0 1", "a summand for each channel of y; of weights: dbias")       \
    X(owner, bool, scale, "0", "0 1", "a factor for each channel of y")                          \
    X(owner, bool, residual, "0", "0 1", "a summand of y's shape")                               \
    X(owner, choice, activation, "identity", "identity relu gelu gelu_erf silu", "applied last") \
    CONV_CUSTOM(X, owner)

typedef struct conv_form {
    CONV_FORM(FIELD_MEMBER, )
} conv_form;

/* A config: what is computed, and a kernel's own choices. And the table of its fields. */
#define CONV_CONFIG(type, FIELDS) \
    typedef struct type {         \
        conv_form form;           \
        FIELDS(FIELD_MEMBER, )    \
    } type
#define CONV_FIELDS(type, FIELDS)                                     \
    {                                                                 \
        CONV_FORM(FIELD_NESTED, (type, form)) FIELDS(FIELD_ROW, type) \
    }

/* Products of i8 are summed in i32. */
static inline ckl_dtype conv_sum_type(const conv_form *form)
{
    return form->dtype == CKL_I8 ? CKL_I32 : CKL_F32;
}

/* How far filters step and how far they spread, in configs of kernels that are made for that. */
#define CONV_STEPS_CONFIG(X, owner)                                                  \
    X(owner, int, step_w, "1", "", "columns from one to the next place of a filter") \
    X(owner, int, step_h, "1", "", "rows")                                           \
    X(owner, int, dilation_w, "1", "", "columns between neighbours of a filter")     \
    X(owner, int, dilation_h, "1", "", "rows")

/* As a config's number; admission refuses what does not fit. */
static inline int conv_config_number(int64_t x)
{
    return x < 1024 ? (int)x : 1024;
}

/* Those of a problem as members of a config; are a config's those of the problem? */
#define CONV_STEPS_OF(d)                                                                      \
    .step_w = conv_config_number((d)->stride_w), .step_h = conv_config_number((d)->stride_h), \
    .dilation_w = conv_config_number((d)->dilation_w), .dilation_h = conv_config_number((d)->dilation_h)
#define CONV_STEPS_FIT(c, d)                                                                               \
    ((c)->step_w == (d)->stride_w && (c)->step_h == (d)->stride_h && (c)->dilation_w == (d)->dilation_w && \
     (c)->dilation_h == (d)->dilation_h)

/* Of 16 bits, f16 or bf16? */
ckl_status conv_check_half(const char *who, const ckl_conv_desc *desc);

/*
 * Members of an implementation that go by its name, as IMPLEMENTATION_PARTS() has them, where configs are ranked: for
 * `halo` halo_fields, candidate_halo() and so on.
 */
#define CONV_RANKED(called, config_type)                                                          \
    .name = #called, .config_bytes = sizeof(config_type), .config = FIELD_TABLE(called##_fields), \
    .candidate = candidate_##called, .cost = cost_##called, .admit = admit_##called, .launch = launch_##called

/* What kernels that address memory themselves cost (conv_cost.c): an implementation's `cost`, plan/plan.h. */
plan_cost conv_cost_naive(const void *desc, const ckl_device_info *device, const void *config);
plan_cost conv_cost_sm80(const void *desc, const ckl_device_info *device, const void *config);
plan_cost conv_cost_depthwise(const void *desc, const ckl_device_info *device, const void *config);
plan_cost conv_cost_depthwise_weight(const void *desc, const ckl_device_info *device, const void *config);
plan_cost conv_cost_halo_weight(const void *desc, const ckl_device_info *device, const void *config);
plan_cost conv_cost_slices(const ckl_conv_desc *desc, const ckl_device_info *device, int slices); // of sm80_weight

conv_form conv_form_of(const ckl_conv_desc *desc);
ckl_status conv_check_form(const char *who, const ckl_conv_desc *desc, const conv_form *have);

/* Parameters of all kernels; arrays by mode, or in the order of the tensors. A kernel has those that it uses. */
#define CONV_PARAMS(X, owner)                                                                          \
    X(owner, tensor, mX)                                                                               \
    X(owner, tensor, mW)                                                                               \
    X(owner, tensor, mY)                                                                               \
    X(owner, tensor, mR)                    /* the residual */                                         \
    X(owner, pointer, from, [CONV_TENSORS]) /* what is read, what is written */                        \
    EARLY_PARAMS(X, owner, 2)               /* conv_read_early() */                                    \
    X(owner, i64, x, [CONV_RANK])           /* strides */                                              \
    X(owner, i64, w, [CONV_RANK])                                                                      \
    X(owner, i64, y, [CONV_RANK])                                                                      \
    X(owner, pointer, bias)                                                                            \
    X(owner, pointer, scale) /* f32 */                                                                 \
    X(owner, pointer, residual)                                                                        \
    X(owner, i64, n)                                                                                   \
    X(owner, i64, c) /* of a group */                                                                  \
    X(owner, i64, k) /* of a group */                                                                  \
    X(owner, i64, groups)                                                                              \
    X(owner, i64, x_size, [CONV_MODES])                                                                \
    X(owner, i64, y_size, [CONV_MODES])                                                                \
    X(owner, i64, filter, [CONV_MODES])                                                                \
    X(owner, i64, step, [CONV_MODES])                                                                  \
    X(owner, i64, dilation, [CONV_MODES])                                                              \
    X(owner, i64, pad, [CONV_MODES])                                                                   \
    X(owner, u32, tap)                    /* sm90: the number of the first */                          \
    X(owner, u32, tap_step, [CONV_MODES]) /* from one to the next along each */                        \
    X(owner, pointer, sums)               /* of all slices, in f32 */                                  \
    X(owner, pointer, bias_sums)                                                                       \
    X(owner, u32, sum_images)           /* sliced: of a slice */                                       \
    X(owner, i64, sum_pitch)            /* elements from tap to tap */                                 \
    X(owner, u32, places, [CONV_MODES]) /* im2col: of y, whose pixels are one row */                   \
    X(owner, u32, corner, [CONV_MODES]) /* im2col: the first of x that a tap sees from place 0 */      \
    X(owner, u32, packed_row)           /* packed: elements from row to row; nchw: CTAs that copy x */ \
    X(owner, u32, packed_channels)      /* from column to column */                                    \
    X(owner, u32, packed_left)          /* columns of zeros before the first */                        \
    X(owner, u32, zero_rows)            /* rows of x with pixels that no tap sees */                   \
    X(owner, i64, seen, [CONV_MODES])   /* bits: the remainders of strides that some tap sees */       \
    X(owner, pointer, copies, [2])      /* nchw: of x and of the filters */                            \
    X(owner, u32, beside)               /* 1: it waits for the launch before at its end alone */

KERNEL_PARAMS(conv, CONV_PARAMS);

/* What conv_wait() asks for as its tensor number 0 or 1, if there are few bytes; and those of a tensor. */
void conv_read_early(conv_params *params, int number, const void *from, int64_t bytes);
int64_t conv_span_bytes(const conv_tensor *tensor, ckl_dtype dtype);

/* Are there few bytes of the image that is read? */
bool conv_is_early(const ckl_conv_desc *desc);

/* conv_wait() asks for what is read, but not for copies in the workspace, which the launch before writes. */
conv_params conv_params_of(const ckl_plan *plan, const ckl_conv_desc *desc, const ckl_conv_args *args);

/*
 * Those of conv_turned(), where channels are all in one group or each has a filter: filters are read from their last
 * tap on, by negative strides.
 */
conv_params conv_turned_params(const ckl_plan *plan, const ckl_conv_desc *desc, const ckl_conv_args *args);

/*
 * Enqueues kernel number `kernel`, whose clusters take tiles in turn: as many as the device holds, but no more than
 * tiles.
 */
ckl_status conv_launch_tiles(const ckl_plan *plan, int kernel, int64_t tiles, const conv_params *params,
                             ckl_stream stream);

/* naive */

#define CONV_NAIVE_CONFIG(X, owner) X(owner, int, threads, "128", "64 128 256", "threads of a CTA, one output each")

CONV_CONFIG(conv_naive_config, CONV_NAIVE_CONFIG);

void conv_naive(const void *config, int kernel);

/* sm80 */

#define CONV_SM80_CONFIG(X, owner)                                           \
    X(owner, int, tile_m, "128", "64 128", "pixels of a CTA")                \
    X(owner, int, tile_n, "128", "64 128", "channels of a CTA")              \
    X(owner, int, stages, "3", "2 3 4", "K tiles of 32 in shared memory")    \
    X(owner, int, vec_a, "8", "1 2 4 8 16", "elements of a copy of pixels")  \
    X(owner, int, vec_b, "8", "1 2 4 8 16", "elements of a copy of filters") \
    X(owner, bool, views, "0", "0 1", "rows of what is written lie apart")

CONV_CONFIG(conv_sm80_config, CONV_SM80_CONFIG);

enum {
    CONV_SM80_ROW = 64,     // bytes of K in a stage
    CONV_SM80_THREADS = 128 // 2 x 2 warps
};

void conv_sm80(const void *config, int kernel);

/* depthwise */

#define CONV_DEPTHWISE_CONFIG(X, owner)                           \
    X(owner, bool, nhwc, "1", "", "channels side by side")        \
    X(owner, bool, volume, "0", "", "slices of a filter or of x") \
    X(owner, int, cols, "8", "1 2 4 8 16", "columns of a thread") \
    X(owner, int, columns, "3", "", "of a filter")                \
    CONV_STEPS_CONFIG(X, owner)                                   \
    X(owner, int, pad, "0", "", "of a gradient: columns of zeros before x, modulo the step")

CONV_CONFIG(conv_depthwise_config, CONV_DEPTHWISE_CONFIG);

/* One filter of NHWC as a filter of planes: the modes of columns and channels are one; else the problem as it is. */
ckl_conv_desc conv_depthwise_plane(const ckl_conv_desc *desc);

/* sliding */

#define CONV_SLIDING_CONFIG(X, owner)                                                                  \
    X(owner, int, vec, "2", "1 2 4", "channels of a thread")                                           \
    X(owner, int, cols, "8", "1 4 7 8", "columns of y of a thread")                                    \
    X(owner, int, high, "14", "", "rows of y of a thread")                                             \
    X(owner, bool, async, "1", "0 1", "rows under way are copied to shared memory, else to registers") \
    X(owner, int, ahead, "3", "1 2 3 5", "rows of x under way")                                        \
    X(owner, bool, shared, "0", "0 1", "copies are of 16 bytes, for neighbours")                       \
    X(owner, int, ctas, "4", "1 2 3 4 5 6", "that must fit an SM, which limits registers")             \
    X(owner, bool, even, "1", "", "threads have whole columns of y")                                   \
    X(owner, bool, planes, "0", "", "columns side by side in memory")                                  \
    X(owner, int, run, "1", "", "of a unit of x, which is loaded at once")                             \
    X(owner, int, skipped, "0", "", "of the first unit, that no tap sees")                             \
    X(owner, int, left, "1", "", "units that may lie before a row of x")                               \
    X(owner, int, right, "1", "", "or behind it")                                                      \
    X(owner, int, channels, "64", "", "of y")                                                          \
    X(owner, int, filters, "1", "", "of a channel of x")                                               \
    X(owner, int, rows, "3", "", "of a filter")                                                        \
    X(owner, int, columns, "3", "", "of a filter")                                                     \
    CONV_STEPS_CONFIG(X, owner)

CONV_CONFIG(conv_sliding_config, CONV_SLIDING_CONFIG);

void conv_sliding(const void *config, int kernel);
void conv_depthwise(const void *config, int kernel);
void conv_depthwise_weight(const void *config, int kernel);
void conv_halo_weight(const void *config, int kernel);

/*
 * The last kernel of both: adds the sums (CHANNEL,TAP,ROW,SLICE) of filters of so many columns, a thread of a CTA of
 * 128 each.
 */
enum { CONV_ADD_THREADS = 128 };

void conv_add_depthwise(const conv_form *form, int columns, int slices);

extern const implementation conv_bands_implementation, conv_sliding_implementation, conv_depthwise_implementation,
    conv_depthwise_weight_implementation, conv_halo_weight_implementation;
extern const implementation conv_sm90_implementation, conv_sm90_weight_implementation;
extern const implementation conv_halo_implementation, conv_stem_implementation, conv_pointwise_implementation,
    conv_nchw_sm90_implementation, conv_narrow_implementation, conv_sliced_implementation, conv_packed_implementation,
    conv_packed_weight_implementation, conv_kn2row_implementation;
extern const implementation conv_skinny_implementation, conv_pointwise_unaligned_implementation,
    conv_pointwise_pitched_implementation;
extern const implementation conv_sm80_implementation, conv_sm80_weight_implementation, conv_im2col_implementation,
    conv_naive_implementation;

/* A problem line: the desc, and one number for all its strides, dilations or pads. */
typedef struct conv_problem {
    ckl_conv_desc desc;
    int64_t stride, dilation, pad;
} conv_problem;
