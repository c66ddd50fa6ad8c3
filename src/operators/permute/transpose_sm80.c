/*
 * transpose_sm80.c - any alignment, any GPU from sm_80 on: a tile goes through shared memory and is written in words of 4
 * bytes, whatever the element (8-byte elements are words themselves).
 *
 * Rows may start anywhere. A row of x is copied by cp.async in the aligned chunks that it touches, so in shared memory it
 * keeps its phase, the bytes before it in its first chunk. Each row of y takes a window of columns of its own, from a multiple
 * of `align` bytes of memory to one: sectors are written whole, and only the first and the last tile of a row meet its ragged
 * ends. Windows reach up to `align` bytes past the tile, so that many more rows of x are brought.
 *
 * Phases repeat every PERIOD rows of x. Row r of the tile lies in slot r/PERIOD of part r%PERIOD. The 32 lanes of a warp read
 * rows E apart, E being the elements of a word. With chunks of a word they find neighbouring slots, of an odd number of words,
 * and so 32 banks. With longer chunks the phases must differ too: they do where a row is an odd number of words away from
 * the one E rows before.
 */
#include "operators/permute/transpose_place.h"

enum {
    COPIES_AT_ONCE = 4, // of a thread, between two looks at a loop's end
    ROWS_AT_ONCE = 4,   // of y a thread collects before it stores them: loads of shared memory in flight
};

typedef struct kernel {
    const transpose_sm80_config *cfg;
    ckl_dtype type, word_type;
    int word, per_word; // bytes; elements
    sm80_tile shape;
    int classes; // rows of y until the alignment repeats, elements of `align`
    int warps;
    val tile; // shared address
    place place;
    val x, y;                  // addresses of the tile
    val rows, cols, row_bytes; // inside x: rows from the tile's first on, columns of the tile, u32
} kernel;

sm80_tile transpose_sm80_tile(const transpose_sm80_config *c)
{
    int period = c->chunk > c->bytes ? c->chunk / c->bytes : 1;
    int rows = (int)round_up(c->tile_r + c->align / c->bytes - 1, period);
    int chunks = c->tile_c * c->bytes / c->chunk + (c->chunk > c->bytes);
    return (sm80_tile){ .rows = rows, .period = period, .chunks = chunks | 1 };
}

int64_t transpose_sm80_smem_bytes(const transpose_sm80_config *c)
{
    sm80_tile tile = transpose_sm80_tile(c);
    return (int64_t)tile.rows * tile.chunks * c->chunk;
}

/* The offset of a row in shared memory; a multiple of the chunk. */
static val slot_offset(const kernel *k, val r)
{
    int slot = k->shape.chunks * k->cfg->chunk, part = k->shape.rows / k->shape.period * slot;
    return add(mul(rem(r, imm(k->shape.period)), imm(part)), mul(div(r, imm(k->shape.period)), imm(slot)));
}

/* Bytes by which row number `row` exceeds a multiple of `unit` bytes; 32 bits are enough to know. */
static val phase_of(val address, val pitch, val row, int unit)
{
    return bit_and(add(convert(U32, address), mul(row, convert(U32, pitch))), imm(unit - 1));
}

/* Groups of threads copy rows, a chunk each. What is outside x becomes 0. */
static void load_rows(const kernel *k)
{
    int chunk = k->cfg->chunk, chunks = k->shape.chunks, at_once = k->cfg->threads / chunks;
    val first = div(thread(), imm(chunks)), ahead = mul(rem(thread(), imm(chunks)), imm(chunk));
    val from = variable(U64, place_address(k->x, first, k->place.ldx, ahead, imm(1)));
    val to = add(k->tile, ahead), rest = convert(I32, sub(k->row_bytes, ahead)); // of a row that begins with a chunk
    val step = convert(U64, mul(k->place.ldx, imm(at_once)));
    val past = select(lt(first, imm(at_once)), imm_as(U32, k->shape.rows), imm(0));
    LOOP_FROM(done, imm_as(U32, 0), imm(k->shape.rows), imm(at_once * COPIES_AT_ONCE))
    {
        for (int n = 0; n < COPIES_AT_ONCE; n++) {
            val row = add(add(first, done), imm(n * at_once)), phase = bit_and(convert(I32, from), imm(chunk - 1));
            val valid = select(lt(row, k->rows), min(max(add(rest, phase), imm(0)), imm(chunk)), imm(0));
            IF(lt(row, past))
                cp_async(add(to, slot_offset(k, row)), bit_and(from, imm_as(U64, -chunk)), chunk, convert(U32, valid));
            assign(from, add(from, step));
        }
    }
}

/* The shared address of element r of column 0 of the tile. */
static val element_address(const kernel *k, val r)
{
    return add(add(k->tile, slot_offset(k, r)), phase_of(k->x, k->place.ldx, r, k->cfg->chunk));
}

/* Elements of row c of y before its first window. */
static val head_of(const kernel *k, val c)
{
    val phase = phase_of(k->y, k->place.ldy, c, k->cfg->align);
    return rem(div(sub(imm(2 * k->cfg->align), phase), imm(k->cfg->bytes)), imm(k->classes));
}

/* Rows of y whose windows begin at the same element of the tile, `apart` rows from each other. */
typedef struct row_class {
    val row, head; // the first; elements before its window
    val from[4];   // element e of this lane's first word
    val to;        // where that word goes; moves on with the rows
    int count, apart;
} row_class;

static row_class class_at(const kernel *k, val row, int count, int apart)
{
    row_class class = { .row = row, .head = head_of(k, row), .count = count, .apart = apart };
    int words = k->cfg->tile_r / k->per_word;
    val word = words < 32 ? rem(lane(), imm(words)) : lane(), r = add(class.head, mul(word, imm(k->per_word)));
    for (int e = 0; e < k->per_word; e++)
        class.from[e] = add(element_address(k, add(r, imm(e))), mul(row, imm(k->cfg->bytes)));
    class.to = place_address(k->y, row, k->place.ldy, r, imm(k->cfg->bytes));
    return class;
}

/* Word number lane + 32 * j of `count` rows of a class, from number n of them on. */
static void collect_words(const kernel *k, const row_class *class, int n, int j, int count, val *words)
{
    int slot = k->shape.chunks * k->cfg->chunk, down = 32 * j * k->per_word / k->shape.period * slot; // whole periods
    tensor rows[4]; // element e of each row's word
    for (int e = 0; e < k->per_word; e++) {
        val first = add(class->from[e], imm(down + n * class->apart * k->cfg->bytes));
        tensor sColumn = smem_view(first, k->type, make_layout(leaf(count), leaf(class->apart))); // (ROWS)
        rows[e] = fragment_like(sColumn, k->type);
        copy(sColumn, rows[e], k->cfg->bytes);
    }
    for (int i = 0; i < count; i++) {
        val elements[4];
        for (int e = 0; e < k->per_word; e++)
            elements[e] = at(rows[e], i);
        words[i] = bitcast(k->word_type, word_of_elements(k->per_word, elements));
    }
}

/* ROWS_AT_ONCE rows of a class, or what is left, from number n of them on; step is between them. */
static void store_rows(const kernel *k, row_class *class, int n, val step)
{
    int words = k->cfg->tile_r / k->per_word, count = (int)min_i64(class->count - n, ROWS_AT_ONCE);
    val to[ROWS_AT_ONCE], in_matrix[ROWS_AT_ONCE], collected[ROWS_AT_ONCE];
    for (int i = 0; i < count; i++, class->to = add(class->to, step)) {
        to[i] = class->to;
        in_matrix[i] = lt(add(class->row, imm((n + i) * class->apart)), k->cols);
    }
    for (int j = 0; j < ceil_div(words, 32); j++) {
        val past = add(class->head, mul(add(lane(), imm(32 * j + 1)), imm(k->per_word))), inside = ge(k->rows, past);
        if (words < 32)
            inside = logical_and(inside, lt(lane(), imm(words)));
        collect_words(k, class, n, j, count, collected);
        for (int i = 0; i < count; i++)
            IF(logical_and(inside, in_matrix[i]))
                ir_store(IR_GLOBAL, IR_CACHE_DEFAULT, k->word_type, 1, to[i], (int64_t)32 * j * k->word, &collected[i]);
    }
}

/* The windows of all rows. Warps share the classes, or the rows of a class where there are more warps than classes. */
static void store_windows(const kernel *k)
{
    int abreast = (int)max_i64(k->warps, k->classes); // rows, none of which are `abreast` apart
    val step = convert(U64, mul(k->place.ldy, imm(abreast)));
    for (int first = 0; first < abreast; first += k->warps) {
        row_class class = class_at(k, add(warp(), imm(first)), k->cfg->tile_c / abreast, abreast);
        for (int n = 0; n < class.count; n += ROWS_AT_ONCE)
            store_rows(k, &class, n, step);
    }
}

/* Element r of row c of y by itself, where that is one of the matrix. */
static void store_element(const kernel *k, val c, val r, val wanted)
{
    IF(logical_and(wanted, logical_and(lt(r, k->rows), lt(c, k->cols)))) {
        val from = add(element_address(k, r), mul(c, imm(k->cfg->bytes)));
        val to = place_address(k->y, c, k->place.ldy, r, imm(k->cfg->bytes));
        set(gmem_tensor(to, k->type, compact(leaf(1))), 0, at(smem_view(from, k->type, compact(leaf(1))), 0));
    }
}

/* What windows leave of the rows of y in the first tile: what is before them. */
static void store_heads(const kernel *k)
{
    for (int i = 0; i < k->cfg->tile_c * k->classes; i += k->cfg->threads) {
        val number = add(thread(), imm(i)), c = div(number, imm(k->classes)), r = rem(number, imm(k->classes));
        store_element(k, c, r, lt(r, head_of(k, c)));
    }
}

/* And in the last: the elements behind the last whole word. */
static void store_tails(const kernel *k)
{
    for (int i = 0; i < k->cfg->tile_c * k->per_word; i += k->cfg->threads) {
        val number = add(thread(), imm(i)), c = div(number, imm(k->per_word)), head = head_of(k, c);
        val body = bit_and(sub(max(k->rows, head), head), imm(-k->per_word)); // elements in whole words
        val r = add(add(head, body), rem(number, imm(k->per_word)));
        store_element(k, c, r, lt(body, imm(k->cfg->tile_r)));
    }
}

void transpose_sm80(const void *config, int part)
{
    const transpose_sm80_config *cfg = config;
    (void)part;
    launch_bounds(cfg->threads, cfg->ctas_per_sm);
    int word = sm80_word_bytes(cfg->bytes);
    kernel k = { .cfg = cfg, .type = raw_type(cfg->bytes), .word_type = raw_type(word), .word = word };
    k.per_word = word / cfg->bytes;
    k.shape = transpose_sm80_tile(cfg);
    k.classes = cfg->align / cfg->bytes;
    k.warps = cfg->threads / 32;
    k.tile = smem_address(smem_alloc("tile", transpose_sm80_smem_bytes(cfg), 16));
    k.place = place_by_address(cfg->outer, cfg->tile_r, cfg->tile_c);
    k.x = place_address(k.place.x, k.place.row, k.place.ldx, k.place.col, imm(cfg->bytes));
    k.y = place_address(k.place.y, k.place.col, k.place.ldy, k.place.row, imm(cfg->bytes));
    k.rows = sub(k.place.rows, k.place.row);
    k.cols = min(sub(k.place.cols, k.place.col), imm(cfg->tile_c));
    k.row_bytes = mul(k.cols, imm(cfg->bytes));

    grid_wait(); // what is above overlaps the end of the kernel before, where the target knows how
    launch_dependents();
    load_rows(&k);
    cp_async_commit();
    cp_async_wait(0);
    cta_sync();
    store_windows(&k);
    if (k.classes == 1)
        return;
    IF(eq(k.place.row, imm(0)))
        store_heads(&k);
    IF(lt(k.rows, imm(cfg->tile_r + k.classes)))
        store_tails(&k);
}
