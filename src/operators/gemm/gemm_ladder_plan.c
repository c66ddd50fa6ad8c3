/* gemm_ladder_plan.c - the host side of the steps of the ladder that have kernels of their own. */
#include "operators/gemm/gemm_plan.h"

static ckl_status choose_rung(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    ((gemm_rung_config *)config)->epilogue = gemm_epilogue_of(desc);
    return CKL_OK;
}

static int64_t tiles_of(const ckl_gemm_desc *d, int tile)
{
    return ceil_div(d->m, tile) * ceil_div(d->n, tile);
}

/* Steps of 64 bytes of K by FMA, of 128 by wgmma. */
static plan_cost cost_rung(const ckl_gemm_desc *d, const ckl_device_info *device, int tile, double rate)
{
    const int depth = tile == GEMM_BLOCKED_TILE ? 32 : 64;
    return gemm_product_cost(d, device,
                             (product_work){ .tiles = (double)tiles_of(d, tile),
                                             .ctas = tile == GEMM_BLOCKED_TILE ? 4 : 1,
                                             .steps = (double)ceil_div(d->k, depth),
                                             .multiply_adds = tile * tile * depth,
                                             .rate = rate,
                                             .step_cycles = 600,
                                             .tile_cycles = 3000 });
}

/* Of wgmma and tma, `ring`: rows that start at multiples of 16 bytes, and a ring that fits. */
static ckl_status admit_rung(const char *who, const ckl_gemm_desc *d, const gemm_rung_config *c, bool ring)
{
    enum { MOST = 4 }; // 128 KB
    TRY(gemm_check_epilogue(who, d, &c->epilogue));
    TRY(gemm_check_in_order(who, d));
    if ((d->a != CKL_F16 && d->a != CKL_BF16) || d->b != d->a || d->layout != CKL_GEMM_NT)
        FAIL(CKL_UNSUPPORTED, "gemm %s: a step of the ladder takes K-major A and B of f16 or bf16", who);
    if (d->batch > 1 || d->groups || d->gated)
        FAIL(CKL_UNSUPPORTED, "gemm %s: a step of the ladder is one product, without groups and gated", who);
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm %s: a size is beyond 32 bits", who);
    if (ring && !gemm_operands_aligned(d))
        FAIL(CKL_UNSUPPORTED, "gemm %s: rows of A or B are not multiples of 16 bytes apart", who);
    if (ring && d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm %s: k=0 leaves no products", who);
    if (ring && (c->stages < 2 || c->stages > MOST))
        FAIL(CKL_INVALID, "gemm %s: stages=%d is not in 2..%d", who, c->stages, MOST);
    return CKL_OK;
}

static const field rung_fields[] = GEMM_FIELDS(gemm_rung_config, GEMM_RUNG_CONFIG);

#define RUNG(called, tile, rate, launch_by, lowest, what)                                                 \
    static plan_cost cost_##called(const void *desc, const ckl_device_info *device, const void *config)   \
    {                                                                                                     \
        (void)config;                                                                                     \
        return cost_rung(desc, device, tile, rate);                                                       \
    }                                                                                                     \
    static ckl_status admit_##called(const void *desc, const ckl_device_info *device, const void *config) \
    {                                                                                                     \
        (void)device;                                                                                     \
        return admit_rung(#called, desc, config, tile == GEMM_RUNG_TILE);                                 \
    }                                                                                                     \
    static ckl_status launch_##called(const ckl_plan *plan, const void *args, ckl_stream stream)          \
    {                                                                                                     \
        return launch_by(plan, tiles_of(plan->desc, tile), args, stream);                                 \
    }                                                                                                     \
    const implementation gemm_##called##_implementation = { .name = #called,                              \
                                                            .summary = "a step of the ladder: " what,     \
                                                            .by_name = true,                              \
                                                            .config_bytes = sizeof(gemm_rung_config),     \
                                                            .config = FIELD_TABLE(rung_fields),           \
                                                            .choose = choose_rung,                        \
                                                            .cost = cost_##called,                        \
                                                            .admit = admit_##called,                      \
                                                            .describe = gemm_##called,                    \
                                                            .params = &gemm_param_list,                   \
                                                            .target = lowest,                             \
                                                            .launch = launch_##called }

RUNG(blocked, GEMM_BLOCKED_TILE, 46, gemm_launch, IR_SM80, "tiles in shared memory, multiply-adds");
RUNG(wgmma, GEMM_RUNG_TILE, 800, gemm_launch_tma, IR_SM90A, "wgmma behind cp.async");
RUNG(tma, GEMM_RUNG_TILE, 900, gemm_launch_tma, IR_SM90A, "wgmma behind TMA");
