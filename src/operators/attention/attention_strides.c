/*
 * attention_strides.c - strides of tensors with heads and tokens: defaults by layout, overlap, alignment, maps for TMA.
 */
#include "operators/attention/attention_config.h"

attention_strides attention_strides_from(const attention_fields *f)
{
    return (attention_strides){ .d = f->d,
                                .tokens = { f->ld_name, f->tokens, *f->ld },
                                .heads = { f->ld_head_name, f->heads, *f->ld_head },
                                .batch = { f->ld_batch_name, f->batch, *f->ld_batch } };
}

ckl_status attention_check_strides(const char *op, ckl_attention_layout layout, const attention_fields *f)
{
    bool bshd = layout == CKL_ATTENTION_BSHD;
    TRY(plan_check_pitch(op, bshd ? f->ld_head_name : f->ld_name, bshd ? f->ld_head : f->ld, "d", f->d));
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
