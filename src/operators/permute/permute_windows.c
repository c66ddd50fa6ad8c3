/*
 * permute_windows.c - runs that start anywhere on either side: y is written in aligned vectors, the windows of its
 * runs. Each is cut out of the two aligned vectors of x that hold its bytes; neighbours read the same ones again, from
 * L1.
 *
 * A run has as many windows as it may touch. The first and the last hold other runs' bytes, too, and store their own
 * elements one by one. So do windows at the ends of x, which load them one by one as well.
 */
#include "base/math.h"
#include "cute/vectors.h"
#include "operators/permute/transpose_tile.h"
#include "skeletons/memory_cost.h"

enum { BYTES = 16, WORD_BYTES = 4, WORDS = BYTES / WORD_BYTES, SECTOR_BYTES = 32, LINE_BYTES = 128 };
enum { THREADS = 2048 }; // that shall fit an SM: bounds registers to 32

#define WINDOWS_CONFIG(X, owner)                                           \
    X(owner, int, bytes, "4", "1 2 4", "bytes of an element")              \
    X(owner, int, rank, "2", "1 2 3 4 5", "modes, the innermost is a run") \
    X(owner, int, threads, "256", "128 256 512", "threads of a CTA")

FIELD_STRUCT(permute_windows_config, WINDOWS_CONFIG);

/* The innermost mode's size is windows. */
#define PERMUTE_WINDOWS_PARAMS(X, owner)         \
    X(owner, pointer, x)                         \
    X(owner, pointer, end) /* of x */            \
    X(owner, pointer, y)                         \
    X(owner, u32, count) /* windows */           \
    X(owner, u32, run)   /* bytes */             \
    X(owner, u32, size, [PERMUTE_MODES_MAX])     \
    X(owner, u32, factor, [PERMUTE_MODES_MAX])   \
    X(owner, u32, shift, [PERMUTE_MODES_MAX])    \
    X(owner, i64, stride_x, [PERMUTE_MODES_MAX]) \
    X(owner, i64, stride_y, [PERMUTE_MODES_MAX])

KERNEL_PARAMS(permute_windows, PERMUTE_WINDOWS_PARAMS);

/* The kernel */

typedef struct windows {
    const permute_windows_config *cfg;
    permute_windows_values p;
    ckl_dtype type;
} windows;

typedef struct window {
    val first;           // i32: the byte of its run that it begins with; negative where the run begins inside
    val x, y;            // addresses of that byte
    val together, apart; // holds some of the run, and the aligned vectors of x are in x, or not
    val pair[2 * WORDS]; // these vectors, u32
} window;

/* The lower of the two aligned vectors. */
static val low_of(const window *w)
{
    return bit_and(w->x, imm_as(U64, -BYTES));
}

static window find_window(const windows *k, val index)
{
    const permute_windows_values *p = &k->p;
    const int inner = k->cfg->rank - 1;
    window w = { .x = p->x, .y = p->y };
    val run = index, number = divisor_coordinate(&run, p->size[inner], p->factor[inner], p->shift[inner]);
    for (int i = inner - 1; i >= 0; i--) {
        val at_mode = i == 0 ? run : divisor_coordinate(&run, p->size[i], p->factor[i], p->shift[i]);
        at_mode = convert(I64, at_mode);
        w.x = add(w.x, convert(U64, mul(at_mode, p->stride_x[i])));
        w.y = add(w.y, convert(U64, mul(at_mode, p->stride_y[i])));
    }
    val phase = bit_and(convert(U32, w.y), imm(BYTES - 1));
    w.first = convert(I32, sub(mul(number, imm(BYTES)), phase));
    val offset = convert(U64, convert(I64, w.first));
    w.x = add(w.x, offset);
    w.y = add(w.y, offset);
    val exists = logical_and(lt(index, p->count), lt(w.first, convert(I32, p->run))), low = low_of(&w);
    val in_x = logical_and(ge(low, p->x), le(add(low, imm(2 * BYTES)), p->end));
    w.together = logical_and(exists, in_x);
    w.apart = logical_and(exists, logical_not(in_x));
    for (int i = 0; i < 2 * WORDS; i++)
        w.pair[i] = variable(U32, imm(0));
    return w;
}

/* Is element e of the window one of its run? */
static val has_element(const windows *k, const window *w, int e)
{
    return lt(convert(U32, add(w->first, imm(e * k->cfg->bytes))), k->p.run);
}

static tensor element_at(const windows *k, val address, int e)
{
    return gmem_tensor(add(address, imm(e * k->cfg->bytes)), k->type, compact(leaf(1)));
}

static void load_window(const windows *k, window *w)
{
    IF(w->apart)
        for (int e = 0; e < BYTES / k->cfg->bytes; e++)
            IF(has_element(k, w, e))
                set(element_at(k, w->y, e), 0, at(element_at(k, w->x, e), 0));
    IF(w->together)
        for (int i = 0; i < 2 * WORDS; i += WORDS)
            load_at(IR_GLOBAL, IR_CACHE_DEFAULT, U32, WORDS, low_of(w), (int64_t)4 * i, w->pair + i);
}

/* Stores the elements of a window that are the run's. */
static void store_elements(const windows *k, const window *w, const val *cut)
{
    const int count = BYTES / k->cfg->bytes;
    const words of = words_of(k->type, count);
    val typed[WORDS], element[BYTES];
    for (int i = 0; i < WORDS; i++)
        typed[i] = bitcast(of.type, cut[i]);
    for (int e = 0; e < count; e++)
        element[e] = unwritten(element_register(k->type));
    words_unpack(of, typed, k->type, element);
    for (int e = 0; e < count; e++)
        IF(has_element(k, w, e))
            set(element_at(k, w->y, e), 0, element[e]);
}

static void store_window(const windows *k, const window *w)
{
    val taken[WORDS], run = convert(I32, k->p.run);
    tensor rY = fragment(U32, compact(leaf(WORDS))); // (WORDS)
    const words_cut cut =
        words_cut_from(w->pair, WORDS, convert(U32, bit_and(w->x, imm_as(U64, BYTES - 1))), k->cfg->bytes);
    for (int i = 0; i < WORDS; i++)
        set(rY, i, taken[i] = words_cut_word(&cut, i));
    IF(logical_and(ge(w->first, imm(0)), ge(sub(run, w->first), imm(BYTES))))
        copy(rY, gmem_tensor(w->y, U32, compact(leaf(WORDS))), BYTES);
    ELSE store_elements(k, w, taken);
}

static void permute_windows(const void *config, int kernel)
{
    const permute_windows_config *cfg = config;
    (void)kernel;
    launch_bounds(cfg->threads, THREADS / cfg->threads);
    const windows k = { .cfg = cfg, .p = params_of(permute_windows), .type = transpose_type(cfg->bytes) };
    window w = find_window(&k, add(mul(cta_x(), imm(cfg->threads)), thread()));
    launch_dependents();
    grid_wait(); // what is above overlaps the end of the kernel before
    load_window(&k, &w);
    IF(w.together)
        store_window(&k, &w);
}

/* Choice, limits and launch */

/* Windows that a run may touch, wherever it starts. */
static int64_t windows_of_run(const permutation *p)
{
    return ceil_div((p->modes[p->rank - 1].size - 1) * p->bytes, BYTES) + 1;
}

static int64_t runs_of(const permutation *p)
{
    return permutation_elements(p) / p->modes[p->rank - 1].size;
}

/* Are there runs, in x and in y, which vectors do not divide? */
static ckl_status check_runs(const permutation *p)
{
    enum { COUNT_MAX = 1 << 30, RUN_BYTES_MIN = 64 };
    const permute_mode *inner = &p->modes[max_i64(p->rank, 1) - 1];
    if (p->empty || p->rank == 0 || inner->x != 1 || inner->y != 1 || inner->size * p->bytes < RUN_BYTES_MIN)
        FAIL(CKL_UNSUPPORTED, "%s windows: no mode is a run of %d bytes or more in x and in y", p->op, RUN_BYTES_MIN);
    bool divides = inner->size * p->bytes % BYTES == 0;
    for (int i = 0; i < p->rank - 1; i++)
        divides &= p->modes[i].x * p->bytes % BYTES == 0 && p->modes[i].y * p->bytes % BYTES == 0;
    if (divides || p->bytes > WORD_BYTES)
        FAIL(CKL_UNSUPPORTED, "%s windows: whole vectors divide all runs, or elements are longer than a word", p->op);
    if (inner->size * p->bytes > INT32_MAX - BYTES || runs_of(p) > COUNT_MAX / windows_of_run(p))
        FAIL(CKL_UNSUPPORTED, "%s windows: %" PRId64 " runs have too many windows for 32-bit numbers", p->op,
             runs_of(p));
    return CKL_OK;
}

static ckl_status choose_windows(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    permute_windows_config *c = config;
    (void)device;
    TRY(check_runs(p));
    c->bytes = p->bytes;
    c->rank = p->rank;
    return CKL_OK;
}

/* Each run shares its first and its last sector, with neighbours that are moved at the same time. */
static plan_cost cost_windows(const void *problem, const ckl_device_info *device, const void *config)
{
    enum { OF_WINDOW = 60, OF_MODE = 9, OF_ELEMENT = 3, REGISTERS = 24 };
    const permutation *p = problem;
    const permute_windows_config *c = config;
    const double runs = (double)runs_of(p), run_bytes = (double)(p->modes[p->rank - 1].size * p->bytes);
    const memory_work work = {
        .of = PERMUTE_KERNEL,
        .bytes = 2 * runs * (run_bytes + SECTOR_BYTES / 2),
        .ctas = ceil_div(runs_of(p) * windows_of_run(p), c->threads),
        .threads = c->threads,
        .registers = REGISTERS + 2 * BYTES / WORD_BYTES,
        .ctas_per_sm = THREADS / c->threads,
        .lines = 3.0 * PERMUTE_WARP * BYTES / LINE_BYTES,
        .elements = OF_WINDOW + OF_MODE * c->rank + OF_ELEMENT * BYTES / c->bytes,
    };
    return memory_cost(&work, device);
}

static ckl_status admit_windows(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const permute_windows_config *c = config;
    TRY(check_runs(p));
    if (c->bytes != p->bytes || c->rank != p->rank)
        FAIL(CKL_INVALID, "%s windows: bytes=%d rank=%d are not the problem's %d and %d", p->op, c->bytes, c->rank,
             p->bytes, p->rank);
    return permutation_check_threads(p, "windows", c->threads, 32, device);
}

static ckl_status launch_windows(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const permutation *p = plan->desc;
    const permute_windows_config *c = plan->config;
    const permute_pointers *a = args;
    const int64_t count = runs_of(p) * windows_of_run(p);
    permute_windows_params params = { .x = a->x,
                                      .end = (const char *)a->x + p->bytes,
                                      .y = a->y,
                                      .count = (uint32_t)count,
                                      .run = (uint32_t)(p->modes[p->rank - 1].size * p->bytes) };
    for (int i = 0; i < p->rank; i++) {
        const permute_mode *m = &p->modes[i];
        const int64_t size = i == p->rank - 1 ? windows_of_run(p) : m->size;
        const divisor d = divisor_of(size);
        params.size[i] = (uint32_t)size;
        params.factor[i] = d.factor;
        params.shift[i] = d.shift;
        params.stride_x[i] = m->x * p->bytes;
        params.stride_y[i] = m->y * p->bytes;
        params.end = (const char *)params.end + (m->size - 1) * m->x * p->bytes;
    }
    return plan_launch(plan, 0, (plan_grid){ .x = ceil_div(count, c->threads) }, &params, stream);
}

static const field windows_fields[] = { WINDOWS_CONFIG(FIELD_ROW, permute_windows_config) };

const implementation permute_windows_implementation = {
    IMPLEMENTATION_PARTS(permute, windows),
    .summary = "runs that start anywhere: aligned vectors of y, each cut out of the two of x that hold it",
    .cost = cost_windows,
    .rivals = { &permute_boxes_implementation, &permute_gather_implementation },
    .params = &permute_windows_param_list,
};
