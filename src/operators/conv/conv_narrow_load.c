/*
 * conv_narrow_load.c - the kernel of few filters: loads of filters, and of the pixels below a tile, into shared memory.
 */
#include "cute/kernel.h"
#include "operators/conv/conv_narrow_kernel.h"

enum {
    THREADS = CONV_NARROW_THREADS,
    UNIT = CONV_NARROW_UNIT,
    VECTORS = 6, // of a row of pixels that a thread copies at once
};

/* Filters */

/* Where element `number` of sW lies in w, and does it exist? If vec is 8, the first mode of sW is not counted. */
static val filter_offset(const narrow_kernel *k, val number, int vec, val *there)
{
    const conv_narrow_config *c = k->cfg;
    const int inner = UNIT / vec, units = 2 * k->size.steps, of_tap = c->chunk / UNIT;
    val in_unit = rem(number, imm(inner)), rest = div(number, imm(inner)), n = rem(rest, imm(c->tile_n));
    rest = div(rest, imm(c->tile_n));
    val unit = rem(rest, imm(units)), at_row = div(rest, imm(units)), tap = div(unit, imm(of_tap));
    val row = rem(at_row, imm(c->rows)), chunk = div(at_row, imm(c->rows));
    val channel = add(mul(chunk, imm(c->chunk)), add(mul(rem(unit, imm(of_tap)), imm(UNIT)), in_unit));
    *there = logical_and(lt(unit, imm(k->size.units)),
                         logical_and(lt(n, convert(U32, k->outputs)), lt(channel, convert(U32, k->channels))));
    val offset = add(mul(convert(I64, n), k->p.w[0]), mul(convert(I64, channel), k->p.w[4]));
    return add(offset, add(mul(convert(I64, row), k->p.w[2]), mul(convert(I64, tap), k->p.w[3])));
}

/* Several loads of a thread are in flight together. Channels and filters that do not exist are zeros. */
void conv_narrow_load_filters(const narrow_kernel *k)
{
    enum { AT_ONCE = 8 };
    const conv_narrow_config *c = k->cfg;
    const ckl_dtype dtype = c->form.dtype;
    const bool whole = c->vec == UNIT && !c->copied;
    const int vec = whole && c->form.direction == CKL_CONV_FORWARD ? UNIT : 1;
    const int64_t count = k->size.filters / vec;
    tensor sFlat = tensor_with_layout(k->sW, compact(shape(vec, (int)count)));
    LOOP_FROM(first, thread(), imm((int)count), imm(THREADS * AT_ONCE)) {
        tensor rW = fragment(dtype, compact(shape(vec, AT_ONCE)));
        fill(rW, convert(dtype, immf(0)));
        for (int i = 0; i < AT_ONCE; i++) {
            val number = add(first, imm(i * THREADS)), there;
            val offset = filter_offset(k, number, vec, &there);
            IF(logical_and(there, lt(number, imm((int)count))))
                copy(conv_run_at(k->p.from[CONV_W], dtype, offset, vec), slice(rW, _, i), 2 * vec);
        }
        for (int i = 0; i < AT_ONCE; i++)
            IF(lt(add(first, imm(i * THREADS)), imm((int)count)))
                copy(slice(rW, _, i), slice(sFlat, _, add(first, imm(i * THREADS))), 2 * vec);
    }
}

/* Pixels */

/* Zeros where nothing is copied: channels of the last unit that do not exist. */
void conv_narrow_clear(const narrow_kernel *k)
{
    const int words = k->size.halo; // two buffers of halves of words
    tensor sWords = smem_view(tensor_address(k->sHalo, coord(0, 0, 0, 0)), I32, compact(leaf(words)));
    LOOP_FROM(i, thread(), imm(words), imm(THREADS))
        set(sWords, i, imm(0));
}

/*
 * The pixels below a tile, row by row. `width` neighbouring threads share a row; each has every width-th vector of it.
 */
typedef struct halo_rows {
    int vectors, of_pixel, width;
    int at_once; // vectors of a thread
} halo_rows;

static halo_rows halo_rows_of(const narrow_kernel *k)
{
    halo_rows h = { .of_pixel = k->size.real / k->cfg->vec, .width = 32 };
    h.vectors = k->size.halo_w * h.of_pixel;
    while (h.width > 4 && h.width >= 2 * h.vectors)
        h.width /= 2;
    const int mine = (h.vectors + h.width - 1) / h.width;
    h.at_once = mine < VECTORS ? mine : VECTORS;
    return h;
}

/*
 * A thread's vectors of any row: does it exist, is it inside, and its bytes from the row's start in memory and in the
 * buffer.
 */
typedef struct row_vectors {
    val there[VECTORS], inside[VECTORS], offset[VECTORS], to[VECTORS];
} row_vectors;

static row_vectors vectors_from(const narrow_kernel *k, const halo_rows *l, const conv_tile_place *place, val chunk,
                                val first)
{
    const conv_narrow_config *c = k->cfg;
    const val width = convert(I32, k->p.x_size[2]);
    row_vectors x;
    for (int i = 0; i < l->at_once; i++) {
        val vector = add(first, imm(i * l->width)), column = div(vector, imm(l->of_pixel));
        val in_pixel = mul(rem(vector, imm(l->of_pixel)), imm(c->vec));
        val w = convert(I32, add(sub(mul(place->w, imm(c->step_w)), conv_number(k->p.pad[2])), column));
        val channel = convert(I32, add(mul(chunk, imm(c->chunk)), in_pixel));
        x.there[i] = lt(vector, imm(l->vectors));
        x.inside[i] = logical_and(ge(w, imm(0)), lt(w, width));
        if (k->size.chunks > 1)
            x.inside[i] = logical_and(x.inside[i], lt(channel, k->channels));
        val offset = add(mul(convert(I64, w), k->p.x[3]), convert(I64, channel));
        x.offset[i] = convert(U64, mul(offset, imm64(2)));
        x.to[i] = mul(add(mul(column, imm(k->size.pitch)), in_pixel), imm(2));
    }
    return x;
}

/* The thread's vectors of a row of the buffer. */
static void copy_row(const narrow_kernel *k, const halo_rows *l, const conv_tile_place *place, val row, val buffer,
                     const row_vectors *x)
{
    const conv_narrow_config *c = k->cfg;
    const int bytes = 2 * c->vec;
    val h = convert(I32, add(sub(mul(place->h, imm(c->step_h)), conv_number(k->p.pad[1])), row));
    val offset = add(mul(convert(I64, place->n), k->p.x[0]), mul(convert(I64, h), k->p.x[2]));
    val row_inside = logical_and(ge(h, imm(0)), lt(h, convert(I32, k->p.x_size[1])));
    val start = add(k->p.from[CONV_X], convert(U64, mul(offset, imm64(2))));
    val to = tensor_address(k->sHalo, coord(0, 0, row, buffer));
    for (int i = 0; i < l->at_once; i++) {
        val inside = logical_and(row_inside, x->inside[i]);
        val address = select(inside, add(start, x->offset[i]), k->p.from[CONV_X]);
        IF(x->there[i])
            cp_async(add(to, x->to[i]), address, bytes, select(inside, imm_as(U32, bytes), imm(0)));
    }
}

void conv_narrow_load(const narrow_kernel *k, val tile, val chunk, val buffer)
{
    const halo_rows l = halo_rows_of(k);
    const int apart = THREADS / l.width;
    const conv_tile_place place = conv_tile_at(&k->grid, tile);
    LOOP_FROM(first, thread_at(thread(), 0, l.width, apart), imm(l.vectors), imm(l.width * l.at_once)) {
        const row_vectors x = vectors_from(k, &l, &place, chunk, first);
        LOOP_FROM(row, thread_at(thread(), 1, l.width, apart), imm(k->size.halo_h), imm(apart))
            copy_row(k, &l, &place, row, buffer, &x);
    }
}
