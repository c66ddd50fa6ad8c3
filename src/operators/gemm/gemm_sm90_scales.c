/*
 * gemm_sm90_scales.c - scales for every 128 of K, which is a K tile of 8-bit floats. The four lanes of a quad have the same rows and
 * squares: each loads those of one K tile of four, four ahead, and gives them to the others. Those of columns, which all threads of
 * a consumer have, go through shared memory; each thread loads one or two, a K tile ahead.
 */
#include "operators/gemm/gemm_sm90.h"

enum { QUAD = 4 }; // lanes that have the same rows of an accumulator

/* The scales of a tile's rows, or columns. */
typedef struct scaled_side {
    char matrix; // of the problem
    choice how;
    int mode;    // of the tile: 0 its rows, 1 its columns
    int count;   // registers of a thread
    bool shared; // by the lanes of a quad
} scaled_side;

static scaled_side side_of(const sm90_kernel *k, int mode)
{
    const gemm_sm90_config *cfg = k->cfg;
    scaled_side s = { .matrix = (mode == 0) != cfg->swap ? 'a' : 'b', .mode = mode };
    s.how = s.matrix == 'a' ? k->epilogue.scale_a : k->epilogue.scale_b;
    const int extent = mode == 0 ? k->size.consumer_rows : cfg->tile_n, unit = mode == 0 ? 64 : GEMM_BLOCK;
    if (s.how == CKL_GEMM_SCALE_SQUARE)
        s.count = extent > unit ? extent / unit : 1;
    else
        s.count = mode == 0 ? extent / 64 * 2 : extent / 8 * 2; // accumulators: rows 8 apart, pairs of columns
    s.shared = mode == 0 || s.how == CKL_GEMM_SCALE_SQUARE;
    return s;
}

/* How far register i lies from a thread's first row or column, or from the tile's. */
static int distance_of(const scaled_side *s, int i)
{
    if (s->how == CKL_GEMM_SCALE_SQUARE)
        return i * (s->mode == 0 ? 64 : GEMM_BLOCK);
    return s->mode == 0 ? i / 2 * 64 + i % 2 * 8 : i / 2 * 8 + i % 2;
}

/* The register of an accumulator so far from the first. */
static int register_of(const scaled_side *s, int64_t distance)
{
    if (s->how == CKL_GEMM_SCALE_SQUARE)
        return (int)(distance / (s->mode == 0 ? 64 : GEMM_BLOCK));
    return (int)(s->mode == 0 ? distance / 64 * 2 + distance % 64 / 8 : distance / 8 * 2 + distance % 2);
}

/* The accumulators of a consumer's tile as coordinates. */
static tensor coordinates_of(const sm90_kernel *k, const consumer_role *c)
{
    return partition_C(&c->mma, identity_tensor(shape(k->size.consumer_rows, k->cfg->tile_n)),
                       c->tid); // (MMA,MMA_M,MMA_N)
}

/* Where a group's scales begin. */
static val scales_of(const sm90_kernel *k, const scaled_side *s, const tile_place *at, val extent, val blocks)
{
    val address = s->matrix == 'a' ? k->p.scale_a : k->p.scale_b;
    if (!k->cfg->groups || s->matrix == 'a')
        return address;
    val rows = s->how == CKL_GEMM_SCALE_SQUARE ? div(add(extent, imm(GEMM_BLOCK - 1)), imm(GEMM_BLOCK)) : extent;
    val each = mul(convert(I64, rows), convert(I64, blocks));
    return add(address, convert(U64, mul(mul(convert(I64, at->batch), each), imm64(4))));
}

/* The scale of a row or column of a K tile, or of the last ones. */
static val scale_at(const sm90_kernel *k, const scaled_side *s, const tile_place *at, val k_tile, val line)
{
    val extent = s->mode == 0 ? k->p.m : k->p.n;
    val blocks = div(add(k->p.k, imm(GEMM_BLOCK - 1)), imm(GEMM_BLOCK));
    tensor gScales = gmem_tensor(scales_of(k, s, at, extent, blocks), F32, make_layout(dynamic(extent), leaf(1)));
    k_tile = min(k_tile, sub(k->k_tiles, imm(1)));
    line = min(line, sub(extent, imm(1)));
    return at(gScales, s->how == CKL_GEMM_SCALE_BLOCK
                           ? add(mul(convert(I64, k_tile), convert(I64, extent)), convert(I64, line))
                           : convert(I64, add(mul(div(line, imm(GEMM_BLOCK)), blocks), k_tile)));
}

/* Loads of a thread begin: of its rows or squares for a K tile; or of the columns that it loads for all. */
static void load_side(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val k_tile, int mode,
                      tensor to)
{
    const scaled_side s = side_of(k, mode);
    val start = mode == 0 ? at->row : at->col;
    if (!s.shared)
        start = add(start, c->tid);
    else if (s.how == CKL_GEMM_SCALE_BLOCK)
        start = add(start, coordinate(coordinates_of(k, c), mode, 0));
    for (int i = 0; i < static_size(to.layout); i++)
        set(to, i, scale_at(k, &s, at, k_tile, add(start, imm(s.shared ? distance_of(&s, i) : i * WARPGROUP))));
}

block_scales gemm_sm90_begin_scales(const sm90_kernel *k, const consumer_role *c, const tile_place *at)
{
    block_scales scales = { 0 };
    for (int mode = 0; mode < 2; mode++) {
        const scaled_side s = side_of(k, mode);
        const layout registers = compact(leaf(s.count));
        scales.rNow[mode] = fragment(F32, registers);
        if (s.shared) {
            scales.rHeld[mode] = fragment(F32, registers);
            scales.rAhead[mode] = fragment(F32, registers);
            fill(scales.rHeld[mode], immf(0));
        } else
            scales.rAhead[mode] = fragment(F32, compact(leaf((k->size.column_scales + WARPGROUP - 1) / WARPGROUP)));
        load_side(k, c, at, s.shared ? rem(lane(), imm(QUAD)) : imm(0), mode, scales.rAhead[mode]);
    }
    if (k->size.column_scales) {
        scales.sScales = slice(k->sScales, _, _, c->index); // (COLUMNS,2)
        named_sync(c->barrier, WARPGROUP);                  // nobody reads those of the tile before any more
    }
    return scales;
}

/* The scales of a K tile, from the lane that has them. */
static void give_shared(const sm90_kernel *k, val turn, const block_scales *scales)
{
    val from = add(sub(lane(), rem(lane(), imm(QUAD))), turn);
    for (int mode = 0; mode < 2; mode++)
        for (int i = 0; side_of(k, mode).shared && i < side_of(k, mode).count; i++)
            set(scales->rNow[mode], i, shuffle(at(scales->rHeld[mode], i), from));
}

/* Every fourth K tile the scales of the next four are taken, and those of four more asked for. */
static void next_shared(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val k_tile,
                        const block_scales *scales)
{
    val turn = rem(k_tile, imm(QUAD)), ahead = add(k_tile, add(rem(lane(), imm(QUAD)), imm(QUAD)));
    IF(eq(turn, imm(0)))
        for (int mode = 0; mode < 2; mode++)
            if (side_of(k, mode).shared) {
                copy(scales->rAhead[mode], scales->rHeld[mode], 4);
                load_side(k, c, at, ahead, mode, scales->rAhead[mode]);
            }
    give_shared(k, turn, scales);
}

/* What threads loaded goes to shared memory, where those of two K tiles lie, so that one barrier is enough. */
static void next_columns(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val k_tile,
                         const block_scales *scales)
{
    const int columns = k->size.column_scales;
    tensor sNow = slice(scales->sScales, _, rem(k_tile, imm(2))), rAhead = scales->rAhead[1]; // (COLUMNS)
    for (int i = 0; i * WARPGROUP < columns; i++) {
        val column = add(c->tid, imm(i * WARPGROUP));
        IF(lt(column, imm(columns)))
            set(sNow, column, at(rAhead, i));
    }
    load_side(k, c, at, add(k_tile, imm(1)), 1, rAhead);
    named_sync(c->barrier, WARPGROUP);
    tensor mine = slice(sNow, coordinate(coordinates_of(k, c), 1, 0));
    mine.layout = make_layout(shape(2, columns / 8), stride(1, 8)); // a pair of columns in every group of 8
    copy(mine, scales->rNow[1], 8);
}

void gemm_sm90_next_scales(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val k_tile,
                           const block_scales *scales)
{
    next_shared(k, c, at, k_tile, scales);
    if (k->size.column_scales)
        next_columns(k, c, at, k_tile, scales);
}

/* Where one of the sides has a single scale, or few, their products come first. */
void gemm_sm90_add_scaled(const sm90_kernel *k, const consumer_role *c, tensor part, const block_scales *scales)
{
    const scaled_side rows = side_of(k, 0), cols = side_of(k, 1);
    const bool few = rows.how == CKL_GEMM_SCALE_SQUARE || cols.how == CKL_GEMM_SCALE_SQUARE;
    tensor cC = coordinates_of(k, c);
    const layout along_m = coordinate_distances(cC, 0), along_n = coordinate_distances(cC, 1);
    tensor rBoth = fragment(F32, compact(shape(rows.count, cols.count)));
    for (int i = 0; few && i < rows.count; i++)
        for (int j = 0; j < cols.count; j++)
            set(rBoth, coord(i, j), mul(at(scales->rNow[0], i), at(scales->rNow[1], j)));
    for (int i = 0; i < static_size(c->acc.layout) && !ir_failed(); i++) {
        const int row = register_of(&rows, index_at(along_m, i)), col = register_of(&cols, index_at(along_n, i));
        val sum = at(part, i);
        if (few)
            set(c->acc, i, fma(sum, at(rBoth, coord(row, col)), at(c->acc, i)));
        else
            set(c->acc, i, fma(mul(sum, at(scales->rNow[0], row)), at(scales->rNow[1], col), at(c->acc, i)));
    }
}
