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

/* Where an element of a patch lies: its channel, and its tap. */
typedef struct patch_place {
    val channel, tap[CONV_MODES];
} patch_place;

static patch_place next_place(const conv_values *p, const patch_place *at)
{
    patch_place next = *at;
    val carry = yes();
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        val tap = add(at->tap[m], select(carry, imm_as(U32, 1), imm_as(U32, 0)));
        carry = eq(tap, conv_number(p->filter[m]));
        next.tap[m] = select(carry, imm_as(U32, 0), tap);
    }
    next.channel = add(at->channel, select(carry, imm_as(U32, 1), imm_as(U32, 0)));
    return next;
}

/* The offset of that element of an image whose corner is there; *inside: is it no padding? */
static val offset_of(const conv_values *p, const patch_place *at, const val corner[CONV_MODES], val *inside)
{
    val offset = mul(at->channel, conv_number(p->x[4]));
    for (int m = 0; m < CONV_MODES; m++) {
        val place = add(corner[m], mul(at->tap[m], conv_number(p->dilation[m]))); // below zero is beyond, too
        *inside = logical_and(*inside, lt(place, conv_number(p->x_size[m])));
        offset = add(offset, mul(place, conv_number(p->x[1 + m])));
    }
    return convert(I64, offset);
}

static void write_patches(const conv_form *form)
{
    launch_bounds(THREADS, 0);
    conv_values p = params_of(conv);
    val number = add(mul(cta_x(), imm(THREADS)), thread()), rest = number, corner[CONV_MODES], depth = conv_number(p.c);
    for (int m = 0; m < CONV_MODES; m++)
        depth = mul(depth, conv_number(p.filter[m]));
    patch_place at = { .channel = mul(conv_next_digit(&rest, div(depth, imm(VECTOR))), imm(VECTOR)) };
    for (int m = CONV_MODES - 1; m >= 0; m--)
        at.tap[m] = conv_next_digit(&at.channel, conv_number(p.filter[m]));
    for (int m = CONV_MODES - 1; m >= 0; m--)
        corner[m] =
            sub(mul(conv_next_digit(&rest, conv_number(p.y_size[m])), conv_number(p.step[m])), conv_number(p.pad[m]));
    val there = lt(rest, conv_number(p.n)); // the image
    tensor gX =
        conv_elements_from(gmem_address(p.from[CONV_X], form->dtype, mul(convert(I64, rest), p.x[0])), form->dtype);
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
    IF(there)
        copy(rX, conv_run_at(p.copies[0], form->dtype, mul(convert(I64, number), imm64(VECTOR)), VECTOR), 2 * VECTOR);
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
        conv_add_packed(&c->form, c->product.slices, true);
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

static ckl_status launch_patches(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_patches_config *c = plan->config;
    const gemm_sm90_config product = product_config(c);
    const ckl_gemm_desc whole = product_of(d), sliced = gemm_splitk_desc(&whole, c->product.slices);
    char *patches = plan_workspace(plan, a->workspace), *sums = patches + patches_bytes(d);
    conv_params p = conv_params_of(d, a);
    p.copies[0] = patches;
    p.sums = sums;
    p.sum_images = (uint32_t)d->n;
    p.packed_channels = (uint32_t)whole.ldd;
    if (!PLAN_ALIGNED(16, a->w))
        FAIL(CKL_INVALID, "conv patches: w is not aligned to 16 bytes; impl=sm80 takes any");
    TRY(plan_launch(plan, PATCHES, (plan_grid){ .x = ceil_div(vectors_of(d), THREADS) }, &p, stream));
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
