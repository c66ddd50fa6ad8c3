/* gemm_sm90_admit.c - which configs of the Hopper kernel may compute a problem. */
#include "operators/gemm/gemm_plan.h"

int64_t gemm_sm90_tiles(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    ckl_gemm_desc whole = *d;
    const int shear = c->sheared ? GEMM_SHEAR : 0;
    whole.n += shear;
    const int64_t side_m = c->tile_m * c->cluster_m, side_n = (c->tile_n - shear) * c->cluster_n;
    return gemm_tiles(&whole, c->swap ? side_n : side_m, c->swap ? side_m : side_n);
}

int gemm_sm90_batched_of(const ckl_gemm_desc *d)
{
    return gemm_groups_of_k(d) ? GEMM_GROUPS_OF_K : gemm_by_pointers(d, 'a') ? GEMM_BY_POINTERS : gemm_products(d) > 1;
}

static ckl_status admit_tile(const gemm_sm90_config *c)
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
    if (c->row_vectors && (c->ragged != GEMM_ALL_RAGGED || c->epilogue.d != CKL_F32))
        FAIL(CKL_INVALID, "gemm sm90: row_vectors=1 are of f32 with ragged=%d", GEMM_ALL_RAGGED);
    const int accumulators = gemm_sm90_accumulators(c), most = gemm_sm90_accumulators_most(c);
    if (accumulators > most)
        FAIL(CKL_INVALID,
             "gemm sm90: a consumer's %dx%d tile needs %d accumulators of the %d registers there are for them", rows,
             c->tile_n, accumulators, most);
    return CKL_OK;
}

static ckl_status admit_cluster(const gemm_sm90_config *c)
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
static ckl_status admit_stays(const ckl_gemm_desc *d, const gemm_sm90_config *c)
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
static ckl_status admit_layout(const gemm_sm90_config *c)
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
static ckl_status admit_scales(const gemm_sm90_config *c)
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
static ckl_status admit_pointers(const ckl_gemm_desc *d, const gemm_sm90_config *c)
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

bool gemm_sm90_may_shear(const ckl_gemm_desc *d)
{
    enum { SECTOR = 32, PAIR = 2 };
    const bool scales = d->scale_a || d->scale_b; // beside a bias a tile has no registers for them
    const bool plain = !d->c && !gemm_has_x(d) && !gemm_has_block_scales((choice)d->scale_a) && !(d->bias && scales) &&
                       !d->gated && !d->weighted && !d->epilogue && !d->groups && !d->pointers && !d->scatter &&
                       d->batch == 1;
    return plain && (d->d == CKL_F16 || d->d == CKL_BF16) && gemm_is_k_major(d, 'b') && d->m >= PAIR &&
           d->ldd * PAIR % SECTOR == SECTOR / 2 && d->n % GEMM_SHEAR == 0;
}

static ckl_status admit_shear(const ckl_gemm_desc *d, const gemm_sm90_config *c)
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

static ckl_status admit_types(const ckl_gemm_desc *d, const ckl_device_info *device, const gemm_sm90_config *c)
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

static ckl_status admit_memory(const gemm_sm90_config *c, const ckl_device_info *device)
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

static ckl_status admit_sizes(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    if ((c->ragged == 0 || c->row_vectors) && d->n * (int64_t)ckl_dtype_bytes(d->d) % TMA_ALIGNMENT)
        FAIL(CKL_UNSUPPORTED,
             "gemm sm90: n=%" PRId64 " elements of %s are not whole 16-byte chunks: ragged=1 stores them", d->n,
             ckl_dtype_name(d->d));
    if (d->k == 0)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: k=0 leaves no products");
    if (d->m > INT32_MAX || d->n > INT32_MAX || d->k > INT32_MAX || d->batch > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: a size is beyond the 32-bit coordinates of TMA");
    if (gemm_sm90_tiles(d, c) > INT32_MAX)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: %" PRId64 " tiles are more than 32-bit numbers", gemm_sm90_tiles(d, c));
    return CKL_OK;
}

/* One product, several, slices or groups: as the problem has them. */
static ckl_status admit_batch(const ckl_gemm_desc *d, const gemm_sm90_config *c)
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

/* Copies of 16 bytes, as TMA makes them. */
static ckl_status check_row_alignment(const ckl_gemm_desc *d, bool outputs)
{
    for (const char *x = outputs ? "abcdx" : "ab"; *x; x++)
        if ((*x != 'c' || d->c) && (*x != 'x' || gemm_has_x(d)) && !gemm_rows_aligned(d, *x, TMA_ALIGNMENT))
            FAIL(CKL_UNSUPPORTED, "gemm sm90: ld%c=%" PRId64 " elements of %s are not a multiple of 16 bytes%s", *x,
                 gemm_matrix_of(d, *x).ld, ckl_dtype_name(gemm_matrix_of(d, *x).type),
                 gemm_matrix_of(d, *x).count > 1 ? ", or the stride is not" : "");
    return CKL_OK;
}

ckl_status gemm_sm90_admit(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc *d = desc;
    const gemm_sm90_config *c = config;
    TRY(admit_types(d, device, c));
    TRY(admit_tile(c));
    TRY(admit_cluster(c));
    TRY(admit_stays(d, c));
    TRY(admit_shear(d, c));
    TRY(admit_layout(c));
    TRY(admit_scales(c));
    TRY(admit_memory(c, device));
    TRY(admit_sizes(d, c));
    TRY(admit_pointers(d, c));
    TRY(admit_batch(d, c));
    TRY(check_row_alignment(d, c->ragged != GEMM_ALL_RAGGED || c->row_vectors));
    if (gemm_k_tiles(d) < c->split)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: k=%" PRId64 " has fewer tiles of %d than split=%d", d->k, gemm_tile_k(d->a),
             c->split);
    return CKL_OK;
}

ckl_status gemm_sm90_admit_unsplit(const void *desc, const ckl_device_info *device, const void *config)
{
    if (((const ckl_gemm_desc *)desc)->math == CKL_GEMM_F32X3)
        FAIL(CKL_UNSUPPORTED, "gemm sm90: operands of math=f32x3 are split first, by impl=f32x3");
    return gemm_sm90_admit(desc, device, config);
}
