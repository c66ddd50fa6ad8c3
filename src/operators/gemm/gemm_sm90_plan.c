/* gemm_sm90_plan.c - the host side of the Hopper kernel: which configs may compute a problem, and the launch. */
#include "operators/gemm/gemm_plan.h"

/* Copies of 16 bytes, as TMA makes them */

static ckl_status check_row_alignment(const ckl_gemm_desc *d, bool outputs)
{
    for (const char *x = outputs ? "abcdx" : "ab"; *x; x++)
        if ((*x != 'c' || d->c) && (*x != 'x' || gemm_has_x(d)) && !gemm_rows_aligned(d, *x, TMA_ALIGNMENT))
            FAIL(CKL_UNSUPPORTED, "gemm sm90: ld%c=%" PRId64 " elements of %s are not a multiple of 16 bytes%s", *x,
                 gemm_matrix_of(d, *x).ld, ckl_dtype_name(gemm_matrix_of(d, *x).type),
                 gemm_matrix_of(d, *x).count > 1 ? ", or the stride is not" : "");
    return CKL_OK;
}

/* The same of pointers. */
static ckl_status check_pointer_alignment(const ckl_gemm_args *x, const gemm_sm90_config *c)
{
    bool outputs = c->ragged != GEMM_ALL_RAGGED;
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

/* sm90 */

static ckl_status admit_sm90_tile(const gemm_sm90_config *c)
{
    if (c->consumers < 1 || c->consumers > 3)
        FAIL(CKL_INVALID, "gemm sm90: consumers=%d is not in 1..3", c->consumers);
    if (c->pingpong && c->consumers != 2)
        FAIL(CKL_INVALID, "gemm sm90: pingpong=1 is played by 2 consumers, not %d", c->consumers);
    int rows = c->pingpong ? c->tile_m : c->tile_m / c->consumers;
    if (rows < 64 || rows % 64 || c->tile_m > 256 || (!c->pingpong && c->tile_m % c->consumers))
        FAIL(CKL_INVALID, "gemm sm90: tile_m=%d does not give each of %d consumers a multiple of 64 rows", c->tile_m,
             c->pingpong ? 1 : c->consumers);
    const int step = gemm_sm90_column_step(c);
    if (c->tile_n < 16 || c->tile_n % step || c->tile_n > 256)
        FAIL(CKL_INVALID, "gemm sm90: tile_n=%d is not a multiple of %d from 16 to 256", c->tile_n, step);
    if (c->ragged < 0 || c->ragged > GEMM_ALL_RAGGED)
        FAIL(CKL_INVALID, "gemm sm90: ragged=%d is not in 0..2", c->ragged);
    const int accumulators = gemm_sm90_accumulators(c), most = gemm_sm90_accumulators_most(c);
    if (accumulators > most)
        FAIL(CKL_INVALID,
             "gemm sm90: a consumer's %dx%d tile needs %d accumulators of the %d registers there are for them", rows,
             c->tile_n, accumulators, most);
    return CKL_OK;
}

static ckl_status admit_sm90_cluster(const gemm_sm90_config *c)
{
    if (c->cluster_m < 1 || c->cluster_n < 1 || c->split < 1 ||
        product_i64(product_i64(c->cluster_m, c->cluster_n), c->split) > 8)
        FAIL(CKL_INVALID, "gemm sm90: a cluster of %dx%d CTAs with split=%d is not in 1..8", c->cluster_m, c->cluster_n,
             c->split);
    if (c->tile_n % (8 * c->cluster_m) || c->tile_m % (8 * c->cluster_n))
        FAIL(CKL_INVALID, "gemm sm90: tile %dx%d cannot be loaded in boxes of 8 rows by a cluster of %dx%d", c->tile_m,
             c->tile_n, c->cluster_m, c->cluster_n);
    if (c->ctas < 1 || (c->ctas > 1 && c->consumers > 1))
        FAIL(CKL_INVALID, "gemm sm90: ctas=%d per SM, more than 1 needs consumers=1 for the registers", c->ctas);
    if (c->group < 1)
        FAIL(CKL_INVALID, "gemm sm90: group=%d is not positive", c->group);
    return CKL_OK;
}

/* An operand stays in the stages if each always holds the same K tile, of one product. */
static ckl_status admit_sm90_stays(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    if (!c->stays && !c->b_stays)
        return CKL_OK;
    if (!c->persistent || c->batched || c->groups || c->split > 1 || gemm_k_tiles(d) == 0 ||
        gemm_has_block_scales(c->epilogue.scale_a) || c->stages % gemm_k_tiles(d))
        FAIL(CKL_UNSUPPORTED,
             "gemm sm90: stays=1 is of one persistent product without split and scales of blocks; stages=%d are no "
             "multiple of its K tiles",
             c->stages);
    if (c->b_stays && (c->stays || (c->swap ? d->m : d->n) > c->tile_n))
        FAIL(CKL_UNSUPPORTED, "gemm sm90: b_stays=1 is of all columns in a tile, not of %d, and goes without stays=1",
             c->tile_n);
    return CKL_OK;
}

/* Operands that are not K-major: of 16 bits, in whole spans for every CTA of a cluster. */
static ckl_status admit_sm90_layout(const gemm_sm90_config *c)
{
    const choice layout = c->epilogue.layout;
    const bool k_major[] = { gemm_k_major(layout, c->swap ? 'b' : 'a'), gemm_k_major(layout, c->swap ? 'a' : 'b') };
    const int rows[] = { c->tile_m / c->cluster_n, gemm_sm90_shape_of(c).loaded_n / c->cluster_m };
    enum { SPAN = GEMM_TILE_BYTES / 2 };
    // NOTE: on an H200 TMA ends with an illegal instruction where a box begins inside 16 bytes of a row: groups at row
    // 70, not at 72.
    if (c->groups && !gemm_k_major(layout, 'a'))
        FAIL(CKL_UNSUPPORTED, "gemm sm90: rows of groups start anywhere, which TMA takes of a K-major A alone");
    for (int i = 0; i < 2; i++) {
        if (!k_major[i] && ckl_dtype_bytes(c->epilogue.ab) != 2)
            FAIL(CKL_UNSUPPORTED, "gemm sm90: tensor cores read %s K-major alone", ckl_dtype_name(c->epilogue.ab));
        if (!k_major[i] && rows[i] % SPAN)
            FAIL(CKL_UNSUPPORTED, "gemm sm90: a CTA loads %d rows of an operand that is not K-major, no multiple of %d",
                 rows[i], SPAN);
    }
    if (c->batched == GEMM_GROUPS_OF_K &&
        (k_major[0] || k_major[1] || ckl_dtype_bytes(c->epilogue.ab) != 2 || c->pingpong || c->split > 1))
        FAIL(CKL_UNSUPPORTED, "gemm sm90: groups_of=k is of 16 bits and layout=tn, without pingpong and split");
    if (c->epilogue.gated && (c->swap || c->split > 1 || c->cluster_m > 1 || !k_major[1] || c->tile_n % 32))
        FAIL(CKL_UNSUPPORTED,
             "gemm sm90: gated products want a K-major B in tiles of 2x16 columns, without swap, split and "
             "clusters along M");
    return CKL_OK;
}

/* Scales of blocks: a K tile is one block, not split over CTAs; tiles lie in squares or hold whole ones. */
static ckl_status admit_sm90_scales(const gemm_sm90_config *c)
{
    if (!gemm_has_block_scales(c->epilogue.scale_a))
        return CKL_OK;
    enum { REGISTERS = 224 }; // more would spill
    const int side = c->swap ? c->tile_m : c->tile_n;
    if (c->split > 1 || c->pingpong)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: scales of blocks go without split and pingpong");
    if (c->epilogue.scale_b == CKL_GEMM_SCALE_SQUARE && !c->swap && GEMM_BLOCK % side && side % 64)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: tiles of %d columns lie across squares of scales", side);
    const bool own = (c->swap ? c->epilogue.scale_a : c->epilogue.scale_b) == CKL_GEMM_SCALE_BLOCK;
    if (own && gemm_sm90_accumulators(c) + c->tile_n / 4 > REGISTERS) // two columns of eight for each of four lanes
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %d scales of columns beside %d accumulators are more than %d registers",
             c->tile_n / 4, gemm_sm90_accumulators(c), REGISTERS);
    return CKL_OK;
}

/*
 * Matrices named by pointers. NOTE: by a map of all memory an H200 loads boxes that reach beyond rows or columns, with
 * one consumer and in clusters, too; a box wholly beyond them ends with an illegal address (bench/notes/gemm.md).
 * Clusters that do not divide the tiles have such boxes. Tiles that reach beyond have not been timed.
 */
static ckl_status admit_sm90_pointers(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    const int64_t rows = c->swap ? d->n : d->m, cols = c->swap ? d->m : d->n;
    const bool whole = rows % c->tile_m == 0 && cols % c->tile_n == 0 && d->k % gemm_tile_k(d->a) == 0;
    if (c->batched == GEMM_BY_POINTERS && (!whole || !c->pingpong || c->cluster_m * c->cluster_n * c->split > 1))
        FAIL(CKL_UNSUPPORTED, "gemm sm90: matrices where pointers say are whole tiles in ping-pong, without clusters");
    if (d->pointers && c->batched != GEMM_BY_POINTERS && c->ragged != GEMM_ALL_RAGGED)
        FAIL(CKL_INVALID, "gemm sm90: ragged=%d beside copies of what pointers name, whose D is stored with ragged=%d",
             c->ragged, GEMM_ALL_RAGGED);
    return CKL_OK;
}

/* Tiles of clusters. */
static int64_t tiles_of(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    ckl_gemm_desc whole = *d;
    const int shear = c->sheared ? GEMM_SHEAR : 0;
    whole.n += shear;
    const int64_t side_m = c->tile_m * c->cluster_m, side_n = (c->tile_n - shear) * c->cluster_n;
    return gemm_tiles(&whole, c->swap ? side_n : side_m, c->swap ? side_m : side_n);
}

bool gemm_splits_sectors(const ckl_gemm_desc *d)
{
    enum { SECTOR = 32 };
    return d->ldd * (int64_t)ckl_dtype_bytes(d->d) % SECTOR == SECTOR / 2;
}

bool gemm_sm90_may_shear(const ckl_gemm_desc *d)
{
    enum { PAIR = 2 };
    const bool scales = d->scale_a || d->scale_b; // beside a bias a tile has no registers for them
    const bool plain = !d->c && !gemm_has_x(d) && !gemm_has_block_scales((choice)d->scale_a) && !(d->bias && scales) &&
                       !d->gated && !d->weighted && !d->epilogue && !d->groups && !d->pointers && !d->scatter &&
                       d->batch == 1;
    return plain && (d->d == CKL_F16 || d->d == CKL_BF16) && gemm_is_k_major(d, 'b') && d->m >= PAIR &&
           gemm_splits_sectors(d) && d->n % GEMM_SHEAR == 0;
}

static ckl_status admit_sm90_shear(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    enum { SPAN = 64 };
    if (c->sheared && (!gemm_sm90_may_shear(d) || c->swap || c->split > 1 || c->ragged || c->batched ||
                       c->cluster_m > 1 || c->consumers < 2 || c->tile_n % SPAN != GEMM_SHEAR))
        FAIL(CKL_UNSUPPORTED,
             "gemm sm90: sheared=1 is of a plain D of 16 bits, every other row of which begins inside a sector, in "
             "tiles of %d columns more than whole boxes by two consumers, without clusters along M",
             GEMM_SHEAR);
    return CKL_OK;
}

static ckl_status admit_sm90_types(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_sm90_config *c)
{
    if (!device->has_wgmma)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %s has no wgmma", device->id);
    TRY(gemm_check_epilogue("sm90", d, &c->epilogue));
    TRY(gemm_check_same_types("sm90", d));
    if (d->a == CKL_F32 && d->math == CKL_GEMM_F32)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: tensor cores multiply f32 with math=tf32 alone");
    if (d->a == CKL_I8 && c->split > 1)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: split=%d exchanges f32, sums of i8 are i32", c->split);
    if (d->batch_invariant && c->split > 1)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: sums of split=%d are not those of batch_invariant=1", c->split);
    return CKL_OK;
}

static ckl_status admit_sm90_memory(const gemm_sm90_config *c, const ckl_device_info *device)
{
    if (c->stages < 2 || c->buffers < 1)
        FAIL(CKL_INVALID, "gemm sm90: stages=%d must be at least 2 and buffers=%d at least 1", c->stages, c->buffers);
    int64_t need = gemm_sm90_shape_of(c).smem_bytes;
    int64_t have = gemm_sm90_shared_memory(c, device);
    if (need > have)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %d stages of %dx%d need %" PRId64 " bytes of shared memory, %s has %" PRId64,
             c->stages, c->tile_m, c->tile_n, need, device->id, have);
    return CKL_OK;
}

static ckl_status admit_sm90_sizes(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    if (c->ragged == 0 && d->n * (int64_t)ckl_dtype_bytes(d->d) % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED,
             "gemm sm90: n=%" PRId64 " elements of %s are not whole 16-byte chunks: ragged=1 stores them", d->n,
             ckl_dtype_name(d->d));
    if (d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products");
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX || d->batch > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: a size is beyond the 32-bit coordinates of TMA");
    if (tiles_of(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %" PRId64 " tiles are more than 32-bit numbers", tiles_of(d, c));
    return CKL_OK;
}

/* One product, several, slices or groups: as the problem has them. */
static ckl_status admit_sm90_batch(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    const int batched = c->batched == GEMM_SLICES_OF_K ? 1 : c->batched;
    if (batched != gemm_sm90_batched_of(d))
        FAIL(CKL_INVALID, "gemm sm90: batched=%d with batch=%" PRId64 "%s", c->batched, d->batch,
             gemm_groups_of_k(d) ? " and groups_of=k"
             : d->pointers       ? " and pointers=1"
                                 : "");
    if ((c->groups != 0) != gemm_groups_of_m(d) || (gemm_groups_of_m(d) && c->groups < d->groups))
        FAIL(CKL_INVALID, "gemm sm90: room for %d groups, not for groups=%" PRId64, c->groups, d->groups);
    return CKL_OK;
}

ckl_status gemm_sm90_admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_sm90_config *c = config;
    TRY(admit_sm90_types(d, device, c));
    TRY(admit_sm90_tile(c));
    TRY(admit_sm90_cluster(c));
    TRY(admit_sm90_stays(d, c));
    TRY(admit_sm90_shear(d, c));
    TRY(admit_sm90_layout(c));
    TRY(admit_sm90_scales(c));
    TRY(admit_sm90_memory(c, device));
    TRY(admit_sm90_sizes(d, c));
    TRY(admit_sm90_pointers(d, c));
    TRY(admit_sm90_batch(d, c));
    TRY(check_row_alignment(d, c->ragged != GEMM_ALL_RAGGED));
    if (gemm_k_tiles(d) < c->split)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: k=%" PRId64 " has fewer tiles of %d than split=%d", d->k, gemm_tile_k(d->a),
             c->split);
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
    const gemm_pitched_params params = {
        GEMM_PARAMS_OF_CALL(d, x),
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
    const int64_t tiles = tiles_of(d, c);
    const int64_t clusters = c->persistent ? min_i64(tiles, plan->kernels[0].clusters_resident) : tiles;
    const plan_grid grid = { .x = clusters * c->cluster_m * c->cluster_n * c->split };
    return plan_launch(plan, 0, grid, &params, stream);
}

int gemm_sm90_batched_of(const ckl_gemm_desc *d)
{
    return gemm_groups_of_k(d) ? GEMM_GROUPS_OF_K : gemm_by_pointers(d, 'a') ? GEMM_BY_POINTERS : gemm_products(d) > 1;
}

ckl_status gemm_sm90_admit_unsplit(const void *desc, const ckl_device_info *device, const void *config)
{
    if (((const ckl_gemm_desc *)desc)->math == CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: operands of math=f32x3 are split first, by impl=f32x3");
    return gemm_sm90_admit(desc, device, config);
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
    const int64_t cluster = c->cluster_m * c->cluster_n * c->split, ctas = product_i64(tiles_of(d, c), cluster);
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
