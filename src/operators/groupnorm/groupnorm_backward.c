/*
 * groupnorm_backward.c - gradients: sums over the pixels of each channel, from those the two of a group, then dx.
 *
 * With d = x - mean, per channel of an image: a = rstd * sum of dy * d, b = sum of dy. A group needs A = sum of gamma *
 * a and B = sum of gamma * b over its channels:
 *     dx = dy * gamma * rstd - d * rstd^2 * A / count - rstd * B / count
 * dgamma and dbeta are the sums of a and b over the images; each slice stores its own in the workspace, where the last
 * kernel adds them up, in order.
 */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_kernels.h"
#include "skeletons/column.h"

enum { KIND_A, KIND_B, KINDS = GROUPNORM_KINDS };
enum { SCALE, LINEAR, CONSTANT, SCALES = GROUPNORM_SCALES }; // dx = dy * scale + d * linear + constant

typedef struct backward {
    groupnorm_kernel g;
    bool in_smem;        // the slices
    tensor sSums;        // (CHANNELS,ROWS,KINDS): of each thread of a column, of nhwc lines of each pixel of a fold
    tensor rGamma;       // (1) or (VEC) of a thread that has one column
    val weight, rstd;    // gamma, and rstd, of the channel whose sums the thread stores, if it is one at most
    tensor rMean, rRstd; // (1) or (VEC) of the thread's columns
    tensor rA, rB;       // (VEC) sums of the column on its way
} backward;

static bool is_nchw(const backward *k)
{
    return groupnorm_is_nchw(&k->g.s);
}

/* Columns */

static bool mixes(const backward *k)
{
    return groupnorm_mixes(k->g.s.cfg);
}

/* The statistics of the group of a thread's columns; of several groups it has one column, and only the means. */
static void load_statistics(backward *k)
{
    const int count = mixes(k) ? k->g.w.grid.vec : 1;
    const val column = groupnorm_existing(&k->g.s, &k->g.w, k->g.w.column);
    k->rMean = fragment(F32, compact(leaf(count))); // (1) or (VEC)
    k->rRstd = fragment(F32, compact(leaf(count))); // (1) or (VEC)
    for (int i = 0; i < count; i++) {
        val group = convert(I64, groupnorm_group(&k->g.s, &k->g.w, column, i));
        val index = add(k->g.s.group, group);
        set(k->rMean, i, groupnorm_read(k->g.s.a.mean, index));
        if (!mixes(k))
            set(k->rRstd, i, groupnorm_read(k->g.s.a.rstd, index));
    }
}

static void load_gamma(backward *k, val column)
{
    if (k->g.s.cfg->affine)
        k->rGamma = groupnorm_weights(&k->g.s, &k->g.w, k->g.s.a.gamma, column);
}

static void load_vector(void *kernel, groupnorm_vector *v)
{
    backward *k = kernel;
    const groupnorm_slice *s = &k->g.s;
    const bool in_smem = k->in_smem && !v->again;
    v->x = in_smem ? groupnorm_load_shared(s, add(k->g.slices.to[0], v->shared), v->vec)
                   : groupnorm_load(s, s->a.x, v->global, v->vec);
    v->dy = in_smem ? groupnorm_load_shared(s, add(k->g.slices.to[1], v->shared), v->vec)
                    : groupnorm_load(s, s->a.dy, v->global, v->vec);
}

/* Sums of channels */

static void add_vector(void *kernel, groupnorm_vector *v)
{
    backward *k = kernel;
    tensor rX = unpacked(v->x, F32), rDy = unpacked(v->dy, F32); // (VEC)
    for (int i = 0; i < v->vec; i++) {
        val d = sub(at(rX, i), at(k->rMean, mixes(k) ? i : 0));
        set(k->rA, i, fma(at(rDy, i), d, at(k->rA, i)));
        set(k->rB, i, add(at(k->rB, i), at(rDy, i)));
    }
}

/* Of nchw all elements belong to one channel. */
static void store_channel(backward *k, const groupnorm_column *c)
{
    for (int i = 1; i < k->g.w.grid.vec; i++) {
        set(k->rA, 0, add(at(k->rA, 0), at(k->rA, i)));
        set(k->rB, 0, add(at(k->rB, 0), at(k->rB, i)));
    }
    IF(c->exists) {
        set(k->sSums, coord(c->number, k->g.w.column_thread, KIND_A), mul(at(k->rA, 0), at(k->rRstd, 0)));
        set(k->sSums, coord(c->number, k->g.w.column_thread, KIND_B), at(k->rB, 0));
    }
}

static void store_channels(backward *k, const groupnorm_column *c)
{
    const int vec = k->g.w.grid.vec;
    for (int i = 0; i < vec && !mixes(k); i++)
        set(k->rA, i, mul(at(k->rA, i), at(k->rRstd, 0)));
    const tensor sums[KINDS] = { [KIND_A] = k->rA, [KIND_B] = k->rB };
    const tensor sLines =
        tensor_with_layout(k->sSums, compact(shape(k->g.w.grid.columns * vec, groupnorm_lines(k->g.s.cfg), KINDS)));
    groupnorm_add_lines(&k->g.s, &k->g.w, c->number, sums, sLines);
}

static void add_column(void *kernel, const groupnorm_column *c)
{
    backward *k = kernel;
    k->rA = fragment(F32, compact(leaf(k->g.w.grid.vec))); // (VEC)
    k->rB = fragment(F32, compact(leaf(k->g.w.grid.vec))); // (VEC)
    fill(k->rA, immf(0));
    fill(k->rB, immf(0));
    groupnorm_over_vectors(&k->g.s, &k->g.w, c, load_vector, add_vector, k);
    if (is_nchw(k))
        store_channel(k, c);
    else
        store_channels(k, c);
}

/* Is each channel of a slice stored by a thread of its own? Then gamma is here before its sums are. */
static bool has_channel(const backward *k)
{
    return k->g.s.cfg->affine && groupnorm_slice_channels(k->g.s.cfg) <= k->g.s.cfg->threads;
}

static val rstd_of(const backward *k, val channel)
{
    if (!mixes(k))
        return at(k->rRstd, 0); // of the one group
    if (has_channel(k))
        return k->rstd;
    const val group = convert(I64, div(channel, imm(k->g.s.cfg->channels)));
    return groupnorm_read(k->g.s.a.rstd, add(k->g.s.group, group));
}

static val weight_of(const backward *k, val channel)
{
    return has_channel(k) ? k->weight : groupnorm_weight(&k->g.s, k->g.s.a.gamma, channel);
}

/* Stores a channel's sums of this slice for dgamma and dbeta, and weighted by gamma for the group. */
static void store_totals(void *kernel, val channel, const val *total)
{
    const backward *k = kernel;
    const groupnorm_slice *s = &k->g.s;
    if (mixes(k))
        assign(total[KIND_A], mul(total[KIND_A], rstd_of(k, channel)));
    val number = add(s->channel, convert(I64, channel)), weight = immf(1);
    if (s->cfg->affine) {
        val line = add(mul(s->image, convert(I64, s->a.ranges)), convert(I64, s->range));
        for (int kind = 0; kind < KINDS; kind++) {
            val place = add(mul(add(mul(line, imm(KINDS)), imm(kind)), s->a.channels), number);
            groupnorm_write(s->a.partial, place, total[kind]);
        }
        weight = weight_of(k, channel);
    }
    for (int kind = 0; kind < KINDS; kind++)
        set(k->sSums, coord(channel, 0, kind), mul(total[kind], weight));
}

/* A and B of the lane's group in this slice. */
static groupnorm_state add_group(const void *kernel)
{
    const backward *k = kernel;
    const groupnorm_config *cfg = k->g.s.cfg;
    val first = mul(min(groupnorm_group_of_lane(&k->g.s), imm(cfg->bundle - 1)), imm(cfg->channels));
    const int channels = cfg->channels / cfg->parts; // of the group, in this slice
    const int lanes = groupnorm_lanes_of_group(cfg);
    groupnorm_state total = { .of = { [KIND_A] = variable(F32, immf(0)), [KIND_B] = variable(F32, immf(0)) } };
    val begin = lanes > 1 ? groupnorm_lane_of_group(&k->g.s) : variable(I32, imm(0)); // from a constant: u32
    LOOP_FROM(i, begin, imm(channels), imm(lanes))
        for (int kind = 0; kind < KINDS; kind++)
            assign(total.of[kind], add(total.of[kind], at(k->sSums, add(first, i), 0, kind)));
    groupnorm_sum_of_lanes(&k->g.s, KINDS, total.of);
    return total;
}

/* Of `n` for each lane; they need no count. */
static groupnorm_state merge(const groupnorm_slice *s, const groupnorm_state *of_lane, int n)
{
    groupnorm_state total = { .count = immf(0) };
    for (int kind = 0; kind < KINDS; kind++) {
        total.of[kind] = variable(F32, of_lane[0].of[kind]);
        for (int i = 1; i < n; i++)
            assign(total.of[kind], add(total.of[kind], of_lane[i].of[kind]));
    }
    groupnorm_sum_of_lanes(s, KINDS, total.of);
    return total;
}

/* The lanes of each group tell the CTA. */
static void publish(const void *kernel, groupnorm_state all)
{
    const backward *k = kernel;
    IF(groupnorm_speaks(&k->g.s))
        for (int kind = 0; kind < KINDS; kind++)
            set(k->g.sGroups, coord(kind, groupnorm_group_of_lane(&k->g.s)), mul(all.of[kind], k->g.s.a.reciprocal));
}

/* dx */

static void write_vector(void *kernel, groupnorm_vector *v)
{
    backward *k = kernel;
    tensor rX = unpacked(v->x, F32), rDy = unpacked(v->dy, F32), rDx = fragment_like(rX, F32); // (VEC)
    for (int i = 0; i < v->vec; i++) {
        int group = mixes(k) ? i : 0, weight = is_nchw(k) ? 0 : i;
        val d = sub(at(rX, i), at(k->rMean, group));
        val rest = fma(d, at(k->g.rScales[LINEAR], group), at(k->g.rScales[CONSTANT], group));
        set(rDx, i, fma(at(rDy, i), at(k->g.rScales[SCALE], k->g.s.cfg->affine ? weight : group), rest));
    }
    groupnorm_store(&k->g.s, v, rDx);
}

static void find_scales(void *kernel, val channel, val group)
{
    const backward *k = kernel;
    const val rstd = rstd_of(k, channel), minus = neg(rstd);
    set(k->g.sScales, coord(SCALE, channel), k->g.s.cfg->affine ? mul(rstd, weight_of(k, channel)) : rstd);
    set(k->g.sScales, coord(LINEAR, channel), mul(mul(minus, rstd), at(k->g.sGroups, KIND_A, group)));
    set(k->g.sScales, coord(CONSTANT, channel), mul(minus, at(k->g.sGroups, KIND_B, group)));
}

static void begin_column(void *kernel, val column)
{
    backward *k = kernel;
    const int weights = !k->g.s.cfg->affine || is_nchw(k) ? 1 : k->g.w.grid.vec;
    if (!groupnorm_has_column(&k->g))
        load_gamma(k, column);
    for (int i = 0; i < SCALES; i++)
        k->g.rScales[i] = fragment(F32, compact(leaf(i == SCALE ? weights : 1))); // (1) or (VEC)
    const val group = groupnorm_group(&k->g.s, &k->g.w, column, 0), rstd = at(k->rRstd, 0), minus = neg(rstd);
    set(k->g.rScales[LINEAR], 0, mul(mul(minus, rstd), at(k->g.sGroups, KIND_A, group)));
    set(k->g.rScales[CONSTANT], 0, mul(minus, at(k->g.sGroups, KIND_B, group)));
    for (int i = 0; i < weights; i++)
        set(k->g.rScales[SCALE], i, k->g.s.cfg->affine ? mul(rstd, at_f32(k->rGamma, i)) : rstd);
}

/* dgamma and dbeta */

/* Adds up the lines of sums of the slices: narrow columns, so that there are CTAs for most SMs. */
void groupnorm_gradients(const groupnorm_config *cfg, bool few)
{
    enum { COLUMNS = GROUPNORM_GRADIENT_COLUMNS, THREADS = 512, STEPS = 16 };
    const int threads = few ? GROUPNORM_LINES_FEW / STEPS * COLUMNS : THREADS;
    const column_split split = { .threads = threads, .lanes = COLUMNS, .cluster = 1, .vec = 1, .steps = STEPS };
    const reduction sum = reduce_sums(1);
    groupnorm_values a = params_of(groupnorm);
    val columns = mul(a.channels, imm(GROUPNORM_KINDS)), lines = convert(U32, a.lines);
    column_place p = column_here(&split, lines, columns, grid_x());
    groupnorm_wait();
    tensor rSums = fragment(F32, compact(shape(1, split.steps))); // (VEC,STEPS)
    val total = variable(F32, immf(0));
    LOOP_FROM(begin, imm_as(U32, 0), lines, imm((int)column_split_lines(&split))) {
        column_place here = column_from(&p, begin);
        column_load(&split, &here, &(column_tensor){ a.partial, F32, columns, a.lines }, rSums, 0);
        for (int i = 0; i < split.steps; i++)
            assign(total, add(total, at(rSums, i)));
    }
    column_reduce(&split, &p, &sum, &total);
    IF(logical_and(eq(p.line, imm(0)), lt(p.column, columns))) {
        val is_beta = ge(p.column, a.channels), channel = select(is_beta, sub(p.column, a.channels), p.column);
        val bytes = mul(convert(U64, channel), imm(dtype_bytes(cfg->dtype)));
        tensor gSum = gmem_tensor(add(select(is_beta, a.dbeta, a.dgamma), bytes), cfg->dtype, compact(leaf(1))); // (1)
        set(gSum, 0, convert(cfg->dtype, total));
    }
}

/* Slices */

static void begin(void *kernel)
{
    backward *k = kernel;
    const groupnorm_config *cfg = k->g.s.cfg;
    const int channels = groupnorm_slice_channels(cfg);
    if (k->in_smem && mixes(k))
        k->g.w.at_once = GROUPNORM_UNROLLED / 2;
    const tensor sWords = smem_tensor("sums", F32, compact(shape(channels, groupnorm_sum_words(cfg))), 16);
    k->sSums = tensor_with_layout(sWords, compact(shape(channels, groupnorm_sum_rows(cfg), KINDS)));
    k->g.sScales = tensor_with_layout(sWords, compact(shape(SCALES, channels))); // when sums are known of groups
    if (!k->in_smem)
        return;
    const int64_t bytes = groupnorm_slice_bytes(cfg);
    const val x = smem_address(smem_alloc("x, dy", 2 * bytes, 16)), dy = add(x, imm_as(U32, bytes));
    k->g.slices = (groupnorm_staging){ 2, { k->g.s.a.x, k->g.s.a.dy }, { x, dy } };
}

static void load_weights(void *kernel)
{
    backward *k = kernel;
    load_statistics(k);
    if (has_channel(k)) {
        const val channel = min(convert(I32, thread()), sub(k->g.s.channels, imm(1)));
        k->weight = groupnorm_weight(&k->g.s, k->g.s.a.gamma, channel);
        if (mixes(k))
            k->rstd =
                groupnorm_read(k->g.s.a.rstd, add(k->g.s.group, convert(I64, div(channel, imm(k->g.s.cfg->channels)))));
    }
    if (groupnorm_has_column(&k->g))
        load_gamma(k, groupnorm_existing(&k->g.s, &k->g.w, k->g.w.column));
}

static void add_up(void *kernel)
{
    backward *k = kernel;
    groupnorm_over_columns(&k->g.s, &k->g.w, add_column, k);
    groupnorm_add_rows(&k->g.s, k->g.s.channels, k->sSums, store_totals, k);
    cta_sync();
}

void groupnorm_backward(const groupnorm_config *cfg, groupnorm_slicing slicing, bool vectors)
{
    enum { AT_ONCE = 4 };
    static const groupnorm_direction direction = { .words = KINDS,
                                                   .group_words = KINDS,
                                                   .at_once = AT_ONCE,
                                                   .begin = begin,
                                                   .load_weights = load_weights,
                                                   .add_up = add_up,
                                                   .found = add_group,
                                                   .merge = merge,
                                                   .publish = publish,
                                                   .find_scales = find_scales,
                                                   .begin_column = begin_column,
                                                   .load_vector = load_vector,
                                                   .write_vector = write_vector };
    backward k = { .g = { .does = &direction }, .in_smem = slicing != GROUPNORM_SPLIT };
    groupnorm_describe(&k.g, cfg, slicing, vectors);
}
