/* permute_gather_plan.c - what an access of a thread moves, its cost, and the launch. */
#include <math.h>

#include "base/math.h"
#include "operators/permute/permute_gather.h"
#include "skeletons/memory_cost.h"
#include "skeletons/prefetch.h"

enum { WORD_BYTES = 4, SECTOR_BYTES = 32, LINE_BYTES = 128, WIDEST_BYTES = PERMUTE_GATHER_BYTES };

enum {
    GATHER_COUNT_MAX = 1 << 30, // elements of one launch: numbers of threads without work stay below 2^31
    BLOCK_MAX = 1 << 10,        // of a config
};

/* What one access of a thread moves, as elements of a permutation whose strides are units of either side. */
typedef struct accesses {
    permutation of;
    int unit_x, unit_y;    // bytes
    permute_mode words;    // of elements that are turned: distances between an access's, in units
    int64_t width, height; // of blocks: accesses along x and along y
} accesses;

static accesses of_elements(const permutation *p)
{
    return (accesses){ .of = *p, .unit_x = p->bytes, .unit_y = p->bytes };
}

/* May vectors of x be `factor` units long, where its words are turned? */
static bool widen_x(accesses *a, int factor)
{
    bool divides = a->words.x % factor == 0;
    for (int i = 0; i < a->of.rank; i++) {
        permute_mode *m = &a->of.modes[i];
        divides &= (m->x == 1 ? m->size : m->x) % factor == 0;
        if (m->x == 1)
            *m = (permute_mode){ m->size / factor, 1, m->y * factor };
        else
            m->x /= factor;
    }
    a->unit_x *= factor;
    a->words.x /= factor;
    return divides;
}

/* Windows that a run may touch, wherever it starts. */
static int64_t windows_of_run(const permutation *p)
{
    return ceil_div((p->modes[p->rank - 1].size - 1) * p->bytes, WIDEST_BYTES) + 1;
}

/* Are there runs, in x and in y, which vectors do not divide? */
static ckl_status check_runs(const permutation *p)
{
    enum { RUN_BYTES_MIN = 64 };
    const permute_mode *inner = &p->modes[max_i64(p->rank, 1) - 1];
    if (p->empty || p->rank == 0 || inner->x != 1 || inner->y != 1 || inner->size * p->bytes < RUN_BYTES_MIN)
        FAIL(CKL_UNSUPPORTED, "%s gather: cut=1: no mode is a run of %d bytes or more in x and in y", p->op,
             RUN_BYTES_MIN);
    bool divides = inner->size * p->bytes % WIDEST_BYTES == 0;
    for (int i = 0; i < p->rank - 1; i++)
        divides &= p->modes[i].x * p->bytes % WIDEST_BYTES == 0 && p->modes[i].y * p->bytes % WIDEST_BYTES == 0;
    if (divides || p->bytes > WORD_BYTES)
        FAIL(CKL_UNSUPPORTED, "%s gather: cut=1: whole vectors divide all runs, or elements are longer than a word",
             p->op);
    const int64_t runs = permutation_elements(p) / inner->size;
    if (inner->size * p->bytes > INT32_MAX - WIDEST_BYTES || runs > GATHER_COUNT_MAX / windows_of_run(p))
        FAIL(CKL_UNSUPPORTED, "%s gather: cut=1: %" PRId64 " runs have too many windows for 32-bit numbers", p->op,
             runs);
    return CKL_OK;
}

/* Accesses as the config has them. False: the problem does not have such. */
static bool find_accesses(const permutation *p, const permute_gather_config *c, accesses *a)
{
    *a = of_elements(p);
    if (c->cut) {
        const int64_t step = WIDEST_BYTES / p->bytes;
        a->of.modes[p->rank - 1] = (permute_mode){ windows_of_run(p), step, step };
        return true;
    }
    if (c->turned == 0) {
        a->unit_x = a->unit_y = c->bytes;
        return permutation_widen(&a->of, c->bytes / p->bytes);
    }
    a->unit_x = a->unit_y = WORD_BYTES;
    if (c->turned <= 1 || c->turned != WORD_BYTES / p->bytes || c->bytes < WORD_BYTES ||
        !permutation_in_squares(&a->of, c->turned, &a->words) || !widen_x(a, c->bytes / WORD_BYTES))
        return false;
    return c->block <= 1 || permutation_block(&a->of, c->block, &a->width, &a->height);
}

static accesses accesses_of(const permutation *p, const permute_gather_config *c)
{
    accesses a;
    (void)find_accesses(p, c, &a);
    return a;
}

static int rank_of(const accesses *a)
{
    return (int)max_i64(a->of.rank, 1);
}

/*
 * Accesses of 16 bytes of a thread. On an H200 copies of 8192x8192 f16 take 65.6 us by four a thread, 64.9 by two and
 * 63.8 by one; 32x769x40x24 bf16, 0,2,1,3, 28.3 by four and 26.6 by two, 3x4096x48x96 58.8 and 57.9.
 */
static int widest_steps(int rank, int steps)
{
    enum { SEVERAL_STEPS = 2, SEVERAL_RANK_MIN = 4 };
    return rank == 1 ? 1 : rank >= SEVERAL_RANK_MIN ? SEVERAL_STEPS : steps;
}

/* The widest vectors that both sides have. */
static void choose_vectors(const permutation *p, permute_gather_config *c)
{
    accesses a;
    c->bytes = WIDEST_BYTES;
    while (!find_accesses(p, c, &a))
        c->bytes /= 2;
    if (c->bytes == WIDEST_BYTES)
        c->steps = widest_steps(p->rank, c->steps);
}

/* Elements of 1 and 2 bytes in squares: vectors of x of 16, 8 and 4 bytes, in blocks and in none. False: no more. */
static bool choose_squares(const permutation *p, int i, permute_gather_config *c)
{
    enum { VECTORS = 3, IN_FLIGHT = 64 }; // bytes of a thread
    static const int blocks[] = { 16, 8, 4, 1 };
    if (p->bytes >= WORD_BYTES || i >= VECTORS * COUNT_OF(blocks))
        return false;
    c->turned = WORD_BYTES / p->bytes;
    c->bytes = WIDEST_BYTES >> i % VECTORS;
    c->steps = IN_FLIGHT / (c->turned * c->bytes);
    c->block = blocks[i / VECTORS];
    return true;
}

/* Vectors, windows where runs start anywhere, and squares, on Hopper, where they were measured. */
static bool candidate_gather(const void *problem, const ckl_device_info *device, int i, void *config)
{
    const permutation *p = problem;
    permute_gather_config *c = config;
    c->element = p->bytes;
    const bool runs = check_runs(p) == CKL_OK;
    if (i == 0)
        choose_vectors(p, c);
    else if (i == 1 && runs) {
        c->cut = true;
        c->bytes = WIDEST_BYTES;
        c->steps = 1;
    } else if (!device->has_tma || !choose_squares(p, i - 1 - runs, c))
        return false;
    const accesses a = accesses_of(p, c);
    c->rank = rank_of(&a);
    const int64_t count = permutation_elements(&a.of);
    while (c->steps > 1 && count < (int64_t)PERMUTE_THREADS * c->steps * device->sm_count)
        c->steps /= 2;
    return true;
}

/* What a warp touches in one access of each thread, if those of the first begin at that byte. */
typedef struct touched {
    int sectors, lines;
} touched;

/* Blocks of memory so long that the lanes' places, ascending or not, are in. */
static int distinct_blocks(const int64_t places[PERMUTE_WARP], int bytes)
{
    int count = 0;
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        bool known = false;
        for (int other = 0; other < lane; other++)
            known |= places[other] / bytes == places[lane] / bytes;
        count += !known;
    }
    return count;
}

static touched touched_by_warp(const accesses *a, bool in_x, int warp, int64_t first)
{
    int64_t places[PERMUTE_WARP];
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        int64_t left = warp * PERMUTE_WARP + lane;
        places[lane] = first;
        for (int i = a->of.rank - 1; i >= 0; i--) {
            const permute_mode *m = &a->of.modes[i];
            places[lane] += left % m->size * (in_x ? m->x * a->unit_x : m->y * a->unit_y);
            left /= m->size;
        }
    }
    return (touched){ distinct_blocks(places, SECTOR_BYTES), distinct_blocks(places, LINE_BYTES) };
}

/*
 * Sectors of y that warps touch for those that their words fill, of a few stores by as many warps: rows may start
 * anywhere in a sector, and blocks may end there.
 */
static double sectors_for_full(const accesses *a, int stores)
{
    enum { WARPS_MIN = 4 };
    const int count = (int)max_i64(stores, WARPS_MIN);
    int sectors = 0;
    for (int i = 0; i < count; i++)
        sectors += touched_by_warp(a, false, i, i % stores * a->words.y * a->unit_y).sectors;
    return sectors * SECTOR_BYTES / (double)(count * PERMUTE_WARP * WORD_BYTES);
}

/*
 * Is the rest of a sector of x read so much later that L2 may have lost it? 24x640x24x56 f16 reversed 45.1 us by
 * accesses that are 5.9 MB of y apart, 29.4 by blocks.
 */
static bool comes_late(const accesses *a, const ckl_device_info *device)
{
    enum { PART_OF_L2 = 16 };
    for (int i = 0; i < a->of.rank; i++) {
        const permute_mode *m = &a->of.modes[i];
        if (m->size > 1 && m->x * a->unit_x < SECTOR_BYTES && m->y * a->unit_y > device->l2_bytes / PART_OF_L2)
            return true;
    }
    return false;
}

/* Each run shares its first and its last sector, with neighbours that are moved at the same time. */
static plan_cost cost_windows(const permutation *p, const permute_gather_config *c, int64_t windows,
                              const ckl_device_info *device)
{
    enum { OF_WINDOW = 60, OF_MODE = 9, OF_ELEMENT = 3, REGISTERS = 32, THREADS_OF_SM = 2048 };
    const double runs = (double)windows / (double)windows_of_run(p);
    const memory_work work = {
        .of = PERMUTE_KERNEL,
        .bytes = 2 * runs * ((double)(p->modes[p->rank - 1].size * p->bytes) + SECTOR_BYTES / 2),
        .ctas = ceil_div(windows, PERMUTE_THREADS),
        .threads = PERMUTE_THREADS,
        .registers = REGISTERS,
        .ctas_per_sm = THREADS_OF_SM / PERMUTE_THREADS,
        .lines = 3.0 * PERMUTE_WARP * WIDEST_BYTES / LINE_BYTES,
        .elements = OF_WINDOW + OF_MODE * c->rank + OF_ELEMENT * WIDEST_BYTES / c->element,
    };
    return memory_cost(&work, device);
}

/*
 * y is written in runs. Of x a warp reads sectors that another one will find in L2, or a CTA its block in L1. The SM
 * that has a CTA more than others touches most lines: 1280x163 f64 took 4.7 us in 204 CTAs.
 */
static plan_cost cost_gather(const void *problem, const ckl_device_info *device, const void *config)
{
    enum { OF_ACCESS = 16, OF_MODE = 9, OF_WORD = 6, REGISTERS = 20 };
    // CTAs of the next launch come to the SMs whose own end first. One an SM gains by it: 3x5120 f16 takes 1.11 us.
    // More of them crowd there, where elements of less than a word are read from a sector each
    const double CROWD_US = 0.65, EARLY_US = 0.4;
    const double AGAIN = 0.1; // of a byte from device memory, one from L2
    // of a line, one of blocks that load whole lines: L1 holds it for their other warps. 64x128x128x120 u8 68 us
    const double HELD = 0.5;
    // of a byte that is written, one that a sector lacks: 224 transposes of 196x1248 f16 123 us
    const double PARTLY = 2;
    const double FULLEST_MAX = 2; // fewer CTAs than SMs have more of L2 each
    // cycles for each word of y that an access makes, but the first two: 808x2560 u8 takes 4.2 us by 16 words a thread,
    // 3.3 by 8
    enum { OF_STORE = 350, STORES_AT_ONCE = 2 };
    const permutation *p = problem;
    const permute_gather_config *c = config;
    const double bytes = (double)permutation_elements(p) * p->bytes;
    const accesses a = accesses_of(p, c);
    if (c->cut)
        return cost_windows(p, c, permutation_elements(&a.of), device);
    const touched x = touched_by_warp(&a, true, 0, 0), y = touched_by_warp(&a, false, 0, 0);
    const double warp_bytes = (double)PERMUTE_WARP * c->bytes;
    const int64_t ctas = ceil_div(permutation_elements(&a.of), (int64_t)PERMUTE_THREADS * c->steps);
    const double fullest = (double)round_up(ctas, device->sm_count) / (double)max_i64(ctas, 1);
    const bool turned = c->turned > 0;
    const double again = c->block > 1 ? 0 : fmax(0, x.sectors * SECTOR_BYTES / warp_bytes - 1);
    const int stores = turned ? c->bytes / c->element : 0; // of an access that are stored one by one
    const double partly = turned ? sectors_for_full(&a, stores) - 1 : 0;
    const memory_work work = {
        .of = { .us = PERMUTE_KERNEL.us + (ctas <= device->sm_count ? -EARLY_US
                                           : c->bytes < WORD_BYTES  ? CROWD_US
                                                                    : 0),
                .lines = turned ? 1.2 : 1.5 },
        .bytes = bytes * (2 + (comes_late(&a, device) ? 1 : AGAIN) * again + PARTLY * partly),
        .ctas = ctas,
        .threads = PERMUTE_THREADS,
        .wait_cycles = OF_STORE * fmax(0, stores - STORES_AT_ONCE),
        .registers = REGISTERS + c->steps * c->turned * c->bytes / WORD_BYTES,
        .lines = fmin(fullest, FULLEST_MAX) * c->steps *
                 (turned ? (c->block * c->bytes >= LINE_BYTES ? HELD : 1) * c->turned * x.lines + stores * y.lines
                         : x.lines + warp_bytes / LINE_BYTES),
        .elements = c->steps * (OF_ACCESS + OF_MODE * c->rank + OF_WORD * stores),
    };
    return memory_cost(&work, device);
}

static ckl_status admit_gather(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const permute_gather_config *c = config;
    if (c->element != p->bytes)
        FAIL(CKL_INVALID, "%s gather: element=%d is not the problem's %d", p->op, c->element, p->bytes);
    (void)device;
    accesses a;
    if (c->cut)
        TRY(check_runs(p));
    if (c->cut && (c->bytes != WIDEST_BYTES || c->turned || c->steps != 1))
        FAIL(CKL_INVALID, "%s gather: cut=1 is for bytes=%d turned=0 steps=1", p->op, WIDEST_BYTES);
    if (c->bytes < c->element || c->bytes > 16 || !is_power_of_two(c->bytes) || !find_accesses(p, c, &a))
        FAIL(CKL_INVALID, "%s gather: bytes=%d turned=%d cannot be moved at once", p->op, c->bytes, c->turned);
    if (c->block < 1 || c->block > BLOCK_MAX || (c->block > 1 && !c->turned) || c->rank != rank_of(&a))
        FAIL(CKL_INVALID, "%s gather: block=%d rank=%d do not fit the problem", p->op, c->block, c->rank);
    if (c->steps < 1 || c->steps > 16)
        FAIL(CKL_INVALID, "%s gather: steps=%d is not in 1..16", p->op, c->steps);
    return CKL_OK;
}

/* From the first byte of x to its last. */
static int64_t span_of(const permutation *p)
{
    int64_t last = 0;
    for (int i = 0; i < p->rank; i++)
        last += (p->modes[i].size - 1) * p->modes[i].x;
    return (last + 1) * p->bytes;
}

/* One launch. */
static ckl_status launch_all(const ckl_plan *plan, int kernel, const accesses *a, const char *x, char *y,
                             ckl_stream stream)
{
    const permute_gather_config *c = plan->config;
    const permutation *p = plan->desc;
    const int64_t count = permutation_elements(&a->of), span = span_of(p);
    permute_gather_params params = { .count = (uint32_t)count,
                                     .x = x,
                                     .x_bytes = early_bytes(span, PREFETCHED_BYTES),
                                     .y = y,
                                     .turned_x = a->words.x * a->unit_x,
                                     .turned_y = a->words.y * a->unit_y,
                                     .width = (uint32_t)a->width,
                                     .height = (uint32_t)a->height };
    if (c->cut) {
        params.run = (uint32_t)(p->modes[p->rank - 1].size * p->bytes);
        params.end = x + span;
    }
    for (int i = 0; i < a->of.rank; i++) {
        permute_mode m = a->of.modes[i];
        divisor d = divisor_of(m.size);
        params.size[i] = (uint32_t)m.size;
        params.factor[i] = d.factor;
        params.shift[i] = d.shift;
        params.stride_x[i] = m.x * a->unit_x;
        params.stride_y[i] = m.y * a->unit_y;
    }
    return plan_launch(plan, kernel, (plan_grid){ .x = ceil_div(count, (int64_t)PERMUTE_THREADS * c->steps) }, &params,
                       stream);
}

/* One launch, or those of the halves of the largest mode where there are too many elements for 32-bit numbers. */
static ckl_status launch_halves(const ckl_plan *plan, int kernel, const accesses *a, const char *x, char *y,
                                ckl_stream stream)
{
    if (permutation_elements(&a->of) <= GATHER_COUNT_MAX)
        return launch_all(plan, kernel, a, x, y, stream);
    int largest = 0;
    for (int i = 1; i < a->of.rank; i++)
        if (a->of.modes[i].size > a->of.modes[largest].size)
            largest = i;
    permute_mode m = a->of.modes[largest];
    accesses low = *a, high = *a;
    low.of.modes[largest].size = m.size / 2;
    high.of.modes[largest].size = m.size - m.size / 2;
    const int block = ((const permute_gather_config *)plan->config)->block;
    if (largest == a->of.rank - 4)
        high.width -= m.size / 2 * block;
    if (largest == a->of.rank - 3)
        high.height -= m.size / 2 * block;
    TRY(launch_halves(plan, kernel, &low, x, y, stream));
    int64_t elements = m.size / 2;
    return launch_halves(plan, kernel, &high, x + elements * m.x * a->unit_x, y + elements * m.y * a->unit_y, stream);
}

static ckl_status launch_gather(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const permute_gather_config *c = plan->config;
    const permute_pointers *a = args;
    const bool aligned = c->cut || PLAN_ALIGNED(c->bytes, a->x, a->y);
    const accesses each = aligned ? accesses_of(p, c) : of_elements(p);
    return launch_halves(plan, aligned ? 0 : 1, &each, a->x, a->y, stream);
}

static const field gather_fields[] = { PERMUTE_GATHER_CONFIG(FIELD_ROW, permute_gather_config) };

const implementation permute_gather_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(permute, gather),
    .summary =
        "any strides: each thread finds its elements; copies in vectors, cut out of two where runs start anywhere",
    .candidate = candidate_gather,
    .cost = cost_gather,
    .kernels = 2,
    .params = &permute_gather_param_list,
};
