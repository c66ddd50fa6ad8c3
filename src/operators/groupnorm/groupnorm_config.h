/* groupnorm_config.h - the compile-time choices of group norm's kernels, and what the kernels share. */
#pragma once

#include "base/dtype.h"
#include "base/fields.h"
#include "base/math.h"
#include "cutekernellib/operators/groupnorm.h"
#include "ir/params.h"
#include "plan/plan.h"
#include "skeletons/one_pass.h"
#include "skeletons/two_pass.h"

#define GROUPNORM_DESC(X, owner)                                                                \
    X(owner, choice, direction, "forward", "forward backward", "the norm or its gradients")     \
    X(owner, int64_t, n, "2", "", "images")                                                     \
    X(owner, int64_t, c, "32", "", "channels")                                                  \
    X(owner, int64_t, h, "8", "", "rows of an image")                                           \
    X(owner, int64_t, w, "8", "", "columns of an image")                                        \
    X(owner, int64_t, groups, "8", "1..", "of channels")                                        \
    X(owner, choice, layout, "nchw", "nchw nhwc", "order of the axes")                          \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics") \
    X(owner, bool, affine, "1", "0 1", "with gamma and beta")                                   \
    X(owner, float, eps, "0", "0..", "forward: added to the variance; 0: 1e-5")

#define GROUPNORM_CONFIG(X, owner)                                                                             \
    X(owner, ckl_dtype, dtype, "f32", "f32 f16 bf16", "type of all tensors but the statistics")                \
    X(owner, choice, layout, "nchw", "nchw nhwc", "order of the axes")                                         \
    X(owner, bool, affine, "1", "0 1", "gamma and beta")                                                       \
    X(owner, int, channels, "1", "", "of a group")                                                             \
    X(owner, int, bundle, "1", "1 2 4 8 16 32 64", "neighbouring groups that a CTA takes together")            \
    X(owner, bool, cut_short, "0", "0 1", "the last bundle of an image has fewer groups")                      \
    X(owner, int, fold, "1", "1 2 4 8", "nhwc: pixels taken as one, of whole vectors")                         \
    X(owner, bool, ragged, "0", "0 1", "nchw: channels begin and end anywhere in their first and last vector") \
    X(owner, int, threads, "256", "64 128 256 512 1024", "threads of a CTA")                                   \
    X(owner, int, column_threads, "1", "", "threads that share a column")                                      \
    X(owner, int, cluster, "1", "1 2 4 8 16", "CTAs that share a bundle")                                      \
    X(owner, int, parts, "1", "", "nchw: slices that share out the channels of a group, not their pixels")     \
    X(owner, int, vec, "1", "1 2 4 8", "elements of one memory access, at most 16 bytes")                      \
    X(owner, int, steps, "4", "", "vectors of a column for which each of its threads has room")                \
    X(owner, int, kept, "0", "0 2 4 6", "of slices read once: those that stay in registers, the last")         \
    X(owner, int, again, "0", "0 4 8", "held: those before them that are read again, for lack of room")        \
    X(owner, int, ctas_per_sm, "0", "0 1 2 3 4 6 8", "CTAs for which an SM has registers; 0: no matter")       \
    X(owner, int, loading, "0", "0 132 264", "held: CTAs that load at once; 0: all")                           \
    X(owner, bool, alone, "0", "0 1", "held: loads fill L2 with no more than they read")                       \
    X(owner, int, early, "0", "", "slices side by side whose entries become one before all meet; 0: none")     \
    X(owner, bool, prefetch, "0", "0 1", "forward: L2 is asked for slices while the kernel before may run")

#define GROUPNORM_PARAMS(X, owner)  \
    X(owner, i64, channels)         \
    X(owner, i64, pixels)           \
    X(owner, i32, bundles)          \
    X(owner, i32, slices)           \
    X(owner, i32, ranges)           \
    X(owner, i32, range)            \
    X(owner, i32, units)            \
    X(owner, f32, reciprocal)       \
    X(owner, f32, eps)              \
    X(owner, pointer, x)            \
    X(owner, pointer, dy)           \
    X(owner, u32, image_bytes, [2]) \
    X(owner, pointer, gamma)        \
    X(owner, pointer, beta)         \
    X(owner, pointer, y)            \
    X(owner, pointer, mean)         \
    X(owner, pointer, rstd)         \
    X(owner, pointer, entries)      \
    X(owner, pointer, early)        \
    X(owner, pointer, merged)       \
    X(owner, pointer, partial)      \
    X(owner, pointer, counters)     \
    X(owner, pointer, arrived)      \
    X(owner, u32, strips)           \
    X(owner, u32, lag)              \
    X(owner, i64, lines)            \
    X(owner, pointer, dgamma)       \
    X(owner, pointer, dbeta)

/*
 * Of all kernels. A unit is a vector of pixels (nchw) or `fold` pixels (nhwc).
 *     channels, pixels           of an image
 *     bundles                    of an image
 *     slices, ranges             slices of a bundle, of a channel
 *     range, units               units of a slice, of a channel
 *     reciprocal                 of the elements of a group
 *     image_bytes                of all of x and of dy, of small gradients; else 0
 *     y                          or dx
 *     mean, rstd                 (GROUPS,IMAGES)
 *     entries, early, merged     workspace: (LANES,BUNDLE,GROUPNORM_ENTRY,BLOCKS,BUNDLES), the same of early ones,
 *                                (GROUPNORM_ENTRY,GROUPS)
 *     partial                    workspace: (C,KINDS,RANGES,IMAGES)
 *     counters, strips, lag      of split slices (two_pass.h): strips are the bundles of all images, chunks are slices
 *     arrived                    slices of each early entry that have been stored
 *     lines                      of partial
 */
KERNEL_PARAMS(groupnorm, GROUPNORM_PARAMS);

typedef struct groupnorm_config {
    GROUPNORM_CONFIG(FIELD_MEMBER, )
} groupnorm_config;

/*
 * How the threads of a CTA share out its slice: some pixels of all channels of a bundle, or of some channels of a group
 * (nchw, whose planes are long; `parts`). A column is what runs along the pixels: a channel (nchw), or a vector of
 * neighbouring channels (nhwc). The `column_threads` threads of a column share out its vectors cyclically; the CTA
 * takes `abreast` columns at once, a thread `slots` of them one after the other.
 *
 * Pixels of nhwc whose channels are no whole vectors are folded: `fold` of them are one with `fold` times the channels,
 * where a bundle is all groups. Its columns are those of the long pixel, and their channels are counted modulo those of
 * the image.
 *
 * A ragged column is aligned vectors and the elements before and behind them, its ends. Thread n of the column takes
 * the ends n, n + column_threads, ...
 */
typedef struct groupnorm_grid {
    int vec, columns, abreast, column_threads, slots;
} groupnorm_grid;

/* Channels of a slice. */
static inline int groupnorm_slice_channels(const groupnorm_config *c)
{
    return c->channels * c->bundle / c->parts;
}

static inline int groupnorm_columns(const groupnorm_config *c)
{
    const int channels = groupnorm_slice_channels(c);
    return c->layout == CKL_IMAGE_NCHW ? channels : channels * c->fold / c->vec;
}

static inline groupnorm_grid groupnorm_grid_of(const groupnorm_config *c)
{
    const bool nhwc = c->layout == CKL_IMAGE_NHWC;
    groupnorm_grid g = { .vec = c->vec, .columns = groupnorm_columns(c) };
    g.abreast = nhwc ? (int)min_i64(g.columns, c->threads) : c->threads / c->column_threads;
    g.column_threads = nhwc ? c->threads / g.abreast : c->column_threads;
    g.slots = (int)ceil_div(g.columns, g.abreast);
    return g;
}

/* May a vector have elements of several groups? Then each of them has statistics, and forward sums, of its own. */
static inline bool groupnorm_mixes(const groupnorm_config *c)
{
    return c->layout == CKL_IMAGE_NHWC && c->bundle > 1 && (c->fold > 1 || c->channels % c->vec);
}

/*
 * Are scales found once for each channel of a slice, in shared memory? Where vectors have several groups; and where
 * threads have several columns, whose weights would come from memory one column after the other.
 */
static inline bool groupnorm_has_scales(const groupnorm_config *c)
{
    enum { CHANNELS_MAX = 1024 };
    return groupnorm_mixes(c) || (groupnorm_grid_of(c).slots > 1 && groupnorm_slice_channels(c) <= CHANNELS_MAX);
}

/* Places for moments, forward, of threads or of channels; where scales of channels are found later, too. */
static inline int groupnorm_places(const groupnorm_config *c)
{
    const int channels = groupnorm_has_scales(c) ? groupnorm_slice_channels(c) : 0;
    return groupnorm_mixes(c) ? channels : (int)max_i64(c->threads, channels);
}

/*
 * Words of the workspace. Of a bundle's group and slice: pivot, mean, squares (forward) or two sums (backward); of an
 * image's range of pixels and kind of gradient the sums of all channels. Forward, too, channels have two sums.
 */
enum { GROUPNORM_ENTRY = 3, GROUPNORM_KINDS = 2, GROUPNORM_SCALES = 3 };

/*
 * Of nhwc, where each element of a thread's vectors has two sums: threads of a column that store theirs at once, in
 * lines of shared memory. What all threads have would take much of a slice's room, 64 bytes each.
 */
static inline int groupnorm_lines(const groupnorm_config *c)
{
    const int64_t threads = groupnorm_grid_of(c).column_threads;
    return (int)min_i64(threads, ceil_div(4 * threads, (int64_t)c->vec * GROUPNORM_KINDS));
}

enum { GROUPNORM_VECTOR_BYTES = 16, GROUPNORM_COPIED_BYTES = 4 }; // of an access at most; by cp.async at least
// vectors of a thread in registers at most, and in shared memory at least: pivots are of the first three pixels
enum { GROUPNORM_KEPT_MAX = 24, GROUPNORM_STAGED_MIN = 3 };

/* Vectors of a thread's column for which shared memory has room. */
static inline int groupnorm_staged_steps(const groupnorm_config *c)
{
    return c->steps - c->again - c->kept;
}

/* Steps of the first half of a slice that is added up while the other comes: whole rounds of a loop. 0: none. */
static inline int groupnorm_first_steps(const groupnorm_config *c)
{
    enum { AT_ONCE = 4 };
    const bool comes = c->vec * dtype_bytes(c->dtype) >= GROUPNORM_COPIED_BYTES && !c->ragged;
    return comes && groupnorm_grid_of(c).slots == 1 ? groupnorm_staged_steps(c) / 2 / AT_ONCE * AT_ONCE : 0;
}

/* Of each channel of a slice, backward: rows of sums, of threads or of lines and pixels of a fold. */
static inline int groupnorm_sum_rows(const groupnorm_config *c)
{
    return c->layout == CKL_IMAGE_NHWC ? groupnorm_lines(c) * c->fold : c->column_threads;
}

/* Words of shared memory of each of them: of sums, and of scales in their place. */
static inline int groupnorm_sum_words(const groupnorm_config *c)
{
    const int sums = GROUPNORM_KINDS * groupnorm_sum_rows(c);
    return groupnorm_has_scales(c) && sums < GROUPNORM_SCALES ? GROUPNORM_SCALES : sums;
}

/* Units of a slice. */
static inline int64_t groupnorm_slice_units(const groupnorm_config *c)
{
    return (int64_t)c->steps * groupnorm_grid_of(c).column_threads;
}

/*
 * Has a sum more values of a group, forward, than the bound of the reference allows: 64, or what 4096 sums of the group
 * leave each? Of a bundle in so many slices. A thread has GROUPNORM_SUMS, or one for each element of a vector.
 */
enum { GROUPNORM_SUMS = 4 };

static inline bool groupnorm_adds_too_many(const groupnorm_config *c, int64_t slices)
{
    enum { VALUES_MAX = 64, SUMS_ENOUGH = 4096 };
    const groupnorm_grid g = groupnorm_grid_of(c);
    const bool mixes = groupnorm_mixes(c);
    const int64_t values = mixes ? c->steps : (int64_t)g.slots * c->steps * c->vec / GROUPNORM_SUMS;
    const int64_t sums =
        mixes ? (int64_t)g.column_threads * c->fold * c->channels : GROUPNORM_SUMS * (int64_t)c->threads / c->bundle;
    return values > VALUES_MAX && slices * sums < SUMS_ENOUGH;
}

/* The warps of a CTA share out the groups of a bundle: so many neighbouring lanes of a warp have one. */
enum { GROUPNORM_GROUPS_OF_WARP_MAX = 32 };

static inline int groupnorm_lanes_of_group(const groupnorm_config *c)
{
    int lanes = 32;
    while ((int64_t)c->threads / lanes < c->bundle)
        lanes /= 2;
    return lanes;
}

/*
 * What slices tell of their groups lies in blocks, each of as many slices as a group has lanes: so the lanes that merge
 * a word of theirs read side by side. Words of a block, of each kind; words of all blocks of a bundle with so many
 * slices.
 */
static inline int groupnorm_block_words(const groupnorm_config *c)
{
    return groupnorm_lanes_of_group(c) * c->bundle;
}

static inline int64_t groupnorm_entry_words(const groupnorm_config *c, int64_t slices)
{
    return GROUPNORM_ENTRY * groupnorm_block_words(c) * ceil_div(slices, groupnorm_lanes_of_group(c));
}

/* Early entries of a bundle with so many slices. */
static inline int64_t groupnorm_early_entries(const groupnorm_config *c, int64_t slices)
{
    return c->early ? ceil_div(slices, c->early) : 0;
}

/* Elements of a slice of one tensor in shared memory: vectors, then the ends of each column. */
static inline int64_t groupnorm_vector_elements(const groupnorm_config *c)
{
    groupnorm_grid g = groupnorm_grid_of(c);
    return (int64_t)g.slots * groupnorm_staged_steps(c) * g.abreast * g.column_threads * c->vec;
}

static inline int groupnorm_ends_max(const groupnorm_config *c)
{
    return c->ragged ? 2 * c->vec : 0;
}

static inline int64_t groupnorm_slice_bytes(const groupnorm_config *c)
{
    const int64_t ends = (int64_t)groupnorm_columns(c) * groupnorm_ends_max(c);
    return (groupnorm_vector_elements(c) + ends) * dtype_bytes(c->dtype);
}

/* Where the slices of a bundle meet: in a cluster; or in memory, where those that are not held are read again. */
typedef enum groupnorm_slicing { GROUPNORM_CLUSTER, GROUPNORM_SPLIT, GROUPNORM_HELD } groupnorm_slicing;

/* By where slices meet (groupnorm_cost.c): units of a column, slices of it, slices of a bundle, bundles of images. */
int64_t groupnorm_units(const ckl_groupnorm_desc *d, const groupnorm_config *c);
int64_t groupnorm_ranges(const ckl_groupnorm_desc *d, const groupnorm_config *c, groupnorm_slicing slicing);
int64_t groupnorm_slices(const ckl_groupnorm_desc *d, const groupnorm_config *c, groupnorm_slicing slicing);
int64_t groupnorm_bundles(const ckl_groupnorm_desc *d, const groupnorm_config *c);

/* Bytes of shared memory of a CTA. */
int64_t groupnorm_shared_bytes(const ckl_groupnorm_desc *d, groupnorm_slicing slicing, const groupnorm_config *c);

plan_cost groupnorm_cost(const ckl_groupnorm_desc *d, const ckl_device_info *device, groupnorm_slicing slicing,
                         const groupnorm_config *c);

/* groupnorm_choice.c */
ckl_status groupnorm_choose(const char *what, const ckl_groupnorm_desc *d, const ckl_device_info *device,
                            groupnorm_slicing slicing, groupnorm_config *c);

/* groupnorm_admit.c */
ckl_status groupnorm_admit(const char *what, const ckl_groupnorm_desc *d, const ckl_device_info *device,
                           groupnorm_slicing slicing, const groupnorm_config *c);
bool groupnorm_may_be_ragged(const ckl_groupnorm_desc *d, const groupnorm_config *c);

/*
 * Kernel 0: pointers are aligned to whole vectors; 1: to the element only. Backward, 2 adds up dgamma and dbeta, 3 by
 * CTAs of two warps, of so few lines.
 */
enum { GROUPNORM_VECTORS, GROUPNORM_ELEMENTS, GROUPNORM_GRADIENTS, GROUPNORM_GRADIENTS_FEW, GROUPNORM_KERNELS };
enum { GROUPNORM_LINES_FEW = 128 };
void groupnorm_forward(const groupnorm_config *cfg, groupnorm_slicing slicing, bool vectors);
void groupnorm_backward(const groupnorm_config *cfg, groupnorm_slicing slicing, bool vectors);
void groupnorm_gradients(const groupnorm_config *cfg, bool few);

enum { GROUPNORM_GRADIENT_COLUMNS = 8 }; // that a CTA of the kernel that adds up takes: a sector of each line
