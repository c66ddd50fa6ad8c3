/* gemm_sm90_tiles.c - the Hopper GEMM's boxes, shared memory, and where tiles lie. */
#include "operators/gemm/gemm_sm90.h"

static int rows_of_consumer(const gemm_sm90_config *c)
{
    return c->pingpong ? c->tile_m : c->tile_m / c->consumers;
}

/* Sums of a tile in a thread. */
static int sums_of_consumer(const gemm_sm90_config *c)
{
    return rows_of_consumer(c) * c->tile_n / WARPGROUP;
}

/* Are the products of one or two stages summed apart and then added in f32? */
static bool sums_twice(const gemm_epilogue *e)
{
    return e->accumulation == CKL_GEMM_ACCURATE || e->math == CKL_GEMM_F32X3;
}

int gemm_sm90_partial_rows(const gemm_sm90_config *c)
{
    return c->epilogue.math == CKL_GEMM_F32X3 ? rows_of_consumer(c) : 64; // of one wgmma
}

int gemm_sm90_accumulators(const gemm_sm90_config *c)
{
    const int partial = sums_twice(&c->epilogue) ? gemm_sm90_partial_rows(c) * c->tile_n / WARPGROUP : 0;
    return sums_of_consumer(c) + partial;
}

int gemm_sm90_accumulators_most(const gemm_sm90_config *c)
{
    const gemm_epilogue *e = &c->epilogue;
    const bool scales = e->scale_a == CKL_GEMM_SCALE_ROW || e->scale_b == CKL_GEMM_SCALE_ROW;
    const bool many = e->c + e->bias + scales > 1 || (e->c && (c->swap || c->buffers == 1));
    const bool others = gemm_uses_x(e) || e->amax || e->weighted || e->scatter;
    return c->consumers == 3 ? 96 : many || others ? GEMM_EASY_ACCUMULATORS : 192;
}

/* Every row or column has its own scale, or every square, which a tile may cover in part. */
static gemm_scale_boxes scale_boxes_of(const gemm_sm90_config *c, int mode)
{
    enum { LONGEST = 256, SLOT = 32 };
    const choice how = (mode == 0) != c->swap ? c->epilogue.scale_a : c->epilogue.scale_b;
    const int extent = mode == 0 ? c->tile_m : c->tile_n;
    gemm_scale_boxes s = { .lines = extent, .length = GEMM_SCALE_UNIT };
    if (!gemm_has_block_scales(how) || extent == 0) // a candidate that will be refused
        return (gemm_scale_boxes){ 0 };
    if (how == CKL_GEMM_SCALE_SQUARE)
        s.lines = extent % GEMM_BLOCK == 0 ? GEMM_BLOCK : extent % 64 == 0 ? 64 : extent;
    else if (extent + GEMM_SCALE_UNIT > LONGEST)
        s.lines = rows_of_consumer(c);
    if (how == CKL_GEMM_SCALE_BLOCK)
        s.length += s.lines;
    s.boxes = extent / s.lines;
    s.slot = (int)round_up(s.length, SLOT);
    return s;
}

int gemm_sm90_parts(const gemm_sm90_config *c)
{
    // Registers for three sums, 3 x 64x128 of a warpgroup; with scales of 96 columns they would spill.
    enum { MOST = 192 };
    const gemm_epilogue *e = &c->epilogue;
    if (!sums_twice(e))
        return 0;
    const bool room = c->consumers < 3 && rows_of_consumer(c) == gemm_sm90_partial_rows(c) &&
                      3 * sums_of_consumer(c) + scale_boxes_of(c, 1).length <= MOST + GEMM_SCALE_UNIT;
    const bool easy = gemm_sm90_accumulators_most(c) > GEMM_EASY_ACCUMULATORS && !c->groups; // others are near spilling
    const bool few = easy || !gemm_has_block_scales(e->scale_a);
    return e->math == CKL_GEMM_F32X3 || !room || !few ? 1 : 2;
}

/* CTAs of a split that finish a tile: as many as get equal slices of whole 16 columns. */
static int finishers_of(const gemm_sm90_config *c)
{
    enum { COLUMNS = 16 };
    int finishers = c->split;
    while (finishers > 1 && c->tile_n % (COLUMNS * finishers))
        finishers--;
    return finishers;
}

bool gemm_sm90_along_rows(const gemm_sm90_config *c, int vector)
{
    bool along_m = vector == GEMM_SCALE_OF_A || vector == GEMM_WEIGHT_OF_ROW ||
                   (vector == GEMM_BIAS && c->epilogue.bias_along == CKL_GEMM_ALONG_M);
    return along_m != c->swap;
}

static bool has_vector(const gemm_epilogue *e, int vector)
{
    return vector == GEMM_BIAS         ? e->bias
           : vector == GEMM_SCALE_OF_A ? e->scale_a == CKL_GEMM_SCALE_ROW
           : vector == GEMM_SCALE_OF_B ? e->scale_b == CKL_GEMM_SCALE_ROW
                                       : e->weighted;
}

bool gemm_sm90_loads_ahead(const gemm_sm90_config *c)
{
    const gemm_epilogue *e = &c->epilogue;
    return gemm_reads_matrix(e) && !e->preactivation && !e->scatter && !c->groups && c->ragged != GEMM_ALL_RAGGED &&
           c->buffers > 1;
}

/*
 * Do boxes of D divide a tile? Those of D^T leave shared memory to stages so; into others C or X are read, which D may
 * be, or they bring a largest |D|, beside which the emulator wants every byte stored once.
 */
static bool boxes_apart(const gemm_sm90_config *c)
{
    return c->swap || gemm_reads_matrix(&c->epilogue) || c->epilogue.amax;
}

int gemm_sm90_column_step(const gemm_sm90_config *c)
{
    const bool bytes = gemm_is_f8(c->epilogue.d) && !c->swap; // boxes begin at 16 of them, and are 32 wide at least
    if (bytes)
        return boxes_apart(c) ? 32 : 16;
    return boxes_apart(c) || c->split > 1 || c->epilogue.ab == CKL_I8 ? 16 : 8; // wgmma of integers has no others
}

/*
 * A box along a side of a tile. Of D the last one may lie over the one before, as it stores the same bits; then they
 * are as wide as can be, unless half as wide ones store a fifth less.
 */
static int box_of(const gemm_sm90_config *c, int side, int most, int step)
{
    const int LEAST = gemm_is_f8(c->epilogue.d) && !c->swap ? 32 : 16;
    if (boxes_apart(c))
        while (most > LEAST && side % most)
            most = step ? most - step : most / 2;
    else
        while (most > LEAST && (side < most || 4 * round_up(side, most) > 5 * round_up(side, most / 2)))
            most /= 2;
    return most;
}

/*
 * Rows of D that start anywhere begin and end inside sectors, which L2 writes in part at twice the cost: in 32 bits,
 * with a buffer for each box of a tile's row, all are stored at once, as one run. In 16 bits nothing is gained.
 */
static int row_cols_of(const gemm_sm90_config *c, int columns, int box)
{
    const gemm_epilogue *e = &c->epilogue;
    const bool whole = c->ragged == GEMM_ALL_RAGGED && e->d == CKL_F32 && !c->swap && !gemm_uses_x(e) && !e->scatter &&
                       !(e->c && c->groups) && c->split == 1;
    return whole && c->buffers * box == columns ? columns : box;
}

/* The vectors of an epilogue; their bytes, of all consumers. */
static int64_t add_vectors(gemm_sm90_shape *s, const gemm_sm90_config *c)
{
    int64_t bytes = 0;
    for (int v = 0; v < GEMM_VECTORS; v++) {
        if (has_vector(&c->epilogue, v))
            s->vectors[v] =
                gemm_sm90_along_rows(c, v) ? s->consumer_rows : (c->epilogue.gated ? 2 : 1) * s->columns + s->shear;
        bytes += (int64_t)c->consumers * s->vectors[v] * 4;
    }
    return bytes;
}

/* The scales of blocks; their bytes, of a stage. */
static int64_t add_scales(gemm_sm90_shape *s, const gemm_sm90_config *c)
{
    int64_t bytes = 0;
    for (int mode = 0; mode < 2; mode++) {
        s->scales[mode] = scale_boxes_of(c, mode);
        bytes += 4 * (int64_t)s->scales[mode].boxes * s->scales[mode].slot;
    }
    return bytes;
}

static bool is_k_major(const gemm_sm90_config *c, char operand)
{
    return gemm_k_major(c->epilogue.layout, c->swap ? (operand == 'a' ? 'b' : 'a') : operand);
}

/*
 * Tiles of one consumer, which loads bind; to others absent rows are zeros, which cost tensor cores no power. Not along
 * operands that are not K-major, whose rows would lie in two lines, and not where rows of D would start anywhere, or C
 * may be D.
 */
static bool ends_with_D(const gemm_sm90_config *c, char operand)
{
    const gemm_epilogue *e = &c->epilogue;
    return c->consumers == 1 && is_k_major(c, operand) && !c->ragged && !c->groups && !e->scatter &&
           !gemm_reads_matrix(e) && !e->amax && !gemm_has_block_scales(e->scale_a);
}

gemm_sm90_shape gemm_sm90_shape_of(const gemm_sm90_config *c)
{
    enum { SWAP_ROWS = 64, SWAP_STEP = 16 };                  // stmatrix writes 16 rows at once
    const int halves = c->epilogue.gated && !c->swap ? 2 : 1; // refused with swap
    int d_bytes = (int)ckl_dtype_bytes(c->epilogue.d), finishers = finishers_of(c), shear = c->sheared ? GEMM_SHEAR : 0,
        columns = (c->tile_n - shear) / halves / finishers;
    const int loaded_n = is_k_major(c, 'b') ? c->tile_n : (int)round_up(c->tile_n, MN_SPAN);
    gemm_sm90_shape s = {
        .tile_k = gemm_tile_k(c->epilogue.ab),
        .consumer_rows = rows_of_consumer(c),
        .tile_n = (c->tile_n - shear) / halves,
        .shear = shear,
        .columns = columns,
        .finishers = finishers,
        .box_a = c->tile_m / c->cluster_n,
        .loaded_n = loaded_n,
        .box_b = loaded_n / halves / c->cluster_m,
        .within = { ends_with_D(c, 'a'), ends_with_D(c, 'b') },
        .cluster = c->cluster_m * c->cluster_n * c->split,
        .sharers = c->cluster_m * c->cluster_n,
        .threads = WARPGROUP * (1 + c->consumers),
        .d_rows = c->swap ? box_of(c, columns, SWAP_ROWS, SWAP_STEP) : 64,
        .d_cols = c->swap ? 64 : box_of(c, columns, 128 / d_bytes, 0),
        .stage_bytes = (int64_t)(c->tile_m + loaded_n) * GEMM_TILE_BYTES,
    };
    s.subtile = c->swap ? s.d_rows : s.d_cols;
    s.row_cols = row_cols_of(c, columns, s.d_cols);
    int d_span = s.d_cols * d_bytes;
    s.d_swizzle = d_span > 128 ? 0 : d_span;
    const int64_t vectors = add_vectors(&s, c), scales = add_scales(&s, c);
    s.partial_bytes = c->split > 1 ? (int64_t)s.consumer_rows * columns * 4 : 0;
    int64_t staging = (int64_t)c->consumers * c->buffers * s.d_rows * s.d_cols * d_bytes;
    int64_t partials = c->consumers * (c->split - 1) * s.partial_bytes;
    const int ahead = gemm_sm90_loads_ahead(c) ? c->buffers : 1;
    s.c_arrivals = c->epilogue.c ? ahead : 0;
    s.x_arrivals = !gemm_is_backward(c->epilogue.activation) ? 0 : c->epilogue.c ? 1 : ahead;
    int64_t barriers = 16 * (int64_t)c->stages + 8 * (int64_t)c->consumers * (s.c_arrivals + s.x_arrivals) +
                       (c->split > 1 ? 16 * (int64_t)c->consumers : 0);
    int64_t groups = c->groups ? 2 * 4 * ((int64_t)c->groups + 1) : 0;
    s.smem_bytes = c->stages * (s.stage_bytes + scales) + staging + vectors + partials + groups + barriers;
    return s;
}

tensor gemm_sm90_transposed(tensor t)
{
    layout plain = without_swizzle(t.layout);
    layout modes[] = { layout_mode(plain, 1), layout_mode(plain, 0) };
    return tensor_with_layout(t, with_swizzle(t.layout.sw, layouts_of(2, modes)));
}

/* The K tiles of this CTA. The slices of a split differ by one tile at most. */
static void divide_k(sm90_kernel *k)
{
    val all = div_up(k->p.k, k->size.tile_k), slices = imm(k->cfg->split);
    k->k_first = imm(0);
    k->k_tiles = all;
    if (k->cfg->split == 1)
        return;
    k->k_first = div(mul(all, k->rank_k), slices);
    k->k_tiles = sub(div(mul(all, add(k->rank_k, imm(1))), slices), k->k_first);
}

ckl_dtype gemm_sm90_type(const gemm_sm90_config *c, char operand)
{
    return gemm_type_of(&c->epilogue, c->swap ? (operand == 'a' ? 'b' : 'a') : operand);
}

int gemm_sm90_modes(const gemm_sm90_config *c, char operand)
{
    if (c->batched == GEMM_BY_POINTERS)
        return GEMM_MAP_RANK - 2;
    return c->groups ? operand == (c->swap ? 'a' : 'b') : c->batched == 1; // slices of K are all of one matrix
}

val gemm_sm90_pointer(const sm90_kernel *k, val array, val number)
{
    return convert(U64, at(gmem_vector(array, I64, k->p.batch), number));
}

outer_coordinates gemm_sm90_outer(const sm90_kernel *k, int modes, val array, val number)
{
    if (modes < GEMM_MAP_RANK - 2)
        return (outer_coordinates){ modes, { number } };
    val units = shift_right(sub(gemm_sm90_pointer(k, array, number), imm_as(U64, GEMM_MAP_BASE)),
                            imm(4)); // of GEMM_MAP_UNIT bytes
    val near = bit_and(units, imm_as(U64, (1 << GEMM_MAP_NEAR_BITS) - 1));
    return (outer_coordinates){ modes,
                                { convert(U32, near), convert(U32, shift_right(units, imm(GEMM_MAP_NEAR_BITS))) } };
}

/* A box of an operand: rows as long as a K tile or, if not K-major, a span of rows for each element of K. */
static tma_copy operand_tma(const sm90_kernel *k, val map, char operand, bool k_major, int box)
{
    int rank = 2 + gemm_sm90_modes(k->cfg, operand), depth = k->size.tile_k;
    return make_tma(map, gemm_sm90_type(k->cfg, operand), rank, k_major ? box : depth, k_major ? depth : MN_SPAN,
                    GEMM_TILE_BYTES);
}

void gemm_sm90_parameters(sm90_kernel *k)
{
    const gemm_sm90_shape *s = &k->size;
    ckl_dtype d = k->epilogue.d;
    int rank = k->epilogue.pointers ? GEMM_MAP_RANK : k->cfg->batched ? 3 : 2;
    k->p = params_of(gemm_sm90);
    if (k->cfg->batched == GEMM_BY_POINTERS)
        k->array_of_B = params_of(gemm_pointers).b;
    k->a_k_major = is_k_major(k->cfg, 'a');
    k->b_k_major = is_k_major(k->cfg, 'b');
    k->tmaA = operand_tma(k, k->p.A, 'a', k->a_k_major, s->box_a);
    k->tmaB = operand_tma(k, k->p.B, 'b', k->b_k_major, s->box_b);
    const int d_rows = s->d_rows / (s->shear ? 2 : 1);
    if (k->cfg->ragged != GEMM_ALL_RAGGED)
        k->tmaD = make_tma(k->p.D, d, rank, d_rows, s->d_cols, s->d_swizzle);
    if ((k->epilogue.c || s->shear) && k->cfg->ragged != GEMM_ALL_RAGGED)
        k->tmaC = make_tma(k->p.C, d, rank, d_rows, s->d_cols, s->d_swizzle);
    if (gemm_uses_x(&k->epilogue) && k->cfg->ragged != GEMM_ALL_RAGGED)
        k->tmaX = make_tma(k->p.PRE, d, rank, s->d_rows, s->d_cols, s->d_swizzle);
    if (s->scales[0].boxes)
        gemm_sm90_scale_parameters(k);
    divide_k(k);
}

/*
 * (ROWS,BK,STAGES), for wgmma: rows of a K tile, or spans of MN_SPAN rows for each element of K, one after the other.
 */
static tensor operand_ring(const sm90_kernel *k, char operand, int rows, bool k_major)
{
    const char *name = operand == 'a' ? "A" : "B";
    ckl_dtype ab = gemm_sm90_type(k->cfg, operand);
    int depth = k->size.tile_k, stages = k->cfg->stages;
    if (k_major)
        return tma_ring(name, ab, rows, depth, stages);
    layout plain = make_layout(shape(shape(MN_SPAN, rows / MN_SPAN), depth, stages),
                               stride(stride(1, MN_SPAN * depth), MN_SPAN, (int64_t)rows * depth));
    return smem_tensor(name, ab, with_swizzle(tma_tile_layout(ab, depth, MN_SPAN, GEMM_TILE_BYTES).sw, plain), 1024);
}

/*
 * Partials lie in pairs, those of neighbouring threads side by side: every store and load covers whole rows of banks.
 */
static void describe_partials(sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    int pairs = (int)(k->size.partial_bytes / (2 * 4 * WARPGROUP)), partial = 2 * WARPGROUP * pairs;
    const int others = cfg->split - 1;
    layout partials = make_layout(shape(2, WARPGROUP, pairs, others, cfg->consumers),
                                  stride(1, 2, 2 * WARPGROUP, partial, partial * others));
    k->sPartials = smem_tensor("partials", F32, partials, 16); // (2,THREADS,PAIRS,SPLIT-1,CONSUMERS)
}

static void describe_scales(sm90_kernel *k)
{
    static const char *const names[] = { "scales of rows", "scales of columns" };
    for (int mode = 0; mode < 2; mode++) {
        const gemm_scale_boxes *s = &k->size.scales[mode];
        const layout boxed =
            make_layout(shape(s->length, s->boxes, k->cfg->stages), stride(1, s->slot, s->slot * s->boxes));
        if (s->boxes)
            k->sScales[mode] = smem_tensor(names[mode], F32, boxed, 128);
    }
}

void gemm_sm90_memory(sm90_kernel *k)
{
    const gemm_sm90_config *cfg = k->cfg;
    const gemm_sm90_shape *s = &k->size;
    k->sA = operand_ring(k, 'a', cfg->tile_m, k->a_k_major); // (BM,BK,STAGES)
    k->sB = operand_ring(k, 'b', s->loaded_n, k->b_k_major); // (BN,BK,STAGES), BN in whole spans if not K-major
    k->sD = tma_tiles("D", k->epilogue.d, s->d_rows, s->d_cols, cfg->buffers, cfg->consumers);
    static const char *const names[] = { [GEMM_BIAS] = "bias",
                                         [GEMM_SCALE_OF_A] = "scale_a",
                                         [GEMM_SCALE_OF_B] = "scale_b",
                                         [GEMM_WEIGHT_OF_ROW] = "weights" };
    for (int v = 0; v < GEMM_VECTORS; v++)
        if (s->vectors[v])
            k->sVectors[v] = smem_tensor(names[v], F32, compact(shape(s->vectors[v], cfg->consumers)), 16);
    describe_scales(k);
    if (cfg->split > 1)
        describe_partials(k);
    if (cfg->groups) {
        k->sFirst = smem_tensor("first rows", I32, compact(leaf(cfg->groups + 1)), 4); // (GROUPS+1)
        k->sTiles = smem_tensor("tiles", I32, compact(leaf(cfg->groups + 1)), 4);      // (GROUPS+1)
    }
    int releases = (cfg->pingpong ? 1 : cfg->consumers) * (cfg->cluster_m + cfg->cluster_n - 1); // of a stage
    k->ring = make_pipeline("ring", cfg->stages, 1, releases * (s->scales[0].boxes ? WARPGROUP / 32 : 1));
    if (s->c_arrivals)
        k->c_barriers = smem_alloc("C arrived", 8 * (int64_t)cfg->consumers * s->c_arrivals, 8);
    if (s->x_arrivals)
        k->x_barriers = smem_alloc("X arrived", 8 * (int64_t)cfg->consumers * s->x_arrivals, 8);
    if (cfg->split > 1) {
        k->partials_arrived = smem_alloc("partials arrived", 8 * (int64_t)cfg->consumers, 8);
        k->partials_free = smem_alloc("partials free", 8 * (int64_t)cfg->consumers, 8);
    }
}

val gemm_sm90_k_tiles(const sm90_kernel *k, const tile_place *at)
{
    if (k->cfg->batched != GEMM_GROUPS_OF_K)
        return k->k_tiles;
    return div_up(at->k_count, k->size.tile_k);
}

/*
 * Where tile number i of some along a side of D begins: the last one ends with D and lies over the one before, as both
 * store the same bits, for TMA fills rows beyond an operand slower than it loads rows.
 */
static val start_of(const sm90_kernel *k, bool along_m, val i)
{
    const int tile = along_m ? k->cfg->tile_m : k->size.tile_n;
    const val extent = along_m ? k->p.m : k->p.n, start = mul(i, imm(tile));
    if (!k->size.within[along_m ? 0 : 1])
        return !along_m && k->size.shear ? sub(max(start, imm(k->size.shear)), imm(k->size.shear)) : start;
    return min(start, sub(max(extent, imm(tile)), imm(tile)));
}

tile_place gemm_sm90_tile(const sm90_kernel *k, val tile)
{
    tile_place at = { .number = tile, .batch = imm(0) };
    val row, col;
    if (k->cfg->batched) {
        at.batch = div(tile, k->tiles.count);
        tile = rem(tile, k->tiles.count);
    }
    tile_at(&k->tiles, tile, &row, &col);
    if (k->cfg->batched == GEMM_GROUPS_OF_K)
        gemm_sm90_find_part_of_k(k, &at);
    if (k->cfg->groups)
        at.batch = gemm_sm90_find_group(k, k->cfg->swap ? &col : &row);
    at.row = start_of(k, true, add(mul(row, imm(k->cfg->cluster_m)), k->rank_m));
    at.col = start_of(k, false, add(mul(col, imm(k->cfg->cluster_n)), k->rank_n));
    if (k->cfg->groups) {
        val *along = k->cfg->swap ? &at.col : &at.row;
        *along = add(*along, convert(U32, at(k->sFirst, at.batch)));
        at.end = convert(U32, at(k->sFirst, add(at.batch, imm(1))));
    }
    return at;
}

/* Of a split tile this is the CTA's slice of the columns, if it finishes one. */
tile_place gemm_sm90_own_tile(const sm90_kernel *k, const consumer_role *c, val tile)
{
    tile_place at = gemm_sm90_tile(k, tile);
    if (!k->cfg->pingpong)
        at.row = add(at.row, mul(c->index, imm(k->size.consumer_rows)));
    at.col = add(at.col, mul(k->rank_k, imm(k->size.columns)));
    return at;
}

val gemm_sm90_rows_of_D(const sm90_kernel *k)
{
    return k->cfg->swap ? k->p.n : k->p.m;
}

val gemm_sm90_cols_of_D(const sm90_kernel *k)
{
    return k->cfg->swap ? k->p.m : k->p.n;
}

val gemm_sm90_last_row(const sm90_kernel *k, const subtile *h)
{
    return k->cfg->groups ? h->at.end : gemm_sm90_rows_of_D(k);
}
