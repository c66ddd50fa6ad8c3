/*
 * gemm_sm90_choice.c - the candidate configs of the Hopper kernel, and what one costs on a problem.
 *
 * Every term of the model has a meaning: K steps bound by the tensor cores, or by the bandwidth into an SM or out of
 * L2; epilogues, which ping-pong hides; waves of tiles; memory and power of the device. Coefficients and tiles are
 * fitted to what was measured: gemm_sm90_fit.h.
 */
#include <math.h>

#include "operators/gemm/gemm_plan.h"
#include "operators/gemm/gemm_sm90_fit.h"

enum {
    ROW_BYTES = GEMM_TILE_BYTES, // of a row of A or B in a K step
    STEP_HALVES = ROW_BYTES / 2, // as elements of 16 bits; other types take as long
    LINE_BYTES = 128,            // of memory and L2
    STAGES_MAX = 12, // small tiles need many against latency: 256x2048x7168 in 64x64 takes 16.8 us, with 8 stages 19.4
    STAGES_ENOUGH = 4,
    STEPS_FEWEST = 2,
    STEPS_FEW = 8,       // along K, of small products: their epilogues are as long as their main loops
    STEPS_MANY = 32,     // of a tile that is worth a CTA of its own
    SWAP_COLUMNS = 256,  // of a tile of D^T at most
    SWAP_TILES = 2,      // along them
    SWAP_TILES_WIDE = 8, // of 128 rows
    SWAP_NARROW = 128,
    ATOM_COLUMNS = 16,
    SHARED_COLUMNS = 32, // of tiles of which an SM holds two: 32x7168x16384 takes 58.0 us instead of 62.5
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
    if (reads && k_steps <= STAGES_ENOUGH)
        return (ring_limits){ 8, STAGES_ENOUGH };
    if (reads && (few || c->epilogue.d == CKL_F32)) // 6144x6080x640: 119.8 us, with 2 buffers 152.3
        return (ring_limits){ 4, STAGES_MAX };
    if (k_steps <= STEPS_FEWEST && !c->batched && c->pingpong && c->tile_m == 128 && c->cluster_n == 2)
        return (ring_limits){ 4, STAGES_ENOUGH }; // D is most of what moves
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

/*
 * The clusters that a device holds at once, a CTA an SM; each lies within a GPC of 16 SMs or a few more. NOTE: an H200
 * of 132 SMs has room for 66 of 2 CTAs, 30 of 4, 15 of 8. Odd ones seem to take whole pairs of SMs: 40 of 3
 * (128x1280x8192) take 15.9 us, as long as two turns, 20 of 6 14.5; 16 of 6 with as much work each 9.1.
 */
static int64_t clusters_of(int64_t sm_count, int cluster)
{
    enum { GPC = 16, PAIR = 2 };
    const int64_t usable = cluster > PAIR ? sm_count * 10 / 11 : sm_count,
                  sms = cluster > 1 ? round_up(cluster, PAIR) : 1;
    return max_i64(min_i64(usable / sms, sm_count * (GPC / sms) / GPC), 1);
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
 * memory take more tiles: 8x28672x8192 takes 114.0 us, 118.1 in persistent ones. Up to some two tiles an SM shorter
 * rings of three CTAs, so that no SM ends last: 192 tiles of 3x12288x15360 take 90.5 us, 109.0 with longer rings, 280
 * of 7x17920x16384 139.3 and 158.0.
 * And by few steps, so that the epilogue of one hides behind the others: 8x9216x512 takes 4.3 us, 5.2 in persistent
 * tiles, 32x44160x112 with GELU 7.5 and 9.4.
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
 * And those of a deep K whose operands begin inside lines of memory share them by two, where tiles are even:
 * 241x9512x31952 takes 237 us in 128x160 that share both, 277 alone; 8192x128x6768 39.5 in pairs, 45.2 alone. In
 * several waves tiles of both consumers share B, or A: 512x14713x27032 takes 623 us in pairs of 128x224, 725 alone.
 */
static void share_operands(const ckl_gemm_desc *d, gemm_sm90_config *c, const ckl_device_info *device)
{
    const int64_t down = ceil_div(c->swap ? d->n : d->m, c->tile_m),
                  across = ceil_div(c->swap ? d->m : d->n, max_i64(c->tile_n, 1));
    const int m = down % 2 || gemm_rows_aligned(d, c->swap ? 'a' : 'b', LINE_BYTES) ? 1 : 2;
    int n = across % 2 || gemm_rows_aligned(d, c->swap ? 'b' : 'a', LINE_BYTES) ? 1 : 2;
    const bool one_wave = down * across <= clusters_of(device->sm_count, m * n) * m * n;
    const bool deep = !d->groups && !d->gated && d->batch == 1 && gemm_k_tiles(d) >= STEPS_MANY;
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
    const bool wide = d->d == CKL_F32, half = ckl_dtype_bytes(d->d) == 2 && !d->c && d->k % gemm_tile_k(d->a);
    const int64_t tiles = ceil_div(d->m, wide ? 64 : 128) * ceil_div(d->n, wide ? 128 : 256); // or pairs
    return is_plain(d) && d->layout == CKL_GEMM_NT && (wide || half) && d->m >= LEAST && d->n >= LEAST &&
           gemm_k_tiles(d) <= STEPS_FEWEST && tiles >= (wide ? 1 : 2) * device->sm_count;
}

/*
 * Its tiles: 4096x5504x128 in f32 takes 26.3 us in 64x128, 31.0 in 64x64; 1024x58808x48 in f16 59.7 in pairs, 68.2 in
 * 64x128.
 */
static bool suits_D(const ckl_gemm_desc *d, const fitted_tile *t)
{
    if (d->d == CKL_F32)
        return t->pingpong && t->tile_m == 64 && t->tile_n == 128;
    const bool shares_B = t->tile_n == 192 && t->cluster_m == 2 && gemm_k_tiles(d) > 1;
    return t->pingpong && t->tile_m == 128 && (shares_B || t->cluster_n == 2);
}

/*
 * Tiles as wide as lets all of D go in so many turns, which asks less of L2: 253x12288x1792 with GELU takes 23.8 us in
 * one of 128x192, 28.9 in 64x128; 2073x1024x10112 69.6 in one of 64x256, 86.2 in two of 64x128; 768x2048x8192 of e4m3
 * with C in f32 26.7 in one of 128x96, 31.2 in 64x192. Tiles in turn hide their stores, so there may be some turns:
 * 1016x4648x2688 takes 44.7 us in two of 128x144, 46.7 in one of 256x160. Of many the power limit decides, not how full
 * the last one is: 2048x12288x4096 takes 309 us in nine of 128x168, 299 in eight of 128x192. Of 64 rows they are of D^T
 * where D has more rows than columns: 4512x128x4416 takes 16.0 us in 64x96, 18.8 in slices.
 */
typedef struct even_tile {
    fitted_tile tile; // of so many columns at most
    int turns;        // at most
    int least, step;  // columns
} even_tile;

static const even_tile even_tiles[] = { { { 64, 256, 1, 0, 1, 1, 1, 0 }, 1, 96, 16 },
                                        { { 256, 192, 2, 0, 1, 1, 1, 0 }, 1, 64, 32 },
                                        { { 128, 96, 2, 0, 1, 1, 1, 1 }, 1, 80, 16 },
                                        { { 128, 240, 2, 0, 1, 1, 1, 0 }, 1, 96, 32 },
                                        { { 128, 192, 2, 1, 1, 1, 1, 0 }, 4, 136, 8 } };

/*
 * Those that make the columns of all turns fewest, or 0: it has none. Of few widths, so that kernels are few. Not where
 * rows begin inside lines: 1904x1904x1904 takes 27.6 us in 192x192, 28.7 in pairs of 128x240.
 */
static bool is_even_DT(const ckl_gemm_desc *d, const fitted_tile *t)
{
    return t->swap || (t->tile_m == 64 && d->n < d->m && d->n <= SWAP_COLUMNS);
}

static int columns_of_even(const ckl_gemm_desc *d, const even_tile *t, const gemm_sm90_config *c,
                           const ckl_device_info *device)
{
    enum { SQUARE = 128, SPAN = 64, STEPS_LEAST = 24, WITH_BIAS = 64 /* fewer widths */ };
    const bool deep = gemm_k_tiles(d) >= STEPS_LEAST && gemm_rows_aligned(d, 'a', LINE_BYTES);
    const int unit = t->tile.pingpong && d->bias ? WITH_BIAS : gemm_sm90_column_step(c);
    const int step = (int)max_i64(deep ? t->step : ATOM_COLUMNS, unit);
    const int most = t->tile.tile_n;
    const bool swap = is_even_DT(d, &t->tile);
    const int64_t down = ceil_div(swap ? d->n : d->m, t->tile.tile_m), across = swap ? d->m : d->n;
    int best = 0;
    int64_t fewest = INT64_MAX; // columns of all turns
    const bool suits = t->tile.tile_m > SPAN || (d->layout == CKL_GEMM_NT && !d->c && gemm_k_tiles(d) >= STEPS_MANY);
    if (!is_plain(d) || !(t->tile.pingpong || deep) || !suits)
        return 0;
    for (int columns = (int)round_up(t->least, unit); columns < most + step; columns += step) {
        const int64_t turns = ceil_div(down * ceil_div(across, min_i64(columns, most)), device->sm_count);
        if (turns <= t->turns && (columns != SQUARE || t->tile.tile_m < SQUARE) && turns * columns < fewest) {
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

/* Is a tile considered for a problem? */
static bool is_considered(const ckl_gemm_desc *d, const fitted_tile *t, const gemm_sm90_config *c,
                          const ckl_device_info *device)
{
    if (is_one_turn(d, c, device))
        return t == &even_tiles[0].tile;
    if (is_mostly_D(d, device))
        return suits_D(d, t);
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
    c->tile_n = columns_of(d, t, even, c, device);
    c->tile_m = t->tile_m * (is_tall(d, t, c->tile_n) ? 2 : 1);
    c->consumers = t->consumers;
    c->pingpong = t->pingpong && d->accumulation == CKL_GEMM_FAST && // one adds while the other's tensor cores work
                  !gemm_groups_of_k(d);                              // whose lengths differ
    c->cluster_m = t->cluster_m;
    c->cluster_n = t->cluster_n;
    c->swap = t->swap || (even && is_even_DT(d, t)) || lies_better_as_DT(d, c->tile_n);
    c->batched = gemm_sm90_batched_of(d);
    c->groups = gemm_groups_of_m(d) ? room_for(d->groups) : 0;
    c->group = 8; // 4, 8 and 16 are within 0.3 % from 4096^3 on
    c->ctas = 1;
    c->persistent = true;
    share_SMs(d, c, device);
    share_operands(d, c, device);
    gemm_sm90_fit_memory(c, gemm_k_tiles(d), device);
    return true;
}

static double power_of_8(double x)
{
    x *= x;
    x *= x;
    return x * x;
}

/* A smooth maximum: what overlaps costs a little more than the longest. */
static double overlapped(double x, double y, double z)
{
    return sqrt(sqrt(sqrt(power_of_8(x) + power_of_8(y) + power_of_8(z))));
}

/*
 * Of an operand's rows in a stage, what share lies in two lines of memory, as L2 serves them by turns: of boxes that
 * begin a pitch, or a tile's columns of an operand that is not K-major, from each other. 768x768x3072 nn takes 9.9 us
 * in 72 tiles of 64x128, 15.1 in 96 of 64x96, every other one of which begins inside lines; tt, whose B is K-major,
 * takes 9.5 in those.
 */
static double crossing_of(const ckl_gemm_desc *d, char matrix, int64_t rows, int64_t of_tile)
{
    const double MOST = 0.75;
    int64_t bytes = (matrix == 'a' ? d->lda : d->ldb) * (int64_t)ckl_dtype_bytes(d->a), step = LINE_BYTES;
    if (!gemm_is_k_major(d, matrix) && rows > of_tile && of_tile * (int64_t)ckl_dtype_bytes(d->a) % LINE_BYTES)
        return MOST; // of some tiles, for which the others wait
    while (bytes % step)
        step /= 2;
    return 1 - (double)step / LINE_BYTES;
}

/* A problem as the tiles of a config see it. */
typedef struct tiled_problem {
    int64_t rows, cols;  // of A*B, or of D^T
    int64_t steps;       // along K, of one CTA
    int64_t tiles, ctas; // CTAs at work in the first wave
    int64_t turns;
    int64_t absent;                // rows and columns of the last clusters' CTAs beyond all tiles
    double crossing_m, crossing_n; // shares of rows of both operands
    bool ends_short;               // does K end inside a box?
} tiled_problem;

/* Do all tiles along a side lie inside it? */
static bool all_inside(const gemm_sm90_config *c, bool along_m, int64_t extent)
{
    return gemm_sm90_ends_with_D(c, along_m) && extent >= (along_m ? c->tile_m : c->tile_n);
}

static tiled_problem problem_of(const ckl_gemm_desc *d, const gemm_sm90_config *c, int64_t sm_count)
{
    tiled_problem p = { .rows = c->swap ? d->n : d->m,
                        .cols = c->swap    ? d->m
                                : d->gated ? 2 * d->n
                                           : d->n,
                        .steps = ceil_div(gemm_k_tiles(d), c->split) };
    p.ends_short = d->k % gemm_tile_k(d->a) != 0;
    p.crossing_m = crossing_of(d, c->swap ? 'b' : 'a', p.rows, c->tile_m);
    p.crossing_n = crossing_of(d, c->swap ? 'a' : 'b', p.cols, c->tile_n);
    int cluster = c->cluster_m * c->cluster_n * c->split;
    int64_t slots = clusters_of(sm_count, cluster) * cluster;
    p.tiles =
        ceil_div(p.rows, c->tile_m * c->cluster_m) * ceil_div(p.cols, c->tile_n * c->cluster_n) * cluster * d->batch;
    p.turns = ceil_div(p.tiles, slots);
    const double MOST = 0.8;
    if (fmax(p.crossing_m, p.crossing_n) < MOST) { // else clusters are worth it
        p.absent += ceil_div(p.rows, c->tile_m) % c->cluster_m && !all_inside(c, true, p.rows) ? c->tile_m : 0;
        p.absent += ceil_div(p.cols, c->tile_n) % c->cluster_n && !all_inside(c, false, p.cols) ? c->tile_n : 0;
    }
    p.ctas = min_i64(p.tiles, slots);
    return p;
}

/* Cycles of one K step of a tile. */
typedef struct step_cycles {
    double tensor_cores, sm, latency;
} step_cycles;

/*
 * Rows of the last tile beyond a matrix, as far as both SMs of a pair have such a tile: there TMA fills them slower
 * than it loads.
 */
static double absent_of(const gemm_sm90_config *c, bool along_m, int64_t rows)
{
    const int tile = along_m ? c->tile_m : c->tile_n;
    if (all_inside(c, along_m, rows))
        return 0;
    return (double)(round_up(rows, tile) - rows) * fmin(1, 2.0 / (double)ceil_div(rows, tile));
}

/* Of a problem whose operands memory has for all SMs after `operands_us`: the busier it is, the later a stage comes. */
static step_cycles step_of(const tiled_problem *p, const gemm_sm90_config *c, const gemm_sm90_shape *size,
                           int64_t sm_count, double operands_us)
{
    const gemm_fit *f = &fit;
    double n = c->tile_n, loaded_m = c->stays ? 0 : c->tile_m, loaded_n = c->b_stays ? 0 : size->loaded_n;
    double instruction = fmax(n / 2, (16 + n / 4) * f->operands);
    double crossing = p->crossing_m * loaded_m / c->cluster_n + p->crossing_n * loaded_n / c->cluster_m;
    double absent = absent_of(c, true, p->rows) / c->cluster_n + absent_of(c, false, p->cols) / c->cluster_m;
    double working = (double)p->ctas / (double)sm_count;
    double rate = (c->consumers == 1 ? f->sm_bytes_one : f->sm_bytes) * pow(working, -f->spread);
    double loads = (loaded_m + loaded_n) * ROW_BYTES / rate;
    double short_rows =
        p->ends_short ? (loaded_m / c->cluster_n + loaded_n / c->cluster_m) * working / (double)p->steps : 0;
    step_cycles s = {
        .tensor_cores = fmax(c->groups ? 0 : f->step_least / c->ctas, c->tile_m / 64.0 * 4 * instruction *
                                                                          (f->tensor_cores - f->idle * (1 - working)) *
                                                                          (c->consumers == 3 ? f->three_consumers : 1)),
        .sm = loads + f->crossing_row * crossing + f->short_row * short_rows +
              f->absent_row * (absent + (double)p->absent / (double)max_i64(2 * p->turns, 1)),
    };
    double loop_us = (double)(p->turns * p->steps) * fmax(s.tensor_cores, loads) / f->cycles_per_us;
    double latency = f->latency_L2 + (f->latency - f->latency_L2) * fmin(1, operands_us / loop_us);
    s.latency = latency / (c->stages * (2 * p->ctas > sm_count ? c->ctas : 1));
    return s;
}

/*
 * The factor of a cluster on a step's cycles. Pairs of 128x128 in batches are faster than single CTAs, and so are pairs
 * of 128 rows with scales of blocks, or where A stays. Rows that lie in two lines make clusters no slower; slices are
 * sometimes slower, sometimes faster. In long products the power limit decides, where pairs of the largest tiles gain
 * what they do not ask of L2 and of shared memory: 8192x11008x4096 takes 1079 us in pairs of 128x256, 1142 in 128x128
 * in turn, 16384x2048x7168 694, 713 in pairs of 256x128; but 4096x28672x8192 2804, 2732 in 128x176 in turn.
 */
static double sharing_of(const tiled_problem *p, const gemm_sm90_config *c)
{
    enum { STEPS_DEEP = 2 * STEPS_MANY, STEPS_LONG = 256 };
    const int ctas = c->cluster_m * c->cluster_n;
    const bool together = ctas == 2 && c->tile_m == 128;
    if (p->crossing_m + p->crossing_n > 0 || c->swap || c->stays ||
        (c->batched == GEMM_SLICES_OF_K && c->tile_n == 128 && c->consumers == 2))
        return 1;
    if (together && c->tile_n == 256 && p->steps >= STEPS_DEEP && p->turns * p->steps >= STEPS_LONG)
        return fit.long_pair;
    if (together && (gemm_has_block_scales(c->epilogue.scale_a) || (c->batched == 1 && c->tile_n == 128)))
        return fit.pair;
    return 1 + fit.cluster * (ctas - 1);
}

/* Columns of a tile that have scales of their own. */
static int column_scales_of(const gemm_sm90_shape *size)
{
    const gemm_scale_boxes s = size->scales[1];
    return s.boxes && s.length > GEMM_SCALE_UNIT ? s.lines : 0;
}

/*
 * Partials of a K tile that a consumer scales and adds in f32, one after the other; another CTA of the SM hides them.
 */
static int partials_of_step(const gemm_sm90_config *c, const gemm_sm90_shape *size)
{
    const bool exposed = gemm_has_block_scales(c->epilogue.scale_a) && c->ctas == 1;
    return exposed ? size->consumer_rows / gemm_sm90_partial_rows(c) : 0;
}

/*
 * Cycles of storing a tile, more for narrower boxes of TMA stores; and before it of adding the partials of a split. A
 * box of C in f32 takes a trip to memory, of which there are as many under way as staging buffers: 30011x2560x384 takes
 * 175 us with 4, 230 with 2; in 16 bits few buffers lose nothing: 6272x1024x256 takes 13.7 us with 8, 12.8 with 2 and
 * larger tiles.
 */
static double epilogue_of_tile(const gemm_sm90_config *c, const gemm_sm90_shape *size)
{
    const int columns = size->columns, box = size->d_cols * (int)ckl_dtype_bytes(c->epilogue.d);
    const double narrow = box >= LINE_BYTES ? 1 : box == LINE_BYTES / 2 ? fit.boxes_of_32 : fit.boxes_of_16;
    double activation = c->epilogue.activation == CKL_ACTIVATION_GELU ? fit.gelu : 1;
    double bytes = 4.0 * c->tile_m * columns * (c->split - 1);
    double exchange = c->split == 1 ? 0 : fit.exchange + bytes / fit.exchange_bytes;
    const bool reads = gemm_reads_matrix(&c->epilogue);
    const double boxes = (double)size->consumer_rows * columns / (size->d_rows * size->d_cols);
    const double waits = reads && c->epilogue.d == CKL_F32 ? fit.trip * boxes / c->buffers : 0;
    const int64_t stored = round_up(columns, max_i64(size->subtile, 1)); // some twice
    return (double)(c->tile_m * stored) * fit.epilogue * narrow * activation / (c->pingpong ? 1 : c->consumers) +
           exchange + waits + fit.tile;
}

static int64_t groups_with_rows(const ckl_gemm_desc *d)
{
    return gemm_groups_of_m(d) ? min_i64(d->groups, d->m) : 0;
}

/* Groups as one product: each loses half a tile at its end. Only the device knows their sizes. */
static ckl_gemm_desc with_lost_rows(const ckl_gemm_desc *d, const gemm_sm90_config *c)
{
    ckl_gemm_desc whole = *d;
    whole.m += groups_with_rows(d) * (c->swap ? c->tile_n * c->cluster_n : c->tile_m * c->cluster_m) / 2;
    return whole;
}

/* Groups of K as a batch of products of one length. */
static ckl_gemm_desc as_batch(const ckl_gemm_desc *d)
{
    ckl_gemm_desc batch = *d;
    if (!gemm_groups_of_k(d))
        return batch;
    batch.batch = d->groups;
    batch.groups = 0;
    batch.k = ceil_div(d->k, d->groups);
    return batch;
}

/*
 * How often a turn of tiles counts: as wide as its tiles are beside D. 100352x64x64 takes 10.1 us in 128x96 with 6
 * turns, 8.35 in 64x64 with 12. Not of groups, whose products have many turns (128 experts of few rows take 131 us by
 * 128x128, 115 by 64x16), of a long K, during which memory is busy (1x8192x8192 takes 33.4 us in D^T of 64x16, 47.2 in
 * 64x64), and where A stays.
 */
static double turns_that_count(const ckl_gemm_desc *d, const tiled_problem *p, const gemm_sm90_config *c)
{
    const double WIDEST = 2;
    const int64_t columns = (int64_t)c->tile_n * c->cluster_n;
    if (c->stays || c->b_stays || gemm_groups_of_m(d) || gemm_k_tiles(d) >= STEPS_MANY)
        return 0;
    return (double)p->turns / c->ctas * fmin(WIDEST, (double)round_up(p->cols, columns) / (double)p->cols);
}

plan_cost gemm_sm90_cost(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_gemm_desc each = as_batch(desc), *d = &each;
    const gemm_sm90_config *c = config;
    const int64_t matrices_B = gemm_groups_of_m(d) ? groups_with_rows(d) : 1; // of each product of a batch
    const ckl_gemm_desc whole = with_lost_rows(d, c);
    const tiled_problem p = problem_of(&whole, c, device->sm_count);
    const gemm_sm90_shape size = gemm_sm90_shape_of(c);
    const double ALONE = 1.1; // of what an SM asks for beside no other launch: 47 GB/s in 82 CTAs of 5248x64x16384
    double memory = fmin(fit.memory_bytes_per_us, (double)p.ctas * fit.memory_bytes_of_sm * (c->alone ? ALONE : 1));
    double operands = (double)(d->batch * (d->m * d->k + matrices_B * d->n * d->k)) * (double)ckl_dtype_bytes(d->a);
    double results = (double)(d->batch * d->m * d->n) * (double)ckl_dtype_bytes(d->d) * (c->epilogue.c ? 2 : 1);
    const step_cycles s = step_of(&p, c, &size, device->sm_count, operands / memory);
    double step = overlapped(s.tensor_cores, s.sm, s.latency) * sharing_of(&p, c) + fit.step +
                  fit.column_scale * column_scales_of(&size) * c->consumers + fit.partial * partials_of_step(c, &size);
    double tile = step * (double)p.steps, epilogue = epilogue_of_tile(c, &size), all = tile + epilogue;
    double turn = c->pingpong ? fmax(tile, all / 2) : tile + epilogue / c->ctas;
    double flops = 2.0 * (double)(p.tiles * c->tile_m * c->tile_n * p.steps) * STEP_HALVES;
    double sums = c->batched == GEMM_SLICES_OF_K ? fit.slice * c->tile_m * c->tile_n * (double)(p.turns - 1) : 0;
    double tiles_us = fit.launch_us + ((double)p.turns * turn + all - turn + sums) / fit.cycles_per_us;
    double power_us = fit.launch_us + flops / (fit.flops_per_us * (double)device->sm_count);
    double memory_us = fit.launch_us + (operands + results) / memory + epilogue / fit.cycles_per_us;
    memory_us += turns_that_count(d, &p, c) * fit.turn_us;
    const char *bound = s.tensor_cores > fmax(s.sm, s.latency) ? "tensor cores"
                        : s.sm > s.latency                     ? "loads"
                                                               : "latency";
    bound = epilogue > tile ? "epilogue" : bound;
    if (fmax(power_us, memory_us) > tiles_us)
        bound = power_us > memory_us ? "power" : "memory";
    const double STAYS = 0.92; // where A is loaded once for a row of tiles: 0.91 of 7168x7040x120
    const double ODD = 1.02;   // odd rows of D beside over 128 sums: 1024x50257x768 131.5 us by 192, 121.6 by 128
    const bool odd = c->ragged && c->pingpong && gemm_sm90_accumulators(c) > GEMM_EASY_ACCUMULATORS;
    return (plan_cost){
        overlapped(tiles_us, power_us, memory_us) * (c->stays || c->b_stays ? STAYS : 1) * (odd ? ODD : 1), bound
    };
}

double gemm_sm90_sum_us(double bytes)
{
    return fit.sum_us + bytes / fit.sum_bytes_per_us;
}
