/* reduce_ops.c - the built-in operations: what each carries along, takes in, merges and gives out. */
#include "cute/math.h"
#include "operators/reduce/reduce_kernel.h"

enum { NO_INDEX_BITS = 62 };

static const int64_t NO_INDEX = (int64_t)1 << NO_INDEX_BITS; // above any index: the index of no element

static val smallest(ir_type type)
{
    return type == F32 ? immf(-INFINITY) : ir_int(type, type == I32 ? INT32_MIN : INT64_MIN);
}

static val largest(ir_type type)
{
    return type == F32 ? immf(INFINITY) : ir_int(type, type == I32 ? INT32_MAX : INT64_MAX);
}

/* Adds pairwise: the error grows with the logarithm of the count. */
static val pairwise_sum(const val *x, int count)
{
    return count == 1 ? x[0] : add(pairwise_sum(x, count / 2), pairwise_sum(x + count / 2, count - count / 2));
}

/* Folds: one value */

static val mapped(const reduce_fold *f, val x)
{
    return f->map ? f->map(x, f->user) : x;
}

static val fold_pairwise(const reduce_fold *f, const val *x, int count)
{
    if (count == 1)
        return mapped(f, x[0]);
    val lower = fold_pairwise(f, x, count / 2);
    return f->combine(lower, fold_pairwise(f, x + count / 2, count - count / 2), f->user);
}

static void fold_start(const reducer *r, val *state)
{
    ir_type type = r->fold.total;
    double start = r->fold.identity;
    state[0] = type == F32    ? immf(start)
               : isinf(start) ? (start < 0 ? smallest(type) : largest(type))
                              : ir_int(type, (int64_t)start);
}

static void fold_take(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)pivot;
    assign(state[0], r->fold.combine(state[0], fold_pairwise(&r->fold, batch->x, batch->size), r->fold.user));
}

static void fold_merge(val *into, const val *other, void *user)
{
    const reducer *r = user;
    assign(into[0], r->fold.combine(into[0], other[0], r->fold.user));
}

static val fold_finish(const reducer *r, const val *state, const reduce_row *row)
{
    return r->fold.finish ? r->fold.finish(state[0], row->count, r->fold.user) : state[0];
}

reducer reducer_of_fold(const reduce_fold *fold)
{
    return (reducer){ .input = fold->input,
                      .count = 1,
                      .types = { fold->total },
                      .start = fold_start,
                      .take = fold_take,
                      .merge = fold_merge,
                      .finish = fold_finish,
                      .fold = *fold };
}

static val plus(val a, val b, void *user)
{
    (void)user;
    return add(a, b);
}

static val times(val a, val b, void *user)
{
    (void)user;
    return mul(a, b);
}

static val larger(val a, val b, void *user)
{
    (void)user;
    return a.type == F32 ? ir_max_nan(a, b) : max(a, b);
}

static val smaller(val a, val b, void *user)
{
    (void)user;
    return a.type == F32 ? ir_min_nan(a, b) : min(a, b);
}

static val is_true(val x, void *user)
{
    (void)user;
    return select(ne(x, imm(0)), imm(1), imm(0));
}

static val or (val a, val b, void *user)
{
    (void)user;
    return either(a, b);
}

static val and (val a, val b, void *user)
{
    (void)user;
    return both(a, b);
}

static val absolute(val x, void *user)
{
    (void)user;
    return ir_unary(IR_ABS, x);
}

static val to_float(val total, val count, void *user)
{
    (void)count;
    (void)user;
    return convert(F32, total);
}

static val over_count(val total, val count, void *user)
{
    (void)user;
    return div(convert(F32, total), convert(F32, count));
}

/* Compensated sums: (sum, error), the true sum is nearer to sum + error */

/* sum += x; error += what rounding lost: Knuth's TwoSum, exact in any order of magnitudes. */
static void add_exactly(val *state, val x)
{
    val sum = add(state[0], x), part = sub(sum, state[0]);
    val lost = add(sub(state[0], sub(sum, part)), sub(x, part));
    assign(state[1], add(state[1], lost));
    assign(state[0], sum);
}

static void compensated_start(const reducer *r, val *state)
{
    (void)r;
    state[0] = state[1] = immf(0);
}

static void compensated_take(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)pivot;
    add_exactly(state, fold_pairwise(&r->fold, batch->x, batch->size));
}

static void compensated_merge(val *into, const val *other, void *user)
{
    (void)user;
    add_exactly(into, other[0]);
    assign(into[1], add(into[1], other[1]));
}

/* Where the sum is infinite, the error is NaN and means nothing. */
static val compensated_finish(const reducer *r, const val *state, const reduce_row *row)
{
    val total = select(eq(state[1], state[1]), add(state[0], state[1]), state[0]);
    return r->fold.finish ? r->fold.finish(total, row->count, r->fold.user) : total;
}

static reducer compensated(reducer r)
{
    r.count = 2;
    r.types[1] = F32;
    r.start = compensated_start;
    r.take = compensated_take;
    r.merge = compensated_merge;
    r.finish = compensated_finish;
    return r;
}

/* Variance: (count, mean, sum of squared distances from it), of x - pivot */

static void variance_start(const reducer *r, val *state)
{
    (void)r;
    state[0] = state[1] = state[2] = immf(0);
}

/* Chan's formula. The weight of what comes is its share in the count. */
static void variance_merge(val *into, const val *other, void *user)
{
    (void)user;
    val count = add(into[0], other[0]), delta = sub(other[1], into[1]);
    val weight = select(eq(count, immf(0)), immf(0), mul(other[0], rcp(count)));
    val between = mul(mul(delta, delta), mul(into[0], weight));
    assign(into[2], add(add(into[2], other[2]), between));
    assign(into[1], fma(delta, weight, into[1]));
    assign(into[0], count);
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
 * Welford's update of several elements at once: with distances d from the mean of those before, S their sum and Q that of
 * their squares, the mean moves by S / n and the sum of squares grows by Q - S^2 / n, where n counts all. No digits
 * cancel: S^2 / n is at most half of Q once there were as many elements before. The first batch takes its first element
 * for the mean. The pivot is an element too, so that numbers near each other and far from 0 lose nothing.
 */
static void variance_take(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)r;
    val distance[batch->size];
    for (int i = 0; i < batch->size; i++)
        distance[i] = convert(F32, sub(batch->x[i], pivot));
    val center = select(eq(batch->before, immf(0)), distance[0], state[1]);
    for (int i = 0; i < batch->size; i++)
        distance[i] = sub(distance[i], center);
    val sum = pairwise_sum(distance, batch->size), squares = sum_of_squares(distance, batch->size);
    val step = mul(sum, batch->share);
    assign(state[1], add(center, step));
    assign(state[2], add(state[2], sub(squares, mul(sum, step))));
}

static val variance_finish(const reducer *r, const val *state, const reduce_row *row)
{
    (void)r;
    return div(state[2], row->divisor);
}

static val deviation_finish(const reducer *r, const val *state, const reduce_row *row)
{
    return ir_unary(IR_SQRT, variance_finish(r, state, row));
}

static reducer variance_of(ir_type input, bool root)
{
    return (reducer){ .input = input,
                      .count = 3,
                      .types = { F32, F32, F32 },
                      .pivot = true,
                      .counts = true,
                      .start = variance_start,
                      .take = variance_take,
                      .merge = variance_merge,
                      .finish = root ? deviation_finish : variance_finish };
}

/* Euclidean norm: (p, sum of (x/p)^2), p a power of two not far from the largest |x| so far */

static const double SCALE_MIN = 0x1p-126, SCALE_MAX = 0x1p126; // both have a reciprocal

/* The power of two below x >= 0, within the scales. */
static val scale_of(val x)
{
    val power = ir_bitcast(F32, both(ir_bitcast(U32, x), ir_int(U32, 0x7f800000)));
    return min(max(power, immf(SCALE_MIN)), immf(SCALE_MAX));
}

/* 1 / p, exactly: the exponent mirrored. */
static val scale_inverse(val p)
{
    return ir_bitcast(F32, sub(ir_int(U32, 0x7f000000), ir_bitcast(U32, p)));
}

/* The sum of squares `sum` at scale `from` in terms of the scale whose inverse is given. */
static val rescaled(val sum, val from, val inverse)
{
    val ratio = mul(from, inverse);
    return mul(mul(sum, ratio), ratio);
}

static void norm_start(const reducer *r, val *state)
{
    (void)r;
    state[0] = immf(SCALE_MIN);
    state[1] = immf(0);
}

static void norm_take(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)r;
    (void)pivot;
    val most = immf(0), square[batch->size];
    for (int i = 0; i < batch->size; i++)
        most = max(most, ir_unary(IR_ABS, batch->x[i])); // a NaN reaches the squares
    val scale = max(state[0], scale_of(most)), inverse = scale_inverse(scale);
    for (int i = 0; i < batch->size; i++) {
        val x = mul(batch->x[i], inverse);
        square[i] = mul(x, x);
    }
    assign(state[1], add(rescaled(state[1], state[0], inverse), pairwise_sum(square, batch->size)));
    assign(state[0], scale);
}

static void norm_merge(val *into, const val *other, void *user)
{
    (void)user;
    val scale = max(into[0], other[0]), inverse = scale_inverse(scale);
    assign(into[1], add(rescaled(into[1], into[0], inverse), rescaled(other[1], other[0], inverse)));
    assign(into[0], scale);
}

static val norm_finish(const reducer *r, const val *state, const reduce_row *row)
{
    (void)r;
    (void)row;
    return mul(ir_unary(IR_SQRT, state[1]), state[0]);
}

static const reducer norm = { .input = F32,
                              .count = 2,
                              .types = { F32, F32 },
                              .start = norm_start,
                              .take = norm_take,
                              .merge = norm_merge,
                              .finish = norm_finish };

/* log(sum(exp(x))): (maximum, sum of exp(x - maximum)); where the maximum is infinite, of exp(x) */

static val anchor_of(val most)
{
    return select(eq(ir_unary(IR_ABS, most), immf(INFINITY)), immf(0), most);
}

static void exponential_start(const reducer *r, val *state)
{
    (void)r;
    state[0] = immf(-INFINITY);
    state[1] = immf(0);
}

static void exponential_take(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)r;
    (void)pivot;
    val most = state[0], power[batch->size];
    for (int i = 0; i < batch->size; i++)
        most = max(most, batch->x[i]); // a NaN reaches the powers
    val anchor = anchor_of(most);
    for (int i = 0; i < batch->size; i++)
        power[i] = exp_f32(sub(batch->x[i], anchor));
    assign(state[1], fma(state[1], exp_f32(sub(state[0], anchor)), pairwise_sum(power, batch->size)));
    assign(state[0], most);
}

static void exponential_merge(val *into, const val *other, void *user)
{
    (void)user;
    val most = max(into[0], other[0]), anchor = anchor_of(most);
    val mine = mul(into[1], exp_f32(sub(into[0], anchor)));
    assign(into[1], fma(other[1], exp_f32(sub(other[0], anchor)), mine));
    assign(into[0], most);
}

static val exponential_finish(const reducer *r, const val *state, const reduce_row *row)
{
    (void)r;
    (void)row;
    return add(anchor_of(state[0]), log_f32(state[1]));
}

static const reducer exponential = { .input = F32,
                                     .count = 2,
                                     .types = { F32, F32 },
                                     .start = exponential_start,
                                     .take = exponential_take,
                                     .merge = exponential_merge,
                                     .finish = exponential_finish };

/* Position of an extreme: (value, index). NaN is more extreme than any number, the first of equals wins. */

static bool wants_largest(const reducer *r)
{
    return r->fold.user == NULL;
}

static val is_nan(val x)
{
    return ne(x, x);
}

/* Whether x is more extreme than y. */
static val beats(const reducer *r, val x, val y)
{
    val more = wants_largest(r) ? lt(y, x) : lt(x, y);
    return x.type == F32 ? either(more, both(is_nan(x), eq(y, y))) : more;
}

static val ties(val x, val y)
{
    return x.type == F32 ? either(eq(x, y), both(is_nan(x), is_nan(y))) : eq(x, y);
}

static void position_start(const reducer *r, val *state)
{
    state[0] = wants_largest(r) ? smallest(r->input) : largest(r->input);
    state[1] = ir_int(I64, NO_INDEX);
}

static void position_merge(val *into, const val *other, void *user)
{
    val better = either(beats(user, other[0], into[0]), both(ties(other[0], into[0]), lt(other[1], into[1])));
    val value = select(better, other[0], into[0]), index = select(better, other[1], into[1]);
    assign(into[0], value);
    assign(into[1], index);
}

/* Within a batch indices grow, so that only a better element replaces one before; distances are 32-bit constants. */
static void position_take(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)pivot;
    val best = batch->x[0], place = imm((int)batch->distance[0]);
    for (int i = 1; i < batch->size; i++) {
        val better = beats(r, batch->x[i], best);
        best = select(better, batch->x[i], best);
        place = select(better, imm((int)batch->distance[i]), place);
    }
    val found[] = { best, add(batch->first, convert(I64, place)) };
    position_merge(state, found, (void *)r);
}

static val position_finish(const reducer *r, const val *state, const reduce_row *row)
{
    (void)r;
    (void)row;
    return select(eq(state[1], ir_int(I64, NO_INDEX)), ir_int(I64, -1), state[1]);
}

static reducer position_of(ir_type input, bool of_largest)
{
    static int smallest_wanted;
    return (reducer){ .input = input,
                      .count = 2,
                      .types = { input, I64 },
                      .start = position_start,
                      .take = position_take,
                      .merge = position_merge,
                      .finish = position_finish,
                      .fold.user = of_largest ? NULL : &smallest_wanted };
}

/* The table */

/* Folds by operation; types are filled in by the problem. */
static const reduce_fold folds[] = {
    [CKL_REDUCE_SUM] = { .combine = plus },
    [CKL_REDUCE_MAX] = { .combine = larger, .identity = -INFINITY },
    [CKL_REDUCE_MIN] = { .combine = smaller, .identity = INFINITY },
    [CKL_REDUCE_PROD] = { .combine = times, .identity = 1 },
    [CKL_REDUCE_MEAN] = { .combine = plus, .finish = over_count },
    [CKL_REDUCE_ANY] = { .total = CKL_I32, .map = is_true, .combine = or },
    [CKL_REDUCE_ALL] = { .total = CKL_I32, .map = is_true, .combine = and, .identity = 1 },
    [CKL_REDUCE_NORM1] = { .map = absolute, .combine = plus, .finish = to_float },
};

static bool is_float(ckl_dtype dtype)
{
    return dtype == F32 || dtype == F16 || dtype == BF16;
}

/* Elements as they are taken: floats in f32; sums of integers in 64 bits, or in the output's. */
static ir_type input_of(int op, ckl_dtype dtype, ckl_dtype output)
{
    bool adds = op == CKL_REDUCE_SUM || op == CKL_REDUCE_PROD || op == CKL_REDUCE_MEAN || op == CKL_REDUCE_NORM1 ||
                op == CKL_REDUCE_VAR || op == CKL_REDUCE_STD;
    if (is_float(dtype))
        return F32;
    return adds ? (output == I32 ? I32 : I64) : dtype;
}

reducer reducer_of(int op, ckl_dtype dtype, ckl_dtype output, bool is_compensated)
{
    ir_type input = input_of(op, dtype, output);
    if (op == CKL_REDUCE_VAR || op == CKL_REDUCE_STD)
        return variance_of(input, op == CKL_REDUCE_STD);
    if (op == CKL_REDUCE_ARGMAX || op == CKL_REDUCE_ARGMIN)
        return position_of(input, op == CKL_REDUCE_ARGMAX);
    if (op == CKL_REDUCE_NORM2)
        return norm;
    if (op == CKL_REDUCE_LOGSUMEXP)
        return exponential;
    reduce_fold fold = folds[op];
    fold.input = input;
    fold.total = fold.total ? fold.total : input;
    reducer r = reducer_of_fold(&fold);
    return is_compensated && input == F32 && fold.combine == plus ? compensated(r) : r;
}

int reduce_state_size(int op, ckl_dtype dtype, ckl_dtype output, bool is_compensated)
{
    reducer r = reducer_of(op, dtype, output, is_compensated);
    return reduce_state_words(&r);
}
