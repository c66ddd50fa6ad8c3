/* reduce_ref.c - the definition of every operation, in double. */
#include "operators/reduce/reduce_lab.h"

#include <math.h>

#include "base/dtype.h"
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

/* A slice is an element of y. */
void reduce_reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_reduce_desc *d = problem;
    row r = { d, host[0], index_of(d, ~d->axes, out.slice), reduce_view_of(d).count };
    out.value[0] = definitions[d->op](&r, &out.magnitude[0]);
    if (!dtype_is_float(d->output)) // sums of integers are exact
        out.magnitude[0] = 0;
}
