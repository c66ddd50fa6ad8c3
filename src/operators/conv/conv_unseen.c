/* conv_unseen.c - pixels of dx between the strides that no tap of a filter sees: idle warps write zeros. */
#include "cute/kernel.h"
#include "operators/conv/conv_sm90.h"

/* Is the pixel's place along a mode seen by some tap? p->seen has a bit for each remainder of the stride. */
static val is_seen(const conv_values *p, int mode, val at)
{
    val bit = shift_right(p->seen[mode], rem(at, conv_number(p->step[mode])));
    return ne(bit_and(bit, imm64(1)), imm64(0));
}

void conv_zero_unseen(const conv_values *p, ckl_dtype out, val number, int threads)
{
    const int bytes = (int)ckl_dtype_bytes(out), unit = 16 / bytes;
    val of_pixel = conv_number(div(p->x[3], imm64(unit))), count = mul(of_pixel, conv_number(p->x_size[2]));
    tensor rZeros = fragment(out, compact(leaf(unit)));
    fill(rZeros, convert(out, immf(0)));
    LOOP_FROM(row, cta_x(), p->zero_rows, grid_x()) {
        val rest = div(row, conv_number(p->x_size[1])), h = sub(row, mul(rest, conv_number(p->x_size[1])));
        val n = div(rest, conv_number(p->x_size[0])), d = sub(rest, mul(n, conv_number(p->x_size[0])));
        val start = add(mul(convert(I64, n), p->x[0]), mul(convert(I64, d), p->x[1]));
        val seen = logical_and(is_seen(p, 0, d), is_seen(p, 1, h));
        start = add(start, mul(convert(I64, h), p->x[2]));
        LOOP_FROM(v, number, count, imm(threads)) {
            val at = add(start, mul(convert(I64, v), imm64(unit)));
            val address = add(p->from[CONV_X], convert(U64, mul(at, imm64(bytes))));
            IF(logical_not(logical_and(seen, is_seen(p, 2, div(v, of_pixel)))))
                copy(rZeros, gmem_tensor(address, out, compact(leaf(unit))), 16);
        }
    }
}
