/*
 * permute_gather.c - any strides: each thread computes where its elements of y come from. Elements are numbered in the
 * order of y's memory, so neighbouring threads write neighbours; all loads of a thread start before the first store.
 * Where the innermost mode is contiguous in x and in y, an element is a vector of up to 16 bytes of it.
 */
#include "base/math.h"
#include "operators/permute/transpose_tile.h"
#include "skeletons/memory_cost.h"

enum { STEPS_MAX = 16, SECTOR_BYTES = 32, LINE_BYTES = 128 };

/* The kernel */

/*
 * Element number `index` in x and in y. An element of 16 bytes is four words. Coordinates are computed by hand: a layout's would
 * be divisions by sizes that are known at run time alone, and the kernel 40 % more instructions.
 */
static void find_element(const permute_gather_values *p, int rank, int bytes, val index, tensor *gX, tensor *gY)
{
    val x = p->x, y = p->y;
    for (int i = rank - 1; i >= 0; i--) {
        val at_mode = index;
        if (i > 0) {
            val quotient = transpose_quotient(index, p->factor[i], p->shift[i]);
            at_mode = sub(index, mul(quotient, p->size[i]));
            index = quotient;
        }
        at_mode = convert(I64, at_mode);
        x = add(x, convert(U64, mul(at_mode, p->stride_x[i])));
        y = add(y, convert(U64, mul(at_mode, p->stride_y[i])));
    }
    ckl_dtype type = transpose_type(bytes == 16 ? 4 : bytes);
    layout words = compact(leaf(bytes == 16 ? 4 : 1));
    *gX = gmem_tensor(x, type, words);
    *gY = gmem_tensor(y, type, words);
}

void permute_gather(const void *config, int kernel)
{
    const permute_gather_config *cfg = config;
    launch_bounds(cfg->threads, 0);
    permute_gather_values p = params_of(permute_gather);
    int bytes = kernel == 0 ? cfg->bytes : cfg->element;
    tensor cY = coordinates_from(identity_tensor(leaf(cfg->threads * cfg->steps)), 0,
                                 mul(cta_x(), imm(cfg->threads * cfg->steps)));
    cY = local_partition(cY, compact(leaf(cfg->threads)), thread()); // (STEPS)
    val inside[STEPS_MAX];
    tensor gX[STEPS_MAX], gY[STEPS_MAX], rX[STEPS_MAX]; // (WORDS)
    for (int s = 0; s < cfg->steps; s++) {
        val index = coordinate(cY, 0, s);
        inside[s] = lt(index, p.count);
        find_element(&p, cfg->rank, bytes, index, &gX[s], &gY[s]);
        rX[s] = fragment_like(gX[s], gX[s].dtype);
        fill(rX[s], imm_as(rX[s].regs[0].type, 0));
    }
    if (cfg->overlap)
        launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            copy(gX[s], rX[s], bytes);
    for (int s = 0; s < cfg->steps; s++)
        IF(inside[s])
            copy(rX[s], gY[s], bytes);
}

/* Choice, limits and launches */

enum { GATHER_COUNT_MAX = 1 << 30 }; // elements of one launch, so that numbers of threads without work stay below 2^31

/* May elements be `factor` times as long? Then the innermost mode must be contiguous and all else be multiples. */
static bool may_widen(const permutation *p, int factor)
{
    if (factor == 1)
        return true;
    if (p->rank == 0)
        return false;
    permute_mode inner = p->modes[p->rank - 1];
    bool divides = inner.x == 1 && inner.y == 1 && inner.size % factor == 0;
    for (int i = 0; i < p->rank - 1; i++)
        divides &= p->modes[i].x % factor == 0 && p->modes[i].y % factor == 0;
    return divides;
}

/* Elements as long as an access, in blocks if the config says so and the problem has them. */
static permutation accesses_of(const permutation *p, const permute_gather_config *c)
{
    permutation wide = permutation_widened(p, c->bytes / p->bytes);
    if (c->block > 1)
        permutation_block(&wide, c->block);
    return wide;
}

static bool is_blocked(const permutation *p, const permute_gather_config *c)
{
    return accesses_of(p, c).rank > p->rank;
}

static int rank_of(const permutation *p, const permute_gather_config *c)
{
    return (int)max_i64(accesses_of(p, c).rank, 1);
}

/* The largest block that divides both modes; 1 where there are no two. */
static int block_of(const permutation *p, const permute_gather_config *chosen)
{
    permute_gather_config c = *chosen;
    for (c.block = 16; c.block >= 8; c.block /= 2)
        if (is_blocked(p, &c))
            return c.block;
    return 1;
}

/*
 * May the next launch begin early? Its CTAs come to the SMs whose own end first, and crowd there. Where SMs have several, that
 * slows elements of less than a word, each read from a sector of its own: 577x352 bf16 transposed 3.24 us, else 2.52.
 */
static bool overlaps_next(int64_t count, const permute_gather_config *c, const ckl_device_info *device)
{
    enum { WORD_BYTES = 4 };
    return c->bytes >= WORD_BYTES || ceil_div(count, (int64_t)c->threads * c->steps) <= device->sm_count;
}

/* NOTE: of 16 bytes on an H200: 32x769x40x24 bf16, 0,2,1,3, takes 28.3 us by four a thread and 26.6 by two, 3x4096x48x96 58.8 and 57.9. */
enum { WIDEST_BYTES = 16, WIDEST_STEPS = 2, WIDEST_RANK_MIN = 4 };

static bool candidate_gather(const void *problem, const ckl_device_info *device, int i, void *config)
{
    const permutation *p = problem;
    permute_gather_config *c = config;
    c->element = p->bytes;
    c->bytes = WIDEST_BYTES;
    while (!may_widen(p, c->bytes / p->bytes))
        c->bytes /= 2;
    c->block = block_of(p, c);
    c->rank = rank_of(p, c);
    if (c->bytes == WIDEST_BYTES && c->block == 1 && c->rank >= WIDEST_RANK_MIN)
        c->steps = (int)min_i64(c->steps, WIDEST_STEPS);
    int64_t count = permutation_elements(p) * p->bytes / c->bytes;
    while (c->steps > 1 && count < (int64_t)c->threads * c->steps * device->sm_count)
        c->steps /= 2;
    c->overlap = overlaps_next(count, c, device);
    return i == 0;
}

/* What the first warp touches of x in one access of each thread. */
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

static touched touched_by_warp(const permutation *accesses, int access_bytes)
{
    int64_t places[PERMUTE_WARP];
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        int64_t left = lane;
        places[lane] = 0;
        for (int i = accesses->rank - 1; i >= 0; i--) {
            places[lane] += left % accesses->modes[i].size * accesses->modes[i].x * access_bytes;
            left /= accesses->modes[i].size;
        }
    }
    return (touched){ distinct_blocks(places, SECTOR_BYTES), distinct_blocks(places, LINE_BYTES) };
}

/* y is written in runs. Of x a warp reads sectors that another one will find in L2, and a CTA its block in L1. */
static plan_cost cost_gather(const void *problem, const ckl_device_info *device, const void *config)
{
    enum { OF_ACCESS = 16, OF_MODE = 9, REGISTERS = 20 };
    const double ALONE_US = 0.65; // of a launch that does not overlap the next one
    const double AGAIN = 0.1;     // of a byte from device memory, one from L2
    const permutation *p = problem;
    const permute_gather_config *c = config;
    const double bytes = (double)permutation_elements(p) * p->bytes;
    const permutation accesses = accesses_of(p, c);
    const touched x = touched_by_warp(&accesses, c->bytes);
    const double warp_bytes = (double)PERMUTE_WARP * c->bytes;
    const double again = c->block > 1 ? 0 : fmax(0, x.sectors * SECTOR_BYTES / warp_bytes - 1);
    const memory_work work = {
        .of = { .us = PERMUTE_KERNEL.us + (c->overlap ? 0 : ALONE_US), .bytes = c->block > 1 ? 1.2 : 1, .lines = 1.5 },
        .bytes = bytes * (2 + AGAIN * again),
        .ctas = ceil_div(permutation_elements(p) * p->bytes / c->bytes, (int64_t)c->threads * c->steps),
        .threads = c->threads,
        .registers = REGISTERS,
        .lines = c->steps * (x.lines + warp_bytes / LINE_BYTES),
        .elements = c->steps * (OF_ACCESS + OF_MODE * c->rank),
    };
    return memory_cost(&work, device);
}

static ckl_status admit_gather(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const permute_gather_config *c = config;
    if (p->tile)
        FAIL(CKL_UNSUPPORTED, "%s gather: tile=%d asks for the kernel tiled", p->op, p->tile);
    if (c->element != p->bytes)
        FAIL(CKL_INVALID, "%s gather: element=%d is not the problem's %d", p->op, c->element, p->bytes);
    if (c->bytes < c->element || c->bytes > 16 || !is_power_of_two(c->bytes) || !may_widen(p, c->bytes / p->bytes))
        FAIL(CKL_INVALID, "%s gather: bytes=%d cannot be moved at once", p->op, c->bytes);
    if (c->block < 1 || is_blocked(p, c) != (c->block > 1) || c->rank != rank_of(p, c))
        FAIL(CKL_INVALID, "%s gather: rank=%d block=%d do not fit the problem", p->op, c->rank, c->block);
    if (c->steps < 1 || c->steps > 16)
        FAIL(CKL_INVALID, "%s gather: steps=%d is not in 1..16", p->op, c->steps);
    return permutation_check_threads(p, "gather", c->threads, 32, device);
}

/* One launch. Modes that only the config has are those of kernel 1, which makes no blocks: a size of 0 divides by nothing. */
static ckl_status launch_all(const ckl_plan *plan, int kernel, const permutation *p, const char *x, char *y,
                             ckl_stream stream)
{
    const permute_gather_config *c = plan->config;
    int64_t count = permutation_elements(p);
    permute_gather_params params = { .count = (uint32_t)count, .x = x, .y = y };
    for (int i = 0; i < p->rank; i++) {
        permute_mode m = p->modes[i];
        permute_divisor d = permute_divisor_of(m.size);
        params.size[i] = (uint32_t)m.size;
        params.factor[i] = d.factor;
        params.shift[i] = d.shift;
        params.stride_x[i] = m.x * p->bytes;
        params.stride_y[i] = m.y * p->bytes;
    }
    return plan_launch(plan, kernel, (plan_grid){ .x = ceil_div(count, (int64_t)c->threads * c->steps) }, &params,
                       stream);
}

/* One launch, or those of the halves of the largest mode where there are too many elements for 32-bit numbers. */
static ckl_status launch_halves(const ckl_plan *plan, int kernel, const permutation *p, const char *x, char *y,
                                ckl_stream stream)
{
    if (permutation_elements(p) <= GATHER_COUNT_MAX)
        return launch_all(plan, kernel, p, x, y, stream);
    int largest = 0;
    for (int i = 1; i < p->rank; i++)
        if (p->modes[i].size > p->modes[largest].size)
            largest = i;
    permute_mode m = p->modes[largest];
    permutation low = *p, high = *p;
    low.modes[largest].size = m.size / 2;
    high.modes[largest].size = m.size - m.size / 2;
    TRY(launch_halves(plan, kernel, &low, x, y, stream));
    int64_t elements = m.size / 2;
    return launch_halves(plan, kernel, &high, x + elements * m.x * p->bytes, y + elements * m.y * p->bytes, stream);
}

static ckl_status launch_gather(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const permute_gather_config *c = plan->config;
    const permute_pointers *a = args;
    if (!PLAN_ALIGNED(c->bytes, a->x, a->y))
        return launch_halves(plan, 1, p, a->x, a->y, stream);
    permutation accesses = accesses_of(p, c);
    return launch_halves(plan, 0, &accesses, a->x, a->y, stream);
}

static const field gather_fields[] = { PERMUTE_GATHER_CONFIG(FIELD_ROW, permute_gather_config) };

const implementation permute_gather_implementation = {
    .name = "gather",
    .summary = "any strides: each thread finds its elements; copies in vectors",
    .config_bytes = sizeof(permute_gather_config),
    .config = FIELD_TABLE(gather_fields),
    .candidate = candidate_gather,
    .cost = cost_gather,
    .admit = admit_gather,
    .describe = permute_gather,
    .kernels = 2,
    .params = &permute_gather_param_list,
    .launch = launch_gather,
};
