/* attention_examples.c - three scores as a user writes them, with the public header alone: ALiBi, documents, prefix. */
#include "cutekernellib/operators/attention_score.h"

#include <math.h>

/* s + slope * (j - i). The term slope * i, which a row has in common, changes its log-sum-exp alone. */
static ckl_val alibi(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    (void)batch, (void)user;
    ckl_val number = ckl_val_to_f32(ckl_val_add(head, ckl_val_i32(1)));
    ckl_val step = ckl_val_div(ckl_val_f32(-8), ckl_val_to_f32(ckl_attention_heads()));
    return ckl_val_fma(ckl_val_exp2(ckl_val_mul(number, step)), ckl_val_to_f32(ckl_val_sub(j, i)), s);
}

const ckl_attention_score attention_alibi = { .name = "alibi", .score = alibi, .slope = ckl_attention_slope_one };

enum { OF_QUERIES, OF_KEYS }; // inputs of documents

static ckl_val documents(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    (void)head, (void)user;
    ckl_val same = ckl_val_eq(ckl_attention_read(OF_QUERIES, batch, i), ckl_attention_read(OF_KEYS, batch, j));
    return ckl_val_select(same, s, ckl_val_f32(-INFINITY));
}

/* Document numbers do not fall along tokens, so those of the first and the last token bound what is between. */
static ckl_val documents_block(const ckl_attention_block *b, void *user)
{
    (void)user;
    ckl_val i_first = ckl_attention_read(OF_QUERIES, b->batch, b->i_first),
            i_last = ckl_attention_read(OF_QUERIES, b->batch, b->i_last),
            j_first = ckl_attention_read(OF_KEYS, b->batch, b->j_first),
            j_last = ckl_attention_read(OF_KEYS, b->batch, b->j_last);
    ckl_val apart = ckl_val_or(ckl_val_lt(i_last, j_first), ckl_val_lt(j_last, i_first));
    ckl_val alike = ckl_val_and(ckl_val_eq(i_first, j_last), ckl_val_eq(j_first, i_last));
    return ckl_val_select(apart, ckl_val_i32(CKL_ATTENTION_SKIP),
                          ckl_val_select(alike, ckl_val_i32(CKL_ATTENTION_PLAIN), ckl_val_i32(CKL_ATTENTION_SCORE)));
}

const ckl_attention_score attention_documents = {
    .name = "documents",
    .score = documents,
    .slope = ckl_attention_slope_one,
    .block = documents_block,
    .inputs = { { CKL_I32, CKL_ATTENTION_QUERIES }, { CKL_I32, CKL_ATTENTION_KEYS } },
};

static ckl_val prefix(ckl_val s, ckl_val batch, ckl_val head, ckl_val i, ckl_val j, void *user)
{
    (void)head, (void)user;
    ckl_val length = ckl_attention_read(0, batch, ckl_val_i32(0));
    ckl_val seen = ckl_val_or(ckl_val_lt(j, length), ckl_val_le(j, i));
    return ckl_val_select(seen, s, ckl_val_f32(-INFINITY));
}

static ckl_val prefix_block(const ckl_attention_block *b, void *user)
{
    (void)user;
    ckl_val length = ckl_attention_read(0, b->batch, ckl_val_i32(0));
    ckl_val hidden = ckl_val_and(ckl_val_le(length, b->j_first), ckl_val_lt(b->i_last, b->j_first));
    ckl_val seen = ckl_val_or(ckl_val_lt(b->j_last, length), ckl_val_le(b->j_last, b->i_first));
    return ckl_val_select(hidden, ckl_val_i32(CKL_ATTENTION_SKIP),
                          ckl_val_select(seen, ckl_val_i32(CKL_ATTENTION_PLAIN), ckl_val_i32(CKL_ATTENTION_SCORE)));
}

const ckl_attention_score attention_prefix = {
    .name = "prefix",
    .score = prefix,
    .slope = ckl_attention_slope_one,
    .block = prefix_block,
    .inputs = { { CKL_I32, CKL_ATTENTION_ONE } },
};
