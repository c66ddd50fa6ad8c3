/*
 * conv_products.c - filters of one pixel whose channels are no whole 16 bytes: the matrix product by those of gemm's
 * kernels that take rows which begin anywhere.
 */
#include <math.h>

#include "base/math.h"
#include "operators/conv/conv_prepared.h"

static ckl_status launch(const ckl_plan *plan, const implementation *gemm, const ckl_conv_args *args, ckl_stream stream)
{
    const ckl_gemm_desc *product = conv_pointwise_product(plan->desc);
    const ckl_gemm_args matrices = conv_pointwise_matrices(plan->desc, args);
    const ckl_plan of = conv_plan_of(plan, product, plan->config);
    return gemm->launch(&of, &matrices, stream);
}

/* The host side of a convolution by implementation `called` of gemm. */
#define BY_GEMM(called)                                                                                   \
    static ckl_status admit_##called(const void *desc, const ckl_device_info *device, const void *config) \
    {                                                                                                     \
        TRY(conv_pointwise_check(desc));                                                                  \
        const ckl_gemm_desc *product = conv_pointwise_product(desc);                                      \
        return gemm_##called##_implementation.admit(product, device, config);                             \
    }                                                                                                     \
    static ckl_status launch_##called(const ckl_plan *plan, const void *args, ckl_stream stream)          \
    {                                                                                                     \
        return launch(plan, &gemm_##called##_implementation, args, stream);                               \
    }

BY_GEMM(unaligned)
BY_GEMM(pitched)

static ckl_status choose_unaligned(const void *desc, const ckl_device_info *device, void *config)
{
    TRY(conv_pointwise_check(desc));
    return gemm_unaligned_implementation.choose(conv_pointwise_product(desc), device, config);
}

static plan_cost cost_unaligned(const void *desc, const ckl_device_info *device, const void *config)
{
    const double FEW = 2; // gemm's model was fitted to fewer CTAs
    const gemm_unaligned_config *c = config;
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    plan_cost cost = gemm_unaligned_implementation.cost(product, device, config);
    cost.us *= ceil_div(product->n, c->rows) * ceil_div(product->m, c->columns) > device->sm_count ? FEW : 1;
    return cost;
}

/*
 * Longer than by gemm's model: data with few channels on a side (7 to 755 of 16 images of 24x24 take 17.1 us, 41 to 3
 * of 3 of 512x512 100), and rows of y that begin anywhere, where one step along K hides nothing of their stores: 1 to
 * 949 channels of 48 of 96x96 818, 3 to 677 of 24 of 64x64 120. 83 to 13 of 229 of 16x16 take 12.9 us in tiles of
 * 64x16, 11.6 of 128x16.
 */
static plan_cost cost_pitched(const void *desc, const ckl_device_info *device, const void *config)
{
    const int64_t FEW = 8;
    const double LONGER = 1.5, STORED = 1.05e6; // bytes a us
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    const double results = (double)product->m * (double)product->n * (double)ckl_dtype_bytes(product->d);
    plan_cost cost = gemm_pitched_implementation.cost(product, device, config);
    cost.us *= product->layout == CKL_GEMM_NN && min_i64(product->n, product->k) <= FEW ? LONGER : 1;
    cost.us *= product->layout == CKL_GEMM_NT ? conv_pointwise_short_tiles(product, device, config) : 1;
    if (product->k <= gemm_tile_k(product->a) && !gemm_rows_aligned(product, 'd', TMA_ALIGNMENT))
        cost.us = fmax(cost.us, results / STORED);
    return cost;
}

static bool candidate_pitched(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    if (product->m == 0 || (i > 0 && conv_pointwise_check(desc) != CKL_OK)) // the first one says why not
        return false;
    return gemm_pitched_implementation.candidate(product, device, i, config);
}

static void describe_pitched(const void *config, int kernel)
{
    gemm_pitched_implementation.describe(config, kernel);
}

static int64_t workspace_pitched(const ckl_plan *plan)
{
    const ckl_gemm_desc *product = conv_pointwise_product(plan->desc);
    const ckl_plan of = conv_plan_of(plan, product, plan->config);
    return gemm_pitched_implementation.workspace_bytes(&of);
}

static const field unaligned_fields[] = GEMM_FIELDS(gemm_unaligned_config, GEMM_UNALIGNED_CONFIG);
static const field pitched_fields[] = GEMM_FIELDS(gemm_sm90_config, GEMM_SM90_CONFIG);

#define RIVALS                                                                           \
    &conv_narrow_implementation, &conv_stem_implementation, &conv_packed_implementation, \
        &conv_packed_weight_implementation

const implementation conv_pointwise_unaligned_implementation = {
    .name = "pointwise_unaligned",
    .summary = "small products of odd channels by filters of one pixel, by gemm unaligned; NHWC, from sm_80 on",
    .config_bytes = sizeof(gemm_unaligned_config),
    .config = FIELD_TABLE(unaligned_fields),
    .choose = choose_unaligned,
    .cost = cost_unaligned,
    .rivals = { &conv_pointwise_pitched_implementation, RIVALS },
    .admit = admit_unaligned,
    .describe = gemm_unaligned,
    .params = &gemm_param_list,
    .launch = launch_unaligned,
};

const implementation conv_pointwise_pitched_implementation = {
    .name = "pointwise_pitched",
    .summary = "odd channels, filters of one pixel, by gemm pitched; NHWC, Hopper",
    .config_bytes = sizeof(gemm_sm90_config),
    .config = FIELD_TABLE(pitched_fields),
    .candidate = candidate_pitched,
    .cost = cost_pitched,
    .rivals = { RIVALS },
    .admit = admit_pitched,
    .describe = describe_pitched,
    .kernels = 2,
    .params = &gemm_pitched_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_pitched,
    .launch = launch_pitched,
};
