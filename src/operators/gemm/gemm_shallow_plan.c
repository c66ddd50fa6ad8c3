/* gemm_shallow_plan.c - the host side of products of few K. */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum { STEP = 16, LANES = 32, CTAS_OF_SM = 4 };

static const struct {
    double launch_us, turn_us;  // before the first CTA and behind the last; of each turn of CTAs
    double cycles_per_us;       // not fitted
    double memory_bytes_per_us; // of HBM
    double sm_bytes;            // a cycle into and out of an SM
    double chunk, line, step;   // instructions of a warp for 32 chunks; for 8 rows; for 16 of K of them
    double element, vector;     // and for 32 elements of D; for 32 vectors
} fit = { 1.5, 0.6, 1755, 4.3e6, 64, 25, 14, 12, 3, 6 };

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

/* Tiles, and the warps that share out their columns. */
static const struct {
    int tile_m, tile_n, warps_n;
} tiles[] = { { 64, 64, 1 }, { 128, 64, 1 }, { 64, 128, 1 }, { 128, 128, 1 }, { 32, 128, 2 },
              { 32, 64, 2 }, { 64, 32, 1 },  { 16, 256, 4 }, { 16, 128, 4 },  { 16, 64, 4 },
              { 64, 8, 1 },  { 128, 8, 1 },  { 256, 8, 1 } };

static bool candidate_shallow(const void *desc, const ckl_device_info *device, int i, void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    gemm_shallow_config *c = config;
    if (i >= COUNT_OF(tiles))
        return false;
    c->epilogue = gemm_epilogue_of(d);
    c->vec = vector_of(d);
    c->steps = steps_of(d);
    c->tile_m = tiles[i].tile_m;
    c->tile_n = tiles[i].tile_n;
    c->warps_n = tiles[i].warps_n;
    return true;
}

/*
 * A launch, the turns of CTAs, and the longest of three: bytes of memory, bytes through the SMs, and instructions. The
 * coefficients are fitted to the sweep of bench/notes/gemm.md.
 */
static plan_cost cost_shallow(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_shallow_config *c = config;
    const double size = (double)ckl_dtype_bytes(d->d) * (d->c ? 2 : 1), cycles = fit.cycles_per_us * device->sm_count;
    const double ctas = (double)ctas_of(d, c), elements = (double)c->tile_m * c->tile_n;
    const double compulsory =
        (double)d->batch * ((double)(d->m + d->n) * (double)d->k * 2 + (double)d->m * (double)d->n * size);
    const double lines = c->tile_m * c->warps_n / 8.0 + c->tile_n * (GEMM_SHALLOW_WARPS / c->warps_n) / 8.0;
    const double instructions = (double)gemm_shallow_smem(c) / 16 / LANES * fit.chunk +
                                lines * (fit.line + c->steps * fit.step) +
                                elements / LANES * (fit.element + fit.vector / c->vec);
    const double memory_us = compulsory / fit.memory_bytes_per_us;
    const double sm_us = ctas * ((double)gemm_shallow_smem(c) + elements * size) / (fit.sm_bytes * cycles);
    const double issue_us = ctas * instructions / (4 * cycles);
    const double turns = ctas / (device->sm_count * CTAS_OF_SM), longest = fmax(memory_us, fmax(sm_us, issue_us));
    return (plan_cost){ fit.launch_us + fit.turn_us * fmax(turns, 1) + longest, longest == memory_us ? "memory"
                                                                                : longest == sm_us   ? "loads"
                                                                                                     : "instructions" };
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
    .name = "shallow",
    .summary = "few K of 16 bits in rows that begin anywhere, by mma.sync; from sm_80 on",
    .config_bytes = sizeof(gemm_shallow_config),
    .config = FIELD_TABLE(shallow_fields),
    .candidate = candidate_shallow,
    .cost = cost_shallow,
    .rivals = { &gemm_sm90_implementation },
    .admit = admit_shallow,
    .describe = gemm_shallow,
    .params = &gemm_param_list,
    .launch = launch_shallow,
};
