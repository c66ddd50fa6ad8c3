/*
 * conv_narrow.c - few filters: the pixels below a tile are read once, and mma.sync takes each tap's from shared memory.
 *
 * A CTA keeps all filters in shared memory. It copies the pixels below a tile, 16 columns by 16 rows, some channels at
 * a time, into one of two buffers while the other is multiplied. A warp has 4 rows; a row of pixels is read once for
 * all rows of a filter that see it. The gradient of data is the forward problem of dy, with
 * filters turned round.
 */
#include "cute/kernel.h"
#include "operators/conv/conv_narrow_kernel.h"
#include "operators/conv/conv_packed.h"
#include "operators/conv/conv_wait.h"

enum {
    THREADS = CONV_NARROW_THREADS,
    UNIT = CONV_NARROW_UNIT,
    M = CONV_NARROW_M,
    ROWS = CONV_NARROW_ROWS,
    WORDS_A = 4,
    WORDS_B = 2,
};

static void describe_tiles(narrow_kernel *k)
{
    const conv_values *p = &k->p;
    k->channels = convert(I32, p->c);
    k->outputs = convert(I32, p->k);
    k->grid = conv_tile_grid_of(p, CONV_NARROW_W, CONV_NARROW_H, 1);
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

/* A lane's rows for ldmatrix: of A a pixel and half of a step, of B a filter and half of a step. */
static void describe_threads(narrow_kernel *k)
{
    const conv_narrow_config *c = k->cfg;
    k->mma = make_tiled_mma(mma_sync_atom(c->form.dtype), 1, 1);
    k->rA = fragment(U32, compact(shape(WORDS_A, 1, 1)));
    k->rB = fragment(U32, compact(shape(WORDS_B, 1, 1, c->tile_n / 8, ROWS)));
    k->acc = fragment_C(&k->mma, 16 * M, c->tile_n);
    val column = mul(thread_at(lane(), 0, 16, 2), imm(c->step_w)), row = mul(warp(), imm(M * c->step_h));
    k->pixel = tensor_address(k->sHalo, coord(0, column, row, 0));
    k->upper = sub(imm(0), thread_at(lane(), 1, 16, 2));
    k->filter =
        tensor_address(k->sW, coord(0, thread_at(lane(), 0, 8, 4), rem(thread_at(lane(), 1, 8, 4), imm(2)), 0, 0, 0));
}

/* Products */

/* Bytes from a pixel's first channel to unit number `unit` of a row of the filter. */
static int unit_bytes(const narrow_kernel *k, int unit)
{
    const int of_tap = k->cfg->chunk / UNIT;
    return 2 * (unit / of_tap * k->cfg->dilation_w * k->size.pitch + unit % of_tap * UNIT);
}

/*
 * The 16 pixels `row` rows below the warp's first, at a step of K. Where units are odd in number, the last step's
 * second half is zeros.
 */
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
    UNROLL(n, k->cfg->tile_n / 8) {
        val words[] = { at(k->rB, 0, 0, 0, n, place), at(k->rB, 1, 0, 0, n, place) };
        ldmatrix(add(filters, imm(row * of_row + step * of_step + 16 * 8 * n)), 2, words);
    }
}

/* One step of `count` rows of the filter: each row of pixels times all those rows that see it. */
static void multiply_rows(const narrow_kernel *k, val buffer, val filters, int step, int first, int count)
{
    const conv_narrow_config *c = k->cfg;
    for (int r = 0; r < count; r++)
        load_B(k, filters, step, first + r, r);
    for (int h = 0; h <= (M - 1) * c->step_h + (count - 1) * c->dilation_h && describing(); h++) {
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
    UNROLL(step, k->size.steps)
        for (int first = 0; first < k->cfg->rows; first += ROWS)
            multiply_rows(k, pixels, filters, step, first, k->cfg->rows - first < ROWS ? k->cfg->rows - first : ROWS);
}

/* The epilogue */

/* The first of a thread's two neighbouring channels of an atom. */
static val channel_at(int n)
{
    return convert(I32, add(mul(thread_at(lane(), 0, 4, 8), imm(2)), imm(8 * n)));
}

static void load_vectors(narrow_kernel *k)
{
    const conv_form *form = &k->cfg->form;
    UNROLL(i, k->cfg->tile_n / 4) {
        val channel = convert(I64, min(add(channel_at(i / 2), imm(i % 2)), sub(k->outputs, imm(1))));
        if (form->bias)
            k->bias[i] = at_f32(conv_run_at(k->p.bias, form->out, channel, 1), 0);
        if (form->scale)
            k->scale[i] = at(conv_run_at(k->p.scale, F32, channel, 1), 0);
    }
}

/* Where two neighbouring channels of a pixel lie. */
typedef struct pixel_places {
    val y[2], residual[2];
    val pixel; // its number, for a custom epilogue
} pixel_places;

static val finished(const narrow_kernel *k, const pixel_places *at, int j, int i, val x)
{
    const conv_form *form = &k->cfg->form;
    conv_element in = { .sum = x, .scale = k->scale[i], .bias = k->bias[i] };
    if (form->residual)
        in.residual = at_f32(gmem_tensor(at->residual[j], form->out, compact(leaf(1))), 0);
    if (conv_is_custom(form)) {
        in.pixel = at->pixel;
        in.channel = add(channel_at(i / 2), imm(j));
    }
    return convert(form->out, conv_finish(form, in));
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
                           at->pixel };
}

/*
 * NOTE: addresses are computed outside the predicates, as sums: products, or sums under predicates, made ptxas spill
 * thousands of bytes.
 */
static void store_pixel(const narrow_kernel *k, const conv_tile_place *place, val start, int m, int below)
{
    val h = convert(I32, add(place->h, add(mul(warp(), imm(M)), imm(m))));
    val w = convert(I32, add(place->w, add(thread_at(lane(), 1, 4, 8), imm(8 * below))));
    val inside = logical_and(lt(h, convert(I32, k->p.y_size[1])), lt(w, convert(I32, k->p.y_size[2])));
    val index = add(start, add(mul(convert(I64, h), k->p.y[2]), mul(convert(I64, w), k->p.y[3])));
    const int64_t bytes = (int64_t)ckl_dtype_bytes(k->cfg->form.out);
    val offset = convert(U64, mul(index, imm64(bytes))), step = imm_as(U64, bytes);
    val y = add(k->p.from[CONV_Y], offset), residual = add(k->p.residual, offset);
    pixel_places at = { { y, add(y, step) }, { residual, add(residual, step) }, { 0 } };
    if (conv_is_custom(&k->cfg->form))
        at.pixel = conv_pixel_at(&k->p, place->n, (const val[]){ imm(0), h, w });
    UNROLL(n, k->cfg->tile_n / 8) {
        store_channels(k, &at, inside, m, n, below);
        at = moved(&at, mul(step, imm_as(U64, 8)));
    }
}

static void store_tile(const narrow_kernel *k, val tile)
{
    const conv_tile_place place = conv_tile_at(&k->grid, tile);
    val start = add(mul(convert(I64, place.n), k->p.y[0]), mul(convert(I64, channel_at(0)), k->p.y[4]));
    for (int m = 0; m < M; m++)
        for (int below = 0; below < 2; below++)
            store_pixel(k, &place, start, m, below);
}

/* The next chunk is loaded while one is multiplied. */
static void loop_tiles(const narrow_kernel *k)
{
    const int last = k->size.chunks - 1;
    val buffer = variable(U32, imm(0));
    IF(lt(cta_x(), k->grid.count))
        conv_narrow_load(k, cta_x(), imm(0), buffer);
    cp_async_commit();
    LOOP_FROM(tile, cta_x(), k->grid.count, grid_x()) {
        fill(k->acc, immf(0));
        LOOP(chunk, imm(last + 1)) {
            val ends = eq(chunk, imm(last)), next = select(ends, add(tile, grid_x()), tile);
            cp_async_wait(0);
            cta_sync(); // the chunk has arrived, and the other buffer has been read
            IF(lt(next, k->grid.count))
                conv_narrow_load(k, next, select(ends, imm(0), add(chunk, imm(1))), sub(imm(1), buffer));
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
    if (kernel == CONV_NARROW_COPY) {
        conv_pack(cfg->form.dtype, false, false, false);
        return;
    }
    narrow_kernel k = { .cfg = cfg, .size = conv_narrow_shape_of(cfg) };
    launch_bounds(THREADS, cfg->ctas);
    k.p = params_of(conv);
    describe_tiles(&k);
    describe_memory(&k);
    describe_threads(&k);
    conv_wait(&k.p);
    if (k.size.real < cfg->chunk)
        conv_narrow_clear(&k);
    conv_narrow_load_filters(&k);
    cta_sync(); // zeros, and after them copies
    load_vectors(&k);
    loop_tiles(&k);
}
