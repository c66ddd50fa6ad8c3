/*
 * transpose_narrow.c - matrices with a short side without gaps: interleaving or separating channels, small images.
 *
 * Where rows of x are short (short_x=1), the tile's rows are one run of memory, which shared memory mirrors; each row
 * of y has a run of its own. Where rows of y are short (short_x=0), each row of x has a run, and the tile's y is one.
 * Runs of x come in the aligned chunks of 16 bytes that they touch, so each keeps its phase, the bytes before it in its
 * first chunk. Runs of y are cut at multiples of 32 bytes of memory: CTAs write whole sectors, in words. Only the ends
 * of the matrix are written by elements.
 *
 * Lanes and addresses are computed by hand: phases and sectors depend on each run's address, so no layout has the
 * distance between runs.
 */
#include "operators/permute/transpose_plan.h"

#define NARROW_CONFIG(X, owner)                                                                     \
    TRANSPOSE_FIELDS(X, owner)                                                                      \
    X(owner, bool, short_x, "1", "0 1", "1: rows of x are short; 0: rows of y are")                 \
    X(owner, int, tile_r, "1024", "4 16 64 256 1024", "rows of x of a CTA")                         \
    X(owner, int, tile_c, "4", "4 16 64 256 1024", "columns of x of a CTA")                         \
    X(owner, bool, padded, "0", "0 1", "a chunk of padding after each line of a run of short rows") \
    X(owner, bool, prefetch, "0", "0 1", "prefetch x to L2 while the kernel before may still run")

FIELD_STRUCT(transpose_narrow_config, NARROW_CONFIG);

enum { CHUNK_BYTES = PERMUTE_CHUNK_BYTES, SECTOR_BYTES = 32, LINE_BYTES = 128, WORD_BYTES = 4 };

typedef struct narrow {
    const transpose_narrow_config *cfg;
    ckl_dtype type, word_type;
    int word_elements;
    int run_bytes; // of a run of x in shared memory
    val smem;      // shared address of the first
    transpose_tile tile;
    val x;             // address of the tile
    val size;          // of the short side, u32
    val along;         // of the long side in the tile and its margin, u32
    val runs, length;  // of x: their number, and bytes of each, u32
    val factor, shift; // of a division by size
} narrow;

/* Elements past the tile that windows of y may reach. */
static int margin_of(const transpose_narrow_config *cfg)
{
    return SECTOR_BYTES / cfg->bytes;
}

/*
 * Where byte number `offset` of the run of short rows of x lies: 8 or 16 elements of 2 bytes in rows of powers of two
 * would meet in a few banks without padding.
 */
static int64_t padded_offset(const transpose_narrow_config *cfg, int64_t offset)
{
    return cfg->padded ? offset + offset / LINE_BYTES * CHUNK_BYTES : offset;
}

static val padded(const narrow *k, val offset)
{
    return k->cfg->padded ? add(offset, mul(div(offset, imm(LINE_BYTES)), imm(CHUNK_BYTES))) : offset;
}

/* Bytes of one run of x, with its phase. */
static int run_bytes_of(const transpose_narrow_config *cfg)
{
    int64_t elements =
        cfg->short_x ? (cfg->tile_r + margin_of(cfg)) * (int64_t)cfg->tile_c : cfg->tile_c + margin_of(cfg);
    return (int)round_up(elements * cfg->bytes + CHUNK_BYTES - 1, CHUNK_BYTES);
}

static int64_t smem_bytes_of(const transpose_narrow_config *cfg)
{
    return padded_offset(cfg, (int64_t)run_bytes_of(cfg) * (cfg->short_x ? 1 : cfg->tile_r));
}

/* Bytes by which a run of x exceeds a multiple of a chunk. */
static val phase_of(const narrow *k, val run)
{
    val address = convert(U32, k->x);
    if (!k->cfg->short_x)
        address = add(address, mul(run, convert(U32, k->tile.ldx)));
    return bit_and(address, imm(CHUNK_BYTES - 1));
}

/*
 * All threads share the chunks of all runs: each copies its own, or asks L2 for the lines that begin with them. What is
 * outside x becomes 0.
 */
static void load_runs(const narrow *k, bool ask)
{
    const int chunks = k->run_bytes / CHUNK_BYTES;
    const bool one = k->cfg->short_x;
    val one_end = div(add(add(phase_of(k, imm(0)), k->length), imm(CHUNK_BYTES - 1)), imm(CHUNK_BYTES));
    LOOP_FROM(n, thread(), one ? one_end : mul(k->runs, imm(chunks)), imm(PERMUTE_THREADS)) {
        val run = one ? imm_as(U32, 0) : div(n, imm(chunks)),
            offset = mul(one ? n : rem(n, imm(chunks)), imm(CHUNK_BYTES));
        val phase = phase_of(k, run), end = add(phase, k->length), exists = lt(offset, end);
        val from = transpose_address(sub(k->x, convert(U64, phase)), run, k->tile.ldx, offset, imm(1));
        if (ask) {
            IF(logical_and(lt(offset, k->length), eq(bit_and(offset, imm(LINE_BYTES - 1)), imm(0))))
                prefetch_L2(add(from, convert(U64, phase))); // not for what is before x
        } else {
            IF(exists)
                cp_async(add(k->smem, padded(k, mul(n, imm(CHUNK_BYTES)))), from, CHUNK_BYTES,
                         min(sub(end, offset), imm(CHUNK_BYTES)));
        }
    }
}

/* A run of y from the tile's first element on. */
typedef struct run {
    val number;
    val address;
    val head;  // elements before the first sector
    val count; // elements in the tile and its margin
} run;

static run run_at(const narrow *k, val number)
{
    const transpose_narrow_config *cfg = k->cfg;
    val row = cfg->short_x ? add(k->tile.col, number) : k->tile.col;
    val column = cfg->short_x ? k->tile.row : imm(0);
    run y = { .number = number, .address = transpose_address(k->tile.y, row, k->tile.ldy, column, imm(cfg->bytes)) };
    val past = bit_and(sub(imm(0), convert(U32, y.address)), imm(SECTOR_BYTES - 1));
    y.head = div(past, imm(cfg->bytes));
    y.count = cfg->short_x ? k->along : mul(k->along, k->size);
    return y;
}

/* Where element i of a run of y lies in the run of short rows of x, with its phase: bytes without padding. */
static val offset_of(const narrow *k, const run *y, val i)
{
    val offset = add(mul(i, convert(U32, k->tile.ldx)), mul(y->number, imm(k->cfg->bytes)));
    return add(phase_of(k, imm(0)), offset);
}

/* The shared address of element i of a run of y. */
static val element_address(const narrow *k, const run *y, val i)
{
    if (k->cfg->short_x)
        return add(k->smem, padded(k, offset_of(k, y, i)));
    val c = divisor_quotient(i, k->factor, k->shift), r = sub(i, mul(c, k->size));
    return add(add(add(k->smem, mul(r, imm(k->run_bytes))), phase_of(k, r)), mul(c, imm(k->cfg->bytes)));
}

static val element_at(const narrow *k, const run *y, val i)
{
    return at(smem_view(element_address(k, y, i), k->type, compact(leaf(1))), 0);
}

static void store(const narrow *k, const run *y, val i, ckl_dtype type, val x)
{
    val to = add(y->address, convert(U64, mul(i, imm(k->cfg->bytes))));
    set(gmem_tensor(to, type, compact(leaf(1))), 0, x);
}

/*
 * Stores the words of all runs along the long side, from the first sector of each on. Threads share a run, and a
 * thread's words lie equally far apart, so that their places cost an addition each.
 */
static void store_long_runs(const narrow *k)
{
    const transpose_narrow_config *cfg = k->cfg;
    const int elements = k->word_elements, words = cfg->tile_r / elements;
    const int along = (int)min_i64(words, PERMUTE_THREADS), at_once = PERMUTE_THREADS / along;
    val row = convert(U32, k->tile.ldx), mine = mul(thread_at(thread(), 0, along, at_once), imm(elements));
    val apart = padded(k, mul(row, imm(along * elements))); // whole lines, where there are several words
    LOOP_FROM(n, thread_at(thread(), 1, along, at_once), k->size, imm(at_once)) {
        run y = run_at(k, n);
        val first = add(y.head, mine), offset = offset_of(k, &y, first), from[4], x[4];
        val to = add(y.address, convert(U64, mul(first, imm(cfg->bytes))));
        for (int e = 0; e < elements; e++)
            from[e] = add(k->smem, padded(k, add(offset, mul(row, imm(e)))));
        for (int i = 0; i < words; i += along)
            IF(ge(y.count, add(first, imm((i + 1) * elements)))) {
                for (int e = 0; e < elements; e++)
                    x[e] = at(smem_view(add(from[e], mul(apart, imm(i / along))), k->type, compact(leaf(1))), 0);
                store_global(k->word_type, to, (int64_t)i * elements * cfg->bytes,
                             bitcast(k->word_type, transpose_word(elements, x)));
            }
    }
}

/*
 * Stores the words of the one run of short rows of y. So many threads take part that a thread's next word has elements
 * of the same rows of x, a distance further: their places are found once.
 */
static void store_short_rows(const narrow *k)
{
    const transpose_narrow_config *cfg = k->cfg;
    const int elements = k->word_elements;
    run y = run_at(k, imm_as(U32, 0));
    val period = k->size; // words until one begins with the same row of x
    for (int e = elements; e > 1; e /= 2)
        period = select(eq(bit_and(period, imm(1)), imm(0)), div(period, imm(2)), period);
    val words = mul(div(imm_as(U32, PERMUTE_THREADS), period), period); // at once
    val apart = mul(div(mul(words, imm(elements)), k->size), imm(cfg->bytes)), moved = variable(U32, imm(0));
    // by hand: which element a thread begins with depends on where this run of y begins
    val mine = add(y.head, mul(thread(), imm(elements))), from[4], x[4];
    for (int e = 0; e < elements; e++)
        from[e] = element_address(k, &y, add(mine, imm(e)));
    val end = select(lt(thread(), words), mul(k->size, imm(cfg->tile_c / elements)), imm_as(U32, 0));
    LOOP_FROM(n, thread(), end, words) {
        val first = add(y.head, mul(n, imm(elements)));
        BREAK_IF(lt(y.count, add(first, imm(elements))));
        for (int e = 0; e < elements; e++)
            x[e] = at(smem_view(add(from[e], moved), k->type, compact(leaf(1))), 0);
        store(k, &y, first, k->word_type, transpose_word(elements, x));
        assign(moved, add(moved, apart));
    }
}

/* Stores single elements, up to per_run of each run: those before the first sector, or those after the last word. */
static void store_ends(const narrow *k, val runs, int per_run, bool heads)
{
    const transpose_narrow_config *cfg = k->cfg;
    val window = cfg->short_x ? imm(cfg->tile_r) : mul(k->size, imm(cfg->tile_c));
    LOOP_FROM(n, thread(), mul(runs, imm(per_run)), imm(PERMUTE_THREADS)) {
        run y = run_at(k, div(n, imm(per_run)));
        val i = rem(n, imm(per_run)), wanted = lt(i, y.head);
        if (!heads) {
            val body = bit_and(sub(max(y.count, y.head), y.head), imm(-k->word_elements)); // elements in whole words
            wanted = lt(body, window);
            i = add(add(y.head, body), i);
        }
        IF(logical_and(wanted, lt(i, y.count)))
            store(k, &y, i, k->type, element_at(k, &y, i));
    }
}

static narrow describe_tile(const transpose_narrow_config *cfg, const transpose_values *p)
{
    int word = permute_word_bytes(cfg->bytes);
    narrow k = { .cfg = cfg,
                 .type = transpose_type(cfg->bytes),
                 .word_type = transpose_type(word),
                 .word_elements = word / cfg->bytes,
                 .run_bytes = run_bytes_of(cfg),
                 .factor = p->factor,
                 .shift = p->shift };
    k.smem = smem_address(smem_alloc("tile", smem_bytes_of(cfg), CHUNK_BYTES));
    k.tile = transpose_tile_by_address(p, cfg->outer, cfg->tile_r, cfg->tile_c, false);
    k.x = transpose_address(k.tile.x, k.tile.row, k.tile.ldx, k.tile.col, imm(cfg->bytes));
    k.size = cfg->short_x ? k.tile.cols : k.tile.rows;
    return k;
}

static void transpose_narrow(const void *config, int kernel)
{
    const transpose_narrow_config *cfg = config;
    (void)kernel;
    launch_bounds(PERMUTE_THREADS, 0);
    transpose_values p = params_of(transpose);
    narrow k = describe_tile(cfg, &p);
    val left = cfg->short_x ? sub(k.tile.rows, k.tile.row) : sub(k.tile.cols, k.tile.col);
    int reach = (cfg->short_x ? cfg->tile_r : cfg->tile_c) + margin_of(cfg);
    k.along = min(left, imm(reach));
    val first = eq(cfg->short_x ? k.tile.row : k.tile.col, imm(0)), runs = cfg->short_x ? k.size : imm_as(U32, 1);

    k.runs = cfg->short_x ? imm_as(U32, 1) : k.size;
    k.length = mul(k.along, cfg->short_x ? mul(k.size, imm(cfg->bytes)) : imm(cfg->bytes));

    if (cfg->prefetch)
        load_runs(&k, true);
    grid_wait(); // what is above overlaps the end of the kernel before
    launch_dependents();
    load_runs(&k, false);
    cp_async_commit();
    cp_async_wait(0);
    cta_sync();
    (cfg->short_x ? store_long_runs : store_short_rows)(&k);
    IF(first)
        store_ends(&k, runs, margin_of(cfg), true);
    IF(lt(left, imm(reach)))
        store_ends(&k, runs, k.word_elements, false);
}

/* Choice, limits and launch */

enum {
    COLS_MAX = 32,    // of x where its rows are short: longer ones fill tiles of the kernel sm80
    ROWS_MAX = 64,    // of x where rows of y are short: that kernel would write them a few words at a time
    LONG_MIN = 256,   // of the long side: below, CTAs would have little to do
    ALONG_MAX = 4096, // of a tile
    TILE_BYTES = 16384,
    ALONG_MIN = 64, // of a tile of a small matrix, which is spread over the SMs
};

/* Is that side short, and without gaps on its own side of memory? */
static bool is_short(const permute_matrix *m, bool in_x)
{
    const int64_t size = in_x ? m->cols : m->rows, pitch = in_x ? m->ldx : m->ldy, other = in_x ? m->rows : m->cols;
    return size <= (in_x ? COLS_MAX : ROWS_MAX) && pitch == size && other >= LONG_MIN;
}

static ckl_status check_short_side(const permutation *p)
{
    if (!is_short(&p->matrix, true) && !is_short(&p->matrix, false))
        FAIL(
            CKL_UNSUPPORTED,
            "%s narrow: there is no side of up to %d columns or %d rows without gaps, %d or more elements of the other",
            p->op, COLS_MAX, ROWS_MAX, LONG_MIN);
    return CKL_OK;
}

/* Accesses to shared memory for the words that a warp stores: of neighbouring rows, or of a few runs of x. */
static int narrow_turns(const permutation *p, const transpose_narrow_config *c)
{
    const int elements = permute_word_bytes(c->bytes) / c->bytes;
    const int64_t run_bytes = smem_bytes_of(c) / c->tile_r; // of short rows of y
    int64_t places[PERMUTE_WARP];
    for (int lane = 0; lane < PERMUTE_WARP; lane++) {
        const int64_t i = (int64_t)lane * elements;
        places[lane] = c->short_x ? padded_offset(c, i * p->matrix.cols * c->bytes)
                                  : i % p->matrix.rows * run_bytes + i / p->matrix.rows * c->bytes;
    }
    return elements * permutation_bank_turns(places);
}

static ckl_status choose_narrow(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_narrow_config *c = config;
    const permute_matrix *m = &p->matrix;
    TRY(check_short_side(p));
    c->bytes = p->bytes;
    c->outer = m->outer_count;
    c->short_x = is_short(m, true);
    int side = 4, along = ALONG_MIN;
    while (side < (c->short_x ? m->cols : m->rows) && side < ROWS_MAX)
        side *= 2;
    while (along * side * p->bytes < TILE_BYTES)
        along *= 2;
    while (along > ALONG_MIN &&
           transpose_tiles(p, c->short_x ? along : side, c->short_x ? side : along) < device->sm_count)
        along /= 2;
    c->tile_r = c->short_x ? along : side;
    c->tile_c = c->short_x ? side : along;
    const int turns = narrow_turns(p, c);
    c->padded = c->short_x;
    c->padded = c->short_x && narrow_turns(p, c) < turns;
    c->prefetch = permute_pays_prefetch(transpose_tiles(p, c->tile_r, c->tile_c), device);
    if (!device->has_tma) // last: a forced config wants the rest
        FAIL(CKL_UNSUPPORTED, "%s narrow: it is chosen on Hopper alone, where it was measured", p->op);
    return CKL_OK;
}

/* That tile, and shorter ones. */
static bool candidate_narrow(const void *problem, const ckl_device_info *device, int i, void *config)
{
    transpose_narrow_config *c = config;
    if (choose_narrow(problem, device, config) != CKL_OK)
        return false;
    int *along = c->short_x ? &c->tile_r : &c->tile_c;
    *along >>= i;
    // shorter tiles are more CTAs: those of two kernels are to fit
    c->prefetch = permute_pays_prefetch((i ? 2 : 1) * transpose_tiles(problem, c->tile_r, c->tile_c), device);
    return *along >= ALONG_MIN;
}

static ckl_status admit_narrow(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_narrow_config *c = config;
    const permute_matrix *m = &p->matrix;
    TRY(transpose_check_tiles(p, "narrow", c->bytes, c->outer, c->tile_r, c->tile_c));
    TRY(check_short_side(p));
    if (c->short_x ? !is_short(m, true) || m->cols > c->tile_c : !is_short(m, false) || m->rows > c->tile_r)
        FAIL(CKL_INVALID, "%s narrow: short_x=%d tile %dx%d do not fit the short side of %" PRId64 "x%" PRId64, p->op,
             c->short_x, c->tile_r, c->tile_c, m->rows, m->cols);
    TRY(transpose_check_power(p, "narrow", c->short_x ? "tile_r" : "tile_c", c->short_x ? c->tile_r : c->tile_c,
                              32 / p->bytes, ALONG_MAX));
    if (c->padded && !c->short_x)
        FAIL(CKL_INVALID, "%s narrow: padded=1 is for short rows of x", p->op);
    return transpose_check_memory(p, "narrow", smem_bytes_of(c), device);
}

static plan_cost cost_narrow(const void *problem, const ckl_device_info *device, const void *config)
{
    const double NO_REDUCTION = 1250;
    static const double of_bytes[] = { [1] = 90, [2] = 70, [4] = 60, [8] = 30 };
    const transpose_narrow_config *c = config;
    const bool by_parts = !c->short_x && c->bytes < WORD_BYTES; // whole words of y are made of several runs of x
    const transpose_tiling t = { .rows = c->tile_r,
                                 .cols = c->tile_c,
                                 .threads = PERMUTE_THREADS,
                                 .smem_bytes = smem_bytes_of(c),
                                 .rate = by_parts ? 0.95 : 1.01,
                                 .wait = TRANSPOSE_TILE_WAIT * c->tile_r * c->tile_c * c->bytes - NO_REDUCTION -
                                         (c->prefetch ? TRANSPOSE_EARLIER : 0),
                                 .of_bytes = of_bytes[c->bytes],
                                 .cut_x = !c->short_x,
                                 .turns = narrow_turns(problem, c) / 2 };
    return transpose_tiling_cost(problem, &t, device);
}

static ckl_status launch_narrow(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_narrow_config *c = plan->config;
    return transpose_launch(plan, 0, args, c->tile_r, c->tile_c, stream);
}

static const field narrow_fields[] = { NARROW_CONFIG(FIELD_ROW, transpose_narrow_config) };

const implementation transpose_narrow_implementation = {
    IMPLEMENTATION_PARTS(transpose, narrow),
    .summary = "matrices with a short side without gaps: whole runs of memory on both sides",
    .candidate = candidate_narrow,
    .is_trusted = plan_trusts_all,
    .cost = cost_narrow,
    .rivals = { &permute_boxes_implementation, &permute_gather_implementation },
    .params = &transpose_param_list,
};
