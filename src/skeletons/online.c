/* online.c - pairs of a maximum and a sum of exponentials. */
#include "skeletons/online.h"

#include <float.h>

#include "cute/kernel.h"

static const double LOG2E = 1.4426950408889634;

static const double MAX_START = -FLT_MAX; // finite: -inf - max is -inf, not NaN

val online_exp(val x, val max)
{
    return exp2_ftz(mul(sub(x, max), immf(LOG2E)));
}

val online_exp_times(val x, val max, val exponent)
{
    return exp2_ftz(fma(sub(x, max), immf(LOG2E), exponent));
}

/* Both sums relative to the larger maximum: one of the two factors is exactly 1. */
static void combine(val *into, const val *other, void *user)
{
    (void)user;
    val max = max(into[ONLINE_MAX], other[ONLINE_MAX]);
    val mine = mul(into[ONLINE_SUM], online_exp(into[ONLINE_MAX], max));
    assign(into[ONLINE_SUM], fma(other[ONLINE_SUM], online_exp(other[ONLINE_MAX], max), mine));
    assign(into[ONLINE_MAX], max);
}

/* The maximum of all lanes comes first, so that each scales its sum once. */
static void over_lanes(val *pair, int low, int high, void *user)
{
    const reduction largest = { .count = 1, .combine = combine_max }, sum = reduce_sums(1);
    val max = variable(F32, pair[ONLINE_MAX]);
    (void)user;
    lanes_reduce(&largest, low, high, &max);
    assign(pair[ONLINE_SUM], mul(pair[ONLINE_SUM], online_exp(pair[ONLINE_MAX], max)));
    assign(pair[ONLINE_MAX], max);
    lanes_reduce(&sum, low, high, &pair[ONLINE_SUM]);
}

const reduction online_reduction = { .count = ONLINE_VALUES, .combine = combine, .over_lanes = over_lanes };

void online_begin(val pair[ONLINE_VALUES])
{
    pair[ONLINE_MAX] = variable(F32, immf(MAX_START));
    pair[ONLINE_SUM] = variable(F32, immf(0));
}

void online_clear(const val pair[ONLINE_VALUES])
{
    assign(pair[ONLINE_MAX], immf(MAX_START));
    assign(pair[ONLINE_SUM], immf(0));
}

static val element(tensor rX, int i)
{
    return convert(F32, rX.regs[index_at(rX.layout, i)]);
}

static val largest(tensor rX, int first, int count)
{
    if (count == 1)
        return element(rX, first);
    val left = largest(rX, first, count / 2), right = largest(rX, first + count / 2, count - count / 2);
    return max(left, right);
}

/* Pairwise: the rounding error grows with the logarithm of count. The terms are stored in rE if it has registers. */
static val sum_of_exponentials(tensor rX, int first, int count, val max, tensor rE)
{
    if (count == 1) {
        val term = online_exp(element(rX, first), max);
        if (!rE.regs)
            return term;
        assign(rE.regs[index_at(rE.layout, first)], term);
        return rE.regs[index_at(rE.layout, first)];
    }
    val left = sum_of_exponentials(rX, first, count / 2, max, rE);
    val right = sum_of_exponentials(rX, first + count / 2, count - count / 2, max, rE);
    return add(left, right);
}

val online_add_keeping(val pair[ONLINE_VALUES], tensor rX, tensor rE)
{
    int count = (int)static_size(rX.layout);
    val max = largest(rX, 0, count);
    max = max(max, pair[ONLINE_MAX]);
    val sum = sum_of_exponentials(rX, 0, count, max, rE);
    assign(pair[ONLINE_SUM], fma(pair[ONLINE_SUM], online_exp(pair[ONLINE_MAX], max), sum));
    assign(pair[ONLINE_MAX], max);
    return max;
}

void online_add(val pair[ONLINE_VALUES], tensor rX)
{
    (void)online_add_keeping(pair, rX, (tensor){ .layout = rX.layout });
}

static val is_empty(const val pair[ONLINE_VALUES])
{
    return eq(pair[ONLINE_SUM], immf(0));
}

val online_scale(const val pair[ONLINE_VALUES])
{
    return select(is_empty(pair), immf(0), rcp(pair[ONLINE_SUM]));
}

val online_scale_exponent(const val pair[ONLINE_VALUES])
{
    return select(is_empty(pair), immf(0), neg(ir_unary(IR_LG2, pair[ONLINE_SUM])));
}

val online_log_sum(const val pair[ONLINE_VALUES])
{
    return select(is_empty(pair), immf(0), log_f32(pair[ONLINE_SUM]));
}

val online_factor(const val pair[ONLINE_VALUES], val own_max)
{
    return mul(online_exp(own_max, pair[ONLINE_MAX]), online_scale(pair));
}
