/* groupnorm_moments.c - what some values of a group are known by, merged by Chan's rule: of threads, of CTAs, of entries of slices. */
#include <string.h>

#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_moments.h"

enum { PIVOT = MOMENTS_PIVOT, MEAN = MOMENTS_MEAN, SQUARES = MOMENTS_SQUARES };

moments moments_of_sums(val count, val pivot, val sum, val squares)
{
    val mean = div(sum, max(count, immf(1)));
    val around = max_nan(fma(neg(sum), mean, squares), immf(0));
    return (moments){ count, { [PIVOT] = pivot, [MEAN] = mean, [SQUARES] = around } };
}

static moments no_values(void)
{
    moments m = { .count = variable(F32, immf(0)) };
    for (int i = 0; i < GROUPNORM_ENTRY; i++)
        m.of[i] = variable(F32, immf(0));
    return m;
}

/* The median of three of the group's pivots, of its lanes and then of what they have next: a lane of few values may have one far away. */
static val common_pivot(const groupnorm_slice *s, const moments *m, int n)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg);
    val first = sub(lane(), convert(U32, groupnorm_lane_of_group(s))), own = m->of[PIVOT], x[MOMENTS_PIVOT_VALUES];
    for (int i = 0; i < MOMENTS_PIVOT_VALUES; i++) {
        const moments *next = &m[min_i64(i / lanes, n - 1)];
        if (i % lanes == 0)
            own = select(lt(immf(0), next->count), next->of[PIVOT], shuffle(m->of[PIVOT], first));
        x[i] = shuffle(own, add(first, imm(i % lanes)));
    }
    return median_f32(x[0], x[1], x[2]);
}

moments moments_merge(const groupnorm_slice *s, const moments *m, int n)
{
    val sums[2] = { variable(F32, immf(0)), variable(F32, immf(0)) }, squares = variable(F32, immf(0));
    val pivot = common_pivot(s, m, n), means[MOMENTS_OF_LANE_MAX];
    for (int i = 0; i < n; i++) {
        means[i] = add(sub(m[i].of[PIVOT], pivot), m[i].of[MEAN]);
        assign(sums[0], add(sums[0], m[i].count));
        assign(sums[1], fma(m[i].count, means[i], sums[1]));
        assign(squares, add(squares, m[i].of[SQUARES]));
    }
    groupnorm_sum_of_lanes(s, 2, sums);
    val mean = div(sums[1], max(sums[0], immf(1)));
    for (int i = 0; i < n; i++) {
        val difference = sub(means[i], mean);
        assign(squares, fma(mul(m[i].count, difference), difference, squares));
    }
    groupnorm_sum_of_lanes(s, 1, &squares);
    return (moments){ sums[0], { [PIVOT] = pivot, [MEAN] = mean, [SQUARES] = squares } };
}

moments moments_at(val inside, val count, tensor sMoments, val index)
{
    moments m = no_values();
    IF(inside) {
        assign(m.count, count);
        for (int i = 0; i < GROUPNORM_ENTRY; i++)
            assign(m.of[i], at(sMoments, i, index));
    }
    return m;
}

void moments_set(tensor sMoments, val place, const moments *m)
{
    for (int i = 0; i < GROUPNORM_ENTRY; i++)
        set(sMoments, coord(i, place), m->of[i]);
}

val moments_elements(const groupnorm_slice *s, val number, int slices)
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

void moments_load(const groupnorm_slice *s, const groupnorm_entries *e, val block, int n, moments *m)
{
    val of[MOMENTS_AT_ONCE][GROUPNORM_ENTRY];
    groupnorm_load_entries(s, e, block, n, GROUPNORM_ENTRY, of);
    for (int i = 0; i < n; i++) {
        const val before = mul(add(block, imm(i)), imm(groupnorm_lanes_of_group(s->cfg)));
        const val number = add(before, groupnorm_lane_of_group(s));
        m[i].count = select(lt(number, e->count), moments_elements(s, number, e->slices), immf(0));
        memcpy(m[i].of, of[i], sizeof of[i]);
    }
}

/* Some entries for each lane; its first one also has what is merged already. */
moments moments_of_entries(const groupnorm_slice *s, const groupnorm_entries *e, int at_once)
{
    moments all = no_values();
    const int lanes = groupnorm_lanes_of_group(s->cfg);
    LOOP_FROM(block, imm_as(I32, 0), div_up(e->count, lanes), imm(at_once)) {
        val is_first = eq(groupnorm_lane_of_group(s), imm(0));
        moments m[MOMENTS_AT_ONCE + 1];
        moments_load(s, e, block, at_once, m);
        m[at_once] = all;
        m[at_once].count = select(is_first, all.count, immf(0));
        m[at_once].of[SQUARES] = select(is_first, all.of[SQUARES], immf(0));
        moments merged = moments_merge(s, m, at_once + 1);
        assign(all.count, merged.count);
        for (int i = 0; i < GROUPNORM_ENTRY; i++)
            assign(all.of[i], merged.of[i]);
    }
    return all;
}
