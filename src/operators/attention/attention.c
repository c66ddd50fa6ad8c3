/* attention.c - attention forward: validation of problems, their tensors. */
#include "cutekernellib/operators/attention.h"

#include <math.h>

#include "operators/attention/attention_config.h"
#include "operators/operators.h"

/* Validation */

/* The fields of one tensor. */
typedef struct tensor_fields {
    const char *ld_name, *ld_head_name, *ld_batch_name;
    int64_t heads, tokens, d;
    int64_t *ld, *ld_head, *ld_batch;
} tensor_fields;

static tensor_fields fields_of(ckl_attention_desc *x, int tensor)
{
#define TENSOR(name, heads, tokens, d)                                                                            \
    (tensor_fields)                                                                                               \
    {                                                                                                             \
        "ld" #name, "ld" #name "_head", "ld" #name "_batch", heads, tokens, d, &x->ld##name, &x->ld##name##_head, \
            &x->ld##name##_batch                                                                                  \
    }
    const tensor_fields all[] = {
        [ATTENTION_Q] = TENSOR(q, x->heads, x->q, x->d),
        [ATTENTION_K] = TENSOR(k, x->kv_heads, x->kv, x->d),
        [ATTENTION_V] = TENSOR(v, x->kv_heads, x->kv, x->dv),
        [ATTENTION_O] = TENSOR(o, x->heads, x->q, x->dv),
    };
#undef TENSOR
    return all[tensor];
}

attention_strides attention_strides_of(const ckl_attention_desc *desc, int tensor)
{
    ckl_attention_desc copy = *desc;
    const tensor_fields f = fields_of(&copy, tensor);
    return (attention_strides){ .d = f.d,
                                .tokens = { f.ld_name, f.tokens, *f.ld },
                                .heads = { f.ld_head_name, f.heads, *f.ld_head },
                                .batch = { f.ld_batch_name, desc->batch, *f.ld_batch } };
}

/* Strides that are 0 follow from the sizes inside of them, in the order of the layout. */
static ckl_status check_strides(ckl_attention_layout layout, const tensor_fields *f)
{
    bool bshd = layout == CKL_ATTENTION_BSHD;
    TRY(plan_check_pitch("attention", bshd ? f->ld_head_name : f->ld_name, bshd ? f->ld_head : f->ld, "d", f->d));
    if (bshd && *f->ld == 0)
        *f->ld = product_i64(f->heads, *f->ld_head);
    if (!bshd && *f->ld_head == 0)
        *f->ld_head = product_i64(f->tokens, *f->ld);
    if (*f->ld_batch == 0)
        *f->ld_batch = bshd ? product_i64(f->tokens, *f->ld) : product_i64(f->heads, *f->ld_head);
    return CKL_OK;
}

static void swap_if_descending(attention_mode *a, attention_mode *b)
{
    const attention_mode x = *a, y = *b;
    *a = x.stride <= y.stride ? x : y;
    *b = x.stride <= y.stride ? y : x;
}

/* No two elements of O share memory: in the order of their strides, each mode steps over what those before it span. */
static ckl_status check_apart(const attention_strides *o)
{
    attention_mode modes[] = { o->tokens, o->heads, o->batch };
    swap_if_descending(&modes[0], &modes[1]);
    swap_if_descending(&modes[1], &modes[2]);
    swap_if_descending(&modes[0], &modes[1]);
    int64_t span = o->d;
    for (int i = 0; i < COUNT_OF(modes) && o->tokens.size > 0 && o->batch.size > 0; i++) {
        if (modes[i].size > 1 && modes[i].stride < span)
            FAIL(CKL_INVALID, "attention: %s=%" PRId64 " lets elements of o overlap, which span %" PRId64,
                 modes[i].name, modes[i].stride, span);
        span = sum_i64(product_i64(modes[i].size - 1, modes[i].stride), span);
    }
    return CKL_OK;
}

static ckl_status check_mask(const ckl_attention_desc *d)
{
    if (!d->mask) {
        TRY(plan_check_unused("attention", "ldmask", d->ldmask, "a problem without mask"));
        TRY(plan_check_unused("attention", "ldmask_head", d->ldmask_head, "a problem without mask"));
        return plan_check_unused("attention", "ldmask_batch", d->ldmask_batch, "a problem without mask");
    }
    if (d->ldmask && d->ldmask < d->kv)
        FAIL(CKL_INVALID, "attention: ldmask=%" PRId64 " is smaller than kv=%" PRId64, d->ldmask, d->kv);
    return CKL_OK;
}

static ckl_status check(void *desc)
{
    ckl_attention_desc *d = desc;
    d->kv_heads = d->kv_heads ? d->kv_heads : d->heads;
    d->dv = d->dv ? d->dv : d->d;
    if (d->scale == 0)
        d->scale = (float)(1 / sqrt((double)d->d));
    if (d->causal && d->right)
        FAIL(CKL_INVALID, "attention: right=%" PRId64 " is not part of a causal problem", d->right);
    TRY(check_mask(d));
    if (d->heads % d->kv_heads)
        FAIL(CKL_INVALID, "attention: kv_heads=%" PRId64 " does not divide heads=%" PRId64, d->kv_heads, d->heads);
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        const tensor_fields f = fields_of(d, i);
        TRY(check_strides(d->layout, &f));
    }
    const attention_strides o = attention_strides_of(d, ATTENTION_O);
    return check_apart(&o);
}

/* The args' pointers. */
enum { OPERAND_MASK = ATTENTION_O, OPERAND_SINKS, OPERAND_O, OPERAND_LSE };

static int tensors(const void *desc, plan_tensor *t)
{
    static const char *const names[] = { "q", "k", "v", "o" };
    const ckl_attention_desc *d = desc;
    for (int i = 0; i < ATTENTION_TENSORS; i++) {
        const attention_strides s = attention_strides_of(d, i);
        t[i] = plan_strided(names[i], d->dtype, 4, (int64_t[]){ d->batch, s.heads.size, s.tokens.size, s.d },
                            (int64_t[]){ s.batch.stride, s.heads.stride, s.tokens.stride, 1 });
    }
    t[OPERAND_O] = plan_output(t[ATTENTION_O]);
    t[OPERAND_MASK] = plan_strided("mask", d->mask == CKL_ATTENTION_MASK_BOOL ? CKL_BOOL : d->dtype, 4,
                                   (int64_t[]){ d->batch, d->heads, d->q, d->kv },
                                   (int64_t[]){ d->ldmask_batch, d->ldmask_head, d->ldmask, 1 });
    t[OPERAND_MASK] = plan_absent(t[OPERAND_MASK], d->mask ? NULL : "a problem without mask");
    t[OPERAND_SINKS] =
        plan_absent(plan_vector("sinks", CKL_F32, d->heads), d->sinks ? NULL : "a problem without sinks");
    t[OPERAND_LSE] = plan_strided("lse", CKL_F32, 3, (int64_t[]){ d->batch, d->heads, d->q },
                                  (int64_t[]){ product_i64(d->heads, d->q), d->q, 1 });
    t[OPERAND_LSE] = plan_output(plan_absent(t[OPERAND_LSE], d->lse ? NULL : "a problem without lse"));
    return OPERAND_LSE + 1;
}

/* The operator */

static const field desc_fields[] = { ATTENTION_DESC(FIELD_ROW, ckl_attention_desc) };
static const implementation *const implementations[] = { &attention_sm90_implementation, &attention_sm80_implementation,
                                                         &attention_tensor_implementation,
                                                         &attention_naive_implementation, NULL };

OPERATOR(attention, attention, "O = softmax(scale*Q*K^T) * V", .workspace = offsetof(ckl_attention_args, workspace));
