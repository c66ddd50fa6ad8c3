/*
 * transpose_tiled.c - a tile goes through shared memory: both sides of global memory are read and written side by side. Rows
 * of the tile are padded to an odd number of words, so that the threads that read a column find it in different banks. With
 * tiles of 16 a warp writes two rows, which meet in one bank: one reason why 32 is the better size.
 */
#include "operators/permute/transpose_place.h"

/* Elements between rows of the tile. */
static int padded(const transpose_tiled_config *cfg)
{
    return cfg->tile + (cfg->bytes < 4 ? 4 / cfg->bytes : 1);
}

void transpose_tiled(const void *config, int part)
{
    const transpose_tiled_config *cfg = config;
    (void)part;
    launch_bounds(cfg->tile * TILED_ROWS, 0);
    ckl_dtype type = raw_type(cfg->bytes);
    place p = place_by_address(cfg->outer, cfg->tile, cfg->tile);
    layout tile = make_layout(shape(cfg->tile, cfg->tile), stride(padded(cfg), 1));
    tensor sX = smem_tensor("tile", type, tile, 16); // (R,C)
    val slow = div(thread(), imm(cfg->tile)), fast = rem(thread(), imm(cfg->tile));
    for (int i = 0; i < cfg->tile; i += TILED_ROWS) {
        val r = add(slow, imm(i)), row = add(p.row, r), col = add(p.col, fast);
        IF(logical_and(lt(row, p.rows), lt(col, p.cols))) {
            tensor gX = gmem_tensor(place_address(p.x, row, p.ldx, col, p.incx), type, compact(leaf(1)));
            tensor_set(sX, coord(r, fast), at(gX, 0));
        }
    }
    cta_sync();
    for (int i = 0; i < cfg->tile; i += TILED_ROWS) {
        val c = add(slow, imm(i)), row = add(p.row, fast), col = add(p.col, c);
        IF(logical_and(lt(row, p.rows), lt(col, p.cols))) {
            tensor gY = gmem_tensor(place_address(p.y, col, p.ldy, row, p.incy), type, compact(leaf(1)));
            set(gY, 0, at(sX, fast, c));
        }
    }
}
