/*
 * conv_sliced.c - the Hopper kernel where tiles are few: taps and channels in slices, whose f32 sums a second kernel
 * adds, always in the same order, with bias, residual and activation.
 */
#include <math.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_prepared.h"

enum { SLICES_MAX = 16 };

tensor conv_add_slices(int slices, val address, val apart, int count)
{
    enum { AT_ONCE = 8 };
    tensor rSum = fragment(F32, compact(leaf(count)));
    val bytes = convert(U64, mul(apart, imm(4))), from = variable(U64, address);
    fill(rSum, immf(0));
    LOOP_FROM(s, imm(0), imm(slices), imm(AT_ONCE)) {
        tensor rPart[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            rPart[i] = fragment(F32, compact(leaf(count)));
            fill(rPart[i], immf(0));
            IF(lt(add(s, imm(i)), imm(slices)))
                copy(gmem_tensor(from, F32, compact(leaf(count))), rPart[i], 4 * count);
            assign(from, add(from, bytes));
        }
        for (int i = 0; i < AT_ONCE; i++)
            for (int e = 0; e < count; e++)
                set(rSum, e, add(at(rSum, e), at(rPart[i], e)));
    }
    return rSum;
}

conv_sm90_config conv_sm90_products(const conv_sm90_config *c)
{
    conv_sm90_config products = *c;
    if (c->slices <= 1)
        return products;
    products.form =
        (conv_form){ .direction = c->form.direction, .dtype = c->form.dtype, .out = CKL_F32, .math = c->form.math };
    return products;
}

void conv_sliced(const void *config, int kernel)
{
    const conv_sm90_config *c = config;
    if (kernel == 0)
        conv_sm90(c, 0);
    else
        conv_add_packed(&c->form, c->slices, false);
}

/* The host side */

static plan_cost cost_sliced(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_sm90_work work = conv_sm90_work_of(&conv_prepared_of(desc)->plain, config);
    return conv_sm90_cost_of(&work, device, config);
}

/* Stages of a tile over all slices. */
static double k_tiles(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    return (double)p->taps * (double)ceil_div(p->in, c->tile_k);
}

void conv_sliced_choose(const conv_sm90_problem *p, const ckl_device_info *device, conv_sm90_config *c)
{
    static const int counts[] = { 2, 3, 4, 5, 6, 8, 12, SLICES_MAX };
    conv_sm90_config tried = *c;
    double least = INFINITY;
    if (c->tile_n == 0) // no config
        return;
    const conv_sm90_work work = conv_sm90_work_of(p, c);
    const double stages = k_tiles(p, c);
    for (int slice = 0; slice < COUNT_OF(counts) && (slice == 0 || counts[slice] <= stages); slice++) {
        tried.slices = counts[slice];
        const double us = conv_sm90_cost_of(&work, device, &tried).us;
        c->slices = us < least ? tried.slices : c->slices;
        least = fmin(us, least);
    }
}

static ckl_status check_launches(const conv_sm90_problem *p)
{
    if (p->launches > 1)
        FAIL(CKL_UNSUPPORTED, "conv sliced: the gradient of data of strides above 1 is several launches");
    return CKL_OK;
}

static ckl_status check_problem(const conv_sm90_problem *p)
{
    const ckl_conv_desc *d = &p->desc;
    if (d->direction == CKL_CONV_WEIGHT)
        FAIL(CKL_UNSUPPORTED, "conv sliced: it does not compute the gradient of weights");
    if (d->layout != CKL_IMAGE_NHWC || d->groups > 1 || d->c % 8 || d->k % 8)
        FAIL(CKL_UNSUPPORTED, "conv sliced: it takes NHWC without groups, and channels that are whole 16 bytes");
    return check_launches(p);
}

static bool candidate_sliced(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const conv_sm90_problem *p = &conv_prepared_of(desc)->plain;
    if (check_problem(p) != CKL_OK)
        return i == 0; // to say why not
    if (!conv_sm90_candidate(p, device, i, config))
        return false;
    conv_sliced_choose(p, device, config);
    return true;
}

ckl_conv_desc conv_sliced_desc(const ckl_conv_desc *d)
{
    ckl_conv_desc sums = *d;
    sums.out = CKL_F32;
    sums.bias = sums.scale = sums.residual = false;
    sums.activation = CKL_ACTIVATION_IDENTITY;
    sums.epilogue = NULL;
    return sums;
}

static ckl_status admit_sliced(const void *desc, const ckl_device_info *device, const void *config)
{
    const conv_sm90_problem *p = &conv_prepared_of(desc)->plain;
    const conv_sm90_config *c = config;
    TRY(check_problem(p));
    TRY(conv_check_form("sliced", desc, &c->form));
    TRY(conv_check_dense("sliced", desc));
    if (c->slices == 1)
        FAIL(CKL_UNSUPPORTED, "conv sliced: slices=1 are not 2..%d", SLICES_MAX);
    return conv_sm90_admit(&conv_prepared_of(desc)->sliced, device, c);
}

ckl_status conv_sliced_check(const conv_sm90_problem *p, const conv_sm90_config *c)
{
    const double stages = k_tiles(p, c);
    if (p->desc.dtype == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "conv sliced: dtype=i8 has no sums in f32");
    TRY(check_launches(p));
    if (c->slices < 2 || c->slices > SLICES_MAX || c->slices > stages)
        FAIL(CKL_UNSUPPORTED, "conv sliced: slices=%d are not 2..%d, or more than %g stages", c->slices, SLICES_MAX,
             stages);
    const double sums = conv_sm90_work_of(p, c).sums;
    if (sums / (CONV_PACK_THREADS * CONV_PACK_QUAD) > INT32_MAX || stages * c->slices > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "conv sliced: %g sums are more than one launch adds", sums);
    return CKL_OK;
}

static int64_t workspace_sliced(const ckl_plan *plan)
{
    const conv_sm90_config *c = plan->config;
    return c->slices * conv_sm90_sum_images(plan->desc, c) * conv_prepared_of(plan->desc)->plain.image *
           (int64_t)sizeof(float);
}

ckl_status conv_sliced_launch(const ckl_plan *plan, const conv_sm90_config *c, const ckl_conv_desc *products,
                              const ckl_conv_args *args, const conv_tensor at[CONV_TENSORS], void *sums, int add,
                              ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const int out = conv_written(d);
    const int64_t images = conv_sm90_sum_images(products, c);
    conv_tensor in_slices[CONV_TENSORS] = { at[CONV_X], at[CONV_W], at[CONV_Y] };
    ckl_conv_args a = *args;
    conv_params p = conv_params_of(plan, d, args);
    if (!PLAN_ALIGNED(16, a.x, a.w, a.dy)) // sums are written by any alignment
        FAIL(CKL_INVALID, "conv %s: a pointer is not aligned to 16 bytes; impl=sm80 takes any", plan->impl->name);
    p.sums = sums;
    p.sum_images = (uint32_t)images;
    p.packed_channels = (uint32_t)at[out].stride[CONV_MODES];
    p.k = conv_tensor_of(d, out).shape[CONV_RANK - 1];
    *(out == CONV_X ? &a.dx : &a.y) = sums;
    in_slices[out].shape[0] = c->slices * images;
    TRY(conv_sm90_launch(plan, c, products, &a, in_slices, stream));
    const int64_t quads = d->n * at[out].stride[0] / CONV_PACK_QUAD;
    return plan_launch(plan, add, (plan_grid){ .x = ceil_div(quads, CONV_PACK_THREADS) }, &p, stream);
}

static ckl_status launch_sliced(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_args *a = args;
    conv_tensor at[CONV_TENSORS];
    conv_tensors_of(plan->desc, at);
    return conv_sliced_launch(plan, plan->config, plan->desc, a, at, plan_workspace(plan, a->workspace), 1, stream);
}

static const field sliced_fields[] = CONV_FIELDS(conv_sm90_config, CONV_SM90_CONFIG);

const implementation conv_sliced_implementation = {
    CONV_RANKED(sliced, conv_sm90_config),
    .summary = "sm90 in slices of taps and channels, and a kernel that adds them; NHWC, Hopper",
    .rivals = { &conv_sm90_implementation },
    .describe = conv_sliced,
    .kernels = 2,
    .params = &conv_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_sliced,
};
