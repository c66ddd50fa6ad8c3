/* unit_conv_epilogue.c - a custom epilogue of convolution, the one of docs/operators.md, in kernels of every kind. */
#include "unit_emulator.h"

#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_halo.h"
#include "operators/conv/conv_narrow.h"
#include "operators/conv/conv_nchw.h"
#include "operators/conv/conv_sm90.h"
#include "operators/conv/conv_stem.h"
#include "operators/operators.h"
#include "plan/plan.h"

#undef HERE
#include "cute/kernel.h"

static ckl_device *gpu;

/* Adds a number that says where an element lies, times `unit`; nothing to what is outside of rows 1 and columns 2 on. */
static val marked(val x, const conv_place *at, void *user)
{
    const float *unit = user;
    val place = add(mul(convert(I32, at->image), imm(128)), convert(I32, at->channel));
    place = add(mul(place, imm(64)), convert(I32, at->at[1]));
    place = add(mul(place, imm(64)), convert(I32, at->at[2]));
    val inside = logical_and(ge(convert(I32, at->at[1]), imm(1)), ge(convert(I32, at->at[2]), imm(2)));
    return select(inside, add(x, mul(convert(F32, place), immf(*unit))), x);
}

static float unit = 0.25f;
static const conv_custom marks = { marked, &unit };

#define DESCRIBE(kernel, config_type, form_of)                    \
    static void describe_##kernel(const void *config, int number) \
    {                                                             \
        config_type c = *(const config_type *)config;             \
        c.form_of.custom = &marks;                                \
        conv_##kernel(&c, number);                                \
    }

DESCRIBE(naive, conv_naive_config, form)
DESCRIBE(sm80, conv_sm80_config, form)
DESCRIBE(sm90, conv_sm90_config, form)
DESCRIBE(sliced, conv_sliced_config, form)
DESCRIBE(stem, conv_stem_config, form)
DESCRIBE(narrow, conv_narrow_config, form)
DESCRIBE(halo, conv_halo_config, form)
DESCRIBE(depthwise, conv_depthwise_config, form)
DESCRIBE(depthwise_rows, conv_depthwise_rows_config, form)
DESCRIBE(nchw_sm90, conv_nchw_config, form)

enum { IMAGES = 3, SIDE = 11, CHANNELS_MAX = 72, ELEMENTS_MAX = IMAGES * SIDE * SIDE * CHANNELS_MAX };

/* y of a plan that is forced, of an operator that has this implementation alone. */
static void run(const implementation *impl, const char *force, const ckl_conv_desc *desc, float *y)
{
    static uint16_t x[ELEMENTS_MAX], w[CHANNELS_MAX * 9 * CHANNELS_MAX];
    const implementation *const list[] = { impl, NULL };
    operator_info op = conv_operator;
    op.implementations = list;
    for (int i = 0; i < COUNT_OF(x); i++)
        x[i] = (uint16_t)(i % 5 ? 0x3c00 : 0xc000); // 1 and -2 of f16
    for (int i = 0; i < COUNT_OF(w); i++)
        w[i] = (uint16_t)(i % 3 ? 0x3c00 : 0x4000);
    void *in_x = test_upload(gpu, x, sizeof x), *in_w = test_upload(gpu, w, sizeof w),
         *out = test_upload(gpu, NULL, ELEMENTS_MAX * 4);
    ckl_plan *plan = NULL;
    plan_forget_device(gpu); // a custom epilogue is no part of a config
    ckl_status status = plan_build(gpu, &op, desc, force, &plan);
    if (status == CKL_OK)
        status = plan_run(plan, &op, &(ckl_conv_args){ .x = in_x, .w = in_w, .y = out }, NULL);
    if (status == CKL_OK)
        status = gpu->ops->copy_out(gpu, y, out, ELEMENTS_MAX * 4, NULL);
    if (status != CKL_OK)
        fail_msg("%s: %s", force, ckl_error());
    ckl_plan_free(plan);
    gpu->ops->release(gpu, in_x);
    gpu->ops->release(gpu, in_w);
    gpu->ops->release(gpu, out);
}

static void compare(const ckl_conv_desc *d, const char *force, const float *plain, const float *custom)
{
    const bool nhwc = d->layout == CKL_IMAGE_NHWC;
    for (int i = 0; i < IMAGES * SIDE * SIDE * (int)d->k; i++) {
        const int k = (int)d->k, channel = nhwc ? i % k : i / (SIDE * SIDE) % k, pixel = nhwc ? i / k : i;
        const int column = pixel % SIDE, row = pixel / SIDE % SIDE, image = i / (k * SIDE * SIDE);
        const int place = ((image * 128 + channel) * 64 + row) * 64 + column;
        const float want = plain[i] + (row >= 1 && column >= 2 ? (float)place * unit : 0);
        if (custom[i] != want)
            fail_msg("%s: y[%d,%d,%d,%d] is %g, not %g", force, image, row, column, channel, (double)custom[i],
                     (double)want);
    }
}

static void test_kernels(void **state)
{
    (void)state;
    static float plain[ELEMENTS_MAX], custom[ELEMENTS_MAX];
    const struct {
        const implementation *impl;
        void (*describe)(const void *config, int kernel);
        const char *force;
        int64_t c, k, groups;
        ckl_image_layout layout;
    } kernels[] = {
        { &conv_naive_implementation, describe_naive, "naive", 8, 8, 1, CKL_IMAGE_NCHW },
        { &conv_sm80_implementation, describe_sm80, "sm80", 8, 40, 1, CKL_IMAGE_NHWC },
        { &conv_sm90_implementation, describe_sm90, "sm90 im2col=1 split=1 box_w=128 box_h=1 box_n=1 consumers=2", 8,
          72, 1, CKL_IMAGE_NHWC },
        { &conv_sm90_implementation, describe_sm90,
          "sm90 im2col=1 split=2 share=1 box_w=64 box_h=1 box_n=1 consumers=1 tile_n=128 stages=4", 8, 72, 1,
          CKL_IMAGE_NHWC },
        { &conv_sm90_implementation, describe_sm90, "sm90 im2col=0 split=1 box_w=4 box_h=16 box_n=2 consumers=2", 8, 72,
          1, CKL_IMAGE_NHWC },
        { &conv_sm90_implementation, describe_sm90, "sm90 im2col=0 split=1 box_w=2 box_h=8 box_n=4 consumers=1", 16, 48,
          2, CKL_IMAGE_NHWC },
        { &conv_sliced_implementation, describe_sliced, "sliced slices=2", 72, 24, 1, CKL_IMAGE_NHWC },
        { &conv_stem_implementation, describe_stem, "stem", 3, 16, 1, CKL_IMAGE_NHWC },
        { &conv_stem_implementation, describe_stem, "stem", 3, 16, 1, CKL_IMAGE_NCHW },
        { &conv_narrow_implementation, describe_narrow, "narrow", 8, 7, 1, CKL_IMAGE_NHWC },
        { &conv_narrow_implementation, describe_narrow, "narrow", 8, 30, 1, CKL_IMAGE_NCHW },
        { &conv_halo_implementation, describe_halo, "halo", 24, 24, 24, CKL_IMAGE_NHWC },
        { &conv_depthwise_implementation, describe_depthwise, "depthwise", 16, 16, 16, CKL_IMAGE_NHWC },
        { &conv_depthwise_implementation, describe_depthwise, "depthwise", 5, 5, 5, CKL_IMAGE_NCHW },
        { &conv_depthwise_rows_implementation, describe_depthwise_rows, "depthwise_rows", 6, 6, 6, CKL_IMAGE_NHWC },
        { &conv_nchw_sm90_implementation, describe_nchw_sm90, "nchw_sm90", 16, 24, 1, CKL_IMAGE_NCHW },
    };
    for (int i = 0; i < COUNT_OF(kernels); i++) {
        implementation changed = *kernels[i].impl;
        changed.describe = kernels[i].describe;
        for (int r = 0; r < COUNT_OF(changed.rivals); r++)
            changed.rivals[r] = NULL;
        const ckl_conv_desc desc = { .dtype = CKL_F16,
                                     .out = CKL_F32,
                                     .layout = kernels[i].layout,
                                     .n = IMAGES,
                                     .c = kernels[i].c,
                                     .h = SIDE,
                                     .w = SIDE,
                                     .k = kernels[i].k,
                                     .r = 3,
                                     .s = 3,
                                     .groups = kernels[i].groups,
                                     .pad_top = 1,
                                     .pad_bottom = 1,
                                     .pad_left = 1,
                                     .pad_right = 1 };
        run(&conv_naive_implementation, "naive", &desc, plain);
        run(&changed, kernels[i].force, &desc, custom);
        compare(&desc, kernels[i].force, plain, custom);
    }
}

static int open_device(void **state)
{
    (void)state;
    gpu = test_open("");
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu->ops->close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_kernels) };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
