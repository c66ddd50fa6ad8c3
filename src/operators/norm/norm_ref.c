/* norm_ref.c - the definition of layer norm and RMS norm, in double. */
#include <math.h>

#include "base/dtype.h"
#include "cutekernellib/operators/norm.h"
#include "operators/norm/norm_lab.h"

typedef struct statistics {
    double mean, rstd;
    double deviation; // mean of |h - mean|: the scale of the mean's error
} statistics;

/* What is normalised: x, or x + residual as it is rounded to sum. */
static double normalised(const norm_problem *p, void *const *host, int64_t row, int64_t column)
{
    int64_t i = row * p->ld_in + column;
    double x = dtype_read(p->dtype, host[FORWARD_X], i), rounded = 0;
    if (!p->residual)
        return x;
    dtype_write(p->dtype, &rounded, 0, (float)x + (float)dtype_read(p->dtype, host[FORWARD_RESIDUAL], i));
    return dtype_read(p->dtype, &rounded, 0);
}

static statistics statistics_of(const norm_problem *p, void *const *host, int64_t row)
{
    double n = (double)p->cols;
    statistics s = { 0 };
    for (int64_t c = 0; c < p->cols; c++)
        s.mean += p->centred ? normalised(p, host, row, c) : 0;
    s.mean /= n;
    double squares = 0, differences = 0;
    for (int64_t c = 0; c < p->cols; c++) {
        double x = normalised(p, host, row, c) - s.mean;
        squares += x * x;
        differences += x;
        s.deviation += p->centred ? fabs(x) / n : 0;
    }
    s.mean += p->centred ? differences / n : 0; // of a row with an infinity: NaN
    s.rstd = 1 / sqrt(squares / n + p->eps);
    return s;
}

static void forward(const norm_problem *p, void *const *host, int output, int64_t row, reference_slice out)
{
    statistics s = statistics_of(p, host, row);
    if (output == OUTPUT_MEAN || output == OUTPUT_RSTD) {
        out.value[0] = output == OUTPUT_MEAN ? s.mean : s.rstd;
        out.magnitude[0] = output == OUTPUT_MEAN ? fabs(s.mean) + s.deviation : s.rstd;
        return;
    }
    for (int64_t c = 0; c < p->cols; c++) {
        double h = normalised(p, host, row, c);
        double scale = p->affine ? s.rstd * dtype_read(p->dtype, host[FORWARD_GAMMA], c) : s.rstd;
        double beta = p->affine && p->centred ? dtype_read(p->dtype, host[FORWARD_BETA], c) : 0;
        bool sum = output == OUTPUT_SUM;
        out.value[c] = sum ? h : (h - s.mean) * scale + beta;
        out.magnitude[c] = sum ? fabs(h) : (fabs(h - s.mean) + s.deviation) * fabs(scale) + fabs(beta);
    }
}

/* One element of the backward pass. */
typedef struct element {
    double dy, g;
    double n, n_magnitude; // the normalised x, and the sum of its terms
} element;

static element element_at(const norm_problem *p, void *const *host, int64_t row, int64_t column)
{
    double mean = p->centred ? dtype_read(CKL_F32, host[BACKWARD_MEAN], row) : 0;
    double rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], row);
    double x = dtype_read(p->dtype, host[BACKWARD_X], row * p->ld_in + column);
    double dy = dtype_read(p->dtype, host[BACKWARD_DY], row * p->ld_in + column);
    double gamma = p->affine ? dtype_read(p->dtype, host[BACKWARD_GAMMA], column) : 1;
    return (element){ dy, dy * gamma, (x - mean) * rstd, (fabs(x) + fabs(mean)) * fabs(rstd) };
}

static void backward_row(const norm_problem *p, void *const *host, int64_t row, reference_slice out)
{
    double rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], row), cols = (double)p->cols;
    double gn = 0, g = 0, gn_magnitude = 0, g_magnitude = 0;
    for (int64_t c = 0; c < p->cols; c++) {
        element e = element_at(p, host, row, c);
        gn += e.g * e.n / cols;
        gn_magnitude += fabs(e.g) * e.n_magnitude / cols;
        g += p->centred ? e.g / cols : 0;
        g_magnitude += p->centred ? fabs(e.g) / cols : 0;
    }
    for (int64_t c = 0; c < p->cols; c++) {
        element e = element_at(p, host, row, c);
        double dsum = p->residual ? dtype_read(p->dtype, host[BACKWARD_DSUM], row * p->ld_in + c) : 0;
        out.value[c] = (e.g - e.n * gn - g) * rstd + dsum;
        out.magnitude[c] = (fabs(e.g) + e.n_magnitude * gn_magnitude + g_magnitude) * fabs(rstd) + fabs(dsum);
    }
}

static void backward_column(const norm_problem *p, void *const *host, int output, int64_t column, reference_slice out)
{
    out.value[0] = out.magnitude[0] = 0;
    for (int64_t r = 0; r < p->rows; r++) {
        element e = element_at(p, host, r, column);
        out.value[0] += output == OUTPUT_DGAMMA ? e.dy * e.n : e.dy;
        out.magnitude[0] += fabs(e.dy) * (output == OUTPUT_DGAMMA ? e.n_magnitude : 1);
    }
}

void norm_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const norm_problem *p = problem;
    if (p->direction == CKL_DIRECTION_FORWARD)
        forward(p, host, output, slice, out);
    else if (output == OUTPUT_DX)
        backward_row(p, host, slice, out);
    else
        backward_column(p, host, output, slice, out);
}
