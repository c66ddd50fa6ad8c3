/* gemm_outer_plan.c - the host side of outer products: which problems, how many rows and columns a thread has. */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum { LANES = 32 };

/* Elements of the widest access to C and D of which a row has one for every lane. */
static int vector_of(const ckl_gemm_desc *d)
{
    int vec = TMA_ALIGNMENT / (int)ckl_dtype_bytes(d->d);
    for (; vec > 1; vec /= 2) {
        const int bytes = vec * (int)ckl_dtype_bytes(d->d);
        if (d->n % vec == 0 && d->n >= (int64_t)LANES * vec && gemm_rows_aligned(d, 'd', bytes) &&
            (!d->c || gemm_rows_aligned(d, 'c', bytes)))
            break;
    }
    return vec;
}

static int64_t ctas_of(const ckl_gemm_desc *d, const gemm_outer_config *c)
{
    return ceil_div(d->n, (int64_t)LANES * c->vec * c->runs) * ceil_div(d->m, (int64_t)GEMM_OUTER_WARPS * c->rows) *
           d->batch;
}

/* Of memory, and of the instructions of an SM as they are printed, four a cycle: up to 1.6 times what was measured. */
static double memory_us(const ckl_gemm_desc *d)
{
    const double BYTES_PER_US = 3.39e6;
    return (double)(d->m * d->n) * (double)d->batch * (double)ckl_dtype_bytes(d->d) * (d->c ? 2 : 1) / BYTES_PER_US;
}

static double issue_us(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_outer_config *c)
{
    const double CYCLES_PER_US = 1755, START = 100, FACTOR = 9, VECTOR = 18, ELEMENT = 3.5;
    const int vectors = c->rows * c->runs;
    const double instructions = START + FACTOR * c->depth * (c->rows + c->vec * c->runs) +
                                VECTOR * vectors * (d->c ? 2 : 1) + (ELEMENT + c->depth) * c->vec * vectors;
    return (double)ctas_of(d, c) * GEMM_OUTER_WARPS / device->sm_count * instructions / 4 / CYCLES_PER_US;
}

static plan_cost cost_outer(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH = 1.8, memory = memory_us(desc), issue = issue_us(desc, device, config);
    return (plan_cost){ LAUNCH + hypot(memory, issue), memory > issue ? "memory" : "instructions" };
}

/*
 * A thread has 8 rows and at least 4 columns of them, fewer where SMs or warps would be left without work, or where
 * factors of more K fill the registers.
 */
static ckl_status choose_outer(const void *desc, const ckl_device_info *device, void *config)
{
    enum { ROWS = 8, COLUMNS = 4, CTAS_OF_SM = 2, DEEP = 5 };
    const ckl_gemm_desc *d = desc;
    gemm_outer_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->depth = (int)max_i64(1, min_i64(d->k, GEMM_OUTER_DEPTH_MAX));
    c->vec = (int)min_i64(vector_of(d), d->k < DEEP ? 2 * COLUMNS : COLUMNS);
    for (c->runs = 1; c->runs * c->vec < COLUMNS && d->n > (int64_t)LANES * c->vec * c->runs; c->runs *= 2)
        ;
    c->rows = d->k < DEEP ? ROWS : ROWS / 2;
    while (c->rows > 1 && (ctas_of(d, c) < (int64_t)CTAS_OF_SM * device->sm_count ||
                           (int64_t)GEMM_OUTER_WARPS * c->rows > round_up(d->m, GEMM_OUTER_WARPS)))
        c->rows /= 2;
    if (d->n < LANES || d->m < GEMM_OUTER_WARPS)
        FAIL(CKL_UNSUPPORTED, "gemm outer: m=%" PRId64 " or n=%" PRId64 " leaves some of %d warps or %d lanes idle",
             d->m, d->n, GEMM_OUTER_WARPS, LANES);
    if (gemm_rows_aligned(d, 'a', TMA_ALIGNMENT) && gemm_rows_aligned(d, 'b', TMA_ALIGNMENT))
        FAIL(CKL_UNSUPPORTED, "gemm outer: rows of A and B start at multiples of 16 bytes");
    if (d->k >= DEEP && d->k <= GEMM_OUTER_DEPTH_MAX && issue_us(d, device, c) > memory_us(d))
        FAIL(CKL_UNSUPPORTED, "gemm outer: multiply-adds for k=%" PRId64 " outweigh memory", d->k);
    return CKL_OK;
}

static ckl_status admit_outer(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    const gemm_outer_config *c = config;
    TRY(gemm_check_epilogue("outer", d, &c->epilogue));
    TRY(gemm_check_same_types("outer", d));
    TRY(gemm_check_in_order("outer", d));
    if ((d->a != CKL_F16 && d->a != CKL_BF16) || (d->d != CKL_F32 && ckl_dtype_bytes(d->d) != 2))
        FAIL(CKL_UNSUPPORTED, "gemm outer: a=%s is not f16 or bf16, or d=%s none of these and f32",
             ckl_dtype_name(d->a), ckl_dtype_name(d->d));
    if (d->k < 1 || d->k > GEMM_OUTER_DEPTH_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm outer: k=%" PRId64 " is not in 1..%d", d->k, GEMM_OUTER_DEPTH_MAX);
    if (d->layout != CKL_GEMM_NT || d->gated || d->groups || d->preactivation ||
        gemm_is_backward((choice)d->activation))
        FAIL(CKL_UNSUPPORTED, "gemm outer: A and B are K-major, without gated, groups and X");
    if (d->batch_invariant)
        FAIL(CKL_UNSUPPORTED, "gemm outer: sums of few K are not those of batch_invariant=1");
    if (c->depth != d->k)
        FAIL(CKL_INVALID, "gemm outer: depth=%d is not k=%" PRId64, c->depth, d->k);
    if (c->vec < 1 || c->vec > 8 || c->vec & (c->vec - 1) || c->vec > vector_of(d))
        FAIL(CKL_INVALID, "gemm outer: vec=%d is no power of two up to %d", c->vec, vector_of(d));
    if (c->rows < 1 || c->rows > GEMM_OUTER_ROWS_MAX || c->runs < 1 || c->runs > GEMM_OUTER_RUNS_MAX ||
        c->vec * c->runs > 2 * GEMM_OUTER_RUNS_MAX)
        FAIL(CKL_INVALID,
             "gemm outer: rows=%d or runs=%d are not in 1..%d, 1..%d, or their vectors more than %d columns", c->rows,
             c->runs, GEMM_OUTER_ROWS_MAX, GEMM_OUTER_RUNS_MAX, 2 * GEMM_OUTER_RUNS_MAX);
    if (ctas_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm outer: %" PRId64 " tiles are more than a launch has", ctas_of(d, c));
    return CKL_OK;
}

static ckl_status launch_outer(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_args *x = args;
    const gemm_outer_config *c = plan->config;
    const int bytes = c->vec * (int)ckl_dtype_bytes(c->epilogue.d);
    if (!PLAN_ALIGNED(bytes, x->d, x->c))
        FAIL(CKL_INVALID, "gemm outer: c=%p or d=%p is not aligned to %d bytes; config='vec=1' takes any alignment",
             x->c, x->d, bytes);
    const gemm_params params = gemm_params_of(plan->desc, args);
    return plan_launch(plan, 0, (plan_grid){ .x = ctas_of(plan->desc, c) }, &params, stream);
}

static const field outer_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_outer_config, epilogue)) //
                                      GEMM_OUTER_CONFIG(FIELD_ROW, gemm_outer_config) };

const implementation gemm_outer_implementation = {
    IMPLEMENTATION_PARTS(gemm, outer),
    .summary = "up to eight outer products of 16 bits: rows of D at memory speed; from sm_80 on",
    .cost = cost_outer,
    .params = &gemm_param_list,
};
