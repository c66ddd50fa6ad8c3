/* transpose_naive.c - one thread an element: a warp reads side by side, and writes as far apart as rows of y are. */
#include "operators/permute/transpose_place.h"

void transpose_naive(const void *config, int part)
{
    const transpose_naive_config *cfg = config;
    (void)part;
    launch_bounds(cfg->threads, 0);
    place p = place_by_address(cfg->outer, cfg->threads / NAIVE_TILE_C, NAIVE_TILE_C);
    val row = add(p.row, div(thread(), imm(NAIVE_TILE_C))), col = add(p.col, rem(thread(), imm(NAIVE_TILE_C)));
    IF(logical_and(lt(row, p.rows), lt(col, p.cols))) {
        tensor gX = gmem_tensor(place_address(p.x, row, p.ldx, col, p.incx), raw_type(cfg->bytes), compact(leaf(1)));
        tensor gY = gmem_tensor(place_address(p.y, col, p.ldy, row, p.incy), raw_type(cfg->bytes), compact(leaf(1)));
        set(gY, 0, at(gX, 0));
    }
}
