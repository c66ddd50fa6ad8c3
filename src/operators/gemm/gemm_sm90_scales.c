/*
 * gemm_sm90_scales.c - scales for every 128 of K, which is a K tile of 8-bit floats. They are loaded with the K tile's
 * stage: all scales of a matrix are one row of a map; a box begins at a multiple of 16 bytes, and the scales up to 3
 * elements later. So problems may have any size, and groups may begin anywhere.
 */
#include "operators/gemm/gemm_sm90.h"

/* The scales of a tile's rows, or columns. */
typedef struct scaled_side {
    const gemm_scale_boxes *size;
    bool squares, of_b; // of the problem
    int mode;           // of the tile: 0 its rows, 1 its columns
    val extent, list;
} scaled_side;

static scaled_side side_of(const sm90_kernel *k, int mode)
{
    scaled_side s = { .size = &k->size.scales[mode], .mode = mode, .of_b = (mode == 1) != k->cfg->swap };
    s.squares = (s.of_b ? k->epilogue.scale_b : k->epilogue.scale_a) == CKL_GEMM_SCALE_SQUARE;
    s.extent = mode == 0 ? k->p.m : k->p.n;
    s.list = s.of_b ? k->p.scale_b : k->p.scale_a;
    return s;
}

static val blocks_of(val extent)
{
    return div_up(extent, GEMM_BLOCK);
}

void gemm_sm90_scale_parameters(sm90_kernel *k)
{
    gemm_scales_values p = params_of(gemm_scales);
    for (int mode = 0; mode < 2; mode++)
        k->tmaScales[mode] = make_tma(mode ? p.SCALES_N : p.SCALES_M, F32, 2, 1, k->size.scales[mode].length, 0);
}

int gemm_sm90_scale_bytes(const sm90_kernel *k)
{
    int elements = 0;
    for (int mode = 0; mode < 2; mode++)
        elements += k->size.scales[mode].boxes * k->size.scales[mode].length;
    return 4 * elements;
}

/* The number in the map of the scale of a tile's row or column; the map begins at a multiple of 16 bytes. */
static val place_of(const sm90_kernel *k, const scaled_side *s, const tile_place *at, val k_tile, val line)
{
    val first = convert(U32, shift_right(bit_and(s->list, imm_as(U64, TMA_ALIGNMENT - 1)), imm(2)));
    val blocks = blocks_of(k->p.k);
    line = add(s->mode == 0 ? at->row : at->col, line);
    if (!s->squares) {
        val run = k->cfg->groups && s->of_b ? add(k_tile, mul(at->batch, blocks)) : k_tile;
        return add(add(mul(run, s->extent), line), first);
    }
    val square = div(line, imm(GEMM_BLOCK));
    if (k->cfg->groups)
        square = add(square, mul(at->batch, blocks_of(s->extent)));
    return add(add(mul(square, blocks), first), k_tile);
}

/* Its distance from the beginning of its box. */
static val behind(val place)
{
    return bit_and(place, imm(GEMM_SCALE_UNIT - 1));
}

void gemm_sm90_load_scales(const sm90_kernel *k, const pipeline_state *to, const tile_place *tile, val k_tile)
{
    for (int mode = 0; mode < 2; mode++) {
        const scaled_side s = side_of(k, mode);
        for (int box = 0; box < s.size->boxes; box++) {
            val place = place_of(k, &s, tile, k_tile, imm(box * s.size->lines));
            tensor sTo = slice(k->sScales[mode], _, box, to->stage);
            sTo.layout = make_layout(shape(1, s.size->length), stride(s.size->length, 1));
            tma_load(&k->tmaScales[mode], sTo, imm(0), sub(place, behind(place)), pipeline_full_barrier(&k->ring, to),
                     imm(0));
        }
    }
}

/* Registers of a thread for a side: for its rows, 8 apart, or pairs of columns; or for squares. */
static int registers_of(const sm90_kernel *k, const scaled_side *s)
{
    const int extent = s->mode == 0 ? k->size.consumer_rows : k->cfg->tile_n;
    return s->mode == 0 ? extent / 64 * (s->squares ? 1 : 2) : s->squares ? s->size->boxes : extent / 8 * 2;
}

block_scales gemm_sm90_begin_scales(const sm90_kernel *k)
{
    block_scales scales = { 0 };
    for (int mode = 0; mode < 2; mode++) {
        const scaled_side s = side_of(k, mode);
        scales.rScales[mode] = fragment(F32, compact(leaf(registers_of(k, &s))));
    }
    return scales;
}

/* The accumulators of a block of 64 rows as coordinates. */
static tensor coordinates_of(const sm90_kernel *k, const consumer_role *c)
{
    return partition_C(&c->mma, identity_tensor(shape(64, k->cfg->tile_n)), c->tid); // (MMA,1,1)
}

/* The first row of a consumer in the CTA's tile. */
static val first_row(const sm90_kernel *k, const consumer_role *c)
{
    return mul(c->index, imm(k->size.consumer_rows));
}

typedef struct taken_stage {
    const tile_place *at;
    val k_tile, stage;
} taken_stage;

/* Reads the scales of squares: of the consumer's rows, a register for every 64, or of the columns. */
static void take_squares(const sm90_kernel *k, const consumer_role *c, const scaled_side *s, const taken_stage *from,
                         tensor to)
{
    for (int i = 0; i < static_size(to.layout); i++) {
        val line = imm(i * (s->mode == 0 ? 64 : s->size->lines)); // of the consumer's tile
        val box = s->mode == 0 ? div(add(first_row(k, c), line), imm(s->size->lines)) : imm(i);
        val place = place_of(k, s, from->at, from->k_tile, line);
        set(to, i, at(k->sScales[s->mode], behind(place), box, from->stage));
    }
}

static void take_lines(const sm90_kernel *k, const consumer_role *c, const scaled_side *s, const taken_stage *from,
                       tensor to)
{
    const bool whole = s->size->boxes == 1; // one box of all consumers
    val row = s->mode == 0 && whole ? first_row(k, c) : imm(0);
    val first =
        add(behind(place_of(k, s, from->at, from->k_tile, imm(0))), coordinate(coordinates_of(k, c), s->mode, 0));
    tensor sMine = slice(k->sScales[s->mode], add(first, row), whole ? imm(0) : c->index, from->stage);
    sMine.layout = make_layout(shape(2, (int)static_size(to.layout) / 2), s->mode == 0 ? stride(8, 64) : stride(1, 8));
    copy(sMine, to, 4);
}

void gemm_sm90_take_scales(const sm90_kernel *k, const consumer_role *c, const tile_place *at, val k_tile, val stage,
                           const block_scales *scales)
{
    const taken_stage from = { at, k_tile, stage };
    for (int mode = 0; mode < 2; mode++) {
        const scaled_side s = side_of(k, mode);
        (s.squares ? take_squares : take_lines)(k, c, &s, &from, scales->rScales[mode]);
    }
    fence_proxy_async(); // TMA writes there next,
    warp_sync();         // once a lane releases the stage for all
}

/* The register of a side for an accumulator at a distance from the thread's first in a block of 64 rows. */
static int register_of(const scaled_side *s, int block, int64_t distance)
{
    if (s->squares)
        return s->mode == 0 ? block : (int)(distance / s->size->lines);
    return s->mode == 0 ? 2 * block + (int)(distance / 8) : (int)(distance / 8 * 2 + distance % 2);
}

/* Where a side has one scale or few, products of scales come first. */
void gemm_sm90_add_scaled(const sm90_kernel *k, const consumer_role *c, tensor partial, int block,
                          const block_scales *scales)
{
    const scaled_side rows = side_of(k, 0), cols = side_of(k, 1);
    const bool few = rows.squares || cols.squares;
    const tensor rRows = scales->rScales[0], rCols = scales->rScales[1];
    const int count_m = (int)static_size(rRows.layout), count_n = (int)static_size(rCols.layout);
    tensor sums = slice(c->acc, _, block, _); // (MMA,1)
    const layout along_m = coordinate_distances(coordinates_of(k, c), 0),
                 along_n = coordinate_distances(coordinates_of(k, c), 1);
    tensor rBoth = fragment(F32, compact(shape(count_m, count_n)));
    for (int i = register_of(&rows, block, 0); few && i <= register_of(&rows, block, 8); i++)
        for (int j = 0; j < count_n; j++)
            set(rBoth, coord(i, j), mul(at(rRows, i), at(rCols, j)));
    UNROLL(i, static_size(partial.layout)) {
        const int row = register_of(&rows, block, index_at(along_m, i)),
                  col = register_of(&cols, block, index_at(along_n, i));
        val sum = at(partial, i);
        if (few)
            set(sums, i, fma(sum, at(rBoth, coord(row, col)), at(sums, i)));
        else
            set(sums, i, fma(mul(sum, at(rRows, row)), at(rCols, col), at(sums, i)));
    }
}
