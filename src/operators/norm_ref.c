/* norm_ref.c - the definition of the norms in double. */
#include <float.h>
#include <math.h>

#include "base/dtype.h"
#include "operators/norm_lab.h"

/* The statistics of a backward pass are inputs like any other: gradients are a function of all of them. */
void norm_operands(const norm_problem *p, operand *all, operand *x, operand *mean, operand *rstd)
{
    for (int i = 0; i < OPERANDS_MAX; i++)
        all[i].hard_max = 0x1p30; // dy * n * n stays in f32
    if (p->view.direction == CKL_DIRECTION_FORWARD && !p->stats)
        mean->dtype = rstd->dtype = CKL_DTYPE_DEFAULT;
    if (p->offset != 0)
        *x = operand_range(*x, p->offset - 1, p->offset + 1);
    *mean = operand_range(*mean, p->offset - 1, p->offset + 1);
    *rstd = operand_range(*rstd, 0.5F, 2);
}

static ckl_norm_args norm_args(void *const *m)
{
    return (ckl_norm_args){ m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7], m[8], m[9], m[10], m[11], m[12], NULL };
}

/* 8 or 14 operations an element, which is what the reference costs too. */
double norm_flops(const void *problem)
{
    const norm_view *v = &((const norm_problem *)problem)->view;
    return (v->direction == CKL_DIRECTION_FORWARD ? 8 : 14) * (double)(v->images * v->channels) * (double)v->pixels;
}

/*
 * Sums are trees over threads: the longest chain of additions is a thread's own, in a group that 4096 threads share, a
 * cluster of 8 CTAs. Its length counts, because roundings along it need not be independent: squares of whole numbers
 * are 0, 1 or 4 modulo 8, so where the sum counts in units of 8 the ones are lost, always in one direction. The
 * variance of 2400002 whole numbers up to 1000 comes out 5e-6 too small, 42 units in rstd.
 */
double norm_terms(const void *problem)
{
    enum { CHAIN_MIN = 64, THREADS = 4096 };
    const norm_view *v = &((const norm_problem *)problem)->view;
    return fmax(CHAIN_MIN, (double)(v->channels / v->groups) * (double)v->pixels / THREADS);
}

static int64_t channel_of(const norm_view *v, int64_t group, int64_t j)
{
    return group % v->groups * (v->channels / v->groups) + j / v->pixels;
}

int64_t norm_index(const norm_view *v, int64_t group, int64_t j)
{
    return group / v->groups * v->image_stride + channel_of(v, group, j) * v->channel_stride +
           j % v->pixels * v->pixel_stride;
}

/* Element i of an operand, or what stands for it where it is absent. */
static double read(ckl_dtype dtype, const void *from, int64_t i, double absent)
{
    return from ? dtype_read(dtype, from, i) : absent;
}

/* What is normalised: x, or x + residual as it is rounded to sum. */
static double normalised(const norm_view *v, const ckl_norm_args *a, int64_t group, int64_t j)
{
    int64_t i = norm_index(v, group, j);
    double x = dtype_read(v->dtype, a->x, i), rounded = 0;
    if (!a->residual)
        return x;
    dtype_write(v->dtype, &rounded, 0, (float)x + (float)dtype_read(v->dtype, a->residual, i));
    return dtype_read(v->dtype, &rounded, 0);
}

typedef struct statistics {
    double mean, rstd;
    double deviation; // mean of |h - mean|: the scale of the mean's error
} statistics;

static statistics statistics_of(const norm_view *v, const ckl_norm_args *a, int64_t group, int64_t count)
{
    double n = (double)count, squares = 0, differences = 0;
    statistics s = { 0 };
    for (int64_t j = 0; j < count; j++)
        s.mean += v->centred ? normalised(v, a, group, j) : 0;
    s.mean /= n;
    for (int64_t j = 0; j < count; j++) {
        double x = normalised(v, a, group, j) - s.mean;
        squares += x * x;
        differences += x;
        s.deviation += v->centred ? fabs(x) / n : 0;
    }
    s.mean += v->centred ? differences / n : 0; // of a group with an infinity: NaN
    s.rstd = 1 / sqrt(squares / n + v->eps);
    return s;
}

/* Of distances from the mean, of additions in f32. */
static const double MEAN_ERROR = 64 * FLT_EPSILON;

static void forward(const norm_view *v, const ckl_norm_args *a, int output, int64_t group, reference_slice out)
{
    int64_t count = v->channels / v->groups * v->pixels;
    statistics s = statistics_of(v, a, group, count);
    if (output == NORM_MEAN || output == NORM_RSTD) {
        out.value[0] = output == NORM_MEAN ? s.mean : s.rstd;
        out.magnitude[0] = output == NORM_MEAN ? fabs(s.mean) + s.deviation : s.rstd;
        return;
    }
    for (int64_t j = 0; j < count; j++) {
        double h = normalised(v, a, group, j), distance = fabs(h - s.mean) + s.deviation;
        double gamma = read(v->dtype, a->gamma, channel_of(v, group, j), 1);
        double beta = read(v->dtype, a->beta, channel_of(v, group, j), 0);
        double tiny = FLT_MIN * (distance + fabs(gamma)); // of a subnormal rstd * gamma, or (h - mean) * rstd
        bool sum = output == NORM_SUM;
        out.value[j] = sum ? h : (h - s.mean) * (s.rstd * gamma) + beta;
        out.magnitude[j] = sum ? fabs(h) : distance * s.rstd * fabs(gamma) + tiny + fabs(beta);
        const double unsure = MEAN_ERROR * distance + FLT_EPSILON * fabs(s.mean); // where h - mean may be 0 in f32
        if (!sum && isinf(gamma) && fabs(h - s.mean) <= unsure) {                 // either infinity, or 0 times it
            out.value[j] = NAN;
            out.magnitude[j] = REFERENCE_OPEN;
        }
    }
}

/* One element of the backward pass. */
typedef struct element {
    double dy, g, g_magnitude; // g = dy * gamma, which may be subnormal
    double n, n_magnitude;     // the normalised x, and the sum of its terms
} element;

static element element_at(const norm_view *v, const ckl_norm_args *a, int64_t group, int64_t j)
{
    int64_t i = norm_index(v, group, j);
    double mean = read(CKL_F32, a->mean, group, 0), rstd = dtype_read(CKL_F32, a->rstd, group);
    double x = dtype_read(v->dtype, a->x, i), dy = dtype_read(v->dtype, a->dy, i);
    double gamma = read(v->dtype, a->gamma, channel_of(v, group, j), 1);
    double g = dy * gamma, rounded = a->gamma ? FLT_MIN : 0;
    return (element){ dy, g, fabs(g) + rounded, (x - mean) * rstd, (fabs(x) + fabs(mean)) * fabs(rstd) };
}

static void backward_group(const norm_view *v, const ckl_norm_args *a, int64_t group, reference_slice out)
{
    int64_t count = v->channels / v->groups * v->pixels;
    double rstd = dtype_read(CKL_F32, a->rstd, group), n = (double)count;
    double gn = 0, g = 0, gn_magnitude = 0, g_magnitude = 0;
    for (int64_t j = 0; j < count; j++) {
        element e = element_at(v, a, group, j);
        gn += e.g * e.n / n;
        gn_magnitude += e.g_magnitude * e.n_magnitude / n;
        g += v->centred ? e.g / n : 0;
        g_magnitude += v->centred ? e.g_magnitude / n : 0;
    }
    for (int64_t j = 0; j < count; j++) {
        element e = element_at(v, a, group, j);
        double dsum = read(v->dtype, a->dsum, norm_index(v, group, j), 0);
        out.value[j] = (e.g - e.n * gn - g) * rstd + dsum;
        out.magnitude[j] = (e.g_magnitude + e.n_magnitude * gn_magnitude + g_magnitude) * fabs(rstd) + fabs(dsum);
    }
}

static void backward_channel(const norm_view *v, const ckl_norm_args *a, int output, int64_t channel,
                             reference_slice out)
{
    int64_t channels = v->channels / v->groups;
    out.value[0] = out.magnitude[0] = 0;
    for (int64_t i = 0; i < v->images * v->pixels; i++) {
        int64_t group = i / v->pixels * v->groups + channel / channels;
        element e = element_at(v, a, group, channel % channels * v->pixels + i % v->pixels);
        out.value[0] += output == NORM_DGAMMA ? e.dy * e.n : e.dy;
        out.magnitude[0] += fabs(e.dy) * (output == NORM_DGAMMA ? e.n_magnitude : 1);
    }
}

void norm_reference(const void *problem, void *const *host, reference_slice out)
{
    const norm_view *v = &((const norm_problem *)problem)->view;
    ckl_norm_args a = norm_args(host);
    int number = NORM_Y + out.output;
    if (v->direction == CKL_DIRECTION_FORWARD)
        forward(v, &a, number, out.slice, out);
    else if (number == NORM_DX)
        backward_group(v, &a, out.slice, out);
    else
        backward_channel(v, &a, number, out.slice, out);
}
