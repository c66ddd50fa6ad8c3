/* statistics.c - order statistics: no assumption about how times are distributed. */
#include "bench/statistics.h"

#include <math.h>
#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value at a share 0..1 of sorted samples, linear between neighbours; n > 0. */
static double quantile(const double *sorted, int n, double share)
{
    double place = share * (n - 1);
    int below = (int)place;
    if (below + 1 >= n)
        return sorted[n - 1];
    return sorted[below] + (place - below) * (sorted[below + 1] - sorted[below]);
}

/*
 * The samples ranked n/2 -+ 1.96 sqrt(n)/2 enclose the median in 95 of 100 cases: the number of samples below it is
 * binomial (Conover, Practical Nonparametric Statistics, 1999, section 3.2).
 */
static double half_width(const double *sorted, int n, double median)
{
    double reach = 1.96 * sqrt(n) / 2;
    int low = (int)floor(n / 2.0 - reach), high = (int)ceil(n / 2.0 + reach);
    if (low < 0 || high >= n || median <= 0)
        return 1;
    return (sorted[high] - sorted[low]) / 2 / median;
}

summary summarize(double *samples, int n)
{
    if (n == 0)
        return (summary){ .half_width = 1 };
    qsort(samples, (size_t)n, sizeof *samples, ascending);
    double median = quantile(samples, n, 0.5);
    return (summary){ .median = median,
                      .p20 = quantile(samples, n, 0.2),
                      .p80 = quantile(samples, n, 0.8),
                      .half_width = half_width(samples, n, median),
                      .n = n };
}

double geometric_mean(const double *values, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += log(values[i]);
    return n ? exp(sum / n) : 0;
}

spread spread_of(double *values, int n)
{
    if (n == 0)
        return (spread){ 0 };
    qsort(values, (size_t)n, sizeof *values, ascending);
    return (spread){ .mean = geometric_mean(values, n), .low = quantile(values, n, 0.05), .least = values[0], .n = n };
}
