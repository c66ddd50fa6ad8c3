/* groupnorm_groups.c - what channels and lanes know of groups, and tell each other. */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_slice.h"

enum { KINDS = GROUPNORM_KINDS };

static tensor word_at(val pointer, val index)
{
    return gmem_tensor(add(pointer, mul(convert(U64, index), imm_as(U64, 4))), F32, compact(leaf(1)));
}

val groupnorm_read(val pointer, val index)
{
    return at(word_at(pointer, index), 0);
}

void groupnorm_write(val pointer, val index, val x)
{
    set(word_at(pointer, index), 0, x);
}

val groupnorm_group_of_lane(const groupnorm_slice *s)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg);
    return convert(I32, lanes == 32 ? warp() : thread_at(thread(), 1, lanes, s->cfg->threads / lanes));
}

val groupnorm_lane_of_group(const groupnorm_slice *s)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg);
    return convert(I32, lanes == 32 ? lane() : thread_at(lane(), 0, lanes, 32 / lanes));
}

val groupnorm_merges(const groupnorm_slice *s)
{
    const int groups = 32 / groupnorm_lanes_of_group(s->cfg); // of a warp
    return lt(warp(), imm_as(U32, ceil_div(s->cfg->bundle, groups)));
}

val groupnorm_speaks(const groupnorm_slice *s)
{
    return logical_and(lt(groupnorm_group_of_lane(s), groupnorm_groups(s)), eq(groupnorm_lane_of_group(s), imm(0)));
}

groupnorm_state groupnorm_state_at(val inside, val count, int words, tensor sStates, val place)
{
    groupnorm_state m = { .count = variable(F32, immf(0)) };
    for (int i = 0; i < words; i++)
        m.of[i] = variable(F32, immf(0));
    IF(inside) {
        assign(m.count, count);
        for (int i = 0; i < words; i++)
            assign(m.of[i], at(sStates, i, place));
    }
    return m;
}

val groupnorm_channel(const groupnorm_slice *s, const groupnorm_view *w, val column, int e)
{
    val number = add(mul(column, imm(w->grid.vec)), imm(e));
    return s->cfg->fold > 1 ? rem(number, imm(s->cfg->channels * s->cfg->bundle)) : number;
}

val groupnorm_weight(const groupnorm_slice *s, val pointer, val channel)
{
    return at_f32(groupnorm_global(s, pointer, add(s->channel, convert(I64, channel)), 1), 0);
}

tensor groupnorm_of_channels(const groupnorm_slice *s, const groupnorm_view *w, tensor sWords, int word, val column)
{
    const bool nchw = groupnorm_is_nchw(s);
    tensor rWords = fragment(F32, compact(leaf(nchw ? 1 : w->grid.vec))); // (1) or (VEC)
    for (int i = 0; i < static_size(rWords.layout); i++)
        set(rWords, i, at(sWords, word, nchw ? column : groupnorm_channel(s, w, column, i)));
    return rWords;
}

/* The weights of folded pixels, whose vectors may hold the last channel and the first: loaded one by one. */
static tensor folded_weights(const groupnorm_slice *s, const groupnorm_view *w, val pointer, val column)
{
    tensor rWeights = fragment(s->cfg->dtype, compact(leaf(s->cfg->vec))); // (VEC)
    for (int i = 0; i < s->cfg->vec; i++) {
        val channel = convert(I64, groupnorm_channel(s, w, column, i));
        set(rWeights, i, at(groupnorm_global(s, pointer, channel, 1), 0));
    }
    return rWeights;
}

tensor groupnorm_weights(const groupnorm_slice *s, const groupnorm_view *w, val pointer, val column)
{
    if (s->cfg->fold > 1)
        return folded_weights(s, w, pointer, column);
    const int count = groupnorm_is_nchw(s) ? 1 : s->cfg->vec;
    val channel = add(s->channel, convert(I64, mul(column, imm(count))));
    tensor gWeights = groupnorm_global(s, pointer, channel, count); // (1) or (VEC)
    tensor rWeights = fragment_like(gWeights, s->cfg->dtype);       // (1) or (VEC)
    copy(gWeights, rWeights, s->align);
    return rWeights;
}

/* Groups */

val groupnorm_group(const groupnorm_slice *s, const groupnorm_view *w, val column, int e)
{
    if (s->cfg->bundle == 1)
        return imm_as(I32, 0);
    if (groupnorm_is_nchw(s))
        return div(column, imm(s->cfg->channels));
    return div(groupnorm_channel(s, w, column, groupnorm_mixes(s->cfg) ? e : 0), imm(s->cfg->channels));
}

/* One thread's, in place of what the line had or added to it. */
static void add_line(const groupnorm_grid *g, tensor rSum, tensor sLine, bool adds)
{
    tensor rLine = fragment(F32, compact(leaf(g->vec))); // (VEC)
    if (adds)
        copy(sLine, rLine, 4 * g->vec);
    for (int i = 0; i < g->vec; i++)
        set(rLine, i, adds ? add(at(rLine, i), at(rSum, i)) : at(rSum, i));
    copy(rLine, sLine, 4 * g->vec);
}

void groupnorm_add_lines(const groupnorm_slice *s, const groupnorm_view *w, val column, const tensor *rSums,
                         tensor sLines)
{
    const groupnorm_grid *g = &w->grid;
    const int lines = groupnorm_lines(s->cfg), all = g->column_threads;
    const val exists = lt(column, imm(g->columns));
    for (int first = 0; first < all; first += lines) {
        const val line = sub(w->column_thread, imm(first)), end = imm((int)min_i64(lines, all - first));
        if (first > 0)
            cta_sync();
        IF(logical_and(exists, logical_and(le(imm(0), line), lt(line, end))))
            for (int i = 0; i < KINDS; i++) {
                const val mine = tensor_address(sLines, coord(mul(column, imm(g->vec)), line, i));
                add_line(g, rSums[i], smem_view(mine, F32, compact(leaf(g->vec))), first > 0);
            }
    }
}

/* Of a channel, the rows begin, begin + step, ... below `rows`; begin is less than step. */
static void add_some_rows(tensor sRows, val channel, val begin, int step, int rows, val *total)
{
    for (int kind = 0; kind < KINDS; kind++)
        total[kind] = variable(F32, immf(0));
    for (int first = 0; first < rows; first += step) {
        val row = add(begin, imm(first)), inside = first + step <= rows ? yes() : lt(row, imm(rows));
        row = select(inside, row, begin); // its own, that nobody else writes
        for (int kind = 0; kind < KINDS; kind++)
            assign(total[kind], add(total[kind], select(inside, at(sRows, channel, row, kind), immf(0))));
    }
}

/* In two steps of about equal length: several threads add up rows of a channel, then one thread adds up their sums. */
void groupnorm_add_rows(const groupnorm_slice *s, val channels, tensor sRows,
                        void (*use)(void *kernel, val channel, const val *total), void *kernel)
{
    const int most = groupnorm_slice_channels(s->cfg), threads = s->cfg->threads;
    int abreast = 1, rows = (int)static_size(sRows.layout) / (most * KINDS); // abreast: threads of a channel
    val total[KINDS];
    while (abreast * abreast < rows && (abreast + 1) * most <= threads)
        abreast++;
    cta_sync();
    if (abreast > 1) {
        IF(lt(thread(), imm(most * abreast))) {
            val tid = convert(I32, thread()), channel = rem(tid, imm(most)), row = div(tid, imm(most));
            add_some_rows(sRows, channel, row, abreast, rows, total);
            for (int kind = 0; kind < KINDS; kind++)
                set(sRows, coord(channel, row, kind), total[kind]);
        }
        cta_sync();
        rows = abreast;
    }
    LOOP_FROM(channel, convert(I32, thread()), channels, imm(threads)) {
        add_some_rows(sRows, channel, imm_as(I32, 0), 1, rows, total);
        use(kernel, channel, total);
    }
}

void groupnorm_sum_of_lanes(const groupnorm_slice *s, int count, val *values)
{
    const reduction sums = reduce_sums(count);
    warp_reduce(&sums, groupnorm_lanes_of_group(s->cfg), values);
}
