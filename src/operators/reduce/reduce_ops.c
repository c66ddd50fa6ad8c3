/* reduce_ops.c - the built-in operations: folds, sums that carry their rounding errors along, positions of extremes. */
#include "operators/reduce/reduce_folds.h"
#include "operators/reduce/reduce_kernel.h"

/* The ends of a type's range; infinities of f32. */
static val smallest(ir_type type)
{
    return type == F32 ? immf(-INFINITY) : imm_as(type, type == I32 ? INT32_MIN : INT64_MIN);
}

static val largest(ir_type type)
{
    return type == F32 ? immf(INFINITY) : imm_as(type, type == I32 ? INT32_MAX : INT64_MAX);
}

static val fold_pairwise(const reduce_fold *f, const val *x, int count)
{
    if (count == 1)
        return f->map ? f->map(x[0], f->user) : x[0];
    val lower = fold_pairwise(f, x, count / 2);
    return f->combine(lower, fold_pairwise(f, x + count / 2, count - count / 2), f->user);
}

static void fold_identity(const reducer *r, val *state)
{
    ir_type type = r->fold.total;
    double x = r->fold.identity;
    state[0] = type == F32 ? immf(x) : isinf(x) ? (x < 0 ? smallest(type) : largest(type)) : imm_as(type, (int64_t)x);
}

static void fold_accumulate(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)pivot;
    assign(state[0], r->fold.combine(state[0], fold_pairwise(&r->fold, batch->x, batch->size), r->fold.user));
}

static void fold_merge(val *into, const val *other, void *user)
{
    const reducer *r = user;
    assign(into[0], r->fold.combine(into[0], other[0], r->fold.user));
}

static val fold_finish(const reducer *r, const val *state, const reduce_values *p)
{
    return r->fold.finish ? r->fold.finish(state[0], p->count, r->fold.user) : state[0];
}

/* Combinations of two values, and what is made of a total and a count. */
#define OF_TWO(name, a, b, result)            \
    static val name(val a, val b, void *user) \
    {                                         \
        (void)b;                              \
        (void)user;                           \
        return result;                        \
    }

OF_TWO(plus, a, b, add(a, b))
OF_TWO(times, a, b, mul(a, b))
OF_TWO(or, a, b, bit_or(a, b))
OF_TWO(and, a, b, bit_and(a, b))
OF_TWO(larger, a, b, a.type == F32 ? max_nan(a, b) : max(a, b))
OF_TWO(smaller, a, b, a.type == F32 ? min_nan(a, b) : min(a, b))
OF_TWO(to_float, total, count, convert(F32, total))
OF_TWO(root, total, count, sqrt(total))
OF_TWO(over_count, total, count, div(convert(F32, total), convert(F32, count)))

static val is_true(val x, void *user)
{
    (void)user;
    return select(ne(x, imm(0)), imm(1), imm(0));
}

static val absolute(val x, void *user)
{
    (void)user;
    return abs(x);
}

static reduce_combine *known_of(const reduce_fold *fold)
{
    if (fold->combine == plus)
        return combine_sum;
    return fold->combine == larger ? combine_max : fold->combine == smaller ? combine_min : NULL;
}

static reducer reducer_of_fold(const reduce_fold *fold)
{
    return (reducer){ .input = fold->input,
                      .count = 1,
                      .types = { fold->total },
                      .identity = fold_identity,
                      .accumulate = fold_accumulate,
                      .merge = fold_merge,
                      .known = known_of(fold),
                      .finish = fold_finish,
                      .fold = *fold };
}

/* A user's, whose values are all f32 */

static val custom_finish(const reducer *r, const val *state, const reduce_values *p)
{
    return r->fold.finish ? r->fold.finish(state[0], convert(F32, p->count), r->fold.user) : state[0];
}

static reducer custom_of(const ckl_reduce_fold *fold)
{
    reducer r = reducer_of_fold(&(reduce_fold){ .input = F32,
                                                .total = F32,
                                                .map = fold->map,
                                                .combine = fold->combine,
                                                .finish = fold->finish,
                                                .identity = fold->identity,
                                                .user = fold->user });
    r.finish = custom_finish;
    return r;
}

/* Compensated sums: (sum, error), the true sum is nearer to sum + error */

/* sum += x; error += what rounding lost: Knuth's TwoSum, exact in any order of magnitudes. */
static void add_exactly(val *state, val x)
{
    val sum = add(state[0], x), added = sub(sum, state[0]);
    val lost = add(sub(state[0], sub(sum, added)), sub(x, added));
    assign(state[1], add(state[1], lost));
    assign(state[0], sum);
}

static void compensated_identity(const reducer *r, val *state)
{
    (void)r;
    state[0] = state[1] = immf(0);
}

static void compensated_accumulate(const reducer *r, const reduce_batch *batch, val pivot, val *state)
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
static val compensated_finish(const reducer *r, const val *state, const reduce_values *p)
{
    val total = select(eq(state[1], state[1]), add(state[0], state[1]), state[0]);
    return r->fold.finish ? r->fold.finish(total, p->count, r->fold.user) : total;
}

static reducer compensated_of(const reduce_fold *fold)
{
    reducer r = reducer_of_fold(fold);
    r.count = 2;
    r.types[1] = F32;
    r.identity = compensated_identity;
    r.accumulate = compensated_accumulate;
    r.merge = compensated_merge;
    r.known = NULL;
    r.finish = compensated_finish;
    return r;
}

/* Positions of extremes */

static const int64_t NO_INDEX = INT64_C(1) << 62; // above any index: the index of no element

/* State: (value, index). NaN is more extreme than any number, the first of equals wins. */

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
    return x.type == F32 ? logical_or(more, logical_and(is_nan(x), eq(y, y))) : more;
}

static val ties(val x, val y)
{
    return x.type == F32 ? logical_or(eq(x, y), logical_and(is_nan(x), is_nan(y))) : eq(x, y);
}

static void position_identity(const reducer *r, val *state)
{
    state[0] = wants_largest(r) ? smallest(r->input) : largest(r->input);
    state[1] = imm64(NO_INDEX);
}

static void position_merge(val *into, const val *other, void *user)
{
    val better =
        logical_or(beats(user, other[0], into[0]), logical_and(ties(other[0], into[0]), lt(other[1], into[1])));
    val value = select(better, other[0], into[0]), index = select(better, other[1], into[1]);
    assign(into[0], value);
    assign(into[1], index);
}

/* First the extreme, then the first of the places that have it. */
static void position_over_lanes(val *state, int low, int high, void *user)
{
    const reduction extreme = { .count = 1, .combine = wants_largest(user) ? combine_max : combine_min };
    const reduction first = { .count = 1, .combine = combine_min };
    val best = variable(state[0].type, state[0]);
    lanes_reduce(&extreme, low, high, &best);
    assign(state[1], select(ties(state[0], best), state[1], imm64(NO_INDEX)));
    lanes_reduce(&first, low, high, &state[1]);
    assign(state[0], best);
}

/* The most extreme element, or NaN if there is one. */
static val extreme_of(const reducer *r, const val *x, int count)
{
    if (count == 1)
        return x[0];
    val lower = extreme_of(r, x, count / 2), upper = extreme_of(r, x + count / 2, count - count / 2);
    return wants_largest(r) ? larger(lower, upper, NULL) : smaller(lower, upper, NULL);
}

/* The distance of the first element of a batch that is the best one, or the first NaN. */
static val place_in_batch(const reduce_batch *batch, val best, bool of_nan)
{
    val place = imm((int)batch->distance[batch->size - 1]);
    for (int i = batch->size - 2; i >= 0; i--) {
        val here = of_nan ? is_nan(batch->x[i]) : eq(batch->x[i], best);
        place = select(here, imm((int)batch->distance[i]), place);
    }
    return place;
}

/*
 * A thread accumulates its batches in the order of the row, so most of many change nothing, and their places are not
 * looked at. Of few most do: NaN has a branch of its own, or each element would be compared twice.
 */
static void position_accumulate(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)pivot;
    val best = extreme_of(r, batch->x, batch->size);
    IF(logical_or(beats(r, best, state[0]), logical_and(ties(best, state[0]), lt(batch->first, state[1])))) {
        val place = variable(I32, place_in_batch(batch, best, false));
        if (r->input == F32)
            IF(is_nan(best))
                assign(place, place_in_batch(batch, best, true));
        val found[] = { best, add(batch->first, convert(I64, place)) };
        position_merge(state, found, (void *)r);
    }
}

static val position_finish(const reducer *r, const val *state, const reduce_values *p)
{
    (void)r;
    (void)p;
    return select(eq(state[1], imm64(NO_INDEX)), imm64(-1), state[1]);
}

static reducer position_of(ir_type input, bool of_largest)
{
    static int smallest_wanted;
    return (reducer){ .input = input,
                      .count = 2,
                      .types = { input, I64 },
                      .identity = position_identity,
                      .accumulate = position_accumulate,
                      .merge = position_merge,
                      .over_lanes = position_over_lanes,
                      .finish = position_finish,
                      .fold.user = of_largest ? NULL : &smallest_wanted };
}

/* The built-in ones */

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

/* False: the operation is none. */
static bool fold_of(int op, ir_type input, reduce_fold *fold)
{
    if (op >= COUNT_OF(folds) || !folds[op].combine)
        return false;
    *fold = folds[op];
    fold->input = input;
    fold->total = fold->total ? fold->total : input;
    return true;
}

static reducer norm_of(ckl_dtype dtype)
{
    static const reduce_fold squares = { .input = F32, .total = F32, .combine = plus, .finish = root };
    if (dtype != CKL_F16 && dtype != CKL_I32) // squares of others may be beyond f32
        return reduce_norm;
    reducer r = reducer_of_fold(&squares);
    r.accumulate = reduce_add_squares;
    return r;
}

/* What elements are converted to: floats to f32; summed integers to 64 bits, others to the output's type. */
static ir_type input_of(const reduce_kind *k)
{
    int op = k->op;
    bool adds = op == CKL_REDUCE_SUM || op == CKL_REDUCE_PROD || op == CKL_REDUCE_MEAN || op == CKL_REDUCE_NORM1 ||
                op == CKL_REDUCE_VAR || op == CKL_REDUCE_STD;
    if (dtype_is_float(k->dtype))
        return F32;
    return adds ? (k->output == I32 ? I32 : I64) : k->dtype;
}

reducer reducer_of(const reduce_kind *kind, bool compensated)
{
    const ckl_reduce_fold *custom = reduce_fold_find(kind->fold);
    if (custom)
        return custom_of(custom);
    ir_type input = input_of(kind);
    int op = kind->op;
    reduce_fold fold;
    if (fold_of(op, input, &fold)) {
        bool adds_floats = input == F32 && (op == CKL_REDUCE_SUM || op == CKL_REDUCE_MEAN || op == CKL_REDUCE_NORM1);
        return compensated && adds_floats ? compensated_of(&fold) : reducer_of_fold(&fold);
    }
    switch (op) {
    case CKL_REDUCE_NORM2:
        return norm_of(kind->dtype);
    case CKL_REDUCE_LOGSUMEXP:
        return reduce_logsumexp;
    case CKL_REDUCE_ARGMAX:
    case CKL_REDUCE_ARGMIN:
        return position_of(input, op == CKL_REDUCE_ARGMAX);
    default:
        return reduce_variance_of(input, dtype_bytes(kind->dtype) == 2, op == CKL_REDUCE_STD);
    }
}
