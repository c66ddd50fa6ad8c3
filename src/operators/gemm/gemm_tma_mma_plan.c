/* gemm_tma_mma_plan.c - the host side of TMA with mma.sync. */
#include "operators/gemm/gemm_plan.h"

static int64_t tiles_of(const ckl_gemm_desc *d, const gemm_tma_mma_config *c)
{
    return gemm_tiles(d, c->tile_m, c->tile_n);
}

/* The ring, and a little for its barriers. */
static int64_t smem_of(const gemm_tma_mma_config *c)
{
    enum { BARRIERS = 16 };
    return c->stages * ((int64_t)(c->tile_m + c->tile_n) * GEMM_TILE_BYTES + BARRIERS);
}

/* As many CTAs an SM and stages as fit; small tiles where there are few. */
static ckl_status choose_tma_mma(const void *desc, const ckl_device_info *device, void *config)
{
    enum { STAGES_MOST = 6, SYSTEM_BYTES = 1024 };
    const ckl_gemm_desc *d = desc;
    gemm_tma_mma_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->batched = d->batch > 1;
    if (tiles_of(d, c) < device->sm_count)
        c->tile_m = c->tile_n = 64;
    c->stages = 2;
    c->ctas = 2 * (smem_of(c) + SYSTEM_BYTES) <= device->smem_per_sm_bytes ? 2 : 1;
    const int64_t have = min_i64(device->smem_per_cta_bytes, device->smem_per_sm_bytes / c->ctas - SYSTEM_BYTES);
    for (c->stages = STAGES_MOST; c->stages > 2 && smem_of(c) > have;)
        c->stages--;
    return CKL_OK;
}

static plan_cost cost_tma_mma(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_tma_mma_config *c = config;
    const int64_t depth = GEMM_TILE_BYTES / (int64_t)ckl_dtype_bytes(d->a);
    return gemm_product_cost(d, device,
                             (product_work){ .tiles = (double)tiles_of(d, c),
                                             .ctas = c->ctas,
                                             .steps = (double)ceil_div(d->k, depth),
                                             .multiply_adds = (double)(c->tile_m * c->tile_n * depth),
                                             .rate = 780 * 2 / (double)ckl_dtype_bytes(d->a),
                                             .step_cycles = 700,
                                             .tile_cycles = 3000 });
}

static ckl_status admit_problem(const ckl_gemm_desc *d)
{
    TRY(gemm_check_same_types("tma_mma", d));
    if (d->pointers)
        FAIL(CKL_UNSUPPORTED, "gemm tma_mma: matrices of a batch lie a stride apart, not where pointers say");
    if (d->gather)
        FAIL(CKL_UNSUPPORTED, "gemm tma_mma: rows of A lie in order, not by a list: gather=%" PRId64, d->gather);
    if (gemm_is_f8(d->a) || (d->a == CKL_F32 && d->math != CKL_GEMM_TF32))
        FAIL(CKL_UNSUPPORTED, "gemm tma_mma: a=%s is none of f16, bf16, i8 and f32 with math=tf32",
             ckl_dtype_name(d->a));
    if (d->layout != CKL_GEMM_NT || d->gated || d->groups || d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm tma_mma: A and B are K-major, not empty, without gated and groups");
    if (!gemm_operands_aligned(d))
        FAIL(CKL_UNSUPPORTED, "gemm tma_mma: rows or matrices of A or B are not multiples of 16 bytes apart");
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX || d->batch > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm tma_mma: a size is beyond the 32-bit coordinates of TMA");
    return CKL_OK;
}

static ckl_status admit_tma_mma(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_tma_mma_config *c = config;
    TRY(gemm_check_epilogue("tma_mma", d, &c->epilogue));
    TRY(admit_problem(d));
    TRY(gemm_check_mma_tile("tma_mma", c->tile_m, c->tile_n));
    if (c->stages < 2 || c->ctas < 1 || c->ctas > 4)
        FAIL(CKL_INVALID, "gemm tma_mma: stages=%d is less than 2, or ctas=%d not in 1..4", c->stages, c->ctas);
    if (c->batched != (d->batch > 1))
        FAIL(CKL_INVALID, "gemm tma_mma: batched=%d with batch=%" PRId64, c->batched, d->batch);
    TRY(gemm_check_smem("tma_mma", device, c->stages, smem_of(c)));
    return gemm_check_tiles("tma_mma", tiles_of(d, c));
}

static ckl_status launch_tma_mma(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    return gemm_launch_tma(plan, tiles_of(plan->desc, plan->config), args, stream);
}

static const field tma_mma_fields[] = GEMM_FIELDS(gemm_tma_mma_config, GEMM_TMA_MMA_CONFIG);

const implementation gemm_tma_mma_implementation = {
    IMPLEMENTATION_PARTS(gemm, tma_mma),
    .cost = cost_tma_mma,
    .summary = "TMA and mma.sync, for GPUs without wgmma; from sm_90 on",
    .params = &gemm_param_list,
    .target = IR_SM90,
};
