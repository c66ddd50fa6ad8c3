/* reduce_test.c - the definition of every operation, in double; reduce's cases and rejects. */
#include <math.h>

#include "base/dtype.h"
#include "operators/operators.h"
#include "operators/reduce/reduce_config.h"

/* One row of x: its elements in row-major order of the reduced axes. */
typedef struct row {
    const ckl_reduce_desc *d;
    const void *x;
    int64_t start, count;
} row;

/* Index in elements of number i among the axes of a set, row-major. */
static int64_t index_of(const ckl_reduce_desc *d, uint32_t axes, int64_t i)
{
    int64_t index = 0;
    for (int a = d->rank - 1; a >= 0; a--)
        if (axes >> a & 1) {
            index += i % d->shape[a] * d->stride[a];
            i /= d->shape[a];
        }
    return index;
}

static double element(const row *r, int64_t i)
{
    return dtype_read(r->d->dtype, r->x, r->start + index_of(r->d, r->d->axes, i));
}

static double sum(const row *r, double *magnitude)
{
    double total = 0;
    *magnitude = 0;
    for (int64_t i = 0; i < r->count; i++) {
        double x = element(r, i);
        total += x;
        *magnitude += fabs(x);
    }
    return total;
}

static double norm1(const row *r, double *magnitude)
{
    sum(r, magnitude);
    return *magnitude;
}

static double mean(const row *r, double *magnitude)
{
    double total = sum(r, magnitude);
    *magnitude /= (double)r->count;
    return total / (double)r->count;
}

static double variance(const row *r, double *magnitude)
{
    double unused, center = mean(r, &unused), total = 0;
    for (int64_t i = 0; i < r->count; i++)
        total += (element(r, i) - center) * (element(r, i) - center);
    return *magnitude = total / fmax((double)(r->count - r->d->correction), 0);
}

/* Squares below the smallest subnormal are lost: 2^-54 * 2^-20 is the root of 2^-148. */
static double deviation(const row *r, double *magnitude)
{
    double root = sqrt(variance(r, magnitude));
    *magnitude = root + 0x1p-54;
    return root;
}

static double norm2(const row *r, double *magnitude)
{
    double total = 0;
    for (int64_t i = 0; i < r->count; i++)
        total += element(r, i) * element(r, i);
    return *magnitude = sqrt(total);
}

/* Whether x comes before y, the best so far. */
static bool beats(const row *r, double x, double y)
{
    bool largest = r->d->op == CKL_REDUCE_MAX || r->d->op == CKL_REDUCE_ARGMAX;
    return isnan(x) ? !isnan(y) : (largest ? x > y : x < y);
}

static int64_t find_extreme(const row *r)
{
    int64_t best = r->count ? 0 : -1;
    for (int64_t i = 1; i < r->count; i++)
        if (beats(r, element(r, i), element(r, best)))
            best = i;
    return best;
}

static double position(const row *r, double *magnitude)
{
    *magnitude = 0;
    return (double)find_extreme(r);
}

static double extreme(const row *r, double *magnitude)
{
    int64_t best = find_extreme(r);
    double none = dtype_is_float(r->d->dtype) ? INFINITY : r->d->dtype == CKL_I32 ? INT32_MAX : (double)INT64_MAX;
    double below = dtype_is_float(r->d->dtype) ? -INFINITY : r->d->dtype == CKL_I32 ? INT32_MIN : (double)INT64_MIN;
    *magnitude = 0;
    return best >= 0 ? element(r, best) : r->d->op == CKL_REDUCE_MAX ? below : none;
}

/* Products of integers wrap. */
static double product(const row *r, double *magnitude)
{
    double total = 1;
    uint64_t wrapped = 1;
    for (int64_t i = 0; i < r->count; i++) {
        double x = element(r, i);
        total *= x;
        if (!dtype_is_float(r->d->dtype))
            wrapped *= (uint64_t)(int64_t)x;
    }
    if (!dtype_is_float(r->d->dtype))
        total = r->d->output == CKL_I32 ? (double)(int32_t)wrapped : (double)(int64_t)wrapped;
    *magnitude = fabs(total);
    return total;
}

/* The number of elements that are not 0. */
static int64_t count_true(const row *r)
{
    int64_t count = 0;
    for (int64_t i = 0; i < r->count; i++)
        count += element(r, i) != 0;
    return count;
}

static double any(const row *r, double *magnitude)
{
    *magnitude = 0;
    return count_true(r) > 0;
}

static double all(const row *r, double *magnitude)
{
    *magnitude = 0;
    return count_true(r) == r->count;
}

static double logsumexp(const row *r, double *magnitude)
{
    double most = -INFINITY, total = 0;
    for (int64_t i = 0; i < r->count; i++)
        most = isnan(element(r, i)) || isnan(most) ? NAN : fmax(most, element(r, i));
    *magnitude = 1 + fabs(most);
    if (!isfinite(most))
        return most;
    for (int64_t i = 0; i < r->count; i++)
        total += exp(element(r, i) - most);
    double result = most + log(total);
    *magnitude = 1 + fmax(fabs(most), fabs(result));
    return result;
}

/* The library's folds. Integers are rounded to f32 first. */
static double maxabs(const row *r, double *magnitude)
{
    double most = 0;
    for (int64_t i = 0; i < r->count; i++)
        most = isnan(most) || isnan(element(r, i)) ? NAN : fmax(most, fabs(element(r, i)));
    *magnitude = dtype_is_float(r->d->dtype) ? 0 : most;
    return most;
}

/* Squares below the smallest subnormal are lost: 2^-50 * 2^-23 is more than the root of 2^-149. */
static double rms(const row *r, double *magnitude)
{
    double mean_root = norm2(r, magnitude) / sqrt((double)r->count);
    *magnitude = mean_root + 0x1p-50;
    return mean_root;
}

typedef double (*definition)(const row *r, double *magnitude);

static const definition definitions[] = {
    [CKL_REDUCE_SUM] = sum,         [CKL_REDUCE_MAX] = extreme,
    [CKL_REDUCE_MIN] = extreme,     [CKL_REDUCE_PROD] = product,
    [CKL_REDUCE_MEAN] = mean,       [CKL_REDUCE_VAR] = variance,
    [CKL_REDUCE_STD] = deviation,   [CKL_REDUCE_ARGMAX] = position,
    [CKL_REDUCE_ARGMIN] = position, [CKL_REDUCE_ANY] = any,
    [CKL_REDUCE_ALL] = all,         [CKL_REDUCE_NORM1] = norm1,
    [CKL_REDUCE_NORM2] = norm2,     [CKL_REDUCE_LOGSUMEXP] = logsumexp,
};

static definition definition_of(const ckl_reduce_desc *d)
{
    if (!d->fold)
        return definitions[d->op];
    return strcmp(d->fold, "rms") == 0 ? rms : maxabs;
}

/* A slice is an element of y. */
static void reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_reduce_desc *d = problem;
    row r = { d, host[0], index_of(d, ~d->axes, out.slice), reduce_view_of(d).count };
    out.value[0] = definition_of(d)(&r, &out.magnitude[0]);
    if (!dtype_is_float(d->output)) // sums of integers are exact
        out.magnitude[0] = 0;
}

static bool is_spread(ckl_reduce_op op)
{
    return op == CKL_REDUCE_VAR || op == CKL_REDUCE_STD;
}

static int operands(const void *problem, operand *all)
{
    const reduce_problem *p = problem;
    all[0] = operand_along(all[0], p->desc.axes);
    if (is_spread(p->desc.op) || p->desc.op == CKL_REDUCE_NORM2 || p->desc.fold)
        all[0].hard_max = 0x1p60; // squares stay in f32
    if (p->offset != 0)
        all[0] = operand_range(all[0], p->offset - 1, p->offset + 1);
    else if (p->desc.op == CKL_REDUCE_PROD && dtype_is_float(p->desc.dtype)) // products of others overflow on the way
        all[0] = operand_range(all[0], -2, 2);
    return 0;
}

/* A variance has no error that grows with its length. */
static double terms(const void *problem)
{
    const ckl_reduce_desc *d = problem;
    return is_spread(d->op) ? 1 : (double)reduce_view_of(d).count;
}

/* Means and roots round twice where the output is half; exp and log are those of cute/math.h. */
static double approximation(const void *problem)
{
    const ckl_reduce_desc *d = problem;
    if (d->op == CKL_REDUCE_LOGSUMEXP)
        return 0x1p-20;
    if (is_spread(d->op))
        return 4e-6;
    return d->op == CKL_REDUCE_MEAN || d->op == CKL_REDUCE_NORM2 || d->fold ? 0x1p-23 : 0;
}

static const char *const cases[] = {
    "op=mean shape=3x1x20x8 axes=1 dtype=bf16 # along one element, whose stride does not matter",
    "op=sum shape=3x130 axes=1                                 # every operation over short rows",
    "op=max shape=3x130 axes=1 impl=rows",
    "op=min shape=3x130 axes=1 impl=rows",
    "op=prod shape=3x130 axes=1",
    "op=mean shape=3x130 axes=1 impl=rows",
    "op=var shape=3x130 axes=1",
    "op=std shape=3x130 axes=1 correction=1",
    "op=argmax shape=3x130 axes=1",
    "op=argmin shape=3x130 axes=1 impl=rows",
    "op=any shape=3x130 axes=1 impl=rows",
    "op=all shape=9x3 axes=1",
    "op=norm1 shape=3x130 axes=1 impl=rows",
    "op=norm2 shape=3x130 axes=1 impl=rows",
    "op=logsumexp shape=3x130 axes=1",
    "fold=maxabs shape=3x130 axes=1 dtype=bf16 output=f32    # folds by functions of a user's",
    "fold=rms shape=3x130 axes=1",
    "fold=maxabs shape=5x8195 axes=1 dtype=f16 fill=hard impl=rows",
    "fold=rms shape=3x9000 axes=1 dtype=i32 impl=rows config='split=3'",
    "fold=maxabs shape=301x123 axes=0 impl=columns config='split=2' fill=hard",
    "fold=rms shape=2x70x24 axes=1 dtype=bf16 impl=columns",
    "fold=maxabs shape=6x0 axes=1 fill=integers",
    "fold=rms shape=6x0 axes=1 fill=integers",
    "op=sum shape=70x24 axes=0 fill=integers                                 # and over columns",
    "op=max shape=70x24 axes=0 dtype=bf16 impl=columns",
    "op=var shape=70x24 axes=0 impl=columns",
    "op=argmin shape=70x24 axes=0 dtype=f16 impl=columns",
    "op=norm2 shape=70x24 axes=0 dtype=bf16 impl=columns",
    "op=norm2 shape=40x515 axes=1 dtype=f16 fill=hard # of squares that f32 holds",
    "op=norm2 shape=300x72 axes=0 dtype=i32 fill=hard",
    "op=logsumexp shape=70x24 axes=0 dtype=f16 output=f32 impl=columns",
    "op=var shape=150x1000 axes=1 dtype=f16 impl=rows # one tile a row, whose last step lanes lack",
    "op=argmax shape=301x299 axes=1 dtype=bf16 impl=rows # the same between boundaries",
    "op=sum shape=40x6x300 axes=0,2 dtype=bf16 impl=rows # of segments",
    "op=sum shape=13x600x16x16 axes=0,2,3 dtype=bf16 impl=rows # several side by side, not as many as threads",
    "op=argmax shape=33x9x63 axes=0,2 fill=integers impl=rows config='op=argmax output=i64 reduced=2 threads=128 "
    "row_threads=128 segments=8 vec=4 steps=2'                      # ragged ones",
    "op=var shape=6x40x64 axes=0,2 dtype=f16 impl=rows config='op=var dtype=f16 output=f16 reduced=2 threads=64 "
    "row_threads=32 split=1 segments=4 vec=8 steps=1'                       # of some lanes",
    "op=mean shape=7x3x11x45 axes=0,2,3 dtype=f16 impl=rows config='op=mean dtype=f16 output=f16 reduced=2 threads=128 "
    "row_threads=128 segments=4 vec=8 steps=2 split=3'                      # that CTAs share",
    "op=logsumexp shape=200x2040 axes=1 dtype=f16 impl=rows",
    "op=max shape=600x3072 axes=1 dtype=bf16 impl=rows # a CTA a row: whole tiles of fewer threads",
    "op=argmax shape=600x3061 axes=1 dtype=f16 impl=rows config='threads=128 row_threads=128 split=1 steps=3 "
    "one_tile=1' "
    "fill=hard # whose last step alone is guarded",
    "op=std shape=877x260 axes=0 dtype=bf16 impl=columns # columns that end within a tile",
    "op=mean shape=112x1x3072 axes=1 impl=columns # threads along one line",
    "op=sum shape=4x8 axes=1 dtype=f32                              # by every step of the ladder",
    "op=sum shape=8x4 axes=0 dtype=f32",
    "op=sum shape=33x128 axes=1 dtype=f32",
    "op=sum shape=5x1001 axes=1 dtype=f32",
    "op=sum shape=4x8 axes=1 dtype=f16",
    "op=sum shape=8x4 axes=0 dtype=f16",
    "op=sum shape=33x128 axes=1 dtype=f16",
    "op=sum shape=5x1001 axes=1 dtype=f16",
    "op=sum shape=4x8 axes=1 dtype=bf16",
    "op=sum shape=8x4 axes=0 dtype=bf16",
    "op=sum shape=33x128 axes=1 dtype=bf16",
    "op=sum shape=5x1001 axes=1 dtype=bf16",
    "op=sum shape=1 impl=rows                                    # from one element to a million",
    "op=sum shape=31 impl=rows",
    "op=sum shape=33 impl=rows",
    "op=sum shape=1000 impl=rows",
    "op=sum shape=10^6 impl=rows",
    "op=max shape=1 impl=rows",
    "op=max shape=31 impl=rows",
    "op=max shape=33 impl=rows",
    "op=max shape=1000 impl=rows",
    "op=max shape=10^5 impl=rows",
    "op=min shape=1 impl=rows",
    "op=min shape=31 impl=rows",
    "op=min shape=33 impl=rows",
    "op=min shape=1000 impl=rows",
    "op=min shape=10^5 impl=rows",
    "op=prod shape=1 impl=rows",
    "op=prod shape=31 impl=rows",
    "op=prod shape=33 impl=rows",
    "op=prod shape=1000 impl=rows",
    "op=prod shape=10^5 impl=rows",
    "op=mean shape=1 impl=rows",
    "op=mean shape=31 impl=rows",
    "op=mean shape=33 impl=rows",
    "op=mean shape=1000 impl=rows",
    "op=mean shape=10^5 impl=rows",
    "op=var shape=1 impl=rows",
    "op=var shape=31 impl=rows",
    "op=var shape=33 impl=rows",
    "op=var shape=1000 impl=rows",
    "op=var shape=300000 impl=rows",
    "op=sum shape=1 fill=integers                              # lengths",
    "op=max shape=31 fill=integers",
    "op=sum shape=33 dtype=bf16 fill=integers",
    "op=mean shape=1000 dtype=f16 impl=rows",
    "op=sum shape=2x9000 axes=1 dtype=bf16 impl=rows           # several CTAs a row",
    "op=var shape=3x9000 axes=1 dtype=f16 output=f32 impl=rows",
    "op=argmax shape=3x9001 axes=1 dtype=bf16 impl=rows",
    "op=var shape=20000 dtype=f32 impl=rows                    # the whole tensor",
    "op=sum shape=2^15+3 dtype=f32 impl=rows",
    "op=min shape=20000 dtype=i32 impl=rows fill=integers",
    "op=argmin shape=3x5000 axes=1 dtype=i64 impl=rows config='split=4'           # states of two numbers of 64 bits",
    "op=mean shape=3x16x1027 axes=1 impl=columns config='threads=256 lanes=256 vec=1 steps=16' # a thread each",
    "op=sum shape=2x37x515 axes=1 dtype=f16 impl=columns config='lanes=256 vec=1 steps=13 split=3'",
    "op=var shape=3x13x1027 axes=1 impl=columns config='threads=256 lanes=256 vec=1 steps=13' # of three words",
    "op=argmin shape=2x29x1027 axes=1 dtype=f16 impl=columns config='threads=256 lanes=256 vec=1 steps=15' fill=hard",
    "op=mean shape=5x70x196 axes=1 dtype=f16 # half vectors, which divide columns",
    "op=argmax shape=3000x8 axes=0 dtype=i64 impl=columns config='split=4'",
    "op=argmin shape=3000x8 axes=0 dtype=f16 impl=columns config='split=33' # between fences",
    "op=logsumexp shape=901x71 axes=0 impl=columns config='split=41 lanes=8' # more CTAs than the "
    "layers receive at once",
    "op=max shape=301x512 axes=0 dtype=bf16 impl=columns config='split=5 lanes=64' # fewer layers than columns of a "
    "lane",
    "op=sum shape=5x301x1000 axes=1 dtype=bf16 impl=columns config='lanes=32 split=3 prefetch=1'",
    "op=max shape=9x700 axes=0 dtype=f16 impl=columns config='overlap=2' # waits first",
    "op=sum shape=70x900 axes=1 impl=rows config='overlap=2'",
    "op=var shape=3x5000 axes=1 dtype=f16 impl=rows config='split=4'              # and of three",
    "op=sum shape=9000x8 axes=0 impl=columns                   # long columns",
    "op=var shape=2000x8 axes=0 dtype=bf16 impl=columns",
    "op=sum shape=64x2000 axes=0 impl=columns                  # short columns",
    "op=sum shape=7x1001 axes=1 dtype=f16 fill=integers        # rows that start anywhere",
    "op=var shape=7x1003 axes=1 misalign=1 fill=integers",
    "op=max shape=70x61 axes=0 misalign=1 dtype=bf16 fill=integers",
    "op=mean shape=5x1043 axes=0 dtype=bf16         # few lines of odd columns: a thread each",
    "op=var shape=7x2001 axes=0 dtype=f16 misalign=3",
    "op=argmax shape=2x3x1029 axes=1 fill=hard",
    "op=sum shape=9x64 axes=1 stride=71x1 fill=integers        # strided rows",
    "op=sum shape=24x32 axes=1 stride=1x32 fill=integers       # and columns by another name",
    "op=mean shape=9x40 axes=1 stride=100x2 fill=integers      # single elements",
    "op=sum shape=4x6x9x5 axes=0,2,3 fill=integers             # NCHW but C",
    "op=max shape=4x6x9x5 axes=1,3 dtype=f16 fill=integers",
    "op=argmax shape=4x6x9x5 axes=0,2 dtype=f16 fill=integers  # index among the reduced axes in their order",
    "op=argmax shape=6x5x70 stride=1x420x6 axes=0,2 dtype=f16 fill=integers # that of the axes, not of memory",
    "op=sum shape=6x5x70 stride=1x420x6 axes=0,2 dtype=f16 fill=integers    # and of sums that of memory: one mode",
    "op=var shape=3x4x5x6x7 axes=0,2,4 # three modes are reduced",
    "shape=3x4x5x6x7 axes=1,3          # and three kept",
    "op=sum shape=5x8x16 axes=1 fill=integers                  # stretches of columns",
    "op=sum shape=8x9x40 axes=0,1 dtype=i64 fill=integers",
    "op=sum shape=3x301x123 axes=1 dtype=bf16 fill=integers    # columns that start anywhere, in lines of any phase",
    "op=var shape=900x35 axes=0 misalign=1",
    "op=argmin shape=700x61 axes=0 dtype=f16 fill=hard",
    "op=logsumexp shape=3x77x523 axes=1 dtype=f16 misalign=3 impl=columns",
    "op=sum shape=300x50 axes=0 stride=53x1 dtype=f16          # with gaps between the lines",
    "op=mean shape=300x21 axes=0 stride=0x1 fill=integers      # and all lines the same",
    "op=sum shape=2x40x67 axes=1 stride=200x1x1 dtype=f16 misalign=3 fill=integers impl=columns",
    "op=max shape=3x97x123 axes=1 stride=12400x123x1 dtype=bf16 misalign=1 impl=columns config='split=2'",
    "op=sum shape=900x125 axes=0 impl=columns config='lanes=64 vec=2 steps=8 split=3' # ragged strips of some warps",
    "op=argmax shape=3x97x123 axes=1 dtype=bf16 misalign=1 impl=columns config='lanes=64 vec=4 split=2' fill=hard",
    "op=var shape=301x253 axes=0 misalign=3 impl=columns config='lanes=64 vec=4 steps=2'",
    "op=max shape=2x130x509 axes=1 dtype=f16 impl=columns config='lanes=128 vec=2 steps=3' fill=hard",
    "op=argmin shape=3x600x173 axes=1 dtype=f16 fill=hard # single elements, all on their way at once",
    "op=norm2 shape=1500x131 axes=0 dtype=bf16 impl=columns config='threads=512 vec=8 split=40' # in three rounds",
    "op=sum shape=3x75x509 axes=1 dtype=bf16 impl=columns config='threads=256 lanes=32 vec=8 steps=4' # last tile",
    "op=argmin shape=7x3x37x40 axes=0,2 dtype=bf16 impl=columns config='threads=128 lanes=8 vec=4 steps=8' fill=hard",
    "op=prod shape=7x20 axes=1 dtype=i32 fill=integers         # wraps",
    "op=sum shape=7x20 axes=1 dtype=i32 output=i32 fill=integers",
    "op=mean shape=7x20 axes=1 dtype=i64 fill=integers",
    "op=std shape=7x20 axes=1 dtype=i32 impl=rows",
    "op=norm1 shape=7x20 axes=1 dtype=i32 fill=integers",
    "op=argmin shape=50x20 axes=0 dtype=i64 fill=integers",
    "op=any shape=50x4 axes=1 dtype=i32 fill=integers",
    "op=all shape=3x50 axes=0 dtype=bf16",
    "op=var shape=8x1000 axes=1 offset=1000 fill=uniform # a mean far from 0",
    "op=var shape=500x16 axes=0 offset=1000 fill=uniform",
    "op=var shape=9000 offset=1000 fill=uniform impl=rows",
    "op=argmax shape=640x130 axes=1 fill=hard # one NaN, infinity or peak a row, at every place",
    "op=argmin shape=640x131 axes=1 dtype=bf16 impl=rows fill=hard",
    "op=max shape=320x1000 axes=1 dtype=f16 impl=rows fill=hard",
    "op=min shape=320x1001 axes=1 impl=rows fill=hard",
    "op=any shape=320x97 axes=1 dtype=i32 impl=rows fill=hard",
    "op=argmax shape=130x640 axes=0 dtype=f16 impl=columns fill=hard # and a column",
    "op=min shape=130x640 axes=0 impl=columns fill=hard",
    "op=max shape=64x9001 axes=1 dtype=bf16 impl=rows fill=hard # long rows",
    "op=argmax shape=64x9001 axes=1 impl=rows fill=hard",
    "op=sum shape=3x1001 axes=1 dtype=f16 stride=1008x1        # vectors in the pitch, none in the length",
    "op=sum shape=6x0 axes=1 fill=integers                     # empty rows",
    "op=max shape=6x0 axes=1 dtype=bf16 fill=integers",
    "op=min shape=6x0 axes=1 dtype=i32 fill=integers",
    "op=mean shape=6x0 axes=1 fill=integers",
    "op=var shape=0x6 axes=0 fill=integers",
    "op=argmax shape=0x6 axes=0 fill=integers",
    "op=all shape=6x0x4 axes=1 fill=integers",
    "op=logsumexp shape=6x0 axes=1 fill=integers",
    "op=sum shape=0x5 axes=1 fill=integers                     # nothing to do",
    "op=var shape=5x1 axes=1 correction=1 fill=integers        # 0 / 0",

    NULL,
};

static const char *const population[] = {
    "op={sum|max|mean|norm2|argmax|var} shape={length} dtype={f32|f16|bf16|i32}",
    "op={sum|sum|max|min|mean|var|std|argmax|norm2|logsumexp} shape={tokens}x{hidden} axes={0|1} dtype={f32|f16|bf16}",
    "op={argmax|logsumexp|max} shape={tokens}x{vocabulary} axes=1 dtype={f32|f16|bf16}",
    "op={sum|mean|var|max} shape={batch}x{channels}x{s:image}x{s} axes={2,3|0,2,3|1} dtype={f32|f16|bf16}",
    "op={sum|mean|max} shape={batch}x{sequence}x{hidden} axes={1|0,1} dtype={f32|f16|bf16}",
    NULL,
};

static const test_reject rejects[] = {
    { "shape=8 dtype=i8", CKL_INVALID, "reduce: dtype=i8 is none of f32, f16, bf16, i32, i64" },
    { "shape=8x-1", CKL_INVALID, "reduce: shape[1]=-1 is negative" },
    { "shape=8x8 axes=2", CKL_INVALID, "reduce: axes=2: axis 2 is out of range for rank 2" },
    { "shape=8y8", CKL_INVALID, "reduce: shape=8y8 is not up to 5 sizes" },
    { "shape=2^70", CKL_INVALID, "reduce: shape=2^70 is not up to 5 sizes" },
    { "shape=2x2x2x2x2x2", CKL_INVALID, "reduce: shape=2x2x2x2x2x2 is not up to 5 sizes" },
    { "shape=8x8 stride=8", CKL_INVALID, "reduce: stride=8 is not a list of 2 integers" },
    { "shape=8x8 stride=-8x1", CKL_INVALID, "reduce: stride[0]=-8 is negative" },
    { "op=argmax shape=8 output=f32", CKL_INVALID, "reduce: output=f32 does not take the argmax of f32; i64 does" },
    { "op=sum shape=8 dtype=f16 output=bf16", CKL_INVALID, "reduce: output=bf16 does not take the sum of f16" },
    { "fold=cubes shape=8", CKL_INVALID, "reduce: fold=cubes is not known; ckl_reduce_fold_add() makes it so" },
    { "fold=rms op=max shape=8", CKL_INVALID, "reduce: fold=rms goes in the place of op=max" },
    { "fold=rms shape=8 dtype=i32 output=i32", CKL_INVALID,
      "reduce: output=i32 does not take the rms of i32; f32 does" },
    { "fold=rms shape=8 correction=1", CKL_INVALID, "reduce: correction=1 is for var and std" },
    { "op=sum shape=8 correction=1", CKL_INVALID, "reduce: correction=1 is for var and std" },
    { "op=var shape=8 correction=-1", CKL_INVALID, "reduce: correction=-1 is negative" },
    { "shape=2^40x2^40", CKL_INVALID, "reduce: x of 1099511627776x1099511627776 elements, strides" },
    { "shape=64x64 axes=1 impl=rows config='threads=96'", CKL_INVALID,
      "reduce rows: threads=96 must be a power of two" },
    { "shape=64x64 axes=1 impl=rows config='vec=8'", CKL_INVALID,
      "reduce rows: vec=8 must be a power of two of at most" },
    { "shape=64x64 axes=1 impl=rows config='row_threads=64'", CKL_INVALID,
      "reduce rows: row_threads=64 must be a power of two up to 32, or threads=" },
    { "shape=64x64 axes=1 impl=rows config='segments=2'", CKL_INVALID,
      "reduce rows: segments=2 is no power of two up to row_threads=" },
    { "shape=64x64 axes=1 impl=rows config='overlap=3'", CKL_INVALID, "reduce rows: overlap=3 is not in 0..2" },
    { "shape=64x64 axes=0 impl=columns config='overlap=-1'", CKL_INVALID, "reduce columns: overlap=-1 is not in 0..2" },
    { "shape=2^20 impl=rows config='split=0'", CKL_INVALID, "reduce rows: split=0 is not positive" },
    { "shape=2^20 impl=rows config='steps=32'", CKL_INVALID, "reduce rows: steps=32 is not in 1..16" },
    { "shape=8x8 axes=1,x", CKL_INVALID, "reduce: axes=1,x is not up to 5 sizes" },
    { "shape=2^19 impl=naive", CKL_UNSUPPORTED, "reduce naive: rows of 524288 elements are too long" },
    { "shape=64x64 axes=1 impl=columns", CKL_UNSUPPORTED, "reduce columns: neighbouring results" },
    { "shape=64x64 axes=0 impl=columns config='lanes=32 split=2^20'", CKL_UNSUPPORTED,
      "reduce columns: split=1048576: one strip's states are beyond 32-bit offsets" },
    { NULL, CKL_OK, NULL },
};

OPERATOR_TEST(reduce, .operands = operands, .reference = reference, .terms_of = terms,
              .approximation_of = approximation, .flops_each = 1);
