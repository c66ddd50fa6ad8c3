/* reduce_folds.c - reductions of one value, and sums that carry their rounding errors along. */
#include "operators/reduce/reduce_ops.h"

val reduce_smallest(ir_type type)
{
    return type == F32 ? immf(-INFINITY) : imm_as(type, type == I32 ? INT32_MIN : INT64_MIN);
}

val reduce_largest(ir_type type)
{
    return type == F32 ? immf(INFINITY) : imm_as(type, type == I32 ? INT32_MAX : INT64_MAX);
}

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
               : isinf(start) ? (start < 0 ? reduce_smallest(type) : reduce_largest(type))
                              : imm_as(type, (int64_t)start);
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
    return a.type == F32 ? max_nan(a, b) : max(a, b);
}

static val smaller(val a, val b, void *user)
{
    (void)user;
    return a.type == F32 ? min_nan(a, b) : min(a, b);
}

static val is_true(val x, void *user)
{
    (void)user;
    return select(ne(x, imm(0)), imm(1), imm(0));
}

static val or (val a, val b, void *user)
{
    (void)user;
    return bit_or(a, b);
}

static val and (val a, val b, void *user)
{
    (void)user;
    return bit_and(a, b);
}

static val absolute(val x, void *user)
{
    (void)user;
    return abs(x);
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

static reduce_combine *ready_of(const reduce_fold *fold)
{
    if (fold->combine == plus)
        return combine_sum;
    if (fold->total != F32)
        return NULL;
    return fold->combine == larger ? combine_max : fold->combine == smaller ? combine_min : NULL;
}

reducer reducer_of_fold(const reduce_fold *fold)
{
    return (reducer){ .input = fold->input,
                      .count = 1,
                      .types = { fold->total },
                      .start = fold_start,
                      .take = fold_take,
                      .merge = fold_merge,
                      .ready = ready_of(fold),
                      .finish = fold_finish,
                      .fold = *fold };
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

reducer reduce_compensated(const reduce_fold *fold)
{
    reducer r = reducer_of_fold(fold);
    r.count = 2;
    r.types[1] = F32;
    r.start = compensated_start;
    r.take = compensated_take;
    r.merge = compensated_merge;
    r.ready = NULL;
    r.finish = compensated_finish;
    return r;
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

bool reduce_fold_of(int op, ir_type input, reduce_fold *fold)
{
    if (op >= COUNT_OF(folds) || !folds[op].combine)
        return false;
    *fold = folds[op];
    fold->input = input;
    fold->total = fold->total ? fold->total : input;
    return true;
}
