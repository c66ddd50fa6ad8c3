/* attention_softmax.c - maxima, exponentials and sums of rows of accumulators. */
#include "operators/attention/attention_softmax.h"

#include <math.h>

#include "cute/kernel.h"

enum { MAX_CHAINS = 3, SUM_CHAINS = 2, LARGEST_CHAINS = 4 }; // independent ones

int attention_online_row_count(tensor acc)
{
    return 2 * (int)static_size(layout_mode(acc.layout, 1));
}

int64_t attention_online_row_value(tensor acc, int row)
{
    return row % 2 * 2 + row / 2 * static_size(layout_mode(acc.layout, 0));
}

/* C of every atom has (2,2,...) values, pairs of a row first. */
int attention_online_row_of(tensor acc, int64_t i)
{
    int64_t values = static_size(layout_mode(acc.layout, 0)), blocks = static_size(layout_mode(acc.layout, 1));
    return (int)(i / values % blocks * 2 + i % values / 2 % 2);
}

/* Over the four lanes that share a row. */
static val quad(ir_op op, val x)
{
    for (int m = 1; m < 4; m *= 2)
        x = binary(op, x, shuffle_xor(x, imm(m)));
    return x;
}

online_rows attention_online_rows_begin(int count, val exponent)
{
    online_rows rows = { .count = count, .exponent = exponent };
    for (int r = 0; r < count; r++) {
        rows.max[r] = variable(F32, immf(ATTENTION_FLOOR));
        rows.sum[r] = variable(F32, immf(0));
        rows.factor[r] = variable(F32, immf(0));
    }
    return rows;
}

void attention_online_rows_reset(online_rows *rows)
{
    for (int r = 0; r < rows->count; r++) {
        assign(rows->max[r], immf(ATTENTION_FLOOR));
        assign(rows->sum[r], immf(0));
    }
}

void attention_online_rows_raise(online_rows *rows, const val *max)
{
    for (int r = 0; r < rows->count; r++) {
        assign(rows->sum[r], mul(rows->sum[r], exp2_ftz(mul(sub(rows->max[r], max[r]), rows->exponent))));
        assign(rows->max[r], max[r]);
    }
}

/* MAX or MIN of a row's scores as integers: this thread's in independent chains, then the other lanes'. */
static val of_row(tensor scores, int row, ir_op op)
{
    val chain[MAX_CHAINS];
    int seen = 0;
    for (int64_t i = 0; i < static_size(scores.layout); i++) {
        if (attention_online_row_of(scores, i) != row)
            continue;
        val x = bitcast(I32, at(scores, i));
        chain[seen % MAX_CHAINS] = seen < MAX_CHAINS ? x : binary(op, chain[seen % MAX_CHAINS], x);
        seen++;
    }
    return quad(op, binary(op, binary(op, chain[0], chain[1]), chain[2]));
}

/*
 * The maxima of the rows. The bits of floats compared as integers give the right maximum unless all are negative; then
 * the minimum does. NOTE: sm_90 has a maximum of three integers (VIMNMX3), to which ptxas fuses two; for floats it has
 * none.
 */
static void find_maxima(const online_rows *rows, tensor scores, const val *cap, val *larger)
{
    val bits[ONLINE_ROWS_MAX], negative;
    for (int r = 0; r < rows->count; r++) {
        bits[r] = of_row(scores, r, IR_MAX);
        larger[r] = variable(F32, max(bitcast(F32, bits[r]), cap ? immf(-INFINITY) : rows->max[r]));
        negative = r ? logical_or(negative, lt(bits[r], imm(0))) : lt(bits[r], imm(0));
    }
    IF(vote_any(negative)) {
        for (int r = 0; r < rows->count; r++) {
            val right = select(lt(bits[r], imm(0)), of_row(scores, r, IR_MIN), bits[r]);
            assign(larger[r], max(bitcast(F32, right), cap ? immf(-INFINITY) : rows->max[r]));
        }
    }
    for (int r = 0; r < rows->count && cap; r++)
        larger[r] = max(tanh_f32(mul(larger[r], *cap)), rows->max[r]);
}

/*
 * tanh(x) / x by powers of x^2, the highest first: within 2^-20 of it for |x| up to 1/2. The short one is within 2^-16
 * for tanh up to TANH_SHORT_END; beyond, x times it exceeds tanh and increases for ever.
 */
static const double TANH_OF_HALF[] = { -4.440222541e-02, 1.319029672e-01, -3.332631797e-01, 9.999994558e-01 };
static const double TANH_SHORT[] = { 1.183534471e-01, -3.322270464e-01, 9.999876601e-01 }, TANH_SHORT_END = 0.4218990;

/*
 * What TANH_SHORT makes of exponents, x * (((scale * x)^2 + shift)^2 + rest): each step has one number that is the same
 * for all, which comes from constant memory, as registers' ports are what tensor cores want meanwhile.
 */
enum { CAP_FACTOR, CAP_SCALE, CAP_SHIFT, CAP_REST };

void attention_cap_numbers(double factor, double exponent, float *cap)
{
    const double unit = exponent * factor, highest = unit * TANH_SHORT[0] * pow(factor, 4), root = (sqrt)(highest),
                 shift = unit * TANH_SHORT[1] * factor * factor / (2 * root);
    cap[CAP_FACTOR] = (float)factor;
    cap[CAP_SCALE] = (float)(sqrt)(root);
    cap[CAP_SHIFT] = (float)shift;
    cap[CAP_REST] = (float)(unit * TANH_SHORT[2] - shift * shift);
}

/* A score's factor, from scores to exponents before the maximum is subtracted. */
static val power_of(const online_rows *rows, const val *cap, val x)
{
    if (!cap)
        return rows->exponent;
    const val scaled = mul(x, cap[CAP_SCALE]), shifted = fma(scaled, scaled, cap[CAP_SHIFT]);
    return fma(shifted, shifted, cap[CAP_REST]);
}

/* A score that is a line along the keys: x * unit + (slope * c + shared), c a constant. */
typedef struct line {
    val x, unit, slope, c, shared;
} line;

/* What the lines of a row have in common, as parts of their exponents. */
typedef struct row_line {
    line first; // of which they are
    val offset, slope, unit;
} row_line;

static bool find_line(val score, line *l)
{
    const ir_inst *sum = maker(score), *bias = sum && sum->op == IR_FMA ? maker(sum->in[2]) : NULL;
    if (!bias || bias->op != IR_FMA || !is_constant(bias->in[1]) || is_constant(bias->in[2]))
        return false;
    *l = (line){ sum->in[0], sum->in[1], bias->in[0], bias->in[1], bias->in[2] };
    return true;
}

static bool are_parallel(const line *a, const line *b)
{
    return a->unit.reg == b->unit.reg && a->slope.reg == b->slope.reg && a->shared.reg == b->shared.reg;
}

/*
 * x * power + offset. For a score that is linear along the keys two FMAs are left: the row's common term is computed
 * once.
 */
static val exponent_of(val x, val power, val offset, row_line *of_row)
{
    line l;
    if (!find_line(x, &l))
        return fma(x, power, offset);
    if (!of_row->offset.type || !are_parallel(&l, &of_row->first))
        *of_row = (row_line){ l, fma(l.shared, power, offset), mul(l.slope, power), mul(l.unit, power) };
    return fma(l.x, of_row->unit, fma(l.c, of_row->slope, of_row->offset));
}

/* Raw scores become weights by the maxima; sum: of this lane's. With a cap, maxima and sums must allow TANH_SHORT. */
static void weigh_rows(const online_rows *rows, tensor scores, raw_scores raw, val *sum)
{
    val offset[ONLINE_ROWS_MAX], chain[ONLINE_ROWS_MAX][SUM_CHAINS];
    int seen[ONLINE_ROWS_MAX] = { 0 };
    row_line lines[ONLINE_ROWS_MAX] = { 0 };
    for (int r = 0; r < rows->count; r++)
        offset[r] = variable(F32, neg(mul(rows->max[r], rows->exponent)));
    UNROLL(i, static_size(scores.layout)) {
        int r = attention_online_row_of(scores, i), to = seen[r]++ % SUM_CHAINS;
        val weight = at(scores, i), x = raw.score ? raw.score(raw.of, weight, i) : weight;
        assign(weight, exp2_ftz(exponent_of(x, power_of(rows, raw.cap, x), offset[r], &lines[r])));
        chain[r][to] = seen[r] <= SUM_CHAINS ? weight : add(chain[r][to], weight);
    }
    UNROLL(r, rows->count)
        sum[r] = add(chain[r][0], chain[r][1]);
}

/*
 * TANH_SHORT serves rows whose maximum lies in a window, all in bits of weights; `end` is that of its range, or of
 * END_MAX, up to which scores are within 2^-11. Weights at the other end are too small by at most 2^-(10 + end + max)
 * for caps from 17 on, which is to be less than 2^-25; smaller caps have no window.
 */
static const double DEPTH_MIN = 25 - 10, END_MAX = 36, WINDOW_MIN = 6;

static val end_of_short(const online_rows *rows)
{
    return min(mul(rows->exponent, immf(TANH_SHORT_END)), immf(END_MAX));
}

/* How far weights of a row may grow beyond its maximum. */
static val growth_of(const online_rows *rows, int r)
{
    return fma(neg(rows->max[r]), rows->exponent, end_of_short(rows));
}

/* Are all maxima in the window, with so much room to grow? The same in all lanes. */
static val fits_short(const online_rows *rows, double growth_min)
{
    const val growth_max = fma(end_of_short(rows), immf(2), immf(-DEPTH_MIN));
    val fits = le(immf(WINDOW_MIN), growth_max);
    for (int r = 0; r < rows->count; r++) {
        const val growth = growth_of(rows, r);
        fits = logical_and(fits, logical_and(le(immf(growth_min), growth), le(growth, growth_max)));
    }
    return vote_all(fits);
}

/* The same in a branch, sums into variables. */
static void weigh_rows_into(const online_rows *rows, tensor scores, raw_scores raw, const val *sum)
{
    val by_branch[ONLINE_ROWS_MAX];
    weigh_rows(rows, scores, raw, by_branch);
    UNROLL(r, rows->count)
        assign(sum[r], by_branch[r]);
}

/* Scores become weights after the cap, which is part of the exponents where it is short. */
static void weigh_capped(const online_rows *rows, tensor scores, val is_short, const val *cap, val *sum)
{
    for (int r = 0; r < rows->count; r++)
        sum[r] = variable(F32, immf(0));
    IF(is_short)
        weigh_rows_into(rows, scores, (raw_scores){ .cap = cap }, sum);
    ELSE
    {
        attention_cap_scores(scores, *cap);
        weigh_rows_into(rows, scores, (raw_scores){ NULL }, sum);
    }
}

void attention_online_softmax(online_rows *rows, tensor scores, const val *cap)
{
    val larger[ONLINE_ROWS_MAX], sum[ONLINE_ROWS_MAX];
    find_maxima(rows, scores, cap, larger);
    for (int r = 0; r < rows->count; r++) {
        if (rows->slack) {
            const val growth = mul(sub(larger[r], rows->max[r]), rows->exponent);
            larger[r] = select(lt(growth, immf(rows->slack)), rows->max[r], larger[r]);
        }
        assign(rows->factor[r], exp2_ftz(mul(sub(rows->max[r], larger[r]), rows->exponent)));
        assign(rows->max[r], larger[r]);
    }
    if (cap)
        weigh_capped(rows, scores, fits_short(rows, rows->slack), cap, sum); // scores may exceed the maxima by so much
    else
        weigh_rows(rows, scores, (raw_scores){ NULL }, sum);
    UNROLL(r, rows->count)
        assign(rows->sum[r], fma(rows->sum[r], rows->factor[r], sum[r]));
}

val attention_online_rows_are_new(const online_rows *rows)
{
    val is_new = lt(rows->max[0], immf(ATTENTION_FLOOR / 2));
    for (int r = 1; r < rows->count; r++)
        is_new = logical_or(is_new, lt(rows->max[r], immf(ATTENTION_FLOOR / 2)));
    return vote_any(is_new);
}

/* Exponents in the bits of floats. */
enum { EXPONENT_AT = 23, EXPONENT_OF_1 = 127, EXPONENT_MAX = 250 };

/* A lane's weights of a block sum to at most this, so products with 16-bit values stay far from infinity. */
static const double SUM_MAX = 0x1p15;

/*
 * With a short cap no maximum was looked for in this block: a score beyond the end of its range weighs at least
 * 2^growth, which the row's sum shows. That is to be far more than usual.
 */
static const double GROWTH_MIN = 6;

val attention_cap_is_short(const online_rows *rows)
{
    return fits_short(rows, GROWTH_MIN);
}

void attention_cap_limits(const online_rows *rows, const val *limit)
{
    for (int r = 0; r < rows->count; r++)
        assign(limit[r], min(exp2_ftz(growth_of(rows, r)), immf(SUM_MAX)));
}

val attention_online_softmax_by_old(const online_rows *rows, tensor scores, const raw_scores *raw, val *sum)
{
    val fits = yes();
    weigh_rows(rows, scores, *raw, sum);
    UNROLL(r, rows->count) {
        sum[r] = variable(F32, sum[r]);
        fits = logical_and(fits, le(sum[r], raw->cap ? raw->limit[r] : immf(SUM_MAX)));
    }
    return vote_all(fits);
}

/* Weights beyond 1 are scaled below 2 by a power of 2, which the maximum absorbs, unless one is too large for that. */
val attention_online_rows_lower(online_rows *rows, tensor weights, const raw_scores *raw, val *sum)
{
    val steps[ONLINE_ROWS_MAX], is_lost = no();
    for (int r = 0; r < rows->count; r++) {
        const val e = shift_right(of_row(weights, r, IR_MAX), imm(EXPONENT_AT));
        steps[r] = max(sub(e, imm(EXPONENT_OF_1)), imm(0));
        is_lost = logical_or(is_lost, lt(imm(EXPONENT_MAX), e));
        if (raw->cap)
            is_lost = logical_or(is_lost, lt(exp2_ftz(growth_of(rows, r)), sum[r]));
    }
    is_lost = vote_any(is_lost);
    for (int r = 0; r < rows->count; r++) {
        const val by = select(is_lost, imm(0), steps[r]);
        assign(rows->factor[r], bitcast(F32, shift_left(sub(imm(EXPONENT_OF_1), by), imm(EXPONENT_AT))));
        assign(rows->max[r], add(rows->max[r], div(convert(F32, by), rows->exponent)));
        assign(rows->sum[r], mul(rows->sum[r], rows->factor[r]));
        assign(sum[r], select(is_lost, immf(0), mul(sum[r], rows->factor[r])));
    }
    attention_scale_rows(weights, rows->factor);
    return is_lost;
}

row_end attention_row_end(val top, val sum, val sink)
{
    row_end e = { .top = top, .sum = sum };
    val share = immf(1);
    if (sink.type) {
        val at = mul(sink, immf(M_LOG2E)), larger = max(top, at);
        share = exp2_ftz(sub(top, larger));
        e.sum = fma(sum, share, exp2_ftz(sub(at, larger)));
        e.top = larger;
    }
    e.factor = select(eq(e.sum, immf(0)), immf(0), mul(share, rcp(e.sum)));
    return e;
}

void attention_online_rows_finish(online_rows *rows, val sink)
{
    for (int r = 0; r < rows->count; r++) {
        val sum = quad(IR_ADD, rows->sum[r]), top = mul(rows->max[r], rows->exponent);
        const row_end e = attention_row_end(top, sum, sink);
        assign(rows->max[r], e.top);
        assign(rows->sum[r], e.sum);
        assign(rows->factor[r], e.factor);
    }
}

val attention_logarithm(val top, val sum)
{
    val logarithm = fma(top, immf(M_LN2), log_f32(sum));
    return select(eq(sum, immf(0)), immf(-INFINITY), logarithm);
}

static void tanh_by_powers(tensor x)
{
    UNROLL(i, static_size(x.layout)) {
        val one = at(x, i), square = mul(one, one), p = immf(TANH_OF_HALF[0]);
        for (int j = 1; j < COUNT_OF(TANH_OF_HALF); j++)
            p = fma(p, square, immf(TANH_OF_HALF[j]));
        assign(one, mul(p, one));
    }
}

/* 1 - 2 / (exp(2x) + 1): an error of 2^-22 of 1, which is enough for scores this large. */
static void tanh_by_exponentials(tensor x)
{
    UNROLL(i, static_size(x.layout)) {
        val one = at(x, i);
        assign(one, fma(rcp_ftz(add(exp2_ftz(mul(one, immf(2 * M_LOG2E))), immf(1))), immf(-2), immf(1)));
    }
}

/* Most scores are less than half of their cap: those take a polynomial, as the softmax has exponentials enough. */
void attention_cap_scores(tensor scores, val factor)
{
    val chain[LARGEST_CHAINS] = { immf(0), immf(0), immf(0), immf(0) };
    UNROLL(i, static_size(scores.layout)) {
        val x = at(scores, i), *largest = &chain[i % LARGEST_CHAINS];
        assign(x, mul(x, factor));
        *largest = max(*largest, abs(x));
    }
    val largest = max(max(chain[0], chain[1]), max(chain[2], chain[3]));
    IF(vote_any(lt(immf(0.5), largest))) {
        tanh_by_exponentials(scores);
    }
    ELSE
    {
        tanh_by_powers(scores);
    }
}

void attention_scale_rows(tensor acc, const val *factor)
{
    UNROLL(i, static_size(acc.layout)) {
        val x = at(acc, i);
        assign(x, mul(x, factor[attention_online_row_of(acc, i)]));
    }
}

void attention_rescale_rows(tensor acc, const val *factor, int count)
{
    val same = yes();
    for (int r = 0; r < count; r++)
        same = logical_and(same, eq(factor[r], immf(1)));
    IF(logical_not(vote_all(same)))
        attention_scale_rows(acc, factor);
}

void attention_mask_scores(tensor scores, layout columns, const val *begins, const val *ends)
{
    UNROLL(i, static_size(scores.layout)) {
        val x = at(scores, i), column = imm(index_at(columns, i));
        int r = attention_online_row_of(scores, i);
        val hidden = lt(ends[r], column);
        if (begins)
            hidden = logical_or(hidden, lt(column, begins[r]));
        assign(x, select(hidden, immf(-INFINITY), x));
    }
}
