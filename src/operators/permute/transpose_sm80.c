/*
 * transpose_sm80.c - any alignment, any GPU from sm_80 on: a tile goes through shared memory and is written in words of
 * 4 bytes, whatever the element (8-byte elements are words themselves).
 *
 * Rows may start anywhere. A row of x is copied by cp.async in the aligned chunks that it touches, so in shared memory
 * it keeps its phase, the bytes before it in its first chunk. Each row of y takes a window of columns of its own, from
 * a multiple of `align` bytes of memory to one: sectors are written whole, and only the first and the last tile of a
 * row meet its ragged ends. Windows reach up to `align` bytes past the tile, so the tile has that many more rows of x.
 *
 * Phases repeat every PERIOD rows of x. Row r of the tile is row r/PERIOD of group r%PERIOD. A word has E elements, and
 * the 32 lanes of a warp read every E-th row of x. They meet 32 banks where the phases of these differ, that is where
 * every E-th row of x is an odd number of words from the next.
 *
 * Where all rows of x have the same phase, every word of a column is in one of eight banks. There eight lanes go along
 * a row of y, the other groups of eight take columns a word further each (`lanes`), and a group has the rows of x of
 * one element of words.
 *
 * Lanes and addresses are computed by hand: the phase of a row and the window of a row of y depend on the row's
 * address, so no layout gives the distance from one row to the next.
 */

#include "operators/permute/transpose_plan.h"

enum {
    WARP = 32,
    SECTOR_BYTES = 32,
    CHUNK = PERMUTE_CHUNK_BYTES,
    COPIES_AT_ONCE = 4, // of a thread in an iteration
    ROWS_AT_ONCE = 4,   // of y that a thread loads before it stores them: loads of shared memory in flight
};

/* The tile in shared memory: `period` groups of rows, each row of so many chunks. */
typedef struct smem_tile {
    int rows, period, chunks;
} smem_tile;

typedef struct sm80 {
    const transpose_sm80_config *cfg;
    ckl_dtype type, word_type;
    int word, word_elements; // bytes; elements
    smem_tile shape;
    int classes; // rows of y until the alignment repeats, elements of `align`
    int warps;
    val smem; // shared address
    transpose_tile tile;
    val x, y;                  // addresses of the tile
    val rows, cols, row_bytes; // inside x: rows from the tile's first on, columns of the tile, u32
} sm80;

static smem_tile smem_tile_of(const transpose_sm80_config *c)
{
    const int word_elements = permute_word_bytes(c->bytes) / c->bytes;
    const int period = c->lanes < WARP ? word_elements : CHUNK / c->bytes;
    int rows = (int)round_up(c->tile_r + c->align / c->bytes - 1, period);
    const int chunks = c->tile_c * c->bytes / CHUNK + 1;
    return (smem_tile){ .rows = rows, .period = period, .chunks = chunks | 1 };
}

static int64_t smem_bytes_of(const transpose_sm80_config *c)
{
    smem_tile tile = smem_tile_of(c);
    return (int64_t)tile.rows * tile.chunks * CHUNK;
}

/* Bytes of a row in shared memory. */
static int row_bytes_of(const sm80 *k)
{
    return k->shape.chunks * CHUNK;
}

/* The offset of a row in shared memory; a multiple of the chunk. */
static val row_offset(const sm80 *k, val r)
{
    int row = row_bytes_of(k), group = k->shape.rows / k->shape.period * row;
    return add(mul(rem(r, imm(k->shape.period)), imm(group)), mul(div(r, imm(k->shape.period)), imm(row)));
}

/* Bytes by which row number `row` exceeds a multiple of `unit` bytes; 32 bits are enough to know. */
static val phase_of(val address, val ld, val row, int unit)
{
    return bit_and(add(convert(U32, address), mul(row, convert(U32, ld))), imm(unit - 1));
}

/* Groups of threads copy rows, a chunk each. What is outside x becomes 0. */
static void load_rows(const sm80 *k)
{
    const int chunks = k->shape.chunks, at_once = PERMUTE_THREADS / chunks;
    val first = thread_at(thread(), 1, chunks, at_once),
        offset = mul(thread_at(thread(), 0, chunks, at_once), imm(CHUNK));
    val from = variable(U64, transpose_address(k->x, first, k->tile.ldx, offset, imm(1)));
    val to = add(k->smem, offset), rest = convert(I32, sub(k->row_bytes, offset)); // of a row that begins with a chunk
    val step = convert(U64, mul(k->tile.ldx, imm(at_once)));
    val past = select(lt(first, imm(at_once)), imm_as(U32, k->shape.rows), imm(0));
    LOOP_FROM(done, imm_as(U32, 0), imm(k->shape.rows), imm(at_once * COPIES_AT_ONCE)) {
        for (int n = 0; n < COPIES_AT_ONCE; n++) {
            val row = add(add(first, done), imm(n * at_once)), phase = bit_and(convert(I32, from), imm(CHUNK - 1));
            val valid = select(lt(row, k->rows), min(max(add(rest, phase), imm(0)), imm(CHUNK)), imm(0));
            IF(lt(row, past))
                cp_async(add(to, row_offset(k, row)), bit_and(from, imm_as(U64, -CHUNK)), CHUNK, convert(U32, valid));
            assign(from, add(from, step));
        }
    }
}

/* The shared address of element r of column 0 of the tile. */
static val element_address(const sm80 *k, val r)
{
    return add(add(k->smem, row_offset(k, r)), phase_of(k->x, k->tile.ldx, r, CHUNK));
}

/* Elements of row c of y before its first window. */
static val head_of(const sm80 *k, val c)
{
    val phase = phase_of(k->y, k->tile.ldy, c, k->cfg->align);
    return rem(div(sub(imm(2 * k->cfg->align), phase), imm(k->cfg->bytes)), imm(k->classes));
}

/* Every `stride`-th row of y: their windows begin at the same element of the tile. */
typedef struct row_class {
    val row, head; // the first; elements before its window
    val from[4];   // shared address of element e of this lane's first word
    val to;        // global address of that word; moves on with the rows
    int count, stride;
} row_class;

/* Words of a row of y that lanes store at once. */
static int words_at_once(const sm80 *k)
{
    return (int)min_i64(k->cfg->lanes, k->cfg->tile_r / k->word_elements);
}

static row_class class_at(const sm80 *k, val row, int count, int stride)
{
    row_class class = { .row = row, .head = head_of(k, row), .count = count, .stride = stride };
    const int words = words_at_once(k);
    val word = words < WARP ? thread_at(lane(), 0, words, WARP / words) : lane(),
        r = add(class.head, mul(word, imm(k->word_elements)));
    for (int e = 0; e < k->word_elements; e++)
        class.from[e] = add(element_address(k, add(r, imm(e))), mul(row, imm(k->cfg->bytes)));
    class.to = transpose_address(k->y, row, k->tile.ldy, r, imm(k->cfg->bytes));
    return class;
}

/* Word number lane + lanes * j of `count` rows of a class, from number n of them on. */
static void load_words(const sm80 *k, const row_class *class, int n, int j, int count, val *words)
{
    int down = k->cfg->lanes * j * k->word_elements / k->shape.period * row_bytes_of(k); // the rows of all phases
    tensor rows[4];                                                                      // element e of each row's word
    for (int e = 0; e < k->word_elements; e++) {
        val first = add(class->from[e], imm(down + n * class->stride * k->cfg->bytes));
        tensor sColumn = smem_view(first, k->type, make_layout(leaf(count), leaf(class->stride))); // (ROWS)
        rows[e] = fragment_like(sColumn, k->type);
        copy(sColumn, rows[e], k->cfg->bytes);
    }
    for (int i = 0; i < count; i++) {
        val elements[4];
        for (int e = 0; e < k->word_elements; e++)
            elements[e] = at(rows[e], i);
        words[i] = bitcast(k->word_type, transpose_word(k->word_elements, elements));
    }
}

/* ROWS_AT_ONCE rows of a class, or what is left, from number n of them on; step is between them. */
static void store_rows(const sm80 *k, row_class *class, int n, val step)
{
    const int words = k->cfg->tile_r / k->word_elements, at_once = words_at_once(k), lanes = k->cfg->lanes;
    const int count = (int)min_i64(class->count - n, ROWS_AT_ONCE);
    val word = lanes < WARP ? thread_at(lane(), 0, lanes, WARP / lanes) : lane();
    val to[ROWS_AT_ONCE], in_matrix[ROWS_AT_ONCE], words_of_rows[ROWS_AT_ONCE];
    for (int i = 0; i < count; i++, class->to = add(class->to, step)) {
        to[i] = class->to;
        in_matrix[i] = lt(add(class->row, imm((n + i) * class->stride)), k->cols);
    }
    for (int j = 0; j < ceil_div(words, lanes); j++) {
        val past = add(class->head, mul(add(word, imm(lanes * j + 1)), imm(k->word_elements))),
            inside = ge(k->rows, past);
        if (at_once < lanes)
            inside = logical_and(inside, lt(lane(), imm(at_once)));
        load_words(k, class, n, j, count, words_of_rows);
        for (int i = 0; i < count; i++)
            IF(logical_and(inside, in_matrix[i]))
                store_global(k->word_type, to[i], (int64_t)lanes * j * k->word, words_of_rows[i]);
    }
}

/* The windows of all rows. Warps share the classes, or the rows of a class where there are more warps than classes. */
static void store_windows(const sm80 *k)
{
    const int groups = WARP / k->cfg->lanes, at_once = k->warps * groups;
    const int stride = (int)max_i64(at_once, k->classes); // of the rows of a class
    val step = convert(U64, mul(k->tile.ldy, imm(stride))), mine = warp();
    if (groups > 1) { // neighbouring groups, the elements of a word apart
        const int apart = k->word_elements;
        val group = thread_at(lane(), 1, k->cfg->lanes, groups);
        mine = add(add(rem(mine, imm(apart)), mul(div(mine, imm(apart)), imm(apart * groups))), mul(group, imm(apart)));
    }
    for (int first = 0; first < stride; first += at_once) {
        row_class class = class_at(k, add(mine, imm(first)), k->cfg->tile_c / stride, stride);
        for (int n = 0; n < class.count; n += ROWS_AT_ONCE)
            store_rows(k, &class, n, step);
    }
}

/* Stores element r of row c of y, if it is in the matrix. */
static void store_element(const sm80 *k, val c, val r, val wanted)
{
    IF(logical_and(wanted, logical_and(lt(r, k->rows), lt(c, k->cols)))) {
        val from = add(element_address(k, r), mul(c, imm(k->cfg->bytes)));
        val to = transpose_address(k->y, c, k->tile.ldy, r, imm(k->cfg->bytes));
        set(gmem_tensor(to, k->type, compact(leaf(1))), 0, at(smem_view(from, k->type, compact(leaf(1))), 0));
    }
}

/* Stores what windows leave of rows of y in the first tile: the elements before them. */
static void store_heads(const sm80 *k)
{
    for (int i = 0; i < k->cfg->tile_c * k->classes; i += PERMUTE_THREADS) {
        val number = add(thread(), imm(i)), c = div(number, imm(k->classes)), r = rem(number, imm(k->classes));
        store_element(k, c, r, lt(r, head_of(k, c)));
    }
}

/* And in the last tile: the elements after the last whole word. */
static void store_tails(const sm80 *k)
{
    for (int i = 0; i < k->cfg->tile_c * k->word_elements; i += PERMUTE_THREADS) {
        val number = add(thread(), imm(i)), c = div(number, imm(k->word_elements)), head = head_of(k, c);
        val body = bit_and(sub(max(k->rows, head), head), imm(-k->word_elements)); // elements in whole words
        val r = add(add(head, body), rem(number, imm(k->word_elements)));
        store_element(k, c, r, lt(body, imm(k->cfg->tile_r)));
    }
}

void transpose_sm80(const void *config, int kernel)
{
    const transpose_sm80_config *cfg = config;
    (void)kernel;
    launch_bounds(PERMUTE_THREADS, cfg->bytes == 1 ? 4 : 0); // of longer elements 70 registers let three CTAs in
    transpose_values p = params_of(transpose);
    int word = permute_word_bytes(cfg->bytes);
    sm80 k = { .cfg = cfg, .type = transpose_type(cfg->bytes), .word_type = transpose_type(word), .word = word };
    k.word_elements = word / cfg->bytes;
    k.shape = smem_tile_of(cfg);
    k.classes = cfg->align / cfg->bytes;
    k.warps = PERMUTE_THREADS / 32;
    k.smem = smem_address(smem_alloc("tile", smem_bytes_of(cfg), 16));
    k.tile = transpose_tile_by_address(&p, cfg->outer, cfg->tile_r, cfg->tile_c, cfg->across);
    k.x = transpose_address(k.tile.x, k.tile.row, k.tile.ldx, k.tile.col, imm(cfg->bytes));
    k.y = transpose_address(k.tile.y, k.tile.col, k.tile.ldy, k.tile.row, imm(cfg->bytes));
    k.rows = sub(k.tile.rows, k.tile.row);
    k.cols = min(sub(k.tile.cols, k.tile.col), imm(cfg->tile_c));
    k.row_bytes = mul(k.cols, imm(cfg->bytes));

    if (cfg->prefetch)
        transpose_prefetch(&k.tile, cfg->tile_r, cfg->tile_c, cfg->bytes);
    grid_wait(); // what is above overlaps the end of the kernel before
    launch_dependents();
    load_rows(&k);
    cp_async_commit();
    cp_async_wait(0);
    cta_sync();
    store_windows(&k);
    if (k.classes == 1)
        return;
    IF(eq(k.tile.row, imm(0)))
        store_heads(&k);
    IF(lt(k.rows, imm(cfg->tile_r + k.classes)))
        store_tails(&k);
}

/* Choice, limits and launch */

/*
 * Tiles of 32 KB, wide on the side of x; no larger than the matrix. Smaller where tiles would be few: those that are
 * all there at once load before the first stores. 8x3009x9x32 f16 to NCHW takes 12.3 us by 128 columns, 10.3 by 64.
 */
static void choose_tile(const permutation *p, const ckl_device_info *device, transpose_sm80_config *c)
{
    enum { COLUMNS = 64, TILES_OF_SM = 8 };
    c->tile_r = p->bytes == 1 ? 256 : p->bytes == 2 ? 128 : 64;
    c->tile_c = p->bytes == 8 ? 64 : 128;
    while (c->tile_r > 32 && c->tile_r / 2 >= p->matrix.rows)
        c->tile_r /= 2;
    if (c->tile_r > 32 && 10 * round_up(p->matrix.rows, c->tile_r / 2) <= 9 * round_up(p->matrix.rows, c->tile_r))
        c->tile_r /= 2; // 577x58471 u8 25.1 us by tiles of 256 rows, 23.8 by 128
    while (c->tile_c > 32 && c->tile_c / 2 >= p->matrix.cols)
        c->tile_c /= 2;
    while (c->tile_c > 32 && transpose_tiles(p, c->tile_r, c->tile_c) <
                                 (c->tile_c > COLUMNS ? TILES_OF_SM : 1) * (int64_t)device->sm_count)
        c->tile_c /= 2;
}

static ckl_status choose_sm80(const void *problem, const ckl_device_info *device, void *config)
{
    const permutation *p = problem;
    transpose_sm80_config *c = config;
    TRY(transpose_check_sides(p, "sm80", TRANSPOSE_SIDE_BYTES_MIN));
    c->bytes = p->bytes;
    c->outer = p->matrix.outer_count;
    choose_tile(p, device, c);
    c->align = p->matrix.rows > c->tile_r ? 32 : permute_word_bytes(p->bytes);
    // four lanes would read bytes of one bank
    c->lanes = p->bytes == 1 && p->matrix.ldx % 2 == 0 && c->align == 32 ? 8 : 32;
    c->across = transpose_goes_across(p, c->tile_c, device);
    c->prefetch = permute_pays_prefetch(transpose_tiles(p, c->tile_r, c->tile_c), device);
    return CKL_OK;
}

/* That tile, and on Hopper, where their cost was measured, those of fewer columns. */
static bool candidate_sm80(const void *problem, const ckl_device_info *device, int i, void *config)
{
    enum { CANDIDATES = 3, COLUMNS_MIN = 32 };
    transpose_sm80_config *c = config;
    if (i >= CANDIDATES || (i > 0 && !device->has_tma) || choose_sm80(problem, device, config) != CKL_OK)
        return false;
    c->tile_c = (int)max_i64(COLUMNS_MIN, c->tile_c >> i);
    c->across = transpose_goes_across(problem, c->tile_c, device);
    c->prefetch = permute_pays_prefetch(transpose_tiles(problem, c->tile_r, c->tile_c), device);
    return true;
}

static ckl_status admit_sm80(const void *problem, const ckl_device_info *device, const void *config)
{
    const permutation *p = problem;
    const transpose_sm80_config *c = config;
    TRY(transpose_check_power(p, "sm80", "bytes", c->bytes, 1, 8));
    int word = permute_word_bytes(c->bytes);
    TRY(transpose_check_power(p, "sm80", "align", c->align, word, 128));
    TRY(transpose_check_power(p, "sm80", "tile_r", c->tile_r, (int)max_i64(32, c->align / c->bytes), 512));
    TRY(transpose_check_power(p, "sm80", "tile_c", c->tile_c, (int)max_i64(PERMUTE_THREADS / 32, c->align / c->bytes),
                              512));
    TRY(transpose_check_power(p, "sm80", "lanes", c->lanes, 8, 32));
    if (c->lanes < 32 && (c->bytes > 4 || c->tile_c < PERMUTE_THREADS / c->lanes))
        FAIL(CKL_INVALID, "%s sm80: lanes=%d are for words, and tiles of a column for each %d threads", p->op, c->lanes,
             c->lanes);
    if (smem_tile_of(c).chunks > PERMUTE_THREADS)
        FAIL(CKL_INVALID, "%s sm80: %d threads do not cover the chunks of a row", p->op, PERMUTE_THREADS);
    TRY(transpose_check_tiles(p, "sm80", c->bytes, c->outer, c->tile_r, c->tile_c));
    return transpose_check_memory(p, "sm80", smem_bytes_of(c), device);
}

static plan_cost cost_sm80(const void *problem, const ckl_device_info *device, const void *config)
{
    // Instructions of a warp as the emulator counts them, within a tenth: 160 and 47 for each class of rows of y, of 16
    // bytes 162 to 48.
    static const double of_bytes[] = { [1] = 123, [2] = 72, [4] = 57, [8] = 36 }, OF_TILE = 120, OF_CLASS = 36;
    const double NO_REDUCTION = 2000;
    const transpose_sm80_config *c = config;
    const double idle = fmax(1, PERMUTE_WARP * permute_word_bytes(c->bytes) / (double)(c->tile_r * c->bytes)); // lanes
    const int64_t classes = ceil_div(c->align / c->bytes, PERMUTE_THREADS / c->lanes); // of a warp
    const transpose_tiling t = { .rows = c->tile_r,
                                 .cols = c->tile_c,
                                 .threads = PERMUTE_THREADS,
                                 .smem_bytes = smem_bytes_of(c),
                                 .rate = 1,
                                 .wait = TRANSPOSE_TILE_WAIT * c->tile_r * c->tile_c * c->bytes - NO_REDUCTION,
                                 .of_bytes = of_bytes[c->bytes] * idle,
                                 .of_tile = OF_TILE + OF_CLASS * (double)classes,
                                 .cut_x = true,
                                 .cut_y = c->align < SECTOR_BYTES };
    return transpose_tiling_cost(problem, &t, device);
}

static ckl_status launch_sm80(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const transpose_sm80_config *c = plan->config;
    return transpose_launch(plan, 0, args, c->tile_r, c->tile_c, stream);
}

static const field sm80_fields[] = { TRANSPOSE_SM80_CONFIG(FIELD_ROW, transpose_sm80_config) };

const implementation transpose_sm80_implementation = {
    IMPLEMENTATION_PARTS(transpose, sm80),
    .summary = "tiles in shared memory by cp.async, whole words on both sides at any alignment",
    .candidate = candidate_sm80,
    .is_trusted = plan_trusts_all,
    .cost = cost_sm80,
    .rivals = { &permute_boxes_implementation, &permute_gather_implementation },
    .params = &transpose_param_list,
};
