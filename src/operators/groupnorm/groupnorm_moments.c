/*
 * groupnorm_moments.c - what some values of a group are known by, merged by Chan's rule: of threads, of CTAs, of
 * entries of slices.
 */
#include "cute/kernel.h"
#include "operators/groupnorm/groupnorm_moments.h"

enum { PIVOT = MOMENTS_PIVOT, MEAN = MOMENTS_MEAN, SQUARES = MOMENTS_SQUARES };

groupnorm_state moments_of_sums(val count, val pivot, val sum, val squares)
{
    val mean = div(sum, max(count, immf(1)));
    val around = max_nan(fma(neg(sum), mean, squares), immf(0));
    return (groupnorm_state){ count, { [PIVOT] = pivot, [MEAN] = mean, [SQUARES] = around } };
}

/*
 * The median of three of the group's pivots, of its lanes and then of what they have next: a lane of few values may
 * have one far away.
 */
static val common_pivot(const groupnorm_slice *s, const groupnorm_state *m, int n)
{
    const int lanes = groupnorm_lanes_of_group(s->cfg);
    val first = sub(lane(), convert(U32, groupnorm_lane_of_group(s))), own = m->of[PIVOT], x[MOMENTS_PIVOT_VALUES];
    for (int i = 0; i < MOMENTS_PIVOT_VALUES; i++) {
        const groupnorm_state *next = &m[min_i64(i / lanes, n - 1)];
        if (i % lanes == 0)
            own = select(lt(immf(0), next->count), next->of[PIVOT], shuffle(m->of[PIVOT], first));
        x[i] = shuffle(own, add(first, imm(i % lanes)));
    }
    return median_f32(x[0], x[1], x[2]);
}

groupnorm_state moments_merge(const groupnorm_slice *s, const groupnorm_state *m, int n)
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
    return (groupnorm_state){ sums[0], { [PIVOT] = pivot, [MEAN] = mean, [SQUARES] = squares } };
}

void moments_set(tensor sMoments, val place, const groupnorm_state *m)
{
    for (int i = 0; i < GROUPNORM_ENTRY; i++)
        set(sMoments, coord(i, place), m->of[i]);
}
