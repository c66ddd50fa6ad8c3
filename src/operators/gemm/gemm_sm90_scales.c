/*
 * gemm_sm90_scales.c - scales for every 128 of K, which is a K tile of 8-bit floats. A warp beside the producer's copies those of each
 * stage to shared memory: a stage is full when they are there too, and is freed by every warp that has read them.
 */
#include "operators/gemm/gemm_sm90.h"

enum { SCALE_BYTES = 4 };

/* The scales of a tile's rows, or columns. */
typedef struct scaled_side {
    char matrix; // of the problem
    choice how;
    int mode;  // of the tile: 0 its rows, 1 its columns
    int unit;  // rows or columns of a scale in shared memory
    int count; // registers of a thread
} scaled_side;

static scaled_side side_of(const sm90_kernel *k, int mode)
{
    const gemm_sm90_config *cfg = k->cfg;
    scaled_side s = { .matrix = (mode == 0) != cfg->swap ? 'a' : 'b', .mode = mode };
    s.how = s.matrix == 'a' ? k->epilogue.scale_a : k->epilogue.scale_b;
    const int extent = mode == 0 ? k->size.consumer_rows : cfg->tile_n;
    if (s.how == CKL_GEMM_SCALE_SQUARE) {
        s.unit = mode == 0 ? 64 : GEMM_BLOCK;
        s.count = (extent + s.unit - 1) / s.unit;
    } else {
        s.unit = 1;
        s.count = mode == 0 ? extent / 64 * 2 : extent / 8 * 2; // accumulators: rows 8 apart, pairs of columns
    }
    return s;
}

/* The register of an accumulator so far from the first. */
static int register_of(const scaled_side *s, int64_t distance)
{
    if (s->how == CKL_GEMM_SCALE_SQUARE)
        return (int)(distance / s->unit);
    return (int)(s->mode == 0 ? distance / 64 * 2 + distance % 64 / 8 : distance / 8 * 2 + distance % 2);
}

/* The accumulators of a consumer's tile as coordinates. */
static tensor coordinates_of(const sm90_kernel *k, const consumer_role *c)
{
    return partition_C(&c->mma, identity_tensor(shape(k->size.consumer_rows, k->cfg->tile_n)),
                       c->tid); // (MMA,MMA_M,MMA_N)
}

/* One side of a tile in memory: where its scales, of a group perhaps, begin, and how many lie along it and along K. */
typedef struct side_in_memory {
    val address, extent, blocks, start;
} side_in_memory;

static side_in_memory find_side(const sm90_kernel *k, const scaled_side *s, const tile_place *at)
{
    side_in_memory m = { .extent = s->mode == 0 ? k->p.m : k->p.n, .start = s->mode == 0 ? at->row : at->col };
    m.blocks = div(add(k->p.k, imm(GEMM_BLOCK - 1)), imm(GEMM_BLOCK));
    m.address = s->matrix == 'a' ? k->p.scale_a : k->p.scale_b;
    if (k->cfg->groups && s->matrix == 'b') {
        val rows =
            s->how == CKL_GEMM_SCALE_SQUARE ? div(add(m.extent, imm(GEMM_BLOCK - 1)), imm(GEMM_BLOCK)) : m.extent;
        val each = mul(mul(convert(I64, rows), convert(I64, m.blocks)), imm64(SCALE_BYTES));
        m.address = add(m.address, convert(U64, mul(convert(I64, at->batch), each)));
    }
    return m;
}

/* The scale of a row or column for a K tile; beyond the end the last one. */
static val address_of(const scaled_side *s, const side_in_memory *m, val k_tile, val line)
{
    line = min(line, sub(m->extent, imm(1)));
    val index = s->how == CKL_GEMM_SCALE_BLOCK
                    ? add(mul(convert(I64, k_tile), convert(I64, m->extent)), convert(I64, line))
                    : convert(I64, add(mul(div(line, imm(GEMM_BLOCK)), m->blocks), k_tile));
    return add(m->address, convert(U64, mul(index, imm64(SCALE_BYTES))));
}

/* The lanes' copies of one side for a K tile begin. */
static void load_side(const sm90_kernel *k, int mode, const side_in_memory *m, val k_tile, val stage)
{
    const scaled_side s = side_of(k, mode);
    const int count = k->size.scales[mode];
    for (int first = 0; first < count; first += LANES) {
        val i = add(lane(), imm(first));
        IF(count - first >= LANES ? yes() : lt(i, imm(count)))
            cp_async(tensor_address(k->sScales[mode], coord(i, stage)),
                     address_of(&s, m, k_tile, add(m->start, mul(i, imm(s.unit)))), SCALE_BYTES,
                     imm_as(U32, SCALE_BYTES));
    }
}

void gemm_sm90_load_scales(const sm90_kernel *k)
{
    const scaled_side rows = side_of(k, 0), cols = side_of(k, 1);
    pipeline_state stage = producer_state(&k->ring);
    LOOP_FROM(tile, k->first_tile, k->count, k->clusters) {
        const tile_place at = gemm_sm90_tile(k, tile);
        const side_in_memory sides[] = { find_side(k, &rows, &at), find_side(k, &cols, &at) };
        LOOP(k_tile, k->k_tiles) {
            pipeline_wait_empty(&k->ring, &stage);
            for (int mode = 0; mode < 2; mode++)
                load_side(k, mode, &sides[mode], k_tile, stage.stage);
            cp_async_arrive(pipeline_full_barrier(&k->ring, &stage));
            pipeline_advance(&stage);
        }
    }
}

block_scales gemm_sm90_read_scales(const sm90_kernel *k, const consumer_role *c, val stage)
{
    block_scales scales = { 0 };
    tensor cC = coordinates_of(k, c);
    for (int mode = 0; mode < 2; mode++) {
        const scaled_side s = side_of(k, mode);
        tensor mine = slice(k->sScales[mode], _, stage); // (SCALES)
        val first = s.unit == 1 ? coordinate(cC, mode, 0) : imm(0);
        if (mode == 0 && !k->cfg->pingpong)
            first = add(first, mul(c->index, imm(k->size.consumer_rows / s.unit)));
        mine = slice(mine, first);
        mine.layout = s.unit > 1  ? make_layout(leaf(s.count), leaf(1))
                      : mode == 0 ? make_layout(shape(2, s.count / 2), stride(8, 64))
                                  : make_layout(shape(2, s.count / 2), stride(1, 8)); // pairs of columns
        scales.rScales[mode] = fragment(F32, compact(leaf(s.count)));
        copy(mine, scales.rScales[mode], s.unit == 1 && mode == 1 ? 8 : 4);
    }
    return scales;
}

/* Where one of the sides has a single scale, or few, their products come first. */
void gemm_sm90_add_scaled(const sm90_kernel *k, const consumer_role *c, tensor part, const block_scales *scales)
{
    const scaled_side rows = side_of(k, 0), cols = side_of(k, 1);
    const bool few = rows.how == CKL_GEMM_SCALE_SQUARE || cols.how == CKL_GEMM_SCALE_SQUARE;
    tensor cC = coordinates_of(k, c), rRows = scales->rScales[0], rCols = scales->rScales[1];
    const layout along_m = coordinate_distances(cC, 0), along_n = coordinate_distances(cC, 1);
    tensor rBoth = fragment(F32, compact(shape(rows.count, cols.count)));
    for (int i = 0; few && i < rows.count; i++)
        for (int j = 0; j < cols.count; j++)
            set(rBoth, coord(i, j), mul(at(rRows, i), at(rCols, j)));
    for (int i = 0; i < static_size(c->acc.layout) && !ir_failed(); i++) {
        const int row = register_of(&rows, index_at(along_m, i)), col = register_of(&cols, index_at(along_n, i));
        val sum = at(part, i);
        if (few)
            set(c->acc, i, fma(sum, at(rBoth, coord(row, col)), at(c->acc, i)));
        else
            set(c->acc, i, fma(mul(sum, at(rRows, row)), at(rCols, col), at(c->acc, i)));
    }
}
