/* conv_unseen.c - pixels of dx between the strides that no tap of a filter sees: idle warps write zeros. */
#include "cute/kernel.h"
#include "operators/conv/conv_sm90.h"

/* Is the pixel's place along a mode seen by some tap? p->seen has a bit for each remainder of the stride. */
static val is_seen(const conv_values *p, int mode, val at)
{
    val bit = shift_right(p->seen[mode], rem(at, conv_number(p->step[mode])));
    return ne(bit_and(bit, imm64(1)), imm64(0));
}

/* Stores zeros from element `first` of dx on: 16 bytes. */
static void store_zeros(const conv_values *p, ckl_dtype out, val first)
{
    const int unit = 16 / (int)ckl_dtype_bytes(out);
    tensor rZeros = fragment(out, compact(leaf(unit)));
    fill(rZeros, convert(out, immf(0)));
    copy(rZeros, gmem_tensor(gmem_address(p->from[CONV_X], out, first), out, compact(leaf(unit))), 16);
}

/* The pixels of a row that lie `r` and some strides from its start: one division a vector. */
static void zero_pixels(const conv_values *p, ckl_dtype out, val start, val r)
{
    const int unit = 16 / (int)ckl_dtype_bytes(out);
    const val of_pixel = conv_number(div(p->x[3], imm64(unit))), step = conv_number(p->step[2]);
    const val left = sub(max(conv_number(p->x_size[2]), r), r), pixels = div(add(left, sub(step, imm(1))), step);
    LOOP_FROM(v, lane(), mul(pixels, of_pixel), imm(32)) {
        const val pixel = div(v, of_pixel), channel = mul(sub(v, mul(pixel, of_pixel)), imm(unit));
        const val column = add(mul(pixel, step), r);
        store_zeros(p, out, add(start, add(mul(convert(I64, column), p->x[3]), convert(I64, channel))));
    }
}

void conv_zero_unseen(const conv_values *p, ckl_dtype out, val warp, int warps)
{
    const int unit = 16 / (int)ckl_dtype_bytes(out);
    const val of_row = conv_number(div(mul(p->x[3], p->x_size[2]), imm64(unit)));
    LOOP_FROM(row, add(mul(cta_x(), imm(warps)), warp), p->zero_rows, mul(grid_x(), imm(warps))) {
        val rest = div(row, conv_number(p->x_size[1])), h = sub(row, mul(rest, conv_number(p->x_size[1])));
        val n = div(rest, conv_number(p->x_size[0])), d = sub(rest, mul(n, conv_number(p->x_size[0])));
        val start = add(mul(convert(I64, n), p->x[0]), mul(convert(I64, d), p->x[1]));
        start = add(start, mul(convert(I64, h), p->x[2]));
        IF(logical_and(is_seen(p, 0, d), is_seen(p, 1, h))) {
            LOOP(r, conv_number(p->step[2]))
                IF(logical_not(is_seen(p, 2, r)))
                    zero_pixels(p, out, start, r);
        }
        ELSE
        {
            LOOP_FROM(v, lane(), of_row, imm(32))
                store_zeros(p, out, add(start, convert(I64, mul(v, imm(unit)))));
        }
    }
}
