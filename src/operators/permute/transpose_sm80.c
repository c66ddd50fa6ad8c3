/*
 * transpose_sm80.c - any alignment, any GPU from sm_80 on: a tile goes through shared memory in words of 4 bytes, whatever the
 * element (8-byte elements are words themselves).
 *
 * Rows of short elements may start inside a word. A row of x is copied by cp.async in the aligned words that it touches, so in
 * shared memory it keeps its phase, the bytes before it in its first word. A row of y is written in the aligned words that lie
 * inside it, collected element by element from a column of the tile, and its ragged ends element by element.
 *
 * With E elements a word, row r of the tile lies in slot r/E + r%E * R/E: the 32 lanes of a warp, which read rows E apart, find
 * neighbouring slots, of an odd number of words. Their phases are equal, since E rows are a whole number of words. So no bank
 * is asked twice. Each warp takes every WARPS-th row, a multiple of 4, so the phase of its rows never changes.
 */
#include "operators/permute/transpose_place.h"

enum { ROWS_AT_ONCE = 4 }; // of y a thread collects before it stores them: loads of shared memory in flight

typedef struct kernel {
    const transpose_sm80_config *cfg;
    ckl_dtype type, word_type;
    int word, per_word; // bytes; elements
    int pitch;          // of a slot, words
    int warps;
    val tile; // shared address
    place place;
    val x, y;                  // addresses of the tile
    val rows, cols, row_bytes; // of the tile that are inside x, u32
} kernel;

int64_t transpose_sm80_smem_bytes(const transpose_sm80_config *c)
{
    int word = sm80_word_bytes(c->bytes);
    return (int64_t)c->tile_r * (c->tile_c * c->bytes / word + 1) * word;
}

static bool is_word(const kernel *k)
{
    return k->per_word == 1;
}

/* The slot of a row. */
static val slot_of(const kernel *k, val r)
{
    int groups = k->cfg->tile_r / k->per_word;
    return add(div(r, imm(k->per_word)), mul(rem(r, imm(k->per_word)), imm(groups)));
}

/* The address of the slot of a row in shared memory. */
static val slot_address(const kernel *k, val r)
{
    return add(k->tile, mul(slot_of(k, r), imm(k->pitch * k->word)));
}

/* Where row r of the tile begins in x, and row c of its transpose in y. */
static val row_in_x(const kernel *k, val r)
{
    return add(k->x, convert(U64, mul(convert(I64, r), k->place.ldx)));
}

static val row_in_y(const kernel *k, val c)
{
    return add(k->y, convert(U64, mul(convert(I64, c), k->place.ldy)));
}

/* Bytes by which such a row exceeds a multiple of a word; 32 bits are enough to know. */
static val phase_of(const kernel *k, val address, val pitch, val row)
{
    return both(add(convert(U32, address), mul(row, convert(U32, pitch))), imm(k->word - 1));
}

/* How many bytes of word number j of a row are inside x, given where the row's bytes end, from its first word on. */
static val valid_bytes(const kernel *k, val j, val end)
{
    val before = mul(j, imm(k->word));
    return select(lt(before, end), min(sub(end, before), imm(k->word)), imm(0));
}

/* Words side by side: groups of threads copy rows. What is outside x becomes 0. */
static void load_words(const kernel *k)
{
    int words = k->pitch - 1, across = words < 32 ? words : 32, rows_at_once = k->cfg->threads / across;
    val r = div(thread(), imm(across)), j = rem(thread(), imm(across));
    val phase = phase_of(k, k->x, k->place.ldx, r), end = add(phase, k->row_bytes), distance = mul(j, imm(k->word));
    val from = add(sub(row_in_x(k, r), convert(U64, phase)), convert(U64, distance)),
        to = add(slot_address(k, r), distance);
    val step = convert(U64, mul(k->place.ldx, imm(rows_at_once)));
    for (int i = 0; i < k->cfg->tile_r; i += rows_at_once, from = add(from, step)) {
        val inside = lt(add(r, imm(i)), k->rows);
        for (int ahead = 0; ahead < words; ahead += across) {
            val valid = select(inside, valid_bytes(k, add(j, imm(ahead)), end), imm(0));
            int64_t offset = (int64_t)(i / k->per_word * k->pitch + ahead) * k->word;
            ir_cp_async(to, offset, add(from, ir_int(U64, (int64_t)ahead * k->word)), k->word, valid);
        }
    }
}

/* The one more word of every row that a phase costs; threads take slots. */
static void load_last_words(const kernel *k)
{
    int groups = k->cfg->tile_r / k->per_word, last = k->pitch - 1;
    for (int i = 0; i < k->cfg->tile_r; i += k->cfg->threads) {
        val slot = add(thread(), imm(i)),
            r = add(mul(rem(slot, imm(groups)), imm(k->per_word)), div(slot, imm(groups)));
        IF(lt(slot, imm(k->cfg->tile_r))) {
            val phase = phase_of(k, k->x, k->place.ldx, r);
            val valid = select(lt(r, k->rows), valid_bytes(k, imm(last), add(phase, k->row_bytes)), imm(0));
            val from = add(sub(row_in_x(k, r), convert(U64, phase)), ir_int(U64, (int64_t)last * k->word));
            ir_cp_async(slot_address(k, r), (int64_t)last * k->word, from, k->word, valid);
        }
    }
}

/* The shared address of element r of column 0 of the tile. */
static val element_address(const kernel *k, val r)
{
    return add(slot_address(k, r), phase_of(k, k->x, k->place.ldx, r));
}

/* One word of y from its elements, the lowest first. */
static val word_of(const kernel *k, const val *elements)
{
    if (k->per_word == 1)
        return elements[0];
    if (k->per_word == 2)
        return pack(U32, elements[0], elements[1]);
    val low = pack(U32, elements[0], elements[1]), high = pack(U32, elements[2], elements[3]);
    return permute_bytes(low, high, ir_int(U32, 0x6420)); // bytes were widened to 16 bits
}

/* The same word of ROWS_AT_ONCE rows of y, i columns of the tile further on; their elements begin at `from` and go to `to`. */
static void store_words(const kernel *k, const val *from, int i, val inside, val *to)
{
    tensor rows[4]; // element e of each row's word
    layout column = make_layout(leaf(ROWS_AT_ONCE), leaf(k->warps));
    val step = convert(U64, mul(k->place.ldy, imm(k->warps)));
    for (int e = 0; e < k->per_word; e++) {
        tensor sColumn = smem_view(add(from[e], imm(i * k->cfg->bytes)), k->type, column); // (ROWS)
        rows[e] = fragment_like(sColumn, k->type);
        copy(sColumn, rows[e], k->cfg->bytes);
    }
    for (int n = 0; n < ROWS_AT_ONCE; n++, *to = add(*to, step)) {
        val elements[4];
        for (int e = 0; e < k->per_word; e++)
            elements[e] = at(rows[e], n);
        IF(both(inside, lt(add(warp(), imm(i + n * k->warps)), k->cols)))
            set(gmem_tensor(*to, k->word_type, compact(leaf(1))), 0, word_of(k, elements));
    }
}

/* Elements of row c of y before its first whole word. */
static val head_of(const kernel *k, val c)
{
    val phase = phase_of(k, k->y, k->place.ldy, c);
    return rem(div(sub(imm(2 * k->word), phase), imm(k->cfg->bytes)), imm(k->per_word));
}

/* The whole words of all rows: each warp takes every WARPS-th row, each lane the same word of all of them. */
static void store_whole_words(const kernel *k)
{
    val head = is_word(k) ? imm(0) : head_of(k, warp());
    for (int j = 0; j < k->cfg->tile_r / k->per_word; j += 32) {
        val r = add(head, mul(add(lane(), imm(j)), imm(k->per_word))), from[4];
        val inside = ge(k->rows, add(r, imm(k->per_word)));
        val to = add(row_in_y(k, warp()), convert(U64, mul(r, imm(k->cfg->bytes))));
        for (int e = 0; e < k->per_word; e++) {
            val row = rem(add(r, imm(e)), imm(k->cfg->tile_r)); // past the tile: some row in a free bank, not stored
            from[e] = add(element_address(k, row), mul(warp(), imm(k->cfg->bytes)));
        }
        for (int i = 0; i < k->cfg->tile_c; i += ROWS_AT_ONCE * k->warps)
            store_words(k, from, i, inside, &to);
    }
}

/*
 * What whole words leave of a row: `head` elements before the first and fewer than E behind the last. Together they are E
 * where all rows of x are there; ends `first` to first + E - 1 of every row.
 */
static void store_ends(const kernel *k, int first)
{
    int count = k->cfg->tile_c * k->per_word;
    for (int i = 0; i < count; i += k->cfg->threads) {
        val number = add(thread(), imm(i)), c = div(number, imm(k->per_word));
        val head = head_of(k, c), body = both(sub(k->rows, min(head, k->rows)), imm(-k->per_word)); // elements in words
        val end = add(rem(number, imm(k->per_word)), imm(first)), r = select(lt(end, head), end, add(body, end));
        IF(both(both(lt(number, imm(count)), lt(r, k->rows)), lt(c, k->cols))) {
            val from = add(element_address(k, r), mul(c, imm(k->cfg->bytes)));
            val to = add(row_in_y(k, c), convert(U64, mul(r, imm(k->cfg->bytes))));
            set(gmem_tensor(to, k->type, compact(leaf(1))), 0, at(smem_view(from, k->type, compact(leaf(1))), 0));
        }
    }
}

void transpose_sm80(const void *config, int part)
{
    const transpose_sm80_config *cfg = config;
    (void)part;
    ir_current()->threads = cfg->threads;
    ir_current()->ctas_per_sm = cfg->ctas_per_sm;
    int word = sm80_word_bytes(cfg->bytes);
    kernel k = { .cfg = cfg, .type = raw_type(cfg->bytes), .word_type = raw_type(word), .word = word };
    k.per_word = word / cfg->bytes;
    k.pitch = cfg->tile_c / k.per_word + 1;
    k.warps = cfg->threads / 32;
    k.tile = ir_smem_address(ir_smem_alloc("tile", transpose_sm80_smem_bytes(cfg), 16));
    k.place = place_by_address(&(transpose_common){ cfg->bytes, cfg->outer, cfg->group }, cfg->tile_r, cfg->tile_c);
    k.x = place_address(k.place.x, k.place.row, k.place.ldx, k.place.col, imm(cfg->bytes));
    k.y = place_address(k.place.y, k.place.col, k.place.ldy, k.place.row, imm(cfg->bytes));
    k.rows = min(sub(k.place.rows, k.place.row), imm(cfg->tile_r));
    k.cols = min(sub(k.place.cols, k.place.col), imm(cfg->tile_c));
    k.row_bytes = mul(k.cols, imm(cfg->bytes));

    grid_wait(); // what is above overlaps the end of the kernel before, where the target knows how
    grid_launch();
    load_words(&k);
    if (!is_word(&k))
        load_last_words(&k);
    ir_plain(IR_CP_ASYNC_COMMIT, 0, 0);
    ir_plain(IR_CP_ASYNC_WAIT, 0, 0);
    cta_sync();
    store_whole_words(&k);
    if (is_word(&k))
        return;
    store_ends(&k, 0);
    IF(lt(k.rows, imm(cfg->tile_r)))
        store_ends(&k, k.per_word);
}
