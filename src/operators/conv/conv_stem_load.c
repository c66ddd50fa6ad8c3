/* conv_stem_load.c - the kernel of first layers: loads of filters, and of pixels below a tile, into shared memory. */
#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_stem_kernel.h"

enum {
    THREADS = CONV_STEM_THREADS,
    WARPS = CONV_STEM_THREADS / 32,
    LINES_MAX = 32,    // of a warp
    ELEMENTS_MAX = 32, // of a lane and a line
};

/* Filters and pixels to shared memory */

/* An element of K: its place, where it lies in the first filter, and whether its channel and tap exist. */
typedef struct filter_line {
    val at, from, there;
} filter_line;

static filter_line line_of(const stem_kernel *k, val of_k)
{
    const conv_stem_config *c = k->cfg;
    const int padded = k->size.padded;
    val at = min(of_k, imm(CONV_STEM_K * k->size.steps - 1)), channel = rem(at, imm(padded)),
        tap = div(at, imm(padded));
    val there = logical_and(lt(channel, imm(c->channels)), lt(tap, imm(k->size.taps)));
    val row = min(div(tap, imm(c->columns)), imm(c->rows - 1)), column = rem(tap, imm(c->columns));
    val from = mul(convert(I64, min(channel, imm(c->channels - 1))), k->p.w[4]);
    from = add(from, add(mul(convert(I64, row), k->p.w[2]), mul(convert(I64, column), k->p.w[3])));
    return (filter_line){ at, from, there };
}

/*
 * A thread loads one element of K of its share of the filters, several in flight together; zeros where channel, tap or
 * filter do not exist.
 */
static void load_share(const stem_kernel *k, val of_k, val share, int each)
{
    enum { AT_ONCE = 16 };
    const ckl_dtype dtype = k->cfg->form.dtype;
    const int depth = CONV_STEM_K * k->size.steps;
    const filter_line line = line_of(k, of_k);
    val last = sub(conv_number(k->p.k), imm(1));
    IF(lt(of_k, imm(depth)))
        for (int n = 0; n < each && describing(); n += AT_ONCE) {
            const int count = each - n < AT_ONCE ? each - n : AT_ONCE;
            val w[AT_ONCE];
            for (int i = 0; i < count; i++) {
                val filter = min(add(k->first, add(share, imm(n + i))), last);
                w[i] = at(
                    conv_run_at(k->p.from[CONV_W], dtype, add(line.from, mul(convert(I64, filter), k->p.w[0])), 1), 0);
            }
            for (int i = 0; i < count; i++) {
                val filter = add(share, imm(n + i)), is_one = le(add(k->first, filter), last);
                set(k->sW, coord(filter, rem(line.at, imm(CONV_STEM_K)), div(line.at, imm(CONV_STEM_K))),
                    select(logical_and(line.there, is_one), w[i], convert(dtype, immf(0))));
            }
        }
}

/*
 * Filters that lie across, as those of the gradient of data: lanes are eight neighbours of them and four elements of K,
 * so that a thread's share, every eighth, is an equal step apart on both sides.
 */
static void load_across(const stem_kernel *k, val of_k, val near)
{
    const ckl_dtype dtype = k->cfg->form.dtype;
    const int each = k->cfg->tile_n / CONV_STEM_NEAR;
    const filter_line line = line_of(k, of_k);
    val first = add(k->first, near), last = sub(conv_number(k->p.k), imm(1));
    val step = mul(k->p.w[0], imm64(CONV_STEM_NEAR)), from = add(line.from, mul(convert(I64, first), k->p.w[0])),
        w[CONV_STEM_FILTERS_MAX / CONV_STEM_NEAR];
    tensor sW =
        smem_view(tensor_address(k->sW, coord(near, rem(line.at, imm(CONV_STEM_K)), div(line.at, imm(CONV_STEM_K)))),
                  dtype, make_layout(leaf(each), leaf(CONV_STEM_NEAR * CONV_STEM_K)));
    IF(lt(of_k, imm(CONV_STEM_K * k->size.steps))) {
        UNROLL(i, each) {
            val there = logical_and(line.there, le(add(first, imm(CONV_STEM_NEAR * i)), last));
            w[i] = variable(dtype, convert(dtype, immf(0)));
            IF(there)
                assign(w[i], at(conv_run_at(k->p.from[CONV_W], dtype, from, 1), 0));
            from = add(from, step);
        }
        UNROLL(i, each)
            set(sW, imm(i), w[i]);
    }
}

/* Filters that lie as K does, in whole 16 bytes, by cp.async. */
static void copy_filters(const stem_kernel *k)
{
    const int halves = 2 * k->size.steps, whole = k->size.taps * k->size.padded / 8;
    val last = sub(conv_number(k->p.k), imm(1));
    LOOP_FROM(number, thread(), imm(k->cfg->tile_n * halves), imm(THREADS)) {
        val n = div(number, imm(halves)), half = rem(number, imm(halves)), filter = add(k->first, n);
        val first = mul(convert(I64, min(filter, last)), k->p.w[0]), at = min(half, imm(whole - 1));
        val there = logical_and(le(filter, last), lt(half, imm(whole)));
        tensor gW = conv_run_at(k->p.from[CONV_W], k->cfg->form.dtype, add(first, convert(I64, mul(at, imm(8)))), 1);
        cp_async(tensor_address(k->sW, coord(n, mul(rem(half, imm(2)), imm(8)), div(half, imm(2)))),
                 tensor_address(gW, coord(0)), 16, convert(U32, select(there, imm(16), imm(0))));
    }
    cp_async_commit();
    cp_async_wait(0);
    fence_proxy_async();
}

static void load_filters(const stem_kernel *k)
{
    if (k->size.async && k->cfg->form.direction == CKL_CONV_FORWARD) {
        copy_filters(k);
        return;
    }
    const int depth = CONV_STEM_K * k->size.steps, whole = 1 << log2_i64(2 * depth - 1);
    if (k->cfg->form.direction == CKL_CONV_DATA) {
        LOOP_FROM(of_k, div(thread(), imm(CONV_STEM_NEAR)), imm(depth), imm(THREADS / CONV_STEM_NEAR))
            load_across(k, of_k, rem(thread(), imm(CONV_STEM_NEAR)));
        fence_proxy_async();
        return;
    }
    const int along = whole < THREADS ? whole : THREADS,
              each = k->cfg->tile_n / (THREADS / along); // filters of a thread
    val of_k = rem(thread(), imm(along)), share = mul(div(thread(), imm(along)), imm(each));
    if (whole == along)
        load_share(k, of_k, share, each);
    else
        LOOP_FROM(later, of_k, imm(depth), imm(along))
            load_share(k, later, share, each);
    fence_proxy_async();
}

/* Channels that x does not have, and what lies between pixels, are zeros for good. */
void conv_stem_clear(const stem_kernel *k)
{
    tensor sWords = smem_view(tensor_address(k->sHalo, coord(0, 0)), I32, compact(leaf(k->size.halo)));
    LOOP_FROM(i, thread(), imm(k->size.halo), imm(THREADS)) // two buffers of halves of words
        set(sWords, i, imm(0));
}

/*
 * The pixels below a tile, in lines that are contiguous in x: rows of pixels or, in NCHW, of a channel. A warp takes
 * every 8th line, a lane every 32nd vector of it.
 */
typedef struct halo_line {
    val inside[ELEMENTS_MAX], offset[ELEMENTS_MAX],
        place[ELEMENTS_MAX]; // along a line: predicate, elements of x and of the buffer
} halo_line;

static int vectors_of_pixel(const stem_kernel *k)
{
    return k->cfg->nchw ? 1 : k->cfg->channels / k->cfg->vec;
}

static halo_line halo_line_at(const stem_kernel *k, const conv_tile_place *place)
{
    const conv_stem_config *c = k->cfg;
    const int vectors = vectors_of_pixel(k), count = k->size.halo_w * vectors;
    val width = convert(I32, k->p.x_size[2]);
    halo_line line;
    for (int i = 0; i * 32 < count && describing(); i++) {
        val e = min(add(k->lane, imm(32 * i)), imm(count - 1)), column = div(e, imm(vectors)),
            channel = rem(e, imm(vectors));
        val w = convert(I32, add(sub(mul(place->w, imm(c->step_w)), conv_number(k->p.pad[2])), column));
        val nearest = max(imm(0), min(w, sub(width, imm(1))));
        line.inside[i] = logical_and(ge(w, imm(0)), lt(w, width));
        val element = mul(channel, imm(c->vec));
        line.offset[i] =
            add(mul(nearest, convert(I32, k->p.x[3])), mul(convert(I32, element), convert(I32, k->p.x[4])));
        line.place[i] = add(mul(column, imm(k->size.pitch)), element);
    }
    return line;
}

static int lines_of(const stem_kernel *k)
{
    return k->size.halo_h * (k->cfg->nchw ? k->cfg->channels : 1);
}

/* Line `number`: is it inside x, and where does it begin there and in the buffer? */
typedef struct line_place {
    val inside, offset, place;
} line_place;

static line_place line_place_of(const stem_kernel *k, const conv_tile_place *place, val number)
{
    const conv_stem_config *c = k->cfg;
    val channel = c->nchw ? div(number, imm(k->size.halo_h)) : imm(0);
    val row = c->nchw ? rem(number, imm(k->size.halo_h)) : number, height = convert(I32, k->p.x_size[1]);
    val h = convert(I32, add(sub(mul(place->h, imm(c->step_h)), conv_number(k->p.pad[1])), row));
    val nearest = max(imm(0), min(h, sub(height, imm(1))));
    return (
        line_place){ logical_and(ge(h, imm(0)), lt(h, height)),
                     add(mul(nearest, convert(I32, k->p.x[2])), mul(convert(I32, channel), convert(I32, k->p.x[4]))),
                     add(mul(row, imm(k->size.halo_w * k->size.pitch)), channel) };
}

/* Elements of x from one on, as registers: one element, or the words of several. */
static tensor load_vector(const stem_kernel *k, tensor gX, val index)
{
    const int vec = k->cfg->vec;
    tensor rX = fragment(vec > 1 ? I32 : gX.dtype, compact(leaf(vec > 1 ? vec / 2 : 1)));
    if (vec > 1)
        copy(gmem_tensor(tensor_address(gX, dynamic(index)), I32, rX.layout), rX, 2 * vec);
    else
        rX.regs[0] = at(gX, index);
    return rX;
}

/* To their place in a buffer: zeros where they are not inside. */
static void store_vector(const stem_kernel *k, tensor rX, val inside, val line, val place, val buffer)
{
    const int vec = k->cfg->vec;
    for (int i = 0; i < static_size(rX.layout); i++)
        rX.regs[i] = select(inside, at(rX, i), vec > 1 ? imm(0) : convert(rX.dtype, immf(0)));
    if (vec > 1)
        copy(rX, smem_view(tensor_address(k->sHalo, coord(add(line, place), buffer)), I32, rX.layout), 2 * vec);
    else
        set(k->sHalo, coord(add(line, place), buffer), rX.regs[0]);
}

static tensor image_at(const stem_kernel *k, val n)
{
    const ckl_dtype dtype = k->cfg->form.dtype;
    return conv_elements_from(gmem_address(k->p.from[CONV_X], dtype, mul(convert(I64, n), k->p.x[0])), dtype);
}

/* Lines of a warp, from `first` on, in registers. */
typedef struct loaded_lines {
    val first;
    int count;
    halo_line line;
    line_place at[LINES_MAX];
    tensor x[LINES_MAX][ELEMENTS_MAX]; // (WORD)
} loaded_lines;

static int vectors_of_line(const stem_kernel *k)
{
    return k->size.halo_w * vectors_of_pixel(k);
}

/* Begins to load `count` lines: nothing uses them yet. */
static void load_lines(const stem_kernel *k, const conv_tile_place *place, val first, int count, loaded_lines *to)
{
    tensor gX = image_at(k, place->n);
    to->first = first;
    to->count = count;
    to->line = halo_line_at(k, place);
    UNROLL(l, count) {
        to->at[l] = line_place_of(k, place, min(add(first, imm(l * WARPS)), imm(lines_of(k) - 1)));
        for (int i = 0; i * 32 < vectors_of_line(k) && describing(); i++)
            to->x[l][i] = load_vector(k, gX, add(to->at[l].offset, to->line.offset[i]));
    }
}

static void store_lines(const stem_kernel *k, const loaded_lines *from, val buffer)
{
    const int vectors = vectors_of_line(k);
    UNROLL(l, from->count)
        for (int i = 0; i * 32 < vectors && describing(); i++) {
            const line_place *at = &from->at[l];
            val there = logical_and(lt(add(from->first, imm(l * WARPS)), imm(lines_of(k))),
                                    lt(add(k->lane, imm(i * 32)), imm(vectors)));
            IF(there)
                store_vector(k, from->x[l][i], logical_and(at->inside, from->line.inside[i]), at->place,
                             from->line.place[i], buffer);
        }
}

/* The same for vectors of 16 bytes, which need no registers: cp.async. */
static void copy_lines(const stem_kernel *k, const conv_tile_place *place, val buffer)
{
    const int vectors = vectors_of_line(k), lines = lines_of(k);
    const halo_line line = halo_line_at(k, place);
    tensor gX = image_at(k, place->n);
    LOOP_FROM(number, k->warp_row, imm(lines), imm(WARPS)) {
        const line_place at = line_place_of(k, place, number);
        for (int i = 0; i * 32 < vectors && describing(); i++) {
            val bytes = convert(U32, select(logical_and(at.inside, line.inside[i]), imm(16), imm(0)));
            IF(lt(add(k->lane, imm(i * 32)), imm(vectors)))
                cp_async(tensor_address(k->sHalo, coord(add(at.place, line.place[i]), buffer)),
                         tensor_address(gX, dynamic(add(at.offset, line.offset[i]))), 16, bytes);
        }
    }
}

/* Lines of a warp below a tile. */
static int lines_of_warp(const stem_kernel *k)
{
    return (lines_of(k) + WARPS - 1) / WARPS;
}

/* Are they few enough to be in registers together? */
static bool loads_at_once(const stem_kernel *k)
{
    return !k->size.async && lines_of_warp(k) <= k->size.lines_at_once;
}

static void load_halo(const stem_kernel *k, val tile, val buffer)
{
    const conv_tile_place place = conv_tile_at(&k->grid, tile);
    loaded_lines lines;
    if (k->size.async) {
        copy_lines(k, &place, buffer);
    } else if (loads_at_once(k)) {
        load_lines(k, &place, k->warp_row, lines_of_warp(k), &lines);
        store_lines(k, &lines, buffer);
    } else {
        LOOP_FROM(first, k->warp_row, imm(lines_of(k)), imm(WARPS * k->size.lines_at_once)) {
            load_lines(k, &place, first, k->size.lines_at_once, &lines);
            store_lines(k, &lines, buffer);
        }
    }
}

/* If there is such a tile. */
void conv_stem_load_tile(const stem_kernel *k, val tile, val buffer)
{
    IF(lt(tile, k->grid.count))
        load_halo(k, tile, buffer);
    if (k->size.async)
        cp_async_commit();
}

void conv_stem_load_first(const stem_kernel *k)
{
    const conv_tile_place place = conv_tile_at(&k->grid, cta_x());
    loaded_lines lines;
    if (loads_at_once(k))
        load_lines(k, &place, k->warp_row, lines_of_warp(k), &lines);
    else
        conv_stem_load_tile(k, cta_x(), imm(0));
    load_filters(k);
    if (loads_at_once(k))
        store_lines(k, &lines, imm(0));
}
