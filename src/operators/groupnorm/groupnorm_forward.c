/*
 * groupnorm_forward.c - a bundle in the shared memory of a CTA or a cluster; or, split, statistics first and then y.
 *
 * Each thread adds up its values and their squares, counted from a pivot of its own: the median of its first three. No
 * single value that is far away from all others is one, which would cost the squares a factor of their number in
 * precision (Chan, Golub, LeVeque: Algorithms for computing the sample variance, 1983). Means and squares are then
 * merged by Chan's rule, over the threads of a group, then over its CTAs. A mean stays apart from its pivot, so that a
 * large one costs no digits.
 *
 * Where a vector has elements of several groups, each of them has sums of its own, and pivots are those of channels:
 * sums of all threads of a channel can then be added as they are.
 */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_kernels.h"

enum { SUMS = GROUPNORM_SUMS }; // of values, and of squares, side by side

/*
 * What some values of a group are known by: a pivot, their mean above it, the sum of the squares of their differences
 * from the mean.
 */
enum { MOMENTS_PIVOT, MOMENTS_MEAN, MOMENTS_SQUARES };

enum { MOMENTS_PIVOT_VALUES = 3, MOMENTS_OF_LANE_MAX = 32 }; // a pivot is the median of three; a lane merges so many

/* Of a channel, where vectors have several groups; and when all is known. */
enum { CHANNEL_SUM, CHANNEL_SQUARES, CHANNEL_SUMS = GROUPNORM_KINDS };
enum { MEAN, SCALE, SHIFT }; // scales: y = (x - mean) * scale + shift

/* What is known of a group when all is. */
enum { GROUP_MEAN, GROUP_REST, GROUP_RSTD, GROUP_WORDS };

typedef struct forward {
    groupnorm_kernel g;
    val pivot; // of this thread
    val sums[SUMS], squares[SUMS];
    int turn;                            // of the sums; vectors of one value use them all, too
    val count;                           // i32, of ragged columns: elements of this thread
    tensor rPivots, rSums[CHANNEL_SUMS]; // (VEC) where a vector has several groups
    tensor sMoments, sCounts; // (GROUPNORM_ENTRY,THREADS), (THREADS); or of channels, which have all the same count
    tensor rGamma, rBeta;     // (1) or (VEC) of a thread that has one column
    val gamma, beta;          // of the channel whose scale and shift the thread finds, if it is one at most
} forward;

/* Moments */

/* Of the sums of `count` values above their pivot, and of their squares. */
static groupnorm_state moments_of_sums(val count, val pivot, val sum, val squares)
{
    val mean = div(sum, max(count, immf(1)));
    val around = max_nan(fma(neg(sum), mean, squares), immf(0));
    return (groupnorm_state){ count, { [MOMENTS_PIVOT] = pivot, [MOMENTS_MEAN] = mean, [MOMENTS_SQUARES] = around } };
}

/*
 * The median of three of the group's pivots, of its lanes and then of what they have next: a lane of few values may
 * have one far away.
 */
static val common_pivot(const groupnorm_slice *s, const groupnorm_state *m, int n)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg);
    val first = sub(lane(), convert(U32, groupnorm_lane_of_group(s))), own = m->of[MOMENTS_PIVOT],
        x[MOMENTS_PIVOT_VALUES];
    for (int i = 0; i < MOMENTS_PIVOT_VALUES; i++) {
        const groupnorm_state *next = &m[min_i64(i / lanes, n - 1)];
        if (i % lanes == 0)
            own = select(lt(immf(0), next->count), next->of[MOMENTS_PIVOT], shuffle(m->of[MOMENTS_PIVOT], first));
        x[i] = shuffle(own, add(first, imm(i % lanes)));
    }
    return median_f32(x[0], x[1], x[2]);
}

/* What the lanes of a group have, `n` of them each, by Chan's rule: every lane gets the result. */
static groupnorm_state moments_merge(const groupnorm_slice *s, const groupnorm_state *m, int n)
{
    val sums[2] = { variable(F32, immf(0)), variable(F32, immf(0)) }, squares = variable(F32, immf(0));
    val pivot = common_pivot(s, m, n), means[MOMENTS_OF_LANE_MAX];
    for (int i = 0; i < n; i++) {
        means[i] = add(sub(m[i].of[MOMENTS_PIVOT], pivot), m[i].of[MOMENTS_MEAN]);
        assign(sums[0], add(sums[0], m[i].count));
        assign(sums[1], fma(m[i].count, means[i], sums[1]));
        assign(squares, add(squares, m[i].of[MOMENTS_SQUARES]));
    }
    groupnorm_sum_of_lanes(s, 2, sums);
    val mean = div(sums[1], max(sums[0], immf(1)));
    for (int i = 0; i < n; i++) {
        val difference = sub(means[i], mean);
        assign(squares, fma(mul(m[i].count, difference), difference, squares));
    }
    groupnorm_sum_of_lanes(s, 1, &squares);
    return (groupnorm_state){ sums[0],
                              { [MOMENTS_PIVOT] = pivot, [MOMENTS_MEAN] = mean, [MOMENTS_SQUARES] = squares } };
}

/* In shared memory, (GROUPNORM_ENTRY,PLACES). */
static void moments_set(tensor sMoments, val place, const groupnorm_state *m)
{
    for (int i = 0; i < GROUPNORM_ENTRY; i++)
        set(sMoments, coord(i, place), m->of[i]);
}

/* Weights */

static void load_weights(forward *k, val column)
{
    k->rGamma = groupnorm_weights(&k->g.s, &k->g.w, k->g.s.a.gamma, column);
    k->rBeta = groupnorm_weights(&k->g.s, &k->g.w, k->g.s.a.beta, column);
}

static bool has_column_weights(const forward *k)
{
    return k->g.s.cfg->affine && groupnorm_has_column(&k->g);
}

/* Are there scales of channels, and does a thread find one at most? */
static bool has_channel_weights(const forward *k)
{
    const groupnorm_config *cfg = k->g.s.cfg;
    return cfg->affine && groupnorm_has_scales(cfg) && groupnorm_slice_channels(cfg) <= cfg->threads;
}

static void load_channel_weights(forward *k, val channel)
{
    k->gamma = groupnorm_weight(&k->g.s, k->g.s.a.gamma, channel);
    k->beta = groupnorm_weight(&k->g.s, k->g.s.a.beta, channel);
}

static void load_early_weights(void *kernel)
{
    forward *k = kernel;
    if (has_channel_weights(k))
        load_channel_weights(k, min(convert(I32, thread()), sub(k->g.s.channels, imm(1))));
    if (has_column_weights(k))
        load_weights(k, groupnorm_existing(&k->g.s, &k->g.w, k->g.w.column));
}

/* Moments of a thread */

static void load_vector(void *kernel, groupnorm_vector *v)
{
    forward *k = kernel;
    v->x = v->again ? groupnorm_load(&k->g.s, k->g.s.a.x, v->global, v->vec)
                    : groupnorm_load_shared(&k->g.s, add(k->g.slices.to[0], v->shared), v->vec);
}

static void add_values(void *kernel, groupnorm_vector *v)
{
    forward *k = kernel;
    tensor rX = unpacked(v->x, F32); // (VEC)
    for (int i = 0; i < v->vec; i++) {
        val x = sub(at(rX, i), k->pivot);
        const int sum = k->turn++ % SUMS;
        assign(k->sums[sum], add(k->sums[sum], x));
        assign(k->squares[sum], fma(x, x, k->squares[sum]));
    }
    if (k->g.s.cfg->ragged)
        assign(k->count, add(k->count, imm(v->vec)));
}

static void add_elements(void *kernel, groupnorm_vector *v)
{
    const forward *k = kernel;
    tensor rX = unpacked(v->x, F32); // (VEC)
    for (int i = 0; i < v->vec; i++) {
        val x = sub(at(rX, i), at(k->rPivots, i));
        set(k->rSums[CHANNEL_SUM], i, add(at(k->rSums[CHANNEL_SUM], i), x));
        set(k->rSums[CHANNEL_SQUARES], i, fma(x, x, at(k->rSums[CHANNEL_SQUARES], i)));
    }
}

static void add_column(void *kernel, const groupnorm_column *c)
{
    forward *k = kernel;
    groupnorm_over_vectors(&k->g.s, &k->g.w, c, load_vector, groupnorm_mixes(k->g.s.cfg) ? add_elements : add_values,
                           k);
}

/* Of the thread's first values; where it has fewer, the last vector counts again. One of ends alone takes its first. */
static void find_pivot(forward *k)
{
    const groupnorm_grid *g = &k->g.w.grid;
    const int bytes = g->vec * dtype_bytes(k->g.s.cfg->dtype);
    val vectors = k->g.w.vectors;
    k->pivot = variable(F32, immf(0));
    if (k->g.s.cfg->ragged) {
        val exists;
        groupnorm_column column = groupnorm_column_at(&k->g.s, &k->g.w, imm_as(I32, 0));
        groupnorm_vector end = groupnorm_end(&k->g.s, &k->g.w, &column, 0, &exists);
        vectors = column.vectors;
        IF(exists) {
            load_vector(k, &end);
            assign(k->pivot, at(unpacked(end.x, F32), 0));
        }
    }
    IF(logical_and(lt(k->g.w.column, imm(g->columns)), lt(imm(0), vectors))) {
        val first = add(k->g.slices.to[0], mul(thread(), imm(bytes))), last = sub(vectors, imm(1)),
            x[MOMENTS_PIVOT_VALUES];
        for (int i = 0; i < MOMENTS_PIVOT_VALUES; i += g->vec) {
            val address = first;
            if (i > 0)
                address = add(
                    first, mul(convert(U32, min(imm(i / g->vec), last)), imm(bytes * g->abreast * g->column_threads)));
            tensor rX = unpacked(groupnorm_load_shared(&k->g.s, address, g->vec), F32); // (VEC)
            for (int e = 0; e < g->vec && i + e < MOMENTS_PIVOT_VALUES; e++)
                x[i + e] = at(rX, e);
        }
        assign(k->pivot, median_f32(x[0], x[1], x[2]));
    }
}

static val total_of(const val sums[SUMS])
{
    return add(add(sums[0], sums[1]), add(sums[2], sums[3]));
}

/* The values that this thread adds up, as f32. */
static val count_of_thread(const forward *k)
{
    const groupnorm_grid *g = &k->g.w.grid;
    if (k->g.s.cfg->ragged)
        return convert(F32, k->count);
    val columns = div(add(sub(imm(g->columns - 1), k->g.w.column), imm(g->abreast)), imm(g->abreast));
    return mul(convert(F32, mul(columns, k->g.w.vectors)), immf(g->vec));
}

static groupnorm_state moments_of_thread(forward *k)
{
    for (int i = 0; i < SUMS; i++) {
        k->sums[i] = variable(F32, immf(0));
        k->squares[i] = variable(F32, immf(0));
    }
    if (k->g.s.cfg->ragged)
        k->count = variable(I32, imm(0));
    find_pivot(k);
    groupnorm_over_columns(&k->g.s, &k->g.w, add_column, k);
    return moments_of_sums(count_of_thread(k), k->pivot, total_of(k->sums), total_of(k->squares));
}

/* Moments of a channel, where vectors have several groups */

/* i32: pixels of the slice. */
static val pixels_of_slice(const forward *k)
{
    return mul(k->g.s.count, imm(k->g.s.cfg->fold));
}

/* A value of the slice. */
static val value_at(const forward *k, val pixel, val channel)
{
    const groupnorm_config *cfg = k->g.s.cfg;
    const int bytes = dtype_bytes(cfg->dtype);
    val element = add(mul(pixel, imm(k->g.w.grid.columns * cfg->vec / cfg->fold)), channel);
    val address = add(k->g.slices.to[0], mul(convert(U32, element), imm(bytes)));
    return at_f32(smem_view(address, cfg->dtype, compact(leaf(1))), 0);
}

/* Of the channel's first pixels in the slice; where it has fewer, the last one counts again. */
static void find_channel_pivots(forward *k)
{
    const groupnorm_config *cfg = k->g.s.cfg;
    const int channels = groupnorm_slice_channels(cfg);
    val pixels = pixels_of_slice(k);
    cta_sync(); // other threads have loaded them
    LOOP_FROM(channel, convert(I32, thread()), imm(channels), imm(cfg->threads)) {
        val pivot = variable(F32, immf(0)), x[MOMENTS_PIVOT_VALUES];
        IF(logical_and(lt(channel, k->g.s.channels), lt(imm(0), pixels))) {
            for (int i = 0; i < MOMENTS_PIVOT_VALUES; i++)
                x[i] = value_at(k, min(imm_as(I32, i), sub(pixels, imm(1))), channel);
            assign(pivot, median_f32(x[0], x[1], x[2]));
        }
        set(k->sMoments, coord(MOMENTS_PIVOT, channel), pivot);
    }
    cta_sync();
    k->rPivots = fragment(F32, compact(leaf(cfg->vec))); // (VEC)
    for (int i = 0; i < cfg->vec; i++)
        set(k->rPivots, i, at(k->sMoments, MOMENTS_PIVOT, groupnorm_channel(&k->g.s, &k->g.w, k->g.w.column, i)));
    for (int i = 0; i < CHANNEL_SUMS; i++) {
        k->rSums[i] = fragment(F32, compact(leaf(cfg->vec))); // (VEC)
        fill(k->rSums[i], immf(0));
    }
}

static void set_moments(void *kernel, val channel, const val *total)
{
    const forward *k = kernel;
    const val pivot = at(k->sMoments, MOMENTS_PIVOT, channel), count = convert(F32, pixels_of_slice(k));
    const groupnorm_state all = moments_of_sums(count, pivot, total[CHANNEL_SUM], total[CHANNEL_SQUARES]);
    moments_set(k->sMoments, channel, &all);
}

/* Merging */

/* What the threads found in this slice. */
static void find_moments_of_threads(forward *k)
{
    const int threads = k->g.s.cfg->threads;
    k->sCounts = smem_tensor("counts", F32, compact(leaf(threads)), 16);
    const groupnorm_state mine = moments_of_thread(k);
    set(k->sCounts, thread(), mine.count);
    moments_set(k->sMoments, thread(), &mine);
    cta_sync();
}

/* The same, of channels. */
static void find_moments_of_channels(forward *k)
{
    const groupnorm_config *cfg = k->g.s.cfg;
    const int channels = groupnorm_slice_channels(cfg), lines = groupnorm_lines(cfg);
    tensor sLines = smem_tensor("lines", F32, compact(shape(channels * cfg->fold, lines, CHANNEL_SUMS)), 16);
    find_channel_pivots(k);
    groupnorm_over_columns(&k->g.s, &k->g.w, add_column, k);
    groupnorm_add_lines(&k->g.s, &k->g.w, k->g.w.column, k->rSums, sLines);
    tensor sRows = tensor_with_layout(sLines, compact(shape(channels, cfg->fold * lines, CHANNEL_SUMS)));
    groupnorm_add_rows(&k->g.s, imm(channels), sRows, set_moments, k);
    cta_sync();
}

/*
 * The lanes of a group merge what its threads found: of nchw neighbouring ones, of nhwc some neighbours in each row of
 * those that are as many as a pixel has columns; all of the CTA, where it has one group. Or its channels.
 */
static groupnorm_state merge_threads(const void *kernel)
{
    const forward *k = kernel;
    const groupnorm_config *cfg = k->g.s.cfg;
    const groupnorm_grid *g = &k->g.w.grid;
    const bool mixes = groupnorm_mixes(cfg), in_rows = cfg->bundle > 1 && !groupnorm_is_nchw(&k->g.s) && !mixes;
    const int columns = g->columns, width = mixes ? cfg->channels : (in_rows ? columns : cfg->threads) / cfg->bundle;
    const int rows = in_rows ? g->column_threads : 1;
    groupnorm_state m[MOMENTS_OF_LANE_MAX];
    const int lanes = groupnorm_lanes_of_group(cfg), n = (int)ceil_div((int64_t)width * rows, lanes);
    val first = min(mul(groupnorm_group_of_lane(&k->g.s), imm(width)), imm((cfg->bundle - 1) * width));
    for (int i = 0; i < n; i++) {
        val number = add(groupnorm_lane_of_group(&k->g.s), imm(lanes * i)), inside = lt(number, imm(width * rows)),
            index = number;
        if (in_rows)
            index = add(mul(div(number, imm(width)), imm(columns)), rem(number, imm(width)));
        index = select(inside, add(index, first), imm(0));
        val count = mixes ? convert(F32, pixels_of_slice(k)) : at(k->sCounts, index);
        m[i] = groupnorm_state_at(inside, count, GROUPNORM_ENTRY, k->sMoments, index);
    }
    return moments_merge(&k->g.s, m, n);
}

/* A mean that f32 cannot hold is mean + rest. */
static void publish(const void *kernel, groupnorm_state all)
{
    const forward *k = kernel;
    const val group = groupnorm_group_of_lane(&k->g.s);
    const val pivot = all.of[MOMENTS_PIVOT], above = all.of[MOMENTS_MEAN], mean = add(pivot, above);
    const val squares = all.of[MOMENTS_SQUARES];
    IF(groupnorm_speaks(&k->g.s)) {
        set(k->g.sGroups, coord(GROUP_MEAN, group), mean);
        set(k->g.sGroups, coord(GROUP_REST, group), add(sub(pivot, mean), above));
        set(k->g.sGroups, coord(GROUP_RSTD, group), rsqrt(fma(squares, k->g.s.a.reciprocal, k->g.s.a.eps)));
    }
}

static void save(const void *kernel, val saves)
{
    const forward *k = kernel;
    const groupnorm_slice *s = &k->g.s;
    const val group = groupnorm_group_of_lane(s), index = add(s->group, convert(I64, group));
    const val speaks = logical_and(groupnorm_speaks(s), saves);
    IF(logical_and(speaks, ne(s->a.mean, imm(0))))
        groupnorm_write(s->a.mean, index,
                        add(at(k->g.sGroups, GROUP_MEAN, group), at(k->g.sGroups, GROUP_REST, group)));
    IF(logical_and(speaks, ne(s->a.rstd, imm(0))))
        groupnorm_write(s->a.rstd, index, at(k->g.sGroups, GROUP_RSTD, group));
}

/* Writing */

/* y = (x - mean) * scale + shift; shift makes up for the rest of the mean, but not where gamma is infinite. */
static val shift_of(val scale, val rest, val beta)
{
    return select(lt(abs(scale), immf(INFINITY)), fma(neg(rest), scale, beta), beta);
}

/* Where moments were. */
static void find_scales(void *kernel, val channel, val group)
{
    forward *k = kernel;
    const bool affine = k->g.s.cfg->affine;
    if (affine && !has_channel_weights(k))
        load_channel_weights(k, channel);
    const val rstd = at(k->g.sGroups, GROUP_RSTD, group), scale = affine ? mul(rstd, k->gamma) : rstd;
    const val rest = at(k->g.sGroups, GROUP_REST, group);
    set(k->g.sScales, coord(MEAN, channel), at(k->g.sGroups, GROUP_MEAN, group));
    set(k->g.sScales, coord(SCALE, channel), scale);
    set(k->g.sScales, coord(SHIFT, channel), shift_of(scale, rest, affine ? k->beta : immf(0)));
}

static void write_vector(void *kernel, groupnorm_vector *v)
{
    forward *k = kernel;
    const bool one_group = !groupnorm_mixes(k->g.s.cfg);
    const int weight = static_size(k->g.rScales[SCALE].layout) > 1;
    tensor rX = unpacked(v->x, F32), rY = fragment_like(rX, F32); // (VEC)
    for (int i = 0; i < v->vec; i++) {
        val d = sub(at(rX, i), at(k->g.rScales[MEAN], one_group ? 0 : i));
        set(rY, i, fma(d, at(k->g.rScales[SCALE], weight * i), at(k->g.rScales[SHIFT], weight * i)));
    }
    groupnorm_store(&k->g.s, v, rY);
}

/* The statistics of a column's group, and its weights. */
static void begin_column(void *kernel, val column)
{
    forward *k = kernel;
    const bool affine = k->g.s.cfg->affine;
    const int scales = !affine || groupnorm_is_nchw(&k->g.s) ? 1 : k->g.w.grid.vec;
    val group = groupnorm_group(&k->g.s, &k->g.w, column, 0);
    if (affine && !has_column_weights(k))
        load_weights(k, column);
    for (int word = MEAN; word <= SHIFT; word++)
        k->g.rScales[word] = fragment(F32, compact(leaf(word == MEAN ? 1 : scales))); // (1) or (VEC)
    set(k->g.rScales[MEAN], 0, at(k->g.sGroups, GROUP_MEAN, group));
    const val rest = at(k->g.sGroups, GROUP_REST, group), rstd = at(k->g.sGroups, GROUP_RSTD, group);
    for (int i = 0; i < scales; i++) {
        val scale = affine ? mul(rstd, at_f32(k->rGamma, i)) : rstd;
        set(k->g.rScales[SCALE], i, scale);
        set(k->g.rScales[SHIFT], i, shift_of(scale, rest, affine ? at_f32(k->rBeta, i) : immf(0)));
    }
}

/* Slices */

static void begin(void *kernel)
{
    forward *k = kernel;
    const groupnorm_config *cfg = k->g.s.cfg;
    k->sMoments = smem_tensor("moments", F32, compact(shape(GROUPNORM_ENTRY, groupnorm_places(cfg))), 16);
    k->g.sScales = k->sMoments;
    const val slice = smem_address(smem_alloc("slice", groupnorm_slice_bytes(cfg), 16));
    k->g.slices = (groupnorm_staging){ 1, { k->g.s.a.x }, { slice } };
}

static void add_up(void *kernel)
{
    forward *k = kernel;
    if (groupnorm_mixes(k->g.s.cfg))
        find_moments_of_channels(k);
    else
        find_moments_of_threads(k);
}

void groupnorm_forward(const groupnorm_config *cfg, groupnorm_slicing slicing, bool vectors)
{
    enum { AT_ONCE = 8 };
    static const groupnorm_direction direction = { .words = GROUPNORM_ENTRY,
                                                   .group_words = GROUP_WORDS,
                                                   .at_once = AT_ONCE,
                                                   .begin = begin,
                                                   .load_weights = load_early_weights,
                                                   .add_up = add_up,
                                                   .found = merge_threads,
                                                   .merge = moments_merge,
                                                   .publish = publish,
                                                   .save = save,
                                                   .find_scales = find_scales,
                                                   .begin_column = begin_column,
                                                   .load_vector = load_vector,
                                                   .write_vector = write_vector };
    forward k = { .g = { .does = &direction } };
    groupnorm_describe(&k.g, cfg, slicing, vectors);
}
