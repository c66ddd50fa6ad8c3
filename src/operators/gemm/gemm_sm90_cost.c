/*
 * gemm_sm90_cost.c - what a config of the Hopper kernel costs on a problem.
 *
 * Every term of the model has a meaning: K steps bound by the tensor cores, or by the bandwidth into an SM or out of
 * L2; epilogues, which ping-pong hides; waves of tiles; memory and power of the device.
 */
#include <math.h>

#include "operators/gemm/gemm_plan.h"

enum {
    ROW_BYTES = GEMM_TILE_BYTES, // of a row of A or B in a K step
    STEP_HALVES = ROW_BYTES / 2, // as elements of 16 bits; other types take as long
    LINE_BYTES = 128,            // of memory and L2
    STEPS_MANY = 32,             // along K: memory is busy
};

/*
 * By hand, or from where a fit to bench/sweeps left them. A change must leave the choice closer to the fastest of all
 * problems that were timed in several configs: scripts/judge_costs.py --picks --across.
 */
static const double LAUNCH_US = 1.08;          // before the first tile and behind the last
static const double CYCLES_PER_US = 1755;      // the clock that cycles are counted in
static const double TENSOR_CORES = 1.19759;    // of the rate that the instructions promise
static const double IDLE = 0.36;               // of that, what the clock gains where no SM has a CTA
static const double OPERANDS = 1.3;            // how much reading operands from shared memory bounds narrow tiles
static const double THREE_CONSUMERS = 1.04866; // what three consumers lose
static const double STEP_LEAST = 210;   // cycles of one where a stage's arrival, products and release follow each other
static const double SM_BYTES = 66.5679; // a cycle into an SM
static const double SM_BYTES_ONE = 75;  // the same of CTAs with one consumer
static const double SPREAD = 0.4;       // the power of SMs over CTAs by which that grows: L2 serves fewer
static const double CROSSING_ROW = 1.6; // cycles of a row that lies in two lines of memory
static const double ABSENT_ROW = 2.54842;     // cycles of a row beyond the last one, which TMA fills with zeros
static const double SHORT_ROW = 4;            // of a row whose last box K ends inside, times the share of SMs at work
static const double LATENCY_MEMORY = 2595.26; // cycles from asking for a stage to its arrival, when memory is busy
static const double LATENCY_L2 = 1800;        // and from L2 alone
static const double EXCHANGE = 600;           // cycles of adding the partials of a split
static const double EXCHANGE_BYTES = 13;      // a cycle of what a CTA that finishes gets for it
static const double COLUMN_SCALE = 1.5;       // cycles of a K step for each column that has a scale of its own
static const double PARTIAL = 200;            // cycles of each sum of 64 rows that a consumer scales and adds in f32
static const double CLUSTER_CTA = 0.05;       // what each more CTA of a cluster adds to a step, unless rows are slow
static const double PAIR_STEP = 0.97;         // times a step of a pair of 128x128 in batches, or with scales of blocks
static const double TALL_STEP = 0.95;  // and of 256x128 with them: 4096x7168x16384 778 us, 824 in pairs of 128x192
static const double LONG_PAIR = 0.985; // times one of 128x256 in long products, which save power
static const double TILE_START = 700;  // cycles from a tile's last product to the next tile's first, beside its stores
static const double BOX_TRIP = 3000;   // cycles of a box of C or X from memory
static const double STORE = 0.1176;    // cycles of storing an element, of one consumer
static const double ELEMENT_BYTES = 6.4;   // a cycle of an SM, stored one by one; of rows stored whole twice as many
static const double BOXES_OF_32 = 1.27766; // times storing an element, in boxes of 32 columns
static const double BOXES_OF_16 = 2.013;   // and of 16
static const double GELU = 3.5; // times the epilogue with GELU: 4096x4096x512 in f16 takes 39.5 instead of 33.3 us
static const double FLOPS_PER_US = 6e+06; // of an SM within the power limit
static const double SLICE = 0.3;          // cycles of storing a sum of a slice of K, in every turn but one
static const double SUM_US = 1.2;         // a second kernel, which adds slices of K; by 60 sliced rows below 15 us
static const double SUM_BYTES_PER_US = 4.2e+06;    // of the sums of all slices, to L2 and back
static const double MEMORY_BYTES_PER_US = 4.3e+06; // of HBM, between copying and reading
static const double TURN_US = 0.1;                 // what a turn of tiles costs where memory binds and K is short
static const double MEMORY_BYTES_OF_SM = 45000;    // of it, that one SM can ask for, measured from 33 to 56

/*
 * Each cluster lies within a GPC of 16 SMs or a few more. NOTE: an H200 of 132 SMs has room for 66 of 2 CTAs, 30 of 4,
 * 15 of 8. Odd ones seem to take whole pairs of SMs: 40 of 3 (128x1280x8192) take 15.9 us, as long as two turns, 20 of
 * 6 14.5; 16 of 6 with as much work each 9.1.
 */
int64_t gemm_sm90_clusters(int64_t sm_count, int cluster)
{
    enum { GPC = 16, PAIR = 2 };
    const int64_t usable = cluster > PAIR ? sm_count * 10 / 11 : sm_count,
                  sms = cluster > 1 ? round_up(cluster, PAIR) : 1;
    return max_i64(min_i64(usable / sms, sm_count * (GPC / sms) / GPC), 1);
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
    double crossing_m, crossing_n; // shares of rows of both operands
    bool ends_short;               // does K end inside a box?
} tiled_problem;

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
    const int cluster = c->cluster_m * c->cluster_n * c->split, shear = c->sheared ? GEMM_SHEAR : 0;
    int64_t slots = gemm_sm90_clusters(sm_count, cluster) * cluster;
    p.tiles = ceil_div(p.rows, c->tile_m * c->cluster_m) *
              ceil_div(p.cols + shear, (c->tile_n - shear) * c->cluster_n) * cluster * d->batch;
    p.turns = ceil_div(p.tiles, slots);
    p.ctas = min_i64(p.tiles, slots);
    return p;
}

/* Cycles of one K step of a tile. */
typedef struct step_cycles {
    double tensor_cores, sm, latency;
} step_cycles;

/*
 * Rows of the last tile beyond a matrix, as far as both SMs of a pair have such a tile: there TMA fills them slower
 * than it loads. Where tiles end with D they are rows of the tile before, which cost power.
 */
static double absent_of(int64_t rows, int tile, bool within)
{
    const double AGAIN = 0.5;
    const double absent = (double)(round_up(rows, tile) - rows) * fmin(1, 2.0 / (double)ceil_div(rows, tile));
    return absent * (within && rows >= tile ? AGAIN : 1);
}

/* Of a problem whose operands memory has for all SMs after `operands_us`: the busier it is, the later a stage comes. */
static step_cycles step_of(const tiled_problem *p, const gemm_sm90_config *c, const gemm_sm90_shape *size,
                           int64_t sm_count, double operands_us)
{
    double n = c->tile_n, loaded_m = c->stays ? 0 : c->tile_m, loaded_n = c->b_stays ? 0 : size->loaded_n;
    double instruction = fmax(n / 2, (16 + n / 4) * OPERANDS);
    double crossing = p->crossing_m * loaded_m / c->cluster_n + p->crossing_n * loaded_n / c->cluster_m;
    double absent = absent_of(p->rows, c->tile_m, size->within[0]) / c->cluster_n +
                    absent_of(p->cols, c->tile_n, size->within[1]) / c->cluster_m;
    double working = (double)p->ctas / (double)sm_count;
    double rate = (c->consumers == 1 ? SM_BYTES_ONE : SM_BYTES) * pow(working, -SPREAD);
    double loads = (loaded_m + loaded_n) * ROW_BYTES / rate;
    double short_rows =
        p->ends_short ? (loaded_m / c->cluster_n + loaded_n / c->cluster_m) * working / (double)p->steps : 0;
    step_cycles s = {
        .tensor_cores = fmax(c->groups ? 0 : STEP_LEAST / c->ctas, c->tile_m / 64.0 * 4 * instruction *
                                                                       (TENSOR_CORES - IDLE * (1 - working)) *
                                                                       (c->consumers == 3 ? THREE_CONSUMERS : 1)),
        .sm = loads + CROSSING_ROW * crossing + SHORT_ROW * short_rows + ABSENT_ROW * absent,
    };
    double loop_us = (double)(p->turns * p->steps) * fmax(s.tensor_cores, loads) / CYCLES_PER_US;
    double latency = LATENCY_L2 + (LATENCY_MEMORY - LATENCY_L2) * fmin(1, operands_us / loop_us);
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
    if (c->tile_m == 256 && gemm_has_block_scales(c->epilogue.scale_a))
        return TALL_STEP;
    if (p->crossing_m + p->crossing_n > 0 || c->swap || c->stays ||
        (c->batched == GEMM_SLICES_OF_K && c->tile_n == 128 && c->consumers == 2))
        return 1;
    if (together && c->tile_n == 256 && p->steps >= STEPS_DEEP && p->turns * p->steps >= STEPS_LONG)
        return LONG_PAIR;
    if (together && (gemm_has_block_scales(c->epilogue.scale_a) || (c->batched == 1 && c->tile_n == 128)))
        return PAIR_STEP;
    return 1 + CLUSTER_CTA * (ctas - 1);
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
    const double narrow = box >= LINE_BYTES ? 1 : box == LINE_BYTES / 2 ? BOXES_OF_32 : BOXES_OF_16;
    double activation = c->epilogue.activation == CKL_ACTIVATION_GELU ? GELU : 1;
    double bytes = 4.0 * c->tile_m * columns * (c->split - 1);
    double exchange = c->split == 1 ? 0 : EXCHANGE + bytes / EXCHANGE_BYTES;
    const bool reads = gemm_reads_matrix(&c->epilogue);
    const bool whole_rows = size->row_cols > size->d_cols; // of which the first 64 come beside the mainloop
    const double boxes = (double)size->consumer_rows * columns / (size->d_rows * size->d_cols);
    const double trips = whole_rows ? size->consumer_rows / size->d_rows - 1 : boxes / c->buffers;
    const double waits = reads && c->epilogue.d == CKL_F32 ? BOX_TRIP * trips : 0;
    const int64_t stored = round_up(columns, max_i64(size->subtile, 1)); // some twice
    return (double)(c->tile_m * stored) * STORE * narrow * activation / (c->pingpong ? 1 : c->consumers) + exchange +
           waits + TILE_START;
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
    double memory = fmin(MEMORY_BYTES_PER_US, (double)p.ctas * MEMORY_BYTES_OF_SM * (c->alone ? ALONE : 1));
    double operands = (double)(d->batch * (d->m * d->k + matrices_B * d->n * d->k)) * (double)ckl_dtype_bytes(d->a);
    const double stored = (double)(d->batch * d->m * d->n) * (double)ckl_dtype_bytes(d->d);
    const double results = stored * (c->epilogue.c ? 2 : 1);
    const step_cycles s = step_of(&p, c, &size, device->sm_count, operands / memory);
    double step = overlapped(s.tensor_cores, s.sm, s.latency) * sharing_of(&p, c) +
                  COLUMN_SCALE * column_scales_of(&size) * c->consumers + PARTIAL * partials_of_step(c, &size);
    double tile = step * (double)p.steps, epilogue = epilogue_of_tile(c, &size), all = tile + epilogue;
    const double by_elements =
        c->ragged == GEMM_ALL_RAGGED && !c->row_vectors && d->d == CKL_F32 ? results / ELEMENT_BYTES : 0; // of all SMs
    const double stores = by_elements / (double)(p.turns * device->sm_count) / (size.row_cols > size.d_cols ? 2 : 1);
    double turn = c->pingpong ? fmax(fmax(tile, all / 2), stores) : tile + fmax(epilogue / c->ctas, stores);
    double flops = 2.0 * (double)(p.tiles * c->tile_m * c->tile_n * p.steps) * STEP_HALVES;
    double sums = c->batched == GEMM_SLICES_OF_K ? SLICE * c->tile_m * c->tile_n * (double)(p.turns - 1) : 0;
    double tiles_us = LAUNCH_US + ((double)p.turns * turn + all - turn + sums) / CYCLES_PER_US;
    double power_us = LAUNCH_US + flops / (FLOPS_PER_US * (double)device->sm_count);
    double memory_us = LAUNCH_US + (operands + results) / memory + epilogue / CYCLES_PER_US;
    memory_us += turns_that_count(d, &p, c) * TURN_US;
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
    return SUM_US + bytes / SUM_BYTES_PER_US;
}
