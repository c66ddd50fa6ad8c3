/*
 * gemm_pitched_plan.c - the host side of sm90 behind copies: A and B that TMA or tensor cores cannot take go to the
 * workspace, in rows that they take. So do those of math=f32x3, each number and its rest.
 */
#include "operators/gemm/gemm_plan.h"
#include "operators/gemm/gemm_steps.h"

/* Tensor cores read 16-bit types in either order, others K-major alone: those are transposed. */
static bool is_turned(const ckl_gemm_desc *d, char matrix)
{
    return ckl_dtype_bytes(d->a) != 2 && !gemm_is_k_major(d, matrix);
}

static bool is_unfit(const ckl_gemm_desc *d, char matrix)
{
    return is_turned(d, matrix) || (matrix == 'a' && d->gather) || !gemm_rows_aligned(d, matrix, TMA_ALIGNMENT);
}

/* Where arrays of pointers name the matrices both are copied: the copies lie a stride apart. */
static gemm_copies copies_of(const ckl_gemm_desc *d)
{
    const bool split = d->math == CKL_GEMM_F32X3;
    gemm_copies x = { .from = *d, .to = *d };
    for (int i = 0; i < 2; i++) {
        x.turned[i] = is_turned(d, "ab"[i]);
        x.copied[i] = split || d->pointers || is_unfit(d, "ab"[i]);
    }
    x.to.gather = d->gather ? max_i64(d->m, 1) : 0; // the copy is in order
    if (x.turned[0] || x.turned[1])
        x.to.layout = CKL_GEMM_NT;
    if (split)
        x.to.k = 2 * round_up(d->k, GEMM_SPLIT_RUN);
    else if (x.copied[0] && x.copied[1] && d->layout == CKL_GEMM_NT && !gemm_groups_of_k(d))
        // zeros, which TMA loads faster than it makes them: 62464x128x21 takes 10.9 us, else 13.1
        x.to.k = round_up(d->k, gemm_tile_k(d->a));
    gemm_place_copies(&x);
    return x;
}

/* Of A and B, as they lie. */
static double copied_bytes(const gemm_copies *x)
{
    return (x->copied[0] ? gemm_matrix_bytes(&x->from, 'a') : 0) +
           (x->copied[1] ? gemm_matrix_bytes(&x->from, 'b') : 0);
}

/* A launch more, and what it reads and writes. */
static const double COPY_US = 2, COPY_BYTES_PER_US = 2.1e6;

static bool candidate_pitched(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const gemm_copies x = copies_of(desc);
    return gemm_sm90_candidate(&x.to, device, i, config);
}

/* What multiplies the copies. Of f32x3 the config has the problem's layout, by which a gradient of a bias is summed. */
static gemm_sm90_config products_of(const void *config)
{
    gemm_sm90_config products = *(const gemm_sm90_config *)config;
    if (products.epilogue.math == CKL_GEMM_F32X3)
        products.epilogue.layout = CKL_GEMM_NT;
    return products;
}

/* Split, numbers are multiplied three times and written twice. */
static plan_cost cost_pitched(const void *desc, const ckl_device_info *device, const void *config)
{
    gemm_copies x = copies_of(desc);
    const gemm_sm90_config products = products_of(config);
    const bool split = x.to.math == CKL_GEMM_F32X3;
    x.to.k = split ? x.to.k / 2 * 3 : x.to.k;
    plan_cost cost = gemm_sm90_cost(&x.to, device, &products);
    cost.us += COPY_US + (split ? 1.5 : 1) * copied_bytes(&x) / COPY_BYTES_PER_US;
    return cost;
}

/* Smaller problems are faster by `tiled`, without copies: bench/notes/gemm.md. */
static ckl_status check_worth(const char *who, const ckl_gemm_desc *d)
{
    const double LEAST = 5e5;
    if (gemm_multiply_adds(d) < LEAST)
        FAIL(CKL_UNSUPPORTED, "gemm %s: copies cost more than they save in a problem of %g products", who,
             gemm_multiply_adds(d));
    return CKL_OK;
}

static ckl_status admit_pitched(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_copies x = copies_of(d);
    if (gemm_copies_bytes(&x) == 0)
        FAIL(CKL_UNSUPPORTED, "gemm pitched: A and B lie as sm90 takes them already");
    if (d->bias_gradient != CKL_GEMM_SUMS_NONE && gemm_sums_columns((choice)d->bias_gradient, (choice)d->layout) !=
                                                      gemm_sums_columns((choice)d->bias_gradient, (choice)x.to.layout))
        FAIL(CKL_UNSUPPORTED, "gemm pitched: sums of A or B are taken where these lie, not of transposed copies");
    if (!gemm_is_f8(d->a) && !d->batch_invariant) // `tiled` does not take those
        TRY(check_worth("pitched", d));
    return gemm_sm90_admit_unsplit(&x.to, device, config);
}

static int64_t workspace_pitched(const ckl_plan *plan)
{
    const gemm_copies x = copies_of(plan->desc);
    return gemm_copies_bytes(&x);
}

static ckl_status launch_pitched(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const gemm_copies x = copies_of(plan->desc);
    const gemm_sm90_config products = products_of(plan->config);
    const ckl_gemm_args copied = gemm_copied_args(plan, &x, args);
    TRY(gemm_launch_copies(plan, &x, args, &copied, stream));
    return gemm_sm90_launch(plan, &products, &x.to, x.to.k, &copied, stream);
}

static void describe_pitched(const void *config, int kernel)
{
    const gemm_sm90_config products = products_of(config);
    if (kernel == 0)
        gemm_sm90(&products, 0);
    else
        gemm_repitch(&((const gemm_sm90_config *)config)->epilogue);
}

static const field pitched_fields[] = GEMM_FIELDS(gemm_sm90_config, GEMM_SM90_CONFIG);

/* Members of an implementation that copies A and B first. */
#define COPYING_PARTS(called)                                                                                      \
    GEMM_SM90_PARTS(called, gemm_sm90_config),                                                                     \
        .config = FIELD_TABLE(pitched_fields), .candidate = candidate_##called, .cost = cost_pitched,              \
        .admit = admit_##called, .describe = describe_pitched, .kernels = 2, .workspace_bytes = workspace_pitched, \
        .launch = launch_pitched

const implementation gemm_pitched_implementation = {
    COPYING_PARTS(pitched),
    .summary = "A and B that sm90 does not take as they lie are copied or transposed first; Hopper",
    .rivals = { &gemm_fma_implementation },
    .first = "sm90",
};

/* f32x3 */

static bool candidate_f32x3(const void *desc, const ckl_device_info *device, int i, void *config)
{
    gemm_sm90_config *c = config;
    if (!candidate_pitched(desc, device, i, c))
        return false;
    c->epilogue = gemm_epilogue_of(desc);
    c->pingpong = false; // a consumer adds while the other one's tensor cores work
    return true;
}

static ckl_status admit_f32x3(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_copies split = copies_of(d);
    const gemm_sm90_config *c = config, products = products_of(c);
    TRY(gemm_check_epilogue("f32x3", d, &c->epilogue));
    if (d->math != CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: products are three of tf32 with math=f32x3 alone");
    TRY(gemm_check_in_order("f32x3", d));
    if (d->groups)
        FAIL(CKL_UNSUPPORTED, "gemm f32x3: groups=%" PRId64 " are multiplied by tiled", d->groups);
    if (!d->batch_invariant)
        TRY(check_worth("f32x3", d));
    if (c->pingpong || c->split > 1)
        FAIL(CKL_INVALID, "gemm f32x3: numbers and rests come in pairs of stages, without pingpong and split");
    return gemm_sm90_admit(&split.to, device, &products);
}

const implementation gemm_f32x3_implementation = {
    COPYING_PARTS(f32x3),
    .summary = "f32 as three products of tf32: a kernel that splits A and B, then sm90; Hopper",
};
