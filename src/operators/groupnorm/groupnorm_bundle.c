/*
 * groupnorm_bundle.c - the threads of a bundle of groups hold it in registers; one too long is read tile by tile.
 *
 * A bundle is a list of elements: of NCHW the channels of one group, which lie side by side; of NHWC, pixel after
 * pixel, the channels of some groups, so that what is read of a pixel fills whole sectors of memory. There a pixel's
 * vectors are counted as a power of two that divides the threads: each thread then stays with its channels.
 */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_config.h"

/* The parameters, in the order of the launch. `length`: elements of a bundle, idle ones included. */
typedef struct operands {
    val rows, length, bundles, group_channels, channels, pixels, reciprocal,
        eps; // rows: bundles of all images; bundles: of one
    val x, gamma, beta, y, mean, rstd;
} operands;

static operands declare(void)
{
    operands o;
    o.rows = param(I64, "rows");
    o.length = param(U32, "length");
    o.bundles = param(I64, "bundles");
    o.group_channels = param(U32, "group_channels");
    o.channels = param(I64, "channels");
    o.pixels = param(U32, "pixels");
    o.reciprocal = param(F32, "reciprocal"); // of the elements of a group
    o.eps = param(F32, "eps");
    o.x = pointer("x");
    o.gamma = pointer("gamma");
    o.beta = pointer("beta");
    o.y = pointer("y");
    o.mean = pointer("mean");
    o.rstd = pointer("rstd");
    return o;
}

/* A bundle and this thread's part of it: vectors of one channel after the other (NCHW) or of the same ones (NHWC). */
typedef struct bundle {
    const groupnorm_config *cfg;
    int align; // of vectors in memory, bytes
    row_split split;
    row_place place;
    operands o;
    val base;                          // i64, element of the tensor where the bundle starts
    val channel;                       // i64, its first channel; of NHWC this thread's first
    val group;                         // u32, of this thread in the bundle
    tensor rX;                         // (VEC,STEPS), if it is kept
    val sum[2 * GROUPNORM_BUNDLE_MAX]; // of all groups: values, or differences and then their squares
    val mean, rest, rstd;              // of this thread's group: the mean is mean + rest, which f32 cannot hold
} bundle;

static bool is_nchw(const bundle *b)
{
    return b->cfg->layout == CKL_NCHW;
}

/* This thread's vectors from place p on, in x or y. */
static tensor part_of(const bundle *b, const row_place *p, val address)
{
    const int bytes = (int)ckl_dtype_bytes(b->cfg->dtype), vec = b->split.vec, steps = b->split.steps;
    int64_t stride_elements = row_split_cols(&b->split) / steps;
    val element = add(b->base, convert(I64, p->first));
    layout part = make_layout(shape(vec, steps), stride(1, stride_elements));
    if (!is_nchw(b)) {
        int pixel = b->cfg->pixel;
        val number = div(p->first, imm(pixel)), inner = rem(p->first, imm(pixel));
        element = add(add(b->base, mul(convert(I64, number), b->o.channels)), convert(I64, inner));
        part = make_layout(shape(vec, steps), stride(1, mul(b->o.channels, imm((int)(stride_elements / pixel)))));
    }
    tensor gPart =
        gmem_tensor(add(address, mul(convert(U64, element), imm(bytes))), b->cfg->dtype, part); // (VEC,STEPS)
    return with_cache(gPart, IR_CACHE_STREAM);
}

/* Past the end of the bundle: zero. */
static tensor load_values(const bundle *b, const row_place *p)
{
    tensor gX = part_of(b, p, b->o.x);                                                 // (VEC,STEPS)
    tensor rX = fragment(b->cfg->dtype, compact(shape(b->split.vec, b->split.steps))); // (VEC,STEPS)
    const bool guarded = !ir_is_int(row_inside(&b->split, p, 0), 1);
    if (guarded)
        fill(rX, ir_float(b->cfg->dtype, 0));
    for (int step = 0; step < b->split.steps; step++) {
        if (!guarded)
            copy(slice(gX, _, step), slice(rX, _, step), b->align);
        else IF(row_inside(&b->split, p, step))
            copy(slice(gX, _, step), slice(rX, _, step), b->align);
    }
    return rX;
}

typedef void tile_pass(bundle *b, tensor rX, const row_place *p);

/* One pass over the bundle: over its registers, or over all tiles of memory. */
static void over_bundle(bundle *b, tile_pass *pass)
{
    if (!b->cfg->tiled) {
        pass(b, b->rX, &b->place);
        return;
    }
    LOOP_FROM(begin, imm(0), b->o.length, imm((int)row_split_cols(&b->split)))
    {
        row_place p = row_from(&b->place, begin);
        pass(b, load_values(b, &p), &p);
    }
}

static val wide(tensor t, int i)
{
    return convert(F32, at(t, i));
}

/* Passes: what a thread adds belongs to its group, whose number is known when it is added up. */

static void add_values(bundle *b, tensor rX, const row_place *p)
{
    (void)p;
    for (int i = 0; i < b->split.vec * b->split.steps; i++)
        assign(b->sum[i % 2], add(b->sum[i % 2], wide(rX, i)));
}

static void add_squares(bundle *b, tensor rX, const row_place *p)
{
    for (int i = 0; i < b->split.vec * b->split.steps; i++) {
        val x = select(row_inside(&b->split, p, i / b->split.vec), sub(wide(rX, i), b->mean), immf(0));
        assign(b->sum[0], add(b->sum[0], x));
        assign(b->sum[1], fma(x, x, b->sum[1]));
    }
}

/* gamma or beta at a channel: of NCHW for the whole vector. */
static tensor load_weight(const bundle *b, val address, val channel)
{
    layout part = compact(leaf(is_nchw(b) ? 1 : b->split.vec));
    val bytes = mul(convert(U64, channel), imm((int)ckl_dtype_bytes(b->cfg->dtype)));
    tensor gWeight = gmem_tensor(add(address, bytes), b->cfg->dtype, part); // (VEC) or (1)
    tensor rWeight = fragment_like(gWeight, b->cfg->dtype);                 // (VEC) or (1)
    copy(gWeight, rWeight, b->align);
    return rWeight;
}

static val channel_of(const bundle *b, const row_place *p, int step)
{
    if (!is_nchw(b))
        return b->channel;
    val first = add(p->first, imm(step * (int)(row_split_cols(&b->split) / b->split.steps)));
    return add(b->channel, convert(I64, div(first, b->o.pixels)));
}

static void write_vector(bundle *b, tensor rX, tensor gY, val channel)
{
    tensor rY = fragment_like(gY, F32), rGamma = { 0 }, rBeta = { 0 }; // (VEC)
    if (b->cfg->affine) {
        rGamma = load_weight(b, b->o.gamma, channel);
        rBeta = load_weight(b, b->o.beta, channel);
    }
    val shift = mul(b->rest, b->rstd);
    for (int i = 0; i < b->split.vec; i++) {
        int w = is_nchw(b) ? 0 : i;
        val y = sub(mul(sub(wide(rX, i), b->mean), b->rstd), shift);
        set(rY, i, b->cfg->affine ? fma(y, wide(rGamma, w), wide(rBeta, w)) : y);
    }
    copy(rY, gY, b->align);
}

static void write_result(bundle *b, tensor rX, const row_place *p)
{
    tensor gY = part_of(b, p, b->o.y); // (VEC,STEPS)
    for (int step = 0; step < b->split.steps; step++)
        IF(row_inside(&b->split, p, step))
            write_vector(b, slice(rX, _, step), slice(gY, _, step), channel_of(b, p, step));
}

/* Statistics */

/* Adds up the threads' sums, `kinds` for each group; returns those of this thread's group in sum[0] and on. */
static void add_up(bundle *b, int kinds)
{
    const int groups = b->cfg->bundle;
    int count = groups * kinds;
    const reduction sums = { count, combine_sum, &count };
    for (int i = count - 1; i >= 0 && groups > 1; i--)
        assign(b->sum[i], select(eq(b->group, imm(i / kinds)), b->sum[i % kinds], immf(0)));
    row_reduce(&b->split, &sums, b->sum);
    for (int i = kinds; i < count; i++)
        assign(b->sum[i % kinds], select(eq(b->group, imm(i / kinds)), b->sum[i], b->sum[i % kinds]));
}

static void find_statistics(bundle *b)
{
    over_bundle(b, add_values);
    assign(b->sum[0], add(b->sum[0], b->sum[1]));
    add_up(b, 1);
    assign(b->mean, mul(b->sum[0], b->o.reciprocal));
    assign(b->sum[0], immf(0));
    assign(b->sum[1], immf(0));
    over_bundle(b, add_squares);
    add_up(b, 2);
    b->rest = mul(b->sum[0], b->o.reciprocal);
    val variance = sub(mul(b->sum[1], b->o.reciprocal), mul(b->rest, b->rest));
    b->rstd = rsqrt(add(variance, b->o.eps));
}

/* The first thread of each group saves its statistics. */
static void save_statistics(const bundle *b, val number)
{
    val bytes = mul(convert(U64, add(mul(b->place.row, imm(b->cfg->bundle)), convert(I64, b->group))), imm(4));
    IF(both(eq(number, imm(0)), b->place.exists)) {
        IF(ne(b->o.mean, imm(0)))
            set(gmem_tensor(add(b->o.mean, bytes), F32, compact(leaf(1))), 0, add(b->mean, b->rest));
        IF(ne(b->o.rstd, imm(0)))
            set(gmem_tensor(add(b->o.rstd, bytes), F32, compact(leaf(1))), 0, b->rstd);
    }
}

/* Where this CTA's bundle starts, and what of it is this thread's. Returns the thread's element in its group. */
static val locate(bundle *b)
{
    val image = div(b->place.row, b->o.bundles), number = sub(b->place.row, mul(image, b->o.bundles));
    val width = mul(b->o.group_channels, imm(b->cfg->bundle)), pixels = convert(I64, b->o.pixels);
    val image_start = mul(mul(image, b->o.channels), pixels);
    b->channel = mul(number, convert(I64, width));
    b->group = variable(U32, imm(0));
    b->base = add(image_start, is_nchw(b) ? mul(b->channel, pixels) : b->channel);
    if (is_nchw(b))
        return b->place.first;
    val inner = rem(b->place.first, imm(b->cfg->pixel));
    assign(b->group, div(inner, b->o.group_channels));
    b->channel = add(b->channel, convert(I64, inner));
    b->place.limit = select(lt(inner, width), b->place.limit, imm(0));
    val first_of_group = mul(b->group, b->o.group_channels);
    return select(lt(inner, width), sub(b->place.first, first_of_group), imm(1));
}

void groupnorm_bundle(const void *config, int part)
{
    const groupnorm_config *cfg = config;
    bundle b = { .cfg = cfg, .split = groupnorm_split(cfg), .o = declare() };
    b.align = (part == 0 ? cfg->vec : 1) * (int)ckl_dtype_bytes(cfg->dtype);
    b.place = row_here(&b.split, b.o.rows, b.o.length);
    ir_current()->ctas_per_sm = cfg->ctas_per_sm;
    if (cfg->cluster > 1)
        ir_current()->target = IR_SM90A;
    for (int i = 0; i < COUNT_OF(b.sum); i++)
        b.sum[i] = variable(F32, immf(0));
    b.mean = variable(F32, immf(0));
    val number = locate(&b);
    if (!cfg->tiled)
        b.rX = load_values(&b, &b.place);
    if (cfg->cluster > 1)
        cluster_sync(); // all CTAs of the cluster have started: their shared memory may be written
    find_statistics(&b);
    save_statistics(&b, number);
    over_bundle(&b, write_result);
}
