/*
 * conv_skinny.c - filters of one pixel where one side has a few channels: a tall and skinny product, NHWC, by memory's
 * speed.
 *
 * A thread has some of the wide side's channels in registers, and rows of pixels in turn. Forward and of data it keeps
 * the filters: wide rows are multiplied and added over lanes, or few channels make a wide row. Of weights it keeps
 * sums, of which threads add theirs in shared memory, and a second kernel those of slices of pixels, always in the same
 * order.
 */
#include "cute/kernel.h"
#include "cute/vectors.h"
#include "operators/conv/conv_epilogue.h"
#include "operators/conv/conv_skinny.h"
#include "operators/conv/conv_wait.h"

enum { LOADS_MAX = SKINNY_AHEAD_MAX * SKINNY_FEW_MAX };

/* Everything a thread knows. */
typedef struct skinny {
    const conv_skinny_config *cfg;
    conv_values p;
    val pixels;                  // u32: of all images
    val lane, group;             // among those that share a pixel; the number of its pixel in a CTA: u32
    val channel;                 // u32: the first of its vector, of the first run
    val inside[SKINNY_RUNS_MAX]; // does it work, and is there its vector?
    tensor rKept;                // (VEC,RUNS,FEW): its filters or sums
} skinny;

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
    return pixel_at(k, side, imm(skinny_groups(k->cfg)));
}

/* Vectors of the thread's pixels from element `index` on: so many of each, `far` elements apart. */
typedef struct pixel_vectors {
    int side, vec, count, far;
    val index;
} pixel_vectors;

static void find_place(skinny *k)
{
    const conv_skinny_config *c = k->cfg;
    val number = skinny_sums_wide(c) ? lane() : thread();
    val group = div(number, imm(c->lanes)),
        works = lt(group, imm(skinny_sums_wide(c) ? SKINNY_LANES / c->lanes : skinny_groups(c)));
    k->lane = rem(number, imm(c->lanes));
    k->group = skinny_sums_wide(c) ? add(mul(warp(), imm(SKINNY_LANES / c->lanes)), group) : group;
    k->channel = add(mul(cta_y(), imm(skinny_width(c))), mul(k->lane, imm(c->vec)));
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
    const int vec = skinny_filter_vector(c), each = c->vec * c->few / vec; // vectors of a run
    vector_at at[SKINNY_KEPT_MAX];
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
    return add(first, imm(u * skinny_groups(k->cfg)));
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
    val index = add(pixel_at(k, skinny_wide_side(c), first), convert(I64, k->channel));
    return load_pixels(k, &(pixel_vectors){ skinny_wide_side(c), c->vec, c->runs, c->lanes * c->vec, index }, first,
                       k->inside);
}

/* (FEW,AHEAD) */
static tensor load_few(const skinny *k, val first)
{
    const conv_skinny_config *c = k->cfg;
    const pixel_vectors few = { skinny_few_side(c), c->vec_few, c->few / c->vec_few, c->vec_few,
                                pixel_at(k, skinny_few_side(c), first) };
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
    val index = pixel_at(k, skinny_few_side(c), first);
    UNROLL(u, c->ahead) {
        val sums[SKINNY_FEW_MAX];
        UNROLL(j, c->few) {
            val sum = immf(0);
            UNROLL(i, c->vec * c->runs)
                sum = fma(at(rX, i % c->vec, i / c->vec, u), at(k->rKept, i % c->vec, i / c->vec, j), sum);
            sums[j] = sum_over_lanes(k, sum);
        }
        IF(logical_and(logical_and(k->inside[0], eq(k->lane, imm(0))), lt(pixel_of(k, first, u), k->pixels)))
            UNROLL(j, c->few)
                conv_store(&c->form, &k->p, k->p.from[skinny_few_side(c)], add(index, imm64(j)), imm64(j), sums[j]);
        index = add(index, apart(k, skinny_few_side(c)));
    }
}

/* Pixels of few channels times the filters. */
static void spread_pixels(const skinny *k, val first, const conv_channels channels[])
{
    const conv_skinny_config *c = k->cfg;
    const tensor rX = load_few(k, first);
    val index = add(pixel_at(k, skinny_wide_side(c), first), convert(I64, k->channel));
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
                conv_store_run(&c->form, &k->p, &channels[q], k->p.from[skinny_wide_side(c)], add(index, imm64(far)),
                               add(k->channel, imm(far)), rSum);
        }
        index = add(index, apart(k, skinny_wide_side(c)));
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
    const int width = skinny_width(c), count = width * c->few;
    tensor sSum = smem_tensor("sums", F32, compact(shape(width, c->few, skinny_groups(c))), 16); // (CHANNEL,FEW,GROUP)
    IF(lt(k->group, imm(skinny_groups(c))))
        UNROLL(i, c->vec * c->runs)
            UNROLL(j, c->few)
                set(sSum,
                    coord(add(mul(k->lane, imm(c->vec)), imm(i / c->vec * c->lanes * c->vec + i % c->vec)), imm(j),
                          k->group),
                    at(k->rKept, i % c->vec, i / c->vec, j));
    cta_sync();
    LOOP_FROM(e, thread(), imm(count), imm(SKINNY_THREADS)) {
        val own = rem(e, imm(width)), j = div(e, imm(width)), sum = variable(F32, immf(0));
        val channel = add(mul(cta_y(), imm(width)), own);
        LOOP(group, imm(skinny_groups(c)))
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
    launch_bounds(SKINNY_THREADS, SKINNY_CTAS);
    skinny k = { .cfg = c, .p = params_of(conv) };
    conv_channels channels[SKINNY_RUNS_MAX];
    const bool of_weights = c->form.direction == CKL_CONV_WEIGHT;
    k.rKept = fragment(F32, compact(shape(c->vec, c->runs, c->few)));
    find_place(&k);
    conv_wait(&k.p);
    if (of_weights)
        fill(k.rKept, immf(0));
    else
        load_filters(&k);
    UNROLL(q, of_weights || skinny_sums_wide(c) ? 0 : c->runs) {
        val last = sub(wide_channels(&k), imm(c->vec));
        channels[q] = conv_load_channels(&c->form, &k.p, min(add(k.channel, imm(q * c->lanes * c->vec)), last), c->vec);
    }
    const int pixels = skinny_groups(c) * c->ahead;
    LOOP_FROM(tile, cta_x(), div_up(k.pixels, pixels), grid_x()) {
        val first = add(mul(tile, imm(pixels)), k.group);
        if (of_weights)
            add_pixels(&k, first);
        else if (skinny_sums_wide(c))
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
    enum { WARPS = SKINNY_THREADS / SKINNY_LANES };
    launch_bounds(SKINNY_THREADS, 0);
    const conv_values p = params_of(conv);
    tensor sSum = smem_tensor("sums", F32, compact(shape(SKINNY_LANES, WARPS)), 16); // (FILTER,WARP)
    val filters = filters_of(&p), filter = convert(I64, add(mul(cta_x(), imm(SKINNY_LANES)), lane()));
    val own = min(filter, sub(filters, imm64(1))), sum = immf(0), slices[SKINNY_SLICES_MAX / WARPS];
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

void conv_skinny(const void *config, int kernel)
{
    if (kernel == 0)
        multiply(config);
    else
        add_slices(config);
}
