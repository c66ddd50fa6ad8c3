/* groupnorm_groups.c - what slices, channels and lanes know of groups, and tell each other. */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_slice.h"

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

groupnorm_entries groupnorm_entries_of_slices(const groupnorm_slice *s)
{
    return (groupnorm_entries){ s->a.entries, s->a.slices, 1 };
}

groupnorm_entries groupnorm_early_entries(const groupnorm_slice *s)
{
    const int slices = groupnorm_early_slices(s->cfg);
    return (groupnorm_entries){ s->a.merged, div_up(s->a.slices, slices), slices };
}

groupnorm_entries groupnorm_held_entries(const groupnorm_slice *s)
{
    return s->cfg->early ? groupnorm_early_entries(s) : groupnorm_entries_of_slices(s);
}

val groupnorm_early_number(const groupnorm_slice *s)
{
    return div(s->rank, imm(groupnorm_early_slices(s->cfg)));
}

val groupnorm_completes(const groupnorm_slice *s, const one_pass *meeting)
{
    const groupnorm_entries early = groupnorm_early_entries(s);
    const val number = groupnorm_early_number(s), before = mul(number, imm(early.slices));
    const val slices = min(imm(early.slices), sub(s->a.slices, before));
    const val part = add(mul(convert(I32, meeting->strip), early.count), number);
    return one_pass_is_last(meeting, convert(U32, part), convert(U32, slices));
}

static int word_bytes(const groupnorm_slice *s)
{
    return s->cfg->marked ? ONE_PASS_MARKED_BYTES : 4;
}

/* The lane's entry in a block: the address of its first word. */
static val entry_at(const groupnorm_slice *s, const groupnorm_entries *e, val block)
{
    const int words = groupnorm_block_words(s->cfg);
    const val blocks = div_up(e->count, groupnorm_lanes_of_group(s->cfg));
    const val number = add(mul(s->bundle, convert(I64, blocks)), convert(I64, block));
    const val place = convert(I64, min(convert(I32, thread()), imm(words - 1)));
    const val index = add(mul(number, imm64((int64_t)GROUPNORM_ENTRY * words)), place);
    return add(e->pointer, mul(convert(U64, index), imm_as(U64, word_bytes(s))));
}

/* From there to a word of the i-th block after it, bytes. */
static int64_t offset_of(const groupnorm_slice *s, int i, int word)
{
    return (int64_t)(i * GROUPNORM_ENTRY + word) * groupnorm_block_words(s->cfg) * word_bytes(s);
}

/* Is there an entry of the lane in the block, and its group? */
static val has_entry(const groupnorm_slice *s, const groupnorm_entries *e, val block)
{
    const val number = add(mul(block, imm(groupnorm_lanes_of_group(s->cfg))), groupnorm_lane_of_group(s));
    return logical_and(lt(number, e->count), lt(groupnorm_group_of_lane(s), groupnorm_groups(s)));
}

val groupnorm_elements(const groupnorm_slice *s, val number, int slices)
{
    const groupnorm_config *cfg = s->cfg;
    const int channels = cfg->channels / cfg->parts;
    const int per_unit = groupnorm_is_nchw(s) ? channels / cfg->fold * cfg->vec : channels * cfg->fold;
    const val range = mul(s->a.range, imm(slices)), begin = mul(groupnorm_range_of(s, number), range);
    if (cfg->ragged)
        return mul(convert(F32, groupnorm_elements_from(s, begin)), immf(channels));
    val units = max(min(range, sub(s->a.units, begin)), imm_as(I32, 0));
    return mul(convert(F32, units), immf(per_unit));
}

/* All words are asked for before the first is looked at; again, until each of them is marked. */
static void load_marked(const groupnorm_slice *s, const groupnorm_entries *e, val block, int n, int words,
                        groupnorm_state *of)
{
    const val first = entry_at(s, e, block), marks = variable(U32, imm_as(U32, 0)),
              none = imm_as(U64, INT64_C(1) << 32);
    val got[n][GROUPNORM_ENTRY], bits, mark;
    for (int i = 0; i < n * words; i++)
        got[i / words][i % words] = variable(U64, none); // marked, if there is no entry
    FOREVER {
        for (int i = 0; i < n; i++)
            IF(has_entry(s, e, add(block, imm(i))))
                for (int w = 0; w < words; w++)
                    assign(got[i][w], one_pass_marked(first, offset_of(s, i, w)));
        assign(marks, imm_as(U32, 1));
        for (int i = 0; i < n * words; i++) {
            unpack(got[i / words][i % words], U32, &bits, &mark);
            assign(marks, min(marks, mark));
        }
        BREAK_IF(ne(marks, imm_as(U32, 0)));
    }
    for (int i = 0; i < n * words; i++) {
        unpack(got[i / words][i % words], U32, &bits, &mark);
        of[i / words].of[i % words] = bitcast(F32, bits);
    }
}

static void load_fenced(const groupnorm_slice *s, const groupnorm_entries *e, val block, int n, int words,
                        groupnorm_state *of)
{
    const val first = entry_at(s, e, block);
    for (int i = 0; i < n; i++) {
        for (int w = 0; w < words; w++)
            of[i].of[w] = variable(F32, immf(0));
        IF(has_entry(s, e, add(block, imm(i))))
            for (int w = 0; w < words; w++)
                assign(of[i].of[w], groupnorm_read(add(first, imm_as(U64, offset_of(s, i, w))), imm64(0)));
    }
}

void groupnorm_load_entries(const groupnorm_slice *s, const groupnorm_entries *e, val block, int n, int words,
                            groupnorm_state *of)
{
    (s->cfg->marked ? load_marked : load_fenced)(s, e, block, n, words, of);
    for (int i = 0; i < n; i++) {
        const val here = add(block, imm(i));
        const val number = add(mul(here, imm(groupnorm_lanes_of_group(s->cfg))), groupnorm_lane_of_group(s));
        of[i].count = select(has_entry(s, e, here), groupnorm_elements(s, number, e->slices), immf(0));
    }
}

void groupnorm_empty_entries(const groupnorm_slice *s, const groupnorm_entries *e, val block, int n, int words)
{
    const val first = entry_at(s, e, block);
    for (int i = 0; i < n && s->cfg->marked; i++)
        IF(has_entry(s, e, add(block, imm(i))))
            for (int w = 0; w < words; w++)
                one_pass_empty(first, offset_of(s, i, w));
}

void groupnorm_store_entry(const groupnorm_slice *s, const groupnorm_entries *e, val number, int count,
                           const val *values)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg);
    const val own = eq(groupnorm_lane_of_group(s), rem(number, imm(lanes)));
    IF(logical_and(lt(groupnorm_group_of_lane(s), groupnorm_groups(s)), own)) {
        const val first = entry_at(s, e, div(number, imm(lanes)));
        for (int w = 0; w < count; w++)
            if (s->cfg->marked)
                one_pass_mark(first, offset_of(s, 0, w), bitcast(U32, values[w]));
            else
                groupnorm_write(add(first, imm_as(U64, offset_of(s, 0, w))), imm64(0), values[w]);
    }
}

/* What all slices know of a group of the bundle: the index of a word. */
static val merged_word(const groupnorm_slice *s, val group, val word)
{
    return add(mul(add(s->group, convert(I64, group)), imm64(GROUPNORM_ENTRY)), convert(I64, word));
}

void groupnorm_load_merged(const groupnorm_slice *s, int words, tensor sGroups)
{
    LOOP_FROM(i, convert(I32, thread()), imm(words * s->cfg->bundle), imm(s->cfg->threads)) {
        const val group = div(i, imm(words)), word = rem(i, imm(words));
        set(sGroups, coord(word, group), groupnorm_read(s->a.merged, merged_word(s, group, word)));
    }
}

void groupnorm_store_merged(const groupnorm_slice *s, int words, tensor sGroups)
{
    LOOP_FROM(i, convert(I32, thread()), imm(words * s->cfg->bundle), imm(s->cfg->threads)) {
        const val group = div(i, imm(words)), word = rem(i, imm(words));
        groupnorm_write(s->a.merged, merged_word(s, group, word), at(sGroups, word, group));
    }
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

tensor groupnorm_of_channels(const groupnorm_slice *s, const groupnorm_view *w, tensor sWords, int word)
{
    tensor rWords = fragment(F32, compact(leaf(w->grid.vec))); // (VEC)
    const val column = groupnorm_existing(s, w, w->column);
    for (int i = 0; i < w->grid.vec; i++)
        set(rWords, i, at(sWords, word, groupnorm_channel(s, w, column, i)));
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
    if (s->cfg->fold > 1 && !groupnorm_is_nchw(s))
        return folded_weights(s, w, pointer, column);
    const int count = groupnorm_is_nchw(s) ? 1 : s->cfg->vec;
    val channel = add(s->channel, convert(I64, mul(column, imm(count))));
    tensor gWeights = groupnorm_global(s, pointer, channel, count); // (1) or (VEC)
    tensor rWeights = fragment_like(gWeights, s->cfg->dtype);       // (1) or (VEC)
    copy(gWeights, rWeights, s->align);
    return rWeights;
}

bool groupnorm_scatters_weights(const groupnorm_slice *s)
{
    return !groupnorm_is_nchw(s) && (s->cfg->fold > 1 || groupnorm_by_elements(s));
}

/* Groups */

val groupnorm_group(const groupnorm_slice *s, const groupnorm_view *w, val column, int e)
{
    if (s->cfg->bundle == 1)
        return imm_as(I32, 0);
    if (groupnorm_is_nchw(s))
        return div(column, imm(s->cfg->channels / s->cfg->fold));
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

void groupnorm_add_lines(const groupnorm_slice *s, const groupnorm_view *w, val column, int count, const tensor *rSums,
                         tensor sLines)
{
    const groupnorm_grid *g = &w->grid;
    const int lines = groupnorm_lines(s->cfg, count), all = g->column_threads;
    const val exists = lt(column, imm(g->columns));
    for (int first = 0; first < all; first += lines) {
        const val line = sub(w->column_thread, imm(first)), end = imm((int)min_i64(lines, all - first));
        if (first > 0)
            cta_sync();
        IF(logical_and(exists, logical_and(le(imm(0), line), lt(line, end))))
            for (int i = 0; i < count; i++) {
                const val mine = tensor_address(sLines, coord(mul(column, imm(g->vec)), line, i));
                add_line(g, rSums[i], smem_view(mine, F32, compact(leaf(g->vec))), first > 0);
            }
    }
}

void groupnorm_sum_of_lanes(const groupnorm_slice *s, int count, val *values)
{
    const reduction sums = reduce_sums(count);
    warp_reduce(&sums, groupnorm_lanes_of_group(s->cfg), values);
}

tensor groupnorm_peers(const groupnorm_config *cfg, int count)
{
    return smem_tensor("peers", F32, compact(shape(count, cfg->cluster, cfg->bundle)), 16);
}

void groupnorm_send_to_peers(const groupnorm_slice *s, tensor sPeers, int count, const val *values)
{
    val group = groupnorm_group_of_lane(s), mine = tensor_address(sPeers, coord(0, s->rank, group));
    for (int first = 0; first < s->cfg->cluster; first += groupnorm_lanes_of_group(s->cfg)) {
        val peer = add(groupnorm_lane_of_group(s), imm(first)); // lane t of a group sends to CTA t
        IF(logical_and(lt(group, imm(s->cfg->bundle)), lt(peer, imm(s->cfg->cluster))))
            for (int v = 0; v < count; v++)
                store_cluster(F32, mapa(mine, convert(U32, peer)), (int64_t)v * 4, values[v]);
    }
}
