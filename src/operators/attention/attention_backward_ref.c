/* attention_backward_ref.c - the gradients by their definition in double, a row at a time, with error bounds. */
#include <float.h>
#include <math.h>

#include "base/dtype.h"
#include "operators/attention/attention_config.h"
#include "operators/attention/attention_lab.h"

enum { Q, K, V, MASK, SINKS, STARTS_Q, STARTS_KV, O, LSE, DOUT }; // operands
enum { DQ, DK, DV, DSINKS, DMASK };                               // outputs
enum { HEAD_MAX = 1024 };

typedef struct place {
    int64_t batch, head, token;
} place;

/* What is read once of a query, and of a key. */
typedef struct query {
    place at;
    double q[HEAD_MAX], dout[HEAD_MAX];
    double delta, delta_size; // dout . o, and the sum of the absolute values of its terms
    double lse;
} query;

typedef struct key {
    place at;
    double k[HEAD_MAX], v[HEAD_MAX];
} key;

static void read_row(const ckl_attention_desc *d, int tensor, const void *from, place p, double *to)
{
    const attention_strides s = attention_strides_of(d, tensor);
    int64_t first = p.batch * s.batch.stride + p.head * s.heads.stride + p.token * s.tokens.stride;
    dtype_read_run(d->dtype, from, first, s.d, to);
}

/* The dot product of two rows; the sum of the terms' absolute values is added to *size. */
static double dot(const double *x, const double *y, int64_t count, double *size)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += x[i] * y[i];
        *size += fabs(x[i] * y[i]);
    }
    return sum;
}

static void read_query(const ckl_attention_desc *d, void *const *host, place at, query *x)
{
    double o[HEAD_MAX];
    x->at = at;
    x->delta_size = 0;
    read_row(d, ATTENTION_Q, host[Q], at, x->q);
    read_row(d, ATTENTION_O, host[DOUT], at, x->dout);
    read_row(d, ATTENTION_O, host[O], at, o);
    x->delta = dot(x->dout, o, d->dv, &x->delta_size);
    const int64_t rows = d->q_total ? d->q_total : d->q; // sequences of a ragged problem are packed
    x->lse = dtype_read(CKL_F32, host[LSE], (at.batch * d->heads + at.head) * rows + at.token);
}

static void read_key(const ckl_attention_desc *d, void *const *host, place at, key *x)
{
    x->at = at;
    read_row(d, ATTENTION_K, host[K], at, x->k);
    read_row(d, ATTENTION_V, host[V], at, x->v);
}

/* Kernels flush what is below the smallest normal f32 to zero: weights, and their products with slopes. */
static const double FLUSHED = 0x1p-126;

/*
 * The weight of a key and its slope, with errors: a tensor core truncates sums at about 2^-24 of the largest term,
 * exponents are f32.
 */
typedef struct pair {
    double weight, weight_error, slope, slope_error;
    double of_mask; // the slope before the soft cap's derivative
    bool overflows; // may a score in f32 be the difference of two infinities?
} pair;

static double masked(const ckl_attention_desc *d, void *const *host, place q, int64_t j, double score, double *error)
{
    const attention_pair pair_at = { q.batch, q.head, q.token, j };
    int64_t at = q.batch * d->ldmask_batch + q.head * d->ldmask_head + q.token * d->ldmask + j;
    if (d->mask == CKL_ATTENTION_MASK_BOOL)
        score = dtype_read(CKL_BOOL, host[MASK], at) == 0 ? -INFINITY : score;
    else if (d->mask)
        score += dtype_read(d->dtype, host[MASK], at);
    return attention_score_reference(d, host, &pair_at, score, error);
}

static pair pair_of(const ckl_attention_desc *d, void *const *host, const query *q, const key *k)
{
    const double cut = 0x1p-20, scale = (double)d->scale, cap = (double)d->softcap;
    double raw_size = 0, slope_size = q->delta_size;
    double raw = scale * dot(q->q, k->k, d->d, &raw_size), tanh_of = cap > 0 ? tanh(raw / cap) : 0;
    double error = 0, score = masked(d, host, q->at, k->at.token, cap > 0 ? cap * tanh_of : raw, &error);
    double slope = dot(q->dout, k->v, d->dv, &slope_size) - q->delta;
    pair x = { .weight = q->lse == -INFINITY ? 0 : exp(score - q->lse) };
    x.weight_error = FLUSHED + x.weight * (error + cut * (1 + fabs(raw) + fabs(q->lse) + raw_size * scale));
    x.overflows = score > -INFINITY && isfinite(raw_size) && raw_size > FLT_MAX;
    x.of_mask = x.weight * slope;
    x.slope = x.of_mask * (cap > 0 ? 1 - tanh_of * tanh_of : 1);
    x.slope_error = FLUSHED + x.weight_error * fabs(slope) + x.weight * cut * slope_size;
    return x;
}

static bool sees(const ckl_attention_desc *d, int64_t i, int64_t j)
{
    int64_t own = i + d->kv - d->q;
    return (!d->left || j > own - d->left) && (!(d->causal || d->right) || j <= own + d->right);
}

/* Does a factor overflow the type that tensor cores read? Then infinities meet zeros and each other. */
static bool overflows(const ckl_attention_desc *d, const pair *x)
{
    const double largest = d->dtype == CKL_F16 ? 0x1p15 : 0x1p126;
    const double factors = fmax(x->weight + x->weight_error, fabs(x->slope) + x->slope_error);
    return x->overflows || (isfinite(factors) && factors > largest);
}

/* Adds one pair to a row of a gradient. Factors below the type's smallest normal number are rounded more coarsely. */
static void add_pair(const ckl_attention_desc *d, void *const *host, const query *q, const key *k, reference_slice *out)
{
    const pair x = pair_of(d, host, q, k);
    const bool of_values = out->output == DV;
    const double scale = of_values ? 1 : (double)d->scale; // of whole sums: before it they may be infinite in f32
    const double factor = (of_values ? x.weight : x.slope) * scale, largest = 0x1p127 * scale;
    const double error = (of_values ? x.weight_error : x.slope_error) * scale;
    const double rounding = attention_rounding(d->dtype), smallest = d->dtype == CKL_F16 ? 0x1p-14 : 0x1p-126;
    const double *other = out->output == DQ ? k->k : out->output == DK ? q->q : q->dout;
    for (int64_t i = 0; i < out->count; i++) {
        const double magnitude = out->magnitude[i] + fabs(other[i]) * (fabs(factor) + error / rounding + smallest);
        const bool open =
            overflows(d, &x) || out->magnitude[i] == REFERENCE_OPEN || (isfinite(magnitude) && magnitude > largest);
        out->value[i] = open ? NAN : out->value[i] + factor * other[i];
        out->magnitude[i] = open ? REFERENCE_OPEN : magnitude;
    }
}

/* A key's element of dMask. */
static void set_mask(const ckl_attention_desc *d, void *const *host, const query *q, const key *k, reference_slice *out)
{
    const pair x = pair_of(d, host, q, k);
    out->value[k->at.token] = x.of_mask;
    out->magnitude[k->at.token] = fabs(x.of_mask) + x.slope_error / attention_rounding(d->dtype);
}

/* Row `at` of dQ, or of dMask. */
static void of_query(const ckl_attention_desc *d, void *const *host, place at, reference_slice *out)
{
    query q;
    key k;
    read_query(d, host, at, &q);
    for (int64_t j = 0; j < d->kv; j++)
        if (sees(d, at.token, j)) {
            read_key(d, host, (place){ at.batch, at.head / (d->heads / d->kv_heads), j }, &k);
            (out->output == DMASK ? set_mask : add_pair)(d, host, &q, &k, out);
        }
}

/* Row `at` of dK or dV: over the queries of all heads of its group. */
static void of_key(const ckl_attention_desc *d, void *const *host, place at, reference_slice *out)
{
    const int64_t group = d->heads / d->kv_heads;
    query q;
    key k;
    read_key(d, host, at, &k);
    for (int64_t head = at.head * group; head < (at.head + 1) * group; head++)
        for (int64_t i = 0; i < d->q; i++)
            if (sees(d, i, at.token)) {
                read_query(d, host, (place){ at.batch, head, i }, &q);
                add_pair(d, host, &q, &k, out);
            }
}

/* All of dSinks. */
static void of_sinks(const ckl_attention_desc *d, void *const *host, reference_slice *out)
{
    query q;
    for (int64_t head = 0; head < out->count; head++)
        for (int64_t row = 0; row < d->batch * d->q; row++) {
            read_query(d, host, (place){ row / d->q, head, row % d->q }, &q);
            double weight = exp(dtype_read(CKL_F32, host[SINKS], head) - q.lse);
            out->value[head] -= weight * q.delta;
            out->magnitude[head] += weight * q.delta_size;
        }
}

/* Ragged: all sequences are one batch of sinks; else the sequence of the row. */
static void of_ragged(const ckl_attention_desc *d, void *const *host, place at, reference_slice *out)
{
    ckl_attention_desc own = *d;
    void *own_host[ATTENTION_OPERANDS];
    if (out->output == DSINKS) {
        own.batch = 1;
        own.q = (int64_t)dtype_read(CKL_I32, host[STARTS_Q], d->batch);
        of_sinks(&own, host, out);
    } else if (attention_sequence_at(d, host, out->output != DQ, at.token, &own, own_host, &at.token))
        (out->output == DQ ? of_query : of_key)(&own, own_host, at, out);
    else
        for (int64_t i = 0; i < out->count; i++)
            out->value[i] = NAN, out->magnitude[i] = REFERENCE_OPEN;
}

void attention_backward_reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_attention_desc *d = problem;
    const int64_t q = d->ragged ? d->q_total : d->q, kv = d->ragged ? d->kv_total : d->kv;
    const bool of_queries = out.output == DQ || out.output == DMASK;
    const int64_t tokens = max_i64(of_queries ? q : kv, 1); // sinks have a gradient without keys, too
    const int64_t heads = of_queries ? d->heads : d->kv_heads;
    place at = { out.row / tokens / heads, out.row / tokens % heads, out.row % tokens };
    for (int64_t i = 0; i < out.count; i++)
        out.value[i] = out.magnitude[i] = 0;
    if (d->ragged)
        of_ragged(d, host, at, &out);
    else if (out.output == DSINKS)
        of_sinks(d, host, &out);
    else
        (of_queries ? of_query : of_key)(d, host, at, &out);
}
