/* groupnorm_ref.c - the definition of group norm, in double. */
#include <math.h>

#include "base/dtype.h"
#include "operators/groupnorm/groupnorm_lab.h"

int64_t groupnorm_index(const groupnorm_problem *p, int64_t slice, int64_t j)
{
    int64_t pixels = p->h * p->w, image = slice / p->groups;
    int64_t channel = slice % p->groups * (p->c / p->groups) + j / pixels, pixel = j % pixels;
    if (p->layout == CKL_NCHW)
        return (image * p->c + channel) * pixels + pixel;
    return (image * pixels + pixel) * p->c + channel;
}

void groupnorm_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const groupnorm_problem *p = problem;
    int64_t pixels = p->h * p->w, channels = p->c / p->groups, count = channels * pixels;
    double n = (double)count, mean = 0, squares = 0, differences = 0, deviation = 0;
    for (int64_t j = 0; j < count; j++)
        mean += dtype_read(p->dtype, host[GROUPNORM_X], groupnorm_index(p, slice, j)) / n;
    for (int64_t j = 0; j < count; j++) {
        double x = dtype_read(p->dtype, host[GROUPNORM_X], groupnorm_index(p, slice, j)) - mean;
        squares += x * x;
        differences += x;
        deviation += fabs(x) / n;
    }
    mean += differences / n; // of a group with an infinity: NaN
    double rstd = 1 / sqrt(squares / n + p->eps);
    if (output != OUTPUT_Y) {
        out.value[0] = output == OUTPUT_MEAN ? mean : rstd;
        out.magnitude[0] = output == OUTPUT_MEAN ? fabs(mean) + deviation : rstd;
        return;
    }
    for (int64_t j = 0; j < count; j++) {
        int64_t channel = slice % p->groups * channels + j / pixels;
        double gamma = p->affine ? dtype_read(p->dtype, host[GROUPNORM_GAMMA], channel) : 1;
        double beta = p->affine ? dtype_read(p->dtype, host[GROUPNORM_BETA], channel) : 0;
        double x = dtype_read(p->dtype, host[GROUPNORM_X], groupnorm_index(p, slice, j)) - mean;
        out.value[j] = x * rstd * gamma + beta;
        out.magnitude[j] = (fabs(x) + deviation) * rstd * fabs(gamma) + fabs(beta);
    }
}
