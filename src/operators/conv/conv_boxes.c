/*
 * conv_boxes.c - boxes of pixels that the Hopper kernels load by TMA: which box fits a problem, their stages, and the
 * tensor maps.
 */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_sm90.h"

double conv_boxes(const int64_t places[CONV_MODES], int64_t images, conv_box box)
{
    return (double)places[0] * (double)ceil_div(places[1], box.h) * (double)ceil_div(places[2], box.w) *
           (double)ceil_div(images, box.n);
}

/* How many boxes of 2^log does n take? */
static int64_t boxes_for(int64_t n, int log)
{
    return (n + ((int64_t)1 << log) - 1) >> log;
}

/*
 * Sides are powers of two, so nothing is divided: choosing tries a hundred boxes. Of equal ones the narrow, which were
 * fastest.
 */
conv_box conv_fit_box(const int64_t places[CONV_MODES], int64_t images, int pixels)
{
    static const int sides[] = { 2, 3, 1, 4, 0, 5, 6, 7 }; // their logarithms
    const int all = log2_i64(pixels);
    conv_box best = { pixels, 1, 1 };
    double fewest = INFINITY, rows[COUNT_OF(sides)], of_images[COUNT_OF(sides)];
    for (int i = 0; i < COUNT_OF(sides); i++) {
        rows[i] = (double)boxes_for(places[1], i);
        of_images[i] = (double)boxes_for(images, i);
    }
    for (int i = 0; i < COUNT_OF(sides); i++) {
        const int w = sides[i];
        const double columns = (double)boxes_for(places[2], w);
        for (int h = 0; w + h <= all; h++) {
            const double boxes = columns * rows[h] * of_images[all - w - h];
            if (boxes < fewest) {
                fewest = boxes;
                best = (conv_box){ 1 << w, 1 << h, 1 << (all - w - h) };
            }
        }
    }
    return best;
}

/* Rows of x that tall boxes load, and those of y that they compute, in pixels. */
static double tall_pixels(const int64_t places[CONV_MODES], int64_t images, conv_box box)
{
    const double rows = box.h + (box.h + CONV_SM90_TALL - 1);
    return conv_boxes(places, images, box) * box.w * box.n * rows;
}

conv_box conv_fit_tall_box(const int64_t places[CONV_MODES], int64_t images, int consumers)
{
    enum { LEAST = 8, SHAPES = 4 };
    conv_box best = { LEAST, CONV_SM90_ROWS / LEAST * consumers, 1 };
    double fewest = tall_pixels(places, images, best);
    for (int i = 0; i < SHAPES; i++)
        for (int n = 1; n <= (consumers == 2 ? 2 : 1); n++) {
            const int w = LEAST << i;
            const conv_box box = { w, CONV_SM90_ROWS / w * consumers / n, n };
            const double pixels = tall_pixels(places, images, box);
            best = pixels < fewest ? box : best;
            fewest = pixels < fewest ? pixels : fewest;
        }
    return best;
}

ckl_status conv_check_box(const char *who, conv_box box, int pixels, int step_w, int step_h)
{
    if (!is_power_of_two(box.w) || !is_power_of_two(box.h) || !is_power_of_two(box.n) || box.w > pixels ||
        box.h > pixels || box.n > pixels || box.w * box.h * box.n != pixels)
        FAIL(CKL_INVALID, "conv %s: a box of %dx%dx%d is not %d pixels in powers of two", who, box.n, box.h, box.w,
             pixels);
    if ((box.w - 1) * step_w >= 256 || (box.h - 1) * step_h >= 256)
        FAIL(CKL_UNSUPPORTED, "conv %s: a box of %dx%d with its strides is more than TMA takes", who, box.h, box.w);
    return CKL_OK;
}

int conv_stages_of(const ckl_device_info *device, int64_t first, int64_t each)
{
    enum { MOST = 8, SPARE = 2048 };
    return (int)min_i64(MOST, 1 + (device->smem_per_cta_bytes - SPARE - first) / each);
}

ckl_status conv_check_stages(const char *who, const ckl_device_info *device, int stages, int64_t smem_bytes)
{
    enum { SPARE = 1024 };
    if (stages < 2 || smem_bytes > device->smem_per_cta_bytes - SPARE)
        FAIL(CKL_UNSUPPORTED, "conv %s: stages=%d are less than 2, or their %" PRId64 " bytes more than %s has", who,
             stages, smem_bytes, device->id);
    return CKL_OK;
}

param_tensor conv_pixels(const void *pointer, const conv_tensor *t, int64_t row_bytes)
{
    param_tensor p = { .pointer = pointer, .l2_promotion = row_bytes < 128 ? 64 : row_bytes < 256 ? 128 : 256 };
    for (int i = 0; i < CONV_RANK; i++) {
        p.size[i] = t->shape[CONV_RANK - 1 - i];
        p.stride[i] = t->stride[CONV_RANK - 1 - i];
    }
    return p;
}
