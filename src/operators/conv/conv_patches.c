/*
 * conv_patches.c - deep filters of planes at few pixels: patches of x are written to the workspace, [PIXELS,C*TAPS],
 * multiplied by the filters as they lie, [K,C*TAPS], in slices of K by GEMM's Hopper kernel, and a third kernel adds
 * the slices to planes of y.
 *
 * Other kernels copy the filters to NHWC first: 29 MB each way for 640 filters of 2560 channels, where 50 pixels have
 * patches of 2.3.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_packed.h"
#include "operators/gemm/gemm_plan.h"
#include "operators/gemm/gemm_splitk.h"

enum { VECTOR = 8 }; // elements of 16 bytes

enum { PRODUCT, PATCHES, SUMS, KERNELS }; // of a plan

#define CONV_PATCHES_CONFIG(X, owner) X(owner, int, slices, "2", "2 3 4 6 8 12 16", "of K")

typedef struct conv_patches_config {
    conv_form form;
    gemm_splitk_config product; // its epilogue is left out
} conv_patches_config;

static gemm_sm90_config product_config(const conv_patches_config *c)
{
    gemm_sm90_config product = c->product.products;
    product.epilogue = (gemm_epilogue){ .ab = c->form.dtype, .b = c->form.dtype, .d = CKL_F32 };
    return product;
}

static void describe_patches(const void *config, int kernel)
{
    const conv_patches_config *c = config;
    const gemm_sm90_config product = product_config(c);
    if (kernel == PRODUCT)
        gemm_sm90(&product, 0);
    else if (kernel == PATCHES)
        conv_write_patches(c->form.dtype, true, false);
    else
        conv_add_packed(&c->form, c->product.slices, true);
}

/* The host side */

/* Channels of all taps. */
static int64_t depth_of(const ckl_conv_desc *d)
{
    return product_i64(d->c, product_i64(d->r, d->s));
}

static ckl_gemm_desc product_of(const ckl_conv_desc *d)
{
    return (ckl_gemm_desc){ .m = conv_pixel_count(d, CONV_Y),
                            .n = d->k,
                            .k = depth_of(d),
                            .a = d->dtype,
                            .b = d->dtype,
                            .d = CKL_F32,
                            .layout = CKL_GEMM_NT,
                            .lda = depth_of(d),
                            .ldb = depth_of(d),
                            .ldd = round_up(d->k, GEMM_SPLITK_COLUMNS),
                            .batch = 1 };
}

static gemm_splitk_config of_gemm(const conv_patches_config *c)
{
    gemm_splitk_config product = c->product;
    product.products = product_config(c);
    product.vec = 1;
    return product;
}

static int64_t vectors_of(const ckl_conv_desc *d)
{
    const ckl_gemm_desc product = product_of(d);
    return product_i64(product.m, product.k) / VECTOR;
}

static ckl_status check_problem(const ckl_conv_desc *d)
{
    TRY(conv_check_dense("patches", d));
    TRY(conv_check_half("patches", d));
    if (d->direction != CKL_CONV_FORWARD || d->layout != CKL_IMAGE_NCHW || d->groups > 1 || conv_is_volume(d))
        FAIL(CKL_UNSUPPORTED, "conv patches: it takes images of NCHW forward, without groups");
    if (depth_of(d) == 0 || depth_of(d) % VECTOR)
        FAIL(CKL_UNSUPPORTED, "conv patches: c=%" PRId64 " channels of %" PRId64 " taps are none or no whole 16 bytes",
             d->c, d->r * d->s);
    if (vectors_of(d) > INT32_MAX || (double)d->c * (double)d->h * (double)d->w > INT32_MAX || d->h > INT32_MAX / 4 ||
        d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv patches: %" PRId64 " vectors, or an image, are beyond 32-bit numbers",
             vectors_of(d));
    return CKL_OK;
}

/* May a matrix product be made like this? Its slices are at least two. */
static ckl_status check_product(const ckl_conv_desc *d, const ckl_device_info *device, const conv_patches_config *c)
{
    const ckl_gemm_desc product = product_of(d);
    const gemm_splitk_config of = of_gemm(c);
    if (c->product.slices < 2)
        FAIL(CKL_INVALID, "conv patches: slices=%d are less than 2", c->product.slices);
    return gemm_splitk_implementation.admit(&product, device, &of);
}

static bool candidate_patches(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_conv_desc *d = desc;
    conv_patches_config *c = config;
    const ckl_gemm_desc product = product_of(d);
    if (check_problem(d) != CKL_OK && i > 0)
        return false; // the first one is there to be refused with a sentence
    c->form = conv_form_of(d);
    if (product.m == 0 || product.n == 0 || product.k == 0 ||
        !gemm_splitk_implementation.candidate(&product, device, i, &c->product))
        return false;
    c->product.slices = 2;
    if (check_product(d, device, c) == CKL_OK) {
        gemm_splitk_config of = of_gemm(c);
        of.slices = 0;
        c->product.slices = gemm_splitk_slices(&product, device, &of);
    }
    return true;
}

static plan_cost cost_patches(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH = 2.5, WRITTEN = 1.25e6; // us; bytes of patches a us
    const ckl_gemm_desc product = product_of(desc);
    const gemm_splitk_config of = of_gemm(config);
    plan_cost cost = gemm_splitk_implementation.cost(&product, device, &of);
    cost.us += LAUNCH + 2 * VECTOR * (double)vectors_of(desc) / WRITTEN;
    return cost;
}

static ckl_status admit_patches(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_patches_config *c = config;
    TRY(check_problem(d));
    TRY(conv_check_form("patches", d, &c->form));
    return check_product(d, device, c);
}

static int64_t patches_bytes(const ckl_conv_desc *d)
{
    return round_up(2 * VECTOR * vectors_of(d), 256);
}

static int64_t workspace_patches(const ckl_plan *plan)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_patches_config *c = plan->config;
    const ckl_gemm_desc product = product_of(d);
    return patches_bytes(d) + c->product.slices * product.m * product.ldd * (int64_t)sizeof(float);
}

static ckl_status launch_patches(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_patches_config *c = plan->config;
    const gemm_sm90_config product = product_config(c);
    const ckl_gemm_desc whole = product_of(d), sliced = gemm_splitk_desc(&whole, c->product.slices);
    char *patches = plan_workspace(plan, a->workspace), *sums = patches + patches_bytes(d);
    conv_params p = conv_params_of(d, a);
    conv_params of_patches = p;
    of_patches.from[CONV_Y] = patches;
    of_patches.packed_row = (uint32_t)whole.k;
    p.sums = sums;
    p.sum_images = (uint32_t)d->n;
    p.packed_channels = (uint32_t)whole.ldd;
    if (!PLAN_ALIGNED(16, a->w))
        FAIL(CKL_INVALID, "conv patches: w is not aligned to 16 bytes; impl=sm80 takes any");
    TRY(conv_write_patches_launch(plan, PATCHES, &of_patches, stream));
    const ckl_gemm_args x = { .a = patches, .b = a->w, .d = sums };
    TRY(gemm_sm90_launch(plan, &product, &sliced, whole.k, &x, stream));
    const int64_t quads = whole.m * whole.ldd / CONV_PACK_QUAD;
    return plan_launch(plan, SUMS, (plan_grid){ .x = ceil_div(quads, CONV_PACK_THREADS) }, &p, stream);
}

static const field patches_fields[] = { CONV_FORM(FIELD_NESTED, (conv_patches_config, form))                    //
                                        GEMM_SM90_CONFIG(FIELD_NESTED, (conv_patches_config, product.products)) //
                                        CONV_PATCHES_CONFIG(FIELD_NESTED, (conv_patches_config, product)) };

const implementation conv_patches_implementation = {
    CONV_RANKED(patches, conv_patches_config),
    .summary =
        "deep filters of planes at few pixels: patches in a workspace, gemm's slices of K, and sums; NCHW, Hopper",
    .rivals = { &conv_nchw_sm90_implementation, &conv_packed_implementation },
    .describe = describe_patches,
    .kernels = KERNELS,
    .params = &gemm_pitched_param_list,
    .own_params = &conv_param_list,
    .own_from = PATCHES,
    .target = IR_SM90A,
    .workspace_bytes = workspace_patches,
};
