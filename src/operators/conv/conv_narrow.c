/*
 * conv_narrow.c - few filters: the pixels under a tile are read once, and mma.sync takes what lies under each tap from there.
 *
 * A CTA keeps all filters in shared memory. Of each tile, 16 columns by 16 rows, it copies the pixels below, some channels at a time,
 * into one of two buffers while the other one is multiplied. A warp has 4 rows; a row of pixels that several rows of a filter see is
 * read once for all of them. The gradient of data reads dy, and its filters lie turned round in shared memory.
 */
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_narrow.h"

enum {
    WARPS = CONV_NARROW_WARPS,
    THREADS = 32 * WARPS,
    UNIT = CONV_NARROW_UNIT,
    M = CONV_NARROW_M,
    ROWS_AT_ONCE = 3, // of a filter, in registers
    TILES_N = 4,
    PIECES = 6, // of a line that a thread copies at once
    WORDS_A = 4,
    WORDS_B = 2,
};

/* A tile: its first pixel and its image. */
typedef struct tile_place {
    val w, h, n;
} tile_place;

typedef struct narrow_kernel {
    const conv_narrow_config *cfg;
    conv_narrow_shape size;
    conv_values p;
    const val *from, *from_size, *to, *to_size; // strides and places of what is read, of what is written
    val channels, outputs, pad_w, pad_h;
    tiled_mma mma;
    tensor sW, sHalo;         // (UNIT,FILTER,HALF,STEP,ROW,CHUNK); (CHANNEL,COLUMN,ROW,BUFFERS)
    tensor rA, rB, acc;       // (WORDS,1,1), (WORDS,1,1,MMA_N,ROW), (MMA,M,MMA_N)
    val pixel, upper, filter; // a lane's rows of ldmatrix; upper: all ones in lanes that have the second half of a step
    val tiles_w, tiles_h, count;
    val bias[2 * TILES_N], scale[2 * TILES_N]; // of the thread's channels
} narrow_kernel;

static void describe_sides(narrow_kernel *k)
{
    const conv_narrow_config *c = k->cfg;
    const conv_values *p = &k->p;
    const bool data = c->form.direction == CKL_CONV_DATA;
    k->from = data ? p->y : p->x;
    k->from_size = data ? p->y_size : p->x_size;
    k->to = data ? p->x : p->y;
    k->to_size = data ? p->x_size : p->y_size;
    k->channels = convert(I32, data ? p->k : p->c);
    k->outputs = convert(I32, data ? p->c : p->k);
    val w = convert(I32, p->pad[2]), h = convert(I32, p->pad[1]);
    k->pad_w = data ? sub(imm((c->columns - 1) * c->dilation_w), w) : w;
    k->pad_h = data ? sub(imm((c->rows - 1) * c->dilation_h), h) : h;
    k->tiles_w = convert(U32, div(add(k->to_size[2], imm64(CONV_NARROW_W - 1)), imm64(CONV_NARROW_W)));
    k->tiles_h = convert(U32, div(add(k->to_size[1], imm64(CONV_NARROW_H - 1)), imm64(CONV_NARROW_H)));
    k->count = mul(mul(k->tiles_w, k->tiles_h), convert(U32, p->n));
}

static void describe_memory(narrow_kernel *k)
{
    const conv_narrow_config *c = k->cfg;
    const conv_narrow_shape *s = &k->size;
    const int half = UNIT * c->tile_n, step = 2 * half, row = s->steps * step;
    k->sW = smem_tensor("filters", c->form.dtype,
                        make_layout(shape(UNIT, c->tile_n, 2, s->steps, c->rows, k->size.chunks),
                                    stride(1, UNIT, half, step, row, row * c->rows)),
                        16);
    k->sHalo = smem_tensor(
        "halo", c->form.dtype,
        make_layout(shape(s->pitch, s->halo_w, s->halo_h, 2), stride(1, s->pitch, s->pitch * s->halo_w, s->halo)), 16);
}

/* A lane has the address of a row of the matrices of ldmatrix: a pixel and a half of a step, a filter and a half. */
static void describe_threads(narrow_kernel *k)
{
    const conv_narrow_config *c = k->cfg;
    k->mma =
        make_tiled_mma(c->form.dtype == F16 ? "SM80_16x8x16_F32F16F16F32_TN" : "SM80_16x8x16_F32BF16BF16F32_TN", 1, 1);
    k->rA = fragment(U32, compact(shape(WORDS_A, 1, 1)));
    k->rB = fragment(U32, compact(shape(WORDS_B, 1, 1, c->tile_n / 8, ROWS_AT_ONCE)));
    k->acc = fragment_C(&k->mma, 16 * M, c->tile_n);
    val column = mul(rem(lane(), imm(16)), imm(c->step_w)), row = mul(warp(), imm(M * c->step_h));
    k->pixel = tensor_address(k->sHalo, coord(0, column, row, 0));
    k->upper = sub(imm(0), div(lane(), imm(16)));
    k->filter = tensor_address(k->sW, coord(0, rem(lane(), imm(8)), rem(div(lane(), imm(8)), imm(2)), 0, 0, 0));
}

static tile_place place_of(const narrow_kernel *k, val tile)
{
    val rest = div(tile, k->tiles_w), n = div(rest, k->tiles_h);
    return (tile_place){ .w = convert(I32, mul(sub(tile, mul(rest, k->tiles_w)), imm(CONV_NARROW_W))),
                         .h = convert(I32, mul(sub(rest, mul(n, k->tiles_h)), imm(CONV_NARROW_H))),
                         .n = n };
}

static tensor elements_from(val address, ckl_dtype dtype, val first, int count)
{
    val bytes = mul(first, imm64((int)ckl_dtype_bytes(dtype)));
    return gmem_tensor(add(address, convert(U64, bytes)), dtype, compact(leaf(count)));
}

static val from_address(const narrow_kernel *k)
{
    return k->p.from[k->cfg->form.direction == CKL_CONV_DATA ? CONV_Y : CONV_X];
}

/* Filters */

/* Element `number` of sW, counted without its first mode if vec is 8: where it lies in w, and is it there? */
static val filter_offset(const narrow_kernel *k, val number, int vec, val *there)
{
    const conv_narrow_config *c = k->cfg;
    const bool data = c->form.direction == CKL_CONV_DATA;
    const int inner = UNIT / vec, units = 2 * k->size.steps, of_tap = c->chunk / UNIT;
    val in_unit = rem(number, imm(inner)), rest = div(number, imm(inner)), n = rem(rest, imm(c->tile_n));
    rest = div(rest, imm(c->tile_n));
    val unit = rem(rest, imm(units)), at_row = div(rest, imm(units)), tap = div(unit, imm(of_tap));
    val row = rem(at_row, imm(c->rows)), chunk = div(at_row, imm(c->rows));
    val channel = add(mul(chunk, imm(c->chunk)), add(mul(rem(unit, imm(of_tap)), imm(UNIT)), in_unit));
    *there = logical_and(lt(unit, imm(k->size.units)),
                         logical_and(lt(n, convert(U32, k->outputs)), lt(channel, convert(U32, k->channels))));
    row = data ? sub(imm(c->rows - 1), row) : row;
    tap = data ? sub(imm(c->columns - 1), tap) : tap;
    val offset = mul(convert(I64, n), k->p.w[data ? 4 : 0]);
    offset = add(offset, mul(convert(I64, channel), k->p.w[data ? 0 : 4]));
    return add(offset, add(mul(convert(I64, row), k->p.w[2]), mul(convert(I64, tap), k->p.w[3])));
}

/* Some loads of a thread are under way together. Zeros where there is no such channel or filter. */
static void load_filters(const narrow_kernel *k)
{
    enum { AT_ONCE = 8 };
    const conv_narrow_config *c = k->cfg;
    const ckl_dtype dtype = c->form.dtype;
    const int vec = !c->nchw && c->vec == UNIT && c->form.direction == CKL_CONV_FORWARD ? UNIT : 1;
    const int64_t count = k->size.filters / vec;
    tensor sFlat = tensor_with_layout(k->sW, compact(shape(vec, (int)count)));
    LOOP_FROM(first, thread(), imm((int)count), imm(THREADS * AT_ONCE)) {
        tensor rW = fragment(dtype, compact(shape(vec, AT_ONCE)));
        fill(rW, convert(dtype, immf(0)));
        for (int i = 0; i < AT_ONCE; i++) {
            val number = add(first, imm(i * THREADS)), there;
            val offset = filter_offset(k, number, vec, &there);
            IF(logical_and(there, lt(number, imm((int)count))))
                copy(elements_from(k->p.from[CONV_W], dtype, offset, vec), slice(rW, _, i), 2 * vec);
        }
        for (int i = 0; i < AT_ONCE; i++)
            IF(lt(add(first, imm(i * THREADS)), imm((int)count)))
                copy(slice(rW, _, i), slice(sFlat, _, add(first, imm(i * THREADS))), 2 * vec);
    }
}

/* Pixels */

/* Zeros where no copy comes: channels of the last unit that are not there. */
static void clear_halos(const narrow_kernel *k)
{
    const int words = k->size.halo; // two buffers of halves of words
    tensor sWords = smem_view(tensor_address(k->sHalo, coord(0, 0, 0, 0)), I32, compact(leaf(words)));
    LOOP_FROM(i, thread(), imm(words), imm(THREADS))
        set(sWords, i, imm(0));
}

/*
 * What lies under a tile, in lines that are contiguous in memory: rows of pixels or, in NCHW, of a channel. `width` threads side by side
 * share a line; each has every width-th piece of it.
 */
typedef struct halo_lines {
    int lines, pieces, of_pixel, width;
} halo_lines;

static halo_lines halo_lines_of(const narrow_kernel *k)
{
    const conv_narrow_config *c = k->cfg;
    const conv_narrow_shape *s = &k->size;
    halo_lines h = { .lines = s->halo_h, .of_pixel = s->real / c->vec, .width = 32 };
    if (c->nchw) {
        h.lines *= s->real;
        h.of_pixel = 1;
    }
    h.pieces = s->halo_w * h.of_pixel;
    while (h.width > 4 && h.width >= 2 * h.pieces)
        h.width /= 2;
    return h;
}

/* A thread's pieces of any line: is there such a one, is it inside, and bytes from where a line begins in memory and in the buffer. */
typedef struct line_pieces {
    val there[PIECES], inside[PIECES], offset[PIECES], to[PIECES];
} line_pieces;

static line_pieces pieces_from(const narrow_kernel *k, const halo_lines *l, const tile_place *place, val chunk,
                               val first)
{
    const conv_narrow_config *c = k->cfg;
    const val width = convert(I32, k->from_size[2]);
    line_pieces x;
    for (int i = 0; i < PIECES; i++) {
        val piece = add(first, imm(i * l->width)), column = div(piece, imm(l->of_pixel));
        val in_pixel = mul(rem(piece, imm(l->of_pixel)), imm(c->vec));
        val w = convert(I32, add(sub(mul(place->w, imm(c->step_w)), k->pad_w), convert(I32, column)));
        val channel = convert(I32, add(mul(chunk, imm(c->chunk)), in_pixel));
        x.there[i] = lt(piece, imm(l->pieces));
        x.inside[i] = logical_and(ge(w, imm(0)), lt(w, width));
        if (!c->nchw && k->size.chunks > 1)
            x.inside[i] = logical_and(x.inside[i], lt(channel, k->channels));
        val offset = mul(convert(I64, w), k->from[3]);
        offset = c->nchw ? offset : add(offset, convert(I64, channel));
        x.offset[i] = convert(U64, mul(offset, imm64(2)));
        x.to[i] = mul(add(mul(column, imm(k->size.pitch)), in_pixel), imm(2));
    }
    return x;
}

/* A line: is it inside, and where does it begin in memory and in the buffer? */
typedef struct line_start {
    val inside, address, to;
} line_start;

static line_start line_at(const narrow_kernel *k, const tile_place *place, val chunk, val line, val buffer)
{
    const conv_narrow_config *c = k->cfg;
    const conv_narrow_shape *s = &k->size;
    val row = c->nchw ? rem(line, imm(s->halo_h)) : line, in_chunk = c->nchw ? div(line, imm(s->halo_h)) : imm(0);
    val h = convert(I32, add(sub(mul(place->h, imm(c->step_h)), k->pad_h), convert(I32, row)));
    val channel = convert(I32, add(mul(chunk, imm(c->chunk)), in_chunk));
    val offset = add(mul(convert(I64, place->n), k->from[0]), mul(convert(I64, h), k->from[2]));
    offset = c->nchw ? add(offset, mul(convert(I64, channel), k->from[4])) : offset;
    val inside = logical_and(ge(h, imm(0)), lt(h, convert(I32, k->from_size[1])));
    return (line_start){ c->nchw ? logical_and(inside, lt(channel, k->channels)) : inside,
                         add(from_address(k), convert(U64, mul(offset, imm64(2)))),
                         tensor_address(k->sHalo, coord(in_chunk, 0, row, buffer)) };
}

/* By cp.async; single elements, which it does not copy, by registers, some of them under way together. */
static void copy_pieces(const narrow_kernel *k, const line_start *line, const line_pieces *x)
{
    const ckl_dtype dtype = k->cfg->form.dtype;
    const int bytes = 2 * k->cfg->vec;
    val element[PIECES];
    for (int i = 0; i < PIECES; i++) {
        val inside = logical_and(line->inside, x->inside[i]);
        val address = select(inside, add(line->address, x->offset[i]), from_address(k));
        if (k->cfg->vec == 1)
            element[i] = select(inside, at(gmem_tensor(address, dtype, compact(leaf(1))), 0), convert(dtype, immf(0)));
        else IF(x->there[i])
            cp_async(add(line->to, x->to[i]), address, bytes, select(inside, imm_as(U32, bytes), imm(0)));
    }
    for (int i = 0; k->cfg->vec == 1 && i < PIECES; i++)
        IF(x->there[i])
            set(smem_view(add(line->to, x->to[i]), dtype, compact(leaf(1))), 0, element[i]);
}

static void load_halo(const narrow_kernel *k, val tile, val chunk, val buffer)
{
    const halo_lines l = halo_lines_of(k);
    const tile_place place = place_of(k, tile);
    LOOP_FROM(first, rem(thread(), imm(l.width)), imm(l.pieces), imm(l.width * PIECES)) {
        const line_pieces x = pieces_from(k, &l, &place, chunk, first);
        LOOP_FROM(line, div(thread(), imm(l.width)), imm(l.lines), imm(THREADS / l.width)) {
            const line_start start = line_at(k, &place, chunk, line, buffer);
            copy_pieces(k, &start, &x);
        }
    }
}

/* Products */

/* Bytes from a pixel's first channel to unit number `unit` of a row of the filter. */
static int unit_bytes(const narrow_kernel *k, int unit)
{
    const int of_tap = k->cfg->chunk / UNIT;
    return 2 * (unit / of_tap * k->cfg->dilation_w * k->size.pitch + unit % of_tap * UNIT);
}

/* The 16 pixels `row` rows below the warp's first, at a step of K. Of an odd number of units the last one's second half is zeros. */
static void load_A(const narrow_kernel *k, val buffer, int step, int row)
{
    const int first = unit_bytes(k, 2 * step), second = unit_bytes(k, 2 * step + 1);
    const int64_t row_bytes = 2 * (int64_t)k->size.pitch * k->size.halo_w;
    const bool whole = 2 * step + 1 < k->size.units;
    val words[WORDS_A], at = add(buffer, bit_and(k->upper, imm(whole ? second - first : 0)));
    for (int i = 0; i < WORDS_A; i++)
        words[i] = at(k->rA, i);
    ldmatrix(add(at, imm((int)(first + row * row_bytes))), whole ? 4 : 2, words);
    for (int i = 2; !whole && i < WORDS_A; i++)
        set(k->rA, i, imm(0));
}

static void load_B(const narrow_kernel *k, val filters, int step, int row, int place)
{
    const int of_step = 4 * UNIT * k->cfg->tile_n, of_row = k->size.steps * of_step; // bytes
    for (int n = 0; n < k->cfg->tile_n / 8 && !ir_failed(); n++) {
        val words[] = { at(k->rB, 0, 0, 0, n, place), at(k->rB, 1, 0, 0, n, place) };
        ldmatrix(add(filters, imm(row * of_row + step * of_step + 16 * 8 * n)), 2, words);
    }
}

/* One step of `count` rows of the filter: each row of pixels that they see, times all those that see it. */
static void multiply_rows(const narrow_kernel *k, val buffer, val filters, int step, int first, int count)
{
    const conv_narrow_config *c = k->cfg;
    for (int r = 0; r < count; r++)
        load_B(k, filters, step, first + r, r);
    for (int h = 0; h <= (M - 1) * c->step_h + (count - 1) * c->dilation_h && !ir_failed(); h++) {
        bool loaded = false;
        for (int r = 0; r < count; r++) {
            const int m = (h - r * c->dilation_h) / c->step_h;
            if (h < r * c->dilation_h || (h - r * c->dilation_h) % c->step_h || m >= M)
                continue;
            if (!loaded)
                load_A(k, buffer, step, h + first * c->dilation_h);
            loaded = true;
            for (int n = 0; n < c->tile_n / 8; n++)
                gemm(&k->mma, k->rA, slice(k->rB, _, _, _, n, r), local_tile(k->acc, shape(4, 1, 1), coord(0, m, n)),
                     yes());
        }
    }
}

static void multiply(const narrow_kernel *k, val buffer, val chunk)
{
    val pixels = add(k->pixel, mul(buffer, imm(2 * k->size.halo)));
    val filters = add(k->filter, mul(chunk, imm((int)(2 * k->size.filter))));
    for (int step = 0; step < k->size.steps && !ir_failed(); step++)
        for (int first = 0; first < k->cfg->rows; first += ROWS_AT_ONCE)
            multiply_rows(k, pixels, filters, step, first,
                          k->cfg->rows - first < ROWS_AT_ONCE ? k->cfg->rows - first : ROWS_AT_ONCE);
}

/* The epilogue */

/* The first of a thread's two neighbouring channels of an atom. */
static val channel_at(int n)
{
    return convert(I32, add(mul(rem(lane(), imm(4)), imm(2)), imm(8 * n)));
}

static void load_vectors(narrow_kernel *k)
{
    const conv_form *form = &k->cfg->form;
    for (int i = 0; i < k->cfg->tile_n / 4 && !ir_failed(); i++) {
        val channel = convert(I64, min(add(channel_at(i / 2), imm(i % 2)), sub(k->outputs, imm(1))));
        if (form->bias)
            k->bias[i] = at_f32(elements_from(k->p.bias, form->out, channel, 1), 0);
        if (form->scale)
            k->scale[i] = at(elements_from(k->p.scale, F32, channel, 1), 0);
    }
}

/* Where two neighbouring channels of a pixel lie: addresses, and its place. */
typedef struct pixel_places {
    val y[2], residual[2];
    conv_place place; // of the pixel
} pixel_places;

static val finished(const narrow_kernel *k, const pixel_places *at, int j, int i, val x)
{
    const conv_form *form = &k->cfg->form;
    conv_element in = { .sum = x, .scale = k->scale[i], .bias = k->bias[i] };
    if (form->residual)
        in.residual = at_f32(gmem_tensor(at->residual[j], form->out, compact(leaf(1))), 0);
    conv_place place = at->place;
    place.channel = add(channel_at(i / 2), imm(j));
    return convert(form->out, conv_finish(form, in, &place));
}

/* Two neighbouring channels of a pixel. */
static void store_channels(const narrow_kernel *k, const pixel_places *at, val inside, int m, int n, int below)
{
    const ckl_dtype out = k->cfg->form.out;
    val channel = channel_at(n);
    if (k->cfg->pairs) {
        IF(logical_and(inside, lt(channel, k->outputs))) {
            tensor rY = fragment(out, compact(leaf(2)));
            for (int j = 0; j < 2; j++)
                set(rY, j, finished(k, at, j, 2 * n + j, at(k->acc, 2 * below + j, m, n)));
            copy(rY, gmem_tensor(at->y[0], out, compact(leaf(2))), 2 * (int)ckl_dtype_bytes(out));
        }
        return;
    }
    for (int j = 0; j < 2; j++)
        IF(logical_and(inside, lt(add(channel, imm(j)), k->outputs)))
            set(gmem_tensor(at->y[j], out, compact(leaf(1))), 0,
                finished(k, at, j, 2 * n + j, at(k->acc, 2 * below + j, m, n)));
}

static pixel_places moved(const pixel_places *at, val bytes)
{
    return (pixel_places){ { add(at->y[0], bytes), add(at->y[1], bytes) },
                           { add(at->residual[0], bytes), add(at->residual[1], bytes) },
                           at->place };
}

/* NOTE: addresses are sums outside of the predicates: products, or sums under predicates, made ptxas spill thousands of bytes. */
static void store_pixel(const narrow_kernel *k, const tile_place *place, val start, int m, int below)
{
    val h = add(place->h, convert(I32, add(mul(warp(), imm(M)), imm(m))));
    val w = add(place->w, convert(I32, add(div(lane(), imm(4)), imm(8 * below))));
    val inside = logical_and(lt(h, convert(I32, k->to_size[1])), lt(w, convert(I32, k->to_size[2])));
    val index = add(start, add(mul(convert(I64, h), k->to[2]), mul(convert(I64, w), k->to[3])));
    const int64_t bytes = (int64_t)ckl_dtype_bytes(k->cfg->form.out);
    val offset = convert(U64, mul(index, imm64(bytes))),
        step = convert(U64, mul(k->cfg->nchw ? k->to[4] : imm64(1), imm64(bytes)));
    val y = add(k->p.from[k->cfg->form.direction == CKL_CONV_DATA ? CONV_X : CONV_Y], offset),
        residual = add(k->p.residual, offset);
    pixel_places at = { { y, add(y, step) },
                        { residual, add(residual, step) },
                        { place->n, { imm(0), h, w }, imm(0) } };
    for (int n = 0; n < k->cfg->tile_n / 8 && !ir_failed(); n++) {
        store_channels(k, &at, inside, m, n, below);
        at = moved(&at, mul(step, imm_as(U64, 8)));
    }
}

static void store_tile(const narrow_kernel *k, val tile)
{
    const tile_place place = place_of(k, tile);
    val start = add(mul(convert(I64, place.n), k->to[0]), mul(convert(I64, channel_at(0)), k->to[4]));
    for (int m = 0; m < M; m++)
        for (int below = 0; below < 2; below++)
            store_pixel(k, &place, start, m, below);
}

/* The next chunk is on its way while one is multiplied. */
static void loop_tiles(const narrow_kernel *k)
{
    const int last = k->size.chunks - 1;
    val buffer = variable(U32, imm(0));
    IF(lt(cta_x(), k->count))
        load_halo(k, cta_x(), imm(0), buffer);
    cp_async_commit();
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        fill(k->acc, immf(0));
        LOOP(chunk, imm(last + 1)) {
            val ends = eq(chunk, imm(last)), next = select(ends, add(tile, grid_x()), tile);
            cp_async_wait(0);
            cta_sync(); // the chunk is there, and the other buffer has been read
            IF(lt(next, k->count))
                load_halo(k, next, select(ends, imm(0), add(chunk, imm(1))), sub(imm(1), buffer));
            cp_async_commit();
            multiply(k, buffer, chunk);
            assign(buffer, sub(imm(1), buffer));
        }
        store_tile(k, tile);
    }
    cp_async_wait(0);
}

void conv_narrow(const void *config, int kernel)
{
    const conv_narrow_config *cfg = config;
    (void)kernel;
    narrow_kernel k = { .cfg = cfg, .size = conv_narrow_shape_of(cfg) };
    launch_bounds(THREADS, cfg->ctas);
    k.p = params_of(conv);
    describe_sides(&k);
    describe_memory(&k);
    describe_threads(&k);
    grid_wait();
    launch_dependents();
    if (k.size.real < cfg->chunk)
        clear_halos(&k);
    load_filters(&k);
    cta_sync(); // zeros, and after them copies
    load_vectors(&k);
    loop_tiles(&k);
}
