/* gemm_splitk_plan.c - the host side of K in slices: where it is cheaper than one product, and its two launches. */
#include <math.h>

#include "operators/gemm/gemm_plan.h"
#include "operators/gemm/gemm_splitk.h"

/* A candidate tile; tile_n=0: all columns of D^T. */
typedef struct sliced_tile {
    int tile_m, tile_n, consumers, cluster_m, cluster_n;
} sliced_tile;

static const sliced_tile tiles[] = { { 64, 128, 1, 1, 1 },  { 64, 192, 1, 1, 1 },  { 64, 96, 1, 1, 1 },
                                     { 64, 0, 1, 1, 1 },    { 128, 192, 2, 2, 1 }, { 128, 256, 2, 2, 1 },
                                     { 192, 192, 3, 1, 1 }, { 128, 128, 2, 2, 1 }, { 128, 128, 2, 1, 1 },
                                     { 192, 128, 3, 1, 2 } };

enum { EVEN_TILES = 8, DEEP_STEPS = 256 }; // along K, of each SM

/* Elements between rows of the sums of a slice. */
static int64_t sums_pitch(const ckl_gemm_desc *d)
{
    return round_up(d->n, GEMM_SPLITK_COLUMNS);
}

/* The products: a batch of so many slices of K, f32. The last slice may be shorter; TMA fills it with zeros. */
static ckl_gemm_desc products_of(const ckl_gemm_desc *d, int count)
{
    ckl_gemm_desc p = *d;
    const int step = gemm_tile_k(d->a);
    p.k = p.stride_a = p.stride_b = ceil_div(ceil_div(d->k, step), count) * step;
    p.batch = count;
    p.d = CKL_F32;
    p.c = CKL_DTYPE_DEFAULT;
    p.bias = false;
    p.bias_gradient = CKL_GEMM_SUMS_NONE;
    p.activation = CKL_ACTIVATION_IDENTITY;
    p.epilogue = NULL;
    p.ldc = p.stride_c = 0;
    p.ldd = sums_pitch(d);
    p.stride_d = d->m * p.ldd;
    return p;
}

gemm_sm90_config gemm_splitk_products(const gemm_splitk_config *c)
{
    gemm_sm90_config products = c->products;
    const gemm_epilogue *e = &c->products.epilogue;
    products.epilogue = (gemm_epilogue){
        .ab = e->ab, .b = e->b, .math = e->math, .accumulation = e->accumulation, .layout = e->layout, .d = CKL_F32
    };
    return products;
}

/* Elements of D that a thread stores at once. */
static int vector_of(const ckl_gemm_desc *d)
{
    return gemm_results_aligned(d, TMA_ALIGNMENT) ? GEMM_SPLITK_COLUMNS : 1;
}

/* Squares of 128 want few slices: 512x512x16384 takes 19.9 us in them, 17.2 in 64x128; 640x640x10240 18.2 and 18.7. */
enum { SQUARES_FEWEST = 24 };

/* A tile of the table; 0 columns are refused. */
static void set_tile(const sliced_tile *t, const ckl_gemm_desc *d, gemm_sm90_config *c)
{
    c->tile_m = t->tile_m;
    c->swap = t->tile_n == 0;
    const bool few = t->tile_m == 128 && t->tile_n == 128 && gemm_tiles(d, 128, 128) < SQUARES_FEWEST;
    c->tile_n = few ? 0 : c->swap ? gemm_sm90_swapped_columns(d->m, true) : t->tile_n;
    c->consumers = t->consumers;
    c->cluster_m = t->cluster_m;
    c->cluster_n = t->cluster_n;
}

/*
 * Tiles of 128 rows that end with the columns of D, or of D^T: as few as there can be along them, or some more.
 * 1792x408x16384 takes 49.9 us in 128x144, 58.3 in 128x128; 783x1024x28672 77.9 as D^T of 128x160, 89.7 in 128x128.
 * More tiles than SMs are faster in one product: 904x10240x16384 takes 485 us in slices, 427 without.
 */
static void set_even_tile(int i, const ckl_gemm_desc *d, const ckl_device_info *device, gemm_sm90_config *c)
{
    enum { ROWS = 128, WIDEST = 256, NARROWEST = 96, STEP = 16 };
    c->consumers = 2;
    c->swap = i % 2;
    c->tile_m = ROWS;
    c->cluster_m = c->cluster_n = 1;
    const int64_t rows = c->swap ? d->n : d->m, columns = max_i64(c->swap ? d->m : d->n, 1);
    const int64_t across = ceil_div(columns, WIDEST) + i / 2, count = ceil_div(rows, ROWS) * across;
    const int64_t sm_count = device->sm_count;
    const bool deep = gemm_k_tiles(d) * count >= DEEP_STEPS * sm_count; // sums are little beside each SM's steps
    c->tile_n = (int)round_up(ceil_div(columns, across), STEP);
    if (c->tile_n < NARROWEST || c->tile_n == ROWS || count > sm_count || !(deep || count >= SQUARES_FEWEST))
        c->tile_n = 0; // squares are in the table
    gemm_sm90_share_operands(d, c, device);
}

static bool candidate_splitk(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_splitk_config *c = config;
    gemm_sm90_config *p = &c->products;
    if (i >= EVEN_TILES + COUNT_OF(tiles))
        return false;
    c->vec = vector_of(d);
    p->split = 1;
    if (i < EVEN_TILES)
        set_even_tile(i, d, device, p);
    else
        set_tile(&tiles[i - EVEN_TILES], d, p); // where none can compute, the last one says why
    p->batched = GEMM_SLICES_OF_K;
    p->ragged = d->n * (int64_t)sizeof(float) % TMA_ALIGNMENT != 0;
    p->epilogue = gemm_epilogue_of(d);
    gemm_sm90_config products = gemm_splitk_products(c);
    gemm_sm90_fit_memory(&products, gemm_k_tiles(d), device);
    p->stages = products.stages;
    p->buffers = products.buffers;
    return true;
}

/* The cost of the products, and of the sums' way to memory (mostly L2) and back. */
static plan_cost cost_of(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_splitk_config *c, int slices)
{
    const gemm_sm90_config products = gemm_splitk_products(c);
    const ckl_gemm_desc sliced = products_of(d, slices);
    plan_cost cost = gemm_sm90_cost(&sliced, device, &products);
    enum { FITTED = 2 };         // rounds of loads, each of which waits for the one before it
    const double ROUND_US = 0.8; // of more
    const int rounds = (slices + GEMM_SPLITK_AT_ONCE - 1) / GEMM_SPLITK_AT_ONCE;
    cost.us += gemm_sm90_sum_us((double)slices * (double)d->m * (double)sliced.ldd * sizeof(float));
    cost.us += ROUND_US * (rounds > FITTED ? rounds - FITTED : 0);
    return cost;
}

/* The config's, or as many as cost least. The kernels take any number. */
static int choose_slices(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_splitk_config *c)
{
    if (c->slices)
        return c->slices;
    enum { TURNS = 3, STEPS_LEAST = 12 }; // more turns are even enough, fewer steps less than their sum
    const int64_t steps = gemm_k_tiles(d);
    const int64_t rows = c->products.swap ? d->n : d->m, cols = c->products.swap ? d->m : d->n;
    const int64_t count = ceil_div(rows, c->products.tile_m) * ceil_div(cols, max_i64(c->products.tile_n, 1));
    const int64_t most =
        min_i64(min_i64(GEMM_SPLITK_SLICES_MAX, steps / STEPS_LEAST), TURNS * device->sm_count / count);
    int best = 2;
    double least = cost_of(d, device, c, best).us;
    for (int slices = 3; slices <= most; slices++) {
        double us = cost_of(d, device, c, slices).us;
        best = us < least ? slices : best;
        least = fmin(us, least);
    }
    return best;
}

static plan_cost cost_splitk(const void *desc, const ckl_device_info *device, const void *config)
{
    return cost_of(desc, device, config, choose_slices(desc, device, config));
}

/* Is it one product, of which f32 sums may be added, with an epilogue that the second kernel has? */
static ckl_status admit_problem(const ckl_gemm_desc *d)
{
    if (d->gated || d->bias_along || d->scale_a || d->scale_b || d->scale_d || d->weighted || gemm_is_f8(d->d) ||
        d->device_scalars || gemm_has_x(d))
        FAIL(CKL_UNSUPPORTED, "gemm splitk: slices are of products with alpha, C, a bias of columns and an activation");
    if (d->math == CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm splitk: operands of math=f32x3 are split first, by impl=f32x3");
    if (d->a == CKL_I8)
        FAIL(CKL_UNSUPPORTED, "gemm splitk: f32 is added, sums of i8 are i32");
    if (d->batch_invariant)
        FAIL(CKL_UNSUPPORTED, "gemm splitk: sums of slices are not those of batch_invariant=1");
    TRY(gemm_check_in_order("splitk", d));
    if (d->groups)
        FAIL(CKL_UNSUPPORTED, "gemm splitk: slices are of one product, not of groups=%" PRId64, d->groups);
    if (d->batch > 1)
        FAIL(CKL_UNSUPPORTED, "gemm splitk: batch=%" PRId64 " products have tiles enough", d->batch);
    return CKL_OK;
}

static ckl_status admit_splitk(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_splitk_config *c = config;
    TRY(gemm_check_epilogue("splitk", d, &c->products.epilogue));
    TRY(admit_problem(d));
    if (c->slices == 1 || c->slices < 0 || c->slices > GEMM_SPLITK_SLICES_MAX)
        FAIL(CKL_INVALID, "gemm splitk: slices=%d is not 0 or in 2..%d", c->slices, GEMM_SPLITK_SLICES_MAX);
    if (c->products.batched != GEMM_SLICES_OF_K)
        FAIL(CKL_INVALID, "gemm splitk: batched=%d, slices of K are %d", c->products.batched, GEMM_SLICES_OF_K);
    if (c->vec != 1 && (c->vec != GEMM_SPLITK_COLUMNS || vector_of(d) == 1))
        FAIL(CKL_INVALID, "gemm splitk: vec=%d is not 1, or rows of C and D do not start at whole 16 bytes", c->vec);
    if (d->m * sums_pitch(d) / GEMM_SPLITK_COLUMNS > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm splitk: %" PRId64 "x%" PRId64 " sums are more than one launch adds", d->m, d->n);
    const ckl_gemm_desc halves = products_of(d, 2);
    const gemm_sm90_config products = gemm_splitk_products(c);
    TRY(gemm_sm90_admit(&halves, device, &products)); // before its cost is asked for
    const int slices = c->slices ? c->slices : 2;     // more of them are chosen where there are as many tiles
    if (gemm_k_tiles(d) < slices)
        FAIL(CKL_UNSUPPORTED, "gemm splitk: k=%" PRId64 " has fewer tiles of %d than slices=%d", d->k,
             gemm_tile_k(d->a), slices);
    return CKL_OK;
}

/* The sums of one slice. */
static int64_t bytes_of_slice(const ckl_gemm_desc *d)
{
    return d->m * sums_pitch(d) * (int64_t)sizeof(float);
}

static int64_t workspace_splitk(const ckl_plan *plan)
{
    const int slices = choose_slices(plan->desc, &plan->device->info, plan->config);
    return slices * bytes_of_slice(plan->desc);
}

/* Derived from the size of the workspace. */
static int slices_of(const ckl_plan *plan)
{
    return (int)(plan->own_workspace_bytes / bytes_of_slice(plan->desc));
}

/* The second kernel gets the sums as its A. */
static ckl_status launch_sum(const ckl_plan *plan, const ckl_gemm_args *x, const void *sums, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    const gemm_pitched_params params = { GEMM_PARAMS_OF_CALL(d, x), .m = (uint32_t)d->m,
                                         .n = (uint32_t)d->n,       .a = sums,
                                         .lda = sums_pitch(d),      .batch = (uint32_t)slices_of(plan) };
    int64_t threads = d->m * sums_pitch(d) / GEMM_SPLITK_COLUMNS;
    return plan_launch(plan, 1, (plan_grid){ .x = ceil_div(threads, GEMM_SPLITK_THREADS) }, &params, stream);
}

static ckl_status launch_splitk(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_args *x = args;
    const gemm_splitk_config *c = plan->config;
    const gemm_sm90_config products = gemm_splitk_products(c);
    const ckl_gemm_desc sliced = products_of(plan->desc, slices_of(plan));
    ckl_gemm_args each = { .a = x->a, .b = x->b, .d = plan_workspace(plan, x->workspace) };
    const ckl_gemm_desc *d = plan->desc;
    if (c->vec > 1)
        TRY(gemm_check_result_vectors("splitk", x, TMA_ALIGNMENT));
    TRY(gemm_sm90_launch(plan, &products, &sliced, d->k, &each, stream));
    return launch_sum(plan, x, each.d, stream);
}

static const field splitk_fields[] = { GEMM_EPILOGUE(FIELD_NESTED, (gemm_splitk_config, products.epilogue)) //
                                       GEMM_SM90_CONFIG(FIELD_NESTED, (gemm_splitk_config, products))       //
                                       GEMM_SPLITK_CONFIG(FIELD_ROW, gemm_splitk_config) };

const implementation gemm_splitk_implementation = {
    GEMM_SM90_PARTS(splitk, gemm_splitk_config),
    .summary = "K in slices, each a product of sm90, and a kernel that adds them; Hopper",
    .config = FIELD_TABLE(splitk_fields),
    .candidate = candidate_splitk,
    .cost = cost_splitk,
    .rivals = { &gemm_sm90_implementation, &gemm_gemv_implementation },
    .admit = admit_splitk,
    .describe = gemm_splitk,
    .kernels = 2,
    .workspace_bytes = workspace_splitk,
    .launch = launch_splitk,
};
