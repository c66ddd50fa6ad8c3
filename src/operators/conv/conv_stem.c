/*
 * conv_stem.c - up to 64 channels, as first layers have, on Hopper, and up to 128 filters at once; K is all channels at
 * all taps.
 *
 * A CTA keeps the filters in shared memory. A tile is 16 columns by 8 rows of y, of planes with an odd number of
 * columns up to 128 pixels that follow each other. All threads load the pixels of x below it into one of two buffers,
 * 4, 8, 16 ... channels each (zeros for absent ones), while the tile before is multiplied. A warp has 16 pixels of y;
 * it gathers what they see into registers, wgmma's A, word by word: two channels of a pixel. The offsets of a tap's
 * words are constants, but where lanes have one of two taps. More than 8 channels are gathered by ldmatrix, 8 of them
 * at a time.
 *
 * NHWC is stored through staging buffers by TMA, if filters are whole 16 bytes. In NCHW a thread stores pairs of
 * columns. What begins anywhere, other filters and rows of planes, goes through shared memory, and from there by
 * vectors but for its ends.
 */
#include <stdio.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_roles.h"
#include "operators/conv/conv_stem_kernel.h"
#include "operators/conv/conv_wait.h"

enum {
    WARPGROUP = CONV_WARPGROUP,
    BARRIER_CONSUMER = 1, // + warpgroup: its 128 threads round the staging buffers
    ROWS = CONV_SM90_ROWS,
    STEPS_AT_ONCE = CONV_STEM_STEPS_AT_ONCE,
    WORDS = 4, // of a thread's A in a step: pixels 0 and 1, then both 8 elements of K further on
};

static void describe_memory(stem_kernel *k)
{
    const conv_stem_config *c = k->cfg;
    const conv_stem_shape *s = &k->size;
    const int y_box[] = { s->y_cols, CONV_STEM_W, ROWS / CONV_STEM_W, 1, 1 },
              span = s->y_cols * (int)ckl_dtype_bytes(c->form.out);
    k->sW = tma_ring("W", c->form.dtype, c->tile_n, CONV_STEM_K, s->steps);
    k->sHalo = smem_tensor("halo", c->form.dtype, compact(shape(s->halo, 2)), 128);
    if (!c->direct) {
        k->sY = tma_tiles("Y", c->form.out, ROWS, s->y_cols, c->tile_n / s->y_cols, CONV_STEM_CONSUMERS);
        k->tmaY = make_tma_box(k->p.mY, c->form.out, 5, y_box, NULL, span);
    }
    if (s->y_rows) {
        const int rows = s->y_rows, pitch = s->y_pitch;
        k->sRows = smem_tensor("rows", c->form.out,
                               make_layout(shape(pitch, rows, s->y_parts), stride(1, pitch, pitch * rows)), 16);
    }
}

static void describe_threads(stem_kernel *k)
{
    char atom[ATOM_NAME_MAX];
    snprintf(atom, sizeof atom, "SM90_64x%dx16_%s_RS", k->cfg->tile_n,
             k->cfg->form.dtype == F16 ? "F32F16F16" : "F32BF16BF16");
    k->mma = make_tiled_mma(atom, 1, 1);
    k->tCrW = descriptors_B(&k->mma, k->sW);
    k->acc = fragment_C(&k->mma, ROWS, k->cfg->tile_n);
    k->rA = fragment_A_words(&k->mma, ROWS, CONV_STEM_K * STEPS_AT_ONCE);
    k->group = warpgroup();
    k->tid = warpgroup_thread();
    k->warp_row = warp();
    k->lane = thread_at(thread(), 0, 32, CONV_STEM_THREADS / 32);
    k->grid = conv_tile_grid_of(&k->p, k->cfg->tile_w, k->cfg->tile_h, 1);
    k->first = k->cfg->several ? mul(cta_y(), imm(k->cfg->tile_n)) : imm(0);
}

/* Products */

/* Bytes from the pixel under a filter's first tap to that under another one. */
static int tap_bytes(const stem_kernel *k, int tap)
{
    const conv_stem_config *c = k->cfg;
    return 2 * k->size.pitch * (tap / c->columns * c->dilation_h * k->size.halo_w + tap % c->columns * c->dilation_w);
}

/* A word of shared memory at a constant distance. */
static val word_at(val address, int bytes)
{
    return convert(U32, at(smem_view(address, I32, compact(leaf(bytes / 4 + 1))), bytes / 4));
}

/* A lane's pixels in a buffer: both addresses, or the first one and bytes between them. */
typedef struct lane_pixels {
    val at[2];
    int between;
} lane_pixels;

/*
 * The words of one half of a step, 8 elements of K, for a thread's two pixels. With 8 channels they are one tap's. With
 * 4 they are two taps', and half of the lanes have the second: `second` is 0 or all ones.
 */
static void gather_half(const stem_kernel *k, const lane_pixels *pixels, val second, int half)
{
    const int step = half / 2, per_half = 8 / k->size.padded, tap = half * per_half;
    const bool two = per_half == 2 && tap + 1 < k->size.taps, cut = per_half == 2 && tap + 1 == k->size.taps;
    for (int i = 0; i < 2; i++) {
        val pixel = pixels->at[pixels->between ? 0 : i];
        val from = two ? add(pixel, bit_and(second, imm(tap_bytes(k, tap + 1) - tap_bytes(k, tap)))) : pixel;
        val word = tap < k->size.taps ? word_at(from, tap_bytes(k, tap) + i * pixels->between) : imm(0);
        word = cut ? bit_and(word, bit_not(second)) : word;
        set(k->rA, coord(2 * (half % 2) + i, 0, step % STEPS_AT_ONCE), word);
    }
}

/* Bytes from the pixel under a filter's first tap to 8 elements of K of more than 8 channels. */
static int half_bytes(const stem_kernel *k, int half)
{
    const int of_tap = k->size.padded / 8;
    return tap_bytes(k, half / of_tap) + half % of_tap * 16;
}

/* A step of more than 8 channels, of 16 pixels: lanes have one of these and one half. The last half may not exist. */
static void gather_step(const stem_kernel *k, val pixel, val second, int step)
{
    const int first = half_bytes(k, 2 * step), halves = k->size.taps * k->size.padded / 8, place = step % STEPS_AT_ONCE;
    const bool whole = 2 * step + 1 < halves;
    val words[WORDS], from = whole ? add(pixel, bit_and(second, imm(half_bytes(k, 2 * step + 1) - first))) : pixel;
    for (int i = 0; i < WORDS; i++)
        words[i] = at(k->rA, i, 0, place);
    ldmatrix(add(from, imm(first)), whole ? WORDS : 2, words);
    for (int i = 2; !whole && i < WORDS; i++)
        set(k->rA, coord(i, 0, place), imm(0));
}

/*
 * Some steps, whose words are in registers together; more would leave an SM fewer CTAs, and to gather the next ones
 * while these are multiplied was slower (bench/notes/conv.md). The last wgmmas are not waited for.
 */
static void multiply_steps(const stem_kernel *k, const lane_pixels *pixels, val second, int first)
{
    const int last = first + STEPS_AT_ONCE < k->size.steps ? first + STEPS_AT_ONCE : k->size.steps;
    if (first > 0)
        mma_wait(0);
    for (int half = 2 * first; half < 2 * last && k->size.padded <= 8 && describing(); half++)
        gather_half(k, pixels, second, half);
    for (int step = first; step < last && k->size.padded > 8 && describing(); step++)
        gather_step(k, pixels->at[0], second, step);
    mma_fence();
    for (int step = first; step < last && describing(); step++)
        gemm(&k->mma, local_tile(k->rA, shape(WORDS, 1, 1), coord(0, 0, step % STEPS_AT_ONCE)),
             slice(k->tCrW, _, _, step), k->acc, step ? yes() : no());
    mma_commit();
}

/* A lane's pixel for ldmatrix: of columns c and c + 8 or, in NCHW, of neighbouring ones. */
static val column_of_lane(const stem_kernel *k)
{
    val of_group = rem(k->lane, imm(8)), other = rem(div(k->lane, imm(8)), imm(2));
    return k->cfg->nchw ? add(mul(of_group, imm(2)), other) : rem(k->lane, imm(16));
}

/* A pixel of a tile: where it lies there. */
typedef struct tile_pixel {
    val h, w;
} tile_pixel;

/* Pixel `number` of a warp, counted along the rows of a tile; beyond them the last one. */
static tile_pixel pixel_of_warp(const stem_kernel *k, val number)
{
    const int width = k->cfg->tile_w;
    val of_tile = min(add(mul(k->warp_row, imm(CONV_STEM_W)), number), imm(width * k->cfg->tile_h - 1));
    val h = div(of_tile, imm(width));
    return (tile_pixel){ h, sub(of_tile, mul(h, imm(width))) };
}

/* The address in a buffer of what it sees first. */
static val address_of(const stem_kernel *k, val buffer, val number)
{
    const conv_stem_config *c = k->cfg;
    const tile_pixel at = pixel_of_warp(k, number);
    val pixel = add(mul(at.h, imm(c->step_h * k->size.halo_w)), mul(at.w, imm(c->step_w)));
    val first = add(tensor_address(k->sHalo, coord(0, 0)), mul(buffer, imm(2 * k->size.halo)));
    return add(first, mul(pixel, imm(2 * k->size.pitch)));
}

static void multiply_wide(const stem_kernel *k, val buffer)
{
    const lane_pixels pixels = { .at = { address_of(k, buffer, column_of_lane(k)) } };
    val second = sub(imm(0), div(k->lane, imm(16)));
    for (int first = 0; first < k->size.steps && describing(); first += STEPS_AT_ONCE)
        multiply_steps(k, &pixels, second, first);
}

static void multiply(const stem_kernel *k, val buffer)
{
    const conv_stem_config *c = k->cfg;
    const int apart = c->nchw ? 1 : 8; // columns from a thread's first pixel to its second
    val number = mul(div(k->lane, imm(4)), imm(c->nchw ? 2 : 1)), word = rem(k->lane, imm(4)); // of 8 elements of K
    val of_tap = k->size.padded == 8 ? word : rem(word, imm(2)), second = sub(imm(0), div(word, imm(2)));
    lane_pixels pixels = { .between = conv_stem_is_flat(c) ? 0 : apart * c->step_w * 2 * k->size.padded };
    for (int i = 0; i < (pixels.between ? 1 : 2); i++)
        pixels.at[i] = add(address_of(k, buffer, add(number, imm(i * apart))), mul(of_tap, imm(4)));
    for (int first = 0; first < k->size.steps && describing(); first += STEPS_AT_ONCE)
        multiply_steps(k, &pixels, second, first);
}

/* The epilogue */

static tensor coordinates_of(const stem_kernel *k)
{
    return partition_C(&k->mma, identity_tensor(shape(ROWS, k->cfg->tile_n)), k->tid); // (MMA,1,1)
}

/* Where element i of the accumulators lies in y: a warp has a row of a tile; in NCHW its two pixels are neighbours. */
static void set_place(const stem_kernel *k, const conv_tile_place *place, int i, conv_element *in)
{
    tensor tCcY = coordinates_of(k);
    val row = rem(coordinate(tCcY, 0, i), imm(CONV_STEM_W)), first = rem(row, imm(8)), second = div(row, imm(8));
    val column = k->cfg->nchw ? add(mul(first, imm(2)), second) : row;
    const tile_pixel pixel = pixel_of_warp(k, column);
    const val at[] = { imm(0), add(place->h, pixel.h), add(place->w, pixel.w) };
    in->pixel = conv_pixel_at(&k->p, place->n, at);
    in->channel = add(k->first, coordinate(tCcY, 1, i));
}

static void finish(const stem_kernel *k, const conv_tile_place *place)
{
    const conv_form *form = &k->cfg->form;
    layout along = coordinate_distances(coordinates_of(k), 1);
    UNROLL(i, static_size(k->acc.layout)) {
        const int64_t column = index_at(along, i);
        conv_element in = { .sum = at_f32(k->acc, i),
                            .scale = k->vectors.scale[column],
                            .bias = k->vectors.bias[column] };
        if (conv_is_custom(form))
            set_place(k, place, i, &in);
        set(k->acc, i, conv_finish(form, in));
    }
}

static void store_staged(const stem_kernel *k, const conv_tile_place *place)
{
    const int width = k->size.y_cols, count = k->cfg->tile_n / width;
    const tiled_mma mma = conv_mma_of(k->cfg->form.dtype, width);
    staged_store staged = { add(k->group, imm(BARRIER_CONSUMER)), WARPGROUP, eq(k->tid, imm(0)) };
    val h = add(place->h, mul(k->group, imm(ROWS / CONV_STEM_W)));
    UNROLL(i, count) {
        tensor acc = slice(accumulator_columns(k->acc, i * width, width), _, 0, _),
               sY = slice(k->sY, _, _, i, k->group);
        const val outer[] = { h, imm(0), place->n };
        if (i == 0)
            staging_wait(&staged, 0);
        conv_write_staging(&mma, acc, sY, k->tid);
        STAGED_STORE(&staged)
            tma_store_of(&k->tmaY, sY, place->w, add(k->first, imm(i * width)), 3, outer);
    }
}

/* NCHW with an even number of columns: accumulators i and i + 2 are neighbouring ones of one channel. */
static void store_pairs(const stem_kernel *k, const conv_tile_place *place)
{
    const ckl_dtype out = k->cfg->form.out;
    tensor tCcY = coordinates_of(k);
    val h = add(place->h, k->warp_row), w = add(place->w, mul(div(k->lane, imm(4)), imm(2)));
    val start = add(mul(convert(I64, place->n), k->p.y[0]), mul(convert(I64, h), k->p.y[2]));
    start = add(start, mul(convert(I64, w), k->p.y[3]));
    val row = lt(h, conv_number(k->p.y_size[1])), width = conv_number(k->p.y_size[2]);
    UNROLL(i, static_size(k->acc.layout)) {
        if (i % 4 > 1)
            continue;
        val channel = add(k->first, coordinate(tCcY, 1, i)),
            inside = logical_and(row, lt(channel, conv_number(k->p.k)));
        tensor gY = conv_run_at(k->p.from[CONV_Y], out, add(start, mul(convert(I64, channel), k->p.y[4])), 2);
        tensor rY = fragment(out, compact(leaf(2)));
        for (int j = 0; j < 2; j++)
            set(rY, j, convert(out, at(k->acc, i + 2 * j)));
        IF(logical_and(inside, lt(w, width)))
            copy(rY, gY, 2 * (int)ckl_dtype_bytes(out));
    }
}

/* Neighbours in y: the address of the first run, elements from a run to the next one, and of a run. */
typedef struct y_runs {
    val address, apart, count;
} y_runs;

/* Bytes from whole 16 to a run. */
static val shift_of(const y_runs *runs, ckl_dtype out, val number)
{
    val apart = mul(convert(U32, runs->apart), imm((int)ckl_dtype_bytes(out)));
    return bit_and(add(convert(U32, runs->address), mul(number, apart)), imm(15));
}

/* Lanes that store a run of up to 128 elements. */
static int lanes_of_run(const stem_kernel *k)
{
    return CONV_STEM_PIXELS * (int)ckl_dtype_bytes(k->cfg->form.out) / 16;
}

/*
 * A run by so many lanes, from shared memory, where it is as far from whole 16 bytes as in y: vectors of 16 bytes, and
 * single elements before the first and behind the last of them.
 */
static void store_run(const stem_kernel *k, const y_runs *runs, int lanes, val from, val number)
{
    const ckl_dtype out = k->cfg->form.out;
    const int bytes = (int)ckl_dtype_bytes(out), vector = 16 / bytes;
    val lane = rem(k->lane, imm(lanes));
    val shift = shift_of(runs, out, number), begin = div(shift, imm(bytes)), end = add(begin, runs->count);
    val whole = gmem_address(runs->address, out, mul(convert(I64, number), runs->apart));
    whole = sub(whole, convert(U64, shift));
    LOOP_FROM(e, mul(lane, imm(vector)), end, imm(lanes * vector))
        IF(logical_and(ge(e, begin), le(add(e, imm(vector)), end)))
            copy(smem_view(add(from, mul(e, imm(bytes))), out, compact(leaf(vector))),
                 conv_run_at(whole, out, convert(I64, e), vector), 16);
    val first = mul(div(add(begin, imm(vector - 1)), imm(vector)), imm(vector)),
        behind = max(first, mul(div(end, imm(vector)), imm(vector)));
    val before = lt(lane, imm(vector)), e = select(before, lane, sub(add(behind, lane), imm(vector)));
    val single = select(before, gt(begin, imm(0)), lt(lane, imm(2 * vector)));
    IF(logical_and(single, logical_and(ge(e, begin), lt(e, end))))
        set(conv_run_at(whole, out, convert(I64, e), 1), 0,
            at(smem_view(add(from, mul(e, imm(bytes))), out, compact(leaf(1))), 0));
}

/* Accumulators of some channels to the CTA's rows in shared memory. */
static void gather_shifted(const stem_kernel *k, const y_runs *runs, int first, int count)
{
    const ckl_dtype out = k->cfg->form.out;
    const int bytes = (int)ckl_dtype_bytes(out);
    layout along = coordinate_distances(coordinates_of(k), 1);
    val pixel = add(mul(k->warp_row, imm(CONV_STEM_W)), mul(div(k->lane, imm(4)), imm(2)));
    val channel = coordinate(coordinates_of(k), 1, 0), to = tensor_address(k->sRows, coord(pixel, channel, 0));
    UNROLL(i, static_size(k->acc.layout)) {
        const int distance = (int)index_at(along, i);
        if (i % 4 > 1 || distance < first || distance >= first + count)
            continue;
        val shifted = add(to, shift_of(runs, out, add(channel, imm(distance))));
        tensor sY = smem_view(add(shifted, imm((distance - first) * k->size.y_pitch * bytes)), out, compact(leaf(2)));
        for (int j = 0; j < 2; j++)
            set(sY, j, convert(out, at(k->acc, i + 2 * j)));
    }
}

/* NCHW of any number of columns: a run of pixels for each channel, some channels at a time. */
static void store_planes(const stem_kernel *k, const conv_tile_place *place)
{
    const ckl_dtype out = k->cfg->form.out;
    const int row_bytes = k->size.y_pitch * (int)ckl_dtype_bytes(out);
    val start = add(mul(convert(I64, place->n), k->p.y[0]), mul(convert(I64, place->h), k->p.y[2]));
    start = add(start, add(mul(convert(I64, place->w), k->p.y[3]), mul(convert(I64, k->first), k->p.y[4])));
    val rows = min(sub(conv_number(k->p.y_size[1]), place->h), imm(k->cfg->tile_h)),
        columns = min(sub(conv_number(k->p.y_size[2]), place->w), imm(k->cfg->tile_w));
    const y_runs runs = { gmem_address(k->p.from[CONV_Y], out, start), k->p.y[4], mul(rows, columns) };
    const int lanes = lanes_of_run(k);
    val last = sub(conv_number(k->p.k), k->first), own = div(thread(), imm(lanes));
    for (int n = 0; n < k->cfg->tile_n && describing(); n += CONV_STEM_PLANES) {
        const int count = (int)min_i64(CONV_STEM_PLANES, k->cfg->tile_n - n);
        gather_shifted(k, &runs, n, count);
        cta_sync();
        LOOP_FROM(channel, add(own, imm(n)), min(last, imm(n + count)), imm(CONV_STEM_THREADS / lanes))
            store_run(k, &runs, lanes,
                      add(tensor_address(k->sRows, coord(0, 0, 0)), mul(sub(channel, imm(n)), imm(row_bytes))),
                      channel);
        cta_sync();
    }
}

/*
 * Accumulators to a warp's pixels in shared memory, which are runs of their own or, `apart` elements from each other,
 * all of one.
 */
static void gather_pixels(const stem_kernel *k, const y_runs *runs, val filters, val apart)
{
    const ckl_dtype out = k->cfg->form.out;
    const int bytes = (int)ckl_dtype_bytes(out);
    layout along = coordinate_distances(coordinates_of(k), 1);
    val channel = coordinate(coordinates_of(k), 1, 0), to[2];
    for (int i = 0; i < 2; i++) {
        val pixel = add(div(k->lane, imm(4)), imm(8 * i));
        val element = add(mul(pixel, apart), channel);
        to[i] = add(tensor_address(k->sRows, coord(0, 0, k->warp_row)), mul(element, imm(bytes)));
        to[i] = add(to[i], shift_of(runs, out, k->cfg->several ? pixel : imm(0)));
    }
    UNROLL(i, static_size(k->acc.layout)) {
        const int distance = (int)index_at(along, i);
        if (i % 4 < 2)
            IF(lt(add(channel, imm(distance)), filters))
                for (int j = 0; j < 2; j++)
                    set(smem_view(add(to[j], imm(distance * bytes)), out, compact(leaf(1))), 0,
                        convert(out, at(k->acc, i + 2 * j)));
    }
}

/*
 * NHWC where filters are not whole 16 bytes: what a warp's row has of each pixel, or of all of them if that is side by
 * side in y.
 */
static void store_pixels(const stem_kernel *k, const conv_tile_place *place)
{
    const ckl_dtype out = k->cfg->form.out;
    const int pitch = k->size.y_pitch, lanes = k->cfg->several ? lanes_of_run(k) : 32;
    val h = add(place->h, k->warp_row), width = min(sub(conv_number(k->p.y_size[2]), place->w), imm(CONV_STEM_W));
    val filters = min(sub(conv_number(k->p.k), k->first), imm(k->cfg->tile_n));
    val start = add(mul(convert(I64, place->n), k->p.y[0]), mul(convert(I64, h), k->p.y[2]));
    start = add(start, add(mul(convert(I64, place->w), k->p.y[3]), convert(I64, k->first)));
    const y_runs runs = { gmem_address(k->p.from[CONV_Y], out, start), k->p.y[3],
                          k->cfg->several ? filters : mul(filters, width) };
    val from = tensor_address(k->sRows, coord(0, 0, k->warp_row));
    gather_pixels(k, &runs, filters, k->cfg->several ? imm(pitch) : filters);
    warp_sync();
    IF(lt(h, conv_number(k->p.y_size[1])))
        LOOP_FROM(pixel, div(k->lane, imm(lanes)), k->cfg->several ? width : imm(1), imm(32 / lanes))
            store_run(k, &runs, lanes, add(from, mul(pixel, imm(pitch * (int)ckl_dtype_bytes(out)))), pixel);
    warp_sync();
}

static void store(const stem_kernel *k, const conv_tile_place *place)
{
    if (!k->cfg->direct)
        store_staged(k, place);
    else if (k->cfg->pairs)
        store_pairs(k, place);
    else if (k->cfg->nchw)
        store_planes(k, place);
    else
        store_pixels(k, place);
}

static void loop_tiles(const stem_kernel *k)
{
    const bool async = k->size.async;
    val buffer = variable(U32, imm(0));
    LOOP_FROM(tile, cta_x(), k->grid.count, grid_x()) {
        val next = add(tile, grid_x()), other = sub(imm(1), buffer);
        if (async)
            cp_async_wait(0);
        cta_sync(); // the tile's pixels have arrived, and those of the tile before have been gathered
        if (async)
            conv_stem_load_tile(k, next, other);
        (k->size.padded > 8 ? multiply_wide : multiply)(k, buffer);
        assign(buffer, other);
        if (!async)
            conv_stem_load_tile(k, next, buffer);
        mma_wait(0);
        const conv_tile_place place = conv_tile_at(&k->grid, tile);
        finish(k, &place);
        store(k, &place);
    }
    if (!k->cfg->direct)
        IF(eq(k->tid, imm(0)))
            tma_store_wait(0);
}

void conv_stem(const void *config, int kernel)
{
    const conv_stem_config *cfg = config;
    (void)kernel;
    stem_kernel k = { .cfg = cfg, .size = conv_stem_shape_of(cfg) };
    launch_bounds(CONV_STEM_THREADS, cfg->ctas);
    k.p = params_of(conv);
    describe_memory(&k);
    describe_threads(&k);
    if (!cfg->direct)
        IF(eq(thread(), imm(0)))
            tma_prefetch(&k.tmaY);
    conv_stem_clear(&k);
    cta_sync();
    conv_wait(&k.p);
    conv_stem_load_first(&k);
    conv_load_vectors(&cfg->form, &k.p, sub(conv_number(k.p.k), imm(1)), coordinates_of(&k), 1, k.first, 0, &k.vectors);
    fill(k.acc, immf(0)); // once: the first wgmma of a tile ignores them
    loop_tiles(&k);
}
