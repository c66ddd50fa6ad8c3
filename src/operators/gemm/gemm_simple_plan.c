/* gemm_simple_plan.c - the host side of the kernels that address memory themselves: tiled and naive. */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

/* naive */

static plan_cost cost_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const int threads = ((const gemm_naive_config *)config)->threads;
    return gemm_product_cost(d, device,
                             (product_work){ .tiles = (double)gemm_products(d) * (double)d->m * (double)d->n / threads,
                                             .ctas = 2048 / threads,
                                             .steps = (double)d->k,
                                             .multiply_adds = threads,
                                             .rate = 1.05,
                                             .step_cycles = 60 });
}

static ckl_status choose_naive(const void *desc, const ckl_device_info *device, void *config)
{
    (void)device;
    ((gemm_naive_config *)config)->epilogue = gemm_epilogue_of(desc);
    ((gemm_naive_config *)config)->grouped = gemm_grouped_of(desc);
    return CKL_OK;
}

static ckl_status admit_naive(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_naive_config *c = config;
    TRY(gemm_check_epilogue("naive", d, &c->epilogue));
    TRY(gemm_check_grouped("naive", d, c->grouped));
    if (gemm_is_f8(d->d) && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "gemm naive: kernels for %s do not round to d=%s", device->id, ckl_dtype_name(d->d));
    TRY(plan_check_threads("gemm naive", c->threads, device));
    if (d->n && d->m * gemm_products(d) > (int64_t)INT32_MAX * c->threads / d->n)
        FAIL(CKL_UNSUPPORTED, "gemm naive: m*n=%g elements are more than one launch has threads",
             (double)gemm_products(d) * (double)d->m * (double)d->n);
    return CKL_OK;
}

static ckl_status launch_naive(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const gemm_naive_config *c = plan->config;
    return gemm_launch(plan, ceil_div(gemm_products(d) * d->m * d->n, c->threads), args, stream);
}

static const field naive_fields[] = GEMM_FIELDS(gemm_naive_config, GEMM_NAIVE_CONFIG);

const implementation gemm_naive_implementation = {
    IMPLEMENTATION_PARTS(gemm, naive),
    .cost = cost_naive,
    .summary = "one thread an element of D, any size and alignment",
    .params = &gemm_param_list,
};

/* tiled */

enum {
    F8_VEC_MAX = 8,  // elements that are converted at once
    SCALED_TILE = 64 // rows and columns whose sums of blocks fit the registers beside those of all of K
};

/* Elements of a copy. Copies through registers must be whole: rows of 8-bit floats end with a copy. */
static int vector_of(const ckl_gemm_desc *d)
{
    int vec = gemm_vector_of(d);
    while (gemm_is_f8(d->a) && (vec > F8_VEC_MAX || d->k % vec))
        vec /= 2;
    return vec;
}

static ckl_status choose_tiled(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_tiled_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->tile_m = c->tile_n = gemm_tiles(d, 128, 128) < device->sm_count ? 64 : 128;
    if (gemm_has_block_scales((choice)d->scale_b))
        c->tile_m = c->tile_n = SCALED_TILE;
    c->vec = vector_of(d);
    c->grouped = gemm_grouped_of(d);
    if (c->vec * (int)ckl_dtype_bytes(d->a) < 4) // what cp.async does not copy
        c->vec = 1;
    if (d->math == CKL_GEMM_F32X3)
        c->tile_n = 64; // numbers and rests of both operands beside 128 sums of a thread would spill
    return CKL_OK;
}

/* Copies of few elements delay a step; with one stage, its loads and products alternate. */
static plan_cost cost_tiled(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_tiled_config *c = config;
    const double depth = GEMM_TILED_BYTES / (double)ckl_dtype_bytes(d->a), in_turn = c->stages == 1 ? 1.2 : 1;
    return gemm_product_cost(d, device,
                             (product_work){ .tiles = (double)gemm_tiles(d, c->tile_m, c->tile_n),
                                             .ctas = c->tile_m * c->tile_n > 64 * 64 ? 2 : 4,
                                             .steps = ceil((double)d->k / depth),
                                             .multiply_adds = c->tile_m * c->tile_n * depth * in_turn,
                                             .rate = d->a == CKL_F32 ? 320 : 640,
                                             .step_cycles = 500 * (1 + 2.0 / c->vec),
                                             .tile_cycles = 2500 });
}

static ckl_status admit_tiled(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_tiled_config *c = config;
    TRY(gemm_check_epilogue("tiled", d, &c->epilogue));
    TRY(gemm_check_same_types("tiled", d));
    TRY(gemm_check_grouped("tiled", d, c->grouped));
    if (gemm_has_block_scales((choice)d->scale_b) && (int64_t)c->tile_m * c->tile_n > SCALED_TILE * SCALED_TILE)
        FAIL(CKL_INVALID, "gemm tiled: tile %dx%d with scales of blocks is more than %dx%d: it has two sums an element",
             c->tile_m, c->tile_n, SCALED_TILE, SCALED_TILE);
    if (gemm_is_f8(d->d) && !device->has_tma)
        FAIL(CKL_UNSUPPORTED, "gemm tiled: kernels for %s do not round to d=%s", device->id, ckl_dtype_name(d->d));
    TRY(gemm_check_mma_tile("tiled", c->tile_m, c->tile_n));
    if (d->a == CKL_F32 && d->math == CKL_GEMM_F32)
        FAIL(CKL_UNSUPPORTED, "gemm tiled: tensor cores round f32; impl=fma multiplies it as it is");
    if (c->stages < 1 || c->stages > 8)
        FAIL(CKL_INVALID, "gemm tiled: stages=%d is not in 1..8", c->stages);
    int bytes = c->vec * (int)ckl_dtype_bytes(d->a);
    if (c->vec != 1 && bytes != 4 && bytes != 8 && bytes != 16)
        FAIL(CKL_INVALID, "gemm tiled: vec=%d is neither 1 nor as many elements as 4, 8 or 16 bytes", c->vec);
    if (c->vec > vector_of(d))
        FAIL(CKL_UNSUPPORTED, "gemm tiled: rows of A and B start at multiples of %d elements, vec=%d wants more",
             vector_of(d), c->vec);
    return gemm_check_tiles("tiled", gemm_tiles(d, c->tile_m, c->tile_n));
}

static ckl_status launch_tiled(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const gemm_tiled_config *c = plan->config;
    TRY(gemm_check_operand_vectors("tiled", d, args, true, "vec", c->vec * (int)ckl_dtype_bytes(d->a)));
    return gemm_launch(plan, gemm_tiles(d, c->tile_m, c->tile_n), args, stream);
}

static const field tiled_fields[] = GEMM_FIELDS(gemm_tiled_config, GEMM_TILED_CONFIG);

const implementation gemm_tiled_implementation = {
    IMPLEMENTATION_PARTS(gemm, tiled),
    .cost = cost_tiled,
    .summary = "shared-memory tiles by cp.async and mma.sync; rows of any pitch; from sm_80 on",
    .params = &gemm_param_list,
};

/* mma: a step of the ladder (docs/gemm-ladder.md), tiled with one stage */

static ckl_status choose_mma(const void *desc, const ckl_device_info *device, void *config)
{
    TRY(choose_tiled(desc, device, config));
    ((gemm_tiled_config *)config)->stages = 1;
    return CKL_OK;
}

const implementation gemm_mma_implementation = {
    .name = "mma",
    .summary = "a step of the ladder: tiled with one stage, which is loaded and used in turn",
    .by_name = true,
    .config_bytes = sizeof(gemm_tiled_config),
    .config = FIELD_TABLE(tiled_fields),
    .choose = choose_mma,
    .cost = cost_tiled,
    .admit = admit_tiled,
    .describe = gemm_tiled,
    .params = &gemm_param_list,
    .launch = launch_tiled,
};
