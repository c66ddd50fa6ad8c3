/* gemm_unaligned_plan.c - the host side of products of rows that begin anywhere. */
#include <string.h>

#include "operators/gemm/gemm_plan.h"

enum {
    ROWS_MAX = 64,
    COLUMNS_MAX = 32,
    WARPS_MAX = 8,
    LANES = 32,
    STAGES_MAX = 4,
    SLICE = 64,       // of K, of a warp
    FEW = 32,         // rows of A that are never worth copies: 32x4097x4095 takes 23.0 us, 25.7 with them
    FEW_COLUMNS = 16, // neither are rows that are multiplied by so few of B
    SYSTEM_BYTES = 1024
};

/*
 * FLOP of a product beyond which copies to even rows are worth their launch: 127x129x131 takes 2.0 us instead of 3.5,
 * 300x301x302 the same.
 */
#define FLOPS_MOST 2e7

static int64_t ctas_of(const ckl_gemm_desc *d, const gemm_unaligned_config *c)
{
    return ceil_div(d->n, c->rows) * ceil_div(d->m, c->columns) * d->batch;
}

static bool fits(const gemm_unaligned_config *c, const ckl_device_info *device, int64_t ctas)
{
    return gemm_unaligned_smem(c) <=
           min_i64(device->smem_per_cta_bytes, device->smem_per_sm_bytes / ctas - SYSTEM_BYTES);
}

/* Many rows by few columns. */
static bool is_narrow(const ckl_gemm_desc *d)
{
    return d->m > FEW && d->n <= FEW_COLUMNS;
}

/* The smallest blocks that make one wave, or nearly so where a CTA has few rows of A; else the largest. */
static void choose_block(const ckl_gemm_desc *d, int64_t sm_count, gemm_unaligned_config *c)
{
    static const struct {
        int rows, columns;
    } blocks[] = { { 16, 8 }, { 16, 16 }, { 32, 16 }, { 32, 32 }, { ROWS_MAX, COLUMNS_MAX } };
    for (int i = 0; i < COUNT_OF(blocks); i++) {
        c->rows = blocks[i].rows;
        c->columns = (int)min_i64(blocks[i].columns, d->m <= 8 ? 8 : d->m <= 16 ? 16 : COLUMNS_MAX);
        if (ctas_of(d, c) <= sm_count * (c->rows > 16 && d->m <= 16 ? 2 : 1))
            return;
    }
    if (is_narrow(d))
        c->rows = FEW_COLUMNS;
}

/* As many warps as have slices of K; where there are many CTAs, two share an SM. */
static ckl_status choose_unaligned(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_unaligned_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    choose_block(d, device->sm_count, c);
    const int64_t slices = ceil_div(d->k, SLICE), ctas = ctas_of(d, c), share = ctas > 2 * device->sm_count ? 2 : 1;
    for (c->warps = WARPS_MAX / (int)share; c->warps > 1 && c->warps / 2 >= slices;)
        c->warps /= 2;
    c->stages = (int)min_i64(max_i64(ceil_div(slices, c->warps) + 1, 2), STAGES_MAX);
    while (c->stages > 2 && !fits(c, device, share))
        c->stages--;
    while (c->warps > 2 && !fits(c, device, share))
        c->warps /= 2;
    if (gemm_operands_aligned(d))
        FAIL(CKL_UNSUPPORTED, "gemm unaligned: rows of A and B start at multiples of 16 bytes");
    // 512x512x27 takes 4.5 us by four warps, 3.6 behind copies
    if (c->warps == 1 && c->rows == ROWS_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm unaligned: k=%" PRId64 " leaves the epilogue of %d columns to one warp", d->k,
             c->rows);
    if (d->m > FEW && !is_narrow(d) && (ctas > device->sm_count || 2 * gemm_multiply_adds(d) > FLOPS_MOST))
        FAIL(CKL_UNSUPPORTED, "gemm unaligned: many rows, and %g products, are worth copies", gemm_multiply_adds(d));
    return CKL_OK;
}

/* A thread finishes its elements one after the other: 768x89x7 takes 4.3 us with 32 of them, 200x150x20 2.6 with 8. */
static plan_cost cost_unaligned(const void *desc, const ckl_device_info *device, const void *config)
{
    const double REACHED = 0.7; // of the rate of memory, of rows that begin anywhere
    const double ENDS = 100, ELEMENT = 160;
    const ckl_gemm_desc *d = desc;
    const gemm_unaligned_config *c = config;
    const double elements = (double)ceil_div(c->rows * c->columns, c->warps * LANES);
    plan_cost cost = gemm_product_cost(d, device,
                                       (product_work){ .tiles = (double)ctas_of(d, c),
                                                       .ctas = 2,
                                                       .steps = (double)ceil_div(d->k, SLICE * (int64_t)c->warps),
                                                       .multiply_adds = c->rows * c->columns * SLICE * c->warps,
                                                       .rate = 300,
                                                       .step_cycles = 600,
                                                       .tile_cycles = ENDS + ELEMENT * elements });
    cost.us /= strcmp(cost.bound, "memory") ? 1 : REACHED;
    return cost;
}

static ckl_status admit_unaligned(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_unaligned_config *c = config;
    TRY(gemm_check_plain("unaligned", d, &c->epilogue));
    if (d->a != CKL_F16 && d->a != CKL_BF16)
        FAIL(CKL_UNSUPPORTED, "gemm unaligned: a=%s is not f16 or bf16", ckl_dtype_name(d->a));
    if (d->layout != CKL_GEMM_NT || d->gated || d->groups || d->batch_invariant)
        FAIL(CKL_UNSUPPORTED, "gemm unaligned: A and B are K-major, without gated, groups and batch_invariant");
    if (c->rows % 16 || c->rows < 16 || c->rows > ROWS_MAX || c->columns % 8 || c->columns < 8 ||
        c->columns > COLUMNS_MAX)
        FAIL(CKL_INVALID, "gemm unaligned: rows=%d is not 16, 32, 48 or 64, or columns=%d not 8, 16, 24 or 32", c->rows,
             c->columns);
    if (c->warps < 1 || c->warps > WARPS_MAX || c->stages < 2 || c->stages > STAGES_MAX)
        FAIL(CKL_INVALID, "gemm unaligned: warps=%d is not in 1..%d, or stages=%d not in 2..%d", c->warps, WARPS_MAX,
             c->stages, STAGES_MAX);
    TRY(gemm_check_smem("unaligned", device, c->stages, gemm_unaligned_smem(c)));
    if (ctas_of(d, c) > INT32_MAX || d->k > INT32_MAX / 4)
        FAIL(CKL_UNSUPPORTED, "gemm unaligned: a size is beyond 32 bits");
    return CKL_OK;
}

static ckl_status launch_unaligned(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    return gemm_launch(plan, ctas_of(plan->desc, plan->config), args, stream);
}

static const field unaligned_fields[] = GEMM_FIELDS(gemm_unaligned_config, GEMM_UNALIGNED_CONFIG);

const implementation gemm_unaligned_implementation = {
    IMPLEMENTATION_PARTS(gemm, unaligned),
    .cost = cost_unaligned,
    .rivals = { &gemm_pitched_implementation },
    .summary = "few or small matrices of 16 bits with rows that begin anywhere, by mma.sync; from sm_80 on",
    .params = &gemm_param_list,
};
