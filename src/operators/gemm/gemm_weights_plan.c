/* gemm_weights_plan.c - the host side of products with weights of 8 or 4 bits. */
#include "operators/gemm/gemm_plan.h"

enum {
    ROWS_MOST = 64,
    ROWS_LEAST = 16,
    ATOM_COLUMNS = 8,
    STAGES_MOST = 8,
    WARPS_PER_SM = 16,      // with fewer than 128 registers for a thread sums would spill
    WARPS_ALONE = 8,        // of a CTA that has an SM to itself
    WARPS_OF_SEVERAL = 4,   // of CTAs that share an SM
    STAGES_OF_SEVERAL = 3,  // 1x28672x8192 takes 35.8 us, 38.8 with the 6 for which two CTAs have room
    BYTES_ENOUGH = 96 << 10 // in flight to an SM: with more in one wave, 8192x8192 takes 12.6 us instead of 11.5
};

static int64_t ctas_of(const ckl_gemm_desc *d, const gemm_weights_config *c)
{
    return gemm_tiles(d, c->columns, c->rows);
}

static int64_t bytes_of_stage(gemm_weights_config c)
{
    c.stages = 1;
    c.grouped = 0;
    return gemm_weights_smem(&c);
}

/*
 * In one wave as many stages as keep memory busy; in several waves few, so that CTAs share an SM: one computes while
 * others begin or end.
 */
static void fit_stages(gemm_weights_config *c, int64_t turns, const ckl_device_info *device)
{
    c->warps = turns > 1 ? WARPS_OF_SEVERAL : WARPS_ALONE;
    const int64_t bytes = bytes_of_stage(*c);
    const int64_t most = (device->smem_per_cta_bytes - gemm_grouped_bytes(c->grouped, c->warps)) / bytes;
    int64_t stages = turns > 1 ? STAGES_OF_SEVERAL : 1 + ceil_div(BYTES_ENOUGH, bytes);
    if (turns > 1 && stages > most / 2) // 16x28672x8192 of bytes takes 65.6 us in two CTAs an SM, 71 in one of 3 stages
        stages = max_i64(most / 2, 2);
    c->stages = (int)min_i64(stages, min_i64(most, STAGES_MOST));
}

/* Bytes of B and A that a CTA loads of a K tile; rows of A that do not exist cost nothing. */
static int64_t bytes_of_step(const ckl_gemm_desc *d, const gemm_weights_config *c)
{
    const int64_t row_B = d->b == CKL_U8 ? GEMM_BLOCK / 2 : GEMM_BLOCK, row_A = 2 * GEMM_BLOCK;
    return c->rows * row_B + min_i64(d->m, c->columns) * row_A;
}

/* Do all rows have whole copies of 16 bytes? */
static bool is_wide(const ckl_gemm_desc *d)
{
    return gemm_operands_aligned(d) && gemm_matrix_of(d, 'b').cols % TMA_ALIGNMENT == 0;
}

/* Do whole stages come by TMA, of one product? */
static bool has_boxes(const ckl_gemm_desc *d, const ckl_device_info *device, bool narrow)
{
    const bool whole_scales = d->scale_b != CKL_GEMM_SCALE_BLOCK || d->n % 8 == 0;
    return device->has_tma && !narrow && !d->groups && !d->gather && !d->pointers && whole_scales;
}

/* The smallest box of rows of A that has all of a tile's. */
static int box_of(const ckl_gemm_desc *d, int columns)
{
    int box = 1;
    while (box < min_i64(d->m, columns))
        box *= 2;
    return box;
}

/* By TMA what the model takes, else as many rows of B for each CTA as leave all SMs some work. */
static ckl_status choose_weights(const void *desc, const ckl_device_info *device, void *config)
{
    ckl_gemm_desc seen = *(const ckl_gemm_desc *)desc;
    const ckl_gemm_desc *d = &seen;
    gemm_weights_config *c = config, best = *c;
    int64_t least = INT64_MAX;
    if (seen.batch_invariant)
        seen.m = 2 * ATOM_COLUMNS; // for the order of sums is that of the tile
    c->epilogue = gemm_epilogue_of(d);
    c->columns = d->m <= ATOM_COLUMNS * max_i64(d->groups, 1) ? ATOM_COLUMNS : 2 * ATOM_COLUMNS;
    c->grouped = gemm_grouped_of(d);
    c->narrow = !is_wide(d);
    if (has_boxes(d, device, c->narrow)) {
        c->box = box_of(d, c->columns);
        gemm_weights_choose_boxes(d, device, c);
        return CKL_OK;
    }
    for (c->rows = ROWS_MOST; c->rows >= ROWS_LEAST; c->rows /= 2) {
        const int64_t turns = max_i64(ceil_div(ctas_of(d, c), device->sm_count), 1);
        const int64_t bytes = turns * bytes_of_step(d, c);
        fit_stages(c, turns, device);
        if (bytes < least && (c->stages > 1 || c->rows == ROWS_LEAST)) {
            least = bytes;
            best = *c;
        }
    }
    *c = best;
    return CKL_OK;
}

static plan_cost cost_weights(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_weights_config *c = config;
    return gemm_product_cost(d, device,
                             (product_work){ .tiles = (double)ctas_of(d, c),
                                             .ctas = WARPS_PER_SM / c->warps,
                                             .steps = (double)ceil_div(d->k, GEMM_BLOCK * (int64_t)c->warps),
                                             .multiply_adds = c->rows * c->columns * GEMM_BLOCK * c->warps,
                                             .rate = 500,
                                             .step_cycles = 600,
                                             .tile_cycles = 2000,
                                             .us = 1.5 });
}

/* Can TMA bring whole stages, and all rows of A there are? */
static ckl_status admit_boxes(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_weights_config *c)
{
    if (!device->has_tma)
        FAIL(CKL_UNSUPPORTED, "gemm weights: box=%d wants TMA, which %s does not have", c->box, device->id);
    if (!has_boxes(d, device, c->narrow))
        FAIL(CKL_UNSUPPORTED, "gemm weights: box=%d is of one product, of whole rows, and n=%" PRId64 " scales a block",
             c->box, d->n);
    if (c->box > c->columns || c->box < min_i64(d->m, c->columns) || 256 % c->box)
        FAIL(CKL_INVALID, "gemm weights: box=%d are not the rows of A in %d columns of a tile: 1, 2, 4, 8 or 16",
             c->box, c->columns);
    return CKL_OK;
}

static ckl_status admit_weights(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_weights_config *c = config;
    TRY(gemm_check_epilogue("weights", d, &c->epilogue));
    if (!gemm_has_weights(d))
        FAIL(CKL_UNSUPPORTED, "gemm weights: b=%s is none of i8, u8, e4m3 beside an A of 16 bits",
             ckl_dtype_name(d->b));
    TRY(gemm_check_grouped("weights", d, c->grouped));
    if (!c->narrow && !is_wide(d))
        FAIL(CKL_UNSUPPORTED, "gemm weights: rows of A or B, or k=%" PRId64 ", are not whole 16 bytes: narrow=1", d->k);
    if (c->rows % 16 || c->rows < 16 || c->rows > (c->box ? 128 : 64) || (c->columns != 8 && c->columns != 16))
        FAIL(CKL_INVALID, "gemm weights: %dx%d is not 16, 32, 48 or 64 rows of B by 8 or 16 of A", c->rows, c->columns);
    if (c->box)
        TRY(admit_boxes(d, device, c));
    if (c->warps < 1 || c->warps > 16 || c->stages < 2)
        FAIL(CKL_INVALID, "gemm weights: warps=%d is not in 1..16, or stages=%d less than 2", c->warps, c->stages);
    TRY(gemm_check_smem("weights", device, c->stages, gemm_weights_smem(c)));
    return gemm_check_tiles("weights", ctas_of(d, c));
}

static ckl_status launch_weights(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_args *x = args;
    const gemm_weights_config *c = plan->config;
    const bool pointers = ((const ckl_gemm_desc *)plan->desc)->pointers; // aligned by contract
    if (!c->narrow && !pointers && !PLAN_ALIGNED(TMA_ALIGNMENT, x->a, x->b))
        FAIL(CKL_INVALID,
             "gemm weights: a=%p or b=%p is not aligned to 16 bytes; config='narrow=1' takes any alignment", x->a,
             x->b);
    if (c->box && c->epilogue.scale_b == CKL_GEMM_SCALE_BLOCK && !PLAN_ALIGNED(TMA_ALIGNMENT, x->scale_b))
        FAIL(CKL_INVALID, "gemm weights: scale_b=%p is not aligned to 16 bytes; config='box=0' takes any", x->scale_b);
    return (c->box ? gemm_launch_tma : gemm_launch)(plan, ctas_of(plan->desc, c), args, stream);
}

static const field weights_fields[] = GEMM_FIELDS(gemm_weights_config, GEMM_WEIGHTS_CONFIG);

const implementation gemm_weights_implementation = {
    IMPLEMENTATION_PARTS(gemm, weights),
    .cost = cost_weights,
    .summary = "few rows of 16 bits by weights of 8 or 4, by mma.sync; from sm_80 on",
    .params = &gemm_param_list,
};
