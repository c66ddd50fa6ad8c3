/*
 * gemm_sm90_choice.c - the candidate configs of the Hopper kernel, whose tiles were found by timing. The cheapest is
 * taken: gemm_sm90_cost.c.
 */
#include "operators/gemm/gemm_plan.h"

enum {
    LINE_BYTES = 128, // of memory and L2
    STAGES_MAX = 12,  // small tiles need many against latency: 256x2048x7168 in 64x64 takes 16.8 us, with 8 stages 19.4
    STAGES_ENOUGH = 4,
    STEPS_FEWEST = 2,
    STEPS_FEW = 8,       // along K, of small products: their epilogues are as long as their main loops
    STEPS_MANY = 32,     // of a tile that is worth a CTA of its own
    SWAP_COLUMNS = 256,  // of a tile of D^T at most
    SWAP_TILES = 2,      // along them
    SWAP_TILES_WIDE = 8, // of 128 rows
    SWAP_NARROW = 128,
    ATOM_COLUMNS = 16,
    SHEARED_COLUMNS = 136,
    SHARED_COLUMNS = 32, // of tiles of which an SM holds two: 32x7168x16384 takes 58.0 us instead of 62.5
};

typedef struct fitted_tile {
    int tile_m, tile_n, consumers;
    bool pingpong;
    int cluster_m, cluster_n, split;
    bool swap;
} fitted_tile;

/* In any order; where none can compute, the last one says why. tile_n=0: gemm_sm90_swapped_columns(). */
static const fitted_tile fitted_tiles[] = {
    { 64, 0, 1, 0, 1, 1, 8, 1 },    { 64, 0, 1, 0, 1, 1, 4, 1 },    { 64, 0, 1, 0, 1, 1, 2, 1 },
    { 128, 0, 2, 0, 1, 1, 1, 1 },   { 64, 0, 1, 0, 1, 1, 1, 1 },    { 64, 16, 1, 0, 1, 1, 1, 0 },
    { 64, 96, 1, 0, 1, 1, 8, 0 },   { 64, 48, 1, 0, 1, 1, 8, 0 },   { 64, 64, 1, 0, 1, 2, 4, 0 },
    { 64, 128, 1, 0, 1, 1, 2, 0 },  { 64, 48, 1, 0, 1, 1, 4, 0 },   { 192, 192, 3, 0, 2, 1, 1, 0 },
    { 128, 256, 2, 0, 2, 1, 1, 0 }, { 128, 224, 2, 0, 1, 1, 1, 0 }, { 128, 192, 2, 1, 1, 1, 1, 0 },
    { 128, 192, 2, 1, 2, 1, 1, 0 }, { 128, 176, 2, 1, 1, 1, 1, 0 }, { 192, 128, 3, 0, 1, 2, 1, 0 },
    { 128, 160, 2, 0, 1, 1, 1, 0 }, { 128, 128, 2, 1, 1, 1, 1, 0 }, { 128, 128, 2, 1, 1, 2, 1, 0 },
    { 128, 128, 2, 0, 1, 2, 1, 0 }, { 64, 192, 1, 0, 1, 1, 1, 0 },  { 128, 96, 2, 0, 2, 1, 1, 0 },
    { 64, 128, 2, 1, 1, 1, 1, 0 },  { 64, 128, 2, 1, 2, 1, 1, 0 },  { 128, 128, 2, 1, 2, 1, 1, 0 },
    { 64, 128, 1, 0, 1, 1, 1, 0 },  { 64, 128, 1, 0, 2, 1, 1, 0 },  { 64, 96, 1, 0, 1, 1, 1, 0 },
    { 64, 96, 1, 0, 2, 1, 1, 0 },   { 64, 64, 2, 1, 1, 1, 1, 0 },   { 64, 64, 1, 0, 1, 2, 1, 0 },
    { 64, 64, 1, 0, 1, 1, 1, 0 },   { 64, 96, 1, 0, 2, 1, 2, 0 },   { 128, 64, 2, 0, 2, 1, 1, 0 },
    { 128, 128, 2, 0, 1, 1, 2, 0 }, { 64, 0, 2, 1, 1, 1, 1, 1 },    { 64, 16, 2, 1, 1, 1, 1, 0 },
    { 128, 136, 2, 1, 1, 2, 1, 0 }, { 256, 128, 2, 0, 1, 1, 1, 0 }, { 64, 32, 2, 1, 1, 1, 1, 0 },
    { 64, 32, 1, 0, 1, 1, 1, 0 }, // the last one says why none is admitted
};

int64_t gemm_sm90_shared_memory(const gemm_sm90_config *c, const ckl_device_info *device)
{
    enum { SYSTEM_BYTES = 1024 }; // of every CTA
    return min_i64(device->smem_per_cta_bytes, device->smem_per_sm_bytes / c->ctas - SYSTEM_BYTES);
}

/* Staging buffers to try first, and the most stages. */
typedef struct ring_limits {
    int buffers, stages;
} ring_limits;

/*
 * With few steps along K the ring is short and the staging buffers are many: most of the traffic is boxes of C.
 * 16640x384x32 with C in f32 takes 15.5 us with 8 buffers and 4 stages, 37.7 with 2 and 12 and a box at a time.
 */
static ring_limits limits_of(const gemm_sm90_config *c, int64_t k_steps)
{
    const bool few = k_steps <= STEPS_FEW, reads = gemm_reads_matrix(&c->epilogue);
    const bool whole_rows = c->ragged == GEMM_ALL_RAGGED && c->epilogue.d == CKL_F32 && c->pingpong;
    if (reads && k_steps <= STAGES_ENOUGH && !whole_rows)
        return (ring_limits){ 8, STAGES_ENOUGH };
    if (reads && (few || c->epilogue.d == CKL_F32)) // 6144x6080x640: 119.8 us, with 2 buffers 152.3
        return (ring_limits){ 4, STAGES_MAX };
    if (k_steps <= STEPS_FEWEST && !c->batched && c->pingpong && c->tile_m == 128 && c->cluster_n == 2)
        return (ring_limits){ 4, STAGES_ENOUGH }; // D is most of what moves
    if (few && whole_rows)
        return (ring_limits){ 4, STAGES_MAX }; // rows of 128 columns are stored whole
    return (ring_limits){ few && (c->batched == 1 || c->batched == GEMM_BY_POINTERS) ? 4 : 2, STAGES_MAX };
}

void gemm_sm90_fit_memory(gemm_sm90_config *c, int64_t k_steps, const ckl_device_info *device)
{
    const ring_limits most = limits_of(c, k_steps);
    int64_t have = gemm_sm90_shared_memory(c, device);
    for (c->buffers = most.buffers; c->buffers > 0; c->buffers /= 2) {
        c->stages = most.stages;
        const gemm_sm90_shape size = gemm_sm90_shape_of(c);
        const int64_t beyond = size.smem_bytes - have, stage = size.stage_bytes;
        if (beyond > 0) // a stage has barriers, too: this may drop one too many, never too few
            c->stages = (int)max_i64(most.stages - ceil_div(beyond, stage) + 1, 2);
        while (c->stages > 2 && gemm_sm90_shape_of(c).smem_bytes > have)
            c->stages--;
        if (c->stages >= STAGES_ENOUGH)
            return;
    }
    c->buffers = 1;
}

/* What of D TMA cannot store: nothing, the ends of rows, or all, because rows of D or C start anywhere. */
static int ragged_of(const ckl_gemm_desc *d)
{
    if (!gemm_results_aligned(d, TMA_ALIGNMENT))
        return GEMM_ALL_RAGGED;
    return d->n * (int64_t)ckl_dtype_bytes(d->d) % TMA_ALIGNMENT != 0;
}

/*
 * Do so many tiles of D^T leave a 32nd less empty than 128 rows of D would? Then 824x8192x10752 takes 192 us in them,
 * else 226.
 */
static bool end_better(int64_t rows, int64_t tiles, int64_t columns)
{
    enum { PART = 32 };
    const int64_t of_D = round_up(rows, SWAP_NARROW);
    return PART * (of_D - tiles * columns) >= of_D;
}

int gemm_sm90_swapped_columns(int64_t rows, bool wide)
{
    const int64_t tiles = max_i64(1, ceil_div(rows, SWAP_COLUMNS));
    const int64_t columns = round_up(ceil_div(rows, tiles), ATOM_COLUMNS);
    const bool many = tiles > SWAP_TILES && !(wide && tiles <= SWAP_TILES_WIDE && end_better(rows, tiles, columns));
    return many || (wide && columns <= SWAP_NARROW) ? 0 : (int)columns;
}

/* Groups that a config has room for, in few sizes so that kernels are few. */
static int room_for(int64_t groups)
{
    enum { FEWEST = 32, STEP = 4 };
    int64_t room = FEWEST;
    while (room < groups && room <= INT32_MAX / STEP)
        room *= STEP;
    return groups ? (int)room : 0;
}

/* Tiles of few columns, which are all of D's or D^T's. */
static int64_t narrow_tiles(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    const int64_t rows = c->swap ? d->n : d->m, cols = c->swap ? d->m : d->n;
    const bool narrow =
        c->consumers == 1 && c->split == 1 && !d->groups && c->tile_n <= SHARED_COLUMNS && cols <= c->tile_n;
    return narrow ? ceil_div(rows, c->tile_m) * d->batch : 0;
}

/*
 * Few rows, or columns: two CTAs an SM. In one wave of tiles the next launch's CTAs begin beside the last of this one:
 * 16x7168x16384 takes 56.7 us instead of 61.9. In several waves every tile has its own CTA, so that SMs with faster
 * memory take more tiles: 8x28672x8192 takes 114.0 us, 118.1 in persistent ones. Three of shorter rings up to some two
 * tiles an SM, so that no SM ends last, 280 of 7x17920x16384 in 139.3 us instead of 158.0; and by few steps, so that
 * the epilogue of one hides behind the others: 8x9216x512 takes 4.3 us, 5.2 in persistent tiles.
 */
static void share_SMs(const ckl_gemm_desc *d, gemm_sm90_config *c, const ckl_device_info *device)
{
    const int64_t tiles = narrow_tiles(d, c), steps = gemm_k_tiles(d);
    const bool turns = tiles > device->sm_count;
    const bool two = turns && tiles <= (c->tile_n > ATOM_COLUMNS ? 8 : 9) * device->sm_count / 4;
    const bool few = turns && steps < STEPS_MANY;
    if (tiles == 0 || (c->tile_n > ATOM_COLUMNS && ((turns && !two && !few) || 2 * tiles <= device->sm_count)))
        return; // only measured so
    c->ctas = two || few ? 3 : 2;
    c->persistent = !turns;
}

/*
 * 241x9512x31952 takes 237 us in 128x160 that share both, 277 alone; 8192x128x6768 39.5 in pairs, 45.2 alone. In
 * several waves tiles of both consumers share B, or A: 512x14713x27032 takes 623 us in pairs of 128x224, 725 alone.
 */
void gemm_sm90_share_operands(const ckl_gemm_desc *d, gemm_sm90_config *c, const ckl_device_info *device)
{
    const int64_t down = ceil_div(c->swap ? d->n : d->m, c->tile_m),
                  across = ceil_div(c->swap ? d->m : d->n, max_i64(c->tile_n, 1));
    const int m = down % 2 || gemm_rows_aligned(d, c->swap ? 'a' : 'b', LINE_BYTES) ? 1 : 2;
    int n = across % 2 || gemm_rows_aligned(d, c->swap ? 'b' : 'a', LINE_BYTES) ? 1 : 2;
    const bool one_wave = down * across <= gemm_sm90_clusters(device->sm_count, m * n) * m * n;
    const bool deep = !d->groups && !d->gated && d->batch == 1 && 2 * gemm_k_tiles(d) >= STEPS_MANY && c->ctas == 1;
    const bool suits = one_wave || (c->consumers == 2 && !c->pingpong);
    n = one_wave || m == 1 ? n : 1;
    if (deep && suits && c->cluster_m <= m && c->cluster_n <= n && c->split == 1) {
        c->cluster_m = m;
        c->cluster_n = n;
    }
}

/* One product of 16 or 8 bits that TMA takes as it lies, D too: such were timed with tiles of their own. */
static bool is_plain(const ckl_gemm_desc *d)
{
    return ckl_dtype_bytes(d->a) <= 2 && d->b == d->a && d->k > 0 && d->batch == 1 && !d->groups && !d->gated &&
           !gemm_has_x(d) && !d->pointers && !d->gather && !d->scatter && gemm_operands_aligned(d) && ragged_of(d) == 0;
}

/*
 * Is D most of what moves? Then the rows that TMA loads for each byte of D decide, at 4 to 8 cycles each; the model
 * does not see them.
 */
static bool is_mostly_D(const ckl_gemm_desc *d, const ckl_device_info *device)
{
    enum { LEAST = 256 };
    const bool wide = d->d == CKL_F32, half = ckl_dtype_bytes(d->d) == 2 && !d->c;
    const int64_t tiles = ceil_div(d->m, wide ? 64 : 128) * ceil_div(d->n, wide ? 128 : 256); // or pairs
    return is_plain(d) && d->layout == CKL_GEMM_NT && (wide || half) && d->m >= LEAST && d->n >= LEAST &&
           gemm_k_tiles(d) <= STEPS_FEWEST && tiles >= (wide ? 1 : 2) * device->sm_count;
}

/*
 * Are rows in f32 copied by threads, in pairs that share B? Of one K step and a D that L2 cannot hold: 29135x3584x32
 * with C takes 222 us so, 236 by TMA, but 8192x1024x32 with C 23.4 and 20.3, 16384x2560x128 50.8 and 49.7.
 */
static bool copies_by_threads(const ckl_gemm_desc *d)
{
    const double BYTES_LEAST = 1e8;
    return d->d == CKL_F32 && gemm_k_tiles(d) == 1 && 4.0 * (double)d->m * (double)d->n >= BYTES_LEAST;
}

/*
 * Its tiles: 4096x5504x128 in f32 takes 26.3 us in 64x128, 31.0 in 64x64; 1024x58808x48 in f16 59.7 in pairs, 68.2 in
 * 64x128; 8200x4104x128 28.1 in pairs, 33.0 in 128x192.
 */
static bool suits_D(const ckl_gemm_desc *d, const fitted_tile *t)
{
    if (d->d == CKL_F32)
        return t->pingpong && t->tile_m == 64 && t->tile_n == 128 && (t->cluster_m == 2 || !copies_by_threads(d));
    if (gemm_sm90_may_shear(d) && d->activation != CKL_ACTIVATION_GELU) // whose epilogue is longer than the stores
        return t->tile_n == SHEARED_COLUMNS;
    const bool ends_inside = d->k % gemm_tile_k(d->a),
               shares_B = t->tile_n == 192 && t->cluster_m == 2 && ends_inside && gemm_k_tiles(d) > 1;
    return t->pingpong && t->tile_m == 128 && (shares_B || t->cluster_n == 2);
}

/*
 * Tiles as wide as lets all of D go in so many turns, which asks less of L2: 253x12288x1792 with GELU takes 23.8 us in
 * one of 128x192, 28.9 in 64x128; 2073x1024x10112 69.6 in one of 64x256, 86.2 in two of 64x128. Tiles in turn hide
 * their stores, so there may be some turns: 1016x4648x2688 takes 44.7 us in two of 128x144, 46.7 in one of 256x160. Of
 * many the power limit decides: 2048x12288x4096 takes 309 us in nine of 128x168, 299 in eight of 128x192. D^T is
 * divided otherwise: 2448x3072x7168 takes 163 us in two turns of 128x224 of it, 187 in 64x192.
 */
typedef struct even_tile {
    fitted_tile tile; // of so many columns at most
    int turns;        // at most
    int least, step;  // columns
} even_tile;

static const even_tile even_tiles[] = {
    { { 64, 256, 1, 0, 1, 1, 1, 0 }, 1, 96, 16 },  { { 64, 256, 1, 0, 1, 1, 1, 1 }, 1, 96, 16 },
    { { 256, 192, 2, 0, 1, 1, 1, 0 }, 1, 64, 32 }, { { 192, 192, 3, 0, 2, 1, 1, 0 }, 1, 144, 16 },
    { { 128, 240, 2, 0, 1, 1, 1, 1 }, 2, 80, 16 }, { { 128, 240, 2, 0, 1, 1, 1, 0 }, 2, 96, 32 },
    { { 128, 192, 2, 1, 1, 1, 1, 0 }, 4, 136, 8 }
};

/*
 * Those that make the columns of all turns fewest, or 0: it has none. Of few widths, so that kernels are few. Not where
 * rows begin inside lines: 1904x1904x1904 takes 27.6 us in 192x192, 28.7 in pairs of 128x240. Along an M-major A
 * not where whole spans are a third more: 1536^3 tn takes 15.9 us as D^T of 128x144, 14.6 of 128x160.
 */
static int columns_of_even(const ckl_gemm_desc *d, const even_tile *t, const gemm_sm90_config *c,
                           const ckl_device_info *device)
{
    enum { SQUARE = 128, SPAN = 64, STEPS_LEAST = 24, WITH_BIAS = 64 /* fewer widths */ };
    const bool tall = t->tile.tile_m == 2 * SQUARE && gemm_k_tiles(d) >= STEPS_LEAST / 2;
    const bool deep = gemm_k_tiles(d) >= STEPS_LEAST && gemm_rows_aligned(d, 'a', LINE_BYTES);
    const bool swap = t->tile.swap;
    const int unit = t->tile.pingpong && d->bias ? WITH_BIAS : gemm_sm90_column_step(c);
    const int step = (int)max_i64(deep || tall ? t->step : ATOM_COLUMNS, unit);
    const int most = t->tile.tile_n;
    const int64_t down = ceil_div(swap ? d->n : d->m, t->tile.tile_m), across = swap ? d->m : d->n;
    const bool m_major = swap && !gemm_is_k_major(d, 'a');
    int best = 0;
    int64_t fewest = INT64_MAX; // columns of all turns
    const bool suits = t->tile.tile_m > SPAN || (d->layout == CKL_GEMM_NT && !d->c && gemm_k_tiles(d) >= STEPS_MANY);
    if (!is_plain(d) || !(t->tile.pingpong || deep || tall) || !suits)
        return 0;
    for (int columns = (int)round_up(t->least, unit); columns < most + step; columns += step) {
        const int64_t turns = ceil_div(down * ceil_div(across, min_i64(columns, most)), device->sm_count);
        const int64_t loaded = m_major ? round_up(columns, SPAN) : columns;
        if (turns <= t->turns && 3 * loaded < 4 * columns && (columns != SQUARE || t->tile.tile_m < SQUARE) &&
            turns * columns <= fewest) {
            best = (int)min_i64(columns, most);
            fewest = turns * columns;
        }
    }
    return best;
}

/*
 * Are tiles of 64 rows in one turn the only ones? To the model all of few rows are bound by memory, but 64x28672x8192
 * takes 113.9 us in 64x224, 124.8 in 64x128; 48x20480x8192 82.6 in 64x160, 87.6 as D^T.
 */
static bool is_one_turn(const ckl_gemm_desc *d, const gemm_sm90_config *c, const ckl_device_info *device)
{
    enum { ROWS = 64, LEAST = 160 };
    const bool few = d->m > ROWS / 2 && d->m <= ROWS && !d->c && ckl_dtype_bytes(d->d) == 2;
    const int columns = few && gemm_k_tiles(d) >= 2 * STEPS_MANY ? columns_of_even(d, &even_tiles[0], c, device) : 0;
    return columns >= LEAST && 10 * ceil_div(d->n, columns) >= 9 * device->sm_count;
}

/*
 * Is a split worth a thought? Not of few steps along K. And CTAs at different parts of K read nothing together, so D in
 * two is for a thin D, which shares little anyway (4096x128x8192 takes 22.0 us in 64x128 in two, 26.2 in 64x64), for
 * pairs that share B (128x2544x4096 8.8 in 64x96 in two, 10.6), and by squares for a deep K in one turn (1024x1024x8192
 * 29.2 in 128x128 in two, 32.2). In eight few rows are D^T (16x256x7168 4.4, 4.8 as D), others not (64x512x32768 17.6,
 * 15.5).
 */
static bool may_split(const ckl_gemm_desc *d, const fitted_tile *t, const ckl_device_info *device)
{
    enum { ROWS = 64, THIN = 128, IN_TWO = 2, IN_FOUR = 4, FEW_ROWS = 64 };
    const int64_t shorter = min_i64(d->m, d->n), steps = gemm_k_tiles(d);
    if (t->split == 1 || steps <= STEPS_FEW)
        return t->split == 1;
    if (t->split > IN_FOUR && t->swap != (d->m < FEW_ROWS))
        return false;
    if (t->swap)
        return true;
    const bool square = t->tile_m > ROWS && IN_TWO * gemm_tiles(d, t->tile_m, t->tile_n) <= device->sm_count;
    return t->split != IN_TWO || shorter <= THIN || t->cluster_m > 1 || (square && steps >= 4 * STEPS_MANY);
}

/*
 * Is a tile as narrow as D? Pairs of 128x64 that share B are for 33 to 64 columns of one product whose rows begin
 * inside lines of memory: 107904x64x776 takes 49.0 us in them, 56.2 in pairs of 128x96, 25088x40x144 5.7 and 7.2 in
 * 64x64 in turn; of a K of 768 44.7 and 44.0.
 */
static bool is_narrow_enough(const ckl_gemm_desc *d, const fitted_tile *t)
{
    enum { ROWS = 128, COLUMNS = 64 };
    if (t->tile_m == ROWS && t->tile_n == COLUMNS)
        return d->n > COLUMNS / 2 && d->n <= COLUMNS && d->batch == 1 && !gemm_rows_aligned(d, 'a', LINE_BYTES);
    return t->swap || t->tile_n != ATOM_COLUMNS || d->n <= ATOM_COLUMNS;
}

/*
 * Do tiles of 64 rows in turn have 128? Where K has few steps and all of few columns are in a tile: TMA takes longer
 * for rows than for bytes, and for each box. 23x256000x168 takes 41.8 us so, 61.0 in 64 rows, 65536x32x64 5.0, 6.9 in
 * three CTAs an SM.
 */
static bool is_tall(const ckl_gemm_desc *d, const fitted_tile *t, int columns)
{
    enum { ROWS = 64, WIDEST = 80, STEPS = 4, TILES = 16, FEWEST = 2 /* are gemv's */ };
    const int64_t rows = t->swap ? d->n : d->m, all = t->swap ? d->m : d->n;
    return t->pingpong && t->tile_m == ROWS && columns <= WIDEST && all <= columns && all > FEWEST &&
           rows >= TILES * ROWS && gemm_k_tiles(d) <= STEPS;
}

/* 4096x7168x16384 with scales of blocks takes 778 us in 256x128, 824 in pairs of 128x192; others were not timed. */
static bool is_for_scales(const fitted_tile *t)
{
    return t->tile_m == 256 && t->tile_n == 128;
}

/* Is a tile considered for a problem? */
static bool is_considered(const ckl_gemm_desc *d, const fitted_tile *t, const gemm_sm90_config *c,
                          const ckl_device_info *device)
{
    if (is_one_turn(d, c, device))
        return t == &even_tiles[0].tile;
    if (is_mostly_D(d, device))
        return suits_D(d, t);
    if (t->tile_n == SHEARED_COLUMNS || (is_for_scales(t) && !gemm_has_block_scales((choice)d->scale_a)))
        return false;
    const bool tall_alone = t->pingpong && !t->swap && t->tile_n <= SHARED_COLUMNS;
    return is_narrow_enough(d, t) && may_split(d, t, device) && (!tall_alone || is_tall(d, t, t->tile_n));
}

static int columns_of(const ckl_gemm_desc *d, const fitted_tile *t, const even_tile *even, const gemm_sm90_config *c,
                      const ckl_device_info *device)
{
    if (!is_considered(d, t, c, device))
        return 0; // which is refused
    if (even)
        return columns_of_even(d, even, c, device);
    return t->swap ? gemm_sm90_swapped_columns(gemm_rows_of_group(d), t->tile_m > 64) : t->tile_n;
}

/* Columns of D that are no whole lines of an N-major B: those of D^T are rows of A. */
static bool lies_better_as_DT(const ckl_gemm_desc *d, int columns)
{
    enum { SPAN = 64 };
    return columns % SPAN && columns % ATOM_COLUMNS == 0 && columns < d->n && !gemm_is_k_major(d, 'b') &&
           gemm_is_k_major(d, 'a') && !d->gated && !d->groups;
}

bool gemm_sm90_candidate(const void *desc, const ckl_device_info *device, int i, void *config)
{
    const ckl_gemm_desc *d = desc;
    gemm_sm90_config *c = config;
    enum { EVEN = COUNT_OF(even_tiles) }; // those before the fitted ones
    if (i >= EVEN + COUNT_OF(fitted_tiles))
        return false;
    const even_tile *even = i < EVEN ? &even_tiles[i] : NULL;
    const fitted_tile *t = even ? &even->tile : &fitted_tiles[i - EVEN];
    c->epilogue = gemm_epilogue_of(d);
    c->ragged = d->pointers && !gemm_by_pointers(d, 'a') ? GEMM_ALL_RAGGED : ragged_of(d);
    c->split = t->split;
    c->row_vectors = is_mostly_D(d, device) && copies_by_threads(d);
    if (c->row_vectors)
        c->ragged = GEMM_ALL_RAGGED;
    c->tile_n = columns_of(d, t, even, c, device);
    c->tile_m = t->tile_m * (is_tall(d, t, c->tile_n) ? 2 : 1);
    c->consumers = t->consumers;
    c->pingpong = t->pingpong && d->accumulation == CKL_GEMM_FAST && // one adds while the other's tensor cores work
                  !gemm_groups_of_k(d);                              // whose lengths differ
    c->cluster_m = t->cluster_m;
    c->cluster_n = t->cluster_n;
    c->sheared = t->tile_n == SHEARED_COLUMNS;
    c->swap = t->swap || lies_better_as_DT(d, c->tile_n);
    c->batched = gemm_sm90_batched_of(d);
    c->groups = gemm_groups_of_m(d) ? room_for(d->groups) : 0;
    c->group = 8; // 4, 8 and 16 are within 0.3 % from 4096^3 on
    c->ctas = 1;
    c->persistent = true;
    share_SMs(d, c, device);
    gemm_sm90_share_operands(d, c, device);
    gemm_sm90_fit_memory(c, gemm_k_tiles(d), device);
    return true;
}
