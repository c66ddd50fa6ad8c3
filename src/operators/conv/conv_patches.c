/*
 * conv_patches.c - deep filters of planes at few pixels: patches of x are written to the workspace, [PIXELS,C*TAPS], multiplied by the
 * filters as they lie, [K,C*TAPS], in slices of K by GEMM's Hopper kernel, and a third kernel adds the slices to planes of y.
 *
 * Other kernels copy the filters to NHWC first: 29 MB each way for 640 filters of 2560 channels, where 50 pixels have patches of 2.3.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_packed.h"
#include "operators/gemm/gemm_plan.h"
#include "operators/gemm/gemm_splitk.h"

enum { THREADS = 256, VECTOR = 8 }; // elements of a patch that a thread writes

enum { PRODUCT, PATCHES, SUMS, KERNELS }; // of a plan

#define CONV_PATCHES_CONFIG(X, owner) X(owner, int, slices, "2", "2 3 4 6 8 12 16", "of K")

typedef struct conv_patches_config {
    conv_form form;
    gemm_splitk_config product; // its epilogue is left out
} conv_patches_config;

/* The product's, then those of the patches and of the sums; arrays by mode. */
#define CONV_PATCHES_PARAMS(X, owner)                                \
    GEMM_PITCHED_PARAMS(X, owner)                                    \
    X(owner, pointer, image)                                         \
    X(owner, pointer, patches)                                       \
    X(owner, u32, vectors)  /* in all */                             \
    X(owner, u32, of_pixel) /* vectors */                            \
    X(owner, u32, x_image)  /* elements of x, from image to image */ \
    X(owner, u32, x_plane)  /* from channel to channel */            \
    X(owner, u32, x_step, [CONV_MODES])                              \
    X(owner, u32, x_size, [CONV_MODES])                              \
    X(owner, u32, y_size, [CONV_MODES])                              \
    X(owner, u32, filter, [CONV_MODES])                              \
    X(owner, u32, step, [CONV_MODES])                                \
    X(owner, u32, dilation, [CONV_MODES])                            \
    X(owner, u32, pad, [CONV_MODES])                                 \
    X(owner, pointer, sums)                                          \
    X(owner, u32, sum_row) /* elements from pixel to pixel */        \
    X(owner, i64, images)                                            \
    X(owner, i64, filters)                                           \
    X(owner, pointer, y)                                             \
    X(owner, pointer, y_bias)                                        \
    X(owner, pointer, y_scale)                                       \
    X(owner, pointer, residual)                                      \
    X(owner, i64, y_stride, [CONV_RANK])

KERNEL_PARAMS(conv_patches, CONV_PATCHES_PARAMS);

/* Where an element of a patch lies: its channel, and its tap. */
typedef struct patch_place {
    val channel, tap[CONV_MODES];
} patch_place;

static patch_place next_place(const conv_patches_values *p, const patch_place *at)
{
    patch_place next = *at;
    val carry = yes();
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        val tap = add(at->tap[m], select(carry, imm_as(U32, 1), imm_as(U32, 0)));
        carry = eq(tap, p->filter[m]);
        next.tap[m] = select(carry, imm_as(U32, 0), tap);
    }
    next.channel = add(at->channel, select(carry, imm_as(U32, 1), imm_as(U32, 0)));
    return next;
}

/* The offset of that element of an image whose corner is there; *inside: is it no padding? */
static val offset_of(const conv_patches_values *p, const patch_place *at, const val corner[CONV_MODES], val *inside)
{
    val offset = mul(at->channel, p->x_plane);
    for (int m = 0; m < CONV_MODES; m++) {
        val place = convert(I32, add(corner[m], mul(at->tap[m], p->dilation[m])));
        *inside = logical_and(*inside, logical_and(ge(place, imm(0)), lt(place, convert(I32, p->x_size[m]))));
        offset = add(offset, mul(convert(U32, place), p->x_step[m]));
    }
    return convert(I64, offset);
}

static void write_patches(const conv_form *form)
{
    launch_bounds(THREADS, 0);
    conv_patches_values p = params_of(conv_patches);
    val number = add(mul(cta_x(), imm(THREADS)), thread()), pixel = number, corner[CONV_MODES];
    patch_place at = { .channel = mul(conv_next_digit(&pixel, p.of_pixel), imm(VECTOR)) };
    for (int m = CONV_MODES - 1; m >= 0; m--)
        at.tap[m] = conv_next_digit(&at.channel, p.filter[m]);
    for (int m = CONV_MODES - 1; m >= 0; m--)
        corner[m] = sub(mul(conv_next_digit(&pixel, p.y_size[m]), p.step[m]), p.pad[m]);
    val there = lt(number, p.vectors), bytes = mul(mul(convert(I64, pixel), convert(I64, p.x_image)), imm64(2));
    tensor gX = gmem_tensor(add(p.image, convert(U64, bytes)), form->dtype, make_layout(dynamic(imm64(1)), leaf(1)));
    tensor rX = fragment(form->dtype, compact(leaf(VECTOR)));
    grid_wait();
    launch_dependents();
    for (int i = 0; i < VECTOR; i++) {
        val inside = there, offset = offset_of(&p, &at, corner, &inside);
        val x = variable(form->dtype, conv_zero(form->dtype));
        IF(inside)
            assign(x, at(gX, offset));
        set(rX, i, x);
        at = next_place(&p, &at);
    }
    val to = add(p.patches, mul(convert(U64, number), imm_as(U64, 2 * VECTOR)));
    IF(there)
        copy(rX, gmem_tensor(to, form->dtype, compact(leaf(VECTOR))), 2 * VECTOR);
}

static void add_slices(const conv_patches_config *c)
{
    launch_bounds(CONV_PACK_THREADS, 0);
    const conv_patches_values p = params_of(conv_patches);
    conv_values of_y = { .from = { [CONV_Y] = p.y },
                         .bias = p.y_bias,
                         .scale = p.y_scale,
                         .residual = p.residual,
                         .n = p.images,
                         .k = p.filters,
                         .sums = p.sums,
                         .sum_images = convert(U32, p.images),
                         .packed_channels = p.sum_row };
    for (int m = 0; m < CONV_MODES; m++)
        of_y.y_size[m] = convert(I64, p.y_size[m]);
    for (int i = 0; i < CONV_RANK; i++)
        of_y.y[i] = p.y_stride[i];
    conv_add_places(&c->form, c->product.slices, true, &of_y);
}

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
        write_patches(&c->form);
    else
        add_slices(c);
}

/* The host side */

/* Channels of all taps. */
static int64_t depth_of(const ckl_conv_desc *d)
{
    return product_i64(d->c, product_i64(d->t, product_i64(d->r, d->s)));
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
    if (d->direction != CKL_CONV_FORWARD || d->layout != CKL_IMAGE_NCHW || d->groups > 1)
        FAIL(CKL_UNSUPPORTED, "conv patches: it takes NCHW forward, without groups");
    if (depth_of(d) == 0 || depth_of(d) % VECTOR)
        FAIL(CKL_UNSUPPORTED, "conv patches: c=%" PRId64 " channels of %" PRId64 " taps are none or no whole 16 bytes",
             d->c, d->t * d->r * d->s);
    if (vectors_of(d) > INT32_MAX || (double)d->c * (double)d->d * (double)d->h * (double)d->w > INT32_MAX ||
        d->d > INT32_MAX / 4 || d->h > INT32_MAX / 4 || d->w > INT32_MAX / 4)
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

static conv_patches_params params_for(const ckl_conv_desc *d, const ckl_conv_args *a, char *workspace)
{
    const conv_tensor x = conv_tensor_of(d, CONV_X), y = conv_tensor_of(d, CONV_Y);
    const ckl_gemm_desc product = product_of(d);
    conv_patches_params p = { .image = a->x,
                              .patches = workspace,
                              .vectors = (uint32_t)vectors_of(d),
                              .of_pixel = (uint32_t)(product.k / VECTOR),
                              .x_image = (uint32_t)x.stride[0],
                              .x_plane = (uint32_t)x.stride[4],
                              .sums = workspace + patches_bytes(d),
                              .sum_row = (uint32_t)product.ldd,
                              .images = d->n,
                              .filters = d->k,
                              .y = a->y,
                              .y_bias = a->bias,
                              .y_scale = a->scale,
                              .residual = a->residual };
    conv_mode m[CONV_MODES];
    conv_modes(d, m);
    for (int i = 0; i < CONV_RANK; i++)
        p.y_stride[i] = y.stride[i];
    CONV_SET_PLACES(&p, m);
    for (int i = 0; i < CONV_MODES; i++) {
        p.x_step[i] = (uint32_t)x.stride[1 + i];
        p.filter[i] = (uint32_t)m[i].filter;
    }
    return p;
}

static ckl_status launch_patches(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_patches_config *c = plan->config;
    const gemm_sm90_config product = product_config(c);
    const ckl_gemm_desc whole = product_of(d), sliced = gemm_splitk_desc(&whole, c->product.slices);
    const conv_patches_params p = params_for(d, a, plan_workspace(plan, a->workspace));
    if (!PLAN_ALIGNED(16, a->w))
        FAIL(CKL_INVALID, "conv patches: w is not aligned to 16 bytes; impl=sm80 takes any");
    TRY(plan_launch(plan, PATCHES, (plan_grid){ .x = ceil_div(vectors_of(d), THREADS) }, &p, stream));
    const ckl_gemm_args x = { .a = p.patches, .b = a->w, .d = (void *)(uintptr_t)p.sums };
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
    .params = &conv_patches_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_patches,
};
