/* groupnorm_ref.c - the definition of group norm and of its gradients, in double. */
#include <math.h>

#include "base/dtype.h"
#include "cutekernellib/plan.h"
#include "operators/groupnorm/groupnorm_lab.h"

int64_t groupnorm_index(const groupnorm_problem *p, int64_t slice, int64_t j)
{
    int64_t pixels = p->h * p->w, image = slice / p->groups;
    int64_t channel = slice % p->groups * (p->c / p->groups) + j / pixels, pixel = j % pixels;
    if (p->layout == CKL_IMAGE_NCHW)
        return (image * p->c + channel) * pixels + pixel;
    return (image * pixels + pixel) * p->c + channel;
}

static void forward(const groupnorm_problem *p, void *const *host, int output, int64_t slice, reference_slice out)
{
    int64_t pixels = p->h * p->w, channels = p->c / p->groups, count = channels * pixels;
    double n = (double)count, mean = 0, squares = 0, differences = 0, deviation = 0;
    for (int64_t j = 0; j < count; j++)
        mean += dtype_read(p->dtype, host[FORWARD_X], groupnorm_index(p, slice, j)) / n;
    for (int64_t j = 0; j < count; j++) {
        double x = dtype_read(p->dtype, host[FORWARD_X], groupnorm_index(p, slice, j)) - mean;
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
        double gamma = p->affine ? dtype_read(p->dtype, host[FORWARD_GAMMA], channel) : 1;
        double beta = p->affine ? dtype_read(p->dtype, host[FORWARD_BETA], channel) : 0;
        double x = dtype_read(p->dtype, host[FORWARD_X], groupnorm_index(p, slice, j)) - mean;
        out.value[j] = x * rstd * gamma + beta;
        out.magnitude[j] = (fabs(x) + deviation) * rstd * fabs(gamma) + fabs(beta);
    }
}

/* One element of the backward pass. */
typedef struct element {
    double dy, g;
    double n, n_magnitude; // the normalised x, and the sum of its terms
} element;

/* Element j of group `slice`. */
static element element_at(const groupnorm_problem *p, void *const *host, int64_t slice, int64_t j)
{
    int64_t channel = slice % p->groups * (p->c / p->groups) + j / (p->h * p->w), i = groupnorm_index(p, slice, j);
    double mean = dtype_read(CKL_F32, host[BACKWARD_MEAN], slice),
           rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], slice);
    double x = dtype_read(p->dtype, host[BACKWARD_X], i), dy = dtype_read(p->dtype, host[BACKWARD_DY], i);
    double gamma = p->affine ? dtype_read(p->dtype, host[BACKWARD_GAMMA], channel) : 1;
    return (element){ dy, dy * gamma, (x - mean) * rstd, (fabs(x) + fabs(mean)) * fabs(rstd) };
}

static void backward_group(const groupnorm_problem *p, void *const *host, int64_t slice, reference_slice out)
{
    int64_t count = p->c / p->groups * p->h * p->w;
    double rstd = dtype_read(CKL_F32, host[BACKWARD_RSTD], slice);
    double gn = 0, g = 0, gn_magnitude = 0, g_magnitude = 0;
    for (int64_t j = 0; j < count; j++) {
        element e = element_at(p, host, slice, j);
        gn += e.g * e.n / (double)count;
        gn_magnitude += fabs(e.g) * e.n_magnitude / (double)count;
        g += e.g / (double)count;
        g_magnitude += fabs(e.g) / (double)count;
    }
    for (int64_t j = 0; j < count; j++) {
        element e = element_at(p, host, slice, j);
        out.value[j] = (e.g - e.n * gn - g) * rstd;
        out.magnitude[j] = (fabs(e.g) + e.n_magnitude * gn_magnitude + g_magnitude) * fabs(rstd);
    }
}

static void backward_channel(const groupnorm_problem *p, void *const *host, int output, int64_t channel,
                             reference_slice out)
{
    int64_t pixels = p->h * p->w, channels = p->c / p->groups;
    out.value[0] = out.magnitude[0] = 0;
    for (int64_t i = 0; i < p->n * pixels; i++) {
        int64_t slice = i / pixels * p->groups + channel / channels;
        element e = element_at(p, host, slice, channel % channels * pixels + i % pixels);
        out.value[0] += output == OUTPUT_DGAMMA ? e.dy * e.n : e.dy;
        out.magnitude[0] += fabs(e.dy) * (output == OUTPUT_DGAMMA ? e.n_magnitude : 1);
    }
}

void groupnorm_reference(const void *problem, void *const *host, int output, int64_t slice, reference_slice out)
{
    const groupnorm_problem *p = problem;
    if (p->direction == CKL_DIRECTION_FORWARD)
        forward(p, host, output, slice, out);
    else if (output == OUTPUT_DX)
        backward_group(p, host, slice, out);
    else
        backward_channel(p, host, output, slice, out);
}
