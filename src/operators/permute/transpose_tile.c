/* transpose_tile.c - CTA number to matrix and tile; addresses; words. */
#include "operators/permute/transpose_tile.h"

static val tiles_along(val size, int tile)
{
    return div(add(size, imm(tile - 1)), imm(tile));
}

transpose_tile transpose_tile_by_coordinates(const transpose_values *p, int outer, int tile_r, int tile_c, bool across)
{
    transpose_tile t = { .rows = p->rows, .cols = p->cols };
    val down = tiles_along(t.rows, tile_r), wide = tiles_along(t.cols, tile_c);
    val first = across ? wide : down, second = across ? down : wide; // the faster one first
    val rest = div(cta_x(), first), fast = sub(cta_x(), mul(rest, first)), slow = rest;
    if (outer) {
        val matrix = div(rest, second);
        slow = sub(rest, mul(matrix, second));
        for (int i = 0; i < outer - 1; i++) {
            t.outer[i] = rem(matrix, p->size[i]);
            matrix = div(matrix, p->size[i]);
        }
        t.outer[outer - 1] = matrix;
    }
    t.row = mul(across ? slow : fast, imm(tile_r));
    t.col = mul(across ? fast : slow, imm(tile_c));
    return t;
}

transpose_tile transpose_tile_by_address(const transpose_values *p, int outer, int tile_r, int tile_c, bool across)
{
    transpose_tile t = transpose_tile_by_coordinates(p, outer, tile_r, tile_c, across);
    t.x = p->x;
    t.ldx = p->ldx;
    t.y = p->y;
    t.ldy = p->ldy;
    for (int i = 0; i < outer; i++) {
        val at = convert(I64, t.outer[i]);
        t.x = add(t.x, convert(U64, mul(at, p->stride_x[i])));
        t.y = add(t.y, convert(U64, mul(at, p->stride_y[i])));
    }
    return t;
}

val transpose_address(val base, val row, val ld, val col, val inc)
{
    val offset = add(mul(convert(I64, row), ld), mul(convert(I64, col), inc));
    return add(base, convert(U64, offset));
}

void transpose_prefetch(const transpose_tile *t, int tile_r, int tile_c, int bytes)
{
    enum { LINE_BYTES = 128 };
    const int lines = (int)ceil_div((int64_t)tile_c * bytes, LINE_BYTES); // of a row
    val columns = sub(t->cols, t->col);
    LOOP_FROM(n, thread(), imm(tile_r * lines), imm(PERMUTE_THREADS)) {
        val row = add(t->row, div(n, imm(lines))), column = mul(rem(n, imm(lines)), imm(LINE_BYTES / bytes));
        IF(logical_and(lt(row, t->rows), lt(column, columns)))
            prefetch_L2(transpose_address(t->x, row, t->ldx, add(t->col, column), imm(bytes)));
    }
}

val transpose_word(int count, const val *elements)
{
    if (count == 1)
        return elements[0];
    if (count == 2)
        return pack(U32, elements[0], elements[1]);
    val low = pack(U32, elements[0], elements[1]), high = pack(U32, elements[2], elements[3]);
    return permute_bytes(low, high, imm_as(U32, 0x6420)); // bytes were widened to 16 bits
}

void transpose_square(int side, val *words)
{
    enum { LOW = 0x5410, HIGH = 0x7632, LOW_BYTES = 0x5140, HIGH_BYTES = 0x7362 }; // of two words
    val pairs[4] = { words[0], words[1] };
    if (side == 4)
        for (int i = 0; i < 4; i++) // columns 0 and 1 of rows 0 and 1, of rows 2 and 3; columns 2 and 3 likewise
            pairs[i] =
                permute_bytes(words[i % 2 * 2], words[i % 2 * 2 + 1], imm_as(U32, i / 2 ? HIGH_BYTES : LOW_BYTES));
    for (int i = 0; i < side; i++)
        words[i] = permute_bytes(pairs[i / 2 * 2], pairs[i / 2 * 2 + 1], imm_as(U32, i % 2 ? HIGH : LOW));
}
