/* gemm_fma_plan.c - the host side of the kernel that multiplies f32 without tensor cores. */
#include <string.h>

#include "operators/gemm/gemm_plan.h"

enum { THREADS_PER_SM = 1024 }; // with fewer than 64 registers a thread, a block does not fit

static int64_t tiles_of(const ckl_gemm_desc *d, const gemm_fma_config *c)
{
    return gemm_tiles(d, c->tile_m, c->tile_n);
}

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

/* Are rows of the epilogue's matrices whole quads? */
static bool is_whole(const ckl_gemm_desc *d)
{
    return d->n % GEMM_FMA_QUAD == 0 && gemm_results_aligned(d, TMA_ALIGNMENT);
}

static ckl_status choose_fma(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_fma_config *c = config;
    c->epilogue = gemm_epilogue_of(d);
    c->vec = vector_of(d);
    c->whole = is_whole(d);
    c->grouped = gemm_grouped_of(d);
    if (d->layout == CKL_GEMM_TN) { // 2581 us at 4096^3, 16 x 8 2640; of K-major operands 16 x 8 is faster
        c->block_m = 8;
        c->block_n = 16;
    }
    if (tiles_of(d, c) < device->sm_count) {
        c->tile_m = c->tile_n = 64;
        c->block_m = c->block_n = 8;
        c->ctas = 4;
    }
    if (c->tile_n == 64 && tiles_of(d, c) <= device->sm_count && !d->gated)
        c->block_n = 4; // for more warps: 112x3704x3328 takes 116 us, 163 with blocks of 8 x 8
    return CKL_OK;
}

/* Operands that are turned on their way slow the loop. */
static plan_cost cost_fma(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_fma_config *c = config;
    return gemm_product_cost(d, device,
                             (product_work){ .tiles = (double)tiles_of(d, c),
                                             .ctas = c->ctas,
                                             .steps = (double)ceil_div(d->k, c->depth),
                                             .multiply_adds = c->tile_m * c->tile_n * c->depth,
                                             .rate = d->layout == CKL_GEMM_TN ? 118 : 101,
                                             .step_cycles = 400,
                                             .tile_cycles = 2500 });
}

/* Does each thread get whole copies of an operand's tile, and not too many? */
static bool divides(const ckl_gemm_desc *d, const gemm_fma_config *c, char name)
{
    const int rows = name == 'a' ? c->tile_m : c->tile_n, threads = gemm_fma_threads(c);
    if (gemm_is_k_major(d, name))
        return threads % c->depth == 0 && rows % (threads / c->depth) == 0 &&
               rows * c->depth / threads <= GEMM_FMA_COPIES;
    return rows % c->vec == 0 && threads % (rows / c->vec) == 0 && c->depth % (threads / (rows / c->vec)) == 0;
}

static ckl_status admit_tile(const gemm_fma_config *c)
{
    enum { TILE_MAX = 1 << 17 }; // blocks of 128 for 1024 threads
    const int quad = GEMM_FMA_QUAD;
    if (c->block_m < quad || c->block_m % quad || c->block_n < quad || c->block_n % quad ||
        (int64_t)c->block_m * c->block_n > 128 || (c->epilogue.gated && c->block_n % (2 * quad)))
        FAIL(CKL_INVALID, "gemm fma: block %dx%d must be multiples of %d, at most 128 elements%s", c->block_m,
             c->block_n, quad, c->epilogue.gated ? ", and even of gated products" : "");
    if (c->tile_m < 1 || c->tile_n < 1 || c->tile_m % (c->block_m * GEMM_FMA_LANES_M) ||
        c->tile_n % (c->block_n * GEMM_FMA_LANES_N))
        FAIL(CKL_INVALID, "gemm fma: tile %dx%d is not whole warps of %dx%d blocks of %dx%d", c->tile_m, c->tile_n,
             GEMM_FMA_LANES_M, GEMM_FMA_LANES_N, c->block_m, c->block_n);
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
    if (d->a != CKL_F32 || d->math != CKL_GEMM_F32)
        FAIL(CKL_UNSUPPORTED, "gemm fma: a=f32 with math=f32 alone is multiplied without tensor cores");
    TRY(gemm_check_grouped("fma", d, c->grouped));
    TRY(admit_tile(c));
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
    const int64_t need = (int64_t)c->stages * c->depth * (c->tile_m + c->tile_n + 2 * GEMM_FMA_QUAD) * 4;
    TRY(gemm_check_smem("fma", device, c->stages, need));
    if (d->m > INT32_MAX || d->n > INT32_MAX / 2 || d->k > INT32_MAX || tiles_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm fma: a size, or their tiles, are beyond 32 bits");
    return CKL_OK;
}

static ckl_status check_alignment(const char *who, const ckl_gemm_desc *d, const gemm_fma_config *c,
                                  const ckl_gemm_args *x)
{
    TRY(gemm_check_operand_vectors(who, d, x, false, 4 * c->vec));
    if (c->whole && !d->pointers && !PLAN_ALIGNED(TMA_ALIGNMENT, x->c, x->d, x->x))
        FAIL(CKL_INVALID,
             "gemm %s: c=%p, d=%p or x=%p is not aligned to 16 bytes; config='whole=0' takes any alignment", who, x->c,
             x->d, x->x);
    return CKL_OK;
}

static ckl_status launch_fma(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    TRY(check_alignment("fma", plan->desc, plan->config, args));
    return gemm_launch(plan, tiles_of(plan->desc, plan->config), args, stream);
}

static const field fma_fields[] = GEMM_FIELDS(gemm_fma_config, GEMM_FMA_CONFIG);

const implementation gemm_fma_implementation = {
    IMPLEMENTATION_PARTS(gemm, fma),
    .cost = cost_fma,
    .summary = "f32 as it is: tiles by cp.async, blocks of D in registers; rows of any pitch; from sm_80 on",
    .params = &gemm_param_list,
};

/* turned: the same on M- and N-major operands, with four rows a copy; K-major ones are transposed first, in batches */

#define GEMM_TURNED_PARAMS(X, owner) GEMM_REPITCH_PARAMS(X, owner) GEMM_PARAMS(X, owner)

KERNEL_PARAMS(gemm_turned, GEMM_TURNED_PARAMS);
_Static_assert(sizeof(gemm_turned_params) - offsetof(gemm_turned_params, A) == sizeof(gemm_params), "ends with them");

static const double FLOPS_LEAST = 8e9; // smaller problems lose more by copies than they gain

static gemm_copies copies_of(const ckl_gemm_desc *d)
{
    gemm_copies x = { .from = *d, .to = *d };
    for (int i = 0; i < 2; i++)
        x.copied[i] = x.turned[i] = gemm_is_k_major(d, "ab"[i]);
    x.to.layout = CKL_GEMM_TN;
    gemm_place_copies(&x);
    return x;
}

static gemm_fma_config products_of(const gemm_fma_config *c)
{
    gemm_fma_config products = *c;
    products.epilogue.layout = CKL_GEMM_TN;
    return products;
}

static plan_cost cost_turned(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH = 2, COPIED = 2e6; // us; bytes a us
    const gemm_copies x = copies_of(desc);
    const gemm_fma_config products = products_of(config);
    plan_cost cost = cost_fma(&x.to, device, &products);
    cost.us += LAUNCH + (double)(gemm_copy_bytes(&x, 'a') + gemm_copy_bytes(&x, 'b')) / COPIED;
    return cost;
}

static ckl_status choose_turned(const void *desc, const ckl_device_info *device, void *config)
{
    const gemm_copies x = copies_of(desc);
    if (2 * gemm_multiply_adds(desc) < FLOPS_LEAST)
        FAIL(CKL_UNSUPPORTED, "gemm turned: copies cost more than they save in a problem of %g products",
             gemm_multiply_adds(desc));
    TRY(choose_fma(&x.to, device, config));
    ((gemm_fma_config *)config)->epilogue = gemm_epilogue_of(desc);
    return CKL_OK;
}

static ckl_status admit_turned(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_copies x = copies_of(d);
    const gemm_fma_config products = products_of(config);
    TRY(gemm_check_epilogue("turned", d, &((const gemm_fma_config *)config)->epilogue));
    if (d->layout == CKL_GEMM_TN)
        FAIL(CKL_UNSUPPORTED, "gemm turned: A and B lie as fma likes them already");
    TRY(gemm_check_in_order("turned", d));
    if (d->groups)
        FAIL(CKL_UNSUPPORTED, "gemm turned: groups=%" PRId64 " are multiplied by fma as they lie", d->groups);
    return admit_fma(&x.to, device, &products);
}

static int64_t workspace_turned(const ckl_plan *plan)
{
    const gemm_copies x = copies_of(plan->desc);
    return gemm_copies_bytes(&x);
}

static ckl_status launch_turned(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const gemm_fma_config *c = plan->config;
    const gemm_copies x = copies_of(plan->desc);
    const ckl_gemm_args copied = gemm_copied_args(plan, &x, args);
    TRY(check_alignment("turned", &x.to, c, &copied));
    TRY(gemm_launch_copies(plan, &x, args, &copied, stream));
    const gemm_params products = gemm_params_of(&x.to, &copied);
    gemm_turned_params p = { 0 };
    memcpy(&p.A, &products, sizeof products); // the list ends with these
    return plan_launch(plan, 0, (plan_grid){ .x = tiles_of(&x.to, c) }, &p, stream);
}

static void describe_turned(const void *config, int kernel)
{
    const gemm_fma_config products = products_of(config);
    if (kernel == 0)
        gemm_fma(&products, 0);
    else
        gemm_repitch(&products.epilogue);
}

const implementation gemm_turned_implementation = {
    .name = "turned",
    .summary = "fma behind a kernel that transposes K-major A and B; Hopper",
    .config_bytes = sizeof(gemm_fma_config),
    .config = FIELD_TABLE(fma_fields),
    .choose = choose_turned,
    .cost = cost_turned,
    .admit = admit_turned,
    .describe = describe_turned,
    .kernels = 2,
    .params = &gemm_turned_param_list,
    .target = IR_SM90A,
    .workspace_bytes = workspace_turned,
    .launch = launch_turned,
};
