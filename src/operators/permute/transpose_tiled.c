/* transpose_tiled.c - the teaching kernels: naive, one element a thread, and tiled, through a tile in shared memory. */
#include "operators/permute/transpose_tile.h"

static tensor element_of_x(const transpose_tile *t, ckl_dtype type, val row, val col)
{
    return gmem_tensor(transpose_address(t->x, row, t->ldx, col, t->incx), type, compact(leaf(1)));
}

static tensor element_of_y(const transpose_tile *t, ckl_dtype type, val row, val col)
{
    return gmem_tensor(transpose_address(t->y, col, t->ldy, row, t->incy), type, compact(leaf(1)));
}

static val is_inside(const transpose_tile *t, val row, val col)
{
    return logical_and(lt(row, t->rows), lt(col, t->cols));
}

/* Reads neighbours, and writes elements as far apart as rows of y are. */
void transpose_naive(const void *config, int kernel)
{
    const transpose_naive_config *cfg = config;
    (void)kernel;
    launch_bounds(cfg->threads, 0);
    transpose_values p = params_of(transpose);
    int columns = TRANSPOSE_NAIVE_COLS;
    transpose_tile t = transpose_tile_by_address(&p, cfg->outer, cfg->threads / columns, columns);
    ckl_dtype type = transpose_type(cfg->bytes);
    val row = add(t.row, div(thread(), imm(columns))), col = add(t.col, rem(thread(), imm(columns)));
    IF(is_inside(&t, row, col))
        set(element_of_y(&t, type, row, col), 0, at(element_of_x(&t, type, row, col), 0));
}

/*
 * Elements between rows of the tile: an odd number of words, so that the threads that read a column find it in different banks.
 * With tiles of 16 a warp writes two rows, which meet in one bank: one reason why 32 is the better size.
 */
static int padded(const transpose_tiled_config *cfg)
{
    return cfg->tile + (cfg->bytes < 4 ? 4 / cfg->bytes : 1);
}

/* Both sides of global memory are accessed by neighbours. */
void transpose_tiled(const void *config, int kernel)
{
    const transpose_tiled_config *cfg = config;
    (void)kernel;
    launch_bounds(cfg->tile * TRANSPOSE_TILED_ROWS, 0);
    transpose_values p = params_of(transpose);
    ckl_dtype type = transpose_type(cfg->bytes);
    transpose_tile t = transpose_tile_by_address(&p, cfg->outer, cfg->tile, cfg->tile);
    layout tile = make_layout(shape(cfg->tile, cfg->tile), stride(padded(cfg), 1));
    tensor sX = smem_tensor("tile", type, tile, 16); // (R,C)
    val slow = div(thread(), imm(cfg->tile)), fast = rem(thread(), imm(cfg->tile));
    for (int i = 0; i < cfg->tile; i += TRANSPOSE_TILED_ROWS) {
        val r = add(slow, imm(i)), row = add(t.row, r), col = add(t.col, fast);
        IF(is_inside(&t, row, col))
            tensor_set(sX, coord(r, fast), at(element_of_x(&t, type, row, col), 0));
    }
    cta_sync();
    for (int i = 0; i < cfg->tile; i += TRANSPOSE_TILED_ROWS) {
        val c = add(slow, imm(i)), row = add(t.row, fast), col = add(t.col, c);
        IF(is_inside(&t, row, col))
            set(element_of_y(&t, type, row, col), 0, at(sX, fast, c));
    }
}
