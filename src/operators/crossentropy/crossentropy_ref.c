/* crossentropy_ref.c - the definition of cross-entropy and its gradient, in double. */
#include "operators/crossentropy/crossentropy_lab.h"

#include <math.h>

#include "base/dtype.h"

enum { LOSS, LSE, COUNT }; // outputs of the forward direction

static double logit(const crossentropy_problem *p, void *const *host, int64_t row, int64_t c)
{
    return dtype_read(p->dtype, host[CROSSENTROPY_X], row * p->ldx + c);
}

static int64_t class_of(const crossentropy_problem *p, void *const *host, int64_t row)
{
    return (int64_t)dtype_read(p->target, host[CROSSENTROPY_TARGET], row);
}

static double log_sum_exp(const crossentropy_problem *p, void *const *host, int64_t row)
{
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < p->cols; c++) {
        double x = logit(p, host, row, c);
        if (isnan(x) || x == INFINITY)
            return NAN;
        max = fmax(max, x);
    }
    for (int64_t c = 0; c < p->cols && max > -INFINITY; c++)
        sum += exp(logit(p, host, row, c) - max);
    return max > -INFINITY ? max + log(sum) : max;
}

/* *magnitude: of the terms that make the loss. */
static double loss_of(const crossentropy_problem *p, void *const *host, int64_t row, double *magnitude)
{
    int64_t t = class_of(p, host, row);
    *magnitude = 0;
    if (t == p->ignore_index)
        return 0;
    if (t < 0 || t >= p->cols)
        return NAN;
    double lse = log_sum_exp(p, host, row), x = logit(p, host, row, t);
    *magnitude = isfinite(lse) && isfinite(x) ? 1 + fabs(lse) + fabs(x) : 1;
    return lse == -INFINITY ? INFINITY : lse - x;
}

static double counted_rows(const crossentropy_problem *p, void *const *host)
{
    double count = 0;
    for (int64_t r = 0; r < p->rows; r++)
        count += class_of(p, host, r) != p->ignore_index;
    return count;
}

static void mean(const crossentropy_problem *p, void *const *host, reference_slice out)
{
    double sum = 0, magnitudes = 0, count = counted_rows(p, host);
    for (int64_t r = 0; r < p->rows; r++) {
        double magnitude;
        sum += loss_of(p, host, r, &magnitude);
        magnitudes += magnitude;
    }
    out.value[0] = sum / count;
    out.magnitude[0] = count > 0 ? magnitudes / count : 0;
}

static void gradient(const crossentropy_problem *p, void *const *host, int64_t row, reference_slice out)
{
    int64_t t = class_of(p, host, row);
    bool reduced = p->reduction == CKL_LOSS_MEAN;
    double factor = dtype_read(CKL_F32, host[CROSSENTROPY_DLOSS], reduced ? 0 : row);
    double lse = dtype_read(CKL_F32, host[CROSSENTROPY_LSE], row);
    if (reduced)
        factor /= dtype_read(CKL_F32, host[CROSSENTROPY_COUNT], 0);
    if (t < 0 || t >= p->cols)
        factor = NAN;
    for (int64_t c = 0; c < p->cols; c++) {
        double x = logit(p, host, row, c), e = lse == -INFINITY ? exp(x) : exp(x - lse);
        out.value[c] = t == p->ignore_index ? 0 : (e - (c == t)) * factor;
        double spread = isfinite(x) ? e * (1 + fabs(x - lse)) + (c == t) : 1;
        out.magnitude[c] = spread * fabs(factor) + 0x1p-126 / CROSSENTROPY_ERROR;
    }
}

void crossentropy_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const crossentropy_problem *p = problem;
    if (p->direction == CKL_DIRECTION_BACKWARD) {
        gradient(p, host, slice, out);
    } else if (output == LSE) {
        out.value[0] = log_sum_exp(p, host, slice);
        out.magnitude[0] = 1 + fabs(out.value[0]);
    } else if (output == COUNT) {
        out.value[0] = counted_rows(p, host);
        out.magnitude[0] = 0;
    } else if (p->reduction == CKL_LOSS_MEAN) {
        mean(p, host, out);
    } else {
        out.value[0] = loss_of(p, host, slice, &out.magnitude[0]);
    }
}
