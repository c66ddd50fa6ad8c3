/*
 * conv_stem.c - first layers on Hopper: a few channels, up to 128 filters at once; K is all channels at all taps.
 *
 * A CTA keeps the filters in shared memory. A tile is 16 columns by 8 rows of y. All threads load the pixels of x below
 * it into one of two buffers, 4 or 8 channels each (zeros for absent ones), while the tile before is multiplied. A warp
 * has a row of y; it gathers what its pixels see into registers, wgmma's A, word by word: two channels of a pixel. The
 * offsets of a tap's words are constants, but where lanes have one of two taps.
 *
 * NHWC is stored through staging buffers by TMA, if filters are whole 16 bytes; in NCHW a thread has neighbouring
 * columns and stores them directly.
 */
#include <stdio.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_stem.h"

enum {
    WARPGROUP = 128,
    THREADS = CONV_STEM_THREADS,
    BARRIER_CONSUMER = 1, // + warpgroup: its 128 threads round the staging buffers
    ROWS = CONV_SM90_ROWS,
    STEPS_AT_ONCE = CONV_STEM_STEPS_AT_ONCE,
    WORDS = 4, // of a thread's A in a step: pixels 0 and 1, then both 8 elements of K further on
    WARPS = CONV_STEM_THREADS / 32,
    LINES_MAX = 32,    // of a warp
    ELEMENTS_MAX = 32, // of a lane and a line
    TILE_N_MAX = 128,
};

/* A tile of y: its first pixel and its image. */
typedef struct tile_place {
    val w, h, n;
} tile_place;

typedef struct stem_kernel {
    const conv_stem_config *cfg;
    conv_stem_shape size;
    conv_values p;
    tma_copy tmaY;
    tiled_mma mma;
    tensor sW;    // (BN,16,STEPS)
    tensor sHalo; // (HALO,BUFFERS)
    tensor sY;    // (ROWS,COLS,BUFFERS,WARPGROUPS)
    tensor tCrW;  // (MMA_N,MMA_K,STEPS)
    tensor acc, rA;
    val first;                      // of the CTA's filters
    val group, tid, warp_row, lane; // warpgroup, thread of it, the warp's row of a tile
    val tiles_w, tiles_h, count;
    val bias[TILE_N_MAX], scale[TILE_N_MAX]; // of the thread's columns, each at its distance from the first
} stem_kernel;

static void describe_memory(stem_kernel *k)
{
    const conv_stem_config *c = k->cfg;
    const conv_stem_shape *s = &k->size;
    const int y_box[] = { s->y_cols, CONV_STEM_W, ROWS / CONV_STEM_W, 1, 1 },
              span = s->y_cols * (int)ckl_dtype_bytes(c->form.out);
    k->sW = slice(conv_tiles("W", c->form.dtype, c->tile_n, CONV_STEM_K, s->steps, 1), _, _, _, 0);
    k->sHalo = smem_tensor("halo", c->form.dtype, compact(shape(s->halo, 2)), 128);
    if (!c->direct) {
        k->sY = conv_tiles("Y", c->form.out, ROWS, s->y_cols, c->tile_n / s->y_cols, CONV_STEM_CONSUMERS);
        k->tmaY = make_tma_box(k->p.mY, c->form.out, 5, y_box, NULL, span);
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
    k->rA = fragment_A_words(&k->mma, ROWS, CONV_STEM_K * k->size.kept);
    k->group = div(warp(), imm(WARPGROUP / 32));
    k->tid = rem(thread(), imm(WARPGROUP));
    k->warp_row = warp();
    k->lane = rem(thread(), imm(32));
    k->tiles_w = conv_tiles_along(k->p.y_size[2], CONV_STEM_W);
    k->tiles_h = conv_tiles_along(k->p.y_size[1], CONV_STEM_H);
    k->count = mul(mul(k->tiles_w, k->tiles_h), conv_number(k->p.n));
    k->first = k->cfg->several ? mul(cta_y(), imm(k->cfg->tile_n)) : imm(0);
}

static tile_place place_of(const stem_kernel *k, val tile)
{
    val rest = div(tile, k->tiles_w), n = div(rest, k->tiles_h);
    return (tile_place){ .w = mul(sub(tile, mul(rest, k->tiles_w)), imm(CONV_STEM_W)),
                         .h = mul(sub(rest, mul(n, k->tiles_h)), imm(CONV_STEM_H)),
                         .n = n };
}

/* Filters and pixels to shared memory */

static tensor elements_from(val address, ckl_dtype dtype, val first)
{
    val bytes = mul(first, imm64((int)ckl_dtype_bytes(dtype)));
    return gmem_tensor(add(address, convert(U64, bytes)), dtype, make_layout(dynamic(imm64(1)), leaf(1)));
}

/*
 * A thread loads one element of K of its share of the filters, several in flight together; zeros where channel, tap or
 * filter do not exist.
 */
static void load_share(const stem_kernel *k, val of_k, val share, int each)
{
    enum { AT_ONCE = 16 };
    const conv_stem_config *c = k->cfg;
    const ckl_dtype dtype = c->form.dtype;
    const int padded = k->size.padded, depth = CONV_STEM_K * k->size.steps;
    val at = min(of_k, imm(depth - 1)), channel = rem(at, imm(padded)), tap = div(at, imm(padded));
    val there = logical_and(lt(channel, imm(c->channels)), lt(tap, imm(k->size.taps)));
    val row = min(div(tap, imm(c->columns)), imm(c->rows - 1)), column = rem(tap, imm(c->columns));
    val first = mul(convert(I64, min(channel, imm(c->channels - 1))), k->p.w[4]);
    first = add(first, add(mul(convert(I64, row), k->p.w[2]), mul(convert(I64, column), k->p.w[3])));
    val last = sub(conv_number(k->p.k), imm(1));
    IF(lt(of_k, imm(depth)))
        for (int n = 0; n < each && !ir_failed(); n += AT_ONCE) {
            const int count = each - n < AT_ONCE ? each - n : AT_ONCE;
            val w[AT_ONCE];
            for (int i = 0; i < count; i++) {
                val filter = min(add(k->first, add(share, imm(n + i))), last);
                w[i] = at(elements_from(k->p.from[CONV_W], dtype, add(first, mul(convert(I64, filter), k->p.w[0]))), 0);
            }
            for (int i = 0; i < count; i++) {
                val filter = add(share, imm(n + i)), is_one = le(add(k->first, filter), last);
                set(k->sW, coord(filter, rem(at, imm(CONV_STEM_K)), div(at, imm(CONV_STEM_K))),
                    select(logical_and(there, is_one), w[i], convert(dtype, immf(0))));
            }
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
        tensor gW = elements_from(k->p.from[CONV_W], k->cfg->form.dtype, add(first, convert(I64, mul(at, imm(8)))));
        cp_async(tensor_address(k->sW, coord(n, mul(rem(half, imm(2)), imm(8)), div(half, imm(2)))),
                 tensor_address(gW, coord(0)), 16, convert(U32, select(there, imm(16), imm(0))));
    }
    cp_async_commit();
    cp_async_wait(0);
    fence_proxy_async();
}

static void load_filters(const stem_kernel *k)
{
    const int depth = CONV_STEM_K * k->size.steps, whole = 1 << log2_i64(2 * depth - 1);
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
static void clear_halos(const stem_kernel *k)
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

static halo_line halo_line_at(const stem_kernel *k, const tile_place *place)
{
    const conv_stem_config *c = k->cfg;
    const int vectors = vectors_of_pixel(k), count = k->size.halo_w * vectors;
    val width = convert(I32, k->p.x_size[2]);
    halo_line line;
    for (int i = 0; i * 32 < count && !ir_failed(); i++) {
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

static line_place line_place_of(const stem_kernel *k, const tile_place *place, val number)
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

/* `count` lines of a warp, from `first` on: all loads of a thread come before the first use. */
static void load_lines(const stem_kernel *k, const tile_place *place, val first, int count, val buffer)
{
    const conv_stem_config *c = k->cfg;
    const int vectors = k->size.halo_w * vectors_of_pixel(k), lines = lines_of(k);
    const halo_line line = halo_line_at(k, place);
    tensor gX = elements_from(k->p.from[CONV_X], c->form.dtype, mul(convert(I64, place->n), k->p.x[0]));
    line_place at[LINES_MAX];
    tensor x[LINES_MAX][ELEMENTS_MAX]; // (WORD)
    for (int l = 0; l < count && !ir_failed(); l++) {
        at[l] = line_place_of(k, place, min(add(first, imm(l * WARPS)), imm(lines - 1)));
        for (int i = 0; i * 32 < vectors && !ir_failed(); i++)
            x[l][i] = load_vector(k, gX, add(at[l].offset, line.offset[i]));
    }
    for (int l = 0; l < count && !ir_failed(); l++)
        for (int i = 0; i * 32 < vectors && !ir_failed(); i++) {
            val there =
                logical_and(lt(add(first, imm(l * WARPS)), imm(lines)), lt(add(k->lane, imm(i * 32)), imm(vectors)));
            IF(there)
                store_vector(k, x[l][i], logical_and(at[l].inside, line.inside[i]), at[l].place, line.place[i], buffer);
        }
}

/* The same for vectors of 16 bytes, which need no registers: cp.async. */
static void copy_lines(const stem_kernel *k, const tile_place *place, val buffer)
{
    const conv_stem_config *c = k->cfg;
    const int vectors = k->size.halo_w * vectors_of_pixel(k), lines = lines_of(k);
    const halo_line line = halo_line_at(k, place);
    tensor gX = elements_from(k->p.from[CONV_X], c->form.dtype, mul(convert(I64, place->n), k->p.x[0]));
    LOOP_FROM(number, k->warp_row, imm(lines), imm(WARPS)) {
        const line_place at = line_place_of(k, place, number);
        for (int i = 0; i * 32 < vectors && !ir_failed(); i++) {
            val bytes = convert(U32, select(logical_and(at.inside, line.inside[i]), imm(16), imm(0)));
            IF(lt(add(k->lane, imm(i * 32)), imm(vectors)))
                cp_async(tensor_address(k->sHalo, coord(add(at.place, line.place[i]), buffer)),
                         tensor_address(gX, dynamic(add(at.offset, line.offset[i]))), 16, bytes);
        }
    }
}

static void load_halo(const stem_kernel *k, val tile, val buffer)
{
    const tile_place place = place_of(k, tile);
    const int lines = (lines_of(k) + WARPS - 1) / WARPS; // of a warp
    if (k->size.async)
        copy_lines(k, &place, buffer);
    else if (lines <= k->size.lines_at_once)
        load_lines(k, &place, k->warp_row, lines, buffer);
    else
        LOOP_FROM(first, k->warp_row, imm(lines_of(k)), imm(WARPS * k->size.lines_at_once))
            load_lines(k, &place, first, k->size.lines_at_once, buffer);
}

/* If there is such a tile. */
static void load_tile(const stem_kernel *k, val tile, val buffer)
{
    IF(lt(tile, k->count))
        load_halo(k, tile, buffer);
    if (k->size.async)
        cp_async_commit();
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

/*
 * The words of one half of a step, 8 elements of K, for a thread's two pixels. With 8 channels they are one tap's. With
 * 4 they are two taps', and half of the lanes have the second: `second` is 0 or all ones.
 */
static void gather_half(const stem_kernel *k, val pixel, val second, int half, int between)
{
    const int step = half / 2, per_half = 8 / k->size.padded, tap = half * per_half;
    const bool two = per_half == 2 && tap + 1 < k->size.taps, cut = per_half == 2 && tap + 1 == k->size.taps;
    val from = two ? add(pixel, bit_and(second, imm(tap_bytes(k, tap + 1) - tap_bytes(k, tap)))) : pixel;
    for (int i = 0; i < 2; i++) {
        val word = tap < k->size.taps ? word_at(from, tap_bytes(k, tap) + i * between) : imm(0);
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
    const int first = half_bytes(k, 2 * step), halves = k->size.taps * k->size.padded / 8, place = step % k->size.kept;
    const bool whole = 2 * step + 1 < halves;
    val words[WORDS], from = whole ? add(pixel, bit_and(second, imm(half_bytes(k, 2 * step + 1) - first))) : pixel;
    for (int i = 0; i < WORDS; i++)
        words[i] = at(k->rA, i, 0, place);
    ldmatrix(add(from, imm(first)), whole ? WORDS : 2, words);
    for (int i = 2; !whole && i < WORDS; i++)
        set(k->rA, coord(i, 0, place), imm(0));
}

/*
 * Some steps, whose words are in registers together; more would leave an SM fewer CTAs. Of more than 8 channels they are gathered while
 * those before are multiplied. The last wgmmas are not waited for.
 */
static void multiply_steps(const stem_kernel *k, val pixel, val second, int first, int between)
{
    const int last = first + STEPS_AT_ONCE < k->size.steps ? first + STEPS_AT_ONCE : k->size.steps;
    if (first >= k->size.kept)
        mma_wait(k->size.kept / STEPS_AT_ONCE - 1);
    for (int half = 2 * first; half < 2 * last && k->size.padded <= 8 && !ir_failed(); half++)
        gather_half(k, pixel, second, half, between);
    for (int step = first; step < last && k->size.padded > 8 && !ir_failed(); step++)
        gather_step(k, pixel, second, step);
    mma_fence();
    for (int step = first; step < last && !ir_failed(); step++)
        gemm(&k->mma, local_tile(k->rA, shape(WORDS, 1, 1), coord(0, 0, step % k->size.kept)),
             slice(k->tCrW, _, _, step), k->acc, step ? yes() : no());
    mma_commit();
}

/* A lane's pixel for ldmatrix: of columns c and c + 8 or, in NCHW, of neighbouring ones. */
static val column_of_lane(const stem_kernel *k)
{
    val of_group = rem(k->lane, imm(8)), other = rem(div(k->lane, imm(8)), imm(2));
    return k->cfg->nchw ? add(mul(of_group, imm(2)), other) : rem(k->lane, imm(16));
}

/* The address of the first of a warp's pixels in a buffer. */
static val first_pixel(const stem_kernel *k, val buffer)
{
    val address = add(tensor_address(k->sHalo, coord(0, 0)), mul(buffer, imm(2 * k->size.halo)));
    return add(address, mul(k->warp_row, imm(2 * k->size.pitch * k->cfg->step_h * k->size.halo_w)));
}

static void multiply_wide(const stem_kernel *k, val buffer)
{
    val column = mul(column_of_lane(k), imm(2 * k->size.pitch * k->cfg->step_w));
    val pixel = add(first_pixel(k, buffer), column), second = sub(imm(0), div(k->lane, imm(16)));
    for (int first = 0; first < k->size.steps && !ir_failed(); first += STEPS_AT_ONCE)
        multiply_steps(k, pixel, second, first, 0);
}

static void multiply(const stem_kernel *k, val buffer)
{
    const conv_stem_config *c = k->cfg;
    const int pixel_bytes = 2 * k->size.padded,
              apart = c->nchw ? 1 : 8;                             // columns from a thread's first pixel to its second
    val group = div(k->lane, imm(4)), word = rem(k->lane, imm(4)); // a pixel, a word of 8 elements of K
    val column = mul(group, imm((c->nchw ? 2 : 1) * c->step_w));
    val pixel = add(mul(k->warp_row, imm(c->step_h * k->size.halo_w)), column);
    val address = add(tensor_address(k->sHalo, coord(0, 0)), mul(buffer, imm(2 * k->size.halo)));
    address = add(address, mul(pixel, imm(pixel_bytes)));
    val of_tap = k->size.padded == 8 ? word : rem(word, imm(2)), second = sub(imm(0), div(word, imm(2)));
    address = add(address, mul(of_tap, imm(4)));
    for (int first = 0; first < k->size.steps && !ir_failed(); first += STEPS_AT_ONCE)
        multiply_steps(k, address, second, first, apart * c->step_w * pixel_bytes);
}

/* The epilogue */

static tensor coordinates_of(const stem_kernel *k)
{
    return partition_C(&k->mma, identity_tensor(shape(ROWS, k->cfg->tile_n)), k->tid); // (MMA,1,1)
}

static void load_vectors(stem_kernel *k)
{
    tensor gBias = gmem_tensor(k->p.bias, k->cfg->form.out, make_layout(dynamic(k->p.k), leaf(1))); // (K)
    tensor gScale = gmem_tensor(k->p.scale, F32, make_layout(dynamic(k->p.k), leaf(1)));            // (K)
    tensor tCcY = coordinates_of(k);
    layout along = coordinate_distances(tCcY, 1);
    bool loaded[TILE_N_MAX] = { false };
    val last = sub(conv_number(k->p.k), imm(1));
    for (int i = 0; i < static_size(tCcY.layout) && !ir_failed(); i++) {
        const int64_t column = index_at(along, i);
        val filter = min(add(k->first, coordinate(tCcY, 1, i)), last);
        if (!loaded[column] && k->cfg->form.bias)
            k->bias[column] = at_f32(gBias, filter);
        if (!loaded[column] && k->cfg->form.scale)
            k->scale[column] = at(gScale, filter);
        loaded[column] = true;
    }
}

/* Where element i of the accumulators lies in y: a warp has a row of a tile; in NCHW its two pixels are neighbours. */
static conv_place place_of_sum(const stem_kernel *k, const tile_place *place, int i)
{
    tensor tCcY = coordinates_of(k);
    val row = rem(coordinate(tCcY, 0, i), imm(CONV_STEM_W)), first = rem(row, imm(8)), second = div(row, imm(8));
    val column = k->cfg->nchw ? add(mul(first, imm(2)), second) : row;
    return (conv_place){ place->n,
                         { imm(0), add(place->h, k->warp_row), add(place->w, column) },
                         add(k->first, coordinate(tCcY, 1, i)) };
}

static void finish(const stem_kernel *k, const tile_place *place)
{
    const conv_form *form = &k->cfg->form;
    layout along = coordinate_distances(coordinates_of(k), 1);
    for (int i = 0; i < static_size(k->acc.layout) && !ir_failed(); i++) {
        const int64_t column = index_at(along, i);
        const conv_element in = { .sum = at_f32(k->acc, i), .scale = k->scale[column], .bias = k->bias[column] };
        const conv_place of = form->custom ? place_of_sum(k, place, i) : (conv_place){ 0 };
        set(k->acc, i, conv_finish(form, in, &of));
    }
}

static void store_staged(const stem_kernel *k, const tile_place *place)
{
    const int width = k->size.y_cols, count = k->cfg->tile_n / width;
    const tiled_mma mma = conv_mma_of(k->cfg->form.dtype, width);
    staged_store staged = { add(k->group, imm(BARRIER_CONSUMER)), WARPGROUP, eq(k->tid, imm(0)) };
    val h = add(place->h, mul(k->group, imm(ROWS / CONV_STEM_W)));
    for (int i = 0; i < count && !ir_failed(); i++) {
        tensor acc = slice(accumulator_columns(k->acc, i * width, width), _, 0, _),
               sY = slice(k->sY, _, _, i, k->group);
        const val outer[] = { h, imm(0), place->n };
        if (i == 0)
            staging_wait(&staged, 0);
        if (ckl_dtype_bytes(k->cfg->form.out) == 2)
            stmatrix_C(&mma, acc, sY, k->tid);
        else
            copy(acc, partition_C(&mma, sY, k->tid), 8);
        STAGED_STORE(&staged)
            tma_store_of(&k->tmaY, sY, place->w, add(k->first, imm(i * width)), 3, outer);
    }
}

/* NCHW: accumulators i and i + 2 are neighbouring columns of one channel. */
static void store_planes(const stem_kernel *k, const tile_place *place)
{
    const conv_stem_config *c = k->cfg;
    const ckl_dtype out = c->form.out;
    tensor tCcY = coordinates_of(k);
    val h = add(place->h, k->warp_row), w = add(place->w, mul(div(k->lane, imm(4)), imm(2)));
    val start = add(mul(convert(I64, place->n), k->p.y[0]), mul(convert(I64, h), k->p.y[2]));
    start = add(start, mul(convert(I64, w), k->p.y[3]));
    val row = lt(h, conv_number(k->p.y_size[1])), width = conv_number(k->p.y_size[2]);
    for (int i = 0; i < static_size(k->acc.layout) && !ir_failed(); i++) {
        if (i % 4 > 1)
            continue;
        val channel = add(k->first, coordinate(tCcY, 1, i)),
            inside = logical_and(row, lt(channel, conv_number(k->p.k)));
        tensor gY = elements_from(k->p.from[CONV_Y], out, add(start, mul(convert(I64, channel), k->p.y[4])));
        tensor rY = fragment(out, compact(leaf(2)));
        for (int j = 0; j < 2; j++)
            set(rY, j, convert(out, at(k->acc, i + 2 * j)));
        if (c->pairs) {
            IF(logical_and(inside, lt(w, width)))
                copy(rY, tensor_with_layout(gY, compact(leaf(2))), 2 * (int)ckl_dtype_bytes(out));
            continue;
        }
        for (int j = 0; j < 2; j++)
            IF(logical_and(inside, lt(add(w, imm(j)), width)))
                set(gY, j, at(rY, j));
    }
}

/* NHWC where filters are not whole 16 bytes: accumulators i and i + 2 are a channel of two pixels, 8 columns apart. */
static void store_elements(const stem_kernel *k, const tile_place *place)
{
    const ckl_dtype out = k->cfg->form.out;
    tensor tCcY = coordinates_of(k);
    layout along = coordinate_distances(tCcY, 1);
    val channel = add(k->first, coordinate(tCcY, 1, 0)), h = add(place->h, k->warp_row);
    for (int j = 0; j < 2; j++) {
        val w = add(place->w, add(div(k->lane, imm(4)), imm(8 * j)));
        val start = add(mul(convert(I64, place->n), k->p.y[0]), mul(convert(I64, h), k->p.y[2]));
        start = add(start, add(mul(convert(I64, w), k->p.y[3]), convert(I64, channel)));
        tensor gY = elements_from(k->p.from[CONV_Y], out, start);
        val inside = logical_and(lt(h, conv_number(k->p.y_size[1])), lt(w, conv_number(k->p.y_size[2])));
        IF(inside)
            for (int i = 0; i < static_size(k->acc.layout) && !ir_failed(); i++) {
                const int64_t distance = index_at(along, i);
                if (i % 4 / 2 == j)
                    IF(lt(add(channel, imm((int)distance)), conv_number(k->p.k)))
                        set(gY, (int)distance, convert(out, at(k->acc, i)));
            }
    }
}

static void store(const stem_kernel *k, const tile_place *place)
{
    if (!k->cfg->direct)
        store_staged(k, place);
    else if (k->cfg->nchw)
        store_planes(k, place);
    else
        store_elements(k, place);
}

static void loop_tiles(const stem_kernel *k)
{
    const bool async = k->size.async;
    val buffer = variable(U32, imm(0));
    load_tile(k, cta_x(), buffer);
    LOOP_FROM(tile, cta_x(), k->count, grid_x()) {
        val next = add(tile, grid_x()), other = sub(imm(1), buffer);
        if (async)
            cp_async_wait(0);
        cta_sync(); // the tile's pixels have arrived, and those of the tile before have been gathered
        if (async)
            load_tile(k, next, other);
        (k->size.padded > 8 ? multiply_wide : multiply)(k, buffer);
        assign(buffer, other);
        if (!async)
            load_tile(k, next, buffer);
        mma_wait(0);
        const tile_place place = place_of(k, tile);
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
    launch_bounds(THREADS, cfg->ctas);
    k.p = params_of(conv);
    describe_memory(&k);
    describe_threads(&k);
    fill(k.acc, immf(0)); // once: the first wgmma of a tile ignores them
    clear_halos(&k);
    cta_sync();
    grid_wait();
    launch_dependents();
    (k.size.async && cfg->form.direction == CKL_CONV_FORWARD ? copy_filters : load_filters)(&k);
    load_vectors(&k);
    loop_tiles(&k);
}
