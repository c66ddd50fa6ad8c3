/* softmax_ref.c - the definition of softmax and its gradient, in double. */
#include "operators/softmax/softmax_lab.h"

#include <math.h>

#include "base/dtype.h"

/* What a result below the smallest normal f32 may be off: kernels flush it to zero. */
static const double FLUSHED = 0x1p-126 / SOFTMAX_ERROR;

int64_t softmax_index(const softmax_problem *p, int64_t ld, int64_t slice, int64_t i)
{
    return p->inner == 1 ? slice * ld + i : (slice / p->inner * p->n + i) * ld + slice % p->inner;
}

/* Scores of softmax beyond it count as infinite. */
static const double FINITE_MAX = 0x1.fffffep127 / 1.4426950408889634;

/* t[i] = scale * x[i] + mask[i] of a row. */
static double exact_score(const softmax_problem *p, void *const *host, int64_t row, int64_t i)
{
    double t = p->scale * dtype_read(p->dtype, host[SOFTMAX_X], softmax_index(p, p->ldx, row, i));
    int64_t at = row / p->mask_repeat % p->mask_rows * p->n + i;
    if (p->mask == CKL_SOFTMAX_MASK_BOOL)
        return dtype_read(CKL_BOOL, host[SOFTMAX_MASK], at) != 0 ? t : -INFINITY;
    return p->mask == CKL_SOFTMAX_MASK_ADD ? t + dtype_read(p->dtype, host[SOFTMAX_MASK], at) : t;
}

static double score(const softmax_problem *p, void *const *host, int64_t row, int64_t i)
{
    double t = exact_score(p, host, row, i);
    return !p->log && fabs(t) > FINITE_MAX ? copysign(INFINITY, t) : t;
}

static void forward(const softmax_problem *p, void *const *host, int64_t row, reference_slice out)
{
    double max = -INFINITY, sum = 0;
    bool nan = false;
    for (int64_t i = 0; i < p->n; i++) {
        double t = score(p, host, row, i);
        nan |= isnan(t) || t == INFINITY;
        max = fmax(max, t);
    }
    for (int64_t i = 0; i < p->n && max > -INFINITY; i++)
        sum += exp(score(p, host, row, i) - max);
    for (int64_t i = 0; i < p->n; i++) {
        double t = score(p, host, row, i), y = p->log ? -INFINITY : 0;
        if (nan)
            y = NAN;
        else if (max > -INFINITY)
            y = p->log ? t - max - log(sum) : exp(t - max) / sum;
        double rounded = fabs(p->scale * dtype_read(p->dtype, host[SOFTMAX_X], softmax_index(p, p->ldx, row, i)));
        double error = isfinite(t) ? 1 + fabs(t - max) + (p->scale != 1 || p->mask ? rounded + fabs(max) : 0) : 1;
        out.value[i] = y;
        out.magnitude[i] = p->log ? error + fabs(log(sum)) : y * error + FLUSHED;
    }
}

static void backward(const softmax_problem *p, void *const *host, int64_t row, reference_slice out)
{
    double sum = 0, terms = 0;
    for (int64_t i = 0; i < p->n; i++) {
        int64_t at = softmax_index(p, p->ldy, row, i);
        double y = dtype_read(p->dtype, host[SOFTMAX_Y], at), dy = dtype_read(p->dtype, host[SOFTMAX_DY], at);
        double term = p->log ? dy : y * dy;
        sum += term;
        terms += fabs(term);
    }
    for (int64_t i = 0; i < p->n; i++) {
        int64_t at = softmax_index(p, p->ldy, row, i);
        double y = dtype_read(p->dtype, host[SOFTMAX_Y], at), dy = dtype_read(p->dtype, host[SOFTMAX_DY], at);
        double e = p->log ? exp(y) : y;
        out.value[i] = p->scale * (p->log ? dy - e * sum : e * (dy - sum));
        out.magnitude[i] = p->scale * (p->log ? fabs(dy) + e * (1 + fabs(y)) * terms : e * (fabs(dy) + terms));
    }
}

void softmax_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const softmax_problem *p = problem;
    (void)output;
    if (p->direction == CKL_DIRECTION_FORWARD)
        forward(p, host, slice, out);
    else
        backward(p, host, slice, out);
}
