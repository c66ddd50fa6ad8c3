/*
 * groupnorm_backward.c - gradients: sums over the pixels of each channel, from those the two of a group, then dx.
 *
 * With d = x - mean, per channel of an image: a = rstd * sum of dy * d, b = sum of dy. A group needs A = sum of gamma * a
 * and B = sum of gamma * b over its channels:
 *     dx = dy * gamma * rstd - d * rstd^2 * A / count - rstd * B / count
 * dgamma and dbeta are the sums of a and b over the images; each slice stores its own in the workspace, where the last
 * kernel adds them up, in order.
 */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_slice.h"
#include "skeletons/column.h"

enum { KIND_A, KIND_B, KINDS = GROUPNORM_KINDS };
enum { SCALE, LINEAR, CONSTANT, SCALES = GROUPNORM_SCALES }; // dx = dy * scale + d * linear + constant

typedef struct backward {
    groupnorm_slice s;
    bool in_smem;            // the slices; else they are read again in each pass
    bool held;               // and until the sums of all slices are known
    const one_pass *meeting; // then
    groupnorm_view w;
    val staged_x, staged_dy; // u32, the slices in shared memory
    tensor sGroups;          // (KINDS,BUNDLE): A and B
    tensor sSums;            // (CHANNELS,ROWS,KINDS): of each thread of a column, of nhwc lines of each pixel of a fold
    tensor sScales;          // (SCALES,CHANNELS), where vectors have several groups
    tensor rGamma;           // (1) or (VEC) of a thread that has one column
    val weight, rstd;        // gamma, and rstd, of the channel whose sums the thread stores, if it is one at most
    tensor rMean, rRstd;     // (1) or (VEC) of the thread's columns
    tensor rA, rB;           // (VEC) sums of the column on its way
    tensor rScale, rLinear, rConstant; // (1) or (VEC)
} backward;

static bool is_nchw(const backward *k)
{
    return groupnorm_is_nchw(&k->s);
}

/* Columns */

static bool mixes(const backward *k)
{
    return groupnorm_mixes(k->s.cfg);
}

/* The statistics of the group of a thread's columns; of several groups it has one column, and only the means. */
static void load_statistics(backward *k)
{
    const int count = mixes(k) ? k->w.grid.vec : 1;
    const val column = groupnorm_existing(&k->s, &k->w, k->w.column);
    k->rMean = fragment(F32, compact(leaf(count))); // (1) or (VEC)
    k->rRstd = fragment(F32, compact(leaf(count))); // (1) or (VEC)
    for (int i = 0; i < count; i++) {
        val group = convert(I64, groupnorm_group(&k->s, &k->w, column, i));
        val index = add(k->s.group, group);
        set(k->rMean, i, groupnorm_read(k->s.a.mean, index));
        if (!mixes(k))
            set(k->rRstd, i, groupnorm_read(k->s.a.rstd, index));
    }
}

/* Before the passes, of a thread that has one column, unless merging wants the registers. */
static bool has_column_gamma(const backward *k)
{
    return groupnorm_has_one_column(&k->w) && !mixes(k) && !(k->held && groupnorm_scatters_weights(&k->s));
}

static void load_gamma(backward *k, val column)
{
    if (k->s.cfg->affine)
        k->rGamma = groupnorm_weights(&k->s, &k->w, k->s.a.gamma, groupnorm_existing(&k->s, &k->w, column));
}

static void load_vector(void *kernel, groupnorm_vector *v)
{
    backward *k = kernel;
    const groupnorm_slice *s = &k->s;
    v->x = k->in_smem ? groupnorm_load_shared(s, add(k->staged_x, v->shared), v->vec)
                      : groupnorm_load(s, s->a.x, v->global);
    v->dy = k->in_smem ? groupnorm_load_shared(s, add(k->staged_dy, v->shared), v->vec)
                       : groupnorm_load(s, s->a.dy, v->global);
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
    for (int i = 1; i < k->w.grid.vec; i++) {
        set(k->rA, 0, add(at(k->rA, 0), at(k->rA, i)));
        set(k->rB, 0, add(at(k->rB, 0), at(k->rB, i)));
    }
    IF(c->exists) {
        set(k->sSums, coord(c->number, k->w.column_thread, KIND_A), mul(at(k->rA, 0), at(k->rRstd, 0)));
        set(k->sSums, coord(c->number, k->w.column_thread, KIND_B), at(k->rB, 0));
    }
}

static void store_channels(backward *k, const groupnorm_column *c)
{
    const int vec = k->w.grid.vec;
    for (int i = 0; i < vec && !mixes(k); i++)
        set(k->rA, i, mul(at(k->rA, i), at(k->rRstd, 0)));
    const tensor sums[KINDS] = { [KIND_A] = k->rA, [KIND_B] = k->rB };
    const tensor sLines =
        tensor_with_layout(k->sSums, compact(shape(k->w.grid.columns * vec, groupnorm_lines(k->s.cfg, KINDS), KINDS)));
    groupnorm_add_lines(&k->s, &k->w, c->number, KINDS, sums, sLines);
}

static void add_column(void *kernel, const groupnorm_column *c)
{
    backward *k = kernel;
    k->rA = fragment(F32, compact(leaf(k->w.grid.vec))); // (VEC)
    k->rB = fragment(F32, compact(leaf(k->w.grid.vec))); // (VEC)
    fill(k->rA, immf(0));
    fill(k->rB, immf(0));
    groupnorm_over_vectors(&k->s, &k->w, c, load_vector, add_vector, k);
    if (is_nchw(k))
        store_channel(k, c);
    else
        store_channels(k, c);
}

/* The sums of a channel's rows begin, begin + step, ... below `rows`; begin is less than step. */
static void add_rows(const backward *k, val channel, val begin, int step, int rows, val total[KINDS])
{
    for (int kind = 0; kind < KINDS; kind++)
        total[kind] = variable(F32, immf(0));
    for (int first = 0; first < rows; first += step) {
        val row = add(begin, imm(first)), inside = first + step <= rows ? yes() : lt(row, imm(rows));
        row = select(inside, row, begin); // its own, that nobody else writes
        for (int kind = 0; kind < KINDS; kind++)
            assign(total[kind], add(total[kind], select(inside, at(k->sSums, channel, row, kind), immf(0))));
    }
}

/* Is each channel of a slice stored by a thread of its own? Then gamma is here before its sums are. */
static bool has_channel(const backward *k)
{
    return k->s.cfg->affine && groupnorm_slice_channels(k->s.cfg) <= k->s.cfg->threads;
}

static val rstd_of(const backward *k, val channel)
{
    if (has_channel(k))
        return k->rstd;
    const val group = convert(I64, div(channel, imm(k->s.cfg->channels)));
    return groupnorm_read(k->s.a.rstd, add(k->s.group, group));
}

static val weight_of(const backward *k, val channel)
{
    return has_channel(k) ? k->weight : groupnorm_weight(&k->s, k->s.a.gamma, channel);
}

/* Stores a channel's sums of this slice for dgamma and dbeta, and weighted by gamma for the group. */
static void store_totals(const backward *k, val channel, const val total[KINDS])
{
    const groupnorm_slice *s = &k->s;
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

/* In two steps of about equal length: several threads add up rows of a channel, then one thread adds up their sums. */
static void add_channels(const backward *k, int rows)
{
    const int channels = groupnorm_slice_channels(k->s.cfg), threads = k->s.cfg->threads;
    int abreast = 1; // threads of a channel
    val total[KINDS];
    while (abreast * abreast < rows && (abreast + 1) * channels <= threads)
        abreast++;
    cta_sync();
    if (abreast > 1) {
        IF(lt(thread(), imm(channels * abreast))) {
            val tid = convert(I32, thread()), channel = rem(tid, imm(channels)), row = div(tid, imm(channels));
            add_rows(k, channel, row, abreast, rows, total);
            for (int kind = 0; kind < KINDS; kind++)
                set(k->sSums, coord(channel, row, kind), total[kind]);
        }
        cta_sync();
        rows = abreast;
    }
    LOOP_FROM(channel, convert(I32, thread()), k->s.channels, imm(threads)) {
        add_rows(k, channel, imm_as(I32, 0), 1, rows, total);
        store_totals(k, channel, total);
    }
    cta_sync();
}

/* A and B of the lane's group. */
typedef struct group_sums {
    val of[KINDS];
} group_sums;

static group_sums no_sums(void)
{
    return (group_sums){ { [KIND_A] = variable(F32, immf(0)), [KIND_B] = variable(F32, immf(0)) } };
}

/* In this slice. */
static group_sums add_group(const backward *k)
{
    const groupnorm_config *cfg = k->s.cfg;
    val first = mul(min(groupnorm_group_of_lane(&k->s), imm(cfg->bundle - 1)), imm(cfg->channels));
    const int channels = cfg->channels / cfg->parts; // of the group, in this slice
    const int lanes = groupnorm_lanes_of_group(cfg);
    group_sums total = no_sums();
    val begin = lanes > 1 ? groupnorm_lane_of_group(&k->s) : variable(I32, imm(0)); // from a constant: u32
    LOOP_FROM(i, begin, imm(channels), imm(lanes))
        for (int kind = 0; kind < KINDS; kind++)
            assign(total.of[kind], add(total.of[kind], at(k->sSums, add(first, i), 0, kind)));
    groupnorm_sum_of_lanes(&k->s, KINDS, total.of);
    return total;
}

static void add_peers(const backward *k, group_sums *total)
{
    const groupnorm_config *cfg = k->s.cfg;
    tensor sPeers = groupnorm_peers(cfg, KINDS); // (KINDS,CLUSTER,BUNDLE)
    cluster_wait();                              // all CTAs of the cluster have started
    groupnorm_send_to_peers(&k->s, sPeers, KINDS, total->of);
    cluster_sync();
    val group = min(groupnorm_group_of_lane(&k->s), imm(cfg->bundle - 1));
    for (int first = 0; first < cfg->cluster; first += groupnorm_lanes_of_group(cfg)) {
        val peer = add(groupnorm_lane_of_group(&k->s), imm(first)), rank = min(peer, imm(cfg->cluster - 1));
        for (int kind = 0; kind < KINDS; kind++) {
            val sent = select(lt(peer, imm(cfg->cluster)), at(sPeers, kind, rank, group), immf(0));
            assign(total->of[kind], first == 0 ? sent : add(total->of[kind], sent));
        }
    }
    groupnorm_sum_of_lanes(&k->s, KINDS, total->of);
}

/* The lanes of each group tell the CTA. */
static void publish(const backward *k, const group_sums *total)
{
    IF(groupnorm_speaks(&k->s))
        for (int kind = 0; kind < KINDS; kind++)
            set(k->sGroups, coord(kind, groupnorm_group_of_lane(&k->s)), mul(total->of[kind], k->s.a.reciprocal));
    cta_sync();
}

/* dx */

static void write_vector(void *kernel, groupnorm_vector *v)
{
    backward *k = kernel;
    tensor rX = unpacked(v->x, F32), rDy = unpacked(v->dy, F32), rDx = fragment_like(rX, F32); // (VEC)
    for (int i = 0; i < v->vec; i++) {
        int group = mixes(k) ? i : 0, weight = is_nchw(k) ? 0 : i;
        val d = sub(at(rX, i), at(k->rMean, group));
        val rest = fma(d, at(k->rLinear, group), at(k->rConstant, group));
        set(rDx, i, fma(at(rDy, i), at(k->rScale, k->s.cfg->affine ? weight : group), rest));
    }
    groupnorm_store(&k->s, v, rDx);
}

/* Of the channels of a bundle whose vectors have several groups. */
static void find_scales(backward *k)
{
    const groupnorm_config *cfg = k->s.cfg;
    LOOP_FROM(channel, convert(I32, thread()), k->s.channels, imm(cfg->threads)) {
        const val group = div(channel, imm(cfg->channels)), rstd = rstd_of(k, channel), minus = neg(rstd);
        set(k->sScales, coord(SCALE, channel), cfg->affine ? mul(rstd, weight_of(k, channel)) : rstd);
        set(k->sScales, coord(LINEAR, channel), mul(mul(minus, rstd), at(k->sGroups, KIND_A, group)));
        set(k->sScales, coord(CONSTANT, channel), mul(minus, at(k->sGroups, KIND_B, group)));
    }
    cta_sync();
}

static void load_scales(backward *k)
{
    tensor *const scales[SCALES] = { [SCALE] = &k->rScale, [LINEAR] = &k->rLinear, [CONSTANT] = &k->rConstant };
    for (int i = 0; i < SCALES; i++)
        *scales[i] = groupnorm_of_channels(&k->s, &k->w, k->sScales, i);
}

static void begin_column(backward *k, const groupnorm_column *c)
{
    const int weights = !k->s.cfg->affine || is_nchw(k) ? 1 : k->w.grid.vec;
    if (!has_column_gamma(k))
        load_gamma(k, c->number);
    k->rScale = fragment(F32, compact(leaf(weights))); // (1) or (VEC)
    k->rLinear = fragment(F32, compact(leaf(1)));      // (1)
    k->rConstant = fragment(F32, compact(leaf(1)));    // (1)
    const val group = groupnorm_group(&k->s, &k->w, groupnorm_existing(&k->s, &k->w, c->number), 0);
    const val rstd = at(k->rRstd, 0), minus = neg(rstd);
    set(k->rLinear, 0, mul(mul(minus, rstd), at(k->sGroups, KIND_A, group)));
    set(k->rConstant, 0, mul(minus, at(k->sGroups, KIND_B, group)));
    for (int i = 0; i < weights; i++)
        set(k->rScale, i, k->s.cfg->affine ? mul(rstd, at_f32(k->rGamma, i)) : rstd);
}

static void write_column(void *kernel, const groupnorm_column *c)
{
    backward *k = kernel;
    if (mixes(k))
        load_scales(k);
    else
        begin_column(k, c);
    groupnorm_over_vectors(&k->s, &k->w, c, load_vector, write_vector, k);
}

/* When the sums of all groups are known. */
static void write_slice(backward *k)
{
    if (mixes(k))
        find_scales(k);
    groupnorm_over_columns(&k->s, &k->w, write_column, k);
}

/* dgamma and dbeta */

/* Adds up the lines of sums of the slices. */
void groupnorm_gradients(const groupnorm_config *cfg)
{
    enum { THREADS = 1024 };
    const column_split split = { .threads = THREADS,
                                 .lanes = GROUPNORM_GRADIENT_COLUMNS,
                                 .cluster = cfg->gradient_ctas,
                                 .vec = 1,
                                 .steps = GROUPNORM_GRADIENT_LINES * GROUPNORM_GRADIENT_COLUMNS / THREADS };
    const reduction sum = reduce_sums(1);
    groupnorm_values a = params_of(groupnorm);
    val columns = mul(a.channels, imm(GROUPNORM_KINDS)), lines = convert(U32, a.lines);
    column_place p = column_here(&split, lines, columns, div(grid_x(), imm(split.cluster)));
    cluster_meet(split.cluster);
    groupnorm_wait();
    tensor rSums = fragment(F32, compact(shape(1, split.steps))); // (VEC,STEPS)
    val total = variable(F32, immf(0));
    LOOP_FROM(begin, imm_as(U32, 0), lines, imm((int)column_split_lines(&split))) {
        column_place here = column_from(&p, begin);
        column_load(&split, &here, a.partial, F32, columns, a.lines, rSums, 0);
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

/* Kernels */

/* Of a slice that is known. */
static void begin(backward *k)
{
    const groupnorm_config *cfg = k->s.cfg;
    k->w = groupnorm_view_of(&k->s);
    k->w.streams = !k->in_smem && !is_nchw(k);
    if (k->in_smem && mixes(k))
        k->w.at_once = GROUPNORM_UNROLLED / 2;
    k->sGroups = smem_tensor("groups", F32, compact(shape(KINDS, cfg->bundle)), 16); // (KINDS,BUNDLE)
    k->sSums =
        smem_tensor("sums", F32, compact(shape(groupnorm_slice_channels(cfg), groupnorm_sum_rows(cfg), KINDS)), 16);
    if (mixes(k))
        k->sScales = smem_tensor("scales", F32, compact(shape(SCALES, groupnorm_slice_channels(cfg))), 16);
}

static void load_column(backward *k)
{
    load_statistics(k);
    if (has_channel(k)) {
        const val channel = min(convert(I32, thread()), sub(k->s.channels, imm(1)));
        k->weight = groupnorm_weight(&k->s, k->s.a.gamma, channel);
        if (mixes(k))
            k->rstd = groupnorm_read(k->s.a.rstd, add(k->s.group, convert(I64, div(channel, imm(k->s.cfg->channels)))));
    }
    if (has_column_gamma(k))
        load_gamma(k, k->w.column);
}

static void reserve_slices(backward *k)
{
    const int64_t bytes = groupnorm_slice_bytes(k->s.cfg);
    k->staged_x = smem_address(smem_alloc("x, dy", 2 * bytes, 16));
    k->staged_dy = add(k->staged_x, imm_as(U32, bytes));
}

static void stage_slices(const backward *k)
{
    const groupnorm_staging both = { 2, { k->s.a.x, k->s.a.dy }, { k->staged_x, k->staged_dy } };
    groupnorm_stage(&k->s, &k->w, &both);
}

static void stage_others(void *kernel)
{
    const backward *k = kernel;
    groupnorm_others_staged(&k->s, k->meeting);
}

/* Adds up the slice's channels, and those of the lane's group. */
static group_sums sums_of_slice(backward *k)
{
    if (k->s.cfg->cluster > 1)
        cluster_arrive(); // this CTA has started: peers may write to its shared memory
    load_column(k);
    if (k->in_smem)
        groupnorm_staged(k->s.halves ? 1 : 0);
    if (k->held)
        one_pass_look(k->meeting);
    k->w.between = k->s.halves ? stage_others : NULL;
    groupnorm_over_columns(&k->s, &k->w, add_column, k);
    k->w.between = NULL;
    add_channels(k, groupnorm_sum_rows(k->s.cfg));
    return add_group(k);
}

void groupnorm_backward(const groupnorm_config *cfg, bool vectors)
{
    backward k = { .s = groupnorm_slice_here(cfg, vectors), .in_smem = true };
    k.s.halves = groupnorm_first_steps(cfg) > 0;
    begin(&k);
    reserve_slices(&k);
    stage_slices(&k);
    group_sums total = sums_of_slice(&k);
    if (cfg->cluster > 1)
        add_peers(&k, &total);
    publish(&k, &total);
    write_slice(&k);
}

/* The sums of the lane's entries in the next blocks. */
static void add_blocks(const backward *k, const groupnorm_entries *e, val block, int n, group_sums *total)
{
    val of[n][GROUPNORM_ENTRY];
    groupnorm_load_entries(&k->s, e, block, n, KINDS, of);
    for (int i = 0; i < n * KINDS; i++)
        assign(total->of[i % KINDS], add(total->of[i % KINDS], of[i / KINDS][i % KINDS]));
}

/* The sums of all entries of the lane's group. */
static group_sums add_entries(const backward *k, const groupnorm_entries *e)
{
    enum { AT_ONCE = 4 };
    group_sums total = no_sums();
    LOOP_FROM(block, imm_as(I32, 0), div_up(e->count, groupnorm_lanes_of_group(k->s.cfg)), imm(AT_ONCE))
        add_blocks(k, e, block, AT_ONCE, &total);
    groupnorm_sum_of_lanes(&k->s, KINDS, total.of);
    return total;
}

static void store_entries(backward *k)
{
    const group_sums total = sums_of_slice(k);
    const groupnorm_entries e = groupnorm_entries_of_slices(&k->s, k->held);
    groupnorm_store_entry(&k->s, &e, k->s.rank, KINDS, total.of);
}

/* The CTA whose slice was the last of its bundle: for all that write. */
static void store_merged(const backward *k)
{
    const val first = groupnorm_merged(&k->s, groupnorm_group_of_lane(&k->s));
    const groupnorm_entries e = groupnorm_entries_of_slices(&k->s, false);
    const group_sums total = add_entries(k, &e);
    IF(groupnorm_speaks(&k->s))
        for (int kind = 0; kind < KINDS; kind++)
            groupnorm_write(k->s.a.merged, add(first, imm(kind)), mul(total.of[kind], k->s.a.reciprocal));
}

/* Vectors whose loads begin before the CTA waits: as many as there are registers for. */
static int vectors_ahead(const backward *k)
{
    return is_nchw(k) || groupnorm_by_elements(&k->s) ? 0 : mixes(k) ? GROUPNORM_UNROLLED / 2 : GROUPNORM_UNROLLED;
}

void groupnorm_backward_split(const groupnorm_config *cfg, bool vectors)
{
    backward k = { .s = groupnorm_slice_begin(cfg, vectors), .in_smem = false };
    const two_pass order = groupnorm_order(&k.s);
    groupnorm_wait();
    two_pass_item item = two_pass_draw(&order);
    groupnorm_slice_at(&k.s, convert(I32, item.strip), convert(I32, item.chunk));
    begin(&k);
    IF(item.writes) {
        load_column(&k);
        groupnorm_load_ahead(&k.s, &k.w, vectors_ahead(&k), load_vector, &k);
        two_pass_wait(&order, &item);
        groupnorm_load_merged(&k.s, KINDS, k.sGroups);
        cta_sync();
        write_slice(&k);
        k.w.ahead_count = 0;
        two_pass_end(&order, &item);
    }
    ELSE
    {
        store_entries(&k);
        IF(two_pass_leave(&order, &item)) {
            store_merged(&k);
            two_pass_merged(&order, &item);
        }
    }
}

/* Entries of neighbouring slices become one, by the CTA that stores the last of them. */
static void merge_early(const backward *k)
{
    const groupnorm_slice *s = &k->s;
    IF(groupnorm_completes(s, k->meeting)) {
        const groupnorm_entries e = groupnorm_entries_of_slices(s, true), early = groupnorm_early_entries(s);
        const int blocks = groupnorm_early_blocks(s->cfg);
        const val number = groupnorm_early_number(s), block = mul(number, imm(blocks));
        group_sums total = no_sums();
        add_blocks(k, &e, block, blocks, &total);
        groupnorm_sum_of_lanes(s, KINDS, total.of);
        groupnorm_store_entry(s, &early, number, KINDS, total.of);
        groupnorm_empty_entries(s, &e, block, blocks, KINDS);
    }
}

/* Every CTA merges the entries of its bundle for itself. */
static void read_held(void *kernel)
{
    const backward *k = kernel;
    const groupnorm_entries e = groupnorm_held_entries(&k->s);
    const group_sums total = add_entries(k, &e);
    publish(k, &total);
}

static void write_held(void *kernel)
{
    write_slice(kernel);
}

static void write_other(void *kernel, val slice)
{
    backward other = *(const backward *)kernel;
    groupnorm_slice_at(&other.s, convert(I32, other.s.bundle), convert(I32, slice));
    other.w = groupnorm_view_of(&other.s);
    if (other.s.cfg->parts > 1)
        load_column(&other); // of other channels
    stage_slices(&other);
    groupnorm_staged(0);
    groupnorm_over_columns(&other.s, &other.w, write_column, &other);
}

void groupnorm_backward_held(const groupnorm_config *cfg, bool vectors)
{
    backward k = { .s = groupnorm_slice_begin(cfg, vectors), .in_smem = true, .held = true };
    one_pass meeting = groupnorm_meeting(&k.s);
    k.meeting = &meeting;
    k.s.halves = groupnorm_first_steps(cfg) > 0;
    groupnorm_wait();
    groupnorm_start(&k.s, &meeting, read_held);
    begin(&k);
    groupnorm_load_in_turn(&k.s, &meeting);
    reserve_slices(&k);
    stage_slices(&k);
    groupnorm_loaded(&k.s, &meeting);
    store_entries(&k);
    if (cfg->early)
        merge_early(&k);
    one_pass_meet(&meeting, write_held, write_other, &k);
}
