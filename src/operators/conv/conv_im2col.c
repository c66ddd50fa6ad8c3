/*
 * conv_im2col.c - convolution as everybody learns it: patches of x are written to the workspace, a row of all channels
 * under all taps for each pixel of y, then one matrix product of GEMM's Hopper kernel. NHWC, and filters as they lie:
 * [K, taps * C], K-major.
 *
 * The workspace has pixels of y * taps * c elements, which other kernels do without: the last resort of tensor cores.
 */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_pointwise.h"
#include "operators/conv/conv_wait.h"

enum { THREADS = 256, BYTES = 16 }; // of a thread

/* Kernel 1 */

static void write_patches(const gemm_sm90_config *cfg)
{
    const ckl_dtype dtype = cfg->epilogue.ab;
    const int vec = BYTES / (int)ckl_dtype_bytes(dtype);
    launch_bounds(THREADS, 0);
    conv_values p = params_of(conv);
    val v = add(mul(cta_x(), imm(THREADS)), thread()), rest = v, tap[CONV_MODES], inside = yes();
    val channel = mul(conv_next_digit(&rest, div(conv_number(p.c), imm(vec))), imm(vec));
    val index = convert(I64, channel);
    for (int m = CONV_MODES - 1; m >= 0; m--)
        tap[m] = conv_next_digit(&rest, conv_number(p.filter[m]));
    for (int m = CONV_MODES - 1; m >= 0; m--) {
        val place = mul(conv_next_digit(&rest, conv_number(p.y_size[m])), conv_number(p.step[m]));
        val seen = sub(add(place, mul(tap[m], conv_number(p.dilation[m]))), conv_number(p.pad[m]));
        inside = logical_and(inside, lt(seen, conv_number(p.x_size[m]))); // below zero is beyond, too
        index = add(index, mul(convert(I64, convert(I32, seen)), p.x[1 + m]));
    }
    val there = lt(rest, conv_number(p.n)); // the image
    index = add(index, mul(convert(I64, rest), p.x[0]));
    conv_wait(&p);
    tensor rX = fragment(dtype, compact(leaf(vec)));
    fill(rX, conv_zero(dtype));
    IF(logical_and(there, inside))
        copy(conv_run_at(p.from[CONV_X], dtype, index, vec), rX, BYTES);
    IF(there)
        copy(rX, conv_run_at(p.copies[0], dtype, mul(convert(I64, v), imm64(vec)), vec), BYTES);
}

static void describe_im2col(const void *config, int kernel)
{
    if (kernel == 0)
        gemm_sm90(config, 0);
    else
        write_patches(config);
}

/* The host side */

static ckl_gemm_desc product_of(const ckl_conv_desc *d)
{
    const int64_t depth = conv_tensor_of(d, CONV_W).stride[0];
    return conv_product_of(d, &(conv_product_rows){ conv_pixel_count(d, CONV_Y), depth, depth, d->k, depth });
}

static int64_t vectors_of(const ckl_conv_desc *d)
{
    const ckl_gemm_desc product = product_of(d);
    return product_i64(product_i64(product.m, product.k), (int64_t)ckl_dtype_bytes(d->dtype)) / BYTES;
}

static bool candidate_im2col(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_gemm_desc product = product_of(desc);
    return product.m > 0 && gemm_sm90_candidate(&product, device, i, config);
}

static plan_cost cost_im2col(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH = 2, COPIED = 1.25e6; // us; bytes a us
    const ckl_gemm_desc product = product_of(desc);
    plan_cost cost = gemm_sm90_cost(&product, device, config);
    cost.us += LAUNCH + BYTES * (double)vectors_of(desc) / COPIED;
    return cost;
}

static ckl_status admit_im2col(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    TRY(conv_check_dense("im2col", d));
    if (d->direction != CKL_CONV_FORWARD || d->layout != CKL_IMAGE_NHWC || d->groups > 1)
        FAIL(CKL_UNSUPPORTED, "conv im2col: it takes NHWC forward, without groups");
    if (d->dtype == CKL_F32 && d->math == CKL_GEMM_F32)
        FAIL(CKL_UNSUPPORTED, "conv im2col: tensor cores multiply f32 with math=tf32 alone");
    if (d->c * (int64_t)ckl_dtype_bytes(d->dtype) % BYTES)
        FAIL(CKL_UNSUPPORTED, "conv im2col: c=%" PRId64 " channels are not whole 16 bytes", d->c);
    if (vectors_of(d) > INT32_MAX || d->d > INT32_MAX / 4 || d->h > INT32_MAX / 4 || d->w > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "conv im2col: patches of %" PRId64 " vectors, or a size, are beyond 32-bit numbers",
             vectors_of(d));
    const ckl_gemm_desc product = product_of(d);
    return gemm_sm90_admit(&product, device, config);
}

static int64_t workspace_im2col(const ckl_plan *plan)
{
    return vectors_of(plan->desc) * BYTES;
}

static ckl_status launch_im2col(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const ckl_gemm_desc product = product_of(d);
    char *patches = plan_workspace(plan, a->workspace);
    if (!PLAN_ALIGNED(BYTES, a->x, a->w, a->y, a->residual))
        FAIL(CKL_INVALID, "conv im2col: a pointer is not aligned to 16 bytes; impl=sm80 takes any");
    conv_params p = conv_params_of(plan, d, a);
    p.copies[0] = patches;
    TRY(plan_launch(plan, 1, (plan_grid){ .x = ceil_div(vectors_of(d), THREADS) }, &p, stream));
    const ckl_gemm_args x = {
        .a = patches, .b = a->w, .c = a->residual, .bias = a->bias, .scale_b = a->scale, .d = a->y
    };
    return gemm_sm90_launch(plan, plan->config, &product, product.k, &x, stream);
}

static const field im2col_fields[] = GEMM_FIELDS(gemm_sm90_config, GEMM_SM90_CONFIG);

const implementation conv_im2col_implementation = {
    CONV_RANKED(im2col, gemm_sm90_config),
    .summary = "patches in a workspace, then a matrix product by the kernel of gemm sm90; NHWC, Hopper",
    .by_name = true,
    .describe = describe_im2col,
    .kernels = 2,
    .params = &gemm_pitched_param_list,
    .own_params = &conv_param_list,
    .own_from = 1,
    .target = IR_SM90A,
    .workspace_bytes = workspace_im2col,
};
