/*
 * transpose_sm90.c - one CTA a tile: TMA brings it into swizzled shared memory as boxes of 128-byte rows, the warps write its
 * transpose into a second set of boxes, TMA stores these. Nothing meets a bank conflict, and global memory sees whole lines
 * on both sides. Several CTAs an SM keep loads in flight.
 *
 *   2 bytes      ldmatrix transposes 8x8 elements on the way to registers, stmatrix writes them as rows of y
 *   1 byte       the same with 8x8 pairs of elements; byte permutes weave the pairs of two matrices
 *   4, 8 bytes   a lane reads along a diagonal of its row, so that 32 lanes meet 32 banks when reading and when writing
 */
#include "operators/permute/transpose_place.h"

enum { CHUNK_BYTES = 16, WARP_ROWS = 32, BARRIER_BYTES = 8 };

/* What the phases share. A tile is (R,C); its boxes: (R,SPAN,BOXES) of x, (C,SPAN,BOXES) of y. */
typedef struct kernel {
    const transpose_sm90_config *cfg;
    ckl_dtype type;
    int span; // elements of a row of a box
    tma_copy tmaX, tmaY;
    tensor sX, sY;
    pipeline arrival; // of x, a single stage
    place place;
} kernel;

int64_t transpose_sm90_smem_bytes(const transpose_sm90_config *c)
{
    return 2 * (int64_t)c->tile_r * c->tile_c * c->bytes + 2 * BARRIER_BYTES;
}

/* (ROWS,SPAN,BOXES) as TMA writes it. */
static tensor boxes(const kernel *k, const char *name, int rows, int count)
{
    layout box = tma_tile_layout(k->type, rows, k->span, SM90_ROW_BYTES);
    layout plain = make_layout(shape(rows, k->span, count), stride(k->span, 1, (int64_t)rows * k->span));
    return smem_tensor(name, k->type, with_swizzle(box.sw, plain), 1024);
}

/* One thread sets the barrier up and starts the loads. */
static void load_tile(const kernel *k)
{
    const transpose_sm90_config *cfg = k->cfg;
    pipeline_state start = producer_state(&k->arrival);
    IF(eq(thread(), imm(0))) {
        pipeline_init(&k->arrival);
        fence_mbarrier_init();
        pipeline_expect(&k->arrival, &start, imm(cfg->tile_r * cfg->tile_c * cfg->bytes));
        for (int b = 0; b < cfg->tile_c / k->span; b++)
            tma_load_of(&k->tmaX, slice(k->sX, _, _, b), k->place.row, add(k->place.col, imm(b * k->span)), cfg->outer,
                        k->place.outer, pipeline_full_barrier(&k->arrival, &start));
    }
}

static void store_tile(const kernel *k)
{
    const transpose_sm90_config *cfg = k->cfg;
    IF(eq(thread(), imm(0))) {
        for (int b = 0; b < cfg->tile_r / k->span; b++)
            tma_store_of(&k->tmaY, slice(k->sY, _, _, b), k->place.col, add(k->place.row, imm(b * k->span)), cfg->outer,
                         k->place.outer);
        tma_store_commit();
        tma_store_wait_read(0); // shared memory lives as long as the CTA
    }
}

/* The address of the chunk at row, column of a tile of boxes; the column is the first of a chunk. */
static val chunk_address(const kernel *k, tensor sBoxes, val row, val col)
{
    val box = div(col, imm(k->span)), in_box = rem(col, imm(k->span));
    return tensor_address(slice(sBoxes, _, _, box), coord(row, in_box));
}

/* 32 rows of x from r on, 8 columns from c on: four 8x8 matrices. */
static void transpose_pairs(const kernel *k, val r, val c)
{
    val words[4] = { ir_reg(U32), ir_reg(U32), ir_reg(U32), ir_reg(U32) };
    val in_matrix = rem(lane(), imm(8)), matrix = div(lane(), imm(8));
    ir_ldmatrix(4, true, chunk_address(k, k->sX, add(r, lane()), c), 0, words);
    ir_stmatrix(4, false, chunk_address(k, k->sY, add(c, in_matrix), add(r, mul(matrix, imm(8)))), 0, words);
}

/*
 * 32 rows of x from r on, 16 columns from c on. Matrix 2g+h holds the pairs of 8 of rows 16g..16g+15. After the transposed
 * load lane 4p+q has, in matrices 2g and 2g+1, columns 2p and 2p+1 of rows 16g+4q .. 16g+4q+3: two words of y. NOTE: which of
 * the two matrices has the upper pair of rows changes at q = 2, and which word goes first into y at p = 4, because rows whose
 * numbers agree mod 8 share their banks.
 */
static void transpose_bytes(const kernel *k, val r, val c)
{
    val matrix = div(lane(), imm(8)), j = rem(lane(), imm(8)); // for addresses: row j of a matrix
    val group = mul(div(matrix, imm(2)), imm(16)), half = rem(matrix, imm(2)), late = div(j, imm(4));
    val in_group = add(mul(div(j, imm(2)), imm(4)), add(mul(exclusive(half, late), imm(2)), rem(j, imm(2))));
    val pairs[4] = { ir_reg(U32), ir_reg(U32), ir_reg(U32), ir_reg(U32) }, words[4];
    ir_ldmatrix(4, true, chunk_address(k, k->sX, add(r, add(group, in_group)), c), 0, pairs);

    val upper_first = ge(rem(lane(), imm(4)), imm(2)), odd_first = ge(lane(), imm(16));
    val even = select(upper_first, ir_int(U32, 0x2064), ir_int(U32, 0x6420));
    val odd = select(upper_first, ir_int(U32, 0x3175), ir_int(U32, 0x7531));
    val first = select(odd_first, odd, even), second = select(odd_first, even, odd);
    for (int g = 0; g < 2; g++) {
        words[2 * g] = permute_bytes(pairs[2 * g], pairs[2 * g + 1], first);
        words[2 * g + 1] = permute_bytes(pairs[2 * g], pairs[2 * g + 1], second);
    }
    val column = add(c, add(mul(j, imm(2)), exclusive(half, late)));
    ir_stmatrix(4, false, chunk_address(k, k->sY, column, add(r, group)), 0, words);
}

/*
 * 32 rows of x from r on, a chunk of E = 4 or 2 columns from c on. Lane l owns row r+l and takes the columns in the order
 * i ^ (l / 8): 8 neighbouring lanes are kept apart by the swizzle, groups of them by this order.
 */
static void transpose_words(const kernel *k, val r, val c)
{
    int per_chunk = CHUNK_BYTES / k->cfg->bytes;
    val row = add(r, lane()), box = div(row, imm(k->span)), in_box = rem(row, imm(k->span));
    val group = rem(div(lane(), imm(8)), imm(per_chunk));
    tensor sFrom = slice(k->sX, _, _, div(c, imm(k->span))), sTo = slice(k->sY, _, _, box); // (R,SPAN), (C,SPAN)
    for (int i = 0; i < per_chunk; i++) {
        val column = exclusive(group, imm(i));
        tensor_set(sTo, coord(add(c, column), in_box), at(sFrom, row, add(rem(c, imm(k->span)), column)));
    }
}

/* The warps share the tile in pieces of 32 rows and one chunk of columns (of two, for bytes: their matrices are of pairs). */
static void transpose_tile(const kernel *k)
{
    const transpose_sm90_config *cfg = k->cfg;
    int columns = CHUNK_BYTES / cfg->bytes, across = cfg->tile_c / columns;
    int pieces = cfg->tile_r / WARP_ROWS * across, warps = cfg->threads / 32;
    for (int first = 0; first < pieces; first += warps) {
        val piece = add(warp(), imm(first));
        val r = mul(div(piece, imm(across)), imm(WARP_ROWS)), c = mul(rem(piece, imm(across)), imm(columns));
        if (cfg->bytes == 1)
            transpose_bytes(k, r, c);
        else if (cfg->bytes == 2)
            transpose_pairs(k, r, c);
        else
            transpose_words(k, r, c);
    }
}

static void transpose_by_tma(const transpose_sm90_config *cfg)
{
    ir_current()->threads = cfg->threads;
    ir_current()->ctas_per_sm = cfg->ctas_per_sm;
    kernel k = { .cfg = cfg, .type = raw_type(cfg->bytes), .span = sm90_box_columns(cfg->bytes) };
    k.tmaX = make_tma("X", k.type, cfg->tile_r, k.span, SM90_ROW_BYTES);
    k.tmaY = make_tma("Y", k.type, cfg->tile_c, k.span, SM90_ROW_BYTES);
    k.place = place_by_coordinates(&(transpose_common){ cfg->bytes, cfg->outer, cfg->group }, cfg->tile_r, cfg->tile_c);
    k.sX = boxes(&k, "x", cfg->tile_r, cfg->tile_c / k.span); // (R,SPAN,BOXES)
    k.sY = boxes(&k, "y", cfg->tile_c, cfg->tile_r / k.span); // (C,SPAN,BOXES)
    k.arrival = make_pipeline("arrival", 1, 1, 1);

    load_tile(&k);
    cta_sync(); // the barrier is set up
    pipeline_state first = consumer_state(&k.arrival);
    pipeline_wait_full(&k.arrival, &first);
    transpose_tile(&k);
    fence_proxy_async();
    cta_sync(); // all of y is in shared memory
    store_tile(&k);
}

transpose_sm80_config transpose_sm90_fallback(const transpose_sm90_config *c)
{
    return (transpose_sm80_config){ c->bytes, c->outer, c->group, c->tile_r, c->tile_c, 256, 0 };
}

void transpose_sm90(const void *config, int part)
{
    transpose_sm80_config fallback = transpose_sm90_fallback(config);
    if (part == 0)
        transpose_by_tma(config);
    else
        transpose_sm80(&fallback, 0);
}
