/* attention_score_ref.c - the library's custom scores by their definitions, in double. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "operators/attention/attention_lab.h"

enum { INPUTS = ATTENTION_SCORE_INPUTS }; // operands

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
    double of_query = dtype_read(CKL_I32, host[INPUTS], at->batch * d->q + at->i);
    return of_query == dtype_read(CKL_I32, host[INPUTS + 1], at->batch * d->kv + at->j) ? s : -INFINITY;
}

static double prefix(const ckl_attention_desc *d, void *const *host, const attention_pair *at, double s, double *error)
{
    (void)d, (void)error;
    return (double)at->j < dtype_read(CKL_I32, host[INPUTS], at->batch) || at->j <= at->i ? s : -INFINITY;
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
