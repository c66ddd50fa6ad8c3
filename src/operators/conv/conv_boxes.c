/* conv_boxes.c - boxes of pixels, which the Hopper kernels load by TMA: which one fits a problem, and their tensor maps. */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_sm90.h"

double conv_boxes(const int64_t places[CONV_MODES], int64_t images, conv_box box)
{
    return (double)places[0] * (double)ceil_div(places[1], box.h) * (double)ceil_div(places[2], box.w) *
           (double)ceil_div(images, box.n);
}

/* Among equals narrow ones, which were fastest (bench/notes/conv.md). */
conv_box conv_fit_box(const int64_t places[CONV_MODES], int64_t images, int pixels)
{
    static const int sides[] = { 4, 8, 2, 16, 1, 32, 64, 128 };
    conv_box best = { pixels, 1, 1 };
    double fewest = INFINITY;
    for (int w = 0; w < COUNT_OF(sides); w++)
        for (int h = 1; sides[w] * h <= pixels; h *= 2) {
            const conv_box box = { sides[w], h, pixels / (sides[w] * h) };
            const double boxes = conv_boxes(places, images, box);
            if (boxes < fewest) {
                fewest = boxes;
                best = box;
            }
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

param_tensor conv_pixels(const void *pointer, const conv_tensor *t)
{
    param_tensor p = { .pointer = pointer };
    for (int i = 0; i < CONV_RANK; i++) {
        p.size[i] = t->shape[CONV_RANK - 1 - i];
        p.stride[i] = t->stride[CONV_RANK - 1 - i];
    }
    return p;
}
