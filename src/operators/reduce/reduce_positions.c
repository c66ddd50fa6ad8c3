/* reduce_positions.c - where the largest or the smallest element is. */
#include "operators/reduce/reduce_ops.h"

enum { NO_INDEX_BITS = 62 };

static const int64_t NO_INDEX = (int64_t)1 << NO_INDEX_BITS; // above any index: the index of no element

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

static void position_start(const reducer *r, val *state)
{
    state[0] = wants_largest(r) ? reduce_smallest(r->input) : reduce_largest(r->input);
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

/* The most extreme element, or NaN if there is one. */
static val extreme_of(const reducer *r, const val *x, int count)
{
    if (count == 1)
        return x[0];
    val lower = extreme_of(r, x, count / 2), upper = extreme_of(r, x + count / 2, count - count / 2);
    if (r->input == F32)
        return wants_largest(r) ? max_nan(lower, upper) : min_nan(lower, upper);
    return wants_largest(r) ? max(lower, upper) : min(lower, upper);
}

/*
 * A thread takes its batches in the order of the row, so that most of them bring nothing new: their places are not even
 * looked at.
 */
static void position_take(const reducer *r, const reduce_batch *batch, val pivot, val *state)
{
    (void)pivot;
    val best = extreme_of(r, batch->x, batch->size);
    IF(logical_or(beats(r, best, state[0]), logical_and(ties(best, state[0]), lt(batch->first, state[1])))) {
        val place = imm((int)batch->distance[batch->size - 1]); // of the first element equal to the best
        for (int i = batch->size - 2; i >= 0; i--)
            place = select(ties(batch->x[i], best), imm((int)batch->distance[i]), place);
        val found[] = { best, add(batch->first, convert(I64, place)) };
        position_merge(state, found, (void *)r);
    }
}

static val position_finish(const reducer *r, const val *state, const reduce_row *row)
{
    (void)r;
    (void)row;
    return select(eq(state[1], imm64(NO_INDEX)), imm64(-1), state[1]);
}

reducer reduce_position_of(ir_type input, bool of_largest)
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
