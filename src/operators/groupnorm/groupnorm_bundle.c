/*
 * groupnorm_bundle.c - the threads of a bundle of groups hold it in registers, or read it tile by tile if it is too long.
 *
 * A bundle is a list of elements: of NCHW the channels of one group, which lie side by side; of NHWC, pixel after pixel, the
 * channels of some groups, so that what is read of a pixel fills whole sectors of memory.
 */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_config.h"

/* The parameters, in the order of the launch. A bundle has `length` elements, and `bundles` of them an image. */
typedef struct operands {
    val rows, length, bundles, group_channels, channels, pixels, reciprocal, eps; // rows: bundles of all images
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

/* Statistics of the groups of a bundle; the whole mean is mean + rest, which f32 cannot hold. */
typedef struct bundle {
    const groupnorm_config *cfg;
    row_split split;
    row_place place;
    operands o;
    val base;                          // i64, element of the tensor where the bundle starts
    val channel;                       // i64, its first channel
    tensor rX;                         // (VEC,STEPS), if it is kept
    val sum[2 * GROUPNORM_BUNDLE_MAX]; // of values, or of differences and then their squares
    val mean[GROUPNORM_BUNDLE_MAX], rest[GROUPNORM_BUNDLE_MAX], rstd[GROUPNORM_BUNDLE_MAX], shift[GROUPNORM_BUNDLE_MAX];
} bundle;

/* Where a vector lies: in the tensor and in gamma (i64), and in which group of the bundle (u32). */
typedef struct vector_place {
    val inside, element, channel, group;
} vector_place;

static vector_place place_of(const bundle *b, const row_place *p, int step)
{
    const operands *o = &b->o;
    int stride = (int)(row_split_cols(&b->split) / b->split.steps);
    val e = add(p->first, imm(step * stride));
    vector_place v = { .inside = row_inside(&b->split, p, step), .group = imm(0) };
    if (b->cfg->layout == CKL_NCHW) {
        v.element = add(b->base, convert(I64, e));
        v.channel = add(b->channel, convert(I64, div(e, o->pixels)));
        return v;
    }
    val width = mul(o->group_channels, imm(b->cfg->bundle)), pixel = div(e, width), inner = sub(e, mul(pixel, width));
    v.element = add(add(b->base, mul(convert(I64, pixel), o->channels)), convert(I64, inner));
    v.channel = add(b->channel, convert(I64, inner));
    if (b->cfg->bundle > 1)
        v.group = div(inner, o->group_channels);
    return v;
}

static tensor vector_at(const bundle *b, val address, val element)
{
    val bytes = mul(convert(U64, element), imm((int)ckl_dtype_bytes(b->cfg->dtype)));
    return gmem_tensor(add(address, bytes), b->cfg->dtype, compact(leaf(b->split.vec))); // (VEC)
}

static int align_of(const bundle *b)
{
    return b->split.vec * (int)ckl_dtype_bytes(b->cfg->dtype);
}

/* Past the end of the bundle: zero. */
static tensor load_values(const bundle *b, const row_place *p)
{
    tensor rX = fragment(b->cfg->dtype, compact(shape(b->split.vec, b->split.steps))); // (VEC,STEPS)
    const bool guarded = !ir_is_int(row_inside(&b->split, p, 0), 1);
    if (guarded)
        fill(rX, ir_float(b->cfg->dtype, 0));
    for (int step = 0; step < b->split.steps; step++) {
        vector_place v = place_of(b, p, step);
        tensor gX = with_cache(vector_at(b, b->o.x, v.element), IR_CACHE_STREAM); // (VEC)
        if (!guarded)
            copy(gX, slice(rX, _, step), align_of(b));
        else IF(v.inside)
            copy(gX, slice(rX, _, step), align_of(b));
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

static val wide(const bundle *b, tensor rX, int step, int i)
{
    return convert(F32, at(rX, step * b->split.vec + i));
}

/* x[g], where g is the group of a vector. */
static val of_group(const bundle *b, const val *x, val group)
{
    val chosen = x[0];
    for (int g = 1; g < b->cfg->bundle; g++)
        chosen = select(eq(group, imm(g)), x[g], chosen);
    return chosen;
}

static void add_to_group(bundle *b, val *sum, val group, val x)
{
    for (int g = 0; g < b->cfg->bundle; g++)
        assign(sum[g], add(sum[g], b->cfg->bundle == 1 ? x : select(eq(group, imm(g)), x, immf(0))));
}

/* Passes */

static void add_values(bundle *b, tensor rX, const row_place *p)
{
    for (int step = 0; step < b->split.steps; step++) {
        val sum = wide(b, rX, step, 0);
        for (int i = 1; i < b->split.vec; i++)
            sum = add(sum, wide(b, rX, step, i));
        add_to_group(b, b->sum, place_of(b, p, step).group, sum);
    }
}

static void add_squares(bundle *b, tensor rX, const row_place *p)
{
    for (int step = 0; step < b->split.steps; step++) {
        vector_place v = place_of(b, p, step);
        val mean = of_group(b, b->mean, v.group), sum = immf(0), squares = immf(0);
        for (int i = 0; i < b->split.vec; i++) {
            val x = select(v.inside, sub(wide(b, rX, step, i), mean), immf(0));
            sum = add(sum, x);
            squares = fma(x, x, squares);
        }
        add_to_group(b, b->sum, v.group, sum);
        add_to_group(b, b->sum + b->cfg->bundle, v.group, squares);
    }
}

/* gamma or beta of a vector: of NCHW one channel's. */
static val weight(const bundle *b, tensor rWeight, int i)
{
    return convert(F32, at(rWeight, b->cfg->layout == CKL_NCHW ? 0 : i));
}

static void write_vector(bundle *b, tensor rX, int step, vector_place v)
{
    layout one = compact(leaf(b->cfg->layout == CKL_NCHW ? 1 : b->split.vec));
    tensor rGamma = fragment(b->cfg->dtype, one), rBeta = fragment(b->cfg->dtype, one); // (VEC) or (1)
    tensor rY = fragment(F32, compact(leaf(b->split.vec)));                             // (VEC)
    if (b->cfg->affine) {
        copy(tensor_with_layout(vector_at(b, b->o.gamma, v.channel), one), rGamma, align_of(b));
        copy(tensor_with_layout(vector_at(b, b->o.beta, v.channel), one), rBeta, align_of(b));
    }
    val mean = of_group(b, b->mean, v.group), rstd = of_group(b, b->rstd, v.group);
    val shift = of_group(b, b->shift, v.group);
    for (int i = 0; i < b->split.vec; i++) {
        val y = sub(mul(sub(wide(b, rX, step, i), mean), rstd), shift);
        set(rY, i, b->cfg->affine ? fma(y, weight(b, rGamma, i), weight(b, rBeta, i)) : y);
    }
    copy(rY, with_cache(vector_at(b, b->o.y, v.element), IR_CACHE_STREAM), align_of(b));
}

static void write_result(bundle *b, tensor rX, const row_place *p)
{
    for (int step = 0; step < b->split.steps; step++) {
        vector_place v = place_of(b, p, step);
        IF(v.inside)
            write_vector(b, rX, step, v);
    }
}

/* Statistics */

static void add_up(bundle *b, int count, tile_pass *pass)
{
    const reduction sums = { count, combine_sum, &count };
    for (int i = 0; i < count; i++)
        assign(b->sum[i], immf(0));
    over_bundle(b, pass);
    row_reduce(&b->split, &sums, b->sum);
}

static void find_statistics(bundle *b)
{
    const int groups = b->cfg->bundle;
    add_up(b, groups, add_values);
    for (int g = 0; g < groups; g++)
        assign(b->mean[g], mul(b->sum[g], b->o.reciprocal));
    add_up(b, 2 * groups, add_squares);
    for (int g = 0; g < groups; g++) {
        b->rest[g] = mul(b->sum[g], b->o.reciprocal);
        val variance = sub(mul(b->sum[groups + g], b->o.reciprocal), mul(b->rest[g], b->rest[g]));
        b->rstd[g] = rsqrt(add(variance, b->o.eps));
        b->shift[g] = mul(b->rest[g], b->rstd[g]);
    }
}

static void save_statistics(const bundle *b)
{
    const int groups = b->cfg->bundle;
    val number = mul(convert(U64, b->place.row), imm(4 * groups));
    tensor gMean = gmem_tensor(add(b->o.mean, number), F32, compact(leaf(groups))); // (BUNDLE)
    tensor gRstd = gmem_tensor(add(b->o.rstd, number), F32, compact(leaf(groups))); // (BUNDLE)
    IF(both(eq(b->place.first, imm(0)), b->place.exists)) {
        IF(ne(b->o.mean, imm(0)))
            for (int g = 0; g < groups; g++)
                set(gMean, g, add(b->mean[g], b->rest[g]));
        IF(ne(b->o.rstd, imm(0)))
            for (int g = 0; g < groups; g++)
                set(gRstd, g, b->rstd[g]);
    }
}

/* Where this CTA's bundle starts. */
static void locate(bundle *b)
{
    val image = div(b->place.row, b->o.bundles), number = sub(b->place.row, mul(image, b->o.bundles));
    val width = convert(I64, mul(b->o.group_channels, imm(b->cfg->bundle))), pixels = convert(I64, b->o.pixels);
    val image_start = mul(mul(image, b->o.channels), pixels);
    b->channel = mul(number, width);
    b->base = add(image_start, b->cfg->layout == CKL_NCHW ? mul(b->channel, pixels) : b->channel);
}

void groupnorm_bundle(const void *config, int part)
{
    const groupnorm_config *cfg = config;
    bundle b = { .cfg = cfg, .split = groupnorm_split(cfg, part == 0), .o = declare() };
    b.place = row_here(&b.split, b.o.rows, b.o.length);
    ir_current()->ctas_per_sm = cfg->ctas_per_sm;
    if (cfg->cluster > 1)
        ir_current()->target = IR_SM90A;
    for (int i = 0; i < COUNT_OF(b.sum); i++)
        b.sum[i] = variable(F32, immf(0));
    for (int i = 0; i < COUNT_OF(b.mean); i++)
        b.mean[i] = variable(F32, immf(0));
    locate(&b);
    if (!cfg->tiled)
        b.rX = load_values(&b, &b.place);
    if (cfg->cluster > 1)
        cluster_sync(); // all CTAs of the cluster have started: their shared memory may be written
    find_statistics(&b);
    save_statistics(&b);
    over_bundle(&b, write_result);
}
