/* transpose_place.c - CTA number to matrix and tile. */
#include "operators/permute/transpose_place.h"

#include <stdio.h>

val numbered_param(ir_type type, const char *name, int number)
{
    char *full = ir_alloc(16, 1);
    snprintf(full, 16, "%s%d", name, number);
    return param(type, full);
}

/* Splits the number of the CTA: tiles of a matrix in bands, matrix after matrix. sizes: of the outer modes. */
static void find_tile(const transpose_common *cfg, int tile_r, int tile_c, const val *sizes, place *p)
{
    tile_schedule tiles = make_tile_schedule(p->rows, p->cols, tile_r, tile_c, cfg->group);
    val tile = cta_x(), tile_row, tile_col;
    if (cfg->outer) {
        val matrix = div(cta_x(), tiles.count);
        tile = sub(cta_x(), mul(matrix, tiles.count));
        for (int i = 0; i < cfg->outer - 1; i++) {
            p->outer[i] = rem(matrix, sizes[i]);
            matrix = div(matrix, sizes[i]);
        }
        p->outer[cfg->outer - 1] = matrix;
    }
    tile_at(&tiles, tile, &tile_row, &tile_col);
    p->row = mul(tile_row, imm(tile_r));
    p->col = mul(tile_col, imm(tile_c));
}

place place_by_coordinates(const transpose_common *cfg, int tile_r, int tile_c)
{
    place p = { .rows = param(U32, "rows"), .cols = { 0 } };
    p.cols = param(U32, "cols");
    val sizes[OUTER_MAX];
    for (int i = 0; i < cfg->outer; i++)
        sizes[i] = numbered_param(U32, "size", i);
    find_tile(cfg, tile_r, tile_c, sizes, &p);
    return p;
}

place place_by_address(const transpose_common *cfg, int tile_r, int tile_c)
{
    place p = place_by_coordinates(cfg, tile_r, tile_c);
    p.x = pointer("x");
    p.ldx = param(I64, "ldx");
    p.incx = param(I64, "incx");
    p.y = pointer("y");
    p.ldy = param(I64, "ldy");
    p.incy = param(I64, "incy");
    for (int i = 0; i < cfg->outer; i++) {
        val at = convert(I64, p.outer[i]);
        val in_x = numbered_param(I64, "stride_x", i), in_y = numbered_param(I64, "stride_y", i);
        p.x = add(p.x, convert(U64, mul(at, in_x)));
        p.y = add(p.y, convert(U64, mul(at, in_y)));
    }
    return p;
}

val place_address(val base, val row, val pitch, val col, val distance)
{
    val offset = add(mul(convert(I64, row), pitch), mul(convert(I64, col), distance));
    return add(base, convert(U64, offset));
}
