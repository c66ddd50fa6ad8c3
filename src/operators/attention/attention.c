/*
 * attention.c - attention, forward and backward: validation of problems, their tensors; strides of tensors with heads
 * and tokens, which decoding has, too.
 */
#include "cutekernellib/operators/attention.h"

#include <math.h>
#include <string.h>

#include "operators/attention/attention_config.h"
#include "operators/attention/attention_lab.h"
#include "operators/operators.h"

/* Strides: defaults by layout, overlap, alignment, maps for TMA */

ckl_status attention_check_strides(const char *op, ckl_attention_layout layout, const attention_fields *f)
{
    const bool bshd = layout == CKL_ATTENTION_BSHD;
    const attention_strides *s = &f->strides;
    TRY(plan_check_pitch(op, bshd ? s->heads.name : s->tokens.name, bshd ? f->ld_head : f->ld, "d", s->d));
    if (bshd && *f->ld == 0)
        *f->ld = product_i64(s->heads.size, *f->ld_head);
    if (!bshd && *f->ld_head == 0)
        *f->ld_head = product_i64(s->tokens.size, *f->ld);
    if (*f->ld_batch == 0)
        *f->ld_batch = bshd ? product_i64(s->tokens.size, *f->ld) : product_i64(s->heads.size, *f->ld_head);
    return CKL_OK;
}

static void swap_if_descending(attention_mode *a, attention_mode *b)
{
    const attention_mode x = *a, y = *b;
    *a = x.stride <= y.stride ? x : y;
    *b = x.stride <= y.stride ? y : x;
}

/* In the order of their strides, each mode steps over what those before it span. */
ckl_status attention_check_apart(const char *op, const char *tensor, const attention_strides *o)
{
    attention_mode modes[] = { o->tokens, o->heads, o->batch };
    swap_if_descending(&modes[0], &modes[1]);
    swap_if_descending(&modes[1], &modes[2]);
    swap_if_descending(&modes[0], &modes[1]);
    int64_t span = o->d;
    for (int i = 0; i < COUNT_OF(modes) && o->tokens.size > 0 && o->batch.size > 0; i++) {
        if (modes[i].size > 1 && modes[i].stride < span)
            FAIL(CKL_INVALID, "%s: %s=%" PRId64 " lets elements of %s overlap, which span %" PRId64, op, modes[i].name,
                 modes[i].stride, tensor, span);
        span = sum_i64(product_i64(modes[i].size - 1, modes[i].stride), span);
    }
    return CKL_OK;
}

ckl_status attention_check_vectors(const char *op, const char *who, const attention_strides *s, int64_t vector)
{
    const attention_mode *const modes[] = { &s->tokens, &s->heads, &s->batch };
    for (int i = 0; i < COUNT_OF(modes); i++)
        if (modes[i]->size > 1 && modes[i]->stride % vector)
            FAIL(CKL_UNSUPPORTED, "%s %s: %s=%" PRId64 " elements are not a multiple of 16 bytes", op, who,
                 modes[i]->name, modes[i]->stride);
    return CKL_OK;
}

/* The stride of a mode for TMA, of 16-bit elements; a mode of size 1 may have any. */
static int64_t map_stride(const attention_mode *m)
{
    enum { VECTOR = 8 };
    return m->size > 1 ? m->stride : VECTOR;
}

param_tensor attention_map_of(const void *pointer, const attention_strides *s)
{
    return (param_tensor){ .pointer = pointer,
                           .size = { s->d, s->tokens.size, s->heads.size, s->batch.size },
                           .stride = { 1, map_stride(&s->tokens), map_stride(&s->heads), map_stride(&s->batch) } };
}

/* Validation */

static attention_fields fields_of(ckl_attention_desc *x, int tensor)
{
    const int64_t batches = x->ragged ? min_i64(x->batch, 1) : x->batch, q = x->ragged ? x->q_total : x->q,
                  kv = x->ragged ? x->kv_total : x->kv;
    const attention_fields all[] = {
        [ATTENTION_Q] = ATTENTION_FIELDS(x, q, batches, x->heads, q, x->d),
        [ATTENTION_K] = ATTENTION_FIELDS(x, k, batches, x->kv_heads, kv, x->d),
        [ATTENTION_V] = ATTENTION_FIELDS(x, v, batches, x->kv_heads, kv, x->dv),
        [ATTENTION_O] = ATTENTION_FIELDS(x, o, batches, x->heads, q, x->dv),
    };
    return all[tensor];
}

attention_strides attention_strides_of(const ckl_attention_desc *desc, int tensor)
{
    ckl_attention_desc copy = *desc;
    return fields_of(&copy, tensor).strides;
}

static ckl_status check_mask(const ckl_attention_desc *d)
{
    if (d->dmask && (d->mask != CKL_ATTENTION_MASK_ADD || d->direction == CKL_DIRECTION_FORWARD))
        FAIL(CKL_INVALID, "attention: dmask=1 is for backward problems with mask=add");
    if (!d->mask) {
        TRY(plan_check_unused("attention", "ldmask", d->ldmask, "a problem without mask"));
        TRY(plan_check_unused("attention", "ldmask_head", d->ldmask_head, "a problem without mask"));
        return plan_check_unused("attention", "ldmask_batch", d->ldmask_batch, "a problem without mask");
    }
    if (d->ldmask && d->ldmask < d->kv)
        FAIL(CKL_INVALID, "attention: ldmask=%" PRId64 " is smaller than kv=%" PRId64, d->ldmask, d->kv);
    return CKL_OK;
}

static ckl_status check_ragged(ckl_attention_desc *d)
{
    if (!d->ragged) {
        TRY(plan_check_unused("attention", "q_total", d->q_total, "a problem that is not ragged"));
        return plan_check_unused("attention", "kv_total", d->kv_total, "a problem that is not ragged");
    }
    if (d->mask)
        FAIL(CKL_INVALID, "attention: ragged=1 is for problems without mask");
    d->q_total = d->q_total ? d->q_total : product_i64(d->batch, d->q);
    d->kv_total = d->kv_total ? d->kv_total : product_i64(d->batch, d->kv);
    if (d->q_total > INT32_MAX || d->kv_total > INT32_MAX || d->batch >= INT32_MAX)
        FAIL(CKL_INVALID, "attention: q_total=%" PRId64 " or kv_total=%" PRId64 " is more than 32 bits count",
             d->q_total, d->kv_total);
    if (d->q_total > product_i64(d->batch, d->q))
        FAIL(CKL_INVALID, "attention: q_total=%" PRId64 " is more than batch*q=%" PRId64, d->q_total, d->batch * d->q);
    if (d->kv_total > product_i64(d->batch, d->kv))
        FAIL(CKL_INVALID, "attention: kv_total=%" PRId64 " is more than batch*kv=%" PRId64, d->kv_total,
             d->batch * d->kv);
    return CKL_OK;
}

static ckl_status check_score(ckl_attention_desc *d)
{
    if (!d->score || !*d->score || strcmp(d->score, "none") == 0) {
        d->score = NULL;
        return CKL_OK;
    }
    const ckl_attention_score *score = attention_score_find(d->score);
    if (!score)
        FAIL(CKL_INVALID, "attention: score=%s is not known; ckl_attention_score_add() makes it so", d->score);
    d->score = score->name;
    if (d->direction == CKL_DIRECTION_BACKWARD && !score->slope)
        FAIL(CKL_INVALID, "attention: score=%s has no slope, which its gradients want", d->score);
    if (d->ragged && attention_score_reads_tokens(d->score))
        FAIL(CKL_INVALID, "attention: score=%s has inputs of queries or keys, ragged=1 is without", d->score);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    static const char *const outputs[] = { "dq", "dk", "dv", "o" }; // with the strides of these tensors
    ckl_attention_desc *d = desc;
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    d->dv = d->dv ? d->dv : d->d;
    if (d->scale == 0)
        d->scale = (float)(1 / sqrt((double)d->d));
    if (d->causal && d->right)
        FAIL(CKL_INVALID, "attention: right=%" PRId64 " is not part of a causal problem", d->right);
    TRY(check_mask(d));
    TRY(check_ragged(d));
    TRY(check_score(d));
    if (d->heads % d->kv_heads)
        FAIL(CKL_INVALID, "attention: kv_heads=%" PRId64 " does not divide heads=%" PRId64, d->kv_heads, d->heads);
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        const attention_fields f = fields_of(d, i);
        TRY(attention_check_strides("attention", d->layout, &f));
    }
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    if (!is_forward && d->lse)
        FAIL(CKL_INVALID, "attention: lse=1 is not part of a backward problem, which always reads it");
    for (int i = is_forward ? ATTENTION_O : ATTENTION_Q; i <= (is_forward ? ATTENTION_O : ATTENTION_V); i++) {
        const attention_strides s = attention_strides_of(d, i);
        TRY(attention_check_apart("attention", outputs[i], &s));
    }
    return CKL_OK;
}

/* The args' pointers behind those of q, k and v. */
enum { MASK = ATTENTION_O, SINKS, STARTS_Q, STARTS_KV, O, LSE, DOUT, DQ, DK, DV, DSINKS, INPUTS };
enum { DMASK = INPUTS + CKL_ATTENTION_INPUTS, OPERANDS };

_Static_assert((int)INPUTS == (int)ATTENTION_SCORE_INPUTS, "the laboratory counts the operands, too");

/* A tensor by another name, absent in forward problems. */
static plan_tensor gradient(plan_tensor t, const char *name, bool is_forward)
{
    t.name = name;
    return plan_absent(t, is_forward ? "a forward problem" : NULL);
}

/* An input of a custom score. */
static plan_tensor score_input(const ckl_attention_desc *d, int which)
{
    static const char *const names[CKL_ATTENTION_INPUTS] = { "input0", "input1" };
    const ckl_attention_score *score = d->score ? attention_score_find(d->score) : NULL;
    if (!score || !score->inputs[which].dtype)
        return plan_absent(plan_vector(names[which], CKL_I32, 1), "a problem without such an input");
    const int64_t columns[] = { [CKL_ATTENTION_ONE] = 1,
                                [CKL_ATTENTION_HEADS] = d->heads,
                                [CKL_ATTENTION_QUERIES] = d->q,
                                [CKL_ATTENTION_KEYS] = d->kv };
    const int64_t count = columns[score->inputs[which].columns];
    return plan_strided(names[which], score->inputs[which].dtype, 2, (int64_t[]){ d->batch, count },
                        (int64_t[]){ count, 1 });
}

static int tensors(const void *desc, plan_tensor *t)
{
    static const char *const names[] = { "q", "k", "v", "o" };
    const ckl_attention_desc *d = desc;
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        const attention_strides s = attention_strides_of(d, i);
        t[i] = plan_strided(names[i], d->dtype, 4, (int64_t[]){ s.batch.size, s.heads.size, s.tokens.size, s.d },
                            (int64_t[]){ s.batch.stride, s.heads.stride, s.tokens.stride, 1 });
    }
    t[SINKS] = plan_absent(plan_vector("sinks", CKL_F32, d->heads), d->sinks ? NULL : "a problem without sinks");
    const bool is_forward = d->direction == CKL_DIRECTION_FORWARD;
    t[DOUT] = gradient(t[ATTENTION_O], "dout", is_forward);
    t[DQ] = plan_output(gradient(t[ATTENTION_Q], "dq", is_forward));
    t[DK] = plan_output(gradient(t[ATTENTION_K], "dk", is_forward));
    t[DV] = plan_output(gradient(t[ATTENTION_V], "dv", is_forward));
    t[DSINKS] = plan_output(plan_vector("dsinks", CKL_F32, d->heads));
    t[DSINKS] = plan_absent(
        t[DSINKS], plan_first(is_forward ? "a forward problem" : NULL, d->sinks ? NULL : "a problem without sinks"));
    t[O] = is_forward ? plan_output(t[ATTENTION_O]) : t[ATTENTION_O];
    t[MASK] = plan_strided("mask", d->mask == CKL_ATTENTION_MASK_BOOL ? CKL_BOOL : d->dtype, 4,
                           (int64_t[]){ d->batch, d->heads, d->q, d->kv },
                           (int64_t[]){ d->ldmask_batch, d->ldmask_head, d->ldmask, 1 });
    t[MASK] = plan_absent(t[MASK], d->mask ? NULL : "a problem without mask");
    const char *const not_ragged = d->ragged ? NULL : "a problem that is not ragged";
    t[STARTS_Q] = plan_absent(plan_vector("starts_q", CKL_I32, d->batch + 1), not_ragged);
    t[STARTS_KV] = plan_absent(plan_vector("starts_kv", CKL_I32, d->batch + 1), not_ragged);
    for (int i = 0; i < CKL_ATTENTION_INPUTS; i++)
        t[INPUTS + i] = score_input(d, i);
    t[DMASK] = plan_strided(
        "dmask", d->dtype, 4, (int64_t[]){ d->batch, d->heads, d->q, d->kv },
        (int64_t[]){ product_i64(product_i64(d->heads, d->q), d->kv), product_i64(d->q, d->kv), d->kv, 1 });
    t[DMASK] = plan_output(plan_absent(t[DMASK], d->dmask ? NULL : "a problem without dmask"));
    const int64_t q = d->ragged ? d->q_total : d->q;
    t[LSE] = plan_strided("lse", CKL_F32, 3, (int64_t[]){ d->ragged ? min_i64(d->batch, 1) : d->batch, d->heads, q },
                          (int64_t[]){ product_i64(d->heads, q), q, 1 });
    if (is_forward)
        t[LSE] = plan_output(plan_absent(t[LSE], d->lse ? NULL : "a problem without lse"));
    return OPERANDS;
}

/* The operator */

static const field desc_fields[] = { ATTENTION_DESC(FIELD_ROW, ckl_attention_desc) };
static const implementation *const implementations[] = { &attention_sm90_backward_implementation,
                                                         &attention_naive_backward_implementation,
                                                         &attention_sm90_backward_unordered_implementation,
                                                         &attention_short_implementation,
                                                         &attention_sm90_implementation,
                                                         &attention_sm80_implementation,
                                                         &attention_tensor_implementation,
                                                         &attention_naive_implementation,
                                                         NULL };

OPERATOR(attention, attention, "O = softmax(scale*Q*K^T) * V", .workspace = offsetof(ckl_attention_args, workspace));

/* Problem lines */

static const field fields[] = {
    ATTENTION_DESC(FIELD_NESTED, (attention_problem, desc)) //
    FIELD_ROW(attention_problem, float, q_factor, "1", "",
              "random q reach to here, which makes scores far apart") //
};

OPERATOR_LINE(attention, attention_problem, NULL);
