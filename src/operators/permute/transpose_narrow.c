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
#include "operators/permute/transpose_tile.h"

enum { CHUNK_BYTES = PERMUTE_CHUNK_BYTES, SECTOR_BYTES = 32 };

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

/* Bytes of one run of x, with its phase. */
static int run_bytes_of(const transpose_narrow_config *cfg)
{
    int64_t elements =
        cfg->short_x ? (cfg->tile_r + margin_of(cfg)) * (int64_t)cfg->tile_c : cfg->tile_c + margin_of(cfg);
    return (int)round_up(elements * cfg->bytes + CHUNK_BYTES - 1, CHUNK_BYTES);
}

int64_t transpose_narrow_smem_bytes(const transpose_narrow_config *cfg)
{
    return (int64_t)run_bytes_of(cfg) * (cfg->short_x ? 1 : cfg->tile_r);
}

/* Bytes by which a run of x exceeds a multiple of a chunk. */
static val phase_of(const narrow *k, val run)
{
    val address = convert(U32, k->x);
    if (!k->cfg->short_x)
        address = add(address, mul(run, convert(U32, k->tile.ldx)));
    return bit_and(address, imm(CHUNK_BYTES - 1));
}

/* All threads share the chunks of all runs: each copies its own, or asks L2 for the lines that begin with them. What is outside x becomes 0. */
static void load_runs(const narrow *k, bool ask)
{
    enum { LINE_BYTES = 128 };
    const int chunks = k->run_bytes / CHUNK_BYTES;
    const bool one = k->cfg->short_x;
    val one_end = div(add(add(phase_of(k, imm(0)), k->length), imm(CHUNK_BYTES - 1)), imm(CHUNK_BYTES));
    LOOP_FROM(n, thread(), one ? one_end : mul(k->runs, imm(chunks)), imm(k->cfg->threads)) {
        val run = one ? imm_as(U32, 0) : div(n, imm(chunks)),
            offset = mul(one ? n : rem(n, imm(chunks)), imm(CHUNK_BYTES));
        val phase = phase_of(k, run), end = add(phase, k->length), exists = lt(offset, end);
        val from = transpose_address(sub(k->x, convert(U64, phase)), run, k->tile.ldx, offset, imm(1));
        if (ask) {
            IF(logical_and(lt(offset, k->length), eq(bit_and(offset, imm(LINE_BYTES - 1)), imm(0))))
                prefetch_L2(add(from, convert(U64, phase))); // not for what is before x
        } else {
            IF(exists)
                cp_async(add(k->smem, mul(n, imm(CHUNK_BYTES))), from, CHUNK_BYTES,
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

/* The shared address of element i of a run of y. */
static val element_address(const narrow *k, const run *y, val i)
{
    if (k->cfg->short_x) {
        val offset = add(mul(i, convert(U32, k->tile.ldx)), mul(y->number, imm(k->cfg->bytes)));
        return add(add(k->smem, phase_of(k, imm(0))), offset);
    }
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
 * Stores the words of all runs along the long side, from the first sector of each on. Threads share a run, and a thread's words lie equally
 * far apart, so that their places cost an addition each.
 */
static void store_long_runs(const narrow *k)
{
    const transpose_narrow_config *cfg = k->cfg;
    const int elements = k->word_elements, words = cfg->tile_r / elements;
    const int along = (int)min_i64(words, cfg->threads), at_once = cfg->threads / along;
    val row = convert(U32, k->tile.ldx), mine = mul(thread_at(thread(), 0, along, at_once), imm(elements));
    LOOP_FROM(n, thread_at(thread(), 1, along, at_once), k->size, imm(at_once)) {
        run y = run_at(k, n);
        val first = add(y.head, mine), from = element_address(k, &y, first);
        val to = add(y.address, convert(U64, mul(first, imm(cfg->bytes))));
        for (int i = 0; i < words; i += along, from = add(from, mul(row, imm(along * elements))))
            IF(ge(y.count, add(first, imm((i + 1) * elements)))) {
                val x[4];
                for (int e = 0; e < elements; e++)
                    x[e] = at(smem_view(add(from, mul(row, imm(e))), k->type, compact(leaf(1))), 0);
                store_global(k->word_type, to, (int64_t)i * elements * cfg->bytes,
                             bitcast(k->word_type, transpose_word(elements, x)));
            }
    }
}

/*
 * Stores the words of the one run of short rows of y. So many threads take part that a thread's next word has elements of the same rows
 * of x, a distance further: their places are found once.
 */
static void store_short_rows(const narrow *k)
{
    const transpose_narrow_config *cfg = k->cfg;
    const int elements = k->word_elements;
    run y = run_at(k, imm_as(U32, 0));
    val period = k->size; // words until one begins with the same row of x
    for (int e = elements; e > 1; e /= 2)
        period = select(eq(bit_and(period, imm(1)), imm(0)), div(period, imm(2)), period);
    val words = mul(div(imm_as(U32, cfg->threads), period), period); // at once
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
    LOOP_FROM(n, thread(), mul(runs, imm(per_run)), imm(cfg->threads)) {
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
    int word = transpose_word_bytes(cfg->bytes);
    narrow k = { .cfg = cfg,
                 .type = transpose_type(cfg->bytes),
                 .word_type = transpose_type(word),
                 .word_elements = word / cfg->bytes,
                 .run_bytes = run_bytes_of(cfg),
                 .factor = p->factor,
                 .shift = p->shift };
    k.smem = smem_address(smem_alloc("tile", transpose_narrow_smem_bytes(cfg), CHUNK_BYTES));
    k.tile = transpose_tile_by_address(p, cfg->outer, cfg->tile_r, cfg->tile_c, false);
    k.x = transpose_address(k.tile.x, k.tile.row, k.tile.ldx, k.tile.col, imm(cfg->bytes));
    k.size = cfg->short_x ? k.tile.cols : k.tile.rows;
    return k;
}

void transpose_narrow(const void *config, int kernel)
{
    const transpose_narrow_config *cfg = config;
    (void)kernel;
    launch_bounds(cfg->threads, 0);
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
