/* attention_backward_ref.c - the gradients by their definition in double, a row at a time, and what a kernel's may be off. */
#include <math.h>

#include "base/dtype.h"
#include "operators/attention/attention_config.h"
#include "operators/attention/attention_lab.h"

enum { Q, K, V, MASK, SINKS, STARTS_Q, STARTS_KV, O, LSE, DOUT }; // operands
enum { DQ, DK, DV };                                              // outputs

typedef struct place {
    int64_t batch, head, token;
} place;

/* Index of the first element of a row. */
static int64_t row_at(const ckl_attention_desc *d, int tensor, place p)
{
    const attention_strides s = attention_strides_of(d, tensor);
    return p.batch * s.batch.stride + p.head * s.heads.stride + p.token * s.tokens.stride;
}

/* The sum of the products of two rows, and of their absolute values. */
static double dot(ckl_dtype dtype, const void *x, int64_t x_first, const void *y, int64_t y_first, int64_t count,
                  double *magnitude)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double product = dtype_read(dtype, x, x_first + i) * dtype_read(dtype, y, y_first + i);
        sum += product;
        *magnitude += fabs(product);
    }
    return sum;
}

/* The weight of a key and its slope, with errors: a tensor core cuts sums at 2^-24 of the largest or so, exponents are f32. */
typedef struct pair {
    double weight, weight_error, slope, slope_error;
} pair;

static double masked(const ckl_attention_desc *d, void *const *host, place q, int64_t j, double score)
{
    int64_t at = q.batch * d->ldmask_batch + q.head * d->ldmask_head + q.token * d->ldmask + j;
    if (d->mask == CKL_ATTENTION_MASK_BOOL)
        return dtype_read(CKL_BOOL, host[MASK], at) == 0 ? -INFINITY : score;
    return d->mask ? score + dtype_read(d->dtype, host[MASK], at) : score;
}

static pair pair_of(const ckl_attention_desc *d, void *const *host, place q, place k)
{
    const double cut = 0x1p-20, scale = (double)d->scale, cap = (double)d->softcap;
    double raw_size = 0, dp_size = 0;
    int64_t q_at = row_at(d, ATTENTION_Q, q), k_at = row_at(d, ATTENTION_K, k);
    double raw = scale * dot(d->dtype, host[Q], q_at, host[K], k_at, d->d, &raw_size);
    double tanh_of = cap > 0 ? tanh(raw / cap) : 0, score = masked(d, host, q, k.token, cap > 0 ? cap * tanh_of : raw);
    double lse = dtype_read(CKL_F32, host[LSE], (q.batch * d->heads + q.head) * d->q + q.token);
    int64_t o_at = row_at(d, ATTENTION_O, q), v_at = row_at(d, ATTENTION_V, k);
    double dp = dot(d->dtype, host[DOUT], o_at, host[V], v_at, d->dv, &dp_size);
    double delta = dot(d->dtype, host[DOUT], o_at, host[O], o_at, d->dv, &dp_size);
    pair x = { .weight = lse == -INFINITY ? 0 : exp(score - lse) };
    x.weight_error = x.weight * cut * (1 + fabs(raw) + fabs(lse) + raw_size * scale);
    double bend = cap > 0 ? 1 - tanh_of * tanh_of : 1;
    x.slope = x.weight * (dp - delta) * bend;
    x.slope_error = x.weight_error * fabs(dp - delta) + x.weight * cut * dp_size;
    return x;
}

static bool sees(const ckl_attention_desc *d, int64_t i, int64_t j)
{
    int64_t own = i + d->kv - d->q;
    return (!d->left || j > own - d->left) && (!(d->causal || d->right) || j <= own + d->right);
}

/* Adds one pair's part of a row of a gradient. Factors below the type's smallest normal number are rounded more coarsely. */
static void add_pair(const ckl_attention_desc *d, void *const *host, place q, place k, reference_slice *out)
{
    const pair x = pair_of(d, host, q, k);
    const bool of_values = out->output == DV;
    const double factor = of_values ? x.weight : x.slope * (double)d->scale;
    const double error = of_values ? x.weight_error : x.slope_error * (double)d->scale;
    const double rounding = attention_rounding(d->dtype), smallest = d->dtype == CKL_F16 ? 0x1p-14 : 0x1p-126;
    const void *y = host[out->output == DQ ? K : out->output == DK ? Q : DOUT];
    int64_t first = out->output == DQ   ? row_at(d, ATTENTION_K, k)
                    : out->output == DK ? row_at(d, ATTENTION_Q, q)
                                        : row_at(d, ATTENTION_O, q);
    for (int64_t i = 0; i < out->count; i++) {
        double other = dtype_read(d->dtype, y, first + i);
        out->value[i] += factor * other;
        out->magnitude[i] += fabs(other) * (fabs(factor) + error / rounding + smallest);
    }
}

void attention_backward_reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_attention_desc *d = problem;
    const int64_t tokens = out.output == DQ ? d->q : d->kv, heads = out.output == DQ ? d->heads : d->kv_heads;
    const int64_t group = d->heads / d->kv_heads;
    place at = { out.row / tokens / heads, out.row / tokens % heads, out.row % tokens };
    for (int64_t i = 0; i < out.count; i++)
        out.value[i] = out.magnitude[i] = 0;
    if (out.output == DQ) {
        for (int64_t j = 0; j < d->kv; j++)
            if (sees(d, at.token, j))
                add_pair(d, host, at, (place){ at.batch, at.head / group, j }, &out);
        return;
    }
    for (int64_t head = at.head * group; head < (at.head + 1) * group; head++)
        for (int64_t i = 0; i < d->q; i++)
            if (sees(d, i, at.token))
                add_pair(d, host, (place){ at.batch, head, i }, at, &out);
}
