/*
 * gemm_f32x3_plan.c - the host side of three products of tf32: copies of A and B have numbers and rests, then the
 * Hopper kernel runs.
 */
#include "operators/gemm/gemm_plan.h"

static gemm_copies split_of(const ckl_gemm_desc *d)
{
    gemm_copies x = { .from = *d, .to = *d, .copied = { true, true } };
    for (int i = 0; i < 2; i++)
        x.turned[i] = !gemm_is_k_major(d, "ab"[i]);
    x.to.layout = CKL_GEMM_NT;
    x.to.k = 2 * round_up(d->k, GEMM_SPLIT_RUN);
    gemm_place_copies(&x);
    return x;
}

/* What multiplies the copies. */
static gemm_sm90_config products_of(const void *config)
{
    gemm_sm90_config products = *(const gemm_sm90_config *)config;
    products.epilogue.layout = CKL_GEMM_NT;
    return products;
}

static bool candidate_f32x3(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const gemm_copies split = split_of(desc);
    gemm_sm90_config *c = config;
    if (!gemm_sm90_candidate(&split.to, device, i, c))
        return false;
    c->epilogue = gemm_epilogue_of(desc);
    c->pingpong = false; // a consumer adds while the other one's tensor cores work
    return true;
}

/* Three products of tf32, and reading A and B and writing each twice. */
static plan_cost cost_f32x3(const void *desc, const ckl_device_info *device, const void *config)
{
    const gemm_sm90_config products = products_of(config);
    const gemm_copies split = split_of(desc);
    ckl_gemm_desc three = split.to;
    three.k = three.k / 2 * 3;
    plan_cost cost = gemm_sm90_cost(&three, device, &products);
    cost.us += gemm_sm90_sum_us(1.5 * (double)(gemm_copy_bytes(&split, 'a') + gemm_copy_bytes(&split, 'b')));
    return cost;
}

static ckl_status admit_f32x3(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_copies split = split_of(d);
    const gemm_sm90_config *c = config, products = products_of(c);
    TRY(gemm_check_epilogue("f32x3", d, &c->epilogue));
    if (d->math != CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: products are three of tf32 with math=f32x3 alone");
    TRY(gemm_check_in_order("f32x3", d));
    if (d->groups)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: groups=%" PRId64 " are multiplied by tiled", d->groups);
    if (!d->batch_invariant && 2 * gemm_multiply_adds(d) < GEMM_PITCHED_FLOPS)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: splitting operands costs more than it saves in a problem of %g products",
             gemm_multiply_adds(d));
    if (c->pingpong || c->split > 1)
        FAIL(CKL_INVALID, "gemm f32x3: numbers and rests come in pairs of stages, without pingpong and split");
    return gemm_sm90_admit(&split.to, device, &products);
}

static int64_t workspace_f32x3(const ckl_plan *plan)
{
    const gemm_copies split = split_of(plan->desc);
    return gemm_copies_bytes(&split);
}

static ckl_status launch_f32x3(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const gemm_sm90_config products = products_of(plan->config);
    const gemm_copies split = split_of(plan->desc);
    const ckl_gemm_args x = gemm_copied_args(plan, &split, args);
    TRY(gemm_launch_copies(plan, &split, args, &x, stream));
    return gemm_sm90_launch(plan, &products, &split.to, split.to.k, &x, stream);
}

static void describe_f32x3(const void *config, int kernel)
{
    const gemm_sm90_config products = products_of(config);
    if (kernel == 0)
        gemm_sm90(&products, 0);
    else
        gemm_repitch(&products.epilogue);
}

static const field f32x3_fields[] = GEMM_FIELDS(gemm_sm90_config, GEMM_SM90_CONFIG);

const implementation gemm_f32x3_implementation = {
    GEMM_SM90_PARTS(f32x3, gemm_sm90_config),
    .summary = "f32 as three products of tf32: a kernel that splits A and B, then sm90; Hopper",
    .config = FIELD_TABLE(f32x3_fields),
    .candidate = candidate_f32x3,
    .cost = cost_f32x3,
    .admit = admit_f32x3,
    .describe = describe_f32x3,
    .kernels = 2,
    .workspace_bytes = workspace_f32x3,
    .launch = launch_f32x3,
};
