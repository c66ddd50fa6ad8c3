/* gemm_shallow_plan.c - the host side of products of few K. */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum { STEP = 16, LANES = 32 };

/* Fitted to the tiles that are chosen here, of 31 problems on an H200: 17 % off in the mean square (bench/notes/gemm.md). */
static const struct {
    double launch_us;           // before the first CTA and behind the last
    double cycles_per_us;       // not fitted
    double memory_bytes_per_us; // of HBM
    double step;                // instructions of a warp for 8 rows of A or B, of each 16 of K
    double element;             // for 32 elements of D
    double alone;               // what an access to single elements of C and D adds to that
} fit = { 1.56, 1755, 3.39e6, 65.5, 26.3, 121 };

/* Elements of the widest access to C and D. */
static int vector_of(const ckl_gemm_desc *d)
{
    int vec = TMA_ALIGNMENT / (int)ckl_dtype_bytes(d->d);
    for (; vec > 1; vec /= 2) {
        const int bytes = vec * (int)ckl_dtype_bytes(d->d);
        if (d->n % vec == 0 && gemm_rows_aligned(d, 'd', bytes) && (!d->c || gemm_rows_aligned(d, 'c', bytes)))
            break;
    }
    return vec;
}

static int64_t ctas_of(const ckl_gemm_desc *d, const gemm_shallow_config *c)
{
    return ceil_div(d->n, c->tile_n) * ceil_div(d->m, c->tile_m) * d->batch;
}

/* Products along K that hold all of it, in few sizes so that kernels are few. */
static int steps_of(const ckl_gemm_desc *d)
{
    static const int sizes[] = { 1, 2, 3, 4, 6 };
    for (int i = 0; i < COUNT_OF(sizes); i++)
        if (d->k <= sizes[i] * STEP)
            return sizes[i];
    return GEMM_SHALLOW_STEPS_MAX;
}

/*
 * The best of three to five tiles each of 34 problems: 112x45056x5 in f32 with C takes 20.8 us in 32x128, 21.3 in
 * 64x128, 31.1 in 64x64; 384x31232x65 takes 41.4 in 128x128, 59.3 in 64x128.
 */
static void choose_tile(const ckl_gemm_desc *d, int64_t sm_count, gemm_shallow_config *c)
{
    enum { NARROW = 8, FEW = 16, HALF = 64, WIDE = 128, SMALL = 200000, DEEP_STEPS = 4 };
    c->warps_n = 1;
    c->tile_m = HALF;
    c->tile_n = WIDE;
    if (d->n <= NARROW) {
        c->vec = c->vec < 2 ? c->vec : 2;
        c->tile_m = d->m >= 2 * HALF * sm_count ? WIDE : HALF;
        c->tile_n = NARROW;
    } else if (d->m <= FEW) {
        c->warps_n = GEMM_SHALLOW_WARPS;
        c->tile_m = FEW;
        c->tile_n = gemm_shallow_columns(c) * c->warps_n > HALF ? WIDE : HALF;
    } else if (c->steps >= DEEP_STEPS) {
        c->tile_m = WIDE;
        c->tile_n = d->n <= WIDE - LANES ? HALF : WIDE;
    } else if (d->m * d->n < SMALL) {
        c->warps_n = 2;
        c->tile_m = HALF / 2;
        c->tile_n = HALF;
    } else if (ceil_div(d->m, HALF) * ceil_div(d->n, WIDE) * d->batch < sm_count) {
        c->tile_n = HALF;
    } else if (d->d != CKL_F32) {
        c->tile_m = WIDE;
    } else if (d->m <= WIDE) {
        c->warps_n = 2;
        c->tile_m = HALF / 2;
    }
}

static ckl_status choose_shallow(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_shallow_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->vec = vector_of(d);
    c->steps = steps_of(d);
    choose_tile(d, device->sm_count, c);
    if (gemm_rows_aligned(d, 'a', TMA_ALIGNMENT) && gemm_rows_aligned(d, 'b', TMA_ALIGNMENT))
        FAIL(CKL_UNSUPPORTED, "gemm shallow: rows of A and B start at multiples of 16 bytes");
    return CKL_OK;
}

/* A launch, and beside each other memory and the instructions of an SM. */
static plan_cost cost_shallow(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_shallow_config *c = config;
    const double operands = (double)(d->m + d->n) * (double)d->k * (double)ckl_dtype_bytes(d->a);
    const double results = (double)d->m * (double)d->n * (double)ckl_dtype_bytes(d->d) * (d->c ? 2 : 1);
    const double lines = (c->tile_m * c->warps_n + c->tile_n * GEMM_SHALLOW_WARPS / c->warps_n) / 8.0;
    const double element = fit.element + (c->vec == 1 && c->tile_n > 8 ? fit.alone : 0);
    const double instructions = lines * c->steps * fit.step + (double)c->tile_m * c->tile_n / LANES * element;
    const double turns = fmax((double)ctas_of(d, c) / device->sm_count, 1);
    const double memory_us = (double)d->batch * (operands + results) / fit.memory_bytes_per_us;
    const double issue_us = turns * instructions / GEMM_SHALLOW_WARPS / fit.cycles_per_us;
    return (plan_cost){ fit.launch_us + hypot(memory_us, issue_us), memory_us > issue_us ? "memory" : "instructions" };
}

static ckl_status admit_shallow(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_shallow_config *c = config;
    TRY(gemm_check_epilogue("shallow", d, &c->epilogue));
    TRY(gemm_check_same_types("shallow", d));
    TRY(gemm_check_in_order("shallow", d));
    if ((d->a != CKL_F16 && d->a != CKL_BF16) || (d->d != CKL_F32 && ckl_dtype_bytes(d->d) != 2))
        FAIL(CKL_UNSUPPORTED, "gemm shallow: a=%s is not f16 or bf16, or d=%s none of these and f32",
             ckl_dtype_name(d->a), ckl_dtype_name(d->d));
    if (d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: k=0 leaves nothing to multiply");
    if (d->layout != CKL_GEMM_NT || d->gated || d->groups || d->preactivation ||
        gemm_is_backward((choice)d->activation))
        FAIL(CKL_UNSUPPORTED, "gemm shallow: A and B are K-major, without gated, groups and X");
    if (d->batch_invariant)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: sums of few K are not those of batch_invariant=1");
    if (c->steps < 1 || c->steps > GEMM_SHALLOW_STEPS_MAX)
        FAIL(CKL_INVALID, "gemm shallow: steps=%d is not in 1..%d", c->steps, GEMM_SHALLOW_STEPS_MAX);
    if (d->k > c->steps * STEP)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: k=%" PRId64 " is more than steps=%d of %d", d->k, c->steps, STEP);
    if (c->vec < 1 || c->vec > 8 || c->vec & (c->vec - 1))
        FAIL(CKL_INVALID, "gemm shallow: vec=%d is not 1, 2, 4 or 8", c->vec);
    if (c->vec > vector_of(d))
        FAIL(CKL_UNSUPPORTED, "gemm shallow: rows of C and D are whole vectors of %d elements, vec=%d wants more",
             vector_of(d), c->vec);
    if (c->warps_n != 1 && c->warps_n != 2 && c->warps_n != GEMM_SHALLOW_WARPS)
        FAIL(CKL_INVALID, "gemm shallow: warps_n=%d is not 1, 2 or 4", c->warps_n);
    const int rows = STEP * GEMM_SHALLOW_WARPS / c->warps_n, columns = gemm_shallow_columns(c) * c->warps_n;
    if (c->tile_m < rows || c->tile_m % rows || c->tile_m > rows * GEMM_SHALLOW_ATOMS_MAX || c->tile_n < columns ||
        c->tile_n % columns || c->tile_n > columns * GEMM_SHALLOW_PARTS_MAX)
        FAIL(CKL_INVALID, "gemm shallow: tile %dx%d is not up to %d times %dx%d of its warps", c->tile_m, c->tile_n,
             GEMM_SHALLOW_ATOMS_MAX, rows, columns);
    if (gemm_shallow_smem(c) > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: a tile needs %" PRId64 " bytes of shared memory, %s has %" PRId64,
             gemm_shallow_smem(c), device->id, (int64_t)device->smem_per_cta_bytes);
    if (ctas_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: %" PRId64 " tiles are more than a launch has", ctas_of(d, c));
    return CKL_OK;
}

static ckl_status launch_shallow(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_args *x = args;
    const gemm_shallow_config *c = plan->config;
    const int bytes = c->vec * (int)ckl_dtype_bytes(c->epilogue.d);
    if (!PLAN_ALIGNED(bytes, x->d, x->c))
        FAIL(CKL_INVALID, "gemm shallow: c=%p or d=%p is not aligned to %d bytes; config='vec=1' takes any alignment",
             x->c, x->d, bytes);
    const gemm_params params = gemm_params_of(plan->desc, args);
    return plan_launch(plan, 0, (plan_grid){ .x = ctas_of(plan->desc, c) }, &params, stream);
}

static const field shallow_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_shallow_config, epilogue)) //
                                        GEMM_SHALLOW_CONFIG(FIELD_ROW, gemm_shallow_config) };

const implementation gemm_shallow_implementation = {
    IMPLEMENTATION_PARTS(gemm, shallow),
    .summary = "few K of 16 bits in rows that begin anywhere, by mma.sync; from sm_80 on",
    .cost = cost_shallow,
    .rivals = { &gemm_pitched_implementation },
    .params = &gemm_param_list,
};
