/* attention_decode.c - attention against a cache: validation of problems, their tensors. */
#include <math.h>

#include "operators/attention/attention_decode_config.h"
#include "operators/attention/attention_lab.h"
#include "operators/operators.h"

/* Validation */

/* Of a tensor that is apart: of a latent cache the values have no strides of their own. */
static attention_fields own_fields_of(ckl_attention_decode_desc *x, int tensor)
{
    const int64_t places = x->page ? x->pages : x->batch, keys = x->page ? x->page : x->kv;
    const attention_fields all[] = {
        [ATTENTION_Q] = ATTENTION_FIELDS(x, q, x->batch, x->heads, x->q, x->d),
        [ATTENTION_K] = ATTENTION_FIELDS(x, k, places, x->kv_heads, keys, x->d),
        [ATTENTION_V] = ATTENTION_FIELDS(x, v, places, x->kv_heads, keys, x->dv),
        [ATTENTION_O] = ATTENTION_FIELDS(x, o, x->batch, x->heads, x->q, x->dv),
        [DECODE_K_NEW] = ATTENTION_FIELDS(x, k_new, x->batch, x->kv_heads, x->q, x->d),
        [DECODE_V_NEW] = ATTENTION_FIELDS(x, v_new, x->batch, x->kv_heads, x->q, x->dv),
    };
    return all[tensor];
}

static attention_fields fields_of(ckl_attention_decode_desc *x, int tensor)
{
    const bool is_values = tensor == ATTENTION_V || tensor == DECODE_V_NEW;
    attention_fields f = own_fields_of(x, x->latent && is_values ? tensor - 1 : tensor); // values are in the keys
    f.strides.d = is_values || tensor == ATTENTION_O ? x->dv : x->d;
    return f;
}

attention_strides attention_decode_strides_of(const ckl_attention_decode_desc *desc, int tensor)
{
    ckl_attention_decode_desc copy = *desc;
    return fields_of(&copy, tensor).strides;
}

static ckl_status check_pages(ckl_attention_decode_desc *d)
{
    if (!d->page)
        return plan_check_unused("attention_decode", "pages", d->pages, "a contiguous cache");
    if (!d->pages)
        d->pages = product_i64(d->batch, ceil_div(d->kv, d->page));
    if (d->pages > INT32_MAX || (d->pages == 0 && d->batch > 0))
        FAIL(CKL_INVALID, "attention_decode: pages=%" PRId64 " have no numbers of 32 bits", d->pages);
    return CKL_OK;
}

/* The strides of a tensor that a problem of this kind does not have. */
static ckl_status check_no_strides(ckl_attention_decode_desc *d, int tensor, const char *of)
{
    const attention_fields f = own_fields_of(d, tensor);
    TRY(plan_check_unused("attention_decode", f.strides.tokens.name, *f.ld, of));
    TRY(plan_check_unused("attention_decode", f.strides.heads.name, *f.ld_head, of));
    return plan_check_unused("attention_decode", f.strides.batch.name, *f.ld_batch, of);
}

static ckl_status check_append(ckl_attention_decode_desc *d)
{
    for (int i = DECODE_K_NEW; i <= DECODE_V_NEW && !d->append; i++)
        TRY(check_no_strides(d, i, "a problem without append"));
    for (int i = ATTENTION_K; i <= ATTENTION_V && d->append; i++) {
        const attention_strides s = attention_decode_strides_of(d, i);
        TRY(attention_check_apart("attention_decode", i == ATTENTION_K ? "k_into" : "v_into", &s));
    }
    return CKL_OK;
}

static ckl_status check_latent(ckl_attention_decode_desc *d)
{
    if (!d->latent)
        return CKL_OK;
    if (d->dv > d->d)
        FAIL(CKL_INVALID, "attention_decode: dv=%" PRId64 " of a latent cache is more than d=%" PRId64, d->dv, d->d);
    TRY(check_no_strides(d, ATTENTION_V, "a latent cache"));
    TRY(check_no_strides(d, DECODE_V_NEW, "a latent cache"));
    if (d->cache == CKL_E4M3)
        return plan_check_unused("attention_decode", "append", d->append, "a latent cache of e4m3");
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_attention_decode_desc *d = desc;
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    d->dv = d->dv ? d->dv : d->d;
    if (d->scale == 0)
        d->scale = (float)(1 / sqrt((double)d->d));
    d->cache = d->cache ? d->cache : d->dtype;
    if (d->cache != d->dtype && d->cache != CKL_E4M3)
        FAIL(CKL_INVALID, "attention_decode: cache=%s is neither dtype=%s nor e4m3", ckl_dtype_name(d->cache),
             ckl_dtype_name(d->dtype));
    TRY(check_latent(d));
    TRY(check_pages(d));
    if (d->heads % d->kv_heads)
        FAIL(CKL_INVALID, "attention_decode: kv_heads=%" PRId64 " does not divide heads=%" PRId64, d->kv_heads,
             d->heads);
    for (int i = 0; i < (d->append ? DECODE_TENSORS : ATTENTION_TENSORS); i++) {
        const attention_fields f = fields_of(d, i);
        TRY(attention_check_strides("attention_decode", d->layout, &f));
    }
    TRY(check_append(d));
    const attention_strides o = attention_decode_strides_of(d, ATTENTION_O);
    return attention_check_apart("attention_decode", "o", &o);
}

/* The args' pointers behind those of q, k and v. */
enum { LENGTHS = ATTENTION_O, TABLE, SINKS, O, LSE, SCALE_K, SCALE_V, K_NEW, V_NEW, K_INTO, V_INTO, OPERANDS };

static plan_tensor tensor_of(const ckl_attention_decode_desc *d, int which, const char *name)
{
    const bool of_cache = which == ATTENTION_K || which == ATTENTION_V;
    const attention_strides s = attention_decode_strides_of(d, which);
    return plan_strided(name, of_cache ? d->cache : d->dtype, 4,
                        (int64_t[]){ s.batch.size, s.heads.size, s.tokens.size, s.d },
                        (int64_t[]){ s.batch.stride, s.heads.stride, s.tokens.stride, 1 });
}

static int tensors(const void *desc, plan_tensor *t)
{
    static const char *const names[] = { "q", "k", "v" };
    const ckl_attention_decode_desc *d = desc;
    const char *const no_scales = d->cache == CKL_E4M3 ? NULL : "a cache of dtype",
                      *const no_append = d->append ? NULL : "a problem without append",
                      *const no_values = d->latent ? "a latent cache" : no_append;
    const int64_t pages = d->page ? ceil_div(d->kv, d->page) : 1;
    for (int i = 0; i < ATTENTION_O; i++)
        t[i] = tensor_of(d, i, names[i]);
    t[ATTENTION_V] = plan_absent(t[ATTENTION_V], d->latent ? "a latent cache" : NULL);
    t[LENGTHS] = plan_vector("lengths", CKL_I32, d->batch);
    t[TABLE] = plan_absent(plan_apart(plan_matrix("table", CKL_I32, d->batch, pages, pages)),
                           d->page ? NULL : "a contiguous cache");
    t[SINKS] = plan_absent(plan_vector("sinks", CKL_F32, d->heads), d->sinks ? NULL : "a problem without sinks");
    t[O] = plan_output(tensor_of(d, ATTENTION_O, "o"));
    t[SCALE_K] = plan_absent(plan_vector("scale_k", CKL_F32, d->kv_heads), no_scales);
    t[SCALE_V] = plan_absent(plan_vector("scale_v", CKL_F32, d->kv_heads), no_scales);
    t[K_NEW] = plan_absent(tensor_of(d, DECODE_K_NEW, "k_new"), no_append);
    t[V_NEW] = plan_absent(tensor_of(d, DECODE_V_NEW, "v_new"), no_values);
    t[K_INTO] = plan_output(plan_absent(tensor_of(d, ATTENTION_K, "k_into"), no_append));
    t[V_INTO] = plan_output(plan_absent(tensor_of(d, ATTENTION_V, "v_into"), no_values));
    for (int i = 0; i < 2; i++) // the cache itself
        t[ATTENTION_K + i].place = t[K_INTO + i].place = 1 + i;
    t[LSE] = plan_strided("lse", CKL_F32, 3, (int64_t[]){ d->batch, d->heads, d->q },
                          (int64_t[]){ product_i64(d->heads, d->q), d->q, 1 });
    t[LSE] = plan_output(plan_absent(t[LSE], d->lse ? NULL : "a problem without lse"));
    return OPERANDS;
}

/* The operator */

static const field desc_fields[] = { ATTENTION_DECODE_DESC(FIELD_ROW, ckl_attention_decode_desc) };
static const implementation *const implementations[] = { &attention_decode_latent_few_implementation,
                                                         &attention_decode_latent_implementation,
                                                         &attention_decode_sm80_implementation,
                                                         &attention_decode_naive_implementation, NULL };

OPERATOR(attention_decode, attention_decode, "attention of new tokens against a cache of keys and values",
         .workspace = offsetof(ckl_attention_decode_args, workspace));

/* Problem lines */

static const field fields[] = {
    ATTENTION_DECODE_DESC(FIELD_NESTED, (attention_decode_problem, desc)) //
    FIELD_ROW(attention_decode_problem, int64_t, shortest, "-1", "-1..",
              "lengths are from here to kv; -1: all are kv") //
};

static ckl_status prepare(void *problem)
{
    const attention_decode_problem *p = problem;
    if (p->shortest < -1)
        FAIL(CKL_INVALID, "attention_decode: shortest=%" PRId64 " is less than -1", p->shortest);
    if (p->shortest > p->desc.kv)
        FAIL(CKL_INVALID, "attention_decode: shortest=%" PRId64 " is more than kv=%" PRId64, p->shortest, p->desc.kv);
    return CKL_OK;
}

OPERATOR_LINE(attention_decode, attention_decode_problem, prepare);
