/* gemm_fma_plan.c - the host side of the kernel that multiplies f32 without tensor cores. */
#include <string.h>

#include "base/math.h"
#include "operators/gemm/gemm_fma.h"
#include "operators/gemm/gemm_plan.h"

enum { THREADS_PER_SM = 1024 }; // with fewer than 64 registers a thread, a block does not fit

/* Tiles of D of all products; of groups the most possible, as each may end inside a tile. */
static int64_t tiles_of(const ckl_gemm_desc *d, const gemm_fma_config *c)
{
    const int64_t along_m = gemm_groups_of_m(d) ? d->m / c->tile_m + min_i64(d->m, d->groups)
                                                : gemm_products(d) * ceil_div(d->m, c->tile_m);
    return along_m * ceil_div(d->gated ? 2 * d->n : d->n, c->tile_n);
}

/* The longest vector in which operands that are not K-major can be read, in elements. */
static int vector_of(const ckl_gemm_desc *d)
{
    int vec = gemm_groups_of_m(d) && !gemm_k_major((choice)d->layout, 'a') ? 1 : 4; // groups begin at any row
    for (const char *x = "ab"; *x; x++)
        while (vec > 1 && !gemm_k_major((choice)d->layout, *x) &&
               (!gemm_rows_aligned(d, *x, vec * 4) || (*x == 'b' && d->gated && d->n % vec)))
            vec /= 2;
    return vec;
}

/* Are rows of the epilogue's matrices whole quads? */
static bool is_whole(const ckl_gemm_desc *d)
{
    const bool x = d->preactivation || gemm_is_backward((choice)d->activation);
    return d->n % GEMM_FMA_QUAD == 0 && gemm_rows_aligned(d, 'd', TMA_ALIGNMENT) &&
           (!d->c || gemm_rows_aligned(d, 'c', TMA_ALIGNMENT)) && (!x || gemm_rows_aligned(d, 'x', TMA_ALIGNMENT));
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
    if (gemm_k_major((choice)d->layout, name))
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
    if (need > device->smem_per_cta_bytes)
        FAIL(CKL_UNSUPPORTED, "gemm fma: %d stages need %" PRId64 " bytes of shared memory, %s has %" PRId64, c->stages,
             need, device->id, (int64_t)device->smem_per_cta_bytes);
    if (d->m > INT32_MAX || d->n > INT32_MAX / 2 || d->k > INT32_MAX || tiles_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm fma: a size, or their tiles, are beyond 32 bits");
    return CKL_OK;
}

static ckl_status check_alignment(const char *who, const ckl_gemm_desc *d, const gemm_fma_config *c,
                                  const ckl_gemm_args *x)
{
    const choice layout = (choice)d->layout;
    if (d->pointers) // aligned by contract
        return CKL_OK;
    if (!PLAN_ALIGNED(4 * c->vec, gemm_k_major(layout, 'a') ? NULL : x->a, gemm_k_major(layout, 'b') ? NULL : x->b))
        FAIL(CKL_INVALID, "gemm %s: a=%p or b=%p is not aligned to %d bytes; config='vec=1' takes any alignment", who,
             x->a, x->b, 4 * c->vec);
    if (c->whole && !PLAN_ALIGNED(TMA_ALIGNMENT, x->c, x->d, x->x))
        FAIL(CKL_INVALID,
             "gemm %s: c=%p, d=%p or x=%p is not aligned to 16 bytes; config='whole=0' takes any alignment", who, x->c,
             x->d, x->x);
    return CKL_OK;
}

static ckl_status launch_fma(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    TRY(check_alignment("fma", plan->desc, plan->config, args));
    const gemm_params params = gemm_params_of(plan->desc, args);
    return plan_launch(plan, 0, (plan_grid){ .x = tiles_of(plan->desc, plan->config) }, &params, stream);
}

static const field fma_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_fma_config, epilogue)) //
                                    GEMM_FMA_CONFIG(FIELD_ROW, gemm_fma_config) };

const implementation gemm_fma_implementation = {
    IMPLEMENTATION_PARTS(gemm, fma),
    .cost = cost_fma,
    .summary = "f32 as it is: tiles by cp.async, blocks of D in registers; rows of any pitch; from sm_80 on",
    .params = &gemm_param_list,
};

/* turned: the same on M- and N-major operands, with four rows a copy; K-major ones are transposed first */

static ckl_gemm_desc turned_desc(const ckl_gemm_desc *d)
{
    ckl_gemm_desc t = *d;
    struct {
        char name;
        int64_t *ld, *stride;
    } const matrices[] = { { 'a', &t.lda, &t.stride_a }, { 'b', &t.ldb, &t.stride_b } };
    t.layout = CKL_GEMM_TN;
    for (int i = 0; i < COUNT_OF(matrices); i++) {
        const gemm_matrix x = gemm_matrix_of(&t, matrices[i].name);
        if (!gemm_k_major((choice)d->layout, matrices[i].name))
            continue;
        *matrices[i].ld = round_up(x.cols, GEMM_PITCH_BYTES / (int64_t)sizeof(float));
        *matrices[i].stride = d->batch > 1 ? x.rows * *matrices[i].ld : 0;
    }
    return t;
}

static gemm_fma_config products_of(const gemm_fma_config *c)
{
    gemm_fma_config products = *c;
    products.epilogue.layout = CKL_GEMM_TN;
    return products;
}

/* Bytes of the copies of an operand: 0 where there is none. */
static int64_t copy_bytes(const ckl_gemm_desc *d, char name)
{
    const ckl_gemm_desc t = turned_desc(d);
    const gemm_matrix x = gemm_matrix_of(&t, name);
    return gemm_k_major((choice)d->layout, name) ? d->batch * x.rows * x.ld * (int64_t)sizeof(float) : 0;
}

static plan_cost cost_turned(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LAUNCH = 2, COPIED = 2e6; // us; bytes a us
    const ckl_gemm_desc *d = desc, turned = turned_desc(d);
    const gemm_fma_config products = products_of(config);
    plan_cost cost = cost_fma(&turned, device, &products);
    cost.us += LAUNCH + (double)(copy_bytes(d, 'a') + copy_bytes(d, 'b')) / COPIED;
    return cost;
}

static ckl_status choose_turned(const void *desc, const ckl_device_info *device, void *config)
{
    const ckl_gemm_desc *d = desc, turned = turned_desc(d);
    if (2.0 * (double)d->batch * (double)d->m * (double)d->n * (double)d->k < GEMM_TURNED_FLOPS)
        FAIL(CKL_UNSUPPORTED, "gemm turned: copies cost more than they save in a problem of %g products",
             (double)d->batch * (double)d->m * (double)d->n * (double)d->k);
    TRY(choose_fma(&turned, device, config));
    ((gemm_fma_config *)config)->epilogue = gemm_epilogue_of(d);
    return CKL_OK;
}

static ckl_status admit_turned(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc, turned = turned_desc(d);
    const gemm_fma_config products = products_of(config);
    TRY(gemm_check_epilogue("turned", d, &((const gemm_fma_config *)config)->epilogue));
    if (d->layout == CKL_GEMM_TN)
        FAIL(CKL_UNSUPPORTED, "gemm turned: A and B lie as fma likes them already");
    TRY(gemm_check_in_order("turned", d));
    if (d->groups)
        FAIL(CKL_UNSUPPORTED, "gemm turned: groups=%" PRId64 " are multiplied by fma as they lie", d->groups);
    return admit_fma(&turned, device, &products);
}

static int64_t workspace_turned(const ckl_plan *plan)
{
    return round_up(copy_bytes(plan->desc, 'a'), PLAN_WORKSPACE_ALIGNMENT) + copy_bytes(plan->desc, 'b');
}

/* Adds copy number i to a launch; returns its CTAs. */
static int64_t add_copy(gemm_turned_params *p, int i, const ckl_gemm_desc *d, char name, const void *from, void *to)
{
    const ckl_gemm_desc turned = turned_desc(d);
    const gemm_matrix x = gemm_matrix_of(d, name);
    p->from[i] = from;
    p->from_ld[i] = x.ld;
    p->from_stride[i] = x.stride;
    p->to[i] = to;
    p->to_ld[i] = gemm_matrix_of(&turned, name).ld;
    p->copy_rows[i] = x.rows;
    p->copy_length[i] = x.cols;
    p->turned[i] = 1;
    return d->batch * ceil_div(x.rows, GEMM_TURN_TILE) * ceil_div(x.cols, GEMM_TURN_TILE);
}

static ckl_status launch_turned(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc, turned = turned_desc(d);
    const gemm_fma_config *c = plan->config;
    ckl_gemm_args x = *(const ckl_gemm_args *)args;
    gemm_turned_params p = { 0 };
    char *to = plan_workspace(plan, x.workspace);
    int64_t ctas = 0, copies = 0;
    if (copy_bytes(d, 'a')) {
        ctas = add_copy(&p, (int)copies++, d, 'a', x.a, to);
        x.a = to;
        to += round_up(copy_bytes(d, 'a'), PLAN_WORKSPACE_ALIGNMENT);
    }
    p.second = (uint32_t)ctas;
    if (copy_bytes(d, 'b')) {
        ctas += add_copy(&p, (int)copies++, d, 'b', x.b, to);
        x.b = to;
    }
    p.second = copies == 1 ? (uint32_t)ctas : p.second;
    TRY(check_alignment("turned", &turned, c, &x));
    TRY(plan_launch(plan, 1, (plan_grid){ .x = ctas }, &p, stream));
    const gemm_params params = gemm_params_of(&turned, &x);
    memcpy(&p, &params, sizeof params); // both lists begin with these
    return plan_launch(plan, 0, (plan_grid){ .x = tiles_of(&turned, c) }, &p, stream);
}

static void describe_turned(const void *config, int kernel)
{
    const gemm_fma_config products = products_of(config);
    if (kernel == 0)
        gemm_fma(&products, 0);
    else
        gemm_repitch(&(gemm_sm90_config){ .epilogue = products.epilogue });
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
