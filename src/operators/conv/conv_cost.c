/*
 * conv_cost.c - what convolutions cost whose kernels address memory themselves: gathers by cp.async, filters of a
 * channel each. Rates are what few problems reached on an H200 (bench/notes/conv.md), so they are good for orders of
 * magnitude where channels are odd.
 */
#include <math.h>

#include "operators/conv/conv_config.h"
#include "skeletons/product_cost.h"

static double elements_of(const ckl_conv_desc *d, int which)
{
    const conv_tensor t = conv_tensor_of(d, which);
    double elements = 1;
    for (int i = 0; i < CONV_RANK; i++)
        elements *= (double)t.shape[i];
    return elements;
}

static double taps_of(const ckl_conv_desc *d)
{
    return (double)(d->t * d->r * d->s);
}

/* Channels that each output of a direction sums over. */
static double channels_of(const ckl_conv_desc *d)
{
    return (double)(d->direction == CKL_CONV_DATA ? d->k : d->c) / (double)d->groups;
}

static double bytes_of(const ckl_conv_desc *d)
{
    return (elements_of(d, CONV_X) + elements_of(d, CONV_W) + elements_of(d, CONV_Y)) *
           (double)ckl_dtype_bytes(d->dtype);
}

plan_cost conv_cost_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_naive_config *c = config;
    const bool weight = d->direction == CKL_CONV_WEIGHT;
    const double pixels = elements_of(d, CONV_Y) / fmax(1, (double)d->k);
    return product_cost(&(product_work){ .tiles = elements_of(d, conv_written(d)) / c->threads,
                                         .ctas = 2048 / c->threads,
                                         .steps = weight ? pixels : taps_of(d) * channels_of(d),
                                         .multiply_adds = c->threads,
                                         .rate = 1.1,
                                         .step_cycles = weight ? 650 : 130,
                                         .tile_cycles = weight ? 0 : 15000,
                                         .bytes = bytes_of(d) },
                        device);
}

plan_cost conv_cost_sm80(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_sm80_config *c = config;
    const int64_t bytes = (int64_t)ckl_dtype_bytes(d->dtype), depth = CONV_SM80_ROW / bytes;
    const double vector = (double)(bytes * (c->vec_a < c->vec_b ? c->vec_a : c->vec_b)); // narrow ones are more of them
    const bool multiplies_f32 = d->dtype == CKL_F32 && d->math == CKL_GEMM_F32;
    const double outputs = (double)(d->direction == CKL_CONV_DATA ? d->c : d->k) / (double)d->groups;
    const double pixels = elements_of(d, conv_written(d)) / fmax(1, outputs * (double)d->groups);
    return product_cost(
        &(product_work){ .tiles = ceil(pixels / c->tile_m) * ceil(outputs / c->tile_n) * (double)d->groups,
                         .ctas = c->tile_m * c->tile_n > 64 * 64 ? 2 : 4,
                         .steps = ceil(taps_of(d) * channels_of(d) / (double)depth),
                         .multiply_adds = (double)(c->tile_m * c->tile_n * depth),
                         .rate = multiplies_f32 ? 85 : 360,
                         .step_cycles = 1400 * (1 + 12 / vector),
                         .tile_cycles = 2500,
                         .bytes = bytes_of(d) },
        device);
}

/* Slices of the pixels, which another kernel adds up. */
plan_cost conv_cost_slices(const ckl_conv_desc *d, const ckl_device_info *device, int slices)
{
    enum { TILE = 64, ROW = 64 };
    const double depth = ROW / (double)ckl_dtype_bytes(d->dtype);
    const double pixels = elements_of(d, CONV_Y) / fmax(1, (double)d->k);
    const double columns = taps_of(d) * channels_of(d), filters = (double)d->k / (double)d->groups;
    return product_cost(
        &(product_work){ .tiles = ceil(filters / TILE) * ceil(columns / TILE) * (double)d->groups * slices,
                         .ctas = 4,
                         .steps = ceil(pixels / slices / depth),
                         .multiply_adds = TILE * TILE * depth,
                         .rate = 150,
                         .step_cycles = 7500,
                         .tile_cycles = 2500,
                         .bytes = bytes_of(d),
                         .us = 2 },
        device);
}

/* Of a filter for each channel: cycles of an SM for an output; `least`: of a thread. */
static plan_cost of_outputs(const ckl_conv_desc *d, const ckl_device_info *device, double outputs, double cycles,
                            double least, double us)
{
    return product_cost(&(product_work){ .tiles = device->sm_count,
                                         .ctas = 1,
                                         .steps = 1,
                                         .multiply_adds = outputs / device->sm_count * cycles,
                                         .rate = 1,
                                         .step_cycles = least,
                                         .bytes = bytes_of(d),
                                         .us = us },
                        device);
}

/*
 * Single elements are loaded and converted one by one. 64 channels of 4 volumes of 8x28x28 under 3x3x3 take 20.2 us,
 * 128 of 8 images of 28x28 under 9x9 20.3, under 31x31 153, the gradient of 144 of 32 of 56x56 by stride 2 44.6, one
 * filter of 7 channels of 16 of 128x128 8.3, by 8 columns.
 */
plan_cost conv_cost_depthwise(const void *desc, const ckl_device_info *device, const void *config)
{
    const double OUTPUT = 0.3, ROW = 0.11, TAP = 0.048,
                 WAIT = 1500; // WAIT: for a row, 168 channels of 209 of 3x3 in 5.2 us
    const ckl_conv_desc plane = conv_depthwise_plane(desc), *d = &plane;
    const conv_depthwise_config *c = config;
    const bool data = d->direction == CKL_CONV_DATA;
    const double apart =
        (double)((c->cols - 1) * c->step_w + c->columns) / (c->cols - 1 + c->columns); // more columns of x
    const double rows = (double)(d->t * d->r) / (data ? (double)(d->stride_d * d->stride_h) : 1),
                 taps = rows * (double)d->s / (data ? (double)d->stride_w : 1);
    const double cycles = OUTPUT + ROW * rows + TAP * taps * (data ? 1 : apart);
    return of_outputs(d, device, elements_of(d, conv_written(d)), cycles, WAIT * (double)(d->t * d->r + 1), 0.5);
}

/* Of planes 96 channels of 32 images of 56x56 take 98 us. */
plan_cost conv_cost_depthwise_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const double PLANES = 3.6;
    const ckl_conv_desc *d = desc;
    const double read =
        (elements_of(d, CONV_X) / fmax(1, elements_of(d, CONV_Y)) + 1) / 2; // of x and dy, for an element of dy
    const double cycles = (0.353 * read + 0.0296 * taps_of(d)) * (d->layout == CKL_IMAGE_NCHW ? PLANES : 1);
    (void)config;
    return of_outputs(d, device, elements_of(d, CONV_Y), cycles, 0, 2.8);
}

plan_cost conv_cost_halo_weight(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    (void)config;
    return of_outputs(d, device, elements_of(d, CONV_Y), 0.339 + 0.00525 * taps_of(d), 0, 2.8);
}
