/* gemm_fma_plan.c - the host side of the kernel that multiplies f32 without tensor cores. */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum {
    WARP = 32,
    THREADS_PER_SM = 1024, // with fewer than 64 registers a thread, a block does not fit
    PHASED_STAGES = 3      // one is multiplied, one completed, one written
};

/* The longest vector in which operands that are not K-major can be read, in elements. */
static int vector_of(const ckl_gemm_desc *d)
{
    int vec = gemm_groups_of_m(d) && !gemm_is_k_major(d, 'a') ? 1 : 4; // groups begin at any row
    for (const char *x = "ab"; *x; x++)
        while (vec > 1 && !gemm_is_k_major(d, *x) &&
               (!gemm_rows_aligned(d, *x, vec * 4) || (*x == 'b' && d->gated && d->n % vec)))
            vec /= 2;
    return vec;
}

/* Do rows of a K-major operand begin or end inside quads? */
static bool is_phased(const ckl_gemm_desc *d)
{
    return (d->k % GEMM_FMA_QUAD || gemm_vector_of(d) != GEMM_FMA_QUAD) && d->layout != CKL_GEMM_TN;
}

/* Are rows of the epilogue's matrices whole quads? */
static bool is_whole(const ckl_gemm_desc *d)
{
    return d->n % GEMM_FMA_QUAD == 0 && gemm_results_aligned(d, TMA_ALIGNMENT);
}

/*
 * Tiles in their order: those that a CTA computes alone, and those of `slices` CTAs, whose sums a second kernel adds.
 */
typedef struct tile_turns {
    int64_t whole, shared;
    int slices;
    int64_t slice_k; // elements of K of a slice but for the last
} tile_turns;

/* From runs on an H200 (bench/notes/gemm.md): cycles, but for the launch. */
static const struct {
    double launch_us;
    double fma, load;           // of 128 multiply-adds; of a warp's load from shared memory
    double along[2], across[2]; // of 32 elements copied: of K-major operands or not, singly or in vectors
    double hidden;              // the part of the shorter of both, multiply-adds and accesses, that is seen
    double alone, latency;      // a lone CTA: of a step, and of each row or column of a block, but multiply-adds
    double cta, stored;         // before and behind the steps of each CTA of an SM; for 128 elements of D
    double group[2];            // to add the sums of another group of threads, of D singly or in vectors
    double merge, merged;       // of the second kernel; bytes of slices in a cycle
    double missing;             // work's growth where warps are missing, of what hides all
} fit = { 1.1, 1.07, 1.13, { 6.3, 4.5 }, { 10.7, 4.0 }, 0.43, 220, 2.83, 850, 22.4, { 2490, 1010 }, 3430, 13.7, 0.16 };

/* Of an SM, for a step of each CTA: multiply-adds beside accesses to shared memory. */
static double step_cycles(const gemm_fma_config *c)
{
    const double warps = gemm_fma_threads(c) / c->groups_k / WARP;
    double accesses = warps * fit.load * (c->block_m + c->block_n) / GEMM_FMA_QUAD;
    for (const char *x = "ab"; *x; x++) {
        const bool k_major = gemm_k_major(c->epilogue.layout, *x);
        const double copy = k_major ? fit.along[c->vec_k > 1] : fit.across[c->vec > 1];
        accesses += (double)(*x == 'a' ? c->tile_m : c->tile_n) / WARP * copy;
    }
    const double fmas = fit.fma * c->tile_m * c->tile_n / 128;
    return c->groups_k * c->depth * fmax(fmas + fit.hidden * accesses, accesses + fit.hidden * fmas);
}

/* Two at once, of which the shorter one hides but for a part. */
static double beside(double a, double b)
{
    return cbrt(pow(a, 3) + pow(b, 3));
}

/* Of so many CTAs at once, on SMs that have `most` of them: full ones hide latency, others in part. */
static double wave_cycles(const gemm_fma_config *c, int64_t most, int64_t steps)
{
    const double ALL = 512, missing = fmax(0, 1 - (double)most * gemm_fma_threads(c) / ALL); // threads that hide all
    const double alone =
        fit.alone + c->depth * (fit.fma * c->tile_m * c->tile_n / 128 + fit.latency * (c->block_m + c->block_n));
    const double work = (double)most * step_cycles(c) * (1 + fit.missing * missing);
    if (most == c->ctas)
        return (double)steps * fmax(alone, work);
    return most ? (double)steps * beside(alone, work) : 0;
}

/* CTAs come in waves that fill all SMs, but for the last, which spreads over them; slices follow whole tiles. */
static double waves_cycles(const gemm_fma_config *c, const tile_turns *t, int64_t sms, int64_t steps, int64_t of_slice)
{
    const int64_t room = c->ctas * sms, slices = t->shared * t->slices, count = t->whole % room + slices;
    const int64_t of_each = slices ? of_slice : steps;
    return (double)(t->whole / room) * wave_cycles(c, c->ctas, steps) +
           (double)(count / room) * wave_cycles(c, c->ctas, of_each) +
           wave_cycles(c, ceil_div(count % room, sms), of_each);
}

static const double BYTES_PER_US = 4e6; // of memory

/* Memory's time of A and B that is not hidden: of the K tiles that are loaded before a CTA's first step. */
static double first_loads_us(const ckl_gemm_desc *d, const gemm_fma_config *c, int64_t k)
{
    const double AHEAD = 2;
    const double operands = 4.0 * (double)(d->m + gemm_columns_of_B(d)) * (double)d->k * (double)gemm_products(d);
    return operands / BYTES_PER_US * fmin(1, AHEAD / (double)max_i64(ceil_div(k, gemm_fma_step(c)), 1));
}

static plan_cost turns_cost(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_fma_config *c,
                            const tile_turns *t)
{
    const int64_t ctas = max_i64(t->whole + t->shared * t->slices, 1), of_sm = ceil_div(ctas, device->sm_count);
    const double cycles =
        waves_cycles(c, t, device->sm_count, ceil_div(d->k, gemm_fma_step(c)), ceil_div(t->slice_k, gemm_fma_step(c))) +
        fit.group[c->whole] * (c->groups_k - 1) * (double)ceil_div(of_sm, c->ctas) +
        (double)of_sm * (fit.cta + fit.stored * c->tile_m * c->tile_n / 128);
    const double us = cycles / device->clock_mhz, memory = gemm_least_bytes(d) / BYTES_PER_US;
    const double first = first_loads_us(d, c, t->shared ? t->slice_k : d->k);
    plan_cost cost = { fit.launch_us + beside(us, memory) + first, us < memory ? "memory" : "multiply-adds" };
    if (t->shared) {
        const double bytes = 4.0 * t->slices * c->tile_m * c->tile_n / c->block_m; // of a CTA that adds
        cost.us += (fit.merge + (double)ceil_div(t->shared * c->block_m, device->sm_count) * bytes / fit.merged) /
                   device->clock_mhz;
    }
    return cost;
}

/* Tiles that share out K: those beyond waves of CTAs that fill all SMs. */
static int64_t shared_tiles(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_fma_config *c)
{
    return c->sliced ? gemm_tiles(d, c->tile_m, c->tile_n) % (c->ctas * device->sm_count) : 0;
}

/* Tiles of which some are cut into so many slices, or fewer where steps do not divide. */
static tile_turns cut_turns(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_fma_config *c,
                            int64_t slices)
{
    tile_turns t = { .whole = gemm_tiles(d, c->tile_m, c->tile_n) };
    t.slice_k = max_i64(round_up(ceil_div(d->k, slices), gemm_fma_step(c)), gemm_fma_step(c));
    t.slices = (int)max_i64(ceil_div(d->k, t.slice_k), 1);
    t.shared = t.slices > 1 ? shared_tiles(d, device, c) : 0;
    t.whole -= t.shared;
    return t;
}

/* Into as many as take the least time. */
static tile_turns turns_of(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_fma_config *c)
{
    enum { SLICES_MOST = 64, K_LEAST = 32, TURNS_MOST = 4 };
    tile_turns best = cut_turns(d, device, c, 1);
    const int64_t ctas = TURNS_MOST * device->sm_count * c->ctas;
    const int64_t shared = shared_tiles(d, device, c);
    const int64_t most = shared ? min_i64(min_i64(SLICES_MOST, d->k / K_LEAST), ctas / shared) : 1;
    double least = turns_cost(d, device, c, &best).us;
    for (int64_t slices = 2; slices <= most; slices++) {
        const tile_turns t = cut_turns(d, device, c, slices);
        const double us = turns_cost(d, device, c, &t).us;
        if (us < least) {
            least = us;
            best = t;
        }
    }
    return best;
}

/* Does each thread get whole copies of an operand's tile, and not too many? */
static bool divides(const ckl_gemm_desc *d, const gemm_fma_config *c, char name)
{
    const int rows = name == 'a' ? c->tile_m : c->tile_n, threads = gemm_fma_threads(c) / c->groups_k;
    if (gemm_is_k_major(d, name)) {
        const int across = c->depth / c->vec_k, at_once = across ? threads / across : 0;
        return across && c->depth % c->vec_k == 0 && threads % across == 0 &&
               (!c->phased || at_once % GEMM_FMA_QUAD == 0) && rows / at_once <= GEMM_FMA_COPIES &&
               (rows % at_once == 0 || rows < at_once);
    }
    return rows % c->vec == 0 && threads % (rows / c->vec) == 0 && c->depth % (threads / (rows / c->vec)) == 0;
}

/* Tiles whose threads share out copies evenly; the last two not of phased rows and of lists, which would spill. */
#define TILE(m, n, bm, bn, lanes, k, ring, groups, room)                                                      \
    {                                                                                                         \
        .tile_m = m, .tile_n = n, .block_m = bm, .block_n = bn, .lanes_m = lanes, .depth = k, .stages = ring, \
        .groups_k = groups, .ctas = room                                                                      \
    }
static const gemm_fma_config tiles[] = { TILE(128, 64, 8, 8, 4, 16, 3, 1, 3),  TILE(64, 128, 8, 8, 4, 16, 3, 1, 3),
                                         TILE(64, 64, 8, 4, 4, 16, 3, 1, 4),   TILE(32, 128, 8, 4, 4, 16, 3, 1, 4),
                                         TILE(128, 32, 8, 4, 4, 16, 3, 1, 4),  TILE(16, 128, 4, 4, 4, 32, 3, 1, 3),
                                         TILE(128, 16, 4, 4, 8, 32, 3, 1, 3),  TILE(32, 64, 8, 4, 4, 16, 2, 4, 2),
                                         TILE(128, 128, 8, 8, 4, 16, 3, 1, 2), TILE(128, 96, 8, 12, 4, 16, 3, 1, 3),
                                         TILE(96, 128, 12, 8, 4, 16, 3, 1, 3) };

static bool candidate_fma(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { DEPTH_LEAST = 8, SHORT_K = 128, DEEP_K = 640, FULL = 256, SMALL = 32 };
    const ckl_gemm_desc *d = desc;
    gemm_fma_config *c = config;
    if (i >= COUNT_OF(tiles) - (is_phased(d) || d->gather ? 2 : 0))
        return false;
    *c = tiles[i];
    c->epilogue = gemm_epilogue_of(d);
    c->whole = is_whole(d);
    c->grouped = gemm_grouped_of(d);
    const bool is_full = c->groups_k == 1 && gemm_fma_threads(c) == FULL; // without a register for anything else
    c->phased = is_phased(d) && is_full && d->k > DEEP_K && !d->gather && !d->gated;
    c->vec_k = is_phased(d) && !c->phased ? 1 : GEMM_FMA_QUAD;
    const bool elements = c->vec_k == 1 || (c->groups_k > 1 && vector_of(d) == 1); // whose addresses fill registers
    const bool is_short = c->depth == 2 * DEPTH_LEAST && d->k <= SHORT_K &&
                          gemm_tiles(d, c->tile_m, c->tile_n) > device->sm_count; // lone CTAs wait at each step
    const bool is_plain = d->layout == CKL_GEMM_NT && !gemm_is_backward((choice)d->activation) && !d->gated &&
                          !d->gather && !d->groups && !d->pointers;
    if (c->depth > DEPTH_LEAST && (elements || d->k <= c->depth / 2 || is_short || (is_full && !is_plain)))
        c->depth /= 2;
    const bool is_vector = c->vec_k == GEMM_FMA_QUAD && vector_of(d) == GEMM_FMA_QUAD && c->whole;
    if (is_vector && is_short && c->groups_k == 1 && c->block_m * c->block_n <= SMALL)
        c->ctas++; // short steps leave registers for one more: 10240x128x112 14.8 us by four, 12.2 by five
    for (c->vec = vector_of(d); c->vec > 1 && (!divides(d, c, 'a') || !divides(d, c, 'b')); c->vec /= 2)
        ;
    c->sliced = !d->groups && !d->batch_invariant;
    c->sliced = turns_of(d, device, c).shared > 0;
    return true;
}

static plan_cost cost_fma(const void *desc, const ckl_device_info *device, const void *config)
{
    const tile_turns t = turns_of(desc, device, config);
    return turns_cost(desc, device, config, &t);
}

static ckl_status admit_tile(const gemm_fma_config *c)
{
    enum { TILE_MAX = 1 << 17 }; // blocks of 128 for 1024 threads
    const int quad = GEMM_FMA_QUAD;
    if (c->block_m < quad || c->block_m % quad || c->block_n < quad || c->block_n % quad ||
        (int64_t)c->block_m * c->block_n > GEMM_FMA_BLOCK_MAX || (c->epilogue.gated && c->block_n % (2 * quad)))
        FAIL(CKL_INVALID, "gemm fma: block %dx%d must be multiples of %d, at most 128 elements%s", c->block_m,
             c->block_n, quad, c->epilogue.gated ? ", and even of gated products" : "");
    if (c->groups_k < 1 || c->groups_k > 8)
        FAIL(CKL_INVALID, "gemm fma: groups_k=%d is not in 1..8", c->groups_k);
    if (c->lanes_m < 2 || c->lanes_m > WARP / 2 || !is_power_of_two(c->lanes_m))
        FAIL(CKL_INVALID, "gemm fma: lanes_m=%d is no power of two in 2..%d", c->lanes_m, WARP / 2);
    if (c->tile_m < 1 || c->tile_n < 1 || c->tile_m % (c->block_m * c->lanes_m) ||
        c->tile_n % (c->block_n * (WARP / c->lanes_m)))
        FAIL(CKL_INVALID, "gemm fma: tile %dx%d is not whole warps of %dx%d blocks of %dx%d", c->tile_m, c->tile_n,
             c->lanes_m, WARP / c->lanes_m, c->block_m, c->block_n);
    if ((int64_t)c->tile_m * c->tile_n > TILE_MAX)
        FAIL(CKL_INVALID, "gemm fma: tile %dx%d has more than %d elements", c->tile_m, c->tile_n, TILE_MAX);
    if (c->stages < 2 || c->stages > 8 || c->depth < 2 || c->depth > 32 || c->depth % 2)
        FAIL(CKL_INVALID, "gemm fma: stages=%d is not in 2..8, or depth=%d not even in 2..32", c->stages, c->depth);
    if (c->vec != 1 && c->vec != 2 && c->vec != 4)
        FAIL(CKL_INVALID, "gemm fma: vec=%d is none of 1, 2, 4", c->vec);
    return CKL_OK;
}

static ckl_status admit_fma(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_fma_config *c = config;
    TRY(gemm_check_epilogue("fma", d, &c->epilogue));
    TRY(gemm_check_same_types("fma", d));
    if (d->a != CKL_F32 || d->math == CKL_GEMM_F32X3 || (d->math == CKL_GEMM_TF32 && d->batch_invariant))
        FAIL(CKL_UNSUPPORTED, "gemm fma: a=f32 alone is multiplied without tensor cores, with math=f32, or tf32 "
                              "without batch_invariant=1");
    TRY(gemm_check_grouped("fma", d, c->grouped));
    TRY(admit_tile(c));
    if (d->m > INT32_MAX || d->n > INT32_MAX / 2 || d->k > INT32_MAX || gemm_tiles(d, c->tile_m, c->tile_n) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm fma: a size, or their tiles, are beyond 32 bits");
    if (c->vec_k == GEMM_FMA_QUAD ? !c->phased && is_phased(d) : c->vec_k != 1)
        FAIL(CKL_UNSUPPORTED, "gemm fma: vec_k=%d is not 1, or rows along K are not whole quads", c->vec_k);
    if (c->phased && (c->vec_k == 1 || c->groups_k > 1 || c->stages < PHASED_STAGES || !gemm_fma_is_tight(c) ||
                      d->gather || d->gated))
        FAIL(CKL_UNSUPPORTED,
             "gemm fma: phased=1 is of vec_k=%d and %d stages, with few registers for sums, without "
             "groups_k, gather and gated",
             GEMM_FMA_QUAD, PHASED_STAGES);
    const int threads = gemm_fma_threads(c);
    if (c->ctas < 1 || threads > device->threads_per_cta_max || c->ctas * threads > THREADS_PER_SM)
        FAIL(CKL_INVALID, "gemm fma: ctas=%d of %d threads are not in 1..%d threads of an SM", c->ctas, threads,
             THREADS_PER_SM);
    for (const char *x = "ab"; *x; x++)
        if (!divides(d, c, *x))
            FAIL(CKL_INVALID, "gemm fma: %d threads do not share out stages of %d elements of K of %c evenly", threads,
                 c->depth, *x);
    if (c->vec > vector_of(d))
        FAIL(CKL_UNSUPPORTED, "gemm fma: rows of A and B start at multiples of %d elements, vec=%d wants more",
             vector_of(d), c->vec);
    if (c->whole && !is_whole(d))
        FAIL(CKL_UNSUPPORTED, "gemm fma: rows of C, D or X are not whole vectors of 16 bytes: whole=0 stores elements");
    const int64_t handed = c->whole ? 0 : 2 * 4 * threads * c->block_n; // quads, with their padding, behind the ring
    const int64_t ring = 4 * (int64_t)c->stages * (gemm_fma_stage(c, c->tile_m) + gemm_fma_stage(c, c->tile_n));
    const int64_t need = c->groups_k * ring + 4 * (c->groups_k - 1) * (int64_t)c->tile_m * c->tile_n + handed;
    TRY(gemm_check_smem("fma", device, c->stages, need));
    if ((c->sliced && d->groups) || ((c->sliced || c->groups_k > 1) && d->batch_invariant))
        FAIL(CKL_UNSUPPORTED, "gemm fma: sliced=1 is not of groups, nor its sums and groups_k's of batch_invariant=1");
    return CKL_OK;
}

static ckl_status check_alignment(const ckl_gemm_desc *d, const gemm_fma_config *c, const ckl_gemm_args *x)
{
    TRY(gemm_check_operand_vectors("fma", d, x, false, "vec", 4 * c->vec));
    if (c->vec_k == GEMM_FMA_QUAD && !c->phased)
        TRY(gemm_check_operand_vectors("fma", d, x, true, "vec_k", TMA_ALIGNMENT));
    if (c->whole && !d->pointers && !PLAN_ALIGNED(TMA_ALIGNMENT, x->c, x->d, x->x))
        FAIL(CKL_INVALID,
             "gemm fma: c=%p, d=%p or x=%p is not aligned to 16 bytes; config='whole=0' takes any alignment", x->c,
             x->d, x->x);
    return CKL_OK;
}

/* Bytes of the sums of a slice of each shared tile. */
static int64_t slice_bytes(int64_t shared, const gemm_fma_config *c)
{
    return 4 * shared * c->tile_m * c->tile_n;
}

static int64_t workspace_fma(const ckl_plan *plan)
{
    const gemm_fma_config *c = plan->config;
    const tile_turns t = turns_of(plan->desc, &plan->device->info, c);
    return t.slices * slice_bytes(t.shared, c);
}

/* Enqueues products, and what adds their slices, whose number the workspace tells. */
static ckl_status launch_fma(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const gemm_fma_config *c = plan->config;
    const ckl_gemm_args *x = args;
    TRY(check_alignment(d, c, x));
    const int64_t bytes = plan->own_workspace_bytes, shared = shared_tiles(d, &plan->device->info, c);
    const tile_turns t = cut_turns(d, &plan->device->info, c, bytes ? bytes / slice_bytes(shared, c) : 1);
    gemm_params p = gemm_params_of(d, x);
    p.whole = (uint32_t)t.whole;
    p.slices = (uint32_t)t.slices;
    p.slice_k = t.slice_k;
    p.parts = plan_workspace(plan, x->workspace);
    const int64_t ctas = t.whole + t.shared * t.slices;
    p.alone = 2 * ctas > (int64_t)c->ctas * plan->device->info.sm_count; // the next one's would crowd some SMs
    TRY(plan_launch(plan, 0, (plan_grid){ .x = ctas }, &p, stream));
    return t.shared ? plan_launch(plan, 1, (plan_grid){ .x = t.shared * c->block_m }, &p, stream) : CKL_OK;
}

static int kernels_fma(const void *config)
{
    return ((const gemm_fma_config *)config)->sliced ? 2 : 1;
}

static const field fma_fields[] = GEMM_FIELDS(gemm_fma_config, GEMM_FMA_CONFIG);

const implementation gemm_fma_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(gemm, fma),
    .candidate = candidate_fma,
    .cost = cost_fma,
    .rivals = { &gemm_tiled_implementation },
    .summary = "f32 as it is: tiles by cp.async, blocks of D in registers; rows of any pitch; from sm_80 on",
    .kernels = 2,
    .kernels_of = kernels_fma,
    .params = &gemm_param_list,
    .workspace_bytes = workspace_fma,
};
