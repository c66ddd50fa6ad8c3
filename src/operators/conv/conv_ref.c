/* conv_ref.c - the definition of convolution and its gradients in double. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "operators/conv/conv_lab.h"

enum { OF_Y, OF_DX, OF_DW, OF_DBIAS }; // outputs

typedef struct convolution {
    const ckl_conv_desc *d;
    void *const *host;
    conv_mode modes[CONV_MODES];
    conv_tensor x, w, y;
    int64_t channels, filters; // of a group
} convolution;

/* Sums of neighbouring channels in progress. */
typedef struct run_of_sums {
    int64_t count;
    double *value, *magnitude;
    bool *open; // an infinity or NaN meets a zero outside the other tensor: the result may be 0 or NaN
} run_of_sums;

static int64_t index_of(const conv_tensor *t, const int64_t *at)
{
    int64_t index = 0;
    for (int i = 0; i < CONV_RANK; i++)
        index += at[i] * t->stride[i];
    return index;
}

/* Neighbouring channels of an operand. */
static void read_channels(const convolution *v, int which, const conv_tensor *t, const int64_t *at, int64_t count,
                          double *out)
{
    const int64_t first = index_of(t, at), step = t->stride[CONV_RANK - 1];
    if (step == 1)
        dtype_read_run(v->d->dtype, v->host[which], first, count, out);
    for (int64_t c = 0; step != 1 && c < count; c++)
        out[c] = dtype_read(v->d->dtype, v->host[which], first + c * step);
}

static double read_dy(const convolution *v, int64_t n, const int64_t *o, int64_t k)
{
    return dtype_read(v->d->dtype, v->host[DY], index_of(&v->y, (int64_t[]){ n, o[0], o[1], o[2], k }));
}

/* The pixel of x that a tap sees from place o; is it inside? */
static bool under(const convolution *v, const int64_t *o, const int64_t *tap, int64_t *pixel)
{
    bool inside = true;
    for (int i = 0; i < CONV_MODES; i++) {
        const conv_mode *m = &v->modes[i];
        pixel[i] = o[i] * m->stride + tap[i] * m->dilation - m->pad;
        inside &= pixel[i] >= 0 && pixel[i] < m->x;
    }
    return inside;
}

/* The place from which a tap sees a pixel of x; is there one? */
static bool over(const convolution *v, const int64_t *pixel, const int64_t *tap, int64_t *o)
{
    bool there = true;
    for (int i = 0; i < CONV_MODES; i++) {
        const conv_mode *m = &v->modes[i];
        int64_t reach = pixel[i] + m->pad - tap[i] * m->dilation;
        o[i] = reach / m->stride;
        there &= reach >= 0 && reach % m->stride == 0 && o[i] < m->y;
    }
    return there;
}

/* Runs the body for every [0], [1], [2] below the sizes. */
#define EACH(at, size)                                      \
    for (int64_t at[3] = { 0 }; at[0] < (size)[0]; at[0]++) \
        for (at[1] = 0; at[1] < (size)[1]; at[1]++)         \
            for (at[2] = 0; at[2] < (size)[2]; at[2]++)

/* Adds a factor times some numbers or, where the factor is a zero outside its tensor, what they leave open. */
static void add_products(run_of_sums *to, bool inside, double factor, const double *x)
{
    for (int64_t c = 0; c < to->count; c++) {
        const double product = inside ? factor * x[c] : 0;
        to->value[c] += product;
        to->magnitude[c] += fabs(product);
        to->open[c] |= !inside && !isfinite(x[c]);
    }
}

/* The gradient of data: all places with a tap on the pixel. */
static void data(const convolution *v, const int64_t *at, run_of_sums *to)
{
    const int64_t filter[] = { v->modes[0].filter, v->modes[1].filter, v->modes[2].filter };
    const int64_t first = at[4] / v->channels * v->filters;
    double *w = heap_alloc((size_t)to->count, sizeof *w);
    EACH(tap, filter)
    {
        int64_t o[CONV_MODES];
        const bool there = over(v, at + 1, tap, o);
        for (int64_t k = first; k < first + v->filters; k++) {
            const int64_t of_w[] = { k, tap[0], tap[1], tap[2], at[4] % v->channels };
            read_channels(v, W, &v->w, of_w, to->count, w);
            add_products(to, there, there ? read_dy(v, at[0], o, k) : 0, w);
        }
    }
    heap_free(w);
}

/* Kernels that load boxes multiply all pixels of a channel of x, some by zeros outside dy. */
static void meet_pixels(const convolution *v, int64_t channel, double *x, run_of_sums *to)
{
    const int64_t places[] = { v->modes[0].x, v->modes[1].x, v->modes[2].x };
    for (int64_t n = 0; n < v->d->n; n++)
        EACH(o, places)
        {
            read_channels(v, X, &v->x, (int64_t[]){ n, o[0], o[1], o[2], channel }, to->count, x);
            add_products(to, false, 0, x);
        }
}

/* The gradient of weights: each dy of the filter times what the tap sees from there. */
static void weight(const convolution *v, const int64_t *at, run_of_sums *to)
{
    const int64_t places[] = { v->modes[0].y, v->modes[1].y, v->modes[2].y };
    const int64_t channel = at[0] / v->filters * v->channels + at[4];
    double *x = heap_alloc((size_t)to->count, sizeof *x);
    for (int64_t n = 0; n < v->d->n; n++)
        EACH(o, places)
        {
            int64_t pixel[CONV_RANK] = { n, 0, 0, 0, channel };
            const double dy = read_dy(v, n, o, at[0]);
            const bool inside = under(v, o, at + 1, pixel + 1);
            if (inside)
                read_channels(v, X, &v->x, pixel, to->count, x);
            for (int64_t c = 0; !inside && c < to->count; c++)
                x[c] = dy; // meets a zero outside x
            add_products(to, inside, dy, x);
        }
    meet_pixels(v, channel, x, to);
    heap_free(x);
}

/* The gradient of the bias of a channel. */
static void bias(const convolution *v, int64_t k, run_of_sums *to)
{
    const int64_t places[] = { v->modes[0].y, v->modes[1].y, v->modes[2].y };
    for (int64_t n = 0; n < v->d->n; n++)
        EACH(o, places)
    add_products(to, true, 1, (double[]){ read_dy(v, n, o, k) });
}

static double activate(choice activation, double x)
{
    if (activation == CKL_ACTIVATION_RELU)
        return isnan(x) ? x : fmax(x, 0);
    if (activation == CKL_ACTIVATION_GELU)
        return x == -INFINITY ? -0.0 : x / 2 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    if (activation == CKL_ACTIVATION_GELU_ERF)
        return x == -INFINITY ? -0.0 : x * erfc(-x * 0.7071067811865476) / 2;
    if (activation == CKL_ACTIVATION_SILU)
        return x == -INFINITY ? -0.0 : x / (1 + exp(-x));
    return x;
}

/* What the library's custom epilogues make of a finished sum, by their definitions. */
static void customise(const convolution *v, const int64_t *at, double *value, double *magnitude)
{
    const char *name = v->d->epilogue;
    if (name && strcmp(name, "relu2") == 0) {
        *magnitude *= 2 * fabs(*value) + *magnitude;
        *value = *value < 0 ? 0 : *value * *value;
    }
    int64_t pixel = at[0];
    for (int m = 0; m < CONV_MODES; m++)
        pixel = pixel * v->modes[m].y + at[1 + m];
    if (name && strcmp(name, "tril") == 0 && at[4] > pixel)
        *value = *magnitude = 0;
}

static void finish(const convolution *v, const int64_t *at, double *value, double *magnitude)
{
    const ckl_conv_desc *d = v->d;
    double bias = d->bias ? dtype_read(d->out, v->host[BIAS], at[4]) : 0;
    double residual = d->residual ? dtype_read(d->out, v->host[RESIDUAL], index_of(&v->y, at)) : 0;
    double scale = d->scale ? dtype_read(CKL_F32, v->host[SCALE], at[4]) : 1;
    *value = activate((choice)d->activation, scale * *value + bias + residual);
    *magnitude = 1.13 * (fabs(scale) * *magnitude + fabs(bias) + fabs(residual)); // the steepest slope
    customise(v, at, value, magnitude);
}

static void multiply_tap(const double *a, const double *b, int64_t channels, double *value, double *magnitude)
{
    enum { LANES = 8 }; // partial sums side by side, which compilers vectorise
    double sum[LANES] = { 0 }, absolute[LANES] = { 0 };
    int64_t c = 0;
    for (; c + LANES <= channels; c += LANES)
        for (int i = 0; i < LANES; i++) {
            sum[i] += a[c + i] * b[c + i];
            absolute[i] += fabs(a[c + i] * b[c + i]);
        }
    for (; c < channels; c++) {
        sum[0] += a[c] * b[c];
        absolute[0] += fabs(a[c] * b[c]);
    }
    for (int i = 0; i < LANES; i++) {
        *value += sum[i];
        *magnitude += absolute[i];
    }
}

/* y: the pixels under each tap, which are read once for all filters. */
static void forward(const convolution *v, const int64_t *at, run_of_sums *to)
{
    const int64_t filter[] = { v->modes[0].filter, v->modes[1].filter, v->modes[2].filter };
    double *x = heap_alloc((size_t)(2 * v->channels), sizeof *x), *w = x + v->channels;
    EACH(tap, filter)
    {
        int64_t pixel[CONV_RANK] = { at[0], 0, 0, 0, at[4] / v->filters * v->channels };
        const bool inside = under(v, at + 1, tap, pixel + 1);
        if (inside)
            read_channels(v, X, &v->x, pixel, v->channels, x);
        for (int64_t j = 0; j < to->count; j++) {
            read_channels(v, W, &v->w, (int64_t[]){ at[4] + j, tap[0], tap[1], tap[2], 0 }, v->channels, w);
            if (inside)
                multiply_tap(x, w, v->channels, &to->value[j], &to->magnitude[j]);
            for (int64_t c = 0; !inside && c < v->channels; c++)
                to->open[j] |= !isfinite(w[c]);
        }
    }
    for (int64_t j = 0; j < to->count; j++)
        finish(v, (int64_t[]){ at[0], at[1], at[2], at[3], at[4] + j }, &to->value[j], &to->magnitude[j]);
    heap_free(x);
}

/* The coordinates of element `number` of a tensor, counted in the order of memory. */
static void coordinates_of(const ckl_conv_desc *d, const conv_tensor *t, int64_t number, int64_t *at)
{
    const int nhwc[CONV_RANK] = { 4, 3, 2, 1, 0 }, nchw[CONV_RANK] = { 3, 2, 1, 4, 0 };
    for (int i = 0; i < CONV_RANK; i++) {
        int mode = (d->layout == CKL_IMAGE_NHWC ? nhwc : nchw)[i];
        at[mode] = number % t->shape[mode];
        number /= t->shape[mode];
    }
}

/* Channels of one group, from one on, that lie side by side. */
static int64_t run_from(const convolution *v, int output, int64_t channel, int64_t left)
{
    const int64_t of_group = output == OF_Y ? v->filters : output == OF_DX ? v->channels : INT64_MAX;
    if (output == OF_DBIAS || v->d->layout == CKL_IMAGE_NCHW)
        return 1;
    return left < of_group - channel % of_group ? left : of_group - channel % of_group;
}

void conv_reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_conv_desc *d = problem;
    convolution v = { .d = d,
                      .host = host,
                      .x = conv_tensor_of(d, CONV_X),
                      .w = conv_tensor_of(d, CONV_W),
                      .y = conv_tensor_of(d, CONV_Y),
                      .channels = d->c / d->groups,
                      .filters = d->k / d->groups };
    conv_modes(d, v.modes);
    const conv_tensor *of = out.output == OF_Y ? &v.y : out.output == OF_DX ? &v.x : &v.w;
    const int64_t row = d->layout == CKL_IMAGE_NHWC ? of->shape[CONV_RANK - 1] : of->shape[CONV_RANK - 2];
    bool *open = heap_alloc((size_t)out.count, 1);
    memset(out.value, 0, (size_t)out.count * sizeof *out.value);
    memset(out.magnitude, 0, (size_t)out.count * sizeof *out.magnitude);
    for (int64_t j = 0, run; j < out.count; j += run) {
        int64_t at[CONV_RANK];
        coordinates_of(d, of, out.row * row + out.first + j, at);
        run = run_from(&v, out.output, at[CONV_RANK - 1], out.count - j);
        run_of_sums to = { run, out.value + j, out.magnitude + j, open + j };
        if (out.output == OF_DBIAS)
            bias(&v, out.first + j, &to);
        else
            (out.output == OF_Y ? forward : out.output == OF_DX ? data : weight)(&v, at, &to);
    }
    for (int64_t j = 0; j < out.count; j++)
        if (open[j]) {
            out.value[j] = (double)NAN;
            out.magnitude[j] = (double)REFERENCE_OPEN;
        }
    heap_free(open);
}
