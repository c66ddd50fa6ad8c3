/*
 * gemm_f32x3_plan.c - the host side of three products of tf32: operands are split into a workspace, then the Hopper
 * kernel runs.
 */
#include "operators/gemm/gemm_f32x3.h"
#include "operators/gemm/gemm_plan.h"

/* What is left are rows of numbers and rests in turn. */
static gemm_copies split_of(const ckl_gemm_desc *d)
{
    gemm_copies x = { .from = *d, .to = *d, .copied = { true, true } };
    x.to.layout = CKL_GEMM_NT;
    x.to.k = 2 * round_up(d->k, GEMM_F32X3_RUN);
    gemm_place_copies(&x);
    return x;
}

static gemm_sm90_config products_of(const gemm_f32x3_config *c)
{
    gemm_sm90_config products = c->products;
    products.epilogue.layout = CKL_GEMM_NT;
    return products;
}

static int vector_of(const ckl_gemm_desc *d)
{
    return gemm_vector_of(d) == 4 ? 4 : 1;
}

static bool candidate_f32x3(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const gemm_copies split = split_of(desc);
    gemm_f32x3_config *c = config;
    if (!gemm_sm90_candidate(&split.to, device, i, &c->products))
        return false;
    c->products.epilogue = gemm_epilogue_of(desc);
    c->products.pingpong = false; // a consumer adds while the other one's tensor cores work
    c->vec = vector_of(desc);
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

static int64_t ctas_of(const gemm_copies *split, char name)
{
    const int64_t rows = gemm_matrix_of(&split->to, name).rows, depth = split->from.k;
    return split->from.batch * ceil_div(rows, GEMM_F32X3_ROWS) * ceil_div(depth, GEMM_F32X3_DEPTH);
}

static ckl_status admit_f32x3(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_copies split = split_of(d);
    const gemm_f32x3_config *c = config;
    const gemm_sm90_config products = products_of(c);
    TRY(gemm_check_epilogue("f32x3", d, &c->products.epilogue));
    if (d->math != CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: products are three of tf32 with math=f32x3 alone");
    TRY(gemm_check_in_order("f32x3", d));
    if (d->groups)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: groups=%" PRId64 " are multiplied by tiled", d->groups);
    if (!d->batch_invariant && 2 * gemm_multiply_adds(d) < GEMM_PITCHED_FLOPS)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: splitting operands costs more than it saves in a problem of %g products",
             gemm_multiply_adds(d));
    if (c->products.pingpong || c->products.split > 1)
        FAIL(CKL_INVALID, "gemm f32x3: numbers and rests come in pairs of stages, without pingpong and split");
    if (c->vec != 1 && (c->vec != 4 || vector_of(d) == 1))
        FAIL(CKL_INVALID, "gemm f32x3: vec=%d is not 1, or rows of A or B do not start at whole 16 bytes", c->vec);
    if (ctas_of(&split, 'a') + ctas_of(&split, 'b') > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: A and B have more parts than one launch splits");
    return gemm_sm90_admit(&split.to, device, &products);
}

static int64_t workspace_f32x3(const ckl_plan *plan)
{
    const gemm_copies split = split_of(plan->desc);
    return gemm_copies_bytes(&split);
}

static ckl_status launch_splitting(const ckl_plan *plan, const gemm_copies *split, const ckl_gemm_args *from,
                                   const ckl_gemm_args *to, ckl_stream stream)
{
    gemm_repitch_params p = { .second = (uint32_t)ctas_of(split, 'a') };
    gemm_describe_copy(split, 'a', from->a, to->a, &p, 0);
    gemm_describe_copy(split, 'b', from->b, to->b, &p, 1);
    for (int i = 0; i < 2; i++) { // of the copies, which are K-major
        p.copy_rows[i] = gemm_matrix_of(&split->to, "ab"[i]).rows;
        p.copy_length[i] = split->from.k;
    }
    return plan_launch(plan, 1, (plan_grid){ .x = ctas_of(split, 'a') + ctas_of(split, 'b') }, &p, stream);
}

static ckl_status launch_f32x3(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const gemm_f32x3_config *c = plan->config;
    const gemm_sm90_config products = products_of(c);
    const gemm_copies split = split_of(plan->desc);
    const ckl_gemm_args x = gemm_copied_args(plan, &split, args);
    TRY(gemm_check_operand_vectors("f32x3", &split.from, args, true, "vec", 4 * c->vec));
    TRY(launch_splitting(plan, &split, args, &x, stream));
    return gemm_sm90_launch(plan, &products, &split.to, split.to.k, &x, stream);
}

static const field f32x3_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_f32x3_config, products.epilogue)) //
                                      GEMM_SM90_CONFIG(FIELD_NESTED, (gemm_f32x3_config, products))       //
                                      GEMM_F32X3_CONFIG(FIELD_ROW, gemm_f32x3_config) };

const implementation gemm_f32x3_implementation = {
    GEMM_SM90_PARTS(f32x3, gemm_f32x3_config),
    .summary = "f32 as three products of tf32: a kernel that splits A and B, then sm90; Hopper",
    .config = FIELD_TABLE(f32x3_fields),
    .candidate = candidate_f32x3,
    .cost = cost_f32x3,
    .admit = admit_f32x3,
    .describe = gemm_f32x3,
    .kernels = 2,
    .workspace_bytes = workspace_f32x3,
    .launch = launch_f32x3,
};
