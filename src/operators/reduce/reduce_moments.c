/*
 * reduce_moments.c - sums of what must be shifted or scaled first: variance, the Euclidean norm, log of a sum of exp.
 */
#include "cute/math.h"
#include "operators/reduce/reduce_kernel.h"

/* Adds pairwise: the error grows with the logarithm of the count. */
static val pairwise_sum(const val *x, int count)
{
    return count == 1 ? x[0] : add(pairwise_sum(x, count / 2), pairwise_sum(x + count / 2, count - count / 2));
}

/* Variance: (count, mean, sum of squared distances from it), of x - pivot */

static void variance_identity(const reducer *r, val *state)
{
    (void)r;
    state[0] = state[1] = state[2] = immf(0);
}

/*
 * Chan's formula. The weight of `other` is its share of the count; merged into no elements, its mean keeps every bit.
 */
static void variance_merge(val *into, const val *other, void *user)
{
    (void)user;
    val count = add(into[0], other[0]), delta = sub(other[1], into[1]);
    val weight = select(eq(count, immf(0)), immf(0), mul(other[0], rcp(count)));
    val between = mul(mul(delta, delta), mul(into[0], weight));
    assign(into[2], add(add(into[2], other[2]), between));
    assign(into[1], select(eq(into[0], immf(0)), other[1], fma(delta, weight, into[1])));
    assign(into[0], count);
}

static void sum_over_lanes(val *values, int count, int low, int high)
{
    const reduction sums = reduce_sums(count);
    lanes_reduce(&sums, low, high, values);
}

/*
 * The mean of all lanes is one lane's plus the mean distance from it, so equal elements keep every bit; then squares
 * are added by Chan's formula.
 */
static void variance_over_lanes(val *state, int low, int high, void *user)
{
    (void)user;
    // from the first of the lanes that differ in the bits low .. high / 2 alone
    val one = shuffle(state[1], bit_and(lane(), imm(~(high - low)))), count = state[0];
    val sums[2] = { variable(F32, count), variable(F32, mul(count, sub(state[1], one))) };
    sum_over_lanes(sums, 2, low, high);
    val mean = fma(sums[1], rcp(max(sums[0], immf(1))), one), between = sub(state[1], mean);
    assign(state[2], fma(mul(count, between), between, state[2]));
    sum_over_lanes(&state[2], 1, low, high);
    assign(state[1], mean);
    assign(state[0], sums[0]);
}

/* Chains of four: a multiplication and an addition in one instruction, and few additions in turn. */
static val sum_of_squares(const val *x, int count)
{
    if (count > 4)
        return add(sum_of_squares(x, count / 2), sum_of_squares(x + count / 2, count - count / 2));
    val sum = mul(x[0], x[0]);
    for (int i = 1; i < count; i++)
        sum = fma(x[i], x[i], sum);
    return sum;
}

/*
 * Welford's update of several elements at once: with distances d from the mean of those before, S their sum and Q that
 * of their squares, the mean moves by S / n and the sum of squares grows by Q - S^2 / n, where n counts all. No digits
 * cancel: S^2 / n is at most half of Q once there were as many elements before. The first batch takes its first element
 * for the mean. The pivot is an element too, so that numbers near each other and far from 0 lose nothing. 16-bit
 * elements need none: next to the distance between two of them the mean's rounding to f32 is nothing.
 */
static void variance_accumulate(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    val distance[batch->size];
    for (int i = 0; i < batch->size; i++)
        distance[i] = r->pivot ? convert(F32, sub(batch->x[i], pivot)) : batch->x[i];
    val center = select(eq(batch->before, immf(0)), distance[0], state[1]);
    for (int i = 0; i < batch->size; i++)
        distance[i] = sub(distance[i], center);
    val sum = pairwise_sum(distance, batch->size), squares = sum_of_squares(distance, batch->size);
    val step = mul(sum, batch->share);
    assign(state[1], add(center, step));
    assign(state[2], add(state[2], sub(squares, mul(sum, step))));
}

static val variance_finish(const reducer *r, const val *state, const reduce_values *p)
{
    (void)r;
    return div(state[2], p->divisor);
}

static val deviation_finish(const reducer *r, const val *state, const reduce_values *p)
{
    return sqrt(variance_finish(r, state, p));
}

reducer reduce_variance_of(ir_type input, bool near, bool root)
{
    return (reducer){ .input = input,
                      .count = 3,
                      .types = { F32, F32, F32 },
                      .pivot = !near,
                      .counts = true,
                      .identity = variance_identity,
                      .accumulate = variance_accumulate,
                      .merge = variance_merge,
                      .over_lanes = variance_over_lanes,
                      .finish = root ? deviation_finish : variance_finish };
}

/* Sums in terms of the largest element so far: (that, sum) */

static void scaled_identity(const reducer *r, val *state)
{
    state[0] = immf(r->fold.identity);
    state[1] = immf(0);
}

static void scaled_merge(val *into, const val *other, void *user)
{
    const reducer *r = user;
    val most = max(into[0], other[0]);
    assign(into[1], add(r->rescale(into[1], into[0], most), r->rescale(other[1], other[0], most)));
    assign(into[0], most);
}

/* All lanes take the largest. */
static void scaled_over_lanes(val *state, int low, int high, void *user)
{
    const reducer *r = user;
    const reduction largest = { .count = 1, .combine = combine_max };
    val most = variable(F32, state[0]);
    lanes_reduce(&largest, low, high, &most);
    assign(state[1], r->rescale(state[1], state[0], most));
    sum_over_lanes(&state[1], 1, low, high);
    assign(state[0], most);
}

#define SCALED(name, accumulates, rescales, finishes, least) \
    const reducer name = { .input = F32,                     \
                           .count = 2,                       \
                           .types = { F32, F32 },            \
                           .identity = scaled_identity,      \
                           .accumulate = accumulates,        \
                           .merge = scaled_merge,            \
                           .over_lanes = scaled_over_lanes,  \
                           .rescale = rescales,              \
                           .finish = finishes,               \
                           .fold.identity = least }

/* Euclidean norm: (p, sum of (x/p)^2), p a power of two not far from the largest |x| so far */

static const double SCALE_MIN = 0x1p-126, SCALE_MAX = 0x1p126; // both have a reciprocal

/* The power of two below x >= 0, within the scales. */
static val scale_of(val x)
{
    val power = bitcast(F32, bit_and(bitcast(U32, x), imm_as(U32, 0x7f800000)));
    return min(max(power, immf(SCALE_MIN)), immf(SCALE_MAX));
}

/* 1 / p, exactly: the exponent mirrored. */
static val scale_inverse(val p)
{
    return bitcast(F32, sub(imm_as(U32, 0x7f000000), bitcast(U32, p)));
}

/* The sum of squares `sum` at scale `from` in terms of another one. */
static val rescaled_squares(val sum, val from, val to)
{
    val ratio = mul(from, scale_inverse(to));
    return mul(mul(sum, ratio), ratio);
}

static void norm_accumulate(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)r;
    (void)pivot;
    val most = immf(0), x[batch->size];
    for (int i = 0; i < batch->size; i++)
        most = max(most, abs(batch->x[i])); // a NaN reaches the squares
    val scale = max(state[0], scale_of(most)), inverse = scale_inverse(scale);
    for (int i = 0; i < batch->size; i++)
        x[i] = mul(batch->x[i], inverse);
    assign(state[1], add(rescaled_squares(state[1], state[0], scale), sum_of_squares(x, batch->size)));
    assign(state[0], scale);
}

/* Where f32 holds the squares of all elements, their sum needs no scale. */
void reduce_add_squares(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)r;
    (void)pivot;
    assign(state[0], add(state[0], sum_of_squares(batch->x, batch->size)));
}

static val norm_finish(const reducer *r, const val *state, const reduce_values *p)
{
    (void)r;
    (void)p;
    return mul(sqrt(state[1]), state[0]);
}

SCALED(reduce_norm, norm_accumulate, rescaled_squares, norm_finish, SCALE_MIN);

/* log(sum(exp(x))): (maximum, sum of exp(x - maximum)); where the maximum is infinite, of exp(x) */

static val anchor_of(val most)
{
    return select(eq(abs(most), immf(INFINITY)), immf(0), most);
}

/*
 * exp(x - anchor), by ex2 of a rounded product: its error grows as 2^-24 d with the distance d from the largest, but
 * its weight in the sum falls as exp(-d), so the sum's relative error stays below 2^-22. exp_f32() takes twice the
 * instructions.
 */
static val power_of(val x, val anchor)
{
    static const double LOG2E = 1.4426950408889634;
    return exp2_ftz(mul(sub(x, anchor), immf(LOG2E)));
}

static val rescaled_powers(val sum, val from, val to)
{
    return mul(sum, power_of(from, anchor_of(to)));
}

static void exponential_accumulate(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)r;
    (void)pivot;
    val most = state[0], power[batch->size];
    for (int i = 0; i < batch->size; i++)
        most = max(most, batch->x[i]); // a NaN reaches the powers
    val anchor = anchor_of(most);
    for (int i = 0; i < batch->size; i++)
        power[i] = power_of(batch->x[i], anchor);
    assign(state[1], fma(state[1], power_of(state[0], anchor), pairwise_sum(power, batch->size)));
    assign(state[0], most);
}

static val exponential_finish(const reducer *r, const val *state, const reduce_values *p)
{
    (void)r;
    (void)p;
    return add(anchor_of(state[0]), log_f32(state[1]));
}

SCALED(reduce_logsumexp, exponential_accumulate, rescaled_powers, exponential_finish, -INFINITY);
