/*
 * permute_gather.c - any strides: each thread computes where its elements of y come from. Elements are numbered in the
 * order of y's memory, so neighbouring threads write neighbours; all loads of a thread start before the first store.
 * Where the innermost mode is contiguous in x and in y, an element is a vector of up to 16 bytes of it.
 *
 * Elements that lie side by side in one mode of x and in another of y may be moved in squares: a thread loads as many
 * vectors of x as a word has elements, turns them in registers, and stores words. Neighbouring threads take blocks of
 * squares, so that both sides are accessed in runs.
 *
 * Runs that start anywhere on either side are written in aligned vectors of y, windows. Each is cut out of the two
 * aligned vectors of x that hold its bytes; neighbours read the same ones again, from L1. A run has as many windows as
 * it may touch. The first and the last hold other runs' bytes, too, and store their own elements one by one. So do
 * windows at the ends of x, which load them one by one as well.
 */
#include "base/math.h"
#include "cute/vectors.h"
#include "operators/permute/transpose_tile.h"
#include "skeletons/memory_cost.h"

enum { STEPS_MAX = 16, SIDE_MAX = 4, WORD_BYTES = 4, SECTOR_BYTES = 32, LINE_BYTES = 128 };
enum { WIDEST_BYTES = 16, WINDOW_WORDS = WIDEST_BYTES / WORD_BYTES };

#define GATHER_CONFIG(X, owner)                                                                                 \
    X(owner, int, element, "4", "1 2 4 8", "bytes of an element, what pointers are aligned to")                 \
    X(owner, int, bytes, "4", "1 2 4 8 16", "bytes of one memory access; of x, if elements are turned")         \
    X(owner, int, turned, "0", "0 2 4", "elements of a word, of squares that are turned in registers; 0: none") \
    X(owner, int, block, "1", "1 4 8 16", "squares of a block along x and along y; 1: they go along y")         \
    X(owner, bool, cut, "0", "0 1", "runs start anywhere: aligned vectors of y are cut out of two of x")        \
    X(owner, int, rank, "1", "1 2 3 4 5 6 7", "modes")                                                          \
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
    X(owner, pointer, end) /* of x */                      \
    X(owner, u32, run)     /* bytes, of windows */         \
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
    const int count = turned || bytes == 16 ? bytes / WORD_BYTES : 1;
    return gmem_tensor(address, transpose_type(bytes / count), compact(leaf(count))); // (WORDS)
}

/* Turns `side` vectors of x, and stores the words of y that they make. */
static void store_turned(const permute_gather_values *p, int side, int bytes, const tensor *rX, val y)
{
    for (int v = 0; v < bytes / WORD_BYTES; v++) {
        val rows[SIDE_MAX];
        for (int e = 0; e < side; e++)
            rows[e] = bitcast(U32, at(rX[e], v));
        transpose_square(side, rows);
        for (int e = 0; e < side; e++)
            store_global(U32, moved(y, v * side + e, p->turned_y), 0, rows[e]);
    }
}

/* Windows */

typedef struct window {
    const permute_gather_values *p;
    int bytes; // of an element
    ckl_dtype type;
    val first; // i32: the byte of its run that it begins with; negative where the run begins inside
    val x, y;  // addresses of that byte
} window;

static window find_window(const permute_gather_config *cfg, const permute_gather_values *p, val index)
{
    const int inner = cfg->rank - 1;
    window w = { .p = p, .bytes = cfg->element, .type = transpose_type(cfg->element) };
    val run = index, number = divisor_coordinate(&run, p->size[inner], p->factor[inner], p->shift[inner]);
    find_access(p, inner, 1, run, &w.x, &w.y);
    val phase = bit_and(convert(U32, w.y), imm(WIDEST_BYTES - 1));
    w.first = convert(I32, sub(mul(number, imm(WIDEST_BYTES)), phase));
    val offset = convert(U64, convert(I64, w.first));
    w.x = add(w.x, offset);
    w.y = add(w.y, offset);
    return w;
}

/* Is element e of the window one of its run? */
static val has_element(const window *w, int e)
{
    return lt(convert(U32, add(w->first, imm(e * w->bytes))), w->p->run);
}

static tensor element_of(const window *w, val address, int e)
{
    return gmem_tensor(add(address, imm(e * w->bytes)), w->type, compact(leaf(1)));
}

/* Stores the elements of a window that are the run's. */
static void store_elements(const window *w, const val *cut)
{
    const int count = WIDEST_BYTES / w->bytes;
    const words of = words_of(w->type, count);
    val typed[WINDOW_WORDS], element[WIDEST_BYTES];
    for (int i = 0; i < WINDOW_WORDS; i++)
        typed[i] = bitcast(of.type, cut[i]);
    for (int e = 0; e < count; e++)
        element[e] = unwritten(element_register(w->type));
    words_unpack(of, typed, w->type, element);
    for (int e = 0; e < count; e++)
        IF(has_element(w, e))
            set(element_of(w, w->y, e), 0, element[e]);
}

/* Cuts a window out of the aligned vectors of x from `low` on. */
static void cut_window(const window *w, val low)
{
    val pair[2 * WINDOW_WORDS], taken[WINDOW_WORDS], run = convert(I32, w->p->run);
    tensor rY = fragment(U32, compact(leaf(WINDOW_WORDS))); // (WORDS)
    for (int i = 0; i < 2 * WINDOW_WORDS; i++)
        pair[i] = unwritten(U32);
    for (int i = 0; i < 2 * WINDOW_WORDS; i += WINDOW_WORDS)
        load_at(IR_GLOBAL, IR_CACHE_DEFAULT, U32, WINDOW_WORDS, low, (int64_t)WORD_BYTES * i, pair + i);
    const words_cut cut =
        words_cut_from(pair, WINDOW_WORDS, convert(U32, bit_and(w->x, imm_as(U64, WIDEST_BYTES - 1))), w->bytes);
    for (int i = 0; i < WINDOW_WORDS; i++)
        set(rY, i, taken[i] = words_cut_word(&cut, i));
    IF(logical_and(ge(w->first, imm(0)), ge(sub(run, w->first), imm(WIDEST_BYTES))))
        copy(rY, gmem_tensor(w->y, U32, compact(leaf(WINDOW_WORDS))), WIDEST_BYTES);
    ELSE store_elements(w, taken);
}

static void gather_windows(const permute_gather_config *cfg, const permute_gather_values *p)
{
    val index = add(mul(cta_x(), imm(PERMUTE_THREADS)), thread());
    const window w = find_window(cfg, p, index);
    val exists = logical_and(lt(index, p->count), lt(w.first, convert(I32, p->run)));
    val low = bit_and(w.x, imm_as(U64, -WIDEST_BYTES));
    val in_x = logical_and(ge(low, p->x), le(add(low, imm(2 * WIDEST_BYTES)), p->end));
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    IF(logical_and(exists, logical_not(in_x)))
        for (int e = 0; e < WIDEST_BYTES / cfg->element; e++)
            IF(has_element(&w, e))
                set(element_of(&w, w.y, e), 0, at(element_of(&w, w.x, e), 0));
    IF(logical_and(exists, in_x))
        cut_window(&w, low);
}

static void permute_gather(const void *config, int kernel)
{
    enum { THREADS_OF_SM = 2048 }; // that windows shall fit: bounds registers to 32
    const permute_gather_config *cfg = config;
    launch_bounds(PERMUTE_THREADS, cfg->cut ? THREADS_OF_SM / PERMUTE_THREADS : 0);
    permute_gather_values p = params_of(permute_gather);
    if (cfg->cut && kernel == 0) {
        gather_windows(cfg, &p);
        return;
    }
    const int bytes = kernel == 0 ? cfg->bytes : cfg->element, turned = kernel == 0 ? cfg->turned : 0;
    const int vectors = turned ? turned : 1;
    tensor cY = coordinates_from(identity_tensor(leaf(PERMUTE_THREADS * cfg->steps)), 0,
                                 mul(cta_x(), imm(PERMUTE_THREADS * cfg->steps)));
    cY = local_partition(cY, compact(leaf(PERMUTE_THREADS)), thread()); // (STEPS)
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
 * NOTE: of 16 bytes on an H200: 32x769x40x24 bf16, 0,2,1,3, takes 28.3 us by four a thread and 26.6 by two,
 * 3x4096x48x96 58.8 and 57.9.
 */
enum { WIDEST_STEPS = 2, WIDEST_RANK_MIN = 4 };

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
static double sectors_for_full(const accesses *a, int stores)
{
    int sectors = 0;
    for (int i = 0; i < stores; i++)
        sectors += touched_by_warp(a, false, i * a->words.y * a->unit_y).sectors;
    return sectors * SECTOR_BYTES / (double)(stores * PERMUTE_WARP * WORD_BYTES);
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
    const touched x = touched_by_warp(&a, true, 0), y = touched_by_warp(&a, false, 0);
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
        .bytes = bytes * (2 + AGAIN * again + PARTLY * partly),
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

/* Of windows: bytes of a run, and where x ends. */
static void find_end(const permutation *p, permute_gather_params *params)
{
    int64_t last = 0;
    for (int i = 0; i < p->rank; i++)
        last += (p->modes[i].size - 1) * p->modes[i].x;
    params->run = (uint32_t)(p->modes[p->rank - 1].size * p->bytes);
    params->end = (const char *)params->x + (last + 1) * p->bytes;
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
    if (c->cut)
        find_end(plan->desc, &params);
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

static const field gather_fields[] = { GATHER_CONFIG(FIELD_ROW, permute_gather_config) };

const implementation permute_gather_implementation = {
    IMPLEMENTATION_OF_CANDIDATES(permute, gather),
    .summary =
        "any strides: each thread finds its elements; copies in vectors, cut out of two where runs start anywhere",
    .candidate = candidate_gather,
    .cost = cost_gather,
    .kernels = 2,
    .params = &permute_gather_param_list,
};
