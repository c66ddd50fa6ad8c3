/*
 * gemm_few_k_plan.c - the host side of products of few K, mostly in rows that begin anywhere: `outer` of 16 and 32
 * bits, and `shallow` of 16 by tensor cores. Writing D is most of their work.
 */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum { STEP = 16, LANES = 32 };

/* Of both kernels: measured on an H200; not fitted. */
static const double CYCLES_PER_US = 1755, MEMORY_BYTES_PER_US = 3.39e6;

/* Elements of the widest access to C and D. */
static int vector_of(const ckl_gemm_desc *d)
{
    const int bytes = (int)ckl_dtype_bytes(d->d);
    int vec = TMA_ALIGNMENT / bytes;
    while (vec > 1 && (d->n % vec || !gemm_results_aligned(d, vec * bytes)))
        vec /= 2;
    return vec;
}

/* The problem, but for its K. */
static ckl_status check_types(const char *who, const ckl_gemm_desc *d, const gemm_epilogue *have)
{
    TRY(gemm_check_plain(who, d, have));
    if ((d->a != CKL_F16 && d->a != CKL_BF16 && d->a != CKL_F32) || (d->d != CKL_F32 && ckl_dtype_bytes(d->d) != 2))
        FAIL(CKL_UNSUPPORTED, "gemm %s: a=%s is not f16, bf16 or f32, or d=%s none of these", who, ckl_dtype_name(d->a),
             ckl_dtype_name(d->d));
    return CKL_OK;
}

static ckl_status check_form(const char *who, const ckl_gemm_desc *d)
{
    if (d->layout != CKL_GEMM_NT || d->gated || d->groups || gemm_has_x(d))
        FAIL(CKL_UNSUPPORTED, "gemm %s: A and B are K-major, without gated, groups and X", who);
    if (d->batch_invariant)
        FAIL(CKL_UNSUPPORTED, "gemm %s: sums of few K are not those of batch_invariant=1", who);
    return CKL_OK;
}

/* Others are faster where rows are whole vectors of TMA. */
static ckl_status decline_aligned(const char *who, const ckl_gemm_desc *d)
{
    if (gemm_operands_aligned(d))
        FAIL(CKL_UNSUPPORTED, "gemm %s: rows of A and B start at multiples of 16 bytes", who);
    return CKL_OK;
}

static double result_bytes(const ckl_gemm_desc *d)
{
    return (double)(d->m * d->n) * (double)d->batch * (double)ckl_dtype_bytes(d->d) * (d->c ? 2 : 1);
}

/* A launch, and beside each other memory and the instructions of an SM. */
static plan_cost cost_of(double launch_us, double memory_us, double issue_us)
{
    return (plan_cost){ launch_us + hypot(memory_us, issue_us), memory_us > issue_us ? "memory" : "instructions" };
}

/* outer */

/* Of which a row has one for every lane. */
static int lane_vector_of(const ckl_gemm_desc *d)
{
    int vec = vector_of(d);
    while (vec > 1 && d->n < (int64_t)LANES * vec)
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

/* Of instructions as ptxas makes them, four a cycle. */
static plan_cost cost_outer(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH = 1.8, START = 150, FACTOR = 8, VECTOR = 8;
    const ckl_gemm_desc *d = desc;
    const gemm_outer_config *c = config;
    const int vectors = c->rows * c->runs, factors = c->rows + c->vec * c->runs;
    const double instructions = START + factors * (FACTOR + c->depth * (1 + 1.0 / c->vec_k)) + // loaded and unpacked
                                vectors * (VECTOR * (d->c ? 2 : 1) + c->vec * (1 + c->depth));
    const double warps = (double)outer_ctas(d, c) * GEMM_OUTER_WARPS / device->sm_count;
    return cost_of(LAUNCH, result_bytes(d) / MEMORY_BYTES_PER_US, warps * instructions / 4 / CYCLES_PER_US);
}

/*
 * A thread has 8 rows and at least 4 columns of them, fewer where SMs or warps would be left without work, or where C
 * fills the registers. 5120x1024x7 in f32 takes 7.6 us, 12.8 by shallow, 5120x879x8 7.9, 13.5 by sm90. Of aligned rows
 * and D in 16 bits only a narrow one is its: 65536x64x8 takes 7.5, 20.6 by sm90, 128x65536x8 9.5, 11.0; but 8192x1024x8
 * 9.6, 9.2.
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
    return d->d == CKL_F32 || min_i64(d->m, d->n) <= NARROW ? CKL_OK : decline_aligned("outer", d);
}

static ckl_status admit_outer(const void *desc, const ckl_device_info *device, const void *config)
{
    (void)device;
    const ckl_gemm_desc *d = desc;
    const gemm_outer_config *c = config;
    TRY(check_types("outer", d, &c->epilogue));
    if (d->math == CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm outer: products of math=f32x3 are three of tf32");
    if (d->k < 1 || d->k > GEMM_OUTER_DEPTH_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm outer: k=%" PRId64 " is not in 1..%d", d->k, GEMM_OUTER_DEPTH_MAX);
    TRY(check_form("outer", d));
    if (c->depth != d->k)
        FAIL(CKL_INVALID, "gemm outer: depth=%d is not k=%" PRId64, c->depth, d->k);
    if (c->vec < 1 || c->vec > 8 || c->vec & (c->vec - 1) || c->vec > lane_vector_of(d))
        FAIL(CKL_INVALID, "gemm outer: vec=%d is no power of two up to %d", c->vec, lane_vector_of(d));
    if (c->vec_k < 1 || c->vec_k & (c->vec_k - 1) || c->vec_k > k_vector_of(d))
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
    const ckl_gemm_args *x = args;
    const int bytes = c->vec_k * (int)ckl_dtype_bytes(c->epilogue.ab);
    if (!PLAN_ALIGNED(bytes, x->a, x->b))
        FAIL(CKL_INVALID, "gemm outer: a=%p or b=%p is not aligned to %d bytes; config='vec_k=1' takes any alignment",
             x->a, x->b, bytes);
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

/* shallow */

/*
 * Fitted to the tiles that are chosen here, of 31 problems on an H200: 17 % off in the mean square
 * (bench/notes/gemm.md).
 */
static const struct {
    double launch_us; // before the first CTA and behind the last
    double step;      // instructions of a warp for 8 rows of A or B, of each 16 of K
    double element;   // for 32 elements of D
    double alone;     // what an access to single elements of C and D adds to that
} fit = { 1.56, 65.5, 26.3, 121 };

static int64_t shallow_ctas(const ckl_gemm_desc *d, const gemm_shallow_config *c)
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
    } else if (d->m > HALF && (d->d != CKL_F32 || (!d->c && gemm_operands_aligned(d)))) {
        c->tile_m = WIDE;
    } else if (d->m <= WIDE && d->d == CKL_F32) {
        c->warps_n = 2;
        c->tile_m = HALF / 2;
    }
}

/*
 * Of aligned rows it is for few K of a large D in 32 bits, of which sm90's boxes take longer than their bytes:
 * 3584x1664x24 takes 9.6 us, 12.4 by sm90; but 16640x384x32 with C 19.0, 16.2, 8192x128x16 4.0, 3.7.
 */
static bool suits_aligned(const ckl_gemm_desc *d)
{
    enum { K_MOST = 24, LARGE = 1 << 22 };
    return d->d == CKL_F32 && d->batch == 1 && d->k <= K_MOST && d->m * d->n >= LARGE;
}

static ckl_status choose_shallow(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_shallow_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->vec = vector_of(d);
    c->steps = steps_of(d);
    choose_tile(d, device->sm_count, c);
    return suits_aligned(d) ? CKL_OK : decline_aligned("shallow", d);
}

/* For those whose rival it is. */
static bool candidate_shallow(const void *desc, const ckl_device_info *device, int i, void *config)
{
    return i == 0 && choose_shallow(desc, device, config) == CKL_OK;
}

static plan_cost cost_shallow(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_shallow_config *c = config;
    const double operands = (double)(d->m + d->n) * (double)d->k * (double)ckl_dtype_bytes(d->a);
    const double lines = (c->tile_m * c->warps_n + c->tile_n * GEMM_SHALLOW_WARPS / c->warps_n) / 8.0;
    const double element = fit.element + (c->vec == 1 && c->tile_n > 8 ? fit.alone : 0);
    const double instructions = lines * c->steps * fit.step + (double)c->tile_m * c->tile_n / LANES * element;
    const double turns = fmax((double)shallow_ctas(d, c) / device->sm_count, 1);
    return cost_of(fit.launch_us, ((double)d->batch * operands + result_bytes(d)) / MEMORY_BYTES_PER_US,
                   turns * instructions / GEMM_SHALLOW_WARPS / CYCLES_PER_US);
}

static ckl_status check_config(const ckl_gemm_desc *d, const gemm_shallow_config *c)
{
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
    return CKL_OK;
}

/* A tile is whole atoms of its warps, and fits shared memory. */
static ckl_status check_tile(const gemm_shallow_config *c, const ckl_device_info *device)
{
    const int rows = STEP * GEMM_SHALLOW_WARPS / c->warps_n, columns = gemm_shallow_columns(c) * c->warps_n;
    if (c->tile_m < rows || c->tile_m % rows || c->tile_m > rows * GEMM_SHALLOW_ATOMS_MAX || c->tile_n < columns ||
        c->tile_n % columns || c->tile_n > columns * GEMM_SHALLOW_PARTS_MAX)
        FAIL(CKL_INVALID, "gemm shallow: tile %dx%d is not up to %d times %dx%d of its warps", c->tile_m, c->tile_n,
             GEMM_SHALLOW_ATOMS_MAX, rows, columns);
    if (gemm_shallow_smem(c) > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: a tile needs %" PRId64 " bytes of shared memory, %s has %" PRId64,
             gemm_shallow_smem(c), device->id, (int64_t)device->smem_per_cta_bytes);
    return CKL_OK;
}

static ckl_status admit_shallow(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_shallow_config *c = config;
    TRY(check_types("shallow", d, &c->epilogue));
    if (d->a == CKL_F32)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: tensor cores round f32");
    if (d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm shallow: k=0 leaves nothing to multiply");
    TRY(check_form("shallow", d));
    TRY(check_config(d, c));
    TRY(check_tile(c, device));
    return gemm_check_tiles("shallow", shallow_ctas(d, c));
}

static ckl_status launch_shallow(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const gemm_shallow_config *c = plan->config;
    TRY(gemm_check_result_vectors("shallow", args, c->vec * (int)ckl_dtype_bytes(c->epilogue.d)));
    return gemm_launch(plan, shallow_ctas(plan->desc, c), args, stream);
}

static const field shallow_fields[] = GEMM_FIELDS(gemm_shallow_config, GEMM_SHALLOW_CONFIG);

const implementation gemm_shallow_implementation = {
    IMPLEMENTATION_PARTS(gemm, shallow),
    .summary = "few K of 16 bits in rows that begin anywhere, by mma.sync; from sm_80 on",
    .candidate = candidate_shallow,
    .cost = cost_shallow,
    .rivals = { &gemm_pitched_implementation },
    .params = &gemm_param_list,
};
