/* attention_scores.c - custom scores by their names. */
#include "operators/attention/attention_config.h"

#include "base/status.h"
#include "plan/named.h"

static ckl_attention_score added[NAMED_MAX];
static const void *const own[] = { &attention_alibi, &attention_documents, &attention_prefix, NULL };
static named_list scores = { "attention_score_add", "score", sizeof(ckl_attention_score), own, added, 0 };

const ckl_attention_score *attention_score_find(const char *name)
{
    return named_find(&scores, name);
}

static ckl_status check(const ckl_attention_score *score)
{
    if (!score || !score->name || !score->score)
        FAIL(CKL_INVALID, "attention_score_add: a score wants a name and a function");
    for (int i = 0; i < CKL_ATTENTION_INPUTS; i++)
        if (score->inputs[i].dtype && score->inputs[i].dtype != CKL_I32 && score->inputs[i].dtype != CKL_F32)
            FAIL(CKL_INVALID, "attention_score_add: inputs[%d] of '%s' are %s, not i32 or f32", i, score->name,
                 ckl_dtype_name(score->inputs[i].dtype));
    return CKL_OK;
}

ckl_status ckl_attention_score_add(const ckl_attention_score *score)
{
    TRY(check(score));
    return named_add(&scores, score);
}

bool attention_score_bends(const char *name)
{
    const ckl_attention_score *score = name ? attention_score_find(name) : NULL;
    return score && score->slope != ckl_attention_slope_one;
}

bool attention_score_has_blocks(const char *name)
{
    const ckl_attention_score *score = name ? attention_score_find(name) : NULL;
    return score && score->block;
}

bool attention_score_reads_tokens(const char *name)
{
    const ckl_attention_score *score = name ? attention_score_find(name) : NULL;
    for (int i = 0; score && i < CKL_ATTENTION_INPUTS; i++)
        if (score->inputs[i].dtype && score->inputs[i].columns >= CKL_ATTENTION_QUERIES)
            return true;
    return false;
}
