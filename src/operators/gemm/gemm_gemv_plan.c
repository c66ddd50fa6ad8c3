/* gemm_gemv_plan.c - the host side of products of few rows without tensor cores. */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum { FEW_MAX = 8, ROWS_MAX = 8, SUMS_MAX = 32 /* of f32, of a thread */ };

static int64_t length_of(const ckl_gemm_desc *d, const gemm_gemv_config *c)
{
    return c->many_a ? d->m : d->n;
}

/* Rows of the other one. */
static int64_t few_of(const ckl_gemm_desc *d, const gemm_gemv_config *c)
{
    return c->many_a ? d->n : d->m;
}

/* Rows of the long operand of a CTA. */
static int64_t rows_of(const gemm_gemv_config *c)
{
    return (int64_t)c->rows * GEMM_GEMV_THREADS / c->width;
}

static int64_t ctas_of(const ckl_gemm_desc *d, const gemm_gemv_config *c)
{
    return product_i64(ceil_div(length_of(d, c), rows_of(c)), ceil_div(few_of(d, c), c->few));
}

/* Elements of an access: of f32 rows may begin anywhere. */
static int vector_of(const ckl_gemm_desc *d)
{
    int vec = TMA_ALIGNMENT / (int)ckl_dtype_bytes(d->a);
    while (d->a == CKL_F32 && vec > 1 &&
           (d->k % vec || !gemm_rows_aligned(d, 'a', 4 * vec) || !gemm_rows_aligned(d, 'b', 4 * vec)))
        vec /= 2;
    return vec;
}

/* Vectors of K of a thread, if groups of `width` can load them all at once; else 0. */
static int steps_of(const ckl_gemm_desc *d, const gemm_gemv_config *c, int width)
{
    enum { LOADED = 48 }; // elements of f32
    const int64_t steps = ceil_div(ceil_div(d->k, c->vec), width), elements = steps * (c->rows + c->few) * c->vec;
    const bool fit = d->a == CKL_F32 && steps <= GEMM_GEMV_STEPS_MAX && elements <= LOADED;
    return steps == 1 || fit ? (int)steps : 0;
}

/*
 * Threads that keep memory busy, by groups as narrow as that allows, since sums over a group cost instructions, and no
 * narrower than leaves a thread 32 elements of a row: 1x28672x8192 takes 102.9 us by 256 threads, 107.6 by 64, but
 * 7x66560x392 in f32 35.9 by 16 and 45.2 by 32. By fewer rows a group where even those that take K in one step are too
 * few. Loops of f32 have registers for half of the threads (1x3712x2560 takes 11.5 us by 128, 14.1 by 256), and where
 * more than four rows are read again by each CTA, four of the long operand (8x1024x11136 14.5, 19.1 by two).
 */
static ckl_status choose_gemv(const void *desc, const ckl_device_info *device, void *config)
{
    enum { BUSY = 1024 /* threads of an SM */, ROWS_LEAST = 2, LINE_BYTES = 128, ELEMENTS = 32 };
    const ckl_gemm_desc *d = desc;
    gemm_gemv_config *c = config;
    const int bytes = (int)ckl_dtype_bytes(d->a);
    c->epilogue = gemm_epilogue_of(d);
    c->many_a = d->n < d->m;
    const int64_t few = max_i64(few_of(d, c), 1);
    const bool tensor_cores = d->math == CKL_GEMM_TF32 && vector_of(d) > 2; // take rows as they lie
    const int most_few = bytes == 2 ? 4 : tensor_cores ? 8 : 128;
    if (few > most_few)
        FAIL(CKL_UNSUPPORTED, "gemm gemv: %" PRId64 " rows are more than %d, and so faster by tiles", few, most_few);
    c->few = (int)ceil_div(few, ceil_div(few, FEW_MAX));
    c->vec = vector_of(d);
    const int64_t vectors = ceil_div(d->k, c->vec), most = min_i64(power_of_two_ceil(vectors), GEMM_GEMV_THREADS);
    const bool loops = bytes == 4 && vectors > GEMM_GEMV_THREADS;
    const int64_t busy = BUSY * (int64_t)device->sm_count, least = loops && few > FEW_MAX / 2 ? 4 : ROWS_LEAST;
    c->rows = ROWS_MAX;
    while (c->rows > least && (c->rows * c->few > SUMS_MAX * bytes / 4 || length_of(d, c) * most < c->rows * busy))
        c->rows /= 2;
    const int64_t line = LINE_BYTES / gemm_gemv_bytes(c); // threads that read a line of a row
    c->width = (int)min_i64(max_i64(line, power_of_two_ceil(ceil_div(d->k, ELEMENTS))), most);
    while (c->width < most && (length_of(d, c) * c->width < c->rows * (loops ? busy / 2 : busy) ||
                               (!steps_of(d, c, c->width) && steps_of(d, c, (int)most))))
        c->width *= 2;
    while (bytes == 4 && c->width > line && ctas_of(d, c) >= 2 * device->sm_count && steps_of(d, c, c->width / 2))
        c->width /= 2; // sums over fewer threads
    c->steps = steps_of(d, c, c->width);
    return CKL_OK;
}

/*
 * Multiply-adds of an SM in a cycle: of 16 bits, which are converted first, as of 2x7168x16384; of f32 as of
 * 8x8192x8192, and in loops no more than the warps' loads allow, of an element as of a vector (5x3072x52215).
 */
static double rate_of(const ckl_gemm_desc *d, const gemm_gemv_config *c)
{
    const double LANES = 32, LOAD_CYCLES = 4.4;
    const double of_load = LANES * c->vec * c->rows * c->few / (c->rows + c->few);
    return ckl_dtype_bytes(d->a) == 2 ? 17 : c->steps ? 32 : fmin(32, of_load / LOAD_CYCLES);
}

/*
 * Memory's rate is that of one row by 28672x8192. Beside multiply-adds a CTA has addresses and sums over lanes, fitted
 * to nine runs; loops of f32, which no turns of CTAs wait for, begin and end in 3600 cycles more.
 */
static plan_cost cost_gemv(const void *desc, const ckl_device_info *device, const void *config)
{
    enum { CTAS = 2048 / GEMM_GEMV_THREADS };
    const ckl_gemm_desc *d = desc;
    const gemm_gemv_config *c = config;
    const bool f32 = ckl_dtype_bytes(d->a) == 4;
    const int64_t depth = c->width * c->vec * max_i64(c->steps, 1), of_sm = ceil_div(ctas_of(d, c), device->sm_count);
    const int64_t at_once = f32 && !c->steps ? max_i64(of_sm, 1) : CTAS;
    const double of_turn = (double)of_sm / (double)ceil_div(of_sm, at_once) * (190 + 38 * c->rows * c->few);
    const double trips = c->epilogue.c ? 800 * (double)ceil_div(c->rows * c->few, c->width) : 0; // for C, in turns
    return gemm_product_cost(d, device,
                             (product_work){ .tiles = (double)ctas_of(d, c),
                                             .ctas = (int)at_once,
                                             .steps = (double)ceil_div(d->k, depth),
                                             .multiply_adds = (double)(rows_of(c) * c->few * depth),
                                             .rate = rate_of(d, c),
                                             .step_cycles = 600,
                                             .tile_cycles = c->steps ? 380 + of_turn + trips
                                                            : f32    ? 3600 + of_turn
                                                                     : 800,
                                             .bytes_per_us = c->few > 2 && f32 ? 4.1e6 : 4.55e6 });
}

static ckl_status admit_gemv(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    const gemm_gemv_config *c = config;
    TRY(gemm_check_plain("gemv", d, &c->epilogue));
    if (ckl_dtype_bytes(d->a) < 2 || (d->a == CKL_F32 && d->math == CKL_GEMM_F32X3))
        FAIL(CKL_UNSUPPORTED, "gemm gemv: operands are floats of 16 bits, or of 32 with math=f32 or tf32");
    if (d->batch_invariant)
        FAIL(CKL_UNSUPPORTED, "gemm gemv: sums of few rows are not those of batch_invariant=1");
    if (d->batch > 1 || d->groups || d->gated)
        FAIL(CKL_UNSUPPORTED, "gemm gemv: it is one product, without batch, groups and gated");
    const int bytes = gemm_gemv_bytes(c);
    if (!gemm_is_k_major(d, 'a') || !gemm_is_k_major(d, 'b') || !is_power_of_two(c->vec) || c->vec > vector_of(d) ||
        d->k % c->vec || !gemm_rows_aligned(d, 'a', bytes) || !gemm_rows_aligned(d, 'b', bytes))
        FAIL(CKL_UNSUPPORTED, "gemm gemv: rows of A and B along k=%" PRId64 " are not whole vectors of vec=%d", d->k,
             c->vec);
    if (c->few < 1 || c->few > FEW_MAX || c->rows < 1 || c->rows > ROWS_MAX)
        FAIL(CKL_INVALID, "gemm gemv: few=%d is not in 1..%d, or rows=%d not in 1..%d", c->few, FEW_MAX, c->rows,
             ROWS_MAX);
    if (!is_power_of_two(c->width) || c->width > GEMM_GEMV_THREADS)
        FAIL(CKL_INVALID, "gemm gemv: width=%d is no power of two up to %d", c->width, GEMM_GEMV_THREADS);
    if (c->steps < 0 || c->steps > GEMM_GEMV_STEPS_MAX || (c->steps && ceil_div(d->k, c->vec) > c->width * c->steps))
        FAIL(CKL_INVALID, "gemm gemv: k=%" PRId64 " is more than %d threads take in steps=%d of 0..%d", d->k, c->width,
             c->steps, GEMM_GEMV_STEPS_MAX);
    if (ctas_of(d, c) > INT32_MAX || d->k > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm gemv: a size is beyond 32 bits");
    return CKL_OK;
}

static ckl_status launch_gemv(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_args *x = args;
    const gemm_gemv_config *c = plan->config;
    TRY(gemm_check_operand_vectors("gemv", plan->desc, x, true, "vec", gemm_gemv_bytes(c)));
    return gemm_launch(plan, ctas_of(plan->desc, c), args, stream);
}

static const field gemv_fields[] = GEMM_FIELDS(gemm_gemv_config, GEMM_GEMV_CONFIG);

const implementation gemm_gemv_implementation = {
    IMPLEMENTATION_PARTS(gemm, gemv),
    .cost = cost_gemv,
    .rivals = { &gemm_splitk_implementation, &gemm_sm90_implementation, &gemm_pitched_implementation,
                &gemm_fma_implementation },
    .summary = "few rows of A or of B, by vectors without tensor cores; from sm_80 on",
    .params = &gemm_param_list,
};
