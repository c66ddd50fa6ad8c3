/*
 * gemm_pitched_plan.c - the host side of sm90 behind copies: A and B that TMA or tensor cores cannot take go to the
 * workspace, in rows that they take.
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
    gemm_copies x = { .from = *d, .to = *d };
    for (int i = 0; i < 2; i++) {
        x.turned[i] = is_turned(d, "ab"[i]);
        x.copied[i] = d->pointers || is_unfit(d, "ab"[i]);
    }
    x.to.gather = d->gather ? max_i64(d->m, 1) : 0; // the copy is in order
    if (x.turned[0] || x.turned[1])
        x.to.layout = CKL_GEMM_NT;
    else if (x.copied[0] && x.copied[1] && d->layout == CKL_GEMM_NT && !gemm_groups_of_k(d))
        // zeros, which TMA loads faster than it makes them: 62464x128x21 takes 10.9 us, else 13.1
        x.to.k = round_up(d->k, gemm_tile_k(d->a));
    gemm_place_copies(&x);
    return x;
}

/* Of A and B, as they lie. */
static double copied_bytes(const gemm_copies *x)
{
    double bytes = 0;
    for (int i = 0; i < 2; i++) {
        const gemm_matrix from = gemm_matrix_of(&x->from, "ab"[i]);
        const double elements = (double)from.count * (double)from.rows * (double)from.cols;
        bytes += x->copied[i] ? elements * (double)ckl_dtype_bytes(from.type) : 0;
    }
    return bytes;
}

/* A launch more, and what it reads and writes. */
static const double COPY_US = 2, COPY_BYTES_PER_US = 2.1e6;

static bool candidate_pitched(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const gemm_copies x = copies_of(desc);
    return gemm_sm90_candidate(&x.to, device, i, config);
}

static plan_cost cost_pitched(const void *desc, const ckl_device_info *device, const void *config)
{
    const gemm_copies x = copies_of(desc);
    plan_cost cost = gemm_sm90_cost(&x.to, device, config);
    cost.us += COPY_US + copied_bytes(&x) / COPY_BYTES_PER_US;
    return cost;
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
    if (!gemm_is_f8(d->a) && !d->batch_invariant && // `tiled` does not take those
        2 * gemm_multiply_adds(d) < GEMM_PITCHED_FLOPS)
        FAIL(CKL_UNSUPPORTED, "gemm pitched: copies cost more than they save in a problem of %g products",
             gemm_multiply_adds(d));
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
    const ckl_gemm_args copied = gemm_copied_args(plan, &x, args);
    TRY(gemm_launch_copies(plan, &x, args, &copied, stream));
    return gemm_sm90_launch(plan, plan->config, &x.to, x.to.k, &copied, stream);
}

static void describe_pitched(const void *config, int kernel)
{
    if (kernel == 0)
        gemm_sm90(config, 0);
    else
        gemm_repitch(&((const gemm_sm90_config *)config)->epilogue);
}

static const field pitched_fields[] = GEMM_FIELDS(gemm_sm90_config, GEMM_SM90_CONFIG);

const implementation gemm_pitched_implementation = {
    GEMM_SM90_PARTS(pitched, gemm_sm90_config),
    .summary = "A and B that sm90 does not take as they lie are copied or transposed first; Hopper",
    .config = FIELD_TABLE(pitched_fields),
    .candidate = candidate_pitched,
    .cost = cost_pitched,
    .rivals = { &gemm_fma_implementation },
    .admit = admit_pitched,
    .describe = describe_pitched,
    .kernels = 2,
    .first = "sm90",
    .workspace_bytes = workspace_pitched,
    .launch = launch_pitched,
};
