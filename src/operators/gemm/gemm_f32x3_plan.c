/* gemm_f32x3_plan.c - the host side of three products of tf32: operands are split into a workspace, then the Hopper kernel runs. */
#include "operators/gemm/gemm_f32x3.h"
#include "operators/gemm/gemm_plan.h"

/* The remaining problem: rows of numbers and rests in turn. */
static ckl_gemm_desc split_desc(const ckl_gemm_desc *d)
{
    ckl_gemm_desc s = *d;
    s.layout = CKL_GEMM_NT;
    s.k = s.lda = s.ldb = 2 * round_up(d->k, GEMM_F32X3_RUN);
    s.stride_a = d->batch > 1 ? d->m * s.k : 0;
    s.stride_b = d->batch > 1 ? gemm_matrix_of(&s, 'b').rows * s.k : 0;
    return s;
}

static gemm_sm90_config products_of(const gemm_f32x3_config *c)
{
    gemm_sm90_config products = c->products;
    products.epilogue.layout = CKL_GEMM_NT;
    return products;
}

/* Bytes of a split operand of all products. */
static int64_t split_bytes(const ckl_gemm_desc *d, char name)
{
    const ckl_gemm_desc s = split_desc(d);
    return d->batch * gemm_matrix_of(&s, name).rows * s.k * (int64_t)sizeof(float);
}

static int vector_of(const ckl_gemm_desc *d)
{
    for (const char *x = "ab"; *x; x++)
        if (gemm_is_k_major(d, *x) && !gemm_rows_aligned(d, *x, TMA_ALIGNMENT))
            return 1;
    return 4;
}

static bool candidate_f32x3(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_gemm_desc split = split_desc(desc);
    gemm_f32x3_config *c = config;
    if (!gemm_sm90_candidate(&split, device, i, &c->products))
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
    ckl_gemm_desc three = split_desc(desc);
    three.k = three.k / 2 * 3;
    plan_cost cost = gemm_sm90_cost(&three, device, &products);
    cost.us += gemm_sm90_sum_us(1.5 * (double)(split_bytes(desc, 'a') + split_bytes(desc, 'b')));
    return cost;
}

static int64_t ctas_of(const ckl_gemm_desc *d, char name)
{
    const ckl_gemm_desc s = split_desc(d);
    return d->batch * ceil_div(gemm_matrix_of(&s, name).rows, GEMM_F32X3_ROWS) * ceil_div(d->k, GEMM_F32X3_DEPTH);
}

static ckl_status admit_f32x3(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc, split = split_desc(d);
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
    if (ctas_of(d, 'a') + ctas_of(d, 'b') > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: A and B have more parts than one launch splits");
    return gemm_sm90_admit(&split, device, &products);
}

static int64_t workspace_f32x3(const ckl_plan *plan)
{
    return round_up(split_bytes(plan->desc, 'a'), PLAN_WORKSPACE_ALIGNMENT) + split_bytes(plan->desc, 'b');
}

static ckl_status launch_splitting(const ckl_plan *plan, const ckl_gemm_args *x, void *const to[2], ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc, split = split_desc(d);
    gemm_repitch_params p = { .second = (uint32_t)ctas_of(d, 'a') };
    for (int i = 0; i < 2; i++) {
        const char name = "ab"[i];
        const gemm_matrix from = gemm_matrix_of(d, name);
        p.from[i] = i == 0 ? x->a : x->b;
        p.from_ld[i] = from.ld;
        p.from_stride[i] = from.stride;
        p.to[i] = to[i];
        p.to_ld[i] = split.k;
        p.copy_rows[i] = gemm_matrix_of(&split, name).rows;
        p.copy_length[i] = d->k;
    }
    return plan_launch(plan, 1, (plan_grid){ .x = ctas_of(d, 'a') + ctas_of(d, 'b') }, &p, stream);
}

static ckl_status launch_f32x3(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc, split = split_desc(d);
    const gemm_f32x3_config *c = plan->config;
    const gemm_sm90_config products = products_of(c);
    ckl_gemm_args x = *(const ckl_gemm_args *)args;
    char *space = plan_workspace(plan, x.workspace);
    void *const to[2] = { space, space + round_up(split_bytes(d, 'a'), PLAN_WORKSPACE_ALIGNMENT) };
    TRY(gemm_check_operand_vectors("f32x3", d, &x, true, 4 * c->vec));
    TRY(launch_splitting(plan, &x, to, stream));
    x.a = to[0];
    x.b = to[1];
    return gemm_sm90_launch(plan, &products, &split, split.k, &x, stream);
}

static const field f32x3_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_f32x3_config, products.epilogue)) //
                                      GEMM_SM90_CONFIG(FIELD_NESTED, (gemm_f32x3_config, products))       //
                                      GEMM_F32X3_CONFIG(FIELD_ROW, gemm_f32x3_config) };

const implementation gemm_f32x3_implementation = {
    .name = "f32x3",
    .summary = "f32 as three products of tf32: a kernel that splits A and B, then sm90; Hopper",
    .config_bytes = sizeof(gemm_f32x3_config),
    .config = FIELD_TABLE(f32x3_fields),
    .candidate = candidate_f32x3,
    .cost = cost_f32x3,
    .admit = admit_f32x3,
    .describe = gemm_f32x3,
    .kernels = 2,
    .params = &gemm_pitched_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_f32x3,
    .launch = launch_f32x3,
};
