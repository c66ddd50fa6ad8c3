/* gemm_sm90_plan.c - the host side of the Hopper kernel: what is chosen beside a tile, and the launch. */
#include "operators/gemm/gemm_plan.h"

/* Copies of 16 bytes, as TMA makes them. */
static ckl_status check_pointer_alignment(const ckl_gemm_args *x, const gemm_sm90_config *c)
{
    bool outputs = c->ragged != GEMM_ALL_RAGGED || c->row_vectors;
    const struct {
        const char *name;
        const void *pointer;
    } tensors[] = { { "a", x->a },
                    { "b", x->b },
                    { "c", outputs ? x->c : NULL },
                    { "d", outputs ? x->d : NULL },
                    { "x", outputs ? x->x : NULL } };
    for (int i = c->batched == GEMM_BY_POINTERS ? COUNT_OF(tensors) : 0; i < COUNT_OF(tensors); i++)
        if ((uintptr_t)tensors[i].pointer % TMA_ALIGNMENT && (i < 2 || !c->epilogue.pointers))
            FAIL(CKL_INVALID, "gemm sm90: %s=%p is not aligned to 16 bytes; impl=naive takes any alignment",
                 tensors[i].name, tensors[i].pointer);
    return CKL_OK;
}

/*
 * A row-major matrix for TMA, one of a batch. A single row may have any pitch. NOTE: where rows start inside a 32-byte
 * sector, TMA asks L2 for a sector or two at a time; fetching 128 bytes instead of 256 is then 10 % faster (3000^3),
 * elsewhere slower (8192^3). So it is where memory binds, because HBM reads less at a time: 2 to 3 % for up to 16 rows,
 * here of a group, too; 2 % slower for 64.
 */
param_tensor gemm_tensor_of(const ckl_gemm_desc *d, char name, const void *pointer)
{
    enum { SECTOR = 32, ROWS_FEW = 16 };
    const bool anywhere = gemm_by_pointers(d, name);
    const gemm_matrix x = gemm_matrix_of(d, name);
    int64_t bytes = (int64_t)ckl_dtype_bytes(x.type), unit = TMA_ALIGNMENT / bytes;
    const bool inside = x.rows > 1 && ((!anywhere && (uintptr_t)pointer % SECTOR) || x.ld * bytes % SECTOR);
    const int promotion = inside || min_i64(gemm_rows_of_group(d), d->n) <= ROWS_FEW ? 128 : 256;
    if (anywhere)
        return (param_tensor){ .pointer = (const void *)(uintptr_t)GEMM_MAP_BASE,
                               .size = { x.cols, x.rows, 1 << GEMM_MAP_NEAR_BITS, 1 << GEMM_MAP_FAR_BITS },
                               .stride = { 1, x.rows > 1 ? x.ld : round_up(x.cols, unit), GEMM_MAP_UNIT / bytes,
                                           ((int64_t)GEMM_MAP_UNIT << GEMM_MAP_NEAR_BITS) / bytes },
                               .l2_promotion = promotion };
    return (param_tensor){ .pointer = pointer,
                           .size = { x.cols, x.rows, x.count },
                           .stride = { 1, x.rows > 1 ? x.ld : round_up(x.cols, unit), x.stride },
                           .l2_promotion = promotion };
}

/* All scales of a matrix as one row, from a multiple of 16 bytes on. */
static param_tensor scales_of(const ckl_gemm_desc *d, char matrix, const void *scales)
{
    const uintptr_t address = (uintptr_t)scales, before = address % TMA_ALIGNMENT;
    const bool squares = matrix == 'b' && d->scale_b == CKL_GEMM_SCALE_SQUARE;
    const int64_t blocks = ceil_div(d->k, GEMM_BLOCK), matrices = matrix == 'b' ? max_i64(d->groups, 1) : 1,
                  lines = matrix == 'a' ? d->m
                          : squares     ? ceil_div(d->n, GEMM_BLOCK)
                                        : d->n,
                  count = matrices * blocks * lines + (int64_t)(before / sizeof(float));
    return (param_tensor){ .pointer = (const char *)scales - before,
                           .size = { count, 1 },
                           .stride = { 1, round_up(count, TMA_ALIGNMENT / (int64_t)sizeof(float)) },
                           .l2_promotion = 128 };
}

/* Every other row of D, from one on. */
static param_tensor rows_in_turn(const ckl_gemm_desc *d, const void *pointer, int first)
{
    param_tensor rows = gemm_tensor_of(d, 'd', (const char *)pointer + first * d->ldd * (int64_t)ckl_dtype_bytes(d->d));
    rows.size[1] = ceil_div(rows.size[1] - first, 2);
    rows.stride[1] *= 2;
    return rows;
}

ckl_status gemm_sm90_launch(const ckl_plan *plan, const gemm_sm90_config *c, const ckl_gemm_desc *d, int64_t k,
                            const ckl_gemm_args *x, ckl_stream stream)
{
    const bool swap = c->swap;
    TRY(check_pointer_alignment(x, c));
    ckl_gemm_desc whole = *d;
    whole.k = k;
    const param_tensor a = gemm_tensor_of(&whole, 'a', x->a), b = gemm_tensor_of(&whole, 'b', x->b);
    const param_tensor scales_a = scales_of(d, 'a', x->scale_a), scales_b = scales_of(d, 'b', x->scale_b);
    gemm_pitched_params params = {
        GEMM_PARAMS_OF_CALL(d, x),
        GEMM_EARLY_OF_CALL(d, x),
        .A = swap ? b : a,
        .B = swap ? a : b,
        .C = c->sheared ? rows_in_turn(d, x->d, 1) : gemm_tensor_of(d, 'c', x->c),
        .D = c->sheared ? rows_in_turn(d, x->d, 0) : gemm_tensor_of(d, 'd', x->d),
        .PRE = gemm_tensor_of(d, 'x', x->x),
        .SCALES_M = swap ? scales_b : scales_a,
        .SCALES_N = swap ? scales_a : scales_b,
        .m = (uint32_t)(swap ? d->n : d->m),
        .n = (uint32_t)(swap ? d->m : d->n),
        .k = (uint32_t)d->k,
        .a = swap ? x->b : x->a,
        .lda = swap ? d->ldb : d->lda,
        .b = swap ? x->a : x->b,
        .batch = (uint32_t)gemm_products(d),
        .alone = c->alone,
    };
    if (c->batched == GEMM_SLICES_OF_K) // the last one may reach beyond the operands
        params.early_bytes[0] = params.early_bytes[1] = 0;
    const void *const workspace = plan_workspace(plan, x->workspace);
    if (plan_overlap(x->a, 1, workspace, plan->workspace_bytes)) // copies, which the launch before writes
        params.early_bytes[0] = 0;
    if (plan_overlap(x->b, 1, workspace, plan->workspace_bytes))
        params.early_bytes[1] = 0;
    const int64_t tiles = gemm_sm90_tiles(d, c);
    const int64_t clusters = c->persistent ? min_i64(tiles, plan->kernels[0].clusters_resident) : tiles;
    const plan_grid grid = { .x = clusters * c->cluster_m * c->cluster_n * c->split };
    return plan_launch(plan, 0, grid, &params, stream);
}

static ckl_status admit_sm90(const void *desc, const ckl_device_info *device, const void *config)
{
    if (((const ckl_gemm_desc *)desc)->gather)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: rows of A that a list takes are copied first, by impl=pitched");
    return gemm_sm90_admit_unsplit(desc, device, config);
}

/*
 * The next launch's CTAs take places as these come free. If a second launch does not fit beside the first, and the
 * first leaves many places free, SMs get unequal shares of the second: 224 tiles of 7x14336x7168, three an SM, take
 * 71.4 us begun early and 50.1 alone, 128 of 128x6144x8064, one an SM, 35.2 and 29.4. Where two launches fit, or
 * nearly, they are at 97 % of copying begun early. A short product of one CTA an SM gains less than the 1 to 2 us of a
 * launch, but for one consumer by many steps: 768x768x3072 takes 8.9 alone, 9.5 early.
 */
static bool is_better_alone(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_sm90_config *c)
{
    enum { STEPS_LEAST = 48, PAIR = 2 };
    const double BYTES_LEAST = 64e6;
    const bool many =
        c->consumers == 1 && c->split == 1 && d->batch == 1 && (c->ctas > 1 || gemm_k_tiles(d) >= STEPS_LEAST);
    const double bytes =
        (double)d->batch * ((double)d->m + (double)d->n) * (double)d->k * (double)ckl_dtype_bytes(d->a);
    if (c->tile_n == 0 || d->groups || (bytes < BYTES_LEAST && !many)) // without columns it is refused
        return false;
    const int64_t cluster = c->cluster_m * c->cluster_n * c->split, ctas = product_i64(gemm_sm90_tiles(d, c), cluster);
    const bool single = cluster <= PAIR && c->split == 1 && c->ctas == 1;
    const int64_t places = device->sm_count * c->ctas,
                  most = single ? places - 1 : places * (c->ctas > PAIR && bytes >= BYTES_LEAST ? 9 : 8) / 12;
    return ctas > places / 2 && ctas <= most;
}

/*
 * Of few K tiles and a large D in 16 bits L2 gives more for loads than it takes for D, unless A stays, of which a CTA
 * has a long share of a row of tiles. Pairs then share B, if all rows of tiles have a partner: 8192x14336x384 takes
 * 137.6 us, alone 146.7, 155.6 where A does not stay. Not if most of a tile is empty. D in 32 bits is slower so, and D
 * of up to two steps, whose rows are better written side by side: 32768x2048x64 takes 44.1 us where A stays, 39.7.
 */
static void let_A_stay(const ckl_gemm_desc *d, const ckl_device_info *device, gemm_sm90_config *c)
{
    enum { ROWS = 128, PAIR = 2, SHARE = 8, STEPS_FEWEST = 2 };
    const int64_t steps = gemm_k_tiles(d), squares = gemm_tiles(d, ROWS, ROWS);
    const bool plain = !c->batched && !d->groups && !d->gated && !d->c && d->layout == CKL_GEMM_NT && 2 * d->m > ROWS;
    const bool many = d->n >= SHARE * (int64_t)c->tile_n && squares >= SHARE * (int64_t)device->sm_count;
    const bool pairs = ceil_div(d->m, ROWS) % PAIR == 0;
    c->stays = plain && many && ckl_dtype_bytes(d->d) == 2 && c->pingpong && !c->swap && c->tile_m == ROWS &&
               (c->cluster_n == 1 || (pairs && steps > 1)) && steps > (c->ragged ? 0 : STEPS_FEWEST) &&
               steps <= c->stages;
    if (!c->stays)
        return;
    if (pairs && !c->sheared)
        c->cluster_m = PAIR;
    c->cluster_n = c->group = 1;
    c->stages -= c->stages % (int)steps;
}

/*
 * Where few columns are all in a tile and K has few steps, TMA is spared up to a row in three: 23x256000x168 takes 28.4
 * us, 41.8 where B, its A, does not stay. Fewer columns are gemv's.
 */
static void let_B_stay(const ckl_gemm_desc *d, const ckl_device_info *device, gemm_sm90_config *c)
{
    enum { FEWEST = 4, WIDEST = 80, STEPS = 4, TURNS = 3 };
    const int64_t steps = gemm_k_tiles(d), rows = c->swap ? d->n : d->m, columns = c->swap ? d->m : d->n;
    const bool all = columns > FEWEST && columns <= c->tile_n && c->tile_n <= WIDEST;
    c->b_stays = all && c->pingpong && !c->stays && !c->batched && !d->groups && !d->gated && steps > 0 &&
                 steps <= STEPS && 2 * steps <= c->stages && rows > TURNS * (int64_t)c->tile_m * device->sm_count;
    if (c->b_stays)
        c->stages -= c->stages % (int)steps;
}

static bool candidate_sm90(const void *desc, const ckl_device_info *device, int i, void *config)
{
    gemm_sm90_config *c = config;
    if (!gemm_sm90_candidate(desc, device, i, c))
        return false;
    c->alone = is_better_alone(desc, device, c);
    let_A_stay(desc, device, c);
    let_B_stay(desc, device, c);
    return true;
}

static ckl_status launch_sm90(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_gemm_desc *d = plan->desc;
    return gemm_sm90_launch(plan, plan->config, d, d->k, args, stream);
}

static const field sm90_fields[] = GEMM_FIELDS(gemm_sm90_config, GEMM_SM90_CONFIG);

const implementation gemm_sm90_implementation = {
    GEMM_SM90_PARTS(sm90, gemm_sm90_config),
    .summary = "persistent and warp-specialised: TMA, wgmma, clusters with multicast; Hopper",
    .config = FIELD_TABLE(sm90_fields),
    .candidate = candidate_sm90,
    .cost = gemm_sm90_cost,
    .admit = admit_sm90,
    .describe = gemm_sm90,
    .launch = launch_sm90,
};

/* specialised: a rung of the ladder (docs/gemm-ladder.md), one tile a CTA */

static ckl_status choose_specialised(const void *desc, const ckl_device_info *device, void *config)
{
    gemm_sm90_config *c = config;
    gemm_sm90_candidate(desc, device, 0, config);
    c->tile_m = c->tile_n = 128;
    c->consumers = 2;
    c->cluster_m = c->cluster_n = c->split = 1;
    c->pingpong = c->swap = c->persistent = false;
    gemm_sm90_fit_memory(c, INT64_MAX, device);
    return CKL_OK;
}

static ckl_status admit_specialised(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    if (ckl_dtype_bytes(d->a) != 2 || d->layout != CKL_GEMM_NT || d->batch > 1 || d->groups)
        FAIL(CKL_UNSUPPORTED, "gemm specialised: a step of the ladder is one product of K-major f16 or bf16");
    return admit_sm90(desc, device, config);
}

const implementation gemm_specialised_implementation = {
    GEMM_SM90_PARTS(specialised, gemm_sm90_config),
    .summary = "a step of the ladder: sm90 with a CTA for every tile",
    .by_name = true,
    .config = FIELD_TABLE(sm90_fields),
    .choose = choose_specialised,
    .cost = gemm_sm90_cost,
    .admit = admit_specialised,
    .describe = gemm_sm90,
    .launch = launch_sm90,
};
