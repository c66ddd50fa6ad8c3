/* fill.c - values computed from (seed, operand, element), so that elements can be made in any order. */
#include "lab/fill.h"

#include <math.h>

#include "base/dtype.h"
#include "lab/random.h"

enum {
    RUN_LENGTH = 64,       // elements of a hard run where the operand is a single row
    INDEX_MAX = 8,         // |x| of integer dtypes that state no range
    INTEGER_MAX = 2,       // |x| of FILL_INTEGERS: products of three stay below 2^4
    CHUNK_ELEMENTS = 4096, // of a row: what one thread fills at a time
    SUM_EXACT = 1 << 22    // sums of so many nonzero terms up to 4 are exact in the 24 bits of f32
};

/* What one element is made from. */
typedef struct source {
    uint64_t stream; // of this operand
    double low, high;
    bool stated;      // the operand states its range: no value may leave it
    bool integer;     // of the dtype
    int64_t sparsity; // FILL_INTEGERS: one element in so many is not zero
    bool single_row;
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
    double low = s->stated ? fmax(ceil(s->low), -INTEGER_MAX) : -INTEGER_MAX;
    double high = s->stated ? fmin(floor(s->high), INTEGER_MAX) : INTEGER_MAX;
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

/*
 * A hard run is a row of the operand, or RUN_LENGTH elements of a single row. Half of them are ordinary; the others hold a
 * large offset (cancellation), ties, zeros of both signs, numbers near the smallest of f32 and f16, or one element that is
 * infinite or NaN. At most one in eight is not finite, so that sums over rows stay worth comparing.
 */
static double hard(const source *s, int64_t row, int64_t column, uint64_t random)
{
    int64_t run = s->single_row ? column / RUN_LENGTH : row;
    uint64_t kind = random_at(~s->stream, (uint64_t)run);
    double x = uniform(s, row, column, random);
    if (s->stated)
        return x;
    bool chosen = (s->single_row ? column % RUN_LENGTH : column) == (int64_t)(kind >> 8 & 15);
    switch (kind & 31) {
    case 0:
    case 1:
        return x + 1000;
    case 2:
        return x - 1000;
    case 3:
    case 4:
        return x < 0 ? -0.5 : 1;
    case 5:
        return x < 0 ? -0.0 : 0;
    case 6:
        return x * 0x1p-16; // subnormal in f16
    case 7:
        return x * 0x1p-126;
    case 8:
    case 9:
        return chosen ? INFINITY : x;
    case 10:
        return chosen ? -INFINITY : x;
    case 11:
        return chosen ? NAN : x;
    default:
        return x;
    }
}

typedef double (*fill_function)(const source *s, int64_t row, int64_t column, uint64_t random);

static const fill_function fills[] = {
    [FILL_INTEGERS] = integers, [FILL_UNIFORM] = uniform, [FILL_NORMAL] = normal, [FILL_HARD] = hard
};

/* An integer of the operand's range: indices and lengths are never out of it, however inputs are filled. */
static double index_value(const source *s, uint64_t random)
{
    return s->low + floor(unit(random) * (s->high - s->low + 1));
}

static source source_of(const operand_image *o, int number, uint64_t seed, double terms)
{
    const operand *info = &o->info;
    source s = { .stream = random_at(seed, (uint64_t)number), .low = (double)info->low, .high = (double)info->high };
    s.stated = s.low != 0 || s.high != 0;
    s.integer = !dtype_is_float(info->dtype);
    if (!s.stated) {
        s.high = s.integer && info->dtype != CKL_BOOL ? INDEX_MAX : 1;
        s.low = info->dtype == CKL_U8 || info->dtype == CKL_BOOL ? 0 : -s.high;
    }
    s.sparsity = max_i64(1, (int64_t)(terms / SUM_EXACT));
    s.single_row = o->rows == 1;
    return s;
}

void fill_operand(const operand_image *o, int number, operand_fill how, uint64_t seed, double terms)
{
    const source s = source_of(o, number, seed, terms);
    const int64_t chunks = ceil_div(o->columns, CHUNK_ELEMENTS), step = o->info.stride[o->info.rank - 1];
    void *array = o->image + o->start;
    bool broadcast = false; // elements share memory, and the last one written must always be the same
    for (int i = 0; i < o->info.rank; i++)
        broadcast |= o->info.stride[i] == 0 && o->info.shape[i] > 1;
#pragma omp parallel for schedule(static) if (!broadcast)
    for (int64_t work = 0; work < o->rows * chunks; work++) {
        int64_t row = work / chunks, first = work % chunks * CHUNK_ELEMENTS, start = operand_row_start(o, row);
        for (int64_t column = first; column < min_i64(first + CHUNK_ELEMENTS, o->columns); column++) {
            uint64_t random = random_at(s.stream, (uint64_t)(row * o->columns + column));
            double x = s.integer ? index_value(&s, random) : fills[how](&s, row, column, random);
            dtype_write(o->info.dtype, array, start + column * step, x);
        }
    }
}
