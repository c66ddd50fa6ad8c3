/* statistics.h - a sample of times in numbers: median, quantiles, and the uncertainty of the median. */
#pragma once

typedef struct summary {
    double median, p20, p80; // in the unit of the samples
    double half_width;       // of the median's 95 % interval, relative to the median; 1 if there are too few samples
    int n;
} summary;

/* Sorts the samples in place. n may be 0. */
summary summarize(double *samples, int n);

/* Of positive values; 0 if there are none. */
double geometric_mean(const double *values, int n);

/* What positive values come to; 0 if there are none. */
typedef struct spread {
    double mean; // geometric
    double low;  // 5th percentile
    double least;
    int n;
} spread;

/* Sorts the values in place. */
spread spread_of(double *values, int n);
