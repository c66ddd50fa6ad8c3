/*
 * permute_gather.c - any strides: each thread computes where its elements of y come from. Elements are numbered in the
 * order of y's memory, so neighbouring threads write neighbours; all loads of a thread start before the first store.
 * Where the innermost mode is contiguous in x and in y, an element is a vector of up to 16 bytes of it.
 *
 * Elements that lie side by side in one mode of x and in another of y may be moved in squares: a thread loads as many
 * vectors of x as a word has elements, turns them in registers, and stores words. Neighbouring threads take blocks of
 * squares, so that both sides are accessed in runs.
 */
#include "base/math.h"
#include "operators/permute/transpose_tile.h"
#include "skeletons/memory_cost.h"

enum { STEPS_MAX = 16, SIDE_MAX = 4, WORD_BYTES = 4, SECTOR_BYTES = 32, LINE_BYTES = 128 };

#define GATHER_CONFIG(X, owner)                                                                                 \
    X(owner, int, element, "4", "1 2 4 8", "bytes of an element, what pointers are aligned to")                 \
    X(owner, int, bytes, "4", "1 2 4 8 16", "bytes of one memory access; of x, if elements are turned")         \
    X(owner, int, turned, "0", "0 2 4", "elements of a word, of squares that are turned in registers; 0: none") \
    X(owner, int, block, "1", "1 4 8 16", "squares of a block along x and along y; 1: they go along y")         \
    X(owner, int, rank, "1", "1 2 3 4 5 6 7", "modes")                                                          \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")                                            \
    X(owner, int, steps, "4", "1 2 4 8", "accesses of a thread in flight")

FIELD_STRUCT(permute_gather_config, GATHER_CONFIG);

/* Strides are bytes. factor and shift divide by a mode's size (cute/divisor.h). */
#define PERMUTE_GATHER_PARAMS(X, owner)                    \
    X(owner, u32, count)                                   \
    X(owner, pointer, x)                                   \
    X(owner, pointer, y)                                   \
    X(owner, i64, turned_x) /* between words */            \
    X(owner, i64, turned_y)                                \
    X(owner, u32, width) /* accesses along x, of blocks */ \
    X(owner, u32, height)                                  \
    X(owner, u32, size, [PERMUTE_SPLIT_MAX])               \
    X(owner, u32, factor, [PERMUTE_SPLIT_MAX])             \
    X(owner, u32, shift, [PERMUTE_SPLIT_MAX])              \
    X(owner, i64, stride_x, [PERMUTE_SPLIT_MAX])           \
    X(owner, i64, stride_y, [PERMUTE_SPLIT_MAX])

KERNEL_PARAMS(permute_gather, PERMUTE_GATHER_PARAMS);

/* The kernel */

/*
 * Addresses of access number `index` in x and in y; whether it exists, as blocks may reach beyond. Coordinates are
 * computed by hand: a layout's would be divisions by sizes that are known at run time alone, and the kernel 40 % more
 * instructions.
 */
static val find_access(const permute_gather_values *p, int rank, int block, val index, val *x, val *y)
{
    val exists = lt(index, p->count), at_mode[PERMUTE_SPLIT_MAX];
    *x = p->x;
    *y = p->y;
    for (int i = rank - 1; i >= 0; i--) {
        at_mode[i] = i == 0 ? index : divisor_coordinate(&index, p->size[i], p->factor[i], p->shift[i]);
        val steps = convert(I64, at_mode[i]);
        *x = add(*x, convert(U64, mul(steps, p->stride_x[i])));
        *y = add(*y, convert(U64, mul(steps, p->stride_y[i])));
    }
    if (block == 1)
        return exists;
    const val *of = &at_mode[rank - 4]; // what permutation_block() has made
    val column = add(mul(of[0], imm(block)), of[2]), row = add(mul(of[1], imm(block)), of[3]);
    return logical_and(exists, logical_and(lt(column, p->width), lt(row, p->height)));
}

static val moved(val address, int steps, val stride)
{
    return steps ? add(address, convert(U64, mul(imm64(steps), stride))) : address;
}

/* What an access loads: an element, or words to be turned; an element of 16 bytes is four words. */
static tensor access_at(val address, int bytes, bool turned)
{
    const int words = turned || bytes == 16 ? bytes / WORD_BYTES : 1;
    return gmem_tensor(address, transpose_type(bytes / words), compact(leaf(words))); // (WORDS)
}

/* Turns `side` vectors of x, and stores the words of y that they make. */
static void store_turned(const permute_gather_values *p, int side, int bytes, const tensor *rX, val y)
{
    for (int v = 0; v < bytes / WORD_BYTES; v++) {
        val words[SIDE_MAX];
        for (int e = 0; e < side; e++)
            words[e] = bitcast(U32, at(rX[e], v));
        transpose_square(side, words);
        for (int e = 0; e < side; e++)
            store_global(U32, moved(y, v * side + e, p->turned_y), 0, words[e]);
    }
}

static void permute_gather(const void *config, int kernel)
{
    const permute_gather_config *cfg = config;
    launch_bounds(cfg->threads, 0);
    permute_gather_values p = params_of(permute_gather);
    const int bytes = kernel == 0 ? cfg->bytes : cfg->element, turned = kernel == 0 ? cfg->turned : 0;
    const int vectors = turned ? turned : 1;
    tensor cY = coordinates_from(identity_tensor(leaf(cfg->threads * cfg->steps)), 0,
                                 mul(cta_x(), imm(cfg->threads * cfg->steps)));
    cY = local_partition(cY, compact(leaf(cfg->threads)), thread()); // (STEPS)
    val inside[STEPS_MAX], x[STEPS_MAX], y[STEPS_MAX];
    tensor rX[STEPS_MAX][SIDE_MAX]; // (WORDS)
    for (int s = 0; s < cfg->steps; s++) {
        val index = coordinate(cY, 0, s);
        inside[s] = find_access(&p, cfg->rank, turned ? cfg->block : 1, index, &x[s], &y[s]);
        for (int e = 0; e < vectors; e++) {
            tensor gX = access_at(x[s], bytes, turned); // (WORDS)
            rX[s][e] = fragment_like(gX, gX.dtype);
            fill(rX[s][e], imm_as(rX[s][e].regs[0].type, 0));
        }
    }
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            for (int e = 0; e < vectors; e++)
                copy(access_at(moved(x[s], e, p.turned_x), bytes, turned), rX[s][e], bytes);
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s]) {
            if (turned)
                store_turned(&p, turned, bytes, rX[s], y[s]);
            else
                copy(rX[s][0], access_at(y[s], bytes, false), bytes);
        }
}

/* Choice, limits and launches */

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

/* Accesses as the config has them. False: the problem does not have such. */
static bool find_accesses(const permutation *p, const permute_gather_config *c, accesses *a)
{
    *a = of_elements(p);
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
 * NOTE: of 16 bytes on an H200: 32x769x40x24 bf16, 0,2,1,3, takes 28.3 us by four a thread and 26.6 by two,
 * 3x4096x48x96 58.8 and 57.9.
 */
enum { WIDEST_BYTES = 16, WIDEST_STEPS = 2, WIDEST_RANK_MIN = 4 };

/* The widest vectors that both sides have. */
static void choose_vectors(const permutation *p, permute_gather_config *c)
{
    accesses a;
    c->bytes = WIDEST_BYTES;
    while (!find_accesses(p, c, &a))
        c->bytes /= 2;
    if (c->bytes == WIDEST_BYTES && p->rank >= WIDEST_RANK_MIN)
        c->steps = (int)min_i64(c->steps, WIDEST_STEPS);
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

/* Vectors first; then squares, on Hopper, where they were measured. */
static bool candidate_gather(const void *problem, const ckl_device_info *device, int i, void *config)
{
    const permutation *p = problem;
    permute_gather_config *c = config;
    c->element = p->bytes;
    if (i == 0)
        choose_vectors(p, c);
    else if (!device->has_tma || !choose_squares(p, i - 1, c))
        return false;
    const accesses a = accesses_of(p, c);
    c->rank = rank_of(&a);
    const int64_t count = permutation_elements(&a.of);
    while (c->steps > 1 && count < (int64_t)c->threads * c->steps * device->sm_count)
        c->steps /= 2;
    return true;
}

/* What the first warp touches in one access of each thread, if they begin at that byte. */
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

static touched touched_by_warp(const accesses *a, bool in_x, int64_t first)
{
    int64_t places[PERMUTE_WARP];
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        int64_t left = lane;
        places[lane] = first;
        for (int i = a->of.rank - 1; i >= 0; i--) {
            const permute_mode *m = &a->of.modes[i];
            places[lane] += left % m->size * (in_x ? m->x * a->unit_x : m->y * a->unit_y);
            left /= m->size;
        }
    }
    return (touched){ distinct_blocks(places, SECTOR_BYTES), distinct_blocks(places, LINE_BYTES) };
}

/* Sectors of y that the warp touches for those that its words fill: rows may start anywhere in a sector. */
static double sectors_for_full(const accesses *a, int words)
{
    int sectors = 0;
    for (int i = 0; i < words; i++)
        sectors += touched_by_warp(a, false, i * a->words.y * a->unit_y).sectors;
    return sectors * SECTOR_BYTES / (double)(words * PERMUTE_WARP * WORD_BYTES);
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
    const double PARTLY =
        2; // of a byte that is written, one that a sector lacks: 224 transposes of 196x1248 f16 123 us
    const double FULLEST_MAX = 2; // fewer CTAs than SMs have more of L2 each
    const permutation *p = problem;
    const permute_gather_config *c = config;
    const double bytes = (double)permutation_elements(p) * p->bytes;
    const accesses a = accesses_of(p, c);
    const touched x = touched_by_warp(&a, true, 0), y = touched_by_warp(&a, false, 0);
    const double warp_bytes = (double)PERMUTE_WARP * c->bytes;
    const int64_t ctas = ceil_div(permutation_elements(&a.of), (int64_t)c->threads * c->steps);
    const double fullest = (double)round_up(ctas, device->sm_count) / (double)max_i64(ctas, 1);
    const bool turned = c->turned > 0;
    const double again = c->block > 1 ? 0 : fmax(0, x.sectors * SECTOR_BYTES / warp_bytes - 1);
    const int words = turned ? c->bytes / c->element : 0; // of an access that are stored one by one
    const double partly = turned ? sectors_for_full(&a, words) - 1 : 0;
    const memory_work work = {
        .of = { .us = PERMUTE_KERNEL.us + (ctas <= device->sm_count ? -EARLY_US
                                           : c->bytes < WORD_BYTES  ? CROWD_US
                                                                    : 0),
                .lines = turned ? 1.2 : 1.5 },
        .bytes = bytes * (2 + AGAIN * again + PARTLY * partly),
        .ctas = ctas,
        .threads = c->threads,
        .registers = REGISTERS + c->steps * c->turned * c->bytes / WORD_BYTES,
        .lines = fmin(fullest, FULLEST_MAX) * c->steps *
                 (turned ? c->turned * x.lines + words * y.lines : x.lines + warp_bytes / LINE_BYTES),
        .elements = c->steps * (OF_ACCESS + OF_MODE * c->rank + OF_WORD * words),
    };
    return memory_cost(&work, device);
}

static ckl_status admit_gather(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const permute_gather_config *c = config;
    if (c->element != p->bytes)
        FAIL(CKL_INVALID, "%s gather: element=%d is not the problem's %d", p->op, c->element, p->bytes);
    accesses a;
    if (c->bytes < c->element || c->bytes > 16 || !is_power_of_two(c->bytes) || !find_accesses(p, c, &a))
        FAIL(CKL_INVALID, "%s gather: bytes=%d turned=%d cannot be moved at once", p->op, c->bytes, c->turned);
    if (c->block < 1 || c->block > BLOCK_MAX || (c->block > 1 && !c->turned) || c->rank != rank_of(&a))
        FAIL(CKL_INVALID, "%s gather: block=%d rank=%d do not fit the problem", p->op, c->block, c->rank);
    if (c->steps < 1 || c->steps > 16)
        FAIL(CKL_INVALID, "%s gather: steps=%d is not in 1..16", p->op, c->steps);
    return permutation_check_threads(p, "gather", c->threads, 32, device);
}

/* One launch. */
static ckl_status launch_all(const ckl_plan *plan, int kernel, const accesses *a, const char *x, char *y,
                             ckl_stream stream)
{
    const permute_gather_config *c = plan->config;
    int64_t count = permutation_elements(&a->of);
    permute_gather_params params = { .count = (uint32_t)count,
                                     .x = x,
                                     .y = y,
                                     .turned_x = a->words.x * a->unit_x,
                                     .turned_y = a->words.y * a->unit_y,
                                     .width = (uint32_t)a->width,
                                     .height = (uint32_t)a->height };
    for (int i = 0; i < a->of.rank; i++) {
        permute_mode m = a->of.modes[i];
        divisor d = divisor_of(m.size);
        params.size[i] = (uint32_t)m.size;
        params.factor[i] = d.factor;
        params.shift[i] = d.shift;
        params.stride_x[i] = m.x * a->unit_x;
        params.stride_y[i] = m.y * a->unit_y;
    }
    return plan_launch(plan, kernel, (plan_grid){ .x = ceil_div(count, (int64_t)c->threads * c->steps) }, &params,
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
    const bool aligned = PLAN_ALIGNED(c->bytes, a->x, a->y);
    const accesses each = aligned ? accesses_of(p, c) : of_elements(p);
    return launch_halves(plan, aligned ? 0 : 1, &each, a->x, a->y, stream);
}

static const field gather_fields[] = { GATHER_CONFIG(FIELD_ROW, permute_gather_config) };

const implementation permute_gather_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(permute, gather),
    .summary = "any strides: each thread finds its elements; copies in vectors",
    .candidate = candidate_gather,
    .cost = cost_gather,
    .kernels = 2,
    .params = &permute_gather_param_list,
};
