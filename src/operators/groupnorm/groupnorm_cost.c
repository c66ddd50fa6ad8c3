/* groupnorm_cost.c - how many slices a config has, what a CTA keeps of them in shared memory, how long they take. */
#include "base/math.h"
#include "operators/groupnorm/groupnorm_config.h"
#include "skeletons/memory_cost.h"

int64_t groupnorm_units(const ckl_groupnorm_desc *d, const groupnorm_config *c)
{
    return d->layout == CKL_IMAGE_NCHW ? ceil_div(d->h * d->w, c->vec) : d->h * d->w / c->fold;
}

int64_t groupnorm_ranges(const ckl_groupnorm_desc *d, const groupnorm_config *c, groupnorm_slicing slicing)
{
    return slicing != GROUPNORM_CLUSTER ? max_i64(1, ceil_div(groupnorm_units(d, c), groupnorm_slice_units(c)))
                                        : c->cluster / c->parts;
}

int64_t groupnorm_slices(const ckl_groupnorm_desc *d, const groupnorm_config *c, groupnorm_slicing slicing)
{
    return c->parts * groupnorm_ranges(d, c, slicing);
}

int64_t groupnorm_bundles(const ckl_groupnorm_desc *d, const groupnorm_config *c)
{
    return d->n * ceil_div(d->groups, c->bundle);
}

/*
 * Shared memory of a CTA: slices of x and, backward, dy, if they are kept there; what threads tell of their sums; what
 * groups and CTAs tell.
 */
int64_t groupnorm_shared_bytes(const ckl_groupnorm_desc *d, groupnorm_slicing slicing, const groupnorm_config *c)
{
    const groupnorm_grid g = groupnorm_grid_of(c);
    const bool forward = d->direction == CKL_DIRECTION_FORWARD, kept = slicing != GROUPNORM_SPLIT || forward;
    const int64_t slice = kept ? groupnorm_slice_bytes(c) : 0, groups = 16 * ceil_div(12 * c->bundle, 16);
    const int words = forward ? GROUPNORM_ENTRY : GROUPNORM_KINDS;
    const int64_t peers = c->cluster > 1 ? 4 * words * (int64_t)c->bundle * c->cluster + 16 : 16;
    const int64_t left = slicing == GROUPNORM_HELD ? 16 : 0;
    const int64_t channels = groupnorm_slice_channels(c);
    if (forward && groupnorm_mixes(c)) // moments of channels, sums of lines
        return slice + 16 * ceil_div(4 * GROUPNORM_ENTRY * groupnorm_places(c), 16) + groups + peers + left +
               4 * GROUPNORM_KINDS * (int64_t)groupnorm_lines(c) * g.columns * c->vec;
    if (forward)
        return slice + 4 * (words * (int64_t)groupnorm_places(c) + c->threads) + groups + peers + left;
    return 2 * slice + 4 * groupnorm_sum_words(c) * channels + groups + peers + 16 + left;
}

plan_cost groupnorm_cost(const ckl_groupnorm_desc *d, const ckl_device_info *device, groupnorm_slicing slicing,
                         const groupnorm_config *c)
{
    static const memory_kernel of[2][2][2] = {
        // forward, nchw and nhwc; then split
        { { { .us = 1.2, .wait_cycles = -2800, .bytes = 1.07, .lines = 2.5 },
            { .us = 0.7, .bytes = 1.45, .lines = 2.7 } },
          { { .us = 6, .lines = 1.5 }, { .us = 5, .bytes = 1.5, .lines = 1.4 } } },
        // backward
        { { { .us = 4.6, .wait_cycles = -3500, .bytes = 1.13, .lines = 3.3 }, { .us = 2.9, .bytes = 1.63 } },
          { { .us = 0.8, .bytes = 1.08, .lines = 3.6 }, { .us = 0, .lines = 3.3 } } }
    };
    const bool forward = d->direction == CKL_DIRECTION_FORWARD, nchw = d->layout == CKL_IMAGE_NCHW;
    const groupnorm_grid g = groupnorm_grid_of(c);
    const int inputs = forward ? 1 : 2, passes = slicing == GROUPNORM_SPLIT ? 2 : 1; // items of a slice
    const double again = slicing == GROUPNORM_SPLIT ? 0.5 : (double)c->again / c->steps;
    const double loads = (double)g.slots * c->steps, bytes = (double)dtype_bytes(d->dtype);
    const double run = (nchw ? g.column_threads * c->vec : c->channels * c->bundle * c->fold) * bytes;
    const memory_work work = { .of = of[!forward][slicing != GROUPNORM_CLUSTER][!nchw],
                               .bytes = (double)(d->n * d->c * d->h * d->w) * bytes * (inputs * (1 + again) + 1),
                               .ctas = groupnorm_bundles(d, c) * groupnorm_slices(d, c, slicing) * passes,
                               .threads = c->threads,
                               .ctas_per_sm = c->ctas_per_sm,
                               .smem_bytes = groupnorm_shared_bytes(d, slicing, c),
                               .wait_cycles = 1000 * (c->cluster > 1),
                               .lines = loads * (inputs + 1) * memory_lines(c->vec * bytes, run),
                               .elements = loads * c->vec * inputs,
                               .meets = true };
    return memory_cost(&work, device);
}
