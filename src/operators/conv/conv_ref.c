/* conv_ref.c - the definition of convolution and its gradients in double. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "operators/conv/conv_lab.h"

enum { OF_Y, OF_DX, OF_DW, OF_DBIAS }; // outputs

/* A sum in progress. */
typedef struct sum_of_products {
    const ckl_conv_desc *d;
    void *const *host;
    conv_mode modes[CONV_MODES];
    conv_tensor x, w, y;
    double value, magnitude;
    bool open; // an infinity or NaN meets a zero outside the other tensor: the result may be 0 or NaN
} sum_of_products;

static int64_t index_of(const conv_tensor *t, const int64_t *at)
{
    int64_t index = 0;
    for (int i = 0; i < CONV_RANK; i++)
        index += at[i] * t->stride[i];
    return index;
}

/* The pixel of x that a tap sees from place o; is it inside? */
static bool under(const sum_of_products *s, const int64_t *o, const int64_t *tap, int64_t *pixel)
{
    bool inside = true;
    for (int i = 0; i < CONV_MODES; i++) {
        const conv_mode *m = &s->modes[i];
        pixel[i] = o[i] * m->stride + tap[i] * m->dilation - m->pad;
        inside &= pixel[i] >= 0 && pixel[i] < m->x;
    }
    return inside;
}

/* An element meets a zero outside the other tensor. */
static void meet_zero(sum_of_products *s, int which, const conv_tensor *t, const int64_t *at)
{
    s->open |= !isfinite(dtype_read(s->d->dtype, s->host[which], index_of(t, at)));
}

/* Adds x as `tap` sees it from place o times w or dy, for channel c of a group and filter k. */
static void add_product(sum_of_products *s, int64_t n, const int64_t *o, const int64_t *tap, int64_t k, int64_t c)
{
    const int64_t group = k / (s->d->k / s->d->groups), channel = group * (s->d->c / s->d->groups) + c;
    int64_t x[CONV_RANK] = { n, 0, 0, 0, channel }, w[CONV_RANK] = { k, tap[0], tap[1], tap[2], c };
    int64_t y[CONV_RANK] = { n, o[0], o[1], o[2], k };
    if (!under(s, o, tap, x + 1)) {
        if (s->d->direction == CKL_CONV_WEIGHT)
            meet_zero(s, DY, &s->y, y);
        else
            meet_zero(s, W, &s->w, w);
        return;
    }
    const ckl_conv_direction direction = s->d->direction;
    double first = direction == CKL_CONV_DATA ? dtype_read(s->d->dtype, s->host[DY], index_of(&s->y, y))
                                              : dtype_read(s->d->dtype, s->host[X], index_of(&s->x, x));
    double second = direction == CKL_CONV_WEIGHT ? dtype_read(s->d->dtype, s->host[DY], index_of(&s->y, y))
                                                 : dtype_read(s->d->dtype, s->host[W], index_of(&s->w, w));
    s->value += first * second;
    s->magnitude += fabs(first * second);
}

/* Runs the body for every [0], [1], [2] below the sizes. */
#define EACH(at, size)                                      \
    for (int64_t at[3] = { 0 }; at[0] < (size)[0]; at[0]++) \
        for (at[1] = 0; at[1] < (size)[1]; at[1]++)         \
            for (at[2] = 0; at[2] < (size)[2]; at[2]++)

static void forward(sum_of_products *s, const int64_t *at)
{
    const int64_t filter[] = { s->modes[0].filter, s->modes[1].filter, s->modes[2].filter };
    EACH(tap, filter)
    for (int64_t c = 0; c < s->d->c / s->d->groups; c++)
        add_product(s, at[0], at + 1, tap, at[4], c);
}

/* The place from which a tap sees a pixel of x; is there one? */
static bool over(const sum_of_products *s, const int64_t *pixel, const int64_t *tap, int64_t *o)
{
    bool there = true;
    for (int i = 0; i < CONV_MODES; i++) {
        const conv_mode *m = &s->modes[i];
        int64_t reach = pixel[i] + m->pad - tap[i] * m->dilation;
        o[i] = reach / m->stride;
        there &= reach >= 0 && reach % m->stride == 0 && o[i] < m->y;
    }
    return there;
}

/* The gradient of data: all places with a tap on the element. */
static void data(sum_of_products *s, const int64_t *at)
{
    const int64_t filter[] = { s->modes[0].filter, s->modes[1].filter, s->modes[2].filter };
    const int64_t channels = s->d->c / s->d->groups, filters = s->d->k / s->d->groups, group = at[4] / channels;
    EACH(tap, filter)
    {
        int64_t o[CONV_MODES];
        const bool there = over(s, at + 1, tap, o);
        for (int64_t k = group * filters; k < (group + 1) * filters; k++)
            if (there)
                add_product(s, at[0], o, tap, k, at[4] % channels);
            else
                meet_zero(s, W, &s->w, (int64_t[]){ k, tap[0], tap[1], tap[2], at[4] % channels });
    }
}

/* Kernels that load boxes multiply all pixels of a channel of x, some by zeros outside dy. */
static void meet_channel(sum_of_products *s, int64_t channel)
{
    const int64_t places[] = { s->modes[0].x, s->modes[1].x, s->modes[2].x };
    for (int64_t n = 0; n < s->d->n; n++)
        EACH(o, places)
        {
            const int64_t x[CONV_RANK] = { n, o[0], o[1], o[2], channel };
            meet_zero(s, X, &s->x, x);
        }
}

static void weight(sum_of_products *s, const int64_t *at)
{
    const int64_t places[] = { s->modes[0].y, s->modes[1].y, s->modes[2].y };
    for (int64_t n = 0; n < s->d->n; n++)
        EACH(o, places)
    add_product(s, n, o, at + 1, at[0], at[4]);
    meet_channel(s, at[0] / (s->d->k / s->d->groups) * (s->d->c / s->d->groups) + at[4]);
}

static void channel(sum_of_products *s, int64_t k)
{
    const int64_t places[] = { s->modes[0].y, s->modes[1].y, s->modes[2].y };
    for (int64_t n = 0; n < s->d->n; n++)
        EACH(o, places)
        {
            const int64_t y[CONV_RANK] = { n, o[0], o[1], o[2], k };
            double dy = dtype_read(s->d->dtype, s->host[DY], index_of(&s->y, y));
            s->value += dy;
            s->magnitude += fabs(dy);
        }
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
static void customise(sum_of_products *s, const int64_t *at)
{
    const char *name = s->d->epilogue;
    if (name && strcmp(name, "relu2") == 0) {
        s->magnitude *= 2 * fabs(s->value) + s->magnitude;
        s->value = s->value < 0 ? 0 : s->value * s->value;
    }
    int64_t pixel = at[0];
    for (int m = 0; m < CONV_MODES; m++)
        pixel = pixel * s->modes[m].y + at[1 + m];
    if (name && strcmp(name, "tril") == 0 && at[4] > pixel)
        s->value = s->magnitude = 0;
}

static void finish(sum_of_products *s, const int64_t *at)
{
    const ckl_conv_desc *d = s->d;
    double bias = d->bias ? dtype_read(d->out, s->host[BIAS], at[4]) : 0;
    double residual = d->residual ? dtype_read(d->out, s->host[RESIDUAL], index_of(&s->y, at)) : 0;
    double scale = d->scale ? dtype_read(CKL_F32, s->host[SCALE], at[4]) : 1;
    s->value = activate((choice)d->activation, scale * s->value + bias + residual);
    s->magnitude = 1.13 * (fabs(scale) * s->magnitude + fabs(bias) + fabs(residual)); // the steepest slope
    customise(s, at);
}

/* All filters of a pixel, forward in NHWC: the pixels below are read once, and each filter is one run of memory. */

typedef struct patch {
    double *pixels, *filter; // (C,TAPS)
    bool *inside;            // (TAPS)
} patch;

static void read_patch(const sum_of_products *s, const int64_t *at, int64_t group, patch *p)
{
    const int64_t filter[] = { s->modes[0].filter, s->modes[1].filter, s->modes[2].filter };
    const int64_t channels = s->w.shape[4];
    int64_t number = 0;
    EACH(tap, filter)
    {
        int64_t x[CONV_RANK] = { at[0], 0, 0, 0, group * channels };
        p->inside[number] = under(s, at + 1, tap, x + 1);
        if (p->inside[number])
            dtype_read_run(s->d->dtype, s->host[X], index_of(&s->x, x), channels, p->pixels + number * channels);
        number++;
    }
}

static void multiply_tap(sum_of_products *s, const double *a, const double *b, int64_t channels)
{
    enum { LANES = 8 }; // partial sums side by side, which compilers vectorise
    double sum[LANES] = { 0 }, magnitude[LANES] = { 0 };
    int64_t c = 0;
    for (; c + LANES <= channels; c += LANES)
        for (int i = 0; i < LANES; i++) {
            sum[i] += a[c + i] * b[c + i];
            magnitude[i] += fabs(a[c + i] * b[c + i]);
        }
    for (; c < channels; c++) {
        sum[0] += a[c] * b[c];
        magnitude[0] += fabs(a[c] * b[c]);
    }
    for (int i = 0; i < LANES; i++) {
        s->value += sum[i];
        s->magnitude += magnitude[i];
    }
}

static void multiply_patch(sum_of_products *s, const patch *p, int64_t k)
{
    const int64_t channels = s->w.shape[4], count = s->w.stride[0], taps = channels ? count / channels : 0;
    dtype_read_run(s->d->dtype, s->host[W], k * count, count, p->filter);
    for (int64_t tap = 0; tap < taps; tap++) {
        const double *filter = p->filter + tap * channels;
        for (int64_t c = 0; !p->inside[tap] && c < channels; c++)
            s->open |= !isfinite(filter[c]);
        if (p->inside[tap])
            multiply_tap(s, p->pixels + tap * channels, filter, channels);
    }
}

static void put(const sum_of_products *s, reference_slice out, int64_t j)
{
    out.value[j] = s->open ? (double)NAN : s->value;
    out.magnitude[j] = s->open ? (double)REFERENCE_OPEN : s->magnitude;
}

static void filters_of_pixel(sum_of_products *s, const int64_t *pixel, reference_slice out)
{
    int64_t at[CONV_RANK] = { pixel[0], pixel[1], pixel[2], pixel[3], 0 };
    const int64_t filters = s->d->k / s->d->groups, taps = s->w.shape[1] * s->w.shape[2] * s->w.shape[3];
    const int64_t count = taps * s->w.shape[4];
    patch p = { .pixels = heap_alloc((size_t)(2 * count + 1), sizeof(double)), .inside = heap_alloc((size_t)taps, 1) };
    p.filter = p.pixels + count;
    for (int64_t j = 0; j < out.count; j++) {
        at[4] = out.first + j;
        if (j == 0 || at[4] % filters == 0)
            read_patch(s, at, at[4] / filters, &p);
        s->value = s->magnitude = 0;
        s->open = false;
        multiply_patch(s, &p, at[4]);
        finish(s, at);
        put(s, out, j);
    }
    heap_free(p.pixels);
    heap_free(p.inside);
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

static void settle(reference_slice out, const bool *open)
{
    for (int64_t c = 0; c < out.count; c++)
        if (open[c]) {
            out.value[c] = (double)NAN;
            out.magnitude[c] = (double)REFERENCE_OPEN;
        }
}

/* The gradient of all channels of a pixel, one group of NHWC: for each tap and filter a run of its channels. */
static void channels_of_pixel(sum_of_products *s, const int64_t *at, reference_slice out)
{
    const int64_t filter[] = { s->modes[0].filter, s->modes[1].filter, s->modes[2].filter };
    double *w = heap_alloc((size_t)out.count, sizeof *w);
    bool *open = heap_alloc((size_t)out.count, 1);
    EACH(tap, filter)
    {
        int64_t y[CONV_RANK] = { at[0] };
        const bool there = over(s, at + 1, tap, y + 1);
        for (int64_t k = 0; k < s->d->k; k++) {
            y[4] = k;
            double dy = there ? dtype_read(s->d->dtype, s->host[DY], index_of(&s->y, y)) : 0;
            dtype_read_run(s->d->dtype, s->host[W],
                           index_of(&s->w, (int64_t[]){ k, tap[0], tap[1], tap[2], out.first }), out.count, w);
            for (int64_t c = 0; !there && c < out.count; c++)
                open[c] |= !isfinite(w[c]);
            for (int64_t c = 0; there && c < out.count; c++) {
                out.value[c] += dy * w[c];
                out.magnitude[c] += fabs(dy * w[c]);
            }
        }
    }
    settle(out, open);
    heap_free(w);
    heap_free(open);
}

/* The channels of x under a tap of a filter: each dy of the filter times a run of them. */
static void add_places(sum_of_products *s, const int64_t *at, reference_slice out, double *x, bool *open)
{
    const int64_t places[] = { s->modes[0].y, s->modes[1].y, s->modes[2].y };
    const int64_t channel = at[0] / (s->d->k / s->d->groups) * (s->d->c / s->d->groups) + out.first;
    for (int64_t n = 0; n < s->d->n; n++)
        EACH(o, places)
        {
            int64_t pixel[CONV_RANK] = { n, 0, 0, 0, channel };
            double dy =
                dtype_read(s->d->dtype, s->host[DY], index_of(&s->y, (int64_t[]){ n, o[0], o[1], o[2], at[0] }));
            const bool inside = under(s, o, at + 1, pixel + 1);
            if (inside)
                dtype_read_run(s->d->dtype, s->host[X], index_of(&s->x, pixel), out.count, x);
            for (int64_t c = 0; c < out.count; c++) {
                double product = inside ? dy * x[c] : 0;
                out.value[c] += product;
                out.magnitude[c] += fabs(product);
                open[c] |= !inside && !isfinite(dy);
            }
        }
}

/* meet_channel() for a run of channels. */
static void meet_channels(sum_of_products *s, int64_t first, int64_t count, double *x, bool *open)
{
    const int64_t places[] = { s->modes[0].x, s->modes[1].x, s->modes[2].x };
    for (int64_t n = 0; n < s->d->n; n++)
        EACH(o, places)
        {
            const int64_t at[CONV_RANK] = { n, o[0], o[1], o[2], first };
            dtype_read_run(s->d->dtype, s->host[X], index_of(&s->x, at), count, x);
            for (int64_t c = 0; c < count; c++)
                open[c] |= !isfinite(x[c]);
        }
}

/* The gradient of all channels of a tap, NHWC. */
static void channels_of_tap(sum_of_products *s, const int64_t *at, reference_slice out)
{
    double *x = heap_alloc((size_t)out.count, sizeof *x);
    bool *open = heap_alloc((size_t)out.count, 1);
    add_places(s, at, out, x, open);
    meet_channels(s, at[0] / (s->d->k / s->d->groups) * (s->d->c / s->d->groups) + out.first, out.count, x, open);
    settle(out, open);
    heap_free(x);
    heap_free(open);
}

void conv_reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_conv_desc *d = problem;
    sum_of_products s = { .d = d,
                          .host = host,
                          .x = conv_tensor_of(d, CONV_X),
                          .w = conv_tensor_of(d, CONV_W),
                          .y = conv_tensor_of(d, CONV_Y) };
    conv_modes(d, s.modes);
    const conv_tensor *of = out.output == OF_Y ? &s.y : out.output == OF_DX ? &s.x : &s.w;
    const int64_t row = d->layout == CKL_IMAGE_NHWC ? of->shape[CONV_RANK - 1] : of->shape[CONV_RANK - 2];
    int64_t at[CONV_RANK];
    if (d->layout == CKL_IMAGE_NHWC &&
        (out.output == OF_Y || out.output == OF_DW || (out.output == OF_DX && d->groups == 1))) {
        coordinates_of(d, of, out.row * row, at);
        memset(out.value, 0, (size_t)out.count * sizeof *out.value);
        memset(out.magnitude, 0, (size_t)out.count * sizeof *out.magnitude);
        (out.output == OF_Y    ? filters_of_pixel
         : out.output == OF_DX ? channels_of_pixel
                               : channels_of_tap)(&s, at, out);
        return;
    }
    for (int64_t j = 0; j < out.count; j++) {
        s.value = s.magnitude = 0;
        s.open = false;
        coordinates_of(d, of, out.row * row + out.first + j, at);
        if (out.output == OF_DBIAS)
            channel(&s, out.first + j);
        else
            (out.output == OF_Y ? forward : out.output == OF_DX ? data : weight)(&s, at);
        if (out.output == OF_Y)
            finish(&s, at);
        put(&s, out, j);
    }
}
