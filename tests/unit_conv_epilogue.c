/* unit_conv_epilogue.c - a custom epilogue of convolution, by the public interface, in kernels of every kind. */
#include "unit_emulator.h"

#include "cutekernellib/operators/conv.h"
#include "operators/operators.h"
#include "plan/plan.h"
#include "emulated_device.h"

/* Adds a number that says where an element lies, times `unit`; nothing to what is left of the third channel. */
static ckl_val marked(ckl_val x, ckl_val pixel, ckl_val channel, void *user)
{
    ckl_val place = ckl_val_add(ckl_val_mul(pixel, ckl_val_i32(128)), channel);
    ckl_val mark = ckl_val_mul(ckl_val_to_f32(place), ckl_val_f32(*(const float *)user));
    return ckl_val_select(ckl_val_le(channel, ckl_val_i32(1)), x, ckl_val_add(x, mark));
}

static float unit = 0.25f;
static const ckl_gemm_epilogue marks = { .name = "marked", .apply = marked, .user = &unit };

enum { IMAGES = 3, SIDE_MAX = 12, CHANNELS_MAX = 72, ELEMENTS_MAX = IMAGES * SIDE_MAX * SIDE_MAX * CHANNELS_MAX };

/* y of a plan that is forced. */
static void run(const char *force, const ckl_conv_desc *desc, float *y)
{
    static uint16_t x[ELEMENTS_MAX], w[CHANNELS_MAX * 9 * CHANNELS_MAX];
    for (int i = 0; i < COUNT_OF(x); i++)
        x[i] = (uint16_t)(i % 5 ? 0x3c00 : 0xc000); // 1 and -2 of f16
    for (int i = 0; i < COUNT_OF(w); i++)
        w[i] = (uint16_t)(i % 3 ? 0x3c00 : 0x4000);
    void *in_x = test_upload(device, x, sizeof x), *in_w = test_upload(device, w, sizeof w),
         *out = test_upload(device, NULL, ELEMENTS_MAX * 4);
    ckl_plan *plan = NULL;
    ckl_status status = plan_build(device, &conv_operator, desc, force, &plan);
    if (status == CKL_OK)
        status = ckl_conv_run(plan, &(ckl_conv_args){ .x = in_x, .w = in_w, .y = out }, NULL);
    if (status == CKL_OK)
        status = device->ops->copy_out(device, y, out, ELEMENTS_MAX * 4, NULL);
    if (status != CKL_OK)
        fail_msg("%s: %s", force, ckl_error());
    ckl_plan_free(plan);
}

static void compare(const ckl_conv_desc *d, const char *force, const float *plain, const float *custom)
{
    const int k = (int)d->k, plane = (int)(d->h * d->w);
    for (int i = 0; i < IMAGES * plane * k; i++) {
        const bool nhwc = d->layout == CKL_IMAGE_NHWC;
        const int channel = nhwc ? i % k : i / plane % k, pixel = nhwc ? i / k : i / (plane * k) * plane + i % plane;
        const float want = plain[i] + (channel >= 2 ? (float)(pixel * 128 + channel) * unit : 0);
        if (custom[i] != want)
            fail_msg("%s: pixel %d of channel %d is %g, not %g", force, pixel, channel, (double)custom[i],
                     (double)want);
    }
}

TEST(kernels)
{
    static float plain[ELEMENTS_MAX], custom[ELEMENTS_MAX];
    static const struct {
        const char *force;
        int64_t c, k, groups, side;
        ckl_image_layout layout;
    } kernels[] = {
        { "naive", 8, 8, 1, 11, CKL_IMAGE_NCHW },
        { "sm80", 8, 40, 1, 11, CKL_IMAGE_NHWC },
        { "sm90 tall=0 held=0 im2col=1 box_w=128 box_h=1 box_n=1 consumers=2", 8, 72, 1, 11, CKL_IMAGE_NHWC },
        { "sm90 tall=0 held=0 im2col=0 box_w=4 box_h=16 box_n=2 consumers=2", 8, 72, 1, 11, CKL_IMAGE_NHWC },
        { "sm90 tall=0 held=0 im2col=0 box_w=2 box_h=8 box_n=4 consumers=1", 16, 48, 2, 11, CKL_IMAGE_NHWC },
        { "sm90 tall=1 held=0 im2col=0 box_w=8 box_h=16 box_n=1 consumers=2 tile_n=80 stages=2", 8, 72, 1, 11,
          CKL_IMAGE_NHWC },
        { "sliced slices=2", 72, 24, 1, 11, CKL_IMAGE_NHWC },
        { "packed", 11, 24, 1, 11, CKL_IMAGE_NCHW },
        { "packed", 11, 24, 1, 12, CKL_IMAGE_NCHW },
        { "im2col", 16, 24, 1, 11, CKL_IMAGE_NHWC },
        { "stem", 3, 16, 1, 11, CKL_IMAGE_NHWC },
        { "stem", 3, 16, 1, 11, CKL_IMAGE_NCHW },
        { "narrow", 8, 7, 1, 11, CKL_IMAGE_NHWC },
        { "halo", 24, 24, 24, 11, CKL_IMAGE_NHWC },
        { "bands", 6, 6, 6, 11, CKL_IMAGE_NCHW },
        { "depthwise", 16, 16, 16, 11, CKL_IMAGE_NHWC },
        { "depthwise", 5, 5, 5, 11, CKL_IMAGE_NCHW },
        { "sliding", 6, 6, 6, 11, CKL_IMAGE_NHWC },
        { "nchw_sm90", 16, 24, 1, 12, CKL_IMAGE_NCHW },
    };
    assert_ok(ckl_gemm_epilogue_add(&marks));
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        ckl_conv_desc desc = { .dtype = CKL_F16,
                               .out = CKL_F32,
                               .layout = kernels[i].layout,
                               .n = IMAGES,
                               .c = kernels[i].c,
                               .h = kernels[i].side,
                               .w = kernels[i].side,
                               .k = kernels[i].k,
                               .r = 3,
                               .s = 3,
                               .groups = kernels[i].groups,
                               .pad_top = 1,
                               .pad_bottom = 1,
                               .pad_left = 1,
                               .pad_right = 1 };
        run("naive", &desc, plain);
        desc.epilogue = "marked";
        run(kernels[i].force, &desc, custom);
        compare(&desc, kernels[i].force, plain, custom);
    }
}

RUN_TESTS(open_device, close_device)
