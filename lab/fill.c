/* fill.c - values are functions of (seed, operand, element), so elements can be made in any order. */
#include "lab/fill.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "base/math.h"
#include "base/random.h"

enum {
    INDEX_MAX = 8,         // |x| of integer dtypes that state no range
    INTEGER_MAX = 2,       // |x| of FILL_INTEGERS: products of three stay below 2^4
    PLAIN = 7,             // of the hard kinds: the one that changes nothing
    CHUNK_ELEMENTS = 4096, // of a row: what one thread fills at a time
    WINDOWS_ELEMENTS = 1 << 20,
    SUM_EXACT = 1 << 22 // sums of so many nonzero terms up to 4 are exact in the 24 bits of f32
};

static const double HARD_OFFSET = 1000;

/* What one element is made from. */
typedef struct source {
    const operand *operand;
    uint64_t stream; // of this operand
    double low, high;
    bool ranged;      // no value may leave low..high
    bool integer;     // of the dtype
    int64_t sparsity; // FILL_INTEGERS: one element in this many is not zero

    double most;   // the largest hard number
    int64_t shift; // the kind of the first hard line
    int64_t period;
} source;

/* In [0, 1). */
static double unit(uint64_t random)
{
    return (double)(random >> 11) * 0x1p-53;
}

static double uniform(const source *s, int64_t row, int64_t column, uint64_t random)
{
    (void)row;
    (void)column;
    return s->low + unit(random) * (s->high - s->low);
}

static double integers(const source *s, int64_t row, int64_t column, uint64_t random)
{
    (void)row;
    (void)column;
    double low = s->ranged ? fmax(ceil(s->low), -INTEGER_MAX) : -INTEGER_MAX;
    double high = s->ranged ? fmin(floor(s->high), INTEGER_MAX) : INTEGER_MAX;
    if ((int64_t)(random >> 40) % s->sparsity)
        return fmax(low, 0);
    return low + floor((double)(random & 0xffffffff) * 0x1p-32 * (high - low + 1));
}

/* Box and Muller's transformation. */
static double normal(const source *s, int64_t row, int64_t column, uint64_t random)
{
    (void)row;
    (void)column;
    double radius = sqrt(-2 * log(1 - unit(random)));
    double z = radius * cos(6.283185307179586 * unit(random_at(s->stream, random)));
    double middle = (s->low + s->high) / 2, deviation = (s->high - s->low) / 2;
    return middle + deviation * z;
}

/* An integer of the operand's range: indices and lengths never leave it, however inputs are filled. */
static double index_value(const source *s, uint64_t random)
{
    return s->low + floor(unit(random) * (s->high - s->low + 1));
}

/* Distinct index i: a permutation of the range, as a prime larger than the range has no common factor with it. */
static double distinct_index(const source *s, int64_t i)
{
    const uint64_t prime = 2654435761, count = (uint64_t)(s->high - s->low) + 1;
    return s->low + (double)(((uint64_t)i % count * prime + s->stream % count) % count);
}

/*
 * Element i of `count` that rise to `total` in steps of at most high: evenly, plus a random distance that keeps all
 * steps in their range. Half of the distances are extreme, so that the smallest and largest steps occur, too.
 */
static double rising_value(const source *s, int64_t i, int64_t count, int64_t total)
{
    const int64_t steps = max_i64(1, count - 1), most = (int64_t)s->high;
    const int64_t room = max_i64(0, min_i64(total / steps, most - ceil_div(total, steps)));
    const uint64_t random = random_at(s->stream, (uint64_t)i);
    const int64_t within = random & 1 ? (int64_t)(unit(random) * (double)(room + 1)) : random & 2 ? room : 0;
    return (double)(i * total / steps + (i == 0 || i == count - 1 ? 0 : within));
}

/* Hard inputs: how a random number is changed. */
typedef enum change {
    KEPT,
    FAR_ABOVE,
    FAR_BELOW,
    TIE,
    ZERO,
    SUBNORMAL_F16,
    SUBNORMAL_F32,
    NOT_A_NUMBER,
    INFINITE,
    MINUS_INFINITE,
    LARGEST,
    LEAST
} change;

static double changed(change how, const source *s, double x)
{
    const double offset = fmin(HARD_OFFSET, s->most);
    const double results[] = {
        [KEPT] = x,
        [FAR_ABOVE] = x + offset,
        [FAR_BELOW] = x - offset,
        [TIE] = x < 0 ? -0.5 : 1,
        [ZERO] = x < 0 ? -0.0 : 0,
        [SUBNORMAL_F16] = x * 0x1p-16,
        [SUBNORMAL_F32] = x * 0x1p-126,
        [NOT_A_NUMBER] = NAN,
        [INFINITE] = INFINITY,
        [MINUS_INFINITE] = -INFINITY,
        [LARGEST] = s->most,
        [LEAST] = -s->most,
    };
    return results[how];
}

/* One kind of line: all of its elements are changed, or a single one of them. */
static const struct hard_kind {
    change how;
    bool single;
} hard_kinds[] = {
    { NOT_A_NUMBER, true },   { FAR_ABOVE, false },     { FAR_ABOVE, true }, { TIE, false },
    { INFINITE, true },       { SUBNORMAL_F16, false }, { FAR_BELOW, true }, { KEPT, false },
    { LARGEST, true },        { FAR_BELOW, false },     { ZERO, false },     { MINUS_INFINITE, true },
    { SUBNORMAL_F32, false }, { LEAST, true },          { FAR_ABOVE, true }, { NOT_A_NUMBER, true },
};

/*
 * Periods of kinds for single elements, plain ones at the end: primes, so that two operands meet in every pair of
 * kinds.
 */
static const int64_t periods_alone[] = { 23, 29, 31, 37 };

/* Columns first .. end - 1 of a row. */
typedef struct chunk {
    int64_t first, end;
} chunk;

/* On which line an element is, and where there. */
typedef struct place {
    int64_t line, at, length;
} place;

static place place_of(const operand *o, int64_t row, int64_t column)
{
    place p = { .length = 1 };
    int64_t lines = 1, rest = row;
    for (int d = o->rank - 1; d >= 0; d--) {
        int64_t i = d == o->rank - 1 ? column : rest % o->shape[d];
        rest /= d == o->rank - 1 ? 1 : o->shape[d];
        if (o->along >> d & 1) {
            p.at += i * p.length;
            p.length *= o->shape[d];
        } else {
            p.line += i * lines;
            lines *= o->shape[d];
        }
    }
    return p;
}

/* The place of the single hard element in a kind's turn: back from the end, or by the golden ratio. */
static int64_t single_place(const source *s, int64_t turn, int64_t kind, int64_t length)
{
    if ((turn + kind) % 2)
        return length - 1 - turn / 2 % length;
    double fraction = (double)(turn / 2) * 0.6180339887498949 + unit(random_at(~s->stream, (uint64_t)kind));
    return (int64_t)((fraction - floor(fraction)) * (double)length);
}

static double hard(const source *s, int64_t row, int64_t column, uint64_t random)
{
    double x = s->integer ? index_value(s, random) : uniform(s, row, column, random);
    if (s->ranged)
        return x;
    place p = place_of(s->operand, row, column);
    int64_t kind = (p.line + s->shift) % s->period;
    const struct hard_kind *k = &hard_kinds[kind < COUNT_OF(hard_kinds) ? kind : PLAIN];
    if (k->single && p.at != single_place(s, p.line / s->period, kind, p.length))
        return x;
    double y = changed(k->how, s, x);
    return s->integer ? fmin(fmax(rint(y), -HARD_OFFSET), HARD_OFFSET) : y; // NaN becomes the lower end
}

typedef double (*fill_function)(const source *s, int64_t row, int64_t column, uint64_t random);

static const fill_function fills[] = {
    [FILL_INTEGERS] = integers, [FILL_UNIFORM] = uniform, [FILL_NORMAL] = normal, [FILL_HARD] = hard
};

static source source_of(const operand_image *o, int number, uint64_t seed, double terms)
{
    const operand *info = &o->info;
    source s = { .operand = info, .stream = random_at(seed, (uint64_t)number), .low = info->low, .high = info->high };
    s.ranged = info->ranged || info->dtype == CKL_BOOL;
    s.integer = !dtype_is_float(info->dtype);
    if (!info->ranged) {
        s.high = s.integer && info->dtype != CKL_BOOL ? INDEX_MAX : 1;
        s.low = info->dtype == CKL_U8 || info->dtype == CKL_BOOL ? 0 : -s.high;
    }
    s.sparsity = max_i64(1, (int64_t)(terms / SUM_EXACT));
    s.most = info->hard_max > 0 ? fmin(info->hard_max, dtype_max(info->dtype)) : dtype_max(info->dtype);
    s.shift = (int64_t)(random_at(s.stream, (uint64_t)(o->rows * o->columns)) >> 32); // so problems of few lines differ
    s.period = info->along ? COUNT_OF(hard_kinds) : periods_alone[number % COUNT_OF(periods_alone)];
    return s;
}

/* One element; row and column matter to hard, distinct and rising inputs. */
static double value_of(const operand_image *o, const source *s, operand_fill how, int64_t row, int64_t column,
                       uint64_t random)
{
    if (o->info.distinct)
        return distinct_index(s, row * o->columns + column);
    if (o->info.given)
        return (double)o->info.given[column];
    if (o->info.rising)
        return rising_value(s, column, o->columns, o->info.rising);
    return s->integer && how != FILL_HARD ? index_value(s, random) : fills[how](s, row, column, random);
}

static void fill_chunk(const operand_image *o, const source *s, operand_fill how, int64_t row, chunk columns)
{
    int64_t start = operand_row_start(o, row), step = o->info.stride[o->info.rank - 1];
    for (int64_t column = columns.first; column < columns.end; column++) {
        uint64_t random = random_at(s->stream, (uint64_t)(row * o->columns + column));
        dtype_write(o->info.dtype, o->image + o->start, start + column * step,
                    value_of(o, s, how, row, column, random));
    }
}

/* Random elements for a large operand, whose chunks are windows of these at random places. */
static unsigned char *make_windows(const operand_image *o, const source *s, operand_fill how)
{
    unsigned char *made = heap_alloc(WINDOWS_ELEMENTS, ckl_dtype_bytes(o->info.dtype));
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < WINDOWS_ELEMENTS; i++)
        dtype_write(o->info.dtype, made, i, value_of(o, s, how, 0, i, random_at(s->stream, (uint64_t)i)));
    return made;
}

static void copy_window(const operand_image *o, const source *s, const unsigned char *windows, int64_t row,
                        chunk columns)
{
    size_t element = ckl_dtype_bytes(o->info.dtype);
    uint64_t random = random_at(~s->stream, (uint64_t)(row * o->columns + columns.first));
    int64_t window = (int64_t)(random % (WINDOWS_ELEMENTS - CHUNK_ELEMENTS + 1));
    memcpy(o->image + operand_byte(o, row, columns.first), windows + (size_t)window * element,
           (size_t)(columns.end - columns.first) * element);
}

void fill_operand(const operand_image *o, int number, operand_fill how, uint64_t seed, double terms)
{
    const source s = source_of(o, number, seed, terms);
    const int64_t chunks = ceil_div(o->columns, CHUNK_ELEMENTS);
    bool large = o->rows * o->columns > 4 * WINDOWS_ELEMENTS, along_memory = o->info.stride[o->info.rank - 1] == 1;
    unsigned char *windows = large && along_memory && how != FILL_HARD && !o->info.distinct && !o->info.rising
                                 ? make_windows(o, &s, how)
                                 : NULL;
    bool broadcast = false; // elements share memory, and the last one written must always be the same
    for (int i = 0; i < o->info.rank; i++)
        broadcast |= o->info.stride[i] == 0 && o->info.shape[i] > 1;
#pragma omp parallel for schedule(static) if (!broadcast)
    for (int64_t work = 0; work < o->rows * chunks; work++) {
        int64_t row = work / chunks, first = work % chunks * CHUNK_ELEMENTS;
        chunk columns = { first, min_i64(first + CHUNK_ELEMENTS, o->columns) };
        if (windows)
            copy_window(o, &s, windows, row, columns);
        else
            fill_chunk(o, &s, how, row, columns);
    }
    heap_free(windows);
}
