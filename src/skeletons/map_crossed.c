/*
 * map_crossed.c - inputs that are contiguous along another dimension than the output: a CTA takes MAP_CROSS_TILE
 * elements of the innermost dimension and cross_rows of theirs, loads them along that one into shared memory, and reads
 * them along the output's.
 */
#include "skeletons/map_unit.h"

enum { WORD_BYTES = 4 };

/* The tile in shared memory */

/* The columns of a tile that its threads load in whole turns: of pairs two by a thread. */
static int tile_columns(const map *m, int i)
{
    const map_config *c = &m->k->config;
    const int each = map_has_pairs(m->k, i) ? 2 : 1;
    return (int)round_up(MAP_CROSS_TILE + m->tile.margin, c->threads / (c->cross_rows / each) * each);
}

/* Rows of a tile in shared memory are an odd number of words apart, so neighbouring rows start in different banks. */
static int tile_pitch_bytes(const map *m, int i)
{
    return tile_columns(m, i) * map_element_bytes(m, i) + WORD_BYTES;
}

static val tile_address(const map *m, int i, val row, val column)
{
    val offset = add(mul(row, imm(tile_pitch_bytes(m, i))), mul(column, imm(map_element_bytes(m, i))));
    return add(smem_address(m->tile.offset[i]), offset);
}

/* Elements of row `row` of an operand's tile, from `column` on. */
static tensor tile_vector(const map *m, int i, val row, val column, int width)
{
    return smem_view(tile_address(m, i, row, column), m->k->dtype[i], compact(leaf(width))); // (VEC)
}

/* Loads them. Behind a margin they begin anywhere in a word: a permute makes each word of the two that hold it. */
packed map_read_crossed(const map *m, int i, val row, val column, int width)
{
    enum { IN_PLACE = 0x3210, NEXT = 0x1111 }; // bytes of two words
    tensor sX = tile_vector(m, i, row, column, width);
    const int bytes = map_element_bytes(m, i), words = width * bytes / WORD_BYTES;
    if (!m->tile.margin || width == 1 || bytes >= WORD_BYTES)
        return load_packed(sX, (int)min_i64(WORD_BYTES, width * bytes));
    packed p = packed_registers(m->k->dtype[i], width);
    val past = bit_and(sX.address, imm(WORD_BYTES - 1)), selector = add(imm(IN_PLACE), mul(past, imm(NEXT)));
    val start = sub(sX.address, past), word[MAP_CROSS_TILE];
    for (int w = 0; w <= words; w++) { // the last one is that of the last byte
        val at_word = w < words ? imm(w * WORD_BYTES) : bit_and(add(past, imm(width * bytes - 1)), imm(-WORD_BYTES));
        word[w] = bitcast(U32, at(smem_view(add(start, at_word), I32, compact(leaf(1))), 0));
    }
    for (int w = 0; w < words; w++)
        set(p.rWords, w, bitcast(I32, permute_bytes(word[w], word[w + 1], selector)));
    return p;
}

/* The tile of a CTA */

/* The first coordinates of this CTA's tile. */
static void tile_start(const map *m, val *at)
{
    const map_config *c = &m->k->config;
    val number = convert(U32, cta_x());
    for (int i = 0; i < c->rank; i++) {
        const int d = i == 0 ? c->rank - 1 : i == 1 ? c->cross : c->rank - i - (c->rank - i <= c->cross);
        const int tile = i == 0 ? MAP_CROSS_TILE : i == 1 ? c->cross_rows : 1;
        const int beyond = tile - 1 + (i == 0 ? map_margin(m->k) : 0);
        val size = convert(U32, m->size[d]), count = div(add(size, imm(beyond)), imm(tile));
        val here = i + 1 < c->rank ? rem(number, count) : number;
        at[d] = convert(I64, mul(here, imm(tile)));
        number = div(number, count);
    }
}

/* Elements from `start` to the end of a dimension, or as many as are beyond any tile. */
static val left_in(const map *m, const val *start, int d)
{
    enum { MANY = 1 << 20 };
    return convert(I32, min(sub(convert(I64, m->size[d]), start[d]), imm(MANY)));
}

/* Everything is as seen from the tile: numbers of 32 bits, and operands begin with it. */
static void enter_tile(map *m, int margin)
{
    const int cross = m->k->config.cross, inner = m->k->config.rank - 1, out = m->k->inputs;
    const val *stride = m->operands[out].stride;
    val start[MAP_RANK_MAX], phase = imm_as(U32, 0);
    tile_start(m, start);
    for (int d = 0; d < inner; d++)
        phase = add(phase, mul(convert(U32, start[d]), convert(U32, stride[d])));
    m->tile = (struct crossing){ .margin = margin,
                                 .rows = left_in(m, start, cross),
                                 .columns = left_in(m, start, inner),
                                 .low = convert(I32, max(neg(start[inner]), imm(-margin))),
                                 .phase = phase,
                                 .pitch = convert(U32, stride[cross]) };
    for (int i = 0; i <= out; i++)
        if (map_access_of(m->k, i) != SCALAR)
            m->operands[i].address = map_address_of(m, i, start);
}

/* A vector of a tile, or as many rows of one element. One that does not exist is loaded from a place that does. */
typedef struct tile_place {
    val row, column; // u32, in shared memory: along dimension `cross`, along the innermost one
    val at[MAP_RANK_MAX], exists;
} tile_place;

/* `from`, in memory: the same, or what stands for it. */
static tile_place place_at(const map *m, val row, val column, val from_row, val from_column)
{
    tile_place p = { .row = convert(U32, row), .column = convert(U32, add(column, imm(m->tile.margin))) };
    for (int d = 0; d < m->k->config.rank; d++)
        p.at[d] = imm64(0);
    p.at[m->k->config.cross] = convert(I64, from_row);
    p.at[m->k->config.rank - 1] = convert(I64, from_column);
    return p;
}

/* `height` elements of a column of a crossed operand; both may be beyond the last. */
static tile_place crossed_place(const map *m, val row, val column, int height)
{
    val from = m->tile.margin ? max(column, m->tile.low) : column;
    return place_at(m, row, column, min(row, sub(m->tile.rows, imm(height))), min(from, sub(m->tile.columns, imm(1))));
}

/* By how many elements a row of the output begins behind the last boundary of a sector, or of a longer vector. */
static val phase_of(const map *m, val row)
{
    val phase = add(m->tile.phase, mul(convert(U32, row), m->tile.pitch));
    return convert(I32, bit_and(phase, imm(m->tile.margin - 1)));
}

/*
 * Vector number `number` of a row of the tile. Where rows begin anywhere, all begin at boundaries, and nothing stands
 * for those that do not exist: it would be another CTA's, which may write it.
 */
static tile_place vector_place(const map *m, val row, val number, int width)
{
    val last_row = sub(m->tile.rows, imm(1)), last = sub(m->tile.columns, imm(width)), column = mul(number, imm(width));
    if (m->tile.margin)
        column = sub(column, phase_of(m, row));
    tile_place p = m->tile.margin ? place_at(m, row, column, row, column)
                                  : place_at(m, row, column, min(row, last_row), min(column, last));
    p.exists = logical_and(le(row, last_row), le(column, last));
    if (m->tile.margin)
        p.exists = logical_and(p.exists, ge(column, m->tile.low));
    return p;
}

/*
 * Neighbouring threads load neighbouring rows of `height`, where the operand is contiguous. Of pairs two rows by two
 * columns at a time: a thread loads two words along columns and stores two along rows.
 */
static void load_crossed(const map *m, int i, int height)
{
    enum { LOW_HALVES = 0x5410, HIGH_HALVES = 0x7632 };
    const int rows = m->k->config.cross_rows / height, apart = m->k->config.threads / rows;
    const int count = tile_columns(m, i) / apart;
    val row_first = convert(I32, mul(thread_at(thread(), 0, rows, apart), imm(height))),
        column = convert(I32, mul(thread_at(thread(), 1, rows, apart), imm(height)));
    tile_place *p = describe_alloc((size_t)count, sizeof *p);
    packed *loaded = describe_alloc((size_t)count, sizeof *loaded);
    for (int n = 0; n < count; n++) {
        const int by = n / height * height * apart + n % height - m->tile.margin;
        p[n] = crossed_place(m, row_first, add(column, imm(by)), height);
        loaded[n] = load_packed(map_vector_of(m, i, p[n].at, height), height * map_element_bytes(m, i));
    }
    for (int n = 0; n < count; n++) {
        const int first = n / height * height, row = n % height; // of the columns that are turned together
        tensor sX = tile_vector(m, i, add(p[n].row, imm(row)), p[first].column, height), rX = loaded[n].rWords;
        if (height == 2) {
            val low = bitcast(U32, at(loaded[first].rWords, 0)), high = bitcast(U32, at(loaded[first + 1].rWords, 0));
            rX = fragment(I32, compact(leaf(1))); // (1)
            set(rX, 0, bitcast(I32, permute_bytes(low, high, imm(row ? HIGH_HALVES : LOW_HALVES))));
            sX = smem_view(sX.address, I32, compact(leaf(1))); // (1)
        }
        copy(rX, sX, 0);
    }
}

/* The vectors of a tile that a thread takes at once: rows of the tile `apart` from each other. */
typedef struct tile_batch {
    int count;
    map_unit *all;
} tile_batch;

/* Loads a thread's vectors from its number `first` on, but for crossed operands. */
static tile_batch load_batch(const map *m, val first, int count, int apart, int width)
{
    const int row_threads = MAP_CROSS_TILE / width;
    val row = convert(I32, thread_at(thread(), 1, row_threads, apart)),
        number = convert(I32, thread_at(thread(), 0, row_threads, apart));
    tile_batch b = { .count = count, .all = describe_alloc((size_t)count, sizeof *b.all) };
    row = add(row, mul(first, imm(apart)));
    for (int n = 0; n < count; n++) {
        const tile_place p = vector_place(m, add(row, imm(n * apart)), number, width);
        b.all[n] = map_load_unit(m, imm(0), p.at, p.exists, width);
        b.all[n].row = p.row;
        b.all[n].column = p.column;
        b.all[n].exists = p.exists;
    }
    return b;
}

static void finish_batch(const map *m, const tile_batch *b, int width)
{
    for (int n = 0; n < b->count; n++)
        IF(b->all[n].exists)
            map_finish_unit(m, &b->all[n], width);
}

/* The elements before a row's first boundary of vectors and behind the last, those that lie in this tile: singly. */
static void finish_edges(const map *m)
{
    const map_config *c = &m->k->config;
    const int each = 2 * c->vec;
    val is_first = eq(m->tile.low, imm(0)), is_last = lt(m->tile.columns, imm(MAP_CROSS_TILE));
    IF(logical_or(is_first, is_last))
        LOOP(turn, imm((int)ceil_div((int64_t)c->cross_rows * each, c->threads))) {
            val number = convert(I32, add(thread(), mul(turn, imm(c->threads))));
            val row = div(number, imm(each)), e = rem(number, imm(each)), phase = phase_of(m, row);
            val tail = sub(m->tile.columns, bit_and(add(m->tile.columns, phase), imm(c->vec - 1)));
            val head = bit_and(sub(imm(0), phase), imm(c->vec - 1)), is_head = lt(e, imm(c->vec));
            val column = select(is_head, e, add(tail, sub(e, imm(c->vec)))), here = add(column, phase);
            val limit = select(is_head, select(is_first, head, imm_as(I32, 0)), m->tile.columns);
            val exists = logical_and(lt(column, limit), lt(row, min(m->tile.rows, imm(c->cross_rows))));
            IF(logical_and(exists, logical_and(ge(here, imm(0)), lt(here, imm(MAP_CROSS_TILE))))) {
                const tile_place p = place_at(m, row, column, row, column);
                map_unit u = map_load_unit(m, imm(0), p.at, yes(), 1);
                u.row = p.row;
                u.column = p.column;
                map_finish_unit(m, &u, 1);
            }
        }
}

/* The first vectors of the others are on their way while crossed operands come to shared memory. */
void map_crossed_tile(map *m, int kernel)
{
    enum { VECTORS = 4, ELEMENTS = 8 }; // at once
    const map_kernel *k = m->k;
    const int height = k->config.cross_rows;
    const int width = kernel == 0 ? k->config.vec : 1, apart = k->config.threads * width / MAP_CROSS_TILE;
    const int at_once = (int)min_i64(ceil_div(height, apart), width > 1 ? VECTORS : ELEMENTS), rows = at_once * apart;
    enter_tile(m, kernel == 0 ? map_margin(k) : 0);
    if (kernel != 0 && map_margin(k) > 0) // tiles are counted with a margin: one may have no columns
        IF(le(m->tile.columns, imm(0)))
            exit_thread();
    launch_dependents();
    grid_wait();
    for (int i = 0; i < k->inputs; i++) {
        if (map_access_of(k, i) != CROSSED)
            continue;
        m->tile.offset[i] = smem_alloc("crossed", (int64_t)height * tile_pitch_bytes(m, i), 16);
        load_crossed(m, i, kernel == 0 && map_has_pairs(k, i) ? 2 : 1);
    }
    const tile_batch first = load_batch(m, imm(0), at_once, apart, width);
    cta_sync();
    finish_batch(m, &first, width);
    if (m->tile.margin)
        finish_edges(m);
    if (rows >= height)
        return;
    LOOP_FROM(n, imm(1), div(add(min(m->tile.rows, imm(height)), imm(rows - 1)), imm(rows)), imm(1)) {
        const tile_batch next = load_batch(m, mul(n, imm(at_once)), at_once, apart, width);
        finish_batch(m, &next, width);
    }
}
