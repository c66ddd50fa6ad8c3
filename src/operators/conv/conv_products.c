/*
 * conv_products.c - filters of one pixel whose channels are no whole 16 bytes: the matrix product by those of gemm's
 * kernels that take rows which begin anywhere.
 */
#include "operators/conv/conv_pointwise.h"

/* A plan of the product, with the kernels of this one. */
static ckl_plan plan_of(const ckl_plan *plan, const ckl_gemm_desc *product)
{
    ckl_plan of = *plan;
    of.desc = product;
    return of;
}

static ckl_status launch(const ckl_plan *plan, const implementation *gemm, const ckl_conv_args *args, ckl_stream stream)
{
    const ckl_gemm_desc product = conv_pointwise_product(plan->desc);
    const ckl_gemm_args matrices = conv_pointwise_matrices(plan->desc, args);
    const ckl_plan of = plan_of(plan, &product);
    return gemm->launch(&of, &matrices, stream);
}

/* The host side of a convolution by implementation `called` of gemm. */
#define BY_GEMM(called)                                                                                   \
    static plan_cost cost_##called(const void *desc, const ckl_device_info *device, const void *config)   \
    {                                                                                                     \
        const ckl_gemm_desc product = conv_pointwise_product(desc);                                       \
        return gemm_##called##_implementation.cost(&product, device, config);                             \
    }                                                                                                     \
    static ckl_status admit_##called(const void *desc, const ckl_device_info *device, const void *config) \
    {                                                                                                     \
        TRY(conv_pointwise_check(desc));                                                                  \
        const ckl_gemm_desc product = conv_pointwise_product(desc);                                       \
        return gemm_##called##_implementation.admit(&product, device, config);                            \
    }                                                                                                     \
    static ckl_status launch_##called(const ckl_plan *plan, const void *args, ckl_stream stream)          \
    {                                                                                                     \
        return launch(plan, &gemm_##called##_implementation, args, stream);                               \
    }

/* Of those that choose a config by rules. */
#define CHOSEN_BY_GEMM(called)                                                                       \
    static ckl_status choose_##called(const void *desc, const ckl_device_info *device, void *config) \
    {                                                                                                \
        TRY(conv_pointwise_check(desc));                                                             \
        const ckl_gemm_desc product = conv_pointwise_product(desc);                                  \
        return gemm_##called##_implementation.choose(&product, device, config);                      \
    }

BY_GEMM(outer)
CHOSEN_BY_GEMM(outer)
BY_GEMM(unaligned)
CHOSEN_BY_GEMM(unaligned)
BY_GEMM(shallow)
CHOSEN_BY_GEMM(shallow)
BY_GEMM(pitched)

static bool candidate_pitched(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_gemm_desc product = conv_pointwise_product(desc);
    const bool taken = conv_pointwise_check(desc) == CKL_OK;
    return product.m > 0 && (taken || i == 0) && gemm_pitched_implementation.candidate(&product, device, i, config);
}

static void describe_pitched(const void *config, int kernel)
{
    gemm_pitched_implementation.describe(config, kernel);
}

static int64_t workspace_pitched(const ckl_plan *plan)
{
    const ckl_gemm_desc product = conv_pointwise_product(plan->desc);
    const ckl_plan of = plan_of(plan, &product);
    return gemm_pitched_implementation.workspace_bytes(&of);
}

static const field outer_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_outer_config, epilogue)) //
                                      GEMM_OUTER_CONFIG(FIELD_ROW, gemm_outer_config) };
static const field unaligned_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_unaligned_config, epilogue)) //
                                          GEMM_UNALIGNED_CONFIG(FIELD_ROW, gemm_unaligned_config) };
static const field shallow_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_shallow_config, epilogue)) //
                                        GEMM_SHALLOW_CONFIG(FIELD_ROW, gemm_shallow_config) };
static const field pitched_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_sm90_config, epilogue)) //
                                        GEMM_SM90_CONFIG(FIELD_ROW, gemm_sm90_config) };

#define RIVALS                                                                               \
    {                                                                                        \
        &conv_narrow_implementation, &conv_stem_implementation, &conv_packed_implementation, \
            &conv_packed_weight_implementation                                               \
    }

#define PARTS(called)                                                                                           \
    .name = "pointwise_" #called, .config_bytes = sizeof(gemm_##called##_config),                               \
    .config = FIELD_TABLE(called##_fields), .choose = choose_##called, .cost = cost_##called, .rivals = RIVALS, \
    .admit = admit_##called, .describe = gemm_##called, .params = &gemm_param_list, .launch = launch_##called

const implementation conv_pointwise_outer_implementation = {
    PARTS(outer),
    .summary = "filters of one pixel, few channels, by gemm outer; NHWC, from sm_80 on",
};

const implementation conv_pointwise_unaligned_implementation = {
    PARTS(unaligned),
    .summary = "small products of odd channels by filters of one pixel, by gemm unaligned; NHWC, from sm_80 on",
};

const implementation conv_pointwise_shallow_implementation = {
    PARTS(shallow),
    .summary = "few odd channels, filters of one pixel, by gemm shallow; NHWC, from sm_80 on",
};

const implementation conv_pointwise_pitched_implementation = {
    .name = "pointwise_pitched",
    .summary = "odd channels, filters of one pixel, by gemm pitched; NHWC, Hopper",
    .config_bytes = sizeof(gemm_sm90_config),
    .config = FIELD_TABLE(pitched_fields),
    .candidate = candidate_pitched,
    .cost = cost_pitched,
    .rivals = RIVALS,
    .admit = admit_pitched,
    .describe = describe_pitched,
    .kernels = 2,
    .params = &gemm_pitched_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_pitched,
    .launch = launch_pitched,
};
