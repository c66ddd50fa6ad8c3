/*
 * gemm_outer_plan.c - the host side of `outer`: up to eight outer products, mostly in rows that begin anywhere. Writing
 * D is most of its work.
 */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum { LANES = 32 };

/* Elements of the widest access to C and D of which a row has one for every lane. */
static int lane_vector_of(const ckl_gemm_desc *d)
{
    const int bytes = (int)ckl_dtype_bytes(d->d);
    int vec = TMA_ALIGNMENT / bytes;
    while (vec > 1 && (d->n % vec || d->n < (int64_t)LANES * vec || !gemm_results_aligned(d, vec * bytes)))
        vec /= 2;
    return vec;
}

/* Elements of K of an access to A and B: those of 16 bytes at most where rows are whole 16 bytes, aligned as such. */
static int k_vector_of(const ckl_gemm_desc *d)
{
    int vec = gemm_operands_aligned(d) ? TMA_ALIGNMENT / (int)ckl_dtype_bytes(d->a) : 1;
    while (vec > 1 && d->k % vec)
        vec /= 2;
    return vec;
}

static int64_t outer_ctas(const ckl_gemm_desc *d, const gemm_outer_config *c)
{
    return ceil_div(d->n, (int64_t)LANES * c->vec * c->runs) * ceil_div(d->m, (int64_t)GEMM_OUTER_WARPS * c->rows) *
           d->batch;
}

/*
 * A launch, and beside each other memory and the instructions of an SM, as ptxas makes them, four a cycle: measured on
 * an H200, not fitted.
 */
static plan_cost cost_outer(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH_US = 1.8, CYCLES_PER_US = 1755, MEMORY_BYTES_PER_US = 3.39e6, START = 150, FACTOR = 8,
                 VECTOR = 8;
    const ckl_gemm_desc *d = desc;
    const gemm_outer_config *c = config;
    const int vectors = c->rows * c->runs, factors = c->rows + c->vec * c->runs;
    const double instructions = START + factors * (FACTOR + c->depth * (1 + 1.0 / c->vec_k)) + // loaded and unpacked
                                vectors * (VECTOR * (d->c ? 2 : 1) + c->vec * (1 + c->depth));
    const double warps = (double)outer_ctas(d, c) * GEMM_OUTER_WARPS / device->sm_count;
    const double results = (double)(d->m * d->n) * (double)d->batch * (double)ckl_dtype_bytes(d->d) * (d->c ? 2 : 1);
    const double memory_us = results / MEMORY_BYTES_PER_US, issue_us = warps * instructions / 4 / CYCLES_PER_US;
    return (plan_cost){ LAUNCH_US + hypot(memory_us, issue_us), memory_us > issue_us ? "memory" : "instructions" };
}

/*
 * A thread has 8 rows and at least 4 columns of them, fewer where SMs or warps would be left without work, or where C
 * fills the registers. 5120x879x8 in f32 takes 7.9 us, 13.5 by sm90. Of aligned rows and D in 16 bits only a narrow one
 * is its: 65536x64x8 takes 7.5, 20.6 by sm90, 128x65536x8 9.5, 11.0; but 8192x1024x8 9.6, 9.2.
 */
static ckl_status choose_outer(const void *desc, const ckl_device_info *device, void *config)
{
    enum { ROWS = 8, COLUMNS = 4, CTAS_OF_SM = 2, DEEP = 5, NARROW = 512 };
    const ckl_gemm_desc *d = desc;
    gemm_outer_config *c = config;
    const bool deep = d->k >= DEEP;
    c->epilogue = gemm_epilogue_of(d);
    c->depth = (int)max_i64(1, min_i64(d->k, GEMM_OUTER_DEPTH_MAX));
    c->vec_k = k_vector_of(d);
    const bool apart = d->k * (int64_t)ckl_dtype_bytes(d->a) > TMA_ALIGNMENT;
    c->vec = (int)min_i64(lane_vector_of(d), apart ? 1 : deep ? COLUMNS : 2 * COLUMNS);
    for (c->runs = 1; c->runs * c->vec < COLUMNS && d->n > (int64_t)LANES * c->vec * c->runs; c->runs *= 2)
        ;
    c->rows = deep && d->c ? ROWS / 2 : ROWS;
    while (c->rows > 1 && (outer_ctas(d, c) < (int64_t)CTAS_OF_SM * device->sm_count ||
                           (int64_t)GEMM_OUTER_WARPS * c->rows > round_up(d->m, GEMM_OUTER_WARPS)))
        c->rows /= 2;
    if (d->n < LANES || d->m < GEMM_OUTER_WARPS)
        FAIL(CKL_UNSUPPORTED, "gemm outer: m=%" PRId64 " or n=%" PRId64 " leaves some of %d warps or %d lanes idle",
             d->m, d->n, GEMM_OUTER_WARPS, LANES);
    if (d->d != CKL_F32 && min_i64(d->m, d->n) > NARROW && gemm_operands_aligned(d)) // others are faster
        FAIL(CKL_UNSUPPORTED, "gemm outer: rows of A and B start at multiples of 16 bytes");
    return CKL_OK;
}

/* The problem, but for its K. */
static ckl_status check_problem(const ckl_gemm_desc *d, const gemm_epilogue *have)
{
    TRY(gemm_check_plain("outer", d, have));
    if ((d->a != CKL_F16 && d->a != CKL_BF16 && d->a != CKL_F32) || (d->d != CKL_F32 && ckl_dtype_bytes(d->d) != 2))
        FAIL(CKL_UNSUPPORTED, "gemm outer: a=%s is not f16, bf16 or f32, or d=%s none of these", ckl_dtype_name(d->a),
             ckl_dtype_name(d->d));
    if (d->math == CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm outer: products of math=f32x3 are three of tf32");
    if (d->layout != CKL_GEMM_NT || d->gated || d->groups || gemm_has_x(d))
        FAIL(CKL_UNSUPPORTED, "gemm outer: A and B are K-major, without gated, groups and X");
    if (d->batch_invariant)
        FAIL(CKL_UNSUPPORTED, "gemm outer: sums of few K are not those of batch_invariant=1");
    return CKL_OK;
}

static ckl_status admit_outer(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    const gemm_outer_config *c = config;
    TRY(check_problem(d, &c->epilogue));
    if (d->k < 1 || d->k > GEMM_OUTER_DEPTH_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm outer: k=%" PRId64 " is not in 1..%d", d->k, GEMM_OUTER_DEPTH_MAX);
    if (c->depth != d->k)
        FAIL(CKL_INVALID, "gemm outer: depth=%d is not k=%" PRId64, c->depth, d->k);
    if (!is_power_of_two(c->vec) || c->vec > lane_vector_of(d))
        FAIL(CKL_INVALID, "gemm outer: vec=%d is no power of two up to %d", c->vec, lane_vector_of(d));
    if (!is_power_of_two(c->vec_k) || c->vec_k > k_vector_of(d))
        FAIL(CKL_INVALID, "gemm outer: vec_k=%d is no power of two up to %d", c->vec_k, k_vector_of(d));
    if (c->rows < 1 || c->rows > GEMM_OUTER_ROWS_MAX || c->runs < 1 || c->runs > GEMM_OUTER_RUNS_MAX ||
        c->vec * c->runs > 2 * GEMM_OUTER_RUNS_MAX)
        FAIL(CKL_INVALID,
             "gemm outer: rows=%d or runs=%d are not in 1..%d, 1..%d, or their vectors more than %d columns", c->rows,
             c->runs, GEMM_OUTER_ROWS_MAX, GEMM_OUTER_RUNS_MAX, 2 * GEMM_OUTER_RUNS_MAX);
    return gemm_check_tiles("outer", outer_ctas(d, c));
}

static ckl_status launch_outer(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const gemm_outer_config *c = plan->config;
    const int bytes = c->vec_k * (int)ckl_dtype_bytes(c->epilogue.ab);
    TRY(gemm_check_operand_vectors("outer", plan->desc, args, true, "vec_k", bytes));
    TRY(gemm_check_result_vectors("outer", args, c->vec * (int)ckl_dtype_bytes(c->epilogue.d)));
    return gemm_launch(plan, outer_ctas(plan->desc, c), args, stream);
}

static const field outer_fields[] = GEMM_FIELDS(gemm_outer_config, GEMM_OUTER_CONFIG);

const implementation gemm_outer_implementation = {
    IMPLEMENTATION_PARTS(gemm, outer),
    .summary = "up to eight outer products of 16 or 32 bits: rows of D at memory speed; from sm_80 on",
    .cost = cost_outer,
    .params = &gemm_param_list,
};
