/*
 * conv_skinny.c - filters of one pixel where one side has a few channels: a tall and skinny product, NHWC, by memory's
 * speed.
 *
 * A thread has some of the wide side's channels in registers, and rows of pixels in turn. Forward and of data it keeps
 * the filters: wide rows are multiplied and added over lanes, or few channels make a wide row. Of weights it keeps
 * sums, of which threads add theirs in shared memory, and a second kernel those of slices of pixels, always in the same
 * order.
 */
#include <math.h>

#include "base/math.h"
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_prepared.h"
#include "skeletons/product_cost.h"

enum {
    THREADS = 256,
    CTAS_OF_SM = 2, // which limits registers
    LANES = 32,
    FEW_MAX = 16,
    RUNS_MAX = 16,
    KEPT_MAX = 64, // filters or sums of a thread
    AHEAD_MAX = 8,
    LOADS_MAX = AHEAD_MAX * FEW_MAX,
    SLICES_MAX = 1024
};

#define CONV_SKINNY_CONFIG(X, owner)                                                     \
    X(owner, int, few, "1", "", "channels of the narrow side")                           \
    X(owner, bool, wide_x, "1", "0 1", "x or dx is the wide side, else y or dy")         \
    X(owner, int, vec, "8", "1 2 4 8", "wide channels of a load")                        \
    X(owner, int, vec_few, "1", "1 2 4 8", "few channels of a load")                     \
    X(owner, int, vec_w, "1", "1 2 4 8", "few filters, of neighbours, of a load")        \
    X(owner, int, runs, "1", "1 2 4 8", "vectors of a thread")                           \
    X(owner, int, lanes, "8", "", "threads beside each other, which share a pixel")      \
    X(owner, int, ahead, "4", "1 2 4 8", "pixels of a thread whose loads are under way") \
    X(owner, int, slices, "1", "", "of the pixels, summed apart first")

CONV_CONFIG(conv_skinny_config, CONV_SKINNY_CONFIG);

/* Everything a thread knows. */
typedef struct skinny {
    const conv_skinny_config *cfg;
    conv_values p;
    val pixels;           // u32: of all images
    val lane, group;      // among those that share a pixel; the number of its pixel in a CTA: u32
    val channel;          // u32: the first of its vector, of the first run
    val inside[RUNS_MAX]; // does it work, and is there its vector?
    tensor rKept;         // (VEC,RUNS,FEW): its filters or sums
} skinny;

/* Is the narrow side a sum over the wide one? Lanes of one warp add it. */
static bool sums_wide(const conv_skinny_config *c)
{
    return c->form.direction != CKL_CONV_WEIGHT && c->wide_x == (c->form.direction == CKL_CONV_FORWARD);
}

/* Pixels beside each other in a CTA. */
static int groups_of(const conv_skinny_config *c)
{
    return sums_wide(c) ? THREADS / LANES * (LANES / c->lanes) : THREADS / c->lanes;
}

/* Elements of filters of a load. */
static int filter_vector(const conv_skinny_config *c)
{
    return c->wide_x ? c->vec : c->vec_w;
}

/* Wide channels of a CTA. */
static int width_of(const conv_skinny_config *c)
{
    return c->lanes * c->vec * c->runs;
}

static int wide_side(const conv_skinny_config *c)
{
    return c->wide_x ? CONV_X : CONV_Y;
}

static int few_side(const conv_skinny_config *c)
{
    return c->wide_x ? CONV_Y : CONV_X;
}

static val wide_channels(const skinny *k)
{
    return convert(U32, k->cfg->wide_x ? k->p.c : k->p.k);
}

/* Elements from a tensor's start to a pixel. */
static val pixel_at(const skinny *k, int side, val pixel)
{
    return mul(convert(I64, pixel), side == CONV_X ? k->p.x[CONV_MODES] : k->p.y[CONV_MODES]);
}

static tensor memory_of(const skinny *k, int side)
{
    return gmem_tensor(k->p.from[side], k->cfg->form.dtype, compact(leaf(1)));
}

/* Elements from a thread's pixel to its next one. */
static val apart(const skinny *k, int side)
{
    return pixel_at(k, side, imm(groups_of(k->cfg)));
}

/* Vectors of the thread's pixels from element `index` on: so many of each, `far` elements apart. */
typedef struct pixel_vectors {
    int side, vec, count, far;
    val index;
} pixel_vectors;

static void find_place(skinny *k)
{
    const conv_skinny_config *c = k->cfg;
    val number = sums_wide(c) ? lane() : thread();
    val group = div(number, imm(c->lanes)), works = lt(group, imm(sums_wide(c) ? LANES / c->lanes : groups_of(c)));
    k->lane = rem(number, imm(c->lanes));
    k->group = sums_wide(c) ? add(mul(warp(), imm(LANES / c->lanes)), group) : group;
    k->channel = add(mul(cta_y(), imm(width_of(c))), mul(k->lane, imm(c->vec)));
    UNROLL(q, c->runs) {
        val channel = add(k->channel, imm(q * c->lanes * c->vec));
        k->inside[q] = logical_and(works, lt(channel, wide_channels(k)));
    }
    k->pixels = convert(U32, mul(mul(k->p.n, k->p.x_size[0]), mul(k->p.x_size[1], k->p.x_size[2])));
}

/*
 * The thread's filters, in vectors of wide channels where x is the wide side. Else neighbours have all their few
 * channels side by side, and vectors may go beyond a filter.
 */
static void load_filters(skinny *k)
{
    const conv_skinny_config *c = k->cfg;
    const ckl_dtype type = c->form.dtype;
    const int vec = filter_vector(c), each = c->vec * c->few / vec; // vectors of a run
    vector_at at[KEPT_MAX];
    tensor rW = fragment(F32, compact(leaf(c->vec * c->few * c->runs))); // as they were loaded
    UNROLL(i, each * c->runs) {
        const int q = i / each, first = i % each * vec;
        val channel = convert(I64, add(k->channel, imm(q * c->lanes * c->vec)));
        val from = c->wide_x ? add(mul(k->p.w[0], imm64(first / c->vec)), channel)
                             : add(mul(add(channel, imm64(first / c->few)), k->p.w[0]), imm64(first % c->few));
        at[i] = (vector_at){ gmem_address(k->p.from[CONV_W], type, from), 0, k->inside[q] };
    }
    vectors_load(at, each * c->runs, vec, memory_of(k, CONV_W), rW.regs, 0);
    UNROLL(i, c->vec * c->few * c->runs) {
        const int q = i / (c->vec * c->few), rest = i % (c->vec * c->few);
        const int e = c->wide_x ? rest % c->vec : rest / c->few, j = c->wide_x ? rest / c->vec : rest % c->few;
        set(k->rKept, coord(e, q, j), rW.regs[i]);
    }
}

/* The number of the thread's pixel `u` of those from `first` on. */
static val pixel_of(const skinny *k, val first, int u)
{
    return add(first, imm(u * groups_of(k->cfg)));
}

/* (VEC,VECTORS,AHEAD): zeros where there is no pixel or channel. inside: of each vector; NULL: all are. */
static tensor load_pixels(const skinny *k, const pixel_vectors *of, val first, const val inside[])
{
    const conv_skinny_config *c = k->cfg;
    const ckl_dtype type = c->form.dtype;
    const int bytes = (int)ckl_dtype_bytes(type);
    vector_at at[LOADS_MAX];
    tensor rX = fragment(F32, compact(shape(of->vec, of->count, c->ahead)));
    val address = gmem_address(k->p.from[of->side], type, of->index), step = mul(apart(k, of->side), imm64(bytes));
    UNROLL(u, c->ahead) {
        val there = lt(pixel_of(k, first, u), k->pixels);
        UNROLL(v, of->count)
            at[u * of->count + v] =
                (vector_at){ address, v * of->far * bytes, inside ? logical_and(there, inside[v]) : there };
        address = add(address, convert(U64, step));
    }
    vectors_load(at, c->ahead * of->count, of->vec, memory_of(k, of->side), rX.regs, 0);
    return rX;
}

/* (VEC,RUNS,AHEAD) */
static tensor load_wide(const skinny *k, val first)
{
    const conv_skinny_config *c = k->cfg;
    val index = add(pixel_at(k, wide_side(c), first), convert(I64, k->channel));
    return load_pixels(k, &(pixel_vectors){ wide_side(c), c->vec, c->runs, c->lanes * c->vec, index }, first,
                       k->inside);
}

/* (FEW,AHEAD) */
static tensor load_few(const skinny *k, val first)
{
    const conv_skinny_config *c = k->cfg;
    const pixel_vectors few = { few_side(c), c->vec_few, c->few / c->vec_few, c->vec_few,
                                pixel_at(k, few_side(c), first) };
    tensor rX = load_pixels(k, &few, first, NULL);
    rX.layout = compact(shape(c->few, c->ahead));
    return rX;
}

/* The sum over the lanes of a pixel, of which the first holds it. */
static val sum_over_lanes(const skinny *k, val sum)
{
    const int lanes = k->cfg->lanes;
    for (int far = 1; far < lanes; far *= 2) {
        val other = shuffle_down(sum, imm(far));
        sum = add(sum, is_power_of_two(lanes) ? other : select(lt(add(k->lane, imm(far)), imm(lanes)), other, immf(0)));
    }
    return sum;
}

/* Wide pixels times the filters. */
static void sum_pixels(const skinny *k, val first)
{
    const conv_skinny_config *c = k->cfg;
    const tensor rX = load_wide(k, first);
    val index = pixel_at(k, few_side(c), first);
    UNROLL(u, c->ahead) {
        val sums[FEW_MAX];
        UNROLL(j, c->few) {
            val sum = immf(0);
            UNROLL(i, c->vec * c->runs)
                sum = fma(at(rX, i % c->vec, i / c->vec, u), at(k->rKept, i % c->vec, i / c->vec, j), sum);
            sums[j] = sum_over_lanes(k, sum);
        }
        IF(logical_and(logical_and(k->inside[0], eq(k->lane, imm(0))), lt(pixel_of(k, first, u), k->pixels)))
            UNROLL(j, c->few)
                conv_store(&c->form, &k->p, k->p.from[few_side(c)], add(index, imm64(j)), imm64(j), sums[j]);
        index = add(index, apart(k, few_side(c)));
    }
}

/* Pixels of few channels times the filters. */
static void spread_pixels(const skinny *k, val first, const conv_channels channels[])
{
    const conv_skinny_config *c = k->cfg;
    const tensor rX = load_few(k, first);
    val index = add(pixel_at(k, wide_side(c), first), convert(I64, k->channel));
    UNROLL(u, c->ahead) {
        val there = lt(pixel_of(k, first, u), k->pixels);
        UNROLL(q, c->runs) {
            tensor rSum = fragment(F32, compact(leaf(c->vec)));
            const int far = q * c->lanes * c->vec;
            UNROLL(e, c->vec) {
                val sum = mul(at(rX, 0, u), at(k->rKept, e, q, 0));
                for (int j = 1; j < c->few; j++)
                    sum = fma(at(rX, j, u), at(k->rKept, e, q, j), sum);
                set(rSum, e, sum);
            }
            IF(logical_and(there, k->inside[q]))
                conv_store_run(&c->form, &k->p, &channels[q], k->p.from[wide_side(c)], add(index, imm64(far)),
                               add(k->channel, imm(far)), rSum);
        }
        index = add(index, apart(k, wide_side(c)));
    }
}

/* The products of pixels with all channels of both sides, added to what the thread keeps. */
static void add_pixels(const skinny *k, val first)
{
    const conv_skinny_config *c = k->cfg;
    const tensor rWide = load_wide(k, first), rFew = load_few(k, first);
    UNROLL(u, c->ahead)
        UNROLL(j, c->few)
            UNROLL(i, c->vec * c->runs)
                set(k->rKept, coord(i % c->vec, i / c->vec, j),
                    fma(at(rWide, i % c->vec, i / c->vec, u), at(rFew, j, u), at(k->rKept, i % c->vec, i / c->vec, j)));
}

/* Elements of the filters. */
static val filters_of(const conv_values *p)
{
    return mul(convert(I64, p->c), convert(I64, p->k));
}

/* Adds the sums of the CTA's groups, and stores them as filters or as those of a slice: (FILTER,SLICE). */
static void store_sums(const skinny *k)
{
    const conv_skinny_config *c = k->cfg;
    const int width = width_of(c), count = width * c->few;
    tensor sSum = smem_tensor("sums", F32, compact(shape(width, c->few, groups_of(c))), 16); // (CHANNEL,FEW,GROUP)
    IF(lt(k->group, imm(groups_of(c))))
        UNROLL(i, c->vec * c->runs)
            UNROLL(j, c->few)
                set(sSum,
                    coord(add(mul(k->lane, imm(c->vec)), imm(i / c->vec * c->lanes * c->vec + i % c->vec)), imm(j),
                          k->group),
                    at(k->rKept, i % c->vec, i / c->vec, j));
    cta_sync();
    LOOP_FROM(e, thread(), imm(count), imm(THREADS)) {
        val own = rem(e, imm(width)), j = div(e, imm(width)), sum = variable(F32, immf(0));
        val channel = add(mul(cta_y(), imm(width)), own);
        LOOP(group, imm(groups_of(c)))
            assign(sum, add(sum, at(sSum, own, j, group)));
        val filter = c->wide_x ? add(mul(j, wide_channels(k)), channel)
                               : add(mul(channel, imm(c->few)), j); // dense, unlike filters that are read
        IF(lt(channel, wide_channels(k))) {
            if (c->slices == 1)
                set(conv_elements_from(k->p.from[CONV_W], c->form.out), convert(I64, filter), sum);
            else
                set(conv_elements_from(k->p.sums, F32),
                    add(mul(convert(I64, cta_x()), filters_of(&k->p)), convert(I64, filter)), sum);
        }
    }
}

static void multiply(const conv_skinny_config *c)
{
    launch_bounds(THREADS, CTAS_OF_SM);
    skinny k = { .cfg = c, .p = params_of(conv) };
    conv_channels channels[RUNS_MAX];
    const bool of_weights = c->form.direction == CKL_CONV_WEIGHT;
    k.rKept = fragment(F32, compact(shape(c->vec, c->runs, c->few)));
    find_place(&k);
    grid_wait();
    launch_dependents();
    if (of_weights)
        fill(k.rKept, immf(0));
    else
        load_filters(&k);
    UNROLL(q, of_weights || sums_wide(c) ? 0 : c->runs) {
        val last = sub(wide_channels(&k), imm(c->vec));
        channels[q] = conv_load_channels(&c->form, &k.p, min(add(k.channel, imm(q * c->lanes * c->vec)), last), c->vec);
    }
    const int pixels = groups_of(c) * c->ahead;
    LOOP_FROM(tile, cta_x(), div_up(k.pixels, pixels), grid_x()) {
        val first = add(mul(tile, imm(pixels)), k.group);
        if (of_weights)
            add_pixels(&k, first);
        else if (sums_wide(c))
            sum_pixels(&k, first);
        else
            spread_pixels(&k, first, channels);
    }
    if (of_weights)
        store_sums(&k);
}

/* Kernel 1: each lane has a filter, each warp some of its slices, whose sums are added in the order of the warps. */
static void add_slices(const conv_skinny_config *c)
{
    enum { WARPS = THREADS / LANES };
    launch_bounds(THREADS, 0);
    const conv_values p = params_of(conv);
    tensor sSum = smem_tensor("sums", F32, compact(shape(LANES, WARPS)), 16); // (FILTER,WARP)
    val filters = filters_of(&p), filter = convert(I64, add(mul(cta_x(), imm(LANES)), lane()));
    val own = min(filter, sub(filters, imm64(1))), sum = immf(0), slices[SLICES_MAX / WARPS];
    grid_wait();
    launch_dependents();
    UNROLL(i, ceil_div(c->slices, WARPS)) {
        val slice = add(warp(), imm(i * WARPS)), last = imm(c->slices - 1);
        val x = at(conv_elements_from(p.sums, F32), add(mul(convert(I64, min(slice, last)), filters), own));
        slices[i] = select(le(slice, last), x, immf(0));
    }
    UNROLL(i, ceil_div(c->slices, WARPS))
        sum = add(sum, slices[i]);
    set(sSum, coord(lane(), warp()), sum);
    cta_sync();
    IF(logical_and(eq(warp(), imm(0)), lt(filter, filters))) {
        val total = immf(0);
        UNROLL(w, WARPS)
            total = add(total, at(sSum, lane(), imm(w)));
        set(conv_elements_from(p.from[CONV_W], c->form.out), filter, total);
    }
}

static void conv_skinny(const void *config, int kernel)
{
    if (kernel == 0)
        multiply(config);
    else
        add_slices(config);
}

/* The host side */

/*
 * The problem as a product of pixels, or of images that are rows of one, and a few channels on a side: elements from
 * row to row.
 */
typedef struct skinny_sizes {
    int64_t few, wide, pixels, few_pitch, wide_pitch, filter_pitch;
    bool wide_x;
} skinny_sizes;

static skinny_sizes sizes_of(const void *desc) // a prepared one
{
    const ckl_conv_desc *d = desc;
    const ckl_gemm_desc *product = conv_pointwise_product(desc);
    const bool data = d->direction == CKL_CONV_DATA, weight = d->direction == CKL_CONV_WEIGHT;
    const int64_t channels = data || weight ? product->n : product->k, x = data     ? product->ldd
                                                                           : weight ? product->ldb
                                                                                    : product->lda;
    const int64_t y = data || weight ? product->lda : product->ldd;
    const bool wide_x = channels >= d->k;
    return (skinny_sizes){ .few = min_i64(channels, d->k),
                           .wide = max_i64(channels, d->k),
                           .pixels = weight ? product->k : product->m,
                           .few_pitch = wide_x ? y : x,
                           .wide_pitch = wide_x ? x : y,
                           .filter_pitch = weight ? product->ldd : product->ldb,
                           .wide_x = wide_x };
}

/* Do all wide rows begin at whole vectors; and all rows of few channels, that are read? Filters lie along x. */
static bool wide_begins(const skinny_sizes *s, const conv_skinny_config *c)
{
    return s->wide % c->vec == 0 && s->wide_pitch % c->vec == 0 && (!s->wide_x || s->filter_pitch % c->vec == 0);
}

static bool few_begin(const skinny_sizes *s, const conv_skinny_config *c)
{
    return s->few % c->vec_few == 0 && s->few_pitch % c->vec_few == 0;
}

/* The longest vectors of neighbours' few filters, which lie apart where taps see nothing. */
static int few_filters(const skinny_sizes *s, const conv_skinny_config *c)
{
    const int64_t most = 16 / (int64_t)ckl_dtype_bytes(c->form.dtype), vector = power_of_two_in(c->vec * s->few);
    const bool side_by_side = s->filter_pitch == s->few;
    return s->wide_x ? 1 : (int)min_i64(most, side_by_side ? vector : power_of_two_in(s->few | s->filter_pitch));
}

/* CTAs beside each other, for all wide channels; tiles of pixels that they take in turn. */
static int64_t blocks_of(const skinny_sizes *s, const conv_skinny_config *c)
{
    return ceil_div(s->wide, width_of(c));
}

static int64_t tiles_of(const skinny_sizes *s, const conv_skinny_config *c)
{
    return ceil_div(s->pixels, (int64_t)groups_of(c) * c->ahead);
}

/* The share of a CTA's registers that has work. */
static double use_of(const skinny_sizes *s, const conv_skinny_config *c)
{
    return (double)groups_of(c) * (double)s->wide / (double)(blocks_of(s, c) * THREADS * c->vec * c->runs);
}

/* Lanes and runs that leave the fewest idle: lanes of one warp that add up, or of a CTA. */
static void share_channels(const skinny_sizes *s, conv_skinny_config *c)
{
    enum { APART = 8, TOGETHER = 64 }; // channels of a thread that need not add them up; bytes of lanes side by side
    const int bytes = (int)ckl_dtype_bytes(c->form.dtype);
    const double MORE = 1.25;
    const bool sums = sums_wide(c);
    const int kept = KEPT_MAX / (c->vec * c->few), most = sums ? kept : (int)min_i64(kept, max_i64(1, APART / c->vec));
    conv_skinny_config best = *c;
    double use = 0;
    for (c->runs = 1; c->runs <= min_i64(most, RUNS_MAX); c->runs++) {
        const int64_t lanes = ceil_div(s->wide, (int64_t)c->vec * c->runs);
        c->lanes = (int)ceil_div(lanes, ceil_div(lanes, sums ? LANES : THREADS));
        if (sums ? lanes > LANES : c->runs > 1 && c->lanes * c->vec * bytes < TOGETHER)
            continue;
        const double now = use_of(s, c);
        if (now > use * (sums ? MORE : 1 / 1.05)) { // vectors of a thread share what they load of the few
            best = *c;
            use = now;
        }
    }
    *c = best;
}

/*
 * Lanes that add up in three steps, of whole rows: of odd channels each has more of them, and a warp more pixels. 41 to
 * 3 of data of 512x512 take 29.6 us by seven lanes, 44.8 by 14. lanes=0: it has no registers for that.
 */
static void share_with_few(const skinny_sizes *s, conv_skinny_config *c)
{
    enum { FEW_LANES = 8 };
    const int64_t runs = ceil_div(s->wide, FEW_LANES * c->vec);
    const bool fit = runs <= RUNS_MAX && runs * c->vec * c->few <= KEPT_MAX;
    c->runs = fit ? (int)runs : 1;
    c->lanes = fit ? (int)ceil_div(s->wide, runs * c->vec) : 0;
}

/* Slices for all SMs, but no second launch for what a CTA does in a few turns. */
static int slices_of(const skinny_sizes *s, const conv_skinny_config *c, const ckl_device_info *device)
{
    enum { TURNS = 4, CTAS = 2 * CTAS_OF_SM };
    const int64_t tiles = tiles_of(s, c), ctas = ceil_div((int64_t)CTAS * device->sm_count, blocks_of(s, c));
    return tiles <= TURNS ? 1 : (int)min_i64(min_i64(ctas, ceil_div(tiles, 2)), SLICES_MAX);
}

static bool candidate_skinny(const void *desc, const ckl_device_info *device, int i, void *config)
{
    enum { VECTOR_BYTES = 16, WORD = 4, BYTES_AHEAD = 64, VALUES = 32, NARROW = 8 };
    const ckl_conv_desc *d = desc;
    const skinny_sizes s = sizes_of(desc);
    const int bytes = (int)ckl_dtype_bytes(d->dtype);
    conv_skinny_config *c = config;
    c->form = conv_form_of(d);
    c->few = (int)s.few;
    c->wide_x = s.wide_x;
    if (i > (sums_wide(c) ? 1 : 0))
        return false;
    if (s.few < 1 || s.few > FEW_MAX)
        return true; // admission says so
    c->vec = c->vec_few = VECTOR_BYTES / bytes;
    while (c->vec > 1 && (!wide_begins(&s, c) || c->vec * c->few > KEPT_MAX))
        c->vec /= 2;
    while (c->vec_few > 1 && !few_begin(&s, c))
        c->vec_few /= 2;
    c->vec_w = 1;
    c->ahead = 1;
    (i == 0 ? share_channels : share_with_few)(&s, c);
    if (c->lanes == 0)
        return true;
    while (d->direction != CKL_CONV_WEIGHT && !sums_wide(c) && c->vec * bytes > WORD &&
           tiles_of(&s, c) * blocks_of(&s, c) < device->sm_count)
        c->vec /= 2; // 5 to 16 of 16 images of 8x8: 1.75 us by 16 bytes, 1.52 by four
    c->vec_w = few_filters(&s, c);
    while (!sums_wide(c) && c->lanes > NARROW && tiles_of(&s, c) * blocks_of(&s, c) < device->sm_count)
        c->lanes = (int)ceil_div(c->lanes, 2);
    while (2 * c->ahead * c->vec * c->runs * bytes <= BYTES_AHEAD && 2 * c->ahead * c->few <= VALUES &&
           c->ahead < AHEAD_MAX && tiles_of(&s, c) * blocks_of(&s, c) > 2 * CTAS_OF_SM * device->sm_count)
        c->ahead *= 2;
    c->slices = d->direction == CKL_CONV_WEIGHT ? slices_of(&s, c, device) : 1;
    return true;
}

static ckl_status check_config(const ckl_conv_desc *d, const conv_skinny_config *c)
{
    const skinny_sizes s = sizes_of(d);
    const int most = 16 / (int)ckl_dtype_bytes(d->dtype);
    if (c->few != s.few || c->wide_x != s.wide_x)
        FAIL(CKL_INVALID, "conv skinny: few=%d or wide_x=%d is not that of c=%" PRId64 " and k=%" PRId64, c->few,
             c->wide_x, d->c, d->k);
    if (!is_power_of_two(c->vec) || c->vec > most || !wide_begins(&s, c) || !is_power_of_two(c->vec_few) ||
        c->vec_few > most || !few_begin(&s, c))
        FAIL(CKL_INVALID, "conv skinny: vec=%d or vec_few=%d does not divide 16 bytes, the channels or a pitch", c->vec,
             c->vec_few);
    if (!is_power_of_two(c->vec_w) || c->vec_w > few_filters(&s, c))
        FAIL(CKL_INVALID, "conv skinny: vec_w=%d does not divide the few filters of %d neighbours", c->vec_w, c->vec);
    if (c->runs < 1 || c->runs > RUNS_MAX || c->vec * c->runs * c->few > KEPT_MAX || c->ahead < 1 ||
        c->ahead > AHEAD_MAX)
        FAIL(CKL_INVALID, "conv skinny: runs=%d vectors of vec=%d by few=%d, or ahead=%d, are more than registers hold",
             c->runs, c->vec, c->few, c->ahead);
    if (c->lanes < 1 || c->lanes > (sums_wide(c) ? LANES : THREADS) || (sums_wide(c) && width_of(c) < s.wide))
        FAIL(CKL_INVALID, "conv skinny: lanes=%d of %d channels each are none, or not in one warp or CTA", c->lanes,
             c->vec * c->runs);
    if (c->slices < 1 || c->slices > (d->direction == CKL_CONV_WEIGHT ? SLICES_MAX : 1))
        FAIL(CKL_INVALID, "conv skinny: slices=%d are not in 1..%d, or of no gradient of weights", c->slices,
             SLICES_MAX);
    return CKL_OK;
}

static ckl_status admit_skinny(const void *desc, const ckl_device_info *device, const void *config)
{
    const ckl_conv_desc *d = desc;
    const conv_skinny_config *c = config;
    const skinny_sizes s = sizes_of(desc);
    (void)device;
    TRY(conv_pointwise_check_pixels(desc));
    if (d->groups > 1 || d->dtype == CKL_I8 || (d->direction == CKL_CONV_WEIGHT && d->bias))
        FAIL(CKL_UNSUPPORTED, "conv skinny: it takes floats without groups, and no gradient of the bias");
    if (s.few < 1 || s.few > FEW_MAX)
        FAIL(CKL_UNSUPPORTED, "conv skinny: c=%" PRId64 " and k=%" PRId64 ", of which none is in 1..%d", d->c, d->k,
             FEW_MAX);
    if (s.wide > INT16_MAX || s.pixels > INT32_MAX / 2)
        FAIL(CKL_UNSUPPORTED, "conv skinny: %" PRId64 " channels or %" PRId64 " pixels are beyond its numbers", s.wide,
             s.pixels);
    TRY(conv_check_form("skinny", d, &c->form));
    return check_config(d, c);
}

static int64_t workspace_skinny(const ckl_plan *plan)
{
    const ckl_conv_desc *d = plan->desc;
    const conv_skinny_config *c = plan->config;
    const skinny_sizes s = sizes_of(d);
    return c->slices == 1 ? 0 : c->slices * s.few * s.wide * (int64_t)sizeof(float);
}

static conv_params params_of_product(const ckl_conv_desc *d, const ckl_conv_args *a, const skinny_sizes *s)
{
    conv_params p = conv_params_of(d, a);
    const ckl_gemm_args matrices = conv_pointwise_matrices(d, a);
    if (d->direction != CKL_CONV_WEIGHT)
        p.from[CONV_W] = matrices.b; // from the tap on that sees something
    p.c = s->wide_x ? s->wide : s->few;
    p.k = s->wide_x ? s->few : s->wide;
    p.n = s->pixels;
    p.x_size[0] = p.x_size[1] = p.x_size[2] = 1;
    p.x[CONV_MODES] = s->wide_x ? s->wide_pitch : s->few_pitch;
    p.y[CONV_MODES] = s->wide_x ? s->few_pitch : s->wide_pitch;
    p.w[0] = s->filter_pitch;
    return p;
}

static ckl_status launch_skinny(const ckl_plan *plan, const void *args, ckl_stream stream)
{
    const ckl_conv_desc *d = plan->desc;
    const ckl_conv_args *a = args;
    const conv_skinny_config *c = plan->config;
    const skinny_sizes s = sizes_of(d);
    const int64_t blocks = blocks_of(&s, c), resident = max_i64(1, plan->kernels[0].clusters_resident / blocks);
    const bool of_weights = d->direction == CKL_CONV_WEIGHT;
    conv_params p = params_of_product(d, a, &s);
    p.sums = plan_workspace(plan, a->workspace);
    const int64_t bytes = (int64_t)ckl_dtype_bytes(d->dtype), out = (int64_t)ckl_dtype_bytes(d->out);
    const void *wide = p.from[wide_side(c)], *few = p.from[few_side(c)];
    const bool spread = !of_weights && !sums_wide(c);
    if (!PLAN_ALIGNED(c->vec * (spread ? min_i64(out, 16 / c->vec) : bytes), wide, spread ? a->residual : NULL) ||
        (!of_weights && !PLAN_ALIGNED(filter_vector(c) * bytes, a->w)) ||
        (!sums_wide(c) && !PLAN_ALIGNED(c->vec_few * bytes, few)))
        FAIL(CKL_INVALID,
             "conv skinny: a pointer is not aligned to vec=%d elements; config='vec=1 vec_few=1 vec_w=1' takes any",
             c->vec);
    const plan_grid grid = { of_weights ? c->slices : min_i64(tiles_of(&s, c), resident), blocks, 1 };
    TRY(plan_launch(plan, 0, grid, &p, stream));
    return c->slices == 1 ? CKL_OK
                          : plan_launch(plan, 1, (plan_grid){ .x = ceil_div(s.few * s.wide, LANES) }, &p, stream);
}

/*
 * Instructions of a thread for a pixel: RATE a cycle and SM. A warp's store of elements of 2 bytes takes some 5 cycles
 * more. 4 to 1280 of 64 images of 25x25 take 28.0 us, 3 to 151 of 32x32 14.0.
 */
static plan_cost cost_skinny(const void *desc, const ckl_device_info *device, const void *config)
{
    const double LOAD = 4, LANE = 3, WAIT = 900, START = 0.1, SUMS = 1.6, SUM_BYTES = 5e6; // of slices, a us
    const ckl_conv_desc *d = desc;
    const conv_skinny_config *c = config;
    const skinny_sizes s = sizes_of(desc);
    const bool of_weights = d->direction == CKL_CONV_WEIGHT;
    const double STORE = c->vec * (int)ckl_dtype_bytes(d->out) < 4 ? 12 : 8, RATE = of_weights ? 2.5 : 3;
    const double products = c->runs * c->vec * (c->few + 1.0), narrow = c->few * (LOAD / c->vec_few + 1);
    const double pixel = products + (sums_wide(c) ? c->runs * LOAD + c->few * (LANE * ceil(log2(c->lanes)) + STORE)
                                     : of_weights ? c->runs * LOAD + narrow
                                                  : c->runs * STORE + narrow);
    const double elements = (double)s.pixels * (double)(s.wide + s.few);
    const double sums = 2.0 * 4 * c->slices * (double)s.few * (double)s.wide; // bytes, there and back
    // a slice's pixels are waited for one after the other: 16 to 96 channels of 11 images of 7x7 take 4.8 us
    const double tiles = of_weights ? c->slices : (double)tiles_of(&s, c);
    return product_cost(&(product_work){ .tiles = tiles * (double)blocks_of(&s, c),
                                         .ctas = CTAS_OF_SM,
                                         .steps = (double)tiles_of(&s, c) / tiles,
                                         .multiply_adds = c->ahead * pixel * THREADS / LANES,
                                         .rate = RATE,
                                         .step_cycles = WAIT,
                                         .bytes = elements * (double)ckl_dtype_bytes(d->dtype),
                                         .us = START + (c->slices > 1 ? SUMS + sums / SUM_BYTES : 0) },
                        device);
}

static const field skinny_fields[] = CONV_FIELDS(conv_skinny_config, CONV_SKINNY_CONFIG);

const implementation conv_skinny_implementation = {
    CONV_RANKED(skinny, conv_skinny_config),
    .summary = "filters of one pixel, few channels on one side: vectors at memory's speed, no tensor cores; NHWC",
    .rivals = { &conv_pointwise_unaligned_implementation, &conv_pointwise_pitched_implementation,
                &conv_narrow_implementation, &conv_stem_implementation, &conv_pointwise_implementation,
                &conv_sm90_implementation, &conv_packed_implementation, &conv_sm90_weight_implementation,
                &conv_packed_weight_implementation },
    .describe = conv_skinny,
    .kernels = 2,
    .params = &conv_param_list,
    .workspace_bytes = workspace_skinny,
};
