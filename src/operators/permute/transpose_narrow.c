/*
 * transpose_narrow.c - matrices with a short side and no gaps on it: channels that come apart or together, small images.
 *
 * Where rows of x are short (narrow=1), a CTA's rows are one run of memory, which shared memory mirrors; each row of y is a
 * run of its own. Where rows of y are short (narrow=0), rows of x are runs and all of a CTA's y is one. Runs of x come in
 * the aligned chunks of 16 bytes that they touch, each at its phase. Runs of y are cut at multiples of 32 bytes of memory, so
 * that CTAs write whole sectors, and are written in words; only the ends of the matrix are written by elements.
 */
#include "operators/permute/transpose_place.h"

enum { CHUNK_BYTES = 16, SECTOR_BYTES = 32 };

typedef struct kernel {
    const transpose_narrow_config *cfg;
    ckl_dtype type, word_type;
    int per_word;
    int slot; // bytes of a run of x in shared memory
    val tile; // shared address
    place place;
    val x;             // address of the tile
    val size;          // of the short side, u32
    val here;          // of the long side in the tile and past it, as far as the margin
    val factor, shift; // of a division by size
} kernel;

static int margin_of(const transpose_narrow_config *cfg)
{
    return SECTOR_BYTES / cfg->bytes;
}

/* Bytes of one run of x, with its phase. */
static int slot_bytes(const transpose_narrow_config *cfg)
{
    int64_t elements =
        cfg->narrow ? (cfg->tile_r + margin_of(cfg)) * (int64_t)cfg->tile_c : cfg->tile_c + margin_of(cfg);
    return (int)round_up(elements * cfg->bytes + CHUNK_BYTES - 1, CHUNK_BYTES);
}

int64_t transpose_narrow_smem_bytes(const transpose_narrow_config *cfg)
{
    return (int64_t)slot_bytes(cfg) * (cfg->narrow ? 1 : cfg->tile_r);
}

/* Bytes by which a run of x exceeds a multiple of a chunk. */
static val phase_of(const kernel *k, val run)
{
    val address = convert(U32, k->x);
    if (!k->cfg->narrow)
        address = add(address, mul(run, convert(U32, k->place.ldx)));
    return bit_and(address, imm(CHUNK_BYTES - 1));
}

/* All threads share the chunks of all runs. What is outside x becomes 0. */
static void load_runs(const kernel *k)
{
    int chunks = k->slot / CHUNK_BYTES;
    val runs = k->cfg->narrow ? imm_as(U32, 1) : k->size;
    val length = mul(k->here, imm(k->cfg->bytes)), count = mul(runs, imm(chunks));
    if (k->cfg->narrow)
        length = mul(length, k->size);
    LOOP_FROM(n, thread(), count, imm(k->cfg->threads))
    {
        val run = div(n, imm(chunks)), ahead = mul(sub(n, mul(run, imm(chunks))), imm(CHUNK_BYTES));
        val phase = phase_of(k, run), end = add(phase, length);
        val from = place_address(sub(k->x, convert(U64, phase)), run, k->place.ldx, ahead, imm(1));
        IF(lt(ahead, end))
            cp_async(add(k->tile, mul(n, imm(CHUNK_BYTES))), from, CHUNK_BYTES, min(sub(end, ahead), imm(CHUNK_BYTES)));
    }
}

/* A run of y from the tile's first element on. */
typedef struct run {
    val number;
    val address;
    val head; // elements before the first sector
    val left; // elements in the tile and its margin
} run;

static run run_at(const kernel *k, val number)
{
    const transpose_narrow_config *cfg = k->cfg;
    val row = cfg->narrow ? add(k->place.col, number) : k->place.col;
    val column = cfg->narrow ? k->place.row : imm(0);
    run y = { .number = number, .address = place_address(k->place.y, row, k->place.ldy, column, imm(cfg->bytes)) };
    val past = bit_and(sub(imm(0), convert(U32, y.address)), imm(SECTOR_BYTES - 1));
    y.head = div(past, imm(cfg->bytes));
    y.left = cfg->narrow ? k->here : mul(k->here, k->size);
    return y;
}

/* The shared address of element o of a run of y. */
static val element_address(const kernel *k, const run *y, val o)
{
    if (k->cfg->narrow) {
        val ahead = add(mul(o, convert(U32, k->place.ldx)), mul(y->number, imm(k->cfg->bytes)));
        return add(add(k->tile, phase_of(k, imm(0))), ahead);
    }
    val c = shift_right(add(mul_hi(o, k->factor), o), k->shift), r = sub(o, mul(c, k->size));
    return add(add(add(k->tile, mul(r, imm(k->slot))), phase_of(k, r)), mul(c, imm(k->cfg->bytes)));
}

static val element_at(const kernel *k, const run *y, val o)
{
    return at(smem_view(element_address(k, y, o), k->type, compact(leaf(1))), 0);
}

static void store(const kernel *k, const run *y, val o, ckl_dtype type, val x)
{
    val to = add(y->address, convert(U64, mul(o, imm(k->cfg->bytes))));
    set(gmem_tensor(to, type, compact(leaf(1))), 0, x);
}

/* The words of the windows of all runs, from the first sector of each on. */
static void store_words(const kernel *k, val runs)
{
    const transpose_narrow_config *cfg = k->cfg;
    int along = (cfg->narrow ? cfg->tile_r : cfg->tile_c) / k->per_word; // words of a run, or of one of its rows of x
    val words = cfg->narrow ? imm_as(U32, along) : mul(k->size, imm(along));
    run y = run_at(k, imm_as(U32, 0)); // where there are more, found anew for each word
    LOOP_FROM(n, thread(), mul(runs, words), imm(cfg->threads))
    {
        val word = n;
        if (cfg->narrow) {
            y = run_at(k, div(n, imm(along)));
            word = rem(n, imm(along));
        }
        val o = add(y.head, mul(word, imm(k->per_word))), elements[4];
        IF(ge(y.left, add(o, imm(k->per_word)))) {
            for (int e = 0; e < k->per_word; e++)
                elements[e] = element_at(k, &y, add(o, imm(e)));
            store(k, &y, o, k->word_type, word_of_elements(k->per_word, elements));
        }
    }
}

/* In the first tile what is before the first sectors, and in the last what is behind the last words: `per_run` elements. */
static void store_ends(const kernel *k, val runs, int per_run, bool heads)
{
    const transpose_narrow_config *cfg = k->cfg;
    val window = cfg->narrow ? imm(cfg->tile_r) : mul(k->size, imm(cfg->tile_c));
    LOOP_FROM(n, thread(), mul(runs, imm(per_run)), imm(cfg->threads))
    {
        run y = run_at(k, div(n, imm(per_run)));
        val o = rem(n, imm(per_run)), wanted = lt(o, y.head);
        if (!heads) {
            val body = bit_and(sub(max(y.left, y.head), y.head), imm(-k->per_word)); // elements in whole words
            wanted = lt(body, window);
            o = add(add(y.head, body), o);
        }
        IF(logical_and(wanted, lt(o, y.left)))
            store(k, &y, o, k->type, element_at(k, &y, o));
    }
}

void transpose_narrow(const void *config, int part)
{
    const transpose_narrow_config *cfg = config;
    (void)part;
    launch_bounds(cfg->threads, 0);
    int word = sm80_word_bytes(cfg->bytes);
    kernel k = { .cfg = cfg, .type = raw_type(cfg->bytes), .word_type = raw_type(word), .per_word = word / cfg->bytes };
    k.slot = slot_bytes(cfg);
    k.tile = smem_address(smem_alloc("tile", transpose_narrow_smem_bytes(cfg), CHUNK_BYTES));
    k.place = place_by_address(cfg->outer, cfg->tile_r, cfg->tile_c);
    k.factor = param(U32, "factor");
    k.shift = param(U32, "shift");
    k.x = place_address(k.place.x, k.place.row, k.place.ldx, k.place.col, imm(cfg->bytes));
    k.size = cfg->narrow ? k.place.cols : k.place.rows;
    val left = cfg->narrow ? sub(k.place.rows, k.place.row) : sub(k.place.cols, k.place.col);
    int tile = cfg->narrow ? cfg->tile_r : cfg->tile_c;
    k.here = min(left, imm(tile + margin_of(cfg)));
    val first = eq(cfg->narrow ? k.place.row : k.place.col, imm(0)), runs = cfg->narrow ? k.size : imm_as(U32, 1);

    grid_wait(); // what is above overlaps the end of the kernel before, where the target knows how
    launch_dependents();
    load_runs(&k);
    cp_async_commit();
    cp_async_wait(0);
    cta_sync();
    store_words(&k, runs);
    IF(first)
        store_ends(&k, runs, margin_of(cfg), true);
    IF(lt(left, imm(tile + margin_of(cfg))))
        store_ends(&k, runs, k.per_word, false);
}
