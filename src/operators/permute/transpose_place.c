/* transpose_place.c - CTA number to matrix and tile. */
#include "operators/permute/transpose_place.h"

#include <stdio.h>

val numbered_param(ir_type type, const char *name, int number)
{
    char *full = ir_alloc(16, 1);
    snprintf(full, 16, "%s%d", name, number);
    return param(type, full);
}

static val tiles_along(val size, int tile)
{
    return div(add(size, imm(tile - 1)), imm(tile));
}

/* Splits the number of the CTA: tiles down the rows, column by column, matrix after matrix. sizes: of the outer modes. */
static void find_tile(int outer, int tile_r, int tile_c, const val *sizes, place *p)
{
    val down = tiles_along(p->rows, tile_r), column = div(cta_x(), down);
    p->row = mul(sub(cta_x(), mul(column, down)), imm(tile_r));
    if (outer) {
        val across = tiles_along(p->cols, tile_c), matrix = div(column, across);
        column = sub(column, mul(matrix, across));
        for (int i = 0; i < outer - 1; i++) {
            p->outer[i] = rem(matrix, sizes[i]);
            matrix = div(matrix, sizes[i]);
        }
        p->outer[outer - 1] = matrix;
    }
    p->col = mul(column, imm(tile_c));
}

place place_by_coordinates(int outer, int tile_r, int tile_c)
{
    place p = { .rows = param(U32, "rows"), .cols = { 0 } };
    p.cols = param(U32, "cols");
    val sizes[OUTER_MAX];
    for (int i = 0; i < outer; i++)
        sizes[i] = numbered_param(U32, "size", i);
    find_tile(outer, tile_r, tile_c, sizes, &p);
    return p;
}

place place_by_address(int outer, int tile_r, int tile_c)
{
    place p = place_by_coordinates(outer, tile_r, tile_c);
    p.x = pointer("x");
    p.ldx = param(I64, "ldx");
    p.incx = param(I64, "incx");
    p.y = pointer("y");
    p.ldy = param(I64, "ldy");
    p.incy = param(I64, "incy");
    for (int i = 0; i < outer; i++) {
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

val word_of_elements(int count, const val *elements)
{
    if (count == 1)
        return elements[0];
    if (count == 2)
        return pack(U32, elements[0], elements[1]);
    val low = pack(U32, elements[0], elements[1]), high = pack(U32, elements[2], elements[3]);
    return permute_bytes(low, high, imm_as(U32, 0x6420)); // bytes were widened to 16 bits
}
