/* conv_sm90.h - the Hopper kernels of convolution: their configs, and what their host sides share. */
#pragma once

#include "cute/mma.h"
#include "operators/conv/conv_epilogue.h"

/* sm90: y, and the gradient of data */

#define CONV_SM90_CONFIG(X, owner)                                                                  \
    X(owner, int, consumers, "2", "1 2 3", "warpgroups of 64 pixels each")                          \
    X(owner, int, tile_n, "256", "16 32 48 64 80 96 112 128 160 192 224 256", "filters of a CTA")   \
    X(owner, int, tile_k, "64", "16 24 32 40 48 56 64", "channels of a stage")                      \
    X(owner, int, box_w, "16", "1 2 4 8 16 32 64 128", "columns of its pixels")                     \
    X(owner, int, box_h, "8", "1 2 4 8 16 32 64 128", "rows of its pixels")                         \
    X(owner, int, box_n, "1", "1 2 4 8 16 32 64 128", "images of its pixels")                       \
    X(owner, int, stages, "4", "3 4 5 6 8", "chunks of channels in shared memory")                  \
    X(owner, int, step_w, "1", "", "columns from one to the next place of a filter")                \
    X(owner, int, step_h, "1", "", "rows")                                                          \
    X(owner, bool, grouped, "0", "0 1", "groups of channels, in the place of slices")               \
    X(owner, int, slices, "1", "1 2 3 4 5 6 8 12 16", "of the taps and channels, f32 sums apart")   \
    X(owner, int, together, "1", "1 2 4", "groups whose channels and filters share a tile")         \
    X(owner, bool, im2col, "0", "0 1", "pixels follow each other over the ends of rows and images") \
    X(owner, bool, tall, "0", "0 1", "a stage has all three rows of a filter, which see one box")   \
    X(owner, int, held, "0", "", "tall stages of a tile whose filters stay; 0: none does")          \
    X(owner, bool, zeros, "0", "0 1", "the gradient has pixels that no tap sees, and idle warps write them")

CONV_CONFIG(conv_sm90_config, CONV_SM90_CONFIG);

enum {
    CONV_SM90_K = 64,    // channels of a stage at most: rows of 128 bytes
    CONV_SM90_ROWS = 64, // pixels of a consumer
    CONV_SM90_CONSUMERS = 3,
    CONV_SM90_N = 16,    // filters of a CTA are a multiple of these, or of spans
    CONV_SM90_SPAN = 64, // columns of a box that is N-major
    CONV_SM90_LAUNCHES = 64,
    CONV_SM90_WIDTHS = 6, // of tiles to consider
    CONV_SM90_CANDIDATES = 4 * 2 * CONV_SM90_WIDTHS,
    CONV_SM90_BUFFERS = 2, // staging buffers of a consumer
    CONV_SM90_TALL = 3,    // rows of a filter that share a box
};

/* Is W's tile N-major, in spans of channels for each filter? Else K-major. */
static inline bool conv_sm90_n_major(const conv_sm90_config *c)
{
    return c->form.direction == CKL_CONV_DATA;
}

/* Channels of a group: those that are stored, and those that are added up. */
static inline int64_t conv_sm90_out(const ckl_conv_desc *d)
{
    return (d->direction == CKL_CONV_DATA ? d->c : d->k) / d->groups;
}

static inline int64_t conv_sm90_in(const ckl_conv_desc *d)
{
    return (d->direction == CKL_CONV_DATA ? d->k : d->c) / d->groups;
}

/* What the kernel and its host side derive alike from a config. */
typedef struct conv_sm90_shape {
    int tile_m;                             // pixels of a CTA
    int taps, slots;                        // of a stage; places for filters of a tap in all
    int x_rows, x_images;                   // pixels of x that a stage has for them, and those of one of its images
    int span, depth;                        // bytes between rows of a stage's tiles; their columns as wgmma takes them
    int w_k, w_span, w_depth;               // the same of filters, which have the channels of their group alone
    int consumer_w, consumer_h, consumer_n; // the box of a consumer's pixels
    int next_w, next_h, next_n;             // from one consumer's to the next one's
    int y_cols, y_boxes;       // of a staging buffer: rows of at most 128 bytes; those of a CTA's part of a tile
    int buffers;               // of a consumer: two, or with a residual all of two tiles
    int64_t x_bytes, w_bytes;  // that a stage loads
    int64_t stage_room, rooms; // bytes of what a stage has alone, and of all X and W
    int64_t smem_bytes;
} conv_sm90_shape;

conv_sm90_shape conv_sm90_shape_of(const conv_sm90_config *config);
conv_sm90_shape conv_sm90_memory(const conv_sm90_config *config); // all but the boxes of consumers: what a choice asks

void conv_sm90(const void *config, int kernel);

/*
 * Writes zeros to the pixels of dx that no tap sees: `warps` of each CTA share the rows, one row a warp.
 */
void conv_zero_unseen(const conv_values *params, ckl_dtype out, val warp, int warps);

/* sliced: the sums of slices of taps and channels, which a second kernel adds; the form is that of the problem */

void conv_sliced(const void *config, int kernel);

/* The products alone where there are slices, as config and as desc: f32 without epilogue. */
conv_sm90_config conv_sm90_products(const conv_sm90_config *config);
ckl_conv_desc conv_sliced_desc(const ckl_conv_desc *desc);

/* sm90_weight */

#define CONV_WEIGHT_CONFIG(X, owner)                                                                       \
    X(owner, int, consumers, "2", "1 2", "warpgroups of 64 filters each")                                  \
    X(owner, int, tile_n, "256", "64 128 192 256", "columns of a CTA: channels under taps")                \
    X(owner, int, box_w, "8", "1 2 4 8 16 32 64", "columns of the pixels of a stage")                      \
    X(owner, int, box_h, "8", "1 2 4 8 16 32 64", "rows of them")                                          \
    X(owner, int, box_n, "1", "1 2 4 8 16 32 64", "images of them")                                        \
    X(owner, int, stages, "4", "3 4 5 6 8", "boxes of 64 pixels in shared memory")                         \
    X(owner, int, slices, "1", "1 2 3 4 6 8 12 16 24 32 64", "of the pixels, summed apart first")          \
    X(owner, int, step_w, "1", "", "columns from one to the next place of a filter")                       \
    X(owner, int, step_h, "1", "", "rows")                                                                 \
    X(owner, bool, tall, "0", "0 1", "columns are those of all three rows of a filter, which see one box") \
    X(owner, int, adders, "32", "32 128", "threads of a CTA that adds slices")

CONV_CONFIG(conv_sm90_weight_config, CONV_WEIGHT_CONFIG);

enum {
    CONV_WEIGHT_PIXELS = 64,
    CONV_WEIGHT_VECTOR = 4, // channels of a thread that adds slices: 16 bytes
};

/* What the kernel and its host side derive alike from a config. */
typedef struct conv_weight_shape {
    int tile_m; // filters of a CTA
    int x_rows; // pixels of x of a stage, of all boxes
    ckl_dtype sum_dtype;
    int sum_cols; // of a staging buffer
    int64_t stage_bytes, smem_bytes;
} conv_weight_shape;

conv_weight_shape conv_weight_shape_of(const conv_sm90_weight_config *config);

void conv_sm90_weight(const void *config, int kernel);

/*
 * Adds `count` neighbouring f32 of all slices in order: the first slice's at `address`, the next `apart` elements on.
 */
tensor conv_add_slices(int slices, val address, val apart, int count);

/* The host side */

/* A box of pixels, in powers of two. */
typedef struct conv_box {
    int w, h, n;
} conv_box;

/* The box of `pixels` pixels of which the fewest cover all places of all images. */
conv_box conv_fit_box(const int64_t places[CONV_MODES], int64_t images, int pixels);

/*
 * The box of whole rows of 8 pixels that has the fewest of them with what they see, where a consumer's pixels are of
 * one image.
 */
conv_box conv_fit_tall_box(const int64_t places[CONV_MODES], int64_t images, int consumers);

/* The boxes that cover all places. */
double conv_boxes(const int64_t places[CONV_MODES], int64_t images, conv_box box);

/* May TMA load this box with these strides, and has it `pixels` pixels? */
ckl_status conv_check_box(const char *who, conv_box box, int pixels, int step_w, int step_h);

/*
 * Stages that shared memory has room for, as many as help, where one and all else take `first` bytes; are they two or
 * more that fit?
 */
int conv_stages_of(const ckl_device_info *device, int64_t first, int64_t each);
ckl_status conv_check_stages(const char *who, const ckl_device_info *device, int stages, int64_t smem_bytes);

/*
 * The corners of im2col mode: the first pixel that a tap sees from place 0, and from the last pixel to where the last
 * place sees it. Do they and the taps fit its numbers?
 */
bool conv_find_corners(const conv_mode *mode, bool data, int64_t *lower, int64_t *upper);

/*
 * For TMA: channels, columns, rows, slices, images. row_bytes: that a box has of a pixel; L2 fetches no more at a time,
 * for what lies behind them is asked for by boxes of its own (96 channels of 112x112 depthwise, 64 bytes of each: 88 %
 * of L2's rate by fetches of 256).
 */
param_tensor conv_pixels(const void *pointer, const conv_tensor *at, int64_t row_bytes);

enum { CONV_SM90_BOXES = 2 }; // consumers whose pixels are boxes

/*
 * A problem in NHWC whose rows of channels begin at whole 16 bytes, and what all its configs share: a choice asks a
 * hundred of them.
 */
typedef struct conv_sm90_problem {
    ckl_conv_desc desc;
    int64_t in, out;            // channels of a group that are added up, and those that are stored
    int64_t y[CONV_MODES];      // places of y
    int64_t places[CONV_MODES]; // that a launch computes: of y, or of dx at most the pixels that see the same taps
    int64_t taps;               // but for those at the edges of a filter that see nothing but padding
    int64_t launches,
        seen_launches;             // of dx, one for each remainder of the strides; those with pixels that some tap sees
    bool has_unseen;               // has dx pixels that no tap sees?
    bool whole;                    // begin the channels of all pixels at whole 16 bytes, as TMA wants?
    conv_box box[CONV_SM90_BOXES]; // that fits, of the pixels of one consumer, of two
    bool may_be_tall; // do all three rows of a filter see something, from rows of x that follow each other?
    conv_box tall_box[CONV_SM90_CONSUMERS];
    int64_t image; // elements from image to image of y or dx
} conv_sm90_problem;

conv_sm90_problem conv_sm90_problem_of(const ckl_conv_desc *desc);

/* May this config compute it? Of slices it is the problem of their f32 sums. Pure. */
ckl_status conv_sm90_admit(const conv_sm90_problem *problem, const ckl_device_info *device,
                           const conv_sm90_config *config);

/* Configs to consider, some with tile_n=0, which are none. Pure. */
bool conv_sm90_candidate(const conv_sm90_problem *problem, const ckl_device_info *device, int i,
                         conv_sm90_config *config);

/* The same config with boxes for all three rows of a filter, of a problem that may be tall. */
void conv_sm90_load_tall(const conv_sm90_problem *problem, const ckl_device_info *device, conv_sm90_config *config);

/* Tiles of pixels and filters of a launch. */
double conv_sm90_tiles(const conv_sm90_problem *problem, const conv_sm90_config *config);

/* What a config's cost is made of but for the number of slices, of which a choice tries many: cycles, counts. */
typedef struct conv_sm90_work {
    double launches, tiles;       // tiles of a launch and slice
    double stages;                // of a tile, in all slices
    double multiply, rows, bytes; // of a stage: its products, its rows of boxes, what is loaded
    double absent;                // of a stage: zeros for channels that are not there
    double epilogue;              // of a tile
    bool shallow;                 // could K be one stage?
    double sums;                  // of a slice
} conv_sm90_work;

conv_sm90_work conv_sm90_work_of(const conv_sm90_problem *problem, const conv_sm90_config *config);
plan_cost conv_sm90_cost_of(const conv_sm90_work *work, const ckl_device_info *device, const conv_sm90_config *config);

/* Images of a slice's sums: rounded up to whole boxes. */
int64_t conv_sm90_sum_images(const ckl_conv_desc *desc, const conv_sm90_config *config);

/* Takes the slices that cost least. */
void conv_sliced_choose(const conv_sm90_problem *problem, const ckl_device_info *device, conv_sm90_config *config);

/*
 * Enqueues the products of a plan in slices, to `sums`, and kernel number `add`, which adds them and writes the output;
 * operands lie as `at` says, of which the output's is that of the sums.
 */
ckl_status conv_sliced_launch(const ckl_plan *plan, const conv_sm90_config *config, const ckl_conv_desc *products,
                              const ckl_conv_args *args, const conv_tensor at[CONV_TENSORS], void *sums, int add,
                              ckl_stream stream);

/* Has this config slices, no more than it has stages or than one launch adds? */
ckl_status conv_sliced_check(const conv_sm90_problem *problem, const conv_sm90_config *config);

/* Enqueues kernel 0 of a plan; the tensors lie as `at` says, the residual as y. */
ckl_status conv_sm90_launch(const ckl_plan *plan, const conv_sm90_config *config, const ckl_conv_desc *desc,
                            const ckl_conv_args *args, const conv_tensor at[CONV_TENSORS], ckl_stream stream);

/*
 * Filters of one pixel see all pixels as one row, whose boxes waste nothing and are contiguous. Other problems are
 * returned as they are.
 */
ckl_conv_desc conv_in_one_row(const ckl_conv_desc *desc);

/* The same of the gradient of weights; slices: no fewer than `least`. How many there are. */
int conv_weight_candidates(const conv_sm90_problem *problem);
bool conv_weight_candidate(const conv_sm90_problem *problem, const ckl_device_info *device, int i, int least,
                           conv_sm90_weight_config *config);
plan_cost conv_weight_cost(const conv_sm90_problem *problem, const ckl_device_info *device,
                           const conv_sm90_weight_config *config);
ckl_status conv_weight_admit(const conv_sm90_problem *problem, const ckl_device_info *device,
                             const conv_sm90_weight_config *config);
int64_t conv_weight_workspace(const ckl_conv_desc *desc, const conv_sm90_weight_config *config);

/*
 * Kernel 0, and kernel `add` of a plan, which writes dw of the plan's own problem; columns: channels of a column of x,
 * where `desc` has the columns of a filter folded into them. args->workspace is there.
 */
ckl_status conv_weight_launch(const ckl_plan *plan, const conv_sm90_weight_config *config, const ckl_conv_desc *desc,
                              const ckl_conv_args *args, const conv_tensor at[CONV_TENSORS], int add, int64_t columns,
                              ckl_stream stream);

/* Describes the kernel that adds slices; fold: columns of a filter are part of the channels. */
void conv_weight_add(const conv_sm90_weight_config *config, bool fold);
