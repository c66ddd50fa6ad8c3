/*
 * attention_ref.c - the definition of attention in double, a row at a time, with error bounds, and of the library's
 * custom scores.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/heap.h"
#include "base/wide.h"
#include "operators/attention/attention_config.h"
#include "operators/attention/attention_lab.h"

double attention_rounding(ckl_dtype dtype)
{
    return dtype_epsilon(dtype) / 2;
}

/* Custom scores */

static double alibi(const ckl_attention_desc *d, void *const *host, const attention_pair *at, double s, double *error)
{
    (void)host;
    double bias = exp2(-8.0 * (double)(at->head + 1) / (double)d->heads) * (double)(at->j - at->i);
    *error += 0x1p-20 * fabs(bias);
    return s + bias;
}

static double documents(const ckl_attention_desc *d, void *const *host, const attention_pair *at, double s,
                        double *error)
{
    (void)error;
    double of_query = dtype_read(CKL_I32, host[ATTENTION_SCORE_INPUTS], at->batch * d->q + at->i);
    return of_query == dtype_read(CKL_I32, host[ATTENTION_SCORE_INPUTS + 1], at->batch * d->kv + at->j) ? s : -INFINITY;
}

static double prefix(const ckl_attention_desc *d, void *const *host, const attention_pair *at, double s, double *error)
{
    (void)d, (void)error;
    return (double)at->j < dtype_read(CKL_I32, host[ATTENTION_SCORE_INPUTS], at->batch) || at->j <= at->i ? s
                                                                                                          : -INFINITY;
}

double attention_score_reference(const ckl_attention_desc *d, void *const *host, const attention_pair *at, double s,
                                 double *error)
{
    static const struct {
        const char *name;
        double (*of)(const ckl_attention_desc *d, void *const *host, const attention_pair *at, double s, double *error);
    } all[] = { { "alibi", alibi }, { "documents", documents }, { "prefix", prefix } };
    for (int i = 0; i < (int)(sizeof all / sizeof all[0]); i++)
        if (d->score && strcmp(d->score, all[i].name) == 0)
            return all[i].of(d, host, at, s, error);
    return d->score ? NAN : s;
}

/* A row of O */

enum { Q, K, V, MASK, SINKS, STARTS_Q, STARTS_KV, O, LSE, DOUT }; // operands

/* One row of O: where its tensors are, and its keys. */
typedef struct row {
    const ckl_attention_desc *d;
    ckl_dtype weights;        // f16 or bf16: the type in which a kernel may multiply weights
    void *const *host;        // all operands
    attention_pair at;        // batch, head and query
    const void *k, *v, *mask; // whole tensors
    int64_t mask_first;       // index of the mask of its first key
    int64_t k_first, v_first; // index of the first key and value of its head
    int64_t first, end;       // keys that it sees
    double sink;              // -inf: there is none
    double *q, largest;       // [d]: its query, and the largest of it
    double *line;             // [d or dv]: room for a key or value
    double *weight, *error;   // [kv]: exp(score - max), and the relative error of a kernel's
    double max, max_error;    // of the scores
    double sum, sum_error;    // of the weights, and of the errors of them
    bool unknown;             // may the row be anything? Scores are beyond f32, or the largest one is too inexact
} row;

static row row_of(const ckl_attention_desc *d, ckl_dtype weights, void *const *host, int64_t number)
{
    int64_t i = number % d->q, head = number / d->q % d->heads, batch = number / d->q / d->heads;
    int64_t kv_head = head / (d->heads / d->kv_heads), own = i + d->kv - d->q; // the query's own key
    row r = { .d = d, .weights = weights, .k = host[K], .v = host[V] };
    r.host = host;
    r.at = (attention_pair){ .batch = batch, .head = head, .i = i };
    r.mask = host[MASK];
    r.mask_first = batch * d->ldmask_batch + head * d->ldmask_head + i * d->ldmask;
    r.first = d->left ? max_i64(0, own + 1 - d->left) : 0;
    r.end = d->causal || d->right ? min_i64(d->kv, max_i64(0, own + 1 + d->right)) : d->kv;
    r.sink = d->sinks ? dtype_read(CKL_F32, host[SINKS], head) : -INFINITY;
    r.k_first = batch * d->ldk_batch + kv_head * d->ldk_head;
    r.v_first = batch * d->ldv_batch + kv_head * d->ldv_head;
    r.weight = heap_alloc((size_t)(2 * d->kv + d->d + max_i64(d->d, d->dv)), sizeof *r.weight);
    r.error = r.weight + d->kv;
    r.q = r.error + d->kv;
    r.line = r.q + d->d;
    dtype_read_run(d->dtype, host[Q], batch * d->ldq_batch + head * d->ldq_head + i * d->ldq, d->d, r.q);
    for (int64_t l = 0; l < d->d; l++)
        r.largest = fmax(r.largest, fabs(r.q[l]));
    return r;
}

/* Of a capped score, relative up to CAPPED_MAX, and of a weight: attention_softmax.c. */
static const double CAP_ERROR = 0x1p-16, CAPPED_MAX = 32, CAP_LOST = 0x1p-25;

/* Of a query and a key: their product, absolute values of its terms, also of those that are finite, and of the key. */
typedef struct product {
    double sum, magnitude, finite, key;
} product;

WIDE static product product_of(const double *q, const double *k, int64_t count)
{
    double sum = 0, magnitude = 0, finite = 0, key = 0;
    _Pragma("omp simd reduction(+ : sum, magnitude, finite, key)") for (int64_t i = 0; i < count; i++)
    {
        const double term = q[i] * k[i], size = fabs(term);
        sum += term;
        magnitude += size;
        finite += size <= DBL_MAX ? size : 0;
        key += fabs(k[i]);
    }
    return (product){ sum, magnitude, finite, key };
}

/*
 * A score and the error of a kernel's: a tensor core truncates every 16 products at about 2^-24 of the largest, and
 * exponents are computed from the score and the maximum, each rounded to f32.
 */
static double plain_score(row *r, int64_t j, double *error)
{
    const ckl_attention_desc *d = r->d;
    const bool cut = r->weights == CKL_F16 && d->dtype == CKL_BF16; // rows of Q come in f16, by powers of 2
    const double scale = (double)d->scale;
    dtype_read_run(d->dtype, r->k, r->k_first + j * d->ldk, d->d, r->line);
    const product p = product_of(r->q, r->line, d->d);
    double capped = d->softcap > 0 ? (double)d->softcap * tanh(p.sum * scale / (double)d->softcap) : p.sum * scale;
    *error = 0x1p-22 * (1 + fabs(p.sum * scale) + sqrt((double)d->d / 16 + 1) * p.magnitude * fabs(scale));
    if (d->softcap > 0)
        *error += CAP_ERROR * fmin(fabs(capped), CAPPED_MAX);
    if (cut && isfinite(r->largest))
        *error += 0x1p-38 * r->largest * p.key * fabs(scale); // attention_decode_narrow.c
    if (d->mask == CKL_ATTENTION_MASK_BOOL && dtype_read(CKL_BOOL, r->mask, r->mask_first + j) == 0)
        return -INFINITY;
    r->unknown |= p.finite > FLT_MAX;
    if (d->mask != CKL_ATTENTION_MASK_ADD)
        return capped;
    double bias = dtype_read(d->dtype, r->mask, r->mask_first + j);
    *error += 0x1p-22 * fabs(bias);
    return capped + bias;
}

static double score(row *r, int64_t j, double *error)
{
    const attention_pair at = { r->at.batch, r->at.head, r->at.i, j };
    double s = plain_score(r, j, error);
    return attention_score_reference(r->d, r->host, &at, s, error);
}

/* With an error of this size a score's weight may be anything; with that of the largest score, the whole row. */
enum { ERROR_MAX = 60 };

static void find_weights(row *r)
{
    r->max = -INFINITY;
    for (int64_t j = r->first; j < r->end; j++) {
        r->weight[j] = score(r, j, &r->error[j]);
        if (r->weight[j] > r->max)
            r->max = r->weight[j], r->max_error = r->error[j];
    }
    r->unknown |= r->max_error > ERROR_MAX; // kernels weigh by it before they meet the sink
    if (r->sink > r->max)
        r->max = r->sink, r->max_error = 0x1p-22 * (1 + fabs(r->sink));
    r->max = r->max > -INFINITY ? r->max : 0;
    r->sum = exp(r->sink - r->max);
    for (int64_t j = r->first; j < r->end; j++) {
        r->error[j] = isfinite(r->weight[j]) ? expm1(fmin(r->error[j] + r->max_error, ERROR_MAX)) : 0;
        r->weight[j] = exp(r->weight[j] - r->max);
        r->sum += r->weight[j]; // NaN if a score is NaN or +inf, 0 if all are -inf
        r->sum_error += r->weight[j] * r->error[j] + (r->d->softcap > 0 ? fmin(r->weight[j], CAP_LOST) : 0);
    }
}

static void logarithm(const row *r, double *value, double *magnitude)
{
    const double added = 4 * sqrt((double)(r->end - r->first)) * 0x1p-24; // one after the other
    *value = r->sum == 0 ? -INFINITY : r->max + log(r->sum);
    *magnitude = (r->sum_error / r->sum + added + 0x1p-20 * (1 + fabs(*value))) / attention_rounding(r->d->dtype);
    if (r->unknown && !isnan(r->sum))
        *value = NAN, *magnitude = REFERENCE_OPEN;
}

/* What a key does to all columns of O: its weight, and what errors are of each of its values. */
typedef struct key_term {
    bool seen;
    double weight, error, cut;
    double open; // 1: an infinity or NaN without weight, of which it is left open whether the product is computed
} key_term;

/* Sums of a row's columns: of terms, of their absolute values, of errors, and of what is open. */
typedef struct row_sums {
    double *terms, *sizes, *errors, *open;
} row_sums;

WIDE static void add_key(key_term t, const double *v, int count, row_sums s)
{
    EACH_OF(i, count) {
        const double size = fabs(v[i]);
        s.errors[i] += size <= DBL_MAX ? t.cut * size : 0;
        s.open[i] += size <= DBL_MAX ? 0 : t.open;
    }
    if (!t.seen)
        return;
    EACH_OF(i, count) {
        s.terms[i] += t.weight * v[i];
        s.sizes[i] += fabs(t.weight * v[i]);
        s.errors[i] += t.error * fabs(v[i]);
    }
}

/* NOTE: a tensor core aligns products by the exponents of their factors, and that of a weight of 0 is the smallest. */
static const double CUT = 0x1p-24;

/*
 * Weights below the type's smallest normal number are rounded more coarsely, or flushed to zero as those of f32; under
 * a soft cap, where small ones are less exact, as those of f16.
 */
static void columns(const row *r, reference_slice out)
{
    const ckl_attention_desc *d = r->d;
    const bool is_coarse = r->weights == CKL_F16 || d->softcap > 0;
    const double rounding = attention_rounding(d->dtype), smallest = is_coarse ? 0x1p-14 : 0x1p-126;
    const double lost = is_coarse ? smallest * attention_rounding(CKL_F16) : smallest;
    double *sums = heap_alloc((size_t)(4 * out.count), sizeof *sums);
    const row_sums s = { sums, sums + out.count, sums + 2 * out.count, sums + 3 * out.count };
    for (int64_t j = 0; j < d->kv; j++) {
        key_term t = { .seen = j >= r->first && j < r->end, .cut = CUT * smallest };
        if (t.seen) {
            t.weight = r->weight[j];
            t.error = t.weight * r->error[j] + (t.weight < smallest ? lost : 0);
        }
        t.open = !t.seen || t.weight / (1 + r->error[j]) < smallest;
        dtype_read_run(d->dtype, r->v, r->v_first + j * d->ldv, out.count, r->line);
        add_key(t, r->line, (int)out.count, s);
    }
    for (int64_t i = 0; i < out.count; i++) {
        const double value = r->sum == 0 ? 0 : s.terms[i] / r->sum;
        const double errors = s.errors[i] + r->sum_error * fabs(value);
        const bool open = (s.open[i] > 0 || r->unknown) && !isnan(r->sum);
        out.value[i] = open ? NAN : value;
        out.magnitude[i] = open ? REFERENCE_OPEN : r->sum == 0 ? 0 : (s.sizes[i] + errors / rounding) / r->sum;
    }
    heap_free(sums);
}

/* Row `number` of O, or its logarithm. */
static void one_row(const ckl_attention_desc *d, ckl_dtype weights, void *const *host, int64_t number,
                    reference_slice out)
{
    row r = row_of(d, weights, host, number);
    find_weights(&r);
    if (out.output == 0)
        columns(&r, out);
    else
        logarithm(&r, out.value, out.magnitude);
    heap_free(r.weight);
}

bool attention_sequence_at(const ckl_attention_desc *d, void *const *host, bool of_keys, int64_t token,
                           ckl_attention_desc *own, void **own_host, int64_t *number)
{
    const void *starts = host[of_keys ? STARTS_KV : STARTS_Q];
    int64_t b = 0, begin[2], end[2];
    while (b < d->batch && (int64_t)dtype_read(CKL_I32, starts, b + 1) <= token)
        b++;
    if (b == d->batch)
        return false;
    for (int i = 0; i < 2; i++) {
        begin[i] = (int64_t)dtype_read(CKL_I32, host[STARTS_Q + i], b);
        end[i] = (int64_t)dtype_read(CKL_I32, host[STARTS_Q + i], b + 1);
    }
    const int64_t element = (int64_t)ckl_dtype_bytes(d->dtype);
    *own = *d;
    own->batch = 1;
    own->ragged = false;
    own->q = end[0] - begin[0];
    own->kv = end[1] - begin[1];
    own_host[Q] = (char *)host[Q] + begin[0] * d->ldq * element;
    own_host[K] = (char *)host[K] + begin[1] * d->ldk * element;
    own_host[V] = (char *)host[V] + begin[1] * d->ldv * element;
    own_host[MASK] = NULL;
    own_host[SINKS] = host[SINKS];
    const int64_t at_o = begin[0] * d->ldo * element;
    own_host[O] = (char *)host[O] + at_o;
    own_host[DOUT] = host[DOUT] ? (char *)host[DOUT] + at_o : NULL;
    own_host[ATTENTION_SCORE_INPUTS] = // a number for each sequence
        d->score ? (char *)host[ATTENTION_SCORE_INPUTS] + b * (int64_t)sizeof(int32_t) : NULL;
    own_host[LSE] = host[LSE] ? (char *)host[LSE] + begin[0] * (int64_t)sizeof(float) : NULL;
    *number = token - begin[of_keys];
    return true;
}

/* The same for row `number` of a ragged problem's packed tensors. */
static void one_ragged_row(const ckl_attention_desc *d, ckl_dtype weights, void *const *host, int64_t number,
                           reference_slice out)
{
    ckl_attention_desc own;
    void *own_host[ATTENTION_OPERANDS];
    int64_t query;
    if (attention_sequence_at(d, host, false, number % d->q_total, &own, own_host, &query))
        one_row(&own, weights, own_host, number / d->q_total * own.q + query, out);
    else
        for (int64_t i = 0; i < out.count; i++)
            out.value[i] = NAN, out.magnitude[i] = REFERENCE_OPEN;
}

/* Slices are rows of O, or rows of logarithms of a head. */
void attention_reference_by(const ckl_attention_desc *d, ckl_dtype weights, void *const *host, reference_slice out)
{
    const int64_t queries = d->ragged ? d->q_total : d->q, rows = out.output == 0 ? 1 : out.count;
    for (int64_t e = 0; e < rows; e++) {
        reference_slice one = out;
        if (out.output == 1)
            one = (reference_slice){ .value = out.value + e, .magnitude = out.magnitude + e, .output = 1, .count = 1 };
        (d->ragged ? one_ragged_row : one_row)(d, weights, host, out.output == 0 ? out.row : out.row * queries + e,
                                               one);
    }
}

void attention_reference(const void *problem, void *const *host, reference_slice out)
{
    const ckl_attention_desc *d = problem;
    attention_reference_by(d, d->dtype, host, out);
}
